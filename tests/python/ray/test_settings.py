"""What is wrong is said: settings, and Ray that is not there. And what the router goes by."""

import json
import subprocess
import sys

import pytest

import aerie.ray
from aerie.ray.fleet_metrics import merged_metrics
from aerie.ray.prefix_router import BLOCK, PrefixTable, path_of
from aerie.ray.settings import read_settings


@pytest.mark.parametrize("given, message", [
    ({}, "no model: give model=FILE, or set AERIE_RAY_MODEL"),
    ({"model": "m", "treads": 2}, "treads"),
    ({"model": "m", "threads": "many"}, "threads"),
    ({"model": "m", "threads": 0}, "threads"),
    ({"model": "m", "routing": "random"}, "routing"),
    ({"model": "m", "min_replicas": 3, "max_replicas": 2}, "min_replicas is 3, and max_replicas only 2"),
    ({"model": "m", "flags": "--port 8000"}, "--port is the application's own to say"),
])
def test_wrong_settings(given, message):
    with pytest.raises(ValueError) as error:
        read_settings(given, {})
    assert message in str(error.value) and "\n" not in str(error.value)


def test_settings_of_the_environment():
    settings = read_settings({"threads": "2"}, {"AERIE_RAY_MODEL": "ORG/REPO", "AERIE_RAY_THREADS": "9",
                                                "AERIE_RAY_FLAGS": "--max-num-seqs 4 --alias 'a b'"})
    assert (settings.model, settings.threads) == ("ORG/REPO", 2)
    assert settings.flags == ["--max-num-seqs", "4", "--alias", "a b"]
    assert aerie.ray.app({"model": "m"}) is not None


def test_without_ray():
    code = "import sys; sys.modules['ray'] = None; import aerie.ray"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    last = ended.stderr.splitlines()[-1]
    assert ended.returncode == 1 and last.startswith("ImportError: aerie.ray needs Ray")
    assert last.endswith("pip install 'ray[serve]'")


def chat(*contents):
    return json.dumps({"model": "m", "messages": [{"role": "user", "content": text} for text in contents]}).encode()


def test_paths_are_those_of_prompts():
    long = "x" * 4 * BLOCK
    one, other = path_of(chat(long, "a question")), path_of(chat(long, "another question, which is longer"))
    assert len(one) >= 4 and one[:4] == other[:4]
    assert path_of(chat("y" + long))[0] != one[0]
    assert path_of(chat(long), tenant="b")[0] != one[0]
    same = {"temperature": 1, "messages": json.loads(chat(long))["messages"]}
    assert path_of(json.dumps(same).encode())[:4] == one[:4]
    assert path_of(json.dumps({"prompt": list(range(500))}).encode())
    for body in (b"", b"{", b"[1]", b'{"prompt": "short"}', b"\xff"):
        assert path_of(body) == []


def test_the_table():
    table = PrefixTable(most_blocks=6)
    table.add([b"1", b"2", b"3"], "a")
    table.add([b"1", b"4"], "b")
    live = {"a": 1, "b": 1}
    assert table.find([b"1", b"2", b"9"], live) == "a"
    assert table.find([b"1", b"4"], live) == "b"
    assert table.find([b"7"], live) is None
    assert table.find([b"1", b"4"], {"a": 1}) is None
    table.remove("b")
    assert table.find([b"1"], live) is None and table.find([b"1", b"2"], live) == "a"
    table.add([bytes([i]) for i in range(6)], "b")
    assert table.find([b"2"], live) is None, "the oldest have gone"


def test_metrics_of_several():
    page = '# HELP x what\n# TYPE x counter\nx{{m="1"}} {0}\n# HELP y other\n# TYPE y gauge\ny {0}\n'
    assert merged_metrics([("a", page.format(1)), ("b", page.format(2))]) == (
        '# HELP x what\n# TYPE x counter\nx{replica="a",m="1"} 1\nx{replica="b",m="1"} 2\n'
        '# HELP y other\n# TYPE y gauge\ny{replica="a"} 1\ny{replica="b"} 2\n')
