"""Weather: snow, frost, fog, brightness, spatter.

Frost differs from the published code, which adds one of six photographs: no photograph is shipped,
and its crystals are drawn from the seed instead, in colors of the photographs' means and standard
deviations.
"""

import math
from typing import NamedTuple

import cv2
import numpy as np

from incognita.benchmarks.corruptions.blur import blur_along, smooth_field, zoom_center
from incognita.benchmarks.corruptions.draws import Draws
from incognita.benchmarks.corruptions.noise import normal_field, uniform_field
from incognita.kernels.corruptions import color
from incognita.kernels.corruptions.noise import plasma
from incognita.shapes import Float, Int, UInt

Image = UInt[np.ndarray, "height width 3"]
Layer = Float[np.ndarray, "height width"]


class Snow(NamedTuple):
    """Strength of snow; brightnesses and shares are of white.

    Args:
        mean: Of the normal noise from which flakes are made.
        std: Of the same noise.
        zoom: Size of flakes in pixels.
        least: Brightness below which there is no flake.
        radius: Of the motion blur.
        sigma: Of the motion blur.
        kept: Share of the image that is not whitened.
    """

    mean: float
    std: float
    zoom: float
    least: float
    radius: int
    sigma: float
    kept: float


SNOW = (
    Snow(0.1, 0.3, 3.0, 0.5, 10, 4.0, 0.8),
    Snow(0.2, 0.3, 2.0, 0.5, 12, 4.0, 0.7),
    Snow(0.55, 0.3, 4.0, 0.9, 12, 8.0, 0.7),
    Snow(0.55, 0.3, 4.5, 0.85, 12, 8.0, 0.65),
    Snow(0.55, 0.3, 2.5, 0.85, 12, 12.0, 0.55),
)


def snow(image: Image, severity: int, draws: Draws) -> Image:
    """Whiten the image and add flakes that fall: noise above a limit, blurred along a direction."""
    given = SNOW[severity - 1]
    height, width = image.shape[:2]
    center = (math.ceil(height / given.zoom), math.ceil(width / given.zoom))
    noise = normal_field(draws.key("flakes"), center, given.mean, given.std)
    layer = zoom_center(noise, (height, width), given.zoom)
    layer[layer < given.least] = 0
    angle = draws.uniform("angle", -135.0, -45.0)
    layer = np.minimum(layer, 1) * np.float32(255)
    layer = blur_along(layer, given.radius, given.sigma, angle, offset=0.5)
    flakes = np.ascontiguousarray(layer[:height, :width])
    out = np.empty_like(image)
    color.add_snow(image, flakes, given.kept, out)
    return out


def fog(image: Image, severity: int, draws: Draws) -> Image:
    """Add a fractal height map of 1.5 to 3 times white, and scale back to the brightest level."""
    density, decay = ((1.5, 2), (2.0, 2), (2.5, 1.7), (2.5, 1.5), (3.0, 1.4))[severity - 1]
    size = 1 << (max(image.shape) - 1).bit_length()
    out = np.empty_like(image)
    color.add_fog(image, plasma(size, decay, np.uint64(draws.key("heights"))), density, out)
    return out


def brightness(image: Image, severity: int, draws: Draws) -> Image:
    """Add 0.1, 0.2, 0.3, 0.4 or 0.5 to the value of hue, saturation and value."""
    out = np.empty_like(image)
    added = 255 * (0.1, 0.2, 0.3, 0.4, 0.5)[severity - 1]
    color.brighten(image.reshape(-1, 3), added, out.reshape(-1, 3))
    return out


class FrostColor(NamedTuple):
    """Colors of a frosted pane: mean and standard deviation of red, green and blue."""

    mean: tuple[float, float, float]
    std: tuple[float, float, float]


