"""A kind of data set that is not in the package."""

from typing import ClassVar, Literal

import numpy as np

from incognita.benchmarks.sources.entry import DataContext, LoadedSet, SetEntry
from incognita.containers.dataset import ArrayDataset


class StripesSet(SetEntry):
    """A kind of data set in one file: gray stripes, none of them known."""

    kind: Literal["stripes"]
    place: ClassVar[str] = "drawn"
    reads_files: ClassVar[bool] = False

    def load(self, context: DataContext) -> LoadedSet:
        images = np.zeros((3, 4, 4, 3), np.uint8)
        dataset = ArrayDataset(self.name, ("a", "b", "c"), images)
        return self.check_generated(dataset, context)
