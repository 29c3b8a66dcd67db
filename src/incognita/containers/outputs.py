"""What a classifier emits for a set of images: logits, features, and the head between them."""

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from incognita.containers._checks import check_mask, check_parts, check_rows, check_unique
from incognita.containers.boxes import Detections
from incognita.errors import InvalidDataError
from incognita.shapes import Bool, Float, Int


@dataclass(frozen=True, eq=False)
class Head:
    """The last linear layer: logits = features @ weight.T + bias.

    >>> head = Head(torch.eye(2), torch.tensor([0.0, 1.0]))
    >>> head(torch.tensor([[3.0, 4.0]]))
    tensor([[3., 5.]])
    """

    weight: Float[Tensor, "classes d"]
    bias: Float[Tensor, "classes"]

    def __post_init__(self) -> None:
        if self.weight.ndim != 2 or tuple(self.bias.shape) != tuple(self.weight.shape[:1]):
            raise InvalidDataError(
                f"A head needs a weight [classes, d] and a bias [classes], but the weight has "
                f"shape {list(self.weight.shape)} and the bias {list(self.bias.shape)}."
            )

    def __call__(self, features: Float[Tensor, "n d"]) -> Float[Tensor, "n classes"]:
        """Apply the layer to features."""
        return torch.nn.functional.linear(features, self.weight, self.bias)


@dataclass(frozen=True, eq=False)
class ClassifierOutputs:
    """What a classifier emitted, one row per image.

    Args:
        image_ids: One id per row, each once.
        logits: The scores before the softmax.
        features: The vectors the head saw.
        labels: The true class of each row, where it is known.
        head: The layer between features and logits.
        layers: Pooled features of named earlier layers.
        extra_outputs: What else was recorded by column (see `containers.needs.ExtraOutput`).
        heads: Instead of `head` where rows come from several linear layers, as the levels of a
            detector; features narrower than the widest end in zeros.
        head_index: Then, which of `heads` gave each row.

    >>> outputs = ClassifierOutputs(("a", "b"), torch.tensor([[9.0, 0.0], [1.0, 2.0]]))
    >>> len(outputs), outputs[torch.tensor([False, True])].image_ids
    (2, ('b',))
    """

    image_ids: tuple[Any, ...]
    logits: Float[Tensor, "n classes"]
    features: Float[Tensor, "n d"] | None = None
    labels: Int[Tensor, "n"] | None = None
    head: Head | None = None
    layers: Mapping[str, Float[Tensor, "n _"]] | None = None
    extra_outputs: Mapping[str, Float[Tensor, "n ..."]] | None = None
    heads: tuple[Head, ...] = ()
    head_index: Int[Tensor, "n"] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "image_ids", tuple(self.image_ids))
        self._check_tables()
        rows = {name: None if c is None else len(c) for name, c in self._columns().items()}
        check_rows("ClassifierOutputs", image_ids=len(self.image_ids), **rows)
        check_unique("ClassifierOutputs", np.asarray(self.image_ids))
        for name, column in self._columns().items():
            self._check_finite(name, column)
        self._check_head()

    def _columns(self) -> dict[str, Tensor | None]:
        columns = {
            "logits": self.logits,
            "features": self.features,
            "labels": self.labels,
            "head_index": self.head_index,
        }
        columns |= {f"layers[{name!r}]": t for name, t in (self.layers or {}).items()}
        return columns | {f"probes[{name!r}]": t for name, t in (self.extra_outputs or {}).items()}

    def _check_tables(self) -> None:
        for name, column in self._columns().items():
            if column is None and name != "logits":
                continue
            if not isinstance(column, Tensor):
                raise InvalidDataError(
                    f"{name} of ClassifierOutputs must be a tensor, but a {type(column).__name__} "
                    f"came; torch.as_tensor makes one of an array or a list."
                )
            is_table = name in ("logits", "features") or name.startswith("layers[")
            if is_table and (column.ndim != 2 or not column.is_floating_point()):
                raise InvalidDataError(
                    f"{name} of ClassifierOutputs must be floats, one row per image, but "
                    f"{column.dtype} of shape {list(column.shape)} came."
                )

    def _check_finite(self, name: str, column: Tensor | None) -> None:
        row = None if column is None else _first_infinite_row(column)
        if row is not None:
            raise InvalidDataError(
                f"{name} of ClassifierOutputs must be finite, but row {row} "
                f"(image {self.image_ids[row]}) is not; look at that image or the model."
            )

    def _check_head(self) -> None:
        if self.head is None:
            return
        n_classes, d = self.head.weight.shape
        if self.logits.shape[1] != n_classes:
            raise InvalidDataError(
                f"The head gives {n_classes} classes, "
                f"but logits have {self.logits.shape[1]} columns."
            )
        if self.features is not None and self.features.shape[1] != d:
            raise InvalidDataError(
                f"The head takes {d} features, but features have {self.features.shape[1]} columns."
            )

    def reshaped(
        self,
        features: Float[Tensor, "n d"],
        logits: Float[Tensor, "n classes"],
        head: Head | None,
    ) -> "ClassifierOutputs":
        """Give the same rows with these instead; all else was checked before and is not again.

        >>> outputs = ClassifierOutputs(("a",), torch.zeros(1, 2), torch.ones(1, 3))
        >>> outputs.reshaped(torch.zeros(1, 3), torch.ones(1, 2), None).logits
        tensor([[1., 1.]])
        """
        other = copy(self)
        for name, value in {"features": features, "logits": logits, "head": head}.items():
            object.__setattr__(other, name, value)
        other._check_tables()
        check_rows("ClassifierOutputs", rows=len(self), features=len(features), logits=len(logits))
        for name in ("features", "logits"):
            other._check_finite(name, other._columns()[name])
        other._check_head()
        return other

    def of_head(self, place: int) -> "ClassifierOutputs":
        """Give the rows of one of several heads, as outputs of a model with that head alone."""
        if self.head_index is None or not 0 <= place < len(self.heads):
            raise InvalidDataError(
                f"Rows of head {place} were asked for, but there are {len(self.heads)} heads."
            )
        rows, head = self[self.head_index == place], self.heads[place]
        features = None if rows.features is None else rows.features[:, : head.weight.shape[1]]
        return replace(rows, features=features, head=head, heads=(), head_index=None)

    def __len__(self) -> int:
        return len(self.image_ids)

    def __getitem__(self, keep: Bool[Tensor, "n"]) -> "ClassifierOutputs":
        """Keep the rows that a mask marks."""
        check_mask("ClassifierOutputs", keep, len(self))
        kept = [
            image for image, is_kept in zip(self.image_ids, keep.tolist(), strict=True) if is_kept
        ]
        return replace(
            self,
            image_ids=tuple(kept),
            logits=self.logits[keep],
            features=None if self.features is None else self.features[keep],
            labels=None if self.labels is None else self.labels[keep],
            head_index=None if self.head_index is None else self.head_index[keep],
            layers=_kept(self.layers, keep),
            extra_outputs=_kept(self.extra_outputs, keep),
        )

    @classmethod
    def empty(cls, n_classes: int, head: Head | None = None) -> "ClassifierOutputs":
        """Give the outputs of no image."""
        features = None if head is None else torch.zeros(0, head.weight.shape[1])
        return cls((), torch.zeros(0, n_classes), features, head=head)

    @classmethod
    def concatenate(cls, parts: Sequence["ClassifierOutputs"]) -> "ClassifierOutputs":
        """Join the outputs of one model on different images, in the order given."""
        check_parts(parts)
        columns = [part._columns() for part in parts]
        present = [{name for name, c in each.items() if c is not None} for each in columns]
        if any(names != present[0] for names in present):
            raise InvalidDataError(
                f"Parts with different columns cannot be joined: {sorted(present[0])} and "
                f"{sorted(next(names for names in present if names != present[0]))}."
            )
        if not all(_same_heads(part, parts[0]) for part in parts):
            raise InvalidDataError(
                "Parts with different heads cannot be joined: they come from different models."
            )
        joined: dict[str, Any] = {
            name: torch.cat([tensor for each in columns if (tensor := each[name]) is not None])
            for name in sorted(present[0])
        }
        for group in ("layers", "extra_outputs"):
            names = getattr(parts[0], group) or {}
            joined[group] = {name: joined.pop(f"{group}[{name!r}]") for name in names} or None
        image_ids = tuple(image for part in parts for image in part.image_ids)
        return cls(image_ids, **joined, head=parts[0].head, heads=parts[0].heads)


