"""Near, far and farther splits of unknown images, from annotation files and rules.

An image goes to one split or is left out, and each decision is kept with its reason. The steps are
those of FindMeIfYouCan (2025), section 4.1 and appendix B:

1. The base is an annotation file.
2. Images that hold a known category, a category of `remove`, or stand on `remove_ids` are removed,
   but for those of `keep_to_near_ids`.
3. Images that hold a near category or were kept are near; the rest is far, or what `rest` says.
4. A review of every image removes some and moves others.
5. Candidates, chosen one by one, come from a second annotation file with all their objects.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from typing import Literal, NamedTuple, Protocol, runtime_checkable

from incognita.benchmarks.splits.rules import SPLITS, ImageId, Split, SplitRules
from incognita.errors import InvalidDataError, unknown_name
from incognita.formats.coco_records import Annotations, Record


class Decision(NamedTuple):
    """The split of an image, or None where it is left out, and the reason after its id."""

    split: Split | None
    reason: str


@runtime_checkable
class AssignmentRule(Protocol):
    """Decides about one image at a time; another rule may take the place of the shipped one."""

    def decide(self, image_id: ImageId, categories: Collection[str]) -> Decision:
        """Decide about an image that holds objects of these categories."""
        ...


@dataclass(frozen=True)
class CategoryRule:
    """The rule of FindMeIfYouCan, by lists of categories and of image ids.

    In this order: what the review removed is out; what holds a known or overlapping category, or
    was removed by hand, is out unless a list keeps it; then the lists of ids decide, `to_far_ids`
    before the others; then the categories, the closest split first; then `rest`.

    FindMeIfYouCan (2025), section 4.1 and appendix B. Departures from its public
    code: that removes what the review found from the far images only, and moves an image that is
    both in `remove_ids` and in `keep_to_near_ids` to far.

    >>> rules = SplitRules(name="mine", version=1, known=["cat"], near=["fox"], rest="far")
    >>> CategoryRule(rules).decide(7, {"fox", "tree"})
    Decision(split='near', reason="holds the near category 'fox'")
    >>> CategoryRule(rules).decide(8, {"fox", "cat"})
    Decision(split=None, reason="holds the known category 'cat'")
    """

    rules: SplitRules

    def decide(self, image_id: ImageId, categories: Collection[str]) -> Decision:
        if self._is_on("review_remove_ids", image_id):
            return Decision(None, "is on the list review_remove_ids")
        overlap = self._overlap(image_id, categories)
        is_kept = self._is_on("keep_to_near_ids", image_id)
        if overlap is not None and not is_kept:
            return Decision(None, overlap)
        if self._is_on("to_far_ids", image_id):
            return Decision("far", "is on the list to_far_ids")
        if self._is_on("to_near_ids", image_id):
            return Decision("near", "is on the list to_near_ids")
        if is_kept:
            though = "" if overlap is None else f", though it {overlap}"
            return Decision("near", f"is on the list keep_to_near_ids{though}")
        return self._by_category(categories)

    def _overlap(self, image_id: ImageId, categories: Collection[str]) -> str | None:
        """Return why an image would be removed, if it would be."""
        if (name := known_category(self.rules, categories)) is not None:
            return f"holds the known category {name!r}"
        if (name := _first(self.rules.remove, categories)) is not None:
            return f"holds {name!r}, a category that is removed"
        return "is on the list remove_ids" if self._is_on("remove_ids", image_id) else None

    def _by_category(self, categories: Collection[str]) -> Decision:
        for split in SPLITS:
            if (name := _first(getattr(self.rules, split), categories)) is not None:
                return Decision(split, f"holds the {split} category {name!r}")
        what = "a listed category" if categories else "an annotated object"
        if self.rules.rest == "drop":
            return Decision(None, f"does not hold {what}, and the rest is dropped")
        return Decision(self.rules.rest, f"does not hold {what}, and the rest is {self.rules.rest}")

    def _is_on(self, name: str, image_id: ImageId) -> bool:
        return image_id in self._lists[name]

    @cached_property
    def _lists(self) -> dict[str, frozenset[ImageId]]:
        return {name: frozenset(ids) for name, ids in self.rules.by_name().items()}


def known_category(rules: SplitRules, categories: Collection[str]) -> str | None:
    """Return the first known category among these."""
    return _first(rules.known, categories)


def _first(listed: Sequence[str], held: Collection[str]) -> str | None:
    return next((name for name in listed if name in held), None)


Origin = Literal["base", "candidates"]
# of two lists that contradict each other, the first one wins; `base` is the base file
_CONTRARY = (
    ("keep_to_near_ids", "remove_ids"),
    ("to_far_ids", "to_near_ids"),
    ("to_far_ids", "keep_to_near_ids"),
    ("review_remove_ids", "keep_to_near_ids"),
    ("review_remove_ids", "to_near_ids"),
    ("review_remove_ids", "to_far_ids"),
    ("candidates.near", "candidates.far"),
    ("candidates.near", "candidates.farther"),
    ("candidates.far", "candidates.farther"),
    ("base", "candidates.near"),
    ("base", "candidates.far"),
    ("base", "candidates.farther"),
)


class SplitDecision(NamedTuple):
    """The split of an image, if any, and the reason in words that follow its id."""

    image_id: ImageId
    origin: Origin
    split: Split | None
    reason: str


class ListCheck(NamedTuple):
    """What was found of a list of ids; `published` is the length of the published one."""

    name: str
    given: int
    unique: int
    published: int | None
    repeated: tuple[ImageId, ...]
    not_found: tuple[ImageId, ...]


class Conflict(NamedTuple):
    """Ids on two lists that contradict each other."""

    wins: str
    loses: str
    image_ids: tuple[ImageId, ...]


@dataclass(frozen=True, eq=False)
class Splits:
    """The outcome: every image that was looked at is in `decided` once.

    Args:
        rules: By which it was decided.
        base: The images that were assigned.
        candidates: The second file, if there is one.
        decided: Images of the base by their ids, then candidates likewise.
        lists: What was found of each list of ids.
        conflicts: Lists that contradict each other.
    """

    rules: SplitRules
    base: Annotations
    candidates: Annotations | None
    decided: Sequence[SplitDecision] = field(repr=False)
    lists: Sequence[ListCheck] = field(repr=False)
    conflicts: Sequence[Conflict] = field(repr=False)

    @property
    def counts(self) -> dict[Split, int]:
        """How many images each split has that has some or should have some."""
        found = Counter(decision.split for decision in self.decided)
        return {split: found[split] for split in SPLITS if found[split] or self.expected(split)}

    def expected(self, split: Split) -> int | None:
        """How many images a split has when nothing is missing, where the rules say it."""
        return self.rules.expected.get(split)

    @property
    def n_removed(self) -> int:
        """How many images are in no split."""
        return sum(decision.split is None for decision in self.decided)

    def images_of(self, split: Split) -> list[Record]:
        """Return the records of the images of a split, with the folders they lie in."""
        return [self.image(decision) for decision in self.decided if decision.split == split]

    def objects_of(self, split: Split) -> list[Sequence[Record]]:
        """Return all annotations of each image of a split."""
        return [self.objects(decision) for decision in self.decided if decision.split == split]

    def known_images(self) -> list[SplitDecision]:
        """List the images of the base that show known objects only and were not removed by hand."""
        known = set(self.rules.known)
        by_hand = {*self.rules.remove_ids, *self.rules.review_remove_ids}
        return [
            decision
            for decision in self.decided
            if decision.origin == "base"
            and decision.split is None
            and decision.image_id not in by_hand
            and (held := self.base.names_in(decision.image_id))
            and held <= known
        ]

    def image(self, decided: SplitDecision) -> Record:
        """Return the record of an image, with the folder it lies in."""
        record = self._source(decided).images[decided.image_id]
        folder = getattr(self.rules.image_folders, decided.origin)
        name = f"{folder}/{record['file_name']}" if folder else record["file_name"]
        return {**record, "file_name": name}

    def objects(self, decided: SplitDecision) -> Sequence[Record]:
        """Return all annotations of an image."""
        return self._source(decided).objects.get(decided.image_id, ())

    def _source(self, decided: SplitDecision) -> Annotations:
        if decided.origin == "candidates" and self.candidates is not None:
            return self.candidates
        return self.base


def build_splits(
    base: Annotations,
    rules: SplitRules,
    *,
    candidates: Annotations | None = None,
    rule: AssignmentRule | None = None,
) -> Splits:
    """Assign the images of a file to splits, and add candidates of another.

    Args:
        base: The images to assign.
        rules: Lists of categories and ids.
        candidates: The file that the candidates of the rules are taken from.
        rule: Decides about each image of the base; by default a `CategoryRule`.

    Raises:
        UnknownNameError: The rules name a category that the file does not have.
        InvalidDataError: The two files mean different things by a category id.
    """
    _check_names(base, rules)
    if candidates is not None:
        _check_same_categories(base, candidates)
    rule = rule or CategoryRule(rules)
    decided = [
        _decided(image_id, "base", rule.decide(image_id, base.names_in(image_id)))
        for image_id in base.images
    ]
    if candidates is not None:
        decided += _decide_candidates(base, candidates, rules)
    return Splits(
        rules,
        base,
        candidates,
        decided,
        _check_lists(base, candidates, rules),
        _conflicts(base, rules),
    )


def _decided(image_id: ImageId, origin: Origin, decision: Decision) -> SplitDecision:
    return SplitDecision(image_id, origin, decision.split, decision.reason)


def _decide_candidates(
    base: Annotations, candidates: Annotations, rules: SplitRules
) -> list[SplitDecision]:
    """Assign candidates by their lists; those with known objects are refused here, too."""
    split_of: dict[ImageId, Split] = {}
    for split in SPLITS:  # an id on two lists goes to the closer split
        for image_id in getattr(rules.candidates, split):
            split_of.setdefault(image_id, split)
    chosen = [i for i in candidates.images if i in split_of and i not in base.images]
    return [
        _decided(i, "candidates", _candidate(split_of[i], candidates.names_in(i), rules))
        for i in chosen
    ]


def _candidate(split: Split, categories: frozenset[str], rules: SplitRules) -> Decision:
    if (name := known_category(rules, categories)) is not None:
        return Decision(None, f"holds the known category {name!r}")
    return Decision(split, f"is on the list candidates.{split}")


def _check_names(base: Annotations, rules: SplitRules) -> None:
    """Refuse a name that no category has: a known class with a typo would not be removed."""
    there = set(base.category_names.values())
    listed = chain(rules.known, rules.remove, *(getattr(rules, split) for split in SPLITS))
    for name in listed:
        if name not in there and name not in rules.absent:
            raise unknown_name(f"category of {base.source}", name, there)


def _check_same_categories(base: Annotations, candidates: Annotations) -> None:
    for number, name in candidates.category_names.items():
        own = base.category_names.get(number)
        if own != name:
            raise InvalidDataError(
                f"{candidates.source} calls category {number} {name!r}, but {base.source} calls it "
                f"{own!r}; give two files with the same categories."
            )


def _check_lists(
    base: Annotations, candidates: Annotations | None, rules: SplitRules
) -> list[ListCheck]:
    checks = []
    for name, ids in rules.by_name().items():
        if name.startswith("candidates."):
            # a candidate that the base has already is decided there
            there: Mapping[ImageId, Record] = {
                **base.images,
                **({} if candidates is None else candidates.images),
            }
        else:
            there = base.images
        counted = Counter(ids)
        repeated = tuple(image_id for image_id, count in counted.items() if count > 1)
        not_found = tuple(image_id for image_id in counted if image_id not in there)
        published = rules.published_lists.get(name)
        checks.append(ListCheck(name, len(ids), len(counted), published, repeated, not_found))
    return checks


def _conflicts(base: Annotations, rules: SplitRules) -> list[Conflict]:
    lists: dict[str, Collection[ImageId]] = {**rules.by_name(), "base": base.images}
    shared = ((wins, loses, {*lists[wins]} & {*lists[loses]}) for wins, loses in _CONTRARY)
    return [
        Conflict(wins, loses, tuple(sorted(ids, key=str))) for wins, loses, ids in shared if ids
    ]
