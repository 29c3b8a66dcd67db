"""One number with everything needed to read it: metric, convention, images, interval."""

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from incognita.errors import InvalidDataError
from incognita.metrics.catalog import get_metric
from incognita.metrics.measure import MIN_UNITS, MetricValue, interval_of, replicates_note

FULL_SPECTRUM = "full-spectrum"
ALL_BOXES = "all boxes"  # also those below the confidence threshold t*
SETTINGS = (FULL_SPECTRUM, ALL_BOXES)


class Split(str):
    """The images a number is of, as text: `near`, `near/cats`, `full-spectrum near/cats`.

    A text people read and JSON holds, whose parts code can use without taking it apart.

    Args:
        group: Images of a kind, such as `known`, `near` or `all`.
        set: One data set of the group, or one part of a mixed set; None for the whole group.
        setting: `full-spectrum` where shifted images count as known, `all boxes` where boxes below
            the confidence threshold t* count; None otherwise.

    >>> Split("near", "cats", "full-spectrum")
    Split('full-spectrum near/cats')
    >>> Split.parse("near/cats").group, Split("near") == "near"
    ('near', True)
    """

    group: str
    set: str | None
    setting: str | None

    def __new__(cls, group: str, set: str | None = None, setting: str | None = None) -> "Split":  # noqa: A002 - the field's word
        prefix, suffix = f"{setting} " if setting else "", f"/{set}" if set else ""
        split = super().__new__(cls, f"{prefix}{group}{suffix}")
        split.group, split.set, split.setting = group, set, setting
        return split

    def __getnewargs__(self) -> tuple[str, str | None, str | None]:  # type: ignore[override]
        return self.group, self.set, self.setting

    def __repr__(self) -> str:
        return f"Split({str(self)!r})"

    @classmethod
    def parse(cls, text: str) -> "Split":
        """Read the text of a split, as files hold it and people type it."""
        if isinstance(text, Split):
            return text
        setting = next((s for s in SETTINGS if text.startswith(f"{s} ")), None)
        group, _, name = text.removeprefix(f"{setting} " if setting else "").partition("/")
        return cls(group, name or None, setting)


@dataclass(frozen=True)
class Result:
    """One value of one metric.

    Args:
        metric: Its name in the catalog, which also says whether more is better.
        convention: Whose definition: `paper`, or the public code it reproduces.
        split: The images it is of, a `Split`.
        value: The number; NaN where it is undefined, and then `reason` says why.
        low: Lower bound of the bootstrap interval over images; NaN without one.
        high: Upper bound.
        support: How many images, objects, classes or detections stand behind it.
        parameters: What it depends on: tau, a recall, an IoU.
        reason: Why there is no value.
        units: How many images contribute a row, of the smaller side where two are compared; None
            where that is not counted. Below 10 there is no interval.
    """

    metric: str
    convention: str
    split: str
    value: float
    low: float = math.nan
    high: float = math.nan
    support: Mapping[str, int] = field(default_factory=dict)
    parameters: Mapping[str, Any] = field(default_factory=dict)
    reason: str | None = None
    units: int | None = None

    def __post_init__(self) -> None:
        get_metric(self.metric)  # raises for a name that is not in the catalog
        object.__setattr__(self, "split", Split.parse(self.split))
        if math.isnan(self.value) and self.reason is None:
            raise InvalidDataError(
                f"{self.metric} has neither a value nor a reason. Give one of them."
            )

    @classmethod
    def from_value(
        cls, metric: str, convention: str, *, split: str, value: MetricValue, level: float = 0.95
    ) -> "Result":
        """Build the record of a value, with the interval of its replicates."""
        bounds = interval_of(value, level=level)
        return cls(
            metric=metric,
            convention=convention,
            split=split,
            value=value.value,
            low=bounds.low,
            high=bounds.high,
            support=dict(value.support),
            parameters=dict(value.parameters),
            reason=value.reason,
            units=value.units,
        )

    @property
    def few(self) -> str:
        """How many images contribute, for a table, where they are too few for an interval."""
        is_few = self.units is not None and 0 < self.units < MIN_UNITS
        return f" n={self.units}" if is_few else ""

    def as_json(self) -> dict[str, Any]:
        """Return the record for a JSON file; NaN becomes null."""
        record = asdict(self)
        for name in ("value", "low", "high"):
            record[name] = None if math.isnan(record[name]) else record[name]
        return record | {"direction": get_metric(self.metric).direction.value}

    def as_row(self) -> dict[str, Any]:
        """Return the record for a data frame: no nested values, None where undefined."""
        names = ("metric", "convention", "split", "value", "low", "high", "direction", "reason")
        record = self.as_json() | {"split": str(self.split)}
        support = ", ".join(f"{count} {what}" for what, count in self.support.items())
        return {name: record[name] for name in names} | {"support": support}

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> "Result":
        """Read a record back; raise for a missing or unknown field."""
        given = {name: value for name, value in record.items() if name != "direction"}
        missing = [field.name for field in fields(cls) if field.name not in given]
        try:
            if missing:
                raise ValueError(f"{missing[0]} is missing")
            for name in ("value", "low", "high"):
                given[name] = math.nan if given[name] is None else float(given[name])
            return cls(**given)
        except (KeyError, TypeError, ValueError) as error:
            shown = json.dumps(record)[:200]
            raise InvalidDataError(
                f"Expected the record of a result, got {shown} ({error})."
            ) from error