_NUMBERS_AT_ONCE = 2**22  # a sum in float64 copies them first: 32 MiB


def _first_infinite_row(column: Tensor) -> int | None:
    if not column.is_floating_point():
        return None
    n_at_once = max(1, _NUMBERS_AT_ONCE // max(1, column[:1].numel()))
    for first in range(0, len(column), n_at_once):
        part = column[first : first + n_at_once]
        # a sum is finite unless an element is not, or it overflows: the cheap look comes first
        if not part.sum(dtype=torch.float64).isfinite() and not part.isfinite().all():
            return first + int((~part.isfinite()).flatten(1).any(dim=1).nonzero()[0])
    return None


def _kept(columns: Mapping[str, Tensor] | None, keep: Tensor) -> dict[str, Tensor] | None:
    return None if columns is None else {name: t[keep] for name, t in columns.items()}


def _same_heads(a: ClassifierOutputs, b: ClassifierOutputs) -> bool:
    pairs = zip(a.heads, b.heads, strict=False)
    is_same = len(a.heads) == len(b.heads) and all(_same_head(x, y) for x, y in pairs)
    return is_same and _same_head(a.head, b.head)


def _same_head(a: Head | None, b: Head | None) -> bool:
    if a is b or a is None or b is None:
        return a is b
    return torch.equal(a.weight, b.weight) and torch.equal(a.bias, b.bias)


@dataclass(frozen=True, eq=False)
class DetectorOutputs:
    """Detections with logits, and the heads, layers and probes behind them; a row is a box.

    Args:
        detections: Boxes with logits, and features where there are any. Their classes are the
            known ones, in the order of the logits.
        heads: The linear layers that gave the logits; `detections.head_index` says which.
        layers: Maps of named layers, pooled over each box.
        extra_outputs: What else was recorded of each box, by column.
    """

    detections: Detections
    heads: tuple[Head, ...] = ()
    layers: Mapping[str, Float[Tensor, "boxes _"]] | None = None
    extra_outputs: Mapping[str, Float[Tensor, "boxes ..."]] | None = None

    def __post_init__(self) -> None:
        if self.detections.logits is None:
            raise InvalidDataError(
                "DetectorOutputs need detections with logits, but these have none."
            )
        tables = {**(self.layers or {}), **(self.extra_outputs or {})}
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
            extra_outputs=None
            if self.extra_outputs is None
            else {n: t[mask] for n, t in self.extra_outputs.items()},
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
            self.extra_outputs,
            self.heads if several else (),
            torch.tensor(found.head_index, dtype=torch.int64) if several else None,
        )
