#!/usr/bin/env python3
"""What speculation gains where several clients share a server, on prompts that it has not seen.

    bench/serve_gain.py --model MODEL.gguf --speculate auto,eagle3:model=HEAD \
        --dataset A.jsonl B.jsonl --clients 4 --prompts 20 --rounds 12

Two servers with the same settings stay up, of which one works at a time: the requests to one speculate,
those to the other do not. Every round sends both the same new prompts, as many of each file, and
another server goes first each time. `aerie bench serve --rounds` would send the same prompts again,
and a server drafts from what it has written before. A round before the counted ones warms both up.
Without a prefix cache, so that every prompt is read.

Requests ask for --temperature; 0, the default, is not that of OpenAI's API, which is 1. Both sides draw with
the same seeds, and so write the same texts.

Prints each round, then a row of a Markdown table: clients, temperature, tokens a second, their ratio (mean
over the rounds, Student's interval of 95 %), and the medians of the rounds' 99th percentiles of the time to
the first token and of the time per further token.
"""

import argparse
import itertools
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "scripts"))

import prompt_file  # noqa: E402
import student  # noqa: E402


def prompts_of(paths, seed):
    """First turns, of one file after the other, in the order that the seed gives, each text once."""
    files, seen = [], set()
    for path in paths:
        texts = []
        for number, record in prompt_file.records(path):
            text = prompt_file.first_turn(record)
            if text is None:
                raise ValueError(f"{path}:{number} is no prompt")
            if text.strip() not in seen:
                texts.append(text)
            seen.add(text.strip())
        random.Random(seed).shuffle(texts)
        files.append(texts)
    for row in itertools.zip_longest(*files):
        yield from (text for text in row if text is not None)


class Server:
    def __init__(self, args, speculation):
        self.args, self.speculation = args, speculation
        self.process = subprocess.Popen(
            [args.aerie, "serve", "-m", args.model, "--port", "0", "--speculate", args.speculate, "--ctx", str(args.ctx),
             "--no-prefix-cache", "--no-log-requests"], stderr=subprocess.PIPE, text=True)
        for line in self.process.stderr:
            if "listening on" in line:
                self.url = next(word for word in line.replace('"', " ").split() if word.startswith("http"))
                return
        raise SystemExit(f"aerie serve ended with status {self.process.wait()} before it listened")

    def run(self, dataset, figures):
        subprocess.run(
            [self.args.aerie, "bench", "serve", "--url", f"{self.url.rstrip('/')}/v1", "--dataset", dataset,
             "--concurrency", str(self.args.clients), "--max-tokens", str(self.args.max_tokens),
             "--temperature", str(self.args.temperature), "--seed", str(self.args.seed),
             "--compare", self.speculation, "--rounds", "1", "--json", figures],
            check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        with open(figures, encoding="utf-8") as file:
            return json.load(file)["runs"][0]

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()


def gain_of(rounds):
    return student.interval([on["output_throughput"] / off["output_throughput"] for off, on in rounds])


def summary(args, rounds):
    off, on = zip(*rounds)
    mean, half = gain_of(rounds)

    def both(key, unit, digits):
        a, b = (statistics.median(run[key] for run in runs) * unit for runs in (off, on))
        return f"{a:.{digits}f} → {b:.{digits}f}"

    return (f"| {args.clients} | {args.temperature:g} | {both('output_throughput', 1, 0)} | {mean:.3f} ± {half:.3f} "
            f"({len(rounds)}) | {both('p99_ttft_ms', 1e-3, 2)} s | {both('p99_tpot_ms', 1, 1)} ms |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--aerie", default=os.path.join(ROOT, "build/release/bin/aerie"))
    parser.add_argument("--model", required=True)
    parser.add_argument("--speculate", default="auto")
    parser.add_argument("--dataset", nargs="+", required=True)
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--prompts", type=int, default=20, help="of a round")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--max-tokens", type=int, default=256)
    parser.add_argument("--ctx", type=int, default=2048)
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--seed", type=int, default=0, help="of the order of the prompts and of what is drawn")
    parser.add_argument("--json", action="store_true", help="print the ratio and the rounds' figures as JSON instead")
    args = parser.parse_args()
    if args.rounds < 2:
        parser.error("--rounds: 2 or more, or there is no interval")
    try:
        texts = list(prompts_of(args.dataset, args.seed))
    except (OSError, ValueError) as error:
        parser.error(f"--dataset: {error}")
    if len(texts) < args.prompts * (args.rounds + 1):
        parser.error(f"{len(texts)} prompts; {args.rounds} rounds and a warm-up take {args.prompts * (args.rounds + 1)}")
    rounds = []
    servers = [Server(args, "off")]
    try:
        servers.append(Server(args, args.speculate))
        with tempfile.TemporaryDirectory() as folder:
            for number in range(args.rounds + 1):
                dataset = os.path.join(folder, "prompts.jsonl")
                with open(dataset, "w", encoding="utf-8") as file:
                    for text in texts[number * args.prompts:(number + 1) * args.prompts]:
                        file.write(json.dumps({"turns": [text]}) + "\n")
                runs = {}
                for server in servers if number % 2 else reversed(servers):
                    runs[server] = server.run(dataset, os.path.join(folder, "figures.json"))
                off, on = (runs[server] for server in servers)
                ratio = on["output_throughput"] / off["output_throughput"]
                print(f"{'warm-up' if number == 0 else f'round {number}'}: {off['output_throughput']:.1f} and "
                      f"{on['output_throughput']:.1f} tokens/s, {ratio:.3f}", file=sys.stderr, flush=True)
                if number > 0:
                    rounds.append((off, on))
    finally:
        for server in servers:
            server.stop()
    if args.json:
        print(json.dumps({"gain": gain_of(rounds), "rounds": [{"off": off, "on": on} for off, on in rounds]}))
    else:
        print(summary(args, rounds))


if __name__ == "__main__":
    main()
