"""Policies that choose tau, the threshold on the unknown score.

The metadata of every threshold hold the number of rows, the share of known rows that it accepts,
and the share of unknown rows that it rejects where such rows were given.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from incognita.decisions.thresholds import (
    ScorePolicy,
    UnknownThreshold,
    check_number,
    mean_inside,
)
from incognita.errors import InvalidDataError
from incognita.metrics._scores import check_finite, check_share
from incognita.shapes import Float64, Real


@dataclass(frozen=True)
class KnownQuantile(ScorePolicy):
    """The smallest known score that accepts at least a share of the known rows.

    FindMeIfYouCan, section 5.2: "such that 95% of the ID samples lie above the threshold" (there a
    higher score means more known). An order statistic without interpolation, so that a monotone
    map of the scores changes no decision. With ties more
    than the share may be accepted.

    Args:
        share: Least share of known rows to accept, above 0 and at most 1; the paper's.

    >>> KnownQuantile(share=0.75).fit(np.array([4.0, 1.0, 3.0, 2.0])).value
    3.0
    """

    share: float = 0.95
    name: ClassVar[str] = "quantile"

    def __post_init__(self) -> None:
        check_number("share", self.name, self.share)
        check_share("share", self.share)

    def fit(
        self,
        known_scores: Real[np.ndarray, "known"],
        unknown_scores: Real[np.ndarray, "unknown"] | None = None,
    ) -> UnknownThreshold:
        known = _some_scores("known_scores", known_scores)
        # compared as a share, because share * n may round past a whole number
        accepted = np.arange(1, len(known) + 1) / len(known)
        place = int(np.searchsorted(accepted, self.share))
        value = float(np.partition(known, place)[place])
        return _threshold(self, value, known, unknown_scores)


@dataclass(frozen=True)
class KnownGaussian(ScorePolicy):
    r"""A number of standard deviations above the mean of the known scores.

    $$ \tau = \mu + 1.645 \, \sigma $$ with the moments of the known scores, divided by n. If they
    were Gaussian, 95 % would be accepted; they seldom are, and `metadata["known_accepted"]` is the
    actual share. The public codes choose this way (FMIYC_OOD-OD_Benchmark at f1a695e and runia_core
    at 02fc57b, `get_baselines_thresholds`: mean - 1.645 std of a score that is higher for known
    rows).

    Args:
        n_std: Number of standard deviations; 1.645 in both codes.

    >>> threshold = KnownGaussian(n_std=1.0).fit(np.array([0.0, 0.0, 0.0, 4.0]))
    >>> round(threshold.value, 6), threshold.metadata["known_accepted"]
    (2.732051, 0.75)
    """

    n_std: float = 1.645
    name: ClassVar[str] = "gaussian"

    def __post_init__(self) -> None:
        check_number("n_std", self.name, self.n_std)

    def fit(
        self,
        known_scores: Real[np.ndarray, "known"],
        unknown_scores: Real[np.ndarray, "unknown"] | None = None,
    ) -> UnknownThreshold:
        known = np.sort(_some_scores("known_scores", known_scores))  # any row order, same sum
        with np.errstate(over="ignore", invalid="ignore"):  # overflow raises below
            mean = mean_inside(known)
            std = np.sqrt(np.square(known - mean).mean())
            value = float(mean + self.n_std * std)
        if not np.isfinite(value):
            raise InvalidDataError(
                f"The known scores, {known[0]} to {known[-1]}, are too large for a mean and a "
                f"standard deviation; use quantile, which only compares."
            )
        metadata = {"mean": float(mean), "std": float(std)}
        return _threshold(self, value, known, unknown_scores, **metadata)


@dataclass(frozen=True)
class HarmonicMean(ScorePolicy):
    r"""The score with the best harmonic mean of known rows accepted and unknown ones rejected.

    $$ \max_\tau \frac{2 \, TPR \, TNR}{TPR + TNR}, \quad
    TPR = P(s \le \tau \mid \text{known}), \quad TNR = P(s > \tau \mid \text{unknown}) $$
    over all scores that occur; of equally good ones the smallest. Oksuz et al., Towards building
    self-aware object detectors, CVPR 2023, section 4, choose the image threshold this way, with
    images whose objects are painted over as unknown. Departure: their code uses scikit-learn's ROC
    curve, which leaves out collinear points, and misses the best where it is one of these.

    `SelfAwareSettings(convention="saod")` does as the code.

    >>> known, unknown = np.array([0.1, 0.2, 0.3, 0.8]), np.array([0.3, 0.7, 0.9])
    >>> threshold = HarmonicMean().fit(known, unknown)
    >>> threshold.value, threshold.metadata["known_accepted"], threshold.metadata["harmonic_mean"]
    (0.3, 0.75, 0.7058823529411765)
    """

    name: ClassVar[str] = "harmonic-mean"

    def fit(
        self,
        known_scores: Real[np.ndarray, "known"],
        unknown_scores: Real[np.ndarray, "unknown"] | None = None,
    ) -> UnknownThreshold:
        if unknown_scores is None:
            raise InvalidDataError(
                "harmonic-mean needs scores of known and of unknown rows, got only known ones. "
                "Pass those of pseudo-unknown rows as well, or use quantile, which needs none."
            )
        known = np.sort(_some_scores("known_scores", known_scores))
        unknown = np.sort(_some_scores("unknown_scores", unknown_scores))
        levels = np.unique(np.concatenate([known, unknown]))
        quality = harmonic_means(levels, known, unknown)
        best = int(quality.argmax())  # the first of equals
        if quality[best] == 0:
            raise InvalidDataError(
                f"No threshold accepts a known row and rejects an unknown one: the smallest known "
                f"score, {known[0]}, is not below the largest unknown one, {unknown[-1]}; a higher "
                f"score must mean more unknown."
            )
        metadata = {"harmonic_mean": float(quality[best])}
        return _threshold(self, float(levels[best]), known, unknown, **metadata)


@dataclass(frozen=True)
class Fixed(ScorePolicy):
    """A given number; scores, where there are any, only describe what it does.

    >>> Fixed(12.5).fit(np.array([10.0, 20.0])).metadata
    {'n_known': 2, 'known_accepted': 0.5}
    """

    value: float
    name: ClassVar[str] = "fixed"

    def __post_init__(self) -> None:
        check_number("value", self.name, self.value)

    def fit(
        self,
        known_scores: Real[np.ndarray, "known"],
        unknown_scores: Real[np.ndarray, "unknown"] | None = None,
    ) -> UnknownThreshold:
        known = _scores("known_scores", known_scores)
        return _threshold(self, float(self.value), known, unknown_scores)


def harmonic_means(
    levels: Float64[np.ndarray, "levels"],
    known: Float64[np.ndarray, "known"],
    unknown: Float64[np.ndarray, "unknown"],
) -> Float64[np.ndarray, "levels"]:
    """Compute the harmonic mean of the two shares at each level, both columns being sorted.

    Written with counts, a of n known accepted and r of m unknown rejected, it is 2 a r / (a m +
    r n): whole numbers and one division, so that equal qualities are equal to the last bit.
    """
    accepted = np.searchsorted(known, levels, side="right")
    rejected = len(unknown) - np.searchsorted(unknown, levels, side="right")
    divisor = accepted * len(unknown) + rejected * len(known)
    means = np.zeros(len(levels))
    np.divide(2 * accepted * rejected, divisor, out=means, where=divisor > 0)
    return means


def _threshold(
    policy: ScorePolicy,
    value: float,
    known: Float64[np.ndarray, "known"],
    unknown_scores: Real[np.ndarray, "unknown"] | None,
    **more: float,
) -> UnknownThreshold:
    """Build the threshold with what it does on the given rows."""
    metadata: dict[str, Any] = {"n_known": len(known)}
    if len(known):
        metadata["known_accepted"] = float(np.mean(known <= value))
    if unknown_scores is not None:
        unknown = _scores("unknown_scores", unknown_scores)
        metadata["n_unknown"] = len(unknown)
        if len(unknown):
            metadata["unknown_rejected"] = float(np.mean(unknown > value))
    return UnknownThreshold(value, str(policy), metadata | more)


def _scores(name: str, values: Real[np.ndarray, "..."]) -> Float64[np.ndarray, "rows"]:
    scores = np.asarray(values, np.float64)
    if scores.ndim != 1:
        raise InvalidDataError(
            f"Expected {name} with one axis, got the shape {scores.shape}. Pass one score per row."
        )
    check_finite(name, scores)
    return scores


def _some_scores(name: str, values: Real[np.ndarray, "..."]) -> Float64[np.ndarray, "rows"]:
    scores = _scores(name, values)
    if not len(scores):
        kind = name.removesuffix("_scores")
        raise InvalidDataError(
            f"Expected at least one score in {name}, got none. Pass the scores of {kind} rows, or "
            f"use a fixed number."
        )
    return scores
