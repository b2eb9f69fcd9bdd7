"""Everything that the official client can ask of the server."""

import json

import jsonschema
import openai
import pytest

QUESTION = [{"role": "user", "content": "Name three rivers of Europe."}]
STORY = "Once upon a time, in a village by the sea,"


def ask(client, model, messages=QUESTION, **settings):
    settings = {"temperature": 0, "max_tokens": 24, **settings}
    return client.chat.completions.create(model=model, messages=messages, **settings)


def complete(client, model, prompt=STORY, **settings):
    settings = {"temperature": 0, "max_tokens": 24, **settings}
    return client.completions.create(model=model, prompt=prompt, **settings)


def ids_of(choice):
    return choice.model_extra["token_ids"]


# ---- What everyone asks ----


def test_models(client, model):
    listed = client.models.list()
    assert listed.object == "list"
    assert [one.id for one in listed.data] == [model]
    one = client.models.retrieve(model)
    assert one.id == model and one.object == "model"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("no-such-model")


def test_chat(client, model):
    reply = ask(client, model)
    assert reply.object == "chat.completion" and reply.model == model
    choice = reply.choices[0]
    assert choice.message.role == "assistant" and choice.message.content.strip()
    assert choice.finish_reason in ("stop", "length")
    usage = reply.usage
    assert usage.prompt_tokens > 5 and 0 < usage.completion_tokens <= 24
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens


def test_chat_keeps_the_conversation(client, model):
    history = [{"role": "system", "content": "You answer in one short sentence."}, *QUESTION,
               {"role": "assistant", "content": "The Danube, the Rhine and the Loire."},
               {"role": "user", "content": [{"type": "text", "text": "Repeat the first one."}]}]
    alone = ask(client, model)
    assert ask(client, model, history).usage.prompt_tokens > alone.usage.prompt_tokens + 10


def test_completion(client, model):
    reply = complete(client, model)
    assert reply.object == "text_completion"
    assert reply.choices[0].text and reply.choices[0].finish_reason == "length"
    assert reply.usage.completion_tokens == 24


def test_completion_of_ids_and_of_several_prompts(client, model):
    first = complete(client, model, extra_body={"return_token_ids": True})
    prompt = first.choices[0].model_extra["prompt_token_ids"]
    again = complete(client, model, prompt=prompt, extra_body={"return_token_ids": True})
    assert ids_of(again.choices[0]) == ids_of(first.choices[0])
    both = complete(client, model, prompt=[STORY, "The capital of France is"], max_tokens=8)
    assert [choice.index for choice in both.choices] == [0, 1]
    assert first.choices[0].text.startswith(both.choices[0].text)
    assert "Paris" in both.choices[1].text


def test_prompts_are_scored(client, model):
    """What lm-evaluation-harness asks: a reply given back as a prompt has the log-probabilities it had."""
    said = complete(client, model, max_tokens=24, logprobs=3)
    first = said.choices[0].logprobs
    scored = complete(client, model, prompt=STORY + said.choices[0].text, max_tokens=1, logprobs=3, echo=True)
    choice = scored.choices[0]
    assert choice.text.startswith(STORY + said.choices[0].text)
    got, count = choice.logprobs, len(first.tokens)
    assert got.token_logprobs[0] is None and got.top_logprobs[0] is None
    assert got.tokens[-count - 1 : -1] == first.tokens
    assert got.token_logprobs[-count - 1 : -1] == first.token_logprobs
    assert got.top_logprobs[-count - 1 : -1] == first.top_logprobs
    assert len(got.text_offset) == len(got.tokens) and got.text_offset[0] == 0
    again = complete(client, model, prompt=STORY + said.choices[0].text, max_tokens=1, logprobs=3, echo=True,
                     extra_body={"speculation": "off"})
    assert again.choices[0].logprobs == got
    whole = ask(client, model, max_tokens=4, extra_body={"prompt_logprobs": 2})
    scores = whole.model_extra["prompt_logprobs"]
    assert scores[0] is None and len(scores) == whole.usage.prompt_tokens
    assert all(2 <= len(one) <= 3 for one in scores[1:])


