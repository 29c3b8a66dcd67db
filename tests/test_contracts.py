"""Every registered method keeps the contract: what it needs, which way is up, what it survives."""

from dataclasses import fields, replace

import numpy as np
import pytest
import torch
from tests.methods.toys import Toy, as_boxes, of_heads, with_extra_outputs

from incognita.containers.needs import Needs
from incognita.containers.outputs import ClassifierOutputs, Head
from incognita.errors import InvalidDataError, UnknownNameError
from incognita.methods import METHODS, list_methods, load_method
from incognita.methods.ensembles import join_members
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


class Case:
    """A toy world and a method fitted in it."""

    def __init__(self, name, toy=None, n_known=400, **parameters):
        self.toy = toy or Toy()
        self.method = load_method(name.removeprefix(OF_EACH_HEAD), **parameters)
        if name.startswith(OF_EACH_HEAD):
            self.method = PerHead(scorer=self.method)
        known = self.toy.outputs(n_known, seed=1, prefix="train-")
        held_out = self.toy.outputs(80, seed=2, prefix="val-")
        self.known = self.equip(known, self.method.extra_outputs_to_fit("known"))
        self.validation = self.equip(held_out, self.method.extra_outputs_to_fit("validation"))

    def equip(self, outputs, extra_outputs):
        if self.method.all_needs & (Needs.LATENT | Needs.SHORTCUTS):
            outputs = as_boxes(outputs)
        if isinstance(self.method, PerHead):
            outputs = of_heads(outputs)
        outputs = with_extra_outputs(outputs, extra_outputs)
        if Needs.MEMBERS in self.method.all_needs:
            other = replace(outputs, logits=outputs.logits * 0.9 + 0.05)
            outputs = join_members([outputs, other])
        return outputs

    def fit(self):
        self.method.fit(self.known, self.validation)
        return self

    def outputs(self, n, **options):
        return self.equip(self.toy.outputs(n, **options), self.method.extra_outputs())

    def score(self, outputs):
        return self.method.score(outputs)


@pytest.fixture(scope="module", params=[*NAMES, *COMPOSED, *PER_HEAD])
def case(request):
    return Case(request.param).fit()


def test_every_method_of_the_design_is_registered():
    assert set(DESIGN) <= set(NAMES)
    homes = [home for name, home in METHODS.homes.items()]
    assert len(homes) == len(set(homes))


# what a method looks for, where it is not a row between the clusters
LOOKS_FOR = {"ASHS": "faint", "SCALE": "faint", "AdaScale": "faint", "Residual": "aside"}


def test_higher_means_more_unknown(case):
    asked = case.method.scorer if isinstance(case.method, PerHead) else case.method
    kind = LOOKS_FOR.get(type(asked).__name__, True)
    known, unknown = case.outputs(200, seed=3), case.outputs(200, seed=4, unknown=kind)
    scores = torch.cat([case.score(known), case.score(unknown)]).numpy()
    assert auroc(scores, np.repeat([False, True], 200)) > 0.75


def test_scores_are_finite_float64_one_per_row(case):
    score = case.score(case.outputs(7, seed=3))
    assert score.shape == (7,)
    assert score.dtype == torch.float64
    assert score.isfinite().all()


def test_no_rows_give_no_scores(case):
    outputs = case.outputs(4, seed=3)
    none = outputs[torch.zeros(4, dtype=torch.bool)]
    assert case.score(none).shape == (0,)


def test_the_same_fit_gives_the_same_scores(case):
    again = type(case)(_name_of(case.method), case.toy).fit()
    outputs = case.outputs(50, seed=3)
    assert torch.equal(case.score(outputs), again.score(outputs))


def test_a_row_scores_the_same_whatever_stands_beside_it(case):
    outputs = case.outputs(60, seed=3)
    keep = torch.arange(60) % 3 == 0
    whole, part = case.score(outputs), case.score(outputs[keep])
    torch.testing.assert_close(whole[keep], part, rtol=1e-6, atol=1e-9)


