"""Looks into a network: traces a call, records maps, finds the linear head and the layers.

Four parts: a trace of one call on an example; hooks that record or replace maps of submodules; the
linear head, found by comparing layer outputs with the logits; the layers whose maps are recorded.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from incognita.containers.outputs import Head
from incognita.errors import InvalidDataError, unknown_name
from incognita.shapes import Float

Change = Callable[[Tensor], Tensor]
LogitsKey = str | int | None  # where the logits are in the output; None: the output is the logits

_SIDES = (32, 224, 64, 28, 96, 128, 160, 192, 256, 299, 384)  # tried in this order
_ROWS = 2  # with one row, a mean over the batch would look like that row

# the layer's arithmetic is repeated in another order: rounding, and TF32 on a GPU
_TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-3}
_HALF_TOLERANCE = 3e-2

_MAX_LAYERS = 6
_WRAPPER_SHARE = 0.8
_INPUT = ".input"


# a trace of one call --------------------------------------------------------------------------


class LayerCall(NamedTuple):
    """One call of a submodule: shapes of its first input tensor and first output tensor.

    `tensors` are copies of the two, for the submodules that `trace` keeps.
    """

    order: int
    input_shape: tuple[int, ...]
    output_shape: tuple[int, ...]
    is_float: bool
    tensors: tuple[Tensor, Tensor] | None = None


@dataclass
class Trace:
    """Calls of the submodules during one call of a network, by name, in the order they finished."""

    example: Tensor
    output: Any = None
    calls: dict[str, list[LayerCall]] = field(default_factory=dict)

    @property
    def n(self) -> int:
        """The number of images in the example."""
        return len(self.example)

    def only_call(self, name: str) -> LayerCall | None:
        """Return the call of a submodule that was called exactly once, else None."""
        calls = self.calls.get(name, [])
        return calls[0] if len(calls) == 1 else None


def trace(
    module: nn.Module,
    preprocess: Callable[..., Any],
    example: Tensor | np.ndarray | None,
    *,
    keep: Callable[[nn.Module], bool],
) -> Trace:
    """Call the network on an example; copy the tensors of submodules for which `keep` is true.

    An example that is an image is preprocessed first. Without an example, preprocessed noise of
    common sizes is tried until the network accepts it.
    """
    if isinstance(example, np.ndarray):
        example = torch.stack(_ROWS * [torch.as_tensor(preprocess(example))])
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
        except Exception as error:  # networks raise anything for an input of the wrong size
            problems.append(_in_short(error))
    raise InvalidDataError(
        f"The network accepts none of the example batches of shape {tried} ({problems[-1]}); "
        f"pass example=, a preprocessed batch of the size it was made for."
    )


def first_tensor(value: Any) -> Tensor | None:
    """Return the first tensor of an input or output: itself, or in a tuple or mapping."""
    if isinstance(value, Tensor):
        return value
    if isinstance(value, Mapping):
        value = tuple(value.values())
    if isinstance(value, Sequence) and not isinstance(value, str):
        tensors = (first_tensor(item) for item in value)
        return next((tensor for tensor in tensors if tensor is not None), None)
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
            f"The network does not accept the example batch of shape {list(example.shape)} "
            f"({_in_short(error)}); pass images of the size it was made for, or a preprocessing "
            f"that resizes them."
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
            call = LayerCall(order, *shapes, after.is_floating_point(), tensors)
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


# hooks on maps --------------------------------------------------------------------------------


class MapLayout(Enum):
    """Order of the dimensions of a map in the network."""

    CHANNELS_FIRST = "n c h w"
    CHANNELS_LAST = "n h w c"
    TOKENS = "n tokens c"


@dataclass(frozen=True)
class MapHook:
    """The output of a submodule, or its input, under the name of a layer."""

    layer: str
    submodule: str
    layout: MapLayout
    is_input: bool = False

    def attach(
        self, module: nn.Module, maps: dict[str, Tensor], change: Change | None
    ) -> Callable[[], None]:
        """Put the map into `maps` in every call; returns a function that removes the hook."""
        target = module.get_submodule(self.submodule)

        def record(value: Any) -> Any:
            found = first_tensor(value)
            if found is None:
                return None
            seen = self._as_map(found)
            if change is None:
                maps[self.layer] = seen
                return None
            maps[self.layer] = change(seen)
            return _with_first_tensor(value, self._as_network(maps[self.layer]))

        if self.is_input:
            return target.register_forward_pre_hook(lambda _, args: record(args)).remove
        return target.register_forward_hook(lambda _, args, output: record(output)).remove

    def _as_map(self, value: Tensor) -> Tensor:
        return value.permute(0, 3, 1, 2) if self.layout is MapLayout.CHANNELS_LAST else value

    def _as_network(self, value: Tensor) -> Tensor:
        return value.permute(0, 2, 3, 1) if self.layout is MapLayout.CHANNELS_LAST else value


def attach_input(
    module: nn.Module, name: str, hooks: ExitStack, found: dict[str, Tensor], key: str
) -> None:
    """Put the first input tensor of a submodule into `found[key]` until the hooks are closed."""

    def read(_: nn.Module, args: Any, kwargs: Any) -> None:
        value = first_tensor(args)
        value = first_tensor(kwargs) if value is None else value
        if value is not None:
            found[key] = value

    target = module.get_submodule(name)
    hooks.callback(target.register_forward_pre_hook(read, with_kwargs=True).remove)


def attach_output(
    module: nn.Module, name: str, hooks: ExitStack, found: dict[str, Tensor], key: str
) -> None:
    """Put the first output tensor of a submodule into `found[key]` until the hooks are closed."""

    def read(_: nn.Module, args: Any, output: Any) -> None:
        value = first_tensor(output)
        if value is not None:
            found[key] = value

    hooks.callback(module.get_submodule(name).register_forward_hook(read).remove)


def _with_first_tensor(value: Any, new: Tensor) -> Any:
    """Return an output with its first tensor replaced."""
    if isinstance(value, Tensor):
        return new
    if isinstance(value, Mapping):
        key = next(key for key, item in value.items() if first_tensor(item) is not None)
        return type(value)({**value, key: _with_first_tensor(value[key], new)})  # type: ignore[call-arg]
    items = list(value)
    place = next(k for k, item in enumerate(items) if first_tensor(item) is not None)
    items[place] = _with_first_tensor(items[place], new)
    is_named = isinstance(value, tuple) and hasattr(value, "_fields")
    return type(value)(*items) if is_named else type(value)(items)


@contextmanager
def eval_mode(module: nn.Module) -> Iterator[None]:
    """Temporarily switch a network to evaluation mode; every submodule gets its mode back.

    >>> network = nn.Sequential(nn.Dropout())
    >>> with eval_mode(network):
    ...     network[0].training
    False
    >>> network[0].training
    True
    """
    # a frozen script has no mode
    training = [part for part in module.modules() if getattr(part, "training", False)]
    if training:
        module.eval()
    try:
        yield
    finally:
        for part in training:
            part.training = True


def unwrap(module: nn.Module) -> nn.Module:
    """Unwrap `DataParallel`, `DistributedDataParallel` and `torch.compile`, which hide submodules.

    >>> unwrap(nn.DataParallel(nn.Linear(2, 3)))
    Linear(in_features=2, out_features=3, bias=True)
    """
    if isinstance(module, nn.DataParallel | nn.parallel.DistributedDataParallel):
        return unwrap(module.module)
    inner = getattr(module, "_orig_mod", None)
    return unwrap(inner) if isinstance(inner, nn.Module) else module


class MapSource(NamedTuple):
    """A recorded layer: all maps of a submodule, or its map number `part`."""

    layer: str
    submodule: str
    part: int | None = None


@dataclass
class Recording:
    """Outputs of submodules during a call, and the grids on which tokens lie."""

    outputs: dict[str, list[Any]] = field(default_factory=dict)
    grids: list[tuple[int, int]] = field(default_factory=list)

    def maps(self, sources: Sequence[MapSource], n: int) -> dict[str, tuple[Tensor, ...]]:
        """Return the maps of each layer, [n, channels, height, width]."""
        return {source.layer: self._maps_of(source, n) for source in sources}

    def _maps_of(self, source: MapSource, n: int) -> tuple[Tensor, ...]:
        calls = self.outputs.get(source.submodule, [])
        if not calls:
            raise InvalidDataError(
                f"{source.submodule} was not called, so the layer {source.layer} has no map; name "
                f"a submodule that the network calls on the image."
            )
        maps = tuple(found for output in calls for found in self._as_maps(source, output, n))
        return maps if source.part is None else (maps[source.part],)

    def _as_maps(self, source: MapSource, output: Any, n: int) -> tuple[Tensor, ...]:
        first = first_tensor(output)
        if first is not None and len(first) == n and first.ndim == 4:
            return tuple(_maps_in(output))
        if first is not None and len(first) == n and first.ndim == 3:
            found = _on_grids(first, self.grids)
            if found is not None:
                return found
        shape = "no tensor" if first is None else str(list(first.shape))
        raise InvalidDataError(
            f"{source.submodule} returns {shape} for {n} images, but the layer {source.layer} must "
            f"be a map [n, channels, height, width], or tokens [n, height x width, channels] on "
            f"{' or '.join(f'{h} x {w}' for h, w in self.grids)}; name another submodule."
        )


@contextmanager
def recording(
    module: nn.Module, sources: Sequence[MapSource], grids: Sequence[str]
) -> Iterator[Recording]:
    """Record outputs of a network's submodules within the context.

    Args:
        module: The network.
        sources: The layers.
        grids: Names of submodules whose maps have the heights and widths on which tokens lie.
    """
    seen = Recording()

    def keep(name: str) -> Any:
        return lambda _, args, output: seen.outputs.setdefault(name, []).append(output)

    def note_grid(_: nn.Module, args: Any, output: Tensor) -> None:
        seen.grids.append((output.shape[-2], output.shape[-1]))

    names = dict.fromkeys(source.submodule for source in sources)
    handles = [module.get_submodule(name).register_forward_hook(keep(name)) for name in names]
    handles += [module.get_submodule(name).register_forward_hook(note_grid) for name in grids]
    try:
        yield seen
    finally:
        for handle in handles:
            handle.remove()


def _maps_in(value: Any) -> Iterator[Tensor]:
    """Return all maps in the output of a submodule, without the masks beside them."""
    if isinstance(value, Tensor):
        if value.ndim == 4 and value.is_floating_point():
            yield value
        return
    values = value.values() if isinstance(value, Mapping) else value
    if isinstance(values, str) or not hasattr(values, "__iter__"):
        return
    for item in values:
        yield from _maps_in(item)


def _on_grids(
    tokens: Float[Tensor, "n tokens channels"], grids: Sequence[tuple[int, int]]
) -> tuple[Tensor, ...] | None:
    """Arrange tokens on all grids in turn, or on one of them, with or without a class token."""
    sizes = [height * width for height, width in grids]
    n_tokens = tokens.shape[1]
    if n_tokens == sum(sizes):
        parts = torch.split(tokens, sizes, dim=1)
        return tuple(_laid_out(part, grid) for part, grid in zip(parts, grids, strict=True))
    for n_extra in (0, 1):
        if n_tokens - n_extra in sizes:
            grid = grids[sizes.index(n_tokens - n_extra)]
            return (_laid_out(tokens[:, n_extra:], grid),)
    return None


def _laid_out(
    tokens: Float[Tensor, "n tokens channels"], grid: tuple[int, int]
) -> Float[Tensor, "n channels height width"]:
    return tokens.transpose(1, 2).reshape(len(tokens), -1, *grid)


# the linear head ------------------------------------------------------------------------------


class FoundHead(NamedTuple):
    """Where the logits are, the name of the head, or one sentence why there is none."""

    place: LogitsKey
    name: str | None
    reason: str | None


@dataclass(frozen=True)
class _Refusal:
    reason: str


def could_be_head(module: nn.Module) -> bool:
    """Return whether a layer is linear at each position: `nn.Linear` or a 1 x 1 convolution."""
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
    positions) equals the logits, weight · input + bias equals them too, and replacing the output
    replaces the logits, which rules out a ReLU or a softmax after it. Where the network returns
    several tables, the first one that has a head is taken as the logits, else the first; with
    `n_classes` only tables of that width are considered.
    """
    places = _places(seen, n_classes)
    outcomes = [_head_of(module, seen, place) for place in places]
    for place, outcome in zip(places, outcomes, strict=True):
        if isinstance(outcome, str):
            return FoundHead(place, outcome, None)
    first = outcomes[0]
    return FoundHead(places[0], None, first.reason if isinstance(first, _Refusal) else None)


