"""Sections of a detector's page that need its boxes and objects: one method of one run."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import altair
import numpy as np
import polars

from incognita.benchmarks.benchmark import KNOWN, MIXED, SHIFTED
from incognita.errors import IncognitaError, count
from incognita.evaluation.confusions import ConfusionReport, find_synsets, study_confusions
from incognita.evaluation.gallery import CALLED_UNKNOWN, NAMED, DrawnBox
from incognita.report.charts import PALETTE, Chart, chart_data, group_color
from incognita.report.page import Gallery, Picture, Section
from incognita.report.pictures import Images, PictureBudget, in_turn, thumbnail, window_around
from incognita.results.evaluation import Evaluation
from incognita.results.method_result import MethodResult
from incognita.results.outcomes import (
    CORNERS,
    BoxOutcome,
    ObjectOutcome,
    Outcomes,
    shares_by_confidence,
)

MAPS = ("voc", "coco", "openimages", "objects365", "terra")  # names in data sets with boxes
FEWEST = 3  # pairs behind a correlation
N_THRESHOLDS = 41  # points of a curve over the confidence
N_BINS = 30
N_CLASSES = 24  # rows of a chart of classes; its data has all
N_PER_GALLERY = 24  # pictures of one error type
LEGEND = "Dashed: annotated object. Red: named as a known class. Green: called unknown."
_NO_TABLE = (
    "The run was stored by an earlier version without its objects; run the benchmark again to "
    "see what becomes of them."
)
_COLORS = {
    ObjectOutcome.FOUND: PALETTE["accepted"],
    ObjectOutcome.MISNAMED: PALETTE["rejected"],
    ObjectOutcome.CALLED_UNKNOWN: PALETTE["near"],
    ObjectOutcome.UNMATCHED: PALETTE["hair"],
    ObjectOutcome.UNDETECTED: PALETTE["muted"],
}
_MEANING = (
    "Found: matched at IoU 0.5, an unknown object by a box called unknown, a known one by a box of "
    "its class. Named as a known class: not found, but a box of a known class overlaps it. Box of "
    "another object: all boxes on it were matched to a neighbor. Undetected: no box overlaps it."
)


def object_sections(
    run: Evaluation, result: MethodResult, *, is_one_of_several: bool = False
) -> Iterator[Section]:
    """Yield what becomes of objects and boxes under one method."""
    boxes = run.boxes.get(str(result.title))
    if boxes is None or run.objects is None:
        yield Section(
            question="What becomes of unknown objects?", sentence=_NO_TABLE, anchor="objects"
        )
        return
    known = [str(name) for name in result.identity["classes"]]
    outcomes = Outcomes.of(boxes, run.objects, known)
    whose = f"{result.title} on {run.model_name}" if is_one_of_several else str(result.title)
    sections = ObjectSections(run, result, outcomes, whose)
    for build in (
        sections.confidence,
        sections.unknown_classes,
        sections.confusion,
        sections.similarity,
        sections.known_classes,
        sections.scores,
        sections.galleries,  # pictures are the last section of a page
    ):
        section = build()
        if section is not None:
            yield section


@dataclass(frozen=True, eq=False)
class ObjectSections:
    """The boxes of a method and the objects of a run, and one method per section."""

    run: Evaluation
    result: MethodResult
    outcomes: Outcomes
    whose: str

    @cached_property
    def objects(self) -> polars.DataFrame:
        return self.outcomes.objects()

    @cached_property
    def boxes(self) -> polars.DataFrame:
        return self.outcomes.boxes()

    @cached_property
    def unknown(self) -> polars.DataFrame:
        return self.objects.filter(polars.col("role") == "unknown")

    @cached_property
    def has_scores(self) -> bool:
        """Whether boxes have a score, not the label of an open-set detector."""
        return self.result.method != "own-label"

    @cached_property
    def groups(self) -> tuple[str, ...]:
        """The groups with unknown objects, as the benchmark orders them, mixed sets the last."""
        found = self.unknown["group"].unique().to_list()
        return tuple(sorted(found, key=self._place_of))

    def _place_of(self, group: str) -> tuple[int, str]:
        order = [KNOWN, SHIFTED, *map(str, self.run.groups)]
        return (order.index(group) if group in order else len(order)), group

    # --- undetected, misnamed and missed against t* ---------------------------------------------

    def confidence(self) -> Section | None:
        """Show what becomes of unknown objects as the confidence threshold moves."""
        if self.unknown.is_empty():
            return None
        stars = self.result.thresholds.get("t*", {}).get("per class", [])
        star = max((v for v in stars if v is not None), default=0.0)
        low, high = self._range_of_confidence()
        grid = np.unique(np.append(np.linspace(low, high, N_THRESHOLDS), star)).tolist()
        curves = shares_by_confidence(self.outcomes, grid, scored_from=star)
        is_first = polars.col("group") == self.groups[0]
        first = curves.filter(is_first & (polars.col("confidence") == star)).row(0, named=True)
        finding = (
            f"At t* = {star:.2f}, {100 * first['undetected']:.0f} % of {first['group']} unknown "
            f"objects are undetected and {100 * (first['misnamed'] or 0):.0f} % misnamed"
        )
        return Section(
            question="What happens to unknown objects as the confidence threshold moves?",
            sentence=(
                f"A higher threshold leaves more unknown objects undetected and fewer misnamed; "
                f"at t*, the vertical line, "
                f"{self.whose} finds {100 - 100 * (first['missed'] or 0):.0f} % of "
                f"{first['objects']} {first['group']} ones. To the left of it no box is scored, "
                f"and only undetected objects are known."
            ),
            parts=(_confidence_chart(finding, curves, self.groups, star, (low, high)),),
            anchor="confidence",
        )

    def _range_of_confidence(self) -> tuple[float, float]:
        """Return 0 to 1, or more where a detector writes other numbers."""
        frames = (self.outcomes.box_rows, self.outcomes.object_rows)
        values = np.concatenate([frame["confidence"].drop_nulls().to_numpy() for frame in frames])
        return float(values.min(initial=0.0)), float(values.max(initial=1.0))

    # --- classes --------------------------------------------------------------------------------

    def unknown_classes(self) -> Section | None:
        """Show what becomes of the objects of each unknown class."""
        if self.unknown.is_empty():
            return None
        data = _class_shares(self._named_groups(self.unknown))
        never = _share_of(data, ObjectOutcome.UNDETECTED)
        worst = never.sort("share", "objects", descending=True).row(0, named=True)
        finding = (
            f"Objects of {worst['object_class']} are detected least: "
            f"{worst['share']:.0f} % of {worst['objects']} are undetected"
        )
        if worst["share"] == 0:
            finding = "Every unknown object is detected, under one name or another"
        return Section(
            question="Which unknown objects are never detected?",
            sentence=(
                f"What no box overlaps, no method can find; of the rest, {self.whose} decides what "
                f"is called unknown. The number of objects is in brackets.{_left_out(never)}"
            ),
            parts=(_outcome_chart(finding, data, never, "unknown"),),
            anchor="unknown-classes",
        )

    def _named_groups(self, objects: polars.DataFrame) -> polars.DataFrame:
        """Name the group of each class: that of its own sets, not that of mixed ones."""
        own = objects.filter(polars.col("group") != MIXED)
        of_class = dict(own.select("object_class", "group").iter_rows())
        names = [of_class.get(name, MIXED) for name in objects["object_class"].to_list()]
        return objects.with_columns(group=polars.Series(names, dtype=polars.String))

    def known_classes(self) -> Section | None:
        """Show what becomes of the objects of each known class on known images."""
        known = self.objects.filter(
            (polars.col("role") == "known") & (polars.col("group") == KNOWN)
        )
        if known.is_empty():
            return None
        data = _class_shares(known)
        lost = _share_of(data, ObjectOutcome.CALLED_UNKNOWN)
        worst = lost.row(0, named=True)
        finding = (
            f"{self.whose} costs {worst['object_class']} most: {worst['share']:.0f} % of "
            f"{worst['objects']} objects are called unknown"
        )
        if worst["share"] == 0:
            finding = "No known object of the test images is called unknown"
        return Section(
            question="Which known classes pay for it?",
            sentence=(
                f"Objects of known classes on the known test images: what {self.whose} calls "
                f"unknown among them is a false alarm.{_left_out(lost)}"
            ),
            parts=(_outcome_chart(finding, data, lost, "known"),),
            anchor="known-classes",
        )

    # --- confusion ------------------------------------------------------------------------------

    def confusion(self) -> Section | None:
        """Show which known classes unknown objects are named as, by class and super-class."""
        misnamed = self.unknown.filter(polars.col("outcome") == ObjectOutcome.MISNAMED)
        if misnamed.is_empty():
            return None
        pairs = _pairs(misnamed, "object_class")
        top = pairs.row(0, named=True)
        finding = (
            f"{top['object_class']} is taken for {top['predicted']} most often: "
            f"{count(top['objects'], 'object')}"
        )
        parts = [_confusion_chart(pairs, "object_class", finding)]
        supers = misnamed.drop_nulls("superclass")
        if supers["superclass"].n_unique() > 1:
            by_super = _pairs(supers, "superclass")
            first = by_super.row(0, named=True)
            title = f"Unknown {first['superclass']} are taken for {first['predicted']} most often"
            parts.append(_confusion_chart(by_super, "superclass", title))
        return Section(
            question="What are unknown objects taken for?",
            sentence=(
                "Each number counts unknown objects that are named as a known class, by the most "
                "confident box on them."
            ),
            parts=tuple(parts),
            anchor="confusion",
        )

    def similarity(self) -> Section | None:
        """Show the meaning of confusions against the score, where names have a meaning."""
        if not self.has_scores:
            return None
        question = "Do unknown objects hide behind similar classes?"
        seen = self.unknown.drop_nulls("predicted")
        if seen.is_empty():
            return None
        known = [str(name) for name in self.result.identity["classes"]]
        names = seen["object_class"].unique(maintain_order=True).to_list()
        try:
            synsets, notes = find_synsets([*known, *names], MAPS)
            report = study_confusions(_as_images(seen, known), known, synsets, min_images=1)
        except IncognitaError as error:
            return Section(
                question=question,
                sentence=f"It cannot be said here: {str(error).split('. ')[0].rstrip('.')}.",
                anchor="similarity",
            )
        return Section(
            question=question,
            sentence=f"Below zero, similar classes look less unknown. {' '.join(notes)}".strip(),
            parts=(_similarity_chart(report),),
            anchor="similarity",
        )

    # --- scores ---------------------------------------------------------------------------------

    def scores(self) -> Section | None:
        """Show how the unknown scores of boxes spread, on known images and on each group."""
        if not self.has_scores or not self.boxes["unknown_score"].is_finite().any():
            return None
        tau = self.result.thresholds.get("tau", {}).get("value")
        groups = tuple(sorted(self.boxes["group"].unique().to_list(), key=self._place_of))
        data = _histogram(self.boxes, groups)
        called = self.boxes.group_by("group").agg(polars.col("is_called_unknown").mean())
        shares = dict(called.iter_rows())
        flagged = [f"{100 * shares[group]:.0f} % on {group}" for group in groups]
        finding = f"{self.whose} calls boxes unknown: {', '.join(flagged)} images"
        return Section(
            question="Do the scores tell boxes apart?",
            sentence=(
                "The better a method, the further boxes on known images lie to the left of the "
                "others. The vertical line is tau; boxes to the right are called unknown."
            ),
            parts=(
                Chart(
                    title=finding,
                    spec=_histogram_bars(data, groups, tau),
                    data=data,
                    description="Histograms of the unknown score of boxes, by group of images.",
                    definition="All boxes above t* on the images of a group, whatever they are on.",
                ),
            ),
            anchor="scores",
        )

    # --- galleries ------------------------------------------------------------------------------

    def galleries(self) -> Section:
        """Show the clearest cases of every error type and set."""
        question = "What do the errors look like?"
        try:
            images = Images.of(self.run)
        except IncognitaError as error:
            return Section(question=question, sentence=f"No picture: {error}", anchor="pictures")
        drawer, budget = _Drawer(self, images), PictureBudget()
        parts, empty = [], []
        for title, caption, cases in self._cases():
            if cases.is_empty():
                empty.append(title)
                continue
            taken = budget.take(_by_turns(cases), drawer.picture, N_PER_GALLERY)
            caption = f"{caption} {len(taken)} of {cases.height:,} are shown."
            if taken:
                parts.append(Gallery(title=title, pictures=taken, caption=caption))
        sentence = f"The clearest cases under {self.whose}, every set in turn. {LEGEND}"
        if empty:
            sentence += f" There is no case of: {', '.join(empty)}."
        if images.unreadable:
            sentence += f" {count(len(images.unreadable), 'image')} could not be read."
        if not parts:
            sentence = f"No picture could be drawn.{sentence.removeprefix(LEGEND)}"
        return Section(question=question, sentence=sentence, parts=tuple(parts), anchor="pictures")

    def _cases(self) -> Iterator[tuple[str, str, polars.DataFrame]]:
        """Yield the title, the order and the ranked cases of each error type."""
        undetected = self.unknown.filter(polars.col("outcome") == ObjectOutcome.UNDETECTED)
        area = polars.col("width") * polars.col("height")
        yield (
            "Undetected unknown objects",
            "No box above t* overlaps them; the largest first.",
            undetected.sort(area, descending=True),
        )
        score = "unknown_score" if self.has_scores else "confidence"
        for title, outcome, caption, by, falls in (
            (
                "Unknown taken for known",
                BoxOutcome.UNKNOWN_AS_KNOWN,
                "The lowest unknown score first.",
                score,
                not self.has_scores,
            ),
            (
                "Known taken for unknown",
                BoxOutcome.KNOWN_AS_UNKNOWN,
                "The highest unknown score first.",
                score,
                True,
            ),
            (
                "Duplicates",
                BoxOutcome.DUPLICATE,
                "A second box on an object that has one; the most confident first.",
                "confidence",
                True,
            ),
            (
                "Background",
                BoxOutcome.BACKGROUND,
                "Boxes that overlap no annotated object; the most confident first.",
                "confidence",
                True,
            ),
        ):
            found = self.boxes.filter(polars.col("outcome") == outcome)
            yield title, caption, found.sort(by, descending=falls, maintain_order=True)


def _by_turns(cases: polars.DataFrame) -> Iterator[dict[str, Any]]:
    """Yield the first case of each set, then the second of each; of an image only the first."""
    once = cases.unique(["set", "image_id"], keep="first", maintain_order=True)
    parts = once.partition_by("set", maintain_order=True)
    return in_turn([part.iter_rows(named=True) for part in parts])


@dataclass(frozen=True, eq=False)
class _Drawer:
    """Draws a case with the objects and boxes around it."""

    sections: ObjectSections
    images: Images

    def _rows(self, frame: polars.DataFrame, case: dict[str, Any]) -> list[dict[str, Any]]:
        """Return the boxes or the objects of the image of a case."""
        same = [polars.col(name) == case[name] for name in ("set", "image_id")]
        return frame.filter(*same).to_dicts()

    def picture(self, case: dict[str, Any]) -> Picture | None:
        """Draw one case, or return None where its image cannot be read."""
        key = (case["set"], case["image_id"])
        pixels = self.images.load(*key)
        if pixels is None:
            return None
        corners = tuple(case[name] for name in CORNERS)
        objects = [
            DrawnBox(tuple(row[name] for name in CORNERS), None)
            for row in self._rows(self.sections.outcomes.object_rows, case)
        ]
        others = [
            _drawn(row)._replace(text="")
            for row in self._rows(self.sections.outcomes.box_rows, case)
            if tuple(row[name] for name in CORNERS) != corners
        ]
        is_box = "is_called_unknown" in case
        shown = [*others, *([_drawn(case)] if is_box else []), *objects]
        height, width = pixels.shape[:2]
        image = thumbnail(pixels, shown, window=window_around(corners, width, height))
        caption, details = self._words(case, is_box=is_box)
        return Picture(image=image, caption=caption, details=details, alt=f"{caption}, {key[1]}")

    def _words(
        self, case: dict[str, Any], *, is_box: bool
    ) -> tuple[str, tuple[tuple[str, str], ...]]:
        details = [("set", case["set"]), ("image", case["image_id"])]
        if not is_box:
            best = case["confidence"]
            nearest = "no box at all" if best is None else f"best box {best:.2f}, below t*"
            return f"{case['object_class']} · {nearest}", (
                *details,
                ("object", f"{case['object_class']} (unknown)"),
                ("size", f"{case['width']:.0f} x {case['height']:.0f} pixels"),
                ("best box", nearest),
            )
        on = case["on_class"] or "nothing"
        called = "unknown" if case["is_called_unknown"] else case["predicted"]
        score = f" · score {case['unknown_score']:.3g}" if self.sections.has_scores else ""
        nearest_class = case["predicted"] or "not given"
        details += [
            ("on", on),
            ("called", str(called)),
            ("nearest known class", nearest_class),
            ("confidence", f"{case['confidence']:.3f}"),
        ]
        if self.sections.has_scores:
            tau = self.sections.result.thresholds.get("tau", {}).get("value")
            limit = "" if tau is None else f" (unknown from {tau:.4g} on)"
            details.append(("unknown score", f"{case['unknown_score']:.4g}{limit}"))
        return f"{on} → {called} {case['confidence']:.2f}{score}", tuple(details)


def _drawn(row: dict[str, Any]) -> DrawnBox:
    is_called = row["is_called_unknown"]
    text = "unknown" if is_called else str(row["predicted"])
    corners = tuple(row[name] for name in CORNERS)
    return DrawnBox(corners, CALLED_UNKNOWN if is_called else NAMED, text)


# --- the data and the look of charts --------------------------------------------------------------


def _class_shares(objects: polars.DataFrame) -> polars.DataFrame:
    """Return the share of each outcome among the objects of each class, in percent."""
    by = ["group", "object_class"]
    totals = objects.group_by(by, maintain_order=True).len("objects")
    counted = objects.group_by([*by, "outcome"], maintain_order=True).len("n")
    shares = counted.join(totals, on=by).with_columns(
        share=100 * polars.col("n") / polars.col("objects")
    )
    order = polars.Enum([str(outcome) for outcome in ObjectOutcome])
    return shares.sort([*by, polars.col("outcome").cast(order)])


def _share_of(shares: polars.DataFrame, outcome: ObjectOutcome) -> polars.DataFrame:
    """Return each class with its share of one outcome, the largest first."""
    classes = shares.select("group", "object_class", "objects").unique(maintain_order=True)
    found = shares.filter(polars.col("outcome") == outcome).select("group", "object_class", "share")
    joined = classes.join(found, on=["group", "object_class"], how="left")
    return joined.with_columns(polars.col("share").fill_null(0.0)).sort(
        "share", "objects", descending=True, maintain_order=True
    )


def _pairs(misnamed: polars.DataFrame, by: str) -> polars.DataFrame:
    """Return how many objects of each class, or super-class, are named as each known class."""
    pairs = misnamed.group_by(by, "predicted", maintain_order=True).len("objects")
    return pairs.sort("objects", by, "predicted", descending=[True, False, False])


def _as_images(objects: polars.DataFrame, known: Sequence[str]) -> polars.DataFrame:
    """Return objects in the layout of a classifier's table, for the study of confusions."""
    place = {name: k for k, name in enumerate(known)}
    return objects.select(
        "set",
        "group",
        polars.col("image_id"),
        polars.lit(None, polars.Int32).alias("label"),
        polars.col("object_class").alias("source_class"),
        polars.col("predicted").replace_strict(place, return_dtype=polars.Int32),
        "unknown_score",
    )


