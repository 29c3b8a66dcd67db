"""A sheet of pictures: what the detector found on unknown images, and what a method made of it."""

from collections.abc import Sequence

import numpy as np
from PIL import Image, ImageDraw

from incognita.benchmarks.dataset import Dataset
from incognita.running.box_measuring import Decided
from incognita.running.box_sets import BoxSet

PICTURES = "pictures"  # the folder beside the results
COLUMNS, ROWS, SIDE, MARGIN, STRIP = 4, 3, 300, 8, 40
PAPER, INK = (250, 250, 248), (30, 30, 30)
OBJECT, NAMED, CALLED_UNKNOWN = (255, 255, 255), (214, 39, 40), (31, 140, 60)
LEGEND = (
    ("unknown object", (150, 150, 150)),
    ("box named as a known class", NAMED),
    ("box called unknown", CALLED_UNKNOWN),
)


def picture_sheet(dataset: Dataset, seen: BoxSet, decided: Decided, title: str) -> Image.Image:
    """Draw the first images of a set with its unknown objects and every kept box."""
    n = min(COLUMNS * ROWS, seen.n_images)
    n_rows = -(-n // COLUMNS)
    size = (COLUMNS * (SIDE + MARGIN) + MARGIN, STRIP + n_rows * (SIDE + MARGIN))
    sheet = Image.new("RGB", size, PAPER)
    _write_legend(ImageDraw.Draw(sheet), title)
    place_of = {str(image): k for k, image in enumerate(dataset.image_ids)}
    for k in range(n):
        pixels = dataset.load(place_of[str(seen.truth.image_ids[k])])
        picture = _with_boxes(pixels, seen, decided, k)
        row, column = divmod(k, COLUMNS)
        sheet.paste(picture, (MARGIN + column * (SIDE + MARGIN), STRIP + row * (SIDE + MARGIN)))
    return sheet


def _write_legend(draw: ImageDraw.ImageDraw, title: str) -> None:
    draw.text((MARGIN, 4), title, INK)
    x = MARGIN
    for text, color in LEGEND:
        draw.rectangle((x, 24, x + 10, 34), outline=color, width=2)
        draw.text((x + 16, 23), text, INK)
        x += 40 + int(draw.textlength(text))


def _with_boxes(pixels: np.ndarray, seen: BoxSet, decided: Decided, image: int) -> Image.Image:
    scale = SIDE / max(pixels.shape[:2])
    shape = (round(pixels.shape[1] * scale), round(pixels.shape[0] * scale))
    picture = Image.fromarray(pixels).resize(shape, Image.Resampling.LANCZOS)
    draw = ImageDraw.Draw(picture)
    objects = slice(*seen.truth.offsets[image : image + 2])
    for xyxy in seen.truth.xyxy[objects][seen.truth.is_unknown[objects]]:
        _dashed(draw, [float(each) for each in xyxy * scale])
    boxes = slice(*seen.kept.offsets[image : image + 2])
    is_unknown = decided.tau.is_unknown(decided.scores[seen.name][boxes])
    names = [seen.kept.classes.names[k] for k in seen.kept.class_ids[boxes]]
    for xyxy, called, name in zip(seen.kept.xyxy[boxes], is_unknown, names, strict=True):
        color, text = (CALLED_UNKNOWN, "unknown") if called else (NAMED, name)
        _labelled(draw, [float(each) for each in xyxy * scale], color, text)
    return picture


def _labelled(
    draw: ImageDraw.ImageDraw, corners: Sequence[float], color: tuple[int, int, int], text: str
) -> None:
    x, y = corners[0], max(0.0, corners[1] - 11)
    draw.rectangle(tuple(corners), outline=color, width=2)
    draw.rectangle((x, y, x + draw.textlength(text) + 4, y + 11), fill=color)
    draw.text((x + 2, y), text, (255, 255, 255))


def _dashed(draw: ImageDraw.ImageDraw, corners: Sequence[float]) -> None:
    """Draw a dashed white frame on a dark one, so that it shows on any ground."""
    left, top, right, bottom = corners
    draw.rectangle((left, top, right, bottom), outline=(40, 40, 40), width=1)
    for x in np.arange(left, right, 8):
        draw.line((x, top, min(x + 4, right), top), OBJECT)
        draw.line((x, bottom, min(x + 4, right), bottom), OBJECT)
    for y in np.arange(top, bottom, 8):
        draw.line((left, y, left, min(y + 4, bottom)), OBJECT)
        draw.line((right, y, right, min(y + 4, bottom)), OBJECT)
