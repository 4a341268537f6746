"""What every command promises: help, streams, exit statuses, environment, signals, shells."""
import json
import os
import pty
import re
import resource
import shutil
import signal
import subprocess
import time
import unittest

from command import Case, MODEL, PROGRAM, ROOT, clean_environment, main, reference, run, save_npy, start

COMMANDS = reference()
# Words that make each command do something small, without input from a terminal.
WORKS = {
    "generate": ["-m", MODEL, "-p", "the", "-n", "3"],
    "poem": ["-m", str(ROOT / "models/poet"), "-a", "\u6625", "--candidates", "1"],
    "chat": ["-m", MODEL, "-p", "the", "-n", "3"],
    "tokens encode": ["-m", MODEL, "the sea"],
    "tokens decode": ["-m", MODEL, "1 2 3"],
    "tokens train": [str(ROOT / "LICENSE"), "--out", "OUT"],
    "eval": ["-m", MODEL, "--file", str(ROOT / "LICENSE"), "--window", "16", "--max-perplexity", "1e30"],
    "info": ["-m", MODEL],
    "convert": [str(ROOT / "tests/golden/hf/gpt2"), "OUT.gguf", "--force"],
    "logits": ["-m", MODEL, "--ids", "1 2", "--out", "OUT"],
    "mask draw": ["causal"],
    "mask count": ["causal"],
    "mask row": ["causal", "3"],
    "mask column": ["causal", "3"],
    "mask prove": ["causal", "--property", "causal"],
    "mask why": ["causal", "3", "5"],
    "mask check": [str(ROOT / "tests/golden/masks/tril.npy")],
    "doctor": [],
    "completion": ["bash"],
    "version": [],
    "help": [],
}
MISSING = "/no/such/file"
MISSING_FILE = {
    "generate": ["-m", MISSING, "-p", "x"],
    "chat": ["-m", MISSING, "-p", "x"],
    "tokens encode": ["-m", MISSING, "x"],
    "tokens decode": ["-m", MISSING, "1"],
    "tokens train": [MISSING, "--out", "OUT"],
    "eval": ["-m", MODEL, "--file", MISSING],
    "info": ["-m", MISSING],
    "classify": ["-m", MISSING, "x"],
    "convert": [MISSING, "OUT.gguf"],
    "logits": ["-m", MISSING, "--ids", "1", "--out", "OUT"],
    "train": [MISSING, "--out", "OUT"],
    "poem": ["-m", MISSING, "--acrostic", "x"],
    "attend": ["--q", MISSING, "--k", MISSING, "--v", MISSING, "--out", "OUT"],
    "mask draw": ["documents(ids)", "--bind", "ids=" + MISSING],
    "mask count": ["documents(ids)", "--bind", "ids=" + MISSING],
    "mask row": ["documents(ids)", "3", "--bind", "ids=" + MISSING],
    "mask column": ["documents(ids)", "3", "--bind", "ids=" + MISSING],
    "mask prove": ["documents(ids)", "--property", "causal", "--bind", "ids=" + MISSING],
    "mask why": ["documents(ids)", "3", "5", "--bind", "ids=" + MISSING],
    "mask check": [MISSING],
}
STREAMED = ["generate", "-m", MODEL, "--ids", "1 2 3", "-n", "100000", "--context", "100010", "--ignore-eos", "--no-progress"]