def take_logits(output: Any, place: LogitsKey) -> Float[Tensor, "n classes"]:
    """Return the logits in the output of a network."""
    if place is None:
        found = output
    elif isinstance(place, int) or isinstance(output, Mapping):
        found = output[place]
    else:
        found = getattr(output, place)
    return found.flatten(1) if found.ndim > 2 else found  # type: ignore[no-any-return]


def features_from(value: Float[Tensor, "n ..."]) -> Float[Tensor, "n d"]:
    """Return the input of the head as one vector per image; a map is averaged over positions."""
    return value.mean(dim=(2, 3)) if value.ndim == 4 else value


def head_of(layer: nn.Module) -> Head:
    """Return the weight and bias of a layer as a head that shares its memory."""
    weight = layer.weight.detach().flatten(1)  # type: ignore[operator]
    bias = layer.bias
    if not isinstance(bias, Tensor):
        return Head(weight, torch.zeros_like(weight[:, 0]))
    return Head(weight, bias.detach())


def _places(seen: Trace, n_classes: int | None) -> list[LogitsKey]:
    tables = {place: shape for place, shape in _tables(seen.output) if shape[0] == seen.n}
    if not tables:
        raise InvalidDataError(
            f"Expected logits [n, classes], alone, in a tuple or as `logits`, but the network "
            f"returned {_shown(seen.output)} for {seen.n} images; wrap it in a module that returns "
            f"logits."
        )
    fitting = [place for place, shape in tables.items() if n_classes in (None, shape[1])]
    if not fitting:
        raise InvalidDataError(
            f"Expected one class name per logit, got {n_classes} names for "
            f"{next(iter(tables.values()))[1]} logits; pass the names in the order of the logits."
        )
    return fitting


