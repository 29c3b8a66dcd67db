"""Densities on whitened principal components, and the choice among them, from their definitions."""

import numpy as np
from numpy.linalg import inv, svd
from scipy.spatial.distance import mahalanobis
from sklearn.metrics import roc_auc_score
from sklearn.mixture import GaussianMixture
from sklearn.neighbors import NearestNeighbors

N_FOLDS = 5
JITTER = 1e-6


def whitened(train, *tables, n_components):
    """Coordinates of tables along the leading axes of the first, each with unit variance."""
    mean = train.mean(axis=0)
    _, singular, axes = svd(train - mean, full_matrices=False)
    n = min(n_components, int((singular > 1e-9 * singular[0]).sum()))
    scale = singular[:n] / np.sqrt(len(train))
    return [(table - mean) @ axes[:n].T / scale for table in (train, *tables)]


def nearest_class(train, labels, rows):
    """Squared Mahalanobis distance to the nearest class mean, by scipy."""
    means = {c: train[labels == c].mean(axis=0) for c in np.unique(labels)}
    gaps = np.stack([row - means[c] for row, c in zip(train, labels, strict=True)])
    inverse = inv(gaps.T @ gaps / len(train))
    return np.array([min(mahalanobis(r, m, inverse) ** 2 for m in means.values()) for r in rows])


def mixture(train, labels, rows):
    """Negative log density of one Gaussian per class, by scikit-learn."""
    classes = np.unique(labels)
    means = np.stack([train[labels == c].mean(axis=0) for c in classes])
    gaps = train - means[np.searchsorted(classes, labels)]
    noise = JITTER * np.mean(gaps**2) * np.eye(train.shape[1])
    covariances = np.stack(
        [np.cov(train[labels == c], rowvar=False).reshape(noise.shape) + noise for c in classes]
    )
    machine = GaussianMixture(len(classes))
    machine.weights_ = np.array([np.mean(labels == c) for c in classes])
    machine.means_, machine.covariances_ = means, covariances
    machine.precisions_cholesky_ = np.stack([inv(np.linalg.cholesky(c)).T for c in covariances])
    return -machine.score_samples(rows)


def kth_neighbor(train, rows, k):
    """Distance to the k-th neighbor at unit length, by scikit-learn."""
    unit, others = (t / np.linalg.norm(t, axis=1, keepdims=True) for t in (train, rows))
    distances, _ = NearestNeighbors(n_neighbors=k).fit(unit).kneighbors(others)
    return distances[:, -1]


def score(variant, train, labels, rows, k):
    if variant == "knn":
        return kth_neighbor(train, rows, k)
    return {"mahalanobis": nearest_class, "gmm": mixture}[variant](train, labels, rows)


def folds(labels, validation_labels):
    """Classes in both parts, the most frequent of validation first, dealt out in turn."""
    both = sorted(set(labels) & set(validation_labels))
    both.sort(key=lambda c: -int(np.sum(validation_labels == c)))
    n = min(N_FOLDS, len(both))
    return [both[k::n] for k in range(n)]


def held_out_auroc(variant, n_components, train, labels, rows, row_labels, k):
    """Mean over folds of the AUROC of validation rows whose classes were left out of the fit."""
    parts = folds(labels, row_labels)
    is_judged = np.isin(row_labels, np.concatenate(parts))
    rows, row_labels = rows[is_judged], row_labels[is_judged]
    found = []
    for left_out in parts:
        kept = ~np.isin(labels, left_out)
        own, seen = whitened(train[kept], rows, n_components=n_components)
        values = score(variant, own, labels[kept], seen, k)
        found.append(roc_auc_score(np.isin(row_labels, left_out), values))
    return float(np.mean(found))
