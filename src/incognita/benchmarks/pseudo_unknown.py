"""Copies of known images whose objects are painted over: unknown images that cost nothing.

Oksuz et al., CVPR 2023, section 4, choose the image threshold of a self-aware detector with them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path

import numpy as np

from incognita.containers.boxes import BoxTruth
from incognita.containers.dataset import BoxDataset
from incognita.shapes import Float, Shaped


@dataclass(frozen=True, eq=False)
class PaintedOver:
    """A data set whose annotated boxes, other than crowd regions, are black; see `BoxDataset`.

    Boxes are painted on the image as it was read, before any resizing, from the whole pixel at
    their upper left corner up to, but without, the one at their lower right, as the public code
    does. The truth is empty.

    Args:
        source: The annotated images.
    """

    source: BoxDataset

    @property
    def name(self) -> str:
        """The name of the source, and what was done to it."""
        return f"{self.source.name} (painted over)"

    @property
    def image_ids(self) -> Sequence[str]:
        """The ids of the source."""
        return self.source.image_ids

    labels = None
    source_classes = None

    def __len__(self) -> int:
        return len(self.image_ids)

    def load(self, index: int) -> Shaped[np.ndarray, "height width 3"]:
        """Load one image and paint its objects black."""
        truth = self.source.truth()
        rows = slice(truth.offsets[index], truth.offsets[index + 1])
        boxes = truth.xyxy[rows][~truth.is_crowd[rows]]
        return paint_over(self.source.load(index), boxes)

    def fingerprint(self) -> str:
        """Hash the source and what was done to it."""
        return sha256(f"painted over\n{self.source.fingerprint()}".encode()).hexdigest()

    def subset(self, indices: Sequence[int]) -> "PaintedOver":
        """Return the images at these positions, in this order."""
        return PaintedOver(self.source.subset(indices))

    def truth(self) -> BoxTruth:
        """Return the truth without objects; always one instance."""
        return self._truth

    @cached_property
    def _truth(self) -> BoxTruth:
        found = self.source.truth()
        return BoxTruth.empty(found.image_ids, found.classes)

    def write(self, folder: Path, *, on_progress: Callable[[int], None] | None = None) -> None:
        """Write every image as PNG under its id, for a detector that runs elsewhere."""
        from PIL import Image

        for index, image_id in enumerate(self.image_ids):
            path = (folder / str(image_id)).with_suffix(".png")
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(self.load(index)).save(path)
            if on_progress is not None:
                on_progress(1)


def paint_over(
    image: Shaped[np.ndarray, "height width 3"], boxes: Float[np.ndarray, "boxes 4"]
) -> Shaped[np.ndarray, "height width 3"]:
    """Return a copy with black boxes.

    >>> paint_over(np.ones((2, 3, 3), np.uint8), np.array([[0.9, 0.0, 2.5, 1.0]]))[:, :, 0].tolist()
    [[0, 0, 1], [1, 1, 1]]
    """
    painted = image.copy()
    for x1, y1, x2, y2 in np.maximum(boxes, 0).astype(np.int64).tolist():
        painted[y1:y2, x1:x2] = 0
    return painted
