"""One call of a network on an example, watched: which submodules ran, and on what."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from incognita.errors import InvalidDataError

_SIDES = (32, 224, 64, 28, 96, 128, 160, 192, 256, 299, 384)  # tried in this order
_ROWS = 2  # one row could not tell a mean over the batch from a row


class Call(NamedTuple):
    """One call of a submodule: the first tensor that went in, and the first that came out.

    `tensors` are copies of the two, where they were asked for.
    """

    order: int
    input_shape: tuple[int, ...]
    output_shape: tuple[int, ...]
    is_float: bool
    tensors: tuple[Tensor, Tensor] | None = None


@dataclass
class Trace:
    """What was seen in one call of a network; submodules by name, in the order they finished."""

    example: Tensor
    output: Any = None
    calls: dict[str, list[Call]] = field(default_factory=dict)

    @property
    def n(self) -> int:
        """The number of images in the example."""
        return len(self.example)

    def only_call(self, name: str) -> Call | None:
        """Give the call of a submodule that was called once."""
        calls = self.calls.get(name, [])
        return calls[0] if len(calls) == 1 else None


def trace(
    module: nn.Module,
    preprocess: Callable[..., Any],
    example: Tensor | None,
    *,
    keep: Callable[[nn.Module], bool],
) -> Trace:
    """Call the network on an example and keep the tensors of the submodules that are asked for.

    Without an example, noise is preprocessed at the usual sizes until the network takes it.
    """
    if example is not None:
        return _watch_given(module, like_weights(module, example), keep)
    problems: list[str] = []
    tried: list[tuple[int, ...]] = []
    for side in _SIDES:
        try:
            candidate = like_weights(module, _noise(preprocess, side))
            if tuple(candidate.shape) not in tried:
                tried.append(tuple(candidate.shape))
                return _watch(module, candidate, keep)
        except Exception as error:  # whatever a network says about an input it cannot take
            problems.append(_in_short(error))
    raise InvalidDataError(
        f"The network took none of the example batches of shape {tried} ({problems[-1]}); "
        f"pass example=, a preprocessed batch that it takes."
    )


def first_tensor(value: Any) -> Tensor | None:
    """Give the first tensor of what a module takes or gives: itself, or in a tuple or mapping."""
    if isinstance(value, Tensor):
        return value
    if isinstance(value, Mapping):
        value = tuple(value.values())
    if isinstance(value, Sequence) and not isinstance(value, str):
        found = (first_tensor(each) for each in value)
        return next((each for each in found if each is not None), None)
    return None


def like_weights(module: nn.Module, batch: Tensor) -> Tensor:
    """Move a batch to the device and floating type of the first weights."""
    weights = next((p for p in module.parameters() if p.is_floating_point()), None)
    return batch if weights is None else batch.to(device=weights.device, dtype=weights.dtype)


def _noise(preprocess: Callable[..., Any], side: int) -> Tensor:
    rng = np.random.default_rng(side)
    images = rng.integers(0, 256, (_ROWS, side, side, 3), dtype=np.uint8)
    return torch.stack([torch.as_tensor(preprocess(image)) for image in images])


def _in_short(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:200]


def _watch_given(module: nn.Module, example: Tensor, keep: Callable[[nn.Module], bool]) -> Trace:
    try:
        return _watch(module, example, keep)
    except Exception as error:
        raise InvalidDataError(
            f"The network does not take the example batch of shape {list(example.shape)} "
            f"({_in_short(error)}); give pictures of the size it was made for, or a preprocessing "
            f"that makes them so."
        ) from error


def _watch(module: nn.Module, example: Tensor, keep: Callable[[nn.Module], bool]) -> Trace:
    seen = Trace(example)

    def watch(name: str, is_kept: bool) -> Callable[..., None]:  # noqa: FBT001 - two at one place
        def note(_: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
            before, after = first_tensor(args), first_tensor(output)
            before = first_tensor(kwargs) if before is None else before
            if before is None or after is None:
                return
            order = sum(map(len, seen.calls.values()))
            # copies, because the next layer may work in place
            tensors = (before.clone(), after.clone()) if is_kept else None
            shapes = tuple(before.shape), tuple(after.shape)
            call = Call(order, *shapes, after.is_floating_point(), tensors)
            seen.calls.setdefault(name, []).append(call)

        return note

    with ExitStack() as hooks, torch.no_grad():
        for name, submodule in module.named_modules():
            if name and not isinstance(submodule, torch.jit.ScriptModule):
                hook = watch(name, keep(submodule))
                handle = submodule.register_forward_hook(hook, with_kwargs=True)
                hooks.callback(handle.remove)
        seen.output = module(example)
    return seen
