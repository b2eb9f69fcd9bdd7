"""Student's interval of a mean, for scripts that measure a few times."""

import math
import statistics


def within(t, degrees):
    """The probability that Student's variable lies between -t and t."""
    angle = math.atan(t / math.sqrt(degrees))
    sine, cosine = math.sin(angle), math.cos(angle)
    # The finite series for whole degrees of freedom (Abramowitz and Stegun, 26.7.3 and 26.7.4).
    term = cosine if degrees % 2 else 1.0
    total = 0.0
    for i in range(2 + degrees % 2, degrees + 1, 2):
        total += term
        term *= cosine * cosine * (i - 1) / i
    return 2 / math.pi * (angle + sine * total) if degrees % 2 else sine * total


def quantile_975(degrees):
    """The t beyond which 2.5 % lie on either side."""
    low, high = 0.0, 16.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if within(middle, degrees) < 0.95 else (low, middle)
    return high


def interval(values):
    """(mean, half the width of the interval that holds it with 95 %) of two values or more."""
    spread = statistics.stdev(values) / math.sqrt(len(values))
    return statistics.mean(values), quantile_975(len(values) - 1) * spread
