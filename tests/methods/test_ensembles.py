"""MC dropout, ensembles, and how members are joined."""

import numpy as np
import pytest
import torch
from pytorch_ood.detector import MCD
from tests.oracles.probe_methods import doubt_of_mean
from torch import Tensor, nn

from incognita.containers.outputs import ClassifierOutputs, Head
from incognita.errors import InvalidDataError
from incognita.methods.contract import Toy
from incognita.methods.ensembles import Ensemble, MCDropout, join_members
from incognita.methods.softmax import MSP


def members(n: int = 20, *, unknown: bool = False) -> list[ClassifierOutputs]:
    return [Toy(seed=seed).outputs(n, unknown=unknown) for seed in range(3)]


def thinned_logits(outputs: ClassifierOutputs, method: MCDropout) -> np.ndarray:
    """Drop features as the docstring says: one mask per pass, drawn from the seed."""
    assert outputs.features is not None
    assert outputs.head is not None
    rng = torch.Generator().manual_seed(method.seed)
    kept = torch.rand(method.passes, outputs.features.shape[1], generator=rng) >= method.rate
    features, weight = outputs.features.double().numpy(), outputs.head.weight.double().numpy()
    passes = []
    for mask in kept.numpy():
        thinned = np.where(mask, features / (1 - method.rate), 0.0)
        passes.append(thinned @ weight.T + outputs.head.bias.double().numpy())
    return np.stack(passes, axis=1)


@pytest.mark.parametrize("rate", [0.2, 0.5])
def test_mc_dropout_equals_its_definition(rate: float) -> None:
    method = MCDropout(rate=rate, passes=7, seed=3)
    outputs = Toy().outputs(20, unknown=True)
    expected = doubt_of_mean(thinned_logits(outputs, method))
    np.testing.assert_allclose(method.score(outputs), expected, rtol=1e-10)


def test_mc_dropout_with_many_passes_nears_the_mean_of_pytorch_ood() -> None:
    torch.manual_seed(0)
    outputs = Toy().outputs(10, unknown=True)
    assert outputs.features is not None
    assert outputs.head is not None
    model = nn.Sequential(nn.Dropout(0.5), nn.Linear(16, 4))
    model[1].load_state_dict({"weight": outputs.head.weight, "bias": outputs.head.bias})
    peer = 1 + MCD(model, samples=4000, mode="mean").predict(outputs.features)
    score = MCDropout(passes=4000).score(outputs)
    torch.testing.assert_close(score, peer.detach().double(), rtol=0, atol=0.02)


def test_mc_dropout_that_drops_nothing_is_msp() -> None:
    outputs = Toy().outputs(20)
    score = MCDropout(rate=0.0).score(outputs)
    torch.testing.assert_close(score, MSP().score(outputs), rtol=1e-5, atol=0)


def test_mc_dropout_scores_a_row_alike_whatever_stands_beside_it() -> None:
    outputs = Toy().outputs(20)
    keep = torch.arange(20) % 3 == 0
    alone = MCDropout().score(outputs[keep])
    torch.testing.assert_close(alone, MCDropout().score(outputs)[keep], rtol=1e-12, atol=0)
    assert MCDropout().score(outputs[~keep & keep]).shape == (0,)


def test_mc_dropout_follows_its_seed_and_not_the_global_one() -> None:
    outputs = Toy().outputs(9)
    first = MCDropout().score(outputs)
    torch.manual_seed(5)
    assert torch.equal(MCDropout().score(outputs), first)
    for other in (MCDropout(seed=1), MCDropout(rate=0.2), MCDropout(passes=9)):
        assert not torch.allclose(other.score(outputs), first)


@pytest.mark.parametrize(
    ("wrong", "said"), [({"rate": 1.0}, "below 1, but got 1.0"), ({"passes": 0}, "at least 1 pass")]
)
def test_nonsense_parameters_of_mc_dropout_are_refused(wrong: dict[str, float], said: str) -> None:
    with pytest.raises(InvalidDataError, match=said):
        MCDropout(**wrong)  # type: ignore[arg-type]


def test_mc_dropout_tells_confident_rows_apart() -> None:
    head = Head(torch.ones(2, 16) * torch.tensor([[1.0], [-1.0]]), torch.zeros(2))
    features = torch.linspace(3.0, 4.0, 20)[:, None].expand(20, 16)
    score = MCDropout().score(
        ClassifierOutputs(tuple(range(20)), head(features), features, head=head)
    )
    assert (score < 1e-16).all()  # 1 - p would be 0 for all
    assert (score.diff() < 0).all()


def test_an_ensemble_equals_its_definition() -> None:
    logits = torch.stack([part.logits for part in members()], dim=1).double().numpy()
    np.testing.assert_allclose(
        Ensemble().score(join_members(members())), doubt_of_mean(logits), rtol=1e-10
    )


def test_an_ensemble_of_one_network_is_msp() -> None:
    (first, *_) = members()
    for parts in ([first], [first, first, first]):
        torch.testing.assert_close(Ensemble().score(join_members(parts)), MSP().score(first))


def test_an_ensemble_finds_rows_its_members_disagree_about() -> None:
    known = Ensemble().score(join_members(members()))
    unknown = Ensemble().score(join_members(members(unknown=True)))
    assert known.mean() < unknown.mean()
    assert Ensemble().score(join_members(members(0))).shape == (0,)


def test_joined_logits_are_the_mean_logits() -> None:
    parts = members()
    joined = join_members(parts)
    mean = sum(part.logits.double() for part in parts) / 3
    torch.testing.assert_close(joined.logits.double(), mean, rtol=1e-6, atol=1e-6)
    assert joined.features is parts[0].features
    assert joined.head is parts[0].head
    assert joined.labels is parts[0].labels
    assert joined.logits.dtype == parts[0].logits.dtype


def test_members_that_do_not_fit_are_refused() -> None:
    first = Toy().outputs(4)
    with pytest.raises(InvalidDataError, match="Member 1 has other images"):
        join_members([first, Toy().outputs(4, seed=9)])
    with pytest.raises(InvalidDataError, match="Member 1 knows 3 classes, but member 0 knows 4"):
        join_members([first, Toy(n_classes=3).outputs(4)])
    with pytest.raises(InvalidDataError, match="at least one network, got none"):
        join_members([])


def test_outputs_of_one_network_are_no_ensemble() -> None:
    with pytest.raises(InvalidDataError, match="join the outputs of all members with join_members"):
        Ensemble().score(Toy().outputs(3))


def test_members_on_half_precision_are_averaged_in_float64() -> None:
    def halved(part: ClassifierOutputs) -> Tensor:
        return part.logits.half()

    parts = [ClassifierOutputs(part.image_ids, halved(part)) for part in members()]
    stacked = torch.stack([part.logits for part in parts], dim=1).double().numpy()
    score = Ensemble().score(join_members(parts))
    np.testing.assert_allclose(score, doubt_of_mean(stacked), rtol=1e-10)
