"""Any network that names images as a classifier: its head, its layers, its preprocessing."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from incognita.containers.outputs import Head
from incognita.errors import InvalidDataError, unknown_name
from incognita.models.classifier import Forward
from incognita.models.fingerprints import PicklableAdapter, describe_callable, hash_weights
from incognita.models.introspection.head import (
    Place,
    could_be_head,
    features_from,
    find_head,
    head_of,
    take_logits,
)
from incognita.models.introspection.hooks import (
    Change,
    MapHook,
    attach_input,
    attach_output,
    eval_mode,
    unwrap,
)
from incognita.models.introspection.layers import find_layers, tap_layers
from incognita.models.introspection.trace import Trace, trace
from incognita.models.preprocessing import Preprocessing
from incognita.shapes import Float, Shaped


@dataclass(eq=False)
class WrappedClassifier(PicklableAdapter):
    """A network behind the face of `models.adapter.Classifier`; made by `wrap_classifier`.

    `head_reason` says in one sentence why there is no head, where there is none. Hooks live only
    during a call, so that a classifier can be pickled and its module used elsewhere.
    """

    name: str
    module: nn.Module
    class_names: Sequence[str]
    pixel_std: Float[Tensor, "channels"]
    preprocessing: str
    preprocess_image: Callable[..., Any]
    place: Place
    taps: tuple[MapHook, ...]
    head_name: str | None = None
    head_reason: str | None = None
    numerator: str | None = None
    source: Path | None = None

    @property
    def layers(self) -> tuple[str, ...]:
        """The names of the layers whose maps are recorded."""
        return tuple(tap.layer for tap in self.taps)

    @property
    def head(self) -> Head | None:
        """The linear layer that gives the logits, as the weights are now."""
        return (
            None if self.head_name is None else head_of(self.module.get_submodule(self.head_name))
        )

    @property
    def weights_hash(self) -> str:
        """The sha256 of the network as it is now.

        It is computed each time, 29 ms for a ResNet-18: torch does not count writes through
        `tensor.data`, which is how averages of weights are kept.
        """
        return hash_weights(self.module)

    def preprocess(self, image: Shaped[np.ndarray, "height width 3"]) -> Tensor:
        """Turn one uint8 RGB image into what the network takes."""
        tensor = self.preprocess_image(image)
        return tensor if isinstance(tensor, Tensor) else torch.as_tensor(tensor)

    def forward(self, batch: Tensor, *, replace_map: tuple[str, Change] | None = None) -> Forward:
        """Call the network once on a preprocessed batch; gradients flow to it where enabled.

        It runs in evaluation mode, whatever mode it is in before and after.
        """
        layer, change = replace_map or (None, None)
        if layer is not None and layer not in self.layers:
            raise unknown_name("layer", layer, self.layers)
        maps: dict[str, Tensor] = {}
        found: dict[str, Tensor] = {}
        with eval_mode(self.module), ExitStack() as hooks:
            for tap in self.taps:
                own = change if tap.layer == layer else None
                hooks.callback(tap.attach(self.module, maps, own))
            if self.head_name is not None:
                attach_input(self.module, self.head_name, hooks, found, "features")
            if self.numerator is not None:
                attach_output(self.module, self.numerator, hooks, found, "numerators")
            logits = take_logits(self.module(batch), self.place)
        features = found.get("features")
        return Forward(
            logits,
            None if features is None else features_from(features),
            maps,
            found.get("numerators"),
        )

    def to(
        self, device: str | torch.device | None = None, dtype: torch.dtype | None = None
    ) -> "WrappedClassifier":
        """Move the network to a device or a floating type, in place."""
        self.module.to(device=device, dtype=dtype)
        self.pixel_std = self.pixel_std.to(device=device)
        return self


def wrap_classifier(
    module: nn.Module,
    *,
    preprocess: Callable[..., Any] | None = None,
    class_names: Sequence[str] | None = None,
    layers: Sequence[str] | None = None,
    numerator: str | None = None,
    pixel_std: Sequence[float] | None = None,
    name: str | None = None,
    example: Tensor | None = None,
) -> WrappedClassifier:
    """Make a classifier of any network; its linear head is found by what its output is.

    The network is called on a small example, twice, in evaluation mode; the mode it was in comes
    back. One that has no linear head is wrapped too: `head` is then None and `head_reason` says
    why.

    Args:
        module: The network; gives logits [n, classes], alone, in a tuple, or as `logits`.
        preprocess: Turns a uint8 RGB array [height, width, 3] into a float tensor
            [channels, height, width]; by default pixels are divided by 255 and nothing else.
        class_names: One per logit; `class 0`, `class 1`, … by default.
        layers: Names of submodules whose maps are recorded; found automatically by default.
        numerator: Name of the submodule that gives h in a network whose logits are h / g (GODIN).
        pixel_std: What a pixel between 0 and 1 is divided by; by default that of a
            `Preprocessing`, else ones.
        name: What results call the classifier; the class of the network by default.
        example: A preprocessed batch for a network that takes no picture of a usual size.

    >>> classifier = wrap_classifier(nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, 10)))
    >>> classifier.head.weight.shape, classifier.class_names[9]
    (torch.Size([10, 3072]), 'class 9')
    """
    module = unwrap(module)
    preprocess = Preprocessing() if preprocess is None else preprocess
    expected = None if class_names is None else len(class_names)
    with eval_mode(module):
        seen = trace(module, preprocess, example, keep=could_be_head)
        found = find_head(module, seen, n_classes=expected)
    n_classes = take_logits(seen.output, found.place).shape[1]
    _check_numerator(module, seen, numerator, n_classes)
    names = class_names or tuple(f"class {k}" for k in range(n_classes))
    taps = find_layers(module, seen) if layers is None else tap_layers(module, seen, layers)
    return WrappedClassifier(
        name=name or type(module).__name__,
        module=module,
        class_names=tuple(names),
        pixel_std=_pixel_std(pixel_std, preprocess, seen),
        preprocessing=describe_callable(preprocess),
        preprocess_image=preprocess,
        place=found.place,
        taps=taps,
        head_name=found.name,
        head_reason=found.reason,
        numerator=numerator,
    )


def _pixel_std(
    given: Sequence[float] | None, preprocess: Callable[..., Any], seen: Trace
) -> Float[Tensor, "channels"]:
    n_channels = seen.example.shape[1]
    if given is None and isinstance(preprocess, Preprocessing):
        given = preprocess.std
    if given is None:
        given = (1.0,) * n_channels
    if len(given) != n_channels:
        raise InvalidDataError(
            f"pixel_std has {len(given)} values, but the network takes {n_channels} channels; "
            f"give one value per channel."
        )
    return torch.tensor([float(each) for each in given], device=seen.example.device)


def _check_numerator(module: nn.Module, seen: Trace, name: str | None, n_classes: int) -> None:
    if name is None:
        return
    submodules = [each for each, _ in module.named_modules() if each]
    if name not in submodules:
        raise unknown_name("submodule", name, submodules)
    call = seen.only_call(name)
    if call is None or call.output_shape != (seen.n, n_classes):
        given = "is not called once" if call is None else f"gives {list(call.output_shape)}"
        raise InvalidDataError(
            f"The numerator {name!r} {given}, but numerators are [n, {n_classes}], one per logit; "
            f"name the submodule whose output is divided to give the logits."
        )
