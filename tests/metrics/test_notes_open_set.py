"""Tables 1.2 to 1.4 of the notes on detection, row by row: ranking, open-set metrics, AP families.

Every test begins with the row it covers; what cannot be tested here is listed at the end.
"""

import math

import numpy as np
import pytest
from tests.oracles import openset
from tests.oracles.scenes import UNKNOWN, Detection, Scene, Truth, found, real, to_containers

from incognita.evaluation.certify import Certificate, certify
from incognita.metrics import conventions
from incognita.metrics.conventions import AREA, POINTS_11, POINTS_101
from incognita.metrics.detection import label_average_precision
from incognita.metrics.matching import match
from incognita.metrics.ranking import auroc, bootstrap_ranking, ranking_metrics

FAR = (400.0, 400.0, 10.0, 10.0)  # where nothing is
CODES = ("owod", "owdetr", "opendet", "fmiyc")


def at(x: float, share: float = 1.0) -> tuple[float, float, float, float]:
    """A box at x of 10 pixels, or its upper part, whose IoU with the whole is the share."""
    return (x, 0.0, 10.0, 10.0 * share)


def certified(
    detections: list[Detection],
    truths: list[Truth],
    known: str = "abcd",
    *,
    n_images: int = 1,
    score_threshold: float | None = None,
) -> Certificate:
    scene = Scene(n_images, detections, truths, list(known))
    return certify(*to_containers(scene)[::-1], n_resamples=0, score_threshold=score_threshold)


# --- 1.2: AUROC, FPR95 and AUPR of detections -----------------------------------------------------


def test_every_detection_of_a_known_image_is_a_negative_whether_right_or_wrong():
    # 1.2 "positives" and "negatives": detections, not images, are ranked; an image with two
    # detections has two rows. Known 0.1 0.4, unknown 0.3 0.8: 3 of the 4 pairs are in order.
    score = np.array([0.1, 0.4, 0.3, 0.8])
    is_unknown = np.array([False, False, True, True])
    images = np.array([0, 0, 1, 1])
    measured = bootstrap_ranking(score, is_unknown, images=images, n_resamples=0)
    assert measured.auroc.tolist() == [0.75]
    assert (measured.n_known[0], measured.n_unknown[0]) == (2, 2)


def test_fpr_95_is_read_at_the_first_recall_that_reaches_95_percent():
    # 1.2 "FPR95": of 12 known rows 11 are 91.7 %, nearer to 95 % than all 12, and VOS, which takes
    # the nearest recall, accepts no unknown row; 95 % is reached at 12, where one of two is in.
    score = np.array([*range(1, 13), 11.5, 20.0])
    is_unknown = np.arange(14) >= 12
    assert ranking_metrics(score, is_unknown).fpr_at_95_known_recall == 0.5


def test_aupr_is_average_precision_in_vos_and_a_trapezoid_in_fmiyc():
    # 1.2 "AUPR": accepted from the smallest score: known, unknown, known, unknown; recall of
    # known 1/2 1/2 1 1, precision 1 1/2 2/3 1/2.
    score, is_unknown = np.array([1.0, 2.0, 3.0, 4.0]), np.array([False, True, False, True])
    measured = ranking_metrics(score, is_unknown)
    assert measured.aupr_known == pytest.approx(1 / 2 * 1 + 1 / 2 * 2 / 3)
    # straight lines: (0, 1) - (1/2, 1), down to (1/2, 1/2), then up to (1, 2/3)
    assert measured.aupr_known_trapezoid == pytest.approx(1 / 2 * 1 + 1 / 2 * (1 / 2 + 2 / 3) / 2)
    # flagged from the largest: unknown, known, unknown, known, the same curve
    assert measured.aupr_unknown == pytest.approx(5 / 6)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_energies_above_seventeen_are_told_apart(dtype):
    # 1.2 "AUROC", the torchmetrics trap: a float32 sigmoid is 1 from about 17 on.
    score = np.array([17.5, 18.5, 40.0, 41.0], dtype)
    assert auroc(score, np.array([False, True, False, True])) == 0.75  # 3 of 4 pairs in order


