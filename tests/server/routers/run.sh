#!/usr/bin/env bash
# Tests several `aerie serve` behind vllm-router, as docs/scaling/servers.md has it.
#   tests/server/routers/run.sh [BUILD [PYTEST OPTION...]]     BUILD: build/release
# Makes a virtual environment under BUILD (tests/testing/python_environment.sh).
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
root="$(cd "$here/../../.." && pwd)"
build="$(cd "${1:-$root/build/release}" && pwd)"
shift || true

environment="$build/python/routers"
# shellcheck source=SCRIPTDIR/../../testing/python_environment.sh
source "$here/../../testing/python_environment.sh"
python_environment "$here" "$environment"

cd "$root"
# What hangs says where, and what is skipped why.
exec "$environment/bin/python" -m pytest -rsP -p no:cacheprovider -o faulthandler_timeout=120 \
  --program "$build/bin/aerie" "$@" "$here"
