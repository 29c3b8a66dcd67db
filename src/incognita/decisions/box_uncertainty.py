r"""How uncertain a detector is about a box: by its confidence, its logits or its covariance.

Oksuz et al., CVPR 2023, appendix C. A detector with a softmax head has K logits and that of the
background, one with sigmoid heads K logits alone; `Detections.background` tells them apart.
"""

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from incognita.containers.boxes import Detections
from incognita.decisions.thresholds import Policy
from incognita.errors import InvalidDataError
from incognita.shapes import Float, Float64


class BoxUncertainty(Policy):
    """A measure of uncertainty; a frozen dataclass whose fields are parameters."""

    @abstractmethod
    def of(self, detections: Detections) -> Float64[np.ndarray, "boxes"]:
        """Compute the uncertainty of each box; higher means less certain."""

    def fit(self, detections: Detections) -> "BoxUncertainty":
        """Return the measure with what it takes from validation data; most take nothing."""
        del detections
        return self


@dataclass(frozen=True)
class FromConfidence(BoxUncertainty):
    """1 - confidence, the paper's choice (tables 2 and 3)."""

    name: ClassVar[str] = "confidence"

    def of(self, detections: Detections) -> Float64[np.ndarray, "boxes"]:
        return np.asarray(1.0 - detections.confidence.astype(np.float64))


@dataclass(frozen=True)
class ClassEntropy(BoxUncertainty):
    r"""The entropy of the predicted classes, equation A.6.

    Over K + 1 columns where there is a background logit, else over the softmax of K logits, which
    the paper calls categorical and finds best for sigmoid heads (table A.9).
    """

    name: ClassVar[str] = "entropy"

    def of(self, detections: Detections) -> Float64[np.ndarray, "boxes"]:
        logits = _all_logits(self.name, detections)
        logits = logits - logits.max(axis=1, keepdims=True)
        log_probability = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
        return np.asarray(-(np.exp(log_probability) * log_probability).sum(axis=1))


@dataclass(frozen=True)
class MeanEntropy(BoxUncertainty):
    """The mean entropy of K sigmoid heads, equation A.17 with the sign of an entropy."""

    name: ClassVar[str] = "mean-entropy"

    def of(self, detections: Detections) -> Float64[np.ndarray, "boxes"]:
        return np.asarray(_sigmoid_entropies(self.name, detections).mean(axis=1))


@dataclass(frozen=True)
class MaxClassEntropy(BoxUncertainty):
    """The entropy of the sigmoid head with the highest logit, equation A.18 with its sign."""

    name: ClassVar[str] = "max-class-entropy"

    def of(self, detections: Detections) -> Float64[np.ndarray, "boxes"]:
        entropies = _sigmoid_entropies(self.name, detections)
        best = _logits(self.name, detections).argmax(axis=1)
        return np.asarray(np.take_along_axis(entropies, best[:, None], axis=1)[:, 0])


@dataclass(frozen=True)
class DempsterShafer(BoxUncertainty):
    r"""Dempster-Shafer: $C / (C + \sum_j \exp s_j)$ over C logits, equations A.7 and A.8.

    C is K + 1 where there is a background logit, else K.
    """

    name: ClassVar[str] = "dempster-shafer"

    def of(self, detections: Detections) -> Float64[np.ndarray, "boxes"]:
        logits = _all_logits(self.name, detections)
        # 1 / (1 + exp(log of the mean evidence)), which no logit makes overflow
        largest = logits.max(axis=1)
        evidence = largest + np.log(np.exp(logits - largest[:, None]).mean(axis=1))
        with np.errstate(over="ignore"):
            return np.asarray(1.0 / (1.0 + np.exp(evidence)))


@dataclass(frozen=True)
class CovarianceDeterminant(BoxUncertainty):
    """The determinant of the predicted covariance, equation A.10."""

    name: ClassVar[str] = "determinant"

    def of(self, detections: Detections) -> Float64[np.ndarray, "boxes"]:
        return np.asarray(_variances(self.name, detections).prod(axis=1))


@dataclass(frozen=True)
class CovarianceTrace(BoxUncertainty):
    """The trace of the predicted covariance, equation A.11."""

    name: ClassVar[str] = "trace"

    def of(self, detections: Detections) -> Float64[np.ndarray, "boxes"]:
        return np.asarray(_variances(self.name, detections).sum(axis=1))


