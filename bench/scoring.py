"""Closed forms of methods against the peers' code on the same tensors, at 1000 classes."""

import math

import numpy as np
import torch

from bench.harness import Row, Run, at_least, compare, measure, peer
from bench.toy_outputs import outputs
from incognita.containers.outputs import ClassifierOutputs
from incognita.kernels.weibull import fit_tails
from incognita.methods import load_method

N_CLASSES, D, TAIL = 1000, 512, 20
GAUSSIANS = (
    ("mds", 1000, 2048),
    ("rmds", 1000, 512),
    ("rmds", 10, 512),
    ("ddu", 1000, 512),
    ("ddu", 10, 512),
)


def rows() -> list[Row]:
    torch.set_num_threads(1)
    known = outputs(20_000, N_CLASSES, D, seed=1)
    test = outputs(1000, N_CLASSES, D, seed=2)
    return [
        *mahalanobis(known, test),
        *gaussians(),
        *gradnorm(test),
        *openmax_fit(),
        *openmax_score(known, test),
        *kl_matching(known, test),
    ]


def mahalanobis(known: ClassifierOutputs, test: ClassifierOutputs) -> list[Row]:
    ours = load_method("mds").fit(known)
    features = test.features
    square, wide = torch.randn(D, D), torch.randn(D, N_CLASSES)
    cases: dict[str, Run | None] = {
        "incognita": lambda: ours.score(test),
        "pytorch-ood": peer("pytorch_ood", lambda: pytorch_ood_mahalanobis(known, test, ours)),
        "limit: its two matmuls": lambda: (features @ square) @ wide,
    }
    bars = {"pytorch-ood": at_least(200), "limit: its two matmuls": at_least(1 / 1.3)}
    part = f"Mahalanobis, {N_CLASSES} classes, d {D}, 1000 rows"
    return compare(part, cases, measure(cases), ours="incognita", bars=bars)


def gaussians() -> list[Row]:
    """Distances under Gaussians beside the float64 product with one whitening matrix."""
    found: list[Row] = []
    for name, n_classes, d in GAUSSIANS:
        known, test = outputs(12_000, n_classes, d, seed=1), outputs(1000, n_classes, d, seed=2)
        ours, square = load_method(name).fit(known), torch.randn(d, d).double()
        features = test.features.double()
        cases: dict[str, Run | None] = {
            "incognita": lambda ours=ours, test=test: ours.score(test),
            "float64 matmul, d x d": lambda features=features, square=square: features @ square,
        }
        part = f"{name}, {n_classes} classes, d {d}, 1000 rows"
        found += compare(part, cases, measure(cases), ours="incognita", bars={})
    return found


def pytorch_ood_mahalanobis(known: ClassifierOutputs, test: ClassifierOutputs, ours: object) -> Run:
    from pytorch_ood.detector import Mahalanobis

    theirs = Mahalanobis(lambda x: x)
    theirs.fit_features(known.features, known.labels)
    few = test.features[:100]
    ranks = [
        torch.argsort(torch.argsort(s))
        for s in (theirs.predict_features(few), ours.score(test)[:100])
    ]
    agree(float((ranks[0] - ranks[1]).abs().max()), 2, "Mahalanobis: largest difference of rank")
    return lambda: theirs.predict_features(test.features)


def gradnorm(test: ClassifierOutputs) -> list[Row]:
    ours = load_method("gradnorm")
    n = 100
    few = test[torch.arange(len(test)) < n]
    layer = torch.nn.Linear(D, N_CLASSES)
    layer.weight.data, layer.bias.data = test.head.weight.clone(), test.head.bias.clone()

    def by_autograd() -> torch.Tensor:
        norms = []
        for row in few.features:
            layer.zero_grad()
            (-torch.log_softmax(layer(row[None]), -1).sum()).backward()
            norms.append(layer.weight.grad.abs().sum())
        return torch.stack(norms)

    gap = (by_autograd().double() + ours.score(few)).abs() / ours.score(few).abs()
    agree(float(gap.max()), 1e-4, "GradNorm: relative difference")
    cases: dict[str, Run | None] = {
        "incognita": lambda: ours.score(few),
        "autograd per row, as OpenOOD": by_autograd,
        "pytorch-ood": peer("pytorch_ood", lambda: pytorch_ood_gradnorm(layer, few)),
    }
    bars = {"autograd per row, as OpenOOD": at_least(18), "pytorch-ood": at_least(18)}
    part = f"GradNorm, {N_CLASSES} classes, d {D}, {n} rows"
    return compare(part, cases, measure(cases), ours="incognita", bars=bars)


