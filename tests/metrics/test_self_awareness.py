"""Image uncertainty, balanced accuracy, IDQ and DAQ against their definitions."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.metrics.scene_cases import make_scene
from tests.oracles import awareness as slow
from tests.oracles.scenes import to_containers

from incognita.containers.boxes import Detections
from incognita.containers.classes import Classes
from incognita.errors import InvalidDataError
from incognita.metrics.self_awareness import (
    Aggregation,
    balanced_accuracy,
    balanced_accuracy_saod,
    detection_awareness_quality,
    image_uncertainties,
    image_uncertainty,
    in_distribution_quality,
)

HOWS = {
    "sum": Aggregation.SUM,
    "mean": Aggregation.MEAN,
    "top": Aggregation.TOP_MEAN,
    "min": Aggregation.MIN,
}
few_levels = st.lists(st.integers(0, 6).map(lambda k: k / 4), min_size=1, max_size=12)
levels = st.integers(-1, 7).map(lambda k: k / 4)


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("seed", range(4))
def test_image_uncertainty_equals_its_definition(seed, how):
    detections, _ = to_containers(make_scene("empty images", seed))
    ours = image_uncertainty(detections, aggregation=HOWS[how], top=3)
    for image in range(detections.n_images):
        rows = slice(detections.offsets[image], detections.offsets[image + 1])
        values = (1 - detections.confidence[rows]).tolist()
        expected = slow.image_uncertainty(values, how, 3) if values else math.inf
        assert ours[image] == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("counts", [[0, 0, 300, 1, 2, 0], [7] * 20, [0, 0], [], [5, 3, 4, 0, 6]])
@pytest.mark.parametrize("how", HOWS)
def test_one_image_may_have_very_many_boxes(counts, how):
    rng = np.random.default_rng(0)
    n = sum(counts)
    boxes, offsets = np.tile([0.0, 0.0, 1.0, 1.0], (n, 1)), np.cumsum([0, *counts])
    confidence, classes = rng.random(n).round(2), Classes(("a",))
    found = Detections(range(len(counts)), offsets, boxes, confidence, [0] * n, classes)
    ours = image_uncertainty(found, aggregation=HOWS[how], top=3)
    for image, start in enumerate(offsets[:-1]):
        values = (1 - confidence[start : offsets[image + 1]]).tolist()
        expected = slow.image_uncertainty(values, how, 3) if values else math.inf
        assert ours[image] == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("seed", range(4))
def test_several_aggregations_at_once_are_those_one_by_one(seed):
    detections, _ = to_containers(make_scene("empty images", seed))
    ways = [(how, top) for how in Aggregation for top in (1, 2, 5)]
    together = image_uncertainties(detections, None, ways)
    for values, (how, top) in zip(together, ways, strict=True):
        alone = image_uncertainty(detections, aggregation=how, top=top)
        np.testing.assert_array_equal(values, alone)


@given(few_levels, few_levels, levels)
def test_balanced_accuracy_equals_its_definition(known, unknown, threshold):
    ours = balanced_accuracy(np.array(known), np.array(unknown), threshold=threshold)
    assert ours.value == pytest.approx(slow.balanced_accuracy(known, unknown, threshold), abs=1e-12)


@given(few_levels, few_levels, levels)
def test_balanced_accuracy_of_the_saod_code_equals_its_definition(known, unknown, threshold):
    ours = balanced_accuracy_saod(np.array(known), np.array(unknown), threshold=threshold)
    expected = slow.balanced_accuracy_saod(known, unknown, threshold)
    assert ours.value == pytest.approx(expected, abs=1e-12)


def test_the_saod_code_gives_zero_when_no_image_is_above_the_threshold():
    known, unknown = np.array([0.1, 0.2]), np.array([0.3])
    assert balanced_accuracy(known, unknown, threshold=0.25).value == 1.0
    assert balanced_accuracy_saod(known, unknown, threshold=0.5).value == 0.0


def test_one_kind_of_image_is_refused():
    sentence = "needs known and unknown images, got 0 known and 1 unknown"
    with pytest.raises(InvalidDataError, match=sentence):
        balanced_accuracy(np.array([]), np.array([0.1]), threshold=0.5)


def test_a_quality_with_a_part_of_zero_is_zero_without_a_warning():
    assert in_distribution_quality(1.0, 0.3) == 0.0
    assert detection_awareness_quality(0.0, 0.5, 0.5) == 0.0
    assert math.isnan(in_distribution_quality(math.nan, 0.3))


# SAOD, table 6: BA, IDQ, IDQ_T, DAQ in percent
@pytest.mark.parametrize(
    ("ba", "idq", "shifted", "daq"),
    [(87.7, 38.5, 26.2, 39.7), (88.9, 39.7, 27.5, 41.2), (87.8, 39.7, 27.8, 41.4),
     (88.9, 41.7, 29.6, 43.5), (91.0, 41.5, 28.8, 43.0), (85.8, 43.5, 30.8, 44.7)],
)  # fmt: skip
def test_daq_reproduces_the_published_table(ba, idq, shifted, daq):
    ours = 100 * detection_awareness_quality(ba / 100, idq / 100, shifted / 100)
    assert ours == pytest.approx(daq, abs=0.06)


def test_uncertainties_of_another_length_are_refused():
    detections, _ = to_containers(make_scene("plain", 0))
    with pytest.raises(InvalidDataError, match="Expected one uncertainty per detection, got 1 for"):
        image_uncertainty(detections, np.zeros(1))
    with pytest.raises(InvalidDataError, match="top must be at least 1, but it is 0"):
        image_uncertainty(detections, top=0)
