"""Any detector of a library that is known here, behind one face."""

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any, NamedTuple

from torch import Tensor, nn

from incognita.errors import InvalidDataError
from incognita.models.detector import Detector
from incognita.models.replicas import bare


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
    score_floor: float | None = None,
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
        score_floor: The smallest confidence of a kept box; what the library does by default, here
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
        detector = _wrapped(bare(module), options, special)
    elif isinstance(module, Detector):
        _refuse_options(module, options | special)
        detector = module
    else:
        raise _no_detector(module)
    return detector.with_rules(
        score_floor=score_floor, max_per_image=max_per_image, nms_iou=nms_iou
    )


def is_detector(module: nn.Module) -> bool:
    """Tell whether a network is a detector of one of the libraries.

    >>> is_detector(nn.Linear(2, 2))
    False
    """
    return _library_of(bare(module)) is not None


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
