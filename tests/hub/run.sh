#!/usr/bin/env bash
# Tests the cache of models together with the package huggingface_hub.
#   tests/hub/run.sh [BUILD [TEST...]]     BUILD: build/release
# Makes a virtual environment under BUILD; only the first time, or when the requirements change, does
# it need a network. Exits with 77, which ctest takes as "skipped", where that cannot be had.
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
root="$(cd "$here/../.." && pwd)"
build="$(cd "${1:-$root/build/release}" && pwd)"
shift || true

environment="$build/python/hub"
if ! cmp -s "$here/requirements.txt" "$environment/requirements.txt"; then
  rm -rf "$environment"
  if ! python3 -m venv "$environment" ||
    ! "$environment/bin/pip" install --quiet --disable-pip-version-check \
      --requirement "$here/requirements.txt"; then
    echo "run.sh: skipped: the packages of requirements.txt cannot be installed" >&2
    exit 77
  fi
  cp "$here/requirements.txt" "$environment/requirements.txt"
fi
cd "$root"
exec "$environment/bin/python" "$here/shared_cache_test.py" "$build/bin" "$@"
