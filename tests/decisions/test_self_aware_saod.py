"""The convention `saod`: what the public code does, edge case by edge case (notes 1.5, 1.7, 4)."""

import math
from dataclasses import replace

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression
from sklearn.metrics import roc_curve
from tests.decisions.test_self_aware import OPTIONS, scenes
from tests.oracles import self_aware as oracle
from tests.oracles.scenes import Scene, found, random_scene, real, to_containers

from incognita.containers.boxes import Detections
from incognita.decisions import SelfAware, SelfAwareSettings, load_self_aware, save_self_aware
from incognita.errors import InvalidDataError, UnknownNameError

SAOD = SelfAwareSettings(convention="saod")
KINDS = [
    {},
    {"with_ties": True},
    {"with_crowd": True},
    {"with_ties": True, "classes_without_truth": 1},
    {"with_ties": True, "classes_without_detections": 1},
]


def fit(scene: Scene, copies: Scene, settings: SelfAwareSettings = SAOD) -> SelfAware:
    return SelfAware.fit(*to_containers(scene), to_containers(copies)[0], settings)


def rows_of(detections: Detections) -> list[tuple[int, list[float], float]]:
    columns = zip(
        detections.image_index.tolist(),
        detections.xyxy.tolist(),
        detections.confidence.tolist(),
        strict=True,
    )
    return sorted(columns)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("kind", KINDS)
def test_fit_and_use_follow_the_public_code(seed, kind) -> None:
    scene, copies = scenes(seed, **kind)
    rules = oracle.fit_saod(scene, copies)
    fitted = fit(scene, copies)
    assert fitted.image_threshold.value == pytest.approx(rules.u, rel=1e-12)
    in_use = [math.inf if math.isnan(v) else v for v in rules.v]
    assert fitted.confidence_threshold.per_class.tolist() == in_use
    fresh = random_scene(np.random.default_rng(seed + 99), **(OPTIONS | kind))
    fresh = replace(fresh, detections=[d for d in fresh.detections if d.label != "unknown"])
    for test_scene in (scene, fresh):
        accepted, boxes = oracle.use_saod(test_scene, rules)
        output = fitted.apply(to_containers(test_scene)[0])
        assert output.accepted.tolist() == accepted
        expected = sorted((d.image, list(d.xyxy), p) for d, p in boxes)
        measured = rows_of(output.detections)
        assert [row[:2] for row in measured] == [row[:2] for row in expected]
        np.testing.assert_allclose([m[2] for m in measured], [e[2] for e in expected], atol=1e-12)


@pytest.mark.parametrize("seed", range(20))
def test_u_is_the_point_of_sklearns_roc_curve(seed) -> None:
    scene, copies = scenes(seed, with_ties=True)
    fitted = fit(scene, copies)
    with_objects = sorted({t.image for t in scene.truths if not t.unknown})
    known = np.array(oracle.uncertainties(scene))[with_objects]
    unknown = np.array(oracle.uncertainties(copies))
    is_known = np.repeat([1, 0], [len(known), len(unknown)])
    fpr, tpr, thresholds = roc_curve(is_known, -np.concatenate([known, unknown]))
    both = 2 * tpr * (1 - fpr) / (tpr + 1 - fpr)
    u = fitted.image_threshold.value
    place = int(np.flatnonzero(np.isclose(-thresholds, u, rtol=1e-12))[0])  # it is a point
    assert both[place] == pytest.approx(both.max(), rel=1e-12)
    assert not np.isclose(both[:place], both.max(), rtol=1e-12).any()  # the first of equals


def line_of_images(values: list[float], counts: list[int], *, objects: bool) -> Scene:
    """One box per image, of which `counts` have the same uncertainty each."""
    confidence = [1 - value for value, n in zip(values, counts, strict=True) for _ in range(n)]
    box = (0.0, 0.0, 10.0, 10.0)
    truths = [real(k, box, "a") for k in range(len(confidence))] if objects else []
    return Scene(
        len(confidence), [found(k, box, p, "a") for k, p in enumerate(confidence)], truths, ["a"]
    )


def test_the_best_threshold_is_missed_where_it_is_a_collinear_point() -> None:
    unknown = line_of_images([0.1, 0.2, 0.3, 0.4], [0, 4, 4, 0], objects=False)
    known = line_of_images([0.1, 0.2, 0.3, 0.4], [1, 2, 2, 9], objects=True)
    coded, paper = fit(known, unknown), fit(known, unknown, SelfAwareSettings())
    # accepted 1, 3, 5 of 14 and rejected 8, 4, 0 of 8: the best, 0.2, lies on a line
    assert paper.image_threshold.value == pytest.approx(0.2)
    assert coded.image_threshold.value == pytest.approx(0.1)


