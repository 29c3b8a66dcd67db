"""Real pictures that come with scikit-learn: its digits, and patches of its photographs.

The 1797 handwritten digits of 8 x 8 pixels come from the UCI repository (Alpaydin and Kaynak,
Optical Recognition of Handwritten Digits, 1998). Known are 0 to 6; near unknowns are 8 and 9; 7 is
kept to choose parameters on. Far unknowns are gray patches of two photographs, shrunk to the same
size: one photograph per set.
"""

from collections.abc import Sequence
from functools import cache
from types import ModuleType
from typing import ClassVar, Literal

import numpy as np
from pydantic import model_validator

from incognita.benchmarks.sources.entry import DataContext, LoadedSet, SetEntry
from incognita.containers.dataset import ArrayDataset
from incognita.errors import unknown_name
from incognita.registry import need
from incognita.shapes import Int, Shaped

DIGIT_NAMES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
N_KNOWN = 7
KNOWN_DIGITS = DIGIT_NAMES[:N_KNOWN]
PHOTOGRAPHS = ("china", "flower")
_PARTS = {"train": (0, 1, 2), "validation": (3,), "test": (4,)}
_STRIDE = 5
_PATCH = 32  # pixels of a photograph that become the 8 x 8 of a patch


class DigitsSet(SetEntry):
    """Pictures that come with scikit-learn, chosen by one of part, digits and photograph.

    Args:
        kind: digits.
        part: Known digits: `train`, `validation` or `test`.
        digits: All images of unknown digits.
        photograph: Patches of a photograph.
    """

    reads_files: ClassVar[bool] = False
    place: ClassVar[str] = "comes with scikit-learn"

    kind: Literal["digits"]
    part: Literal["train", "validation", "test"] | None = None
    digits: list[int] | None = None
    photograph: str | None = None

    @model_validator(mode="after")
    def _one_choice(self) -> "DigitsSet":
        if [self.part, self.digits, self.photograph].count(None) != 2:
            raise ValueError("expected one of part, digits and photograph")
        return self

    def load(self, context: DataContext) -> LoadedSet:
        if self.part is not None:
            dataset = digits_part(self.part)
        elif self.digits is not None:
            dataset = unknown_digits(self.digits)
        else:
            dataset = photograph_patches(self.photograph or "")
        return self.check_generated(dataset, context)


def digits_part(part: str) -> ArrayDataset:
    """Return the known digits of one part.

    Of every five images of a class, in the order of the file, the first three are for `train`, the
    fourth is for `validation` and the fifth for `test`.

    >>> [len(digits_part(part)) for part in ("train", "validation", "test")]
    [764, 250, 250]
    """
    if part not in _PARTS:
        raise unknown_name("part of the digits", part, _PARTS)
    targets = _digits()[1]
    of_class = (np.flatnonzero(targets == digit) for digit in range(N_KNOWN))
    kept = [rows[np.isin(np.arange(len(rows)) % _STRIDE, _PARTS[part])] for rows in of_class]
    return _dataset(part, np.sort(np.concatenate(kept)), is_known=True)


def unknown_digits(digits: Sequence[int]) -> ArrayDataset:
    """Return all images of unknown digits: 7, 8 or 9.

    >>> nine = unknown_digits([9])
    >>> len(nine), nine.source_classes[0], nine.labels
    (180, 'nine', None)
    """
    for digit in digits:
        if digit not in range(N_KNOWN, 10):
            raise unknown_name("unknown digit", str(digit), map(str, range(N_KNOWN, 10)))
    rows = np.flatnonzero(np.isin(_digits()[1], list(digits)))
    name = "+".join(DIGIT_NAMES[digit] for digit in digits)
    return _dataset(name, rows, is_known=False)


def photograph_patches(photograph: str) -> ArrayDataset:
    """Return patches of `china` or `flower`, side by side, each stretched to full contrast.

    >>> patches = photograph_patches("flower")
    >>> len(patches), patches.load(0).shape, patches.image_ids[0]
    (260, (8, 8, 3), 'digits/flower/000')
    """
    if photograph not in PHOTOGRAPHS:
        raise unknown_name("photograph", photograph, PHOTOGRAPHS)
    patches = _patches(photograph)
    ids = tuple(f"digits/{photograph}/{k:03d}" for k in range(len(patches)))
    return ArrayDataset(photograph, ids, patches, None, (photograph,) * len(ids))


def _dataset(name: str, rows: Int[np.ndarray, "n"], *, is_known: bool) -> ArrayDataset:
    images, targets = _digits()
    ids = tuple(f"digits/{row:04d}" for row in rows)
    names = tuple(DIGIT_NAMES[target] for target in targets[rows])
    return ArrayDataset(name, ids, images[rows], targets[rows] if is_known else None, names)


def _sklearn_datasets() -> ModuleType:
    """Import scikit-learn's data sets: slow, and seldom needed."""
    return need("sklearn.datasets", extra="torch", needed_by="The benchmark digits")


@cache
def _digits() -> tuple[Shaped[np.ndarray, "all 8 8 3"], Int[np.ndarray, "all"]]:
    """Return all digits as gray images; the 17 levels of the file become 0 to 255."""
    bunch = _sklearn_datasets().load_digits()
    levels = (bunch.images * 255 + 8) // 16
    return _as_gray(levels), bunch.target.astype(np.int64)


def _patches(photograph: str) -> Shaped[np.ndarray, "n 8 8 3"]:
    photo = _sklearn_datasets().load_sample_image(f"{photograph}.jpg")
    pixels: Int[np.ndarray, "rows columns 3"] = photo.astype(np.int64)
    rows, columns = (length // _PATCH for length in pixels.shape[:2])
    # whole numbers throughout: brightness in thousandths, summed over the 4 x 4 pixels of a place
    gray = pixels[: rows * _PATCH, : columns * _PATCH] @ np.array([299, 587, 114])
    step = _PATCH // 8
    places = gray.reshape(rows, 8, step, columns, 8, step).sum(axis=(2, 5))
    patches = places.transpose(0, 2, 1, 3).reshape(-1, 8, 8)
    low = patches.min(axis=(1, 2), keepdims=True)
    spread = np.maximum(patches.max(axis=(1, 2), keepdims=True) - low, 1)
    return _as_gray((patches - low) * 255 // spread)


def _as_gray(levels: Shaped[np.ndarray, "n 8 8"]) -> Shaped[np.ndarray, "n 8 8 3"]:
    return np.repeat(levels.astype(np.uint8)[..., None], 3, axis=3)
