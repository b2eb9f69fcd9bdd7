# To be sourced by the run.sh of a folder of tests in Python.
# shellcheck shell=bash

# What each begins with: where it stands ($here, in $root), what is tested ($build), its $environment, and the
# $arguments that pytest gets, of which test_FILE.py are meant in its folder.
#   begin NAME [BUILD [ARGUMENT...]]     NAME: of the environment; BUILD: build/release
# shellcheck disable=SC2034
begin() {
  local argument
  here="$(cd "$(dirname "${BASH_SOURCE[1]}")" && pwd)"
  root="$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)"
  build="$(cd "${2:-$root/build/release}" && pwd)"
  environment="$build/python/$1"
  arguments=()
  files=()
  for argument in "${@:3}"; do
    if [[ "$argument" == test_*.py ]]; then
      files+=("$here/$argument")
    else
      arguments+=("$argument")
    fi
  done
  if ((${#files[@]} == 0)); then files=("$here"); fi
}

# The packages that the tests need.
#   python_environment FOLDER ENVIRONMENT     FOLDER: with requirements.txt
# Makes a virtual environment; only the first time, or when the requirements change, does it need a
# network. Exits with 77, which ctest takes as "skipped", where that cannot be had. Of those that begin at once
# one makes it.
python_environment() {
  local requirements="$1/requirements.txt" environment="$2" lock
  mkdir -p "$(dirname "$environment")"
  exec {lock}>"$environment.lock"
  flock "$lock"
  make_environment
  exec {lock}>&-
}

# With the variables of python_environment.
make_environment() {
  if cmp -s "$requirements" "$environment/requirements.txt"; then return; fi
  rm -rf "$environment"
  if ! python3 -m venv "$environment" ||
    ! "$environment/bin/pip" install --quiet --disable-pip-version-check \
      --requirement "$requirements"; then
    echo "run.sh: skipped: the packages of $requirements cannot be installed" >&2
    exit 77
  fi
  cp "$requirements" "$environment/requirements.txt"
}

# The same with the package's wheel in it, whose file is $wheel then.
#   wheel_environment ROOT BUILD FOLDER ENVIRONMENT
# Exits with 77 where there is no wheel in dist/, with 1 where it is older than what it is made of.
wheel_environment() {
  local root="$1" build="$2" folder="$3" environment="$4" newer
  wheel="$(echo "$root"/dist/aerie-*.whl)"
  if [[ ! -f "$wheel" ]]; then
    echo "run.sh: skipped: there is no wheel in dist/: scripts/build_wheel.sh makes it" >&2
    exit 77
  fi
  newer="$(find "$root/python/aerie" "$build/libaerie.so" "$build/bin/aerie" -newer "$wheel" -not -name __pycache__ -not -name '*.pyc' -print -quit)"
  if [[ -n "$newer" ]]; then
    echo "run.sh: $newer is newer than the wheel: scripts/build_wheel.sh makes another" >&2
    exit 1
  fi
  python_environment "$folder" "$environment"
  if ! cmp -s "$wheel" "$environment/installed.whl"; then
    "$environment/bin/pip" install --quiet --disable-pip-version-check --no-index --no-deps --force-reinstall "$wheel"
    cp "$wheel" "$environment/installed.whl"
  fi
}