def test_completion_echo(client, model):
    plain = complete(client, model, max_tokens=8)
    echoed = complete(client, model, max_tokens=8, echo=True)
    assert echoed.choices[0].text == STORY + plain.choices[0].text


@pytest.mark.parametrize("temperature", [0, 0.8])
def test_streaming_chat(client, model, temperature):
    settings = {"temperature": temperature, "seed": 5, "max_tokens": 40}
    whole = ask(client, model, **settings)
    chunks = list(ask(client, model, stream=True, stream_options={"include_usage": True},
                      **settings))
    assert {chunk.id for chunk in chunks} == {chunks[0].id}
    assert all(chunk.object == "chat.completion.chunk" for chunk in chunks)
    assert chunks[0].choices[0].delta.role == "assistant"
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == whole.choices[0].message.content
    reasons = [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices]
    assert reasons[-1] == whole.choices[0].finish_reason
    assert not any(reasons[:-1])
    assert chunks[-1].choices == [] and chunks[-1].usage == whole.usage
    assert all(chunk.usage is None for chunk in chunks[:-1])


def test_streaming_completion(client, model):
    whole = complete(client, model)
    chunks = list(complete(client, model, stream=True))
    assert "".join(chunk.choices[0].text for chunk in chunks) == whole.choices[0].text
    assert all(chunk.usage is None for chunk in chunks)


def test_stream_that_is_closed_early(client, model):
    stream = ask(client, model, stream=True, max_tokens=400)
    next(iter(stream))
    stream.close()
    assert ask(client, model).choices


# ---- Sampling ----


def test_several_choices(client, model):
    settings = {"temperature": 1, "seed": 11, "extra_body": {"return_token_ids": True}}
    lone = ask(client, model, **settings)
    several = ask(client, model, n=3, **settings)
    assert sorted(choice.index for choice in several.choices) == [0, 1, 2]
    by_index = {choice.index: ids_of(choice) for choice in several.choices}
    assert by_index[0] == ids_of(lone.choices[0])
    assert by_index[1] != by_index[0]
    assert several.usage.completion_tokens == sum(len(ids) for ids in by_index.values())
    seen = {}
    for chunk in ask(client, model, n=3, stream=True, **settings):
        for choice in chunk.choices:
            seen[choice.index] = seen.get(choice.index, "") + (choice.delta.content or "")
    assert seen == {choice.index: choice.message.content for choice in several.choices}


def test_seeds(client, model):
    def text(seed):
        return complete(client, model, temperature=1, seed=seed).choices[0].text

    assert text(1) == text(1)
    assert len({text(seed) for seed in range(4)}) > 1
    # Without one, every request draws its own.
    assert len({complete(client, model, temperature=1.5).choices[0].text for _ in range(3)}) > 1


def test_chat_logprobs(client, model):
    reply = ask(client, model, logprobs=True, top_logprobs=3)
    content = reply.choices[0].logprobs.content
    assert len(content) in (reply.usage.completion_tokens, reply.usage.completion_tokens - 1)
    assert "".join(one.token for one in content).startswith(reply.choices[0].message.content)
    for one in content:
        assert one.logprob <= 0 and len(one.top_logprobs) == 3
        best = one.top_logprobs[0]
        assert best.token == one.token and best.logprob == pytest.approx(one.logprob)
        tops = [top.logprob for top in one.top_logprobs]
        assert tops == sorted(tops, reverse=True)
        assert one.bytes is None or bytes(one.bytes).decode(errors="replace") == one.token


def test_completion_logprobs(client, model):
    reply = complete(client, model, logprobs=2)
    logprobs = reply.choices[0].logprobs
    assert "".join(logprobs.tokens) == reply.choices[0].text
    assert len(logprobs.token_logprobs) == len(logprobs.tokens) == 24
    assert logprobs.text_offset[0] in (0, len(STORY))
    assert all(len(top) >= 2 for top in logprobs.top_logprobs)


