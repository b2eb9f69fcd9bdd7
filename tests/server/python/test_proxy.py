"""`aerie serve` behind nginx with TLS, as docs/serving.md has it: the configuration is read from there."""

import http.client
import json
import os
import pathlib
import re
import shutil
import socket
import ssl
import subprocess
import time

import pytest

from conftest import ROOT, wait_for

NGINX = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
CLIENT = "127.0.0.2"  # where the clients of nginx are; it asks the server from 127.0.0.1
PAGE = ROOT / "docs/serving.md"


def configuration():
    """The block of docs/serving.md that begins with `upstream`."""
    blocks = re.findall(r"((?:^    .*\n|^\n)+)", PAGE.read_text(), re.MULTILINE)
    found = [block for block in blocks if block.lstrip().startswith("upstream aerie")]
    assert len(found) == 1, "docs/serving.md has one configuration for nginx"
    return found[0]


def hold_port():
    """A socket whose port nobody gets who does not ask for a shared one, as nginx does with `reuseport`."""
    one = socket.socket()
    one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    one.bind(("127.0.0.1", 0))
    return one


def make_certificate(folder):
    if not shutil.which("openssl"):
        pytest.skip("openssl is not installed: no certificate can be made")
    certificate, key = folder / "cert.pem", folder / "key.pem"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=localhost",
                    "-addext", "subjectAltName=DNS:localhost", "-keyout", key, "-out", certificate],
                   check=True, capture_output=True)
    return certificate, key


