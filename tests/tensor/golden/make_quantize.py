"""Writes quantize.bin: floats, and the blocks that the Python package `gguf` makes of them (its Q8_0
is bit for bit ggml's reference; pip install gguf numpy). Run from anywhere; the result is
reproducible.

Number of floats (u32), floats (f32); then for each type: length of its name (u32), name, number of
block bytes (u32), blocks. Little-endian.
"""

import pathlib
import struct

import gguf
import numpy as np

TYPES = ["F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"]
LARGEST = 65504.0  # that every type takes


def blocks_of(rng):
    blocks = []
    for exponent in (-110, -30, -24, -14, -7, 0, 7, 14):
        for _ in range(6):
            blocks.append(rng.normal(size=32) * 2.0**exponent)
    blocks += [np.zeros(32), np.full(32, 1.5), np.full(32, -0.3)]
    # Values in the middle between two codes, for each of the types.
    blocks.append((np.arange(32) - 16 + 0.5) * 0.25)
    for levels in (7, 8, 15, 16, 31, 127):
        blocks.append(np.append(np.arange(31) % levels + 0.5, levels))
        blocks.append(np.append(-(np.arange(31) % levels) - 0.5, levels))
    # The largest magnitude of either sign, and of both: the first one counts.
    for signs in ((1, -1), (-1, 1), (1, 1), (-1, -1)):
        block = rng.uniform(-1, 1, 32)
        block[5], block[20] = 2.5 * signs[0], 2.5 * signs[1]
        blocks.append(block)
    # One value far from the others, subnormal ones, the largest.
    spike = rng.normal(size=32) * 1e-3
    spike[31] = 100.0
    blocks.append(spike)
    subnormal = rng.normal(size=32) * 1e-40
    subnormal[3] = 2.0**-100
    blocks.append(subnormal)
    blocks.append(rng.uniform(-1, 1, 32) * 2.0**-119)  # scales that are subnormal in f32
    blocks.append(rng.uniform(-1, 1, 32) * LARGEST)
    blocks.append(np.where(np.arange(32) % 2 == 0, LARGEST, -LARGEST))
    blocks.append(np.append(np.full(31, -LARGEST), LARGEST))
    return np.stack(blocks).astype("<f4")


def main():
    floats = blocks_of(np.random.default_rng(20241121)).reshape(1, -1)
    out = bytearray(struct.pack("<I", floats.size) + floats.tobytes())
    for name in TYPES:
        blocks = gguf.quantize(floats, gguf.GGMLQuantizationType[name]).tobytes()
        out += struct.pack("<I", len(name)) + name.encode()
        out += struct.pack("<I", len(blocks)) + blocks
    pathlib.Path(__file__).with_name("quantize.bin").write_bytes(out)


if __name__ == "__main__":
    main()
