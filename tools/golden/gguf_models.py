"""Two independent float forward passes over a GGUF file: a helper module of the scripts beside it.

`to_transformers(path, dtype)` dequantises every tensor with PyPI `gguf`, undoes llama.cpp's conversion (q/k rows of
the llama architecture back to half-split order, gemma's baked +1 off its norms) and returns a `transformers` model.
`numpy_logits(path, ids)` follows the GGUF conventions as they stand (interleaved rotation for llama, rope_freqs as
divisors, norm weights as stored, gemma's local base 1e4 and its 5:1 pattern by rule) in plain numpy float64, without
torch. That the two agree shows that a file means what it should.

Made with gguf 0.19.0, numpy 2.x, torch 2.15.0, transformers 5.24.0.
"""

import math

import gguf
import numpy as np


def read(path, dtype=np.float32):
    """(metadata dict, {name: array}) of a GGUF file, matrices as [out, in]."""
    reader = gguf.GGUFReader(path)
    meta = {key: field.contents() for key, field in reader.fields.items()}
    tensors = {t.name: gguf.quants.dequantize(t.data, t.tensor_type).astype(dtype) for t in reader.tensors}
    for t in reader.tensors:
        assert tensors[t.name].shape == tuple(int(n) for n in reversed(t.shape)), t.name
    return meta, tensors


