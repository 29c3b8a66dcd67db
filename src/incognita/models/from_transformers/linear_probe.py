"""A backbone without classes of its own, and the linear layer that was trained on its features."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from incognita.containers.outputs import Head
from incognita.errors import InvalidDataError
from incognita.models.introspection.trace import first_tensor
from incognita.models.weights_io import read_weights
from incognita.models.wrap_classifier import WrappedClassifier, wrap_classifier
from incognita.shapes import Float

Pooling = Literal["cls", "cls+mean"]


class LinearProbe(nn.Module):
    """A backbone, its features pooled as the probe saw them, and the probe.

    Tokens [n, tokens, d] become the first one (`cls`), or the first one beside the mean of the
    others (`cls+mean`, as DINOv2's own linear evaluation); maps [n, d, h, w] their mean; vectors
    stay.
    """

    def __init__(
        self, backbone: nn.Module, head: Head, *, pooling: Pooling = "cls", n_registers: int = 0
    ) -> None:
        super().__init__()
        self.backbone, self.pooling, self.n_registers = backbone, pooling, n_registers
        self.head = linear_layer(head)

    def forward(self, batch: Tensor) -> Float[Tensor, "n classes"]:
        """Give the logits of the probe."""
        features = first_tensor(self.backbone(batch))
        if features is None:
            raise InvalidDataError("The backbone gave no tensor; a probe needs its features.")
        return self.head(self._pooled(features))  # type: ignore[no-any-return]

    def extra_repr(self) -> str:
        """Name the pooling, which the weights do not show."""
        return f"pooling={self.pooling!r}, n_registers={self.n_registers}"

    def _pooled(self, features: Tensor) -> Tensor:
        if features.ndim == 4:
            return features.mean(dim=(2, 3))
        if features.ndim == 2:
            return features
        if self.pooling == "cls":
            return features[:, 0]
        patches = features[:, 1 + self.n_registers :]
        return torch.cat([features[:, 0], patches.mean(dim=1)], dim=1)


def dinov2_probe(
    model: nn.Module,
    head: Head | str | Path,
    *,
    pooling: Pooling | None = None,
    preprocess: Callable[..., Any] | None = None,
    class_names: Sequence[str] | None = None,
    layers: Sequence[str] | None = None,
    name: str | None = None,
) -> WrappedClassifier:
    """Make a classifier of DINOv2, or any backbone, and a linear probe that was trained on it.

    Args:
        model: The backbone; its first output are tokens with the class token first, maps or
            vectors.
        head: The probe, or a file with its `weight` [classes, d] and `bias` [classes].
        pooling: What of the tokens the probe saw; by default the class token, or beside it the
            mean patch where the probe is twice as wide as the backbone says it is.
        preprocess: As for `wrap_classifier`.
        class_names: As for `wrap_classifier`.
        layers: As for `wrap_classifier`.
        name: As for `wrap_classifier`.
    """
    head = head if isinstance(head, Head) else read_probe(head)
    config = getattr(model, "config", None)
    width = getattr(config, "hidden_size", None)
    if pooling is None:
        is_double = width is not None and head.weight.shape[1] == 2 * width
        pooling = "cls+mean" if is_double else "cls"
    n_registers = getattr(config, "num_register_tokens", 0)
    module = LinearProbe(model, head, pooling=pooling, n_registers=n_registers)
    return wrap_classifier(
        module, preprocess=preprocess, class_names=class_names, layers=layers, name=name
    )


def read_probe(path: str | Path) -> Head:
    """Read a linear layer from a file with one matrix of weights and, mostly, its bias."""
    weights = read_weights(path)
    matrices = [tensor for tensor in weights.values() if tensor.ndim == 2]
    vectors = [tensor for tensor in weights.values() if tensor.ndim == 1]
    if len(matrices) != 1 or len(vectors) > 1:
        raise InvalidDataError(
            f"{path} holds {len(matrices)} matrices and {len(vectors)} vectors, but a linear probe "
            f"is one `weight` [classes, d] and one `bias` [classes]; save just that layer."
        )
    weight = matrices[0].float()
    return Head(weight, vectors[0].float() if vectors else torch.zeros(len(weight)))


def linear_layer(head: Head) -> nn.Linear:
    """Make a layer of a head."""
    n_classes, d = head.weight.shape
    layer = nn.Linear(d, n_classes)
    with torch.no_grad():
        layer.weight.copy_(head.weight)
        layer.bias.copy_(head.bias)
    return layer
