"""How others write boxes: COCO annotations and results, class maps.

>>> from pathlib import Path
>>> from tempfile import mkdtemp
>>> from incognita.formats import load_coco, load_detections, load_truth
>>> folder = Path(mkdtemp())
>>> _ = (folder / "truth.json").write_text(
...     '{"images": [{"id": 7}], "annotations": [], "categories": [{"id": 3, "name": "car"}]}'
... )
>>> _ = (folder / "found.json").write_text(
...     '[{"image_id": 7, "category_id": 3, "bbox": [10, 20, 30, 40], "score": 0.9}]'
... )
>>> truth, detections = load_coco(folder / "truth.json", folder / "found.json", known=["car"])
>>> detections.xyxy.tolist(), truth.n_images
([[10.0, 20.0, 40.0, 60.0]], 1)

With several results files the truth is loaded once:

>>> annotated = load_truth(folder / "truth.json", known=["car"])
>>> len(load_detections(folder / "found.json", annotated)), annotated.boxes.n_images
(1, 1)
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from incognita.formats.class_roles import ClassMap as ClassMap
    from incognita.formats.class_roles import load_class_map as load_class_map
    from incognita.formats.coco_annotations import CocoTruth as CocoTruth
    from incognita.formats.coco_annotations import load_truth as load_truth
    from incognita.formats.coco_annotations import save_truth as save_truth
    from incognita.formats.coco_results import load_coco as load_coco
    from incognita.formats.coco_results import load_detections as load_detections
    from incognita.formats.coco_results import save_detections as save_detections

_HOMES = {
    "ClassMap": "incognita.formats.class_roles",
    "CocoTruth": "incognita.formats.coco_annotations",
    "load_class_map": "incognita.formats.class_roles",
    "load_coco": "incognita.formats.coco_results",
    "load_detections": "incognita.formats.coco_results",
    "load_truth": "incognita.formats.coco_annotations",
    "save_detections": "incognita.formats.coco_results",
    "save_truth": "incognita.formats.coco_annotations",
}

__all__ = [
    "ClassMap",
    "CocoTruth",
    "load_class_map",
    "load_coco",
    "load_detections",
    "load_truth",
    "save_detections",
    "save_truth",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'incognita.formats' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
