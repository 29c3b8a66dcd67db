"""Weights on disk, safetensors or `torch.load(weights_only=True)`, into a network."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from incognita.errors import InvalidDataError, MissingDataError

_WRAPPED_UNDER = ("state_dict", "model_state_dict", "model", "net")
_LONGEST_REASON = 120
_PREFIXES = ("module.", "_orig_mod.")  # what replicas and compilation put before each name


def read_weights(path: str | Path) -> dict[str, Tensor]:
    """Read named tensors; prefixes that replicas and compilation add are taken off."""
    path = Path(path)
    if not path.is_file():
        raise MissingDataError(f"There is no weights file at {path}; check the path.")
    content = _safetensors(path) if path.suffix == ".safetensors" else _pickled(path)
    key = next((key for key in _WRAPPED_UNDER if isinstance(content.get(key), Mapping)), None)
    found = content if key is None else content[key]
    weights = {str(name): each for name, each in found.items() if isinstance(each, Tensor)}
    if not weights:
        raise InvalidDataError(
            f"{path} holds no named tensors; save the network's state_dict() there."
        )
    for prefix in _PREFIXES:
        if all(name.startswith(prefix) for name in weights):
            weights = {name.removeprefix(prefix): each for name, each in weights.items()}
    return weights


def load_weights(module: nn.Module, path: str | Path) -> None:
    """Copy the weights of a file into a network, in the network's own floating type."""
    weights = read_weights(path)
    own = module.state_dict()
    optional = {name for name in own if name.endswith("num_batches_tracked")}  # only training reads
    missing = [name for name in own if name not in weights and name not in optional]
    unexpected = [name for name in weights if name not in own]
    if missing or unexpected:
        raise InvalidDataError(
            f"The weights of {path} do not fit the network: {_first('missing', missing)}, "
            f"{_first('unexpected', unexpected)}; use the network they were trained with."
        )
    for name, each in weights.items():
        if own[name].shape != each.shape:
            raise InvalidDataError(
                f"{name} has shape {list(each.shape)} in {path}, but {list(own[name].shape)} in "
                f"the network; use the network the weights were trained with."
            )
    module.load_state_dict(weights, strict=False)


def _first(what: str, names: list[str]) -> str:
    if not names:
        return f"nothing {what}"
    return f"{len(names)} {what} (first {', '.join(names[:3])})"


def _safetensors(path: Path) -> dict[str, Any]:
    try:
        return dict(load_file(path))
    except SafetensorError as error:
        raise InvalidDataError(f"{path} is no safetensors file: {error}; save it again.") from error


def _pickled(path: Path) -> Mapping[str, Any]:
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # garbage ends in whatever the unpickler stumbles over
        raise InvalidDataError(
            f"{path} could not be read as plain weights ({_reason(error)}); save the network's "
            f"state_dict() or a safetensors file, because whole pickled objects are not opened."
        ) from error
    if not isinstance(content, Mapping):
        raise InvalidDataError(
            f"{path} holds a {type(content).__name__}, not named tensors; save the network's "
            f"state_dict() there."
        )
    return content


def _reason(error: Exception) -> str:
    """Shorten what torch says: it colors its text and goes on about its own options."""
    plain = re.sub(r"\x1b\[[0-9;]*m", "", str(error))
    if found := re.search(r"Unsupported global: GLOBAL (\S+)", plain):
        return f"it holds a {found[1]}"
    first = re.split(r"\.\s|\n", plain)[0][:_LONGEST_REASON].rstrip(".")
    return f"{type(error).__name__}: {first}".removesuffix(": ")
