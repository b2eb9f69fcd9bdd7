"""Whoever else is served, and however it is drafted: each client gets the ids of a lone plain run."""

import concurrent.futures
import json
import random
import subprocess

from conftest import NIGHTLY

CLIENTS = 64
PROMPTS = [
    "The lighthouse stood on a rock that",
    "def add(a, b):\n    return a + b\n\ndef add(a, b):\n    return",
    "one two three four five one two three four five one two",
    "Dear Sir or Madam,\n\nI am writing to",
    "Q: What is the boiling point of water?\nA:",
    "{\"name\": \"Ada\", \"year\": 1815}\n{\"name\": \"Alan\", \"year\":",
]


def requests(speculations):
    """As many as there are clients; the same each time."""
    draw = random.Random(20)
    out = []
    for number in range(CLIENTS):
        extra = {"return_token_ids": True, "ignore_eos": number % 5 == 0}
        settings = {
            "prompt": PROMPTS[number % len(PROMPTS)] + " again" * (number % 4),
            "temperature": draw.choice([0, 0, 0.5, 0.8, 1.0, 1.3]),
            "seed": number,
            # The longest cross a page of the cache, behind prompts of up to 28 tokens.
            "max_tokens": draw.choice([8, 24, 40, 64] if NIGHTLY else [8, 12, 20, 48]),
            "extra_body": extra,
        }
        if number % 3 == 1:
            settings["top_p"] = 0.9
            extra["top_k"] = 40
        if number % 7 == 2:
            settings["frequency_penalty"] = 0.6
            settings["presence_penalty"] = 0.2
            extra["repetition_penalty"] = 1.1
        if number % 11 == 3:
            settings["logit_bias"] = {"30": -5, "198": 2}
        if number % 13 == 4:
            extra["structured_outputs"] = {"regex": "[a-z ]{10,60}\\."}
        if number % 4 == 3:
            speculation = "off"
        else:
            method = speculations[number % len(speculations)]
            speculation = {"method": method}
            if number % 4 == 1:
                speculation["depth"] = 1 + number % 6
        out.append((settings, speculation))
    return out


def run(client, model, settings, speculation, stream=False):
    extra = {**settings["extra_body"], "speculation": speculation}
    settings = {**settings, "extra_body": extra, "model": model}
    if not stream:
        choice = client.completions.create(**settings).choices[0]
        return choice.model_extra["token_ids"], choice.text
    ids, text = [], ""
    for chunk in client.completions.create(stream=True, **settings):
        for choice in chunk.choices:
            ids += choice.model_extra.get("token_ids") or []
            text += choice.text
    return ids, text


def test_every_client_gets_what_it_would_get_alone(server, client, model, speculations):
    asked = requests(speculations)
    alone = [run(client, model, settings, "off") for settings, _ in asked]
    with concurrent.futures.ThreadPoolExecutor(CLIENTS) as pool:
        replies = [
            pool.submit(run, client, model, settings, speculation, number % 2 == 0)
            for number, (settings, speculation) in enumerate(asked)
        ]
        together = [reply.result() for reply in replies]
    for number, (one, other) in enumerate(zip(alone, together)):
        assert one == other, f"client {number}: {asked[number]}"
    assert len({tuple(ids) for ids, _ in together}) > CLIENTS // 2


def test_the_server_gives_what_the_program_gives(program, model_file, client, model, tmp_path):
    for number, temperature in enumerate([0, 0.8, 1.2]):
        figures = tmp_path / "figures.json"
        subprocess.run(
            [program, "run", "-m", model_file, "--raw", "-p", PROMPTS[number], "-n", "24", "--temperature",
             str(temperature), "--seed", "77", "--speculate", "none", "--json", figures, "--quiet"],
            check=True, stdout=subprocess.DEVNULL)
        lone = json.loads(figures.read_text())
        settings = {"prompt": PROMPTS[number], "temperature": temperature, "seed": 77,
                    "max_tokens": 24, "extra_body": {"return_token_ids": True}}
        for speculation in ("off", {"method": "ngram"}):
            ids, _ = run(client, model, settings, speculation)
            assert ids == lone["token_ids"]


def test_prefixes_that_are_shared_change_nothing(client, model):
    long = "The harbour has four quays. " * 30
    settings = {"prompt": long + "The first", "temperature": 0.9, "seed": 3, "max_tokens": 32,
                "extra_body": {"return_token_ids": True}}
    first = run(client, model, settings, "off")
    reply = client.completions.create(model=model, **settings)
    assert reply.choices[0].model_extra["token_ids"] == first[0]
    assert reply.usage.prompt_tokens_details.cached_tokens > 0
