"""What is run for each table, and how its figures are put together."""

import json
import os
import pathlib
import shlex
import statistics
import sys

import drafters
import tables
from runs import ROOT

sys.path.insert(0, str(ROOT / "scripts"))

import student  # noqa: E402

SETS = {"MT-bench": "mt-bench/question.jsonl", "HumanEval": "eagle-eval/humaneval.jsonl",
        "GSM8K": "eagle-eval/gsm8k.jsonl", "QA": "eagle-eval/qa.jsonl", "CNN-DM": "eagle-eval/sum.jsonl"}
DEPTHS = 4  # of n-α


def chosen(args):
    """{set: file}"""
    return {name: pathlib.Path(args.sets) / SETS[name] for name in args.only}


def train(runs, args, title, name, seed, data=None, more=()):
    head = drafters.HEADS[title]
    flags = ["--data", data or args.data, "--epochs", args.epochs, "--batch-tokens", args.batch_tokens, "--seed", seed,
             "--threads", args.threads, "--eval-prompts", 0, *head.flags, *more]
    if head.prunes and args.draft_vocab:
        flags += ["--draft-vocab", args.draft_vocab]
    return runs.train(head.method, name, flags)


def measure(runs, args, name, methods, temperatures):
    """{temperature: {title: {set: figures}}} of {title: what --speculate takes}; loops are left out of figures. All methods
    of a set are measured in turns, against the same plain replies."""
    found = {temperature: {title: {} for title in methods} for temperature in temperatures}
    for set_name, file in chosen(args).items():
        report = runs.spec(f"{name}/{set_name}", file, methods.values(),
                           ["--sample", args.prompts, "--max-tokens", args.max_tokens, "--repeat", args.repeat, "--threads",
                            args.threads, "--temperature", ",".join(f"{value:g}" for value in temperatures)])
        for temperature in temperatures:
            drafted = [m for m in report["methods"] if m["temperature"] == temperature and m["method"] != "none"]
            for title, figures in zip(methods, drafted, strict=True):
                found[temperature][title][set_name] = figures["without_looped"]
    return found


def mean(figures, key):
    return statistics.mean(key(of_set) for of_set in figures.values())


def tau(of_set):
    return of_set["mean_accepted_length"]


def speed(of_set):
    return of_set["speedup"]["value"]


def interval_of(speedup):
    if speedup["low_95"] is None:  # of one prompt
        return ""
    return f" ({speedup['low_95']:.2f}-{speedup['high_95']:.2f})"


def n_alpha(of_set, depth):
    known = of_set["n_alpha"]
    return known[depth] if depth < len(known) else 0.0


def heads(runs, args):
    """Trains every method on the same texts."""
    for title in args.methods:
        train(runs, args, title, f"heads/{drafters.file_name(title)}", args.seed)
    return ""


def methods(runs, args):
    """τ, speed-up and n-α of everything at hand, on every set."""
    use = dict(drafters.UNTRAINED)
    for title in [*drafters.HEADS, *drafters.TREES]:
        folder = runs.folder / "heads" / drafters.file_name(drafters.TREES.get(title, title)) / "final"
        if (folder / "config.json").exists():
            use[title] = drafters.settings(title, folder, args.depth)
    use.update(args.method)
    text, figures = "", measure(runs, args, "methods", use, args.temperature)
    for temperature, of_methods in figures.items():
        rows = []
        for title, of_sets in of_methods.items():
            cells = [f"{tau(f):.2f}, {speed(f):.2f}{interval_of(f['speedup'])}" for f in of_sets.values()]
            depths = " ".join(f"{mean(of_sets, lambda f, d=depth: n_alpha(f, d)):.2f}" for depth in range(DEPTHS))
            rows.append([title, *cells, f"{mean(of_sets, tau):.2f}, {mean(of_sets, speed):.2f}", depths])
        text += f"Temperature {temperature:g}: τ, speed-up and its 95 % interval; n-α of depths 1 to {DEPTHS}\n\n"
        text += tables.table(["", *args.only, "mean", "n-α"], rows) + "\n"
        tables.bars(runs.folder / f"methods-{temperature:g}.svg", f"Tokens of a round at temperature {temperature:g}", "τ",
                    args.only, {title: [tau(f) for f in of_sets.values()] for title, of_sets in of_methods.items()})
    return text


