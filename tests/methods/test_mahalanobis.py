from dataclasses import replace

import numpy as np
import pytest
import torch
from pytorch_ood.detector import RMD, Mahalanobis
from scipy.stats import multivariate_normal
from sklearn.covariance import EmpiricalCovariance
from sklearn.mixture import GaussianMixture
from tests.oracles import feature_methods as oracle

from incognita.containers.outputs import ClassifierOutputs
from incognita.errors import InvalidDataError
from incognita.methods import mahalanobis as gaussians
from incognita.methods.contract import Toy
from incognita.methods.mahalanobis import DDU, MDS, RMDS, SSD
from incognita.methods.numerics import statistics

ALL = (MDS, RMDS, SSD, DDU)
WIDE = 256  # products are taken in float32 from here on


@pytest.fixture(scope="module")
def toy():
    return Toy(negative=True)


@pytest.fixture(scope="module")
def known(toy):
    return toy.outputs(200)


@pytest.fixture(scope="module")
def test_rows(toy):
    return ClassifierOutputs.concatenate(
        [replace(toy.outputs(30, seed=2), labels=None), toy.outputs(30, unknown=True, seed=3)]
    )


def arrays(known, test_rows):
    return (
        known.features.double().numpy(),
        known.labels.numpy(),
        test_rows.features.double().numpy(),
    )


def outputs_of(features, labels=None, n_classes=2):
    features = torch.as_tensor(features, dtype=torch.float32)
    labels = None if labels is None else torch.as_tensor(labels)
    return ClassifierOutputs(
        tuple(range(len(features))), torch.zeros(len(features), n_classes), features, labels
    )


def wide_outputs(n, seed, *, spread=1.0, n_classes=10):
    rng = torch.Generator().manual_seed(7)
    centers = spread * torch.randn(n_classes, WIDE, generator=rng)
    mixer = torch.eye(WIDE) + 0.5 * torch.randn(WIDE, WIDE, generator=rng) / WIDE**0.5
    rng = torch.Generator().manual_seed(seed)
    labels = torch.arange(n) % n_classes
    features = centers[labels] + torch.randn(n, WIDE, generator=rng) @ mixer
    return outputs_of(features, labels, n_classes)


def test_mds_equals_its_definition(known, test_rows):
    expected = oracle.mds(*arrays(known, test_rows))
    np.testing.assert_allclose(MDS().fit(known).score(test_rows), expected, rtol=1e-9)


def test_mds_equals_pytorch_ood_up_to_the_factor_it_leaves_out(known, test_rows):
    peer = Mahalanobis(None).fit_features(known.features, known.labels)
    scores = peer.predict_features(test_rows.features) * 2 * len(known)
    np.testing.assert_allclose(MDS().fit(known).score(test_rows), scores, rtol=1e-3)


def test_mds_of_one_class_equals_sklearn(known, test_rows):
    one = outputs_of(known.features, torch.zeros(len(known), dtype=torch.int64), 1)
    peer = EmpiricalCovariance().fit(known.features.double().numpy())
    expected = peer.mahalanobis(test_rows.features.double().numpy())
    np.testing.assert_allclose(MDS().fit(one).score(test_rows), expected, rtol=1e-9)


def test_rmds_equals_its_definition(known, test_rows):
    expected = oracle.rmds(*arrays(known, test_rows))
    np.testing.assert_allclose(RMDS().fit(known).score(test_rows), expected, rtol=1e-9, atol=1e-9)


def test_rmds_equals_pytorch_ood_up_to_the_factor_it_leaves_out(known, test_rows):
    peer = RMD(None).fit_features(known.features, known.labels)
    expected = peer.predict_features(test_rows.features) * len(known)
    np.testing.assert_allclose(RMDS().fit(known).score(test_rows), expected, rtol=1e-3, atol=0.02)


def test_ssd_equals_its_definition(known, test_rows):
    features, _, test = arrays(known, test_rows)
    expected = oracle.ssd(features, np.zeros(len(features)), test)
    np.testing.assert_allclose(SSD().fit(known).score(test_rows), expected, rtol=1e-9)


def test_ssd_with_clusters_takes_the_nearest_and_each_has_its_covariance(known, test_rows):
    # the classes of the toy are far apart: k-means finds them, whatever it calls them
    features, labels, test = arrays(known, test_rows)
    expected = oracle.ssd(features, labels, test)
    np.testing.assert_allclose(SSD(n_clusters=4).fit(known).score(test_rows), expected, rtol=1e-9)


def test_ssd_ignores_the_length_of_features(known, test_rows):
    longer = replace(test_rows, features=test_rows.features * 8)
    method = SSD().fit(known)
    assert torch.equal(method.score(test_rows), method.score(longer))


