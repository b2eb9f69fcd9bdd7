#!/usr/bin/env python3
"""Holds the prompts for training apart from the sets for evaluation.

check_overlap.py DATA_DIR [FILE...]: no eight words in a row of the given files of prompts (without
any: those beside this file) may occur in spec-bench, mt-bench, humaneval, gsm8k/test, eagle-eval or
the test split of mbpp below DATA_DIR. Words are runs of letters, digits and underscores; case and
everything else between them do not count. A shorter text may not be a whole text of a set, nor a
function bear the name of one of humaneval's. Prints each prompt that does and the words, and exits
with 1; with 2 if a set or a file cannot be read.
"""

import argparse
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts"))

from prompt_file import records  # noqa: E402

WORDS = 8
SETS = [
    "spec-bench/question.jsonl",
    "mt-bench/question.jsonl",
    "humaneval/HumanEval.jsonl",
    "gsm8k/test.jsonl",
    "eagle-eval/gsm8k.jsonl",
    "eagle-eval/humaneval.jsonl",
    "eagle-eval/qa.jsonl",
    "eagle-eval/sum.jsonl",
    "mbpp/mbpp.jsonl",
]
MBPP_TEST = range(11, 511)  # task_id
WORD = re.compile(r"\w+")
FUNCTION = re.compile(r"^def (\w+)\(", re.MULTILINE)


def texts_of(value):
    """All texts inside a JSON value, each by itself."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from texts_of(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from texts_of(item)


def grams(text):
    """Its runs of WORDS words (all its words if there are fewer) and the functions it defines."""
    for name in FUNCTION.findall(text):
        yield ("def", name)
    words = WORD.findall(text.lower())
    if 0 < len(words) < WORDS:
        yield tuple(words)
    for i in range(len(words) - WORDS + 1):
        yield tuple(words[i : i + WORDS])


def evaluation_grams(data):
    """Each run of words of the sets, with the set in which it was seen first."""
    result = {}
    for name in SETS:
        before, count = len(result), 0
        for _, record in records(data / name):
            if name.startswith("mbpp") and record["task_id"] not in MBPP_TEST:
                continue
            count += 1
            for text in texts_of(record):
                for gram in grams(text):
                    if gram[0] == "def" and "humaneval" not in name:
                        continue  # mbpp's names are those that everybody would choose
                    result.setdefault(gram, name)
        if count == 0:
            raise ValueError(f"{data / name} holds no records")
        print(f"{name}: {count} records, {len(result) - before} new runs of {WORDS} words")
    return result


def check(path, known):
    """The number of prompts of the file that share words with a set."""
    bad = count = 0
    for number, record in records(path):
        count += 1
        for text in texts_of([record.get("turns", []), record.get("prompt", "")]):
            shared = next((gram for gram in grams(text) if gram in known), None)
            if shared:
                bad += 1
                print(f"{path}:{number}: '{' '.join(shared)}' is in {known[shared]}")
                break
    print(f"{path.name}: {count} prompts, {bad} with words in common")
    return bad


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", metavar="DATA_DIR", type=pathlib.Path)
    parser.add_argument("files", metavar="FILE", nargs="*", type=pathlib.Path)
    args = parser.parse_args()
    files = args.files or sorted(pathlib.Path(__file__).resolve().parent.glob("*.jsonl"))
    try:
        if not files:
            raise ValueError("there are no files of prompts; write them with make_prompts.py")
        known = evaluation_grams(args.data)
        bad = sum(check(path, known) for path in files)
    except (OSError, ValueError, KeyError) as error:
        print(f"check_overlap.py: {error}", file=sys.stderr)
        return 2
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
