"""Servers, and the router in front of them, which docs/scaling/servers.md has the command of."""

import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import urllib.error
import urllib.request

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs/scaling/servers.md"
NIGHTLY = "AERIE_NIGHTLY" in os.environ  # all of it, however long it takes
sys.path += [str(ROOT / "tests" / folder) for folder in ("server/python", "testing", "testing/network")]
from fleet import free_port, make_models, wait_for  # noqa: E402
from serving import Server  # noqa: E402


def pytest_addoption(parser):
    parser.addoption("--program", default=os.environ.get("AERIE_PROGRAM", str(ROOT / "build/release/bin/aerie")))


def documented_flags():
    """Those of the router's command in docs/scaling/servers.md, but for the addresses."""
    found = re.findall(r"^    vllm-router ((?:.*\\\n)*.*)", PAGE.read_text(), re.MULTILINE)
    assert len(found) == 1, "docs/scaling/servers.md has one command of vllm-router"
    words = shlex.split(found[0].replace("\\\n", " "))
    del words[:words.index("--policy")]
    return words


class Router:
    """vllm-router in front of servers. Its own flags come behind the documented ones."""

    def __init__(self, urls, log, *flags):
        self.port, self.metrics_port = free_port(), free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.log = log
        program = pathlib.Path(sys.executable).with_name("vllm-router")
        with open(log, "w", encoding="utf-8") as file:
            self.process = subprocess.Popen(
                [program, "--host", "127.0.0.1", "--port", str(self.port), "--worker-urls", *urls, *documented_flags(),
                 "--prometheus-port", str(self.metrics_port), *flags], stdout=file, stderr=subprocess.STDOUT)
        try:
            wait_for(self._listens, what="the router's start")
        except BaseException:
            self.stop()
            raise

    def _listens(self):
        assert self.process.poll() is None, pathlib.Path(self.log).read_text(encoding="utf-8")[-3000:]
        try:
            return self.get("/liveness") is not None
        except OSError:
            return False

    def get(self, path):
        with urllib.request.urlopen(self.url + path, timeout=30) as answer:
            return answer.read().decode()

    def healthy(self):
        """The addresses of the servers that it asks."""
        return {one["url"] for one in json.loads(self.get("/workers"))["workers"] if one["is_healthy"]}

    def metrics(self):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.metrics_port}/metrics", timeout=30) as answer:
            return answer.read().decode()

    def stop(self):
        self.process.terminate()
        self.process.wait(30)


@pytest.fixture(scope="session")
def program(request):
    return request.config.getoption("--program")


@pytest.fixture(scope="session")
def models(program, tmp_path_factory):
    """A slow one and a fast one."""
    return make_models(program, tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="session")
def alone(program, models):
    """A server that no router knows: what it says, the others have to."""
    server = Server(program, models[0], "--cache-tokens", "16384")
    yield server.url
    server.stop()


@pytest.fixture
def serve(program, models):
    """serve(FLAG..., fast=False): one more server; it ends with the test."""
    servers = []

    def one_more(*flags, fast=False):
        servers.append(Server(program, models[fast], "--threads", "1", "--cache-tokens", "8192", *flags))
        return servers[-1]

    yield one_more
    for server in servers:
        if server.process.poll() is None:
            server.process.kill()
            server.process.wait()


@pytest.fixture
def route(tmp_path):
    """route(SERVERS, FLAG...): a router in front of them; it ends with the test."""
    routers = []

    def one_more(servers, *flags):
        routers.append(Router([server.url for server in servers], tmp_path / f"router-{len(routers)}.log", *flags))
        return routers[-1]

    yield one_more
    for router in routers:
        router.stop()
