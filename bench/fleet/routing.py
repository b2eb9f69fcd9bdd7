"""Which replica a request goes to. Routers see what routers see: prompts, and how many requests each replica has."""

import bisect
import collections
import math

from costs import PAGE

HASH_PAGES = 4  # of a prompt's beginning, by which consistent hashing goes
VIRTUAL_NODES = 40  # of a replica on the ring
OVER_MEAN, LEAST_BOUND = 1.25, 4  # the bounded load: times the mean, and never below
# Of vllm-router and SGLang's gateway, as they are by default.
CACHE_THRESHOLD, BALANCE_ABS, BALANCE_REL = 0.3, 64, 1.5
MOST_RECORDED = 2_000_000  # pages that the cache-aware router remembers


def mix(value):
    """64 bits that look random (SplitMix64's last steps)."""
    value = (value + 0x9E3779B97F4A7C15) & 0xFFFFFFFFFFFFFFFF
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & 0xFFFFFFFFFFFFFFFF
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & 0xFFFFFFFFFFFFFFFF
    return value ^ (value >> 31)


class Router:
    """At random; the other policies choose otherwise. Keeps the replicas that are up by how many requests they have."""

    def __init__(self, replicas, rng):
        self.rng, self.load, self.total = rng, [0] * replicas, 0
        self.up, self.up_place = list(range(replicas)), list(range(replicas))  # place -1: down
        self.by_load, self.place = [list(range(replicas))], list(range(replicas))
        self.least = self.most = 0

    def choose(self, request):
        """Requires a replica that is up."""
        del request
        return self.up[int(self.rng.random() * len(self.up))]

    def started(self, replica):
        self._move(replica, self.load[replica] + 1)

    def ended(self, replica):
        self._move(replica, self.load[replica] - 1)

    def down(self, replica):
        """It has no requests any more."""
        self._leave(replica)
        self.total -= self.load[replica]
        self.load[replica] = 0
        place, last = self.up_place[replica], self.up.pop()
        if last != replica:
            self.up[place], self.up_place[last] = last, place
        self.up_place[replica] = -1
        self._settle()

    def back(self, replica):
        self.up_place[replica] = len(self.up)
        self.up.append(replica)
        self._join(replica)
        self._settle()

    def _leave(self, replica):
        bucket, place = self.by_load[self.load[replica]], self.place[replica]
        last = bucket.pop()
        if last != replica:
            bucket[place], self.place[last] = last, place

    def _join(self, replica):
        load = self.load[replica]
        if load == len(self.by_load):
            self.by_load.append([])
        self.place[replica] = len(self.by_load[load])
        self.by_load[load].append(replica)
        self.least, self.most = min(self.least, load), max(self.most, load)

    def _move(self, replica, load):
        self._leave(replica)
        self.total += load - self.load[replica]
        self.load[replica] = load
        self._join(replica)
        self._settle()

    def _settle(self):
        """`least` and `most` are loads that some replica has, if any is up."""
        if not self.up:
            self.least = self.most = 0
            return
        while self.least + 1 < len(self.by_load) and not self.by_load[self.least]:
            self.least += 1
        while self.most > 0 and not self.by_load[self.most]:
            self.most -= 1

    def fewest(self):
        bucket = self.by_load[self.least]
        return bucket[int(self.rng.random() * len(bucket))]


class RoundRobin(Router):
    next = -1

    def choose(self, request):
        while True:
            self.next = (self.next + 1) % len(self.load)
            if self.up_place[self.next] >= 0:
                return self.next


class LeastRequests(Router):
    def choose(self, request):
        return self.fewest()


class Hashing(Router):
    """Consistent hashing of a prompt's first pages; a replica with OVER_MEAN times the mean load is passed over."""

    def __init__(self, replicas, rng):
        super().__init__(replicas, rng)
        ring = sorted((mix(replica * VIRTUAL_NODES + node), replica)
                      for replica in range(replicas) for node in range(VIRTUAL_NODES))
        self.points, self.owners = [point for point, _ in ring], [replica for _, replica in ring]

    def choose(self, request):
        if not request.pages:
            return super().choose(request)
        key = request.pages[min(HASH_PAGES, len(request.pages)) - 1]
        bound = max(LEAST_BOUND, math.ceil(OVER_MEAN * (self.total + 1) / len(self.up)))
        at = bisect.bisect_left(self.points, mix(key & 0xFFFFFFFFFFFFFFFF))
        for step in range(len(self.owners)):
            replica = self.owners[(at + step) % len(self.owners)]
            if self.up_place[replica] >= 0 and self.load[replica] < bound:
                return replica
        return self.fewest()


class CacheAware(Router):
    """The rule of vllm-router and SGLang's gateway: a replica that was sent the longest known beginning, if that is
    more than CACHE_THRESHOLD of the prompt; else, and wherever loads differ by more than BALANCE_ABS and BALANCE_REL,
    the one with the fewest requests. Of several that were sent it an arbitrary one is taken, but always the same."""

    def __init__(self, replicas, rng):
        super().__init__(replicas, rng)
        self.sent_to = collections.OrderedDict()  # page -> replica

    def choose(self, request):
        if self.most - self.least > BALANCE_ABS and self.most > BALANCE_REL * self.least:
            replica = self.fewest()
        else:
            replica = self._longest(request)
        self._record(request, replica)
        return replica

    def _longest(self, request):
        matched, owner = 0, -1
        for page in request.pages:
            known = self.sent_to.get(page)
            if known is None:
                break
            matched, owner = matched + 1, known
        if matched * PAGE > CACHE_THRESHOLD * request.prompt and self.up_place[owner] >= 0:
            return owner
        return self.fewest()

    def _record(self, request, replica):
        for page in request.pages:
            known = self.sent_to.get(page)
            if known is None or self.up_place[known] < 0 or hash((page, replica)) < hash((page, known)):
                self.sent_to[page] = replica
            self.sent_to.move_to_end(page)
        while len(self.sent_to) > MOST_RECORDED:
            self.sent_to.popitem(last=False)


POLICIES = {"random": Router, "round-robin": RoundRobin, "least-requests": LeastRequests, "hashing": Hashing,
            "cache-aware": CacheAware}
