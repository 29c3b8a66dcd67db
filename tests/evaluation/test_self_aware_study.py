"""The tables of a study of self-aware detection against slow definitions, and what they survive."""

import csv
import itertools
import json
import math
import sys
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from tests.oracles import self_aware as oracle
from tests.oracles.awareness import (
    NO_DETECTION,
    balanced_accuracy_saod,
    image_uncertainty,
    rates,
)
from tests.oracles.boxes import coco_ap, restrict
from tests.oracles.scenes import Detection, Scene, random_scene, to_containers
from tests.oracles.thresholds import best_harmonic_mean, known_quantile, lrp_thresholds

from incognita.containers.boxes import BoxTruth, Detections
from incognita.decisions import SelfAware, SelfAwareSettings
from incognita.errors import InvalidDataError, UnknownNameError
from incognita.evaluation.self_aware import AnnotatedSet, SelfAwareTest, evaluate_self_aware
from incognita.evaluation.self_aware_study import CONFIDENCES, OFFSETS, study_self_aware
from incognita.metrics.detection import coco_numbers
from incognita.results.self_aware import SelfAwareStudy

KIND = {"n_images": 24, "with_ties": False, "with_crowd": False, "with_difficult": False}
IDENTITY = (0.0, 1.0)


def scene_of(seed: int, *, dim: float = 1.0, **more) -> Scene:
    scene = random_scene(np.random.default_rng(seed), **(KIND | more))
    kept = [d for d in scene.detections if d.label in scene.known_labels]
    return replace(scene, detections=[replace(d, score=d.score * dim) for d in kept])


class Problem:
    """Scenes in plain lists and in containers, and the study of the latter."""

    def __init__(self, seed: int, **more) -> None:
        full = {"with_empty_images": False, **more}  # for a TPR of 0.95 every image needs a box
        self.validation = scene_of(seed, **full)
        self.copies = scene_of(seed, dim=0.4, **full)
        known = scene_of(seed + 1, **more)
        self.trial = oracle.Trial(
            known,
            {
                name: replace(scene_of(seed + 1, dim=dim, **more), truths=known.truths)
                for name, dim in (("1", 0.95), ("3", 0.8), ("5", 0.6))
            },
            {"5"},
            {
                name: replace(scene_of(seed + k, dim=0.5, **more), truths=[])
                for k, name in ((5, "a"), (6, "b"))
            },
        )
        self.rules = oracle.fit(self.validation, self.copies)
        self.test = SelfAwareTest(
            AnnotatedSet(*to_containers(known)),
            {n: AnnotatedSet(*to_containers(s)) for n, s in self.trial.shifted.items()},
            frozenset(self.trial.free),
            {name: to_containers(scene)[0] for name, scene in self.trial.unknown.items()},
        )
        self.annotated = AnnotatedSet(*to_containers(self.validation))
        self.painted = to_containers(self.copies)[0]

    def study(self, test: SelfAwareTest | None = None, **options) -> SelfAwareStudy:
        return study_self_aware(self.annotated, self.painted, test or self.test, **options)


@cache
def problem_of(seed: int = 0) -> Problem:
    return Problem(seed)


@cache
def study_of(seed: int = 0) -> SelfAwareStudy:
    return problem_of(seed).study()


SEEDS = (0, 20, 40)


@pytest.fixture(params=SEEDS)
def both(request) -> tuple[Problem, SelfAwareStudy]:
    return problem_of(request.param), study_of(request.param)


def rows_of(study: SelfAwareStudy, name: str) -> list[dict]:
    return [dict(row) for row in study.get(name).rows]


def assert_is(row: dict, expected: dict) -> None:
    for name, value in expected.items():
        if isinstance(value, float) and math.isnan(value):
            assert row[name] is None, name
        else:
            assert row[name] == pytest.approx(value, abs=1e-9), name


def test_the_trials_are_not_trivial() -> None:
    for problem in map(problem_of, SEEDS):
        values = oracle.awareness(problem.trial, problem.rules)
        assert 0.2 < values["daq"] < 0.9
        assert 0 < values["tnr"] < 1


