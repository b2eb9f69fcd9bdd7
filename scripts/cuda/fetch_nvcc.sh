#!/usr/bin/env bash
# Puts CUDA's compiler, its runtime and its disassemblers into build/nvcc, for machines without a toolkit: pip brings
# them (250 MB to download), nothing is installed on the system.
#   scripts/cuda/fetch_nvcc.sh          unless they are there already
# Prints the folder that then holds bin/nvcc, bin/cuobjdump and bin/nvdisasm; cmake looks there by itself
# (cmake/Cuda.cmake). Exits with 1 where they cannot be had.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

target="$PWD/build/nvcc"
requirements=scripts/cuda/requirements.txt
toolkit="$target/nvidia/cu13"

if ! cmp -s "$requirements" "$target/requirements.txt"; then
  rm -rf "$target"
  mkdir -p "$target"
  # Nothing but these files: what they name as needed, this project does not use.
  if ! python3 -m pip --no-input --disable-pip-version-check install --quiet --no-deps --no-cache-dir \
    --only-binary :all: --progress-bar off --target "$target" --requirement "$requirements" >&2 </dev/null; then
    echo "fetch_nvcc: pip could not bring the packages of $requirements; is there a network?" >&2
    exit 1
  fi
  cp "$requirements" "$target/requirements.txt"
fi
for program in nvcc cuobjdump nvdisasm; do
  if ! "$toolkit/bin/$program" --version >/dev/null; then
    echo "fetch_nvcc: $toolkit/bin/$program does not run here; remove build/nvcc and try again" >&2
    exit 1
  fi
done
echo "$toolkit"
