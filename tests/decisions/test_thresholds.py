"""tau and t*: every policy against its slow definition, F1 against pycocotools as well."""

import contextlib
import io
import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval
from scipy.stats import norm
from tests.metrics.scene_cases import CASES, make_scene
from tests.oracles import awareness
from tests.oracles import thresholds as slow
from tests.oracles.lrp import class_lrps
from tests.oracles.scenes import (
    Scene,
    category_id,
    found,
    random_scene,
    real,
    to_coco,
    to_containers,
)

from incognita.containers.boxes import BoxTruth, Detections
from incognita.containers.classes import Classes, Role
from incognita.decisions.confidence_thresholds import F1Optimal, FixedConfidence, LRPOptimal
from incognita.decisions.thresholds import ConfidenceThreshold, UnknownThreshold
from incognita.decisions.unknown_thresholds import Fixed, HarmonicMean, KnownGaussian, KnownQuantile
from incognita.errors import InvalidDataError
from incognita.metrics import conventions
from incognita.metrics.detection import COCO_THRESHOLDS, precision_curves
from incognita.metrics.matching import match
from incognita.metrics.ranking import fpr_at_known_recall, ranking_metrics

SHARES = ["0.05", "0.35", "0.5", "0.7", "0.95", "0.99", "1.0"]
SCORES = st.lists(st.integers(-20, 20).map(float), min_size=1, max_size=40)
ANY_SCORES = st.lists(st.floats(-1e6, 1e6, width=32), min_size=1, max_size=40)
NO_SCORES = np.zeros(0)


# --- tau: on the unknown score --------------------------------------------------------------------


@given(known=ANY_SCORES, share=st.sampled_from(SHARES))
def test_the_quantile_is_the_smallest_known_score_that_accepts_the_share(known, share):
    threshold = KnownQuantile(float(share)).fit(np.array(known))
    assert threshold.value == slow.known_quantile(known, share)
    assert threshold.metadata["known_accepted"] == float(slow.share_at_most(known, threshold.value))
    assert threshold.metadata["n_known"] == len(known)


@pytest.mark.parametrize("n", range(1, 121))
def test_a_share_of_whole_rows_accepts_no_row_more(n):
    known = np.arange(n, dtype=np.float64)
    for k in range(1, n + 1):  # 0.35 * 20 is 7.000000000000001, and 7 rows are enough
        assert KnownQuantile(k / n).fit(known).value == k - 1


@given(known=SCORES, unknown=SCORES, share=st.sampled_from(SHARES))
def test_a_monotone_map_of_the_scores_moves_no_decision_of_the_quantile(known, unknown, share):
    policy, rows = KnownQuantile(float(share)), np.array(unknown + known)
    before = policy.fit(np.array(known)).is_unknown(rows)
    for mapped in (
        lambda x: x**3 - 7,
        lambda x: np.exp(x / 4),
        lambda x: np.arctan(x).astype("f4"),
    ):
        after = policy.fit(mapped(np.array(known))).is_unknown(mapped(rows))
        assert after.tolist() == before.tolist()


@given(known=ANY_SCORES, unknown=ANY_SCORES, seed=st.integers(0, 2**16))
def test_the_order_of_rows_does_not_matter_to_tau(known, unknown, seed):
    rng = np.random.default_rng(seed)
    mixed = rng.permutation(known), rng.permutation(unknown)
    for policy in (KnownQuantile(), KnownGaussian(), Fixed(0.5)):
        assert policy.fit(*mixed) == policy.fit(np.array(known), np.array(unknown))
    if min(known) < max(unknown):
        ours = HarmonicMean().fit(*mixed)
        assert ours == HarmonicMean().fit(np.array(known), np.array(unknown))


@pytest.mark.parametrize("share", SHARES[2:])
def test_the_unknown_rows_that_pass_the_quantile_are_those_of_the_ranking_metric(share):
    rng = np.random.default_rng(3)
    known, unknown = rng.normal(0, 1, 333).round(1), rng.normal(1, 1, 200).round(1)
    metadata = KnownQuantile(float(share)).fit(known, unknown).metadata
    is_unknown = np.arange(533) >= 333
    passed = fpr_at_known_recall(np.append(known, unknown), is_unknown, recall=float(share))
    assert 1 - metadata["unknown_rejected"] == pytest.approx(passed, abs=1e-15)


