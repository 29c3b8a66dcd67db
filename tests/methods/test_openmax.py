"""OpenMax against slow loops, scipy, pytorch-ood and the numbers of libmr."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from pytorch_ood.detector import OpenMax as PeerOpenMax
from scipy import optimize, stats
from tests.oracles.logit_methods import OpenMaxByLoops, weibull

from incognita.containers.outputs import ClassifierOutputs
from incognita.errors import InvalidDataError
from incognita.kernels.weibull import fit_tails
from incognita.methods.contract import Toy
from incognita.methods.method import Rows
from incognita.methods.openmax import OpenMax
from incognita.metrics.ranking import auroc

TOY = Toy(n_classes=5, d=12)
KNOWN, UNKNOWN = TOY.outputs(200), TOY.outputs(60, unknown=True, seed=2)
TEST = TOY.outputs(60, seed=3)

# Given to MR().fit_high(tail, 20) of libmr 0.1.9, built from its source on PyPI with Python 3.11;
# get_params() gave scale, shape, sign 1, translate_amount 1, small_score.
LIBMR_TAIL = [
    7.571032, 8.02338, 5.624951, 5.262712, 7.362515, 8.647455, 7.561402, 7.681448, 9.539654,
    11.166601, 9.828485, 5.209437, 9.163536, 6.050149, 8.081608, 7.809769, 9.747232, 6.980284,
    6.870852, 8.520905,
]  # fmt: skip
LIBMR_SCALE, LIBMR_SHAPE, LIBMR_SMALLEST = 4.086001334201479, 2.5245035521827304, 5.209437
LIBMR_W_SCORES = {
    4.0: 0.0,
    5.209437: 0.02822106023084414,
    7.0: 0.31742211408114596,
    8.0: 0.5628145383458684,
    9.0: 0.7755752448823638,
    12.0: 0.9939013410542773,
    50.0: 1.0,
}


def fit_one(tail, shift: float = 1.0) -> tuple[float, float]:
    shapes, scales, _ = fit_tails(np.sort(tail), np.array([0, len(tail)]), len(tail), shift)
    return shapes[0], scales[0]


def loops(method: OpenMax, known: ClassifierOutputs) -> OpenMaxByLoops:
    return OpenMaxByLoops(
        known.logits.double().numpy(), known.labels.numpy(),
        tail=method.tail, alpha=method.alpha, shift=method.shift,
    )  # fmt: skip


def log_odds(method: OpenMax, known: ClassifierOutputs, rows: ClassifierOutputs) -> list[float]:
    slow = loops(method, known)
    return [slow.log_odds(row) for row in rows.logits.double().tolist()]


def test_a_fit_equals_libmr():
    shape, scale = fit_one(LIBMR_TAIL)
    assert (shape, scale) == pytest.approx((LIBMR_SHAPE, LIBMR_SCALE), rel=1e-8)


def test_the_weights_equal_the_w_scores_of_libmr():
    method = OpenMax()
    method.means_ = torch.zeros(1, 1, dtype=torch.float64)
    method.distances_ = torch.tensor(LIBMR_TAIL, dtype=torch.float64).sort().values
    method.offsets_ = torch.tensor([0, 20])
    rows = Rows(KNOWN, method)
    method.finalize(rows, rows)
    rows = torch.tensor(list(LIBMR_W_SCORES), dtype=torch.float64)[:, None]
    weights = method._surprise(rows, torch.zeros(7, 1, dtype=torch.long))[:, 0]
    np.testing.assert_allclose(weights, list(LIBMR_W_SCORES.values()), rtol=1e-7)


@pytest.mark.parametrize("shift", [0.01, 1.0, 10_000.0])
@pytest.mark.parametrize("seed", range(4))
def test_a_fit_equals_scipy(shift, seed):
    tail = 5 + 3 * np.random.default_rng(seed).weibull(2.5, 20)

    def to_the_end(function, start, args, **_):
        # scipy's own stops at 1e-4; the least of a likelihood is known to 1e-8 at best
        for _ in range(3):
            start = optimize.fmin(
                function, start, args, xtol=1e-13, ftol=1e-15, maxfun=5000, disp=False
            )
        return start

    moved = tail - tail.min() + shift
    theirs = stats.weibull_min.fit(moved, floc=0, optimizer=to_the_end)
    shape, scale = fit_one(tail, shift)
    assert (shape, scale) == pytest.approx((theirs[0], theirs[2]), rel=1e-6)


@pytest.mark.parametrize("shift", [1e-3, 1.0, 10_000.0])
@pytest.mark.parametrize("spread", [1e-3, 1.0, 1e4])
@pytest.mark.parametrize("n", [2, 3, 20, 200])
def test_a_fit_is_where_the_likelihood_has_no_slope(shift, spread, n):
    tail = spread * np.random.default_rng(n).gamma(0.7, size=n)
    assert fit_one(tail, shift) == pytest.approx(weibull(tail, shift), rel=1e-8)


@pytest.mark.parametrize("gap", [1e-15, 1e-9, 1e9])
def test_a_fit_of_almost_equal_or_far_distances_is_finite(gap):
    shape, scale = fit_one(np.array([1.0, 1.0, 1.0 + gap]))
    assert 0 < shape < np.inf
    assert 0 < scale < np.inf


def test_classes_are_fitted_each_for_itself():
    rng = np.random.default_rng(0)
    tails = [np.sort(rng.weibull(2, size)) for size in (30, 0, 1, 5)]
    offsets = np.cumsum([0] + [len(tail) for tail in tails])
    shapes, scales, smallest = fit_tails(np.concatenate(tails), offsets, 20, 1.0)
    assert (shapes[0], scales[0]) == fit_one(tails[0][-20:])
    assert (shapes[3], scales[3]) == fit_one(tails[3])
    assert scales[1:3].tolist() == [np.inf, np.inf]
    assert smallest.tolist() == [tails[0][10], 0.0, tails[2][0], tails[3][0]]


@pytest.mark.parametrize("tail", [2, 20, 1000])
@pytest.mark.parametrize("alpha", [1, 3, 10])
@pytest.mark.parametrize("shift", [1.0, 10_000.0])
def test_openmax_equals_the_loops_of_the_paper(tail, alpha, shift):
    method = OpenMax(tail, alpha, shift).fit(KNOWN)
    for rows in (TEST, UNKNOWN):
        np.testing.assert_allclose(
            method.score(rows), log_odds(method, KNOWN, rows), rtol=1e-9, atol=1e-10
        )


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # scipy's search leaves its domain
def test_openmax_equals_pytorch_ood_where_its_shift_is_taken():
    correct = KNOWN[KNOWN.logits.argmax(dim=1) == KNOWN.labels]  # it fits the others as well
    theirs = PeerOpenMax(None, tailsize=20, alpha=3).fit_logits(
        correct.logits.double(), correct.labels
    )
    ours = OpenMax(shift=10_000.0).fit(KNOWN).score(TEST).sigmoid()
    assert set(TEST.logits.argmax(dim=1).tolist()) == set(range(5))  # else it takes distance 0
    np.testing.assert_allclose(ours, theirs.predict_logits(TEST.logits.double()), rtol=2e-3)


def test_only_correct_rows_are_learned_from():
    wrong = replace(TEST, labels=(TEST.logits.argmax(dim=1) + 1) % 5)
    both = ClassifierOutputs.concatenate([KNOWN, wrong])
    assert torch.equal(OpenMax().fit(both).score(UNKNOWN), OpenMax().fit(KNOWN).score(UNKNOWN))


def test_a_class_without_a_correct_row_keeps_its_logit():
    known = KNOWN[KNOWN.labels != 2]
    method = OpenMax().fit(known)
    np.testing.assert_allclose(method.score(TEST), log_odds(method, known, TEST), rtol=1e-9)
    rows = torch.tensor([[0.0, 0.0, 50.0, 0.0, 0.0]])
    alone = OpenMax(alpha=1).fit(known).score(ClassifierOutputs(("a",), rows))
    assert alone.item() == pytest.approx(-50)  # nothing is taken: -log(e^50 + 4)


def test_a_class_with_one_correct_row_keeps_its_logit():
    is_first = torch.arange(200) == int((KNOWN.labels == 2).nonzero()[0])
    known = KNOWN[(KNOWN.labels != 2) | is_first]
    method = OpenMax().fit(known)
    np.testing.assert_allclose(method.score(TEST), log_odds(method, known, TEST), rtol=1e-9)


def test_when_nothing_was_right_the_score_is_the_energy():
    wrong = replace(KNOWN, labels=(KNOWN.logits.argmax(dim=1) + 1) % 5)
    energy = -TEST.logits.double().logsumexp(dim=1)
    torch.testing.assert_close(OpenMax().fit(wrong).score(TEST), energy, rtol=1e-14, atol=0)


def test_more_ranks_than_classes_are_all_classes():
    assert torch.equal(
        OpenMax(alpha=20).fit(KNOWN).score(TEST), OpenMax(alpha=5).fit(KNOWN).score(TEST)
    )


def test_large_logits_neither_overflow_nor_tie():
    rows = torch.tensor([[1000.0 + k, 0.0, -5.0, 0.0, 0.0] for k in range(20)])
    score = OpenMax().fit(KNOWN).score(ClassifierOutputs(tuple(range(20)), rows))
    assert score.isfinite().all()
    assert (score.diff() > 0).all()  # farther and farther from every mean


def test_unknown_rows_score_higher_and_every_row_for_itself():
    method = OpenMax().fit(TOY.outputs(1000))  # 20 of 200 are a tail, 20 of 40 are not
    known, unknown = method.score(TEST), method.score(UNKNOWN)
    assert auroc(torch.cat([known, unknown]).numpy(), np.arange(120) >= 60) > 0.9
    alone = torch.cat([method.score(TEST[torch.arange(60) == k]) for k in range(5)])
    assert torch.equal(alone, known[:5])
    assert method.score(ClassifierOutputs.empty(5)).shape == (0,)


def test_one_class_alone_gives_finite_scores():
    logits = torch.arange(30.0)[:, None]
    one = ClassifierOutputs(tuple(range(30)), logits, labels=torch.zeros(30, dtype=torch.long))
    assert OpenMax().fit(one).score(one).isfinite().all()


@pytest.mark.parametrize("changes", [{"tail": 5}, {"alpha": 1}, {"shift": 10_000.0}])
def test_a_changed_parameter_changes_the_score_as_a_new_fit_does(changes):
    before = OpenMax().fit(KNOWN)
    after = before.with_parameters(KNOWN, **changes).score(TEST)
    assert torch.equal(after, OpenMax(**changes).fit(KNOWN).score(TEST))
    assert not torch.equal(after, before.score(TEST))


@pytest.mark.parametrize("changes", [{"tail": 0}, {"alpha": -1}, {"shift": 0.0}])
def test_parameters_that_make_no_sense_are_refused(changes):
    (name,) = changes
    with pytest.raises(InvalidDataError, match=f"OpenMax needs a {name} above 0, but got"):
        OpenMax(**changes)


def test_known_rows_without_labels_are_refused():
    with pytest.raises(InvalidDataError, match="OpenMax needs labels, but the outputs have none"):
        OpenMax().fit(UNKNOWN)


def test_a_tail_above_the_correct_rows_of_a_class_is_noted():
    n_correct = (KNOWN.logits.argmax(dim=1) == KNOWN.labels).long()
    fewest = int(torch.zeros(5).long().index_add(0, KNOWN.labels, n_correct).min())
    assert OpenMax(tail=fewest).fit(KNOWN).notes_on(KNOWN) == []
    assert OpenMax(tail=fewest + 1).fit(KNOWN).notes_on(KNOWN) == [
        f"OpenMax: its tail of {fewest + 1} exceeds the correct known rows of the smallest class, "
        f"{fewest}: the tail is then the whole class"
    ]
