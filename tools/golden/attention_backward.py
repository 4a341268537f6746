"""Make tests/golden/backward: gradients of attention by PyTorch's autograd in float64.

The loss is sum(dout * out) + sum(dlse * lse) over rows that see a key (a row with nothing but a sink has that sink as its
lse). cases.json lists every case: {"name", "shape", "index", "mask", parameters ...}; its gradients are NAME[index] of
SHAPE.dq.npy [cases, B, Hq, N, D], SHAPE.dk.npy, SHAPE.dv.npy, and, where the case has the term, the array
SHAPE.INDEX.dense.npy, .t5.npy or .sink.npy. Inputs are float32 in SHAPE.NAME.npy:

  q [B, Hq, N, D], k [B, Hkv, S, D], v [B, Hkv, S, Dv], dout [B, Hq, N, Dv], dlse [B, Hq, N]; query i stands at position
  q_begin + i, key j at j
  mask     full | causal | window(l, r) | documents (ids.npy [S]: equal ids) | table (table.npy: bool [N, S], true: may look;
           its row 1 sees nothing)
  dlse     true: the gradient of lse is dlse.npy; else 0
  softcap  score = softcap * tanh(scale q.k / softcap), before everything below
  dense    name of an array that is added: dense [B, Hq, N, S], dense_qk [1, 1, N, S], dense_keys [B, 1, 1, S], dense_rows
           [1, Hq, N, 1], dense_one [1, 1, 1, 1]
  t5       table_t5.npy [16, Hq] looked up by transformers' T5, causal, max_distance 20
  sink     sink.npy [Hq]

Gradients are stored rounded to float32.
Run:  python attention_backward.py
Made with torch 2.15.0, transformers 5.24.0, numpy 2.4.6.
"""

import math

import numpy as np
import torch
from transformers.models.t5.modeling_t5 import T5Attention

from attention_cases import GOLDEN, begin, gauss_of, mask_of, save, save_cases

OUT = GOLDEN / "backward"
RNG = np.random.default_rng(2031)
gauss = gauss_of(RNG)
SHAPES = {
    "short": dict(b=2, hq=4, hkv=2, n=6, s=9, d=8, dv=5, q_begin=3),
    "long": dict(b=1, hq=2, hkv=1, n=3, s=300, d=3, dv=4, q_begin=297),
}
LONG = [("causal", "plain"), ("table", "plain"), ("causal", "dense_keys"), ("table", "dense_rows"), ("causal", "everything"),
        ("table", "everything")]
BUCKETS, MAX_DISTANCE = 16, 20


def gradients(shape, a, mask, dlse=False, softcap=0, dense=None, t5=False, sink=False):
    leaf = {name: torch.from_numpy(a[name]).double().requires_grad_() for name in ("q", "k", "v")}
    for wanted, name in ((dense, dense), (t5, "table_t5"), (sink, "sink")):
        if wanted:
            leaf[name] = torch.from_numpy(a[name]).double().requires_grad_()
    group = shape["hq"] // shape["hkv"]
    k, v = leaf["k"].repeat_interleave(group, 1), leaf["v"].repeat_interleave(group, 1)
    score = leaf["q"] @ k.transpose(-1, -2) / math.sqrt(shape["d"])
    if softcap:
        score = softcap * torch.tanh(score / softcap)
    if t5:
        distance = torch.arange(shape["s"])[None] - (shape["q_begin"] + torch.arange(shape["n"])[:, None])
        bucket = T5Attention._relative_position_bucket(
            distance, bidirectional=False, num_buckets=BUCKETS, max_distance=MAX_DISTANCE)
        score = score + leaf["table_t5"][bucket].permute(2, 0, 1)
    if dense:
        score = score + leaf[dense]
    visible = mask_of(shape, mask, a).expand(score.shape)
    columns = torch.where(visible, score, -torch.inf)
    if sink:
        columns = torch.cat([columns, leaf["sink"][:, None, None].expand(*score.shape[:-1], 1)], -1)
    seen = ~torch.isinf(columns).all(-1)
    # Autograd makes NaN of rows that see nothing; they are computed on other numbers and left out of the loss.
    columns = torch.where(seen[..., None], columns, 0.0)
    weights = torch.softmax(columns, -1)[..., : shape["s"]]
    out = torch.where(seen[..., None], weights @ v, 0.0)
    lse = torch.logsumexp(columns, -1)
    loss = (out * torch.from_numpy(a["dout"]).double()).sum()
    if dlse:
        loss = loss + (torch.where(seen, lse, 0.0) * torch.from_numpy(a["dlse"]).double()).sum()
    loss.backward()
    return {name: tensor.grad.numpy() for name, tensor in leaf.items()}


def cases():
    everything = dict(dlse=True, softcap=0.8, dense="dense", t5=True, sink=True)
    terms = {
        "plain": {},
        "dlse": dict(dlse=True),
        "softcap": dict(softcap=0.6),
        "dense": dict(dense="dense"),
        "dense_qk": dict(dense="dense_qk"),
        "dense_keys": dict(dense="dense_keys", dlse=True),
        "dense_rows": dict(dense="dense_rows", dlse=True),
        "dense_one": dict(dense="dense_one", dlse=True),
        "t5": dict(t5=True),
        "sink": dict(sink=True, dlse=True),
        "everything": everything,
    }
    for term, parameters in terms.items():
        for mask in ("full", "causal", "window(2, 1)", "documents", "table"):
            if term in ("plain", "everything") or mask in ("causal", "table"):
                yield term, mask, parameters


def main():
    begin(OUT)
    entries = []
    for name, shape in SHAPES.items():
        b, hq, hkv, n, s, d, dv = (shape[x] for x in ("b", "hq", "hkv", "n", "s", "d", "dv"))
        table = RNG.random((n, s)) < 0.5
        table[1] = False
        ids = np.sort(RNG.integers(0, max(3, s // 40), s)).astype(np.int64)
        a = dict(q=gauss(b, hq, n, d), k=gauss(b, hkv, s, d), v=gauss(b, hkv, s, dv), dout=gauss(b, hq, n, dv),
                 dlse=gauss(b, hq, n), table=table, ids=ids, dense=gauss(b, hq, n, s), dense_qk=gauss(1, 1, n, s),
                 dense_keys=gauss(b, 1, 1, s), dense_rows=gauss(1, hq, n, 1), dense_one=gauss(1, 1, 1, 1),
                 table_t5=gauss(BUCKETS, hq), sink=gauss(hq))
        save(OUT, name, a)
        stacks = dict(q=[], k=[], v=[])
        for term, mask, parameters in cases():
            if name == "long" and (mask, term) not in LONG:
                continue
            got = gradients(shape, a, mask, **parameters)
            assert all(np.isfinite(x).all() and np.abs(x).max() > 0 or x.size == 1 for x in got.values()), (name, term, mask)
            index = len(stacks["q"])
            for role in stacks:
                stacks[role].append(got[role].astype(np.float32))
            for role, file in ((parameters.get("dense"), "dense"), ("table_t5", "t5"), ("sink", "sink")):
                if role in got:
                    np.save(OUT / f"{name}.{index}.{file}.npy", got[role].astype(np.float32))
            entries.append(dict(name=f"{term}, {mask}, {name}", shape=name, index=index, mask=mask,
                                q_begin=shape["q_begin"], **parameters))
        save(OUT, name, {"d" + role: np.stack(arrays) for role, arrays in stacks.items()})
    save_cases(OUT, entries)


if __name__ == "__main__":
    main()
