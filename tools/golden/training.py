"""Make tests/golden/training: losses and gradients of tiny Transformers, by PyTorch's autograd in float64.

cases.json lists every case: {"name", "config", "parameters": [[name, shape] ...], "batch", "seq", "source_seq", "tokens",
"labels", "lengths", "source", "source_lengths", "objective", "counted", "gradients"}. NAME.values.npy holds the parameters one after the
other in that order, NAME.gradients.npy the gradients of the objective, both rounded to float32; the parameters were rounded
before the computation.

  gpt2     transformers' GPT2LMHeadModel
  llama    transformers' LlamaForCausalLM: grouped heads, sequences of different lengths
  encoder  masked language model: torch.nn.TransformerEncoderLayer, norms behind the branches, GELU by erf, learned positions
  seq2seq  torch.nn.TransformerEncoderLayer and TransformerDecoderLayer, norms before the branches, ReLU, sinusoids, embeddings
           times sqrt(hidden), one tied matrix; lengths on both sides

  qwen3    transformers' Qwen3ForCausalLM: norms of queries and keys
  gemma2   transformers' Gemma2ForCausalLM: norms on both sides of branches, a window on every other layer, soft-caps
  gemma3   transformers' Gemma3ForCausalLM: norms of queries and keys, too; windowed layers turn by a base of their own
  t5       transformers' T5ForConditionalGeneration, version 1.0: relu, a tied head that reads its input divided by sqrt(d_model)
  t5_gated version 1.1: gated GELU by tanh, a head of its own
The gradients of these five are kept in float64, as "gradients" says.

The objective is the sum over labels (-100: none) of torch's cross-entropy with label smoothing, and z_loss times the square of
logsumexp. Labels are those of the token that they stand at: nothing is shifted.

Run:  python training.py
Made with torch 2.15.0, transformers 5.24.0, numpy 2.4.6.
"""

import json
import math
import pathlib
import shutil

import numpy as np
import torch
from float64 import Float64Mode
from transformers import (Gemma2Config, Gemma2ForCausalLM, Gemma3ForCausalLM, Gemma3TextConfig, GPT2Config, GPT2LMHeadModel, LlamaConfig,
                          LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM, T5Config, T5ForConditionalGeneration)

OUT = pathlib.Path(__file__).resolve().parents[2] / "tests" / "golden" / "training"
RNG = np.random.default_rng(2032)
V, H, LAYERS, HEADS, WIDTH, POSITIONS = 13, 12, 2, 2, 20, 10
BATCH, SEQ = 3, 8
CASES = []


def draw(shape, name, gain=1.0):
    """Values far from a model that knows nothing, rounded to float32; `gain` is around what those of norms lie."""
    scale, centre = (0.2, gain) if ("norm" in name or ".ln_" in name) and name.endswith("weight") else (0.35, 0.0)
    return torch.tensor(RNG.normal(centre, scale, shape).astype(np.float32).astype(np.float64))


def objective(logits, labels, smoothing, z_loss):
    rows = logits.reshape(-1, logits.shape[-1])
    flat = labels.reshape(-1)
    loss = torch.nn.functional.cross_entropy(rows, flat, ignore_index=-100, reduction="sum", label_smoothing=smoothing)
    return loss + z_loss * (torch.logsumexp(rows, -1)[flat != -100] ** 2).sum()


def ids(batch, seq):
    return torch.tensor(RNG.integers(0, V, (batch, seq)))


def some_labels(batch, seq, share=0.8):
    labels = ids(batch, seq)
    labels[torch.tensor(RNG.random((batch, seq)) > share)] = -100
    return labels


