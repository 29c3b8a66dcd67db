"""Distances in float32 against those in float64, also where float32 alone would lose digits."""

import pytest
import torch
from tests.methods.hard_rows import HardRows, falling, usual

from incognita.methods.contract import Toy
from incognita.methods.feature_maps import MDSEnsemble
from incognita.methods.mahalanobis import MDS, SSD
from incognita.methods.numerics.mahalanobis_distance import (
    WhitenedClasses,
    centered,
    exact_whitened_classes,
    smallest_class_distance,
    whitened_classes,
)
from incognita.methods.numerics.statistics import class_means, pooled_covariance, whitening
from incognita.methods.saving import load_saved_method, save_method

WORLDS = {
    "usual": HardRows(usual()),
    "small": HardRows(usual(1e-6)),
    "far away": HardRows(falling(100, 0.1), offset=1e4),
    "falling": HardRows(falling(100, 0.03)),
    "falling too far": HardRows(falling(1e4, 1e-4)),
    "one class": HardRows(usual(), n_classes=1),
}


def prepared(world: HardRows) -> tuple[WhitenedClasses, WhitenedClasses]:
    known = world.known()
    means, _ = class_means(known.features, known.labels, world.n_classes)
    root = whitening(pooled_covariance(known.features, known.labels, means))
    return whitened_classes(known.features, means, root), exact_whitened_classes(means, root)


def largest_relative_error(world: HardRows, rows: torch.Tensor) -> float:
    cheap, exact = prepared(world)
    expected = smallest_class_distance(rows, exact)
    error = (smallest_class_distance(rows, cheap) - expected).abs() / expected
    return float(error.max())


@pytest.mark.parametrize("name", WORLDS)
def test_distances_of_new_and_of_unknown_rows_are_right_to_a_millionth(name):
    world = WORLDS[name]
    assert largest_relative_error(world, world.features(300, 2)) < 1e-6
    assert largest_relative_error(world, world.unknown(3)) < 1e-6


def test_float32_alone_would_not_be_right():
    world = WORLDS["usual"]
    _, exact = prepared(world)
    rows = world.features(300, 2)
    rounded = WhitenedClasses(*(tensor.float() for tensor in exact))
    expected = smallest_class_distance(rows, exact)
    error = (smallest_class_distance(rows, rounded) - expected).abs() / expected
    assert error.max() > 5e-6


@pytest.mark.parametrize("name", WORLDS)
def test_ill_conditioned_rows_are_whitened_in_float64(name):
    cheap, exact = prepared(WORLDS[name])
    assert cheap.whitening.dtype == torch.float64
    assert torch.equal(cheap.whitening, exact.whitening)
    assert torch.equal(cheap.means, exact.means)


def test_classes_are_searched_in_float64_where_float32_confuses_them():
    """Two classes near each other and far from the others, one of them with most of the rows."""
    rng = torch.Generator().manual_seed(0)
    centers = torch.zeros(3, 300)
    centers[0, 0], centers[1:, 0], centers[2, 1] = -4e6, 4e6, 1.0
    labels = torch.arange(1500) % 3
    rows = centers[labels] + torch.randn(1500, 300, generator=rng)
    means, _ = class_means(rows, labels, 3)
    root = whitening(pooled_covariance(rows, labels, means))
    classes = whitened_classes(rows, means, root)
    assert all(tensor.dtype == torch.float64 for tensor in classes)


def test_rows_in_float64_are_multiplied_in_float64():
    known = WORLDS["usual"].known()
    means, _ = class_means(known.features, known.labels, 5)
    root = whitening(pooled_covariance(known.features, known.labels, means))
    classes = whitened_classes(known.features.double(), means, root)
    assert all(tensor.dtype == torch.float64 for tensor in classes)


@pytest.mark.parametrize("kind", [MDS, SSD])
def test_a_method_is_saved_and_does_not_mix_rows(kind, tmp_path):
    world = WORLDS["usual"]
    method = kind().fit(world.known())
    outputs = world.outputs(world.features(37, 2))
    together = method.score(outputs)
    save_method(method, tmp_path / "method")
    assert torch.equal(load_saved_method(tmp_path / "method").score(outputs), together)
    alone = [method.score(outputs[torch.arange(37) == k]) for k in range(0, 37, 6)]
    torch.testing.assert_close(torch.cat(alone), together[::6], rtol=1e-12, atol=0)


def test_the_step_of_mds_ensemble_keeps_all_digits_of_the_precision():
    toy = Toy(d=16)
    known = toy.outputs(200)
    method = MDSEnsemble(layers=("stage2",)).fit(known)
    table = known.layers["stage2"].double()
    gaps = (
        table - torch.stack([table[known.labels == c].mean(dim=0) for c in range(4)])[known.labels]
    )
    expected = torch.linalg.pinv(gaps.T @ gaps / len(gaps), hermitian=True)
    torch.testing.assert_close(method.precision_["stage2"], expected, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("n", [0, 1, 16, 21])
def test_centered_rows_are_followed_by_zeros_up_to_a_multiple_of_16(n):
    rng = torch.Generator().manual_seed(0)
    rows, shift = torch.randn(n, 5, generator=rng), torch.randn(5, generator=rng).double()
    found = centered(rows, shift)
    assert found.dtype == torch.float64
    assert len(found) % 16 == 0
    assert torch.equal(found[:n], rows.double() - shift)
    assert not found[n:].any()
