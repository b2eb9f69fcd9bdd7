"""LLM: the ids of `aerie run`, and what vLLM's users expect."""

import asyncio
import json
import re
import subprocess

import pytest

import aerie
from aerie import LLM, SamplingParams, StructuredOutputsParams

from conftest import ALWAYS

PROMPT = "The capital of France is"
MESSAGES = [{"role": "user", "content": "Name three rivers of Europe."}]


def run(program, model, tmp_path, *flags):
    path = tmp_path / "run.json"
    subprocess.run([program, "run", "-m", model, "--json", path, *flags], check=True, capture_output=True)
    return json.loads(path.read_text())["token_ids"]


def ids(outputs):
    return [reply.token_ids for output in outputs for reply in output.outputs]


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_the_ids_are_those_of_the_program(llm, program, real, tmp_path, temperature):
    params = SamplingParams(temperature=temperature, seed=11, max_tokens=24)
    expected = run(program, real, tmp_path, "--raw", "-p", PROMPT, "-n", "24", "--temp", str(temperature),
                   "--seed", "11")
    assert ids(llm.generate(PROMPT, params)) == [expected]
    with LLM(real, speculative_config=[ALWAYS, {"method": "recycling", "gate": False}]) as other:
        outputs = other.generate([PROMPT], params)
        assert ids(outputs) == [expected]
        stats = outputs[0].outputs[0].speculation
        assert stats.drafted_tokens > 0 and stats.rounds > 0
        assert 0.0 <= stats.acceptance_rate <= 1.0 <= stats.mean_accepted_length
        assert len(stats.acceptance_per_position) <= 32


def test_a_chat_is_that_of_the_program(llm, program, real, tmp_path):
    expected = run(program, real, tmp_path, "--template", "-p", MESSAGES[0]["content"], "-n", "16", "--temp", "0")
    params = SamplingParams(temperature=0, max_tokens=16)
    tokenizer = llm.get_tokenizer()
    prompt = tokenizer.apply_chat_template(MESSAGES, add_generation_prompt=True)
    assert ids(llm.chat(MESSAGES, params)) == [expected]
    assert ids(llm.generate(MESSAGES, params)) == [expected]
    assert ids(asyncio.run(llm.achat(MESSAGES, params))) == [expected]
    assert ids(llm.generate([{"prompt_token_ids": prompt}], params)) == [expected]
    parts = [{"role": "user", "content": [{"type": "text", "text": MESSAGES[0]["content"]}]}]
    assert ids(llm.chat([MESSAGES, parts], params)) == [expected, expected]
    template = {"tools": [{"type": "function", "function": {"name": "x"}}], "chat_template_kwargs": {"messages_": 1}}
    assert len(llm.chat(MESSAGES, params, **template)) == 1


def test_batches_and_choices_are_as_alone(plain):
    prompts = ["Once", "upon a time", [5, 6, 7], {"prompt": "there was"}]
    params = [SamplingParams(temperature=0.9, seed=seed, max_tokens=20, n=3, ignore_eos=True)
              for seed in range(len(prompts))]
    together = plain.generate(prompts, params)
    assert [output.seed for output in together] == [0, 1, 2, 3]
    assert [reply.index for reply in together[0].outputs] == [0, 1, 2]
    for prompt, one, output in zip(prompts, params, together):
        assert ids(plain.generate([prompt], one)) == ids([output])
    assert len({tuple(reply.token_ids) for reply in together[0].outputs}) == 3
    drawn = plain.generate("Once", SamplingParams(max_tokens=20, ignore_eos=True))[0]
    again = plain.generate("Once", SamplingParams(max_tokens=20, ignore_eos=True, seed=drawn.seed))
    assert ids([drawn]) == ids(again)


