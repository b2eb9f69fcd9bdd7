"""Clients that misbehave, and many of them: the server stays, and serves the others. What they may send: tests/abuse."""

import concurrent.futures
import http.client
import json
import re
import signal
import socket
import subprocess
import threading
import time

import pytest

from conftest import is_idle, metric, wait_for

MIB = 1 << 20


def connect(server):
    return socket.create_connection((server.host, server.port), timeout=60)


def hung_up(error):
    """An OSError that is the server's doing; not answering in time is not."""
    if isinstance(error, TimeoutError):
        raise error
    return True


def post(server, body, path="/v1/completions", **headers):
    """Status and body of one request, sent as it is."""
    connection = http.client.HTTPConnection(server.host, server.port, timeout=120)
    connection.request("POST", path, body, {"Content-Type": "application/json", **headers})
    response = connection.getresponse()
    out = response.status, response.read()
    connection.close()
    return out


def completion(**settings):
    return json.dumps({"prompt": "The sea", "max_tokens": 8, "temperature": 0, **settings})


@pytest.fixture(scope="module")
def victim(start):
    # A cache that is soon full, since what it holds is memory that is not given back.
    return start("--cache-tokens", "4096")


@pytest.fixture(autouse=True)
def still_serves(victim):
    yield
    if victim.process.poll() is None:
        assert post(victim, completion())[0] == 200


def test_oversize_bodies(victim):
    before = victim.resident_bytes()
    head = (f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            f"Content-Length: {4096 * MIB}\r\n\r\n").encode()
    with connect(victim) as peer:
        peer.sendall(head)
        try:
            for _ in range(512):
                peer.sendall(b"x" * MIB)
            answer = peer.recv(4096)
        except OSError as error:
            assert hung_up(error)
            answer = b""
        assert not answer or answer.startswith(b"HTTP/1.1 413")
    assert victim.resident_bytes() < before + 200 * MIB
    assert post(victim, completion(prompt="x" * (17 * MIB)))[0] == 413
    # Of whoever goes on sending for long the connection ends, with the answer or before it was read.
    try:
        assert post(victim, completion(prompt="x" * (100 * MIB)))[0] == 413
    except OSError as error:
        assert hung_up(error)


def test_methods_and_paths(victim):
    for method, path, wanted in [("GET", "/v1/completions", 405), ("PUT", "/v1/models", 405),
                                 ("GET", "/no/such", 404), ("GET", "/../../etc/passwd", 404),
                                 ("GET", "/%2e%2e/etc/passwd", 404), ("GET", "/health", 200)]:
        connection = http.client.HTTPConnection(victim.host, victim.port, timeout=60)
        connection.request(method, path)
        assert connection.getresponse().status == wanted, (method, path)
        connection.close()


def test_a_client_that_goes_away_ends_its_request(victim):
    def aborted():
        return metric(victim, 'vllm:request_success_total', 'finished_reason="abort"')

    before, peers = aborted(), []
    for number in range(16):
        peer = connect(victim)
        body = completion(max_tokens=1500, ignore_eos=True, stream=number % 2 == 0).encode()
        peer.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json"
                     b"\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
        peers.append(peer)
    wait_for(lambda: metric(victim, "vllm:num_requests_running") == 16, what="sixteen at once")
    for peer in peers:
        peer.close()
    wait_for(lambda: is_idle(victim), what="the end of abandoned requests")
    wait_for(lambda: aborted() == before + 16, what="the count of all")


def test_a_client_that_does_not_read(victim):
    """Its reply is kept within bounds or dropped; others are not held up."""
    peer = socket.socket()
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    peer.connect((victim.host, victim.port))
    body = completion(max_tokens=1500, ignore_eos=True, stream=True, logprobs=5).encode()
    peer.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                 b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
    start = time.monotonic()
    assert post(victim, completion())[0] == 200
    assert time.monotonic() - start < 30
    peer.close()
    # Before it would have come to its end by itself.
    wait_for(lambda: is_idle(victim), seconds=30, what="the end of the one that did not read")


def test_memory_is_bounded(victim):
    def burst(number):
        return post(victim, completion(prompt=f"Number {number}: " + "word " * (number % 300),
                                       max_tokens=4 + number % 12, temperature=1,
                                       stream=number % 2 == 0))[0]

    def run(count):
        with concurrent.futures.ThreadPoolExecutor(32) as pool:
            assert set(pool.map(burst, range(count))) == {200}

    run(64)
    before = victim.resident_bytes()
    run(192)
    assert victim.resident_bytes() < before + 64 * MIB


def test_keeps_a_connection(victim):
    connection = http.client.HTTPConnection(victim.host, victim.port, timeout=60)
    for _ in range(5):
        connection.request("POST", "/v1/completions", completion(),
                           {"Content-Type": "application/json"})
        response = connection.getresponse()
        assert response.status == 200 and json.loads(response.read())["choices"]
    connection.close()


def test_ends_under_load(start):
    """SIGTERM: what was taken is finished, nothing more is taken, and the program ends with 0."""
    server = start()
    outcomes = []

    def ask():
        try:
            outcomes.append(post(server, completion(max_tokens=120, ignore_eos=True)))
        except OSError as error:
            outcomes.append((None, str(error)))

    threads = [threading.Thread(target=ask) for _ in range(12)]
    for thread in threads:
        thread.start()
    wait_for(lambda: metric(server, "vllm:num_requests_running") == 12, what="twelve at once")
    server.process.send_signal(signal.SIGTERM)
    for thread in threads:
        thread.join(120)
    assert server.process.wait(60) == 0
    whole = [json.loads(body) for status, body in outcomes if status == 200]
    assert len(whole) == 12, outcomes
    assert all(reply["usage"]["completion_tokens"] == 120 for reply in whole)
    with pytest.raises(OSError):
        connect(server)


def test_a_log_that_nobody_reads(program, model_file):
    """More lines than a pipe holds."""
    process = subprocess.Popen(
        [program, "serve", "-m", model_file, "--port", "0", "--cache-tokens", "4096"],
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        line = next(line for line in process.stderr if "listening on" in line)
        host, port = re.search(r"http://([^:]+):(\d+)", line).groups()
        connection = http.client.HTTPConnection(host, int(port), timeout=20)
        for _ in range(2000):
            connection.request("GET", "/health")
            assert connection.getresponse().read()
        connection.close()
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
    finally:
        process.kill()


def test_a_second_signal_ends_it_at_once(start):
    server = start()
    thread = threading.Thread(
        target=lambda: pytest.raises(OSError, post, server,
                                     completion(max_tokens=1800, ignore_eos=True)), daemon=True)
    thread.start()
    wait_for(lambda: metric(server, "vllm:num_requests_running") == 1, what="a request")

    def is_ready():
        connection = http.client.HTTPConnection(server.host, server.port, timeout=60)
        connection.request("GET", "/ready")
        status = connection.getresponse().status
        connection.close()
        return status == 200

    server.process.send_signal(signal.SIGTERM)
    wait_for(lambda: not is_ready(), what="the end that waits for the request")  # two at once would be one
    server.process.send_signal(signal.SIGTERM)
    server.process.wait(10)
