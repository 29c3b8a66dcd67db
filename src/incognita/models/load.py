"""Loads models by the name behind `--model`, and weights from disk into networks."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from incognita.errors import IncognitaError, InvalidDataError, MissingDataError, unknown_name
from incognita.files import check_regular
from incognita.models import MODELS
from incognita.models.classifier import Classifier, WrappedClassifier, wrap_classifier
from incognita.models.detector import Detector, is_detector_network, wrap_detector
from incognita.models.fingerprints import importable, note_source
from incognita.models.libraries import LIBRARIES, ModelLibrary
from incognita.shapes import Float

WEIGHTS_FOLDER = Path(__file__).parent / "weights"

_STATE_KEYS = ("state_dict", "model_state_dict", "model", "net")
_PREFIXES = ("module.", "_orig_mod.")  # added by replicas and compilation
_LONGEST_REASON = 120


@dataclass(frozen=True)
class ModelOptions:
    """Options of `load_model`, described there; None means the default of the model.

    `choose_preprocess` returns the preprocessing of a bare network that has none; `known_classes`
    are names for a model that takes any, such as CLIP.
    """

    weights: Path | None = None
    class_names: tuple[str, ...] | None = None
    preprocess: Callable[..., Any] | None = None
    layers: tuple[str, ...] | None = None
    example: Tensor | np.ndarray | None = None
    choose_preprocess: Callable[[nn.Module], Callable[..., Any]] | None = None
    known_classes: tuple[str, ...] | None = None

    @property
    def latent(self) -> str | None:
        """The layer of a detector that LaRD reads: the first of `layers`."""
        return self.layers[0] if self.layers else None

    @property
    def shortcuts(self) -> tuple[str, ...] | None:
        """The layers of a detector that SAFE reads: all but the first of `layers`."""
        return (self.layers or ())[1:] or None


_NO_OPTIONS = ModelOptions()


def load_model(
    spec: str,
    *,
    weights: str | Path | None = None,
    class_names: Sequence[str] | None = None,
    preprocess: Callable[..., Any] | None = None,
    layers: Sequence[str] | None = None,
    example: Tensor | None = None,
) -> Classifier | Detector:
    """Load a model by name, in evaluation mode. Nothing is downloaded.

    Args:
        spec: `path/to/file.py:function` (a function without arguments that returns a network, or a
            wrapped classifier or detector), `timm:resnet18.a1_in1k`, `torchvision:resnet18`,
            `torchvision:resnet18.IMAGENET1K_V1` or `torchvision:fasterrcnn_resnet50_fpn`,
            `transformers:FOLDER`, `ultralytics:FILE.pt`, or an embedded model such as
            `terra:classifier` and `terra:detector`.
        weights: A .safetensors, .pt or .pth file; for a backbone of transformers, its linear probe.
        class_names: One per class; those of the model by default. A wrapped model keeps its own.
        preprocess: Replaces the preprocessing of the model.
        layers: Replaces the layers found automatically; for a detector the one that LaRD reads,
            then those that SAFE reads.
        example: A preprocessed batch, for a bare network that does not accept images of a common
            size.
    """
    options = ModelOptions(
        None if weights is None else Path(weights),
        None if class_names is None else tuple(class_names),
        preprocess,
        None if layers is None else tuple(layers),
        example,
    )
    return load_with(spec, options)


def load_with(spec: str, options: ModelOptions) -> Classifier | Detector:
    """Load a model as `load_model` does."""
    model = _loaded(spec, options)
    model.module.eval()
    return model


def load_classifier(spec: str, options: ModelOptions = _NO_OPTIONS) -> Classifier:
    """Load a classifier as `load_model` does; raise if the name stands for a detector."""
    model = load_with(spec, options)
    if isinstance(model, Detector):
        raise InvalidDataError(
            f"Expected a classifier, but {spec} is a detector; name a classifier, or choose a "
            f"benchmark for detectors."
        )
    return model


def _loaded(spec: str, options: ModelOptions) -> Classifier | Detector:
    if spec in MODELS.homes:
        return _finished(MODELS.get(spec)(), spec, options)
    libraries = {library.prefix: library for library in LIBRARIES}
    prefix, _, name = spec.partition(":")
    if prefix in libraries and name:
        return _from_library(libraries[prefix], name, options)
    if spec.endswith(".py"):
        raise InvalidDataError(
            f"Expected FILE.py:FUNCTION, got {spec}. Name the function that returns the network: "
            f"{spec}:FUNCTION."
        )
    path, _, function = spec.rpartition(":")
    if not path.endswith(".py"):
        raise unknown_name("model", spec, [*MODELS.homes, *(f"{key}:…" for key in libraries)])
    return _from_file(Path(path).resolve(), function, options)


def _from_library(library: ModelLibrary, name: str, options: ModelOptions) -> Classifier | Detector:
    try:
        model: Classifier | Detector = library.loader()(name, options)
    except (IncognitaError, MemoryError):
        raise
    except Exception as error:  # a library may fail in any way
        raise InvalidDataError(
            f"{library.prefix}:{name} could not be loaded ({type(error).__name__}: "
            f"{str(error).splitlines()[0] if str(error) else 'no message'})."
        ) from error
    return model


def _from_file(path: Path, function: str, options: ModelOptions) -> Classifier | Detector:
    with importable(path) as module:
        functions = {
            name: value
            for name, value in vars(module).items()
            if callable(value) and not name.startswith("_")
        }
        if function not in functions:
            raise unknown_name(f"function of {path.name}", function, functions)
        made = _called(functions[function], function, path)
        model = _finished(made, function, options)
    note_source(model, path)
    return model


def _called(function: Callable[[], Any], name: str, path: Path) -> Any:
    try:
        return function()
    except IncognitaError:
        raise
    except Exception as error:
        problem = " ".join(f"{type(error).__name__}: {error}".split()).removesuffix(":")
        raise InvalidDataError(
            f"{name}() of {path} failed with {problem}; it is called without arguments and must "
            f"return a network."
        ) from error


def _finished(made: Any, name: str, options: ModelOptions) -> Classifier | Detector:
    """Load the weights into the result of a function, and wrap it if it is a bare network."""
    network = getattr(made, "module", None) if not isinstance(made, nn.Module) else made
    if options.weights is not None and isinstance(network, nn.Module):
        load_weights(network, options.weights)
    if isinstance(made, nn.Module):
        return _wrapped(made, name, options)
    if not isinstance(made, Classifier | Detector):
        raise InvalidDataError(
            f"Expected {name}() to return a torch.nn.Module or the result of wrap_classifier or "
            f"wrap_detector, got {type(made).__name__}."
        )
    if options.preprocess and isinstance(made, WrappedClassifier) and not made.states_preprocessing:
        stated = made.with_preprocess(options.preprocess)
        return _finished(stated, name, replace(options, preprocess=None, weights=None))
    given = [option for option in ("preprocess", "layers") if getattr(options, option)]
    if given:
        kind = "classifier" if isinstance(made, Classifier) else "detector"
        raise InvalidDataError(
            f"{name}() returns a wrapped {kind}, so {given[0]} cannot be changed; pass it to "
            f"wrap_{kind} there."
        )
    return made


def _wrapped(network: nn.Module, name: str, options: ModelOptions) -> Classifier | Detector:
    if is_detector_network(network):
        return wrap_detector(
            network,
            class_names=options.class_names,
            name=name,
            preprocess=options.preprocess,
            latent=options.latent,
            shortcuts=options.shortcuts,
        )
    preprocess = options.preprocess
    if preprocess is None and options.choose_preprocess is not None:
        preprocess = options.choose_preprocess(network)
    return wrap_classifier(
        network,
        preprocess=preprocess,
        class_names=options.class_names,
        layers=options.layers,
        name=name,
        example=options.example,
    )


# weights on disk ------------------------------------------------------------------------------


def read_weights(path: str | Path) -> dict[str, Tensor]:
    """Read named tensors, without the prefixes that replicas and compilation add."""
    path = Path(path)
    check_regular(path, "weights file")
    content = _safetensors(path) if path.suffix == ".safetensors" else _pickled(path)
    key = next((key for key in _STATE_KEYS if isinstance(content.get(key), Mapping)), None)
    found = content if key is None else content[key]
    weights = {str(name): value for name, value in found.items() if isinstance(value, Tensor)}
    if not weights:
        raise InvalidDataError(
            f"{path} holds no named tensors; save the network's state_dict() there."
        )
    for prefix in _PREFIXES:
        if all(name.startswith(prefix) for name in weights):
            weights = {name.removeprefix(prefix): value for name, value in weights.items()}
    return weights


def load_weights(module: nn.Module, path: str | Path) -> None:
    """Copy the weights of a file into a network, in the floating type of the network."""
    weights = read_weights(path)
    own = module.state_dict()
    missing = [name for name in own if name not in weights and not _is_counter(name)]
    unexpected = [name for name in weights if name not in own]
    if missing or unexpected:
        raise InvalidDataError(
            f"The weights of {path} do not fit the network: {_first('missing', missing)}, "
            f"{_first('unexpected', unexpected)}; use the network they were trained with."
        )
    for name, value in weights.items():
        if own[name].shape != value.shape:
            raise InvalidDataError(
                f"{name} has shape {list(value.shape)} in {path}, but {list(own[name].shape)} in "
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
    except (SafetensorError, OSError, ValueError, KeyError, TypeError, RuntimeError) as error:
        raise InvalidDataError(
            f"{path} is not a safetensors file ({_reason(error)}); save it again."
        ) from error


def _pickled(path: Path) -> Mapping[str, Any]:
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # the unpickler raises anything on a damaged file
        raise InvalidDataError(
            f"{path} could not be read as plain weights ({_reason(error)}); save the network's "
            f"state_dict() or a safetensors file, because pickled objects are not loaded."
        ) from error
    if not isinstance(content, Mapping):
        raise InvalidDataError(
            f"{path} holds a {type(content).__name__}, not named tensors; save the network's "
            f"state_dict() there."
        )
    return content


def _reason(error: Exception) -> str:
    """Shorten the message of torch, which is colored and lists its own options."""
    plain = re.sub(r"\x1b\[[0-9;]*m", "", str(error))
    if found := re.search(r"Unsupported global: GLOBAL (\S+)", plain):
        return f"it holds a {found[1]}"
    first = re.split(r"\.\s|\n", plain)[0][:_LONGEST_REASON].rstrip(".")
    return f"{type(error).__name__}: {first}".removesuffix(": ")


# weights that ship with incognita -------------------------------------------------------------


class WeightFile(NamedTuple):
    """Content of a weights file: tensors in single precision, class names and metadata."""

    tensors: Mapping[str, Float[Tensor, "..."]]
    class_names: tuple[str, ...]
    metadata: Mapping[str, str]

    @property
    def accuracy(self) -> float:
        """The share of test images classified correctly, as measured after training."""
        return float(self.metadata["accuracy"])


def read_shipped_weights(path: Path) -> WeightFile:
    """Read a weights file; its metadata is text that the training script wrote."""
    if not path.is_file():
        raise MissingDataError(
            f"There are no weights at {path}; reinstall incognita, or train them with the script "
            f"in studies/."
        )
    with safe_open(path, framework="pt") as file:
        metadata = dict(file.metadata())
        tensors = {name: file.get_tensor(name).float() for name in file.keys()}  # noqa: SIM118
    return WeightFile(tensors, tuple(json.loads(metadata.pop("class_names"))), metadata)


def load_shipped_weights(network: nn.Module, weights: WeightFile) -> None:
    """Load these weights into a network; only the counters of batch norm may be missing."""
    counters = {name: value for name, value in network.state_dict().items() if _is_counter(name)}
    network.load_state_dict({**counters, **weights.tensors})


def save_shipped_weights(
    path: Path, network: nn.Module, *, class_names: Sequence[str], metadata: Mapping[str, str]
) -> None:
    """Save the weights of a network in half precision, with class names and metadata."""
    tensors = {
        name: value.half().cpu().contiguous()
        for name, value in network.state_dict().items()
        if not _is_counter(name)
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    save_file(tensors, path, metadata={"class_names": json.dumps(list(class_names)), **metadata})
    path.chmod(0o644)  # safetensors makes files readable by the owner only


def _is_counter(name: str) -> bool:
    """Return whether a tensor only counts the batches of batch norm, which inference ignores."""
    return name.endswith("num_batches_tracked")
