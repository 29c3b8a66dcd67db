"""Fingerprints of networks and preprocessing, and what an adapter needs to be pickled.

A fingerprint is a short text that changes whenever the outputs could.
"""

import dis
import functools
import hashlib
import inspect
import pickle
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from hashlib import sha256
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor, nn

from incognita.errors import InvalidDataError, count
from incognita.files import check_regular
from incognita.models.libraries import LIBRARIES
from incognita.models.preprocessing import FromPIL, Preprocessing

_CONTENT_HASH = "__incognita_content_hash__"  # attribute of modules imported by `importable`


@contextmanager
def importable(path: Path | None) -> Iterator[ModuleType | None]:
    """Import a file; within the context, files of its folder can be imported too.

    The module stays in `sys.modules` under a private name made of its path, because pickled objects
    of its classes need it; the search path is restored. A file that was edited is imported again.
    """
    if path is None:
        yield None
        return
    folder = str(path.parent)
    sys.path.insert(0, folder)
    try:
        yield _imported(path)
    finally:
        sys.path.remove(folder)


def _imported(path: Path) -> ModuleType:
    check_regular(path)
    name = f"_incognita_file_{path.stem}_{sha256(str(path).encode()).hexdigest()[:12]}"
    content_hash = sha256(path.read_bytes()).hexdigest()
    if name in sys.modules and vars(sys.modules[name])[_CONTENT_HASH] == content_hash:
        return sys.modules[name]
    spec = spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise InvalidDataError(f"Expected a Python file that ends in .py, got {path}.")
    module = module_from_spec(spec)
    vars(module)[_CONTENT_HASH] = content_hash
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # one that exits must not end the command as if done
        del sys.modules[name]
        raise InvalidDataError(
            f"{path} could not be imported: {type(error).__name__}: {error}; run it by itself."
        ) from error
    return module


# files of adapters that users write; by class, because with_filter makes new objects
_SOURCES: WeakKeyDictionary[type, Path] = WeakKeyDictionary()


AdapterT = TypeVar("AdapterT", bound="PicklableAdapter")


class PicklableAdapter:
    """Base class of adapters: moves the network, and can be sent to worker processes.

    `source` is the user's file that defines the network, which a worker must import first.
    """

    name: str
    module: nn.Module
    class_names: Sequence[str]
    pixel_std: Tensor
    source: Path | None

    def to(
        self: AdapterT, device: str | torch.device | None = None, dtype: torch.dtype | None = None
    ) -> AdapterT:
        """Move the network to a device or a floating type, in place."""
        self.module.to(device=device, dtype=dtype)
        self.pixel_std = self.pixel_std.to(device=device)
        return self

    def __repr__(self) -> str:
        """Show one line, without the network."""
        n_classes = count(len(self.class_names), "class", "classes")
        return f"{type(self).__name__}({self.name}, {n_classes})"

    def __deepcopy__(self, memo: dict[int, Any]) -> "PicklableAdapter":
        """Copy within this process, where preprocessing may be a lambda."""
        copy = object.__new__(type(self))
        memo[id(self)] = copy
        copy.__dict__.update(deepcopy(self.__dict__, memo))
        return copy

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle together with the path of the file that defines the network."""
        try:
            # with the class: it may be defined in the file that must be imported first
            return _unpickled, (self.source, pickle.dumps((type(self), self.__dict__)))
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise InvalidDataError(
                f"{self.name} cannot be sent to another process ({error}); define its network and "
                f"preprocessing at the top level of a file, not in a function or as a lambda."
            ) from error


def note_source(model: object, path: Path) -> None:
    """Remember the user's file that a model is loaded from."""
    if isinstance(model, PicklableAdapter):
        model.source = path
    else:
        _SOURCES[type(model)] = path


def source_of(model: object) -> Path | None:
    """Return the file that another process must import before it can load the model, if any."""
    return model.source if isinstance(model, PicklableAdapter) else _SOURCES.get(type(model))


def _unpickled(source: Path | None, state: bytes) -> PicklableAdapter:
    with importable(source):
        kind, attributes = pickle.loads(state)
        adapter: PicklableAdapter = object.__new__(kind)
        adapter.__dict__.update(attributes)
    return adapter


