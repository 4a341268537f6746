"""Make tests/golden/models/{smollm2,gemma3}.json: greedy text and logits of the two example models.

The weights are the dequantised values of the GGUF files (gguf_models.py), the model is that of `transformers`.
For each prompt:
  text, special   the text and whether special tokens in it were parsed; ids come from llama.cpp
                  (Gemma with <bos> in front)
  ids             the prompt as token ids
  greedy          40 greedy ids of the float32 model with its cache; stop tokens are ignored
  margins         best minus second logit at each of the 40 steps, from a float64 pass over prompt + greedy
  top_ids, top_logits   the 64 largest logits after the prompt (float64 pass)
  sampled_logits  the logits after the prompt at the file's `sampled_ids` (256 ids, the same for every prompt)
  max_abs_logit   the largest |logit| after the prompt
The float64 pass is a true one (float64.py); its argmax equals the float32 choice at every step, or the script fails.
The longest prompt is longer than Gemma's window of 512.

Run:  python model_greedy.py SMOLLM2.gguf GEMMA3.gguf       (files from tools/get-model; some minutes, 8 GB of memory)
Made with torch 2.15.0, transformers 5.24.0, gguf 0.19.0, llama-cpp-python 0.3.36.
"""

import gc
import hashlib
import json
import pathlib
import random
import sys

import numpy as np
import torch
from llama_cpp import Llama

import gguf_models
from float64 import Float64Mode

OUT = pathlib.Path(__file__).resolve().parents[2] / "tests" / "golden" / "models"
STEPS = 40

# About 700 tokens of plain text, so that a window of 512 has an outside.
WINDS = "north east south west north-east south-west north east west south north south east west north east".split()
SHIPS = [3, 5, 2, 8, 1, 13, 4, 7, 9, 6, 2, 11, 3, 5, 8, 1]
HOURS = [9, 7, 11, 6, 12, 8, 10, 5, 9, 7, 13, 6, 8, 11, 9, 10]
LONG = "".join(
    f"Day {day}. The keeper of the lighthouse wrote that the wind came from the {wind}, that {ships} ships had passed, "
    f"and that the lamp burned for {hours} hours before the fog rose from the sea. "
    for day, (wind, ships, hours) in enumerate(zip(WINDS, SHIPS, HOURS, strict=True), 1)
)
PLAIN = [
    "The capital of France is",
    "Once upon a time, in a small village by the sea,",
    "def fibonacci(n):\n    if n < 2:\n        return n\n",
    "Water boils at 100 degrees Celsius because",
    "1, 1, 2, 3, 5, 8, 13,",
    "Dear Sir or Madam,\n\nI am writing to",
    "List of colours:\n- red\n- green\n-",
    "Der Himmel ist blau, und das Gras ist",
    "\u6211\u4eec\u4eca\u5929\u53bb",
    "import numpy as np\n\nx = np.zeros((3, 4))\nprint(x.",
    LONG,
]


def chat(user, system="You are a helpful AI assistant named SmolLM, trained by Hugging Face"):
    return f"<|im_start|>system\n{system}<|im_end|>\n<|im_start|>user\n{user}<|im_end|>\n<|im_start|>assistant\n"


PROMPTS = {
    "smollm2": [(text, False) for text in PLAIN]
    + [
        (chat(user), True)
        for user in ("What is gravity?", "Write a short poem about rain.", "Which is larger, 17 or 71? Explain.")
    ],
    "gemma3": [(text, False) for text in PLAIN]
    + [
        (text, False)
        for text in (
            "The theory of relativity says that",
            "Q: What is the largest planet?\nA:",
            "<h1>News</h1>\n<table><tr><td>",
        )
    ],
}


def forward(model, ids, keep):
    with torch.no_grad():
        return model(torch.tensor([ids]), use_cache=False, logits_to_keep=keep).logits[0].numpy()


def greedy(model, ids):
    """40 greedy steps with the library's own cache, in the model's type."""
    out, cache, step = [], None, torch.tensor([ids])
    with torch.no_grad():
        for _ in range(STEPS):
            result = model(step, past_key_values=cache, use_cache=True, logits_to_keep=1)
            cache = result.past_key_values
            out.append(int(result.logits[0, -1].argmax()))
            step = torch.tensor([[out[-1]]])
    return out


def main(paths):
    OUT.mkdir(parents=True, exist_ok=True)
    for name, path in zip(PROMPTS, paths, strict=True):
        tokenizer = Llama(path, vocab_only=True, verbose=False)
        prompts = []
        for text, special in PROMPTS[name]:
            ids = tokenizer.tokenize(text.encode(), add_bos=False, special=special)
            prompts.append(dict(text=text, special=special, ids=[2] * (name == "gemma3") + ids))
        model = gguf_models.to_transformers(path, "float32")
        vocab = model.config.vocab_size
        sampled = sorted(random.Random(name).sample(range(vocab), 256))
        single = []
        for prompt in prompts:
            prompt["greedy"] = greedy(model, prompt["ids"])
            single.append(forward(model, prompt["ids"], 1)[0])
        del model
        gc.collect()
        with Float64Mode():
            model = gguf_models.to_transformers(path, "float64")
            for prompt, last in zip(prompts, single):
                logits = forward(model, prompt["ids"] + prompt["greedy"][:-1], STEPS)
                assert logits.dtype == np.float64 and logits.shape == (STEPS, vocab)
                order = np.argsort(-logits, axis=1, kind="stable")[:, :64]
                steps = np.arange(STEPS)
                margins = logits[steps, order[:, 0]] - logits[steps, order[:, 1]]
                prompt["margins"] = [round(float(m), 6) for m in margins]
                largest = np.abs(logits[0]).max()
                prompt["top_ids"] = order[0].tolist()
                prompt["top_logits"] = [round(float(x), 6) for x in logits[0][order[0]]]
                prompt["sampled_logits"] = [round(float(x), 6) for x in logits[0][sampled]]
                prompt["max_abs_logit"] = round(float(largest), 6)
                same = order[:, 0] == prompt["greedy"]
                apart = np.abs(last - logits[0]).max() / largest
                size = len(prompt["ids"])
                print(
                    f"{name}: {size:4} ids, smallest margin {margins.min():.1e}, float32 differs by {apart:.1e}",
                    flush=True,
                )
                assert same.all()
        del model
        gc.collect()
        result = dict(
            file=pathlib.Path(path).name,
            sha256=hashlib.sha256(pathlib.Path(path).read_bytes()).hexdigest(),
            sampled_ids=sampled,
            prompts=prompts,
        )
        text = json.dumps(result, ensure_ascii=True, separators=(",", ":"))
        (OUT / f"{name}.json").write_text(text.replace('{"text"', '\n{"text"') + "\n")
        for prompt in prompts:
            print(repr(tokenizer.detokenize(prompt["greedy"]).decode(errors="replace")))


if __name__ == "__main__":
    main(sys.argv[1:])
