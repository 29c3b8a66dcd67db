"""The table of model libraries: how their models are loaded, wrapped and recognised.

To add a library, write one module with its loader (and, for detectors, its wrapper) and add one
entry to `LIBRARIES`. Entries name functions as text, so that no library is imported before it is
used; this module imports neither torch nor any of them.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pkgutil import resolve_name
from typing import Any


@dataclass(frozen=True)
class ModelLibrary:
    """A library whose models can be named behind `--model`.

    Args:
        prefix: What stands before the colon of a model's name; also the name of its package.
        load: `"module:function"` that takes the rest of the name and `ModelOptions`.
        usage: What users type, with a placeholder, such as `timm:NAME`.
        help: One line for `incognita list models`, with an example.
        extra: The extra of incognita that installs it; None if it is always installed.
        wrap: `"module:function"` that makes a `Detector` of a network; None if it has no detectors.
        detector_classes: Endings of class names by which a detector is recognised.
        detector_options: Options of `wrap_detector` that only some libraries take.
        detectors: The detector families in words, for error messages.
        configuration: The attribute with which its networks carry their preprocessing.
        preprocessing: `"module:function"` that makes the preprocessing of such a network.
    """

    prefix: str
    load: str
    usage: str
    help: str
    extra: str | None = None
    wrap: str | None = None
    detector_classes: tuple[str, ...] = ()
    detector_options: frozenset[str] = frozenset()
    detectors: str | None = None
    configuration: str | None = None
    preprocessing: str | None = None

    def loader(self) -> Callable[..., Any]:
        """Import the function that loads a model by name."""
        function: Callable[..., Any] = resolve_name(self.load)
        return function

    def wrapper(self) -> Callable[..., Any]:
        """Import the function that wraps a detector."""
        assert self.wrap is not None
        function: Callable[..., Any] = resolve_name(self.wrap)
        return function

    def recognizes(self, network: object) -> bool:
        """Return whether a network is a detector of this library, without importing the library."""
        return any(kind.__name__.endswith(self.detector_classes) for kind in self._classes(network))

    def configures(self, network: object) -> bool:
        """Return whether a network of this library carries its preprocessing."""
        configuration = self.configuration and getattr(network, self.configuration, None)
        return bool(configuration and self._classes(network))

    def _classes(self, network: object) -> list[type]:
        """Return the classes of this library that a network inherits from."""
        kinds = type(network).__mro__
        return [kind for kind in kinds if kind.__module__.partition(".")[0] == self.prefix]


_HERE = "incognita.models"

LIBRARIES = [
    ModelLibrary(
        prefix="timm",
        load=f"{_HERE}.from_timm:load_timm",
        usage="timm:NAME",
        help="A classifier of timm, such as timm:resnet18.a1_in1k.",
        extra="timm",
        configuration="pretrained_cfg",
        preprocessing=f"{_HERE}.from_timm:preprocessing_of",
    ),
    ModelLibrary(
        prefix="torchvision",
        load=f"{_HERE}.from_torchvision.classifiers:load_torchvision",
        usage="torchvision:NAME",
        help="A classifier or detector of torchvision, such as torchvision:resnet50.",
        wrap=f"{_HERE}.from_torchvision.detectors:wrap_torchvision_detector",
        detector_classes=("GeneralizedRCNN", "RetinaNet", "FCOS", "SSD"),
        detector_options=frozenset({"preprocess"}),
        detectors="Faster R-CNN, RetinaNet, FCOS, SSD",
    ),
    ModelLibrary(
        prefix="transformers",
        load=f"{_HERE}.from_transformers.classifiers:load_transformers",
        usage="transformers:FOLDER",
        help="A classifier or detector of transformers, from its folder.",
        extra="transformers",
        wrap=f"{_HERE}.from_transformers.detectors:wrap_transformers_detector",
        detector_classes=("ForObjectDetection",),
        detector_options=frozenset({"processor", "prompts"}),
        detectors="DETR, Deformable DETR, RT-DETR, OWL-ViT, OWLv2",
    ),
    ModelLibrary(
        prefix="ultralytics",
        load=f"{_HERE}.from_ultralytics:load_ultralytics_detector",
        usage="ultralytics:FILE",
        help="A YOLO detector of ultralytics (AGPL-3.0), from its file.",
        extra="ultralytics",
        wrap=f"{_HERE}.from_ultralytics:wrap_ultralytics_detector",
        detector_classes=("DetectionModel", "YOLO"),
        detectors="YOLO",
    ),
]


def library_examples() -> dict[str, str]:
    """Return what `--model` accepts from each library, with one line of help.

    >>> library_examples()["timm:NAME"]
    'A classifier of timm, such as timm:resnet18.a1_in1k.'
    """
    return {library.usage: library.help for library in LIBRARIES}


def library_of(network: object) -> ModelLibrary | None:
    """Return the library that a detector belongs to, by the name of a class it inherits from."""
    return next((library for library in LIBRARIES if library.recognizes(network)), None)


def carried_preprocessing(network: object) -> tuple[str, Callable[..., Any]] | None:
    """Return the preprocessing that a network carries, and the attribute it comes from."""
    for library in LIBRARIES:
        if library.configuration and library.preprocessing and library.configures(network):
            return library.configuration, resolve_name(library.preprocessing)(network)
    return None
