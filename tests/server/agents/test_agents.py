"""Reasoning and tools as the clients of agents see them: whole and streamed they are the same, and with
speculation they are those without."""

import asyncio
import functools
import json
import operator

import agents
import anthropic
import instructor
import jsonschema
import langchain_openai
import litellm
import ollama
import openai
import pydantic
import pytest

QUESTION = [{"role": "user", "content": "What is the weather in Rome? Use the function."}]
PARAMETERS = {
    "type": "object",
    "properties": {
        "place": {"type": "string", "maxLength": 20},
        "unit": {"type": "string", "enum": ["C", "F"]},
        "days": {"type": "integer", "minimum": 1, "maximum": 9},
    },
    "required": ["place", "unit"],
    "additionalProperties": False,
}
WEATHER = {"name": "weather", "description": "The weather at a place", "parameters": PARAMETERS}
TOOLS = [{"type": "function", "function": WEATHER}]
SHORT = {"max_reasoning_tokens": 12}


def plain(settings):
    """The same without speculation."""
    return {**settings, "extra_body": {**settings.get("extra_body", {}), "speculation": "off"}}


def ask(client, model, **settings):
    settings = {"temperature": 0, "max_tokens": 120, "messages": QUESTION, "extra_body": SHORT, **settings}
    return client.chat.completions.create(model=model, **settings)


def joined(stream):
    """What a stream says: reasoning, content, calls."""
    reasoning, content, calls = "", "", []
    for chunk in stream:
        if not chunk.choices:
            continue
        delta = chunk.choices[0].delta
        reasoning += getattr(delta, "reasoning_content", None) or ""
        content += delta.content or ""
        for piece in delta.tool_calls or []:
            if piece.index == len(calls):
                calls.append([piece.function.name, ""])
            calls[piece.index][1] += piece.function.arguments or ""
    return reasoning, content, calls


def said(message):
    calls = [[call.function.name, call.function.arguments] for call in message.tool_calls or []]
    return getattr(message, "reasoning_content", "") or "", message.content or "", calls


