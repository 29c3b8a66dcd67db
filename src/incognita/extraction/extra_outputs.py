"""The extra outputs of the methods: each class computes its own columns.

A new one is a class like these, in this or any other file: a frozen dataclass of `ExtraOutput`
with a `record` method that a method returns from `extra_outputs()`.
"""

import hashlib
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch
from torch import Tensor
from torch.nn.functional import log_softmax

from incognita.containers.needs import ExtraOutput
from incognita.errors import InvalidDataError, unknown_name
from incognita.extraction.classifier_pass import ClassifierBatch
from incognita.extraction.detector_pass import DetectorBatch
from incognita.extraction.feature_maps import gram_rows, pooled, without_largest_direction
from incognita.models.classifier import Forward
from incognita.models.detector import DetectorForward
from incognita.shapes import Float


@dataclass(frozen=True)
class GramRows(ExtraOutput):
    """Row sums of the Gram matrices of each layer's map, of several orders.

    Column `<layer>`: [n, powers, channels]. For a map F [channels, positions] and order p it is
    the p-th root, with the sign kept, of the row sums of F^p F^pT, powers element by element.
    """

    min_layers: ClassVar[int] = 1

    powers: tuple[int, ...] = (1, 2, 3, 4, 5)

    def record(self, batch: ClassifierBatch) -> dict[str, Tensor]:
        """Compute the row sums from the maps of the plain forward pass."""
        return {name: gram_rows(m, self.powers) for name, m in batch.base.maps.items()}


@dataclass(frozen=True)
class Numerators(ExtraOutput):
    """The numerators h of a network whose logits are h / g. Column `h`: [n, classes]."""

    @property
    def needs_numerator(self) -> bool:
        """Always."""
        return True

    def record(self, batch: ClassifierBatch) -> dict[str, Tensor]:
        """Take the numerators of the plain forward pass."""
        return {"h": _required(batch.base.numerators, self, "numerators")}


@dataclass(frozen=True)
class InputStep(ExtraOutput):
    """Outputs after one signed-gradient step of the input that raises the model's confidence.

    Columns `logits` [n, classes] and `features` [n, d] (where there is a head). The step goes up
    the gradient of the objective: log of the largest softmax of logits / temperature
    (`confidence`), the largest numerator of a network that has one (`numerator`); with the latter
    the column `logits` holds the numerators h at the stepped input, not h / g. epsilon is in units
    of pixels between 0 and 1, whatever normalization the model has.
    """

    forwards: ClassVar[int] = 1
    backwards: ClassVar[int] = 1

    epsilon: float
    temperature: float = 1.0
    objective: Literal["confidence", "numerator"] = "confidence"

    @property
    def needs_numerator(self) -> bool:
        """Whether the objective is the largest numerator."""
        return self.objective == "numerator"

    @property
    def gradient_key(self) -> Hashable:
        """The objective with its temperature; None for a step of length zero."""
        if not self.epsilon:
            return None
        return "numerator" if self.needs_numerator else ("confidence", self.temperature)

    def objective_values(self, base: Forward) -> Float[Tensor, "n"]:
        """Compute the log confidence or the largest numerator of each image."""
        if self.needs_numerator:
            return _required(base.numerators, self, "numerators").max(dim=1).values
        # in float64 the gradient of a confidence near 1 does not vanish
        return (base.logits.double() / self.temperature).log_softmax(dim=1).max(dim=1).values

    def record(self, batch: ClassifierBatch) -> dict[str, Tensor]:
        """Step up the gradient and run the network again."""
        after = _after_step(batch, self, self.epsilon)
        logits = after.logits
        if self.needs_numerator:
            logits = _required(after.numerators, self, "numerators")
        columns = {"logits": logits}
        return columns if after.features is None else columns | {"features": after.features}


@dataclass(frozen=True)
class AdaScaleStep(ExtraOutput):
    """Features after a step that raises the largest logit on the pixels that matter least to it.

    Column `features` [n, d]: x + epsilon * sign(gradient) on the `share` of input values whose
    gradient is smallest, epsilon in the normalized units the network sees, as in the paper's code.
    """

    forwards: ClassVar[int] = 1
    backwards: ClassVar[int] = 1

    share: float = 0.05
    epsilon: float = 0.5

    @property
    def gradient_key(self) -> Hashable:
        """The largest logit; None for a step of length zero."""
        return "largest logit" if self.epsilon else None

    def objective_values(self, base: Forward) -> Float[Tensor, "n"]:
        """Return the largest logit of each image."""
        return base.logits.max(dim=1).values

    def record(self, batch: ClassifierBatch) -> dict[str, Tensor]:
        """Move the input values of smallest gradient and run the network again."""
        after = batch.forward(self._stepped(batch)) if self.epsilon else batch.base
        return {"features": _required(after.features, self, "features")}

    def _stepped(self, batch: ClassifierBatch) -> Tensor:
        gradient = batch.gradient(self)
        flat = gradient.flatten(1)
        n_moved = int(self.share * flat.shape[1])
        moved = flat.abs().topk(n_moved, dim=1, largest=False).indices
        is_moved = torch.zeros_like(flat).scatter_(1, moved, 1.0).view_as(gradient)
        return batch.inputs + self.epsilon * is_moved * gradient.sign()


