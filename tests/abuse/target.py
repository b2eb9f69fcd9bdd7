"""The server that is aimed at, and one request to it."""

import collections
import http.client
import ipaddress
import json
import pathlib
import re
import socket
import ssl
import time
import urllib.parse

MIB = 1 << 20
# Of all above 499: what the server says of itself as documented.
DOCUMENTED = (501, 503, 504, 505)
SECONDS = 120

# kind: answered, refused, error (the reply ended with one), left (by this client), or wrong: `note` says what is.
Outcome = collections.namedtuple("Outcome", "kind status note seconds answer", defaults=(b"",))


class Target:
    """A server by its address. `pid`: its process, where it is of this machine; None: not known."""

    def __init__(self, url, key=None, pid=None):
        parts = urllib.parse.urlsplit(url)
        self.url, self.key, self.pid = url.rstrip("/"), key, pid
        self.host, self.tls = parts.hostname, parts.scheme == "https"
        self.port = parts.port or (443 if self.tls else 80)
        self.base = parts.path.rstrip("/")
        self.born = self._born()

    def is_local(self):
        """Whether its name stands for this machine alone."""
        found = {ipaddress.ip_address(entry[4][0]) for entry in socket.getaddrinfo(self.host, self.port)}
        return all(address.is_loopback for address in found)

    def open(self, seconds=SECONDS, source=None):
        """An http.client connection. `source`: another address of this machine that it comes from."""
        kind = http.client.HTTPSConnection if self.tls else http.client.HTTPConnection
        settings = {"context": ssl._create_unverified_context()} if self.tls else {}
        return kind(self.host, self.port, timeout=seconds, source_address=source and (source, 0), **settings)

    def socket(self, seconds=SECONDS):
        raw = socket.create_connection((self.host, self.port), timeout=seconds)
        return ssl._create_unverified_context().wrap_socket(raw, server_hostname=self.host) if self.tls else raw

    def headers(self):
        return {"Content-Type": "application/json", **({"Authorization": f"Bearer {self.key}"} if self.key else {})}

    def get(self, path):
        """Status and body."""
        connection = self.open(60)
        connection.request("GET", self.base + path, headers=self.headers())
        response = connection.getresponse()
        answer = response.status, response.read()
        connection.close()
        return answer

    def metric(self, name):
        """A sum over its labels; None where it is not shown."""
        status, page = self.get("/metrics")
        found = [float(line.rsplit(" ", 1)[1]) for line in page.decode(errors="replace").splitlines()
                 if line.startswith((name + "{", name + " "))]
        return sum(found) if status == 200 and found else None

    def _born(self):
        if self.pid is None:
            return None
        try:
            return pathlib.Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[19]
        except OSError:
            return None

    def same_process(self):
        return self.born == self._born()

    def memory(self, field="VmRSS"):
        """MiB; 0 where the process is not known."""
        if self.pid is None:
            return 0
        try:
            status = pathlib.Path(f"/proc/{self.pid}/status").read_text()
        except OSError:
            return 0
        found = re.search(rf"{field}:\s+(\d+) kB", status)
        return int(found[1]) / 1024 if found else 0


def ask(target, body, path="/v1/completions", *, leave=None, cut=None, seconds=SECONDS, may_hang_up=False):
    """One request. `leave`: seconds after which this client goes; `cut`: bytes of the answer after which it does.

    `body` is sent as it is, or as JSON. `may_hang_up`: a server may end the connection of what is too large.
    """
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    begin = time.monotonic()
    end = begin + (seconds if leave is None else leave)
    connection = target.open(max(0.01, end - begin))
    answer, status = b"", 0

    def outcome(kind, note=""):
        return Outcome(kind, status, note, time.monotonic() - begin, answer)

    try:
        try:
            connection.request("POST", target.base + path, data, target.headers())
        except (BrokenPipeError, ConnectionResetError):
            if connection.sock is None:
                raise
        wire = connection.sock
        response = connection.getresponse()
        status = response.status
        while piece := response.read1(1 << 16):
            answer += piece
            if cut is not None and len(answer) >= cut:
                return outcome("left")
            if time.monotonic() >= end:
                raise TimeoutError
            wire.settimeout(max(0.01, end - time.monotonic()))
    except TimeoutError:
        return outcome("left") if leave is not None else outcome("wrong", f"no answer within {seconds} s")
    except (OSError, http.client.HTTPException) as error:
        if may_hang_up and not isinstance(error, ConnectionRefusedError):
            return outcome("refused", "hung up")
        return outcome("wrong", f"the connection: {type(error).__name__}: {error}")
    finally:
        connection.close()
    return outcome(*judge(status, answer))


def judge(status, answer):
    """Kind and note of a whole answer."""
    if status >= 500 and status not in DOCUMENTED:
        return "wrong", f"status {status}: {answer[:300]!r}"
    if status != 200:
        return ("refused", "") if 400 <= status else ("wrong", f"status {status}")
    try:
        text = answer.decode()
        if text.startswith(("data:", "event:")):
            return judge_stream(text)
        reply = json.loads(text)
    except ValueError as error:
        return "wrong", f"neither JSON nor a stream: {error}: {answer[-200:]!r}"
    failed = reply.get("status") == "failed" or any(
        choice.get("finish_reason") == "error" for choice in reply.get("choices", []))
    return ("error" if failed else "answered"), ""


def judge_stream(text):
    lines = [line[6:] for line in text.split("\n") if line.startswith("data: ")]
    events = [json.loads(line) for line in lines if line != "[DONE]"]
    if any(event.get("error") or event.get("type") == "response.failed" for event in events):
        return "error", ""
    whole = lines[-1:] == ["[DONE]"] or events and events[-1].get("type") in (
        "response.completed", "response.incomplete")
    return ("answered", "") if whole else ("wrong", f"a stream without an end: {text[-200:]!r}")
