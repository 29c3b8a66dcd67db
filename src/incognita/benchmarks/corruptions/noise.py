"""Noise: gaussian, shot, impulse, speckle; and fields of random numbers for other kinds.

Levels are cut, not rounded, to whole numbers, as in the published code. Every channel of a pixel
has its own draw.
"""

import math
from functools import cache
from statistics import NormalDist

import numpy as np

from incognita.benchmarks.corruptions.draws import Draws
from incognita.kernels.corruptions import noise as kernels
from incognita.shapes import Float, UInt

Image = UInt[np.ndarray, "height width 3"]
N_LEVELS = 256
N_DRAWS = 65_536  # different values of the 16 bits that a draw takes
N_COLUMNS = 64  # of an alias table: more than the largest number of photons below white


def gaussian_noise(image: Image, severity: int, draws: Draws) -> Image:
    """Add normal noise of one deviation: 0.08, 0.12, 0.18, 0.26 or 0.38 of white."""
    deviation = (0.08, 0.12, 0.18, 0.26, 0.38)[severity - 1]
    return _add_normal(image, np.full(N_LEVELS, 255 * deviation, np.float32), draws)


def speckle_noise(image: Image, severity: int, draws: Draws) -> Image:
    """Add normal noise in proportion to the level: 0.15, 0.2, 0.35, 0.45 or 0.6 of it."""
    share = (0.15, 0.2, 0.35, 0.45, 0.6)[severity - 1]
    return _add_normal(image, (share * np.arange(N_LEVELS)).astype(np.float32), draws)


def _add_normal(image: Image, deviations: Float[np.ndarray, "256"], draws: Draws) -> Image:
    key, out = np.uint64(draws.key("noise")), np.empty_like(image)
    quantiles = _normal_quantiles()
    kernels.add_normal(image.reshape(-1), deviations, quantiles, key, out.reshape(-1))
    return out


def shot_noise(image: Image, severity: int, draws: Draws) -> Image:
    """Count photons: Poisson numbers of which white has 60, 25, 12, 5 or 3 on average."""
    table = _poisson_table((60, 25, 12, 5, 3)[severity - 1])
    key, out = np.uint64(draws.key("noise")), np.empty_like(image)
    kernels.replace_by_alias(image.reshape(-1), table, key, out.reshape(-1))
    return out


def impulse_noise(image: Image, severity: int, draws: Draws) -> Image:
    """Set 3, 6, 9, 17 or 27 percent of all values to 0 or to 255, with equal chances."""
    amount = (0.03, 0.06, 0.09, 0.17, 0.27)[severity - 1]
    n_changed = round(amount * N_DRAWS)
    key, out = np.uint64(draws.key("noise")), np.empty_like(image)
    kernels.add_impulses(image.reshape(-1), n_changed // 2, n_changed, key, out.reshape(-1))
    return out


def normal_field(
    key: int, shape: tuple[int, int], mean: float, std: float
) -> Float[np.ndarray, "rows columns"]:
    """Return float32 normal numbers as a function of a key."""
    out = np.empty(shape, np.float32)
    kernels.fill_normal(_normal_quantiles(), mean, std, np.uint64(key), out.reshape(-1))
    return out


def uniform_field(
    key: int, shape: tuple[int, int], low: float, high: float
) -> Float[np.ndarray, "rows columns"]:
    """Return float32 uniform numbers as a function of a key."""
    out = np.empty(shape, np.float32)
    kernels.fill_uniform(low, high, np.uint64(key), out.reshape(-1))
    return out


@cache
def _normal_quantiles() -> Float[np.ndarray, "65536"]:
    """Return the normal quantiles at the middles of 65,536 equal shares, as float32."""
    normal = NormalDist()
    lower = [normal.inv_cdf((k + 0.5) / N_DRAWS) for k in range(N_DRAWS // 2)]
    return np.array(lower + [-value for value in reversed(lower)], np.float32)


@cache
def _poisson_table(n_photons: int) -> UInt[np.ndarray, "256 64"]:
    """Build the alias tables of Poisson(level / 255 * n_photons) for all levels, packed.

    All counts from `n_photons` on are white, so that they share one column.
    """
    counts = np.arange(N_COLUMNS)
    values = (np.minimum(counts / n_photons, 1) * 255).astype(np.uint32)
    table = np.empty((N_LEVELS, N_COLUMNS), np.uint32)
    for level in range(N_LEVELS):
        chances, seconds = _alias(_poisson_chances(level / 255 * n_photons, n_photons))
        limits = np.array([min(round(chance * N_DRAWS), N_DRAWS - 1) for chance in chances])
        table[level] = limits.astype(np.uint32) << 16 | values << 8 | values[seconds]
    return table


def _poisson_chances(mean: float, largest: int) -> list[float]:
    """Return the chances of 0, 1, …, and of `largest` or more; the rest of the columns is 0."""
    chances = [math.exp(-mean)]
    for k in range(1, largest):
        chances.append(chances[-1] * mean / k)
    chances.append(max(0.0, 1 - math.fsum(chances)))
    return chances + [0.0] * (N_COLUMNS - len(chances))


def _alias(chances: list[float]) -> tuple[list[float], list[int]]:
    """Split chances into columns of equal weight, each with a second value (Walker, 1977).

    Returns:
        The chance of the second value of each column, and which it is.
    """
    shares = [chance * len(chances) for chance in chances]
    seconds = list(range(len(shares)))
    small = [k for k, share in enumerate(shares) if share < 1]
    large = [k for k, share in enumerate(shares) if share >= 1]
    while small and large:
        receiver, donor = small.pop(), large.pop()
        seconds[receiver] = donor
        shares[donor] -= 1 - shares[receiver]
        (small if shares[donor] < 1 else large).append(donor)
    for rest in small + large:  # 1 but for rounding
        shares[rest] = 1.0
    return [1 - share for share in shares], seconds
