"""Checks stored results: every file is there and unchanged, every number can be computed again.

Numbers of a classifier follow from the scores beside each result; those of a detector need the
outputs in the store as well. Of a self-aware detector only what follows from other numbers can be
computed again. Nothing is written.
"""

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from incognita.errors import IncognitaError
from incognita.evaluation.classifier_metrics import as_results, measure_methods
from incognita.evaluation.finished_runs import (
    bootstrap_of,
    find_runs,
    find_self_aware,
    has_runs,
    load_objects,
    load_record,
)
from incognita.files import file_hash, load_json
from incognita.metrics.self_awareness import harmonic_mean
from incognita.results.export import WIDTH, Report
from incognita.results.method_result import MethodKey, MethodResult, identity_hash
from incognita.results.result import Result, Split
from incognita.results.score_tables import (
    Replicates,
    ScoredSet,
    Scores,
    check_box_frame,
    common_rows,
    sets_and_scores,
)
from incognita.results.self_aware import SelfAwareReport
from incognita.results.store import load_scores, stated_hash

if TYPE_CHECKING:
    import polars
    from rich.console import RenderableType

OBJECTS_TITLE = "(objects)"  # in the place of a method
RUN_TITLE = "(run)"
_LAST_BITS = (
    "its scores were computed on {}, whose last bits differ from those of a CPU; incognita "
    "reproduce runs it again"
)
_TOLERANCE = 1e-9  # of a number that is computed again, relative


class Status(StrEnum):
    """What is known about a stored result."""

    VERIFIED = "verified"
    WRONG = "wrong"
    NOT_RECOMPUTED = "not recomputed"


class DrawnValues(NamedTuple):
    """AUROC on groups, not on single sets: each value followed by its bootstrap replicates.

    Replicates of two results are paired where `draw` is the same: a hash of images, seed and count.
    """

    draw: str
    auroc: Mapping[Split, Replicates]


class Verification(NamedTuple):
    """One result, whether its numbers hold, and if not why.

    `result` is the record where it can be read, `drawn` what was computed again from scores.
    """

    file: str
    method: str
    status: Status
    reasons: tuple[str, ...] = ()
    result: MethodResult | None = None
    drawn: DrawnValues | None = None


@dataclass(frozen=True, repr=False)
class VerificationReport(Report):
    """The verification of every result of one or several runs."""

    verifications: tuple[Verification, ...]

    def __repr__(self) -> str:
        counts = {s: sum(v.status is s for v in self.verifications) for s in Status}
        return ", ".join(f"{n} {status}" for status, n in counts.items() if n) or "no results"

    @property
    def is_wrong(self) -> bool:
        """Whether some result does not hold."""
        return any(v.status is Status.WRONG for v in self.verifications)

    @property
    def is_complete(self) -> bool:
        """Whether every number was computed again."""
        return all(v.status is Status.VERIFIED for v in self.verifications)

    def as_json(self) -> dict[str, Any]:
        """Return everything for a JSON file."""
        return {"results": self.records()}

    def records(self) -> list[dict[str, Any]]:
        """Return one record per result."""
        return [
            {
                "file": v.file,
                "method": v.method,
                "status": str(v.status),
                "reasons": list(v.reasons),
            }
            for v in self.verifications
        ]

    def headline(self) -> str:
        """Return how many results hold."""
        return repr(self)

    def remarks(self) -> list[tuple[str, str]]:
        """Return what is wrong or could not be computed again."""
        return [
            (str(v.status), f"{v.file}: {reason}")
            for v in self.verifications
            for reason in v.reasons
        ]

    def summary(self) -> str:
        """Return how many results hold, and what is wrong."""
        return "\n".join([repr(self), *(f"{kind}: {what}" for kind, what in self.remarks())])

    def table(self, *, width: int = WIDTH) -> "RenderableType":
        """Return one row per result."""
        from rich import box
        from rich.table import Table
        from rich.text import Text

        del width
        table = Table(box=box.SIMPLE_HEAD, header_style="bold")
        for name in ("result", "method", ""):
            table.add_column(name)
        for v in self.verifications:
            table.add_row(Text(v.file), Text(v.method), Text(str(v.status)))
        return table


