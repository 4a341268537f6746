"""Make tests/golden/blocks: random blocks of every GGUF type that is read, and their values.

TYPE.bytes.npy   uint8 [8, bytes per block]   (F16, BF16: [64, 2]) TYPE.values.npy  float32 [8, values per block],
from gguf.quants.dequantize; equality is exact Scales are finite: random signs and exponents, a subnormal one, a zero
one. F16 and BF16 have both zeros, the smallest and the largest finite values among them.

Run:  python blocks.py
Made with gguf 0.19.0, numpy 2.4.6.
"""

import pathlib
import shutil

import gguf
import numpy as np

OUT = pathlib.Path(__file__).resolve().parents[2] / "tests" / "golden" / "blocks"
# Byte offsets of the float16 scales within a block.
SCALES = dict(Q4_0=[0], Q4_1=[0, 2], Q5_0=[0], Q5_1=[0, 2], Q8_0=[0], Q4_K=[0, 2], Q5_K=[0, 2], Q6_K=[208])


def main():
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir(parents=True)
    rng = np.random.default_rng(99)
    for name in ["F16", "BF16", *SCALES]:
        kind = gguf.GGMLQuantizationType[name]
        _, size = gguf.GGML_QUANT_SIZES[kind]
        if name in SCALES:
            blocks = rng.integers(0, 256, (8, size), np.uint8)
            for offset in SCALES[name]:
                scale = (rng.standard_normal(8) * 2.0 ** rng.integers(-9, 5, 8)).astype(np.float16)
                scale[6] = np.float16(3e-6)
                scale[7] = 0
                blocks[:, offset : offset + 2] = scale[:, None].view(np.uint8)
        else:
            bits = rng.integers(0, 65536, 64).astype(np.uint16)
            exponent = 0x7C00 if name == "F16" else 0x7F80
            bits[(bits & exponent) == exponent] ^= 0x4000
            bits[:6] = [0x0000, 0x8000, 0x0001, 0x8001, exponent - 1, (exponent - 1) | 0x8000]
            blocks = bits[:, None].view(np.uint8)
        values = gguf.quants.dequantize(blocks.view(np.float16) if name == "F16" else blocks, kind).astype(np.float32)
        assert np.isfinite(values).all() and len(np.unique(values)) > 16
        np.save(OUT / f"{name}.bytes.npy", blocks)
        np.save(OUT / f"{name}.values.npy", values)
        print(name, blocks.shape, values.shape)


if __name__ == "__main__":
    main()
