"""Make the tiny GGUF files under tests/golden/gguf, the ids their tokenizers give, and their float64 logits.

Random `transformers` models (seeded) are converted as llama.cpp's converter does it: q/k rows of the llama
architecture permuted to interleaved order (k with its own head count), gemma's +1 baked into the norms, llama3
scaling as `rope_freqs.weight` divisors, 1-D tensors F32, tied heads left out. Matrices are quantised; 256-wide rows
take K-quants, others the 32-wide types. Each file has a tokenizer trained here on sentences written here, so text can
be generated from it. Beside NAME.gguf stand
  NAME.ids.npy       int64 [n]
  NAME.logits.npy    float64 [n, vocab]   from the dequantised weights
  NAME.tokens.jsonl  {"text", "special", "ids"} per line, ids of llama.cpp without BOS or EOS
`llama_q4_1` also exists in two parts (llama_q4_1-00001-of-00002.gguf), to be read as the same model.
`vocab_gpt2.gguf` has a tokenizer and no tensors.

The logits are computed twice, by `transformers` in true float64 and by plain numpy straight from the GGUF
conventions, and must agree to 1e-12; an unquantised conversion must give the logits of the model it was made from,
and llama.cpp must load each file and agree within its own 8-bit arithmetic.

Run:  python gguf_files.py
Made with gguf 0.19.0, llama-cpp-python 0.3.36, tokenizers 0.23.3, torch 2.15.0, transformers 5.24.0, numpy 2.4.6.
"""

import collections
import json
import math
import pathlib
import shutil
import tempfile
import zlib

import gguf
import numpy as np
import tokenizers
import torch
import transformers
from llama_cpp import Llama

import corpus
import gguf_models
import kquants
from float64 import Float64Mode
from hf_checkpoints import randomise

OUT = pathlib.Path(__file__).resolve().parents[2] / "tests" / "golden" / "gguf"
LENGTH = 32
VOCAB = 320
NORMAL, UNKNOWN, CONTROL, USER, BYTE = 1, 2, 3, 4, 6
CHATML = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
TEXT = [
    "The river runs past the old mill and the children throw stones into the water.",
    "There were seven ships in the harbour when the storm came, and three of them were lost.",
    "She said that the answer is in the letter, but the letter had been burned in the winter.",
    "A machine reads the words one after the other and looks back at the ones that matter.",
    "We're going to the market; they've said it'll rain, so I'd rather take the train.",
    "for (int i = 0; i < 10; ++i) { total += weights[i] * values[i]; }",
    "In 1984 and 2001 the price was 1234.50, then 99, then 100.",
]


def gpt2_vocabulary(specials, size=VOCAB, split=None):
    """tokens, types, merges of a byte-level BPE: specials, 256 bytes, learned merges."""
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=specials,
        initial_alphabet=sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.train_from_iterator(TEXT, trainer)
    state = json.loads(tokenizer.to_str())["model"]
    tokens = sorted(state["vocab"], key=state["vocab"].get)
    assert len(tokens) == size
    return (
        tokens,
        [CONTROL if token in specials else NORMAL for token in tokens],
        [" ".join(pair) for pair in state["merges"]],
    )


def commonest(texts, count):
    """The most frequent characters, ties by code point: the trainers' own choice among ties differs from run to run."""
    counts = collections.Counter(char for text in texts for char in text)
    return sorted(sorted(counts, key=lambda char: (-counts[char], char))[:count])


def keep(text, alphabet):
    return "".join(char for char in text if char in alphabet)


def spm_vocabulary(specials, users, size=VOCAB):
    """tokens, scores, types of a score-driven vocabulary: unknown, specials, user-defined, bytes, learned pieces."""
    head = ["<unk>", *specials, *users]
    fixed = len(head) + 256
    texts = [text.lower().replace(" ", "\u2581") for text in TEXT]
    alphabet = commonest(texts, 36)
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=size - fixed, show_progress=False, initial_alphabet=alphabet)
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace()
    tokenizer.train_from_iterator([keep(text, alphabet) for text in texts], trainer)
    pieces = tokenizer.get_vocab()
    pieces = sorted(pieces, key=lambda piece: (len(piece) == 1, pieces[piece]))  # merges first, single characters last
    tokens = head + [f"<0x{byte:02X}>" for byte in range(256)] + pieces
    types = [UNKNOWN] + [CONTROL] * len(specials) + [USER] * len(users) + [BYTE] * 256 + [NORMAL] * len(pieces)
    scores = [0.0] * fixed + [-float(rank) for rank in range(len(pieces))]
    assert len(tokens) == size
    return tokens, scores, types


