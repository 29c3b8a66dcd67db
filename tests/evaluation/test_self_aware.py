"""DAQ and its parts against slow definitions, and against the paper's table."""

import math
from dataclasses import replace

import numpy as np
import pytest
from tests.oracles import awareness, calibration, lrp
from tests.oracles import self_aware as oracle
from tests.oracles.scenes import Scene, random_scene, to_containers

from incognita.containers.boxes import Detections
from incognita.decisions import SelfAware, SelfAwareSettings
from incognita.errors import InvalidDataError, UnknownNameError
from incognita.evaluation.self_aware import AnnotatedSet, SelfAwareTest, evaluate_self_aware
from incognita.metrics.detection import coco_measures, coco_numbers
from incognita.metrics.measure import bootstrap_weights
from incognita.metrics.self_awareness import detection_awareness_quality, in_distribution_quality
from incognita.metrics.suite import MatchTables
from incognita.results.result import Result, Split

KIND = {
    "n_images": 24,
    "n_known": 3,
    "with_ties": False,
    "with_crowd": False,
    "with_difficult": False,  # COCO, which the paper evaluates by, knows no difficult objects
}
SEVERITIES = ("1", "3", "5")


def scene_of(seed: int, *, dim: float = 1.0, **more) -> Scene:
    scene = random_scene(np.random.default_rng(seed), **(KIND | more))
    kept = [d for d in scene.detections if d.label in scene.known_labels]
    return replace(scene, detections=[replace(d, score=d.score * dim) for d in kept])


class Problem:
    """Validation, known, shifted and unknown scenes, in plain lists and in containers."""

    def __init__(self, seed: int) -> None:
        self.validation, self.copies = scene_of(seed), scene_of(seed, dim=0.4)
        self.known = scene_of(seed + 1)
        self.shifted = {
            name: replace(scene_of(seed + 1, dim=dim), truths=self.known.truths)
            for name, dim in zip(SEVERITIES, (0.95, 0.8, 0.6), strict=True)
        }
        self.unknown = {
            name: replace(scene_of(seed + k, dim=0.5), truths=[])
            for k, name in ((5, "a"), (6, "b"))
        }
        self.rules = oracle.fit(self.validation, self.copies)
        found, truth = to_containers(self.validation)
        self.fitted = SelfAware.fit(found, truth, to_containers(self.copies)[0])
        self.test = SelfAwareTest(
            AnnotatedSet(*to_containers(self.known)),
            {name: AnnotatedSet(*to_containers(scene)) for name, scene in self.shifted.items()},
            frozenset({"5"}),
            {name: to_containers(scene)[0] for name, scene in self.unknown.items()},
        )


def decided(scene: Scene, rules: oracle.Rules) -> tuple[list[bool], Scene]:
    accepted, boxes = oracle.use(scene, rules)
    return accepted, replace(scene, detections=[replace(d, score=p) for d, p in boxes])


def union(parts: list[tuple[list[int], Scene]]) -> Scene:
    """Join scenes, each with the images it brings along, under new image numbers."""
    detections, truths, start = [], [], 0
    for images, scene in parts:
        place = {image: start + k for k, image in enumerate(images)}
        detections += [
            replace(d, image=place[d.image]) for d in scene.detections if d.image in place
        ]
        truths += [replace(t, image=place[t.image]) for t in scene.truths if t.image in place]
        start += len(images)
    return replace(parts[0][1], n_images=start, detections=detections, truths=truths)


def quality(scene: Scene) -> dict[str, float]:
    total = lrp.mean_lrp(list(lrp.class_lrps(scene, 0.1).values()))
    laece = calibration.laece(scene, "paper")
    return {
        "in_distribution_quality": awareness.harmonic_mean(1 - total.error, 1 - laece),
        "laece": laece,
        "lrp": total.error,
        "lrp_localization": total.localisation,
        "lrp_false_positive": total.false_positives,
        "lrp_false_negative": total.false_negatives,
    }


