"""Heads that are tried while the server runs: a bad one goes by itself, and ids are those of none."""

import concurrent.futures
import contextlib
import json
import os
import pathlib
import random
import shutil
import struct
import subprocess

import pytest

import serving

HEAD = pathlib.Path(__file__).resolve().parents[3] / "models/heads/SmolLM2-135M-Instruct-EAGLE3"
PROMPTS = ["The lighthouse stood on a rock that", "one two three four five one two three", "def add(a, b):\n",
           "Dear Sir or Madam,\n\nI am writing to"]
MOST_REQUESTS = 200


@pytest.fixture(scope="module")
def bad_head(tmp_path_factory):
    """The trained head with random matrices."""
    folder = tmp_path_factory.mktemp("heads") / "bad"
    shutil.copytree(HEAD, folder)
    path = folder / "model.safetensors"
    data = bytearray(path.read_bytes())
    (length,) = struct.unpack("<Q", data[:8])
    draw = random.Random(3)
    for name, tensor in json.loads(data[8:8 + length]).items():
        if name != "__metadata__" and tensor["dtype"] == "I8":
            begin, end = (8 + length + at for at in tensor["data_offsets"])
            data[begin:end] = draw.randbytes(end - begin)
    path.write_bytes(data)
    return folder


class Admin:
    def __init__(self, program, model, folder, *flags):
        key = folder / "admin.key"
        key.write_text("an order\n")
        self.program, self.key = program, key
        self.server = serving.Server(program, model, "--admin-key-file", str(key), *flags)

    def ctl(self, *words, check=True):
        done = subprocess.run([self.program, "ctl", *words, "--url", self.server.url, "--key-file", self.key, "--json"],
                              capture_output=True, text=True, timeout=60)
        if not check:
            return done
        assert done.returncode == 0, done.stderr
        answer = json.loads(done.stdout)
        return answer["models"][0] if "models" in answer else answer

    def ids(self, number):
        return serving.post(self.server.url + "/v1/completions", {
            "prompt": PROMPTS[number % len(PROMPTS)], "seed": number % 8, "temperature": number % 2, "max_tokens": 32,
            "ignore_eos": True, "return_token_ids": True})["choices"][0]["token_ids"]


@contextlib.contextmanager
def admin_of(program, model_file, folder):
    one = Admin(program, model_file, folder, "--speculate", "none", "--cache-tokens", "8192")
    yield one
    assert one.server.stop() == 0


@pytest.fixture
def admin(program, model_file, tmp_path):
    with admin_of(program, model_file, tmp_path) as one:
        yield one


@pytest.fixture(scope="module")
def unchanged(program, model_file, tmp_path_factory):
    """For those whose orders change nothing."""
    with admin_of(program, model_file, tmp_path_factory.mktemp("unchanged")) as one:
        yield one


def test_a_bad_head_is_rolled_back(admin, bad_head):
    alone = [admin.ids(number) for number in range(8)]
    begun = admin.ctl("canary", f"eagle3:model={bad_head}", "--steps", "0.3")
    assert begun["canary"]["share"] == 0.3
    asked = 0
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        while admin.ctl("status")["canary"] is not None and asked < MOST_REQUESTS:
            for number, ids in enumerate(pool.map(admin.ids, range(8))):
                assert ids == alone[number]
            asked += 8
    status = admin.ctl("status")
    assert status["canary"] is None, f"after {asked} requests"
    assert status["present"] == "none"
    assert "rolled back" in status["last"]
    serving.wait_for(lambda: any("is rolled back" in line for line in admin.server.log), what="the message")


def test_orders_by_hand(admin, bad_head):
    alone = admin.ids(1)
    assert admin.ctl("canary", f"eagle3:gate=0,model={HEAD}", "--steps", "0.5")["canary"]["speculate"].startswith("eagle3")
    assert admin.ctl("promote")["present"].startswith("eagle3")
    assert admin.ids(1) == alone
    drafted = serving.post(admin.server.url + "/v1/completions", {"prompt": PROMPTS[0], "max_tokens": 32})
    assert drafted["aerie"]["drafted"] > 0
    assert admin.ctl("rollback")["present"] == "none"
    assert admin.ids(1) == alone


def test_a_head_on_paper(admin):
    alone = [admin.ids(number) for number in range(8)]
    admin.ctl("shadow", f"eagle3:model={HEAD}", "--share", "1")
    assert [admin.ids(number) for number in range(8)] == alone
    shadow = admin.ctl("status")["shadow"]
    assert shadow["replies"] == 8
    assert shadow["accepted_length"] > 1.2
    assert shadow["draft_ms"] > 0
    assert admin.ctl("shadow-end")["shadow"] is None


@pytest.mark.parametrize("words, said", [
    (["canary", "eagle3:model=no/such/head"], "no/such/head"),
    (["canary", "nothing"], "nothing"),
    (["canary", "ngram", "--steps", "0.5,0.2"], "rise"),
    (["canary", "ngram", "--model", "other"], "no such model"),
    (["shadow", "ngram", "--share", "2"], "share"),
    (["shadow-end"], "nothing drafts on paper"),
    (["promote"], "no canary"),
    (["rollback"], "nothing to roll back"),
    (["unload", "other"], "no such model"),
])
def test_orders_that_cannot_be_carried_out(unchanged, words, said):
    done = unchanged.ctl(*words, check=False)
    assert done.returncode == 2, done.stdout
    assert said in done.stderr


def test_without_a_key_nobody_gives_orders(program, unchanged, tmp_path):
    def ctl(*words):
        settings = {key: value for key, value in os.environ.items() if key != "AERIE_ADMIN_KEY"}
        return subprocess.run([program, "ctl", "status", *words], env=settings, capture_output=True, text=True, timeout=60)

    assert "AERIE_ADMIN_KEY" in ctl("--url", unchanged.server.url).stderr
    wrong = tmp_path / "wrong.key"
    wrong.write_text("another\n")
    assert "401" in ctl("--url", unchanged.server.url, "--key-file", str(wrong)).stderr
    assert ctl("--url", "http://127.0.0.1:9", "--key-file", str(wrong)).returncode == 1
