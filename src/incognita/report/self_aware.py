"""The page of a self-aware detector: DAQ, what it is made of, and why it is as good as it is."""

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import altair
import polars

from incognita._version import __version__
from incognita.errors import IncognitaError, UnknownNameError, count
from incognita.evaluation.gallery import PAIRS
from incognita.files import load_json
from incognita.metrics.catalog import get_metric
from incognita.report.cells import half_interval, has_interval, number_cell, shown
from incognita.report.charts import PALETTE, Chart, chart_data, group_color
from incognita.report.drawings import interval_data
from incognita.report.page import Cell, Gallery, Page, PageColumn, PageTable, Picture, Section
from incognita.report.pictures import PictureBudget
from incognita.results.export import Report
from incognita.results.result import Result
from incognita.results.self_aware import SelfAwareReport, SelfAwareStudy

N_CLASSES = 40  # rows of a chart of classes; its data has all
N_PER_GALLERY = 16
_POOLED = "unknown/pooled"  # all unknown sets together
_BEFORE = "before"  # the column of the detector as it is
_STEPS = {"v": "confidence thresholds", "calibrator": "calibrator", "u_chosen": "image threshold"}
_WORDS = {
    "lrp_localization": "boxes that fit badly (1 - IoU)",
    "lrp_false_positive": "boxes on nothing (1 - precision)",
    "lrp_false_negative": "objects that are missed (1 - recall)",
}
_KINDS = {
    "rejected": ("Rejected unknown scenes", "Those that were nearly accepted come first."),
    "calibrated": ("Accepted known scenes", "Boxes with the confidence before and after."),
    "corrupted": ("The same scenes, shifted", "The more severe, the more are rejected."),
    "failures": (
        "Failures",
        "Unknown scenes that are accepted and known ones that are rejected, the clearest first.",
    ),
}
_Rows = Sequence[Mapping[str, Any]]


def build_page(
    reports: Sequence[SelfAwareReport | SelfAwareStudy], *, is_brief: bool = False
) -> Page:
    """Return the page of self-aware runs, or of studies; a brief one has no sections."""
    first = reports[0]
    studies = [_study_of(report) for report in reports]
    sections: list[Section] = []
    if not is_brief:
        for report, study in zip(reports, studies, strict=True):
            sections += _sections(report, study)
    return Page(
        title=_title(first),
        answer=" ".join(answer(report) for report in reports),
        facts=tuple(pair for report in reports for pair in _facts(report)),
        notes=tuple(dict.fromkeys(_notes(reports, studies))),
        table=_table([report for report in reports if isinstance(report, SelfAwareReport)]),
        sections=tuple(sections),
        footer=_footer(reports),
    )


def _notes(
    reports: Sequence[Report], studies: Sequence[SelfAwareStudy | None]
) -> Iterator[tuple[str, str]]:
    for report, study in zip(reports, studies, strict=True):
        yield from report.remarks()
        if study is not None and study is not report:
            yield from study.remarks()


def _study_of(report: Report) -> SelfAwareStudy | None:
    return report if isinstance(report, SelfAwareStudy) else getattr(report, "study", None)


def _title(report: SelfAwareReport | SelfAwareStudy) -> str:
    named = [str(report.inputs[key]) for key in ("model", "benchmark") if key in report.inputs]
    return f"{' on '.join(named) or 'A detector'}, self-aware"


def answer(report: SelfAwareReport | SelfAwareStudy) -> str:
    """Return DAQ and what it is made of in one or two sentences."""
    if isinstance(report, SelfAwareStudy):
        return _answer_of_study(report)
    daq = _find(report.results, "detection_awareness_quality", "all")
    before = _find(report.before, "detection_awareness_quality", "all")
    parts = {
        "it accepts {} % of known images": _find(report.results, "known_accepted", "unknown"),
        "rejects {} % of unknown ones": _find(report.results, "unknown_rejected", "unknown"),
        "and its confidence is off by {} % (LaECE)": _find(report.results, "laece", "known"),
    }
    said = [text.format(_with_margin(r)) for text, r in parts.items() if r is not None]
    if daq is None or math.isnan(daq.value):
        why = "it was not measured" if daq is None else str(daq.reason)
        return f"There is no DAQ: {why}. {', '.join(said).capitalize()}.".replace(" .", "")
    earlier = "" if before is None else f", {shown(before.metric, before.value)} % before"
    return (
        f"The self-aware detector has a DAQ of {_with_margin(daq)} %{earlier}: {', '.join(said)}."
    )