@dataclass(frozen=True)
class GaussianEntropy(BoxUncertainty):
    r"""The entropy of the predicted Gaussian, $2 + 2 \ln 2\pi + \frac12 \ln |\Sigma|$ (A.12)."""

    name: ClassVar[str] = "gaussian-entropy"

    def of(self, detections: Detections) -> Float64[np.ndarray, "boxes"]:
        log_determinant = np.log(_variances(self.name, detections)).sum(axis=1)
        return np.asarray(2 + 2 * np.log(2 * np.pi) + log_determinant / 2)


@dataclass(frozen=True)
class Balanced(BoxUncertainty):
    """Four times the entropy of the classes and once that of the four coordinates (table A.10)."""

    name: ClassVar[str] = "balanced"

    def of(self, detections: Detections) -> Float64[np.ndarray, "boxes"]:
        return np.asarray(4 * ClassEntropy().of(detections) + GaussianEntropy().of(detections))


@dataclass(frozen=True)
class Normalized(BoxUncertainty):
    """Both entropies scaled to 0 to 1 by their range on validation data, then added (table A.10).

    Args:
        classes: Smallest and largest entropy of the classes; set by `fit`.
        coordinates: Smallest and largest entropy of the coordinates; set by `fit`.
    """

    classes: tuple[float, float] | None = None
    coordinates: tuple[float, float] | None = None
    name: ClassVar[str] = "normalized"

    def fit(self, detections: Detections) -> "Normalized":
        if not len(detections):
            raise InvalidDataError(
                "normalized needs validation detections for its range, got none."
            )
        parts = ClassEntropy().of(detections), GaussianEntropy().of(detections)
        ranges = [(float(part.min()), float(part.max())) for part in parts]
        return replace(self, classes=ranges[0], coordinates=ranges[1])

    def of(self, detections: Detections) -> Float64[np.ndarray, "boxes"]:
        if self.classes is None or self.coordinates is None:
            raise InvalidDataError("normalized has no range yet. Fit it on validation detections.")
        classes, coordinates = ClassEntropy().of(detections), GaussianEntropy().of(detections)
        parts = _scaled(classes, self.classes), _scaled(coordinates, self.coordinates)
        return np.asarray(parts[0] + parts[1])


def _scaled(values: np.ndarray, bounds: tuple[float, float]) -> np.ndarray:
    low, high = bounds
    return np.asarray((values - low) / (high - low)) if high > low else np.zeros(len(values))


def _logits(name: str, detections: Detections) -> Float64[np.ndarray, "boxes logits"]:
    if not len(detections):  # an empty file needs no columns
        return np.zeros((0, len(detections.classes)))
    if detections.logits is None:
        raise InvalidDataError(
            f"{name} needs the logits of the boxes, but these detections have none. Use "
            f"confidence, or pass a sidecar with logits."
        )
    return np.asarray(detections.logits, np.float64)


def _all_logits(name: str, detections: Detections) -> Float64[np.ndarray, "boxes logits"]:
    logits = _logits(name, detections)
    if detections.background is None or not len(detections):
        return logits
    return np.column_stack([logits, np.asarray(detections.background, np.float64)])


def _sigmoid_entropies(name: str, detections: Detections) -> Float64[np.ndarray, "boxes classes"]:
    logits = _logits(name, detections)
    if detections.background is not None:
        raise InvalidDataError(
            f"{name} is for sigmoid heads, but these detections have a background logit. Use "
            f"entropy."
        )
    probability = 1 / (1 + np.exp(-np.clip(logits, -700, 700)))
    # log(1 + exp(-x)) and x + log(1 + exp(-x)), without overflow
    log_p, log_q = -np.logaddexp(0, -logits), -np.logaddexp(0, logits)
    return np.asarray(-(probability * log_p + (1 - probability) * log_q))


def _variances(name: str, detections: Detections) -> Float[np.ndarray, "boxes 4"]:
    if not len(detections):
        return np.zeros((0, 4))
    if detections.covariance is None:
        raise InvalidDataError(
            f"{name} needs the covariance of the boxes, but these detections have none. Use "
            f"confidence, or pass a sidecar with covariance."
        )
    return np.asarray(detections.covariance, np.float64)
