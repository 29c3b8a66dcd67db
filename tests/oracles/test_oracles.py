"""The references themselves are tested: against other evaluators, and against sums done by hand."""

import contextlib
import io
import math
import warnings
from dataclasses import replace

import numpy as np
import pytest
from sklearn.metrics import roc_curve
from tests.oracles import awareness, boxes, calibration, lrp, matching, openset
from tests.oracles.scenes import (
    UNKNOWN,
    Detection,
    Scene,
    Truth,
    category_id,
    found,
    image_id,
    random_scene,
    real,
    to_coco,
    to_containers,
)

SEEDS = range(12)
FAR = (400.0, 400.0, 10.0, 10.0)  # where nothing is


def many_cases(seed: int, **changes: object) -> Scene:
    rng = np.random.default_rng(seed)
    options = {
        "n_images": int(rng.integers(3, 10)),
        "n_known": int(rng.integers(2, 5)),
        "with_ties": seed % 3 != 0,
        "with_empty_images": seed % 4 != 0,
        "classes_without_truth": seed % 3,
        "n_background": float(rng.choice([0.5, 3.0, 8.0])),
    }
    return random_scene(rng, **{**options, **changes})


def at(x: float, share: float = 1.0) -> tuple[float, float, float, float]:
    """A box at x of 10 pixels, or its upper part: its IoU with the whole is the share."""
    return (x, 0.0, 10.0, 10.0 * share)


def one_image(
    detections: list[Detection], truths: list[Truth], known: str = "abcd", **more: object
) -> Scene:
    return Scene(1, detections, truths, list(known), **more)


# --- COCO: three evaluators, one number -----------------------------------------------------------


def pycocotools_numbers(scene: Scene, labels: list[str | None]) -> list[float]:
    from pycocotools.coco import COCO
    from pycocotools.cocoeval import COCOeval

    truth, results = to_coco(scene)
    with contextlib.redirect_stdout(io.StringIO()):
        coco = COCO()
        coco.dataset = truth
        coco.createIndex()
        return _stats(COCOeval(coco, coco.loadRes(results), "bbox"), scene, labels)


def faster_numbers(scene: Scene, labels: list[str | None]) -> list[float]:
    from faster_coco_eval import COCO, COCOeval_faster

    truth, results = to_coco(scene)
    coco = COCO(truth)
    return _stats(COCOeval_faster(coco, coco.loadRes(results), "bbox"), scene, labels)


def _stats(evaluator: object, scene: Scene, labels: list[str | None]) -> list[float]:
    evaluator.params.useCats = int(labels != [None])
    if labels != [None]:
        evaluator.params.catIds = [category_id(scene, label) for label in labels]
    evaluator.evaluate()
    evaluator.accumulate()
    evaluator.summarize()
    return [math.nan if value == -1 else float(value) for value in evaluator.stats[:12]]


@pytest.mark.parametrize("numbers_of", [pycocotools_numbers, faster_numbers])
@pytest.mark.parametrize("seed", SEEDS)
def test_the_twelve_coco_numbers_equal_those_of_other_evaluators(numbers_of, seed):
    scene = many_cases(seed)
    for labels in (scene.labels, scene.known_labels):
        ours = list(boxes.coco_numbers(scene, labels).values())
        np.testing.assert_allclose(ours, numbers_of(scene, labels), rtol=0, atol=1e-12)


@pytest.mark.parametrize("numbers_of", [pycocotools_numbers, faster_numbers])
@pytest.mark.parametrize("seed", SEEDS)
def test_class_agnostic_numbers_equal_those_of_other_evaluators(numbers_of, seed):
    scene = many_cases(seed)
    theirs = numbers_of(scene, [None])
    ours = list(boxes.coco_numbers(scene, [None]).values())
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-12)
    assert boxes.ap_all(scene) == pytest.approx(theirs[1], abs=1e-12, nan_ok=True)


