"""Tables 1.5 and 1.6 of the notes on detection, row by row: LRP and calibration.

Every test begins with the row it covers; what cannot be tested here is listed at the end.
"""

import math

import numpy as np
import pytest
from tests.oracles.scenes import Detection, Scene, Truth, found, real, to_containers

from incognita.evaluation.certify import Certificate, certify
from incognita.metrics import conventions
from incognita.metrics.calibration import laece
from incognita.metrics.lrp import lrp_error, optimal_lrp
from incognita.metrics.matching import match

FAR = (400.0, 400.0, 10.0, 10.0)  # where nothing is
RULES = ("paper", "saod", "detection-calibration")


def at(x: float, share: float = 1.0) -> tuple[float, float, float, float]:
    """A box at x of 10 pixels, or its upper part, whose IoU with the whole is the share."""
    return (x, 0.0, 10.0, 10.0 * share)


def certified(
    detections: list[Detection],
    truths: list[Truth],
    known: str = "a",
    *,
    n_images: int = 1,
    tau: float | None = None,
) -> Certificate:
    scene = Scene(n_images, detections, truths, list(known))
    return certify(*to_containers(scene)[::-1], n_resamples=0, tau=tau)


def values(certificate: Certificate, metric: str) -> dict[str, float]:
    return {
        r.convention: r.value for r in certificate.results if (r.metric, r.split) == (metric, "all")
    }


# --- 1.5: LRP -------------------------------------------------------------------------------------


def three_objects(*more: Detection, tau: float | None = None) -> Certificate:
    """Of 3 objects: right with IoU 0.8, wrong, right with IoU 0.9."""
    detections = [found(0, at(0, 0.8), 0.9, "a"), found(0, FAR, 0.8, "a")]
    detections.append(found(0, at(20, 0.9), 0.7, "a"))
    truths = [real(0, at(x), "a") for x in (0, 20, 40)]
    return certified([*detections, *more], truths, tau=tau)


def test_lrp_has_its_own_tau_in_every_code():
    # 1.5 "LRP(s)". 2 right, 1 wrong, 1 missed: (0.3 / (1 - tau) + 1 + 1) / 4, with tau 0.1 in the
    # paper on self-aware detection and in its code. In detection-calibration tau is 0: the wrong
    # box matches the third object without overlap, ((0.2 + 1 + 0.1) / 1 + 0 + 0) / 3.
    own = values(three_objects(), "lrp")
    expected = (0.3 / 0.9 + 2) / 4
    assert own == pytest.approx(
        {"paper": expected, "saod": expected, "detection-calibration": 1.3 / 3}
    )
    half = values(three_objects(tau=0.5), "lrp")  # as the LRP-Error repository
    assert half == pytest.approx(dict.fromkeys(RULES, (0.3 / 0.5 + 2) / 4))


def test_the_localization_part_is_not_divided_by_one_minus_tau():
    # 1.5 "parts": (0.2 + 0.1) / 2, 1 - precision = 1/3, 1 - recall = 1/3, at any tau up to 0.8.
    for tau in (0.1, 0.5):
        certificate = three_objects(tau=tau)
        for rule in RULES:
            assert certificate.get("lrp_localization", rule).value == pytest.approx(0.15)
            assert certificate.get("lrp_false_positive", rule).value == pytest.approx(1 / 3)
            assert certificate.get("lrp_false_negative", rule).value == pytest.approx(1 / 3)


def test_the_codes_cut_equal_confidences_apart_and_the_paper_does_not():
    # 1.5 "oLRP" and "LRP-optimal threshold", tau 1/2. After 1: (0.4 + 2) / 3 = 0.8; after 2: 0.85;
    # after 3: (0.6 + 1 + 1) / 4 = 0.65; after 4, wrong and as sure as the third:
    # (0.6 + 2 + 1) / 5 = 0.72, which is what keeping confidence >= 0.7 gives.
    certificate = three_objects(found(0, FAR, 0.7, "a"), tau=0.5)
    expected = {"paper": 0.72, "saod": 0.65, "detection-calibration": 0.65}
    assert values(certificate, "optimal_lrp") == pytest.approx(expected)
    assert values(certificate, "lrp") == pytest.approx(dict.fromkeys(RULES, 0.72))
    assert certificate.thresholds[0].threshold == 0.7
    assert certificate.thresholds[0].optimal_lrp == pytest.approx(0.72)


