"""Changes of the colors of pixels; levels are cut to whole numbers, as the definitions do."""

from typing import Any

import numba
import numpy as np

Array = np.ndarray[Any, Any]
TINY = np.float32(2**-10)  # sums of float32 that should be whole may be a little less


@numba.njit(cache=True, nogil=True, error_model="numpy")
def brighten(pixels: Array, added: float, out: Array) -> None:
    """Add to the value (V) of hue, saturation and value: all channels grow by the same factor.

    Args:
        pixels: uint8 [n, 3].
        added: In levels.
        out: Written to, like `pixels`.
    """
    for i in range(pixels.shape[0]):
        red, green, blue = pixels[i, 0], pixels[i, 1], pixels[i, 2]
        value = np.float32(max(red, green, blue))
        new = min(value + np.float32(added), np.float32(255))
        if value > 0:
            factor = new / value
            out[i, 0] = np.uint8(np.float32(red) * factor + TINY)
            out[i, 1] = np.uint8(np.float32(green) * factor + TINY)
            out[i, 2] = np.uint8(np.float32(blue) * factor + TINY)
        else:
            out[i, :] = np.uint8(new)


@numba.njit(cache=True, nogil=True, error_model="numpy")
def saturate_pixels(pixels: Array, factor: float, added: float, out: Array) -> None:
    """Change the saturation (S) of hue, saturation and value to S * factor + added.

    A gray pixel has the hue of red.

    Args:
        pixels: uint8 [n, 3].
        factor: Of the saturation.
        added: To the saturation.
        out: Written to, like `pixels`.
    """
    for i in range(pixels.shape[0]):
        value = np.float32(max(pixels[i, 0], pixels[i, 1], pixels[i, 2]))
        lowest = np.float32(min(pixels[i, 0], pixels[i, 1], pixels[i, 2]))
        spread = value - lowest
        old = spread / value if value > 0 else np.float32(0)
        new = min(old * np.float32(factor) + np.float32(added), np.float32(1))
        for c in range(3):
            if spread > 0:
                distance = (value - np.float32(pixels[i, c])) / spread
            else:
                distance = np.float32(0) if c == 0 else np.float32(1)
            out[i, c] = np.uint8(value * (np.float32(1) - new * distance) + TINY)


@numba.njit(cache=True, nogil=True, error_model="numpy")
def add_snow(image: Array, flakes: Array, kept: float, out: Array) -> None:
    """Whiten an image and add flakes, and the same flakes turned around.

    Args:
        image: uint8 [h, w, 3].
        flakes: uint8 [h, w].
        kept: Share of the image that is not whitened.
        out: Written to, like `image`.
    """
    height, width = flakes.shape
    image_share = np.float32(kept)
    white_share = np.float32(1) - image_share
    for y in range(height):
        for x in range(width):
            red, green, blue = image[y, x, 0], image[y, x, 1], image[y, x, 2]
            gray = np.float32(0.299) * np.float32(red) + np.float32(0.587) * np.float32(green)
            gray = (gray + np.float32(0.114) * np.float32(blue)) * np.float32(1.5)
            white = gray + np.float32(127.5)
            snow = np.float32(flakes[y, x])
            snow += np.float32(flakes[height - 1 - y, width - 1 - x]) + TINY
            for c in range(3):
                level = np.float32(image[y, x, c])
                new = image_share * level + white_share * max(level, white) + snow
                out[y, x, c] = np.uint8(min(new, np.float32(255)))


@numba.njit(cache=True, nogil=True, error_model="numpy")
def add_fog(image: Array, heights: Array, density: float, out: Array) -> None:
    """Add a height map to an image, then darken it so that its brightest level could stay.

    Args:
        image: uint8 [h, w, 3].
        heights: float32, at least as large; scaled to 0 to 1.
        density: Factor of the heights, as a share of 255.
        out: Written to, like `image`.
    """
    lowest, highest = heights[0, 0], heights[0, 0]
    for y in range(heights.shape[0]):
        for x in range(heights.shape[1]):
            lowest, highest = min(lowest, heights[y, x]), max(highest, heights[y, x])
    brightest = np.float32(image.max())
    thickness = np.float32(density * 255)
    factor = brightest / (brightest + thickness)
    thickness /= highest - lowest
    for y in range(image.shape[0]):
        for x in range(image.shape[1]):
            fog = thickness * (heights[y, x] - lowest)
            for c in range(3):
                new = (np.float32(image[y, x, c]) + fog) * factor + TINY
                out[y, x, c] = np.uint8(min(new, np.float32(255)))


@numba.njit(cache=True, nogil=True, error_model="numpy")
def add_tinted(
    image: Array, kept: float, texture: Array, tints: Array, share: float, out: Array
) -> None:
    """Add kept * image and share * the color of a texture.

    Args:
        image: uint8 [h, w, 3].
        kept: Share of the image.
        texture: uint8 [h, w].
        tints: float32 [256, 3], the color of each level of the texture.
        share: Share of the texture.
        out: Written to, like `image`.
    """
    for y in range(image.shape[0]):
        for x in range(image.shape[1]):
            level = texture[y, x]
            for c in range(3):
                new = np.float32(kept) * np.float32(image[y, x, c])
                new += np.float32(share) * tints[level, c] + TINY
                out[y, x, c] = np.uint8(min(new, np.float32(255)))