@given(known=ANY_SCORES, n_std=st.sampled_from([0.0, 1.0, 1.645, -2.0]))
def test_the_gaussian_threshold_is_mean_and_population_deviation(known, n_std):
    threshold = KnownGaussian(n_std).fit(np.array(known))
    expected = slow.known_gaussian(known, n_std)
    scale = max(map(abs, known))
    assert threshold.value == pytest.approx(expected, rel=1e-12, abs=1e-12 * scale)
    assert threshold.metadata["known_accepted"] == float(slow.share_at_most(known, threshold.value))


def test_the_gaussian_threshold_is_the_public_codes_with_the_sign_turned():
    # mean - 1.645 std of a score that points the other way, numpy's default deviation
    known = np.random.default_rng(0).gamma(2.0, 3.0, 500)
    code = np.mean(-known) - 1.645 * np.std(-known)
    assert KnownGaussian().fit(known).value == pytest.approx(-code, rel=1e-14)


def test_the_gaussian_threshold_accepts_95_percent_only_of_a_gaussian():
    places = (np.arange(10_000) + 0.5) / 10_000
    assert KnownGaussian().fit(norm.ppf(places)).metadata["known_accepted"] == pytest.approx(
        0.95, abs=1e-3
    )
    skewed = KnownGaussian().fit(np.append(np.zeros(9900), np.full(100, 1.0)))
    assert skewed.metadata["known_accepted"] == 0.99


@given(known=SCORES, unknown=SCORES)
def test_the_harmonic_mean_is_largest_at_the_smallest_best_score(known, unknown):
    value, quality = slow.best_harmonic_mean(known, unknown)
    if quality == 0:
        with pytest.raises(InvalidDataError, match="No threshold accepts a known row and rejects"):
            HarmonicMean().fit(np.array(known), np.array(unknown))
        return
    threshold = HarmonicMean().fit(np.array(known), np.array(unknown))
    assert threshold.value == value
    assert threshold.metadata["harmonic_mean"] == float(quality)
    assert threshold.metadata["known_accepted"] == float(slow.share_at_most(known, value))
    assert threshold.metadata["unknown_rejected"] == float(1 - slow.share_at_most(unknown, value))


def test_of_two_equal_harmonic_means_the_smaller_threshold_is_taken():
    # at 1: half of known accepted, all unknown rejected; at 2: all and half
    known, unknown = np.array([1.0, 2.0]), np.array([2.0, 3.0])
    assert slow.harmonic_mean(known, unknown, 1.0) == slow.harmonic_mean(known, unknown, 2.0)
    assert HarmonicMean().fit(known, unknown).value == 1.0


def test_the_harmonic_mean_finds_what_the_roc_curve_of_the_public_code_leaves_out():
    scores = [float(score) for score in range(20)]  # one known and one unknown row each
    threshold = HarmonicMean().fit(np.array(scores), np.array(scores))
    assert (threshold.value, threshold.metadata["harmonic_mean"]) == (9.0, 0.5)
    code = awareness.best_threshold_saod(scores, scores)
    assert slow.harmonic_mean(scores, scores, code) < Fraction(1, 2)


def test_a_score_equal_to_the_threshold_is_known():
    threshold = KnownQuantile(1.0).fit(np.array([1.0, 2.0]))
    assert threshold.is_unknown(np.array([2.0, np.nextafter(2.0, 3.0)])).tolist() == [False, True]


def test_float32_scores_are_compared_with_the_threshold_as_it_is():
    # 0.1 as float32 is larger than 0.1: it exceeds the threshold, though float32 rounds them equal
    assert Fixed(0.1).fit(NO_SCORES).is_unknown(np.array([0.1], np.float32)).tolist() == [True]


def test_an_infinite_score_is_decided_and_nan_is_refused():
    threshold = UnknownThreshold(0.0, "own")
    assert threshold.is_unknown(np.array([np.inf, -np.inf])).tolist() == [True, False]
    with pytest.raises(InvalidDataError, match="NaN in 1 of 3 rows, the first in row 2, which"):
        threshold.is_unknown(np.array([1.0, 2.0, np.nan]))
    assert threshold.is_unknown(NO_SCORES).shape == (0,)