@pytest.mark.parametrize("seed", range(0, 80, 10))
def test_every_part_follows_its_definition(seed) -> None:
    problem = Problem(seed)
    report = evaluate_self_aware(problem.fitted, problem.test, n_resamples=0)
    accepted, known = decided(problem.known, problem.rules)
    parts = []
    for name, scene in problem.shifted.items():
        taken, left = decided(scene, problem.rules)
        images = [k for k in range(scene.n_images) if name != "5" or taken[k]]
        parts.append((images, left))
    expected = {"known": quality(known), "shifted": quality(union(parts))}
    for split, values in expected.items():
        for metric, value in values.items():
            assert report.get(metric, split).value == pytest.approx(value, abs=1e-12), metric
    rejected = [not a for s in problem.unknown.values() for a in decided(s, problem.rules)[0]]
    tpr, tnr = np.mean(accepted), np.mean(rejected)
    balanced = awareness.harmonic_mean(float(tpr), float(tnr))
    assert report.get("balanced_accuracy", "unknown").value == pytest.approx(balanced, abs=1e-12)
    daq = awareness.harmonic_mean(
        balanced, *(expected[split]["in_distribution_quality"] for split in expected)
    )
    assert report.get("detection_awareness_quality").value == pytest.approx(daq, abs=1e-12)


def test_auroc_is_given_per_set_and_pooled() -> None:
    problem = Problem(0)
    report = evaluate_self_aware(problem.fitted, problem.test, n_resamples=0)
    known = oracle.uncertainties(problem.known)
    sets = {name: oracle.uncertainties(scene) for name, scene in problem.unknown.items()}
    sets["pooled"] = [value for values in sets.values() for value in values]
    for name, unknown in sets.items():
        pairs = [(u > k) + (u == k) / 2 for u in unknown for k in known]
        assert report.get("auroc", f"unknown/{name}").value == pytest.approx(np.mean(pairs))


def test_ap_is_that_of_coco_and_has_the_interval_of_all_its_numbers() -> None:
    problem = Problem(0)
    report = evaluate_self_aware(problem.fitted, problem.test, n_resamples=60, seed=3)
    for name, part in {"known/as detected": problem.test.known, **problem.test.shifted}.items():
        split = name if "/" in name else f"shifted/{name}"
        result = report.get("ap", split)
        assert result.value == pytest.approx(coco_numbers(*part).ap, abs=1e-12)
        weights = bootstrap_weights(part.truth.n_images, n_resamples=60, seed=3)
        table = MatchTables(*part).coco
        ap = coco_measures(table, part.truth.classes.n_known, weights=weights)["ap"]
        expected = Result.from_value("ap", "paper", split=Split("known"), value=ap)
        assert (result.low, result.high) == (expected.low, expected.high)


def test_intervals_contain_their_values() -> None:
    problem = Problem(0)
    report = evaluate_self_aware(problem.fitted, problem.test, n_resamples=60)
    daq = report.get("detection_awareness_quality")
    assert daq.low <= daq.value <= daq.high
    assert daq.low < daq.high
    again = evaluate_self_aware(problem.fitted, problem.test, n_resamples=60)
    assert again.get("detection_awareness_quality").low == daq.low


def test_few_images_or_replicates_give_no_interval() -> None:
    problem = Problem(0)
    few = problem.test.unknown["a"]
    ids = few.image_ids[:3]
    few = few[np.isin(few.image_index, np.arange(3))].for_images(ids)
    test = replace(problem.test, unknown={"a": few})
    report = evaluate_self_aware(problem.fitted, test, n_resamples=200)
    for metric, split in (
        ("balanced_accuracy", "unknown"),
        ("unknown_rejected", "unknown"),
        ("auroc", "unknown/a"),
        ("detection_awareness_quality", "all"),
    ):
        result = report.get(metric, split)
        assert math.isnan(result.low), metric
        assert result.units == 3
    assert not math.isnan(report.get("known_accepted", "unknown").low)
    assert "n=3" in str(report)
    assert any("n= behind a number" in note for note in report.notes)
    rough = evaluate_self_aware(problem.fitted, problem.test, n_resamples=20)
    assert any("intervals are rough" in note for note in rough.notes)


