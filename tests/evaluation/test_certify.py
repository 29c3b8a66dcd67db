"""The certificate as a whole: every number it must hold, against the definitions."""

import dataclasses
import inspect
import json
import math
import tracemalloc

import numpy as np
import pytest
from tests.metrics.scene_cases import CASES, make_scene
from tests.oracles import boxes, calibration, lrp, openset
from tests.oracles.boxes import restrict, split_images
from tests.oracles.matching import match as slow_match
from tests.oracles.scenes import UNKNOWN, Scene, found, real, to_containers

import incognita
from incognita.containers.boxes import BoxTruth, Detections
from incognita.containers.classes import Classes, Role
from incognita.errors import InvalidDataError, UnknownNameError
from incognita.evaluation.certify import N_STEPS, certify
from incognita.metrics.measure import bootstrap_weights
from incognita.metrics.open_set import SPLITS
from incognita.results.result import Result

PUBLISHED = {
    "ap": {"coco"},
    "ap50": {"coco", "voc07"},
    "ap75": {"coco"},
    "map_known": {"paper", "voc07", "owod", "owdetr", "opendet", "fmiyc"},
    "unknown_ap": {"paper", "coco", "voc07", "owod", "owdetr", "opendet", "fmiyc"},
    "known_precision": {"owod", "owdetr", "opendet", "fmiyc"},
    "known_recall": {"owod", "owdetr", "opendet", "fmiyc"},
    "unknown_precision": {"paper", "owod", "owdetr", "opendet", "fmiyc"},
    "unknown_recall": {"paper", "owod", "owdetr", "opendet", "fmiyc"},
    "open_set_error": {"paper", "owod", "owdetr", "opendet", "fmiyc"},
    "normalized_open_set_error": {"paper", "fmiyc"},
    "wilderness_impact": {"owod", "owdetr", "opendet", "fmiyc"},
    "ap_all": {"paper", "coco"},
    "lrp": {"paper", "saod", "detection-calibration"},
    "lrp_localization": {"paper", "saod", "detection-calibration"},
    "lrp_false_positive": {"paper", "saod", "detection-calibration"},
    "lrp_false_negative": {"paper", "saod", "detection-calibration"},
    "optimal_lrp": {"paper", "saod", "detection-calibration"},
    "laece": {"paper", "saod", "detection-calibration"},
    "laace": {"paper", "detection-calibration"},
    "d_ece": {"paper", "detection-calibration"},
}


def expected(scene: Scene) -> dict[tuple[str, str], float]:
    """The slow definitions of one split, by metric and convention."""
    area = [boxes.average_precision(slow_match(scene, "paper", 0.5, label), "area")
            for label in scene.known_labels]  # fmt: skip
    unknown = slow_match(scene, "paper", 0.5, UNKNOWN)
    numbers = {
        ("map_known", "paper"): boxes.nan_mean(area),
        ("unknown_ap", "paper"): boxes.average_precision(unknown, "area"),
        ("unknown_recall", "paper"): boxes.recall_unknown(scene, "paper", 0.5),
        ("unknown_recall", "fmiyc"): boxes.recall_unknown(scene, "fmiyc", 0.5),
        ("unknown_precision", "opendet"): boxes.precision_unknown(scene, "owod", 0.5),
        ("unknown_precision", "owod"): boxes.precision_unknown(scene, "owod", 0.5),
        ("unknown_precision", "owdetr"): boxes.precision_unknown(scene, "owod", 0.5),
        ("open_set_error", "paper"): openset.aose_by_objects(scene),
        ("open_set_error", "owdetr"): openset.aose_by_detections(scene, "owod"),
        ("normalized_open_set_error", "fmiyc"): openset.nose_by_detections(scene, "fmiyc"),
        ("ap_all", "paper"): boxes.ap_all(scene, 0.5),
        ("ap", "coco"): boxes.coco_ap(scene, scene.known_labels),
        ("laece", "saod"): calibration.laece(scene, "saod"),
        ("laece", "detection-calibration"): calibration.laece(scene, "detection-calibration"),
        ("laace", "paper"): calibration.laace(scene, "paper"),
        ("d_ece", "detection-calibration"): calibration.detection_ece_of_toolbox(scene),
        ("images_without_detection", "paper"): openset.silent_images(scene),
        ("false_alarm_rate", "paper"): openset.false_alarms(scene),
    }
    for name, tau, convention in (("paper", 0.1, "paper"), ("saod", 0.1, "coco")):
        by_class = list(lrp.class_lrps(scene, tau, convention).values())
        mean = lrp.mean_lrp(by_class, skips_all_wrong=name != "paper")
        ends = "ties" if name == "paper" else "any"
        best = lrp.class_optimal_lrps(scene, tau, ends, convention)
        numbers["lrp", name] = mean.error
        numbers["lrp_false_positive", name] = mean.false_positives
        numbers["optimal_lrp", name] = lrp.mean_lrp(list(best.values())).error
    if any(not truth.unknown for truth in scene.truths):  # elsewhere ours are undefined
        for name, convention in (("owod", "owod"), ("owdetr", "owod"), ("fmiyc", "fmiyc")):
            numbers["known_precision", name] = openset.known_precision(scene, convention)
            numbers["known_recall", name] = openset.known_recall(scene, convention)
    return numbers


