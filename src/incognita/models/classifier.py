"""What the rest of incognita asks of a classifier, whatever library it comes from."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from torch import Tensor, nn

from incognita.containers.outputs import Head
from incognita.shapes import Float, Shaped


class Forward(NamedTuple):
    """What one call of the network gives.

    `maps` are the outputs of the layers as they are: [n, channels, height, width] or
    [n, tokens, channels].
    """

    logits: Float[Tensor, "n classes"]
    features: Float[Tensor, "n d"] | None
    maps: Mapping[str, Tensor]
    numerators: Float[Tensor, "n classes"] | None = None


@runtime_checkable
class Classifier(Protocol):
    """A network that names images, with its preprocessing.

    `weights_hash` and `preprocessing` go into the key of stored outputs: they change whenever an
    output could. `pixel_std` is what a pixel between 0 and 1 is divided by, per channel, so that a
    step of the input can be said in pixels. `layers` names the modules whose maps are recorded.
    """

    name: str
    module: nn.Module
    class_names: Sequence[str]
    pixel_std: Float[Tensor, "channels"]
    preprocessing: str

    # read only, because an adapter may work them out when they are asked for
    @property
    def head(self) -> Head | None: ...

    @property
    def layers(self) -> Sequence[str]: ...

    @property
    def weights_hash(self) -> str: ...

    def preprocess(self, image: Shaped[np.ndarray, "height width 3"]) -> Tensor:
        """Turn one uint8 RGB image into what the network takes."""

    def forward(self, batch: Tensor, *, replace_map: Any = None) -> Forward:
        """Call the network once on a preprocessed batch.

        `replace_map`, a pair of a layer's name and a function, changes that layer's output on the
        way (RankFeat).
        """
