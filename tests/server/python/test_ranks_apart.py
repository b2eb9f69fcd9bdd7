"""Two ranks on machines of their own, as far as their network goes: a slow link, and one that is cut."""

import json
import os
import re
import subprocess
import sys
import time

import pytest

from conftest import NIGHTLY, wait_for
from namespaces import SlowLink, at_once
from ranked import NAMED_WITHIN, PROMPT, Service, missing, run


@pytest.fixture
def link(program, tmp_path):
    """link(DELAY_US, GBITS): a link of two machines; it ends with the test."""
    if missing(program):
        pytest.skip(missing(program))
    links = []

    def one(delay_us, gbits):
        links.append(SlowLink(os.path.join(os.path.dirname(program), "slow_link"), delay_us, gbits))
        return links[-1]

    yield one
    for each in links:
        each.remove()


@pytest.mark.parametrize("delay_us, gbits", [(200, 1), (1000, 4)])
def test_a_link_is_as_slow_as_it_is_told(link, delay_us, gbits):
    there_and_back, rate = link(delay_us, gbits).measure()
    # Two processes are woken on the way; by day on a machine that is busy with other tests.
    assert 2 * delay_us < there_and_back < 2 * delay_us + (400 if NIGHTLY else 5000)
    # Of 1538 bytes on the wire 1448 are somebody's.
    assert (0.85 if NIGHTLY else 0.2) * gbits < rate < 0.95 * gbits


def test_what_a_slow_link_costs(link, program, model_file, tmp_path):
    slow = link(2000, 10)
    figures = tmp_path / "ranks.json"
    done = run(*slow.mpirun(tmp_path, program, "bench", "ranks", "-m", model_file, "--rows", "1,16", "--repeat", "3",
                            "--threads", "1", "--tensor-parallel", "2", "--latency-us", "2000", "--gbits", "9.4",
                            "--json", str(figures)), preexec_fn=at_once)
    assert done.returncode == 0, done.stderr
    report = json.loads(figures.read_text())
    within = 0.2 if NIGHTLY else 0.6
    assert report["link_measured"]["latency_us"] == pytest.approx(2000, rel=within)
    for point in report["points"]:
        assert point["ms"] == pytest.approx(point["predicted_ms"], rel=within)
        assert point["ms"] == pytest.approx(point["predicted_for_link_ms"], rel=within)
    # Messages of many rows arrive as soon as those of one, but for their bytes.
    one, many = report["points"]
    assert many["ms"] < (1.25 if NIGHTLY else 2) * one["ms"]


class RemoteService(Service):
    """On both ends of a link."""

    def __init__(self, program, model_file, link, folder, looks=True):
        self.link = link
        super().__init__(program, model_file, lambda *command: link.mpirun(folder, *command, looks=looks),
                         preexec_fn=at_once)

    def post(self, url, body):
        script = "import json, sys, serving; print(json.dumps(serving.post(*json.loads(sys.argv[1]))))"
        return json.loads(subprocess.run(
            self.link.inside(0, sys.executable, "-c", script, json.dumps([url, body])), check=True,
            capture_output=True, text=True, cwd=os.path.dirname(__file__)).stdout)

    def seconds_until(self, pattern):
        begin = time.monotonic()
        wait_for(lambda: re.search(pattern, "".join(self.log)), what="a word of it")
        taken = time.monotonic() - begin
        print(f"{pattern}: after {taken:.1f} s")
        return taken


# What a busy machine adds waits, since the ranks go first.
def test_a_rank_that_is_cut_off_is_named(link, program, model_file, tmp_path):
    machines = link(100, 10)
    service = RemoteService(program, model_file, machines, tmp_path, looks=False)
    assert len(service.ask()) == 24
    machines.cut()
    assert service.seconds_until(r"rank 1 .*has not been heard of") < NAMED_WITHIN
    wait_for(lambda: not service.ranks(), what="the leader's end")
    # It is mpirun that waits for what is on the other machine.
    assert service.process.poll() is None
    service.process.kill()


def test_a_cut_link_ends_both_and_a_restart_serves(link, program, model_file, tmp_path):
    alone = run(program, "run", "-m", model_file, "--raw", "-p", PROMPT, "-n", "24", "--temp", "0.7", "--seed", "3",
                "--ignore-eos", "--json", "-")
    assert alone.returncode == 0, alone.stderr
    machines = link(100, 10)
    service = RemoteService(program, model_file, machines, tmp_path)
    assert service.ask() == json.loads(alone.stdout)["token_ids"]
    machines.cut()
    assert service.seconds_until(f"on node {machines.addresses[1]}") < NAMED_WITHIN
    assert service.wait() and service.process.returncode != 0
    wait_for(lambda: not machines.processes(1), what="the other rank's end")
    machines.mend()
    assert RemoteService(program, model_file, machines, tmp_path).ask() == json.loads(alone.stdout)["token_ids"]