# --- image level ----------------------------------------------------------------------------------

WAYS = {"sum": ("sum",), "mean": ("mean",), "top-5": ("top", 5), "top-3": ("top", 3),
        "top-2": ("top", 2), "min": ("min",)}  # fmt: skip


def box_lists(scene: Scene) -> list[list[Detection]]:
    return [[d for d in scene.detections if d.image == k] for k in range(scene.n_images)]


def test_image_auroc_follows_its_definition(both) -> None:
    problem, study = both
    found = {row["unknown"]: row for row in rows_of(study, "auroc") if row["reason"] is None}
    assert list(found) == ["a", "b", "pooled"]
    for column, way in WAYS.items():

        def level(scene, way=way):
            lists = box_lists(scene)
            return [image_uncertainty([1 - d.score for d in boxes], *way) for boxes in lists]

        known = level(problem.trial.known)
        unknown = {name: level(scene) for name, scene in problem.trial.unknown.items()}
        unknown["pooled"] = unknown["a"] + unknown["b"]
        for name, values in unknown.items():
            assert found[name][column] == pytest.approx(oracle.auroc(known, values)), column


def test_measures_without_their_columns_are_listed_with_the_reason(both) -> None:
    _, study = both
    missing = {row["uncertainty"]: row for row in rows_of(study, "auroc") if row["reason"]}
    assert len(missing) == 9
    assert "needs the logits" in missing["entropy"]["reason"]
    assert "needs the covariance" in missing["trace"]["reason"]
    assert missing["entropy"]["min"] is None
    (note,) = [note for note in study.notes if "determinant, trace, gaussian-entropy" in note]
    assert note.startswith("Not measured")
    assert "covariance" in note


def with_columns(found: Detections, seed: int, *, background: bool = False) -> Detections:
    rng = np.random.default_rng(seed)
    n = len(found)
    extra = {"background": rng.normal(size=n)} if background else {}
    logits, covariance = rng.normal(size=(n, 3)), rng.random((n, 4)) + 0.1
    return replace(found, logits=logits, covariance=covariance, **extra)


@pytest.mark.parametrize("background", [False, True])
def test_measures_with_their_columns_follow_their_definitions(background) -> None:
    problem = problem_of()
    more = {"background": background}
    known = with_columns(problem.test.known.detections, 1, **more)
    others = {
        n: with_columns(d, k, **more) for k, (n, d) in enumerate(problem.test.unknown.items())
    }
    test = replace(
        problem.test, known=problem.test.known._replace(detections=known), unknown=others
    )
    annotated = problem.annotated._replace(
        detections=with_columns(problem.annotated.detections, 7, **more)
    )
    study = study_self_aware(annotated, problem.painted, test)
    found = {(row["uncertainty"], row["unknown"]): row for row in rows_of(study, "auroc")}

    def level(detections, of_box):
        values = [of_box(*row) for row in columns_of(detections)]
        bounds = detections.offsets.tolist()
        lists = [values[first:last] for first, last in itertools.pairwise(bounds)]
        return [image_uncertainty(values, "top", 2) for values in lists]

    def columns_of(detections):
        other = detections.background if background else [None] * len(detections)
        return zip(detections.logits.tolist(), other, detections.covariance.tolist(), strict=True)

    def entropy(logits, other, variances):
        return oracle.entropy(oracle.softmax(logits if other is None else [*logits, float(other)]))

    def trace(logits, other, variances):
        return math.fsum(variances)

    for name, of_box in (("entropy", entropy), ("trace", trace)):
        expected = oracle.auroc(level(known, of_box), level(others["a"], of_box))
        assert found[name, "a"]["top-2"] == pytest.approx(expected)
    if background:  # the measures of sigmoid heads
        assert "sigmoid heads" in found["mean-entropy", "not measured"]["reason"]
        assert any("mean-entropy: mean-entropy is for sigmoid" in note for note in study.notes)
    else:
        assert all(row["reason"] is None for row in found.values())


