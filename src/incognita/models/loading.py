"""From what people type behind `--model` to a classifier."""

from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from incognita.errors import IncognitaError, InvalidDataError, unknown_name
from incognita.models import MODELS
from incognita.models.adapter import Classifier
from incognita.models.checkpoints import load_weights
from incognita.models.importing import importable
from incognita.models.options import ModelOptions
from incognita.models.wrapping import WrappedClassifier, wrap_classifier

_LIBRARIES = {
    "timm": "incognita.models.from_timm:load_timm",
    "torchvision": "incognita.models.from_torchvision:load_torchvision",
    "transformers": "incognita.models.from_transformers:load_transformers",
}


def load_model(
    spec: str,
    *,
    weights: str | Path | None = None,
    class_names: Sequence[str] | None = None,
    preprocess: Callable[..., Any] | None = None,
    layers: Sequence[str] | None = None,
    example: Tensor | None = None,
) -> Classifier:
    """Make a classifier from a text; nothing is downloaded. Its network is in evaluation mode.

    Args:
        spec: `path/to/file.py:function` (the function takes nothing and gives a network or a
            classifier), `timm:resnet18.a1_in1k`, `torchvision:resnet18` or
            `torchvision:resnet18.IMAGENET1K_V1`, `transformers:FOLDER`, or a model of ours such as
            `terra:classifier`.
        weights: A .safetensors, .pt or .pth file; for a backbone of transformers, its linear probe.
        class_names: One per logit; those the model comes with by default. A finished classifier
            keeps its own.
        preprocess: Instead of the preprocessing the model comes with.
        layers: Instead of the layers found automatically.
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
    classifier = _loaded(spec, options)
    classifier.module.eval()
    return classifier


def _loaded(spec: str, options: ModelOptions) -> Classifier:
    if spec in MODELS.homes:
        return _finished(MODELS.get(spec)(), spec, options)
    family, _, rest = spec.partition(":")
    if family in _LIBRARIES and rest:
        return _from_library(family, rest, options)
    path, _, function = spec.rpartition(":")
    if not path.endswith(".py"):
        raise unknown_name("model", spec, [*MODELS.homes, *(f"{each}:…" for each in _LIBRARIES)])
    return _from_file(Path(path).resolve(), function, options)


def _from_library(family: str, rest: str, options: ModelOptions) -> Classifier:
    home, _, attribute = _LIBRARIES[family].partition(":")
    classifier: Classifier = getattr(import_module(home), attribute)(rest, options)
    return classifier


def _from_file(path: Path, function: str, options: ModelOptions) -> Classifier:
    with importable(path) as module:
        functions = {
            name: each
            for name, each in vars(module).items()
            if callable(each) and not name.startswith("_")
        }
        if function not in functions:
            raise unknown_name(f"function of {path.name}", function, functions)
        made = _called(functions[function], function, path)
        classifier = _finished(made, function, options)
    if isinstance(classifier, WrappedClassifier):
        classifier.source = path
    return classifier


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


def _finished(made: Any, name: str, options: ModelOptions) -> Classifier:
    """Put weights into what a function gave, and wrap it where it is a bare network."""
    network = getattr(made, "module", None) if not isinstance(made, nn.Module) else made
    if options.weights is not None and isinstance(network, nn.Module):
        load_weights(network, options.weights)
    if isinstance(made, nn.Module):
        return wrap_classifier(
            made,
            preprocess=options.preprocess,
            class_names=options.class_names,
            layers=options.layers,
            name=name,
            example=options.example,
        )
    if not isinstance(made, Classifier):
        raise InvalidDataError(
            f"{name}() gave a {type(made).__name__}, but a model is a torch.nn.Module or what "
            f"wrap_classifier gives; return one of these."
        )
    given = [each for each in ("preprocess", "layers") if getattr(options, each)]
    if given:
        raise InvalidDataError(
            f"{name}() gives a finished classifier, so {given[0]} cannot be set from outside; "
            f"set it in wrap_classifier there."
        )
    return made