def keep(name, config, parameters, loss, tokens, labels, lengths=None, source=None, source_lengths=None,
         kept=np.float32):
    loss.backward()
    names = list(parameters)
    np.save(OUT / f"{name}.values.npy", np.concatenate([parameters[n].detach().numpy().ravel() for n in names]).astype(np.float32))
    np.save(OUT / f"{name}.gradients.npy", np.concatenate([parameters[n].grad.numpy().ravel() for n in names]).astype(kept))
    counted = labels.clone()
    if lengths is not None:
        counted[~real(lengths, labels.shape[1])] = -100
    CASES.append({
        "name": name, "config": config, "parameters": [[n, list(parameters[n].shape)] for n in names],
        "batch": tokens.shape[0], "seq": tokens.shape[1], "tokens": tokens.flatten().tolist(), "labels": labels.flatten().tolist(),
        "lengths": [] if lengths is None else lengths.tolist(), "source_seq": 0 if source is None else source.shape[1],
        "source": [] if source is None else source.flatten().tolist(),
        "source_lengths": [] if source_lengths is None else source_lengths.tolist(),
        "objective": loss.item(), "counted": int((counted != -100).sum()), "gradients": np.dtype(kept).name,
    })


def real(lengths, seq):
    return torch.arange(seq)[None, :] < lengths[:, None]


def library_model(model, gain=1.0):
    """Draws the parameters of a Hugging Face model; tied ones are listed once."""
    parameters = dict(model.named_parameters())
    with torch.no_grad():
        for name, p in parameters.items():
            p.copy_(draw(tuple(p.shape), name, gain))
    return parameters


def gpt2():
    config = GPT2Config(vocab_size=V, n_positions=POSITIONS, n_embd=H, n_layer=LAYERS, n_head=HEADS, n_inner=WIDTH, resid_pdrop=0, embd_pdrop=0,
                        attn_pdrop=0, bos_token_id=None, eos_token_id=None, attn_implementation="eager")
    with Float64Mode():
        model = GPT2LMHeadModel(config).double()
        parameters = library_model(model)
        tokens, labels = ids(BATCH, SEQ), some_labels(BATCH, SEQ)
        loss = objective(model(tokens).logits, labels, 0.0, 0.0)
    keep("gpt2", dict(kind="gpt2"), parameters, loss, tokens, labels)


def llama():
    config = LlamaConfig(vocab_size=V, hidden_size=16, intermediate_size=WIDTH, num_hidden_layers=LAYERS, num_attention_heads=4, num_key_value_heads=2,
                         max_position_embeddings=POSITIONS, rms_norm_eps=1e-5, tie_word_embeddings=False, attn_implementation="eager")
    lengths = torch.tensor([8, 3, 6])
    with Float64Mode():
        model = LlamaForCausalLM(config).double()
        parameters = library_model(model)
        tokens, labels = ids(BATCH, SEQ), some_labels(BATCH, SEQ)
        labels[~real(lengths, SEQ)] = -100
        logits = model(tokens, attention_mask=real(lengths, SEQ).long()).logits
        loss = objective(logits, labels, 0.1, 0.01)
    keep("llama", dict(kind="llama", label_smoothing=0.1, z_loss=0.01), parameters, loss, tokens, labels, lengths)


def decoder(name, model_class, config, gain=1.0):
    """A causal model of the library, sequences of different lengths."""
    lengths = torch.tensor([8, 3, 6])
    with Float64Mode():
        model = model_class(config).double()
        parameters = library_model(model, gain)
        tokens, labels = ids(BATCH, SEQ), some_labels(BATCH, SEQ)
        labels[~real(lengths, SEQ)] = -100
        loss = objective(model(tokens, attention_mask=real(lengths, SEQ).long(), use_cache=False).logits, labels, 0.0, 0.0)
    keep(name, dict(kind=name), parameters, loss, tokens, labels, lengths, kept=np.float64)


