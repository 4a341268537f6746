"""Make the tiny GPT-2 of tests/golden/gguf: gpt2_q8_0.gguf with its ids, tokens and float64 logits.

A random `transformers` model (seeded) is converted as llama.cpp's converter does it: matrices of layers turned to [out, in], the
fused projection kept whole, biases and norms F32, positions F32, matrices Q8_0. The float64 logits are those of
`transformers` on the dequantised weights; llama.cpp must load an unquantised file and give the logits of the model it
was made from, and the quantised one within its own 8-bit arithmetic.

Run:  python gguf_gpt2.py      (gguf_files.py runs it too)
Made with gguf 0.19.0, llama-cpp-python 0.3.36, tokenizers 0.23.3, torch 2.15.0, transformers 5.24.0, numpy 2.4.6.
"""

import pathlib
import tempfile

import gguf
import numpy as np
import torch
import transformers
from llama_cpp import Llama

import gguf_files
import kquants
from float64 import Float64Mode
from hf_checkpoints import randomise

PARTS = {
    "ln_1": "attn_norm",
    "attn.c_attn": "attn_qkv",
    "attn.c_proj": "attn_output",
    "ln_2": "ffn_norm",
    "mlp.c_fc": "ffn_up",
    "mlp.c_proj": "ffn_down",
}
ONCE = {"wte": "token_embd", "wpe": "position_embd", "ln_f": "output_norm"}
TOKENIZER = dict(model="gpt2", pre="gpt-2", specials=["<|endoftext|>"], bos="<|endoftext|>", eos="<|endoftext|>")


def tensors(model, matrix_type):
    """[(name, float32 array, type name)] in the order of the model."""
    for name, value in model.state_dict().items():
        if name == "lm_head.weight":
            continue
        value = value.float().numpy()
        stem, kind = name.removeprefix("transformer.").rsplit(".", 1)
        if stem.startswith("h."):
            _, layer, part = stem.split(".", 2)
            new = f"blk.{layer}.{PARTS[part]}.{kind}"
            if value.ndim == 2:
                value = np.ascontiguousarray(value.T)
        else:
            new = f"{ONCE[stem]}.{kind}"
        yield new, value, matrix_type if value.ndim == 2 and stem != "wpe" else "F32"


def write(path, model, matrix_type):
    config = model.config
    writer = gguf.GGUFWriter(str(path), "gpt2")
    writer.add_name(f"random {path.stem}")
    writer.add_quantization_version(2)
    writer.add_block_count(config.n_layer)
    writer.add_context_length(config.n_positions)
    writer.add_embedding_length(config.n_embd)
    writer.add_feed_forward_length(4 * config.n_embd)
    writer.add_head_count(config.n_head)
    writer.add_layer_norm_eps(config.layer_norm_epsilon)
    gguf_files.add_tokenizer(writer, TOKENIZER)
    for name, value, kind in tensors(model, matrix_type):
        raw = gguf.GGMLQuantizationType[kind]
        writer.add_tensor(name, kquants.quantize(value, kind), raw_dtype=None if kind == "F32" else raw)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def dequantised(path, model):
    """The model with the numbers of the file in the place of its own, in float64."""
    config = model.config
    values = {t.name: gguf.quants.dequantize(t.data, t.tensor_type) for t in gguf.GGUFReader(path).tensors}
    state = model.state_dict()
    for name, old in tensors_by_name(model).items():
        value = torch.from_numpy(values[old].copy())
        state[name] = value.T.contiguous() if name.startswith("transformer.h.") and value.ndim == 2 else value
    state["lm_head.weight"] = state["transformer.wte.weight"]
    copy = transformers.GPT2LMHeadModel(config)
    copy.load_state_dict(state)
    return copy.double().eval()


def tensors_by_name(model):
    names = [name for name in model.state_dict() if name != "lm_head.weight"]
    return dict(zip(names, (new for new, _, _ in tensors(model, "F32")), strict=True))


def native(path, ids):
    engine = Llama(str(path), n_ctx=len(ids), n_batch=len(ids), logits_all=True, verbose=False)
    engine.eval(ids.tolist())
    return np.array(engine.scores[: len(ids)])


def make():
    path = gguf_files.OUT / "gpt2_q8_0.gguf"
    generator = torch.Generator().manual_seed(2019)
    config = transformers.GPT2Config(
        vocab_size=gguf_files.VOCAB, n_embd=32, n_layer=2, n_head=4, n_positions=64, attn_implementation="eager"
    )
    model = transformers.GPT2LMHeadModel(config).float().eval()
    randomise(model, generator)
    ids = torch.randint(3, gguf_files.VOCAB, (gguf_files.LENGTH,), generator=generator).numpy()
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        plain = pathlib.Path(folder) / "plain.gguf"
        write(plain, model, "F32")
        original = model(torch.from_numpy(ids)[None]).logits[0].numpy()
        # llama.cpp looks up its GELU in a table of half floats and keeps keys and values as half floats.
        apart = np.abs(native(plain, ids) - original).max() / np.abs(original).max()
        assert apart < 5e-3, apart
    write(path, model, "Q8_0")
    exact = dequantised(path, model)
    with torch.no_grad(), Float64Mode():
        logits = exact(torch.from_numpy(ids)[None]).logits[0].numpy()
    assert logits.dtype == np.float64
    together = np.corrcoef(native(path, ids).ravel(), logits.ravel())[0, 1]
    assert together > 0.999, together
    print(f"gpt2_q8_0: {path.stat().st_size} bytes; llama.cpp f32 differs by {apart:.0e}, q8_0 correlation {together:.5f}")
    np.save(gguf_files.OUT / "gpt2_q8_0.ids.npy", ids)
    np.save(gguf_files.OUT / "gpt2_q8_0.logits.npy", logits)
    gguf_files.write_tokens(path, TOKENIZER["specials"])


if __name__ == "__main__":
    make()