@pytest.mark.parametrize(("kind", "seed"), CASES[::2])
def test_every_split_of_a_certificate_equals_the_definitions_on_those_images(kind, seed):
    scene = make_scene(kind, seed)
    certificate = certify(*to_containers(scene)[::-1], n_resamples=0)
    for split in SPLITS:
        images = split_images(scene, split)
        if not images:
            continue
        shown = restrict(scene, images)
        has_known = any(not truth.unknown for truth in shown.truths)
        for (metric, convention), value in expected(shown).items():
            if (metric, convention) == ("laece", "saod") and not has_known:
                value = (
                    math.nan
                )  # the code's mean over classes without objects is 0; we say why not
            ours = certificate.get(metric, convention, split=split).value
            assert ours == pytest.approx(value, abs=1e-12, nan_ok=True), (metric, convention, split)


def test_superclass_ap_is_given_on_unknown_only_images_and_nowhere_else():
    scene = make_scene("all at once", 1)
    certificate = certify(*to_containers(scene)[::-1], n_resamples=0)
    ours = certificate.get("ap_superclass", split="unknown-only").value
    assert ours == pytest.approx(boxes.ap_superclass(scene, 0.5), abs=1e-12, nan_ok=True)
    sentence = "ap_superclass has no value in the convention 'paper' on the split 'all'"
    with pytest.raises(UnknownNameError, match=sentence):
        certificate.get("ap_superclass")
    with pytest.raises(UnknownNameError, match=r"ap has no value.*Conventions: coco"):
        certificate.get("ap")
    with pytest.raises(UnknownNameError, match="No metric is called 'app'"):
        certificate.get("app")


def test_a_certificate_holds_every_metric_in_every_convention_that_defines_it():
    certificate = certify(*to_containers(make_scene("plain", 0))[::-1], n_resamples=0)
    for split in SPLITS:
        given: dict[str, set[str]] = {}
        for result in certificate.results:
            if result.split == split:
                given.setdefault(result.metric, set()).add(result.convention)
        for metric, conventions in PUBLISHED.items():
            assert given[metric] == conventions, (metric, split)


def test_intervals_hold_the_value_and_are_the_same_for_the_same_seed():
    detections, truth = (repeated_images(b, 4) for b in to_containers(make_scene("all at once", 2)))
    first = certify(truth, detections, n_resamples=100, seed=5)
    again = certify(truth, detections, n_resamples=100, seed=5)
    other = certify(truth, detections, n_resamples=100, seed=6)
    assert all(same_record(a, b) for a, b in zip(first.results, again.results, strict=True))
    assert any(not same_record(a, b) for a, b in zip(first.results, other.results, strict=True))
    bounded = [r for r in first.results if not math.isnan(r.value) and not math.isnan(r.low)]
    assert len(bounded) > 50
    assert all(r.low <= r.value <= r.high for r in bounded)


def same_record(a: Result, b: Result) -> bool:
    return a.as_json() == b.as_json()


