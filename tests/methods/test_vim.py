from dataclasses import replace

import numpy as np
import pytest
import torch
from pytorch_ood.detector import ViM as PeerViM
from tests.methods.hard_rows import HardRows, falling, usual
from tests.oracles import feature_methods as oracle

from incognita.containers.outputs import ClassifierOutputs, Head
from incognita.errors import InvalidDataError
from incognita.methods import vim as subspaces
from incognita.methods.contract import Toy
from incognita.methods.vim import Residual, ViM


@pytest.fixture(scope="module")
def toy():
    return Toy(negative=True)


@pytest.fixture(scope="module")
def known(toy):
    return toy.outputs(200)


@pytest.fixture(scope="module")
def test_rows(toy):
    return ClassifierOutputs.concatenate(
        [replace(toy.outputs(30, seed=2), labels=None), toy.outputs(30, unknown=True, seed=3)]
    )


def float64(*tensors):
    return [tensor.double().numpy() for tensor in tensors]


@pytest.mark.parametrize(("dimension", "meant"), [(None, 8), (1, 1), (6, 6), (16, 15), (1000, 15)])
def test_residual_equals_its_definition(dimension, meant, known, test_rows):
    head = known.head
    expected = oracle.residual(
        *float64(known.features, head.weight, head.bias, test_rows.features), meant
    )
    scores = Residual(dimension).fit(known).score(test_rows)
    np.testing.assert_allclose(scores, expected, rtol=1e-8)
    assert len(set(scores.tolist())) == len(scores)


@pytest.mark.parametrize(("dimension", "meant"), [(None, 8), (6, 6), (1000, 15)])
def test_vim_is_the_log_odds_of_the_virtual_logit(dimension, meant, known, test_rows):
    head = known.head
    columns = (known.features, known.logits, head.weight, head.bias)
    share = oracle.vim_probability(*float64(*columns, test_rows.features, test_rows.logits), meant)
    scores = ViM(dimension).fit(known).score(test_rows)
    np.testing.assert_allclose(scores, np.log(share) - np.log1p(-share), rtol=1e-6, atol=1e-6)


def test_vim_equals_pytorch_ood(known, test_rows):
    head = known.head
    peer = PeerViM(None, 6, head.weight, head.bias)
    peer.fit_features(known.features, known.labels)
    expected = peer.predict_features(test_rows.features)
    np.testing.assert_allclose(ViM(6).fit(known).score(test_rows), expected, rtol=1e-3, atol=1e-3)


def test_vim_does_not_tie_where_its_probability_does(known, test_rows):
    method = ViM(6).fit(known)
    scores = method.score(replace(test_rows, logits=test_rows.logits - 1000))
    assert (1 / (1 + torch.exp(-scores.float()))).unique().numel() == 1
    assert scores.unique().numel() == len(scores)


@pytest.mark.parametrize(("d", "meant"), [(512, 256), (767, 383), (768, 512), (2048, 1000)])
def test_the_default_dimension_is_the_rule_of_the_paper(d, meant):
    features = torch.randn(3, d, generator=torch.Generator().manual_seed(0))
    method = Residual()
    method.origin_, method.directions_ = torch.zeros(d).double(), torch.eye(d).double()
    outputs = ClassifierOutputs(
        ("a", "b", "c"), torch.zeros(3, 2), features, head=Head(torch.ones(2, d), torch.zeros(2))
    )
    expected = features[:, : d - meant].double().norm(dim=1)
    assert torch.allclose(method.score(outputs), expected)


def test_a_changed_dimension_settles_to_what_a_new_fit_gives(known, test_rows):
    before = ViM(4).fit(known)
    after = before.with_parameters(known, dimension=9)
    assert after.directions_ is before.directions_
    assert not torch.allclose(before.score(test_rows), after.score(test_rows))
    assert torch.equal(after.score(test_rows), ViM(9).fit(known).score(test_rows))
    moved = Residual(4).fit(known).with_parameters(known, dimension=9)
    assert torch.equal(moved.score(test_rows), Residual(9).fit(known).score(test_rows))


@pytest.mark.parametrize("kind", [ViM, Residual])
def test_a_dimension_below_one_is_refused(kind, known, test_rows):
    with pytest.raises(InvalidDataError, match="is 0, but it must be at least 1"):
        kind(0).fit(known).score(test_rows)