def u_at_tpr(problem: Problem) -> float:
    with_objects = {truth.image for truth in problem.validation.truths if not truth.unknown}
    values = oracle.uncertainties(problem.validation)
    return known_quantile([values[k] for k in with_objects], "0.95")


def test_the_two_image_thresholds_are_compared(both) -> None:
    problem, study = both
    rows = {(row["u_chosen"], row["unknown"]): row for row in rows_of(study, "image_threshold")}
    known = oracle.uncertainties(problem.trial.known)
    unknown = {name: oracle.uncertainties(s) for name, s in problem.trial.unknown.items()}
    unknown["pooled"] = unknown["a"] + unknown["b"]
    assert len(rows) == 6
    for chosen, u in (("TPR 0.95", u_at_tpr(problem)), ("fitted", problem.rules.u)):
        for name, values in unknown.items():
            tpr, tnr = rates(known, values, u)
            ba = 2 * tpr * tnr / (tpr + tnr) if tpr and tnr else 0.0
            assert_is(rows[chosen, name], {"u": u, "ba": ba, "tpr": tpr, "tnr": tnr})


# --- the parts of DAQ -----------------------------------------------------------------------------


def test_the_ablation_follows_the_table_of_the_paper(both) -> None:
    problem, study = both
    rules, u = problem.rules, u_at_tpr(problem)
    n = len(rules.v)
    steps = [
        ("0.5", "none", "TPR 0.95", oracle.Rules(u, [0.5] * n, [IDENTITY] * n)),
        ("fitted", "none", "TPR 0.95", oracle.Rules(u, rules.v, [IDENTITY] * n)),
        ("fitted", "linear", "TPR 0.95", oracle.Rules(u, rules.v, rules.lines)),
        ("fitted", "linear", "fitted", rules),
    ]
    rows = rows_of(study, "ablation")
    for row, (v, calibrator, chosen, step) in zip(rows, steps, strict=True):
        assert (row["v"], row["calibrator"], row["u_chosen"]) == (v, calibrator, chosen)
        assert_is(row, oracle.awareness(problem.trial, step))


def test_the_last_row_of_the_ablation_is_what_evaluate_measures(both) -> None:
    problem, study = both
    fitted = SelfAware.fit(*problem.annotated, problem.painted)
    report = evaluate_self_aware(fitted, problem.test, n_resamples=0)
    last = rows_of(study, "ablation")[-1]
    assert last["daq"] == report.get("detection_awareness_quality").value
    assert last["laece_t"] == report.get("laece", "shifted").value
    assert last["lrp_t"] == report.get("lrp", "shifted").value


def test_sensitivity_to_u_and_v_follows_its_definition(both) -> None:
    problem, study = both
    rules = problem.rules
    values = [g for g in oracle.uncertainties(problem.validation) if g < NO_DETECTION]
    by_u, by_v = rows_of(study, "sensitivity_u"), rows_of(study, "sensitivity_v")
    assert [row["offset"] for row in by_u] == [row["offset"] for row in by_v] == list(OFFSETS)
    for k in (0, 3, 5, 6, 9, 12):
        u = rules.u + OFFSETS[k] * (max(values) - min(values))
        assert_is(by_u[k], {"u": u} | oracle.awareness(problem.trial, replace(rules, u=u)))
        moved = [v + OFFSETS[k] for v in rules.v]
        assert_is(by_v[k], oracle.awareness(problem.trial, replace(rules, v=moved)))


def test_oracle_thresholds_are_those_of_the_test_images(both) -> None:
    problem, study = both
    rules, trial = problem.rules, problem.trial
    v = lrp_thresholds(trial.known, 0.1)
    for row, fitted, best in zip(rows_of(study, "thresholds"), rules.v, v, strict=True):
        assert row["fitted"] == (None if math.isinf(fitted) else fitted)
        assert row["oracle"] == (None if math.isinf(best) else best)
        label = row["class"]
        assert row["n_objects"] == sum(truth.label == label for truth in trial.known.truths)
    unknown = [g for scene in trial.unknown.values() for g in oracle.uncertainties(scene)]
    u, _ = best_harmonic_mean(oracle.uncertainties(trial.known), unknown)
    choices = {("fitted", "fitted"): rules, ("oracle", "fitted"): replace(rules, v=v),
               ("fitted", "oracle"): replace(rules, u=u),
               ("oracle", "oracle"): replace(rules, u=u, v=v)}  # fmt: skip
    rows = {(row["v"], row["u_chosen"]): row for row in rows_of(study, "oracle")}
    assert rows.keys() == choices.keys()
    for choice, here in choices.items():
        assert_is(rows[choice], oracle.awareness(trial, here))


