"""Everything at once, for as long as --soak-seconds says: two models, chat, tools, schemas, streams, other APIs, clients
that go away or are wrong, heads on trial. Nothing is lost or mixed, and what the server holds does not grow."""

import asyncio
import collections
import json
import pathlib
import random
import subprocess
import threading
import time

import pytest

import serving
from conftest import wait_for
from test_crowd import ask, events, ids_of

HEADS = pathlib.Path(__file__).resolve().parents[3] / "models/heads"
HEAD = f"eagle3:model={HEADS}/SmolLM2-135M-Instruct-EAGLE3"
KEY = "an order"
CLIENTS = 64
LONG = 600  # seconds, after which nothing is left that still fills
LATE = 120  # seconds that orders may still take where clients have all of the machine
MIB = 1 << 20
FULL = 1600 * MIB  # more than this server comes to hold
SETTINGS = ["ngram", f"auto,{HEAD}", f"{HEAD},num_speculative_tokens=3", "suffix", "recycling"]

SCHEMA = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 8}, "age": {"type": "integer"}},
          "required": ["name", "age"], "additionalProperties": False}
TOOL = {"name": "weather", "description": "The weather of a place",
        "parameters": {"type": "object", "properties": {"place": {"type": "string", "maxLength": 12}},
                       "required": ["place"], "additionalProperties": False}}


# ChatML with a place for tools, in the form of Hermes.
TEMPLATE = """{%- if tools %}{{- '<|im_start|>system\\nYou may call functions:\\n<tools>' }}
{%- for tool in tools %}{{- '\\n' + (tool | tojson) }}{%- endfor %}
{{- '\\n</tools>\\nGive each call as <tool_call>\\n{"name": NAME, "arguments": ARGUMENTS}\\n</tool_call><|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"""


@pytest.fixture(scope="module")
def soaked(program, model_file, tmp_path_factory):
    folder = tmp_path_factory.mktemp("soak")
    (folder / "key").write_text(KEY + "\n")
    small = folder / "small.gguf"
    subprocess.run([program, "convert", model_file, small, "--type", "q4_0", "--requantize"], check=True, timeout=120)
    template = folder / "template.jinja"
    template.write_text(TEMPLATE)
    models = folder / "models.json"
    models.write_text(json.dumps({
        "large": {"model": model_file, "speculate": f"auto,{HEAD}", "max-num-seqs": 32, "cache-tokens": 16384,
                  "chat-template": str(template)},
        "small": {"model": str(small), "speculate": "auto", "max-num-seqs": 32, "cache-tokens": 8192,
                  "chat-template": str(template), "pooling": "mean"}}))
    server = serving.Server(program, None, "--models", str(models), "--admin-key-file", str(folder / "key"),
                            "--holdback", "0.1", "--no-log-requests")
    server.key_file = str(folder / "key")
    server.program = program
    yield server
    if server.process.poll() is None:
        server.stop()


