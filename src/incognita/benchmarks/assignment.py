"""Which split an image belongs to, by what it holds and by lists that people made."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Protocol, runtime_checkable

from incognita.benchmarks.splits.rules import SPLITS, ImageId, Split, SplitRules


class Decision(NamedTuple):
    """Where an image goes, or None where it is left out, and why in words that follow its id."""

    split: Split | None
    reason: str


@runtime_checkable
class AssignmentRule(Protocol):
    """Decides about one image at a time; another rule may take the place of the shipped one."""

    def decide(self, image_id: ImageId, categories: Collection[str]) -> Decision:
        """Say where an image goes that holds objects of these categories."""
        ...


@dataclass(frozen=True)
class CategoryRule:
    """The rule of FindMeIfYouCan, by lists of categories and of image ids.

    In this order: what the review removed is out; what holds a known or overlapping category, or
    was removed by hand, is out unless somebody kept it; then the lists of ids decide, `to_far_ids`
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
        """Say what would remove an image."""
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
    """Give the first known category among these."""
    return _first(rules.known, categories)


def _first(listed: Sequence[str], held: Collection[str]) -> str | None:
    return next((name for name in listed if name in held), None)
