"""The detector protocol, the base class of its adapters, and `wrap_detector`."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeGuard, TypeVar, runtime_checkable

import numpy as np
import torch
from torch import Tensor, nn

from incognita.containers.classes import find_spelling, plain
from incognita.containers.outputs import Head
from incognita.errors import InvalidDataError, count, unknown_name
from incognita.models.fingerprints import PicklableAdapter, source_of
from incognita.models.introspection import MapSource, unwrap
from incognita.models.libraries import LIBRARIES, library_of
from incognita.models.preprocessing import InputSteps, input_steps
from incognita.shapes import Float, Int, Shaped

LATENT = "latent/"  # before the name of the layer that LaRD reads
SHORTCUT = "shortcut/"  # before the names of the layers that SAFE reads


class HeadKind(StrEnum):
    """How a detector turns logits into confidence, as stated by its adapter."""

    SOFTMAX = "softmax with background"
    SIGMOID = "sigmoid"
    TEXT = "text-conditioned sigmoid"
    RECORDED = "recorded outputs"


@dataclass(frozen=True)
class BoxFilter:
    """Which boxes of a detector are kept; part of every result.

    Args:
        score_threshold: Smallest confidence of a kept box.
        max_per_image: Maximum number of boxes per image, most confident first.
        nms_iou: IoU above which the less confident of two boxes of a class is dropped; None for
            detectors without non-maximum suppression.
    """

    score_threshold: float = 0.05
    max_per_image: int = 100
    nms_iou: float | None = 0.5

    def __post_init__(self) -> None:
        if not 0 <= self.score_threshold < 1:
            raise InvalidDataError(
                f"score_threshold must be at least 0 and below 1, got {self.score_threshold}."
            )
        if self.max_per_image < 1:
            raise InvalidDataError(f"max_per_image must be at least 1, got {self.max_per_image}.")
        if self.nms_iou is not None and not 0 < self.nms_iou <= 1:
            raise InvalidDataError(f"nms_iou must be above 0 and at most 1, got {self.nms_iou}.")

    def changed(
        self, score_threshold: float | None, max_per_image: int | None, nms_iou: float | None
    ) -> "BoxFilter":
        """Return a filter with the values that are not None replaced."""
        if nms_iou is not None and self.nms_iou is None:
            raise InvalidDataError(
                f"nms_iou={nms_iou} has no effect: this detector drops no overlapping boxes; leave "
                f"it out."
            )
        given: dict[str, Any] = {
            "score_threshold": score_threshold, "max_per_image": max_per_image, "nms_iou": nms_iou
        }  # fmt: skip
        return replace(self, **{name: value for name, value in given.items() if value is not None})


class PreprocessedImage(NamedTuple):
    """One image as input of the network, and its original height and width.

    `pixels` are floats [channels, height, width]; or levels of uint8 [height, width, channels],
    which the device of the network normalizes.
    """

    pixels: Shaped[Tensor, "_ _ _"]
    height: int
    width: int


@dataclass(frozen=True)
class ImageReader:
    """Converts an image and keeps its original height and width."""

    read: Callable[..., Any]

    def __call__(self, image: Shaped[np.ndarray, "height width 3"]) -> PreprocessedImage:
        pixels = self.read(image)
        if isinstance(pixels, np.ndarray):
            pixels = np.require(pixels, requirements=("C", "W"))
        return PreprocessedImage(torch.as_tensor(pixels), *image.shape[:2])


def detector_steps(preprocess: Callable[..., Any]) -> InputSteps:
    """Return what readers do with an image of a detector, and what is left to its device."""
    steps = input_steps(preprocess)
    return steps._replace(read=ImageReader(steps.read))


class ImageDetections(NamedTuple):
    """The kept boxes of one image, most confident first.

    Args:
        xyxy: Corners in pixels of the original image.
        confidence: As computed by the library.
        class_ids: Indices into `class_names`; the kept label, which need not be the largest logit.
        logits: One row per box and one column per class, without background.
        background: The logit of background, where the head has one.
        features: Input of the linear head, padded with zeros to the widest of the heads.
        source_index: The proposal, query, patch or anchor that produced the box.
        head_index: Which of `heads` computed the logits; zeros where there is one or none.
        rois: The box in fractions [0, 1] of the network's input, padding included.
        covariance: The variances of the four coordinates, of a probabilistic detector.
    """

    xyxy: Float[Tensor, "boxes 4"]
    confidence: Float[Tensor, "boxes"]
    class_ids: Int[Tensor, "boxes"]
    logits: Float[Tensor, "boxes classes"]
    background: Float[Tensor, "boxes"] | None
    features: Float[Tensor, "boxes d"] | None
    source_index: Int[Tensor, "boxes"]
    head_index: Int[Tensor, "boxes"]
    rois: Float[Tensor, "boxes 4"]
    covariance: Float[Tensor, "boxes 4"] | None = None


class DetectorForward(NamedTuple):
    """Outputs of one call of a detector.

    `maps` are the outputs of the recorded layers, [n, channels, height, width], several where a
    layer is called once per level. `input_size` is the height and width of the input of the first
    layer, padding included.
    """

    images: tuple[ImageDetections, ...]
    maps: Mapping[str, tuple[Tensor, ...]]
    input_size: tuple[int, int]


@runtime_checkable
class Detector(Protocol):
    """An object detection network, with its preprocessing and its box filter.

    `weights_hash`, `preprocessing` and `rules` are part of the key of stored outputs. `pixel_std`
    is the divisor of pixels between 0 and 1. `heads` are the linear layers that compute the logits
    (without the rows of background): one, one per level or anchor, or none, and then `head_reason`
    explains why. `shares_features` states whether the features of all heads lie in one space.
    `layers` names the recorded maps: `latent/…` first, then `shortcut/…`.

    A detector may have the additional attribute `has_features`; see `gives_features`.
    """

    name: str
    module: nn.Module
    class_names: Sequence[str]
    pixel_std: Float[Tensor, "channels"]
    preprocessing: str
    rules: BoxFilter
    head_kind: HeadKind
    shares_features: bool
    head_reason: str | None

    @property
    def heads(self) -> tuple[Head, ...]: ...

    @property
    def layers(self) -> Sequence[str]: ...

    @property
    def weights_hash(self) -> str: ...

    def preprocess(self, image: Shaped[np.ndarray, "height width 3"]) -> PreprocessedImage:
        """Convert one uint8 RGB image to an input of the network."""

    def forward(
        self, batch: Tensor, sizes: Sequence[tuple[int, int]], *, layers: bool = False
    ) -> DetectorForward:
        """Call the network once on preprocessed images of one shape.

        `sizes` are the original heights and widths. Gradients are computed where the caller enables
        them. With `layers` the maps are returned too.
        """

    def with_filter(
        self,
        *,
        score_threshold: float | None = None,
        max_per_image: int | None = None,
        nms_iou: float | None = None,
    ) -> "Detector":
        """Return the same detector with another filter; None keeps a value."""


DetectorT = TypeVar("DetectorT", bound="DetectorAdapter")


@dataclass(eq=False, repr=False, kw_only=True)
class DetectorAdapter(PicklableAdapter, ABC):
    """Base class of the adapters of detectors: fields of the protocol, filter, checks of a batch.

    A subclass implements `heads`, `weights_hash`, `preprocess` and `detect`.
    """

    name: str
    module: nn.Module
    class_names: Sequence[str]
    pixel_std: Float[Tensor, "channels"]
    preprocessing: str
    rules: BoxFilter
    head_kind: HeadKind
    shares_features: bool = True
    head_reason: str | None = None
    recorded: tuple[MapSource, ...] = ()
    source: Path | None = None

    @property
    def layers(self) -> Sequence[str]:
        """The names of the recorded maps."""
        return tuple(source.layer for source in self.recorded)

    def forward(
        self, batch: Tensor, sizes: Sequence[tuple[int, int]], *, layers: bool = False
    ) -> DetectorForward:
        """Call the network once on preprocessed images of one shape; see `Detector`.

        It runs in evaluation mode; its mode is restored afterwards.
        """
        if batch.ndim != 4 or len(batch) != len(sizes):
            raise InvalidDataError(
                f"Expected a batch [n, channels, height, width] and n original sizes, got shape "
                f"{list(batch.shape)} and {len(sizes)} sizes."
            )
        if not len(batch):
            maps: dict[str, tuple[Tensor, ...]] = {name: () for name in self.layers if layers}
            return DetectorForward((), maps, (batch.shape[2], batch.shape[3]))
        return self.detect(batch, sizes, layers=layers)

    def with_filter(
        self: DetectorT,
        *,
        score_threshold: float | None = None,
        max_per_image: int | None = None,
        nms_iou: float | None = None,
    ) -> DetectorT:
        """Return a detector with another filter that shares the network; None keeps a value."""
        return replace(self, rules=self.rules.changed(score_threshold, max_per_image, nms_iou))

    @abstractmethod
    def detect(
        self, batch: Tensor, sizes: Sequence[tuple[int, int]], *, layers: bool
    ) -> DetectorForward:
        """Call the network on a batch of at least one image."""


def name_layers(module: nn.Module, latent: str, shortcuts: Sequence[str]) -> tuple[MapSource, ...]:
    """Return the layers that LaRD and SAFE read; raise where a name is not a submodule."""
    latent = latent.removeprefix(LATENT)
    shortcuts = [name.removeprefix(SHORTCUT) for name in shortcuts]
    submodules = [name for name, _ in module.named_modules() if name]
    for name in (latent, *shortcuts):
        if name not in submodules:
            raise unknown_name("layer", name, submodules)
    first = MapSource(f"{LATENT}{latent}", latent)
    return (first, *(MapSource(f"{SHORTCUT}{name}", name) for name in shortcuts))


def gives_features(detector: Detector) -> bool:
    """Return whether a detector returns features with its boxes.

    A detector with heads does; without heads it does unless its `has_features` is False.
    """
    return bool(detector.heads) or bool(getattr(detector, "has_features", True))


def check_classes(image: ImageDetections, n_classes: int, detector: str) -> None:
    """Check that logits and class ids fit the number of classes, which excludes background."""
    if tuple(image.logits.shape[1:]) != (n_classes,):
        raise InvalidDataError(
            f"{detector} returned logits of shape {list(image.logits.shape)} for its {n_classes} "
            f"classes; give one column per class, and background separately."
        )
    outside = image.class_ids[(image.class_ids < 0) | (image.class_ids >= n_classes)]
    if len(outside):
        raise InvalidDataError(
            f"{detector} returned the class id {int(outside[0])}, but its classes are 0 to "
            f"{n_classes - 1}; correct its forward."
        )


def steps_of(model: Any) -> InputSteps:
    """Return how images become inputs of a model; without such steps, by its `preprocess`."""
    steps: InputSteps | None = getattr(model, "input_steps", None)
    return InputSteps(model.preprocess, is_detached=False) if steps is None else steps


def is_detector(model: object) -> TypeGuard[Detector]:
    """Return whether a model is a detector, by its methods alone.

    `isinstance` with a protocol reads every property, and so would hash all weights.
    """
    return callable(getattr(type(model), "with_filter", None))


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
    unknown_class: str | None = None,
) -> Detector:
    """Wrap a network of torchvision, transformers or ultralytics as a detector.

    For any other network implement `incognita.models.detector.Detector`.

    Args:
        module: The network, or a wrapped detector to which another filter is applied.
        class_names: The known classes, without background; those of the network by default.
        score_threshold: Smallest confidence of a kept box; the value of the library by default.
        max_per_image: Maximum number of boxes per image; likewise.
        nms_iou: IoU above which the less confident of two boxes of a class is dropped; likewise.
        name: Name of the detector in results.
        preprocess: torchvision only: converts a uint8 RGB array to a tensor [3, height, width].
        latent: The submodule whose maps LaRD reads; the default depends on the family.
        shortcuts: The submodules whose maps SAFE reads; likewise.
        processor: transformers only: converts images, and texts, to inputs of the network.
        prompts: transformers only: one text per class, for detectors prompted by text.
        unknown_class: The class of an open-set detector for objects of no known class; by default
            the one called unknown, if there is one.
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
        raise _not_a_detector(module)
    detector = detector.with_filter(
        score_threshold=score_threshold, max_per_image=max_per_image, nms_iou=nms_iou
    )
    return detector if unknown_class is None else _with_unknown_class(detector, unknown_class)


