"""Methods that describe known features by Gaussians: MDS, RMDS, SSD, DDU."""

import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import normalize

from incognita.containers.needs import Needs
from incognita.errors import InvalidDataError
from incognita.methods.method import Method, Refit, Rows
from incognita.methods.numerics.class_gaussians import class_distances, fit_classes, join_classes
from incognita.methods.numerics.mahalanobis_distance import (
    RelativeDistances,
    WhitenedClasses,
    exact_whitened_classes,
    relative_distances,
    score_relative,
    smallest_class_distance,
    whitened_classes,
)
from incognita.methods.numerics.rows import by_chunk, chunks
from incognita.methods.numerics.statistics import (
    class_means,
    class_scatters,
    overall_covariance,
    overall_mean,
    pooled_covariance,
    whitening,
    whitening_and_dropped,
)
from incognita.shapes import Float, Int

_TRIAL_ROWS = 1024
_KMEANS_ROWS = 65_536  # 512 MB at 2048 features
_MOST_COVARIANCE_NUMBERS = 2**28  # 2 GiB in float64


@dataclass(eq=False)
class MDS(Method):
    r"""MDS: Mahalanobis distance to the nearest class mean (Lee et al., 2018).

    $$ s(x) = \min_c (f - \mu_c)^T \Sigma^{-1} (f - \mu_c) $$ with f the features, $\mu_c$ the mean
    of the known rows labelled c and $\Sigma$ the average over known rows of
    $(f - \mu_y)(f - \mu_y)^T$. Lee et al., A Simple Unified Framework for Detecting
    Out-of-Distribution Samples and Adversarial Attacks, NeurIPS 2018, equations 1 and 2. It has no
    parameter.

    Departures: one layer and no input step, as OpenOOD (`mds-ensemble` is the paper's whole
    method). A singular $\Sigma$ is inverted as scipy's `pinvh` does, in float64: directions in
    which known features do not vary are ignored. OpenOOD does this in float32, which drops every
    direction below D * 1.2e-7 of the largest variance. A class without known rows is left out.

    Cost: two matrix products, n x D x D and n x D x C. Precision: see
    `mahalanobis_distance.whitened_classes`.

    >>> from incognita import ClassifierOutputs
    >>> features = torch.tensor([[0.0], [2.0], [10.0], [12.0]])
    >>> labels = torch.tensor([0, 0, 1, 1])
    >>> known = ClassifierOutputs(("a", "b", "c", "d"), torch.zeros(4, 2), features, labels)
    >>> test = ClassifierOutputs(("e", "f"), torch.zeros(2, 2), torch.tensor([[4.0], [11.0]]))
    >>> MDS().fit(known).score(test)
    tensor([9., 0.], dtype=torch.float64)
    """

    needs: ClassVar[Needs] = Needs.FEATURES | Needs.KNOWN | Needs.LABELS

    def fit_statistics(self, known: Rows, validation: Rows) -> None:
        means, covariance = _shared_gaussians(known)
        self.classes_ = whitened_classes(known.features, means, whitening(covariance))._asdict()

    def score_rows(self, rows: Rows) -> Float[Tensor, "n"]:
        return smallest_class_distance(rows.features, WhitenedClasses(**self.classes_))


