"""The pass over a detector: boxes with logits, features and layers pooled over each box.

One forward pass serves them all. Extra outputs that step the input share one backward pass per
objective and take one forward pass each.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from incognita.containers import (
    Classes,
    Dataset,
    Detections,
    DetectorOutputs,
    ExtraOutput,
    Head,
    Role,
)
from incognita.errors import InvalidDataError
from incognita.extraction.feature_maps import pool_boxes
from incognita.extraction.loading import Inputs
from incognita.extraction.settings import (
    DETECTOR_LAYOUT,
    LAYERS,
    OUTPUTS,
    OutputRequest,
    Settings,
    ShardLayout,
)
from incognita.extraction.shards import ModelPass
from incognita.extraction.store import Columns, JoinedShards
from incognita.models.detector import (
    Detector,
    DetectorForward,
    ImageDetections,
    PreprocessedImage,
    check_classes,
    distinct_names,
)

_PLACE = "place"  # the boxes again in every group, so that groups recorded apart can be compared
_LARGEST_DRIFT = 0.01  # pixels between boxes of two runs that count as the same box
# tolerance between head and logits: relative, relative to the largest logit, rounding of the sum
_RELATIVE, _ABSOLUTE, _ROUNDING = 1e-3, 1e-2, 1e-5


class DetectorPass(ModelPass):
    """Runs a detector.

    Only images of one shape are run together: padding to a common size would make an image's boxes
    depend on its neighbors.
    """

    def __init__(self, detector: Detector, settings: Settings):
        super().__init__(detector.module, detector, settings)
        self._detector = detector
        self._checks = _AdapterChecks(detector)

    def record(
        self, inputs: Inputs, request: OutputRequest
    ) -> tuple[dict[str, Columns], tuple[int, ...] | None]:
        """Run the detector on a batch; return the columns by group and the boxes of each image."""
        assert isinstance(inputs, tuple)
        self.count(images=len(inputs))
        images: dict[int, dict[str, Columns]] = {}
        for places in _by_shape(inputs):
            pixels = self.on_device(torch.stack([inputs[k].pixels for k in places])).contiguous()
            sizes = [(inputs[k].height, inputs[k].width) for k in places]
            images |= zip(places, self._record_one_shape(pixels, sizes, request), strict=True)
        ordered = [images[k] for k in range(len(inputs))]
        groups = {group: _joined([image[group] for image in ordered]) for group in request}
        first = next(iter(request))
        return groups, tuple(len(next(iter(image[first].values()))) for image in ordered)

    def _record_one_shape(
        self, pixels: Tensor, sizes: Sequence[tuple[int, int]], request: OutputRequest
    ) -> list[dict[str, Columns]]:
        batch = DetectorBatch(self, pixels, sizes, request)
        groups: dict[str, Columns] = {}
        with torch.no_grad():
            if request.outputs:
                groups[OUTPUTS] = _box_columns(batch.base.images)
            if request.layers:
                groups[LAYERS] = batch.placed(batch.pooled(batch.base))
            for extra in request.extra_outputs:
                groups[extra.key] = batch.placed(extra.record(batch))
        return _by_image(groups, [len(image.xyxy) for image in batch.base.images])

    def forward(
        self, pixels: Tensor, sizes: Sequence[tuple[int, int]], *, layers: bool
    ) -> DetectorForward:
        """Call the detector once; gradients are followed where the caller allows them."""
        self.count(forward=len(pixels))
        return self._detector.forward(pixels, sizes, layers=layers)

    def check(self, out: DetectorForward, n_images: int, *, layers: bool) -> None:
        """Raise an error if the outputs of a call contradict what the adapter declares."""
        self._checks.check(out, n_images, layers=layers)


class DetectorBatch:
    """Images of one shape and their boxes, from which an extra output computes its columns.

    Args:
        model: The running detector.
        inputs: Preprocessed images [n, channels, height, width].
        sizes: Their heights and widths as they were read.
        request: All that is recorded of these images; gradients are computed for extra outputs
            with a `gradient_key`.
    """

    def __init__(
        self,
        model: DetectorPass,
        inputs: Tensor,
        sizes: Sequence[tuple[int, int]],
        request: OutputRequest,
    ):
        self.inputs, self.pixel_std = inputs, model.pixel_std
        self._model, self._sizes = model, sizes
        followed = [extra for extra in request.extra_outputs if extra.gradient_key is not None]
        with torch.set_grad_enabled(bool(followed)):
            watched = inputs.detach().requires_grad_() if followed else inputs
            self.base = model.forward(watched, sizes, layers=request.layers)
            model.check(self.base, len(inputs), layers=request.layers)
            self._gradients = model.gradients(followed, self.base, watched)

    def gradient(self, extra: ExtraOutput) -> Tensor:
        """Return the gradient of an extra output's objective with respect to the inputs."""
        return self._gradients[extra.gradient_key]

    def forward(self, inputs: Tensor) -> DetectorForward:
        """Run the detector again, on other inputs, with the maps of its layers."""
        return self._model.forward(inputs, self._sizes, layers=True)

    def pooled(self, out: DetectorForward) -> dict[str, Tensor]:
        """Pool the layers of a forward pass over the boxes of the plain one."""
        rois = [image.rois for image in self.base.images]
        return pool_boxes(out.maps, rois, self.base.input_size)

    def placed(self, columns: Columns) -> Columns:
        """Add the boxes to the columns of a group."""
        return {_PLACE: torch.cat([image.xyxy for image in self.base.images]), **columns}


