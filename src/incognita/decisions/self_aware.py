r"""Self-aware detection: reject scenes that are not understood, calibrate what is detected.

Oksuz et al., Towards building self-aware object detectors via reliable uncertainty quantification
and calibration, CVPR 2023, algorithms A.1 and A.2. Fitted on detections on validation images, on
copies of these images whose objects are painted over, and on the truth:

1. u, the largest image uncertainty that is accepted, on all boxes of the detector (its top 100);
2. v, the smallest confidence of a box that is kept, per class;
3. one calibrator per class, on the boxes that v keeps.

In use the rules are the same, and so is the code: an image is accepted if its uncertainty is at
most u, a box is kept if its raw confidence is at least v, and then its confidence is calibrated.
The public code (fiveai/saod at 85a50aa) has other rules in use than in fitting; the convention
`saod` follows it, see `_Saod`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from incognita.containers.boxes import BoxTruth, Detections
from incognita.containers.classes import Role
from incognita.decisions.box_uncertainty import BoxUncertainty
from incognita.decisions.calibrators import (
    Calibrator,
    ClassCalibrators,
    Linear,
    NoCalibration,
)
from incognita.decisions.confidence_thresholds import LRPOptimal
from incognita.decisions.parse import (
    calibrator_of,
    confidence_policy,
    score_policy,
    uncertainty_of,
)
from incognita.decisions.thresholds import (
    ConfidencePolicy,
    ConfidenceThreshold,
    Policy,
    ScorePolicy,
    UnknownThreshold,
)
from incognita.decisions.unknown_thresholds import HarmonicMean, KnownQuantile, harmonic_means
from incognita.errors import InvalidDataError, unknown_name
from incognita.metrics.calibration import check_probabilities
from incognita.metrics.conventions import COCO
from incognita.metrics.lrp import optimal_lrp
from incognita.metrics.matching import match
from incognita.metrics.self_awareness import Aggregation, image_uncertainty, roc_levels
from incognita.shapes import Bool, Float64

_TAU = 0.1  # the IoU of a true positive, in all of the paper


class SelfAwareOutput(NamedTuple):
    """What a self-aware detector says about each image.

    `detections` has all images; a rejected one has no box, and confidences are calibrated.
    """

    accepted: Bool[np.ndarray, "images"]
    detections: Detections
    image_uncertainty: Float64[np.ndarray, "images"]


@dataclass(frozen=True)
class SelfAwareSettings:
    """How a detector is made self-aware; the defaults are the paper's.

    Args:
        uncertainty: Of a box: `confidence`, `entropy`, `dempster-shafer`, `determinant`, …
        aggregation: How those of an image's boxes are combined.
        top: The number of most certain boxes that are averaged.
        image_threshold: How u is chosen: `harmonic-mean` (against pseudo-unknown images),
            `quantile(share=0.95)`, or a number.
        confidence_threshold: How v is chosen: `lrp`, or a number.
        calibrator: `linear`, `histogram`, `isotonic`, `temperature`, `platt` or `none`.
        max_per_image: Maximum boxes of an image that count, the most confident ones.
        convention: `paper`, or `saod`: as the public code fits and uses its rules.
    """

    uncertainty: str | BoxUncertainty = "confidence"
    aggregation: Aggregation = Aggregation.TOP_MEAN
    top: int = 3
    image_threshold: str | float | Policy = "harmonic-mean"
    confidence_threshold: str | float | Policy = "lrp"
    calibrator: str | Calibrator = "linear"
    max_per_image: int = 100
    convention: str = "paper"


@dataclass(frozen=True, eq=False)
class SelfAware:
    """The fitted rules; `apply` turns detections into a self-aware detector's.

    Args:
        uncertainty: Of a box.
        aggregation: How those of an image's boxes are combined.
        top: The number of most certain boxes that are averaged.
        max_per_image: Maximum boxes of an image that count.
        image_threshold: u; an image above it is rejected.
        confidence_threshold: v of each class; a box below it is dropped.
        calibrators: The map of each class.
        metadata: What it was fitted on.
        convention: `paper`, or `saod`.
    """

    uncertainty: BoxUncertainty
    aggregation: Aggregation
    top: int
    max_per_image: int
    image_threshold: UnknownThreshold
    confidence_threshold: ConfidenceThreshold
    calibrators: ClassCalibrators
    metadata: dict[str, Any] = field(default_factory=dict)
    convention: str = "paper"

    def __post_init__(self) -> None:
        _convention(self.convention)

    def __repr__(self) -> str:
        counts = self.calibrators.counts()
        return (
            f"SelfAware(u={self.image_threshold.value:.4g}, {len(self.calibrators.per_class)} "
            f"classes, {counts['fitted']} calibrated)"
        )

    @property
    def known_names(self) -> tuple[str, ...]:
        """The classes it was fitted for."""
        return self.confidence_threshold.known_names or ()

    @classmethod
    def fit(
        cls,
        detections: Detections,
        truth: BoxTruth,
        pseudo_unknown: Detections | None = None,
        settings: SelfAwareSettings | None = None,
        *,
        metadata: Mapping[str, Any] | None = None,
    ) -> "SelfAware":
        """Fit the rules on validation data, in the paper's order (algorithm A.1).

        Args:
            detections: On the validation images, with all boxes the detector returns.
            truth: The annotated objects of these images.
            pseudo_unknown: Detections on the copies of these images with painted-over objects;
                needed where `image_threshold` compares with unknown images.
            settings: The paper's by default.
            metadata: What else to keep with the rules. `detector`, its name, and `nms_iou` are
                compared with those of the detector in a `SelfAwareDetector`.
        """
        settings = settings or SelfAwareSettings()
        convention = _convention(settings.convention)
        kind = convention.calibrator(calibrator_of(settings.calibrator))
        has_objects = _images_with_objects(truth)
        _check_inputs(detections, pseudo_unknown)
        top = top_boxes(detections.for_images(truth.image_ids), settings.max_per_image)
        uncertainty = uncertainty_of(settings.uncertainty).fit(top)
        measure = partial(_of_images, settings=settings, uncertainty=uncertainty)
        known = measure(top)[has_objects]
        unknown = None if pseudo_unknown is None else measure(pseudo_unknown)
        u = _fit_image_threshold(convention, settings.image_threshold, known, unknown)
        fitted_on = convention.boxes_to_fit(top, has_objects)
        v = convention.confidence_threshold(
            confidence_policy(settings.confidence_threshold), fitted_on, truth
        )
        calibrators = fit_calibrators(
            kind, convention.boxes_to_calibrate(fitted_on, v, truth), truth
        )
        fitted_from = {
            "n_images": truth.n_images,
            "n_objects": len(truth),
            "n_pseudo_unknown": 0 if pseudo_unknown is None else pseudo_unknown.n_images,
            "lowest_confidence": float(top.confidence.min(initial=1.0)),
            "most_boxes": int(np.diff(top.offsets).max(initial=0)),
        }
        return cls(
            uncertainty,
            settings.aggregation,
            settings.top,
            settings.max_per_image,
            u,
            v,
            calibrators,
            fitted_from | dict(metadata or {}),
            settings.convention,
        )

    def apply(self, detections: Detections) -> SelfAwareOutput:
        """Accept or reject each image; keep and calibrate the boxes of the accepted ones."""
        check_probabilities(detections.confidence)
        uncertainty = self.image_uncertainty(detections)
        accepted = self.accepts(uncertainty)
        kept = keep_boxes(top_boxes(detections, self.max_per_image), self.confidence_threshold)
        kept = kept[accepted[kept.image_index]]
        labels = kept.classes.labels[kept.class_ids]
        calibrated = self.calibrators.apply(kept.confidence, labels)
        return SelfAwareOutput(accepted, replace(kept, confidence=calibrated), uncertainty)

    def accepts(
        self, image_uncertainty: Float64[np.ndarray, "images"]
    ) -> Bool[np.ndarray, "images"]:
        """Return whether images of these uncertainties are accepted."""
        return _convention(self.convention).accepts(image_uncertainty, self.image_threshold)

    def image_uncertainty(self, detections: Detections) -> Float64[np.ndarray, "images"]:
        """Compute the uncertainty of each image from all of its boxes, also those below v."""
        return _of_images(detections, settings=self, uncertainty=self.uncertainty)


def top_boxes(detections: Detections, n: int) -> Detections:
    """Keep the n most confident boxes of each image; of equal ones the first.

    >>> from incognita.containers.classes import Classes
    >>> boxes = np.tile([0.0, 0.0, 1.0, 1.0], (3, 1))
    >>> found = Detections([1], [0, 3], boxes, [0.2, 0.9, 0.5], [0, 0, 0], Classes(("car",)))
    >>> top_boxes(found, 2).confidence.tolist()
    [0.9, 0.5]
    """
    if n < 1:
        raise InvalidDataError(f"Expected at least 1 box per image, got {n}.")
    if not len(detections) or np.diff(detections.offsets).max() <= n:
        return detections
    images = detections.image_index
    order = np.lexsort((-detections.confidence, images))
    is_top = np.empty(len(detections), np.bool_)
    is_top[order] = np.arange(len(order)) - detections.offsets[images] < n
    return detections[is_top]


def keep_boxes(detections: Detections, threshold: ConfidenceThreshold) -> Detections:
    """Keep the boxes with at least the confidence of their class: the rule of fit and of use."""
    return detections[threshold.keep(detections)]


def _check_inputs(detections: Detections, pseudo_unknown: Detections | None) -> None:
    """Refuse scores that are no probabilities, and one set of boxes in both places."""
    check_probabilities(detections.confidence)
    if pseudo_unknown is None:
        return
    check_probabilities(pseudo_unknown.confidence)
    names = ("offsets", "xyxy", "confidence", "class_ids")
    columns = [(getattr(detections, name), getattr(pseudo_unknown, name)) for name in names]
    if len(detections) and all(np.array_equal(one, other) for one, other in columns):
        raise InvalidDataError(
            "Expected detections on images with painted-over objects as pseudo-unknown, got the "
            "boxes of the validation images themselves. Run the detector on the painted images."
        )


def _images_with_objects(truth: BoxTruth) -> Bool[np.ndarray, "images"]:
    """Return which images have a known object, the paper's pseudo-known set; raise if none has."""
    has_objects = np.zeros(truth.n_images, np.bool_)
    has_objects[truth.image_index[truth.has_role(Role.KNOWN)]] = True
    if not has_objects.any():
        raise InvalidDataError(
            f"Expected known objects in the {truth.n_images} validation images, got none. Pass "
            f"annotated images."
        )
    return has_objects