# packages whose code changes with a version, not with an edit of the user
_PACKAGES = {"torch", "numpy", "builtins", "incognita"}
_PACKAGES |= {library.prefix for library in LIBRARIES}
_BOOKKEEPING = set(vars(nn.Module()))


def hash_weights(module: nn.Module) -> str:
    """Compute the sha256 of a network: names, types, shapes and bytes of parameters and buffers.

    The structure shown by `repr` is included, and for classes defined by the user their code and
    plain attributes: two networks with equal weights that differ in a stride or a temperature are
    different models. Attributes that `forward` sets (a counter, a cache) are not. The memory of
    the tensors is read in place.

    >>> layer = nn.Linear(2, 2)
    >>> before = hash_weights(layer)
    >>> _ = layer.bias.data.add_(1)
    >>> hash_weights(layer) == before
    False
    """
    return _hash_module(module, set())


def describe_callable(function: Callable[..., Any]) -> str:
    """Return the name of a callable and a hash of what it depends on, for keys of stored outputs.

    A `Preprocessing` is described by its repr; any other callable by its qualified name and a hash
    of its bytecode, defaults, closure and the globals it reads, followed into functions of the same
    file; an object by its class and attributes. Files that a function reads and calls into other
    libraries are not followed.

    >>> describe_callable(Preprocessing(size=32)).startswith("Preprocessing(size=32, crop=None")
    True
    >>> scales = [lambda image, k=k: image * k for k in (1, 2)]
    >>> describe_callable(scales[0]) == describe_callable(scales[1])
    False
    """
    if isinstance(function, Preprocessing):
        return repr(function)
    shown = function
    if isinstance(function, FromPIL):
        shown = function.transform
    name = getattr(shown, "__qualname__", type(shown).__qualname__)
    text = _describe(function, set())
    return f"{name}#{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def describe_source(kind: type, *, with_file: bool = False) -> str:
    """Return what `describe_callable` does, with a hash of the file if `importable` imported it.

    Args:
        kind: A class.
        with_file: Whether the file is hashed anyway, as that of a plug-in is.
    """
    module = sys.modules.get(kind.__module__)
    content_hash = getattr(module, _CONTENT_HASH, None)
    if with_file and content_hash is None and (file := getattr(module, "__file__", None)):
        content_hash = sha256(Path(file).read_bytes()).hexdigest()
    code = describe_callable(kind)
    return code if content_hash is None else f"{code}, file {content_hash[:16]}"


def _hash_module(module: nn.Module, seen: set[int]) -> str:
    digest = hashlib.sha256(_without_addresses(repr(module)).encode())
    seen |= {id(part) for part in module.modules()}  # an attribute may lead back to them
    for kind in sorted({type(part) for part in module.modules()}, key=lambda kind: kind.__name__):
        if _root(kind) not in _PACKAGES:
            digest.update(_describe(kind, seen).encode())
    for name, part in module.named_modules():
        if settings := _settings(part):
            digest.update(f"{name} {_describe(settings, seen)};".encode())
    for name, tensor in _tensors(module):
        digest.update(f"{name} {tensor.dtype} {list(tensor.shape)};".encode())
        if tensor.numel():
            digest.update(_bytes_of(tensor))
    return digest.hexdigest()