def _by_shape(inputs: Sequence[PreprocessedImage]) -> list[list[int]]:
    shapes: dict[torch.Size, list[int]] = {}
    for place, image in enumerate(inputs):
        shapes.setdefault(image.pixels.shape, []).append(place)
    return list(shapes.values())


def _box_columns(images: Sequence[ImageDetections]) -> Columns:
    return {
        name: torch.cat([getattr(image, name) for image in images])
        for name in ImageDetections._fields
        if name != "rois" and all(getattr(image, name) is not None for image in images)
    }


def _by_image(groups: Mapping[str, Columns], counts: Sequence[int]) -> list[dict[str, Columns]]:
    images: list[dict[str, Columns]] = [{} for _ in counts]
    for group, columns in groups.items():
        parts = {name: torch.split(column, list(counts)) for name, column in columns.items()}
        for k, image in enumerate(images):
            image[group] = {name: split[k] for name, split in parts.items()}
    return images


def _joined(parts: Sequence[Columns]) -> Columns:
    return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}


def identity_of_detector(detector: Detector) -> dict[str, Any]:
    """Return everything about a detector that could change an output."""
    return {
        "weights_hash": detector.weights_hash,
        "preprocessing": detector.preprocessing,
        "pixel_std": detector.pixel_std.tolist(),
        "layers": list(detector.layers),
        "rules": asdict(detector.rules),
        "class_names": list(detector.class_names),
    }


def refuse_half_precision(settings: Settings) -> None:
    """Raise an error if a detector should run in anything but float32."""
    if settings.precision != "float32":
        raise InvalidDataError(
            f"Expected precision float32, got {settings.precision}: detectors are run in float32, "
            f"because boxes are selected by comparing numbers that differ in their last bits."
        )