def test_only_the_first_hundred_detections_of_an_image_count_in_coco():
    scene = random_scene(np.random.default_rng(5), n_images=2, n_known=1, n_background=300)
    per_image = [[d.image for d in scene.detections].count(image) for image in range(2)]
    assert max(per_image) > 200
    for labels in (scene.labels, [None]):
        ours = list(boxes.coco_numbers(scene, labels).values())
        theirs = pycocotools_numbers(scene, labels)
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-12)


@pytest.mark.parametrize("seed", SEEDS)
def test_difficult_objects_are_ignored_in_the_paper_convention_like_those_of_the_wrong_size(seed):
    scene = many_cases(seed)
    huge = [replace(t, area=1e11 if t.difficult else t.area) for t in scene.truths]
    disguised = replace(scene, truths=huge)  # pycocotools ignores objects above 1e10
    theirs = pycocotools_numbers(disguised, scene.known_labels)
    assert boxes.map_known(scene, "paper") == pytest.approx(theirs[1], abs=1e-12, nan_ok=True)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("convention", matching.CONVENTIONS)
def test_no_object_is_found_twice_and_no_detection_is_lost(convention, seed):
    scene = many_cases(seed)
    annotated = {t.image for t in scene.truths}
    for label in (*scene.labels, None):
        result = matching.match(scene, convention, 0.5, label)
        tps = [each.truth for each in result.ranked if each.status == "tp"]
        assert len(tps) == len(set(tps)) <= result.n_truth
        scores = [each.score for each in result.ranked]
        assert scores == sorted(scores, reverse=True)
        places = {i for i, d in enumerate(scene.detections) if label in (None, d.label)}
        assert {each.place for each in result.ranked} == places
        if convention == "fmiyc":
            status = {each.place: each.status for each in result.ranked}
            unseen = {i for i in places if scene.detections[i].image not in annotated}
            assert all(status[i] == "ignored" for i in unseen)


# --- conventions by hand --------------------------------------------------------------------------


def test_an_overlap_of_exactly_the_threshold_matches_in_coco_only():
    # Continuous: 50 / 100. With +1 a box 0..9 has 10 pixels and 0..4 has 5: again 50 / 100.
    whole, half = Truth(0, (0.0, 0.0, 10.0, 10.0), "a"), found(0, (0.0, 0.0, 10.0, 5.0), 0.9, "a")
    assert matching.match(one_image([half], [whole]), "coco", 0.5, "a").ranked[0].status == "tp"
    whole = Truth(0, (0.0, 0.0, 9.0, 9.0), "a")
    half = Detection(0, (0.0, 0.0, 9.0, 4.0), 0.9, "a")
    assert matching.match(one_image([half], [whole]), "voc", 0.5, "a").ranked[0].status == "fp"


def test_a_detection_whose_best_object_is_taken_gets_the_next_one_in_coco_but_not_in_voc():
    truths = [real(0, at(0), "a"), real(0, at(1), "a")]
    scene = one_image([found(0, at(0), 0.9, "a"), found(0, at(0), 0.8, "a")], truths)
    assert len(matching.match(scene, "coco", 0.5, "a").found_truths) == 2
    assert len(matching.match(scene, "voc", 0.5, "a").found_truths) == 1


def test_of_equal_overlaps_coco_takes_the_later_object_and_voc_the_first():
    scene = one_image([found(0, at(0), 0.9, "a")], [real(0, at(0), "a"), real(0, at(0), "a")])
    assert matching.match(scene, "coco", 0.5, "a").found_truths == {1}
    assert matching.match(scene, "voc", 0.5, "a").found_truths == {0}


def test_owod_and_fmiyc_shift_and_round_boxes_before_they_compare_them():
    truth = real(0, (3.7, 0.0, 10.0, 10.0), "a")
    detection = Detection(0, (3.74, 0.0, 13.66, 10.0), 0.9, "a")
    how = matching.CONVENTIONS["owod"]
    assert matching.read_detection(how, detection) == (4.7, 1.0, 13.7, 10.0)
    assert matching.read_truth(how, truth) == (4.0, 1.0, 14.0, 11.0)
    # Detection 10 x 10 inside truth 11 x 11.
    assert matching.overlap(how, detection, truth) == pytest.approx(100 / 121)
    # Truth as it is: 3.7..13.7 and 0..10, also 11 x 11, with the detection inside.
    how = matching.CONVENTIONS["fmiyc"]
    assert matching.read_truth(how, truth) == truth.xyxy
    assert matching.overlap(how, detection, truth) == pytest.approx(100 / 121)


