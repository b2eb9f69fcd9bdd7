"""Starts `aerie serve` for the tests.

The program, the model and the browser can be named: --program, --model and --browser, or
AERIE_PROGRAM, AERIE_MODEL and AERIE_BROWSER. --soak-seconds says how long test_soak lasts.
"""

import os
import pathlib
import shutil
import sys
import urllib.request

import openai
import pytest

import serving
from serving import wait_for  # noqa: F401  the tests take it from here

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.append(str(ROOT / "tests/testing/network"))
NIGHTLY = "AERIE_NIGHTLY" in os.environ  # all combinations, however long it takes


def pytest_addoption(parser):
    parser.addoption("--program", default=os.environ.get(
        "AERIE_PROGRAM", str(ROOT / "build/release/bin/aerie")))
    parser.addoption("--model", default=os.environ.get(
        "AERIE_MODEL", str(ROOT / "models/SmolLM2-135M-Instruct.Q4_1.gguf")))
    parser.addoption("--browser", default=os.environ.get("AERIE_BROWSER", shutil.which("chromium")))
    parser.addoption("--soak-seconds", type=float, default=20)
    parser.addoption("--screenshots", default=str(ROOT / "build/screenshots"))


class Server(serving.Server):
    """With the official client."""

    def client(self, **settings):
        settings = {"api_key": "none", "max_retries": 0, "timeout": 300, **settings}
        return openai.OpenAI(base_url=self.url + "/v1", **settings)


@pytest.fixture(scope="session")
def model_file(request):
    path = request.config.getoption("--model")
    if not os.path.exists(path):
        pytest.skip(f"{path} is missing: scripts/fetch_model.sh gets it")
    return path


@pytest.fixture(scope="session")
def program(request):
    return request.config.getoption("--program")


@pytest.fixture(scope="session")
def start(program, model_file):
    """start(FLAG...): one more server; it ends with the tests."""
    servers = []

    def one_more(*flags):
        servers.append(Server(program, model_file, *flags))
        return servers[-1]

    yield one_more
    for server in servers:
        if server.process.poll() is None:
            server.stop()


@pytest.fixture(scope="session")
def server(start):
    return start()


@pytest.fixture(scope="session")
def client(server):
    return server.client()


@pytest.fixture(scope="session")
def model(client):
    return client.models.list().data[0].id


@pytest.fixture(scope="session")
def speculations(client):
    """What requests may ask for, plain decoding left out."""
    offered = client.models.list().data[0].model_extra["aerie"]["speculations"]
    return [name for name in offered if name != "none"]


def metric(server, name, label=""):
    """The sum over all labels, or over those with this one."""
    page = urllib.request.urlopen(server.url + "/metrics", timeout=60).read().decode()
    return sum(float(line.rsplit(" ", 1)[1]) for line in page.splitlines()
               if line.startswith((name + "{", name + " ")) and label in line)


def is_idle(server):
    return metric(server, "vllm:num_requests_running") == 0 and \
        metric(server, "vllm:num_requests_waiting") == 0