def test_the_json_of_a_certificate_is_strict_and_reads_back():
    certificate = certify(*to_containers(make_scene("plain", 1))[::-1], n_resamples=20)
    text = json.dumps(certificate.as_json(), allow_nan=False)
    records = json.loads(text)["results"]
    assert {"metric", "convention", "split", "value", "low", "high", "support"} <= set(records[0])
    for record, result in zip(records, certificate.results, strict=True):
        assert same_record(Result.from_json(record), result)
    undefined = [record for record in records if record["value"] is None]
    assert undefined
    assert all(record["reason"] for record in undefined)


def test_a_saved_certificate_replaces_the_old_one_whole(tmp_path):
    certificate = certify(*to_containers(make_scene("plain", 1))[::-1], n_resamples=0)
    path = tmp_path / "new folder" / "certificate.json"
    certificate.save(path)
    certificate.save(path)
    assert len(json.loads(path.read_text())["results"]) == len(certificate.results)
    assert [each.name for each in path.parent.iterdir()] == ["certificate.json"]


def test_thresholds_are_given_for_every_known_class():
    scene = make_scene("class without truth", 0)
    certificate = certify(*to_containers(scene)[::-1], n_resamples=0)
    slow = lrp.class_optimal_lrps(scene, 0.1, "ties", "paper")
    for each in certificate.thresholds:
        assert each.optimal_lrp == pytest.approx(slow[each.class_name].error, nan_ok=True)
    assert [each.class_name for each in certificate.thresholds] == list(scene.known_labels)


def test_a_score_floor_leaves_out_detections_before_anything_else():
    detections, truth = to_containers(make_scene("plain", 2))
    floor = float(np.median(detections.confidence))
    cut = certify(truth, detections, n_resamples=0, score_threshold=floor)
    by_hand = certify(truth, detections[detections.confidence >= floor], n_resamples=0)
    assert cut.get("lrp").value == by_hand.get("lrp").value
    assert cut.inputs["score_threshold"] == floor


def test_tau_changes_every_convention_and_is_recorded():
    detections, truth = to_containers(make_scene("plain", 2))
    own = certify(truth, detections, n_resamples=0)
    assert own.get("laece", "detection-calibration").parameters["tau"] == 0.0
    given = certify(truth, detections, n_resamples=0, tau=0.3)
    for convention in ("paper", "saod", "detection-calibration"):
        assert given.get("laece", convention).parameters["tau"] == 0.3


def test_a_detector_without_the_label_unknown_is_certified_with_a_note():
    scene = Scene(
        1,
        [found(0, (0, 0, 9, 9), 0.9, "a")],
        [real(0, (0, 0, 9, 9), "a"), real(0, (20, 0, 9, 9), UNKNOWN, unknown=True)],
        ["a"],
        {},
    )
    certificate = certify(*to_containers(scene)[::-1], n_resamples=0)
    assert certificate.get("unknown_recall").value == 0.0
    assert any("No detection has the label unknown" in note for note in certificate.notes)


def test_no_detection_at_all_is_valid():
    scene = Scene(2, [], [real(0, (0, 0, 9, 9), "a")], ["a"], {})
    certificate = certify(*to_containers(scene)[::-1], n_resamples=10)
    assert certificate.get("ap", "coco").value == 0.0
    assert certificate.get("images_without_detection").value == 1.0
    assert certificate.notes[0].startswith("There are no detections")


def test_detections_of_ignored_classes_are_set_aside_and_counted():
    classes = Classes(("a", "b"), (Role.KNOWN, Role.IGNORED))
    truth = BoxTruth([1], [0, 2], [[0, 0, 9, 9], [20, 0, 29, 9]], [0, 1], classes)
    boxes_found = [[0, 0, 9, 9], [20, 0, 29, 9], [50, 0, 59, 9]]
    detections = Detections([1], [0, 3], boxes_found, [0.5, 0.9, 0.8], [0, 1, 1], classes)
    certificate = certify(truth, detections, n_resamples=0)
    assert certificate.get("ap", "coco").value == pytest.approx(1.0)
    assert certificate.get("ap_all").value == pytest.approx(1.0)
    assert "2 detections of ignored classes were left out." in certificate.notes


