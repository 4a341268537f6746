"""Masks as PyTorch programs write them, right and wrong, for `regard mask check`: tests/golden/masks/*.npy.

    python tools/golden/masks.py
"""
import pathlib

import numpy
import torch

OUT = pathlib.Path(__file__).resolve().parents[2] / "tests" / "golden" / "masks"
N = 8


def save(name, tensor):
    numpy.save(OUT / f"{name}.npy", tensor.numpy())


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    square = torch.nn.Transformer.generate_square_subsequent_mask(N)  # 0 and -inf
    save("square_subsequent", square)
    keep = torch.ones(N, N, dtype=torch.bool).tril()
    save("tril", keep)
    save("triu_drop", torch.ones(N, N, dtype=torch.bool).triu(1))
    save("tril_float", keep.float())
    save("tril_int64", keep.long())
    for name, dtype in (("min_float32", torch.float32), ("min_float16", torch.float16)):
        save(name, torch.full((N, N), torch.finfo(dtype).min, dtype=dtype).triu(1))
    # The last 3 of 8 tokens: the corner that a flag would pick, and the one that was meant.
    save("top_left", torch.ones(3, N, dtype=torch.bool).tril())
    save("bottom_right", torch.ones(3, N, dtype=torch.bool).tril(N - 3))
    # Two padded rows of 5 and 8 tokens: [batch, keys], and the same beside causal for all heads.
    valid = torch.arange(N)[None, :] < torch.tensor([5, 8])[:, None]
    save("padding", valid)
    save("causal_padding", keep[None, None] & valid[:, None, None, :])
    save("causal_or_padding", keep[None, None] | valid[:, None, None, :])
    # Left padding: the first rows have nothing to look at.
    save("left_padding", keep[None, None] & (torch.arange(N)[None, :] >= torch.tensor([3, 0])[:, None])[:, None, None, :])


main()