@dataclass(eq=False)
class RMDS(Method):
    r"""RMDS: distance to the nearest class relative to all known features (Ren et al., 2021).

    $$ s(x) = \min_c M_c(x) - M_0(x) $$ with $M_c$ the distance of `MDS` to class c and
    $M_0 = (f - \mu_0)^T \Sigma_0^{-1} (f - \mu_0)$, where $\mu_0$ and $\Sigma_0$ are the mean and
    the covariance of all known features. Ren et al., A Simple Fix to Mahalanobis Distance for
    Improving Near-OOD Detection, 2021. It has no parameter. Departures as for `MDS`. Where the two
    distances differ in few directions, only these are multiplied (see `relative_distances`).

    The variance below is 1 within classes and 26 overall, so 4 scores 9 - 4 / 26.

    >>> from incognita import ClassifierOutputs
    >>> features = torch.tensor([[0.0], [2.0], [10.0], [12.0]])
    >>> labels = torch.tensor([0, 0, 1, 1])
    >>> known = ClassifierOutputs(("a", "b", "c", "d"), torch.zeros(4, 2), features, labels)
    >>> test = ClassifierOutputs(("e",), torch.zeros(1, 2), torch.tensor([[4.0]]))
    >>> RMDS().fit(known).score(test)
    tensor([8.8462], dtype=torch.float64)
    """

    needs: ClassVar[Needs] = Needs.FEATURES | Needs.KNOWN | Needs.LABELS

    def fit_statistics(self, known: Rows, validation: Rows) -> None:
        # float64, because the difference is often a hundredth of the distances
        means, covariance = _shared_gaussians(known)
        within = whitening_and_dropped(covariance)
        mean = overall_mean(known.features)
        covariance = overall_covariance(known.features, mean)
        overall = whitening(covariance)
        length = float(covariance.trace().sqrt())
        found = relative_distances(means, mean, within, overall, length)
        self.difference_, self.classes_, self.background_ = {}, {}, {}
        if found is not None:
            self.difference_ = found._asdict()
        else:
            self.classes_ = exact_whitened_classes(means, within[0])._asdict()
            self.background_ = exact_whitened_classes(mean[None], overall)._asdict()

    def score_rows(self, rows: Rows) -> Float[Tensor, "n"]:
        if self.difference_:
            return score_relative(rows.features, RelativeDistances(**self.difference_))
        nearest = smallest_class_distance(rows.features, WhitenedClasses(**self.classes_))
        background = WhitenedClasses(**self.background_)
        return nearest - smallest_class_distance(rows.features, background)


@dataclass(eq=False)
class SSD(Method):
    r"""SSD: Mahalanobis distance of unit-length features, without labels (Sehwag et al., 2021).

    $$ s(x) = \min_m (u - \mu_m)^T \Sigma_m^{-1} (u - \mu_m), \quad u = f / |f| $$ with $\mu_m$ and
    $\Sigma_m$ the mean and covariance of cluster m of the known directions. Sehwag et al., SSD: A
    Unified Framework for Self-Supervised Outlier Detection, ICLR 2021; on a network trained with
    labels it is their SSD+.

    Args:
        n_clusters: 1, the default of the paper's code. More are found by k-means (scikit-learn) on
            at most 65,536 known rows, evenly spaced.
        seed: Seed of k-means.

    Departures: the paper's code also divides each feature by its standard deviation, which leaves
    the distance as it is, and for a network trained by cross-entropy uses classes as clusters
    when there is to be more than one. A cluster with no more rows than features has no covariance
    of full rank, and would seem near in every missing direction; it takes the
    covariance pooled over clusters. Singular covariances are inverted as in `MDS`. A row of zeros
    keeps its zeros.

    The directions below are (1, 0), (0.6, 0.8) and (0.6, -0.8): their mean is (2.2 / 3, 0), their
    variance along the first axis 0.32 / 9, and nothing is correlated.

    >>> from incognita import ClassifierOutputs
    >>> features = torch.tensor([[5.0, 0.0], [6.0, 8.0], [3.0, -4.0]])
    >>> known = ClassifierOutputs(("a", "b", "c"), torch.zeros(3, 1), features)
    >>> test = ClassifierOutputs(("d", "e"), torch.zeros(2, 1), torch.tensor([[2.0, 0], [-1, 0]]))
    >>> SSD().fit(known).score(test)
    tensor([ 2.0000, 84.5000], dtype=torch.float64)
    """

    n_clusters: int = 1
    seed: int = 0
    needs: ClassVar[Needs] = Needs.FEATURES | Needs.KNOWN
    invalidates: ClassVar[Mapping[str, Refit]] = {
        "n_clusters": Refit.STATISTICS,
        "seed": Refit.STATISTICS,
    }

    def fit_statistics(self, known: Rows, validation: Rows) -> None:
        features = known.features
        clusters = self._clusters(features)
        means, counts = class_means(features, clusters, self.n_clusters, transform=normalize)
        covariances = _cluster_covariances(features, clusters, means, counts)
        some = normalize(_spread_rows(features, _TRIAL_ROWS))
        self.clusters_: dict[str, Tensor] = {}
        for k in counts.nonzero()[:, 0].tolist():
            cluster = whitened_classes(some, means[k : k + 1], whitening(covariances[k]))
            self.clusters_ |= {f"{k}.{name}": t for name, t in cluster._asdict().items()}

    def score_rows(self, rows: Rows) -> Float[Tensor, "n"]:
        names = dict.fromkeys(name.split(".")[0] for name in self.clusters_)
        clusters = [
            WhitenedClasses(*(self.clusters_[f"{k}.{field}"] for field in WhitenedClasses._fields))
            for k in names
        ]

        def smallest(features: Tensor) -> Tensor:
            directions = normalize(features.double())
            distances = [smallest_class_distance(directions, cluster) for cluster in clusters]
            return torch.stack(distances).amin(dim=0)

        return by_chunk(smallest, rows.features)

    def _clusters(self, features: Tensor) -> Int[Tensor, "n"]:
        """Find the cluster of each known row."""
        if not 1 <= self.n_clusters <= len(features):
            raise InvalidDataError(
                f"SSD needs between 1 and {len(features)} clusters, as many as known rows, "
                f"but got {self.n_clusters}."
            )
        if self.n_clusters == 1:
            return torch.zeros(len(features), dtype=torch.int64, device=features.device)
        from sklearn.cluster import KMeans
        from sklearn.exceptions import ConvergenceWarning

        some = normalize(_spread_rows(features, _KMEANS_ROWS)).cpu().numpy()
        with warnings.catch_warnings():  # fewer different rows than clusters: some stay empty
            warnings.simplefilter("ignore", ConvergenceWarning)
            learner = KMeans(self.n_clusters, n_init=10, random_state=self.seed).fit(some)
        centers = torch.from_numpy(learner.cluster_centers_).to(features.device)
        directions = (normalize(rows.float()) for (rows,) in chunks(features))
        return torch.cat([torch.cdist(rows, centers).argmin(dim=1) for rows in directions])


