#!/usr/bin/env python3
"""Distributions after the logits processors of Hugging Face transformers: tests/golden/sampling/cases.jsonl.

Each line has raw logits, a history (prompt and generated ids), the options, and the probabilities that are left, in the
order in which transformers' generate() applies its processors: bias, repetition penalty, n-gram block, temperature, top-k,
top-p, min-p, typical. Frequency and presence penalties do not exist there; they are applied here right after the repetition
penalty, by their formula. Seeded. Made with transformers 5.24, torch 2.x. Run: python tools/golden/sampling.py
"""
import json
import pathlib

import torch
from transformers.generation import logits_process as lp

OUT = pathlib.Path(__file__).resolve().parent.parent.parent / "tests/golden/sampling"


def distribution(logits, history, prompt_size, o):
    ids = torch.tensor([history])
    scores = torch.tensor([logits], dtype=torch.float32)
    if o.get("logit_bias"):
        for i, b in o["logit_bias"]:
            scores[0, i] += b
    if o.get("repetition_penalty", 1.0) != 1.0:
        scores = lp.RepetitionPenaltyLogitsProcessor(o["repetition_penalty"])(ids, scores)
    for i in set(history[prompt_size:]):
        scores[0, i] -= o.get("frequency_penalty", 0.0) * history[prompt_size:].count(i) + o.get("presence_penalty", 0.0)
    if o.get("no_repeat_ngram"):
        scores = lp.NoRepeatNGramLogitsProcessor(o["no_repeat_ngram"])(ids, scores)
    scores = lp.TemperatureLogitsWarper(o["temperature"])(ids, scores)
    if o.get("top_k"):
        scores = lp.TopKLogitsWarper(o["top_k"])(ids, scores)
    if o.get("top_p", 1.0) < 1:
        scores = lp.TopPLogitsWarper(o["top_p"])(ids, scores)
    if o.get("min_p", 0.0) > 0:
        scores = lp.MinPLogitsWarper(o["min_p"])(ids, scores)
    if o.get("typical_p", 1.0) < 1:
        scores = lp.TypicalLogitsWarper(o["typical_p"])(ids, scores)
    return torch.softmax(scores[0].double(), -1).tolist()


def main():
    generator = torch.Generator().manual_seed(20261130)
    options = [
        {"temperature": 1.0}, {"temperature": 0.3}, {"temperature": 2.5}, {"temperature": 1.0, "top_k": 5}, {"temperature": 1.0, "top_k": 1},
        {"temperature": 1.0, "top_p": 0.9}, {"temperature": 1.0, "top_p": 0.05}, {"temperature": 1.0, "min_p": 0.1}, {"temperature": 1.0, "typical_p": 0.6},
        {"temperature": 1.0, "typical_p": 0.95}, {"temperature": 0.8, "top_k": 12, "top_p": 0.8, "min_p": 0.05, "typical_p": 0.9},
        {"temperature": 1.0, "repetition_penalty": 1.3}, {"temperature": 1.0, "repetition_penalty": 0.7},
        {"temperature": 1.0, "no_repeat_ngram": 1}, {"temperature": 1.0, "no_repeat_ngram": 2}, {"temperature": 1.0, "no_repeat_ngram": 3},
        {"temperature": 1.0, "frequency_penalty": 0.5, "presence_penalty": 0.25}, {"temperature": 1.0, "logit_bias": [[3, 4.0], [7, -2.0]]},
        {"temperature": 0.7, "repetition_penalty": 1.2, "frequency_penalty": 0.1, "no_repeat_ngram": 2, "top_k": 20, "top_p": 0.95, "logit_bias": [[1, 1.5]]},
    ]
    OUT.mkdir(parents=True, exist_ok=True)
    with open(OUT / "cases.jsonl", "w", encoding="utf-8") as out:
        for number, o in enumerate(options * 3):
            vocab = [24, 40, 61][number // len(options)]
            logits = (torch.randn(vocab, generator=generator) * [1.0, 3.0, 6.0][number // len(options)]).tolist()
            history = torch.randint(0, vocab, (12,), generator=generator).tolist()
            history = history[:6] + history[2:6] + history[6:] + history[4:6]
            case = {"logits": logits, "history": history, "prompt_size": 5, "options": o}
            case["probs"] = distribution(logits, history, 5, o)
            out.write(json.dumps(case) + "\n")


if __name__ == "__main__":
    main()
