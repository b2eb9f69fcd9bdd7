"""The models that the tests open, and the engines that they share."""

import os
import pathlib
import subprocess

import pytest

import aerie
import aerie.program

ROOT = pathlib.Path(__file__).resolve().parents[2]
REAL = ROOT / "models/SmolLM2-135M-Instruct.Q4_1.gguf"
# One that always drafts, whatever pays.
ALWAYS = {"method": "ngram", "num_speculative_tokens": 4, "gate": False}


def pytest_addoption(parser):
    parser.addoption("--wheel", default=None)


@pytest.fixture(scope="session")
def wheel(request):
    return request.config.getoption("--wheel")


@pytest.fixture(scope="session")
def program():
    """The wheel's own `aerie`."""
    return str(aerie.program.PROGRAM)


@pytest.fixture(scope="session")
def tiny(program, tmp_path_factory):
    """A model of random weights that answers in no time."""
    path = tmp_path_factory.mktemp("model") / "tiny.gguf"
    subprocess.run([program, "bench", "make-model", "--shape", "tiny", "--type", "q8_0", path], check=True,
                   stdout=subprocess.DEVNULL)
    return str(path)


@pytest.fixture(scope="session")
def real():
    if not os.path.exists(REAL):
        pytest.skip(f"{REAL} is missing: scripts/fetch_model.sh gets it")
    return str(REAL)


@pytest.fixture(scope="session")
def llm(real):
    with aerie.LLM(real) as one:
        yield one


@pytest.fixture(scope="session")
def plain(tiny):
    """Plain decoding with the tiny model."""
    with aerie.LLM(tiny, speculative_config=None, max_model_len=256) as one:
        yield one
