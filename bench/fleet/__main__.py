"""One machine's figures, taken to a fleet: a simulation of routing, prefix caches and speculation (docs/scaling/fleet.md).

    aerie bench verify -m MODEL --rows 1,2,4,8,16,32,64,128,256 --context 64,512 --json passes.json
    aerie bench spec -m MODEL --dataset PROMPTS.jsonl --method suffix --json spec.json
    python3 bench/fleet --passes passes.json --drafts spec.json --replicas 1,10,100 --rate 2,4 --speculate none,auto
    python3 bench/fleet --passes passes.json --acceptance 0.7,0.5,0.4 --replicas 8 --trace runs.jsonl --speed 100
"""

import argparse
import gc
import itertools
import json
import sys
import time

from costs import PAGE, BadInput, Machine, read_drafts, read_passes
from load import Recorded, Synthetic
from routing import POLICIES
from simulate import Fleet

COLUMNS = [("replicas", "d"), ("policy", "s"), ("load", "s"), ("speculate", "s"), ("TTFT p50", "ms"),
           ("p99", "ms"), ("TPOT p50", "ms"), ("p99", "ms"), ("tokens/s", ".0f"), ("hits", ".3f"), ("τ", ".2f"),
           ("busy", ".2f"), ("gain", ".2f"), ("failed", "d")]


def many(kind):
    def read(text):
        values = [kind(word) for word in text.split(",")]
        if kind in (int, float) and any(value <= 0 for value in values):
            raise ValueError
        return values
    read.__name__ = f"list of {kind.__name__} above 0"
    return read


def number(least, most=float("inf"), kind=float):
    def read(text):
        value = kind(text)
        if not least <= value <= most:
            raise argparse.ArgumentTypeError(f"{text}: from {least} to {most}")
        return value
    read.__name__ = kind.__name__
    return read


