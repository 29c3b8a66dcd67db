"""The embedded world Terra: images of one object each, and scenes of several."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field, NonNegativeInt

from incognita.benchmarks.sources.entry import DataContext, LoadedSet, SetEntry, Task
from incognita.errors import InvalidDataError

LARGEST_SIDE = 8192  # pixels of a picture


class _TerraEntry(SetEntry):
    """Pictures that the embedded world Terra draws.

    Args:
        part: `train`, `validation` or `test`; no picture is in two of them.
        classes: A group, a super-class or a class of its tree, or several of them.
        count: How many pictures.
        style: `plain`, or a shifted look.
        seed: Another seed is another world with the same classes.
    """

    reads_files: ClassVar[bool] = False
    place: ClassVar[str] = "embedded"

    part: Literal["train", "validation", "test"]
    count: Annotated[int, Field(gt=0, le=10_000_000)]
    classes: str | list[str] = "known"
    style: str = "plain"
    seed: NonNegativeInt = 0


class TerraSet(_TerraEntry):
    """Images of one object each; `size` is their width and height in pixels."""

    kind: Literal["terra"]
    size: Annotated[int, Field(gt=0, le=LARGEST_SIDE)] = 32

    def load(self, context: DataContext) -> LoadedSet:
        from incognita.benchmarks.terra.datasets import terra_dataset  # imports numba

        dataset = terra_dataset(
            self.part,
            seed=self.seed,
            n=self.count,
            size=self.size,
            classes=self.classes,
            style=self.style,
        )
        return self.check_generated(dataset, context)


class TerraScenesSet(_TerraEntry):
    """Scenes of several objects; `size` is their width and height in pixels."""

    task: ClassVar[Task] = "detection"

    kind: Literal["terra-scenes"]
    size: Annotated[int, Field(gt=0, le=LARGEST_SIDE)] = 160

    def load(self, context: DataContext) -> LoadedSet:
        from incognita.benchmarks.terra.classes import KNOWN_NAMES
        from incognita.benchmarks.terra.datasets import terra_scenes  # imports numba

        if tuple(context.classes) != KNOWN_NAMES:
            strange = next((name for name in context.classes if name not in KNOWN_NAMES), None)
            is_listed = strange is not None and context.names_file is None
            what = f"hold {strange!r}" if is_listed else "are not these, in this order"
            raise InvalidDataError(
                f"The known classes of Terra are {', '.join(KNOWN_NAMES)}, but those of "
                f"{context.benchmark} {what}; list them so."
            )
        dataset = terra_scenes(
            self.part,
            seed=self.seed,
            n=self.count,
            size=self.size,
            classes=self.classes,
            style=self.style,
        )
        return LoadedSet(self, dataset, self.count, object_classes=dataset.object_classes)