def _histogram(boxes: polars.DataFrame, groups: Sequence[str]) -> polars.DataFrame:
    """Count boxes by their score in bins that all groups share, in percent of a group.

    Scores beyond the central 99 % are counted in the outermost bins.
    """
    scores = boxes["unknown_score"].to_numpy()
    low, high = np.quantile(scores[np.isfinite(scores)], [0.005, 0.995])
    edges = np.linspace(low, high if high > low else low + 1, N_BINS + 1)
    rows: dict[str, list[Any]] = {name: [] for name in ("group", "low", "high", "share", "boxes")}
    for group in groups:
        part = boxes.filter(polars.col("group") == group)
        counts, _ = np.histogram(np.clip(part["unknown_score"].to_numpy(), low, edges[-1]), edges)
        rows["group"] += [group] * N_BINS
        rows["low"] += edges[:-1].tolist()
        rows["high"] += edges[1:].tolist()
        rows["share"] += (100 * counts / part.height).tolist()
        rows["boxes"] += counts.tolist()
    return chart_data(rows)


def _confidence_chart(
    title: str,
    curves: polars.DataFrame,
    groups: tuple[str, ...],
    star: float,
    bounds: tuple[float, float],
) -> Chart:
    long = curves.rename({"missed": "not found as unknown"}).unpivot(
        ["undetected", "misnamed", "not found as unknown"],
        index=["group", "confidence"],
        variable_name="what",
        value_name="share",
    )
    data = long.drop_nulls().with_columns(polars.col("share") * 100)
    return Chart(
        title=title,
        spec=_curves(data, groups, star, bounds),
        data=data,
        description="Shares of unknown objects against the confidence threshold.",
        definition="Undetected: no box of this confidence overlaps the object by an IoU of 0.5. "
        "Misnamed: not found as unknown, and a box of a known class overlaps it. Not found as "
        "unknown (missed): both, and objects whose boxes belong to a neighbor.",
        convention="paper (FMIYC, appendix C); one threshold for all classes, the objects of all "
        "sets of a group together",
        is_wide=True,
    )


