"""The loop of the attention peers: the requests of attention_serve_bench, answered with one line of JSON each."""
import json
import os
import sys
import time


def say(answer):
    print(json.dumps(answer), flush=True)


def serve(about, load, run, save):
    """Says what the peer is, then answers `load ...`, `run` and `save` until the input ends."""
    say(about)
    for line in sys.stdin:
        words = line.split()
        if words[0] == "load":
            load(words[1:])
            run()
            say({"loaded": True})
        elif words[0] == "run":
            begin = time.perf_counter()
            run()
            say({"seconds": time.perf_counter() - begin})
        elif words[0] == "save":
            save()
            say({"saved": True})
        else:
            sys.exit(f"{os.path.basename(sys.argv[0])}: expected load, run or save, got {line!r}")
