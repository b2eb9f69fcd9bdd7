#!/usr/bin/env python3
"""Asks whether one client of a server can harm the others, or the process.

    tests/abuse/run.sh                              a server of its own, under a limit of memory; the short form
    tests/abuse/run.sh --full                       all that is generated, 10,000 drawn requests
    tests/abuse/run.sh --url http://HOST:PORT [--api-key KEY] [--pid PID]

Sends constraints, fields and bytes that are meant to hurt, while a bystander streams plain replies. Ends with 1 if the
process died, a reply was lost or failed in a way that is not documented, the bystander got other tokens or waited for
more than two seconds, or memory did not come back. Needs Python alone.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import statistics
import sys
import threading
import time

import families
import fields
import fuzz
import own_server
import wire
from bystander import Bystander
from report import Report, run_at_once, seconds_of
from target import Target, ask

ROOT = pathlib.Path(__file__).resolve().parents[2]
MEMORY_SECONDS = 20
MOST_VIOLATIONS = 100
MOST_RISE, MOST_EXCESS = 0.10, 0.1


def options_of(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", help="of the server; without it one is started")
    parser.add_argument("--api-key", help="of the server's")
    parser.add_argument("--pid", type=int, help="its process on this machine, whose memory is watched")
    parser.add_argument("--i-own-this-server", action="store_true", help="allow an address that is not this machine's own")
    parser.add_argument("--full", action="store_true", help="all cases, 10,000 requests, longer measurements")
    parser.add_argument("--brief", action="store_true", help="less of what is drawn and timed; not with AERIE_NIGHTLY")
    parser.add_argument("--requests", type=int, help="that are drawn (300)")
    parser.add_argument("--first", type=int, default=0, help="number of the first that is drawn")
    parser.add_argument("--seed", type=int, default=1, help="of what is drawn")
    parser.add_argument("--clients", type=int, default=8, help="that ask at once, up to 32")
    parser.add_argument("--seconds", type=float, default=5400, help="after which nothing new is sent, which is a violation")
    parser.add_argument("--strict-times", action="store_true",
                        help="a bystander that is slowed down by more than 10 %% or 100 ms is a violation, too")
    parser.add_argument("--parts", help="only these: table,generated,drawn,wire,fields,together,times")
    parser.add_argument("--program", default=os.environ.get("AERIE_PROGRAM", str(ROOT / "build/release/bin/aerie")))
    parser.add_argument("--model", default=os.environ.get(
        "AERIE_MODEL", str(ROOT / "models/SmolLM2-135M-Instruct.Q4_1.gguf")))
    options = parser.parse_args(arguments)
    options.brief &= "AERIE_NIGHTLY" not in os.environ
    if options.requests is None:
        options.requests = 10000 if options.full else 150 if options.brief else 300
    if not 1 <= options.clients <= 32 or not 0 <= options.requests <= 100000:
        parser.error("--clients is 1 to 32, --requests 0 to 100000")
    return options


class Suite:
    def __init__(self, options, target, report, own):
        self.options, self.target, self.report, self.own = options, target, report, own
        self.end = time.monotonic() + options.seconds
        self.bystander = None
        self.served = 0  # tokens, as far as is known

    def spent(self):
        """Whether nothing more is to be sent."""
        if time.monotonic() > self.end:
            self.end = float("inf")
            self.report.violations += ["the time is up: not all has been sent"] * MOST_VIOLATIONS
        return len(self.report.violations) >= MOST_VIOLATIONS

    def ask(self, name, path, body, wanted=None, again=None, **how):
        """One case. `again`: sends the same, where keeping the body would be too much."""
        if self.spent():
            return
        try:
            done = ask(self.target, body, path, **how)
            if wanted is not None and done.status != wanted:
                done = done._replace(kind="wrong", note=f"status {done.status}, not {wanted}: {done.answer[:200]!r}")
            self.report.add(name, done.kind, done.seconds, done.note,
                            again or (lambda: ask(self.target, body, path, **how)))
        except Exception as error:  # of the suite itself: it must not pass as nothing
            self.report.add(name, "wrong", 0, f"{type(error).__name__}: {error}")

    def ask_all(self, cases, clients):
        """(name, path, body, how) of many, so many at once."""
        with concurrent.futures.ThreadPoolExecutor(clients) as pool:
            for _ in pool.map(lambda case: self.ask(case[0], case[1], case[2], **case[3]), cases):
                pass

    def look(self, before, allowed=64):
        """Whether the process is there, and its memory is back."""
        if not self.target.same_process():
            raise RuntimeError("the process is gone")
        self.report.remember(self.target.memory())
        end = time.monotonic() + MEMORY_SECONDS
        while self.target.memory() > before + allowed:
            if time.monotonic() > end:
                return self.report.violation(
                    f"{self.target.memory():.0f} MiB are resident; before the last request {before:.0f} were")
            time.sleep(0.05)
        return None

    def same_server(self):
        """A server that was begun anew counts anew, which shows where its process does not."""
        served = self.target.metric("vllm:generation_tokens_total")
        if served is not None and served < self.served:
            self.report.violation("the server has been started anew")
        self.served = served or 0

    def constraint(self, name, constraint, at_once=1):
        before = self.target.memory()
        body = {**constraint, "messages": [{"role": "user", "content": "Go on."}], "max_tokens": 24}
        self.ask_all([(name, "/v1/chat/completions", body, {})] * at_once, at_once)
        self.look(before)

    def table(self):
        for name, (constraint, at_once) in families.TABLE.items():
            self.constraint(name, constraint, at_once)

    def generated(self):
        made = list(families.generated().items())
        # The short form takes one size of each family, ever another one.
        for name, constraint in made if self.options.full else made[::7]:
            self.constraint(name, constraint)

    def drawn(self):
        before = self.target.memory()
        first, seed = self.options.first, self.options.seed

        def again(number):
            _, path, body, how = fuzz.drawn_request(seed, number)
            ask(self.target, body, path, **how)

        def requests():
            for number in range(first, first + self.options.requests):
                name, path, body, how = fuzz.drawn_request(seed, number)
                yield f"drawn {number} of seed {seed}: {name}", path, body, {
                    **how, "again": lambda number=number: again(number)}
                if number % 500 == 499:
                    self.report.say(f"    {number + 1} drawn, {self.target.memory():.0f} MiB", flush=True)
                    self.report.remember(self.target.memory())

        def client(source, lock):
            while True:
                with lock:
                    case = next(source, None)
                if case is None or self.spent():
                    return
                self.ask(case[0], case[1], case[2], **case[3])

        source, lock = requests(), threading.Lock()
        run_at_once(self.options.clients, lambda _: client(source, lock))
        self.look(before)

    def wire(self):
        before = self.target.memory()
        for kind, seconds, wrong in wire.run(self.target):
            self.report.add("", "wrong" if wrong else kind, seconds, wrong or "")
        self.look(before)

    def fields(self):
        before = self.target.memory()
        self.ask_all(fields.bodies() + fields.wrong_values(self.target, 1 if self.options.full else 5), 4)
        self.look(before)
        for case in fields.large():
            before = self.target.memory()
            *case, how = case
            at_once = how.pop("at_once", 1)
            self.ask_all([(*case, how)] * at_once, at_once)
            self.look(before)

    def together(self):
        """What takes memory in each of the server's parts, all at once."""
        before = self.target.memory()
        large = [case for case in fields.large() if case[0].startswith("millions")]
        constraints = [constraint for constraint, _ in families.TABLE.values()]

        def client(index):
            if index == 0:
                wrong = wire.hoard(self.target)
                self.report.add("large bodies", "wrong" if wrong else "answered", 0, wrong or "")
            elif index <= 4:
                name, path, body, _ = large[index % len(large)]
                self.ask_all([(name, path, body, {})] * 3, 1)
            else:
                body = {**constraints[index % len(constraints)], "prompt": "Go on.", "max_tokens": 8, "n": 2}
                self.ask_all([(f"constraint {index}", "/v1/completions", body, {})] * 3, 1)

        run_at_once(5 + self.options.clients, client)
        self.look(before)

    def times(self):
        """The bystander beside clients with ordinary constraints, and beside as many with hostile ones."""
        rounds, replies = (6, 5) if self.options.full else (1, 2) if self.options.brief else (2, 2)
        hostile = [constraint for constraint, _ in families.TABLE.values()] + \
            [constraint for name, constraint in families.generated().items() if not name.startswith("long_constants")]
        seen = {"ordinary": [], "hostile": []}
        for number in range(2 * rounds):
            kind = ("ordinary", "hostile")[number % 2]
            over = threading.Event()

            def client(index, kind=kind, over=over, number=number):
                count = index
                while not over.is_set() and not self.spent():
                    count += self.options.clients
                    constraint = ordinary(1000 * number + count) if kind == "ordinary" else \
                        hostile[(37 * number + count) % len(hostile)]
                    self.ask(f"{kind} {count}", "/v1/chat/completions", {
                        **constraint, "messages": [{"role": "user", "content": "Go on."}], "max_tokens": 8})

            threads = [threading.Thread(target=client, args=(i,)) for i in range(self.options.clients)]
            begin = time.monotonic()
            for thread in threads:
                thread.start()
            self.bystander.wait(replies)
            seen[kind] += seconds_of(self.bystander.between(begin, time.monotonic())[0])
            over.set()
            for thread in threads:
                thread.join()
        self.compare(seen["ordinary"], seen["hostile"])

    def compare(self, without, beside):
        if not without or not beside:
            return self.report.violation("the bystander got no tokens")
        median, worst = statistics.median, max
        rise, excess = median(beside) / median(without) - 1, worst(beside) - worst(without)
        self.report.say(
            f"    beside {self.options.clients} clients with ordinary constraints: median {1e3 * median(without):.1f} ms, worst "
            f"{1e3 * worst(without):.1f}, of {len(without)}\n    beside as many with hostile ones: median "
            f"{1e3 * median(beside):.1f} ms ({100 * rise:+.0f} %), worst {1e3 * worst(beside):.1f} ({1e3 * excess:+.0f} ms), "
            f"of {len(beside)}", flush=True)
        if self.options.strict_times and (rise > MOST_RISE or excess > MOST_EXCESS):
            self.report.violation("the bystander was slowed down")
        return None

    def run(self):
        parts = ["table", "generated", "drawn", "wire", "fields", "together", "times"]
        wanted = self.options.parts.split(",") if self.options.parts else parts
        if not self.own and self.target.pid:
            own_server.warm_up(self.target)
            # What is kept of constraints and learnt of texts, within its bounds.
            for number in range(100):
                _, path, body, how = fuzz.drawn_request("warm", number)
                ask(self.target, body, path, **how)
        before = plain(self.target)
        start = self.target.memory()
        self.bystander = Bystander(self.target)
        # What the attackers' own side takes of this machine's cores is not the server's doing.
        os.nice(10)
        try:
            self.report.begin("alone")
            if not self.bystander.wait(3):
                self.report.violation("the bystander alone gets no replies")
            self.report.end(self.bystander)
            self.bystander.wanted = self.bystander.replies[0]["what"]
            for name in parts:
                if name in wanted:
                    self.report.begin(name)
                    getattr(self, name)()
                    self.report.end(self.bystander)
                    self.same_server()
            self.report.begin("afterwards")
            self.bystander.wait(2)
            self.report.end(self.bystander)
        finally:
            self.bystander.stop()
        if self.own:
            # Of a server with a cache of unknown size this may be the cache.
            self.look(start, 128)
        after = plain(self.target)
        if after != before:
            self.report.violation(f"a plain request is answered otherwise: {before} before, {after} afterwards")