def test_the_public_code_has_its_own_balanced_accuracy_without_an_interval() -> None:
    problem = Problem(0)
    report = evaluate_self_aware(problem.fitted, problem.test, convention="saod", n_resamples=20)
    known = oracle.uncertainties(problem.known)
    unknown = [u for s in problem.unknown.values() for u in oracle.uncertainties(s)]
    expected = awareness.balanced_accuracy_saod(known, unknown, problem.rules.u)
    result = report.get("balanced_accuracy", "unknown")
    assert result.value == pytest.approx(expected)
    assert math.isnan(result.low)
    assert math.isnan(report.get("detection_awareness_quality").low)
    assert not math.isnan(report.get("lrp", "known").low)


@pytest.mark.parametrize("seed", range(0, 60, 10))
def test_rules_and_measures_of_the_public_code_together(seed) -> None:
    problem = Problem(seed)
    rules = oracle.fit_saod(problem.validation, problem.copies)
    fitted = SelfAware.fit(
        *to_containers(problem.validation),
        to_containers(problem.copies)[0],
        SelfAwareSettings(convention="saod"),
    )
    report = evaluate_self_aware(fitted, problem.test, convention="saod", n_resamples=0)
    parts = {}
    for name, scene in {"known": problem.known, **problem.shifted}.items():
        accepted, boxes = oracle.use_saod(scene, rules)
        images = [k for k in range(scene.n_images) if name != "5" or accepted[k]]
        left = replace(scene, detections=[replace(d, score=p) for d, p in boxes])
        parts[name] = (images, left)
    unions = {"known": parts["known"][1], "shifted": union([parts[name] for name in SEVERITIES])}
    qualities = []
    for split, scene in unions.items():
        lrps = list(lrp.class_lrps(scene, 0.1).values())
        total = lrp.mean_lrp(lrps, skips_all_wrong=True)
        laece = calibration.laece(scene, "saod")
        qualities.append(awareness.idq(total.error, laece))
        expected = {"lrp": total.error, "lrp_false_positive": total.false_positives}
        expected |= {"laece": laece, "in_distribution_quality": qualities[-1]}
        for metric, value in expected.items():
            assert report.get(metric, split).value == pytest.approx(value, abs=1e-12), metric
    known = oracle.uncertainties(problem.known)
    unknown = [u for s in problem.unknown.values() for u in oracle.uncertainties(s)]
    balanced = awareness.balanced_accuracy_saod(known, unknown, fitted.image_threshold.value)
    daq = awareness.daq(balanced, *qualities)
    assert report.get("detection_awareness_quality").value == pytest.approx(daq, abs=1e-12)


def test_a_report_prints_what_it_holds() -> None:
    problem = Problem(0)
    report = evaluate_self_aware(problem.fitted, problem.test, n_resamples=0)
    text = str(report)
    for name in ("DAQ", "BA", "TPR", "TNR", "IDQ", "LaECE", "LRP", "AUROC", "AP"):
        assert name in text
    assert f"{100 * report.get('detection_awareness_quality').value:.1f}" in text
    with pytest.raises(UnknownNameError, match="Splits: known, shifted"):
        report.get("laece", "nowhere")


def test_without_shifted_or_unknown_images_there_is_no_daq() -> None:
    problem = Problem(0)
    alone = SelfAwareTest(problem.test.known)
    report = evaluate_self_aware(problem.fitted, alone, n_resamples=0)
    assert "no DAQ" in repr(report)
    assert any("needs shifted and unknown" in note for note in report.notes)


def test_a_detector_that_rejects_everything_has_no_quality() -> None:
    problem = Problem(0)
    fitted = SelfAware.fit(*to_containers(problem.validation), to_containers(problem.copies)[0])
    strict = replace(fitted, image_threshold=replace(fitted.image_threshold, value=-1.0))
    report = evaluate_self_aware(strict, problem.test, n_resamples=0)
    assert report.get("known_accepted", "unknown").value == 0
    assert report.get("in_distribution_quality", "known").value == 0
    assert report.get("detection_awareness_quality").value == 0
    assert any("of known are rejected" in note for note in report.notes)


