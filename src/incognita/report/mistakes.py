"""Which classes and images are confused: tables per class, their meaning, and the worst images."""

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import altair
import numpy as np
import polars

from incognita.benchmarks.benchmark import KNOWN, SHIFTED
from incognita.errors import IncognitaError, MissingDataError
from incognita.evaluation.confusions import ConfusionReport, find_synsets, study_confusions
from incognita.metrics.measure import Share, share_of
from incognita.report.cells import share_cell
from incognita.report.charts import PALETTE, Chart, chart_data
from incognita.report.drawings import Drawing, group_colors, heat_map
from incognita.report.numbers import n_of, with_margin
from incognita.report.page import Cell, Gallery, PageColumn, PageTable, Picture, Section
from incognita.report.pictures import Images, PictureBudget, in_turn, thumbnail
from incognita.report.score_figures import best_scored, known_threshold
from incognita.results.evaluation import Evaluation
from incognita.results.score_tables import ScoredSet, image_frame
from incognita.semantics import list_synset_maps, load_synset_map

N_CLASSES, N_EDGES = 24, 40  # classes of a heat map, confusions of a graph
N_TABLE, N_POINTS = 200, 300  # classes of a table, points of a figure
MIN_CLASSES = 8  # for a correlation
N_PICTURES, PIXELS = 12, 112  # per gallery, and along the longer side
FLAGGED = "above the score that 95 % of the known test images stay at or below"


class UnknownClass(NamedTuple):
    """What becomes of the images of one unknown class."""

    set: str
    group: str
    name: str
    flagged: Share
    taken_for: str
    predicted: Mapping[str, int]


def confused_classes(run: Evaluation) -> Section | None:
    """Return which unknown classes pass as which known class, and which known ones are flagged."""
    best = best_scored(run)
    known = next((s for s in run.sets if s.group == KNOWN), None)
    if best is None or known is None:
        return None
    names = class_names(run)
    threshold = known_threshold(run.scores[best][known.name])
    rows = unknown_classes(run, best, threshold, names)
    parts: list[Chart | PageTable] = []
    sentence = "The classes of the unknown images are not stored with this run."
    if rows:
        worst = rows[0]
        parts += [_taken_for(rows), _unknown_class_table(rows, best)]
        sentence = (
            f"Of all unknown classes {worst.name} ({worst.set}) passes most often: {best} flags "
            f"{with_margin(*worst.flagged[:3])} % of its images, which are mostly taken for "
            f"{worst.taken_for}."
        )
    if known.labels is not None:
        parts.append(_known_class_table(known, run.scores[best][known.name], threshold, names))
    return Section(
        question="Which classes are confused?",
        sentence=f"{sentence} Flagged means {FLAGGED}.",
        parts=tuple(parts),
    )


def class_names(run: Evaluation) -> list[str]:
    """Return the known classes, in the order of their numbers."""
    return [str(name) for name in run.metadata.get("classes", ())]


def unknown_classes(
    run: Evaluation, title: str, threshold: float, names: Sequence[str]
) -> list[UnknownClass]:
    """Return the unknown classes, those that are flagged least first."""
    found = []
    for scored in run.sets:
        if not scored.is_unknown or scored.source_classes is None:
            continue
        own = np.array(scored.source_classes, dtype=object)
        scores = run.scores[title][scored.name]
        for name in dict.fromkeys(scored.source_classes):
            mine = own == name
            flagged = share_of(int((scores[mine] > threshold).sum()), int(mine.sum()))
            predicted = _counts(scored.predicted[mine], names)
            taken_for = next(iter(predicted))
            found.append(
                UnknownClass(scored.name, scored.group, name, flagged, taken_for, predicted)
            )
    return sorted(found, key=lambda row: (row.flagged.value, row.set, row.name))


def _counts(predicted: np.ndarray, names: Sequence[str]) -> dict[str, int]:
    """Count the predictions by name, the most frequent first."""
    counts = np.bincount(predicted, minlength=len(names))
    order = np.argsort(-counts, kind="stable")
    return {_name(names, k): int(counts[k]) for k in order.tolist() if counts[k]}