# --- boxes ----------------------------------------------------------------------------------------


def accuracy(scene: Scene) -> dict[str, float]:
    values = oracle.quality(scene)
    return {
        "detections_per_image": len(scene.detections) / scene.n_images,
        "laece": values["laece"],
        "ap": coco_ap(scene, scene.known_labels),
        "lrp": values["lrp"],
    }


def test_the_sweep_of_v_is_matching_without_the_boxes_below(both) -> None:
    problem, study = both
    scene, n = problem.validation, len(problem.rules.v)
    rows = {row["v"]: row for row in rows_of(study, "confidence_sweep")}
    thresholds = {"none": [0.0] * n, "fitted": problem.rules.v}
    thresholds |= {str(v): [v] * n for v in CONFIDENCES}
    assert rows.keys() == thresholds.keys()
    for name in ("none", "0.1", "0.3", "0.5", "0.9", "fitted"):
        assert_is(rows[name], accuracy(oracle.kept(scene, thresholds[name])))


def test_dummy_detections_lower_laece_and_raise_lrp_but_leave_ap_alone() -> None:
    problem = Problem(3, n_known=1)  # of one class there is no chance in the dummies
    rows = {row["filled_up_to"]: row for row in rows_of(problem.study(), "dummy_detections")}
    scene = problem.validation
    assert_is(rows["none"], accuracy(scene))
    (label,) = scene.known_labels
    for n in (100, 300):
        dummies = [
            Detection(image, (-2, -2, -1, -1), 0.0, label)
            for image, boxes in enumerate(box_lists(scene))
            for _ in range(n - len(boxes))
        ]
        filled = replace(scene, detections=scene.detections + dummies)
        expected = accuracy(filled) | {"ap": rows["none"]["ap"]}
        if n > 100:  # the oracle of LRP counts 100 detections of a class per image, as COCO
            n_false = sum(d.score == 0 for d in filled.detections)
            expected |= {"lrp": lrp_with_false(scene, n_false)}
        assert_is(rows[str(n)], expected)
        assert rows[str(n)]["detections_per_image"] == n
    assert rows["none"]["laece"] > rows["100"]["laece"] > rows["500"]["laece"]
    assert rows["none"]["lrp"] < rows["100"]["lrp"] < rows["500"]["lrp"]


def lrp_with_false(scene: Scene, n_false: int) -> float:
    """Compute LRP of a scene of one class with more false positives (eq. 1)."""
    matching = oracle.match(scene, "coco", 0.1, scene.known_labels[0])
    ious = [each.iou for each in matching.ranked if each.status == "tp"]
    fp = sum(each.status == "fp" for each in matching.ranked) + n_false
    fn = matching.n_truth - len(ious)
    return (sum(1 - iou for iou in ious) / 0.9 + fp + fn) / (len(ious) + fp + fn)


def test_dummy_detections_of_several_classes_leave_ap_alone(both) -> None:
    rows = rows_of(both[1], "dummy_detections")
    assert len({row["ap"] for row in rows}) == 1
    assert [row["detections_per_image"] for row in rows[1:]] == [100, 300, 500]


