"""What the scripts of attention's goldens share: random numbers, masks, and how results are stored."""

import json
import pathlib
import shutil

import numpy as np
import torch

GOLDEN = pathlib.Path(__file__).resolve().parents[2] / "tests" / "golden"


def gauss_of(rng):
    return lambda *shape: rng.standard_normal(shape).astype(np.float32)


def mask_of(shape, name, a):
    """bool [N, S], true: may look; the queries stand at the end of the keys."""
    q = shape["s"] - shape["n"] + torch.arange(shape["n"])[:, None]
    k = torch.arange(shape["s"])[None]
    if name == "full":
        return torch.ones(shape["n"], shape["s"], dtype=torch.bool)
    if name == "causal":
        return k <= q
    if name == "table":
        return torch.from_numpy(a["table"])
    if name == "documents":
        ids = torch.from_numpy(a["ids"])
        return ids[k] == ids[q]
    left, right = (int(x) for x in name[len("window("):-1].split(","))
    return (k >= q - left) & (k <= q + right)


def begin(out):
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)


def save(out, name, arrays):
    for role, value in arrays.items():
        np.save(out / f"{name}.{role}.npy", value)


def save_cases(out, entries):
    (out / "cases.json").write_text("[\n" + ",\n".join(json.dumps(entry) for entry in entries) + "\n]\n")
