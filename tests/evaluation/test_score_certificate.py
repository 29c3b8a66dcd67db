"""Certificates of classifiers: every number against scikit-learn or the slow definitions."""

import inspect
import math

import numpy as np
import pytest
from sklearn.metrics import accuracy_score, average_precision_score, roc_auc_score
from tests.oracles import ranking as slow

from incognita.errors import InvalidDataError
from incognita.evaluation import certify_scores
from incognita.metrics.ranking import RANKING_METRICS
from incognita.metrics.selective import operating_point
from incognita.results.claims import Claim

N_RESAMPLES = 40


def make_columns(seed: int = 0, n: int = 60, n_levels: int = 12, n_images: int | None = None):
    """Rows with ties; several of one image where there are fewer images than rows."""
    rng = np.random.default_rng(seed)
    is_unknown = rng.random(n) < 0.4
    score = np.round(rng.normal(size=n) * 3 + 4 * is_unknown) / n_levels
    label = rng.integers(0, 4, n)
    predicted = np.where(rng.random(n) < 0.7, label, (label + 1) % 4)
    image = np.arange(n) if n_images is None else rng.integers(0, n_images, n)
    return {
        "image": image, "score": score, "is_unknown": is_unknown, "label": label,
        "predicted": predicted,
    }  # fmt: skip


def slow_values(columns, threshold: float) -> dict[tuple[str, str], float]:
    """Every number of a table, from scikit-learn and from counting rows."""
    score, unknown = columns["score"], columns["is_unknown"]
    wrong = (columns["label"] != columns["predicted"]) & ~unknown
    known = ~unknown
    everywhere = slow.at_threshold(score, unknown, wrong, threshold)
    at_known = slow.at_threshold(score[known], unknown[known], wrong[known], threshold)
    rows = [(float(s), bool(u), slow.Fraction(1)) for s, u in zip(score, unknown, strict=True)]
    return {
        **{(name, "all"): value for name, value in slow.ranking_metrics(rows).items()},
        ("auroc", "all"): roc_auc_score(unknown, score),
        ("aupr_unknown", "all"): average_precision_score(unknown, score),
        ("aupr_known", "all"): average_precision_score(known, -score),
        ("accuracy", "known-only"): accuracy_score(
            columns["label"][known], columns["predicted"][known]
        ),
        ("oscr", "all"): slow.oscr(score, unknown, ~wrong),
        **{(name, "all"): value for name, value in everywhere.items()},
        ("coverage", "known-only"): at_known["coverage"],
        ("selective_risk", "known-only"): at_known["selective_risk"],
    }


@pytest.mark.parametrize("seed", range(6))
def test_every_number_is_that_of_scikit_learn_or_of_the_definition(seed):
    columns = make_columns(seed)
    threshold = float(np.median(columns["score"]))  # equal to some scores
    certificate = certify_scores(columns, threshold=threshold, n_resamples=0)
    expected = slow_values(columns, threshold)
    for (metric, split), value in expected.items():
        assert certificate.get(metric, split=split).value == pytest.approx(value, abs=1e-12)
    given = {(r.metric, str(r.split)) for r in certificate.results}
    assert given == set(expected) | {("aurc", "all"), ("aurc", "known-only")}


def test_the_risk_coverage_curves_are_those_of_all_orders():
    columns = make_columns(3, n=7, n_levels=1)
    columns["is_unknown"] = np.array([False, True, False, False, True, False, False])
    certificate = certify_scores(columns, n_resamples=0)
    known = ~columns["is_unknown"]
    wrong = columns["label"] != columns["predicted"]
    expected = slow.aurc(columns["score"], wrong | ~known)
    assert certificate.get("aurc").value == pytest.approx(expected, abs=1e-12)
    expected = slow.aurc(columns["score"][known], wrong[known])
    assert certificate.get("aurc", split="known-only").value == pytest.approx(expected, abs=1e-12)


def slow_replicates(columns, threshold: float, seed: int) -> list[dict[tuple[str, str], float]]:
    """Draw images as the certificate does, and measure the rows of each draw from scratch."""
    rng = np.random.default_rng(seed)
    images = np.unique(columns["image"].astype(str))
    replicates = []
    for _ in range(N_RESAMPLES):
        drawn = images[rng.integers(len(images), size=len(images))]
        rows = np.concatenate([np.flatnonzero(columns["image"].astype(str) == i) for i in drawn])
        replicates.append(slow_values({k: v[rows] for k, v in columns.items()}, threshold))
    return replicates


@pytest.mark.parametrize("n_images", [None, 35])
def test_intervals_are_those_of_drawing_images_by_hand(n_images):
    columns = make_columns(1, n_images=n_images)
    certificate = certify_scores(columns, threshold=0.1, n_resamples=N_RESAMPLES, seed=9)
    replicates = slow_replicates(columns, 0.1, seed=9)
    n_compared = 0
    for key in slow_values(columns, 0.1):
        found = certificate.get(key[0], split=key[1])
        low, high = np.quantile([values[key] for values in replicates], [0.025, 0.975])
        if low <= found.value <= high:  # otherwise the interval is moved, as everywhere
            assert (found.low, found.high) == pytest.approx((low, high), abs=1e-9), key
            n_compared += 1
    assert n_compared >= 14
    assert any("drawing images" in note for note in certificate.notes) == (n_images is not None)


