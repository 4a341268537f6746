"""`regard mask prove` and `regard mask why`: verdicts, statuses, counter-examples against a predicate written here."""
import json
import re
import shlex
import signal
import time
import unittest

from command import ROOT, Case, main, run, save_npy, start


class Prove(Case):
    def ask(self, status, mask, *words):
        result = run("mask", "prove", mask, *words, "--json")
        self.assertEqual(result.returncode, status, (mask, words, result.stderr.decode()))
        return json.loads(result.stdout)

    def example(self, mask, prop, *words):
        proof, = self.ask(1, mask, "--property", prop, *words)["proofs"]
        self.assertEqual(proof["verdict"], "refuted")
        return proof["counter_example"]

    def test_proved(self):
        answer = self.ask(0, "causal & (window(4, 0) | sinks(4))", "-p", "causal", "-p", "no-empty-row", "-p", "decode-equals-prefill",
                          "-p", "reachable", "-p", "implies:causal", "-p", "shards(contiguous(8); striped(8))")
        self.assertEqual([proof["verdict"] for proof in answer["proofs"]], ["proved"] * 6)
        self.assertEqual({proof["scope"] for proof in answer["proofs"]}, {"all lengths"})
        self.assertEqual(answer["mask"], "causal & (window(4, 0) | prefix(4))")

    def test_refuted_with_the_smallest_pair(self):
        example = self.example("window(1000, 0)", "equals:causal")
        self.assertEqual((example["query"], example["key"]), (1001, 0))
        example = self.example("causal & window(4, 0) | sinks(4)", "causal")
        self.assertEqual((example["query"], example["key"], example["because"]), (0, 1, "allowed by prefix(4)"))
        # The first pair, by query and then key, that is seen and no multiple of 3 apart.
        seen = next((p, k) for p in range(99) for k in range(99) if k // 4 == p // 4 and k <= p and (p - k) % 3 != 0)
        example = self.example("chunk(4) & causal", "implies:dilated(3)")
        self.assertEqual((example["query"], example["key"]), seen)
        self.assertNotIn("key", self.example("causal & ~window(0, 0)", "no-empty-row"))
        self.assertNotIn("query", self.example("causal & ~window(0, 0)", "reachable"))

    def test_batch_rows_heads_and_limits(self):
        self.assertEqual(self.example("lengths(3, 5)", "lengths(3, 4)")["batch"], 1)
        self.assertEqual(self.example("per_head(causal, full)", "causal")["head"], 1)
        self.ask(0, "full", "-p", "lengths(4)", "--lengths", "4", "--q-len", 9)
        ids = save_npy(self.path("ids.npy"), "i8", [6], [0, 0, 1, 1, 1, 2])
        self.ask(0, "causal & documents(ids)", "-p", "documents(ids)", "--bind", f"ids={ids}")
        example = self.example("causal", "documents(ids)", "--bind", f"ids={ids}")
        self.assertEqual((example["query"], example["key"]), (2, 0))

    def test_lengths(self):
        self.ask(0, "window(3, 0)", "-p", "equals:causal", "--q-len", 4)
        example = self.example("window(3, 0)", "equals:causal", "--q-len", 1, "--kv-len", 6, "--q-begin", 5)
        self.assertEqual((example["query"], example["key"]), (5, 0))
        self.refused(2, "give --q-begin: 0 when they are the first, 4 when they are the last", "mask", "prove", "full", "-p", "causal",
                     "--q-len", 2, "--kv-len", 6)
        self.ask(1, "full", "-p", "ring(4)", "--q-len", 9)
        self.ask(0, "none", "-p", "implies:prefix(3)", "--q-len", 2, "--kv-len", 6)  # positions do not matter

    def test_not_decided(self):
        mask = "window(*, 1) & ~causal & ~blocks(999983) & ~blocks(1000003)"
        proof, = self.ask(8, mask, "-p", "implies:none", "--max-steps", 1000)["proofs"]
        self.assertEqual(proof["verdict"], "not decided")
        self.assertIn("999983", proof["reason"])
        self.assertEqual(self.example(mask, "implies:none")["query"], 999983 * 1000003 - 1)
        # Refuted wins over not decided.
        self.ask(1, mask + " | prefix(1)", "-p", "implies:prefix(1)", "-p", "implies:none", "--max-steps", 1000)

    def test_text(self):
        result = run("mask", "prove", "causal | prefix(2)", "-p", "causal")
        self.assertEqual(result.stdout.decode().splitlines(),
                         ["causal: refuted", "  for all lengths, by cases over the order of positions, blocks and residues",
                          "  batch row 0, head 0, query 0, key 1: expected hidden, found visible", "  allowed by prefix(2)"])
        self.assertEqual(result.stderr, b"")

    def test_errors(self):
        self.refused(2, "'casual' is no property; expected causal", "mask", "prove", "full", "-p", "casual")
        self.refused(2, "column 2: found 'windw'", "mask", "prove", "full", "-p", "equals: windw(3)")
        self.refused(2, "-p, --property is missing", "mask", "prove", "full")
        self.refused(2, "beyond the end of documents", "mask", "prove", "documents(0, 0)", "-p", "causal", "--q-len", 3)
        self.refused(2, "lengths", "mask", "prove", "lengths(1, 2)", "-p", "causal", "--batch", 3)
        self.refused(2, "--q-begin is given without --q-len", "mask", "prove", "full", "-p", "causal", "--q-begin", 3)

    def test_one_signal_stops(self):
        mask = "window(*, 1) & ~causal & ~blocks(999999937) & ~blocks(1000000007)"
        process = start("mask", "prove", mask, "-p", "implies:none", "--max-steps", 10**15)
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=20)
        self.assertEqual((process.returncode, out), (130, b""))


