"""What the default promises on any data: no NaN, no falling calibrator, one rule in fit and use."""

from dataclasses import replace

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from incognita.containers.boxes import BoxTruth, Detections
from incognita.containers.classes import Classes
from incognita.decisions import CALIBRATORS, SelfAware, SelfAwareSettings, calibrator_of
from incognita.errors import InvalidDataError
from incognita.metrics.conventions import COCO
from incognita.metrics.matching import match

CLASSES = Classes(("car", "bus", "deer"))
# few values, so that ties, zeros and ones are common; and any number besides
CONFIDENCE = st.one_of(st.sampled_from([0.0, 0.25, 0.5, 1.0]), st.floats(0, 1, width=32))
CORNER = st.sampled_from([0.0, 3.0, 5.0, 40.0])
FOUND = st.tuples(CORNER, CORNER, CONFIDENCE, st.integers(0, 2))
REAL = st.tuples(CORNER, CORNER, st.integers(0, 2), st.booleans())


def boxes_of(corners: list[tuple[float, float]]) -> np.ndarray:
    return np.array([(x, y, x + 10, y + 10) for x, y in corners]).reshape(-1, 4)


def flat(images: list[list]) -> tuple[np.ndarray, list]:
    return np.cumsum([0, *map(len, images)]), [row for image in images for row in image]


def detections_of(images: list[list]) -> Detections:
    offsets, rows = flat(images)
    xyxy = boxes_of([row[:2] for row in rows])
    confidence, labels = [row[2] for row in rows], [row[3] for row in rows]
    return Detections(np.arange(len(images)), offsets, xyxy, confidence, labels, CLASSES)


def truth_of(images: list[list]) -> BoxTruth:
    offsets, rows = flat(images)
    xyxy, labels = boxes_of([row[:2] for row in rows]), [row[2] for row in rows]
    crowds = [row[3] for row in rows]
    return BoxTruth(np.arange(len(images)), offsets, xyxy, labels, CLASSES, is_crowd=crowds)


@st.composite
def validation(draw) -> tuple[list, list, list]:
    """Boxes and objects as lists: the checks of containers draw numbers, a strategy must not."""
    n = draw(st.integers(1, 6))
    images = st.lists(st.lists(FOUND, max_size=5), min_size=n, max_size=n)
    real = draw(st.lists(st.lists(REAL, max_size=3), min_size=n, max_size=n))
    return draw(images), real, draw(images)


def containers(data: tuple[list, list, list]) -> tuple[Detections, BoxTruth, Detections]:
    found, real, painted = data
    return detections_of(found), truth_of(real), detections_of(painted)


def fitted_or_refused(data, settings: SelfAwareSettings | None = None) -> SelfAware:
    """Fit; a refusal is a sentence that ends in a full stop, and the example is dropped."""
    found, truth, painted = data
    try:
        return SelfAware.fit(found, truth, painted, settings)
    except InvalidDataError as error:
        assert str(error).endswith(".")  # noqa: PT017 - only the form of the sentence
        assume(False)
        raise


@settings(max_examples=40)
@given(validation(), st.sampled_from(CALIBRATORS.names()))
def test_nothing_is_ever_nan_or_beyond_zero_and_one(data, calibrator) -> None:
    data = containers(data)
    fitted = fitted_or_refused(data, SelfAwareSettings(calibrator=calibrator))
    assert np.isfinite(fitted.image_threshold.value)
    assert not np.isnan(fitted.confidence_threshold.per_class).any()
    for detections in (data[0], data[2]):
        output = fitted.apply(detections)
        assert not np.isnan(output.image_uncertainty).any()
        calibrated = output.detections.confidence
        assert ((calibrated >= 0) & (calibrated <= 1)).all()


@settings(max_examples=40)
@given(validation(), st.sampled_from(["linear", "isotonic", "temperature", "platt", "none"]))
def test_a_surer_box_is_never_calibrated_lower(data, calibrator) -> None:
    fitted = fitted_or_refused(containers(data), SelfAwareSettings(calibrator=calibrator))
    confidence = np.linspace(0, 1, 21)
    for label in range(3):
        labels = np.full(21, label, np.int32)
        calibrated = fitted.calibrators.apply(confidence, labels)
        assert (np.diff(calibrated) >= -1e-12).all()
        parameters = fitted.calibrators.per_class[label].parameters
        assert parameters.get("slope", np.zeros(1))[0] >= 0


@settings(max_examples=40)
@given(validation())
def test_images_are_accepted_in_use_as_in_fitting(data) -> None:
    found, truth, painted = data = containers(data)
    fitted = fitted_or_refused(data)
    has_objects = np.diff(truth.offsets) > 0
    said = fitted.image_threshold.metadata
    accepted = fitted.apply(found).accepted[has_objects]
    assert accepted.mean() == said["known_accepted"]
    assert (~fitted.apply(painted).accepted).mean() == said["unknown_rejected"]


@settings(max_examples=40)
@given(validation())
def test_boxes_are_kept_in_use_as_in_fitting(data) -> None:
    found, truth, _ = data = containers(data)
    fitted = fitted_or_refused(data)
    high = np.finfo(np.float64).max
    lax = replace(fitted, image_threshold=replace(fitted.image_threshold, value=high))
    kept = lax.apply(found).detections
    table = match(kept, truth, convention=COCO, thresholds=(0.1,))
    counted = table.detection_labels[~table.is_ignored()]
    in_use = np.bincount(counted, minlength=3)
    in_fit = [calibrator.n_detections for calibrator in fitted.calibrators.per_class]
    assert in_use.tolist() == in_fit


def test_every_calibrator_is_tested() -> None:
    assert {calibrator_of(name).name for name in CALIBRATORS.names()} == set(CALIBRATORS.names())
