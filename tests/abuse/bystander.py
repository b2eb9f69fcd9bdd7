#!/usr/bin/env python3
"""A client that harms nobody: one plain reply after another, streamed, the same every time.

    bystander.py URL TOKENS [KEY]

A process of its own, since threads of Python hold one another up. Prints a line of JSON for each reply: when it was asked
for (of the monotonic clock), when each token came, what came, and what went wrong. Ends with its standard input.
"""

import json
import os
import pathlib
import subprocess
import sys
import threading
import time

from target import Target

# Another client of a server on this machine: who takes turns by the address sees two.
SOURCE = "127.0.0.2"


def stream(target, tokens, source):
    body = {"prompt": "One, two, three,", "max_tokens": tokens, "stream": True, "seed": 1, "temperature": 0.7,
            "ignore_eos": True, "speculation": "off", "return_token_ids": True}
    found = {"asked": time.monotonic(), "times": [], "what": [], "error": None}
    connection = target.open(60, source)
    try:
        connection.request("POST", target.base + "/v1/completions", json.dumps(body), target.headers())
        response = connection.getresponse()
        if response.status != 200:
            raise ValueError(f"status {response.status}: {response.read()[:200]!r}")
        while line := response.readline():
            if not line.startswith(b"data: {"):
                continue
            event = json.loads(line[6:])
            if "error" in event:
                raise ValueError(f"the reply ended with {event['error']}")
            for choice in event.get("choices", []):
                piece = choice.get("token_ids") or [choice.get("text")]
                if piece != [""]:
                    found["times"].append(time.monotonic())
                    found["what"] += piece
    except Exception as error:  # whatever it is, it was not to happen
        found["error"] = f"{type(error).__name__}: {error}"
    finally:
        connection.close()
    return found


class Bystander:
    """Runs one, and keeps what it saw. `wanted`: what its replies have to be."""

    def __init__(self, target, tokens=64):
        self.target, self.wanted, self.replies = target, None, []
        here = pathlib.Path(__file__).resolve()
        self._process = subprocess.Popen(
            [sys.executable, "-B", str(here), target.url, str(tokens), *([target.key] if target.key else [])],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self):
        for line in self._process.stdout:
            self.replies.append(json.loads(line))

    def wait(self, replies, seconds=180):
        """Until it has had so many more."""
        goal, end = len(self.replies) + replies, time.monotonic() + seconds
        while len(self.replies) < goal and time.monotonic() < end and self._process.poll() is None:
            time.sleep(0.05)
        return len(self.replies) >= goal

    def stop(self):
        if not self._process.stdin.closed:
            self._process.stdin.close()
        self._process.wait(120)
        self._thread.join(10)

    def between(self, begin, end):
        """Of that time: (seconds, their end) between tokens and to first tokens, and what went wrong."""
        gaps, firsts, wrong = [], [], []
        for reply in list(self.replies):
            times = [reply["asked"], *reply["times"]]
            if times[-1] < begin or times[0] > end:
                continue
            inside = [(a, b) for a, b in zip(times, times[1:]) if b >= begin and a <= end]
            gaps += [(b - a, b) for a, b in inside if a != times[0]]
            firsts += [(b - a, b) for a, b in inside if a == times[0]]
            if reply["error"]:
                wrong.append(f"the bystander: {reply['error']}")
            elif self.wanted is not None and reply["what"] != self.wanted:
                wrong.append(f"the bystander's reply is not that of its lone run: {reply['what']}")
        return gaps, firsts, wrong


def main():
    target = Target(sys.argv[1], sys.argv[3] if len(sys.argv) > 3 else None)
    tokens = int(sys.argv[2])
    source = SOURCE if target.host == "127.0.0.1" and os.uname().sysname == "Linux" else None
    over = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), over.set()), daemon=True).start()
    while not over.is_set():
        found = stream(target, tokens, source)
        print(json.dumps(found), flush=True)
        if found["error"]:
            time.sleep(0.5)


if __name__ == "__main__":
    main()
