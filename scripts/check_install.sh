#!/usr/bin/env bash
# Installs the library of the release build into an empty prefix, builds examples/hello with it as a
# program outside the tree does, and holds its ids against those of `aerie run`.
#   scripts/check_install.sh
# Needs build/release with the targets aerie and aerie_shared, and SmolLM2 (scripts/fetch_model.sh).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

model=models/SmolLM2-135M-Instruct.Q4_1.gguf
prompt="The capital of France is"
if [[ ! -f "$model" ]]; then
  echo "check_install: $model is not there: run scripts/fetch_model.sh" >&2
  exit 1
fi
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT

# A path with a space, as people have it.
prefix="$work/a prefix"
cmake --install build/release --prefix "$prefix" --component library >"$work/install.log"
# What is installed needs nothing of the tree.
cp -r examples/hello "$work/hello"
cmake -S "$work/hello" -B "$work/build" -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_BUILD_TYPE=Release \
  -DCMAKE_CXX_FLAGS="-Wall -Wextra -Werror" >"$work/configure.log"
cmake --build "$work/build"

"$work/build/hello" "$model" "$prompt" | tail -n 1 | tr -s ' \n' '\n' >"$work/hello.ids"
build/release/bin/aerie run -m "$model" --raw -p "$prompt" -n 24 --temp 0 --json "$work/run.json" >/dev/null
python3 -c 'import json, sys; print(*json.load(open(sys.argv[1]))["token_ids"], sep="\n")' \
  "$work/run.json" >"$work/run.ids"
if [[ ! -s "$work/run.ids" ]] || ! diff "$work/run.ids" "$work/hello.ids"; then
  echo "check_install: the program outside the tree gets other ids than aerie run" >&2
  exit 1
fi

# Nothing but the interface is to be seen, and nothing of the tree's own headers is installed.
library="$(find "$prefix" -name 'libaerie.so.*.*.*')"
if nm -DC --defined-only "$library" | grep -vE ' aerie::(Engine::|finish_reason_name|stage_name)' |
  grep -E ' [A-Z] aerie::'; then
  echo "check_install: libaerie shows what is no part of its interface" >&2
  exit 1
fi
echo "check_install: $(wc -l <"$work/run.ids") ids of a program outside the tree are those of aerie run"
