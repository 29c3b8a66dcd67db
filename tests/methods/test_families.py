"""Families are told by what methods need; FindMeIfYouCan names some members of each."""

import pytest

from incognita.containers.needs import Needs
from incognita.methods import list_methods, load_method
from incognita.methods.method import Family, family_of
from incognita.methods.per_head import PerHead

PAPER = {
    "output-based": ["msp", "energy", "gen"],
    "feature-space": ["knn", "ddu", "mds"],
    "mixed": ["vim", "ash-s", "dice", "react", "dice+react"],
    "latent-space": ["lard"],
}


@pytest.mark.parametrize(
    ("family", "name"), [(family, name) for family, names in PAPER.items() for name in names]
)
def test_the_paper_says_the_same(family, name):
    assert family_of(load_method(name)) == family


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("react+knn", Family.MIXED),
        ("gradnorm", Family.MIXED),
        ("residual", Family.MIXED),
        ("ensemble", Family.OUTPUT),
        ("odin", Family.OUTPUT),
        ("oodl", Family.FEATURE),
        ("safe", Family.LATENT),
        ("mds-ensemble", Family.LATENT),
        ("gram", Family.LATENT),
        ("rankfeat", Family.LATENT),
    ],
)
def test_others_are_where_their_needs_put_them(name, family):
    assert family_of(load_method(name)) is family


def test_a_parameter_may_change_the_family():
    assert family_of(load_method("oodl", layer="stem")) is Family.LATENT


@pytest.mark.parametrize("name", list_methods())
def test_who_looks_at_no_feature_is_not_of_the_feature_space(name):
    method = load_method(name)
    looks = {Family.FEATURE: True, Family.MIXED: True, Family.OUTPUT: False}
    if (family := family_of(method)) in looks:
        assert bool(method.all_needs & (Needs.FEATURES | Needs.HEAD)) is looks[family]


@pytest.mark.parametrize("name", ["knn", "react", "energy", "lard"])
def test_a_method_asked_for_each_head_stays_in_its_family(name):
    method = load_method(name)
    assert family_of(PerHead(scorer=method)) is family_of(method)
