"""Writes dequantize.bin: random blocks of every type and the floats that they stand for, according to
the Python package `gguf` (pip install gguf numpy). Run from anywhere; the result is reproducible.

For each type: length of its name (u32), name, number of block bytes (u32), blocks, number of floats
(u32), floats (f32). Little-endian.
"""

import pathlib
import struct

import gguf
import numpy as np

BLOCKS = 6

# Where the f16 fields of a block lie.
HALVES = {
    "F32": [],
    "F16": [0],
    "BF16": [],
    "Q4_0": [0],
    "Q4_1": [0, 2],
    "Q5_0": [0],
    "Q5_1": [0, 2],
    "Q8_0": [0],
    "Q4_K": [0, 2],
    "Q5_K": [0, 2],
    "Q6_K": [208],
    "Q2_K": [80, 82],
    "Q3_K": [108],
    "IQ4_NL": [0],
    "IQ4_XS": [0],
    "MXFP4": [],
    "IQ2_XXS": [0],
    "IQ2_XS": [0],
    "IQ2_S": [0],
    "IQ3_XXS": [0],
    "IQ3_S": [0],
    "NVFP4": [],
}
# Exponents of MXFP4's blocks: subnormal scales, ordinary ones, and one where most values are
# infinite. 255 means NaN in the format, which the package does not know.
EXPONENTS = [0, 1, 2, 119, 130, 254]


def blocks_of(name, size, rng):
    count = BLOCKS * 32 if size <= 4 else BLOCKS
    data = rng.integers(0, 256, (count, size), dtype=np.uint8)
    if name == "F32":
        data = rng.normal(size=count).astype("<f4").view(np.uint8).reshape(count, 4)
    if name == "BF16":
        data[:, 1] &= 0x3F  # no infinities, no NaN
    if name == "NVFP4":
        data[0, :4] = [0, 1, 7, 8]  # no scale, the least and the largest subnormal, the least normal
        data[2, 1] = 0xFF  # a sign and E4M3's NaN, which ggml takes for 480
        data[1, :4] = [0x7E, 0x7F, 0x38, 0x80]  # the largest, NaN, which ggml takes for 0, 1, a sign
    if name == "MXFP4":
        data[:, 0] = EXPONENTS
    for i in range(count):
        # Ordinary scales, a negative one, a subnormal, zero, the largest.
        scale = [0.0123, -1.5, 3e-6, 0.0, 65504.0, 0.9][i % 6]
        for at in HALVES[name]:
            value = np.float16(scale * (1 if scale in (0.0, 65504.0) else rng.uniform(0.5, 1.0)))
            data[i, at : at + 2] = np.frombuffer(value.tobytes(), np.uint8)
    return data


def main():
    rng = np.random.default_rng(20240607)
    out = bytearray()
    for name in HALVES:
        kind = gguf.GGMLQuantizationType[name]
        data = blocks_of(name, gguf.GGML_QUANT_SIZES[kind][1], rng)
        floats = gguf.dequantize(data.reshape(1, -1), kind).astype("<f4").ravel()
        out += struct.pack("<I", len(name)) + name.encode()
        out += struct.pack("<I", data.size) + data.tobytes()
        out += struct.pack("<I", floats.size) + floats.tobytes()
    pathlib.Path(__file__).with_name("dequantize.bin").write_bytes(out)


if __name__ == "__main__":
    main()
