"""Files that are no ordinary ones, places that cannot be written, and what is left behind when a command is ended."""
import json
import os
import pathlib
import resource
import shutil
import signal
import subprocess
import time
import unittest

from command import Case, GOLDEN, MODEL, PROGRAM, ROOT, clean_environment, load_npy, main, run, save_npy, start

SMALL = str(GOLDEN / "hf" / "gpt2")
POET = str(ROOT / "models" / "poet")


class Outputs(Case):
    def words(self):
        words = ["attend"]
        for name in ("q", "k", "v"):
            words += ["--" + name, save_npy(self.path(name), "f4", [1, 1, 2, 2], [1, 2, 3, 4])]
        return words

    def test_two_results_are_not_one_file(self):
        out, link = self.path("o.npy"), self.path("link.npy")
        same = str(self.directory) + "/./o.npy"
        for first, second in ((out, out), (out, same)):
            message = self.refused(2, "one file", *self.words(), "--stats", first, "--out", second)
            self.assertIn("--out", message)
            self.assertIn("--stats", message)
            self.assertFalse(os.path.exists(out))
        self.ok(*self.words(), "--out", out)
        before = pathlib.Path(out).read_bytes()
        os.symlink(out, link)
        self.refused(2, "one file", *self.words(), "--lse", link, "--out", out)
        self.assertEqual(pathlib.Path(out).read_bytes(), before)
        self.ok(*self.words(), "--lse", "/dev/null", "--out", "/dev/null")
        self.ok(*self.words(), "--lse", self.path("lse.npy"), "--out", out)
        self.assertEqual(load_npy(self.path("lse.npy"))[0], (1, 1, 2))

    def test_a_place_that_cannot_be_written_is_said_before_the_work(self):
        os.mkdir(self.path("directory"))
        for path, status, part in ((self.path("none") + "/look.png", 3, "No such file"), (self.path("directory"), 2, "is a directory"), (MODEL + "/look.png", 3, "Not a directory")):
            for words in (["generate", "-m", MODEL, "-p", "the", "-n", "2"], ["poem", "-m", POET, "-a", "\u6625", "--candidates", "1"]):
                self.refused(status, part, *words, "--look-png", path)  # and no text was written
            self.refused(status, part, "eval", "-m", "/no/such/model", "-f", str(ROOT / "LICENSE"), "--state", path)
        if os.geteuid() != 0:
            os.chmod(self.path("directory"), 0o500)
            self.refused(9, "denied", "generate", "-m", MODEL, "-p", "the", "-n", "2", "--look-png", self.path("directory") + "/look.png")


class Inputs(Case):
    def test_one_standard_input_for_one_text(self):
        self.refused(2, "one standard input", "eval", "--baseline", "ngram", "--train", "-", "-f", "-", stdin=b"abc")
        self.refused(2, "standard input", "eval", "--baseline", "ngram", "--train", "-", stdin=b"abc")
        self.refused(2, "one standard input", "tokens", "train", "-", "-", "--out", self.path("t.json"), stdin=b"abc")

    def test_texts_come_from_pipes(self):
        shell = ["bash", "-c", 'exec "$0" "$@" <(sleep 0.3; echo the sea)', PROGRAM, "tokens", "encode", "-m", MODEL, "-f"]
        self.assertEqual(subprocess.run(shell, stdout=subprocess.PIPE, env=clean_environment(), check=True).stdout,
                         self.ok("tokens", "encode", "-m", MODEL, stdin=b"the sea\n"))
        pipe = self.path("pipe")
        os.mkfifo(pipe)
        process = start("tokens", "encode", "-m", MODEL, "-f", pipe)
        time.sleep(0.3)
        with open(pipe, "w") as file:  # the reader waits for its writer, and for the rest
            file.write("the ")
            file.flush()
            time.sleep(0.3)
            file.write("sea\n")
        self.assertEqual(process.communicate(timeout=60)[0], self.ok("tokens", "encode", "-m", MODEL, stdin=b"the sea\n"))

    def test_signals_end_the_waiting_for_a_writer(self):
        pipe, text = self.path("pipe"), str(ROOT / "LICENSE")
        os.mkfifo(pipe)
        for words in (["tokens", "encode", "-m", MODEL, "-f", pipe], ["logits", "-m", MODEL, "--out", self.path("o"), "--batch", pipe],
                      ["tokens", "train", pipe, "--out", self.path("t")], ["eval", "--baseline", "ngram", "--train", pipe, "-f", text]):
            for number in (signal.SIGINT, signal.SIGTERM):
                with self.subTest(words[:2], number=number):
                    process = start(*words)
                    time.sleep(0.3)
                    process.send_signal(number)
                    out, message = process.communicate(timeout=60)
                    self.assertEqual((process.returncode, out, message), (128 + number, b"", b""))

    def test_what_is_read_again_is_no_pipe(self):
        pipe = self.path("pipe")
        os.mkfifo(pipe)
        self.refused(2, "a pipe; give a regular file", "train", pipe, "--out", self.path("run"), timeout=10)
        self.refused(2, "a pipe; give a regular file", "eval", "-m", MODEL, "-f", str(ROOT / "LICENSE"), "--state", pipe, timeout=10)
        self.refused(2, "file name", "eval", "-m", MODEL, "--state", "-", stdin=b"the sea")