def test_images_and_objects_without_a_detection_are_reported():
    # 1.2 "images without det": no score exists for them; their share stands beside the others.
    truths = [real(0, at(0), UNKNOWN), real(1, at(0), UNKNOWN), real(2, at(0), "a")]
    certificate = certified(
        [found(0, at(0), 0.9, "a"), found(3, FAR, 0.8, "a")], truths, n_images=5
    )
    assert certificate.get("images_without_detection").value == 3 / 5
    assert certificate.get("unknown_objects_without_detection").value == 1 / 2


# --- 1.3: open-set metrics ------------------------------------------------------------------------


def test_unknown_recall_has_no_threshold_unless_one_is_given():
    # 1.3 "U-Recall": no score threshold (RandBox keeps 0.15 and more). Three unknown objects.
    truths = [real(0, at(x), UNKNOWN) for x in (0, 20, 40)]
    detections = [found(0, at(0), 0.9, UNKNOWN), found(0, at(20), 0.001, UNKNOWN)]
    everything = certified(detections, truths)
    above = certified(detections, truths, score_threshold=0.15)
    for convention in ("paper", *CODES):
        assert everything.get("unknown_recall", convention).value == pytest.approx(2 / 3)
        assert above.get("unknown_recall", convention).value == pytest.approx(1 / 3)


def test_unknown_recall_without_unknown_detections_is_zero():
    # 1.3 "U-Recall": 0 if no unknown detection.
    certificate = certified([found(0, at(0), 0.9, "a")], [real(0, at(0), UNKNOWN)])
    assert {certificate.get("unknown_recall", name).value for name in ("paper", *CODES)} == {0.0}


def test_difficult_unknown_objects_are_not_asked_for_in_owod():
    # 1.3 "U-Recall": over non-difficult unknown objects; FMIYC reads no such flag.
    truths = [real(0, at(0), UNKNOWN), real(0, at(20), UNKNOWN, difficult=True)]
    certificate = certified([found(0, at(0), 0.9, UNKNOWN)], truths)
    recalls = {name: certificate.get("unknown_recall", name).value for name in ("paper", *CODES)}
    assert recalls == {"paper": 1.0, "owod": 1.0, "owdetr": 1.0, "opendet": 1.0, "fmiyc": 0.5}


def test_wilderness_impact_of_fmiyc_keeps_the_places_of_images_without_annotation():
    # class a has no true positive, so its recall is nearest to 0.8 at its first place: a detection
    # on the image without annotation, which counts neither as right nor as wrong. Class b: one
    # true positive, then one detection on the unknown object beyond it.
    detections = [
        found(1, FAR, 0.9, "a"), found(0, FAR, 0.8, "a"),
        found(0, at(0), 0.7, "b"), found(0, at(40), 0.6, "b"),
    ]  # fmt: skip
    truths = [real(0, at(20), "a"), real(0, at(0), "b"), real(0, at(40), "deer", unknown=True)]
    certificate = certified(detections, truths, "ab", n_images=2)
    # places: a at 0 detections, b at 1; no open-set error among them
    scene = Scene(2, detections, truths, ["a", "b"])
    assert openset.wilderness_impact_owod(scene, "fmiyc") == 0.0
    assert certificate.get("wilderness_impact", "fmiyc").value == 0.0
    # of recall 0.8 without any true positive of b: read where both lists begin
    wrong = [detections[0], detections[1], found(0, at(40), 0.6, "b")]
    certificate = certified(wrong, truths, "ab", n_images=2)
    # one open-set error over 0 + 1 detections; without the first place it was 1 / 2
    assert certificate.get("wilderness_impact", "fmiyc").value == 1.0
    assert certificate.get("wilderness_impact", "owod").value == 0.5


def test_map_of_owod_is_nan_for_a_class_with_only_difficult_objects():
    # class b has one difficult object and a detection of it, which counts as nothing; the code
    # divides 0 by its 0 objects
    detections = [found(0, at(0), 0.9, "a"), found(0, at(20), 0.8, "b")]
    truths = [real(0, at(0), "a"), real(0, at(20), "b", difficult=True)]
    certificate = certified(detections, truths, "ab")
    for convention in ("owod", "opendet"):
        known = certificate.get("map_known", convention)
        assert math.isnan(known.value)
        assert known.reason.startswith("a known class has detections but no object")
        assert math.isnan(certificate.get("known_recall", convention).value)
    assert certificate.get("map_known", "owdetr").value == 0.5
    alone = certified(detections[:1], truths, "ab")  # without detections it counts 0
    assert alone.get("map_known", "owod").value == 0.5


