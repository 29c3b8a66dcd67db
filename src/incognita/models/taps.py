"""Places in a network where a map is read, or changed, on the way."""

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from enum import Enum
from typing import Any

from torch import Tensor, nn

from incognita.models.introspection.trace import first_tensor

Change = Callable[[Tensor], Tensor]


class Layout(Enum):
    """What the dimensions of a map mean in the network."""

    CHANNELS_FIRST = "n c h w"
    CHANNELS_LAST = "n h w c"
    TOKENS = "n tokens c"


@dataclass(frozen=True)
class Tap:
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