def verify_results(path: str | Path, *, store: str | Path | None = None) -> VerificationReport:
    """Verify every result of the runs below a folder.

    Args:
        path: The `--out` folder of runs, or one result.
        store: The folder with outputs, for detectors; by default `outputs` in the folder of a run.
    """
    found: list[Verification] = []
    reports = find_self_aware(Path(path))
    for run in find_runs(Path(path)) if not reports or has_runs(Path(path)) else []:
        try:
            found += verify_run(run, store=store)
        except IncognitaError as error:  # the others are verified all the same
            found.append(Verification(str(run), RUN_TITLE, Status.WRONG, (str(error),)))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            reason = f"it is not the record of a run ({error})"
            found.append(Verification(str(run), RUN_TITLE, Status.WRONG, (reason,)))
    found += [_verify_self_aware(report) for report in reports]
    return VerificationReport(tuple({v.file: v for v in found}.values()))


class _Stored(NamedTuple):
    """A result as it is on disk."""

    path: Path
    result: MethodResult
    frame: "polars.DataFrame"


def verify_run(
    run: Path, *, store: str | Path | None = None, recomputes: bool = True
) -> list[Verification]:
    """Verify the results of one run.

    Args:
        run: Its record, a `.run` file.
        store: As for `verify_results`.
        recomputes: Whether numbers are computed again, or only files are checked.
    """
    record = load_record(run)
    loaded: dict[str, _Stored] = {}
    done: list[Verification] = []
    for title, name in record["files"].items():
        read = _read(run.parent / name, str(title), record["row"])
        if isinstance(read, Verification):
            done.append(read)
        else:
            loaded[str(title)] = read
    if not recomputes:
        done += [_not_recomputed(s, "its numbers were not computed again") for s in loaded.values()]
    elif record["row"] == "image":
        done += _verify_images(loaded, bootstrap_of(record))
    else:
        done += _verify_boxes(loaded, run, record, store)
    return done


def _read(path: Path, title: str, row: str) -> _Stored | Verification:
    """Read a result and its scores, or say which file is missing or was changed."""
    scores = path.with_suffix(".parquet")
    for file in (path, scores):
        if not file.is_file():
            return Verification(str(path), title, Status.WRONG, (f"{file.name} is missing",))
    try:
        document = load_json(path)
        result = MethodResult.from_json(document)
    except IncognitaError as error:
        return Verification(str(path), title, Status.WRONG, (str(error),))
    if stated_hash(document) != file_hash(scores):
        reason = f"{scores.name} is not the file that was written with the result"
        return Verification(str(path), title, Status.WRONG, (reason,))
    if reason := _wrong_identity(path, title, result):
        return Verification(str(path), title, Status.WRONG, (reason,))
    try:
        frame = load_scores(scores)
        if row == "box":
            check_box_frame(frame, result.identity["classes"])
    except IncognitaError as error:
        return Verification(str(path), title, Status.WRONG, (str(error),), result)
    return _Stored(path, result, frame)


def _wrong_identity(path: Path, title: str, result: MethodResult) -> str:
    """Return why a result is not of what it says; its file is named after its identity."""
    identity = result.identity
    if not path.stem.endswith(f"-{identity_hash(identity)}"):
        return "its identity (model, data, options) is not that of its file name"
    is_tuned = identity.get("choice") == "tuned"
    if (
        str(result.title) != title
        or str(MethodKey(str(identity["method"]), tuned=is_tuned)) != title
    ):
        return f"it is of {result.title} by its record, of {identity['method']} by its identity"
    if not is_tuned and dict(result.parameters) != dict(identity["parameters"]):
        return "its parameters are not those of its identity"
    return ""


def _verify_images(
    loaded: Mapping[str, _Stored], bootstrap: Mapping[str, int]
) -> list[Verification]:
    """Measure the scores again: on the images all methods have, or else on those of each."""
    tables: dict[str, tuple[tuple[ScoredSet, ...], Scores]] = {}
    done: list[Verification] = []
    for title, stored in loaded.items():
        try:
            tables[title] = sets_and_scores(stored.frame)
        except IncognitaError as error:
            done.append(_judged(stored, [str(error)]))
    together = _measure(tables, bootstrap) if tables else {}
    for title in tables:
        stored = loaded[title]
        numbers, drawn = together[title]
        problems = _differences(stored.result.results, numbers)
        if problems:
            numbers, drawn = _measure({title: tables[title]}, bootstrap)[title]
            problems = _differences(stored.result.results, numbers)
        done.append(_judged(stored, problems)._replace(drawn=drawn))
    return done


def _measure(
    tables: Mapping[str, Any], bootstrap: Mapping[str, int]
) -> dict[str, tuple[list[Result], DrawnValues]]:
    sets, scores = common_rows(tables)
    measured, accuracy = measure_methods(sets, scores, **bootstrap)
    draw = _draw_hash(sets, bootstrap)
    return {
        title: (
            [*accuracy, *as_results(measured[title], sets)],
            DrawnValues(
                draw,
                {
                    split: values
                    for (metric, split), values in measured[title].items()
                    if metric == "auroc" and split.set is None and split.setting is None
                },
            ),
        )
        for title in tables
    }


