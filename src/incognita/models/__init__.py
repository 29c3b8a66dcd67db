"""Models under evaluation: classifiers and detectors of any library as adapters.

The names below are imported when they are first used, so that listing models needs no torch.
"""

from typing import TYPE_CHECKING

from incognita.registry import Registry, attach

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

__getattr__, __dir__, __all__ = attach(
    __name__,
    {
        ".classifier": ["Classifier", "wrap_classifier"],
        ".detector": ["BoxFilter", "Detector", "select_classes", "wrap_detector"],
        ".libraries": ["LIBRARIES", "ModelLibrary", "library_examples"],
        ".load": ["load_model"],
        ".preprocessing": ["FromPIL", "Preprocessing"],
    },
)
__all__ += ["MODELS"]
