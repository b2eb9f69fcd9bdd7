#!/usr/bin/env bash
# Tests `aerie serve` with lm-evaluation-harness: the same scores with speculation as without.
#   tests/server/evaluation/run.sh [BUILD [PYTEST OPTION...]]     BUILD: build/release
# Makes a virtual environment under BUILD (tests/testing/python_environment.sh). The tasks are files of
# this folder: a network is needed for the environment alone.
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
root="$(cd "$here/../../.." && pwd)"
build="$(cd "${1:-$root/build/release}" && pwd)"
shift || true

environment="$build/python/evaluation"
# shellcheck source=SCRIPTDIR/../../testing/python_environment.sh
source "$here/../../testing/python_environment.sh"
python_environment "$here" "$environment"

cd "$root" # which the paths in tasks/ start from
export AERIE_PROGRAM="${AERIE_PROGRAM:-$build/bin/aerie}"
exec "$environment/bin/python" -m pytest -rs -p no:cacheprovider -o faulthandler_timeout=240 "$@" "$here"
