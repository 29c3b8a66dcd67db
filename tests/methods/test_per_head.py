"""A method for each head equals the method fitted and asked for the rows of each head by hand."""

from dataclasses import dataclass, replace

import pytest
import torch
from torch.linalg import LinAlgError

from incognita.containers.needs import Needs
from incognita.containers.outputs import ClassifierOutputs, Head
from incognita.errors import InvalidDataError, UnknownNameError
from incognita.methods import list_methods, load_method
from incognita.methods.contract import Toy
from incognita.methods.knn import KNN
from incognita.methods.method import Method
from incognita.methods.per_head import PerHead, for_heads
from incognita.methods.saving import load_saved_method, save_method

WIDTHS = (16, 12, 10)  # of the features that each head takes
TOYS = [Toy(d=width, seed=k) for k, width in enumerate(WIDTHS)]
NAMES = ["knn", "mds", "vim", "react", "ash-s", "react+knn", "openmax", "temperature", "energy"]


def rows(counts, seed, unknown=False):
    """Rows of three heads, mixed; features of narrow heads end in zeros."""
    parts = []
    for place, (toy, n) in enumerate(zip(TOYS, counts, strict=True)):
        part = toy.outputs(max(n, 1), seed=seed, unknown=unknown, prefix=f"{place}-")
        padded = torch.nn.functional.pad(part.features, (0, max(WIDTHS) - toy.d))
        part = replace(
            part,
            features=padded,
            head=None,
            heads=tuple(each.head for each in TOYS),
            head_index=torch.full((len(part),), place),
            layers=None,
        )
        parts.append(part[torch.arange(len(part)) < n])
    joined = ClassifierOutputs.concatenate(parts)
    return shuffled(joined, seed)


def shuffled(outputs, seed):
    order = torch.randperm(len(outputs), generator=torch.Generator().manual_seed(seed))
    columns = {
        name: None if column is None else column[order]
        for name in ("logits", "features", "labels", "head_index")
        for column in [getattr(outputs, name)]
    }
    ids = tuple(outputs.image_ids[k] for k in order.tolist())
    return replace(outputs, image_ids=ids, **columns)


KNOWN = rows((120, 90, 100), seed=1)
VALIDATION = rows((60, 50, 40), seed=2)
TEST = replace(rows((20, 5, 11), seed=3, unknown=True), labels=None)


def of_one_head(outputs, place):
    """The rows of a head, cut out by hand."""
    here = [k for k, head in enumerate(outputs.head_index.tolist()) if head == place]
    return ClassifierOutputs(
        tuple(outputs.image_ids[k] for k in here),
        outputs.logits[here],
        outputs.features[here, : WIDTHS[place]],
        None if outputs.labels is None else outputs.labels[here],
        outputs.heads[place],
    )


def by_hand(name, known, validation, outputs, **parameters):
    score = torch.zeros(len(outputs), dtype=torch.float64)
    for place in range(3):
        method = load_method(name, **parameters)
        method.fit(of_one_head(known, place), of_one_head(validation, place))
        found = method.score(of_one_head(outputs, place)).tolist()
        for k, head in enumerate(outputs.head_index.tolist()):
            if head == place:
                score[k] = found.pop(0)
    return score


@pytest.mark.parametrize("name", NAMES)
def test_each_row_is_scored_by_the_method_of_its_head(name):
    method = PerHead(scorer=load_method(name)).fit(KNOWN, VALIDATION)
    assert torch.equal(method.score(TEST), by_hand(name, KNOWN, VALIDATION, TEST))
    assert method.notes_ == ""


def test_one_method_for_all_heads_gives_other_scores():
    apart = PerHead(scorer=KNN()).fit(KNOWN)
    together = KNN().fit(replace(KNOWN, heads=(), head_index=None))
    assert not torch.allclose(apart.score(TEST), together.score(TEST))


