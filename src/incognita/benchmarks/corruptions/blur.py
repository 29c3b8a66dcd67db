"""Blur: defocus, glass, motion, zoom, gaussian; and the filters that other kinds share."""

import math
from functools import cache

import cv2
import numpy as np

from incognita.benchmarks.corruptions.draws import Draws
from incognita.kernels.corruptions import filters
from incognita.shapes import Float, Int, Shaped, UInt

Image = UInt[np.ndarray, "height width 3"]
_EDGE = math.exp(-2) / (1 + 2 * math.exp(-2))  # weight beside the middle, of sigma 0.5
DISK_EDGES = {3: 0.0, 4: _EDGE, 6: _EDGE}  # sigma 0.1 of radius 3 is nothing
MIRRORED = {8: (3, 3), 10: (5, 5)}  # radius of disks at the border, and size of the smoothing
TINY = 2**-10  # sums of float32 that should be whole may be a little less
TO_FLOOR = -0.5 + TINY  # OpenCV rounds where the definition cuts


def defocus_blur(image: Image, severity: int, draws: Draws) -> Image:
    """Average over a disk of radius 3, 4, 6, 8 or 10 with a smoothed edge."""
    radius = (3, 4, 6, 8, 10)[severity - 1]
    if radius in MIRRORED:
        disk = _mirrored_disk(radius)
        return cv2.filter2D(image, -1, disk, delta=TO_FLOOR, borderType=cv2.BORDER_REFLECT_101)
    return _average_over_disk(image, radius, DISK_EDGES[radius])


def _average_over_disk(image: Image, radius: int, edge: float) -> Image:
    """Average over a disk, then smooth by (edge, 1 - 2 edge, edge) on both axes."""
    height, width = image.shape[:2]
    half_widths = np.sqrt(radius**2 - np.arange(-radius, radius + 1) ** 2).astype(np.int64)
    border = radius + 1
    padded = cv2.copyMakeBorder(image, border, border, border, border, cv2.BORDER_REFLECT_101)
    sums = np.empty((height + 2, (width + 2) * 3), np.float32)
    filters.sum_disks(padded.reshape(len(padded), -1), half_widths, sums)
    weights = np.array([1 - 2 * edge, edge], np.float32)
    n_pixels = np.float32((2 * half_widths + 1).sum())
    out = np.empty((height, width * 3), np.uint8)
    filters.smooth_levels(sums, weights, weights / n_pixels, out)
    return out.reshape(image.shape)


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
    radius, sigma = ((10, 3.0), (15, 5.0), (15, 8.0), (15, 12.0), (20, 15.0))[severity - 1]
    angle = draws.uniform("angle", -45.0, 45.0)
    return blur_along(image, radius, sigma, angle, offset=TINY)


def zoom_blur(image: Image, severity: int, draws: Draws) -> Image:
    """Average the image with zooms into its center, of up to 1.11, 1.16, 1.21, 1.26 or 1.31."""
    end, step = ((1.11, 0.01), (1.16, 0.01), (1.21, 0.02), (1.26, 0.02), (1.31, 0.03))[severity - 1]
    factors = np.arange(1, end, step)
    height, width = image.shape[:2]
    rows, row_shares = _zoom_grids(height, factors)
    columns, column_shares = _zoom_grids(width, factors)
    places = (3 * columns).astype(np.uint64)
    out = np.empty((height, width * 3), np.uint8)
    values = image.reshape(height, -1)
    filters.average_zooms(values, rows, row_shares, places, column_shares, out)
    return out.reshape(image.shape)


def gaussian_blur(image: Image, severity: int, draws: Draws) -> Image:
    """Smooth by a Gaussian of 1, 2, 3, 4 or 6 pixels."""
    return _smooth_image(image, (1.0, 2.0, 3.0, 4.0, 6.0)[severity - 1])


def _smooth_image(image: Image, sigma: float) -> Image:
    weights = _half_gaussian(sigma, truncate=4.0)
    border = weights.size - 1
    padded = cv2.copyMakeBorder(image, border, border, border, border, cv2.BORDER_REPLICATE)
    out = np.empty((image.shape[0], image.shape[1] * 3), np.uint8)
    filters.smooth_levels(padded.reshape(len(padded), -1), weights, weights, out)
    return out.reshape(image.shape)


def smooth_field(
    field: Float[np.ndarray, "height width"],
    sigmas: tuple[float, float],
    *,
    truncate: float,
    border: int,
) -> Float[np.ndarray, "height width"]:
    """Smooth one channel by a Gaussian.

    Args:
        field: float32.
        sigmas: Down and across.
        truncate: Of the Gaussian, in sigmas.
        border: What is beyond the border, as OpenCV numbers it.
    """
    down, across = (_half_gaussian(sigma, truncate) for sigma in sigmas)
    top, left = down.size - 1, across.size - 1
    padded = cv2.copyMakeBorder(field, top, top, left, left, border)
    out = np.empty_like(field)
    filters.smooth_field(padded, down, across, out)
    return out


