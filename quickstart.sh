#!/usr/bin/env bash
# From a fresh Debian 12 to generated text: installs what is missing, builds aerie, fetches a small
# model and runs the demo. A second run goes straight to the demo.
#   ./quickstart.sh [options of scripts/demo.py]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

scripts/install_deps.sh
scripts/configure.sh release
cmake --build --preset release --target aerie
scripts/fetch_model.sh
exec scripts/demo.py "$@"
