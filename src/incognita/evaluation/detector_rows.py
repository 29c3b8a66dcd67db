"""Boxes of a detector as rows for methods: those its confidence threshold t* keeps."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch

from incognita.benchmarks.benchmark import Benchmark
from incognita.containers.boxes import BoxTruth
from incognita.containers.dataset import BoxDataset, Dataset
from incognita.containers.needs import ExtraOutput
from incognita.containers.outputs import ClassifierOutputs, DetectorOutputs
from incognita.decisions.thresholds import ConfidencePolicy, ConfidenceThreshold
from incognita.errors import InvalidDataError
from incognita.evaluation.detector_metrics import DetectedSet, align_classes, true_labels
from incognita.evaluation.fit_and_score import ExtractionLog
from incognita.evaluation.parts import test_sets
from incognita.extraction.extract import extract_boxes
from incognita.models.detector import Detector
from incognita.results.scored_sets import TEST

VALIDATION = "validation"


@dataclass(eq=False)
class DetectorExtractor:
    """Runs a detector over data sets, each image once, and gives its boxes to methods.

    `choose` must come first: it sets t* on known data, and only boxes that reach it become rows.
    """

    detector: Detector
    account: ExtractionLog
    policy: ConfidencePolicy
    groups: dict[str, str] = field(default_factory=dict)
    sets: dict[str, DetectedSet] = field(default_factory=dict)
    chosen_on: str = VALIDATION
    _threshold: ConfidenceThreshold | None = None
    _held: dict[str, DetectorOutputs] = field(default_factory=dict)

    def choose(self, benchmark: Benchmark, *, layers: bool) -> None:
        """Choose t* on the validation part, or as the papers do on the known test images."""
        self.groups = {name: group for group, name, _ in test_sets(benchmark)}
        has_validation = benchmark.validation is not None
        self.chosen_on = VALIDATION if has_validation else TEST
        dataset = benchmark.validation if has_validation else benchmark.test
        assert dataset is not None
        outputs = self._extract(self.chosen_on, dataset, (), layers=layers)
        self._held[self.chosen_on] = outputs  # it is asked for again: to fit, and to choose tau
        truth = truth_of(dataset).for_images(outputs.detections.image_ids)
        self._refuse_silence(
            len(outputs), truth, f"its floor of {self.detector.rules.score_threshold}"
        )
        found = align_classes(truth, outputs.detections)
        self._threshold = self.policy.fit(found, truth)
        n_kept = int(self._is_kept(outputs).sum())
        self._refuse_silence(n_kept, truth, f"the confidence threshold t* ({self.policy})")

    @property
    def threshold(self) -> ConfidenceThreshold:
        """The confidence threshold t*."""
        assert self._threshold is not None, "choose comes first"
        return self._threshold

    def outputs(
        self,
        name: str,
        dataset: Dataset,
        *,
        extra_outputs: Sequence[ExtraOutput] = (),
        layers: bool = False,
    ) -> ClassifierOutputs:
        """Give the kept boxes of a part as rows; those of tested parts are remembered.

        Rows of the validation part are the boxes that found a known object, with its true class.
        """
        outputs = self._held.get(name)
        if outputs is None:
            outputs = self._extract(name, dataset, extra_outputs, layers=layers)
        is_kept = self._is_kept(outputs)
        if name in self.groups:
            self.sets[name] = self._seen(name, dataset, outputs, is_kept)
        rows = outputs[is_kept].rows()
        return self._with_truth(rows, dataset, outputs, is_kept) if name == VALIDATION else rows

    def rows_to_choose_on(self) -> ClassifierOutputs:
        """Give the kept boxes of the known images that tau is chosen on."""
        outputs = self._held[self.chosen_on]
        return outputs[self._is_kept(outputs)].rows()

    def unknown_rows(self, dataset: Dataset, *, layers: bool) -> ClassifierOutputs:
        """Give the kept boxes of unknown validation images; they are held for the next method."""
        name = "unknown validation"
        if name not in self._held:
            self._held[name] = self._extract(name, dataset, (), layers=layers)
        outputs = self._held[name]
        return outputs[self._is_kept(outputs)].rows()

    def nothing(self) -> ClassifierOutputs:
        """Give the outputs of no box."""
        heads = self.detector.heads
        head = heads[0] if len(heads) == 1 else None
        return ClassifierOutputs.empty(len(self.detector.class_names), head)

    def _refuse_silence(self, n_boxes: int, truth: BoxTruth, what: str) -> None:
        if not n_boxes:
            raise InvalidDataError(
                f"{self.detector.name} finds no box that reaches {what} in the {truth.n_images} "
                f"known images of {self.chosen_on}, so there is nothing to score; lower it, or "
                f"check the detector and its preprocessing."
            )

    def _is_kept(self, outputs: DetectorOutputs) -> np.ndarray:
        return self.threshold.keep(outputs.detections)

    def _extract(
        self, name: str, dataset: Dataset, extra_outputs: Sequence[ExtraOutput], *, layers: bool
    ) -> DetectorOutputs:
        extracted = extract_boxes(
            self.detector,
            dataset,
            extra_outputs=extra_outputs,
            layers=layers,
            settings=self.account.settings,
            store=self.account.store,
            on_progress=self.account.mover(name, len(dataset.image_ids)),
        )
        self.account.enter(name, extracted)
        return extracted.outputs

    def _seen(
        self, name: str, dataset: Dataset, outputs: DetectorOutputs, is_kept: np.ndarray
    ) -> DetectedSet:
        truth = truth_of(dataset).for_images(outputs.detections.image_ids)
        light = replace(outputs.detections, features=None)  # nobody measures features
        return DetectedSet(name, self.groups[name], align_classes(truth, light), truth, is_kept)

    def _with_truth(
        self,
        rows: ClassifierOutputs,
        dataset: Dataset,
        outputs: DetectorOutputs,
        is_kept: np.ndarray,
    ) -> ClassifierOutputs:
        truth = truth_of(dataset).for_images(outputs.detections.image_ids)
        kept = align_classes(truth, outputs.detections)[is_kept]
        labels, is_hit = true_labels(kept, truth)
        named = replace(rows, labels=torch.from_numpy(labels).long())
        return named[torch.from_numpy(is_hit)]


def truth_of(dataset: Dataset) -> BoxTruth:
    """Give the boxes of a data set, which one for classifiers does not have."""
    if not isinstance(dataset, BoxDataset):
        raise InvalidDataError(
            f"{dataset.name} has no boxes, but a detector is measured against boxes; use a "
            f"detection benchmark."
        )
    return dataset.truth()
