"""bench/serve_gain.py measures what it says: both servers work, rounds are counted, bad input is named."""

import json
import re
import subprocess
import sys

from conftest import ROOT

SCRIPT = str(ROOT / "bench/serve_gain.py")


def gain(program, model_file, *flags):
    return subprocess.run([sys.executable, SCRIPT, "--aerie", program, "--model", model_file, "--prompts", "2",
                           "--clients", "2", "--rounds", "2", "--max-tokens", "8", *flags],
                          capture_output=True, text=True, timeout=300)


def test_a_row_of_the_table(program, model_file, tmp_path):
    sets = []
    for key in ("question", "prompt"):
        sets.append(tmp_path / f"{key}.jsonl")
        sets[-1].write_text("".join(json.dumps({key: f"A {key}: what is {n} and one?"}) + "\n" for n in range(3)))
    done = gain(program, model_file, "--dataset", *map(str, sets))
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(r"\| 2 \| \d+ → \d+ \| \d+\.\d+ ± \d+\.\d+ \(2\) \| .* s \| .* ms \|\n", done.stdout)
    assert [line.split(":")[0] for line in done.stderr.splitlines()] == ["warm-up", "round 1", "round 2"]


def test_too_few_prompts(program, model_file, tmp_path):
    path = tmp_path / "one.jsonl"
    path.write_text('{"turns": ["One"]}\n' * 6)  # each text counts once
    done = gain(program, model_file, "--dataset", str(path))
    assert done.returncode == 2 and "1 prompts; 2 rounds and a warm-up take 6" in done.stderr