@pytest.mark.parametrize("name", NAMES)
def test_it_needs_what_its_method_needs_and_is_called_like_it(name):
    scorer = load_method(name)
    method = PerHead(scorer=scorer)
    assert method.all_needs == scorer.all_needs
    assert method.title == scorer.title
    assert method.extra_outputs() == scorer.extra_outputs()


def test_extra_outputs_are_those_of_its_method():
    assert (
        PerHead(scorer=load_method("odin")).extra_outputs() == load_method("odin").extra_outputs()
    )
    for part in ("known", "validation"):
        gram = load_method("gram")
        assert (
            PerHead(scorer=gram).extra_outputs_to_fit(part) == gram.extra_outputs_to_fit(part) != ()
        )


@pytest.mark.parametrize("n", [0, 7])
def test_rows_of_a_head_that_cannot_be_fitted_are_as_unknown_as_the_most_unknown_known(n):
    known, validation = rows((60, n, 70), seed=1), rows((0, 0, 30), seed=5)
    method = PerHead(scorer=KNN(k=20)).fit(known, validation)
    score, largest = method.score(TEST), -1.0
    for place in (0, 2):
        alone = KNN(k=20).fit(of_one_head(known, place))
        found = alone.score(of_one_head(TEST, place))
        assert torch.equal(score[TEST.head_index == place], found)
        for part in (known, validation):
            values = alone.score(of_one_head(part, place)).tolist()
            largest = max([largest, *values])
    assert (score[TEST.head_index == 1] == largest).all()
    assert method.notes_.startswith(f"KNN: Head 1 could not be fitted to {n} known rows: ")


@dataclass(eq=False)
class Singular(Method):
    needs = Needs.FEATURES | Needs.KNOWN

    def fit_statistics(self, known, validation):
        if known.features.shape[1] == 10:
            raise LinAlgError("The matrix is singular.")
        self.mean_ = known.features.double().mean()

    def score_rows(self, rows):
        return rows.features.double().mean(dim=1) - self.mean_


def test_a_singular_matrix_is_no_reason_to_give_up():
    method = PerHead(scorer=Singular()).fit(KNOWN)
    assert method.notes_ == (
        "Singular: Head 2 could not be fitted to 100 known rows: The matrix is singular. "
        f"Rows there get {method.largest_:.4g}, the largest score of known rows."
    )
    assert len(method.score(TEST)[TEST.head_index == 2].unique()) == 1


def test_other_errors_are_not_hidden():
    @dataclass(eq=False)
    class Broken(Singular):
        def fit_statistics(self, known, validation):
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        PerHead(scorer=Broken()).fit(KNOWN)


def test_where_no_head_can_be_fitted_this_is_said():
    with pytest.raises(
        InvalidDataError, match=r"none of 3 heads. Head 0 .* 120 known rows.*k = 50"
    ):
        PerHead(scorer=KNN(k=500)).fit(KNOWN)


@pytest.mark.parametrize("name", ["energy", "ash-s", "scale+gen"])
def test_a_method_that_learns_nothing_needs_no_fit(name):
    expected = by_hand(name, KNOWN, VALIDATION, TEST)
    for known in (KNOWN, ClassifierOutputs.empty(4), rows((5, 0, 5), seed=1)):
        assert torch.equal(PerHead(scorer=load_method(name)).fit(known).score(TEST), expected)
    assert torch.equal(PerHead(scorer=load_method(name)).score(TEST), expected)


def test_a_method_that_learns_says_when_it_is_not_fitted():
    with pytest.raises(InvalidDataError, match="KNN is not fitted yet"):
        PerHead(scorer=KNN()).score(TEST)


def test_the_method_that_was_given_stays_as_it_is():
    scorer = load_method("react+knn")
    PerHead(scorer=scorer).fit(KNOWN)
    assert scorer.state() == {}
    assert scorer.scorer.state() == {}


