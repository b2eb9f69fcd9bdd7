"""`aerie serve` as a process of a test. The standard library is all it needs."""

import json
import pathlib
import re
import signal
import subprocess
import threading
import time
import urllib.request

START_SECONDS = 120


class Server:
    """`aerie serve` until stop(); here and on a free port, unless the flags say where. No model: they say which."""

    def __init__(self, program, model, *flags, **settings):
        place = {"--host": "127.0.0.1", "--port": "0"}
        here = [word for flag, value in place.items() if flag not in flags for word in (flag, value)]
        self.process = subprocess.Popen(
            [program, "serve", *(["-m", model] if model else []), *here, *flags],
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, **settings)
        self.log = []
        self.url = None
        self._said = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        if not self._said.wait(START_SECONDS) or not self.url:
            self.process.kill()
            raise RuntimeError("aerie serve did not start:\n" + "".join(self.log))
        self.host, port = self.url.removeprefix("http://").split(":")
        self.port = int(port)

    def _read(self):
        for line in self.process.stderr:
            self.log.append(line)
            found = re.search(r"listening on (http://\S+)", line)
            if found:
                self.url = found[1].rstrip("/")
                self._said.set()
        self._said.set()

    def resident_bytes(self):
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+) kB", status)[1]) << 10

    def stop(self, seconds=60):
        """The exit status. What it said to its end is in the log."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            status = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise
        self._reader.join(seconds)
        return status


def urlopen(url):
    with urllib.request.urlopen(url, timeout=60) as answer:
        return answer.read().decode()


def post(url, body):
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=300) as answer:
        return json.load(answer)


# Two minutes are long for a busy machine, and cost nothing where it happens sooner.
def wait_for(condition, seconds=120, what="it"):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return
        time.sleep(0.05)
    raise AssertionError(f"{what} did not happen within {seconds} s")
