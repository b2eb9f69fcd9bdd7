"""Every field of the API with values that it is not meant to have, and those that could be large."""

import json

from wire import malformed

ROUTES = {"/v1/chat/completions": ("ChatRequest", {"messages": [{"role": "user", "content": "x"}], "max_tokens": 1}),
          "/v1/completions": ("CompletionRequest", {"prompt": "x", "max_tokens": 1}),
          "/v1/embeddings": ("EmbeddingsRequest", {"input": "x"}),
          "/v1/responses": ("ResponsesRequest", {"input": "x", "max_output_tokens": 1})}
VALUES = [None, True, 0, -1, 7, 1.5, 1e300, 2 ** 31, -2 ** 63, 10 ** 30, "", "x", "\u0000", "a" * 70000, [], [[]], [None], ["x"],
          [1, "x"], [[[[]]]], {}, {"x": 1}, {"type": "json_object"}, {"type": 5}, {"": {"": {}}}, {"1": 1e300}, {"-1": 1}]
# What asks for a reply without end is left after this.
LEAVE_SECONDS = 0.5


def description(target):
    """The properties of each request, as the server tells them."""
    status, text = target.get("/openapi.json")
    if status != 200:
        raise RuntimeError(f"/openapi.json: status {status}")
    schemas = json.loads(text)["components"]["schemas"]
    return {path: schemas[name]["properties"] for path, (name, _) in ROUTES.items()}


def wrong_values(target, step=1):
    """(what it is, route, body, settings of ask()) of every field with every value; of them every step-th."""
    made = []
    for path, properties in description(target).items():
        for field in properties:
            for number, value in enumerate(VALUES):
                body = {**ROUTES[path][1], field: value}
                how = {"leave": LEAVE_SECONDS} if field.startswith("max_") and isinstance(value, (int, float)) else {}
                made.append((f"{path} {field} = value {number}", path, body, how))
    return made[::step]


def bodies():
    """Whole bodies that are refused with 400."""
    return [(f"{body[:40]!r}", "/v1/completions", body, {"wanted": 400}) for body in malformed()]


def large(most_mib=16):
    """What is large. `most_mib`: of a body, beyond which it may be refused before it has been read."""
    def case(name, more, path="/v1/completions", **how):
        return name, path, {**ROUTES[path][1], **more}, how

    chat = "/v1/chat/completions"
    tokens = 2000
    deep = {}
    for _ in range(60):
        deep = {"x": deep, "y": [deep] if len(json.dumps(deep)) < 500 else 1}
    yield case("prompt of a megabyte", {"prompt": "word " * 200000})
    yield case("prompt of 8 MB without a space", {"prompt": "a" * 8000000})
    yield case("prompt of other letters", {"prompt": "\u6f22\U0001f600\u0301" * 200000})
    yield case("prompt of control names", {"prompt": "<|im_start|>" * 200000})
    yield case("prompt of ids", {"prompt": [1] * 1000000})
    yield case("100 prompts", {"prompt": ["x " * i for i in range(100)], "n": 1})
    yield case("128 choices", {"n": 128, "max_tokens": 2})
    yield case("choices and best_of", {"n": 2, "best_of": 100, "max_tokens": 2})
    yield case("32 long stops", {"stop": ["s" * 30000 + str(i) for i in range(32)], "max_tokens": 8})
    yield case("as many stops as may be", {"stop": [f"s{i:05d}" for i in range(10000)], "max_tokens": 8})
    yield case("all biases", {"logit_bias": {str(i): (i % 200) - 100 for i in range(49000)}, "max_tokens": 4})
    yield case("more biases than tokens", {"logit_bias": {str(i): 1 for i in range(400000)}})
    yield case("everything forbidden", {"logit_bias": {str(i): -100 for i in range(49152)}, "max_tokens": 4})
    yield case("all penalties", {"prompt": "x " * tokens, "frequency_penalty": 2, "presence_penalty": 2,
                                 "repetition_penalty": 100, "max_tokens": 4})
    yield case("log-probabilities", {"logprobs": 20, "max_tokens": 60, "ignore_eos": True})
    yield case("a megabyte of prediction", {"prediction": {"type": "content", "content": "word " * 200000}, "max_tokens": 8})
    yield case("a megabyte of user", {"user": "u" * 1000000})
    yield case("a schema in a text", {"guided_json": json.dumps({"enum": ["x" * 1000] * 900})})
    yield case("20,000 messages", {"messages": [{"role": "user", "content": "x"}] * 20000}, chat)
    yield case("parts of a message", {"messages": [{"role": "user", "content": [{"type": "text", "text": "x"}] * 50000}]}, chat)
    yield case("deep variables", {"chat_template_kwargs": deep}, chat)
    yield case("many variables", {"chat_template_kwargs": {f"v{i}": [i] * 10 for i in range(20000)}}, chat)
    yield case("many tools", {"tools": [{"type": "function", "function": {"name": f"f{i}", "parameters": {
        "type": "object", "properties": {"x": {"type": "string", "maxLength": 300}}}}} for i in range(500)],
        "tool_choice": "required"}, chat)
    yield case("a reply without end", {"max_tokens": 10 ** 9, "ignore_eos": True}, leave=LEAVE_SECONDS)
    yield case("32 replies without end", {"max_tokens": 10 ** 9, "ignore_eos": True, "n": 32, "stream": True}, leave=LEAVE_SECONDS)
    yield case("a schema of a megabyte", {"structured_outputs": {"json": {"enum": [f"{i:01000}" for i in range(1000)]}}})
    for name, piece in (("arrays", b"[],"), ("numbers", b"1,"), ("texts", b'"",'), ("objects", b'{"":{}},')):
        body = b'{"prompt":"x","max_tokens":1,"x":[' + piece * ((most_mib - 1 << 20) // len(piece)) + b"1]}"
        yield f"millions of {name}", "/v1/completions", body, {"at_once": 4}
    yield "more than a body may have", "/v1/completions", b" " * ((most_mib + 4) << 20), {"may_hang_up": True}