def test_progress_is_told_step_by_step():
    told: list[str] = []
    certify(*to_containers(make_scene("plain", 0))[::-1], n_resamples=0, on_step=told.append)
    assert len(told) == N_STEPS
    assert told[0] == "all: closed set"


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"tau": 1.0}, "Expected tau from 0 to below 1, got 1.0"),
        ({"tau": -0.1}, "Expected tau from 0 to below 1, got -0.1"),
        ({"score_threshold": math.nan}, "Expected a finite score_threshold, got nan"),
        ({"n_resamples": -1}, "Expected n_resamples to be at least 0, got -1"),
    ],
)
def test_options_out_of_range_are_refused(options, sentence):
    with pytest.raises(InvalidDataError, match=sentence):
        certify(*to_containers(make_scene("plain", 0))[::-1], **({"n_resamples": 0} | options))


def test_a_truth_without_images_or_known_classes_is_refused():
    classes = Classes(("a",))
    with pytest.raises(InvalidDataError, match="truth with images, got none"):
        certify(BoxTruth.empty([], classes), Detections.empty([], classes))
    unknown = Classes(("a",), (Role.UNKNOWN,))
    with pytest.raises(InvalidDataError, match="Expected at least one known class"):
        certify(BoxTruth.empty([1], unknown), Detections.empty([1], unknown))


def test_certify_is_part_of_the_public_surface():
    assert incognita.certify is certify


def test_the_reliability_diagram_is_that_of_the_definition():
    scene = make_scene("plain", 4)
    certificate = certify(*to_containers(scene)[::-1], n_resamples=0)
    pairs = {label: slow_match(scene, "paper", 0.1, label).counted for label in scene.known_labels}
    for each in certificate.reliability:
        inside = {
            label: [m for m in rows if each.low <= m.score < each.high or m.score == each.high == 1]
            for label, rows in pairs.items()
        }
        assert each.detections == sum(len(rows) for rows in inside.values())
        means = [
            np.mean([calibration.target_of(m) for m in rows]) for rows in inside.values() if rows
        ]
        expected = np.mean(means) if means else math.nan
        assert each.quality == pytest.approx(expected, abs=1e-12, nan_ok=True)


def test_confidences_that_are_no_probabilities_have_no_reliability_diagram():
    scene = Scene(1, [found(0, (0, 0, 9, 9), 7.0, "a")], [real(0, (0, 0, 9, 9), "a")], ["a"], {})
    certificate = certify(*to_containers(scene)[::-1], n_resamples=0)
    assert certificate.reliability == ()
    assert "confidences must be between 0 and 1" in str(certificate.get("laece").reason)


def test_a_split_without_images_claims_nothing_and_one_image_no_certainty():
    scene = Scene(2, [found(0, (0, 0, 9, 9), 0.9, "a")], [real(0, (0, 0, 9, 9), "a")], ["a"], {})
    certificate = certify(*to_containers(scene)[::-1], n_resamples=20)
    for result in certificate.results:
        if result.split == "unknown-only":
            assert math.isnan(result.value)
            assert result.reason == "no image is in this split"
        if result.split == "known-only":  # one image
            assert math.isnan(result.low)
    assert certificate.get("ap", "coco", split="known-only").value == pytest.approx(1.0)


def test_what_public_codes_call_zero_without_any_known_object_is_undefined():
    scene = Scene(
        2,
        [found(0, (0, 0, 9, 9), 0.9, "a"), found(1, (0, 0, 9, 9), 0.9, "a")],
        [real(k, (0, 0, 9, 9), UNKNOWN, unknown=True) for k in range(2)],
        ["a"],
        {},
    )
    certificate = certify(*to_containers(scene)[::-1], n_resamples=0)
    for convention in ("voc07", "owod", "owdetr", "opendet", "fmiyc", "paper"):
        result = certificate.get("map_known", convention)
        assert math.isnan(result.value)
        assert result.reason == "no known object is in these images"


def test_other_things_than_detections_and_truth_are_refused():
    detections, truth = to_containers(make_scene("plain", 0))
    unchecked = inspect.unwrap(certify)  # the checks of the tests would be faster than ours
    with pytest.raises(InvalidDataError, match="the truth first and then the detections"):
        unchecked(detections, truth)
    with pytest.raises(InvalidDataError, match="Expected Detections or the path of a COCO file"):
        unchecked(truth, 3)
    with pytest.raises(InvalidDataError, match="Expected two files or two containers"):
        unchecked(truth, "found.json")
    with pytest.raises(InvalidDataError, match="need files, got containers"):
        unchecked(truth, detections, known=["car"])


