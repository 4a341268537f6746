"""The model commands on tiny models: numbers against the goldens of other programs, and one command against another."""
import json
import math
import os
import pathlib
import signal
import time
import unittest

from command import Case, GOLDEN, MODEL, ROOT, load_npy, main, run, start

HF = GOLDEN / "hf" / "llama"


class Logits(Case):
    def write(self, model, *words):
        out = self.path("x.npy")
        self.ok("logits", "-m", model, *words, "--out", out)
        return load_npy(out)

    def ids(self):
        return load_npy(HF / "ids.npy")[1]

    def test_against_another_program(self):
        ids = " ".join(map(str, self.ids()))
        for words, golden in ((["--ids", ids], "logits.npy"), (["--ids", ids, "--hidden"], "hidden.npy")):
            shape, values = self.write(HF, *words)
            wanted_shape, wanted = load_npy(HF / golden)
            self.assertEqual(shape, wanted_shape[-2:])
            largest = max(map(abs, wanted))
            self.assertLess(max(abs(a - b) for a, b in zip(values, wanted)), 2e-5 * largest)

    def test_bits_do_not_depend_on_how_it_is_asked(self):
        ids = self.ids()
        text = " ".join(map(str, ids))
        whole = self.write(HF, "--ids", text)
        for words in (["--chunk", 1], ["--chunk", 7], ["--threads", 1], ["--threads", 3], ["--mmap"]):
            self.assertEqual(self.write(HF, "--ids", text, *words), whole, words)
        (rows, columns), values = whole
        self.assertEqual(self.write(HF, "--ids", text, "--rows", "last"), ((1, columns), values[-columns:]))
        batch = self.path("batch.txt")
        with open(batch, "w") as file:
            file.write("3 1\n\n" + text + "\n5\n")
        shape, mixed = self.write(HF, "--batch", batch)
        self.assertEqual(shape, (rows + 3, columns))
        self.assertEqual(mixed[2 * columns:(2 + rows) * columns], values)

    def test_refusals(self):
        out = self.path("x.npy")
        self.refused(2, "one of --ids", "logits", "-m", HF, "--out", out)
        self.refused(2, "one of --ids", "logits", "-m", HF, "--ids", "1", "--batch", "x", "--out", out)
        self.refused(2, "", "logits", "-m", HF, "--ids", "1 99999", "--out", out)
        self.refused(2, "-1", "logits", "-m", HF, "--ids", "1 -1", "--out", out)
        self.refused(2, "whole number", "logits", "-m", HF, "--ids", "1 x", "--out", out)


class Tokens(Case):
    def test_against_another_program(self):
        with open(MODEL.replace(".gguf", ".tokens.jsonl"), encoding="utf-8", newline="\n") as file:
            cases = [json.loads(line) for line in file]
        plain = [case for case in cases if not case["special"] and case["text"] and "\0" not in case["text"]][:40]
        self.assertGreater(len(plain), 20)
        for case in plain:
            answer = json.loads(self.ok("tokens", "encode", "-m", MODEL, "--json", stdin=case["text"].encode()))
            self.assertEqual(answer["ids"], case["ids"], case["text"])

    def test_there_and_back(self):
        for text in (b"The sea", b"", "caf\u00e9 \U0001f30a".encode(), b"two\nlines\n", b"\xff\xfe broken \xc3"):
            ids = self.ok("tokens", "encode", "-m", MODEL, stdin=text)
            self.assertEqual(self.ok("tokens", "decode", "-m", MODEL, "--no-newline", stdin=ids), text)

    def test_files_and_pieces(self):
        path = self.path("text.txt")
        with open(path, "w") as file:
            file.write("The sea")
        ids = self.ok("tokens", "encode", "-m", MODEL, "--file", path)
        self.assertEqual(ids, self.ok("tokens", "encode", "-m", MODEL, "The sea"))
        lines = self.ok("tokens", "encode", "-m", MODEL, "The sea", "--pieces").decode().splitlines()
        self.assertEqual([line.split("\t")[0] for line in lines], ids.decode().split())
        self.refused(2, "given twice", "tokens", "encode", "-m", MODEL, "x", "--file", path)
        self.refused(2, "", "tokens", "decode", "-m", MODEL, "1 99999999")


