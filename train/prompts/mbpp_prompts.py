#!/usr/bin/env python3
"""Prompts for training from the tasks of MBPP (train and validation splits), for a model that writes code.

    train/prompts/mbpp_prompts.py ../shared/data/mbpp/mbpp.jsonl mbpp-prompts.jsonl

Of each task: the task in words, its function to complete from signature and docstring, and its solution to explain.
The answers are the model's own; MBPP's solutions stand in prompts alone. The file is not kept here, because the
tasks are not the project's (CC BY 4.0, Google Research).
"""

import argparse
import json
import pathlib
import re
import textwrap

# MBPP's test split is 11 to 510, and 1 to 10 are examples.
SPLIT = range(511, 975)


def signature(task):
    """The first line of the function that the tests call, or None."""
    called = re.search(r"(\w+)\s*\(", task["test_list"][0].removeprefix("assert").lstrip(" (not"))
    found = called and re.search(rf"^def\s+{called[1]}\s*\([^\n]*\)\s*:", task["code"], re.MULTILINE)
    return found and re.sub(r"\s+(?=[(:])", "", found[0])


def prompts(task):
    number, text, code = task["task_id"], task["text"].strip(), task["code"].replace("\r\n", "\n").expandtabs(4).strip()
    yield f"mbpp-{number}-task", f"{text}\nYour function should pass this test: {task['test_list'][0]}"
    if head := signature(task):
        goal = text.removeprefix("Write a function to ").removeprefix("Write a python function to ")
        goal = textwrap.fill(goal[0].upper() + goal[1:], 76).replace("\n", "\n    ")
        yield f"mbpp-{number}-complete", (
            f"Complete this Python function:\n\n```python\n{head}\n    \"\"\"\n    {goal}\n    \"\"\"\n```")
    yield f"mbpp-{number}-explain", f"Explain step by step what this code does.\n\n```python\n{code}\n```"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tasks", type=pathlib.Path, help="mbpp.jsonl")
    parser.add_argument("out", type=pathlib.Path)
    arguments = parser.parse_args()
    with arguments.out.open("w", encoding="utf-8") as out:
        for line in arguments.tasks.read_text(encoding="utf-8").splitlines():
            task = json.loads(line)
            if task["task_id"] not in SPLIT:
                continue
            for name, text in prompts(task):
                out.write(json.dumps({"question_id": name, "turns": [text]}, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