def _tensors(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    yield from module.named_parameters()
    yield from module.named_buffers()


def _settings(module: nn.Module) -> dict[str, Any]:
    """Return the plain attributes of a module defined by the user, and `forward` if replaced.

    Attributes that a call may change are left out: those that `forward` or a method it calls sets,
    and private containers.
    """
    attributes = {k: v for k, v in vars(module).items() if k not in _BOOKKEEPING}
    if _root(type(module)) in _PACKAGES:
        return {name: value for name, value in attributes.items() if name == "forward"}
    changing = _set_behind("forward", type(module), set())
    return {
        name: value
        for name, value in attributes.items()
        if name not in changing
        and not (name.startswith("_") and isinstance(value, dict | list | set))
    }


def _set_behind(name: str, kind: type, visited: set[str]) -> set[str]:
    """Return the attributes that a method sets, itself or through other methods of its class."""
    method = inspect.unwrap(getattr(kind, name, None))  # type: ignore[arg-type]
    if name in visited or not isinstance(method, FunctionType):
        return set()
    visited.add(name)
    found = _stored_names(method.__code__)
    return found.union(*(_set_behind(n, kind, visited) for n in _names_in(method.__code__)))


def _stored_names(code: CodeType) -> set[str]:
    inner = (_stored_names(value) for value in code.co_consts if isinstance(value, CodeType))
    own = {step.argval for step in dis.get_instructions(code) if step.opname == "STORE_ATTR"}
    return own.union(*inner)


def _bytes_of(tensor: Tensor) -> Any:
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    return flat.view(torch.uint8).numpy()


def _describe(value: Any, seen: set[int]) -> str:
    """Return a text that is equal for equal values in every process.

    Every function, class and object is followed only once, because they may refer to each other.
    """
    if isinstance(value, Tensor):
        data = _bytes_of(value) if value.numel() else b""
        return f"tensor({value.dtype},{list(value.shape)},{hashlib.sha256(data).hexdigest()})"
    if isinstance(value, np.ndarray):
        digest = hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()
        return f"array({value.dtype},{value.shape},{digest})"
    if isinstance(value, Mapping):
        pairs = (f"{_describe(k, seen)}:{_describe(v, seen)}" for k, v in value.items())
        return f"{{{','.join(sorted(pairs))}}}"
    if isinstance(value, set | frozenset):  # their order differs from process to process
        return f"{{{','.join(sorted(_describe(item, seen) for item in value))}}}"
    if isinstance(value, list | tuple):
        return f"({','.join(_describe(item, seen) for item in value)})"
    if isinstance(value, CodeType):
        parts = value.co_code.hex(), value.co_names, value.co_varnames, value.co_consts
        return _describe(parts, seen)
    if isinstance(value, ModuleType):
        return value.__name__
    return _describe_object(value, seen)


def _describe_object(value: Any, seen: set[int]) -> str:
    if isinstance(value, functools.partial):
        return f"partial{_describe((value.func, value.args, value.keywords), seen)}"
    if inspect.ismethod(value):
        return f"method{_describe((value.__func__, value.__self__), seen)}"
    text = _without_addresses(repr(value))
    plain = inspect.unwrap(value) if callable(value) else value
    if not hasattr(plain, "__dict__") or id(plain) in seen:
        return text
    seen.add(id(plain))
    if isinstance(plain, FunctionType):
        return _describe_function(plain, seen)
    if isinstance(plain, type):
        return _describe_class(plain, seen)
    if isinstance(plain, nn.Module):
        return _hash_module(plain, seen)
    return f"{text}{_describe((type(plain), vars(plain)), seen)}"


def _describe_function(function: FunctionType, seen: set[int]) -> str:
    held = _closed_over(function), function.__defaults__, function.__kwdefaults__
    if _root(function) in _PACKAGES:
        return f"{function.__module__}.{function.__qualname__}{_describe(held, seen)}"
    read = {
        name: function.__globals__[name]
        for name in sorted(_names_in(function.__code__))
        if name in function.__globals__
    }
    return f"{function.__qualname__}{_describe((function.__code__, held, read), seen)}"


def _closed_over(function: FunctionType) -> list[Any]:
    values: list[Any] = []
    for cell in function.__closure__ or ():
        try:
            values.append(cell.cell_contents)
        except ValueError:  # empty: the function is being defined
            values.append(None)
    return values


def _describe_class(kind: type, seen: set[int]) -> str:
    if _root(kind) in _PACKAGES:
        return f"{kind.__module__}.{kind.__qualname__}"
    own = {
        key: value
        for base in reversed(kind.__mro__)
        if _root(base) not in _PACKAGES
        for key, value in vars(base).items()
        if isinstance(value, FunctionType | bool | int | float | str | tuple)
    }
    for bookkeeping in ("__module__", "__doc__", "__firstlineno__"):
        own.pop(bookkeeping, None)
    return f"{kind.__qualname__}{_describe(own, seen)}"


def _names_in(code: CodeType) -> set[str]:
    inner = (_names_in(value) for value in code.co_consts if isinstance(value, CodeType))
    return set(code.co_names).union(*inner)


def _root(thing: Any) -> str:
    return str(getattr(thing, "__module__", None) or "builtins").partition(".")[0]


def _without_addresses(text: str) -> str:
    return re.sub(r" at 0x[0-9a-fA-F]+", "", text)
