"""Each check of the contract finds the fault that it is there for, and says where."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest
import torch

from incognita.containers.needs import ExtraOutput, Needs
from incognita.errors import InvalidDataError
from incognita.methods import Method, check_method, load_method
from incognita.methods.contract import CONTRACT, Case, Toy, outcome_of, with_extra_outputs
from incognita.methods.method import Refit


@dataclass(eq=False)
class Sound(Method):
    """Keeps the contract."""

    scale: float = 1.0
    needs = Needs.FEATURES | Needs.LOGITS | Needs.KNOWN
    search_space: ClassVar[Mapping[str, Any]] = {"scale": (0.5, 1.0, 2.0)}
    invalidates: ClassVar[Mapping[str, Refit]] = {"scale": Refit.FINALIZE}

    def fit_statistics(self, known, validation):
        self.mean_ = known.features.double().mean(dim=0)

    def finalize(self, known, validation):
        self.center_ = self.mean_ * self.scale

    def score_rows(self, rows):
        far = (rows.features.double() - self.center_).norm(dim=1)
        return far - 3 * rows.logits.double().logsumexp(dim=1)


class Reversed(Sound):
    def score_rows(self, rows):
        return -super().score_rows(rows)


class Constant(Sound):
    def score_rows(self, rows):
        return super().score_rows(rows) * 0


class Single(Sound):
    def score_rows(self, rows):
        return super().score_rows(rows).float()


class NeedsRows(Sound):
    def score_rows(self, rows):
        return super().score_rows(rows) - float(rows.logits.max()) * 0


class DividesByNorm(Sound):
    def score_rows(self, rows):
        features = rows.features.double()
        unit = features / features.norm(dim=1, keepdim=True)
        return super().score_rows(rows) + unit.sum(dim=1) * 1e-9


class Saturates(Sound):
    def score_rows(self, rows):
        return (1 - rows.logits.float().softmax(dim=1).amax(dim=1)).double()


class Draws(Sound):
    def finalize(self, known, validation):
        self.center_ = self.mean_ * self.scale + 0.01 * torch.randn(1).double()


class DrawsWhileScoring(Sound):
    def score_rows(self, rows):
        return super().score_rows(rows) + 1e-3 * torch.randn(len(rows)).double()


class Centers(Sound):
    def score_rows(self, rows):
        score = super().score_rows(rows)
        return score - score.mean() if len(rows) else score


class Writes(Sound):
    def score_rows(self, rows):
        rows.features.clamp_(min=0.1)
        return super().score_rows(rows)


class ForgetsOnSaving(Sound):
    def finalize(self, known, validation):
        super().finalize(known, validation)
        self.offset = float(known.features.sum())

    def score_rows(self, rows):
        return super().score_rows(rows) + getattr(self, "offset", 0.0)


class BetweenClasses(Sound):
    def score_rows(self, rows):
        top = rows.logits.double().topk(2, dim=1).values
        return super().score_rows(rows) + 1e-9 * top[:, 1]


class MeanOfEachClass(Sound):
    needs = Sound.needs | Needs.LABELS

    def fit_statistics(self, known, validation):
        super().fit_statistics(known, validation)
        means = [known.features[known.labels == c].double().mean(dim=0) for c in range(3)]
        self.mean_ = self.mean_ + torch.stack(means).mean() * 1e-9


class TakesRoots(Sound):
    def score_rows(self, rows):
        return super().score_rows(rows) + rows.features.double().sqrt().sum(dim=1) * 1e-9


class NeedsTenFeatures(Sound):
    def score_rows(self, rows):
        return super().score_rows(rows) + rows.features[:, 9].double() * 1e-9


class InTheTypeOfTheRows(Sound):
    def score_rows(self, rows):
        lost = rows.logits + 3e5
        return -(lost - 3e5).logsumexp(dim=1).double()


class NeverLearns(Sound):
    def fit_statistics(self, known, validation):
        pass

    def finalize(self, known, validation):
        pass

    def _learns(self):
        return False

    def score_rows(self, rows):
        return -rows.logits.double().logsumexp(dim=1)


class SearchesNothing(Sound):
    search_space: ClassVar[Mapping[str, Any]] = {"power": (1, 2)}


class RefitsNothing(Sound):
    invalidates: ClassVar[Mapping[str, Refit]] = {}


class SearchesInPlace(Sound):
    def finalize(self, known, validation):
        self.center_ = self.mean_.mul_(self.scale)


class IgnoresItsParameter(Sound):
    def finalize(self, known, validation):
        self.center_ = self.mean_


def test_a_sound_method_passes_every_check():
    outcomes = check_method(Sound())
    assert [outcome.check for outcome in outcomes] == ["fit and score", *CONTRACT]
    assert {outcome.status for outcome in outcomes} == {"pass"}
    assert all(outcome.sentence.endswith(".") for outcome in outcomes)


FAULTS = [
    (Reversed, "orientation", "Return the negative"),
    (Constant, "orientation", "no higher than known rows"),
    (Single, "finite", "got torch.float32"),
    (NeedsRows, "no rows", "line"),
    (DividesByNorm, "rows of zeros", "3 of 3 scores are NaN"),
    (Saturates, "ties", "different scores"),
    (DrawsWhileScoring, "ties", "One row has several scores"),
    (Draws, "deterministic", "Two fits"),
    (Centers, "batches", "depends on the rows beside it"),
    (Writes, "inputs unchanged", "writes to features of the scored outputs"),
    (ForgetsOnSaving, "saving", "end in an underscore"),
    (BetweenClasses, "one class", "(score_rows)"),
    (MeanOfEachClass, "absent class", "20 of 20 scores are NaN"),
    (TakesRoots, "negative features", "NaN or infinite"),
    (NeedsTenFeatures, "few dimensions", "IndexError"),
    (InTheTypeOfTheRows, "half precision", "correlate"),
    (InTheTypeOfTheRows, "double precision", "float32"),
    (NeverLearns, "not fitted", "declares Needs.KNOWN"),
    (SearchesNothing, "search", "'power'"),
    (RefitsNothing, "search", "List it in invalidates"),
    (SearchesInPlace, "search", ""),
    (IgnoresItsParameter, "search acts", "No value of scale"),
]


@pytest.mark.parametrize(
    ("kind", "check", "words"), FAULTS, ids=lambda v: getattr(v, "__name__", v)
)
def test_a_fault_is_found_and_described(kind, check, words):
    outcome = outcome_of(check, CONTRACT[check], Case(kind()).fit())
    assert outcome.status == "fail"
    assert words in outcome.sentence
    assert outcome.sentence.endswith(".")


def test_what_may_be_as_intended_is_a_note():
    class FarFromMean(Sound):
        def score_rows(self, rows):
            return (rows.features.double() - self.center_).norm(dim=1)

    outcome = outcome_of("orientation", CONTRACT["orientation"], Case(FarFromMean()).fit())
    assert outcome.status == "note"
    assert "Unknown rows of one kind score higher, others lower (AUROC 0.00," in outcome.sentence


def test_every_check_can_fail():
    assert {check for _, check, _ in FAULTS} == set(CONTRACT)


def test_a_method_that_does_not_score_is_not_checked_further():
    class Raises(Method):
        def score_rows(self, rows):
            raise RuntimeError("no luck")

    first, *others = check_method(Raises())
    assert first.status == "fail"
    assert first.sentence.startswith("RuntimeError: no luck. In test_contract.py, line ")
    assert {outcome.status for outcome in others} == {"not checked"}


def test_an_extra_output_of_ones_own_cannot_be_checked():
    class Own(ExtraOutput):
        key = "own"

        def record(self, batch):
            return {}

    class NeedsOwn(Method):
        def extra_outputs(self):
            return (Own(),)

        def score_rows(self, rows):
            return rows.logits.double().amax(dim=1)

    outcomes = check_method(NeedsOwn())
    assert {outcome.status for outcome in outcomes} == {"not checked"}
    assert "extra output own" in outcomes[0].sentence
    with pytest.raises(InvalidDataError, match="does not have"):
        with_extra_outputs(Toy().outputs(3), (Own(),))


def test_checking_does_not_fit_the_method_it_is_given():
    method = load_method("react+knn")
    check_method(method)
    assert method.state() == method.scorer.state() == {}