def test_streams_bring_the_same(plain):
    params = SamplingParams(temperature=0.9, seed=4, max_tokens=20, n=2, ignore_eos=True, logprobs=1)
    whole = plain.generate("Once", params)[0].outputs
    chunks = list(plain.stream("Once", params))

    async def gather():
        return [chunk async for chunk in plain.astream("Once", params)]

    for some in (chunks, asyncio.run(gather())):
        for reply in whole:
            own = [chunk for chunk in some if chunk.index == reply.index]
            assert "".join(chunk.text for chunk in own) == reply.text
            assert [one for chunk in own for one in chunk.token_ids] == reply.token_ids
            assert [chunk.finish_reason for chunk in own][-1] == "length"
            assert own[-1].output.token_ids == reply.token_ids and own[-1].output.logprobs == reply.logprobs
            assert all(chunk.output is None for chunk in own[:-1])


def test_a_stream_begins_before_the_end(llm):
    with llm.stream(PROMPT, SamplingParams(temperature=0, max_tokens=1000, ignore_eos=True)) as stream:
        assert 1 <= len(next(stream).token_ids) < 1000


def test_asyncio_brings_the_same(plain):
    prompts = ["Once", "upon", "a time"]
    params = SamplingParams(temperature=0.9, seed=4, max_tokens=20, n=2)

    async def both():
        return await asyncio.gather(plain.agenerate(prompts, params), plain.agenerate("Once", params))

    many, one = asyncio.run(both())
    assert ids(many) == ids(plain.generate(prompts, params))
    assert ids(one) == ids(many)[:2]


def test_logprobs_and_stops(llm):
    params = SamplingParams(temperature=0, max_tokens=12, logprobs=2)
    reply = llm.generate(PROMPT, params)[0].outputs[0]
    assert len(reply.logprobs) == len(reply.token_ids) == len(reply.origins)
    for token, entry in zip(reply.token_ids, reply.logprobs):
        assert entry[token].rank == 1 and entry[token].logprob <= 0 and len(entry) == 2
    assert reply.cumulative_logprob == pytest.approx(
        sum(entry[token].logprob for token, entry in zip(reply.token_ids, reply.logprobs)))
    assert llm.generate(PROMPT, SamplingParams(temperature=0, logprobs=0))[0].outputs[0].logprobs[0].keys() == {
        reply.token_ids[0]}
    stopped = llm.generate(PROMPT, SamplingParams(temperature=0, max_tokens=12, stop=["."]))[0].outputs[0]
    assert stopped.stop_reason == "." and reply.stop_reason is None
    assert stopped.finish_reason == "stop" and "." not in stopped.text and reply.text.startswith(stopped.text)
    token = reply.token_ids[3]
    ended = llm.generate(PROMPT, SamplingParams(temperature=0, max_tokens=12, stop_token_ids=[token]))[0].outputs[0]
    assert ended.token_ids == reply.token_ids[:reply.token_ids.index(token) + 1]


def test_prompts_are_scored(llm):
    reply = llm.generate(PROMPT, SamplingParams(temperature=0, max_tokens=6, logprobs=1))[0]
    ids = reply.prompt_token_ids + reply.outputs[0].token_ids
    params = SamplingParams(temperature=0, max_tokens=1, n=2, prompt_logprobs=1)
    scored = llm.generate({"prompt_token_ids": ids}, params)[0]
    assert len(scored.prompt_logprobs) == len(ids) and scored.prompt_logprobs[0] is None
    said = scored.prompt_logprobs[len(reply.prompt_token_ids):]
    assert [list(entry)[0] for entry in said] == reply.outputs[0].token_ids
    for entry, before in zip(said, reply.outputs[0].logprobs):
        token = next(iter(entry))
        assert entry[token].logprob == before[token].logprob and entry[token].rank == 1
    assert reply.prompt_logprobs is None
    again = asyncio.run(llm.agenerate({"prompt_token_ids": ids}, params))[0]
    assert again.prompt_logprobs == scored.prompt_logprobs


TOOLS = [{"type": "function", "function": {"name": "weather", "parameters": {
    "type": "object", "properties": {"place": {"type": "string"}}}}}]
# What the model is made to say.
THOUGHT = ("I need it.\n</think>\n\nLet me see.<tool_call>\n"
           '{"name": "weather", "arguments": {"place": "Rome"}}\n</tool_call>')


