"""A tiny world for detectors: colored cells of a grid, some of colors nobody taught the detector.

The detector is the one of `tests/extraction/tiny_detector.py`, which gives a box per cell; here it
also comes with background and several labels per cell, and with two heads.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from hashlib import sha256
from typing import Any, NamedTuple

import numpy as np
import torch
from tests.extraction.tiny_detector import GRID, NAMES, GridDetector, GridNetwork
from tests.oracles.scenes import Truth
from torch import Tensor, nn

from incognita.benchmarks.benchmark import Benchmark
from incognita.containers.boxes import BoxTruth
from incognita.containers.classes import Classes, Role
from incognita.containers.dataset import ArrayDataset
from incognita.containers.outputs import Head
from incognita.decisions.confidence_thresholds import F1Optimal
from incognita.decisions.unknown_thresholds import KnownQuantile
from incognita.evaluation.detector import DetectorTask
from incognita.evaluation.fit_and_score import ExtractionLog
from incognita.extraction.settings import Settings
from incognita.models.detector import BoxFilter, HeadKind, ImageDetections

COLORS = {
    "red": (225, 30, 30),
    "green": (30, 225, 30),
    "blue": (30, 30, 225),
    "orange": (225, 75, 10),  # near: most are found
    "lime": (90, 235, 10),
    "rose": (235, 40, 50),  # far: fewer are
    "sky": (25, 60, 235),
    "purple": (150, 30, 150),  # of two classes alike
}
NEAR, FAR = ("orange", "lime"), ("rose", "sky", "purple")
SIDES = (48, 36, 45)  # a third of a cell is a number that floats hold exactly
NOISE = 30

# what becomes of an object, and how often
FATES = {
    "plain": 0.45,  # it is painted where the truth says
    "moved": 0.10,  # the truth lies a sixth of a cell beside it: IoU 5 / 7
    "half": 0.10,  # a third beside it: IoU exactly one half
    "apart": 0.08,  # a half beside it: IoU 1 / 3
    "wide": 0.07,  # it covers two cells, each of which overlaps it by one half
    "missed": 0.10,  # the truth is there, but it is not painted
    "false": 0.10,  # it is painted, but no truth is there
}


class Thing(NamedTuple):
    """One object of an image, its corners in cells; `name` is None where no truth is there."""

    name: str | None
    x: float
    y: float
    width: float = 1.0
    is_crowd: bool = False
    is_difficult: bool = False


@dataclass(frozen=True, eq=False)
class GridScenes(ArrayDataset):
    """Pictures in memory with the boxes of what is in them."""

    boxes: BoxTruth = field(kw_only=True)

    def truth(self) -> BoxTruth:
        return self.boxes

    def fingerprint(self) -> str:
        columns = (self.boxes.xyxy, self.boxes.class_ids, self.boxes.offsets, self.boxes.is_crowd)
        parts = [super().fingerprint(), repr(self.boxes.classes)]
        return sha256(repr((parts, [c.tolist() for c in columns])).encode()).hexdigest()

    def subset(self, indices: Sequence[int]) -> "GridScenes":
        ids = tuple(self.image_ids[k] for k in indices)
        truth = self.boxes.for_images(np.array(ids))
        return GridScenes(self.name, ids, [self.images[k] for k in indices], boxes=truth)


@cache  # nobody changes what is drawn
def scenes(
    name: str,
    n: int,
    *,
    seed: int,
    known: tuple[str, ...] = NAMES,
    unknown: tuple[str, ...] = (),
    rows: tuple[int, ...] = tuple(range(GRID)),
) -> GridScenes:
    """Draw pictures with objects of some classes; with both kinds, some hold only one of them."""
    rng = np.random.default_rng(seed)
    images, things = [], []
    for k in range(n):
        choice = [*known, *unknown]
        if known and unknown:
            choice = [choice, list(known), list(unknown)][k % 3]
        image, here = _picture(rng, SIDES[k % len(SIDES)], choice, rows)
        images.append(image)
        things.append((SIDES[k % len(SIDES)] / GRID, here))
    ids = tuple(f"{name}{k:03d}" for k in range(n))
    return GridScenes(name, ids, images, boxes=truth_of(ids, things, unknown or ("unknown",)))


def truth_of(
    image_ids: Sequence[str],
    things: Sequence[tuple[float, Sequence[Thing]]],
    unknown: Sequence[str] = ("unknown",),
) -> BoxTruth:
    """Give the truth of images from the side of their cells and what is in them."""
    classes = Classes(
        (*NAMES, *unknown), (Role.KNOWN,) * len(NAMES) + (Role.UNKNOWN,) * len(unknown)
    )
    there = [[(cell, t) for t in here if t.name is not None] for cell, here in things]
    flat = [each for here in there for each in here]
    corners = [
        (t.x * cell, t.y * cell, (t.x + t.width) * cell, (t.y + 1) * cell) for cell, t in flat
    ]
    return BoxTruth(
        np.array(image_ids, np.str_),
        np.cumsum([0, *map(len, there)]),
        np.array(corners, np.float64).reshape(-1, 4),
        np.array([classes.id_of(t.name) for _, t in flat], np.int32),
        classes,
        is_crowd=[t.is_crowd for _, t in flat],
        is_difficult=[t.is_difficult for _, t in flat],
    )


def _picture(
    rng: np.random.Generator, side: int, choice: Sequence[str], rows: Sequence[int]
) -> tuple[np.ndarray, list[Thing]]:
    image = rng.integers(0, 25, (side, side, 3), dtype=np.uint8)
    places = [(row, column) for row in rows for column in range(GRID)]
    things: list[Thing] = []
    taken: set[tuple[int, int]] = set()
    for k in rng.permutation(len(places))[: rng.integers(0, 6)]:
        fate = str(rng.choice(list(FATES), p=list(FATES.values())))
        row, column = places[k]
        cells = [(row, column)]
        if fate == "wide" and column < GRID - 1:
            cells.append((row, column + 1))
        if taken & set(cells):
            continue
        taken |= set(cells)
        color = str(rng.choice(choice))
        if fate != "missed":
            tone = np.clip(np.array(COLORS[color]) + rng.integers(-NOISE, NOISE + 1, 3), 0, 255)
            for place, at in enumerate(cells):
                # equally sure boxes of one image have no order that an image drawn twice keeps
                paint(image, *at, np.clip(tone - 2 * place, 0, 255))
        shift = {"moved": 1 / 6, "half": 1 / 3, "apart": 1 / 2}.get(fate, 0.0)
        left = -shift if column == GRID - 1 else shift
        draw = rng.random()
        things.append(
            Thing(
                None if fate == "false" else color,
                column + left,
                row,
                float(len(cells)),
                is_crowd=draw < 0.06,
                is_difficult=draw > 0.94,
            )
        )
    return image, things


def paint(image: np.ndarray, row: int, column: int, tone: Sequence[int]) -> None:
    """Fill a cell of a picture with a color."""
    side = len(image)
    first_row, last_row = row * side // GRID, -(-(row + 1) * side // GRID)
    first, last = column * side // GRID, -(-(column + 1) * side // GRID)
    image[first_row:last_row, first:last] = tone


def box_benchmark(**changes: Any) -> Benchmark:
    """Give a benchmark with every part; near has two sets, one of them with a silent image."""
    parts: dict[str, Any] = {
        "name": "grid",
        "version": 1,
        "title": "colored cells",
        "task": "detection",
        "classes": NAMES,
        "train": scenes("train", 60, seed=1),
        "validation": scenes("validation", 40, seed=2),
        "test": scenes("test", 36, seed=3),
        "unknown": {
            "near": {
                "a": scenes("a", 24, seed=4, known=(), unknown=NEAR),
                "b": scenes("b", 18, seed=5, known=(), unknown=("orange", "rose")),
            },
            "far": {"c": scenes("c", 24, seed=6, known=(), unknown=FAR)},
        },
        "mixed": {"both": scenes("both", 30, seed=7, unknown=(*NEAR, *FAR))},
        "unknown_validation": scenes("held-out", 18, seed=8, known=(), unknown=("lime", "rose")),
    }
    return Benchmark(**(parts | changes))


def scored_sets(benchmark: Benchmark) -> dict[str, GridScenes]:
    """Give every set that is scored, by its name."""
    sets = {"test": benchmark.test, **benchmark.shifted}
    for group in benchmark.unknown.values():
        sets |= group
    return sets | dict(benchmark.mixed)


# --- detectors ------------------------------------------------------------------------------------


@dataclass(eq=False)
class CellDetector(GridDetector):
    """The detector of the grid with a fingerprint that takes no time; it is asked for often."""

    @property
    def weights_hash(self) -> str:
        state = self.module.state_dict().values()
        return sha256(b"".join(each.numpy().tobytes() for each in state)).hexdigest()


class BackgroundNetwork(GridNetwork):
    """The same cells with a fourth logit, that of background."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__(seed)
        self.background = nn.Linear(8, 1)
        with torch.no_grad():
            self.head.weight.mul_(0.5)
            self.head.bias.fill_(0.0)
            self.background.weight.zero_()[:, :3] = -0.8
            self.background.bias.fill_(1.6)


