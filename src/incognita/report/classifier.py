"""The page of a classifier: which method tells unknown images apart, and where each one fails.

Figures are drawn from the scores of all images, but hold only aggregates: a page does not grow
with the number of images.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import altair
import numpy as np
import polars

from incognita.benchmarks.benchmark import SHIFTED
from incognita.errors import count
from incognita.metrics.catalog import Direction, get_metric
from incognita.metrics.measure import paired_difference
from incognita.report.cells import metric_column, number_cell
from incognita.report.charts import PALETTE, Chart, chart_data
from incognita.report.drawings import against, dumbbells, heat_map, name_labels
from incognita.report.mistakes import close_in_meaning, confused_classes, worst_images
from incognita.report.numbers import (
    INTERVAL,
    joined,
    margin,
    n_of,
    parameters_in_words,
    percent,
    run_facts,
    run_footer,
)
from incognita.report.page import Cell, Page, PageColumn, PageTable, Section
from incognita.report.score_figures import (
    AUROC,
    FPR,
    N_ROWS,
    PAIR,
    bounds_of,
    curves,
    in_words,
    label_of,
    mean_in_words,
    overlap,
    refusal,
    replicates_of,
    result_of,
    shift,
)
from incognita.results.analysis import value_of
from incognita.results.evaluation import Evaluation
from incognita.results.method_result import MethodResult
from incognita.results.result import FULL_SPECTRUM, Split

N_DETAILED = 3  # runs whose figures are on a page of several
GRID = ("method", "run", "auroc")  # columns of the grid of methods and runs
CHEAP, ONE_PASS, MORE = 2, "one pass", "more passes"  # microseconds, and two kinds of methods
Build = Callable[[Evaluation], Section | None]


def build_page(reports: Sequence[Evaluation], *, is_brief: bool) -> Page:
    """Return the page of one or several runs of classifiers; a brief one has no sections."""
    runs = [evaluation for evaluation in reports if evaluation.methods]
    remarks = [remark for evaluation in reports for remark in evaluation.remarks()]
    if not runs:
        return Page(title="Unknown images", answer="No method gave a number.", notes=(*remarks,))
    benchmarks = dict.fromkeys(str(run.metadata["benchmark"]) for run in runs)
    return Page(
        title=f"Unknown images: {joined(run_names(runs))}",
        answer=_answer(runs),
        facts=run_facts(runs[0]) if len(runs) == 1 else (("benchmarks", joined(benchmarks)),),
        notes=tuple(dict.fromkeys(remarks)),
        table=_main_table(runs),
        sections=() if is_brief else (*_across(runs), *_details(runs)),
        footer=run_footer(runs),
    )


def run_names(runs: Sequence[Evaluation]) -> list[str]:
    """Return what runs are called on a page: their model, their benchmark, or both.

    What all of them share is left out; runs that still have one name are numbered.
    """
    models = [run.model_name for run in runs]
    benchmarks = [str(run.metadata["benchmark"]) for run in runs]
    if len(set(benchmarks)) == 1 and len(runs) > 1:
        names = models
    elif len(set(models)) == 1 and len(runs) > 1:
        names = benchmarks
    else:
        names = [f"{a} on {b}" for a, b in zip(models, benchmarks, strict=True)]
    return [
        f"{name} ({names[: k + 1].count(name)})" if names.count(name) > 1 else name
        for k, name in enumerate(names)
    ]


# --- the answer and the table


def _answer(runs: Sequence[Evaluation]) -> str:
    if len(runs) == 1:
        return best_in_words(runs[0])
    best = [
        f"{run.ranking()[0]} for {name} ({mean_in_words(run, run.ranking()[0])})"
        for run, name in zip(runs, run_names(runs), strict=True)
    ]
    return f"Unknown images are told apart best by {joined(best, limit=4)}; mean AUROC in percent."


def best_in_words(run: Evaluation) -> str:
    """Return which method is best, how good it is, and which cannot be told apart from it."""
    best, *others = [record.title for record in run.distinct_results]
    if math.isnan(run.mean_auroc(best)[0]):
        return "No method has an AUROC: the known or the unknown images are missing."
    value = f"AUROC {mean_in_words(run, best)}, {_of_which_images(run)}"
    if not others:
        return f"{best} tells unknown images apart with {value}."
    found = f"{best} tells unknown images apart best ({value})"
    if math.isnan(run.gap_to_best(others[0]).high):
        return f"{found}; too few images or replicates say whether others are worse."
    tied = tied_with_best(run)
    if not tied:
        return f"{found}; every other method is worse."
    return f"{found}; it cannot be told apart from {joined(tied)}."


def _of_which_images(run: Evaluation) -> str:
    groups = joined(map(label_of, run.groups))
    mean = f"mean of {groups}" if len(run.groups) > 1 else groups
    is_full = any(Split.parse(group).setting == FULL_SPECTRUM for group in run.groups)
    return f"{mean}, shifted images counting as known" if is_full else mean


def tied_with_best(evaluation: Evaluation) -> list[str]:
    """Return the methods whose paired difference to the best has an interval with zero in it."""
    others = [record.title for record in evaluation.distinct_results][1:]
    return [title for title in others if evaluation.gap_to_best(title).high >= 0]


def _main_table(runs: Sequence[Evaluation]) -> PageTable:
    groups = tuple(dict.fromkeys(group for run in runs for group in run.groups))
    named = zip(runs, run_names(runs), strict=True)
    rows = [row | {"run": Cell(name)} for run, name in named for row in _rows(run)]
    columns = [PageColumn(key="method", label="method", is_number=False)]
    if len(runs) > 1:
        columns.append(PageColumn(key="run", label="run", is_number=False))
    columns.append(
        PageColumn(
            key="family",
            label="family",
            is_number=False,
            is_shown=False,
            definition="What kind of arithmetic the method is.",
        )
    )
    labels = [label_of(group) for group in groups]
    if len(set(labels)) < len(labels):  # runs with and without shifted images
        labels = [str(group) for group in groups]
    columns.append(_mean_column())
    for group, label in zip(groups, labels, strict=True):
        columns += _group_columns(group, label)
    columns += [_gap_column(), _mistakes_column(), *_cost_columns()]
    caption = "Percent. Bold: the best of a column and all that cannot be told apart from it."
    return PageTable(columns=tuple(columns), rows=tuple(rows), caption=caption, name="methods")


def _mean_column() -> PageColumn:
    return PageColumn(
        key="mean",
        label="mean AUROC",
        direction="up",
        definition=f"The unweighted mean of AUROC over the groups of unknown images. {INTERVAL}",
        convention="groups are unweighted means over their sets, as in OpenOOD",
    )


def _group_columns(group: str, label: str) -> list[PageColumn]:
    setting = "shifted images count as known" if Split.parse(group).setting else "paper"
    titles = {AUROC: f"{label} AUROC", FPR: f"{label} FPR@95"}
    return [
        metric_column(f"{metric} {group}", metric, label=title, convention=setting)
        for metric, title in titles.items()
    ]


def _gap_column() -> PageColumn:
    return PageColumn(
        key="gap",
        label="behind the best",
        direction="up",
        definition="The difference of mean AUROC to the best method, measured on the same images.",
        convention="paired bootstrap; a method is tied if the interval includes zero, without "
        "correction for the number of methods",
    )


def _mistakes_column() -> PageColumn:
    return PageColumn(
        key="mistakes",
        label="mistakes AUROC",
        direction="up",
        is_shown=False,
        definition=f"How well the score detects misclassified known images. {INTERVAL}",
        convention="wrong known images against right ones (FACETS, table VII)",
    )


def _cost_columns() -> list[PageColumn]:
    about = {
        "passes": ("passes", "Forward and backward passes per image, the shared one included."),
        "fit": ("fit s", "Processor time of fitting in seconds, without the network."),
        "score": ("µs", "Processor time of scoring one image in microseconds, without the network"),
        "bytes": ("kB", "Memory of the fitted state in thousands of bytes."),
    }
    return [
        PageColumn(key=key, label=label, definition=text, direction="down", is_shown=False)
        for key, (label, text) in about.items()
    ]


def _rows(run: Evaluation) -> list[dict[str, Cell]]:
    best = {
        (metric, group): tied_in(run, metric, group)
        for group in run.groups
        for metric in (AUROC, FPR)
    }
    top = {run.distinct_results[0].title, *tied_with_best(run)}
    return [_row(run, record, best, top) for record in run.distinct_results]


def _row(
    run: Evaluation,
    record: MethodResult,
    best: Mapping[tuple[str, Split], set[str]],
    top: set[str],
) -> dict[str, Cell]:
    title, cost = record.title, record.cost
    values = run.mean_auroc(title)
    low, high = bounds_of(values)
    note = "" if math.isnan(low) else f"95 % interval {100 * low:.1f} to {100 * high:.1f}"
    number = float(values[0])
    cells = {
        "method": Cell(str(title)),
        "family": Cell(run.families.get(title, "")),
        "mean": Cell(percent(number), _finite(number), margin(low, high), note, title in top),
        "gap": _gap_cell(run, title),
        "mistakes": number_cell(result_of(record, AUROC, "misclassified")),
        "passes": Cell(f"{cost.forwards}+{cost.backwards}", float(cost.forwards + cost.backwards)),
        "fit": Cell(f"{cost.fit_seconds:.2f}", cost.fit_seconds),
        "score": Cell(f"{cost.microseconds_per_sample:.1f}", cost.microseconds_per_sample),
        "bytes": Cell(f"{cost.state_bytes / 1000:,.0f}", float(cost.state_bytes)),
    }
    for (metric, group), titles in best.items():
        found = result_of(record, metric, group)
        cells[f"{metric} {group}"] = number_cell(found, is_best=title in titles)
    return cells


def _gap_cell(run: Evaluation, title: str) -> Cell:
    gap = run.gap_to_best(title)
    if math.isnan(gap.value) or title == run.ranking()[0]:
        return Cell("", None)
    note = "" if math.isnan(gap.low) else f"95 % interval {percent(gap.low)} to {percent(gap.high)}"
    return Cell(percent(gap.value), gap.value, margin(gap.low, gap.high), note)


def _finite(value: float) -> float | None:
    return None if math.isnan(value) else value


def tied_in(run: Evaluation, metric: str, group: str) -> set[str]:
    """Return the best methods of a column: the best one and all that may be as good.

    A method is tied if the interval of its paired difference to the best includes zero.
    """
    sign = 1 if get_metric(metric).direction is Direction.HIGHER else -1
    values = {title: sign * replicates_of(run, title, metric, group) for title in run.methods}
    defined = {title: v for title, v in values.items() if not math.isnan(v[0])}
    if not defined:
        return set()
    best = max(defined.values(), key=lambda v: float(v[0]))
    return {
        title
        for title, v in defined.items()
        if v[0] == best[0] or (len(v) == len(best) and paired_difference(v, best).high >= 0)
    }


# --- sections


def _details(runs: Sequence[Evaluation]) -> Iterator[Section]:
    """Yield the questions about each run; of several runs about the first few."""
    builds: list[Build] = [
        near_and_far, overlap, curves, shift, refusal, confused_classes, close_in_meaning, cost,
        search, sensitivity, worst_images, left_out,
    ]  # fmt: skip
    for run, name in zip(runs[:N_DETAILED], run_names(runs), strict=False):
        for build in builds:
            section = build(run)
            if section is not None:
                question = f"{name}: {section.question}" if len(runs) > 1 else section.question
                yield replace(section, question=question)


def _across(runs: Sequence[Evaluation]) -> Iterator[Section]:
    if len(runs) > 1:
        yield methods_and_models(runs)


def methods_and_models(runs: Sequence[Evaluation]) -> Section:
    """Return which methods are good on which models."""
    rows = [
        (str(record.title), name, 100 * float(run.mean_auroc(record.title)[0]))
        for run, name in zip(runs, run_names(runs), strict=True)
        for record in run.distinct_results
    ]
    cells = chart_data({name: [row[k] for row in rows] for k, name in enumerate(GRID)})
    cells = cells.fill_nan(None)
    runs_and_means = (polars.len().alias("runs"), polars.col("auroc").mean())
    means = cells.group_by("method", maintain_order=True).agg(*runs_and_means)
    means = means.sort("runs", "auroc", descending=True, nulls_last=True, maintain_order=True)
    shown = means["method"].head(N_ROWS)
    data = shown.to_frame().join(cells, on="method", how="left", maintain_order="left_right")
    winners = list(dict.fromkeys(run.ranking()[0] for run in runs))
    verb = "is" if len(winners) == 1 else "are"
    more = len(runs) - N_DETAILED
    left = f" Figures of {count(more, 'further run')} are left out." if more > 0 else ""
    title = f"Mean AUROC of each method on each run, in percent{n_of(len(shown), len(means))}"
    return Section(
        question="Is one method best for every run?",
        sentence=f"Best on {len(runs)} runs {verb} {joined(winners)}. Methods that most runs have "
        f"come first: {shown[0]} has the highest mean of these.{left}",
        parts=(
            Chart(
                title=title,
                spec=heat_map(data, "run", "method", "auroc", digits=1, least=50),
                data=data,
                description="A grid of methods and runs with mean AUROC in percent.",
                definition="Mean AUROC over the groups of unknown images of each benchmark; 50, "
                "which is not shaded, is chance. Intervals are in the table.",
                is_wide=True,
            ),
        ),
    )


def near_and_far(run: Evaluation) -> Section | None:
    """Return whether methods that are good on the first group are good on the others."""
    if len(run.groups) < 2:
        return None
    first, *others = run.groups
    best = [_best_on(run, group) for group in run.groups]
    return Section(
        question="Is a method that is good near also good far?",
        sentence=f"One point per method. The best are {joined(best)}.",
        parts=tuple(_group_against(run, first, group) for group in others),
    )


def _best_on(run: Evaluation, group: str) -> str:
    values = [value_of(record, AUROC, group) for record in run.distinct_results]
    record = run.distinct_results[int(np.argmax(np.nan_to_num(values, nan=-1)))]
    return f"{record.title} on {label_of(group)} ({in_words(record, AUROC, group)})"


def _group_against(run: Evaluation, first: str, second: str) -> Chart:
    """Draw one group against another, one point with its intervals per method."""
    rows: list[list[float]] = []
    titles: list[str] = []
    for record in run.distinct_results:
        pair = [result_of(record, AUROC, group) for group in (first, second)]
        values = [100 * v for r in pair if r is not None for v in (r.value, r.low, r.high)]
        if len(values) == 6 and not math.isnan(values[0] + values[3]):
            titles.append(str(record.title))
            rows.append(values)
    names = ("x", "x_low", "x_high", "y", "y_low", "y_high")
    columns = {name: [row[k] for row in rows] for k, name in enumerate(names)}
    data = chart_data({"method": titles, **columns})
    a, b = label_of(first), label_of(second)
    n_worse = sum(row[3] < row[0] for row in rows)
    renamed = {name: name.replace("x", a, 1).replace("y", b, 1) for name in names}
    return Chart(
        title=f"{n_worse} of {count(len(rows), 'method')} do worse on {b} than on {a} images",
        spec=against(data, f"AUROC on {a} images, %", f"AUROC on {b} images, %"),
        data=data.rename(renamed),
        description=f"AUROC on {b} against AUROC on {a} unknown images, one point per method.",
        definition="AUROC: the chance that an unknown image scores above a known one. Thin bars "
        "are 95 % bootstrap intervals; on the dashed line both are equal; 50 is chance.",
        convention="groups are unweighted means over their sets",
    )


# --- cost and parameters


def cost(run: Evaluation) -> Section | None:
    """Return what each method costs, against how good it is."""
    rows = [
        (str(r.title), max(r.cost.microseconds_per_sample, 0.01), 100 * float(mean), _passes(r))
        for r in run.distinct_results
        if not math.isnan(mean := run.mean_auroc(r.title)[0])
    ]
    if not rows:
        return None
    names = ("method", "microseconds", "y", "passes")
    data = chart_data({name: [row[k] for row in rows] for k, name in enumerate(names)})
    cheap = [title for title, time, _, passes in rows if time <= CHEAP and passes == ONE_PASS]
    best = f"{cheap[0]} (mean AUROC {mean_in_words(run, cheap[0])})" if cheap else "none"
    return Section(
        question="What does each method cost?",
        sentence=f"Of the methods that need one pass of the network and at most {CHEAP} µs beside "
        f"it, the best is {best}.",
        parts=(_cost_chart(data),),
    )


def _passes(record: MethodResult) -> str:
    return ONE_PASS if (record.cost.forwards, record.cost.backwards) == (1, 0) else MORE


def _cost_chart(data: polars.DataFrame) -> Chart:
    data = data.with_columns(x=polars.col("microseconds").log10())
    (left, right), (low, high) = (
        (
            math.floor(float(values.min()) / step) * step,
            math.ceil(float(values.max()) / step) * step,
        )
        for values, step in ((data["x"].to_numpy(), 1), (data["y"].to_numpy(), 5))
    )
    right, high = max(right, left + 1), max(high, low + 5)
    powers = altair.Axis(values=list(range(left, right + 1)), labelExpr="pow(10, datum.value)")
    time = altair.Scale(domain=[left, right], nice=False)
    x = altair.X("x:Q", scale=time, axis=powers, title="µs per image, without the network")
    y = altair.Y("y:Q", scale=altair.Scale(domain=[low, high], nice=False), title="mean AUROC, %")
    kinds = [kind for kind in (ONE_PASS, MORE) if kind in data["passes"]]
    colors = altair.Scale(domain=kinds, range=[PALETTE["ink"], PALETTE["near"]][: len(kinds)])
    color = altair.Color("passes:N", scale=colors, legend=altair.Legend(title=None))
    points = altair.Chart(data).mark_point().encode(x=x, y=y, color=color)
    return Chart(
        title="Quality against the time of scoring one image",
        spec=points + name_labels(data, x, y, ((left, right), (low, high))),
        data=data.drop("x").rename({"y": "mean_auroc"}),
        description="Mean AUROC against microseconds per image, one point per method.",
        definition="Processor time on the machine of the run, without the network. Methods that "
        "need further passes of the network cost many times more; the table counts them.",
    )


def search(run: Evaluation) -> Section | None:
    """Return whether parameters chosen on validation data beat the default ones."""
    tuned = [record for record in run.distinct_results if record.title.tuned]
    pairs = [(run.methods[r.method], r) for r in tuned if r.method in run.methods]
    if not pairs:
        return None
    means = {
        record.title: 100 * float(run.mean_auroc(record.title)[0])
        for pair in pairs
        for record in pair
    }
    rows = [(a.method, means[a.title], means[b.title]) for a, b in pairs][:N_ROWS]
    data = chart_data({name: [row[k] for row in rows] for k, name in enumerate(PAIR)})
    gains = [_gain(run, default.title, best.title) for default, best in pairs]
    same = run.unchanged_by_search()
    return Section(
        question="Do searched parameters beat the default ones?",
        sentence=f"The search is better for {count(gains.count(1), 'method')}, worse for "
        f"{gains.count(-1)} and cannot be told apart for {gains.count(0)}"
        + (f"; it changed no number of {joined(same)}." if same else "."),
        parts=(
            Chart(
                title="Mean AUROC with default and with searched parameters",
                spec=dumbbells(data, "method", "mean AUROC, %", ("default", "searched")),
                data=data.rename({"first": "default", "second": "searched"}),
                description="Mean AUROC of each method with default and searched parameters.",
                definition="Parameters are chosen by AUROC on known and unknown validation images, "
                "none of which is tested.",
            ),
            _chosen_table(pairs),
        ),
    )


def _gain(run: Evaluation, default: str, tuned: str) -> int:
    """Return 1 where the search is better, -1 where it is worse, 0 where nobody can say."""
    gap = paired_difference(run.mean_auroc(tuned), run.mean_auroc(default))
    return int(gap.low > 0) - int(gap.high < 0)


def _chosen_table(pairs: Sequence[tuple[MethodResult, MethodResult]]) -> PageTable:
    columns = (
        PageColumn(key="method", label="method", is_number=False),
        PageColumn(key="default", label="default", is_number=False),
        PageColumn(key="searched", label="searched", is_number=False),
        PageColumn(key="points", label="points tried"),
    )
    rows = tuple(
        {
            "method": Cell(default.method),
            "default": Cell(parameters_in_words(default.parameters)),
            "searched": Cell(parameters_in_words(tuned.parameters)),
            "points": Cell(str(n := len(tuned.search.curve if tuned.search else ())), float(n)),
        }
        for default, tuned in pairs
    )
    return PageTable(columns=columns, rows=rows, name="parameters")


def sensitivity(run: Evaluation) -> Section | None:
    """Return how much AUROC depends on the parameters."""
    records = {r.method: r.search.curve for r in run.results if r.search is not None}
    rows = [
        (
            method,
            100 * point.auroc,
            "default" if k == 0 else "other",
            parameters_in_words(point.parameters),
        )
        for method, curve in records.items()
        for k, point in enumerate(curve)
        if point.auroc is not None
    ]
    ranges = {
        method: (min(values), max(values))
        for method in records
        if len(values := [row[1] for row in rows if row[0] == method]) > 1
    }
    if not ranges:
        return None
    order = sorted(ranges, key=lambda method: ranges[method][0] - ranges[method][1])[:N_ROWS]
    rows = [row for row in rows if row[0] in order]
    names = ("method", "auroc", "kind", "parameters")
    data = chart_data({name: [row[k] for row in rows] for k, name in enumerate(names)})
    widest = order[0]
    low, high = ranges[widest]
    return Section(
        question="How much do parameters matter?",
        sentence=f"{widest} depends most on its parameters: from {low:.1f} to {high:.1f} AUROC on "
        f"validation images.",
        parts=(_sensitivity_chart(data, order),),
    )


def _sensitivity_chart(data: polars.DataFrame, order: Sequence[str]) -> Chart:
    colors = altair.Scale(domain=["default", "other"], range=[PALETTE["near"], PALETTE["muted"]])
    base = altair.Chart(data).encode(
        x=altair.X(
            "auroc:Q", title="AUROC on validation images, %", scale=altair.Scale(zero=False)
        ),
        y=altair.Y("method:N", sort=list(order), title=None),
    )
    ticks = base.transform_filter("datum.kind == 'other'").mark_tick(thickness=1.5, height=12)
    default = base.transform_filter("datum.kind == 'default'").mark_point(size=60)
    color = altair.Color("kind:N", scale=colors, legend=altair.Legend(title=None))
    spec = (ticks.encode(color=color) + default.encode(color=color)).properties(
        height=max(22 * len(order), 60)
    )
    return Chart(
        title="AUROC of every point of the search grid",
        spec=spec,
        data=data,
        description="AUROC on validation images of each parameter setting, by method.",
        definition="One mark per setting that the search tried, measured once, without an "
        "interval; the dot is the default.",
    )


def left_out(run: Evaluation) -> Section | None:
    """Return what is not on the page, and why."""
    reasons = {
        "Shift": "the benchmark has no shifted images."
        if not any(scored.group == SHIFTED for scored in run.sets)
        else "",
        "Parameters": "no search was run (incognita run --search)."
        if not any(record.search for record in run.methods.values())
        else "",
        "Refusing": "no known image is misclassified, or the labels are not stored."
        if refusal(run) is None
        else "",
    }
    missing = [f"{what}: {why}" for what, why in reasons.items() if why]
    if not missing:
        return None
    return Section(question="What is not on this page?", sentence=" ".join(missing))
