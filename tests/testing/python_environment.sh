# To be sourced by the run.sh of a folder of tests in Python: the packages that they need.
#   python_environment FOLDER ENVIRONMENT     FOLDER: with requirements.txt
# Makes a virtual environment; only the first time, or when the requirements change, does it need a
# network. Exits with 77, which ctest takes as "skipped", where that cannot be had.
# shellcheck shell=bash

python_environment() {
  local requirements="$1/requirements.txt" environment="$2"
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