class Words(Case):
    def test_control_characters_are_written_out(self):
        for given, shown in (("a\nb", "a\\nb"), ("\x1b[31mred", "\\x1b[31mred"), ("a\rb", "a\\rb"), ("tab\there", "tab\\there"), ("\u009b1m", "\\u009b1m"),
                             (b"\xff\xfe", "\\xff\\xfe"), ("\u6625 \u00e9", "\u6625 \u00e9")):
            given = given if isinstance(given, bytes) else given.encode()
            result = subprocess.run([PROGRAM, b"info", b"-m", given], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=clean_environment())
            message = result.stderr.decode()
            self.assertEqual(result.returncode, 3, message)
            self.assertIn(shown, message)
            self.assertEqual(message.count("\n"), 1)
            self.assertTrue(message.endswith("\n"))

    def test_a_zero_byte_does_not_end_a_message(self):
        with open(self.path("settings.json"), "w") as file:
            file.write('{"a\\u0000b": 1}')
        self.assertIn("a\\0b", self.refused(2, "unknown option", "version", "--settings", self.path("settings.json")))

    def test_seeds_have_64_bits(self):
        words = ["generate", "-m", MODEL, "-p", "the", "-n", "4", "--temperature", "1", "--json", "--seed"]
        seeds = (0, 2**63 - 1, 2**63, 2**64 - 1)
        self.assertEqual([json.loads(self.ok(*words, seed))["seed"] for seed in seeds], list(seeds))
        for seed in ("18446744073709551616", "-1", "1.5"):
            self.refused(2, "0 to 18446744073709551615", *words[:-1], "--seed=" + seed)
        self.ok("poem", "-m", POET, "-a", "\u6625", "--candidates", "1", "--seed", 2**64 - 1)

    def test_lists_lack_no_number(self):
        for offsets in ("0,,2", ",0,2", "0,2,", "0, ,2"):
            words = ["attend", "--out", self.path("o.npy"), "--offsets", offsets]
            for name in ("q", "k", "v"):
                words += ["--" + name, save_npy(self.path(name), "f4", [1, 1, 2, 2], [1, 2, 3, 4])]
            self.refused(2, "a number is missing", *words)
        words[words.index("--offsets") + 1] = "0, 2"
        self.ok(*words)

    def test_length_penalties_have_finite_scores(self):
        for penalty in (-24, 24):
            words = ["generate", "-m", MODEL, "-p", "the", "-n", "24", "--beams", "2", "--return", "2", "--ignore-eos", "--length-penalty", penalty]
            first, second = json.loads(self.ok(*words, "--json"))["results"][0]["texts"]
            self.assertAlmostEqual(first["score"] / (first["logprob"] / 24.0 ** penalty), 1)
            self.assertGreaterEqual(first["score"], second["score"])
            self.assertNotIn(b"inf", self.ok(*words))
        self.refused(2, "-24 to 24", "generate", "-m", "/no/such/model", "-p", "the", "--beams", "2", "--length-penalty", "-100")

    def test_a_baseline_alone_takes_nothing_of_a_model(self):
        text = str(ROOT / "LICENSE")
        for words in (["--state", self.path("state")], ["--lines"], ["--window", "8"]):
            self.refused(2, words[0] + " is about a model", "eval", "--baseline", "ngram", "--train", text, "-f", text, *words)

    def test_damaged_files_are_named_with_their_directory(self):
        model = self.path("model")
        for name, text in (("config.json", '{"model_type": "gpt2"}'), ("config.json", "{"), ("tokenizer.json", "{}"), ("tokenizer.json", "{")):
            shutil.copytree(SMALL, model)
            os.chmod(model, 0o700)
            os.path.exists(model + "/" + name) and os.chmod(model + "/" + name, 0o600)
            with open(model + "/" + name, "w") as file:
                file.write(text)
            self.refused(4, os.path.join(model, name), "logits", "-m", model, "--ids", "1", "--out", self.path("o"))
            if name == "tokenizer.json":
                self.refused(4, os.path.join(model, name), "tokens", "encode", "-m", model + "/" + name, "x")
            shutil.rmtree(model)

    def test_an_encoder_decoder_is_refused_before_its_text(self):
        sizes = []
        for assignment in ("data.task=pig-latin", "model.type=regard", "model.architecture=encoder_decoder", "run.steps=1", "model.hidden_size=16", "model.heads=2", "model.layers=1"):
            sizes += ["--set", assignment]
        self.ok("train", *sizes, "--out", self.path("ed"))
        self.refused(8, "encoder-decoder", "eval", "-m", self.path("ed") + "/latest", stdin="\u6625".encode())