def test_a_detector_that_accepts_everything_has_daq_zero() -> None:
    problem = Problem(0)
    lax = replace(
        problem.fitted, image_threshold=replace(problem.fitted.image_threshold, value=1e300)
    )
    full = {name: part[np.ones(len(part), bool)] for name, part in problem.test.unknown.items()}
    test = replace(problem.test, unknown={n: _without_empty(p) for n, p in full.items()})
    report = evaluate_self_aware(lax, test, n_resamples=0)
    assert report.get("unknown_rejected", "unknown").value == 0
    assert report.get("detection_awareness_quality").value == 0


def _without_empty(detections: Detections) -> Detections:
    kept = detections.image_ids[np.diff(detections.offsets) > 0]
    return detections.for_images(kept)


def test_bad_input_is_a_sentence() -> None:
    problem = Problem(0)
    with pytest.raises(InvalidDataError, match="not among"):
        replace(problem.test, free=frozenset({"7"}))
    with pytest.raises(InvalidDataError, match="convention paper or saod"):
        evaluate_self_aware(problem.fitted, problem.test, convention="mine")


# DAQ, BA, IDQ, LaECE, LRP, IDQ_T, LaECE_T, LRP_T of table A.16, in percent
TABLE_A16 = [
    (39.7, 87.7, 38.5, 17.3, 74.9, 26.2, 18.1, 84.4),
    (41.2, 88.9, 39.7, 17.1, 73.9, 27.5, 17.8, 83.5),
    (41.4, 87.8, 39.7, 16.6, 74.0, 27.8, 18.2, 83.2),
    (43.5, 88.9, 41.7, 16.4, 72.3, 29.6, 17.9, 81.9),
    (43.0, 91.0, 41.5, 9.5, 73.1, 28.8, 7.2, 83.0),
    (44.7, 85.8, 43.5, 8.8, 71.5, 30.8, 6.8, 81.5),
]


@pytest.mark.parametrize("row", TABLE_A16)
def test_the_papers_table_is_consistent_with_our_formulas(row) -> None:
    daq, ba, idq, laece, error, idq_t, laece_t, error_t = (value / 100 for value in row)
    measured = in_distribution_quality(error, laece), in_distribution_quality(error_t, laece_t)
    assert measured[0] == pytest.approx(idq, abs=1e-3)
    assert measured[1] == pytest.approx(idq_t, abs=1e-3)
    assert detection_awareness_quality(ba, *measured) == pytest.approx(daq, abs=1e-3)
    assert not math.isnan(daq)


def test_copies_of_images_add_no_certainty():
    """Five equal copies of every known image have the value and the interval of the images."""
    scene = random_scene(np.random.default_rng(3), n_images=30, with_ties=False)
    found, truth = to_containers(scene)
    found = found[found.class_ids < truth.classes.n_known]
    names = truth.image_ids.astype(np.str_)
    found, truth = (
        replace(part, image_ids=names) for part in (found.for_images(truth.image_ids), truth)
    )
    fitted = SelfAware.fit(found, truth, settings=SelfAwareSettings(image_threshold=0.6))
    places = np.repeat(np.arange(30), 5)
    copies = np.array([f"{names[k]}#fog-{n % 5 + 1}" for n, k in enumerate(places)])
    many = AnnotatedSet(found.at_images(places, copies), truth.at_images(places, copies))
    test = SelfAwareTest(AnnotatedSet(found, truth), {"c": many})
    report = evaluate_self_aware(fitted, test, n_resamples=60)
    for metric in ("lrp", "laece", "in_distribution_quality"):
        once, five = report.get(metric, "known"), report.get(metric, "shifted")
        assert five.value == pytest.approx(once.value, abs=1e-9)
        assert (five.low, five.high) == pytest.approx((once.low, once.high), abs=1e-9)
    once, five = report.get("ap", "known/as detected"), report.get("ap", "shifted/c")
    assert (five.low, five.high) == pytest.approx((once.low, once.high), abs=1e-9)
