"""`aerie train data` over a cluster: a shard of the prompts is a task, and all answers end up in one folder."""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
import tempfile
from typing import Callable, Dict, List, Optional, Sequence, Tuple, Union

import ray

from ..program import PROGRAM
from .local_server import die_with_parent

Path = Union[str, "os.PathLike[str]"]
# What is this module's own to say.
_OWN_FLAGS = {"-m", "--model", "--prompts", "--plain", "--out", "--shard", "--threads"}


class ShardLost(Exception):
    """The program was ended while it answered: by the system, or by whoever wanted its memory."""


def _run(command: Sequence[str], part: str) -> None:
    try:
        ended = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                               text=True, errors="replace", preexec_fn=die_with_parent, check=False)
    except OSError as error:
        raise RuntimeError(f"{command[0]} does not start on {os.uname().nodename}: {error}") from None
    if ended.returncode < 0:
        raise ShardLost(f"shard {part}: {command[0]} was ended by signal {-ended.returncode} on {os.uname().nodename}")
    if ended.returncode > 0:
        tail = "\n".join(ended.stderr.splitlines()[-5:])
        raise RuntimeError(f"shard {part}: aerie train data failed on {os.uname().nodename}:\n{tail}")


def _answer_shard(command: Sequence[str], files: Dict[str, bytes], plain: Sequence[str], there: Dict[str, bytes],
                  part: str) -> Dict[str, bytes]:
    """On a node: the files of a shard's folder. `there`: those that an earlier call left."""
    with tempfile.TemporaryDirectory(prefix="aerie-data-") as folder:
        prompts, out = pathlib.Path(folder, "prompts"), pathlib.Path(folder, "out")
        prompts.mkdir()
        out.mkdir()
        for name, text in files.items():
            (prompts / name).write_bytes(text)
        for name, text in there.items():
            (out / name).write_bytes(text)
        plain_flags = ["--plain", *(str(prompts / name) for name in plain)] if plain else []
        _run([*command, "--out", str(out), "--shard", part, "--prompts", *(str(prompts / name) for name in files),
              *plain_flags], part)
        return {path.name: path.read_bytes() for path in out.iterdir() if path.is_file()}


def _read_prompts(paths: Sequence[Path], plain: Sequence[Path]) -> Tuple[Dict[str, bytes], List[str]]:
    files: Dict[str, bytes] = {}
    for path in map(pathlib.Path, paths):
        if path.name in files:
            raise ValueError(f"prompts: two files are called {path.name}, by which samples name them: rename one")
        files[path.name] = path.read_bytes()
    if not files:
        raise ValueError("prompts: give a file at least")
    strange = [str(path) for path in plain if pathlib.Path(path).name not in files]
    if strange:
        raise ValueError(f"plain: {strange[0]} is none of the prompts")
    return files, [pathlib.Path(path).name for path in plain]


def _check(out: pathlib.Path, shards: int, flags: Sequence[str]) -> None:
    if shards < 1:
        raise ValueError(f"shards: {shards} are none")
    for flag in flags:
        name = flag.split("=")[0]
        if name in _OWN_FLAGS:
            raise ValueError(f"flags: {name} is an argument of train_data()")
        if name == "--features":
            raise ValueError("flags: features are stored once all samples are there: aerie train data -m MODEL --out "
                             f"{out} --features …")
    for path in out.glob("answers-*.jsonl"):
        found = re.fullmatch(r"answers-\d+-of-(\d+)\.jsonl", path.name)
        if found and int(found[1]) != shards:
            raise ValueError(f"{out} holds {path.name}: go on with shards={found[1]}, or give another folder")


def _keep(out: pathlib.Path, made: Dict[str, bytes]) -> None:
    for name, text in made.items():
        beside = out / f".{name}.{os.getpid()}"
        beside.write_bytes(text)
        os.replace(beside, out / name)


def train_data(model: str, prompts: Sequence[Path], out: Path, *, shards: int, plain: Sequence[Path] = (),
               flags: Sequence[str] = (), threads: int = 4, program: Path = PROGRAM, retries: int = 3,
               progress: Optional[Callable[[int, int], None]] = None) -> int:
    """Answers all prompts with the cluster that ray.init() knows, or starts; how many samples `out` then holds.

    `model` and `program` are found by every node: the program with `aerie-train` beside it, which a wheel has not.
    `prompts` (`plain` of them as texts to go on with) are files of this machine, and so is the folder `out`.
    Each of `shards` is a task of `threads` cores, tried `retries` times more if its node or its process is lost;
    what it answered is there once it is whole. `flags` are those of `aerie train data`, the same for all.
    `progress` is told how many shards are done, of how many.

    The samples are those of `aerie train data` on one machine. The same call makes what is missing.
    Raises ValueError for arguments, RuntimeError for what `aerie train data` refuses, ray's errors for lost nodes.
    """
    out = pathlib.Path(out)
    _check(out, shards, flags)
    files, plain_names = _read_prompts(prompts, plain)
    out.mkdir(parents=True, exist_ok=True)
    if not ray.is_initialized():
        ray.init()
    path = pathlib.Path(model)
    command = [str(program), "train", "data", "-m", str(path.resolve()) if path.exists() else model,
               "--threads", str(threads), *flags]
    common = ray.put(files)
    task = ray.remote(num_cpus=threads, max_retries=retries, retry_exceptions=[ShardLost])(_answer_shard)
    pending = []
    for number in range(1, shards + 1):
        names = ("data.json", f"answers-{number}-of-{shards}.jsonl")
        there = {name: (out / name).read_bytes() for name in names if (out / name).exists()}
        pending.append(task.remote(command, common, plain_names, there, f"{number}/{shards}"))
    try:
        while pending:
            done, pending = ray.wait(pending)
            for one in done:
                _keep(out, ray.get(one))
            if progress:
                progress(shards - len(pending), shards)
    except ray.exceptions.RayTaskError as error:
        raise error.cause if isinstance(error.cause, (RuntimeError, ShardLost)) else error
    finally:
        for one in pending:
            ray.cancel(one, force=True)
    return sum(path.read_bytes().count(b"\n") for path in out.glob(f"answers-*-of-{shards}.jsonl"))
