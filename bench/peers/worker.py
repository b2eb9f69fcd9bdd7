"""What the workers of the peers share: requests for measurements over a pipe, one JSON object a line.

A peer's script hands `serve` its engines, which it calls `variants`; a request says which one by its number
("variant": 0). An engine has

    forward(tokens, first, logits)   evaluates tokens from position `first` on, logits "all", "last" or "none"
    cut(position)                    forgets what is behind; False if it cannot: states of linear attention
    largest()                        the id of the largest logit of the last row
    vocab_size

or, where its makers let nobody that near, `timed_prompt(tokens)` and `timed_decode(tokens, count)`, in seconds;
it is not asked for passes then.
"""

import argparse
import json
import os
import statistics
import sys
import time

CHUNK = 512  # rows of a prompt in a call
# The pipe is for answers alone: what an engine prints goes where errors go.
ANSWERS = os.fdopen(os.dup(sys.stdout.fileno()), "w")
os.dup2(sys.stderr.fileno(), sys.stdout.fileno())


def arguments(description):
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--model", required=True)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rows", type=int, default=64, help="the most of a pass")
    parser.add_argument("--positions", type=int, default=2048, help="the most of a request")
    return parser.parse_args()


class Measured:
    """An engine with what its requests need."""

    def __init__(self, engine, positions):
        self.engine = engine
        self.positions = positions
        self.filled = 0
        self.asked = 0
        self.state = 1

    def random_tokens(self, count):
        tokens = []
        for _ in range(count):
            self.state = (self.state * 1664525 + 1013904223) % 2**32
            tokens.append(self.state * self.engine.vocab_size >> 32)
        return tokens

    def prefill(self, count, logits):
        """Evaluates `count` random tokens into an empty cache."""
        self.engine.cut(0)
        tokens = self.random_tokens(count)
        for i in range(0, count, CHUNK):
            self.engine.forward(tokens[i:i + CHUNK], i, logits if i + CHUNK >= count else "none")

    def fill(self, request):
        self.filled = self.asked = request["context"]
        if hasattr(self.engine, "forward"):
            self.prefill(self.filled, "none")
        return {}

    def a_pass(self, request):
        if not hasattr(self.engine, "forward"):
            return {}
        if self.filled == 0:
            raise RuntimeError("'fill' comes first")
        seconds, passes, begin = request.get("seconds", 0), [], time.perf_counter()
        while not passes or time.perf_counter() - begin < seconds:
            tokens = self.random_tokens(request["rows"])
            start = time.perf_counter()
            self.engine.forward(tokens, self.filled, "all")
            passes.append(time.perf_counter() - start)
            if self.engine.cut(self.filled) is False:
                # What cannot be taken back stays; some rows more hardly count.
                self.filled += request["rows"]
                if self.filled + request["rows"] > self.positions:
                    self.fill({"context": self.asked})
        return {"ms": 1e3 * statistics.median(passes)}

    def prompt(self, request):
        self.filled = 0
        if not hasattr(self.engine, "forward"):
            return {"ms": 1e3 * self.engine.timed_prompt(self.random_tokens(request["tokens"]))}
        start = time.perf_counter()
        self.prefill(request["tokens"], "last")
        return {"ms": 1e3 * (time.perf_counter() - start)}

    def decode(self, request):
        self.filled = 0
        context, count = request["context"], request["tokens"]
        if not hasattr(self.engine, "forward"):
            return {"ms": 1e3 * self.engine.timed_decode(self.random_tokens(context), count)}
        self.prefill(context, "last")
        token = self.engine.largest()
        start = time.perf_counter()
        for i in range(count):
            self.engine.forward([token], context + i, "last")
            token = self.engine.largest()
        return {"ms": 1e3 * (time.perf_counter() - start)}


def answer(what):
    print(json.dumps(what), file=ANSWERS, flush=True)


def serve(engines, version, system, positions):
    """Answers until the pipe ends. `engines`: what the variants are called, and each's engine, for so many positions."""
    measured = [Measured(engine, positions) for engine in engines.values()]
    answer({"ready": True, "version": version, "system": system, "variants": list(engines)})
    for line in sys.stdin:
        request = json.loads(line)
        one = measured[request.get("variant", 0)]
        actions = {"fill": one.fill, "pass": one.a_pass, "prompt": one.prompt, "decode": one.decode}
        try:
            answer(actions[request["do"]](request))
        except (KeyError, RuntimeError) as error:
            answer({"error": str(error)})
