#!/usr/bin/env bash
# Puts programs of the release build and all that they need into a folder, to be run on another machine with a GPU
# where nothing is installed and nothing can be built: scripts/cuda/device_check.py is one of the files.
#   scripts/cuda/bundle.sh DIR [PROGRAM|FILE ...]
# Of build/release/bin aerie, what device_check.py runs besides where it is built, and each PROGRAM; FILE: models and
# other data, which go to DIR/data. DIR is made again.
# DIR/aerie starts the program with the bundle's libraries; a C library as new as this machine's has to be there. Where
# DIR ends in .tar.gz it is an archive of such a folder, a third of the size, which unpacks into its name without that.
# AERIE_BUILD names another build folder, AERIE_BUNDLE_MIB another size that the whole may have (64).
# aerie-train, built with PyTorch's own LibTorch (AERIE_TORCH), takes LibTorch and CUDA's libraries from the PyTorch that
# the other machine's python3 finds, of the same version.
set -euo pipefail

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)"
build="${AERIE_BUILD:-$root/build/release}"
most_mib="${AERIE_BUNDLE_MIB:-64}"
if (($# == 0)) || [[ "$1" == -* ]]; then
  echo "usage: scripts/cuda/bundle.sh DIR [PROGRAM|FILE ...]" >&2
  exit 2
fi
archive=""
target="$1"
shift
if [[ "$target" == *.tar.gz ]]; then
  archive="$target"
  work="$(mktemp -d)"
  trap 'rm -rf "$work"' EXIT
  target="$work/$(basename "${archive%.tar.gz}")"
fi

fail() {
  echo "bundle: $*" >&2
  exit 1
}

# What was made by this script or is empty.
if [[ -e "$target" && ! -f "$target/.aerie-bundle" && -n "$(ls -A "$target")" ]]; then
  fail "$target holds other things: name a new folder"
fi
rm -rf "$target"
mkdir -p "$target/bin" "$target/lib" "$target/data"
touch "$target/.aerie-bundle"

programs=(aerie)
for name in aerie-device-peak device_bench test_model_device; do
  if [[ -x "$build/bin/$name" ]]; then
    programs+=("$name")
  fi
done
data=()
for name in "$@"; do
  if [[ " ${programs[*]} " == *" $name "* ]]; then
    continue
  elif [[ -x "$build/bin/$name" && -f "$build/bin/$name" ]]; then
    programs+=("$name")
  elif [[ -e "$name" ]]; then
    data+=("$name")
  else
    fail "$name is no program of $build/bin and no file"
  fi
done

parts=()
for name in "${programs[@]}"; do
  [[ -x "$build/bin/$name" ]] || fail "$build/bin/$name is missing: ninja -C $build $name"
  parts+=("$build/bin/$name")
done
if [[ -f "$build/bin/libaerie_cuda.so" ]]; then
  parts+=("$build/bin/libaerie_cuda.so")
else
  echo "bundle: there is no $build/bin/libaerie_cuda.so (AERIE_CUDA=ON builds it): without GPUs" >&2
fi

for part in "${parts[@]}"; do
  strip -o "$target/bin/${part##*/}" "$part"
done
if ldd "${parts[@]}" | grep 'not found' >&2; then
  fail "libraries are missing on this machine"
fi
# The C library's own parts belong to the loader of the other machine.
ldd "${parts[@]}" | sed -n 's/.* => \(\/[^ ]*\) .*/\1/p' | sort -u |
  grep -vE '/(libc|libm|libdl|librt|libpthread|libresolv)\.so\.[0-9]+$' |
  grep -vE '/(libtorch[a-z_]*|libc10[a-z_]*|libcudart|libcupti|libgomp)\.so[.0-9]*$' |
  while read -r library; do
    strip -o "$target/lib/${library##*/}" "$(readlink -f "$library")"
  done

for name in "${programs[@]}"; do
  cat >"$target/$name" <<'WRAPPER'
#!/bin/sh
case $0 in */*) here=${0%/*} ;; *) here=. ;; esac
here=$(cd "$here" && pwd)
LD_LIBRARY_PATH=$here/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
WRAPPER
  # Its folder is found without loading it.
  if ldd "$build/bin/$name" | grep -q 'libtorch_cpu\.so '; then
    cat >>"$target/$name" <<'WRAPPER'
torch=$(python3 -c 'import importlib.util as u; print(u.find_spec("torch").submodule_search_locations[0])' 2>/dev/null)
LD_LIBRARY_PATH=$LD_LIBRARY_PATH:$torch/lib
WRAPPER
  fi
  echo 'export LD_LIBRARY_PATH' >>"$target/$name"
  echo "exec \"\$here/bin/$name\" \"\$@\"" >>"$target/$name"
  chmod +x "$target/$name"
done
if ((${#data[@]} > 0)); then
  cp -rL -t "$target/data" "${data[@]}"
fi
cp "$root/scripts/cuda/device_check.py" "$target/"

if [[ -n "$archive" ]]; then
  tar -C "$work" -czf "$archive" "${target##*/}"
fi
kib=$(du -sk "${archive:-$target}" | cut -f1)
if ((kib > most_mib << 10)); then
  fail "${archive:-$target} has $((kib >> 10)) MiB; at most $most_mib"
fi
needed=$(objdump -T "$target"/bin/* "$target"/lib/* | grep -o 'GLIBC_2\.[0-9]*' | sort -uV | tail -n 1)
echo "bundle: ${archive:-$target}: ${programs[*]}, $((kib >> 10)) MiB; the C library has to be ${needed/_/ } or newer"
