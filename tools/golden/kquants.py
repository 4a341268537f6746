"""Plain encoders of the K-quant blocks that PyPI `gguf` can only decode: Q4_K, Q5_K, Q6_K.

They round to the nearest representable value with simple scales (no search), which is enough for tests: what counts
is that the bytes are valid blocks. Every result is decoded with `gguf.quants.dequantize` by the callers.
"""

import gguf
import numpy as np

TYPES = gguf.GGMLQuantizationType


def _f16(x):
    return x.astype(np.float16)


def _pack_scales(sc, mn):
    """Eight 6-bit scales and minima per block [n, 8] -> 12 bytes."""
    out = np.zeros((len(sc), 12), np.uint8)
    out[:, 0:4] = sc[:, :4] | (sc[:, 4:] >> 4) << 6
    out[:, 4:8] = mn[:, :4] | (mn[:, 4:] >> 4) << 6
    out[:, 8:12] = (sc[:, 4:] & 15) | (mn[:, 4:] & 15) << 4
    return out


def _asymmetric(values, top):
    """d, dmin, sc, mn, q of blocks [n, 256] with y = d*sc*q - dmin*mn, q in 0..top."""
    sub = values.reshape(-1, 8, 32)
    low = np.maximum(-sub.min(-1), 0)
    scale = (sub.max(-1) + low) / top
    d = _f16(scale.max(-1) / 63)
    dmin = _f16(low.max(-1) / 63)
    with np.errstate(divide="ignore", invalid="ignore"):
        sc = np.nan_to_num(np.rint(scale / d.astype(np.float64)[:, None])).clip(0, 63).astype(np.uint8)
        mn = np.nan_to_num(np.rint(low / dmin.astype(np.float64)[:, None])).clip(0, 63).astype(np.uint8)
        step = d.astype(np.float64)[:, None, None] * sc[..., None]
        q = (
            np.nan_to_num(np.rint((sub + dmin.astype(np.float64)[:, None, None] * mn[..., None]) / step))
            .clip(0, top)
            .astype(np.uint8)
        )
    return d, dmin, sc, mn, q


def _low_nibbles(q):
    """[n, 8, 32] four-bit values -> [n, 128]: sub-blocks 2k and 2k+1 share 32 bytes."""
    return (q[:, 0::2] | q[:, 1::2] << 4).reshape(-1, 128)


def q4_k(values):
    d, dmin, sc, mn, q = _asymmetric(values, 15)
    return np.concatenate(
        [d.view(np.uint8).reshape(-1, 2), dmin.view(np.uint8).reshape(-1, 2), _pack_scales(sc, mn), _low_nibbles(q)], 1
    )


def q5_k(values):
    d, dmin, sc, mn, q = _asymmetric(values, 31)
    high = np.zeros((len(values), 32), np.uint8)
    for i in range(8):
        high |= (q[:, i] >> 4) << i
    return np.concatenate(
        [
            d.view(np.uint8).reshape(-1, 2),
            dmin.view(np.uint8).reshape(-1, 2),
            _pack_scales(sc, mn),
            high,
            _low_nibbles(q & 15),
        ],
        1,
    )


def q6_k(values):
    sub = values.reshape(-1, 16, 16)
    largest = np.take_along_axis(sub, np.abs(sub).argmax(-1)[..., None], -1)[..., 0]
    scale = largest / -32
    d = _f16(np.abs(scale).max(-1) / 127)
    with np.errstate(divide="ignore", invalid="ignore"):
        sc = np.nan_to_num(np.rint(scale / d.astype(np.float64)[:, None])).clip(-128, 127).astype(np.int8)
        q = np.nan_to_num(np.rint(sub / (d.astype(np.float64)[:, None, None] * sc[..., None]))).clip(-32, 31)
    q = (q.reshape(-1, 2, 4, 32) + 32).astype(np.uint8)  # [n, half, t, l]
    low = np.concatenate(
        [q[:, :, 0] & 15 | (q[:, :, 2] & 15) << 4, q[:, :, 1] & 15 | (q[:, :, 3] & 15) << 4], -1
    ).reshape(-1, 128)
    high = (q[:, :, 0] >> 4 | (q[:, :, 1] >> 4) << 2 | (q[:, :, 2] >> 4) << 4 | (q[:, :, 3] >> 4) << 6).reshape(-1, 64)
    return np.concatenate([low, high, sc.view(np.uint8).reshape(-1, 16), d.view(np.uint8).reshape(-1, 2)], 1)


def quantize(values, kind):
    """Rows [..., n] of float32 as bytes [..., m] (or float16/float32 arrays) of the GGUF type `kind`."""
    kind = TYPES[kind]
    if kind in (TYPES.Q4_K, TYPES.Q5_K, TYPES.Q6_K):
        encode = {TYPES.Q4_K: q4_k, TYPES.Q5_K: q5_k, TYPES.Q6_K: q6_k}[kind]
        blocks = encode(values.reshape(-1, 256).astype(np.float64))
        return np.ascontiguousarray(blocks).reshape(*values.shape[:-1], -1)
    return gguf.quants.quantize(np.ascontiguousarray(values, np.float32), kind)