def test_a_saved_method_scores_the_same(case, tmp_path):
    save_method(case.method, tmp_path / "method.safetensors")
    loaded = load_saved_method(tmp_path / "method.safetensors")
    outputs = case.outputs(50, seed=3)
    assert torch.equal(case.score(outputs), loaded.score(outputs))
    assert loaded.parameters() == case.method.parameters()


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
    case = Case("mds-ensemble").fit()
    outputs = case.outputs(5, seed=3)
    narrow = replace(outputs, layers=outputs.layers | {"stem": torch.zeros(5, 2)})
    with pytest.raises(InvalidDataError, match="layer 'stem' with 6 columns, got layer 'stem'"):
        case.score(narrow)


@pytest.mark.parametrize(("name", "layer"), [("lard", "latent/rpn"), ("safe", "shortcut/2")])
def test_a_layer_of_boxes_of_another_width_is_refused(name, layer):
    case = Case(name).fit()
    outputs = case.outputs(5, seed=3)
    narrow = replace(outputs, layers=outputs.layers | {layer: torch.zeros(5, 2)})
    with pytest.raises(InvalidDataError, match=f"fitted on layer '{layer}' with"):
        case.score(narrow)


@pytest.mark.parametrize("name", ["react", "openmax"])
def test_a_changed_parameter_keeps_the_width(name):
    case = Case(name).fit()
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


@pytest.mark.parametrize("name", NAMES)
def test_half_precision_is_enough(name):
    """A network that runs in bfloat16 emits bfloat16: scores are those of the rounded numbers."""

    def rounded(outputs, dtype):
        columns = {"layers": outputs.layers, "extra_outputs": outputs.extra_outputs}
        columns = {
            group: None if given is None else {n: t.bfloat16().to(dtype) for n, t in given.items()}
            for group, given in columns.items()
        }
        tables = (outputs.head.weight, outputs.head.bias, outputs.logits, outputs.features)
        weight, bias, logits, features = (t.bfloat16().to(dtype) for t in tables)
        head = Head(weight, bias)
        return replace(outputs, logits=logits, features=features, head=head, **columns)

    scores = []
    for dtype in (torch.bfloat16, torch.float32):
        case = Case(name)
        case.known, case.validation = (rounded(c, dtype) for c in (case.known, case.validation))
        case.fit()
        scores.append(case.score(rounded(case.outputs(40, seed=3), dtype)))
    assert scores[0].isfinite().all()
    correlation = np.corrcoef(scores[0].numpy(), scores[1].numpy())[0, 1]
    assert correlation > 0.99


def test_an_image_of_zeros_has_a_finite_score(case):
    outputs = case.outputs(3, seed=3)
    zeros = {name: torch.zeros_like(t) for name, t in (outputs.extra_outputs or {}).items()}
    layers = {name: torch.zeros_like(t) for name, t in (outputs.layers or {}).items()}
    features = torch.zeros_like(outputs.features)
    blank = replace(
        outputs,
        logits=torch.zeros_like(outputs.logits),
        features=features,
        layers=layers,
        extra_outputs=zeros or None,
    )
    assert case.score(blank).isfinite().all()


def in_double(head):
    return Head(head.weight.double(), head.bias.double())


def test_double_precision_gives_the_same_scores(case):
    """What float32 loses is small against the spread of the scores."""
    outputs = case.outputs(100, seed=3)
    exact = replace(
        outputs,
        logits=outputs.logits.double(),
        features=outputs.features.double(),
        head=None if outputs.head is None else in_double(outputs.head),
        heads=tuple(map(in_double, outputs.heads)),
        layers={name: t.double() for name, t in outputs.layers.items()},
        extra_outputs=None
        if outputs.extra_outputs is None
        else {n: t.double() for n, t in outputs.extra_outputs.items()},
    )
    single, double = case.score(outputs), case.score(exact)
    spread = float(double.std())
    torch.testing.assert_close(single, double, rtol=1e-4, atol=1e-4 * max(spread, 1e-12))


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
def test_one_class_is_enough_or_is_refused_with_a_sentence(name):
    case = Case(name, Toy(n_classes=1, d=16))
    try:
        score = case.fit().score(case.outputs(10, seed=3))
    except InvalidDataError as error:
        assert str(error).endswith(".")  # noqa: PT017 - both ways are allowed, silence is not
    else:
        assert score.isfinite().all()


