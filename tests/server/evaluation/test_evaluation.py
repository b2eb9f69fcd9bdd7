"""lm-evaluation-harness as its users call it: with speculation it says what it says without, to the last digit."""

import json
import math
import os
import pathlib
import re
import subprocess
import sys

import pytest

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
sys.path.insert(0, str(ROOT / "tests/server/python"))
import serving  # noqa: E402

HEAD = ROOT / "models/heads/SmolLM2-135M-Instruct-EAGLE3"
ITEMS = {task: len((HERE / f"tasks/{task}.jsonl").read_text().splitlines())
         for task in ("endings", "texts", "sums")}


def accepted(server):
    page = serving.urlopen(server.url + "/metrics")
    return sum(float(found) for found in re.findall(
        r"^vllm:spec_decode_num_accepted_tokens_total\S* (\S+)$", page, re.MULTILINE))


def evaluate(server, folder):
    """What the command has written: scores, and by task each sample."""
    command = pathlib.Path(sys.executable).with_name("lm_eval")
    name = json.loads(serving.urlopen(server.url + "/v1/models"))["data"][0]["id"]
    finished = subprocess.run(
        [command, "--model", "local-completions", "--tasks", ",".join(f"aerie_{task}" for task in ITEMS),
         "--include_path", HERE / "tasks", "--output_path", folder, "--log_samples", "--model_args",
         f"model={name},base_url={server.url}/v1/completions,tokenizer_backend=remote,tokenized_requests=True"],
        env={**os.environ, "HF_HOME": str(folder / "cache"), "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"},
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=600)
    assert finished.returncode == 0, finished.stdout
    [results] = folder.rglob("results_*.json")
    samples = {}
    for task in ITEMS:
        [file] = folder.rglob(f"samples_aerie_{task}_*.jsonl")
        samples[task] = sorted(map(json.loads, file.read_text().splitlines()), key=lambda one: one["doc_id"])
    return json.loads(results.read_text())["results"], samples


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """With speculation, and without."""
    program = os.environ["AERIE_PROGRAM"]
    model = os.environ.get("AERIE_MODEL", str(ROOT / "models/SmolLM2-135M-Instruct.Q4_1.gguf"))
    if not os.path.exists(model):
        pytest.skip(f"{model} is missing: scripts/fetch_model.sh gets it")
    found = []
    for speculate in (f"auto,eagle3:model={HEAD}", "none"):
        server = serving.Server(program, model, "--speculate", speculate)
        try:
            found.append(evaluate(server, tmp_path_factory.mktemp("run")))
            assert bool(accepted(server)) == (speculate != "none")
        finally:
            server.stop()
    return found


def test_scores_are_equal(runs):
    speculated, plain = (results for results, _ in runs)
    assert set(plain) == {f"aerie_{task}" for task in ITEMS}
    assert speculated == plain


@pytest.mark.parametrize("task", ITEMS)
def test_samples_are_equal(runs, task):
    speculated, plain = (samples[task] for _, samples in runs)
    assert len(plain) == ITEMS[task]
    for one, other in zip(speculated, plain, strict=True):
        assert one["resps"] == other["resps"] and one["filtered_resps"] == other["filtered_resps"]
        assert one == other


def test_scores_mean_something(runs):
    """A model of this size knows these endings, and answers in the examples' form."""
    scores, samples = runs[0]
    assert scores["aerie_endings"]["acc,none"] >= 0.75
    assert 1 < scores["aerie_texts"]["byte_perplexity,none"] < 3
    for sample in samples["endings"]:
        assert all(math.isfinite(float(score)) and float(score) < 0 for [[score, _]] in sample["resps"])
    answers = [sample["resps"][0][0] for sample in samples["sums"]]
    assert all(answer.strip() and "Question:" not in answer for answer in answers)
    assert sum("The answer is " in answer for answer in answers) >= len(answers) / 2