def test_precision_and_recall_of_the_known_are_means_over_classes_of_all_detections():
    # a: 1 of 2 objects by 1 of 3 detections; b: no detection; owod counts b as 0
    detections = [found(0, at(0), 0.9, "a"), found(0, FAR, 0.8, "a"), found(0, FAR, 0.7, "a")]
    truths = [real(0, at(0), "a"), real(0, at(20), "a"), real(0, at(40), "b")]
    certificate = certified(detections, truths, "ab")
    for code in CODES:
        assert certificate.get("known_precision", code).value == pytest.approx((1 / 3 + 0) / 2)
        assert certificate.get("known_recall", code).value == pytest.approx((1 / 2 + 0) / 2)
    # without objects of a, its detections make recall 0 / 0 in the family of OWOD, 0 in FMIYC
    certificate = certified(detections, truths[2:], "ab")
    assert math.isnan(certificate.get("known_recall", "owod").value)
    assert certificate.get("known_recall", "fmiyc").value == 0.0


def test_unknown_precision_is_printed_by_owod_and_owdetr_too():
    detections = [found(0, at(0), 0.9, UNKNOWN), found(0, FAR, 0.8, UNKNOWN)]
    certificate = certified(detections, [real(0, at(0), "deer", unknown=True)])
    for code in CODES:
        assert certificate.get("unknown_precision", code).value == 0.5


def test_unknown_precision_of_fmiyc_does_not_see_images_without_annotation():
    # 1.3 "P_U": right on image 0, wrong on image 0, wrong on image 1, which has no object.
    detections = [
        found(0, at(0), 0.9, UNKNOWN), found(0, FAR, 0.8, UNKNOWN), found(1, FAR, 0.7, UNKNOWN)
    ]  # fmt: skip
    certificate = certified(detections, [real(0, at(0), UNKNOWN)], n_images=2)
    assert certificate.get("unknown_precision", "paper").value == pytest.approx(1 / 3)
    assert certificate.get("unknown_precision", "opendet").value == pytest.approx(1 / 3)
    assert certificate.get("unknown_precision", "fmiyc").value == pytest.approx(1 / 2)


def curve(label: str) -> tuple[list[Detection], list[Truth]]:
    """Of 3 objects: right, wrong, right. Recall 1/3 1/3 2/3, best precision 1 2/3 2/3."""
    detections = [
        found(0, at(0), 0.9, label), found(0, FAR, 0.8, label), found(0, at(20), 0.7, label)
    ]  # fmt: skip
    return detections, [real(0, at(x), label) for x in (0, 20, 40)]


AREA_OF_CURVE = 1 / 3 + 1 / 3 * 2 / 3
ELEVEN_OF_CURVE = (4 + 3 * 2 / 3) / 11  # recalls 0 .1 .2 .3 have 1; .4 .5 .6 have 2/3; 4 have 0
HUNDRED_OF_CURVE = (34 + 33 * 2 / 3) / 101  # 0 to .33 are 34 points, .34 to .66 are 33


@pytest.mark.parametrize(
    ("convention", "expected"),
    [
        ("paper", AREA_OF_CURVE),
        ("owod", AREA_OF_CURVE),
        ("opendet", AREA_OF_CURVE),
        ("fmiyc", AREA_OF_CURVE),
        ("owdetr", ELEVEN_OF_CURVE),
        ("voc07", ELEVEN_OF_CURVE),
        ("coco", HUNDRED_OF_CURVE),  # all boxes are exact: the same at each of the ten IoUs
    ],
)
def test_ap_of_unknown_is_area_eleven_points_or_a_hundred_by_the_code(convention, expected):
    # 1.3 "AP_U", 1.4 "used by".
    assert certified(*curve(UNKNOWN)).get("unknown_ap", convention).value == pytest.approx(expected)