def _curves(
    data: polars.DataFrame, groups: tuple[str, ...], star: float, bounds: tuple[float, float]
) -> Any:
    kinds = ["undetected", "misnamed", "not found as unknown"]
    inks = altair.Scale(domain=kinds, range=[PALETTE["muted"], PALETTE["rejected"], PALETTE["ink"]])
    dashes = altair.Scale(domain=kinds, range=[[1, 0], [6, 3], [2, 2]])
    base = altair.Chart(data)
    lines = base.mark_line().encode(
        x=altair.X(
            "confidence:Q",
            title="confidence threshold",
            axis=altair.Axis(values=np.linspace(*bounds, 3).tolist()),
        ),
        y=altair.Y("share:Q", title="unknown objects, %", scale=altair.Scale(domain=[0, 100])),
        color=altair.Color("what:N", title=None, scale=inks),
        strokeDash=altair.StrokeDash("what:N", title=None, scale=dashes),
    )
    rule = base.mark_rule(color=PALETTE["muted"]).encode(x=altair.datum(star))
    facet = altair.Facet("group:N", title=None, sort=list(groups))
    n_columns = 2 if len(groups) in (2, 4) else min(3, len(groups))
    size: dict[str, Any] = {
        "width": 420 if len(groups) == 1 else 600 // n_columns - 60,
        "height": 170,
    }
    return (lines + rule).properties(**size).facet(facet=facet, columns=n_columns)


