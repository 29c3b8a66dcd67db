r"""How alike nouns are by their places in WordNet: path, Leacock-Chodorow and Wu-Palmer similarity.

Values equal those of nltk. With d the fewest links between a and b over a common ancestor, D = 19
the links of the longest path to the root, and s the common ancestor farthest from the root:

$$ path = 1 / (d + 1), \quad lch = -\log((d + 1) / 2 D), \quad
   wup = 2 n_s / (d_{as} + d_{bs} + 2 n_s) $$

n_s counts the synsets on the longest path from s to the root, d_as and d_bs are the fewest links
from a and b to s. "Farthest" is by the shortest path to the root; among equals, a itself comes
first, then the first name. Hence wup may change with the order of its arguments, and wup of a
synset with itself may be less than 1: `dog.n.01` is near the root as a domestic animal, and its
ancestor `canine.n.02` is farther. All nouns of WordNet 3.0 have one root, so that nltk simulates
none.

Leacock and Chodorow, Combining local context and WordNet similarity, 1998; Wu and Palmer, Verb
semantics and lexical selection, ACL 1994.
"""

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple, get_args

import numpy as np

from incognita.errors import InvalidDataError, unknown_name
from incognita.semantics.wordnet import WordNet, load_wordnet
from incognita.shapes import Float, Int

Measure = Literal["mean", "path", "lch", "wup"]
_FAR = 99  # more links than any path has; with a path added, it still fits into 8 bits


class Similarities(NamedTuple):
    """The similarities of all pairs of two lists of synsets."""

    path: Float[np.ndarray, "rows columns"]
    lch: Float[np.ndarray, "rows columns"]
    wup: Float[np.ndarray, "rows columns"]

    @property
    def mean(self) -> Float[np.ndarray, "rows columns"]:
        """The mean of the three, with lch divided by its maximum log(2 D) (FACETS, section IV)."""
        highest = math.log(2 * _longest_path())
        mean: np.ndarray = (self.path + self.lch / highest + self.wup) / 3
        return mean


class NearestClasses(NamedTuple):
    """The most similar class of another list, for each class of a list."""

    places: Int[np.ndarray, "classes"]
    similarities: Float[np.ndarray, "classes"]


def similarities(rows: Sequence[str], columns: Sequence[str]) -> Similarities:
    """Compute path, Leacock-Chodorow and Wu-Palmer similarity of all pairs.

    Args:
        rows: Synsets by name (`dog.n.01`) or wnid (`n02084071`).
        columns: Synsets to compare them with.

    >>> values = similarities(["dog.n.01"], ["cat.n.01", "dog.n.01"])
    >>> values.path.tolist(), values.lch.round(4).tolist(), values.wup.round(4).tolist()
    ([[0.2, 1.0]], [[2.0281, 3.6376]], [[0.8571, 0.9286]])
    """
    wordnet = load_wordnet()
    above_rows, above_columns = (_ancestors(synsets, wordnet) for synsets in (rows, columns))
    links, subsumers = _meet(above_rows, above_columns)
    is_subsumer = np.zeros(len(wordnet), bool)
    is_subsumer[subsumers] = True
    places = (np.cumsum(is_subsumer) - 1)[subsumers]
    names = [wordnet.name(row) for row in np.flatnonzero(is_subsumer).tolist()]
    above_subsumers = _ancestors(names, wordnet)
    row_links = np.take_along_axis(_meet(above_rows, above_subsumers).links, places, axis=1)
    column_links = np.take_along_axis(_meet(above_columns, above_subsumers).links, places.T, axis=1)
    n_synsets = wordnet.longest_depths[subsumers] + 1
    return Similarities(
        path=1 / (links + 1),
        lch=-np.log((links + 1) / (2 * _longest_path())),
        wup=2 * n_synsets / (row_links + column_links.T + 2 * n_synsets),
    )


def path_similarity(first: str, second: str) -> float:
    """Compute the path similarity of two synsets.

    >>> path_similarity("dog.n.01", "wolf.n.01")
    0.3333333333333333
    """
    return float(similarities([first], [second]).path[0, 0])


def lch_similarity(first: str, second: str) -> float:
    """Compute the Leacock-Chodorow similarity of two synsets, at most log 38.

    >>> round(lch_similarity("dog.n.01", "wolf.n.01"), 4)
    2.539
    """
    return float(similarities([first], [second]).lch[0, 0])


def wup_similarity(first: str, second: str) -> float:
    """Compute the Wu-Palmer similarity of two synsets.

    >>> round(wup_similarity("dog.n.01", "wolf.n.01"), 4)
    0.9286
    """
    return float(similarities([first], [second]).wup[0, 0])


def class_distance(
    rows: Sequence[str], columns: Sequence[str]
) -> Float[np.ndarray, "rows columns"]:
    """Compute 1 minus the mean of the three similarities, as FACETS' thresholds T40 to T50 read.

    >>> class_distance(["dog.n.01"], ["wolf.n.01", "car.n.01"]).round(2).tolist()
    [[0.35, 0.74]]
    """
    return 1 - similarities(rows, columns).mean


