"""From what people name to the networks of an evaluation."""

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from incognita.benchmarks.benchmark import Benchmark
from incognita.benchmarks.class_names import plain
from incognita.containers.dataset import Dataset
from incognita.errors import InvalidDataError
from incognita.evaluation.select_methods import Offer
from incognita.models.classifier import Classifier
from incognita.models.load import load_classifier
from incognita.models.preprocessing import Preprocessing
from incognita.models.wrap_classifier import wrap_classifier

OneModel = str | Classifier | nn.Module


def networks_of(
    model: object, benchmark: Benchmark, weights: Path | None = None
) -> list[Classifier]:
    """Give the networks of an evaluation, each with as many classes as the benchmark."""
    if model is None and benchmark.default_model is None:
        raise InvalidDataError(
            f"{benchmark.name} brings no model along; name one with --model, such as "
            f"file.py:function or timm:resnet18.a1_in1k."
        )
    named = benchmark.default_model if model is None else model
    several = named if isinstance(named, Sequence) and not isinstance(named, str) else [named]
    if weights is not None and (len(several) > 1 or not isinstance(several[0], str)):
        raise InvalidDataError(
            f"Weights go with the name of one model, but {len(several)} models came or one that is "
            f"loaded already; let each load its own weights."
        )
    networks = [_network(each, benchmark, weights) for each in several]
    for network in networks:
        refuse_other_classes(network.name, network.class_names, benchmark)
    return networks


def refuse_other_classes(model: str, class_names: Sequence[str], benchmark: Benchmark) -> None:
    """Refuse a model that has other classes than the benchmark, or the same in another order."""
    if len(class_names) != len(benchmark.classes):
        raise InvalidDataError(
            f"{model} has {len(class_names)} classes, but {benchmark.name} has "
            f"{len(benchmark.classes)} known ones; give a model trained on them."
        )
    theirs, ours = ([plain(n) for n in names] for names in (class_names, benchmark.classes))
    if theirs != ours and sorted(theirs) == sorted(ours):
        place = next(
            k for k, pair in enumerate(zip(theirs, ours, strict=True)) if len(set(pair)) > 1
        )
        raise InvalidDataError(
            f"{model} has the classes of {benchmark.name} in another order: number {place} "
            f"is {class_names[place]!r} there and {benchmark.classes[place]!r} here; put "
            f"those of the benchmark in the order of the model."
        )


def _network(model: object, benchmark: Benchmark, weights: Path | None) -> Classifier:
    if isinstance(model, str):
        return load_classifier(model, weights=weights, example=_example(benchmark))
    if isinstance(model, nn.Module):
        classes = tuple(benchmark.classes)
        return wrap_classifier(model, class_names=classes, example=_example(benchmark))
    if isinstance(model, Classifier):
        return model
    raise InvalidDataError(
        f"A model is a torch module, an adapter or a name, but a {type(model).__name__} came; "
        f"wrap it with incognita.wrap_classifier."
    )


def offer_of(networks: Sequence[Classifier], benchmark: Benchmark) -> Offer:
    """Say what the networks and the benchmark can give to methods."""
    first = networks[0]
    return Offer(
        has_head=first.head is not None,
        has_features=first.head is not None,  # features are what a head sees
        n_layers=len(first.layers),
        has_numerators=getattr(first, "numerator", None) is not None,
        has_members=len(networks) > 1,
        has_train=benchmark.train is not None,
        has_train_labels=_has_labels(benchmark.train),
        has_validation=benchmark.validation is not None,
        has_validation_labels=_has_labels(benchmark.validation),
        head_reason=getattr(first, "head_reason", None),
    )


def _has_labels(dataset: Dataset | None) -> bool:
    return dataset is not None and dataset.labels is not None


def _example(benchmark: Benchmark) -> Tensor | None:
    """Two pictures of the size the network will get: it may take no other."""
    for index in range(len(benchmark.test.image_ids)):
        try:
            return torch.stack(2 * [Preprocessing()(benchmark.test.load(index))])
        except (OSError, ValueError):
            continue  # a broken image is told of when all are read
    return None