def poor_classes() -> Scene:
    """Class a is found, b is detected in the wrong place, c is not detected, d has no object."""
    detections = [found(0, at(0), 0.9, "a"), found(0, FAR, 0.9, "b"), found(0, FAR, 0.9, "d")]
    truths = [real(0, at(0), "a"), real(0, at(20), "b"), real(0, at(40), "c")]
    return Scene(1, detections, truths, list("abcd"))


def test_a_class_without_a_true_positive_has_an_optimal_lrp_of_one_and_no_threshold():
    # 1.5 "class with GT, no TP or no det": oLRP 1, FN 1, loc and FP NaN, threshold NaN; "class
    # without GT": left out, where the code writes -1 into everything, ours is NaN.
    table = match(*to_containers(poor_classes()), convention=conventions.COCO, thresholds=(0.1,))
    best = optimal_lrp(table, 4)
    np.testing.assert_equal(best.per_class, [0.0, 1.0, 1.0, math.nan])
    np.testing.assert_equal(best.thresholds, [0.9, math.nan, math.nan, math.nan])
    assert best.total.value == pytest.approx(2 / 3)  # a, b and c
    assert best.false_negative.value == pytest.approx(2 / 3)
    assert (best.localization.value, best.localization.support["classes"]) == (0.0, 1)  # a alone
    assert (best.false_positive.value, best.false_positive.support["classes"]) == (0.0, 1)


def test_a_missing_threshold_is_null_in_a_certificate():
    # 1.5 "NaN threshold, consequence": one code keeps such a class, the other drops it. A record
    # says null, which no comparison accepts.
    certificate = certify(*to_containers(poor_classes())[::-1], n_resamples=0)
    records = [each.as_json() for each in certificate.thresholds]
    assert [record["threshold"] for record in records] == [0.9, None, None, None]
    assert [record["optimal_lrp"] for record in records] == [0.0, 1.0, 1.0, None]


def test_each_part_of_lrp_is_averaged_over_the_classes_that_define_it():
    # 1.5 "class mean": LRP over a, b and c: (0 + 1 + 1) / 3; location over a; 1 - precision over a
    # and b: (0 + 1) / 2; 1 - recall over all three: (0 + 1 + 1) / 3.
    table = match(*to_containers(poor_classes()), convention=conventions.COCO, thresholds=(0.1,))
    error = lrp_error(table, 4)
    assert [part.value for part in error] == pytest.approx([2 / 3, 0.0, 1 / 2, 2 / 3])
    assert [part.support["classes"] for part in error] == [3, 1, 2, 3]


# --- 1.6: calibration -----------------------------------------------------------------------------


def one_class(confidence: list[float], quality: list[float], rule: str) -> float:
    rules = {
        r.name: r
        for r in (
            conventions.PAPER_CALIBRATION,
            conventions.SAOD,
            conventions.DETECTION_CALIBRATION,
        )
    }
    class_ids = np.zeros(len(confidence), np.int32)
    columns = np.array(confidence), np.array(quality)
    return laece(*columns, class_ids=class_ids, n_classes=1, rule=rules[rule])


@pytest.mark.parametrize("rule", RULES)
def test_laece_compares_confidence_with_the_plain_iou(rule):
    # 1.6 "LaECE^c": the IoU is not rescaled by tau, |0.9 - 0.8| at tau 0.1 and at 0.5.
    for tau in (0.1, 0.5):
        detections = [found(0, at(0, 0.8), 0.9, "a")]
        certificate = certified(detections, [real(0, at(0), "a")], tau=tau)
        assert certificate.get("laece", rule).value == pytest.approx(0.1)


@pytest.mark.parametrize("rule", RULES)
def test_laece_is_precision_times_mean_iou_in_every_bin(rule):
    # 1.6 "LaECE^c", eq. 4: bin [0.88, 0.92) holds IoU 0.8 and a wrong one, 2/3 |0.9 - 1/2 * 0.8|;
    # bin [0.48, 0.52) holds IoU 0.6, 1/3 |0.5 - 0.6|.
    expected = 2 / 3 * 0.5 + 1 / 3 * 0.1
    assert one_class([0.9, 0.9, 0.5], [0.8, 0.0, 0.6], rule) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("rule", "expected"), [("paper", 0.0), ("saod", 0.0), ("detection-calibration", 0.12)]
)
def test_a_confidence_exactly_on_an_edge_falls_above_it_or_below(rule, expected):
    # 1.6 "bins": 0.12 is the edge 3/25. [0.12, 0.16) holds 0.12 and 0.13: |0.25 - 0.25| / 2. With
    # (0.08, 0.12] and (0.12, 0.16] they are apart: (|0.12 - 0| + |0.13 - 0.25|) / 2.
    assert one_class([0.12, 0.13], [0.0, 0.25], rule) == pytest.approx(expected, abs=1e-15)