def clients(runs, args):
    """What a server gains: each head at each depth, for each number of clients, on prompts that it has not seen."""
    rows, drawn = [], {}
    files = [str(file) for file in chosen(args).values()]
    for depth in args.depths:
        for title, folder in (("EAGLE-3", args.eagle3), ("P-EAGLE", args.p_eagle)):
            gains = []
            for count in args.clients:
                printed = runs.script(
                    f"clients/{drafters.file_name(title)}-{depth}-{count}",
                    [str(ROOT / "bench/serve_gain.py"), "--aerie", runs.aerie, "--model", runs.model, "--speculate",
                     drafters.settings(title, folder, depth) + ",gate=0", "--dataset", *files, "--clients", str(count),
                     "--prompts", str(args.prompts), "--rounds", str(args.rounds), "--max-tokens", str(args.max_tokens),
                     "--temperature", f"{args.temperature[0]:g}", "--json"])
                gains.append(json.loads(printed)["gain"])
            rows.append([depth, title, *(tables.with_interval(*gain) for gain in gains)])
            drawn[f"{title}, K = {depth}"] = gains
    tables.lines(runs.folder / "clients.svg", "Tokens a second by plain decoding's", "speed-up", args.clients, drawn)
    return tables.table(["K", "", *(f"{count} clients" for count in args.clients)], rows)


def part_of(data, folder, share):
    """The samples of that share of the prompts, as a folder of data; a larger share holds those of a smaller."""
    folder.mkdir(parents=True, exist_ok=True)
    for file in pathlib.Path(data).iterdir():
        made = folder / file.name
        if file.name.startswith("answers-"):
            with open(file, encoding="utf-8") as lines:
                kept = [line for line in lines if json.loads(line)["prompt"] % share.denominator < share.numerator]
            made.write_text("".join(kept), encoding="utf-8")
        elif not made.exists():
            os.symlink(file.resolve(), made)
    return folder


def data(runs, args):
    """n-α of EAGLE-3 against the share of the texts that it was trained on, as often through them."""
    use = {}
    for share in args.shares:
        part = part_of(args.data, runs.folder / f"data/texts-{share.numerator}-of-{share.denominator}", share)
        for seed in args.seeds:
            name = f"data/{share.numerator}-of-{share.denominator}-{seed}"
            use[share, seed] = drafters.settings(
                "EAGLE-3", train(runs, args, "EAGLE-3", name, seed, data=part), args.depth)
    found = measure(runs, args, "data/measured", use, args.temperature[:1])[args.temperature[0]]
    rows, drawn = [], {f"depth {depth + 1}": [] for depth in range(DEPTHS)}
    for share in args.shares:
        of_seeds = [found[share, seed] for seed in args.seeds]
        points = [student.interval([mean(f, lambda s, d=depth: n_alpha(s, d)) for f in of_seeds]) for depth in range(DEPTHS)]
        for name, point in zip(drawn, points, strict=True):
            drawn[name].append(point)
        rows.append([share, *(tables.with_interval(*point) for point in points),
                     tables.with_interval(*student.interval([mean(f, tau) for f in of_seeds]))])
    tables.lines(runs.folder / "data.svg", "Acceptance against data", "n-α", [float(share) for share in args.shares], drawn)
    return tables.table(["share", *drawn, "τ"], rows)


def ablation(runs, args):
    """τ of variants of one method's training against the first of them, paired by seed."""
    use = {}
    for title, flags in args.variant.items():
        for seed in args.seeds:
            name = f"ablation/{drafters.file_name(title)}-{seed}"
            use[title, seed] = drafters.settings(
                args.of, train(runs, args, args.of, name, seed, more=shlex.split(flags)), args.depth)
    found = measure(runs, args, "ablation/measured", use, args.temperature)
    text = ""
    for temperature, of_heads in found.items():
        first = next(iter(args.variant))
        of_seeds = {title: [mean(of_heads[title, seed], tau) for seed in args.seeds] for title in args.variant}
        rows = []
        for title, values in of_seeds.items():
            gains = [value - other for value, other in zip(values, of_seeds[first], strict=True)]
            gain, half = student.interval(gains)
            rows.append([title, args.variant[title] or "defaults", tables.with_interval(*student.interval(values)),
                         "" if title == first else f"{gain:+.3f} ± {half:.3f}{' *' if abs(gain) > half else ''}"])
        text += f"Temperature {temperature:g}; *: beyond chance at 95 %\n\n"
        text += tables.table(["variant", "flags", "τ", f"to {first}"], rows) + "\n"
        tables.bars(runs.folder / f"ablation-{temperature:g}.svg", f"Tokens of a round at temperature {temperature:g}", "τ",
                    [f"seed {seed}" for seed in args.seeds], of_seeds)
    return text


TABLES = {of.__name__: of for of in (heads, methods, clients, data, ablation)}
