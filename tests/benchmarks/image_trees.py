"""Small trees of real image files, with lists and definitions."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from PIL import Image

STREET = """
name = "mine/street"
version = 1
title = "Signs against animals"
classes = ["stop", "give way"]

[sources.signs]
title = "Signs"
published = "https://example.org/signs"
license = "CC0"
megabytes = 3

[[set]]
name = "train"
role = "train"
kind = "folder"
path = "signs/train"
source = "signs"

[[set]]
name = "test"
role = "test"
kind = "folder"
path = "signs/test"
count = 6
source = "signs"

[[set]]
name = "animals"
role = "near"
kind = "folder"
path = "animals"

[[set]]
name = "noise"
role = "far"
kind = "imglist"
list = "lists/noise.txt"
root = "noise"
count = 3
"""


def write_image(path: Path, color: int = 0, size: tuple[int, int] = (5, 4)) -> Path:
    """Write an image of one color that depends on the number."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, (color % 256, 10, 20)).save(path)
    return path


def write_list(path: Path, rows: Mapping[str, int] | Sequence[str]) -> Path:
    """Write a list from paths and labels, or from lines as they are."""
    lines = (
        [f"{image} {label}" for image, label in rows.items()] if isinstance(rows, Mapping) else rows
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n")
    return path


def write_street(folder: Path, definition: str = STREET) -> Path:
    """Write a whole benchmark of 4 + 6 known and 5 + 3 unknown images; give its TOML file."""
    for split, n in (("train", 2), ("test", 3)):
        for place, name in enumerate(("stop", "give_way")):
            for k in range(n):
                write_image(folder / "signs" / split / name / f"{k}.png", 10 * place + k)
    for k in range(5):
        write_image(folder / "animals" / ("deer" if k < 3 else "fox") / f"{k}.jpg", 100 + k)
    for k in range(3):
        write_image(folder / "noise" / f"{k}.bmp", 200 + k)
    write_list(folder / "lists" / "noise.txt", {f"{k}.bmp": -1 for k in range(3)})
    path = folder / "street.toml"
    path.write_text(definition)
    return path


def pixels_of(path: Path) -> np.ndarray:
    """Read an image the plain way."""
    return np.asarray(Image.open(path).convert("RGB"))
