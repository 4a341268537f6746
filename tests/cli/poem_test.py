"""`regard poem` on a tiny random checkpoint that is written here: the form, ranking, seeds, looking, and what is refused."""
import json
import pathlib
import random
import signal
import struct

from command import Case, MODEL, ROOT, main, start

HAN = "\u6625\u590F\u79CB\u51AC\u6708\u5C71\u6C34\u82B1\u98CE\u4E91\u96E8\u96EA\u5929\u5730\u4EBA\u5FC3"
COMMA, STOP = "\uFF0C", "\u3002"


def is_han(character):
    return "\u4E00" <= character <= "\u9FFF"


class Poem(Case):
    HIDDEN, HEADS, LAYERS, CONTEXT = 16, 2, 2, 96

    def setUp(self):
        super().setUp()
        self.model = self.checkpoint("poet", "\nabc" + COMMA + STOP + HAN)

    def checkpoint(self, name, characters, context=CONTEXT):
        directory = self.directory / name
        directory.mkdir()
        text = self.directory / "text.txt"
        text.write_text(characters, encoding="utf-8")
        self.ok("tokens", "train", text, "--kind", "chars", "--out", directory / "tokenizer.json")
        n, vocab = self.HIDDEN, len(set(characters))
        (directory / "config.json").write_text(json.dumps({
            "model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "activation_function": "gelu_new", "n_embd": n, "n_head": self.HEADS,
            "n_layer": self.LAYERS, "n_positions": context, "layer_norm_epsilon": 1e-5, "tie_word_embeddings": True, "vocab_size": vocab}))
        shapes = {"wte.weight": (vocab, n), "wpe.weight": (context, n), "ln_f.weight": (n,), "ln_f.bias": (n,)}
        for layer in range(self.LAYERS):
            for part, shape in (("ln_1.weight", (n,)), ("ln_1.bias", (n,)), ("attn.c_attn.weight", (n, 3 * n)), ("attn.c_attn.bias", (3 * n,)),
                                ("attn.c_proj.weight", (n, n)), ("attn.c_proj.bias", (n,)), ("ln_2.weight", (n,)), ("ln_2.bias", (n,)),
                                ("mlp.c_fc.weight", (n, 4 * n)), ("mlp.c_fc.bias", (4 * n,)), ("mlp.c_proj.weight", (4 * n, n)), ("mlp.c_proj.bias", (n,))):
                shapes[f"h.{layer}.{part}"] = shape
        draw, header, data = random.Random(7), {}, b""
        for tensor, shape in shapes.items():
            size = shape[0] * (shape[1] if len(shape) > 1 else 1)
            values = [draw.uniform(-0.7, 0.7) + (1 if tensor.endswith(("ln_1.weight", "ln_2.weight", "ln_f.weight")) else 0) for _ in range(size)]
            header["transformer." + tensor] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + 4 * size]}
            data += struct.pack(f"<{size}f", *values)
        text = json.dumps(header).encode()
        (directory / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)
        return directory

    def answer(self, *words):
        return json.loads(self.ok("poem", "-m", self.model, *words, "--json"))

    def lines(self, *words):
        return self.ok("poem", "-m", self.model, *words, "--quiet").decode().splitlines()

    def expect_form(self, verses, acrostic, width):
        self.assertEqual(len(verses), len(acrostic))
        for i, (verse, first) in enumerate(zip(verses, acrostic)):
            self.assertEqual(len(verse), width + 1, verse)
            self.assertEqual((verse[0], verse[-1]), (first, STOP if i % 2 else COMMA))
            self.assertTrue(all(map(is_han, verse[:-1])), verse)

    def test_form(self):
        for words, width in (([], 7), (["--form", 5], 5), (["--form", 7, "--candidates", 1], 7), (["--form", 5, "--temperature", 0], 5)):
            for acrostic in ("\u6625\u590F\u79CB\u51AC", "\u6708\u6708\u6708"):
                self.expect_form(self.lines("--acrostic", acrostic, *words), acrostic, width)

    def test_seeds_and_threads(self):
        words = ["--acrostic", "\u6625\u5C71", "--seed"]
        first = self.lines(*words, 3)
        self.assertEqual(first, self.lines(*words, 3, "--threads", 1))
        self.assertEqual(first, self.lines(*words, 3, "--threads", 3))
        self.assertNotEqual(first, self.lines(*words, 4))

    def test_ranking(self):
        report = self.answer("--acrostic", "\u6625\u5C71", "-n", 6, "--candidates", 6, "--repetition-cost", 2)
        poems = report["poems"]
        self.assertEqual((report["schema"], report["acrostic"], report["form"], len(poems)), (1, "\u6625\u5C71", 7, 6))
        self.assertEqual(sorted(poem["candidate"] for poem in poems), list(range(6)))
        self.assertEqual([poem["score"] for poem in poems], sorted((poem["score"] for poem in poems), reverse=True))
        for poem in poems:
            self.expect_form(poem["verses"], "\u6625\u5C71", 7)
            text = "".join(poem["verses"])
            self.assertEqual(text, poem["text"])
            repeated = sum(text[i] in text[:i] and not (text[i - 1] == text[i] and text.index(text[i]) == i - 1)
                           for i in range(len(text)) if i % 8 not in (0, 7))
            self.assertEqual(poem["repetitions"], repeated)
            self.assertAlmostEqual(poem["score"], poem["mean_logprob"] - 2 * repeated / 12, places=5)
        best, = self.answer("--acrostic", "\u6625\u5C71", "--candidates", 6, "--repetition-cost", 2)["poems"]
        self.assertEqual(best, poems[0])
        text = self.ok("poem", "-m", self.model, "--acrostic", "\u6625\u5C71", "-n", 2, "--candidates", 6, "--repetition-cost", 2).decode()
        self.assertEqual(text, "[1]\n{}\n{}\n\n[2]\n{}\n{}\n".format(*poems[0]["verses"], *poems[1]["verses"]))

    def test_look(self):
        words = ["--acrostic", "\u6625\u5C71", "--form", 5, "--seed", 2]
        plain = self.answer(*words)
        picture = self.path("look.png")
        report = self.answer(*words, "--look", "--look-png", picture)
        self.assertEqual(report["poems"], plain["poems"], "looking changes nothing")
        text, look = report["poems"][0]["text"], report["look"]
        self.assertEqual("".join(look["written"]), text)
        self.assertEqual("".join(look["read"]), "\n" + text[:-1])
        for i, row in enumerate(look["weights"]):
            self.assertAlmostEqual(sum(row), 1, places=5)
            self.assertEqual(row[i + 1:], [0] * (len(row) - i - 1), "nobody reads what is not written yet")
        single = [self.answer(*words, "--look", "--look-layer", layer, "--look-head", head)["look"]["weights"] for layer in range(2) for head in range(2)]
        for i, row in enumerate(look["weights"]):
            for j, weight in enumerate(row):
                self.assertAlmostEqual(weight, sum(map_[i][j] for map_ in single) / 4, places=5)
        self.assertNotEqual(single[0], single[1])

        lines = self.lines(*words, "--look")
        self.assertEqual(lines[:2], report["poems"][0]["verses"])
        self.assertEqual((lines[2], lines[3]), ("", "   \u00B7 " + text[:-1]))
        self.assertEqual([line[0] for line in lines[4:]], list(text))

        data = pathlib.Path(picture).read_bytes()
        self.assertEqual(data[:8], b"\x89PNG\r\n\x1a\n")
        self.assertIn(("0 %d %s\n" % (report["poems"][0]["ids"][0], text[0])).encode(), data)

    def test_unknown_characters(self):
        message = self.refused(2, "unknown", "poem", "-m", self.model, "--acrostic", "\u9F8D\u6625\u9CF3x")
        for part in ("\u9F8D U+9F8D", "\u9CF3 U+9CF3", "x U+0078"):
            self.assertIn(part, message)
        self.assertNotIn("\u6625", message)
        self.assertEqual(len(message.splitlines()), 1)
        self.assertIn(COMMA, self.refused(2, "no Han", "poem", "-m", self.model, "--acrostic", "\u6625" + COMMA))

    def test_refusals(self):
        words = ["poem", "-m", self.model, "--acrostic", "\u6625"]
        self.refused(2, "empty", "poem", "-m", self.model, "--acrostic", "")
        self.refused(2, "--acrostic", "poem", "-m", self.model)
        self.refused(2, "room for 96; give fewer characters; this model has learned positions for 96 tokens", "poem", "-m", self.model, "--acrostic", 12 * "\u6625")
        self.refused(2, "room for 64; give fewer characters, or load the model with a larger context (--context, up to 96)", "poem", "-m", self.model, "--acrostic",
                     10 * "\u6625", "--context", 64)
        self.assertNotIn("did you mean", self.refused(2, "--form is '6'; give one of 5, 7", *words, "--form", 6))
        self.refused(2, "--candidates", *words, "-n", 3, "--candidates", 2)
        self.refused(2, "--temperature", *words, "-n", 2, "--temperature", 0)
        self.refused(2, "temperature 0", *words, "--candidates", 2, "--temperature", 0)
        self.refused(2, "--look", *words, "--look-layer", 0)
        self.refused(2, "layer 2", *words, "--look", "--look-layer", 2)
        self.refused(2, "head 2", *words, "--look", "--look-head", 2)
        self.refused(2, "another kind", *words, "--look-png", self.model / "config.json")
        self.refused(2, "file name", *words, "--look-png", "-")
        self.refused(3, "no/such", "poem", "-m", "/no/such", "--acrostic", "\u6625")
        self.refused(8, "U+3002", "poem", "-m", self.checkpoint("half", "\n\u6625" + COMMA), "--acrostic", "\u6625")

    def test_models_of_other_texts_say_what_they_lack(self):
        message = self.refused(2, "tokens are not characters", "poem", "-m", MODEL, "--acrostic", "\u6625")
        self.assertIn("models/poet", message)
        message = self.refused(2, "tokens have no Han characters", "poem", "-m", ROOT / "models/shakespeare", "--acrostic", "\u6625x")
        self.assertIn("models/poet", message)

    def test_interrupt(self):
        model = self.checkpoint("long", "\n" + COMMA + STOP + HAN, context=40000)
        process = start("poem", "-m", model, "--acrostic", 4900 * "\u6625", "--candidates", 1, "--seed", 1)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.stdin.close)
        self.assertEqual(process.stdout.read(3).decode(), "\u6625")  # it streams
        process.send_signal(signal.SIGINT)
        rest = process.stdout.read()
        self.assertEqual(process.wait(timeout=60), 130)
        self.assertTrue(rest.endswith(b"\n"))
        self.assertLess(len(rest.splitlines()), 4900)


if __name__ == "__main__":
    main()
