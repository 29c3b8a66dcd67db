"""Images whose objects are known by their boxes."""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from incognita.containers.boxes import BoxTruth
from incognita.containers.dataset import Dataset


@runtime_checkable
class BoxDataset(Dataset, Protocol):
    """A set of images with the boxes of what is in them; `labels` and `source_classes` are None.

    The classes of its truth are the known classes of the benchmark, in their order, and then all
    others, at least one of them unknown: class id k is known class k in every set, and whatever a
    detector finds can be called unknown in every set.
    """

    def truth(self) -> BoxTruth:
        """Give the objects of every image, in the order of `image_ids`; the same object always."""

    def subset(self, indices: Sequence[int]) -> "BoxDataset":
        """Give the images at these places, in this order."""