SETTINGS = {
    "free": {},
    "hot": {"temperature": 1.0, "seed": 5},
    "auto": {"tools": TOOLS},
    "required": {"tools": TOOLS, "tool_choice": "required"},
    "named": {"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "weather"}}},
    "strict": {"tools": [{"type": "function", "function": {**WEATHER, "strict": True}}], "seed": 3,
               "temperature": 1.0},
    "schema": {"response_format": {"type": "json_schema", "json_schema": {
        "name": "weather", "schema": PARAMETERS}}},
    "without thinking": {"extra_body": {"chat_template_kwargs": {"enable_thinking": False}}},
}


@pytest.mark.parametrize("name", SETTINGS)
def test_the_same_in_all_forms(client, model, name):
    settings = SETTINGS[name]
    whole = said(ask(client, model, **settings).choices[0].message)
    assert joined(ask(client, model, stream=True, **settings)) == whole
    assert said(ask(client, model, **plain(
        {"extra_body": SHORT, **settings})).choices[0].message) == whole
    reasoning, content, calls = whole
    assert "<think>" not in content and "</think>" not in content
    assert bool(reasoning) == (name != "without thinking")
    if name in ("required", "named"):
        assert calls and not content.strip()
    if name == "schema":
        jsonschema.validate(json.loads(content), PARAMETERS)
    for function, arguments in calls:
        assert function == "weather"
        if name != "auto":
            jsonschema.validate(json.loads(arguments), PARAMETERS)


def test_reasoning_is_bounded_and_counted(client, model):
    for most in (0, 1, 12):
        reply = ask(client, model, extra_body={"max_reasoning_tokens": most})
        details = reply.usage.completion_tokens_details
        thought = (details.reasoning_tokens or 0) if details else 0
        assert thought <= most and "</think>" not in reply.choices[0].message.content
    unbounded = ask(client, model, extra_body={}, max_tokens=40)
    assert unbounded.usage.completion_tokens_details.reasoning_tokens > 30


def test_a_turn_with_a_call(client, model):
    first = ask(client, model, tools=TOOLS, tool_choice="required").choices[0].message
    messages = QUESTION + [first.model_dump(exclude_none=True)] + [
        {"role": "tool", "tool_call_id": call.id, "content": "21 degrees"} for call in first.tool_calls]
    second = ask(client, model, messages=messages, tools=TOOLS)
    assert second.choices[0].finish_reason in ("stop", "length", "tool_calls")


def test_responses(client, model):
    tools = [{"type": "function", **WEATHER}]
    settings = {"model": model, "input": "What is the weather in Rome?", "tools": tools, "temperature": 0,
                "tool_choice": "required", "max_output_tokens": 120, "parallel_tool_calls": False,
                "extra_body": SHORT}
    whole = client.responses.create(**settings)
    kinds = [item.type for item in whole.output]
    assert kinds[0] == "reasoning" and kinds[-1] == "function_call"
    call = whole.output[-1]
    jsonschema.validate(json.loads(call.arguments), PARAMETERS)
    with client.responses.stream(**settings) as stream:
        for _ in stream:
            pass
        final = stream.get_final_response()
    assert [item.type for item in final.output] == kinds
    assert final.output[-1].arguments == call.arguments
    assert final.output[0].content[0].text == whole.output[0].content[0].text
    answer = client.responses.create(
        model=model, temperature=0, max_output_tokens=40, extra_body=SHORT, tools=tools,
        input=[{"role": "user", "content": "What is the weather in Rome?"}, *whole.output,
               {"type": "function_call_output", "call_id": call.call_id, "output": "21 degrees"}])
    assert answer.output


def test_anthropic(claude, model):
    tools = [{"name": "weather", "description": "The weather", "input_schema": PARAMETERS}]
    greedy = {**SHORT, "temperature": 0}
    settings = {"model": model, "max_tokens": 120, "messages": QUESTION, "tools": tools,
                "tool_choice": {"type": "any"}, "extra_body": greedy}
    whole = claude.messages.create(**settings)
    assert [block.type for block in whole.content][0] == "thinking"
    use = whole.content[-1]
    assert use.type == "tool_use" and whole.stop_reason in ("tool_use", "max_tokens")
    jsonschema.validate(use.input, PARAMETERS)
    with claude.messages.stream(**settings) as stream:
        events = [event.type for event in stream]
        final = stream.get_final_message()
    assert events[0] == "message_start" and events[-1] == "message_stop"
    assert [block.type for block in final.content] == [block.type for block in whole.content]
    assert final.content[-1].input == use.input
    assert final.usage.output_tokens == whole.usage.output_tokens
    second = claude.messages.create(
        model=model, max_tokens=40, tools=tools, extra_body=greedy,
        messages=QUESTION + [{"role": "assistant", "content": whole.content},
                             {"role": "user", "content": [{"type": "tool_result", "tool_use_id": use.id,
                                                           "content": "21 degrees"}]}])
    assert second.content
    count = claude.messages.count_tokens(model=model, messages=QUESTION, tools=tools)
    assert count.input_tokens > 20
    with pytest.raises(anthropic.BadRequestError, match="max_tokens"):
        claude.messages.create(model=model, max_tokens=-1, messages=QUESTION)


def test_anthropic_stops(claude, model):
    reply = claude.messages.create(model=model, max_tokens=60, stop_sequences=["e"], messages=QUESTION,
                                   thinking={"type": "disabled"}, extra_body={"temperature": 0})
    assert reply.stop_reason == "stop_sequence" and reply.stop_sequence == "e"
    assert all("e" not in block.text for block in reply.content)


def test_ollama(server, model):
    own = ollama.Client(host=server.url)
    assert [one.model for one in own.list().models] == [model]
    settings = {"model": model, "messages": QUESTION, "tools": TOOLS,
                "options": {"temperature": 0, "num_predict": 40, "max_reasoning_tokens": 12}}
    whole = own.chat(**settings)
    assert whole.message.thinking and whole.done_reason in ("stop", "length")
    pieces = list(own.chat(stream=True, **settings))
    assert "".join(piece.message.thinking or "" for piece in pieces) == whole.message.thinking
    assert "".join(piece.message.content or "" for piece in pieces) == whole.message.content
    shaped = own.chat(model=model, messages=QUESTION, format=PARAMETERS, think=False,
                      options={"temperature": 0, "num_predict": 120})
    jsonschema.validate(json.loads(shaped.message.content), PARAMETERS)
    assert own.generate(model=model, prompt="Once upon a time", raw=True,
                        options={"num_predict": 8}).response


class Person(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid")
    name: str = pydantic.Field(max_length=20)
    age: int = pydantic.Field(ge=0, le=150)


@pytest.mark.parametrize("mode", [instructor.Mode.TOOLS, instructor.Mode.JSON_SCHEMA])
def test_instructor(client, model, mode):
    person = instructor.from_openai(client, mode=mode).chat.completions.create(
        model=model, response_model=Person, max_retries=0, temperature=0, max_tokens=200,
        messages=[{"role": "user", "content": "Ann is 33 years old."}], extra_body=SHORT)
    assert isinstance(person, Person)


def test_litellm(server, model):
    settings = {"model": f"hosted_vllm/{model}", "api_base": server.url + "/v1", "api_key": "none",
                "messages": QUESTION, "temperature": 0, "max_tokens": 120, "tools": TOOLS,
                "tool_choice": "required", "extra_body": SHORT}
    message = litellm.completion(**settings).choices[0].message
    assert message.reasoning_content
    arguments = message.tool_calls[0].function.arguments
    # LiteLLM leaves additionalProperties out for such servers.
    jsonschema.validate(json.loads(arguments), {**PARAMETERS, "additionalProperties": True})
    _, _, calls = joined(litellm.completion(stream=True, **settings))
    assert calls[0] == ["weather", arguments]
    claude = litellm.completion(
        model=f"anthropic/{model}", api_base=server.url, api_key="none", messages=QUESTION,
        temperature=0, max_tokens=40)
    assert claude.choices[0].message.reasoning_content


def test_embeddings(server, client, model):
    texts = ["the sea", "a rock in the sea"]
    reply = client.embeddings.create(model=model, input=texts)
    ours = [one.embedding for one in reply.data]
    assert ours[0] != ours[1] and reply.usage.prompt_tokens > 4
    theirs = litellm.embedding(model=f"hosted_vllm/{model}", api_base=server.url + "/v1", api_key="none", input=texts)
    assert [one["embedding"] for one in theirs.data] == [pytest.approx(vector, abs=1e-7) for vector in ours]


def langchain(server, model, **settings):
    extra = {**SHORT, **settings.pop("extra_body", {})}
    return langchain_openai.ChatOpenAI(model=model, base_url=server.url + "/v1", api_key="none", temperature=0,
                                       max_tokens=120, max_retries=0, timeout=300, extra_body=extra, **settings)


def chained(message):
    """What a message of LangChain's says, in either of OpenAI's APIs."""
    return message.text, [[call["name"], call["args"]] for call in message.tool_calls]


@pytest.mark.parametrize("responses", [False, True])
@pytest.mark.parametrize("choice", [None, "any", "weather"])
def test_langchain(server, model, responses, choice):
    def ask(**settings):
        chat = langchain(server, model, use_responses_api=responses, **settings)
        return chat.bind_tools([WEATHER], tool_choice=choice, strict=True) if choice else chat

    whole = ask().invoke("What is the weather in Rome?")
    pieces = list(ask().stream("What is the weather in Rome?"))
    assert len(pieces) > 3
    assert chained(functools.reduce(operator.add, pieces)) == chained(whole)
    assert chained(ask(extra_body={"speculation": "off"}).invoke("What is the weather in Rome?")) == chained(whole)
    text, calls = chained(whole)
    assert bool(calls) == bool(choice) and bool(text.strip()) != bool(calls) and not whole.invalid_tool_calls
    for name, arguments in calls:
        assert name == "weather"
        jsonschema.validate(arguments, PARAMETERS)
    assert 0 < whole.usage_metadata["output_token_details"]["reasoning"] <= SHORT["max_reasoning_tokens"]
    # Of chat completions it leaves fields out that are not OpenAI's.
    assert any(block["type"] == "reasoning" for block in whole.content_blocks) == responses


def test_langchain_takes_turns(server, model):
    chat = langchain(server, model)
    first = chat.bind_tools([WEATHER], tool_choice="any").invoke(QUESTION)
    answers = [{"role": "tool", "tool_call_id": call["id"], "content": "21 degrees"} for call in first.tool_calls]
    second = chat.bind_tools([WEATHER]).invoke([*QUESTION, first, *answers])
    assert answers and second.usage_metadata["input_tokens"] > first.usage_metadata["input_tokens"] + 50
    assert second.response_metadata["finish_reason"] in ("stop", "length", "tool_calls")


@pytest.mark.parametrize("method", ["json_schema", "function_calling"])
def test_langchain_structured_output(server, model, method):
    people = [langchain(server, model, extra_body=extra).with_structured_output(Person, method=method).invoke(
        "Ann is 33 years old.") for extra in ({}, {"speculation": "off"})]
    assert isinstance(people[0], Person) and people[0] == people[1]


def test_langchain_embeddings(server, client, model):
    texts = ["the sea", "a rock in the sea"]
    # By default it would cut texts with OpenAI's tokenizer, and send the ids of that.
    theirs = langchain_openai.OpenAIEmbeddings(model=model, base_url=server.url + "/v1", api_key="none",
                                               check_embedding_ctx_length=False)
    ours = [one.embedding for one in client.embeddings.create(model=model, input=texts).data]
    assert theirs.embed_documents(texts) == [pytest.approx(vector, abs=1e-7) for vector in ours]
    assert theirs.embed_query(texts[0]) == pytest.approx(ours[0], abs=1e-7)


@pytest.mark.parametrize("form", [agents.OpenAIChatCompletionsModel, agents.OpenAIResponsesModel])
def test_openai_agents(server, model, form):
    asked = []

    @agents.function_tool
    def weather(place: str) -> str:
        """The weather at a place."""
        asked.append(place)
        return "21 degrees"

    own = openai.AsyncOpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0, timeout=300)
    agents.set_tracing_disabled(True)
    agent = agents.Agent(
        name="helper", instructions="Answer in one sentence.", tools=[weather],
        model=form(model=model, openai_client=own), tool_use_behavior="stop_on_first_tool",
        model_settings=agents.ModelSettings(temperature=0, max_tokens=120, tool_choice="required",
                                            extra_body=SHORT))
    result = asyncio.run(agents.Runner.run(agent, "What is the weather in Rome?", max_turns=2))
    assert asked and result.final_output == "21 degrees"
