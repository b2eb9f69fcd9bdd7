"""Bytes on a connection: requests that could be read in two ways, that never end, or that nobody would send.

tests/server/http_test.cc has all forms against the transport alone; here is one of each kind, for a whole server.
"""

import json
import re
import time

BODY = b'{"prompt":"x","max_tokens":1}'
NEXT = b"GET /version HTTP/1.1\r\nHost: localhost\r\n\r\n"
REFUSALS = (400, 405, 408, 413, 414, 431, 501, 505)


def post(*fields, body=BODY, path="/v1/completions", version="1.1"):
    """A request with these fields, and `Content-Length` if none says how long it is."""
    if not any(re.match(rb"(?i)(content-length|transfer-encoding)\b", field) for field in fields):
        fields = (*fields, b"Content-Length: %d" % len(body))
    head = b"".join(field + b"\r\n" for field in (b"Host: localhost", *fields))
    return f"POST {path} HTTP/{version}\r\n".encode() + head + b"\r\n" + body


def chunks(*codings):
    return post(*codings, body=b"%x\r\n%s\r\n0\r\n\r\n" % (len(BODY), BODY)) + NEXT


# Answered once at most, with a refusal: what stands behind is no request.
AMBIGUOUS = {
    **{f"Transfer-Encoding: {coding.decode()}": chunks(b"Transfer-Encoding: " + coding) for coding in (
        b"xchunked", b"identity", b"chunked,chunked", b"gzip, chunked", b"chunked, identity", b"chunked;q=1", b"")},
    "two codings": chunks(b"Transfer-Encoding: gzip", b"Transfer-Encoding: chunked"),
    "a coding and a length": chunks(b"Transfer-Encoding: chunked", b"Content-Length: 5"),
    "a coding behind a space": chunks(b"Transfer-Encoding : chunked"),
    "a coding in a second line": chunks(b"Transfer-Encoding:\r\n chunked"),
    **{f"Content-Length: {length.decode()}": post(b"Content-Length: " + length) + NEXT for length in (
        b"-5", b"nan", b"29,29", b"+29", b"0x1d", b"18446744073709551645")},
    "two lengths": post(b"Content-Length: 29", b"Content-Length: 0") + NEXT,
    "a chunk's size": post(b"Transfer-Encoding: chunked", body=b"zz\r\n") + NEXT,
    "bare CR": b"GET /version HTTP/1.1\r\nHost: localhost\r\nX: a\rY: b\r\n\r\n" + NEXT,
    "bare LF": b"GET /version HTTP/1.1\r\nHost: localhost\r\nX: a\nY: b\r\n\r\n" + NEXT,
    "LF alone": b"GET /version HTTP/1.1\nHost: localhost\n\n" + NEXT,
    "NUL": b"GET /version HTTP/1.1\r\nHost: localhost\r\nX: a\0b\r\n\r\n" + NEXT,
    "a folded line": b"GET /version HTTP/1.1\r\nHost: localhost\r\nX: a\r\n b\r\n\r\n" + NEXT,
    "two hosts": b"GET /version HTTP/1.1\r\nHost: localhost\r\nHost: b\r\n\r\n" + NEXT,
    "no host": b"GET /version HTTP/1.1\r\n\r\n" + NEXT,
    "a long address": b"GET /" + b"a" * 100000 + b" HTTP/1.1\r\n\r\n",
    "a long field": b"GET / HTTP/1.1\r\nX: " + b"b" * 200000 + b"\r\n\r\n",
    "many fields": b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 20000 + b"\r\n",
    "a chunk's extension without end": post(b"Transfer-Encoding: chunked", body=b"e;a=" + b"a" * 300000),
    "a trailer without end": post(b"Transfer-Encoding: chunked", body=b"0\r\nX: " + b"a" * 300000),
    "empty lines": b"\r\n\r\n",
    "no HTTP": b"nonsense\r\n\r\n",
    "no address": b"GET\r\n\r\n",
    "another version": b"GET / HTTP/9.9\r\n\r\n",
    "TLS's first bytes": b"\x16\x03\x01\x02\x00\x01\x00",
    "all bytes": bytes(range(256)) * 40,
    "a body that is cut short": post(b"Content-Length: 4000"),
    "a chunk that is cut short": post(b"Transfer-Encoding: chunked", body=b"ff\r\n{"),
    "4 GiB": post(b"Content-Length: 4294967296"),
}


def statuses(answer):
    """Of all final responses in these bytes."""
    return [int(status) for status in re.findall(rb"HTTP/1\.[01] (\d{3}) ", answer) if status[:1] != b"1"]


def exchange(target, data, half_close=True, pause=0.0, seconds=30):
    """What comes back until the server closes, or nothing more has come for a while. `pause`: behind each byte."""
    answer = b""
    with target.socket(seconds) as wire:
        try:
            if pause:
                for byte in data:
                    wire.sendall(bytes([byte]))
                    time.sleep(pause)
            else:
                wire.sendall(data)
            if half_close and not target.tls:
                wire.shutdown(1)
            while piece := wire.recv(1 << 16):
                answer += piece
        except TimeoutError:
            return answer + b"\nneither an answer nor an end"
        except OSError:
            pass  # hung up
    return answer


