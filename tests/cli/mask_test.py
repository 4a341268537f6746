"""`regard mask`: answers against a predicate written here, from the table of terms."""
import itertools
import json
import signal
import struct
import time
import zlib

from command import Case, main, run, save_npy, start

DOCUMENTS = [0, 0, 0, 1, 1, 2, 2, 2, 2, 3, 3, 3]
# Expression, and the same rule in Python.
RULES = {
    "causal": lambda p, k: k <= p,
    "full": lambda p, k: True,
    "none": lambda p, k: False,
    "causal & (window(3, 0) | sinks(2))": lambda p, k: k <= p and (p - 3 <= k <= p or k < 2),
    "window(2, 1)": lambda p, k: p - 2 <= k <= p + 1,
    "~causal": lambda p, k: k > p,
    "blocks(4)": lambda p, k: k // 4 <= p // 4,
    "chunk(4)": lambda p, k: k // 4 == p // 4,
    "dilated(3) & causal": lambda p, k: (p - k) % 3 == 0 and k <= p,
    "documents(ids) & causal": lambda p, k: DOCUMENTS[p] == DOCUMENTS[k] and k <= p,
}
N = 12


def runs(positions):
    result = []
    for position in positions:
        if result and result[-1][1] == position:
            result[-1][1] = position + 1
        else:
            result.append([position, position + 1])
    return result


