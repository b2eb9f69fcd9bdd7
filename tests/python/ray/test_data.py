"""`aerie train data` over a cluster: the samples of one machine, whatever is lost on the way."""

import os
import pathlib
import subprocess
import sys
import threading

import pytest
import ray

from aerie.ray import train_data
from conftest import ROOT, kill
from fleet import wait_for

PROMPTS = ROOT / "train/prompts/questions.jsonl"
FLAGS = ["--limit", "12", "--no-template", "--max-tokens", "100"]


def samples(folder):
    return sorted(line for path in pathlib.Path(folder).glob("answers-*.jsonl")
                  for line in path.read_text().splitlines())


@pytest.fixture(scope="module")
def training(built):
    if not pathlib.Path(built).with_name("aerie-train").exists():
        pytest.skip("there is no aerie-train: LibTorch is missing")
    return built


@pytest.fixture(scope="module")
def expected(training, model, tmp_path_factory):
    out = tmp_path_factory.mktemp("alone")
    subprocess.run([training, "train", "data", "-m", model, "--prompts", PROMPTS, "--out", out, *FLAGS], check=True,
                   capture_output=True)
    return samples(out)


def shard_processes():
    found = []
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().decode().split("\0")
        except OSError:
            continue
        if "--shard" in words and any("aerie-data-" in word for word in words):
            found.append(int(folder.name))
    return found


def test_one_folder(cluster, training, model, expected, tmp_path):
    out, told, result = tmp_path / "out", [], {}
    given = {"shards": 2, "flags": FLAGS, "threads": 1, "program": training}

    def run():
        result["count"] = train_data(model, [PROMPTS], out, **given, progress=lambda done, of: told.append((done, of)))

    # What is lost on the way is made anew.
    working = threading.Thread(target=run)
    working.start()
    wait_for(shard_processes, what="a shard under way")
    kill(shard_processes()[0])
    working.join()
    assert result["count"] == len(expected) > 10 and samples(out) == expected
    assert told == [(1, 2), (2, 2)]
    # What is missing is made, by the command, too.
    (out / "answers-2-of-2.jsonl").unlink()
    ended = subprocess.run(
        [sys.executable, "-m", "aerie.ray", "train-data", "-m", model, "--prompts", PROMPTS, "--out", out,
         "--shards", "2", "--threads", "1", "--program", training, *FLAGS], capture_output=True, text=True, check=False,
        env={**os.environ, "RAY_ADDRESS": ray.get_runtime_context().gcs_address})
    assert ended.returncode == 0, ended.stderr
    assert samples(out) == expected
    # Other settings are refused by the program, other shards before it is asked.
    with pytest.raises(RuntimeError, match="seed"):
        train_data(model, [PROMPTS], out, **{**given, "flags": [*FLAGS, "--seed", "5"]})
    with pytest.raises(ValueError, match="go on with shards=2"):
        train_data(model, [PROMPTS], out, **{**given, "shards": 3})
    with pytest.raises(ValueError, match="--out is an argument"):
        train_data(model, [PROMPTS], out, **{**given, "flags": ["--out", "x"]})
    with pytest.raises(ValueError, match="two files are called"):
        train_data(model, [PROMPTS, PROMPTS], out, **given)
    assert samples(out) == expected
