#!/usr/bin/env bash
# Tests the cache of models together with the package huggingface_hub.
#   tests/hub/run.sh [BUILD [TEST...]]     BUILD: build/release
# Makes a virtual environment under BUILD (tests/testing/python_environment.sh).
set -euo pipefail
# shellcheck source=SCRIPTDIR/../testing/python_environment.sh
source "$(dirname "${BASH_SOURCE[0]}")/../testing/python_environment.sh"
begin hub "$@"
python_environment "$here" "$environment"

cd "$root"
exec "$environment/bin/python" "$here/shared_cache_test.py" "$build/bin" "${arguments[@]}"
