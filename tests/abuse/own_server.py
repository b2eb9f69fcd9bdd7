"""`aerie serve` under the address space that it normally has and little more."""

import pathlib
import resource
import sys

from target import MIB, Target, ask

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "server/python"))
import serving  # noqa: E402

SPARE_MIB = 256
CACHE_TOKENS = 8192
# A cache of a known size: by default it is half of what is free, which a limit would change.
FLAGS = ("--cache-tokens", str(CACHE_TOKENS), "--no-log-requests")


def plain_requests(target, count):
    for number in range(count):
        done = ask(target, {"prompt": f"{number} " + "word " * 900, "max_tokens": 8, "temperature": number % 2})
        if done.kind != "answered":
            raise RuntimeError(f"a plain request: {done}")


def warm_up(target):
    """Until all of the cache has been written to, so that what grows later is something else."""
    plain_requests(target, CACHE_TOKENS // 900 + 2)


def start(program, model):
    """(server, what it was given in MiB). Raises RuntimeError."""
    normal = serving.Server(program, model, *FLAGS)
    target = Target(normal.url, pid=normal.process.pid)
    plain_requests(target, 3)
    most = target.memory("VmPeak")
    if normal.stop() != 0:
        raise RuntimeError("a server without a limit did not end well")
    limit = int(most) + SPARE_MIB
    server = serving.Server(program, model, *FLAGS,
                            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit * MIB, limit * MIB)))
    warm_up(Target(server.url))
    return server, limit