def _name(names: Sequence[str], k: int) -> str:
    return names[k] if k < len(names) else f"class {k}"


def _taken_for(rows: Sequence[UnknownClass]) -> Chart:
    """Draw what the images of the unknown classes that pass most often are taken for."""
    shown = rows[:N_CLASSES]
    total: dict[str, int] = {}
    for row in shown:
        for name, n in row.predicted.items():
            total[name] = total.get(name, 0) + n
    columns = sorted(total, key=lambda name: -total[name])[:N_CLASSES]
    cells = [
        (f"{row.name} ({row.set})", name, 100 * row.predicted.get(name, 0) / row.flagged.n)
        for row in shown
        for name in columns
    ]
    keys = ("unknown", "known", "share")
    data = chart_data({key: [cell[k] for cell in cells] for k, key in enumerate(keys)})
    left = n_of(len(shown), len(rows))
    return Chart(
        title=f"What each unknown class is taken for, in percent of its images{left}",
        spec=heat_map(data, "known", "unknown", "share"),
        data=data.filter(polars.col("share") > 0),
        description="A grid of unknown classes and the known classes their images are taken for.",
        definition="The class that the network predicts, whether or not the image is flagged. The "
        "unknown classes that are flagged least are first.",
        is_wide=True,
    )


def _unknown_class_table(rows: Sequence[UnknownClass], title: str) -> PageTable:
    columns = (
        PageColumn(key="class", label="unknown class", is_number=False),
        PageColumn(key="set", label="set", is_number=False),
        PageColumn(key="group", label="group", is_number=False),
        PageColumn(
            key="flagged",
            label="flagged %",
            direction="up",
            definition=f"Images of the class that {title} flags: {FLAGGED}.",
            convention="Wilson's 95 % interval; the threshold is chosen on the known test images",
        ),
        PageColumn(key="taken", label="mostly taken for", is_number=False),
        PageColumn(
            key="share",
            label="share %",
            definition="Images of the class with that prediction, flagged or not.",
            convention="Wilson's 95 % interval",
        ),
    )
    cells = tuple(
        {
            "class": Cell(row.name),
            "set": Cell(row.set),
            "group": Cell(row.group),
            "flagged": share_cell(row.flagged),
            "taken": Cell(row.taken_for),
            "share": share_cell(share_of(row.predicted[row.taken_for], row.flagged.n)),
        }
        for row in rows[:N_TABLE]
    )
    caption = f"Unknown classes, flagged least first{n_of(len(cells), len(rows))}"
    return PageTable(columns=columns, rows=cells, caption=caption, name="unknown-classes")


def _known_class_table(
    known: ScoredSet, scores: np.ndarray, threshold: float, names: Sequence[str]
) -> PageTable:
    columns = (
        PageColumn(key="class", label="known class", is_number=False),
        PageColumn(
            key="accuracy",
            label="accuracy %",
            direction="up",
            definition="Known test images of the class that are named correctly.",
            convention="Wilson's 95 % interval",
        ),
        PageColumn(
            key="flagged",
            label="flagged %",
            direction="down",
            definition=f"Known test images of the class that are flagged: {FLAGGED}.",
            convention="Wilson's 95 % interval; 5 % over all classes by construction",
        ),
        PageColumn(key="taken", label="most frequent mistake", is_number=False),
    )
    assert known.labels is not None
    rows = [
        _known_class_row(_name(names, k), known.predicted[mine], k, scores[mine] > threshold, names)
        for k in np.unique(known.labels).tolist()
        if (mine := known.labels == k).any()
    ]
    rows.sort(key=lambda row: -(row["flagged"].value or 0.0))
    shown = tuple(rows[:N_TABLE])
    caption = f"Known classes, flagged most first{n_of(len(shown), len(rows))}"
    return PageTable(columns=columns, rows=shown, caption=caption, name="known-classes")


def _known_class_row(
    name: str, predicted: np.ndarray, label: int, is_flagged: np.ndarray, names: Sequence[str]
) -> dict[str, Cell]:
    wrong = _counts(predicted[predicted != label], names)
    mistake = f"{next(iter(wrong))} ({next(iter(wrong.values()))})" if wrong else "none"
    return {
        "class": Cell(name),
        "accuracy": share_cell(share_of(int((predicted == label).sum()), len(predicted))),
        "flagged": share_cell(share_of(int(is_flagged.sum()), len(predicted))),
        "taken": Cell(mistake),
    }


