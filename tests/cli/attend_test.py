"""`regard attend` against attention in plain Python floats (64 bits)."""
import json
import math
import os
import random
import struct

from command import Case, load_npy, main, save_npy

B, H, G, D, V = 2, 4, 2, 6, 5


def rope(vector, position, order, dim, theta):
    out = list(vector)
    for j in range(dim // 2):
        angle = position * theta ** (-2 * j / dim)
        a, b = (2 * j, 2 * j + 1) if order == "interleaved" else (j, j + dim // 2)
        out[a] = vector[a] * math.cos(angle) - vector[b] * math.sin(angle)
        out[b] = vector[a] * math.sin(angle) + vector[b] * math.cos(angle)
    return out


def attention(q, k, v, see, scale, softcap=0.0, bias=None, sink=None):
    """q [nq][D], k [nk][D], v [nk][V]; see(i, j) says whether query i may look at key j, bias(i, j) is added."""
    outs, lses, weights = [], [], []
    for i, query in enumerate(q):
        scores = {}
        for j, key in enumerate(k):
            if see(i, j):
                s = scale * sum(a * b for a, b in zip(query, key))
                scores[j] = softcap * math.tanh(s / softcap) if softcap else s
                if bias:
                    scores[j] += bias(i, j)
        if not scores:
            outs.append([0.0] * V)
            lses.append(-math.inf if sink is None else sink)
            weights.append([0.0] * len(k))
            continue
        total = [*scores.values(), *([] if sink is None else [sink])]
        top = max(total)
        lse = top + math.log(sum(math.exp(s - top) for s in total))
        row = [math.exp(scores[j] - lse) if j in scores else 0.0 for j in range(len(k))]
        outs.append([sum(w * v[j][c] for j, w in enumerate(row) if w) for c in range(V)])
        lses.append(lse)
        weights.append(row)
    return outs, lses, weights


class Attend(Case):
    def tensors(self, nq, nk, seed=1):
        rng = random.Random(seed)
        to_f32 = lambda x: float.fromhex(float(x).hex()) if False else round(x * 4096) / 4096  # exact in float32
        make = lambda *shape: [to_f32(rng.gauss(0, 1)) for _ in range(math.prod(shape))]
        data = {"q": ([B, H, nq, D], make(B, H, nq, D)), "k": ([B, G, nk, D], make(B, G, nk, D)), "v": ([B, G, nk, V], make(B, G, nk, V))}
        words = []
        for name, (shape, values) in data.items():
            words += [f"--{name}", save_npy(self.path(name + ".npy"), "f4", shape, values)]
        return data, words

    @staticmethod
    def rows(data, name, b, h):
        (_, heads, length, dim), values = data[name]
        base = (b * heads + h) * length * dim
        return [values[base + i * dim: base + (i + 1) * dim] for i in range(length)]

    def check(self, data, words, see, scale=1 / math.sqrt(D), softcap=0.0, turn=None, bias=None, sinks=None):
        """bias(b, h, i, j) and sinks[h] are what the words say."""
        nq, nk = data["q"][0][2], data["k"][0][2]
        out, lse, weights = self.path("o.npy"), self.path("l.npy"), self.path("w.npy")
        self.ok("attend", *words, "--out", out, "--lse", lse, "--weights", weights)
        (o_shape, o), (l_shape, l), (w_shape, w) = load_npy(out), load_npy(lse), load_npy(weights)
        self.assertEqual((o_shape, l_shape, w_shape), ((B, H, nq, V), (B, H, nq), (B, H, nq, nk)))
        for b in range(B):
            for h in range(H):
                q, k, v = self.rows(data, "q", b, h), self.rows(data, "k", b, h // (H // G)), self.rows(data, "v", b, h // (H // G))
                if turn:
                    q, k = turn(q, k)
                outs, lses, rows = attention(q, k, v, lambda i, j: see(b, i, j), scale, softcap,
                                             bias and (lambda i, j: bias(b, h, i, j)), sinks and sinks[h])
                for i in range(nq):
                    at = (b * H + h) * nq + i
                    for got, want in zip(o[at * V:(at + 1) * V], outs[i]):
                        self.assertAlmostEqual(got, want, delta=2e-6 * (1 + abs(want)))
                    if lses[i] == -math.inf:
                        self.assertEqual(l[at], -math.inf)
                        self.assertEqual(o[at * V:(at + 1) * V], [0.0] * V)
                    else:
                        self.assertAlmostEqual(l[at], lses[i], delta=2e-6 * (1 + abs(lses[i])))
                    for got, want in zip(w[at * nk:(at + 1) * nk], rows[i]):
                        self.assertEqual(got == 0.0, want == 0.0)
                        self.assertAlmostEqual(got, want, delta=2e-6)

    def test_full_and_causal(self):
        data, words = self.tensors(7, 7)
        self.check(data, words, lambda b, i, j: True)
        self.check(data, words + ["--mask", "causal"], lambda b, i, j: j <= i)
        self.check(data, words + ["--mask", "causal & window(2, 0)", "--scale", "0.25"], lambda b, i, j: i - 2 <= j <= i, scale=0.25)
        self.check(data, words + ["--mask", "causal", "--softcap", "1.5"], lambda b, i, j: j <= i, softcap=1.5)

    def test_positions(self):
        data, words = self.tensors(2, 7)
        self.check(data, words + ["--mask", "causal", "--q-begin", "5"], lambda b, i, j: j <= i + 5)
        self.check(data, words + ["--mask", "causal", "--q-begin", "5,1"], lambda b, i, j: j <= i + (5, 1)[b])
        q_at, k_at = [4, -1], [3, 4, 5, -1, 0, 1, 2]
        words += ["--q-positions", save_npy(self.path("qp.npy"), "i8", [2], q_at), "--k-positions", save_npy(self.path("kp.npy"), "i8", [7], k_at)]
        self.check(data, words + ["--mask", "causal"], lambda b, i, j: q_at[i] >= 0 and 0 <= k_at[j] <= q_at[i])
        self.refused(2, "shape", "attend", *words[:6], "--q-positions", self.path("kp.npy"), "--out", self.path("o.npy"))
        self.refused(2, "stand", "attend", *words[:6], "--mask", "causal", "--out", self.path("o.npy"))

    def test_tables_and_limits(self):
        data, words = self.tensors(3, 3)
        bits = [1, 0, 1, 0, 0, 0, 1, 1, 0]
        table = save_npy(self.path("t.npy"), "u1", [1, 1, 3, 3], bits)
        see = lambda b, i, j: bool(bits[3 * i + j])
        self.check(data, words + ["--table", table], see)  # row 1 sees nothing
        self.check(data, words + ["--mask", "table(mine) & causal", "--table", table], lambda b, i, j: see(b, i, j) and j <= i)
        self.check(data, words + ["--mask", "table(mine)", "--bind", f"mine={table}"], see)
        self.check(data, words + ["--lengths", "1,2"], lambda b, i, j: j < (1, 2)[b])
        self.check(data, words + ["--documents", "0,1,1/2,2,2"], lambda b, i, j: b == 1 or (i == 0) == (j == 0))
        self.refused(2, "no table", "attend", *words, "--mask", "causal", "--table", table, "--out", self.path("o.npy"))

    def test_rope(self):
        data, words = self.tensors(4, 4)
        for order, dim, theta, begin in (("half", 6, 10000.0, 0), ("interleaved", 6, 500.0, 3), ("half", 4, 100.0, 2), ("interleaved", 2, 10000.0, 0)):
            turn = lambda q, k: ([rope(x, begin + i, order, dim, theta) for i, x in enumerate(q)],
                                 [rope(x, begin + i, order, dim, theta) for i, x in enumerate(k)])
            self.check(data, words + ["--rope", order, "--rope-dim", dim, "--rope-theta", theta, "--q-begin", begin, "--k-begin", begin, "--mask", "causal"],
                       lambda b, i, j: j <= i, turn=turn)
        self.refused(2, "--rope-dim is 8", "attend", *words, "--rope", "half", "--rope-dim", 8, "--out", self.path("o.npy"))
        self.refused(2, "need --rope", "attend", *words, "--rope-dim", 4, "--out", self.path("o.npy"))

    def test_what_rows_look_at(self):
        data, words = self.tensors(5, 7)
        words += ["--mask", "causal & ~prefix(1)", "--q-begin", "0"]  # the first query sees nothing
        out, weights, plain = self.path("o.npy"), self.path("w.npy"), self.path("plain.npy")
        stats, top, top_weights, sums = (self.path(name + ".npy") for name in ("stats", "top", "tw", "sums"))
        self.ok("attend", *words, "--out", plain)
        report = json.loads(self.ok("attend", *words, "--out", out, "--weights", weights, "--stats", stats, "--stats-set", "window(0, 0) | prefix(2)",
                                    "--top-k", 3, "--top", top, "--top-weights", top_weights, "--column-sums", sums, "--json"))["files"]
        with open(out, "rb") as looked, open(plain, "rb") as unlooked:
            self.assertEqual(looked.read(), unlooked.read())
        names = {entry["file"]: entry for entry in report}
        columns = ["total", "entropy", "distance", "largest", "largest_key", "mass"]
        self.assertEqual(names[stats], {"file": stats, "dtype": "float32", "shape": [B, H, 5, 6], "columns": columns})
        self.assertEqual(names[top], {"file": top, "dtype": "int64", "shape": [B, H, 5, 3]})
        (_, w), (_, s), (_, t), (_, tw), (sums_shape, c) = map(load_npy, (weights, stats, top, top_weights, sums))
        self.assertEqual(sums_shape, (B, H, 7))
        for row in range(B * H * 5):
            query, r = row % 5, w[row * 7:row * 7 + 7]
            order = sorted((j for j in range(7) if r[j] > 0), key=lambda j: (-r[j], j))
            self.assertEqual(list(t[row * 3:row * 3 + 3]), (order + [-1, -1, -1])[:3])
            self.assertEqual(list(tw[row * 3:row * 3 + 3]), ([r[j] for j in order] + [0, 0, 0])[:3])
            want = [sum(r), -sum(x * math.log(x) for x in r if x), sum(x * (query - j) for j, x in enumerate(r)) / (sum(r) or 1), max(r),
                    order[0] if order else -1, sum(x for j, x in enumerate(r) if j < 2 or j == query)]
            for got, expected in zip(s[row * 6:row * 6 + 6], want):
                self.assertAlmostEqual(got, expected, delta=3e-6 * (1 + abs(expected)))
        for head in range(B * H):
            for j in range(7):
                self.assertAlmostEqual(c[head * 7 + j], sum(w[(head * 5 + i) * 7 + j] for i in range(5)), delta=3e-6)
        self.ok("attend", *words, "--stats", stats)
        self.assertEqual(load_npy(stats)[0], (B, H, 5, 5))
        # Behind several tiles of keys, too, looking does not touch the result; after dropout statistics are made in a pass of their own.
        data, long_words = self.tensors(9, 600)
        long_words += ["--mask", "causal", "--q-begin", 591]
        lses = self.path("l.npy"), self.path("plain_l.npy")
        self.ok("attend", *long_words, "--out", plain, "--lse", lses[1])
        self.ok("attend", *long_words, "--out", out, "--lse", lses[0], "--stats", stats)
        for looked_at, untouched in ((out, plain), lses):
            with open(looked_at, "rb") as looked, open(untouched, "rb") as unlooked:
                self.assertEqual(looked.read(), unlooked.read())
        self.ok("attend", *long_words, "--dropout", 0.5, "--seed", 3, "--dropout-weights", "after", "--weights", weights, "--stats", stats)
        (_, w), (_, s) = map(load_npy, (weights, stats))
        for row in range(B * H * 9):
            self.assertAlmostEqual(s[row * 5], sum(w[row * 600:row * 600 + 600]), delta=1e-5)
        self.refused(2, "--top-k needs --top", "attend", *words, "--out", out, "--top-k", 3)
        self.refused(2, "--stats-set needs --stats", "attend", *words, "--out", out, "--stats-set", "full")

    def test_report_and_refusals(self):
        data, words = self.tensors(2, 2)
        files = json.loads(self.ok("attend", *words, "--out", self.path("o.npy"), "--json"))["files"]
        self.assertEqual(files, [{"file": self.path("o.npy"), "dtype": "float32", "shape": [B, H, 2, V]}])
        with open(self.path("o.npy"), "rb") as file:
            self.assertEqual(self.ok("attend", *words, "--out", "-"), file.read())
        self.refused(2, "nothing to write", "attend", *words)
        flat = save_npy(self.path("flat.npy"), "f4", [4], [1, 2, 3, 4])
        self.refused(2, "[batch, heads, seq, dim]", "attend", "--q", flat, *words[2:], "--out", self.path("o.npy"))
        ints = save_npy(self.path("ints.npy"), "i8", [B, H, 2, D], [1] * (B * H * 2 * D))
        self.refused(2, f"--q {ints} holds", "attend", "--q", ints, *words[2:], "--out", self.path("o.npy"))
        self.refused(2, "--out and --lse", "attend", *words, "--out", "-", "--lse", "-")
        big = save_npy(self.path("big.npy"), "f8", [B, H, 2, D], [1.0] * (B * H * 2 * D - 1) + [1e39])
        self.refused(2, f"--q {big} holds 1e+39 at [{B - 1}, {H - 1}, 1, {D - 1}]", "attend", "--q", big, *words[2:], "--out", self.path("o.npy"))

    def test_messages_name_the_options(self):
        data, words = self.tensors(3, 5)
        self.refused(2, "--q-begin, 2 when", "attend", *words, "--mask", "causal", "--out", self.path("o.npy"))
        other = save_npy(self.path("other.npy"), "f4", [B, 3, 5, D], [0.0] * (B * 3 * 5 * D))
        self.refused(2, "4 heads of --q cannot share 3 heads of --k", "attend", *words[:2], "--k", other, "--v", other, "--out", self.path("o.npy"))
        self.refused(2, "keys and values must agree", "attend", *words[:4], "--v", self.path("q.npy"), "--out", self.path("o.npy"))
        thin = save_npy(self.path("thin.npy"), "f4", [B, G, 5, 2], [0.0] * (B * G * 5 * 2))
        self.refused(2, "queries have 6 elements and keys 2", "attend", *words[:2], "--k", thin, *words[4:], "--out", self.path("o.npy"))
        batch = save_npy(self.path("batch.npy"), "f4", [1, G, 5, D], [0.0] * (G * 5 * D))
        self.refused(2, "batch rows", "attend", *words[:2], "--k", batch, *words[4:], "--out", self.path("o.npy"))

    def test_biases_and_sink(self):
        data, words = self.tensors(3, 5)
        words += ["--mask", "causal", "--q-begin", 2]
        see = lambda b, i, j: j <= i + 2
        rng = random.Random(3)
        numbers = lambda n: [round(rng.gauss(0, 1) * 64) / 64 for _ in range(n)]
        for shape in ([B, H, 3, 5], [1, H, 3, 5], [B, 1, 1, 5], [1, 1, 3, 1]):
            values = numbers(math.prod(shape))
            file = save_npy(self.path("bias.npy"), "f4", shape, values)
            def bias(*at):
                index = 0
                for extent, x in zip(shape, at):
                    index = index * extent + (x if extent > 1 else 0)
                return values[index]
            self.check(data, words + ["--bias", file], see, bias=bias)
            self.check(data, words + ["--bias", file, "--softcap", "1.5"], see, bias=bias, softcap=1.5)
        slopes = [2.0 ** (-2 * (h + 1)) for h in range(H)]  # the published ones of four heads
        alibi = lambda slope: lambda b, h, i, j: -slope[h] * abs(i + 2 - j)
        self.check(data, words + ["--alibi", "published"], see, bias=alibi(slopes))
        self.check(data, words + ["--alibi", "1,0.5,0.25,-0.125"], see, bias=alibi([1, 0.5, 0.25, -0.125]))
        self.check(data, words + ["--alibi", save_npy(self.path("slopes.npy"), "f4", [H], slopes)], see, bias=alibi(slopes))
        # One bucket for each distance as far as these reach.
        table = numbers(16 * H)
        t5 = save_npy(self.path("t5.npy"), "f4", [16, H], table)
        self.check(data, words + ["--t5-table", t5, "--t5", "causal"], see, bias=lambda b, h, i, j: table[(i + 2 - j) * H + h])
        # Four buckets a side: 0, 1, then 2 + 2 log2(d / 2) from 2 on.
        bucket = lambda d: (4 if d > 0 else 0) + (abs(d) if abs(d) < 2 else 2 if abs(d) < 3 else 3)
        short = numbers(8 * H)
        t5 = save_npy(self.path("t5_short.npy"), "f4", [8, H], short)
        self.check(data, words[:6] + ["--q-begin", 2, "--t5-table", t5, "--t5-max-distance", 4], lambda b, i, j: True,
                   bias=lambda b, h, i, j: short[bucket(j - i - 2) * H + h])
        sinks = numbers(H)
        sink = save_npy(self.path("sink.npy"), "f4", [H], sinks)
        self.check(data, words + ["--sink", sink], see, sinks=sinks)
        # Biases by distance take encoding positions.
        at = [4, 0, 1, 9, 2]
        keys = save_npy(self.path("at.npy"), "i8", [5], at)
        self.check(data, words + ["--alibi", "published", "--k-encoding-positions", keys], see,
                   bias=lambda b, h, i, j: -slopes[h] * abs(i + 2 - at[j]))

    def test_transformer_xl(self):
        data, words = self.tensors(3, 5)
        words += ["--mask", "causal", "--q-begin", 2]
        see = lambda b, i, j: j <= i + 2
        rng = random.Random(4)
        numbers = lambda n: [round(rng.gauss(0, 1) * 64) / 64 for _ in range(n)]
        u, v, r = numbers(H * D), numbers(H * D), numbers(5 * H * D)
        files = ["--xl-u", save_npy(self.path("u.npy"), "f4", [H, D], u), "--xl-v", save_npy(self.path("v2.npy"), "f4", [H, D], v),
                 "--xl-r", save_npy(self.path("r.npy"), "f4", [5, H, D], r)]
        def expect(clamp, *more):
            # q + u in front of the keys: u's part is one more bias, as k . u does not depend on the query.
            def bias(b, h, i, j):
                q, k = self.rows(data, "q", b, h)[i], self.rows(data, "k", b, h // (H // G))[j]
                d = min(i + 2 - j, clamp)
                content = sum(x * y for x, y in zip(u[h * D:(h + 1) * D], k))
                position = sum((x + y) * z for x, y, z in zip(q, v[h * D:(h + 1) * D], r[(d * H + h) * D:(d * H + h + 1) * D]))
                return (content + position) / math.sqrt(D)
            self.check(data, words + files + list(more), see, bias=bias)
        expect(4)
        expect(2, "--xl-clamp", 2)
        out = ["--out", self.path("o.npy")]
        self.refused(2, "--xl-r has no vector for the distance -", "attend", *words[:6], "--q-begin", 0, *files, *out)
        self.refused(2, "give [4, 6]", "attend", *words, "--xl-r", files[5], "--xl-u",
                     save_npy(self.path("u2.npy"), "f4", [H, 2], [0.0] * (2 * H)), *out)
        self.refused(2, "--xl-clamp needs --xl-r", "attend", *words, "--xl-clamp", 3, *out)

    def test_dropout(self):
        def philox(counter, key):
            c, k = list(counter), list(key)
            for _ in range(10):
                a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
                c = [(b >> 32) ^ c[1] ^ k[0], b & 0xFFFFFFFF, (a >> 32) ^ c[3] ^ k[1], a & 0xFFFFFFFF]
                k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
            return c
        data, words = self.tensors(3, 5)
        before, after, out = self.path("b.npy"), self.path("a.npy"), self.path("o.npy")
        words += ["--dropout", 0.5, "--seed", 9, "--out", out]
        self.ok("attend", *words, "--weights", before)
        self.ok("attend", *words, "--weights", after, "--dropout-weights", "after")
        (_, w), (_, kept), (_, o) = load_npy(before), load_npy(after), load_npy(out)
        dropped = 0
        for b in range(B):
            for h in range(H):
                values = self.rows(data, "v", b, h // (H // G))
                for i in range(3):
                    key = philox((b, h, i, 0), (9, 0))[:2]
                    at = (b * H + h) * 3 + i
                    row = kept[at * 5:(at + 1) * 5]
                    for j in range(5):
                        keep = philox((j, 0, 0, 0), key)[0] >= 2 ** 31
                        dropped += not keep
                        self.assertEqual(row[j], 2 * w[at * 5 + j] if keep else 0.0)
                    for c in range(V):
                        self.assertAlmostEqual(o[at * V + c], sum(x * value[c] for x, value in zip(row, values)), delta=5e-6)
        self.assertTrue(30 < dropped < 90, dropped)
        self.refused(2, "less than 1", "attend", *words[:6], "--dropout", 1, "--out", out)
        self.refused(2, "--seed needs --dropout", "attend", *words[:6], "--seed", 1, "--out", out)

    def test_packed_sequences(self):
        data, words = self.tensors(7, 9)
        files = []
        for name in "qkv":  # the first batch row alone
            (_, heads, length, dim), values = data[name]
            files += ["--" + name, save_npy(self.path(name + "1.npy"), "f4", [1, heads, length, dim], values[:heads * length * dim])]
        out, lse = self.path("o.npy"), self.path("l.npy")
        offsets = save_npy(self.path("offsets.npy"), "i8", [4], [0, 2, 2, 6])
        looks = [self.path(name) for name in ("w.npy", "sums.npy", "top.npy", "stats.npy")]
        for q_offsets in ("0,2,2,6", offsets):
            self.ok("attend", *files, "--offsets", q_offsets, "--k-offsets", "0,3,4,8", "--q-begin", "1,0,0", "--mask", "causal", "--alibi", "published",
                    "--rope", "half", "--out", out, "--lse", lse, "--weights", looks[0], "--column-sums", looks[1], "--top-k", "2", "--top", looks[2],
                    "--stats", looks[3])
            (_, o), (_, l) = load_npy(out), load_npy(lse)
            (_, w), (_, sums), (_, top), (_, stats) = map(load_npy, looks)
            for h in range(H):
                q, k, v = self.rows(data, "q", 0, h), self.rows(data, "k", 0, h // (H // G)), self.rows(data, "v", 0, h // (H // G))
                slope = 2.0 ** (-2 * (h + 1))
                for (first, end), (k_first, k_end), begin in zip(((0, 2), (2, 2), (2, 6)), ((0, 3), (3, 4), (4, 8)), (1, 0, 0)):
                    turned_q = [rope(x, begin + i, "half", D, 10000.0) for i, x in enumerate(q[first:end])]
                    turned_k = [rope(x, j, "half", D, 10000.0) for j, x in enumerate(k[k_first:k_end])]
                    outs, lses, weights = attention(turned_q, turned_k, v[k_first:k_end], lambda i, j: j <= i + begin, 1 / math.sqrt(D),
                                                    bias=lambda i, j: -slope * abs(i + begin - j))
                    for j in range(k_first, k_end):
                        self.assertAlmostEqual(sums[h * 9 + j], sum(row[j - k_first] for row in weights), delta=5e-6)
                    for i in range(end - first):
                        at = h * 7 + first + i
                        self.assertAlmostEqual(l[at], lses[i], delta=5e-6)
                        row = [0.0] * k_first + weights[i] + [0.0] * (9 - k_end)
                        for got, want in zip(w[at * 9:(at + 1) * 9], row):
                            self.assertAlmostEqual(got, want, delta=5e-6)
                        self.assertEqual(w[at * 9:(at + 1) * 9].count(0.0), row.count(0.0))
                        self.assertEqual(top[at * 2], row.index(max(row)))
                        self.assertEqual(stats[at * 5 + 4], row.index(max(row)))
                        for got, want in zip(o[at * V:(at + 1) * V], outs[i]):
                            self.assertAlmostEqual(got, want, delta=5e-6)
                self.assertEqual(o[(h * 7 + 6) * V:(h * 7 + 7) * V], [0.0] * V)
                self.assertEqual(l[h * 7 + 6], -math.inf)
                self.assertEqual([*w[(h * 7 + 6) * 9:(h * 7 + 7) * 9]] + [sums[h * 9 + 8]], [0.0] * 10)
                self.assertEqual([*top[(h * 7 + 6) * 2:(h * 7 + 7) * 2], stats[(h * 7 + 6) * 5 + 4]], [-1, -1, -1])
        for bad, says in (("1,3", "rise from 0"), ("0,3,2", "rise from 0"), ("0,8", "at most 7"), ("0", "rise from 0")):
            self.refused(2, says, "attend", *files, "--offsets", bad, "--out", out)
        self.refused(2, "one batch row", "attend", *words, "--offsets", "0,3", "--out", out)
        self.refused(2, "--k-offsets needs --offsets", "attend", *files, "--k-offsets", "0,3", "--out", out)
        self.refused(2, "3 keys", "attend", *files, "--offsets", "0,2", "--k-offsets", "0,3", "--mask", "causal", "--out", out)

    def test_dtype(self):
        rng = random.Random(5)
        halves = lambda x: struct.unpack("<e", struct.pack("<e", x))[0]
        def brain(x):  # round to nearest even at the upper half of a float32
            bits = struct.unpack("<I", struct.pack("<f", x))[0]
            return struct.unpack("<f", struct.pack("<I", (bits + 0x7FFF + (bits >> 16 & 1)) >> 16 << 16))[0]
        for name, to in (("f16", halves), ("bf16", brain)):
            exact, rounded = [], []
            for x, heads, length, dim in (("q", H, 3, D), ("k", G, 5, D), ("v", G, 5, V)):
                values = [rng.gauss(0, 1) for _ in range(B * heads * length * dim)]
                shape = [B, heads, length, dim]
                exact += ["--" + x, save_npy(self.path(x + "e.npy"), "f4", shape, values)]
                rounded += ["--" + x, save_npy(self.path(x + "r.npy"), "f4", shape, [to(struct.unpack("<f", struct.pack("<f", y))[0]) for y in values])]
            a, b, c = self.path("a.npy"), self.path("b.npy"), self.path("c.npy")
            self.ok("attend", *exact, "--dtype", name, "--out", a)
            self.ok("attend", *rounded, "--out", b)
            self.ok("attend", *exact, "--out", c)
            self.assertEqual(load_npy(a), load_npy(b))
            self.assertNotEqual(load_npy(a), load_npy(c))
        data, words = self.tensors(3, 5)
        big = save_npy(self.path("big.npy"), "f4", [B, H, 3, D], [7e4] + [0.0] * (B * H * 3 * D - 1))
        self.refused(2, "holds 70000 at [0, 0, 0, 0], which --dtype f16 cannot hold", "attend", "--q", big, *words[2:], "--dtype", "f16", "--out", self.path("o.npy"))

    def test_arithmetic(self):
        data, words = self.tensors(5, 7)
        out, exact = self.path("out.npy"), self.path("exact.npy")
        words += ["--mask", "causal", "--q-begin", 2]
        isas = json.loads(self.ok("doctor", "--json"))["isas"]
        self.refused(8, "baseline, has no bf16 dot products", "attend", *words, "--arithmetic", "bf16", "--out", out, "--isa", "baseline")
        for option, more in (("weights", ()), ("stats", ()), ("top", ("--top-k", 2))):
            self.refused(2, f"--{option} takes no --arithmetic bf16", "attend", *words, "--arithmetic", "bf16", f"--{option}", out, *more)
        self.assertFalse(os.path.exists(out))
        if "avx512_bf16" not in isas:
            self.skipTest("this machine has no avx512_bf16")
        self.ok("attend", *words, "--out", exact)
        self.ok("attend", *words, "--arithmetic", "bf16", "--out", out)
        (shape, want), (got_shape, got) = load_npy(exact), load_npy(out)
        self.assertEqual(got_shape, shape)
        self.assertNotEqual(got, want)
        for x, y in zip(got, want):
            self.assertAlmostEqual(x, y, delta=0.05)

    def test_refused_biases(self):
        data, words = self.tensors(3, 5)
        words += ["--out", self.path("o.npy")]
        flat = save_npy(self.path("flat.npy"), "f4", [5], [0.0] * 5)
        self.refused(2, f"--bias {flat} has the shape [5]; give [batch or 1", "attend", *words, "--bias", flat)
        wrong = save_npy(self.path("wrong.npy"), "f4", [1, 1, 3, 4], [0.0] * 12)
        self.refused(2, f"--bias {wrong} has the shape [1, 1, 3, 4]; give [2, 4, 3, 5]", "attend", *words, "--bias", wrong)
        mask = save_npy(self.path("mask.npy"), "u1", [1, 1, 3, 5], [0] * 15)
        self.refused(2, f"--bias {mask} holds", "attend", *words, "--bias", mask)
        self.refused(2, "--alibi has 2 slopes; give one for each of the 4 heads", "attend", *words, "--alibi", "1,2")
        self.refused(2, "--alibi", "attend", *words, "--alibi", "steep")
        self.refused(2, "--t5-table", "attend", *words, "--t5-table", flat)
        self.refused(2, "give [buckets, 4]", "attend", *words, "--t5-table", save_npy(self.path("t.npy"), "f4", [32, 2], [0.0] * 64))
        self.refused(2, "--t5 needs --t5-table", "attend", *words, "--t5", "causal")
        odd = save_npy(self.path("odd.npy"), "f4", [9, H], [0.0] * (9 * H))
        self.refused(2, "--t5 bidirectional takes an even number", "attend", *words, "--t5-table", odd)
        self.refused(2, "--t5-max-distance is 4", "attend", *words, "--t5-table", odd, "--t5", "causal", "--t5-max-distance", 4)
        self.refused(2, f"--sink {flat} has the shape [5]; give [4]", "attend", *words, "--sink", flat)

    def test_gradients(self):
        """The derivative of sum(grad * out) + sum(grad_lse * lse) along random directions, by differences."""
        nq, nk, buckets = 3, 4, 8
        data, words = self.tensors(nq, nk)
        rng = random.Random(5)
        draw = lambda *shape: (list(shape), [round(rng.gauss(0, 1) * 4096) / 4096 for _ in range(math.prod(shape))])
        data.update(bias=draw(1, H, 1, nk), table=draw(buckets, H), sink=draw(H), dout=draw(B, H, nq, V), dlse=draw(B, H, nq),
                    u=draw(H, D), v_bias=draw(H, D), r=draw(nk, H, D))
        words += ["--mask", "causal", "--q-begin", 1, "--softcap", 1.5, "--rope", "half", "--rope-theta", 100, "--t5", "causal", "--t5-max-distance", 16]
        for option, name in (("bias", "bias"), ("t5-table", "table"), ("sink", "sink"), ("grad", "dout"), ("grad-lse", "dlse"), ("xl-u", "u"), ("xl-v", "v_bias"),
                             ("xl-r", "r")):
            words += [f"--{option}", save_npy(self.path(name + ".npy"), "f4", *data[name])]

        def loss(data):
            total = 0.0
            for b in range(B):
                for h in range(H):
                    q, k, v = self.rows(data, "q", b, h), self.rows(data, "k", b, h // (H // G)), self.rows(data, "v", b, h // (H // G))
                    q, k = ([rope(x, first + i, "half", D, 100.0) for i, x in enumerate(rows)] for rows, first in ((q, 1), (k, 0)))
                    # Up to half of the buckets each distance has its own.
                    u, position = (data[name][1][h * D:(h + 1) * D] for name in ("u", "v_bias"))
                    vector = lambda distance: data["r"][1][(distance * H + h) * D:(distance * H + h + 1) * D]
                    relative = lambda i, j: sum((x + y) * z for x, y, z in zip(q[i], position, vector(i + 1 - j))) / math.sqrt(D)
                    bias = lambda i, j: data["bias"][1][h * nk + j] + data["table"][1][max(0, i + 1 - j) * H + h] + relative(i, j)
                    content = [[x + y for x, y in zip(row, u)] for row in q]
                    outs, lses, _ = attention(content, k, v, lambda i, j: j <= i + 1, 1 / math.sqrt(D), 1.5, bias, data["sink"][1][h])
                    for i in range(nq):
                        at = (b * H + h) * nq + i
                        total += sum(x * y for x, y in zip(outs[i], data["dout"][1][at * V:(at + 1) * V])) + lses[i] * data["dlse"][1][at]
            return total

        results = {"q": "dq", "k": "dk", "v": "dv", "bias": "dbias", "table": "dt5-table", "sink": "dsink", "u": "dxl-u",
                   "v_bias": "dxl-v", "r": "dxl-r"}
        self.ok("attend", *words, *(word for option in results.values() for word in (f"--{option}", self.path(option + ".npy"))))
        for name, option in results.items():
            shape, values = data[name]
            got_shape, got = load_npy(self.path(option + ".npy"))
            self.assertEqual(got_shape, tuple(shape))
            for _ in range(3):
                along = [rng.gauss(0, 1) for _ in values]
                moved = lambda step: {**data, name: (shape, [x + step * y for x, y in zip(values, along)])}
                want = (loss(moved(1e-5)) - loss(moved(-1e-5))) / 2e-5
                self.assertAlmostEqual(sum(x * y for x, y in zip(got, along)), want, delta=2e-5 * (1 + abs(want)), msg=option)
                self.assertGreater(abs(want), 1e-3, "a derivative of zero proves nothing")
        again = self.path("again.npy")
        self.ok("attend", *words, "--dk", again)
        self.assertEqual(load_npy(again), load_npy(self.path("dk.npy")))

    def test_refused_gradients(self):
        data, words = self.tensors(2, 2)
        grad = ["--grad", save_npy(self.path("g.npy"), "f4", [B, H, 2, V], [1.0] * (B * H * 2 * V))]
        out = self.path("x.npy")
        self.refused(2, "--dq needs --grad or --grad-lse", "attend", *words, "--dq", out)
        self.refused(2, "no gradient is wanted", "attend", *words, *grad, "--out", out)
        self.refused(2, "--dbias needs --bias", "attend", *words, *grad, "--dbias", out)
        self.refused(2, "--dxl-u needs --xl-u", "attend", *words, *grad, "--dxl-u", out)
        self.refused(2, "--dsink needs --sink", "attend", *words, *grad, "--dsink", out)
        self.refused(2, "--dq and --dk cannot both go to standard output", "attend", *words, *grad, "--dq", "-", "--dk", "-")
        self.refused(2, f"has the shape [{B}, {H}, 2, {D}]; give [{B}, {H}, 2, {V}]", "attend", *words, "--grad", words[1], "--dq", out)


if __name__ == "__main__":
    main()
