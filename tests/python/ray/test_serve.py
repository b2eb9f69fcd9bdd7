"""The application on Ray Serve: what it answers, two replicas, those that are lost, more and fewer, prefixes."""

import json
import os
import pathlib
import re
import subprocess
import threading
import time
import urllib.error
import urllib.request

import pytest
import ray
from ray import serve

from conftest import NIGHTLY, ROOT, Application, kill
from fleet import Load, Outcome, complete, hit_rate, metric, shared_prefixes, wait_for



def post(url, body, headers=None):
    request = urllib.request.Request(url, json.dumps(body).encode(),
                                     {"Content-Type": "application/json", **(headers or {})})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer), answer.headers


@pytest.fixture(scope="module")
def pair(deploy):
    return deploy(min_replicas=2, target_requests=16, flags="--max-num-seqs 2")


def test_what_it_answers(pair, program, model, alone, tmp_path):
    application = pair
    path = tmp_path / "run.json"
    subprocess.run([program, "run", "-m", model, "--json", path, "--raw", "-p", "Once upon", "-n", "24",
                    "--temp", "0.8", "--seed", "11"], check=True, capture_output=True)
    body = {"prompt": "Once upon", "max_tokens": 24, "temperature": 0.8, "seed": 11}
    expected = json.loads(path.read_text())["token_ids"]
    for stream in (False, True):
        outcome = complete(application.url, {**body, "stream": stream}, Outcome(f"as-{stream}"))
        assert outcome.done and outcome.tokens == expected
    # The server's own status, headers and error.
    answer, headers = post(application.url + "/v1/completions", body, {"x-request-id": "mine"})
    assert answer["usage"]["completion_tokens"] == 24 and headers.get_all("x-request-id") == ["mine"]
    with pytest.raises(urllib.error.HTTPError) as refused:
        post(application.url + "/v1/completions", {"prompt": "x", "max_tokens": "many"})
    assert refused.value.code == 400 and "max_tokens" in json.load(refused.value)["error"]["message"]
    assert json.loads(application.get("/v1/models"))["data"][0]["id"] == \
        json.loads(urllib.request.urlopen(alone + "/v1/models").read())["data"][0]["id"]
    assert "<html" in application.get("/")
    # Figures of all replicas; both had something to do.
    load = Load(application.url, 16, "spread", tokens=16)
    assert load.check(alone) == []
    page = application.get("/metrics")
    samples = re.findall(r'^vllm:generation_tokens_total\{replica="(\w+)".*\} (\d+)', page, re.MULTILINE)
    assert len(samples) == 2 and all(int(value) > 0 for _, value in samples), samples
    assert len(re.findall(r"^# TYPE vllm:generation_tokens_total ", page, re.MULTILINE)) == 1


def test_a_client_that_leaves(pair):
    application, ended = pair, "vllm:request_success_total"
    before = metric(application.url, ended)
    for stream in (True, False):
        request = urllib.request.Request(
            application.url + "/v1/completions",
            json.dumps({"prompt": "a", "max_tokens": 100_000, "ignore_eos": True, "stream": stream}).encode(),
            {"Content-Type": "application/json"})
        if stream:
            answer = urllib.request.urlopen(request, timeout=60)
            assert answer.readline().startswith(b"data: ")
            answer.close()
        else:
            with pytest.raises(TimeoutError):
                urllib.request.urlopen(request, timeout=1)
        wait_for(lambda: metric(application.url, "vllm:num_requests_running") == 0, what="the request's end")
    wait_for(lambda: metric(application.url, ended) == before + 2, what="the count of both")


def kill_under_load(application, alone, what, count):
    """The server of a replica, or all of the replica, as when its machine is lost."""
    victim, parent = application.servers()[0]
    load = Load(application.url, 6 * count, f"kill-{what}")
    # Each decodes two at once, the others wait: with more than the others can have, this one has a stream, too.
    wait_for(lambda: load.under_way() > 2 * (count - 1), what="load")
    kill(victim if what == "server" else parent)
    failed = load.check(alone)
    print(f"{count} replicas, a {what} killed: {len(load.outcomes)} requests, {len(failed)} streams cut short")
    assert 1 <= len(failed) <= 2, "those of its streams that it decoded then"
    assert all("replica" in outcome.error for outcome in failed), failed
    # Another takes its place; of the lost one nothing is left.
    application.settle(count)
    assert victim not in [server for server, _ in application.servers()]
    assert Load(application.url, 8, f"after-{what}", tokens=8).check(alone) == []