def _fit_image_threshold(
    convention: "_Paper",
    policy: str | float | Policy,
    known: Float64[np.ndarray, "known"],
    unknown: Float64[np.ndarray, "unknown"] | None,
) -> UnknownThreshold:
    if (known == convention.without_boxes).all():
        raise InvalidDataError(
            f"None of the {len(known)} validation images with objects has a box. Pass all boxes of "
            f"the detector on them."
        )
    chosen_by = score_policy(policy)
    if isinstance(chosen_by, HarmonicMean) and unknown is not None and len(unknown):
        _check_order(known, unknown)
    threshold = convention.image_threshold(chosen_by, known, unknown)
    if convention.accepts(np.array([convention.without_boxes]), threshold)[0]:
        n_empty = int((known == convention.without_boxes).sum())
        raise InvalidDataError(
            f"{n_empty} of {len(known)} validation images with objects have no box, so that "
            f"{threshold.policy} would accept every image. Lower the score threshold of the "
            f"detector."
        )
    return threshold


def _check_order(
    known: Float64[np.ndarray, "known"], unknown: Float64[np.ndarray, "unknown"]
) -> None:
    if known.min() >= unknown.max():
        raise InvalidDataError(
            f"No threshold accepts a validation image and rejects a painted one: the smallest "
            f"uncertainty of validation images, {known.min():.4g}, is not below the largest of "
            f"painted ones, {unknown.max():.4g}. Check that the two are not swapped."
        )


