"""Files that are cut short, overwritten, replaced or fail while they are in use: no process ends, and no
reply has a wrong token."""

import concurrent.futures
import json
import os
import pathlib
import shutil
import subprocess
import threading
import urllib.request

import pytest

from conftest import NIGHTLY, ROOT, Server, wait_for
from failing_disk import FailingDisk

CLIENTS = 16
HEADS = ROOT / "models/heads"
EAGLE = "SmolLM2-135M-Instruct-EAGLE3"
DRAFT = "SmolLM2-135M-Instruct-draft"
CORPUS = "one two three four five six seven\n" * 50


def with_equal_bytes(path):
    """What `cp` does: cut to nothing, then written."""
    data = path.read_bytes()
    path.write_bytes(data)


def with_zeros(path):
    size = path.stat().st_size
    with open(path, "r+b") as file:
        for _ in range(0, size, 1 << 20):
            file.write(bytes(1 << 20))
        file.truncate(size)


def cut_in_half(path):
    os.truncate(path, path.stat().st_size // 2)


def cut_to_nothing(path):
    os.truncate(path, 0)


def replaced(path):
    other = path.with_name("other")
    other.write_bytes(b"something else")
    os.replace(other, path)


def removed(path):
    path.unlink()


DAMAGES = [with_equal_bytes, with_zeros, cut_in_half, cut_to_nothing, replaced, removed]


class Crowd:
    """Clients that ask until they are stopped; each reply is compared with that of an untouched server."""

    def __init__(self, server, speculations):
        self.server, self.speculations = server, speculations
        self.done, self.wrong = 0, []
        self._lock, self._stop = threading.Lock(), threading.Event()
        self.expected = [self._ask(number) for number in range(CLIENTS)]

    def _ask(self, number):
        body = {"prompt": f"Story {number}: one two three four", "max_tokens": 8 + number % 5,
                "temperature": 0.8 if number % 2 else 0, "seed": number, "return_token_ids": True,
                "ignore_eos": True, "speculation": {"method": self.speculations[number % len(self.speculations)]}}
        request = urllib.request.Request(self.server.url + "/v1/completions", json.dumps(body).encode(),
                                         {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=300) as answer:
            return json.load(answer)["choices"][0]["token_ids"]

    def _client(self, number):
        while not self._stop.is_set():
            try:
                ids = self._ask(number)
            except OSError as error:
                ids = error
            with self._lock:
                self.done += 1
                if ids != self.expected[number]:
                    self.wrong.append((number, ids))
            if not isinstance(ids, list):
                return

    def run(self, damages):
        """Does each in turn while all are served."""
        with concurrent.futures.ThreadPoolExecutor(CLIENTS) as pool:
            clients = [pool.submit(self._client, number) for number in range(CLIENTS)]
            try:
                for damage in damages:
                    before = self.done
                    damage()
                    wait_for(lambda: self.done >= before + 2 * CLIENTS or self.wrong, 240, "another reply")
            finally:
                self._stop.set()
            for client in clients:
                client.result()
        assert not self.wrong
        assert self.server.process.poll() is None


def copies(folder, model_file):
    model = pathlib.Path(shutil.copy(model_file, folder / "model.gguf"))
    eagle = pathlib.Path(shutil.copytree(HEADS / EAGLE, folder / "eagle"))
    draft = pathlib.Path(shutil.copy(next((HEADS / DRAFT).glob("*.gguf")), folder / "draft.gguf"))
    corpus = folder / "corpus.txt"
    corpus.write_text(CORPUS)
    return model, eagle, draft, corpus


def test_files_in_use(program, model_file, tmp_path):
    model, eagle, draft, corpus = copies(tmp_path, model_file)
    server = Server(program, str(model), "--cache-tokens", "16384", "--speculate", "ngram",
                    "--offer", f"eagle3:model={eagle}", "--offer", f"draft_model:model={draft}",
                    "--offer", f"rest:corpus={corpus}")
    try:
        crowd = Crowd(server, ["ngram", "eagle3", "draft_model", "rest"])
        files = [model, eagle / "model.safetensors", eagle / "config.json", draft, corpus]
        crowd.run([lambda damage=damage: list(map(damage, files)) for damage in DAMAGES])
    finally:
        assert server.stop() == 0


def ask_once(program, model, figures, *flags):
    return subprocess.Popen([program, "run", "-m", str(model), "-p", "one two three", "-n", "8", "--temp", "0",
                             "--json", str(figures), *flags], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def ids_of(figures):
    return json.loads(figures.read_text())["token_ids"]


def test_files_while_they_are_read(program, model_file, tmp_path):
    """At every moment of loading: an error that names the file, or the right tokens."""
    figures = tmp_path / "figures.json"
    head = ["--speculate", f"eagle3:model={tmp_path / 'eagle'}"]
    copies(tmp_path, model_file)
    assert ask_once(program, model_file, figures, *head).wait(120) == 0
    expected, refused = ids_of(figures), 0
    rounds = 30 if NIGHTLY else 15  # of each damage to each file at least one
    for number in range(rounds):
        shutil.rmtree(tmp_path / "eagle")
        model, eagle, _, _ = copies(tmp_path, model_file)
        damage = (with_equal_bytes, with_zeros, cut_in_half)[number % 3]
        damaged = eagle / "model.safetensors" if number % 5 == 4 else model
        figures.unlink(missing_ok=True)
        process = ask_once(program, model, figures, *head)
        try:
            process.wait(0.6 / rounds * number)
        except subprocess.TimeoutExpired:
            damage(damaged)
        _, said = process.communicate(timeout=120)
        assert process.returncode in (0, 1), (number, damage, process.returncode, said)
        if process.returncode == 0:
            assert ids_of(figures) == expected, (number, damage)
        else:
            refused += 1
            assert str(damaged).encode() in said, said
            assert not figures.exists()
    assert refused > 0


@pytest.fixture
def disk(tmp_path, model_file):
    folder = tmp_path / "disk"
    folder.mkdir()
    try:
        disk = FailingDisk(folder, model_file)
    except OSError as error:
        pytest.skip(f"no file system can be mounted here: {error}")
    yield disk
    disk.close()


def test_a_disk_that_fails_while_it_is_read(program, model_file, disk, tmp_path):
    figures = tmp_path / "figures.json"
    assert ask_once(program, disk.path, figures).wait(120) == 0
    expected = ids_of(figures)
    size = os.path.getsize(model_file)
    for part in (0, 0.01, 0.1, 0.5, 0.9, 0.999):
        disk.fail_from = int(size * part)
        with open(disk.path, "rb") as file:  # what was read is not asked for again
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        process = ask_once(program, disk.path, figures)
        _, said = process.communicate(timeout=120)
        assert process.returncode == 1, (part, said)
        assert disk.path.encode() in said and b"disk fails" in said, said
    assert ids_of(figures) == expected


def test_a_disk_that_fails_in_use(program, disk):
    server = Server(program, disk.path, "--cache-tokens", "16384", "--speculate", "ngram")
    try:
        def fail():
            disk.fail_from = 0
            with open(disk.path, "rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

        Crowd(server, ["ngram"]).run([fail])
    finally:
        assert server.stop() == 0
