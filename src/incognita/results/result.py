"""One number with everything needed to read it: what, by which convention, on what, how sure."""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

import numpy as np

from incognita.errors import InvalidDataError
from incognita.metrics.catalog import get_metric
from incognita.metrics.intervals import interval
from incognita.metrics.measure import MetricValue


@dataclass(frozen=True)
class Result:
    """One value of one metric.

    Args:
        metric: Its name in the catalog, which also says whether more is better.
        convention: Whose definition: `paper`, or the public code it reproduces.
        split: Which images.
        value: The number; NaN where it is undefined, and then `reason` says why.
        low: Lower bound of the bootstrap interval over images; NaN without one.
        high: Upper bound.
        support: How many images, objects, classes or detections stand behind it.
        parameters: What it depends on: tau, a recall, an IoU.
        reason: Why there is no value.
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

    def __post_init__(self) -> None:
        get_metric(self.metric)  # refuses a name that is not in the catalog
        if math.isnan(self.value) and self.reason is None:
            raise InvalidDataError(f"{self.metric} has no value and no reason; give one of them.")

    @classmethod
    def from_measure(
        cls, metric: str, convention: str, *, split: str, measure: MetricValue, level: float = 0.95
    ) -> "Result":
        """Make the record of a measure, with the interval of its replicates."""
        bounds = interval(np.asarray(measure.values[1:]), level=level)
        return cls(
            metric=metric,
            convention=convention,
            split=split,
            value=measure.value,
            low=bounds.low,
            high=bounds.high,
            support=dict(measure.support),
            parameters=dict(measure.parameters),
            reason=measure.reason,
        )

    def as_json(self) -> dict[str, Any]:
        """Give the record for a JSON file; NaN, which JSON does not know, becomes null."""
        record = asdict(self)
        for name in ("value", "low", "high"):
            record[name] = None if math.isnan(record[name]) else record[name]
        return record | {"direction": get_metric(self.metric).direction.value}

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> "Result":
        """Read a record back; a field that is missing or unknown is refused."""
        given = {name: value for name, value in record.items() if name != "direction"}
        missing = [each.name for each in fields(cls) if each.name not in given]
        try:
            if missing:
                raise ValueError(f"it has no {missing[0]}")
            for name in ("value", "low", "high"):
                given[name] = math.nan if given[name] is None else float(given[name])
            return cls(**given)
        except (KeyError, TypeError, ValueError) as error:
            shown = json.dumps(record)[:200]
            raise InvalidDataError(
                f"This is not the record of a result: {shown} ({error})."
            ) from error


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
        """Give the record for a JSON file; NaN becomes null."""
        means = {"confidence": self.confidence, "quality": self.quality}
        record = {name: None if math.isnan(value) else value for name, value in means.items()}
        return {"low": self.low, "high": self.high} | record | {"detections": self.detections}


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
        """Give the record for a JSON file; NaN becomes null."""
        return {
            "class": self.class_name,
            "threshold": None if math.isnan(self.threshold) else self.threshold,
            "optimal_lrp": None if math.isnan(self.optimal_lrp) else self.optimal_lrp,
            "support": {"objects": self.objects},
            "convention": "paper",
            "tau": self.tau,
        }