def _answer_of_study(study: SelfAwareStudy) -> str:
    rows = [row for row in _rows(study, "ablation") if row.get("daq") is not None]
    if not rows:
        return "The choices of a self-aware detector were studied; DAQ could not be measured."
    first, last = rows[0]["daq"], rows[-1]["daq"]
    return (
        f"With all choices fitted DAQ is {100 * last:.1f} %, with none of them {100 * first:.1f} %."
    )


def _find(results: Sequence[Result], metric: str, split: str) -> Result | None:
    return next((r for r in results if (r.metric, r.split) == (metric, split)), None)


def _with_margin(result: Result) -> str:
    margin = f" (±\N{NO-BREAK SPACE}{shown(result.metric, half_interval(result))})"
    return shown(result.metric, result.value) + (margin if has_interval(result) else "")


def _facts(report: SelfAwareReport | SelfAwareStudy) -> Iterator[tuple[str, str]]:
    for key in ("model", "benchmark", "version", "convention", "box filter", "tau", "rules"):
        if report.inputs.get(key) is not None:
            yield key, str(report.inputs[key])
    if isinstance(report, SelfAwareReport):
        daq = _find(report.results, "detection_awareness_quality", "all")
        if daq is not None:
            images = ", ".join(f"{n:,} {what}" for what, n in daq.support.items())
            yield "images", images
        yield "convention", ", ".join(dict.fromkeys(r.convention for r in report.results))


def _footer(reports: Sequence[SelfAwareReport | SelfAwareStudy]) -> tuple[tuple[str, str], ...]:
    entries = [
        (key, str(report.inputs[key]))
        for report in reports
        for key in ("definition_hash", "seed", "files")
        if report.inputs.get(key) is not None
    ]
    return (*entries, ("page", f"incognita {__version__}"))


def _table(reports: Sequence[SelfAwareReport]) -> PageTable | None:
    """Return one row per metric and set of images, the detector as it is beside it."""
    if not reports:
        return None
    has_before = any(report.before for report in reports)
    rows = []
    for report in reports:
        main = report.main_results()
        earlier = {(r.split, r.metric): r for r in report.before}
        for result in [*main, *(r for r in report.results if r not in main)]:
            info = get_metric(result.metric)
            row = {
                "metric": Cell(f"{info.title} {info.direction.arrow}", note=info.meaning),
                "images": Cell(str(result.split)),
                "after": number_cell(result),
            }
            if (before := earlier.get((result.split, result.metric))) is not None:
                row[_BEFORE] = number_cell(before)
            if len(reports) > 1:
                row["model"] = Cell(str(report.inputs.get("model", "?")))
            rows.append(row)
    names = ["model"] if len(reports) > 1 else []
    columns = [PageColumn(key=n, label=n, is_number=False) for n in (*names, "metric", "images")]
    if has_before:
        columns.append(
            PageColumn(
                key=_BEFORE,
                label="before",
                definition="The detector as it is: boxes above 0.5, not calibrated, 95 % of the "
                "validation images accepted. In percent.",
            )
        )
    columns.append(
        PageColumn(
            key="after",
            label="self-aware",
            definition="With the fitted image threshold, confidence thresholds and calibrators. "
            "In percent, with half of the 95 % bootstrap interval over images.",
        )
    )
    caption = "Percent; ↑ higher is better, ↓ lower is better. Click a metric for its meaning."
    return PageTable(columns=tuple(columns), rows=tuple(rows), caption=caption, name="awareness")


# --- sections -----------------------------------------------------------------------------------


def _sections(
    report: SelfAwareReport | SelfAwareStudy, study: SelfAwareStudy | None
) -> Iterator[Section]:
    if study is None:
        yield Section(
            question="Why is it as good as it is?",
            sentence="The choices were not studied: run the benchmark with a folder (--out, out=), "
            "or `incognita selfaware study`.",
            anchor="study",
        )
    else:
        parts = (ablation(study), uncertainty(study), ranking(study), reliability(study))
        yield from filter(None, parts)
    if isinstance(report, SelfAwareReport):
        yield from filter(None, (error_parts(report), severity(report), unknown_sets(report)))
    if study is not None:
        yield from filter(None, (sensitivity(study), thresholds(study), calibrators(study)))
    if isinstance(report, SelfAwareReport):
        yield pictures(report)


def _rows(study: SelfAwareStudy, name: str) -> _Rows:
    try:
        return study.get(name).rows
    except UnknownNameError:
        return ()


def _percents(rows: _Rows, name: str) -> list[float | None]:
    return [None if row.get(name) is None else 100 * float(row[name]) for row in rows]


