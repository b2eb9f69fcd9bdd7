#!/usr/bin/env bash
# Runs the notebooks of examples/python with the wheel in dist/, as somebody does who has them open.
#   tests/notebooks/run.sh [BUILD [PYTEST OPTION...]]     BUILD: build/release
# scripts/build_wheel.sh makes the wheel.
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
root="$(cd "$here/../.." && pwd)"
build="$(cd "${1:-$root/build/release}" && pwd)"
shift || true

environment="$build/python/notebooks"
# shellcheck source=SCRIPTDIR/../testing/python_environment.sh
source "$here/../testing/python_environment.sh"
wheel_environment "$root" "$build" "$here" "$environment"

cd "$root"
exec "$environment/bin/python" -m pytest -rs -p no:cacheprovider -o faulthandler_timeout=120 \
  --images "$build/notebooks" "$@" "$here"