def test_scores_that_are_equal_at_three_decimals_keep_the_order_of_the_list_in_owod():
    detections = [found(0, FAR, 0.12345, "a"), found(0, at(0), 0.12349, "a")]
    scene = one_image(detections, [real(0, at(0), "a")])
    assert [each.place for each in matching.match(scene, "owod", 0.5, "a").ranked] == [0, 1]
    assert [each.place for each in matching.match(scene, "voc", 0.5, "a").ranked] == [1, 0]


@pytest.mark.parametrize(
    ("convention", "n_crowd", "n_difficult"),
    [("coco", 0, 1), ("paper", 0, 0), ("voc", 0, 0), ("owod", 1, 0), ("fmiyc", 1, 1)],
)
def test_conventions_ask_for_different_objects(convention, n_crowd, n_difficult):
    crowd, difficult = real(0, at(0), "a", crowd=True), real(0, at(0), "a", difficult=True)
    assert matching.match(one_image([], [crowd]), convention, 0.5, "a").n_truth == n_crowd
    assert matching.match(one_image([], [difficult]), convention, 0.5, "a").n_truth == n_difficult


def test_a_crowd_takes_many_detections_by_their_share_inside_it():
    crowd = real(0, (0.0, 0.0, 100.0, 100.0), "a", crowd=True)
    small = [found(0, at(x), 0.9, "a") for x in (0.0, 20.0, 40.0)]  # IoU 0.01, share 1
    scene = one_image(small, [crowd])
    assert {e.status for e in matching.match(scene, "coco", 0.5, "a").ranked} == {"ignored"}
    assert {e.status for e in matching.match(scene, "voc", 0.5, "a").ranked} == {"fp"}


def test_fmiyc_drops_detections_on_images_without_annotation():
    detections = [found(0, at(0), 0.5, "a"), found(1, at(0), 0.9, "a")]
    scene = Scene(2, detections, [real(0, at(0), "a")], ["a"])
    assert boxes.map_known(scene, "fmiyc") == 1.0
    assert boxes.map_known(scene, "owod") == 0.5


# --- average precision by hand --------------------------------------------------------------------


def test_the_three_average_precisions_of_right_wrong_right():
    # Of 3 objects: right, wrong, right. Recall 1/3, 1/3, 2/3; best precision 1, 2/3, 2/3.
    detections = [found(0, at(0), 0.9, "a"), found(0, FAR, 0.8, "a"), found(0, at(20), 0.7, "a")]
    scene = one_image(detections, [real(0, at(x), "a") for x in (0, 20, 40)])
    result = matching.match(scene, "coco", 0.5, "a")
    assert boxes.average_precision(result, "area") == pytest.approx(1 / 3 + 1 / 3 * 2 / 3)
    # Recalls 0, .1, .2, .3 have precision 1; .4, .5, .6 have 2/3; the other 4 have 0.
    assert boxes.average_precision(result, "11") == pytest.approx((4 + 3 * 2 / 3) / 11)
    # Recalls 0 to .33 are 34 points, .34 to .66 are 33.
    assert boxes.average_precision(result, "101") == pytest.approx((34 + 33 * 2 / 3) / 101)


