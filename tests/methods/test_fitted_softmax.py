"""Temperature scaling and KL matching, against slow definitions, scipy and pytorch-ood."""

from dataclasses import replace

import numpy as np
import pytest
import pytorch_ood.detector as peer
import torch
from scipy import special, stats
from tests.oracles import logit_methods as oracle

from incognita.containers.outputs import ClassifierOutputs
from incognita.errors import InvalidDataError
from incognita.methods.contract import Toy
from incognita.methods.fitted_softmax import KLMatching, Temperature
from incognita.methods.softmax import MSP
from incognita.metrics.ranking import auroc

TOY = Toy(n_classes=5, d=12)
KNOWN, UNKNOWN = TOY.outputs(60), TOY.outputs(60, unknown=True, seed=2)
VALIDATION = TOY.outputs(45, seed=3)


def noisy(scale: float, seed: int = 0, n: int = 150) -> ClassifierOutputs:
    """Rows of which some are wrong, so that a best temperature exists."""
    rng = torch.Generator().manual_seed(seed)
    labels = torch.arange(n) % 5
    logits = torch.randn(n, 5, generator=rng) + 1.5 * torch.nn.functional.one_hot(labels, 5)
    return ClassifierOutputs(tuple(range(n)), scale * logits, labels=labels)


@pytest.mark.parametrize("scale", [0.01, 1.0, 30.0])
def test_temperature_is_at_the_minimum_of_the_loss(scale):
    known = noisy(scale)
    best = oracle.best_temperature(known.logits.double().numpy(), known.labels.numpy())
    # a minimum found by comparing losses is known to the root of their rounding
    assert Temperature().fit(known).temperature_ == pytest.approx(best, rel=1e-6)


@pytest.mark.parametrize("scale", [0.5, 3.0])
def test_temperature_has_no_slope_left(scale):
    known = noisy(scale)
    logits = known.logits.double()
    t = torch.tensor(Temperature().fit(known).temperature_, dtype=torch.float64, requires_grad=True)
    torch.nn.functional.cross_entropy(logits / t, known.labels).backward()
    assert abs(float(t.grad)) < 1e-14


def test_temperature_loses_less_than_pytorch_oods():
    known = noisy(3.0)
    theirs = peer.TemperatureScaling(None).fit_logits(known.logits, known.labels)
    logits, labels = known.logits.double().numpy(), known.labels.numpy()
    ours = Temperature().fit(known).temperature_
    assert oracle.loss(logits, labels, ours) < oracle.loss(logits, labels, theirs.t.item())


def test_temperature_scores_the_logarithm_of_one_minus_the_largest_probability():
    method = Temperature().fit(noisy(2.0))
    expected = oracle.msp(KNOWN.logits.tolist(), method.temperature_)
    doubt = method.score(KNOWN).exp()
    np.testing.assert_allclose(doubt, expected, rtol=1e-12)
    detector = peer.MaxSoftmax(None, t=method.temperature_)
    np.testing.assert_allclose(
        doubt, 1 + detector.predict_logits(KNOWN.logits.double()), atol=1e-15
    )


def test_temperature_learns_from_validation_rows_where_there_are_some():
    first, other = noisy(1.0), noisy(4.0, seed=9)
    both = Temperature().fit(first, other).temperature_
    assert both == Temperature().fit(other).temperature_
    assert both != Temperature().fit(first).temperature_


def test_temperature_of_rows_that_are_all_right_stays_away_from_underflow():
    logits = torch.tensor([[9.0, 0.0, 2.0], [0.0, 10.0, 1.0]])
    known = ClassifierOutputs(("a", "b"), logits, labels=torch.tensor([0, 1]))
    method = Temperature().fit(known)
    assert method.temperature_ == pytest.approx(10 / 350)
    assert len(method.score(known).unique()) == 2


def test_temperature_of_answers_worse_than_chance_is_the_highest():
    logits = torch.tensor([[9.0, 0.0, 2.0], [0.0, 10.0, 1.0]])
    known = ClassifierOutputs(("a", "b"), logits, labels=torch.tensor([1, 0]))
    assert Temperature().fit(known).temperature_ == pytest.approx(10 / 0.001)


def test_temperature_of_constant_logits_is_one():
    known = ClassifierOutputs(("a",), torch.ones(1, 3), labels=torch.tensor([1]))
    assert Temperature().fit(known).temperature_ == 1.0


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"labels": None}, "Temperature needs labels, but the validation outputs have none"),
        ({"labels": torch.full((45,), -1)}, "labels from 0 to 4, but .* labels from -1 to -1"),
        ({"labels": torch.full((45,), 5)}, "labels from 0 to 4, but .* labels from 5 to 5"),
    ],
)
def test_temperature_refuses_labels_it_cannot_use(changes, sentence):
    with pytest.raises(InvalidDataError, match=sentence):
        Temperature().fit(KNOWN, replace(VALIDATION, **changes))