def newer_decoders():
    common = dict(vocab_size=V, hidden_size=16, intermediate_size=WIDTH, num_attention_heads=4, num_key_value_heads=2, head_dim=6,
                  max_position_embeddings=POSITIONS, rms_norm_eps=1e-5, attn_implementation="eager", bos_token_id=None, eos_token_id=None, pad_token_id=None)
    plain = dict(rope_type="default", rope_theta=10000.0)
    decoder("qwen3", Qwen3ForCausalLM, Qwen3Config(**common, num_hidden_layers=LAYERS, tie_word_embeddings=False, rope_parameters=plain))
    # Scores and logits well into the bend of tanh.
    decoder("gemma2", Gemma2ForCausalLM, Gemma2Config(**common, num_hidden_layers=LAYERS, query_pre_attn_scalar=9, sliding_window=3, attn_logit_softcapping=2.0,
                                                      final_logit_softcapping=3.0, rope_parameters=plain), gain=0.0)
    decoder("gemma3", Gemma3ForCausalLM, Gemma3TextConfig(
        **common, num_hidden_layers=LAYERS, query_pre_attn_scalar=9, sliding_window=3, layer_types=["sliding_attention", "full_attention"],
        rope_parameters=dict(full_attention=plain, sliding_attention=dict(rope_type="default", rope_theta=5.0))), gain=0.0)


def t5(name, tied, feed_forward):
    """Lengths on both sides; two layers in the encoder, one in the decoder."""
    config = T5Config(vocab_size=V, d_model=H, d_kv=5, d_ff=WIDTH, num_layers=2, num_decoder_layers=1, num_heads=HEADS, relative_attention_num_buckets=8,
                      relative_attention_max_distance=6, feed_forward_proj=feed_forward, tie_word_embeddings=tied, dropout_rate=0.0,
                      decoder_start_token_id=0, attn_implementation="eager")
    lengths, source_lengths = torch.tensor([8, 3, 6]), torch.tensor([6, 2, 4])
    with Float64Mode():
        model = T5ForConditionalGeneration(config).double()
        if not tied:
            model.lm_head.weight = torch.nn.Parameter(torch.empty(V, H, dtype=torch.float64))
        parameters = library_model(model)
        tokens, labels, source = ids(BATCH, SEQ), some_labels(BATCH, SEQ), ids(BATCH, 6)
        labels[~real(lengths, SEQ)] = -100
        logits = model(input_ids=source, attention_mask=real(source_lengths, 6).long(), decoder_input_ids=tokens,
                       decoder_attention_mask=real(lengths, SEQ).long(), use_cache=False).logits
        loss = objective(logits, labels, 0.0, 0.0)
    keep(name, dict(kind=name), parameters, loss, tokens, labels, lengths, source, source_lengths, kept=np.float64)


class Layers:
    """Layers of torch.nn under our names: functional parameters, one per matrix, put into the library's modules."""

    def __init__(self):
        self.parameters = {}

    def new(self, name, *shape):
        self.parameters[name] = draw(shape, name).requires_grad_()
        return self.parameters[name]

    def norm(self, at):
        return {"weight": self.new(at + ".weight", H), "bias": self.new(at + ".bias", H)}

    def linear(self, at, n, m):
        return {"weight": self.new(at + ".weight", m, n), "bias": self.new(at + ".bias", m)}

    def attention(self, at):
        q, k, v = (self.linear(f"{at}.{x}_proj", H, H) for x in "qkv")
        o = self.linear(f"{at}.o_proj", H, H)
        return {"in_proj_weight": torch.cat([q["weight"], k["weight"], v["weight"]]), "in_proj_bias": torch.cat([q["bias"], k["bias"], v["bias"]]),
                "out_proj.weight": o["weight"], "out_proj.bias": o["bias"]}

    def layer(self, at, cross):
        """The state of a layer of torch.nn, parameters added in our order."""
        state = {}

        def put(prefix, parts):
            state.update({f"{prefix}.{name}": value for name, value in parts.items()})

        put("norm1", self.norm(at + "self_attn_norm"))
        put("self_attn", self.attention(at + "self_attn"))
        if cross:
            put("norm2", self.norm(at + "cross_attn_norm"))
            put("multihead_attn", self.attention(at + "cross_attn"))
        put("norm3" if cross else "norm2", self.norm(at + "mlp_norm"))
        put("linear1", self.linear(at + "mlp.up_proj", H, WIDTH))
        put("linear2", self.linear(at + "mlp.down_proj", WIDTH, H))
        return state


