"""The page of a detector: its figures hold the numbers of the run, its reasons are said."""

import math
import re
from dataclasses import replace

import numpy as np
import polars
import pytest
from tests.evaluation.box_worlds import CellDetector, box_benchmark
from tests.evaluation.test_open_set_detectors import OpenDetector
from tests.report.test_page import Reader

import incognita
from incognita.evaluation.finished_runs import find_runs, load_run
from incognita.report import html_of, page_of
from incognita.report.charts import NO_VALUE, Chart
from incognita.report.page import Gallery, PageTable
from incognita.results.analysis import BOTH_FAMILIES
from incognita.results.outcomes import ObjectOutcome, Outcomes

EVIL = "<script>alert(1)</script>"
GROUPS = ("near", "far")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("run")


@pytest.fixture(scope="module")
def run(folder):
    methods = "msp, energy, knn(k=3), mds"
    return incognita.evaluate(CellDetector(), box_benchmark(), methods, n_resamples=20, out=folder)


@pytest.fixture(scope="module")
def page(run):
    return page_of(run)


@pytest.fixture(scope="module")
def open_run():
    return incognita.evaluate(OpenDetector(), box_benchmark(), "msp", n_resamples=10)


def section(page, anchor):
    return next(s for s in page.sections if s.anchor == anchor)


def chart(page, anchor, place=0):
    parts = [part for part in section(page, anchor).parts if isinstance(part, Chart)]
    return parts[place]


def best(run):
    return run.results[0]


def test_the_answer_says_what_becomes_of_unknown_objects(run, page):
    undetected = best(run).get("unknown_objects_without_detection", "near")
    named = best(run).get("normalized_open_set_error", "near")
    flagged = best(run).get("unknown_recall", "near")
    text = page.answer.replace("\N{NO-BREAK SPACE}", " ")
    numbers = [float(n) for n in re.findall(r"(\d+) %", text)]
    expected = [1 - undetected.value, named.value, flagged.value]
    assert numbers == [round(100 * value) for value in expected]
    assert f"Of {undetected.support['objects']} near unknown objects" in text
    assert text.endswith(f"and {best(run).title} flags {numbers[2]:.0f} % "
                         f"(± {50 * (flagged.high - flagged.low):.0f}).")  # fmt: skip


def test_the_table_has_every_method_and_metric(run, page):
    rows = {row["method"].text: row for row in page.table.rows}
    assert list(rows) == run.ranking()
    for title, row in rows.items():
        for group in GROUPS:
            for metric in BOTH_FAMILIES:
                found = run.get(title).get(metric, group)
                cell = row[f"{group} {metric}"]
                if math.isnan(found.value):
                    assert found.reason in cell.note
                else:
                    assert cell.text == f"{100 * found.value:.1f}"
    labels = {column.label for column in page.table.columns}
    for title in ("AP_U", "R_U", "nOSE", "A-OSE", "WI"):
        assert f"near {title}" in labels
    assert {"both AP_all", "both AP_sc", "both mAP_k"} <= labels


def test_best_is_marked_with_all_whose_interval_contains_it(run, page):
    found = {title: run.get(title).get("auroc", "near") for title in run.ranking()}
    top = max(result.value for result in found.values())
    for row in page.table.rows:
        result = found[row["method"].text]
        tied = result.value == top or result.low <= top <= result.high
        assert row["near auroc"].is_best == tied


def test_shares_at_t_star_are_the_numbers_of_the_run(run, page):
    data = chart(page, "confidence").data
    star = max(best(run).thresholds["t*"]["per class"])
    at_star = {(row["group"], row["what"]): row["share"]
               for row in data.filter(polars.col("confidence") == star).to_dicts()}  # fmt: skip
    for group in GROUPS:
        for what, metric in (
            ("undetected", "unknown_objects_without_detection"),
            ("misnamed", "normalized_open_set_error"),
            ("not found as unknown", "unknown_recall"),
        ):
            results = [
                best(run).get(metric, f"{group}/{name}") for name in box_benchmark().unknown[group]
            ]
            # of all objects of a group together, where the table averages over sets
            n = sum(result.support["objects"] for result in results)
            share = sum(result.value * result.support["objects"] for result in results) / n
            expected = 1 - share if metric == "unknown_recall" else share
            assert at_star[group, what] == pytest.approx(100 * expected)
    below = data.filter(polars.col("confidence") < star)
    assert set(below["what"]) == {"undetected"}


def test_bars_of_classes_add_up(page):
    for anchor in ("unknown-classes", "known-classes"):
        data = chart(page, anchor).data
        sums = data.group_by("group", "object_class").agg(
            polars.col("share").sum(), polars.col("n").sum(), polars.col("objects").first()
        )
        assert np.allclose(sums["share"], 100)
        assert (sums["n"] == sums["objects"]).all()


