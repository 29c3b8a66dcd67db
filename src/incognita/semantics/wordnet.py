"""The nouns of WordNet 3.0: synsets, their lemmas in sense order, and the relations between them.

A synset is named as in nltk (`dog.n.01`) or by its wnid (`n02084071`), the offset that ImageNet
uses and that only version 3.0 has. The table is part of the package; `studies/wordnet` makes it.
WordNet is copyright 2006 by Princeton University; its licence is `data/LICENSE.wordnet.txt`.
"""

import re
from bisect import bisect_left
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Literal, NamedTuple, get_args

import numpy as np

from incognita.errors import UnknownNameError, unknown_name
from incognita.shapes import Int, Real

DATA = Path(__file__).parent / "data"
Meronym = Literal["part", "member", "substance"]
# endings of plurals and of their singulars, from morphy(7WN)
_ENDINGS = {
    "s": "", "ses": "s", "ves": "f", "xes": "x", "zes": "z", "ches": "ch", "shes": "sh",
    "men": "man", "ies": "y",
}  # fmt: skip


class Links(NamedTuple):
    """One relation: the targets of synset k are `targets[starts[k]:starts[k + 1]]`."""

    starts: Int[np.ndarray, "synsets_plus_1"]
    targets: Int[np.ndarray, "links"]

    @property
    def sources(self) -> Int[np.ndarray, "links"]:
        """The synset at which each link begins."""
        return np.repeat(np.arange(self.starts.size - 1), np.diff(self.starts))

    def of(self, row: int) -> list[int]:
        """Return the targets of one synset."""
        found: list[int] = self.targets[self.starts[row] : self.starts[row + 1]].tolist()
        return found

    @classmethod
    def between(
        cls, sources: Int[np.ndarray, "links"], targets: Int[np.ndarray, "links"], n_synsets: int
    ) -> "Links":
        """Build a relation from pairs in any order."""
        order = np.argsort(sources, kind="stable")
        return cls(_starts(np.bincount(sources, minlength=n_synsets)), targets[order])


def _starts(counts: Real[np.ndarray, "rows"]) -> Int[np.ndarray, "rows_plus_1"]:
    return np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])


