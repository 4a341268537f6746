"""`regard mask check` on masks that PyTorch wrote (tools/golden/masks.py)."""
import json
import unittest

from command import GOLDEN, Case, main, run, save_npy

MASKS = GOLDEN / "masks"


class Check(Case):
    def look(self, name, *words):
        result = run("mask", "check", MASKS / f"{name}.npy", *words, "--json")
        report = json.loads(result.stdout)
        self.assertEqual(result.returncode, 1 if report["faults"] else 0, result.stderr)
        return report

    def faults(self, name, *words):
        return [fault["name"] for fault in self.look(name, *words)["faults"]]

    def test_what_a_mask_says(self):
        for name, words, mask in (("tril", [], "causal"), ("square_subsequent", [], "causal"), ("triu_drop", ["--drop"], "causal"),
                                  ("bottom_right", [], "causal"), ("causal_padding", [], "causal & lengths(5, 8)")):
            with self.subTest(name):
                report = self.look(name, *words)
                self.assertEqual((report["mask"], report["faults"]), (mask, []))
        self.assertEqual(self.look("bottom_right")["q_begin"], 5)
        self.assertEqual(self.look("causal_padding")["shape"], [2, 1, 8, 8])

    def test_mistakes(self):
        self.assertEqual(self.faults("tril_float"), ["zero-and-one"])
        self.assertEqual(self.faults("tril_int64"), ["integer-type"])
        self.assertEqual(self.faults("min_float32"), ["finite-minimum"])
        self.assertEqual(self.faults("min_float16"), ["half-minimum"])
        self.assertEqual(self.faults("triu_drop"), ["polarity"])
        self.assertEqual(self.faults("top_left"), ["corner"])
        self.assertEqual(self.faults("top_left", "--q-begin", 0), [])
        self.assertEqual(self.faults("top_left", "--expect", "causal", "--q-begin", 5), ["corner"])
        self.assertEqual(self.faults("padding", "--batch", 2, "--q-len", 8, "--kv-len", 8), ["padding-shape"])
        self.assertEqual(self.faults("causal_or_padding", "--expect", "causal & lengths(5, 8)"), ["or-for-and"])
        self.assertEqual(self.faults("top_left", "--expect", "full"), ["causal-on-cross"])
        fault, = self.look("left_padding")["faults"]
        self.assertEqual((fault["name"], fault["batch"], fault["row"]), ("empty-row", 0, 0))
        fault, = self.look("tril", "--expect", "window(3, 0)")["faults"]
        self.assertEqual((fault["name"], fault["row"], fault["column"]), ("differs", 4, 0))

    def test_text(self):
        path = str(MASKS / "min_float32.npy")
        lines = run("mask", "check", path).stdout.decode().splitlines()
        self.assertEqual(lines[0], f"{path}: f32, added to the scores, [batch, heads, q, k] = [1, 1, 8, 8]")
        self.assertEqual(lines[1], "mask: causal")
        self.assertTrue(lines[2].startswith("fault: finite-minimum at batch row 0, head 0, row 0, column 1: 28 elements are large"), lines[2])
        self.assertEqual(self.ok("mask", "check", MASKS / "tril.npy").decode().splitlines()[1:], ["mask: causal", "no faults"])

    def test_errors(self):
        self.refused(2, "--keep and --drop", "mask", "check", MASKS / "tril.npy", "--keep", "--drop")
        self.refused(2, "give --q-begin: 0 when they are the first, 5", "mask", "check", MASKS / "top_left.npy", "--expect", "causal")
        self.refused(2, "2 to 4 axes", "mask", "check", save_npy(self.path("v.npy"), "f4", [3], [0, 0, 0]))


if __name__ == "__main__":
    main()