def _tables(output: Any) -> Iterator[tuple[LogitsKey, tuple[int, ...]]]:
    items: Iterator[tuple[LogitsKey, Any]]
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
    """Return whether a tensor is [n, classes], or [n, classes, 1, 1] as convolutions leave it."""
    return value.ndim >= 2 and all(side == 1 for side in value.shape[2:])


def _head_of(module: nn.Module, seen: Trace, place: LogitsKey) -> str | _Refusal:
    logits = take_logits(seen.output, place)
    last_first = sorted(
        ((name, call) for name, calls in seen.calls.items() for call in calls if call.tensors),
        key=lambda pair: -pair[1].order,
    )
    if not last_first:
        return _Refusal("The network has no linear layer.")
    refusal = _Refusal(
        f"The logits are not the output of a linear layer: that of {last_first[0][0]!r}, the last "
        f"one called, differs."
    )
    for name, call in last_first:
        features, output = map(_vectors, call.tensors or ())
        if features is None or output is None or not _close(output, logits):
            continue
        problem = _problem(module, name, features, seen, place)
        if problem is None:
            return name
        refusal = _Refusal(problem)
    return refusal


def _problem(
    module: nn.Module, name: str, features: Tensor, seen: Trace, place: LogitsKey
) -> str | None:
    """Return why a layer whose output equals the logits is not the head, or None if it is."""
    if len(seen.calls[name]) > 1:
        return f"Layer {name!r} returns the logits, but is called more than once in a pass."
    layer = module.get_submodule(name)
    if not _close(head_of(layer)(features), take_logits(seen.output, place)):
        return f"Layer {name!r} returns the logits, but not as weight · features + bias."
    if not _replacement_reaches_logits(module, layer, seen, place):
        return f"Layer {name!r} returns the logits of the example, but they are changed after it."
    return None