def test_vim_refuses_known_features_without_residual(known):
    flat = replace(known, features=known.features * 0 + 1.0)
    with pytest.raises(
        InvalidDataError, match="do not leave a principal space of 2 of 16 dimensions"
    ):
        ViM(2).fit(replace(flat, head=Head(known.head.weight, known.head.bias * 0)))


@pytest.mark.parametrize("kind", [ViM, Residual])
def test_unknown_rows_score_higher(kind, toy, known):
    # known clusters span 4 directions; these rows lie in all 16
    generator = torch.Generator().manual_seed(5)
    features = 2 * torch.randn(50, 16, generator=generator)
    unknown = ClassifierOutputs(tuple(range(50)), toy.head(features), features, head=toy.head)
    method = kind(4).fit(known)
    assert method.score(unknown).median() > method.score(toy.outputs(50, seed=2)).quantile(0.9)


@pytest.mark.parametrize("kind", [ViM, Residual])
def test_degenerate_features_give_finite_scores(kind, known, test_rows):
    scores = [
        kind().fit(replace(known, features=known.features * (torch.arange(16) > 3))),
        kind().fit(known[known.labels == 2]),
        kind().fit(known[torch.arange(200) < 12]),
        kind().fit(known),
    ]
    zeros = replace(test_rows, features=test_rows.features * 0)
    for method in scores:
        assert method.score(test_rows).isfinite().all()
        assert method.score(zeros).isfinite().all()
        assert method.score(zeros).dtype == torch.float64


@pytest.mark.parametrize("kind", [ViM, Residual])
def test_a_single_feature_is_all_residual(kind):
    head = Head(torch.ones(2, 1), torch.zeros(2))
    features = torch.tensor([[1.0], [3.0]])
    known = ClassifierOutputs(("a", "b"), head(features), features, head=head)
    assert kind().fit(known).score(known).isfinite().all()


@pytest.mark.parametrize("kind", [ViM, Residual])
def test_a_row_scores_the_same_whatever_rows_stand_beside_it(kind, known, test_rows):
    method = kind().fit(known)
    alone = [method.score(test_rows[torch.arange(60) == k]) for k in range(60)]
    assert torch.allclose(method.score(test_rows), torch.cat(alone), rtol=1e-12)
    assert method.score(test_rows[torch.zeros(60, dtype=torch.bool)]).shape == (0,)


@pytest.mark.parametrize("kind", [ViM, Residual])
@pytest.mark.parametrize("dimension", [20, 160])
@pytest.mark.parametrize(
    "world",
    [
        HardRows(usual()),
        HardRows(usual(1e-6)),
        HardRows(falling(100, 0.1), offset=1e4),
        HardRows(falling(1e4, 1e-4)),
    ],
    ids=["usual", "small", "far away", "falling"],
)
def test_float32_leaves_residuals_of_wide_rows_right_to_a_millionth(
    kind, dimension, world, monkeypatch
):
    method = kind(dimension).fit(world.known())
    seen = world.outputs(torch.cat([world.features(200, 2), world.unknown(3)]))
    found = method.score(seen)
    monkeypatch.setattr(subspaces, "_SMALL", 10**9)  # float64 throughout
    expected = kind(dimension).fit(world.known()).score(seen)
    size = expected.abs() + seen.logits.double().logsumexp(dim=1).abs()  # the terms of ViM
    assert ((found - expected).abs() <= 1e-6 * size).all()


def test_rows_that_hardly_leave_the_principal_space_are_measured_in_float64():
    """What float32 takes from their long part would be more than is left of them."""
    world = HardRows(falling(1e4, 1e-4))
    method = Residual(20).fit(world.known())
    axes = method.directions_[:, -10:].T
    rows = (1e4 * axes + method.origin_).float()
    exact = (rows.double() - method.origin_) @ method.directions_[:, :300]
    torch.testing.assert_close(
        method.score(world.outputs(rows)), exact.norm(dim=1), rtol=1e-6, atol=0
    )


@pytest.mark.parametrize("kind", [ViM, Residual])
def test_wide_rows_score_the_same_whatever_rows_stand_beside_them(kind):
    world = HardRows(usual())
    method = kind(160).fit(world.known())
    seen = world.outputs(world.features(37, 2))
    alone = [method.score(seen[torch.arange(37) == k]) for k in range(0, 37, 6)]
    torch.testing.assert_close(method.score(seen)[::6], torch.cat(alone), rtol=1e-12, atol=0)
