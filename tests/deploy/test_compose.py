"""compose.yaml and nginx.conf: the files fit together, and two servers behind nginx lose no request."""

import concurrent.futures
import http.client
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import time

import pytest

from conftest import DEPLOY, ask, free_port, read_yaml, tool
from serving import wait_for

COMPOSE, = read_yaml("compose.yaml")
SERVERS = [name for name in COMPOSE["services"] if name.startswith("aerie-")]
COMMAND = COMPOSE["services"][SERVERS[0]]["command"]


def test_the_schema():
    subprocess.run([tool("docker-compose"), "-f", DEPLOY / "compose.yaml", "config", "--quiet"], check=True,
                   env={**os.environ, "COMPOSE_PROJECT_NAME": "aerie"})


def test_the_parts_fit_together():
    services = COMPOSE["services"]
    assert len(SERVERS) == 2
    for service in services.values():
        assert service["image"] == "aerie" or re.fullmatch(r"docker\.io/\S+:v?\d+\.\d+\S*", service["image"])
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            assert source in COMPOSE["volumes"] or (DEPLOY / source).exists(), source
        for port in service.get("ports", []):
            assert port.startswith("127.0.0.1:"), "nothing is open to others unasked"
    wanted = {f"{name}:8000" for name in SERVERS}
    assert set(re.findall(r"^ *server (\S+:\d+)", (DEPLOY / "nginx.conf").read_text(), re.MULTILINE)) == wanted
    scraped, = read_yaml("prometheus/prometheus.yml")
    assert set(scraped["scrape_configs"][0]["static_configs"][0]["targets"]) == wanted
    drain = re.search(r"--drain-seconds=(\d+)", " ".join(COMMAND))[1]
    assert int(services[SERVERS[0]]["stop_grace_period"].rstrip("s")) > int(drain)
    trusted = re.search(r"--trust-proxy=(\S+)", " ".join(COMMAND))[1]
    assert trusted == COMPOSE["networks"]["default"]["ipam"]["config"][0]["subnet"]


def healthy(server):
    """What the check in compose.yaml says of a server here."""
    kind, *words = COMPOSE["services"][SERVERS[0]]["healthcheck"]["test"]
    assert kind == "CMD" and "/8000 " in words[-1]
    words[-1] = words[-1].replace("/8000 ", f"/{server.port} ")
    return subprocess.run(words, capture_output=True, timeout=5, check=False).returncode == 0


def body(number, **more):
    return {"prompt": f"one two {number}", "max_tokens": 400, "temperature": 0, "ignore_eos": True, **more}


def test_the_command_and_its_check(start):
    server = start(COMMAND)
    assert healthy(server)
    assert ask(server.port, body=body(1, max_tokens=4), key="another")[0] == 401
    stream = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    stream.request("POST", "/v1/completions", json.dumps(body(1, stream=True, max_tokens=4000)),
                   {"Authorization": "Bearer key-of-the-tests"})
    answer = stream.getresponse()
    answer.readline()
    server.process.send_signal(signal.SIGTERM)
    wait_for(lambda: not healthy(server), what="that it drains")
    assert answer.read().rstrip().endswith(b"data: [DONE]"), "what has begun is finished"
    assert server.process.wait(60) == 0


class Proxy:
    """nginx with deploy/nginx.conf before servers here."""

    def __init__(self, servers, folder):
        self.port = free_port()
        text = (DEPLOY / "nginx.conf").read_text().replace("listen 8080;", f"listen 127.0.0.1:{self.port};")
        for name, server in zip(SERVERS, servers):
            text = text.replace(f"{name}:8000", f"127.0.0.1:{server.port}")
        paths = "".join(f"{what}_temp_path {folder}/{what};\n"
                        for what in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
        user = "user root;" if os.geteuid() == 0 else ""
        (folder / "nginx.conf").write_text(
            f"{user} daemon off; pid {folder}/pid; error_log {folder}/error.log;\nevents {{}}\n"
            f"http {{ access_log off; {paths} {text} }}\n")
        self.process = subprocess.Popen([tool("nginx"), "-p", folder, "-c", folder / "nginx.conf"],
                                        stderr=subprocess.PIPE)
        wait_for(self._listens, what="nginx")

    def _listens(self):
        assert self.process.poll() is None, self.process.stderr.read().decode()
        with socket.socket() as one:
            return one.connect_ex(("127.0.0.1", self.port)) == 0


@pytest.fixture
def behind(start, tmp_path):
    """(nginx, its two servers)"""
    tool("nginx")
    servers = [start(COMMAND, "--no-log-requests") for _ in SERVERS]
    proxy = Proxy(servers, pathlib.Path(tmp_path))
    yield proxy, servers
    proxy.process.terminate()
    proxy.process.wait(30)


def served(server):
    page = ask(server.port, "/metrics")[2]
    return sum(float(line.rsplit(" ", 1)[1]) for line in page.splitlines()
               if line.startswith("vllm:request_success_total{"))


def text_of(port, number):
    status, _, text = ask(port, body=body(number))
    return json.loads(text)["choices"][0]["text"] if status == 200 else f"status {status}: {text}"


def stream_of(port, number):
    """The text of a stream, or None if it was cut off, which its reader is told."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    pieces = []
    try:
        connection.request("POST", "/v1/completions", json.dumps(body(number, stream=True, max_tokens=2000)),
                           {"Authorization": "Bearer key-of-the-tests"})
        answer = connection.getresponse()
        lines = answer.read().decode().splitlines()
    except (http.client.HTTPException, OSError):
        return None
    for line in lines:
        if line.startswith("data: {"):
            pieces.append(json.loads(line[6:])["choices"][0]["text"])
    assert lines and "data: [DONE]" in lines, "an end that looks like one"
    return "".join(pieces)


def ends_under_load(proxy, servers, end):
    """(texts of requests, texts of streams) while `end` ends the first server."""
    with concurrent.futures.ThreadPoolExecutor(12) as pool:
        streams = [pool.submit(stream_of, proxy.port, number) for number in range(4)]
        requests = [pool.submit(text_of, proxy.port, number) for number in range(60)]
        wait_for(lambda: served(servers[0]) >= 5 and served(servers[1]) >= 5, what="that both answer")
        assert not all(one.done() for one in requests)
        end(servers[0])
        return [one.result() for one in requests], [one.result() for one in streams]


def test_one_is_killed(behind):
    proxy, servers = behind
    expected = [text_of(servers[1].port, number) for number in range(60)]
    texts, streams = ends_under_load(proxy, servers, lambda server: server.process.kill())
    assert texts == expected
    whole = [stream_of(servers[1].port, number) for number in range(4)]
    assert all(told in (None, text) for told, text in zip(streams, whole))
    assert text_of(proxy.port, 1) == expected[1]
    status, _, _ = ask(proxy.port, "/metrics")
    assert status == 403


def test_one_drains(behind):
    proxy, servers = behind
    expected = [text_of(servers[1].port, number) for number in range(60)]
    begin = time.monotonic()
    texts, streams = ends_under_load(proxy, servers, lambda server: server.process.terminate())
    assert texts == expected
    assert streams == [stream_of(servers[1].port, number) for number in range(4)]
    assert servers[0].process.wait(60) == 0 and time.monotonic() - begin < 55
