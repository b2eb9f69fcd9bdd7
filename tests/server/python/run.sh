#!/usr/bin/env bash
# Tests `aerie serve` with the official OpenAI client and a browser.
#   tests/server/python/run.sh [BUILD [test_FILE.py...] [PYTEST OPTION...]]     BUILD: build/release
# Makes a virtual environment under BUILD; only the first time, or when the requirements change, does
# it need a network. Exits with 77, which ctest takes as "skipped", where that cannot be had.
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
root="$(cd "$here/../../.." && pwd)"
build="$(cd "${1:-$root/build/release}" && pwd)"
shift || true

environment="$build/python/server"
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

files=()
while [[ "${1:-}" == test_*.py ]]; do
  files+=("$here/$1")
  shift
done

cd "$root"
# What hangs says where, and what is skipped why.
exec "$environment/bin/python" -m pytest -rs -p no:cacheprovider -o faulthandler_timeout=240 --program "$build/bin/aerie" \
  --screenshots "$build/screenshots" "$@" "${files[@]:-$here}"
