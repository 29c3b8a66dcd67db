"""Model outputs: logits, features and the head between them, one row per image or detection."""

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from incognita.containers._checks import (
    check_mask,
    check_parts,
    check_rows,
    check_unique,
)
from incognita.containers.boxes import Detections
from incognita.errors import InvalidDataError, count
from incognita.shapes import Bool, Float, Int


@dataclass(frozen=True, eq=False, repr=False)
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
                f"Expected a head with weight [classes, d] and bias [classes], got shapes "
                f"{list(self.weight.shape)} and {list(self.bias.shape)}."
            )

    def __repr__(self) -> str:
        n_classes, d = self.weight.shape
        return f"Head({count(d, 'feature')} to {count(n_classes, 'class', 'classes')})"

    def __call__(self, features: Float[Tensor, "n d"]) -> Float[Tensor, "n classes"]:
        """Apply the layer to features."""
        return torch.nn.functional.linear(features, self.weight, self.bias)

    def weights_like(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Return weight and bias in the type and on the device of features."""
        return self.weight.to(features), self.bias.to(features)


@dataclass(frozen=True, eq=False, repr=False)
class ClassifierOutputs:
    """The outputs of a classifier, one row per image.

    Args:
        image_ids: One unique id per row.
        logits: The scores before the softmax.
        features: The inputs of the head.
        labels: The true class of each row, if known.
        head: The layer between features and logits.
        layers: Pooled features of named earlier layers.
        extra_outputs: Other recorded columns (see `containers.needs.ExtraOutput`).
        heads: Instead of `head` where rows belong to several linear layers, such as the levels of
            a detector; narrower features are padded with zeros.
        head_index: Which of `heads` each row belongs to.

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
        return columns | {
            f"extra_outputs[{name!r}]": t for name, t in (self.extra_outputs or {}).items()
        }

    def _check_tables(self) -> None:
        for name, column in self._columns().items():
            if column is None and name != "logits":
                continue
            if not isinstance(column, Tensor):
                raise InvalidDataError(
                    f"Expected {name} of ClassifierOutputs to be a tensor, got "
                    f"{type(column).__name__}. Convert it by torch.as_tensor."
                )
            is_table = name in ("logits", "features") or name.startswith("layers[")
            if is_table and (column.ndim != 2 or not column.is_floating_point()):
                raise InvalidDataError(
                    f"Expected {name} of ClassifierOutputs as floats, one row per image, got "
                    f"{column.dtype} of shape {list(column.shape)}."
                )

    def _check_finite(self, name: str, column: Tensor | None) -> None:
        row = None if column is None else _first_infinite_row(column)
        if row is not None:
            raise InvalidDataError(
                f"{name} of ClassifierOutputs must be finite, but row {row} "
                f"(image {self.image_ids[row]}) is not; check that image and the model."
            )

    def _check_head(self) -> None:
        if self.head is None:
            return
        n_classes, d = self.head.weight.shape
        if self.logits.shape[1] != n_classes:
            raise InvalidDataError(
                f"The head has {n_classes} classes, but logits have {self.logits.shape[1]} columns."
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
        """Return the same rows with other features, logits and head; only these are checked.

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

    def tensors(self) -> dict[str, Tensor]:
        """Return every tensor by name: the columns, and the weights and biases of the heads.

        >>> head = Head(torch.eye(2), torch.zeros(2))
        >>> list(ClassifierOutputs(("a",), torch.zeros(1, 2), head=head).tensors())
        ['logits', 'head.weight', 'head.bias']
        """
        heads = {} if self.head is None else {"head": self.head}
        heads |= {f"heads[{place}]": head for place, head in enumerate(self.heads)}
        found = {name: column for name, column in self._columns().items() if column is not None}
        for name, head in heads.items():
            found |= {f"{name}.weight": head.weight, f"{name}.bias": head.bias}
        return found

    def alias(self) -> "ClassifierOutputs":
        """Return the same rows in containers of their own; only the memory of tensors is shared.

        >>> layers = {"stem": torch.ones(1, 3)}
        >>> outputs = ClassifierOutputs(("a",), torch.zeros(1, 2), layers=layers)
        >>> outputs.alias().layers.clear()
        >>> list(outputs.layers)
        ['stem']
        """
        return self._mapped(torch.Tensor.detach)

    def to(self, device: torch.device | str) -> "ClassifierOutputs":
        """Return the same rows on a device; columns that are there already are shared.

        >>> outputs = ClassifierOutputs(("a",), torch.zeros(1, 2))
        >>> outputs.to("cpu").logits.data_ptr() == outputs.logits.data_ptr()
        True
        """
        return self._mapped(lambda column: column.detach().to(device))

    def _mapped(self, function: Callable[[Tensor], Tensor]) -> "ClassifierOutputs":
        """Apply a function to every tensor, in containers of their own."""
        other = copy(self)
        for name, value in vars(self).items():
            object.__setattr__(other, name, _mapped(value, function))
        return other

    def of_head(self, index: int) -> "ClassifierOutputs":
        """Return the rows of one of several heads, as outputs of a model with that head alone."""
        if self.head_index is None or not 0 <= index < len(self.heads):
            raise InvalidDataError(
                f"Expected the index of one of {len(self.heads)} heads, got {index}."
            )
        rows, head = self[self.head_index == index], self.heads[index]
        features = None if rows.features is None else rows.features[:, : head.weight.shape[1]]
        return replace(rows, features=features, head=head, heads=(), head_index=None)

    def __len__(self) -> int:
        return len(self.image_ids)

    def __repr__(self) -> str:
        parts = [count(len(self), "row"), count(self.logits.shape[1], "class", "classes")]
        if self.features is not None:
            parts.append(count(self.features.shape[1], "feature"))
        return f"ClassifierOutputs({', '.join(parts)})"

    def __getitem__(self, keep: Bool[Tensor, "n"]) -> "ClassifierOutputs":
        """Keep the rows a mask marks."""
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
        """Return outputs without rows."""
        features = None if head is None else torch.zeros(0, head.weight.shape[1])
        return cls((), torch.zeros(0, n_classes), features, head=head)

    @classmethod
    def concatenate(cls, parts: Sequence["ClassifierOutputs"]) -> "ClassifierOutputs":
        """Join the outputs of one model on different images, in the order given."""
        check_parts(parts)
        columns = [part._columns() for part in parts]
        present = [{name for name, c in part.items() if c is not None} for part in columns]
        if any(names != present[0] for names in present):
            raise InvalidDataError(
                f"Parts with different columns cannot be joined: {sorted(present[0])} and "
                f"{sorted(next(names for names in present if names != present[0]))}."
            )
        if not all(_same_heads(part, parts[0]) for part in parts):
            raise InvalidDataError(
                "Parts with different heads cannot be joined: they are of different models."
            )
        joined: dict[str, Any] = {
            name: torch.cat([tensor for part in columns if (tensor := part[name]) is not None])
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
        # a sum is finite unless an element is not, or it overflows: the cheap test is first
        if not part.sum(dtype=torch.float64).isfinite() and not part.isfinite().all():
            return first + int((~part.isfinite()).flatten(1).any(dim=1).nonzero()[0])
    return None


def _kept(columns: Mapping[str, Tensor] | None, keep: Tensor) -> dict[str, Tensor] | None:
    return None if columns is None else {name: t[keep] for name, t in columns.items()}


def _mapped(value: Any, function: Callable[[Tensor], Tensor]) -> Any:
    if isinstance(value, Tensor):
        return function(value)
    if isinstance(value, Head):
        return Head(function(value.weight), function(value.bias))
    if isinstance(value, Mapping):
        return {name: _mapped(item, function) for name, item in value.items()}
    is_of_heads = isinstance(value, tuple) and isinstance(next(iter(value), None), Head)
    return tuple(_mapped(head, function) for head in value) if is_of_heads else value


def _same_heads(a: ClassifierOutputs, b: ClassifierOutputs) -> bool:
    pairs = zip(a.heads, b.heads, strict=False)
    is_same = len(a.heads) == len(b.heads) and all(_same_head(x, y) for x, y in pairs)
    return is_same and _same_head(a.head, b.head)


def _same_head(a: Head | None, b: Head | None) -> bool:
    if a is b or a is None or b is None:
        return a is b
    return torch.equal(a.weight, b.weight) and torch.equal(a.bias, b.bias)


@dataclass(frozen=True, eq=False, repr=False)
class DetectorOutputs:
    """Detections with logits, and the heads, layers and extra outputs behind them; a row is a box.

    Args:
        detections: Boxes with logits, and features where there are any. Their classes are the
            known ones, in the order of the logits.
        heads: The linear layers of the logits; `detections.head_index` is the layer of each row.
        layers: Feature maps of named layers, pooled over each box.
        extra_outputs: Other recorded columns of each box.
    """

    detections: Detections
    heads: tuple[Head, ...] = ()
    layers: Mapping[str, Float[Tensor, "boxes _"]] | None = None
    extra_outputs: Mapping[str, Float[Tensor, "boxes ..."]] | None = None

    def __post_init__(self) -> None:
        if self.detections.logits is None:
            raise InvalidDataError(
                "DetectorOutputs need detections with logits, got detections without."
            )
        tables = {**(self.layers or {}), **(self.extra_outputs or {})}
        rows = {name: len(table) for name, table in tables.items()}
        check_rows("DetectorOutputs", detections=len(self.detections), **rows)

    def __len__(self) -> int:
        return len(self.detections)

    def __repr__(self) -> str:
        return f"DetectorOutputs({self.detections!r}, {count(len(self.heads), 'head')})"

    def __getitem__(self, keep: Bool[np.ndarray, "boxes"]) -> "DetectorOutputs":
        """Keep the boxes a mask marks; every image stays, even without a box."""
        mask = torch.from_numpy(np.asarray(keep))
        return replace(
            self,
            detections=self.detections[keep],
            layers=_kept(self.layers, mask),
            extra_outputs=_kept(self.extra_outputs, mask),
        )

    def rows(self) -> ClassifierOutputs:
        """Return the boxes as rows for methods; the label of a row is the detected class.

        The row of the third box of image `a` is named `a#2`.
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