# --- meaning


def close_in_meaning(run: Evaluation) -> Section | None:
    """Return whether unknown classes close in meaning to known ones are harder to flag."""
    best = best_scored(run)
    named = [s for s in run.sets if s.is_unknown and s.source_classes is not None]
    if best is None or not named:
        return None
    question = "Are unknown classes of similar meaning harder?"
    try:
        report, notes = _studied(run, best, named)
    except IncognitaError as error:
        return Section(question=question, sentence=f"This cannot be said here: {error}")
    groups = {scored.name: scored.group for scored in run.sets}
    order = list(groups)
    rows = sorted(_class_means(report), key=lambda row: order.index(row.set))
    data = chart_data(
        {
            "group": [groups[row.set] for row in rows],
            "class": [f"{row.name} ({row.set})" for row in rows],
            "similarity": [row.similarity for row in rows],
            "score": [row.unknown_score for row in rows],
        }
    )
    sentence = correlation_in_words(data["similarity"].to_numpy(), data["score"].to_numpy())
    return Section(
        question=question,
        sentence=" ".join([sentence, *(f"Note: {note}." for note in notes)]),
        parts=(_similarity_chart(data, best), *_graph_chart(report)),
    )


class _ClassMean(NamedTuple):
    set: str
    name: str
    similarity: float
    unknown_score: float


def _class_means(report: ConfusionReport) -> list[_ClassMean]:
    """Average similarity and score over the images of each unknown class."""
    sums: dict[tuple[str, str], np.ndarray] = {}
    for pair in report.confusions:
        weighted = pair.n_images * np.array([1.0, pair.similarity, pair.unknown_score])
        sums[pair.set, pair.name] = sums.get((pair.set, pair.name), np.zeros(3)) + weighted
    return [_ClassMean(*key, float(s[1] / s[0]), float(s[2] / s[0])) for key, s in sums.items()]


def correlation_in_words(similarity: np.ndarray, score: np.ndarray) -> str:
    r"""Return whether unknown classes of similar meaning score lower, by rank correlation.

    The interval is Fisher's with the variance of Fieller et al. (1957) for ranks,
    $\tanh(\operatorname{artanh} r \pm 1.96 \sqrt{1.06 / (n - 3)})$.
    """
    n = len(similarity)
    pair = polars.DataFrame({"a": similarity, "b": score})
    r = pair.select(polars.corr("a", "b", method="spearman")).item() if n else None
    if n < MIN_CLASSES or r is None or math.isnan(r):
        return (
            f"There are too few unknown classes, {n}, to compare their meaning with their scores."
        )
    center, half = math.atanh(min(max(r, -0.9999), 0.9999)), 1.96 * math.sqrt(1.06 / (n - 3))
    low, high = math.tanh(center - half), math.tanh(center + half)
    verdict = (
        "classes of similar meaning score lower, so they are harder to flag"
        if high < 0
        else "classes of similar meaning score higher"
        if low > 0
        else "whether classes of similar meaning score lower cannot be said"
    )
    return (
        f"Over {n} unknown classes, {verdict}: rank correlation {r:.2f}, 95 % interval {low:.2f} "
        f"to {high:.2f}."
    )


def _studied(
    run: Evaluation, title: str, named: Sequence[ScoredSet]
) -> tuple[ConfusionReport, list[str]]:
    names = class_names(run)
    if len(names) <= max(int(scored.predicted.max(initial=0)) for scored in named):
        raise MissingDataError("The run does not name all of its known classes.")
    own = [str(name) for scored in named for name in dict.fromkeys(scored.source_classes or ())]
    synsets, notes = find_synsets([*names, *own], _maps_for(names, named))
    frame = image_frame(named, run.scores[title])
    return study_confusions(frame, names, synsets), notes