class Generate(Case):
    def answer(self, *words):
        return json.loads(self.ok("generate", "-m", MODEL, *words, "--json"))["results"]

    def greedy(self, ids, steps):
        """Greedy decoding by way of `logits`: another command, the same model."""
        ids = list(ids)
        for _ in range(steps):
            out = self.path("step.npy")
            self.ok("logits", "-m", MODEL, "--ids", " ".join(map(str, ids)), "--rows", "last", "--out", out)
            row = load_npy(out)[1]
            ids.append(row.index(max(row)))
        return ids

    def test_greedy_is_the_largest_logit(self):
        prompt = [5, 70, 81]
        result, = self.answer("--ids", "5 70 81", "-n", 6, "--ignore-eos")
        banned = len(result["ids"]) != 6  # a model without an end never stops early
        self.assertFalse(banned)
        self.assertEqual(prompt + result["ids"], self.greedy(prompt, 6))
        self.assertEqual((result["finish"], result["prompt_tokens"]), ("length", 3))

    def test_the_text_is_that_of_the_ids(self):
        result, = self.answer("--prompt", "the sea", "-n", 12, "--temperature", "1.5", "--seed", 3)
        text = run("generate", "-m", MODEL, "--prompt", "the sea", "-n", 12, "--temperature", "1.5", "--seed", 3).stdout
        self.assertEqual(text.decode(), result["text"] + "\n")
        echoed = run("generate", "-m", MODEL, "--prompt", "the sea", "-n", 12, "--temperature", "1.5", "--seed", 3, "--echo").stdout
        self.assertEqual(echoed.decode(), "the sea" + result["text"] + "\n")

    def test_seeds(self):
        words = ["--prompt", "the sea", "-n", 16, "--temperature", "2", "--ignore-eos"]
        first = self.answer(*words, "--seed", 1)[0]["ids"]
        self.assertEqual(first, self.answer(*words, "--seed", 1, "--threads", 1)[0]["ids"])
        self.assertEqual(first, self.answer(*words, "--seed", 1, "--chunk", 1)[0]["ids"])
        self.assertNotEqual(first, self.answer(*words, "--seed", 2)[0]["ids"])

    def test_batch(self):
        together = self.answer("--ids", "5 70 81", "--ids", "9", "-n", 5, "--ignore-eos")
        self.assertEqual(together[0]["ids"], self.answer("--ids", "5 70 81", "-n", 5, "--ignore-eos")[0]["ids"])
        self.assertEqual(together[1]["ids"], self.answer("--ids", "9", "-n", 5, "--ignore-eos")[0]["ids"])

    def test_beams(self):
        greedy, = self.answer("--ids", "5 70 81", "-n", 6)
        one, = self.answer("--ids", "5 70 81", "-n", 6, "--beams", 1)
        self.assertEqual(one["texts"][0]["ids"], greedy["ids"])
        found, = self.answer("--ids", "5 70 81", "-n", 6, "--ignore-eos", "--beams", 4, "--return", 3, "--length-penalty", "0.5")
        scores = [text["score"] for text in found["texts"]]
        self.assertEqual((len(scores), scores), (3, sorted(scores, reverse=True)))
        for text in found["texts"]:
            self.assertAlmostEqual(text["score"], text["logprob"] / 6 ** 0.5, delta=1e-6)
            self.assertEqual(len(text["ids"]), 6)
        printed = self.ok("generate", "-m", MODEL, "--ids", "5 70 81", "-n", 6, "--ignore-eos", "--beams", 4, "--return", 3, "--length-penalty", "0.5")
        self.assertTrue(printed.decode().startswith(f"[1.1] score {scores[0]:.4f}\n{found['texts'][0]['text']}\n\n[1.2]"))
        both = self.answer("--ids", "9", "--ids", "5 70 81", "-n", 6, "--ignore-eos", "--beams", 4, "--return", 3, "--length-penalty", "0.5")
        self.assertEqual([text["ids"] for text in both[1]["texts"]], [text["ids"] for text in found["texts"]])
        for words, part in ((["--return", 2], "--beams"), (["--length-penalty", 2], "--beams"), (["--beams", 2, "--return", 3], "at most as many"),
                            (["--beams", 2, "--temperature", 1], "draws nothing"), (["--beams", 2, "--top-logprobs", 1], "--json"), (["--beams", 0], "1 to 1024"), (["--beams", 2, "--look"], "several")):
            self.refused(2, part, "generate", "-m", MODEL, "-p", "x", *words)

    def test_min_tokens(self):
        ends, = self.answer("--ids", "5", "-n", 8, "--logit-bias", "77=1e6", "--stop-id", 77, "--min-tokens", 3)
        self.assertEqual((len(ends["ids"]), ends["finish"]), (3, "stop"))

    def test_logprobs(self):
        result, = self.answer("--ids", "5 70 81", "-n", 2, "--ignore-eos", "--top-logprobs", 3)
        out = self.path("l.npy")
        self.ok("logits", "-m", MODEL, "--ids", "5 70 81", "--rows", "last", "--out", out)
        row = load_npy(out)[1]
        lse = max(row) + math.log(sum(math.exp(x - max(row)) for x in row))
        first = result["logprobs"][0]
        self.assertAlmostEqual(first["logprob"], row[first["id"]] - lse, delta=1e-4)
        best = sorted(range(len(row)), key=lambda i: (-row[i], i))[:3]
        self.assertEqual([top["id"] for top in first["top"]], best)
        self.refused(2, "--json", "generate", "-m", MODEL, "-p", "x", "--top-logprobs", 3)

    def test_bias_and_stop(self):
        self.assertEqual(self.answer("--ids", "5", "-n", 3, "--logit-bias", "77=1e6")[0]["ids"], [77] * 3)
        self.assertNotIn(77, self.answer("--ids", "5", "-n", 3, "--logit-bias", "77=-inf")[0]["ids"])
        result, = self.answer("--ids", "5", "-n", 3, "--logit-bias", "77=1e6", "--stop-id", 77)
        self.assertEqual(result["finish"], "stop")
        self.refused(2, "ID=X", "generate", "-m", MODEL, "-p", "x", "--logit-bias", "77")

    def test_look(self):
        """Each row is a token of the text, prompt included, and what was read before it was chosen."""
        words = ["generate", "-m", MODEL, "--ids", "5 70 81", "-n", 4, "--ignore-eos"]
        plain = json.loads(self.ok(*words, "--json"))
        picture = self.path("look.png")
        report = json.loads(self.ok(*words, "--json", "--look-png", picture))
        look, ids = report["look"], [5, 70, 81] + report["results"][0]["ids"]
        self.assertEqual(report["results"][0]["ids"], plain["results"][0]["ids"], "looking changes nothing")
        self.assertNotIn("look", plain)
        chosen = self.answer("--ids", "5 70 81", "-n", 4, "--ignore-eos", "--top-logprobs", 0)[0]["logprobs"]
        pieces = [self.ok("tokens", "decode", "-m", MODEL, i, "--no-newline").decode() for i in (5, 70, 81)] + [step["token"] for step in chosen]
        self.assertEqual(look["read"] + look["written"][-1:], pieces)
        self.assertEqual(look["written"], pieces[1:])
        self.assertEqual(len(look["weights"]), len(ids) - 1)
        for i, row in enumerate(look["weights"]):
            self.assertAlmostEqual(sum(row), 1, places=5)
            self.assertEqual(row[i + 1:], [0] * (len(ids) - 2 - i), "nobody reads what is not written yet")
        # A prompt alone, and one head of it: the rows of the same tokens are the same.
        alone = json.loads(self.ok("generate", "-m", MODEL, "--ids", "5 70 81", "-n", 0, "--look", "--json"))["look"]["weights"]
        for i, row in enumerate(alone):
            self.assertEqual(row, look["weights"][i][:len(row)])
        head = json.loads(self.ok(*words, "--look", "--look-layer", 1, "--look-head", 0, "--json"))["look"]["weights"]
        self.assertNotEqual(head, look["weights"])
        with open(picture, "rb") as file:
            self.assertEqual(file.read(8), b"\x89PNG\r\n\x1a\n")
        # In a terminal it stands under the text, a line for each token below one with those that were read.
        text = self.ok(*words).decode()
        shown = self.ok(*words, "--look").decode()
        self.assertTrue(shown.startswith(text + "\n"))
        self.assertEqual(len(shown[len(text) + 1:].splitlines()), len(ids))
        prompt_alone = self.ok(*words[:5], "-n", 0, "--look", "--quiet").decode().splitlines()
        self.assertEqual(len(prompt_alone), 3)
        self.assertTrue(prompt_alone[0].startswith("   "), "no empty line where no text stands before it")
        # Nothing is read before the first token.
        self.assertNotIn("look", json.loads(self.ok("generate", "-m", MODEL, "--ids", 5, "-n", 0, "--look", "--json")))
        self.refused(2, "2 prompts", "generate", "-m", MODEL, "--ids", "5", "--ids", "6", "--look")
        self.refused(2, "--look", *words, "--look-head", 0)
        self.refused(2, "layer 99", *words, "--look", "--look-layer", 99)
        self.refused(2, "file name", *words, "--look-png", "-")

    def test_context(self):
        self.refused(2, "prompt 1 makes a text of 9 tokens, the context has room for 8; shorten it, or load the model with a larger context (--context)", "generate", "-m", MODEL,
                     "--ids", " ".join(["5"] * 9), "--context", 8)
        box = ["generate", "-m", ROOT / "models/shakespeare", "-p", 40 * "ROMEO:"]
        self.refused(2, "larger context (--context, up to 128)", *box, "--context", 64)
        self.refused(2, "this model has learned positions for 128 tokens and no more", *box)
        result, = self.answer("--ids", "5 6", "--context", 8, "-n", 100, "--ignore-eos")
        self.assertEqual(result["finish"], "length")
        self.assertLessEqual(len(result["ids"]) + 2, 9)

    def test_standard_input(self):
        given = run("generate", "-m", MODEL, "-n", 4, stdin=b"the sea").stdout
        self.assertEqual(given, run("generate", "-m", MODEL, "-n", 4, "-p", "the sea").stdout)
        self.assertEqual(given, run("generate", "-m", MODEL, "-n", 4, "-f", "-", stdin=b"the sea").stdout)