def pytorch_ood_gradnorm(layer: torch.nn.Linear, few: ClassifierOutputs) -> Run:
    from pytorch_ood.detector import GradNorm

    theirs = GradNorm(layer, param_filter=lambda name: name == "weight")
    return lambda: theirs.predict(few.features)


def openmax_fit() -> list[Row]:
    rng = np.random.default_rng(0)
    tails = np.sort(5 + 3 * rng.weibull(2.5, (N_CLASSES, TAIL)), axis=1)
    offsets = np.arange(0, tails.size + 1, TAIL)
    cases: dict[str, Run | None] = {
        "incognita": lambda: fit_tails(tails.ravel(), offsets, TAIL, 1.0),
        "libmr": peer("libmr", lambda: libmr_fit(tails)),
    }
    part = f"Weibull tails of {N_CLASSES} classes x {TAIL}"
    return compare(part, cases, measure(cases), ours="incognita", bars={"libmr": at_least(2.5)})


def libmr_fit(tails: np.ndarray) -> Run:
    import libmr

    def run() -> None:
        for tail in tails:
            libmr.MR().fit_high(tail, TAIL)

    return run


def openmax_score(known: ClassifierOutputs, test: ClassifierOutputs) -> list[Row]:
    from scipy.spatial.distance import euclidean

    ours = load_method("openmax").fit(known)
    n = 400
    few = test[torch.arange(len(test)) < n]
    centers = torch.stack(
        [known.logits[known.labels == c].mean(0) for c in range(N_CLASSES)]
    ).numpy()
    logits = few.logits.numpy()

    def loop() -> list[float]:
        """One distance and one distribution function per row and class, in Python, as OpenOOD."""
        scores = []
        for row in logits:
            order = {c: k for k, c in enumerate(row.argsort()[::-1][:3])}
            kept, taken = [], []
            for c in range(N_CLASSES):
                distance = euclidean(centers[c], row)
                weight = 1 - math.exp(-((distance / 30) ** 2))
                share = (3 - order[c]) / 3 if c in order else 0.0
                value = row[c] * (1 - weight * share)
                kept.append(value)
                taken.append(row[c] - value)
            unknown = math.exp(min(sum(taken), 700))
            scores.append(unknown / (np.exp(kept).sum() + unknown))
        return scores

    cases: dict[str, Run | None] = {"incognita": lambda: ours.score(few), "loop, as OpenOOD": loop}
    part = f"OpenMax scores, {N_CLASSES} classes, {n} rows"
    bars = {"loop, as OpenOOD": at_least(300)}
    return compare(part, cases, measure(cases), ours="incognita", bars=bars)


def kl_matching(known: ClassifierOutputs, test: ClassifierOutputs) -> list[Row]:
    ours = load_method("kl-matching").fit(known)
    n = 40
    few = test[torch.arange(len(test)) < n]
    probabilities = few.logits.double().softmax(1).numpy()
    predicted = known.logits.argmax(1)
    everything = known.logits.double().softmax(1)
    templates = np.stack(
        [
            everything[predicted == c].mean(0).numpy()
            if (predicted == c).any()
            else np.eye(N_CLASSES)[c]
            for c in range(N_CLASSES)
        ]
    )

    def callback() -> np.ndarray:
        from scipy.stats import entropy
        from sklearn.metrics import pairwise_distances_argmin_min

        return pairwise_distances_argmin_min(probabilities, templates, metric=entropy)[1]

    agree(float(np.abs(callback() - ours.score(few).numpy()).max()), 1e-6, "KL matching")
    cases: dict[str, Run | None] = {
        "incognita": lambda: ours.score(few),
        "callback per pair, as OpenOOD": callback,
    }
    part = f"KL matching, {N_CLASSES} classes, {n} rows"
    bars = {"callback per pair, as OpenOOD": at_least(1000)}
    return compare(part, cases, measure(cases), ours="incognita", bars=bars)


def agree(gap: float, limit: float, what: str) -> None:
    """Stop where a peer and we compute different things."""
    if not gap <= limit:
        raise SystemExit(f"{what} is {gap}, more than {limit}.")