def with_key(target, data):
    return data.replace(b"\r\n", f"\r\nAuthorization: Bearer {target.key}\r\n".encode(), 1) if target.key else data


def whole(target, name, data, count, **how):
    """What is wrong if there are not so many good answers."""
    answer = exchange(target, data, **how)
    if statuses(answer) != [200] * count:
        return f"{name}: not {count} good answers: {answer[:200]!r}"
    return None


def host_cases(target):
    """What a page whose name was made to stand for the server may ask."""
    wanted = (401, 403) if target.key is None else range(200, 500)
    get = b"GET /v1/models HTTP/1.1\r\nHost: rebound.example\r\nConnection: close\r\n\r\n"
    page = post(b"Origin: http://rebound.example").replace(b"localhost", b"rebound.example", 1)
    for name, data in (("GET by another's name", get), ("POST from another's page", page)):
        found = statuses(exchange(target, with_key(target, data)))
        if not found or found[0] not in wanted:
            yield f"{name}: {found}"
        else:
            yield None


def good_cases(target):
    """Unusual, and to be answered."""
    for stream in ("false", "true"):
        body = b'{"prompt":"x","max_tokens":4,"stream":%s}' % stream.encode()
        for version in ("1.0", "1.1"):
            yield whole(target, f"half closed, HTTP/{version}, stream {stream}",
                        with_key(target, post(body=body, version=version)), 1)
    health = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
    yield whole(target, "pipelined", with_key(target, post()) + health * 3, 4)
    last = health.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
    yield whole(target, "byte by byte", last, 1, pause=0.02, half_close=False)


def crowd(target, silent=100, half=50):
    """Connections that say nothing or not all, and one that is answered beside them."""
    peers = [target.socket() for _ in range(silent + half)]
    try:
        for peer in peers[silent:]:
            peer.sendall(with_key(target, post(b"Content-Length: 100", body=b"{")))
        begin = time.monotonic()
        wrong = whole(target, "beside idle and half-open connections", with_key(target, post()), 1)
        if wrong is None and time.monotonic() - begin > 30:
            wrong = "beside idle and half-open connections: more than 30 s"
        return wrong
    finally:
        for peer in peers:
            peer.close()


def hoard(target, peers=24, mib=15):
    """As many large bodies at once as would fill the memory, none of them whole; and a small one beside them."""
    held = []
    head = with_key(target, post(b"Content-Length: %d" % ((mib << 20) + 1), body=b""))
    try:
        for _ in range(peers):
            peer = target.socket()
            held.append(peer)
            try:
                peer.sendall(head)
                for _ in range(mib):
                    peer.sendall(b" " * (1 << 20))
            except OSError:
                continue  # hung up
        return whole(target, "beside many large bodies", with_key(target, post()), 1)
    finally:
        for peer in held:
            peer.close()


def run(target):
    """Yields (refused or answered, seconds, what is wrong or None) of each case."""
    for name, data in AMBIGUOUS.items():
        begin = time.monotonic()
        found = statuses(answer := exchange(target, with_key(target, data)))
        wrong = None
        if len(found) > 1 or any(status not in (*REFUSALS, 401) for status in found):
            wrong = f"{name}: {found}"
        elif answer.endswith(b"neither an answer nor an end"):
            wrong = f"{name}: neither an answer nor an end"
        yield "refused", time.monotonic() - begin, wrong
    for kind, cases in (("refused", host_cases(target)), ("answered", good_cases(target)),
                        ("answered", (part(target) for part in (crowd, hoard)))):
        begin = time.monotonic()
        for wrong in cases:
            yield kind, time.monotonic() - begin, wrong
            begin = time.monotonic()


def malformed():
    """Bodies that are refused with 400."""
    return [
        b"", b"{", b"[]", b"null", b"5", b"\xff\xfe", b'{"prompt": "\xff"}', b'{"prompt": "x"} more', b"[" * 100000,
        b'{"prompt":' * 5000, b'{"prompt": 5}', b'{"prompt": [1, "x"]}', b'{"prompt": [999999999]}', b'{"prompt": [-1]}',
        b'{"prompt": [1.5]}', b'{"prompt": ""}', b'{"prompt": "x", "max_tokens": 1e99}',
        b'{"prompt": "x", "max_tokens": 99999999999999999999}', b'{"prompt": "x", "temperature": "hot"}',
        b'{"prompt": "x", "prompt": "y"}', b'{"prompt": "x", "stop": [[]]}',
        b'{"prompt": "x", "seed": -99999999999999999999}', b'{"prompt": "\\ud800"}', b'{"prompt": "\\udc00\\ud800"}',
        b'{"prompt": "x", "stop": "\\ud800"}', b'{"prompt": "a\0b"}', b"\xef\xbb\xbf{", b'{"prompt": "\xed\xa0\x80"}',
        b'{"prompt": "x", "max_tokens": 1, "user": ' + b"[" * 65 + b"]" * 65 + b"}",
        json.dumps({"prompt": "x", "stop": ["s" * 70000]}).encode(),
        json.dumps({"prompt": "x", "n": 10 ** 6}).encode(), json.dumps({"prompt": ["x"] * 100000}).encode(),
    ]
