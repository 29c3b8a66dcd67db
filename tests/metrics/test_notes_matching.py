"""Table 1.1 of the notes on detection, row by row: when a detection counts as having found a box.

Every test begins with the row it covers. Columns of that table and our conventions: COCO is `coco`
(and `paper`, which ignores difficult objects as well), OWOD and its copies are `owod`, FMIYC is
`fmiyc`; `voc` is the VOC development kit they all descend from.
"""

import math

import numpy as np
import pytest
from tests.oracles.scenes import Detection, Scene, Truth, found, real, to_containers

from incognita.containers.boxes import BoxTruth, Detections
from incognita.containers.classes import Classes
from incognita.errors import InvalidDataError
from incognita.evaluation.certify import Certificate, certify
from incognita.metrics.conventions import AREA, get_matching
from incognita.metrics.detection import label_average_precision
from incognita.metrics.matching import MatchTable, match
from incognita.metrics.measure import every_image_once
from incognita.metrics.open_set import unknown_recall

FAR = (400.0, 400.0, 10.0, 10.0)  # where nothing is


def at(x: float, share: float = 1.0) -> tuple[float, float, float, float]:
    """A box at x of 10 pixels, or its upper part, whose IoU with the whole is the share."""
    return (x, 0.0, 10.0, 10.0 * share)


def one_image(detections: list[Detection], truths: list[Truth], known: str = "a") -> Scene:
    return Scene(1, detections, truths, list(known))


def table_of(scene: Scene, convention: str, iou: float = 0.5) -> MatchTable:
    return match(*to_containers(scene), convention=get_matching(convention), thresholds=(iou,))


def verdicts(scene: Scene, convention: str) -> list[str]:
    """What became of each detection, in the order of the list."""
    table = table_of(scene, convention)
    names = np.where(table.is_true_positive(), "right", "wrong")
    return np.where(table.is_ignored(), "ignored", names).tolist()


def area_of_a(scene: Scene, convention: str) -> float:
    """The exact area under the precision-recall curve of the first class."""
    return float(
        label_average_precision(table_of(scene, convention), rule=AREA).average_precision[0, 0, 0]
    )


def certified(scene: Scene) -> Certificate:
    return certify(*to_containers(scene)[::-1], n_resamples=0)


# --- boxes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("convention", "expected"),
    [
        ("paper", 80 / 120),  # 8 x 10 shared, 100 + 100 - 80
        ("coco", 80 / 120),
        ("voc", 99 / 143),  # 0..10 is 11 pixels: 9 x 11 shared, 121 + 121 - 99
        ("owod", 90 / 131),  # (3 1 12 10) and (1 1 11 11): 9 x 10 shared, 100 + 121 - 90
        ("fmiyc", 80 / 141),  # (3 1 12 10) and (0 0 10 10): 8 x 10 shared, 100 + 121 - 80
    ],
)
def test_one_pair_of_boxes_has_another_iou_in_every_convention(convention, expected):
    # Rows "IoU area", "prediction written as" and "GT".
    scene = one_image(
        [Detection(0, (2.0, 0.0, 12.0, 10.0), 0.9, "a")], [Truth(0, (0.0, 0.0, 10.0, 10.0), "a")]
    )
    assert table_of(scene, convention).iou[0] == pytest.approx(expected, abs=1e-15)