class Manual(Case):
    """The runs that docs/masks.md shows."""

    def test_examples(self):
        blocks = re.findall(r"```console\n(.*?)```", (ROOT / "docs" / "masks.md").read_text(), re.S)
        self.assertGreaterEqual(len(blocks), 4)
        for block in blocks:
            command, _, expected = block.partition("\n")
            with self.subTest(command):
                words = shlex.split(command)
                self.assertEqual(words[:2], ["$", "regard"])
                self.assertEqual(run(*words[2:], cwd=ROOT).stdout.decode(), expected)


class Why(Case):
    def test_the_tree(self):
        answer = json.loads(self.ok("mask", "why", "causal & (window(3, 0) | ~dilated(4))", 9, 2, "--json"))
        self.assertTrue(answer["visible"])
        self.assertEqual(answer["because"], "allowed by causal and ~dilated(4)")
        tree = answer["tree"]
        self.assertEqual([part["visible"] for part in tree["parts"]], [True, True])
        self.assertEqual([(part["text"], part["visible"]) for part in tree["parts"][1]["parts"]],
                         [("window(3, 0)", False), ("~dilated(4)", True)])

    def test_text(self):
        self.assertEqual(self.ok("mask", "why", "causal & ~window(0, 0)", 3, 3).decode(),
                         "query 3, key 3: hidden, forbidden by ~window(0, 0)\nno  causal & ~window(0, 0)\nyes   causal\n"
                         "no    ~window(0, 0)\nyes     window(0, 0)\n")
        self.assertIn("allowed by full", self.ok("mask", "why", "per_head(causal, full)", 0, 5, "--head", 1).decode())

    def test_errors(self):
        self.refused(2, "QUERY", "mask", "why", "causal", "x", 1)
        self.refused(2, "QUERY is -1; give 0 or more", "mask", "why", "causal", "--", "-1", 1)
        self.refused(2, "QUERY is -1; give 0 or more", "mask", "why", "causal", "-1", 3)
        self.refused(2, "KEY is -3; give 0 or more", "mask", "why", "causal", "1", "-3")
        self.refused(2, "unknown option -1", "mask", "why", "causal", "1", "3", "-1")
        self.refused(2, "head 2 asked, but per_head has 2", "mask", "why", "per_head(causal, full)", 1, 1, "--head", 2)


if __name__ == "__main__":
    main()
