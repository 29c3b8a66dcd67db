"""Runs a model over a dataset once and gives everything that was asked for."""

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor

from incognita.containers.dataset import Dataset
from incognita.containers.needs import Probe
from incognita.containers.outputs import ClassifierOutputs
from incognita.extraction.classifier_pass import check_wanted
from incognita.extraction.joining import Joined
from incognita.extraction.recording import Extracted, record
from incognita.extraction.settings import (
    LAYERS,
    OUTPUTS,
    BrokenImage,
    PassCount,
    Settings,
    Wanted,
)
from incognita.extraction.store import OutputStore
from incognita.extraction.workers import Task
from incognita.models.classifier import Classifier

__all__ = ["BrokenImage", "Extracted", "OutputStore", "PassCount", "Settings", "extract"]


def extract(
    classifier: Classifier,
    dataset: Dataset,
    *,
    probes: Sequence[Probe] = (),
    layers: bool = False,
    settings: Settings = Settings(),  # noqa: B008 - it is frozen
    store: OutputStore | None = None,
    on_progress: Callable[[int], None] | None = None,
) -> Extracted[ClassifierOutputs]:
    """Record logits, features and whatever else is asked for, in one pass over the images.

    The dataset is cut into shards of 512 images. With a store each finished shard is kept, and a
    later call runs the network only for what is missing. An image that cannot be read, or for
    which the network gives no finite number, is listed in `broken` and has no row.

    Args:
        classifier: What is run; it is left as it is.
        dataset: The images.
        probes: What to record beside logits and features.
        layers: Whether to record the pooled maps of the classifier's layers.
        settings: How to run it.
        store: Where to find and keep outputs.
        on_progress: Is told the number of images after every batch, and of every shard found.
    """
    unique = {probe.key: probe for probe in probes}
    wanted = Wanted(layers=layers, probes=tuple(unique.values()))
    check_wanted(wanted, layers=classifier.layers, name=classifier.name)
    task = Task(classifier, dataset, wanted, settings)
    return record(task, partial(_outputs, classifier, dataset, wanted), store, on_progress)


def _outputs(
    classifier: Classifier, dataset: Dataset, wanted: Wanted, joined: Joined
) -> ClassifierOutputs:
    if not joined.rows:
        return ClassifierOutputs.empty(len(classifier.class_names), classifier.head)
    rows = list(joined.rows)
    labels = None if dataset.labels is None else torch.as_tensor(dataset.labels[rows]).long()
    probes: dict[str, Tensor] = {
        f"{probe.key}/{name}": column
        for probe in wanted.probes
        for name, column in joined.columns[probe.key].items()
    }
    return ClassifierOutputs(
        tuple(dataset.image_ids[row] for row in rows),
        joined.columns[OUTPUTS]["logits"],
        joined.columns[OUTPUTS].get("features"),
        labels,
        classifier.head,
        joined.columns.get(LAYERS),
        probes or None,
    )
