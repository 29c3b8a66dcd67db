"""Sheets of pictures: unknown objects, the boxes of a detector, and what a method calls them."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

from incognita.benchmarks.benchmark import KNOWN, SHIFTED, Benchmark
from incognita.benchmarks.load import test_sets
from incognita.containers.dataset import Dataset
from incognita.errors import InvalidDataError
from incognita.evaluation.detector_metrics import ThresholdedScores
from incognita.files import replacing
from incognita.results.score_tables import DetectedSet
from incognita.results.store import plain_name

COLUMNS, ROWS, SIDE, MARGIN, STRIP = 4, 3, 300, 8, 40
PAPER, INK = (250, 250, 248), (30, 30, 30)
OBJECT, NAMED, CALLED_UNKNOWN = (255, 255, 255), (214, 39, 40), (31, 140, 60)
LEGEND = (
    ("unknown object", (150, 150, 150)),
    ("box named as a known class", NAMED),
    ("box called unknown", CALLED_UNKNOWN),
)


def picture_folder(result: Path) -> Path:
    """Return the folder of the pictures of a result: beside its file, under the same name."""
    return result.with_name(f"{result.stem}-pictures")


def draw_pictures(
    benchmark: Benchmark,
    sets: Mapping[str, DetectedSet],
    thresholded: ThresholdedScores,
    title: str,
    folder: Path,
) -> list[str]:
    """Draw each set with unknown objects as a method sees it; return a note for each failure."""
    datasets = {name: dataset for _, name, dataset in test_sets(benchmark)}
    shown = [s for s in sets.values() if s.group not in (KNOWN, SHIFTED) and s.n_images]
    notes, used = [], set()
    for place, seen in enumerate(shown):
        name = plain_name(seen.name)[:100]
        name = f"{name}-{place}" if name in used else name
        used.add(name)
        try:
            headline = f"{benchmark.name} · {seen.name} · {title}"
            _save(picture_sheet(datasets[seen.name], seen, thresholded, headline), folder / name)
        except MemoryError:
            raise
        except Exception as error:  # a failed picture must not cost the numbers
            why = " ".join(str(error).split()) or type(error).__name__
            notes.append(f"{seen.name}: no pictures could be drawn ({why[:200]})")
    return notes


def _save(sheet: Image.Image, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path.with_name(f"{path.name}.png")) as unfinished:
        sheet.save(unfinished, format="PNG")


def picture_sheet(
    dataset: Dataset, seen: DetectedSet, thresholded: ThresholdedScores, title: str
) -> Image.Image:
    """Draw the first images of a set with its unknown objects and every kept box."""
    tiles = list(islice(_tiles(dataset, seen, thresholded), COLUMNS * ROWS))
    if not tiles:
        raise InvalidDataError("none of its images can be read")
    n_rows = -(-len(tiles) // COLUMNS)
    size = (COLUMNS * (SIDE + MARGIN) + MARGIN, STRIP + n_rows * (SIDE + MARGIN))
    sheet = Image.new("RGB", size, PAPER)
    _write_legend(ImageDraw.Draw(sheet), title)
    for k, tile in enumerate(tiles):
        row, column = divmod(k, COLUMNS)
        sheet.paste(tile, (MARGIN + column * (SIDE + MARGIN), STRIP + row * (SIDE + MARGIN)))
    return sheet


def _tiles(
    dataset: Dataset, seen: DetectedSet, thresholded: ThresholdedScores
) -> Iterator[Image.Image]:
    """Draw image after image, skipping those that cannot be read."""
    place_of = {str(image): k for k, image in enumerate(dataset.image_ids)}
    for k in range(seen.n_images):
        pixels = None
        with suppress(Exception):  # a file or a decoder may raise anything
            pixels = dataset.load(place_of[str(seen.truth.image_ids[k])])
        if pixels is not None:
            yield _with_boxes(pixels, seen, thresholded, k)


def _write_legend(draw: ImageDraw.ImageDraw, title: str) -> None:
    draw.text((MARGIN, 4), _in_one_line(draw, title, COLUMNS * SIDE), INK)
    x = MARGIN
    for text, color in LEGEND:
        draw.rectangle((x, 24, x + 10, 34), outline=color, width=2)
        draw.text((x + 16, 23), text, INK)
        x += 40 + int(draw.textlength(text))


def _with_boxes(
    pixels: np.ndarray, seen: DetectedSet, thresholded: ThresholdedScores, image: int
) -> Image.Image:
    """Draw one image on a square tile with room for the labels of boxes."""
    scale = SIDE / max(pixels.shape[:2])
    shape = (max(1, round(pixels.shape[1] * scale)), max(1, round(pixels.shape[0] * scale)))
    tile = Image.new("RGB", (SIDE, SIDE), PAPER)
    tile.paste(Image.fromarray(pixels).resize(shape, Image.Resampling.LANCZOS))
    draw = ImageDraw.Draw(tile)
    objects = slice(*seen.truth.offsets[image : image + 2])
    for xyxy in seen.truth.xyxy[objects][seen.truth.is_unknown[objects]]:
        _dashed(draw, (xyxy * scale).tolist())
    boxes = slice(*seen.kept.offsets[image : image + 2])
    is_unknown = thresholded.tau.is_unknown(thresholded.scores[seen.name][boxes])
    names = [seen.kept.classes.names[k] for k in seen.kept.class_ids[boxes]]
    for xyxy, called, name in zip(seen.kept.xyxy[boxes], is_unknown, names, strict=True):
        color, text = (CALLED_UNKNOWN, "unknown") if called else (NAMED, name)
        _labelled(draw, (xyxy * scale).tolist(), color, text)
    return tile


def _labelled(
    draw: ImageDraw.ImageDraw, corners: Sequence[float], color: tuple[int, int, int], text: str
) -> None:
    text = _in_one_line(draw, text, SIDE - 5)
    width = draw.textlength(text) + 4
    x, y = max(0.0, min(corners[0], SIDE - 1 - width)), max(0.0, corners[1] - 11)
    draw.rectangle(tuple(corners), outline=color, width=2)
    draw.rectangle((x, y, x + width, y + 11), fill=color)
    draw.text((x + 2, y), text, (255, 255, 255))


def _in_one_line(draw: ImageDraw.ImageDraw, text: str, room: int) -> str:
    """Shorten a text to one line of the given width."""
    text = " ".join(text.split())
    if draw.textlength(text) <= room:
        return text
    text = text[:room]  # no letter is narrower than a pixel
    while text and draw.textlength(f"{text}…") > room:
        text = text[:-1]
    return f"{text}…"


def _dashed(draw: ImageDraw.ImageDraw, corners: Sequence[float]) -> None:
    """Draw a dashed white frame on a dark one, visible on any background."""
    left, top, right, bottom = corners
    draw.rectangle((left, top, right, bottom), outline=(40, 40, 40), width=1)
    for x in np.arange(left, right, 8):
        draw.line((x, top, min(x + 4, right), top), OBJECT)
        draw.line((x, bottom, min(x + 4, right), bottom), OBJECT)
    for y in np.arange(top, bottom, 8):
        draw.line((left, y, left, min(y + 4, bottom)), OBJECT)
        draw.line((right, y, right, min(y + 4, bottom)), OBJECT)
