#!/usr/bin/env bash
# Tests aerie.ray on a small cluster of Ray's own: the wheel in dist/, in a virtual environment with Ray.
#   tests/python/ray/run.sh [BUILD [PYTEST OPTION...]]     BUILD: build/release
# scripts/build_wheel.sh makes the wheel.
set -euo pipefail
# shellcheck source=SCRIPTDIR/../../testing/python_environment.sh
source "$(dirname "${BASH_SOURCE[0]}")/../../testing/python_environment.sh"
begin ray "$@"
wheel_environment "$root" "$build" "$here" "$environment"

cd "$root"
# How often Ray looks at the load, in seconds; its default is 10.
export RAY_SERVE_HANDLE_AUTOSCALING_METRIC_PUSH_INTERVAL_S=1 RAY_SERVE_REPLICA_AUTOSCALING_METRIC_PUSH_INTERVAL_S=1
# A proxy that is slow to start, on a machine with much else to do, is not given up.
export RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S=60 RAY_SERVE_PROXY_HEALTH_CHECK_TIMEOUT_S=60
export RAY_USAGE_STATS_ENABLED=0 RAY_AUTH_MODE=disabled
# What hangs says where, and what is skipped why.
exec "$environment/bin/python" -m pytest -rsP -W ignore::DeprecationWarning -p no:cacheprovider -o faulthandler_timeout=300 \
  --confcutdir "$here" --program "$build/bin/aerie" "${arguments[@]}" "${files[@]}"
