"""The contract of a method: what is checked before it sees rows, and what it may look at."""

import re
from dataclasses import dataclass, replace

import pytest
import torch

import incognita.methods
from incognita.containers.needs import Needs
from incognita.errors import InvalidDataError
from incognita.extraction.extra_outputs import InputStep
from incognita.methods import METHODS, Method, ReAct, Rows, list_methods, load_method, parse_method
from incognita.methods.contract import Toy

TOY = Toy()


@dataclass(eq=False)
class FarFromMean(Method):
    """Distance to the mean feature."""

    power: float = 2.0
    needs = Needs.FEATURES | Needs.KNOWN

    def fit_statistics(self, known, validation):
        self.mean_ = known.features.double().mean(dim=0)

    def score_rows(self, rows):
        return (rows.features.double() - self.mean_).norm(dim=1) ** self.power


def test_a_method_writes_only_what_it_learns_and_computes():
    known = TOY.outputs(50)
    method = FarFromMean().fit(known)
    expected = (known.features.double() - known.features.double().mean(dim=0)).square().sum(dim=1)
    torch.testing.assert_close(method.score(known), expected)


def test_outputs_are_checked_before_a_method_sees_them():
    known = TOY.outputs(50)
    with pytest.raises(InvalidDataError, match="FarFromMean is not fitted yet"):
        FarFromMean().score(known)
    with pytest.raises(InvalidDataError, match="FarFromMean needs features, but the outputs have"):
        FarFromMean().fit(replace(known, features=None))
    with pytest.raises(InvalidDataError, match="FarFromMean needs features"):
        FarFromMean().fit(known).score(replace(known, features=None, head=None))
    with pytest.raises(InvalidDataError, match="learns from known outputs, got none"):
        FarFromMean().fit(known[torch.zeros(50, dtype=torch.bool)])


@pytest.mark.parametrize(
    ("column", "flag"),
    [("logits", "LOGITS"), ("head", "HEAD"), ("labels", "LABELS"), ("layers", "LAYERS")],
)
def test_a_column_that_is_not_declared_cannot_be_read(column, flag):
    rows = Rows(TOY.outputs(5), FarFromMean())
    with pytest.raises(
        InvalidDataError, match=rf"FarFromMean uses {column} but does not declare Needs\.{flag}\."
    ):
        getattr(rows, column)


def test_rows_name_what_the_outputs_lack():
    rows = Rows(replace(TOY.outputs(5), features=None), FarFromMean())
    with pytest.raises(InvalidDataError, match="FarFromMean needs features"):
        rows.features  # noqa: B018 - the access is the test
    with pytest.raises(InvalidDataError, match=r"needs the extra output InputStep\(epsilon=0.1"):
        rows.column(InputStep(0.1), "logits")


@pytest.mark.parametrize(("name", "instead"), [("score", "score_rows"), ("fit", "fit_statistics")])
def test_what_checks_cannot_be_overridden(name, instead):
    with pytest.raises(TypeError, match=rf"Own overrides {name}, .*; write {instead}\(self"):
        type("Own", (Method,), {name: lambda self, outputs: None})


def test_rows_can_be_passed_on_to_another_method():
    known = TOY.outputs(50)
    method = load_method("knn", k=3).fit(Rows(known, FarFromMean()))
    assert torch.equal(method.score(Rows(known, method)), method.score(known))


def test_a_fitted_method_is_shown_in_one_line():
    assert repr(load_method("knn", k=3).fit(TOY.outputs(50))) == "KNN(k=3)"
    assert repr(FarFromMean().fit(TOY.outputs(50))) == "FarFromMean(power=2.0)"


def test_every_class_can_be_imported_from_the_package():
    for home in METHODS.homes.values():
        name = home.partition(":")[2]
        assert getattr(incognita.methods, name).__name__ == name
        assert name in dir(incognita.methods)
    with pytest.raises(AttributeError, match="has no attribute 'KN'"):
        incognita.methods.KN  # noqa: B018 - the access is the test


@pytest.mark.parametrize("name", list_methods())
def test_the_first_line_names_the_method_and_its_paper(name):
    first = METHODS.get(name).__doc__.partition("\n")[0]
    assert re.search(r"\((.+, )?(19|20)\d\d\)\.$", first), first


def test_text_with_parameters_makes_methods():
    method = parse_method("react(percentile=95)+knn(k=10)")
    assert (method.percentile, method.scorer.k) == (95, 10)
    with pytest.raises(InvalidDataError, match="Expected parameters of knn by name, got 10"):
        parse_method("knn(10)")


@pytest.mark.parametrize(
    ("returned", "got"),
    [
        (lambda logits: logits.amax(dim=1).numpy(), "ndarray"),
        (lambda logits: logits.amax(dim=1).tolist(), "list"),
        (lambda logits: None, "NoneType"),
        (lambda logits: 0.5, "float"),
        (lambda logits: logits, "shape [6, 4]"),
        (lambda logits: logits.amax(dim=1)[1:], "shape [5]"),
        (lambda logits: logits.amax(dim=1) * 1j, "complex numbers"),
    ],
)
def test_anything_but_one_number_per_row_is_one_sentence(returned, got):
    @dataclass(eq=False)
    class Own(Method):
        def score_rows(self, rows):
            return returned(rows.logits)

    outputs = TOY.outputs(6)
    sentence = (
        f"Expected a tensor of 6 scores from score_rows of Own, got {got}. Return a torch tensor "
        f"with one number per row."
    )
    for method in (Own(), ReAct(scorer=Own())):
        with pytest.raises(InvalidDataError, match=f"^{re.escape(sentence)}$"):
            method.fit(outputs).score(outputs)