@pytest.mark.parametrize(
    ("name", "parameter", "value"), [("knn", "k", 7), ("react", "percentile", 40)]
)
def test_a_changed_parameter_gives_what_a_new_fit_gives(name, parameter, value):
    method = PerHead(scorer=load_method(name)).fit(KNOWN, VALIDATION)
    before = method.score(TEST)
    other = method.with_parameters(KNOWN, VALIDATION, **{parameter: value})
    new = PerHead(scorer=load_method(name, **{parameter: value})).fit(KNOWN, VALIDATION)
    assert torch.equal(other.score(TEST), new.score(TEST))
    assert torch.equal(method.score(TEST), before)
    assert not torch.equal(before, other.score(TEST))
    with pytest.raises(UnknownNameError, match=f"Did you mean {parameter}"):
        method.with_parameters(KNOWN, VALIDATION, **{f"{parameter}x": value})


def test_a_changed_parameter_may_let_a_head_be_fitted():
    known = rows((60, 7, 70), seed=1)
    method = PerHead(scorer=KNN(k=20)).fit(known)
    other = method.with_parameters(known, k=5)
    assert method.notes_
    assert not other.notes_
    assert torch.equal(other.score(TEST), PerHead(scorer=KNN(k=5)).fit(known).score(TEST))


@pytest.mark.parametrize("name", ["knn", "react+knn", "vim", "ash-s"])
def test_it_is_saved_and_comes_back(name, tmp_path):
    method = PerHead(scorer=load_method(name)).fit(rows((120, 3, 100), seed=1))
    save_method(method, tmp_path / "method")
    loaded = load_saved_method(tmp_path / "method")
    assert torch.equal(loaded.score(TEST), method.score(TEST))
    assert loaded.notes_ == method.notes_
    assert loaded.scorer.parameters() == method.scorer.parameters()


def test_no_rows_give_no_scores():
    method = PerHead(scorer=KNN()).fit(KNOWN)
    assert method.score(TEST[TEST.head_index > 5]).shape == (0,)


def test_rows_of_no_head_or_of_other_heads_are_refused():
    method = PerHead(scorer=KNN()).fit(KNOWN)
    plain = replace(KNOWN, heads=(), head_index=None)
    with pytest.raises(InvalidDataError, match="use KNN itself"):
        PerHead(scorer=KNN()).fit(plain)
    with pytest.raises(InvalidDataError, match="use KNN itself"):
        method.score(plain)
    with pytest.raises(InvalidDataError, match="fitted for 3 heads, got outputs of 4"):
        method.score(replace(TEST, heads=(*TEST.heads, TEST.heads[0])))
    with pytest.raises(InvalidDataError, match="of heads 0 to 2, but one is of head 3"):
        method.score(replace(TEST, head_index=TEST.head_index + 1))


def test_features_of_another_width_are_refused():
    method = PerHead(scorer=KNN()).fit(KNOWN)
    wide = torch.nn.functional.pad(TEST.features, (0, 4))
    with pytest.raises(InvalidDataError, match="KNN was fitted on features with 16 columns"):
        method.score(replace(TEST, features=wide))


def test_a_single_head_is_never_asked_apart():
    for name in list_methods():
        method = load_method(name)
        assert for_heads(method, 1, shares_features=False) is method


@pytest.mark.parametrize("name", list_methods())
def test_heads_are_asked_apart_where_head_or_features_differ(name):
    method = load_method(name)
    apart = [for_heads(method, 3, shares_features=shared) for shared in (True, False)]
    has_head, has_features = (need in method.all_needs for need in (Needs.HEAD, Needs.FEATURES))
    assert [isinstance(each, PerHead) for each in apart] == [has_head, has_head or has_features]
    for each in apart:
        assert each is method or each.scorer is method


def test_a_head_of_ones_own_width_gives_its_logits():
    """The toy is a detector: each head, applied to its features, gives the logits."""
    for place, head in enumerate(KNOWN.heads):
        part = KNOWN.of_head(place)
        assert isinstance(head, Head)
        torch.testing.assert_close(head(part.features), part.logits)