class Help(Case):
    def test_page_is_fresh(self):
        self.assertEqual(self.ok("help", "--markdown").decode(), (ROOT / "docs" / "cli.md").read_text(),
                         "make it anew: regard help --markdown > docs/cli.md")

    def test_program_help(self):
        for words in (["--help"], ["-h"], ["help"]):
            text = self.ok(*words).decode()
            self.assertLess(text.index("examples:"), text.index("commands:"))
            for name in COMMANDS:
                self.assertRegex(text, rf"(?m)^  {name} +\S")
            self.assertLessEqual(max(map(len, text.splitlines())), 80)

    def test_every_command(self):
        self.assertEqual(set(COMMANDS) - {"attend", "train", "classify"}, set(WORKS))
        for name, options in COMMANDS.items():
            with self.subTest(name):
                result = run(*name.split(), "--help")
                self.assertEqual((result.returncode, result.stderr), (0, b""))
                text = result.stdout.decode()
                self.assertEqual(text, self.ok(*name.split(), "-h").decode())
                self.assertEqual(text, self.ok("help", *name.split()).decode())
                self.assertLessEqual(max(map(len, text.splitlines())), 80)
                self.assertNotIn("\x1b", text)
                examples = text[text.index("examples:"):]
                self.assertGreaterEqual(len(re.findall(rf"(?m)^  (?:source <\()?regard {name.split()[0]}", examples)), 2)
                self.assertLess(text.index("examples:"), text.index("options"  if not options else "--help", text.index("examples:")))
                for option in options:
                    self.assertIn(option.name, text)
                    self.assertIn(option.environment, text.replace("\n" + " " * 28, " "))

    def test_groups(self):
        for group in ("mask", "tokens"):
            self.assertIn(f"usage: regard {group} COMMAND", self.ok(group, "--help").decode())
            self.refused(2, "a command is missing", group)

    def test_help_asks_for_nothing(self):
        self.ok("generate", "--help", "--prompt", "x")


class Usage(Case):
    def test_bad_option(self):
        for name in COMMANDS:
            with self.subTest(name):
                message = self.refused(2, "unknown option --no-such-option", *name.split(), "--no-such-option")
                self.assertTrue(message.startswith(f"regard {name}: "), message)

    def test_typos(self):
        for words, meant in ((["generate", "-m", "x", "--max-token", "3"], "--max-tokens"), (["generate", "--temprature=1"], "--temperature"),
                             (["mask", "draw", "full", "--qlen", "3"], "--q-len"), (["doctor", "--jsno"], "--json"),
                             (["generat"], "'generate'"), (["mask", "darw"], "'mask draw'"), (["tokens", "encod", "x"], "'tokens encode'"),
                             (["doctor", "--isa", "avx51"], "avx512"), (["completion", "bsh"], "bash"), (["help", "masks draw"], "'mask draw'")):
            self.refused(2, f"did you mean {meant}", *words)
        self.assertNotIn("did you mean", self.refused(2, "unknown command", "xylophone"))

    def test_values(self):
        self.refused(2, "--max-tokens is 'x'; give a whole number", "generate", "-m", "x", "--max-tokens", "x")
        self.refused(2, "--max-tokens is '1.5'", "generate", "-m", "x", "--max-tokens", "1.5")
        self.refused(2, "--top-p is 1.5; give", "generate", "-m", "x", "--top-p", "1.5")
        for number in ("nan", "inf", "0,5", "x", "1e999"):
            self.refused(2, "give a number", "generate", "-m", "x", f"--temperature={number}")
        self.refused(2, "too large", "generate", "-m", "x", "--seed", "99999999999999999999")
        self.refused(2, "needs a value", "generate", "-m", "x", "--seed")
        self.refused(2, "more than once", "generate", "-m", "x", "-m", "y")
        self.refused(2, "one value too many", "mask", "draw", "causal", "&", "full")
        self.refused(2, "--model is missing", "generate", "-p", "x")
        self.refused(2, "behind it", "--threads", "2", "doctor")
        self.refused(2, "a command is missing")

    def test_a_value_may_begin_with_a_dash_or_a_bracket(self):
        for text in ("-x", "--", "[a,b]", "- item", "{}"):
            ids = self.ok("tokens", "encode", "-m", MODEL, "--", text)
            self.assertEqual(self.ok("tokens", "decode", "-m", MODEL, "--no-newline", ids.decode()), text.encode(), text)

    def test_missing_file(self):
        for name, words in MISSING_FILE.items():
            with self.subTest(name):
                words = [self.path("out.npy" if word == "OUT" else "out.gguf") if word.startswith("OUT") else word for word in words]
                self.refused(3, "", *name.split(), *words)

    def test_wrong_file(self):
        self.refused(4, "", "info", "-m", str(ROOT / "LICENSE"))
        self.refused(2, "", "tokens", "encode", "-m", "/dev/null", "x")

    def test_unknown_isa_and_threads(self):
        self.refused(2, "give one of baseline, avx2, avx512, avx512_bf16", "doctor", "--isa", "sse9")
        self.refused(2, "REGARD_ISA", "doctor", env={"REGARD_ISA": "sse9"})
        self.refused(2, "REGARD_THREADS", "doctor", env={"REGARD_THREADS": "0"})


