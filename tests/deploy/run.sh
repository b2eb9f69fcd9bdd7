#!/usr/bin/env bash
# Tests what deploy/ holds: with docker-compose's and Kubernetes' schemas, nginx, promtool and Prometheus, and real servers.
#   tests/deploy/run.sh [BUILD [PYTEST OPTION...]]     BUILD: build/release
# scripts/install_deps.sh --full installs the programs; the schemas come into a virtual environment under BUILD.
set -euo pipefail
# shellcheck source=SCRIPTDIR/../testing/python_environment.sh
source "$(dirname "${BASH_SOURCE[0]}")/../testing/python_environment.sh"
begin deploy "$@"
python_environment "$here" "$environment"

cd "$root"
exec "$environment/bin/python" -m pytest -rs -p no:cacheprovider -o faulthandler_timeout=120 \
  --program "$build/bin/aerie" "${arguments[@]}" "${files[@]}"
