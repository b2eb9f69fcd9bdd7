#!/usr/bin/env bash
# The tests of the Python package with its module and library under AddressSanitizer and UBSan, leaks at the
# interpreter's end included. The program beside them is build/release's.
#   tests/python/sanitized.sh [PYTEST OPTION...]
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
root="$(cd "$here/../.." && pwd)"
cd "$root"

# shellcheck source=SCRIPTDIR/../testing/python_environment.sh
source tests/testing/python_environment.sh
python_environment python "$root/build/release/python/wheel"
tests="$root/build/release/python/sanitized"
python_environment "$here" "$tests"

scripts/configure.sh asan engine
# The other tests of this build have no module.
trap 'cmake -DAERIE_PYTHON=OFF build/asan >/dev/null' EXIT
cmake -DAERIE_PYTHON=ON "-DPython_EXECUTABLE:FILEPATH=$root/build/release/python/wheel/bin/python" build/asan \
  >build/asan/python.log
cmake --build build/asan --target aerie_python

tree=build/asan/package
rm -rf "$tree"
mkdir -p "$tree"
cp -r python/aerie "$tree/"
cp build/asan/python/_core.*.so "$tree/aerie/"
for library in build/asan/libaerie.so.*; do
  if [[ -L "$library" ]]; then
    cp -L "$library" "$tree/aerie/" # by the name that it is loaded by
  fi
done
mkdir "$tree/aerie/bin"
ln -s "$root/build/release/bin/aerie" "$tree/aerie/bin/aerie"

runtime="$(clang++-19 -print-file-name="libclang_rt.asan-$(uname -m).so")"
# What has been freed is kept for a while, and counts for a process's memory: less than by default.
PYTHONPATH="$root/$tree" PYTHONMALLOC=malloc LD_PRELOAD="$runtime" \
  ASAN_OPTIONS=detect_leaks=1:quarantine_size_mb=8 UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 \
  "$tests/bin/python" -m pytest -rs -p no:cacheprovider -o faulthandler_timeout=300 \
  --ignore "$here/ray" --ignore "$here/test_install.py" --ignore "$here/test_training.py" "$@" "$here"
