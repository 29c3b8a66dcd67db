"""Methods that are one formula on the logits, against sixty digits, scipy and pytorch-ood."""

import numpy as np
import pytest
import pytorch_ood.detector as peer
import torch
from scipy import special, stats
from tests.oracles import logit_methods as oracle

from incognita.containers.outputs import ClassifierOutputs
from incognita.errors import InvalidDataError
from incognita.methods.contract import Toy
from incognita.methods.softmax import GEN, MCM, MSP, Energy, Entropy, GradNorm, MaxLogit
from incognita.metrics.ranking import auroc

TOY = Toy(n_classes=6, d=12)
KNOWN, UNKNOWN = TOY.outputs(40), TOY.outputs(40, unknown=True, seed=2)
ALL = [MSP(), MaxLogit(), Energy(), Entropy(), GEN(), MCM(), GradNorm()]
by_title = pytest.mark.parametrize("method", ALL, ids=lambda method: method.title)


def outputs_of(logits, features=None) -> ClassifierOutputs:
    logits = torch.as_tensor(logits)
    return ClassifierOutputs(tuple(range(len(logits))), logits, features)


def rows(seed: int = 0, *, n: int = 12, n_classes: int = 7, scale: float = 4.0) -> torch.Tensor:
    rng = torch.Generator().manual_seed(seed)
    return scale * torch.randn(n, n_classes, generator=rng)


def confident(n: int = 30) -> torch.Tensor:
    """Rows a float32 softmax cannot tell apart: gaps of 20 to 49 between the largest logits."""
    return torch.tensor([[20.0 + k, 0.0, -1.0] for k in range(n)])


@pytest.mark.parametrize("scale", [0.1, 4.0, 40.0])
def test_msp_equals_sixty_digits(scale):
    logits = rows(scale=scale)
    ours = MSP().score(outputs_of(logits))
    np.testing.assert_allclose(ours, oracle.msp(logits.tolist()), rtol=1e-13)


def test_msp_equals_scipy_and_pytorch_ood():
    logits = rows().double()
    ours = MSP().score(outputs_of(logits))
    np.testing.assert_allclose(ours, 1 - special.softmax(logits.numpy(), axis=1).max(1), atol=1e-15)
    np.testing.assert_allclose(ours, 1 + peer.MaxSoftmax(None).predict_logits(logits), atol=1e-15)


def test_max_logit_is_the_largest_and_equals_pytorch_ood():
    logits = rows()
    ours = MaxLogit().score(outputs_of(logits))
    assert ours.tolist() == [-max(row) for row in logits.tolist()]
    assert torch.equal(ours, peer.MaxLogit(None).predict_logits(logits).double())


@pytest.mark.parametrize("temperature", [0.1, 1.0, 20.0])
def test_energy_equals_sixty_digits_and_pytorch_ood(temperature):
    logits = rows().double()
    ours = Energy(temperature).score(outputs_of(logits))
    np.testing.assert_allclose(ours, oracle.energy(logits.tolist(), temperature), rtol=1e-14)
    theirs = peer.EnergyBased(None, t=temperature).predict_logits(logits)
    np.testing.assert_allclose(ours, theirs, rtol=1e-14)


@pytest.mark.parametrize("scale", [0.1, 4.0, 60.0])
def test_entropy_equals_sixty_digits_also_where_it_is_tiny(scale):
    logits = rows(scale=scale)
    ours = Entropy().score(outputs_of(logits))
    np.testing.assert_allclose(ours, oracle.entropy(logits.tolist()), rtol=1e-13)


def test_entropy_equals_scipy_and_pytorch_ood():
    logits = rows(scale=1.0).double()
    ours = Entropy().score(outputs_of(logits))
    np.testing.assert_allclose(
        ours, stats.entropy(special.softmax(logits.numpy(), axis=1), axis=1), rtol=1e-13
    )
    np.testing.assert_allclose(ours, peer.Entropy(None).predict_logits(logits), rtol=1e-13)


@pytest.mark.parametrize("gamma", [0.01, 0.1, 1.0, 10.0])
@pytest.mark.parametrize("top", [1, 3, 7, 100])
def test_gen_equals_sixty_digits(gamma, top):
    logits = torch.cat([rows(), confident(4).repeat(1, 3)[:, :7]])
    ours = GEN(gamma, top).score(outputs_of(logits))
    np.testing.assert_allclose(ours, oracle.gen(logits.tolist(), gamma, top), rtol=1e-12)


@pytest.mark.parametrize("top", [2, 7])
def test_gen_is_the_sum_where_pytorch_ood_has_the_mean(top):
    logits = rows(scale=1.0).double()
    theirs = peer.GEN(None, gamma=0.3, M=top).predict_logits(logits) * top
    np.testing.assert_allclose(GEN(0.3, top).score(outputs_of(logits)), theirs, rtol=1e-9)


def test_gen_with_more_classes_asked_for_than_there_are_takes_all():
    logits = outputs_of(rows())
    assert torch.equal(GEN(top=1000).score(logits), GEN(top=7).score(logits))


