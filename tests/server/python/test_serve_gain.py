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
    assert re.fullmatch(r"\| 2 \| 0 \| \d+ → \d+ \| \d+\.\d+ ± \d+\.\d+ \(2\) \| .* s \| .* ms \|\n", done.stdout)
    assert [line.split(":")[0] for line in done.stderr.splitlines()] == ["warm-up", "round 1", "round 2"]


def test_draws(program, model_file, tmp_path):
    path = tmp_path / "prompts.jsonl"
    path.write_text("".join(json.dumps({"turns": [f"What is {n} and one?"]}) + "\n" for n in range(6)))
    done = gain(program, model_file, "--dataset", str(path), "--temperature", "1")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("| 2 | 1 | ")


def test_no_prompt(program, model_file, tmp_path):
    path = tmp_path / "broken.jsonl"
    path.write_text('{"turns": ["One"]}\n{"answer": 2}\n')
    done = gain(program, model_file, "--dataset", str(path))
    assert done.returncode == 2 and f"{path}:2 is no prompt" in done.stderr


def test_the_interval():
    sys.path.insert(0, str(ROOT / "scripts"))
    import student

    # 97.5 % of Student's distribution as tables have it.
    known = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 11: 2.201, 20: 2.086, 29: 2.045}
    assert {n: round(student.quantile_975(n), 3) for n in known} == known
    assert student.interval([1.0, 1.0, 1.0]) == (1.0, 0.0)


def test_too_few_prompts(program, model_file, tmp_path):
    path = tmp_path / "one.jsonl"
    path.write_text('{"turns": ["One"]}\n' * 6)  # each text counts once
    done = gain(program, model_file, "--dataset", str(path))
    assert done.returncode == 2 and "1 prompts; 2 rounds and a warm-up take 6" in done.stderr