def add_tokenizer(writer, spec):
    kind = spec["model"]
    writer.add_tokenizer_model(kind)
    writer.add_tokenizer_pre(spec["pre"])
    if kind == "gpt2":
        tokens, types, merges = gpt2_vocabulary(spec["specials"])
        writer.add_token_list(tokens)
        writer.add_token_types(types)
        writer.add_token_merges(merges)
    else:
        tokens, scores, types = spm_vocabulary(spec["specials"], spec.get("users", []))
        writer.add_token_list(tokens)
        writer.add_token_scores(scores)
        writer.add_token_types(types)
    index = {token: i for i, token in enumerate(tokens)}
    writer.add_bos_token_id(index[spec["bos"]])
    writer.add_eos_token_id(index[spec["eos"]])
    for key in ("add_bos_token", "add_space_prefix"):
        if key in spec:
            writer.add_bool(f"tokenizer.ggml.{key}", spec[key])
    if "template" in spec:
        writer.add_chat_template(spec["template"])


CHAT_BPE = dict(
    model="gpt2",
    pre="smollm",
    specials=["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
    bos="<|im_start|>",
    eos="<|im_end|>",
    add_bos_token=False,
    add_space_prefix=False,
    template=CHATML,
)
SMALL = dict(
    vocab_size=VOCAB,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=512,
    bos_token_id=None,
    eos_token_id=None,
    pad_token_id=None,
)


def rope(kind="default", theta=500.0, **more):
    return dict(rope_parameters=dict(rope_type=kind, rope_theta=theta, **more))


# name -> architecture, configuration, types by tensor (a list is taken layer by layer), tokenizer
FILES = {
    "llama_q4_1": dict(
        arch="llama",
        config=transformers.LlamaConfig(
            **SMALL,
            hidden_size=64,
            intermediate_size=96,
            num_hidden_layers=2,
            rms_norm_eps=1e-5,
            tie_word_embeddings=True,
            **rope(
                "llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=16
            ),
        ),
        types=dict(default="Q4_1", token_embd="Q8_0"),
        tokenizer=CHAT_BPE,
    ),
    "llama_mixed": dict(
        arch="llama",
        config=transformers.LlamaConfig(
            **{**SMALL, "num_key_value_heads": 1},
            hidden_size=32,
            intermediate_size=256,
            num_hidden_layers=2,
            head_dim=16,
            rms_norm_eps=1e-6,
            tie_word_embeddings=False,
            **rope("linear", factor=4.0),
        ),
        types=dict(
            default="Q4_0",
            attn_v="Q5_1",
            ffn_up="F16",
            ffn_gate="Q8_0",
            ffn_down=["Q5_K", "Q6_K"],
            token_embd="Q4_0",
            output="F32",
        ),
        tokenizer=dict(model="llama", pre="default", specials=["<s>", "</s>"], bos="<s>", eos="</s>"),
    ),
    "qwen2_q5_0": dict(
        arch="qwen2",
        config=transformers.Qwen2Config(
            **SMALL,
            hidden_size=64,
            intermediate_size=96,
            num_hidden_layers=2,
            rms_norm_eps=1e-6,
            tie_word_embeddings=True,
            use_sliding_window=False,
            **rope(theta=1000.0),
        ),
        types=dict(default="Q5_0", attn_v="Q8_0", token_embd="Q8_0"),
        tokenizer=dict(CHAT_BPE, pre="qwen2", bos="<|endoftext|>"),
    ),
    "qwen3_16bit": dict(
        arch="qwen3",
        config=transformers.Qwen3Config(
            **SMALL,
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            head_dim=16,
            rms_norm_eps=1e-6,
            tie_word_embeddings=False,
            use_sliding_window=False,
            **rope(theta=1000.0),
        ),
        types=dict(default="F16", attn_output="BF16", ffn_down="BF16", token_embd="F16", output="BF16"),
        tokenizer=dict(CHAT_BPE, pre="llama-bpe", bos="<|endoftext|>"),
    ),
    "gemma3_q4_k": dict(
        arch="gemma3",
        config=transformers.Gemma3TextConfig(
            **{**SMALL, "num_key_value_heads": 1},
            hidden_size=32,
            intermediate_size=256,
            num_hidden_layers=7,
            head_dim=16,
            query_pre_attn_scalar=16,
            sliding_window=8,
            rms_norm_eps=1e-6,
            tie_word_embeddings=True,
            layer_types=["sliding_attention"] * 5 + ["full_attention", "sliding_attention"],
            rope_parameters=dict(
                full_attention=dict(rope_type="linear", factor=4.0, rope_theta=2000.0),
                sliding_attention=dict(rope_type="default", rope_theta=10000.0),
            ),
        ),
        types=dict(default="Q5_0", attn_v=["Q8_0", "Q5_0"] * 4, ffn_down=["Q6_K", "Q4_K"] * 4, token_embd="Q8_0"),
        tokenizer=dict(
            model="llama",
            pre="default",
            specials=["<bos>", "<eos>", "<end_of_turn>"],
            users=["\n", "\n\n", "  ", "   ", "<b>"],
            bos="<bos>",
            eos="<eos>",
            add_bos_token=True,
            add_space_prefix=False,
        ),
    ),
}
PARTS = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "post_attention_layernorm": "ffn_norm",
}
GEMMA_PARTS = dict(
    PARTS,
    post_attention_layernorm="post_attention_norm",
    pre_feedforward_layernorm="ffn_norm",
    post_feedforward_layernorm="post_ffw_norm",
)


