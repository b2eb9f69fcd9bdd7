"""Vectors of texts, against what transformers computes in double from the same weights, and beside other work."""

import base64
import concurrent.futures
import json
import math
import struct

import pytest

from conftest import ROOT

GOLDEN = json.loads((ROOT / "tests/golden/smollm2-embeddings.json").read_text())


def cosine(a, b):
    return sum(x * y for x, y in zip(a, b, strict=True)) / math.hypot(*a) / math.hypot(*b)


def vectors(client, model, texts, **settings):
    reply = client.embeddings.create(model=model, input=texts, **settings)
    assert [one.index for one in reply.data] == list(range(len(reply.data)))
    return [one.embedding for one in reply.data]


@pytest.mark.parametrize("pooling", ["last", "mean"])
def test_what_transformers_computes(start, pooling):
    server = start("--pooling", pooling)
    client = server.client()
    model = client.models.list().data[0].id
    texts = [one["text"] for one in GOLDEN]
    reply = client.embeddings.create(model=model, input=texts)
    assert reply.usage.prompt_tokens == reply.usage.total_tokens == sum(len(one["ids"]) for one in GOLDEN)
    ours = [one.embedding for one in reply.data]
    for golden, vector in zip(GOLDEN, ours, strict=True):
        assert math.hypot(*vector) == pytest.approx(1, abs=1e-6)
        assert cosine(vector, golden[pooling]) > 0.999, golden["text"]
    # Each is nearest to its own.
    for i, vector in enumerate(ours):
        near = [cosine(vector, golden[pooling]) for golden in GOLDEN]
        assert near[i] == max(near)
    assert vectors(client, model, [one["ids"] for one in GOLDEN]) == ours
    assert server.stop() == 0


def test_forms(client, model):
    text = GOLDEN[0]["text"]
    # The client asks for base64 by itself; here it is told not to.
    floats = client.embeddings.with_raw_response.create(model=model, input=text, encoding_format="float")
    plain = json.loads(floats.text)["data"][0]["embedding"]
    encoded = json.loads(client.embeddings.with_raw_response.create(
        model=model, input=text, encoding_format="base64").text)["data"][0]["embedding"]
    values = struct.unpack(f"<{len(plain)}f", base64.b64decode(encoded))
    assert [struct.unpack("<f", struct.pack("<f", value))[0] for value in plain] == list(values)
    short, = vectors(client, model, text, dimensions=16)
    assert len(short) == 16 and math.hypot(*short) == pytest.approx(1, abs=1e-6)
    length = math.hypot(*values[:16])
    assert short == pytest.approx([value / length for value in values[:16]], abs=1e-6)


def test_the_same_bits_beside_other_work(client, model):
    texts = [f"{number} {one['text']} " * (1 + number % 7) for number in range(5) for one in GOLDEN]
    alone = [vectors(client, model, text)[0] for text in texts]
    assert vectors(client, model, texts) == alone

    def talk(number):
        return client.completions.create(model=model, prompt=f"{number} one two three", max_tokens=64, temperature=0,
                                         extra_body={"ignore_eos": True}).choices[0].text

    with concurrent.futures.ThreadPoolExecutor(12) as pool:
        talks = [pool.submit(talk, number) for number in range(6)]
        beside = list(pool.map(lambda text: vectors(client, model, text)[0], texts))
        said = [one.result() for one in talks]
    assert beside == alone
    assert said == [talk(number) for number in range(6)]
