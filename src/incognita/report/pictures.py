"""Thumbnails for galleries: small WebP files with boxes drawn on them, ranked and shared out.

Images come from the data sets of a run made in this process, or from its benchmark, loaded again.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from io import BytesIO
from itertools import islice
from typing import Any, TypeVar

import numpy as np

from incognita.benchmarks.load import list_benchmarks, load_benchmark, test_sets
from incognita.containers.dataset import Dataset
from incognita.errors import IncognitaError, MissingDataError
from incognita.evaluation.gallery import DrawnBox, draw_boxes
from incognita.evaluation.gallery import in_turn as in_turn
from incognita.report.page import Picture
from incognita.results.evaluation import Evaluation
from incognita.results.score_tables import as_utf8

SIDE = 224  # pixels of the longer side of a thumbnail
QUALITY = 55  # of WebP
MOST_BYTES = 1_500_000  # of all thumbnails of a page, which may have 3 MB
MOST_TRIED = 10  # cases for each picture of a gallery
T = TypeVar("T")


@dataclass(eq=False)
class Images:
    """The images of a run, by the name of their set and their id.

    Args:
        sets: The data sets.
        unreadable: Images that could not be loaded.
    """

    sets: dict[str, Dataset]
    unreadable: set[tuple[str, str]] = field(default_factory=set)
    _places: dict[str, dict[str, int]] = field(default_factory=dict)

    @classmethod
    def of(cls, evaluation: Evaluation) -> "Images":
        """Find the images of an evaluation; raise where they cannot be found."""
        if evaluation.images:
            return cls(dict(evaluation.images))
        return cls(_load_sets(evaluation.metadata))

    def load(self, name: str, image_id: str) -> np.ndarray | None:
        """Load an image as uint8 RGB; None where it cannot be."""
        try:
            return self.sets[name].load(self._place(name, image_id))
        except MemoryError:
            raise
        except Exception:  # a file or a decoder may raise anything
            self.unreadable.add((name, image_id))
            return None

    def _place(self, name: str, image_id: str) -> int:
        if name not in self._places:
            ids = (as_utf8(str(image)) for image in self.sets[name].image_ids)
            self._places[name] = {image: place for place, image in enumerate(ids)}
        return self._places[name][image_id]


def _load_sets(metadata: Mapping[str, Any]) -> dict[str, Dataset]:
    """Load the data sets of a finished run by the name of its benchmark.

    Only benchmarks that can be listed are loaded: the record of a run may come from a stranger, and
    must not choose which files are read.
    """
    name = str(metadata.get("benchmark", ""))
    if name not in list_benchmarks():
        raise MissingDataError(
            f"The images of {name or 'this run'} are not here: only benchmarks that ship with the "
            f"package are loaded again. Write the page where the run is made, with save_html."
        )
    try:
        benchmark = load_benchmark(
            name, limit=metadata.get("limit"), seed=int(metadata.get("seed", 0))
        )
    except IncognitaError as error:
        raise MissingDataError(f"The images of {name} are not here: {error}") from None
    written = metadata.get("definition_hash")
    if written not in (None, benchmark.metadata.get("definition_hash")):
        raise MissingDataError(
            f"The images of {name} are not those of the run: its definition has changed since."
        )
    return {name: dataset for _, name, dataset in test_sets(benchmark)}


def thumbnail(
    pixels: np.ndarray,
    boxes: Sequence[DrawnBox] = (),
    *,
    window: Sequence[float] | None = None,
    side: int = SIDE,
) -> bytes:
    """Return an image, or a window of it, as a small WebP file with boxes drawn on it.

    Args:
        pixels: The image, uint8 RGB.
        boxes: What is drawn, the most important last; a color of None is dashed.
        window: Left, top, right and bottom of the part that is shown.
        side: Pixels of the longer side.
    """
    height, width = pixels.shape[:2]
    left, top, right, bottom = (
        (0, 0, width, height) if window is None else (round(value) for value in window)
    )
    shown = np.ascontiguousarray(pixels[top:bottom, left:right])
    moved = [
        box._replace(xyxy=tuple(v - (left, top)[k % 2] for k, v in enumerate(box.xyxy)))
        for box in boxes
    ]
    stream = BytesIO()
    picture = draw_boxes(shown, moved, side=side, is_square=False)
    picture.save(stream, "webp", quality=QUALITY, method=4)
    return stream.getvalue()


def window_around(
    xyxy: Sequence[float], width: int, height: int, *, least: float = 0.5
) -> tuple[float, float, float, float]:
    """Return a square part of an image around a box, with room for what is beside it.

    Its sides are three times those of the box, and at least this share of the image.

    >>> window_around((10.0, 10.0, 20.0, 20.0), 200, 100)
    (0.0, 0.0, 50.0, 50.0)
    >>> window_around((180.0, 40.0, 200.0, 60.0), 200, 100)
    (140.0, 20.0, 200.0, 80.0)
    """
    longest = 3 * max(xyxy[2] - xyxy[0], xyxy[3] - xyxy[1])
    side = max(longest, least * min(width, height))
    bounds = []
    for low, high, size in ((xyxy[0], xyxy[2], width), (xyxy[1], xyxy[3], height)):
        extent = min(side, size)
        start = min(max((low + high - extent) / 2, 0.0), size - extent)
        bounds.append((float(start), float(start + extent)))
    (left, right), (top, bottom) = bounds
    return left, top, right, bottom


@dataclass
class PictureBudget:
    """How many bytes of pictures a page may still take."""

    n_bytes: int = MOST_BYTES

    def take(
        self, cases: Iterable[T], draw: Callable[[T], Picture | None], n_pictures: int
    ) -> tuple[Picture, ...]:
        """Draw cases until there are enough pictures or too many bytes; None is passed over.

        After many images that cannot be read, the rest is not tried.
        """
        drawn: list[Picture] = []
        for picture in filter(None, map(draw, islice(cases, MOST_TRIED * n_pictures))):
            self.n_bytes -= len(picture.image) * 4 // 3  # as text in the page
            if self.n_bytes < 0:
                break
            drawn.append(picture)
            if len(drawn) == n_pictures:
                break
        return tuple(drawn)
