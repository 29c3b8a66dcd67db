"""The search sees validation data alone and fits again only what it must."""

import pytest
import torch

from incognita.evaluation.hyperparameter_search import SearchData, grid, grid_extra_outputs, search
from incognita.methods import load_method
from incognita.methods.contract import Toy
from incognita.metrics.ranking import auroc


@pytest.fixture
def held_out():
    toy = Toy()
    return SearchData(
        toy.outputs(200, seed=1, prefix="train-"),
        toy.outputs(60, seed=2, prefix="val-"),
        toy.outputs(60, seed=3, unknown=True),
    )


def test_the_default_comes_first_and_nothing_twice():
    points = grid(load_method("knn", k=100))
    assert points[0] == {"k": 100}
    assert len(points) == len({str(p) for p in points})


def test_the_curve_holds_what_a_fit_at_each_point_gives(held_out):
    fitted = load_method("react").fit(held_out.known, held_out.validation)
    found = search(fitted, held_out)
    for point in found.curve:
        fresh = load_method("react", **point.parameters).fit(held_out.known, held_out.validation)
        parts = [fresh.score(part) for part in (held_out.validation, held_out.unknown)]
        truth = torch.arange(120) >= 60
        expected = auroc(torch.cat(parts).numpy(), truth.numpy())
        assert point.auroc == pytest.approx(expected, abs=1e-12)
    best = max(point.auroc for point in found.curve)
    chosen = next(p.parameters for p in found.curve if p.auroc == best)
    assert found.method.percentile == chosen["percentile"]


def test_a_point_that_cannot_be_is_kept_with_its_reason(held_out):
    fitted = load_method("knn").fit(held_out.known)
    curve = search(fitted, held_out).curve
    impossible = next(point for point in curve if point.parameters["k"] == 1000)
    assert impossible.auroc is None
    assert "1000" in impossible.reason


def test_a_parameter_of_scoring_fits_nothing_again(held_out, monkeypatch):
    fitted = load_method("knn").fit(held_out.known)
    monkeypatch.setattr(type(fitted), "fit_statistics", lambda *_: pytest.fail("learned again"))
    assert len(search(fitted, held_out).curve) >= 5


def test_a_parameter_of_settling_does_not_learn_again(held_out, monkeypatch):
    fitted = load_method("vim", dimension=4).fit(held_out.known)
    calls = []
    finalize = type(fitted).finalize
    monkeypatch.setattr(type(fitted), "fit_statistics", lambda *_: pytest.fail("learned again"))
    monkeypatch.setattr(
        type(fitted), "finalize", lambda *given: (calls.append(1), finalize(*given))[1]
    )
    fitted.with_parameters(held_out.known, held_out.validation, dimension=8)
    assert calls == [1]


def test_odin_asks_for_the_probes_of_its_whole_grid():
    method = load_method("odin")
    assert len(grid_extra_outputs(method)) == len(grid(method))
