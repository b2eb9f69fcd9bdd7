#!/usr/bin/env python3
"""Makes heads that know one text by heart, from the target's hidden states alone: tests/golden/oracles/<case>/ for
every family of trained heads. Run by hand, not by CI.

    python tests/golden/make_oracles.py [CASE ...]    writes the folders (all of them by default)

Needs what make_heads_eagle.py needs, and tests/golden/heads/target. tests/golden/README.md describes what it writes.
"""

import argparse
import dataclasses
import json
import math
import shutil
from pathlib import Path
from typing import Callable

import safetensors.torch
import torch
import transformers

import heads_attention as plain
import heads_common as common
import make_heads_eagle as eagle
import oracle_heads as oracles
from heads_common import VOCABULARY
from oracle_heads import STEPS

ROOT = Path(__file__).resolve().parent / "oracles"
TOKENS, PROMPT = 12, 12
FIRST = 3  # the first row that is trained
NOISE = 0.02  # of the states, by their spread: far more than 16-bit keys and values of the target
MARGIN = 3.0  # of the right token's logit over all others, at the least
STALE = 1.3  # tokens of a round, at the most, where all rows before a draft's own are stale
CHECKED, RATE, ITERATIONS, STALE_WEIGHT = 50, 3e-3, 8000, 1.0


@dataclasses.dataclass
class Case:
    name: str
    method: str
    make: Callable  # (name, target, text) -> an oracle
    # (config, tensors, target) -> the transcription that the goldens are made with, if it is another than what is
    # trained. It has to draft the same.
    transcription: Callable | None = None
    file: str = "model.safetensors"
    dtype: torch.dtype = torch.float32
    settings: dict = dataclasses.field(default_factory=dict)


# ---- The text ----


def make_text():
    """8 * TOKENS + 3 tokens in which each token has two followers, each pair and each run of three as well: only four
    tokens together say where one is. No token follows itself. (A Eulerian circuit over the runs of three.)"""
    random = common.generator("oracle text")
    ids = random.choice(range(3, VOCABULARY), TOKENS, replace=False).tolist()
    while True:
        next_ = [random.permutation(TOKENS).tolist() for _ in range(2)]
        if all(len({i, a, b}) == 3 for i, (a, b) in enumerate(zip(*next_))):
            break
    after = {i: [row[i] for row in next_] for i in range(TOKENS)}
    unused = {(a, b, c): random.permutation(after[c]).tolist() for a in after for b in after[a] for c in after[b]}
    stack, circuit = [next(iter(unused))], []
    while stack:
        run = stack[-1]
        if unused[run]:
            stack.append((*run[1:], unused[run].pop()))
        else:
            circuit.append(stack.pop())
    circuit.reverse()
    text = [*circuit[0], *[run[2] for run in circuit[1:]]]
    assert len(text) == 8 * TOKENS + 3, "the pairs do not hang together"
    for length in (1, 2, 3):
        seen = {}
        for i in range(len(text) - length):
            seen.setdefault(tuple(text[i : i + length]), set()).add(text[i + length])
        assert all(len(followers) == 2 for followers in seen.values())
    return [ids[i] for i in text]


# ---- Training ----


def noisy(states, random):
    entering, final = states

    def shaken(state):
        return state + NOISE * state.std() * torch.randn(state.shape, generator=random)

    return [shaken(state) for state in entering], shaken(final)


def shifted(states, by, outer=None):
    """Each row's states are those of the row `by` before. Where there is none, of the outermost, or of row `outer`."""
    rows = torch.arange(len(states[1])) - by
    beyond = (rows < 0) | (rows >= len(rows))
    rows = rows.clamp(0, len(rows) - 1)
    if outer is not None:
        rows[beyond] = outer
    return [state[rows] for state in states[0]], states[1][rows]