@pytest.mark.parametrize(
    ("protocol", "detected", "silent"),
    [
        ("coco", math.nan, math.nan),
        ("paper", math.nan, math.nan),
        ("owod", math.nan, 0.0),
        ("owdetr", 0.0, 0.0),
        ("voc07", 0.0, 0.0),
        ("fmiyc", 0.0, 0.0),
    ],
)
def test_each_protocol_has_its_own_value_for_a_class_without_objects(protocol, detected, silent):
    found_a = [found(0, at(0), 0.9, "a")]
    scene = one_image([*found_a, found(0, FAR, 0.5, "b")], [real(0, at(0), "a")], known="abc")
    np.testing.assert_equal(boxes.class_ap(scene, protocol, "b"), detected)
    np.testing.assert_equal(boxes.class_ap(scene, protocol, "c"), silent)
    means = {"coco": 1.0, "paper": 1.0, "owod": math.nan}
    assert boxes.map_known(scene, protocol) == pytest.approx(
        means.get(protocol, 1 / 3), nan_ok=True
    )


def test_ap_sc_accepts_a_known_label_of_the_same_superclass_on_pure_unknown_images():
    unknown = [
        real(0, at(0), UNKNOWN, superclass="vehicle"),
        real(0, at(20), UNKNOWN, superclass="animal"),
        real(0, at(40), UNKNOWN),
        real(1, at(0), UNKNOWN, superclass="vehicle"),  # image 1 has a known object too
        real(1, at(20), "car"),
    ]
    detections = [
        found(0, at(0), 0.9, "car"),  # right
        found(0, at(20), 0.8, "car"),  # wrong super-class
        found(0, at(20), 0.7, UNKNOWN),  # right
        found(0, at(40), 0.6, "cat"),  # the object has no super-class
        found(0, at(0), 0.5, UNKNOWN),  # taken
        found(0, at(40, 0.5), 0.4, UNKNOWN),  # IoU is 0.5, not above
        found(1, at(0), 0.3, UNKNOWN),  # not a pure image
    ]
    superclass_of = {"car": "vehicle", "cat": "animal"}
    scene = Scene(2, detections, unknown, ["car", "cat"], superclass_of)
    # Of 3 objects: right, wrong, right, then only wrong: 1/3 * 1 + 1/3 * 2/3.
    assert boxes.ap_superclass(scene) == pytest.approx(5 / 9)


def test_splits_hold_images_with_one_kind_of_object():
    truths = [real(0, at(0), "a"), real(1, at(0), UNKNOWN), real(2, at(0), "a")]
    truths.append(real(2, at(0), "deer", unknown=True))
    scene = Scene(4, [], truths, ["a"])
    assert boxes.split_images(scene, "all") == [0, 1, 2, 3]
    assert boxes.split_images(scene, "known-only") == [0]
    assert boxes.split_images(scene, "unknown-only") == [1]


# --- open set by hand -----------------------------------------------------------------------------


def test_open_set_errors_by_detections_and_by_objects_differ():
    truths = [real(0, at(x), UNKNOWN) for x in (0, 20, 40, 60, 60)]
    detections = [
        *[found(0, at(0), score, "a") for score in (0.9, 0.8, 0.7)],  # three times on the first,
        found(0, at(0), 0.6, UNKNOWN),  # which is found all the same
        found(0, at(20), 0.5, "b"),  # the second is misclassified, the third dismissed
        found(0, at(60), 0.4, UNKNOWN),  # one of the last two is found, the other outmatched
    ]
    scene = one_image(detections, truths)
    assert openset.unknown_fates(scene) == openset.UnknownFates(2, 1, 1, 1)
    assert openset.aose_by_detections(scene, "owod") == 4
    assert openset.nose_by_detections(scene, "fmiyc") == 4 / 5
    assert openset.aose_by_objects(scene) == 1
    assert openset.nose_by_objects(scene) == 1 / 5
    assert openset.overlooked_unknowns(scene) == 1 / 5
    assert boxes.recall_unknown(scene, "paper") == 2 / 5
    assert boxes.precision_unknown(scene, "paper") == 1.0
    assert openset.silent_images(replace(scene, n_images=4)) == 3 / 4


