"""More clients than a server is asked to decode for at once, and for longer."""

import asyncio
import json
import random
import resource
import time

import pytest

from conftest import is_idle, metric, wait_for

IDLE = 1000
STREAMS = 256
WORKERS = 32
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


SCHEMA = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 8},
                                           "age": {"type": "integer"}},
          "required": ["name", "age"], "additionalProperties": False}


async def one_of_a_mix(server, number, draw):
    """A request of any kind; whether it was answered as it should be."""
    kind = draw.choice(["whole", "stream", "chat", "schema", "two", "gone", "slow", "wrong",
                        "tokenize"])
    body = completion(number)
    if kind == "whole":
        status, answer = await ask(server, body)
        return status == 200 and len(json.loads(answer)["choices"][0]["token_ids"]) == \
            body["max_tokens"]
    if kind in ("stream", "slow"):
        status, answer = await ask(server, {**body, "stream": True},
                                   pause=0.05 if kind == "slow" else 0.0)
        return status == 200 and len(ids_of(answer)) == body["max_tokens"]
    if kind == "chat":
        status, answer = await ask(server, {
            "messages": [{"role": "user", "content": f"Say {number}."}], "max_tokens": 12,
            "temperature": 0.7}, "/v1/chat/completions")
        return status == 200 and json.loads(answer)["choices"][0]["finish_reason"] in \
            ("stop", "length")
    if kind == "schema":
        status, answer = await ask(server, {
            "prompt": "Ada: ", "max_tokens": 80, "temperature": 1,
            "structured_outputs": {"json": SCHEMA}})
        if status != 200:
            return False
        choice = json.loads(answer)["choices"][0]
        return choice["finish_reason"] == "length" or "age" in json.loads(choice["text"])
    if kind == "two":
        status, answer = await ask(server, {**body, "n": 2})
        return status == 200 and len(json.loads(answer)["choices"]) == 2
    if kind == "gone":
        await ask(server, {**body, "stream": True, "max_tokens": 400}, cut_after=600)
        return True
    if kind == "wrong":
        status, _ = await ask(server, {**body, "temperature": "hot"})
        return status == 400
    status, answer = await ask(server, {"prompt": "x" * (number % 999)}, "/tokenize")
    return status == 200


def test_soak(start, request):
    """A mixed load; what the server holds does not grow."""
    seconds = request.config.getoption("--soak-seconds")
    server = start("--cache-tokens", "8192", "--no-log-requests")
    sizes = []
    bad = []
    done = 0

    async def worker(index, end):
        nonlocal done
        draw = random.Random(index)
        while time.monotonic() < end:
            if not await one_of_a_mix(server, draw.randrange(1 << 20), draw):
                bad.append(index)
            done += 1

    async def watch(end):
        while time.monotonic() < end:
            sizes.append(server.resident_bytes())
            await asyncio.sleep(seconds / 40)

    async def soak():
        end = time.monotonic() + seconds
        await asyncio.gather(watch(end), *(worker(index, end) for index in range(WORKERS)))

    asyncio.run(soak())
    wait_for(lambda: is_idle(server), what="the end of all requests")
    assert not bad, f"{len(bad)} of {done} went wrong"
    # The first half fills what may be filled.
    middle = max(sizes[: len(sizes) // 2 + 1])
    growth = max(sizes[len(sizes) // 2:]) - middle
    print(f"\n{done} requests in {seconds:.0f} s, {middle / MIB:.0f} MiB, grown by "
          f"{growth / MIB:.1f} MiB since the middle")
    assert growth < 24 * MIB
    assert server.stop() == 0
