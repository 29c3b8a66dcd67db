"""A method cannot change what others see: writes to shared outputs are found, named and undone."""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest
import torch
from tests.evaluation.box_worlds import CellDetector, box_benchmark
from tests.evaluation.worlds import TinyNet, tiny_benchmark

import incognita
from incognita.benchmarks.load import test_sets as sets_to_test
from incognita.containers.needs import Needs
from incognita.containers.outputs import ClassifierOutputs, Head
from incognita.errors import InvalidDataError
from incognita.evaluation.fit_and_score import SharedOutputs, is_built_in
from incognita.methods import KNN, MSP, ReAct, load_method
from incognita.methods.contract import Toy, of_heads
from incognita.methods.method import Method
from incognita.models.classifier import wrap_classifier

OTHERS = {"mds": load_method("mds"), "knn": KNN(k=5), "react": load_method("react")}


def subtract(tensor):
    tensor -= tensor.mean(0) + 1


def through_data(tensor):
    tensor.data[0] = 7


def through_numpy(tensor):
    tensor.detach().numpy()[-1] += 1


def permute(tensor):
    tensor[[0, 1]] = tensor[[1, 0]]


def swap_two_signs(tensor):
    tensor[:2, 1].neg_()


WRITES = [subtract, through_data, through_numpy, permute, swap_two_signs]


@dataclass(eq=False)
class Writer(Method):
    """Energy with a write to a column, in `fit` or in `score`."""

    write: object = subtract
    when: str = "score"
    column: str = "features"
    power: float = 1.0
    needs: ClassVar[Needs] = Needs.LOGITS | Needs.FEATURES | Needs.KNOWN | Needs.VALIDATION

    def fit_statistics(self, known, validation):
        self.kept_ = known.outputs.tensors()[self.column]
        if self.when == "fit":
            self.write(self.kept_)
        if self.when == "fit on validation":
            self.write(validation.outputs.tensors()[self.column])

    def score_rows(self, rows):
        scores = -rows.logits.double().logsumexp(dim=1)
        if self.when == "score":
            self.write(rows.outputs.tensors()[self.column])
        if self.when == "later":
            self.write(self.kept_)
        if self.when == "failing":
            self.write(rows.outputs.tensors()[self.column])
            raise RuntimeError("after the write")
        return scores


@dataclass(eq=False)
class SearchedWriter(Writer):
    """Writes only with the second value of its grid."""

    search_space: ClassVar = {"power": (1.0, 2.0)}

    def score_rows(self, rows):
        if self.power == 2.0:
            self.write(rows.features)
        return -rows.logits.double().logsumexp(dim=1) * self.power


@pytest.fixture
def network():
    return wrap_classifier(
        TinyNet(), preprocess="none", example=torch.zeros(2, 3, 8, 8), name="tiny-net"
    )


@pytest.fixture(scope="module")
def undisturbed():
    network = wrap_classifier(
        TinyNet(), preprocess="none", example=torch.zeros(2, 3, 8, 8), name="tiny-net"
    )
    return incognita.evaluate(network, tiny_benchmark(), OTHERS, n_resamples=0)


def numbers(found, name):
    return [result.as_json() for result in found.get(name).results]


def check_others(found, undisturbed):
    """Compare scores bit by bit, then every number."""
    for name in OTHERS:
        for part, scores in undisturbed.scores[name].items():
            assert scores.tobytes() == found.scores[name][part].tobytes(), (name, part)
        assert numbers(found, name) == numbers(undisturbed, name)


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize(
    ("when", "where"),
    [
        ("fit", "train"),
        ("fit on validation", "validation"),
        ("score", "test"),
        ("later", "train"),
        ("failing", "test"),
    ],
)
def test_a_write_is_named_and_the_others_get_intact_data(network, undisturbed, write, when, where):
    methods = {"own": Writer(write, when), **OTHERS}
    found = incognita.evaluate(network, tiny_benchmark(), methods, n_resamples=0)
    assert found.failed == {
        "own": f"It changed features of {where} in place, which other methods read. Change a "
        f"copy, such as rows.features.clone()."
    }
    assert set(found.methods) == set(OTHERS)
    check_others(found, undisturbed)


