#!/usr/bin/env bash
# Tests `aerie serve` with lm-evaluation-harness: the same scores with speculation as without.
#   tests/server/evaluation/run.sh [BUILD [PYTEST OPTION...]]     BUILD: build/release
# Makes a virtual environment under BUILD (tests/testing/python_environment.sh). The tasks are files of
# this folder: a network is needed for the environment alone.
set -euo pipefail
# shellcheck source=SCRIPTDIR/../../testing/python_environment.sh
source "$(dirname "${BASH_SOURCE[0]}")/../../testing/python_environment.sh"
begin evaluation "$@"
python_environment "$here" "$environment"

cd "$root" # which the paths in tasks/ start from
export AERIE_PROGRAM="${AERIE_PROGRAM:-$build/bin/aerie}"
exec "$environment/bin/python" -m pytest -rs -p no:cacheprovider -o faulthandler_timeout=240 "${arguments[@]}" "${files[@]}"
