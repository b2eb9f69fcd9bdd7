#!/usr/bin/env python3
"""Answers compare.py's requests with llama.cpp.

    build/peers/llama_cpp/bin/python bench/peers/of_llama_cpp.py --model MODEL.gguf --threads 2

Through the calls of llama.h alone: llama_decode and nothing around it. One model serves two contexts, with
flash attention off and on.
"""

import ctypes

import llama_cpp as L
import llama_context
import worker


@L.llama_log_callback
def quiet(level, text, user_data):
    del level, text, user_data


def cut(context, position):
    return L.llama_memory_seq_rm(L.llama_get_memory(context), 0, position, -1)


def main():
    args = worker.arguments(__doc__.splitlines()[0])
    L.llama_log_set(quiet, ctypes.c_void_p(0))
    L.llama_backend_init()
    model = llama_context.load(L, args)
    contexts = {}
    for name, flash in (("no flash", L.LLAMA_FLASH_ATTN_TYPE_DISABLED), ("flash", L.LLAMA_FLASH_ATTN_TYPE_ENABLED)):
        params = L.llama_context_default_params()
        params.flash_attn_type = flash
        contexts[name] = llama_context.LlamaContext(L, model, params, args, cut)
    worker.serve(contexts, L.__version__, L.llama_print_system_info().decode().strip(), args.positions)


if __name__ == "__main__":
    main()