@dataclass(eq=False)
class DDU(Method):
    r"""DDU: negative log-likelihood under one Gaussian per class (Mukhoti et al., 2023).

    $$ s(x) = -\log \sum_c \pi_c \, \mathcal N(f; \mu_c, \Sigma_c) $$ with $\pi_c$ the share,
    $\mu_c$ the mean and $\Sigma_c$ the covariance (divided by count - 1) of the known rows labelled
    c. Mukhoti et al., Deep Deterministic Uncertainty: A New Simple Baseline, CVPR 2023.

    Args:
        jitter: Added to the diagonal of every $\Sigma_c$, as a share of the mean variance within
            classes. 1e-6 is ours: the paper's code adds the first of 0, 2e-308, 1e-308, 1e-307,
            ..., 0.1 for which all Cholesky factors exist, so that rounding and the scale of the
            features decide.

    A class with at most D / 2 rows is multiplied in the span of its rows (see `class_gaussians`).

    Departures: the jitter. The paper's code leaves out $\pi_c$, its text has it. A class with one
    row takes the covariance pooled over classes, one without rows is left out. Where C covariances
    would hold more than 2^28 numbers (2 GiB; ImageNet at D = 2048, where a class has fewer rows
    than features) all classes share the pooled one.

    Two classes below have variance 2; 1e-6 of jitter does not show.

    >>> from incognita import ClassifierOutputs
    >>> features, labels = torch.tensor([[0.0], [2], [10], [12]]), torch.tensor([0, 0, 1, 1])
    >>> known = ClassifierOutputs(("a", "b", "c", "d"), torch.zeros(4, 2), features, labels)
    >>> test = ClassifierOutputs(("e",), torch.zeros(1, 2), torch.tensor([[-1.0]]))
    >>> DDU().fit(known).score(test)  # log 2 + log(4 pi) / 2 + 2^2 / (2 * 2)
    tensor([2.9587], dtype=torch.float64)
    """

    jitter: int | float = 1e-6
    needs: ClassVar[Needs] = Needs.FEATURES | Needs.KNOWN | Needs.LABELS
    invalidates: ClassVar[Mapping[str, Refit]] = {"jitter": Refit.STATISTICS}

    def fit_statistics(self, known: Rows, validation: Rows) -> None:
        features, labels = known.features, known.labels
        means, counts = class_means(features, labels, known.n_classes)
        pooled = pooled_covariance(features, labels, means)
        noise = self.jitter * (float(pooled.diagonal().mean()) or 1.0)
        pooled.diagonal().add_(noise)
        self.means_ = means[counts > 0]
        self.is_shared_ = len(self.means_) * pooled.numel() > _MOST_COVARIANCE_NUMBERS
        if self.is_shared_:
            whitening_of_all, log_volumes = _whitening_and_volume(pooled)
            self.whitenings_ = whitening_of_all[None]
        else:
            fitted = fit_classes(features, labels, self.means_, pooled, noise)
            _check_regular(fitted.count(None), len(fitted))
            gaussians = [gaussian for gaussian in fitted if gaussian is not None]
            self.gaussians_ = join_classes(gaussians, noise)
            log_volumes = means.new_tensor([gaussian.log_volume for gaussian in gaussians])
        log_shares = (counts[counts > 0] / len(features)).double().log()
        self.log_weights_ = log_shares - log_volumes - features.shape[1] / 2 * math.log(2 * math.pi)

    def score_rows(self, rows: Rows) -> Float[Tensor, "n"]:
        log_weights = self.log_weights_.to(rows.features.device)

        def surprise(features: Tensor) -> Tensor:
            return -(log_weights - self._distances(features) / 2).logsumexp(dim=1)

        return by_chunk(surprise, rows.features, rows=1024)

    def _distances(self, features: Tensor) -> Float[Tensor, "n classes"]:
        if not self.is_shared_:
            return class_distances(features, self.gaussians_)
        device = features.device
        means, (root,) = self.means_.to(device), self.whitenings_.to(device)
        whitened, centers = (features.double() - means[0]) @ root, (means - means[0]) @ root
        squares = whitened.square().sum(dim=1, keepdim=True) + centers.square().sum(dim=1)
        distances: Tensor = (squares - 2 * whitened @ centers.T).clamp_min(0)
        return distances


