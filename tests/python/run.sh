#!/usr/bin/env bash
# Tests the Python package as its users have it: the wheel in dist/, in a virtual environment without any other
# package but pytest.
#   tests/python/run.sh [BUILD [test_FILE.py...] [PYTEST OPTION...]]     BUILD: build/release
# scripts/build_wheel.sh makes the wheel.
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
root="$(cd "$here/../.." && pwd)"
build="$(cd "${1:-$root/build/release}" && pwd)"
shift || true

environment="$build/python/package"
# shellcheck source=SCRIPTDIR/../testing/python_environment.sh
source "$here/../testing/python_environment.sh"
wheel_environment "$root" "$build" "$here" "$environment"

files=()
while [[ "${1:-}" == test_*.py ]]; do
  files+=("$here/$1")
  shift
done

cd "$root"
# The wheel comes without it.
export AERIE_TRAIN="$build/bin/aerie-train"
# What hangs says where, and what is skipped why.
exec "$environment/bin/python" -m pytest -rs -p no:cacheprovider -o faulthandler_timeout=120 --wheel "$wheel" \
  --ignore "$here/ray" "$@" "${files[@]:-$here}"
