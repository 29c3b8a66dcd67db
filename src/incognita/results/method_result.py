"""What one method did on one benchmark: its numbers, its price, and how to repeat it."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from incognita.errors import InvalidDataError, UnknownNameError, unknown_name
from incognita.results.result import Result

FORMAT = "incognita.method-result.1"
TUNED = " (tuned)"  # after the name of a method whose parameters were searched


@dataclass(frozen=True)
class Cost:
    """The price of a method.

    Args:
        forwards: Forward passes per image, the one that all methods share included.
        backwards: Backward passes per image.
        fit_seconds: Processor time, all threads together, of learning from known outputs that
            are there already.
        microseconds_per_sample: Processor time of scoring one row, the network not included.
        state_bytes: What a fitted method holds.
    """

    forwards: int
    backwards: int
    fit_seconds: float
    microseconds_per_sample: float
    state_bytes: int


@dataclass(frozen=True)
class GridPoint:
    """One choice of parameters in a search; without a value where it cannot be, and why."""

    parameters: Mapping[str, Any]
    auroc: float | None
    reason: str | None = None


@dataclass(frozen=True)
class SearchRecord:
    """Every choice that was tried on validation data, the default first.

    `kind` is `default` for the numbers of the parameters as published, `tuned` for those of the
    best point of the curve.
    """

    kind: str
    curve: tuple[GridPoint, ...]


@dataclass(frozen=True)
class MethodResult:
    """The numbers of one method with one choice of parameters.

    Args:
        method: Its registered name.
        parameters: Their values, whether given, default or tuned.
        results: One record per metric and split.
        cost: Its price.
        identity: What the numbers are of: model, data, options. Equal identities give equal
            numbers, so that a second run may skip what is there.
        search: The curve, where parameters were searched.
        provenance: Versions, command and time, for a reader.
        notes: What a reader must be told.
        failed_images: Images that could not be used: set, id, reason.
        thresholds: Of a detector: t* on its confidence and tau on the score, each with how and on
            what it was chosen.
    """

    method: str
    parameters: Mapping[str, Any]
    results: tuple[Result, ...]
    cost: Cost
    identity: Mapping[str, Any]
    search: SearchRecord | None = None
    provenance: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    failed_images: tuple[tuple[str, str, str], ...] = ()
    thresholds: Mapping[str, Any] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """The name for tables: a tuned method says so."""
        return (
            f"{self.method}{TUNED}" if self.search and self.search.kind == "tuned" else self.method
        )

    def get(self, metric: str, split: str, convention: str | None = None) -> Result:
        """Give one result; by default in the convention that stands first, the paper's."""
        for result in self.results:
            is_same = (result.metric, result.split) == (metric, split)
            if is_same and convention in (None, result.convention):
                return result
        if metric not in {result.metric for result in self.results}:
            raise unknown_name("metric", metric, {result.metric for result in self.results})
        splits = dict.fromkeys(r.split for r in self.results if r.metric == metric)
        raise UnknownNameError(f"{metric} is not given on {split!r}; choose: {', '.join(splits)}.")

    def as_json(self) -> dict[str, Any]:
        """Give everything for a JSON file."""
        return {
            "format": FORMAT,
            "method": self.method,
            "parameters": dict(self.parameters),
            "results": [result.as_json() for result in self.results],
            "cost": asdict(self.cost),
            "identity": dict(self.identity),
            "search": None if self.search is None else asdict(self.search),
            "provenance": dict(self.provenance),
            "notes": list(self.notes),
            "broken": [list(each) for each in self.failed_images],
            "thresholds": dict(self.thresholds),
        }

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> "MethodResult":
        """Read a record back; anything that is not one is refused."""
        try:
            if record["format"] != FORMAT:
                raise ValueError(f"its format is {record['format']!r}, not {FORMAT!r}")
            search = record["search"]
            return cls(
                record["method"],
                record["parameters"],
                tuple(Result.from_json(each) for each in record["results"]),
                Cost(**record["cost"]),
                record["identity"],
                search and _search_from(search),
                record["provenance"],
                tuple(record["notes"]),
                tuple((part, image, reason) for part, image, reason in record["broken"]),
                record.get("thresholds", {}),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidDataError(f"This is not the record of a method: {error}.") from error


def _search_from(record: Mapping[str, Any]) -> SearchRecord:
    return SearchRecord(record["kind"], tuple(GridPoint(**point) for point in record["curve"]))


def identity_hash(identity: Mapping[str, Any]) -> str:
    """Give eight letters that differ when anything in the identity does.

    >>> identity_hash({"method": "knn", "seed": 0})
    '7e4b727a'
    """
    text = json.dumps(identity, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:8]
