#!/usr/bin/env python3
"""Aerie and other engines on one model file, taking turns within seconds.

    bench/peers/install.sh llama_cpp ik_llama_cpp openvino
    bench/peers/compare.py --model MODEL.gguf --peers llama_cpp,ik_llama_cpp,openvino --threads 2 --json figures.json

A process for each engine holds the model all the time and answers requests; while one works, the others sleep.
Passes of several rows behind a filled cache (logits of all rows), a prompt, and plain decoding, each
measured on Aerie and then on each peer in each of its variants, again and again. Prints medians (of a peer
those of its faster variant), for each peer the median of the ratios within a turn (Aerie to the faster variant
then; below 1 Aerie is the faster), and the lowest and highest of these.
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
PAUSE = 0.05  # until the threads of the others sleep


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
        self.peers = {
            peer: Worker([python_of(args, peer), os.path.join(HERE, f"of_{peer}.py"), "--model", args.model, *shared])
            for peer in args.peers
        }

    def turn(self, request):
        """Milliseconds of Aerie and of each (peer, variant) that can do it, one after the other."""
        time.sleep(PAUSE)
        times = {"aerie": self.aerie.ask(**request).get("ms", 0.0)}
        for peer, worker in self.peers.items():
            for variant, name in enumerate(worker.hello["variants"]):
                time.sleep(PAUSE)
                answer = worker.ask(**request, variant=variant)
                if "ms" in answer:
                    times[peer, name] = answer["ms"]
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


def python_of(args, peer):
    return os.path.join(args.folder, peer, "bin/python")


def of_times(times):
    return {"ms": statistics.median(times), "lowest_ms": min(times)}


def summary(turns):
    result = {"aerie": of_times([t["aerie"] for t in turns]), "peers": {}}
    for peer in dict.fromkeys(key[0] for key in turns[0] if key != "aerie"):
        variants = [key for key in turns[0] if key != "aerie" and key[0] == peer]
        ratios = [t["aerie"] / min(t[key] for key in variants) for t in turns]
        result["peers"][peer] = {
            "variants": {key[1]: of_times([t[key] for t in turns]) for key in variants},
            "ratio": statistics.median(ratios),
            "lowest_ratio": min(ratios),
            "highest_ratio": max(ratios),
        }
    return result


def show(label, figures, peers, tokens=None):
    """Milliseconds, or tokens a second of so many."""
    def value(one):
        return f"{1e3 * tokens / one['ms'] if tokens else one['ms']:12.2f}"

    line = f"{label:24}" + value(figures["aerie"])
    for peer in peers:
        if peer not in figures["peers"]:
            line += f"{'-':>16}" + 22 * " "
            continue
        own = figures["peers"][peer]
        best = min(own["variants"].values(), key=lambda one: one["ms"])
        ratio = f"{own['ratio']:7.3f} ({own['lowest_ratio']:.3f}-{own['highest_ratio']:.3f})"
        line += value(best).rjust(16) + ratio.rjust(22)
    print(line, flush=True)


def heading(text, peers):
    print(f"\n{text:24}{'aerie':>12}" + "".join(f"{peer:>16}{'ratio':>22}" for peer in peers))


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
        "peers": {peer: {key: worker.hello[key] for key in ("version", "system")}
                  for peer, worker in engines.peers.items()},
        "limits": [engines.limits()], "passes": [], "prompt": {}, "decode": [],
    }
    print(f"{result['model']}, {args.threads} threads, {result['processor']}, {result['date']}")
    for context in args.context:
        engines.turn({"do": "fill", "context": context})
        heading(f"ms, context {context}", args.peers)
        requests = [{"do": "pass", "rows": rows, "seconds": args.seconds} for rows in args.rows]
        for request, turns in zip(requests, engines.measure(requests)):
            figures = {"context": context, "rows": request["rows"], **summary(turns)}
            result["passes"].append(figures)
            show(f"{figures['rows']:5} rows", figures, args.peers)
        result["limits"].append(engines.limits())
    heading("tokens/s", args.peers)
    if args.prompt > 0:
        turns = engines.measure([{"do": "prompt", "tokens": args.prompt}])[0]
        result["prompt"] = {"tokens": args.prompt, **summary(turns)}
        show(f"prompt of {args.prompt}", result["prompt"], args.peers, args.prompt)
    if args.tokens > 0:
        for context in args.context:
            turns = engines.measure([{"do": "decode", "context": context, "tokens": args.tokens}])[0]
            figures = {"context": context, "tokens": args.tokens, **summary(turns)}
            result["decode"].append(figures)
            show(f"decoding after {context}", figures, args.peers, args.tokens)
    return result


def numbers(text):
    return [int(part) for part in text.split(",")]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--aerie", default=os.path.join(ROOT, "build/release/bin/aerie"))
    parser.add_argument("--peers", type=lambda text: text.split(","), default=["llama_cpp"],
                        help="llama_cpp,ik_llama_cpp,openvino")
    parser.add_argument("--folder", default=os.path.join(ROOT, "build/peers"), help="where install.sh put them")
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
    for path in (args.aerie, args.model, *(python_of(args, peer) for peer in args.peers)):
        if not os.path.exists(path):
            parser.error(f"{path} is not there; build Aerie and run bench/peers/install.sh first")

    result = compare(args)
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump(result, file, indent=1)
            file.write("\n")


if __name__ == "__main__":
    sys.exit(main())
