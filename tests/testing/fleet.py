"""Load on several servers behind one address, and what came of it: for the tests of routers and of Ray.

The standard library is all it needs.
"""

import concurrent.futures
import dataclasses
import http.client
import json
import random
import socket
import subprocess
import threading
import time
import urllib.parse
import urllib.request


@dataclasses.dataclass
class Outcome:
    """What a client saw of one request."""

    name: str  # its x-request-id
    status: int = 0  # 0: no answer came
    tokens: list = dataclasses.field(default_factory=list)
    done: bool = False  # it was answered to its end
    error: str = ""  # how it ended otherwise

    @property
    def began(self):
        return bool(self.tokens)


def _read_stream(answer, outcome):
    for line in answer:
        if not line.startswith(b"data: "):
            continue
        if line.startswith(b"data: [DONE]"):
            outcome.done = True
            return
        event = json.loads(line[len(b"data: "):])
        if "error" in event:
            outcome.error = event["error"]["message"]
            return
        for choice in event["choices"]:
            outcome.tokens += choice.get("token_ids") or []
    outcome.error = "the connection ended in the middle of the stream"


def _read_answer(answer, outcome):
    outcome.status = answer.status
    if answer.status != 200:
        outcome.error = f"status {answer.status}: {answer.read(500).decode(errors='replace')}"
    elif answer.headers["content-type"].startswith("text/event-stream"):
        _read_stream(answer, outcome)
    else:
        outcome.tokens = json.loads(answer.read())["choices"][0]["token_ids"]
        outcome.done = True


def complete(url, body, outcome, path="/v1/completions"):
    """Asks for a completion and its ids, and fills in `outcome` as it comes."""
    place = urllib.parse.urlsplit(url)
    connection = http.client.HTTPConnection(place.hostname, place.port, timeout=300)
    try:
        connection.request("POST", place.path + path, json.dumps({"return_token_ids": True, **body}),
                           {"Content-Type": "application/json", "x-request-id": outcome.name})
        _read_answer(connection.getresponse(), outcome)
    except (OSError, http.client.HTTPException, ValueError) as error:
        outcome.error = outcome.error or f"{type(error).__name__}: {error}"
    finally:
        connection.close()
    return outcome


class Load:
    """Requests under way, each from a thread of its own. The first half are streams.

    Of another name they are new to a router that goes by how a prompt begins.
    """

    def __init__(self, url, count, name, tokens=160):
        self.bodies = [{"prompt": f"{i} of {name} is the number of this request.", "seed": i, "max_tokens": tokens,
                        "ignore_eos": True, "stream": i < count // 2} for i in range(count)]
        self.outcomes = [Outcome(f"{name}-{i}") for i in range(count)]
        self._threads = [threading.Thread(target=complete, args=(url, body, outcome))
                         for body, outcome in zip(self.bodies, self.outcomes)]
        for thread in self._threads:
            thread.start()

    def begun(self):
        """Of how many streams there are tokens."""
        return sum(outcome.began for outcome in self.outcomes)

    def under_way(self):
        """Of how many streams there are tokens, and more to come."""
        return sum(outcome.began and not (outcome.done or outcome.error) for outcome in self.outcomes)

    def join(self):
        for thread in self._threads:
            thread.join()
        return self.outcomes

    def check(self, url):
        """Holds every outcome to what one server says alone; the outcomes that ended in an error.

        A request is answered whole, or is a stream that had tokens, right ones, before it ended with an error.
        """
        failed = []
        outcomes = self.join()

        def ask_alone(body, outcome):
            return complete(url, {**body, "stream": False}, Outcome(outcome.name + "-alone"))

        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            all_alone = list(pool.map(ask_alone, self.bodies, outcomes))
        for body, outcome, alone in zip(self.bodies, outcomes, all_alone):
            assert alone.done, alone
            if outcome.done:
                assert outcome.status == 200 and outcome.tokens == alone.tokens, (outcome, alone)
                continue
            assert outcome.error, f"lost silently: {outcome}"
            assert body["stream"], f"nothing had been said of it, it could be answered elsewhere: {outcome}"
            assert outcome.began, f"it had no token yet, and was not answered elsewhere: {outcome}"
            assert outcome.tokens == alone.tokens[:len(outcome.tokens)], (outcome, alone)
            failed.append(outcome)
        return failed


def free_port():
    """One for a program that is slow to start: below those that the system gives whoever asks for any."""
    while True:
        port = random.randrange(20000, 32768)
        with socket.socket() as one:
            try:
                one.bind(("127.0.0.1", port))
                return port
            except OSError:
                continue  # somebody has it


def make_models(program, folder):
    """Of random weights, with bytes for tokens: one that writes some hundred in a second, one that takes no time."""
    slow, fast = folder / "slow.gguf", folder / "fast.gguf"
    for path, shape in ((slow, ["smollm2-135m", "--layers", "6"]), (fast, ["tiny"])):
        subprocess.run([program, "bench", "make-model", path, "--type", "q8_0", "--quiet", "--shape", *shape],
                       check=True, stdout=subprocess.DEVNULL)
    return str(slow), str(fast)


def metric(url, name):
    """The sum of a counter of a server over its labels."""
    with urllib.request.urlopen(url + "/metrics", timeout=60) as answer:
        page = answer.read().decode()
    return sum(float(line.rsplit(" ", 1)[1]) for line in page.splitlines() if line.startswith((name + "{", name + " ")))


def prefix_hits(urls):
    """Prompt tokens that were looked up in the prefix caches of all servers, and those found."""
    return tuple(sum(metric(url, f"vllm:prefix_cache_{what}_total") for url in urls) for what in ("queries", "hits"))


def shared_prefixes(name, groups, each, letters=700):
    """Prompts in a drawn order: `each` of every group begin alike. With another name they are others."""
    draw = random.Random(name)
    words = [f"{draw.choice('bcdfglmnprst')}{draw.choice('aeiou')}{draw.choice('lmnrst')}" for _ in range(200)]
    starts = []
    for group in range(groups):
        text = f"{name} {group}:"
        while len(text) < letters:
            text += " " + draw.choice(words)
        starts.append(text)
    prompts = [f"{start} Question {i}: {draw.choice(words)}?" for start in starts for i in range(each)]
    draw.shuffle(prompts)
    return prompts


def hit_rate(url, servers, prompts, clients=4):
    """Sends the prompts, and says which part of their tokens was in the caches of the servers at these addresses."""
    queries, hits = prefix_hits(servers)
    with concurrent.futures.ThreadPoolExecutor(clients) as pool:
        outcomes = list(pool.map(
            lambda prompt: complete(url, {"prompt": prompt, "max_tokens": 1}, Outcome(prompt[-20:])), prompts))
    assert all(outcome.done for outcome in outcomes), [one for one in outcomes if not one.done][:3]
    now = prefix_hits(servers)
    return (now[1] - hits) / (now[0] - queries)


def wait_for(condition, seconds=180, what="it"):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return
        time.sleep(0.05)
    raise AssertionError(f"{what} did not happen within {seconds} s")
