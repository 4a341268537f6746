#!/usr/bin/env python3
"""Attention in PyTorch (scaled_dot_product_attention) on the requests of attention_serve_bench; see bench/README.md.

`full` and `causal` masks only: what its fused CPU path takes without a mask tensor.
"""
import pathlib
import sys

import numpy as np
import torch
import torch.nn.functional as F

from serve_requests import serve

problem = {}


def load(words):
    directory, threads, backward, mask = pathlib.Path(words[0]), int(words[1]), words[2] == "backward", " ".join(words[3:])
    if mask not in ("full", "causal"):
        sys.exit(f"pytorch_attention.py: no problem for the fused path: {mask}")
    torch.set_num_threads(threads)
    q, k, v = (torch.from_numpy(np.load(directory / f"{name}.npy")).to(torch.bfloat16 if words[2] == "bf16" else torch.float32) for name in "qkv")
    dout = torch.from_numpy(np.load(directory / "dout.npy")) if backward else None
    for t in (q, k, v):
        t.requires_grad_(backward)
    problem.update(directory=directory, q=q, k=k, v=v, dout=dout, causal=mask == "causal")


def run():
    q, k, v = problem["q"], problem["k"], problem["v"]
    q.grad = k.grad = v.grad = None
    out = F.scaled_dot_product_attention(q, k, v, is_causal=problem["causal"], enable_gqa=q.shape[1] != k.shape[1])
    if problem["dout"] is not None:
        out.backward(problem["dout"])
    problem["out"] = out.detach()


def save():
    np.save(problem["directory"] / "out.peer.npy", problem["out"].float().numpy())
    if problem["dout"] is not None:
        for name in "qkv":
            np.save(problem["directory"] / f"d{name}.peer.npy", problem[name].grad.numpy())


def main():
    serve({"name": "PyTorch", "version": torch.__version__, "features": torch.backends.cpu.get_cpu_capability()}, load, run, save)


if __name__ == "__main__":
    main()
