"""Finds the stages of a network whose maps are worth recording."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from torch import nn

from incognita.errors import InvalidDataError, unknown_name
from incognita.models.introspection.hooks import Layout, MapHook
from incognita.models.introspection.trace import Trace

_MOST = 6
_WRAPPER_SHARE = 0.8
_INPUT = ".input"


def find_layers(module: nn.Module, seen: Trace) -> tuple[MapHook, ...]:
    """Choose at most six layers, evenly spaced, the last among them.

    Stages are the children of the network that give a map [n, c, h, w] or tokens [n, tokens, c];
    a child that holds nearly all weights, or alone holds a series of blocks, is opened. Of a
    transformer: its blocks. Of a convolutional network: each stage, and what goes into the first
    (`layer1.input`, because a stem often ends in a ReLU that is no module). Of a plain chain of
    layers: what each group of a convolution, normalization, activation and pooling gives.
    """
    taps = _Finder(module, seen).taps()
    if taps and taps[-1].layout is Layout.TOKENS:
        taps = _blocks(module, taps)
    n = min(len(taps), _MOST)
    return tuple(taps[(k + 1) * len(taps) // n - 1] for k in range(n))


def tap_layers(module: nn.Module, seen: Trace, names: Sequence[str]) -> tuple[MapHook, ...]:
    """Find layers by the names people gave: a submodule, or `<submodule>.input`."""
    return tuple(_tap_named(module, seen, name) for name in names)


def _tap_named(module: nn.Module, seen: Trace, name: str) -> MapHook:
    submodules = dict(module.named_modules())
    is_input = name not in submodules and name.endswith(_INPUT)
    submodule = name.removesuffix(_INPUT) if is_input else name
    if submodule not in submodules or not submodule:
        raise unknown_name("layer", name, [each for each in submodules if each])
    call = seen.only_call(submodule)
    if call is None:
        raise InvalidDataError(
            f"Layer {name!r} was called {len(seen.calls.get(submodule, []))} times on the example, "
            f"but a layer whose map is recorded is called once; choose another."
        )
    shape = call.input_shape if is_input else call.output_shape
    layout = _layout(shape, seen)
    if layout is None:
        raise InvalidDataError(
            f"Layer {name!r} gives {list(shape)}, but a map is [n, channels, height, width] or "
            f"[n, tokens, channels]; choose an earlier layer."
        )
    return MapHook(name, submodule, layout, is_input)


def _layout(shape: tuple[int, ...], seen: Trace) -> Layout | None:
    """Tell what the dimensions of a map mean; sides keep the ratio that the image has."""
    if shape[:1] != (seen.n,) or len(shape) not in (3, 4):
        return None
    if len(shape) == 3:
        return Layout.TOKENS
    height, width = seen.example.shape[-2:]
    _, a, b, c = shape
    off_first, off_last = abs(b * width - c * height), abs(a * width - b * height)
    return Layout.CHANNELS_LAST if off_last < off_first else Layout.CHANNELS_FIRST


def _blocks(module: nn.Module, taps: list[MapHook]) -> list[MapHook]:
    """Keep the most frequent kind of layer: not the embedding, not the last normalization."""
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
            except InvalidDataError:  # a stage that is also given other things first
                continue
        return _tap_named(self.module, self.seen, names[-1])

    def _groups(self) -> list[list[str]]:
        """Cut the sequence of layers before each one with a matrix or kernel of weights."""
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
            is_split = len([each for each in inside if self._mixes(each)]) > 1
            layers += inside if is_split or not self._is_map(child) else [child]
        return layers

    def _is_wrapper(self, name: str, siblings: list[str]) -> bool:
        if not self._is_map(name):
            return self._share(name, siblings) > _WRAPPER_SHARE
        maps = [each for each in siblings if self._is_map(each)]
        deep = [each for each in maps if self._is_deep(each) and each != name]
        if self._kind(name) in map(self._kind, deep):  # one stage among others of its kind
            return False
        series = [each for each in maps if self._holds_series(each)]
        return series == [name] or self._share(name, maps) > _WRAPPER_SHARE

    def _holds_series(self, name: str) -> bool:
        """Whether blocks of one kind stand inside, as in the body of most networks."""
        kinds = [self._kind(each) for each in self._called_below(name) if self._is_stage(each)]
        return len(kinds) > len(set(kinds))

    def _is_deep(self, name: str) -> bool:
        return any(self._is_stage(each) for each in self._called_below(name))

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
        return any(self._is_map(each) for each, _ in inside)

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
