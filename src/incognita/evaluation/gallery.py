"""Sheets of pictures: what a method calls unknown objects, and a detector made self-aware.

The charts of a study of self-aware detection are drawn here, too.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain, groupby, islice, zip_longest
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
from PIL import Image, ImageDraw

from incognita.benchmarks.benchmark import KNOWN, SHIFTED, Benchmark
from incognita.benchmarks.load import test_sets
from incognita.containers.boxes import Detections
from incognita.containers.dataset import Dataset
from incognita.decisions.self_aware import SelfAwareOutput
from incognita.errors import InvalidDataError
from incognita.evaluation.detector_metrics import ThresholdedScores
from incognita.files import replacing
from incognita.results.export import save_text
from incognita.results.score_tables import DetectedSet, as_utf8
from incognita.results.self_aware import SelfAwareStudy
from incognita.results.store import plain_name

COLUMNS, ROWS, SIDE, MARGIN, STRIP = 4, 3, 300, 8, 40
PAPER, INK = (250, 250, 248), (30, 30, 30)
OBJECT, NAMED, CALLED_UNKNOWN = (255, 255, 255), (214, 39, 40), (31, 140, 60)
BEFORE, KEPT, REJECTED = (31, 119, 180), (31, 140, 60), (120, 120, 120)
Color = tuple[int, int, int]
T = TypeVar("T")
Legend = Sequence[tuple[str, Color]]
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
    return _sheet(_tiles(dataset, seen, thresholded), title, LEGEND)


def _sheet(tiles: Iterator[Image.Image], title: str, legend: Legend) -> Image.Image:
    """Arrange the first tiles in rows below a title and a legend."""
    tiles = islice(tiles, COLUMNS * ROWS)
    if not (shown := list(tiles)):
        raise InvalidDataError("none of its images can be read")
    n_rows = -(-len(shown) // COLUMNS)
    size = (COLUMNS * (SIDE + MARGIN) + MARGIN, STRIP + n_rows * (SIDE + MARGIN))
    sheet = Image.new("RGB", size, PAPER)
    _write_legend(ImageDraw.Draw(sheet), title, legend)
    for k, tile in enumerate(shown):
        row, column = divmod(k, COLUMNS)
        sheet.paste(tile, (MARGIN + column * (SIDE + MARGIN), STRIP + row * (SIDE + MARGIN)))
    return sheet


def _tiles(
    dataset: Dataset, seen: DetectedSet, thresholded: ThresholdedScores
) -> Iterator[Image.Image]:
    """Draw image after image, skipping those that cannot be read."""
    place_of = {str(image): k for k, image in enumerate(dataset.image_ids)}
    for k in range(seen.n_images):
        pixels = _load(dataset, place_of.get(str(seen.truth.image_ids[k])))
        if pixels is not None:
            yield _with_boxes(pixels, seen, thresholded, k)


def _load(dataset: Dataset, place: int | None) -> np.ndarray | None:
    with suppress(Exception):  # a file or a decoder may raise anything
        return None if place is None else dataset.load(place)
    return None


def _write_legend(draw: ImageDraw.ImageDraw, title: str, legend: Legend) -> None:
    draw.text((MARGIN, 4), _in_one_line(draw, title, COLUMNS * SIDE), INK)
    x = MARGIN
    for text, color in legend:
        draw.rectangle((x, 24, x + 10, 34), outline=color, width=2)
        draw.text((x + 16, 23), text, INK)
        x += 40 + int(draw.textlength(text))


def _with_boxes(
    pixels: np.ndarray, seen: DetectedSet, thresholded: ThresholdedScores, image: int
) -> Image.Image:
    """Draw one image on a square tile with room for the labels of boxes."""
    objects = slice(*seen.truth.offsets[image : image + 2])
    unknown = seen.truth.xyxy[objects][seen.truth.is_unknown[objects]]
    boxes = slice(*seen.kept.offsets[image : image + 2])
    is_unknown = thresholded.tau.is_unknown(thresholded.scores[seen.name][boxes])
    names = [seen.kept.classes.names[k] for k in seen.kept.class_ids[boxes]]
    found = zip(seen.kept.xyxy[boxes].tolist(), is_unknown, names, strict=True)
    return draw_boxes(
        pixels,
        [
            *(DrawnBox(tuple(xyxy), None) for xyxy in unknown.tolist()),
            *(
                DrawnBox(tuple(xyxy), *((CALLED_UNKNOWN, "unknown") if called else (NAMED, name)))
                for xyxy, called, name in found
            ),
        ],
    )


class DrawnBox(NamedTuple):
    """A box on a picture: its corners in pixels, its color (None: dashed, the truth), its label."""

    xyxy: tuple[float, ...]
    color: Color | None
    text: str = ""


def draw_boxes(
    pixels: np.ndarray, boxes: Iterable[DrawnBox], *, side: int = SIDE, is_square: bool = True
) -> Image.Image:
    """Draw boxes on an image whose longer side has so many pixels, or on a square tile of it."""
    scale = side / max(pixels.shape[:2])
    shape = (max(1, round(pixels.shape[1] * scale)), max(1, round(pixels.shape[0] * scale)))
    tile = Image.fromarray(pixels).convert("RGB").resize(shape, Image.Resampling.LANCZOS)
    if is_square:
        paper = Image.new("RGB", (side, side), PAPER)
        paper.paste(tile)
        tile = paper
    draw = ImageDraw.Draw(tile)
    for box in boxes:
        corners = [scale * value for value in box.xyxy]
        if box.color is None:
            _dashed(draw, corners)
        else:
            _labelled(draw, corners, box.color, box.text)
    return tile


def _labelled(draw: ImageDraw.ImageDraw, corners: Sequence[float], color: Color, text: str) -> None:
    draw.rectangle(tuple(corners), outline=color, width=2)
    if not text:
        return
    side = min(SIDE, draw.im.size[0])
    text = _in_one_line(draw, text, side - 5)
    width = draw.textlength(text) + 4
    x, y = max(0.0, min(corners[0], side - 1 - width)), max(0.0, corners[1] - 11)
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


# --- self-aware detection: pairs of pictures, before and after ----------------------------------

MAX_BOXES = 30  # of one picture, the most confident ones
N_NAMED_BOXES = 4  # of a small picture, the most confident ones
N_PAIRS, PAIR_SIDE = 24, 200  # small pictures of one kind, for a page
PAIRS = "pictures.json"  # lists the small pictures of a folder
AWARE_LEGEND = (
    ("left: boxes of the detector", BEFORE),
    ("right: kept boxes, calibrated", KEPT),
    ("or rejected", REJECTED),
)


class BeforeAfter(NamedTuple):
    """A set of images with the boxes of a detector, and what its self-aware version decides."""

    dataset: Dataset
    before: Detections
    after: SelfAwareOutput


_Shown = tuple[str, BeforeAfter, int]  # the name of the set, the set, and an image of it


def draw_self_aware(
    known: BeforeAfter,
    shifted: Mapping[str, BeforeAfter],
    unknown: Mapping[str, BeforeAfter],
    title: str,
    folder: Path,
) -> list[str]:
    """Save the sheets rejected, calibrated, corrupted and failures; return notes on those left out.

    Beside them, a small picture of each image before and after, for a page, and a list of these.

    - rejected: unknown images, those that were nearly accepted first
    - calibrated: accepted known images with boxes
    - corrupted: the same images in every shifted set that has them
    - failures: accepted unknown images, and rejected known ones, the clearest first

    Args:
        known: Known test images, with detections on all of them.
        shifted: Changed copies of them, by name.
        unknown: Images without known objects, by name.
        title: The first line of each sheet.
        folder: Where the pictures go.
    """
    sheets = _kinds(known, shifted, unknown)
    notes, saved = [], []
    for name, images in sheets.items():
        shown = iter(images)
        if (first := next(shown, None)) is None:
            (folder / f"{name}.png").unlink(missing_ok=True)  # of an earlier run
            notes.append(f"{name}.png was not drawn: no image is of this kind")
            continue
        try:
            pairs = list(islice(_readable(chain([first], shown)), N_PAIRS))
            tiles = chain.from_iterable(_tiles_of(pair) for pair in pairs)
            _save(_sheet(tiles, f"{title} · {name}", AWARE_LEGEND), folder / name)
            saved += [_save_pair(pair, name, k, folder) for k, pair in enumerate(pairs)]
        except MemoryError:
            raise
        except Exception as error:  # a failed picture must not cost the numbers
            why = " ".join(str(error).split()) or type(error).__name__
            notes.append(f"{name}.png was not drawn: {why[:200]}")
    if saved:
        save_text(folder / PAIRS, json.dumps(saved, indent=1) + "\n")
    return notes


def _kinds(
    known: BeforeAfter, shifted: Mapping[str, BeforeAfter], unknown: Mapping[str, BeforeAfter]
) -> dict[str, Iterable[_Shown]]:
    """Return the images of each sheet, in its order."""
    return {
        "rejected": in_turn(
            _ranked(name, part, is_accepted=False) for name, part in unknown.items()
        ),
        "calibrated": _with_kept_boxes("known", known),
        "corrupted": _in_every_set(known, shifted),
        "failures": in_turn(
            [
                *(_ranked(name, part, is_accepted=True) for name, part in unknown.items()),
                reversed(_ranked("known", known, is_accepted=False)),
            ]
        ),
    }


def _ranked(name: str, part: BeforeAfter, *, is_accepted: bool) -> list[_Shown]:
    """List the images that are accepted, or not, by rising uncertainty."""
    places = np.flatnonzero(part.after.accepted == is_accepted)
    order = np.argsort(part.after.image_uncertainty[places], kind="stable")
    return [(name, part, int(k)) for k in places[order]]


def in_turn(lists: Iterable[Iterable[T]]) -> Iterator[T]:
    """Take the first of each list, then the second of each, until all are empty.

    >>> list(in_turn([[1, 2, 3], [4], [5, 6]]))
    [1, 4, 5, 2, 6, 3]
    """
    nothing = object()
    rounds = zip_longest(*lists, fillvalue=nothing)
    return (item for group in rounds for item in group if item is not nothing)  # type: ignore[misc]


def _with_kept_boxes(name: str, part: BeforeAfter) -> Iterator[_Shown]:
    n_boxes = np.diff(part.after.detections.offsets)
    return ((name, part, int(k)) for k in np.flatnonzero(part.after.accepted & (n_boxes > 0)))


def _in_every_set(known: BeforeAfter, shifted: Mapping[str, BeforeAfter]) -> Iterator[_Shown]:
    places = {
        name: {str(image): k for k, image in enumerate(part.before.image_ids)}
        for name, part in shifted.items()
    }
    for _, part, k in _with_kept_boxes("known", known):
        image = str(part.before.image_ids[k])
        for name, place_of in places.items():
            if image in place_of:
                yield name, shifted[name], place_of[image]


class _Pair(NamedTuple):
    """An image that could be read: its set, its place there, and its pixels."""

    name: str
    part: BeforeAfter
    k: int
    pixels: np.ndarray


def _readable(images: Iterable[_Shown]) -> Iterator[_Pair]:
    """Load image after image, skipping those that cannot be read."""
    for name, part, k in images:
        place_of = {str(image): place for place, image in enumerate(part.dataset.image_ids)}
        pixels = _load(part.dataset, place_of.get(str(part.before.image_ids[k])))
        if pixels is not None:
            yield _Pair(name, part, k, pixels)


def _tiles_of(pair: _Pair) -> Iterator[Image.Image]:
    """Draw an image twice, before and after."""
    yield _boxes_of(pair.pixels, pair.part.before, pair.k, BEFORE, pair.name)
    yield _decided(pair.pixels, pair.part.after, pair.k)


def _save_pair(pair: _Pair, kind: str, place: int, folder: Path) -> dict[str, Any]:
    """Save both pictures of an image as one small file, and return what a page says about it."""
    after, k = pair.part.after, pair.k
    accepted = bool(after.accepted[k])
    faded = pair.pixels if accepted else (pair.pixels // 3 + 160).astype(np.uint8)
    left = draw_boxes(pair.pixels, _few_boxes(pair.part.before, k, BEFORE), side=PAIR_SIDE)
    right = draw_boxes(faded, _few_boxes(after.detections, k, KEPT), side=PAIR_SIDE)
    both = Image.new("RGB", (2 * PAIR_SIDE + 4, PAIR_SIDE), PAPER)
    both.paste(left)
    both.paste(right, (PAIR_SIDE + 4, 0))
    file = f"{kind}-{place:02d}.webp"
    with replacing(folder / file) as unfinished:
        both.save(unfinished, format="WEBP", quality=55)
    uncertainty = float(after.image_uncertainty[k])
    return {
        "kind": kind,
        "file": file,
        "set": pair.name,
        "image": as_utf8(str(pair.part.before.image_ids[k])),
        "accepted": accepted,
        "uncertainty": uncertainty if np.isfinite(uncertainty) else None,
        "boxes before": int(np.diff(pair.part.before.offsets)[k]),
        "boxes after": int(np.diff(after.detections.offsets)[k]),
    }


def _few_boxes(detections: Detections, k: int, color: Color) -> list[DrawnBox]:
    """Return the most confident boxes of an image; only the first few have a name."""
    rows = np.arange(*detections.offsets[k : k + 2])
    most = rows[np.argsort(-detections.confidence[rows], kind="stable")][:MAX_BOXES]
    boxes = [_named_box(detections, int(row), color) for row in most]
    bare = [box._replace(text="") for box in boxes[N_NAMED_BOXES:]]
    return [*reversed(bare), *reversed(boxes[:N_NAMED_BOXES])]


def _decided(pixels: np.ndarray, after: SelfAwareOutput, k: int) -> Image.Image:
    caption = f"uncertainty {after.image_uncertainty[k]:.3g}"
    if after.accepted[k]:
        return _boxes_of(pixels, after.detections, k, KEPT, f"accepted, {caption}")
    faded = (pixels // 3 + 160).astype(np.uint8)
    return _boxes_of(faded, after.detections, k, REJECTED, f"rejected, {caption}")


def _boxes_of(
    pixels: np.ndarray, detections: Detections, k: int, color: Color, caption: str
) -> Image.Image:
    rows = np.arange(*detections.offsets[k : k + 2])
    most = rows[np.argsort(-detections.confidence[rows], kind="stable")][:MAX_BOXES]
    tile = draw_boxes(pixels, (_named_box(detections, int(row), color) for row in most[::-1]))
    draw = ImageDraw.Draw(tile)
    draw.rectangle((0, SIDE - 13, SIDE, SIDE), fill=color)
    draw.text((3, SIDE - 12), _in_one_line(draw, caption, SIDE - 6), (255, 255, 255))
    return tile


def _named_box(detections: Detections, row: int, color: Color) -> DrawnBox:
    name = detections.classes.names[detections.class_ids[row]]
    text = f"{name} {detections.confidence[row]:.2f}"
    return DrawnBox(tuple(detections.xyxy[row].tolist()), color, text)


# --- charts of a study --------------------------------------------------------------------------

PANEL, GAP = 220, 34
BAR, POINT, GRID = (158, 190, 218), (200, 60, 40), (215, 215, 210)


class _Panel(NamedTuple):
    """One small chart: bars and points between 0 and 1, from left to right; None is a gap."""

    title: str
    left: str
    bars: Sequence[float | None]
    points: Sequence[float | None]
    has_diagonal: bool = False


def draw_charts(study: SelfAwareStudy, folder: Path) -> list[Path]:
    """Save reliability.png and uncertainty_histogram.png of a study; return the files."""
    laece = {(row["images"], row["calibrator"]): row for row in study.get("calibrators").rows}
    charts = {
        "reliability": [
            _reliability_panel(f"{images}, {kind}", rows, laece[images, kind]["laece"])
            for (images, kind), rows in _grouped_by(study, "reliability", "images", "calibrator")
        ],
        "uncertainty_histogram": [
            _histogram_panel(images, rows)
            for (images,), rows in _grouped_by(study, "uncertainty_histogram", "images")
        ],
    }
    captions = {
        "reliability": "bars: precision x IoU, points: confidence, against confidence",
        "uncertainty_histogram": "bars: share of images, points: AP, against image uncertainty; "
        "the last bin is of images without boxes",
    }
    for name, panels in charts.items():
        _save(_chart(captions[name], panels), folder / name)
    return [folder / f"{name}.png" for name in charts]


def _grouped_by(
    study: SelfAwareStudy, table: str, *keys: str
) -> Iterator[tuple[tuple[Any, ...], list[Mapping[str, Any]]]]:
    rows = study.get(table).rows
    for key, group in groupby(rows, lambda row: tuple(row[name] for name in keys)):
        yield key, list(group)


def _reliability_panel(
    title: str, rows: Sequence[Mapping[str, Any]], laece: float | None
) -> _Panel:
    error = "-" if laece is None else f"{100 * laece:.1f} %"
    bars, points = ([row[name] for row in rows] for name in ("quality", "confidence"))
    return _Panel(f"{title}: LaECE {error}", "1", bars, points, has_diagonal=True)


def _histogram_panel(title: str, rows: Sequence[Mapping[str, Any]]) -> _Panel:
    n_images = sum(row["n_images"] for row in rows)
    shares = [row["n_images"] / max(1, n_images) for row in rows]
    highest = max(shares) or 1.0
    bars = [share / highest for share in shares]
    points = [row["ap"] for row in rows]
    return _Panel(f"{title}, {n_images} images", f"{100 * highest:.0f} %", bars, points)


def _chart(caption: str, panels: Sequence[_Panel]) -> Image.Image:
    n_columns = min(COLUMNS, len(panels))
    n_rows = -(-len(panels) // n_columns)
    size = n_columns * (PANEL + GAP) + GAP, STRIP + n_rows * (PANEL + GAP)
    chart = Image.new("RGB", size, PAPER)
    draw = ImageDraw.Draw(chart)
    draw.text((GAP, 4), _in_one_line(draw, caption, size[0] - 2 * GAP), INK)
    for k, panel in enumerate(panels):
        row, column = divmod(k, n_columns)
        _draw_panel(draw, GAP + column * (PANEL + GAP), STRIP + row * (PANEL + GAP), panel)
    return chart


def _draw_panel(draw: ImageDraw.ImageDraw, x: int, y: int, panel: _Panel) -> None:
    """Draw bars that rise from the bottom of a frame, and points joined by lines."""
    bottom, width = y + PANEL, PANEL / len(panel.bars)
    for level in (0.25, 0.5, 0.75):
        draw.line((x, bottom - level * PANEL, x + PANEL, bottom - level * PANEL), GRID)
    for k, height in enumerate(panel.bars):
        if height:
            left, top = x + k * width, bottom - min(1.0, height) * PANEL
            draw.rectangle((left + 1, top, left + width - 1, bottom), fill=BAR)
    if panel.has_diagonal:
        draw.line((x, bottom, x + PANEL, y), INK)
    places = [
        (x + (k + 0.5) * width, bottom - value * PANEL)
        for k, value in enumerate(panel.points)
        if value is not None
    ]
    if len(places) > 1:
        draw.line(list(chain.from_iterable(places)), POINT)
    for px, py in places:
        draw.ellipse((px - 2, py - 2, px + 2, py + 2), fill=POINT)
    draw.rectangle((x, y, x + PANEL, bottom), outline=INK)
    draw.text((x, y - 13), _in_one_line(draw, panel.title, PANEL), INK)
    draw.text((x - draw.textlength(panel.left) - 3, y), panel.left, INK)
