"""What must not change a box metric, and in which direction others may move it.

Every metric of a certificate is held against every property; `property_cases.TRAITS` says which
of them it has.
"""

import math
from dataclasses import replace

import numpy as np
import pytest
from tests.metrics.property_cases import (
    CONTINUOUS,
    OPEN_SET,
    PIXELS,
    RANKING,
    SEEDS,
    TRAITS,
    WRITTEN,
    Trait,
    assert_same,
    by_key,
    certified,
    certified_as_it_is,
    keys_with,
    measured,
    untied_scene,
    with_boxes,
    with_scores,
)
from tests.metrics.test_detection import repeat_images
from tests.oracles.scenes import UNKNOWN, Scene, found, real, to_containers

from incognita.evaluation.certify import certify
from incognita.metrics import conventions
from incognita.metrics.catalog import BOX_METRICS
from incognita.metrics.matching import match
from incognita.metrics.open_set import (
    NAN_CLASS,
    NO_KNOWN_OBJECT,
    SPLITS,
    open_set_error_by_detections,
    open_set_error_by_objects,
    overlap_unknown,
)
from incognita.metrics.ranking import RANKING_METRICS


def test_every_metric_is_classified():
    results = certified_as_it_is(0)
    assert {metric for metric, _, _ in results} == set(TRAITS)
    assert set(TRAITS) == set(BOX_METRICS)
    assert {convention for _, convention, _ in results} == CONTINUOUS | PIXELS
    assert set(RANKING_METRICS) == RANKING


# --- what changes nothing -------------------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
def test_the_order_of_images_does_not_matter(seed):
    scene = untied_scene(seed)
    number = np.random.default_rng(seed).permutation(scene.n_images).tolist()
    detections = [replace(d, image=number[d.image]) for d in scene.detections]
    truths = [replace(t, image=number[t.image]) for t in scene.truths]
    shuffled = replace(scene, detections=detections, truths=truths)
    assert_same(certified_as_it_is(seed), certified(shuffled))


@pytest.mark.parametrize("seed", SEEDS)
def test_the_order_of_detections_does_not_matter_where_confidences_differ(seed):
    scene = untied_scene(seed)
    shuffled = list(scene.detections)
    np.random.default_rng(seed).shuffle(shuffled)
    assert_same(certified_as_it_is(seed), certified(replace(scene, detections=shuffled)))


@pytest.mark.parametrize("seed", SEEDS)
def test_the_order_of_known_classes_does_not_matter(seed):
    scene = untied_scene(seed)
    turned = replace(scene, known_labels=scene.known_labels[::-1])
    ours, others = (certify(*to_containers(s)[::-1], n_resamples=0) for s in (scene, turned))
    assert_same(by_key(ours), by_key(others))
    assert [each.as_json() for each in ours.thresholds] == [
        each.as_json() for each in others.thresholds[::-1]
    ]


def test_the_order_of_classes_decides_in_ap_all_between_objects_of_equal_overlap():
    # The one exception, and that of pycocotools without categories: of equal overlaps the object of
    # the later class is taken. The first detection overlaps both objects by 9/11, the second, by
    # 7/13, that of class a alone: right and right, or right and wrong at 51 of 101 recalls.
    truths = [real(0, (10, 0, 10, 10), "a"), real(0, (12, 0, 10, 10), "b")]
    detections = [found(0, (11, 0, 10, 10), 0.9, "a"), found(0, (7, 0, 10, 10), 0.8, "a")]
    for known, expected in ((["a", "b"], 1.0), (["b", "a"], 51 / 101)):
        ap_all = measured(Scene(1, detections, truths, known))["ap_all", "coco"]
        assert ap_all.value == pytest.approx(expected)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_names_of_unknown_classes_do_not_matter(seed):
    scene = untied_scene(seed, unknown_names=("deer", "fox", UNKNOWN))
    truths = [replace(t, label=UNKNOWN) if t.unknown else t for t in scene.truths]
    assert_same(certified(scene), certified(replace(scene, truths=truths)))