def _with_unknown_class(detector: Detector, unknown_class: str) -> "SelectedClasses":
    if unknown_class not in detector.class_names:
        raise unknown_name(f"class of {detector.name}", unknown_class, detector.class_names)
    places = range(len(detector.class_names))
    return select_classes(detector, detector.class_names, places, unknown_class=unknown_class)


def is_detector_network(module: nn.Module) -> bool:
    """Return whether a network is a detector of a supported library.

    >>> is_detector_network(nn.Linear(2, 2))
    False
    """
    return library_of(unwrap(module)) is not None


def _wrapped(module: nn.Module, options: Mapping[str, Any], special: Mapping[str, Any]) -> Detector:
    library = library_of(module)
    if library is None:
        raise _not_a_detector(module)
    given = {option: value for option, value in special.items() if value is not None}
    for option in sorted(given.keys() - library.detector_options):
        raise InvalidDataError(
            f"Detectors of {library.prefix} do not take {option}=; leave it out."
        )
    detector: Detector = library.wrapper()(module, rules=None, **options, **given)
    return detector


def _refuse_options(detector: Detector, options: Mapping[str, Any]) -> None:
    given = [option for option, value in options.items() if value is not None]
    if given:
        raise InvalidDataError(
            f"{detector.name} is already wrapped, so {given[0]} cannot be changed; pass it where "
            f"its network is wrapped."
        )


