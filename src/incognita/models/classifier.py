"""The classifier protocol, and the adapter that wraps any image classification network."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor, nn

from incognita.containers.outputs import Head
from incognita.errors import InvalidDataError, unknown_name
from incognita.models.fingerprints import PicklableAdapter, describe_callable, hash_weights
from incognita.models.introspection import (
    Change,
    LogitsKey,
    MapHook,
    Trace,
    attach_input,
    attach_output,
    could_be_head,
    eval_mode,
    features_from,
    find_head,
    find_layers,
    head_of,
    take_logits,
    tap_layers,
    trace,
    unwrap,
)
from incognita.models.preprocessing import InputSteps, Preprocessing, input_steps
from incognita.shapes import Float, Shaped


class Forward(NamedTuple):
    """Outputs of one call of a classifier.

    `maps` are the unchanged outputs of the recorded layers: [n, channels, height, width] or
    [n, tokens, channels].
    """

    logits: Float[Tensor, "n classes"]
    features: Float[Tensor, "n d"] | None
    maps: Mapping[str, Tensor]
    numerators: Float[Tensor, "n classes"] | None = None


@runtime_checkable
class Classifier(Protocol):
    """A network that classifies images, with its preprocessing.

    `weights_hash` and `preprocessing` are part of the key of stored outputs: they change whenever
    an output could. `pixel_std` is the divisor of pixels between 0 and 1, per channel, so that an
    input step can be expressed in pixels. `layers` names the modules whose maps are recorded.
    """

    name: str
    module: nn.Module
    class_names: Sequence[str]
    pixel_std: Float[Tensor, "channels"]
    preprocessing: str

    # read-only, because an adapter may compute them on access
    @property
    def head(self) -> Head | None: ...

    @property
    def layers(self) -> Sequence[str]: ...

    @property
    def weights_hash(self) -> str: ...

    def preprocess(self, image: Shaped[np.ndarray, "height width 3"]) -> Tensor:
        """Convert one uint8 RGB image to an input of the network."""

    def forward(self, batch: Tensor, *, replace_map: Any = None) -> Forward:
        """Call the network once on a preprocessed batch.

        `replace_map`, a pair of a layer name and a function, replaces the output of that layer
        (RankFeat).
        """


@dataclass(eq=False, repr=False)
class WrappedClassifier(PicklableAdapter):
    """A network as a `Classifier`, made by `wrap_classifier`.

    `head_reason` explains in one sentence why `head` is None. Without `states_preprocessing`
    pixels are only divided by 255 because nothing else is known; an evaluation does not accept
    that. Hooks exist only during a call, so that a classifier can be pickled and its module used
    elsewhere.
    """

    name: str
    module: nn.Module
    class_names: Sequence[str]
    pixel_std: Float[Tensor, "channels"]
    preprocessing: str
    preprocess_image: Callable[..., Any]
    place: LogitsKey
    taps: tuple[MapHook, ...]
    head_name: str | None = None
    head_reason: str | None = None
    numerator: str | None = None
    source: Path | None = None
    states_preprocessing: bool = True

    @property
    def layers(self) -> tuple[str, ...]:
        """The names of the layers whose maps are recorded."""
        return tuple(tap.layer for tap in self.taps)

    @property
    def head(self) -> Head | None:
        """The linear layer that computes the logits, with its current weights."""
        return (
            None if self.head_name is None else head_of(self.module.get_submodule(self.head_name))
        )

    @property
    def weights_hash(self) -> str:
        """The sha256 of the network with its current weights.

        Computed on every access: torch does not count writes through `tensor.data`, which is how
        weight averages are updated.
        """
        return hash_weights(self.module)

    def with_preprocess(self, preprocess: str | Callable[..., Any]) -> "WrappedClassifier":
        """Return the same classifier with another preprocessing, as `wrap_classifier` takes it."""
        preprocess = as_preprocessing(preprocess)
        std = self.pixel_std
        if isinstance(preprocess, Preprocessing) and len(std) == 3 and bool((std == 1).all()):
            std = std.new_tensor(preprocess.statistics.std)
        return replace(
            self,
            preprocess_image=preprocess,
            preprocessing=describe_callable(preprocess),
            pixel_std=std,
            states_preprocessing=True,
        )

    @property
    def input_steps(self) -> InputSteps:
        """What readers do with an image, and what is left to the device of the network."""
        return input_steps(self.preprocess_image)

    def preprocess(self, image: Shaped[np.ndarray, "height width 3"]) -> Tensor:
        """Convert one uint8 RGB image to an input of the network."""
        tensor = self.preprocess_image(image)
        return tensor if isinstance(tensor, Tensor) else torch.as_tensor(tensor)

    def forward(self, batch: Tensor, *, replace_map: tuple[str, Change] | None = None) -> Forward:
        """Call the network once on a preprocessed batch, with gradients where they are enabled.

        It runs in evaluation mode; its mode is restored afterwards.
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