@pytest.mark.parametrize(
    ("convention", "expected"),
    [
        ("paper", AREA_OF_CURVE),
        ("owod", AREA_OF_CURVE),
        ("opendet", AREA_OF_CURVE),
        ("fmiyc", AREA_OF_CURVE),
        ("owdetr", ELEVEN_OF_CURVE),
        ("voc07", ELEVEN_OF_CURVE),
    ],
)
def test_map_of_known_classes_differs_by_points_between_area_and_eleven_points(
    convention, expected
):
    # 1.3 "mAP_k": mean AP50 over known classes; 55.6 against 54.5 here.
    measured = certified(*curve("a"), known="a").get("map_known", convention)
    assert measured.value == pytest.approx(expected)


def test_ap_of_unknown_is_averaged_over_ten_ious_in_coco():
    # 1.3 "AP_U", OSOD-III: IoU 0.5:0.95. An IoU of 0.8 reaches 0.50, 0.55, … 0.80: seven of ten.
    certificate = certified([found(0, at(0, 0.8), 0.9, UNKNOWN)], [real(0, at(0), UNKNOWN)])
    assert certificate.get("unknown_ap", "coco").value == pytest.approx(0.7)
    assert certificate.get("unknown_ap", "paper").value == pytest.approx(1.0)


def test_the_detectors_confidence_ranks_unknown_detections():
    # 1.3 "score used for AP_U": FMIYC ranks by the largest softmax of all logits. Ours is the
    # confidence: the wrong one first gives 1/2, the right one first 1.
    for right, wrong, expected in ((0.3, 0.6, 0.5), (0.6, 0.3, 1.0)):
        detections = [found(0, at(0), right, UNKNOWN), found(0, FAR, wrong, UNKNOWN)]
        certificate = certified(detections, [real(0, at(0), UNKNOWN)])
        assert certificate.get("unknown_ap", "fmiyc").value == expected


def test_open_set_error_wants_an_overlap_above_one_half_in_the_codes():
    # 1.3 "A-OSE": detections whose best overlap with any unknown object is > 0.5. As written,
    # 10 x 5 of 10 x 10 pixels (see table 1.1), and 10 x 6.
    for height, expected in ((5.0, 0), (6.0, 1)):
        detection = Detection(0, (0.0, 0.0, 10.0, height), 0.9, "a")
        certificate = certified(
            [detection], [Truth(0, (0.0, 0.0, 9.0, 9.0), UNKNOWN, unknown=True)]
        )
        assert certificate.get("open_set_error", "owod").value == expected


def test_open_set_error_counts_detections_in_the_codes_and_objects_in_the_papers():
    # 1.3 "A-OSE" and "nOSE", 1.8 "FMIYC nOSE". Three on the first object, which is found as unknown
    # too; one on the second; none on the third: 4 detections, 1 object.
    truths = [real(0, at(x), UNKNOWN) for x in (0, 20, 40)]
    detections = [found(0, at(0), score, "a") for score in (0.9, 0.8, 0.7)]
    detections += [found(0, at(0), 0.6, UNKNOWN), found(0, at(20), 0.001, "b")]
    certificate = certified(detections, truths)
    assert certificate.get("open_set_error", "paper").value == 1
    assert certificate.get("normalized_open_set_error", "paper").value == pytest.approx(1 / 3)
    assert [certificate.get("open_set_error", name).value for name in CODES] == [4] * 4
    fmiyc = certificate.get("normalized_open_set_error", "fmiyc")
    assert fmiyc.value == pytest.approx(4 / 3)  # above one; the code prints 133 %


def wild(*detections_of_c: Detection) -> Certificate:
    truths = [real(0, at(0), "a"), real(0, at(20), "a"), real(0, at(40), "b"), real(0, at(60), "d")]
    detections = [
        found(0, at(0), 0.9, "a"),  # right: recall of a 1/2
        found(0, at(80), 0.8, "a"),  # on the unknown
        found(0, at(20), 0.7, "a"),  # right: recall 1
        found(0, FAR, 0.6, "a"),
        found(0, at(80), 0.9, "b"),  # on the unknown
        found(0, at(40), 0.8, "b"),  # right: recall of b 1
    ]
    return certified([*detections, *detections_of_c], [*truths, real(0, at(80), UNKNOWN)])


