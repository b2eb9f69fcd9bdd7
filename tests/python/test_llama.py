"""Llama: the calls and shapes of llama-cpp-python."""

import json

import pytest

import aerie
from aerie import Llama, SamplingParams


@pytest.fixture(scope="module")
def llama(real):
    with Llama(real, n_ctx=512, seed=1, n_gpu_layers=-1, verbose=False) as one:
        yield one


def test_tokens(llama):
    tokens = llama.tokenize(b"Hello world")
    assert llama.detokenize(tokens) == b"Hello world"
    assert llama.n_ctx() == 512 and llama.n_vocab() > 40000
    assert llama.tokenize(b"<|im_end|>", special=True) == [llama.token_eos()]
    assert len(llama.tokenize(b"<|im_end|>")) > 1


def test_a_completion(llama, llm):
    reply = llama("The capital of France is", max_tokens=12, temperature=0, echo=True, logprobs=2)
    assert reply["object"] == "text_completion" and reply["id"].startswith("cmpl-")
    choice, = reply["choices"]
    own = llm.generate("The capital of France is", SamplingParams(temperature=0, max_tokens=12))[0].outputs[0]
    assert choice["text"] == "The capital of France is" + own.text
    assert choice["finish_reason"] == "length" and choice["index"] == 0
    assert reply["usage"] == {"prompt_tokens": 5, "completion_tokens": 12, "total_tokens": 17}
    assert len(choice["logprobs"]["tokens"]) == len(choice["logprobs"]["top_logprobs"]) == 12
    assert choice["logprobs"]["text_offset"][0] == len("The capital of France is")
    chunks = list(llama.create_completion("The capital of France is", max_tokens=12, temperature=0, stream=True))
    assert "".join(chunk["choices"][0]["text"] for chunk in chunks) == own.text
    assert chunks[-1]["choices"][0]["finish_reason"] == "length"
    drawn = [llama("Once", seed=5, max_tokens=8)["choices"][0]["text"] for _ in range(2)]
    assert drawn[0] == drawn[1]
    assert llama("Say:", max_tokens=8, grammar='root ::= "yes"')["choices"][0]["text"] == "yes"


def test_a_chat(llama):
    messages = [{"role": "system", "content": "You answer in a word."}, {"role": "user", "content": "A colour?"}]
    reply = llama.create_chat_completion(messages, temperature=0, max_tokens=8, logprobs=True, top_logprobs=1)
    assert reply["object"] == "chat.completion"
    message = reply["choices"][0]["message"]
    assert message["role"] == "assistant" and message["content"]
    assert reply["choices"][0]["logprobs"]["content"][0]["top_logprobs"]
    chunks = list(llama.create_chat_completion(messages, temperature=0, max_tokens=8, stream=True))
    assert chunks[0]["choices"][0]["delta"] == {"role": "assistant"}
    assert "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks) == message["content"]
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}
    schema = {"type": "object", "properties": {"a": {"enum": [1, 2]}}, "required": ["a"],
              "additionalProperties": False}
    reply = llama.create_chat_completion(messages, response_format={"type": "json_object", "schema": schema})
    assert json.loads(reply["choices"][0]["message"]["content"])["a"] in (1, 2)


def test_what_it_does_not_do_is_refused(llama, real):
    with pytest.raises(aerie.UnsupportedError, match="mirostat_mode"):
        llama("Once", mirostat_mode=2)
    with pytest.raises(aerie.UnsupportedError, match="tools"):
        llama.create_chat_completion([{"role": "user", "content": "x"}], tools=[{"type": "function"}])
    with pytest.raises(TypeError, match="temprature"):
        llama("Once", temprature=1)
    with pytest.raises(TypeError, match="n_ctxx"):
        Llama(real, n_ctxx=1)