def wrap_classifier(
    module: nn.Module,
    *,
    preprocess: str | Callable[..., Any] | None = None,
    class_names: Sequence[str] | None = None,
    layers: Sequence[str] | None = None,
    numerator: str | None = None,
    pixel_std: Sequence[float] | None = None,
    name: str | None = None,
    example: Tensor | Shaped[np.ndarray, "height width 3"] | None = None,
) -> WrappedClassifier:
    """Wrap any network as a classifier; its linear head is found by comparing outputs with logits.

    The network is called twice on a small example in evaluation mode; its mode is restored. A
    network without a linear head is wrapped too: `head` is then None and `head_reason` says why.

    Args:
        module: The network; returns logits [n, classes], alone, in a tuple, or as `logits`.
        preprocess: An `incognita.Preprocessing`, or its text such as "size=256 crop=224
            mean=imagenet std=imagenet"; or a function that converts a uint8 RGB array
            [height, width, 3] to a float tensor [channels, height, width]. By default pixels are
            only divided by 255, and `evaluate` asks for it unless the network or the benchmark
            says more; "none" means that this is right.
        class_names: One per logit; `class 0`, `class 1`, … by default.
        layers: Names of submodules whose maps are recorded; found automatically by default.
        numerator: Name of the submodule that computes h in a network whose logits are h / g
            (GODIN).
        pixel_std: Divisor of pixels between 0 and 1, per channel; by default that of a
            `Preprocessing`, else ones.
        name: Name of the classifier in results; the class of the network by default.
        example: A preprocessed batch, or an image, for a network that does not accept images of a
            common size.

    >>> classifier = wrap_classifier(nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, 10)))
    >>> classifier.head.weight.shape, classifier.class_names[9]
    (torch.Size([10, 3072]), 'class 9')
    """
    if not isinstance(module, nn.Module):
        raise InvalidDataError(f"Expected a torch module, got {module!r:.80}. Build the network.")
    module = unwrap(module)
    states_preprocessing = preprocess is not None
    preprocess = as_preprocessing("none" if preprocess is None else preprocess)
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
        states_preprocessing=states_preprocessing,
    )


def as_preprocessing(given: str | Callable[..., Any]) -> Callable[..., Any]:
    """Return preprocessing as a function of an image; text is parsed."""
    if isinstance(given, str):
        return Preprocessing.parse(given)
    if not callable(given):
        raise InvalidDataError(
            f"Expected preprocess to be text, a Preprocessing or a function, got {given!r:.80}."
        )
    return given


def _pixel_std(
    given: Sequence[float] | None, preprocess: Callable[..., Any], seen: Trace
) -> Float[Tensor, "channels"]:
    n_channels = seen.example.shape[1]
    if given is None and isinstance(preprocess, Preprocessing):
        given = preprocess.statistics.std
    if given is None:
        given = (1.0,) * n_channels
    if len(given) != n_channels:
        raise InvalidDataError(
            f"Expected one value of pixel_std per channel, got {len(given)} for a network with "
            f"{n_channels} channels."
        )
    return torch.tensor([float(std) for std in given], device=seen.example.device)


def _check_numerator(module: nn.Module, seen: Trace, name: str | None, n_classes: int) -> None:
    if name is None:
        return
    submodules = [path for path, _ in module.named_modules() if path]
    if name not in submodules:
        raise unknown_name("submodule", name, submodules)
    call = seen.only_call(name)
    if call is None or call.output_shape != (seen.n, n_classes):
        found = "is not called once" if call is None else f"returns {list(call.output_shape)}"
        raise InvalidDataError(
            f"The numerator {name!r} {found}, but numerators are [n, {n_classes}], one per logit; "
            f"name the submodule whose output is divided to get the logits."
        )
