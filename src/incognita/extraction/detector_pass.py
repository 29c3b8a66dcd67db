"""A detector made ready to be run, and what is recorded of the boxes it finds.

One forward pass serves boxes, logits, features and pooled layers. The copy that confuses the
detector (SAFE) takes one backward and one forward pass more, and only where it is asked for.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import log_softmax

from incognita.containers.needs import PerturbedLayers
from incognita.errors import InvalidDataError
from incognita.extraction.adapter_checks import AdapterChecks
from incognita.extraction.classifier_pass import exact_on, restoring
from incognita.extraction.feature_maps import pool_boxes
from incognita.extraction.image_loader import Inputs
from incognita.extraction.settings import LAYERS, OUTPUTS, OutputRequest, PassCount, Settings
from incognita.extraction.shards import BatchOutputs, Columns
from incognita.models.detector import Detector, DetectorForward, ImageDetections, PreprocessedImage

PLACE = "place"  # the boxes again in every group, so that groups recorded apart can be compared


def check_boxes_wanted(detector: Detector, wanted: OutputRequest, settings: Settings) -> None:
    """Refuse what a detector cannot be asked for, before it is run."""
    refuse_half_precision(settings)
    for extra in wanted.extra_outputs:
        if not isinstance(extra, PerturbedLayers):
            raise InvalidDataError(
                f"{type(extra).__name__} cannot be recorded of boxes; PerturbedLayers can."
            )
    if (wanted.layers or wanted.extra_outputs) and not detector.layers:
        raise InvalidDataError(
            f"Layers are asked for, but {detector.name} records none; name some when wrapping it."
        )


def refuse_half_precision(settings: Settings) -> None:
    """Refuse to run a detector in anything but float32."""
    if settings.precision != "float32":
        raise InvalidDataError(
            f"{settings.precision} was asked for, but detectors are run in float32: boxes are "
            f"chosen by comparing numbers that differ in their last bits."
        )


def identity_of_detector(detector: Detector) -> dict[str, Any]:
    """Give everything about a detector that could change an output."""
    return {
        "weights_hash": detector.weights_hash,
        "preprocessing": detector.preprocessing,
        "pixel_std": detector.pixel_std.tolist(),
        "layers": list(detector.layers),
        "rules": asdict(detector.rules),
        "class_names": list(detector.class_names),
    }


class DetectorNetwork:
    """Runs a detector; what was changed for that is changed back by `close`.

    Images of one shape are run together and no others: padding to a common size would let an
    image's boxes depend on its neighbors.
    """

    def __init__(self, detector: Detector, settings: Settings):
        self.device = torch.device(settings.device)
        self._detector = detector
        self._restore = restoring(detector.module)
        detector.module.eval().requires_grad_(False)
        detector.module.to(self.device)
        self._pixel_std = detector.pixel_std.to(self.device, torch.float32).view(1, -1, 1, 1)
        self.passes = PassCount()
        self._checks = AdapterChecks(detector)

    def record(self, inputs: Inputs, wanted: OutputRequest) -> BatchOutputs:
        """Run the detector on a batch and give the columns of each group, image by image."""
        assert isinstance(inputs, tuple)
        self.passes = self.passes.plus(PassCount(images=len(inputs)))
        found: dict[int, dict[str, Columns]] = {}
        for places in _by_shape(inputs):
            batch = torch.stack([inputs[k].pixels for k in places]).to(self.device)
            sizes = [(inputs[k].height, inputs[k].width) for k in places]
            found |= zip(places, self._of_one_shape(batch, sizes, wanted), strict=True)
        images = [found[k] for k in range(len(inputs))]
        groups = {group: _joined([image[group] for image in images]) for group in wanted}
        counts = tuple(len(next(iter(next(iter(i.values())).values()))) for i in images)
        return BatchOutputs(groups, counts)

    def exact(self) -> AbstractContextManager[None]:
        """Make CUDA compute the same in every run."""
        return exact_on(self.device)

    def close(self) -> None:
        """Leave the module as it was found."""
        self._restore()

    def _of_one_shape(
        self, batch: Tensor, sizes: Sequence[tuple[int, int]], wanted: OutputRequest
    ) -> list[dict[str, Columns]]:
        copies = [extra for extra in wanted.extra_outputs if isinstance(extra, PerturbedLayers)]
        with torch.set_grad_enabled(bool(copies)):
            watched = batch.detach().requires_grad_() if copies else batch
            out = self._forward(watched, sizes, layers=wanted.layers)
            self._checks.check(out, len(batch), layers=wanted.layers)
            gradient = self._gradient(out, watched) if copies else None
        with torch.no_grad():
            groups = _base_groups(out, wanted)
            for copy in copies:
                assert gradient is not None
                step = copy.epsilon / self._pixel_std * gradient.sign()
                confused = self._forward(batch + step, sizes, layers=True)
                groups[copy.key] = _pooled(confused, out)
        counts = [len(each.xyxy) for each in out.images]
        return _by_image(groups, counts)

    def _forward(
        self, batch: Tensor, sizes: Sequence[tuple[int, int]], *, layers: bool
    ) -> DetectorForward:
        self.passes = self.passes.plus(PassCount(forward=len(batch)))
        return self._detector.forward(batch, sizes, layers=layers)

    def _gradient(self, out: DetectorForward, batch: Tensor) -> Tensor:
        """Give the gradient of the loss of the labels that the detector gave itself."""
        losses = [_loss(image) for image in out.images if len(image.xyxy)]
        if not losses:
            return torch.zeros_like(batch)
        self.passes = self.passes.plus(PassCount(backward=len(batch)))
        (gradient,) = torch.autograd.grad(torch.stack(losses).sum(), batch)
        return gradient


def _loss(image: ImageDetections) -> Tensor:
    return -log_softmax(image.logits, dim=1).gather(1, image.class_ids[:, None]).sum()


def _by_shape(inputs: Sequence[PreprocessedImage]) -> list[list[int]]:
    shapes: dict[torch.Size, list[int]] = {}
    for place, each in enumerate(inputs):
        shapes.setdefault(each.pixels.shape, []).append(place)
    return list(shapes.values())


def _base_groups(out: DetectorForward, wanted: OutputRequest) -> dict[str, Columns]:
    groups: dict[str, Columns] = {}
    if wanted.outputs:
        groups[OUTPUTS] = {
            name: torch.cat([getattr(image, name) for image in out.images])
            for name in ImageDetections._fields
            if name != "rois" and all(getattr(image, name) is not None for image in out.images)
        }
    if wanted.layers:
        groups[LAYERS] = _pooled(out, out)
    return groups


def _pooled(maps_of: DetectorForward, boxes_of: DetectorForward) -> Columns:
    rois = [image.rois for image in boxes_of.images]
    pooled = pool_boxes(maps_of.maps, rois, boxes_of.input_size)
    return {PLACE: torch.cat([image.xyxy for image in boxes_of.images])} | pooled


def _by_image(groups: Mapping[str, Columns], counts: Sequence[int]) -> list[dict[str, Columns]]:
    images: list[dict[str, Columns]] = [{} for _ in counts]
    for group, columns in groups.items():
        for name, column in columns.items():
            for image, part in zip(images, torch.split(column, list(counts)), strict=True):
                image.setdefault(group, {})[name] = part
    return images


def _joined(parts: Sequence[Columns]) -> Columns:
    return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