def wild_scene() -> Scene:
    truths = [real(0, at(0), "a"), real(0, at(20), "a"), real(0, at(40), "b"), real(0, at(60), "d")]
    truths += [real(0, at(80), UNKNOWN)]
    detections = [
        found(0, at(0), 0.9, "a"),  # right: recall 1/2
        found(0, at(80), 0.8, "a"),  # on the unknown
        found(0, at(20), 0.7, "a"),  # right: recall 1
        found(0, FAR, 0.6, "a"),
        found(0, at(80), 0.9, "b"),  # on the unknown
        found(0, at(40), 0.8, "b"),  # right: recall 1
        found(0, FAR, 0.9, "c"),  # c has no object
        found(0, at(80), 0.8, "c"),
    ]
    return one_image(detections, truths)


def test_wilderness_impact_of_owod_is_a_ratio_of_means_at_the_nearest_recall():
    # Recall of a: 1/2 1/2 1 1, nearest to 0.8 is the third place: 1 on unknown of 3 detections.
    # Recall of b: 0 1, the second place: 1 of 2. c has no recall, the first place: 0 of 1.
    # d has no detection. (1 + 1 + 0) / (3 + 2 + 1).
    assert openset.wilderness_impact_owod(wild_scene(), "owod", 0.8) == pytest.approx(2 / 6)


def test_wilderness_impact_of_dhamija_compares_two_precisions():
    # Best precision at recall 0.8 or more. Open: a 2/3, b 1/2, d 0. Without the detections on the
    # unknown: a 1, b 1, d 0. Ratio 2 / (7/6) = 12/7.
    assert openset.wilderness_impact_dhamija(wild_scene(), 0.8) == pytest.approx(5 / 7)


def test_wilderness_impact_of_dhamija_by_images_adds_the_images_with_unknown_objects_only():
    truths = [real(0, at(0), "a"), real(1, at(0), UNKNOWN), real(2, at(0), "a")]
    truths.append(real(2, at(0), UNKNOWN))
    detections = [found(0, at(0), 0.5, "a"), found(1, FAR, 0.9, "a"), found(2, FAR, 0.9, "a")]
    scene = Scene(3, detections, truths, ["a"])
    # Image 0 alone: precision 1. With image 1: 1/2. Image 2 has both kinds and is left out.
    assert openset.wilderness_impact_dhamija(scene, 0.5, closed="images") == pytest.approx(1.0)


# --- LRP by hand ----------------------------------------------------------------------------------


def lrp_scene(*more: Detection) -> Scene:
    detections = [found(0, at(0, 0.8), 0.9, "a"), found(0, FAR, 0.8, "a")]
    detections += [found(0, at(20, 0.9), 0.7, "a"), *more]
    return one_image(detections, [real(0, at(x), "a") for x in (0, 20, 40)], known="a")


def test_lrp_adds_up_localisation_false_and_missed_objects():
    # 2 right with IoU 0.8 and 0.9, 1 wrong, 1 missed, tau 1/2: (0.3 / 0.5 + 1 + 1) / 4 = 0.65.
    error = lrp.class_lrps(lrp_scene(), 0.5)["a"]
    assert error.error == pytest.approx(0.65)
    assert error.localisation == pytest.approx(0.15)
    assert error.false_positives == pytest.approx(1 / 3)
    assert error.false_negatives == pytest.approx(1 / 3)


def test_the_optimal_lrp_may_end_inside_a_tie_only_if_list_positions_count():
    # After 1: (0.4 + 2) / 3 = 0.8. After 2: (0.4 + 1 + 2) / 4 = 0.85. After 3: 0.65.
    # After 4, a wrong one of the same score as the third: (0.6 + 2 + 1) / 5 = 0.72.
    scene = lrp_scene(found(0, FAR, 0.7, "a"))
    anywhere = lrp.class_optimal_lrps(scene, 0.5, "any")["a"]
    at_ties = lrp.class_optimal_lrps(scene, 0.5, "ties")["a"]
    assert (anywhere.error, anywhere.threshold) == (pytest.approx(0.65), 0.7)
    assert (at_ties.error, at_ties.threshold) == (pytest.approx(0.72), 0.7)


