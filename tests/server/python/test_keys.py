"""Files of keys that change while `aerie serve` runs, and what the official client makes of limits."""

import http.client
import json
import signal
import subprocess
import time
import urllib.request

import openai
import pytest

import serving
from conftest import wait_for

KEYS = "# who may ask\nkey-a alice\nkey-b bob rpm=1\n"


def status(connection, key):
    connection.request("GET", "/v1/models", headers={"Authorization": f"Bearer {key}"})
    answer = connection.getresponse()
    answer.read()
    return answer.status


def said(server, text):
    return any(text in json.loads(line).get("message", "") for line in server.log if line.startswith("{"))


def test_a_file_that_changes(start, tmp_path):
    file = tmp_path / "keys"
    file.write_text(KEYS)
    server = start("--api-key-file", str(file))
    connection = http.client.HTTPConnection(server.host, server.port, timeout=60)
    assert status(connection, "key-a") == 200
    kept = connection.sock
    # A reply that is streamed all the while.
    client = server.client(api_key="key-a")
    model = client.models.list().data[0].id
    stream = client.completions.create(model=model, prompt="one two", max_tokens=400, stream=True, temperature=0,
                                       extra_body={"ignore_eos": True})
    next(iter(stream))

    file.write_text("key-c carol\n")
    wait_for(lambda: status(connection, "key-c") == 200, what="the new key")
    assert status(connection, "key-a") == 401
    wait_for(lambda: said(server, "1 keys were read again"), what="the message")

    file.write_text("key-c carol\nkey-d dave rpm=many\n")
    server.process.send_signal(signal.SIGHUP)
    wait_for(lambda: said(server, f"the keys stay as they were: --api-key-file: {file}, line 2: rpm="),
             what="the error")
    assert status(connection, "key-c") == 200
    assert status(connection, "key-d") == 401
    said_so_far = len(server.log)
    time.sleep(2.5)
    errors = [line for line in server.log[said_so_far:] if "stay as they were" in line]
    assert not errors, "a bad file is told of once"

    file.unlink()
    wait_for(lambda: said(server, "the file cannot be read"), what="the error")
    assert status(connection, "key-c") == 200
    file.write_text(KEYS)
    server.process.send_signal(signal.SIGHUP)
    wait_for(lambda: status(connection, "key-a") == 200, what="the first keys")

    assert connection.sock is kept, "the connection was closed"
    assert sum(1 for _ in stream) > 0
    assert server.stop() == 0


def test_the_official_client_and_limits(start, tmp_path):
    file = tmp_path / "keys"
    file.write_text(KEYS + "key-t tokens tpm=100\n")
    server = start("--api-key-file", str(file))
    client = server.client(api_key="key-b")
    raw = client.models.with_raw_response.list()
    assert raw.headers["x-ratelimit-remaining-requests"] == "0"
    model = raw.parse().data[0].id
    with pytest.raises(openai.RateLimitError) as refused:
        client.models.list()
    assert refused.value.code == "rate_limit_exceeded"
    assert 0 < int(refused.value.response.headers["retry-after"]) <= 60
    # What will never fit is not tried again.
    with pytest.raises(openai.RateLimitError):
        server.client(api_key="key-t", max_retries=5).completions.create(model=model, prompt="x", max_tokens=500)
    page = urllib.request.Request(server.url + "/metrics", headers={"Authorization": "Bearer key-t"})
    with urllib.request.urlopen(page, timeout=60) as answer:
        assert 'aerie:key_refused_total{key="tokens",limit="tokens"} 1\n' in answer.read().decode()
    assert server.stop() == 0


def test_the_audit_log(start, tmp_path):
    file = tmp_path / "audit.log"
    keys = tmp_path / "keys"
    keys.write_text(KEYS)
    server = start("--api-key-file", str(keys), "--audit-log", str(file), "--no-log-requests")

    def asked(words):
        client = server.client(api_key="key-a")
        model = client.models.list().data[0].id
        reply = client.completions.create(model=model, prompt=f"{words} tell me of the sea", max_tokens=16, user=words)
        return [f"{words} tell", f'"{words}', reply.choices[0].text], reply.usage

    def requests():
        return [line for line in file.read_text().splitlines() if json.loads(line)["event"] == "request"]

    texts, usage = asked("xylophone")
    # A line is written a moment after its answer.
    wait_for(lambda: len(requests()) == 2, what="the lines")
    moved = file.rename(tmp_path / "audit.log.1")
    server.process.send_signal(signal.SIGHUP)
    wait_for(lambda: said(server, "2 keys were read again"))
    more, _ = asked("marimba")
    wait_for(lambda: file.exists() and len(requests()) == 2, what="the lines")
    assert server.stop() == 0
    lines = [json.loads(line) for line in (moved.read_text() + file.read_text()).splitlines()]
    assert [line["event"] for line in lines] == 2 * ["opened", "request", "request"]
    assert lines[2]["prompt_tokens"] == usage.prompt_tokens
    assert lines[2]["generated_tokens"] == usage.completion_tokens
    assert lines[2]["key"] == "alice"
    for text in texts + more:
        assert text not in moved.read_text() + file.read_text()
    assert not any('"event":"request"' in line for line in server.log)


def test_an_audit_log_that_cannot_be(program, model_file):
    done = subprocess.run([program, "serve", "-m", model_file, "--audit-log", "/dev/full", "--port", "0"],
                          capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "--audit-log: /dev/full: the audit log cannot be written: No space left on device" in done.stderr


def test_a_hang_up_ends_no_service(program, model_file):
    server = serving.Server(program, model_file, stdin=subprocess.DEVNULL)
    server.process.send_signal(signal.SIGHUP)
    time.sleep(0.3)
    connection = http.client.HTTPConnection(server.host, server.port, timeout=60)
    assert status(connection, "none") == 200
    assert server.stop() == 0
