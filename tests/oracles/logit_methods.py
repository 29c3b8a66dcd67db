"""Methods on logits from their papers: loops over rows and classes, numbers of sixty digits.

Probabilities are decimals, so 1 - p keeps its digits however near p is to 1. Nothing is shared
with src.
"""

from collections.abc import Sequence
from decimal import Decimal, localcontext
from math import sqrt

import numpy as np
from scipy.optimize import brentq, minimize_scalar
from scipy.stats import weibull_min

Row = Sequence[float]


def softmax(row: Row, temperature: float = 1.0) -> list[Decimal]:
    powers = [(Decimal(float(x)) / Decimal(temperature)).exp() for x in row]
    total = sum(powers, Decimal(0))
    return [power / total for power in powers]


def exactly(function):
    """Make a definition of one row run for many, with sixty digits, and round to floats."""

    def run(rows, *arguments, **parameters) -> list[float]:
        with localcontext(prec=60):
            return [float(function(row, *arguments, **parameters)) for row in rows]

    return run


@exactly
def msp(row: Row, temperature: float = 1.0) -> Decimal:
    return 1 - max(softmax(row, temperature))


@exactly
def mcm(row: Row, temperature: float = 1.0) -> Decimal:
    others = sorted(softmax(row, temperature))[:-1]  # sixty digits do not hold 1 - e^-4900
    return sum(others, Decimal(0)).ln()


@exactly
def energy(row: Row, temperature: float = 1.0) -> Decimal:
    t = Decimal(temperature)
    return -t * sum(((Decimal(float(x)) / t).exp() for x in row), Decimal(0)).ln()


@exactly
def entropy(row: Row) -> Decimal:
    return -sum((p * p.ln() for p in softmax(row)), Decimal(0))


@exactly
def gen(row: Row, gamma: float = 0.1, top: int = 100) -> Decimal:
    largest = sorted(softmax(row), reverse=True)[:top]
    return sum((p ** Decimal(gamma) * (1 - p) ** Decimal(gamma) for p in largest), Decimal(0))


def templates(rows: Sequence[Row]) -> list[list[Decimal] | None]:
    """The mean softmax of the rows whose largest logit is that of the class, if there is one."""
    means: list[list[Decimal] | None] = []
    for c in range(len(rows[0])):
        of_class = [softmax(row) for row in rows if int(np.argmax(row)) == c]
        mean = [sum(column, Decimal(0)) / len(of_class) for column in zip(*of_class, strict=True)]
        means.append(mean or None)
    return means


@exactly
def kl_matching(row: Row, means: Sequence[Sequence[Decimal] | None]) -> Decimal:
    p = softmax(row)
    return min(
        sum((a * (a / b).ln() for a, b in zip(p, mean, strict=True)), Decimal(0))
        for mean in means
        if mean is not None
    )


def loss(logits: np.ndarray, labels: np.ndarray, temperature: float) -> float:
    total = 0.0
    for row, label in zip(logits / temperature, labels, strict=True):
        top = row.max()
        total += top + np.log(sum(np.exp(x - top) for x in row)) - row[label]
    return total


def best_temperature(logits: np.ndarray, labels: np.ndarray) -> float:
    def of_log(log_temperature: float) -> float:
        return loss(logits, labels, float(np.exp(log_temperature)))

    found = minimize_scalar(of_log, bounds=(-7, 7), method="bounded", options={"xatol": 1e-12})
    return float(np.exp(found.x))


def weibull(tail: Row, shift: float) -> tuple[float, float]:
    """Shape and scale: where the derivative of the likelihood in the shape is 0."""
    logs = np.array([np.log1p((x - min(tail)) / shift) for x in tail])  # of x / shift

    def derivative(shape: float) -> float:
        powers = np.exp(shape * (logs - logs.max()))
        return float((powers * logs).sum() / powers.sum() - 1 / shape - logs.mean())

    shape = brentq(derivative, 1e-3, 1e9, xtol=1e-12, rtol=1e-14)
    powers = np.exp(shape * (logs - logs.max()))
    return shape, shift * float(np.exp(logs.max() + np.log(powers.mean()) / shape))


class OpenMaxByLoops:
    """Bendale and Boult's algorithms 1 and 2 with Euclidean distances, one row at a time."""

    def __init__(self, logits, labels, *, tail: int, alpha: int, shift: float):
        self.alpha, self.shift = alpha, shift
        self.models: list[tuple | None] = []
        for c in range(logits.shape[1]):
            kept = [row for row, y in zip(logits, labels, strict=True) if y == c == np.argmax(row)]
            if not kept:
                self.models.append(None)
                continue
            mean = np.mean(kept, axis=0)
            distances = sorted(self.distance(row, mean) for row in kept)[-tail:]
            is_spread = distances[-1] > distances[0]
            fitted = weibull(distances, shift) if is_spread else None
            self.models.append((mean, distances[0], *fitted) if fitted else None)

    @staticmethod
    def distance(a: Row, b: Row) -> float:
        return sqrt(sum((x - y) ** 2 for x, y in zip(a, b, strict=True)))

    def weight(self, row: Row, c: int) -> float:
        if self.models[c] is None:
            return 0.0
        mean, least, shape, scale = self.models[c]
        moved = self.distance(row, mean) - least + self.shift
        with np.errstate(over="ignore"):
            return float(weibull_min.cdf(moved, shape, scale=scale))

    def log_odds(self, row: Row) -> float:
        ranked = sorted(range(len(row)), key=lambda c: -row[c])
        alpha = min(self.alpha, len(row))
        revised, unknown = list(row), 0.0
        for i in range(1, alpha + 1):
            c = ranked[i - 1]
            revised[c] = row[c] * (1 - self.weight(row, c) * (alpha + 1 - i) / alpha)
            unknown += row[c] - revised[c]
        top = max(*revised, unknown)
        known = sum(np.exp(x - top) for x in revised)
        return float(np.log(np.exp(unknown - top) / known))
