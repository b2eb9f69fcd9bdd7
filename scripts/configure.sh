#!/usr/bin/env bash
# Configures a preset unless its build folder is up to date; Ninja sees to changed CMakeLists.txt.
#   scripts/configure.sh PRESET
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

ninja_file="build/$1/build.ninja"
if [[ ! -f "$ninja_file" || CMakePresets.json -nt "$ninja_file" ]]; then
  cmake --preset "$1"
fi
