"""Maps of named submodules, recorded during a call, also where a network works on tokens."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from incognita.errors import InvalidDataError
from incognita.models.introspection.trace import first_tensor
from incognita.shapes import Float

Change = Callable[[Tensor], Tensor]


class Layout(Enum):
    """What the dimensions of a map mean in the network."""

    CHANNELS_FIRST = "n c h w"
    CHANNELS_LAST = "n h w c"
    TOKENS = "n tokens c"


@dataclass(frozen=True)
class MapHook:
    """The output of a submodule, or its input, under the name of a layer."""

    layer: str
    submodule: str
    layout: Layout
    is_input: bool = False

    def attach(
        self, module: nn.Module, maps: dict[str, Tensor], change: Change | None
    ) -> Callable[[], None]:
        """Begin to put the map into `maps` in every call; gives a function that ends it."""
        target = module.get_submodule(self.submodule)

        def meet(value: Any) -> Any:
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
            return target.register_forward_pre_hook(lambda _, args: meet(args)).remove
        return target.register_forward_hook(lambda _, args, output: meet(output)).remove

    def _as_map(self, value: Tensor) -> Tensor:
        return value.permute(0, 3, 1, 2) if self.layout is Layout.CHANNELS_LAST else value

    def _as_network(self, value: Tensor) -> Tensor:
        return value.permute(0, 2, 3, 1) if self.layout is Layout.CHANNELS_LAST else value


def attach_input(
    module: nn.Module, name: str, hooks: ExitStack, found: dict[str, Tensor], key: str
) -> None:
    """Put the first tensor that goes into a submodule into `found`, until the hooks are closed."""

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
    """Put the first tensor that a submodule gives into `found`, until the hooks are closed."""

    def read(_: nn.Module, args: Any, output: Any) -> None:
        value = first_tensor(output)
        if value is not None:
            found[key] = value

    hooks.callback(module.get_submodule(name).register_forward_hook(read).remove)


def _with_first_tensor(value: Any, new: Tensor) -> Any:
    """Give what a module gave with its first tensor exchanged."""
    if isinstance(value, Tensor):
        return new
    if isinstance(value, Mapping):
        key = next(key for key, each in value.items() if first_tensor(each) is not None)
        return type(value)({**value, key: _with_first_tensor(value[key], new)})  # type: ignore[call-arg]
    items = list(value)
    place = next(k for k, each in enumerate(items) if first_tensor(each) is not None)
    items[place] = _with_first_tensor(items[place], new)
    is_named = isinstance(value, tuple) and hasattr(value, "_fields")
    return type(value)(*items) if is_named else type(value)(items)


@contextmanager
def eval_mode(module: nn.Module) -> Iterator[None]:
    """Put a network into evaluation mode; afterwards each part is in the mode it was in.

    >>> network = nn.Sequential(nn.Dropout())
    >>> with eval_mode(network):
    ...     network[0].training
    False
    >>> network[0].training
    True
    """
    # a frozen script has no mode
    trained = [each for each in module.modules() if getattr(each, "training", False)]
    if trained:
        module.eval()
    try:
        yield
    finally:
        for each in trained:
            each.training = True


def unwrap(module: nn.Module) -> nn.Module:
    """Take off what hides a network's own submodules from hooks: replicas and compilation.

    >>> unwrap(nn.DataParallel(nn.Linear(2, 3)))
    Linear(in_features=2, out_features=3, bias=True)
    """
    if isinstance(module, nn.DataParallel | nn.parallel.DistributedDataParallel):
        return unwrap(module.module)
    inner = getattr(module, "_orig_mod", None)
    return unwrap(inner) if isinstance(inner, nn.Module) else module


class MapSource(NamedTuple):
    """A layer: the maps of a submodule, or one of them."""

    layer: str
    submodule: str
    part: int | None = None


@dataclass
class Recording:
    """What submodules gave during a call, and the grids on which tokens lie."""

    outputs: dict[str, list[Any]] = field(default_factory=dict)
    grids: list[tuple[int, int]] = field(default_factory=list)

    def maps(self, sources: Sequence[MapSource], n: int) -> dict[str, tuple[Tensor, ...]]:
        """Give the maps of each layer, [n, channels, height, width]."""
        return {source.layer: self._maps_of(source, n) for source in sources}

    def _maps_of(self, source: MapSource, n: int) -> tuple[Tensor, ...]:
        calls = self.outputs.get(source.submodule, [])
        if not calls:
            raise InvalidDataError(
                f"{source.submodule} was not called, so the layer {source.layer} has no map; name "
                f"a submodule that the network calls on the image."
            )
        maps = tuple(each for given in calls for each in self._as_maps(source, given, n))
        return maps if source.part is None else (maps[source.part],)

    def _as_maps(self, source: MapSource, given: Any, n: int) -> tuple[Tensor, ...]:
        first = first_tensor(given)
        if first is not None and len(first) == n and first.ndim == 4:
            return tuple(_maps_in(given))
        if first is not None and len(first) == n and first.ndim == 3:
            found = _on_grids(first, self.grids)
            if found is not None:
                return found
        shape = "no tensor" if first is None else str(list(first.shape))
        raise InvalidDataError(
            f"{source.submodule} gives {shape} for {n} images, but the layer {source.layer} must "
            f"be a map [n, channels, height, width], or tokens [n, height x width, channels] on "
            f"{' or '.join(f'{h} x {w}' for h, w in self.grids)}; name another submodule."
        )


@contextmanager
def recording(
    module: nn.Module, sources: Sequence[MapSource], grids: Sequence[str]
) -> Iterator[Recording]:
    """Watch a network while the context lasts.

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
    handles = [module.get_submodule(each).register_forward_hook(keep(each)) for each in names]
    handles += [module.get_submodule(each).register_forward_hook(note_grid) for each in grids]
    try:
        yield seen
    finally:
        for handle in handles:
            handle.remove()


def _maps_in(value: Any) -> Iterator[Tensor]:
    """Give all maps of what a submodule gave; masks beside them are no maps."""
    if isinstance(value, Tensor):
        if value.ndim == 4 and value.is_floating_point():
            yield value
        return
    values = value.values() if isinstance(value, Mapping) else value
    if isinstance(values, str) or not hasattr(values, "__iter__"):
        return
    for each in values:
        yield from _maps_in(each)


def _on_grids(
    tokens: Float[Tensor, "n tokens channels"], grids: Sequence[tuple[int, int]]
) -> tuple[Tensor, ...] | None:
    """Lay tokens out: on all grids one after the other, on one of them, or behind a class token."""
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
