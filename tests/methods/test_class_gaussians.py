"""DDU with classes of few and of many rows against the densities of its definition."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.methods.hard_rows import HardRows, falling, usual
from tests.methods.test_mahalanobis import arrays, outputs_of, wide_outputs
from tests.oracles import feature_methods as oracle

from incognita.methods.mahalanobis import DDU
from incognita.methods.numerics import mahalanobis_distance
from incognita.methods.saving import load_saved_method, save_method


def mixed_classes(seed: int, d: int = 40):
    """Classes of 200, 7, 90 and 3 rows: many and few in turn."""
    rng = torch.Generator().manual_seed(seed)
    labels = torch.repeat_interleave(torch.arange(4), torch.tensor([200, 7, 90, 3]))
    centers = 3 * torch.randn(4, d, generator=torch.Generator().manual_seed(9))
    mixer = torch.randn(d, d, generator=torch.Generator().manual_seed(8)) / d**0.5
    features = centers[labels] + torch.randn(300, d, generator=rng) @ mixer
    return outputs_of(features, labels, 4)


def test_classes_of_few_and_of_many_rows_equal_the_definition():
    known, test = mixed_classes(1), mixed_classes(2)
    method = DDU().fit(known)
    assert method.gaussians_["thin"]["sizes"].tolist() == [7, 3]
    expected = oracle.ddu(*arrays(known, test), jitter=1e-6)
    np.testing.assert_allclose(method.score(test), expected, rtol=1e-8)


@pytest.mark.parametrize("jitter", [1e-9, 1e-6, 0.1])
def test_rows_of_a_small_class_itself_keep_their_digits(jitter):
    known = wide_outputs(300, 1)
    method = DDU(jitter).fit(known)
    assert set(method.gaussians_) == {"thin", "order"}
    some = known[torch.arange(300) < 30]
    expected = oracle.ddu(*arrays(known, some), jitter=jitter)
    np.testing.assert_allclose(method.score(some), expected, rtol=1e-6)


def test_a_class_of_one_row_has_the_pooled_covariance_beside_small_ones():
    known = mixed_classes(1)
    alone = outputs_of(known.features[:298], torch.cat([known.labels[:297], torch.tensor([3])]), 4)
    pooled = DDU().fit(alone)
    assert pooled.gaussians_["thin"]["sizes"].tolist() == [7]
    assert pooled.score(known).isfinite().all()


def test_many_rows_are_multiplied_in_float32_where_that_is_right_to_a_millionth(monkeypatch):
    known, test = wide_outputs(4000, 1, n_classes=2), wide_outputs(60, 2, n_classes=2)
    method = DDU().fit(known)
    assert method.gaussians_["full 0"]["whitening"].dtype == torch.float32
    monkeypatch.setattr(mahalanobis_distance, "_ERROR", 0.0)
    exact = DDU().fit(known)
    assert exact.gaussians_["full 0"]["whitening"].dtype == torch.float64
    np.testing.assert_allclose(method.score(test), exact.score(test), rtol=1e-6)
    expected = oracle.ddu(*arrays(known, test), jitter=1e-6)
    np.testing.assert_allclose(exact.score(test), expected, rtol=1e-9)


@pytest.mark.parametrize("deviations", [usual(), falling(100, 1e-3)])
def test_ill_conditioned_rows_are_right_to_a_millionth(deviations, monkeypatch):
    world = HardRows(deviations, n_classes=2)
    known, rows = world.known(), torch.cat([world.features(100, 2), world.unknown(3)])
    found = DDU().fit(known).score(world.outputs(rows))
    monkeypatch.setattr(mahalanobis_distance, "_ERROR", 0.0)
    expected = DDU().fit(known).score(world.outputs(rows))
    assert ((found - expected).abs() <= 1e-6 * expected.abs()).all()


@pytest.mark.parametrize("n", [300, 4000])
def test_it_is_saved_and_does_not_mix_rows(n, tmp_path):
    known, test = wide_outputs(n, 1, n_classes=2), wide_outputs(37, 2, n_classes=2)
    method = DDU().fit(replace(known, logits=known.logits))
    together = method.score(test)
    save_method(method, tmp_path / "method")
    assert torch.equal(load_saved_method(tmp_path / "method").score(test), together)
    alone = [method.score(test[torch.arange(37) == k]) for k in range(0, 37, 6)]
    torch.testing.assert_close(torch.cat(alone), together[::6], rtol=1e-12, atol=0)