def _not_a_detector(thing: object) -> InvalidDataError:
    supported = ", ".join(
        f"{library.prefix} ({library.detectors})" for library in LIBRARIES if library.detectors
    )
    return InvalidDataError(
        f"Expected a detector, got {type(thing).__name__}. Supported detectors are those of "
        f"{supported}; for any other network implement incognita.models.detector.Detector."
    )


@dataclass(eq=False, repr=False, kw_only=True)
class SelectedClasses(DetectorAdapter):
    """A detector restricted to some of its classes, in a given order.

    The filter of the inner detector is applied first; boxes of other classes are then dropped, and
    only the columns of the selected classes are kept in logits and heads. `places` are their
    indices in the inner detector. `note` is a remark for readers of its results, `unknown_class`
    the class for objects of no known class, where the detector has one.
    """

    inner: Detector
    places: tuple[int, ...]
    note: str | None = None
    unknown_class: str | None = None

    @property
    def heads(self) -> tuple[Head, ...]:
        """The rows of the selected classes of each linear layer."""
        rows = list(self.places)
        return tuple(Head(head.weight[rows], head.bias[rows]) for head in self.inner.heads)

    @property
    def has_features(self) -> bool:
        """Whether the inner detector returns features."""
        return gives_features(self.inner)

    @property
    def layers(self) -> Sequence[str]:
        """The names of the recorded maps."""
        return self.inner.layers

    @property
    def weights_hash(self) -> str:
        """The hash of the inner detector and of the selection."""
        return sha256(f"{self.inner.weights_hash} {self.places}".encode()).hexdigest()

    @property
    def input_steps(self) -> InputSteps:
        """The steps of the inner detector."""
        return steps_of(self.inner)

    def preprocess(self, image: Shaped[np.ndarray, "height width 3"]) -> PreprocessedImage:
        """Convert one uint8 RGB image to an input of the network."""
        return self.inner.preprocess(image)

    def detect(
        self, batch: Tensor, sizes: Sequence[tuple[int, int]], *, layers: bool
    ) -> DetectorForward:
        """Call the inner detector and drop the boxes of other classes."""
        out = self.inner.forward(batch, sizes, layers=layers)
        return out._replace(images=tuple(self._selected(image) for image in out.images))

    def with_filter(
        self,
        *,
        score_threshold: float | None = None,
        max_per_image: int | None = None,
        nms_iou: float | None = None,
    ) -> "SelectedClasses":
        """Return the same selection of the inner detector with another filter."""
        inner = self.inner.with_filter(
            score_threshold=score_threshold, max_per_image=max_per_image, nms_iou=nms_iou
        )
        return replace(select_classes(inner, self.class_names, self.places), **self._kept_remarks)

    @property
    def _kept_remarks(self) -> dict[str, Any]:
        return {"note": self.note, "unknown_class": self.unknown_class}

    def _selected(self, image: ImageDetections) -> ImageDetections:
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
    unknown_class: str | None = None,
) -> SelectedClasses:
    """Restrict a detector to some of its classes and rename them.

    Args:
        detector: The detector.
        class_names: New names of the selected classes.
        places: Their indices among the classes of the detector, without repetition.
        note: A remark for readers of its results.
        unknown_class: The one for objects of no known class.
    """
    n = len(detector.class_names)
    if len(set(places)) != len(places) or len(places) != len(class_names):
        raise InvalidDataError(
            f"Expected one place per class name, without repetition, got {len(class_names)} names "
            f"and the places {list(places)}."
        )
    if any(not 0 <= place < n for place in places):
        raise InvalidDataError(
            f"Expected places from 0 to {n - 1}, the classes of {detector.name}, got "
            f"{list(places)}."
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
        unknown_class=unknown_class,
    )