def nearest_classes(
    classes: Sequence[str], others: Sequence[str], *, measure: Measure = "mean"
) -> NearestClasses:
    """Find the most similar of other classes for each class; of equal ones the first.

    >>> nearest_classes(["dog.n.01"], ["car.n.01", "wolf.n.01"], measure="path").places.tolist()
    [1]
    """
    if measure not in get_args(Measure):
        raise unknown_name("measure", measure, get_args(Measure))
    if not others:
        raise InvalidDataError("Expected classes to compare with, got an empty list. Name some.")
    values = getattr(similarities(classes, others), measure)
    places = values.argmax(axis=1)
    return NearestClasses(places, values[np.arange(len(places)), places])


class _Ancestors(NamedTuple):
    """The ancestors of several synsets; of synset k, they lie between starts[k] and starts[k + 1].

    They are in the order in which Wu-Palmer similarity prefers them as the common ancestor.
    """

    starts: Int[np.ndarray, "queries_plus_1"]
    synsets: Int[np.ndarray, "entries"]
    links: Int[np.ndarray, "entries"]

    @property
    def queries(self) -> Int[np.ndarray, "entries"]:
        return np.repeat(np.arange(self.starts.size - 1), np.diff(self.starts))


class _Meeting(NamedTuple):
    """Fewest links between all pairs, and their preferred common ancestors."""

    links: Int[np.ndarray, "rows columns"]
    subsumers: Int[np.ndarray, "rows columns"]


def _ancestors(synsets: Sequence[str], wordnet: WordNet) -> _Ancestors:
    """Collect all ancestors with their fewest links, one level above the other."""
    if isinstance(synsets, str):
        raise InvalidDataError(f"Expected a list of synsets, got {synsets!r}. Write [{synsets!r}].")
    reached = np.array([wordnet.row(synset) for synset in synsets], np.int64)
    queries = np.arange(reached.size)
    levels = []
    while reached.size:
        levels.append(queries * len(wordnet) + reached)
        queries, reached = _one_level_up(queries, reached, wordnet)
    keys = np.concatenate([np.empty(0, np.int64), *levels])
    links = np.repeat(np.arange(len(levels)), [level.size for level in levels])
    keys, first = np.unique(keys, return_index=True)  # the first level on which each was reached
    queries, reached = np.divmod(keys, len(wordnet))
    links = links[first]
    order = np.lexsort(
        (_name_ranks(reached, wordnet), links > 0, -wordnet.shortest_depths[reached], queries)
    )
    starts = np.searchsorted(queries, np.arange(len(synsets) + 1))
    return _Ancestors(starts, reached[order], links[order].astype(np.int8))


def _one_level_up(
    queries: Int[np.ndarray, "entries"], reached: Int[np.ndarray, "entries"], wordnet: WordNet
) -> tuple[Int[np.ndarray, "above"], Int[np.ndarray, "above"]]:
    """Follow all links upward, without repeats."""
    starts, targets = wordnet.upward
    counts = starts[reached + 1] - starts[reached]
    first_above = np.cumsum(counts) - counts
    places = np.arange(counts.sum()) + np.repeat(starts[reached] - first_above, counts)
    keys = np.unique(np.repeat(queries, counts) * len(wordnet) + targets[places])
    queries, reached = np.divmod(keys, len(wordnet))
    return queries, reached


def _name_ranks(rows: Int[np.ndarray, "entries"], wordnet: WordNet) -> Int[np.ndarray, "entries"]:
    unique, places = np.unique(rows, return_inverse=True)
    names = [wordnet.name(row) for row in unique.tolist()]
    ranks = np.empty(len(names), np.int64)
    ranks[sorted(range(len(names)), key=names.__getitem__)] = np.arange(len(names))
    return ranks[places]


def _meet(a: _Ancestors, b: _Ancestors) -> _Meeting:
    """Meet each of a with all of b: only the few ancestors of each a are looked at."""
    shared, slots_of_b = np.unique(b.synsets, return_inverse=True)
    n_columns = b.starts.size - 1
    links_of_b = np.full((shared.size + 1, n_columns), _FAR, np.int8)  # the last row: not shared
    links_of_b[slots_of_b, b.queries] = b.links
    slots = np.searchsorted(shared, a.synsets)
    slots[~np.isin(a.synsets, shared)] = shared.size
    links = np.empty((a.starts.size - 1, n_columns), np.int64)
    subsumers = np.empty_like(links)
    for k, (start, stop) in enumerate(zip(a.starts[:-1], a.starts[1:], strict=True)):
        above = links_of_b[slots[start:stop]]  # ancestors x columns
        links[k] = (above + a.links[start:stop, None]).min(axis=0)
        subsumers[k] = a.synsets[start:stop][(above < _FAR).argmax(axis=0)]
    return _Meeting(links, subsumers)


def _longest_path() -> int:
    """Return D, the depth of the taxonomy: 19 links for the nouns of WordNet 3.0."""
    return int(load_wordnet().longest_depths.max())
