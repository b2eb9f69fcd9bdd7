#!/usr/bin/env bash
# Tests the Python package as its users have it: the wheel in dist/, in a virtual environment without any other
# package but pytest.
#   tests/python/run.sh [BUILD [test_FILE.py...] [PYTEST OPTION...]]     BUILD: build/release
# scripts/build_wheel.sh makes the wheel.
set -euo pipefail
# shellcheck source=SCRIPTDIR/../testing/python_environment.sh
source "$(dirname "${BASH_SOURCE[0]}")/../testing/python_environment.sh"
begin package "$@"
wheel_environment "$root" "$build" "$here" "$environment"

cd "$root"
# The wheel comes without it.
export AERIE_TRAIN="$build/bin/aerie-train"
# What hangs says where, and what is skipped why.
exec "$environment/bin/python" -m pytest -rs -p no:cacheprovider -o faulthandler_timeout=120 --wheel "$wheel" \
  --ignore "$here/ray" "${arguments[@]}" "${files[@]}"