def ablation(study: SelfAwareStudy) -> Section | None:
    """Show DAQ while the choices are made one after the other (table 7)."""
    rows = [row for row in _rows(study, "ablation") if row.get("daq") is not None]
    if len(rows) < 2:
        return None
    names = _steps(rows)
    keys = ("daq", "ba", "idq", "idq_t")
    chosen = {key: [str(row.get(key, "")) for row in rows] for key in _STEPS}
    data = chart_data({"step": names, **chosen, **{key: _percents(rows, key) for key in keys}})
    gains = data["daq"].diff().to_list()[1:]
    most = max(range(len(gains)), key=lambda k: gains[k])
    first, last = data["daq"][0], data["daq"][-1]
    moves = "rises" if last > first else "falls"
    finding = f"DAQ {moves} from {first:.1f} to {last:.1f} %"
    if f"{first:.1f}" == f"{last:.1f}":
        finding = f"The choices leave DAQ at {last:.1f} %"
    return Section(
        question="Which choice makes the difference?",
        sentence=(
            f"Choices are added from top to bottom; the largest step, {gains[most]:+.1f} points, "
            f"is that of the {names[most + 1].removeprefix('+ ')}."
        ),
        parts=(
            Chart(
                title=finding,
                spec=_step_bars(data),
                data=data,
                description="DAQ after each choice.",
                definition="DAQ: harmonic mean of BA, IDQ and IDQ on shifted images. The detector "
                "as it is keeps boxes above 0.5 and accepts 95 % of the validation images.",
                convention=f"{study.inputs.get('convention', 'paper')} (SAOD, table 7)",
            ),
        ),
        anchor="ablation",
    )


def _steps(rows: _Rows) -> list[str]:
    """Name each row by the choice that is new in it."""
    names = ["the detector as it is"]
    for before, row in pairwise(rows):
        new = [label for key, label in _STEPS.items() if row.get(key) != before.get(key)]
        value = f" ({row['calibrator']})" if _STEPS["calibrator"] in new else ""
        names.append(f"+ {' and '.join(new)}{value}")
    return names


def _step_bars(data: polars.DataFrame) -> Any:
    base = altair.Chart(data).encode(
        y=altair.Y(
            "step:N", title=None, sort=data["step"].to_list(), axis=altair.Axis(labelLimit=220)
        ),
        x=altair.X("daq:Q", title="DAQ, %", scale=altair.Scale(domainMin=0)),
    )
    words = base.mark_text(align="left", dx=4).encode(text=altair.Text("daq:Q", format=".1f"))
    return (base.mark_bar() + words).properties(width=220, height=26 * data.height)


def uncertainty(study: SelfAwareStudy) -> Section | None:
    """Show how the uncertainty of images spreads, with AP of each bin (figures 2 and A.11)."""
    rows = [row for row in _rows(study, "uncertainty_histogram") if row["images"] != _POOLED]
    if not rows:
        return None
    sets = list(dict.fromkeys(row["images"] for row in rows))
    totals = {name: sum(row["n_images"] for row in rows if row["images"] == name) for name in sets}
    data = chart_data(
        {
            "images": [row["images"] for row in rows],
            "low": [row["low"] for row in rows],
            "high": [row["high"] for row in rows],
            "n_images": [row["n_images"] for row in rows],
            "share": [100 * row["n_images"] / max(1, totals[row["images"]]) for row in rows],
            "ap": _percents(rows, "ap"),
        }
    )
    empty = data.filter(polars.col("low").is_null() & (polars.col("n_images") > 0))
    without = ", ".join(f"{row['n_images']} of {row['images']}" for row in empty.to_dicts())
    means = {
        name: _mean_bin(data.filter(polars.col("images") == name).drop_nulls("low"))
        for name in sets
    }
    highest = max(means, key=lambda name: means[name])
    return Section(
        question="Does uncertainty tell scenes apart?",
        sentence=(
            "Bars are shares of the images of a set, dots AP of the images in a bin. Where dots "
            "fall to the right, the detector knows when it fails."
            + (f" Images without a box have no uncertainty: {without}." if without else "")
        ),
        parts=(
            Chart(
                title=f"Uncertainty is highest on {highest} images",
                spec=_uncertainty_bars(data.drop_nulls("low"), sets),
                data=data,
                description="Histograms of image uncertainty with AP per bin, by set.",
                definition="Image uncertainty: that of the boxes of an image, aggregated. AP: COCO "
                "AP of the known classes on the images of a bin; unknown sets have none.",
                convention="SAOD, figures 2 and A.11",
                is_wide=True,
            ),
        ),
        anchor="uncertainty",
    )


