"""aerie.train() and aerie.speedup(): a real head of a tiny model, what is told on the way, and what ends it."""

import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import threading
import time

import pytest

import aerie
from aerie import LLM, SamplingParams

WORDS = ["river", "stone", "light", "house", "paper", "music", "winter", "garden", "letter"]


@pytest.fixture(scope="module")
def data(trainer, tiny, tmp_path_factory):
    """Answers of the tiny model, to train on."""
    folder = tmp_path_factory.mktemp("training")
    draw = random.Random(1)
    prompts = folder / "prompts.jsonl"
    prompts.write_text("".join(json.dumps({"prompt": " ".join(draw.choices(WORDS, k=5))}) + "\n" for _ in range(160)))
    events = []
    result = aerie.train("data", model=tiny, prompts=[prompts], plain=[prompts], out=folder / "data", max_tokens=48,
                         temperature=[0.3, 0.5], held_out=0.1, no_template=True, threads=2, progress=events.append)
    assert result.complete and result.head is None
    assert result.figures["samples"] == 160 and result.figures["generated"] > 160 * 10
    temperatures = {json.loads(line)["temperature"] for line in (folder / "data/answers-1-of-1.jsonl").open()}
    assert temperatures == {0.3, 0.5}
    assert "160 were made" in events[-1].text
    return folder / "data"


def settings(tiny, data, out, **more):
    return {"model": tiny, "data": data, "out": out, "batch_tokens": 256, "learning_rate": 3e-3, "eval_prompts": 6,
            "eval_tokens": 32, "eval_temperature": 0.3, "threads": 1, "log_steps": 2, **more}


def test_a_head_is_trained_and_used(tiny, plain, data, tmp_path):
    events = []
    result = aerie.train("eagle3", **settings(tiny, data, tmp_path / "run", steps=20, eval_steps=10),
                         progress=events.append)
    steps = [event for event in events if event.kind == "step"]
    assert [event.step for event in steps] == list(range(2, 21, 2))
    assert [event.share for event in steps] == pytest.approx([step / 20 for step in range(2, 21, 2)])
    assert all(event.figures["loss"] > 0 and event.tokens > 0 and event.seconds > 0 for event in steps)
    evaluations = [event for event in events if event.kind == "evaluation"]
    assert [event.step for event in evaluations] == [10, 20]
    assert result.complete and result.model == tiny
    assert result.head == str(tmp_path / "run/best") and os.path.isfile(result.head + "/model.safetensors")
    assert result.tau == max(event.figures["tau"] for event in evaluations)
    assert result.figures["steps"] == 20 and result.head in result.commands[0]

    prompts = ["river stone light", "music winter house paper"]
    params = SamplingParams(temperature=0.3, seed=1, max_tokens=40, ignore_eos=True)
    expected = [output.outputs[0].token_ids for output in plain.generate(prompts, params)]
    with LLM(result.model, speculative_config=result.speculative_config + ",gate=0", max_model_len=256) as llm:
        outputs = [output.outputs[0] for output in llm.generate(prompts, params)]
    assert [output.token_ids for output in outputs] == expected
    assert all(output.speculation.drafted_tokens > 0 for output in outputs)

    # All is there already.
    again = aerie.train("eagle3", **settings(tiny, data, tmp_path / "run", steps=20, eval_steps=10), progress=False)
    assert again == result


