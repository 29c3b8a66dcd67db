"""MDSEnsemble and RankFeat against definitions, pytorch-ood and a real small network."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from pytorch_ood.detector import MultiMahalanobis
from pytorch_ood.detector import RankFeat as PeerRankFeat
from tests.oracles.probe_methods import energy, mahalanobis
from torch import Tensor, nn

from incognita.containers.outputs import ClassifierOutputs
from incognita.errors import InvalidDataError
from incognita.extraction.extra_outputs import LogitsWithoutTopDirection, MahalanobisStep
from incognita.methods.contract import LAYERS, Toy, with_extra_outputs
from incognita.methods.feature_maps import MDSEnsemble, RankFeat


def distances(outputs: ClassifierOutputs, known: ClassifierOutputs) -> dict[str, np.ndarray]:
    assert outputs.layers is not None
    assert known.layers is not None
    assert known.labels is not None
    labels = known.labels.numpy()
    return {
        name: mahalanobis(table.double().numpy(), known.layers[name].double().numpy(), labels)
        for name, table in outputs.layers.items()
    }


@pytest.fixture(scope="module")
def toy() -> Toy:
    return Toy(negative=True)


@pytest.fixture(scope="module")
def known(toy: Toy) -> ClassifierOutputs:
    return toy.outputs(120)


@pytest.fixture(scope="module")
def validation(toy: Toy) -> ClassifierOutputs:
    return toy.outputs(40, seed=2)


@pytest.fixture(scope="module")
def unknown(toy: Toy) -> ClassifierOutputs:
    return toy.outputs(40, unknown=True, seed=3)


def test_mds_ensemble_equals_its_definition(
    known: ClassifierOutputs, validation: ClassifierOutputs, unknown: ClassifierOutputs
) -> None:
    usual = {name: d.mean() for name, d in distances(validation, known).items()}
    found = distances(unknown, known)
    expected = np.mean([found[name] / usual[name] for name in LAYERS], axis=0)
    score = MDSEnsemble().fit(known, validation).score(unknown)
    np.testing.assert_allclose(score, expected, rtol=1e-8)


def test_mds_ensemble_adds_plain_distances_on_request(
    known: ClassifierOutputs, unknown: ClassifierOutputs
) -> None:
    method = MDSEnsemble(weighting="sum").fit(known)
    expected = sum(distances(unknown, known).values())
    np.testing.assert_allclose(method.score(unknown), expected, rtol=1e-8)


def test_the_sum_over_layers_equals_pytorch_ood(
    known: ClassifierOutputs, unknown: ClassifierOutputs
) -> None:
    assert known.layers is not None
    assert known.labels is not None
    assert unknown.layers is not None
    peer = MultiMahalanobis([nn.Identity()] * 3)
    peer.fit_structured(list(known.layers.values()), known.labels)
    theirs = peer.predict_structured(list(unknown.layers.values())).double()
    score = MDSEnsemble(weighting="sum").fit(known).score(unknown)
    # it halves distances and forgets to divide the covariance by the number of rows
    torch.testing.assert_close(score, 2 * len(known) * theirs, rtol=1e-4, atol=0)


def test_validation_rows_score_one_on_average(
    known: ClassifierOutputs, validation: ClassifierOutputs
) -> None:
    method = MDSEnsemble().fit(known, validation)
    assert method.score(validation).mean().item() == pytest.approx(1.0)


def test_mds_ensemble_asks_for_steps_only_once_fitted(known: ClassifierOutputs) -> None:
    method = MDSEnsemble(epsilon=0.01)
    assert method.extra_outputs() == ()
    extra_outputs = method.fit(known).extra_outputs()
    assert [extra.layer for extra in extra_outputs if isinstance(extra, MahalanobisStep)] == list(
        LAYERS
    )
    assert MDSEnsemble().fit(known).extra_outputs() == ()


def test_mds_ensemble_scores_the_stepped_features(
    known: ClassifierOutputs, unknown: ClassifierOutputs
) -> None:
    method = MDSEnsemble(epsilon=0.2).fit(known)
    recorded = with_extra_outputs(unknown, method.extra_outputs())
    assert recorded.extra_outputs is not None
    moved = {p.layer: recorded.extra_outputs[f"{p.key}/features"] for p in method.extra_outputs()}  # type: ignore[attr-defined]
    usual = {name: d.mean() for name, d in distances(known, known).items()}
    found = distances(replace(unknown, layers=moved), known)
    expected = np.mean([found[name] / usual[name] for name in LAYERS], axis=0)
    np.testing.assert_allclose(method.score(recorded), expected, rtol=1e-8)
    assert (method.score(recorded) < MDSEnsemble().fit(known).score(unknown)).all()
    with pytest.raises(
        InvalidDataError, match=r"needs the extra output MahalanobisStep\(layer=stem"
    ):
        method.score(unknown)


def test_the_step_of_mds_ensemble_carries_the_distance_of_the_fit(
    known: ClassifierOutputs, unknown: ClassifierOutputs
) -> None:
    """Distance by the means and precision of the step, as the pass computes it, is the method's."""
    assert unknown.layers is not None
    method = MDSEnsemble(epsilon=0.1, layers=("stage2",), weighting="sum").fit(known)
    (step,) = method.extra_outputs()
    assert isinstance(step, MahalanobisStep)
    gaps = unknown.layers["stage2"].double()[:, None] - step.means
    by_class = torch.einsum("ncd,de,nce->nc", gaps, step.precision, gaps)
    plain = method.with_parameters(known, epsilon=0.0).score(unknown)
    torch.testing.assert_close(by_class.amin(dim=1), plain, rtol=1e-8, atol=0)