def test_logprobs_are_the_same_with_speculation(client, model):
    plain, drafted = (
        ask(client, model, logprobs=True, top_logprobs=2, max_tokens=48,
            extra_body={"speculation": speculation} if speculation else {}).choices[0].logprobs
        for speculation in ("off", None))
    assert plain == drafted


def test_logit_bias(client, model):
    plain = ask(client, model, max_tokens=12, extra_body={"return_token_ids": True}).choices[0]
    first = ids_of(plain)[0]
    banned = ask(client, model, max_tokens=12, logit_bias={str(first): -100},
                 extra_body={"return_token_ids": True}).choices[0]
    assert first not in ids_of(banned)
    forced = ask(client, model, max_tokens=4, logit_bias={str(first): 100},
                 extra_body={"return_token_ids": True}).choices[0]
    assert ids_of(forced) == [first] * 4


def test_stop(client, model):
    plain = complete(client, model, max_tokens=40).choices[0].text
    word = plain.split()[6]
    stopped = complete(client, model, max_tokens=40, stop=[word]).choices[0]
    assert stopped.finish_reason == "stop"
    assert stopped.text == plain[: plain.index(word)]
    streamed = complete(client, model, max_tokens=40, stop=word, stream=True)
    assert "".join(chunk.choices[0].text for chunk in streamed) == stopped.text


def test_penalties(client, model):
    prompt = "a b c a b c a b c a b c a b"
    plain = complete(client, model, prompt=prompt).choices[0].text
    for name in ("frequency_penalty", "presence_penalty"):
        assert complete(client, model, prompt=prompt, **{name: 2}).choices[0].text != plain
    more = {"repetition_penalty": 1.8}
    assert complete(client, model, prompt=prompt, extra_body=more).choices[0].text != plain


def test_top_k_of_one_is_greedy(client, model):
    greedy = complete(client, model).choices[0].text
    one = complete(client, model, temperature=1, seed=3, extra_body={"top_k": 1}).choices[0].text
    narrow = complete(client, model, temperature=1, seed=3, top_p=1e-6).choices[0].text
    assert one == narrow == greedy


def test_prediction(client, model):
    question = [{"role": "user", "content": "Repeat: the quick brown fox jumps over the lazy dog."}]
    plain = ask(client, model, question, max_tokens=60).choices[0].message.content
    reply = ask(client, model, question, max_tokens=60,
                prediction={"type": "content", "content": plain})
    assert reply.choices[0].message.content == plain
    details = reply.usage.completion_tokens_details
    assert details.accepted_prediction_tokens > 0
    assert details.rejected_prediction_tokens >= 0


# ---- Constraints ----

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "city": {"enum": ["Rome", "Oslo", "Bern"]},
        "tags": {"type": "array", "items": {"type": "boolean"}, "minItems": 1, "maxItems": 3},
    },
    "required": ["name", "age", "city", "tags"],
    "additionalProperties": False,
}
INTRODUCE = [{"role": "user", "content": "Introduce an invented person as JSON."}]


def schema_format(schema, strict=True):
    return {"type": "json_schema",
            "json_schema": {"name": "answer", "strict": strict, "schema": schema}}


@pytest.mark.parametrize("temperature", [0, 1])
@pytest.mark.parametrize("speculation", ["off", None])
def test_json_schema(client, model, temperature, speculation):
    extra = {"speculation": speculation} if speculation else {}
    for seed in range(3):
        reply = ask(client, model, INTRODUCE, temperature=temperature, seed=seed, max_tokens=300,
                    response_format=schema_format(PERSON), extra_body=extra)
        assert reply.choices[0].finish_reason == "stop"
        jsonschema.validate(json.loads(reply.choices[0].message.content), PERSON)


def test_json_object(client, model):
    whole = 0
    for seed in range(3):
        reply = ask(client, model, INTRODUCE, temperature=0.7, seed=seed, max_tokens=400,
                    response_format={"type": "json_object"}).choices[0]
        assert reply.message.content.lstrip().startswith("{")
        if reply.finish_reason == "stop":
            whole += 1
            assert isinstance(json.loads(reply.message.content), dict)
    assert whole > 0