def _mean_bin(data: polars.DataFrame) -> float:
    counts, low, high = (data[name].to_numpy() for name in ("n_images", "low", "high"))
    return float(((low + high) / 2 * counts).sum() / max(1, counts.sum()))


def _uncertainty_bars(data: polars.DataFrame, sets: Sequence[str]) -> Any:
    unknown = tuple(name.split("/")[1] for name in sets if name.startswith("unknown/"))
    inks = [
        group_color(part or kind, unknown) if kind == "unknown" else PALETTE[kind]
        for kind, _, part in (name.partition("/") for name in sets)
    ]
    colors = altair.Scale(domain=list(sets), range=inks)
    base = altair.Chart(data)
    across = altair.X("low:Q", title="image uncertainty", bin="binned")
    bars = base.mark_bar(opacity=0.55, binSpacing=1).encode(
        x=across,
        x2="high:Q",
        y=altair.Y("share:Q", title="%", scale=altair.Scale(domain=[0, 100])),
        color=altair.Color("images:N", legend=None, scale=colors),
    )
    dots = (
        base.transform_filter("isValid(datum.ap)")
        .transform_calculate(middle="(datum.low + datum.high) / 2")
        .mark_line(point={"color": PALETTE["ink"], "size": 22}, color=PALETTE["ink"])
        .encode(x="middle:Q", y="ap:Q")
    )
    facet = altair.Facet("images:N", title=None, sort=list(sets))
    return (bars + dots).properties(width=170, height=110).facet(facet=facet, columns=3)


def ranking(study: SelfAwareStudy) -> Section | None:
    """Show the image AUROC of each uncertainty and aggregation (tables 2, 3 and A.9 to A.11)."""
    rows = [row for row in _rows(study, "auroc") if row.get("reason") is None]
    if not rows:
        return None
    pooled = [row for row in rows if row["unknown"] == "pooled"] or rows
    names = [key for key in pooled[0] if key not in ("uncertainty", "unknown", "reason")]
    cells = [
        (row["uncertainty"], name, 100 * row[name])
        for row in pooled
        for name in names
        if row.get(name) is not None
    ]
    data = chart_data(
        {
            "uncertainty": [a for a, _, _ in cells],
            "aggregation": [b for _, b, _ in cells],
            "auroc": [c for _, _, c in cells],
        }
    )
    best = max(cells, key=lambda cell: cell[2])
    left_out = [row["uncertainty"] for row in _rows(study, "auroc") if row.get("reason")]
    more = f" Not measured here: {', '.join(left_out)}; the notes say why." if left_out else ""
    return Section(
        question="Which uncertainty separates unknown scenes best?",
        sentence=f"Rows are uncertainties of boxes, columns how those of an image join.{more}",
        parts=(
            Chart(
                title=f"{best[0]}, aggregated by {best[1]}: image AUROC {best[2]:.1f} %",
                spec=_number_map(data, "aggregation", "uncertainty", "auroc", names),
                data=data,
                description="Image AUROC of each uncertainty and aggregation.",
                definition="AUROC of known test images against all unknown ones together.",
                convention="SAOD, tables 2, 3 and A.9 to A.11",
            ),
        ),
        anchor="ranking",
    )


def _number_map(data: polars.DataFrame, x: str, y: str, value: str, columns: Sequence[str]) -> Any:
    base = altair.Chart(data).encode(
        x=altair.X(f"{x}:N", title=x, sort=list(columns), axis=altair.Axis(labelAngle=0)),
        y=altair.Y(f"{y}:N", title=None, sort=data[y].unique(maintain_order=True).to_list()),
    )
    numbers = data[value].to_list()
    low, high = min(numbers), max(numbers)
    opacity = altair.Opacity(
        f"{value}:Q", legend=None, scale=altair.Scale(domain=[low, high], range=[0.05, 0.55])
    )
    squares = base.mark_rect(color=PALETTE["known"]).encode(opacity=opacity)
    words = base.mark_text().encode(text=altair.Text(f"{value}:Q", format=".1f"))
    size: dict[str, Any] = {"width": 52 * len(columns), "height": 24 * data[y].n_unique()}
    return (squares + words).properties(**size)


