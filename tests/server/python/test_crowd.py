"""More clients than a server is asked to decode for at once, and for longer."""

import asyncio
import json
import resource

import pytest

from conftest import is_idle, metric, wait_for

IDLE = 1000
STREAMS = 256
MIB = 1 << 20


def message(body, path="/v1/completions"):
    text = json.dumps(body).encode()
    return (f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            f"Connection: close\r\nContent-Length: {len(text)}\r\n\r\n").encode() + text


async def ask(server, body, path="/v1/completions", cut_after=None, pause=0.0):
    """Status and body; `cut_after`: bytes after which the client goes away."""
    reader, writer = await asyncio.open_connection(server.host, server.port, limit=1 << 16)
    try:
        writer.write(message(body, path))
        await writer.drain()
        answer = b""
        while True:
            piece = await asyncio.wait_for(reader.read(1 << 12), 300)
            if not piece:
                break
            answer += piece
            if cut_after is not None and len(answer) >= cut_after:
                return None, b""
            if pause:
                await asyncio.sleep(pause)
    finally:
        writer.close()
    head, _, rest = answer.partition(b"\r\n\r\n")
    if b"chunked" in head:
        rest = unchunked(rest)
    return int(head.split()[1]), rest


def unchunked(data):
    out = b""
    while data:
        size, _, data = data.partition(b"\r\n")
        size = int(size, 16)
        out += data[:size]
        data = data[size + 2:]
    return out


def events(answer):
    lines = [line for line in answer.decode().split("\n") if line.startswith("data: ")]
    assert lines[-1] == "data: [DONE]", answer[-200:]
    return [json.loads(line[6:]) for line in lines[:-1]]


def completion(number, **settings):
    return {"prompt": f"Story number {number}: once upon a time", "max_tokens": 6 + number % 11,
            "temperature": 0.9 if number % 2 else 0, "seed": number, "return_token_ids": True,
            "ignore_eos": True, **settings}


def ids_of(stream):
    return [token for event in events(stream) for choice in event["choices"]
            for token in choice.get("token_ids") or []]


def test_a_thousand_idle_and_256_streams(start):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 2 * (IDLE + STREAMS):
        pytest.skip("too few files may be open here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2 * (IDLE + STREAMS)), hard))
    server = start("--max-connections", "2048", "--cache-tokens", "16384")

    async def all_of_them():
        idle = [await asyncio.open_connection(server.host, server.port) for _ in range(IDLE)]
        before = server.resident_bytes()
        streams = await asyncio.gather(*(
            ask(server, completion(number, stream=True)) for number in range(STREAMS)))
        used = server.resident_bytes() - before
        # Those that were idle are served all the same.
        for reader, writer in idle[::100]:
            writer.write(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
            assert (await asyncio.wait_for(reader.readline(), 60)).startswith(b"HTTP/1.1 200")
        for _, writer in idle:
            writer.close()
        alone = [await ask(server, completion(number, stream=True, speculation="off"))
                 for number in range(0, STREAMS, 16)]
        return used, streams, alone

    used, streams, alone = asyncio.run(all_of_them())
    assert {status for status, _ in streams} == {200}
    counts = [len(ids_of(body)) for _, body in streams]
    assert counts == [completion(number)["max_tokens"] for number in range(STREAMS)]
    assert [ids_of(body) for _, body in streams[::16]] == [ids_of(body) for _, body in alone]
    # The cache is 360 MiB of that, when all of it has been written to.
    assert used < 512 * MIB
    # The engine's own figures follow a moment after the last answer.
    wait_for(lambda: is_idle(server), what="the end of all requests")
    assert metric(server, "vllm:request_success_total") == STREAMS + len(alone)
    assert metric(server, "vllm:generation_tokens_total") == sum(counts) + sum(counts[::16])
