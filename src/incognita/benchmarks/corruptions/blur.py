"""Blur: defocus, glass, motion, zoom, gaussian; and the filters that other kinds share."""

import math
from functools import cache
from typing import Any

import cv2
import numpy as np

from incognita.benchmarks.corruptions.draws import Draws
from incognita.kernels.corruptions import filters
from incognita.shapes import Float, UInt

Array = np.ndarray[Any, Any]
Image = UInt[np.ndarray, "height width 3"]
TO_FLOOR = -0.5 + 2**-10  # OpenCV rounds where the definition cuts


def defocus_blur(image: Image, severity: int, draws: Draws) -> Image:
    """Average over a disk of radius 3, 4, 6, 8 or 10 with a smoothed edge."""
    disk = _disk(*((3, 0.1), (4, 0.5), (6, 0.5), (8, 0.5), (10, 0.5))[severity - 1])
    return cv2.filter2D(image, -1, disk, delta=TO_FLOOR, borderType=cv2.BORDER_REFLECT_101)


def glass_blur(image: Image, severity: int, draws: Draws) -> Image:
    """Smooth, replace pixels by their neighbors at random, and smooth again.

    The published code exchanges two views of one array, which copies one pixel over the other
    instead; this is what its images show, and what is done here.
    """
    sigma, reach, n_rounds = (
        (0.7, 1, 2), (0.9, 2, 1), (1.0, 2, 3), (1.1, 3, 2), (1.5, 4, 2)
    )[severity - 1]  # fmt: skip
    out = _smooth_image(image, sigma)
    filters.copy_neighbors(out, reach, n_rounds, np.uint64(draws.key("neighbors")))
    return _smooth_image(out, sigma)


def motion_blur(image: Image, severity: int, draws: Draws) -> Image:
    """Average along a ray, with half-normal weights, at an angle of up to 45 degrees."""
    radius, sigma = ((10, 3), (15, 5), (15, 8), (15, 12), (20, 15))[severity - 1]
    angle = draws.uniform("angle", -45, 45)
    values = image.reshape(len(image), -1).astype(np.float32)
    blurred = blur_along(values, radius, sigma, angle, n_channels=3)
    return cut_to_levels(blurred).reshape(image.shape)


def zoom_blur(image: Image, severity: int, draws: Draws) -> Image:
    """Average the image with zooms into its center, of up to 1.11, 1.16, 1.21, 1.26 or 1.31."""
    end, step = ((1.11, 0.01), (1.16, 0.01), (1.21, 0.02), (1.26, 0.02), (1.31, 0.03))[severity - 1]
    factors = np.arange(1, end, step)
    height, width = image.shape[:2]
    rows, row_shares = _zoom_grids(height, factors)
    columns, column_shares = _zoom_grids(width, factors)
    values = image.reshape(height, -1).astype(np.float32)
    total = values.copy()
    filters.add_zooms(values, rows, row_shares, columns, column_shares, total)
    return cut_to_levels(total, 1 / (len(factors) + 1)).reshape(image.shape)


def gaussian_blur(image: Image, severity: int, draws: Draws) -> Image:
    """Smooth by a Gaussian of 1, 2, 3, 4 or 6 pixels."""
    return _smooth_image(image, (1, 2, 3, 4, 6)[severity - 1])


def cut_to_levels(values: Float[np.ndarray, "rows values"], scale: float = 1.0) -> Array:
    """Return values times a scale as uint8: from 0 to 255, cut to whole numbers."""
    out = np.empty(values.shape, np.uint8)
    filters.cut_to_levels(values.reshape(-1), scale, out.reshape(-1))
    return out


def _smooth_image(image: Image, sigma: float) -> Image:
    height, width = image.shape[:2]
    smoothed = smooth(
        image.astype(np.float32), (sigma, sigma), truncate=4, border=cv2.BORDER_REPLICATE
    )
    return cut_to_levels(smoothed.reshape(height, width * 3)).reshape(image.shape)