class Chat(Case):
    def test_the_cache_is_kept_and_changes_nothing(self):
        words = ["chat", "-m", MODEL, "-n", 5, "--template", "chatml", "--json"]
        turns = [json.loads(line) for line in self.ok(*words, stdin=b"the sea\nand the sky\n").splitlines()]
        self.assertEqual(len(turns), 2)
        self.assertEqual(turns[0]["cached_tokens"], 0)
        self.assertGreater(turns[1]["cached_tokens"], 10)
        single = json.loads(self.ok("chat", "-m", MODEL, "-n", 5, "--template", "chatml", "--json", "--prompt", "the sea"))
        self.assertEqual(single["ids"], turns[0]["ids"])

    def test_templates(self):
        self.refused(3, "no chat template", "chat", "-m", GOLDEN / "gguf" / "llama_mixed.gguf", "-p", "x")
        self.refused(3, "chatml", "chat", "-m", MODEL, "-p", "x", "--template", "chatlm")
        path = self.path("t.jinja")
        with open(path, "w") as file:
            file.write("{% for m in messages %}{{ m.content }}{% endfor %}")
        answer = json.loads(self.ok("chat", "-m", MODEL, "-n", 4, "--template", path, "--prompt", "the sea", "--json"))
        plain = json.loads(self.ok("generate", "-m", MODEL, "-n", 4, "--no-bos", "-p", "the sea", "--json"))["results"][0]
        self.assertEqual((answer["ids"], answer["prompt_tokens"]), (plain["ids"], plain["prompt_tokens"]))


