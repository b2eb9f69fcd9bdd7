#!/bin/sh
# Makes a Python environment with llama.cpp built from source for this machine's processor (native flags).
# Usage: bench/peers/install.sh [FOLDER]     default: build/peer-venv
# What pip has kept from an earlier build is not taken: it may be for another processor.
# PEER_VERSION=… takes another version of llama-cpp-python; JOBS=… sets the number of compile jobs.
set -eu
cd "$(dirname "$0")/../.."
folder=${1:-build/peer-venv}
version=${PEER_VERSION:-0.3.36}

mkdir -p "$(dirname "$folder")"
python3 -m venv "$folder"
CMAKE_ARGS="-DGGML_NATIVE=ON ${CMAKE_ARGS:-}" CMAKE_BUILD_PARALLEL_LEVEL=${JOBS:-$(nproc)} \
    "$folder/bin/pip" install --no-cache-dir --no-binary llama-cpp-python \
        "llama-cpp-python==$version" numpy
"$folder/bin/python" -c '
import llama_cpp
print("llama-cpp-python", llama_cpp.__version__)
print(llama_cpp.llama_print_system_info().decode().strip())'