def _left_out(order: polars.DataFrame) -> str:
    """Return how many classes are shown, where not all are."""
    if order.height <= N_CLASSES:
        return ""
    return f" The {N_CLASSES} classes with the most objects, of {order.height}, are shown."


def _outcome_chart(
    title: str, shares: polars.DataFrame, order: polars.DataFrame, role: str
) -> Chart:
    called = " Called unknown: not found, and a box called unknown overlaps it."
    return Chart(
        title=title,
        spec=_outcome_bars(shares, order),
        data=shares,
        description=f"What becomes of the objects of each {role} class.",
        definition=_MEANING + (called if role == "known" else ""),
        convention="paper; crowd regions and difficult objects are left out",
    )


def _outcome_bars(shares: polars.DataFrame, order: polars.DataFrame) -> Any:
    largest = order.sort("objects", descending=True, maintain_order=True).head(N_CLASSES)
    shown = order.join(largest, on=["group", "object_class"], how="semi", maintain_order="left")
    data = shares.join(shown.select("group", "object_class"), on=["group", "object_class"])
    outcomes = [o for o in ObjectOutcome if str(o) in data["outcome"].to_list()]
    colors = altair.Scale(
        domain=[str(o) for o in outcomes], range=[_COLORS[outcome] for outcome in outcomes]
    )
    several = shown["group"].n_unique() > 1
    name = (
        "datum.object_class + ' (' + datum.objects + ("
        + ("', ' + datum.group" if several else "''")
        + ") + ')'"
    )
    labels = [
        f"{row['object_class']} ({row['objects']}{', ' + row['group'] if several else ''})"
        for row in shown.iter_rows(named=True)
    ]
    ranks = {str(outcome): k for k, outcome in enumerate(outcomes)}
    data = data.with_columns(
        rank=polars.col("outcome").replace_strict(ranks, return_dtype=polars.Int32)
    )
    return (
        altair.Chart(data)
        .transform_calculate(label=name)
        .mark_bar()
        .encode(
            x=altair.X("share:Q", title="objects, %", scale=altair.Scale(domain=[0, 100])),
            y=altair.Y("label:N", title=None, sort=labels),
            color=altair.Color(
                "outcome:N", title=None, scale=colors, legend=altair.Legend(columnPadding=36)
            ),
            order=altair.Order("rank:Q"),
        )
        .properties(width=300, height=18 * shown.height)
    )


