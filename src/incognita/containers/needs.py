"""What a method asks the one pass to record, and what it learns from."""

import hashlib
from dataclasses import dataclass, fields
from enum import Flag, auto
from typing import ClassVar, Literal

from torch import Tensor

from incognita.shapes import Float


class Needs(Flag):
    """What a method uses; join several with `|`.

    LOGITS, FEATURES, HEAD and LAYERS are columns of the outputs it scores. KNOWN means that it
    learns from outputs of the known training set, LABELS that it uses their true classes, and
    VALIDATION that it learns from held-out known outputs (and takes the training ones where there
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
class ExtraOutput:
    """Something recorded in the pass beside logits, features and layers.

    Its columns are in `ClassifierOutputs.extra_outputs` under `f"{extra.key}/{column}"`.
    `forwards` and `backwards` are its passes per image beyond the one for the logits.
    """

    forwards: ClassVar[int] = 0
    backwards: ClassVar[int] = 0

    @property
    def key(self) -> str:
        """A name that differs whenever a value that changes the columns does."""
        values = ",".join(f"{each.name}={getattr(self, each.name)}" for each in fields(self))
        return f"{type(self).__name__}({values})"


@dataclass(frozen=True)
class GramRows(ExtraOutput):
    """Row sums of the Gram matrices of each layer's map, of several orders.

    Column `<layer>`: [n, powers, channels]. For a map F [channels, positions] and order p it is
    the p-th root, with the sign kept, of the row sums of F^p F^pT, powers element by element.
    """

    powers: tuple[int, ...] = (1, 2, 3, 4, 5)


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


@dataclass(frozen=True)
class LogitsWithoutTopDirection(ExtraOutput):
    """Logits of the network when the largest singular direction of a layer's map is taken out.

    Columns `last` and `previous` [n, classes]: of the last and of the one but last layer map.
    """

    forwards: ClassVar[int] = 2


@dataclass(frozen=True)
class PerturbedLayers(ExtraOutput):
    """Layers of a detector, pooled over the boxes it found, after a step that confuses it.

    Column `<layer>` [n, channels], of the same boxes in the same order as in the clean image. The
    step is epsilon * sign(gradient), in pixels between 0 and 1, down the gradient of the log
    softmax of the labels that were given (FGSM, with the detector's own labels as the truth).
    """

    forwards: ClassVar[int] = 1
    backwards: ClassVar[int] = 1

    epsilon: float = 8 / 255


@dataclass(frozen=True)
class Numerators(ExtraOutput):
    """The numerators h of a network whose logits are h / g. Column `h`: [n, classes]."""


@dataclass(frozen=True, eq=False)
class MahalanobisStep(ExtraOutput):
    """Pooled features of a layer after a step towards the nearest class mean of that layer.

    Column `features` [n, channels]. The step goes down the gradient of the smallest squared
    Mahalanobis distance to the class means. Can be recorded only after a method was fitted.
    """

    forwards: ClassVar[int] = 1
    backwards: ClassVar[int] = 1

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