@dataclass(frozen=True, eq=False)
class MahalanobisStep(ExtraOutput):
    """Pooled features of a layer after a step towards the nearest class mean of that layer.

    Column `features` [n, channels]. The step goes down the gradient of the smallest squared
    Mahalanobis distance to the class means. Can be recorded only after a method was fitted.
    """

    forwards: ClassVar[int] = 1
    backwards: ClassVar[int] = 1
    min_layers: ClassVar[int] = 1

    layer: str
    means: Float[Tensor, "classes channels"]
    precision: Float[Tensor, "channels channels"]
    epsilon: float

    @property
    def key(self) -> str:
        """The layer, the step and a hash of the statistics."""
        digest = hashlib.sha256()
        for tensor in (self.means, self.precision):
            digest.update(tensor.detach().double().contiguous().cpu().numpy().tobytes())
        values = f"layer={self.layer},epsilon={self.epsilon},fit={digest.hexdigest()[:16]}"
        return f"MahalanobisStep({values})"

    @property
    def gradient_key(self) -> Hashable:
        """The layer and the statistics; None for a step of length zero."""
        return replace(self, epsilon=0.0).key if self.epsilon else None

    def check(self, *, name: str, layers: Sequence[str]) -> None:
        """Raise an error if the model does not record the layer."""
        if self.layer not in layers:
            raise unknown_name(f"layer of {name}", self.layer, layers)

    def objective_values(self, base: Forward) -> Float[Tensor, "n"]:
        """Compute the squared distance of each image to the nearest class mean."""
        features = pooled(base.maps[self.layer]).double()
        means = self.means.to(features.device, torch.float64)
        precision = self.precision.to(features.device, torch.float64)
        with torch.no_grad():  # |x|^2 is the same for all classes and can be left out
            cross = means @ precision
            nearest = ((cross * means).sum(dim=1) - 2 * features @ cross.mT).argmin(dim=1)
        difference = features - means[nearest]
        return ((difference @ precision) * difference).sum(dim=1)

    def record(self, batch: ClassifierBatch) -> dict[str, Tensor]:
        """Step down the gradient and pool the layer of another forward pass."""
        after = _after_step(batch, self, -self.epsilon)
        return {"features": pooled(after.maps[self.layer])}


@dataclass(frozen=True)
class LogitsWithoutTopDirection(ExtraOutput):
    """Logits of the network without the largest singular direction of a layer's map.

    Columns `last` and `previous` [n, classes]: of the last and of the second-to-last layer.
    """

    forwards: ClassVar[int] = 2
    min_layers: ClassVar[int] = 2

    def record(self, batch: ClassifierBatch) -> dict[str, Tensor]:
        """Run the network once per layer, with its map replaced."""
        columns = {"last": batch.layers[-1], "previous": batch.layers[-2]}
        return {
            name: batch.forward(batch.inputs, replace_map=(layer, without_largest_direction)).logits
            for name, layer in columns.items()
        }


@dataclass(frozen=True)
class PerturbedLayers(ExtraOutput):
    """Layers of a detector, pooled over its boxes, after a step that raises its loss (FGSM).

    Column `<layer>` [n, channels], of the same boxes in the same order as in the clean image. The
    step is epsilon * sign(gradient), in pixels between 0 and 1, up the gradient of the cross
    entropy, with the detector's own labels as the truth.
    """

    forwards: ClassVar[int] = 1
    backwards: ClassVar[int] = 1
    min_layers: ClassVar[int] = 1
    of_boxes: ClassVar[bool] = True

    epsilon: float = 8 / 255

    @property
    def gradient_key(self) -> Hashable:
        """The cross entropy, which has no parameters."""
        return "cross entropy"

    def objective_values(self, base: DetectorForward) -> Float[Tensor, "images"]:
        """Compute the cross entropy of each image that has boxes, summed over them."""
        losses = [
            -log_softmax(image.logits, dim=1).gather(1, image.class_ids[:, None]).sum()
            for image in base.images
            if len(image.xyxy)
        ]
        return torch.stack(losses) if losses else torch.zeros(0)

    def record(self, batch: DetectorBatch) -> dict[str, Tensor]:
        """Step up the gradient and pool the layers of another forward pass."""
        step = self.epsilon / batch.pixel_std * batch.gradient(self).sign()
        return batch.pooled(batch.forward(batch.inputs + step))


def _after_step(batch: ClassifierBatch, extra: ExtraOutput, length: float) -> Forward:
    """Run the network on x + length * sign(gradient), with the length in pixels."""
    if not length:  # the same inputs: no further pass
        return batch.base
    return batch.forward(batch.inputs + length * batch.gradient(extra).sign() / batch.pixel_std)


def _required(column: Tensor | None, extra: ExtraOutput, what: str) -> Tensor:
    if column is None:
        raise InvalidDataError(
            f"{type(extra).__name__} needs {what}, but the network has none. Leave out the method "
            f"that uses it, or choose a network that has them."
        )
    return column
