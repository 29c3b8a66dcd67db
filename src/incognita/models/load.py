"""From what people type behind `--model` to a classifier or a detector."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from incognita.errors import IncognitaError, InvalidDataError, unknown_name
from incognita.models import MODELS
from incognita.models.classifier import Classifier
from incognita.models.detector import Detector
from incognita.models.fingerprints import importable, note_source
from incognita.models.weights_io import load_weights
from incognita.models.wrap_classifier import wrap_classifier
from incognita.models.wrap_detector import is_detector, wrap_detector


@dataclass(frozen=True)
class ModelOptions:
    """What `load_model` was told; None leaves it to the model (see there)."""

    weights: Path | None = None
    class_names: tuple[str, ...] | None = None
    preprocess: Callable[..., Any] | None = None
    layers: tuple[str, ...] | None = None
    example: Tensor | None = None

    @property
    def latent(self) -> str | None:
        """The layer of a detector that LaRD reads: the first."""
        return self.layers[0] if self.layers else None

    @property
    def shortcuts(self) -> tuple[str, ...] | None:
        """The layers of a detector that SAFE reads: those behind the first."""
        return (self.layers or ())[1:] or None


_LIBRARIES = {
    "timm": "incognita.models.from_timm:load_timm",
    "torchvision": "incognita.models.from_torchvision.classifiers:load_torchvision",
    "transformers": "incognita.models.from_transformers.classifiers:load_transformers",
    "ultralytics": "incognita.models.from_ultralytics.detectors:load_ultralytics_detector",
}


def load_model(
    spec: str,
    *,
    weights: str | Path | None = None,
    class_names: Sequence[str] | None = None,
    preprocess: Callable[..., Any] | None = None,
    layers: Sequence[str] | None = None,
    example: Tensor | None = None,
) -> Classifier | Detector:
    """Make a model from a text; nothing is downloaded. Its network is in evaluation mode.

    Args:
        spec: `path/to/file.py:function` (the function takes nothing and gives a network, or a
            finished classifier or detector), `timm:resnet18.a1_in1k`, `torchvision:resnet18`,
            `torchvision:resnet18.IMAGENET1K_V1` or `torchvision:fasterrcnn_resnet50_fpn`,
            `transformers:FOLDER`, `ultralytics:FILE.pt`, or a model of ours such as
            `terra:classifier` and `terra:detector`.
        weights: A .safetensors, .pt or .pth file; for a backbone of transformers, its linear probe.
        class_names: One per class; those the model comes with by default. A finished model keeps
            its own.
        preprocess: Instead of the preprocessing the model comes with.
        layers: Instead of the layers found automatically; for a detector the one that LaRD reads,
            then those that SAFE reads.
        example: A preprocessed batch for a bare network that takes no picture of a usual size; all
            others know what they take.
    """
    options = ModelOptions(
        None if weights is None else Path(weights),
        None if class_names is None else tuple(class_names),
        preprocess,
        None if layers is None else tuple(layers),
        example,
    )
    model = _loaded(spec, options)
    model.module.eval()
    return model


def load_classifier(
    spec: str, *, weights: str | Path | None = None, example: Tensor | None = None
) -> Classifier:
    """Make a classifier from a text, as `load_model` does, and refuse a detector."""
    model = load_model(spec, weights=weights, example=example)
    if isinstance(model, Detector):
        raise InvalidDataError(
            f"{spec} is a detector, but a classifier is needed here; give one, or a benchmark for "
            f"detectors."
        )
    return model


def _loaded(spec: str, options: ModelOptions) -> Classifier | Detector:
    if spec in MODELS.homes:
        return _finished(MODELS.get(spec)(), spec, options)
    family, _, rest = spec.partition(":")
    if family in _LIBRARIES and rest:
        return _from_library(family, rest, options)
    path, _, function = spec.rpartition(":")
    if not path.endswith(".py"):
        raise unknown_name("model", spec, [*MODELS.homes, *(f"{each}:…" for each in _LIBRARIES)])
    return _from_file(Path(path).resolve(), function, options)


def _from_library(family: str, rest: str, options: ModelOptions) -> Classifier | Detector:
    home, _, attribute = _LIBRARIES[family].partition(":")
    model: Classifier | Detector = getattr(import_module(home), attribute)(rest, options)
    return model


def _from_file(path: Path, function: str, options: ModelOptions) -> Classifier | Detector:
    with importable(path) as module:
        functions = {
            name: each
            for name, each in vars(module).items()
            if callable(each) and not name.startswith("_")
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
    except IncognitaError:  # says it all
        raise
    except Exception as error:
        problem = " ".join(f"{type(error).__name__}: {error}".split()).removesuffix(":")
        raise InvalidDataError(
            f"{name}() of {path} failed with {problem}; it is called without arguments and gives "
            f"a network."
        ) from error


def _finished(made: Any, name: str, options: ModelOptions) -> Classifier | Detector:
    """Put weights into what a function gave, and wrap it where it is a bare network."""
    network = getattr(made, "module", None) if not isinstance(made, nn.Module) else made
    if options.weights is not None and isinstance(network, nn.Module):
        load_weights(network, options.weights)
    if isinstance(made, nn.Module):
        return _wrapped(made, name, options)
    if not isinstance(made, Classifier | Detector):
        raise InvalidDataError(
            f"{name}() gave a {type(made).__name__}, but a model is a torch.nn.Module or what "
            f"wrap_classifier or wrap_detector gives; return one of these."
        )
    given = [each for each in ("preprocess", "layers") if getattr(options, each)]
    if given:
        kind = "classifier" if isinstance(made, Classifier) else "detector"
        raise InvalidDataError(
            f"{name}() gives a finished {kind}, so {given[0]} cannot be set from outside; set it "
            f"in wrap_{kind} there."
        )
    return made


def _wrapped(network: nn.Module, name: str, options: ModelOptions) -> Classifier | Detector:
    if is_detector(network):
        return wrap_detector(
            network,
            class_names=options.class_names,
            name=name,
            preprocess=options.preprocess,
            latent=options.latent,
            shortcuts=options.shortcuts,
        )
    return wrap_classifier(
        network,
        preprocess=options.preprocess,
        class_names=options.class_names,
        layers=options.layers,
        name=name,
        example=options.example,
    )