def interleave(rows, heads):
    """q/k rows from half-split to interleaved order, head by head."""
    return rows.reshape(heads, 2, rows.shape[0] // heads // 2, *rows.shape[1:]).swapaxes(1, 2).reshape(rows.shape)


def gguf_tensors(spec, model):
    """[(name, float32 array, type name)] in the order of the file."""
    arch, config = spec["arch"], model.config
    out = []
    for name, value in model.state_dict().items():
        value = value.float().numpy()
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        layer = None
        if name.startswith("model.layers."):
            _, _, layer, rest = name.split(".", 3)
            part, kind = rest.rsplit(".", 1)
            part = (GEMMA_PARTS if arch == "gemma3" else PARTS)[part]
            new = f"blk.{layer}.{part}.{kind}"
            if arch == "llama" and part in ("attn_q", "attn_k"):
                value = interleave(
                    value, config.num_attention_heads if part == "attn_q" else config.num_key_value_heads
                )
        else:
            part = {
                "model.embed_tokens.weight": "token_embd",
                "model.norm.weight": "output_norm",
                "lm_head.weight": "output",
            }[name]
            new = part + ".weight"
        if part.endswith("norm") and arch == "gemma3":
            value = value + np.float32(1)
        kind = "F32"
        if value.ndim == 2:
            kind = spec["types"].get(part, spec["types"]["default"])
            kind = kind[int(layer)] if isinstance(kind, list) else kind
        out.append((new, value, kind))
    if arch == "llama" and config.rope_parameters["rope_type"] == "llama3":
        out.append(("rope_freqs.weight", llama3_divisors(config), "F32"))
    return out


def llama3_divisors(config):
    """What llama.cpp's converter writes: by how much each frequency of RoPE is divided."""
    p = config.rope_parameters
    dim = config.head_dim
    divisors = []
    for i in range(0, dim, 2):
        wavelength = 2 * math.pi * p["rope_theta"] ** (i / dim)
        original, low, high = p["original_max_position_embeddings"], p["low_freq_factor"], p["high_freq_factor"]
        if wavelength < original / high:
            divisors.append(1.0)
        elif wavelength > original / low:
            divisors.append(p["factor"])
        else:
            blend = (original / wavelength - low) / (high - low)
            divisors.append(1 / ((1 - blend) / p["factor"] + blend))
    return np.array(divisors, np.float32)


def write(path, spec, model, **split):
    arch, config = spec["arch"], model.config
    writer = gguf.GGUFWriter(str(path), arch, **split)
    writer.add_name(f"random {path.stem}")
    writer.add_quantization_version(2)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    if head_dim * config.num_attention_heads != config.hidden_size:
        writer.add_key_length(head_dim)
        writer.add_value_length(head_dim)
    parameters = config.rope_parameters
    if arch == "gemma3":
        writer.add_sliding_window(config.sliding_window)
        parameters = parameters["full_attention"]
    writer.add_rope_freq_base(parameters["rope_theta"])
    if arch == "llama":
        writer.add_rope_dimension_count(head_dim)
        writer.add_vocab_size(config.vocab_size)
    if parameters["rope_type"] == "linear":
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(parameters["factor"])
    add_tokenizer(writer, spec["tokenizer"])
    for name, value, kind in gguf_tensors(spec, model):
        data = kquants.quantize(value, kind)
        raw = gguf.GGMLQuantizationType[kind]
        writer.add_tensor(name, data, raw_dtype=None if kind in ("F32", "F16") else raw)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_tokens(path, specials):
    """Ids of llama.cpp for a thinned corpus; returns the ids of one longer text."""
    model = Llama(str(path), vocab_only=True, verbose=False)
    texts = [entry for entry in corpus.texts(specials, seed=7) if len(entry[0]) <= 80]
    chosen = texts[:: len(texts) // 90] + [(text, False) for text in TEXT]
    lines = []
    for text, special in chosen:
        ids = model.tokenize(text.encode(), add_bos=False, special=special)
        lines.append(
            json.dumps({"text": text, "special": special, "ids": ids}, ensure_ascii=False, separators=(",", ":"))
        )
    path.with_suffix(".tokens.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8", newline="\n")


def make(name, spec):
    path = OUT / f"{name}.gguf"
    generator = torch.Generator().manual_seed(zlib.crc32(name.encode()))
    model = transformers.AutoModelForCausalLM.from_config(spec["config"], attn_implementation="eager").float().eval()
    randomise(model, generator)
    with tempfile.TemporaryDirectory() as folder:  # the conversion alone, without the loss of quantising
        plain = pathlib.Path(folder) / "plain.gguf"
        write(plain, dict(spec, types=dict(default="F32")), model)
        ids = np.arange(3, 3 + LENGTH)
        with torch.no_grad():
            original = model(torch.from_numpy(ids)[None]).logits[0].numpy()
        assert np.abs(gguf_models.numpy_logits(plain, ids) - original).max() < 2e-5 * np.abs(original).max()
    write(path, spec, model)
    if name == "llama_q4_1":
        write(path, spec, model, split_max_tensors=12)
    ids = torch.randint(3, VOCAB, (LENGTH,), generator=generator).numpy()
    with torch.no_grad(), Float64Mode():
        logits = gguf_models.to_transformers(path, "float64")(torch.from_numpy(ids)[None]).logits[0].numpy()
    assert logits.dtype == np.float64
    other = gguf_models.numpy_logits(path, ids)
    with torch.no_grad():
        original = model(torch.from_numpy(ids)[None]).logits[0].numpy()
    engine = Llama(str(path), n_ctx=64, logits_all=True, verbose=False)
    engine.eval(ids.tolist())
    native = np.array(engine.scores[:LENGTH])
    scale = np.abs(logits).max()

    def apart(a):
        return np.abs(a - logits).max() / scale

    together = np.corrcoef(native.ravel(), logits.ravel())[0, 1]
    print(
        f"{name}: {path.stat().st_size} bytes, max |logit| {scale:.2f}; relative distance of numpy {apart(other):.0e}"
    )
    print(f"  before quantising {apart(original):.0e}; of llama.cpp {apart(native):.0e}, correlation {together:.5f}")
    assert apart(other) < 1e-12 and together > 0.999
    if name == "llama_q4_1":
        parts = Llama(str(OUT / f"{name}-00001-of-00002.gguf"), n_ctx=64, logits_all=True, verbose=False)
        parts.eval(ids.tolist())
        assert np.array_equal(parts.scores[:LENGTH], native)
    np.save(OUT / f"{name}.ids.npy", ids)
    np.save(OUT / f"{name}.logits.npy", logits)
    write_tokens(path, spec["tokenizer"]["specials"] + spec["tokenizer"].get("users", []))


def make_vocabulary():
    path = OUT / "vocab_gpt2.gguf"
    writer = gguf.GGUFWriter(str(path), "llama")
    add_tokenizer(writer, dict(CHAT_BPE, pre="gpt-2"))
    writer.add_vocab_size(VOCAB)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    write_tokens(path, CHAT_BPE["specials"])


if __name__ == "__main__":
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir(parents=True)
    for each, specification in FILES.items():
        make(each, specification)
    make_vocabulary()
    import gguf_gpt2  # imports this file, so not at the top

    gguf_gpt2.make()