@pytest.mark.parametrize(
    ("rule", "expected"), [("paper", 0.0), ("saod", 0.015), ("detection-calibration", 0.0)]
)
def test_a_confidence_of_exactly_one_shares_the_last_bin_or_has_none(rule, expected):
    # 1.6 "bins": with 0.97 in one bin, |1.97 - 1.97| / 2; SAOD has no bin for 1.0 but counts it:
    # |0.97 - 1.00| / 2. Alone, 1.0 on a wrong box is an error of 1, and of 0 in SAOD.
    if rule == "detection-calibration":  # an error of zero leaves the class out
        assert math.isnan(one_class([1.0, 0.97], [0.97, 1.0], rule))
    else:
        ours = one_class([1.0, 0.97], [0.97, 1.0], rule)
        assert ours == pytest.approx(expected, abs=1e-15)
    assert one_class([1.0], [0.0], rule) == (0.0 if rule == "saod" else 1.0)


@pytest.mark.parametrize("rule", RULES)
def test_a_confidence_of_exactly_zero_is_in_the_first_bin(rule):
    # 1.6 "bins": (lo, hi] has its first bin closed. |0 - 0.5|.
    assert one_class([0.0], [0.5], rule) == pytest.approx(0.5)


def test_a_detection_counts_as_right_from_tau_on():
    # 1.6 "TP". IoU 0.05, confidence 0.3: wrong at tau 0.1, |0.3 - 0|; right at tau 0, |0.3 - 0.05|.
    certificate = certified([found(0, at(0, 0.05), 0.3, "a")], [real(0, at(0), "a")])
    expected = {"paper": 0.3, "saod": 0.3, "detection-calibration": 0.25}
    assert values(certificate, "laece") == pytest.approx(expected)
    # exactly tau is right, as in COCO: |0.3 - 0.25|
    certificate = certified([found(0, at(0, 0.25), 0.3, "a")], [real(0, at(0), "a")], tau=0.25)
    assert values(certificate, "laece") == pytest.approx(dict.fromkeys(RULES, 0.05))


def four_classes(tau: float | None = 0.1) -> Certificate:
    detections = [
        found(0, at(0, 0.8), 0.9, "a"),  # right, IoU 0.8
        found(0, FAR, 0.91, "a"),  # wrong, in the same bin [0.88, 0.92)
        found(0, at(20, 0.7), 1.0, "a"),  # right, IoU 0.7
        found(0, FAR, 0.5, "b"),  # b has no object, c no detection
        found(0, at(60, 0.5), 0.5, "d"),  # perfect
    ]
    truths = [real(0, at(x), label) for x, label in ((0, "a"), (20, "a"), (40, "c"), (60, "d"))]
    return certified(detections, truths, known="abcd", tau=tau)


def test_three_rules_average_three_sets_of_classes():
    # 1.6 "class mean", "dets of a class without GT" and "bins". a: 2/3 |0.905 - 0.4| +
    # 1/3 |1 - 0.7|, in SAOD without the second term; b 0.5; c nothing; d 0. The paper averages a, b
    # and d; SAOD all four, with 0 for b and c; detection-calibration a alone, as d is exactly 0.
    full, cut = 2 / 3 * 0.505 + 0.1, 2 / 3 * 0.505
    expected = {"paper": (full + 0.5 + 0) / 3, "saod": cut / 4, "detection-calibration": full}
    assert values(four_classes(), "laece") == pytest.approx(expected)


def test_laace_is_the_mean_distance_between_confidence_and_iou():
    # 1.6 "LaACE". a: (|0.9 - 0.8| + 0.91 + |1 - 0.7|) / 3; b 0.5; d 0, left out by the code.
    each = (0.1 + 0.91 + 0.3) / 3
    expected = {"paper": (each + 0.5 + 0) / 3, "detection-calibration": each}
    assert values(four_classes(), "laace") == pytest.approx(expected)


