"""Accepting images, and one number for everything.

Sources: SAOD sections 4 and 6, appendix C.2.2, algorithms A.1 and A.2; notes, table 1.7.
"""

import math
from collections.abc import Sequence
from typing import Literal

from tests.oracles.boxes import mean

NO_DETECTION = 1e12


def image_uncertainty(
    uncertainties: Sequence[float], how: Literal["sum", "mean", "top", "min"], m: int = 3
) -> float:
    """Make one uncertainty of those of an image's detections (SAOD eq. A.13 to A.16).

    "top" is the mean of the m smallest, of all if there are fewer. Without a detection it is 1e12.
    """
    if not uncertainties:
        return NO_DETECTION
    ascending = sorted(uncertainties)
    if how == "sum":
        return math.fsum(ascending)
    if how == "mean":
        return mean(ascending)
    return mean(ascending[:m]) if how == "top" else ascending[0]


def harmonic_mean(*values: float) -> float:
    """Give the harmonic mean; 0 if a value is 0, NaN if one is NaN."""
    if any(math.isnan(value) for value in values):
        return math.nan
    if any(value == 0 for value in values):
        return 0.0
    return len(values) / sum(1 / value for value in values)


def rates(known: Sequence[float], unknown: Sequence[float], u: float) -> tuple[float, float]:
    """Give TPR and TNR when an image is accepted if G <= u (algorithm A.2, line 5)."""
    tpr = mean([float(g <= u) for g in known])
    tnr = mean([float(g > u) for g in unknown])
    return tpr, tnr


def balanced_accuracy(known: Sequence[float], unknown: Sequence[float], u: float) -> float:
    """Give BA, the harmonic mean of TPR and TNR (SAOD section 4; "FPR" there is a slip)."""
    return harmonic_mean(*rates(known, unknown, u))


def roc_thresholds(known: Sequence[float], unknown: Sequence[float]) -> list[float]:
    """List the uncertainties at which scikit-learn's roc_curve keeps a point, after a -inf.

    Of the distinct values in ascending order, an inner one is dropped if as many known and as many
    unknown images have exactly this value as have exactly the next one (the points lie evenly on a
    line).
    """
    distinct = sorted({*known, *unknown})
    steps = [(list(known).count(g), list(unknown).count(g)) for g in distinct]
    last = len(distinct) - 1
    kept = [
        g for i, g in enumerate(distinct) if i in (0, last) or steps[i] != steps[min(i + 1, last)]
    ]
    return [-math.inf, *kept]


def balanced_accuracy_saod(known: Sequence[float], unknown: Sequence[float], u: float) -> float:
    """Give BA as the SAOD code reads it off the ROC curve: one point too late (notes 1.7).

    It takes the first point above u. If no image has G > u, it takes the point that accepts nothing
    and BA is 0.
    """
    beyond = [g for g in roc_thresholds(known, unknown) if g > u]
    return balanced_accuracy(known, unknown, beyond[0]) if beyond else 0.0


def best_threshold(known: Sequence[float], unknown: Sequence[float]) -> float:
    """Give the smallest u of the observed uncertainties with the largest BA (SAOD section 4)."""
    return max(sorted({*known, *unknown}), key=lambda u: balanced_accuracy(known, unknown, u))


def best_threshold_saod(known: Sequence[float], unknown: Sequence[float]) -> float:
    """Give the first point of scikit-learn's ROC curve with the largest BA (notes 1.7)."""
    points = roc_thresholds(known, unknown)
    return max(points, key=lambda u: balanced_accuracy(known, unknown, u))


def idq(lrp: float, laece: float) -> float:
    """Give IDQ, the harmonic mean of 1 - LRP and 1 - LaECE (SAOD section 6); 0 if a part is 0."""
    return harmonic_mean(1 - lrp, 1 - laece)


def daq(ba: float, idq_id: float, idq_shifted: float) -> float:
    """Give DAQ, the harmonic mean of BA, IDQ and IDQ_T (SAOD section 6); 0 if a part is 0."""
    return harmonic_mean(ba, idq_id, idq_shifted)
