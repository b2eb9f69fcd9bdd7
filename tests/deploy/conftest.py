"""The files of deploy/, and servers that are started as these say."""

import http.client
import json
import pathlib
import shutil
import socket
import subprocess
import sys

import pytest
import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
sys.path.insert(0, str(ROOT / "tests/server/python"))

import serving  # noqa: E402

KEY = "key-of-the-tests"


def pytest_addoption(parser):
    parser.addoption("--program", default=str(ROOT / "build/release/bin/aerie"))


def read_yaml(name):
    """All documents of a file of deploy/."""
    return list(yaml.safe_load_all((DEPLOY / name).read_text()))


def tool(name):
    """A program of Debian's; without it the test is skipped."""
    found = shutil.which(name) or shutil.which(name, path="/usr/sbin:/sbin")
    if found is None:
        pytest.skip(f"{name} is not installed: scripts/install_deps.sh --full installs it")
    return found


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


@pytest.fixture(scope="session")
def program(request):
    return request.config.getoption("--program")


@pytest.fixture(scope="session")
def model(program, tmp_path_factory):
    """A model of random weights."""
    path = tmp_path_factory.mktemp("model") / "tiny.gguf"
    subprocess.run([program, "bench", "make-model", "--shape", "tiny", "--type", "q8_0", path], check=True,
                   stdout=subprocess.DEVNULL)
    return path


@pytest.fixture(scope="session")
def key_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("keys") / "api-key"
    path.write_text(KEY + "\n")
    return path


@pytest.fixture
def start(program, model, key_file):
    """start(COMMAND): a server with the arguments of a file of deploy/, paths and addresses taken for those here."""
    servers = []
    here = {"--model": model, "--api-key-file": key_file, "--trust-proxy": "127.0.0.1"}

    def one(command, *more):
        words = []
        for word in command:
            flag, _, value = word.partition("=")
            assert value, word
            words.append(f"{flag}={here.get(flag, value)}")
        servers.append(serving.Server(program, None, *words, *more))
        return servers[-1]

    yield one
    for server in servers:
        if server.process.poll() is None:
            server.stop()


def ask(port, path="/v1/completions", body=None, key=KEY, headers=None):
    """(status, headers, text)"""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json", **(headers or {})}
    connection.request("POST" if body else "GET", path, json.dumps(body) if body else None, headers)
    answer = connection.getresponse()
    try:
        return answer.status, answer.headers, answer.read().decode()
    finally:
        connection.close()