@pytest.mark.parametrize("policy", [KnownQuantile(), KnownGaussian()], ids=str)
@pytest.mark.parametrize("score", [0.0, 0.7, -1e300, 1e-320])
@pytest.mark.parametrize("n", [1, 3, 50])
def test_equal_known_scores_are_their_own_threshold_and_all_accepted(policy, score, n):
    threshold = policy.fit(
        np.full(n, score)
    )  # the rounded mean of three times 0.7 is less than 0.7
    assert threshold.value == score
    assert threshold.metadata["known_accepted"] == 1.0


def test_a_fixed_threshold_needs_no_scores():
    threshold = Fixed(3.0).fit(NO_SCORES, NO_SCORES)
    assert threshold == UnknownThreshold(3.0, "fixed(value=3.0)", {"n_known": 0, "n_unknown": 0})


@pytest.mark.parametrize("policy", [KnownQuantile(), KnownGaussian(), HarmonicMean()], ids=str)
def test_no_known_score_is_refused(policy):
    with pytest.raises(InvalidDataError, match="at least one score in known_scores, got none"):
        policy.fit(NO_SCORES, np.ones(2))


@pytest.mark.parametrize(
    "policy", [KnownQuantile(), KnownGaussian(), HarmonicMean(), Fixed(1.0)], ids=str
)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_scores_that_are_no_numbers_are_refused_by_name(policy, bad):
    with pytest.raises(InvalidDataError, match=r"^known_scores must be finite, but 1 of 2 values"):
        policy.fit(np.array([1.0, bad]), np.ones(2))
    with pytest.raises(
        InvalidDataError, match=r"^unknown_scores must be finite, but 1 of 2 values"
    ):
        policy.fit(np.array([1.0, 2.0]), np.array([bad, 3.0]))


def test_the_harmonic_mean_asks_for_unknown_scores():
    with pytest.raises(InvalidDataError, match=r"got only known ones\. Pass those of pseudo"):
        HarmonicMean().fit(np.ones(3))
    with pytest.raises(InvalidDataError, match="at least one score in unknown_scores"):
        HarmonicMean().fit(np.ones(3), NO_SCORES)


def test_scores_that_point_the_wrong_way_are_refused_by_the_harmonic_mean():
    with pytest.raises(
        InvalidDataError, match=r"score, 2\.0, is not below the largest unknown one"
    ):
        HarmonicMean().fit(np.array([2.0, 3.0]), np.array([1.0, 2.0]))


def test_scores_too_large_for_a_mean_are_refused():
    with pytest.raises(InvalidDataError, match="are too large for a mean and a standard deviation"):
        KnownGaussian().fit(np.array([1e308, 1e308, -1e308]))


@pytest.mark.usefixtures("outside_tests")
def test_scores_of_two_axes_are_refused():
    with pytest.raises(InvalidDataError, match=r"with one axis, got the shape \(2, 2\)"):
        KnownQuantile().fit(np.ones((2, 2)))


@pytest.mark.parametrize("share", [0.0, -0.5, 1.5, 95.0])
def test_a_share_is_above_zero_and_at_most_one(share):
    with pytest.raises(InvalidDataError, match="share must be above 0 and at most 1"):
        KnownQuantile(share)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize(
    "make", [KnownQuantile, KnownGaussian, Fixed, LRPOptimal, FixedConfidence], ids=lambda m: m.name
)
def test_a_parameter_is_a_finite_number(make, bad):
    with pytest.raises(InvalidDataError, match=rf"a finite number as \w+ of {make.name}, got"):
        make(bad)


def test_a_threshold_decides_like_the_metric_it_was_chosen_by():
    rng = np.random.default_rng(7)
    known, unknown = rng.normal(0, 1, 400), rng.normal(2, 1, 300)
    threshold = HarmonicMean().fit(known, unknown)
    rows, is_unknown = np.append(known, unknown), np.arange(700) >= 400
    flagged = threshold.is_unknown(rows)
    assert flagged[:400].mean() == pytest.approx(1 - threshold.metadata["known_accepted"])
    assert flagged[400:].mean() == threshold.metadata["unknown_rejected"]
    error = (flagged[:400].mean() + 1 - flagged[400:].mean()) / 2
    assert error >= ranking_metrics(rows, is_unknown).detection_error - 1e-12


# --- t*: on the confidence of the detector --------------------------------------------------------