@pytest.mark.parametrize("tau", [0.0, 0.1, 0.5])
@pytest.mark.parametrize("seed", SEEDS)
def test_keeping_scores_from_the_threshold_on_reproduces_the_optimal_lrp(seed, tau):
    scene = many_cases(seed)
    for label, best in lrp.class_optimal_lrps(scene, tau, "ties").items():
        if math.isnan(best.threshold):
            continue
        kept = [d for d in scene.detections if d.label != label or d.score >= best.threshold]
        again = lrp.class_lrps(replace(scene, detections=kept), tau)[label]
        assert replace(again, threshold=best.threshold) == best


def test_lrp_of_classes_without_objects_or_without_right_detections():
    detections = [found(0, FAR, 0.9, "a"), found(0, FAR, 0.9, "b")]
    scene = one_image(detections, [real(0, at(0), "a"), real(0, at(20), "c")], known="abc")
    optimal = lrp.class_optimal_lrps(scene, 0.5, "any")
    np.testing.assert_equal(vars(optimal["a"]), vars(lrp.Lrp(1.0, math.nan, math.nan, 1.0)))
    np.testing.assert_equal(vars(optimal["b"]), vars(lrp.UNDEFINED))
    np.testing.assert_equal(vars(optimal["c"]), vars(lrp.Lrp(1.0, math.nan, math.nan, 1.0)))
    given = lrp.class_lrps(scene, 0.5)
    np.testing.assert_equal(vars(given["a"]), vars(lrp.Lrp(1.0, math.nan, 1.0, 1.0)))
    overall = lrp.mean_lrp(list(given.values()))
    np.testing.assert_equal(vars(overall), vars(lrp.Lrp(1.0, math.nan, 1.0, 1.0)))


def test_with_tau_zero_an_object_far_away_is_a_match_without_overlap():
    scene = one_image([found(0, FAR, 0.9, "a")], [real(0, at(0), "a")], known="a")
    # One right detection with IoU 0: (1 - 0) / 1 over 1.
    error = lrp.class_lrps(scene, 0.0)["a"]
    assert (error.error, error.localisation, error.false_negatives) == (1.0, 1.0, 0.0)


# --- calibration by hand --------------------------------------------------------------------------


def test_the_three_laece_differ_on_score_one_and_on_special_classes():
    detections = [
        found(0, at(0, 0.8), 0.9, "a"),  # right, IoU 0.8
        found(0, FAR, 0.91, "a"),  # wrong, same bin: [0.88, 0.92)
        found(0, at(20, 0.7), 1.0, "a"),  # right, IoU 0.7
        found(0, FAR, 0.5, "b"),  # b has no object, c no detection
        found(0, at(60, 0.5), 0.5, "d"),  # perfect
    ]
    truths = [real(0, at(x), label) for x, label in ((0, "a"), (20, "a"), (40, "c"), (60, "d"))]
    scene = one_image(detections, truths)
    # a: 2/3 |0.905 - 0.8 / 2| + 1/3 |1 - 0.7| = 0.33667 + 0.1; SAOD has no bin for 1.0: 0.33667.
    full, cut = 2 / 3 * 0.505 + 0.1, 2 / 3 * 0.505
    assert calibration.class_laece(scene, "a", "paper") == pytest.approx(full)
    assert calibration.class_laece(scene, "a", "saod") == pytest.approx(cut)
    # a, b (0.5) and d (0); then all four; then a alone.
    assert calibration.laece(scene, "paper") == pytest.approx((full + 0.5 + 0) / 3)
    assert calibration.laece(scene, "saod") == pytest.approx((cut + 0 + 0 + 0) / 4)
    assert calibration.laece(scene, "detection-calibration", 0.1) == pytest.approx(full)
    # LaACE of a: (0.1 + 0.91 + 0.3) / 3.
    each = (0.1 + 0.91 + 0.3) / 3
    assert calibration.laace(scene, "paper") == pytest.approx((each + 0.5 + 0) / 3)
    assert calibration.laace(scene, "detection-calibration", 0.1) == pytest.approx(each)