RISING = {
    "a constant": lambda score: score + 0.25,
    "a factor": lambda score: 40 * score - 3,
    "squares": lambda score: round(1000 * score) ** 2 / 1000,
}


@pytest.mark.parametrize("name", RISING)
@pytest.mark.parametrize("seed", SEEDS)
def test_a_rising_map_of_the_confidences_changes_nothing_but_calibration(seed, name):
    scene = untied_scene(seed)
    before, after = certified_as_it_is(seed), certified(with_scores(scene, RISING[name]))
    assert_same(before, after, keys_with(before, Trait.ORDER), tolerance=0)
    reason = after["laece", "paper", "all"].reason
    assert reason.startswith("confidences must be between 0 and 1")


@pytest.mark.parametrize("seed", SEEDS)
def test_where_confidences_are_not_written_to_a_file_any_rising_map_will_do(seed):
    scene = untied_scene(seed)
    before, after = (
        certified_as_it_is(seed),
        certified(with_scores(scene, lambda s: math.exp(-1 / s))),
    )
    keys = [key for key in keys_with(before, Trait.ORDER) if key[1] not in WRITTEN]
    assert_same(before, after, keys, tolerance=0)


@pytest.mark.parametrize("seed", SEEDS)
def test_moving_all_boxes_by_whole_pixels_changes_nothing_in_any_convention(seed):
    scene = untied_scene(seed)
    moved = with_boxes(scene, lambda b: (b[0] + 37, b[1] + 5, b[2] + 37, b[3] + 5))
    assert_same(certified_as_it_is(seed), certified(moved), tolerance=0)


@pytest.mark.parametrize("seed", SEEDS)
def test_doubling_all_coordinates_changes_nothing_but_sizes_where_boxes_are_continuous(seed):
    scene = untied_scene(seed)
    doubled = with_boxes(scene, lambda b: tuple(2 * x for x in b), area=4.0)
    before = certified_as_it_is(seed)
    keys = [k for k in before if k[1] in CONTINUOUS and Trait.SIZED not in TRAITS[k[0]]]
    assert_same(before, certified(doubled), keys, tolerance=0)


def test_a_pixel_more_matters_where_boxes_are_ranges_of_pixels():
    # 3 x 10 of 5 x 10 shared pixels, 0.6; doubled 5 x 19 of 9 x 19, 0.56; in a continuous plane
    # 2 x 9 of 4 x 9, one half, and 4 x 18 of 8 x 18.
    detections = [found(0, (0.0, 0.0, 2.0, 9.0), 0.9, "a")]
    scene = Scene(1, detections, [real(0, (0.0, 0.0, 4.0, 9.0), "a")], ["a"])
    doubled = with_boxes(scene, lambda b: tuple(2 * x for x in b), area=4.0)
    tables = [match(*to_containers(s), convention=conventions.VOC) for s in (scene, doubled)]
    assert [table.iou[0] for table in tables] == pytest.approx([30 / 50, 95 / 171])


@pytest.mark.parametrize("seed", SEEDS)
def test_seeing_every_image_twice_changes_no_ratio_and_doubles_every_count(seed):
    # Both copies of a detection are right or both are wrong, and they stand side by side. Between
    # the two copies precision is never above that after both, so no envelope changes; LRP lies
    # between the values before and after both, so no minimum does.
    scene = untied_scene(seed)
    once, twice = (
        certified_as_it_is(seed),
        certified(repeat_images(scene, np.full(scene.n_images, 2))),
    )
    assert_same(once, twice, keys_with(once, Trait.COPIES))
    counts = [key for key in once if BOX_METRICS[key[0]].is_count]
    assert_same(once, twice, counts, times=2)
    for key, result in once.items():
        for what, n in result.support.items():
            assert twice[key].support[what] == (n if what == "classes" else 2 * n), (key, what)