@dataclass(frozen=True, eq=False)
class DetectorExtraction:
    """Extraction from a detector: one row per box."""

    model: Detector
    layout: ClassVar[ShardLayout] = DETECTOR_LAYOUT

    def check(self, request: OutputRequest, settings: Settings) -> None:
        """Raise an error if the detector cannot give what is requested."""
        refuse_half_precision(settings)
        request.check(name=self.model.name, layers=tuple(self.model.layers), of_boxes=True)

    def identity(self) -> dict[str, Any]:
        """Return everything about the detector that could change an output."""
        return identity_of_detector(self.model)

    def start(self, settings: Settings) -> DetectorPass:
        """Prepare the detector for running."""
        return DetectorPass(self.model, settings)

    def outputs(
        self, dataset: Dataset, request: OutputRequest, joined: JoinedShards
    ) -> DetectorOutputs:
        """Build the outputs of the boxes of all images that could be used."""
        columns = joined.columns[OUTPUTS] if joined.rows else _no_columns(self.model)
        boxes = {name: column.numpy() for name, column in columns.items()}
        detections = Detections(
            [str(dataset.image_ids[row]) for row in joined.rows],
            np.concatenate([[0], np.cumsum(joined.counts, dtype=np.int64)]).astype(np.int64),
            classes=_classes_of(self.model),
            **boxes,
        )
        groups = {group: _same_boxes(joined.columns[group], boxes["xyxy"]) for group in request}
        layers, extra_outputs = groups.get(LAYERS) or None, request.named(groups) or None
        return DetectorOutputs(detections, self.model.heads, layers, extra_outputs)


def _classes_of(detector: Detector) -> Classes:
    """Return the detector's classes, all of them known."""
    names = distinct_names(detector.class_names)
    return Classes(names, (Role.KNOWN,) * len(names))


def _same_boxes(columns: Columns, xyxy: np.ndarray) -> dict[str, Tensor]:
    """Return the columns of a group after checking that they belong to these boxes."""
    if _PLACE in columns and len(xyxy):
        drift = (columns[_PLACE] - torch.from_numpy(xyxy)).abs().max()
        if float(drift) > _LARGEST_DRIFT:
            raise InvalidDataError(
                "Stored outputs disagree on the position of boxes: they were recorded on machines "
                "that compute differently. Use another folder for the outputs."
            )
    return {name: column for name, column in columns.items() if name != _PLACE}


def _no_columns(detector: Detector) -> Columns:
    """Return the columns of a dataset without images."""
    n = len(detector.class_names)
    widths = [head.weight.shape[1] for head in detector.heads]
    columns = {"xyxy": torch.zeros(0, 4), "confidence": torch.zeros(0), "logits": torch.zeros(0, n)}
    if widths:
        columns["features"] = torch.zeros(0, max(widths))
    whole = torch.zeros(0, dtype=torch.int64)
    return columns | dict.fromkeys(("class_ids", "source_index", "head_index"), whole)


