#!/usr/bin/env bash
# From a fresh Debian 12 to generated text: installs what building and running aerie needs and is not
# there, builds it, fetches a small model and runs the demo. A second run goes straight to the demo.
#   ./quickstart.sh [options of scripts/demo.py]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

current=""
on_exit() {
  local status=$?
  if ((status != 0)) && [[ -n "$current" ]]; then
    printf '\nquickstart: stopped at: %s (what is wrong stands above; a second run goes on from here)\n' \
      "$current" >&2
  fi
}
trap on_exit EXIT

# step NAME COMMAND...: says what it does, does it, and says how long that took.
step() {
  local start=$SECONDS
  current="$1"
  shift
  printf '\n==== %s\n' "$current"
  "$@"
  printf -- '---- %s: %d s\n' "$current" $((SECONDS - start))
  current=""
}

step "packages for the build (apt)" scripts/install_deps.sh
step "configuring in build/release (cmake)" scripts/configure.sh release engine
step "building aerie (ninja)" cmake --build --preset release --target aerie
step "the model SmolLM2-135M-Instruct, 94 MiB, into models/ (pip)" scripts/fetch_model.sh
printf -- '---- ready after %d s: build/release/bin/aerie\n' "$SECONDS"
step "demo: the same replies plainly and with speculation" scripts/demo.py "$@"
