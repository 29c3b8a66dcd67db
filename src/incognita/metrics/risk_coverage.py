r"""How often a model is wrong when it may refuse the rows it finds most unknown.

Rows are accepted from the smallest score up. After k of n rows the coverage is k / n and the risk
is the share of wrong ones among those k (Geifman and El-Yaniv, Selective Classification for Deep
Neural Networks, NeurIPS 2017):

$$ \text{AURC} = \frac1n \sum_{k=1}^{n} \frac{\text{wrong among the first } k}{k}. $$

Rows of equal score have no order, so the number of wrong rows among the first k is replaced by its
mean over all orders of the ties: inside a group it grows evenly. The result is exact, depends on no
order of rows, and equals the formula above where no scores tie. (An order left to the sort, as in
pytorch-ood's `aurra`, makes the number depend on how the file was written.)
"""

from typing import NamedTuple

import numpy as np

from incognita.errors import InvalidDataError
from incognita.metrics._scores import as_mask, as_scores
from incognita.metrics.tie_groups import tie_groups
from incognita.shapes import Bool, Float, Float64, Real


class RiskCoverage(NamedTuple):
    """One point per accepted row; rows up to the threshold are accepted.

    Inside a tie group coverage and risk are those of accepting a random part of the group.
    """

    threshold: Float[np.ndarray, "rows"]
    coverage: Float64[np.ndarray, "rows"]
    risk: Float64[np.ndarray, "rows"]


def risk_coverage(
    unknown_score: Real[np.ndarray, "rows"], is_wrong: Bool[np.ndarray, "rows"]
) -> RiskCoverage:
    """Give the risk among accepted rows at every coverage from 1 / n to 1.

    >>> curve = risk_coverage(np.array([1, 2, 2]), np.array([False, True, False]))
    >>> curve.risk.tolist(), curve.threshold.tolist()
    ([0.0, 0.25, 0.3333333333333333], [1.0, 2.0, 2.0])
    """
    score = as_scores(unknown_score)
    is_wrong = as_mask("is_wrong", is_wrong, len(score))
    if len(score) == 0:
        raise InvalidDataError("unknown_score is empty, but risk needs at least one row; pass one.")
    groups = tie_groups(-score)  # from the smallest score up
    group_ends = groups.cumulative(np.ones(len(score)))
    accepted = np.arange(1, len(score) + 1)
    wrong = np.interp(accepted, group_ends, groups.cumulative(is_wrong))
    return RiskCoverage(score[groups.order], accepted / len(score), wrong / accepted)


def aurc(unknown_score: Real[np.ndarray, "rows"], is_wrong: Bool[np.ndarray, "rows"]) -> float:
    """Give the area under the risk-coverage curve: the mean risk over all coverages; low is good.

    >>> aurc(np.array([1, 2, 3, 4]), np.array([False, True, False, False]))
    0.2708333333333333
    """
    return float(risk_coverage(unknown_score, is_wrong).risk.mean())


def excess_aurc(
    unknown_score: Real[np.ndarray, "rows"], is_wrong: Bool[np.ndarray, "rows"]
) -> float:
    r"""Give how far the area lies above that of the same errors in the best order.

    The best order refuses wrong rows first. Its area is summed exactly, where Geifman et al.
    (Bias-Reduced Uncertainty Estimation, ICLR 2019) take the limit of many rows,
    $r + (1 - r) \ln(1 - r)$ with r the share of wrong rows.

    >>> excess_aurc(np.array([1, 2, 3]), np.array([False, False, True]))
    0.0
    """
    area = aurc(unknown_score, is_wrong)
    accepted = np.arange(1, len(is_wrong) + 1)
    n_right = len(is_wrong) - np.count_nonzero(is_wrong)
    best = np.mean(np.maximum(accepted - n_right, 0) / accepted)
    return float(area - best)
