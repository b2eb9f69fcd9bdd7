"""vllm-router in front of two and four servers: what it asks of them, fail-over, drain, prefixes."""

import itertools
import json
import re
import signal
import subprocess
import sys
import urllib.request

import pytest

from conftest import NIGHTLY, ROOT
from fleet import Load, Outcome, complete, free_port, hit_rate, metric, shared_prefixes, wait_for


def post(url, path, body):
    request = urllib.request.Request(url + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


def running(server):
    return metric(server.url, "vllm:num_requests_running")


def waiting(server):
    return metric(server.url, "vllm:num_requests_waiting")


def test_what_it_asks(serve, route):
    """All of the API goes through, with fields that are Aerie's own, and it gets what it asks for by itself."""
    servers = [serve(fast=True), serve(fast=True)]
    router = route(servers)
    body = {"prompt": "Once upon a time", "seed": 7, "max_tokens": 24, "return_token_ids": True, "speculation": "off"}
    for more in ({}, {"speculation": "ngram"}, {"temperature": 0}):
        through, straight = (post(url, "/v1/completions", {**body, **more})
                             for url in (router.url, servers[0].url))
        assert through["choices"] == straight["choices"]
    streamed = complete(router.url, {**body, "stream": True}, Outcome("streamed"))
    assert streamed.done and streamed.tokens == post(servers[0].url, "/v1/completions", body)["choices"][0]["token_ids"]
    # What it does not know itself it hands on.
    assert post(router.url, "/tokenize", {"prompt": "a b"})["count"] > 0
    assert post(router.url, "/completion", {"prompt": "a b", "n_predict": 2})["tokens_predicted"] == 2
    assert json.loads(router.get("/v1/models"))["data"][0]["max_model_len"] > 0
    # It had the ids of prompts rendered, and needed no other way to them.
    page = router.metrics()
    assert 'kv_routing_inputs_total{transport="http",result="render"}' in page
    assert "invalid_token_ids" not in page
    # How busy they are. A request is let go a moment after its answer.
    wait_for(lambda: {one["worker"]: one["load"] for one in json.loads(router.get("/get_loads"))["workers"]} ==
             {server.url: 0 for server in servers}, what="that nothing is under way")


@pytest.mark.parametrize("count", [2, 4] if NIGHTLY else [4])
def test_kill_under_load(serve, route, alone, tmp_path, count):
    audits = [tmp_path / f"audit-{i}" for i in range(count)]
    # At ports that nobody is given while one of them is away.
    servers = [serve("--max-num-seqs", "2", "--audit-log", str(audit), "--port", str(free_port())) for audit in audits]
    router = route(servers)
    assert router.healthy() == {server.url for server in servers}
    victim, others = servers[0], servers[1:]
    load = Load(router.url, 6 * count, f"kill-{count}")
    wait_for(lambda: running(victim) == 2 and waiting(victim) > 0 and
             load.begun() >= 2 * count, what="load on the victim")
    victim.process.kill()
    failed = load.check(alone)
    print(f"{count} servers, one killed: {len(load.outcomes)} requests, {len(failed)} streams ended with an error")
    # Of a stream that had not begun the router asks another server.
    assert len(failed) <= 2, "no more than those of its streams that it decoded then"
    # None was answered twice: not even by a server whose answer nobody had.
    lines = [json.loads(line) for audit in audits for line in audit.read_text().splitlines()[:-1]]
    sent = [line["request_id"] for line in lines
            if line.get("answer") == "sent" and line.get("route") == "/v1/completions"]
    assert all(sent.count(outcome.name) <= 1 for outcome in load.outcomes)

    # The router has noticed, and tells.
    wait_for(lambda: router.healthy() == {server.url for server in others}, what="the loss in the router's list")
    assert f'vllm_router_worker_health{{worker="{victim.url}"}} 0' in router.metrics()
    assert re.search(r"vllm_router_retries_total\{[^}]*\} [1-9]", router.metrics())
    assert not Load(router.url, 8, f"after-{count}", tokens=8).check(alone)
    # It comes back by itself once there is one at that address again.
    again = serve("--port", str(victim.port))
    wait_for(lambda: router.healthy() == {server.url for server in [*others, again]}, what="its return")
    before = metric(again.url, "vllm:generation_tokens_total")
    # Prompts that are new each time: those that it knows go where they went.
    tries = itertools.count()
    wait_for(lambda: not Load(router.url, 4 * count, f"back-{next(tries)}", tokens=8).check(alone) and
             metric(again.url, "vllm:generation_tokens_total") > before, what="load on it")
    print(f"it was asked again in {next(tries)} loads")


def test_drain_under_load(serve, route, alone):
    """A server that is told to end loses nothing: what it has it answers, the rest others do."""
    servers = [serve("--max-num-seqs", "2"), serve("--max-num-seqs", "2")]
    router = route(servers)
    load = Load(router.url, 16, "drain")
    wait_for(lambda: running(servers[0]) == 2, what="load")
    servers[0].process.send_signal(signal.SIGTERM)
    assert load.check(alone) == []
    assert not Load(router.url, 8, "after", tokens=8).check(alone)
    assert servers[0].process.wait(60) == 0


def simulated_hits(folder, prompts, replicas, policy):
    """What bench/fleet makes of the same requests. What a pass costs changes little of it."""
    passes, trace, figures = folder / "passes.json", folder / "trace.jsonl", folder / "figures.json"
    passes.write_text(json.dumps({"aerie_profile": 1, "pass_cost": [
        {"rows": rows, "seconds": seconds, "seconds_per_position": 0} for rows, seconds in ((1, 1e-4), (256, 3e-3))]}))
    # A token is a byte, behind the first of all texts.
    requests = [{"timestamp": i, "output_length": 1, "prompt_ids": [1, *prompt.encode()]}
                for i, prompt in enumerate(prompts)]
    trace.write_text("".join(json.dumps(request) + "\n" for request in requests))
    subprocess.run([sys.executable, ROOT / "bench/fleet", "--passes", passes, "--trace", trace, "--clients", "4",
                    "--replicas", str(replicas), "--policy", policy, "--cache-tokens", "8192", "--max-num-seqs", "4",
                    "--warm-up", "0", "--json", figures], check=True, stdout=subprocess.DEVNULL)
    (row,) = json.loads(figures.read_text())["runs"]
    return row["prefix_hit_rate"]


@pytest.mark.parametrize("count, groups", [(2, 18), (4, 24)] if NIGHTLY else [(2, 18)])
def test_prefix_hits(serve, route, tmp_path, count, groups):
    """Caches that hold some of the beginnings each, and all of them together; the simulated fleet's are like them."""
    servers = [serve("--max-num-seqs", "4", fast=True) for _ in range(count)]
    rates, simulated = {}, {}
    for policy in ("random", "cache_aware"):
        router = route(servers, "--policy", policy)
        prompts = shared_prefixes(policy, groups, each=8)
        rates[policy] = hit_rate(router.url, [server.url for server in servers], prompts)
        simulated[policy] = simulated_hits(tmp_path, prompts, count, policy.replace("_", "-"))
    ratio = rates["cache_aware"] / rates["random"]
    print(f"{count} servers: prefix hits {rates['random']:.3f} by chance, {rates['cache_aware']:.3f} by prefix: "
          f"{ratio:.2f} times; simulated {simulated['random']:.3f} and {simulated['cache_aware']:.3f}")
    assert ratio >= 1.5
    assert simulated == pytest.approx(rates, abs=0.2)