class Soak:
    def __init__(self, server, sampled):
        self.server = server
        self.sampled = sampled  # the share of texts that are asked for again
        self.counts = collections.Counter()
        self.wrong = []
        self.samples = []
        self.steps = collections.Counter()

    async def get(self, body, path="/v1/completions", **how):
        status, answer = await ask(self.server, body, path, **how)
        assert status == 200, f"{status}: {answer[:300].decode()}"
        return answer

    def texts(self, number, model):
        """A request for a text, whose ids are those of a lone run."""
        return {"model": model, "prompt": f"Story number {number}: once upon a time", "max_tokens": 6 + number % 27,
                "temperature": 0.9 if number % 2 else 0, "seed": number, "return_token_ids": True, "ignore_eos": True}

    def chat(self, number, model, **more):
        return {"model": model, "messages": [{"role": "user", "content": f"Say what {number} is."}], "max_tokens": 40,
                "temperature": 0.7, "seed": number, **more}

    def sample(self, draw, body, ids):
        if draw.random() < self.sampled:
            self.samples.append((body, ids))

    async def whole(self, number, model, draw):
        body = self.texts(number, model)
        ids = json.loads(await self.get(body))["choices"][0]["token_ids"]
        self.sample(draw, body, ids)
        return len(ids) == body["max_tokens"]

    async def stream(self, number, model, draw):
        body = self.texts(number, model)
        ids = ids_of(await self.get({**body, "stream": True}, pause=0.02 if number % 3 == 0 else 0.0))
        self.sample(draw, body, ids)
        return len(ids) == body["max_tokens"]

    async def several(self, number, model, _):
        answer = await self.get({**self.texts(number, model), "n": 3})
        return len(json.loads(answer)["choices"]) == 3

    async def talk(self, number, model, _):
        answer = await self.get(self.chat(number, model), "/v1/chat/completions")
        return json.loads(answer)["choices"][0]["finish_reason"] in ("stop", "length")

    async def schema(self, number, model, _):
        form = {"type": "json_schema", "json_schema": {"name": "person", "schema": SCHEMA}}
        answer = await self.get(self.chat(number, model, response_format=form, max_tokens=80),
                                   "/v1/chat/completions")
        choice = json.loads(answer)["choices"][0]
        return (choice["finish_reason"] == "length" or "age" in json.loads(choice["message"]["content"]))

    async def tool(self, number, model, _):
        body = self.chat(number, model, tools=[{"type": "function", "function": TOOL}], tool_choice="required",
                         max_tokens=80)
        answer = await self.get(body, "/v1/chat/completions")
        choice = json.loads(answer)["choices"][0]
        if choice["finish_reason"] == "length":
            return True
        return "place" in json.loads(choice["message"]["tool_calls"][0]["function"]["arguments"])

    async def streamed_tool(self, number, model, _):
        body = self.chat(number, model, tools=[{"type": "function", "function": TOOL}], tool_choice="required",
                         max_tokens=80, stream=True)
        answer = await self.get(body, "/v1/chat/completions")
        return events(answer)[-1]["choices"][0]["finish_reason"] in ("tool_calls", "length")

    async def responses(self, number, model, _):
        answer = await self.get({"model": model, "input": f"Say {number}.", "max_output_tokens": 20,
                                                 "store": False}, "/v1/responses")
        return json.loads(answer)["status"] in ("completed", "incomplete")

    async def messages(self, number, model, _):
        answer = await self.get({"model": model, "max_tokens": 20, "messages": [
            {"role": "user", "content": f"Say {number}."}]}, "/v1/messages")
        return json.loads(answer)["stop_reason"] in ("end_turn", "max_tokens")

    async def embeddings(self, number, _model, _draw):
        answer = await self.get({"model": "small", "input": [f"The number {number}", "one"]},
                                   "/v1/embeddings")
        return len(json.loads(answer)["data"]) == 2

    async def gone(self, number, model, _):
        await ask(self.server, {**self.texts(number, model), "stream": True, "max_tokens": 400},
                  cut_after=number % 4000)
        return True

    async def wrong_value(self, number, model, _):
        status, _ = await ask(self.server, {**self.texts(number, model), "temperature": "hot"})
        return status == 400

    async def wrong_model(self, number, _model, _draw):
        status, _ = await ask(self.server, self.texts(number, "medium"))
        return status == 404

    async def tokens(self, number, model, _):
        await self.get({"model": model, "prompt": "x" * (number % 999)}, "/tokenize")
        return True

    KINDS = [whole, whole, stream, stream, several, talk, schema, tool, streamed_tool, responses, messages, embeddings,
             gone, wrong_value, wrong_model, tokens]

    async def client(self, index, end):
        draw = random.Random(index)
        while time.monotonic() < end:
            kind = draw.choice(self.KINDS)
            number, model = draw.randrange(1 << 20), draw.choice(["large", "large", "small"])
            try:
                good = await kind(self, number, model, draw)
            except Exception as error:  # pylint: disable=broad-except
                good = False
                self.wrong.append(f"{kind.__name__} {number} {model}: {error!r}")
            else:
                if not good:
                    self.wrong.append(f"{kind.__name__} {number} {model}")
            self.counts[kind.__name__] += 1

    def ctl(self, *words):
        model = [] if words[0] == "status" else ["--model", "large"]
        done = subprocess.run([self.server.program, "ctl", *words, *model, "--url", self.server.url, "--key-file",
                               self.server.key_file, "--json"], capture_output=True, text=True, timeout=100, check=False)
        self.steps[f"{words[0]} {'done' if done.returncode == 0 else 'refused'}"] += 1
        return done

    def has_tried(self):
        return self.steps["canary done"] > 0 and self.steps["shadow done"] + self.steps["promote done"] > 0

    def try_heads(self, end, pause):
        """Steps of trials, of which some come at the wrong time and are refused; until some were carried out."""
        draw = random.Random(7)
        while time.monotonic() < end or (not self.has_tried() and time.monotonic() < end + LATE):
            order = draw.choice(["canary", "canary", "promote", "rollback", "shadow", "shadow-end", "status"])
            words = [order]
            if order == "canary":
                words += [draw.choice(SETTINGS), "--steps", "0.3,0.6"]
            if order == "shadow":
                words += [draw.choice([HEAD, "ngram"]), "--share", "0.3"]
            self.ctl(*words)
            time.sleep(pause)


