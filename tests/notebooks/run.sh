#!/usr/bin/env bash
# Runs the notebooks of examples/python with the wheel in dist/, as somebody does who has them open.
#   tests/notebooks/run.sh [BUILD [PYTEST OPTION...]]     BUILD: build/release
# scripts/build_wheel.sh makes the wheel.
set -euo pipefail
# shellcheck source=SCRIPTDIR/../testing/python_environment.sh
source "$(dirname "${BASH_SOURCE[0]}")/../testing/python_environment.sh"
begin notebooks "$@"
wheel_environment "$root" "$build" "$here" "$environment"

cd "$root"
exec "$environment/bin/python" -m pytest -rs -p no:cacheprovider -o faulthandler_timeout=120 \
  --images "$build/notebooks" "${arguments[@]}" "${files[@]}"
