"""Make tests/golden/numeric: small inputs and float64 results for the operators of the kernels and positions.

cases.json lists every case: {"name", "kind", parameters ..., "files": {role: file name}}. Inputs are float32 (so that
a float32 kernel gets them exactly), results float64. Kinds and the roles of their files:

  softmax      x [rows, n] -> y                          over the last axis; entries may be -inf, never a whole row
  layer_norm   x [rows, n], weight [n], bias [n] -> y    eps inside the root
  rms_norm     x [rows, n], weight [n] -> y              eps inside the root
  silu, gelu_erf, gelu_tanh    x [n] -> y                mpmath with 60 digits; torch agrees
  attention    q [B, Hq, N, D], k [B, Hkv, M, D], v [B, Hkv, M, Dv], mask? bool [B, 1, N, M] (true: may look)
               -> out [B, Hq, N, Dv], lse [B, Hq, N]
               score = softcap * tanh(scale * q.k / softcap), or scale * q.k where softcap is 0
               query head h reads key head h / (Hq / Hkv)
               causal: key j is visible to query i iff k_begin + j <= q_begin + i
               lse is the natural log of the sum; an empty row has out 0, lse -inf
  rope         x [heads, n, dim], positions [n] -> inv_freq [rotated / 2], y
               the leading `rotated` dims of each head are turned; cos and sin are multiplied by attention_factor
               layout: half (pairs i, i + rotated / 2) or interleaved (pairs 2i, 2i + 1)
               attention_factor_given: the configuration states the factor (else it follows from the other fields)
               length: the declared length, for methods that depend on it (dynamic, longrope)
  sinusoidal   positions [n] -> y [n, dim]; the angle is (position + first_position) * frequency_j
               layout interleaved:      sin, cos side by side;      frequency 10000^(-2j/dim)
               layout halves:           all sines, then all cosines; same frequencies
               layout halves_endpoint:  all sines, then all cosines; frequency 10000^(-j/(dim/2-1))

Norms, softmax and attention come from torch in float64 (attention written out, and equal to torch's own where that
has the feature), RoPE frequencies and rotations from transformers' functions in true float64 (float64.py) and again
with complex numbers, sinusoids from numpy, compared with the tables of transformers' Marian and M2M100.

Run:  python numeric.py
Made with torch 2.15.0, transformers 5.24.0, mpmath 1.3, numpy 2.4.6.
"""

import json
import math
import pathlib
import shutil

import mpmath
import numpy as np
import torch
import torch.nn.functional as F
import transformers
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.glm.modeling_glm import apply_rotary_pos_emb as rotate_interleaved
from transformers.models.glm4_moe.modeling_glm4_moe import apply_rotary_pos_emb as rotate_half_split
from transformers.models.m2m_100.modeling_m2m_100 import M2M100SinusoidalPositionalEmbedding
from transformers.models.marian.modeling_marian import MarianSinusoidalPositionalEmbedding

from float64 import Float64Mode

OUT = pathlib.Path(__file__).resolve().parents[2] / "tests" / "golden" / "numeric"
RNG = np.random.default_rng(2026)
CASES = []


def save(name, kind, inputs, results, **parameters):
    files = {}
    for role, value in {**inputs, **results}.items():
        value = np.asarray(value)
        if role in results:
            assert value.dtype == np.float64, (name, role, value.dtype)
            assert role == "lse" or np.isfinite(value).all(), (name, role)
        files[role] = f"{name}.{role}.npy"
        np.save(OUT / files[role], value)
    CASES.append(dict(name=name, kind=kind, **parameters, files=files))


