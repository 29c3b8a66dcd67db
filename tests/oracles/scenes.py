"""Small made-up detection problems in plain Python, and their translation into other formats.

Nothing here is fast. A scene is two flat lists, the boxes a detector found and the boxes that are
really there, each with the number of its image (0 to `n_images - 1`). Every order that a metric
depends on is an order of these lists: detections of equal score keep the order image, place in the
list; truth is visited in the order of its list.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

UNKNOWN = "unknown"

Xyxy = tuple[float, float, float, float]
Size = tuple[float, float]


@dataclass(frozen=True)
class Detection:
    """One box a detector found; its label is a known label or "unknown"."""

    image: int
    xyxy: Xyxy
    score: float
    label: str
    size: Size | None = None  # width and height as they were given: (x + w) - x is not always w

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", self.size or _size_of(self.xyxy))

    @property
    def area(self) -> float:
        return self.size[0] * self.size[1]


@dataclass(frozen=True)
class Truth:
    """One object that is really there; an unknown one may bear the name of its own class."""

    image: int
    xyxy: Xyxy
    label: str
    crowd: bool = False
    difficult: bool = False
    unknown: bool = False
    superclass: str | None = None
    size: Size | None = None
    area: float | None = None  # of the outline, as COCO gives it; else of the box

    def __post_init__(self) -> None:
        size = self.size or _size_of(self.xyxy)
        object.__setattr__(self, "size", size)
        object.__setattr__(self, "area", size[0] * size[1] if self.area is None else self.area)

    @property
    def target(self) -> str:
        """The label a right detection has: every unknown class counts as the one "unknown"."""
        return UNKNOWN if self.unknown else self.label


@dataclass(frozen=True)
class Scene:
    """A whole test set with the detections made on it."""

    n_images: int
    detections: list[Detection]
    truths: list[Truth]
    known_labels: list[str]
    superclass_of: dict[str, str | None] = field(default_factory=dict)

    @property
    def labels(self) -> list[str]:
        """All labels in the order of the COCO categories: the known ones, then "unknown"."""
        return [*self.known_labels, UNKNOWN]


def _size_of(xyxy: Xyxy) -> Size:
    return xyxy[2] - xyxy[0], xyxy[3] - xyxy[1]


def found(image: int, xywh: Xyxy, score: float, label: str) -> Detection:
    """Make a detection from a corner and a size."""
    x, y, w, h = xywh
    return Detection(image, (x, y, x + w, y + h), score, label, (w, h))


def real(image: int, xywh: Xyxy, label: str, **flags: Any) -> Truth:
    """Make an object from a corner and a size."""
    x, y, w, h = xywh
    unknown = flags.pop("unknown", label == UNKNOWN)
    return Truth(image, (x, y, x + w, y + h), label, unknown=unknown, size=(w, h), **flags)


# --- random scenes --------------------------------------------------------------------------------


def random_scene(
    rng: np.random.Generator,
    *,
    n_images: int = 8,
    n_known: int = 3,
    with_ties: bool = True,
    with_crowd: bool = True,
    with_difficult: bool = True,
    with_empty_images: bool = True,
    classes_without_truth: int = 0,
    classes_without_detections: int = 0,
    unknown_names: tuple[str, ...] = (UNKNOWN,),
    n_background: float = 2.0,
) -> Scene:
    """Draw a scene full of the cases that evaluators disagree on.

    Args:
        rng: Where the chance comes from.
        n_images: How many images; they are known-only, unknown-only, mixed or empty.
        n_known: How many known labels.
        with_ties: Scores come in steps, so that many are equal, some 0 and some 1.
        with_crowd: Some objects are crowd regions.
        with_difficult: Some objects are difficult.
        with_empty_images: Some images have no truth, some no detections, some neither.
        classes_without_truth: So many known labels, the last ones, have no object at all; if there
            are two or more, the very last one has no detection either.
        classes_without_detections: So many known labels, the first ones, are never detected.
        unknown_names: Class names the unknown objects bear.
        n_background: Mean number of boxes per image that belong to no object.
    """
    known = [f"known{i}" for i in range(n_known)]
    supers = {label: f"super{i % 2}" for i, label in enumerate(known)}
    real_labels = known[: n_known - classes_without_truth]
    found_labels = known[classes_without_detections:]
    if classes_without_truth >= 2:
        found_labels = [label for label in found_labels if label != known[-1]]
    truths: list[Truth] = []
    detections: list[Detection] = []
    for image in range(n_images):
        has_truth = not (with_empty_images and rng.random() < 0.2)
        has_detections = not (with_empty_images and rng.random() < 0.15)
        here: list[Truth] = []
        if has_truth:
            here = _random_truths(rng, image, real_labels, supers, unknown_names)
            here = [_with_flags(rng, t, crowd=with_crowd, difficult=with_difficult) for t in here]
        truths += here
        if has_detections:
            boxes = _random_boxes(rng, here, found_labels, n_background)
            rng.shuffle(boxes)
            for xywh, label in boxes:
                detections.append(found(image, xywh, _score(rng, steps=with_ties), label))
    return Scene(n_images, detections, truths, known, supers)


def _random_truths(
    rng: np.random.Generator,
    image: int,
    known: list[str],
    supers: dict[str, str],
    unknown_names: tuple[str, ...],
) -> list[Truth]:
    """Draw the objects of one image that has at least one."""
    kind = rng.choice(["known", "unknown", "both"])
    if not known:
        kind = "unknown"
    truths = []
    for _ in range(int(rng.integers(1, 7))):
        is_unknown = kind == "unknown" or (kind == "both" and rng.random() < 0.5)
        label = str(rng.choice(unknown_names)) if is_unknown else str(rng.choice(known))
        superclass = supers.get(label)
        if is_unknown:
            superclass = [None, "super0", "super1", "super-of-none"][rng.integers(0, 4)]
        x, y, w, h = _box(rng)
        if truths and rng.random() < 0.3:  # overlap an earlier object
            (x, y, w, h) = _moved(rng, (*truths[-1].xyxy[:2], *truths[-1].size))
        area = w * h * (1.0 if rng.random() < 0.5 else float(rng.uniform(0.5, 1.0)))
        truths.append(
            real(image, (x, y, w, h), label, unknown=is_unknown, superclass=superclass, area=area)
        )
    return truths


def _with_flags(rng: np.random.Generator, truth: Truth, *, crowd: bool, difficult: bool) -> Truth:
    draw = rng.random()
    is_crowd, is_difficult = crowd and draw < 0.15, difficult and 0.1 < draw < 0.3
    return Truth(**{**vars(truth), "crowd": is_crowd, "difficult": is_difficult})


def _random_boxes(
    rng: np.random.Generator, truths: list[Truth], known: list[str], n_background: float
) -> list[tuple[Xyxy, str]]:
    """Draw what a detector finds in one image: good, double, wrong and invented boxes."""
    labels = [*known, UNKNOWN]
    boxes = []
    for truth in truths:
        xywh = (*truth.xyxy[:2], *truth.size)
        right = truth.target if truth.target in labels else UNKNOWN
        for _ in range(int(rng.choice([0, 1, 1, 1, 2, 3]))):
            label = right if rng.random() < 0.6 else str(rng.choice(labels))
            boxes.append((_moved(rng, xywh), label))
        if truth.crowd:
            for _ in range(3):
                boxes.append((_inside(rng, xywh), right))
    for _ in range(int(rng.poisson(n_background))):
        boxes.append((_box(rng), str(rng.choice(labels))))
    return boxes


def _box(rng: np.random.Generator) -> Xyxy:
    """Draw a corner and a size, mostly on a grid of 8 pixels, of all three COCO sizes."""
    largest = int(rng.choice([3, 11, 30]))
    x, y, w, h = [int(v) for v in (*rng.integers(0, 20, 2), *rng.integers(1, largest + 1, 2))]
    box = (8.0 * x, 8.0 * y, 8.0 * w, 8.0 * h)
    if rng.random() < 0.3:
        box = tuple(float(v) + float(d) for v, d in zip(box, rng.uniform(0, 8, 4), strict=True))
    return box


def _moved(rng: np.random.Generator, xywh: Xyxy) -> Xyxy:
    """Change a box a little: not at all, to exactly half of it, by the grid, or by any amount."""
    x, y, w, h = xywh
    how = int(rng.choice([0, 0, 1, 2, 3, 3, 4, 4, 5]))
    if how == 0:
        return xywh
    if how == 1:  # half of it: IoU is 0.5 on the grid
        return (x, y, w / 2, h) if rng.random() < 0.5 else (x, y + h / 2, w, h / 2)
    if how == 2:  # the other way round
        return (x, y, 2 * w, h) if rng.random() < 0.5 else (x, y, w, 2 * h)
    if how == 3:
        dx, dy = (4.0 * int(step) for step in rng.integers(-1, 2, 2))
        return (max(x + dx, 0.0), max(y + dy, 0.0), w, h)
    sx, sy, sw, sh = rng.normal(0, 0.06 if how == 4 else 0.2, 4)
    return (
        float(max(x + sx * w, 0.0)),
        float(max(y + sy * h, 0.0)),
        float(w * np.exp(sw)),
        float(h * np.exp(sh)),
    )


def _inside(rng: np.random.Generator, xywh: Xyxy) -> Xyxy:
    x, y, w, h = xywh
    return (x + w * float(rng.choice([0.0, 0.25, 0.5])), y, w / 2, h / 2)


def _score(rng: np.random.Generator, *, steps: bool) -> float:
    score = float(rng.beta(1.2, 1.2))
    if not steps:
        return score
    return round(score, int(rng.choice([1, 2, 4])))


# --- other formats --------------------------------------------------------------------------------


def image_id(image: int) -> int:
    """Give the COCO id of an image; ids neither begin at 0 nor follow each other."""
    return 1001 + 7 * image


def category_id(scene: Scene, label: str) -> int:
    """Give the COCO id of a label; they rise in the order of `Scene.labels`."""
    return 3 + 2 * scene.labels.index(label)


def to_coco(scene: Scene) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Give the truth as a COCO file and the detections as a COCO list of results."""
    images = [{"id": image_id(i), "width": 640, "height": 640} for i in range(scene.n_images)]
    categories = [{"id": category_id(scene, name), "name": name} for name in scene.labels]
    annotations = [
        {
            "id": number,
            "image_id": image_id(truth.image),
            "category_id": category_id(scene, truth.target),
            "bbox": [*truth.xyxy[:2], *truth.size],
            "area": truth.area,
            "iscrowd": int(truth.crowd),
            "difficult": int(truth.difficult),
        }
        for number, truth in enumerate(scene.truths, start=1)
    ]
    results = [
        {
            "image_id": image_id(detection.image),
            "category_id": category_id(scene, detection.label),
            "bbox": [*detection.xyxy[:2], *detection.size],
            "score": detection.score,
        }
        for detection in scene.detections
    ]
    return {"images": images, "annotations": annotations, "categories": categories}, results


