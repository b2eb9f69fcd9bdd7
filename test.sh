#!/usr/bin/env bash
# Builds everything and runs the tests.
#   ./test.sh          release build, all tests, the include check
#   ./test.sh --full   also formatting, clang-tidy, the tests under AddressSanitizer and UBSan, the
#                      threaded ones under ThreadSanitizer, a short run of every fuzzer, and the
#                      kernels' tests on an emulated Arm processor
#   ./test.sh --full --within MINUTES   leaves out, and names, what would not be done by then
# Needs no input and a network only for what is missing; writes only to build/ and models/.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

usage() {
  echo "usage: ./test.sh [--full [--within MINUTES]]" >&2
  exit 2
}

full=false
limit_seconds=0
case "$#:${1:-}" in
  0:) ;;
  1:--full) full=true ;;
  3:--full)
    full=true
    [[ "$2" == --within && "$3" =~ ^[1-9][0-9]{0,4}$ ]] || usage
    limit_seconds=$((60 * $3))
    ;;
  *) usage ;;
esac

fuzz_seconds=15
# A release build without a cache on two idle cores (AMD EPYC, 2026); the seconds that optional_stage
# is given are of that machine.
usual_build_seconds=900
# clang-tidy comes last and gets what is left of this.
tidy_seconds=900
least_tidy_seconds=90
times=()
left_out=()

# stage NAME COMMAND...: runs it, with a line before and the time it took after.
stage() {
  local name="$1" start=$SECONDS
  shift
  printf '\n==== %s\n' "$name"
  # Not in a condition: `set -e` would be off inside the command.
  current_stage="$name"
  "$@"
  current_stage=""
  times+=("$(printf '%6d s  %s' $((SECONDS - start)) "$name")")
  printf -- '---- %s: %d s\n' "$name" $((SECONDS - start))
}

# optional_stage SECONDS NAME COMMAND...: a stage that is left out if it would end after the limit. The
# release build has shown how slow this machine is.
optional_stage() {
  local needed="$1" name="$2"
  shift
  if ((build_seconds > usual_build_seconds)); then
    needed=$((needed * build_seconds / usual_build_seconds))
  fi
  if ((limit_seconds > 0 && SECONDS + needed > limit_seconds)); then
    printf '\n==== %s: WARNING: left out for want of time (%d s)\n' "$name" "$needed"
    left_out+=("$name")
    return
  fi
  stage "$@"
}

current_stage=""
on_exit() {
  local status=$?
  rm -f "${started:-}"
  if ((status != 0)); then
    printf '\ntest.sh: failed%s\n' "${current_stage:+ in: $current_stage}" >&2
  fi
}
trap on_exit EXIT

build() { # PRESET [TARGET...]
  local preset="$1"
  shift
  scripts/configure.sh "$preset"
  cmake --build --preset "$preset" ${@:+--target "$@"}
}

run_tests() { # PRESET [CTEST OPTION...]
  local preset="$1"
  shift
  ctest --preset "$preset" --no-tests=error "$@" | tee "build/$preset/ctest.log"
}

check_includes() {
  scripts/check_includes.py --self-test
  scripts/check_includes.py
}

sources() { # FOLDER...
  find "$@" \( -name '*.cc' -o -name '*.h' \) -print0 | sort -z
}

check_format() {
  sources src bench tools train tests | xargs -0 clang-format --dry-run -Werror
}

check_tidy() {
  local log=build/tidy/clang-tidy.log status=0 seconds=$tidy_seconds
  if ((limit_seconds > 0 && limit_seconds - SECONDS < seconds)); then
    seconds=$((limit_seconds - SECONDS))
  fi
  seconds=$((seconds < least_tidy_seconds ? least_tidy_seconds : seconds))
  # The commands are GCC's, with switches that clang does not know, and without its precompiled headers.
  cmake --preset release -B build/tidy -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON >/dev/null
  timeout "$seconds" run-clang-tidy -quiet -p build/tidy -j "$(nproc)" \
    -extra-arg=-Wno-unknown-warning-option "$PWD/(src|bench|tools)/.*\.cc$" >"$log" 2>&1 || status=$?
  if ((status == 124)); then
    echo "clang-tidy: WARNING: out of time after $seconds s, not all files were seen"
  fi
  if sed 's/\x1b\[[0-9;]*m//g' "$log" | grep -E '(error|warning):' | sort -u; then
    echo "clang-tidy: see $log" >&2
    return 1
  fi
  if ((status != 0 && status != 124)); then
    tail -n 20 "$log" >&2
    return 1
  fi
}

