"""Ranking metrics from their definitions: all pairs, all thresholds, exact fractions.

A row is a tuple (score, is_unknown, weight). Everything is slow and nothing is shared with src.
"""

from collections.abc import Sequence
from fractions import Fraction
from itertools import permutations
from math import ceil, inf, nan

Row = tuple[float, bool, Fraction]
Numbers = Sequence[float]
Flags = Sequence[bool]


def rows_of(
    score: Numbers, is_unknown: Flags, weights: Sequence[Fraction] | None = None
) -> list[Row]:
    ones = [Fraction(1)] * len(score)
    columns = (map(float, score), map(bool, is_unknown), map(Fraction, weights or ones))
    return list(zip(*columns, strict=True))


def weigh(rows: Sequence[Row]) -> Fraction:
    return sum((weight for _, _, weight in rows), Fraction(0))


def parts(rows: Sequence[Row]) -> tuple[list[Row], list[Row]]:
    return [row for row in rows if row[1]], [row for row in rows if not row[1]]


def auroc(rows: Sequence[Row]) -> Fraction:
    unknown, known = parts(rows)
    right = Fraction(0)
    for u, _, weight_u in unknown:
        for k, _, weight_k in known:
            credit = Fraction(1) if u > k else Fraction(1, 2) if u == k else Fraction(0)
            right += credit * weight_u * weight_k
    return right / (weigh(unknown) * weigh(known))


def swapped(rows: Sequence[Row]) -> list[Row]:
    """The same question with known as the class that is looked for."""
    return [(-score, not is_unknown, weight) for score, is_unknown, weight in rows]


def precision_recall(rows: Sequence[Row]) -> list[tuple[Fraction, Fraction]]:
    """(recall, precision) from the highest threshold down, for thresholds that flag something."""
    unknown, _ = parts(rows)
    points = []
    for threshold in sorted({score for score, _, weight in rows if weight > 0}, reverse=True):
        flagged = [row for row in rows if row[0] >= threshold]
        found = weigh(parts(flagged)[0])
        points.append((found / weigh(unknown), found / weigh(flagged)))
    return points


def average_precision(rows: Sequence[Row]) -> Fraction:
    area, last_recall = Fraction(0), Fraction(0)
    for recall, precision in precision_recall(rows):
        area += (recall - last_recall) * precision
        last_recall = recall
    return area


def trapezoid(rows: Sequence[Row]) -> Fraction:
    area, last_recall, last_precision = Fraction(0), Fraction(0), Fraction(1)
    for recall, precision in precision_recall(rows):
        area += (recall - last_recall) * (precision + last_precision) / 2
        last_recall, last_precision = recall, precision
    return area


def recalls(rows: Sequence[Row]) -> list[tuple[Fraction, Fraction]]:
    """(unknown recall, known recall) of every threshold, flagging nothing included."""
    unknown, known = parts(rows)
    pairs = []
    for threshold in [inf, *sorted({score for score, _, _ in rows}, reverse=True)]:
        flagged = weigh([row for row in unknown if row[0] >= threshold])
        accepted = weigh([row for row in known if row[0] < threshold])
        pairs.append((flagged / weigh(unknown), accepted / weigh(known)))
    return pairs


def fpr_at_unknown_recall(rows: Sequence[Row], recall: Fraction) -> Fraction:
    return min(1 - known for unknown, known in recalls(rows) if unknown >= recall)


def fpr_at_known_recall(rows: Sequence[Row], recall: Fraction) -> Fraction:
    return min(1 - unknown for unknown, known in recalls(rows) if known >= recall)


def detection_error(rows: Sequence[Row], known_recall: Fraction = Fraction(0)) -> Fraction:
    errors = [
        ((1 - unknown) + (1 - known)) / 2
        for unknown, known in recalls(rows)
        if known >= known_recall
    ]
    return min(errors)