class Eval(Case):
    TEXT = b"The sea is wide and the sea is deep. People have sailed it for a very long time."

    def nats(self, ids, first):
        """Sum of -log p of ids[first:], each predicted from all of ids before it."""
        out = self.path("l.npy")
        self.ok("logits", "-m", MODEL, "--ids", " ".join(map(str, ids)), "--out", out)
        (_, columns), values = load_npy(out)
        total = 0.0
        for i in range(first, len(ids)):
            row = values[(i - 1) * columns:i * columns]
            total -= row[ids[i]] - max(row) - math.log(sum(math.exp(x - max(row)) for x in row))
        return total

    def test_cut_and_sliding(self):
        ids = json.loads(self.ok("tokens", "encode", "-m", MODEL, "--add-special", "--json", self.TEXT.decode()))["ids"]
        cut = json.loads(self.ok("eval", "-m", MODEL, "--window", 10, "--json", stdin=self.TEXT))
        windows = [ids[i:i + 10] for i in range(0, len(ids), 10)]
        scored = sum(len(window) - 1 for window in windows)
        self.assertEqual((cut["tokens"], cut["scored_tokens"]), (len(ids), scored))
        self.assertAlmostEqual(cut["nats_per_token"], sum(self.nats(window, 1) for window in windows) / scored, places=4)
        self.assertAlmostEqual(cut["perplexity"], math.exp(cut["nats_per_token"]), places=4)
        whole = json.loads(self.ok("eval", "-m", MODEL, "--json", stdin=self.TEXT))
        self.assertAlmostEqual(whole["nats_per_token"], self.nats(ids, 1) / (len(ids) - 1), places=4)
        sliding = json.loads(self.ok("eval", "-m", MODEL, "--window", 10, "--stride", 4, "--json", stdin=self.TEXT))
        self.assertEqual(sliding["scored_tokens"], len(ids) - 1)

    def test_state(self):
        state = self.path("state")
        words = ["eval", "-m", MODEL, "--window", 10, "--json", "--state", state]
        once = self.ok(*words, stdin=self.TEXT)
        self.assertEqual(self.ok(*words, stdin=self.TEXT), once)
        self.refused(2, "belongs to another", *words, stdin=self.TEXT + b" More.")
        with open(state, "rb") as file:
            whole = file.read()
        title = whole.index(b"\n")
        for place in range(title + 1, len(whole)):  # every digit of what was measured
            with open(state, "wb") as file:
                file.write(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1:])
            self.refused(4, "damaged", *words, stdin=self.TEXT)
        for text, message in ((b"nonsense", "no state"), (b"regard-eval-state 1\n" + whole[title + 1:], "no state of this version"), (whole[:-9], "damaged")):
            with open(state, "wb") as file:
                file.write(text)
            self.refused(4, message, *words, stdin=self.TEXT)

    def test_target(self):
        result = run("eval", "-m", MODEL, "--max-perplexity", "1.5", stdin=self.TEXT)
        self.assertEqual(result.returncode, 1)
        self.assertIn(b"above", result.stderr)
        self.assertEqual(run("eval", "-m", MODEL, "--max-perplexity", "1e9", stdin=self.TEXT).returncode, 0)
        self.refused(2, "at least 2", "eval", "-m", MODEL, stdin=b"")