class Environment(Case):
    def test_every_option_and_the_order_of_sources(self):
        for name, options in COMMANDS.items():
            for option in options:
                if option.name in ("--help", "--print-config"):
                    continue
                with self.subTest(f"{name} {option.name}"):
                    value = option.sample()
                    line = re.escape(f"{option.name[2:]} = {value}  # environment")
                    text = self.ok(*name.split(), "--print-config", env={option.environment: value}).decode()
                    self.assertRegex(text, f"(?m)^{line}$")
                    words = [option.name] if option.value is None else [option.name, value]
                    text = self.ok(*name.split(), "--print-config", *words, env={option.environment: value}).decode()
                    self.assertRegex(text, f"(?m)^{re.escape(option.name[2:])} = {re.escape(value)}  # command line$")

    def test_a_switch(self):
        for value in ("1", "true", "yes", "on"):
            json.loads(self.ok("version", env={"REGARD_JSON": value}))
        for value in ("0", "false", "no", "off", ""):
            self.assertTrue(self.ok("version", env={"REGARD_JSON": value}).startswith(b"regard "))
        self.refused(2, "REGARD_JSON", "version", env={"REGARD_JSON": "perhaps"})

    def test_decimal_comma(self):
        locales = subprocess.run(["locale", "-a"], stdout=subprocess.PIPE).stdout.decode().split()
        comma = next((name for name in locales if name.startswith(("de_", "fr_", "ru_"))), "de_DE.UTF-8")
        words = ["mask", "count", "causal", "--q-len", "7", "--json"]
        self.assertEqual(self.ok(*words, env={"LC_ALL": comma}), self.ok(*words))
        self.ok("generate", "-m", MODEL, "-p", "the", "-n", "2", "--temperature", "0.5", env={"LC_ALL": comma})
        for source in [*(ROOT / "src").rglob("*.cc"), *(ROOT / "apps").rglob("*.cc")]:
            self.assertNotIn("setlocale(", source.read_text(), source)


