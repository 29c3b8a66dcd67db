"""Finds the linear head of a network by what its output is, not by its name."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from incognita.containers.outputs import Head
from incognita.errors import InvalidDataError
from incognita.models.introspection.trace import Trace
from incognita.shapes import Float

Place = str | int | None  # where the logits are in what a network gives; None: it is the logits

# the layer's arithmetic is repeated in another order: rounding, and TF32 on a GPU
_TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-3}
_HALF_TOLERANCE = 3e-2


class FoundHead(NamedTuple):
    """Where the logits are, the layer that gives them, or one sentence why there is none."""

    place: Place
    name: str | None
    reason: str | None


@dataclass(frozen=True)
class _Refusal:
    reason: str


def could_be_head(module: nn.Module) -> bool:
    """Whether a layer is linear in each position: `nn.Linear`, or a 1 x 1 convolution."""
    if isinstance(module, nn.Conv2d):
        return (
            module.kernel_size == module.stride == (1, 1)
            and module.padding in ((0, 0), "valid")
            and module.groups == 1
        )
    return isinstance(module, nn.Linear)


def find_head(module: nn.Module, seen: Trace, *, n_classes: int | None = None) -> FoundHead:
    """Find the last linear layer whose output is the logits.

    A layer qualifies when it is called once, its output (for a convolution, its mean over
    positions) equals the logits, weight · input + bias gives the same, and the logits become
    whatever the output is replaced with: a ReLU or a softmax behind it shows then. Where the
    network gives several tables, the first one that has a head is taken for the logits, else the
    first; with `n_classes` only those of that width.
    """
    places = _places(seen, n_classes)
    outcomes = [_head_of(module, seen, place) for place in places]
    for place, outcome in zip(places, outcomes, strict=True):
        if isinstance(outcome, str):
            return FoundHead(place, outcome, None)
    first = outcomes[0]
    return FoundHead(places[0], None, first.reason if isinstance(first, _Refusal) else None)


def take_logits(output: Any, place: Place) -> Float[Tensor, "n classes"]:
    """Take the logits out of what a network gives."""
    if place is None:
        found = output
    elif isinstance(place, int) or isinstance(output, Mapping):
        found = output[place]
    else:
        found = getattr(output, place)
    return found.flatten(1) if found.ndim > 2 else found  # type: ignore[no-any-return]


def features_from(value: Float[Tensor, "n ..."]) -> Float[Tensor, "n d"]:
    """Give what the head saw as one vector per image; a convolution's map is averaged."""
    return value.mean(dim=(2, 3)) if value.ndim == 4 else value


def head_of(layer: nn.Module) -> Head:
    """Give the weight and bias of a layer as a head; they share its memory."""
    weight = layer.weight.detach().flatten(1)  # type: ignore[operator]
    bias = layer.bias
    if not isinstance(bias, Tensor):
        return Head(weight, torch.zeros_like(weight[:, 0]))
    return Head(weight, bias.detach())


def _places(seen: Trace, n_classes: int | None) -> list[Place]:
    tables = {place: shape for place, shape in _tables(seen.output) if shape[0] == seen.n}
    if not tables:
        raise InvalidDataError(
            f"The network gave {_shown(seen.output)} for {seen.n} images, but a classifier gives "
            f"logits [n, classes], alone, in a tuple or as `logits`; wrap it in a module that does."
        )
    fitting = [place for place, shape in tables.items() if n_classes in (None, shape[1])]
    if not fitting:
        raise InvalidDataError(
            f"{n_classes} class names came, but the network gives {next(iter(tables.values()))[1]} "
            f"logits; give one name per logit, in their order."
        )
    return fitting


def _tables(output: Any) -> Iterator[tuple[Place, tuple[int, ...]]]:
    items: Iterator[tuple[Place, Any]]
    if isinstance(output, Tensor):
        items = iter([(None, output)])
    elif isinstance(output, Mapping):
        items = iter([("logits", output["logits"])] if "logits" in output else output.items())
    elif hasattr(output, "logits"):
        items = iter([("logits", output.logits)])
    else:
        items = enumerate(output) if isinstance(output, tuple | list) else iter(())
    for place, value in items:
        if isinstance(value, Tensor) and value.is_floating_point() and _is_table(value):
            yield place, tuple(value.shape[:2])


def _is_table(value: Tensor) -> bool:
    """Whether it is [n, classes], or [n, classes, 1, 1] as convolutions leave it."""
    return value.ndim >= 2 and all(side == 1 for side in value.shape[2:])


def _head_of(module: nn.Module, seen: Trace, place: Place) -> str | _Refusal:
    logits = take_logits(seen.output, place)
    last_first = sorted(
        ((name, call) for name, calls in seen.calls.items() for call in calls if call.tensors),
        key=lambda pair: -pair[1].order,
    )
    if not last_first:
        return _Refusal("The network has no linear layer.")
    refusal = _Refusal(
        f"The logits are not the output of a linear layer: {last_first[0][0]!r}, the last one "
        f"called, gives something else."
    )
    for name, call in last_first:
        features, output = map(_one_vector_each, call.tensors or ())
        if features is None or output is None or not _close(output, logits):
            continue
        problem = _problem(module, name, features, seen, place)
        if problem is None:
            return name
        refusal = _Refusal(problem)
    return refusal


def _problem(
    module: nn.Module, name: str, features: Tensor, seen: Trace, place: Place
) -> str | None:
    """Say why a layer whose output has the values of the logits is not the head, if it is not."""
    if len(seen.calls[name]) > 1:
        return f"Layer {name!r} gives the logits, but is called more than once in a pass."
    layer = module.get_submodule(name)
    if not _close(head_of(layer)(features), take_logits(seen.output, place)):
        return f"Layer {name!r} gives the logits, but not as weight · features + bias."
    if not _replacing_reaches_the_end(module, layer, seen, place):
        return f"Layer {name!r} gives the logits of an example, but they are changed after it."
    return None


def _replacing_reaches_the_end(
    module: nn.Module, layer: nn.Module, seen: Trace, place: Place
) -> bool:
    put: list[Tensor] = []

    def replace(_: nn.Module, args: Any, output: Tensor) -> Tensor:
        rng = torch.Generator().manual_seed(0)
        other = torch.randn(output.shape, generator=rng).to(output)
        put.append(other.clone())  # the next layer may work in place
        return other

    handle = layer.register_forward_hook(replace)
    try:
        with torch.no_grad():
            logits = take_logits(module(seen.example), place)
    finally:
        handle.remove()
    expected = _one_vector_each(put[-1])
    return expected is not None and _close(expected, logits)


def _one_vector_each(value: Tensor) -> Tensor | None:
    return features_from(value) if value.ndim in (2, 4) else None  # tokens are many vectors


def _close(a: Tensor, b: Tensor) -> bool:
    if a.shape != b.shape:
        return False
    tolerance = max(_TOLERANCE.get(each.dtype, _HALF_TOLERANCE) for each in (a, b))
    a, b = a.double(), b.double()
    return bool((a - b).abs().max() <= tolerance * b.abs().max().clamp_min(1e-6))


def _shown(output: Any) -> str:
    if isinstance(output, Tensor):
        return f"a tensor {list(output.shape)}"
    return f"a {type(output).__name__}"
