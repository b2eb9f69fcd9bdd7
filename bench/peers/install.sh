#!/bin/sh
# Makes a Python environment for each peer, built from source for this machine's processor (native flags) where the
# makers have no wheel that looks at the processor itself.
# Usage: bench/peers/install.sh [PEER...]     llama_cpp, ik_llama_cpp, openvino; default: llama_cpp
# They are put into build/peers/PEER, or $PEERS/PEER. What pip has kept from an earlier build is not taken: it may be
# for another processor. JOBS=… sets the number of compile jobs; CMAKE_ARGS=… goes to CMake.
set -eu
cd "$(dirname "$0")/../.."
folder=${PEERS:-build/peers}

# environment PEER PACKAGE...: with packages that need no compiler
environment() {
    mkdir -p "$folder"
    python3 -m venv "$folder/$1"
    pip=$folder/$1/bin/pip
    shift
    "$pip" install --no-cache-dir "$@"
}

# built PEER PACKAGE FLAGS: from its source archive
built() {
    environment "$1" numpy
    CMAKE_ARGS="$3 ${CMAKE_ARGS:-}" CMAKE_BUILD_PARALLEL_LEVEL=${JOBS:-$(nproc)} \
        "$pip" install --no-cache-dir --no-binary "${2%%=*}" "$2"
}

for peer in "${@:-llama_cpp}"; do
    case "$peer" in
    llama_cpp)
        # 0.3.36 crashes in its AMX code with quantised weights.
        built llama_cpp llama-cpp-python==0.3.36 \
            "-DGGML_NATIVE=ON -DGGML_AMX_TILE=OFF -DGGML_AMX_INT8=OFF -DGGML_AMX_BF16=OFF -DLLAVA_BUILD=OFF"
        ;;
    ik_llama_cpp)
        # Flash attention with caches of 16 bits alone: that with quantised ones takes half of the time to compile.
        built ik_llama_cpp ik-llama-cpp-python==0.1.5 "-DGGML_NATIVE=ON -DGGML_IQK_FA_ALL_QUANTS=OFF"
        ;;
    openvino)
        environment openvino openvino-genai==2026.4.1.0
        ;;
    *)
        echo "install.sh: no such peer: $peer" >&2
        exit 2
        ;;
    esac
done
