"""Evaluations of classifiers made from random scores, of any size, without a model or images."""

import numpy as np

from incognita.evaluation.classifier_metrics import as_results, measure_methods
from incognita.results.evaluation import Evaluation
from incognita.results.method_result import Cost, GridPoint, MethodResult, SearchRecord
from incognita.results.result import FULL_SPECTRUM, Split
from incognita.results.score_tables import ScoredSet

CLASSES = ("cat", "dog", "horse")
UNKNOWN = {
    "near": {"foxes": ("fox", "wolf"), "birds": ("owl",)},
    "far": {"tools": ("hammer", "saw")},
}
SHIFTS = {"near": 1.0, "far": 2.5, "shifted": 0.5, "known": 0.0}


def toy_sets(n, rng, *, classes=CLASSES, with_shifted=True, names=UNKNOWN):
    sets = []
    for name, group in (("test", "known"), *([("fog", "shifted")] if with_shifted else [])):
        labels = rng.integers(len(classes), size=n)
        is_wrong = rng.random(n) < 0.1
        predicted = np.where(is_wrong, (labels + 1) % len(classes), labels)
        ids = [f"{name}/{k}.png" for k in range(n)]
        own = [classes[k] for k in labels]
        sets.append(ScoredSet(name, group, ids, predicted, labels, own))
    for group, members in names.items():
        for name, own in members.items():
            ids = [f"{name}/{k}.png" for k in range(n)]
            predicted = rng.integers(len(classes), size=n)
            mine = [own[k] for k in rng.integers(len(own), size=n)]
            sets.append(ScoredSet(name, group, ids, predicted, None, mine))
    return tuple(sets)


def toy_scores(sets, quality, rng):
    """Scores whose distance between known and unknown grows with the quality."""
    return {
        s.name: np.round(rng.normal(quality * SHIFTS.get(s.group, 1.5), 1.0, len(s)), 3)
        for s in sets
    }


def toy_evaluation(
    n=60, *, methods=None, seed=0, n_resamples=20, full_spectrum=False, searched=(), **options
):
    """An evaluation of the given methods, by name and quality."""
    methods = methods or {"knn": 1.0, "msp": 0.6, "energy": 0.1}
    rng = np.random.default_rng(seed)
    sets = toy_sets(n, rng, **options)
    scores = {name: toy_scores(sets, quality, rng) for name, quality in methods.items()}
    measured, accuracy = measure_methods(sets, scores, n_resamples=n_resamples, seed=seed)
    classes = options.get("classes", CLASSES)
    metadata = {
        "benchmark": "toy/animals", "version": 1, "model": "ToyNet", "weights": "0123abcd",
        "classes": list(classes), "data": {"test": "1"}, "seed": seed, "limit": None,
        "resamples": n_resamples, "passes": {"images": 1, "forward": 1, "backward": 0},
    }  # fmt: skip
    records = {}
    for k, name in enumerate(methods):
        search = None
        if name in searched:
            curve = (
                GridPoint({"k": 1}, 0.6),
                GridPoint({"k": 2}, 0.8),
                GridPoint({"k": 3}, None, "x"),
            )
            search = SearchRecord("default", curve)
        results = (*accuracy, *as_results(measured[name], sets))
        provenance = {
            "incognita": "0.1.0",
            "command": "incognita run toy",
            "finished": "2026-11-16",
        }
        cost = Cost(1 + k % 2, 0, 0.1, 0.5 + k, 100 * k)
        record = MethodResult(name, {"k": 1}, results, cost, metadata, search, provenance)
        records[record.title] = record
    setting = FULL_SPECTRUM if full_spectrum else None
    groups = dict.fromkeys(s.group for s in sets if s.is_unknown)
    return Evaluation(
        row="image", methods=records, groups=tuple(Split(g, setting=setting) for g in groups),
        families=dict.fromkeys(records, "output-based"), measured=measured, sets=sets,
        scores=scores, metadata=metadata,
    )  # fmt: skip