def test_detections_on_crowds_count_in_the_laace_of_detection_calibration_only():
    # 1.6 "ignored dets (crowd)". |0.9 - 1|, and 0.6 for the detection in the crowd where it counts.
    truths = [real(0, at(0), "a"), real(0, (200.0, 0.0, 50.0, 50.0), "a", crowd=True)]
    certificate = certified([found(0, at(0), 0.9, "a"), found(0, at(200), 0.6, "a")], truths)
    assert values(certificate, "laece") == pytest.approx(dict.fromkeys(RULES, 0.1))
    expected = {"paper": 0.1, "detection-calibration": (0.1 + 0.6) / 2}
    assert values(certificate, "laace") == pytest.approx(expected)


def test_d_ece_has_ten_bins_and_an_iou_of_one_half():
    # 1.6 "D-ECE": [0.9, 1.0] holds all three: right, wrong (IoU 0.4), right of another class:
    # |0.91 + 0.99 + 0.95 - 2| / 3, the classes in one pot.
    detections = [found(0, at(0), 0.91, "a"), found(0, at(20, 0.4), 0.99, "a")]
    detections.append(found(0, at(40), 0.95, "b"))
    truths = [real(0, at(0), "a"), real(0, at(20), "a"), real(0, at(40), "b")]
    certificate = certified(detections, truths, known="ab")
    expected = dict.fromkeys(("paper", "detection-calibration"), (2.85 - 2) / 3)
    assert values(certificate, "d_ece") == pytest.approx(expected)
    assert certificate.get("d_ece").parameters == {"tau": 0.5, "bins": 10}


def test_detections_of_a_class_without_objects_are_wrong_in_d_ece_or_left_out():
    # 1.6 "dets of a class without GT": the toolbox drops them (or crashes). a right with 0.95, b,
    # without an object, with 0.92, in one bin: |1.87 - 1| / 2; or a alone: |0.95 - 1|.
    detections = [found(0, at(0), 0.95, "a"), found(0, FAR, 0.92, "b")]
    certificate = certified(detections, [real(0, at(0), "a")], known="ab")
    expected = {"paper": 0.87 / 2, "detection-calibration": 0.05}
    assert values(certificate, "d_ece") == pytest.approx(expected)


def test_the_objects_of_a_rejected_image_are_missed_unless_the_image_is_removed():
    # 1.6 "rejected images". Image 0 is perfect, image 1 was rejected: it keeps its object and loses
    # its detections: LRP (0 + 0 + 1) / 2, nothing in LaECE. At severity 5 it is removed: LRP 0.
    truths = [real(0, at(0), "a"), real(1, at(0), "a")]
    kept = certified([found(0, at(0), 0.9, "a")], truths, n_images=2)
    removed = certified([found(0, at(0), 0.9, "a")], truths[:1])
    assert (kept.get("lrp").value, removed.get("lrp").value) == (0.5, 0.0)
    assert kept.get("laece").value == removed.get("laece").value == pytest.approx(0.1)


def test_the_rules_agree_where_there_are_no_edge_cases():
    # 1.6, last line: every class has objects and detections, and no confidence is special. IoU 0.8
    # with 0.9 and 0.6 with 0.5, in each class: (0.1 + 0.1) / 2.
    detections, truths = [], []
    for k, label in enumerate("ab"):
        detections += [found(0, at(100 * k, 0.8), 0.9, label)]
        detections += [found(0, at(100 * k + 20, 0.6), 0.5, label)]
        truths += [real(0, at(100 * k), label), real(0, at(100 * k + 20), label)]
    certificate = certified(detections, truths, known="ab")
    assert values(certificate, "laece") == pytest.approx(dict.fromkeys(RULES, 0.1))


# Asserted elsewhere:
# - 1.5 "tau = 0": test_lrp.py::test_with_tau_zero_any_object_of_the_class_matches; "oLRP":
#   test_lrp.py::test_keeping_what_reaches_the_threshold_reproduces_the_optimum.
# - 1.6 "bins", 1.0 beside 0.5: test_calibration.py::
#   test_a_confidence_of_one_is_in_no_bin_of_the_saod_code; D-ECE against netcal, same file.
# Left to later issues:
# - 1.5 "NaN threshold, consequence": applying thresholds per class, decisions/self_aware.py.
# - 1.6 "TP … on the thresholded set": the same; `score_threshold` is one floor for all classes.