def _shared_gaussians(known: Rows) -> tuple[Tensor, Tensor]:
    """Compute the means of the present classes and the covariance they share."""
    means, counts = class_means(known.features, known.labels, known.n_classes)
    return means[counts > 0], pooled_covariance(known.features, known.labels, means)


def _cluster_covariances(
    features: Tensor, clusters: Tensor, means: Tensor, counts: Tensor
) -> Float[Tensor, "clusters d d"]:
    pooled = pooled_covariance(features, clusters, means, transform=normalize)
    has_own = counts > features.shape[1]
    if len(means) == 1 or not has_own.any():
        return pooled.expand(len(means), -1, -1)
    covariances = class_scatters(features, clusters, means, transform=normalize)
    covariances /= counts.clamp_min(1)[:, None, None]
    covariances[~has_own] = pooled
    return covariances


def _spread_rows(features: Tensor, at_most: int) -> Tensor:
    return features[:: -(-len(features) // at_most)].float()


def _whitening_and_volume(covariance: Tensor) -> tuple[Float[Tensor, "d d"], Float[Tensor, ""]]:
    """Compute W with W W^T = the inverse, and half the logarithm of the determinant."""
    root, failed_at = torch.linalg.cholesky_ex(covariance)
    _check_regular(int(failed_at > 0), 1)
    inverse = torch.linalg.solve_triangular(root, torch.eye(len(root)).to(root), upper=False)
    return inverse.T.contiguous(), root.diagonal().log().sum()


def _check_regular(n_singular: int, n: int) -> None:
    if n_singular:
        raise InvalidDataError(
            f"{n_singular} of {n} class covariances of DDU are singular; choose a larger jitter, "
            f"such as 1e-6."
        )
