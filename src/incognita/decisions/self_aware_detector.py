"""A detector with self-aware rules: images in, decisions and calibrated boxes out."""

from dataclasses import asdict, dataclass, field
from os import PathLike
from typing import Any

import numpy as np

from incognita.decisions.self_aware import SelfAware, SelfAwareOutput
from incognita.decisions.self_aware_files import load_self_aware
from incognita.errors import InvalidDataError

_ROUNDING = float(np.finfo(np.float32).eps)  # between a confidence and the threshold it passed


@dataclass(frozen=True, eq=False)
class SelfAwareDetector:
    """A detector that rejects images it does not understand and calibrates its boxes.

    Its classes are matched with those of the rules by name; boxes of further ones are left out.
    `note` is a sentence if the rules were fitted on a detector of another name, else None.

    Args:
        detector: A detector from `wrap_detector`, or a network that it accepts.
        rules: Fitted rules, or the path of a file that `save_self_aware` wrote.
        settings: How to run the network, as `extraction.settings.Settings`; such as the device.
    """

    detector: Any
    rules: Any
    settings: Any = None
    note: str | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        from incognita.models import detector as models

        rules = self.rules if isinstance(self.rules, SelfAware) else load_self_aware(self.rules)
        is_wrapped = models.is_detector(self.detector)
        detector = self.detector if is_wrapped else models.wrap_detector(self.detector)
        _check_filter(rules, detector.name, asdict(detector.rules))
        object.__setattr__(self, "note", _other_detector(rules, detector.name))
        if models.distinct_names(detector.class_names) != rules.known_names:
            detector = models.match_class_names(detector, rules.known_names, "the self-aware rules")
        object.__setattr__(self, "rules", rules)
        object.__setattr__(self, "detector", detector)

    def __repr__(self) -> str:
        note = f", {self.note}" if self.note else ""
        return f"SelfAwareDetector({self.detector.name}, {self.rules!r}{note})"

    def __call__(self, images: Any) -> SelfAwareOutput:
        """Decide about one image or several.

        Args:
            images: A path, an RGB array [height, width, 3] of uint8 or a PIL image; or a list of
                them.
        """
        from incognita.extraction.extract import detect

        for image in images if isinstance(images, list | tuple) else [images]:
            _check_image(image)
        options = {} if self.settings is None else {"settings": self.settings}
        output: SelfAwareOutput = self.rules.apply(detect(self.detector, images, **options))
        return output


def _check_image(image: Any) -> None:
    """Refuse what is neither a path nor a PIL image nor an array of pixels."""
    from PIL.Image import Image

    if isinstance(image, str | PathLike | Image):
        return
    what = type(image).__name__
    if isinstance(image, np.ndarray):
        is_gray_or_rgb = image.ndim == 2 or (image.ndim == 3 and image.shape[2] == 3)
        if image.dtype == np.uint8 and is_gray_or_rgb:
            return
        what = f"{image.dtype} {list(image.shape)}"
    raise InvalidDataError(
        f"Expected a path, a PIL image or an array [height, width, 3] of uint8 as image, got "
        f"{what}. Convert it."
    )


def _other_detector(rules: SelfAware, name: str) -> str | None:
    """Return a note on rules that were fitted on another detector, as far as they say so."""
    theirs = rules.metadata.get("detector", name)
    return None if theirs == name else f"with rules fitted on the detector {theirs}"


def _check_filter(rules: SelfAware, name: str, kept: dict[str, Any]) -> None:
    """Refuse a detector that drops boxes of which the rules were fitted."""
    lowest = rules.metadata.get("lowest_confidence", 1.0)
    if kept["score_threshold"] > lowest + _ROUNDING:
        raise InvalidDataError(
            f"Expected a detector with boxes from a confidence of {lowest:.3g} on, as those the "
            f"rules were fitted on, got {name}, which drops boxes below {kept['score_threshold']}. "
            f"Wrap it with the score_threshold it had then."
        )
    most = min(rules.metadata.get("most_boxes", 1), rules.max_per_image)
    if kept["max_per_image"] < most:
        raise InvalidDataError(
            f"Expected a detector with up to {most} boxes per image, as those the rules were "
            f"fitted on, got {name} with at most {kept['max_per_image']}. Wrap it with "
            f"max_per_image={most} or more."
        )
    nms_iou = rules.metadata.get("nms_iou", kept["nms_iou"])
    if kept["nms_iou"] != nms_iou:
        raise InvalidDataError(
            f"Expected a detector with nms_iou={nms_iou}, as that the rules were fitted on, got "
            f"{name} with nms_iou={kept['nms_iou']}. Wrap it with the nms_iou it had then."
        )