def test_an_image_at_the_threshold_is_accepted_in_the_choice_and_rejected_in_use() -> None:
    known = line_of_images([0.1, 0.2], [3, 3], objects=True)
    unknown = line_of_images([0.7], [6], objects=False)
    coded, paper = fit(known, unknown), fit(known, unknown, SelfAwareSettings())
    assert coded.image_threshold.value == paper.image_threshold.value == pytest.approx(0.2)
    boxes = to_containers(known)[0]
    assert paper.apply(boxes).accepted.all()
    assert coded.apply(boxes).accepted.tolist() == [True] * 3 + [False] * 3
    assert coded.image_threshold.metadata["known_accepted"] == 0.5


@pytest.mark.parametrize("n", [3, 19, 20, 21, 40])
def test_the_baseline_takes_the_value_at_a_place_of_the_sorted_list(n) -> None:
    rng = np.random.default_rng(n)
    known = line_of_images(rng.random(n).tolist(), [1] * n, objects=True)
    settings = replace(SAOD, image_threshold="quantile(share=0.95)")
    fitted = SelfAware.fit(*to_containers(known), None, settings)
    values = oracle.uncertainties(known)
    assert fitted.image_threshold.value == pytest.approx(oracle.quantile_saod(values, 0.95))
    accepted = sum(g < fitted.image_threshold.value for g in values)
    assert fitted.apply(to_containers(known)[0]).accepted.sum() == accepted


def edge_scene() -> Scene:
    """Classes with a true positive, with objects and none, without objects; an empty image."""
    box, far = (0.0, 0.0, 10.0, 10.0), (50.0, 0.0, 10.0, 10.0)
    detections = [
        found(0, box, 0.9, "hit"), found(1, box, 0.6, "hit"), found(1, far, 0.3, "hit"),
        found(0, far, 0.8, "missed"), found(1, far, 0.4, "missed"),
        found(0, far, 0.7, "absent"), found(1, box, 0.2, "absent"),
        found(2, box, 0.95, "hit"), found(2, box, 0.99, "missed"),
    ]  # fmt: skip
    truths = [
        real(0, box, "hit"), real(1, box, "hit"), real(0, box, "missed"), real(1, box, "missed"),
    ]  # fmt: skip
    return Scene(3, detections, truths, ["hit", "missed", "absent"])


def dimmed(scene: Scene) -> Scene:
    return replace(
        scene, truths=[], detections=[replace(d, score=d.score / 10) for d in scene.detections]
    )


def test_a_class_without_a_true_positive_is_kept_in_fitting_and_dropped_in_use() -> None:
    scene = edge_scene()
    coded = fit(scene, dimmed(scene))
    assert math.isnan(oracle.fit_saod(scene, dimmed(scene)).v[1])
    assert coded.confidence_threshold.per_class[1] == np.inf
    assert coded.confidence_threshold.metadata["without_threshold"] == ["missed"]
    fitted = coded.calibrators.per_class[1]
    assert (fitted.state, fitted.n_detections) == ("fitted", 2)  # both boxes on images with objects
    lax = replace(coded, image_threshold=replace(coded.image_threshold, value=1.0))
    kept = lax.apply(to_containers(scene)[0]).detections
    assert 1 not in kept.class_ids
    paper = fit(scene, dimmed(scene), SelfAwareSettings())
    assert paper.calibrators.per_class[1].n_detections == 0  # dropped in both


def test_a_class_without_objects_keeps_all_boxes_as_they_are() -> None:
    scene = edge_scene()
    coded = fit(scene, dimmed(scene))
    assert coded.confidence_threshold.per_class[2] == -1
    assert coded.confidence_threshold.metadata["without_objects"] == ["absent"]
    assert coded.calibrators.per_class[2].state == "identity"
    lax = replace(coded, image_threshold=replace(coded.image_threshold, value=1.0))
    kept = lax.apply(to_containers(scene)[0]).detections
    assert sorted(kept.confidence[kept.class_ids == 2]) == [0.2, 0.7]
    paper = fit(scene, dimmed(scene), SelfAwareSettings())
    assert paper.confidence_threshold.per_class[2] == np.inf