def test_ignored_detections_count_only_in_the_laace_of_detection_calibration():
    truths = [real(0, at(0), "a"), real(0, (200.0, 0.0, 50.0, 50.0), "a", crowd=True)]
    detections = [found(0, at(0), 0.9, "a"), found(0, at(200), 0.6, "a")]
    scene = one_image(detections, truths, known="a")
    assert calibration.laace(scene, "paper") == pytest.approx(0.1)
    assert calibration.laace(scene, "detection-calibration") == pytest.approx((0.1 + 0.6) / 2)
    for mode in ("paper", "saod", "detection-calibration"):
        assert calibration.laece(scene, mode) == pytest.approx(0.1)


def test_bins_close_on_different_sides():
    assert [calibration.bin_closed_below(s, 10) for s in (0.0, 0.5, 1.0)] == [0, 5, None]
    assert [calibration.bin_closed_at_end(s, 10) for s in (0.0, 0.5, 1.0)] == [0, 5, 9]
    assert [calibration.bin_closed_above(s, 10) for s in (0.0, 0.5, 1.0)] == [0, 4, 9]


@pytest.mark.parametrize("seed", SEEDS)
def test_calibration_errors_equal_those_of_netcal(seed):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from netcal.metrics import ECE

        scores, right = calibration.pooled(many_cases(seed, n_images=10))
        theirs = ECE(10, detection=True).measure(np.array(scores), np.array(right, dtype=int))
        assert calibration.ece(scores, right) == pytest.approx(theirs, abs=1e-12)

        rng = np.random.default_rng(seed)
        probabilities = rng.dirichlet(np.ones(4) * 0.5, 60)
        labels = rng.integers(0, 4, 60)
        theirs = ECE(15).measure(probabilities, labels)
        is_right = probabilities.argmax(axis=1) == labels
        ours = calibration.ece(probabilities.max(axis=1).tolist(), is_right.tolist(), 15)
        assert ours == pytest.approx(theirs, abs=1e-12)


def test_brier_is_the_mean_squared_distance():
    # (0.2^2 + 0.5^2) / 2.
    assert calibration.brier([0.8, 0.5], [True, False]) == pytest.approx(0.145)


# --- image level by hand --------------------------------------------------------------------------


def test_image_uncertainties_are_summed_averaged_or_taken_from_the_surest():
    values = [0.4, 0.1, 0.3, 0.2]
    uncertainty = awareness.image_uncertainty
    assert uncertainty(values, "sum") == pytest.approx(1.0)
    assert uncertainty(values, "mean") == pytest.approx(0.25)
    assert uncertainty(values, "top", 3) == pytest.approx(0.2)
    assert uncertainty(values[:2], "top", 3) == pytest.approx(0.25)
    assert uncertainty(values, "min") == 0.1
    assert uncertainty([], "mean") == 1e12


def test_balanced_accuracy_at_the_threshold_and_one_point_later():
    known, unknown = [0.1, 0.2, 0.3, 0.6], [0.4, 0.5, 0.7, 0.8]
    # Accept up to 0.4: TPR 3/4, TNR 3/4.
    assert awareness.balanced_accuracy(known, unknown, 0.4) == pytest.approx(0.75)
    # The code goes to the next kept point, 0.5: TPR 3/4, TNR 1/2, 2 * 3/8 / (5/4) = 0.6.
    assert awareness.balanced_accuracy_saod(known, unknown, 0.4) == pytest.approx(0.6)
    # No image is above 0.8.
    assert awareness.balanced_accuracy_saod(known, unknown, 0.8) == 0.0
    # Up to 0.3: TPR 3/4, TNR 1, 2 * 3/4 / (7/4) = 6/7, the best of all.
    assert awareness.best_threshold(known, unknown) == 0.3
    assert awareness.best_threshold_saod(known, unknown) == 0.3