def test_chats_come_in_parts(thinker):
    params = SamplingParams(temperature=0, max_tokens=None, structured_outputs={"choice": [THOUGHT]})
    messages = [{"role": "user", "content": "How is Rome?"}]
    outputs = thinker.chat([messages, messages], params, tools=TOOLS)
    outputs += asyncio.run(thinker.achat(messages, params, tools=TOOLS))
    assert len(outputs) == 3
    for output in outputs:
        reply = output.outputs[0]
        assert reply.text == THOUGHT
        assert reply.reasoning_content.strip() == "I need it." and reply.content == "Let me see."
        call, = reply.tool_calls
        assert call["type"] == "function" and call["function"]["name"] == "weather" and len(call["id"]) == 9
        assert json.loads(call["function"]["arguments"]) == {"place": "Rome"}
    # A call goes back to the template as it came, and what was not offered is no call.
    messages.append({"role": "assistant", "content": reply.content, "tool_calls": reply.tool_calls})
    assert "<place=Rome>" in thinker.chat(messages, params, tools=TOOLS)[0].prompt
    without = thinker.chat(messages, params)[0].outputs[0]
    assert without.tool_calls == [] and "<tool_call>" in without.content
    with pytest.raises(ValueError, match="tools"):
        thinker.chat(messages, params, tools=[{"name": "weather"}])
    plain = thinker.generate("x", params)[0].outputs[0]
    assert plain.content is None and plain.reasoning_content is None and plain.tool_calls == []


@pytest.mark.parametrize("structure, matches", [
    ({"choice": ["red", "blue"]}, lambda text: text in ("red", "blue")),
    ({"regex": "[0-9]{3}-[a-z]{2}"}, lambda text: re.fullmatch("[0-9]{3}-[a-z]{2}", text)),
    (StructuredOutputsParams(json={"type": "object", "properties": {"a": {"type": "integer", "maximum": 99}},
                                   "required": ["a"], "additionalProperties": False}),
     lambda text: isinstance(json.loads(text)["a"], int)),
    ({"grammar": 'root ::= "yes" | "no"'}, lambda text: text in ("yes", "no")),
])
def test_replies_keep_to_a_form(llm, structure, matches):
    params = SamplingParams(temperature=1, seed=3, max_tokens=40, structured_outputs=structure)
    reply = llm.generate("An answer: ", params)[0].outputs[0]
    assert reply.finish_reason == "stop" and matches(reply.text), reply.text


def test_the_tokenizer(llm):
    tokenizer = llm.get_tokenizer()
    tokens = tokenizer.encode("Hello <|im_end|>")
    assert tokens[-1] == tokenizer.eos_token_id
    assert tokenizer.decode(tokens).strip() == "Hello"
    assert len(tokenizer.encode("Hello <|im_end|>", parse_special=False)) > len(tokens)
    assert len(tokenizer) == tokenizer.vocab_size > 40000
    text = tokenizer.apply_chat_template(MESSAGES, tokenize=False, add_generation_prompt=True)
    assert MESSAGES[0]["content"] in text and text.endswith("assistant\n")
    assert not tokenizer.apply_chat_template(MESSAGES, tokenize=False).endswith("assistant\n")
    with pytest.raises(TypeError, match="a message is"):
        tokenizer.apply_chat_template(["x"])


def test_predictions_draft(real):
    with LLM(real, speculative_config={"method": "prediction", "gate": False}) as llm:
        params = SamplingParams(temperature=0, max_tokens=24)
        reply = llm.generate(PROMPT, params)[0].outputs[0]
        params.prediction = reply.text
        again = llm.generate(PROMPT, params)[0].outputs[0]
        assert again.token_ids == reply.token_ids and again.speculation.mean_accepted_length > 2
        params.speculate = False
        slow = llm.generate(PROMPT, params)[0].outputs[0]
        assert slow.token_ids == reply.token_ids and slow.speculation.drafted_tokens == 0


def test_names_and_documents():
    for name in aerie.__all__:
        assert getattr(aerie, name).__doc__ or name == "__version__", name
    for cls in (LLM, aerie.Llama, aerie.Tokenizer, aerie.Drafter):
        for name, member in vars(cls).items():
            assert name.startswith("_") or not callable(member) or member.__doc__, name
