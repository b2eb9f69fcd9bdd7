#!/usr/bin/env bash
# Tests `aerie serve` with the official OpenAI client and a browser.
#   tests/server/python/run.sh [BUILD [test_FILE.py...] [PYTEST OPTION...]]     BUILD: build/release
# Makes a virtual environment under BUILD (tests/testing/python_environment.sh).
set -euo pipefail
# shellcheck source=SCRIPTDIR/../../testing/python_environment.sh
source "$(dirname "${BASH_SOURCE[0]}")/../../testing/python_environment.sh"
begin server "$@"
python_environment "$here" "$environment"

cd "$root"
# What hangs says where, and what is skipped why.
exec "$environment/bin/python" -m pytest -rs -p no:cacheprovider -o faulthandler_timeout=240 --program "$build/bin/aerie" \
  --screenshots "$build/screenshots" "${arguments[@]}" "${files[@]}"