def _of_images(
    detections: Detections, settings: SelfAwareSettings | SelfAware, uncertainty: BoxUncertainty
) -> Float64[np.ndarray, "images"]:
    boxes = top_boxes(detections, settings.max_per_image)
    values = image_uncertainty(
        boxes, uncertainty.of(boxes), aggregation=settings.aggregation, top=settings.top
    )
    without_boxes = _convention(settings.convention).without_boxes
    return np.asarray(np.where(np.isinf(values), without_boxes, values))


def fit_calibrators(
    kind: Calibrator, kept: Detections, truth: BoxTruth, *, tau: float = _TAU
) -> ClassCalibrators:
    """Fit one calibrator per class on kept boxes; those that reach IoU tau are true positives."""
    table = match(kept, truth, convention=COCO, thresholds=(tau,))
    n_known = truth.classes.n_known
    counted = ~table.is_ignored() & (table.detection_labels < n_known)
    quality = np.where(table.is_true_positive(), table.iou, 0.0)[counted]
    labels = table.detection_labels[counted]
    return ClassCalibrators.fit(kind, kept.confidence[counted], quality, labels, n_known)


class _Paper:
    """The rules of the paper's algorithms, the same in fitting and in use."""

    # stands for the infinite uncertainty of an image without a box, which policies refuse
    without_boxes = float(np.finfo(np.float64).max)

    def accepts(
        self, uncertainty: Float64[np.ndarray, "images"], u: UnknownThreshold
    ) -> Bool[np.ndarray, "images"]:
        return ~u.is_unknown(uncertainty)

    def image_threshold(
        self,
        policy: ScorePolicy,
        known: Float64[np.ndarray, "known"],
        unknown: Float64[np.ndarray, "unknown"] | None,
    ) -> UnknownThreshold:
        return policy.fit(known, unknown)

    def boxes_to_fit(
        self, detections: Detections, has_objects: Bool[np.ndarray, "images"]
    ) -> Detections:
        """Return the boxes on which v and the calibrators are fitted."""
        del has_objects
        return detections

    def confidence_threshold(
        self, policy: ConfidencePolicy, detections: Detections, truth: BoxTruth
    ) -> ConfidenceThreshold:
        return policy.fit(detections, truth)

    def boxes_to_calibrate(
        self, detections: Detections, v: ConfidenceThreshold, truth: BoxTruth
    ) -> Detections:
        """Return the boxes on which the calibrators are fitted."""
        del truth
        return keep_boxes(detections, v)

    def calibrator(self, kind: Calibrator) -> Calibrator:
        return kind