def _draw_hash(sets: Iterable[ScoredSet], bootstrap: Mapping[str, int]) -> str:
    """Return a text that is the same where the same replicates of the same images are drawn."""
    images = [[scored.name, scored.group, *scored.image_ids] for scored in sets]
    return sha256(json.dumps([sorted(bootstrap.items()), images]).encode()).hexdigest()[:16]


def _verify_boxes(
    loaded: Mapping[str, _Stored], run: Path, record: Mapping[str, Any], store: str | Path | None
) -> list[Verification]:
    """Score and measure the stored outputs again, if they were scored on a CPU."""
    on_gpu = {title: stored for title, stored in loaded.items() if _device(stored) != "cpu"}
    loaded = {title: stored for title, stored in loaded.items() if title not in on_gpu}
    elsewhere = [_not_recomputed(s, _LAST_BITS.format(_device(s))) for s in on_gpu.values()]
    if not loaded:
        return elsewhere
    return elsewhere + _verify_on_cpu(loaded, run, record, store)


def _device(stored: _Stored) -> str:
    """Return where the scores of a result were computed."""
    return str(stored.result.provenance.get("device", "cpu"))


def _verify_on_cpu(
    loaded: Mapping[str, _Stored], run: Path, record: Mapping[str, Any], store: str | Path | None
) -> list[Verification]:
    from incognita.evaluation.rescore import recompute

    try:
        evaluation = recompute(run, record, [s.result for s in loaded.values()], store=store)
    except IncognitaError as error:
        objects = _verify_objects(run, record, None, str(error))
        return objects + [_not_recomputed(stored, str(error)) for stored in loaded.values()]
    again = {} if evaluation is None else {str(k): r for k, r in evaluation.methods.items()}
    found = None if evaluation is None else evaluation.objects
    done = _verify_objects(run, record, found, "none of its methods was run again")
    for title, stored in loaded.items():
        if title in again:
            assert evaluation is not None
            problems = _differences(stored.result.results, again[title].results)
            problems += _other_thresholds(stored.result, again[title])
            problems += _other_boxes(stored, evaluation.boxes[title])
            done.append(_judged(stored, problems))
            continue
        reason = "the method is not one of incognita, or failed, and was not run again"
        done.append(_not_recomputed(stored, reason))
    return done


def _other_thresholds(stored: MethodResult, again: MethodResult) -> list[str]:
    """Name the thresholds of a detector that are not those that its outputs give."""
    was, is_now = (json.loads(json.dumps(dict(r.thresholds))) for r in (stored, again))
    return [
        f"the threshold {name} is stored as {was.get(name)}, not {is_now.get(name)}"
        for name in was.keys() | is_now.keys()
        if not _is_close(was.get(name), is_now.get(name))
    ]


def _is_close(first: Any, second: Any) -> bool:
    """Compare values of a JSON file, numbers with the tolerance."""
    if isinstance(first, float) and isinstance(second, float):
        return _is_same(first, second)
    if isinstance(first, dict) and isinstance(second, dict):
        return first.keys() == second.keys() and all(
            _is_close(v, second[k]) for k, v in first.items()
        )
    if isinstance(first, list) and isinstance(second, list):
        return len(first) == len(second) and all(map(_is_close, first, second))
    return bool(first == second)


def _other_boxes(stored: _Stored, again: "polars.DataFrame") -> list[str]:
    """Name the columns of the scored boxes that are not those that the outputs give."""
    import polars

    name = stored.path.with_suffix(".parquet").name
    if len(stored.frame) != len(again):
        return [f"{name} has {len(stored.frame)} boxes, not {len(again)}"]
    wrong = []
    for column in stored.frame.columns:
        was, is_now = stored.frame[column], again[column]
        is_number = is_now.dtype == polars.Float64
        if not (_all_close(was, is_now) if is_number else was.equals(is_now)):
            wrong.append(f"{column} of {name} is not what the outputs give")
    return wrong


def _all_close(first: "polars.Series", second: "polars.Series") -> bool:
    ours, theirs = first.to_numpy(), second.to_numpy()
    return bool(np.allclose(ours, theirs, rtol=_TOLERANCE, atol=1e-12, equal_nan=True))


_NEEDS_DETECTOR = (
    "its parts are measured on detections, which are not stored with it: only DAQ, BA and IDQ were "
    "computed again from their parts. Run the benchmark again to compare the others"
)