def test_wilderness_impact_is_a_ratio_of_means_at_the_recall_nearest_to_080():
    # 1.3 "WI(r)". a: recall 1/2 1/2 1 1, nearest to 0.8 is the third place: 1 on unknown of 3.
    # b: the second place: 1 of 2. c and d have no detection and are skipped. Ratio of the means
    # (1 + 1) / (3 + 2), where the mean of the ratios would be (1/3 + 1/2) / 2.
    certificate = wild()
    for name in CODES:
        impact = certificate.get("wilderness_impact", name)
        assert impact.value == pytest.approx(2 / 5)
        assert impact.parameters == {"recall": 0.8}


def test_a_class_whose_recall_is_nan_is_read_at_its_first_detection():
    # 1.3 "WI(r)", trap: c has no object; argmin over NaN is 0. If its first detection lies on the
    # unknown it adds 1 of 1, (1 + 1 + 1) / (3 + 2 + 1), else 0 of 1, (1 + 1 + 0) / (3 + 2 + 1).
    on_unknown, elsewhere = at(80), FAR
    first = wild(found(0, on_unknown, 0.9, "c"), found(0, elsewhere, 0.8, "c"))
    assert first.get("wilderness_impact", "owod").value == pytest.approx(3 / 6)
    second = wild(found(0, elsewhere, 0.9, "c"), found(0, on_unknown, 0.8, "c"))
    assert second.get("wilderness_impact", "owod").value == pytest.approx(2 / 6)


def test_wilderness_impact_says_nothing_on_images_with_unknown_objects_only():
    # 1.3 "WI(r)", trap: meaningless on pure OOD.
    certificate = certified([found(0, at(0), 0.9, "a")], [real(0, at(0), UNKNOWN)])
    impact = certificate.get("wilderness_impact", "owod", split="unknown-only")
    assert math.isnan(impact.value)
    assert impact.reason == "no known object is in these images"


def test_the_wilderness_impact_of_dhamija_has_its_own_name_and_value():
    # 1.3 "WI(r)": P_closed / P_open - 1, another metric. Image 0 alone: right, precision 1. With
    # image 1, unknown objects only, a surer wrong detection comes first: 1/2. Image 2 has both
    # kinds of objects and is in neither set. 1 / (1/2) - 1.
    truths = [real(0, at(0), "a"), real(1, at(0), UNKNOWN), real(2, at(0), "a")]
    truths.append(real(2, at(20), UNKNOWN))
    detections = [found(0, at(0), 0.5, "a"), found(1, FAR, 0.9, "a"), found(2, FAR, 0.9, "a")]
    certificate = certified(detections, truths, known="a", n_images=3)
    ratio = certificate.get("wilderness_ratio")
    assert ratio.value == pytest.approx(1.0)
    assert ratio.parameters == {"recall": 0.5}
    # WI of OWOD: no detection of a lies on an unknown object
    assert certificate.get("wilderness_impact", "owod").value == 0.0


def test_ap_all_counts_a_second_detection_under_another_label_as_wrong():
    # 1.3 "AP_all": right, wrong (the same object called unknown), right. 51 recalls, 0 to .50,
    # have precision 1 and 50 have 2/3; class by class everything is right.
    detections = [
        found(0, at(0), 0.9, "a"), found(0, at(0), 0.8, UNKNOWN), found(0, at(20), 0.7, "a")
    ]  # fmt: skip
    truths = [real(0, at(0), "a"), real(0, at(20), "a")]
    certificate = certified(detections, truths, known="a")
    assert certificate.get("ap_all", "paper").value == pytest.approx((51 + 50 * 2 / 3) / 101)
    assert certificate.get("ap_all", "coco").value == certificate.get("ap_all", "paper").value
    assert certificate.get("map_known", "paper").value == 1.0