def pycocotools_curves(scene: Scene) -> tuple[np.ndarray, np.ndarray]:
    """`precision` and `scores` of all areas and 100 detections, the known classes in order."""
    dataset, results = to_coco(scene)
    with contextlib.redirect_stdout(io.StringIO()):
        truth = COCO()
        truth.dataset = dataset
        truth.createIndex()
        evaluator = COCOeval(truth, truth.loadRes(results) if results else COCO(), "bbox")
        evaluator.params.catIds = [category_id(scene, label) for label in scene.known_labels]
        evaluator.evaluate()
        evaluator.accumulate()
    return evaluator.eval["precision"][:, :, :, 0, 2], evaluator.eval["scores"][:, :, :, 0, 2]


def best_by_pycocotools(scene: Scene) -> dict[str, float]:
    """The confidence at the best F1 of each class that has one."""
    precision, scores = (values.mean(0) for values in pycocotools_curves(scene))
    best = {}
    for k, label in enumerate(scene.known_labels):
        if (precision[:, k] <= 0).all():  # -1: no object; 0: nothing found
            continue
        f1 = [
            2 * p * r / (p + r) if p + r else 0.0
            for p, r in zip(precision[:, k], RECALLS, strict=True)
        ]
        if scores[np.argmax(f1), k] > 0:
            best[label] = float(scores[np.argmax(f1), k])
    return best


RECALLS = np.linspace(0, 1, 101)


@pytest.mark.parametrize(("kind", "seed"), CASES)
def test_curves_equal_those_of_pycocotools_to_the_last_bit(kind, seed):
    scene = make_scene(kind, seed)
    table = match(*to_containers(scene), convention=conventions.COCO, thresholds=COCO_THRESHOLDS)
    ours = precision_curves(table, len(scene.known_labels))
    precision, scores = pycocotools_curves(scene)
    np.testing.assert_array_equal(ours.recalls, RECALLS)
    np.testing.assert_array_equal(ours.precision, np.where(precision == -1, np.nan, precision))
    np.testing.assert_array_equal(ours.confidence, np.where(precision == -1, np.nan, scores))


def test_images_with_more_than_a_hundred_detections_are_cut_as_pycocotools_cuts_them():
    scene = random_scene(np.random.default_rng(3), n_images=4, n_known=1, n_background=250.0)
    assert len(scene.detections) > 4 * 200
    table = match(*to_containers(scene), convention=conventions.COCO, thresholds=COCO_THRESHOLDS)
    ours, theirs = precision_curves(table, 1), pycocotools_curves(scene)
    np.testing.assert_array_equal(ours.precision, theirs[0])
    np.testing.assert_array_equal(ours.confidence, theirs[1])
    expected = best_by_pycocotools(scene)
    assert F1Optimal().fit(*to_containers(scene)).metadata["per_class"] == pytest.approx(expected)


@pytest.mark.parametrize(("kind", "seed"), CASES)
def test_f1_thresholds_equal_those_from_pycocotools_curves(kind, seed):
    scene = make_scene(kind, seed)
    threshold = F1Optimal().fit(*to_containers(scene))
    expected = best_by_pycocotools(scene)
    assert threshold.metadata["per_class"] == pytest.approx(expected, abs=1e-12)
    assert list(threshold.metadata["per_class"]) == list(expected)
    without = [label for label in scene.known_labels if label not in expected]
    assert threshold.metadata["without_threshold"] == without
    one = np.mean(list(expected.values()))
    np.testing.assert_allclose(threshold.per_class, [one] * len(scene.known_labels), atol=1e-12)


@pytest.mark.parametrize(("kind", "seed"), CASES[::4])
def test_f1_thresholds_equal_their_definition(kind, seed):
    scene = make_scene(kind, seed)
    metadata = F1Optimal().fit(*to_containers(scene)).metadata
    expected = slow.f1_thresholds(scene)
    assert metadata["without_threshold"] == [label for label, good in expected.items() if not good]
    for label, value in metadata["per_class"].items():
        # of recalls with equal F1 rounding may choose another than the first
        assert min(abs(value - good) for good in expected[label]) < 1e-12


def test_where_every_class_is_found_f1_is_the_number_vos_prints():
    rng = np.random.default_rng(11)
    scene = random_scene(rng, n_images=60, n_known=4, with_ties=False, n_background=6.0)
    precision, scores = (values.mean(0) for values in pycocotools_curves(scene))
    assert (precision.max(axis=0) > 0).all()
    f1 = 2 * precision * RECALLS[:, None] / (precision + RECALLS[:, None])
    at_best = scores[f1.argmax(0), np.arange(4)]
    vos = at_best[at_best != 0].mean()
    assert F1Optimal().fit(*to_containers(scene)).per_class.tolist() == pytest.approx([vos] * 4)


