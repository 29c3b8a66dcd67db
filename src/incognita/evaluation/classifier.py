"""What an evaluation of a classifier needs: its networks, its rows (images), its measures."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import nn

from incognita.benchmarks.benchmark import SHIFTED, TEST, Benchmark
from incognita.benchmarks.load import check_classes, list_benchmarks
from incognita.containers import ClassifierOutputs, Dataset, ExtraOutput, Needs
from incognita.errors import InvalidDataError
from incognita.evaluation.classifier_metrics import (
    as_results,
    measure_methods,
)
from incognita.evaluation.evaluator import Measurements, MethodMeasurement, Options, Stored
from incognita.evaluation.fit_and_score import ExtractionLog, FittedMethod, OnStep, ScoredMethods
from incognita.evaluation.plausibility import (
    Accuracy,
    accuracy_of,
    check_accuracy,
    check_class_images,
    check_names,
    check_repeat,
    check_rows,
)
from incognita.evaluation.select_methods import Capabilities
from incognita.extraction.classifier_pass import identity_of_classifier
from incognita.extraction.extract import extract
from incognita.extraction.recorded import RecordedModel
from incognita.extraction.settings import CLASSIFIER_LAYOUT, Settings
from incognita.methods.ensembles import join_members
from incognita.methods.method import Method
from incognita.models.classifier import (
    Classifier,
    WrappedClassifier,
    as_preprocessing,
    wrap_classifier,
)
from incognita.models.libraries import carried_preprocessing
from incognita.models.load import ModelOptions, load_classifier
from incognita.models.preprocessing import Preprocessing
from incognita.results.evaluation import Evaluation
from incognita.results.result import FULL_SPECTRUM, Split
from incognita.results.score_tables import (
    ScoredSet,
    Scores,
    common_rows,
    image_frame,
    sets_and_scores,
)

OneModel = str | Classifier | nn.Module


@dataclass(frozen=True, eq=False)
class PreprocessingChoice:
    """Chooses the preprocessing of a network: what is stated, what it carries, the benchmark's.

    Args:
        benchmark: The benchmark.
        stated: What the user states.
        notes: Says which one was taken, where it was not stated.
    """

    benchmark: Benchmark
    stated: Callable[..., Any] | None = None
    notes: list[str] = field(default_factory=list)

    def __call__(self, network: nn.Module) -> Callable[..., Any]:
        """Return the preprocessing of a network; raise where nobody knows it."""
        if self.stated is not None:
            return self.stated
        name = type(network).__name__
        if (found := carried_preprocessing(network)) is not None:
            place, carried = found
            self.notes.append(
                f"the preprocessing of {name} is that of its {place} ({_in_words(carried)}); a "
                f"fine-tuned network keeps the old one, so state another with --preprocess"
            )
            return carried
        table = self.benchmark.metadata.get("preprocessing")
        if table is None:
            raise InvalidDataError(_unknown_preprocessing(name, self.benchmark))
        chosen = Preprocessing(
            table["resize"], table["crop"], tuple(table["mean"]), tuple(table["std"])
        )
        self.notes.append(
            f"{name} states no preprocessing, so that of {self.benchmark.name} is used ({chosen})"
        )
        return chosen


def _in_words(preprocess: Callable[..., Any]) -> str:
    return (
        str(preprocess) if isinstance(preprocess, Preprocessing) else "a transform of its library"
    )


def _unknown_preprocessing(name: str, benchmark: Benchmark) -> str:
    return (
        f"The preprocessing of {name} is not known: it carries no pretrained_cfg of timm, and "
        f"{benchmark.name} has no [preprocessing] table. State it with --preprocess "
        f'"size=256 crop=224 mean=imagenet std=imagenet" (preprocess=incognita.Preprocessing(…)), '
        f"or with --preprocess none if pixels between 0 and 1 are right."
    )


def load_classifiers(
    model: object,
    benchmark: Benchmark,
    weights: Path | None = None,
    preprocess: str | Callable[..., Any] | None = None,
) -> tuple[list[Classifier], tuple[str, ...]]:
    """Load the networks of an evaluation, with notes on their preprocessing.

    Raise if their classes are not the benchmark's.
    """
    if model is None and benchmark.default_model is None:
        raise InvalidDataError(
            f"{benchmark.name} has no default model. Give one (--model, model=), such as "
            f"file.py:function or timm:resnet18.a1_in1k."
        )
    given = benchmark.default_model if model is None else model
    models = given if isinstance(given, Sequence) and not isinstance(given, str) else [given]
    if weights is not None and (len(models) > 1 or not isinstance(models[0], str)):
        raise InvalidDataError(
            f"`weights` needs exactly one model, given by name; got {len(models)} of type "
            f"{type(models[0]).__name__}. Load the weights into the model instead."
        )
    if not models:
        raise InvalidDataError("Expected at least one model, got an empty list.")
    stated = None if preprocess is None else as_preprocessing(preprocess)
    choice = PreprocessingChoice(benchmark, stated)
    networks = [_preprocessed(_network(one, choice, weights), choice) for one in models]
    for network in networks:
        check_classes(network.name, network.class_names, benchmark)
    return networks, tuple(dict.fromkeys(choice.notes))


def _network(model: object, choice: PreprocessingChoice, weights: Path | None) -> Classifier:
    benchmark = choice.benchmark
    if isinstance(model, str):
        if model in list_benchmarks():
            raise InvalidDataError(
                f"Expected a model, got the benchmark {model}. Write benchmark={model!r}."
            )
        options = ModelOptions(
            weights,
            preprocess=choice.stated,
            example=_example(benchmark),
            choose_preprocess=choice,
            known_classes=tuple(benchmark.classes),
        )
        return load_classifier(model, options)
    if isinstance(model, nn.Module):
        return wrap_classifier(
            model,
            preprocess=choice(model),
            class_names=tuple(benchmark.classes),
            example=_example(benchmark),
        )
    if isinstance(model, Classifier):
        if choice.stated is not None and getattr(model, "states_preprocessing", True):
            raise InvalidDataError(
                f"{model.name} has its own preprocessing. Pass another to wrap_classifier, or the "
                f"bare network to evaluate."
            )
        return model
    what = f"the class {model.__name__}" if isinstance(model, type) else type(model).__name__
    raise InvalidDataError(
        f"Expected a torch module, an adapter or the name of a model, got {what}. Build it, or "
        f"wrap it with incognita.wrap_classifier."
    )


def _preprocessed(network: Classifier, choice: PreprocessingChoice) -> Classifier:
    """Choose the preprocessing of a classifier that was wrapped without one."""
    if isinstance(network, WrappedClassifier) and not network.states_preprocessing:
        return network.with_preprocess(choice(network.module))
    return network


def _example(benchmark: Benchmark) -> np.ndarray | None:
    """Return an image of the size the network will see; it may accept no other."""
    for index in range(len(benchmark.test.image_ids)):
        try:
            return benchmark.test.load(index)
        except (OSError, ValueError):
            continue  # reported with the other failed images when all are read
    return None


@dataclass(eq=False)
class ClassifierExtractor:
    """Runs networks over data sets, each image once for all methods.

    With several networks the outputs are those of the ensemble: logits are the mean logits,
    features and head those of the first network.

    Args:
        networks: The networks.
        log: Runs the extraction.
        validation: The accuracy on validation images, if they were needed.
        notes: Says if a network gives other outputs for the same images.
    """

    networks: Sequence[Classifier]
    log: ExtractionLog
    validation: Accuracy | None = None
    notes: list[str] = field(default_factory=list)

    def outputs(
        self,
        name: str,
        dataset: Dataset,
        *,
        extra_outputs: Sequence[ExtraOutput] = (),
        layers: bool = False,
    ) -> ClassifierOutputs:
        """Return the outputs of a data set, without the images that failed."""
        network, *others = self.networks
        n_before = self.log.count.images
        first = self.log.extract(network, name, dataset, extra_outputs, layers=layers)
        if name == TEST and self.log.count.images > n_before:  # unless it is all stored
            self._repeat(network, dataset, first)
        if name == "validation":
            self.validation = accuracy_of(first)
        if not others:
            return first  # type: ignore[no-any-return]
        members = [first, *(self.log.extract(other, name, dataset) for other in others)]
        return join_members(_common_images(members))

    def _repeat(self, network: Classifier, dataset: Dataset, first: ClassifierOutputs) -> None:
        """Run the first batch again; a network that is not deterministic is noted."""
        settings = replace(self.log.settings, workers=1)
        n_images = min(settings.batch_size or CLASSIFIER_LAYOUT.batch_size, len(dataset.image_ids))
        again = extract(network, dataset.subset(range(n_images)), settings=settings).outputs
        if again.image_ids == first.image_ids[: len(again)]:
            logits = first.logits[: len(again)], again.logits
            self.notes += check_repeat(network.name, *logits, settings.precision)

    def empty(self) -> ClassifierOutputs:
        """Return outputs without images."""
        return ClassifierOutputs.empty(len(self.networks[0].class_names), self.networks[0].head)


def _common_images(members: Sequence[ClassifierOutputs]) -> list[ClassifierOutputs]:
    """Keep the images that every network could use."""
    common = set.intersection(*(set(member.image_ids) for member in members))
    return [
        member[torch.tensor([image in common for image in member.image_ids], dtype=torch.bool)]
        for member in members
    ]


@dataclass(eq=False)
class ClassifierTask:
    """Evaluates methods on the images of a classifier, or of an ensemble of them."""

    networks: Sequence[Classifier]
    benchmark: Benchmark
    log: ExtractionLog
    model_notes: tuple[str, ...] = ()
    _extractor: ClassifierExtractor | None = None

    row: ClassVar[Literal["image", "box"]] = "image"

    def capabilities(self) -> Capabilities:
        """Return what the networks and the benchmark provide to methods."""
        first, benchmark = self.networks[0], self.benchmark
        available = Needs.LOGITS
        if first.head is not None:
            available |= Needs.HEAD
        if getattr(first, "has_features", first.head is not None):
            available |= Needs.FEATURES  # what a head sees
        if len(self.networks) > 1:
            available |= Needs.MEMBERS
        return Capabilities.of_benchmark(
            available,
            benchmark,
            head_reason=getattr(first, "head_reason", None),
            n_layers=len(first.layers),
            has_numerator=getattr(first, "numerator", None) is not None,
            is_recorded=isinstance(first, RecordedModel),
        )

    def identity(self, settings: Settings) -> dict[str, Any]:
        """Return what the numbers depend on: networks, precision, batch size."""
        identities = [identity_of_classifier(network) for network in self.networks]
        return {
            "model": "+".join(network.name for network in self.networks),
            "weights": "+".join(identity["weights_hash"][:16] for identity in identities),
            "networks": identities,  # complete, as in the key of their outputs
            "precision": settings.precision,
            "batch_size": settings.batch_size or CLASSIFIER_LAYOUT.batch_size,
        }

    def extractor(
        self, methods: Mapping[str, Method], on_step: OnStep | None
    ) -> ClassifierExtractor:
        """Return the source of rows."""
        self._extractor = ClassifierExtractor(self.networks, self.log)
        return self._extractor

    def measure(
        self, scored: ScoredMethods, stored: Stored, options: Options, on_step: OnStep | None
    ) -> Measurements:
        """Measure all methods, stored ones included, on the images that every method has."""
        tables: dict[str, tuple[Sequence[ScoredSet], Scores]] = {
            key: sets_and_scores(frame) for key, (_, frame) in stored.items()
        }
        tables |= {key: (scored.sets, fitted.scores) for key, fitted in scored.fitted.items()}
        sets, scores = common_rows(tables)
        if not scores:
            return Measurements()
        measured, accuracy = measure_methods(
            sets, scores, n_resamples=options.n_resamples, seed=options.seed
        )
        return Measurements(
            methods={
                key: MethodMeasurement(
                    results=(*accuracy, *as_results(measured[key], sets)),
                    frame=image_frame(sets, scores[key]),
                    cost=fitted.cost(len(self.networks)),
                )
                for key, fitted in scored.fitted.items()
            },
            groups=_groups(sets, full_spectrum=self.benchmark.full_spectrum),
            measured=measured,
            sets=sets,
            scores=scores,
            notes=tuple(self._doubts(scored.sets)),
        )

    def _doubts(self, sets: Sequence[ScoredSet]) -> list[str]:
        """Return notes on numbers that are not plausible."""
        first, benchmark, extractor = self.networks[0], self.benchmark, self._extractor
        notes = check_names(first.name, first.class_names, benchmark)
        notes += check_class_images(benchmark)
        for scored in sets:
            if scored.name == TEST and extractor is not None:
                validation, n_classes = extractor.validation, len(benchmark.classes)
                notes += check_accuracy(scored.predicted, scored.labels, n_classes, validation)
                notes += extractor.notes
        n_rows: Counter[str] = Counter()
        for scored in sets:
            n_rows.update({scored.group: len(scored)} if scored.is_unknown else {})
        return notes + check_rows(n_rows, self.row)

    def notes(self, fitted: FittedMethod, options: Options) -> list[str]:
        """Return notes on the networks."""
        first, *others = self.networks
        if not others:
            return [*self.model_notes]
        return [
            *self.model_notes,
            f"an ensemble of {len(others) + 1} networks: methods on logits score their mean, all "
            f"others the first one, {first.name}",
        ]

    def used_data(self, method: Method) -> dict[str, list[str]]:
        """Return nothing: the ranking metrics of a classifier take no threshold."""
        return {}

    def finish(
        self, evaluation: Evaluation, measurements: Measurements, best_result: Path | None
    ) -> tuple[list[str], dict[str, Any]]:
        """Return no further notes or metadata."""
        return [], {}


def _groups(sets: Sequence[ScoredSet], *, full_spectrum: bool) -> tuple[Split, ...]:
    has_shifted = any(scored.group == SHIFTED for scored in sets)
    setting = FULL_SPECTRUM if full_spectrum and has_shifted else None
    unknown = [scored for scored in sets if scored.is_unknown and len(scored)]
    return tuple(dict.fromkeys(Split(scored.group, setting=setting) for scored in unknown))
