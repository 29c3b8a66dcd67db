"""Numbers of an evaluation against scikit-learn, set by set."""

import numpy as np
import pytest
from sklearn.metrics import average_precision_score, roc_auc_score

from incognita.evaluation.classifier_metrics import (
    accuracy_results,
    as_results,
    draw,
    measure_mistakes,
    measure_unknown,
)
from incognita.results.score_tables import ScoredSet


def a_set(name, group, n, *, accuracy=None, seed=0):
    rng = np.random.default_rng(seed)
    predicted = rng.integers(0, 3, n)
    labels = None
    if accuracy is not None:
        labels = np.where(rng.random(n) < accuracy, predicted, (predicted + 1) % 3)
    return ScoredSet(name, group, tuple(f"{name}{k}" for k in range(n)), predicted, labels)


@pytest.fixture
def sets():
    return [
        a_set("known", "known", 120, accuracy=0.8),
        a_set("blurred", "shifted", 60, accuracy=0.5, seed=1),
        a_set("cats", "near", 50),
        a_set("dogs", "near", 90),
        a_set("noise", "far", 40),
    ]


@pytest.fixture
def scores(sets):
    rng = np.random.default_rng(5)
    shift = {"known": 0.0, "blurred": 0.6, "cats": 0.5, "dogs": 1.0, "noise": 3.0}
    return {
        method: {s.name: rng.normal(factor * shift[s.name], 1, len(s)) for s in sets}
        for method, factor in (("good", 1.0), ("poor", 0.2))
    }


def sklearn_auroc(known, unknown):
    truth = np.repeat([0, 1], [len(known), len(unknown)])
    return roc_auc_score(truth, np.concatenate([known, unknown]))


def test_every_set_and_the_plain_mean_of_its_group_equal_sklearn(sets, scores):
    weights = draw(sets, n_resamples=0, seed=0)
    measured = measure_unknown(sets, scores, weights)
    for method, mine in scores.items():
        each = {
            name: sklearn_auroc(mine["known"], mine[name]) for name in ("cats", "dogs", "noise")
        }
        values = {
            split: v[0] for (metric, split), v in measured[method].items() if metric == "auroc"
        }
        assert values["near/cats"] == pytest.approx(each["cats"], abs=1e-12)
        assert values["near"] == pytest.approx((each["cats"] + each["dogs"]) / 2, abs=1e-12)
        assert values["far"] == pytest.approx(each["noise"], abs=1e-12)


def test_shifted_images_count_as_known_in_the_full_spectrum(sets, scores):
    weights = draw(sets, n_resamples=0, seed=0)
    measured = measure_unknown(sets, scores, weights, with_shifted=True)["good"]
    mine = scores["good"]
    known = np.concatenate([mine["known"], mine["blurred"]])
    assert measured["auroc", "full-spectrum far/noise"][0] == pytest.approx(
        sklearn_auroc(known, mine["noise"]), abs=1e-12
    )


def test_both_average_precisions_equal_sklearn(sets, scores):
    weights = draw(sets, n_resamples=0, seed=0)
    measured = measure_unknown(sets, scores, weights)["poor"]
    known, unknown = scores["poor"]["known"], scores["poor"]["dogs"]
    truth = np.repeat([0, 1], [len(known), len(unknown)])
    score = np.concatenate([known, unknown])
    assert measured["aupr_unknown", "near/dogs"][0] == pytest.approx(
        average_precision_score(truth, score), abs=1e-12
    )
    assert measured["aupr_known", "near/dogs"][0] == pytest.approx(
        average_precision_score(1 - truth, -score), abs=1e-12
    )


def test_mistakes_are_told_as_sklearn_says(sets, scores):
    weights = draw(sets, n_resamples=3, seed=0)
    measured = measure_mistakes(sets, scores, weights)["good"]
    is_wrong = sets[0].predicted != sets[0].labels
    expected = roc_auc_score(is_wrong, scores["good"]["known"])
    assert measured["auroc", "misclassified"][0] == pytest.approx(expected, abs=1e-12)


def test_a_model_without_mistakes_has_no_number_for_them(scores):
    perfect = [a_set("known", "known", 120, accuracy=1.1)]
    assert measure_mistakes(perfect, scores, draw(perfect, n_resamples=0, seed=0))["good"] == {}


def test_a_replicate_of_the_mean_is_the_mean_of_replicates_with_the_same_known_images(sets, scores):
    weights = draw(sets, n_resamples=4, seed=7)
    measured = measure_unknown(sets, scores, weights)["good"]
    rows = {name: np.repeat(np.arange(len(w)), w[:, 3].astype(int)) for name, w in weights.items()}
    drawn = {name: scores["good"][name][index] for name, index in rows.items()}
    each = [sklearn_auroc(drawn["known"], drawn[name]) for name in ("cats", "dogs")]
    assert measured["auroc", "near"][3] == pytest.approx(np.mean(each), abs=1e-12)


def test_accuracy_of_known_shifted_and_all_together(sets):
    weights = draw(sets, n_resamples=2, seed=0)
    found = {result.split: result for result in accuracy_results(sets, weights)}
    right = [s.predicted == s.labels for s in sets[:2]]
    assert found["known"].value == pytest.approx(right[0].mean())
    assert found["shifted/blurred"].value == pytest.approx(right[1].mean())
    assert found["full-spectrum known"].value == pytest.approx(np.concatenate(right).mean())


def test_records_say_how_many_images_stand_behind_them(sets, scores):
    weights = draw(sets, n_resamples=20, seed=0)
    measured = measure_unknown(sets, scores, weights)["good"]
    records = {(r.metric, r.split): r for r in as_results(measured, sets)}
    near = records["auroc", "near"]
    assert near.support == {"known images": 120, "unknown images": 140, "sets": 2}
    assert near.low < near.value < near.high


def test_a_side_below_ten_images_has_no_interval_and_says_how_many(sets, scores):
    small = [replace_rows(scored, 9) if scored.name == "cats" else scored for scored in sets]
    few = {m: {n: s[:9] if n == "cats" else s for n, s in v.items()} for m, v in scores.items()}
    measured = measure_unknown(small, few, draw(small, n_resamples=20, seed=0))["good"]
    records = {r.split: r for r in as_results(measured, small) if r.metric == "auroc"}
    for split in ("near", "near/cats"):  # the mean rests on the same nine images
        assert records[split].units == 9
        assert records[split].few == " n=9"
        assert np.isnan(records[split].low)
    assert not np.isnan(records["near/dogs"].low)
    assert len(measured["auroc", "near"]) == 1  # so that no gap is called significant


def replace_rows(scored: ScoredSet, n: int) -> ScoredSet:
    return scored.keep(np.arange(len(scored)) < n)


def test_the_draw_of_a_set_does_not_depend_on_the_others(sets):
    alone = draw(sets[2:3], n_resamples=5, seed=3)["cats"]
    assert np.array_equal(alone, draw(sets, n_resamples=5, seed=3)["cats"])
