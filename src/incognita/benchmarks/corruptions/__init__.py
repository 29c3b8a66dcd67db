"""Corruptions of images: 19 kinds of noise, blur, weather and digital loss at five severities.

Hendrycks and Dietterich, Benchmarking Neural Network Robustness to Common Corruptions and
Perturbations, ICLR 2019; for images of any size as in Michaelis et al., Benchmarking Robustness in
Object Detection: Autonomous Driving when Winter is Coming, 2019. Random numbers depend on the seed,
the image id, the kind and the severity. CONVENTIONS.md lists what differs from the public code.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from incognita.benchmarks.corruptions.draws import Draws
from incognita.errors import InvalidDataError, unknown_name
from incognita.registry import Registry
from incognita.shapes import UInt

SEVERITIES = (1, 2, 3, 4, 5)
FAMILIES = {
    "noise": ("gaussian_noise", "shot_noise", "impulse_noise", "speckle_noise"),
    "blur": ("defocus_blur", "glass_blur", "motion_blur", "zoom_blur", "gaussian_blur"),
    "weather": ("snow", "frost", "fog", "brightness", "spatter"),
    "digital": ("contrast", "elastic_transform", "pixelate", "jpeg_compression", "saturate"),
}
# imported on first use: naming a kind waits for no compiler
KINDS = Registry(
    "corruption",
    {
        kind: f"incognita.benchmarks.corruptions.{family}:{kind}"
        for family, kinds in FAMILIES.items()
        for kind in kinds
    },
)
_EXTRA = ("speckle_noise", "gaussian_blur", "spatter", "saturate")
_NOT_SAOD = ("glass_blur", "zoom_blur", "spatter", "saturate")
LISTS = {
    "saod": tuple(kind for kind in KINDS.homes if kind not in _NOT_SAOD),
    "imagenet-c": tuple(kind for kind in KINDS.homes if kind not in _EXTRA),
}


class CorruptedImage(NamedTuple):
    """One image of a corrupted set."""

    image_index: int
    kind: str
    severity: int


def corrupt(
    image: UInt[np.ndarray, "height width 3"],
    kind: str,
    severity: int,
    *,
    image_id: str | int,
    seed: int = 0,
) -> UInt[np.ndarray, "height width 3"]:
    """Corrupt an image.

    The result depends on nothing but the arguments: not on the order of calls, the process, the
    number of threads or any global random state.

    Args:
        image: RGB, uint8.
        kind: One of `KINDS`.
        severity: From 1 to 5.
        image_id: What tells the image apart from others; its text counts, so 7 is "7".
        seed: Of the random numbers; another seed is another draw.

    >>> image = np.full((2, 2, 3), 100, np.uint8)
    >>> corrupt(image, "brightness", 3, image_id="a.jpg")[0, 0].tolist()
    [176, 176, 176]
    >>> corrupt(image, "gaussian_noise", 3, image_id="a.jpg")[0, 0].tolist()
    [71, 116, 91]
    """
    _check_image(image)
    check_severity(severity)
    function = KINDS.get(kind)
    draws = Draws(seed, str(image_id), kind, int(severity))
    out: UInt[np.ndarray, "height width 3"] = function(np.ascontiguousarray(image), severity, draws)
    return out


def kinds_of(name: str) -> tuple[str, ...]:
    """Return the kinds of a named list (`saod`, `imagenet-c`), or the kind of this name.

    >>> len(kinds_of("saod")), sorted(set(kinds_of("imagenet-c")) - set(kinds_of("saod")))
    (15, ['glass_blur', 'zoom_blur'])
    >>> kinds_of("fog")
    ('fog',)
    """
    if name in LISTS:
        return LISTS[name]
    if name in KINDS.homes:
        return (name,)
    raise unknown_name("corruption or list of corruptions", name, [*LISTS, *KINDS.homes])


def family_of(kind: str) -> str:
    """Return the family of a kind: noise, blur, weather or digital.

    >>> family_of("fog")
    'weather'
    """
    for family, kinds in FAMILIES.items():
        if kind in kinds:
            return family
    raise unknown_name("corruption", kind, KINDS.homes)


def draw_kind(kinds: Sequence[str], image_id: str | int, severity: int, seed: int) -> str:
    """Draw one kind for an image, from the seed, the image id and the severity alone.

    >>> draw_kind(kinds_of("saod"), "a.jpg", 3, 0)
    'frost'
    """
    if not kinds:
        raise InvalidDataError("Expected kinds of corruptions, got none. Name at least one.")
    return kinds[Draws(seed, str(image_id), severity).index("kind", len(kinds))]


def spread_evenly(
    n_images: int,
    kinds: Sequence[str],
    severities: Sequence[int],
    *,
    sample: int | None = None,
    seed: int = 0,
) -> list[CorruptedImage]:
    """Spread a sample evenly over images and over all pairs of a kind and a severity.

    Every pair is used `sample / n_pairs` times and every image `sample / n_images` times, rounded
    down or up, and no image twice with the same pair. Which ones is drawn from the seed.

    Args:
        n_images: Of the clean set.
        kinds: Of corruptions.
        severities: From 1 to 5.
        sample: Number of corrupted images; None takes every image with every pair.
        seed: Of the draw.

    Returns:
        Corrupted images in the order of the clean ones.

    >>> [tuple(image) for image in spread_evenly(4, ["fog", "snow"], [1, 5], sample=4)]
    [(0, 'snow', 5), (1, 'snow', 1), (2, 'fog', 5), (3, 'fog', 1)]
    """
    pairs = [(kind, severity) for kind in kinds for severity in severities]
    n = n_images * len(pairs) if sample is None else sample
    _check_sample(n, n_images, len(pairs))
    draws = Draws(seed)
    images = _shuffled(range(n_images), draws, "images")
    pairs = _shuffled(pairs, draws, "pairs")
    # steps through both lists at once meet again after the least common multiple of their lengths
    period = math.lcm(n_images, len(pairs)) if n else 1
    chosen = [((k + k // period) % n_images, k % len(pairs)) for k in range(n)]
    return sorted(
        (CorruptedImage(images[i], *pairs[p]) for i, p in chosen),
        key=lambda image: (image.image_index, image.severity, image.kind),
    )


def _shuffled(items: Sequence[Any], draws: Draws, what: str) -> list[Any]:
    """Order items by hashes of their places."""
    return [items[k] for k in sorted(range(len(items)), key=lambda k: draws.key(f"{what} {k}"))]


def _check_sample(n: int, n_images: int, n_pairs: int) -> None:
    if not 0 <= n <= n_images * n_pairs:
        raise InvalidDataError(
            f"Expected a sample of at most {n_images * n_pairs:,} ({n_images:,} images, "
            f"{n_pairs} pairs of kind and severity), got {n:,}. Sample less."
        )


def _check_image(image: Any) -> None:
    if not isinstance(image, np.ndarray):
        got = type(image).__name__
    elif image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] != 3 or not image.size:
        got = f"{image.dtype} {list(image.shape)}"
    else:
        return
    raise InvalidDataError(
        f"Expected an image as uint8 [height, width, 3], got {got}. Convert it to RGB first."
    )


def check_severity(severity: Any) -> None:
    """Raise if a severity is not a whole number from 1 to 5."""
    if isinstance(severity, bool) or severity not in SEVERITIES or severity != int(severity):
        raise InvalidDataError(
            f"Expected a severity from 1 to 5, got {severity!r}. Choose a whole number."
        )
