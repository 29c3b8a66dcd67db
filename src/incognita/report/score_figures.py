"""Figures of scores: how known and unknown images overlap, and what thresholds do to them."""

import math
from collections.abc import Sequence

import altair
import numpy as np
import polars

from incognita.benchmarks.benchmark import KNOWN, SHIFTED
from incognita.metrics.measure import Interval, MetricValue, interval_of, mean_of_values, share_of
from incognita.metrics.ranking import roc_points
from incognita.metrics.selective import risk_coverage
from incognita.report.charts import MAX_POINTS, PALETTE, Chart, chart_data, thinned
from incognita.report.drawings import DASHED, dumbbells, group_colors
from incognita.report.numbers import joined, n_of, with_margin
from incognita.report.page import Section
from incognita.results.analysis import value_of
from incognita.results.evaluation import Evaluation
from incognita.results.method_result import MethodResult
from incognita.results.result import FULL_SPECTRUM, Result, Split
from incognita.results.score_tables import ScoredSet, known_sets

AUROC, FPR = "auroc", "fpr_at_95_unknown_recall"
N_HISTOGRAMS, N_BINS, N_CURVES = 4, 40, 6  # methods with histograms, their bins, risk curves
N_ROWS = 20  # methods of a figure with one row each
KNOWN_ACCEPTED = 0.95  # share of known test images at or below the threshold of tables
LINES = ("ink", "near", "far", "farther", "rejected", "shifted")  # colors of up to six methods
PAIR = ("method", "first", "second")


def label_of(group: str) -> str:
    """Return how a group of unknown images is called in sentences and figures.

    The full-spectrum setting is a fact of the whole page, and not repeated.
    """
    return Split.parse(group).group


def mean_in_words(run: Evaluation, title: str) -> str:
    """Return the mean AUROC of a method with its margin."""
    values = run.mean_auroc(title)
    return with_margin(float(values[0]), *bounds_of(values))


def bounds_of(values: np.ndarray) -> Interval:
    """Return the interval of a value and its replicates."""
    return interval_of(MetricValue(values, {}, "undefined"))


def in_words(record: MethodResult, metric: str, group: str) -> str:
    """Return a result in percent with its margin."""
    found = result_of(record, metric, group)
    return "undefined" if found is None else with_margin(found.value, found.low, found.high)


def result_of(record: MethodResult, metric: str, split: str) -> Result | None:
    """Return a result in its first convention; None where it was not measured."""
    found = (r for r in record.results if (r.metric, r.split) == (metric, split))
    return next(found, None)


def best_scored(run: Evaluation) -> str | None:
    """Return the best method whose scores are stored."""
    return next(iter(some_methods(run, 1)), None)


def some_methods(run: Evaluation, n: int) -> list[str]:
    """Return the best methods with stored scores; the last is MSP, the baseline, if there is room.

    Tuned methods that repeat the default numbers are left out.
    """
    titles = [str(r.title) for r in run.distinct_results if run.scores.get(r.title)]
    few = titles[:n]
    has_room = n > 1 and "msp" in titles and "msp" not in few
    return [*few[:-1], "msp"] if has_room else few


def replicates_of(run: Evaluation, title: str, metric: str, group: str) -> np.ndarray:
    """Return a value and its replicates; the value alone where there are none."""
    measured, key = run.measured.get(title, {}), (metric, Split.parse(group))
    return measured[key] if key in measured else np.array([value_of(run.methods[title], *key)])


# --- histograms


def overlap(run: Evaluation) -> Section | None:
    """Return how the scores of known and unknown images overlap."""
    titles = some_methods(run, N_HISTOGRAMS)
    if not titles:
        return None
    parts = tuple(_histogram(run, title) for title in titles)
    return Section(
        question="Where do known and unknown images overlap?",
        sentence=f"Shares of the images of each group by their score, of {joined(titles)}. "
        f"The less an unknown group overlaps with the known images, the easier it is.",
        parts=parts,
    )


def histogram(run: Evaluation, title: str, n_bins: int = N_BINS) -> polars.DataFrame:
    """Return the share of images of each group in each bin of the score.

    Bins are of equal width between the quantiles 0.5 % and 99.5 % of all scores; what lies beyond
    is counted in the first and the last one.
    """
    by_group = scores_by_group(run, title)
    low, high = np.quantile(np.concatenate(list(by_group.values())), [0.005, 0.995])
    edges = np.linspace(low, high if high > low else low + 1, n_bins + 1)
    parts = []
    for group, scores in by_group.items():
        counts, _ = np.histogram(np.clip(scores, edges[0], edges[-1]), edges)
        share = 100 * counts / max(len(scores), 1)
        frame = chart_data({"low": edges[:-1], "high": edges[1:], "share": share})
        parts.append(frame.select(polars.lit(group).alias("group"), polars.all()))
    return polars.concat(parts)