@pytest.mark.parametrize(
    ("convention", "expected"),
    [
        ("paper", 99.4 / 100.4),  # 9.94 x 10 shared, 9.98 x 10 + 100 - 99.4
        ("voc", 120.34 / 121.44),  # 10.94 x 11 shared, 10.98 x 11 + 121 - 120.34
        ("owod", 99 / 121),  # (1.1 1.0 10.0 10.0) is 9.9 x 10, inside the 11 x 11 of the truth
        ("fmiyc", 99 / 121),
    ],
)
def test_predictions_are_shifted_by_one_and_written_with_one_decimal(convention, expected):
    # Row "prediction written as": raw floats, or xmin + 1, ymin + 1, xmax, ymax with one decimal.
    scene = one_image(
        [Detection(0, (0.06, 0.0, 10.04, 10.0), 0.9, "a")], [Truth(0, (0.0, 0.0, 10.0, 10.0), "a")]
    )
    assert table_of(scene, convention).iou[0] == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    ("convention", "expected"),
    [
        ("paper", [0.1234, 0.9996, 0.0005]),
        ("coco", [0.1234, 0.9996, 0.0005]),
        ("voc", [0.1234, 0.9996, 0.0005]),
        # 0.0005 is 0.0005000000000000000104 in binary and so is written as 0.001
        ("owod", [0.123, 1.0, 0.001]),
        ("fmiyc", [0.123, 1.0, 0.001]),
    ],
)
def test_confidences_are_written_with_three_decimals(convention, expected):
    # Row "prediction written as": the score has 3 decimals.
    detections = [found(0, FAR, score, "a") for score in (0.1234, 0.9996, 0.0005)]
    assert table_of(one_image(detections, []), convention).confidence.tolist() == expected


@pytest.mark.parametrize(
    ("convention", "expected"),
    [
        # int(3.7 + 1), int(0 + 1), int(13.2 + 1), int(10 + 1) = (4 1 14 11), which is 11 x 11;
        # the same box as a prediction is (4.7 1.0 13.2 10.0), 9.5 x 10, inside it
        ("owod", 95 / 121),
        # the truth as it is, 10.5 x 11; the prediction inside it as before
        ("fmiyc", 95 / 115.5),
    ],
)
def test_a_box_that_is_exactly_right_does_not_overlap_fully_in_the_public_codes(
    convention, expected
):
    # Row "GT": converters write int(x + 1), …, so xmax is one too large; FMIYC shifts nothing.
    xyxy = (3.7, 0.0, 13.2, 10.0)
    scene = one_image([Detection(0, xyxy, 0.9, "a")], [Truth(0, xyxy, "a")])
    assert table_of(scene, convention).iou[0] == pytest.approx(expected, abs=1e-12)
    assert table_of(scene, "paper").iou[0] == 1.0


# --- pairs ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("convention", "truth", "half", "is_right"),
    [
        ("paper", (0, 0, 10, 10), (0, 0, 10, 5), True),  # 50 / 100
        ("coco", (0, 0, 10, 10), (0, 0, 10, 5), True),
        ("voc", (0, 0, 9, 9), (0, 0, 9, 4), False),  # 10 x 5 of 10 x 10 pixels
        ("owod", (0, 0, 9, 9), (0, 0, 10, 5), False),  # (1 1 10 5) in (1 1 10 10)
        ("fmiyc", (1, 1, 10, 10), (0, 0, 10, 5), False),  # (1 1 10 5) in (1 1 10 10)
    ],
)
def test_an_iou_of_exactly_one_half_is_enough_for_coco_only(convention, truth, half, is_right):
    # Row "match test": IoU >= t, or IoU > 0.5.
    x1, y1, x2, y2 = half
    detections = [Detection(0, (x1, y1, x2, y2), 0.9, "a")]
    assert verdicts(one_image(detections, [Truth(0, truth, "a")]), convention) == [
        "right" if is_right else "wrong"
    ]
    more = [Detection(0, (x1, y1, x2, y2 + 1), 0.9, "a")]  # one row of pixels: IoU 0.6
    assert verdicts(one_image(more, [Truth(0, truth, "a")]), convention) == ["right"]


@pytest.mark.parametrize("convention", ["paper", "coco"])
def test_identical_boxes_match_at_a_threshold_of_one(convention):
    # Row "match test": `iou < min(t, 1 - 1e-10)` skips, so an IoU of 1 is never skipped.
    scene = one_image([found(0, at(0), 0.9, "a")], [real(0, at(0), "a")])
    assert table_of(scene, convention, 1.0).is_true_positive().tolist() == [True]


