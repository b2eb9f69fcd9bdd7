#!/usr/bin/env bash
# Configures a preset unless its build folder is up to date; Ninja sees to changed CMakeLists.txt.
#   scripts/configure.sh PRESET          everything
#   scripts/configure.sh PRESET train    without the tests
#   scripts/configure.sh PRESET engine   without tests and training
# The libraries of what is left out may be absent. A folder that has more keeps it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

usage() {
  echo "usage: scripts/configure.sh PRESET [engine|train]" >&2
  exit 2
}
(($# == 1)) || [[ $# == 2 && ("$2" == engine || "$2" == train) ]] || usage

preset="$1"
ninja_file="build/$preset/build.ninja"
cache="build/$preset/CMakeCache.txt"

cache_has() { [[ -f "$cache" ]] && grep -qE "$1" "$cache"; }

needed=false
options=()
if [[ ! -f "$ninja_file" || CMakePresets.json -nt "$ninja_file" ]]; then
  needed=true
fi
# switch_on OPTION: unless it is on, or a new folder has it on by itself
switch_on() {
  if cache_has "^$1:BOOL=OFF$"; then
    needed=true
    options+=("-D$1=ON")
  fi
}

if [[ "${2:-}" == "" ]]; then
  switch_on AERIE_TESTS
elif ! cache_has '^AERIE_TESTS:BOOL='; then
  options+=(-DAERIE_TESTS=OFF)
fi
if [[ "${2:-}" != engine ]]; then
  switch_on AERIE_TRAIN
  # What was absent then may have been installed since.
  if cache_has '^AERIE_(CCACHE|LLD|GLOO|TORCH_CPU):FILEPATH=.*-NOTFOUND$'; then
    needed=true
  fi
elif ! cache_has '^AERIE_TRAIN:BOOL='; then
  options+=(-DAERIE_TRAIN=OFF)
fi
if $needed; then
  cmake --preset "$preset" "${options[@]}"
fi
