#!/usr/bin/env python3
"""Prompts that the target writes itself (2406.08464): after the words with which a user's message begins in its chat
template, a model goes on with a message.

self_prompts.py SERVER OUT [--count N] [--seed S]: SERVER is the address of an `aerie serve` with the model. Adds N
prompts to OUT, as `aerie train data --prompts` reads them: {"kind", "turns"}. Each kind of KINDS begins with words of
its own, so that all of them are there; most begin with none. What does not end within MOST_TOKENS, what is very short
and what is there already is left out. Run check_overlap.py on what comes out.
"""

import argparse
import concurrent.futures
import json
import pathlib
import random
import sys
import urllib.request

MOST_TOKENS = 160
AT_ONCE = 16  # replies of a request
REQUESTS = 4  # at a time
SYSTEM = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
# What a message begins with, and how often one does, for all others.
KINDS = [
    ("any", "", 30),
    ("write", "Write a", 6),
    ("write", "Write an email", 3),
    ("code", "Write a Python function that", 8),
    ("code", "Complete the following Python function:\n\n```python\ndef", 8),
    ("code", "Fix the bug in this code:\n\n```python\n", 4),
    ("code", "Explain what this code does:\n\n```", 4),
    ("edit", "Rewrite the following text", 4),
    ("edit", "Correct the mistakes in this text", 2),
    ("extract", "Extract", 3),
    ("summary", "Summarize the following text:\n\n", 6),
    ("mathematics", "A", 4),
    ("mathematics", "Solve the following problem. ", 3),
    ("question", "What is", 3),
    ("question", "Who", 2),
    ("question", "Why", 2),
    ("question", "How do", 2),
    ("list", "List", 2),
    ("explain", "Explain", 2),
    ("roleplay", "Imagine you are", 2),
    ("code", "Write a JavaScript function", 3),
    ("code", "Write a C program that", 2),
    ("code", "Create an HTML page", 2),
    ("write", "Write a poem", 2),
    ("write", "Write a story", 2),
    ("plan", "Create a plan", 2),
    ("table", "Make a table", 2),
    ("recipe", "Give me a recipe", 2),
    ("compare", "Compare", 2),
    ("argue", "Give arguments", 2),
    ("language", "¿Qué", 3),
    ("language", "Escribe", 2),
    ("language", "Wie", 3),
    ("language", "Schreibe", 2),
    ("language", "Come", 2),
    ("language", "O que", 2),
]


def ask(server, path, body):
    request = urllib.request.Request(
        server + path, json.dumps(body).encode(), {"content-type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=600) as reply:
        return json.load(reply)


def beginning(server, words):
    """The ids of the template up to the user's message, and of the words that this begins with."""
    text = f"<|im_start|>system\n{SYSTEM}<|im_end|>\n<|im_start|>user\n{words}"
    return ask(server, "/tokenize", {"content": text, "add_special": False, "parse_special": True})["tokens"]


def write(server, ids, words, seed):
    """Messages that begin with the words."""
    reply = ask(
        server,
        "/v1/completions",
        {"prompt": ids, "max_tokens": MOST_TOKENS, "n": AT_ONCE, "temperature": 0.9, "seed": seed},
    )
    ended = [choice["text"] for choice in reply["choices"] if choice["finish_reason"] == "stop"]
    return [(words + text).strip() for text in ended if len(text.split()) >= 3]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("server", help="http://HOST:PORT")
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    seen = set()
    if options.out.exists():
        with options.out.open(encoding="utf-8") as lines:
            seen = {json.loads(line)["turns"][0] for line in lines}
    begins = [beginning(options.server, words) for _, words, _ in KINDS]
    chance = random.Random(options.seed)
    made = 0
    with options.out.open("a", encoding="utf-8") as out, concurrent.futures.ThreadPoolExecutor(REQUESTS) as pool:
        while made < options.count:
            kinds = chance.choices(range(len(KINDS)), [share for _, _, share in KINDS], k=REQUESTS)
            seeds = [chance.getrandbits(40) for _ in kinds]
            texts = pool.map(
                lambda kind, seed: write(options.server, begins[kind], KINDS[kind][1], seed), kinds, seeds
            )
            for kind, written in zip(kinds, texts):
                for text in written:
                    if text in seen or made >= options.count:
                        continue
                    seen.add(text)
                    made += 1
                    out.write(json.dumps({"kind": KINDS[kind][0], "turns": [text]}, ensure_ascii=False) + "\n")
            out.flush()
    print(f"{options.out}: {len(seen)} prompts", file=sys.stderr)


if __name__ == "__main__":
    main()
