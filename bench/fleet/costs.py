"""What passes of one machine cost and what its drafts bring, from the JSON files that `aerie` writes."""

import json

PAGE = 64  # positions of a page of the cache (kv/)
MOST_BUDGET, LEAST_BUDGET, BUDGET_SECONDS = 512, 64, 0.25  # rows of a pass, as `aerie serve` picks them
MARGIN, TRUST = 1.04, 0.9  # of the controller (docs/speculation.md, docs/scheduling.md)


class BadInput(ValueError):
    """Says which file, what is wrong and, where it helps, what to do."""


def read_json(path):
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror}") from error
    except ValueError as error:
        raise BadInput(f"{path}: this is no JSON: {error}") from error


def _fit(points):
    """Seconds without context and by position, of [(context, seconds)]: a line by least squares."""
    mean_x = sum(x for x, _ in points) / len(points)
    mean_y = sum(y for _, y in points) / len(points)
    square = sum((x - mean_x) ** 2 for x, _ in points)
    slope = sum((x - mean_x) * (y - mean_y) for x, y in points) / square if square else 0.0
    slope = max(slope, 0.0)
    return mean_y - slope * mean_x, slope


def read_passes(path):
    """[(rows, seconds, seconds by position)] of a profile of `aerie tune` or of `aerie bench verify --json`."""
    data = read_json(path)
    try:
        if "aerie_profile" in data:
            found = [(p["rows"], p["seconds"], p["seconds_per_position"]) for p in data["pass_cost"]]
        else:
            by_rows = {}
            for point in data["points"]:
                by_rows.setdefault(point["rows"], []).append((point["context"], point["median_ms"] / 1e3))
            found = [(rows, *_fit(points)) for rows, points in by_rows.items()]
        found = sorted((int(rows), float(seconds), float(slope)) for rows, seconds, slope in found)
    except (KeyError, TypeError, ValueError) as error:
        raise BadInput(f"{path}: neither a profile (`aerie tune --out`) nor figures of passes "
                       f"(`aerie bench verify --json`): {error!r}") from error
    if not found or found[0][0] < 1 or any(seconds <= 0 or slope < 0 for _, seconds, slope in found):
        raise BadInput(f"{path}: passes need rows of 1 or more and a time above 0")
    if len({rows for rows, _, _ in found}) < len(found):
        raise BadInput(f"{path}: two passes of as many rows")
    return found


def read_drafts(path, method=None):
    """(acceptance by position over rounds, rows drafted of a position, seconds of a drafted row)."""
    try:
        data = read_json(path)
        methods = [m for m in data["methods"] if m["per_position_acceptance"] and method in (None, m["method"])]
        if len(methods) != 1:
            raise BadInput(f"{path}: {len(methods)} methods that draft; name one with --method: "
                           + ", ".join(m["method"] for m in data["methods"]))
        one = methods[0]
        acceptance = one["per_position_acceptance"]
        rounds = one["accepted_tokens"] / sum(acceptance)
        drafted = one["drafted_tokens"] / rounds
        return acceptance, drafted / len(acceptance), one["stage_seconds"]["draft"] / one["drafted_tokens"]
    except (KeyError, TypeError, ZeroDivisionError) as error:
        raise BadInput(f"{path}: no figures of `aerie bench spec --json` with accepted drafts: {error!r}") from error


class Machine:
    """What a pass takes; `acceptance[i]`: how many of its rounds accept a token at depth i + 1.

    `share` rows are drafted for a depth (less than 1 where drafters are often silent, more for trees), and
    drafting takes `draft_seconds` for each of them. A prompt's row, which needs no logits, takes `prompt_cost` of
    a row that is verified.
    """

    def __init__(self, passes, acceptance=(), share=1.0, draft_seconds=0.0, speculate="auto", budget=0,
                 prompt_cost=1.0):
        if any(not 0 <= a <= 1 for a in acceptance):
            raise BadInput("acceptance: from 0 to 1 at each position")
        self.passes, self.share, self.draft_seconds, self.prompt_cost = passes, share, draft_seconds, prompt_cost
        depths = 0 if speculate == "none" else len(acceptance)
        if speculate not in ("none", "auto"):
            depths = int(speculate)
            if depths > len(acceptance):
                raise BadInput(f"drafts of {depths} tokens, but acceptance for {len(acceptance)} positions")
        self.fixed = None if speculate == "auto" else depths
        self.tokens = [1.0 + sum(acceptance[:k]) for k in range(depths + 1)]  # of a round, by depth
        self.rows = [1.0 + share * k for k in range(depths + 1)]
        self.position = [self._between(rows, 2) for rows in self.rows]
        self._weights, self._choices = {}, {}
        self.budget = budget or self._usual_budget()

    def _between(self, rows, what):
        """As PassCost::between: lines between the points, and beyond the last as between the last two."""
        points = self.passes
        if len(points) == 1:
            return points[0][what]
        above = 1
        while above + 1 < len(points) and points[above][0] < rows:
            above += 1
        low, high = points[above - 1], points[above]
        return low[what] + max(0.0, (rows - low[0]) / (high[0] - low[0])) * (high[what] - low[what])

    def _usual_budget(self):
        rows = MOST_BUDGET
        while rows > LEAST_BUDGET and self.weights(rows) > BUDGET_SECONDS:
            rows -= 1
        return rows

    def weights(self, rows):
        """Seconds of so many rows without context."""
        rows = round(rows)
        seconds = self._weights.get(rows)
        if seconds is None:
            seconds = self._weights[rows] = max(self._between(rows, 1), self.passes[0][1])
        return seconds

    def decode(self, sequences, depth, context, prompt_rows=0):
        """Seconds of drafting and of a pass with a round of each sequence, beside rows of prompts (without their
        context); `context`: the positions of a sequence in the mean."""
        seconds = self.weights(sequences * self.rows[depth] + prompt_rows * self.prompt_cost)
        return (seconds + sequences * self.position[depth] * context
                + sequences * (self.rows[depth] - 1.0) * self.draft_seconds)

    def prompt(self, rows, context):
        """What a piece of a prompt adds for the positions before it."""
        return self._between(rows, 2) * context

    def depth(self, sequences, context, prompt_rows=0):
        """The depth with most expected tokens a second, none unless that beats plain decoding by MARGIN; beside
        prompts what counts is what drafts add."""
        if self.fixed is not None or not sequences:
            return self.fixed or 0
        key = (sequences, prompt_rows >> 3, int(context) >> 7)
        chosen = self._choices.get(key)
        if chosen is None:
            chosen = self._choices[key] = self._best_depth(sequences, context, prompt_rows)
        return chosen

    def _best_depth(self, sequences, context, prompt_rows):
        plain = self.decode(sequences, 0, context)
        beside = self.decode(sequences, 0, context, prompt_rows)
        best, most = 0, MARGIN / plain
        for depth in range(1, len(self.tokens)):
            added = self.decode(sequences, depth, context, prompt_rows) - beside
            rate = (1.0 + TRUST * (self.tokens[depth] - 1.0)) / (plain + added)
            if rate > most:
                best, most = depth, rate
        return best