def test_a_class_of_which_nothing_is_found_takes_no_part_in_f1():
    # VOS averages in the surest mistake of b (0.99) and the -1 of c, which has no object
    scene = Scene(
        1,
        [found(0, (0, 0, 9, 9), 0.6, "a"), found(0, (50, 0, 9, 9), 0.99, "b")],
        [real(0, (0, 0, 9, 9), "a"), real(0, (0, 50, 9, 9), "b")],
        ["a", "b", "c"],
    )
    threshold = F1Optimal().fit(*to_containers(scene))
    assert threshold.per_class.tolist() == [0.6] * 3  # the mean of ten times 0.6 is rounded down
    assert threshold.metadata["without_threshold"] == ["b", "c"]
    assert threshold.metadata["f1"] == pytest.approx({"a": 1.0})


@pytest.mark.parametrize("tau", [0.0, 0.1, 0.5])
@pytest.mark.parametrize(("kind", "seed"), CASES)
def test_lrp_thresholds_equal_their_definition(kind, seed, tau):
    scene = make_scene(kind, seed)
    threshold = LRPOptimal(tau).fit(*to_containers(scene))
    expected = np.array(slow.lrp_thresholds(scene, tau))
    names = np.array(scene.known_labels)
    assert threshold.metadata["without_threshold"] == names[np.isinf(expected)].tolist()
    np.testing.assert_array_equal(np.isinf(threshold.per_class), np.isinf(expected))
    for k in np.flatnonzero(~np.isinf(expected) & (threshold.per_class != expected)):
        # two thresholds can be equally good, and rounding then chooses between them
        errors = [lrp_above(scene, names[k], t, tau) for t in (threshold.per_class[k], expected[k])]
        assert errors[0] == pytest.approx(errors[1], abs=1e-12)


def lrp_above(scene: Scene, label: str, threshold: float, tau: float) -> float:
    kept = [each for each in scene.detections if each.score >= threshold]
    return class_lrps(replace(scene, detections=kept), tau)[label].error


@pytest.mark.parametrize("seed", range(4))
def test_the_order_of_images_does_not_matter_to_the_confidence_thresholds(seed):
    scene = random_scene(np.random.default_rng(seed), n_images=12, with_ties=False)
    mixed = np.random.default_rng(seed + 100).permutation(12)
    moved = replace(
        scene,
        detections=[replace(d, image=int(mixed[d.image])) for d in scene.detections],
        truths=[replace(t, image=int(mixed[t.image])) for t in scene.truths],
    )
    for policy in (F1Optimal(), LRPOptimal(), FixedConfidence(0.3)):
        before, after = (policy.fit(*to_containers(each)) for each in (scene, moved))
        np.testing.assert_allclose(after.per_class, before.per_class, atol=1e-12)


CLASSES = Classes(
    ("car", "unknown", "bus", "sign"), (Role.KNOWN, Role.UNKNOWN, Role.KNOWN, Role.IGNORED)
)


def boxes_of(class_ids: list[int], confidence: list[float], dtype=np.float64) -> Detections:
    n = len(class_ids)
    corners = np.tile([0.0, 0.0, 4.0, 4.0], (n, 1))
    return Detections([1], [0, n], corners, np.array(confidence, dtype), class_ids, CLASSES)


def test_a_box_is_kept_that_reaches_the_threshold_of_its_class():
    threshold = ConfidenceThreshold(np.array([0.5, 0.8]), "own")
    found = boxes_of([0, 0, 2, 2, 2], [0.5, 0.49, 0.79, 0.8, 0.9])
    assert threshold.keep(found).tolist() == [True, False, False, True, True]
    assert threshold.keep(boxes_of([], [])).shape == (0,)


def test_a_class_without_lrp_threshold_keeps_nothing():
    found, truth = boxes_of([0, 2], [0.9, 1.0]), BoxTruth([1], [0, 1], [[0, 0, 4, 4]], [0], CLASSES)
    threshold = LRPOptimal().fit(found, truth)
    assert threshold.per_class.tolist() == [0.9, np.inf]
    assert threshold.metadata == {"lrp": {"car": 0.0}, "without_threshold": ["bus"]}
    assert threshold.keep(found).tolist() == [True, False]


