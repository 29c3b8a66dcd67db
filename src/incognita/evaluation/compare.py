"""Compares stored results: paired differences of every metric, and images they disagree on.

Two results are paired where they are of the same images: then both are measured on the same
bootstrap replicates, which cancels what the images share. Otherwise the replicates are drawn
independently, and the report says so.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import polars

from incognita.decisions.unknown_thresholds import KnownQuantile
from incognita.errors import IncognitaError, InvalidDataError, count
from incognita.evaluation.classifier_metrics import accuracy_values, draw, measure_methods
from incognita.evaluation.finished_runs import find_runs, load_record, load_result, load_run
from incognita.files import load_json
from incognita.metrics.catalog import Direction, get_metric
from incognita.metrics.measure import MIN_UNITS, Difference, paired_difference
from incognita.results.analysis import BOTH_FAMILIES
from incognita.results.export import WIDTH, Report
from incognita.results.method_result import MethodResult
from incognita.results.result import Split
from incognita.results.score_tables import ScoredSet, Scores, known_sets, sets_and_scores

if TYPE_CHECKING:
    from rich.console import RenderableType

Key = tuple[str, str, Split]  # metric, convention, split
Values = Mapping[Key, np.ndarray]  # a value, then its replicates
ScoredTable = tuple[Sequence[ScoredSet], Scores]
N_IMAGES = 20  # images that are listed
_OTHER_DRAW = 1_000_003  # added to the seed of a draw that is independent of the first
_CALLED_UNKNOWN = {
    "image": "an image is called unknown above the score that keeps 95 % of the known test images, "
    "of each result; images are ranked by the difference of their places among these scores",
    "box": "an image is called unknown where a box above t* is, at tau of each result; images are "
    "ranked by the difference in the number of such boxes, and boxes themselves are not paired",
}
_SHOWN = ("accuracy", "ap", "fpr_at_95_unknown_recall", *BOTH_FAMILIES)


class ComparedNumber(NamedTuple):
    """One number of two results; `difference` is the second minus the first."""

    metric: str
    convention: str
    split: str
    first: float
    second: float
    difference: Difference

    @property
    def verdict(self) -> str:
        """Which result is better, or that the data do not tell; empty without an interval."""
        low, high = self.difference.low, self.difference.high
        if math.isnan(low):
            return ""
        if low <= 0 <= high:
            return "="
        is_up = get_metric(self.metric).direction is Direction.HIGHER
        return "second" if (low > 0) == is_up else "first"


class SetDisagreement(NamedTuple):
    """How many images of a set one result calls unknown and the other known."""

    set: str
    group: str
    images: int
    only_first: int
    only_second: int


class DisagreedImage(NamedTuple):
    """An image that one result calls unknown and the other known.

    Of a classifier, `first` and `second` are the shares of known test images with a score at most
    as high; of a detector, the numbers of boxes that are called unknown.
    """

    set: str
    group: str
    image_id: str
    first: float
    second: float
    called_unknown_by: str


@dataclass(frozen=True)
class Comparison:
    """Two results, number by number and image by image.

    Args:
        first: What the first result is of.
        second: What the second is of.
        is_paired: Whether both were measured on the same replicates of the same images.
        numbers: Every number that both have.
        sets: How often they disagree, set by set; empty unless the images are the same.
        images: The images on which they disagree most.
        notes: What qualifies the comparison.
    """

    first: str
    second: str
    is_paired: bool
    numbers: tuple[ComparedNumber, ...]
    sets: tuple[SetDisagreement, ...] = ()
    images: tuple[DisagreedImage, ...] = ()
    notes: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Return everything for a JSON file."""
        return {
            "first": self.first,
            "second": self.second,
            "paired": self.is_paired,
            "numbers": [_number_record(number) for number in self.numbers],
            "disagreement": [row._asdict() for row in self.sets],
            "images": [row._asdict() for row in self.images],
            "notes": list(self.notes),
        }

    def get(self, metric: str, split: str, convention: str = "paper") -> ComparedNumber:
        """Return one compared number."""
        for number in self.numbers:
            if (number.metric, number.split, number.convention) == (metric, split, convention):
                return number
        raise InvalidDataError(
            f"{metric} ({convention}) on {split!r} is not in both results. Choose another."
        )