def test_confusions_count_the_objects_of_the_open_set_error(run, page):
    counted = int(chart(page, "confusion").data["objects"].sum())
    errors = [
        result.value
        for result in best(run).results
        if result.metric == "open_set_error" and result.convention == "paper"
        and result.split.setting is None and (
            (result.split.group in GROUPS and result.split.set)
            or str(result.split) == "both/all"
        )
    ]  # fmt: skip
    assert counted == sum(errors) > 0


def test_similarity_is_of_every_unknown_object_with_a_box(run, page):
    data = chart(page, "similarity").data
    outcomes = Outcomes.of(
        run.boxes[best(run).title], run.objects, best(run).identity["classes"]
    ).objects()
    seen = outcomes.filter(polars.col("role") == "unknown").drop_nulls("predicted")
    assert data["objects"].sum() == seen.height
    row = data.sort("objects", descending=True).row(0, named=True)
    same = seen.filter(
        (polars.col("object_class") == row["unknown class"])
        & (polars.col("predicted") == row["named as"])
    )
    scores = [part["unknown_score"].mean() for part in same.partition_by("set")]
    assert any(row["unknown score"] == pytest.approx(score) for score in scores)
    assert ((data["similarity"] > 0) & (data["similarity"] <= 1)).all()


def test_pictures_of_a_gallery_are_of_different_images(page):
    for part in section(page, "pictures").parts:
        images = [(dict(p.details)["set"], dict(p.details)["image"]) for p in part.pictures]
        assert len(images) == len(set(images))


def test_histograms_count_every_box_once(run, page):
    data = chart(page, "scores").data
    boxes = run.boxes[best(run).title]
    for group in data["group"].unique():
        part = data.filter(polars.col("group") == group)
        assert part["boxes"].sum() == boxes.filter(polars.col("group") == group).height
        assert part["share"].sum() == pytest.approx(100)
    inner = data.filter(polars.col("group") == "known")[1:-1]
    scores = boxes.filter(polars.col("group") == "known")["unknown_score"].to_list()
    for row in inner.to_dicts():
        assert row["boxes"] == sum(row["low"] <= score < row["high"] for score in scores)


def test_families_are_averaged_over_detectors(run):
    other = replace(run, methods={t: run.methods[t] for t in run.ranking()[:3]})
    data = chart(page_of([run, other]), "families").data
    row = data.filter(polars.col("metric") == "AUROC ↑").row(0, named=True)
    means = []
    for one in (run, other):
        titles = [t for t in one.methods if one.families[t] == row["family"]]
        if titles:
            values = [one.get(t).get("auroc", row["group"]).value for t in titles]
            means.append(sum(values) / len(values))
    assert row["value"] == pytest.approx(100 * sum(means) / len(means))


def test_correlations_are_those_of_numpy(run, page):
    data = chart(page, "correlations").data
    sets = [("near", n) for n in box_benchmark().unknown["near"]]
    sets += [("far", n) for n in box_benchmark().unknown["far"]]
    pairs = np.array([
        [run.get(t).get(m, f"{g}/{n}").value for m in ("auroc", "unknown_recall")]
        for t in run.ranking() for g, n in sets
    ])  # fmt: skip
    pairs = pairs[~np.isnan(pairs).any(axis=1)]
    found = data.filter((polars.col("first") == "AUROC") & (polars.col("second") == "R_U"))
    assert found["correlation"].item() == pytest.approx(np.corrcoef(pairs.T)[0, 1])
    assert found["pairs"].item() == len(pairs)


def test_galleries_show_every_error_type_and_set(run, page):
    pictures = section(page, "pictures")
    titles = {part.title for part in pictures.parts}
    assert {"Undetected unknown objects", "Unknown taken for known", "Background"} <= titles
    for part in pictures.parts:
        assert isinstance(part, Gallery)
        sets = {dict(picture.details)["set"] for picture in part.pictures}
        assert all(picture.image.startswith(b"RIFF") for picture in part.pictures)
        if part.title == "Unknown taken for known":
            assert len(sets) > 1
            scores = {}
            for picture in part.pictures:
                details = dict(picture.details)
                score = float(details["unknown score"].split()[0])
                scores.setdefault(details["set"], []).append(score)
                assert details["nearest known class"] == details["called"]
            assert all(values == sorted(values) for values in scores.values())


def test_a_page_of_a_stored_run_is_that_of_the_run(folder, run, page):
    stored = load_run(find_runs(folder)[0])
    again = page_of(stored)
    assert again.answer == page.answer
    assert again.table == page.table
    assert [s.sentence for s in again.sections][:-1] == [s.sentence for s in page.sections][:-1]
    # the benchmark exists in this process only
    assert again.sections[-1].sentence.startswith("No picture: The images of")