def _maps_for(names: Sequence[str], named: Sequence[ScoredSet]) -> list[str]:
    """Return the ready maps that have every known class, or every class of an unknown set."""
    wanted = [set(names), *(set(map(str, scored.source_classes or ())) for scored in named)]
    maps = {
        name: {row.name for row in load_synset_map(name).classes} for name in list_synset_maps()
    }
    return [name for name, mapped in maps.items() if any(w and w <= mapped for w in wanted)]


def _similarity_chart(data: polars.DataFrame, title: str) -> Chart:
    shown = data.head(N_POINTS)
    groups = list(dict.fromkeys(data["group"]))
    points = (
        altair.Chart(shown)
        .mark_point()
        .encode(
            x=altair.X("similarity:Q", title="similarity of class and prediction"),
            y=altair.Y("score:Q", title="mean unknown score", scale=altair.Scale(zero=False)),
            color=group_colors(groups, of_points=True),
        )
    )
    return Chart(
        title=f"Mean score of {title} by similarity, one point per unknown class"
        + n_of(len(shown), len(data)),
        spec=points,
        data=shown,
        description="Mean unknown score of each unknown class against its similarity in meaning.",
        definition="Mean over the images of a class of the similarity of its synset and that of "
        "the predicted class: the mean of path and Wu-Palmer similarity in WordNet 3.0.",
        convention="Recalcati et al., 2023, section V",
    )


def _graph_chart(report: ConfusionReport) -> Iterator[Chart]:
    """Yield the graph of confusions: unknown classes on the left, known ones on the right."""
    edges = sorted(report.edges, key=lambda edge: -edge.n_images)[:N_EDGES]
    if not edges:
        return
    left = list(dict.fromkeys(f"{edge.name} ({edge.set})" for edge in edges))
    right = list(dict.fromkeys(edge.predicted for edge in edges))
    data = chart_data(
        {
            "unknown": [f"{edge.name} ({edge.set})" for edge in edges],
            "known": [edge.predicted for edge in edges],
            "images": [edge.n_images for edge in edges],
            "similarity": [edge.similarity for edge in edges],
        }
    )
    places = {
        name: k / max(len(side) - 1, 1) for side in (left, right) for k, name in enumerate(side)
    }
    yield Chart(
        title=f"The graph of confusions{n_of(len(edges), len(report.edges))}",
        spec=_bipartite(data, left, right, places),
        data=data,
        description="Lines from unknown classes to the known classes they are taken for.",
        definition="A line is a pair of classes with at least two images; its width is the number "
        "of images. Pairs of the same name or meaning are left out.",
        convention="Recalcati et al., 2023, section V",
        is_wide=True,
    )


def _bipartite(
    data: polars.DataFrame, left: Sequence[str], right: Sequence[str], places: Mapping[str, float]
) -> Drawing:
    lines = data.with_columns(
        y=data["unknown"].replace_strict(dict(places), return_dtype=polars.Float64),
        y2=data["known"].replace_strict(dict(places), return_dtype=polars.Float64),
        x=polars.lit(0.0),
        x2=polars.lit(1.0),
    )
    x = altair.X("x:Q", axis=None, scale=altair.Scale(domain=[0, 1]))
    y = altair.Y("y:Q", axis=None, scale=altair.Scale(domain=[0, 1], reverse=True))
    width = altair.StrokeWidth("images:Q", scale=altair.Scale(range=[0.6, 7]), legend=None)
    drawn = (
        altair.Chart(lines)
        .mark_rule(opacity=0.4, color=PALETTE["known"])
        .encode(x=x, x2="x2:Q", y=y, y2="y2:Q", strokeWidth=width)
    )
    nodes = [
        altair.Chart(
            chart_data({"name": names, "x": [at] * len(names), "y": [places[n] for n in names]})
        )
        for names, at in ((left, 0.0), (right, 1.0))
    ]
    texts = nodes[0].mark_text(align="right", dx=-6), nodes[1].mark_text(align="left", dx=6)
    sides = [text.encode(x=x, y=y, text="name:N") for text in texts]
    height = 15 * max(len(left), len(right))
    return altair.layer(drawn, *sides).properties(width=300, height=max(height, 80))


# --- the worst images


class WorstImage(NamedTuple):
    """An image of a gallery: its set, its place there, and its score."""

    scored: ScoredSet
    place: int
    score: float


