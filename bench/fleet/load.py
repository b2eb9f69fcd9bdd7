"""Requests: made at random from a seed, or recorded."""

import hashlib
import itertools
import json
import math
import random

from costs import PAGE, BadInput


class Request:
    """`pages`: a key for each whole page of the prompt, which stands for all tokens up to its end; `kept`: those of
    prompt and reply, which are in the cache afterwards."""
    __slots__ = ("number", "arrival", "prompt", "output", "pages", "kept", "first", "need", "hit", "read", "tries",
                 "counts", "client")

    def __init__(self, number, arrival, prompt, output, pages, kept=None):
        self.number, self.arrival, self.prompt, self.output = number, arrival, prompt, output
        self.pages, self.kept = pages, kept or pages
        self.first = self.need = self.hit = self.read = self.tries = 0
        self.counts, self.client = True, None


def _length(rng, mean, spread):
    """Log-normal with this mean and coefficient of variation."""
    if spread == 0:
        return max(1, round(mean))
    sigma = math.sqrt(math.log(1 + spread * spread))
    return max(1, round(mean * math.exp(rng.gauss(-sigma * sigma / 2, sigma))))


class Synthetic:
    """Requests of a Poisson process. Each begins with one of `prefixes` texts of `prefix_tokens`, drawn by Zipf's law
    with the exponent `zipf`, and goes on with tokens of its own."""

    def __init__(self, count, rate, prefixes, prefix_tokens, zipf, own_tokens, output_tokens, spread, seed):
        self.count, self.rate, self.seed = count, rate, seed
        self.prefixes, self.prefix_tokens, self.zipf = prefixes, prefix_tokens, zipf
        self.own_tokens, self.output_tokens, self.spread = own_tokens, output_tokens, spread

    def __len__(self):
        return self.count

    def __iter__(self):
        rng = random.Random(f"load {self.seed}")
        weights = list(itertools.accumulate((k + 1) ** -self.zipf for k in range(self.prefixes)))
        shared, names = self.prefix_tokens // PAGE, range(self.prefixes)
        now, unique = 0.0, -1
        for number in range(self.count):
            now += rng.expovariate(self.rate)
            prefix = rng.choices(names, cum_weights=weights)[0] if shared else 0
            prompt = self.prefix_tokens + _length(rng, self.own_tokens, self.spread)
            own = prompt // PAGE - shared
            pages = tuple(range(prefix * shared, (prefix + 1) * shared)) + tuple(range(unique, unique - own, -1))
            unique -= own
            yield Request(number, now, prompt, _length(rng, self.output_tokens, self.spread), pages)


class Recorded:
    """Requests of a file, `arrivals` as they came, sped up so many times, or as a Poisson process of `rate`."""

    def __init__(self, path, speed=1.0, rate=None, seed=0, hash_block=512):
        self.rows, self.rate, self.seed = [], rate, seed
        with_time, unique = rate is None, itertools.count(1)
        for place, line in _lines(path):
            try:
                self.rows.append(_row(json.loads(line), with_time, hash_block, unique))
            except (KeyError, TypeError, ValueError) as error:
                what = f"'{error.args[0]}' is missing" if isinstance(error, KeyError) else error
                raise BadInput(f"{place}: no recorded request: {what}") from error
        if not self.rows:
            raise BadInput(f"{path}: no requests")
        if with_time:
            self.rows.sort(key=lambda row: row[0])
            first = self.rows[0][0]
            self.rows = [((row[0] - first) / speed, *row[1:]) for row in self.rows]

    def __len__(self):
        return len(self.rows)

    def __iter__(self):
        rng, now = random.Random(f"load {self.seed}"), 0.0
        for number, (arrival, prompt, output, pages, kept) in enumerate(self.rows):
            if self.rate is not None:
                now += rng.expovariate(self.rate)
                arrival = now
            yield Request(number, arrival, prompt, output, pages, kept)


def _lines(path):
    try:
        with open(path, encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    yield f"{path}:{number}", line
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{path}: {getattr(error, 'strerror', None) or error}") from error


def _row(record, with_time, hash_block, unique):
    """(arrival or None, prompt tokens, output tokens, pages, pages kept)."""
    if "aerie_record" in record:
        prompt, reply = record["prompt_ids"], record["token_ids"]
        if with_time and "time" not in record:
            raise ValueError("no time (a record of version 1); --rate makes arrivals up")
        return _checked(record.get("time"), len(prompt), len(reply), page_keys(prompt), page_keys(prompt + reply))
    arrival = record["timestamp"] / 1e3 if with_time else None
    if "prompt_ids" in record:
        prompt = record["prompt_ids"]
        return _checked(arrival, len(prompt), record["output_length"], page_keys(prompt), None)
    prompt = record["input_length"]
    blocks = record["hash_ids"][:prompt // hash_block]
    pages = tuple((int(block) << 16) + part for block in blocks for part in range(hash_block // PAGE))
    own = tuple(-next(unique) for _ in range(prompt // PAGE - len(pages)))
    return _checked(arrival, prompt, record["output_length"], pages + own, None)


def _checked(arrival, prompt, output, pages, kept):
    if not (isinstance(prompt, int) and isinstance(output, int) and prompt >= 1 and output >= 0):
        raise ValueError("lengths have to be whole numbers, the prompt's at least 1")
    return arrival, prompt, max(1, output), pages, kept


def page_keys(ids):
    """A key for each whole page; it depends on all tokens up to the page's end."""
    keys, digest = [], hashlib.blake2b(digest_size=8)
    for end in range(PAGE, len(ids) + 1, PAGE):
        digest.update(repr(ids[end - PAGE:end]).encode())
        keys.append(int.from_bytes(digest.copy().digest(), "big"))
    return tuple(keys)
