"""ODIN and its kin against a real small network, autograd and pytorch-ood."""

import numpy as np
import pytest
import torch
from pytorch_ood import detector as peers
from tests.oracles.probe_methods import doubt
from torch import Tensor, nn

from incognita.containers.outputs import ClassifierOutputs
from incognita.errors import InvalidDataError
from incognita.extraction.extra_outputs import InputStep, Numerators
from incognita.methods.contract import Toy, with_extra_outputs
from incognita.methods.method import Method
from incognita.methods.odin import GODIN, ODIN, ODINMaxLogit, ODINTemperature
from incognita.methods.softmax import MSP

ALL = [ODIN, ODINTemperature, ODINMaxLogit, GODIN]


@pytest.fixture(scope="module")
def network() -> nn.Module:
    torch.manual_seed(0)
    layers = (nn.Conv2d(3, 6, 3), nn.ReLU(), nn.Flatten(), nn.Linear(6 * 36, 5))
    return nn.Sequential(*layers).double()


@pytest.fixture(scope="module")
def images() -> Tensor:
    return torch.rand(12, 3, 8, 8, generator=torch.Generator().manual_seed(1)).double()


def stepped_outputs(network: nn.Module, images: Tensor, step: InputStep) -> ClassifierOutputs:
    """Record the extra output as its definition says: up the gradient, in pixels."""
    moved = images.clone().requires_grad_()
    logits = network(moved)
    objective = {
        "confidence": (logits / step.temperature).log_softmax(dim=1).amax(dim=1),
        "numerator": logits.amax(dim=1),
    }[step.objective]
    (gradient,) = torch.autograd.grad(objective.sum(), moved)
    with torch.no_grad():
        column = network(images + step.epsilon * gradient.sign())
    ids = tuple(range(len(images)))
    return ClassifierOutputs(ids, logits.detach(), extra_outputs={f"{step.key}/logits": column})


@pytest.mark.parametrize("temperature", [1.0, 1000.0])
def test_odin_equals_pytorch_ood_on_a_network(
    network: nn.Module, images: Tensor, temperature: float
) -> None:
    method = ODIN(temperature=temperature, epsilon=0.02)
    (step,) = method.extra_outputs()
    assert isinstance(step, InputStep)
    peer = peers.ODIN(network, eps=0.02, temperature=temperature)
    score = method.score(stepped_outputs(network, images, step))
    torch.testing.assert_close(score - 1, peer.predict(images), rtol=0, atol=1e-12)


def test_odin_equals_its_definition() -> None:
    method = ODIN(temperature=7.0, epsilon=0.01)
    outputs = with_extra_outputs(Toy().outputs(30), method.extra_outputs())
    logits = outputs.logits.double() * 1.5  # what the toy's step of 0.01 does
    np.testing.assert_allclose(method.score(outputs), doubt(logits.numpy(), 7.0), rtol=1e-6)


def test_odin_without_a_step_is_odin_temperature_and_at_temperature_one_msp() -> None:
    outputs = Toy().outputs(30)
    assert ODIN(epsilon=0.0).extra_outputs() == ()
    plain = ODIN(temperature=50.0, epsilon=0.0).score(outputs)
    assert torch.equal(plain, ODINTemperature(temperature=50.0).score(outputs))
    torch.testing.assert_close(
        ODINTemperature(temperature=1.0).score(outputs), MSP().score(outputs)
    )