@pytest.mark.parametrize(
    ("convention", "expected"),
    [
        ("paper", ["right", "right"]),
        ("coco", ["right", "right"]),
        ("voc", ["right", "wrong"]),
        ("owod", ["right", "wrong"]),
        ("fmiyc", ["right", "wrong"]),
    ],
)
def test_a_second_detection_of_an_object_falls_back_on_the_next_best_in_coco_only(
    convention, expected
):
    # Row "which GT": the best object still free, or the single best; if taken the find is false.
    truths = [real(0, at(0), "a"), real(0, at(1), "a")]  # IoU 9 / 11 with the second
    scene = one_image([found(0, at(0), 0.9, "a"), found(0, at(0), 0.8, "a")], truths)
    assert verdicts(scene, convention) == expected
    if expected[1] == "right":
        assert table_of(scene, convention).iou.tolist() == pytest.approx([1.0, 9 / 11])


def test_an_object_that_counts_is_preferred_to_an_ignored_one_that_fits_better_in_coco():
    # Row "which GT": best still-unmatched non-ignored object.
    truths = [real(0, at(0), "a"), real(0, (0.0, 0.0, 100.0, 100.0), "a", crowd=True)]
    scene = one_image([found(0, at(0, 0.6), 0.9, "a")], truths)  # IoU 0.6, share in the crowd 1
    assert verdicts(scene, "coco") == ["right"]
    assert table_of(scene, "coco").iou[0] == pytest.approx(0.6)


@pytest.mark.parametrize(
    ("convention", "expected"),
    [("paper", 2), ("coco", 2), ("voc", 0), ("owod", 0), ("fmiyc", 0)],
)
def test_of_equal_overlaps_coco_takes_the_last_object_and_voc_the_first(convention, expected):
    # Row "which GT": equal IoU, the later one (COCO).
    scene = one_image([found(0, at(0), 0.9, "a")], [real(0, at(0), "a")] * 3)
    assert table_of(scene, convention).truth_index[0] == expected


@pytest.mark.parametrize(
    ("convention", "expected"),
    [("paper", 1.0), ("coco", 1.0), ("voc", 1.0), ("owod", 0.5), ("fmiyc", 0.5)],
)
def test_confidences_that_agree_to_three_decimals_keep_the_order_of_the_file(convention, expected):
    # Row "order": sorted on the score; ties at 3 decimals are common. np.argsort leaves their
    # order open in the public codes; ours is that of the file. Right first: AP 1; wrong first: 1/2.
    detections = [found(0, FAR, 0.12345, "a"), found(0, at(0), 0.12349, "a")]
    scene = one_image(detections, [real(0, at(0), "a")])
    assert area_of_a(scene, convention) == expected


def test_truth_of_voc_files_is_not_converted_again():
    # 1.1 "GT": VOC's XML counts whole pixels from 1, both ends inside. The object has the pixels 1
    # to 10; a detection of these pixels is 0 to 10 in continuous numbers, written as 1 to 10.
    truths, detections = [real(0, (1, 1, 9, 9), "a")], [found(0, (0, 0, 10, 10), 0.9, "a")]
    containers = to_containers(Scene(1, detections, truths, ["a"]))
    assert match(*containers, convention=get_matching("owod-xml")).iou.tolist() == [1.0]
    # as the converters treat truth in COCO's format: pixels 2 to 11
    assert match(*containers, convention=get_matching("owod")).iou.tolist() == [
        pytest.approx(81 / 119)
    ]


@pytest.mark.parametrize("convention", ["paper", "coco", "voc", "owod", "fmiyc"])
def test_equal_confidences_keep_the_order_of_the_images_and_of_the_file(convention):
    # Row "order": stable mergesort on -score. Both images have an object; the sequence is right
    # (image 0), wrong, right, wrong (image 1): 1/2 * 1 + 1/2 * 2/3.
    detections = [
        found(0, at(0), 0.5, "a"), found(0, FAR, 0.5, "a"),
        found(1, at(0), 0.5, "a"), found(1, FAR, 0.5, "a"),
    ]  # fmt: skip
    scene = Scene(2, detections, [real(0, at(0), "a"), real(1, at(0), "a")], ["a"])
    assert area_of_a(scene, convention) == pytest.approx(1 / 2 + 1 / 2 * 2 / 3)


