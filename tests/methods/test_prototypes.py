from dataclasses import replace

import numpy as np
import pytest
import torch
from pytorch_ood import detector as peers
from tests.oracles import feature_methods as oracle

from incognita.containers.outputs import ClassifierOutputs, Head
from incognita.methods.contract import Toy
from incognita.methods.prototypes import FDBD, NCI, SHE

ALL = (SHE, FDBD, NCI)
METRICS = ("inner-product", "euclidean", "cosine")


@pytest.fixture(scope="module")
def toy():
    return Toy(negative=True)


@pytest.fixture(scope="module")
def known(toy):
    outputs = toy.outputs(200)
    wrong = outputs.labels.clone()
    wrong[:10] = (wrong[:10] + 1) % 4  # rows that are classified as another class
    return replace(outputs, labels=wrong)


@pytest.fixture(scope="module")
def test_rows(toy):
    return ClassifierOutputs.concatenate(
        [replace(toy.outputs(30, seed=2), labels=None), toy.outputs(30, unknown=True, seed=3)]
    )


@pytest.fixture(scope="module")
def linear(toy):
    layer = torch.nn.Linear(16, 4)
    layer.load_state_dict({"weight": toy.head.weight, "bias": toy.head.bias})
    return layer


def float64(*tensors):
    return [tensor.double().numpy() for tensor in tensors]


@pytest.mark.parametrize("metric", METRICS)
def test_she_equals_its_definition(metric, known, test_rows):
    features, logits, test, test_logits = float64(
        known.features, known.logits, test_rows.features, test_rows.logits
    )
    expected = oracle.she(features, logits, known.labels.numpy(), test, test_logits, metric)
    np.testing.assert_allclose(SHE(metric).fit(known).score(test_rows), expected, rtol=1e-12)


def test_she_equals_pytorch_ood(known, test_rows, linear):
    peer = peers.SHE(torch.nn.Identity(), linear).fit_features(known.features, known.labels)
    expected = peer.predict_features(test_rows.features).detach()
    np.testing.assert_allclose(SHE().fit(known).score(test_rows), expected, rtol=1e-5, atol=1e-5)


def test_she_takes_all_rows_of_a_class_without_a_correct_one(known):
    never = torch.where((known.labels == 2)[:, None], torch.eye(4)[0], torch.eye(4)[known.labels])
    patterns = SHE().fit(replace(known, logits=never)).patterns_
    expected = known.features[known.labels == 2].double().mean(dim=0)
    assert torch.allclose(patterns[2], expected, rtol=1e-12)


def test_she_takes_all_rows_for_a_class_without_any(known):
    kept = known[known.labels != 2]
    patterns = SHE().fit(kept).patterns_
    assert torch.allclose(patterns[2], kept.features.double().mean(dim=0), rtol=1e-12)


@pytest.mark.parametrize("center", ["mean", "origin"])
def test_fdbd_equals_its_definition(center, known, test_rows):
    columns = (known.features, known.head.weight, test_rows.features, test_rows.logits)
    expected = oracle.fdbd(*float64(*columns), center)
    np.testing.assert_allclose(FDBD(center).fit(known).score(test_rows), expected, rtol=1e-12)


def test_fdbd_equals_pytorch_ood(known, test_rows, linear):
    peer = peers.fDBD(torch.nn.Identity(), linear).fit_features(known.features)
    expected = peer.predict_features(test_rows.features)
    np.testing.assert_allclose(FDBD().fit(known).score(test_rows), expected, rtol=1e-5)


def test_fdbd_leaves_out_classes_that_no_boundary_parts():
    head = Head(torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]]), torch.tensor([0.5, 0.0, 0.0]))
    features = torch.tensor([[3.0, 1.0]])
    known = ClassifierOutputs(("a",), head(features * 0), features * 0, head=head)
    scores = FDBD().fit(known).score(ClassifierOutputs(("b",), head(features), features, head=head))
    assert scores.item() == pytest.approx(-(2.5 / 2**0.5) / 2 / 10**0.5)


@pytest.mark.parametrize("alpha", [1e-4, 0.1])
def test_nci_equals_its_definition(alpha, known, test_rows):
    columns = (known.features, known.head.weight, test_rows.features, test_rows.logits)
    expected = oracle.nci(*float64(*columns), alpha)
    np.testing.assert_allclose(NCI(alpha).fit(known).score(test_rows), expected, rtol=1e-11)


def test_nci_equals_pytorch_ood(known, test_rows, linear):
    peer = peers.NCI(torch.nn.Identity(), linear, alpha=0.01).fit_features(known.features)
    expected = peer.predict_features(test_rows.features)
    np.testing.assert_allclose(
        NCI(0.01).fit(known).score(test_rows), expected, rtol=1e-5, atol=1e-6
    )


@pytest.mark.parametrize(
    ("kind", "changes"),
    [(SHE, {"metric": "cosine"}), (FDBD, {"center": "origin"}), (NCI, {"alpha": 0.1})],
)
def test_a_changed_parameter_changes_the_score_and_refits_nothing(kind, changes, known, test_rows):
    before = kind().fit(known)
    after = before.with_parameters(known, **changes)
    assert not torch.allclose(before.score(test_rows), after.score(test_rows))
    assert torch.equal(after.score(test_rows), kind(**changes).fit(known).score(test_rows))
    assert all(after.state()[name] is value for name, value in before.state().items())


@pytest.mark.parametrize("kind", ALL)
def test_unknown_rows_score_higher(kind, toy, known):
    method = kind().fit(known)
    unknown = method.score(toy.outputs(50, unknown=True, seed=3))
    assert unknown.median() > method.score(toy.outputs(50, seed=2)).quantile(0.9)


@pytest.mark.parametrize("kind", ALL)
def test_degenerate_features_give_finite_scores(kind, known, test_rows):
    at_mean = replace(known, features=torch.zeros_like(known.features))
    zeros = replace(test_rows, features=test_rows.features * 0)
    for method in (kind().fit(known), kind().fit(at_mean), kind().fit(known[known.labels == 2])):
        assert method.score(test_rows).isfinite().all()
        assert method.score(zeros).isfinite().all()


@pytest.mark.parametrize("metric", METRICS)
def test_she_of_zero_rows_is_finite(metric, known, test_rows):
    zeros = replace(test_rows, features=test_rows.features * 0)
    assert SHE(metric).fit(known).score(zeros).isfinite().all()


@pytest.mark.parametrize("kind", ALL)
def test_one_class_gives_finite_scores(kind):
    toy = Toy(n_classes=1, d=4)
    known = toy.outputs(20)
    assert kind().fit(known).score(toy.outputs(5, unknown=True)).isfinite().all()


@pytest.mark.parametrize("kind", ALL)
def test_a_row_scores_the_same_whatever_rows_stand_beside_it(kind, known, test_rows):
    method = kind().fit(known)
    alone = [method.score(test_rows[torch.arange(60) == k]) for k in range(60)]
    assert torch.allclose(method.score(test_rows), torch.cat(alone), rtol=1e-12, atol=1e-13)
    none = method.score(test_rows[torch.zeros(60, dtype=torch.bool)])
    assert none.shape == (0,)
    assert none.dtype == torch.float64
