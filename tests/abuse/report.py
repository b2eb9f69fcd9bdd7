"""What was seen: a row for each part, and all violations."""

import dataclasses
import statistics
import threading
import time

HARD_GAP = 2.0  # seconds between two tokens of a bystander, whatever else the machine does
HARD_FIRST = 10.0  # and to its first
KINDS = ("answered", "refused", "error", "left", "wrong")
COLUMNS = ("part", "cases", "answered", "refused", "ended with error", "client left", "wrong", "slowest s", "tokens ms: median",
           "worst", "first token worst", "MiB before", "most", "after")


@dataclasses.dataclass
class Case:
    name: str
    seconds: float
    end: float
    again: object = None  # a function that sends the same once more

    def overlaps(self, begin, end):
        return self.end - self.seconds <= end and self.end >= begin


@dataclasses.dataclass
class Part:
    name: str
    begin: float
    end: float = 0.0
    counts: dict = dataclasses.field(default_factory=lambda: dict.fromkeys(KINDS, 0))
    cases: list = dataclasses.field(default_factory=list)
    memory: list = dataclasses.field(default_factory=list)


class Report:
    def __init__(self, target, say=print):
        self.target, self.say = target, say
        self.parts, self.violations = [], []
        self._lock = threading.Lock()

    def begin(self, name):
        self.parts.append(Part(name, time.monotonic(), memory=[self.target.memory()]))
        self.say(f"{name} ...", flush=True)

    def end(self, bystander):
        part = self.parts[-1]
        part.end = time.monotonic()
        part.memory.append(self.target.memory())
        gaps, firsts, wrong = bystander.between(part.begin, part.end)
        for what in wrong:
            self.violation(what)
        for what, waits, most in (("next", gaps, HARD_GAP), ("first", firsts, HARD_FIRST)):
            wait, end = max(waits, default=(0, 0))
            if wait > most and not self.was_the_machine(part, bystander, end - wait, end, most):
                self.violation(f"a bystander waited {wait:.1f} s for its {what} token beside {self.beside(part, wait, end)}")
        self.say(f"    {sum(part.counts.values())} in {part.end - part.begin:.0f} s", flush=True)

    @staticmethod
    def was_the_machine(part, bystander, begin, end, most):
        """Others may have had the processor. What ran then is sent once more: the server's own fault comes again."""
        beside = [case.again for case in part.cases if case.again is not None and case.overlaps(begin, end)][:32]
        if not beside:
            return False
        since = time.monotonic()
        run_at_once(len(beside), lambda index: beside[index]())
        bystander.wait(1)
        gaps, firsts, _ = bystander.between(since, time.monotonic())
        return max(seconds_of(gaps + firsts), default=most) < most

    @staticmethod
    def beside(part, wait, end):
        names = [case.name for case in part.cases if case.overlaps(end - wait, end)]
        return ", ".join(names[:4]) or "nothing"

    def add(self, name, kind, seconds, note="", again=None):
        """One case and how it ended."""
        with self._lock:
            part = self.parts[-1]
            part.counts[kind] += 1
            part.cases.append(Case(name, seconds, time.monotonic(), again))
        if kind == "wrong":
            self.violation(f"{name}: {note}")

    def remember(self, mib):
        with self._lock:
            self.parts[-1].memory.append(mib)

    def violation(self, what):
        with self._lock:
            self.violations.append(f"{self.parts[-1].name}: {what}" if self.parts else what)
        self.say(f"    VIOLATION {what}", flush=True)

    def table(self, bystander):
        rows = [COLUMNS]
        for part in self.parts:
            gaps, firsts = (seconds_of(found) for found in bystander.between(part.begin, part.end)[:2])
            before, *_, after = part.memory
            rows.append((part.name, sum(part.counts.values()), *(part.counts[kind] for kind in KINDS),
                         f"{max((case.seconds for case in part.cases), default=0):.1f}", milliseconds(statistics.median(gaps) if gaps else None),
                         milliseconds(max(gaps, default=None)), milliseconds(max(firsts, default=None)),
                         *(f"{mib:.0f}" if mib else "-" for mib in (before, max(part.memory), after))))
        widths = [max(len(str(row[i])) for row in rows) for i in range(len(COLUMNS))]
        for row in rows:
            self.say("  ".join(str(cell).ljust(width) if i == 0 else str(cell).rjust(width)
                               for i, (cell, width) in enumerate(zip(row, widths))))
        for part in self.parts:
            if part.cases:
                slowest = max(part.cases, key=lambda case: case.seconds)
                wait, end = max(bystander.between(part.begin, part.end)[0], default=(0, 0))
                self.say(f"{part.name}: slowest was {slowest.name} with {slowest.seconds:.1f} s; the bystander's "
                         f"{1e3 * wait:.0f} ms were beside {self.beside(part, wait, end)}")


def run_at_once(count, call):
    threads = [threading.Thread(target=call, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def seconds_of(waits):
    return [seconds for seconds, _ in waits]


def milliseconds(seconds):
    return "-" if seconds is None else f"{1e3 * seconds:.1f}"