def test_refuses_broken_schemas(client, model):
    for broken in ({"type": "no such type"}, {"$ref": "#/nowhere"}, "text"):
        with pytest.raises(openai.BadRequestError):
            ask(client, model, response_format=schema_format(broken))
    with pytest.raises(openai.BadRequestError):
        ask(client, model, response_format={"type": "no such type"})


def test_choice(client, model):
    for temperature in (0, 1):
        reply = ask(client, model, temperature=temperature, seed=1,
                    extra_body={"structured_outputs": {"choice": ["north", "south", "nowhere"]}})
        assert reply.choices[0].message.content in ("north", "south", "nowhere")
    old = ask(client, model, extra_body={"guided_choice": ["yes", "no"]})
    assert old.choices[0].message.content in ("yes", "no")


def test_regex(client, model):
    pattern = r"[A-Z][a-z]{2,8}, (19|20)\d\d"
    reply = ask(client, model, temperature=1, seed=2,
                extra_body={"structured_outputs": {"regex": pattern}})
    import re
    assert re.fullmatch(pattern, reply.choices[0].message.content)
    with pytest.raises(openai.BadRequestError):
        ask(client, model, extra_body={"structured_outputs": {"regex": "(unclosed"}})


def test_grammar(client, model):
    grammar = 'root ::= "sum = " number (" + " number)* "."\nnumber ::= [1-9] [0-9]?'
    reply = ask(client, model, temperature=1, seed=3, max_tokens=200, logit_bias={},
                extra_body={"structured_outputs": {"grammar": grammar}})
    import re
    text = reply.choices[0].message.content
    full = re.fullmatch(r"sum = [1-9]\d?( \+ [1-9]\d?)*\.", text)
    assert full or reply.choices[0].finish_reason == "length"
    assert text.startswith("sum = ")
    with pytest.raises(openai.BadRequestError):
        ask(client, model, extra_body={"structured_outputs": {"grammar": "root ::= nothing"}})


def test_tools_need_a_template(client, model):
    tools = [{"type": "function",
              "function": {"name": "weather", "description": "The weather at a place",
                           "parameters": {"type": "object", "required": ["place"],
                                          "properties": {"place": {"type": "string"}}}}}]
    for choice in ("auto", "required", {"type": "function", "function": {"name": "weather"}}):
        with pytest.raises(openai.BadRequestError, match="tool"):
            ask(client, model, tools=tools, tool_choice=choice)
    with pytest.raises(openai.BadRequestError):
        ask(client, model, tools=[{"type": "no such type"}])


# ---- Responses ----


def test_responses(client, model):
    reply = client.responses.create(model=model, input="Name a river.", max_output_tokens=24,
                                    temperature=0)
    assert reply.object == "response" and reply.output_text.strip()
    assert reply.usage.input_tokens > 0 and 0 < reply.usage.output_tokens <= 24
    chat = ask(client, model, [{"role": "user", "content": "Name a river."}])
    assert reply.output_text == chat.choices[0].message.content
    listed = client.responses.create(
        model=model, max_output_tokens=8, instructions="Be brief.",
        input=[{"role": "user", "content": [{"type": "input_text", "text": "Name a river."}]}])
    assert listed.status in ("completed", "incomplete")


def test_responses_stream(client, model):
    settings = {"model": model, "input": "Name a river.", "max_output_tokens": 24, "temperature": 0}
    whole = client.responses.create(**settings)
    events = list(client.responses.create(stream=True, **settings))
    kinds = [event.type for event in events]
    assert kinds[0] == "response.created"
    assert kinds[-1] in ("response.completed", "response.incomplete")
    text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    assert text == whole.output_text == events[-1].response.output_text
    numbers = [event.sequence_number for event in events]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))


# ---- Speculation ----


