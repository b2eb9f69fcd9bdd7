#!/usr/bin/env python3
"""Times llama.cpp on a GGUF file: prompt and decode tokens per second, through llama_decode itself.

    python bench/peers/llama_cpp.py --model MODEL.gguf --threads 2
    python bench/peers/llama_cpp.py --model MODEL.gguf --once      # one repeat, one line of JSON on standard output

A repeat clears the cache, evaluates a prompt in one call (logits of its last token only), clears the cache again,
evaluates a short prompt and then decodes greedily: one call of one token, the largest logit, the next call.
End-of-sequence does not stop it, so every repeat does the same work. A short warm-up is not counted.
"""

import argparse
import ctypes
import json
import os
import statistics
import sys
import time

# This file shares its name with the package: keep this folder off the path, or it would import itself.
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or ".") != HERE]

import llama_cpp as L  # noqa: E402
import numpy as np  # noqa: E402

SHORT_PROMPT = "Once upon a time, in a small village by the sea, there lived"


@L.llama_log_callback
def quiet(level, text, user_data):
    del level, text, user_data


class Peer:
    def __init__(self, args):
        L.llama_log_set(quiet, ctypes.c_void_p(0))
        L.llama_backend_init()
        params = L.llama_model_default_params()
        params.n_gpu_layers = 0
        self.model = L.llama_model_load_from_file(args.model.encode(), params)
        if not self.model:
            raise SystemExit(f"cannot load {args.model}")
        self.vocab = L.llama_model_get_vocab(self.model)
        self.vocab_size = L.llama_vocab_n_tokens(self.vocab)
        self.short = self.tokenize(SHORT_PROMPT)

        params = L.llama_context_default_params()
        params.n_ctx = (max(args.prompt_tokens, len(self.short) + args.tokens) + 255) // 256 * 256
        params.n_batch = params.n_ctx
        params.n_threads = params.n_threads_batch = args.threads
        params.flash_attn_type = (
            L.LLAMA_FLASH_ATTN_TYPE_ENABLED if args.flash_attn else L.LLAMA_FLASH_ATTN_TYPE_DISABLED
        )
        self.context = L.llama_init_from_model(self.model, params)
        if not self.context:
            raise SystemExit("cannot open a context")

    def tokenize(self, text):
        data = text.encode("utf-8")
        ids = (L.llama_token * (len(data) + 16))()
        count = L.llama_tokenize(self.vocab, data, len(data), ids, len(ids), True, False)
        return list(ids[:count])

    def clear(self):
        L.llama_memory_clear(L.llama_get_memory(self.context), False)

    def decode(self, tokens, count):
        """Runs one forward pass over a token array and returns the largest logit's id for its last token."""
        if L.llama_decode(self.context, L.llama_batch_get_one(tokens, count)) != 0:
            raise SystemExit("llama_decode failed")
        logits = L.llama_get_logits_ith(self.context, -1)
        return int(np.ctypeslib.as_array(logits, shape=(self.vocab_size,)).argmax())

    def time_prompt(self, count):
        # Fixed pseudo-random ids: only their number matters.
        ids = (L.llama_token * count)(*((7919 * i + 104729) % self.vocab_size for i in range(count)))
        self.clear()
        start = time.perf_counter()
        self.decode(ids, count)
        return count / (time.perf_counter() - start)

    def time_decode(self, count):
        self.clear()
        prompt = (L.llama_token * len(self.short))(*self.short)
        one = (L.llama_token * 1)(self.decode(prompt, len(self.short)))
        output = [one[0]]
        start = time.perf_counter()
        for _ in range(count):
            one[0] = self.decode(one, 1)
            output.append(one[0])
        return count / (time.perf_counter() - start), output


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--tokens", type=int, default=128, help="tokens to decode")
    parser.add_argument("--prompt-tokens", type=int, default=512)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--flash-attn", type=int, choices=(0, 1), default=1, help="1 is what llama.cpp picks itself")
    parser.add_argument("--once", action="store_true", help="one repeat, one line of JSON on standard output")
    parser.add_argument("--json", metavar="FILE", help="also write the figures to a file")
    args = parser.parse_args()
    if min(args.threads, args.tokens, args.prompt_tokens, args.repeat) < 1:
        parser.error("counts must be at least 1")

    peer = Peer(args)
    peer.time_prompt(min(args.prompt_tokens, 64))
    peer.time_decode(min(args.tokens, 8))

    prompt, decode, output = [], [], []
    for _ in range(1 if args.once else args.repeat):
        prompt.append(peer.time_prompt(args.prompt_tokens))
        speed, output = peer.time_decode(args.tokens)
        decode.append(speed)
    result = {
        "engine": "llama.cpp",
        "version": f"llama-cpp-python {L.__version__}",
        "system": L.llama_print_system_info().decode().strip(),
        "model": os.path.basename(args.model),
        "threads": args.threads,
        "flash_attn": bool(args.flash_attn),
        "prompt_tokens": args.prompt_tokens,
        "tokens": args.tokens,
        "repeats": len(decode),
        "prompt_tokens_per_second": round(statistics.median(prompt), 2),
        "decode_tokens_per_second": round(statistics.median(decode), 2),
        "all_prompt": [round(value, 2) for value in prompt],
        "all_decode": [round(value, 2) for value in decode],
        "first_ids": output[:16],
    }
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump(result, file, indent=2)
            file.write("\n")
    if args.once:
        print(json.dumps(result))
        return
    print(f"{result['version']}, {result['model']}, {args.threads} threads, flash attention {args.flash_attn}")
    print(f"prompt  {result['prompt_tokens_per_second']:9.1f} tokens/s  (median of {len(prompt)}, {args.prompt_tokens} tokens)")
    print(f"decode  {result['decode_tokens_per_second']:9.1f} tokens/s  (median of {len(decode)}, {args.tokens} tokens)")


if __name__ == "__main__":
    main()