@dataclass(frozen=True, eq=False)
class WordNet:
    """The noun graph. Synsets go in and come out by name; inside, they are rows of a table.

    Args:
        table: The file that `studies/wordnet/make_wordnet.py` writes.

    >>> wordnet = load_wordnet()
    >>> wordnet.senses("crane")
    ['crane.n.01', 'crane.n.02', 'grus.n.01', 'crane.n.04', 'crane.n.05']
    >>> wordnet.definition("crane.n.05")
    'large long-necked wading bird of marshes and plains in many parts of the world'
    >>> wordnet.hypernyms("dog.n.01"), wordnet.name("n02084071")
    (['canine.n.02', 'domestic_animal.n.01'], 'dog.n.01')
    >>> wordnet.holonyms("car_door.n.01")
    ['car.n.01']
    """

    table: Path = DATA / "wordnet.npz"

    def row(self, synset: str) -> int:
        """Return the row of a synset, given by name or wnid; an unknown one raises."""
        if re.fullmatch(r"n\d{8}", synset):
            row = bisect_left(self._arrays["offsets"], int(synset[1:]))
            if row < len(self) and self._arrays["offsets"][row] == int(synset[1:]):
                return row
            raise UnknownNameError(
                f"Expected the wnid of a noun of WordNet 3.0, got {synset!r}. Check its version: "
                f"the numbers of other versions differ."
            )
        lemma, _, sense = synset.lower().rpartition(".n.")
        rows = self._rows_by_lemma.get(lemma, [])
        if not sense.isdecimal() or not 1 <= int(sense) <= len(rows):
            raise self._unknown_synset(synset, lemma)
        return rows[int(sense) - 1]

    def name(self, synset: str | int) -> str:
        """Return the name of a synset: its first lemma, and which sense of that lemma it is."""
        row = synset if isinstance(synset, int) else self.row(synset)
        first = int(self._word_starts[row])
        return f"{self._words[first].lower()}.n.{self._arrays['senses'][first]:02d}"

    def wnid(self, synset: str) -> str:
        """Return the identifier that ImageNet uses."""
        return f"n{self._arrays['offsets'][self.row(synset)]:08d}"

    def lemmas(self, synset: str) -> list[str]:
        """Return the words of a synset as WordNet writes them, such as `Great_Dane`."""
        row = self.row(synset)
        return self._words[self._word_starts[row] : self._word_starts[row + 1]]

    def definition(self, synset: str) -> str:
        """Return the definition, without examples."""
        return self._definitions[self.row(synset)]

    def senses(self, lemma: str) -> list[str]:
        """Return the synsets of a lemma, the most frequent sense first; none if it is unknown."""
        key = lemma.strip().lower().replace(" ", "_")
        return [self.name(row) for row in self._rows_by_lemma.get(key, [])]

    def singulars(self, word: str) -> list[str]:
        """Return the lemmas of which a word may be the plural.

        >>> load_wordnet().singulars("mice"), load_wordnet().singulars("traffic_lights")
        (['mouse'], ['traffic_light'])
        """
        key = word.strip().lower().replace(" ", "_")
        forms = self._irregular_plurals.get(key) or [
            key.removesuffix(ending) + singular
            for ending, singular in _ENDINGS.items()
            if key.endswith(ending)
        ]
        return [form for form in dict.fromkeys(forms) if form in self._rows_by_lemma]

    def hypernyms(self, synset: str) -> list[str]:
        """Return what a synset is a kind of."""
        return self._names(self._links["hypernyms"], synset)

    def instance_hypernyms(self, synset: str) -> list[str]:
        """Return what a synset is an instance of, as Berlin is of a national capital."""
        return self._names(self._links["instance_hypernyms"], synset)

    def hyponyms(self, synset: str) -> list[str]:
        """Return the kinds of a synset, one step down."""
        return self._names(self._inverse_links["hypernyms"], synset)

    def meronyms(self, synset: str, kind: Meronym = "part") -> list[str]:
        """Return the parts, members or substances of a synset."""
        return self._names(self._links[_relation(kind)], synset)

    def holonyms(self, synset: str, kind: Meronym = "part") -> list[str]:
        """Return what a synset is a part, a member or a substance of."""
        return self._names(self._inverse_links[_relation(kind)], synset)

    def ancestors(self, synset: str) -> dict[str, int]:
        """Return a synset and all that it is a kind or an instance of, with the fewest steps.

        >>> ancestors = load_wordnet().ancestors("dog.n.01")
        >>> ancestors["dog.n.01"], ancestors["canine.n.02"], ancestors["animal.n.01"]
        (0, 1, 2)
        """
        steps = {self.row(synset): 0}
        rows = list(steps)
        for row in rows:  # the list grows on the way
            for above in self.upward.of(row):
                if above not in steps:
                    steps[above] = steps[row] + 1
                    rows.append(above)
        return {self.name(row): n_steps for row, n_steps in steps.items()}

    @cached_property
    def upward(self) -> Links:
        """Hypernyms and instance hypernyms together: the links that similarities follow."""
        both = [self._links["hypernyms"], self._links["instance_hypernyms"]]
        sources, targets = ([links.sources for links in both], [links.targets for links in both])
        return Links.between(np.concatenate(sources), np.concatenate(targets), len(self))

    @cached_property
    def shortest_depths(self) -> Int[np.ndarray, "synsets"]:
        """The number of links from each synset to the root on the shortest path."""
        return self._depths(np.minimum)

    @cached_property
    def longest_depths(self) -> Int[np.ndarray, "synsets"]:
        """The number of links from each synset to the root on the longest path."""
        return self._depths(np.maximum)

    def __len__(self) -> int:
        return self._arrays["offsets"].size

    def _depths(self, extreme: np.ufunc) -> Int[np.ndarray, "synsets"]:
        """Count links to the root: after k rounds, paths of up to k links are counted."""
        starts, targets = self.upward
        rows = np.flatnonzero(np.diff(starts))
        depths = np.zeros(len(self), np.int64)
        while True:
            longer = np.zeros_like(depths)
            longer[rows] = 1 + extreme.reduceat(depths[targets], starts[rows])
            if np.array_equal(longer, depths):
                return depths
            depths = longer

    def _names(self, links: Links, synset: str) -> list[str]:
        return [self.name(row) for row in links.of(self.row(synset))]

    def _unknown_synset(self, synset: str, lemma: str) -> UnknownNameError:
        senses = self.senses(lemma)
        if senses:
            return UnknownNameError(
                f"Expected a sense of {lemma!r} in WordNet 3.0, got {synset!r}. Choose one of: "
                f"{', '.join(senses)}."
            )
        if self.senses(synset):
            return UnknownNameError(
                f"Expected a synset, got the word {synset!r}. Choose one of its senses: "
                f"{', '.join(self.senses(synset))}."
            )
        begins_alike = [word for word in self._rows_by_lemma if word[:2] == lemma[:2]]
        return unknown_name("noun of WordNet 3.0", lemma or synset, begins_alike)

    @cached_property
    def _arrays(self) -> dict[str, np.ndarray]:
        with np.load(self.table) as arrays:  # a member is unpacked when it is asked for
            return {name: arrays[name] for name in arrays.files if name != "definitions"}

    @cached_property
    def _definitions(self) -> list[str]:
        with np.load(self.table) as arrays:
            return _text(arrays["definitions"]).split("\n")

    @cached_property
    def _links(self) -> dict[str, Links]:
        counts = [name for name in self._arrays if name.endswith("_counts")]
        return {
            (relation := name.removesuffix("_counts")): Links(
                _starts(self._arrays[name]), self._arrays[relation]
            )
            for name in counts
        }

    @cached_property
    def _inverse_links(self) -> dict[str, Links]:
        return {
            relation: Links.between(links.targets, links.sources, len(self))
            for relation, links in self._links.items()
        }

    @cached_property
    def _words(self) -> list[str]:
        return _text(self._arrays["words"]).split()

    @cached_property
    def _word_starts(self) -> Int[np.ndarray, "synsets_plus_1"]:
        is_between = np.isin(self._arrays["words"], np.frombuffer(b" \n", np.uint8))
        ends_synset = self._arrays["words"][is_between] == ord("\n")
        last_words = np.append(np.flatnonzero(ends_synset), ends_synset.size)
        return np.concatenate([[0], last_words + 1])

    @cached_property
    def _rows_by_lemma(self) -> dict[str, list[int]]:
        senses = self._arrays["senses"]
        lemmas = _text(self._arrays["words"]).lower().split()
        synsets = np.repeat(np.arange(len(self)), np.diff(self._word_starts)).tolist()
        rows: dict[str, list[int]] = {}
        for place in np.argsort(senses, kind="stable").tolist():
            known = rows.setdefault(lemmas[place], [])
            if synsets[place] not in known[-1:]:  # sun.n.01 has both "sun" and "Sun"
                known.append(synsets[place])
        return rows

    @cached_property
    def _irregular_plurals(self) -> dict[str, list[str]]:
        lines = _text(self._arrays["exceptions"]).splitlines()
        plurals: dict[str, list[str]] = {}
        for plural, *singulars in map(str.split, lines):
            plurals.setdefault(plural, []).extend(singulars)
        return plurals


def _relation(kind: Meronym) -> str:
    if kind not in get_args(Meronym):
        raise unknown_name("kind of meronym", kind, get_args(Meronym))
    return f"{kind}s"


def _text(data: np.ndarray) -> str:
    return data.tobytes().decode()


@cache
def load_wordnet() -> WordNet:
    """Return the graph that ships with the package, read on first use.

    >>> len(load_wordnet())
    82115
    """
    return WordNet()