@dataclass(frozen=True, repr=False)
class ComparisonReport(Report):
    """Comparisons of any number of results, each with the first of its kind."""

    comparisons: tuple[Comparison, ...]
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        n_paired = sum(c.is_paired for c in self.comparisons)
        return f"{count(len(self.comparisons), 'comparison')}, {n_paired} paired"

    @property
    def is_complete(self) -> bool:
        """Whether every comparison is paired and has intervals."""
        return all(
            c.is_paired and any(not math.isnan(n.difference.low) for n in c.numbers)
            for c in self.comparisons
        )

    def as_json(self) -> dict[str, Any]:
        """Return everything for a JSON file."""
        return {"comparisons": [c.as_json() for c in self.comparisons], "notes": list(self.notes)}

    def records(self) -> list[dict[str, Any]]:
        """Return one record per compared number."""
        return [
            {"first_result": c.first, "second_result": c.second, **_number_record(number)}
            for c in self.comparisons
            for number in c.numbers
        ]

    def headline(self) -> str:
        """Return how many results are compared."""
        return repr(self)

    def remarks(self) -> list[tuple[str, str]]:
        """Return what qualifies the comparisons."""
        own = [(f"{c.second}", note) for c in self.comparisons for note in c.notes]
        return [*(("note", note) for note in self.notes), *own]

    def summary(self) -> str:
        """Return one line per comparison."""
        return "\n".join([repr(self), *(_in_words(c) for c in self.comparisons)])

    def table(self, *, width: int = WIDTH) -> "RenderableType":
        """Return differences on whole groups, then the images that results disagree on."""
        from rich.console import Group

        del width  # nine narrow columns
        return Group(*(part for c in self.comparisons for part in _tables(c)))


def _number_record(number: ComparedNumber) -> dict[str, Any]:
    difference = {
        name: None if math.isnan(value) else value
        for name, value in zip(
            ("difference", "low", "high", "share_above"), number.difference, strict=True
        )
    }
    return {
        "metric": number.metric,
        "convention": number.convention,
        "split": str(number.split),
        "first": None if math.isnan(number.first) else number.first,
        "second": None if math.isnan(number.second) else number.second,
        **difference,
        "better": number.verdict,
    }


def _in_words(comparison: Comparison) -> str:
    shown = [n for n in comparison.numbers if n.metric == "auroc" and "/" not in n.split]
    parts = [f"AUROC {100 * n.difference.value:+.1f} on {n.split}" for n in shown]
    return f"{comparison.second} against {comparison.first}: {', '.join(parts) or 'no AUROC'}"


def _tables(comparison: Comparison) -> "list[RenderableType]":
    from rich import box
    from rich.table import Table
    from rich.text import Text

    how = "paired" if comparison.is_paired else "unpaired"
    head = Text(f"\n{comparison.second} (second) against {comparison.first} (first), {how}", "bold")
    numbers = Table(box=box.SIMPLE_HEAD, header_style="")
    for name in ("metric", "images", "first", "second", "second - first", "better"):
        numbers.add_column(name, justify="left" if name in ("metric", "images") else "right")
    for number in filter(_is_shown, comparison.numbers):
        numbers.add_row(*_cells(number))
    caption = Text(
        "percent; second - first with its 95 % bootstrap interval over images; better: the result "
        "that the interval favors, = neither",
        "table.caption",
    )
    return [head, numbers, caption, *_image_tables(comparison)]


def _is_shown(number: ComparedNumber) -> bool:
    """Whether a number is in the printed table: of groups, as papers define it."""
    split = Split.parse(number.split)
    is_whole = split.set in (None, "all") and split.setting is None
    return number.metric in _SHOWN and is_whole and number.convention in ("paper", "coco")


