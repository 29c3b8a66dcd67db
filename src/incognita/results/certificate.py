"""The certificate of a detector or classifier: every metric, convention and split, and claims."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from incognita.errors import (
    IncognitaError,
    InvalidDataError,
    UnknownNameError,
    count,
    unknown_name,
)
from incognita.metrics.catalog import get_metric
from incognita.results.claims import CheckedClaim
from incognita.results.export import WIDTH, Report
from incognita.results.result import ClassThreshold, ConfidenceBin, Result

if TYPE_CHECKING:
    from rich.console import RenderableType

# what a summary shows: closed set, open set, calibration; of scores ranking and operating point
MAIN_METRICS = (
    "ap50", "unknown_recall", "unknown_precision", "open_set_error", "images_without_detection",
    "laece", "auroc", "fpr_at_95_unknown_recall", "coverage", "selective_risk", "false_alarm_rate",
    "missed_unknown_rate",
)  # fmt: skip


@dataclass(frozen=True, repr=False)
class Certificate(Report):
    """Results of a detector or classifier, its thresholds and reliability, notes and claims.

    Args:
        results: One record per metric, convention and split.
        thresholds: The LRP-optimal confidence of each known class, on all images.
        reliability: Quality of the detections by confidence, on all images; empty if confidences
            are not probabilities.
        notes: What was left out or looks wrong.
        inputs: What it was computed from: files, hashes, options.
        claims: What criteria demand, each with the result it rests on and a verdict.
    """

    results: tuple[Result, ...]
    thresholds: tuple[ClassThreshold, ...]
    reliability: tuple[ConfidenceBin, ...] = ()
    notes: tuple[str, ...] = ()
    inputs: Mapping[str, Any] = field(default_factory=dict)
    claims: tuple[CheckedClaim, ...] = ()

    def __repr__(self) -> str:
        n_metrics = len({result.metric for result in self.results})
        n_results = count(len(self.results), "result")
        return f"Certificate({count(n_metrics, 'metric')}, {n_results})"

    def get(self, metric: str, convention: str = "paper", *, split: str = "all") -> Result:
        """Return one result."""
        for result in self.results:
            if (result.metric, result.convention, result.split) == (metric, convention, split):
                return result
        offered = [result for result in self.results if result.metric == metric]
        if not offered:
            raise unknown_name("metric", metric, {result.metric for result in self.results})
        raise UnknownNameError(
            f"{metric} has no value in the convention {convention!r} on the split {split!r}. "
            f"Conventions: {', '.join(sorted({r.convention for r in offered}))}; splits: "
            f"{', '.join(dict.fromkeys(r.split for r in offered))}."
        )

    def as_json(self) -> dict[str, Any]:
        """Return everything for a JSON file."""
        return {
            "claims": [claim.as_json() for claim in self.claims],
            "results": [result.as_json() for result in self.results],
            "thresholds": [threshold.as_json() for threshold in self.thresholds],
            "reliability": [confidence_bin.as_json() for confidence_bin in self.reliability],
            "notes": list(self.notes),
            "inputs": dict(self.inputs),
        }

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> "Certificate":
        """Read the object of a certificate's JSON file back; raise for anything else."""
        try:
            return cls(
                tuple(map(Result.from_json, record["results"])),
                tuple(map(ClassThreshold.from_json, record["thresholds"])),
                tuple(map(ConfidenceBin.from_json, record["reliability"])),
                tuple(map(str, record["notes"])),
                dict(record["inputs"]),
                tuple(map(CheckedClaim.from_json, record["claims"])),
            )
        except (KeyError, TypeError, ValueError) as error:
            if isinstance(error, IncognitaError):
                raise
            raise InvalidDataError(f"Expected the record of a certificate: {error}.") from error

    def records(self) -> list[dict[str, Any]]:
        """Return one record per metric, convention and split."""
        return [result.as_row() for result in self.results]

    def table(self, *, width: int = WIDTH) -> "RenderableType":
        """Return the table that `rich` prints."""
        from rich.console import Group

        from incognita.results.tables.certificate import certificate_table, claim_table

        table = certificate_table(self.results, width=width)
        return Group(claim_table(self.claims, width=width), table) if self.claims else table

    def headline(self) -> str:
        """Return one line: how many metrics, of which files, and how many claims hold."""
        given = [self.inputs.get(name) for name in ("truth", "detections", "scores")]
        files = [file["path"] for file in given if file]
        line = repr(self) + (f" of {' and '.join(files)}" if files else "")
        if not self.claims:
            return line
        n_met = sum(claim.is_met for claim in self.claims)
        return f"{line}; claims passed: {n_met} of {len(self.claims)}"

    @property
    def meets_criteria(self) -> bool:
        """Whether every claim passes; true without any claim."""
        return all(claim.is_met for claim in self.claims)

    def remarks(self) -> list[tuple[str, str]]:
        """Return the notes."""
        return [("note", note) for note in self.notes]

    def summary(self) -> str:
        """Return the claims, the main metrics on all images, one per line, and the notes."""
        everywhere = [result for result in self.results if result.split == "all"]
        found = {result.metric: result for result in reversed(everywhere)}
        lines = [_line(found[metric]) for metric in MAIN_METRICS if metric in found]
        claims = [f"{c.verdict.value}: {c.claim} ({c.reason})" for c in self.claims]
        notes = [f"note: {note}" for note in self.notes]
        return "\n".join([self.headline(), *claims, *lines, *notes])


def _line(result: Result) -> str:
    info = get_metric(result.metric)
    if math.isnan(result.value):
        shown = f"undefined ({result.reason})"
    elif info.is_count:
        shown = f"{result.value:.0f}"
    else:
        shown = f"{100 * result.value:.1f} %"
    return f"{info.title} {info.direction.arrow}  {shown}  ({result.convention}: {info.meaning})"
