#!/usr/bin/env python3
"""Generates from a few prompts, plainly and with speculation, and compares.

Plain and speculative runs take turns. Shows for each prompt the text, the medians of both speeds and of
their ratio with the smallest and the largest value, and the mean accepted length, and checks that all
runs gave the very same token ids. Exits with 1 at the first difference.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
MODEL = ROOT / "models/SmolLM2-135M-Instruct.Q4_1.gguf"
HEAD = ROOT / "models/heads/SmolLM2-135M-Instruct-EAGLE3"

PASSAGE = " ".join([
    "The lighthouse at Skerry Point was built in 1871 by the brothers Aldous and Wren Halloran.",
    "Its lamp burned colza oil until 1902, when a paraffin burner took its place.",
    "On the night of 14 March 1913 the steamer Meridian struck the outer reef in fog, and keeper",
    "Ines Calloway rowed out six times to bring back all thirty-one passengers.",
    "She kept the light for another twenty years and never spoke of that night.",
])

CODE = """\
def moving_average(values, window):
    if window <= 0:
        raise ValueError("window must be positive")
    result = []
    total = 0.0
    for index, value in enumerate(values):
        total += value
        if index >= window:
            total -= values[index - window]
        if index >= window - 1:
            result.append(total / window)
    return result"""

# title, prompt, tokens to generate, temperature
PROMPTS = [
    ("A question", "Give me three tips for staying healthy.", 160, 0.0),
    ("Writing code", "Write a Python function that reverses a string.", 160, 0.0),
    ("Quoting a text", f"Repeat the following text word for word:\n\n{PASSAGE}", 160, 0.0),
    ("Editing code", f"Print this function again and add a docstring:\n\n{CODE}", 192, 0.0),
    ("A story at temperature 0.8", "Tell a short story about a fox and a river.", 128, 0.8),
]


class DemoError(Exception):
    """What went wrong, for the user."""


def generate(options, prompt, speculate, json_file):
    """The figures of one `aerie run`."""
    _, text, tokens, temperature = prompt
    command = [options.aerie, "run", "-m", options.model, "-p", text]
    command += ["-n", str(tokens), "--temp", str(temperature), "--seed", "1"]
    command += ["--speculate", speculate, "--json", str(json_file)]
    if options.threads:
        command += ["--threads", str(options.threads)]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    except OSError as error:
        raise DemoError(f"cannot run {options.aerie}: {error.strerror}") from error
    if done.returncode != 0:
        message = done.stderr.decode(errors="replace").strip()
        raise DemoError(f"{' '.join(command)}\nfailed with {done.returncode}: {message}")
    return json.loads(json_file.read_text(encoding="utf-8"))


def speed_of(run):
    # An answer of one token has no speed.
    return max(float(run["tokens_per_second"] or 0.0), 1e-9)


class Figures:
    """Values of runs that were repeated: their median, and how far they lie apart."""

    def __init__(self, values):
        self.median = statistics.median(values)
        self.low, self.high = min(values), max(values)

    def text(self, digits):
        return f"{self.median:.{digits}f} ({self.low:.{digits}f}-{self.high:.{digits}f})"


def alternate(options, prompt, json_file):
    """[(plain run, speculative run)]; whatever slows the machine down meets both kinds alike."""
    pairs = []
    for index in range(options.rounds):
        order = ["none", options.speculate] if index % 2 == 0 else [options.speculate, "none"]
        runs = {kind: generate(options, prompt, kind, json_file) for kind in order}
        pairs.append((runs["none"], runs[options.speculate]))
    return pairs


def check_same(title, first, other):
    a, b = first["token_ids"], other["token_ids"]
    if a == b:
        return
    at = next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))
    shown = [str(ids[at]) if at < len(ids) else "the end" for ids in (a, b)]
    raise DemoError(
        f"identical token ids: NO. '{title}' differs at token {at}: "
        f"plain {shown[0]}, other run {shown[1]}"
    )


def indented(text):
    return "\n".join("    " + line for line in text.strip().splitlines())


def figures_of(speeds):
    """Plain, speculative, speed-up, of pairs of speeds."""
    return [Figures([plain for plain, _ in speeds]), Figures([spec for _, spec in speeds]),
            Figures([spec / plain for plain, spec in speeds])]


def tau_of(pairs):
    return statistics.median(run["mean_accepted_length"] for _, run in pairs)


def show(prompt, pairs):
    title, text, _, _ = prompt
    plain = pairs[0][0]
    print(f"\n== {title}: {text.splitlines()[0]}\n\n{indented(plain['text'])}\n")
    for pair in pairs:
        for run in pair:
            check_same(title, plain, run)
    speeds = figures_of([tuple(map(speed_of, pair)) for pair in pairs])
    print(
        f"  plain {speeds[0].text(1)} tokens/s, speculative {speeds[1].text(1)} tokens/s, "
        f"speed-up {speeds[2].text(2)}, τ {tau_of(pairs):.2f}"
    )
    print(f"  identical token ids: yes ({len(plain['token_ids'])} tokens, {2 * len(pairs)} runs)",
          flush=True)


def summary_line(title, speeds, tau=""):
    plain, speculative, ratio = speeds
    print(f"{title:27}{plain.text(1):>24}{speculative.text(1):>24}{ratio.text(2):>19}{tau:>7}")


def summarise(results, rounds):
    """One line for each prompt, and one for all: its tokens by the time that a round took for them."""
    kinds = f"{'plain':>24}{'speculative':>24}{'speed-up':>19}{'τ':>7}"
    print(f"\n{'tokens/s: median (range)':27}{kinds}")
    tokens, seconds = 0, [[0.0, 0.0] for _ in range(rounds)]
    for (title, *_), pairs in results:
        summary_line(title, figures_of([tuple(map(speed_of, pair)) for pair in pairs]),
                     f"{tau_of(pairs):.2f}")
        count = len(pairs[0][0]["token_ids"])
        tokens += count
        for total, pair in zip(seconds, pairs):
            total[:] = [sum_ + count / speed_of(run) for sum_, run in zip(total, pair)]
    summary_line("all", figures_of([(tokens / plain, tokens / spec) for plain, spec in seconds]))
    print(f"\nAll {len(results)} prompts gave identical token ids with and without speculation, "
          f"{rounds} runs each.")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--aerie", default=str(ROOT / "build/release/bin/aerie"))
    parser.add_argument("--model", default=str(MODEL))
    parser.add_argument("--speculate", help="as in aerie run; default: auto with the model's head")
    parser.add_argument("--threads", type=int, default=0, help="default: aerie's own")
    parser.add_argument("--rounds", type=int, default=3, help="pairs of runs of each prompt (3)")
    options = parser.parse_args()
    if options.rounds < 1:
        parser.error("--rounds: at least one")
    if options.speculate is None:
        options.speculate = f"auto,eagle3:model={HEAD}" if options.model == str(MODEL) else "auto"

    # A locale without UTF-8 must not end the demo at the first τ.
    sys.stdout.reconfigure(errors="replace")
    drafter = options.speculate.replace(f"{ROOT}/", "")
    print(f"Model {pathlib.Path(options.model).name}, drafter {drafter}, {options.rounds} runs of each kind")
    results = []
    try:
        with tempfile.TemporaryDirectory() as folder:
            json_file = pathlib.Path(folder) / "run.json"
            for prompt in PROMPTS:
                pairs = alternate(options, prompt, json_file)
                show(prompt, pairs)
                results.append((prompt, pairs))
        summarise(results, options.rounds)
    except (DemoError, KeyError, ValueError) as error:
        what = f"no field {error} in aerie's figures" if isinstance(error, KeyError) else error
        print(f"demo: {what}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
