"""What every evaluation gives, of a classifier or of a detector."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from incognita.errors import unknown_name
from incognita.results.method_result import MethodResult


@dataclass(frozen=True, eq=False, kw_only=True)
class Findings(ABC):
    """The record of every method on one benchmark and one model.

    Args:
        methods: One record per method, by title; tuned ones beside those with default parameters.
        groups: The groups of unknown sets that are averaged for the ranking, such as near and far.
        skipped: Methods that could not run here, and why.
        failed: Methods that broke off, and why.
        broken: Images that could not be used: set, id, reason.
        notes: What a reader must be told, such as missing data.
        facts: The benchmark, the model, the passes that were made.
    """

    methods: Mapping[str, MethodResult]
    groups: tuple[str, ...]
    skipped: Mapping[str, str] = field(default_factory=dict)
    failed: Mapping[str, str] = field(default_factory=dict)
    broken: tuple[tuple[str, str, str], ...] = ()
    notes: tuple[str, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)

    @abstractmethod
    def ranking(self) -> list[str]:
        """Titles from the best to the worst."""

    @property
    def results(self) -> tuple[MethodResult, ...]:
        """The records, best method first."""
        return tuple(self.methods[title] for title in self.ranking())

    @property
    def is_complete(self) -> bool:
        """Whether every image and every method made it."""
        return not self.broken and not self.failed

    def get(self, method: str) -> MethodResult:
        """Give the record of one method."""
        if method not in self.methods:
            raise unknown_name("method of this evaluation", method, self.methods)
        return self.methods[method]

    def as_json(self) -> dict[str, Any]:
        """Give everything but the scores of single rows for a JSON file."""
        return {
            "ranking": self.ranking(),
            "methods": {title: each.as_json() for title, each in self.methods.items()},
            **self._more_json(),
            "skipped": dict(self.skipped),
            "failed": dict(self.failed),
            "broken": [dict(zip(("set", "image", "reason"), b, strict=True)) for b in self.broken],
            "notes": list(self.notes),
            "facts": dict(self.facts),
        }

    @abstractmethod
    def _more_json(self) -> dict[str, Any]:
        """Give what only this kind of evaluation has."""
