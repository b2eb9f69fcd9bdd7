"""Two ranks on machines of their own, as far as their network goes: a slow link, and one that is cut."""

import contextlib
import json
import os
import re
import subprocess
import sys
import time

import pytest

from conftest import ROOT, wait_for
from ranked import PROMPT, Service, missing, run

sys.path.append(str(ROOT / "tests/testing/network"))
from namespaces import SlowLink, Unavailable  # noqa: E402


@pytest.fixture
def link(program, tmp_path):
    """link(DELAY_US, GBITS): a link of two machines; it ends with the test."""
    if missing(program):
        pytest.skip(missing(program))
    links = []

    def one(delay_us, gbits):
        try:
            links.append(SlowLink(os.path.join(os.path.dirname(program), "slow_link"), delay_us, gbits))
        except Unavailable as error:
            pytest.skip(f"network namespaces cannot be made here: {error}")
        return links[-1]

    yield one
    for each in links:
        each.remove()


def at_once():
    """Ranks wait for each other; what else runs on the machine is not the link's."""
    with contextlib.suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(5))


@pytest.mark.parametrize("delay_us, gbits", [(200, 1), (1000, 10)])
def test_a_link_is_as_slow_as_it_is_told(link, delay_us, gbits):
    there_and_back, rate = link(delay_us, gbits).measure()
    # Two processes are woken on the way, on a machine that is busy.
    assert 2 * delay_us < there_and_back < 2 * delay_us + 400
    # Of 1538 bytes on the wire 1448 are somebody's.
    assert 0.85 * gbits < rate < 0.95 * gbits


def test_what_a_slow_link_costs(link, program, model_file, tmp_path):
    slow = link(2000, 10)
    figures = tmp_path / "ranks.json"
    done = run(*slow.mpirun(tmp_path, program, "bench", "ranks", "-m", model_file, "--rows", "1,16", "--repeat", "3",
                            "--threads", "1", "--tensor-parallel", "2", "--latency-us", "2000", "--gbits", "9.4",
                            "--json", str(figures)), preexec_fn=at_once)
    assert done.returncode == 0, done.stderr
    report = json.loads(figures.read_text())
    assert report["link_measured"]["latency_us"] == pytest.approx(2000, rel=0.2)
    for point in report["points"]:
        assert point["ms"] == pytest.approx(point["predicted_ms"], rel=0.2)
        assert point["ms"] == pytest.approx(point["predicted_for_link_ms"], rel=0.2)
    # Messages of many rows arrive as soon as those of one, but for their bytes.
    one, many = report["points"]
    assert many["ms"] < 1.25 * one["ms"]


class RemoteService(Service):
    """On both ends of a link."""

    def __init__(self, program, model_file, link, folder):
        self.link = link
        super().__init__(program, model_file, lambda *command: link.mpirun(folder, *command))

    def post(self, url, body):
        script = "import json, sys, serving; print(json.dumps(serving.post(*json.loads(sys.argv[1]))))"
        return json.loads(subprocess.run(
            self.link.inside(0, sys.executable, "-c", script, json.dumps([url, body])), check=True,
            capture_output=True, text=True, cwd=os.path.dirname(__file__)).stdout)


def test_a_cut_link(link, program, model_file, tmp_path):
    machines = link(100, 10)
    alone = run(program, "run", "-m", model_file, "--raw", "-p", PROMPT, "-n", "24", "--temp", "0.7", "--seed", "3",
                "--ignore-eos", "--json", "-")
    assert alone.returncode == 0, alone.stderr
    service = RemoteService(program, model_file, machines, tmp_path)
    assert service.ask() == json.loads(alone.stdout)["token_ids"]
    begin = time.monotonic()
    machines.cut()
    wait_for(lambda: re.search(r"rank 1 .*has not been heard of", "".join(service.log)), what="a word of it")
    taken = time.monotonic() - begin
    said = service.wait()
    assert service.process.returncode != 0
    # Four seconds, and what a busy machine adds; mpirun names the machine itself.
    assert taken < 10, said
    assert f"on node {machines.addresses[1]}" in said
    # Nothing is left on the other one, either.
    wait_for(lambda: not machines.processes(1), what="the other rank's end")
    machines.mend()
    again = RemoteService(program, model_file, machines, tmp_path)
    assert len(again.ask()) == 24
