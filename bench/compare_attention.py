#!/usr/bin/env python3
"""Runs the problems of problems/attention.json through this library, PyTorch and ggml, and prints rates and ratios.

All programs get the same arrays and stay loaded; they answer in turn, so that the measurements that a ratio is made of are
next to each other. Their results are compared before anything is timed. See bench/README.md.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

import numpy as np

from compare_models import Program

BENCH = pathlib.Path(__file__).resolve().parent
PEERS = {"pytorch": ("import torch", "peers/pytorch_attention.py", 2e-5), "ggml": ("import llama_cpp", "peers/ggml_attention.py", 4e-3),
         "onnxruntime": ("import onnx, onnxruntime", "peers/onnxruntime_attention.py", 2e-5)}

# Both round the operands and the weights to bf16, each in its own order.
BF16_TOLERANCE = 2e-2


def start_peers(python):
    started = {}
    for name, (needs, script, _) in PEERS.items():
        if subprocess.run([python, "-c", needs], capture_output=True, check=False).returncode == 0:
            started[name] = Program([python, str(BENCH / script)])
            print(f"{name}: {started[name].about}")
        else:
            print(f"skipped: {name} ({python}: '{needs}' fails; see bench/README.md)")
    return started


def make_arrays(directory, problem):
    batch, heads, length, dim = problem["shape"]
    generator = np.random.default_rng(1)
    for name in ("q", "k", "v", "dout"):
        np.save(directory / f"{name}.npy", generator.standard_normal((batch, heads, length, dim), dtype=np.float32))


def verify(directory, problem, ours, peer, name):
    """Ends the program when the two disagree: their times would not be of the same work."""
    ours.ask("save")
    peer.ask("save")
    for array in ("out", "dq", "dk", "dv") if problem.get("pass") == "backward" else ("out",):
        mine, theirs = np.load(directory / f"{array}.npy"), np.load(directory / f"{array}.peer.npy")
        error = np.abs(mine - theirs).max() / np.abs(theirs).max()
        if not error <= (BF16_TOLERANCE if problem.get("pass") == "bf16" else PEERS[name][2]):
            sys.exit(f"compare_attention.py: {problem['name']}: {array} differs from {name} by {error:.2e} of the largest")


def verdict(ratio, goal):
    if goal is None:
        return ""
    must, target = goal
    return f" ({must} -> {target}: {'target' if ratio >= target else 'must' if ratio >= must else 'NOT REACHED'})"


def useful_flops(problem):
    batch, heads, n, dim = problem["shape"]
    pairs = n * n if problem["mask"] == "full" else n * (n + 1) // 2
    products = 2 + 5 if problem.get("pass") == "backward" else 2
    return 2.0 * dim * products * batch * heads * pairs


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True, help="path of attention_serve_bench")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--only", default="", help="problems whose name has this text")
    parser.add_argument("--json", help="write the figures to this file")
    arguments = parser.parse_args()
    if "OPENBLAS_CORETYPE" in os.environ:
        sys.exit("compare_attention.py: OPENBLAS_CORETYPE is set, which holds peers back: unset it")

    ours = Program([arguments.program])
    print(f"regard: {ours.about}")
    peers = start_peers(os.environ.get("PEER_PYTHON", "python3"))
    figures = []
    print("| problem | threads | GF/s (spread) | share of peak |" + "".join(f" {p} GF/s | ratio (must -> target) |" for p in peers))
    print("| --- | --- | --- | --- |" + " --- | --- |" * len(peers))
    for problem in json.loads((BENCH / "problems/attention.json").read_text()):
        if arguments.only not in problem["name"]:
            continue
        peak = ours.about["bf16_gflops" if problem.get("pass") == "bf16" else "fma_gflops"]
        if peak == 0:
            print(f"| {problem['name']} | skipped: this machine has no bf16 dot products |", flush=True)
            continue
        with tempfile.TemporaryDirectory() as name:
            directory = pathlib.Path(name)
            make_arrays(directory, problem)
            request = f"load {directory} {problem['threads']} {problem.get('pass', 'forward')} {problem['mask']}"
            # A problem names its rivals by their goals; without a goal there is nothing to reach, but it is still measured.
            rivals = {p: program for p, program in peers.items() if p in problem["goals"]}
            for program in (ours, *rivals.values()):
                program.ask(request)
            for p, program in rivals.items():
                verify(directory, problem, ours, program, p)
            times = {p: [] for p in ("regard", *rivals)}
            for number in range(arguments.rounds):
                turn = list({"regard": ours, **rivals}.items())
                for p, program in turn if number % 2 == 0 else reversed(turn):
                    times[p].append(program.ask("run")["seconds"])
        work = useful_flops(problem) * 1e-9
        middle = statistics.median(times["regard"])
        low, _, high = statistics.quantiles(times["regard"], n=4)
        share = work / middle / peak / problem["threads"]
        row = f"| {problem['name']} | {problem['threads']} | {work / middle:.1f} ({(high - low) / middle:.3f}) | {share:.3f} |"
        figure = {"problem": problem, "seconds": times, "useful_gflop": work}
        for p in peers:
            if p not in rivals:
                row += " | |"
                continue
            ratio = statistics.median(b / a for a, b in zip(times["regard"], times[p]))
            row += f" {work / statistics.median(times[p]):.1f} | {ratio:.2f}{verdict(ratio, problem['goals'][p])} |"
            figure.setdefault("ratios", {})[p] = ratio
        print(row, flush=True)
        figures.append(figure)
    for program in (ours, *peers.values()):
        program.end()
    if arguments.json:
        pathlib.Path(arguments.json).write_text(json.dumps({"regard": ours.about, "peers": {p: x.about for p, x in peers.items()},
                                                            "figures": figures}, indent=1) + "\n")


if __name__ == "__main__":
    main()
