"""Open-set metrics against their slow definitions, under every convention."""

import math

import numpy as np
import pytest
from tests.metrics.scene_cases import CASES, make_scene
from tests.oracles import boxes, openset
from tests.oracles.matching import match as slow_match
from tests.oracles.scenes import UNKNOWN, found, real, to_containers

from incognita.metrics import conventions
from incognita.metrics.conventions import AREA, FMIYC_AREA, OWOD_AREA, POINTS_11, POINTS_101
from incognita.metrics.matching import match, match_superclasses
from incognita.metrics.open_set import (
    images_without_detection,
    mean_average_precision,
    normalized_open_set_error,
    open_set_error_by_detections,
    open_set_error_by_objects,
    overlap_unknown,
    unknown_average_precision,
    unknown_objects_without_detection,
    unknown_precision,
    unknown_recall,
    wilderness_impact,
    wilderness_ratio,
)

PROTOCOLS = {
    "coco": (conventions.COCO, POINTS_101),
    "paper": (conventions.PAPER, POINTS_101),
    "voc07": (conventions.VOC, POINTS_11),
    "owod": (conventions.OWOD, OWOD_AREA),
    "owdetr": (conventions.OWOD, POINTS_11),
    "fmiyc": (conventions.FMIYC, FMIYC_AREA),
}
MATCHINGS = ["paper", "coco", "voc", "owod", "fmiyc"]


def same(ours: float, expected: float) -> bool:
    return math.isclose(ours, expected, rel_tol=0, abs_tol=1e-12) or (
        math.isnan(ours) and math.isnan(expected)
    )


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize(("kind", "seed"), CASES)
def test_known_and_unknown_ap_equal_their_definitions(kind, seed, protocol):
    scene = make_scene(kind, seed)
    detections, truth = to_containers(scene)
    convention, rule = PROTOCOLS[protocol]
    table = match(detections, truth, convention=convention)
    n_known = len(scene.known_labels)
    ours = mean_average_precision(table, n_known, rule=rule)
    assert same(ours.value, boxes.map_known(scene, protocol, 0.5))
    unknown = unknown_average_precision(table, n_known, rule=rule)
    # a single class without objects is undefined; the 0 of the public codes belongs to their means
    expected = boxes.ap_unknown(scene, protocol, 0.5)
    has_unknown = slow_match(scene, convention.name, 0.5, UNKNOWN).n_truth > 0
    assert same(unknown.value, expected if has_unknown else math.nan)


@pytest.mark.parametrize(("kind", "seed"), CASES)
def test_paper_ap_is_the_exact_area(kind, seed):
    scene = make_scene(kind, seed)
    table = match(*to_containers(scene), convention=conventions.PAPER)
    ours = unknown_average_precision(table, len(scene.known_labels), rule=AREA)
    expected = boxes.average_precision(slow_match(scene, "paper", 0.5, UNKNOWN), "area")
    assert same(ours.value, expected)


@pytest.mark.parametrize("convention", MATCHINGS)
@pytest.mark.parametrize(("kind", "seed"), CASES)
def test_unknown_precision_and_recall_equal_their_definitions(kind, seed, convention):
    scene = make_scene(kind, seed)
    table = match(*to_containers(scene), convention=conventions.get_matching(convention))
    n_known = len(scene.known_labels)
    precision, recall = unknown_precision(table, n_known), unknown_recall(table, n_known)
    assert same(precision.value, boxes.precision_unknown(scene, convention, 0.5))
    assert same(recall.value, boxes.recall_unknown(scene, convention, 0.5))


@pytest.mark.parametrize("convention", ["voc", "owod", "fmiyc"])
@pytest.mark.parametrize(("kind", "seed"), CASES)
def test_open_set_error_by_detections_equals_its_definition(kind, seed, convention):
    scene = make_scene(kind, seed)
    detections, truth = to_containers(scene)
    rules = conventions.get_matching(convention)
    table = match(detections, truth, convention=rules)
    overlaps = overlap_unknown(detections, truth, convention=rules)
    error = open_set_error_by_detections(table, overlaps)
    assert error.value == openset.aose_by_detections(scene, convention)
    normalized = normalized_open_set_error(error, table, overlaps)
    assert same(normalized.value, openset.nose_by_detections(scene, convention))


@pytest.mark.parametrize(("kind", "seed"), CASES)
def test_fates_of_unknown_objects_equal_their_definitions(kind, seed):
    scene = make_scene(kind, seed)
    detections, truth = to_containers(scene)
    table = match(detections, truth, convention=conventions.PAPER)
    overlaps = overlap_unknown(detections, truth, convention=conventions.PAPER)
    fates = openset.unknown_fates(scene)
    error = open_set_error_by_objects(table, overlaps)
    assert error.value == fates.misclassified
    assert error.support["objects"] == fates.total
    silent = unknown_objects_without_detection(table, overlaps)
    assert same(silent.value, fates.dismissed / fates.total if fates.total else math.nan)
    normalized = normalized_open_set_error(error, table, overlaps)
    assert same(normalized.value, openset.nose_by_objects(scene))
    assert same(images_without_detection(table).value, openset.silent_images(scene))


