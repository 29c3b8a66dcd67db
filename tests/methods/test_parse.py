"""What may stand behind the name of a method, and what is refused."""

import re

import numpy as np
import pytest

from incognita.errors import InvalidDataError, UnknownNameError
from incognita.methods import list_methods, load_method


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
