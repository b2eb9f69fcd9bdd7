"""Several models in one server: each request gets the ids that its model gives alone."""

import concurrent.futures
import json
import pathlib
import subprocess

import openai
import pytest

import serving

HEADS = pathlib.Path(__file__).resolve().parents[3] / "models/heads"
PROMPTS = ["The lighthouse stood on a rock that", "one two three four five one two three", "def add(a, b):\n"]


@pytest.fixture(scope="module")
def model_list(program, model_file, tmp_path_factory):
    """One twice, with and without speculation, and another one."""
    folder = tmp_path_factory.mktemp("models")
    other = folder / "other.gguf"
    subprocess.run([program, "convert", model_file, other, "--type", "q4_0", "--requantize"],
                   check=True, timeout=120)
    path = folder / "models.json"
    path.write_text(json.dumps({
        "plain": {"model": model_file, "speculate": "none", "offer": ["none"]},
        "drafted": {"model": model_file, "max-num-seqs": 8, "cache-tokens": 8192,
                    "speculate": f"auto,eagle3:model={HEADS}/SmolLM2-135M-Instruct-EAGLE3"},
        "other": {"model": str(other), "served-model-name": ["by another name"],
                  "max-model-len": 512},
    }))
    return str(path)


@pytest.fixture(scope="module")
def start_with(program, model_list):
    servers = []

    def one(*flags):
        servers.append(serving.Server(program, None, "--models", model_list, *flags))
        return servers[-1]

    yield one
    for server in servers:
        assert server.stop() == 0


def ids(server, model, number):
    client = openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0, timeout=120)
    choice = client.completions.create(
        model=model, prompt=PROMPTS[number % len(PROMPTS)], seed=number, temperature=number % 2,
        max_tokens=24, extra_body={"return_token_ids": True}).choices[0]
    return choice.model_extra["token_ids"]


@pytest.mark.parametrize("at_once", [1, 0], ids=["one in memory", "all in memory"])
def test_ids_are_those_of_the_model_alone(start_with, at_once):
    server = start_with("--models-max", str(at_once))
    asked = [(("plain", "drafted", "other", "by another name")[number % 4], number // 4) for number in range(24)]
    alone = {one: ids(server, *one) for one in sorted(asked)}
    with concurrent.futures.ThreadPoolExecutor(12) as pool:
        together = list(pool.map(lambda one: ids(server, *one), asked))
    assert together == [alone[one] for one in asked]
    for number in range(6):
        assert alone["plain", number] == alone["drafted", number]
        assert alone["other", number] == alone["by another name", number]
        assert alone["plain", number] != alone["other", number]
    log = "".join(server.log)
    assert ("unloaded" in log) == (at_once == 1), log


def test_flags_of_one_model_are_its_own(start_with):
    server = start_with()
    ids(server, "other", 0)
    ids(server, "plain", 0)
    with_models = json.loads(serving.urlopen(server.url + "/v1/models"))["data"]
    models = {model["id"]: model for model in with_models}
    assert sorted(models) == ["by another name", "drafted", "other", "plain"]
    assert models["other"]["max_model_len"] == 512
    assert models["plain"]["aerie"]["speculations"][0] == "none"
    assert models["plain"]["status"] == {"value": "loaded"}


@pytest.mark.parametrize("models, said", [
    ("{", "--models"),
    ("[]", "an object"),
    ("{}", "an object"),
    ('{"a": {}}', "there is no model"),
    ('{"a": {"model": "no/such/file"}}', "no such file"),
    ('{"a": {"model": "MODEL", "speculat": "none"}}', "'speculat'"),
    ('{"a": {"model": "MODEL", "speculate": "nothing"}}', "a: "),
    ('{"a": {"model": "MODEL", "port": 1}}', "whole server"),
    ('{"a": {"model": "MODEL", "served-model-name": "b"}, "b": {"model": "MODEL"}}', "are called b"),
])
def test_what_cannot_be_is_said_at_start(program, model_file, tmp_path, models, said):
    path = tmp_path / "models.json"
    path.write_text(models.replace("MODEL", model_file))
    done = subprocess.run([program, "serve", "--models", path, "--port", "0"], timeout=60,
                          capture_output=True, text=True)
    assert done.returncode in (1, 2), done.stderr
    assert said in done.stderr


def test_a_folder_of_models(program, model_file, tmp_path):
    for name in ("one", "two"):
        (tmp_path / f"{name}.gguf").symlink_to(model_file)
    (tmp_path / "notes.txt").write_text("no model")
    server = serving.Server(program, None, "--models-dir", str(tmp_path), "--cache-tokens", "4096")
    try:
        assert ids(server, "two", 1) == ids(server, "one", 1)
    finally:
        assert server.stop() == 0
