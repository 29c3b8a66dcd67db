"""What moves between the stages: frozen dataclasses of arrays, checked once."""

from typing import TYPE_CHECKING

from incognita.registry import attach

if TYPE_CHECKING:
    from incognita.containers.boxes import BoxTruth as BoxTruth
    from incognita.containers.boxes import Detections as Detections
    from incognita.containers.classes import Classes as Classes
    from incognita.containers.classes import Role as Role
    from incognita.containers.dataset import ArrayDataset as ArrayDataset
    from incognita.containers.dataset import BoxDataset as BoxDataset
    from incognita.containers.dataset import Dataset as Dataset
    from incognita.containers.needs import ExtraOutput as ExtraOutput
    from incognita.containers.needs import Needs as Needs
    from incognita.containers.outputs import ClassifierOutputs as ClassifierOutputs
    from incognita.containers.outputs import DetectorOutputs as DetectorOutputs
    from incognita.containers.outputs import Head as Head

__getattr__, __dir__, __all__ = attach(
    __name__,
    {
        ".boxes": ["BoxTruth", "Detections"],
        ".classes": ["Classes", "Role"],
        ".dataset": ["ArrayDataset", "BoxDataset", "Dataset"],
        ".needs": ["ExtraOutput", "Needs"],
        ".outputs": ["ClassifierOutputs", "DetectorOutputs", "Head"],
    },
)