def test_kl_matching_equals_sixty_digits():
    rows = torch.cat([KNOWN.logits[:8], UNKNOWN.logits[:8]])
    outputs = ClassifierOutputs(tuple(range(16)), rows)
    means = oracle.templates(VALIDATION.logits.tolist())
    ours = KLMatching().fit(KNOWN, VALIDATION).score(outputs)
    np.testing.assert_allclose(ours, oracle.kl_matching(rows.tolist(), means), rtol=1e-11)


def test_kl_matching_equals_pytorch_ood_and_scipy():
    known, rows = VALIDATION.logits.double(), UNKNOWN.logits.double()
    ours = KLMatching().fit(KNOWN, VALIDATION).score(UNKNOWN)
    theirs = peer.KLMatching(None).fit_logits(known).predict_logits(rows)
    np.testing.assert_allclose(ours, theirs, rtol=1e-12)
    p, predicted = special.softmax(known.numpy(), axis=1), known.argmax(1).numpy()
    means = [p[predicted == c].mean(0) for c in np.unique(predicted)]
    slow = [
        min(stats.entropy(row, mean) for mean in means)
        for row in special.softmax(rows.numpy(), axis=1)
    ]
    np.testing.assert_allclose(ours, slow, rtol=1e-11)


def test_kl_matching_goes_by_the_predicted_class_and_not_by_the_label():
    relabelled = replace(VALIDATION, labels=VALIDATION.labels.flip(0))
    assert torch.equal(
        KLMatching().fit(KNOWN, relabelled).score(UNKNOWN),
        KLMatching().fit(KNOWN, VALIDATION).score(UNKNOWN),
    )


def test_kl_matching_leaves_out_a_class_nobody_was_predicted_as():
    predicted = VALIDATION.logits.argmax(dim=1)
    method = KLMatching().fit(KNOWN, VALIDATION[predicted != 2])
    assert method.log_templates_.shape == (4, 5)
    score = method.score(KNOWN)
    assert score.isfinite().all()
    is_of_class = KNOWN.logits.argmax(dim=1) == 2
    assert score[is_of_class].min() > score[~is_of_class].max()


def test_kl_matching_stays_finite_where_a_template_has_lost_a_class():
    logits = torch.tensor([[2000.0, 0.0, 0.0], [0.0, 2000.0, 0.0]])
    known = ClassifierOutputs(("a", "b"), logits)
    rows = ClassifierOutputs(("c", "d"), torch.tensor([[0.0, 0.0, 3.0], [2000.0, 0.0, 0.0]]))
    score = KLMatching().fit(known).score(rows)
    assert score.isfinite().all()
    assert score[0] > 100 > score[1] == 0


@pytest.mark.parametrize("kind", [KLMatching, Temperature])
def test_no_validation_row_is_refused(kind):
    nobody = VALIDATION[torch.zeros(45, dtype=torch.bool)]
    with pytest.raises(InvalidDataError, match="learns from known validation outputs, got none"):
        kind().fit(KNOWN, nobody)


@pytest.mark.parametrize("kind", [KLMatching, Temperature])
def test_scoring_before_fitting_is_refused(kind):
    with pytest.raises(InvalidDataError, match="is not fitted yet"):
        kind().score(KNOWN)


@pytest.mark.parametrize("method", [KLMatching(), Temperature()], ids=lambda m: m.title)
def test_scores_separate_are_finite_and_do_not_depend_on_other_rows(method):
    method.fit(KNOWN, noisy(2.0) if isinstance(method, Temperature) else VALIDATION)
    known, unknown = method.score(KNOWN), method.score(UNKNOWN)
    assert known.dtype == torch.float64
    assert auroc(torch.cat([known, unknown]).numpy(), np.arange(120) >= 60) > 0.9
    alone = torch.cat([method.score(UNKNOWN[torch.arange(60) == k]) for k in range(5)])
    np.testing.assert_allclose(alone, unknown[:5], rtol=1e-12, atol=1e-14)
    assert method.score(ClassifierOutputs.empty(5)).shape == (0,)


@pytest.mark.parametrize("method", [KLMatching(), Temperature()], ids=lambda m: m.title)
def test_rows_a_float32_softmax_cannot_tell_apart_do_not_tie(method):
    method.fit(noisy(1.0))
    logits = torch.tensor([[18.0 + k, 0.0, 0.0, 0.0, 0.0] for k in range(12)])
    score = method.score(ClassifierOutputs(tuple(range(12)), logits))
    assert len(set(score.tolist())) == 12


def test_one_class_alone_is_never_doubted():
    one = ClassifierOutputs(("a", "b"), torch.ones(2, 1), labels=torch.zeros(2, dtype=torch.long))
    assert KLMatching().fit(one).score(one).tolist() == [0.0, 0.0]
    assert (
        Temperature().fit(one).score(one).exp().tolist() == MSP().score(one).tolist() == [0.0, 0.0]
    )