def test_seeing_every_image_twice_can_change_wilderness_impact():
    # Two objects, right (recall 1/2), right on an unknown as well (recall 1): 1 is nearest to 0.8,
    # 1 of 2. Twice: recalls 1/4 1/2 3/4 1, and 3/4 is nearest: 1 of 3.
    truths = [real(0, (0, 0, 10, 10), "a"), real(0, (20, 0, 10, 10), "a")]
    truths.append(real(0, (20, 0, 10, 10), UNKNOWN))
    detections = [found(0, (0, 0, 10, 10), 0.9, "a"), found(0, (20, 0, 10, 10), 0.8, "a")]
    scene = Scene(1, detections, truths, ["a"])
    key = ("wilderness_impact", "owod", "all")
    assert certified(scene)[key].value == pytest.approx(1 / 2)
    assert certified(repeat_images(scene, np.array([2])))[key].value == pytest.approx(1 / 3)


# --- what moves a metric one way ------------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
def test_a_detection_less_sure_than_all_others_never_lowers_ap_or_recall(seed):
    scene = untied_scene(seed)
    before = certified_as_it_is(seed)
    rng = np.random.default_rng(seed)
    for label in (UNKNOWN, scene.known_labels[seed % len(scene.known_labels)]):
        target = scene.truths[rng.integers(len(scene.truths))]
        last = found(target.image, (*target.xyxy[:2], *target.size), 0.001, label)
        after = certified(replace(scene, detections=[*scene.detections, last]))
        for key in keys_with(before, Trait.GROWS):
            if math.isnan(after[key].value) and key[0] == "map_known":
                # a class without objects now has a detection, which the OWOD code answers with NaN
                assert after[key].reason in (NAN_CLASS, NO_KNOWN_OBJECT), key
            elif not math.isnan(before[key].value):
                assert after[key].value >= before[key].value - 1e-12, key


@pytest.mark.parametrize("seed", SEEDS)
def test_finding_an_unknown_object_that_was_missed_raises_unknown_recall(seed):
    scene = untied_scene(seed)
    table = match(*to_containers(scene), convention=conventions.PAPER)
    is_unknown = table.is_counted_truth & (table.truth_labels == len(scene.known_labels))
    before = measured(scene, steps=OPEN_SET)
    for row in np.flatnonzero(is_unknown & ~table.is_found)[:4]:
        missed = scene.truths[row]
        score = 0.0005 if row % 2 else 0.9995  # the least sure of all, or the surest
        box = found(missed.image, (*missed.xyxy[:2], *missed.size), score, UNKNOWN)
        after = measured(replace(scene, detections=[*scene.detections, box]), steps=OPEN_SET)
        for convention in ("paper", "owod", "owdetr", "opendet", "fmiyc"):
            key = ("unknown_recall", convention)
            assert after[key].value >= before[key].value, key
        gain = after["unknown_recall", "paper"].value - before["unknown_recall", "paper"].value
        assert gain == pytest.approx(1 / is_unknown.sum(), abs=1e-12)


@pytest.mark.parametrize("seed", SEEDS)
def test_calling_a_detection_on_an_unknown_object_unknown_never_raises_the_open_set_error(seed):
    scene = untied_scene(seed)
    detections, truth = to_containers(scene)
    paper, owod = (
        overlap_unknown(detections, truth, convention=each).is_on_unknown
        for each in (conventions.PAPER, conventions.OWOD)
    )
    before = measured(scene, steps=OPEN_SET)
    errors = [key for key in before if key[0] in ("open_set_error", "normalized_open_set_error")]
    for row in np.flatnonzero(paper)[:6]:
        changed = list(scene.detections)
        changed[row] = replace(changed[row], label=UNKNOWN)
        after = measured(replace(scene, detections=changed), steps=OPEN_SET)
        for key in errors:
            assert after[key].value <= before[key].value, key
        for code in ("owod", "owdetr", "opendet"):
            key = ("open_set_error", code)
            assert after[key].value == before[key].value - owod[row]


