"""A loaded benchmark: known images to fit and test on, and unknown images to detect."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from incognita.containers.dataset import Dataset

KNOWN, SHIFTED, TEST = "known", "shifted", "test"  # two groups, and the set of known images
ACCEPTED = "accepted"  # the group of known images without a class of the model
MIXED = "mixed"  # the group of sets with known and unknown objects in one image
Protocol = Literal["self-aware"]


@dataclass(frozen=True, eq=False)
class Benchmark:
    """The data sets of one benchmark, each in its part.

    Args:
        name: As people type it, such as `openood/cifar10`.
        version: Goes up whenever a published number could move.
        title: One line for tables.
        classes: Names of the known classes, in the order of the labels.
        train: Known images that methods are fitted on.
        validation: Known images to choose parameters on.
        test: Known images to test on.
        unknown: Groups such as near and far, each with its sets.
        shifted: Known classes that look different; known too in the full-spectrum setting.
        unknown_validation: Unknown images to choose parameters on, never tested.
        unknown_training: Unknown images that training methods may use.
        accepted: Images of classes that the model has no name for but that count as known: in every
            ranking metric, not in accuracy.
        accepted_validation: Such images to choose parameters on.
        mixed: Images that may show known and unknown objects together; only in detection.
        task: Whether its models name images or find objects; then every set is a `BoxDataset`.
        full_spectrum: Whether shifted images count as known in the main table.
        default_model: The model meant for it, where one is embedded.
        notes: What a reader of its numbers must know, such as what is missing.
        protocol: `self-aware`: a detector is made self-aware and judged, no methods are ranked.
        free: Shifted sets whose images a self-aware detector may reject without penalty.
    """

    name: str
    version: int
    title: str
    classes: Sequence[str]
    test: Dataset
    unknown: Mapping[str, Mapping[str, Dataset]]
    train: Dataset | None = None
    validation: Dataset | None = None
    shifted: Mapping[str, Dataset] = field(default_factory=dict)
    unknown_validation: Dataset | None = None
    unknown_training: Dataset | None = None
    accepted: Mapping[str, Dataset] = field(default_factory=dict)
    accepted_validation: Mapping[str, Dataset] = field(default_factory=dict)
    mixed: Mapping[str, Dataset] = field(default_factory=dict)
    task: Literal["classification", "detection"] = "classification"
    full_spectrum: bool = False
    default_model: str | None = None
    notes: tuple[str, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)
    protocol: Protocol | None = None
    free: frozenset[str] = frozenset()

    @property
    def is_partial(self) -> bool:
        """Whether images that the definition names are missing."""
        return bool(self.metadata.get("missing"))

    def __repr__(self) -> str:
        """Return one line, such as `Benchmark(terra/standard, version 1, 12 known classes, …)`."""
        groups = {group: list(sets) for group, sets in self.unknown.items()}
        if self.mixed:
            groups["mixed"] = list(self.mixed)
        unknown = ", ".join(f"{group} {'+'.join(names)}" for group, names in groups.items())
        return (
            f"Benchmark({self.name}, version {self.version}, {self.task}, {len(self.classes)} "
            f"known classes, {len(self.test.image_ids):,} test images; unknown: {unknown})"
        )
