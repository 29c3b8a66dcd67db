"""Networks of ultralytics from files at hand; nothing is downloaded, no code of a file is run."""

import re
from pathlib import Path
from typing import Any

from incognita.errors import InvalidDataError, MissingDataError
from incognita.models.ultralytics_parts import part
from incognita.models.weights_io import load_weights, read_weights

_LONGEST_REASON = 160
_CLASS_BIAS = r"model\.\d+\.cv3\.0\.2\.bias"  # of the finest level of a head `Detect`


def open_network(spec: str, weights: Path | None) -> Any:
    """Open `weights.pt`, or build `yolov8n.yaml` for a weights file."""
    is_definition = spec.lower().endswith((".yaml", ".yml"))
    network = _defined(spec, weights) if is_definition else _pickled(Path(spec))
    if weights is not None:
        load_weights(network, weights)
    return network


def _defined(spec: str, weights: Path | None) -> Any:
    """Build the network of a definition, with as many classes as the weights have."""
    if weights is None:
        raise InvalidDataError(
            f"{spec} defines a network without weights; give them with --weights FILE."
        )
    biases = [
        each for name, each in read_weights(weights).items() if re.fullmatch(_CLASS_BIAS, name)
    ]
    n_classes = len(biases[0]) if biases else None
    return part("nn.tasks").DetectionModel(_definition(spec), nc=n_classes, verbose=False)


def _definition(spec: str) -> dict[str, Any]:
    try:
        if "://" in spec:
            raise FileNotFoundError(spec)
        definition: dict[str, Any] = part("nn.tasks").yaml_model_load(spec)
    except FileNotFoundError as error:
        raise MissingDataError(
            f"There is no definition {spec}, neither at hand nor in ultralytics, and nothing is "
            f"downloaded; name one such as yolov8n.yaml."
        ) from error
    return definition


def _pickled(path: Path) -> Any:
    if not path.is_file():
        raise MissingDataError(
            f"There is no file at {path}, and nothing is downloaded; name a .pt file of "
            f"ultralytics, or a definition such as yolov8n.yaml with --weights FILE."
        )
    if not hasattr(part("utils"), "SAFE_LOAD"):
        raise InvalidDataError(
            f"This version of ultralytics would run code of {path} to open it; install a newer "
            f"one, or give a definition such as yolov8n.yaml with --weights FILE."
        )
    try:
        content, _ = part("nn.tasks").torch_safe_load(str(path), safe_only=True)
        network = content.get("ema") or content["model"]
        network.args = content.get("train_args") or {}
        return network.float()
    except Exception as error:  # a foreign file ends in whatever the loader stumbles over
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:_LONGEST_REASON].rstrip(".")
        raise InvalidDataError(
            f"{path} is no model that ultralytics opens without running code of it ({reason}); "
            f"save the model's state_dict() as safetensors, and give its definition with "
            f"--weights FILE."
        ) from error