def reliability(study: SelfAwareStudy) -> Section | None:
    """Show the confidence of boxes against their quality before and after (figures 4, A.14)."""
    rows = _rows(study, "reliability")
    laece = {
        (row["images"], row["calibrator"]): row.get("laece") for row in _rows(study, "calibrators")
    }
    if not rows:
        return None
    used = _used_calibrator(study)
    kinds = ["none", used] if used != "none" else ["none"]
    chosen = [row for row in rows if row["calibrator"] in kinds and row["images"] == "known"]
    data = _reliability_frame(rows)
    before, after = (laece.get(("known", kind)) for kind in (kinds[0], kinds[-1]))
    finding = "Reliability of kept boxes"
    if before is not None and after is not None:
        finding = (
            f"LaECE on known images: {100 * before:.1f} % before, {100 * after:.1f} % after "
            f"calibration ({used})"
        )
    return Section(
        question="Is the confidence honest?",
        sentence=(
            "Bars are precision times IoU of the boxes in a bin of confidence; on the line they "
            "keep what they promise. Dots are the mean confidence of a bin."
        ),
        parts=(
            Chart(
                title=finding,
                spec=_reliability_bars(_reliability_frame(chosen), kinds),
                data=data,
                description="Reliability diagrams on known test images, before and after.",
                definition=f"LaECE: {get_metric('laece').meaning}. Means over classes; a bin "
                "without a box is empty. Both are of the boxes above v in every known test image; "
                "the table is of the detector as it was, and as it is used, with images rejected.",
                convention="SAOD, figures 4 and A.14; IoU 0.1",
                is_wide=True,
            ),
        ),
        anchor="reliability",
    )


def _used_calibrator(study: SelfAwareStudy) -> str:
    """Return the calibrator of the last row of the ablation, which has every choice fitted."""
    rows = _rows(study, "ablation")
    return str(rows[-1].get("calibrator", "linear")) if rows else "linear"


def _reliability_frame(rows: _Rows) -> polars.DataFrame:
    names = ("images", "calibrator", "low", "high", "confidence", "quality", "n_detections")
    return chart_data({name: [row.get(name) for row in rows] for name in names})


def _reliability_bars(data: polars.DataFrame, kinds: Sequence[str]) -> Any:
    titles = {"none": "before"} | {kind: f"after ({kind})" for kind in kinds if kind != "none"}
    shown = data.with_columns(panel=polars.col("calibrator").replace(titles))
    base = altair.Chart(shown)
    across = altair.X("low:Q", title="confidence", bin="binned", scale=altair.Scale(domain=[0, 1]))
    up = altair.Y("quality:Q", title="precision x IoU", scale=altair.Scale(domain=[0, 1]))
    bars = base.mark_bar(opacity=0.7, binSpacing=0).encode(x=across, x2="high:Q", y=up)
    dots = (
        base.transform_filter("isValid(datum.confidence)")
        .transform_calculate(middle="(datum.low + datum.high) / 2")
        .mark_point(color=PALETTE["near"], size=14, opacity=1)
        .encode(x="middle:Q", y="confidence:Q")
    )
    line = base.transform_calculate(edge="datum.low").mark_line(
        color=PALETTE["muted"], strokeDash=[3, 3]
    )
    diagonal = line.encode(x="edge:Q", y="edge:Q")
    facet = altair.Facet("panel:N", title=None, sort=list(titles.values()))
    layers = (bars + diagonal + dots).properties(width=230, height=190)
    return layers.facet(facet=facet, columns=2)


def error_parts(report: SelfAwareReport) -> Section | None:
    """Show the parts of LRP on known and shifted images, before and after."""
    rows = [
        (moment, str(result.split), get_metric(result.metric).title, 100 * result.value)
        for moment, results in (("before", report.before), ("self-aware", report.results))
        for result in results
        if result.metric in _WORDS and not math.isnan(result.value)
    ]
    if not rows:
        return None
    keys = ("detector", "images", "part", "value")
    data = chart_data(dict(zip(keys, map(list, zip(*rows, strict=True)), strict=True)))
    ours = data.filter(polars.col("detector") == "self-aware").sort("value", descending=True)
    worst = ours.row(0, named=True)
    words = {get_metric(name).title: text for name, text in _WORDS.items()}
    return Section(
        question="Which errors are left?",
        sentence="Bars to the left are better; each part is over the boxes or objects it is about.",
        parts=(
            Chart(
                title=f"The largest part: {words[worst['part']]}, {worst['value']:.1f} % on "
                f"{worst['images']} images",
                spec=_part_bars(data),
                data=data,
                description="Localization, false positive and false negative part of LRP.",
                definition="; ".join(f"{title}: {text}" for title, text in words.items()),
                convention=", ".join(dict.fromkeys(r.convention for r in report.results)),
            ),
        ),
        anchor="errors",
    )