def _replacement_reaches_logits(
    module: nn.Module, layer: nn.Module, seen: Trace, place: LogitsKey
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
    expected = _vectors(put[-1])
    return expected is not None and _close(expected, logits)


def _vectors(value: Tensor) -> Tensor | None:
    return features_from(value) if value.ndim in (2, 4) else None  # tokens are many vectors


def _close(a: Tensor, b: Tensor) -> bool:
    if a.shape != b.shape:
        return False
    tolerance = max(_TOLERANCE.get(value.dtype, _HALF_TOLERANCE) for value in (a, b))
    a, b = a.double(), b.double()
    return bool((a - b).abs().max() <= tolerance * b.abs().max().clamp_min(1e-6))


def _shown(output: Any) -> str:
    if isinstance(output, Tensor):
        return f"a tensor {list(output.shape)}"
    return f"a {type(output).__name__}"


# the recorded layers --------------------------------------------------------------------------


def find_layers(module: nn.Module, seen: Trace) -> tuple[MapHook, ...]:
    """Choose at most six layers, evenly spaced, the last among them.

    Stages are the children of the network that return a map [n, c, h, w] or tokens [n, tokens, c];
    a child that holds nearly all weights, or is the only one with a series of blocks, is opened.
    In a transformer the layers are its blocks; in a convolutional network, its stages and the
    input of the first one (`layer1.input`, because a stem often ends in a functional ReLU); in a
    plain chain of layers, the outputs of each group of convolution, normalization, activation and
    pooling.
    """
    taps = _Finder(module, seen).taps()
    if taps and taps[-1].layout is MapLayout.TOKENS:
        taps = _blocks(module, taps)
    n = min(len(taps), _MAX_LAYERS)
    return tuple(taps[(k + 1) * len(taps) // n - 1] for k in range(n))


def tap_layers(module: nn.Module, seen: Trace, names: Sequence[str]) -> tuple[MapHook, ...]:
    """Find layers by name: `<submodule>`, or `<submodule>.input` for its input."""
    return tuple(_tap_named(module, seen, name) for name in names)


def _tap_named(module: nn.Module, seen: Trace, name: str) -> MapHook:
    submodules = dict(module.named_modules())
    is_input = name not in submodules and name.endswith(_INPUT)
    submodule = name.removesuffix(_INPUT) if is_input else name
    if submodule not in submodules or not submodule:
        raise unknown_name("layer", name, [path for path in submodules if path])
    call = seen.only_call(submodule)
    if call is None:
        raise InvalidDataError(
            f"Layer {name!r} was called {len(seen.calls.get(submodule, []))} times on the example, "
            f"but a recorded layer must be called once; choose another."
        )
    shape = call.input_shape if is_input else call.output_shape
    layout = _layout(shape, seen)
    if layout is None:
        raise InvalidDataError(
            f"Layer {name!r} returns {list(shape)}, but a map is [n, channels, height, width] or "
            f"[n, tokens, channels]; choose an earlier layer."
        )
    return MapHook(name, submodule, layout, is_input)


def _layout(shape: tuple[int, ...], seen: Trace) -> MapLayout | None:
    """Infer the layout of a map from its shape: its sides have the aspect ratio of the image."""
    if shape[:1] != (seen.n,) or len(shape) not in (3, 4):
        return None
    if len(shape) == 3:
        return MapLayout.TOKENS
    height, width = seen.example.shape[-2:]
    _, a, b, c = shape
    off_first, off_last = abs(b * width - c * height), abs(a * width - b * height)
    return MapLayout.CHANNELS_LAST if off_last < off_first else MapLayout.CHANNELS_FIRST


def _blocks(module: nn.Module, taps: list[MapHook]) -> list[MapHook]:
    """Keep the most frequent kind of layer: not the embedding, not the final normalization."""
    kinds = {tap: type(module.get_submodule(tap.submodule)) for tap in taps if not tap.is_input}
    if not kinds:
        return taps
    most = Counter(reversed(kinds.values())).most_common(1)[0][0]  # among equals, the last
    return [tap for tap, kind in kinds.items() if kind is most]


@dataclass
class _Finder:
    module: nn.Module
    seen: Trace

    def taps(self) -> list[MapHook]:
        groups = self._groups()
        taps: list[MapHook] = []
        for k, group in enumerate(groups):
            following = groups[k + 1][0] if k + 1 < len(groups) else None
            is_stem = not self._is_stage(group[0]) or (k == 0 and len(group) > 1)
            names = [group[-1] if is_stem else group[0]]
            if is_stem and following is not None and self._is_stage(following):
                names.insert(0, f"{following}{_INPUT}")
            taps.append(self._first_map(names))
        return taps

    def _first_map(self, names: list[str]) -> MapHook:
        for name in names[:-1]:
            try:
                return _tap_named(self.module, self.seen, name)
            except InvalidDataError:  # the first input of the stage is not a map
                continue
        return _tap_named(self.module, self.seen, names[-1])

    def _groups(self) -> list[list[str]]:
        """Group the layers: a new group begins at every layer with a weight matrix or kernel."""
        groups: list[list[str]] = []
        for name in sorted(self._opened(""), key=lambda name: self.seen.calls[name][0].order):
            if self._is_global_pool(name):
                break
            if self._mixes(name):
                groups.append([name])
            elif groups and "Adaptive" not in self._kind(name):
                groups[-1].append(name)
        return groups

    def _opened(self, name: str) -> list[str]:
        """List the layers below a module, opening those of its children that are wrappers."""
        children = [child for child in self._called_below(name) if self._has_map(child)]
        layers: list[str] = []
        for child in children:
            inside = self._opened(child) if self._is_wrapper(child, children) else []
            is_split = len([layer for layer in inside if self._mixes(layer)]) > 1
            layers += inside if is_split or not self._is_map(child) else [child]
        return layers

    def _is_wrapper(self, name: str, siblings: list[str]) -> bool:
        if not self._is_map(name):
            return self._share(name, siblings) > _WRAPPER_SHARE
        maps = [sibling for sibling in siblings if self._is_map(sibling)]
        deep = [sibling for sibling in maps if self._is_deep(sibling) and sibling != name]
        if self._kind(name) in map(self._kind, deep):  # one stage among others of its kind
            return False
        series = [sibling for sibling in maps if self._holds_series(sibling)]
        return series == [name] or self._share(name, maps) > _WRAPPER_SHARE

    def _holds_series(self, name: str) -> bool:
        """Return whether it contains several blocks of one kind, as most network bodies do."""
        kinds = [self._kind(child) for child in self._called_below(name) if self._is_stage(child)]
        return len(kinds) > len(set(kinds))

    def _is_deep(self, name: str) -> bool:
        return any(self._is_stage(child) for child in self._called_below(name))

    def _share(self, name: str, among: list[str]) -> float:
        return self._n_weights(name) / max(sum(map(self._n_weights, among)), 1)

    def _called_below(self, name: str) -> Iterator[str]:
        for key, _ in self.module.get_submodule(name).named_children():
            path = f"{name}.{key}" if name else key
            if path in self.seen.calls:
                yield path
            else:  # a list of modules is never called itself
                yield from self._called_below(path)

    def _is_map(self, name: str) -> bool:
        call = self.seen.only_call(name)
        return call is not None and call.is_float and bool(_layout(call.output_shape, self.seen))

    def _has_map(self, name: str) -> bool:
        inside = self.module.get_submodule(name).named_modules(prefix=name)
        return any(self._is_map(path) for path, _ in inside)

    def _n_weights(self, name: str) -> int:
        return sum(p.numel() for p in self.module.get_submodule(name).parameters())

    def _mixes(self, name: str) -> bool:
        return any(p.ndim > 1 for p in self.module.get_submodule(name).parameters())

    def _is_stage(self, name: str) -> bool:
        return any(True for _ in self.module.get_submodule(name).children())

    def _kind(self, name: str) -> str:
        return type(self.module.get_submodule(name)).__name__

    def _is_global_pool(self, name: str) -> bool:
        is_one = self.seen.calls[name][0].output_shape[2:] == (1, 1)
        averages = "Adaptive" in self._kind(name) or "Avg" in self._kind(name)
        return is_one and averages
