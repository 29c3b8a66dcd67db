"""Any detector of a library that is known here, behind one face."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from incognita.containers.outputs import Head
from incognita.errors import InvalidDataError
from incognita.models.detector import (
    BoxFilter,
    Detector,
    DetectorForward,
    HeadKind,
    ImageDetections,
    PreprocessedImage,
    check_classes,
    gives_features,
)
from incognita.models.fingerprints import PicklableAdapter, source_of
from incognita.models.introspection.hooks import unwrap
from incognita.shapes import Float, Shaped


@dataclass(eq=False)
class SelectedClasses(PicklableAdapter):
    """The same detector with some of its classes, in an order of their own.

    Its rules choose boxes first; those of other classes are then dropped, and of logits and heads
    the columns of the chosen classes stay. `places` are these classes in the inner detector.
    """

    inner: Detector
    class_names: Sequence[str]
    places: tuple[int, ...]
    name: str
    module: nn.Module
    pixel_std: Float[Tensor, "channels"]
    preprocessing: str
    rules: BoxFilter
    head_kind: HeadKind
    shares_features: bool
    head_reason: str | None
    source: Path | None = None
    note: str | None = None  # what a reader of its numbers must be told

    @property
    def heads(self) -> tuple[Head, ...]:
        """The rows of the chosen classes of each linear layer."""
        rows = list(self.places)
        return tuple(Head(each.weight[rows], each.bias[rows]) for each in self.inner.heads)

    @property
    def has_features(self) -> bool:
        """Whether the inner detector gives features."""
        return gives_features(self.inner)

    @property
    def layers(self) -> Sequence[str]:
        """The names of the recorded maps."""
        return self.inner.layers

    @property
    def weights_hash(self) -> str:
        """The hash of the inner detector and of the choice."""
        return sha256(f"{self.inner.weights_hash} {self.places}".encode()).hexdigest()

    def preprocess(self, image: Shaped[np.ndarray, "height width 3"]) -> PreprocessedImage:
        """Turn one uint8 RGB image into what the network takes."""
        return self.inner.preprocess(image)

    def forward(
        self, batch: Tensor, sizes: Sequence[tuple[int, int]], *, layers: bool = False
    ) -> DetectorForward:
        """Call the network once and drop the boxes of other classes."""
        out = self.inner.forward(batch, sizes, layers=layers)
        return out._replace(images=tuple(self._chosen(image) for image in out.images))

    def with_filter(
        self,
        *,
        score_threshold: float | None = None,
        max_per_image: int | None = None,
        nms_iou: float | None = None,
    ) -> "SelectedClasses":
        """Give the same detector with other rules; what is None stays."""
        inner = self.inner.with_filter(
            score_threshold=score_threshold, max_per_image=max_per_image, nms_iou=nms_iou
        )
        return select_classes(inner, self.class_names, self.places, note=self.note)

    def _chosen(self, image: ImageDetections) -> ImageDetections:
        check_classes(image, len(self.inner.class_names), self.name)
        places = torch.tensor(self.places, device=image.class_ids.device)
        new_id = torch.full((len(self.inner.class_names),), -1, device=places.device)
        new_id[places] = torch.arange(len(places), device=places.device)
        class_ids = new_id[image.class_ids]
        is_ours = class_ids >= 0
        kept: dict[str, Any] = {
            name: None if column is None else column[is_ours]
            for name, column in image._asdict().items()
        }
        kept |= {"class_ids": class_ids[is_ours], "logits": image.logits[is_ours][:, places]}
        return ImageDetections(**kept)


def select_classes(
    detector: Detector,
    class_names: Sequence[str],
    places: Sequence[int],
    *,
    note: str | None = None,
) -> SelectedClasses:
    """Keep some classes of a detector under these names.

    Args:
        detector: What is run.
        class_names: Their names from now on.
        places: Where they stand among the detector's classes, each once.
        note: What a reader of its numbers must be told.
    """
    n = len(detector.class_names)
    if len(set(places)) != len(places) or len(places) != len(class_names):
        raise InvalidDataError(
            f"{len(class_names)} class names came with the places {list(places)}; give each class "
            f"one place of its own."
        )
    if any(not 0 <= place < n for place in places):
        raise InvalidDataError(
            f"{detector.name} has {n} classes, but place {max(places)} was asked for."
        )
    return SelectedClasses(
        inner=detector,
        class_names=tuple(class_names),
        places=tuple(places),
        name=detector.name,
        module=detector.module,
        pixel_std=detector.pixel_std,
        preprocessing=detector.preprocessing,
        rules=detector.rules,
        head_kind=detector.head_kind,
        shares_features=detector.shares_features,
        head_reason=detector.head_reason,
        source=source_of(detector),
        note=note,
    )


class _Library(NamedTuple):
    """Where a library's detectors are wrapped, and what only that wrapper takes."""

    home: str
    takes: frozenset[str]
    kinds: tuple[str, ...]


