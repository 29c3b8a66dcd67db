"""Default parameters and search grids, each with its source: a change has to be made here, too.

The numbers are written down from the papers and the public codes, not read from the classes; a file
such as `knn.yml` is one of `configs/postprocessors` of OpenOOD.
"""

import inspect
from dataclasses import MISSING, fields

import pytest

from incognita.methods import METHODS, Energy, Method, PerHead

ENERGY = Energy  # what a method that reshapes features hands its logits to
ASH_GRID = {"percentile": (65, 70, 75, 80, 85, 90, 95)}  # ash.yml, scale.yml
ODIN = {"temperature": 1000.0, "epsilon": 0.0014}  # odin.yml
ODIN_GRID = {"temperature": (1.0, 10.0, 100.0, 1000.0), "epsilon": (0.0014, 0.0028)}  # odin.yml
ENDS = (60, 65, 70, 75, 80, 85, 90, 95, 99)  # of the percentiles of adascale_a.yml

# name: defaults, grid
TABLE = {
    "msp": ({}, {}),
    "max-logit": ({}, {}),
    # Liu et al. 2020; ebo.yml has the one point 1
    "energy": ({"temperature": 1.0}, {}),
    "temperature": ({}, {}),
    "entropy": ({}, {}),
    # gen.yml, both
    "gen": (
        {"gamma": 0.1, "top": 100},
        {"gamma": (0.01, 0.1, 0.5, 1.0, 2.0, 5.0, 10.0), "top": (10, 50, 100, 200, 500, 1000)},
    ),
    "kl-matching": ({}, {}),
    # Ming et al. 2022; mcm.yml, both
    "mcm": ({"temperature": 1.0}, {"temperature": (0.01, 1.0, 10.0)}),
    # tail and alpha are fixed in openmax_postprocessor.py of OpenOOD; shift is translate_amount of
    # libmr 0.1.9, which it calls; the grid is that of pytorch-ood
    "openmax": (
        {"tail": 20, "alpha": 3, "shift": 1.0},
        {"tail": (10, 20, 30, 40, 50), "alpha": (1, 3, 5, 10, 15, 20)},
    ),
    "odin": (ODIN, ODIN_GRID),
    "odin-temperature": (
        {"temperature": ODIN["temperature"]},
        {"temperature": ODIN_GRID["temperature"]},
    ),
    "odin-max-logit": (ODIN, ODIN_GRID),  # FACETS prints no value: those of ODIN
    "godin": ({"epsilon": 0.0025}, {}),  # godin.yml
    "mds": ({}, {}),
    # ours: OpenOOD has epsilon 0.0014 and the stem alone, see the docstring
    "mds-ensemble": ({"epsilon": 0.0, "layers": None, "weighting": "mean"}, {}),
    "rmds": ({}, {}),
    "ssd": ({"n_clusters": 1, "seed": 0}, {}),  # the authors' code
    "gram": ({"powers": (1, 2, 3, 4, 5)}, {}),  # gram.yml
    "gradnorm": ({"temperature": 1.0}, {}),  # Huang et al. 2021
    # Sun et al. 2021 and react.yml; the grid is that of react.yml
    "react": ({"scorer": ENERGY, "percentile": 90}, {"percentile": (85, 90, 95, 99)}),
    # Sun and Li 2022 for CIFAR, and dice.yml; the grid is ours
    "dice": ({"scorer": ENERGY, "percentile": 90}, {"percentile": (50, 70, 90, 95)}),
    "dice+react": ({"percentile": 90, "clip_percentile": 90}, {}),  # those of both
    "ash-p": ({"scorer": ENERGY, "percentile": 90}, ASH_GRID),  # ash.yml
    "ash-s": ({"scorer": ENERGY, "percentile": 90}, ASH_GRID),  # Djurisic et al. 2023, ash.yml
    "ash-b": ({"scorer": ENERGY, "percentile": 90}, ASH_GRID),  # ash.yml
    "scale": ({"scorer": ENERGY, "percentile": 85}, ASH_GRID),  # Xu et al. 2024, scale.yml
    # adascale_a.yml, which its author wrote; epsilon is fixed in adascale_postprocessor.py
    "adascale": (
        {
            "scorer": ENERGY,
            "percentiles": (75, 85),
            "top_percent": 5,  # k1
            "shift_percent": 1,  # k2
            "shift_weight": 10,  # lambda
            "variant": "A",
            "share": 0.05,  # o
            "epsilon": 0.5,
        },
        {"percentiles": tuple((low, high) for low in ENDS for high in ENDS if low < high)},
    ),
    # vra.yml, both
    "vra": (
        {"scorer": ENERGY, "low_percentile": 10, "high_percentile": 90},
        {"low_percentile": (1, 5, 10, 15), "high_percentile": (85, 90, 95, 99)},
    ),
    # None is the rule of the authors' code, tested in test_vim.py; the grid is that of vim.yml
    "vim": ({"dimension": None}, {"dimension": (256, 1000)}),
    "residual": ({"dimension": None}, {}),
    # Sun et al. 2022 for CIFAR-10, and knn.yml; the grid is that of knn.yml
    "knn": ({"k": 50}, {"k": (50, 100, 200, 500, 1000)}),
    "she": ({"metric": "inner-product"}, {}),  # Zhang et al. 2023, she.yml
    "nnguide": ({"k": 100, "share": 0.01, "seed": 0}, {}),  # nnguide.yml, K and alpha
    "fdbd": ({"center": "mean"}, {"center": ("mean", "origin")}),  # Liu and Qin 2024; fdbd.yml
    "nci": ({"alpha": 1e-4}, {"alpha": (1e-4, 1e-3, 1e-2, 1e-1)}),  # nci.yml
    # relation.yml; 0.03 is fixed in the authors' code and in relation_postprocessor.py
    "relation": ({"power": 1, "threshold": 0.03}, {"power": (1, 2, 4, 6, 8)}),
    "rankfeat": ({"temperature": 1.0}, {}),  # rankfeat.yml, as the authors' code
    "ddu": ({"jitter": 1e-6}, {}),  # ours, see the docstring
    # ours, so that it trains on a CPU, see the docstring
    "opengan": (
        {"epochs": 20, "width": 128, "learning_rate": 1e-3, "rows": 20_000, "seed": 0},
        {"epochs": (1, 2, 5, 10, 20)},
    ),
    # nu is that of the code of Abdelzad et al. 2019; the others are ours, see the docstring
    "oodl": (
        {
            "nu": 0.001,
            "kernel": "rbf-exact",
            "gamma": 4.0,
            "layer": None,
            "components": None,
            "rows": 20_000,
            "seed": 0,
        },
        {"nu": (0.001, 0.01, 0.1), "kernel": ("rbf-exact", "rbf", "nystroem")},
    ),
    # k of the code of FindMeIfYouCan for Faster R-CNN; the choice of the rest is ours
    "lard": (
        {"layer": None, "variant": "chosen", "n_components": None, "k": 10, "seed": 0},
        {},
    ),
    # epsilon and epochs of the authors' code; the others are ours, see the docstring
    "safe": (
        {
            "epsilon": 8 / 255,
            "epochs": 5,
            "width": 128,
            "learning_rate": 1e-3,
            "rows": 20_000,
            "seed": 0,
        },
        {},
    ),
    "mc-dropout": ({"rate": 0.5, "passes": 5, "seed": 0}, {}),  # dropout.yml
    "ensemble": ({}, {}),
}