class Proxy:
    """nginx in front of a server, by the configuration in the documentation."""

    def __init__(self, server, folder):
        self.certificate, key = make_certificate(folder)
        self.held = hold_port()
        self.port = self.held.getsockname()[1]
        text = configuration()
        for ours, theirs in {"listen 443 ssl": f"listen 127.0.0.1:{self.port} reuseport ssl", "127.0.0.1:8000": f"127.0.0.1:{server.port}",
                             "llm.example;": "localhost;", "/etc/ssl/llm.example.pem": str(self.certificate),
                             "/etc/ssl/llm.example.key": str(key)}.items():
            assert ours in text, ours
            text = text.replace(ours, theirs)
        paths = "".join(f"{what}_temp_path {folder}/{what};\n"
                        for what in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
        user = "user root;" if os.geteuid() == 0 else ""
        (folder / "nginx.conf").write_text(
            f"{user} daemon off; pid {folder}/pid; error_log {folder}/error.log;\nevents {{}}\n"
            f"http {{ access_log off; {paths} {text} }}\n")
        self.process = subprocess.Popen([NGINX, "-p", folder, "-c", folder / "nginx.conf"], stderr=subprocess.PIPE)
        wait_for(self._listens, what="nginx")

    def _listens(self):
        assert self.process.poll() is None, self.process.stderr.read().decode()
        with socket.socket() as one:
            return one.connect_ex(("127.0.0.1", self.port)) == 0

    def connect(self):
        context = ssl.create_default_context(cafile=self.certificate)
        return http.client.HTTPSConnection("localhost", self.port, timeout=120, context=context,
                                           source_address=(CLIENT, 0))

    def stop(self):
        self.process.terminate()
        self.process.wait(30)
        self.held.close()


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    file = tmp_path_factory.mktemp("keys") / "keys"
    file.write_text("key-a alice\n")
    return file


@pytest.fixture(scope="module")
def audit(tmp_path_factory):
    return tmp_path_factory.mktemp("audit") / "audit.log"


@pytest.fixture(scope="module")
def behind(start, keys, audit):
    if not NGINX:
        pytest.skip("nginx is not installed: scripts/install_deps.sh --full installs it")
    server = start("--api-key-file", str(keys), "--audit-log", str(audit), "--trust-proxy", "127.0.0.1")
    yield server
    server.stop()


@pytest.fixture(scope="module")
def proxy(behind, tmp_path_factory):
    folder = pathlib.Path(tmp_path_factory.mktemp("nginx"))
    one = Proxy(behind, folder)
    yield one
    one.stop()


def ask(connection, key="key-a", headers=None, **body):
    body = {"prompt": "one two three four", "temperature": 0, "max_tokens": 8, **body}
    connection.request("POST", "/v1/completions", json.dumps(body),
                       {"Content-Type": "application/json", "Authorization": f"Bearer {key}", **(headers or {})})
    return connection.getresponse()


def audited(audit, request_id):
    lines = [json.loads(line) for line in audit.read_text().splitlines()]
    return [line for line in lines if line.get("request_id") == request_id]


def test_plain_requests(proxy, behind, audit):
    connection = proxy.connect()
    answer = ask(connection, headers={"x-request-id": "through-nginx", "X-Forwarded-For": "192.0.2.1"})
    assert answer.status == 200
    assert answer.headers["x-request-id"] == "through-nginx"
    through = json.load(answer)["choices"][0]["text"]
    straight = ask(http.client.HTTPConnection(behind.host, behind.port, timeout=120))
    assert json.load(straight)["choices"][0]["text"] == through
    # What the client says of itself is not believed: nginx says whom it was asked by.
    wait_for(lambda: audited(audit, "through-nginx"), what="the line of the audit log")
    line, = audited(audit, "through-nginx")
    assert line["client"] == CLIENT
    # A second one on the same connection, and one that nginx has to name.
    answer = ask(connection)
    assert answer.status == 200 and re.fullmatch("[0-9a-f]{32}", answer.headers["x-request-id"])
    answer.read()
    # A stranger's body is not read, and its connection ends with the answer.
    assert ask(proxy.connect(), key="wrong").status == 401
    connection.request("GET", "/metrics", headers={"Authorization": "Bearer key-a"})
    answer = connection.getresponse()
    assert answer.status == 403, "figures of all are for those on the machine"
    answer.read()
    connection.request("GET", "/ready")
    assert connection.getresponse().status == 200


def test_a_large_body(proxy):
    connection = proxy.connect()
    answer = ask(connection, prompt="x " * 2_000_000)
    assert answer.status == 400, answer.read()
    assert "context" in json.load(answer)["error"]["message"]


def test_streams_come_as_they_are_made(proxy):
    # Without speculation an event is a token, however often drafts are right.
    answer = ask(proxy.connect(), stream=True, max_tokens=300, ignore_eos=True, speculation="off")
    assert answer.status == 200
    assert answer.headers["content-type"].startswith("text/event-stream")
    times, events = [], 0
    while line := answer.readline():
        if line.startswith(b"data: "):
            events += 1
            times.append(time.monotonic())
    assert line == b"" and events > 100
    # Gathered by the proxy, they would all come at the end.
    begin, half, end = times[0], times[len(times) // 2], times[-1]
    assert half - begin > (end - begin) / 10 and end - half > (end - begin) / 10


def test_a_client_that_goes_away(proxy, behind):
    def aborted():
        return metric_of(behind, 'vllm:request_success_total{', 'finished_reason="abort"')

    before = aborted()
    for stream in (True, False):
        connection = proxy.connect()
        connection.connect()
        body = json.dumps({"prompt": "one two", "max_tokens": 7000, "ignore_eos": True, "stream": stream}).encode()
        connection.request("POST", "/v1/completions", body,
                           {"Content-Type": "application/json", "Authorization": "Bearer key-a"})
        if stream:
            connection.getresponse().readline()
        else:
            wait_for(lambda: running(behind) == 1, what="the request")
        connection.sock.shutdown(socket.SHUT_RDWR)
        connection.close()
        wait_for(lambda: running(behind) == 0, what="the end of the request")
    # A request is counted a moment after it has left the engine.
    wait_for(lambda: aborted() == before + 2, what="the count of both")


def page(server):
    connection = http.client.HTTPConnection(server.host, server.port, timeout=60)
    connection.request("GET", "/metrics", headers={"Authorization": "Bearer key-a"})
    return connection.getresponse().read().decode()


def metric_of(server, *parts):
    return sum(float(line.rsplit(" ", 1)[1]) for line in page(server).splitlines()
               if not line.startswith("#") and all(part in line for part in parts))


def running(server):
    return metric_of(server, "vllm:num_requests_running") + metric_of(server, "vllm:num_requests_waiting")
