#!/usr/bin/env python3
"""Measures a GGUF model in llama.cpp, figure by figure, as model_bench does it with the library of this project.

Needs a Python that has llama-cpp-python (PyPI). The low-level API is used, with the library's own defaults but for the context
size, the number of threads and mapping the file; a windowed cache is kept at its window (`swa_full` off), as llama-cli has it.

    llama_cpp.py MODEL [--threads 1,2] [--rounds N] [--only prefill|decode]      measures everything, prints JSON lines
    llama_cpp.py MODEL --serve                                                   reads requests, see bench/README.md
"""
import argparse
import ctypes
import json
import os
import statistics
import sys
import time

# The directory of this script has this script's own name in it, which is the name of the package.
sys.path = [p for p in sys.path if os.path.abspath(p or ".") != os.path.dirname(os.path.abspath(__file__))]
try:
    import llama_cpp as ll
except ImportError as error:
    sys.exit(f"llama_cpp.py: this Python has no llama-cpp-python: {error}")

PREFILL_TOKENS = 512
DECODE_STEPS = 64
FIGURES = (("prefill", PREFILL_TOKENS), ("decode", 128), ("decode", 2048))
silent = ll.llama_log_callback(lambda level, text, data: None)  # the library keeps no reference of its own


def workload(begin, end, vocab):
    """Ids that any model has; which ones they are does not matter for the time."""
    return [(7919 * i + 13) % vocab for i in range(begin, end)]


class Context:
    """One context and what it holds: `known` tokens of the workload."""

    def __init__(self, model, tokens):
        params = ll.llama_context_default_params()
        params.n_ctx = -(-tokens // 256) * 256
        params.n_batch = params.n_ubatch = PREFILL_TOKENS
        if hasattr(params, "swa_full"):
            params.swa_full = False
        self.handle = ll.llama_init_from_model(model, params)
        if not self.handle:
            sys.exit("llama_cpp.py: llama.cpp made no context")
        self.memory = ll.llama_get_memory(self.handle)
        self.batch = ll.llama_batch_init(PREFILL_TOKENS, 0, 1)
        self.known = 0

    def clear(self):
        ll.llama_memory_clear(self.memory, False)
        self.known = 0

    def truncate(self, tokens):
        if not ll.llama_memory_seq_rm(self.memory, 0, tokens, -1):
            sys.exit(f"llama_cpp.py: llama.cpp cannot go back to {tokens} tokens")
        self.known = tokens

    def feed(self, ids):
        """At most PREFILL_TOKENS ids in one batch; returns the logits after the last one."""
        batch = self.batch
        for i, token in enumerate(ids):
            batch.token[i] = token
            batch.pos[i] = self.known + i
            batch.n_seq_id[i] = 1
            batch.seq_id[i][0] = 0
            batch.logits[i] = i + 1 == len(ids)
        batch.n_tokens = len(ids)
        if ll.llama_decode(self.handle, batch) != 0:
            sys.exit("llama_cpp.py: llama_decode failed")
        self.known += len(ids)
        return ll.llama_get_logits_ith(self.handle, -1)  # waits for the result


class Peer:
    def __init__(self, path):
        ll.llama_log_set(silent, None)
        ll.llama_backend_init()
        params = ll.llama_model_default_params()
        if hasattr(params, "use_mmap"):
            params.use_mmap = True
        else:
            params.load_mode = ll.LLAMA_LOAD_MODE_MMAP
        self.model = ll.llama_model_load_from_file(path.encode(), params)
        if not self.model:
            sys.exit(f"llama_cpp.py: llama.cpp cannot load {path}")
        self.vocab = ll.llama_model_get_vocab(self.model)
        self.vocab_size = ll.llama_vocab_n_tokens(self.vocab)
        self.contexts = {}

    def about(self):
        return {"program": "llama.cpp", "version": f"llama-cpp-python {ll.__version__}",
                "features": ll.llama_print_system_info().decode().strip(" |\n")}

    def context(self, key, tokens):
        """The context of a figure, made and filled when it is first asked for."""
        if key not in self.contexts:
            context = self.contexts[key] = Context(self.model, tokens + DECODE_STEPS)
            ll.llama_set_n_threads(context.handle, 1, 1)  # nobody measures this part
            while context.known < tokens:
                context.feed(workload(context.known, min(tokens, context.known + PREFILL_TOKENS), self.vocab_size))
            self.steps(context, 4)  # warm-up of the one-row kernels
        return self.contexts[key]

    def steps(self, context, count):
        for _ in range(count):
            context.feed(workload(context.known, context.known + 1, self.vocab_size))

    def measure(self, figure, tokens, threads):
        context = self.context((figure, tokens), tokens)
        ll.llama_set_n_threads(context.handle, threads, threads)
        if figure == "prefill":
            context.clear()
            work, count = lambda: context.feed(workload(0, tokens, self.vocab_size)), tokens
        else:
            context.truncate(tokens)
            work, count = lambda: self.steps(context, DECODE_STEPS), DECODE_STEPS
        cpu, wall = time.process_time(), time.perf_counter()
        work()
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        return {"figure": figure, "tokens": tokens, "threads": threads, "per_second": count / wall, "cpu_per_second": count / cpu}

    def answer(self, text):
        """The ids of a text and the most likely next one."""
        data = text.encode()
        ids = (ll.llama_token * (len(data) + 8))()
        count = ll.llama_tokenize(self.vocab, data, len(data), ids, len(ids), True, False)
        context = Context(self.model, count)
        logits = context.feed(list(ids[:count]))
        best = max(range(self.vocab_size), key=lambda i: logits[i])
        ll.llama_free(context.handle)
        return {"ids": list(ids[:count]), "next": best}


def serve(peer):
    say(peer.about())
    for line in sys.stdin:
        words = line.rstrip("\n").split(" ")
        if words[0] == "answer":
            say(peer.answer(line.rstrip("\n")[len("answer "):]))
        else:
            say(peer.measure(words[0], int(words[1]), int(words[2])))


def say(record):
    print(json.dumps(record), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", choices=("prefill", "decode"))
    parser.add_argument("--serve", action="store_true")
    arguments = parser.parse_args()
    peer = Peer(arguments.model)
    if arguments.serve:
        return serve(peer)
    say(peer.about())
    for figure, tokens in FIGURES:
        if arguments.only not in (None, figure):
            continue
        for threads in map(int, arguments.threads.split(",")):
            rates = [peer.measure(figure, tokens, threads)["per_second"] for _ in range(arguments.rounds)]
            say({"figure": figure, "tokens": tokens, "threads": threads, "per_second": statistics.median(rates),
                 "lowest": min(rates), "highest": max(rates), "rounds": len(rates)})


if __name__ == "__main__":
    main()