@dataclasses.dataclass
class Lesson:
    tokens: torch.Tensor  # [steps, rows]: what a draft reads
    right: torch.Tensor  # [steps, rows]: what it should say, in the draft's vocabulary; -100: nothing
    states: tuple

    def draft(self, oracle, random=None, stale=0):
        """stale: all rows before a draft's own have the features of the row so many before"""
        states = noisy(self.states, random) if random else self.states
        outer = int(torch.randint(len(states[1]), (), generator=random)) if random else None
        return oracle.draft(self.tokens, states, shifted(states, stale, outer) if stale else states)


def make_lesson(text, oracle, states):
    """Row t reads t + 1 and drafts the tokens from t + 2 on. None beyond the end."""
    d2t = oracle.files()[1].get("d2t")
    place = {i if d2t is None else i + int(d2t[i]): i for i in range(VOCABULARY if d2t is None else len(d2t))}
    tokens, right = torch.zeros(STEPS, len(text), dtype=torch.long), torch.full((STEPS, len(text)), -100)
    for step in range(STEPS):
        for row in range(len(text) - 2 - step):
            tokens[step, row] = text[row + 1 + step]
            if row >= FIRST:
                right[step, row] = place[text[row + 2 + step]]
    return Lesson(tokens, right, states)


def margins(logits, right):
    """Of the right tokens over the best others, of all steps that there are."""
    known = right >= 0
    logits, right = logits[known], right[known][:, None]
    return logits.gather(1, right)[:, 0] - logits.scatter(1, right, -torch.inf).amax(1)


def loss_of(oracle, lesson, random, stale):
    logits = lesson.draft(oracle, random)
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), lesson.right.flatten(), ignore_index=-100)
    if stale:  # then it should have no opinion
        loss = loss - STALE_WEIGHT * lesson.draft(oracle, random, stale).log_softmax(-1).mean()
    return loss


def tokens_a_round(logits, right):
    """Of the rows whose steps all have a right token."""
    hits = logits.argmax(-1) == right
    return 1.0 + hits.cumprod(0).sum(0)[(right >= 0).all(0)].float().mean().item()


@torch.no_grad()
def learnt(oracle, lesson, sees_earlier):
    """(the least margin, tokens a round where the rows before are stale)"""
    least = margins(lesson.draft(oracle), lesson.right).min().item()
    if not sees_earlier:
        return least, 1.0
    return least, max(tokens_a_round(lesson.draft(oracle, stale=by), lesson.right) for by in (-1, 1))


def train(case, oracle, lesson, sees_earlier):
    """Until the right tokens lead by half more than they have to, and next to none comes of stale rows."""
    random = torch.Generator().manual_seed(1)
    optimizer = torch.optim.Adam(oracle.parameters(), RATE)
    for iteration in range(1, ITERATIONS + 1):
        loss = loss_of(oracle, lesson, random, (-1 if iteration % 2 else 1) if sees_earlier else 0)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(oracle.parameters(), 1.0)
        optimizer.step()
        if iteration % CHECKED == 0:
            least, stale = learnt(oracle, lesson, sees_earlier)
            if least > 1.5 * MARGIN and stale < STALE:
                return iteration, stale
    raise RuntimeError(f"{case.name}: not learnt; the worst margin is {least}, stale rows give {stale} tokens a round")


def sees_earlier_rows(oracle, lesson):
    with torch.no_grad():
        return not torch.equal(lesson.draft(oracle), lesson.draft(oracle, stale=1))


# ---- Files ----


def checked_margin(case, target, text, lesson):
    """The least margin of the files as they are, by the transcription that the goldens are made with."""
    folder = ROOT / case.name / "head"
    if not case.transcription:
        oracle = case.make(case.name, target, text)
        tensors = safetensors.torch.load_file(folder / case.file)
        oracle.module.load_state_dict({name: tensor.float() for name, tensor in tensors.items()})
        return margins(lesson.draft(oracle), lesson.right).min().item()
    head, least = case.transcription(*common.load_head(folder), target), math.inf
    for n in range(FIRST + 2, len(text)):
        path = text[n : n + STEPS]
        if hasattr(head, "outputs"):
            logits = head.outputs(text, n)[: len(path)]
        else:
            logits, _ = head.run(text, n, path[:-1])
        least = min(least, margins(logits, lesson.right[: len(path), n - 2]).min().item())
    return least


