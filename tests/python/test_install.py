"""The wheel in an empty environment: nothing else is needed, and the program is there."""

import os
import pathlib
import subprocess
import sys
import zipfile

import pytest


def test_the_wheel_holds_what_it_should(wheel):
    if wheel is None:
        pytest.skip("no wheel is named: --wheel")
    assert os.path.getsize(wheel) < 30 << 20
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        metadata = archive.read(next(name for name in names if name.endswith("/METADATA"))).decode()
    # What an extra asks for is for who asks for the extra.
    needed = [line for line in metadata.splitlines() if line.startswith("Requires-Dist") and "extra ==" not in line]
    assert not needed
    for name in ("aerie/py.typed", "aerie/_core.pyi", "aerie/bin/aerie", "aerie/libaerie.so.0.1"):
        assert name in names
    assert not [name for name in names if "torch" in name or "numpy" in name]


def test_an_empty_environment(wheel, tiny, tmp_path):
    if wheel is None:
        pytest.skip("no wheel is named: --wheel")
    environment = tmp_path / "environment"
    # pip of the tests' own environment installs it there.
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
    python = environment / "bin/python"
    subprocess.run([sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-index",
                    "--disable-pip-version-check", wheel], check=True)
    code = ("import sys, aerie; from aerie import LLM, SamplingParams\n"
            "print(len(LLM(sys.argv[1]).generate('x', SamplingParams(max_tokens=5, ignore_eos=True))[0]"
            ".outputs[0].token_ids), [one for one in ('torch', 'numpy') if one in sys.modules])")
    told = subprocess.run([python, "-c", code, tiny], check=True, capture_output=True, text=True, env={}, cwd=tmp_path)
    assert told.stdout == "5 []\n"
    program = environment / "bin/aerie"
    version = subprocess.run([program, "--version"], check=True, capture_output=True, text=True, env={})
    assert version.stdout.startswith("aerie ")
    text = subprocess.run([program, "run", "-m", tiny, "--raw", "-p", "x", "-n", "4"], capture_output=True, check=True,
                          env={})
    assert text.stdout and pathlib.Path(program).is_file()
