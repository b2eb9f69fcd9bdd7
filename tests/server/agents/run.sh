#!/usr/bin/env bash
# Tests `aerie serve` with the clients of agents: Anthropic's, openai-agents, instructor, LangChain, LiteLLM.
#   tests/server/agents/run.sh [BUILD [PYTEST OPTION...]]     BUILD: build/release
# Makes a virtual environment under BUILD (tests/testing/python_environment.sh): one of its own, since
# they want older versions of one another than tests/server/python has.
set -euo pipefail
# shellcheck source=SCRIPTDIR/../../testing/python_environment.sh
source "$(dirname "${BASH_SOURCE[0]}")/../../testing/python_environment.sh"
begin agents "$@"
python_environment "$here" "$environment"

cd "$root"
export AERIE_PROGRAM="${AERIE_PROGRAM:-$build/bin/aerie}"
export OPENAI_AGENTS_DISABLE_TRACING=1 LITELLM_LOCAL_MODEL_COST_MAP=True
exec "$environment/bin/python" -m pytest -rs -p no:cacheprovider -o faulthandler_timeout=240 "${arguments[@]}" "${files[@]}"
