"""Preprocessing of uint8 images: resize, crop, divide by 255, normalize."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, NamedTuple

import numpy as np
import PIL
import torch
from PIL import Image
from torch import Tensor
from torch.nn.functional import interpolate

from incognita.calls import check_types, parse_call, split_calls
from incognita.errors import InvalidDataError, unknown_name
from incognita.kernels.resampling import FILTERS, resize_window
from incognita.shapes import Float, Shaped, UInt8

Interpolation = Literal["nearest", "bilinear", "bicubic", "lanczos", "box", "hamming"]
Channels = tuple[float, float, float]  # red, green, blue
_PILLOW = int(PIL.__version__.split(".")[0])
_EXAMPLE = "size=256 crop=224 mean=imagenet std=imagenet"


class PixelStatistics(NamedTuple):
    """Mean and standard deviation of the pixels of a data set, between 0 and 1."""

    mean: Channels
    std: Channels

    def on(self, device: torch.device | str) -> Float[Tensor, "3 3"]:
        """Return white, mean and std of each channel as a tensor on a device.

        White, too: division by a number of the host may become a product, which rounds differently.
        """
        return torch.tensor(((255.0,) * 3, self.mean, self.std), device=device)


STATISTICS = {
    "imagenet": PixelStatistics((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    "cifar10": PixelStatistics((0.4914, 0.4822, 0.4465), (0.247, 0.2435, 0.2616)),
    "cifar100": PixelStatistics((0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761)),
    "clip": PixelStatistics(
        (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
    ),
}


@dataclass(frozen=True, repr=False)
class Preprocessing:
    """Resize, crop the center, divide by 255, normalize: the same floats as torchvision on PIL.

    Its repr is the `preprocessing` of a classifier, so it includes every value that changes a
    pixel; its str is what `--preprocess` takes. Steps without effect are skipped: a 32 x 32 image
    for a 32 x 32 network is never converted to a PIL image.

    Args:
        size: Length of the shorter side, or (height, width); None keeps the size.
        crop: Side or (height, width) of the center crop; a smaller image gets a black border, as
            in torchvision. None keeps the whole image.
        mean: Subtracted from pixels between 0 and 1, per channel; a name of a data set
            (`imagenet`, `cifar10`, `cifar100`, `clip`) stands for its values.
        std: Divides the pixels after that, per channel; or a name, as for `mean`.
        interpolation: A filter of PIL, with antialiasing.
        crop_corner: Where the crop begins if the center lies between two pixels: at the nearest
            even pixel (torchvision, timm) or the smaller one (transformers).
        resampling: Whose arithmetic resizes: `pillow`, or `torch`, which takes less time and
            differs by one level in a few pixels of a thousand (bilinear and bicubic alone).

    >>> print(Preprocessing(size=256, crop=224, mean="imagenet", std="imagenet"))
    size=256 crop=224 mean=imagenet std=imagenet
    >>> white = np.full((4, 8, 3), 255, np.uint8)
    >>> tensor = Preprocessing(size=2, crop=2, mean=(0.5,) * 3, std=(0.25,) * 3)(white)
    >>> tuple(tensor.shape), tensor.unique().tolist()
    ((3, 2, 2), [2.0])
    """

    size: int | tuple[int, int] | None = None
    crop: int | tuple[int, int] | None = None
    mean: Channels | str = (0.0, 0.0, 0.0)
    std: Channels | str = (1.0, 1.0, 1.0)
    interpolation: Interpolation = "bilinear"
    crop_corner: Literal["nearest", "smaller"] = "nearest"
    resampling: Literal["pillow", "torch"] = "pillow"

    def __post_init__(self) -> None:
        check_types("Preprocessing", type(self), vars(self))
        if self.resampling == "torch" and self.interpolation not in ("bilinear", "bicubic"):
            raise InvalidDataError(
                f"Expected interpolation bilinear or bicubic with resampling=torch, got "
                f"{self.interpolation}. Use resampling=pillow."
            )
        for name in PixelStatistics._fields:
            if isinstance(value := getattr(self, name), str):
                object.__setattr__(self, name, _statistics(name, value))
        sides = [side for sides in (self.size, self.crop) for side in _sides(sides)]
        if min(sides, default=1) < 1 or min(self.statistics.std) <= 0:
            raise InvalidDataError(
                f"Expected sides of at least 1 pixel and a positive std, got {self}. Correct it."
            )

    def __repr__(self) -> str:
        # part of the key of stored outputs: a default that came later is left out
        values = {n: v for n, v in vars(self).items() if (n, v) != ("resampling", "pillow")}
        return f"Preprocessing({', '.join(f'{name}={v!r}' for name, v in values.items())})"

    def __str__(self) -> str:
        default = Preprocessing.__dataclass_fields__
        values = {
            name: _in_words(name, value)
            for name, value in vars(self).items()
            if value != default[name].default
        }
        return " ".join(f"{name}={value}" for name, value in values.items()) or "none"

    @classmethod
    def parse(cls, text: str) -> "Preprocessing":
        """Read what `--preprocess` takes; `none` only divides pixels by 255.

        >>> Preprocessing.parse("size=32 mean=cifar10 std=(0.2, 0.2, 0.2)").std
        (0.2, 0.2, 0.2)
        """
        if text.strip() == "none":
            return cls()
        words = [word for part in split_calls(text) for word in split_calls(part, " ") if word]
        quoted = [re.sub(r"^(\w+)=([A-Za-z]\w*)$", r"\1='\2'", word) for word in words]
        call = parse_call(
            f"preprocess({', '.join(quoted)})", kind="preprocessing", example=f'"{_EXAMPLE}"'
        )
        for name in call.parameters:
            if name not in cls.__dataclass_fields__:
                raise unknown_name("step of the preprocessing", name, cls.__dataclass_fields__)
        if call.arguments or not call.parameters:
            raise InvalidDataError(f'Expected none, or steps such as "{_EXAMPLE}", got {text!r}.')
        check_types("Preprocessing", cls, call.parameters)
        return cls(**call.parameters)

    def __call__(self, image: Shaped[np.ndarray, "_ _ 3"]) -> Float[Tensor, "3 _ _"]:
        """Convert one uint8 RGB image to a normalized float32 tensor."""
        image = self.pixels(image)
        table = _values(*self.statistics)
        planes = np.empty((3, *image.shape[:2]), np.float32)
        for channel in range(3):
            np.take(table[channel], image[:, :, channel], out=planes[channel])
        return torch.from_numpy(planes)

    def pixels(self, image: Shaped[np.ndarray, "_ _ 3"]) -> Shaped[np.ndarray, "_ _ 3"]:
        """Resize and crop one uint8 RGB image; `normalize` does the rest for a whole batch."""
        _check(image)
        target = self._target(*image.shape[:2])
        crop = target if self.crop is None else _both(self.crop)
        whole = round if self.crop_corner == "nearest" else int
        top, left = (
            max(whole((side - kept) / 2), 0) for side, kept in zip(target, crop, strict=True)
        )
        kept = min(crop[0], target[0]), min(crop[1], target[1])
        return _padded(self._resized(image, target, (top, left), kept), crop)

    @property
    def statistics(self) -> PixelStatistics:
        """The values behind `mean` and `std`."""
        assert not isinstance(self.mean, str)  # resolved when it was made
        assert not isinstance(self.std, str)
        return PixelStatistics(self.mean, self.std)

    def _resized(
        self,
        image: Shaped[np.ndarray, "_ _ 3"],
        target: tuple[int, int],
        corner: tuple[int, int],
        kept: tuple[int, int],
    ) -> Shaped[np.ndarray, "_ _ 3"]:
        """Resize an image, and return what begins at a corner and is kept."""
        (top, left), (height, width) = corner, kept
        if target == image.shape[:2]:
            return image[top : top + height, left : left + width]
        if self.interpolation == "nearest":
            resized = np.asarray(
                Image.fromarray(image).resize(target[::-1], Image.Resampling.NEAREST)
            )
            return resized[top : top + height, left : left + width]
        if self.resampling == "torch":
            levels = torch.from_numpy(np.array(image)).permute(2, 0, 1)[None]
            whole = interpolate(
                levels, target, mode=self.interpolation, antialias=True, align_corners=False
            )
            window = whole[0, :, top : top + height, left : left + width].permute(1, 2, 0)
            return np.asarray(window)
        kind = FILTERS.index(self.interpolation)
        rows_first = _rows_first(image.shape[0] - target[0], image.shape[1] - target[1])
        return resize_window(np.ascontiguousarray(image), target, corner, kept, kind, rows_first)

    def _target(self, height: int, width: int) -> tuple[int, int]:
        if self.size is None:
            return height, width
        if not isinstance(self.size, int):
            return self.size
        # truncated, not rounded, as in torchvision: one pixel changes the outputs
        if height <= width:
            return self.size, int(self.size * width / height)
        return int(self.size * height / width), self.size


def _rows_first(lost_height: int, lost_width: int) -> bool:
    """Whether Pillow, in the version that is installed, resizes along rows first."""
    shrinks_more = lost_height > 0 and lost_height > 2 * lost_width
    return _PILLOW < 13 or not shrinks_more


def _both(side: int | tuple[int, int]) -> tuple[int, int]:
    return (side, side) if isinstance(side, int) else side


def _padded(
    image: Shaped[np.ndarray, "_ _ 3"], crop: tuple[int, int]
) -> Shaped[np.ndarray, "_ _ 3"]:
    """Add a black border to an image that is smaller than the crop."""
    missing = crop[0] - image.shape[0], crop[1] - image.shape[1]
    if not any(missing):
        return image
    return np.pad(image, [*((n // 2, n - n // 2) for n in missing), (0, 0)])


def _statistics(field: str, name: str) -> Channels:
    if name not in STATISTICS:
        raise unknown_name(f"data set with a known {field}", name, STATISTICS)
    values: Channels = getattr(STATISTICS[name], field)
    return values


def _sides(value: int | tuple[int, int] | None) -> tuple[int, ...]:
    if value is None:
        return ()
    return (value,) if isinstance(value, int) else value


def _in_words(field: str, value: Any) -> str:
    """Write a value as `--preprocess` takes it, by the name of its data set where it has one."""
    names = (name for name, known in STATISTICS.items() if getattr(known, field, None) == value)
    return next(names, f"{value}".replace(" ", ""))


def normalize(
    batch: UInt8[Tensor, "n _ _ 3"], values: Float[Tensor, "3 3"]
) -> Float[Tensor, "n 3 _ _"]:
    """Convert a batch of pixels to floats, the same as `Preprocessing` of single images.

    Channels are last in memory.

    Args:
        batch: Levels of uint8.
        values: From `PixelStatistics.on`, on the device of the batch.

    >>> preprocess = Preprocessing(mean="imagenet", std="imagenet")
    >>> image = np.arange(48, dtype=np.uint8).reshape(4, 4, 3)
    >>> batch = normalize(torch.from_numpy(image)[None], preprocess.statistics.on("cpu"))
    >>> torch.equal(batch[0], preprocess(image))
    True
    """
    white, mean, std = values
    return batch.float().div_(white).sub_(mean).div_(std).permute(0, 3, 1, 2)


class InputSteps(NamedTuple):
    """How an image becomes an input, cut where the device of the network takes over.

    Args:
        read: Converts one image; it must not hold the network if `is_detached`.
        statistics: Applied on the device, where `read` returns whole levels [height, width, 3].
        is_detached: Whether `read` can be sent to other processes without the network.
    """

    read: Callable[[np.ndarray], Any]
    statistics: PixelStatistics | None = None
    is_detached: bool = True


def input_steps(preprocess: Callable[..., Any]) -> InputSteps:
    """Return the steps of a preprocessing: levels first where it can be cut there."""
    if isinstance(preprocess, Preprocessing):
        return InputSteps(preprocess.pixels, preprocess.statistics)
    return InputSteps(preprocess)


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
