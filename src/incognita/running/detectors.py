"""From what people name to the detector of an evaluation, and what it can give to methods."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from torch import nn

from incognita.benchmarks.benchmark import Benchmark
from incognita.benchmarks.class_names import plain
from incognita.errors import InvalidDataError
from incognita.methods.per_head import for_heads
from incognita.models.class_selection import select_classes
from incognita.models.detector import Detector
from incognita.models.detector_wrapping import wrap_detector
from incognita.models.loading import load_model
from incognita.running.asked_methods import Asked, Offer
from incognita.running.networks import refuse_other_classes

OneDetector = str | Detector | nn.Module


def detector_of(model: object, benchmark: Benchmark, weights: Path | None = None) -> Detector:
    """Give the detector of an evaluation, with the known classes of the benchmark in its order."""
    named = benchmark.default_model if model is None else model
    if isinstance(named, list | tuple):
        if len(named) != 1:
            raise InvalidDataError(
                f"{benchmark.name} takes one detector, but {len(named)} models came; boxes of "
                f"several detectors cannot be averaged."
            )
        named = named[0]
    if named is None:
        raise InvalidDataError(
            f"{benchmark.name} brings no model along; name one with --model, such as "
            f"file.py:function or torchvision:fasterrcnn_resnet50_fpn."
        )
    detector = _in_order(_detector(named, benchmark, weights), benchmark.classes)
    refuse_other_classes(detector.name, detector.class_names, benchmark)
    _refuse_other_names(detector, benchmark)
    return detector


def _in_order(detector: Detector, classes: Sequence[str]) -> Detector:
    """Give the known classes of a detector as the benchmark orders and spells them, no others."""
    if list(detector.class_names) == list(classes) or not _has_all(detector, classes):
        return detector
    theirs = [plain(name) for name in detector.class_names]
    return select_classes(detector, classes, [theirs.index(plain(name)) for name in classes])


def _refuse_other_names(detector: Detector, benchmark: Benchmark) -> None:
    """Refuse other names before a pass: boxes are compared with objects class by class."""
    pairs = zip(detector.class_names, benchmark.classes, strict=True)
    for place, (theirs, ours) in enumerate(pairs):
        if theirs != ours:
            raise InvalidDataError(
                f"{detector.name} calls class {place} {theirs!r}, but {benchmark.name} calls it "
                f"{ours!r}; give the detector the class names of the benchmark."
            )


def _has_all(detector: Detector, classes: Sequence[str]) -> bool:
    theirs = [plain(name) for name in detector.class_names]
    return all(theirs.count(plain(name)) == 1 for name in classes)


def _detector(named: object, benchmark: Benchmark, weights: Path | None) -> Detector:
    """Make the detector with class names of its own; with ours if those say nothing."""
    if not isinstance(named, str) and weights is not None:
        raise InvalidDataError("Weights go with the name of a model, but a loaded one came.")
    if not isinstance(named, str | nn.Module | Detector):
        raise InvalidDataError(
            f"A detector is a torch module, an adapter or a name, but a {type(named).__name__} "
            f"came; wrap it with incognita.wrap_detector."
        )
    detector = _made(named, None, benchmark, weights)
    if isinstance(named, Detector) or _has_all(detector, benchmark.classes):
        return detector
    return _made(named, benchmark.classes, benchmark, weights)


def _made(
    named: str | nn.Module | Detector,
    classes: Sequence[str] | None,
    benchmark: Benchmark,
    weights: Path | None,
) -> Detector:
    if isinstance(named, str):
        found = load_model(named, weights=weights, class_names=classes)
        if isinstance(found, Detector):
            return found
        raise InvalidDataError(
            f"{named} is a classifier, but {benchmark.name} is a benchmark for detectors; give a "
            f"detector."
        )
    if isinstance(named, nn.Module):
        return wrap_detector(named, class_names=classes)
    return named


def offer_of_detector(detector: Detector, benchmark: Benchmark) -> Offer:
    """Say what a detector and the benchmark can give to methods; a row is a box."""
    layers = tuple(detector.layers)
    return Offer(
        has_head=bool(detector.heads),
        has_features=True,
        head_reason=detector.head_reason,
        n_layers=len(layers),
        has_latent=any(name.startswith("latent/") for name in layers),
        has_shortcuts=any(name.startswith("shortcut/") for name in layers),
        is_of_boxes=True,
        has_train=benchmark.train is not None,
        has_train_labels=benchmark.train is not None,  # the classes the detector gives itself
        has_validation=benchmark.validation is not None,
        has_validation_labels=benchmark.validation is not None,
    )


def apart_for_heads(asked: Asked, detector: Detector) -> Asked:
    """Give methods that look at a head, or at features of one, a copy for each of several."""
    n_heads, is_shared = len(detector.heads), detector.shares_features
    methods = {
        name: for_heads(method, n_heads, shares_features=is_shared)
        for name, method in asked.methods.items()
    }
    return replace(asked, methods=methods)
