#!/usr/bin/env bash
# Makes the packages and tries them where nothing else is, in a bare Debian 12, made with debootstrap under build/:
# the Python wheel beside Python alone, then the .deb, installed with apt, and the .tar.gz. Each has to generate a few
# tokens.
#   scripts/check_package.sh
# Takes root, a network and the demo's model (scripts/fetch_model.sh); Debian's mirror is the one that this
# machine's apt uses.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

model=SmolLM2-135M-Instruct.Q4_1.gguf
packages=build/packages
root="$PWD/build/bare_debian"
prompt="Name three rivers of Europe."
arguments=(--template -p "$prompt" -n 12 --temp 0)

fail() {
  echo "check_package: $*" >&2
  exit 1
}

((EUID == 0)) || fail "making a Debian root takes root"
for program in cpack dpkg-shlibdeps debootstrap; do
  command -v "$program" >/dev/null || PATH="$PATH:/usr/sbin" command -v "$program" >/dev/null ||
    fail "$program is missing; scripts/install_deps.sh --full installs it"
done
[[ -f "models/$model" ]] || fail "models/$model is missing; scripts/fetch_model.sh brings it"

# Debian's own archive for the release, as apt knows it.
# shellcheck disable=SC2016 # apt's own variables
mirror_of_apt() {
  apt-get indextargets --format '$(RELEASE) $(COMPONENT) $(REPO_URI)' 'Created-By: Packages' |
    sed -n 's/^bookworm main //p' | head -n 1
}

in_root() {
  # A namespace of its own, so that what is mounted is gone whatever happens.
  unshare --mount bash -c '
    mount -t proc proc "$1/proc" 2>/dev/null || true
    exec chroot "$@"' in_root "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 \
    DEBIAN_FRONTEND=noninteractive "$@"
}

echo "check_package: making the packages"
scripts/configure.sh release engine
cmake --build --preset release --target aerie
rm -rf "$packages"
cpack --config build/release/CPackConfig.cmake -B "$packages"
scripts/build_wheel.sh
wheel=$(echo dist/aerie-*.whl)
deb=$(echo "$packages"/aerie_*.deb)
archive=$(echo "$packages"/aerie-*.tar.gz)
[[ -f "$deb" && -f "$archive" ]] || fail "cpack made no .deb and .tar.gz in $packages/"
dpkg-deb --field "$deb" Package Version Depends
expected=$(build/release/bin/aerie run -m "models/$model" "${arguments[@]}" 2>/dev/null)

mirror=$(mirror_of_apt)
[[ -n "$mirror" ]] || fail "apt knows no source of Debian 12 (bookworm)"
echo "check_package: a bare Debian 12 from the mirror that apt uses"
rm -rf --one-file-system "$root"
mkdir -p "$root"
PATH="$PATH:/usr/sbin" debootstrap --variant=minbase bookworm "$root" "$mirror" >"$packages/debootstrap.log" 2>&1 ||
  fail "debootstrap failed; see $packages/debootstrap.log"
cp --dereference /etc/resolv.conf "$root/etc/resolv.conf" 2>/dev/null || true
apt-config dump | grep '^Acquire::http.*Proxy ' >"$root/etc/apt/apt.conf.d/90proxy" || true

cp "$deb" "$archive" "$wheel" "$root/tmp/"
cp --dereference "models/$model" "$root/tmp/"
in_root apt-get -q update

# Before anything brings libraries along. Without pip: a wheel is an archive of what is to be installed.
in_root apt-get -q install -y --no-install-recommends python3
in_root python3 -m zipfile -e "/tmp/${wheel##*/}" /opt/wheel
# zipfile leaves the permissions behind, which pip does not.
in_root chmod +x /opt/wheel/aerie/bin/aerie
text=$(in_root env PYTHONPATH=/opt/wheel python3 -c '
import sys
from aerie import LLM, SamplingParams
messages = [{"role": "user", "content": sys.argv[2]}]
print(LLM(sys.argv[1]).chat(messages, SamplingParams(temperature=0, max_tokens=12))[0].outputs[0].text)
' "/tmp/$model" "$prompt")
[[ -n "$text" && "$text" == "$expected" ]] || fail "the wheel wrote '$text', not '$expected'"
echo "check_package: the wheel writes what the build does"

# try PROGRAM
try() {
  local text
  in_root "$1" --version
  text=$(in_root "$1" run -m "/tmp/$model" "${arguments[@]}" 2>/dev/null)
  [[ -n "$text" && "$text" == "$expected" ]] || fail "$1 wrote '$text', not '$expected'"
  echo "check_package: $1 writes what the build does"
}
try /opt/wheel/aerie/bin/aerie
in_root apt-get -q install -y --no-install-recommends "/tmp/${deb##*/}"
try aerie
in_root tar -C /opt -xf "/tmp/${archive##*/}"
folder=${archive##*/}
try "/opt/${folder%.tar.gz}/bin/aerie"
rm -rf --one-file-system "$root"