def gauss(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def wide(x):
    return torch.from_numpy(np.asarray(x)).double()


def softmax_cases():
    x = np.concatenate(
        [gauss(2, 37), gauss(1, 37) * 100, np.full((1, 37), 5), gauss(1, 37) * 1e4, np.zeros((1, 37))]
    ).astype(np.float32)
    one = np.zeros((2, 37), np.float32)
    one[0, 11] = 80
    one[1, 36] = 1e30
    cut = gauss(2, 37)
    cut[0, :36] = -np.inf
    cut[1, ::2] = -np.inf
    x = np.concatenate([x, one, cut])
    save("softmax", "softmax", dict(x=x), dict(y=torch.softmax(wide(x), -1).numpy()))
    x = gauss(3, 1) * 50
    save("softmax_one", "softmax", dict(x=x), dict(y=torch.softmax(wide(x), -1).numpy()))


def norm_cases():
    for n, eps in ((1, 1e-5), (33, 1e-5), (40, 1e-12)):
        x = np.concatenate(
            [
                gauss(3, n),
                gauss(1, n) * 1e4,
                gauss(1, n) * 1e-6,
                gauss(1, n) + 1000,
                np.zeros((1, n)),
                np.full((1, n), 7),
            ]
        ).astype(np.float32)
        weight, bias = 1 + gauss(n) / 3, gauss(n) / 3
        y = F.layer_norm(wide(x), (n,), wide(weight), wide(bias), eps)
        save(f"layer_norm_{n}", "layer_norm", dict(x=x, weight=weight, bias=bias), dict(y=y.numpy()), eps=eps)
        y = F.rms_norm(wide(x), (n,), wide(weight), eps)
        save(f"rms_norm_{n}", "rms_norm", dict(x=x, weight=weight), dict(y=y.numpy()), eps=eps)


def activation_cases():
    extremes = [
        0.0,
        1e-45,
        1e-40,
        1e-38,
        1e-20,
        1e-8,
        1e-4,
        5.5,
        8.3,
        13.0,
        37.5,
        38.6,
        87.3,
        88.0,
        88.8,
        103.9,
        104.1,
        150,
        1e3,
        1e4,
        1e18,
        1e30,
        3e38,
    ]
    x = np.concatenate([np.linspace(-12, 12, 241), extremes, np.negative(extremes)]).astype(np.float32)
    mpmath.mp.dps = 60
    half, root = mpmath.mpf(1) / 2, mpmath.sqrt(2)

    def silu(v):
        return v / (1 + mpmath.exp(-v))

    def gelu_erf(v):
        return half * v * mpmath.erfc(-v / root)

    def gelu_tanh(v):
        # 1 + tanh(u) = 2 / (1 + exp(-2u)): no cancellation on the negative side.
        u = mpmath.sqrt(2 / mpmath.pi) * (v + mpmath.mpf("0.044715") * v**3)
        return v / (1 + mpmath.exp(-2 * u))

    torch_of = dict(silu=F.silu, gelu_erf=F.gelu, gelu_tanh=lambda t: F.gelu(t, approximate="tanh"))
    for name, function in dict(silu=silu, gelu_erf=gelu_erf, gelu_tanh=gelu_tanh).items():
        y = np.array([float(function(mpmath.mpf(float(v)))) if abs(v) < 1e6 else max(float(v), 0.0) for v in x])
        other = torch_of[name](wide(x)).numpy()
        assert np.allclose(y, other, rtol=1e-14, atol=2e-14), name
        save(name, name, dict(x=x), dict(y=y))


def attention(q, k, v, scale, softcap=None, visible=None):
    """Written out in float64; `visible` bool, broadcast to [B, Hq, N, M]."""
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    scores = scale * q @ k.transpose(-1, -2)
    if softcap:
        scores = softcap * torch.tanh(scores / softcap)
    if visible is not None:
        scores = scores.masked_fill(~visible, -math.inf)
    lse = torch.logsumexp(scores, -1)
    weights = torch.exp(scores - torch.where(lse.isinf(), 0.0, lse)[..., None])
    return weights @ v, lse


def attention_cases():
    def case(name, q, k, v, scale=None, softcap=None, mask=None, q_begin=None, k_begin=0):
        q_len, kv_len, dim = q.shape[2], k.shape[2], q.shape[3]
        visible = None
        if q_begin is not None:
            visible = k_begin + torch.arange(kv_len)[None] <= q_begin + torch.arange(q_len)[:, None]
        if mask is not None:
            visible = wide(mask).bool() if visible is None else wide(mask).bool() & visible
        used = dim**-0.5 if scale is None else scale
        out, lse = attention(wide(q), wide(k), wide(v), used, softcap, visible)
        if not softcap:
            group = q.shape[1] // k.shape[1]
            again = F.scaled_dot_product_attention(
                wide(q), wide(k).repeat_interleave(group, 1), wide(v).repeat_interleave(group, 1), visible, scale=used
            )
            again = torch.where(lse.isinf()[..., None], 0.0, again)
            assert torch.allclose(out, again, rtol=1e-11, atol=1e-11), name
        inputs = dict(q=q, k=k, v=v) if mask is None else dict(q=q, k=k, v=v, mask=mask)
        save(
            f"attention_{name}",
            "attention",
            inputs,
            dict(out=out.numpy(), lse=lse.numpy()),
            scale=used,
            softcap=softcap or 0.0,
            causal=q_begin is not None,
            q_begin=q_begin or 0,
            k_begin=k_begin,
        )

    case("full", gauss(2, 4, 5, 8), gauss(2, 4, 7, 8), gauss(2, 4, 7, 8))
    case("gqa_causal", gauss(1, 6, 9, 8), gauss(1, 2, 9, 8), gauss(1, 2, 9, 8), q_begin=0)
    case("mqa_causal_offset", gauss(2, 3, 4, 8), gauss(2, 1, 13, 8), gauss(2, 1, 13, 8), q_begin=9)
    case(
        "causal_short_cache", gauss(1, 2, 6, 8), gauss(1, 2, 3, 8), gauss(1, 2, 3, 8), q_begin=0, k_begin=2
    )  # rows 0 and 1 see nothing
    case("value_dim", gauss(1, 2, 5, 8), gauss(1, 2, 6, 8), gauss(1, 2, 6, 13))
    case("scale", gauss(1, 2, 5, 33), gauss(1, 2, 6, 33), gauss(1, 2, 6, 33), scale=0.3)
    case("softcap", gauss(1, 2, 5, 8) * 4, gauss(1, 2, 6, 8) * 4, gauss(1, 2, 6, 8), softcap=2.5)
    case("large_scores", gauss(1, 2, 5, 8) * 60, gauss(1, 2, 6, 8) * 60, gauss(1, 2, 6, 8), scale=1.0)
    mask = RNG.random((2, 1, 6, 9)) < 0.6
    mask[0, 0, 2] = False
    mask[1, 0, 5] = False
    mask[1, 0, 0] = np.arange(9) == 8
    case("mask_empty_row", gauss(2, 4, 6, 8), gauss(2, 2, 9, 8), gauss(2, 2, 9, 8), mask=mask)
    case(
        "everything",
        gauss(2, 4, 6, 8) * 3,
        gauss(2, 2, 9, 8),
        gauss(2, 2, 9, 5),
        scale=0.5,
        softcap=3.0,
        mask=mask,
        q_begin=3,
    )
    case("long_row", gauss(1, 1, 2, 2), gauss(1, 1, 600, 2), gauss(1, 1, 600, 2), q_begin=598)


POSITIONS = np.array([0, 1, 2, 7, 31, 32, 33, 63, 100, 1023, 8191, 131071])


def rope_cases():
    def case(name, rotated, dim, layout, theta=10000.0, length=None, max_position=256, **parameters):
        kind = parameters.get("rope_type", "default")
        config = transformers.LlamaConfig(
            hidden_size=4 * rotated,
            num_attention_heads=4,
            head_dim=rotated,
            max_position_embeddings=max_position,
            rope_parameters=dict(parameters, rope_type=kind, rope_theta=theta),
        )
        with Float64Mode():
            if kind == "default":
                inv_freq, factor = 1.0 / theta ** (torch.arange(0, rotated, 2).double() / rotated), 1.0
                llama = transformers.models.llama.modeling_llama.LlamaRotaryEmbedding(config)
                assert torch.allclose(inv_freq, llama.inv_freq, rtol=1e-15) and llama.attention_scaling == 1.0
            else:
                inv_freq, factor = ROPE_INIT_FUNCTIONS[kind](config, torch.device("cpu"), seq_len=length)
            x = gauss(2 if dim <= 16 else 1, len(POSITIONS), dim)
            angle = wide(POSITIONS)[:, None] * inv_freq[None]
            angle = torch.cat([angle, angle], -1)
            cos, sin = (angle.cos() * factor)[None], (angle.sin() * factor)[None]
            rotate = rotate_half_split if layout == "half" else rotate_interleaved
            y, _ = rotate(wide(x)[None], wide(x)[None], cos, sin)
            part = wide(x)[..., :rotated]
            pairs = part.unflatten(-1, (2, -1)).transpose(-1, -2) if layout == "half" else part.unflatten(-1, (-1, 2))
            turned = torch.view_as_complex(pairs.contiguous()) * torch.polar(
                torch.tensor(float(factor)), angle[:, : rotated // 2]
            )
            turned = torch.view_as_real(turned)
            turned = (turned.transpose(-1, -2) if layout == "half" else turned).flatten(-2)
            assert torch.allclose(y[0], torch.cat([turned, wide(x)[..., rotated:]], -1), rtol=1e-14, atol=1e-14)
        save(
            f"rope_{name}",
            "rope",
            dict(x=x, positions=POSITIONS),
            dict(inv_freq=inv_freq.numpy(), y=y[0].numpy()),
            layout=layout,
            rotated=rotated,
            theta=theta,
            length=length or 0,
            max_position=max_position,
            **dict(
                parameters,
                rope_type=kind,
                attention_factor=float(factor),
                attention_factor_given="attention_factor" in parameters,
            ),
        )

    case("half", 8, 8, "half")
    case("interleaved", 8, 8, "interleaved")
    case("half_partial", 8, 16, "half")
    case("interleaved_partial", 8, 16, "interleaved")
    case("linear", 8, 8, "half", rope_type="linear", factor=4.0)
    case("dynamic_short", 8, 8, "half", rope_type="dynamic", factor=2.0, max_position=32, length=20)
    case("dynamic_long", 8, 8, "half", rope_type="dynamic", factor=2.0, max_position=32, length=100)
    llama3 = dict(
        rope_type="llama3",
        theta=500000.0,
        factor=8.0,
        low_freq_factor=1.0,
        high_freq_factor=4.0,
        original_max_position_embeddings=8192,
    )
    case("llama3", 32, 32, "half", max_position=131072, **llama3)
    yarn = dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=4096, max_position=16384)
    case("yarn", 32, 32, "half", **yarn)
    case("yarn_betas", 32, 32, "interleaved", beta_fast=16.0, beta_slow=2.0, **yarn)
    case("yarn_attention_factor", 16, 16, "half", attention_factor=0.75, **yarn)
    case("yarn_mscale", 16, 16, "half", mscale=0.7, mscale_all_dim=1.0, **yarn)
    longrope = dict(
        rope_type="longrope",
        factor=8.0,
        original_max_position_embeddings=32,
        short_factor=[1.0, 1.1, 1.5, 2.0],
        long_factor=[1.0, 2.0, 4.0, 8.0],
    )
    case("longrope_short", 8, 8, "half", length=32, **longrope)
    case("longrope_long", 8, 8, "half", length=33, **longrope)


def sinusoidal_cases():
    index = np.array([0, 1, 2, 3, 5, 8, 13, 63, 511])
    for dim in (2, 10):
        for name, layout, first in (
            ("paper", "interleaved", 0),
            ("marian", "halves", 0),
            ("endpoint", "halves_endpoint", 0),
            ("endpoint_2", "halves_endpoint", 2),
        ):
            if layout == "halves_endpoint" and dim == 2:
                continue  # dim / 2 - 1 is 0
            j = np.arange(dim // 2)
            frequency = 10000.0 ** (-2.0 * j / dim if layout != "halves_endpoint" else -j / (dim // 2 - 1.0))
            angle = (index + first)[:, None] * frequency
            if layout == "interleaved":
                y = np.stack([np.sin(angle), np.cos(angle)], -1).reshape(len(index), dim)
            else:
                y = np.concatenate([np.sin(angle), np.cos(angle)], -1)
            if layout == "halves":
                with torch.no_grad():
                    table = MarianSinusoidalPositionalEmbedding(512, dim)
                    weight = table.create_weight() if hasattr(table, "create_weight") else table._init_weight()
                assert np.allclose(weight[index].numpy(), y, atol=1e-6)
            if layout == "halves_endpoint":
                table = M2M100SinusoidalPositionalEmbedding.get_embedding(520, dim, None)
                assert np.allclose(table[index + first].numpy(), y, atol=1e-4)
            save(
                f"sinusoidal_{name}_{dim}",
                "sinusoidal",
                dict(positions=index),
                dict(y=y),
                layout=layout,
                first_position=first,
                dim=dim,
            )


if __name__ == "__main__":
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir(parents=True)
    softmax_cases()
    norm_cases()
    activation_cases()
    attention_cases()
    rope_cases()
    sinusoidal_cases()
    (OUT / "cases.json").write_text("[\n" + ",\n".join(json.dumps(case) for case in CASES) + "\n]\n")
    size = sum(path.stat().st_size for path in OUT.iterdir())
    print(f"{len(CASES)} cases, {size} bytes in {len(list(OUT.iterdir()))} files")
