"""Servers on other machines, as far as their networks go: a namespace each, and a cable that can be cut."""

import shlex

import pytest

from conftest import NIGHTLY
from fleet import Load, metric, wait_for
from namespaces import IP, Network
from serving import Server


@pytest.fixture
def network():
    with Network() as made:
        yield made


class RemoteServer(Server):
    """`aerie serve` in a namespace."""

    def __init__(self, place, program, model, folder, *flags):
        name, self.address = place
        starter = folder / f"aerie-{name}"
        starter.write_text(f'#!/bin/sh\nexec {IP} netns exec {name} {shlex.quote(str(program))} "$@"\n')
        starter.chmod(0o755)
        super().__init__(starter, model, "--threads", "1", "--cache-tokens", "8192", "--host", self.address, *flags)


# By day test_vllm_router.py kills one.
@pytest.mark.parametrize("what", ["killed", "cut off"] if NIGHTLY else ["cut off"])
def test_a_machine_is_lost(network, route, program, models, alone, tmp_path, what):
    places = [network.add(), network.add()]
    servers = [RemoteServer(place, program, models[0], tmp_path, "--max-num-seqs", "2") for place in places]
    try:
        router = route(servers, "--request-timeout-secs", "6")
        load = Load(router.url, 12, what)
        wait_for(lambda: metric(servers[0].url, "vllm:num_requests_running") == 2 and
                 metric(servers[0].url, "vllm:num_requests_waiting") > 0, what="load")
        if what == "killed":
            servers[0].process.kill()
        else:
            network.cut(places[0][0])
        failed = load.check(alone)
        print(f"a machine {what}: {len(load.outcomes)} requests, {len(failed)} streams ended with an error")
        assert len(failed) <= 2
        wait_for(lambda: router.healthy() == {servers[1].url}, what="the loss in the router's list")
        assert Load(router.url, 8, "after", tokens=8).check(alone) == []
    finally:
        for server in servers:
            server.process.kill()
            server.process.wait()
