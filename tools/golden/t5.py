"""Make tests/golden/hf/{t5,t5_gated} and tests/golden/t5/cases.json: tiny T5 checkpoints with random weights, and what `transformers`
computes with them.

t5 has a tied head and relu, t5_gated a head of its own, gated gelu and another number of layers on each side. Beside config.json and the
weights (bfloat16) stand
  source.npy   int64 [n]          what the encoder reads, longer than relative_attention_max_distance
  ids.npy      int64 [m]          what the decoder is fed, the start id in front
  hidden.npy   float64 [n, d_model]   the encoder's last hidden states
  logits.npy   float64 [m, vocab]
computed in true float64 (float64.py) from the values in the weight file. cases.json has greedy texts, beam searches and their scores in the layout of
beam_search.py, with `source` in place of `ids`; each is computed in float64 and in float32 and must be the same.

Run:  python t5.py
Made with torch 2.15.0, transformers 5.24.0, safetensors 0.8.0, numpy 2.x.
"""

import json
import pathlib
import random
import shutil
import zlib

import numpy as np
import torch
from safetensors.torch import load_file
from transformers import T5Config, T5ForConditionalGeneration

from beam_search import NAMES
from float64 import Float64Mode

ROOT = pathlib.Path(__file__).resolve().parents[2] / "tests" / "golden"
COMMON = dict(
    vocab_size=80,
    d_model=24,
    d_kv=6,
    d_ff=32,
    num_heads=3,
    relative_attention_num_buckets=8,
    relative_attention_max_distance=20,
    decoder_start_token_id=0,
    pad_token_id=0,
    eos_token_id=1,
    dropout_rate=0.0,
)
CHECKPOINTS = {
    "t5": dict(COMMON, num_layers=2, feed_forward_proj="relu", tie_word_embeddings=True),
    "t5_gated": dict(COMMON, num_layers=2, num_decoder_layers=1, feed_forward_proj="gated-gelu", tie_word_embeddings=False),
}
STOPS = [1, 9, 23, 40, 66]
BASE = dict(beams=4, num_results=3, length_penalty=1.0, early_stopping=False, max_tokens=14, stop_ids=STOPS)


def cases():
    yield dict(BASE, beams=1, num_results=1)
    for alpha in (0.0, 1.0, 2.0, -0.5):
        for early in (False, True, "never"):
            yield dict(BASE, length_penalty=alpha, early_stopping=early)
    yield dict(BASE, stop_ids=[1], num_results=4)
    yield dict(BASE, min_tokens=6, repetition_penalty=1.5)


def make(name, fields):
    """A model whose values all are those of its bfloat16 file, in float64."""
    directory = ROOT / "hf" / name
    shutil.rmtree(directory, ignore_errors=True)
    torch.manual_seed(zlib.crc32(name.encode()))
    model = T5ForConditionalGeneration(T5Config(**fields))
    with torch.no_grad():
        for parameter in model.parameters():
            spread = 0.3 if parameter.dim() > 1 else 0.2
            parameter.copy_(torch.randn_like(parameter) * spread + (0 if parameter.dim() > 1 else 1))
        if not fields["tie_word_embeddings"]:
            model.lm_head.weight = torch.nn.Parameter(torch.randn(fields["vocab_size"], fields["d_model"]) * 0.4)
    model.to(torch.bfloat16).save_pretrained(directory)
    (directory / "generation_config.json").unlink(missing_ok=True)
    names = load_file(directory / "model.safetensors").keys()
    assert ("lm_head.weight" in names) != fields["tie_word_embeddings"], sorted(names)
    return directory, model.eval()


def search(model, source, case):
    options = {NAMES[key]: value for key, value in case.items()}
    result = model.generate(
        torch.tensor([source]), do_sample=False, return_dict_in_generate=True, output_scores=True, **options
    )
    texts = []
    for row in result.sequences[:, 1:].tolist():
        end = next((i for i, id in enumerate(row) if id in case["stop_ids"]), len(row))
        texts.append(row[:end])
    return texts, result.sequences_scores.tolist() if case["beams"] > 1 else None


def main():
    entries = []
    for name, fields in CHECKPOINTS.items():
        directory, model = make(name, fields)
        rng = random.Random(name)
        source = [rng.randrange(2, 80) for _ in range(33)]
        ids = [0] + [rng.randrange(2, 80) for _ in range(27)]
        single = model.to(torch.float32)
        plain = single(input_ids=torch.tensor([source]), decoder_input_ids=torch.tensor([ids])).logits[0].detach().numpy()
        double = model.to(torch.float64)
        with Float64Mode(), torch.no_grad():
            result = double(input_ids=torch.tensor([source]), decoder_input_ids=torch.tensor([ids]))
        hidden, logits = result.encoder_last_hidden_state[0].numpy(), result.logits[0].numpy()
        assert np.abs(plain - logits).max() < 1e-4 * np.abs(logits).max()
        np.save(directory / "source.npy", np.array(source))
        np.save(directory / "ids.npy", np.array(ids))
        np.save(directory / "hidden.npy", hidden)
        np.save(directory / "logits.npy", logits)
        for case in cases():
            for _ in range(10):
                source = [rng.randrange(2, 80) for _ in range(rng.randrange(1, 12))]
                texts, scores = search(model.to(torch.float64), source, case)
                if texts == search(model.to(torch.float32), source, case)[0]:
                    break
            else:
                raise SystemExit(f"{name}: {case} is never the same in float32")
            entries.append(dict(model=name, source=source, **case, sequences=texts, scores=scores))
    assert len({len(text) for entry in entries for text in entry["sequences"]}) > 4
    (ROOT / "t5").mkdir(exist_ok=True)
    lines = ",\n".join(json.dumps(entry) for entry in entries)
    (ROOT / "t5" / "cases.json").write_text(f"[\n{lines}\n]\n")
    print(len(entries), "cases", sorted({len(text) for entry in entries for text in entry["sequences"]}))


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
