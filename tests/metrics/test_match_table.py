"""Leaving detections out of a match table against matching without them."""

import numpy as np
import pytest
from tests.metrics.scene_cases import make_scene
from tests.oracles.scenes import to_containers

from incognita.metrics.calibration import laece_of
from incognita.metrics.conventions import MATCHINGS
from incognita.metrics.detection import COCO_THRESHOLDS, label_average_precision
from incognita.metrics.lrp import lrp_error, optimal_lrp
from incognita.metrics.matching import match

CASES = ("ties", "crowd", "empty images")


@pytest.mark.parametrize("convention", ["coco", "paper"])
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("seed", range(4))
def test_leaving_out_low_confidences_or_images_is_matching_without_them(case, seed, convention):
    detections, truth = to_containers(make_scene(case, seed))
    n_known, rule = truth.classes.n_known, MATCHINGS[convention]
    thresholds = np.linspace(0.2, 0.6, len(truth.classes))  # another one for each class
    is_rejected = np.arange(detections.n_images) % 3 == 0
    left_out = detections.confidence < thresholds[detections.class_ids]
    left_out |= is_rejected[detections.image_index]
    assert left_out.any()
    assert not left_out.all()
    for taus in ((0.1,), COCO_THRESHOLDS):
        options = {"convention": rule, "thresholds": taus}
        ours = match(detections, truth, **options).ignoring(left_out)
        right = match(detections[~left_out], truth, **options)
        for t in range(len(taus)):
            np.testing.assert_array_equal(
                ours.is_true_positive(t)[~left_out], right.is_true_positive(t)
            )
        precisions = [label_average_precision(table).average_precision for table in (ours, right)]
        np.testing.assert_array_equal(*precisions)
        if len(taus) == 1:
            for metric in (lrp_error, optimal_lrp):
                found = [metric(table, n_known).total.value for table in (ours, right)]
                assert found[0] == pytest.approx(found[1], nan_ok=True)
            found = [laece_of(table, n_known).value for table in (ours, right)]
            assert found[0] == pytest.approx(found[1], nan_ok=True)


def test_the_table_itself_is_not_changed():
    detections, truth = to_containers(make_scene("ties", 0))
    table = match(detections, truth)
    before = table.flags.copy()
    table.ignoring(np.ones(len(detections), np.bool_))
    np.testing.assert_array_equal(table.flags, before)