class _AdapterChecks:
    """Raises an error where the boxes contradict what the detector's adapter declares.

    These are errors of the adapter, not of an image, so they end the run. Whether the heads
    reproduce the logits is checked once, for the first boxes of a run.
    """

    def __init__(self, detector: Detector) -> None:
        self._detector = detector
        self._n_heads = max(1, len(detector.heads))
        self._columns: tuple[int | None, bool, bool] | None = None
        self._is_head_checked = False

    def check(self, out: DetectorForward, n_images: int, *, layers: bool) -> None:
        """Check one call for `n_images`; `layers` tells whether maps were requested."""
        self._refuse(
            len(out.images) != n_images, f"returned {len(out.images)} images for {n_images}"
        )
        for name in self._detector.layers if layers else ():
            self._refuse(name not in out.maps, f"returned no map of the layer {name}")
        for image in out.images:
            self._check_columns(image)
            self._check_rules(image.confidence)
            self._check_same_columns(image)
        filled = [image for image in out.images if len(image.xyxy)]
        if filled and not self._is_head_checked:
            self._is_head_checked = True
            self._check_heads(filled)

    def _refuse(self, is_wrong: bool, what: str) -> None:  # noqa: FBT001 - it is the condition
        if is_wrong:
            raise InvalidDataError(f"{self._detector.name} {what}. Correct its forward.")

    def _check_columns(self, image: ImageDetections) -> None:
        n = len(image.xyxy)
        for name, column in image._asdict().items():
            if column is not None:
                self._refuse(
                    len(column) != n,
                    f"returned {len(column)} rows of {name} for {n} boxes of an image",
                )
        check_classes(image, len(self._detector.class_names), self._detector.name)
        if image.covariance is not None:
            self._check_covariance(image.covariance, n)
        heads = image.head_index
        is_outside = (heads < 0) | (heads >= self._n_heads)
        self._refuse(
            bool(is_outside.any()), f"returned a head_index outside its {self._n_heads} heads"
        )

    def _check_covariance(self, covariance: Tensor, n: int) -> None:
        shape = tuple(covariance.shape)
        self._refuse(shape != (n, 4), f"returned covariance of shape {list(shape)} for {n} boxes")
        is_wrong = (covariance <= 0).any(dim=1)  # NaN is the image's fault, as in other columns
        self._refuse(
            bool(is_wrong.any()),
            f"returned the variances {covariance[is_wrong][:1].tolist()}, which must be above 0",
        )

    def _check_rules(self, confidence: Tensor) -> None:
        rules = self._detector.rules
        self._refuse(
            len(confidence) > rules.max_per_image,
            f"returned {len(confidence)} boxes of an image, but its max_per_image is "
            f"{rules.max_per_image}",
        )
        floor = rules.score_threshold - torch.finfo(confidence.dtype).eps
        below = confidence[confidence.double() < floor].tolist()
        self._refuse(
            bool(below),
            f"returned a box of confidence {below[0] if below else 0:.3g}, but its "
            f"score_threshold is {rules.score_threshold:g}",
        )

    def _check_same_columns(self, image: ImageDetections) -> None:
        """Check that all images have the same columns: what is recorded is one table."""
        width = None if image.features is None else int(image.features.shape[1])
        now = (width, image.background is not None, image.covariance is not None)
        before = self._columns or now
        self._refuse(
            width != before[0],
            f"returned {_features(width)} for one image and {_features(before[0])} for another "
            f"(an image without boxes has features [0, d])",
        )
        self._refuse(now[1] != before[1], "returned background for some images only")
        self._refuse(now[2] != before[2], "returned covariance for some images only")
        self._columns = now

    def _check_heads(self, images: Sequence[ImageDetections]) -> None:
        heads = self._detector.heads
        if not heads:
            return
        if images[0].features is None:
            raise InvalidDataError(
                f"{self._detector.name} has a linear head, but returns no features as its input. "
                f"Return them, or set its heads = () and has_features = False."
            )
        logits = torch.cat([image.logits for image in images]).detach().double()
        columns = [image.features for image in images if image.features is not None]
        features = torch.cat(columns).detach().double()
        index = torch.cat([image.head_index for image in images])
        for k, head in enumerate(heads):
            is_here = (index == k) & logits.isfinite().all(1) & features.isfinite().all(1)
            if is_here.any():
                self._compare(head, features[is_here], logits[is_here])

    def _compare(self, head: Head, features: Tensor, logits: Tensor) -> None:
        """Raise an error if a head does not reproduce the recorded logits."""
        weight, bias = head.weight.to(features), head.bias.to(features)
        n_classes, width = weight.shape
        if n_classes != logits.shape[1] or width > features.shape[1]:
            raise InvalidDataError(
                f"{self._detector.name} has a head from {width} features to {n_classes} classes, "
                f"but returns {features.shape[1]} features and {logits.shape[1]} logits. Correct "
                f"one of them, or set its heads = ()."
            )
        seen = features[:, :width]
        difference = (seen @ weight.T + bias - logits).abs()
        terms = seen.abs() @ weight.abs().T + bias.abs()
        allowed = _RELATIVE * logits.abs() + _ABSOLUTE * logits.abs().max() + _ROUNDING * terms
        if (difference > allowed).any():
            raise InvalidDataError(
                f"The linear head of {self._detector.name} does not reproduce its logits: they "
                f"differ by up to {float(difference.max()):.3g}, where the largest is "
                f"{float(logits.abs().max()):.3g}. Return features and heads that belong "
                f"together, or set its heads = ()."
            )


def _features(width: int | None) -> str:
    return "no features" if width is None else f"{width} features"
