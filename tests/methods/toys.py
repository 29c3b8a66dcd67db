"""Outputs of a network that never was: clusters of features, a head, layers and extra outputs."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from incognita.containers.needs import ExtraOutput
from incognita.containers.outputs import ClassifierOutputs, Head
from incognita.extraction.extra_outputs import (
    AdaScaleStep,
    GramRows,
    InputStep,
    LogitsWithoutTopDirection,
    MahalanobisStep,
    Numerators,
    PerturbedLayers,
)

LAYERS = {"stem": 6, "stage1": 8, "stage2": 10}
BOX_LAYERS = {"latent/rpn": 12, "shortcut/1": 6, "shortcut/2": 8}


class Toy:
    """A fixed world of `n_classes` clusters in `d` dimensions; unknown rows lie between them."""

    def __init__(self, n_classes: int = 4, d: int = 16, seed: int = 0, *, negative: bool = False):
        rng = torch.Generator().manual_seed(seed)
        self.n_classes, self.d, self.negative = n_classes, d, negative
        centers = torch.zeros(n_classes, d)
        for c in range(n_classes):
            centers[c, c % d :: n_classes] = 3.0
        self.centers = centers
        weight = centers / centers.norm(dim=1, keepdim=True).clamp_min(1e-9)
        weight = weight + 0.1 * torch.randn(n_classes, d, generator=rng)
        self.head = Head(weight, 0.1 * torch.randn(n_classes, generator=rng))
        self.mixers = {
            name: torch.randn(d, width, generator=rng) / d**0.5 for name, width in LAYERS.items()
        }

    def outputs(
        self, n: int, *, unknown: bool | str = False, seed: int = 1, prefix: str = ""
    ) -> ClassifierOutputs:
        """Rows of the clusters, or unknown ones.

        `True` lies between the clusters, `"faint"` in the direction of one but close to zero,
        `"aside"` in a direction that no class uses.
        """
        rng = torch.Generator().manual_seed(seed)
        labels = torch.arange(n) % self.n_classes
        noise = 0.5 * torch.randn(n, self.d, generator=rng)
        if unknown == "faint":
            features = 0.35 * self.centers[labels] + 0.3 * noise
        elif unknown == "aside":
            sign = 1.0 - 2.0 * (torch.arange(self.d) // self.n_classes % 2)
            features = self.centers[labels] * (1 + 0.6 * sign) + noise
        elif unknown:
            features = 0.8 * torch.rand(n, self.d, generator=rng) + noise * 0.6
        else:
            features = self.centers[labels] + noise
        if not self.negative:
            features = features.relu()
        layers = {name: features @ mixer for name, mixer in self.mixers.items()}
        ids = tuple(f"{prefix}{'u' if unknown else 'k'}{seed}-{k}" for k in range(n))
        return ClassifierOutputs(
            ids,
            self.head(features),
            features,
            None if unknown else labels,
            self.head,
            layers,
        )


def as_boxes(outputs: ClassifierOutputs) -> ClassifierOutputs:
    """Add the layers of a detector, pooled over boxes."""
    features = outputs.features
    rng = torch.Generator().manual_seed(7)
    layers = {
        name: features @ torch.randn(features.shape[1], width, generator=rng)
        for name, width in BOX_LAYERS.items()
    }
    return replace(outputs, layers={**(outputs.layers or {}), **layers})


def of_heads(outputs: ClassifierOutputs, n_heads: int = 2) -> ClassifierOutputs:
    """Let the rows come from several heads in turn, all of them alike."""
    heads = (outputs.head,) * n_heads
    return replace(outputs, head=None, heads=heads, head_index=torch.arange(len(outputs)) % n_heads)


def with_extra_outputs(
    outputs: ClassifierOutputs, extra_outputs: Sequence[ExtraOutput]
) -> ClassifierOutputs:
    """Add columns a pass might have recorded: steps help confident rows more, as they really do."""
    columns: dict[str, Tensor] = dict(outputs.extra_outputs or {})
    for extra in extra_outputs:
        columns |= {f"{extra.key}/{name}": t for name, t in _columns(extra, outputs).items()}
    return replace(outputs, extra_outputs=columns or None)


def _columns(extra: ExtraOutput, outputs: ClassifierOutputs) -> dict[str, Tensor]:
    logits, features, layers = outputs.logits, outputs.features, outputs.layers or {}
    if isinstance(extra, GramRows):
        return {
            name: torch.stack([(t.abs() + 0.1) ** (1 + 1 / p) for p in extra.powers], dim=1)
            for name, t in layers.items()
        }
    if isinstance(extra, InputStep):
        stepped = {"logits": logits * (1 + 50 * extra.epsilon)}
        return stepped if features is None else stepped | {"features": features * 1.01}
    if isinstance(extra, AdaScaleStep):
        return {"features": features * (1 - extra.epsilon * 0.1)}
    if isinstance(extra, LogitsWithoutTopDirection):
        return {"last": logits * 0.5, "previous": logits * 0.4}
    if isinstance(extra, Numerators):
        return {"h": logits * 0.3}
    if isinstance(extra, MahalanobisStep):
        t = layers[extra.layer]
        nearest = extra.means.to(t)[torch.cdist(t, extra.means.to(t)).argmin(dim=1)]
        return {"features": t + extra.epsilon * (nearest - t)}
    if isinstance(extra, PerturbedLayers):
        kept = {name: t for name, t in layers.items() if name in BOX_LAYERS}
        return {name: t * (1 - 20 * extra.epsilon) for name, t in kept.items()}
    raise TypeError(f"Write toy columns of {extra} here, so that contracts can score its methods.")