@pytest.mark.parametrize("seed", SEEDS)
def test_the_kept_points_are_those_of_scikit_learn(seed):
    rng = np.random.default_rng(seed)
    known, unknown = rng.random(12).round(1) * 0.8, rng.random(15).round(1)
    labels, values = np.r_[np.ones(12), np.zeros(15)], np.r_[known, unknown]
    _, _, thresholds = roc_curve(labels, -values)
    ours = awareness.roc_thresholds(known.tolist(), unknown.tolist())
    assert ours == (-thresholds).tolist()


@pytest.mark.parametrize(  # SAOD tables 6 and A.16, in per cent
    ("published", "rates", "quality", "shifted"),
    [
        ((39.7, 87.7, 38.5, 26.2), (94.7, 81.6), (74.9, 17.3), (84.4, 18.1)),
        ((41.2, 88.9, 39.7, 27.5), (92.8, 85.3), (73.9, 17.1), (83.5, 17.8)),
        ((41.4, 87.8, 39.7, 27.8), (93.1, 83.0), (74.0, 16.6), (83.2, 18.2)),
        ((43.5, 88.9, 41.7, 29.6), (90.0, 87.8), (72.3, 16.4), (81.9, 17.9)),
        ((43.0, 91.0, 41.5, 28.8), (94.1, 88.2), (73.1, 9.5), (83.0, 7.2)),
        ((44.7, 85.8, 43.5, 30.8), (95.9, 77.6), (71.5, 8.8), (81.5, 6.8)),
    ],
)
def test_the_published_qualities_follow_from_their_parts(published, rates, quality, shifted):
    daq, ba, idq, idq_shifted = published
    assert 100 * awareness.harmonic_mean(*(r / 100 for r in rates)) == pytest.approx(ba, abs=0.11)
    assert 100 * awareness.idq(*(q / 100 for q in quality)) == pytest.approx(idq, abs=0.11)
    assert 100 * awareness.idq(*(q / 100 for q in shifted)) == pytest.approx(idq_shifted, abs=0.11)
    assert 100 * awareness.daq(ba / 100, idq / 100, idq_shifted / 100) == pytest.approx(
        daq, abs=0.11
    )


def test_qualities_are_zero_if_a_part_is_zero():
    # 1 / (0.5 / 0.25 + 0.5 / 0.8) = 0.38095; 3 / (1 / 0.9 + 1 / 0.4 + 1 / 0.3) = 0.432.
    assert awareness.idq(0.75, 0.2) == pytest.approx(0.380952, abs=1e-6)
    assert awareness.daq(0.9, 0.4, 0.3) == pytest.approx(0.432)
    assert awareness.idq(1.0, 0.2) == 0.0
    assert awareness.daq(0.0, 0.5, 0.5) == 0.0


# --- formats --------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
def test_a_scene_keeps_everything_in_the_containers(seed):
    scene = many_cases(seed, unknown_names=(UNKNOWN, "deer", "fox"))
    detections, truth = to_containers(scene)
    assert truth.image_ids.tolist() == [image_id(i) for i in range(scene.n_images)]
    names = truth.classes.names
    rows = [
        (int(image), tuple(xyxy), names[label], bool(crowd), bool(difficult), bool(unknown))
        for image, xyxy, label, crowd, difficult, unknown in zip(
            truth.image_index,
            truth.xyxy.tolist(),
            truth.class_ids,
            truth.is_crowd,
            truth.is_difficult,
            truth.is_unknown,
            strict=True,
        )
    ]
    assert rows == [
        (t.image, t.xyxy, t.label, t.crowd, t.difficult, t.unknown) for t in scene.truths
    ]
    assert truth.superclasses.tolist() == [t.superclass for t in scene.truths]
    assert truth.areas.tolist() == [t.area for t in scene.truths]
    assert detections.confidence.tolist() == [d.score for d in scene.detections]
    assert [names[i] for i in detections.class_ids] == [d.label for d in scene.detections]
    assert detections.sizes.tolist() == [list(d.size) for d in scene.detections]
