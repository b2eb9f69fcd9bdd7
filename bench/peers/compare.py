#!/usr/bin/env python3
"""Plain decoding of aerie and of llama.cpp on one file, alternately, in one go.

    bench/peers/install.sh build/peer-venv
    bench/peers/compare.py --model models/SmolLM2-135M-Instruct.Q4_1.gguf \\
        --peer-python build/peer-venv/bin/python --threads 2

Each repeat runs llama.cpp with flash attention off, on, and aerie, one after the other, so that all
see the same machine. Prints medians, the spread, and the median of the ratios within a repeat.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))


def run_aerie(args, prompt_file):
    """Like the peer's figures: a long prompt for the one, tokens after a short one for the other."""
    def figures(source, tokens):
        with tempfile.NamedTemporaryFile(suffix=".json") as report:
            command = [args.aerie, "run", "-m", args.model, *source, "-n", str(tokens),
                       "--ignore-eos", "--threads", str(args.threads), "--ctx", "2048",
                       "--speculate", "none", "-q", "--json", report.name]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            with open(report.name, encoding="utf-8") as file:
                return json.load(file)
    return {"decode": figures(["-p", "Once upon a time"], args.tokens)["tokens_per_second"],
            "prompt": figures(["-f", prompt_file], 1)["prompt_tokens_per_second"]}


def run_peer(args, flash):
    command = [args.peer_python, os.path.join(HERE, "llama_cpp.py"), "--model", args.model,
               "--threads", str(args.threads), "--tokens", str(args.tokens),
               "--prompt-tokens", str(args.prompt_tokens), "--flash-attn", str(flash), "--once"]
    result = subprocess.run(command, check=True, capture_output=True, text=True)
    figures = json.loads(result.stdout.strip().splitlines()[-1])
    return {"decode": figures["decode_tokens_per_second"],
            "prompt": figures["prompt_tokens_per_second"]}


def write_prompt(args, path):
    """A text of about --prompt-tokens tokens: both engines get the same length of prompt."""
    words = ("The history of the harbour town begins with a small group of fishermen who built "
             "their houses on the eastern shore of the bay. ")
    count = args.prompt_tokens
    text = words * (count // 20 + 2)
    command = [args.aerie, "tokenize", "-m", args.model, "--ids", text]
    ids = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    decode = [args.aerie, "tokenize", "-m", args.model, "--decode",
              " ".join(str(i) for i in ids[:count])]
    with open(path, "w", encoding="utf-8") as file:
        file.write(subprocess.run(decode, check=True, capture_output=True, text=True)
                   .stdout.rstrip("\n"))


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--aerie", default=os.path.join(ROOT, "build/release/bin/aerie"))
    parser.add_argument("--peer-python", default=os.path.join(ROOT, "build/peer-venv/bin/python"))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--prompt-tokens", type=int, default=512)
    parser.add_argument("--repeat", type=int, default=7)
    parser.add_argument("--json")
    args = parser.parse_args()

    rows = []
    with tempfile.TemporaryDirectory() as folder:
        prompt_file = os.path.join(folder, "prompt.txt")
        write_prompt(args, prompt_file)
        for repeat in range(args.repeat + 1):
            row = {"flash 0": run_peer(args, 0), "flash 1": run_peer(args, 1),
                   "aerie": run_aerie(args, prompt_file)}
            if repeat > 0:  # the first warms the file cache
                rows.append(row)
                print(json.dumps(row), file=sys.stderr)

    summary = {}
    for kind in ("decode", "prompt"):
        print(f"{kind}, tokens/s, {args.threads} threads, median of {len(rows)} alternating runs")
        for name in ("aerie", "flash 0", "flash 1"):
            values = [row[name][kind] for row in rows]
            label = name if name == "aerie" else f"llama.cpp, flash attention {name[-1]}"
            print(f"  {label:30s} {statistics.median(values):8.1f}   "
                  f"({min(values):.1f} to {max(values):.1f})")
        ratios = [row["aerie"][kind] / max(row["flash 0"][kind], row["flash 1"][kind])
                  for row in rows]
        print(f"  {'aerie / the better of them':30s} {statistics.median(ratios):8.2f}x  "
              f"({min(ratios):.2f} to {max(ratios):.2f})")
        summary[kind] = {"ratio": statistics.median(ratios), "rows": rows}
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump(summary, file, indent=1)


if __name__ == "__main__":
    main()
