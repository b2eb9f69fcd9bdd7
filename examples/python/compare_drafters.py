"""Compares drafters, one of them written here, on prompts of one's own: the same ids, in how many passes and seconds.

    python3 examples/python/compare_drafters.py MODEL [PROMPT...] [--temperature 0] [--max-tokens 128]
        [--speculate '{"method": "draft_model", "model": "SMALL.gguf"}']...
"""

import argparse
import collections
import json
import sys
import time

from aerie import LLM, Drafter, SamplingParams

PROMPTS = [
    "Write a Python class for a stack with push, pop and peek.",
    "List the months of the year, each with the number of its days.",
]


class Bigrams(Drafter):
    """What followed the last two tokens most often, in all texts so far."""

    def __init__(self, length=6):
        self.length = length
        self.after = collections.defaultdict(collections.Counter)
        self.learnt = {}

    def open(self, sequence, tokens):
        self.learnt[sequence] = 0

    def close(self, sequence):
        del self.learnt[sequence]

    def observe(self, results):
        for result in results:
            tokens = result.tokens
            for place in range(max(2, self.learnt[result.sequence]), len(tokens)):
                self.after[tokens[place - 2], tokens[place - 1]][tokens[place]] += 1
            self.learnt[result.sequence] = len(tokens)

    def draft(self, request):
        text = request.tokens[-2:]
        while len(text) < 2 + min(self.length, request.max_tokens):
            following = self.after.get(tuple(text[-2:]))
            if not following:
                break
            text.append(following.most_common(1)[0][0])
        return text[2:]

    def propose(self, requests):
        return [self.draft(request) for request in requests]


def measure(model, config, prompts, params):
    """(ids, seconds, tokens per pass, drafted, accepted) of all prompts, one after the other."""
    with LLM(model, speculative_config=config, max_num_seqs=1) as llm:
        begin = time.perf_counter()
        replies = [llm.chat([{"role": "user", "content": prompt}], params)[0].outputs[0] for prompt in prompts]
        seconds = time.perf_counter() - begin
        for error in llm.drafter_errors:
            print(error, file=sys.stderr)
    stats = [reply.speculation for reply in replies]
    rounds = sum(one.rounds for one in stats)
    return ([reply.token_ids for reply in replies], seconds, sum(one.round_tokens for one in stats) / max(1, rounds),
            sum(one.drafted_tokens for one in stats), sum(one.accepted_tokens for one in stats))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("prompts", nargs="*", default=PROMPTS)
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--max-tokens", type=int, default=128)
    parser.add_argument("--speculate", action="append", default=[], help="one more, with vLLM's keys as JSON")
    options = parser.parse_args()
    params = SamplingParams(temperature=options.temperature, seed=1, max_tokens=options.max_tokens)
    rows = [("plain decoding", None), ("auto", "auto"), ("ngram", {"method": "ngram"}),
            ("suffix", {"method": "suffix"}), ("this file's", {"method": "custom", "drafter": Bigrams()})]
    rows += [(text, json.loads(text)) for text in options.speculate]
    print(f"{'drafter':<24}{'ids':>8}{'tokens/s':>10}{'per pass':>10}{'drafted':>9}{'accepted':>10}")
    plain = None
    for name, config in rows:
        ids, seconds, per_pass, drafted, accepted = measure(options.model, config, options.prompts, params)
        plain = plain or ids
        rate = sum(map(len, ids)) / seconds
        same = "same" if ids == plain else "OTHER"
        print(f"{name[:23]:<24}{same:>8}{rate:>10.1f}{per_pass:>10.2f}{drafted:>9}{accepted:>10}", flush=True)
        if ids != plain:
            sys.exit("the ids differ, which is an error in Aerie")


if __name__ == "__main__":
    main()
