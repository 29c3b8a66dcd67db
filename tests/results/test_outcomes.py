"""What became of objects and boxes, against loops over every pair of boxes."""

from dataclasses import replace

import numpy as np
import polars
import pytest
from tests.oracles.matching import CONVENTIONS, is_ignored, match, overlap, reaches
from tests.oracles.openset import unknown_fates
from tests.oracles.scenes import UNKNOWN, Scene, random_scene

from incognita.metrics import open_set
from incognita.results.outcomes import BoxOutcome, ObjectOutcome, Outcomes, shares_by_confidence

HOW = CONVENTIONS["paper"]


def scene_of(seed: int) -> Scene:
    rng = np.random.default_rng(seed)
    return random_scene(rng, n_images=12, with_ties=False, unknown_names=("deer", "sofa"))


def box_table(scene: Scene, *, own_label: bool = False) -> polars.DataFrame:
    """Write detections as a run stores them: one called unknown still has its known class."""
    rows = [
        {
            "set": "odd", "group": "near", "image_id": str(d.image),
            **dict(zip(("x1", "y1", "x2", "y2"), d.xyxy, strict=True)),
            "width": d.size[0], "height": d.size[1],
            "predicted": (None if own_label else "known0") if d.label == UNKNOWN else d.label,
            "confidence": d.score, "unknown_score": float(place),
            "is_called_unknown": d.label == UNKNOWN,
        }
        for place, d in enumerate(scene.detections)
    ]  # fmt: skip
    return polars.DataFrame(rows, infer_schema_length=None)


def object_table(scene: Scene) -> polars.DataFrame:
    rows = []
    for truth in scene.truths:
        over = [d.score for d in scene.detections if overlaps(d, truth)]
        rows.append({
            "set": "odd", "group": "near", "image_id": str(truth.image),
            **dict(zip(("x1", "y1", "x2", "y2"), truth.xyxy, strict=True)),
            "width": truth.size[0], "height": truth.size[1], "object_class": truth.label,
            "superclass": truth.superclass, "role": "unknown" if truth.unknown else "known",
            "is_crowd": truth.crowd, "is_difficult": truth.difficult,
            "confidence": max(over, default=None),
        })  # fmt: skip
    return polars.DataFrame(rows, infer_schema_length=None)


def overlaps(detection, truth) -> bool:
    same = detection.image == truth.image
    return same and reaches(HOW, overlap(HOW, detection, truth), 0.5)


def outcomes_of(scene: Scene, **more) -> Outcomes:
    return Outcomes.of(box_table(scene, **more), object_table(scene), scene.known_labels)


def counts(outcomes) -> dict[str, int]:
    return {outcome: list(outcomes).count(outcome) for outcome in ObjectOutcome}


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("own_label", [False, True])
def test_unknown_objects_are_found_misnamed_or_undetected(seed, own_label):
    scene = scene_of(seed)
    rows = outcomes_of(scene, own_label=own_label).objects().filter(polars.col("role") == "unknown")
    found, expected = counts(rows["outcome"]), unknown_fates(scene)
    assert found[ObjectOutcome.FOUND] == expected.found
    assert found[ObjectOutcome.MISNAMED] == expected.misclassified
    assert found[ObjectOutcome.UNDETECTED] == expected.dismissed
    assert found[ObjectOutcome.UNMATCHED] == expected.outmatched
    assert expected.total == len(rows) > 0


@pytest.mark.parametrize("seed", range(4))
def test_known_objects_are_found_called_unknown_or_misnamed(seed):
    scene = scene_of(seed)
    rows = outcomes_of(scene).objects().filter(polars.col("role") == "known")
    right = set()
    for label in scene.known_labels:
        right |= match(scene, "paper", 0.5, label).found_truths
    expected = []
    for place, truth in enumerate(scene.truths):
        if truth.unknown or is_ignored("paper", truth):
            continue
        labels = {d.label for d in scene.detections if overlaps(d, truth)}
        if place in right:
            expected.append(ObjectOutcome.FOUND)
        elif UNKNOWN in labels:
            expected.append(ObjectOutcome.CALLED_UNKNOWN)
        elif labels - {truth.label}:
            expected.append(ObjectOutcome.MISNAMED)
        else:
            expected.append(ObjectOutcome.UNMATCHED if labels else ObjectOutcome.UNDETECTED)
    assert counts(rows["outcome"]) == counts(expected)


@pytest.mark.parametrize("seed", range(4))
def test_an_object_is_shown_with_the_most_confident_box_on_it(seed):
    scene = scene_of(seed)
    counted = [truth for truth in scene.truths if not is_ignored("paper", truth)]
    images = sorted(range(scene.n_images), key=str)  # the order of the table
    counted.sort(key=lambda truth: images.index(truth.image))
    rows = outcomes_of(scene).objects()
    for truth, row in zip(counted, rows.iter_rows(named=True), strict=True):
        over = [(d.score, k) for k, d in enumerate(scene.detections) if overlaps(d, truth)]
        if row["outcome"] == ObjectOutcome.MISNAMED:
            right = (UNKNOWN, truth.label)
            over = [(s, k) for s, k in over if scene.detections[k].label not in right]
            assert row["predicted"] == scene.detections[max(over)[1]].label
        assert row["unknown_score"] == (float(max(over)[1]) if over else None)