def _histogram(run: Evaluation, title: str) -> Chart:
    data = histogram(run, title)
    groups = list(data["group"].unique(maintain_order=True))
    x = altair.X("low:Q", title="unknown score", scale=altair.Scale(zero=False, nice=False))
    base = altair.Chart(data).encode(x=x, color=group_colors(groups))
    y = altair.Y("share:Q", title="images of the group, %", stack=None)
    area = base.mark_area(interpolate="step-after", opacity=0.12).encode(y=y)
    dashes = [[4, 2] if group == SHIFTED else [1, 0] for group in groups]
    dash = altair.StrokeDash(
        "group:N", legend=None, scale=altair.Scale(domain=groups, range=dashes)
    )
    line = base.mark_line(interpolate="step-after").encode(y=y, strokeDash=dash)
    record = run.methods[title]
    aurocs = joined(f"{in_words(record, AUROC, g)} {label_of(g)}" for g in run.groups)
    return Chart(
        title=f"{title}: AUROC {aurocs}",
        spec=(area + line).properties(height=170),
        data=data,
        description=f"Histogram of the unknown score of {title} for {joined(groups)} images.",
        definition=f"{N_BINS} bins between the quantiles 0.5 % and 99.5 % of all scores; what lies "
        f"beyond is counted in the first and the last bin. A higher score means more unknown.",
    )


