#!/usr/bin/env bash
# Tests several `aerie serve` behind vllm-router, as docs/scaling/servers.md has it.
#   tests/server/routers/run.sh [BUILD [PYTEST OPTION...]]     BUILD: build/release
# Makes a virtual environment under BUILD (tests/testing/python_environment.sh).
set -euo pipefail
# shellcheck source=SCRIPTDIR/../../testing/python_environment.sh
source "$(dirname "${BASH_SOURCE[0]}")/../../testing/python_environment.sh"
begin routers "$@"
python_environment "$here" "$environment"

cd "$root"
# What hangs says where, and what is skipped why.
exec "$environment/bin/python" -m pytest -rsP -p no:cacheprovider -o faulthandler_timeout=120 \
  --program "$build/bin/aerie" "${arguments[@]}" "${files[@]}"
