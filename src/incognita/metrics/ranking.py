r"""Ranking metrics: how well a score separates unknown rows from known ones.

Unknown is the positive class and a higher score means more unknown. A threshold *flags* the rows at
or above it and *accepts* the rest; rows of equal score cannot be parted by a threshold and are
always taken together. With u the score of an unknown row and k that of a known one,

$$ \text{AUROC} = P(u > k) + \tfrac12 P(u = k). $$

Two public habits are deliberately not followed. `sklearn.metrics.roc_curve` drops collinear points
by default, and with them thresholds: 20 scores shared by one known and one unknown row
each give OpenOOD an FPR of 1.00 where 0.95 is true. torchmetrics passes scores outside [0, 1]
through a sigmoid, which ties them: N(-800, 100) against N(-1000, 100) has an AUROC of 0.92, and
torchmetrics says 0.50 in float32. Here scores are only ever compared.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from incognita.errors import InvalidDataError
from incognita.kernels.ranking import (
    LANES,
    Ranking,
    flip_negative,
    split_scores,
    sweep_replicates,
    sweep_scores,
    sweep_weights,
)
from incognita.metrics._scores import (
    as_scores,
    as_truth,
    as_weights,
    check_share,
    check_weights,
    tie_groups,
)
from incognita.metrics.measure import bootstrap_weights
from incognita.shapes import Bool, Float, Float64, Int, Real

RECALL = 0.95


class RankingMetrics(Ranking):
    r"""Every ranking metric of one set of scores, as shares between 0 and 1.

    With recall the share of a class that is recognized (unknown flagged, known accepted) and
    FNR + FPR the sum of the two shares that are not:

    Args:
        auroc: A tie counts one half.
        aupr_unknown: Average precision of flagging, $\sum_g (R_g - R_{g-1}) P_g$ over tie groups
            from the largest score down, as `sklearn.metrics.average_precision_score`.
        aupr_known: Average precision of accepting, from the smallest score up.
        aupr_unknown_trapezoid: The same curve joined by straight lines down to precision 1 at
            recall 0, which is optimistic. OpenOOD and pytorch-ood publish this as AUPR-OUT.
        aupr_known_trapezoid: OpenOOD and pytorch-ood publish this as AUPR-IN.
        fpr_at_unknown_recall: Share of known flagged where at least `recall` of unknown are
            (at 95 %: OpenOOD since August 2023, pytorch-ood).
        fpr_at_known_recall: Share of unknown accepted where at least `recall` of known are (at
            95 %: FACETS, FMIYC, OpenOOD before; VOS takes the recall nearest to 95 % instead).
        detection_error: The smallest (FNR + FPR) / 2 of all thresholds (Liang et al., ODIN, 2018).
        detection_error_at_known_recall: The smallest among thresholds that accept at least
            `recall` of known. At 95 % this is the *detection error* that FACETS prints (Recalcati
            et al., 2023, tables VI and VII): 22.36 gives 13.68 = (22.36 + 5) / 2, but 0.37 gives
            1.61, not 2.69, and 96.40 gives 49.97, not 50.70, so the threshold is not fixed; and the
            free minimum of 45.91 would hold AUROC below $\tfrac12 + J - \tfrac12 J^2 = 57.8$, where
            J = 1 - 2 * 0.4591, while 64.40 is printed. All 48 printed triples fit this reading.
        recall: The recall of the three metrics above. At 0.95 they are also available under the
            names `fpr_at_95_unknown_recall`, `fpr_at_95_known_recall` and
            `detection_error_at_95_known_recall`.
        n_known: Known rows.
        n_unknown: Unknown rows.
    """

    __slots__ = ()

    @property
    def fpr_at_95_unknown_recall(self) -> float:
        """`fpr_at_unknown_recall`, if the recall is 0.95."""
        return self._at_95("fpr_at_unknown_recall")

    @property
    def fpr_at_95_known_recall(self) -> float:
        """`fpr_at_known_recall`, if the recall is 0.95."""
        return self._at_95("fpr_at_known_recall")

    @property
    def detection_error_at_95_known_recall(self) -> float:
        """`detection_error_at_known_recall`, if the recall is 0.95."""
        return self._at_95("detection_error_at_known_recall")

    def _at_95(self, name: str) -> float:
        if self.recall != RECALL:
            raise AttributeError(
                f"These metrics are at recall {self.recall:g}, not 0.95; use {name}."
            )
        return float(getattr(self, name))


@dataclass(frozen=True, eq=False, repr=False)
class RankingReplicates:
    """The fields of `RankingMetrics`, at recall 0.95, as attributes with one value per replicate.

    Args:
        columns: The arrays by the name of the field.
    """

    columns: Mapping[str, Float64[np.ndarray, "replicates"]]
    recall: float = RECALL

    def __getattr__(self, name: str) -> Float64[np.ndarray, "replicates"]:
        columns = self.__dict__.get("columns", {})
        field = name.replace("_at_95_", "_at_")
        if field not in columns:
            raise AttributeError(f"RankingReplicates has no field {name!r}.")
        return np.asarray(columns[field])

    def __repr__(self) -> str:
        return f"RankingReplicates({len(self.auroc):,} replicates)"


# the ranking metrics under the names by which results store them
RANKING_METRICS = tuple(
    name.replace("_at_", "_at_95_")
    for name in Ranking._fields
    if name not in ("recall", "n_known", "n_unknown")
)


class RocPoints(NamedTuple):
    """One point per threshold: rows at or above it are flagged, the others accepted."""

    threshold: Float[np.ndarray, "points"]
    unknown_recall: Float64[np.ndarray, "points"]
    known_recall: Float64[np.ndarray, "points"]


def ranking_metrics(
    unknown_score: Real[np.ndarray, "rows"],
    is_unknown: Bool[np.ndarray, "rows"],
    *,
    weights: Real[np.ndarray, "rows"] | None = None,
) -> RankingMetrics:
    """Compute every ranking metric from one sort and one linear pass (`python -m bench ranking`).

    Args:
        unknown_score: Any finite numbers; float32 is compared as float32, the rest as float64.
        is_unknown: The truth of each row.
        weights: How much each row counts; 2 is the same as repeating the row.

    >>> is_unknown = np.array([True, True, False, False])
    >>> ranks = ranking_metrics(np.array([0.9, 0.4, 0.4, 0.1]), is_unknown)
    >>> ranks.auroc, ranks.fpr_at_95_unknown_recall, ranks.detection_error
    (0.875, 0.5, 0.25)
    >>> round(ranks.aupr_unknown, 4), ranks.n_known
    (0.8333, 2)
    """
    return _measure(unknown_score, is_unknown, weights, RECALL)


def auroc(
    unknown_score: Real[np.ndarray, "rows"],
    is_unknown: Bool[np.ndarray, "rows"],
    *,
    weights: Real[np.ndarray, "rows"] | None = None,
) -> float:
    """Compute the probability that an unknown row scores above a known one; ties count half.

    >>> auroc(np.array([2, 3, 3, 1]), np.array([True, True, False, False]))
    0.625
    """
    return ranking_metrics(unknown_score, is_unknown, weights=weights).auroc


def average_precision(
    unknown_score: Real[np.ndarray, "rows"],
    is_unknown: Bool[np.ndarray, "rows"],
    *,
    weights: Real[np.ndarray, "rows"] | None = None,
) -> float:
    """Compute the mean precision of flagging over the unknown rows, each at its own threshold.

    The first unknown row below is found with precision 1, the second with 2 / 3.

    >>> round(average_precision(np.array([9, 8, 7]), np.array([True, False, True])), 4)
    0.8333
    """
    return ranking_metrics(unknown_score, is_unknown, weights=weights).aupr_unknown


def fpr_at_unknown_recall(
    unknown_score: Real[np.ndarray, "rows"],
    is_unknown: Bool[np.ndarray, "rows"],
    *,
    recall: float = RECALL,
    weights: Real[np.ndarray, "rows"] | None = None,
) -> float:
    """Compute the share of known rows flagged where at least `recall` of the unknown rows are.

    Of the thresholds that reach the recall the highest is taken; nothing is interpolated.

    >>> is_unknown = np.array([True, False, True, False])
    >>> fpr_at_unknown_recall(np.array([4, 3, 2, 1]), is_unknown, recall=0.5)
    0.0
    """
    check_share("recall", recall)
    return _measure(unknown_score, is_unknown, weights, recall).fpr_at_unknown_recall


def fpr_at_known_recall(
    unknown_score: Real[np.ndarray, "rows"],
    is_unknown: Bool[np.ndarray, "rows"],
    *,
    recall: float = RECALL,
    weights: Real[np.ndarray, "rows"] | None = None,
) -> float:
    """Compute the share of unknown rows accepted where at least `recall` of the known rows are.

    Of the thresholds that reach the recall the lowest is taken; nothing is interpolated.

    >>> is_unknown = np.array([True, False, True, False])
    >>> fpr_at_known_recall(np.array([4, 3, 2, 1]), is_unknown, recall=1.0)
    0.5
    """
    check_share("recall", recall)
    return _measure(unknown_score, is_unknown, weights, recall).fpr_at_known_recall


def roc_points(
    unknown_score: Real[np.ndarray, "rows"],
    is_unknown: Bool[np.ndarray, "rows"],
    *,
    weights: Real[np.ndarray, "rows"] | None = None,
) -> RocPoints:
    """Return both recalls at every threshold, from flagging nothing to flagging everything.

    Collinear points are kept: each is a threshold somebody may choose.

    >>> points = roc_points(np.array([3.0, 2.0, 1.0]), np.array([True, False, True]))
    >>> points.threshold.tolist(), points.unknown_recall.tolist(), points.known_recall.tolist()
    ([inf, 3.0, 2.0, 1.0], [0.0, 0.5, 0.5, 1.0], [1.0, 1.0, 0.0, 0.0])
    """
    score, is_unknown = _checked(unknown_score, is_unknown)
    weight = np.ones(len(score)) if weights is None else as_weights(weights, is_unknown)
    groups = tie_groups(score)
    unknown = groups.cumulative(np.where(is_unknown, weight, 0.0))
    known = groups.cumulative(np.where(is_unknown, 0.0, weight))
    threshold = np.append(score.dtype.type(np.inf), score[groups.order[groups.is_last]])
    return RocPoints(threshold, unknown / unknown[-1], (known[-1] - known) / known[-1])


def ranking_replicates(
    unknown_score: Real[np.ndarray, "rows"],
    is_unknown: Bool[np.ndarray, "rows"],
    counts: Real[np.ndarray, "rows replicates"],
) -> RankingReplicates:
    """Compute every ranking metric once per column of counts, as the bootstrap needs.

    A count is the number of times a row is in a replicate. Scores are sorted once; a replicate is
    then one linear pass. A replicate without any row of a class has NaN in every metric; `n_known`
    and `n_unknown` are sums of counts.

    >>> is_unknown = np.array([True, False, True])
    >>> counts = np.array([[1, 0, 3], [1, 1, 1], [1, 1, 1]])
    >>> ranking_replicates(np.array([3.0, 2.0, 1.0]), is_unknown, counts).auroc.tolist()
    [0.5, 0.0, 0.75]
    """
    score, is_unknown = _checked(unknown_score, is_unknown)
    if counts.ndim != 2 or len(counts) != len(score):
        raise InvalidDataError(
            f"counts has shape {counts.shape} beside {len(score)} scores; "
            f"pass one row per score and one column per replicate."
        )
    order, is_last = tie_groups(score)
    falls_unknown = is_unknown[order]
    n_replicates = counts.shape[1]
    values = np.empty((n_replicates, len(Ranking._fields)))
    n_rows = np.empty((2, n_replicates))
    for first in range(0, n_replicates, LANES):
        block = slice(first, first + LANES)
        falling = _falling_counts(counts[:, block], order)
        n_lanes = len(values[block])
        values[block] = sweep_replicates(falling, falls_unknown, is_last, RECALL)[:n_lanes]
        n_rows[0, block] = (falls_unknown.astype(np.float64) @ falling)[:n_lanes]
        n_rows[1, block] = falling.sum(axis=0)[:n_lanes]
    columns = dict(zip(Ranking._fields, np.ascontiguousarray(values.T), strict=True))
    del columns["recall"]
    n_unknown, n_all = n_rows
    return RankingReplicates(columns | {"n_known": n_all - n_unknown, "n_unknown": n_unknown})


def bootstrap_ranking(
    unknown_score: Float[np.ndarray, "rows"],
    is_unknown: Bool[np.ndarray, "rows"],
    *,
    images: Sequence[Any] | np.ndarray | None = None,
    n_resamples: int = 1000,
    seed: int = 0,
) -> RankingReplicates:
    """Compute every ranking metric of the data, then of each bootstrap replicate.

    Args:
        unknown_score: Higher means more unknown.
        is_unknown: The truth of each row.
        images: The image id of each row, numbers or text, where images have several rows, as with
            detections; images are drawn, not rows. By default each row is an image.
        n_resamples: The number of replicates.
        seed: The same seed draws the same images, so two methods can be paired.

    >>> score, truth = np.array([0.1, 0.4, 0.35, 0.8]), np.array([False, False, True, True])
    >>> bootstrap_ranking(score, truth, n_resamples=10).auroc[0]
    np.float64(0.75)
    """
    ids = np.arange(len(unknown_score)) if images is None else np.asarray(images)
    if len(ids) != len(unknown_score):
        raise InvalidDataError(
            f"Expected one image id per score, got {len(ids)} for {len(unknown_score)}."
        )
    distinct, rows = np.unique(ids, return_inverse=True)
    n_images = len(distinct)
    weights = bootstrap_weights(n_images, n_resamples=n_resamples, seed=seed)
    return ranking_replicates(unknown_score, is_unknown, weights[rows])


def _checked(
    unknown_score: Real[np.ndarray, "..."], is_unknown: Bool[np.ndarray, "..."]
) -> tuple[Float[np.ndarray, "rows"], Bool[np.ndarray, "rows"]]:
    score = as_scores(unknown_score)
    return score, as_truth(is_unknown, len(score))


def _measure(
    unknown_score: Real[np.ndarray, "..."],
    is_unknown: Bool[np.ndarray, "..."],
    weights: Real[np.ndarray, "..."] | None,
    recall: float,
) -> RankingMetrics:
    score, is_unknown = _checked(unknown_score, is_unknown)
    n_unknown = int(np.count_nonzero(is_unknown))
    if weights is None:
        unknown, known = split_scores(score, is_unknown, n_unknown)
        _sort(unknown)
        _sort(known)
        values = sweep_scores(unknown, known, recall)
    else:
        order, is_last = tie_groups(score)
        falling = as_weights(weights, is_unknown)[order]
        values = sweep_weights(falling, is_unknown[order], is_last, recall)
    metrics = RankingMetrics._make(values)
    return metrics._replace(n_known=len(score) - n_unknown, n_unknown=n_unknown)


_FEW = 1 << 15


def _sort(score: Float[np.ndarray, "rows"]) -> None:
    """Sort in place.

    Many scores are sorted by polars, as integers in the same order: NumPy's sort for AVX-512 is
    slow on some CPUs (Zen 4).
    """
    if len(score) < _FEW:
        score.sort()
        return
    import polars

    bits = score.view(np.int32 if score.dtype == np.float32 else np.int64)
    flip_negative(bits, bits)
    flip_negative(polars.Series(bits).sort(multithreaded=False).to_numpy(), bits)


def _falling_counts(
    counts: Real[np.ndarray, "rows block"], order: Int[np.ndarray, "rows"]
) -> Float64[np.ndarray, "rows lanes"]:
    """Copy up to `LANES` columns of counts into the order of the sweep; the other lanes are 0."""
    falling = np.zeros((len(counts), LANES))
    falling[:, : counts.shape[1]] = np.take(counts, order, axis=0)
    if not (falling.min() >= 0 and falling.max() < np.inf):  # NaN fails as well
        check_weights("counts", counts)
    return falling
