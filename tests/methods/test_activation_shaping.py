"""Methods that reshape features: ReAct, VRA, DICE, ASH, SCALE and AdaScale."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.oracles import shaping_methods as oracle

from incognita.containers.outputs import ClassifierOutputs, Head
from incognita.errors import InvalidDataError
from incognita.methods import activation_shaping, load_method
from incognita.methods.activation_shaping import (
    ASHB,
    ASHP,
    ASHS,
    DICE,
    SCALE,
    VRA,
    ReAct,
    dice_react,
)
from incognita.methods.adascale import AdaScale
from incognita.methods.contract import Toy, with_extra_outputs
from incognita.methods.knn import KNN
from incognita.methods.numerics import activations
from incognita.methods.numerics.activations import largest_of_row, percentile_of_all
from incognita.methods.softmax import MSP, Energy

LEARNING = [ReAct(), VRA(), DICE(), dice_react()]
ROW_WISE = [ASHP(), ASHS(), ASHB(), SCALE()]


def with_uneven_steps(outputs: ClassifierOutputs) -> ClassifierOutputs:
    """Add a step for AdaScale that moves each feature by an amount of its own."""
    noise = torch.randn(outputs.features.shape, generator=torch.Generator().manual_seed(5))
    column = f"{AdaScale().extra_outputs()[0].key}/features"
    return replace(outputs, extra_outputs={column: outputs.features + noise})


def outputs_of(features: torch.Tensor, head: Head) -> ClassifierOutputs:
    return ClassifierOutputs(tuple(range(len(features))), head(features), features, head=head)


@pytest.fixture(params=[False, True], ids=["relu", "negative"])
def toy(request) -> Toy:
    return Toy(d=20, negative=request.param)


@pytest.mark.parametrize("percentile", [0, 50, 85, 99, 100])
def test_react_equals_its_definition(toy, percentile):
    known, seen = toy.outputs(60), toy.outputs(15, unknown=True, seed=2)
    scores = ReAct(percentile=percentile).fit(known).score(seen)
    rows = oracle.react(seen.features, known.features, percentile)
    expected = oracle.energies(rows, toy.head.weight, toy.head.bias)
    assert scores.dtype == torch.float64
    np.testing.assert_allclose(scores, expected, rtol=1e-12)


@pytest.mark.parametrize("percentiles", [(10, 90), (0, 95), (40, 60)])
def test_vra_equals_its_definition(toy, percentiles):
    known, seen = toy.outputs(60), toy.outputs(15, unknown=True, seed=2)
    low, high = percentiles
    scores = VRA(low_percentile=low, high_percentile=high).fit(known).score(seen)
    rows = oracle.vra(seen.features, known.features, low, high)
    expected = oracle.energies(rows, toy.head.weight, toy.head.bias)
    np.testing.assert_allclose(scores, expected, rtol=1e-12)


@pytest.mark.parametrize("percentile", [10, 50, 90])
def test_dice_equals_its_definition(toy, percentile):
    known, seen = toy.outputs(60), toy.outputs(15, unknown=True, seed=2)
    scores = DICE(percentile=percentile).fit(known).score(seen)
    weight = oracle.dice_weight(known.features, toy.head.weight, percentile)
    expected = oracle.energies(oracle.rows_of(seen.features), weight, toy.head.bias)
    np.testing.assert_allclose(scores, expected, rtol=1e-12)


def test_dice_with_react_equals_its_definition(toy):
    known, seen = toy.outputs(60), toy.outputs(15, unknown=True, seed=2)
    method = load_method("dice+react", percentile=70, clip_percentile=80)
    weight = oracle.dice_weight(known.features, toy.head.weight, 70)
    rows = oracle.react(seen.features, known.features, 80)
    expected = oracle.energies(rows, weight, toy.head.bias)
    np.testing.assert_allclose(method.fit(known).score(seen), expected, rtol=1e-12)


@pytest.mark.parametrize("percentile", [0, 65, 90, 100])
@pytest.mark.parametrize(
    ("kind", "definition"),
    [(ASHP, oracle.ash_p), (ASHS, oracle.ash_s), (ASHB, oracle.ash_b), (SCALE, oracle.scale)],
)
def test_row_wise_methods_equal_their_definition(toy, kind, definition, percentile):
    seen = toy.outputs(15, unknown=True, seed=2)
    rows = definition(seen.features, percentile)
    expected = oracle.energies(rows, toy.head.weight, toy.head.bias)
    np.testing.assert_allclose(kind(percentile=percentile).score(seen), expected, rtol=1e-12)


@pytest.mark.parametrize(("kind", "variant"), [(ASHP, "ash-p"), (ASHS, "ash-s"), (ASHB, "ash-b")])
def test_ash_equals_pytorch_ood(kind, variant):
    detectors = pytest.importorskip("pytorch_ood.detector")
    toy = Toy(d=20)
    features = toy.outputs(15, seed=2).features + 0.01  # no zeros that tie
    detector = detectors.ASH(None, lambda maps: toy.head(maps.flatten(1)), variant, percentile=0.65)
    expected = detector.predict_feature_maps(features[:, :, None, None])
    scores = kind(percentile=65).score(outputs_of(features, toy.head))
    np.testing.assert_allclose(scores, expected, rtol=1e-5)


def test_scale_react_and_dice_equal_pytorch_ood():
    detectors = pytest.importorskip("pytorch_ood.detector")
    toy = Toy(d=20)
    known, seen = toy.outputs(60), toy.outputs(15, unknown=True, seed=2)

    def head(maps: torch.Tensor) -> torch.Tensor:
        return toy.head(maps.flatten(1))

    maps, known_maps = seen.features[:, :, None, None], known.features[:, :, None, None]
    scale = detectors.SCALE(None, head, percentile=0.85)
    react = detectors.ReAct(None, head, percentile=0.9)
    dice = detectors.DICE(None, toy.head.weight, toy.head.bias, p=0.9)
    expected = {
        SCALE(): scale.predict_feature_maps(maps),
        ReAct(): react.fit_feature_maps(known_maps, known.labels).predict_feature_maps(maps),
        DICE(): dice.fit_features(known.features, known.labels).predict_features(seen.features),
    }
    for method, scores in expected.items():
        np.testing.assert_allclose(method.fit(known).score(seen), scores, rtol=1e-5)


def test_a_low_activation_is_dropped_and_not_raised():
    head = Head(torch.eye(2), torch.zeros(2))
    known = outputs_of(torch.tensor([[1.0, 2.0], [3.0, 4.0]]), head)
    method = VRA(low_percentile=50, high_percentile=100).fit(known)
    assert method.shape(torch.tensor([[1.0, 3.0]])).tolist() == [[0.0, 3.0]]


@pytest.mark.parametrize("percentile", [0, 12.5, 50, 90, 99.9, 100])
def test_percentile_equals_numpy(percentile):
    values = torch.randn(37, 11, generator=torch.Generator().manual_seed(0))
    expected = np.percentile(values.double().numpy(), percentile)
    assert percentile_of_all(values, percentile) == pytest.approx(expected, rel=1e-12)


def test_percentile_of_too_many_values_is_that_of_evenly_chosen_rows(monkeypatch):
    monkeypatch.setattr(activations, "_MOST", 100)
    values = torch.randn(95, 4, generator=torch.Generator().manual_seed(0))  # 380: every 4th row
    expected = np.percentile(values[::4].double().numpy(), 90)
    assert percentile_of_all(values, 90) == pytest.approx(expected, rel=1e-12)


def test_percentile_leaves_the_values_in_their_order():
    values = torch.tensor([[3.0, 1.0, 2.0]])
    percentile_of_all(values, 50)
    assert values.tolist() == [[3.0, 1.0, 2.0]]


def test_of_equal_activations_the_first_are_kept():
    features = torch.tensor([[0.0, 2.0, 0.0, 2.0, 0.0, 0.0]])
    assert largest_of_row(features, 3).nonzero()[:, 1].tolist() == [0, 1, 3]
    assert largest_of_row(features, 1).nonzero()[:, 1].tolist() == [1]


@pytest.mark.parametrize("variant", ["A", "L"])
@pytest.mark.parametrize("percents", [(5, 1), (40, 20)])
def test_adascale_equals_its_definition(toy, variant, percents):
    method = AdaScale((60, 90), *percents, shift_weight=3, variant=variant)
    known, validation, seen = (
        with_extra_outputs(outputs, method.extra_outputs())
        for outputs in (toy.outputs(9), toy.outputs(40, seed=3), toy.outputs(25, seed=4))
    )
    column = f"{method.extra_outputs()[0].key}/features"
    ratios = oracle.adascale_ratios(
        seen.features, seen.extra_outputs[column],
        validation.features, validation.extra_outputs[column], (60, 90), *percents, 3,
    )  # fmt: skip
    assert len(set(ratios)) > 10
    rows = np.asarray(oracle.rows_of(seen.features))
    weight, bias = oracle.rows_of(toy.head.weight), toy.head.bias.tolist()
    if variant == "A":
        expected = oracle.energies(rows * np.exp(ratios)[:, None], weight, bias)
    else:
        logits = [oracle.logits_of(row, weight, bias) for row in rows]
        expected = [
            oracle.energy([x * r**2 for x in row]) for row, r in zip(logits, ratios, strict=True)
        ]
    np.testing.assert_allclose(method.fit(known, validation).score(seen), expected, rtol=1e-12)


def test_adascale_asks_for_its_step_in_validation_outputs():
    known = Toy().outputs(10)
    with pytest.raises(
        InvalidDataError, match=r"extra output AdaScaleStep\(share=0.05,epsilon=0.5\)"
    ):
        AdaScale().fit(with_extra_outputs(known, AdaScale().extra_outputs()), known)


def test_adascale_asks_for_its_step_when_scoring():
    known = Toy().outputs(10)
    method = AdaScale().fit(with_extra_outputs(known, AdaScale().extra_outputs()))
    with pytest.raises(InvalidDataError, match="AdaScale needs the extra output AdaScaleStep"):
        method.score(known)


def test_adascale_searches_pairs_that_rise():
    pairs = AdaScale.search_space["percentiles"]
    assert len(pairs) == 36
    assert all(low < high for low, high in pairs)
    with pytest.raises(InvalidDataError, match="percentiles that rise, but got 85, 75"):
        AdaScale(percentiles=(85, 75))


@pytest.mark.parametrize("method", ROW_WISE, ids=lambda method: method.title)
def test_methods_that_learn_nothing_score_without_being_fitted(method):
    seen = Toy().outputs(7)
    assert torch.equal(method.score(seen), type(method)().fit(seen).score(seen))


@pytest.mark.parametrize("method", [*LEARNING, AdaScale()], ids=lambda method: method.title)
def test_methods_that_learn_refuse_to_score_before(method):
    seen = with_extra_outputs(Toy().outputs(7), AdaScale().extra_outputs())
    with pytest.raises(InvalidDataError, match="is not fitted yet"):
        method.score(seen)


def test_a_next_method_that_learns_must_be_fitted():
    with pytest.raises(InvalidDataError, match="KNN is not fitted yet"):
        ASHP(scorer=KNN(k=2)).score(Toy().outputs(7))


def test_the_next_method_learns_from_reshaped_outputs():
    toy = Toy()
    known, seen = toy.outputs(50), toy.outputs(20, unknown=True, seed=2)
    method = ReAct(percentile=60, scorer=KNN(k=3)).fit(known)
    limit = method.threshold_
    clipped = outputs_of(known.features.clamp(max=limit), toy.head)
    expected = KNN(k=3).fit(clipped).score(outputs_of(seen.features.clamp(max=limit), toy.head))
    np.testing.assert_allclose(method.score(seen), expected, atol=1e-6)
    assert not torch.allclose(expected, KNN(k=3).fit(known).score(seen))


def test_the_next_method_learns_from_reshaped_validation_outputs():
    seen_by_then = []

    class Listener(MSP):
        needs = Energy.needs | KNN.needs

        def fit_statistics(self, known, validation):
            seen_by_then.append((known.outputs, validation.outputs))

    toy = Toy()
    known, validation = toy.outputs(20), toy.outputs(9, seed=2)
    method = ReAct(percentile=50, scorer=Listener()).fit(known, validation)
    for shaped, raw in zip(seen_by_then[0], (known, validation), strict=True):
        assert torch.equal(shaped.features, raw.features.clamp(max=method.threshold_))
        torch.testing.assert_close(shaped.logits, toy.head(shaped.features))
        assert torch.equal(shaped.labels, raw.labels)
        assert shaped.layers.keys() == raw.layers.keys()


def test_the_name_chains_methods():
    method = load_method("react+ash-s+knn", percentile=95)
    assert (method.percentile, method.scorer.title, method.scorer.scorer.title) == (
        95,
        "ASHS",
        "KNN",
    )


def test_a_search_leaves_the_fitted_chain_as_it_was():
    known, seen = Toy().outputs(60), Toy().outputs(20, unknown=True, seed=2)
    method = DICE(percentile=50, scorer=ReAct(percentile=60, scorer=KNN(k=3)))
    before = method.fit(known).score(seen)
    other = method.with_parameters(known, percentile=90)
    fresh = DICE(percentile=90, scorer=ReAct(percentile=60, scorer=KNN(k=3))).fit(known)
    assert torch.equal(method.score(seen), before)
    assert torch.equal(other.score(seen), fresh.score(seen))


def test_a_search_tries_the_parameters_of_the_first_method():
    method = dice_react()
    assert method.parameters() == {"percentile": 90}
    assert set(method.search_space) == {"percentile"}


def test_scores_do_not_depend_on_the_chunk(monkeypatch):
    known, seen = Toy().outputs(60), Toy().outputs(20, unknown=True, seed=2)
    for kind in (ReAct, VRA, DICE, ASHS, ASHB, SCALE):
        method = kind(scorer=KNN(k=3)).fit(known)
        together = method.score(seen)
        monkeypatch.setattr(activation_shaping, "ROWS", 7)
        again = kind(scorer=KNN(k=3)).fit(known)
        np.testing.assert_allclose(again.score(seen), together, rtol=1e-12)
        monkeypatch.undo()


@pytest.mark.parametrize("method", [*LEARNING, *ROW_WISE], ids=lambda method: method.title)
class TestEvery:
    def test_unknown_rows_score_higher(self, method):
        toy = Toy()
        method.fit(toy.outputs(200))
        known, unknown = toy.outputs(100, seed=2), toy.outputs(100, unknown=True, seed=3)
        assert method.score(unknown).median() > method.score(known).quantile(0.6)

    def test_no_rows_give_no_scores(self, method):
        known = Toy().outputs(30)
        nothing = known[torch.zeros(30, dtype=torch.bool)]
        assert method.fit(known).score(nothing).shape == (0,)

    @pytest.mark.parametrize("value", [0.0, 2.0, -3.0])
    def test_constant_rows_give_finite_scores(self, method, value):
        known = outputs_of(torch.full((5, 16), value), Toy().head)
        assert method.fit(known).score(known).isfinite().all()

    def test_the_outputs_stay_as_they_were(self, method):
        known = Toy().outputs(30)
        before = known.features.clone(), known.logits.clone(), known.head.weight.clone()
        method.fit(known).score(known)
        after = known.features, known.logits, known.head.weight
        assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))

    def test_features_and_a_head_are_needed(self, method):
        unwrap = ClassifierOutputs((0,), torch.zeros(1, 2))
        with pytest.raises(InvalidDataError, match="needs features"):
            method.fit(unwrap)


@pytest.mark.parametrize(
    ("method", "change"),
    [
        (ReAct(), {"percentile": 50}),
        (VRA(), {"low_percentile": 70}),
        (VRA(), {"high_percentile": 70}),
        (DICE(), {"percentile": 50}),
        (ASHP(), {"percentile": 50}),
        (ASHS(), {"percentile": 50}),
        (ASHB(), {"percentile": 50}),
        (SCALE(), {"percentile": 50}),
        (SCALE(scorer=KNN(k=3)), {"percentile": 50}),
        (AdaScale(), {"percentiles": (30, 50)}),
        (AdaScale(), {"top_percent": 50}),
        (AdaScale((10, 90)), {"shift_percent": 60}),
        (AdaScale((10, 90)), {"shift_weight": 500}),
        (AdaScale(), {"variant": "L"}),
    ],
)
def test_a_changed_parameter_changes_the_score(method, change):
    toy = Toy(d=24)
    known, seen = with_uneven_steps(toy.outputs(100)), with_uneven_steps(toy.outputs(60, seed=2))
    changed = method.fit(known).with_parameters(known, **change)
    fresh = type(method)(**{**method.parameters(), **change}, scorer=method.scorer).fit(known)
    if isinstance(method.scorer, Energy):
        assert not torch.allclose(method.score(seen), changed.score(seen))
    assert torch.equal(changed.score(seen), fresh.score(seen))


@pytest.mark.parametrize("kind", [ReAct, DICE, ASHP, ASHS, ASHB, SCALE])
@pytest.mark.parametrize("percentile", [-1, 101, float("nan")])
def test_a_percentile_outside_0_and_100_is_refused(kind, percentile):
    with pytest.raises(InvalidDataError, match="needs a percentile between 0 and 100"):
        kind(percentile=percentile)


def test_vra_refuses_limits_that_cross():
    with pytest.raises(InvalidDataError, match="at most the high one, but got 90 and 10"):
        VRA(low_percentile=90, high_percentile=10)
