#!/usr/bin/env bash
# Makes the Python package's wheel of what build/release has compiled, or compiles there what is missing.
#   scripts/build_wheel.sh            dist/aerie-VERSION-…-manylinux_2_36_….whl
# Whatever of Debian 12 it needs beside its C library is inside. The tools come into a virtual environment under
# build/, with pip; the wheel is for the version of Python that `python3` is.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

most_mib=30
rm -f dist/aerie-*.whl
build=build/release
environment="$PWD/$build/python/wheel"
work="$build/wheel"

# shellcheck source=SCRIPTDIR/../tests/testing/python_environment.sh
source tests/testing/python_environment.sh
python_environment python "$environment"
python="$environment/bin/python"

scripts/configure.sh release engine
if ! grep -q '^AERIE_PYTHON:BOOL=ON$' "$build/CMakeCache.txt" ||
  ! grep -qF "Python_EXECUTABLE:FILEPATH=$python" "$build/CMakeCache.txt"; then
  cmake -DAERIE_PYTHON=ON "-DPython_EXECUTABLE:FILEPATH=$python" "$build" >"$build/python/configure.log"
fi
cmake --build "$build" --target aerie aerie_python aerie_python_stub

# What `pip wheel .` puts together, without compiling anything again.
rm -rf "$work"
mkdir -p "$work/tree/aerie" "$work/plain" dist
(cd python && find aerie \( -name '*.py' -o -name py.typed \) -exec cp --parents -t "../$work/tree" {} +)
cmake --install "$build" --prefix "$PWD/$work/tree" --component python --strip >"$work/install.log"
"$python" - "$work/tree" <<'PYTHON'
import sys

from scikit_build_core.build import prepare_metadata_for_build_wheel

prepare_metadata_for_build_wheel(sys.argv[1])
PYTHON
"$python" -m wheel pack --dest-dir "$work/plain" "$work/tree" >"$work/pack.log"
PATH="$environment/bin:$PATH" "$python" -m auditwheel repair --plat "manylinux_2_36_$(uname -m)" \
  --wheel-dir "$work/repaired" "$work"/plain/*.whl >"$work/repair.log" 2>&1 || {
  tail -n 20 "$work/repair.log" >&2
  exit 1
}

wheel="$(echo "$work"/repaired/*.whl)"
size=$(stat -c %s "$wheel")
if ((size > most_mib << 20)); then
  echo "build_wheel: ${wheel##*/} has $((size >> 20)) MiB; at most $most_mib" >&2
  exit 1
fi
cp "$wheel" dist/
echo "build_wheel: dist/${wheel##*/} ($((size >> 10)) KiB)"
