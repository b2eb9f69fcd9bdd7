"""One model in several processes that mpirun starts: the ids are those of one, and what goes wrong is said."""

import json
import os
import re
import shutil
import signal
import subprocess
import threading
import time

import pytest

import serving
from conftest import wait_for
from namespaces import at_once
from ranked import NAMED_WITHIN, PROMPT, Service, missing, run, under_mpirun


@pytest.fixture(scope="module")
def library(program):
    if missing(program):
        pytest.skip(missing(program))


def reply(program, model_file, *flags, ranks=1):
    command = [program, "run", "-m", model_file, "-p", PROMPT, "-n", "24", "--seed", "5", "--json", "-", "--threads",
               "1", *flags]
    if ranks > 1:
        command = under_mpirun(ranks, *command, "--tensor-parallel", str(ranks))
    done = run(*command)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def ids_of(report):
    return report["token_ids"]


@pytest.mark.parametrize("ranks", [2, 3])
def test_the_ids_of_one(library, program, model_file, ranks):
    flags = ["--temp", "0.8", "--speculate", "auto,ngram"]
    alone = reply(program, model_file, "--temp", "0.8", "--speculate", "none")
    together = reply(program, model_file, *flags, ranks=ranks)
    assert ids_of(together) == ids_of(alone)


def test_another_number_of_processes(library, program, model_file):
    done = run(*under_mpirun(2, program, "run", "-m", model_file, "-p", "x", "-n", "1", "--tensor-parallel", "3"))
    assert done.returncode != 0
    assert "type mpirun -np 3 before the command" in done.stderr
    done = run(program, "run", "-m", model_file, "-p", "x", "-n", "1", "--tensor-parallel", "2")
    assert done.returncode != 0
    assert "one process was started" in done.stderr


def test_another_file(library, program, model_file, tmp_path):
    other = tmp_path / "other.gguf"
    subprocess.run([program, "convert", model_file, other, "--type", "q4_0", "--requantize"], check=True, timeout=120)
    flags = ["run", "-p", "x", "-n", "1", "--tensor-parallel", "2", "-m"]
    done = run(*under_mpirun(1, program, *flags, model_file), ":", "-np", "1", program, *flags, str(other))
    assert done.returncode != 0
    assert re.search(r"rank 1 .*is not the file that the leader has", done.stderr), done.stderr


def test_a_model_that_is_not_there(library, program):
    done = run(*under_mpirun(2, program, "run", "-m", "nowhere.gguf", "-p", "x", "--tensor-parallel", "2"))
    assert done.returncode != 0
    assert done.stderr.count("nowhere.gguf") == 1, "one rank says it"


def test_without_open_mpi(program, model_file, tmp_path):
    alone = shutil.copy(program, tmp_path / "aerie")
    done = run(alone, "run", "-m", model_file, "-p", "x", "-n", "1", "--tensor-parallel", "2")
    assert done.returncode != 0
    (line,) = done.stderr.splitlines()
    assert "install Open MPI (apt install libopenmpi-dev openmpi-bin)" in line


@pytest.fixture
def served(library, program, model_file):
    """served(): one more server; none is left behind."""
    services = []

    def one_more():
        services.append(Service(program, model_file, preexec_fn=at_once))
        return services[-1]

    yield one_more
    for service in services:
        for rank in service.ranks().values():
            os.kill(rank, signal.SIGKILL)
        service.process.kill()


def test_a_server_and_its_end(served, program, model_file):
    alone = serving.Server(program, model_file)
    service = served()
    answers = {}

    def ask(seed):
        answers[seed] = service.ask(seed=seed)

    threads = [threading.Thread(target=ask, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for seed, ids in answers.items():
        assert ids == service.ask(alone.url, seed=seed)
    assert len(answers) == 6
    alone.stop()
    # An end that is asked for: the leader answers what it took, and all leave.
    os.kill(service.ranks()[0], signal.SIGTERM)
    said = service.wait()
    assert service.process.returncode == 0 and "ended" in said, said


@pytest.mark.parametrize("what", [signal.SIGKILL, signal.SIGSTOP])
def test_a_rank_that_is_lost(served, what):
    service = served()
    service.ask()
    lost = service.ranks()[1]
    begin = time.monotonic()
    os.kill(lost, what)
    wait_for(lambda: re.search(r"rank 1\b", "".join(service.log)), what="a word of it")
    taken = time.monotonic() - begin
    said = service.wait()
    assert service.process.returncode != 0
    # mpirun names the rank that was killed, the leader the one that is silent.
    print(f"rank 1 was named after {taken:.1f} s")
    assert taken < NAMED_WITHIN, said
    if what == signal.SIGSTOP:
        assert f"process {lost}) has not been heard of" in said
    again = served()
    assert len(again.ask()) == 24
    os.kill(again.ranks()[0], signal.SIGTERM)
    assert "ended" in again.wait()


def test_what_sharing_costs(library, program, model_file, tmp_path):
    figures = tmp_path / "ranks.json"
    command = [program, "bench", "ranks", "-m", model_file, "--rows", "1,4", "--repeat", "3", "--threads", "1", "--ranks",
               "1,2,8", "--latency-us", "100", "--gbits", "10", "--json", str(figures)]
    done = run(*under_mpirun(2, *command, "--tensor-parallel", "2"), preexec_fn=at_once)
    assert done.returncode == 0, done.stderr
    report = json.loads(figures.read_text())
    assert [point["rows"] for point in report["points"]] == [1, 4]
    one, four = report["points"]
    # Five times a layer and the logits; four times as much for four rows.
    assert one["messages"] == four["messages"] == 30 * 5 + 1
    assert four["bytes"] == 4 * one["bytes"]
    assert report["link"]["latency_us"] == pytest.approx(100)
    assert [choice["ranks"] for choice in report["choices"]] == [1, 2, 8]
    # A small model has nothing from eight machines that are 100 us apart.
    assert report["choices"][2]["tokens_per_second"] < report["choices"][0]["tokens_per_second"]
    alone = run(*command)
    assert alone.returncode != 0 and "type mpirun -np 2" in alone.stderr