def test_ap_sc_takes_a_known_label_of_the_same_superclass_as_right():
    # 1.3 "AP_sc". Of 3 unknown objects: right, wrong, right, and then only wrong: 1/3 + 1/3 * 2/3.
    truths = [
        real(0, at(0), UNKNOWN, superclass="vehicle"),
        real(0, at(20), UNKNOWN, superclass="animal"),
        real(0, at(40), UNKNOWN),
        real(1, at(0), UNKNOWN, superclass="vehicle"),  # image 1 has a known object too
        real(1, at(20), "car"),
    ]
    detections = [
        found(0, at(0), 0.9, "car"),  # right
        found(0, at(20), 0.8, "car"),  # another super-class
        found(0, at(20), 0.7, UNKNOWN),  # right
        found(0, at(40), 0.6, "cat"),  # the object has no super-class
        found(0, at(0), 0.5, UNKNOWN),  # taken
        found(0, at(40, 0.5), 0.4, UNKNOWN),  # IoU is 0.5, not above
        found(1, at(0), 0.3, UNKNOWN),  # not an image of unknown objects only
    ]
    scene = Scene(2, detections, truths, ["car", "cat"], {"car": "vehicle", "cat": "animal"})
    certificate = certify(*to_containers(scene)[::-1], n_resamples=0)
    assert certificate.get("ap_superclass", split="unknown-only").value == pytest.approx(5 / 9)


# --- 1.4: AP families -----------------------------------------------------------------------------


def test_three_objects_of_ten_reach_three_points_of_eleven():
    # 1.4 "points": np.arange(0, 1.1, 0.1)[3] is 0.30000000000000004, above a recall of 3/10, so
    # only 0, .1 and .2 are reached; the 101 points of COCO hold 0.3 itself: 0 to .30 are 31.
    detections = [found(0, at(20.0 * k), 0.9 - k / 10, "a") for k in range(3)]
    truths = [real(0, at(20.0 * k), "a") for k in range(10)]
    table = match(*to_containers(Scene(1, detections, truths, ["a"])), convention=conventions.COCO)
    for rule, expected in ((POINTS_11, 3 / 11), (POINTS_101, 31 / 101), (AREA, 3 / 10)):
        value = label_average_precision(table, rule=rule).average_precision[0, 0, 0]
        assert value == pytest.approx(expected, abs=1e-12)


def test_only_coco_adds_an_epsilon_to_the_denominator_of_precision():
    # 1.4 "precision": tp / (fp + tp + eps) rounds 1 / 1 to 1 - 2.2e-16.
    certificate = certified([found(0, at(0), 0.9, "a")], [real(0, at(0), "a")], known="a")
    assert certificate.get("map_known", "paper").value == 1.0
    assert certificate.get("ap50", "voc07").value == 1.0
    assert 1 - 1e-14 < certificate.get("ap50", "coco").value < 1.0


def test_the_envelope_takes_the_best_precision_at_a_recall_or_above():
    # 1.4 "points": wrong, right, right of 2: precision 1/2 2/3 at recall 1/2 1; the envelope is 2/3
    # everywhere, so all three families give 2/3.
    detections = [
        found(0, FAR, 0.9, "a"), found(0, at(0), 0.8, "a"), found(0, at(20), 0.7, "a")
    ]  # fmt: skip
    truths = [real(0, at(0), "a"), real(0, at(20), "a")]
    table = match(*to_containers(Scene(1, detections, truths, ["a"])), convention=conventions.COCO)
    for rule in (POINTS_11, POINTS_101, AREA):
        value = label_average_precision(table, rule=rule).average_precision[0, 0, 0]
        assert value == pytest.approx(2 / 3, abs=1e-12)


# Asserted elsewhere:
# - 1.2 "AUROC": N(-800, 100) against N(-1000, 100), test_ranking_traps.py::
#   test_scores_far_from_zero_are_not_squashed; AUPR of constant scores, same file.
# - 1.3 "U-Recall" NaN without unknown objects: test_open_set.py::
#   test_metrics_without_unknown_objects_or_detections_are_nan_with_a_reason.
# - 1.4 "IoU" 0.50:0.05:0.95: doctest of coco_numbers (IoU 0.8 gives AP 0.7); equality with
#   pycocotools and faster-coco-eval: test_detection.py.
# Left to later issues:
# - 1.2 "which dets" (F1-optimal and fixed thresholds) and 1.3 "unknown decision" (mean - 1.645 std
#   against the 5 % quantile): threshold policies, decisions/thresholds.py.
# - 1.2 "logits", 1.3 "label used" (background column, arg-max of the logits): methods on boxes.
# - 1.2 "subsample": we never subsample; there is nothing to call.
# - 1.3 "E_BK" of runia_core: in no paper, not offered.
