"""Drafters in Python: whatever they propose and however they fail, the ids are those of plain decoding."""

import logging
import pathlib
import random
import subprocess
import sys

import pytest

import aerie
from aerie import LLM, SamplingParams

EXAMPLE = pathlib.Path(__file__).resolve().parents[2] / "examples/python/compare_drafters.py"
PROMPTS = ["Once upon a time", "one two one two one", [3, 1, 4, 1, 5]]


def params(temperature, max_tokens=40):
    return [SamplingParams(temperature=temperature, seed=seed, max_tokens=max_tokens, ignore_eos=True)
            for seed in range(len(PROMPTS))]


def ids(outputs):
    return [reply.token_ids for output in outputs for reply in output.outputs]


class Recorded(aerie.Drafter):
    """Knows what plain decoding wrote, and is right as often as it is told to be."""

    def __init__(self, replies, right=1.0, tree=False):
        self.replies, self.right, self.tree = replies, right, tree
        self.random = random.Random(1)
        self.open_now, self.opened, self.accepted, self.drafted, self.prompts = set(), 0, 0, 0, {}

    def open(self, sequence, tokens):
        self.open_now.add(sequence)
        self.opened += 1
        self.prompts[sequence] = len(tokens)

    def close(self, sequence):
        self.open_now.remove(sequence)

    def draft(self, request):
        prompt = self.prompts[request.sequence]
        written = request.tokens[prompt:]
        reply = next(one for one in self.replies if one[:len(written)] == written)
        return [token if self.random.random() < self.right else (token + 1) % 200
                for token in reply[len(written):len(written) + request.max_tokens]]

    def propose(self, requests):
        drafts = [self.draft(request) for request in requests]
        if self.tree:
            drafts = [[node for place, token in enumerate(draft)
                       for node in ((token, 2 * place - 2 if place else -1, 0.9), (7, 2 * place - 2 if place else -1))]
                      for draft in drafts]
            # Each level: the right token at an even place, another beside it.
        return drafts

    def observe(self, results):
        for result in results:
            self.accepted += len(result.accepted)
            self.drafted += result.drafted
            assert result.tokens[-1] is not None


def open_with(tiny, drafter, **settings):
    config = {"method": "custom", "drafter": drafter, "num_speculative_tokens": 6, "gate": False, **settings}
    return LLM(tiny, speculative_config=config, max_model_len=256)


@pytest.mark.parametrize("temperature", [0.0, 0.9])
@pytest.mark.parametrize("right, tree", [(1.0, False), (0.6, False), (0.0, False), (1.0, True)])
def test_lossless(tiny, plain, temperature, right, tree):
    expected = ids(plain.generate(PROMPTS, params(temperature)))
    drafter = Recorded(expected, right, tree)
    with open_with(tiny, drafter) as llm:
        outputs = llm.generate(PROMPTS, params(temperature))
        assert llm.drafter_errors == []
    assert ids(outputs) == expected
    assert drafter.opened == len(PROMPTS) and not drafter.open_now
    stats = [output.outputs[0].speculation for output in outputs]
    assert sum(one.accepted_tokens for one in stats) == drafter.accepted
    assert all(one.drafted_tokens > 0 for one in stats)
    if right == 1.0:
        assert min(one.mean_accepted_length for one in stats) > 2.5


class Broken(aerie.Drafter):
    """Goes wrong after some rounds, in a way of its own."""

    def __init__(self, how):
        self.how, self.rounds = how, 0

    def propose(self, requests):
        self.rounds += 1
        if self.rounds < 3:
            return [[1, 2]] * len(requests)
        return self.how(requests)


def boom(_):
    raise ValueError("no idea\nat all")


@pytest.mark.parametrize("how, message", [
    (boom, "ValueError: no idea"),
    (lambda requests: [[1]] * (len(requests) + 1), "drafts for"),
    (lambda requests: 5, "int"),
    (lambda requests: [["x"]] * len(requests), "invalid literal"),
    (lambda requests: [[(1, 2, 3, 4)]] * len(requests), "a node is"),
    (lambda requests: [[1 << 40]] * len(requests), None),
    (lambda requests: [[-5]] * len(requests), None),
    (lambda requests: [[(1, 0)]] * len(requests), None),
    (lambda requests: [[(1, -1, 7.0)]] * len(requests), None),
])
def test_what_raises_is_told_and_changes_no_id(tiny, plain, caplog, how, message):
    expected = ids(plain.generate(PROMPTS, params(0.9)))
    with caplog.at_level(logging.ERROR, "aerie"), open_with(tiny, Broken(how)) as llm:
        outputs = llm.generate(PROMPTS, params(0.9))
        errors = llm.drafter_errors
    assert ids(outputs) == expected
    if message is not None:
        assert any(message in error for error in errors), errors
        assert "Broken failed in propose()" in caplog.text


def test_classes_and_others_beside_it(tiny, plain):
    class Duck:  # no base, no observe
        def propose(self, requests):
            return [request.tokens[-3:] for request in requests]

    expected = ids(plain.generate(PROMPTS, params(0.0)))
    for config in ({"drafter": Duck}, [{"method": "ngram"}, {"method": "custom", "drafter": Duck()}],
                   {"combine": "auto", "methods": [{"drafter": Duck()}]}):
        with LLM(tiny, speculative_config=config, max_model_len=256) as llm:
            assert ids(llm.generate(PROMPTS, params(0.0))) == expected
    with pytest.raises(TypeError, match="propose"):
        open_with(tiny, object())
    with pytest.raises(ValueError, match="needs a drafter"):
        LLM(tiny, speculative_config="custom")
    with pytest.raises(ValueError, match="custom"):
        LLM(tiny, speculative_config={"method": "ngram", "drafter": Duck()})
    with pytest.raises(ValueError, match="one drafter"):
        LLM(tiny, speculative_config=[{"drafter": Duck()}, {"drafter": Duck()}])


def test_the_example_compares(real):
    """It ends with an error where ids differ."""
    told = subprocess.run([sys.executable, EXAMPLE, real, "Name three rivers.", "--max-tokens", "12",
                           "--temperature", "0.7", "--speculate", '{"method": "recycling"}'], check=True, capture_output=True, text=True)
    assert told.stdout.count("same") == 6 and "this file's" in told.stdout