def _part_bars(data: polars.DataFrame) -> Any:
    moments = data["detector"].unique(maintain_order=True).to_list()
    ink = {"before": PALETTE["shifted"], "self-aware": PALETTE["accepted"]}
    colors = altair.Scale(domain=moments, range=[ink[moment] for moment in moments])
    order = [get_metric(name).title for name in _WORDS]
    bars = (
        altair.Chart(data)
        .mark_bar()
        .encode(
            x=altair.X("value:Q", title="%"),
            y=altair.Y("part:N", title=None, sort=order),
            yOffset=altair.YOffset("detector:N", sort=moments),
            color=altair.Color("detector:N", title=None, scale=colors),
        )
        .properties(width=280, height=96)
    )
    header = altair.Header(labelAngle=0, labelAlign="left")
    return bars.facet(row=altair.Row("images:N", title=None, header=header))


def severity(report: SelfAwareReport) -> Section | None:
    """Show AP of the detector as it is on shifted images (table A.8)."""
    found = [r for r in report.results if r.metric == "ap" and not math.isnan(r.value)]
    shifted = [r for r in found if r.split.group == "shifted"]  # type: ignore[attr-defined]
    if not shifted:
        return None
    known = [r for r in found if r.split.group == "known"]  # type: ignore[attr-defined]
    rows = [("known", r) for r in known]
    rows += [(str(r.split.set), r) for r in shifted]  # type: ignore[attr-defined]
    finding = (
        f"AP falls from {100 * rows[0][1].value:.1f} % on {rows[0][0]} to "
        f"{100 * rows[-1][1].value:.1f} % on {rows[-1][0]} images"
    )
    return Section(
        question="What does a shift of the images cost?",
        sentence="AP of all boxes of the detector as it is; bars are 95 % intervals.",
        parts=(_dots_chart(finding, rows, "COCO AP, %", "ap"),),
        anchor="severity",
    )


def unknown_sets(report: SelfAwareReport) -> Section | None:
    """Show the image AUROC of every unknown set."""
    rows = [
        (str(r.split.set), r)  # type: ignore[attr-defined]
        for r in report.results
        if r.metric == "auroc" and not math.isnan(r.value)
    ]
    if len(rows) < 2:
        return None
    easiest = max(rows, key=lambda row: row[1].value)
    finding = f"{easiest[0]} images stand out most: AUROC {100 * easiest[1].value:.1f} %"
    return Section(
        question="Which unknown scenes are recognized?",
        sentence="AUROC of the image uncertainty, known test images against each unknown set; 50 % "
        "is chance.",
        parts=(
            _dots_chart(
                finding[:1].upper() + finding[1:], rows, "image AUROC, %", "auroc", least=50.0
            ),
        ),
        anchor="unknown-sets",
    )


def _dots_chart(
    title: str, rows: Sequence[tuple[str, Result]], axis: str, metric: str, *, least: float = 0.0
) -> Chart:
    data = interval_data(rows)
    lowest = min(least, *data["low"].to_list())
    scale = altair.Scale(domain=[lowest, 100])
    base = altair.Chart(data).encode(
        y=altair.Y("images:N", title=None, sort=data["images"].to_list())
    )
    bars = base.mark_rule().encode(x=altair.X("low:Q", title=axis, scale=scale), x2="high:Q")
    dots = base.mark_point(color=PALETTE["ink"], opacity=1).encode(
        x=altair.X("value:Q", scale=scale)
    )
    return Chart(
        title=title,
        spec=(bars + dots).properties(width=320, height=24 * data.height),
        data=data,
        description=title,
        definition=f"{get_metric(metric).title}: {get_metric(metric).meaning}",
        convention=", ".join(dict.fromkeys(r.convention for _, r in rows)),
    )


def sensitivity(study: SelfAwareStudy) -> Section | None:
    """Show how DAQ and its parts move with u, v and tau (figures A.13 and A.15)."""
    charts = [
        _sensitivity_chart(
            study, "sensitivity_u", "offset", "image threshold u, offset in its range"
        ),
        _sensitivity_chart(study, "sensitivity_v", "offset", "confidence threshold v, offset"),
        _tau_chart(study),
    ]
    parts = tuple(chart for chart in charts if chart is not None)
    if not parts:
        return None
    return Section(
        question="How sensitive is it to u, v and tau?",
        sentence="A flat top means that the fitted threshold, at 0, need not be exact.",
        parts=parts,
        anchor="sensitivity",
    )