def write(case, oracle):
    folder = ROOT / case.name / "head"
    shutil.rmtree(folder.parent, ignore_errors=True)
    folder.mkdir(parents=True)
    config, tensors = oracle.files()
    common.write_json(folder / "config.json", config)
    common.save_tensors(folder / case.file, tensors, case.dtype)


def write_golden(case, text, least, sees_earlier):
    method = {"method": case.method, "model": "head", "num_speculative_tokens": STEPS} | case.settings
    content = {"target": "../../heads/target", "states": "../states.safetensors", "text": text, "prompt": PROMPT,
               "draft_tokens": STEPS, "speculative_config": method, "sees_earlier": sees_earlier,
               "least_margin": round(least, 2)}  # fmt: skip
    lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(value)}" for name, value in content.items())
    (ROOT / case.name / "golden.json").write_text("{\n" + lines + "\n}\n", encoding="utf-8")


def make_case(case, target, text, states):
    oracle = case.make(case.name, target, text)
    lesson = make_lesson(text, oracle, states)
    sees_earlier = sees_earlier_rows(oracle, lesson)
    iterations, stale = train(case, oracle, lesson, sees_earlier)
    write(case, oracle)
    with torch.no_grad():
        least = checked_margin(case, target, text, lesson)
    assert least > MARGIN, f"{case.name}: the margin of what is written is {least}"
    write_golden(case, text, least, sees_earlier)
    size = sum(path.stat().st_size for path in (ROOT / case.name).rglob("*") if path.is_file())
    seen = f", stale rows give {stale:.2f} tokens a round" if sees_earlier else ""
    print(f"{case.name}: {iterations} iterations, {size} bytes, margin {least:.2f}{seen}", flush=True)


def all_cases():
    taps = {"eagle_aux_hidden_state_layer_ids": [2, 4, 5]}
    hydra = {"file": "hydra_lm_head.safetensors", "dtype": torch.bfloat16}
    return [
        Case("medusa", "medusa", oracles.make_medusa, file="medusa_lm_head.safetensors"),
        Case("redrafter", "redrafter", oracles.make_redrafter),
        Case("mlp-speculator", "mlp_speculator", oracles.make_mlp_speculator),
        Case("hydra-ungrounded", "hydra", oracles.make_hydra(False), **hydra),
        Case("hydra", "hydra", oracles.make_hydra(True), **hydra),
        Case("hydra-prefix", "hydra", oracles.make_hydra(True, prefix=True), **hydra),
        Case("eagle", "eagle", oracles.make_eagle, plain.Eagle1),
        Case("eagle3", "eagle3", oracles.make_eagle3(1, False, **taps), plain.Eagle3),
        Case("mtp", "mtp", oracles.make_mtp, lambda *files: plain.Mtp(*files, eagle.DEEPSEEK)),
        Case("peagle", "eagle3", oracles.make_eagle3(2, True, ptd_token_id=oracles.MASK_TOKEN, **taps),
             lambda *files: plain.PEagle(*files, STEPS, None), settings={"parallel_drafting": True}),
    ]  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", metavar="CASE")
    names = parser.parse_args().names
    torch.set_num_threads(1)
    transformers.utils.logging.set_verbosity_error()
    cases = all_cases()
    unknown = set(names) - {case.name for case in cases}
    if unknown:
        parser.error(f"no such case: {', '.join(sorted(unknown))}")
    target, text = common.Target(), make_text()
    with torch.no_grad():
        states = target.states(text)
    ROOT.mkdir(exist_ok=True)
    common.save_tensors(ROOT / "states.safetensors", {"states": torch.stack(states[0]), "text": torch.tensor(text)})
    for case in cases:
        if not names or case.name in names:
            make_case(case, target, text, states)


if __name__ == "__main__":
    main()
