"""Scores of methods on layers, probes and ensembles from their definitions, row by row.

Plain loops in float64 numpy; nothing is shared with src.
"""

from collections.abc import Mapping, Sequence
from math import exp, inf, log

import numpy as np

Array = np.ndarray


def softmax(logits: Sequence[float], temperature: float = 1.0) -> list[float]:
    largest = max(logits)
    powers = [exp((value - largest) / temperature) for value in logits]
    return [power / sum(powers) for power in powers]


def doubt(logits: Array, temperature: float = 1.0) -> Array:
    """1 - max p, as the sum of the other probabilities."""
    return np.array([sum(sorted(softmax(row.tolist(), temperature))[:-1]) for row in logits])


def doubt_of_mean(members: Array) -> Array:
    """The same of probabilities averaged over the middle axis of [n, members, classes]."""
    found = []
    for row in members:
        probabilities = [softmax(member.tolist()) for member in row]
        mean = [sum(column) / len(column) for column in zip(*probabilities, strict=True)]
        found.append(sum(sorted(mean)[:-1]))
    return np.array(found)


def energy(logits: Array, temperature: float = 1.0) -> Array:
    return np.array([-temperature * log(sum(exp(v / temperature) for v in row)) for row in logits])


def mahalanobis(table: Array, known: Array, labels: Array) -> Array:
    """The smallest squared distance to a class mean under one covariance, by a linear solve."""
    means = {c: known[labels == c].mean(axis=0) for c in np.unique(labels)}
    covariance = np.zeros((known.shape[1], known.shape[1]))
    for row, label in zip(known, labels, strict=True):
        deviation = row - means[label]
        covariance += np.outer(deviation, deviation) / len(known)
    return np.array(
        [
            min((row - m) @ np.linalg.solve(covariance, row - m) for m in means.values())
            for row in table
        ]
    )


def gram_rows(maps: Array, powers: Sequence[int]) -> Array:
    """Row sums of Gram matrices [n, powers, channels]; the sum is taken before the root."""
    found = np.zeros((len(maps), len(powers), maps.shape[1]))
    for n, each in enumerate(maps.reshape(len(maps), maps.shape[1], -1)):
        for k, power in enumerate(powers):
            sums = (each**power @ (each**power).T).sum(axis=1)
            found[n, k] = np.sign(sums) * np.abs(sums) ** (1 / power)
    return found


class GramOracle:
    """Total deviation divided by the largest probability."""

    def __init__(
        self,
        known: Mapping[str, Array],
        logits: Array,
        held_out: Mapping[str, Array],
        held_out_logits: Array,
    ):
        self.known, self.answers = known, [int(np.argmax(row)) for row in logits]
        self.expected = {}
        for layer, rows in held_out.items():
            deviations = [
                self.deviation(layer, row, int(np.argmax(answer)))
                for row, answer in zip(rows, held_out_logits, strict=True)
            ]
            self.expected[layer] = sum(deviations) / len(deviations) or 1.0

    def deviation(self, layer: str, row: Array, answer: int) -> float:
        rows = [r for r, a in zip(self.known[layer], self.answers, strict=True) if a == answer]
        rows = rows or list(self.known[layer])
        total = 0.0
        for place in np.ndindex(*row.shape):
            low, high = inf, -inf
            for other in rows:
                low, high = min(low, other[place]), max(high, other[place])
            total += max(low - row[place], 0.0) / (abs(low) + 1e-6)
            total += max(row[place] - high, 0.0) / (abs(high) + 1e-6)
        return total

    def score(self, columns: Mapping[str, Array], logits: Array) -> Array:
        found = []
        for n, answer in enumerate(logits):
            total = sum(
                self.deviation(layer, rows[n], int(np.argmax(answer))) / self.expected[layer]
                for layer, rows in columns.items()
            )
            found.append(total / max(softmax(answer.tolist())))
        return np.array(found)


def leaky_network(layers: Sequence[tuple[Array, Array]], rows: Array) -> Array:
    """A perceptron with leaky units of slope 0.2 and one output."""
    found = []
    for row in rows:
        values = row
        for k, (weight, bias) in enumerate(layers):
            values = np.array([w @ values + b for w, b in zip(weight, bias, strict=True)])
            if k < len(layers) - 1:
                values = np.where(values > 0, values, 0.2 * values)
        found.append(values[0])
    return np.array(found)
