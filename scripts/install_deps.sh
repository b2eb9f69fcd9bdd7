#!/usr/bin/env bash
# Installs the Debian packages that Aerie needs and that are not there yet; does nothing else.
#   scripts/install_deps.sh           what building and running `aerie` needs
#   scripts/install_deps.sh --train   also LibTorch, for `aerie train` and `aerie speedup`
#   scripts/install_deps.sh --test    also GoogleTest, and what the tests in Python need
#   scripts/install_deps.sh --full    also the tools of test.sh --full: fuzzing, formatting, linting, a browser, shells,
#                                     cross-compilation and emulation, packaging
set -euo pipefail

engine=(
  g++ cmake ninja-build pkg-config ccache lld
  nlohmann-json3-dev libcli11-dev libspdlog-dev libfmt-dev libpcre2-dev libutf8proc-dev
  libcurl4-openssl-dev libssl-dev libedit-dev libhwloc-dev libboost1.81-dev prometheus-cpp-dev
  python3 python3-pip ca-certificates
)
train=(libtorch-dev libgloo-dev libopenblas0-pthread)
tests=(libgtest-dev libgmock-dev python3-venv python3-dev)
full=(clang-19 libclang-rt-19-dev clang-format clang-tidy-19 libbenchmark-dev git chromium dpkg-dev debootstrap
  zsh fish nginx-light openssl libopenmpi-dev openmpi-bin prometheus docker-compose iproute2)
# Where Arm is not at hand.
if [[ "$(uname -m)" != aarch64 ]]; then
  full+=(g++-aarch64-linux-gnu qemu-user)
fi

case "$#:${1:-}" in
  0:) packages=("${engine[@]}") ;;
  1:--train) packages=("${engine[@]}" "${train[@]}") ;;
  1:--test) packages=("${engine[@]}" "${train[@]}" "${tests[@]}") ;;
  1:--full) packages=("${engine[@]}" "${train[@]}" "${tests[@]}" "${full[@]}") ;;
  *)
    echo "usage: scripts/install_deps.sh [--train|--test|--full]" >&2
    exit 2
    ;;
esac

if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
  echo "install_deps: this is no Debian system; it needs what these Debian packages hold:" >&2
  echo "  ${packages[*]}" >&2
  echo "install_deps: going on as if they were there" >&2
  exit 0
fi

# dpkg-query complains about packages that it has never heard of: these are missing too.
# shellcheck disable=SC2016 # dpkg-query's own variables
format='${db:Status-Abbrev}${Package} '
installed=" $(dpkg-query -W -f "$format" "${packages[@]}" 2>/dev/null || true)"
missing=()
for package in "${packages[@]}"; do
  if [[ "$installed" != *" ii $package "* && "$installed" != *" hi $package "* ]]; then
    missing+=("$package")
  fi
done
if ((${#missing[@]} == 0)); then
  echo "install_deps: all ${#packages[@]} packages are there"
  exit 0
fi

echo "install_deps: missing: ${missing[*]}"
as_root=()
if ((EUID != 0)); then
  # A password is asked for where somebody can type it.
  if command -v sudo >/dev/null && { sudo -n true 2>/dev/null || { [[ -t 0 ]] && sudo -v; }; }; then
    as_root=(sudo)
  else
    echo "install_deps: installing them takes root, which this user does not get without a password;" >&2
    echo "install_deps: have this done as root, then start again:" >&2
    echo "  apt-get update && apt-get install --no-install-recommends ${missing[*]}" >&2
    exit 1
  fi
fi

apt=(env DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=300)
"${as_root[@]}" "${apt[@]}" update </dev/null || {
  echo "install_deps: apt-get update failed; trying with the package lists at hand" >&2
}
if ! "${as_root[@]}" "${apt[@]}" install -y --no-install-recommends "${missing[@]}" </dev/null; then
  echo "install_deps: apt-get could not install: ${missing[*]}" >&2
  echo "install_deps: its message stands above; is there a network, and do the package sources offer them?" >&2
  exit 1
fi
