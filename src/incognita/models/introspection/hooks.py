"""Maps of named submodules, recorded during a call, also where a network works on tokens."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from incognita.errors import InvalidDataError
from incognita.models.introspection.trace import first_tensor
from incognita.shapes import Float


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