def test_mds_ensemble_leaves_out_a_class_without_rows(toy: Toy) -> None:
    full = toy.outputs(120)
    assert full.labels is not None
    known = full[full.labels != 1]
    method = MDSEnsemble().fit(known)
    found = distances(full, known)
    usual = {name: d.mean() for name, d in distances(known, known).items()}
    expected = np.mean([found[name] / usual[name] for name in LAYERS], axis=0)
    np.testing.assert_allclose(method.score(full), expected, rtol=1e-8)


def test_mds_ensemble_survives_constant_features_and_one_row(toy: Toy) -> None:
    constant = replace(toy.outputs(8), layers={"flat": torch.ones(8, 3)})
    moved = replace(toy.outputs(8), layers={"flat": torch.full((8, 3), 2.0)})
    method = MDSEnsemble().fit(constant)
    assert (method.score(constant) == 0).all()
    assert (method.score(moved) > 0).all()
    assert MDSEnsemble().fit(toy.outputs(1)).score(toy.outputs(5)).isfinite().all()


def test_layers_that_are_missing_are_named(known: ClassifierOutputs, toy: Toy) -> None:
    with pytest.raises(InvalidDataError, match=r"layer 'tail', but the outputs hold \['stage1'"):
        MDSEnsemble(layers=("tail",)).fit(known)
    with pytest.raises(InvalidDataError, match="needs pooled layer features"):
        MDSEnsemble().fit(replace(known, layers=None))
    with pytest.raises(InvalidDataError, match="needs labels"):
        MDSEnsemble().fit(replace(known, labels=None))
    fewer = replace(known, layers={"stem": torch.zeros(120, 6)})
    with pytest.raises(InvalidDataError, match="layer 'stage1'"):
        MDSEnsemble().fit(known).score(fewer)


def test_mds_ensemble_refuses_nonsense() -> None:
    with pytest.raises(InvalidDataError, match=r"epsilon of 0 or more, but got -1\.0"):
        MDSEnsemble(epsilon=-1.0)


@pytest.mark.usefixtures("outside_tests")
def test_mds_ensemble_refuses_a_weighting_it_does_not_have() -> None:
    with pytest.raises(InvalidDataError, match="by mean or sum, but got 'best'"):
        MDSEnsemble(weighting="best")  # type: ignore[arg-type]


