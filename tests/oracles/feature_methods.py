"""Gaussian, subspace and distance methods as their papers write them: NumPy, float64, row by row.

Every function gives one number per row of `test`, higher = more unknown.
"""

import numpy as np
from numpy.linalg import norm, pinv, slogdet


def _gaussian(rows, divide_by):
    mean = sum(rows) / len(rows)
    return mean, sum(np.outer(row - mean, row - mean) for row in rows) / divide_by


def _mahalanobis(row, mean, inverse):
    return (row - mean) @ inverse @ (row - mean)


def mds(features, labels, test):
    means, scatter = {}, 0.0
    for c in sorted(set(labels)):
        means[c], own = _gaussian(features[labels == c], 1)
        scatter = scatter + own
    inverse = pinv(scatter / len(features), hermitian=True)
    return np.array([min(_mahalanobis(row, m, inverse) for m in means.values()) for row in test])


def rmds(features, labels, test):
    mean, covariance = _gaussian(features, len(features))
    inverse = pinv(covariance, hermitian=True)
    background = np.array([_mahalanobis(row, mean, inverse) for row in test])
    return mds(features, labels, test) - background


def ssd(features, clusters, test):
    directions = np.array([row / norm(row) for row in features])
    gaussians = []
    for k in sorted(set(clusters)):
        own = directions[clusters == k]
        mean, covariance = _gaussian(own, len(own))
        gaussians.append((mean, pinv(covariance, hermitian=True)))
    return np.array(
        [min(_mahalanobis(row / norm(row), *gaussian) for gaussian in gaussians) for row in test]
    )


def ddu(features, labels, test, jitter):
    """-log of the mixture density; `jitter` is a share of the mean variance within classes."""
    classes = sorted(set(labels))
    d = features.shape[1]
    pooled = sum(_gaussian(features[labels == c], 1)[1] for c in classes) / len(features)
    noise = jitter * np.trace(pooled) / d * np.eye(d)
    log_terms = np.empty((len(test), len(classes)))
    for k, c in enumerate(classes):
        own = features[labels == c]
        mean, covariance = _gaussian(own, len(own) - 1)
        covariance = covariance + noise
        log_norm = 0.5 * (slogdet(covariance)[1] + d * np.log(2 * np.pi))
        for i, row in enumerate(test):
            distance = (row - mean) @ np.linalg.solve(covariance, row - mean)
            log_terms[i, k] = np.log(len(own) / len(features)) - log_norm - 0.5 * distance
    return -np.logaddexp.reduce(log_terms, axis=1)


def residual(features, weight, bias, test, dimension):
    origin = -pinv(weight) @ bias
    moment = sum(np.outer(row - origin, row - origin) for row in features) / len(features)
    # principal directions by the SVD, so that nothing of an eigensolver is shared
    principal = np.linalg.svd(moment)[0][:, :dimension]
    lengths = []
    for row in test:
        offset = row - origin
        lengths.append(norm(offset - principal @ (principal.T @ offset)))
    return np.array(lengths)


def vim_probability(features, logits, weight, bias, test, test_logits, dimension):
    """The softmax share of the virtual logit, as in the paper."""
    known = residual(features, weight, bias, features, dimension)
    alpha = np.mean([max(row) for row in logits]) / np.mean(known)
    virtual = alpha * residual(features, weight, bias, test, dimension)
    shares = []
    for logit, row in zip(virtual, test_logits, strict=True):
        everything = np.append(row, logit)
        powers = np.exp(everything - everything.max())
        shares.append(powers[-1] / powers.sum())
    return np.array(shares)


def she(features, logits, labels, test, test_logits, metric):
    patterns = {}
    for c in sorted(set(labels)):
        own = [
            f for f, row, y in zip(features, logits, labels, strict=True) if y == c == row.argmax()
        ]
        patterns[c] = sum(own) / len(own)
    scores = []
    for row, logit in zip(test, test_logits, strict=True):
        pattern = patterns[logit.argmax()]
        scores.append(
            {
                "inner-product": -(row @ pattern),
                "euclidean": norm(row - pattern),
                "cosine": -(row @ pattern) / norm(row) / norm(pattern),
            }[metric]
        )
    return np.array(scores)


def fdbd(features, weight, test, test_logits, center):
    start = features.mean(axis=0) if center == "mean" else np.zeros(features.shape[1])
    scores = []
    for row, logit in zip(test, test_logits, strict=True):
        y = logit.argmax()
        others = [c for c in range(len(logit)) if c != y]
        distances = [(logit[y] - logit[c]) / norm(weight[y] - weight[c]) for c in others]
        scores.append(-np.mean(distances) / norm(row - start))
    return np.array(scores)


def nci(features, weight, test, test_logits, alpha):
    mean = features.mean(axis=0)
    scores = []
    for row, logit in zip(test, test_logits, strict=True):
        direction = (row - mean) / norm(row - mean)
        scores.append(-(weight[logit.argmax()] @ direction) - alpha * np.abs(row).sum())
    return np.array(scores)
