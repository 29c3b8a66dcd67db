"""The page of a self-aware detector: its figures hold the tables of the study."""

import json
import re
from dataclasses import replace

import polars
import pytest
from tests.evaluation.test_self_aware_pictures import seen
from tests.evaluation.test_self_aware_study import problem_of
from tests.report.test_page import Reader

from incognita.decisions import SelfAware, SelfAwareSettings
from incognita.errors import InvalidDataError
from incognita.evaluation.gallery import PAIRS, draw_self_aware
from incognita.evaluation.self_aware import evaluate_self_aware
from incognita.evaluation.self_aware_study import BASELINE
from incognita.report import html_of, page_of
from incognita.report.charts import Chart
from incognita.results.self_aware import SelfAwareReport, SelfAwareStudy

EVIL = "<script>alert(1)</script>"


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    problem = problem_of()
    data = (*problem.annotated, problem.painted)
    fitted = SelfAware.fit(*data, SelfAwareSettings())
    found = evaluate_self_aware(fitted, problem.test, n_resamples=20)
    bare = SelfAware.fit(*data, SelfAwareSettings(**BASELINE))
    before = evaluate_self_aware(bare, problem.test, n_resamples=20).results
    folder = tmp_path_factory.mktemp("run")
    known, unknown = seen([0.1, 0.9, 0.3, 0.7]), seen([0.8, 0.2, 0.6])
    draw_self_aware(known, {"1": seen([0.2, 0.9])}, {"svhn": unknown}, "t", folder / "pictures")
    inputs = {"model": "a detector", "benchmark": "a benchmark"}
    study = problem.study()
    full = replace(found, before=before, study=study, pictures=folder / "pictures", inputs=inputs)
    full.save(folder / "report.json")
    study.save_folder(folder / "study")
    return full


@pytest.fixture(scope="module")
def page(report):
    return page_of(report)


def charts(page, anchor):
    found = next(s for s in page.sections if s.anchor == anchor)
    return [part for part in found.parts if isinstance(part, Chart)]


def rows_of(report, name):
    return report.study.get(name).rows


def test_the_answer_gives_daq_before_and_after(report, page):
    daq = report.get("detection_awareness_quality").value
    numbers = [float(n) for n in re.findall(r"\d+\.\d", page.answer)]
    assert numbers[0] == round(100 * daq, 1)
    before = next(r for r in report.before if r.metric == "detection_awareness_quality")
    assert f"{100 * before.value:.1f} % before" in page.answer
    assert f"{100 * report.get('laece', 'known').value:.1f}" in page.answer


def test_the_table_has_both_columns(report, page):
    cells = {(row["metric"].text, row["images"].text): row for row in page.table.rows}
    assert len(cells) == len(report.results)
    lrp = cells["LRP ↓", "known"]
    assert lrp["after"].value == report.get("lrp", "known").value
    assert lrp["before"].value == next(
        r.value for r in report.before if (r.metric, r.split) == ("lrp", "known")
    )


def test_figures_hold_the_tables_of_the_study(report, page):
    ablation = charts(page, "ablation")[0].data
    assert ablation["daq"].to_list() == pytest.approx(
        [100 * row["daq"] for row in rows_of(report, "ablation")]
    )
    assert ablation["step"].to_list()[0] == "the detector as it is"
    assert "calibrator (linear)" in ablation["step"].to_list()[2]
    counts = charts(page, "uncertainty")[0].data
    known = counts.filter(polars.col("images") == "known")
    assert known["n_images"].sum() == problem_of().test.known.truth.n_images
    assert "unknown/pooled" not in counts["images"].to_list()
    u, v, tau = (chart.data for chart in charts(page, "sensitivity"))
    for data, name, key in ((u, "sensitivity_u", "offset"), (v, "sensitivity_v", "offset")):
        shown = dict(data.filter(polars.col("what") == "DAQ").select(key, "value").iter_rows())
        rows = rows_of(report, name)
        assert shown == pytest.approx(
            {r[key]: 100 * r["daq"] for r in rows if r["daq"] is not None}
        )
    shown = dict(tau.filter(polars.col("what") == "LRP").select("tau", "value").iter_rows())
    assert shown == pytest.approx(
        {r["tau"]: 100 * r["lrp"] for r in rows_of(report, "tau") if r["lrp"] is not None}
    )
    thresholds = charts(page, "thresholds")[0].data
    assert thresholds.height == sum(r["fitted"] is not None for r in rows_of(report, "thresholds"))


def test_parts_of_lrp_are_those_of_the_report(report, page):
    data = charts(page, "errors")[0].data
    mine = data.filter((polars.col("detector") == "self-aware") & (polars.col("images") == "known"))
    assert mine["value"].to_list() == pytest.approx(
        [
            100 * report.get(metric, "known").value
            for metric in ("lrp_localization", "lrp_false_positive", "lrp_false_negative")
        ]
    )


def test_a_stored_report_has_the_same_page(report, page):
    stored = SelfAwareReport.load(report.pictures.parent)
    assert html_of(stored) == html_of(report)


def test_galleries_show_the_pictures_of_the_run(report, page):
    listed = json.loads((report.pictures / PAIRS).read_text())
    pictures = [p for part in page.sections[-1].parts for p in part.pictures]
    assert len(pictures) == len(listed)
    assert {p.image for p in pictures} == {
        (report.pictures / row["file"]).read_bytes() for row in listed
    }


def test_what_is_missing_is_said(report, tmp_path):
    page = page_of(replace(report, study=None, pictures=None))
    text = " ".join(section.sentence for section in page.sections)
    assert "The choices were not studied" in text
    assert "No picture: the run was made without a folder" in text
    page = page_of(replace(report, pictures=tmp_path))
    assert page.sections[-1].sentence.startswith("No picture: ")
    nothing = page_of(replace(report, results=report.results[:2], before=()))
    assert nothing.answer.startswith("There is no DAQ")


def test_a_study_alone_has_a_page(report):
    page = page_of(report.study)
    last = rows_of(report, "ablation")[-1]["daq"]
    assert page.answer.startswith(f"With all choices fitted DAQ is {100 * last:.1f} %")
    assert charts(page, "ablation")
    assert page.table is None
    html_of(report.study)


def test_a_broken_report_is_refused(tmp_path):
    path = tmp_path / "report.json"
    path.write_text('{"results": [1]}')
    with pytest.raises(InvalidDataError, match="Expected"):
        SelfAwareReport.load(path)
    path.write_text('{"tables": 3}')
    with pytest.raises(InvalidDataError, match="tables of a study"):
        SelfAwareStudy.load(path)


def test_names_of_strangers_do_no_harm(report, tmp_path):
    (tmp_path / "secret.webp").write_bytes(b"RIFF secret")
    folder = tmp_path / "pictures"
    folder.mkdir()
    row = {
        "kind": "rejected", "file": "../secret.webp", "set": EVIL, "image": EVIL,
        "accepted": False, "uncertainty": 0.5, "boxes before": 1, "boxes after": 0,
    }  # fmt: skip
    (folder / PAIRS).write_text(json.dumps([row]))
    evil = replace(report, inputs={"model": EVIL, "benchmark": EVIL}, pictures=folder)
    evil = replace(evil, notes=(EVIL,))
    page = page_of(evil)
    assert page.sections[-1].parts == ()  # the file is outside the folder
    (folder / "secret.webp").write_bytes(report.pictures.joinpath("rejected-00.webp").read_bytes())
    read = Reader(html_of(evil))
    assert [tag for tag, _ in read.elements].count("script") == 1
    assert read.text.count(EVIL) >= 5