# a detector is known by the name of a class it inherits from: no library is imported to look
_LIBRARIES = {
    "torchvision": _Library(
        "incognita.models.from_torchvision.detectors:wrap_torchvision_detector",
        frozenset({"preprocess"}),
        ("GeneralizedRCNN", "RetinaNet", "FCOS", "SSD"),
    ),
    "transformers": _Library(
        "incognita.models.from_transformers.detectors:wrap_transformers_detector",
        frozenset({"processor", "prompts"}),
        ("ForObjectDetection",),
    ),
    "ultralytics": _Library(
        "incognita.models.from_ultralytics.detectors:wrap_ultralytics_detector",
        frozenset(),
        ("DetectionModel", "YOLO"),
    ),
}


def wrap_detector(
    module: nn.Module | Detector,
    *,
    class_names: Sequence[str] | None = None,
    score_threshold: float | None = None,
    max_per_image: int | None = None,
    nms_iou: float | None = None,
    name: str | None = None,
    preprocess: Callable[..., Any] | None = None,
    latent: str | None = None,
    shortcuts: Sequence[str] | None = None,
    processor: Any = None,
    prompts: Sequence[str] | Tensor | Mapping[str, Any] | None = None,
) -> Detector:
    """Make a detector of a network of torchvision, transformers or ultralytics.

    A network of another kind is used by implementing `incognita.models.detector.Detector`.

    Args:
        module: The network; a finished detector may get other rules.
        class_names: The known classes, without background; the network's own by default.
        score_threshold: The smallest confidence of a kept box; by default the library's own, here
            and for the next two.
        max_per_image: The most boxes of an image.
        nms_iou: Overlap above which the less sure of two boxes of a class is dropped.
        name: What results call the detector.
        preprocess: torchvision only: turns a uint8 RGB array into a tensor [3, height, width].
        latent: The submodule whose maps LaRD reads; each family has its own by default.
        shortcuts: The submodules whose maps SAFE reads; likewise.
        processor: transformers only: what turns images, and texts, into the network's input.
        prompts: transformers only: the texts of a detector that looks for texts, one per class.
    """
    options: dict[str, Any] = {
        "class_names": class_names,
        "name": name,
        "latent": latent,
        "shortcuts": shortcuts,
    }
    special = {"preprocess": preprocess, "processor": processor, "prompts": prompts}
    if isinstance(module, nn.Module):
        detector = _wrapped(unwrap(module), options, special)
    elif isinstance(module, Detector):
        _refuse_options(module, options | special)
        detector = module
    else:
        raise _no_detector(module)
    return detector.with_filter(
        score_threshold=score_threshold, max_per_image=max_per_image, nms_iou=nms_iou
    )


def is_detector(module: nn.Module) -> bool:
    """Tell whether a network is a detector of one of the libraries.

    >>> is_detector(nn.Linear(2, 2))
    False
    """
    return _library_of(unwrap(module)) is not None


def _library_of(module: nn.Module) -> str | None:
    for kind in type(module).__mro__:
        root = kind.__module__.partition(".")[0]
        if root in _LIBRARIES and kind.__name__.endswith(_LIBRARIES[root].kinds):
            return root
    return None


def _wrapped(module: nn.Module, options: Mapping[str, Any], special: Mapping[str, Any]) -> Detector:
    library = _library_of(module)
    if library is None:
        raise _no_detector(module)
    home, takes, _ = _LIBRARIES[library]
    given = {option: value for option, value in special.items() if value is not None}
    for option in sorted(given.keys() - takes):
        raise InvalidDataError(
            f"{option} was given, but detectors of {library} take none; leave it out."
        )
    place, _, wrap = home.partition(":")
    detector: Detector = getattr(import_module(place), wrap)(module, rules=None, **options, **given)
    return detector


def _refuse_options(detector: Detector, options: Mapping[str, Any]) -> None:
    given = [option for option, value in options.items() if value is not None]
    if given:
        raise InvalidDataError(
            f"{detector.name} is a finished detector, so {given[0]} cannot be set any more; set "
            f"it where its network is wrapped."
        )


def _no_detector(thing: object) -> InvalidDataError:
    return InvalidDataError(
        f"A {type(thing).__name__} came, but detectors are those of torchvision (FasterRCNN, "
        f"RetinaNet, FCOS, SSD), of transformers (DETR, Deformable DETR, RT-DETR, OWL-ViT, OWLv2) "
        f"and YOLO of ultralytics; for any other write a class with what "
        f"incognita.models.detector.Detector asks for."
    )