def _sensitivity_chart(study: SelfAwareStudy, table: str, key: str, axis: str) -> Chart | None:
    rows = _rows(study, table)
    names = {"daq": "DAQ", "ba": "BA", "idq": "IDQ", "idq_t": "IDQ shifted"}
    data = _long(rows, key, names)
    if data is None:
        return None
    daq = data.filter(polars.col("what") == "DAQ").sort("value", descending=True)
    title = f"What moves with {axis.split(',')[0]}"
    if not daq.is_empty():
        best = daq.row(0, named=True)
        title = f"DAQ is highest at an offset of {best[key]:+.2g} ({best['value']:.1f} %)"
    return _line_chart(title, data, key, axis, list(names.values()), rule=0.0)


def _tau_chart(study: SelfAwareStudy) -> Chart | None:
    names = {"lrp": "LRP", "laece": "LaECE before", "laece_calibrated": "LaECE after"}
    data = _long(_rows(study, "tau"), "tau", names)
    if data is None:
        return None
    return _line_chart(
        "Errors against the IoU of a true positive",
        data,
        "tau",
        "IoU tau",
        list(names.values()),
        rule=float(study.inputs.get("tau", 0.1)),
    )


def _long(rows: _Rows, key: str, names: Mapping[str, str]) -> polars.DataFrame | None:
    found = [
        (float(row[key]), title, 100 * row[name])
        for row in rows
        for name, title in names.items()
        if row.get(name) is not None
    ]
    if not found:
        return None
    return chart_data({key: [a for a, _, _ in found], "what": [b for _, b, _ in found],
                     "value": [c for _, _, c in found]})  # fmt: skip


def _line_chart(
    title: str, data: polars.DataFrame, key: str, axis: str, order: Sequence[str], *, rule: float
) -> Chart:
    inks = [PALETTE[name] for name in ("ink", "near", "far", "farther")][: len(order)]
    colors = altair.Scale(domain=list(order), range=inks)
    base = altair.Chart(data)
    lines = base.mark_line(point={"size": 14}).encode(
        x=altair.X(f"{key}:Q", title=axis),
        y=altair.Y("value:Q", title="%", scale=altair.Scale(domain=[0, 100])),
        color=altair.Color("what:N", title=None, scale=colors, sort=list(order)),
    )
    line = base.mark_rule(strokeDash=[2, 2]).encode(x=altair.datum(rule))
    return Chart(
        title=title,
        spec=(lines + line).properties(width=300, height=190),
        data=data,
        description=f"{', '.join(order)} against {axis}.",
        definition="On the test images, with the other choices as fitted; the vertical line is "
        "what was used.",
        convention="SAOD, figures A.13 and A.15",
    )


def thresholds(study: SelfAwareStudy) -> Section | None:
    """Compare the fitted confidence threshold of each class with that of the test images."""
    rows = [row for row in _rows(study, "thresholds") if row.get("fitted") is not None]
    if not rows:
        return None
    data = chart_data({name: [row.get(name) for row in rows] for name in rows[0]})
    gap = (polars.col("fitted") - polars.col("oracle")).abs()
    ordered = data.with_columns(gap=gap).sort("gap", descending=True, nulls_last=True)
    worst = ordered.row(0, named=True)
    title = f"The threshold of {worst['class']} moves most"
    if worst["oracle"] is not None:
        title += f": {worst['fitted']:.2f} fitted, {worst['oracle']:.2f} on the test images"
    return Section(
        question="Do the thresholds of classes carry over?",
        sentence="A long line means that validation images suggest another threshold than the "
        f"test images would. {count(data.height, 'class', 'classes')}.",
        parts=(
            Chart(
                title=title,
                spec=_threshold_dots(ordered.head(N_CLASSES).drop("gap")),
                data=data,
                description="Confidence thresholds of each class, fitted and on the test images.",
                definition="v: the confidence with the smallest LRP of a class.",
                convention="SAOD, figure A.16",
            ),
        ),
        anchor="thresholds",
    )


def _threshold_dots(rows: polars.DataFrame) -> Any:
    """Draw both thresholds of each class, joined by a line."""
    long = rows.unpivot(["fitted", "oracle"], index="class", variable_name="chosen on")
    names = {"fitted": "validation images", "oracle": "test images"}
    long = long.with_columns(polars.col("chosen on").replace(names)).drop_nulls("value")
    colors = altair.Scale(domain=list(names.values()), range=[PALETTE["ink"], PALETTE["near"]])
    order = rows["class"].to_list()
    base = altair.Chart(long).encode(y=altair.Y("class:N", title=None, sort=order))
    lines = altair.Chart(rows).mark_rule()
    lines = lines.encode(y=altair.Y("class:N", sort=order), x="fitted:Q", x2="oracle:Q")
    dots = base.mark_point(opacity=1).encode(
        x=altair.X("value:Q", title="confidence threshold v", scale=altair.Scale(domain=[0, 1])),
        color=altair.Color("chosen on:N", title=None, scale=colors),
        shape=altair.Shape("chosen on:N", title=None, scale={"domain": list(names.values())}),
    )
    return (lines + dots).properties(width=300, height=18 * rows.height)


