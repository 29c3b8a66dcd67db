"""Every registered method keeps the contract: what it needs, which way is up, what it survives."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from incognita.containers.needs import Needs
from incognita.containers.outputs import ClassifierOutputs
from incognita.errors import InvalidDataError, UnknownNameError
from incognita.methods import METHODS, list_methods, load_method
from incognita.methods.contract import CONTRACT, Case, Toy
from incognita.methods.method import Method
from incognita.methods.per_head import PerHead
from incognita.methods.saving import load_saved_method, save_method
from incognita.metrics.ranking import auroc

NAMES = list_methods()
COMPOSED = ["react+knn", "ash-s+msp", "dice+max-logit", "scale+gen", "vra+mds"]
OF_EACH_HEAD = "of each head: "
PER_HEAD = [OF_EACH_HEAD + name for name in ("knn", "vim", "ash-s", "react+knn")]
DESIGN = [
    "msp",
    "max-logit",
    "energy",
    "temperature",
    "entropy",
    "gen",
    "kl-matching",
    "mcm",
    "openmax",
    "odin",
    "odin-temperature",
    "odin-max-logit",
    "mds",
    "mds-ensemble",
    "rmds",
    "ssd",
    "gram",
    "gradnorm",
    "react",
    "dice",
    "dice+react",
    "ash-p",
    "ash-s",
    "ash-b",
    "scale",
    "adascale",
    "vra",
    "vim",
    "residual",
    "knn",
    "she",
    "nnguide",
    "fdbd",
    "nci",
    "relation",
    "rankfeat",
    "ddu",
    "opengan",
    "oodl",
    "mc-dropout",
    "ensemble",
    "lard",
    "safe",
]


def case_of(name, toy=None, n_known=400, **parameters):
    method = load_method(name.removeprefix(OF_EACH_HEAD), **parameters)
    if name.startswith(OF_EACH_HEAD):
        method = PerHead(scorer=method)
    return Case(method, toy, n_known)


@pytest.fixture(scope="module", params=[*NAMES, *COMPOSED, *PER_HEAD])
def case(request):
    return case_of(request.param).fit()


def test_every_method_of_the_design_is_registered():
    assert set(DESIGN) <= set(NAMES)
    homes = [home for name, home in METHODS.homes.items()]
    assert len(homes) == len(set(homes))


@pytest.mark.parametrize("check", CONTRACT)
def test_the_contract_is_kept(case, check):
    assert CONTRACT[check](case) is None


# what a method looks for, where it is not a row between the clusters
LOOKS_FOR = {"ASHS": "faint", "SCALE": "faint", "AdaScale": "faint", "Residual": "aside"}


def test_higher_means_more_unknown(case):
    asked = case.method.scorer if isinstance(case.method, PerHead) else case.method
    kind = LOOKS_FOR.get(type(asked).__name__, True)
    known, unknown = case.outputs(200, seed=3), case.outputs(200, seed=4, unknown=kind)
    scores = torch.cat([case.score(known), case.score(unknown)]).numpy()
    assert auroc(scores, np.repeat([False, True], 200)) > 0.75


def learns(method):
    return (
        type(method).fit_statistics is not Method.fit_statistics
        or type(method).finalize is not Method.finalize
    )


@pytest.mark.parametrize(
    ("need", "what", "other"),
    [
        (Needs.FEATURES, "features with 16 columns, got features with 20", Toy(d=20)),
        (Needs.LOGITS, "logits with 4 columns, got logits with 5", Toy(n_classes=5)),
    ],
    ids=["features", "logits"],
)
def test_outputs_of_another_network_are_refused(case, need, what, other, tmp_path):
    if need not in case.method.all_needs or not learns(case.method):
        pytest.skip("nothing that was learned depends on the width")
    save_method(case.method, tmp_path / "method.safetensors")
    outputs = case.equip(other.outputs(5, seed=3), case.method.extra_outputs())
    for method in (case.method, load_saved_method(tmp_path / "method.safetensors")):
        with pytest.raises(InvalidDataError, match=f"was fitted on {what}"):
            method.score(outputs)


def test_a_layer_of_another_width_is_refused():
    case = case_of("mds-ensemble").fit()
    outputs = case.outputs(5, seed=3)
    narrow = replace(outputs, layers=outputs.layers | {"stem": torch.zeros(5, 2)})
    with pytest.raises(InvalidDataError, match="layer 'stem' with 6 columns, got layer 'stem'"):
        case.score(narrow)


@pytest.mark.parametrize(("name", "layer"), [("lard", "latent/rpn"), ("safe", "shortcut/2")])
def test_a_layer_of_boxes_of_another_width_is_refused(name, layer):
    case = case_of(name).fit()
    outputs = case.outputs(5, seed=3)
    narrow = replace(outputs, layers=outputs.layers | {layer: torch.zeros(5, 2)})
    with pytest.raises(InvalidDataError, match=f"fitted on layer '{layer}' with"):
        case.score(narrow)


@pytest.mark.parametrize("name", ["react", "openmax"])
def test_a_changed_parameter_keeps_the_width(name):
    case = case_of(name).fit()
    parameter, values = next(iter(case.method.search_space.items()))
    other = case.method.with_parameters(case.known, case.validation, **{parameter: values[0]})
    with pytest.raises(InvalidDataError, match="was fitted on"):
        other.score(Toy(n_classes=5).outputs(3, seed=3))


def test_temperature_learns_from_validation_labels_without_training_images():
    toy = Toy()
    held_out = toy.outputs(80, seed=2)
    none = ClassifierOutputs.empty(toy.n_classes, toy.head)
    alone = load_method("temperature").fit(none, held_out)
    beside = load_method("temperature").fit(toy.outputs(400, seed=1), held_out)
    assert alone.temperature_ == beside.temperature_
    with pytest.raises(InvalidDataError, match="Temperature needs labels"):
        load_method("temperature").fit(toy.outputs(80, seed=1), replace(held_out, labels=None))


def clips(method):
    """Whether large features are cut to one value, so that rows beyond it are truly equal."""
    scorer = getattr(method, "scorer", None)
    return type(method).__name__ in ("ReAct", "VRA") or (scorer is not None and clips(scorer))


def test_confident_rows_do_not_tie(case):
    """Logits far apart saturate a float32 softmax at 1; their scores must still differ."""
    if clips(case.method) or type(case.method).__name__ == "OODL":  # its kernel ends at zero
        pytest.skip("rows this far out are equal by definition")
    outputs = case.outputs(40, seed=3)
    scale = torch.linspace(3.0, 5.5, 40)[:, None]
    sure = replace(
        outputs,
        logits=outputs.logits * scale,
        features=outputs.features * scale,
        layers={name: t * scale for name, t in outputs.layers.items()},
        extra_outputs=None
        if outputs.extra_outputs is None
        else {n: t * scale.view(-1, *[1] * (t.ndim - 1)) for n, t in outputs.extra_outputs.items()},
    )
    assert len(case.score(sure).unique()) == 40


@pytest.mark.parametrize("name", NAMES)
def test_a_method_names_what_it_misses(name):
    method = load_method(name)
    unwrap = ClassifierOutputs(("a", "b", "c"), torch.randn(3, 4), labels=torch.tensor([0, 1, 2]))
    of_network = Needs.FEATURES | Needs.HEAD | Needs.LAYERS | Needs.LATENT | Needs.SHORTCUTS
    if method.all_needs & of_network:
        with pytest.raises(InvalidDataError, match="needs"):
            method.fit(unwrap, unwrap).score(unwrap)


@pytest.mark.parametrize("name", NAMES)
def test_more_neighbors_than_rows_are_refused(name):
    method = load_method(name)
    if "k" not in method.parameters():
        return
    case = case_of(name, n_known=12, k=50)
    with pytest.raises(InvalidDataError, match="50"):
        case.fit().score(case.outputs(3, seed=3))


@pytest.mark.parametrize("name", NAMES)
def test_a_method_says_where_it_comes_from(name):
    kind = METHODS.get(name)
    text = kind.__doc__
    assert "$$" in text or not isinstance(kind, type), "equation"
    assert any(str(year) in text for year in range(2014, 2027)), "reference"
    assert ">>>" in text or not isinstance(kind, type), "example"


@pytest.mark.parametrize("name", NAMES)
def test_a_misspelled_parameter_is_answered_with_a_suggestion(name):
    method = load_method(name)
    for parameter in method.parameters():
        with pytest.raises(UnknownNameError, match=parameter):
            load_method(name, **{f"{parameter}x": 1})


def test_a_method_that_does_not_reshape_cannot_wrap_another():
    with pytest.raises(InvalidDataError, match="does not reshape features"):
        load_method("knn+react")


def test_a_misspelled_method_is_answered_with_a_suggestion():
    with pytest.raises(UnknownNameError, match="Did you mean energy"):
        load_method("enregy")


def test_images_with_nan_do_not_reach_a_method():
    with pytest.raises(InvalidDataError, match="must be finite, but row 1"):
        ClassifierOutputs(("a", "b"), torch.tensor([[1.0, 2.0], [float("nan"), 0.0]]))
