"""One method on one benchmark: its numbers, its cost, and how to repeat it."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from incognita.errors import InvalidDataError, UnknownNameError, unknown_name
from incognita.results.result import Result

FORMAT = "incognita.method-result.2"  # 1: another method could have changed the outputs
TUNED = " (tuned)"  # ends the title of a method whose parameters were searched


class MethodKey(str):
    """The title of a method in a table: its name, and whether its parameters were searched.

    >>> MethodKey("knn", tuned=True), MethodKey("knn") == "knn"
    (MethodKey('knn (tuned)'), True)
    """

    name: str
    tuned: bool

    def __new__(cls, name: str, *, tuned: bool = False) -> "MethodKey":
        key = super().__new__(cls, f"{name}{TUNED}" if tuned else name)
        key.name, key.tuned = name, tuned
        return key

    def __getnewargs_ex__(self) -> tuple[tuple[str], dict[str, bool]]:
        return (self.name,), {"tuned": self.tuned}

    def __repr__(self) -> str:
        return f"MethodKey({str(self)!r})"


@dataclass(frozen=True)
class Cost:
    """The cost of a method.

    Args:
        forwards: Forward passes per image, including the one that all methods share.
        backwards: Backward passes per image.
        fit_seconds: Processor time of `fit`, summed over threads, without the network; on a GPU the
            time until it is done.
        microseconds_per_sample: The same for scoring one row.
        state_bytes: Memory of the fitted state.
    """

    forwards: int
    backwards: int
    fit_seconds: float
    microseconds_per_sample: float
    state_bytes: int


@dataclass(frozen=True)
class GridPoint:
    """One point of a search grid; `reason` says why it has no AUROC."""

    parameters: Mapping[str, Any]
    auroc: float | None
    reason: str | None = None


@dataclass(frozen=True)
class SearchRecord:
    """Every point tried on validation data, the default first.

    `kind` is `default` for a method with its default parameters, `tuned` for the best point of the
    curve.
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
        cost: Its cost.
        identity: What the numbers depend on: model, data, options. Equal identities give equal
            numbers, so a second run skips results that are stored.
        search: The search curve, if parameters were searched.
        provenance: Versions, command and time, for a reader.
        notes: Notes for the reader.
        failed_images: Images that could not be used: set, id, reason.
        thresholds: For a detector: t* on its confidence and tau on the score, each with the policy
            and the set it was chosen on.
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

    def __repr__(self) -> str:
        return f"MethodResult({self.title}, {len(self.results)} results)"

    @property
    def title(self) -> MethodKey:
        """The name for tables; a tuned method says so."""
        return MethodKey(self.method, tuned=self.search is not None and self.search.kind == "tuned")

    def get(self, metric: str, split: str, convention: str | None = None) -> Result:
        """Return one result, by default in the paper's convention."""
        for result in self.results:
            is_same = (result.metric, result.split) == (metric, split)
            if is_same and convention in (None, result.convention):
                return result
        if metric not in {result.metric for result in self.results}:
            raise unknown_name("metric", metric, {result.metric for result in self.results})
        splits = dict.fromkeys(r.split for r in self.results if r.metric == metric)
        raise UnknownNameError(
            f"{metric} has no value on {split!r}. Choose one of: {', '.join(splits)}."
        )

    def as_json(self) -> dict[str, Any]:
        """Return everything for a JSON file."""
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
            "broken": [list(image) for image in self.failed_images],
            "thresholds": dict(self.thresholds),
        }

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> "MethodResult":
        """Read a record back; raise for anything else."""
        if not isinstance(record, Mapping):
            kind = type(record).__name__
            raise InvalidDataError(f"Expected the record of a method, got a value of type {kind}.")
        try:
            if record["format"] != FORMAT:
                raise ValueError(f"its format is {record['format']!r}, not {FORMAT!r}")
            search = record["search"]
            return cls(
                record["method"],
                record["parameters"],
                tuple(map(Result.from_json, record["results"])),
                Cost(**record["cost"]),
                record["identity"],
                search and _search_from(search),
                record["provenance"],
                tuple(record["notes"]),
                tuple((part, image, reason) for part, image, reason in record["broken"]),
                record.get("thresholds", {}),
            )
        except KeyError as error:
            raise InvalidDataError(
                f"Expected the record of a method, got one without {error}."
            ) from error
        except (TypeError, ValueError, AttributeError) as error:
            raise InvalidDataError(f"Expected the record of a method: {error}.") from error


def _search_from(record: Mapping[str, Any]) -> SearchRecord:
    return SearchRecord(record["kind"], tuple(GridPoint(**point) for point in record["curve"]))


def identity_hash(identity: Mapping[str, Any]) -> str:
    """Return eight hexadecimal digits that change with anything in the identity.

    >>> identity_hash({"method": "knn", "seed": 0})
    '7e4b727a'
    """
    text = json.dumps(identity, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:8]
