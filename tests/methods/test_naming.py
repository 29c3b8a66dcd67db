"""What may stand behind the name of a method, and what is refused."""

import re

import numpy as np
import pytest

from incognita.errors import InvalidDataError, UnknownNameError
from incognita.methods import list_methods, load_method


@pytest.mark.parametrize(
    ("name", "parameters", "sentence"),
    [
        ("knn", {"k": "a"}, "k of knn must be a whole number, but 'a' came."),
        ("knn", {"k": 2.5}, "k of knn must be a whole number, but 2.5 came."),
        ("knn", {"k": True}, "k of knn must be a whole number, but True came."),
        ("knn", {"k": None}, "k of knn must be a whole number, but None came."),
        ("react", {"percentile": "90"}, "percentile of react must be a number, but '90' came."),
        ("react", {"then": "knn"}, "then of react must be a Method, but 'knn' came."),
        ("oodl", {"layer": 3}, "layer of oodl must be text or None, but 3 came."),
        (
            "oodl",
            {"kernel": ("a", "b")},
            "kernel of oodl must be 'rbf-exact' or 'rbf' or 'nystroem', but ('a', 'b') came.",
        ),
        (
            "gram",
            {"powers": (1, 2.5)},
            "powers of gram must be a tuple in which each is a whole number, but (1, 2.5) came.",
        ),
        (
            "adascale",
            {"percentiles": (75,)},
            "percentiles of adascale must be a tuple of 2: a number, a number, but (75,) came.",
        ),
        (
            "dice+react",
            {"clip_percentile": "x"},
            "clip_percentile of dice+react must be a number, but 'x' came.",
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
    assert load_method("dice+react", clip_percentile=80).then.percentile == 80
    assert load_method("dice+react+knn").then.then.k == 50


def test_capital_letters_are_answered_with_a_suggestion():
    with pytest.raises(UnknownNameError, match="Did you mean max-logit"):
        load_method("MAX-LOGIT")
