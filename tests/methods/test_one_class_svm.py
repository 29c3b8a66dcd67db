"""OODL against scikit-learn's machines, which it hands over to tensors."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.decomposition import PCA
from sklearn.exceptions import ConvergenceWarning
from sklearn.kernel_approximation import Nystroem, RBFSampler
from sklearn.linear_model import SGDOneClassSVM
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import OneClassSVM

from incognita.containers.needs import Needs
from incognita.containers.outputs import ClassifierOutputs
from incognita.errors import InvalidDataError
from incognita.methods.contract import Toy
from incognita.methods.one_class_svm import KERNELS, OODL


def plain(outputs: ClassifierOutputs) -> np.ndarray:
    assert outputs.features is not None
    return outputs.features.double().numpy()


@pytest.fixture(scope="module")
def known() -> ClassifierOutputs:
    return Toy().outputs(200)


@pytest.fixture(scope="module")
def mixed() -> ClassifierOutputs:
    parts = (Toy().outputs(40, seed=2), Toy().outputs(40, unknown=True, seed=3))
    return ClassifierOutputs.concatenate([replace(part, labels=None) for part in parts])


@pytest.mark.parametrize("nu", [0.001, 0.1])
@pytest.mark.parametrize("gamma", [1.0, 4.0])
def test_the_exact_kernel_equals_sklearn(
    known: ClassifierOutputs, mixed: ClassifierOutputs, nu: float, gamma: float
) -> None:
    reduce = make_pipeline(StandardScaler(), PCA(6))
    rows = reduce.fit_transform(plain(known))
    machine = OneClassSVM(nu=nu, gamma=gamma / (6 * rows.var())).fit(rows)
    expected = -machine.decision_function(reduce.transform(plain(mixed)))
    score = OODL(nu=nu, gamma=gamma, components=6).fit(known).score(mixed)
    # the axes of the two PCAs may point the other way, so libsvm may stop 1e-3 apart at most
    np.testing.assert_allclose(score, expected, rtol=0, atol=1e-3 * np.abs(expected).max())


def reduced(method: OODL, outputs: ClassifierOutputs) -> np.ndarray:
    features = torch.as_tensor(plain(outputs))
    return ((features - method.mean_) @ method.projection_).numpy()


def sklearn_machine(method: OODL, rows: np.ndarray) -> Any:
    gamma = method.gamma / (rows.shape[1] * rows.var())
    if method.kernel == "rbf-exact":
        return OneClassSVM(nu=method.nu, gamma=gamma)
    sampler = RBFSampler if method.kernel == "rbf" else Nystroem
    size = 512 if method.kernel == "rbf" else min(512, len(rows))
    descent = SGDOneClassSVM(
        nu=method.nu,
        learning_rate="adaptive",
        eta0=0.1,
        tol=1e-5,
        max_iter=300,
        random_state=method.seed,
    )
    return make_pipeline(sampler(gamma=gamma, n_components=size, random_state=method.seed), descent)


@pytest.mark.filterwarnings(f"ignore::{ConvergenceWarning.__module__}.ConvergenceWarning")
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("nu", [0.001, 0.1])
def test_tensors_score_as_the_machine_they_came_from(
    known: ClassifierOutputs, mixed: ClassifierOutputs, kernel: Any, nu: float
) -> None:
    method = OODL(kernel=kernel, nu=nu, seed=4).fit(known)
    machine = sklearn_machine(method, reduced(method, known)).fit(reduced(method, known))
    expected = -machine.decision_function(reduced(method, mixed))
    np.testing.assert_allclose(method.score(mixed), expected, rtol=0, atol=1e-8)


def test_compression_keeps_the_variance_that_sklearn_keeps(known: ClassifierOutputs) -> None:
    method = OODL(components=5).fit(known)
    peer = PCA(5).fit(StandardScaler().fit_transform(plain(known)))
    variances = np.sort(reduced(method, known).var(axis=0, ddof=1))[::-1]
    np.testing.assert_allclose(variances, peer.explained_variance_, rtol=1e-10)


@pytest.mark.parametrize("kernel", KERNELS)
def test_unknown_rows_lie_outside(known: ClassifierOutputs, kernel: Any) -> None:
    method = OODL(kernel=kernel).fit(known)
    inside = method.score(Toy().outputs(50, seed=2))
    outside = method.score(Toy().outputs(50, unknown=True, seed=3))
    assert (inside[:, None] < outside).double().mean() > 0.8


def test_about_nu_of_the_known_rows_are_left_outside(known: ClassifierOutputs) -> None:
    share = (OODL(nu=0.1).fit(known).score(known) > 1e-3).double().mean()
    assert 0 < share <= 0.1


def test_a_layer_is_used_instead_of_the_features(
    known: ClassifierOutputs, mixed: ClassifierOutputs
) -> None:
    assert known.layers is not None
    assert mixed.layers is not None
    method = OODL(layer="stage1").fit(replace(known, features=None, head=None))
    moved = OODL().fit(replace(known, features=known.layers["stage1"], head=None))
    other = replace(mixed, features=mixed.layers["stage1"], head=None)
    assert torch.equal(method.score(mixed), moved.score(other))
    assert method.all_needs == Needs.LAYERS | Needs.KNOWN
    assert OODL().all_needs == Needs.FEATURES | Needs.KNOWN


def test_a_search_fits_the_machine_again_but_not_the_compression(
    known: ClassifierOutputs, mixed: ClassifierOutputs
) -> None:
    method = OODL().fit(known)
    for changes in ({"nu": 0.1}, {"kernel": "nystroem"}, {"kernel": "rbf"}, {"gamma": 1.0}):
        other = method.with_parameters(known, **changes)
        assert other.state()["projection_"] is method.projection_
        assert torch.equal(other.score(mixed), OODL(**changes).fit(known).score(mixed))  # type: ignore[arg-type]
        assert not torch.allclose(other.score(mixed), method.score(mixed))
    assert not torch.allclose(OODL(components=3).fit(known).score(mixed), method.score(mixed))


def test_fewer_rows_than_there_are_can_be_drawn(
    known: ClassifierOutputs, mixed: ClassifierOutputs
) -> None:
    few = OODL(rows=50).fit(known)
    assert few.landmarks_ is not None
    assert len(few.landmarks_) <= 50
    assert torch.equal(few.score(mixed), OODL(rows=50).fit(known).score(mixed))
    assert not torch.allclose(few.score(mixed), OODL(rows=50, seed=1).fit(known).score(mixed))


@pytest.mark.parametrize("kernel", KERNELS)
def test_constant_features_and_single_rows_stay_finite(kernel: Any) -> None:
    outputs = Toy().outputs(8)
    constant = replace(outputs, features=torch.ones(8, 16))
    for known in (constant, Toy().outputs(1), Toy().outputs(2)):
        score = OODL(kernel=kernel).fit(known).score(outputs)
        assert score.isfinite().all()
        assert score.dtype == torch.float64


def test_rows_do_not_depend_on_each_other(
    known: ClassifierOutputs, mixed: ClassifierOutputs
) -> None:
    method = OODL().fit(known)
    keep = torch.arange(80) % 3 == 0
    alone, together = method.score(mixed[keep]), method.score(mixed)[keep]
    torch.testing.assert_close(alone, together, rtol=0, atol=1e-12)
    assert method.score(mixed[keep & ~keep]).shape == (0,)


def test_what_is_missing_or_nonsense_is_said(known: ClassifierOutputs) -> None:
    with pytest.raises(InvalidDataError, match=r"layer 'tail', but the outputs hold \['stage1'"):
        OODL(layer="tail").fit(known)
    with pytest.raises(InvalidDataError, match="needs features"):
        OODL().fit(replace(known, features=None))
    with pytest.raises(InvalidDataError, match=r"nu between 0 and 1, but got 1\.0"):
        OODL(nu=1.0)
    with pytest.raises(InvalidDataError, match="between 1 and 16 components"):
        OODL(components=17).fit(known)
    with pytest.raises(InvalidDataError, match="not fitted yet"):
        OODL().score(known)


@pytest.mark.usefixtures("outside_tests")
def test_a_kernel_that_does_not_exist_is_refused() -> None:
    with pytest.raises(InvalidDataError, match="kernels rbf-exact, rbf, nystroem, but got 'poly'"):
        OODL(kernel="poly")  # type: ignore[arg-type]