def test_ctrl_c_stops_it_and_the_same_call_goes_on(tiny, data, tmp_path, capsys):
    options = settings(tiny, data, tmp_path / "run", steps=24, eval_prompts=0, log_steps=1)

    def interrupt(event):
        if event.kind == "step" and event.step >= 5:
            os.kill(os.getpid(), signal.SIGINT)  # this process alone hears of it
            time.sleep(5)

    with pytest.raises(KeyboardInterrupt):
        aerie.train("eagle3", **options, progress=interrupt)
    report = json.loads((tmp_path / "run/report.json").read_text())
    assert report["end"] == "interrupted" and 5 <= report["steps"] < 24
    assert list((tmp_path / "run").glob(f"checkpoint-*{report['steps']}.safetensors"))

    result = aerie.train("eagle3", **options)
    assert result.complete and result.figures["end"] == "done" and result.figures["steps"] == 24
    told = capsys.readouterr().err
    assert f"Going on after step {report['steps']}" in told and "trained 24 steps" in told
    # What comes of it is what comes of a training that nobody stopped.
    whole = aerie.train("eagle3", **{**options, "out": tmp_path / "whole"}, progress=False)
    assert whole.complete
    name = "final/model.safetensors"
    assert (tmp_path / "run" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_the_iterator_is_left_and_stopped(tiny, data, tmp_path):
    options = settings(tiny, data, tmp_path / "run", steps=100000, eval_prompts=0, log_steps=1)
    with aerie.start_training("eagle3", **options) as job:
        for event in job:
            if event.kind == "step":
                break
    assert any("interrupted after step" in event.text for event in job)
    result = job.result()
    assert not result.complete and result.figures["end"] == "interrupted"

    job = aerie.start_training("eagle3", **options)
    threading.Timer(2, job.stop).start()
    assert not job.result().complete

    job = aerie.start_training("eagle3", **options)
    process = job._process
    next(job)
    del job
    assert process.wait(60) in (130, -signal.SIGINT)


def test_ctrl_c_in_a_terminal(tiny, data, tmp_path, trainer):
    """The program hears of it itself, and the exception comes once it has ended."""
    code = ("import aerie, json, sys\n"
            "try: aerie.train('eagle3', **json.loads(sys.argv[1]))\n"
            "except KeyboardInterrupt: print('stopped', flush=True)\n")
    options = settings(tiny, str(data), str(tmp_path / "run"), steps=100000, eval_prompts=0, log_steps=1)
    process = subprocess.Popen([sys.executable, "-c", code, json.dumps(options)], stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True, start_new_session=True)
    log = tmp_path / "run/log.jsonl"
    end = time.monotonic() + 60
    while not log.exists() and time.monotonic() < end:
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert out == "stopped\n" and process.returncode == 0, err
    assert "the same command goes on" in err


def test_speedup(trainer, tiny, tmp_path):
    prompts = tmp_path / "prompts.jsonl"
    draw = random.Random(2)
    prompts.write_text("".join(json.dumps({"prompt": " ".join(draw.choices(WORDS, k=5))}) + "\n" for _ in range(64)))
    events = []
    settings = {"out": tmp_path / "speedup", "prompts": [prompts], "threads": 1}
    for seconds in (8, 60, 240):
        try:
            result = aerie.speedup(tiny, budget=f"{seconds}s", **settings, progress=events.append)
            break
        except aerie.InvalidArgumentError as error:  # a machine with much else to do
            assert "give at least" in str(error)
    said = "\n".join(event.text for event in events if event.kind == "message")
    assert "1. Data:" in said and "2. Training:" in said and "3. Evaluation:" in said
    assert any(event.kind == "step" for event in events)
    assert result.complete and result.head == str(tmp_path / "speedup/head")
    assert result.tau >= 1 and result.speedup >= 1 and result.commands[0].startswith("aerie run -m ")
    assert result.figures["data"]["samples"] > 0
    with LLM(result.model, speculative_config=result.speculative_config, profile=result.profile,
             max_model_len=256) as llm:
        assert llm.generate("river stone", SamplingParams(max_tokens=4, ignore_eos=True))[0].outputs[0].token_ids
    with pytest.raises(aerie.InvalidArgumentError, match=f"budget {seconds} s there, 9 s now"):
        aerie.speedup(tiny, budget=9, **settings, progress=False)


def script(path, text):
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(0o755)
    return path


def test_what_is_wrong_is_said(trainer, tiny, tmp_path, monkeypatch):
    for flags, message in [({"foo_bar": 1}, "no flag --foo-bar"), ({"steps": "many"}, "--steps"),
                           ({"data": tmp_path / "none", "steps": 1}, "none")]:
        with pytest.raises(aerie.AerieError, match=message):
            aerie.train("eagle3", **{"model": tiny, "data": tmp_path, "out": tmp_path / "run", **flags}, progress=False)
    with pytest.raises(aerie.InvalidArgumentError, match="there is no command eagel .did you mean eagle"):
        aerie.train("eagel", progress=False)
    with pytest.raises(aerie.TrainingError, match=r"^missing.gguf: there is no such file"):
        aerie.speedup("missing.gguf", out=tmp_path / "speedup", progress=False)
    for method in ("--help", "", None):
        with pytest.raises(TypeError, match="method"):
            aerie.train(method)
    with pytest.raises(ValueError, match="aerie.speedup"):
        aerie.train("speedup")
    with pytest.raises(TypeError, match="steps"):
        aerie.train("eagle3", steps={})

    killed = script(tmp_path / "killed", "echo begun >&2; kill -9 $$")
    with pytest.raises(aerie.TrainingError, match="SIGKILL; the same call goes on"):
        aerie.train("eagle3", program=killed, progress=False)
    shows = script(tmp_path / "shows", 'for word; do echo "$word" >&2; done; echo "error: two\nlines" >&2; exit 2')
    events = []
    with pytest.raises(aerie.InvalidArgumentError, match="^two\nlines$"):
        aerie.train("eagle3", model=pathlib.Path("m"), tap_layers=[1, 2], threads=1, heads_alone=True, plus_plus=False,
                    init=None, program=shows, progress=events.append)
    assert [event.text for event in events][:6] == ["eagle3", "--model=m", "--tap-layers=1", "--tap-layers=2",
                                                    "--threads=1", "--heads-alone"]
    assert events[6].text == "--plus-plus=false"

    def refuse(_):
        raise ZeroDivisionError

    slow = script(tmp_path / "slow", f"trap 'echo over >{tmp_path}/over; exit 130' INT\necho begun >&2\n"
                  "while :; do sleep 0.1; done")
    with pytest.raises(ZeroDivisionError):
        aerie.train("eagle3", program=slow, progress=refuse)
    assert (tmp_path / "over").exists()

    # Who does not want to wait for its end says so twice.
    deaf = script(tmp_path / "deaf", "trap '' INT\necho begun >&2\nwhile :; do sleep 0.1; done")
    begin = time.monotonic()
    job = aerie.start_training("eagle3", program=deaf)
    assert next(job).text == "begun"
    threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        job.close()
    assert job._process.returncode == -signal.SIGKILL and time.monotonic() - begin < 30

    monkeypatch.setenv("AERIE_TRAIN", "")
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(FileNotFoundError, match="(?s)LibTorch.*install_deps.sh --train.*AERIE_TRAIN"):
        aerie.train("eagle3")
    with pytest.raises(aerie.NotFoundError, match="program: .*nothing is no program"):
        aerie.train("eagle3", program=tmp_path / "nothing")
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "aerie").symlink_to("/bin/true")
    script(folder / "aerie-train", "echo error: found >&2; exit 1")
    monkeypatch.setenv("PATH", str(folder))
    with pytest.raises(aerie.TrainingError, match="^found$"):
        aerie.train("eagle3", progress=False)