class Streams(Case):
    def words(self, name):
        return [*name.split(), *(self.path(name.replace(" ", "-") + word[3:]) if word.startswith("OUT") else word for word in WORKS[name])]

    def test_pipes_get_no_escape_bytes(self):
        for name in WORKS:
            with self.subTest(name):
                result = run(*self.words(name), env={"TERM": "xterm-256color"})
                self.assertEqual(result.returncode, 0, result.stderr)
                self.assertNotIn(b"\x1b", result.stdout + result.stderr)
                self.assertNotIn(b"\r", result.stderr)

    def test_quiet_says_nothing_and_changes_no_data(self):
        for name in WORKS:
            with self.subTest(name):
                loud, quiet = run(*self.words(name)), run(*self.words(name), "--quiet")
                self.assertEqual(quiet.stderr, b"")
                if name != "doctor":  # what is available of the memory changes by itself
                    self.assertEqual(quiet.stdout, loud.stdout)

    def test_json(self):
        for name, options in COMMANDS.items():
            if name in ("attend", "train", "classify") or not any(option.name == "--json" for option in options):
                continue
            with self.subTest(name):
                result = run(*self.words(name), "--json")
                self.assertEqual((result.returncode, result.stderr), (0, b""))  # what is in the data is not said twice
                self.assertEqual(json.loads(result.stdout)["schema"], 1)

    def test_colour(self):
        bad = ["doctor", "--threads", "0"]
        self.assertNotIn(b"\x1b", run(*bad).stderr)

        def on_terminal(env, *words):
            parent, child = pty.openpty()
            process = subprocess.Popen([PROGRAM, *words], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=child,
                                       env=clean_environment(**env))
            process.wait(timeout=60)
            os.close(child)
            text = os.read(parent, 65536)
            os.close(parent)
            return text

        unknown = ["info", "-m", MISSING]
        self.assertIn(b"\x1b", on_terminal({"TERM": "xterm"}, *unknown))
        self.assertNotIn(b"\x1b", on_terminal({"TERM": "xterm", "NO_COLOR": "1"}, *unknown))
        self.assertNotIn(b"\x1b", on_terminal({"TERM": "dumb"}, *unknown))
        self.assertNotIn(b"\x1b", on_terminal({"TERM": "xterm"}, *unknown, "--color", "never"))
        self.assertIn(b"\x1b", run(*unknown, "--color", "always").stderr)

    def test_progress_is_for_terminals(self):
        def on_terminal(*words, term="xterm"):
            parent, child = pty.openpty()
            process = subprocess.Popen([PROGRAM, *words], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=child,
                                       env=clean_environment(TERM=term))
            self.assertEqual(process.wait(timeout=60), 0)
            os.close(child)
            text = b""
            try:
                while chunk := os.read(parent, 65536):
                    text += chunk
            except OSError:  # how Linux says that the other side is closed
                pass
            os.close(parent)
            return text

        words = self.words("generate")
        text = on_terminal(*words)
        self.assertIn(b"loading [", text)
        self.assertLess(text.rindex(b"loading ["), text.rindex(b"\r\x1b[K"))  # the bar is gone before the next line
        self.assertNotIn(b"loading", on_terminal(*words, "--no-progress"))
        self.assertNotIn(b"\x1b", on_terminal(*words, term="dumb"))
        self.assertEqual(on_terminal(*words, "--quiet"), b"")

    def test_full_disk(self):
        for name in WORKS:
            if name in ("logits", "tokens train"):
                continue
            with self.subTest(name), open("/dev/full", "wb") as full:
                result = subprocess.run([PROGRAM, *self.words(name)], stdin=subprocess.DEVNULL, stdout=full, stderr=subprocess.PIPE,
                                        env=clean_environment())
                self.assertEqual(result.returncode, 9, result.stderr)
                self.assertIn(b"No space left", result.stderr)
        self.refused(9, "No space left", "logits", "-m", MODEL, "--ids", "1", "--out", "/dev/full")
        self.refused(9, "No space left", "tokens", "train", str(ROOT / "LICENSE"), "--out", "/dev/full")

    def test_reader_that_goes_away(self):
        reader, writer = os.pipe()
        os.close(reader)
        for words in (["help", "--markdown"], ["mask", "draw", "causal"]):
            process = subprocess.run([PROGRAM, *words], stdout=writer, stderr=subprocess.PIPE, env=clean_environment())
            self.assertEqual((process.returncode, process.stderr), (141, b""))
        os.close(writer)
        process = start(*STREAMED)
        process.stdout.read(1)
        process.stdout.close()
        process.stdin.close()
        self.assertEqual(process.wait(timeout=60), 141)
        with process.stderr:
            self.assertEqual(process.stderr.read(), b"")

    def test_missing_input_on_a_terminal_is_said_at_once(self):
        for words in (["generate", "-m", MODEL], ["tokens", "encode", "-m", MODEL], ["tokens", "decode", "-m", MODEL],
                      ["eval", "-m", MODEL]):
            parent, child = pty.openpty()
            process = subprocess.Popen([PROGRAM, *words], stdin=child, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                       env=clean_environment())
            out, message = process.communicate(timeout=60)
            os.close(parent)
            os.close(child)
            self.assertEqual((process.returncode, out), (2, b""))
            self.assertIn(b"missing", message)

    def test_outputs_do_not_replace_other_files(self):
        target = self.path("notes.txt")
        with open(target, "w") as file:
            file.write("precious")
        for words in (["mask", "draw", "causal", "--png", target], ["logits", "-m", MODEL, "--ids", "1", "--out", target]):
            self.refused(2, "--force", *words)
            with open(target) as file:
                self.assertEqual(file.read(), "precious")
        self.ok("mask", "draw", "causal", "--png", target, "--force")
        self.ok("mask", "draw", "causal", "--png", target)  # a picture may replace a picture


