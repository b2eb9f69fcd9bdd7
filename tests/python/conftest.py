"""The models that the tests open, and the engines that they share."""

import os
import pathlib
import signal
import subprocess
import sys

import pytest

import aerie
import aerie.program

# Tests interrupt themselves and programs, which in the background of a shell would be deaf to it.
signal.signal(signal.SIGINT, signal.default_int_handler)

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
def thinker(tiny, tmp_path_factory):
    """The tiny model with a chat template in whose replies there is reasoning, and calls."""
    sys.path.insert(0, str(ROOT / "tests/tools"))
    from more_metadata import with_metadata  # pylint: disable=import-outside-toplevel,import-error

    path = tmp_path_factory.mktemp("model") / "thinker.gguf"
    template = ("{% for m in messages %}<{{ m.role }}>{{ m.content.split('</think>')[-1] }}"
                "{% for c in m.tool_calls or [] %}<tool_call>\n{{ c.function | tojson }}"
                "<place={{ c.function.arguments.place }}>\n</tool_call>{% endfor %}</s>{% endfor %}"
                "{% for t in tools or [] %}{{ t | tojson }}{% endfor %}"
                "{% if add_generation_prompt %}<assistant><think>\n{% endif %}")
    with_metadata(pathlib.Path(tiny), path, {"tokenizer.chat_template": template})
    with aerie.LLM(str(path), speculative_config=None) as one:
        yield one


@pytest.fixture(scope="session")
def real():
    if not os.path.exists(REAL):
        pytest.skip(f"{REAL} is missing: scripts/fetch_model.sh gets it")
    return str(REAL)


@pytest.fixture(scope="session")
def trainer():
    """aerie-train, which run.sh names."""
    path = os.environ.get("AERIE_TRAIN", "")
    known = [path, "eagle3", "--help"]
    if not os.path.exists(path) or subprocess.run(known, capture_output=True, check=False).returncode != 0:
        pytest.skip("there is no aerie-train with LibTorch: scripts/install_deps.sh --train, then build it")
    return path


@pytest.fixture(scope="session")
def llm(real):
    with aerie.LLM(real) as one:
        yield one


@pytest.fixture(scope="session")
def plain(tiny):
    """Plain decoding with the tiny model."""
    with aerie.LLM(tiny, speculative_config=None, max_model_len=256) as one:
        yield one