@pytest.mark.parametrize("temperature", [0.01, 1.0, 10.0])
def test_mcm_equals_sixty_digits_where_the_probability_is_long_zero(temperature):
    logits = torch.cat([rows()[:, :3], confident(5)])
    ours = MCM(temperature).score(outputs_of(logits))
    np.testing.assert_allclose(ours, oracle.mcm(logits.tolist(), temperature), rtol=1e-13)


def test_mcm_ranks_like_pytorch_ood_on_cosines():
    rng = torch.Generator().manual_seed(0)
    images, texts = torch.randn(50, 8, generator=rng), torch.randn(5, 8, generator=rng)
    cosines = torch.nn.functional.normalize(images) @ torch.nn.functional.normalize(texts).T
    theirs = peer.MCM(None, texts).predict_features(images).double()
    np.testing.assert_allclose(
        MCM().score(outputs_of(cosines)).exp(), 1 + theirs, rtol=1e-5, atol=1e-6
    )


def head_of(toy: Toy) -> torch.nn.Linear:
    layer = torch.nn.Linear(toy.d, toy.n_classes).double()
    with torch.no_grad():
        layer.weight.copy_(toy.head.weight)
        layer.bias.copy_(toy.head.bias)
    return layer


@pytest.mark.parametrize("temperature", [1.0, 2.5])
def test_gradnorm_is_the_norm_of_the_gradient(temperature):
    features, layer = TOY.outputs(10).features.double(), head_of(Toy(n_classes=6, d=12))
    norms = []
    for row in features:
        loss = -(layer(row) / temperature).log_softmax(dim=0).sum()
        (gradient,) = torch.autograd.grad(loss, layer.weight)
        norms.append(-float(gradient.abs().sum()))
    ours = GradNorm(temperature).score(outputs_of(layer(features).detach(), features))
    np.testing.assert_allclose(ours, norms, rtol=1e-13)


def test_gradnorm_is_pytorch_oods_times_the_number_of_classes():
    features, layer = TOY.outputs(10).features.double(), head_of(TOY)
    theirs = peer.GradNorm(layer, param_filter=lambda name: name == "weight").predict(features)
    ours = GradNorm().score(outputs_of(layer(features).detach(), features))
    np.testing.assert_allclose(ours, 6 * theirs, rtol=1e-13)


@by_title
def test_confident_rows_never_tie(method):
    # for GradNorm the features tell rows apart: the factor of the logits has its limit 2 (C - 1)
    outputs = outputs_of(confident(), torch.arange(30.0)[:, None] + 1)
    score = method.score(outputs)
    assert score.dtype == torch.float64
    assert (score.diff() < 0).all()


@by_title
def test_unknown_rows_score_higher(method):
    score = torch.cat([method.score(KNOWN), method.score(UNKNOWN)]).numpy()
    assert auroc(score, np.arange(80) >= 40) > 0.9


@by_title
def test_a_row_has_the_same_score_alone_and_among_others(method):
    whole = method.score(KNOWN)
    alone = [
        method.score(KNOWN[torch.arange(40) == k])[0]
        for k in range(0, 40, 7)
    ]  # fmt: skip
    assert torch.equal(whole[::7], torch.stack(alone))


@by_title
def test_rows_beyond_one_chunk_are_scored_alike(method):
    logits, features = KNOWN.logits.repeat(30, 1), KNOWN.features.repeat(30, 1)
    assert torch.equal(method.score(outputs_of(logits, features)), method.score(KNOWN).repeat(30))


@by_title
def test_no_row_gives_no_score(method):
    assert method.score(ClassifierOutputs.empty(6, TOY.head)).shape == (0,)


@by_title
def test_one_class_and_rows_of_zeros_give_finite_scores(method):
    one_class = outputs_of([[3.0], [-2.0]], torch.ones(2, 4))
    zeros = outputs_of(torch.zeros(2, 5), torch.zeros(2, 4))
    assert method.score(one_class).isfinite().all()
    assert method.score(zeros).isfinite().all()


@by_title
def test_half_precision_logits_are_scored_in_float64(method):
    half = outputs_of(KNOWN.logits.half(), KNOWN.features)
    double = outputs_of(KNOWN.logits.half().double(), KNOWN.features)
    assert torch.equal(method.score(half), method.score(double))


@pytest.mark.parametrize(
    "method",
    [Energy(2.0), GEN(gamma=0.5), GEN(top=2), MCM(10.0), GradNorm(2.0)],
    ids=lambda method: f"{method.title}",
)
def test_a_changed_parameter_changes_the_score(method):
    assert not torch.equal(method.score(KNOWN), type(method)().score(KNOWN))


@pytest.mark.parametrize("kind", [Energy, MCM, GradNorm])
@pytest.mark.parametrize("temperature", [0.0, -1.0, float("nan"), float("inf")])
def test_a_temperature_that_is_not_above_0_is_refused(kind, temperature):
    with pytest.raises(InvalidDataError, match=f"{kind.__name__} needs a temperature above 0"):
        kind(temperature=temperature)


def test_gradnorm_without_features_says_so():
    with pytest.raises(InvalidDataError, match="GradNorm needs features, but the outputs have"):
        GradNorm().score(outputs_of(rows()))