# --- what asks to be found ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("convention", "n_crowd", "n_difficult"),
    [("paper", 0, 0), ("coco", 0, 1), ("voc", 0, 0), ("owod", 1, 0), ("fmiyc", 1, 1)],
)
def test_conventions_ask_for_different_objects(convention, n_crowd, n_difficult):
    # Row "crowd / difficult": how many such objects count in recall.
    for flags, expected in (({"crowd": True}, n_crowd), ({"difficult": True}, n_difficult)):
        table = table_of(one_image([], [real(0, at(0), "a", **flags)]), convention)
        assert table.n_truth(every_image_once(1))[0, 0] == expected


@pytest.mark.parametrize(
    ("convention", "on_crowd", "on_difficult"),
    [
        ("paper", "ignored", "ignored"),
        ("coco", "ignored", "right"),
        ("voc", "ignored", "ignored"),
        ("owod", "right", "ignored"),  # converters write difficult 0 for a crowd
        ("fmiyc", "right", "right"),  # neither flag is read
    ],
)
def test_a_detection_on_an_object_that_is_not_asked_for_is_neither_right_nor_wrong(
    convention, on_crowd, on_difficult
):
    # Row "crowd / difficult": what becomes of a detection that lies on such an object.
    for flags, expected in (({"crowd": True}, on_crowd), ({"difficult": True}, on_difficult)):
        scene = one_image([found(0, at(0), 0.9, "a")], [real(0, at(0), "a", **flags)])
        assert verdicts(scene, convention) == [expected]


@pytest.mark.parametrize(
    ("convention", "expected"),
    [("paper", "ignored"), ("coco", "ignored"), ("voc", "wrong"), ("owod", "wrong"),
     ("fmiyc", "wrong")],
)  # fmt: skip
def test_a_crowd_swallows_any_number_of_small_detections_in_coco_only(convention, expected):
    # Row "crowd / difficult": IoU with a crowd = inter / detection area, here 1; the IoU is 0.01.
    crowd = real(0, (0.0, 0.0, 100.0, 100.0), "a", crowd=True)
    small = [found(0, at(x), 0.9, "a") for x in (0.0, 20.0, 40.0)]
    assert verdicts(one_image(small, [crowd]), convention) == [expected] * 3


@pytest.mark.parametrize(
    ("convention", "expected"),
    [("paper", 0.5), ("coco", 0.5), ("voc", 0.5), ("owod", 0.5), ("fmiyc", 1.0)],
)
def test_detections_on_an_image_without_objects_are_wrong_except_in_fmiyc(convention, expected):
    # Row "image without GT": false positives; FMIYC drops them silently. The OWOD code raises a
    # KeyError there, for lack of an xml file; ours counts them as wrong.
    detections = [found(0, at(0), 0.5, "a"), found(1, at(0), 0.9, "a")]
    scene = Scene(2, detections, [real(0, at(0), "a")], ["a"])
    assert area_of_a(scene, convention) == expected


def test_repeated_image_ids_are_refused():
    # Row "repeated image id": the OWOD codes count such an image twice.
    classes = Classes(("a",))
    sentence = r"Image id 7 appears 2 times in {}; ids must be unique\."
    with pytest.raises(InvalidDataError, match=sentence.format("BoxTruth")):
        BoxTruth([7, 7], [0, 0, 0], np.zeros((0, 4)), [], classes)
    with pytest.raises(InvalidDataError, match=sentence.format("Detections")):
        Detections([7, 7], [0, 0, 0], np.zeros((0, 4)), [], [], classes)


# --- classes and caps -----------------------------------------------------------------------------


def absent_scene(*, b_is_detected: bool) -> Scene:
    """Class a is found, b and c have no object, and b may be detected."""
    detections = [found(0, at(0), 0.9, "a"), found(0, FAR, 0.5, "b")]
    kept = detections if b_is_detected else detections[:1]
    return one_image(kept, [real(0, at(0), "a")], known="abc")


