#!/usr/bin/env bash
# Tests the cache of models together with the package huggingface_hub.
#   tests/hub/run.sh [BUILD [TEST...]]     BUILD: build/release
# Makes a virtual environment under BUILD (tests/testing/python_environment.sh).
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
root="$(cd "$here/../.." && pwd)"
build="$(cd "${1:-$root/build/release}" && pwd)"
shift || true

environment="$build/python/hub"
# shellcheck source=SCRIPTDIR/../testing/python_environment.sh
source "$here/../testing/python_environment.sh"
python_environment "$here" "$environment"
cd "$root"
exec "$environment/bin/python" "$here/shared_cache_test.py" "$build/bin" "$@"
