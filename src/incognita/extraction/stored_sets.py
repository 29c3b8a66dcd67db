"""Sets and models as an output store remembers them, in the place of images and networks.

The store keeps ids, labels and annotated objects beside the outputs of a set, in `images.npz`. A
run keeps what is known about its models. Together they are enough to score further methods.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import torch
from torch import Tensor, nn

from incognita.containers import BoxDataset, BoxTruth, Classes, Dataset, Head, Role
from incognita.errors import InvalidDataError, MissingDataError
from incognita.extraction.stored_outputs import IMAGES
from incognita.formats.recorded_outputs import Arrays, load_arrays, save_arrays
from incognita.models.detector import BoxFilter, HeadKind, gives_features, is_detector
from incognita.shapes import Float, Int, Shaped

_TRUTH = ("offsets", "xyxy", "class_ids", "sizes", "areas", "is_crowd", "is_difficult")
_OF_TRUTH = "truth."  # before the names of its columns


def save_images(folder: Path, dataset: Dataset) -> None:
    """Save ids, labels and objects of a set beside its outputs; their key covers all of them."""
    if (folder / IMAGES).exists():
        return
    arrays = {"image_ids": _text(list(map(str, dataset.image_ids)))}
    if dataset.labels is not None:
        arrays["labels"] = np.asarray(dataset.labels, np.int64)
    if dataset.source_classes is not None:
        arrays["source_classes"] = _text(list(map(str, dataset.source_classes)))
    if isinstance(dataset, BoxDataset):
        arrays |= _truth_arrays(dataset.truth())
    save_arrays(folder / IMAGES, arrays)


def _truth_arrays(truth: BoxTruth) -> Arrays:
    columns = {f"{_OF_TRUTH}{name}": getattr(truth, name) for name in _TRUTH}
    classes = truth.classes
    lists = {
        "image_ids": truth.image_ids.tolist(),
        "superclasses": truth.superclasses.tolist(),
        "classes": [classes.names, [role.value for role in classes.roles], classes.superclasses],
    }
    return columns | {f"{_OF_TRUTH}{name}": _text(value) for name, value in lists.items()}


def _text(value: Any) -> Shaped[np.ndarray, "bytes"]:
    """Return a value as the bytes of its JSON text, which takes a fraction of NumPy's text."""
    return np.frombuffer(json.dumps(value).encode(), np.uint8)


def _value(array: Shaped[np.ndarray, "bytes"]) -> Any:
    return json.loads(array.tobytes())


@dataclass(frozen=True, eq=False)
class StoredSet:
    """A set of which only the outputs are known; see `Dataset`.

    Args:
        name: Of the set, as in the run that recorded it.
        print: Its fingerprint.
        image_ids: One per image; none where the store has no outputs of the set.
        labels: Indices of known classes, or None.
        source_classes: Class names of the original data set, or None.
    """

    name: str
    print: str
    image_ids: Sequence[str] = field(default=(), repr=False)
    labels: Int[np.ndarray, "n"] | None = field(default=None, repr=False)
    source_classes: Sequence[str] | None = field(default=None, repr=False)

    def __len__(self) -> int:
        return len(self.image_ids)

    def load(self, index: int) -> Shaped[np.ndarray, "height width 3"]:
        raise MissingDataError(f"The store holds outputs of {self.name} and no images.")

    def fingerprint(self) -> str:
        return self.print

    def subset(self, indices: Sequence[int]) -> NoReturn:
        raise InvalidDataError(f"Stored outputs of {self.name} are used as a whole.")


@dataclass(frozen=True, eq=False)
class StoredBoxSet(StoredSet):
    """A set with annotated objects of which only the outputs are known; see `BoxDataset`."""

    objects: BoxTruth | None = None

    def truth(self) -> BoxTruth:
        assert self.objects is not None
        return self.objects


def load_images(folder: Path, name: str, fingerprint: str) -> StoredSet:
    """Load what the store remembers of a set; without images where it has none of its outputs."""
    path = folder / IMAGES
    if not path.exists():
        return StoredSet(name, fingerprint)
    try:
        arrays = load_arrays(path)
        ids, labels = tuple(_value(arrays["image_ids"])), arrays.get("labels")
        if f"{_OF_TRUTH}xyxy" in arrays:
            return StoredBoxSet(name, fingerprint, ids, labels, objects=_truth(arrays))
        names = tuple(_value(arrays["source_classes"])) if "source_classes" in arrays else None
        return StoredSet(name, fingerprint, ids, labels, names)
    except (KeyError, ValueError, TypeError) as error:
        raise InvalidDataError(
            f"{path} cannot be read. Delete it and run the benchmark again with the model."
        ) from error


