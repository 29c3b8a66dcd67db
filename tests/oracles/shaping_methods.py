"""Shaping methods from their papers: one row at a time in float64. Nothing is shared with src."""

from math import exp, log

import numpy as np


def percentile(values, percent):
    return float(np.percentile(np.asarray(values, dtype=np.float64), percent))


def energy(logits):
    top = max(logits)
    return -(top + log(sum(exp(x - top) for x in logits)))


def logits_of(row, weight, bias):
    return [
        sum(w * x for w, x in zip(weights, row, strict=True)) + b
        for weights, b in zip(weight, bias, strict=True)
    ]


def energies(rows, weight, bias):
    weight, bias = np.asarray(weight, np.float64).tolist(), np.asarray(bias, np.float64).tolist()
    return [energy(logits_of(row, weight, bias)) for row in rows]


def rows_of(features):
    return np.asarray(features, dtype=np.float64).tolist()


def kept(row, percent):
    """Places of the largest values; of equal ones the first."""
    k = max(1, len(row) - round(len(row) * percent / 100))
    return sorted(range(len(row)), key=lambda j: (-row[j], j))[:k]


def ratio(row, places):
    total = sum(max(0.0, x) for x in row)
    part = sum(max(0.0, row[j]) for j in places)
    return total / part if part > 0 else 1.0


def react(features, known, percent):
    limit = percentile(known, percent)
    return [[min(x, limit) for x in row] for row in rows_of(features)]


def vra(features, known, low_percent, high_percent):
    low, high = percentile(known, low_percent), percentile(known, high_percent)
    return [[0.0 if x < low else min(x, high) for x in row] for row in rows_of(features)]


def ash_p(features, percent):
    return [
        [x if j in kept(row, percent) else 0.0 for j, x in enumerate(row)]
        for row in rows_of(features)
    ]


def ash_s(features, percent):
    return [
        [
            x * exp(ratio(row, kept(row, percent))) if j in kept(row, percent) else 0.0
            for j, x in enumerate(row)
        ]
        for row in rows_of(features)
    ]


def ash_b(features, percent):
    shaped = []
    for row in rows_of(features):
        places = kept(row, percent)
        level = sum(max(0.0, x) for x in row) / len(places)
        shaped.append([level if j in places else 0.0 for j in range(len(row))])
    return shaped


def scale(features, percent):
    return [[x * exp(ratio(row, kept(row, percent))) for x in row] for row in rows_of(features)]


def dice_weight(known, weight, percent):
    mean = np.mean(np.asarray(known, np.float64), axis=0)
    contributions = np.asarray(weight, np.float64) * mean
    limit = percentile(contributions, percent)
    return [
        [w if c > limit else 0.0 for w, c in zip(ws, cs, strict=True)]
        for ws, cs in zip(rows_of(weight), contributions.tolist(), strict=True)
    ]


def movement(row, stepped, top_percent, shift_percent, shift_weight):
    d = len(row)
    order = sorted(range(d), key=lambda j: (-row[j], j))
    top = order[: max(1, int(d * top_percent / 100))]
    first = order[: max(1, int(d * shift_percent / 100))]
    level = sum(max(0.0, stepped[j]) for j in top)
    return level + shift_weight * sum(abs(row[j] - stepped[j]) for j in first)


def adascale_ratios(features, stepped, validation, validation_stepped, percentiles, *parameters):
    low, high = percentiles
    usual = [
        movement(row, after, *parameters)
        for row, after in zip(rows_of(validation), rows_of(validation_stepped), strict=True)
    ]
    ratios = []
    for row, after in zip(rows_of(features), rows_of(stepped), strict=True):
        moved = movement(row, after, *parameters)
        share = sum(value <= moved for value in usual) / len(usual)
        ratios.append(ratio(row, kept(row, low + (1 - share) * (high - low))))
    return ratios
