"""Ranks that mpirun starts, for the tests. The standard library is all it needs."""

import os
import pathlib
import re
import shutil
import subprocess
import threading

import serving
from serving import wait_for

MPIRUN = shutil.which("mpirun")
ENVIRONMENT = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
# Seconds within which a lost rank is named. By day other tests run beside, which take the cores for seconds.
NAMED_WITHIN = 5 if "AERIE_NIGHTLY" in os.environ else 15
PROMPT = "Write a list of three colours and why they are liked."


def missing(program):
    """What there is to say if there is no Open MPI."""
    if not MPIRUN or not os.path.exists(os.path.join(os.path.dirname(program), "libaerie_mpi.so")):
        return "Open MPI is not installed: scripts/install_deps.sh --full installs it"
    return None


def under_mpirun(ranks, *command):
    return [MPIRUN, "-np", str(ranks), "--oversubscribe", "--bind-to", "none", *command]


def run(*command, **settings):
    return subprocess.run(command, capture_output=True, text=True, timeout=200, env=ENVIRONMENT, check=False, **settings)


class Service:
    """`aerie serve` by two ranks. `start(WORD...)`: the words by which mpirun runs a command."""

    def __init__(self, program, model_file, start=lambda *command: under_mpirun(2, *command),
                 **settings):
        self.log = []
        self.process = subprocess.Popen(
            start(program, "serve", "-m", model_file, "--port", "0", "--threads", "1", "--tensor-parallel", "2"),
            stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, env=ENVIRONMENT, **settings)
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()
        wait_for(lambda: self.url or self.process.poll() is not None, what="the server")
        assert self.url, "".join(self.log)

    def _read(self):
        for line in self.process.stderr:
            self.log.append(line)

    @property
    def url(self):
        found = re.search(r"listening on (http://\S+)", "".join(self.log))
        return found and found[1].rstrip("/")

    def wait(self, seconds=60):
        """All that was said, once it has ended."""
        self.process.wait(seconds)
        self.reader.join(seconds)
        return "".join(self.log)

    def ranks(self):
        """Process ids, by rank."""
        ranks = {}
        for process in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                parent = re.search(r"^PPid:\s*(\d+)", (process / "status").read_text(), re.MULTILINE)
                rank = re.search(rb"OMPI_COMM_WORLD_RANK=(\d+)", (process / "environ").read_bytes())
            except OSError:
                continue  # it has just ended, or is somebody else's
            if rank and parent and int(parent[1]) == self.process.pid:
                ranks[int(rank[1])] = int(process.name)
        return ranks

    def ask(self, url=None, **body):
        body = {"prompt": PROMPT, "max_tokens": 24, "temperature": 0.7, "seed": 3, "return_token_ids": True,
                "ignore_eos": True, **body}
        return self.post((url or self.url) + "/v1/completions", body)["choices"][0]["token_ids"]

    post = staticmethod(serving.post)
