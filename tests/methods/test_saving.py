"""Methods of somebody's own on disk: their numbers are written, their code never is."""

from dataclasses import dataclass
from typing import Any

import pytest
import torch

from incognita.containers.needs import Needs
from incognita.errors import InvalidDataError
from incognita.methods import load_method
from incognita.methods.activation_shaping import ReAct
from incognita.methods.contract import Toy
from incognita.methods.method import Method
from incognita.methods.saving import load_saved_method, save_method


@dataclass(eq=False)
class FarFromMean(Method):
    power: Any = 1
    needs = Needs.FEATURES | Needs.KNOWN

    def fit_statistics(self, known, validation):
        self.mean_ = known.features.double().mean(dim=0)
        self.energy_ = load_method("temperature").fit(known, validation)

    def score_rows(self, rows):
        return (rows.features.double() - self.mean_).norm(dim=1) ** self.power


@dataclass(eq=False)
class Other(Method):
    def score_rows(self, rows):
        return rows.logits[:, 0].double()


TOY = Toy()
OUTPUTS = TOY.outputs(20, seed=3)


@pytest.mark.parametrize("method", [FarFromMean(power=2), ReAct(scorer=FarFromMean(power=2))])
def test_a_method_of_ones_own_comes_back(method, tmp_path):
    method.fit(TOY.outputs(50))
    save_method(method, tmp_path / "own")
    loaded = load_saved_method(tmp_path / "own", kinds=(Other, FarFromMean))
    assert type(loaded) is type(method)
    assert torch.equal(loaded.score(OUTPUTS), method.score(OUTPUTS))
    own = getattr(loaded, "scorer", loaded)
    assert own.energy_.score(OUTPUTS).isfinite().all()


@pytest.mark.parametrize("kinds", [(), (Other,)])
def test_a_class_that_was_not_given_is_named(kinds, tmp_path):
    save_method(FarFromMean().fit(TOY.outputs(50)), tmp_path / "own")
    with pytest.raises(InvalidDataError, match=r"FarFromMean.*kinds=\(FarFromMean,\)\)\.$"):
        load_saved_method(tmp_path / "own", kinds=kinds)


def test_a_module_may_have_been_renamed(tmp_path, monkeypatch):
    monkeypatch.setattr(FarFromMean, "__module__", "__main__")
    save_method(FarFromMean().fit(TOY.outputs(50)), tmp_path / "own")
    monkeypatch.undo()
    assert type(load_saved_method(tmp_path / "own", kinds=(FarFromMean,))) is FarFromMean


def test_state_that_cannot_be_written_is_refused(tmp_path):
    method = FarFromMean().fit(TOY.outputs(50))
    method.rows_ = [1, 2]
    with pytest.raises(InvalidDataError, match="rows_ is a list, but fitted state is saved as"):
        save_method(method, tmp_path / "own")


def test_parameters_that_cannot_be_written_are_refused(tmp_path):
    method = FarFromMean(power=torch.ones(1)).fit(TOY.outputs(50))
    with pytest.raises(InvalidDataError, match=r"parameters .* cannot be saved"):
        save_method(method, tmp_path / "own")
    assert not (tmp_path / "own").exists()
