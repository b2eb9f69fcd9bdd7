"""One replica: continuous batching, a prefix cache, speculation."""

import collections
import heapq
import math

from costs import PAGE


class Replica:
    """Goes on in stretches of passes that are alike: one pass while prompts are read, else as many as nobody ends or
    comes in. A round's tokens are taken at their mean, so that all sequences get on alike and a sequence ends where
    `progress`, the tokens of a sequence that was there from the beginning, comes to its mark.
    """
    __slots__ = ("machine", "max_seqs", "pages", "waiting", "reading", "decoding", "progress", "context", "reserved",
                 "cache", "being_read", "start", "seconds", "passes", "depth", "piece_rows", "version", "busy",
                 "rounds", "emitted")

    def __init__(self, machine, max_seqs, pages):
        self.machine, self.max_seqs, self.pages = machine, max_seqs, pages
        self.busy, self.rounds, self.emitted, self.version = 0.0, 0, 0.0, 0
        self.lose_all()

    def lose_all(self):
        """As after a crash. Returns the requests that have no token yet, and those that have."""
        fresh = list(getattr(self, "waiting", ())) + list(getattr(self, "reading", ()))
        begun = [request for _, _, request in getattr(self, "decoding", ())]
        self.waiting, self.reading, self.decoding = collections.deque(), [], []
        self.progress, self.context, self.reserved = 0.0, 0.0, 0  # context: of all that decode
        self.cache, self.being_read = collections.OrderedDict(), set()
        self.start = self.seconds = 0.0
        self.passes = self.depth = 0  # passes 0: idle
        self.piece_rows = []
        self.version += 1
        return fresh, begun

    def add(self, request):
        self.waiting.append(request)

    def _admit(self):
        kept = []
        while self.waiting and len(self.reading) + len(self.decoding) < self.max_seqs:
            request = self.waiting.popleft()
            known = 0
            for page in request.pages:
                if page not in self.cache:
                    break
                known += 1
            if known < len(request.pages) and request.pages[known] in self.being_read:
                kept.append(request)  # waits for what another one reads
                continue
            need = (request.prompt + request.output + PAGE - 1) // PAGE - known
            if self.reserved + need > self.pages:
                kept.append(request)
                break
            for page in reversed(request.pages[:known]):
                self.cache.move_to_end(page)
            request.need, request.hit = need, min(known * PAGE, request.prompt - 1)
            request.read = request.hit
            self.being_read.update(request.pages[known:])
            self.reserved += need
            self.reading.append(request)
        self.waiting.extendleft(reversed(kept))

    def begin(self, now):
        """The next stretch: its end, or None where there is nothing to do."""
        if self.waiting:
            self._admit()
        self.start, self.version = now, self.version + 1
        sequences = len(self.decoding)
        if self.reading:
            self._begin_prompts(sequences)
        elif sequences:
            context = self.context / sequences
            self.depth = self.machine.depth(sequences, context)
            tokens = self.machine.tokens[self.depth]
            self.passes = max(1, math.ceil((self.decoding[0][0] - self.progress) / tokens - 1e-9))
            self.seconds = self.machine.decode(sequences, self.depth, context + self.passes * tokens / 2)
        else:
            self.passes = 0
            return None
        return now + self.passes * self.seconds

    def _begin_prompts(self, sequences):
        machine = self.machine
        context = self.context / sequences if sequences else 0.0
        rows = sum(request.prompt - request.read for request in self.reading)
        left = max(1, machine.budget - sequences)
        self.depth = machine.depth(sequences, context, min(rows, left))
        left = max(1, machine.budget - round(sequences * machine.rows[self.depth]))
        self.piece_rows, beside, total = [], 0.0, 0
        for request in self.reading:
            piece = min(left - total, request.prompt - request.read)
            if piece <= 0:
                break
            self.piece_rows.append(piece)
            total += piece
            beside += machine.prompt(piece, request.read)
        self.passes = 1
        self.seconds = machine.decode(sequences, self.depth, context, total) + beside

    def shorten(self, now):
        """Somebody came: ends the stretch with the pass that is running. Returns the new end, or None if it stays."""
        if self.reading or self.passes < 2 or len(self.decoding) >= self.max_seqs:
            return None
        passes = int((now - self.start) / self.seconds) + 1
        if passes >= self.passes:
            return None
        self.passes, self.version = passes, self.version + 1
        return self.start + passes * self.seconds

    def end(self, now):
        """The stretch is over. Returns those whose last token came."""
        sequences, tokens = len(self.decoding), self.machine.tokens[self.depth] * self.passes
        self.busy += now - self.start
        self.rounds += sequences * self.passes
        self.emitted += sequences * tokens
        self.progress += tokens
        self.context += sequences * tokens
        done = []
        while self.decoding and self.decoding[0][0] <= self.progress + 1e-9:
            request = heapq.heappop(self.decoding)[2]
            self.context -= request.prompt + request.output
            done.append(request)
        if not self.decoding:
            self.context = 0.0
        if self.piece_rows:
            done += self._end_prompts(now)
        for request in done:
            self.reserved -= request.need
            self._keep(request.kept)
        return done

    def _end_prompts(self, now):
        pieces, self.piece_rows = self.piece_rows, []
        for request, piece in zip(self.reading, pieces):
            request.read += piece
        done, still = [], []
        for request in self.reading:
            if request.read < request.prompt:
                still.append(request)
                continue
            request.first = now
            new = min(request.need, sum(page not in self.cache for page in request.pages))
            request.need -= new
            self.reserved -= new
            self._keep(request.pages)
            self.being_read.difference_update(request.pages)
            if request.output == 1:
                done.append(request)
            else:
                heapq.heappush(self.decoding, (self.progress + request.output - 1, request.number, request))
                self.context += request.prompt + 1
        self.reading = still
        return done

    def _keep(self, pages):
        """Beginnings go last, so they are newer than what follows them."""
        cache = self.cache
        for page in reversed(pages):
            cache[page] = None
            cache.move_to_end(page)
        while len(cache) + self.reserved > self.pages and cache:
            cache.popitem(last=False)
