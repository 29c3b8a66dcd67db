"""The page of a certificate: claims with their verdicts, then every number with its convention."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import altair

from incognita.errors import count
from incognita.metrics.catalog import METRICS, get_metric
from incognita.report.cells import number_cell
from incognita.report.charts import PALETTE, Chart, chart_data
from incognita.report.drawings import DASHED
from incognita.report.numbers import INTERVAL, joined, percent, with_margin
from incognita.report.page import Cell, Page, PageColumn, PageTable, Section
from incognita.results.certificate import MAIN_METRICS, Certificate
from incognita.results.claims import CheckedClaim
from incognita.results.result import Result

ALL = "all"  # the split of all images
PARTS = ("lrp_localization", "lrp_false_positive", "lrp_false_negative", "lrp", "optimal_lrp")
N_ANSWER = 4  # numbers in the answer


def build_page(reports: Sequence[Certificate], *, is_brief: bool) -> Page:
    """Return the page of one or several certificates; a brief one has no sections."""
    names = [_name(certificate, k) for k, certificate in enumerate(reports)]
    answers = [_answer(certificate) for certificate in reports]
    if len(reports) > 1:
        answers = [f"{name}: {text}" for name, text in zip(names, answers, strict=True)]
    sections: list[Section] = []
    for certificate, name in zip(reports, names, strict=True):
        for section in () if is_brief else _sections(certificate):
            prefix = f"{name}: " if len(reports) > 1 else ""
            question = prefix + section.question
            parts, sentence = section.parts, section.sentence
            sections.append(Section(question=question, sentence=sentence, parts=parts))
    return Page(
        title=f"Certificate of {joined(names)}",
        answer=" ".join(answers),
        facts=_facts(reports[0]) if len(reports) == 1 else (),
        notes=tuple(dict.fromkeys(remark for c in reports for remark in c.remarks())),
        table=_first_table(reports, names),
        sections=tuple(sections),
        footer=tuple(line for certificate in reports for line in _footer(certificate)),
    )


def _name(certificate: Certificate, k: int) -> str:
    given = (certificate.inputs.get(name) for name in ("detections", "scores"))
    paths = [str(file["path"]) for file in given if isinstance(file, Mapping)]
    return paths[0] if paths else f"certificate {k + 1}"


def _answer(certificate: Certificate) -> str:
    """Return how many claims pass and which do not; without claims the main numbers."""
    claims = certificate.claims
    if not claims:
        return _main_numbers(certificate)
    failed = [claim for claim in claims if not claim.is_met]
    if not failed:
        return f"{'All ' if len(claims) > 1 else ''}{count(len(claims), 'claim')} passed."
    reasons = joined(f"{claim.claim} ({_outcome(claim)})" for claim in failed[:2])
    more = f" and {len(failed) - 2} more" if len(failed) > 2 else ""
    n_met = len(claims) - len(failed)
    return f"{n_met} of {count(len(claims), 'claim')} passed. Not met: {reasons}{more}."


def _outcome(claim: CheckedClaim) -> str:
    if claim.result is None or math.isnan(claim.result.value):
        return claim.reason
    return f"measured {_in_words(claim.result)}"


def _main_numbers(certificate: Certificate) -> str:
    found = _on_all_images(certificate)
    shown = [found[m] for m in MAIN_METRICS if m in found and not math.isnan(found[m].value)]
    if not shown:
        return "No number is defined on all images."
    values = joined(f"{get_metric(r.metric).title} {_in_words(r)}" for r in shown[:N_ANSWER])
    return f"On all images: {values}."


def _in_words(result: Result) -> str:
    if get_metric(result.metric).is_count:
        return f"{result.value:,.0f}"
    return with_margin(result.value, result.low, result.high, " %")


def _on_all_images(certificate: Certificate) -> dict[str, Result]:
    """Return the numbers on all images by metric, each in its first convention."""
    return {r.metric: r for r in reversed(certificate.results) if r.split == ALL}


def _facts(certificate: Certificate) -> tuple[tuple[str, str], ...]:
    inputs = certificate.inputs
    sizes: dict[str, int] = {}
    for result in certificate.results:
        if result.split == ALL:
            for what, n in result.support.items():
                sizes[what] = max(sizes.get(what, 0), n)
    facts = {
        "measured on": ", ".join(f"{n:,} {what}" for what, n in sizes.items()),
        "intervals": f"95 % bootstrap over images, {inputs.get('resamples', '?')} replicates",
        "score threshold": inputs.get("score_threshold"),
        "threshold": inputs.get("threshold"),
    }
    return tuple((label, str(text)) for label, text in facts.items() if text not in (None, ""))


def _footer(certificate: Certificate) -> Iterator[tuple[str, str]]:
    options = []
    for name, value in certificate.inputs.items():
        if isinstance(value, Mapping):
            yield name, f"{value.get('path', '')} (sha256 {str(value.get('sha256', ''))[:16]})"
        elif value is not None:
            options.append(f"{name} = {value}")
    yield "options", ", ".join(options)


# --- tables


def _first_table(reports: Sequence[Certificate], names: Sequence[str]) -> PageTable:
    if any(certificate.claims for certificate in reports):
        return _claim_table(reports, names)
    rows = [
        _number_row(certificate, found[metric], name)
        for certificate, name in zip(reports, names, strict=True)
        for metric in MAIN_METRICS
        if metric in (found := _on_all_images(certificate))
    ]
    columns = _number_columns(has_names=len(reports) > 1)
    return PageTable(columns=columns, rows=tuple(rows), name="main numbers")


def _claim_table(reports: Sequence[Certificate], names: Sequence[str]) -> PageTable:
    columns = [
        PageColumn(key="claim", label="claim", is_number=False),
        PageColumn(
            key="verdict",
            label="verdict",
            is_number=False,
            definition="Pass, fail, or undefined where nothing was measured that could decide it; "
            "undefined does not pass.",
        ),
        PageColumn(
            key="measured",
            label="measured",
            definition=f"In percent, or a count. {INTERVAL}",
            convention="that of the claim",
        ),
        PageColumn(
            key="bounds",
            label="interval",
            is_number=False,
            definition="The interval that was compared with the limit where the claim demands a "
            "confidence: a bootstrap interval, or an exact one where no image errs.",
        ),
        PageColumn(key="reason", label="reason", is_number=False),
    ]
    if len(reports) > 1:
        columns.insert(1, PageColumn(key="name", label="certificate", is_number=False))
    rows = tuple(
        _claim_row(claim) | {"name": Cell(name)}
        for certificate, name in zip(reports, names, strict=True)
        for claim in certificate.claims
    )
    return PageTable(columns=tuple(columns), rows=rows, caption="Claims", name="claims")


def _claim_row(claim: CheckedClaim) -> dict[str, Cell]:
    low, high = claim.bounds
    is_count = get_metric(claim.claim.metric).is_count
    bounds = "none"
    if not math.isnan(low):
        bounds = f"{low:,.0f} to {high:,.0f}" if is_count else f"{percent(low)} to {percent(high)}"
    return {
        "claim": Cell(str(claim.claim)),
        "verdict": Cell(claim.verdict.value, tone="good" if claim.is_met else "bad"),
        "measured": number_cell(claim.result),
        "bounds": Cell(bounds),
        "reason": Cell(claim.reason),
    }


def _number_columns(*, has_names: bool) -> tuple[PageColumn, ...]:
    columns = [
        PageColumn(
            key="metric",
            label="metric",
            is_number=False,
            definition="; ".join(f"{info.title}: {info.meaning}" for info in METRICS.values()),
        ),
        PageColumn(
            key="value",
            label="value",
            definition=f"In percent, or a count. {INTERVAL}",
        ),
        PageColumn(key="group", label="kind", is_number=False),
        PageColumn(key="split", label="images", is_number=False),
        PageColumn(
            key="convention",
            label="convention",
            is_number=False,
            definition="Whose definition: papers and public code differ in matching and averaging.",
        ),
        PageColumn(key="better", label="better", is_number=False),
        PageColumn(key="meaning", label="definition", is_number=False),
    ]
    if has_names:
        columns.insert(1, PageColumn(key="name", label="certificate", is_number=False))
    return tuple(columns)


def _number_row(certificate: Certificate, result: Result, name: str = "") -> dict[str, Cell]:
    info = get_metric(result.metric)
    return {
        "metric": Cell(info.title),
        "name": Cell(name),
        "group": Cell(info.group),
        "split": Cell(str(result.split)),
        "convention": Cell(result.convention),
        "value": number_cell(result),
        "better": Cell(info.direction.value.split()[0]),
        "meaning": Cell(info.meaning),
    }


# --- sections


def _sections(certificate: Certificate) -> Iterator[Section]:
    yield from _reliability(certificate)
    yield from _error_parts(certificate)
    yield from _thresholds(certificate)
    rows = tuple(_number_row(certificate, result) for result in certificate.results)
    yield Section(
        question="What was measured?",
        sentence=f"{count(len(rows), 'number')}: every metric in every convention on every split. "
        f"A click on a number shows its interval and support, or why it is undefined.",
        parts=(PageTable(columns=_number_columns(has_names=False), rows=rows, name="numbers"),),
    )


def _reliability(certificate: Certificate) -> Iterator[Section]:
    bins = [b for b in certificate.reliability if not math.isnan(b.quality)]
    if not bins:
        return
    data = chart_data(
        {
            "low": [100 * b.low for b in bins],
            "high": [100 * b.high for b in bins],
            "confidence": [100 * b.confidence for b in bins],
            "quality": [100 * b.quality for b in bins],
            "detections": [b.detections for b in bins],
        }
    )
    n_over = sum(b.confidence > b.quality for b in bins)
    laece = _on_all_images(certificate).get("laece")
    error = f" LaECE on all images: {_in_words(laece)}." if laece is not None else ""
    yield Section(
        question="Is the confidence honest?",
        sentence=f"In {n_over} of {len(bins)} bins the mean confidence is higher than the measured "
        f"precision times IoU.{error}",
        parts=(_reliability_chart(data),),
    )


def _reliability_chart(data: Any) -> Chart:
    scale = altair.Scale(domain=[0, 100])
    x = altair.X("low:Q", title="confidence, %", scale=scale)
    y = altair.Y("quality:Q", title="precision times IoU, %", scale=scale)
    bars = altair.Chart(data).mark_rect(color=PALETTE["known"], opacity=0.35)
    ends = altair.Chart(chart_data({"low": [0, 100], "quality": [0, 100]}))
    equal = ends.mark_line(strokeDash=DASHED, strokeWidth=1, color=PALETTE["muted"])
    points = altair.Chart(data).mark_point(color=PALETTE["rejected"])
    spec = altair.layer(
        bars.encode(x=x, x2="high:Q", y=y, y2=altair.Y2Datum(0)),
        equal.encode(x=x, y=y),
        points.encode(x=altair.X("confidence:Q", scale=scale), y=y),
    )
    return Chart(
        title="Measured quality by confidence",
        spec=spec,
        data=data,
        description="Precision times IoU of the detections in each bin of confidence.",
        definition="Bars: mean precision times IoU of the detections in a bin; points: the same at "
        "their mean confidence; on the dashed line confidence is honest. Means are over classes.",
        convention="paper",
    )


def _error_parts(certificate: Certificate) -> Iterator[Section]:
    found = _on_all_images(certificate)
    parts = [found[m] for m in PARTS if m in found and not math.isnan(found[m].value)]
    if len(parts) < 2:
        return
    largest = max(parts[:3], key=lambda result: result.value)
    data = chart_data(
        {
            "part": [get_metric(r.metric).title for r in parts],
            "value": [100 * r.value for r in parts],
            "low": [100 * r.low for r in parts],
            "high": [100 * r.high for r in parts],
            "meaning": [get_metric(r.metric).meaning for r in parts],
        }
    )
    y = altair.Y("part:N", sort=None, title=None)
    base = altair.Chart(data).encode(y=y)
    bars = base.mark_bar(opacity=0.6).encode(x=altair.X("value:Q", title="percent"))
    spec = altair.layer(bars, base.mark_rule().encode(x="low:Q", x2="high:Q"))
    yield Section(
        question="What are the errors made of?",
        sentence=f"The largest part is {get_metric(largest.metric).title} "
        f"({get_metric(largest.metric).meaning}): {_in_words(largest)}.",
        parts=(
            Chart(
                title="LRP and its parts on all images",
                spec=spec.properties(height=24 * len(parts)),
                data=data,
                description="Localization, false positive and false negative parts of LRP.",
                definition=f"{_meanings(parts)}. Lower is better; thin bars are 95 % intervals.",
                convention=parts[0].convention,
            ),
        ),
    )


def _meanings(results: Sequence[Result]) -> str:
    infos = [get_metric(result.metric) for result in results]
    return "; ".join(f"{info.title}: {info.meaning}" for info in infos)


def _thresholds(certificate: Certificate) -> Iterator[Section]:
    if not certificate.thresholds:
        return
    defined = [t for t in certificate.thresholds if not math.isnan(t.threshold)]
    values = [t.threshold for t in defined]
    spread = f"go from {min(values):.2f} to {max(values):.2f}" if values else "are all undefined"
    n_classes = count(len(certificate.thresholds), "class", "classes")
    yield Section(
        question="From which confidence on is a class worth keeping?",
        sentence=f"The LRP-optimal thresholds of {n_classes} {spread}.",
        parts=(_threshold_table(certificate),),
    )


def _threshold_table(certificate: Certificate) -> PageTable:
    columns = (
        PageColumn(key="class", label="class", is_number=False),
        PageColumn(key="objects", label="objects"),
        PageColumn(
            key="threshold",
            label="keep from",
            definition="The confidence at which the LRP of the class is lowest, on all images.",
            convention="paper",
        ),
        PageColumn(
            key="lrp",
            label="LRP %",
            direction="down",
            definition="LRP of the class at that threshold, without an interval: the threshold is "
            "chosen on the same images.",
            convention="paper",
        ),
    )
    rows = tuple(
        {
            "class": Cell(t.class_name),
            "objects": Cell(f"{t.objects:,}", float(t.objects)),
            "threshold": _threshold_cell(t.threshold, f"{t.threshold:.3f}"),
            "lrp": _threshold_cell(t.optimal_lrp, percent(t.optimal_lrp)),
        }
        for t in certificate.thresholds
    )
    return PageTable(columns=columns, rows=rows, name="thresholds")


def _threshold_cell(value: float, text: str) -> Cell:
    if math.isnan(value):
        return Cell(note="the class has no object, or no detection of it is right")
    return Cell(text, value)
