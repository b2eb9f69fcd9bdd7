"""python -m aerie.ray train-data: train_data() as a command."""

from __future__ import annotations

import argparse
import sys

import ray

from ..program import PROGRAM
from .data import ShardLost, train_data


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m aerie.ray", description="Aerie on a Ray cluster.")
    commands = parser.add_subparsers(dest="command", required=True)
    data = commands.add_parser("train-data", allow_abbrev=False,
                               help="aerie train data, shared out over the cluster; it takes its other flags, too")
    data.add_argument("-m", "--model", required=True, help="that every node finds")
    data.add_argument("--prompts", nargs="+", required=True, metavar="FILE")
    data.add_argument("--plain", nargs="+", default=[], metavar="FILE")
    data.add_argument("--out", required=True, metavar="FOLDER", help="of this machine")
    data.add_argument("--shards", type=int, required=True, help="tasks; more than there are nodes")
    data.add_argument("--threads", type=int, default=4, help="of a task, and the cores that it is placed by")
    data.add_argument("--program", default=str(PROGRAM), help="that every node finds, with aerie-train beside it")
    data.add_argument("--retries", type=int, default=3, help="of a shard whose node or process is lost")
    given, flags = parser.parse_known_args()

    def show(done: int, all_of_them: int) -> None:
        print(f"{done} of {all_of_them} shards", file=sys.stderr, flush=True)

    try:
        samples = train_data(given.model, given.prompts, given.out, shards=given.shards, plain=given.plain, flags=flags,
                             threads=given.threads, program=given.program, retries=given.retries, progress=show)
    except (OSError, RuntimeError, ValueError, ShardLost, ray.exceptions.RayError) as error:
        print(f"python -m aerie.ray train-data: {error}", file=sys.stderr)
        return 1
    print(f"{samples} samples in {given.out}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