@pytest.mark.parametrize("column", ["logits", "labels", "head.weight", "head.bias"])
@pytest.mark.parametrize("when", ["fit", "score"])
def test_every_column_and_the_head_are_compared(network, undisturbed, column, when):
    weight = network.module.head.weight.detach().clone()
    own = Writer(through_data, when, column)
    found = incognita.evaluate(network, tiny_benchmark(), {"own": own, **OTHERS}, n_resamples=0)
    assert f"It changed {column} of " in found.failed["own"]
    assert network.module.head.weight.equal(weight)
    check_others(found, undisturbed)


def test_layers_and_extra_outputs_are_compared(network):
    @dataclass(eq=False)
    class Nested(Method):
        needs: ClassVar[Needs] = Needs.LOGITS | Needs.LAYERS

        def score_rows(self, rows):
            for tensor in (*rows.layers.values(), *rows.outputs.extra_outputs.values()):
                tensor.mul_(2)
            return rows.logits.double().amax(dim=1)

    methods = {"own": Nested(), "odin": load_method("odin"), "gram": load_method("gram")}
    found = incognita.evaluate(network, tiny_benchmark(), methods, n_resamples=0)
    assert "layers['stage2'] of test" in found.failed["own"]
    assert "extra_outputs['InputStep" in found.failed["own"]
    alone = {name: method for name, method in methods.items() if name != "own"}
    expected = incognita.evaluate(network, tiny_benchmark(), alone, n_resamples=0)
    for name in alone:
        assert numbers(found, name) == numbers(expected, name)


@pytest.mark.parametrize("when", ["fit", "score", "later"])
def test_a_write_through_a_wrapping_method_is_found(network, undisturbed, when):
    own = ReAct(scorer=Writer(through_data, when, "labels" if when == "score" else "features"))
    found = incognita.evaluate(network, tiny_benchmark(), {"own": own, **OTHERS}, n_resamples=0)
    if when == "score":
        assert "It changed labels of test in place" in found.failed["own"]
    check_others(found, undisturbed)


def test_a_write_during_a_search_drops_the_tuned_version_only(network, undisturbed):
    methods = {"own": SearchedWriter(), **OTHERS}
    found = incognita.evaluate(network, tiny_benchmark(), methods, search=True, n_resamples=0)
    assert list(found.failed) == ["own (tuned)"]
    assert "changed features of validation, features of unknown validation" in str(found.failed)
    assert found.get("own").search is None  # its curve was measured on changed data
    check_others(found, undisturbed)


def test_replaced_columns_and_attributes_are_seen_by_no_other_method(network, undisturbed):
    @dataclass(eq=False)
    class Replacing(Method):
        def score_rows(self, rows):
            scores = rows.logits.double().amax(dim=1)
            rows.outputs.features.data = torch.zeros(1, 1)
            rows.outputs.logits.requires_grad_()
            object.__setattr__(rows.outputs, "image_ids", ())
            object.__setattr__(rows.outputs.head, "weight", None)
            return scores

    methods = {"own": Replacing(), **OTHERS}
    found = incognita.evaluate(network, tiny_benchmark(), methods, n_resamples=0)
    assert found.failed == {}
    check_others(found, undisturbed)


def test_labels_kept_from_an_earlier_set_change_no_accuracy(network, undisturbed):
    @dataclass(eq=False)
    class Keeping(Method):
        needs: ClassVar[Needs] = Needs.LOGITS

        def score_rows(self, rows):
            for labels in vars(self).setdefault("seen_", []):
                labels.zero_()
            if rows.outputs.labels is not None:
                self.seen_.append(rows.outputs.labels)
            return rows.logits.double().amax(dim=1)

    methods = {"own": Keeping(), **OTHERS}
    found = incognita.evaluate(network, tiny_benchmark(), methods, n_resamples=0)
    check_others(found, undisturbed)


