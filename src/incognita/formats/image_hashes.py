"""Images that are in two sets: the same file, or a copy that looks the same.

The content hash of a file is its sha256; that of an image in memory, the sha256 of its pixels. The
perceptual hash is dHash in both directions, 128 bits: the image in gray, reduced to 9 x 9 pixels,
and whether each of 8 x 8 pixels is darker than its right and than its lower neighbor (Krawetz,
Kind of like that, 2013). Copies that were resized or saved again differ by a few bits, and two
images count as copies where at most `DISTANCE` differ. Images with almost no contrast, or of fewer
than 18 pixels on a side, have no such hash and are compared by content alone.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from typing import Any, Literal, NamedTuple

import numpy as np

from incognita.containers.dataset import Dataset
from incognita.errors import IncognitaError
from incognita.formats.images import READERS, FileDataset, load_image, opened_image
from incognita.shapes import Bool, Int, Shaped

DISTANCE = 6  # bits: no two different images of nine data sets (40,000) were that close
SIDE = 8  # bits in each row and column of the hash
DRAFT = 4 * (SIDE + 1)  # pixels that a JPEG is decoded to at least
FLAT = 8  # gray levels; a reduced image that spans fewer has no perceptual hash
PER_TASK = 64  # images that a thread reads at a time
N_EXAMPLES = 5
OnImage = Callable[[str, int, int], None]  # set, images done, images in total


class _Reduced(NamedTuple):
    """One image: its content hash and its 9 x 9 gray pixels."""

    content: bytes
    pixels: bytes


@dataclass(frozen=True, eq=False)
class ImageHashes:
    """The hashes of a set of images.

    Args:
        name: Of the set.
        image_ids: Those that could be read.
        contents: The content hash of each.
        bits: The perceptual hash of each, horizontal and vertical.
        is_flat: Whether it has too little contrast for one.
        unreadable: What is wrong with each of the others.
    """

    name: str
    image_ids: Sequence[str]
    contents: Sequence[bytes]
    bits: Shaped[np.ndarray, "n 2"]
    is_flat: Bool[np.ndarray, "n"]
    unreadable: Sequence[str] = ()


class RepeatedImages(NamedTuple):
    """Images of one set that are also in another.

    Args:
        first: The name of one set.
        second: The name of the other.
        kind: Whether files are the same, or images look the same.
        n_first: How many images of the first set are in the second.
        n_second: How many images of the second set are in the first.
        examples: The ids of a few pairs.
        images: The ids of all images of the second set that are in the first.
    """

    first: str
    second: str
    kind: Literal["content", "perceptual"]
    n_first: int
    n_second: int
    examples: tuple[tuple[str, str], ...]
    images: tuple[str, ...]


def hash_images(dataset: Dataset, *, on_image: OnImage = lambda *_: None) -> ImageHashes:
    """Compute both hashes of every image; each is decoded once, several at a time."""
    n_images = len(dataset.image_ids)
    tasks = [range(k, min(k + PER_TASK, n_images)) for k in range(0, n_images, PER_TASK)]
    found: list[_Reduced | str] = []
    with ThreadPoolExecutor(READERS) as pool:
        for results in pool.map(partial(_reduce_all, dataset), tasks):
            found += results
            on_image(dataset.name, len(found), n_images)
    places = [k for k, result in enumerate(found) if isinstance(result, _Reduced)]
    read = [result for result in found if isinstance(result, _Reduced)]
    pixels = np.frombuffer(b"".join(result.pixels for result in read), np.uint8)
    small = pixels.reshape(-1, SIDE + 1, SIDE + 1)
    return ImageHashes(
        dataset.name,
        [dataset.image_ids[k] for k in places],
        [result.content for result in read],
        difference_hashes(small),
        np.ptp(small, axis=(1, 2)) < FLAT,
        [result for result in found if isinstance(result, str)],
    )


def difference_hashes(small: Shaped[np.ndarray, "n 9 9"]) -> Shaped[np.ndarray, "n 2"]:
    """Compute dHash of gray images of 9 x 9 pixels: 64 bits horizontally and 64 vertically.

    >>> ramp = np.arange(81, dtype=np.uint8).reshape(1, 9, 9).transpose(0, 2, 1)
    >>> [f"{half:016x}" for half in difference_hashes(ramp % 9)[0]]
    ['0000000000000000', 'ffffffffffffffff']
    """
    corner = small[:, :-1, :-1]
    is_darker = np.stack([corner < small[:, :-1, 1:], corner < small[:, 1:, :-1]], axis=1)
    packed = np.packbits(is_darker.reshape(len(small), 2, SIDE * SIDE), axis=2)
    return packed.view(">u8").reshape(-1, 2).astype(np.uint64)


def _reduce_all(dataset: Dataset, indices: Sequence[int]) -> list[_Reduced | str]:
    return [_reduce_or_explain(dataset, index) for index in indices]


def _reduce_or_explain(dataset: Dataset, index: int) -> _Reduced | str:
    try:
        return _reduce(dataset, index)
    except (IncognitaError, OSError) as error:
        return str(error)


def _reduce(dataset: Dataset, index: int) -> _Reduced:
    """Hash the content of an image and reduce it to 9 x 9 gray pixels."""
    from PIL import Image

    if not isinstance(dataset, FileDataset):
        pixels = np.ascontiguousarray(dataset.load(index))
        content = sha256(repr(pixels.shape).encode() + pixels.tobytes()).digest()
        return _Reduced(content, _reduced_pixels(Image.fromarray(pixels)))
    path = dataset.root / dataset.image_ids[index]
    with opened_image(path) as image:
        stream = image.fp  # Pillow forgets it once the image is decoded
        image.draft("L", (DRAFT, DRAFT))  # of a JPEG, little more than these pixels is decoded
        if image.mode[0] in "IF":  # more than 8 bits, which Pillow would cut off
            image = Image.fromarray(load_image(path))
        reduced = _reduced_pixels(image)
        stream.seek(0)
        return _Reduced(sha256(stream.read()).digest(), reduced)


def _reduced_pixels(image: Any) -> bytes:
    from PIL.Image import Resampling

    if min(image.size) < 2 * (SIDE + 1):
        return bytes((SIDE + 1) ** 2)  # without contrast
    gray = image if image.mode == "L" else image.convert("L")
    reduced: bytes = gray.resize((SIDE + 1, SIDE + 1), Resampling.BOX).tobytes()
    return reduced


def find_repeats(sets: Sequence[ImageHashes], *, distance: int = DISTANCE) -> list[RepeatedImages]:
    """Find the images that are in two sets, by content and by look.

    Args:
        sets: The hashes of each set.
        distance: How many of the 128 bits may differ.
    """
    owners = np.repeat(np.arange(len(sets)), [len(hashes.image_ids) for hashes in sets])
    contents = np.array([content for hashes in sets for content in hashes.contents], "S32")
    same = _equal_pairs(contents, owners)
    rows = np.flatnonzero(~np.concatenate([np.zeros(0, bool), *(s.is_flat for s in sets)]))
    bits = np.concatenate([np.zeros((0, 2), np.uint64), *(hashes.bits for hashes in sets)])
    alike = rows[near_pairs(bits[rows], owners[rows], distance=distance)]
    is_same = contents[alike[:, 0]] == contents[alike[:, 1]]
    return [
        *_grouped(sets, owners, same, "content"),
        *_grouped(sets, owners, alike[~is_same], "perceptual"),
    ]


def _equal_pairs(
    contents: Shaped[np.ndarray, "n"], owners: Int[np.ndarray, "n"]
) -> Int[np.ndarray, "pairs 2"]:
    """Pair equal contents of different sets; of equal ones in one set, each with the first."""
    order = np.lexsort((owners, contents))
    return _pairs_in_runs(order, contents[order], owners[order], lambda *_: slice(None))


def near_pairs(
    bits: Shaped[np.ndarray, "n 2"], owners: Int[np.ndarray, "n"], *, distance: int = DISTANCE
) -> Int[np.ndarray, "pairs 2"]:
    """Find the pairs of different sets whose hashes differ by at most some bits.

    Two hashes that differ in d bits are equal in one of d + 1 pieces: only pairs that are equal in
    a piece are looked at.
    """
    found = [np.zeros((0, 2), np.int64)]
    for piece in _pieces(bits, distance + 1):
        order = np.lexsort((owners, piece))
        is_near = partial(_is_near, bits[order], distance)
        found.append(_pairs_in_runs(order, piece[order], owners[order], is_near))
    return np.unique(np.concatenate(found), axis=0)


def _is_near(
    bits: Shaped[np.ndarray, "n 2"],
    distance: int,
    first: Int[np.ndarray, "pairs"],
    second: Int[np.ndarray, "pairs"],
) -> Bool[np.ndarray, "pairs"]:
    n_bits: np.ndarray = np.bitwise_count(bits[first] ^ bits[second]).sum(axis=1)
    return n_bits <= distance


def _pieces(bits: Shaped[np.ndarray, "n 2"], n_pieces: int) -> list[Shaped[np.ndarray, "n"]]:
    """Divide the bits of each hash into pieces, each as one comparable value."""
    columns = np.unpackbits(bits.astype(">u8").view(np.uint8), axis=1)
    parts = np.array_split(columns, min(n_pieces, columns.shape[1]), axis=1)
    packed = [np.ascontiguousarray(np.packbits(part, axis=1)) for part in parts]
    values = [np.unique(part, axis=0, return_inverse=True)[1] for part in packed]
    return [value.reshape(-1) for value in values]


def _pairs_in_runs(
    order: Int[np.ndarray, "n"],
    values: Shaped[np.ndarray, "n"],
    owners: Int[np.ndarray, "n"],
    is_pair: Callable[..., Any],
) -> Int[np.ndarray, "pairs 2"]:
    """Return the pairs of different sets within runs of equal values, which must be sorted.

    Each item is compared with its next neighbor, then with the one after, until all runs end.
    """
    found = [np.zeros((0, 2), np.int64)]
    first = np.arange(len(order))
    gap = 1
    while True:
        first = first[: np.searchsorted(first, len(order) - gap)]
        first = first[values[first] == values[first + gap]]
        if not first.size:
            break
        wanted = first[owners[first] != owners[first + gap]]
        wanted = wanted[is_pair(wanted, wanted + gap)] if wanted.size else wanted
        found.append(np.sort(np.stack([order[wanted], order[wanted + gap]], axis=1), axis=1))
        gap += 1
    return np.concatenate(found)


def _grouped(
    sets: Sequence[ImageHashes],
    owners: Int[np.ndarray, "n"],
    pairs: Int[np.ndarray, "pairs 2"],
    kind: Literal["content", "perceptual"],
) -> list[RepeatedImages]:
    """Count the pairs of each two sets."""
    ids = [image_id for hashes in sets for image_id in hashes.image_ids]
    both = owners[pairs]
    found = []
    for first, second in np.unique(both, axis=0).tolist():
        mine = pairs[(both == (first, second)).all(axis=1)]
        shown = tuple((ids[a], ids[b]) for a, b in mine[:N_EXAMPLES].tolist())
        n_first, copies = len(np.unique(mine[:, 0])), np.unique(mine[:, 1]).tolist()
        names = sets[first].name, sets[second].name
        images = tuple(ids[k] for k in copies)
        found.append(RepeatedImages(*names, kind, n_first, len(copies), shown, images))
    return found