@pytest.mark.parametrize("temperature", [0, 0.9])
def test_speculation_changes_nothing(client, model, speculations, temperature):
    def run(speculation):
        extra = {"return_token_ids": True, **({"speculation": speculation} if speculation else {})}
        return ask(client, model, temperature=temperature, seed=9, max_tokens=96, extra_body=extra)

    plain = run("off")
    assert plain.model_extra.get("aerie", {}).get("drafted", 0) == 0
    asked = [None, *({"method": name} for name in speculations),
             *({"method": name, "depth": 2} for name in speculations)]
    for speculation in asked:
        reply = run(speculation)
        assert ids_of(reply.choices[0]) == ids_of(plain.choices[0]), speculation
        assert reply.choices[0].message.content == plain.choices[0].message.content
    with pytest.raises(openai.BadRequestError):
        run({"method": "no such method"})


def test_trace_tells_the_same_tokens(client, model):
    extra = {"trace": True, "return_token_ids": True}
    prompt = "one two three four one two three four one two three"
    plain = complete(client, model, prompt=prompt, max_tokens=48,
                     extra_body={"return_token_ids": True, "speculation": "off"})
    chunks = list(complete(client, model, prompt=prompt, max_tokens=48, stream=True,
                           stream_options={"include_usage": True}, extra_body=extra))
    rounds = [chunk.model_extra["trace"] for chunk in chunks if "trace" in chunk.model_extra]
    tokens = [token for one in rounds for token in one["tokens"]]
    assert [token["id"] for token in tokens] == ids_of(plain.choices[0])
    assert {token["origin"] for token in tokens} <= {"target", "accepted", "correction", "bonus"}
    for one in rounds:
        accepted = sum(node["accepted"] for node in one["tree"])
        from_draft = sum(token["origin"] == "accepted" for token in one["tokens"])
        assert from_draft <= accepted or not one["tree"]
        for index, node in enumerate(one["tree"]):
            assert -1 <= node["parent"] < index and 0 <= node["probability"] <= 1
    figures = chunks[-1].model_extra["aerie"]
    assert figures["rounds"] > 0 and figures["drafted"] >= figures["accepted"]
    assert figures["accepted_length"] >= 1 and figures["prompt_ms"] >= 0


# ---- Errors ----


@pytest.mark.parametrize("settings", [
    {"temperature": -1}, {"temperature": 2.5}, {"top_p": 0}, {"top_p": 1.5}, {"n": 0}, {"n": 1000},
    {"max_tokens": -1}, {"frequency_penalty": 3}, {"presence_penalty": -3}, {"top_logprobs": 3},
    {"logprobs": True, "top_logprobs": 1000}, {"logit_bias": {"x": 1}},
    {"logit_bias": {"99999999": 1}}, {"seed": "x"}, {"stop": ["a" * 70000]}, {"stream": "yes"},
    {"stream_options": {"include_usage": True}}, {"extra_body": {"top_k": "x"}},
    {"extra_body": {"speculation": 5}}, {"extra_body": {"structured_outputs": {"choice": []}}},
], ids=lambda settings: str(settings)[:60])
def test_refuses(client, model, settings):
    with pytest.raises(openai.BadRequestError) as refused:
        ask(client, model, **settings)
    error = refused.value
    assert error.message and error.body["message"] and error.body["type"] == "invalid_request_error"


@pytest.mark.parametrize("messages", [
    [], [{"role": "nobody", "content": "x"}], [{"role": "user"}], [{"content": "x"}], "text", None,
    [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}],
], ids=str)
def test_refuses_messages(client, model, messages):
    with pytest.raises(openai.BadRequestError):
        ask(client, model, messages=messages)


def test_refuses_what_is_too_long(client, model):
    with pytest.raises(openai.BadRequestError, match="context|token"):
        complete(client, model, prompt="word " * 20000)


def test_unknown_models_and_paths(client, model):
    with pytest.raises(openai.NotFoundError):
        ask(client, "no-such-model")
    with pytest.raises(openai.NotFoundError):
        client.post("/no/such/path", cast_to=object, body={})


def test_api_key(start):
    server = start("--api-key", "a-secret")
    for key in ("wrong", "a-secret2", "a-secre"):
        with pytest.raises(openai.AuthenticationError):
            server.client(api_key=key).models.list()
    client = server.client(api_key="a-secret")
    assert ask(client, client.models.list().data[0].id).choices
