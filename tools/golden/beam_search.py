"""Make tests/golden/beams/cases.json: beam searches of `transformers` on the tiny checkpoints of tests/golden/hf.

A case is {model, ids (the prompt), the options of generate() by our names, sequences, scores}: the n best texts without the prompt
and without the id that ended them, and sequences_scores. The search runs in float64 and once more in float32, and both must give
the same texts, so that no case hangs on rounding. Cases whose beams end, do not end, and end at different lengths are all there: the
script fails when one of these is missing.

Run:  python beam_search.py
Made with torch 2.15.0, transformers 5.24.0.
"""

import json
import pathlib
import random

import torch
from transformers import AutoModelForCausalLM

ROOT = pathlib.Path(__file__).resolve().parents[2] / "tests" / "golden"
OUT = ROOT / "beams"
NAMES = {
    "beams": "num_beams",
    "num_results": "num_return_sequences",
    "length_penalty": "length_penalty",
    "early_stopping": "early_stopping",
    "max_tokens": "max_new_tokens",
    "min_tokens": "min_new_tokens",
    "stop_ids": "eos_token_id",
    "repetition_penalty": "repetition_penalty",
    "no_repeat_ngram": "no_repeat_ngram_size",
}
BASE = dict(beams=4, num_results=4, length_penalty=1.0, early_stopping=False, max_tokens=12)
EOS = [2, 7, 19, 33, 50, 64, 71, 88]


def cases():
    for alpha in (0.0, 0.6, 1.0, 2.0, -1.0):
        for early in (False, True, "never"):
            yield dict(BASE, length_penalty=alpha, early_stopping=early, stop_ids=EOS)
    yield dict(BASE, beams=1, num_results=1, stop_ids=EOS)
    yield dict(BASE, beams=2, num_results=1, stop_ids=EOS)
    yield dict(BASE, beams=7, num_results=5, stop_ids=EOS[:2], max_tokens=20)
    yield dict(BASE, stop_ids=[2])
    yield dict(BASE, stop_ids=EOS, min_tokens=5)
    yield dict(BASE, stop_ids=EOS, repetition_penalty=1.7)
    yield dict(BASE, stop_ids=EOS, no_repeat_ngram=2, max_tokens=20)
    yield dict(BASE, stop_ids=EOS, max_tokens=1)


def search(model, ids, case):
    options = {NAMES[name]: value for name, value in case.items()}
    result = model.generate(
        torch.tensor([ids]), do_sample=False, pad_token_id=0, return_dict_in_generate=True, output_scores=True, **options
    )
    texts = []
    for row in result.sequences[:, len(ids) :].tolist():
        end = next((i for i, id in enumerate(row) if id in case["stop_ids"]), len(row))
        texts.append(row[:end])
    return texts, result.sequences_scores.tolist() if case["beams"] > 1 else None


def main():
    OUT.mkdir(exist_ok=True)
    entries, lengths = [], set()
    for name in ("gpt2", "llama"):
        single = AutoModelForCausalLM.from_pretrained(ROOT / "hf" / name, dtype=torch.float32).eval()
        double = AutoModelForCausalLM.from_pretrained(ROOT / "hf" / name, dtype=torch.float64).eval()
        rng = random.Random(name)
        for case in cases():
            for _ in range(10):
                ids = [rng.randrange(3, 96) for _ in range(rng.randrange(1, 9))]
                texts, scores = search(double, ids, case)
                if texts == search(single, ids, case)[0]:
                    break
            else:
                raise SystemExit(f"{name}: {case} is never the same in float32")
            print(name, case, ids, flush=True)
            lengths |= {len(text) for text in texts}
            entries.append(dict(model=name, ids=ids, **case, sequences=texts, scores=scores))
    assert len(lengths) > 8, lengths
    assert any(len({len(t) for t in e["sequences"]}) > 2 for e in entries)
    lines = ",\n".join(json.dumps(entry) for entry in entries)
    (OUT / "cases.json").write_text(f"[\n{lines}\n]\n")
    print(len(entries), "cases, lengths", sorted(lengths))


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