def test_a_high_temperature_ranks_by_the_largest_logit_above_the_mean() -> None:
    logits = torch.randn(200, 10, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    score = ODINTemperature(temperature=1e6).score(ClassifierOutputs(tuple(range(200)), logits))
    margin = logits.amax(dim=1) - logits.mean(dim=1)
    assert torch.equal(score.argsort(), (-margin).argsort())


def test_scores_near_a_confidence_of_one_do_not_tie() -> None:
    gaps = torch.arange(40.0, 60.0)
    logits = torch.stack([gaps, torch.zeros(20)], dim=1)
    score = ODINTemperature(temperature=1.0).score(ClassifierOutputs(tuple(range(20)), logits))
    assert (score.diff() < 0).all()


def test_scores_at_temperature_1000_do_not_tie() -> None:
    logits = torch.zeros(100, 10)
    logits[:, 0] = 1 + torch.arange(100) * 1e-5
    score = ODINTemperature().score(ClassifierOutputs(tuple(range(100)), logits))
    assert (score.diff() < 0).all()


def test_odin_max_logit_is_the_largest_stepped_logit() -> None:
    method = ODINMaxLogit(temperature=10.0, epsilon=0.02)
    outputs = with_extra_outputs(Toy().outputs(30), method.extra_outputs())
    expected = [-max(row) * 2.0 / 10.0 for row in outputs.logits.tolist()]  # 1 + 50 * 0.02 = 2
    np.testing.assert_allclose(method.score(outputs), expected, rtol=1e-6)


def test_godin_is_the_largest_stepped_numerator(network: nn.Module, images: Tensor) -> None:
    method = GODIN(epsilon=0.01)
    (step,) = method.extra_outputs()
    assert isinstance(step, InputStep)
    assert step.objective == "numerator"
    outputs = stepped_outputs(network, images, step)
    score = method.score(outputs)
    assert torch.equal(score, -outputs.extra_outputs[f"{step.key}/logits"].amax(dim=1))  # type: ignore[index]
    assert (score < -outputs.logits.amax(dim=1)).all()  # the step raised every numerator


def test_godin_without_a_step_takes_the_numerators() -> None:
    method = GODIN(epsilon=0.0)
    assert method.extra_outputs() == (Numerators(),)
    outputs = with_extra_outputs(Toy().outputs(9), method.extra_outputs())
    torch.testing.assert_close(method.score(outputs), -0.3 * outputs.logits.amax(dim=1).double())


@pytest.mark.usefixtures("outside_tests")
def test_a_whole_number_asks_for_the_same_step() -> None:
    assert (
        ODIN(temperature=1000).extra_outputs()[0].key
        == ODIN(temperature=1000.0).extra_outputs()[0].key
    )


@pytest.mark.parametrize("kind", ALL)
def test_known_rows_score_below_unknown_ones(kind: type[Method]) -> None:
    method = kind()
    toy = Toy()
    known = method.score(with_extra_outputs(toy.outputs(50), method.extra_outputs()))
    unknown = method.score(
        with_extra_outputs(toy.outputs(50, unknown=True), method.extra_outputs())
    )
    assert known.dtype == torch.float64
    assert known.mean() < unknown.mean()


@pytest.mark.parametrize("kind", ALL)
def test_no_row_gives_no_score_and_rows_do_not_depend_on_each_other(kind: type[Method]) -> None:
    method = kind()
    outputs = with_extra_outputs(Toy().outputs(20), method.extra_outputs())
    keep = torch.arange(20) % 3 == 0
    assert torch.equal(method.score(outputs[keep]), method.score(outputs)[keep])
    assert method.score(outputs[torch.zeros(20) > 0]).shape == (0,)


@pytest.mark.parametrize("kind", [ODIN, ODINMaxLogit, GODIN])
def test_an_extra_output_that_was_not_recorded_is_named(kind: type[Method]) -> None:
    with pytest.raises(InvalidDataError, match=r"needs the extra output InputStep\(epsilon=0.0"):
        kind().score(Toy().outputs(3))


@pytest.mark.parametrize("kind", [ODIN, ODINMaxLogit])
def test_other_parameters_give_other_scores(kind: type) -> None:
    methods = [kind(), kind(temperature=5.0), kind(epsilon=0.01)]
    scores = [m.score(with_extra_outputs(Toy().outputs(9), m.extra_outputs())) for m in methods]
    assert not torch.allclose(scores[0], scores[1])
    assert not torch.allclose(scores[0], scores[2], rtol=1e-9)


@pytest.mark.parametrize("wrong", [{"temperature": 0.0}, {"epsilon": -0.1}])
def test_nonsense_parameters_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(InvalidDataError, match=r"ODIN needs an? (temperature|epsilon)"):
        ODIN(**wrong)