def call(module, state, *args, **options):
    return torch.func.functional_call(module, state, args, options)


def encoder():
    layers = Layers()
    embedding = layers.new("embed_tokens.weight", V, H)
    positions = layers.new("encoder.embed_positions.weight", POSITIONS, H)
    module = torch.nn.TransformerEncoderLayer(H, HEADS, WIDTH, dropout=0.0, activation="gelu", batch_first=True, norm_first=False).double()
    tokens, labels = ids(BATCH, SEQ), some_labels(BATCH, SEQ, 0.3)
    x = embedding[tokens] + positions[:SEQ]
    for i in range(LAYERS):
        x = call(module, layers.layer(f"encoder.layers.{i}.", False), x)
    loss = objective(x @ embedding.T, labels, 0.1, 0.0)
    keep("encoder", dict(kind="encoder", label_smoothing=0.1), layers.parameters, loss, tokens, labels)


def sinusoids(seq):
    position = torch.arange(seq, dtype=torch.float64)[:, None]
    frequency = torch.exp(torch.arange(0, H, 2, dtype=torch.float64) * (-math.log(10000.0) / H))
    return torch.stack([torch.sin(position * frequency), torch.cos(position * frequency)], -1).reshape(seq, H)


def seq2seq():
    layers = Layers()
    embedding = layers.new("embed_tokens.weight", V, H)
    options = dict(dropout=0.0, activation="relu", batch_first=True, norm_first=True)
    reads = torch.nn.TransformerEncoderLayer(H, HEADS, WIDTH, **options).double()
    writes = torch.nn.TransformerDecoderLayer(H, HEADS, WIDTH, **options).double()
    tokens, labels, source = ids(BATCH, SEQ), some_labels(BATCH, SEQ), ids(BATCH, 6)
    lengths, source_lengths = torch.tensor([8, 5, 2]), torch.tensor([6, 2, 4])
    labels[~real(lengths, SEQ)] = -100
    hidden_source = ~real(source_lengths, 6)
    memory = embedding[source] * math.sqrt(H) + sinusoids(6)
    for i in range(LAYERS):
        memory = call(reads, layers.layer(f"encoder.layers.{i}.", False), memory, src_key_padding_mask=hidden_source)
    last = layers.norm("encoder.norm")
    memory = torch.nn.functional.layer_norm(memory, (H,), last["weight"], last["bias"])
    x = embedding[tokens] * math.sqrt(H) + sinusoids(SEQ)
    later = torch.triu(torch.ones(SEQ, SEQ, dtype=torch.bool), 1)
    for i in range(LAYERS):
        x = call(writes, layers.layer(f"decoder.layers.{i}.", True), x, memory, tgt_mask=later, tgt_key_padding_mask=~real(lengths, SEQ),
                 memory_key_padding_mask=hidden_source)
    last = layers.norm("decoder.norm")
    x = torch.nn.functional.layer_norm(x, (H,), last["weight"], last["bias"])
    loss = objective(x @ embedding.T, labels, 0.0, 0.0)
    keep("seq2seq", dict(kind="seq2seq"), layers.parameters, loss, tokens, labels, lengths, source, source_lengths)


def main():
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir(parents=True)
    gpt2()
    llama()
    encoder()
    seq2seq()
    newer_decoders()
    t5("t5", True, "relu")
    t5("t5_gated", False, "gated-gelu")
    (OUT / "cases.json").write_text(json.dumps(CASES) + "\n")


if __name__ == "__main__":
    main()
