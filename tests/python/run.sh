#!/usr/bin/env bash
# Tests the Python package as its users have it: the wheel in dist/, in a virtual environment without any other
# package but pytest.
#   tests/python/run.sh [BUILD [test_FILE.py...] [PYTEST OPTION...]]     BUILD: build/release
# scripts/build_wheel.sh makes the wheel.
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
root="$(cd "$here/../.." && pwd)"
build="$(cd "${1:-$root/build/release}" && pwd)"
shift || true

wheel="$(echo "$root"/dist/aerie-*.whl)"
if [[ ! -f "$wheel" ]]; then
  echo "run.sh: skipped: there is no wheel in dist/: scripts/build_wheel.sh makes it" >&2
  exit 77
fi
newer="$(find "$root/python/aerie" "$build/libaerie.so" "$build/bin/aerie" -newer "$wheel" -not -name __pycache__ -not -name '*.pyc' -print -quit)"
if [[ -n "$newer" ]]; then
  echo "run.sh: $newer is newer than the wheel: scripts/build_wheel.sh makes another" >&2
  exit 1
fi
environment="$build/python/package"
# shellcheck source=SCRIPTDIR/../testing/python_environment.sh
source "$here/../testing/python_environment.sh"
python_environment "$here" "$environment"
if ! cmp -s "$wheel" "$environment/installed.whl"; then
  "$environment/bin/pip" install --quiet --disable-pip-version-check --no-index --force-reinstall "$wheel"
  cp "$wheel" "$environment/installed.whl"
fi

files=()
while [[ "${1:-}" == test_*.py ]]; do
  files+=("$here/$1")
  shift
done

cd "$root"
# The wheel comes without it.
export AERIE_TRAIN="$build/bin/aerie-train"
# What hangs says where, and what is skipped why.
exec "$environment/bin/python" -m pytest -rs -p no:cacheprovider -o faulthandler_timeout=120 --wheel "$wheel" \
  "$@" "${files[@]:-$here}"
