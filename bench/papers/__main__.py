"""The tables that papers about speculative decoding have, made here: on one model, one machine and the same texts.

    aerie train data -m MODEL --out DATA --prompts train/prompts/*.jsonl --temperature 0,1 ...
    python3 bench/papers heads    -m MODEL --work WORK --data DATA     # every method, on the same texts
    python3 bench/papers methods  -m MODEL --work WORK --sets SETS     # everything at hand, on every set
    python3 bench/papers clients  -m MODEL --work WORK --sets SETS --eagle3 HEAD --p-eagle HEAD
    python3 bench/papers data     -m MODEL --work WORK --sets SETS --data DATA
    python3 bench/papers ablation -m MODEL --work WORK --sets SETS --data DATA --variant first= --variant 'tv=--loss tv'

Each prints its table in Markdown and leaves it in WORK/NAME.md, with drawings beside it where matplotlib can be imported.
SETS is a folder with the papers' sets as they are published. What was measured or trained is kept in WORK and not done
again; Ctrl-C, and the same command goes on (docs/training.md).
"""

import argparse
import fractions
import os
import pathlib
import sys

import drafters
import tables
from experiments import SETS, TABLES
from runs import ROOT, Failed, Runs


def many(kind):
    def read(text):
        return [kind(word) for word in text.split(",")]
    read.__name__ = f"list of {kind.__name__}"
    return read


class Named(argparse.Action):
    """NAME=TEXT, several times: a dict in the order given."""

    def __call__(self, parser, namespace, text, option=None):
        name, equals, value = text.partition("=")
        if not name or not equals:
            parser.error(f"{option} {text}: NAME=TEXT")
        setattr(namespace, self.dest, {**getattr(namespace, self.dest), name: value})


def add(parser, name):
    parser.add_argument("-m", "--model", required=True)
    parser.add_argument("--work", required=True, type=pathlib.Path, help="the folder of results")
    parser.add_argument("--aerie", default=ROOT / "build/release/bin/aerie")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    if name in ("heads", "data", "ablation"):
        parser.add_argument("--data", required=True, type=pathlib.Path, help="of `aerie train data`")
        parser.add_argument("--epochs", type=int, default=2)
        parser.add_argument("--batch-tokens", type=int, default=2048)
        parser.add_argument("--draft-vocab", type=int, default=8192, help="0: all tokens (8192)")
    if name == "heads":
        parser.add_argument("--methods", type=many(str), default=list(drafters.HEADS),
                            help=f"of {', '.join(drafters.HEADS)} (all)")
        parser.add_argument("--seed", type=int, default=1)
    else:
        parser.add_argument("--sets", required=True, type=pathlib.Path, help=", ".join(SETS.values()))
        parser.add_argument("--only", type=many(str), default=list(SETS), help=f"of {', '.join(SETS)} (all)")
        parser.add_argument("--prompts", type=int, default=16, help="of a set; of `clients`, of a round (16)")
        parser.add_argument("--max-tokens", type=int, default=128)
        parser.add_argument("--temperature", type=many(float), default=[0.0, 1.0] if name == "methods" else [0.0])
    if name in ("methods", "data", "ablation"):
        parser.add_argument("--depth", type=int, default=5, help="tokens of a chain, depth of a tree (5)")
        parser.add_argument("--repeat", type=int, default=1, help="of a reply; the median counts (1)")
    if name == "methods":
        parser.add_argument("--method", action=Named, default={}, metavar="NAME=SPECULATE", help="one more")
    if name == "clients":
        parser.add_argument("--eagle3", required=True)
        parser.add_argument("--p-eagle", required=True)
        parser.add_argument("--depths", type=many(int), default=[3, 5, 7])
        parser.add_argument("--clients", type=many(int), default=[1, 2, 4, 8, 16, 32, 64])
        parser.add_argument("--rounds", type=int, default=4)
    if name in ("data", "ablation"):
        parser.add_argument("--seeds", type=many(int), default=[1, 2, 3], help="two at least (1,2,3)")
    if name == "data":
        parser.add_argument("--shares", type=many(fractions.Fraction), help="(1/8,1/4,1/2,1)",
                            default=[fractions.Fraction(1, part) for part in (8, 4, 2, 1)])
    if name == "ablation":
        parser.add_argument("--of", choices=drafters.HEADS, default="EAGLE-3")
        parser.add_argument("--variant", action=Named, default={}, metavar="NAME=FLAGS", help="of the training; the first is "
                            "what the others are compared with")


def parsed(words):
    parser = argparse.ArgumentParser(prog="python3 bench/papers", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="table", required=True)
    for name, of in TABLES.items():
        add(commands.add_parser(name, help=of.__doc__, description=of.__doc__), name)
    args = parser.parse_args(words)
    for flag, all_names in (("methods", drafters.HEADS), ("only", SETS)):
        for name in getattr(args, flag, []):
            if name not in all_names:
                parser.error(f"--{flag} {name}: of {', '.join(all_names)}")
    if len(getattr(args, "seeds", [1, 2])) < 2:
        parser.error("--seeds: two or more, or there is no interval")
    if args.table == "ablation" and len(args.variant) < 2:
        parser.error("--variant: two or more, such as --variant first= --variant 'tv=--loss tv'")
    for path in [args.model, getattr(args, "data", args.model), getattr(args, "sets", args.model)]:
        if not pathlib.Path(path).exists():
            parser.error(f"{path} is not there")
    return args


def main(words):
    args = parsed(words)
    if not tables.CAN_DRAW:
        print("without drawings: pip install matplotlib", file=sys.stderr)
    try:
        text = TABLES[args.table](Runs(args.aerie, args.model, args.work), args)
    except Failed as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    if text:
        (args.work / f"{args.table}.md").write_text(text, encoding="utf-8")
        print(text, end="")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
