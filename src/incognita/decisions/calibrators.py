r"""Calibrators: maps from the confidence of a detection to its expected quality.

The quality of a detection is its IoU with the object it finds, or 0 for a false positive, so that
a calibrated confidence is precision times IoU (Oksuz et al., CVPR 2023, section 5.3). One
calibrator is fitted per class. All of them are defined on the whole of [0, 1] and return values
inside it.

Fitted calibrators are plain arrays: they are saved without code and applied with NumPy alone.
"""

import warnings
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar, NamedTuple

import numpy as np

from incognita.decisions.thresholds import Policy
from incognita.errors import InvalidDataError
from incognita.metrics.calibration import check_probabilities
from incognita.registry import need
from incognita.shapes import Float, Float64, Int

Parameters = Mapping[str, Float64[np.ndarray, "_"]]
_SMALLEST = 1e-6  # distance of a confidence from 0 and 1 before its logit is taken


class State(StrEnum):
    """How much a class had to learn from."""

    FITTED = "fitted"
    CONSTANT = "constant"  # one confidence only, or a slope that would turn the order around
    IDENTITY = "identity"  # no detection at all, or no calibration asked for


class ClassCalibrator(NamedTuple):
    """The fitted calibrator of one class, and the number of detections behind it."""

    state: State
    n_detections: int
    parameters: Parameters


class Calibrator(Policy):
    """A kind of map; a frozen dataclass whose fields are parameters."""

    def fit(
        self, confidence: Float[np.ndarray, "rows"], quality: Float[np.ndarray, "rows"]
    ) -> ClassCalibrator:
        """Fit the map of one class.

        Args:
            confidence: Between 0 and 1, of each detection of the class.
            quality: The IoU of a true positive, 0 of a false positive.
        """
        check_probabilities(confidence)
        n = len(confidence)
        if not n:
            return ClassCalibrator(State.IDENTITY, 0, {})
        parameters = None
        if confidence.min() < confidence.max():
            parameters = self._fit(confidence.astype(np.float64), quality.astype(np.float64))
        if parameters is None:
            return ClassCalibrator(State.CONSTANT, n, {"value": np.array([quality.mean()])})
        return ClassCalibrator(State.FITTED, n, parameters)

    def apply(
        self, fitted: ClassCalibrator, confidence: Float[np.ndarray, "rows"]
    ) -> Float64[np.ndarray, "rows"]:
        """Map confidences; the result is between 0 and 1."""
        values = confidence.astype(np.float64)
        if fitted.state is State.CONSTANT:
            values = np.full(len(values), fitted.parameters["value"][0])
        elif fitted.state is State.FITTED:
            values = self._apply(fitted.parameters, values)
        return np.asarray(np.clip(values, 0.0, 1.0))

    @abstractmethod
    def _fit(self, confidence: np.ndarray, quality: np.ndarray) -> Parameters | None:
        """Fit at least two different confidences; None if only a constant is sensible."""

    @abstractmethod
    def _apply(self, parameters: Parameters, confidence: np.ndarray) -> np.ndarray:
        """Map confidences with fitted parameters."""


@dataclass(frozen=True)
class Linear(Calibrator):
    """Linear regression of the quality on the confidence, the paper's choice.

    Departure: the slope is not negative by default, because a negative one turns the order of the
    detections around; such a class gets the constant that fits best, its mean quality. The public
    code of the paper leaves the sign free (`allow_negative`), the later detection_calibration
    toolbox does not.

    Args:
        allow_negative: Accept a negative slope, as the paper's code.

    >>> fitted = Linear().fit(np.array([0.2, 0.8]), np.array([0.1, 0.5]))
    >>> Linear().apply(fitted, np.array([0.5, 1.0])).round(3).tolist()
    [0.3, 0.633]
    """

    allow_negative: bool = False
    name: ClassVar[str] = "linear"

    def _fit(self, confidence: np.ndarray, quality: np.ndarray) -> Parameters | None:
        deviation = confidence - confidence.mean()
        if (spread := deviation @ deviation) == 0:  # of denormal numbers
            return None
        slope = (deviation @ quality) / spread
        if slope <= 0 and not self.allow_negative:
            return None
        intercept = quality.mean() - slope * confidence.mean()
        return {"slope": np.array([slope]), "intercept": np.array([intercept])}

    def _apply(self, parameters: Parameters, confidence: np.ndarray) -> np.ndarray:
        return np.asarray(parameters["slope"] * confidence + parameters["intercept"])


