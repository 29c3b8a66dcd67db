"""Fitted methods on disk: one safetensors file, no code inside."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from incognita.errors import IncognitaError, InvalidDataError
from incognita.files import check_regular, replacing
from incognita.methods import METHODS
from incognita.methods.method import Method
from incognita.registry import Registry

FORMAT = "incognita.method.1"
# PerHead is not registered, but it may be what was fitted
_KINDS = Registry(
    "method",
    {**METHODS.homes, "per-head": "incognita.methods.per_head:PerHead"},
    group=METHODS.group,
)


def save_method(method: Method, path: str | Path) -> None:
    """Save a fitted method; an existing file is replaced as a whole or not at all.

    Of a user-defined method its parameters and fitted state are saved, not its code.
    """
    tensors: dict[str, Tensor] = {}
    metadata = {"format": FORMAT, "method": _as_json(_describe(method, "", tensors))}
    with replacing(Path(path)) as unfinished:
        save_file(
            {name: t.detach().cpu().contiguous() for name, t in tensors.items()},
            unfinished,
            metadata,
        )


def load_saved_method(path: str | Path, kinds: Sequence[type[Method]] = ()) -> Method:
    """Load a fitted method; its scores are those of the saved one.

    Args:
        path: A file that `save_method` wrote.
        kinds: User-defined classes of methods that the file may hold. A class that is only named
            in a file is never imported, unless it is an installed plug-in.
    """
    path = Path(path)
    check_regular(path)
    try:
        with safe_open(str(path), framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - no dict
    except Exception as error:  # safetensors raises an error class of its own
        raise InvalidDataError(
            f"{path} is not a safetensors file: {error}; save it again."
        ) from error
    if metadata.get("format") != FORMAT:
        raise InvalidDataError(
            f"Expected a method of the format {FORMAT!r} in {path}, got "
            f"{metadata.get('format')!r}. Pass a file that save_method wrote."
        )
    try:
        return _Loader(path, tensors, tuple(kinds)).method(json.loads(metadata["method"]))
    except IncognitaError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise InvalidDataError(
            f"{path} is damaged ({type(error).__name__}); fit the method and save it again."
        ) from error


def _describe(method: Method, prefix: str, tensors: dict[str, Tensor]) -> dict[str, Any]:
    """Collect the tensors of a method by name; return the rest as plain values."""
    state = {
        name: _describe_value(value, f"{prefix}{name}", tensors)
        for name, value in method.state().items()
    }
    scorer = getattr(method, "scorer", None)
    return {
        "kind": _name_of(type(method)),
        "parameters": method.parameters(),
        "scorer": _describe(scorer, f"{prefix}scorer.", tensors)
        if isinstance(scorer, Method)
        else None,
        "state": state,
    }


def _describe_value(value: Any, key: str, tensors: dict[str, Tensor]) -> dict[str, Any]:
    if isinstance(value, Tensor):
        tensors[key] = value
        return {"tensor": key}
    if isinstance(value, Mapping):
        items = {name: _describe_value(v, f"{key}:{name}", tensors) for name, v in value.items()}
        return {"mapping": items}
    if isinstance(value, Method):
        return {"method": _describe(value, f"{key}.", tensors)}
    if value is None or isinstance(value, bool | int | float | str):
        return {"value": value}
    raise InvalidDataError(
        f"{key} is a {type(value).__name__}, but fitted state is saved as tensors, "
        f"numbers, text, mappings of these, or other methods; convert it to one of them."
    )


def _as_json(record: Mapping[str, Any]) -> str:
    try:
        return json.dumps(record)
    except (TypeError, ValueError) as error:
        raise InvalidDataError(
            f"The parameters {record['parameters']!r:.80} cannot be saved: {error}; use numbers, "
            f"text, None or tuples of these."
        ) from None


def _home(kind: type[Method]) -> str:
    return f"{kind.__module__}:{kind.__qualname__}"


def _name_of(kind: type[Method]) -> str:
    """Return the registered name, or the import path of a user-defined class."""
    home = _home(kind)
    ours = next((name for name, place in _KINDS.homes.items() if place == home), None)
    if ours is not None:
        return ours
    plug_in = _KINDS.plug_in_of(kind)
    return home if plug_in is None else plug_in.name


@dataclass(frozen=True, eq=False)
class _Loader:
    """Builds a method from the content of a file."""

    path: Path
    tensors: Mapping[str, Tensor]
    kinds: tuple[type[Method], ...]

    def method(self, record: Mapping[str, Any]) -> Method:
        parameters = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in record["parameters"].items()
        }
        if record["scorer"] is not None:
            parameters["scorer"] = self.method(record["scorer"])
        method: Method = self._kind(record["kind"])(**parameters)
        for name, value in record["state"].items():
            if not name.endswith("_") or name.startswith("_"):  # a file replaces no function
                raise ValueError(f"{name} is not fitted state")
            setattr(method, name, self._value(value))
        return method

    def _kind(self, name: str) -> type[Method]:
        if ":" not in name:
            registered: type[Method] = _KINDS.get(name)
            return registered
        _, _, qualname = name.partition(":")
        # the module may have another name now: a script is called __main__ while it runs
        given = [kind for kind in self.kinds if kind.__qualname__ == qualname]
        if not given:
            title = qualname.rpartition(".")[2]
            raise InvalidDataError(
                f"{self.path} holds a method of the class {name}, which is not registered; pass "
                f"that class, load_saved_method(path, kinds=({title},))."
            )
        return next((kind for kind in given if _home(kind) == name), given[0])

    def _value(self, value: Mapping[str, Any]) -> Any:
        if "tensor" in value:
            return self.tensors[value["tensor"]].clone(memory_format=torch.contiguous_format)
        if "mapping" in value:
            return {name: self._value(item) for name, item in value["mapping"].items()}
        if "method" in value:
            return self.method(value["method"])
        return value["value"]