def group_rows(
    run: Evaluation, title: str, group: str
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return scores, truth and weights of a group against the known images.

    Every set of the group counts the same, so that the area under the ROC curve is the mean AUROC
    of its sets.
    """
    split = Split.parse(group)
    known = known_sets(run.sets, with_shifted=split.setting == FULL_SPECTRUM)
    unknown = [s for s in run.sets if s.group == split.group and len(s)]
    n_unknown = sum(map(len, unknown))
    parts = [(s, 1.0) for s in known]
    parts += [(s, n_unknown / (len(unknown) * len(s))) for s in unknown]
    scores = np.concatenate([run.scores[title][s.name] for s, _ in parts])
    is_unknown = np.concatenate([np.full(len(s), s.is_unknown) for s, _ in parts])
    return scores, is_unknown, np.concatenate([np.full(len(s), weight) for s, weight in parts])


def roc_and_pr(run: Evaluation, title: str) -> polars.DataFrame:
    """Return the share of known and of unknown images flagged, and the precision, by threshold."""
    parts = []
    for group in run.groups:
        scores, is_unknown, weights = group_rows(run, title, group)
        points = roc_points(scores, is_unknown, weights=weights)
        false_alarms, recall = 1 - points.known_recall, points.unknown_recall
        n_unknown, n_known = weights[is_unknown].sum(), weights[~is_unknown].sum()
        flagged = recall * n_unknown + false_alarms * n_known
        nothing = np.full_like(recall, np.nan)  # where no image is flagged
        precision = np.divide(recall * n_unknown, flagged, out=nothing, where=flagged > 0)
        columns = {"recall": recall, "false_alarms": false_alarms, "precision": precision}
        curve = chart_data({name: 100 * values for name, values in columns.items()})
        chance = 100 * n_unknown / (n_unknown + n_known)
        curve = curve.fill_nan(None).with_columns(
            group=polars.lit(label_of(group)), chance=polars.lit(chance)
        )
        parts.append(_thinned_along(curve))
    return polars.concat(parts)


def _thinned_along(curve: polars.DataFrame) -> polars.DataFrame:
    """Return a curve with points evenly spaced along its length, not over thresholds."""
    steps = np.hypot(np.diff(curve["false_alarms"]), np.diff(curve["recall"]))
    length = np.append(0.0, np.cumsum(steps))
    places = np.searchsorted(length, np.linspace(0, length[-1], MAX_POINTS // 2))
    rows = np.unique(np.append(np.minimum(places, curve.height - 1), [0, curve.height - 1]))
    return curve[rows]


def curves(run: Evaluation) -> Section | None:
    """Return how many false alarms it costs to find the unknown images."""
    best = best_scored(run)
    if best is None:
        return None
    data = roc_and_pr(run, best)
    groups = list(data["group"].unique(maintain_order=True))
    record = run.methods[best]
    at = [f"{in_words(record, FPR, group)} for {label_of(group)}" for group in run.groups]
    return Section(
        question="What does finding the unknown images cost in false alarms?",
        sentence=f"To flag 95 % of the unknown images, {best} also flags some of the known ones, "
        f"in percent: {joined(at)}.",
        parts=(_roc(data, groups, best), _pr(data, groups, best)),
    )


def _roc(data: polars.DataFrame, groups: Sequence[str], title: str) -> Chart:
    scale = altair.Scale(domain=[0, 100])
    x = altair.X("false_alarms:Q", title="known images flagged, %", scale=scale)
    y = altair.Y("recall:Q", title="unknown images flagged, %", scale=scale)
    ends = altair.Chart(chart_data({"false_alarms": [0, 100], "recall": [0, 100]}))
    dashed = ends.mark_line(strokeDash=DASHED, strokeWidth=1, color=PALETTE["muted"])
    lines = altair.Chart(data).mark_line()
    lines = lines.encode(x=x, y=y, color=group_colors(groups), order="recall:Q")
    return Chart(
        title=f"ROC curves of {title}",
        spec=dashed.encode(x=x, y=y) + lines,
        data=data.select("group", "false_alarms", "recall"),
        description=f"Unknown images flagged against known images flagged by {title}.",
        definition="Each point is a threshold on the score. The dashed line is chance.",
        convention="unknown is positive; every set of a group counts the same, so that the area is "
        "the AUROC of the table",
    )


def _pr(data: polars.DataFrame, groups: Sequence[str], title: str) -> Chart:
    scale = altair.Scale(domain=[0, 100])
    x = altair.X("recall:Q", title="unknown images flagged, %", scale=scale)
    y = altair.Y("precision:Q", title="flagged images that are unknown, %", scale=scale)
    data = data.filter(polars.col("precision").is_not_null())
    color = group_colors(groups)
    lines = altair.Chart(data).mark_line().encode(x=x, y=y, color=color, order="recall:Q")
    levels = data.group_by("group", maintain_order=True).agg(polars.col("chance").first())
    dashed = altair.Chart(levels).mark_rule(strokeDash=DASHED)
    chance = dashed.encode(y=altair.Y("chance:Q", scale=scale), color=color)
    return Chart(
        title=f"Precision and recall of {title}",
        spec=lines + chance,
        data=data.select("group", "recall", "precision", "chance"),
        description=f"Precision against recall of the unknown images flagged by {title}.",
        definition="Precision depends on how many images are unknown: here as many as in each "
        "group. The dashed lines are chance.",
        convention="unknown is positive; every set of a group counts the same",
    )


def shift(run: Evaluation) -> Section | None:
    """Return whether shifted images of known classes are taken for unknown ones."""
    if not any(scored.group == SHIFTED for scored in run.sets):
        return None
    means = {str(r.title): _both_settings(run, r.title) for r in run.distinct_results}
    means = {title: (a, b) for title, (a, b) in means.items() if not math.isnan(a[0] + b[0])}
    best = next((title for title in means if run.scores.get(title)), None)
    if best is None:
        return None
    before, after = (with_margin(float(v[0]), *bounds_of(v)) for v in means[best])
    few = list(means)[:N_ROWS]
    values = [[100 * float(means[title][k][0]) for title in few] for k in (0, 1)]
    data = chart_data({"method": few, "first": values[0], "second": values[1]})
    spec = dumbbells(data, "method", "mean AUROC, %", ("standard", "full spectrum"))
    return Section(
        question="Does shift look like novelty?",
        sentence=f"With shifted images counted as known, the mean AUROC of {best} goes from "
        f"{before} to {after}. Where it flags 5 % of the known test images, it flags "
        f"{joined(_flagged_shares(run, best))}.",
        parts=(
            Chart(
                title="Mean AUROC without and with shifted images among the known ones"
                + n_of(len(few), len(means)),
                spec=spec,
                data=data.rename({"first": "standard", "second": "full_spectrum"}),
                description="Mean AUROC of each method in the standard and full-spectrum setting.",
                definition="Standard: known test images against unknown ones. Full spectrum: "
                "images of known classes that look different count as known, too.",
                convention="unweighted means over groups, as in OpenOOD",
            ),
        ),
    )


def _both_settings(run: Evaluation, title: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean AUROC and its replicates without and with shifted images."""
    groups = [Split.parse(group).group for group in run.groups]
    plain, full = (
        mean_of_values([replicates_of(run, title, AUROC, Split(g, setting=s)) for g in groups])
        for s in (None, FULL_SPECTRUM)
    )
    return plain, full


def _flagged_shares(run: Evaluation, title: str) -> list[str]:
    by_group = scores_by_group(run, title)
    threshold = known_threshold(by_group[KNOWN])
    return [
        f"{_share(scores > threshold)} of the {group} ones"
        for group, scores in by_group.items()
        if group != KNOWN and len(scores)
    ]


def refusal(run: Evaluation) -> Section | None:
    """Return how the error falls when the classifier may refuse doubtful images."""
    test = next((s for s in run.sets if s.group == KNOWN), None)
    titles = some_methods(run, N_CURVES)
    if test is None or test.labels is None or not titles:
        return None
    is_wrong = test.predicted != test.labels
    if not is_wrong.any():
        return None
    data = _risk_curves(run, test, is_wrong, titles)
    areas = {title: value_of(run.methods[title], "aurc", "misclassified") for title in titles}
    best = min(areas, key=lambda title: areas[title])
    kept = np.argsort(run.scores[best][test.name], kind="stable")[: math.ceil(0.8 * len(test))]
    return Section(
        question="What does refusing to answer buy?",
        sentence=f"If every known image is answered, {_share(is_wrong)} are wrong. If the fifth "
        f"with the highest scores of {best} is refused, {_share(is_wrong[kept])} of the rest are.",
        parts=(_risk_chart(data, titles, best),),
    )


def _share(is_counted: np.ndarray) -> str:
    share = share_of(int(is_counted.sum()), len(is_counted))
    return with_margin(share.value, share.low, share.high, " %")


def _risk_curves(
    run: Evaluation, test: ScoredSet, is_wrong: np.ndarray, titles: Sequence[str]
) -> polars.DataFrame:
    ordered = {title: run.scores[title][test.name] for title in titles}
    ordered["best possible"] = is_wrong.astype(np.float64)
    parts = []
    for title, scores in ordered.items():
        curve = risk_coverage(scores, is_wrong)
        frame = chart_data({"coverage": 100 * curve.coverage, "risk": 100 * curve.risk})
        # below a twentieth a few images decide
        frame = thinned(frame.filter(polars.col("coverage") >= 5), MAX_POINTS // 2)
        parts.append(frame.with_columns(method=polars.lit(title)))
    return polars.concat(parts)


def _risk_chart(data: polars.DataFrame, titles: Sequence[str], best: str) -> Chart:
    names = [*titles, "best possible"]
    colors = [*(PALETTE[name] for name in LINES[: len(titles)]), PALETTE["muted"]]
    dashes = [*([1, 0] for _ in titles), DASHED]
    color_scale = altair.Scale(domain=names, range=colors)
    dash_scale = altair.Scale(domain=names, range=dashes)
    legend = altair.Legend(title=None, symbolType="stroke", columns=4)
    lines = altair.Chart(data).mark_line()
    spec = lines.encode(
        x=altair.X("coverage:Q", title="known images answered, %"),
        y=altair.Y("risk:Q", title="answers that are wrong, %"),
        color=altair.Color("method:N", scale=color_scale, legend=legend),
        strokeDash=altair.StrokeDash("method:N", legend=None, scale=dash_scale),
    )
    return Chart(
        title=f"The lowest error over all coverages is that of {best}",
        spec=spec,
        data=data,
        description="Share of wrong answers against the share of known images answered.",
        definition="Images are refused from the highest score down. Coverage starts at 5 %; below, "
        "a few images decide. Best possible: all wrong answers are refused first.",
        convention="known test images only; ties are taken at random",
    )


def scores_by_group(run: Evaluation, title: str) -> dict[str, np.ndarray]:
    """Return the scores of a method, one array per group of images."""
    groups = dict.fromkeys(scored.group for scored in run.sets)
    return {
        group: np.concatenate([run.scores[title][s.name] for s in run.sets if s.group == group])
        for group in groups
    }


def known_threshold(scores: np.ndarray) -> float:
    """Return the lowest score at or below which 95 % of the known images lie.

    >>> known_threshold(np.arange(100.0))
    94.0
    """
    return float(np.quantile(scores, KNOWN_ACCEPTED, method="inverted_cdf"))