def _cells(number: ComparedNumber) -> list[str]:
    info, (value, low, high, _) = get_metric(number.metric), number.difference
    scale, digits = (1, 0) if info.is_count else (100, 1)

    def shown(x: float, sign: str = "") -> str:
        return "-" if math.isnan(x) else f"{scale * x:{sign}.{digits}f}"

    bounds = "" if math.isnan(low) else f" [{shown(low, '+')}, {shown(high, '+')}]"
    return [
        f"{info.title} {info.direction.arrow}",
        str(number.split),
        shown(number.first),
        shown(number.second),
        shown(value, "+") + bounds,
        number.verdict,
    ]


def _image_tables(comparison: Comparison) -> "list[RenderableType]":
    from rich import box
    from rich.table import Table
    from rich.text import Text

    if not comparison.sets:
        return []
    sets, images = (Table(box=box.SIMPLE_HEAD, header_style="") for _ in range(2))
    for name in ("set", "group", "images", "only first", "only second"):
        sets.add_column(name, justify="left" if name in ("set", "group") else "right")
    for row in comparison.sets:
        sets.add_row(*(Text(str(value)) for value in row))
    tables: list[RenderableType] = [Text("Images that only one result calls unknown:"), sets]
    if comparison.images:
        for name in ("set", "group", "image", "first", "second", "called unknown by"):
            images.add_column(name, overflow="fold")
        for image in comparison.images:
            values = (f"{v:.3g}" if isinstance(v, float) else str(v) for v in image)
            images.add_row(*map(Text, values))
        tables.append(images)
    return tables


# -------------------------------------------------------------------------- what is compared


class _Side(NamedTuple):
    """One stored result that is compared, and the run it belongs to."""

    label: str
    path: Path
    result: MethodResult
    run: Path
    record: Mapping[str, Any]

    @property
    def is_of_images(self) -> bool:
        return bool(self.record["row"] == "image")

    def frame(self) -> polars.DataFrame:
        return load_result(self.run, self.record, self.result.title)[1]


def compare_results(
    paths: Sequence[str | Path],
    *,
    methods: Sequence[str] | None = None,
    store: str | Path | None = None,
    n_images: int = N_IMAGES,
) -> ComparisonReport:
    """Compare runs or single results, each with the first.

    Of several runs the methods of one title are compared, whatever the model, the training or its
    seed; of one run all methods with its best one. Single results are compared as they are.

    Args:
        paths: Folders of runs, `.run` files, or results in JSON.
        methods: The titles that are compared; by default all.
        store: The folder with outputs of detectors; by default `outputs` beside each run.
        n_images: How many images are listed on which two results disagree.
    """
    sources = [source for path in paths for source in _sources(Path(path), methods)]
    if not sources:
        raise InvalidDataError("Expected runs or results to compare, got none. Name two.")
    pairs, notes = _pairs(sources)
    comparisons = tuple(_compare(*pair, store=store, n_images=n_images) for pair in pairs)
    is_listed = any(comparison.sets for comparison in comparisons)
    row = pairs[0][0].record["row"]
    return ComparisonReport(comparisons, (*notes, *([_CALLED_UNKNOWN[row]] if is_listed else [])))


def _sources(path: Path, methods: Sequence[str] | None) -> list[dict[str, _Side]]:
    """Return the results of each run at a path by title, the best first."""
    found = []
    is_result = path.is_file() and path.suffix == ".json"
    for run in find_runs(path)[:1] if is_result else find_runs(path):
        record = load_record(run)
        files = {t: n for t, n in record["files"].items() if not is_result or n == path.name}
        order = list(files) if len(files) == 1 else [str(t) for t in load_run(run).ranking()]
        sides = {
            title: _side(run, record, run.parent / files[title])
            for title in order
            if methods is None or title in methods
        }
        found.append(sides)
    if methods is not None and not any(found):
        raise InvalidDataError(
            f"No run at {path} has {', '.join(methods)}. Its methods are {', '.join(order)}."
        )
    return [sides for sides in found if sides]