def _confusion_chart(pairs: polars.DataFrame, by: str, title: str) -> Chart:
    rows = pairs.group_by(by).agg(polars.col("objects").sum()).sort("objects", by, descending=True)
    columns = pairs.group_by("predicted").agg(polars.col("objects").sum())
    columns = columns.sort("objects", "predicted", descending=True)
    kept_rows, kept_columns = rows[by].head(N_CLASSES), columns["predicted"].head(N_CLASSES)
    data = pairs.filter(
        polars.col(by).is_in(kept_rows.implode())
        & polars.col("predicted").is_in(kept_columns.implode())
    )
    most = int(data["objects"].max() or 1)  # type: ignore[arg-type]
    base = altair.Chart(data).encode(
        x=altair.X(
            "predicted:N",
            title="named as",
            sort=kept_columns.to_list(),
            axis=altair.Axis(labelAngle=-45),
        ),
        y=altair.Y(f"{by}:N", title=None, sort=kept_rows.to_list()),
    )
    opacity = altair.Opacity(
        "objects:Q", legend=None, scale=altair.Scale(domain=[0, most], range=[0.05, 0.6])
    )
    squares = base.mark_rect(color=PALETTE["near"]).encode(opacity=opacity)
    words = base.mark_text(fontSize=10).encode(text="objects:Q")
    size: dict[str, Any] = {"width": 24 * len(kept_columns), "height": 20 * len(kept_rows)}
    kind = "super-class" if by == "superclass" else "class"
    return Chart(
        title=title,
        spec=(squares + words).properties(**size),
        data=pairs,
        description=f"How many unknown objects of each {kind} are named as each known class.",
        definition="Unknown objects that are not found as unknown and that a box of a known class "
        "overlaps by an IoU of 0.5, by the class of the most confident such box.",
        convention="paper: the objects that nOSE counts",
    )


