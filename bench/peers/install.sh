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

# built PEER PACKAGE FLAGS: from its source archive, or the folder of one
built() {
    CMAKE_ARGS="$3 ${CMAKE_ARGS:-}" CMAKE_BUILD_PARALLEL_LEVEL=${JOBS:-$(nproc)} \
        "$pip" install --no-cache-dir --no-binary "${2%%=*}" "$2"
}

# source_of PEER PACKAGE==VERSION: unpacks its source archive, and says where
source_of() {
    unpacked=$folder/$1/source
    rm -rf "$unpacked"
    "$folder/$1/bin/pip" download --no-cache-dir --no-deps --no-binary "${2%%=*}" -d "$unpacked" "$2" >&2
    tar -xzf "$unpacked"/*.tar.gz -C "$unpacked" --strip-components=1
    echo "$unpacked"
}

# speculation VERSION: of_llama_speculation beside llama.cpp, whose archive has the headers
speculation() {
    own=$folder/llama_cpp
    source=$(source_of llama_cpp "llama-cpp-python==$1")/vendor/llama.cpp
    libraries=$(cd "$own"/lib/python3*/site-packages/lib && pwd)
    g++ -std=c++20 -O2 -I "$source/common" -I "$source/include" -I "$source/ggml/include" \
        bench/peers/of_llama_speculation.cc -o "$own/of_llama_speculation" \
        -L "$libraries" -lllama-common -lllama -lggml -lggml-cpu -lggml-base "-Wl,--disable-new-dtags,-rpath,$libraries"
}

for peer in "${@:-llama_cpp}"; do
    case "$peer" in
    llama_cpp)
        version=0.3.36
        flags=-DGGML_NATIVE=ON
        # It crashes in its AMX code with quantised weights, which native flags would bring.
        if grep -qw amx_int8 /proc/cpuinfo; then
            flags="-DGGML_NATIVE=OFF -DGGML_AVX512=ON -DGGML_AVX512_VBMI=ON -DGGML_AVX512_VNNI=ON -DGGML_AVX512_BF16=ON"
        fi
        environment llama_cpp numpy
        built llama_cpp "llama-cpp-python==$version" "$flags -DLLAVA_BUILD=OFF"
        speculation "$version"
        ;;
    ik_llama_cpp)
        environment ik_llama_cpp numpy
        source=$(source_of ik_llama_cpp ik-llama-cpp-python==0.1.5)
        # The archive lacks a script that its own build runs.
        mkdir -p "$source/vendor/ik_llama.cpp/common/cmake"
        printf 'set(BUILD_NUMBER 0)\nconfigure_file(common/build-info.cpp.in common/build-info.cpp)\n' \
            >"$source/vendor/ik_llama.cpp/common/cmake/build-info-gen-cpp.cmake"
        # Flash attention with caches of 16 bits alone: that with quantised ones takes half of the time to compile.
        # shellcheck disable=SC2016  # the loader knows $ORIGIN
        built ik_llama_cpp "$source" '-DGGML_NATIVE=ON -DGGML_IQK_FA_ALL_QUANTS=OFF -DCMAKE_INSTALL_RPATH=$ORIGIN'
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