def test_float32_confidences_reach_the_threshold_they_gave():
    found = boxes_of([0], [0.1], np.float32)
    truth = BoxTruth([1], [0, 1], [[0, 0, 4, 4]], [0], CLASSES)
    for policy in (LRPOptimal(), F1Optimal()):
        assert policy.fit(found, truth).keep(found).tolist() == [True]
    # 0.1 as float32 is 0.100000001: as it is it reaches 0.1, and 0.9 (0.899999976) misses 0.9
    assert FixedConfidence(0.1).fit(found, truth).keep(found).tolist() == [True]
    close = boxes_of([0], [0.9], np.float32)
    assert FixedConfidence(0.9).fit(close, truth).keep(close).tolist() == [False]


def test_one_threshold_for_all_holds_for_boxes_of_other_classes_too():
    found = boxes_of([0, 1, 1, 3], [0.9, 0.4, 0.6, 0.6])
    threshold = FixedConfidence(0.5).fit(found, BoxTruth.empty([1], CLASSES))
    assert threshold.keep(found).tolist() == [True, False, True, True]


def test_boxes_called_unknown_have_no_threshold_per_class():
    threshold = ConfidenceThreshold(np.array([0.5, 0.8]), "own")
    with pytest.raises(
        InvalidDataError, match="1 of 2 boxes are not of a known class, the first in row 1"
    ):
        threshold.keep(boxes_of([0, 1], [0.9, 0.9]))


def test_thresholds_of_other_classes_are_refused():
    threshold = FixedConfidence(0.5).fit(boxes_of([], []), BoxTruth.empty([1], CLASSES))
    for names in (("bus", "car"), ("car",)):
        found = Detections.empty([1], Classes(names))
        with pytest.raises(InvalidDataError, match=r"2 known classes of the thresholds \(car"):
            threshold.keep(found)
    with pytest.raises(InvalidDataError, match=r"1 known classes of the thresholds \(not named\)"):
        ConfidenceThreshold(np.array([0.5]), "own").keep(boxes_of([], []))


def test_nan_is_no_threshold():
    with pytest.raises(InvalidDataError, match="Use infinity for a class without kept boxes"):
        ConfidenceThreshold(np.array([0.5, np.nan]), "own")
    with pytest.raises(
        InvalidDataError, match="Expected a finite number as value of a threshold, got inf"
    ):
        UnknownThreshold(math.inf, "own")


@pytest.mark.parametrize("policy", [F1Optimal(), LRPOptimal()], ids=str)
def test_without_detections_or_objects_there_is_no_threshold(policy):
    found, truth = boxes_of([0], [0.9]), BoxTruth([1], [0, 1], [[0, 0, 4, 4]], [0], CLASSES)
    nothing_found, nothing_there = Detections.empty([1], CLASSES), BoxTruth.empty([1], CLASSES)
    for pair in ((nothing_found, truth), (found, nothing_there), (nothing_found, nothing_there)):
        with pytest.raises(InvalidDataError, match="found no threshold: no detection with a conf"):
            policy.fit(*pair)
    with pytest.raises(InvalidDataError, match="the 0 objects of 0 images"):
        policy.fit(Detections.empty([], CLASSES), BoxTruth.empty([], CLASSES))


@settings(max_examples=30)
@given(confidence=st.floats(0.001, 1.0))
def test_the_only_right_box_reaches_its_own_threshold(confidence):
    found, truth = boxes_of([0], [confidence]), BoxTruth([1], [0, 1], [[0, 0, 4, 4]], [0], CLASSES)
    for policy in (F1Optimal(), LRPOptimal()):
        assert policy.fit(found, truth).keep(found).tolist() == [True]


def test_f1_refuses_confidences_below_zero():
    found, truth = boxes_of([0, 0], [0.9, -2.0]), BoxTruth.empty([1], CLASSES)
    with pytest.raises(InvalidDataError, match=r"must not be negative, but row 1 is -2\.0"):
        F1Optimal().fit(found, truth)


def test_lrp_refuses_an_iou_of_one():
    with pytest.raises(
        InvalidDataError, match=r"tau of lrp to be an IoU of at least 0 and below 1, got 1"
    ):
        LRPOptimal(1.0)


def test_detections_of_other_images_are_refused():
    truth = BoxTruth.empty([2], CLASSES)
    for policy in (F1Optimal(), LRPOptimal()):
        with pytest.raises(InvalidDataError, match="must list the same images"):
            policy.fit(boxes_of([0], [0.9]), truth)
