#!/usr/bin/env bash
# Builds everything and runs the tests.
#   ./test.sh             release build, all tests, the checks of includes and structure
#   ./test.sh --full      what every change has to pass: also formatting and, of what changed, the tests of what reads
#                         foreign bytes or raw memory under AddressSanitizer and UBSan, those with threads under
#                         ThreadSanitizer, the fuzzers, the machine code of GPUs' kernels, and the kernels' tests on
#                         an emulated Arm processor
#   ./test.sh --nightly   all of that for everything, every combination of what by day is combined in pairs,
#                         clang-tidy, fuzzing for longer, training with PyTorch 2, the Python package under
#                         AddressSanitizer, and the package in a bare Debian
#   ./test.sh STAGE...    of --full these alone: addresses (with the fuzzers), threads, gpu, arm
# What has changed, scripts/changes.py says; what has passed it keeps in .ci/passed, to be committed. Nothing is left
# out by the clock. Where CI=true a test that is skipped fails the run unless .ci/left_out names it.
# Needs no input and a network only for what is missing; writes only to build/, dist/, models/, .ci/passed and ~/.cache.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

full=false
nightly=false
alone=false # whether the stages wanted are all that is wanted
wanted=(addresses threads gpu arm)
usage() {
  echo "usage: ./test.sh [--full|--nightly|addresses|threads|gpu|arm]..." >&2
  exit 2
}
case "$#:${1:-}" in
  0:) ;;
  1:--full) full=true ;;
  1:--nightly) full=true nightly=true ;;
  *)
    for stage in "$@"; do
      [[ " ${wanted[*]} " == *" $stage "* ]] || usage
    done
    wanted=("$@")
    alone=true
    ;;
esac

fuzz_seconds=15
everything=() # of scripts/changes.py: at night what has passed, too
fuzzers=""    # pending, as scripts/changes.py writes them
if $nightly; then
  everything=(--all)
  fuzz_seconds=120
  export AERIE_NIGHTLY=1 # tests/testing/nightly.h
fi
# The labels of tests that run under AddressSanitizer each time: the folders whose code reads files and requests
# of strangers or works on raw memory. What stands above them hands on what these have checked.
memory_labels='^(base|tensor|format|fuzz|core|jinja|tokenizer|grammar|chat|kernels|kv|model|server|hub)$'
# The real model is too slow under a sanitizer, and so are the many repetitions that statistics need; neither
# adds code that other tests do not reach.
slow_labels='^(real|statistics)$'
cuda_paths=(src/kernels/device src/kernels/simt 'src/kernels/*.h' 'src/tensor/*.h' 'src/base/*.h' cmake/Cuda.cmake
  cmake/DeviceBuildId.cmake cmake/libaerie_cuda.map bench/device_peak.cu scripts/cuda)
arm_paths=(src/kernels src/tensor src/base tests/kernels cmake/aarch64-linux-gnu.cmake cmake/HeaderLibraries.cmake)
times=()
unchanged=()

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