class Signals(Case):
    def stopped(self, number, again=False):
        process = start(*STREAMED)
        self.assertNotEqual(process.stdout.read(1), b"")
        process.send_signal(number)
        if again:
            process.send_signal(number)
        begin = time.monotonic()
        out, message = process.communicate(timeout=60)
        self.assertLess(time.monotonic() - begin, 30)
        return process.returncode, out, message

    def test_one_interrupt_ends_at_the_next_token(self):
        status, out, message = self.stopped(signal.SIGINT)
        self.assertEqual(status, 130)
        self.assertTrue(out.endswith(b"\n"))
        self.assertIn(b"cancelled", message)

    def test_termination(self):
        self.assertEqual(self.stopped(signal.SIGTERM)[0], 143)

    def test_two_interrupts_end_at_once(self):
        self.assertEqual(self.stopped(signal.SIGINT, again=True)[0], 130)

    def test_while_waiting_for_input(self):
        for words in (["chat", "-m", MODEL], ["generate", "-m", MODEL], ["tokens", "encode", "-m", MODEL], ["eval", "-m", MODEL]):
            with self.subTest(words[0]):
                process = start(*words)
                time.sleep(0.5)
                process.send_signal(signal.SIGINT)
                out = process.stdout.read()  # not communicate(): that would close the input and end the waiting
                self.assertEqual((process.wait(timeout=60), out), (130, b""))
                for stream in (process.stdin, process.stdout, process.stderr):
                    stream.close()


class Memory(Case):
    @unittest.skipIf(os.environ.get("REGARD_SANITIZED"), "the address sanitizer needs more addresses than the limit leaves")
    def test_none_left(self):
        n = 30000
        words = []
        for name in ("q", "k", "v"):
            words += ["--" + name, save_npy(self.path(name), "f4", [1, 1, n, 1], [0.0] * n)]
        limit = lambda: resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))
        result = subprocess.run([PROGRAM, "attend", *words, "--weights", self.path("w.npy")], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                env=clean_environment(), preexec_fn=limit)
        self.assertEqual((result.returncode, result.stdout), (5, b""))
        self.assertIn(b"memory", result.stderr)


class Shells(Case):
    def test_bash_completes(self):
        script = self.path("regard.bash")
        with open(script, "wb") as file:
            file.write(self.ok("completion", "bash"))
        self.assertEqual(subprocess.run(["bash", "-n", script]).returncode, 0)

        def complete(*words):
            line = " ".join(f"'{word}'" for word in words)
            body = f"source {script}; COMP_WORDS=({line}); COMP_CWORD={len(words) - 1}; _regard; echo \"${{COMPREPLY[@]}}\""
            return subprocess.run(["bash", "-c", body], stdout=subprocess.PIPE, check=True).stdout.decode().split()

        self.assertEqual(complete("regard", "gen"), ["generate"])
        self.assertEqual(complete("regard", "mask", "d"), ["draw"])
        self.assertEqual(complete("regard", "generate", "--max"), ["--max-tokens"])
        self.assertEqual(complete("regard", "mask", "draw", "causal", "--q-l"), ["--q-len"])
        self.assertEqual(complete("regard", "doctor", "--isa", "avx5"), ["avx512", "avx512_bf16"])
        self.assertIn("LICENSE", [word.split("/")[-1] for word in complete("regard", "info", "--model", f"{ROOT}/LICEN")])

    def test_zsh_and_fish(self):
        for shell in ("zsh", "fish"):
            script = self.ok("completion", shell).decode()
            for name, options in COMMANDS.items():
                for word in name.split():
                    self.assertIn(word, script)
                for option in options:
                    self.assertIn(option.name if shell == "zsh" else f"-l {option.name[2:]} ", script.replace("\n", " "))
            if shutil.which(shell):
                path = self.path(shell)
                with open(path, "w") as file:
                    file.write(script)
                self.assertEqual(subprocess.run([shell, "-n", path]).returncode, 0)


class Small(Case):
    def test_version(self):
        self.assertRegex(self.ok("version").decode(), r"^regard \d+\.\d+\.\d+\n$")
        self.assertEqual(self.ok("version"), self.ok("--version"))

    def test_doctor(self):
        facts = json.loads(self.ok("doctor", "--json", "--threads", "1", "--isa", "baseline"))
        self.assertEqual((facts["threads"], facts["isa"]), (1, "baseline"))
        self.assertEqual(facts["cpus_allowed"], len(os.sched_getaffinity(0)))
        self.assertLessEqual(json.loads(self.ok("doctor", "--json"))["threads"], facts["cpus_allowed"])

    def test_start_is_quick(self):
        begin = time.monotonic()
        for _ in range(10):
            run("--help")
        self.assertLess((time.monotonic() - begin) / 10, 0.5)  # 30 ms is the aim; this one holds on a busy machine too


if __name__ == "__main__":
    main()
