"""What a detector emits for a set of images: boxes, and everything methods want to know of each."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from incognita.containers._checks import check_rows
from incognita.containers.boxes import Detections
from incognita.containers.outputs import ClassifierOutputs, Head
from incognita.errors import InvalidDataError
from incognita.shapes import Bool, Float


@dataclass(frozen=True, eq=False)
class DetectorOutputs:
    """Detections with logits, and the heads, layers and probes behind them; a row is a box.

    Args:
        detections: Boxes with logits, and features where there are any. Their classes are the
            known ones, in the order of the logits.
        heads: The linear layers that gave the logits; `detections.head_index` says which.
        layers: Maps of named layers, pooled over each box.
        probes: What else was recorded of each box, by column.
    """

    detections: Detections
    heads: tuple[Head, ...] = ()
    layers: Mapping[str, Float[Tensor, "boxes _"]] | None = None
    probes: Mapping[str, Float[Tensor, "boxes ..."]] | None = None

    def __post_init__(self) -> None:
        if self.detections.logits is None:
            raise InvalidDataError(
                "DetectorOutputs need detections with logits, but these have none."
            )
        tables = {**(self.layers or {}), **(self.probes or {})}
        rows = {name: len(table) for name, table in tables.items()}
        check_rows("DetectorOutputs", detections=len(self.detections), **rows)

    def __len__(self) -> int:
        return len(self.detections)

    def __getitem__(self, keep: Bool[np.ndarray, "boxes"]) -> "DetectorOutputs":
        """Keep the boxes that a mask marks; every image stays, if need be without a box."""
        mask = torch.from_numpy(np.asarray(keep))
        return replace(
            self,
            detections=self.detections[keep],
            layers=None if self.layers is None else {n: t[mask] for n, t in self.layers.items()},
            probes=None if self.probes is None else {n: t[mask] for n, t in self.probes.items()},
        )

    def rows(self) -> ClassifierOutputs:
        """Give the boxes as rows that methods take; a row's label is the class it was given.

        The row of the third box of image `a` is called `a#2`.
        """
        found = self.detections
        first = found.offsets[found.image_index]
        places = (np.arange(len(found)) - first).tolist()
        names = [str(found.image_ids[k]) for k in found.image_index]
        several = len(self.heads) > 1
        return ClassifierOutputs(
            tuple(f"{name}#{place}" for name, place in zip(names, places, strict=True)),
            torch.tensor(found.logits, dtype=torch.float32),
            None if found.features is None else torch.tensor(found.features, dtype=torch.float32),
            torch.tensor(found.class_ids, dtype=torch.int64),
            None if several or not self.heads else self.heads[0],
            self.layers,
            self.probes,
            self.heads if several else (),
            torch.tensor(found.head_index, dtype=torch.int64) if several else None,
        )