def smooth(
    values: Array, sigmas: tuple[float, float], *, truncate: float, border: int
) -> Array:
    """Smooth by a Gaussian.

    Args:
        values: float32, rows by columns, or by channels too.
        sigmas: Down and across.
        truncate: Of the Gaussian, in sigmas.
        border: What is beyond the border, as OpenCV numbers it.
    """
    down, across = (_half_gaussian(sigma, truncate) for sigma in sigmas)
    top, left = down.size - 1, across.size - 1
    padded = cv2.copyMakeBorder(values, top, top, left, left, border)
    out = np.empty(values.shape, np.float32)
    n_channels = values.shape[2] if values.ndim == 3 else 1
    filters.smooth_padded(
        padded.reshape(len(padded), -1), down, across, n_channels, out.reshape(len(out), -1)
    )
    return out


def _half_gaussian(sigma: float, truncate: float) -> Array:
    """Return the weights at distance 0, 1, … of a Gaussian filter."""
    half = np.exp(-0.5 * (np.arange(int(truncate * sigma + 0.5) + 1) / sigma) ** 2)
    return (half / (2 * half.sum() - 1)).astype(np.float32)


def blur_along(
    values: Array, radius: int, sigma: float, angle: float, *, n_channels: int
) -> Array:
    """Average along a ray, from each pixel on, with half-normal weights.

    Where the ray is longer than the image, the rest of it counts as black, as in the published
    code: images of less than 41 pixels get a little darker.

    Args:
        values: float32 rows of values.
        radius: Half the length of the ray.
        sigma: Of the weights.
        angle: Of the ray, in degrees.
        n_channels: Values of a pixel.
    """
    steps = np.arange(2 * radius + 1)
    weights = np.exp(-(steps**2) / (2 * sigma**2))
    weights /= weights.sum()
    down = np.ceil(steps * math.sin(math.radians(angle)) - 0.5).astype(np.int64)
    across = np.ceil(steps * math.cos(math.radians(angle)) - 0.5).astype(np.int64)
    height, width = len(values), values.shape[1] // n_channels
    is_inside = (abs(down) < height) & (abs(across) < width)
    down, across, weights = down[is_inside], across[is_inside], weights[is_inside]
    border = int(max(abs(down).max(), abs(across).max()))
    pixels = values.reshape(height, width, n_channels)
    padded = cv2.copyMakeBorder(pixels, border, border, border, border, cv2.BORDER_REPLICATE)
    out = np.empty_like(values)
    filters.sum_shifted(
        padded.reshape(len(padded), -1),
        border + down,
        (border + across) * n_channels,
        weights.astype(np.float32),
        out,
    )
    return out


def zoom_center(layer: Array, size: tuple[int, int], factor: float) -> Array:
    """Zoom a layer, the center of a picture of this size, by a factor of at least 1."""
    rows, row_shares = _zoom_grid(size[0], factor)
    columns, column_shares = _zoom_grid(size[1], factor)
    out = np.empty((rows.size, columns.size), np.float32)
    filters.zoom(layer, rows, row_shares, columns, column_shares, out)
    return out


def _zoom_grid(size: int, factor: float) -> tuple[Array, Array]:
    """Return pixels of the center, and shares of the next ones, that a zoom reads.

    The first and the last pixel of the center are the first and the last of the zoom, which has
    `size` pixels or a few more.
    """
    n_center = math.ceil(size / factor)
    n_zoomed = round(n_center * factor)
    step = (n_center - 1) / (n_zoomed - 1) if n_zoomed > 1 else 0.0
    places = np.minimum(np.arange(n_zoomed) * step, n_center - 1)
    whole = np.floor(places)
    return whole.astype(np.int64), (places - whole).astype(np.float32)


def _zoom_grids(size: int, factors: Array) -> tuple[Array, Array]:
    """Return the grids of several zooms into a picture of this size, cut to its size."""
    places, shares = [], []
    for factor in factors.tolist():
        whole, share = _zoom_grid(size, factor)
        first = (size - math.ceil(size / factor)) // 2
        places.append(first + whole[:size])
        shares.append(share[:size])
    return np.stack(places), np.stack(shares)


@cache
def _disk(radius: int, smoothing: float) -> Array:
    """Return a uniform disk, smoothed at its edge, on 17 pixels at least.

    The disk of radius 10 touches the border of its array, where the smoothing reflects it: its
    weights add up to a little more than 1.
    """
    reach, n_taps = (8, 3) if radius <= 8 else (radius, 5)
    y, x = np.mgrid[-reach : reach + 1, -reach : reach + 1]
    disk = (x**2 + y**2 <= radius**2).astype(np.float32)
    return cv2.GaussianBlur(disk / disk.sum(), (n_taps, n_taps), smoothing)