def _truth(arrays: Arrays) -> BoxTruth:
    columns = {name: arrays[f"{_OF_TRUTH}{name}"] for name in _TRUTH}
    lists = ("image_ids", "superclasses", "classes")
    ids, superclasses, classes = (_value(arrays[f"{_OF_TRUTH}{name}"]) for name in lists)
    names, roles, above = classes
    return BoxTruth(
        ids,
        classes=Classes(tuple(names), tuple(map(Role, roles)), tuple(above)),
        superclasses=np.array(superclasses, object),
        **columns,
    )


@dataclass(frozen=True, eq=False)
class StoredClassifier:
    """A classifier that was run before, and cannot be run again; see `Classifier`.

    Args:
        name: Its name in results.
        class_names: Its classes.
        identity: Everything about it that could change an output, as in the key of its outputs.
        heads: Its linear layer, or those of a detector.
        head_reason: Why there is none.
        numerator: Where its numerators come from, if its logits are a quotient.
    """

    name: str
    class_names: tuple[str, ...]
    identity: Mapping[str, Any]
    heads: tuple[Head, ...]
    head_reason: str | None = None
    numerator: str | None = None
    module: nn.Module = field(default_factory=nn.Identity)

    @property
    def head(self) -> Head | None:
        """The linear layer of a classifier."""
        return self.heads[0] if self.heads else None

    @property
    def layers(self) -> tuple[str, ...]:
        """The names of the layers that can be recorded."""
        return tuple(self.identity["layers"])

    @property
    def weights_hash(self) -> str:
        """The hash of its weights."""
        return str(self.identity["weights_hash"])

    @property
    def preprocessing(self) -> str:
        """The description of its preprocessing."""
        return str(self.identity["preprocessing"])

    @property
    def pixel_std(self) -> Float[Tensor, "channels"]:
        """The divisor of pixels."""
        return torch.tensor(self.identity["pixel_std"], dtype=torch.float64)

    def preprocess(self, image: Shaped[np.ndarray, "height width 3"]) -> Any:
        """Raise: no image is read."""
        raise self.cannot_run()

    def forward(self, batch: Tensor, *args: Any, **options: Any) -> Any:
        """Raise: there is no network."""
        raise self.cannot_run()

    def cannot_run(self) -> MissingDataError:
        """Return the error for outputs that only the network could give."""
        return MissingDataError(
            f"Not all outputs of {self.name} are stored. Run the benchmark again with the model."
        )


@dataclass(frozen=True, eq=False)
class StoredDetector(StoredClassifier):
    """A detector that was run before, and cannot be run again; see `Detector`.

    Args:
        head_kind: How it turns logits into confidence.
        shares_features: Whether the features of all heads lie in one space.
        has_features: Whether its boxes have features.
        note: A remark for readers of its results.
    """

    head_kind: HeadKind = HeadKind.RECORDED
    shares_features: bool = True
    has_features: bool = True
    note: str | None = None

    @property
    def rules(self) -> BoxFilter:
        """Which boxes were kept."""
        return BoxFilter(**self.identity["rules"])

    def with_filter(self, **options: Any) -> "StoredDetector":
        """Return itself: boxes are stored as they are."""
        return self


def describe_model(model: Any) -> tuple[dict[str, Any], Arrays]:
    """Return what a run keeps of a model beside its identity: a JSON object, and its heads."""
    heads = model.heads if is_detector(model) else [h for h in [model.head] if h is not None]
    record = {"name": model.name, "class_names": list(model.class_names), "n_heads": len(heads)}
    record |= {name: getattr(model, name, None) for name in ("head_reason", "numerator")}
    if is_detector(model):
        record |= {
            "head_kind": str(model.head_kind),
            "shares_features": model.shares_features,
            "has_features": gives_features(model),
            "note": getattr(model, "note", None),
        }
    columns = {f"{k}.{name}": getattr(h, name) for k, h in enumerate(heads) for name in _HEAD}
    return record, {name: tensor.detach().cpu().numpy() for name, tensor in columns.items()}


def load_model_record(
    record: Mapping[str, Any], identity: Mapping[str, Any], arrays: Arrays
) -> StoredClassifier:
    """Build the stand-in of a model from what a run keeps of it."""
    given = dict(record)
    heads = tuple(
        Head(*(torch.from_numpy(arrays[f"{k}.{name}"]) for name in _HEAD))
        for k in range(given.pop("n_heads"))
    )
    given |= {"class_names": tuple(given["class_names"]), "identity": identity, "heads": heads}
    if "head_kind" not in given:
        return StoredClassifier(**given)
    return StoredDetector(**(given | {"head_kind": HeadKind(given["head_kind"])}))


_HEAD = ("weight", "bias")