def to_containers(scene: Scene) -> tuple[Any, Any]:
    """Give the scene as `incognita.containers.boxes.Detections` and `BoxTruth`."""
    from incognita.containers.boxes import BoxTruth, Detections
    from incognita.containers.classes import Classes, Role

    own_names = {t.label for t in scene.truths if t.unknown} - {UNKNOWN}
    names = (*scene.labels, *sorted(own_names))
    n_known = len(scene.known_labels)
    roles = (Role.KNOWN,) * n_known + (Role.UNKNOWN,) * (len(names) - n_known)
    classes = Classes(names, roles, tuple(scene.superclass_of.get(name) for name in names))
    image_ids = [image_id(image) for image in range(scene.n_images)]
    boxes, box_offsets = _by_image(scene.n_images, scene.detections)
    objects, object_offsets = _by_image(scene.n_images, scene.truths)
    detections = Detections(
        image_ids,
        box_offsets,
        [d.xyxy for d in boxes],
        [d.score for d in boxes],
        [names.index(d.label) for d in boxes],
        classes,
        sizes=[d.size for d in boxes],
    )
    superclasses = np.array([t.superclass for t in objects], dtype=object)
    truth = BoxTruth(
        image_ids,
        object_offsets,
        [t.xyxy for t in objects],
        [names.index(t.label) for t in objects],
        classes,
        sizes=[t.size for t in objects],
        areas=[t.area for t in objects],
        is_crowd=[t.crowd for t in objects],
        is_difficult=[t.difficult for t in objects],
        superclasses=superclasses,
    )
    return detections, truth


def _by_image(n_images: int, boxes: list[Any]) -> tuple[list[Any], list[int]]:
    """Lay boxes out image by image, in the order of the list within each."""
    offsets, rows = [0], []
    for image in range(n_images):
        rows += [box for box in boxes if box.image == image]
        offsets.append(len(rows))
    return rows, offsets
