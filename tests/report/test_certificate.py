"""The page of a certificate: verdicts, numbers and what is behind them; files, the command."""

import json
import math

import numpy as np
import pytest
from tests.metrics.scene_cases import make_scene
from tests.oracles.scenes import to_containers
from typer.testing import CliRunner

from incognita.cli.app import app
from incognita.errors import InvalidDataError
from incognita.evaluation.certify import certify
from incognita.evaluation.score_certificate import certify_scores
from incognita.report import html_of, load_reports, page_of
from incognita.results.certificate import Certificate
from incognita.results.claims import Claim, check_claims

CLAIMS = (
    Claim(metric="unknown_recall", at_least=0.999, confidence=0.95, name="REQ-1"),
    Claim(metric="ap50", convention="coco", at_least=0.0001),
    Claim(metric="auroc", at_least=0.5),
)


@pytest.fixture(scope="module")
def certificate():
    found = certify(*to_containers(make_scene("all at once", 0))[::-1], n_resamples=20)
    claims = check_claims(CLAIMS, found.results)
    return Certificate(
        found.results, found.thresholds, found.reliability, ("a note",), {"resamples": 20}, claims
    )


def section(page, word):
    return next(s for s in page.sections if word in s.question)


def test_the_answer_counts_the_claims(certificate):
    page = page_of(certificate)
    n_met = sum(claim.is_met for claim in certificate.claims)
    assert page.answer.startswith(f"{n_met} of 3 claims passed. Not met: REQ-1: unknown_recall")
    assert "auroc is not among the metrics" in page.answer
    verdicts = [(row["verdict"].text, row["verdict"].tone) for row in page.table.rows]
    assert verdicts == [("fail", "bad"), ("pass", "good"), ("undefined", "bad")]
    measured = certificate.claims[0].result
    assert page.table.rows[0]["measured"].value == measured.value


def test_without_claims_the_answer_is_the_main_numbers(certificate):
    plain = Certificate(certificate.results, (), ())
    page = page_of(plain)
    assert page.answer.startswith("On all images: AP50 ")
    found = certificate.get("ap50", "coco")
    assert math.isnan(found.low)  # the scene is small
    assert f"AP50 {100 * found.value:.1f} % without interval" in page.answer
    assert not [s for s in page.sections if "honest" in s.question]


def test_all_claims_passing_is_said(certificate):
    passed = check_claims(CLAIMS[1:2], certificate.results)
    assert page_of(Certificate(certificate.results, (), claims=passed)).answer == "1 claim passed."


def test_every_number_is_on_the_page(certificate):
    rows = section(page_of(certificate), "measured").parts[0].rows
    assert len(rows) == len(certificate.results)
    for row, result in zip(rows, certificate.results, strict=True):
        value = row["value"].value
        assert (value is None) == math.isnan(result.value)
        assert value is None or value == result.value
        assert row["convention"].text == result.convention
        if math.isnan(result.value):
            assert str(result.reason) in row["value"].note


def test_reliability_and_thresholds_are_those_of_the_certificate(certificate):
    page = page_of(certificate)
    bins = [b for b in certificate.reliability if not math.isnan(b.quality)]
    data = section(page, "honest").parts[0].data
    assert data["quality"].to_list() == [100 * b.quality for b in bins]
    n_over = sum(b.confidence > b.quality for b in bins)
    assert section(page, "honest").sentence.startswith(f"In {n_over} of {len(bins)} bins")
    rows = section(page, "worth keeping").parts[0].rows
    assert [row["class"].text for row in rows] == [t.class_name for t in certificate.thresholds]


def test_a_certificate_is_read_back_as_it_was(certificate, tmp_path):
    certificate.save(tmp_path / "certificate.json")
    (read,) = load_reports(tmp_path / "certificate.json")
    assert read.as_json() == certificate.as_json()
    assert html_of(read) == html_of(certificate)
    record = json.loads((tmp_path / "certificate.json").read_text())
    del record["inputs"]
    with pytest.raises(InvalidDataError, match="Expected the record of a certificate: 'inputs'"):
        Certificate.from_json(record)


def test_a_certificate_of_scores_has_a_page():
    rng = np.random.default_rng(0)
    columns = {
        "image": [f"<script>{k}" for k in range(60)],
        "score": np.concatenate([rng.normal(0, 1, 30), rng.normal(2, 1, 30)]),
        "is_unknown": np.repeat([False, True], 30),
    }
    found = certify_scores(columns, threshold=1.0, n_resamples=20)
    page = page_of(found)
    assert f"AUROC {100 * found.get('auroc').value:.1f}" in page.answer
    assert "<script>alert" not in html_of(found)


def test_the_suffix_of_a_file_chooses_the_page(certificate, tmp_path):
    certificate.save(tmp_path / "certificate.html")
    certificate.save_html(tmp_path / "page")
    expected = html_of(certificate)
    assert (tmp_path / "certificate.html").read_text() == expected
    assert (tmp_path / "page").read_text() == expected


def test_the_command_writes_a_page(certificate, tmp_path):
    certificate.save(tmp_path / "certificate.json")
    out = tmp_path / "pages" / "report.html"
    arguments = ["report", str(tmp_path / "certificate.json"), "--out", str(out)]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    assert str(out) in done.stdout
    assert out.read_text() == html_of(certificate)


def test_the_command_does_not_overwrite_its_input(certificate, tmp_path):
    file = tmp_path / "certificate.json"
    certificate.save(file)
    done = CliRunner().invoke(app, ["report", str(file), "--out", str(file)])
    assert isinstance(done.exception, InvalidDataError)
    assert "is one of the inputs" in str(done.exception)


def test_kinds_are_not_mixed(certificate):
    from tests.report.toy_runs import toy_evaluation

    with pytest.raises(InvalidDataError, match="got a certificate, a run of a classifier"):
        page_of([certificate, toy_evaluation(20)])
    assert len(page_of([certificate, certificate]).table.rows) == 6
