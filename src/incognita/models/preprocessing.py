"""Preprocessing of uint8 images: resize, crop, divide by 255, normalize."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from incognita.errors import InvalidDataError
from incognita.shapes import Float, Shaped

Interpolation = Literal["nearest", "bilinear", "bicubic", "lanczos", "box", "hamming"]


@dataclass(frozen=True)
class Preprocessing:
    """Resize, crop the center, divide by 255, normalize: the same floats as torchvision on PIL.

    Its repr is the `preprocessing` of a classifier, so it includes every value that changes a
    pixel. Steps without effect are skipped: a 32 x 32 image for a 32 x 32 network is never
    converted to a PIL image.

    Args:
        size: Length of the shorter side, or (height, width); None keeps the size.
        crop: Side or (height, width) of the center crop; a smaller image gets a black border, as
            in torchvision. None keeps the whole image.
        mean: Subtracted from pixels between 0 and 1, per channel.
        std: Divides the pixels after that, per channel.
        interpolation: A filter of PIL, with antialiasing.
        crop_corner: Where the crop begins if the center lies between two pixels: at the nearest
            even pixel (torchvision, timm) or the smaller one (transformers).

    >>> white = np.full((4, 8, 3), 255, np.uint8)
    >>> tensor = Preprocessing(size=2, crop=2, mean=(0.5,) * 3, std=(0.25,) * 3)(white)
    >>> tuple(tensor.shape), tensor.unique().tolist()
    ((3, 2, 2), [2.0])
    """

    size: int | tuple[int, int] | None = None
    crop: int | tuple[int, int] | None = None
    mean: tuple[float, float, float] = (0.0, 0.0, 0.0)
    std: tuple[float, float, float] = (1.0, 1.0, 1.0)
    interpolation: Interpolation = "bilinear"
    crop_corner: Literal["nearest", "smaller"] = "nearest"

    def __call__(self, image: Shaped[np.ndarray, "_ _ 3"]) -> Float[Tensor, "3 _ _"]:
        """Convert one uint8 RGB image to a normalized float32 tensor."""
        _check(image)
        image = self._cropped(self._resized(image))
        table = _values(self.mean, self.std)
        planes = np.empty((3, *image.shape[:2]), np.float32)
        for channel in range(3):
            np.take(table[channel], image[:, :, channel], out=planes[channel])
        return torch.from_numpy(planes)

    def _resized(self, image: Shaped[np.ndarray, "_ _ 3"]) -> Shaped[np.ndarray, "_ _ 3"]:
        height, width = image.shape[:2]
        target = self._target(height, width)
        if target == (height, width):
            return image
        method = Image.Resampling[self.interpolation.upper()]
        return np.asarray(Image.fromarray(image).resize(target[::-1], method))

    def _target(self, height: int, width: int) -> tuple[int, int]:
        if self.size is None:
            return height, width
        if not isinstance(self.size, int):
            return self.size
        # truncated, not rounded, as in torchvision: one pixel changes the outputs
        if height <= width:
            return self.size, int(self.size * width / height)
        return int(self.size * height / width), self.size

    def _cropped(self, image: Shaped[np.ndarray, "_ _ 3"]) -> Shaped[np.ndarray, "_ _ 3"]:
        if self.crop is None:
            return image
        height, width = (self.crop,) * 2 if isinstance(self.crop, int) else self.crop
        missing = max(height - image.shape[0], 0), max(width - image.shape[1], 0)
        if any(missing):
            borders = [(n // 2, n - n // 2) for n in missing]
            image = np.pad(image, [*borders, (0, 0)])
        whole = round if self.crop_corner == "nearest" else int
        top, left = whole((image.shape[0] - height) / 2), whole((image.shape[1] - width) / 2)
        return image[top : top + height, left : left + width]


@dataclass(frozen=True)
class FromPIL:
    """A transform of PIL images, such as those of torchvision, as preprocessing.

    >>> from torchvision.transforms import ToTensor
    >>> tuple(FromPIL(ToTensor())(np.zeros((2, 5, 3), np.uint8)).shape)
    (3, 2, 5)
    """

    transform: Callable[[Any], Any]

    def __call__(self, image: Shaped[np.ndarray, "_ _ 3"]) -> Any:
        """Apply the transform to the image."""
        _check(image)
        return self.transform(Image.fromarray(image))


def _check(image: Shaped[np.ndarray, "..."]) -> None:
    if image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] != 3 or not image.size:
        raise InvalidDataError(
            f"Expected a uint8 RGB image [height, width, 3] with at least one pixel, got shape "
            f"{list(image.shape)} and type {image.dtype}; convert it first."
        )


@lru_cache(maxsize=32)
def _values(mean: tuple[float, ...], std: tuple[float, ...]) -> Float[np.ndarray, "3 256"]:
    """Return the normalized value of each of the 256 levels, as a lookup table."""
    pixels = np.arange(256, dtype=np.float32) / np.float32(255)
    means, stds = np.array(mean, np.float32)[:, None], np.array(std, np.float32)[:, None]
    values: Float[np.ndarray, "3 256"] = (pixels - means) / stds
    return values
