"""Make the tiny Hugging Face checkpoints under tests/golden/hf and their float64 results.

Every checkpoint has random weights (seeded by its name), fewer than 300 KB, and is meant to be run beyond its window
and beyond its original context length. Beside config.json and the weights stand
  ids.npy     int64 [n]         the input
  logits.npy  float64 [n, vocab]
  hidden.npy  float64 [n, hidden]  last hidden state, after the final norm
computed by `transformers` in true float64 (float64.py says how) from the values in the weight file. `llama_longrope`
also has logits_short.npy: the logits of the first 24 ids alone, where the short factors hold. `config.v4.json` is the
same configuration in the spelling of transformers < 5 (rope_theta, rope_scaling).

Each result is compared with an ordinary float32 pass of the same library before it is written, and the two spellings
are compared with each other.

Run:  python hf_checkpoints.py [name ...]       (all without names)
Made with torch 2.15.0, transformers 5.24.0, safetensors 0.8.0, numpy 2.x, Python 3.11.
"""

import json
import pathlib
import shutil
import sys
import tempfile
import zlib

import numpy as np
import torch
import transformers
from transformers import AutoModelForCausalLM

from float64 import Float64Mode

OUT = pathlib.Path(__file__).resolve().parents[2] / "tests" / "golden" / "hf"
LENGTH = 64  # input ids; windows are 8, original contexts 32
SHORT = 24  # a length below the original context

COMMON = dict(
    vocab_size=96,
    hidden_size=32,
    intermediate_size=48,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=256,
    bos_token_id=1,
    eos_token_id=2,
    pad_token_id=None,
)


def rope(kind="default", theta=500.0, **more):
    return dict(rope_parameters=dict(rope_type=kind, rope_theta=theta, **more))


# name -> (configuration class, fields, dtype of the file, shard size or None)
CHECKPOINTS = {
    "llama": (
        "LlamaConfig",
        dict(
            COMMON,
            rms_norm_eps=1e-5,
            tie_word_embeddings=True,
            **rope(
                "llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=32
            ),
        ),
        torch.bfloat16,
        None,
    ),
    "llama_linear": (
        "LlamaConfig",
        dict(
            COMMON,
            rms_norm_eps=1e-6,
            tie_word_embeddings=False,
            attention_bias=True,
            mlp_bias=True,
            **rope("linear", factor=4.0),
        ),
        torch.float32,
        None,
    ),
    "llama_dynamic": (
        "LlamaConfig",
        dict(
            COMMON,
            max_position_embeddings=32,
            rms_norm_eps=1e-5,
            tie_word_embeddings=True,
            **rope("dynamic", factor=2.0),
        ),
        torch.bfloat16,
        None,
    ),
    "llama_yarn": (
        "LlamaConfig",
        dict(
            COMMON,
            rms_norm_eps=1e-5,
            tie_word_embeddings=True,
            head_dim=16,
            **rope("yarn", factor=8.0, original_max_position_embeddings=32, beta_fast=4.0, beta_slow=1.0),
        ),
        torch.bfloat16,
        None,
    ),
    "llama_longrope": (
        "LlamaConfig",
        dict(
            COMMON,
            rms_norm_eps=1e-5,
            tie_word_embeddings=True,
            **rope(
                "longrope",
                factor=8.0,
                original_max_position_embeddings=32,
                short_factor=[1.0, 1.25, 1.5, 1.75],
                long_factor=[1.5, 2.5, 4.0, 8.0],
            ),
        ),
        torch.bfloat16,
        None,
    ),
    "mistral": (
        "MistralConfig",
        dict(
            COMMON,
            num_hidden_layers=3,
            head_dim=16,
            rms_norm_eps=1e-5,
            sliding_window=8,
            tie_word_embeddings=False,
            **rope(),
        ),
        torch.float16,
        None,
    ),
    "qwen2": (
        "Qwen2Config",
        dict(
            COMMON,
            num_hidden_layers=4,
            rms_norm_eps=1e-6,
            use_sliding_window=True,
            sliding_window=8,
            max_window_layers=2,
            tie_word_embeddings=True,
            **rope(),
        ),
        torch.bfloat16,
        "25KB",
    ),
    "qwen3": (
        "Qwen3Config",
        dict(COMMON, head_dim=16, rms_norm_eps=1e-6, use_sliding_window=False, tie_word_embeddings=False, **rope()),
        torch.bfloat16,
        None,
    ),
    "gemma2": (
        "Gemma2Config",
        dict(
            COMMON,
            num_hidden_layers=2,
            num_key_value_heads=1,
            head_dim=16,
            query_pre_attn_scalar=16,
            sliding_window=8,
            rms_norm_eps=1e-6,
            tie_word_embeddings=True,
            attn_logit_softcapping=2.0,
            final_logit_softcapping=6.0,
            **rope(),
        ),
        torch.bfloat16,
        None,
    ),
    "gemma3": (
        "Gemma3TextConfig",
        dict(
            COMMON,
            num_hidden_layers=7,
            num_key_value_heads=1,
            head_dim=16,
            query_pre_attn_scalar=24,
            sliding_window=8,
            rms_norm_eps=1e-6,
            tie_word_embeddings=True,
            eos_token_id=[2, 5],
            layer_types=["sliding_attention"] * 5 + ["full_attention", "sliding_attention"],
            rope_parameters=dict(
                full_attention=dict(rope_type="linear", factor=4.0, rope_theta=2000.0),
                sliding_attention=dict(rope_type="default", rope_theta=100.0),
            ),
        ),
        torch.bfloat16,
        None,
    ),
    "gpt2": (
        "GPT2Config",
        dict(
            vocab_size=96,
            n_embd=32,
            n_layer=2,
            n_head=4,
            n_positions=80,
            bos_token_id=1,
            eos_token_id=2,
        ),
        torch.float32,
        None,
    ),
    "starcoder2": (
        "Starcoder2Config",
        dict(
            COMMON,
            num_hidden_layers=3,
            norm_epsilon=1e-5,
            use_bias=True,
            sliding_window=8,
            hidden_act="gelu_pytorch_tanh",
            tie_word_embeddings=True,
            residual_dropout=0.0,
            embedding_dropout=0.0,
            attention_dropout=0.0,
            **rope(),
        ),
        torch.bfloat16,
        None,
    ),
}


