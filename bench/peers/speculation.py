#!/usr/bin/env python3
"""What speculation brings to Aerie and to llama.cpp on one pair of models, and whether the ids stay.

    bench/peers/install.sh llama_cpp
    bench/peers/speculation.py --model TARGET.gguf --draft DRAFT.gguf --dataset train/prompts/code.jsonl --threads 2

Takes the prompts of the set that are texts to go on with ("prompt"). llama.cpp writes each reply plainly, with the
draft model and by looking n-grams up, in turns, greedily; its settings are its own defaults. Aerie does the same through
`aerie bench spec`. For each: tokens/s after the first token, those by plain decoding's, the share of the drafted
tokens that were accepted, and how many replies have the ids of plain decoding by the same engine.
"""

import argparse
import json
import os
import subprocess
import tempfile

import compare

TYPES = ("none", "draft-simple", "ngram-simple")


def texts(args):
    with open(args.dataset, encoding="utf-8") as file:
        records = [record for record in map(json.loads, file) if "prompt" in record]
    return [record["prompt"] for record in records[args.first:args.first + args.limit]]


def of_llama(args, prompts):
    """A row for each type: name, tokens/s, accepted share, replies with plain decoding's ids."""
    program = os.path.join(args.folder, "llama_cpp/of_llama_speculation")
    worker = compare.Worker([
        program, "-m", args.model, "-md", args.draft, "-t", str(args.threads), "-td", str(args.threads), "-c",
        str(args.ctx), "--temp", "0", "--spec-type", ",".join(TYPES[1:]), "--log-disable"])
    replies = {type_: [] for type_ in TYPES}
    for repeat in range(args.repeat + 1):
        for number, prompt in enumerate(prompts[:1] if repeat == 0 else prompts):
            # Another begins each time; the first round warms up.
            for type_ in TYPES[number % len(TYPES):] + TYPES[:number % len(TYPES)]:
                reply = worker.ask(prompt=prompt, tokens=args.max_tokens, type=type_)
                if repeat > 0:
                    replies[type_].append(reply)
    rows = []
    for type_ in TYPES:
        own = replies[type_]
        drafted = sum(reply["drafted"] for reply in own)
        rows.append({
            "method": type_,
            "tokens_per_second": 1e3 * sum(len(r["ids"]) - 1 for r in own) / sum(r["ms"] for r in own),
            "acceptance_rate": sum(reply["accepted"] for reply in own) / drafted if drafted else 0.0,
            "same": sum(a["ids"] == b["ids"] for a, b in zip(own, replies["none"])),
            "replies": len(own),
        })
    return rows


def of_aerie(args, prompts):
    """The same of Aerie."""
    methods = ["none", f"draft_model:model={args.draft}", "ngram:gate=1", f"auto,draft_model:model={args.draft}"]
    with tempfile.TemporaryDirectory() as folder:
        dataset, figures = os.path.join(folder, "texts.jsonl"), os.path.join(folder, "figures.json")
        with open(dataset, "w", encoding="utf-8") as file:
            file.writelines(json.dumps({"prompt": prompt}) + "\n" for prompt in prompts)
        command = [args.aerie, "bench", "spec", "-m", args.model, "--dataset", dataset, "--threads", str(args.threads),
                   "--max-tokens", str(args.max_tokens), "--repeat", str(args.repeat), "--ctx", str(args.ctx),
                   "--json", figures, "--quiet"]
        for method in methods[1:]:
            command += ["--method", method]
        # It compares the ids, and ends with another status at the first that differs.
        subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
        with open(figures, encoding="utf-8") as file:
            return [{"method": one["method"].split(":model=")[0], "same": one["replies"],
                     **{key: one[key] for key in ("tokens_per_second", "acceptance_rate", "replies")}}
                    for one in json.load(file)["methods"]]


def show(engine, rows):
    plain = rows[0]["tokens_per_second"]
    for row in rows:
        print(f"{engine:10}{row['method']:20}{row['tokens_per_second']:10.1f}{row['tokens_per_second'] / plain:10.2f}"
              f"{row['acceptance_rate']:10.2f}{row['same']:8} of {row['replies']}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--draft", required=True, help="a smaller model with the same tokens")
    parser.add_argument("--dataset", default=os.path.join(compare.ROOT, "train/prompts/code.jsonl"))
    parser.add_argument("--aerie", default=os.path.join(compare.ROOT, "build/release/bin/aerie"))
    parser.add_argument("--folder", default=os.path.join(compare.ROOT, "build/peers"), help="where install.sh put them")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--ctx", type=int, default=4096)
    parser.add_argument("--first", type=int, default=0, help="prompts of the set to leave out before")
    parser.add_argument("--limit", type=int, default=20, help="prompts")
    parser.add_argument("--max-tokens", type=int, default=128)
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--json", help="write all figures to this file")
    args = parser.parse_args()
    prompts = texts(args)
    print(f"{os.path.basename(args.model)}, {len(prompts)} prompts, {compare.processor()}")
    print(f"{'':10}{'method':20}{'tokens/s':>10}{'times':>10}{'accepted':>10}{'ids of plain':>14}")
    result = {"llama.cpp": of_llama(args, prompts)}
    show("llama.cpp", result["llama.cpp"])
    result["aerie"] = of_aerie(args, prompts)
    show("aerie", result["aerie"])
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump(result, file, indent=1)
            file.write("\n")


if __name__ == "__main__":
    main()