@dataclass(eq=False, repr=False, kw_only=True)
class KnownClasses(SelectedClasses):
    """The known classes of an open-set detector, which methods see.

    `inner` has one more class, the last: that of boxes it calls unknown.
    """

    def with_filter(
        self,
        *,
        score_threshold: float | None = None,
        max_per_image: int | None = None,
        nms_iou: float | None = None,
    ) -> "KnownClasses":
        """Return the same of the inner detector with another filter."""
        return known_classes(
            self.inner.with_filter(
                score_threshold=score_threshold, max_per_image=max_per_image, nms_iou=nms_iou
            )
        )


def known_classes(detector: Detector) -> KnownClasses:
    """Return the known classes of an open-set detector whose last class is that of the unknown."""
    selected = select_classes(
        detector, detector.class_names[:-1], range(len(detector.class_names) - 1)
    )
    given = {field.name: getattr(selected, field.name) for field in fields(selected) if field.init}
    return KnownClasses(**given | {"note": getattr(detector, "note", None)})


def find_unknown_class(detector: Detector, known: Sequence[str]) -> str | None:
    """Return the class of an open-set detector for objects of no known class, if it has one."""
    stated = getattr(detector, "unknown_class", None)
    if stated is not None:
        return str(stated)
    if "unknown" in map(plain, known):  # then it means something else
        return None
    return next((name for name in detector.class_names if plain(name) == "unknown"), None)