def _side(run: Path, record: Mapping[str, Any], path: Path) -> _Side:
    result = MethodResult.from_json(load_json(path))
    identity = result.identity
    model = str(result.provenance.get("name", identity["model"]))
    trained = [str(identity["training"])] if "training" in identity else []
    trained += [f"seed {identity['training_seed']}"] if "training_seed" in identity else []
    words = [f"{model} ({', '.join(trained)})" if trained else model, str(result.title)]
    return _Side(": ".join(words), path, result, run, record)


def _pairs(sources: Sequence[dict[str, _Side]]) -> tuple[list[tuple[_Side, _Side]], list[str]]:
    """Return which results are compared, the first of each pair being the one to compare with."""
    first, *others = sources
    if not others:
        best, *rest = first.values()
        if not rest:
            raise InvalidDataError(
                f"Expected two results, got only {best.label}. Name a second run or result."
            )
        return [(best, side) for side in rest], []
    if all(len(source) == 1 for source in sources):
        (start,) = first.values()
        return [(start, side) for source in others for side in source.values()], []
    pairs = [(first[t], source[t]) for t in first for source in others if t in source]
    titles = dict.fromkeys(title for source in sources for title in source)
    alone = [t for t in titles if sum(t in source for source in sources) == 1]
    notes = [f"not compared, because only one run has them: {', '.join(alone)}"] if alone else []
    if not pairs:
        raise InvalidDataError(
            f"The runs have no method in common with the first: {', '.join(titles)}. Name results "
            f"(.json) to compare different methods."
        )
    return pairs, notes


def _compare(first: _Side, second: _Side, *, store: str | Path | None, n_images: int) -> Comparison:
    if first.label == second.label:  # told apart by their files
        first = first._replace(label=f"{first.label} ({first.path.stem})")
        second = second._replace(label=f"{second.label} ({second.path.stem})")
    if first.is_of_images != second.is_of_images:
        raise InvalidDataError(
            f"{first.label} is of {first.record['row']} rows and {second.label} of "
            f"{second.record['row']} rows. Compare classifiers with classifiers."
        )
    notes = _other_setup(first, second)
    if first.is_of_images:
        return _compare_images(first, second, notes, n_images)
    return _compare_boxes(first, second, notes, n_images, store)


def _other_setup(first: _Side, second: _Side) -> list[str]:
    """Return a note on each option that differs and is not what is compared."""
    names = ("benchmark", "version", "limit", "precision", "confidence_policy", "score_policy")
    both = first.result.identity, second.result.identity
    return [
        f"{name} differs: {both[0].get(name)} and {both[1].get(name)}"
        for name in names
        if both[0].get(name) != both[1].get(name)
    ]


def _same_data(first: _Side, second: _Side) -> list[str]:
    """Return the test sets whose images are the same in both runs, by `group/name`."""
    ours, theirs = (dict(side.result.identity["data"]) for side in (first, second))
    return [name for name in ours if "/" in name and ours[name] == theirs.get(name)]


# -------------------------------------------------------------------------- classifiers


def _compare_images(first: _Side, second: _Side, notes: list[str], n_images: int) -> Comparison:
    tables: list[ScoredTable] = [sets_and_scores(side.frame()) for side in (first, second)]
    same_data = set(_same_data(first, second))
    ids = [{s.name: list(s.image_ids) for s in sets} for sets, _ in tables]
    paired = ids[0].keys() == ids[1].keys() and all(
        f"{s.group}/{s.name}" in same_data for s in tables[0][0]
    )
    if paired:
        tables, dropped = _on_common_images(tables)
        notes += dropped
    else:
        notes.append(
            "unpaired: the test sets of the two runs are not the same, so that replicates are "
            "drawn independently and no image is compared"
        )
    bootstrap = first.record["bootstrap"]
    other = bootstrap if paired else bootstrap | {"seed": bootstrap["seed"] + _OTHER_DRAW}
    values = _image_values(*tables[0], **bootstrap), _image_values(*tables[1], **other)
    numbers = tuple(_numbers(*values, few=_few_units(first, second)))
    labels = (first.label, second.label)
    if not paired:
        return Comparison(*labels, False, numbers, notes=tuple(notes))
    sets, images = _disagreements(tables[0], tables[1])
    return Comparison(*labels, True, numbers, sets, tuple(images[:n_images]), tuple(notes))