class Mask(Case):
    def setUp(self):
        super().setUp()
        self.bind = ["--bind", "ids=" + save_npy(self.path("ids.npy"), "i8", [N], DOCUMENTS)]

    def ask(self, what, mask, *words):
        return json.loads(self.ok("mask", what, mask, *words, "--q-len", N, *self.bind, "--json"))

    def test_count_row_column_and_picture(self):
        for mask, rule in RULES.items():
            with self.subTest(mask):
                self.assertEqual(self.ask("count", mask)["visible"], sum(rule(p, k) for p, k in itertools.product(range(N), repeat=2)))
                for at in (0, 5, N - 1):
                    row = self.ask("row", mask, at)
                    self.assertEqual(row["runs"], runs([k for k in range(N) if rule(at, k)]))
                    self.assertEqual(row["count"], sum(rule(at, k) for k in range(N)))
                    self.assertEqual(self.ask("column", mask, at)["runs"], runs([p for p in range(N) if rule(p, at)]))
                lines = self.ask("draw", mask, "--ascii")["lines"][-N:]
                for p, line in enumerate(lines):
                    self.assertEqual(line.split()[1:], ["#" if rule(p, k) else "." for k in range(N)])

    def test_text(self):
        self.assertEqual(self.ok("mask", "row", "causal & window(2, 0)", "5"), b"query 5 sees 3 keys: 3-5\n")
        self.assertEqual(self.ok("mask", "column", "causal", "7"), b"key 7 is seen by 1 query: 7\n")
        self.assertEqual(self.ok("mask", "row", "none", "0"), b"query 0 sees 0 keys\n")
        self.assertEqual(self.ok("mask", "count", "causal", "--q-len", "3"), b"6 of 9 pairs are visible (66.67 %)\n")

    def test_limits_beside_the_mask(self):
        count = lambda *words: json.loads(self.ok("mask", "count", "full", *words, "--json"))["visible"]
        self.assertEqual(count("--q-len", 4, "--batch", 2, "--lengths", "1,3"), 4 * (1 + 3))
        self.assertEqual(count("--q-len", 4, "--documents", "0,0,1,1"), 8)
        self.assertEqual(count("--q-len", 4, "--batch", 2, "--documents", "0,0,1,1/5,5,5,5"), 8 + 16)
        self.assertEqual(count("--q-len", 2, "--kv-len", 3, "--documents", "7,8;8,8,7"), 1 + 2)

    def test_where_queries_stand(self):
        count = lambda *words: json.loads(self.ok("mask", "count", "causal", *words, "--json"))["visible"]
        self.assertEqual(count("--q-len", 2, "--kv-len", 6, "--q-begin", 4), 5 + 6)
        self.assertEqual(count("--q-len", 2, "--kv-len", 6, "--q-begin", 0), 1 + 2)
        self.refused(2, "give --q-begin: 0 when they are the first, 4 when they are the last", "mask", "count", "causal", "--q-len", 2, "--kv-len", 6)
        self.ok("mask", "count", "prefix(3)", "--q-len", 2, "--kv-len", 6)

    def test_tables(self):
        bits = [1, 0, 0, 1, 1, 0, 0, 1, 1]
        table = save_npy(self.path("t.npy"), "b1", [3, 3], bits)
        self.assertEqual(json.loads(self.ok("mask", "count", "table(t)", "--q-len", 3, "--bind", f"t={table}", "--json"))["visible"], 5)
        floats = save_npy(self.path("f.npy"), "f4", [3, 3], bits)
        self.refused(2, "", "mask", "count", "table(t)", "--q-len", 3, "--bind", f"t={floats}")

    def test_errors_point_at_the_fault(self):
        message = self.refused(2, "column 10", "mask", "draw", "causal & windw(3, 0)")
        self.assertIn("did you mean 'window'", message)
        self.assertIn("\n           ^", message)
        self.refused(2, "NAME=FILE", "mask", "draw", "causal", "--bind", "ids")
        self.refused(2, "POSITION", "mask", "row", "causal", "x")
        self.refused(2, "POSITION is -1; give 0 or more", "mask", "column", "causal", "-1")
        self.refused(2, "the command takes --bind seen=seen.npy", "mask", "draw", "table(seen)")
        self.refused(2, "1 query head; give one for each (regard mask: --heads 2)", "mask", "draw", "per_head(causal, full)")
        for word in ("--out", "--output", "-o"):
            self.refused(2, "did you mean --png?", "mask", "draw", "causal", word, "m.png")
        self.refused(2, "", "mask", "row", "causal", "8")
        self.refused(2, "", "mask", "draw", "causal", "--head", "1")

    def test_drawing_stops_on_one_signal(self):
        # No cell is decided as a whole, so that its thousand rows are taken one by one: minutes of work.
        mask = "~causal & blocks(3) & ~blocks(2)"
        for words in (["--png", self.path("large.png"), "--pixels", 8192], ["--max-rows", 10000, "--max-columns", 10000]):
            process = start("mask", "draw", mask, "--q-len", 8000000, *words)
            time.sleep(0.7)
            process.send_signal(signal.SIGINT)
            out, _ = process.communicate(timeout=10)
            self.assertEqual((process.returncode, out), (130, b""))

    def test_png(self):
        path = self.path("mask.png")
        result = run("mask", "draw", "causal", "--q-len", 5, "--png", path)
        self.assertEqual((result.returncode, result.stdout), (0, b""))
        self.assertEqual(result.stderr.decode(), f"regard mask draw: wrote {path}, 81 by 81 pixels\n")
        with open(path, "rb") as file:
            data = file.read()
        self.assertEqual(self.ok("mask", "draw", "causal", "--q-len", 5, "--png", "-"), data)
        result = run("mask", "draw", "causal", "--q-len", 5, "--png", path, "--json")
        self.assertEqual((result.returncode, result.stderr), (0, b""))
        report = json.loads(result.stdout)
        self.assertEqual((report["file"], report["width"], report["height"]), (path, 81, 81))
        self.refused(2, "standard output", "mask", "draw", "causal", "--png", "-", "--json")
        self.assertEqual(data[:8], b"\x89PNG\r\n\x1a\n")
        width, height = struct.unpack(">II", data[16:24])
        self.assertEqual(width, height)
        pixels, at = b"", 8
        while at < len(data):
            size, kind = struct.unpack(">I4s", data[at:at + 8])
            if kind == b"IDAT":
                pixels += data[at + 8:at + 8 + size]
            at += size + 12
        self.assertEqual(len(zlib.decompress(pixels)), height * (1 + 3 * width))


if __name__ == "__main__":
    main()