def test_ssd_gives_a_small_cluster_the_pooled_covariance():
    rng = np.random.default_rng(0)
    many = np.array([10.0, 0, 0]) + rng.normal(size=(60, 3))
    few = np.array([0, 10.0, 0]) + rng.normal(size=(3, 3))
    known = outputs_of(np.concatenate([many, few]))
    method = SSD(n_clusters=2).fit(known)
    sideways = outputs_of([[0.0, 10.0, 12.0]])
    assert method.score(sideways).item() > method.score(known).max().item()


def test_ssd_refuses_more_clusters_than_rows():
    with pytest.raises(
        InvalidDataError, match="between 1 and 2 clusters, as many as known rows, but got 3"
    ):
        SSD(n_clusters=3).fit(outputs_of([[1.0, 0.0], [0.0, 1.0]]))


def test_ssd_can_do_with_fewer_different_rows_than_clusters():
    known = outputs_of([[1.0, 0.0], [2.0, 0.0], [0.0, 1.0]])
    assert SSD(n_clusters=3).fit(known).score(known).isfinite().all()


def test_ddu_equals_its_definition(known, test_rows):
    expected = oracle.ddu(*arrays(known, test_rows), jitter=1e-6)
    np.testing.assert_allclose(DDU().fit(known).score(test_rows), expected, rtol=1e-9)


def test_ddu_equals_the_densities_of_scipy(known, test_rows):
    features, labels, test = arrays(known, test_rows)
    density = sum(
        np.mean(labels == c)
        * multivariate_normal(
            features[labels == c].mean(axis=0), np.cov(features[labels == c].T)
        ).pdf(test)
        for c in range(4)
    )
    scores = DDU(jitter=0.0).fit(known).score(test_rows)
    is_positive = density > 0  # densities underflow far away, scores do not
    np.testing.assert_allclose(scores[is_positive], -np.log(density[is_positive]), rtol=1e-9)
    assert len(set(scores.tolist())) == len(scores)


def test_ddu_of_one_class_equals_sklearn(known, test_rows):
    one = outputs_of(known.features, torch.zeros(len(known), dtype=torch.int64), 1)
    features, _, test = arrays(known, test_rows)
    n = len(features)
    peer = GaussianMixture(1, reg_covar=0.0).fit(features)
    peer.precisions_cholesky_ = peer.precisions_cholesky_ * ((n - 1) / n) ** 0.5
    expected = -peer.score_samples(test)
    np.testing.assert_allclose(DDU(jitter=0.0).fit(one).score(test_rows), expected, rtol=1e-9)


def test_ddu_shares_one_covariance_where_memory_forbids_more(known, test_rows, monkeypatch):
    monkeypatch.setattr(gaussians, "_MOST_COVARIANCE_NUMBERS", 100)
    method = DDU(jitter=0.0).fit(known)
    assert method.whitenings_.shape == (1, 16, 16)
    features, labels, test = arrays(known, test_rows)
    means = [features[labels == c].mean(axis=0) for c in range(4)]
    pooled = np.mean([np.cov(features[labels == c].T, bias=True) for c in range(4)], axis=0)
    log_density = [multivariate_normal(mean, pooled).logpdf(test) for mean in means]
    expected = -np.logaddexp.reduce(np.array(log_density) + np.log(0.25), axis=0)
    np.testing.assert_allclose(method.score(test_rows), expected, rtol=1e-9)


def test_ddu_without_jitter_refuses_a_singular_covariance():
    known = outputs_of([[1.0, 1.0], [2.0, 2.0], [3.0, 3.0]], [0, 0, 0])
    with pytest.raises(InvalidDataError, match=r"singular; choose a larger jitter"):
        DDU(jitter=0.0).fit(known)
    assert DDU().fit(known).score(known).isfinite().all()


@pytest.mark.parametrize(("kind", "changes"), [(SSD, {"n_clusters": 4}), (DDU, {"jitter": 0.1})])
def test_a_changed_parameter_changes_the_score_as_a_new_fit_does(kind, changes, known, test_rows):
    before = kind().fit(known)
    after = before.with_parameters(known, **changes)
    assert not torch.allclose(before.score(test_rows), after.score(test_rows))
    assert torch.equal(after.score(test_rows), kind(**changes).fit(known).score(test_rows))


@pytest.mark.parametrize("kind", ALL)
def test_unknown_rows_score_higher(kind, known, toy):
    method = kind().fit(known)
    unknown = method.score(toy.outputs(50, unknown=True, seed=3))
    assert unknown.median() > method.score(toy.outputs(50, seed=2)).quantile(0.9)


@pytest.mark.parametrize("kind", ALL)
def test_degenerate_features_give_finite_scores(kind, known, test_rows):
    scores = []
    for features in (
        known.features * (torch.arange(16) > 3),  # constant columns
        known.features[:, :1].expand(-1, 16).contiguous(),  # all columns alike
        torch.full_like(known.features, 0.1),  # nothing varies
        torch.zeros_like(known.features),
    ):
        scores.append(kind().fit(replace(known, features=features, head=None)).score(test_rows))
    few = known[torch.arange(len(known)) < 6]
    scores.append(kind().fit(few).score(test_rows))
    scores.append(kind().fit(known[known.labels == 2]).score(test_rows))
    scores.append(kind().fit(known).score(replace(test_rows, features=test_rows.features * 0)))
    assert all(each.isfinite().all() and each.dtype == torch.float64 for each in scores)


