#!/usr/bin/env bash
# Puts the LibTorch of PyTorch 2 into build/pytorch, for builds with -DAERIE_TORCH: pip brings it (540 MB to download,
# for CUDA, since PyPI has no other), nothing is installed on the system. Of NVIDIA's libraries only the two that its
# part for processors is linked to come along: it trains on the processor here.
#   scripts/torch/fetch_torch.sh          unless it is there already
# Prints the folder for AERIE_TORCH. Exits with 1 where it cannot be had.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

target="$PWD/build/pytorch"
requirements=scripts/torch/requirements.txt
if ! cmp -s "$requirements" "$target/requirements.txt"; then
  rm -rf "$target"
  mkdir -p "$target"
  # Nothing but these files: of what they name as needed, LibTorch takes nothing on a processor.
  if ! python3 -m pip --no-input --disable-pip-version-check install --quiet --no-deps --no-cache-dir \
    --only-binary :all: --progress-bar off --target "$target" --requirement "$requirements" >&2 </dev/null; then
    echo "fetch_torch: pip could not bring the packages of $requirements; is there a network?" >&2
    exit 1
  fi
  cp "$requirements" "$target/requirements.txt"
fi
if [[ ! -f "$target/torch/include/ATen/ATen.h" ]]; then
  echo "fetch_torch: $target has no LibTorch; remove it and try again" >&2
  exit 1
fi
echo "$target/torch"