@dataclass(eq=False)
class BackgroundDetector(CellDetector):
    """Softmax with background; like torchvision's it may give a cell several labels."""

    module: nn.Module = field(default_factory=BackgroundNetwork)
    name: str = "grid-with-background"
    rules: BoxFilter = field(default_factory=lambda: BoxFilter(0.15, 100, None))
    head_kind: HeadKind = HeadKind.SOFTMAX

    def _found(self, features: Tensor, logits: Tensor, size: tuple[int, int]) -> ImageDetections:
        background = self.module.background(features)
        shares = torch.cat([logits, background], dim=1).softmax(dim=1)[:, : len(NAMES)]
        order = shares.flatten().argsort(descending=True, stable=True)
        kept = order[shares.flatten()[order] >= self.rules.score_threshold]
        kept = kept[: self.rules.max_per_image]
        cells, labels = kept // len(NAMES), kept % len(NAMES)
        return _boxes(cells, shares.flatten()[kept], labels, features, logits, size)._replace(
            background=background[cells, 0]
        )


class TwoHeadsNetwork(GridNetwork):
    """The lower half of the grid has a head of its own."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__(seed)
        self.lower = nn.Linear(8, 3)
        with torch.no_grad():
            self.lower.weight.copy_(self.head.weight * 0.9)
            self.lower.bias.copy_(self.head.bias + 0.2)

    def forward(self, batch: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        maps, features, upper = super().forward(batch)
        is_lower = torch.arange(GRID * GRID)[None, :, None] >= GRID * GRID // 2
        return maps, features, torch.where(is_lower, self.lower(features), upper)


@dataclass(eq=False)
class TwoHeadsDetector(CellDetector):
    """Two linear layers give the logits, as those of two levels would."""

    module: nn.Module = field(default_factory=TwoHeadsNetwork)
    name: str = "grid-of-two-heads"
    shares_features: bool = False

    @property
    def heads(self) -> tuple[Head, ...]:
        both = (self.module.head, self.module.lower)
        return tuple(Head(each.weight.detach(), each.bias.detach()) for each in both)

    def _found(self, features: Tensor, logits: Tensor, size: tuple[int, int]) -> ImageDetections:
        found = super()._found(features, logits, size)
        return found._replace(head_index=(found.source_index >= GRID * GRID // 2).long())


def _boxes(
    cells: Tensor,
    confidence: Tensor,
    labels: Tensor,
    features: Tensor,
    logits: Tensor,
    size: tuple[int, int],
) -> ImageDetections:
    row, column = cells // GRID, cells % GRID
    rois = torch.stack([column, row, column + 1, row + 1], dim=1) / GRID
    height, width = size
    return ImageDetections(
        rois * torch.tensor([width, height, width, height]),
        confidence,
        labels,
        logits[cells],
        None,
        features[cells],
        cells,
        torch.zeros_like(cells),
        rois,
    )


# --- what the network says, without extraction ----------------------------------------------------


class RawBox(NamedTuple):
    """A box as the detector gives it, in plain numbers."""

    image: int
    xyxy: tuple[float, ...]
    confidence: float
    label: str
    logits: tuple[float, ...]
    background: float | None
    features: tuple[float, ...]


def raw_boxes(detector: GridDetector, dataset: GridScenes) -> list[RawBox]:
    """Ask the detector image by image, going past everything that records and stores."""
    boxes = []
    for image in range(len(dataset)):
        prepared = detector.preprocess(dataset.load(image))
        with torch.no_grad():
            sizes = [(prepared.height, prepared.width)]
            found = detector.forward(prepared.pixels[None], sizes).images[0]
        for k in range(len(found.xyxy)):
            behind = None if found.background is None else float(found.background[k])
            boxes.append(
                RawBox(
                    image,
                    tuple(found.xyxy[k].tolist()),
                    float(found.confidence[k]),
                    NAMES[int(found.class_ids[k])],
                    tuple(found.logits[k].tolist()),
                    behind,
                    tuple(found.features[k].tolist()),
                )
            )
    return boxes


def truths_of(dataset: GridScenes) -> list[Truth]:
    """Give what is in the images in the words of the oracles."""
    truth = dataset.truth()
    names = truth.classes.names
    return [
        Truth(
            int(truth.image_index[k]),
            tuple(truth.xyxy[k].tolist()),
            names[truth.class_ids[k]],
            crowd=bool(truth.is_crowd[k]),
            difficult=bool(truth.is_difficult[k]),
            unknown=names[truth.class_ids[k]] not in NAMES,
        )
        for k in range(len(truth))
    ]


class PassCounter:
    """Counts the images that go through the first layer of a detector."""

    def __init__(self, detector: GridDetector) -> None:
        self.images = 0
        self.handle = detector.module.embed.register_forward_pre_hook(self._add)

    def _add(self, module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        self.images += len(inputs[0])


def n_images(parts: Mapping[str, GridScenes]) -> int:
    """Count the images of some sets."""
    return sum(len(each) for each in parts.values())


def capabilities(detector, benchmark):
    """What a detector on a benchmark provides to methods."""
    log = ExtractionLog(Settings())
    return DetectorTask(detector, benchmark, log, F1Optimal(), KnownQuantile()).capabilities()
