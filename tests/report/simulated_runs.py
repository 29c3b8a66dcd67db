"""Runs whose scores are drawn at random: written as `incognita run` writes them, in a moment."""

from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import polars

from incognita.evaluation.classifier_metrics import as_results, measure_methods
from incognita.evaluation.finished_runs import save_run
from incognita.results.evaluation import Evaluation
from incognita.results.method_result import Cost, MethodResult
from incognita.results.result import Result, Split
from incognita.results.score_tables import ScoredSet, image_frame
from incognita.results.store import ResultStore

SETS = {"test": "known", "a": "near", "b": "near", "c": "far"}
Numbers = Mapping[tuple[str, str], tuple[float, float, float]]


def identity_of(method: str, **changes: Any) -> dict[str, Any]:
    """The identity of a result; `changes` override its parts."""
    model = str(changes.get("model", "net"))
    return {
        "benchmark": "simulated",
        "version": 1,
        "data": {f"{group}/{name}": f"{name * 4}" for name, group in SETS.items()},
        "classes": ["cat", "dog"],
        "model": model,
        "weights": sha256(f"{model}{changes.get('training_seed')}".encode()).hexdigest()[:16],
        "limit": None,
        "seed": 0,
        "resamples": 50,
        "method": method,
        "choice": "given",
        "parameters": {},
        "code": "incognita 0.1.0",
        **changes,
    }


def simulate(
    root: Path,
    methods: Mapping[str, float],
    *,
    n_images: int = 120,
    n_resamples: int = 50,
    disclosure: Mapping[str, str] | None = None,
    metadata: Mapping[str, Any] | None = None,
    draw: int = 0,
    **changes: Any,
) -> Path:
    """Write a run of a classifier; the number of a method is how far apart it puts the unknown.

    All methods share most of the noise of each image, as real ones do: their differences are far
    surer than their values.
    """
    rng = np.random.default_rng(draw)
    sets = [
        ScoredSet(
            name,
            group,
            [f"{name}/{k}" for k in range(n_images)],
            np.arange(n_images) % 2,
            (np.arange(n_images) % 2 ^ (np.arange(n_images) % 10 == 0))
            if group == "known"
            else None,
        )
        for name, group in SETS.items()
    ]
    noise = {s.name: rng.normal(size=n_images) for s in sets}
    scores = {
        method: {
            s.name: noise[s.name] + quality * s.is_unknown + 0.1 * rng.normal(size=n_images)
            for s in sets
        }
        for method, quality in methods.items()
    }
    measured, accuracy = measure_methods(sets, scores, n_resamples=n_resamples, seed=0)
    numbers = {m: (*accuracy, *as_results(measured[m], sets)) for m in methods}
    frames = {m: image_frame(sets, scores[m]) for m in methods}
    options = {"resamples": n_resamples} | changes
    return _write(root, "image", numbers, frames, disclosure, metadata, n_resamples, options)


def simulate_boxes(root: Path, methods: Mapping[str, Numbers], **changes: Any) -> Path:
    """Write a run of a detector with given numbers: value and interval by metric and split."""
    numbers = {
        method: tuple(
            Result(
                metric, "paper", split, *bounds, reason=None if bounds[0] == bounds[0] else "none"
            )
            for (metric, split), bounds in given.items()
        )
        for method, given in methods.items()
    }
    box = dict.fromkeys(("x1", "y1"), 0.0) | dict.fromkeys(("x2", "y2"), 9.0)
    box |= {"set": "a", "group": "near", "image_id": "a", "confidence": 0.9, "unknown_score": 0.5}
    frame = polars.DataFrame([box | {"predicted": None, "is_called_unknown": True}])
    frame = frame.cast({"predicted": polars.String})
    return _write(root, "box", numbers, dict.fromkeys(methods, frame), None, None, 50, changes)


def _write(
    root: Path,
    row: Any,
    numbers: Mapping[str, tuple[Result, ...]],
    frames: Mapping[str, polars.DataFrame],
    disclosure: Mapping[str, str] | None,
    metadata: Mapping[str, Any] | None,
    n_resamples: int,
    changes: Mapping[str, Any],
) -> Path:
    store = ResultStore(root / "results")
    provenance = {"incognita": "0.1.0", "finished": "2026-11-16T05:05:56+00:00"}
    stated = {} if disclosure is None else {"disclosure": dict(disclosure)}
    results = {
        method: MethodResult(
            method,
            {},
            numbers[method],
            Cost(1, 0, 0.001, 2.5, 1000),
            identity_of(method, **changes),
            provenance=provenance | stated,
        )
        for method in numbers
    }
    for method, result in results.items():
        store.save(result, frames[method])
    shared = next(iter(results.values())).identity
    evaluation = Evaluation(
        row=row,
        methods=results,
        groups=(Split("near"), Split("far")),
        metadata=dict(shared)
        | {"title": "drawn at random", "passes": {"images": 0, "forward": 0, "backward": 0}}
        | dict(metadata or {}),
    )
    return save_run(store, evaluation, seed=0, n_resamples=n_resamples)