def interval_notes(results: Iterable[Result], n_resamples: int) -> Iterator[str]:
    """Yield notes on what intervals leave open."""
    if (note := replicates_note(n_resamples)) is not None:
        yield note
    if any(result.few and not math.isnan(result.value) for result in results):
        yield (
            f"n= behind a number: so few images contribute to it. It has no interval, which takes "
            f"{MIN_UNITS}."
        )


@dataclass(frozen=True)
class ConfidenceBin:
    """How good detections of about one confidence really are: their mean precision times IoU.

    Means are over classes; NaN where no detection falls into the bin.
    """

    low: float
    high: float
    confidence: float
    quality: float
    detections: int

    def as_json(self) -> dict[str, Any]:
        """Return the record for a JSON file; NaN becomes null."""
        means = {"confidence": self.confidence, "quality": self.quality}
        record = {name: None if math.isnan(value) else value for name, value in means.items()}
        return {"low": self.low, "high": self.high} | record | {"detections": self.detections}

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> "ConfidenceBin":
        """Read a record back."""
        confidence, quality = _or_nan(record["confidence"]), _or_nan(record["quality"])
        low, high = float(record["low"]), float(record["high"])
        return cls(low, high, confidence, quality, int(record["detections"]))


@dataclass(frozen=True)
class ClassThreshold:
    """The confidence from which detections of a class are worth keeping, and the LRP it gives.

    Both are NaN for a class without objects; the threshold also for one without a true positive.
    LRP as the paper defines it, with detections true from IoU `tau` on.
    """

    class_name: str
    threshold: float
    optimal_lrp: float
    objects: int
    tau: float = 0.1

    def as_json(self) -> dict[str, Any]:
        """Return the record for a JSON file; NaN becomes null."""
        return {
            "class": self.class_name,
            "threshold": None if math.isnan(self.threshold) else self.threshold,
            "optimal_lrp": None if math.isnan(self.optimal_lrp) else self.optimal_lrp,
            "support": {"objects": self.objects},
            "convention": "paper",
            "tau": self.tau,
        }

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> "ClassThreshold":
        """Read a record back."""
        threshold, optimal_lrp = _or_nan(record["threshold"]), _or_nan(record["optimal_lrp"])
        objects = int(record["support"]["objects"])
        return cls(str(record["class"]), threshold, optimal_lrp, objects, float(record["tau"]))


def _or_nan(value: float | None) -> float:
    return math.nan if value is None else float(value)