@pytest.mark.parametrize("kind", [MDS, RMDS, DDU])
def test_a_class_without_rows_is_left_out(kind, known, test_rows):
    kept = known[known.labels != 3]
    fewer = replace(kept, logits=kept.logits[:, :3], head=None)
    expected = kind().fit(fewer).score(test_rows)
    assert torch.equal(kind().fit(kept).score(test_rows), expected)


@pytest.mark.parametrize("kind", ALL)
def test_no_rows_give_no_scores(kind, known, test_rows):
    none = test_rows[torch.zeros(len(test_rows), dtype=torch.bool)]
    assert kind().fit(known).score(none).shape == (0,)


def test_labels_outside_the_classes_are_refused(known):
    with pytest.raises(InvalidDataError, match="classes 0 to 3, but one is -1"):
        MDS().fit(replace(known, labels=known.labels - 1))
    with pytest.raises(InvalidDataError, match="classes 0 to 3, but one is 4"):
        MDS().fit(replace(known, labels=known.labels + 1))


@pytest.mark.parametrize("kind", [MDS, RMDS, SSD])
@pytest.mark.parametrize("spread", [1.0, 300.0])
def test_float32_products_stay_near_the_float64_definition(kind, spread):
    known, test = wide_outputs(600, 1, spread=spread), wide_outputs(40, 2, spread=spread)
    columns = arrays(known, test)
    expected = {
        MDS: lambda: oracle.mds(*columns),
        RMDS: lambda: oracle.rmds(*columns),
        SSD: lambda: oracle.ssd(columns[0], np.zeros(600), columns[2]),
    }[kind]()
    error = np.abs(kind().fit(known).score(test).numpy() - expected).max()
    assert error < 1e-5 * np.abs(expected).mean()


def test_wide_features_are_scored_in_float32_unless_that_loses_digits():
    known = wide_outputs(600, 1)
    assert MDS().fit(known).classes_["whitening"].dtype == torch.float32
    nearly_alike = known.features.clone()
    nearly_alike[:, 1] = nearly_alike[:, 0] * (1 + 1e-4 * nearly_alike[:, 1])
    difficult = replace(known, features=nearly_alike)
    method = MDS().fit(difficult)
    assert method.classes_["whitening"].dtype == torch.float64
    expected = oracle.mds(*arrays(difficult, difficult[torch.arange(600) < 20]))
    np.testing.assert_allclose(method.score(difficult)[:20], expected, rtol=1e-5)


@pytest.mark.parametrize("kind", ALL)
def test_a_row_scores_the_same_whatever_rows_stand_beside_it(kind):
    known, test = wide_outputs(600, 1), wide_outputs(23, 2)
    method = kind().fit(known)
    together = method.score(test)
    alone = [method.score(test[torch.arange(23) == k]) for k in range(23)]
    assert torch.allclose(together, torch.cat(alone), rtol=1e-12, atol=0)


def test_precision_equals_the_pseudo_inverse_of_numpy(known):
    features = torch.cat([known.features, known.features[:, :2]], dim=1)
    mean = statistics.overall_mean(features)
    covariance = statistics.overall_covariance(features, mean)
    np.testing.assert_allclose(covariance, np.cov(features.double().numpy().T, bias=True))
    expected = np.linalg.pinv(covariance.numpy(), hermitian=True)
    np.testing.assert_allclose(statistics.precision(covariance), expected, rtol=1e-8, atol=1e-9)


def test_statistics_do_not_depend_on_chunks(known, monkeypatch):
    whole = statistics.class_means(known.features, known.labels, 4)
    scatters = statistics.class_scatters(known.features, known.labels, whole.means)
    monkeypatch.setattr(
        statistics, "chunks", lambda *columns: zip(*(c.split(7) for c in columns), strict=True)
    )
    parts = statistics.class_means(known.features, known.labels, 4)
    assert torch.allclose(whole.means, parts.means, rtol=1e-13)
    assert torch.allclose(
        scatters, statistics.class_scatters(known.features, known.labels, whole.means), rtol=1e-12
    )


@pytest.mark.parametrize("kind", ALL)
def test_half_precision_features_are_taken(kind, known, test_rows):
    halves = replace(known, features=known.features.bfloat16())
    method = kind(n_clusters=4) if kind is SSD else kind()
    expected = method.fit(replace(known, features=halves.features.float())).score(test_rows)
    assert torch.allclose(method.fit(halves).score(test_rows), expected, rtol=1e-6, atol=1e-6)


def test_labels_of_a_short_integer_type_are_taken(known, test_rows):
    expected = DDU().fit(known).score(test_rows)
    short = replace(known, labels=known.labels.to(torch.int16))
    assert torch.equal(DDU().fit(short).score(test_rows), expected)