def worst_images(run: Evaluation) -> Section | None:
    """Return galleries of the images on which the best method fails worst."""
    best = best_scored(run)
    known = next((s for s in run.sets if s.group == KNOWN), None)
    if best is None or known is None:
        return None
    question = "Which images does it fail on?"
    try:
        images = Images.of(run)
    except (IncognitaError, OSError) as error:
        return Section(question=question, sentence=f"The images cannot be shown: {error}")
    names, budget = class_names(run), PictureBudget()
    below = np.sort(run.scores[best][known.name])
    draw = partial(_picture, images=images, below=below, names=names)
    galleries = [
        Gallery(title=title, caption=caption, pictures=pictures)
        for title, caption, cases in worst_cases(run, best)
        if (pictures := budget.take(cases, draw, N_PICTURES))
    ]
    if not galleries:
        return Section(question=question, sentence="None of its images could be read again.")
    unread = f" {len(images.unreadable)} could not be read again." if images.unreadable else ""
    return Section(
        question=question,
        sentence=f"The worst images of each kind by the score of {best}, from every set in turn. "
        f"A click on a picture shows more.{unread}",
        parts=tuple(galleries),
    )


def worst_cases(run: Evaluation, title: str) -> Iterator[tuple[str, str, list[WorstImage]]]:
    """Yield each kind of failure: its title, what it is, and its worst images."""
    groups = dict.fromkeys(scored.group for scored in run.sets if scored.is_unknown)
    for group in groups:
        cases = [_ranked(run, title, s) for s in run.sets if s.group == group]
        what = f"Images of unknown classes ({group}) with the lowest scores."
        yield f"Unknown taken for known: {group}", what, list(in_turn(cases))
    for group in (KNOWN, SHIFTED):
        cases = [_ranked(run, title, s, highest=True) for s in run.sets if s.group == group]
        what = f"Images of known classes ({group}) with the highest scores."
        yield f"Known taken for unknown: {group}", what, list(in_turn(cases))
    labelled = [s for s in run.sets if s.group in (KNOWN, SHIFTED) and s.labels is not None]
    cases = [_ranked(run, title, s, s.predicted != s.labels) for s in labelled]
    yield "Wrong answers with a low score", "They would be accepted first.", list(in_turn(cases))


def _ranked(
    run: Evaluation,
    title: str,
    scored: ScoredSet,
    is_wanted: np.ndarray | None = None,
    *,
    highest: bool = False,
) -> list[WorstImage]:
    scores = run.scores[title][scored.name]
    rows = np.arange(len(scored)) if is_wanted is None else np.flatnonzero(is_wanted)
    order = np.argsort(-scores[rows] if highest else scores[rows], kind="stable")[:N_PICTURES]
    return [WorstImage(scored, int(k), float(scores[k])) for k in rows[order]]


def _picture(
    case: WorstImage, *, images: Images, below: np.ndarray, names: Sequence[str]
) -> Picture | None:
    """Return the picture of an image; `below` are the sorted scores of known images."""
    scored, image_id = case.scored, case.scored.image_ids[case.place]
    pixels = images.load(scored.name, image_id)
    if pixels is None:
        return None
    predicted, true = _name(names, int(scored.predicted[case.place])), _true_name(case, names)
    share = np.searchsorted(below, case.score) / max(len(below), 1)
    return Picture(
        image=thumbnail(pixels, side=PIXELS),
        caption=f"{true} → {predicted}; above {100 * share:.0f} % of known",
        alt=f"An image of {true}, called {predicted}.",
        details=(
            ("shows", true),
            ("called", predicted),
            ("score", f"{case.score:.4g}"),
            ("known below", f"{100 * share:.1f} % of the known test images score lower"),
            ("set", f"{scored.name} ({scored.group})"),
            ("image", str(image_id)),
        ),
    )


def _true_name(case: WorstImage, names: Sequence[str]) -> str:
    scored = case.scored
    if scored.source_classes is not None:
        return str(scored.source_classes[case.place])
    return "unknown" if scored.labels is None else _name(names, int(scored.labels[case.place]))