def test_soak(soaked, request):
    seconds = request.config.getoption("--soak-seconds")
    soak = Soak(soaked, 0.01 if seconds >= LONG else 0.2)
    sizes = []

    async def watch(end):
        while time.monotonic() < end:
            sizes.append(soaked.resident_bytes())
            await asyncio.sleep(seconds / 40)

    async def run(end):
        await asyncio.gather(watch(end), *(soak.client(index, end) for index in range(CLIENTS)))

    end = time.monotonic() + seconds
    trials = threading.Thread(target=soak.try_heads, args=(end, max(1.0, seconds / 400)))
    trials.start()
    asyncio.run(run(end))
    trials.join()
    page = serving.urlopen(soaked.url + "/metrics")

    def total(name):
        return sum(float(line.rsplit(" ", 1)[1]) for line in page.splitlines() if line.startswith(name + "{"))

    def idle():
        nonlocal page
        page = serving.urlopen(soaked.url + "/metrics")
        return total("vllm:num_requests_running") == total("vllm:num_requests_waiting") == 0

    wait_for(idle, what="the end of all requests")
    asked = sum(soak.counts.values())
    print(f"\n{asked} requests in {seconds:.0f} s: {dict(soak.counts)}\norders: {dict(soak.steps)}")
    assert not soak.wrong, f"{len(soak.wrong)} of {asked} went wrong: {soak.wrong[:10]}"
    assert soak.has_tried()
    assert all(soak.counts[kind.__name__] > 0 for kind in soak.KINDS)
    assert soak.samples
    # Alone, and plainly.
    for body, ids in soak.samples:
        alone = serving.post(soaked.url + "/v1/completions", {**body, "speculation": "none"})
        assert alone["choices"][0]["token_ids"] == ids, body
    # The first half of a long one fills what may be filled, which is 1.2 GiB; in 20 s a slow machine does not get there.
    middle = max(sizes[: len(sizes) // 2 + 1])
    growth = max(sizes[len(sizes) // 2:]) - middle
    print(f"{len(soak.samples)} replies were asked for again; {middle / MIB:.0f} MiB, grown by {growth / MIB:.1f} MiB since "
          "the middle")
    if seconds >= LONG:
        assert growth < 24 * MIB
    assert middle + growth < FULL
    assert soaked.stop() == 0
