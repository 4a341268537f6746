"""Make tests/golden/mha: torch.nn.MultiheadAttention in float64.

cases.json lists every case: {"name", "heads", "mask", "lengths", "zero_attn", "self"}. NAME.safetensors holds the module's state
(float32) behind the prefix "layer.", NAME.query.npy, NAME.key.npy and NAME.value.npy the inputs (float32, [batch, tokens,
width]; of a case that attends to itself only the query), NAME.out.npy the result in float64.

  mask       full | causal (top left; query i sees keys j <= i)
  lengths    keys of each batch row that are no padding (key_padding_mask), or null
  zero_attn  add_zero_attn: one more key and value of zeros

Run:  python multi_head_attention.py
Made with torch 2.15.0, numpy 2.4.6, safetensors 0.8.0.
"""

import json
import pathlib
import shutil

import numpy as np
import torch
from safetensors.torch import save_file

OUT = pathlib.Path(__file__).resolve().parents[2] / "tests" / "golden" / "mha"
CASES = [
    dict(name="fused", d=24, heads=4, n=7, s=7, mask="causal", lengths=None, self=True),
    dict(name="no_bias", d=20, heads=5, n=6, s=6, mask="full", lengths=[6, 4], self=True, bias=False),
    dict(name="cross", d=16, heads=2, n=5, s=9, mask="full", lengths=[9, 3], self=False),
    dict(name="widths", d=16, heads=4, n=5, s=8, mask="full", lengths=None, self=False, kdim=10, vdim=13),
    dict(name="zero_attn", d=12, heads=3, n=4, s=4, mask="causal", lengths=None, self=True, zero_attn=True),
]


def main():
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir(parents=True)
    torch.manual_seed(31)
    index = []
    for case in CASES:
        name, d, b = case["name"], case["d"], 2
        kdim, vdim = case.get("kdim"), case.get("vdim")
        module = torch.nn.MultiheadAttention(d, case["heads"], bias=case.get("bias", True), kdim=kdim, vdim=vdim,
                                             add_zero_attn=case.get("zero_attn", False), batch_first=True)
        for p in module.parameters():  # biases begin as zeros, which would hide a wrong order
            torch.nn.init.normal_(p, std=0.4)
        save_file({"layer." + k: v.contiguous() for k, v in module.state_dict().items()}, str(OUT / f"{name}.safetensors"))
        module = module.double().eval()
        query = torch.randn(b, case["n"], d)
        key = query if case["self"] else torch.randn(b, case["s"], kdim or d)
        value = query if case["self"] else (torch.randn(b, case["s"], vdim) if vdim else key)
        np.save(OUT / f"{name}.query.npy", query.numpy())
        if not case["self"]:
            np.save(OUT / f"{name}.key.npy", key.numpy())
            np.save(OUT / f"{name}.value.npy", value.numpy())
        hidden = torch.ones(case["n"], case["s"], dtype=torch.bool).triu(1) if case["mask"] == "causal" else None
        padding = None if case["lengths"] is None else torch.tensor([[j >= n for j in range(case["s"])] for n in case["lengths"]])
        with torch.no_grad():
            out, _ = module(query.double(), key.double(), value.double(), attn_mask=hidden, key_padding_mask=padding)
        np.save(OUT / f"{name}.out.npy", out.numpy())
        index.append({k: case.get(k, False) for k in ("name", "heads", "mask", "lengths", "zero_attn", "self")})
    (OUT / "cases.json").write_text(json.dumps(index, indent=1) + "\n")


if __name__ == "__main__":
    main()
