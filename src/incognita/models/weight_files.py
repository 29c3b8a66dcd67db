"""Trained weights that ship with the package: half-precision safetensors with their own facts."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from incognita.errors import MissingDataError
from incognita.shapes import Float

WEIGHTS_FOLDER = Path(__file__).parent / "weights"


class WeightFile(NamedTuple):
    """What a file of weights holds: tensors in single precision, class names, and other facts."""

    tensors: Mapping[str, Float[Tensor, "..."]]
    class_names: tuple[str, ...]
    facts: Mapping[str, str]

    @property
    def accuracy(self) -> float:
        """The share of test images the model names rightly, as measured when it was trained."""
        return float(self.facts["accuracy"])


def read_weights(path: Path) -> WeightFile:
    """Read a file of weights; the facts are text that the recipe wrote beside the tensors."""
    if not path.is_file():
        raise MissingDataError(
            f"There are no weights at {path}; install incognita again, or train them with the "
            f"recipe in studies/."
        )
    with safe_open(path, framework="pt") as file:
        facts = dict(file.metadata())
        tensors = {name: file.get_tensor(name).float() for name in file.keys()}  # noqa: SIM118
    return WeightFile(tensors, tuple(json.loads(facts.pop("class_names"))), facts)


def load_weights(network: nn.Module, weights: WeightFile) -> None:
    """Give a network these weights; all of its own but the counters of batch norm must be there."""
    counters = {name: value for name, value in network.state_dict().items() if _is_counter(name)}
    network.load_state_dict({**counters, **weights.tensors})


def write_weights(
    path: Path, network: nn.Module, *, class_names: Sequence[str], facts: Mapping[str, str]
) -> None:
    """Write the weights of a network in half precision, with class names and other facts."""
    tensors = {
        name: value.half().cpu().contiguous()
        for name, value in network.state_dict().items()
        if not _is_counter(name)
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    save_file(tensors, path, metadata={"class_names": json.dumps(list(class_names)), **facts})
    path.chmod(0o644)  # safetensors lets only the owner read, but a package is for everybody


def _is_counter(name: str) -> bool:
    return name.endswith("num_batches_tracked")