@pytest.mark.parametrize("name", NAMES)
def test_features_may_be_negative(name):
    case = Case(name, Toy(negative=True)).fit()
    known, unknown = case.outputs(100, seed=3), case.outputs(100, seed=4, unknown=True)
    scores = torch.cat([case.score(known), case.score(unknown)])
    assert scores.isfinite().all()


@pytest.mark.parametrize("name", NAMES)
def test_few_dimensions_are_enough(name):
    case = Case(name, Toy(n_classes=3, d=3)).fit()
    assert case.score(case.outputs(20, seed=3)).isfinite().all()


@pytest.mark.parametrize("name", NAMES)
def test_a_class_without_training_rows_does_no_harm(name):
    case = Case(name)
    case.known = case.known[case.known.labels != 2]
    case.validation = case.validation[case.validation.labels != 2]
    assert case.fit().score(case.outputs(20, seed=3)).isfinite().all()


@pytest.mark.parametrize("name", [n for n in NAMES if n not in ("ensemble",)])
def test_every_searched_parameter_changes_some_score(name):
    # many classes and dimensions, and negative values, so that no value of a grid is cut to another
    wide = Toy(n_classes=15, d=300, negative=True)
    case = Case(name, wide)
    for parameter, values in case.method.search_space.items():
        scores = []
        for value in values:
            try:
                other = Case(name, wide, **{parameter: value}).fit()
            except InvalidDataError:
                continue  # k above the number of rows
            scores.append(other.score(other.outputs(40, seed=3)))
        assert len(scores) > 1, parameter
        assert any(not torch.allclose(scores[0], s, rtol=1e-9, atol=0) for s in scores[1:]), (
            parameter
        )


@pytest.mark.parametrize("name", NAMES)
def test_a_changed_parameter_gives_what_a_new_fit_gives(name):
    case = Case(name).fit()
    if case.method.fits_on_extra_outputs_of:
        pytest.skip("its extra outputs belong to its parameters")
    for parameter, values in case.method.search_space.items():
        try:
            other = Case(name, **{parameter: values[-1]}).fit()
        except InvalidDataError:
            continue
        changed = case.method.with_parameters(
            case.known, case.validation, **{parameter: values[-1]}
        )
        outputs = other.outputs(40, seed=3)
        torch.testing.assert_close(
            changed.score(outputs), other.score(outputs), rtol=1e-6, atol=1e-9
        )


@pytest.mark.parametrize("name", NAMES)
def test_searching_leaves_the_first_method_as_it_was(name):
    case = Case(name).fit()
    outputs = case.outputs(30, seed=3)
    before = case.score(outputs)
    for parameter, values in case.method.search_space.items():
        for value in values:
            try:
                case.method.with_parameters(case.known, case.validation, **{parameter: value})
            except InvalidDataError:
                continue
    assert torch.equal(case.score(outputs), before)


@pytest.mark.parametrize("name", NAMES)
def test_a_method_that_learns_says_when_it_is_not_fitted(name):
    case = Case(name)
    learns = Needs.KNOWN in case.method.all_needs
    if not learns:
        return
    with pytest.raises(InvalidDataError, match=r"not fitted yet|needs"):
        case.score(case.outputs(3, seed=3))


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
    case = Case(name, n_known=12, k=50)
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


def _name_of(method: Method) -> str:
    if isinstance(method, PerHead):
        return OF_EACH_HEAD + _name_of(method.scorer)
    home = f"{type(method).__module__}:{type(method).__qualname__}"
    name = next(name for name, place in METHODS.homes.items() if place == home)
    scorer = next((getattr(method, f.name) for f in fields(method) if f.name == "scorer"), None)
    return name if scorer is None else f"{name}+{_name_of(scorer)}"