def test_tau_decides_what_is_a_true_positive(both) -> None:
    problem, study = both
    scene = oracle.kept(problem.trial.known, problem.rules.v)
    fitted_on = oracle.kept(problem.validation, problem.rules.v)
    rows = {row["tau"]: row for row in rows_of(study, "tau")}
    assert list(rows) == [k / 10 for k in range(11)]
    for tau in (0.1, 0.5, 0.9):
        lines = [oracle.line_of(fitted_on, label, tau) for label in scene.known_labels]
        calibrated = oracle.quality(oracle.mapped(scene, lines), tau)["laece"]
        raw = oracle.quality(scene, tau)
        expected = {"lrp": raw["lrp"], "laece": raw["laece"], "laece_calibrated": calibrated}
        assert_is(rows[tau], expected)
    assert rows[1.0]["lrp"] is None
    assert rows[1.0]["laece"] is not None


def test_calibrators_and_reliability_follow_their_definitions(both) -> None:
    problem, study = both
    scenes = {"validation": problem.validation, "known": problem.trial.known}
    rows = {(row["images"], row["calibrator"]): row for row in rows_of(study, "calibrators")}
    assert len(rows) == 12
    diagrams = rows_of(study, "reliability")
    assert len(diagrams) == 12 * 25
    lines = {"none": [IDENTITY] * 3, "linear": problem.rules.lines}
    for name, scene in scenes.items():
        for kind, here in lines.items():
            mapped = oracle.mapped(oracle.kept(scene, problem.rules.v), here)
            assert_is(rows[name, kind], {k: oracle.quality(mapped)[k] for k in ("laece", "lrp")})
            found = [r for r in diagrams if (r["images"], r["calibrator"]) == (name, kind)]
            for row, (p, q, n) in zip(found, oracle.diagram(mapped, 25), strict=True):
                assert_is(row, {"confidence": p, "quality": q, "n_detections": n})
    assert rows["validation", "isotonic"]["laece"] < rows["validation", "none"]["laece"]


def test_histograms_count_images_and_measure_ap_in_each_bin(both) -> None:
    problem, study = both
    scenes = {"known": problem.trial.known}
    scenes |= {f"shifted/{name}": scene for name, scene in problem.trial.shifted.items()}
    scenes |= {f"unknown/{name}": scene for name, scene in problem.trial.unknown.items()}
    rows = rows_of(study, "uncertainty_histogram")
    for name, scene in scenes.items():
        values = oracle.uncertainties(scene)
        found = [row for row in rows if row["images"] == name]
        assert len(found) == 11
        for row in found:
            if row["low"] is None:
                images = [k for k, g in enumerate(values) if g == NO_DETECTION]
            else:
                is_last = row["high"] == 1
                images = [
                    k for k, g in enumerate(values)
                    if row["low"] <= g < row["high"] or (is_last and g == 1)
                ]  # fmt: skip
            assert row["n_images"] == len(images)
            ap = coco_ap(restrict(scene, images), scene.known_labels)
            is_known = not name.startswith("unknown")
            assert_is(row, {"ap": ap if is_known else math.nan})
    assert sum(row["n_images"] for row in rows if row["images"] == "unknown/pooled") == 48


def test_single_precision_confidences_are_compared_as_the_rules_compare_them() -> None:
    problem = problem_of()
    found = problem.annotated.detections
    # 0.7 is a little less in single precision
    confidence = np.where(np.arange(len(found)) % 2, 0.7, 0.9).astype(np.float32)
    single = replace(found, confidence=confidence)
    annotated = problem.annotated._replace(detections=single)
    settings = SelfAwareSettings(image_threshold=1.0)
    study = study_self_aware(annotated, problem.painted, problem.test, settings)
    rows = {row["v"]: row for row in rows_of(study, "confidence_sweep")}
    n_kept = int((confidence > 0.8).sum())
    rules = SelfAware.fit(*annotated, settings=replace(settings, confidence_threshold=0.7))
    assert len(rules.apply(single).detections) == n_kept
    assert rows["0.7"]["detections_per_image"] == n_kept / found.n_images
    assert rows["0.6"]["detections_per_image"] == len(found) / found.n_images


def test_ap_without_a_threshold_is_that_of_coco(both) -> None:
    problem, study = both
    (row,) = [row for row in rows_of(study, "confidence_sweep") if row["v"] == "none"]
    assert row["ap"] == pytest.approx(coco_numbers(*problem.annotated).ap, abs=1e-12)