def test_mds_ensemble_parts_known_from_unknown_and_needs_no_rows(
    known: ClassifierOutputs, unknown: ClassifierOutputs, validation: ClassifierOutputs
) -> None:
    method = MDSEnsemble().fit(known)
    assert method.score(validation).median() < method.score(unknown).median()
    assert method.score(unknown[torch.zeros(40) > 0]).shape == (0,)
    keep = torch.arange(40) % 3 == 0
    torch.testing.assert_close(
        method.score(unknown[keep]), method.score(unknown)[keep], rtol=1e-12, atol=0
    )
    one = method.with_parameters(known, layers=("stem",))
    assert not torch.allclose(one.score(unknown), method.score(unknown))


class Block(nn.Module):
    """Two layers of maps and a head on the mean of the last."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.previous = nn.Sequential(nn.Conv2d(3, 5, 3), nn.ReLU()).double()
        self.last = nn.Sequential(nn.Conv2d(5, 7, 3), nn.ReLU()).double()
        self.head = nn.Linear(7, 4).double()

    def finish(self, maps: Tensor) -> Tensor:
        return self.head(maps.mean(dim=(2, 3)))


def without_strongest(maps: Tensor) -> Tensor:
    flat = maps.flatten(2).detach().numpy()
    kept = []
    for each in flat:
        values, vectors = np.linalg.eigh(each @ each.T)  # another way to the singular direction
        strongest = vectors[:, values.argmax()]
        kept.append(each - np.outer(strongest, strongest @ each))
    return torch.tensor(np.stack(kept)).reshape(maps.shape)


def test_rankfeat_equals_pytorch_ood_on_both_layers_of_a_network() -> None:
    block = Block()
    images = torch.rand(6, 3, 8, 8, generator=torch.Generator().manual_seed(1)).double()
    with torch.no_grad():
        before = block.previous(images)
        last = block.finish(without_strongest(block.last(before)))
        previous = block.finish(block.last(without_strongest(before)))
    recorded = {
        f"{LogitsWithoutTopDirection().key}/{n}": t
        for n, t in (("last", last), ("previous", previous))
    }
    outputs = ClassifierOutputs(tuple(range(6)), torch.zeros(6, 4), extra_outputs=recorded)
    seen: list[Tensor] = []

    def keep(logits: Tensor) -> Tensor:
        seen.append(logits)
        return logits.sum(dim=1)

    PeerRankFeat(lambda x: block.last(block.previous(x)), block.finish, keep).predict(images)
    PeerRankFeat(block.previous, lambda x: block.finish(block.last(x)), keep).predict(images)
    expected = energy(((seen[0] + seen[1]) / 2).detach().numpy())
    np.testing.assert_allclose(RankFeat().score(outputs), expected, rtol=1e-10)


def test_rankfeat_at_a_temperature_equals_its_definition(toy: Toy) -> None:
    method = RankFeat(temperature=3.0)
    outputs = with_extra_outputs(toy.outputs(10), method.extra_outputs())
    expected = energy(outputs.logits.double().numpy() * 0.45, 3.0)  # the toy's 0.5 and 0.4
    np.testing.assert_allclose(method.score(outputs), expected, rtol=1e-6)
    assert method.score(outputs[torch.zeros(10) > 0]).shape == (0,)


def test_rankfeat_refuses_what_it_cannot_use(toy: Toy) -> None:
    with pytest.raises(InvalidDataError, match=r"temperature above 0, but got 0\.0"):
        RankFeat(temperature=0.0)
    half = {f"{LogitsWithoutTopDirection().key}/last": torch.zeros(3, 4)}
    outputs = replace(toy.outputs(3), extra_outputs=half)
    with pytest.raises(
        InvalidDataError, match=r"column 'previous' of the extra output .* hold \['last'\]"
    ):
        RankFeat().score(outputs)
    with pytest.raises(
        InvalidDataError, match=r"needs the extra output LogitsWithoutTopDirection\(\)"
    ):
        RankFeat().score(toy.outputs(3))
