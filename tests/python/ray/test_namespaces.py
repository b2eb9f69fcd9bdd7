"""Ray on two machines, as far as their networks go: a namespace each, and the second one's cable can be cut."""

import contextlib
import json
import os
import pathlib
import re
import subprocess
import sys
import time
import urllib.request

import pytest

from conftest import ROOT
from fleet import Load, Outcome, complete, wait_for
from namespaces import IP, Network, processes_in, remove_processes

PORT, HTTP_PORT = 6379, 8000  # of Ray and of its proxies
AUDIT = "/tmp/ray/audit.jsonl"


def documented_settings():
    """What docs/scaling/servers.md has Ray told, so that it gives up a machine sooner."""
    page = (ROOT / "docs/scaling/servers.md").read_text()
    settings = dict(re.findall(r"(RAY_health_check_\w+)=(\d+)", page))
    assert len(settings) == 3, settings
    return settings


class Machine:
    """A namespace whose /tmp/ray is a folder of its own. All that runs there ends with it."""

    def __init__(self, place, folder):
        self.name, self.address = place
        self.folder = folder
        folder.mkdir()

    def run(self, program, *arguments):
        pathlib.Path("/tmp/ray").mkdir(exist_ok=True)
        program = pathlib.Path(sys.executable).with_name(program)
        own_folder = 'mount --bind "$0" /tmp/ray && exec "$@"'
        log = self.folder / f"{program.name}.log"
        with open(log, "w", encoding="utf-8") as file:
            ended = subprocess.run([IP, "netns", "exec", self.name, "sh", "-c", own_folder, self.folder, program,
                                    *arguments], stdout=file, stderr=subprocess.STDOUT, timeout=180, check=False,
                                   env={**os.environ, **documented_settings()})
        assert ended.returncode == 0, log.read_text(encoding="utf-8")

    def join(self, *which):
        """Ray's cluster: as its head, or with --address."""
        self.run("ray", "start", *which, "--node-ip-address", self.address, "--num-cpus", "1",
                 "--object-store-memory", str(100 << 20), "--disable-usage-stats")

    def kill(self):
        remove_processes(self.name)

    def servers(self):
        """The processes of `aerie serve`."""
        found = []
        for process in processes_in(self.name):
            with contextlib.suppress(OSError):  # it has just ended
                if b"--trust-proxy" in pathlib.Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0"):
                    found.append(process)
        return found


class Pair:
    """A cluster of two machines of one core each, and the application with a replica on each."""

    def __init__(self, network, folder):
        self.network = network
        self.head, self.other = (Machine(network.add(), folder / name) for name in ("head", "other"))
        self.url = f"http://{self.head.address}:{HTTP_PORT}"
        self.head.join("--head", "--port", str(PORT), "--include-dashboard", "false")

    def add_other(self):
        self.other.join("--address", f"{self.head.address}:{PORT}")

    def deploy(self, model):
        """With deploy/ray-serve.yaml, but for where the model is and how much there is."""
        text = (ROOT / "deploy/ray-serve.yaml").read_text()
        flags = f"--cache-tokens 8192 --max-num-seqs 2 --audit-log {AUDIT}"
        changes = {"/models/model.gguf": model, "threads: 8": "threads: 1", "min_replicas: 1": "min_replicas: 2",
                   "max_replicas: 4": "max_replicas: 2", "target_requests: 8": "target_requests: 16",
                   "--max-num-seqs 16": flags, "127.0.0.1": "0.0.0.0"}
        for ours, theirs in changes.items():
            assert text.count(ours) == 1, ours
            text = text.replace(ours, theirs)
        path = self.head.folder / "serve.yaml"
        path.write_text(text)
        self.head.run("serve", "run", "--non-blocking", "--address", f"{self.head.address}:{PORT}", path)

    def replicas(self):
        """How many answer."""
        try:
            with urllib.request.urlopen(self.url + "/metrics", timeout=60) as answer:
                return len(set(re.findall(r'replica="(\w+)"', answer.read().decode())))
        except OSError:
            return 0

    def settle(self):
        wait_for(lambda: self.replicas() == 2, what="that two replicas answer")

    def sent(self):
        """The completions that both machines' servers say they have answered."""
        lines = [json.loads(line) for machine in (self.head, self.other)
                 for line in (machine.folder / pathlib.Path(AUDIT).name).read_text().splitlines()
                 if line.endswith("}")]
        return [line["request_id"] for line in lines
                if line.get("answer") == "sent" and line.get("route") == "/v1/completions"]


@pytest.fixture(scope="module")
def pair(model, tmp_path_factory):
    with Network() as made:
        two = Pair(made, tmp_path_factory.mktemp("machines"))
        two.add_other()
        two.deploy(model)
        two.settle()
        assert [len(machine.servers()) for machine in (two.head, two.other)] == [1, 1]
        yield two


def test_ids_over_two_machines(pair, program, model, alone, tmp_path):
    path = tmp_path / "run.json"
    subprocess.run([program, "run", "-m", model, "--json", path, "--raw", "-p", "Once upon", "-n", "24",
                    "--temp", "0.8", "--seed", "11"], check=True, capture_output=True)
    expected = json.loads(path.read_text())["token_ids"]
    body = {"prompt": "Once upon", "max_tokens": 24, "temperature": 0.8, "seed": 11}
    # By the proxy of either machine.
    for machine in (pair.head, pair.other):
        for stream in (False, True):
            outcome = complete(f"http://{machine.address}:{HTTP_PORT}", {**body, "stream": stream}, Outcome("ids"))
            assert outcome.done and outcome.tokens == expected, outcome
    assert Load(pair.url, 8, "both").check(alone) == []


@pytest.mark.parametrize("what", ["killed", "cut off"])
def test_a_machine_is_lost(pair, alone, what):
    load = Load(pair.url, 12, what, tokens=400)
    # More than the head decodes at once; others wait.
    wait_for(lambda: load.under_way() > 2, what="load")
    lost = time.monotonic()
    if what == "killed":
        pair.other.kill()
    else:
        pair.network.cut(pair.other.name)
    wait_for(lambda: any(outcome.error for outcome in load.outcomes), what="the end of the lost streams")
    seconds = time.monotonic() - lost
    failed = load.check(alone)
    print(f"a machine {what}: {len(load.outcomes)} requests, {len(failed)} streams cut short after {seconds:.1f} s")
    assert 1 <= len(failed) <= 2, "those of its streams that it decoded then"
    assert all("replica" in outcome.error for outcome in failed), failed
    if what == "killed":
        # What is cut off may still answer, and nobody hears it.
        sent = pair.sent()
        assert all(sent.count(outcome.name) == outcome.done for outcome in load.outcomes)
    # Ray alone takes a minute, docs/scaling/servers.md says nine seconds; the machine may have much else to do.
    assert seconds < 30
    # The one that is left serves on, and the other one once it is back.
    assert Load(pair.url, 4, "after", tokens=8).check(alone) == []
    # Once it hears again, what was given up ends by itself.
    pair.network.mend(pair.other.name)
    wait_for(lambda: not pair.other.servers(), what="the end of the lost replica's server")
    pair.add_other()
    pair.settle()
    assert Load(pair.url, 8, "again").check(alone) == []
