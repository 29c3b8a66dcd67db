"""Reports print as tables, become data frames, and are saved by suffix."""

import inspect
import json
from pathlib import Path

import polars
import pytest
from tests.evaluation.worlds import TinyNet, tiny_benchmark
from tests.metrics.scene_cases import make_scene
from tests.oracles.scenes import to_containers

import incognita
from incognita.errors import InvalidDataError
from incognita.results.export import FORMATS, as_json_text
from incognita.results.method_result import MethodKey
from incognita.results.result import Split


@pytest.fixture(scope="module")
def evaluation():
    return incognita.evaluate(
        TinyNet(), tiny_benchmark(), "msp, energy", preprocess="none", n_resamples=5
    )


@pytest.fixture(scope="module")
def certificate():
    detections, truth = to_containers(make_scene("plain", 0))
    return incognita.certify(truth, detections, n_resamples=5)


def test_printing_an_evaluation_prints_its_table(evaluation):
    lines = str(evaluation).splitlines()
    assert any("AUROC ↑" in line and "FPR@95 ↓" in line for line in lines)
    assert any(" msp " in line for line in lines)
    assert any(" energy " in line for line in lines)
    assert max(map(len, lines)) <= 156


def test_printing_a_certificate_prints_its_table(certificate):
    assert "A-OSE ↓" in str(certificate)
    assert "\x1b" not in str(certificate)


def test_a_repr_is_one_line(evaluation, certificate):
    things = [
        evaluation,
        certificate,
        evaluation.results[0],
        tiny_benchmark(),
        tiny_benchmark().test,
    ]
    for thing in things:
        assert "\n" not in repr(thing)
        assert len(repr(thing)) < 200
    assert repr(evaluation).startswith("Evaluation(tiny, TinyNet, 2 methods, best ")


def test_a_summary_is_short(evaluation, certificate):
    assert evaluation.summary().startswith("tiny v1: TinyNet, accuracy ")
    assert len(evaluation.summary().splitlines()) == 3
    assert "A-OSE ↓" in certificate.summary()


def test_a_data_frame_has_a_row_per_number(evaluation, certificate):
    frame = evaluation.to_dataframe()
    assert frame.columns[:4] == ["method", "metric", "convention", "split"]
    assert len(frame) == sum(len(record.results) for record in evaluation.results)
    row = frame.filter(method="energy", metric="auroc", split="near").row(0, named=True)
    expected = evaluation.get("energy").get("auroc", "near")
    record = expected.as_json()
    assert row["value"] == expected.value
    assert (row["low"], row["high"]) == (record["low"], record["high"])
    assert len(certificate.to_dataframe()) == len(certificate.results)
    assert evaluation.to_pandas().shape == frame.shape


def test_the_suffix_chooses_the_format(certificate, tmp_path):
    for suffix in FORMATS:
        certificate.save(tmp_path / f"report{suffix}")
    assert json.loads((tmp_path / "report.json").read_text()) == certificate.as_json()
    read = polars.read_csv(tmp_path / "report.csv", infer_schema_length=None)
    assert read["value"].to_list() == certificate.to_dataframe()["value"].to_list()
    assert (tmp_path / "report.txt").read_text() == str(certificate)
    certificate.save(tmp_path / "report")
    assert (tmp_path / "report").read_text() == as_json_text(certificate)


def test_a_format_is_one_function_and_one_line(certificate, tmp_path, monkeypatch):
    monkeypatch.setitem(FORMATS, ".md", lambda report: f"# {report!r}\n")
    certificate.save(tmp_path / "report.md")
    assert (tmp_path / "report.md").read_text().startswith("# Certificate(")


def test_a_place_that_cannot_be_written_is_one_sentence(certificate, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidDataError, match="cannot be written"):
        certificate.save(Path(tmp_path / "file" / "report.json"))


def test_parts_of_a_split_need_no_parsing():
    split = Split("near", "cats", "full-spectrum")
    assert split == "full-spectrum near/cats"
    assert Split.parse(str(split)) == split
    assert (Split.parse(str(split)).group, Split.parse(str(split)).set) == ("near", "cats")
    assert Split("known").set is None
    assert json.loads(json.dumps({"split": split})) == {"split": "full-spectrum near/cats"}


def test_a_method_key_knows_whether_it_is_tuned():
    key = MethodKey("knn", tuned=True)
    assert (key, key.name, key.tuned) == ("knn (tuned)", "knn", True)


def test_a_printed_report_says_what_qualifies_its_numbers(evaluation, certificate):
    assert str(evaluation).startswith("tiny v1: TinyNet, accuracy ")
    assert evaluation.remarks() == [("note", note) for note in evaluation.notes]
    for note in certificate.notes:
        assert f"note: {note}" in " ".join(str(certificate).split())


def test_an_unknown_suffix_is_refused(certificate, tmp_path):
    with pytest.raises(
        InvalidDataError, match=r"ends in \.json, \.csv, \.txt, \.html, got report\.xlsx"
    ):
        certificate.save(tmp_path / "report.xlsx")
    assert list(tmp_path.iterdir()) == []


def test_data_frames_of_all_reports_have_the_same_types(evaluation, certificate):
    both = polars.concat([evaluation.to_dataframe().drop("method"), certificate.to_dataframe()])
    assert both.schema["reason"] == both.schema["support"] == polars.String
    assert "60 known images" in evaluation.to_dataframe()["support"].str.join(" ")[0]


@pytest.mark.usefixtures("outside_tests")
def test_something_else_than_a_path_is_refused(certificate):
    with pytest.raises(InvalidDataError, match="Expected the path of a file, got None"):
        inspect.unwrap(type(certificate).save)(certificate, None)
