#!/usr/bin/env bash
# Aims hostile requests at a server: its own, or one that is named. See abuse.py --help.
exec python3 -B "$(dirname "${BASH_SOURCE[0]}")/abuse.py" "$@"
