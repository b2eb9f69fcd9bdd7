#!/usr/bin/env python3
"""Answers requests for measurements of llama.cpp over a pipe: bench/peers/compare.py's other half.

    build/peer-venv/bin/python bench/peers/llama_cpp.py --model MODEL.gguf --threads 2

Reads one JSON object a line and answers with one, as `aerie bench worker` does (src/measure/worker.h),
through the calls of llama.h alone: llama_decode and nothing around it. Each request may say
"flash": 0 or 1; one model serves two contexts, with flash attention off and on.
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

CHUNK = 512  # rows of a prompt in a call


@L.llama_log_callback
def quiet(level, text, user_data):
    del level, text, user_data


class Context:
    """One llama_context with what its requests need."""

    def __init__(self, model, args, flash):
        params = L.llama_context_default_params()
        params.n_ctx = (args.positions + 255) // 256 * 256
        params.n_batch = params.n_ubatch = max(CHUNK, args.rows)
        params.n_threads = params.n_threads_batch = args.threads
        params.flash_attn_type = (
            L.LLAMA_FLASH_ATTN_TYPE_ENABLED if flash else L.LLAMA_FLASH_ATTN_TYPE_DISABLED
        )
        self.context = L.llama_init_from_model(model, params)
        if not self.context:
            raise SystemExit("cannot open a context")
        self.vocab_size = L.llama_vocab_n_tokens(L.llama_model_get_vocab(model))
        self.batch = L.llama_batch_init(max(CHUNK, args.rows), 0, 1)
        self.memory = L.llama_get_memory(self.context)
        self.filled = 0
        self.state = 1

    def random_token(self):
        self.state = (self.state * 1664525 + 1013904223) % 2**32
        return self.state * self.vocab_size >> 32

    def forward(self, tokens, first, logits):
        """Evaluates tokens from position `first` on; logits: "all", "last" or "none". Seconds."""
        batch = self.batch
        batch.n_tokens = len(tokens)
        for i, token in enumerate(tokens):
            batch.token[i] = token
            batch.pos[i] = first + i
            batch.n_seq_id[i] = 1
            batch.seq_id[i][0] = 0
            batch.logits[i] = logits == "all" or (logits == "last" and i == len(tokens) - 1)
        start = time.perf_counter()
        if L.llama_decode(self.context, batch) != 0:
            raise RuntimeError("llama_decode failed")
        L.llama_synchronize(self.context)
        return time.perf_counter() - start

    def prefill(self, count, logits):
        """Evaluates `count` random tokens into an empty cache. Seconds."""
        L.llama_memory_clear(self.memory, False)
        tokens = [self.random_token() for _ in range(count)]
        return sum(
            self.forward(tokens[i:i + CHUNK], i, logits if i + CHUNK >= count else "none")
            for i in range(0, count, CHUNK)
        )

    def fill(self, request):
        self.filled = request["context"]
        self.prefill(self.filled, "none")
        return {}

    def a_pass(self, request):
        if self.filled == 0:
            raise RuntimeError("'fill' comes first")
        seconds, passes, start = request.get("seconds", 0), [], time.perf_counter()
        while not passes or time.perf_counter() - start < seconds:
            tokens = [self.random_token() for _ in range(request["rows"])]
            passes.append(self.forward(tokens, self.filled, "all"))
            L.llama_memory_seq_rm(self.memory, 0, self.filled, -1)
        return {"ms": 1e3 * statistics.median(passes)}

    def prompt(self, request):
        self.filled = 0
        return {"ms": 1e3 * self.prefill(request["tokens"], "last")}

    def largest(self):
        logits = L.llama_get_logits_ith(self.context, -1)
        return int(np.ctypeslib.as_array(logits, shape=(self.vocab_size,)).argmax())

    def decode(self, request):
        self.filled = 0
        context = request["context"]
        self.prefill(context, "last")
        token = self.largest()
        start = time.perf_counter()
        for i in range(request["tokens"]):
            self.forward([token], context + i, "last")
            token = self.largest()
        return {"ms": 1e3 * (time.perf_counter() - start)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rows", type=int, default=64, help="the most of a pass")
    parser.add_argument("--positions", type=int, default=2048, help="the most of a request")
    args = parser.parse_args()

    L.llama_log_set(quiet, ctypes.c_void_p(0))
    L.llama_backend_init()
    params = L.llama_model_default_params()
    params.n_gpu_layers = 0
    model = L.llama_model_load_from_file(args.model.encode(), params)
    if not model:
        raise SystemExit(f"cannot load {args.model}")
    contexts = [Context(model, args, flash) for flash in (0, 1)]
    system = L.llama_print_system_info().decode().strip()
    print(json.dumps({"ready": True, "version": L.__version__, "system": system}), flush=True)

    for line in sys.stdin:
        request = json.loads(line)
        context = contexts[request.get("flash", 1)]
        actions = {"fill": context.fill, "pass": context.a_pass, "prompt": context.prompt,
                   "decode": context.decode}
        try:
            answer = actions[request["do"]](request)
        except (KeyError, RuntimeError) as error:
            answer = {"error": str(error)}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
