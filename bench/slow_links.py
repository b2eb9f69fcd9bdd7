#!/usr/bin/env python3
"""Two ranks of a model with slow networks between them, against what `aerie bench ranks` predicts.

    bench/slow_links.py --model MODEL.gguf --delays-us 100,1000,10000 --gbits 1,10 --rows 1,4,8,16

As root. Each rank has a network namespace, and build/release/bin/slow_link is the cable; --build names another
build. The ranks run before whatever else the machine does (SCHED_RR), since they wait for each other.

Prints what each cable is (microseconds there and back of a small datagram, Gbit/s of a TCP connection), then rows of
a Markdown table: delay, rate, rows of a pass; milliseconds of `bench ranks`; predicted by the link that it measured
and by the one that was asked for; milliseconds of `bench verify`, which is another run.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests/testing/network"))

from namespaces import SlowLink, Unavailable, at_once  # noqa: E402

ENVIRONMENT = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
# Of 1538 bytes that a full packet takes on Ethernet TCP carries 1448.
CARRIED = 1448 / 1538


def figures(link, folder, program, *words):
    out = pathlib.Path(folder) / "figures.json"
    subprocess.run(link.mpirun(folder, program, "bench", *words, "--threads", "1", "--tensor-parallel", "2", "--json",
                               str(out)), check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                   env=ENVIRONMENT, preexec_fn=at_once)
    return json.loads(out.read_text())


def off(predicted, measured):
    return f"{predicted:.1f} ({(predicted / measured - 1) * 100:+.0f} %)"


def measure(args, delay, gbits):
    programs = pathlib.Path(args.build) / "bin"
    with tempfile.TemporaryDirectory() as folder, SlowLink(programs / "slow_link", delay, gbits) as link:
        there_and_back, rate = link.measure()
        print(f"{delay} us, {gbits:g} Gbit/s: {there_and_back:.0f} us there and back, {rate:.2f} Gbit/s",
              file=sys.stderr, flush=True)
        same = ["-m", args.model, "--rows", args.rows, "--context", "128", "--repeat", str(args.repeat)]
        ranks = figures(link, folder, programs / "aerie", "ranks", *same, "--latency-us", str(delay), "--gbits",
                        str(gbits * CARRIED))
        verify = figures(link, folder, programs / "aerie", "verify", *same)
    passes = {point["rows"]: point["median_ms"] for point in verify["points"]}
    for point in ranks["points"]:
        took = point["ms"]
        print(f"| {delay / 1000:g} | {gbits:g} | {point['rows']} | {took:.1f} | {off(point['predicted_ms'], took)} "
              f"| {off(point['predicted_for_link_ms'], took)} | {passes[point['rows']]:.1f} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    numbers = {"type": lambda text: [float(word) for word in text.split(",")]}
    parser.add_argument("--model", required=True)
    parser.add_argument("--build", default=str(ROOT / "build/release"))
    parser.add_argument("--delays-us", default=[100, 1000, 10000], **numbers)
    parser.add_argument("--gbits", default=[1, 10], **numbers)
    parser.add_argument("--rows", default="1,4,8,16")
    parser.add_argument("--repeat", type=int, default=5)
    args = parser.parse_args()
    try:
        for delay in args.delays_us:
            for gbits in args.gbits:
                measure(args, delay, gbits)
    except Unavailable as error:
        sys.exit(f"slow_links: network namespaces cannot be made here: {error}")
    except subprocess.CalledProcessError as error:
        sys.exit(f"slow_links: {' '.join(map(str, error.cmd))}: {error.stderr}")


if __name__ == "__main__":
    main()
