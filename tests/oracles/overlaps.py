"""Overlaps of classes and repeats of images in slow loops, from their definitions."""

from collections.abc import Callable, Sequence

from PIL import Image

Links = Callable[[str], list[str]]


def all_kinds(synset: str, hypernyms: Links) -> set[str]:
    """Climb from a synset, one link at a time, and collect what is met."""
    found = set()
    for above in hypernyms(synset):
        found |= {above} | all_kinds(above, hypernyms)
    return found


def all_parts(whole: str, hypernyms: Links, meronyms: Links) -> set[str]:
    """Collect the parts of what is up to two links above, then one link above each part."""

    def parts(synset: str, n_links: int) -> set[str]:
        found = set(meronyms(synset))
        for above in hypernyms(synset) if n_links else []:
            found |= parts(above, n_links - 1)
        return found

    found, new = set(), parts(whole, 2)
    while new:
        found |= new
        new = set().union(*(parts(synset, 1) for synset in new)) - found
    return found


def dhash(image: Image.Image) -> str:
    """Return the 128 bits of dHash as text, the horizontal half first."""
    gray = image.convert("L").resize((9, 9), Image.Resampling.BOX)
    pixel = gray.getpixel
    across = [pixel((x, y)) < pixel((x + 1, y)) for y in range(8) for x in range(8)]
    down = [pixel((x, y)) < pixel((x, y + 1)) for y in range(8) for x in range(8)]
    return "".join("01"[bit] for bit in across + down)


def near_pairs(hashes: Sequence[str], owners: Sequence[int], distance: int) -> set[tuple[int, int]]:
    """Compare every pair of hashes of different owners, bit by bit."""
    return {
        (a, b)
        for a in range(len(hashes))
        for b in range(a + 1, len(hashes))
        if owners[a] != owners[b]
        and sum(x != y for x, y in zip(hashes[a], hashes[b], strict=True)) <= distance
    }


def dealt_by_similarity(
    similarities: dict[str, float], near: float, far: float
) -> dict[str, list[str]]:
    """Put each category into the list of its similarity, from close to far."""
    lists: dict[str, list[str]] = {"near": [], "far": [], "farther": []}
    for name, value in similarities.items():
        if value >= near:
            lists["near"].append(name)
        elif value >= far:
            lists["far"].append(name)
        else:
            lists["farther"].append(name)
    return lists
