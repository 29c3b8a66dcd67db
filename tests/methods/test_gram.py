"""Gram deviations against loops, pytorch-ood on a real small network, and edge cases."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from pytorch_ood import detector as peers
from tests.oracles.probe_methods import GramOracle, gram_rows
from torch import Tensor, nn

from incognita.containers.outputs import ClassifierOutputs
from incognita.errors import InvalidDataError
from incognita.extraction.extra_outputs import GramRows
from incognita.methods.contract import LAYERS, Toy, with_extra_outputs
from incognita.methods.gram import Gram

PROBE = GramRows()


def recorded(outputs: ClassifierOutputs) -> ClassifierOutputs:
    return with_extra_outputs(outputs, (PROBE,))


def columns(outputs: ClassifierOutputs, extra: GramRows = PROBE) -> dict[str, np.ndarray]:
    assert outputs.extra_outputs is not None
    return {name: outputs.extra_outputs[f"{extra.key}/{name}"].double().numpy() for name in LAYERS}


def oracle(known: ClassifierOutputs, held_out: ClassifierOutputs) -> GramOracle:
    return GramOracle(
        columns(known), known.logits.numpy(), columns(held_out), held_out.logits.numpy()
    )


@pytest.fixture(scope="module")
def known() -> ClassifierOutputs:
    return recorded(Toy().outputs(60))


@pytest.fixture(scope="module")
def validation() -> ClassifierOutputs:
    return recorded(Toy().outputs(20, seed=2))


@pytest.fixture(scope="module")
def unknown() -> ClassifierOutputs:
    return recorded(Toy().outputs(20, unknown=True, seed=3))


def test_gram_equals_its_definition(
    known: ClassifierOutputs, validation: ClassifierOutputs, unknown: ClassifierOutputs
) -> None:
    score = Gram().fit(known, validation).score(unknown)
    expected = oracle(known, validation).score(columns(unknown), unknown.logits.numpy())
    np.testing.assert_allclose(score, expected, rtol=1e-9)
    assert (score > 0).any()


def test_gram_without_validation_holds_out_every_tenth_row_of_a_class(
    known: ClassifierOutputs, unknown: ClassifierOutputs
) -> None:
    answers = known.logits.argmax(dim=1).tolist()
    is_held_out = torch.tensor([answers[: k + 1].count(a) % 10 == 0 for k, a in enumerate(answers)])
    assert 0 < is_held_out.sum() < 10
    expected = oracle(known[~is_held_out], known[is_held_out])
    np.testing.assert_allclose(
        Gram().fit(known).score(unknown),
        expected.score(columns(unknown), unknown.logits.numpy()),
        rtol=1e-9,
    )


class Network:
    """Two layers of maps and a head that answers each of three classes for some random images."""

    def __init__(self, images: Tensor) -> None:
        torch.manual_seed(0)
        self.layers = [
            nn.Sequential(nn.Conv2d(3, 5, 3), nn.ReLU()).double(),
            nn.Sequential(nn.Conv2d(5, 4, 3), nn.ReLU()).double(),
        ]
        self.head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3)).double()
        with torch.no_grad():
            usual = self.head(self.layers[1](self.layers[0](images))).mean(dim=0)
            self.head[2].bias -= usual

    def outputs(self, images: Tensor, powers: tuple[int, ...]) -> ClassifierOutputs:
        with torch.no_grad():
            first = self.layers[0](images)
            second = self.layers[1](first)
            logits = self.head(second)
        rows = {
            f"{GramRows(powers).key}/{name}": torch.tensor(gram_rows(maps.numpy(), powers))
            for name, maps in (("first", first), ("second", second))
        }
        return ClassifierOutputs(tuple(range(len(images))), logits, extra_outputs=rows)


def test_gram_equals_pytorch_ood_on_a_network() -> None:
    powers = (1, 2, 3)
    images = torch.rand(60, 3, 8, 8, generator=torch.Generator().manual_seed(1)).double()
    network = Network(images)
    known, moved = network.outputs(images, powers), network.outputs(images * 3, powers)
    answers = known.logits.argmax(dim=1)
    assert answers.unique().tolist() == [0, 1, 2]
    peer = peers.Gram(network.head, network.layers, num_classes=3, num_poles_list=list(powers))
    peer.validation_fraction = 0.0  # its subset is random; with none it leaves layers undivided
    peer.fit([(images, answers)])
    method = Gram(powers=powers).fit(known, known[torch.zeros(60) > 0])
    confidence = moved.logits.softmax(dim=1).amax(dim=1)
    theirs = peer.predict(images * 3).double()  # summed in float32, not divided by confidence
    assert (theirs > 0).all()
    torch.testing.assert_close(method.score(moved) * confidence, theirs, rtol=1e-5, atol=0)


def test_a_class_that_was_never_predicted_has_the_range_of_all(
    validation: ClassifierOutputs, unknown: ClassifierOutputs
) -> None:
    full = recorded(Toy().outputs(60))
    known = full[full.logits.argmax(dim=1) != 2]
    assert (unknown.logits.argmax(dim=1) == 2).any()
    score = Gram().fit(known, validation).score(unknown)
    expected = oracle(known, validation).score(columns(unknown), unknown.logits.numpy())
    np.testing.assert_allclose(score, expected, rtol=1e-9)


def test_known_rows_lie_inside_their_own_ranges(
    known: ClassifierOutputs, validation: ClassifierOutputs, unknown: ClassifierOutputs
) -> None:
    method = Gram().fit(known, validation)
    assert (method.score(known) == 0).all()
    assert method.score(validation).mean() < method.score(unknown).mean()


def test_few_known_rows_and_constant_or_negative_statistics_stay_finite(
    known: ClassifierOutputs, unknown: ClassifierOutputs
) -> None:
    few = known[torch.arange(60) < 3]
    assert Gram().fit(few).score(unknown).isfinite().all()

    def filled(outputs: ClassifierOutputs, value: float) -> ClassifierOutputs:
        column = torch.full((len(outputs), 5, 2), value)
        return replace(outputs, extra_outputs={f"{PROBE.key}/only": column})

    method = Gram().fit(filled(known, -2.0))
    assert (method.score(filled(unknown, -2.0)) == 0).all()
    assert (method.score(filled(unknown, -1.0)) > 0).all()
    zeros = Gram().fit(filled(known, 0.0)).score(filled(unknown, 1.0))
    assert zeros.isfinite().all()


def test_rows_do_not_depend_on_each_other(
    known: ClassifierOutputs, unknown: ClassifierOutputs
) -> None:
    method = Gram().fit(known)
    keep = torch.arange(20) % 3 == 0
    assert torch.equal(method.score(unknown[keep]), method.score(unknown)[keep])
    assert method.score(unknown[keep & ~keep]).shape == (0,)


def test_other_powers_give_other_scores(
    known: ClassifierOutputs, unknown: ClassifierOutputs
) -> None:
    fewer = Gram(powers=(1, 2))
    one = fewer.fit(with_extra_outputs(known, fewer.extra_outputs())).score(
        with_extra_outputs(unknown, fewer.extra_outputs())
    )
    assert not torch.allclose(one, Gram().fit(known).score(unknown))


def test_what_is_missing_is_named(known: ClassifierOutputs, unknown: ClassifierOutputs) -> None:
    unwrap = replace(known, extra_outputs=None)
    with pytest.raises(InvalidDataError, match="needs the extra output GramRows"):
        Gram().fit(unwrap)
    with pytest.raises(InvalidDataError, match="needs the extra output GramRows"):
        Gram().fit(known, unwrap)
    with pytest.raises(InvalidDataError, match="needs the extra output GramRows"):
        Gram().fit(known).score(replace(unknown, extra_outputs=None))
    with pytest.raises(InvalidDataError, match="not fitted yet"):
        Gram().score(unknown)
    with pytest.raises(InvalidDataError, match="at least one power of 1 or more"):
        Gram(powers=())