class _Saod(_Paper):
    """The rules of the public code, which differ between fitting and use.

    - u is a point of scikit-learn's ROC curve, chosen with G <= u; in use an image is accepted if
      G < u. At TPR 0.95 it is the value at the place int(0.95 n), counted from 0.
    - v and the calibrators see only the boxes on images with objects.
    - v may lie between equal confidences. A class with objects and without a true positive has the
      threshold NaN: `confidence < NaN` drops none while fitting, `confidence >= NaN` keeps none in
      use, and so infinity stands for it here. A class without objects has -1, keeps all, and its
      confidence stays as it is.
    - The slope of a calibrator may have any sign.
    """

    without_boxes = 1e12

    def accepts(
        self, uncertainty: Float64[np.ndarray, "images"], u: UnknownThreshold
    ) -> Bool[np.ndarray, "images"]:
        return np.asarray(uncertainty < u.value)

    def image_threshold(
        self,
        policy: ScorePolicy,
        known: Float64[np.ndarray, "known"],
        unknown: Float64[np.ndarray, "unknown"] | None,
    ) -> UnknownThreshold:
        chosen = policy.fit(known, unknown)  # checks the scores
        value = chosen.value
        if isinstance(policy, KnownQuantile):
            value = float(np.sort(known)[min(int(policy.share * len(known)), len(known) - 1)])
        elif isinstance(policy, HarmonicMean) and unknown is not None:
            levels = roc_levels(known, unknown)
            quality = harmonic_means(levels, np.sort(known), np.sort(unknown))
            # without a good point the curve's start is chosen, which accepts nothing
            value = float(levels[quality.argmax()]) if quality.any() else -_Paper.without_boxes
        metadata = {"n_known": len(known), "known_accepted": float(np.mean(known < value))}
        if unknown is not None and len(unknown):
            metadata |= {
                "n_unknown": len(unknown),
                "unknown_rejected": float(np.mean(unknown >= value)),
            }
        return UnknownThreshold(value, chosen.policy, metadata)

    def boxes_to_fit(
        self, detections: Detections, has_objects: Bool[np.ndarray, "images"]
    ) -> Detections:
        return detections[has_objects[detections.image_index]]

    def confidence_threshold(
        self, policy: ConfidencePolicy, detections: Detections, truth: BoxTruth
    ) -> ConfidenceThreshold:
        if not isinstance(policy, LRPOptimal):
            return policy.fit(detections, truth)
        names = truth.classes.known_names
        # tau is 0.1 whatever is asked for: the code never passes it on
        table = match(detections, truth, convention=COCO, thresholds=(_TAU,))
        best = optimal_lrp(table, len(names), inside_ties=True).thresholds
        has_objects, has_none = _has_objects(truth), np.isnan(best)
        per_class = np.where(has_objects, np.where(has_none, np.inf, best), -1.0)
        metadata = {
            "without_threshold": [names[k] for k in np.flatnonzero(has_objects & has_none)],
            "without_objects": [names[k] for k in np.flatnonzero(~has_objects)],
        }
        return ConfidenceThreshold(per_class, str(policy), metadata, names)

    def boxes_to_calibrate(
        self, detections: Detections, v: ConfidenceThreshold, truth: BoxTruth
    ) -> Detections:
        lax = np.where(np.isinf(v.per_class), -np.inf, v.per_class)
        kept = keep_boxes(detections, replace(v, per_class=lax))
        labels = kept.classes.labels[kept.class_ids]
        return kept[np.append(_has_objects(truth), [False, False])[labels]]

    def calibrator(self, kind: Calibrator) -> Calibrator:
        if isinstance(kind, Linear):
            return Linear(allow_negative=True)
        if isinstance(kind, NoCalibration):
            return kind
        raise InvalidDataError(
            f"Expected the calibrator linear or none under the convention saod, got {kind}, which "
            f"the public code leaves undefined for some confidences. Use the convention paper."
        )


def _has_objects(truth: BoxTruth) -> Bool[np.ndarray, "classes"]:
    """Return which known classes have an object that must be found, crowds aside."""
    labels, n_known = truth.classes.labels[truth.class_ids[~truth.is_crowd]], truth.classes.n_known
    return np.asarray(np.bincount(labels, minlength=n_known)[:n_known] > 0)


_CONVENTIONS = {"paper": _Paper(), "saod": _Saod()}


def _convention(name: str) -> _Paper:
    if name not in _CONVENTIONS:
        raise unknown_name("convention of self-aware rules", name, _CONVENTIONS)
    return _CONVENTIONS[name]