def fields(meta):
    """The numbers of the architecture, with llama.cpp's defaults for missing keys."""
    arch = meta["general.architecture"]

    def get(key, default=None):
        value = meta.get(f"{arch}.{key}", default)
        if value is None:
            raise KeyError(f"{arch}.{key}")
        return value

    heads = get("attention.head_count")
    hidden = get("embedding_length")
    return dict(
        arch=arch,
        layers=get("block_count"),
        hidden=hidden,
        heads=heads,
        kv_heads=get("attention.head_count_kv", heads),
        head_dim=get("attention.key_length", hidden // heads),
        inner=get("feed_forward_length"),
        eps=get("attention.layer_norm_rms_epsilon"),
        theta=get("rope.freq_base", 10000.0),
        context=get("context_length"),
        window=get("attention.sliding_window", 0),
        scale_type=get("rope.scaling.type", "none"),
        scale_factor=get("rope.scaling.factor", 1.0),
    )


def _half_split(rows, heads):
    """Undo the interleaving permutation of llama q/k rows ([out, in] or [out])."""
    shape = rows.shape
    return rows.reshape(heads, shape[0] // heads // 2, 2, *shape[1:]).swapaxes(1, 2).reshape(shape)


def to_transformers(path, dtype="float32"):
    """A transformers model in eval mode with the dequantised weights; `dtype` float32 or float64."""
    import torch
    import transformers

    meta, tensors = read(path)
    f = fields(meta)
    arch = f["arch"]
    tied = "output.weight" not in tensors
    common = dict(
        vocab_size=tensors["token_embd.weight"].shape[0],
        hidden_size=f["hidden"],
        intermediate_size=f["inner"],
        num_hidden_layers=f["layers"],
        num_attention_heads=f["heads"],
        num_key_value_heads=f["kv_heads"],
        head_dim=f["head_dim"],
        rms_norm_eps=f["eps"],
        max_position_embeddings=f["context"],
        tie_word_embeddings=tied,
        attn_implementation="eager",
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=None,
    )
    rope = dict(rope_type="default", rope_theta=f["theta"])
    if f["scale_type"] == "linear":
        rope.update(rope_type="linear", factor=f["scale_factor"])
    if arch == "llama":
        config = transformers.LlamaConfig(**common, rope_parameters=rope)
    elif arch == "qwen2":
        config = transformers.Qwen2Config(**common, rope_parameters=rope, use_sliding_window=False)
        assert config.head_dim * config.num_attention_heads == config.hidden_size
    elif arch == "qwen3":
        config = transformers.Qwen3Config(**common, rope_parameters=rope, use_sliding_window=False)
    elif arch == "gemma3":
        config = transformers.Gemma3TextConfig(
            **common,
            query_pre_attn_scalar=f["head_dim"],
            sliding_window=f["window"],
            layer_types=["full_attention" if (i + 1) % 6 == 0 else "sliding_attention" for i in range(f["layers"])],
            rope_parameters=dict(full_attention=rope, sliding_attention=dict(rope_type="default", rope_theta=10000.0)),
        )
    else:
        raise ValueError(f"no mapping for {arch}")

    names = {
        "attn_norm": "input_layernorm",
        "attn_q": "self_attn.q_proj",
        "attn_k": "self_attn.k_proj",
        "attn_v": "self_attn.v_proj",
        "attn_output": "self_attn.o_proj",
        "attn_q_norm": "self_attn.q_norm",
        "attn_k_norm": "self_attn.k_norm",
        "ffn_gate": "mlp.gate_proj",
        "ffn_up": "mlp.up_proj",
        "ffn_down": "mlp.down_proj",
        "ffn_norm": "pre_feedforward_layernorm" if arch == "gemma3" else "post_attention_layernorm",
        "post_attention_norm": "post_attention_layernorm",
        "post_ffw_norm": "post_feedforward_layernorm",
    }
    state = {}
    divisors = tensors.pop("rope_freqs.weight", None)
    for name, value in tensors.items():
        # The addition of 1 is undone in float64, where it is exact enough to be added back without a trace.
        value = torch.from_numpy(value.astype(dtype))
        if name.split(".")[-2].endswith("norm") and arch == "gemma3":
            value = value - 1
        if name.startswith("blk."):
            _, layer, part, kind = name.split(".")
            if arch == "llama" and part in ("attn_q", "attn_k"):
                value = torch.from_numpy(
                    _half_split(value.numpy(), f["heads" if part == "attn_q" else "kv_heads"]).copy()
                )
            state[f"model.layers.{layer}.{names[part]}.{kind}"] = value
        else:
            state[
                {
                    "token_embd.weight": "model.embed_tokens.weight",
                    "output_norm.weight": "model.norm.weight",
                    "output.weight": "lm_head.weight",
                }[name]
            ] = value
    if tied:
        state["lm_head.weight"] = state["model.embed_tokens.weight"]
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config)
    model.load_state_dict(state, strict=True, assign=True)
    model.tie_weights()
    rotary = type(model.model.rotary_emb)(config)  # made on meta above: its tables are not in the state
    model.model.rotary_emb = rotary
    if divisors is not None:
        rotary.inv_freq = rotary.inv_freq / torch.from_numpy(divisors).to(rotary.inv_freq.dtype)
    if arch == "gemma3":
        scale = torch.tensor(math.sqrt(f["hidden"]), dtype=getattr(torch, dtype))
        model.model.embed_tokens.embed_scale = scale
    return model.eval()


def _rms(x, weight, eps):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * weight


def _rotate(x, theta, divide, interleaved):
    """x [n, heads, d], positions 0..n-1; `divide` [d/2] divisors of the frequencies."""
    n, _, d = x.shape
    frequency = theta ** (-np.arange(0, d, 2) / d) / divide
    angle = np.arange(n)[:, None] * frequency
    cos, sin = np.cos(angle)[:, None], np.sin(angle)[:, None]
    out = np.empty_like(x)
    a, b = (np.s_[..., 0::2], np.s_[..., 1::2]) if interleaved else (np.s_[..., : d // 2], np.s_[..., d // 2 :])
    out[a] = x[a] * cos - x[b] * sin
    out[b] = x[b] * cos + x[a] * sin
    return out


def numpy_logits(path, ids):
    """float64 logits [n, vocab] of a llama, qwen2, qwen3 or gemma3 file."""
    meta, w = read(path, np.float64)
    f = fields(meta)
    gemma = f["arch"] == "gemma3"
    heads, kv_heads, d = f["heads"], f["kv_heads"], f["head_dim"]
    n = len(ids)
    x = w["token_embd.weight"][ids]
    if gemma:
        x = x * math.sqrt(f["hidden"])
    rows, columns = np.arange(n)[:, None], np.arange(n)[None]
    for layer in range(f["layers"]):
        p = f"blk.{layer}."
        h = _rms(x, w[p + "attn_norm.weight"], f["eps"])
        q, k, v = (h @ w[f"{p}attn_{c}.weight"].T + w.get(f"{p}attn_{c}.bias", 0.0) for c in "qkv")
        q, k, v = q.reshape(n, heads, d), k.reshape(n, kv_heads, d), v.reshape(n, kv_heads, d)
        if f["arch"] in ("qwen3", "gemma3"):
            q = _rms(q, w[p + "attn_q_norm.weight"], f["eps"])
            k = _rms(k, w[p + "attn_k_norm.weight"], f["eps"])
        sees = columns <= rows
        theta = f["theta"]
        divide = w.get("rope_freqs.weight", np.ones(d // 2))
        if f["scale_type"] == "linear":
            divide = divide * f["scale_factor"]
        if gemma and (layer + 1) % 6:
            theta, divide = 10000.0, np.ones(d // 2)
            sees = sees & (columns > rows - f["window"])
        q = _rotate(q, theta, divide, f["arch"] == "llama")
        k = _rotate(k, theta, divide, f["arch"] == "llama")
        k, v = np.repeat(k, heads // kv_heads, axis=1), np.repeat(v, heads // kv_heads, axis=1)
        scores = np.einsum("qhd,khd->hqk", q, k) / math.sqrt(d)
        scores = np.where(sees, scores, -np.inf)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        a = np.einsum("hqk,khd->qhd", weights, v).reshape(n, heads * d) @ w[p + "attn_output.weight"].T
        if gemma:
            a = _rms(a, w[p + "post_attention_norm.weight"], f["eps"])
        x = x + a
        h = _rms(x, w[p + "ffn_norm.weight"], f["eps"])
        gate, up = h @ w[p + "ffn_gate.weight"].T, h @ w[p + "ffn_up.weight"].T
        if gemma:
            gate = 0.5 * gate * (1 + np.tanh(math.sqrt(2 / math.pi) * (gate + 0.044715 * gate**3)))
        else:
            gate = gate / (1 + np.exp(-gate))
        m = (gate * up) @ w[p + "ffn_down.weight"].T
        if gemma:
            m = _rms(m, w[p + "post_ffw_norm.weight"], f["eps"])
        x = x + m
    x = _rms(x, w["output_norm.weight"], f["eps"])
    return x @ w.get("output.weight", w["token_embd.weight"]).T
