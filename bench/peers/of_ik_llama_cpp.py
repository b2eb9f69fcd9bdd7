#!/usr/bin/env python3
"""Answers compare.py's requests with ik_llama.cpp.

    build/peers/ik_llama_cpp/bin/python bench/peers/of_ik_llama_cpp.py --model MODEL.gguf --threads 2

Through the calls of llama.h alone, with flash attention, as it is by default; the weights as they are in the
file, and repacked into the interleaved rows that it has for wide instructions (its -rtr).
"""

import ctypes
import importlib.metadata

import ik_llama_cpp._ctypes_api as L
import llama_context
import worker

# What the package does not declare.
library = L._lib
library.llama_kv_cache_seq_rm.argtypes = [ctypes.c_void_p] + 3 * [ctypes.c_int32]
library.llama_kv_cache_seq_rm.restype = ctypes.c_bool
library.llama_synchronize.argtypes = [ctypes.c_void_p]
library.llama_synchronize.restype = None
library.llama_print_system_info.restype = ctypes.c_char_p
L.llama_synchronize = library.llama_synchronize
PACKAGE = "ik-llama-cpp-python"


@ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)
def quiet(level, text, user_data):
    del level, text, user_data


def cut(context, position):
    library.llama_kv_cache_seq_rm(context, 0, position, -1)


def context(args, repack):
    # Repacking changes the model, so that each has its own.
    model = llama_context.load(L, args, repack_tensors=repack, use_mmap=not repack)
    params = L.llama_context_default_params()
    params.flash_attn = True
    return llama_context.LlamaContext(L, model, params, args, cut)


def main():
    args = worker.arguments(__doc__.splitlines()[0])
    library.llama_log_set(quiet, None)
    L.llama_backend_init()
    contexts = {"as it is": context(args, False), "repacked": context(args, True)}
    worker.serve(contexts, importlib.metadata.version(PACKAGE), library.llama_print_system_info().decode().strip(), args.positions)


if __name__ == "__main__":
    main()
