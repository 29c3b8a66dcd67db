"""The inputs a method declares: columns of the outputs, fitting data and extra outputs."""

from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, fields
from enum import Flag, auto
from typing import Any, ClassVar

from torch import Tensor

from incognita.errors import InvalidDataError
from incognita.shapes import Float


class Needs(Flag):
    """The inputs of a method; join several with `|`.

    LOGITS, FEATURES, HEAD and LAYERS are columns of the outputs it scores. KNOWN means that it is
    fitted on outputs of the known training set, LABELS that it uses their true classes, and
    VALIDATION that it is fitted on held-out known outputs (or on the training outputs where there
    are none). MEMBERS are the logits of several networks on the same images. LATENT and SHORTCUTS
    are layers of a detector, pooled over each box, under names that begin with `latent/` and
    `shortcut/`.
    """

    LOGITS = auto()
    FEATURES = auto()
    HEAD = auto()
    LAYERS = auto()
    KNOWN = auto()
    LABELS = auto()
    VALIDATION = auto()
    MEMBERS = auto()
    LATENT = auto()
    SHORTCUTS = auto()


@dataclass(frozen=True)
class ExtraOutput(ABC):
    """Columns recorded in the pass in addition to logits, features and layers.

    A subclass is a frozen dataclass with a `record` method, in any file; a method that returns an
    instance from `extra_outputs()` finds its columns in `ClassifierOutputs.extra_outputs` under
    `f"{extra.key}/{column}"`. Ready-made ones are in `incognita.extraction.extra_outputs`.

    Class attributes:
        forwards: Forward passes per image beyond the one that computes the logits.
        backwards: Backward passes per image.
        min_layers: The number of layers a model must record.
        needs_numerator: Whether the logits must be a quotient with a numerator.
        of_boxes: Whether a row is a box of a detector; otherwise it is an image of a classifier.
    """

    forwards: ClassVar[int] = 0
    backwards: ClassVar[int] = 0
    min_layers: ClassVar[int] = 0
    of_boxes: ClassVar[bool] = False

    @property
    def needs_numerator(self) -> bool:
        """Whether the logits must be a quotient with a numerator."""
        return False

    @property
    def key(self) -> str:
        """A name that differs whenever a value that changes the columns does.

        It identifies stored columns, so a class whose formula changes needs another name.
        """
        values = ",".join(f"{field.name}={getattr(self, field.name)}" for field in fields(self))
        return f"{type(self).__name__}({values})"

    @property
    def gradient_key(self) -> Hashable:
        """What the input gradient depends on, or None where `record` uses no gradient.

        Extra outputs with equal keys share one backward pass.
        """
        return None

    def objective_values(self, base: Any) -> Float[Tensor, "n"]:
        """Compute the numbers whose sum is differentiated with respect to the inputs.

        Called only where `gradient_key` is not None, with the outputs of the plain forward pass.
        """
        raise NotImplementedError(
            f"{type(self).__name__} has a gradient_key, but defines no objective_values."
        )

    @abstractmethod
    def record(self, batch: Any) -> dict[str, Tensor]:
        """Compute the columns of one batch, one row per image or box.

        `batch` is a `ClassifierBatch`, or a `DetectorBatch` where `of_boxes`: inputs, outputs of
        the plain forward pass, the gradient of `objective_values`, and further forward passes.
        """

    def check(self, *, name: str, layers: Sequence[str]) -> None:
        """Raise an error if a model that records these layers cannot give the columns."""
        if len(layers) < self.min_layers:
            raise InvalidDataError(
                f"{type(self).__name__} needs maps of at least {self.min_layers} layers, but "
                f"{name} records {len(layers) or 'none'}. Name more when wrapping the model."
            )

    def missing_for(
        self, *, n_layers: int, has_numerator: bool, rows_are_boxes: bool
    ) -> str | None:
        """Return what a model lacks for this extra output, or None if it can be recorded."""
        if rows_are_boxes and not self.of_boxes:
            what = "input gradients" if self.backwards else "layer maps"
            return f"{what} of whole images, which are not recorded for boxes"
        if self.of_boxes and not rows_are_boxes:
            return "boxes of a detector"
        if self.needs_numerator and not has_numerator:
            return "a network whose logits are a quotient (wrap it with numerator=…)"
        if n_layers < self.min_layers:
            few = self.min_layers == 1
            return "maps of an inner layer" if few else f"maps of {self.min_layers} inner layers"
        return None