# Builds the programs of the tests that ctest's options name, each test_<name>, and the other targets.
build_tests() { # PRESET "CTEST OPTIONS" [TARGET...]
  local preset="$1" options="$2" targets
  shift 2
  scripts/configure.sh "$preset"
  # shellcheck disable=SC2086 # several words
  mapfile -t targets < <(ctest --preset "$preset" -N $options |
    sed -n 's/^ *Test *#[0-9]*: \([^ ]*\).*/test_\1/p' | sed 's/_[0-9]*$//' | sort -u)
  if ((${#targets[@]} == 0)); then
    echo "no test is meant by $options" >&2
    return 1
  fi
  build "$preset" "${targets[@]}" "$@"
}

fuzzers() {
  ninja -C build/asan -t targets all | sed -n 's/^\(fuzz_[^:]*\): phony$/\1/p'
}

# The real model is too slow there, and so are the many repetitions that statistics need; neither adds
# code that other tests do not reach.
test_addresses() {
  local options='-LE ^(real|statistics)$' targets
  scripts/configure.sh asan
  mapfile -t targets < <(fuzzers)
  build_tests asan "$options" "${targets[@]}"
  # shellcheck disable=SC2086 # several words
  run_tests asan $options
}

test_threads() {
  local options='-L ^threads$' no_aslr=()
  build_tests tsan "$options"
  # Runtimes of this age do not get along with the address layouts of newer kernels.
  if setarch "$(uname -m)" -R true 2>/dev/null; then
    no_aslr=(setarch "$(uname -m)" -R)
  fi
  # shellcheck disable=SC2086 # several words
  TSAN_OPTIONS=halt_on_error=1 "${no_aslr[@]}" \
    ctest --preset tsan --no-tests=error $options | tee build/tsan/ctest.log
}

# The tests of the kernels on an emulated processor, and whether it computes this one's bits.
test_aarch64() {
  local digests=build/aarch64/digests
  build aarch64 aerie_core test_kernels isa_digest
  run_tests aarch64 -R '^kernels'
  mkdir -p "$digests"
  build/release/bin/isa_digest >"$digests/here"
  qemu-aarch64 -L /usr/aarch64-linux-gnu build/aarch64/bin/isa_digest >"$digests/aarch64"
  # Nothing is to be compared where this processor has only the reference.
  if [[ -s "$digests/here" ]] && ! diff "$digests/here" "$digests/aarch64"; then
    echo "the instruction sets do not compute the same" >&2
    return 1
  fi
}

fuzz_one() { # PROGRAM SECONDS
  local name="${1#fuzz_}" folder=build/asan/runs/$1 seeds=() status=0
  rm -rf "$folder"
  mkdir -p "$folder/corpus"
  if [[ -d tests/fuzz/corpus/$name ]]; then
    seeds=("tests/fuzz/corpus/$name")
  fi
  "build/asan/bin/$1" -seed=1 -max_total_time="$2" -timeout=10 -rss_limit_mb=2048 \
    -artifact_prefix="$folder/" "$folder/corpus" "${seeds[@]}" >"$folder/log" 2>&1 || status=$?
  if ((status != 0)); then
    tail -n 40 "$folder/log" >&2
    echo "$1: failed; the input lies in $folder/" >&2
    return 1
  fi
  echo "$1: $(grep -E '^Done ' "$folder/log" || true)"
}
export -f fuzz_one

fuzz() {
  local targets
  mapfile -t targets < <(fuzzers)
  if ((${#targets[@]} == 0)); then
    echo "there are no fuzzers"
    return 0
  fi
  printf '%s\n' "${targets[@]}" |
    xargs -P "$(nproc)" -I{} bash -euo pipefail -c 'fuzz_one "$@"' fuzz_one {} "$fuzz_seconds"
}

# What ctest said at its end, once more, since pages of other output may have followed.
summary() {
  local preset log
  printf '\n==== times\n'
  printf '%s\n' "${times[@]}"
  printf '%6d s  all\n' "$SECONDS"
  if ((${#left_out[@]} > 0)); then
    printf '  left out  %s\n' "${left_out[@]}"
  fi
  for preset in aarch64 tsan asan release; do
    log="build/$preset/ctest.log"
    if [[ "$log" -nt "$started" ]]; then
      printf '\n==== ctest, %s\n' "$preset"
      grep -E 'tests passed|tests failed|^Total Test time' "$log"
    fi
  done
}

started="$(mktemp)"
if $full; then
  stage "dependencies" scripts/install_deps.sh --full
else
  stage "dependencies" scripts/install_deps.sh
fi
# What takes seconds comes first.
stage "includes" check_includes
if $full; then
  stage "formatting" check_format
fi
stage "model, SmolLM2" scripts/fetch_model.sh
stage "model, Gemma 3" scripts/fetch_model.sh gemma3
build_seconds=$SECONDS
stage "build, release" build release
build_seconds=$((SECONDS - build_seconds))
stage "docs" bash -c 'scripts/check_docs.py --self-test && scripts/check_docs.py'
stage "tests, release" run_tests release
if $full; then
  optional_stage 800 "AddressSanitizer and UBSan" test_addresses
  if [[ build/asan/ctest.log -nt "$started" ]]; then
    optional_stage 120 "fuzzing" fuzz
  fi
  optional_stage 650 "threads, ThreadSanitizer" test_threads
  if [[ "$(uname -m)" != aarch64 ]]; then
    optional_stage 240 "kernels, aarch64 (emulated)" test_aarch64
  fi
  optional_stage "$least_tidy_seconds" "clang-tidy" check_tidy
fi
summary