def ordinary(number):
    """A constraint as anybody's, and ever another one."""
    return families.schema({"type": "object", "additionalProperties": False, "required": [f"name_{number}", "age"],
                            "properties": {f"name_{number}": {"type": "string", "maxLength": 20}, "age": {"type": "integer"},
                                           "tags": {"type": "array", "items": {"enum": ["a", "b", str(number)]}}}})


def plain(target):
    """The answer's ids to a plain request, or what came in their place."""
    done = ask(target, {"prompt": "The sea is", "max_tokens": 32, "temperature": 0, "return_token_ids": True,
                        "ignore_eos": True})
    if done.kind != "answered":
        return done.note or done.status
    choice = json.loads(done.answer)["choices"][0]
    return choice.get("token_ids") or choice["text"]


def main():
    options = options_of(sys.argv[1:])
    server, limit = None, 0
    if options.url:
        target = Target(options.url, options.api_key, options.pid)
        if not target.is_local() and not options.i_own_this_server:
            print(f"{options.url} is not on this machine. What this sends is an attack: give --i-own-this-server if you may.",
                  file=sys.stderr)
            return 2
    elif not os.path.exists(options.model):
        print(f"skipped: {options.model} is missing: scripts/fetch_model.sh gets it", file=sys.stderr)
        return 77
    else:
        server, limit = own_server.start(options.program, options.model)
        target = Target(server.url, pid=server.process.pid)
        print(f"aerie serve with {limit} MiB of address space, {own_server.SPARE_MIB} more than it takes for plain requests")
    report = Report(target)
    suite = Suite(options, target, report, server is not None)
    try:
        suite.run()
    except (OSError, RuntimeError) as error:
        report.violation(f"given up: {error}")
    if server is not None:
        print(f"{target.memory('VmPeak'):.0f} of {limit} MiB of address space were taken at most")
        gone = server.process.poll()
        status = server.stop() if gone is None else gone
        if gone is not None or status != 0:
            report.violation(f"the server ended with {status}:\n" + "".join(server.log[-20:]))
    if suite.bystander is not None:
        report.table(suite.bystander)
    for what in dict.fromkeys(report.violations):
        print(f"VIOLATION {what}")
    print("failed" if report.violations else "passed")
    return 1 if report.violations else 0


if __name__ == "__main__":
    sys.exit(main())