def _similarity_chart(report: ConfusionReport) -> Chart:
    rows = report.confusions
    data = chart_data(
        {
            "unknown class": [row.name for row in rows],
            "named as": [row.predicted for row in rows],
            "similarity": [row.similarity for row in rows],
            "unknown score": [row.unknown_score for row in rows],
            "objects": [row.n_images for row in rows],
        }
    )
    corr = polars.corr("similarity", "unknown score", method="spearman")
    rho = data.select(corr).item() if data.height >= FEWEST else None
    of = f"over {count(data.height, 'pair')} of classes"
    finding = f"Similarity and unknown score have no rank correlation {of}"
    if rho is not None and not np.isnan(rho):
        finding = f"Rank correlation of similarity and unknown score: {rho:.2f} {of}"
    return Chart(
        title=finding,
        spec=_similarity_points(data),
        data=data,
        description="Similarity of classes against the mean unknown score.",
        definition="Mean of path and Wu-Palmer similarity in WordNet of an unknown class and the "
        "class its objects are named as; the score is the mean over these objects.",
        convention="Recalcati et al., 2023, for objects instead of images",
    )


def _similarity_points(data: polars.DataFrame) -> Any:
    sizes = altair.Size("objects:Q", title="objects", scale=altair.Scale(range=[15, 250]))
    return (
        altair.Chart(data)
        .mark_point(color=PALETTE["near"], opacity=0.6, filled=True)
        .encode(
            x=altair.X("similarity:Q", title="similarity of class and prediction"),
            y=altair.Y("unknown score:Q", title="mean unknown score", scale={"zero": False}),
            size=sizes,
        )
    )


def _histogram_bars(data: polars.DataFrame, groups: tuple[str, ...], tau: float | None) -> Any:
    colors = altair.Scale(
        domain=list(groups), range=[group_color(group, groups) for group in groups]
    )
    base = altair.Chart(data)
    bars = base.mark_bar(binSpacing=0).encode(
        x=altair.X("low:Q", title="unknown score", bin="binned", axis=altair.Axis(tickCount=6)),
        x2="high:Q",
        y=altair.Y("share:Q", title=None, axis=altair.Axis(tickCount=3)),
        color=altair.Color("group:N", legend=None, scale=colors),
    )
    layers = [bars]
    if tau is not None and data["low"].min() <= tau <= data["high"].max():  # type: ignore[operator]
        layers.append(base.mark_rule(color=PALETTE["ink"]).encode(x=altair.datum(tau)))
    header = altair.Header(labelAngle=0, labelAlign="left", labelPadding=4)
    row = altair.Row("group:N", title="boxes, %", sort=list(groups), header=header)
    return altair.layer(*layers).properties(width=360, height=54).facet(row=row)
