"""Neighbor methods from their papers: loops over rows in float64. Nothing is shared with src."""

from math import exp, log, sqrt

import numpy as np


def unit(row):
    length = sqrt(sum(x * x for x in row))
    return [x / length if length else 0.0 for x in row]


def dot(a, b):
    return sum(x * y for x, y in zip(a, b, strict=True))


def energy(logits):
    return log(sum(exp(x) for x in logits))


def softmax(logits):
    powers = [exp(x) for x in logits]
    return [power / sum(powers) for power in powers]


def as_lists(table):
    return np.asarray(table, dtype=np.float64).tolist()


def knn(features, bank, k):
    scores = []
    known = [unit(row) for row in as_lists(bank)]
    for query in map(unit, as_lists(features)):
        apart = sorted(sum((x - y) ** 2 for x, y in zip(query, b, strict=True)) for b in known)
        scores.append(sqrt(apart[k - 1]))
    return scores


def nnguide(features, logits, bank, bank_logits, k):
    guides = [
        [energy(row_logits) * x for x in unit(row)]
        for row, row_logits in zip(as_lists(bank), as_lists(bank_logits), strict=True)
    ]
    scores = []
    for row, row_logits in zip(as_lists(features), as_lists(logits), strict=True):
        products = sorted((dot(unit(row), guide) for guide in guides), reverse=True)
        scores.append(-energy(row_logits) * sum(products[:k]) / k)
    return scores


def relation(features, logits, bank, bank_logits, power, threshold):
    known = [
        (unit(row), softmax(row_logits))
        for row, row_logits in zip(as_lists(bank), as_lists(bank_logits), strict=True)
    ]
    scores = []
    for row, row_logits in zip(as_lists(features), as_lists(logits), strict=True):
        query, belief = unit(row), softmax(row_logits)
        ties = [max(0.0, dot(query, z)) * dot(belief, p) for z, p in known]
        scores.append(-sum(tie**power for tie in ties if tie > threshold))
    return scores
