r"""The two thresholds of an object detector that is to notice unknown objects.

`ConfidenceThreshold` is t*: which boxes are kept, by the detector's own confidence.
`UnknownThreshold` is tau: which of the kept boxes are unknown, by the score of a method.

$$ \text{kept if } \hat p_i \ge t^*, \qquad \text{unknown if } s_i > \tau $$

with p the confidence and s the unknown score of box i. FindMeIfYouCan, section 2.1 and appendix
D.1, equation 13, where the score points the other way. The paper warns of mixing the two up; here
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
        policy: How it was chosen, as `score_policy` reads it.
        metadata: What came out on the rows it was chosen on.

    >>> UnknownThreshold(0.5, "fixed(value=0.5)").is_unknown(np.array([0.4, 0.5, 0.6])).tolist()
    [False, False, True]
    """

    value: float
    policy: str
    metadata: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_number("value", "A threshold", self.value)

    def is_unknown(self, unknown_score: Real[np.ndarray, "rows"]) -> Bool[np.ndarray, "rows"]:
        """Decide about each row; an infinite score is decided like any other, NaN is refused."""
        score = np.asarray(unknown_score, np.float64)  # as it is: float32 would round the threshold
        if (is_nan := np.isnan(score)).any():
            raise InvalidDataError(
                f"unknown_score is NaN in {np.count_nonzero(is_nan)} of {len(score)} rows, the "
                f"first in row {int(is_nan.argmax())}, which no threshold can decide; repair or "
                f"drop these rows."
            )
        return score > self.value


@dataclass(frozen=True, eq=False)
class ConfidenceThreshold:
    """t*: boxes are kept whose confidence reaches the threshold of their class.

    Args:
        per_class: One threshold per known class; infinity keeps none of its boxes.
        policy: How they were chosen, as `confidence_policy` reads it.
        metadata: What came out on the boxes they were chosen on.
        known_names: The known classes; boxes of other class lists are then refused.
        other_classes: The threshold of boxes that are called unknown, or are of a class to be
            ignored; without it they are refused.

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
                f"per_class needs one threshold per known class, but {self.per_class!s:.80} came; "
                f"write infinity for a class of which nothing is kept."
            )

    def keep(self, detections: Detections) -> Bool[np.ndarray, "boxes"]:
        """Say of each box whether it is kept; `detections[threshold.keep(detections)]`."""
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
                f"These thresholds are of {len(self.per_class)} known classes "
                f"({', '.join(self.known_names or ('not named',)):.80}), but the detections know "
                f"{classes.n_known} ({', '.join(classes.known_names):.80}); fit them again."
            )
        is_other = classes.labels[detections.class_ids] >= classes.n_known
        if self.other_classes is None and is_other.any():
            raise InvalidDataError(
                f"{np.count_nonzero(is_other)} of {len(detections)} boxes are of no known class, "
                f"the first in row {int(is_other.argmax())}, but these thresholds are one per "
                f"known class; keep boxes by their confidence before calling any unknown."
            )


class Policy(ABC):
    """A named way to choose a threshold; a frozen dataclass whose fields are its parameters."""

    name: ClassVar[str]

    def __str__(self) -> str:
        """Give the name with the parameters, as people may type it."""
        values = [f"{each.name}={getattr(self, each.name)!r}" for each in fields(self)]  # type: ignore[arg-type]
        return f"{self.name}({', '.join(values)})" if values else self.name


class ScorePolicy(Policy):
    """How tau is chosen from the unknown scores of known rows, and of unknown ones if need be."""

    @abstractmethod
    def fit(
        self,
        known_scores: Real[np.ndarray, "known"],
        unknown_scores: Real[np.ndarray, "unknown"] | None = None,
    ) -> UnknownThreshold:
        """Choose the threshold; rows of test sets must not be among these."""


class ConfidencePolicy(Policy):
    """How t* is chosen from detections on images whose known objects are annotated."""

    @abstractmethod
    def fit(self, detections: Detections, truth: BoxTruth) -> ConfidenceThreshold:
        """Choose the threshold of each known class."""


def mean_inside(values: Float[np.ndarray, "n *shape"]) -> Float[np.ndarray, "*shape"]:
    """The mean along the first axis, never rounded past the smallest or the largest value.

    Equal values are then their own mean, and a threshold made of them is reached by them.

    >>> float(np.mean([0.7, 0.7, 0.7])), float(mean_inside(np.array([0.7, 0.7, 0.7])))
    (0.6999999999999998, 0.7)
    """
    return np.asarray(np.clip(values.mean(axis=0), values.min(axis=0), values.max(axis=0)))


def check_number(name: str, what: str, value: Any) -> None:
    """Refuse what is no finite number.

    >>> check_number("value", "fixed", float("nan"))
    Traceback (most recent call last):
    incognita.errors.InvalidDataError: fixed needs a finite number as value, but nan came.
    """
    is_number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
    if not is_number or not math.isfinite(value):
        raise InvalidDataError(f"{what} needs a finite number as {name}, but {value!r:.80} came.")