# same NAME WHY: says that a stage is not needed, now and at the end.
same() {
  printf '\n==== %s: %s\n' "$1" "$2"
  unchanged+=("$1: $2")
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

launcher=() # what ctest is started with
readonly skipped_too_much=3
run_tests() { # PRESET [CTEST OPTION...]
  local preset="$1" status=0
  shift
  rm -f "build/$preset/tests.xml"
  "${launcher[@]}" ctest --preset "$preset" --no-tests=error --output-junit tests.xml "$@" | tee "build/$preset/ctest.log" ||
    status=$?
  check_skips "$preset" || return "$skipped_too_much"
  return "$status"
}

check_skips() { # PRESET
  local strict=()
  if [[ "${CI:-}" == true ]]; then
    strict=(--strict)
    # Without it the tests of train/ do not exist.
    if grep -q '^AERIE_TORCH_CPU:FILEPATH=.*NOTFOUND' "build/$1/CMakeCache.txt"; then
      echo "LibTorch was not found: the tests of train/ are missing" >&2
      return 1
    fi
  fi
  scripts/skips.py "${strict[@]}" --list .ci/left_out "build/$1" | tee "build/$1/skips.log"
}

check_includes() {
  scripts/check_includes.py --self-test
  scripts/check_includes.py
}

check_structure() {
  scripts/check_structure.py --self-test
  scripts/check_structure.py
  scripts/skips.py --self-test
  scripts/changes.py --self-test
}

sources() { # FOLDER...
  find "$@" \( -name '*.cc' -o -name '*.h' \) -print0 | sort -z
}

make_wheel() {
  local status=0
  scripts/build_wheel.sh || status=$?
  # Without the tools, which come with pip, the package's tests are skipped.
  ((status == 77)) || return "$status"
}

check_format() {
  sources src include examples bench tools train python tests | xargs -0 clang-format --dry-run -Werror
}

check_tidy() {
  if $nightly; then
    scripts/tidy.py --all
  else
    scripts/tidy.py
  fi
}

# Of the programs of the tests that ctest's options name a line "PRESET_NAME DIGEST" each, as scripts/changes.py writes them:
# by day of those that have not passed with what they reach as it is now.
pending() { # PRESET CTEST OPTION...
  local preset="$1" listed
  shift
  listed=$(ctest --preset "$preset" -N "$@" |
    sed -n 's/^ *Test *#[0-9]*: \([^ ]*\).*/\1/p' | sed 's/_[0-9]*$//' | sort -u)
  if [[ -z "$listed" ]]; then
    echo "no test is meant by $*" >&2
    return 1
  fi
  # shellcheck disable=SC2086 # names, one a word
  scripts/changes.py "${everything[@]}" tests "$preset" $listed
}

# Of the fuzzers likewise.
pending_fuzzers() {
  local all
  all=$(ninja -C build/asan -t targets all | sed -n 's/^\(fuzz_[^:]*\): phony$/\1/p')
  # shellcheck disable=SC2086 # names, one a word
  scripts/changes.py "${everything[@]}" fuzzers $all
}

names() { # LINES: the first words
  cut -d' ' -f1 <<<"$1" | tr '\n' ' '
}

# Builds and runs what is pending, and builds the other targets.
run_pending() { # PRESET "TARGET..." CTEST OPTION...
  local preset="$1" lines programs targets status=0
  read -ra targets <<<"$2"
  shift 2
  lines=$(pending "$preset" "$@")
  read -ra programs <<<"$(names "$lines")"
  programs=("${programs[@]#"${preset}"_}")
  echo "tests that reach what has changed: ${programs[*]:-none}"
  targets+=("${programs[@]/#/test_}")
  if ((${#targets[@]} > 0)); then
    build "$preset" "${targets[@]}"
  fi
  if ((${#programs[@]} > 0)); then
    # Others will not run them: here, too, none may be skipped without a reason.
    CI=true run_tests "$preset" "$@" -R "^($(IFS="|" && echo "${programs[*]}"))(_[0-9]+)?\$" || status=$?
    # Whatever failed, the others need not run again.
    if ((status != skipped_too_much)) && [[ -f "build/$preset/tests.xml" ]]; then
      scripts/changes.py keep-passed "build/$preset/tests.xml" <<<"$lines"
    fi
    return "$status"
  fi
}

test_addresses() {
  local options=(-LE "$slow_labels") filter='*'
  if ! $nightly; then
    options+=(-L "$memory_labels")
    # At night: the scalar kernels, which index what the others do, and families on a device, each of which has a pass
    # in Families.AreComputedByDevices, and its shapes in the tests of the kernels.
    filter='-*/reference_*:Families/DeviceFamily.*:Families/DeviceFamilyTree.*'
  fi
  scripts/configure.sh asan
  fuzzers=$(pending_fuzzers)
  GTEST_FILTER="$filter" run_pending asan "$(names "$fuzzers")" "${options[@]}"
}

test_threads() {
  local filter='*'
  if ! $nightly; then
    # At night: FamilyInvariance divides all families' passes among threads; rounds that stop have one.
    filter='-Models/Families.*:Golden/FamilyCacheTest.*:Drafters/Stop.*'
  fi
  launcher=(env TSAN_OPTIONS=halt_on_error=1)
  # Runtimes of this age do not get along with the address layouts of newer kernels.
  if setarch "$(uname -m)" -R true 2>/dev/null; then
    launcher+=(setarch "$(uname -m)" -R)
  fi
  scripts/configure.sh tsan
  GTEST_FILTER="$filter" run_pending tsan "" -L '^threads$'
  launcher=()
}

# The tests of the kernels on an emulated processor, and whether it computes this one's bits.
test_aarch64() {
  local digests=build/aarch64/digests
  build release isa_digest
  build aarch64 aerie_core test_kernels test_simt isa_digest
  CI=true run_tests aarch64 -R '^(kernels_[0-9]+|simt)'
  mkdir -p "$digests"
  build/release/bin/isa_digest >"$digests/here"
  qemu-aarch64 -L /usr/aarch64-linux-gnu build/aarch64/bin/isa_digest >"$digests/aarch64"
  # Nothing is to be compared where this processor has only the reference.
  if [[ -s "$digests/here" ]] && ! diff "$digests/here" "$digests/aarch64"; then
    echo "the instruction sets do not compute the same" >&2
    return 1
  fi
}

# The device's code as CUDA's compiler takes it, which no GPU is needed for.
compile_cuda() {
  local toolkit
  toolkit=$(scripts/cuda/fetch_nvcc.sh)
  cmake --preset cuda -DAERIE_NVCC="$toolkit/bin/nvcc" >build/nvcc/configure.log
  cmake --build --preset cuda --target aerie_cuda aerie-device-peak
  scripts/cuda/check_sass.py --self-test
  scripts/cuda/check_sass.py --cuobjdump "$toolkit/bin/cuobjdump" --arch sm_80 --arch sm_90 build/cuda/bin/libaerie_cuda.so
  scripts/cuda/check_library.py build/cuda
}

# Training with the LibTorch of PyTorch 2, which GPUs take, on the processor.
test_torch() {
  local torch name
  torch=$(scripts/torch/fetch_torch.sh)
  cmake --preset release -B build/torch2 -DAERIE_TORCH="$torch" >build/pytorch/configure.log
  cmake --build build/torch2 --target aerie-train test_train test_train_methods test_train_command
  for name in test_train test_train_methods test_train_command; do
    "build/torch2/bin/$name" --gtest_brief=1
  done
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
  read -ra targets <<<"$(names "$fuzzers")"
  echo "fuzzers that reach what has changed: ${targets[*]:-none}"
  if ((${#targets[@]} == 0)); then
    return 0
  fi
  printf '%s\n' "${targets[@]}" |
    xargs -P "$(nproc)" -I{} bash -euo pipefail -c 'fuzz_one "$@"' fuzz_one {} "$fuzz_seconds"
  scripts/changes.py keep <<<"$fuzzers"
}

# What ctest said at its end, once more, since pages of other output may have followed.
summary() {
  local preset log
  printf '\n==== times\n'
  printf '%s\n' "${times[@]}"
  printf '%6d s  all\n' "$SECONDS"
  if ((${#unchanged[@]} > 0)); then
    printf '    not run  %s\n' "${unchanged[@]}"
  fi
  for preset in aarch64 tsan asan release; do
    log="build/$preset/ctest.log"
    if [[ "$log" -nt "$started" ]]; then
      printf '\n==== ctest, %s\n' "$preset"
      cat "build/$preset/skips.log"
      grep -E 'tests passed|tests failed|^Total Test time' "$log"
    fi
  done
}

# Of what only --full does the stages wanted.
stage_addresses() {
  stage "AddressSanitizer and UBSan" test_addresses
  stage "fuzzing" fuzz
}

stage_threads() {
  stage "threads, ThreadSanitizer" test_threads
}

stage_gpu() {
  local line
  line=$(scripts/changes.py "${everything[@]}" contents cuda "${cuda_paths[@]}")
  if [[ -z "$line" ]]; then
    same "code of GPUs" "passed with these kernels"
  else
    stage "code of GPUs" compile_cuda
    scripts/changes.py keep <<<"$line"
  fi
}

stage_arm() {
  local line
  line=$(scripts/changes.py "${everything[@]}" contents aarch64 "${arm_paths[@]}")
  if [[ "$(uname -m)" == aarch64 ]]; then
    same "kernels, aarch64 (emulated)" "this processor is one"
  elif [[ -z "$line" ]]; then
    same "kernels, aarch64 (emulated)" "passed with these kernels and tensors"
  else
    stage "kernels, aarch64 (emulated)" test_aarch64
    scripts/changes.py keep <<<"$line"
  fi
}

release_tests() {
  local by_day=()
  # What takes seconds comes first.
  stage "includes" check_includes
  stage "structure" check_structure
  if $full; then
    stage "formatting" check_format
  fi
  stage "model, SmolLM2" scripts/fetch_model.sh
  stage "model, Gemma 3" scripts/fetch_model.sh gemma3
  stage "build, release" build release
  stage "installed library" scripts/check_install.sh
  stage "Python package" make_wheel
  stage "docs" bash -c 'scripts/check_docs.py --self-test && scripts/check_docs.py'
  $nightly || by_day=(-LE nightly)
  stage "tests, release" run_tests release "${by_day[@]}"
}

started="$(mktemp)"
if $full || $alone; then
  stage "dependencies" scripts/install_deps.sh --full
else
  stage "dependencies" scripts/install_deps.sh --test
fi
if ! $alone; then
  release_tests
fi
if $full || $alone; then
  for name in "${wanted[@]}"; do
    "stage_$name"
  done
fi
if $nightly; then
  stage "clang-tidy" check_tidy
  stage "Python package, AddressSanitizer and UBSan" tests/python/sanitized.sh
  stage "training with PyTorch 2" test_torch
  stage "package in a bare Debian" scripts/check_package.sh
fi
if $full; then
  scripts/changes.py keep-commit
fi
summary
