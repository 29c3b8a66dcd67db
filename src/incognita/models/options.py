"""What a user may say about a model beside its name."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor


@dataclass(frozen=True)
class ModelOptions:
    """What `load_model` was told; None leaves it to the model (see there)."""

    weights: Path | None = None
    class_names: tuple[str, ...] | None = None
    preprocess: Callable[..., Any] | None = None
    layers: tuple[str, ...] | None = None
    example: Tensor | None = None

    @property
    def latent(self) -> str | None:
        """The layer of a detector that LaRD reads: the first."""
        return self.layers[0] if self.layers else None

    @property
    def shortcuts(self) -> tuple[str, ...] | None:
        """The layers of a detector that SAFE reads: those behind the first."""
        return (self.layers or ())[1:] or None
