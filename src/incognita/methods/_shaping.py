"""What methods share that reshape features and hand over to another method."""

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from copy import copy
from dataclasses import dataclass, field, replace
from typing import ClassVar

import torch
from torch import Tensor

from incognita.containers.needs import ExtraOutput, Needs
from incognita.containers.outputs import ClassifierOutputs, Head
from incognita.errors import InvalidDataError
from incognita.methods.method import Method
from incognita.methods.numerics.rows import ROWS, new_rows
from incognita.methods.softmax import Energy
from incognita.shapes import Float


@dataclass(eq=False)
class Shaping(Method):
    """Reshapes features, recomputes the logits, and lets `scorer` score the outcome.

    `scorer` sees reshaped features, the logits the head gives for them, and everything else as it
    was. It is fitted, as a copy, on reshaped known outputs if it learns anything. Features are
    reshaped in float64 and keep their type; logits are float64. A search tries the parameters of
    the first method only.
    """

    scorer: Method = field(default_factory=Energy, kw_only=True)
    needs: ClassVar[Needs] = Needs.FEATURES | Needs.HEAD

    @abstractmethod
    def reshape(self, outputs: ClassifierOutputs) -> ClassifierOutputs:
        """Give the outputs that `scorer` sees, of a few rows."""

    def settle_shape(self, known: ClassifierOutputs, validation: ClassifierOutputs) -> None:
        """Set the state that `reshape` needs beside the parameters; many methods have none."""
        return

    def finalize(self, known: ClassifierOutputs, validation: ClassifierOutputs) -> None:
        self.settle_shape(known, validation)
        if self.scorer.all_needs & (Needs.KNOWN | Needs.VALIDATION):
            self.scorer = copy(self.scorer)  # what somebody else fitted stays as it is
            held_out = None if validation is known else self._reshape_all(validation)
            self.scorer.fit(self._reshape_all(known), held_out)

    def score(self, outputs: ClassifierOutputs) -> Float[Tensor, "n"]:
        self.check(outputs)
        parts = [self.scorer.score(self.reshape(part)) for part in _row_parts(outputs)]
        return torch.cat(parts) if parts else torch.zeros(0, dtype=torch.float64)

    def _reshape_all(self, outputs: ClassifierOutputs) -> ClassifierOutputs:
        """Reshape any number of rows; large tables are written to files without a name."""
        assert outputs.features is not None
        features = new_rows(*outputs.features.shape)
        logits = new_rows(*outputs.logits.shape)
        first, head = 0, outputs.head
        for part in _row_parts(outputs):
            shaped = self.reshape(part)
            assert shaped.features is not None
            features[first : first + len(part)] = shaped.features
            logits[first : first + len(part)] = shaped.logits
            first, head = first + len(part), shaped.head
        device = outputs.features.device
        return replace(outputs, features=features.to(device), logits=logits.to(device), head=head)

    def extra_outputs(self) -> tuple[ExtraOutput, ...]:
        return self.scorer.extra_outputs()

    def _check_fitted(self) -> None:
        if self.needs & (Needs.KNOWN | Needs.VALIDATION) and not self.state():
            raise InvalidDataError(f"{self.title} is not fitted yet; call fit(known) first.")
        self.scorer._check_fitted()


@dataclass(eq=False)
class FeatureShaping(Shaping):
    """Shaping that looks at the features alone."""

    @abstractmethod
    def shape(self, features: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
        """Reshape features, in the type they come in."""

    def shape_head(self, head: Head) -> Head:
        """Give the head that stands in for the network's; most methods keep it."""
        return head

    def reshape(self, outputs: ClassifierOutputs) -> ClassifierOutputs:
        assert outputs.features is not None
        assert outputs.head is not None
        features = self.shape(outputs.features.double())
        head = self.shape_head(outputs.head)
        logits = float64_logits(head, features)
        return outputs.reshaped(features.to(outputs.features.dtype), logits, head)


def float64_logits(head: Head, features: Float[Tensor, "n d"]) -> Float[Tensor, "n classes"]:
    """Apply a head to float64 features without rounding on the way."""
    # this way round, as many rows and few classes are multiplied up to twice as fast
    weight, bias = head.weight.to(features), head.bias.to(features)
    return torch.addmm(bias[:, None], weight, features.T).T.contiguous()


def _row_parts(outputs: ClassifierOutputs) -> Iterator[ClassifierOutputs]:
    """Cut outputs into parts of a few rows, as views."""
    if 0 < len(outputs) <= ROWS:
        yield outputs
        return
    for first in range(0, len(outputs), ROWS):
        rows = slice(first, first + ROWS)
        yield replace(
            outputs,
            image_ids=outputs.image_ids[rows],
            logits=outputs.logits[rows],
            features=None if outputs.features is None else outputs.features[rows],
            labels=None if outputs.labels is None else outputs.labels[rows],
            layers=_cut(outputs.layers, rows),
            extra_outputs=_cut(outputs.extra_outputs, rows),
        )


def _cut(columns: Mapping[str, Tensor] | None, rows: slice) -> dict[str, Tensor] | None:
    return None if columns is None else {name: t[rows] for name, t in columns.items()}