def distinct_names(class_names: Sequence[str]) -> tuple[str, ...]:
    """Return class names with the index behind a repeated one: COCO's have several "N/A".

    >>> distinct_names(["N/A", "car", "N/A"])
    ('N/A', 'car', 'N/A (2)')
    """
    given = list(class_names)
    return tuple(n if given.index(n) == k else f"{n} ({k})" for k, n in enumerate(given))


def match_class_names(detector: Detector, class_names: Sequence[str], owner: str) -> Detector:
    """Select the classes of these names, in this order and spelling; all must be there.

    Args:
        detector: The detector; it may have other classes as well.
        class_names: The names.
        owner: Whose names they are, for messages.
    """
    if list(detector.class_names) == list(class_names):
        return detector
    theirs = [plain(name) for name in detector.class_names]
    for name in class_names:
        if theirs.count(plain(name)) != 1:
            raise InvalidDataError(_class_error(detector, name, owner))
    places = [theirs.index(plain(name)) for name in class_names]
    n_others = len(theirs) - len(class_names)
    are = "is" if n_others == 1 else "are"
    note = (
        f"{count(n_others, 'class', 'classes')} of {detector.name} {are} not known here: "
        f"boxes of {'it' if n_others == 1 else 'them'} are left out"
    )
    return select_classes(detector, class_names, places, note=note if n_others else None)


def _class_error(detector: Detector, name: str, owner: str) -> str:
    n = [plain(theirs) for theirs in detector.class_names].count(plain(name))
    if n > 1:
        return f"{detector.name} has {n} classes called {name!r}. Give it distinct names."
    spelled = find_spelling(name, detector.class_names)
    guess = f" (its {spelled!r}?)" if spelled else ""
    return (
        f"{detector.name} has no class {name!r} of {owner}{guess}. Name all its classes as they "
        f"are spelled there: wrap_detector(network, class_names=…)."
    )