def randomise(model, generator):
    """Weights that keep activations, scores and logits in a sensible range; no norm weight is 1."""
    gemma = model.config.model_type.startswith("gemma")
    with torch.no_grad():
        for name, parameter in sorted(model.named_parameters()):
            noise = torch.randn(parameter.shape, generator=generator)
            if ("norm" in name or ".ln_" in name) and name.endswith("weight"):
                parameter.copy_(noise * 0.3 + (0.0 if gemma else 1.0))
            elif name.endswith("bias"):
                parameter.copy_(noise * 0.2)
            elif "embed_tokens" in name or "wte" in name or "wpe" in name:
                parameter.copy_(noise * 0.5)
            elif ".h." in name:  # GPT-2's matrices have a row per input
                gain = 1.7 if "c_attn" in name else 1.0
                parameter.copy_(noise * gain / parameter.shape[0] ** 0.5)
            else:
                gain = 1.7 if ("q_proj" in name or "k_proj" in name) else 1.0
                parameter.copy_(noise * gain / parameter.shape[1] ** 0.5)


def old_spelling(config):
    """The same configuration as transformers < 5 wrote it."""
    old = dict(config)
    parameters = old.pop("rope_parameters")
    old["torch_dtype"] = old.pop("dtype")
    old["transformers_version"] = "4.50.0"
    if "full_attention" in parameters:
        full, local = parameters["full_attention"], parameters["sliding_attention"]
        old["rope_local_base_freq"] = local["rope_theta"]
        old.pop("layer_types")
        old["sliding_window_pattern"] = 6
        parameters = full
    parameters = dict(parameters)
    old["rope_theta"] = parameters.pop("rope_theta")
    old["rope_scaling"] = parameters if parameters["rope_type"] != "default" else None
    return old


def forward(folder, ids, dtype):
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, attn_implementation="eager").eval()
    with torch.no_grad():
        out = model(torch.from_numpy(ids)[None], output_hidden_states=True, use_cache=False)
    return out.logits[0].numpy(), out.hidden_states[-1][0].numpy()


def forward64(folder, ids):
    with Float64Mode():
        logits, hidden = forward(folder, ids, torch.float64)
    assert logits.dtype == np.float64 and hidden.dtype == np.float64
    return logits, hidden


def distance(a, b):
    return np.abs(a - b).max() / np.abs(b).max()


def make(name):
    kind, fields, dtype, shards = CHECKPOINTS[name]
    folder = OUT / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    seed = zlib.crc32(name.encode())
    generator = torch.Generator().manual_seed(seed)
    model = AutoModelForCausalLM.from_config(getattr(transformers, kind)(**fields)).float()
    randomise(model, generator)
    model.to(dtype).save_pretrained(folder, **({"max_shard_size": shards} if shards else {}))

    config = json.loads((folder / "config.json").read_text())
    ids = torch.randint(3, fields["vocab_size"], (LENGTH,), generator=generator).numpy()
    ids[0] = 1
    logits, hidden = forward64(folder, ids)
    single, _ = forward(folder, ids, torch.float32)
    apart = distance(single, logits)
    assert apart < 2e-5, apart
    if name in ("llama", "gemma3"):
        old = old_spelling(config)
        with tempfile.TemporaryDirectory() as other:
            shutil.copytree(folder, other, dirs_exist_ok=True)
            (pathlib.Path(other) / "config.json").write_text(json.dumps(old))
            again, _ = forward64(other, ids)
        assert np.array_equal(again, logits), "the two spellings differ"
        (folder / "config.v4.json").write_text(json.dumps(old, indent=2, sort_keys=True) + "\n")
    np.save(folder / "ids.npy", ids)
    np.save(folder / "logits.npy", logits)
    np.save(folder / "hidden.npy", hidden)
    if name == "llama_longrope":
        np.save(folder / "logits_short.npy", forward64(folder, ids[:SHORT])[0])
    weights = sum(path.stat().st_size for path in folder.glob("*.safetensors"))
    print(
        f"{name:15} weights {weights:7} bytes, max |logit| {np.abs(logits).max():6.2f}, float32 differs by {apart:.1e}"
    )
    assert weights < 300_000


if __name__ == "__main__":
    transformers.logging.set_verbosity_error()
    for each in sys.argv[1:] or CHECKPOINTS:
        make(each)