def fading(n_rare: int, n_common: int = 20) -> tuple[BoxTruth, Detections]:
    """Make one object per image, found at confidence 0.5: many of class a, few of class b."""
    n = n_common + n_rare
    classes = Classes(("a", "b", "deer"), (Role.KNOWN, Role.KNOWN, Role.UNKNOWN))
    boxes = np.tile([0.0, 0.0, 9.0, 9.0], (n, 1))
    class_ids = (np.arange(n) >= n_common).astype(int)
    where = np.arange(n), np.arange(n + 1), boxes
    truth = BoxTruth(*where, class_ids, classes)
    return truth, Detections(*where, np.full(n, 0.5), class_ids, classes)


@pytest.mark.parametrize(
    ("metric", "convention", "value"),
    [
        ("map_known", "voc07", 1.0),
        ("map_known", "owod", 1.0),
        ("map_known", "owdetr", 1.0),
        ("map_known", "fmiyc", 1.0),
        ("known_recall", "owod", 1.0),
        ("known_precision", "fmiyc", 1.0),
        ("laece", "saod", 0.5),
        ("laece", "paper", 0.5),
    ],
)
def test_a_class_that_a_replicate_lost_is_left_out_instead_of_counting_zero(
    metric, convention, value
):
    # every class by itself has this value; without class b, which a third of the replicates miss,
    # the mean was half of it: 27.7 [7.2, 27.7]
    truth, found = fading(1)
    result = certify(truth, found, n_resamples=100).get(metric, convention)
    assert result.value == pytest.approx(value)
    assert (result.low, result.high) == pytest.approx((value, value))


def test_a_class_without_objects_in_the_data_still_counts_as_its_convention_says():
    truth, found = fading(0)  # class b has neither objects nor detections
    certificate = certify(truth, found, n_resamples=100)
    for convention, value in (("voc07", 0.5), ("fmiyc", 0.5), ("paper", 1.0)):
        result = certificate.get("map_known", convention)
        assert (result.value, result.low, result.high) == pytest.approx((value, value, value))
    assert certificate.get("laece", "saod").high == pytest.approx(0.25)


@pytest.mark.parametrize(("kind", "seed"), CASES[::4])
def test_an_interval_contains_its_value(kind, seed):
    detections, truth = to_containers(make_scene(kind, seed))
    repeated = repeated_images(truth, 4), repeated_images(detections, 4)
    results = certify(*repeated, n_resamples=60).results
    bounded = [result for result in results if not math.isnan(result.low)]
    assert bounded
    assert all(result.low <= result.value <= result.high for result in bounded)


def repeated_images(boxes: BoxTruth | Detections, n: int) -> BoxTruth | Detections:
    """The same images n times under other ids."""
    ids = np.arange(boxes.n_images)
    copies = [dataclasses.replace(boxes, image_ids=ids + k * len(ids)) for k in range(n)]
    return type(boxes).concatenate(copies)


def test_there_is_no_interval_below_ten_images_that_contribute():
    for n, has_interval in ((9, False), (10, True)):
        truth, found = fading(0, n)
        certificate = certify(truth, found, n_resamples=100)
        result = certificate.get("ap50", "coco")
        assert result.units == n
        assert math.isnan(result.low) != has_interval
        assert result.few == ("" if has_interval else " n=9")
        assert any("so few images contribute" in note for note in certificate.notes) != has_interval


def test_images_that_contribute_are_counted_for_each_side():
    truth, found = fading(3)
    certificate = certify(truth, found[np.arange(23) < 12], n_resamples=100)
    assert certificate.get("ap50", "coco").units == 23  # images with known objects
    assert certificate.get("laece").units == 12  # images with detections
    assert certificate.get("unknown_recall").units is not None
    assert certificate.get("open_set_error").units == 0
    assert math.isnan(certificate.get("open_set_error").low)


