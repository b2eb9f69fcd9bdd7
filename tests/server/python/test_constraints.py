"""Constraints that ask for much in few bytes: the server refuses or serves them, and goes on."""

import openai
import pytest

MIB = 1 << 20


def doubling(levels):
    """Each level says the one below it twice."""
    definitions = {"d0": {"anyOf": [{"type": "integer"}, {"type": "string"}]}}
    for i in range(1, levels + 1):
        definitions[f"d{i}"] = {"allOf": [{"$ref": f"#/$defs/d{i - 1}"}] * 2}
    return {"$ref": f"#/$defs/d{levels}", "$defs": definitions}


def schema(what):
    return {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": what}}}


def regex(what):
    return {"extra_body": {"structured_outputs": {"regex": what}}}


CASES = {
    "doubling": schema(doubling(64)),
    "multiple": schema({"type": "integer", "multipleOf": 9999}),
    "enumeration": schema({"enum": [f"s{i * 7919 % 100000:05}" for i in range(30000)]}),
    "counts": regex("(.{0,300}){3}"),
    "longer counts": regex("(.{0,3000}){3}"),
    "behind anything": regex(".*.{3000}"),
    "nested counts": regex("((((a?){30}){30}){30}){30}"),
    "ways to cut": regex("(.|..|...|....|.....)*x(.|..|...){40}"),
    "combinations": schema({"allOf": [{"anyOf": [{"minLength": i}, {"maxLength": 40 + i}]} for i in range(1, 30)]}),
    "patterns": schema({"type": "string", "allOf": [{"pattern": f"^.*{c}.{{20}}$"} for c in "abcdefgh"]}),
}


@pytest.fixture(scope="module")
def victim(start):
    return start()


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_the_server_goes_on(victim, case):
    client = victim.client()
    model = client.models.list().data[0].id
    before = victim.resident_bytes()
    try:
        reply = client.chat.completions.create(
            model=model, max_tokens=24, messages=[{"role": "user", "content": "Go on."}], **case)
        assert reply.choices[0].finish_reason in ("stop", "length")
    except openai.BadRequestError as refusal:
        assert "more than" in str(refusal)
    assert victim.resident_bytes() < before + 256 * MIB
    assert client.completions.create(model=model, prompt="One, two,", max_tokens=4).choices[0].text
