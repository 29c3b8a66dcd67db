"""Similarities of nouns, one pair at a time, by walking every path to the root."""

import math

from incognita.semantics import load_wordnet

DEPTH = 19  # links of the longest path to the root


def paths_to_root(name: str) -> list[list[str]]:
    """All paths, from the synset to the root."""
    wordnet = load_wordnet()
    above = wordnet.hypernyms(name) + wordnet.instance_hypernyms(name)
    paths = [[name, *rest] for parent in above for rest in paths_to_root(parent)]
    return paths or [[name]]


def links_to(name: str) -> dict[str, int]:
    """The fewest links to each ancestor."""
    links: dict[str, int] = {}
    for walk in paths_to_root(name):
        for n, ancestor in enumerate(walk):
            links[ancestor] = min(n, links.get(ancestor, n))
    return links


def links_between(first: str, second: str) -> int:
    ours, theirs = links_to(first), links_to(second)
    return min(ours[shared] + theirs[shared] for shared in ours.keys() & theirs.keys())


def path(first: str, second: str) -> float:
    return 1 / (1 + links_between(first, second))


def lch(first: str, second: str) -> float:
    return math.log(2 * DEPTH) - math.log(1 + links_between(first, second))


def wup(first: str, second: str) -> float:
    shared = links_to(first).keys() & links_to(second).keys()
    farthest = max(map(shortest, shared))
    equals = sorted(name for name in shared if shortest(name) == farthest)
    subsumer = first if first in equals else equals[0]
    n = max(map(len, paths_to_root(subsumer)))
    to_it = links_between(first, subsumer) + links_between(second, subsumer)
    return 2 * n / (to_it + 2 * n)


def shortest(name: str) -> int:
    return min(map(len, paths_to_root(name)))
