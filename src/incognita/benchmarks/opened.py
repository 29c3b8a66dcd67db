"""What was found of a set, and what one needs to know to find it."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from incognita.benchmarks.set_entries import AnySet
from incognita.containers.dataset import Dataset


@dataclass(frozen=True)
class OpenedSet:
    """A set of a definition and what was found of it.

    Args:
        entry: What the definition says.
        dataset: The images that are there; None where there are none at all.
        expected: How many there should be, where anybody says.
        missing: The first paths that are not there.
        left_out: Files of its folder that are no images by their suffix.
        object_classes: Classes that its boxes may show; None where it has no boxes.
        notes: What opening it brought to light.
    """

    entry: AnySet
    dataset: Dataset | None
    expected: int | None
    missing: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    object_classes: frozenset[str] | None = None
    notes: tuple[str, ...] = ()

    @property
    def found(self) -> int:
        """How many images are there."""
        return 0 if self.dataset is None else len(self.dataset.image_ids)

    @property
    def is_complete(self) -> bool:
        """Whether no image is missing."""
        return self.found > 0 and self.found >= (self.expected or 0)


@dataclass(frozen=True)
class Surroundings:
    """What opening a set needs besides its entry.

    Args:
        benchmark: Its name, for messages.
        data: The folder that relative paths begin at.
        classes: Names of the known classes; their numbers where there are no names.
        has_names: Whether the classes have names.
        cache_dir: Where hashes of files are remembered.
        named: What people type to name the benchmark, where that is not its name.
    """

    benchmark: str
    data: Path
    classes: Sequence[str]
    has_names: bool = True
    cache_dir: Path | None = None
    named: str | None = None

    @property
    def typed(self) -> str:
        """What a command takes for the benchmark."""
        return self.named or self.benchmark