@dataclass(frozen=True)
class Histogram(Calibrator):
    """Histogram binning: the mean quality of bins that hold equally many detections.

    Zadrozny and Elkan, 2001. As in the paper's code 25 bins, or half as many as there are
    detections where these are fewer than 50. A bin reaches from halfway between its neighbours;
    equal confidences are never divided between two bins.

    >>> p, q = np.array([0.1, 0.2, 0.8, 0.9]), np.array([0.0, 0.2, 0.6, 1.0])
    >>> Histogram().apply(Histogram().fit(p, q), np.array([0.0, 0.45, 0.55, 1.0])).tolist()
    [0.1, 0.1, 0.8, 0.8]
    """

    n_bins: int = 25
    name: ClassVar[str] = "histogram"

    def __post_init__(self) -> None:
        if self.n_bins < 1:
            raise InvalidDataError(f"Expected n_bins of at least 1, got {self.n_bins}.")

    def _fit(self, confidence: np.ndarray, quality: np.ndarray) -> Parameters | None:
        n_bins = min(self.n_bins, max(1, len(confidence) // 2))
        ordered = np.sort(confidence)
        first = np.linspace(0, len(ordered), n_bins + 1).astype(np.int64)[1:-1]
        edges = np.unique((ordered[first - 1] + ordered[first]) / 2)
        bins = np.searchsorted(edges, confidence, side="right")
        counts = np.bincount(bins, minlength=len(edges) + 1)
        sums = np.bincount(bins, quality, minlength=len(edges) + 1)
        # a bin that ties have emptied is joined with the one above it
        is_used = counts > 0
        values = sums[is_used] / counts[is_used]
        return {"edges": edges[is_used[:-1]][: len(values) - 1], "values": values}

    def _apply(self, parameters: Parameters, confidence: np.ndarray) -> np.ndarray:
        bins = np.searchsorted(parameters["edges"], confidence, side="right")
        return np.asarray(parameters["values"][bins])


@dataclass(frozen=True)
class Isotonic(Calibrator):
    """Isotonic regression: the best rising map; constant beyond the confidences it was fitted on.

    Departure: the paper's code leaves it undefined there (NaN).

    >>> p, q = np.array([0.2, 0.4, 0.6]), np.array([0.1, 0.0, 0.5])
    >>> Isotonic().apply(Isotonic().fit(p, q), np.array([0.0, 0.5, 1.0])).tolist()
    [0.05, 0.275, 0.5]
    """

    name: ClassVar[str] = "isotonic"

    def _fit(self, confidence: np.ndarray, quality: np.ndarray) -> Parameters | None:
        sklearn = need("sklearn.isotonic", extra="calibrators")
        steps = sklearn.IsotonicRegression(y_min=0.0, y_max=1.0).fit(confidence, quality)
        return {"confidence": steps.X_thresholds_, "quality": steps.y_thresholds_}

    def _apply(self, parameters: Parameters, confidence: np.ndarray) -> np.ndarray:
        steps = parameters["confidence"], parameters["quality"]
        return np.asarray(np.interp(confidence, *steps))


@dataclass(frozen=True)
class PlattScaling(Calibrator):
    """Platt scaling: logistic regression of the quality on the logit of the confidence.

    The quality counts as the share of a positive answer, so that the cross-entropy is smallest.
    """

    name: ClassVar[str] = "platt"
    has_intercept: ClassVar[bool] = True

    def _fit(self, confidence: np.ndarray, quality: np.ndarray) -> Parameters | None:
        sklearn = need("sklearn.linear_model", extra="calibrators")
        if quality.min() == quality.max():
            return None
        logits = np.tile(_logit(confidence), 2)[:, None]
        answers = np.repeat([1, 0], len(quality))
        # hardly regularized: separable answers would have no optimum else
        curve = sklearn.LogisticRegression(
            C=1e6, solver="newton-cholesky", fit_intercept=self.has_intercept
        )
        with warnings.catch_warnings():  # of steps that are too small to matter, where it is steep
            warnings.simplefilter("ignore")
            curve.fit(logits, answers, np.concatenate([quality, 1 - quality]))
        if curve.coef_[0, 0] <= 0:
            return None
        return {"slope": curve.coef_[0], "intercept": np.broadcast_to(curve.intercept_, 1).copy()}

    def _apply(self, parameters: Parameters, confidence: np.ndarray) -> np.ndarray:
        logits = parameters["slope"] * _logit(confidence) + parameters["intercept"]
        return np.asarray((1 + np.tanh(logits / 2)) / 2)  # the logistic function, without overflow


@dataclass(frozen=True)
class TemperatureScaling(PlattScaling):
    """Temperature scaling: the logit of the confidence divided by one number (Guo et al., 2017).

    >>> p, q = np.array([0.9, 0.9, 0.1, 0.1]), np.array([1.0, 0.5, 0.0, 0.5])
    >>> scaling = TemperatureScaling()
    >>> scaling.apply(scaling.fit(p, q), np.array([0.5, 0.9])).round(2).tolist()
    [0.5, 0.75]
    """

    name: ClassVar[str] = "temperature"
    has_intercept: ClassVar[bool] = False


@dataclass(frozen=True)
class NoCalibration(Calibrator):
    """The confidence as it is."""

    name: ClassVar[str] = "none"

    def fit(
        self, confidence: Float[np.ndarray, "rows"], quality: Float[np.ndarray, "rows"]
    ) -> ClassCalibrator:
        check_probabilities(confidence)
        return ClassCalibrator(State.IDENTITY, len(confidence), {})

    def _fit(self, confidence: np.ndarray, quality: np.ndarray) -> Parameters | None:
        return None

    def _apply(self, parameters: Parameters, confidence: np.ndarray) -> np.ndarray:
        return confidence


def _logit(confidence: np.ndarray) -> np.ndarray:
    inside = np.clip(confidence, _SMALLEST, 1 - _SMALLEST)
    return np.asarray(np.log(inside / (1 - inside)))


@dataclass(frozen=True, eq=False)
class ClassCalibrators:
    """One fitted calibrator per known class.

    Args:
        kind: The map they share.
        per_class: The fitted parameters, in the order of the known classes.
    """

    kind: Calibrator
    per_class: tuple[ClassCalibrator, ...]

    @classmethod
    def fit(
        cls,
        kind: Calibrator,
        confidence: Float[np.ndarray, "rows"],
        quality: Float[np.ndarray, "rows"],
        labels: Int[np.ndarray, "rows"],
        n_classes: int,
    ) -> "ClassCalibrators":
        """Fit each class on its own detections."""
        parts = _rows_by_class(labels, n_classes)
        return cls(kind, tuple(kind.fit(confidence[rows], quality[rows]) for rows in parts))

    def apply(
        self, confidence: Float[np.ndarray, "rows"], labels: Int[np.ndarray, "rows"]
    ) -> Float64[np.ndarray, "rows"]:
        """Map the confidence of each detection by the calibrator of its class."""
        check_probabilities(confidence)
        calibrated = np.empty(len(confidence), np.float64)
        parts = _rows_by_class(labels, len(self.per_class))
        for fitted, rows in zip(self.per_class, parts, strict=True):
            calibrated[rows] = self.kind.apply(fitted, confidence[rows])
        return calibrated

    def counts(self) -> dict[str, int]:
        """Return the number of classes in each state."""
        states = [fitted.state for fitted in self.per_class]
        return {str(state): states.count(state) for state in State}


def _rows_by_class(labels: Int[np.ndarray, "rows"], n_classes: int) -> list[Any]:
    order = np.argsort(labels, kind="stable")
    return np.split(order, np.searchsorted(labels[order], np.arange(1, n_classes)))
