"""`regard tokens train`: the files it writes, against plain Python."""
import json
import pathlib
import signal
import time

from command import Case, GOLDEN, MODEL, main, start

PROSE, POEMS = GOLDEN / "text" / "shakespeare.txt", GOLDEN / "text" / "tang.txt"


class Train(Case):
    def make(self, *words):
        out = self.path("tokenizer.json")
        report = json.loads(self.ok("tokens", "train", *words, "--out", out, "--json"))
        self.assertEqual(report["file"], out)
        return out, report["tokens"]

    def ids(self, tokenizer, text, *words):
        return json.loads(self.ok("tokens", "encode", "-m", tokenizer, "--json", *words, stdin=text.encode()))["ids"]

    def test_characters(self):
        tokenizer, tokens = self.make(PROSE, POEMS)
        text = PROSE.read_text(encoding="utf-8") + POEMS.read_text(encoding="utf-8")
        order = sorted(set(text))
        self.assertEqual(tokens, len(order))
        self.assertEqual(self.ids(tokenizer, text), [order.index(c) for c in text])
        ids = self.ok("tokens", "encode", "-m", tokenizer, stdin=text.encode())
        self.assertEqual(self.ok("tokens", "decode", "-m", tokenizer, "--no-newline", stdin=ids), text.encode())
        self.refused(2, "U+2603", "tokens", "encode", "-m", tokenizer, "a \u2603")

    def test_unknown_and_special(self):
        text = self.path("text.txt")
        pathlib.Path(text).write_text("aab b c")
        tokenizer, tokens = self.make(text, "--min-count", 2, "--unk", "--special", "<|end|>", "--special", "<pad>")
        self.assertEqual(tokens, 6)  # space, a, b, <unk>, <|end|>, <pad>
        self.assertEqual(self.ids(tokenizer, "abc<pad>"), [1, 2, 3] + [3] * 2 + [1] + [3] * 2)
        self.assertEqual(self.ids(tokenizer, "abc<pad>", "--special"), [1, 2, 3, 5])

    def test_bytes_and_pairs(self):
        tokenizer, tokens = self.make(PROSE, "--kind", "bytes")
        self.assertEqual((tokens, self.ids(tokenizer, "a\u00e9\n")), (256, list("a\u00e9\n".encode())))
        tokenizer, tokens = self.make(PROSE, "--kind", "bpe", "--vocab-size", 512, "--special", "<|endoftext|>")
        self.assertEqual(tokens, 512)
        text = PROSE.read_bytes()[:4000] + bytes(range(256))
        ids = self.ok("tokens", "encode", "-m", tokenizer, stdin=text)
        self.assertLess(len(ids.split()), 0.6 * len(text))
        self.assertEqual(self.ok("tokens", "decode", "-m", tokenizer, "--no-newline", stdin=ids), text)
        first = pathlib.Path(tokenizer).read_bytes()
        self.make(PROSE, "--kind", "bpe", "--vocab-size", 512, "--special", "<|endoftext|>", "--threads", 1)
        self.assertEqual(pathlib.Path(tokenizer).read_bytes(), first)

    def test_standard_input_and_output(self):
        written = self.ok("tokens", "train", "-", "--out", "-", stdin=b"abc")
        self.assertEqual(json.loads(written)["model"]["vocab"], {"a": 0, "b": 1, "c": 2})

    def test_refusals(self):
        out = self.path("tokenizer.json")
        self.refused(2, "needs --vocab-size", "tokens", "train", PROSE, "--kind", "bpe", "--out", out)
        self.refused(2, "--vocab-size is for", "tokens", "train", PROSE, "--vocab-size", 300, "--out", out)
        self.refused(2, "become a token", "tokens", "train", PROSE, "--min-count", 2, "--out", out)
        self.refused(2, "not UTF-8 at byte", "tokens", "train", MODEL, "--out", out)
        self.refused(2, "spelt like", "tokens", "train", PROSE, "--special", "a", "--out", out)
        self.refused(2, "FILE is missing", "tokens", "train", "--out", out)
        self.refused(2, "--out is missing", "tokens", "train", PROSE)
        self.refused(2, "input of this command", "tokens", "train", PROSE, "--out", PROSE)
        self.assertFalse(pathlib.Path(out).exists())
        pathlib.Path(out).write_text("a diary")
        self.refused(2, "--force", "tokens", "train", PROSE, "--out", out)
        self.ok("tokens", "train", PROSE, "--out", out, "--force")

    def test_interrupted(self):
        text = self.path("long.txt")
        # Some ten seconds of work, far more than passes before the signal.
        pathlib.Path(text).write_bytes(b" ".join(b"%x" % (i * i * 2654435761 % 2**60) for i in range(4000000)))
        out = self.path("tokenizer.json")
        process = start("tokens", "train", text, "--kind", "bpe", "--vocab-size", 1000000, "--out", out)
        time.sleep(0.7)
        process.send_signal(signal.SIGINT)
        stdout, stderr = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 130, stderr)
        self.assertFalse(pathlib.Path(out).exists())
        self.assertEqual([path.name for path in self.directory.iterdir()], ["long.txt"])


if __name__ == "__main__":
    main()