class Convert(Case):
    def setUp(self):
        super().setUp()
        self.file = self.path("m.gguf")
        self.ok("convert", SMALL, self.file, "--without-tokenizer")

    def back(self, *more, **options):
        return run("convert", self.file, self.path("new/back"), "--without-tokenizer", *more, **options)

    def test_a_full_disk_leaves_nothing_behind(self):
        limit = lambda: (resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000)), signal.signal(signal.SIGXFSZ, signal.SIG_IGN))
        words = ["convert", self.file, self.path("new/back"), "--without-tokenizer"]
        result = subprocess.run([PROGRAM, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=clean_environment(), preexec_fn=limit)
        self.assertEqual(result.returncode, 9, result.stderr)
        self.assertFalse(os.path.exists(self.path("new")))
        os.mkdir(self.path("new"))
        subprocess.run([PROGRAM, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=clean_environment(), preexec_fn=limit)
        self.assertEqual(os.listdir(self.path("new")), [])
        self.assertEqual(self.back().returncode, 0)

    def test_an_empty_directory_is_taken(self):
        os.makedirs(self.path("new/back"))
        self.assertEqual(self.back().returncode, 0)
        self.assertTrue(os.path.exists(self.path("new/back/config.json")))
        self.assertEqual(self.back().returncode, 2)  # now it is a model

    def test_names_that_are_none(self):
        with open(self.path("x.json"), "w") as file:
            file.write('{"a": 1}')
        self.refused(2, "OUT is -", "convert", self.file, "-")
        self.refused(2, "IN is -", "convert", "-", self.path("o"))
        self.refused(2, "OUT is empty", "convert", self.file, "")
        self.refused(2, "IN is empty", "convert", "", self.path("o.gguf"))
        self.refused(2, "that of a directory", "convert", self.file, "/dev/full")
        self.refused(4, "JSON", "convert", self.path("x.json"), self.path("o.gguf"))
        self.refused(3, "No such file", "convert", SMALL, self.path("none") + "/o.gguf")
        os.mkdir(self.path("d.gguf"))
        self.refused(2, "is a directory", "convert", SMALL, self.path("d.gguf"), "--force")


if __name__ == "__main__":
    main()