@pytest.mark.parametrize(
    ("n", "has_interval", "sentence"),
    [
        (1, False, "There are no intervals: the number of bootstrap replicates is 1,"),
        (9, False, "There are no intervals: the number of bootstrap replicates is 9,"),
        (20, True, "The intervals are rough: the number of bootstrap replicates is 20."),
        (100, True, None),
        (0, False, None),
    ],
)
def test_few_replicates_are_noted_and_one_makes_no_interval(n, has_interval, sentence):
    certificate = certify(*fading(3), n_resamples=n)
    assert math.isnan(certificate.get("ap50", "coco").low) != has_interval
    notes = [note for note in certificate.notes if "replicates" in note]
    assert [note.startswith(sentence or "") for note in notes] == [True] * (sentence is not None)


def test_wilderness_impact_is_read_at_the_recall_that_is_asked_for():
    # recall 0.5 after one detection, 1 after three, the second of them on an unknown object
    scene = Scene(
        1,
        [found(0, at(0), 0.9, "a"), found(0, at(40), 0.8, "a"), found(0, at(20), 0.7, "a")],
        [real(0, at(0), "a"), real(0, at(20), "a"), real(0, at(40), "deer", unknown=True)],
        ["a"],
    )
    containers = to_containers(scene)[::-1]
    for recall, value in ((0.5, 0.0), (0.8, 1 / 3), (1.0, 1 / 3)):
        result = certify(*containers, n_resamples=0, wi_recall=recall).get(
            "wilderness_impact", "owod"
        )
        assert result.value == pytest.approx(value)
        assert result.parameters == {"recall": recall}
        slow = openset.wilderness_impact_owod(scene, "owod", recall)
        assert result.value == pytest.approx(slow)
    with pytest.raises(InvalidDataError, match="Expected wi_recall above 0 and at most 1, got 0"):
        certify(*containers, wi_recall=0.0)


def at(x: float) -> tuple[float, float, float, float]:
    return (x, 0.0, 10.0, 10.0)


def test_images_without_a_box_cost_no_memory_and_still_count():
    n = 200_000
    classes = Classes(("car", "deer"), (Role.KNOWN, Role.UNKNOWN))
    offsets = np.minimum(np.arange(n + 1), 30)  # one object on each of the first thirty images
    boxes = np.tile([0.0, 0.0, 9.0, 9.0], (30, 1))
    truth = BoxTruth(np.arange(n), offsets, boxes, np.arange(30) % 2, classes)
    found = Detections(np.arange(1), [0, 1], boxes[:1], [0.9], [0], classes)
    tracemalloc.start()
    try:
        certificate = certify(truth, found, n_resamples=100)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 40e6  # one column of weights per replicate would be 80 MB
    silent = certificate.get("images_without_detection")
    assert silent.value == (n - 1) / n
    assert silent.support == {"images": n}
    assert silent.low < silent.value <= silent.high


def test_merging_images_without_a_box_changes_no_draw():
    rows = np.array([0, 1, 1, 2, 1])
    apart = bootstrap_weights(5, n_resamples=20, seed=3, keep=np.arange(5) != 3)
    merged = bootstrap_weights(5, n_resamples=20, seed=3, keep=np.arange(5) != 3, row_of_image=rows)
    together = np.stack([apart[rows == row].sum(axis=0) for row in range(3)])
    assert (merged == together).all()


def test_silent_images_and_odd_confidences_are_noted():
    scene = Scene(3, [found(0, (0, 0, 9, 9), 7.0, "a")], [real(0, (0, 0, 9, 9), "a")], ["a"], {})
    notes = " ".join(certify(*to_containers(scene)[::-1], n_resamples=0).notes)
    assert "2 of 3 images have no detection" in notes
    assert "Some confidences are outside 0 to 1" in notes


@pytest.mark.usefixtures("outside_tests")
@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"tau": "0.5"}, "Expected tau to be a number, got '0.5'."),
        ({"score_threshold": "0.5"}, "Expected score_threshold to be a number, got '0.5'."),
        ({"n_resamples": 1.5}, "Expected n_resamples to be a whole number, got 1.5."),
        ({"seed": "x"}, "Expected seed to be a whole number, got 'x'."),
        ({"seed": -1}, "Expected seed to be at least 0, got -1."),
    ],
)
def test_options_of_another_type_are_one_sentence(options, sentence):
    detections, truth = to_containers(make_scene("plain", 0))
    with pytest.raises(InvalidDataError) as caught:
        inspect.unwrap(certify)(truth, detections, **options)
    assert str(caught.value) == sentence