def defaults_of(kind) -> dict:
    if not isinstance(kind, type):
        return {p.name: p.default for p in inspect.signature(kind).parameters.values()}
    values = {}
    for field in fields(kind):
        value = field.default if field.default is not MISSING else field.default_factory()
        values[field.name] = type(value) if isinstance(value, Method) else value
    return values


def test_every_registered_method_has_a_line():
    assert list(TABLE) == METHODS.names()


@pytest.mark.parametrize("name", METHODS.names())
def test_defaults_and_grid_are_those_of_their_source(name):
    defaults, grid = TABLE[name]
    kind = METHODS.get(name)
    assert defaults_of(kind) == defaults
    made = kind()
    assert dict(made.search_space) == (TABLE["dice"][1] if name == "dice+react" else grid)
    if isinstance(getattr(made, "scorer", None), Energy):
        assert made.scorer.temperature == TABLE["energy"][0]["temperature"]


def test_dice_with_react_is_made_of_both():
    made = METHODS.get("dice+react")()
    assert (made.title, made.percentile) == ("DICE", TABLE["dice"][0]["percentile"])
    assert (made.scorer.title, made.scorer.percentile) == ("ReAct", TABLE["react"][0]["percentile"])
    assert made.scorer.scorer.title == "Energy"


def test_a_detector_with_several_heads_scores_by_energy_unless_told():
    assert defaults_of(PerHead) == {"scorer": Energy}
