#!/usr/bin/env python3
"""Records llama.cpp's predictions on WikiText-2 as a golden file. Run by hand, not by CI.

    python tests/golden/make_fidelity.py [smollm2|gemma3] [--threads 2] [--full FULL.npy]

Four windows of 501 tokens each follow one another through the text (special tokens not parsed). Where the model's
file asks for BOS, a window is BOS and the next 500 tokens, else the next 501. Each window is evaluated in an empty
context: F16 keys and values, flash attention off, one batch. The logits after token i predict token i+1, i = 0..499:
2000 positions in all. Log-probabilities are natural logarithms, taken in double from the float logits over the whole
vocabulary.

NAME-fidelity.bin, little-endian, no padding:

    char[8]  magic "AERIEFID"
    u32      version: 1, or 2 where ids do not fit 16 bits
    u32      windows
    u32      tokens_per_window
    u32      top_k
    then for each window:
        i32  token ids [tokens_per_window], BOS among them
        then for each position i = 0 .. tokens_per_window-2:
            f32  log-probability of token i+1 of the window
            u16  (version 2: u32) ids [top_k], by falling log-probability, the smaller id first when equal
            f32  log-probabilities [top_k], in the same order

The mass of the tail is 1 minus the sum of the top_k probabilities. top_k is such that both versions take equal room.
"""

import argparse
import math
import struct

import llama_cpp as L
import numpy as np

import llama_common as common

WINDOWS, TOKENS = 4, 501
PREFIX = 20000  # characters of the text that are tokenised: several times what the windows hold


def window_tokens(model, path):
    text = path.read_text(encoding="utf-8")[:PREFIX]
    ids = model.tokenize(text, special=False)
    step = TOKENS - len(model.bos)
    if len(ids) < WINDOWS * step + 64:  # the cut may change only the last few tokens
        raise SystemExit("the text is too short")
    windows = [model.bos + ids[i * step : (i + 1) * step] for i in range(WINDOWS)]
    return np.array(windows, dtype=np.int32)


def open_context(model, args):
    params = L.llama_context_default_params()
    params.n_ctx = 512
    params.n_batch = params.n_ubatch = args.ubatch
    params.n_threads = params.n_threads_batch = args.threads
    params.flash_attn_type = L.LLAMA_FLASH_ATTN_TYPE_ENABLED if args.flash_attn else L.LLAMA_FLASH_ATTN_TYPE_DISABLED
    params.type_k = params.type_v = L.GGML_TYPE_F32 if args.kv == "f32" else L.GGML_TYPE_F16
    context = L.llama_init_from_model(model.handle, params)
    if not context:
        raise SystemExit("cannot open a context")
    return context


def evaluate(context, vocab_size, tokens, step):
    """Logits after every token, evaluated in an empty context in batches of at most `step` tokens."""
    L.llama_memory_clear(L.llama_get_memory(context), True)
    logits = np.empty((len(tokens), vocab_size), dtype=np.float32)
    batch = L.llama_batch_init(step, 0, 1)
    for start in range(0, len(tokens), step):
        part = tokens[start : start + step]
        batch.n_tokens = len(part)
        for i, token in enumerate(part):
            batch.token[i] = int(token)
            batch.pos[i] = start + i
            batch.n_seq_id[i] = 1
            batch.seq_id[i][0] = 0
            batch.logits[i] = 1
        if L.llama_decode(context, batch) != 0:
            raise SystemExit("llama_decode failed")
        raw = L.llama_get_logits(context)
        logits[start : start + len(part)] = np.ctypeslib.as_array(raw, shape=(len(part) * vocab_size,)).reshape(
            len(part), vocab_size
        )
    L.llama_batch_free(batch)
    return logits


def log_softmax(row):
    row = row.astype(np.float64)
    row -= row.max()
    return row - math.log(np.exp(row).sum())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", nargs="?", choices=common.MODELS, default="smollm2")
    parser.add_argument("--model", help="another place for the model's file")
    parser.add_argument("--text", type=common.Path, default=common.DATA / "wikitext-2" / "test.txt")
    parser.add_argument("--out", type=common.Path, help="default: NAME-fidelity.bin beside this script")
    parser.add_argument("--full", help="also write all log-probabilities, float32 [positions, vocabulary], as .npy")
    parser.add_argument("--compare", help="only compare with an earlier --full file: mean KL, largest KL, same argmax")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--ubatch", type=int, default=512, help="for comparisons; the golden uses 512")
    parser.add_argument("--flash-attn", type=int, choices=(0, 1), default=0, help="for comparisons; the golden uses 0")
    parser.add_argument("--kv", choices=("f16", "f32"), default="f16", help="for comparisons; the golden uses f16")
    args = parser.parse_args()

    common.quiet()
    model = common.Model(args.model or common.MODELS[args.name])
    version, id_type, top_k = (1, "<u2", 128) if model.vocab_size <= 65536 else (2, "<u4", 96)
    windows = window_tokens(model, args.text)
    context = open_context(model, args)
    print(f"llama-cpp-python {L.__version__}; {L.llama_print_system_info().decode().strip()}")

    positions = WINDOWS * (TOKENS - 1)
    reference = np.load(args.compare, mmap_mode="r") if args.compare else None
    full = np.lib.format.open_memmap(args.full, "w+", np.float32, (positions, model.vocab_size)) if args.full else None
    blob = bytearray(b"AERIEFID" + struct.pack("<4I", version, WINDOWS, TOKENS, top_k))
    total, mass, kl, same, at = 0.0, [], [], 0, 0
    for tokens in windows:
        blob += tokens.astype("<i4").tobytes()
        logits = evaluate(context, model.vocab_size, tokens, args.ubatch)
        for i in range(TOKENS - 1):
            logprobs = log_softmax(logits[i])
            order = np.argsort(-logprobs, kind="stable")[:top_k]
            target = logprobs[tokens[i + 1]]
            total += target
            mass.append(np.exp(logprobs[order]).sum())
            blob += struct.pack("<f", target)
            blob += order.astype(id_type).tobytes()
            blob += logprobs[order].astype("<f4").tobytes()
            if full is not None:
                full[at] = logprobs
            if reference is not None:
                row = reference[at].astype(np.float64)
                kl.append(float((np.exp(row) * (row - logprobs)).sum()))
                same += int(row.argmax() == order[0])
            at += 1

    print(f"positions {positions}, perplexity {math.exp(-total / positions):.6f}")
    print(f"mass of the top {top_k}: mean {np.mean(mass):.4f}, least {np.min(mass):.4f}")
    if reference is not None:
        print(f"KL(reference || this): mean {np.mean(kl):.3e}, largest {np.max(kl):.3e}, same argmax {same}/{positions}")
        return
    out = args.out or common.GOLDEN / f"{args.name}-fidelity.bin"
    out.write_bytes(blob)
    print(f"wrote {out.name}: {len(blob)} bytes")


if __name__ == "__main__":
    main()