@pytest.mark.parametrize("seed", range(20))
def test_an_operating_point_is_what_counting_gives(seed):
    columns = make_columns(seed, n=int(np.random.default_rng(seed).integers(1, 12)))
    score, unknown = columns["score"], columns["is_unknown"]
    wrong = columns["label"] != columns["predicted"]
    for threshold in (*score, -np.inf, np.inf):
        at = operating_point(score, unknown, wrong, threshold=threshold)
        expected = slow.at_threshold(score, unknown, wrong, threshold)
        found = {name: float(values[0]) for name, values in at._asdict().items()}
        assert found == pytest.approx(expected, abs=1e-15, nan_ok=True)


def test_a_float32_score_is_compared_with_the_threshold_as_written():
    score = np.array([0.1], np.float32)  # a little above 0.1
    at = operating_point(score, np.array([False]), np.array([False]), threshold=0.1)
    assert at.false_alarm_rate[0] == 1.0


def test_what_the_table_lacks_is_undefined_with_its_reason():
    columns = make_columns()
    bare = {name: columns[name] for name in ("image", "score", "is_unknown")}
    certificate = certify_scores(bare, n_resamples=0)
    no_classes = "the table has no columns label and predicted"
    assert certificate.get("accuracy", split="known-only").reason == no_classes
    assert certificate.get("oscr").reason == no_classes
    no_threshold = "there is no operating point; give a threshold"
    assert certificate.get("false_alarm_rate").reason == no_threshold
    at = certify_scores(bare, threshold=0.0, n_resamples=0)
    assert at.get("selective_risk").reason == no_classes
    assert at.get("coverage").value > 0


def test_tables_of_one_side_are_certified_without_a_ranking():
    columns = make_columns()
    for is_unknown, reason in ((True, "no image is known"), (False, "no image is unknown")):
        one = columns | {"is_unknown": np.full(60, is_unknown)}
        certificate = certify_scores(one, threshold=0.0, n_resamples=20)
        assert {certificate.get(metric).reason for metric in RANKING_METRICS} == {reason}
        assert certificate.get("oscr").reason == reason
        empty = "false_alarm_rate" if is_unknown else "missed_unknown_rate"
        assert certificate.get(empty).reason == reason
        assert not math.isnan(certificate.get("coverage").low)
        assert any(note.startswith(reason.capitalize()) for note in certificate.notes)


def test_a_threshold_that_accepts_nothing_has_no_risk():
    certificate = certify_scores(make_columns(), threshold=-1e9, n_resamples=20)
    assert certificate.get("selective_risk").reason == "no image is accepted"
    assert certificate.get("coverage").value == 0.0
    assert certificate.get("false_alarm_rate").value == 1.0


def test_few_images_have_no_interval():
    certificate = certify_scores(make_columns(n=8), threshold=0.0, n_resamples=100)
    assert all(math.isnan(result.low) for result in certificate.results)
    assert any(note.startswith("n= behind") for note in certificate.notes)


def test_claims_are_checked_on_the_numbers_of_the_certificate():
    criteria = [
        Claim(metric="auroc", at_least=0.7, confidence=0.95),
        Claim(metric="accuracy", split="known-only", at_least=0.99),
        Claim(metric="false_alarm_rate", at_most=0.9, parameters={"threshold": 0.5}),
        Claim(metric="laece", at_most=0.1),
    ]
    certificate = certify_scores(
        make_columns(n=400), threshold=0.5, criteria=criteria, n_resamples=50
    )
    assert [c.verdict.value for c in certificate.claims] == ["pass", "fail", "pass", "undefined"]
    assert certificate.claims[0].result == certificate.get("auroc")
    assert not certificate.meets_criteria
    assert "claims passed: 2 of 4" in certificate.headline()
    assert "fail: accuracy (paper) on known-only >= 0.99" in certificate.summary()
    assert certify_scores(make_columns(), n_resamples=0).meets_criteria


def test_perfect_scores_of_few_images_do_not_prove_perfection():
    is_unknown = np.arange(40) < 20
    columns = {"image": np.arange(40), "score": is_unknown * 1.0, "is_unknown": is_unknown}
    criteria = [Claim(metric="auroc", at_least=limit, confidence=0.95) for limit in (0.8, 0.95)]
    certificate = certify_scores(columns, criteria=criteria, n_resamples=50)
    assert (certificate.get("auroc").low, certificate.get("auroc").high) == (1.0, 1.0)
    assert [claim.verdict.value for claim in certificate.claims] == ["pass", "fail"]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"threshold": math.nan}, "Expected a finite threshold, got nan"),
        ({"threshold": "0.5"}, "Expected threshold to be a number, got '0.5'"),
        ({"n_resamples": -1}, "Expected n_resamples to be at least 0"),
        ({"criteria": [{"metric": "auroc"}]}, "Expected a file of criteria or claims, got"),
        ({"criteria": 3}, "Expected a file of criteria or claims, got 3"),
    ],
)
def test_options_that_are_wrong_are_refused(options, sentence):
    with pytest.raises(InvalidDataError, match=sentence):
        inspect.unwrap(certify_scores)(make_columns(), **options)
