"""COCO files, the public names: truth in the instances format, detections in the results format.

>>> from pathlib import Path
>>> from tempfile import mkdtemp
>>> folder = Path(mkdtemp())
>>> _ = (folder / "truth.json").write_text(
...     '{"images": [{"id": 7}], "annotations": [], "categories": [{"id": 3, "name": "car"}]}'
... )
>>> _ = (folder / "found.json").write_text(
...     '[{"image_id": 7, "category_id": 3, "bbox": [10, 20, 30, 40], "score": 0.9}]'
... )
>>> truth = load_truth(folder / "truth.json", known=["car"])
>>> detections = load_detections(folder / "found.json", truth)  # as many files as one likes
>>> detections.xyxy.tolist(), truth.truth.n_images
([[10.0, 20.0, 40.0, 60.0]], 1)
"""

from incognita.formats.coco_annotations import CocoTruth, load_truth, save_truth
from incognita.formats.coco_results import load_detections, save_detections

__all__ = ["CocoTruth", "load_detections", "load_truth", "save_detections", "save_truth"]


def load_coco(truth, detections, *, known=None, classes=None):  # type: ignore[no-untyped-def]
    from incognita.formats.class_roles import load_class_map

    annotated = load_truth(
        truth, class_map=None if classes is None else load_class_map(classes), known=known
    )
    return annotated.truth, load_detections(detections, annotated)