@pytest.mark.parametrize("seed", range(8))
def test_boxes_are_right_wrong_duplicate_or_background(seed):
    scene = scene_of(seed)
    expected = {}
    for one in match(scene, "paper", 0.5, None).ranked:
        detection = scene.detections[one.place]
        if one.status == "tp":
            truth = scene.truths[one.truth]
            called = detection.label == UNKNOWN
            right = called if truth.unknown else detection.label == truth.label
            wrong = BoxOutcome.KNOWN_AS_UNKNOWN if called else BoxOutcome.ANOTHER_CLASS
            wrong = BoxOutcome.UNKNOWN_AS_KNOWN if truth.unknown else wrong
            expected[one.place] = BoxOutcome.RIGHT if right else wrong
        elif one.status == "ignored":
            expected[one.place] = BoxOutcome.IGNORED
        else:
            over = any(overlaps(detection, truth) for truth in scene.truths)
            expected[one.place] = BoxOutcome.DUPLICATE if over else BoxOutcome.BACKGROUND
    rows = outcomes_of(scene).boxes()
    found = {int(place): rows["outcome"][k] for k, place in enumerate(rows["unknown_score"])}
    assert found == expected
    for row in rows.filter(polars.col("outcome") == BoxOutcome.DUPLICATE).iter_rows(named=True):
        box = scene.detections[int(row["unknown_score"])]
        assert row["on_class"] in {t.label for t in scene.truths if overlaps(box, t)}
    assert rows.filter(polars.col("outcome") == BoxOutcome.BACKGROUND)["on_class"].is_null().all()


def test_shares_move_with_the_confidence_threshold():
    scene = scene_of(1)
    rows = shares_by_confidence(outcomes_of(scene), [0.0, 0.3, 0.6, 0.9], scored_from=0.3)
    assert rows["misnamed"].is_null().to_list() == [True, False, False, False]
    for row in rows.iter_rows(named=True):
        kept = [d for d in scene.detections if d.score >= row["confidence"]]
        fates = unknown_fates(Scene(scene.n_images, kept, scene.truths, scene.known_labels))
        assert row["objects"] == fates.total
        assert row["undetected"] == pytest.approx(fates.dismissed / fates.total)
        if row["misnamed"] is not None:
            assert row["misnamed"] == pytest.approx(fates.misclassified / fates.total)
            assert row["missed"] == pytest.approx(1 - fates.found / fates.total)


def test_classes_of_one_name_in_two_roles_stay_apart():
    objects = object_table(scene_of(0)).with_columns(
        object_class=polars.lit("known0"), role=polars.lit("unknown")
    )
    boxes = box_table(scene_of(0)).with_columns(
        predicted=polars.lit("known0"), is_called_unknown=polars.lit(False)
    )
    rows = Outcomes.of(boxes, objects, ["known0"]).objects()
    assert set(rows["outcome"]) == {ObjectOutcome.MISNAMED, ObjectOutcome.UNDETECTED}
    assert Outcomes.of(boxes, objects.with_columns(role=polars.lit("ignored")), ["known0"]
                       ).objects().is_empty()  # fmt: skip


@pytest.mark.parametrize("most", [1, 7, 1_000_000])
def test_pairs_of_boxes_and_objects_do_not_depend_on_the_parts(most, monkeypatch):
    monkeypatch.setattr(open_set, "MOST_PAIRS", most)
    scene = scene_of(2)
    outcomes = outcomes_of(scene)
    boxes = [int(score) for score in outcomes.box_rows["unknown_score"]]
    images = sorted(range(scene.n_images), key=str)
    truths = sorted(scene.truths, key=lambda truth: images.index(truth.image))
    found = {(boxes[b], int(o)) for b, o in zip(*outcomes.pairs, strict=True)}
    assert found == {
        (k, j)
        for k, detection in enumerate(scene.detections)
        for j, truth in enumerate(truths)
        if detection.image == truth.image
        and reaches(HOW, overlap(HOW, detection, replace(truth, crowd=False)), 0.5)
    }


def test_a_run_without_boxes_or_objects_has_outcomes():
    scene = scene_of(0)
    boxes, objects = box_table(scene), object_table(scene)
    nothing = Outcomes.of(boxes.clear(), objects, scene.known_labels)
    assert set(nothing.objects()["outcome"]) == {ObjectOutcome.UNDETECTED}
    alone = Outcomes.of(boxes, objects.clear(), scene.known_labels)
    assert set(alone.boxes()["outcome"]) == {BoxOutcome.BACKGROUND}
    assert alone.objects().is_empty()