# the statistics of the six photographs of the published code, of which two are the same
LOOKS = (
    FrostColor((77.7, 149.1, 165.7), (26.9, 16.5, 15.3)),
    FrostColor((200.8, 205.4, 214.5), (21.4, 22.1, 22.6)),
    FrostColor((200.8, 205.4, 214.5), (21.4, 22.1, 22.6)),
    FrostColor((137.6, 152.8, 165.2), (28.5, 28.5, 29.9)),
    FrostColor((112.4, 123.4, 134.8), (44.4, 43.3, 41.7)),
    FrostColor((71.4, 95.4, 104.5), (35.2, 42.7, 47.4)),
)
COARSE = 8  # pixels
CLOUDS = ((12, 55.0), (3, 35.0))  # coarse pixels between the knots of smooth noise, and its reach
DARKNESS = 100.0  # mean of the clouds
TEXTURE_MEAN, TEXTURE_STD = 105.7, 34.2  # of clouds and crystals together, measured
PIXELS_PER_CRYSTAL = 800
N_BARBS = 7  # on each side of a crystal
BRIGHTNESSES = (30, 60, 90)  # of crystals


def frost(image: Image, severity: int, draws: Draws) -> Image:
    """Add crystals on a pane, with shares of image and pane from (1, 0.4) to (0.6, 0.75).

    The pane has one of six looks. Its crystals and clouds are drawn from the seed, where the
    published code crops a photograph.
    """
    kept, share = ((1, 0.4), (0.8, 0.6), (0.7, 0.7), (0.65, 0.7), (0.6, 0.75))[severity - 1]
    look = LOOKS[draws.index("look", len(LOOKS))]
    scaled = (np.arange(256)[:, None] - TEXTURE_MEAN) / TEXTURE_STD
    tints = np.clip(np.array(look.mean) + scaled * np.array(look.std), 0, 255).astype(np.float32)
    out = np.empty_like(image)
    color.add_tinted(image, kept, _frost_texture(image.shape[:2], draws), tints, share, out)
    return out


def _frost_texture(size: tuple[int, int], draws: Draws) -> UInt[np.ndarray, "height width"]:
    """Draw crystals over clouds, as uint8 of mean TEXTURE_MEAN and deviation TEXTURE_STD."""
    crystals = np.zeros(size, np.uint8)
    for brightness, lines in zip(BRIGHTNESSES, _crystals(size, draws), strict=True):
        cv2.polylines(crystals, list(lines), False, brightness, 1, cv2.LINE_8, 4)
    return cv2.add(_clouds(size, draws), cv2.GaussianBlur(crystals, (3, 3), 0))