def calibrators(study: SelfAwareStudy) -> Section | None:
    """Compare LaECE of the calibrators (table 5)."""
    rows = [row for row in _rows(study, "calibrators") if row.get("laece") is not None]
    if not rows:
        return None
    data = chart_data(
        {
            "images": [row["images"] for row in rows],
            "calibrator": [row["calibrator"] for row in rows],
            "laece": _percents(rows, "laece"),
            "lrp": _percents(rows, "lrp"),
        }
    )
    known = data.filter(polars.col("images") == "known").sort("laece")
    best = known.row(0, named=True) if len(known) else data.row(0, named=True)
    return Section(
        question="Which calibrator is best?",
        sentence="A calibrator that is much better on validation images, where it was fitted, than "
        "on known test images has learned them by heart.",
        parts=(
            Chart(
                title=f"{best['calibrator'].capitalize()} has the lowest LaECE on known images: "
                f"{best['laece']:.1f} %",
                spec=_calibrator_bars(data, known["calibrator"].to_list()),
                data=data,
                description="LaECE of each calibrator on validation and known test images.",
                definition=f"LaECE: {get_metric('laece').meaning}; no image is rejected.",
                convention="SAOD, table 5",
            ),
        ),
        anchor="calibrators",
    )


def _calibrator_bars(data: polars.DataFrame, order: Sequence[str]) -> Any:
    sets = ["validation", "known"]
    colors = altair.Scale(domain=sets, range=[PALETTE["shifted"], PALETTE["known"]])
    return (
        altair.Chart(data)
        .mark_bar()
        .encode(
            x=altair.X("laece:Q", title="LaECE, %"),
            y=altair.Y("calibrator:N", title=None, sort=list(order)),
            yOffset=altair.YOffset("images:N", sort=sets),
            color=altair.Color("images:N", title=None, scale=colors),
        )
        .properties(width=300, height=34 * len(order))
    )


# --- pictures -----------------------------------------------------------------------------------


def pictures(report: SelfAwareReport) -> Section:
    """Show scenes before and after, as the run drew them."""
    question = "What does it look like?"
    folder = report.pictures
    try:
        rows = [] if folder is None else load_json(folder / PAIRS)
    except IncognitaError as error:
        return Section(question=question, sentence=f"No picture: {error}", anchor="pictures")
    if folder is None:
        sentence = "No picture: the run was made without a folder (--out, out=)."
        return Section(question=question, sentence=sentence, anchor="pictures")
    budget, parts = PictureBudget(), []
    for kind, (title, caption) in _KINDS.items():
        mine = [row for row in rows if row["kind"] == kind]
        drawn = budget.take(mine, lambda row: _picture(row, folder), N_PER_GALLERY)
        if drawn:
            parts.append(Gallery(title=title, pictures=drawn, caption=caption))
    missing = [
        title for kind, (title, _) in _KINDS.items() if kind not in {r["kind"] for r in rows}
    ]
    sentence = (
        "Left: the boxes of the detector, blue. Right: what the self-aware detector makes of the "
        "scene, its calibrated boxes green; a rejected scene is pale."
    )
    if missing:
        sentence += f" There is no case of: {', '.join(missing)}."
    return Section(question=question, sentence=sentence, parts=tuple(parts), anchor="pictures")


def _picture(row: Mapping[str, Any], folder: Any) -> Picture | None:
    # the name is that of a file of the folder, whatever the list says
    file = folder / str(row["file"]).replace("\\", "/").rsplit("/", 1)[-1]
    try:
        image = file.read_bytes()
    except OSError:
        return None
    value = row.get("uncertainty")
    uncertain = "no box" if value is None else f"uncertainty {value:.3g}"
    decision = "accepted" if row["accepted"] else "rejected"
    return Picture(
        image=image,
        caption=f"{row['set']} · {decision}, {uncertain}",
        details=(
            ("set", str(row["set"])),
            ("image", str(row["image"])),
            ("decision", decision),
            ("image uncertainty", uncertain),
            ("boxes", f"{row['boxes before']} before, {row['boxes after']} kept"),
        ),
    )
