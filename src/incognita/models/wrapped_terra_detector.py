"""The embedded detector of Terra scenes, a small Faster R-CNN, ready to be evaluated."""

from incognita.models.embedded.terra_detector import CLASS_NAMES, load_terra_detector
from incognita.models.from_torchvision.detectors import (
    TorchvisionDetector,
    wrap_torchvision_detector,
)


def load_wrapped_terra_detector() -> TorchvisionDetector:
    """Give the trained detector that ships with incognita behind the face of all detectors."""
    return wrap_torchvision_detector(
        load_terra_detector(), class_names=CLASS_NAMES, name="terra-detector"
    )