def _clouds(size: tuple[int, int], draws: Draws) -> UInt[np.ndarray, "height width"]:
    """Draw smooth noise on two scales, on every eighth pixel, and fill in between."""
    rows, columns = (-(-side // COARSE) + 1 for side in size)
    coarse = np.full((rows, columns), DARKNESS, np.float32)
    for spacing, reach in CLOUDS:
        knots = (rows // spacing + 4, columns // spacing + 4)
        noise = uniform_field(draws.key(f"clouds {spacing}"), knots, -reach, reach)
        shape = (knots[1] * spacing, knots[0] * spacing)
        large = cv2.resize(noise, shape, interpolation=cv2.INTER_CUBIC)
        coarse += large[spacing : spacing + rows, spacing : spacing + columns]
    levels = np.clip(coarse, 0, 255).astype(np.uint8)
    clouds = cv2.resize(levels, (columns * COARSE, rows * COARSE))
    return np.ascontiguousarray(clouds[: size[0], : size[1]])


def _crystals(size: tuple[int, int], draws: Draws) -> list[Int[np.ndarray, "_ 2 2"]]:
    """Draw feathers: a stem with barbs on both sides, in sixteenths of a pixel, by brightness."""
    n = -(-size[0] * size[1] // PIXELS_PER_CRYSTAL)
    y, x, turn, length, spread, order = uniform_field(draws.key("crystals"), (6, n), 0.0, 1.0)
    angle, length = 2 * np.pi * turn, 12 + 36 * length**2
    stem = np.stack([np.cos(angle), np.sin(angle)], 1)
    root = np.stack([x * size[1], y * size[0]], 1)
    along = np.arange(N_BARBS) / N_BARBS
    starts = root[:, None] + stem[:, None] * (length[:, None] * along)[..., None]
    lines = [np.stack([root, root + stem * length[:, None]], 1)[:, None]]
    for side in (-1, 1):
        tilt = angle + side * (0.6 + 0.5 * spread)
        barb = np.stack([np.cos(tilt), np.sin(tilt)], 1)[:, None]
        reach = (0.4 * length[:, None] * (1 - along))[..., None]
        lines.append(np.stack([starts, starts + barb * reach], 2))
    points = np.rint(np.concatenate(lines, 1) * 16).astype(np.int32)
    group = (order * len(BRIGHTNESSES)).astype(np.int64)
    return [points[group == k].reshape(-1, 2, 2) for k in range(len(BRIGHTNESSES))]


class Spatter(NamedTuple):
    """Strength of spatter.

    Args:
        mean: Of the normal noise that liquid is made from.
        std: Of the same noise.
        sigma: Of its smoothing, in pixels.
        least: Above which there is liquid.
        strength: Of water, or smoothing of mud in pixels.
    """

    mean: float
    std: float
    sigma: float
    least: float
    strength: float


WATER = (
    Spatter(0.65, 0.3, 4.0, 0.69, 0.6),
    Spatter(0.65, 0.3, 3.0, 0.68, 0.6),
    Spatter(0.65, 0.3, 2.0, 0.68, 0.5),
)
MUD = (Spatter(0.65, 0.3, 1.0, 0.65, 1.5), Spatter(0.67, 0.4, 1.0, 0.65, 1.5))
WATER_COLOR = np.array([175, 238, 238], np.float32)
MUD_COLOR = np.array([63, 42, 20], np.float32)
LIGHT = np.array([[-2, -1, 0], [-1, 1, 1], [0, 1, 2]], np.float32)  # from a corner
FARTHEST = 20  # pixels from an edge of a drop


def spatter(image: Image, severity: int, draws: Draws) -> Image:
    """Add drops of water (severities 1 to 3), or cover with mud (4 and 5)."""
    given = (*WATER, *MUD)[severity - 1]
    noise = normal_field(draws.key("liquid"), image.shape[:2], given.mean, given.std)
    liquid = _smooth_layer(noise, given.sigma)
    if severity <= len(WATER):
        share = given.strength * _water(np.where(liquid < given.least, 0, liquid))[..., None]
        values = image + share * WATER_COLOR
    else:
        share = _smooth_layer((liquid > given.least).astype(np.float32), given.strength)
        share = np.where(share < 0.8, 0, share)[..., None]
        values = image * (1 - share) + share * MUD_COLOR
    return np.clip(values + np.float32(2**-10), 0, 255).astype(np.uint8)


def _smooth_layer(layer: Layer, sigma: float) -> Layer:
    return smooth_field(layer, (sigma, sigma), truncate=4.0, border=cv2.BORDER_REPLICATE)


def _water(liquid: Layer) -> Layer:
    """Shade drops by the distance to their edges, lit from a corner; the brightest is 1."""
    levels = (liquid * 255).astype(np.uint8)
    distance = cv2.distanceTransform(255 - cv2.Canny(levels, 50, 150), cv2.DIST_L2, 5)
    nearness = cv2.blur(np.minimum(distance, FARTHEST), (3, 3)).astype(np.uint8)
    lit = cv2.filter2D(cv2.equalizeHist(nearness), cv2.CV_8U, LIGHT)
    shade = levels * cv2.blur(lit, (3, 3)).astype(np.float32)
    return shade / max(float(shade.max()), 1.0)
