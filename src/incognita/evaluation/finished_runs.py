"""A finished run on disk, so that it can be shown without its model, its images or a network."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars

from incognita.errors import InvalidDataError, MissingDataError
from incognita.evaluation.classifier_metrics import measure_methods
from incognita.files import file_hash, load_json, replacing
from incognita.formats.recorded_outputs import Arrays, save_arrays
from incognita.results.evaluation import Evaluation
from incognita.results.method_result import MethodResult, identity_hash
from incognita.results.result import Split
from incognita.results.score_tables import check_box_frame, common_rows, sets_and_scores
from incognita.results.store import ResultStore, load_scores, stated_hash

FORMAT = "incognita.run.1"
SUFFIX = ".run"  # JSON, under a name that no result of a method has
OBJECTS = ".objects"  # Parquet: the annotated objects of a run of a detector
SELF_AWARE = "report.json"  # of a self-aware detector, in the folder of its run
MAX_REPLICATES = 100_000  # more would fill the memory
_OF_THE_METHOD = ("method", "choice", "parameters", "code")


def save_run(
    store: ResultStore,
    evaluation: Evaluation,
    *,
    seed: int,
    n_resamples: int,
    scoring: tuple[dict[str, Any], Arrays] | None = None,
) -> Path:
    """Save which results a run shows; a later run with the same identity adds its methods.

    `scoring` is what `rescore` needs to score further methods: a JSON object and arrays.
    """
    identity = next(iter(evaluation.methods.values())).identity
    shared = {key: value for key, value in identity.items() if key not in _OF_THE_METHOD}
    path = store.folder(identity) / f"{identity_hash(shared)}{SUFFIX}"
    files = {title: store.path(r.identity).name for title, r in evaluation.methods.items()}
    record = {
        "format": FORMAT,
        "row": evaluation.row,
        "files": files,
        "families": dict(evaluation.families),
        "groups": list(evaluation.groups),
        "mixed": list(evaluation.mixed),
        "skipped": dict(evaluation.skipped),
        "failed": dict(evaluation.failed),
        "failed_images": [list(image) for image in evaluation.failed_images],
        "notes": list(evaluation.notes),
        "metadata": dict(evaluation.metadata),
        "bootstrap": {"seed": seed, "n_resamples": n_resamples},
        "scoring": None if scoring is None else scoring[0],
        "objects_sha256": _save_objects(path, evaluation.objects),
    }
    if scoring is not None:
        save_arrays(path.with_suffix(".npz"), scoring[1])
    if path.is_file():
        record = _with_earlier(record, load_record(path))
    with replacing(path) as unfinished:
        unfinished.write_text(json.dumps(record, indent=1, default=str) + "\n", encoding="utf-8")
    return path


def _save_objects(run: Path, objects: polars.DataFrame | None) -> str | None:
    """Save the annotated objects of a run; return the hash of the file, or None without them."""
    if objects is None:
        return None
    path = run.with_suffix(OBJECTS)
    with replacing(path) as unfinished:
        objects.write_parquet(unfinished)
    return file_hash(path)


def load_objects(run: Path, record: Mapping[str, Any]) -> polars.DataFrame | None:
    """Load the annotated objects of a run; None for a classifier, or where none were stored."""
    if record.get("objects_sha256") is None:
        return None
    path = run.with_suffix(OBJECTS)
    if not path.is_file():
        raise MissingDataError(f"There is no file {path} with the objects of {run.name}.")
    if file_hash(path) != record["objects_sha256"]:
        raise InvalidDataError(f"{path} is not the file that was written with {run.name}.")
    return load_scores(path)


def _with_earlier(record: dict[str, Any], before: dict[str, Any]) -> dict[str, Any]:
    joined = {key: before[key] | record[key] for key in ("files", "families")}
    notes = list(dict.fromkeys([*before["notes"], *record["notes"]]))
    skipped = {k: v for k, v in record["skipped"].items() if k not in joined["files"]}
    failed = before["failed"] | record["failed"]
    failed = {k: v for k, v in failed.items() if k not in joined["files"]}
    metadata = dict(record["metadata"])
    for key in ("pictures", "definition_hash"):  # unknown where stored outputs are scored
        if metadata.get(key) is None and key in before["metadata"]:
            metadata[key] = before["metadata"][key]
    if record["objects_sha256"] is None:  # every method was stored: nothing was detected again
        record = record | {"objects_sha256": before.get("objects_sha256")}
    changes = {"notes": notes, "skipped": skipped, "failed": failed, "metadata": metadata}
    return record | joined | changes


def has_runs(path: Path) -> bool:
    """Whether a path is, or holds, results of methods."""
    if path.is_file():
        return path.name != SELF_AWARE
    return next(path.rglob(f"*{SUFFIX}"), None) is not None


def find_self_aware(path: Path) -> list[Path]:
    """Return the reports of self-aware detectors at a path or below it, the newest first."""
    if path.is_file():
        return [path] if path.name == SELF_AWARE else []
    found = [p for p in path.rglob(SELF_AWARE) if p.with_name("study").is_dir()]
    return sorted(found, key=lambda report: report.stat().st_mtime, reverse=True)


def find_runs(path: Path) -> list[Path]:
    """Return the records of runs below a folder, newest first; or the one a file belongs to."""
    if path.is_file():
        runs = [path] if path.suffix == SUFFIX else list(path.parent.glob(f"*{SUFFIX}"))
        runs = [
            run for run in runs if run == path or path.name in load_record(run)["files"].values()
        ]
    else:
        runs = list(path.rglob(f"*{SUFFIX}"))
    if not runs:
        raise MissingDataError(
            f"There is no finished run at {path}. Name the --out folder of a run, or one of its "
            f"results."
        )
    return sorted(runs, key=lambda run: run.stat().st_mtime, reverse=True)


def load_run(path: Path) -> Evaluation:
    """Load a finished run; comparisons of methods are drawn again from the stored scores."""
    record = load_record(path)
    try:
        found = {title: load_result(path, record, title) for title in record["files"]}
        evaluation = Evaluation(
            row=record["row"],
            methods={result.title: result for result, _ in found.values()},
            groups=tuple(map(Split.parse, record["groups"])),
            families=record["families"],
            mixed=tuple(record["mixed"]),
            skipped=record["skipped"],
            failed=record["failed"],
            failed_images=tuple((a, b, c) for a, b, c in record["failed_images"]),
            notes=tuple(record["notes"]),
            metadata=record["metadata"],
            **_rows(found, path, record),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        if isinstance(error, InvalidDataError):
            raise
        raise InvalidDataError(f"{path} is not the record of a run ({error}).") from error
    return evaluation


def load_record(path: Path) -> dict[str, Any]:
    """Load the record of a run as it is."""
    record = load_json(path)
    if not isinstance(record, dict) or record.get("format") != FORMAT:
        raise InvalidDataError(f"Expected the record of a run, {FORMAT}, got {path}.")
    return record


def bootstrap_of(record: Mapping[str, Any]) -> dict[str, int]:
    """Return seed and number of replicates; more than a run may ask for are refused."""
    stated = {name: record["bootstrap"][name] for name in ("seed", "n_resamples")}
    are_counts = all(type(n) is int and n >= 0 for n in stated.values())
    if not are_counts or stated["n_resamples"] > MAX_REPLICATES:
        raise InvalidDataError(
            f"Expected a seed and at most {MAX_REPLICATES:,} replicates, got {stated}."
        )
    return stated


def load_result(
    run: Path, record: Mapping[str, Any], title: str
) -> tuple[MethodResult, polars.DataFrame]:
    """Load a result that a run names, and its scores, unless they were changed."""
    path = run.parent / record["files"][title]
    scores = path.with_suffix(".parquet")
    if not scores.is_file():
        raise MissingDataError(f"There is no file {scores} with the scores of {path.name}.")
    document = load_json(path)
    result = MethodResult.from_json(document)
    if result.title != title:
        raise InvalidDataError(
            f"Expected the result of {title} in {path}, got that of {result.title}. Run the "
            f"benchmark again."
        )
    if stated_hash(document) not in (None, file_hash(scores)):
        raise InvalidDataError(
            f"{scores} is not the file that was written with {path.name}. Run the benchmark again."
        )
    frame = load_scores(scores)
    if record["row"] == "box":
        check_box_frame(frame, result.identity["classes"])
    return result, frame


def _rows(
    found: dict[str, tuple[MethodResult, polars.DataFrame]], run: Path, record: dict[str, Any]
) -> dict[str, Any]:
    """Return the images or the boxes behind the numbers."""
    if record["row"] == "image":
        return _images(found, record)
    boxes = {str(result.title): frame for result, frame in found.values()}
    return {"boxes": boxes, "objects": load_objects(run, record)}


def _images(
    found: dict[str, tuple[MethodResult, polars.DataFrame]], record: dict[str, Any]
) -> dict[str, Any]:
    """Measure the scores of all methods again, on the images that every method has."""
    tables = {title: sets_and_scores(frame) for title, (_, frame) in found.items()}
    sets, scores = common_rows(tables)
    groups = {scored.group for scored in sets if len(scored)}
    if missing := [name for name in record["groups"] if Split.parse(name).group not in groups]:
        raise InvalidDataError(
            f"Expected images of {', '.join(missing)} that every method has scored, got none. Run "
            f"the benchmark again."
        )
    measured, _ = measure_methods(sets, scores, **bootstrap_of(record))
    return {"sets": sets, "scores": scores, "measured": measured}
