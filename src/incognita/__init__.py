"""incognita measures what a vision model does when it meets something it does not know.

The names below are the public surface. Each is imported when it is first used, so that a command
that only reads JSON never waits for torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from incognita.containers.classes import Classes as Classes
    from incognita.containers.classes import Role as Role
    from incognita.containers.classification import ClassifierOutputs as ClassifierOutputs
    from incognita.containers.classification import Head as Head
    from incognita.containers.detection import BoxTruth as BoxTruth
    from incognita.containers.detection import Detections as Detections
    from incognita.containers.scores import UnknownScores as UnknownScores
    from incognita.running.certify import Certificate as Certificate
    from incognita.running.certify import certify as certify

__version__ = "0.1.0"

_HOMES = {
    "BoxTruth": "incognita.containers.detection",
    "Certificate": "incognita.running.certify",
    "Classes": "incognita.containers.classes",
    "ClassifierOutputs": "incognita.containers.classification",
    "Detections": "incognita.containers.detection",
    "Head": "incognita.containers.classification",
    "Role": "incognita.containers.classes",
    "UnknownScores": "incognita.containers.scores",
    "certify": "incognita.running.certify",
}

__all__ = [
    "BoxTruth",
    "Certificate",
    "Classes",
    "ClassifierOutputs",
    "Detections",
    "Head",
    "Role",
    "UnknownScores",
    "__version__",
    "certify",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'incognita' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