# --- what bounds a metric -------------------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
def test_every_metric_stays_within_its_range(seed):
    for key, result in certified_as_it_is(seed).items():
        if math.isnan(result.value):
            continue
        assert result.value >= 0, key
        if Trait.SHARE in TRAITS[key[0]]:
            assert result.value <= 1 + 1e-12, key


@pytest.mark.parametrize("tau", [None, 0.0, 0.5, 0.9])
@pytest.mark.parametrize("seed", SEEDS)
def test_the_optimal_lrp_is_never_above_lrp(seed, tau):
    results = certified(untied_scene(seed), tau=tau)
    for metric, convention, split in results:
        if metric == "lrp" and not math.isnan(results[metric, convention, split].value):
            best = results["optimal_lrp", convention, split].value
            assert 0 <= best <= results[metric, convention, split].value + 1e-12 <= 1 + 2e-12


@pytest.mark.parametrize("tau", [0.1, 0.5])
@pytest.mark.parametrize("seed", SEEDS)
def test_lrp_follows_from_its_parts_where_there_is_one_class(seed, tau):
    results = certified(untied_scene(seed, n_known=1, classes_without_truth=0), tau=tau)
    checked = 0
    for rule in ("paper", "saod", "detection-calibration"):
        for split in SPLITS:
            total = results["lrp", rule, split]
            location, wrong, missed = (
                results[f"lrp_{part}", rule, split].value
                for part in ("localization", "false_positive", "false_negative")
            )
            if math.isnan(location):
                continue
            n = total.support["objects"]
            tp = n * (1 - missed)
            fp = tp * wrong / (1 - wrong)
            expected = (tp * location / (1 - tau) + fp + n - tp) / (n + fp)
            assert total.value == pytest.approx(expected, abs=1e-9)
            checked += 1
    assert checked


@pytest.mark.parametrize("seed", SEEDS)
def test_no_more_objects_are_mistaken_than_there_are(seed):
    results = certified_as_it_is(seed)
    for split in SPLITS:
        error = results["open_set_error", "paper", split]
        share = results["normalized_open_set_error", "paper", split]
        overlooked = results["unknown_objects_without_detection", "paper", split]
        found_share = results["unknown_recall", "paper", split]
        n = error.support["objects"]
        assert 0 <= error.value <= n
        if n:
            assert share.value == pytest.approx(error.value / n)
            # found, mistaken for known and overlooked exclude one another
            assert found_share.value + share.value + overlooked.value <= 1 + 1e-12


@pytest.mark.parametrize("seed", SEEDS)
def test_objects_are_not_mistaken_more_often_than_detections_where_objects_lie_apart(seed):
    scene = untied_scene(seed)
    apart: list = []
    for truth in scene.truths:
        if not truth.unknown or all(t.image != truth.image for t in apart if t.unknown):
            apart.append(truth)
    detections, truth = to_containers(replace(scene, truths=apart))
    table = match(detections, truth, convention=conventions.PAPER)
    overlaps = overlap_unknown(detections, truth, convention=conventions.PAPER)
    by_objects = open_set_error_by_objects(table, overlaps).value
    assert by_objects <= open_set_error_by_detections(table, overlaps).value


def test_one_detection_can_mistake_two_objects_in_one_place():
    # Two unknown objects in the same box, one detection of a known class: two objects, one
    # detection; so neither count bounds the other.
    truths = [real(0, (0, 0, 10, 10), UNKNOWN)] * 2
    scene = Scene(1, [found(0, (0, 0, 10, 10), 0.9, "a")], truths, ["a"])
    results = certified(scene)
    assert results["open_set_error", "paper", "all"].value == 2
    assert results["open_set_error", "owod", "all"].value == 1
