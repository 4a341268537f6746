#!/usr/bin/env python3
"""Steps of training in PyTorch on the requests of train_serve_bench, `load` and `run`; see bench/README.md.

    pytorch_train.py eager|compiled

The models are written as PyTorch's own examples write them, on scaled_dot_product_attention and cross_entropy, and take the weights of a
checkpoint by its names: GPT-2 shapes and LLaMA shapes. A step sets gradients to none, computes loss and gradients (under bf16 autocast in the
bf16 problems), clips their length to 1 and runs the fused AdamW, with decay on matrices alone.
"""
import contextlib
import json
import os
import pathlib
import sys
import tempfile
import time

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import nn

from serve_requests import say

problem = {}


class Gpt2(nn.Module):
    def __init__(self, config, state):
        super().__init__()
        self.heads, self.layers, self.eps = config["n_head"], config["n_layer"], config["layer_norm_epsilon"]
        self.hidden = config["n_embd"]
        # Matrices of layers are stored [in, out]; a row per output is what linear() takes.
        self.w = nn.ParameterDict({k.replace(".", "/"): nn.Parameter(v.T.contiguous() if ".h." in k and v.dim() == 2 else v) for k, v in state.items()})

    def p(self, name):
        return self.w["transformer/" + name.replace(".", "/")]

    def norm(self, x, name):
        return F.layer_norm(x, (self.hidden,), self.p(name + ".weight"), self.p(name + ".bias"), self.eps)

    def linear(self, x, name):
        return F.linear(x, self.p(name + ".weight"), self.p(name + ".bias"))

    def forward(self, tokens, labels):
        batch, seq = tokens.shape
        x = F.embedding(tokens, self.p("wte.weight")) + self.p("wpe.weight")[:seq]
        for i in range(self.layers):
            at = f"h.{i}."
            q, k, v = (t.view(batch, seq, self.heads, -1).transpose(1, 2) for t in self.linear(self.norm(x, at + "ln_1"), at + "attn.c_attn").split(self.hidden, 2))
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(batch, seq, self.hidden)
            x = x + self.linear(y, at + "attn.c_proj")
            x = x + self.linear(F.gelu(self.linear(self.norm(x, at + "ln_2"), at + "mlp.c_fc"), approximate="tanh"), at + "mlp.c_proj")
        return F.cross_entropy(F.linear(self.norm(x, "ln_f"), self.p("wte.weight")).flatten(0, 1), labels.flatten())


class Llama(nn.Module):
    def __init__(self, config, state):
        super().__init__()
        self.heads, self.kv_heads, self.dim = config["num_attention_heads"], config["num_key_value_heads"], config["head_dim"]
        self.layers, self.hidden, self.eps = config["num_hidden_layers"], config["hidden_size"], config["rms_norm_eps"]
        rope = config.get("rope_parameters") or config
        if rope.get("rope_type", "default") != "default" or config["attention_bias"] or config["mlp_bias"]:
            sys.exit("pytorch_train.py: a plain LLaMA shape is expected: no scaled rotation, no biases")
        frequencies = rope["rope_theta"] ** (-torch.arange(0, self.dim, 2, dtype=torch.float64) / self.dim)
        angles = torch.outer(torch.arange(config["max_position_embeddings"], dtype=torch.float64), frequencies).repeat(1, 2)
        self.register_buffer("cos", angles.cos().float())
        self.register_buffer("sin", angles.sin().float())
        self.w = nn.ParameterDict({k.replace(".", "/"): nn.Parameter(v) for k, v in state.items()})

    def p(self, name):
        return self.w[name.replace(".", "/") + "/weight"]

    def norm(self, x, name):
        return F.rms_norm(x, (self.hidden,), self.p(name), self.eps)

    def rotate(self, x):
        a, b = x.chunk(2, -1)
        seq = x.shape[2]
        return x * self.cos[:seq] + torch.cat((-b, a), -1) * self.sin[:seq]

    def forward(self, tokens, labels):
        batch, seq = tokens.shape
        x = F.embedding(tokens, self.p("model.embed_tokens"))
        for i in range(self.layers):
            at = f"model.layers.{i}."
            h = self.norm(x, at + "input_layernorm")
            q, k, v = (F.linear(h, self.p(f"{at}self_attn.{name}_proj")).view(batch, seq, -1, self.dim).transpose(1, 2) for name in "qkv")
            y = F.scaled_dot_product_attention(self.rotate(q), self.rotate(k), v, is_causal=True, enable_gqa=self.heads != self.kv_heads)
            x = x + F.linear(y.transpose(1, 2).reshape(batch, seq, -1), self.p(at + "self_attn.o_proj"))
            h = self.norm(x, at + "post_attention_layernorm")
            x = x + F.linear(F.silu(F.linear(h, self.p(at + "mlp.gate_proj"))) * F.linear(h, self.p(at + "mlp.up_proj")), self.p(at + "mlp.down_proj"))
        head = self.p("lm_head") if "lm_head/weight" in self.w else self.p("model.embed_tokens")
        return F.cross_entropy(F.linear(self.norm(x, "model.norm"), head).flatten(0, 1), labels.flatten())


def load(directory, precision, threads):
    problem.clear()
    torch.set_num_threads(int(threads))
    torch._dynamo.reset()  # what was compiled before is for another number of threads
    directory = pathlib.Path(directory)
    config = json.loads((directory / "config.json").read_text())
    model = {"gpt2": Gpt2, "llama": Llama}[config["model_type"]](config, load_file(directory / "model.safetensors"))
    ids = torch.from_numpy(np.load(directory / "tokens.npy").astype(np.int64))
    decay = [p for p in model.parameters() if p.dim() > 1]
    rest = [p for p in model.parameters() if p.dim() <= 1]
    optimizer = torch.optim.AdamW([{"params": decay, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}], lr=1e-4, betas=(0.9, 0.99), eps=1e-8, fused=True)
    problem.update(model=model, loss=torch.compile(model) if sys.argv[1] == "compiled" else model, tokens=ids[:, :-1].contiguous(),
                   labels=ids[:, 1:].contiguous(), optimizer=optimizer, bf16=precision == "bf16")


def step():
    problem["optimizer"].zero_grad(set_to_none=True)
    with torch.autocast("cpu", torch.bfloat16) if problem["bf16"] else contextlib.nullcontext():
        loss = problem["loss"](problem["tokens"], problem["labels"])
    loss.backward()
    nn.utils.clip_grad_norm_(problem["model"].parameters(), 1.0)
    problem["optimizer"].step()
    return loss.item()


def serve():
    say({"name": f"PyTorch, {sys.argv[1]}", "version": torch.__version__, "features": torch.backends.cpu.get_cpu_capability()})
    for line in sys.stdin:
        words = line.split()
        if words[0] == "load":
            load(*words[1:])
            say({"loaded": True})
        elif words[0] == "run":
            begin = time.perf_counter()
            losses = [step() for _ in range(int(words[1]))]
            say({"seconds": (time.perf_counter() - begin) / len(losses), "losses": losses})
        else:
            sys.exit(f"pytorch_train.py: expected load or run, got {line!r}")


def main():
    if len(sys.argv) != 2 or sys.argv[1] not in ("eager", "compiled"):
        sys.exit("pytorch_train.py: expected eager or compiled")
    # What torch.compile left in the cache of the machine may be half written: nothing of it is used, and nothing is left there.
    with tempfile.TemporaryDirectory(prefix="pytorch_train-", ignore_cleanup_errors=True) as cache:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = cache
        serve()


if __name__ == "__main__":
    main()
