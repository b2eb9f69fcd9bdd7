#!/usr/bin/env python3
"""What a pass of an 8B model of Llama's shape should take on a GPU, from bytes, instructions and launches:

  scripts/cuda/estimate.py [--rows 1,8,16,32]

Each product takes as long as its weights take from memory, or as its instructions take to issue, whichever is longer;
each kernel adds what its begin and end cost. Instructions are those that check_sass.py counts in the machine code
(sass_limits.json, for sm_80 and sm_90). A measurement (`aerie bench verify --shape llama-8b --device cuda:0`) confirms
or refutes it: docs/cuda.md has both.
"""

import argparse
import dataclasses
import json
import pathlib
import re

LIMITS = pathlib.Path(__file__).resolve().with_name("sass_limits.json")
LAYERS = 32
# Outputs and inputs of the products of a layer, and of the output matrix.
PRODUCTS = [(6144, 4096), (4096, 4096), (28672, 4096), (4096, 14336)]
OUTPUT = (128256, 4096)
BYTES = {"kBf16": 2.0, "kQ4": 18 / 32}  # of a weight
KERNELS = 6 * LAYERS + 4  # of a pass
# What a kernel costs beside its work when the next one is let begin before it ends: the wait for the one before, the
# first bytes' way from memory, the sums of a block's warps. As measured on an H200, 2026-11-26: a pass of bfloat16
# less the time of its weights.
SECONDS_OF_KERNEL = 2.2e-6
ISSUED = 0.75  # of the slots of a processor's four schedulers, the most that was seen


@dataclasses.dataclass
class Gpu:
    name: str
    arch: str
    processors: int
    hertz: float
    bandwidth: float  # bytes a second that a copy reaches: nine tenths of the data sheet's


GPUS = [
    Gpu("H100 SXM", "sm_90", 132, 1.75e9, 3.0e12),
    Gpu("H200", "sm_90", 132, 1.75e9, 4.3e12),
    Gpu("RTX 4090", "sm_80", 128, 2.5e9, 0.9e12),
    Gpu("RTX 3060", "sm_80", 28, 1.78e9, 0.32e12),
]


def slots_of(arch, kind, rows):
    """Instructions of a warp for 1,024 weights and so many rows, in the kernel that takes them."""
    tiles = max(1, -(-rows // 8))
    pattern = re.compile(rf"product_kernel<{kind}, \d, (\d)\b.*>")
    slots = {}
    for name, limit in json.loads(LIMITS.read_text())[arch].items():
        found = pattern.fullmatch(name)
        if found and int(found[1]) >= tiles:
            known = slots.setdefault(int(found[1]), [])
            known.append(limit["slots"])
    return min(slots[min(slots)])


def milliseconds(gpu, kind, rows):
    slots = slots_of(gpu.arch, kind, rows)
    total = 0.0
    for outputs, inputs, count in [(n, k, LAYERS) for n, k in PRODUCTS] + [(*OUTPUT, 1)]:
        weights = outputs * inputs
        memory = weights * BYTES[kind] / gpu.bandwidth
        issue = weights / 1024 * slots / (4 * ISSUED * gpu.processors * gpu.hertz)
        total += count * max(memory, issue)
    return 1e3 * (total + KERNELS * SECONDS_OF_KERNEL)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rows", default="1,8,16,32", help="numbers of rows, with commas between them")
    rows = [int(one) for one in parser.parse_args().rows.split(",")]
    print("| | | " + " | ".join(f"{one} rows" if one > 1 else "1 row" for one in rows) + " |")
    print("|---|---|" + "---|" * len(rows))
    for gpu in GPUS:
        for kind in BYTES:
            figures = [f"{milliseconds(gpu, kind, one):.2f}" for one in rows]
            if BYTES[kind] * sum(n * k for n, k in PRODUCTS) * LAYERS > 11e9 and gpu.name == "RTX 3060":
                figures = ["no room"] * len(rows)
            print(f"| {gpu.name} | {kind[1:].upper()} | " + " | ".join(figures) + " |")


if __name__ == "__main__":
    main()
