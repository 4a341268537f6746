#!/usr/bin/env python3
"""Runs model_bench and llama.cpp on one file, figure by figure in turn, and prints both rates and their ratio.

Both programs stay loaded and answer one request at a time (`--serve`), so that the two measurements of a pair are seconds
apart and a slow moment of the machine hits both. The order within a pair changes from round to round. See bench/README.md.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys

BENCH = pathlib.Path(__file__).resolve().parent
FIGURES = (("decode", 128), ("prefill", 512), ("decode", 2048))
# (model, figure, tokens, threads): ratio to llama.cpp that must be reached, and the one aimed at.
GOALS = {
    ("smollm2", "decode", 128, 1): (1.7, 2.2), ("smollm2", "decode", 128, 2): (2.0, 2.6),
    ("smollm2", "prefill", 512, 1): (2.4, 2.8), ("smollm2", "prefill", 512, 2): (2.6, 3.1),
    ("gemma3", "decode", 128, 1): (1.3, 1.5), ("gemma3", "decode", 128, 2): (1.5, 1.8),
    ("gemma3", "prefill", 512, 1): (1.2, 1.35), ("gemma3", "prefill", 512, 2): (1.2, 1.35),
}
LONG_GOAL = (1.2, 1.2)  # decode at context 2048, every model and number of threads
TEXT = "The three primary colours are"


class Program:
    """A program that answers requests line by line."""

    def __init__(self, command):
        environment = {k: v for k, v in os.environ.items() if k != "OPENBLAS_CORETYPE"}
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
        self.about = self.read()

    def read(self):
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"compare_models.py: {self.process.args[0]} ended with status {self.process.wait()}")
        return json.loads(line)

    def ask(self, request):
        print(request, file=self.process.stdin, flush=True)
        return self.read()

    def end(self):
        self.process.stdin.close()
        self.process.wait()


def start_peer(model):
    python = os.environ.get("PEER_PYTHON", "python3")
    try:
        known = subprocess.run([python, "-c", "import llama_cpp"], capture_output=True, check=False).returncode == 0
    except OSError:
        known = False
    if not known:
        print(f"skipped: llama.cpp ({python} has no llama-cpp-python; install it with pip and set PEER_PYTHON)")
        return None
    return Program([python, str(BENCH / "peers/llama_cpp.py"), model, "--serve"])


def verify(ours, peer):
    """The two must read the text alike and find the same next token, else they do not run the same model."""
    mine = ours.ask(f"answer {TEXT}")
    if peer is not None and mine != (theirs := peer.ask(f"answer {TEXT}")):
        sys.exit(f"compare_models.py: wrong answer to '{TEXT}': {mine}, the peer says {theirs}")


def pairs(ours, peer, figure, tokens, threads, rounds):
    """Rates of `rounds` pairs, after one that is not counted."""
    request, result = f"{figure} {tokens} {threads}", []
    for number in range(rounds + 1):
        order = (ours, peer) if number % 2 == 0 else (peer, ours)
        rates = {program: program.ask(request) for program in order if program is not None}
        result.append((rates[ours], rates.get(peer)))
    return result[1:]


def middle(values):
    return f"{statistics.median(values):7.1f} ({min(values):.0f}-{max(values):.0f})"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", help="the name of the model in the table of goals")
    parser.add_argument("model", help="a GGUF file")
    parser.add_argument("--program", required=True, help="path of model_bench")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--only", choices=("prefill", "decode"))
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall",
                        help="cpu: rates per second of the process's own CPU time, for one thread on a machine that others use")
    arguments = parser.parse_args()
    key = "per_second" if arguments.clock == "wall" else "cpu_per_second"

    subprocess.run([arguments.program, "--ceilings"], check=True)
    ours = Program([arguments.program, arguments.model, "--serve"])
    peer = start_peer(arguments.model)
    verify(ours, peer)
    print(f"regard ({ours.about['isa']})" + (f" and {peer.about['version']} ({peer.about['features']})" if peer is not None else ""))
    print(f"tokens/s of {arguments.clock} time: median (lowest-highest) of {arguments.rounds} rounds; ratios pair by pair")
    for figure, tokens in FIGURES:
        for threads in map(int, arguments.threads.split(",")):
            if arguments.only not in (None, figure):
                continue
            rates = pairs(ours, peer, figure, tokens, threads, arguments.rounds)
            line = f"{figure:7} {tokens:4}  {threads}T  ours {middle([a[key] for a, _ in rates])}"
            if peer is not None:
                ratios = [a[key] / b[key] for a, b in rates]
                must, target = GOALS.get((arguments.name, figure, tokens, threads), LONG_GOAL if tokens == 2048 else (None, None))
                ratio = statistics.median(ratios)
                line += f"  theirs {middle([b[key] for _, b in rates])}  ratio {ratio:.2f} ({min(ratios):.2f}-{max(ratios):.2f})"
                if must is not None:
                    word = "target reached" if ratio >= target else "reached" if ratio >= must else "NOT REACHED"
                    line += f"  goal {must} -> {target}: {word}"
            print(line, flush=True)
    ours.end()
    if peer is not None:
        peer.end()


if __name__ == "__main__":
    main()