class Info(Case):
    def test_facts(self):
        facts = json.loads(self.ok("info", "-m", HF, "--json"))
        config = json.loads((HF / "config.json").read_text())
        self.assertEqual((facts["layers"], facts["hidden_size"], facts["vocab_size"], facts["q_heads"], facts["kv_heads"]),
                         (config["num_hidden_layers"], config["hidden_size"], config["vocab_size"], config["num_attention_heads"],
                          config["num_key_value_heads"]))
        self.assertEqual(facts["name"], "llama", "a directory without a name in its files has that of the directory")
        self.assertEqual(self.ok("info", "-m", ".", cwd=HF), self.ok("info", "-m", f"{HF}/"))
        text = self.ok("info", "-m", HF).decode()
        self.assertIn("name          llama\n", text)
        value, unit = text.split("parameters    ")[1].splitlines()[0].split()
        self.assertEqual(unit, "thousand")
        self.assertEqual(len(value.replace(".", "")), 3)
        self.assertLess(abs(float(value) * 1000 / facts["parameters"] - 1), 0.005)
        small, large = (json.loads(self.ok("info", "-m", HF, "--context", n, "--json")) for n in (16, 32))
        self.assertEqual(large["memory"]["bytes"] - small["memory"]["bytes"], 16 * facts["cache_bytes_per_token"])


@unittest.skipUnless(os.environ.get("REGARD_MODELS"), "REGARD_MODELS names no directory with published models")
class PublishedModels(Case):
    """Stopping while it counts: in the middle of a long prompt, and of a text."""

    def interrupt(self, *words, after):
        model = sorted(pathlib.Path(os.environ["REGARD_MODELS"]).glob("*.gguf"))[-1]
        process = start("generate", "-m", model, "-n", "2000", "--ignore-eos", *words)
        if after is None:
            process.stdout.read(1)
        else:
            time.sleep(after)
        process.send_signal(signal.SIGINT)
        begin = time.monotonic()
        _, message = process.communicate(timeout=120)
        return process.returncode, time.monotonic() - begin, message

    def test_interrupt_in_prefill(self):
        prompt = self.path("long.txt")
        with open(prompt, "w") as file:
            file.write("The sea is wide and old. " * 1100)
        status, seconds, _ = self.interrupt("--file", prompt, after=2.0)
        self.assertEqual(status, 130)
        self.assertLess(seconds, 20)  # one chunk, on a busy machine

    def test_interrupt_in_decode(self):
        status, seconds, message = self.interrupt("--prompt", "The sea", after=None)
        self.assertEqual(status, 130)
        self.assertLess(seconds, 5)
        self.assertIn(b"cancelled", message)


