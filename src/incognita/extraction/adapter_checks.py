"""What a detector gives is checked where it is recorded: a wrong adapter is refused, not measured.

These are errors of the adapter, not of an image, so each of them ends the run with a sentence.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from incognita.containers.outputs import Head
from incognita.errors import InvalidDataError
from incognita.models.detector import Detector, DetectorForward, ImageDetections, check_classes

# how far a head may be from the recorded logits: parts of each, of the largest, of what is summed
_RELATIVE, _ABSOLUTE, _ROUNDING = 1e-3, 1e-2, 1e-5
Shape = tuple[int | None, bool]  # the width of features and whether there is background


class AdapterChecks:
    """Refuses boxes that cannot be what the detector says of itself.

    Whether the heads give the logits is looked at once, for the first boxes of a run.
    """

    def __init__(self, detector: Detector) -> None:
        self._detector = detector
        self._n_heads = max(1, len(detector.heads))
        self._shape: Shape | None = None
        self._is_head_checked = False

    def check(self, out: DetectorForward, n_images: int, *, layers: bool) -> None:
        """Look at what one call for `n_images` gave; `layers` says whether maps were asked for."""
        self._refuse(len(out.images) != n_images, f"gave {len(out.images)} images for {n_images}")
        for name in self._detector.layers if layers else ():
            self._refuse(name not in out.maps, f"gave no map of the layer {name}")
        for image in out.images:
            self._check_columns(image)
            self._check_rules(image.confidence)
            self._check_shape(image)
        filled = [image for image in out.images if len(image.xyxy)]
        if filled and not self._is_head_checked:
            self._is_head_checked = True
            self._check_heads(filled)

    def _refuse(self, is_wrong: bool, what: str) -> None:  # noqa: FBT001 - it is the condition
        if is_wrong:
            raise InvalidDataError(f"{self._detector.name} {what}; correct its forward.")

    def _check_columns(self, image: ImageDetections) -> None:
        n = len(image.xyxy)
        for name, column in image._asdict().items():
            if column is not None:
                self._refuse(
                    len(column) != n, f"gave {len(column)} rows of {name} for {n} boxes of an image"
                )
        check_classes(image, len(self._detector.class_names), self._detector.name)
        heads = image.head_index
        is_outside = (heads < 0) | (heads >= self._n_heads)
        self._refuse(
            bool(is_outside.any()), f"gave a head_index that is none of its {self._n_heads} heads"
        )

    def _check_rules(self, confidence: Tensor) -> None:
        rules = self._detector.rules
        self._refuse(
            len(confidence) > rules.max_per_image,
            f"gave {len(confidence)} boxes of an image, but its max_per_image is "
            f"{rules.max_per_image}",
        )
        floor = rules.score_threshold - torch.finfo(confidence.dtype).eps
        below = confidence[confidence.double() < floor].tolist()
        self._refuse(
            bool(below),
            f"gave a box of confidence {below[0] if below else 0:.3g}, but its score_threshold is "
            f"{rules.score_threshold:g}",
        )

    def _check_shape(self, image: ImageDetections) -> None:
        """Refuse columns that only some images have: what is recorded is one table."""
        width = None if image.features is None else int(image.features.shape[1])
        shape = (width, image.background is not None)
        before = self._shape or shape
        self._refuse(
            shape[0] != before[0],
            f"gave {_features(shape)} for one image and {_features(before)} for another (an image "
            f"without boxes has features [0, d])",
        )
        self._refuse(shape[1] != before[1], "gave background for some images only")
        self._shape = shape

    def _check_heads(self, images: Sequence[ImageDetections]) -> None:
        heads = self._detector.heads
        if not heads:
            return
        if images[0].features is None:
            raise InvalidDataError(
                f"{self._detector.name} has a linear head, but gives no features that it could "
                f"see; let it give them, or set its heads = () and has_features = False."
            )
        logits = torch.cat([image.logits for image in images]).detach().double()
        features = torch.cat([_present(image.features) for image in images]).detach().double()
        index = torch.cat([image.head_index for image in images])
        for k, head in enumerate(heads):
            is_here = (index == k) & logits.isfinite().all(1) & features.isfinite().all(1)
            if is_here.any():
                self._compare(head, features[is_here], logits[is_here])

    def _compare(self, head: Head, features: Tensor, logits: Tensor) -> None:
        """Refuse a head that does not give the recorded logits."""
        weight, bias = head.weight.to(features), head.bias.to(features)
        n_classes, width = weight.shape
        if n_classes != logits.shape[1] or width > features.shape[1]:
            raise InvalidDataError(
                f"{self._detector.name} has a head from {width} features to {n_classes} classes, "
                f"but gives {features.shape[1]} features and {logits.shape[1]} logits; correct "
                f"one of them, or set its heads = ()."
            )
        seen = features[:, :width]
        difference = (seen @ weight.T + bias - logits).abs()
        terms = seen.abs() @ weight.abs().T + bias.abs()
        allowed = _RELATIVE * logits.abs() + _ABSOLUTE * logits.abs().max() + _ROUNDING * terms
        if (difference > allowed).any():
            raise InvalidDataError(
                f"The linear head of {self._detector.name} does not give its logits: they differ "
                f"by up to {float(difference.max()):.3g}, where the largest is "
                f"{float(logits.abs().max()):.3g}; give features and head that belong together, "
                f"or set its heads = ()."
            )


def _features(shape: Shape) -> str:
    return "no features" if shape[0] is None else f"{shape[0]} features"


def _present(features: Tensor | None) -> Tensor:
    assert features is not None
    return features