def _on_common_images(tables: Sequence[ScoredTable]) -> tuple[list[ScoredTable], list[str]]:
    """Keep the images that both results have, in the order of the first; note the others."""
    (first, _), (second, _) = tables
    common = {
        one.name: set(one.image_ids) & set(other.image_ids)
        for one in first
        for other in second
        if one.name == other.name
    }
    kept = [_ordered(table, {s.name: s.image_ids for s in first}, common) for table in tables]
    n_all = sum(len({*s.image_ids} | {*o.image_ids}) for s, o in _by_name(first, second))
    n_common = sum(map(len, common.values()))
    left_out = n_all - n_common
    return kept, [f"{count(left_out, 'image')} not scored by both left out"] if left_out else []


def _by_name(
    first: Iterable[ScoredSet], second: Iterable[ScoredSet]
) -> list[tuple[ScoredSet, ScoredSet]]:
    others = {scored.name: scored for scored in second}
    return [(scored, others[scored.name]) for scored in first]


def _ordered(
    table: ScoredTable, order: Mapping[str, Sequence[str]], common: Mapping[str, set[str]]
) -> ScoredTable:
    sets, scores = table
    kept, ordered = [], {}
    for scored in sets:
        place = {image: k for k, image in enumerate(scored.image_ids)}
        rows = np.array(
            [place[i] for i in order[scored.name] if i in common[scored.name]], dtype=np.int64
        )
        labels = None if scored.labels is None else scored.labels[rows]
        ids = tuple(scored.image_ids[k] for k in rows)
        kept.append(ScoredSet(scored.name, scored.group, ids, scored.predicted[rows], labels))
        ordered[scored.name] = scores[scored.name][rows]
    return kept, ordered


def _image_values(
    sets: Sequence[ScoredSet], scores: Scores, *, seed: int, n_resamples: int
) -> Values:
    measured, _ = measure_methods(sets, {"it": scores}, n_resamples=n_resamples, seed=seed)
    values = {(metric, "paper", split): v for (metric, split), v in measured["it"].items()}
    weights = draw(sets, n_resamples=n_resamples, seed=seed)
    accuracy = {("accuracy", "paper", s): v.values for s, v in accuracy_values(sets, weights)}
    return accuracy | values


def _few_units(*sides: _Side) -> set[Key]:
    """Return the numbers of which too few images contribute for an interval."""
    return {
        (r.metric, r.convention, Split.parse(r.split))
        for side in sides
        for r in side.result.results
        if r.units is not None and r.units < MIN_UNITS
    }


def _numbers(first: Values, second: Values, *, few: set[Key]) -> Iterable[ComparedNumber]:
    """Yield the difference of every number that both have; of few images without bounds."""
    for key, ours in first.items():
        if key in second:
            theirs = second[key]
            n = 1 if key in few else min(len(ours), len(theirs))
            difference = paired_difference(theirs[:n], ours[:n])
            metric, convention, split = key
            yield ComparedNumber(
                metric, convention, split, float(ours[0]), float(theirs[0]), difference
            )


def _disagreements(
    first: ScoredTable, second: ScoredTable
) -> tuple[tuple[SetDisagreement, ...], list[DisagreedImage]]:
    known = [_known_scores(table) for table in (first, second)]
    taus = [KnownQuantile().fit(scores) for scores in known]
    sets, images = [], []
    for one, _ in _by_name(first[0], second[0]):
        scores = [table[1][one.name] for table in (first, second)]
        calls = [tau.is_unknown(s) for tau, s in zip(taus, scores, strict=True)]
        places = [
            np.searchsorted(np.sort(k), s, side="right") / len(k)
            for k, s in zip(known, scores, strict=True)
        ]
        differs = calls[0] != calls[1]
        n_first = int((differs & calls[0]).sum())
        n_second = int(differs.sum()) - n_first
        sets.append(SetDisagreement(one.name, one.group, len(one), n_first, n_second))
        for k in np.flatnonzero(differs):
            by = "first" if calls[0][k] else "second"
            place = (float(places[0][k]), float(places[1][k]))
            images.append(
                DisagreedImage(one.name, one.group, str(one.image_ids[int(k)]), *place, by)
            )
    return tuple(sets), sorted(images, key=_by_difference)


