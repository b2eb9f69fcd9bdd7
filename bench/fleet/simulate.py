"""The fleet: arrivals, routing, failures, and what came of it."""

import heapq
import itertools
import random
import statistics

from costs import PAGE, BadInput
from replica import Replica
from routing import POLICIES


def percentile(values, share):
    """The smallest value that so many are not above; None of nothing."""
    if not values:
        return None
    values = sorted(values)
    return values[min(len(values) - 1, int(share * len(values)))]


class Fleet:
    """`mtbf`: a replica runs so long in the mean before it loses all that it has, and is back after `repair` seconds.
    Requests without a token then go elsewhere, `retries` times at most; others fail. `clients`: so many ask again as
    soon as they have a reply, instead of the load's own arrivals."""

    def __init__(self, machine, load, replicas, policy, *, max_seqs=64, pages=512, mtbf=None, repair=60.0, retries=5,
                 clients=None, warm_up=0.0, prefix_cache=True, seed=0):
        self.replicas = [Replica(machine, max_seqs, pages) for _ in range(replicas)]
        self.router = POLICIES[policy](replicas, random.Random(f"router {seed}"))
        self.chance = random.Random(f"failures {seed}")
        self.load, self.requests, self.pages, self.prefix_cache = load, iter(load), pages, prefix_cache
        self.mtbf, self.repair, self.retries, self.clients = mtbf, repair, retries, clients
        self.first_counted = int(warm_up * len(load))
        self.events, self.order = [], itertools.count()
        self.held = []  # while no replica is up
        self.now, self.unfinished = 0.0, len(load)
        self.completed = self.failed = self.moved = self.failures = 0
        self.prompt_tokens = self.hit_tokens = self.output_tokens = 0
        self.ttft, self.tpot, self.whole = [], [], []
        self.counted_from = None
        self.at_replica = {}  # request number -> replica

    def _push(self, time, kind, replica, version=0):
        heapq.heappush(self.events, (time, next(self.order), kind, replica, version))

    def run(self):
        if self.mtbf:
            for replica in range(len(self.replicas)):
                self._push(self.chance.expovariate(1 / self.mtbf), self._fail, replica)
        upcoming = None if self.clients else next(self.requests, None)
        for _ in range(self.clients or 0):
            self._ask_again()
        while self.unfinished:
            if upcoming is not None and (not self.events or upcoming.arrival <= self.events[0][0]):
                self.now = upcoming.arrival
                self._arrive(upcoming)
                upcoming = next(self.requests, None)
                continue
            self.now, _, kind, replica, version = heapq.heappop(self.events)
            kind(replica, version)
        return self._figures()

    def _ask_again(self):
        request = next(self.requests, None)
        if request is not None:
            request.arrival = self.now
            self._arrive(request)

    def _arrive(self, request):
        if request.prompt + request.output > self.pages * PAGE:
            raise BadInput(f"a request of {request.prompt} and {request.output} tokens does not fit a replica's cache "
                           f"of {self.pages * PAGE}; see --cache-tokens")
        if not self.prefix_cache:
            request.pages = request.kept = ()
        request.counts = request.number >= self.first_counted
        if request.counts and self.counted_from is None:
            self.counted_from = self.now
        self._send(request)

    def _send(self, request):
        if not self.router.up:
            self.held.append(request)
            return
        chosen = self.router.choose(request)
        self.router.started(chosen)
        self.at_replica[request.number] = chosen
        replica = self.replicas[chosen]
        replica.add(request)
        if replica.passes == 0:
            self._begin(chosen)
        else:
            end = replica.shorten(self.now)
            if end is not None:
                self._push(end, self._end, chosen, replica.version)

    def _begin(self, chosen):
        replica = self.replicas[chosen]
        end = replica.begin(self.now)
        if end is not None:
            self._push(end, self._end, chosen, replica.version)

    def _end(self, chosen, version):
        replica = self.replicas[chosen]
        if version != replica.version:
            return
        done = replica.end(self.now)
        for request in done:
            self.router.ended(chosen)
            self._count(request)
        self._begin(chosen)
        if self.clients:
            for _ in done:
                self._ask_again()

    def _count(self, request):
        del self.at_replica[request.number]  # a KeyError were one that is answered twice
        self.completed += 1
        self.unfinished -= 1
        if not request.counts:
            return
        self.ttft.append(request.first - request.arrival)
        self.whole.append(self.now - request.arrival)
        if request.output > 1:
            self.tpot.append((self.now - request.first) / (request.output - 1))
        self.prompt_tokens += request.prompt
        self.hit_tokens += request.hit
        self.output_tokens += request.output

    def _fail(self, chosen, _):
        self.failures += 1
        self.router.down(chosen)
        fresh, begun = self.replicas[chosen].lose_all()
        self._push(self.now + self.repair, self._back, chosen)
        for request in begun:
            self._give_up(request)
        for request in fresh:
            del self.at_replica[request.number]
            request.tries += 1
            if request.tries > self.retries:
                self.at_replica[request.number] = chosen
                self._give_up(request)
            else:
                self.moved += 1
                self._send(request)

    def _give_up(self, request):
        del self.at_replica[request.number]
        self.failed += 1
        self.unfinished -= 1
        if self.clients:
            self._ask_again()

    def _back(self, chosen, _):
        self.router.back(chosen)
        self._push(self.now + self.chance.expovariate(1 / self.mtbf), self._fail, chosen)
        held, self.held = self.held, []
        for request in held:
            self._send(request)

    def _figures(self):
        span = self.now - (self.counted_from or 0.0)
        rounds = sum(replica.rounds for replica in self.replicas)
        return {
            "requests": len(self.load), "completed": self.completed, "failed": self.failed,
            "failures": self.failures, "moved": self.moved, "duration": self.now,
            "ttft_p50_ms": _ms(percentile(self.ttft, 0.5)), "ttft_p99_ms": _ms(percentile(self.ttft, 0.99)),
            "tpot_p50_ms": _ms(percentile(self.tpot, 0.5)), "tpot_p99_ms": _ms(percentile(self.tpot, 0.99)),
            "e2el_mean_ms": _ms(statistics.fmean(self.whole) if self.whole else None),
            "output_throughput": self.output_tokens / span if span > 0 else None,
            "prefix_hit_rate": self.hit_tokens / self.prompt_tokens if self.prompt_tokens else None,
            "tokens_per_round": sum(replica.emitted for replica in self.replicas) / rounds if rounds else None,
            "busy": sum(replica.busy for replica in self.replicas) / (self.now * len(self.replicas)),
        }


def _ms(seconds):
    return None if seconds is None else seconds * 1e3
