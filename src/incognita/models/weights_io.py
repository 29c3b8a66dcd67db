"""Weights on disk, safetensors or `torch.load(weights_only=True)`, into a network."""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from incognita.errors import InvalidDataError, MissingDataError
from incognita.shapes import Float

WEIGHTS_FOLDER = Path(__file__).parent / "weights"


class WeightFile(NamedTuple):
    """What a file of weights holds: tensors in single precision, class names, and other facts."""

    tensors: Mapping[str, Float[Tensor, "..."]]
    class_names: tuple[str, ...]
    metadata: Mapping[str, str]

    @property
    def accuracy(self) -> float:
        """The share of test images the model names rightly, as measured when it was trained."""
        return float(self.metadata["accuracy"])


def read_shipped_weights(path: Path) -> WeightFile:
    """Read a file of weights; the facts are text that the recipe wrote beside the tensors."""
    if not path.is_file():
        raise MissingDataError(
            f"There are no weights at {path}; install incognita again, or train them with the "
            f"recipe in studies/."
        )
    with safe_open(path, framework="pt") as file:
        metadata = dict(file.metadata())
        tensors = {name: file.get_tensor(name).float() for name in file.keys()}  # noqa: SIM118
    return WeightFile(tensors, tuple(json.loads(metadata.pop("class_names"))), metadata)


def load_shipped_weights(network: nn.Module, weights: WeightFile) -> None:
    """Give a network these weights; all of its own but the counters of batch norm must be there."""
    counters = {name: value for name, value in network.state_dict().items() if _is_counter(name)}
    network.load_state_dict({**counters, **weights.tensors})


def save_shipped_weights(
    path: Path, network: nn.Module, *, class_names: Sequence[str], metadata: Mapping[str, str]
) -> None:
    """Write the weights of a network in half precision, with class names and other facts."""
    tensors = {
        name: value.half().cpu().contiguous()
        for name, value in network.state_dict().items()
        if not _is_counter(name)
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    save_file(tensors, path, metadata={"class_names": json.dumps(list(class_names)), **metadata})
    path.chmod(0o644)  # safetensors lets only the owner read, but a package is for everybody


def _is_counter(name: str) -> bool:
    return name.endswith("num_batches_tracked")


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
