r"""The two thresholds of a detector that labels detections as unknown.

`ConfidenceThreshold` is t*: which boxes are kept, by the detector's own confidence.
`UnknownThreshold` is tau: which of the kept boxes are unknown, by the score of a method.

$$ \text{kept if } \hat p_i \ge t^*, \qquad \text{unknown if } s_i > \tau $$

with p the confidence and s the unknown score of box i. FindMeIfYouCan, section 2.1 and appendix
D.1, equation 13, where a higher score means more known. The paper warns of confusing the two; here
they are different types, chosen by policies of different types.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar

import numpy as np

from incognita.containers._checks import as_array
from incognita.containers.boxes import BoxTruth, Detections
from incognita.errors import InvalidDataError
from incognita.shapes import Bool, Float, Real


@dataclass(frozen=True)
class UnknownThreshold:
    """tau: rows whose unknown score exceeds the value are unknown; an equal one is known.

    Args:
        value: The threshold, on the scale of the score it was chosen for.
        policy: How it was chosen, in a form that `score_policy` parses.
        metadata: What it does on the rows it was chosen on.

    >>> UnknownThreshold(0.5, "fixed(value=0.5)").is_unknown(np.array([0.4, 0.5, 0.6])).tolist()
    [False, False, True]
    """

    value: float
    policy: str
    metadata: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_number("value", "a threshold", self.value)

    def is_unknown(self, unknown_score: Real[np.ndarray, "rows"]) -> Bool[np.ndarray, "rows"]:
        """Return whether each row is unknown; infinite scores are compared as usual, NaN raises."""
        score = np.asarray(unknown_score, np.float64)  # float32 would round the threshold
        if (is_nan := np.isnan(score)).any():
            raise InvalidDataError(
                f"unknown_score is NaN in {np.count_nonzero(is_nan)} of {len(score)} rows, the "
                f"first in row {int(is_nan.argmax())}, which cannot be compared with a threshold; "
                f"repair or drop these rows."
            )
        return score > self.value


@dataclass(frozen=True, eq=False)
class ConfidenceThreshold:
    """t*: boxes are kept if their confidence is at least the threshold of their class.

    Args:
        per_class: One threshold per known class; infinity keeps none of its boxes.
        policy: How they were chosen, in a form that `confidence_policy` parses.
        metadata: What they do on the boxes they were chosen on.
        known_names: The known classes; detections with other class lists then raise.
        other_classes: The threshold of boxes labelled unknown or ignored; without it they raise.

    >>> from incognita.containers.classes import Classes
    >>> boxes, classes = np.tile([0.0, 0.0, 1.0, 1.0], (3, 1)), Classes(("car", "bus"))
    >>> found = Detections([1], [0, 3], boxes, [0.5, 0.7, 0.7], [0, 0, 1], classes)
    >>> ConfidenceThreshold(np.array([0.6, 0.8]), "own").keep(found).tolist()
    [False, True, False]
    """

    per_class: Float[np.ndarray, "classes"]
    policy: str
    metadata: Mapping[str, Any] = field(default_factory=dict)
    known_names: tuple[str, ...] | None = None
    other_classes: float | None = None

    def __post_init__(self) -> None:
        per_class = as_array(self.per_class, np.float64)
        object.__setattr__(self, "per_class", per_class)
        values = per_class if self.other_classes is None else [*per_class, self.other_classes]
        if per_class.ndim != 1 or np.isnan(values).any():
            raise InvalidDataError(
                f"Expected one threshold per known class as per_class, got {self.per_class!s:.80}. "
                f"Use infinity for a class without kept boxes."
            )

    def keep(self, detections: Detections) -> Bool[np.ndarray, "boxes"]:
        """Return whether each box is kept; use as `detections[threshold.keep(detections)]`."""
        self._check_classes(detections)
        classes = detections.classes
        labels = np.minimum(classes.labels[detections.class_ids], classes.n_known)
        other = np.inf if self.other_classes is None else self.other_classes
        thresholds = np.append(self.per_class, other)[labels]
        return np.asarray(detections.confidence.astype(np.float64) >= thresholds)

    def _check_classes(self, detections: Detections) -> None:
        classes = detections.classes
        names = self.known_names or classes.known_names
        if classes.known_names != names or classes.n_known != len(self.per_class):
            raise InvalidDataError(
                f"Expected detections with the {len(self.per_class)} known classes of the "
                f"thresholds ({', '.join(self.known_names or ('not named',)):.80}), got "
                f"{classes.n_known} ({', '.join(classes.known_names):.80}). Fit them again."
            )
        is_other = classes.labels[detections.class_ids] >= classes.n_known
        if self.other_classes is None and is_other.any():
            raise InvalidDataError(
                f"{np.count_nonzero(is_other)} of {len(detections)} boxes are not of a known "
                f"class, the first in row {int(is_other.argmax())}, but there is one threshold per "
                f"known class; keep boxes by confidence before labelling any as unknown."
            )


class Policy(ABC):
    """A named rule that chooses a threshold; a frozen dataclass whose fields are parameters."""

    name: ClassVar[str]

    def __str__(self) -> str:
        """Return the name with the parameters, as people type it."""
        values = [f"{x.name}={getattr(self, x.name)!r}" for x in fields(self)]  # type: ignore[arg-type]
        return f"{self.name}({', '.join(values)})" if values else self.name


class ScorePolicy(Policy):
    """A rule that chooses tau from the scores of known rows, and of unknown ones if needed."""

    @abstractmethod
    def fit(
        self,
        known_scores: Real[np.ndarray, "known"],
        unknown_scores: Real[np.ndarray, "unknown"] | None = None,
    ) -> UnknownThreshold:
        """Choose the threshold; rows of test sets must not be among the scores."""


class ConfidencePolicy(Policy):
    """A rule that chooses t* from detections on images with annotated known objects."""

    @abstractmethod
    def fit(self, detections: Detections, truth: BoxTruth) -> ConfidenceThreshold:
        """Choose the threshold of each known class."""


def mean_inside(values: Float[np.ndarray, "n *shape"]) -> Float[np.ndarray, "*shape"]:
    """Compute the mean along the first axis, clipped to the smallest and the largest value.

    The mean of equal values is then that value, and as a threshold it keeps them.

    >>> float(np.mean([0.7, 0.7, 0.7])), float(mean_inside(np.array([0.7, 0.7, 0.7])))
    (0.6999999999999998, 0.7)
    """
    return np.asarray(np.clip(values.mean(axis=0), values.min(axis=0), values.max(axis=0)))


def check_number(name: str, what: str, value: Any) -> None:
    """Raise unless the value is a finite number.

    >>> check_number("value", "fixed", float("nan"))
    Traceback (most recent call last):
    incognita.errors.InvalidDataError: Expected a finite number as value of fixed, got nan.
    """
    is_number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
    if not is_number or not math.isfinite(value):
        raise InvalidDataError(f"Expected a finite number as {name} of {what}, got {value!r:.80}.")