def test_a_run_from_the_store_alone_has_its_objects(folder, run):
    methods = "msp, energy, knn(k=3), mds"
    again = incognita.evaluate(CellDetector(), box_benchmark(), methods, n_resamples=20, out=folder)
    assert again.metadata["passes"]["images"] == 0
    assert again.objects.equals(run.objects)
    assert section(page_of(again), "pictures").parts


def test_confidences_and_scores_may_be_any_number(run):
    scale = polars.col("confidence") * 40 - 15
    boxes = {
        title: frame.with_columns(
            confidence=scale,
            unknown_score=polars.when(polars.int_range(polars.len()) == 0)
            .then(float("inf"))
            .otherwise("unknown_score"),
        )
        for title, frame in run.boxes.items()
    }
    other = replace(run, boxes=boxes, objects=run.objects.with_columns(confidence=scale))
    page = page_of(other)
    data = chart(page, "confidence").data
    assert data["confidence"].min() < 0 < 1 < data["confidence"].max()
    counts = chart(page, "scores").data
    assert counts["boxes"].sum() == boxes[best(run).title].height
    html_of(other)


def test_a_run_of_an_earlier_version_says_what_is_missing(run):
    page = page_of(replace(run, objects=None))
    assert "run the benchmark again" in section(page, "objects").sentence
    assert "pictures" not in {s.anchor for s in page.sections}


def test_an_open_set_detector_has_a_dash_instead_of_auroc(open_run):
    page = page_of(open_run)
    row = next(row for row in page.table.rows if row["method"].text == "own-label")
    assert row["near auroc"].text == NO_VALUE
    assert "no unknown score" in row["near auroc"].note
    own = open_run.get("own-label").get("unknown_recall", "near")
    assert row["near unknown_recall"].value == own.value
    text = page.answer.replace("\N{NO-BREAK SPACE}", " ")
    assert f", its own label {100 * own.value:.0f} %" in text


def test_objects_of_an_open_set_detector_are_found_under_its_own_label(open_run):
    alone = replace(open_run, methods={"own-label": open_run.methods["own-label"]})
    page = page_of(alone)
    assert page.answer.endswith("itself.")
    assert page.table.rows[0]["near auroc"].text == NO_VALUE
    assert section(page, "thresholds").sentence.endswith("unknown by the detector itself.")
    assert {"cost", "recall-error"}.isdisjoint(s.anchor for s in page.sections)
    data = chart(page, "unknown-classes").data
    found = data.filter(polars.col("outcome") == ObjectOutcome.FOUND)["n"].sum()
    unknown = open_run.objects.filter(polars.col("role") == "unknown")
    assert 0 < found < unknown.height
    assert "scores" not in {s.anchor for s in page.sections}
    for part in section(page, "pictures").parts:
        assert all("unknown score" not in dict(p.details) for p in part.pictures)


def renamed(run, name):
    """Return a run with a class and images that bear a name."""
    frames = {
        title: frame.with_columns(
            predicted=polars.col("predicted").replace("red", name),
            on=polars.lit(name),
        ).drop("on")
        for title, frame in run.boxes.items()
    }
    objects = run.objects.with_columns(object_class=polars.col("object_class").replace(
        {"red": name, "orange": f"{name}2"}), superclass=polars.lit(name))  # fmt: skip
    methods = {}
    for title, result in run.methods.items():
        classes = [name if c == "red" else c for c in result.identity["classes"]]
        identity = dict(result.identity) | {"classes": classes}
        methods[title] = replace(result, identity=identity, provenance={"command": name})
    metadata = dict(run.metadata) | {"name": name, "benchmark": name}
    return replace(
        run, boxes=frames, objects=objects, methods=methods, metadata=metadata, notes=(name,)
    )


@pytest.mark.parametrize("name", [EVIL, "../../etc/passwd", '" onload="alert(1)'])
def test_names_of_strangers_do_no_harm(run, name):
    html = html_of(renamed(run, name))
    read = Reader(html)
    assert [tag for tag, _ in read.elements].count("script") == 1
    assert all(not key.startswith("on") for _, a in read.elements for key in a)
    assert all(href.startswith(("#", "data:")) for href in read.hrefs)
    assert name in read.text


def test_a_page_is_small(run):
    assert len(html_of(run)) < 3_000_000


def test_a_brief_page_has_the_answer_and_the_table_only(run, page):
    brief = page_of(run, is_brief=True)
    assert (brief.answer, brief.table, brief.sections) == (page.answer, page.table, ())


def test_thresholds_of_methods_are_listed(run, page):
    (table,) = [p for p in section(page, "thresholds").parts if isinstance(p, PageTable)]
    taus = {row["method"].text: row["tau"].value for row in table.rows}
    assert taus == {title: run.get(title).thresholds["tau"]["value"] for title in run.ranking()}
