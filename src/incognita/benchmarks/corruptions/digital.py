"""Digital: contrast, elastic transform, pixelate, JPEG compression, saturate."""

import cv2
import numpy as np
from PIL import Image as Pillow

from incognita.benchmarks.corruptions.blur import smooth_field
from incognita.benchmarks.corruptions.draws import Draws
from incognita.benchmarks.corruptions.noise import uniform_field
from incognita.kernels.corruptions import color, filters
from incognita.shapes import UInt

Image = UInt[np.ndarray, "height width 3"]


def contrast(image: Image, severity: int, draws: Draws) -> Image:
    """Move each channel toward its mean, to 0.4, 0.3, 0.2, 0.1 or 0.05 of the distance."""
    factor = (0.4, 0.3, 0.2, 0.1, 0.05)[severity - 1]
    means = np.array(cv2.mean(image)[:3]) / 255
    levels = (np.arange(256)[:, None] / 255 - means) * factor + means
    table = (np.clip(levels, 0, 1) * 255 + 1e-9).astype(np.uint8)
    return cv2.LUT(image, table[None])


def elastic_transform(image: Image, severity: int, draws: Draws) -> Image:
    """Displace pixels by smoothed noise; it reaches further the higher the image is.

    Uniform noise of 0.005 heights is smoothed by a hundredth of each side and multiplied by 12.5,
    16.25, 21.25, 25 or 30.
    """
    strength = 250 * (0.05, 0.065, 0.085, 0.1, 0.12)[severity - 1]
    height, width = image.shape[:2]
    reach, sigmas = strength * height * 0.005, (height * 0.01, width * 0.01)
    down, across = (
        smooth_field(
            uniform_field(draws.key(axis), (height, width), -reach, reach),
            sigmas,
            truncate=3.0,
            border=cv2.BORDER_REFLECT,
        )
        for axis in ("down", "across")
    )
    out = np.empty_like(image)
    filters.displace(image, down, across, out)
    return out


def pixelate(image: Image, severity: int, draws: Draws) -> Image:
    """Shrink by averaging to 0.6, 0.5, 0.4, 0.3 or 0.25 of the size, and repeat pixels."""
    factor = (0.6, 0.5, 0.4, 0.3, 0.25)[severity - 1]
    height, width = image.shape[:2]
    small = (max(1, int(width * factor)), max(1, int(height * factor)))
    shrunk = Pillow.fromarray(image).resize(small, Pillow.Resampling.BOX)
    return np.array(shrunk.resize((width, height), Pillow.Resampling.NEAREST))


def jpeg_compression(image: Image, severity: int, draws: Draws) -> Image:
    """Save as JPEG of quality 25, 18, 15, 10 or 7, and load it again."""
    quality = (25, 18, 15, 10, 7)[severity - 1]
    blue_first = cv2.cvtColor(image, cv2.COLOR_RGB2BGR)
    _, file = cv2.imencode(".jpg", blue_first, [cv2.IMWRITE_JPEG_QUALITY, quality])
    loaded = np.asarray(cv2.imdecode(file, cv2.IMREAD_COLOR))
    return cv2.cvtColor(loaded, cv2.COLOR_BGR2RGB)


def saturate(image: Image, severity: int, draws: Draws) -> Image:
    """Multiply the saturation by 0.3, 0.1, 2, 5 or 20; the last two also add 0.1 or 0.2."""
    factor, added = ((0.3, 0.0), (0.1, 0.0), (2.0, 0.0), (5.0, 0.1), (20.0, 0.2))[severity - 1]
    out = np.empty_like(image)
    color.saturate_pixels(image.reshape(-1, 3), factor, added, out.reshape(-1, 3))
    return out