def _known_scores(table: ScoredTable) -> np.ndarray:
    sets, scores = table
    return np.concatenate([scores[scored.name] for scored in known_sets(sets)])


def _by_difference(image: DisagreedImage) -> tuple[float, str, str]:
    return -abs(image.first - image.second), image.set, image.image_id


# -------------------------------------------------------------------------- detectors


def _compare_boxes(
    first: _Side, second: _Side, notes: list[str], n_images: int, store: str | Path | None
) -> Comparison:
    tested = [{n for n in side.result.identity["data"] if "/" in n} for side in (first, second)]
    paired = tested[0] == tested[1] == set(_same_data(first, second))
    paired &= set(first.result.failed_images) == set(second.result.failed_images)
    bootstrap = first.record["bootstrap"]
    other = bootstrap if paired else bootstrap | {"seed": bootstrap["seed"] + _OTHER_DRAW}
    values = _box_values(first, bootstrap, store), _box_values(second, other, store)
    notes += [reason for _, reason in values if reason is not None]
    numbers = tuple(_numbers(values[0][0], values[1][0], few=_few_units(first, second)))
    labels = (first.label, second.label)
    if not paired:
        notes.append(
            "unpaired: the test images of the two runs are not the same, so that replicates are "
            "drawn independently and no image is compared"
        )
        return Comparison(*labels, False, numbers, notes=tuple(notes))
    sets, images = _disagreements_of_boxes(first.frame(), second.frame())
    return Comparison(*labels, True, numbers, sets, tuple(images[:n_images]), tuple(notes))


def _box_values(
    side: _Side, bootstrap: Mapping[str, int], store: str | Path | None
) -> tuple[Values, str | None]:
    """Measure the stored outputs again; without them, return the numbers alone, and why."""
    from incognita.evaluation.rescore import recompute_values

    try:
        found = recompute_values(side.run, side.record, side.result, store=store, **bootstrap)
    except IncognitaError as error:
        alone = {
            (r.metric, r.convention, Split.parse(r.split)): np.array([r.value])
            for r in side.result.results
        }
        return alone, f"no intervals, because {side.label} cannot be measured again: {error}"
    return {key: value.values for key, value in found.items()}, None


def _disagreements_of_boxes(
    first: polars.DataFrame, second: polars.DataFrame
) -> tuple[tuple[SetDisagreement, ...], list[DisagreedImage]]:
    """Count the boxes called unknown in every image with a box above t* in either result."""
    keys = ["set", "group", "image_id"]
    counted = [
        frame.group_by(keys).agg(polars.col("is_called_unknown").sum().cast(polars.Float64))
        for frame in (first, second)
    ]
    both = (
        counted[0]
        .join(counted[1], on=keys, how="full", coalesce=True, suffix="_second")
        .fill_null(0.0)
        .sort(keys)
    )
    sets, images = [], []
    for (name, group), part in both.group_by(["set", "group"], maintain_order=True):
        rows = [
            DisagreedImage(
                str(name), str(group), image, one, other, "first" if one > other else "second"
            )
            for image, one, other in part.select("image_id", *both.columns[3:5]).iter_rows()
            if (one > 0) != (other > 0)
        ]
        n_first = sum(row.called_unknown_by == "first" for row in rows)
        sets.append(SetDisagreement(str(name), str(group), len(part), n_first, len(rows) - n_first))
        images += rows
    return tuple(sets), sorted(images, key=_by_difference)
