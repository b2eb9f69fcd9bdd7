"""A server that learns: what it answers trains its head further, the new head proves itself and is taken back."""

import concurrent.futures
import json
import random
import subprocess

import pytest

import serving
from conftest import NIGHTLY
from test_rollout import Admin

TEMPERATURE = 0.3  # greedy replies of random weights only loop
REPLY_TOKENS = 64
WORDS = "river stone light house paper music winter garden letter".split()
MOST_REPLIES = 2000  # after which half of what was lost must be back


def words(draw):
    return " ".join(draw.choice(WORDS) for _ in range(5)) + " "


def greek(draw):
    return "".join(draw.choice("αβγδεζηθ") for _ in range(12)) + " "


@pytest.fixture(scope="module")
def train(program):
    def run(*flags):
        done = subprocess.run([program, "train", *map(str, flags)], capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        return done.stderr
    return run


@pytest.fixture(scope="module")
def tiny(program, train, tmp_path_factory):
    """A target of random weights, and a head that has learned from answers to words; by day hardly anything."""
    folder = tmp_path_factory.mktemp("tiny")
    model, prompts = folder / "tiny.gguf", folder / "prompts.jsonl"
    subprocess.run([program, "bench", "make-model", model, "--shape", "tiny", "--type", "q8_0"], check=True,
                   capture_output=True)
    draw = random.Random(1)
    prompts.write_text("".join(json.dumps({"prompt": words(draw)}) + "\n" for _ in range(300 if NIGHTLY else 40)))
    train("data", "-m", model, "--prompts", prompts, "--no-template", "--temperature", TEMPERATURE, "--max-tokens",
          REPLY_TOKENS, "--held-out", "0.1", "--out", folder / "data")
    train("eagle3", "-m", model, "--data", folder / "data", "--out", folder / "run", "--steps", 40 if NIGHTLY else 2,
          "--batch-tokens", 1024, "--learning-rate", "3e-3", "--ttt-steps", 3, "--eval-prompts", 0, "--threads",
          1)
    return model, folder / "run/final"


def setting(head):
    return f"eagle3:gate=0,model={head},num_speculative_tokens=5"


class Traffic:
    """Requests of a kind, none twice, and how many tokens a round of their replies brought."""

    def __init__(self, url, kind, seed):
        self.url, self.kind, self.draw, self.asked = url, kind, random.Random(seed), 0

    def one(self, prompt, number, **more):
        return serving.post(self.url + "/v1/completions", {
            "prompt": prompt, "seed": number, "temperature": TEMPERATURE, "max_tokens": REPLY_TOKENS,
            "ignore_eos": True, "return_token_ids": True, **more})

    def tau(self, count, **more):
        prompts = [self.kind(self.draw) for _ in range(count)]
        self.asked += count
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            replies = list(pool.map(lambda pair: self.one(pair[1], pair[0], **more), enumerate(prompts)))
        rounds = sum(reply["aerie"]["rounds"] for reply in replies)
        # The first token of a reply comes of its prompt.
        return (sum(reply["usage"]["completion_tokens"] for reply in replies) - count) / rounds


def promote(admin, head, traffic):
    """Held-back traffic decides. Time is no measure of so small a model, so any will do."""
    admin.ctl("canary", setting(head), "--steps", "0.5", "--least-replies", "10", "--least-gain", "0.01",
              "--most-tail", "100")
    while admin.ctl("status")["canary"] is not None:
        traffic.tau(20)
        assert traffic.asked < MOST_REPLIES, admin.ctl("status")
    status = admin.ctl("status")
    assert str(head) in status["present"], status["last"]


def test_what_a_server_has_learned_trains_its_head(program, tiny, train, tmp_path):
    model, head = tiny
    learned, run = tmp_path / "learn", tmp_path / "run"
    server = serving.Server(program, model, "--speculate", setting(head), "--cache-tokens", "8192", "--learn", learned)
    Traffic(server.url, greek, 3).tau(40)
    assert server.stop() == 0
    said = train("eagle3", "-m", model, "--data", learned, "--continue", head, "--out", run, "--steps", 2,
                 "--batch-tokens", 512, "--ttt-steps", 2, "--eval-tokens", 16, "--eval-prompts", 2, "--threads", 1)
    assert "evaluation after step 0:" in said, said
    again = serving.Server(program, model, "--speculate", setting(run / "final"), "--cache-tokens", "8192")
    assert Traffic(again.url, greek, 4).tau(4) >= 1
    assert again.stop() == 0


if NIGHTLY:
    def test_a_head_follows_a_change_of_traffic(program, tiny, train, tmp_path):
        model, head = tiny
        learned, run = tmp_path / "learn", tmp_path / "run"
        admin = Admin(program, model, tmp_path, "--speculate", setting(head), "--cache-tokens", "8192", "--learn",
                      learned)
        url = admin.server.url
        before = Traffic(url, words, 2).tau(60)
        changed = Traffic(url, greek, 3)
        prompt = greek(random.Random(4))
        ids = changed.one(prompt, 1)["choices"][0]["token_ids"]
        lost = changed.tau(60)
        assert before > 1.6 and lost < before - 0.4, (before, lost)

        changed.tau(240)
        # What the server holds is on the disk within ten seconds.
        serving.wait_for(
            lambda: sum(path.read_text().count("\n") for path in learned.glob("answers-*")) > 300, what="data")
        said = train("eagle3", "-m", model, "--data", learned, "--continue", head, "--out", run, "--steps", 30,
                     "--batch-tokens", 1024, "--learning-rate", "3e-3", "--ttt-steps", 3, "--eval-temperature",
                     TEMPERATURE, "--eval-tokens", 32, "--eval-prompts", 8, "--threads", 1)
        assert "evaluation after step 0:" in said and "best after step 30" in said, said
        promote(admin, run / "best", changed)
        now = changed.tau(60)
        print(f"tau {before:.2f} before, {lost:.2f} after the change, {now:.2f} after {changed.asked} replies")
        assert now - lost >= 0.5 * (before - lost), (before, lost, now)
        assert changed.asked <= MOST_REPLIES
        # Whatever drafts, the ids are the same; and the head of before is there still.
        assert changed.one(prompt, 1)["choices"][0]["token_ids"] == ids
        assert changed.one(prompt, 1, speculation="none")["choices"][0]["token_ids"] == ids
        assert str(head) in admin.ctl("rollback")["present"]
        assert changed.one(prompt, 1)["choices"][0]["token_ids"] == ids
        assert admin.server.stop() == 0


def test_who_refuses_is_left_out_and_texts_go_nowhere_else(program, tiny, tmp_path):
    model, head = tiny
    learned = tmp_path / "learn"
    keys = tmp_path / "keys"
    keys.write_text("a-key alice\nb-key bob learn=no\n")
    server = serving.Server(program, model, "--speculate", setting(head), "--cache-tokens", "8192", "--learn", learned,
                            "--api-key-file", str(keys))

    def ask(key, **more):
        request = serving.urllib.request.Request(
            server.url + "/v1/completions",
            json.dumps({"prompt": "xyzzy", "max_tokens": 16, "ignore_eos": True, **more}).encode(),
            {"Content-Type": "application/json", "Authorization": f"Bearer {key}"})
        with serving.urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)

    ask("a-key", store=False, seed=1)
    ask("a-key", cache_salt="s", seed=2)
    ask("b-key", seed=3)
    ask("a-key", seed=4)
    ask("a-key", store=True, seed=5)
    assert server.stop() == 0
    samples = [json.loads(line) for path in learned.glob("answers-*") for line in path.read_text().splitlines()]
    assert sorted(sample["seed"] for sample in samples) == [4, 5]
    assert "xyzzy" not in "".join(server.log)
    assert {path.stat().st_mode & 0o777 for path in learned.iterdir()} == {0o600}


def test_flags_that_cannot_be(program, tiny, tmp_path):
    model, head = tiny

    def said(*flags):
        done = subprocess.run([program, "serve", "-m", model, "--port", "0", *map(str, flags)], capture_output=True,
                              text=True, timeout=60)
        assert done.returncode != 0
        return done.stderr

    assert "give --learn DIR too" in said("--learn-mib", 100)
    used = tmp_path / "used"
    used.write_text("")
    assert "no folder" in said("--learn", used)
    learned = tmp_path / "learn"
    server = serving.Server(program, model, "--speculate", setting(head), "--cache-tokens", "2048", "--learn", learned)
    assert "another process" in said("--learn", learned)
    assert server.stop() == 0
    # Of another model.
    other = json.loads((learned / "data.json").read_text())
    (learned / "data.json").write_text(json.dumps({**other, "model_fingerprint": "0" * 16}))
    assert "another folder" in said("--learn", learned)
