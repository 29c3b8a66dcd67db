"""incognita measures what a vision model does when it meets something it does not know.

These names are the public surface. Each is imported on first use, so that a command that only
reads JSON does not wait for torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from incognita._version import __version__

if TYPE_CHECKING:
    from incognita.benchmarks.load import list_benchmarks as list_benchmarks
    from incognita.benchmarks.load import load_benchmark as load_benchmark
    from incognita.containers.boxes import BoxTruth as BoxTruth
    from incognita.containers.boxes import Detections as Detections
    from incognita.containers.classes import Classes as Classes
    from incognita.containers.classes import Role as Role
    from incognita.containers.outputs import ClassifierOutputs as ClassifierOutputs
    from incognita.containers.outputs import Head as Head
    from incognita.evaluation.certify import certify as certify
    from incognita.evaluation.evaluate import BoxOptions as BoxOptions
    from incognita.evaluation.evaluate import evaluate as evaluate
    from incognita.extraction.extract import detect as detect
    from incognita.formats import load_coco as load_coco
    from incognita.methods import list_methods as list_methods
    from incognita.methods import load_method as load_method
    from incognita.methods.saving import load_saved_method as load_saved_method
    from incognita.methods.saving import save_method as save_method
    from incognita.models.wrap_classifier import wrap_classifier as wrap_classifier
    from incognita.models.wrap_detector import wrap_detector as wrap_detector
    from incognita.results.certificate import Certificate as Certificate
    from incognita.results.evaluation import Evaluation as Evaluation

_HOMES = {
    "BoxOptions": "incognita.evaluation.evaluate",
    "BoxTruth": "incognita.containers.boxes",
    "Certificate": "incognita.results.certificate",
    "Classes": "incognita.containers.classes",
    "ClassifierOutputs": "incognita.containers.outputs",
    "Detections": "incognita.containers.boxes",
    "Evaluation": "incognita.results.evaluation",
    "Head": "incognita.containers.outputs",
    "Role": "incognita.containers.classes",
    "certify": "incognita.evaluation.certify",
    "detect": "incognita.extraction.extract",
    "evaluate": "incognita.evaluation.evaluate",
    "list_benchmarks": "incognita.benchmarks.load",
    "list_methods": "incognita.methods",
    "load_benchmark": "incognita.benchmarks.load",
    "load_coco": "incognita.formats",
    "load_method": "incognita.methods",
    "load_saved_method": "incognita.methods.saving",
    "save_method": "incognita.methods.saving",
    "wrap_classifier": "incognita.models.wrap_classifier",
    "wrap_detector": "incognita.models.wrap_detector",
}

__all__ = ["__version__", *_HOMES]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'incognita' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
