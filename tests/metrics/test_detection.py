"""COCO's numbers against pycocotools and faster-coco-eval, and average precision by every rule."""

import contextlib
import io
import math
from dataclasses import replace

import faster_coco_eval
import numpy as np
import pytest
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval
from tests.metrics.scene_cases import CASES, make_scene
from tests.oracles.scenes import Scene, random_scene, to_coco, to_containers

from incognita.metrics import conventions
from incognita.metrics.conventions import POINTS_11, POINTS_101
from incognita.metrics.detection import (
    COCO_AREAS,
    COCO_THRESHOLDS,
    coco_numbers,
    coco_numbers_of,
    label_average_precision,
)
from incognita.metrics.matching import match


def evaluate(scene: Scene, coco_class, evaluator_class) -> np.ndarray:
    """The twelve numbers of a COCO evaluator over the known classes, NaN instead of its -1."""
    dataset, results = to_coco(scene)
    with contextlib.redirect_stdout(io.StringIO()):
        truth = coco_class()
        truth.dataset = dataset
        truth.createIndex()
        known = truth.getCatIds(catNms=list(scene.known_labels))
        found = truth.loadRes(results) if results else coco_class()
        evaluator = evaluator_class(truth, found, "bbox")
        evaluator.params.catIds = sorted(known)
        evaluator.evaluate()
        evaluator.accumulate()
        evaluator.summarize()
    stats = np.array(evaluator.stats[:12], dtype=np.float64)
    return np.where(stats == -1, np.nan, stats)


@pytest.mark.parametrize(("kind", "seed"), CASES)
def test_the_twelve_numbers_equal_pycocotools_to_the_last_bit(kind, seed):
    scene = make_scene(kind, seed)
    ours = np.array(coco_numbers(*to_containers(scene)))
    np.testing.assert_array_equal(ours, evaluate(scene, COCO, COCOeval))


@pytest.mark.parametrize(("kind", "seed"), CASES[::3])
def test_the_twelve_numbers_equal_faster_coco_eval(kind, seed):
    scene = make_scene(kind, seed)
    ours = np.array(coco_numbers(*to_containers(scene)))
    expected = evaluate(scene, faster_coco_eval.COCO, faster_coco_eval.COCOeval_faster)
    np.testing.assert_allclose(ours, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("n_images", [1, 40, 150])
def test_the_twelve_numbers_equal_pycocotools_at_several_sizes(n_images):
    rng = np.random.default_rng(n_images)
    scene = random_scene(
        rng, n_images=n_images, n_known=8, with_ties=True, with_crowd=True, with_empty_images=True,
        classes_without_truth=2, n_background=12.0,
    )  # fmt: skip
    ours = np.array(coco_numbers(*to_containers(scene)))
    np.testing.assert_array_equal(ours, evaluate(scene, COCO, COCOeval))


def test_an_image_with_more_than_a_hundred_detections_is_cut_as_pycocotools_cuts_it():
    scene = random_scene(np.random.default_rng(3), n_images=2, n_known=1, n_background=250.0)
    ours = np.array(coco_numbers(*to_containers(scene)))
    np.testing.assert_array_equal(ours, evaluate(scene, COCO, COCOeval))


@pytest.mark.parametrize(("kind", "seed"), CASES)
def test_weighted_average_precision_with_ones_equals_the_exact_path(kind, seed):
    scene = make_scene(kind, seed)
    detections, truth = to_containers(scene)
    table = match(
        detections, truth, convention=conventions.COCO, thresholds=COCO_THRESHOLDS, areas=COCO_AREAS
    )
    n_known = len(scene.known_labels)
    for area, name in enumerate(("ap", "ap_small", "ap_medium", "ap_large")):
        values = label_average_precision(table, area=area).average_precision[:, :n_known]
        mean = values[~np.isnan(values)].mean() if (~np.isnan(values)).any() else math.nan
        expected = getattr(coco_numbers_of(table, n_known), name)
        np.testing.assert_allclose(mean, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("rule", [conventions.AREA, POINTS_101, POINTS_11], ids=lambda r: r.name)
@pytest.mark.parametrize("seed", range(5))
def test_weighting_images_equals_repeating_them(seed, rule):
    # distinct confidences: copies of one detection stand together, and the envelope over a run of
    # true positives is that at its end, so cutting a group of copies changes nothing
    scene = with_distinct_scores(make_scene("crowd", seed))
    counts = np.random.default_rng(seed).integers(0, 4, scene.n_images)
    weights = counts[:, None].astype(np.float32)
    table = match(*to_containers(scene), convention=conventions.PAPER)
    ours = label_average_precision(table, weights, rule=rule)
    repeated = to_containers(repeat_images(scene, counts))
    expected = label_average_precision(match(*repeated, convention=conventions.PAPER), rule=rule)
    for name in ("n_found", "n_counted", "n_truth", "average_precision"):
        np.testing.assert_allclose(getattr(ours, name), getattr(expected, name), atol=1e-12)


def with_distinct_scores(scene: Scene) -> Scene:
    """Give the same scene with confidences that all differ, in the order they had."""
    scores = [detection.score for detection in scene.detections]
    ranks = np.argsort(np.argsort(scores, kind="stable"))
    spread = (ranks + 1) / (len(scores) + 1)
    detections = [replace(d, score=float(s)) for d, s in zip(scene.detections, spread, strict=True)]
    return replace(scene, detections=detections)


def repeat_images(scene: Scene, counts: np.ndarray) -> Scene:
    """Give a scene in which every image appears as often as asked."""
    places = np.repeat(np.arange(scene.n_images), counts)
    detections = [
        replace(d, image=new)
        for new, old in enumerate(places)
        for d in scene.detections
        if d.image == old
    ]
    truths = [
        replace(t, image=new)
        for new, old in enumerate(places)
        for t in scene.truths
        if t.image == old
    ]
    return replace(scene, n_images=len(places), detections=detections, truths=truths)
