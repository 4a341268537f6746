"""`regard train` as a user meets it: configurations, a run and its files, stopping and going on, refusals."""
import json
import math
import os
import pathlib
import pty
import signal
import struct
import subprocess
import time

from command import Case, PROGRAM, clean_environment, load_npy, main, run, start

SMALL = ["--set", "model.hidden_size=16", "--set", "model.layers=1", "--set", "model.heads=2", "--set", "run.sequence=16", "--set", "run.batch=4",
         "--set", "model.residual_dropout=0.1"]


class Train(Case):
    def setUp(self):
        super().setUp()
        # Token t is followed by 5 t + 3 or, one time in three, by something else.
        ids, token = [], 0
        for i in range(3000):
            token = i * 7919 % 23 if i % 3 == 0 else (5 * token + 3) % 23
            ids.append(token)
        self.data = self.path("ids.bin")
        pathlib.Path(self.data).write_bytes(struct.pack(f"<{len(ids)}H", *ids))
        self.words = ["train", "--set", f"data.files={self.data}", *SMALL]

    def config(self, text):
        path = pathlib.Path(self.path("config.json"))
        path.write_text(text)
        return str(path)

    def test_a_run_and_its_files(self):
        out = pathlib.Path(self.path("run"))
        config = self.config(json.dumps({"data": {"files": [self.data]}, "run": {"steps": 40, "evaluate_every": 20, "log_every": 1}}))
        result = run("train", config, "--out", out, *SMALL, "--json", "--set", "optimizer.learning_rate=0.02")
        self.assertEqual(result.returncode, 0, result.stderr)
        facts = json.loads(result.stdout)
        self.assertEqual((facts["schema"], facts["end"], facts["step"], facts["tokens"]), (1, "complete", 40, 40 * 64))
        self.assertLess(facts["best_loss"], 3.1)  # the logarithm of 23 is 3.135
        log = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
        self.assertEqual([line["step"] for line in log if "loss" in line], list(range(1, 41)))
        self.assertEqual([line["step"] for line in log if "validation_loss" in line], [20, 40])
        self.assertEqual(os.readlink(out / "latest"), "step-000000040")
        model = json.loads((out / "latest" / "config.json").read_text())
        self.assertEqual((model["model_type"], model["n_layer"], model["n_positions"], model["vocab_size"]), ("gpt2", 1, 16, 23))
        self.assertTrue((out / "loss.png").read_bytes().startswith(b"\x89PNG"))
        self.assertIn(b"validation loss", result.stderr)
        kept = json.loads((out / "train.json").read_text())
        self.assertEqual((kept["run"]["steps"], kept["optimizer"]["learning_rate"]), (40, 0.02))

    def test_classes_of_texts(self):
        texts = [("".join("ab"[(i * 7919 >> t) & 1] for t in range(7)), i) for i in range(400)]
        lines = [json.dumps({"text": text, "label": "more a" if text.count("a") > 3 else "fewer a"}) for text, _ in texts]
        pathlib.Path(self.path("texts.jsonl")).write_text("\n".join(lines) + "\n")
        pathlib.Path(self.path("ab.txt")).write_text("ab\n")
        self.ok("tokens", "train", self.path("ab.txt"), "--out", self.path("tokenizer.json"))
        settings = ["data.objective=class", f"data.files={self.path('texts.jsonl')}", f"data.tokenizer={self.path('tokenizer.json')}", "model.type=regard",
                    "model.architecture=encoder", "model.hidden_size=16", "model.layers=1", "model.heads=2", "run.sequence=8", "run.steps=150", "optimizer.learning_rate=0.01"]
        facts = json.loads(self.ok("train", "--out", self.path("run"), "--json", *(word for one in settings for word in ("--set", one))))
        score = json.loads(self.ok("eval", "--run", self.path("run"), "--json"))
        self.assertEqual((score["task"], score["questions"], score["nats_per_label"]), ("class", 40, facts["validation_loss"]))
        self.assertGreater(score["accuracy"], 0.8)
        model = self.path("run/latest")
        config = json.loads(pathlib.Path(model, "config.json").read_text())
        self.assertEqual((config["id2label"], config["label2id"]), ({"0": "fewer a", "1": "more a"}, {"fewer a": 0, "more a": 1}))
        # The texts that the run measured on: the same loss and accuracy from the probabilities of each.
        asked = [json.loads(line) for line in lines[360:]]
        pathlib.Path(self.path("lines.txt")).write_text("".join(line["text"] + "\n" for line in asked))
        told = [json.loads(line) for line in self.ok("classify", "-m", model, "--file", self.path("lines.txt"), "--json").decode().splitlines()]
        nats = sum(-math.log(one["probabilities"][config["label2id"][line["label"]]]) for one, line in zip(told, asked, strict=True)) / 40
        self.assertAlmostEqual(nats, score["nats_per_label"], places=6)
        self.assertEqual(sum(one["name"] == line["label"] for one, line in zip(told, asked)), round(score["accuracy"] * 40))
        self.assertEqual({one["class"] for one in told}, {0, 1})
        plain = self.ok("classify", "-m", model, "aaaaaaa").decode().split("\t")
        self.assertEqual((plain[0], plain[2]), ("more a", "aaaaaaa\n"))
        tokens = json.loads(self.ok("classify", "-m", model, "aab", "--tokens", "--json"))["tokens"]
        self.assertEqual([one["piece"] for one in tokens], ["a", "a", "b"])
        self.assertIn(b"1 of 1 texts are longer", run("classify", "-m", model, "ab" * 9).stderr)
        self.assertIn("2: fewer a, more a", self.ok("info", "-m", model).decode())
        self.assertEqual(json.loads(self.ok("eval", "--run", self.path("run"), "--file", self.path("texts.jsonl"), "--json"))["questions"], 400)
        self.refused(8, "encoder", "generate", "-m", model, "-p", "a")
        self.refused(8, "classify()", "logits", "-m", model, "-p", "a", "--out", self.path("l.npy"))
        self.refused(8, "--run", "eval", "-m", model, "--file", self.path("lines.txt"))
        self.refused(2, "no tokens", "classify", "-m", model, "")
        self.refused(2, "no token", "classify", "-m", model, "abc")
        self.refused(2, "not both", "classify", "-m", model, "a", "--file", self.path("lines.txt"))

    def test_going_on_gives_the_same_bits(self):
        steps = ["--set", "run.steps=60", "--set", "run.save_every=10"]
        self.ok(*self.words, *steps, "--out", self.path("whole"))
        self.ok(*self.words, *steps, "--out", self.path("other"), "--threads", "1")
        process = start(*self.words, "--set", "run.steps=60", "--set", "run.save_every=1", "--out", self.path("killed"))
        while not pathlib.Path(self.path("killed/step-000000003")).exists() and process.poll() is None:
            time.sleep(0.005)
        process.kill()
        process.communicate()
        self.ok(*self.words, *steps, "--out", self.path("killed"), "--resume")
        files = [pathlib.Path(self.path(f"{name}/latest/model.safetensors")).read_bytes() for name in ("whole", "other", "killed")]
        self.assertEqual(files[0], files[1])
        self.assertEqual(files[0], files[2])

    def test_a_run_goes_on_by_itself(self):
        out = pathlib.Path(self.path("own"))
        whole = self.path("whole")
        self.ok(*self.words, "--set", "run.steps=8", "--out", whole)
        self.ok(*self.words, "--set", "run.steps=8", "--set", "run.save_every=2", "--out", out)
        stopped = json.loads((out / "train.json").read_text())
        self.refused(2, f"regard train --out {out} --resume", *self.words, "--out", out)
        self.refused(2, "run.steps is '12'", "train", "--out", out, "--resume", "--set", "run.steps=12")
        self.ok("train", "--out", out, "--resume", "--set", "run.log_every=3")
        again = json.loads((out / "train.json").read_text())
        stopped["run"]["log_every"] = 3
        self.assertEqual(again, stopped)
        self.assertEqual((out / "latest" / "model.safetensors").read_bytes(), pathlib.Path(whole, "latest", "model.safetensors").read_bytes())
        self.refused(3, "holds no run", "train", "--out", self.path("nothing"), "--resume")
        os.makedirs(self.path("bare/latest"))
        self.refused(3, "give the configuration", "train", "--out", self.path("bare"), "--resume")
        self.refused(3, f"take {out}/latest", "info", "-m", out)
        svg = (out / "loss.svg").read_text()
        for name in (">training<", ">validation<", ">step<", ">nats per token<"):
            self.assertIn(name, svg)

    def test_an_encoder_decoder_writes_what_teacher_forcing_says(self):
        out = self.path("pig")
        self.ok("train", "--set", "data.task=pig-latin", "--set", "model.type=regard", "--set", "model.architecture=encoder_decoder", *SMALL[:6],
                "--set", "run.batch=16", "--set", "run.steps=60", "--set", "optimizer.learning_rate=0.01", "--out", out)
        model = out + "/latest"
        facts = json.loads(self.ok("info", "-m", model, "--json"))
        self.assertEqual((facts["architecture"], facts["vocab_size"], facts["tokenizer"]), ("encoder_decoder", 29, True))
        source = [int(i) for i in self.ok("tokens", "encode", "-m", model, "string").split()]
        self.assertEqual(source, [3 + ord(letter) - ord("a") for letter in "string"])
        result, = json.loads(self.ok("generate", "-m", model, "--prompt", "string", "-n", 9, "--ignore-eos", "--json"))["results"]
        self.assertEqual(result["text"], "".join(chr(ord("a") + i - 3) for i in result["ids"] if i > 2))
        self.assertEqual((len(result["ids"]), result["prompt_tokens"]), (9, 6))
        npy = self.path("forced.npy")
        words = ["logits", "-m", model, "--source-ids", " ".join(map(str, source)), "--ids", " ".join(map(str, [1, *result["ids"][:-1]])), "--out", npy]
        self.ok(*words)
        (rows, columns), values = load_npy(npy)
        self.assertEqual((rows, columns), (9, 29))
        self.ok("logits", "-m", model, "--source", "string", *words[5:-1], self.path("text.npy"))
        self.assertEqual(load_npy(self.path("text.npy")), ((rows, columns), values))
        self.refused(2, "one of --source and --source-ids", *words, "--source", "string", "--force")
        for i, chosen in enumerate(result["ids"]):
            row = values[i * columns:(i + 1) * columns]
            row[2] = -math.inf  # the end, which is ignored
            self.assertEqual(row.index(max(row)), chosen)
        best, = json.loads(self.ok("generate", "-m", model, "--prompt", "string", "--beams", 4, "--return", 4, "--json"))["results"]
        self.assertEqual(len({tuple(text["ids"]) for text in best["texts"]}), 4)
        self.assertEqual([best[name] for name in ("text", "ids", "finish")], [best["texts"][0][name] for name in ("text", "ids", "finish")])
        self.assertLess(set(result), set(best), "a search says what a generation says, and more")
        self.assertEqual(self.ok("generate", "-m", model, "--prompt", "string", "--beams", 4).decode(), best["texts"][0]["text"] + "\n")
        self.refused(8, "decoder", "chat", "-m", model, "--prompt", "x")
        self.refused(2, "--source", "logits", "-m", model, "--ids", "1", "--out", npy, "--force")
        self.refused(2, "decoder", "generate", "-m", model, "--prompt", "x", "--look")
        self.refused(2, "start_ids hold 29", "generate", "-m", model, "--prompt", "x", "--start-ids", 29)

    def test_an_encoder_says_what_it_thinks_of_each_token(self):
        out = self.path("reverse")
        self.ok("train", "--set", "data.task=reverse", "--set", "data.task_length=6", "--set", "model.type=regard", "--set", "model.architecture=encoder", *SMALL[:6],
                "--set", "run.batch=32", "--set", "run.steps=150", "--set", "optimizer.learning_rate=0.01", "--out", out)
        model, npy = out + "/latest", self.path("reverse.npy")
        right = 0
        for word in ("123456", "907182", "555012"):
            self.ok("logits", "-m", model, "--prompt", word, "--out", npy, "--force")
            (rows, columns), values = load_npy(npy)
            self.assertEqual((rows, columns), (6, 10))
            said = [max(range(10), key=lambda c: values[r * 10 + c]) for r in range(6)]
            right += sum(a == int(b) for a, b in zip(said, reversed(word)))
        self.assertGreater(right, 12, "of 18")
        self.refused(8, "encoder", "generate", "-m", model, "--prompt", "12")

    def stopped(self, number):
        out = pathlib.Path(self.path(f"run{number}"))
        process = start(*self.words, "--set", "run.steps=1000000", "--out", out)
        while not (out / "latest").exists() and process.poll() is None:
            time.sleep(0.01)
        process.send_signal(number)
        text, message = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 128 + number, message)
        self.assertIn(b"(stopped)", text)
        step = int(os.readlink(out / "latest").removeprefix("step-"))
        self.assertIn(f"step {step}".encode(), text)
        for name in ("config.json", "model.safetensors", "state"):
            self.assertTrue((out / "latest" / name).exists())

    def test_interrupt_and_termination_save(self):
        self.stopped(signal.SIGINT)
        self.stopped(signal.SIGTERM)

    def test_every_field_is_listed_and_the_configuration_reads_back(self):
        text = self.ok("train", "--show-config").decode()
        config = json.loads(text)
        listed = self.ok("train", "--print-config", "--set", "run.steps=7").decode()
        for section, fields in config.items():
            for name in fields:
                self.assertRegex(listed, rf"(?m)^{section}\.{name} = .*  # (default|set); .+; .+\.$")
        self.assertRegex(listed, r"(?m)^run\.steps = 7  # set; 0 to 1000000000000; ")
        self.assertEqual(self.ok("train", self.config(text), "--show-config").decode(), text)

    def test_wrong_configurations(self):
        out = ["--out", self.path("run")]
        for text, status, part in (("{", 4, "config.json"), ('{"run": {"stops": 3}}', 2, "did you mean run.steps?"),
                                   ('{"run": {"batch": 0}}', 2, "run.batch is 0; expected a whole number, 1 to 1000000"),
                                   ('{"run": {"batch": 1, "batch": 2}}', 4, "batch"), ("[]", 2, "expected an object"),
                                   ("{}", 2, "set data.files"), ('{"data": {"files": ["/no/such/file"]}}', 3, "/no/such/file"),
                                   (json.dumps({"data": {"files": [self.data]}, "model": {"heads": 3}}), 2, "heads"),
                                   (json.dumps({"data": {"files": [self.data]}, "model": {"position": "rope"}}), 2, "set model.type to regard"),
                                   (json.dumps({"data": {"files": [self.data]}, "model": {"vocab_size": 9}}), 2, "the vocabulary has 9 ids"),
                                   (json.dumps({"data": {"files": [self.data]}, "run": {"sequence": 5000}}), 2, "smaller run.sequence"),
                                   (json.dumps({"data": {"files": [self.data]}, "model": {"type": "regard", "architecture": "encoder"}}), 2, "masked_token"),
                                   ('{"data": {"task": "copying"}}', 2, "copy")):
            with self.subTest(text):
                self.refused(status, part, "train", self.config(text), *out)
                self.assertFalse(os.path.exists(self.path("run")))
        self.refused(2, "--out is missing", "train", self.config("{}"))
        self.refused(2, "--set", "train", "--set", "x", *out)
        self.refused(3, "", "train", "/no/such/file", *out)
        self.refused(3, "cannot make the directory", *self.words, "--out", self.path("a/b/c"))
        self.refused(2, "is a file", *self.words, "--out", self.data)

    def test_what_cannot_go_on(self):
        self.ok(*self.words, "--set", "run.steps=3", "--out", self.path("run"))
        self.refused(2, "holds a run already", *self.words, "--set", "run.steps=3", "--out", self.path("run"))
        self.refused(2, "run.steps is '4', but the run", *self.words, "--set", "run.steps=4", "--out", self.path("run"), "--resume")
        self.refused(3, "no checkpoint", *self.words, "--out", self.path("empty"), "--resume")
        self.assertFalse(os.path.exists(self.path("empty")))
        state = pathlib.Path(self.path("run/latest/state"))
        state.write_bytes(state.read_bytes()[:-1])
        self.refused(4, "state", *self.words, "--set", "run.steps=3", "--out", self.path("run"), "--resume")

    def test_two_on_one_directory(self):
        first = start(*self.words, "--set", "run.steps=1000000", "--out", self.path("run"))
        while not os.path.exists(self.path("run/latest")) and first.poll() is None:
            time.sleep(0.01)
        self.refused(6, "another process trains", *self.words, "--set", "run.steps=1000000", "--out", self.path("run"), "--resume")
        first.terminate()
        first.communicate()

    def test_streams(self):
        words = [*self.words, "--set", "run.steps=3"]
        loud, quiet = run(*words, "--out", self.path("a")), run(*words, "--out", self.path("b"), "--quiet")
        self.assertEqual((loud.returncode, quiet.returncode, quiet.stderr), (0, 0, b""))
        self.assertEqual(loud.stdout.replace(b"/a/", b"/b/"), quiet.stdout)
        self.assertNotIn(b"\x1b", loud.stdout + loud.stderr)
        with open("/dev/full", "wb") as full:
            result = subprocess.run([PROGRAM, *words, "--out", self.path("c")], stdin=subprocess.DEVNULL, stdout=full, stderr=subprocess.PIPE,
                                    env=clean_environment())
        self.assertEqual(result.returncode, 9, result.stderr)
        self.assertIn(b"No space left", result.stderr)

    def test_progress_and_curves_are_for_terminals(self):
        parent, child = pty.openpty()
        process = subprocess.Popen([PROGRAM, *self.words, "--set", "run.steps=30", "--set", "run.log_every=1", "--out", self.path("run")],
                                   stdin=subprocess.DEVNULL, stdout=child, stderr=child, env=clean_environment(TERM="xterm"))
        os.close(child)
        text = b""
        try:
            while chunk := os.read(parent, 65536):
                text += chunk
        except OSError:  # how Linux says that the other side is closed
            pass
        os.close(parent)
        self.assertEqual(process.wait(timeout=60), 0)
        self.assertRegex(text, rb"step \d+, loss \d\.\d+, lr [0-9.e-]+, \d+ tokens/s \(\d+ % of peak\), \d+:\d\d left \[")
        self.assertIn(b"training ., validation o", text)

    def test_tasks(self):
        facts = json.loads(self.ok("train", "--set", "data.task=copy", "--set", "data.task_length=2", *SMALL, "--set", "run.steps=5", "--out",
                                   self.path("run"), "--json"))
        self.assertEqual(facts["step"], 5)
        self.assertNotIn("solved", json.loads(pathlib.Path(self.path("run"), "log.jsonl").read_text().splitlines()[0]))
        # An evaluation says how many questions were solved; two digits are soon reversed.
        result = run("train", "--set", "data.task=reverse", "--set", "data.task_length=2", "--set", "model.architecture=encoder", "--set", "model.type=regard",
                     "--set", "model.initializer_std=0.2", *SMALL, "--set", "run.batch=32", "--set", "run.steps=150", "--set", "run.evaluate_every=10",
                     "--set", "optimizer.learning_rate=0.02", "--set", "model.residual_dropout=0", "--out", self.path("reverse"))
        self.assertEqual(result.returncode, 0, result.stderr)
        log = [json.loads(line) for line in pathlib.Path(self.path("reverse"), "log.jsonl").read_text().splitlines()]
        evaluations = [line for line in log if "validation_loss" in line]
        self.assertEqual({line["questions"] for line in evaluations}, {1000})
        for line in evaluations:
            # Two labels to a question: what is solved has both right, what is not has one wrong at least.
            self.assertEqual(line["counted"], 2000)
            self.assertLessEqual(2 * line["accuracy"] * 1000 - 1000, line["solved"] + 1e-6)
            self.assertLessEqual(line["solved"], line["accuracy"] * 1000 + 1e-6)
        self.assertLess(evaluations[0]["solved"], 900)
        self.assertEqual(evaluations[-1]["solved"], 1000)
        self.assertIn("1000 of 1000 unseen questions solved", result.stderr.decode())
        # Asked again, the checkpoint says the same.
        score = json.loads(self.ok("eval", "--run", self.path("reverse"), "--json"))
        self.assertEqual((score["task"], score["questions"], score["solved"], score["exact_match"], score["labels"]), ("reverse", 1000, 1000, 1, 2000))
        self.assertEqual(score["nats_per_label"], evaluations[-1]["validation_loss"])
        self.assertIn("7 of 7 unseen questions solved (100.00 %)", self.ok("eval", "--run", self.path("reverse"), "--checkpoint", "best", "--questions", 7).decode())
        self.refused(3, "train.json", "eval", "--run", self.path("reverse") + "/latest")
        self.refused(2, "--model is for texts", "eval", "--run", self.path("reverse"), "-m", self.path("reverse"))
        self.refused(2, "--run", "eval", "-m", self.path("reverse"), "--questions", 7)
        self.refused(2, "model.architecture encoder_decoder", "train", "--set", "data.task=pig-latin", "--out", self.path("pig"))

    def test_a_loss_that_is_no_number(self):
        message = self.refused(7, "the last checkpoint is of step", *self.words, "--set", "run.steps=200", "--set", "optimizer.learning_rate=100",
                               "--set", "optimizer.clip_norm=0", "--set", "optimizer.kind=sgd", "--set", "schedule.warmup_steps=0", "--quiet",
                               "--out", self.path("run"))
        self.assertIn("step ", message)


if __name__ == "__main__":
    main()
