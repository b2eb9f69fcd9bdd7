#!/usr/bin/env python3
"""Generates from a few prompts, plainly and with speculation, and compares.

Shows for each prompt the text, both speeds and the mean accepted length, and checks that both runs
gave the very same token ids. Exits with 1 at the first difference.
"""

import argparse
import json
import pathlib
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
    command = [options.aerie, "run", "-m", options.model, "--template", "-p", text]
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


def check_same(title, plain, speculative):
    a, b = plain["token_ids"], speculative["token_ids"]
    if a == b:
        return
    at = next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))
    shown = [str(ids[at]) if at < len(ids) else "the end" for ids in (a, b)]
    raise DemoError(
        f"identical token ids: NO. '{title}' differs at token {at}: "
        f"plain {shown[0]}, speculative {shown[1]}"
    )


def indented(text):
    return "\n".join("    " + line for line in text.strip().splitlines())


def show(prompt, plain, speculative):
    title, text, _, _ = prompt
    first_line = text.splitlines()[0]
    speeds = [speed_of(run) for run in (plain, speculative)]
    print(f"\n== {title}: {first_line}\n\n{indented(speculative['text'])}\n")
    check_same(title, plain, speculative)
    print(
        f"  plain {speeds[0]:.1f} tokens/s, speculative {speeds[1]:.1f} tokens/s, "
        f"speed-up {speeds[1] / speeds[0]:.2f}, τ {speculative['mean_accepted_length']:.2f}"
    )
    print(f"  identical token ids: yes ({len(plain['token_ids'])} tokens)", flush=True)


def summary_line(title, speeds, tau=""):
    ratio = speeds[1] / speeds[0]
    print(f"{title:30}{speeds[0]:10.1f}{speeds[1]:13.1f}{ratio:10.2f}{tau:>7}")


def summarise(runs):
    print(f"\n{'tokens/s':30}{'plain':>10}{'speculative':>13}{'speed-up':>10}{'τ':>7}")
    tokens, seconds = 0, [0.0, 0.0]
    for (title, *_), *pair in runs:
        speeds = [speed_of(run) for run in pair]
        summary_line(title, speeds, f"{pair[1]['mean_accepted_length']:.2f}")
        count = len(pair[0]["token_ids"])
        tokens += count
        seconds = [total + count / speed for total, speed in zip(seconds, speeds)]
    summary_line("all", [tokens / total for total in seconds])
    print(f"\nAll {len(runs)} prompts gave identical token ids with and without speculation.")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--aerie", default=str(ROOT / "build/release/bin/aerie"))
    parser.add_argument("--model", default=str(MODEL))
    parser.add_argument("--speculate", help="as in aerie run; default: auto with the model's head")
    parser.add_argument("--threads", type=int, default=0, help="default: aerie's own")
    options = parser.parse_args()
    if options.speculate is None:
        options.speculate = f"auto,eagle3:model={HEAD}" if options.model == str(MODEL) else "auto"

    # A locale without UTF-8 must not end the demo at the first τ.
    sys.stdout.reconfigure(errors="replace")
    drafter = options.speculate.replace(f"{ROOT}/", "")
    print(f"Model {pathlib.Path(options.model).name}, drafter {drafter}")
    runs = []
    try:
        with tempfile.TemporaryDirectory() as folder:
            json_file = pathlib.Path(folder) / "run.json"
            for prompt in PROMPTS:
                plain = generate(options, prompt, "none", json_file)
                speculative = generate(options, prompt, options.speculate, json_file)
                show(prompt, plain, speculative)
                runs.append((prompt, plain, speculative))
        summarise(runs)
    except (DemoError, KeyError, ValueError) as error:
        what = f"no field {error} in aerie's figures" if isinstance(error, KeyError) else error
        print(f"demo: {what}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