class Baseline(Case):
    """`regard eval --baseline ngram` against the formula on counts in dictionaries."""

    TEXTS = GOLDEN / "text"

    @staticmethod
    def nats(train, text, order, vocab_size):
        """Interpolated Witten-Bell, summed over `text`."""
        followers = {}
        for n in range(order):
            for t in range(n, len(train)):
                row = followers.setdefault(tuple(train[t - n:t]), {})
                row[train[t]] = row.get(train[t], 0) + 1

        def p(context, token):
            lower = p(context[1:], token) if context else 1 / vocab_size
            row = followers.get(context)
            return lower if row is None else (row.get(token, 0) + len(row) * lower) / (sum(row.values()) + len(row))

        return -sum(math.log(p(tuple(text[max(0, t - order + 1):t]), text[t])) for t in range(len(text)))

    def split(self, name, count, more):
        text = (self.TEXTS / name).read_text(encoding="utf-8")
        parts = text[:count], text[count:count + more]
        for part, path in zip(parts, ("train.txt", "held-out.txt")):
            pathlib.Path(self.path(path)).write_text(part, encoding="utf-8")
        return parts

    def measure(self, *words):
        return json.loads(self.ok("eval", "--baseline", "ngram", "--train", self.path("train.txt"), "--file", self.path("held-out.txt"), "--json", *words))

    def test_characters(self):
        for name, count, more in (("shakespeare.txt", 12000, 1000), ("tang.txt", 3000, 500)):
            train, text = self.split(name, count, more)
            vocab_size = len(set(train + text))
            report = self.measure("--order", 4)["baseline"]
            self.assertEqual((report["tokens"], report["characters"], report["vocab_size"]), (more, more, vocab_size))
            self.assertEqual([row["order"] for row in report["orders"]], [0, 1, 2, 3, 4])
            self.assertAlmostEqual(report["orders"][0]["nats_per_token"], math.log(vocab_size), places=12)
            for row in report["orders"][1:]:
                wanted = self.nats(train, text, row["order"], vocab_size) / more
                self.assertAlmostEqual(row["nats_per_token"], wanted, places=10)
                self.assertAlmostEqual(row["nats_per_character"], wanted, places=10)
        table = self.ok("eval", "--baseline", "ngram", "--train", self.path("train.txt"), "--file", self.path("held-out.txt")).decode()
        self.assertEqual(len(table.splitlines()), 8)
        self.assertIn(f"{math.log(vocab_size):.4f}", table)

    def test_tokens_of_a_file_and_of_a_model(self):
        train, text = self.split("shakespeare.txt", 6000, 800)
        for words, tokenizer in ((["--tokenizer", GOLDEN / "trained" / "bpe.json"], GOLDEN / "trained" / "bpe.json"), (["-m", MODEL, "--window", 16], MODEL)):
            ids = [json.loads(self.ok("tokens", "encode", "-m", tokenizer, "--json", stdin=part.encode()))["ids"] for part in (train, text)]
            whole = self.measure("--order", 2, *words)
            report = whole["baseline"]
            self.assertEqual((report["tokens"], report["characters"]), (len(ids[1]), 800))
            wanted = self.nats(*ids, 2, report["vocab_size"])
            self.assertAlmostEqual(report["orders"][2]["nats_per_token"], wanted / len(ids[1]), places=10)
            self.assertAlmostEqual(report["orders"][2]["nats_per_character"], wanted / 800, places=10)
            self.assertEqual("nats_per_token" in whole, "-m" in words)
        plain = json.loads(self.ok("eval", "-m", MODEL, "--window", 16, "--file", self.path("held-out.txt"), "--json"))
        self.assertEqual({key: value for key, value in whole.items() if key != "baseline"}, plain)

    def test_refusals(self):
        self.split("shakespeare.txt", 100, 100)
        train, text = self.path("train.txt"), self.path("held-out.txt")
        self.refused(2, "--train", "eval", "--baseline", "ngram", "--file", text)
        self.refused(2, "belong to", "eval", "-m", MODEL, "--train", train, "--file", text)
        self.refused(2, "--model is missing", "eval", "--file", text)
        self.refused(2, "--order is 9", "eval", "--baseline", "ngram", "--train", train, "--file", text, "--order", 9)
        self.refused(2, "its own tokens", "eval", "-m", MODEL, "--tokenizer", MODEL, "--baseline", "ngram", "--train", train, "--file", text)
        self.refused(3, "no/such", "eval", "--baseline", "ngram", "--train", "/no/such", "--file", text)
        self.refused(2, "not UTF-8", "eval", "--baseline", "ngram", "--train", MODEL, "--file", text)
        self.refused(2, "empty", "eval", "--baseline", "ngram", "--train", train, "--file", "/dev/null")


if __name__ == "__main__":
    main()
