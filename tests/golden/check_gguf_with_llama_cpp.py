#!/usr/bin/env python3
"""Are the GGUF files that `aerie convert` writes what llama.cpp expects? Run by hand, not by CI.

    python tests/golden/check_gguf_with_llama_cpp.py [--aerie build/release/bin/aerie] [FOLDER ...]

For every tiny model of families/: a folder with its files and a small tokenizer becomes a GGUF file, llama.cpp
computes the recorded sequences from it (32-bit keys and values, no flash attention, one batch, an empty cache), and its
logits are compared with those of golden.bin, which transformers computed. Prints a table: the mean and the largest KL
divergence over the positions, and how many likeliest tokens agree. Weights are converted to F32 before (llama.cpp
would round activations to the weights' 16 bits).
"""

import argparse
import json
import shutil
import struct
import subprocess
import tempfile
from pathlib import Path

import llama_cpp as L
import numpy as np

import llama_common as common

FAMILIES = common.GOLDEN / "families"


def read_golden(path):
    """[(token ids, logits [length, vocab])]"""
    data = path.read_bytes()
    assert data[:8] == b"AERIELGT"
    _, vocab, count = struct.unpack_from("<3I", data, 8)
    at, sequences = 20, []
    for _ in range(count):
        (length,) = struct.unpack_from("<I", data, at)
        tokens = np.frombuffer(data, "<i4", length, at + 4)
        logits = np.frombuffer(data, "<f4", length * vocab, at + 4 + 4 * length)
        sequences.append((tokens, logits.reshape(length, vocab)))
        at += 4 + 4 * length * (1 + vocab)
    assert at == len(data)
    return sequences


def tokenizer(vocab):
    """A tokenizer.json of Llama 2's kind with fewer tokens than the model has: the rest is filled up."""
    # llama.cpp looks for the last of these in a Phi-3.
    names = ["<unk>", "<s>", "</s>", "<|endoftext|>", "\u2581"] + [chr(c) for c in range(ord("!"), ord("~") + 1)]
    names = names[: vocab - 3]
    special = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return {
        "version": "1.0",
        "added_tokens": [{"id": i, "content": names[i], **special} for i in range(4)],
        "normalizer": {
            "type": "Sequence",
            "normalizers": [
                {"type": "Prepend", "prepend": "\u2581"},
                {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"},
            ],
        },
        "pre_tokenizer": None,
        "post_processor": None,
        "decoder": {
            "type": "Sequence",
            "decoders": [
                {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "},
                {"type": "ByteFallback"},
                {"type": "Fuse"},
                {"type": "Strip", "content": " ", "start": 1, "stop": 0},
            ],
        },
        "model": {
            "type": "BPE", "dropout": None, "unk_token": "<unk>", "continuing_subword_prefix": None,
            "end_of_word_suffix": None, "fuse_unk": True, "byte_fallback": True,
            "vocab": {name: i for i, name in enumerate(names)}, "merges": [],
        },
    }


def convert(source, vocab, aerie, work):
    folder = work / source.name
    shutil.copytree(source, folder)
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer(vocab)), encoding="utf-8")
    out = work / f"{source.name}.gguf"
    command = [aerie, "convert", folder, out, "--type", "f32", "--requantize"]
    subprocess.run(command, check=True, capture_output=True, text=True)
    return out


def evaluate(model, tokens):
    """Logits after every token, in a context of their own."""
    params = L.llama_context_default_params()
    params.n_ctx = params.n_batch = params.n_ubatch = len(tokens)
    params.n_threads = params.n_threads_batch = 2
    params.flash_attn_type = L.LLAMA_FLASH_ATTN_TYPE_DISABLED
    params.type_k = params.type_v = L.GGML_TYPE_F32
    context = L.llama_init_from_model(model.handle, params)
    if not context:
        raise SystemExit(f"cannot open a context for {model.path}")
    batch = L.llama_batch_init(len(tokens), 0, 1)
    batch.n_tokens = len(tokens)
    for i, token in enumerate(tokens):
        batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.logits[i] = int(token), i, 1, 1
        batch.seq_id[i][0] = 0
    if L.llama_decode(context, batch) != 0:
        raise SystemExit(f"llama_decode failed for {model.path}")
    rows = [np.ctypeslib.as_array(L.llama_get_logits_ith(context, i), (model.vocab_size,)).copy()
            for i in range(len(tokens))]
    L.llama_batch_free(batch)
    L.llama_free(context)
    return np.array(rows)


def divergences(golden, ours):
    """KL(golden || ours) of each row, in double."""
    def log_softmax(x):
        x = x.astype(np.float64)
        x -= x.max(axis=1, keepdims=True)
        return x - np.log(np.exp(x).sum(axis=1, keepdims=True))

    p, q = log_softmax(golden), log_softmax(ours)
    return (np.exp(p) * (p - q)).sum(axis=1)


def compare(source, aerie, work):
    sequences = read_golden(source / "golden.bin")
    model = common.Model(convert(source, sequences[0][1].shape[1], aerie, work))
    kl, same = [], 0
    for tokens, golden in sequences:
        ours = evaluate(model, tokens)
        kl.append(divergences(golden, ours))
        same += int((golden.argmax(axis=1) == ours.argmax(axis=1)).sum())
    L.llama_model_free(model.handle)
    by_length = ", ".join(f"{len(tokens)}: {k.mean():.1e}" for (tokens, _), k in zip(sequences, kl))
    every = np.concatenate(kl)
    return f"| `{source.name}` | {every.mean():.1e} | {every.max():.1e} | {same} of {len(every)} | {by_length} |"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--aerie", default=common.REPO / "build" / "release" / "bin" / "aerie")
    parser.add_argument("--verbose", action="store_true", help="keep llama.cpp's log")
    parser.add_argument("folders", nargs="*", type=Path, help="default: all of families/")
    args = parser.parse_args()
    if not args.verbose:
        common.quiet()
    folders = args.folders or sorted(path for path in FAMILIES.iterdir() if path.is_dir())
    print("| model | mean KL | largest KL | same likeliest token | mean KL by length of sequence |")
    print("|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as work:
        for folder in folders:
            try:
                print(compare(folder, args.aerie, Path(work)), flush=True)
            except subprocess.CalledProcessError as error:
                print(f"| `{folder.name}` | {error.stderr.strip()} |", flush=True)
            except SystemExit as error:
                print(f"| `{folder.name}` | {error} |", flush=True)


if __name__ == "__main__":
    main()
