#!/usr/bin/env python3
"""Aerie and llama.cpp on one model file, taking turns within seconds.

    bench/peers/install.sh
    bench/peers/compare.py --model MODEL.gguf --threads 2 --json figures.json

Two processes hold the model all the time and answer requests; while one works, the other sleeps.
Passes of several rows behind a filled cache (logits of all rows), a prompt, and plain decoding, each
measured on Aerie, on llama.cpp without and with flash attention, in that order, again and again.
Prints medians, the median of the ratios within a turn (Aerie to the better of llama.cpp's two; below
1 Aerie is the faster), and the lowest and highest of these.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
ENGINES = ("aerie", "flash 0", "flash 1")
PAUSE = 0.05  # until the threads of the other one sleep


class Worker:
    """A process that answers requests, one JSON object a line."""

    def __init__(self, command):
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.hello = self.read()

    def read(self):
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"{self.process.args[0]} ended with status {self.process.wait()}")
        return json.loads(line)

    def ask(self, **request):
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        answer = self.read()
        if "error" in answer:
            raise SystemExit(f"{self.process.args[0]}: {request}: {answer['error']}")
        return answer


class Comparison:
    def __init__(self, args):
        self.args = args
        shared = ["--rows", str(max(args.rows)), "--threads", str(args.threads), "--positions",
                  str(max(max(args.context) + max(max(args.rows), args.tokens), args.prompt) + 1)]
        self.aerie = Worker([args.aerie, "bench", "worker", "-m", args.model, *shared])
        self.peer = Worker([args.peer_python, os.path.join(HERE, "llama_cpp.py"), "--model", args.model, *shared])

    def turn(self, request):
        """Milliseconds of each engine, one after the other."""
        times = {}
        for engine in ENGINES:
            time.sleep(PAUSE)
            worker = self.aerie if engine == "aerie" else self.peer
            times[engine] = worker.ask(**request, flash=int(engine[-1] == "1")).get("ms", 0.0)
        return times

    def measure(self, requests):
        """Turns of all requests, in order, as often as asked; the first round warms up."""
        turns = [[] for _ in requests]
        for repeat in range(self.args.repeat + 1):
            for request, taken in zip(requests, turns):
                times = self.turn(request)
                if repeat > 0:
                    taken.append(times)
        return turns

    def limits(self):
        return self.aerie.ask(do="limits")


def summary(turns):
    ratios = [t["aerie"] / min(t["flash 0"], t["flash 1"]) for t in turns]
    return {
        "ms": {engine: statistics.median(t[engine] for t in turns) for engine in ENGINES},
        "lowest_ms": {engine: min(t[engine] for t in turns) for engine in ENGINES},
        "ratio": statistics.median(ratios),
        "lowest_ratio": min(ratios),
        "highest_ratio": max(ratios),
    }


def show(label, figures, tokens=None):
    """Milliseconds, or tokens a second of so many."""
    values = [1e3 * tokens / figures["ms"][e] if tokens else figures["ms"][e] for e in ENGINES]
    ratio = f"{figures['ratio']:7.3f} ({figures['lowest_ratio']:.3f}-{figures['highest_ratio']:.3f})"
    print(f"{label:24}" + "".join(f"{value:12.2f}" for value in values) + ratio.rjust(26), flush=True)


def heading(text):
    print(f"\n{text:24}{'aerie':>12}{'no flash':>12}{'flash':>12}{'ratio':>26}")


def processor():
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            return next(line.split(":", 1)[1].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.machine()


def compare(args):
    engines = Comparison(args)
    result = {
        "model": os.path.basename(args.model), "threads": args.threads, "processor": processor(),
        "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "repeats": args.repeat,
        "peer": {key: engines.peer.hello[key] for key in ("version", "system")},
        "limits": [engines.limits()], "passes": [], "prompt": {}, "decode": [],
    }
    print(f"{result['model']}, {args.threads} threads, {result['processor']}, {result['date']}")
    for context in args.context:
        engines.turn({"do": "fill", "context": context})
        heading(f"ms, context {context}")
        requests = [{"do": "pass", "rows": rows, "seconds": args.seconds} for rows in args.rows]
        for request, turns in zip(requests, engines.measure(requests)):
            figures = {"context": context, "rows": request["rows"], **summary(turns)}
            result["passes"].append(figures)
            show(f"{figures['rows']:5} rows", figures)
        result["limits"].append(engines.limits())
    heading("tokens/s")
    if args.prompt > 0:
        turns = engines.measure([{"do": "prompt", "tokens": args.prompt}])[0]
        result["prompt"] = {"tokens": args.prompt, **summary(turns)}
        show(f"prompt of {args.prompt}", result["prompt"], args.prompt)
    if args.tokens > 0:
        for context in args.context:
            turns = engines.measure([{"do": "decode", "context": context, "tokens": args.tokens}])[0]
            figures = {"context": context, "tokens": args.tokens, **summary(turns)}
            result["decode"].append(figures)
            show(f"decoding after {context}", figures, args.tokens)
    return result


def numbers(text):
    return [int(part) for part in text.split(",")]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--aerie", default=os.path.join(ROOT, "build/release/bin/aerie"))
    parser.add_argument("--peer-python", default=os.path.join(ROOT, "build/peer-venv/bin/python"))
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--context", type=numbers, default=[128, 2048], help="128,2048")
    parser.add_argument("--rows", type=numbers, default=[1, 2, 3, 4, 6, 8, 12, 16, 32, 64], help="1,2,3,...")
    parser.add_argument("--seconds", type=float, default=0.3, help="of one engine's passes in a turn")
    parser.add_argument("--prompt", type=int, default=512, help="tokens of the prompt; 0: none")
    parser.add_argument("--tokens", type=int, default=64, help="tokens decoded; 0: none")
    parser.add_argument("--repeat", type=int, default=7)
    parser.add_argument("--json", help="write all figures to this file")
    args = parser.parse_args()
    if min(args.context + args.rows + [args.threads, args.repeat]) < 1 or min(args.prompt, args.tokens) < 0:
        parser.error("counts must be at least 1")
    for path in (args.aerie, args.peer_python, args.model):
        if not os.path.exists(path):
            parser.error(f"{path} is not there; build Aerie and run bench/peers/install.sh first")

    result = compare(args)
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump(result, file, indent=1)
            file.write("\n")


if __name__ == "__main__":
    sys.exit(main())
