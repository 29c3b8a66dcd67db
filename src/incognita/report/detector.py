"""The page of a detector: what happens to unknown objects, and what each method makes of them."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import altair
import numpy as np
import polars

from incognita.benchmarks.benchmark import SHIFTED
from incognita.errors import count
from incognita.metrics.catalog import get_metric
from incognita.report.cells import (
    BEST,
    best_of,
    half_interval,
    has_interval,
    metric_column,
    number_cell,
)
from incognita.report.charts import PALETTE, Chart, chart_data, group_color
from incognita.report.detector_objects import object_sections
from incognita.report.drawings import against, interval_data
from incognita.report.numbers import run_footer
from incognita.report.page import Cell, Page, PageColumn, PageTable, Section
from incognita.results.analysis import BOTH_FAMILIES, RANKING, metric_correlations
from incognita.results.evaluation import Evaluation, boxes_in_words
from incognita.results.method_result import MethodResult
from incognita.results.result import ALL_BOXES, Result, Split

FPR, OWN_LABEL = "fpr_at_95_known_recall", "own-label"
# of each group of unknown sets: the metric, its convention, and whether it is shown at first
_OF_GROUP = (
    ("auroc", "paper", True),
    (FPR, "paper", False),
    ("unknown_ap", "paper", False),
    ("unknown_precision", "paper", False),
    ("unknown_recall", "paper", True),
    ("normalized_open_set_error", "paper", True),
    ("open_set_error", "paper", False),
    ("wilderness_impact", "fmiyc", False),
    ("images_without_detection", "paper", False),
    ("unknown_objects_without_detection", "paper", False),
)
# of each mixed set: the metric, its split, its setting
_OF_MIXED = (
    ("unknown_ap", "all", ALL_BOXES),
    ("unknown_recall", "all", None),
    ("normalized_open_set_error", "all", None),
    ("open_set_error", "all", None),
    ("wilderness_ratio", "all", ALL_BOXES),
    ("ap_all", "all", ALL_BOXES),
    ("ap_superclass", "unknown-only", ALL_BOXES),
    ("map_known", "all", None),
)
_MIXED_SHOWN = ("ap_all", "ap_superclass")
_FEWEST = 3  # methods behind a scatter or a correlation


@dataclass(frozen=True, eq=False)
class Row:
    """One method of one run."""

    run: Evaluation
    result: MethodResult

    def get(self, metric: str, split: str, convention: str = "paper") -> Result | None:
        """Return a number, or None where it was not measured."""
        for found in self.result.results:
            if (found.metric, found.split, found.convention) == (metric, split, convention):
                return found
        return None

    @property
    def title(self) -> str:
        """The name of the method."""
        return str(self.result.title)


@dataclass(frozen=True, eq=False)
class Runs:
    """One or several runs of detectors, and the rows of their table."""

    runs: tuple[Evaluation, ...]

    @cached_property
    def rows(self) -> list[Row]:
        return [Row(run, result) for run in self.runs for result in run.distinct_results]

    @cached_property
    def groups(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(str(group) for run in self.runs for group in run.groups))

    @cached_property
    def mixed(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for run in self.runs for name in run.mixed))

    @cached_property
    def best(self) -> Row:
        """The first method of the run whose first method has the highest AUROC."""
        firsts = [Row(run, run.results[0]) for run in self.runs]
        return max(firsts, key=lambda row: np.nan_to_num(_mean_auroc(row), nan=-1.0))

    @property
    def is_several(self) -> bool:
        return len(self.runs) > 1

    def name_of(self, row: Row) -> str:
        """Return the name of a method, with its model where there are several."""
        return f"{row.title} · {row.run.model_name}" if self.is_several else row.title


def _mean_auroc(row: Row) -> float:
    return float(row.run.mean_auroc(row.result.title)[0])


def build_page(reports: Sequence[Evaluation], *, is_brief: bool = False) -> Page:
    """Return the page of one or several runs of detectors; a brief one has no sections."""
    runs = Runs(tuple(reports))
    models = ", ".join(dict.fromkeys(run.model_name for run in reports))
    benchmarks = ", ".join(dict.fromkeys(str(run.metadata["benchmark"]) for run in reports))
    return Page(
        title=f"{models} on {benchmarks}",
        answer=answer(runs),
        facts=_facts(runs),
        notes=tuple(dict.fromkeys(remark for run in reports for remark in run.remarks())),
        table=method_table(runs),
        sections=() if is_brief else tuple(_sections(runs)),
        footer=run_footer(runs.runs),
    )


def answer(runs: Runs) -> str:
    """Return what happens to unknown objects in one sentence."""
    best = runs.best
    where = [Split.parse(group) for group in best.run.groups]
    where += [Split(name, "all") for name in best.run.mixed]
    start = f"Best of {len(runs.runs)} runs, {best.run.model_name}: of" if runs.is_several else "Of"
    for split in where:
        missed = best.get("unknown_objects_without_detection", split)
        if missed is None or math.isnan(missed.value):
            continue
        detected = _in_words(1 - missed.value, missed)
        named = _share(best.get("normalized_open_set_error", split))
        flagged = _share(best.get("unknown_recall", split))
        is_own = best.result.method == OWN_LABEL
        flags = f"flags {flagged} itself" if is_own else f"{best.title} flags {flagged}"
        if OWN_LABEL in best.run.methods and not is_own:
            own = Row(best.run, best.run.methods[OWN_LABEL]).get("unknown_recall", split)
            flags += f", its own label {_share(own)}"
        kind = split.group if split.set is None else f"{split.group} images'"
        return (
            f"{start} {missed.support['objects']:,} {kind} unknown objects the detector detects "
            f"{detected}, names {named} as a known class, and {flags}."
        )
    return f"{best.run.model_name} was run, but there is no unknown object to find in its sets."


def _share(result: Result | None) -> str:
    if result is None or math.isnan(result.value):
        return "an unknown share"
    return _in_words(result.value, result)


def _in_words(value: float, result: Result) -> str:
    margin = f" (±\N{NO-BREAK SPACE}{100 * half_interval(result):.0f})"
    return f"{100 * value:.0f}\N{NO-BREAK SPACE}%{margin if has_interval(result) else ''}"


def _facts(runs: Runs) -> tuple[tuple[str, str], ...]:
    facts = []
    for run in runs.runs:
        first = run.results[0]
        quality = ", ".join(
            f"{name} {100 * value:.1f} %"
            for name, value in run.known_quality().items()
            if not math.isnan(value)
        )
        known = first.get("images_without_detection", "known")
        made = str(first.provenance.get("finished", ""))[:10]
        version = f"{run.metadata['benchmark']} v{run.metadata.get('version', '?')}"
        facts += [
            (
                "model",
                f"{run.model_name} ({quality} on known images)" if quality else run.model_name,
            ),
            ("benchmark", version),
            ("known test images", f"{known.support.get('images', 0):,}"),
            ("boxes", boxes_in_words(first.thresholds).removeprefix(", ") or "all"),
            ("called unknown", _tau_in_words(first)),
            ("run", f"{made}, incognita {first.provenance.get('incognita', '?')}"),
        ]
    return tuple(dict.fromkeys(facts))


def _tau_in_words(result: MethodResult) -> str:
    if result.method == OWN_LABEL:
        return "by the detector itself"
    tau = result.thresholds.get("tau", {})
    policy, chosen = tau.get("policy", "?"), tau.get("chosen on", "?")
    return f"score above tau ({policy}, {chosen})"


# --- the table ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Number:
    """A column of the table: the number of each row it shows."""

    column: PageColumn
    metric: str
    split: Split
    convention: str


def method_table(runs: Runs) -> PageTable:
    """Return one row per method: both families of metrics on every group and mixed set."""
    numbers = [*_group_numbers(runs), *_mixed_numbers(runs)]
    names = [PageColumn(key="method", label="method", is_number=False)]
    if runs.is_several:
        names.append(PageColumn(key="model", label="model", is_number=False))
    rows: list[dict[str, Cell]] = [
        {"method": Cell(row.title), "model": Cell(row.run.model_name)} for row in runs.rows
    ]
    for number in numbers:
        found = [row.get(number.metric, number.split, number.convention) for row in runs.rows]
        for cells, result, is_best in zip(rows, found, best_of(found), strict=True):
            cells[number.column.key] = _cell(result, is_best=is_best)
    return PageTable(
        columns=(*names, *(number.column for number in numbers)),
        rows=tuple(rows),
        caption=BEST,
        name="methods",
    )


def _cell(result: Result | None, *, is_best: bool) -> Cell:
    if result is None:
        return Cell(note="It was not measured here; an open-set detector has no unknown score.")
    return number_cell(result, is_best=is_best)


def _group_numbers(runs: Runs) -> Iterator[_Number]:
    for group in runs.groups:
        for metric, convention, is_shown in _OF_GROUP:
            split = Split(group)
            is_measured = any(row.get(metric, split, convention) is not None for row in runs.rows)
            if is_measured or metric in RANKING:
                label = f"{group} {_title(metric)}"
                column = metric_column(
                    f"{group} {metric}",
                    metric,
                    label=label,
                    convention=convention,
                    is_shown=is_shown,
                )
                yield _Number(column, metric, split, convention)


def _mixed_numbers(runs: Runs) -> Iterator[_Number]:
    for name in runs.mixed:
        for metric, part, setting in _OF_MIXED:
            split = Split(name, part, setting)
            if any(row.get(metric, split) is not None for row in runs.rows):
                what = "all boxes, also below t*" if setting else "boxes above t*"
                column = metric_column(
                    str(split) + metric,
                    metric,
                    label=f"{name} {_title(metric)}",
                    convention=f"paper; {part} images, {what}",
                    is_shown=metric in _MIXED_SHOWN or not runs.groups,
                )
                yield _Number(column, metric, split, "paper")


def _title(metric: str) -> str:
    return "FPR" if metric == FPR else get_metric(metric).title


# --- sections from numbers ----------------------------------------------------------------------


def _sections(runs: Runs) -> Iterator[Section]:
    of_objects = list(
        object_sections(runs.best.run, runs.best.result, is_one_of_several=runs.is_several)
    )
    sections = [
        near_far(runs),
        families(runs),
        *of_objects[:-1],
        recall_and_error(runs),
        correlations(runs),
        shifted(runs),
        cost(runs),
        thresholds(runs),
        of_objects[-1],  # pictures
    ]
    yield from (section for section in sections if section is not None)


def near_far(runs: Runs) -> Section | None:
    """Compare AUROC on the first two groups of unknown sets, one point per method."""
    if len(runs.groups) < 2:
        return None
    first, second = runs.groups[:2]
    points: dict[str, list[Any]] = {name: [] for name in ("method", *_SIDES, *_BOUNDS)}
    for row in runs.rows:
        pair = [row.get("auroc", group) for group in (first, second)]
        if any(found is None or math.isnan(found.value) for found in pair):
            continue
        points["method"].append(runs.name_of(row))
        for side, found in zip(_SIDES, pair, strict=True):
            assert found is not None
            points[side].append(100 * found.value)
            points[f"{side}_low"].append(100 * (found.low if has_interval(found) else found.value))
            points[f"{side}_high"].append(
                100 * (found.high if has_interval(found) else found.value)
            )
    if len(points["method"]) < 2:
        return None
    data = chart_data(points)
    above = int((data["y"] > data["x"]).sum())
    finding = (
        f"{above} of {data.height} methods separate boxes on {second} images better than on "
        f"{first} ones"
    )
    return Section(
        question=f"Are {second} unknowns easier than {first} ones?",
        sentence=(
            f"Each point is a method; above the line, boxes on {second} images are told apart "
            f"better. Bars are 95 % intervals."
        ),
        parts=(
            Chart(
                title=finding,
                spec=against(data, f"AUROC on {first}, %", f"AUROC on {second}, %"),
                data=data,
                description=f"AUROC of each method on {first} and on {second} images.",
                definition=get_metric("auroc").meaning,
                convention="paper: boxes above t* on known images against those on unknown ones",
            ),
        ),
        anchor="near-far",
    )


_SIDES = ("x", "y")
_BOUNDS = ("x_low", "x_high", "y_low", "y_high")


def families(runs: Runs) -> Section | None:
    """Compare families of methods on every group, averaged over detectors (FMIYC 4 and 5)."""
    means: dict[tuple[str, str, str], list[tuple[float, int]]] = {}
    for run in runs.runs:
        for mean in run.family_means():
            if not math.isnan(mean.value):
                key = (mean.family, str(mean.group), mean.metric)
                means.setdefault(key, []).append((mean.value, mean.n_methods))
    if len({family for family, _, _ in means}) < 2:
        return None
    data = chart_data(
        {
            "family": [family for family, _, _ in means],
            "group": [group for _, group, _ in means],
            "metric": [_with_arrow(metric) for _, _, metric in means],
            "value": [100 * float(np.mean([v for v, _ in found])) for found in means.values()],
            "methods": [sum(n for _, n in found) for found in means.values()],
        }
    )
    scope = f" and {len(runs.runs)} detectors" if runs.is_several else ""
    return Section(
        question="Which family of methods works?",
        sentence=(
            f"Each bar is the mean over the methods of a family{scope}; arrows say which way is "
            f"better. AUROC and FPR judge scores of boxes, the other four what becomes of objects."
        ),
        parts=(
            Chart(
                title=_best_family(data),
                spec=_family_bars(data, runs.groups),
                data=data,
                description="Means of six metrics over families of methods, group by group.",
                definition="; ".join(
                    f"{_title(metric)}: {get_metric(metric).meaning}" for metric in BOTH_FAMILIES
                ),
                convention="paper; undefined values are left out of a mean",
                is_wide=True,
            ),
        ),
        anchor="families",
    )


def _with_arrow(metric: str) -> str:
    return f"{_title(metric)} {get_metric(metric).direction.arrow}"


def _best_family(data: polars.DataFrame) -> str:
    found = data.filter(polars.col("metric") == _with_arrow("unknown_recall"))
    if found.is_empty():
        return "Means over families of methods"
    mean = found.group_by("family", maintain_order=True).agg(polars.col("value").mean())
    family, value = mean.sort("value", descending=True).row(0)
    return f"{family.capitalize()} methods find the most unknown objects: {value:.1f} % on average"


def _family_bars(data: polars.DataFrame, groups: Sequence[str]) -> Any:
    order = [_with_arrow(metric) for metric in BOTH_FAMILIES]
    shown = [group for group in groups if group in data["group"].to_list()]
    colors = altair.Scale(domain=shown, range=[group_color(g, tuple(shown)) for g in shown])
    bars = (
        altair.Chart(data)
        .mark_bar()
        .encode(
            x=altair.X("value:Q", title="%"),
            y=altair.Y("family:N", title=None),
            yOffset=altair.YOffset("group:N", sort=shown),
            color=altair.Color("group:N", title=None, scale=colors, sort=shown),
        )
    )
    height = 14 * len(shown) * data["family"].n_unique() + 12
    facet = altair.Facet("metric:N", title=None, sort=order, header=altair.Header(orient="top"))
    return bars.properties(width=170, height=height).facet(facet=facet, columns=3)


def recall_and_error(runs: Runs) -> Section | None:
    """Compare U-Recall and A-OSE, one point per method and group."""
    splits = [Split(group) for group in runs.groups] + [Split(m, "all") for m in runs.mixed]
    columns: dict[str, list[Any]] = {n: [] for n in ("method", "images", "recall", "error")}
    for split in splits:
        for row in runs.rows:
            recall, error = row.get("unknown_recall", split), row.get("open_set_error", split)
            if recall is None or error is None or math.isnan(recall.value):
                continue
            values = (runs.name_of(row), str(split), 100 * recall.value, error.value)
            for name, value in zip(columns, values, strict=True):
                columns[name].append(value)
    if len(set(columns["method"])) < _FEWEST:
        return None
    data = chart_data(columns)
    names = tuple(dict.fromkeys(data["images"].to_list()))
    finding = "The more unknown objects a method finds, the fewer are named as known"
    rho = _mean_correlation(data)
    if math.isnan(rho) or rho > -0.3:
        finding = "Finding more unknown objects does not by itself lower the open-set error"
    return Section(
        question="Does finding unknown objects lower the open-set error?",
        sentence=(
            "Each point is a method; down and to the right is better. A-OSE is a count: sets of "
            "different size do not compare."
        ),
        parts=(
            Chart(
                title=finding,
                spec=_recall_error(data, names),
                data=data,
                description="U-Recall against A-OSE of each method, by group of images.",
                definition=f"R_U: {get_metric('unknown_recall').meaning}; A-OSE: "
                f"{get_metric('open_set_error').meaning}",
                convention="paper: by objects; of a group, the mean over its sets",
            ),
        ),
        anchor="recall-error",
    )


def _mean_correlation(data: polars.DataFrame) -> float:
    """Return the mean over sets of the correlation between both metrics."""
    found = []
    for part in data.partition_by("images"):
        pair = part.select("recall", "error").to_numpy().T
        if len(pair.T) >= _FEWEST and (np.ptp(pair, axis=1) > 0).all():
            found.append(float(np.corrcoef(pair)[0, 1]))
    return float(np.mean(found)) if found else math.nan


def _recall_error(data: polars.DataFrame, names: tuple[str, ...]) -> Any:
    colors = altair.Scale(
        domain=list(names), range=[group_color(name.split("/")[0], names) for name in names]
    )
    return (
        altair.Chart(data)
        .mark_point(opacity=0.85)
        .encode(
            x=altair.X("recall:Q", title="U-Recall (R_U), %"),
            y=altair.Y("error:Q", title="A-OSE, objects per set", scale=altair.Scale(zero=True)),
            color=altair.Color("images:N", title=None, scale=colors),
            shape=altair.Shape("images:N", title=None, scale=altair.Scale(domain=list(names))),
        )
    )


def correlations(runs: Runs) -> Section | None:
    """Correlate the metrics over methods, sets and detectors (FMIYC, figure 15)."""
    results = [row.result for row in runs.rows]
    found = metric_correlations(results, runs.groups)
    if np.isnan(found.values).all():
        return None
    titles = [_title(metric) for metric in found.metrics]
    everything = chart_data(
        {
            "first": [a for a in titles for _ in titles],
            "second": titles * len(titles),
            "correlation": [None if math.isnan(v) else v for v in found.values.ravel().tolist()],
            "pairs": found.n_pairs.ravel().tolist(),
        }
    )
    data = everything.drop_nulls()  # a metric without values is not in the figure
    titles = [title for title in titles if title in data["first"].to_list()]
    n = int(found.n_pairs.max())
    across = found.values[:2, 2:]
    finding = "Open-set metrics among each other; AUROC and FPR have no values here"
    if not np.isnan(across).all():
        weakest, strongest = np.nanmin(np.abs(across)), np.nanmax(np.abs(across))
        finding = (
            f"AUROC and FPR correlate with open-set metrics between {weakest:.2f} and "
            f"{strongest:.2f} in size"
        )
    return Section(
        question="Do the metrics agree?",
        sentence=(
            f"The further from 1, the more the open-set metrics add to AUROC and FPR. Over {n} "
            f"pairs of method and set{' of all runs' if runs.is_several else ''}; red is negative."
        ),
        parts=(
            Chart(
                title=finding,
                spec=_heat(data, titles),
                data=data,
                description="Pearson correlation of each pair of metrics.",
                definition="Pearson correlation over all methods and unknown sets; not oriented, "
                "so that AUROC and FPR correlate negatively.",
                convention="paper (FindMeIfYouCan, figure 15)",
            ),
        ),
        anchor="correlations",
    )


def _heat(data: polars.DataFrame, titles: list[str]) -> Any:
    color = altair.condition(
        "datum.correlation < 0", altair.value(PALETTE["rejected"]), altair.value(PALETTE["known"])
    )
    base = altair.Chart(data).encode(
        x=altair.X("second:N", title=None, sort=titles, axis=altair.Axis(labelAngle=0)),
        y=altair.Y("first:N", title=None, sort=titles),
    )
    size = altair.Size("area:Q", legend=None, scale=altair.Scale(domain=[0, 1], range=[0, 1600]))
    squares = (
        base.transform_calculate(area="abs(datum.correlation)")
        .mark_point(shape="square", filled=True, opacity=0.3)
        .encode(size=size, color=color)
    )
    words = base.mark_text(fontSize=11).encode(text=altair.Text("correlation:Q", format=".2f"))
    return (squares + words).properties(width=300, height=260)


def shifted(runs: Runs) -> Section | None:
    """Show how known objects are found on shifted images, set by set."""
    run = runs.best.run
    splits = dict.fromkeys(Split.parse(found.split) for found in runs.best.result.results)
    sets = [s for s in splits if s.group == SHIFTED and s.set and s.setting is None]
    rows = [("known", runs.best.get("map_known", Split("known")))]
    rows += [(str(split.set), runs.best.get("map_known", split)) for split in sets]
    defined = [(name, r) for name, r in rows if r is not None and not math.isnan(r.value)]
    if not sets or len(defined) < 2:
        return None
    data = interval_data(defined)
    return Section(
        question="What does a shift of the images cost?",
        sentence=(
            f"AP of the known classes falls from {data['value'][0]:.1f} % on known images to "
            f"{min(data['value'].to_list()):.1f} % on the worst shifted set of {run.model_name}."
        ),
        parts=(
            Chart(
                title="AP50 of known classes on shifted images",
                spec=_interval_dots(data, "mAP_k, %"),
                data=data,
                description="AP50 of the known classes on each shifted set.",
                definition=get_metric("map_known").meaning,
                convention="paper; boxes above t*",
            ),
        ),
        anchor="shifted",
    )


def _interval_dots(data: polars.DataFrame, title: str) -> Any:
    """Return one dot with its interval per set of images, from top to bottom."""
    rows = altair.Y("images:N", title=None, sort=data["images"].to_list())
    base = altair.Chart(data).encode(y=rows)
    bars = base.mark_rule(color=PALETTE["muted"]).encode(
        x=altair.X("low:Q", title=title, scale=altair.Scale(zero=True)), x2="high:Q"
    )
    dots = base.mark_point(color=PALETTE["ink"], opacity=1).encode(x="value:Q")
    return (bars + dots).properties(height=max(40, 22 * data.height))


def cost(runs: Runs) -> Section | None:
    """Show the processor time and the passes of each method."""
    scored = [row for row in runs.rows if row.result.method != OWN_LABEL]
    rows = sorted(scored, key=lambda row: row.result.cost.microseconds_per_sample)
    costs = [row.result.cost for row in rows]
    data = chart_data(
        {
            "method": [runs.name_of(row) for row in rows],
            "microseconds per box": [c.microseconds_per_sample for c in costs],
            "seconds to fit": [c.fit_seconds for c in costs],
            "forward passes": [c.forwards for c in costs],
            "backward passes": [c.backwards for c in costs],
            "state, kB": [c.state_bytes / 1000 for c in costs],
        }
    )
    timed = data.filter(polars.col("microseconds per box") > 0)
    if timed.is_empty():
        return None
    least, most = timed.row(0), timed.row(-1)
    passes = [
        row.title for row in rows if row.result.cost.backwards or row.result.cost.forwards > 1
    ]
    extra = f"{', '.join(passes)} need further passes" if passes else "none needs a further pass"
    finding = f"Scoring a box takes {least[1]:.3g} µs with {least[0]}"
    if timed.height > 1:
        finding += f", {most[1]:.3g} with {most[0]}"
    return Section(
        question="What does each method cost?",
        sentence=f"This comes on top of the network itself; {extra} of the network.",
        parts=(
            Chart(
                title=finding,
                spec=_cost_dots(timed),
                data=data,
                description="Processor time of each method per box, on a logarithmic scale.",
                definition="Processor time of all threads, on a GPU the time until it is done, "
                "without the network: on the machine of the run, not a property of the method.",
            ),
        ),
        anchor="cost",
    )


def _cost_dots(data: polars.DataFrame) -> Any:
    times = data["microseconds per box"]
    bounds = np.log10(times.to_numpy())
    low, high = math.floor(bounds.min()), math.ceil(bounds.max())
    scale = altair.Scale(type="log", domain=[10.0**low, 10.0**high])
    ticks = altair.Axis(values=[10.0**k for k in range(low, high + 1)])
    return (
        altair.Chart(data)
        .mark_point(color=PALETTE["ink"], opacity=1)
        .encode(
            x=altair.X(
                "microseconds per box:Q", title="µs per box, logarithmic", scale=scale, axis=ticks
            ),
            y=altair.Y("method:N", title=None, sort=data["method"].to_list()),
        )
        .properties(height=max(40, 18 * data.height))
    )


def thresholds(runs: Runs) -> Section:
    """Show the confidence threshold t* of each class, and tau of each method."""
    best = runs.best.result
    chosen = best.thresholds.get("t*", {})
    values = [v for v in chosen.get("per class", []) if v is not None]
    names = [str(name) for name in best.identity.get("classes", [])]
    left_out = list(chosen.get("without threshold", []))
    tau = best.thresholds.get("tau", {})
    how = f"from a score tau on, chosen by {tau.get('policy', '?')} on {tau.get('chosen on', '?')}"
    if best.method == OWN_LABEL:
        how = "by the detector itself"
    parts: list[Chart | PageTable] = []
    if any(row.result.method != OWN_LABEL for row in runs.rows):
        parts.append(_tau_table(runs))
    where = f"chosen by {chosen.get('policy', '?')} on {chosen.get('chosen on', '?')}"
    sentence = f"No box has a threshold t*, {where}."
    if values and len(set(values)) == 1:
        sentence = (
            f"Boxes of every class are kept from a confidence t* of {values[0]:.3f} on, {where}."
        )
    elif values:
        sentence = (
            f"Boxes are kept from a confidence t* between {min(values):.3f} and {max(values):.3f} "
            f"on, class by class, {where}."
        )
        parts.insert(0, _threshold_chart(names, chosen["per class"]))
    if left_out:
        sentence += f" No box is kept of {count(len(left_out), 'class', 'classes')}: "
        sentence += f"{', '.join(map(str, left_out[:5]))}."
    return Section(
        question="Where are the thresholds?",
        sentence=f"{sentence} A box is called unknown {how}.",
        parts=tuple(parts),
        anchor="thresholds",
    )


def _threshold_chart(names: Sequence[str], values: Sequence[float | None]) -> Chart:
    rows = [(name, v) for name, v in zip(names, values, strict=True) if v is not None]
    rows.sort(key=lambda row: -row[1])
    data = chart_data({"class": [name for name, _ in rows], "t*": [v for _, v in rows]})
    shown = data.head(40)
    spec = (
        altair.Chart(shown)
        .mark_point(color=PALETTE["ink"], opacity=1)
        .encode(
            x=altair.X("t*:Q", title="confidence threshold t*", scale=altair.Scale(domain=[0, 1])),
            y=altair.Y("class:N", title=None, sort=shown["class"].to_list()),
        )
        .properties(height=max(40, 18 * shown.height))
    )
    return Chart(
        title=f"The highest threshold is that of {rows[0][0]}",
        spec=spec,
        data=data,
        description="The confidence threshold of each known class.",
        definition="The confidence from which boxes of a class are scored.",
    )


def _tau_table(runs: Runs) -> PageTable:
    rows = []
    for row in runs.rows:
        if row.result.method == OWN_LABEL:
            continue
        tau = row.result.thresholds.get("tau", {})
        kept = tau.get("known_accepted")
        value = tau.get("value")
        rows.append(
            {
                "method": Cell(runs.name_of(row)),
                "tau": Cell() if value is None else Cell(f"{value:.4g}", float(value)),
                "kept": Cell() if kept is None else Cell(f"{100 * kept:.1f}", float(kept)),
            }
        )
    return PageTable(
        columns=(
            PageColumn(key="method", label="method", is_number=False),
            PageColumn(
                key="tau", label="tau", definition="The score from which a box is called unknown."
            ),
            PageColumn(
                key="kept",
                label="known kept, %",
                definition="Boxes on the known images of the choice that are not called unknown.",
            ),
        ),
        rows=tuple(rows),
        name="thresholds of methods",
    )
