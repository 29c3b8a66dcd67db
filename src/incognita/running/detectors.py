"""From what people name to the detector of an evaluation, and what it can give to methods."""

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from torch import nn

from incognita.benchmarks.benchmark import Benchmark
from incognita.benchmarks.class_names import find_spelling, plain
from incognita.errors import InvalidDataError
from incognita.evaluation.select_methods import Asked, Offer
from incognita.methods.per_head import for_heads
from incognita.models.class_selection import select_classes
from incognita.models.detector import Detector, gives_features
from incognita.models.load import load_model
from incognita.models.wrap_detector import wrap_detector
from incognita.running.networks import refuse_other_classes

# "class 3", "LABEL_3", "3": what libraries write where nobody named the classes
_NUMBERED = re.compile(r"(class |label[_ ]?)?\d+", re.IGNORECASE)
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
    detector = _named_alike(_detector(named, benchmark, weights), benchmark)
    refuse_other_classes(detector.name, detector.class_names, benchmark)
    return detector


def _detector(named: object, benchmark: Benchmark, weights: Path | None) -> Detector:
    """Make the detector with the class names it comes with."""
    if not isinstance(named, str) and weights is not None:
        raise InvalidDataError("Weights go with the name of a model, but a loaded one came.")
    if not isinstance(named, str | nn.Module | Detector):
        raise InvalidDataError(
            f"A detector is a torch module, an adapter or a name, but a {type(named).__name__} "
            f"came; wrap it with incognita.wrap_detector."
        )
    detector = _made(named, None, benchmark, weights)
    if _names_nothing(detector) and len(detector.class_names) != len(benchmark.classes):
        # its adapter knows whether some output may go without a name
        return _made(named, benchmark.classes, benchmark, weights)
    return detector


def _named_alike(detector: Detector, benchmark: Benchmark) -> Detector:
    """Give the known classes of a detector as the benchmark orders and spells them, no others."""
    ours = benchmark.classes
    if list(detector.class_names) == list(ours):
        return detector
    if _names_nothing(detector) and len(detector.class_names) == len(ours):
        note = f"{detector.name} names no classes: they are taken in the order of the benchmark"
        return select_classes(detector, ours, range(len(ours)), note=note)
    theirs = [plain(name) for name in detector.class_names]
    for name in ours:
        if theirs.count(plain(name)) != 1:
            raise InvalidDataError(_lacks_class(detector, name, benchmark))
    places = [theirs.index(plain(name)) for name in ours]
    n_others = len(theirs) - len(ours)
    note = f"{n_others} classes of {detector.name} are not known here: their boxes are left out"
    return select_classes(detector, ours, places, note=note if n_others else None)


def _names_nothing(detector: Detector) -> bool:
    """Whether the class names are mere numbers, as of a network that came without any."""
    return all(_NUMBERED.fullmatch(name) for name in detector.class_names)


def _lacks_class(detector: Detector, name: str, benchmark: Benchmark) -> str:
    """Say which class of the benchmark a detector does not have, and what it may call it."""
    n = [plain(each) for each in detector.class_names].count(plain(name))
    if n > 1:
        return f"{detector.name} has {n} classes called {name!r}; give it names that differ."
    spelled = find_spelling(name, detector.class_names)
    guess = f" (its {spelled!r}?)" if spelled else ""
    return (
        f"{detector.name} has no class {name!r} of {benchmark.name}{guess}; give it the names of "
        f"all its classes as the benchmark spells them, by wrap_detector(network, class_names=…)."
    )


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
        has_features=gives_features(detector),
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
