"""Models under evaluation: classifiers and detectors of any library as adapters.

The names below are imported when they are first used, so that listing models needs no torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from incognita.registry import Registry

if TYPE_CHECKING:
    from incognita.models.classifier import Classifier as Classifier
    from incognita.models.classifier import wrap_classifier as wrap_classifier
    from incognita.models.detector import BoxFilter as BoxFilter
    from incognita.models.detector import Detector as Detector
    from incognita.models.detector import select_classes as select_classes
    from incognita.models.detector import wrap_detector as wrap_detector
    from incognita.models.libraries import LIBRARIES as LIBRARIES
    from incognita.models.libraries import ModelLibrary as ModelLibrary
    from incognita.models.libraries import library_examples as library_examples
    from incognita.models.load import load_model as load_model
    from incognita.models.preprocessing import FromPIL as FromPIL
    from incognita.models.preprocessing import Preprocessing as Preprocessing

MODELS = Registry(
    "model",
    {
        "terra:classifier": "incognita.models.embedded.terra_classifier:load_terra_classifier",
        "terra:detector": "incognita.models.embedded.terra_detector:load_wrapped_terra_detector",
        "digits:classifier": "incognita.models.embedded.digits:load_digits_classifier",
    },
)

_HOMES = {
    "BoxFilter": "detector",
    "Classifier": "classifier",
    "Detector": "detector",
    "FromPIL": "preprocessing",
    "LIBRARIES": "libraries",
    "ModelLibrary": "libraries",
    "Preprocessing": "preprocessing",
    "library_examples": "libraries",
    "load_model": "load",
    "select_classes": "detector",
    "wrap_classifier": "classifier",
    "wrap_detector": "detector",
}

__all__ = [
    "LIBRARIES",
    "MODELS",
    "BoxFilter",
    "Classifier",
    "Detector",
    "FromPIL",
    "ModelLibrary",
    "Preprocessing",
    "library_examples",
    "load_model",
    "select_classes",
    "wrap_classifier",
    "wrap_detector",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
