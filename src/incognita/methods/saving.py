"""Fitted methods on disk: one safetensors file, no code inside."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from incognita.benchmarks.readers.files import replacing
from incognita.errors import InvalidDataError, MissingDataError
from incognita.methods import METHODS
from incognita.methods.method import Method

FORMAT = "incognita.method.1"


def save_method(method: Method, path: str | Path) -> None:
    """Write a fitted method; a file that is there is replaced as a whole or not at all."""
    tensors: dict[str, Tensor] = {}
    record = _describe(method, "", tensors)
    metadata = {"format": FORMAT, "method": json.dumps(record)}
    with replacing(Path(path)) as unfinished:
        save_file(
            {name: t.detach().cpu().contiguous() for name, t in tensors.items()},
            unfinished,
            metadata,
        )


def load_saved_method(path: str | Path) -> Method:
    """Read a fitted method back; it scores as it did."""
    path = Path(path)
    if not path.is_file():
        raise MissingDataError(f"There is no file at {path}; check the path.")
    try:
        with safe_open(str(path), framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - no dict
    except Exception as error:  # safetensors raises an error class of its own
        raise InvalidDataError(f"{path} is no safetensors file: {error}; save it again.") from error
    if metadata.get("format") != FORMAT:
        raise InvalidDataError(
            f"{path} holds no method of incognita ({metadata.get('format')!r} instead of "
            f"{FORMAT!r}); give a file that save_method wrote."
        )
    return _rebuild(json.loads(metadata["method"]), tensors)


def _describe(method: Method, prefix: str, tensors: dict[str, Tensor]) -> dict[str, Any]:
    """Put the tensors of a method under their names and give the rest as plain values."""
    state = {
        name: _describe_value(value, f"{prefix}{name}", tensors)
        for name, value in method.state().items()
    }
    then = getattr(method, "then", None)
    return {
        "kind": _registered_name(method),
        "parameters": method.parameters(),
        "then": _describe(then, f"{prefix}then.", tensors) if isinstance(then, Method) else None,
        "state": state,
    }


def _describe_value(value: Any, key: str, tensors: dict[str, Tensor]) -> dict[str, Any]:
    if isinstance(value, Tensor):
        tensors[key] = value
        return {"tensor": key}
    if isinstance(value, Mapping):
        items = {name: _describe_value(v, f"{key}:{name}", tensors) for name, v in value.items()}
        return {"mapping": items}
    if value is None or isinstance(value, bool | int | float | str):
        return {"value": value}
    raise TypeError(f"{key} is a {type(value).__name__}; a method's state is tensors and numbers")


def _registered_name(method: Method) -> str:
    home = f"{type(method).__module__}:{type(method).__qualname__}"
    for name, place in METHODS.homes.items():
        if place == home:
            return name
    raise InvalidDataError(
        f"{type(method).__name__} is not among the registered methods, so a file could not say "
        f"what to load; save its state() yourself."
    )


def _rebuild(record: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Method:
    parameters = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in record["parameters"].items()
    }
    if record["then"] is not None:
        parameters["then"] = _rebuild(record["then"], tensors)
    method: Method = METHODS.get(record["kind"])(**parameters)
    for name, value in record["state"].items():
        setattr(method, name, _rebuild_value(value, tensors))
    return method


def _rebuild_value(value: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Any:
    if "tensor" in value:
        return tensors[value["tensor"]].clone(memory_format=torch.contiguous_format)
    if "mapping" in value:
        return {name: _rebuild_value(item, tensors) for name, item in value["mapping"].items()}
    return value["value"]