# --- edges ----------------------------------------------------------------------------------------


def test_without_unknown_images_what_needs_them_is_left_out() -> None:
    problem = problem_of()
    study = problem.study(replace(problem.test, unknown={}))
    assert rows_of(study, "auroc") == rows_of(study, "image_threshold") == []
    last = rows_of(study, "ablation")[-1]
    assert last["daq"] is None
    assert last["ba"] is None
    assert last["idq"] is not None
    assert len(rows_of(study, "oracle")) == 2
    assert any("need unknown images" in note for note in study.notes)


def test_an_unknown_set_may_have_any_name() -> None:
    problem, unknown = problem_of(), problem_of().test.unknown
    study = problem.study(replace(problem.test, unknown={"known": unknown["a"]}))
    right = problem.study(replace(problem.test, unknown={"a": unknown["a"]}))
    rows = [{**row, "unknown": "a"} for row in rows_of(study, "auroc") if row["reason"] is None]
    assert rows == [row for row in rows_of(right, "auroc") if row["reason"] is None]


def test_an_unknown_set_without_images_is_left_out() -> None:
    problem = problem_of()
    empty = Detections.empty([], problem.painted.classes)
    unknown = {"a": problem.test.unknown["a"], "nothing": empty}
    study = problem.study(replace(problem.test, unknown=unknown))
    assert {row["unknown"] for row in rows_of(study, "image_threshold")} == {"a"}
    assert any("nothing has no images" in note for note in study.notes)


def test_without_shifted_images_there_is_no_daq() -> None:
    problem = problem_of()
    study = problem.study(SelfAwareTest(problem.test.known, unknown=problem.test.unknown))
    last = rows_of(study, "ablation")[-1]
    assert last["daq"] is None
    assert last["lrp_t"] is None
    assert last["ba"] is not None
    assert any("need shifted images" in note for note in study.notes)


def test_a_detector_that_rejects_everything_has_daq_zero() -> None:
    settings = SelfAwareSettings(image_threshold=-1.0)
    strict = problem_of().study(settings=settings)
    last = rows_of(strict, "ablation")[-1]
    assert last["tpr"] == last["daq"] == last["idq"] == 0
    assert last["lrp"] == 1
    assert last["laece"] is None


def test_free_images_that_are_all_rejected_leave_nothing_to_measure() -> None:
    problem = problem_of()
    test = replace(problem.test, free=frozenset(problem.test.shifted))
    strict = problem.study(test, settings=SelfAwareSettings(image_threshold=-1.0))
    last = rows_of(strict, "ablation")[-1]
    assert last["lrp_t"] is None
    assert last["idq_t"] is None
    assert last["daq"] is None


def test_a_class_that_is_never_detected_keeps_no_box() -> None:
    problem = Problem(0, classes_without_detections=1)
    study = problem.study()
    first = rows_of(study, "thresholds")[0]
    assert first["fitted"] is None
    assert first["oracle"] is None
    assert first["n_objects"] > 0
    assert_is(rows_of(study, "ablation")[-1], oracle.awareness(problem.trial, problem.rules))


def test_a_tpr_that_cannot_be_reached_is_a_note() -> None:
    problem = problem_of()
    found = problem.annotated.detections
    silent = found[found.image_index >= 4]  # a sixth of the images has no box
    annotated = problem.annotated._replace(detections=silent)
    study = study_self_aware(annotated, problem.painted, problem.test)
    assert any("TPR 0.95 was not measured" in note for note in study.notes)
    rows = rows_of(study, "ablation")
    assert [row["daq"] is None for row in rows] == [True, True, True, False]
    chosen = {row["u_chosen"]: row["ba"] for row in rows_of(study, "image_threshold")}
    assert chosen["TPR 0.95"] is None
    assert chosen["fitted"] is not None


