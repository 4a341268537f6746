#!/usr/bin/env python3
"""Runs the problems of problems/train.json through this library and PyTorch, eager and compiled, and prints times of a step and ratios.

All programs begin with the same weights and see the same tokens; they stay loaded and answer in turn, so that the measurements that a ratio is
made of are next to each other. The losses of the first three steps, which the gradients and the optimiser of those before decide, are compared
before anything is timed. See bench/README.md.
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

from compare_attention import verdict
from compare_models import Program

BENCH = pathlib.Path(__file__).resolve().parent
VOCABULARY = {"baby": 65, "small": 65, "smollm2": 49152}
CHECKED_STEPS = 3
# Both round; in bf16 each where it likes.
TOLERANCE = {"f32": 1e-4, "bf16": 1e-2}


def start_peers(python):
    if subprocess.run([python, "-c", "import torch, safetensors"], capture_output=True, check=False).returncode != 0:
        print(f"skipped: PyTorch ({python}: 'import torch, safetensors' fails; see bench/README.md)")
        return {}
    peers = {name: Program([python, str(BENCH / "peers/pytorch_train.py"), name]) for name in ("eager", "compiled")}
    for name, program in peers.items():
        print(f"{name}: {program.about}")
    return peers


def make_tokens(directory, problem):
    """Ids that a model can learn something of: each is often followed by the same one."""
    generator = np.random.default_rng(1)
    shape = (problem["batch"], problem["seq"] + 1)
    ids = generator.integers(0, VOCABULARY[problem["model"]], shape)
    for t in range(1, shape[1]):
        follows = generator.random(shape[0]) < 0.5
        ids[follows, t] = (5 * ids[follows, t - 1] + 3) % VOCABULARY[problem["model"]]
    np.save(directory / "tokens.npy", ids.astype(np.float32))  # exact: no vocabulary has 2^24 ids


def verify(problem, ours, theirs, name):
    for number, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        if not abs(a - b) <= TOLERANCE[problem["precision"]] * abs(b):
            sys.exit(f"compare_train.py: {problem['name']}: the loss of step {number} is {a}, and {b} in PyTorch, {name}")


def measure(programs, problem, threads, directory, rounds):
    loaded = {name: program.ask(f"load {directory} {problem['precision']} {threads}") for name, program in programs.items()}
    operations = loaded["regard"]["operations"]
    losses = {name: program.ask(f"run {CHECKED_STEPS}")["losses"] for name, program in programs.items()}
    for name in programs:
        verify(problem, losses["regard"], losses[name], name)
    times = {name: [] for name in programs}
    for number in range(rounds):
        turn = list(programs.items())
        for name, program in turn if number % 2 == 0 else reversed(turn):
            times[name].append(program.ask(f"run {problem['steps']}")["seconds"])
    return times, operations, losses


def milliseconds(times):
    low, _, high = statistics.quantiles(times, n=4)
    return f"{1e3 * statistics.median(times):.1f} ({(high - low) / statistics.median(times):.3f})"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True, help="path of train_serve_bench")
    parser.add_argument("--smollm2", help="path of its GGUF file; without it that problem is skipped")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--only", default="", help="problems whose name has this text")
    parser.add_argument("--json", help="write the figures to this file")
    arguments = parser.parse_args()
    ours = Program([arguments.program])
    print(f"regard: {ours.about}")
    peers = start_peers(os.environ.get("PEER_PYTHON", "python3"))
    figures = []
    print("| problem | threads | ms a step (spread) | share of peak |" + "".join(f" {p} ms | ratio (must -> target) |" for p in peers) + " loss of step 0 |")
    print("| --- | --- | --- | --- |" + " --- | --- |" * len(peers) + " --- |")
    for problem in json.loads((BENCH / "problems/train.json").read_text()):
        if arguments.only not in problem["name"]:
            continue
        peak = ours.about["bf16_gflops" if problem["precision"] == "bf16" else "fma_gflops"]
        if peak == 0:
            print(f"| {problem['name']} | skipped: this machine has no bf16 dot products |", flush=True)
            continue
        if problem["model"] == "smollm2" and not arguments.smollm2:
            print(f"| {problem['name']} | skipped: its file is not there |", flush=True)
            continue
        with tempfile.TemporaryDirectory() as name:
            directory = pathlib.Path(name)
            make_tokens(directory, problem)
            source = arguments.smollm2 if problem["model"] == "smollm2" else problem["model"]
            ours.ask(f"save {directory} {source} {problem['seq']}")
            for threads in map(int, arguments.threads.split(",")):
                times, operations, losses = measure({"regard": ours, **peers}, problem, threads, directory, arguments.rounds)
                share = operations * 1e-9 / statistics.median(times["regard"]) / peak / threads
                row = f"| {problem['name']} | {threads} | {milliseconds(times['regard'])} | {share:.3f} |"
                figure = {"problem": problem, "threads": threads, "seconds": times, "operations": operations, "losses": losses}
                for p in peers:
                    ratio = statistics.median(b / a for a, b in zip(times["regard"], times[p]))
                    row += f" {milliseconds(times[p])} | {ratio:.2f}{verdict(ratio, problem['goals'].get(p))} |"
                    figure.setdefault("ratios", {})[p] = ratio
                print(f"{row} {losses['regard'][0]:.6f} |", flush=True)
                figures.append(figure)
    for program in (ours, *peers.values()):
        program.end()
    if arguments.json:
        pathlib.Path(arguments.json).write_text(json.dumps({"regard": ours.about, "peers": {p: x.about for p, x in peers.items()}, "figures": figures}, indent=1) + "\n")


if __name__ == "__main__":
    main()
