"""OpenGAN: the game is random, so what can be checked is the network, its memory and its use."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.oracles.probe_methods import leaky_network

from incognita.containers.outputs import ClassifierOutputs
from incognita.errors import InvalidDataError
from incognita.methods.contract import Toy
from incognita.methods.numerics.perceptrons import Adam, Layer
from incognita.methods.opengan import OpenGAN
from incognita.metrics import ranking_metrics


@pytest.fixture(scope="module")
def known() -> ClassifierOutputs:
    return Toy().outputs(400)


@pytest.fixture(scope="module")
def unknown() -> ClassifierOutputs:
    return Toy().outputs(100, unknown=True, seed=3)


@pytest.fixture(scope="module")
def fitted(known: ClassifierOutputs) -> OpenGAN:
    method = OpenGAN().fit(known)
    assert isinstance(method, OpenGAN)
    return method


def test_the_score_is_the_negated_output_of_the_kept_discriminator(
    known: ClassifierOutputs, unknown: ClassifierOutputs, fitted: OpenGAN
) -> None:
    assert known.features is not None
    assert unknown.features is not None
    rows = known.features.double().numpy()
    standardized = (unknown.features.double().numpy() - rows.mean(axis=0)) / rows.std(axis=0)
    kept = {name: t.double().numpy() for name, t in fitted.discriminators_.items()}
    layers = [(kept[f"20.{k}.weight"], kept[f"20.{k}.bias"]) for k in range(3)]
    expected = -leaky_network(layers, standardized)
    np.testing.assert_allclose(fitted.score(unknown), expected, rtol=1e-9)


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("negative", [False, True])
def test_unknown_rows_are_found_with_default_parameters(seed, negative):  # type: ignore[no-untyped-def]
    toy = Toy(negative=negative)
    method = OpenGAN(seed=seed).fit(toy.outputs(400))
    scores = [
        method.score(toy.outputs(100, seed=2)),
        method.score(toy.outputs(100, unknown=True, seed=3)),
    ]
    is_unknown = np.arange(200) >= 100
    assert ranking_metrics(torch.cat(scores).numpy(), is_unknown).auroc > 0.9


def test_the_discriminator_learns_to_trust_known_rows_more_than_noise(
    known: ClassifierOutputs, fitted: OpenGAN
) -> None:
    assert known.features is not None
    spread, mean = torch.std_mean(known.features, dim=0)
    noise = mean + spread * torch.randn(400, 16, generator=torch.Generator().manual_seed(9))
    made_up = ClassifierOutputs(tuple(range(400)), torch.zeros(400, 4), noise)
    assert fitted.score(known).mean() < fitted.score(made_up).mean()


def test_one_training_keeps_every_epoch_of_the_grid(
    known: ClassifierOutputs, unknown: ClassifierOutputs, fitted: OpenGAN
) -> None:
    for epochs in (1, 5):
        earlier = fitted.with_parameters(known, epochs=epochs)
        assert earlier.state()["discriminators_"] is fitted.discriminators_
        assert torch.equal(earlier.score(unknown), OpenGAN(epochs=epochs).fit(known).score(unknown))


def test_an_epoch_that_was_not_kept_is_trained(
    known: ClassifierOutputs, unknown: ClassifierOutputs, fitted: OpenGAN
) -> None:
    other = fitted.with_parameters(known, epochs=7)
    assert torch.equal(other.score(unknown), OpenGAN(epochs=7).fit(known).score(unknown))
    later = OpenGAN(epochs=2).fit(known).with_parameters(known, epochs=20)
    assert torch.equal(later.score(unknown), fitted.score(unknown))


def test_the_seed_decides_and_the_global_one_is_left_alone(
    known: ClassifierOutputs, unknown: ClassifierOutputs, fitted: OpenGAN
) -> None:
    torch.manual_seed(1)
    before = torch.random.get_rng_state()
    again = OpenGAN().fit(known)
    assert torch.equal(torch.random.get_rng_state(), before)
    assert torch.equal(again.score(unknown), fitted.score(unknown))
    for other in (OpenGAN(seed=1), OpenGAN(width=32), OpenGAN(learning_rate=1e-4)):
        assert not torch.allclose(other.fit(known).score(unknown), fitted.score(unknown))


def test_it_can_be_fitted_where_gradients_are_switched_off(
    known: ClassifierOutputs, unknown: ClassifierOutputs, fitted: OpenGAN
) -> None:
    with torch.no_grad():
        quiet = OpenGAN().fit(known)
    with torch.inference_mode():
        inferred = OpenGAN().fit(known)
    assert torch.equal(quiet.score(unknown), fitted.score(unknown))
    assert torch.equal(inferred.score(unknown), fitted.score(unknown))
    assert not any(t.requires_grad for t in fitted.discriminators_.values())


def test_fewer_rows_than_there_are_can_be_drawn(
    known: ClassifierOutputs, unknown: ClassifierOutputs, fitted: OpenGAN
) -> None:
    few = OpenGAN(rows=100).fit(known)
    assert torch.equal(few.score(unknown), OpenGAN(rows=100).fit(known).score(unknown))
    assert not torch.allclose(few.score(unknown), fitted.score(unknown))


def test_constant_features_and_single_rows_stay_finite(unknown: ClassifierOutputs) -> None:
    outputs = Toy().outputs(8)
    constant = replace(outputs, features=torch.ones(8, 16))
    for known in (constant, Toy().outputs(1)):
        assert OpenGAN(epochs=2).fit(known).score(unknown).isfinite().all()


def test_rows_do_not_depend_on_each_other(unknown: ClassifierOutputs, fitted: OpenGAN) -> None:
    keep = torch.arange(100) % 3 == 0
    alone, together = fitted.score(unknown[keep]), fitted.score(unknown)[keep]
    torch.testing.assert_close(alone, together, rtol=0, atol=1e-12)
    assert fitted.score(unknown[keep & ~keep]).shape == (0,)


def test_what_is_missing_or_nonsense_is_said(known: ClassifierOutputs) -> None:
    with pytest.raises(InvalidDataError, match="needs features"):
        OpenGAN().fit(replace(known, features=None))
    with pytest.raises(InvalidDataError, match="epochs above 0, but got 0"):
        OpenGAN(epochs=0)
    with pytest.raises(InvalidDataError, match="not fitted yet"):
        OpenGAN().score(known)
    with pytest.raises(InvalidDataError, match="learns from known outputs, got none"):
        OpenGAN().fit(known[torch.zeros(400) > 0])


@pytest.mark.data
def test_real_unknown_features_are_found(data_dir) -> None:  # type: ignore[no-untyped-def]
    table = np.load(data_dir / "classification" / "resnet20_cifar10_outputs.npz")

    def outputs(name: str) -> ClassifierOutputs:
        features = torch.tensor(table[f"{name}/features"].astype(np.float32))
        return ClassifierOutputs(
            tuple(range(len(features))), torch.zeros(len(features), 10), features
        )

    method = OpenGAN(epochs=5).fit(outputs("cifar10_train10k"))
    known, unknown = method.score(outputs("cifar10_test")), method.score(outputs("svhn_digits"))
    is_unknown = np.arange(len(known) + len(unknown)) >= len(known)
    assert ranking_metrics(torch.cat([known, unknown]).numpy(), is_unknown).auroc > 0.75


def test_steps_are_those_of_adam() -> None:
    """Kingma and Ba, 2015, algorithm 1, in plain numbers."""
    weight = torch.tensor([[0.5, -1.0], [2.0, 0.1]], requires_grad=True)
    layer = Layer(weight, torch.tensor([0.3, -0.2], requires_grad=True))
    step, rate, (b1, b2) = Adam([layer], 0.01, (0.5, 0.999)), 0.01, (0.5, 0.999)
    theta = [t.detach().double().numpy().copy() for t in layer]
    mean, square = ([np.zeros_like(t) for t in theta] for _ in range(2))
    for t in range(1, 26):
        step.down(sum(each.pow(3).sum() for each in layer))
        for k, value in enumerate(theta):
            gradient = 3 * value**2
            mean[k] = b1 * mean[k] + (1 - b1) * gradient
            square[k] = b2 * square[k] + (1 - b2) * gradient**2
            ahead, spread = mean[k] / (1 - b1**t), np.sqrt(square[k] / (1 - b2**t))
            theta[k] = value - rate * ahead / (spread + 1e-8)
    for ours, expected in zip(layer, theta, strict=True):
        np.testing.assert_allclose(ours.detach().numpy(), expected, rtol=1e-5)