def ranking_metrics(rows: Sequence[Row]) -> dict[str, float]:
    recall = Fraction(95, 100)
    metrics = {
        "auroc": auroc(rows),
        "aupr_unknown": average_precision(rows),
        "aupr_known": average_precision(swapped(rows)),
        "aupr_unknown_trapezoid": trapezoid(rows),
        "aupr_known_trapezoid": trapezoid(swapped(rows)),
        "fpr_at_95_unknown_recall": fpr_at_unknown_recall(rows, recall),
        "fpr_at_95_known_recall": fpr_at_known_recall(rows, recall),
        "detection_error": detection_error(rows),
        "detection_error_at_95_known_recall": detection_error(rows, recall),
    }
    return {name: float(value) for name, value in metrics.items()}


def oscr(score: Numbers, is_unknown: Flags, is_correct: Flags) -> float:
    rows = list(zip(map(float, score), is_unknown, is_correct, strict=True))
    known = [(s, correct) for s, unknown, correct in rows if not unknown]
    unknown = [s for s, unknown, _ in rows if unknown]
    credit = Fraction(0)
    for k, correct in known:
        for u in unknown:
            if correct:
                credit += Fraction(1) if k < u else Fraction(1, 2) if k == u else Fraction(0)
    return float(credit / (len(known) * len(unknown)))


def ccr_at_fpr(score: Numbers, is_unknown: Flags, is_correct: Flags, fpr: Fraction) -> float:
    rows = list(zip(map(float, score), is_unknown, is_correct, strict=True))
    n_unknown = sum(unknown for _, unknown, _ in rows)
    best = Fraction(0)
    for threshold in [-inf, *{s for s, _, _ in rows}]:
        accepted = [row for row in rows if row[0] <= threshold]
        passed = sum(unknown for _, unknown, _ in accepted)
        right = sum(correct and not unknown for _, unknown, correct in accepted)
        if Fraction(passed, n_unknown) <= fpr:
            best = max(best, Fraction(right, len(rows) - n_unknown))
    return float(best)


def openood_ccr_at_fpr(score: Numbers, is_unknown: Flags, is_correct: Flags, fpr: float) -> float:
    """`ccr_fpr` of OpenOOD, in its own orientation: confidence is high for known rows."""
    rows = list(zip((-float(s) for s in score), is_unknown, is_correct, strict=True))
    unknown = sorted(confidence for confidence, is_out, _ in rows if is_out)
    threshold = unknown[-ceil(fpr * len(unknown))]
    known = [(confidence, correct) for confidence, is_out, correct in rows if not is_out]
    return sum(confidence > threshold and correct for confidence, correct in known) / len(known)


def aurc(score: Numbers, is_wrong: Flags) -> float:
    """The mean over every order of the rows, of which a sort by score then keeps the ties."""
    rows = list(zip(map(float, score), is_wrong, strict=True))
    areas = []
    for order in permutations(rows):
        wrong = [is_wrong for _, is_wrong in sorted(order, key=lambda row: row[0])]
        risks = [Fraction(sum(wrong[:k]), k) for k in range(1, len(wrong) + 1)]
        areas.append(sum(risks) / len(risks))
    return float(sum(areas) / len(areas))


def best_aurc(is_wrong: Flags) -> float:
    n = len(is_wrong)
    wrong = sorted(map(bool, is_wrong))
    return float(sum(Fraction(sum(wrong[:k]), k) for k in range(1, n + 1)) / n)


def at_threshold(
    score: Numbers, is_unknown: Flags, is_wrong: Flags, threshold: float
) -> dict[str, float]:
    """Shares of rows by counting them one by one; NaN where there is nothing to count."""
    rows = list(zip(map(float, score), is_unknown, is_wrong, strict=True))
    accepted = [row for row in rows if not row[0] > threshold]
    known = [row for row in rows if not row[1]]
    unknown = [row for row in rows if row[1]]
    bad = [row for row in accepted if row[1] or row[2]]

    def share(part: list, whole: list) -> float:
        return float(Fraction(len(part), len(whole))) if whole else nan

    return {
        "coverage": share(accepted, rows),
        "selective_risk": share(bad, accepted),
        "false_alarm_rate": share([row for row in known if row[0] > threshold], known),
        "missed_unknown_rate": share([row for row in unknown if row in accepted], unknown),
    }
