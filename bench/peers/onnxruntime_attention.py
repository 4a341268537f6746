#!/usr/bin/env python3
"""Attention in ONNX Runtime (operator Attention of opset 23) on the requests of attention_serve_bench; see bench/README.md.

Needs a Python that has onnx and onnxruntime. Forward only; `full` and `causal` masks.
"""
import pathlib
import sys

import numpy as np
import onnxruntime as ort
from onnx import TensorProto, helper

from serve_requests import serve

problem = {}


def session(shapes, causal, threads):
    """A model of one attention operator, for arrays of these shapes."""
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items()]
    out = helper.make_tensor_value_info("out", TensorProto.FLOAT, [*shapes["q"][:3], shapes["v"][3]])
    node = helper.make_node("Attention", list(shapes), ["out"], is_causal=int(causal))
    model = helper.make_model(helper.make_graph([node], "attention", inputs, [out]), ir_version=10,
                              opset_imports=[helper.make_opsetid("", 23)])
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    return ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def load(words):
    directory, threads, mask = pathlib.Path(words[0]), int(words[1]), " ".join(words[3:])
    if words[2] == "backward" or mask not in ("full", "causal"):
        sys.exit(f"onnxruntime_attention.py: {words[2]} with {mask} is not compared")
    arrays = {name: np.load(directory / f"{name}.npy") for name in "qkv"}
    problem.update(directory=directory, arrays=arrays,
                   session=session({name: list(a.shape) for name, a in arrays.items()}, mask == "causal", threads))


def run():
    problem["out"] = problem["session"].run(None, problem["arrays"])[0]


def save():
    np.save(problem["directory"] / "out.peer.npy", problem["out"])


def main():
    serve({"name": "ONNX Runtime", "version": ort.__version__}, load, run, save)


if __name__ == "__main__":
    main()