def test_boxes_that_tau_is_chosen_on_are_compared_too():
    @dataclass(eq=False)
    class AfterAllSets(Method):
        needs: ClassVar[Needs] = Needs.LOGITS

        def score_rows(self, rows):
            self.calls_ = getattr(self, "calls_", 0) + 1
            scores = -rows.logits.double().amax(dim=1)
            if self.calls_ > n_sets:
                rows.logits.zero_()
            return scores

    benchmark = box_benchmark()
    expected = incognita.evaluate(CellDetector(), benchmark, {"msp": MSP()}, n_resamples=0)
    n_sets = len(list(sets_to_test(benchmark)))
    methods = {"own": AfterAllSets(), "msp": MSP()}
    found = incognita.evaluate(CellDetector(), benchmark, methods, n_resamples=0)
    assert "It changed logits of validation for tau in place" in found.failed["own"]
    assert numbers(found, "msp") == numbers(expected, "msp")


def test_a_built_in_method_that_writes_ends_the_run(network, monkeypatch):
    def score_rows(self, rows):
        rows.logits.zero_()
        return rows.logits.double().amax(dim=1)

    monkeypatch.setattr(MSP, "score_rows", score_rows)
    with pytest.raises(InvalidDataError, match="msp changed logits of test in place"):
        incognita.evaluate(network, tiny_benchmark(), "msp, energy", n_resamples=0)


def test_a_built_in_method_that_writes_later_ends_the_run(network, monkeypatch):
    before = KNN.score_rows

    def score_rows(self, rows):
        self.bank_.mul_(1.5)
        return before(self, rows)

    monkeypatch.setattr(KNN, "score_rows", score_rows)
    with pytest.raises(InvalidDataError, match="A method changed features of train in place"):
        incognita.evaluate(network, tiny_benchmark(), "knn(k=5), msp", n_resamples=0)


def test_only_methods_of_incognita_and_what_they_wrap_are_built_in():
    assert is_built_in(ReAct(scorer=KNN()))
    assert not is_built_in(ReAct(scorer=Writer()))
    assert not is_built_in(Writer())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("write", WRITES)
def test_outputs_of_any_type_are_restored_bit_by_bit(dtype, write):
    toy = Toy().outputs(9)
    features = toy.features.to(dtype)
    features[3, 2] = -0.0
    view = features.T.contiguous().T  # not contiguous
    before = view.clone()
    if dtype == torch.bfloat16 and write is through_numpy:
        pytest.skip("numpy has no bfloat16")
    shared = SharedOutputs(keeps_copies=True)
    shared.add("x", replace(toy, features=view, head=None))
    assert shared.restore(["x"]) == []
    write(view)
    assert shared.restore(["x"]) == ["features of x"]
    assert view.contiguous().view(torch.uint8).equal(before.contiguous().view(torch.uint8))
    assert shared.restore(["x"]) == []


def test_several_heads_and_empty_outputs_are_compared():
    shared = SharedOutputs(keeps_copies=True)
    shared.add("x", of_heads(Toy().outputs(8)))
    shared.add("none", ClassifierOutputs.empty(2, head := Head(torch.eye(2), torch.zeros(2))))
    outputs = of_heads(Toy().outputs(8))
    shared.add("x", outputs)
    outputs.heads[1].bias.add_(1)
    outputs.head_index.zero_()
    head.weight.zero_()
    assert shared.restore(["x", "none"]) == [
        "head_index of x",
        "heads[0].bias of x",  # both heads are one
        "head.weight of none",
    ]
    assert head.weight.equal(torch.eye(2))
    np.testing.assert_array_equal(outputs.head_index, np.arange(8) % 2)
