"""A server whose model thinks and calls tools, or is made to."""

import os
import pathlib
import sys

import anthropic
import openai
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests/server/python"))
import serving  # noqa: E402


@pytest.fixture(scope="session")
def server():
    program = os.environ.get("AERIE_PROGRAM", str(ROOT / "build/release/bin/aerie"))
    model = os.environ.get("AERIE_MODEL", str(ROOT / "models/SmolLM2-135M-Instruct.Q4_1.gguf"))
    if not os.path.exists(model):
        pytest.skip(f"{model} is missing: scripts/fetch_model.sh gets it")
    server = serving.Server(program, model, "--chat-template",
                            str(pathlib.Path(__file__).with_name("tools.jinja")))
    yield server
    server.stop()


@pytest.fixture(scope="session")
def client(server):
    return openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0, timeout=300)


@pytest.fixture(scope="session")
def claude(server):
    return anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0, timeout=300)


@pytest.fixture(scope="session")
def model(client):
    return client.models.list().data[0].id
