"""How others write boxes: annotations of COCO, VOC, YOLO and BDD100K; results; class maps; scores.

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

from typing import TYPE_CHECKING

from incognita.registry import attach

if TYPE_CHECKING:
    from incognita.formats.bdd import load_bdd as load_bdd
    from incognita.formats.class_roles import ClassMap as ClassMap
    from incognita.formats.class_roles import load_class_map as load_class_map
    from incognita.formats.coco_annotations import CocoTruth as CocoTruth
    from incognita.formats.coco_annotations import load_truth as load_truth
    from incognita.formats.coco_annotations import save_truth as save_truth
    from incognita.formats.coco_layout import save_fiftyone as save_fiftyone
    from incognita.formats.coco_results import load_coco as load_coco
    from incognita.formats.coco_results import load_detections as load_detections
    from incognita.formats.coco_results import save_detections as save_detections
    from incognita.formats.image_hashes import find_repeats as find_repeats
    from incognita.formats.image_hashes import hash_images as hash_images
    from incognita.formats.scores import ScoreTable as ScoreTable
    from incognita.formats.scores import load_scores as load_scores
    from incognita.formats.voc import load_voc as load_voc
    from incognita.formats.yolo import load_yolo as load_yolo

__getattr__, __dir__, __all__ = attach(
    __name__,
    {
        ".bdd": ["load_bdd"],
        ".class_roles": ["ClassMap", "load_class_map"],
        ".coco_annotations": ["CocoTruth", "load_truth", "save_truth"],
        ".coco_results": ["load_coco", "load_detections", "save_detections"],
        ".coco_layout": ["save_fiftyone"],
        ".image_hashes": ["find_repeats", "hash_images"],
        ".scores": ["ScoreTable", "load_scores"],
        ".voc": ["load_voc"],
        ".yolo": ["load_yolo"],
    },
)