@pytest.mark.parametrize("recall", [0.1, 0.5, 0.8])
@pytest.mark.parametrize(("kind", "seed"), CASES)
def test_wilderness_impact_equals_its_definition(kind, seed, recall):
    scene = make_scene(kind, seed)
    detections, truth = to_containers(scene)
    table = match(detections, truth, convention=conventions.OWOD)
    overlaps = overlap_unknown(detections, truth, convention=conventions.OWOD)
    ours = wilderness_impact(table, overlaps, len(scene.known_labels), recall=recall)
    assert same(ours.value, openset.wilderness_impact_owod(scene, recall=recall))


@pytest.mark.parametrize("recall", [0.1, 0.3, 0.5])
@pytest.mark.parametrize(("kind", "seed"), CASES)
def test_wilderness_ratio_equals_its_definition(kind, seed, recall):
    scene = make_scene(kind, seed)
    detections, truth = to_containers(scene)
    table = match(detections, truth, convention=conventions.PAPER)
    ours = wilderness_ratio(table, truth, recall=recall)
    assert same(ours.value, openset.wilderness_impact_dhamija(scene, recall, closed="images"))


@pytest.mark.parametrize(("kind", "seed"), CASES)
def test_ap_of_everything_as_one_class_equals_its_definition(kind, seed):
    scene = make_scene(kind, seed)
    table = match(*to_containers(scene), convention=conventions.COCO, class_wise=False)
    ours = mean_average_precision(table, 1, rule=POINTS_101)
    assert same(ours.value, boxes.ap_all(scene, 0.5))


@pytest.mark.parametrize(("kind", "seed"), CASES)
def test_superclass_ap_equals_its_definition_on_unknown_only_images(kind, seed):
    scene = make_scene(kind, seed)
    detections, truth = to_containers(scene)
    images = boxes.split_images(scene, "unknown-only")
    weights = np.zeros((scene.n_images, 1), np.float32)
    weights[sorted(images)] = 1
    ours = mean_average_precision(
        match_superclasses(detections, truth), 1, rule=AREA, weights=weights
    )
    assert same(ours.value, boxes.ap_superclass(scene, 0.5))


def test_an_object_hit_three_times_counts_three_by_detections_and_once_by_objects():
    detections = [found(0, (0, 0, 10, 10), score, "a") for score in (0.9, 0.8, 0.7)]
    scene = scene_of(detections, [real(0, (0, 0, 10, 10), UNKNOWN, unknown=True)])
    boxes_found, truth = to_containers(scene)
    paper = conventions.PAPER
    table = match(boxes_found, truth, convention=paper)
    overlaps = overlap_unknown(boxes_found, truth, convention=paper)
    assert open_set_error_by_objects(table, overlaps).value == 1
    by_detections = open_set_error_by_detections(table, overlaps)
    assert by_detections.value == 3
    assert normalized_open_set_error(by_detections, table, overlaps).value == 3.0


def test_an_object_found_as_unknown_is_no_open_set_error_by_objects():
    detections = [found(0, (0, 0, 10, 10), 0.9, "a"), found(0, (0, 0, 10, 10), 0.5, UNKNOWN)]
    scene = scene_of(detections, [real(0, (0, 0, 10, 10), UNKNOWN, unknown=True)])
    boxes_found, truth = to_containers(scene)
    table = match(boxes_found, truth, convention=conventions.PAPER)
    overlaps = overlap_unknown(boxes_found, truth, convention=conventions.PAPER)
    assert open_set_error_by_objects(table, overlaps).value == 0
    assert open_set_error_by_detections(table, overlaps).value == 1


def test_metrics_without_unknown_objects_or_detections_are_nan_with_a_reason():
    scene = scene_of([found(0, (0, 0, 10, 10), 0.9, "a")], [real(0, (0, 0, 10, 10), "a")])
    table = match(*to_containers(scene), convention=conventions.PAPER)
    recall, precision = unknown_recall(table, 1), unknown_precision(table, 1)
    assert math.isnan(recall.value)
    assert recall.reason == "no unknown object is in these images"
    assert math.isnan(precision.value)
    assert precision.reason == "no detection carries the label unknown"


def scene_of(detections, truths):
    from tests.oracles.scenes import Scene

    return Scene(1, detections, truths, ["a"], {})
