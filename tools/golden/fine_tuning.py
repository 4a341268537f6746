"""Make tests/golden/models/smollm2_gradients.json: the loss of one batch and its gradients, of SmolLM2 in `transformers`.

The weights are the dequantised values of the GGUF file (gguf_models.py); everything is computed in float64 (float64.py).
The batch is two sequences of 48 tokens of the long prompt in smollm2.json; the first five labels of the second are left out.
  tokens, labels   [2, 48]; labels are shifted, -100 is not counted
  loss             nats per counted label
  gradients        by the name of the parameter, of the loss:
    norm, largest  the root of the sum of squares, the largest absolute value
    projection     the sum of all elements, those with an odd bit 16 of (i * 2654435761 mod 2^32) negated: every element is in it
    at, values     some elements by their number in row-major order
    float32        how far the same computation in float32 is off: the norm of the difference over the norm

Run:  python fine_tuning.py SMOLLM2.gguf       (the file of tools/get-model; a minute, 5 GB of memory)
Made with torch 2.15.0, transformers 5.24.0, gguf 0.19.0.
"""

import contextlib
import json
import pathlib
import random
import sys

import numpy as np
import torch

import gguf_models
from float64 import Float64Mode

MODELS = pathlib.Path(__file__).resolve().parents[2] / "tests" / "golden" / "models"
BATCH, SEQ, SAMPLES = 2, 48, 8


def gradients_of(path, dtype, tokens, labels):
    with Float64Mode() if dtype == "float64" else contextlib.nullcontext():
        model = gguf_models.to_transformers(path, dtype)
        logits = model(torch.from_numpy(tokens), use_cache=False).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), torch.from_numpy(labels).flatten(), ignore_index=-100)
        loss.backward()
    return loss.item(), {name: parameter.grad.numpy().ravel() for name, parameter in model.named_parameters()}


def main(path):
    ids = max((p["ids"] for p in json.loads((MODELS / "smollm2.json").read_text())["prompts"]), key=len)
    tokens = np.array(ids[: BATCH * SEQ]).reshape(BATCH, SEQ)
    labels = np.array(ids[1 : BATCH * SEQ + 1]).reshape(BATCH, SEQ)
    labels[1, :5] = -100
    loss, exact = gradients_of(path, "float64", tokens, labels)
    _, rounded = gradients_of(path, "float32", tokens, labels)
    gradients = {}
    for name, g in exact.items():
        assert g.dtype == np.float64 and rounded[name].dtype == np.float32
        index = np.arange(g.size, dtype=np.uint64)
        odd = (index * np.uint64(2654435761) % np.uint64(2**32) >> np.uint64(16)) & np.uint64(1)
        at = sorted({int(np.abs(g).argmax()), *random.Random(name).sample(range(g.size), SAMPLES - 1)})
        gradients[name] = dict(norm=float(f"{np.linalg.norm(g):.9g}"), largest=float(f"{np.abs(g).max():.9g}"),
                               projection=float(f"{(g * np.where(odd, -1, 1)).sum():.9g}"),
                               at=at, values=[float(f"{g[i]:.9g}") for i in at],
                               float32=float(f"{np.linalg.norm(rounded[name] - g) / np.linalg.norm(g):.2g}"))
    result = dict(file=pathlib.Path(path).name, tokens=tokens.ravel().tolist(), labels=labels.ravel().tolist(), batch=BATCH, seq=SEQ,
                  loss=loss, gradients=gradients)
    text = json.dumps(result, separators=(",", ":")).replace('},"', '},\n"')
    (MODELS / "smollm2_gradients.json").write_text(text + "\n")
    print(f"loss {loss:.6f}, {len(gradients)} tensors, {len(text)} bytes")


if __name__ == "__main__":
    main(sys.argv[1])