def test_a_library_that_is_missing_is_a_note(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.isotonic", None)
    study = problem_of().study()
    kinds = {row["calibrator"] for row in rows_of(study, "calibrators")}
    assert "isotonic" not in kinds
    assert "linear" in kinds
    assert any("isotonic was not measured" in note for note in study.notes)


def test_bad_input_is_a_sentence() -> None:
    problem = problem_of()
    with pytest.raises(InvalidDataError, match="convention paper or saod"):
        problem.study(convention="mine")
    truth = problem.annotated.truth
    nothing = problem.annotated._replace(truth=BoxTruth.empty(truth.image_ids, truth.classes))
    with pytest.raises(InvalidDataError, match="Expected known objects"):
        study_self_aware(nothing, problem.painted, problem.test)
    with pytest.raises(InvalidDataError, match="other names than 'pooled'"):
        problem.study(replace(problem.test, unknown={"pooled": problem.painted}))
    none = AnnotatedSet(Detections.empty([], truth.classes), BoxTruth.empty([], truth.classes))
    with pytest.raises(InvalidDataError, match="Expected validation images"):
        study_self_aware(none, problem.painted, problem.test)


def test_the_public_code_has_its_own_balanced_accuracy() -> None:
    problem = problem_of()
    study = problem.study(convention="saod")
    known = oracle.uncertainties(problem.trial.known)
    unknown = [g for s in problem.trial.unknown.values() for g in oracle.uncertainties(s)]
    expected = balanced_accuracy_saod(known, unknown, problem.rules.u)
    assert rows_of(study, "ablation")[-1]["ba"] == pytest.approx(expected)


def test_rules_of_the_public_code_are_studied_as_they_are_used() -> None:
    problem = problem_of()
    settings = SelfAwareSettings(convention="saod")
    fitted = SelfAware.fit(*problem.annotated, problem.painted, settings)
    report = evaluate_self_aware(fitted, problem.test, convention="saod", n_resamples=0)
    study = problem.study(settings=settings, convention="saod")
    last = rows_of(study, "ablation")[-1]
    assert last["daq"] == report.get("detection_awareness_quality").value
    assert last["lrp"] == report.get("lrp", "known").value
    paper = evaluate_self_aware(
        SelfAware.fit(*problem.annotated, problem.painted), problem.test, n_resamples=0
    )
    assert last["lrp"] != paper.get("lrp", "known").value


# --- the report -----------------------------------------------------------------------------------


def test_a_study_prints_and_saves_what_it_holds(tmp_path) -> None:
    study = study_of()
    text = str(study)
    for title in ("table A.12", "table 7", "table A.13", "table A.14", "in reliability.csv"):
        assert title in text
    last = rows_of(study, "ablation")[-1]
    assert f"{100 * last['daq']:.1f}" in text
    assert f"DAQ {100 * last['daq']:.1f} %" in study.summary()
    paths = study.save_folder(tmp_path / "new" / "study")
    assert [path.name for path in paths] == study.file_names()
    with (tmp_path / "new" / "study" / "ablation.csv").open() as file:
        saved = list(csv.DictReader(file))
    assert [float(row["daq"]) for row in saved] == [r["daq"] for r in rows_of(study, "ablation")]
    document = json.loads(paths[-1].read_text())
    assert document["tables"]["ablation"]["rows"][-1]["daq"] == last["daq"]
    assert document["inputs"]["convention"] == "paper"
    n_numbers = sum(
        len(set(table.columns) - {*table.keys, "reason"}) * len(table.rows)
        for table in study.tables
    )
    assert len(study.to_dataframe()) == n_numbers
    with pytest.raises(UnknownNameError, match="Choose one of: auroc"):
        study.get("nothing")


def test_an_empty_table_is_a_file_with_its_header(tmp_path) -> None:
    problem = problem_of()
    study = problem.study(SelfAwareTest(problem.test.known))
    study.save_folder(tmp_path)
    assert (tmp_path / "auroc.csv").read_text() == "uncertainty,unknown\n"


def test_every_step_is_reported() -> None:
    steps = []
    study = problem_of().study(on_step=steps.append)
    names = [f"measuring {table.name}" for table in study.tables]
    assert steps == ["fitting the rules", *names]