@pytest.mark.parametrize("what", ["server", "replica"])
def test_kill_under_load(pair, alone, what):
    kill_under_load(pair, alone, what, 2)


if NIGHTLY:
    def test_kill_of_one_of_four(deploy, alone):
        application = deploy(min_replicas=4, target_requests=16, flags="--max-num-seqs 2")
        kill_under_load(application, alone, "replica", 4)


def test_more_and_fewer(deploy):
    """Replicas come with load and go without, and no request notices."""
    application = deploy(max_replicas=2, target_requests=2, upscale_seconds=1, downscale_seconds=2,
                         flags="--max-num-seqs 2")
    trickle, ending = [], threading.Event()

    def ask():
        while not ending.is_set():
            trickle.append(complete(application.url, {"prompt": "tick", "max_tokens": 4, "stream": True},
                                    Outcome(f"tick-{len(trickle)}")))
            time.sleep(0.2)

    asking = threading.Thread(target=ask)
    asking.start()
    try:
        loads = [Load(application.url, 12, "up")]
        while application.running() < 2:
            assert len(loads) < 40, "no other replica came"
            if all(outcome.done or outcome.error for outcome in loads[-1].outcomes):
                loads.append(Load(application.url, 12, f"up-{len(loads)}"))
            time.sleep(0.1)
        outcomes = [outcome for load in loads for outcome in load.join()]
        application.settle(1)
    finally:
        ending.set()
        asking.join()
    outcomes += trickle
    assert len(trickle) > 5 and all(outcome.done for outcome in outcomes), [one for one in outcomes if not one.done]
    print(f"1 to 2 replicas and back: {len(outcomes)} requests, no error")


@pytest.mark.parametrize("count, groups", [(2, 18), (4, 24)] if NIGHTLY else [(2, 18)])
def test_prefix_hits(deploy, count, groups):
    """Caches that hold some of the beginnings each, and all of them together."""
    rates = {}
    for routing in ("load", "prefix"):
        application = deploy(min_replicas=count, target_requests=16, routing=routing, fast=True,
                             flags="--max-num-seqs 4")
        rates[routing] = hit_rate(application.url, [application.url], shared_prefixes(routing, groups, each=8))
    ratio = rates["prefix"] / rates["load"]
    print(f"{count} replicas: prefix hits {rates['load']:.3f} by load, {rates['prefix']:.3f} by prefix: "
          f"{ratio:.2f} times")
    assert ratio >= 1.5


def test_the_command_and_the_file(cluster, model, alone, tmp_path):
    """`serve run` with deploy/ray-serve.yaml, but for the model and the address."""
    text = (ROOT / "deploy/ray-serve.yaml").read_text()
    for ours, theirs in {"model: /models/model.gguf": f"model: {model}", "threads: 8": "threads: 1",
                         "name: aerie": "name: second", "route_prefix: /": "route_prefix: /second"}.items():
        assert text.count(ours) == 1, ours
        text = text.replace(ours, theirs)
    path = tmp_path / "serve.yaml"
    path.write_text(text)
    program = pathlib.Path(subprocess.sys.executable).with_name("serve")
    process = subprocess.Popen([program, "run", "--non-blocking", path], stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, text=True,
                               env={**os.environ, "RAY_ADDRESS": ray.get_runtime_context().gcs_address})
    try:
        assert process.wait(120) == 0, process.stdout.read()
        application = Application(cluster + "/second", model, "second")
        # Until the proxy knows the path, another application has it.
        body = {"prompt": "x", "max_tokens": 1}
        wait_for(lambda: complete(application.url, body, Outcome("first")).done, what="the path")
        outcome = complete(application.url, {"prompt": "x", "seed": 1, "max_tokens": 8}, Outcome("second"))
        assert outcome.done, outcome
        assert outcome.tokens == complete(alone, {"prompt": "x", "seed": 1, "max_tokens": 8}, Outcome("alone")).tokens
        assert json.loads(application.get("/v1/models"))["data"]
    finally:
        process.kill()
        serve.delete("second")
