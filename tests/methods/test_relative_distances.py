"""RMDS without its two distances gives their difference, also where covariances are singular."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.methods.hard_rows import HardRows, falling, usual
from tests.methods.test_mahalanobis import arrays, wide_outputs
from tests.oracles import feature_methods as oracle

from incognita.methods.mahalanobis import RMDS
from incognita.methods.numerics.mahalanobis_distance import (
    exact_whitened_classes,
    smallest_class_distance,
)
from incognita.methods.numerics.statistics import (
    class_means,
    overall_covariance,
    overall_mean,
    pooled_covariance,
    whitening,
)
from incognita.methods.saving import load_saved_method, save_method


def distances(known, rows):
    """The distances to the nearest class and to all rows as one, by their own whitenings."""
    means, counts = class_means(known.features, known.labels, known.logits.shape[1])
    root = whitening(pooled_covariance(known.features, known.labels, means))
    mean = overall_mean(known.features)
    whole = whitening(overall_covariance(known.features, mean))
    return (
        smallest_class_distance(rows, exact_whitened_classes(means[counts > 0], root)),
        smallest_class_distance(rows, exact_whitened_classes(mean[None], whole)),
    )


def degenerate(known, kind):
    features = known.features.clone()
    if kind == "constant columns":
        features[:, ::5] = 3.0
    elif kind == "columns alike":
        features[:, 100:120] = features[:, :20] * 2
    elif kind == "columns that tell classes apart and do not vary within them":
        features[:, :4] = known.labels[:, None].float() * torch.tensor([1.0, 2.0, -1.0, 0.5])
    elif kind == "columns that hardly vary":
        features[:, :30] *= torch.logspace(-9, -5, 30)
    return replace(known, features=features)


KINDS = [
    "as they are",
    "constant columns",
    "columns alike",
    "columns that tell classes apart and do not vary within them",
    "columns that hardly vary",
]


def test_wide_rows_are_scored_without_the_distances_and_equal_the_definition():
    known, test = wide_outputs(900, 1), wide_outputs(40, 2)
    method = RMDS().fit(known)
    assert len(method.difference_["columns"]) < 30  # ten classes, nine directions
    np.testing.assert_allclose(method.score(test), oracle.rmds(*arrays(known, test)), rtol=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_the_score_is_the_difference_of_the_distances_for_any_row(kind):
    known = degenerate(wide_outputs(900, 1), kind)
    rng = torch.Generator().manual_seed(3)
    rows = torch.cat(
        [
            degenerate(wide_outputs(40, 2), kind).features,
            wide_outputs(40, 4).features,  # leaves the space that known rows fill
            100 * torch.randn(20, 256, generator=rng),
        ]
    )
    method = RMDS().fit(known)
    assert method.difference_
    nearest, overall = distances(known, rows)
    found = method.score(replace(wide_outputs(100, 2), features=rows))
    assert ((found - (nearest - overall)).abs() <= 1e-8 * nearest).all()


@pytest.mark.parametrize("deviations", [usual(), falling(100, 1e-3)])
def test_ill_conditioned_rows_keep_the_digits_of_the_distances(deviations):
    world = HardRows(deviations)
    known, rows = world.known(), torch.cat([world.features(200, 2), world.unknown(3)])
    nearest, overall = distances(known, rows)
    found = RMDS().fit(known).score(world.outputs(rows))
    assert ((found - (nearest - overall)).abs() <= 1e-8 * nearest).all()


@pytest.mark.parametrize("n", [120, 200])
def test_where_the_spaces_differ_in_many_directions_both_distances_are_taken(n):
    """With fewer rows than features each class more is a direction less within classes."""
    known, test = wide_outputs(n, 1, n_classes=60), wide_outputs(40, 2)
    method = RMDS().fit(known)
    assert not method.difference_
    nearest, overall = distances(known, test.features)
    torch.testing.assert_close(
        method.score(replace(test, logits=test.logits[:, :1].expand(-1, 60))), nearest - overall
    )


def test_it_is_saved_and_does_not_mix_rows(tmp_path):
    known, test = wide_outputs(900, 1), wide_outputs(37, 2)
    method = RMDS().fit(known)
    together = method.score(test)
    save_method(method, tmp_path / "method")
    assert torch.equal(load_saved_method(tmp_path / "method").score(test), together)
    alone = [method.score(test[torch.arange(37) == k]) for k in range(0, 37, 6)]
    torch.testing.assert_close(torch.cat(alone), together[::6], rtol=1e-11, atol=1e-11)
