"""`aerie serve` as a child of this process, on a loopback port."""

from __future__ import annotations

import collections
import ctypes
import re
import signal
import subprocess
import sys
import threading
from typing import Callable, Deque, Optional, Sequence

_LIBC = ctypes.CDLL(None, use_errno=True)
_PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    """In a child before it becomes another program: the system ends it with the thread that made it."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


class LocalServer:
    """Runs until stop(), or until this process ends, however that comes about.

    `command` is without address and port. Its log goes to standard error. `on_end` is called, by another
    thread, if it ends unasked. Raises RuntimeError with the end of its log if it does not listen in time.
    """

    def __init__(self, command: Sequence[str], seconds: float, on_end: Optional[Callable[[str], None]] = None):
        self.url = ""
        self._command = [*command, "--host", "127.0.0.1", "--port", "0"]
        self._on_end = on_end
        self._log: Deque[str] = collections.deque(maxlen=20)
        self._process: Optional[subprocess.Popen] = None
        self._error = ""
        self._stopping = False
        self._settled = threading.Event()
        # The system ends the child with the thread that made it, so that thread stays until the child has ended.
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        if not self._settled.wait(seconds):
            self.stop(0)
            raise RuntimeError(f"aerie serve does not listen after {seconds} s:\n{self._tail()}")
        if not self.url:
            raise RuntimeError(self._error or f"aerie serve ended before it listened:\n{self._tail()}")

    def _tail(self) -> str:
        return "".join(self._log)

    def _run(self) -> None:
        try:
            self._process = subprocess.Popen(self._command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                             stderr=subprocess.PIPE, text=True, errors="replace",
                                             preexec_fn=die_with_parent)
        except OSError as error:
            self._error = f"{self._command[0]} does not start: {error}"
            self._settled.set()
            return
        for line in self._process.stderr:
            self._log.append(line)
            sys.stderr.write(line)
            found = not self.url and re.search(r"listening on (http://[^\s\"]+)", line)
            if found:
                self.url = found[1].rstrip("/")
                self._settled.set()
        self._process.wait()
        self._settled.set()
        if self.url and not self._stopping and self._on_end:
            self._on_end(f"aerie serve ended with status {self._process.returncode}:\n{self._tail()}")

    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def stop(self, seconds: float = 30) -> None:
        """Lets it answer what it has; after `seconds` it is ended."""
        self._stopping = True
        if self._process is None:
            return
        try:
            if seconds > 0:
                self._process.terminate()
                self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            pass
        finally:
            if self.alive():
                self._process.kill()
                self._process.wait()
