"""incognita measures what a vision model does when it meets something it does not know.

These names are the public surface. Each is imported on first use, so that a command that only
reads JSON does not wait for torch.
"""

from typing import TYPE_CHECKING

from incognita._version import __version__
from incognita.registry import attach

if TYPE_CHECKING:
    from incognita.benchmarks.load import list_benchmarks as list_benchmarks
    from incognita.benchmarks.load import load_benchmark as load_benchmark
    from incognita.containers.boxes import BoxTruth as BoxTruth
    from incognita.containers.boxes import Detections as Detections
    from incognita.containers.classes import Classes as Classes
    from incognita.containers.classes import Role as Role
    from incognita.containers.outputs import ClassifierOutputs as ClassifierOutputs
    from incognita.containers.outputs import Head as Head
    from incognita.decisions.guard import Guard as Guard
    from incognita.decisions.self_aware import SelfAware as SelfAware
    from incognita.evaluation.certify import certify as certify
    from incognita.evaluation.evaluate import BoxOptions as BoxOptions
    from incognita.evaluation.evaluate import evaluate as evaluate
    from incognita.evaluation.rescore import rescore as rescore
    from incognita.evaluation.self_aware import evaluate_self_aware as evaluate_self_aware
    from incognita.extraction.extract import detect as detect
    from incognita.formats import load_coco as load_coco
    from incognita.methods import list_methods as list_methods
    from incognita.methods import load_method as load_method
    from incognita.methods.saving import load_saved_method as load_saved_method
    from incognita.methods.saving import save_method as save_method
    from incognita.models.classifier import wrap_classifier as wrap_classifier
    from incognita.models.detector import wrap_detector as wrap_detector
    from incognita.models.preprocessing import Preprocessing as Preprocessing
    from incognita.results.certificate import Certificate as Certificate
    from incognita.results.evaluation import Evaluation as Evaluation
    from incognita.results.self_aware import SelfAwareReport as SelfAwareReport

__getattr__, __dir__, __all__ = attach(
    __name__,
    {
        ".benchmarks.load": ["list_benchmarks", "load_benchmark"],
        ".containers.boxes": ["BoxTruth", "Detections"],
        ".containers.classes": ["Classes", "Role"],
        ".containers.outputs": ["ClassifierOutputs", "Head"],
        ".decisions.guard": ["Guard"],
        ".decisions.self_aware": ["SelfAware"],
        ".evaluation.certify": ["certify"],
        ".evaluation.evaluate": ["BoxOptions", "evaluate"],
        ".evaluation.rescore": ["rescore"],
        ".evaluation.self_aware": ["evaluate_self_aware"],
        ".extraction.extract": ["detect"],
        ".formats": ["load_coco"],
        ".methods": ["list_methods", "load_method"],
        ".methods.saving": ["load_saved_method", "save_method"],
        ".models.classifier": ["wrap_classifier"],
        ".models.detector": ["wrap_detector"],
        ".models.preprocessing": ["Preprocessing"],
        ".results.certificate": ["Certificate"],
        ".results.evaluation": ["Evaluation"],
        ".results.self_aware": ["SelfAwareReport"],
    },
)
__all__ += ["__version__"]