def parsed(arguments):
    parser = argparse.ArgumentParser(prog="python3 bench/fleet", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    one = parser.add_argument_group("a machine")
    one.add_argument("--passes", required=True, help="`aerie tune --out` or `aerie bench verify --json`")
    one.add_argument("--drafts", help="`aerie bench spec --json`: acceptance and what drafting takes")
    one.add_argument("--method", help="of --drafts, where there are several")
    one.add_argument("--acceptance", help="instead: 0.7,0.5,0.4: how many of all rounds accept a token at each depth")
    one.add_argument("--draft-seconds", type=number(0), default=0.0, help="with it: of a drafted token")
    one.add_argument("--prompt-cost", type=number(0.01, 1), default=1.0,
                     help="of a prompt's row, by that of a verified one: it needs no logits")
    one.add_argument("--speculate", default="auto",
                     help="none, auto (as much as pays) or a depth; several: none,auto")
    one.add_argument("--max-num-seqs", type=number(1, kind=int), default=64)
    one.add_argument("--max-num-batched-tokens", type=number(0, kind=int), default=0, help="0: as `aerie serve`")
    one.add_argument("--cache-tokens", type=number(PAGE, kind=int), default=32768, help="of a replica")
    one.add_argument("--no-prefix-cache", action="store_true")
    fleet = parser.add_argument_group("the fleet")
    fleet.add_argument("--replicas", type=many(int), default=[1])
    fleet.add_argument("--policy", default="all", help=", ".join(POLICIES) + "; several, or all")
    fleet.add_argument("--mtbf", type=number(1e-3), help="seconds that a replica runs in the mean before it fails")
    fleet.add_argument("--repair", type=number(0), default=60.0, help="seconds until it is back")
    fleet.add_argument("--retries", type=number(0, kind=int), default=5)
    load = parser.add_argument_group("the load")
    load.add_argument("--trace", 
                      help="JSON lines: records of Aerie, or timestamp, input_length, output_length, hash_ids")
    load.add_argument("--speed", type=number(1e-9), default=1.0, help="of a trace's clock")
    load.add_argument("--hash-block", type=number(PAGE, kind=int), default=512, help="tokens of one of hash_ids")
    load.add_argument("--rate", type=many(float), help="requests a second and replica, at random times")
    load.add_argument("--clients", type=many(int), help="instead: so many of a fleet, who ask again after each reply")
    load.add_argument("--requests", type=number(1, kind=int), default=5000)
    load.add_argument("--requests-per-replica", type=number(0, kind=int), default=100, help="at least")
    load.add_argument("--prefixes-per-replica", type=number(1e-9), default=20.0)
    load.add_argument("--prefix-tokens", type=number(0, kind=int), default=512)
    load.add_argument("--zipf", type=number(0), default=1.0, help="exponent by which prefixes are popular")
    load.add_argument("--own-tokens", type=number(1), default=128.0, help="of a prompt after its prefix, in the mean")
    load.add_argument("--output-tokens", type=number(1), default=128.0, help="in the mean")
    load.add_argument("--spread", type=number(0), default=0.5, help="coefficient of variation of both; 0: all alike")
    load.add_argument("--warm-up", type=number(0, 0.99), default=0.2, help="share of requests that do not count")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", help="write the figures to this file; -: standard output")
    args = parser.parse_args(arguments)
    args.policy = list(POLICIES) if args.policy == "all" else args.policy.split(",")
    args.speculate = args.speculate.split(",")
    complain(parser, args)
    return args


def complain(parser, args):
    for policy in args.policy:
        if policy not in POLICIES:
            parser.error(f"--policy: {policy} is none of {', '.join(POLICIES)}")
    for word in args.speculate:
        if word not in ("none", "auto") and not (word.isdigit() and int(word) > 0):
            parser.error(f"--speculate: {word} is neither none, auto nor a depth")
    if max(args.replicas) > 10_000:
        parser.error("--replicas: at most 10000")
    if args.drafts and args.acceptance:
        parser.error("--drafts or --acceptance, not both")
    if args.prefix_tokens % PAGE:
        parser.error(f"--prefix-tokens: whole pages, of {PAGE} tokens")
    if args.clients and args.rate:
        parser.error("--clients or --rate, not both")
    if not (args.trace or args.clients or args.rate):
        parser.error("--rate, --clients or --trace is needed")


def machines(args):
    passes, acceptance, share, draft_seconds = read_passes(args.passes), [], 1.0, args.draft_seconds
    if args.drafts:
        acceptance, share, draft_seconds = read_drafts(args.drafts, args.method)
    elif args.acceptance:
        try:
            acceptance = [float(word) for word in args.acceptance.split(",")]
        except ValueError as error:
            raise BadInput(f"--acceptance: {error}") from error
    return {word: Machine(passes, acceptance, share, draft_seconds, word, args.max_num_batched_tokens,
                          args.prompt_cost)
            for word in args.speculate}


def make_load(args, replicas, rate):
    if args.trace:
        return Recorded(args.trace, args.speed, rate and rate * replicas, args.seed, args.hash_block)
    count = max(args.requests, args.requests_per_replica * replicas)
    prefixes = max(1, round(args.prefixes_per_replica * replicas))
    return Synthetic(count, (rate or 1.0) * replicas, prefixes, args.prefix_tokens, args.zipf, args.own_tokens,
                     args.output_tokens, args.spread, args.seed)


def runs(args):
    """A row for each, as it is done; `gain`: by how much whole replies come sooner than without speculation."""
    built = machines(args)
    levels = [("rate", rate) for rate in args.rate or ()] + [("clients", n) for n in args.clients or ()]
    for replicas, (kind, level) in itertools.product(args.replicas, levels or [("trace", None)]):
        load = make_load(args, replicas, level if kind == "rate" else None)
        for policy in args.policy:
            plain = None
            for word, machine in built.items():
                started = time.perf_counter()
                fleet = Fleet(machine, load, replicas, policy, max_seqs=args.max_num_seqs,
                              pages=args.cache_tokens // PAGE, mtbf=args.mtbf, repair=args.repair,
                              retries=args.retries, clients=level if kind == "clients" else None,
                              warm_up=args.warm_up, prefix_cache=not args.no_prefix_cache, seed=args.seed)
                row = {"replicas": replicas, "policy": policy, kind: level, "speculate": word, **fleet.run()}
                if word == "none":
                    plain = row["e2el_mean_ms"]
                row["gain"] = plain / row["e2el_mean_ms"] if plain and row["e2el_mean_ms"] else None
                row["simulated_in_seconds"] = time.perf_counter() - started
                yield row


def line(row):
    level = f"{row['rate']:g}/s" if "rate" in row else f"{row['clients']} clients" if "clients" in row else "recorded"
    values = [row["replicas"], row["policy"], level, row["speculate"], row["ttft_p50_ms"], row["ttft_p99_ms"],
              row["tpot_p50_ms"], row["tpot_p99_ms"], row["output_throughput"], row["prefix_hit_rate"],
              row["tokens_per_round"], row["busy"], row["gain"], row["failed"]]
    cells = []
    for value, (_, form) in zip(values, COLUMNS):
        if value is None:
            cells.append("-")
        elif form == "ms":
            cells.append(f"{value:.0f}" if value >= 100 else f"{value:.1f}")
        else:
            cells.append(format(value, form))
    return "| " + " | ".join(cells) + " |"


def main(arguments=None):
    args = parsed(arguments)
    gc.disable()  # nothing goes round in circles, and millions of requests take long to look through
    rows, out = [], sys.stderr if args.json == "-" else sys.stdout
    try:
        for row in runs(args):
            if not rows:
                print("| " + " | ".join(name for name, _ in COLUMNS) + " |\n|" + "---|" * len(COLUMNS), file=out)
            rows.append(row)
            print(line(row), file=out, flush=True)
    except BadInput as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    if args.json:
        text = json.dumps({"settings": vars(args), "runs": rows}, indent=1)
        if args.json == "-":
            print(text)
        else:
            try:
                with open(args.json, "w", encoding="utf-8") as file:
                    file.write(text + "\n")
            except OSError as error:
                print(f"error: {args.json}: {error.strerror}", file=sys.stderr)
                return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
