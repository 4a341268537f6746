"""The models that lie in the repository, as a user of a fresh clone finds them."""
import json

from command import Case, GOLDEN, ROOT, main

SHAKESPEARE = ROOT / "models" / "shakespeare"


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

    def test_is_small(self):
        self.assertLessEqual((SHAKESPEARE / "model.safetensors").stat().st_size, 2 << 20)
        self.assertEqual(sorted(f.name for f in SHAKESPEARE.iterdir()),
                         ["README.md", "config.json", "five-steps.txt", "log.jsonl", "model.safetensors", "tokenizer.json", "train.json"])


if __name__ == "__main__":
    main()
