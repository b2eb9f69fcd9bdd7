"""A cluster of one node that says it has eight cores, and applications on it."""

import os
import pathlib
import signal
import sys
import urllib.request

import pytest
import ray
from ray import serve

import aerie.program
import aerie.ray

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path += [str(ROOT / "tests" / folder) for folder in ("server/python", "testing", "testing/network")]
from fleet import free_port, make_models, wait_for  # noqa: E402
from serving import Server  # noqa: E402


NIGHTLY = "AERIE_NIGHTLY" in os.environ  # all of it, however long it takes
collect_ignore = [] if NIGHTLY else ["test_namespaces.py"]


def pytest_addoption(parser):
    parser.addoption("--program", default=str(ROOT / "build/release/bin/aerie"))


@pytest.fixture(scope="session")
def built(request):
    """The program of the build, which has aerie-train beside it."""
    return request.config.getoption("--program")


@pytest.fixture(scope="session")
def program():
    return str(aerie.program.PROGRAM)


@pytest.fixture(scope="session")
def models(program, tmp_path_factory):
    """A slow one and a fast one."""
    return make_models(program, tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="session")
def model(models):
    return models[0]


@pytest.fixture(scope="session")
def alone(program, model):
    """`aerie serve`, which is asked for what the application has to answer."""
    server = Server(program, model, "--cache-tokens", "16384")
    yield server.url
    server.stop()


@pytest.fixture(scope="session")
def cluster():
    ray.init(address="local", num_cpus=8, include_dashboard=False, object_store_memory=100 << 20, log_to_driver=False)
    port = free_port()
    serve.start(http_options={"host": "127.0.0.1", "port": port})
    yield f"http://127.0.0.1:{port}"
    serve.shutdown()
    ray.shutdown()


class Application:
    """An application, as those see it who ask it and who run it."""

    def __init__(self, url, model, name="aerie"):
        self.url, self._model, self._name = url, model, name

    def servers(self):
        """Those of the replicas: process, parent."""
        found = []
        for folder in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                words = (folder / "cmdline").read_bytes().decode().split("\0")
                parent = int((folder / "stat").read_text().rsplit(")", 1)[1].split()[1])
            except (OSError, ValueError):
                continue
            if "--trust-proxy" in words and self._model in words:
                found.append((int(folder.name), parent))
        return found

    def running(self):
        """How many replicas answer."""
        status = serve.status().applications[self._name].deployments["Engine"]
        return status.replica_states.get("RUNNING", 0)

    def settle(self, count):
        wait_for(lambda: self.running() == count and len(self.servers()) == count, what=f"that {count} replicas run")

    def get(self, path):
        with urllib.request.urlopen(self.url + path, timeout=60) as answer:
            return answer.read().decode()


@pytest.fixture(scope="module")
def deploy(cluster, models):
    """deploy(NAME=VALUE..., fast=False): the application, in the place of an earlier one."""
    def one(fast=False, flags="", **settings):
        model = models[fast]
        count = settings.get("min_replicas", 1)
        settings["flags"] = "--cache-tokens 8192 " + flags
        most = max(count, settings.get("max_replicas", 1))
        settings = {"model": model, "threads": 1, **settings, "max_replicas": most}
        serve.run(aerie.ray.build(**settings), name="aerie", route_prefix="/")
        application = Application(cluster, model)
        application.settle(count)
        return application

    return one


def kill(process):
    os.kill(process, signal.SIGKILL)
