#!/usr/bin/env bash
# Tests `aerie serve` with the official OpenAI client and a browser.
#   tests/server/python/run.sh [BUILD [test_FILE.py...] [PYTEST OPTION...]]     BUILD: build/release
# Makes a virtual environment under BUILD (tests/testing/python_environment.sh).
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
root="$(cd "$here/../../.." && pwd)"
build="$(cd "${1:-$root/build/release}" && pwd)"
shift || true

environment="$build/python/server"
# shellcheck source=SCRIPTDIR/../../testing/python_environment.sh
source "$here/../../testing/python_environment.sh"
python_environment "$here" "$environment"

files=()
while [[ "${1:-}" == test_*.py ]]; do
  files+=("$here/$1")
  shift
done

cd "$root"
# What hangs says where, and what is skipped why.
exec "$environment/bin/python" -m pytest -rs -p no:cacheprovider -o faulthandler_timeout=240 --program "$build/bin/aerie" \
  --screenshots "$build/screenshots" "$@" "${files[@]:-$here}"