def _verify_self_aware(path: Path) -> Verification:
    """Compute the numbers of a self-aware detector again that follow from other numbers."""
    title = "(self-aware)"
    try:
        report = SelfAwareReport.load(path)
    except IncognitaError as error:
        return Verification(str(path), title, Status.WRONG, (str(error),))
    if not path.with_name("rules.json").is_file():
        return Verification(str(path), title, Status.WRONG, ("rules.json is missing",))
    problems = _inconsistent(report.results) + _inconsistent(report.before, "before ")
    if problems:
        return Verification(str(path), title, Status.WRONG, tuple(problems))
    return Verification(str(path), title, Status.NOT_RECOMPUTED, (_NEEDS_DETECTOR,))


def _inconsistent(results: Iterable[Result], when: str = "") -> list[str]:
    """Name the harmonic means that are not those of their parts."""
    found = {(r.metric, str(r.split)): r.value for r in results if r.convention == "paper"}
    problems = []
    for (metric, split), value in found.items():
        parts = [
            (1.0 - found[key] if key[0] in ("lrp", "laece") else found[key])
            for key in _parts_of(metric, split)
            if key in found
        ]
        if len(parts) >= 2 and not _is_same(value, harmonic_mean(*parts)):
            again = harmonic_mean(*parts)
            problems.append(f"{when}{metric} of {split} is stored as {value:.6g}, not {again:.6g}")
    return problems


def _parts_of(metric: str, split: str) -> list[tuple[str, str]]:
    quality, accuracy = "in_distribution_quality", "balanced_accuracy"
    return {
        quality: [("lrp", split), ("laece", split)],
        accuracy: [("known_accepted", split), ("unknown_rejected", split)],
        "detection_awareness_quality": [
            (accuracy, "unknown"), (quality, "known"), (quality, "shifted"),
        ],
    }.get(metric, [])  # fmt: skip


def _not_recomputed(stored: _Stored, reason: str) -> Verification:
    result = stored.result
    status = Status.NOT_RECOMPUTED
    return Verification(str(stored.path), str(result.title), status, (reason,), result)


def _verify_objects(
    run: Path, record: Mapping[str, Any], again: "polars.DataFrame | None", why_not: str
) -> list[Verification]:
    """Compare the stored objects of a run with those that its outputs and its truth give."""
    try:
        stored = load_objects(run, record)
    except IncognitaError as error:
        return [Verification(str(run), OBJECTS_TITLE, Status.WRONG, (str(error),))]
    if stored is None:
        return []  # an earlier version wrote the run
    if again is None:
        return [Verification(str(run), OBJECTS_TITLE, Status.NOT_RECOMPUTED, (why_not,))]
    if stored.equals(again):
        return [Verification(str(run), OBJECTS_TITLE, Status.VERIFIED)]
    reason = "the stored objects are not those that the outputs give"
    return [Verification(str(run), OBJECTS_TITLE, Status.WRONG, (reason,))]


def _judged(stored: _Stored, problems: list[str]) -> Verification:
    status = Status.WRONG if problems else Status.VERIFIED
    shown = problems[:3] + ([f"and {len(problems) - 3} more"] if len(problems) > 3 else [])
    result = stored.result
    return Verification(str(stored.path), str(result.title), status, tuple(shown), result)


def _differences(stored: Iterable[Result], again: Iterable[Result]) -> list[str]:
    """Name the numbers that differ from what was computed again, or are not there."""
    expected = {(r.metric, r.convention, str(r.split)): r for r in again}
    found = {(r.metric, r.convention, str(r.split)): r for r in stored}
    problems = [f"{_named(key)} is missing" for key in expected.keys() - found.keys()]
    problems += [f"{_named(key)} cannot be computed" for key in found.keys() - expected.keys()]
    for key in found.keys() & expected.keys():
        for part in ("value", "low", "high"):
            was, is_now = getattr(found[key], part), getattr(expected[key], part)
            if not _is_same(was, is_now):
                what = part if part != "value" else ""
                problems.append(f"{_named(key)} {what} is stored as {was:.6g}, not {is_now:.6g}")
        for part in ("support", "units"):
            was, is_now = getattr(found[key], part), getattr(expected[key], part)
            if was != is_now:
                problems.append(f"{part} of {_named(key)} is stored as {was}, not {is_now}")
    return sorted(" ".join(problem.split()) for problem in problems)


def _named(key: tuple[str, str, str]) -> str:
    metric, convention, split = key
    return f"{metric} ({convention}) of {split}"


def _is_same(first: float, second: float) -> bool:
    if math.isnan(first) or math.isnan(second):
        return math.isnan(first) and math.isnan(second)
    return math.isclose(first, second, rel_tol=_TOLERANCE, abs_tol=1e-12)
