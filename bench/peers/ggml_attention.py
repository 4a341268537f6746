#!/usr/bin/env python3
"""Attention in ggml (ggml_flash_attn_ext, the kernel of llama.cpp) on the requests of attention_serve_bench; see bench/README.md.

Needs a Python that has llama-cpp-python. Keys and values are f16, as llama.cpp keeps them; the causal mask is its f16 tensor.
"""
import ctypes
import os
import pathlib
import sys

import numpy as np

from serve_requests import serve

# The directory of this script has a llama_cpp.py of its own.
sys.path = [p for p in sys.path if os.path.abspath(p or ".") != os.path.dirname(os.path.abspath(__file__))]
try:
    import llama_cpp
except ImportError as error:
    sys.exit(f"ggml_attention.py: this Python has no llama-cpp-python: {error}")

LIBRARIES = [ctypes.CDLL(str(path)) for name in ("libggml-base.so", "libggml-cpu.so", "libggml.so")
             for path in (pathlib.Path(llama_cpp.__file__).parent / "lib").glob(name)]
F32, F16 = 0, 1
Pointer, Size = ctypes.c_void_p, ctypes.c_size_t


class InitParams(ctypes.Structure):
    _fields_ = [("mem_size", Size), ("mem_buffer", Pointer), ("no_alloc", ctypes.c_bool)]


def function(name, result, *arguments):
    for library in LIBRARIES:
        if hasattr(library, name):
            f = getattr(library, name)
            f.restype, f.argtypes = result, arguments
            return f
    sys.exit(f"ggml_attention.py: {name} is in none of ggml's libraries")


ggml_init = function("ggml_init", Pointer, InitParams)
ggml_free = function("ggml_free", None, Pointer)
new_tensor = function("ggml_new_tensor", Pointer, Pointer, ctypes.c_int, ctypes.c_int, ctypes.POINTER(ctypes.c_int64))
get_data = function("ggml_get_data", Pointer, Pointer)
flash = function("ggml_flash_attn_ext", Pointer, Pointer, Pointer, Pointer, Pointer, Pointer, ctypes.c_float, ctypes.c_float,
                 ctypes.c_float)
new_graph = function("ggml_new_graph", Pointer, Pointer)
expand = function("ggml_build_forward_expand", None, Pointer, Pointer)
compute = function("ggml_graph_compute_with_ctx", ctypes.c_int, Pointer, Pointer, ctypes.c_int)
function("ggml_cpu_init", None)()

problem = {}


def tensor(context, values, kind):
    """A tensor of ggml with these values; ggml counts axes from the last one."""
    made = new_tensor(context, kind, values.ndim, (ctypes.c_int64 * values.ndim)(*reversed(values.shape)))
    data = np.ascontiguousarray(values, dtype=np.float16 if kind == F16 else np.float32)
    ctypes.memmove(get_data(made), data.ctypes.data, data.nbytes)
    return made


def load(words):
    directory, threads, mask = pathlib.Path(words[0]), int(words[1]), " ".join(words[3:])
    if words[2] == "backward" or mask not in ("full", "causal"):
        sys.exit(f"ggml_attention.py: {words[2]} with {mask} is not compared")
    if problem:
        ggml_free(problem["context"])
    q, k, v = (np.load(directory / f"{name}.npy") for name in "qkv")
    context = ggml_init(InitParams(6 * (q.nbytes + k.nbytes + v.nbytes) + 4 * q.shape[2] * k.shape[2] + (64 << 20), None, False))
    m = None
    if mask == "causal":
        seen = np.tril(np.ones((q.shape[2], k.shape[2]), dtype=bool))
        m = tensor(context, np.where(seen, 0, -np.inf)[None, None], F16)
    out = flash(context, tensor(context, q, F32), tensor(context, k, F16), tensor(context, v, F16), m, q.shape[3] ** -0.5, 0, 0)
    graph = new_graph(context)
    expand(graph, out)
    problem.update(directory=directory, context=context, graph=graph, out=out, threads=threads,
                   shape=(q.shape[0], q.shape[2], q.shape[1], v.shape[3]))


def run():
    if compute(problem["context"], problem["graph"], problem["threads"]) != 0:
        sys.exit("ggml_attention.py: ggml failed")


def save():
    shape = problem["shape"]
    values = np.ctypeslib.as_array((ctypes.c_float * int(np.prod(shape))).from_address(get_data(problem["out"]))).reshape(shape)
    np.save(problem["directory"] / "out.peer.npy", values.transpose(0, 2, 1, 3))


def main():
    features = llama_cpp.llama_print_system_info().decode()
    if "AVX512 = 1" not in features and "avx512f" in pathlib.Path("/proc/cpuinfo").read_text():
        sys.exit(f"ggml_attention.py: ggml was built without AVX-512 ({features}); reinstall llama-cpp-python from source")
    serve({"name": "ggml", "version": f"llama-cpp-python {llama_cpp.__version__}", "features": features}, load, run, save)


if __name__ == "__main__":
    main()
