"""What may stand behind the name of a method, and what is refused."""

import re

import numpy as np
import pytest

from incognita.errors import IncognitaError, InvalidDataError, UnknownNameError
from incognita.methods import list_methods, load_method, parse_method


@pytest.mark.parametrize(
    ("name", "parameters", "sentence"),
    [
        ("knn", {"k": "a"}, "Expected k of knn to be a whole number, got 'a'."),
        ("knn", {"k": 2.5}, "Expected k of knn to be a whole number, got 2.5."),
        ("knn", {"k": True}, "Expected k of knn to be a whole number, got True."),
        ("knn", {"k": None}, "Expected k of knn to be a whole number, got None."),
        ("react", {"percentile": "90"}, "Expected percentile of react to be a number, got '90'."),
        ("react", {"scorer": "knn"}, "Expected scorer of react to be a Method, got 'knn'."),
        ("oodl", {"layer": 3}, "Expected layer of oodl to be text or None, got 3."),
        (
            "oodl",
            {"kernel": ("a", "b")},
            "Expected kernel of oodl to be 'rbf-exact' or 'rbf' or 'nystroem', got ('a', 'b').",
        ),
        (
            "gram",
            {"powers": (1, 2.5)},
            "Expected powers of gram to be a tuple of values, each a whole number, got (1, 2.5).",
        ),
        (
            "adascale",
            {"percentiles": (75,)},
            "Expected percentiles of adascale to be a tuple of 2: a number, a number, got (75,).",
        ),
        (
            "dice+react",
            {"clip_percentile": "x"},
            "Expected clip_percentile of dice+react to be a number, got 'x'.",
        ),
    ],
)
def test_a_parameter_of_another_type_is_refused(name, parameters, sentence):
    with pytest.raises(InvalidDataError, match=f"^{re.escape(sentence)}$"):
        load_method(name, **parameters)


@pytest.mark.parametrize("name", list_methods())
def test_defaults_and_grids_are_of_the_right_type(name):
    made = load_method(name)
    if name != "dice+react":  # made by a function
        load_method(name, **made.parameters())
    for parameter, values in made.search_space.items():
        for value in values:
            load_method(name, **{parameter: value})


def test_whole_numbers_lists_and_numpy_numbers_are_understood():
    assert load_method("react", percentile=90).percentile == 90
    assert load_method("gram", powers=[1, 2]).powers == (1, 2)
    k = load_method("knn", k=np.int64(7)).k
    assert (k, type(k)) == (7, int)


def test_parameters_beside_a_name_are_those_of_the_first():
    assert load_method("react+knn", percentile=95).percentile == 95
    assert load_method("dice+react", clip_percentile=80).scorer.percentile == 80
    assert load_method("dice+react+knn").scorer.scorer.k == 50


def test_capital_letters_are_answered_with_a_suggestion():
    with pytest.raises(UnknownNameError, match="Did you mean max-logit"):
        load_method("MAX-LOGIT")


OWN = '''
from dataclasses import dataclass

from incognita.methods import Energy, Method, Needs
from sibling import SIGN


@dataclass(eq=False)
class Largest(Method):
    """Scores by the k-th largest logit."""

    k: int = 1
    scale: float = 1.0

    def __post_init__(self):
        if self.k > 9:
            raise RuntimeError("k is out of range")

    def score_rows(self, rows):
        return SIGN * self.scale * rows.logits.double().sort(dim=1).values[:, -self.k]


class Plain(Method):
    k: int = 1

    def score_rows(self, rows):
        return -rows.logits.double().amax(dim=1)


@dataclass(eq=False)
class Unfinished(Method):
    """Has no score_rows."""


def build():
    return Largest()
'''


@pytest.fixture
def own(tmp_path):
    path = tmp_path / "own methods (1)" / "own.py"
    path.parent.mkdir()
    (path.parent / "sibling.py").write_text("SIGN = -1\n")
    path.write_text(OWN)
    return path


def test_a_method_is_named_by_its_file_and_class(own):
    made = parse_method(f"{own}:Largest(k=3, scale=2)")
    assert (type(made).__name__, made.k, made.scale) == ("Largest", 3, 2)
    assert parse_method(f"{own}:Largest").k == 1
    assert type(parse_method(f"{own}:Plain")).__name__ == "Plain"
    assert load_method(f"{own}:Largest", k=2).k == 2


def test_a_method_of_a_file_can_be_wrapped(own):
    made = parse_method(f"react(percentile=95)+{own}:Largest(k=3)")
    assert (made.percentile, made.scorer.k) == (95, 3)


def test_the_home_folder_is_understood(own, monkeypatch):
    monkeypatch.setenv("HOME", str(own.parent))
    assert parse_method("~/own.py:Largest(k=2)").k == 2


def test_an_edited_file_is_loaded_again(own):
    assert parse_method(f"{own}:Largest").k == 1
    own.write_text(OWN.replace("k: int = 1", "k: int = 2"))
    assert parse_method(f"{own}:Largest").k == 2


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("{own}x.py:Largest", "There is no file at .*own.pyx.py; check the path."),
        ("{own}:Larges", "No method of own.py is called 'Larges'. Did you mean Largest\\?"),
        (
            "{own}:zzz",
            "No method of own.py is called 'zzz'. Choose one of: Largest, Plain, Unfinished.",
        ),
        (
            "{own}:build",
            "Expected build of own.py to be a subclass of Method that is defined there. Methods "
            "of this file: Largest, Plain, Unfinished.",
        ),
        ("{own}:Energy", "Expected Energy of own.py to be a subclass .*"),
        ("{own}:Largest(j=3)", "No parameter of .*own.py:Largest is called 'j'. Choose .*"),
        ("{own}:Largest(k='a')", "Expected k of .*own.py:Largest to be a whole number, got 'a'."),
        ("{own}:Largest(k=10)", ".*own.py:Largest could not be built: RuntimeError: k is out .*"),
        ("{own}:Largest(3)", "Expected parameters of .*own.py:Largest by name, got 3. Write .*"),
        ("{own}:Plain(k=3)", "Expected .*own.py:Plain to be a dataclass, whose fields are .*"),
        ("{own}:Unfinished", ".*Unfinished could not be built: TypeError: Can't instantiate .*"),
        ("{own}:Largest+knn", ".*own.py:Largest cannot wrap knn: it does not reshape features.*"),
        ("{own}", "Expected the name of a method, got .* Write .* or file.py:Class\\(k=3\\)."),
    ],
)
def test_a_wrong_file_class_or_parameter_is_one_sentence(own, text, sentence):
    with pytest.raises(IncognitaError, match=f"^{sentence}$"):
        parse_method(text.format(own=own))


def test_a_file_that_cannot_be_imported_is_named(own):
    own.write_text("import nothing_like_this")
    with pytest.raises(InvalidDataError, match="could not be imported: ModuleNotFoundError"):
        parse_method(f"{own}:Largest")
