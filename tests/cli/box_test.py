"""The models that lie in the repository, as a user of a fresh clone finds them."""
import json

from command import Case, GOLDEN, ROOT, main

SHAKESPEARE = ROOT / "models" / "shakespeare"
POET = ROOT / "models" / "poet"
FILES = ["README.md", "config.json", "first-steps.txt", "log.jsonl", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "train.json"]
COMMA, STOP = "\uFF0C", "\u3002"


class Shakespeare(Case):
    def test_knows_its_text(self):
        """The excerpt is from the text that it learnt: well below the 1.67 nats of the best n-gram on text it has not seen."""
        loss = json.loads(self.ok("eval", "-m", SHAKESPEARE, "-f", GOLDEN / "text" / "shakespeare.txt", "--json"))
        self.assertGreater(loss["scored_tokens"], 40000)
        self.assertLess(loss["nats_per_token"], 1.5)

    def test_writes_in_lines_and_the_same_for_any_threads(self):
        words = ("generate", "-m", SHAKESPEARE, "-p", "ROMEO:", "--max-tokens", 200, "--temperature", 0.7, "--seed", 3)
        text = self.ok(*words)
        self.assertGreater(text.count(b"\n"), 2)
        self.assertEqual(self.ok(*words, "--threads", 1), text)
        self.assertEqual(self.ok(*words, "--threads", 3), text)

    def test_a_gguf_file_of_it_is_the_same_model(self):
        """llama.cpp needs 257 tokens more, which have no part in anything here."""
        file = self.path("shakespeare.gguf")
        self.ok("convert", SHAKESPEARE, file)
        for words in (("eval", "-f", GOLDEN / "text" / "shakespeare.txt", "--json"),
                      ("generate", "-p", "ROMEO:", "--max-tokens", 200, "--temperature", 1.5, "--seed", 5),
                      ("generate", "-p", "ROMEO:", "--max-tokens", 20, "--beams", 3),
                      ("tokens", "encode", "What say you?")):
            answers = [self.ok(*words[:1 + (words[0] == "tokens")], "-m", model, *words[1 + (words[0] == "tokens"):]) for model in (SHAKESPEARE, file)]
            if "--json" in words:
                answers = [{key: value for key, value in json.loads(answer).items() if key in ("scored_tokens", "nats_per_token")} for answer in answers]
                self.assertEqual(len(answers[0]), 2)
            self.assertEqual(answers[0], answers[1], words[0])

    def test_is_small(self):
        self.assertLessEqual((SHAKESPEARE / "model.safetensors").stat().st_size, 2 << 20)
        self.assertEqual(sorted(f.name for f in SHAKESPEARE.iterdir()), FILES)


class Poet(Case):
    HELD_OUT = GOLDEN / "text" / "tang-held-out.txt"

    def loss(self, *words):
        answer = json.loads(self.ok("eval", "-m", POET, "--json", *words))
        return answer["scored_tokens"], answer["nats_per_token"] * answer["scored_tokens"]

    def test_foretells_poems_that_it_has_not_seen(self):
        """At least 0.1 nats below the best n-gram, which reaches 5.855 on the whole of the split that these are a tenth of."""
        tokens, nats = self.loss("--lines", "-f", self.HELD_OUT)
        self.assertGreater(tokens, 7000)
        self.assertLess(nats / tokens, 5.755)

    def test_a_line_is_a_text_of_its_own(self):
        poems = self.HELD_OUT.read_text(encoding="utf-8").splitlines()[:4]
        tokens, nats = 0, 0.0
        for poem in poems:
            one = self.directory / "one.txt"
            one.write_text("\n" + poem + "\n", encoding="utf-8")
            more = self.loss("-f", one)
            self.assertEqual(more[0], len(poem) + 1)
            tokens, nats = tokens + more[0], nats + more[1]
        all_of_them = self.directory / "all.txt"
        all_of_them.write_text("\n".join(poems) + "\n\n", encoding="utf-8")
        state = self.directory / "state"
        together = self.loss("--lines", "-f", all_of_them, "--state", state)
        self.assertEqual(together[0], tokens)
        self.assertAlmostEqual(together[1], nats, places=6)
        self.assertEqual(self.loss("--lines", "-f", all_of_them, "--state", state), together)

    def test_keeps_the_form_and_writes_the_same_for_any_threads(self):
        for form in (5, 7):
            words = ("poem", "-m", POET, "--acrostic", "\u6625\u590F\u79CB\u51AC", "--form", form, "--seed", 2)
            verses = self.ok(*words).decode().splitlines()
            self.assertEqual([verse[0] for verse in verses], list("\u6625\u590F\u79CB\u51AC"))
            self.assertEqual([verse[-1] for verse in verses], [COMMA, STOP, COMMA, STOP])
            self.assertEqual({len(verse) for verse in verses}, {form + 1})
            self.assertEqual(self.ok(*words, "--threads", 1).decode().splitlines(), verses)
            self.assertEqual(self.ok(*words, "--threads", 3).decode().splitlines(), verses)

    def test_names_what_it_does_not_know(self):
        self.refused(2, "A", "poem", "-m", POET, "--acrostic", "\u6625A")

    def test_is_small(self):
        self.assertLessEqual((POET / "model.safetensors").stat().st_size, 8 << 20)
        self.assertEqual(sorted(f.name for f in POET.iterdir()), FILES)


if __name__ == "__main__":
    main()
