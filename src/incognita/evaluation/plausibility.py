"""Checks whether numbers are plausible: each returns notes for the reader of a result."""

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from torch import Tensor

from incognita.benchmarks.benchmark import Benchmark
from incognita.benchmarks.load import fitting_sets
from incognita.containers import BoxDataset, ClassifierOutputs, Dataset
from incognita.containers.classes import plain
from incognita.shapes import Int

FEW_ROWS = 10
_FAR_BELOW = 0.1  # of the accuracy on validation images
_STANDARD_ERRORS = 3.0
# the difference of two passes over the largest logit: rounding of other kernels or threads is less
_TOLERANCE = {"float32": 1e-3, "bfloat16": 2e-2}
# "class 3", "LABEL_3", "3": names that libraries give to unnamed classes
_NUMBERED = re.compile(r"(class |label[_ ]?)?\d+", re.IGNORECASE)


class Accuracy(NamedTuple):
    """The share of images that are classified correctly, and their number."""

    value: float
    n_images: int


def accuracy_of(outputs: ClassifierOutputs) -> Accuracy | None:
    """Compute the accuracy of outputs with labels; None where there are none."""
    if outputs.labels is None or not len(outputs):
        return None
    is_correct = outputs.logits.argmax(dim=1) == outputs.labels
    return Accuracy(float(is_correct.double().mean()), len(outputs))


def check_accuracy(
    predicted: Int[np.ndarray, "n"],
    labels: Int[np.ndarray, "n"] | None,
    n_classes: int,
    validation: Accuracy | None = None,
) -> list[str]:
    """Compare the accuracy on known test images with chance, and with validation images.

    Chance is the best constant answer: the share of the most frequent class.

    >>> check_accuracy(np.array([0, 0, 0, 0]), np.array([0, 1, 2, 0]), 3)[0][:52]
    'accuracy on the known test images is 50.0 %, which a'
    """
    if labels is None or not len(labels) or n_classes < 2:
        return []
    found = Accuracy(float(np.mean(predicted == labels)), len(labels))
    chance = max(1 / n_classes, np.bincount(labels).max() / len(labels))
    shown, notes = f"accuracy on the known test images is {100 * found.value:.1f} %", []
    if found.value <= chance and found.value < 1:
        notes.append(
            f"{shown}, which a constant answer reaches too ({100 * chance:.1f} %): check the "
            f"preprocessing, the weights and the order of the classes"
        )
    if validation is not None and _is_far_below(found, validation):
        notes.append(
            f"{shown}, but {100 * validation.value:.1f} % on validation: check that both sets show "
            f"the same classes in the same way"
        )
    return notes


def _is_far_below(test: Accuracy, validation: Accuracy) -> bool:
    """Whether the difference is large, and larger than chance makes it with so few images."""
    n, m = test.n_images, validation.n_images
    pooled = (n * test.value + m * validation.value) / (n + m)
    error = (pooled * (1 - pooled) * (1 / n + 1 / m)) ** 0.5
    gap = validation.value - test.value
    return gap > _FAR_BELOW and gap > _STANDARD_ERRORS * error


def is_unnamed(class_names: Sequence[str]) -> bool:
    """Whether class names are mere numbers."""
    return all(_NUMBERED.fullmatch(name) for name in class_names)


def check_names(model: str, class_names: Sequence[str], benchmark: Benchmark) -> list[str]:
    """Compare the class names of a model with those of the benchmark, place by place."""
    theirs, ours = ([plain(name) for name in n] for n in (class_names, benchmark.classes))
    if is_unnamed(class_names) or is_unnamed(benchmark.classes):
        return []
    moved = [k for k, name in enumerate(ours) if name in theirs and theirs[k] != name]
    if set(theirs).isdisjoint(ours):
        place, problem = 0, "shares no class name with"
    elif moved:
        place, problem = moved[0], f"has {len(moved)} classes at another place than"
    else:
        return []
    return [
        f"{model} {problem} {benchmark.name}: number {place} is {class_names[place]!r} in the "
        f"model and {benchmark.classes[place]!r} in the benchmark; check the order of its classes"
    ]


def check_class_images(benchmark: Benchmark) -> list[str]:
    """Name the classes of which a labelled known set has no image, or no object."""
    sets = fitting_sets(benchmark) | {"test": benchmark.test}
    notes = []
    for name, dataset in sets.items():
        if dataset is None or name == "unknown validation" or (ids := _class_ids(dataset)) is None:
            continue
        absent = sorted(set(range(len(benchmark.classes))) - set(np.unique(ids).tolist()))
        if absent:
            what = "object" if benchmark.task == "detection" else "image"
            notes.append(
                f"{name} has no {what} of {len(absent):,} of {len(benchmark.classes):,} classes, "
                f"such as {benchmark.classes[absent[0]]!r}"
            )
    return notes


def _class_ids(dataset: Dataset) -> Int[np.ndarray, "n"] | None:
    return dataset.truth().class_ids if isinstance(dataset, BoxDataset) else dataset.labels


def check_rows(n_rows: Mapping[str, int], row: str) -> list[str]:
    """Name the groups of unknown sets whose numbers come from a few rows.

    >>> check_rows({"near": 4, "far": 500}, "image")
    ['near has only 4 images: its numbers say little']
    """
    return [
        f"{group} has only {n} {row}{'' if n == 1 else 'es' if row == 'box' else 's'}: its numbers "
        f"say little"
        for group, n in n_rows.items()
        if n < FEW_ROWS
    ]


def check_repeat(model: str, first: Tensor, second: Tensor, precision: str) -> list[str]:
    """Compare the logits of two passes over the same images."""
    if first.shape != second.shape or not first.numel():
        return []
    difference = float((first - second).abs().max())
    if difference <= _TOLERANCE[precision] * max(float(first.abs().max()), 1e-6):
        return []
    return [
        f"two passes of {model} over the same images differ by up to {difference:.2g} in a logit: "
        f"it is random or in training mode, and its numbers change from run to run"
    ]