def _half_gaussian(sigma: float, truncate: float) -> Float[np.ndarray, "taps"]:
    """Return the weights at distance 0, 1, … of a Gaussian filter."""
    half = np.exp(-0.5 * (np.arange(int(truncate * sigma + 0.5) + 1) / sigma) ** 2)
    return np.asarray(half / (2 * half.sum() - 1), np.float32)


def blur_along(
    levels: Shaped[np.ndarray, "..."], radius: int, sigma: float, angle: float, *, offset: float
) -> UInt[np.ndarray, "..."]:
    """Average along a ray, from each pixel on, with half-normal weights.

    Where the ray is longer than the image, the rest of it counts as black, as in the published
    code: images of less than 41 pixels get a little darker.

    Args:
        levels: An image, or one channel.
        radius: Half the length of the ray.
        sigma: Of the weights.
        angle: Of the ray, in degrees.
        offset: Added before the levels are cut to whole numbers.
    """
    steps = np.arange(2 * radius + 1)
    weights = np.exp(-(steps**2) / (2 * sigma**2))
    weights /= weights.sum()
    down = np.ceil(steps * math.sin(math.radians(angle)) - 0.5).astype(np.int64)
    across = np.ceil(steps * math.cos(math.radians(angle)) - 0.5).astype(np.int64)
    is_inside = (abs(down) < levels.shape[0]) & (abs(across) < levels.shape[1])
    down, across, weights = down[is_inside], across[is_inside], weights[is_inside]
    border = int(max(abs(down).max(), abs(across).max()))
    padded = cv2.copyMakeBorder(levels, border, border, border, border, cv2.BORDER_REPLICATE)
    n_channels = levels.size // (levels.shape[0] * levels.shape[1])
    out = np.empty(levels.shape, np.uint8)
    filters.sum_shifted(
        padded.reshape(len(padded), -1),
        border + down,
        (border + across) * n_channels,
        weights.astype(np.float32),
        offset,
        out.reshape(len(out), -1),
    )
    return out


def zoom_center(
    layer: Float[np.ndarray, "rows columns"], size: tuple[int, int], factor: float
) -> Float[np.ndarray, "height width"]:
    """Zoom a layer, the center of a picture of this size, by a factor of at least 1."""
    rows, row_shares = _zoom_grid(size[0], factor)
    columns, column_shares = _zoom_grid(size[1], factor)
    out = np.empty((rows.size, columns.size), np.float32)
    filters.zoom(layer, rows, row_shares, columns, column_shares, out)
    return out


def _zoom_grid(
    size: int, factor: float
) -> tuple[Int[np.ndarray, "pixels"], Float[np.ndarray, "pixels"]]:
    """Return pixels of the center, and shares of the next ones, that a zoom reads.

    The first and the last pixel of the center are the first and the last of the zoom, which has
    `size` pixels or a few more.
    """
    n_center = math.ceil(size / factor)
    n_zoomed = round(n_center * factor)
    places = np.minimum(np.arange(n_zoomed) * _zoom_step(size, factor), n_center - 1)
    whole = np.floor(places)
    return whole.astype(np.int64), (places - whole).astype(np.float32)


def _zoom_step(size: int, factor: float) -> float:
    """Return the distance between two pixels of a zoom, in pixels of the center."""
    n_center = math.ceil(size / factor)
    n_zoomed = round(n_center * factor)
    return (n_center - 1) / (n_zoomed - 1) if n_zoomed > 1 else 0.0


def _zoom_grids(
    size: int, factors: Float[np.ndarray, "zooms"]
) -> tuple[Int[np.ndarray, "zooms pixels"], Float[np.ndarray, "zooms pixels"]]:
    """Return the grids of several zooms into a picture of this size, cut to its size.

    Where rounding puts the last pixel behind the last of the center, the published code, by
    `scipy.ndimage.zoom`, finds black; such a place is `size`.
    """
    places, shares = [], []
    for factor in factors.tolist():
        whole, share = _zoom_grid(size, factor)
        first = (size - math.ceil(size / factor)) // 2
        is_outside = np.arange(size) * _zoom_step(size, factor) > math.ceil(size / factor) - 1
        places.append(np.where(is_outside, size, first + whole[:size]))
        shares.append(np.where(is_outside, np.float32(0), share[:size]))
    return np.stack(places), np.stack(shares)


@cache
def _mirrored_disk(radius: int) -> Float[np.ndarray, "side side"]:
    """Return a disk that touches the border of its array, smoothed at its edge.

    The smoothing reflects it at the border, so that its weights add up to a little more than 1.
    """
    y, x = np.mgrid[-radius : radius + 1, -radius : radius + 1]
    disk = (x**2 + y**2 <= radius**2).astype(np.float32)
    smoothed: Float[np.ndarray, "side side"] = cv2.GaussianBlur(
        disk / disk.sum(), MIRRORED[radius], 0.5
    )
    return smoothed