@pytest.mark.parametrize(
    ("convention", "detected", "silent"),
    [
        ("paper", 1.0, 1.0),  # left out of the mean
        ("owod", math.nan, 1 / 3),  # NaN with detections, 0 without
        ("opendet", math.nan, 1 / 3),
        ("owdetr", 1 / 3, 1 / 3),  # 11 points: 0
        ("voc07", 1 / 3, 1 / 3),
        ("fmiyc", 1 / 3, 1 / 3),  # 0
    ],
)
def test_a_class_without_objects_has_another_share_in_every_mean_of_ap(
    convention, detected, silent
):
    # Row "class without GT", average precision; a has AP 1, b and c have no object.
    measured = certified(absent_scene(b_is_detected=True)).get("map_known", convention)
    assert measured.value == pytest.approx(detected, nan_ok=True)
    if math.isnan(detected):
        assert measured.reason == (
            "a known class has detections but no object, for which the public code gives NaN"
        )
    measured = certified(absent_scene(b_is_detected=False)).get("map_known", convention)
    assert measured.value == pytest.approx(silent)


def test_a_class_without_objects_is_left_out_of_coco_means_and_of_lrp():
    # Row "class without GT": left out of means (COCO: -1), LRP NaN (left out).
    certificate = certified(absent_scene(b_is_detected=True))
    for metric, convention, expected in (
        ("ap", "coco", 1.0), ("ar100", "coco", 1.0), ("lrp", "paper", 0.0), ("lrp", "saod", 0.0)
    ):  # fmt: skip
        result = certificate.get(metric, convention)
        assert result.value == pytest.approx(expected)
        assert result.support["classes"] == 1


def test_a_class_without_objects_counts_as_zero_in_the_laece_of_saod():
    # Row "class without GT": a has |0.9 - 1|, b, all of whose detections are wrong, |0.5 - 0|.
    certificate = certified(absent_scene(b_is_detected=True))
    assert certificate.get("laece", "paper").value == pytest.approx((0.1 + 0.5) / 2)
    assert certificate.get("laece", "saod").value == pytest.approx((0.1 + 0 + 0) / 3)
    assert certificate.get("laece", "detection-calibration").value == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("convention", "expected"),
    [("coco", 0.0), ("paper", 1 / 101), ("voc", 1 / 101), ("owod", 1 / 101), ("fmiyc", 1 / 101)],
)
def test_only_coco_stops_after_a_hundred_detections_of_an_image_and_class(convention, expected):
    # Row "maxDets": the 101st detection is the only right one: precision 1 / 101 at recall 1.
    detections = [found(0, FAR, 0.9 - k / 1000, "a") for k in range(100)]
    detections.append(found(0, at(0), 0.1, "a"))
    scene = one_image(detections, [real(0, at(0), "a")])
    assert area_of_a(scene, convention) == pytest.approx(expected)


def test_the_hundred_detections_of_coco_are_counted_class_by_class():
    # Row "maxDets": a hundred of another class use up nothing.
    detections = [found(0, FAR, 0.9 - k / 1000, "b") for k in range(100)]
    detections.append(found(0, at(0), 0.1, "a"))
    scene = one_image(detections, [real(0, at(0), "a")], known="ab")
    assert area_of_a(scene, "coco") == pytest.approx(1.0)


# Not tested:
# - the column of the Padilla toolbox (+1, IoU >= 0.5, single best): no convention reproduces it;
#   nothing published that incognita certifies was computed with it.
# - "DETR family: top-100 of Q x K before": what a detector keeps is decided before any metric, in
#   the adapters of a later issue.
# - repeated ids inside a file: tests/benchmarks/test_coco_reading.py.


def test_the_voc_family_refuses_ranges_of_areas():
    scene = Scene(1, [found(0, (0, 0, 9, 9), 0.5, "a")], [real(0, (0, 0, 9, 9), "a")], ["a"], {})
    detections, truth = to_containers(scene)
    with pytest.raises(
        InvalidDataError, match="The voc convention does not support ranges of areas, got 2"
    ):
        match(
            detections,
            truth,
            convention=get_matching("voc"),
            areas=np.array([[0.0, 10.0], [10.0, 1e10]]),
        )


def test_metrics_of_pairs_refuse_a_table_of_several_thresholds():
    scene = Scene(1, [found(0, (0, 0, 9, 9), 0.5, "a")], [real(0, (0, 0, 9, 9), "a")], ["a"], {})
    table = match(*to_containers(scene), thresholds=(0.5, 0.75))
    with pytest.raises(
        InvalidDataError, match="needs a table matched at one IoU threshold, but it"
    ):
        unknown_recall(table, 1)