def test_boxes_on_images_without_objects_do_not_count_in_fitting() -> None:
    scene = edge_scene()
    without = replace(scene, detections=[d for d in scene.detections if d.image != 2])
    for settings, same in ((SAOD, True), (SelfAwareSettings(), False)):
        one, other = (fit(s, dimmed(scene), settings) for s in (scene, without))
        counts = [[c.n_detections for c in rules.calibrators.per_class] for rules in (one, other)]
        assert (counts[0] == counts[1]) == same


def test_the_optimum_may_lie_inside_ties() -> None:
    box, far = (0.0, 0.0, 10.0, 10.0), (50.0, 0.0, 10.0, 10.0)
    tied = [found(0, box, 0.5, "a"), *(found(0, far, 0.5, "a") for _ in range(5))]
    good = [found(1, (0.0, 0.0, 10.0, 5.0), 0.9, "a")]
    scene = Scene(2, [*tied, *good], [real(0, box, "a"), real(1, box, "a")], ["a"])
    coded, paper = fit(scene, dimmed(scene)), fit(scene, dimmed(scene), SelfAwareSettings())
    # after the first of six ties LRP is lowest, but 0.5 keeps all six
    assert coded.confidence_threshold.per_class.tolist() == [0.5]
    assert paper.confidence_threshold.per_class.tolist() == [0.9]
    assert coded.calibrators.per_class[0].n_detections == 7


def test_a_slope_may_be_negative_and_is_that_of_sklearn() -> None:
    # the surer, the worse: IoU 0.2, 0.6 and 1
    parts = {0.9: 0.2, 0.8: 0.6, 0.7: 1.0}
    detections = [found(k, (0, 0, 10, 10 * s), p, "a") for k, (p, s) in enumerate(parts.items())]
    truths = [real(k, (0.0, 0.0, 10.0, 10.0), "a") for k in range(3)]
    scene = Scene(3, detections, truths, ["a"])
    coded, paper = fit(scene, dimmed(scene)), fit(scene, dimmed(scene), SelfAwareSettings())
    line = LinearRegression().fit(np.array(list(parts))[:, None], np.array(list(parts.values())))
    lax = replace(coded, image_threshold=replace(coded.image_threshold, value=1.0))
    measured = lax.apply(to_containers(scene)[0]).detections.confidence
    expected = np.clip(line.predict(np.array([0.9, 0.8, 0.7])[:, None]), 0, 1)
    np.testing.assert_allclose(measured, expected, atol=1e-12)
    assert line.coef_[0] < 0
    assert paper.calibrators.per_class[0].state == "constant"


def test_one_sample_is_a_constant() -> None:
    box = (0.0, 0.0, 10.0, 10.0)
    scene = Scene(1, [found(0, (0, 0, 10, 5), 0.8, "a")], [real(0, box, "a")], ["a"])
    coded = fit(scene, dimmed(scene))
    assert coded.calibrators.per_class[0].state == "constant"
    assert coded.calibrators.per_class[0].parameters["value"].tolist() == [0.5]


def test_tau_is_not_passed_on() -> None:
    scene, copies = scenes(3)
    strict = replace(SAOD, confidence_threshold="lrp(tau=0.5)")
    one, other = fit(scene, copies), fit(scene, copies, strict)
    np.testing.assert_array_equal(
        one.confidence_threshold.per_class, other.confidence_threshold.per_class
    )


def test_an_image_without_a_box_has_1e12() -> None:
    scene, copies = scenes(0)
    coded = fit(scene, copies)
    nothing = Detections.empty([1], to_containers(scene)[0].classes)
    assert coded.image_uncertainty(nothing).tolist() == [1e12]
    assert coded.apply(nothing).accepted.tolist() == [False]


def test_the_convention_is_saved_with_the_rules(tmp_path) -> None:
    scene, copies = scenes(1, with_ties=True)
    coded = fit(scene, copies)
    save_self_aware(coded, tmp_path / "rules.json")
    loaded = load_self_aware(tmp_path / "rules.json")
    assert loaded.convention == "saod"
    boxes = to_containers(scene)[0]
    assert loaded.apply(boxes).accepted.tolist() == coded.apply(boxes).accepted.tolist()
    assert rows_of(loaded.apply(boxes).detections) == rows_of(coded.apply(boxes).detections)


def test_other_calibrators_and_conventions_are_refused() -> None:
    scene, copies = scenes(0)
    with pytest.raises(InvalidDataError, match="linear or none under the convention saod"):
        fit(scene, copies, replace(SAOD, calibrator="isotonic"))
    assert fit(scene, copies, replace(SAOD, calibrator="none")).calibrators.kind.name == "none"
    with pytest.raises(UnknownNameError, match="Did you mean saod"):
        fit(scene, copies, SelfAwareSettings(convention="soad"))
