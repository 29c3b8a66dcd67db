"""`incognita certify --criteria` and `--scores`: verdicts, exit codes, and what is refused."""

import hashlib
import json
from pathlib import Path

import pytest
from tests.cli.test_certify import (
    CLASSES,
    DETECTIONS,
    TRUTH,
    Call,
    call,  # noqa: F401 - a fixture
    plain,
    refuse_constant,
)

FILES = ("--truth", TRUTH, "--detections", DETECTIONS, "--classes", CLASSES, "--resamples", 50)
PASSES = """
version = 1
[[claim]]
metric = "unknown_recall"
split = "unknown-only"
at_least = 0.15
confidence = 0.95
"""
FAILS = PASSES + '[[claim]]\nname = "REQ-7"\nmetric = "laece"\nat_most = 0.10\n'


@pytest.fixture
def criteria(tmp_path: Path) -> Path:
    return tmp_path / "criteria.toml"


@pytest.fixture
def scores(tmp_path: Path) -> Path:
    """Thirty known images with scores below 3, thirty unknown ones of 2 and more."""
    rows = [f"known/{k},{k / 10},false,{k % 3},{0 if k == 7 else k % 3}" for k in range(30)]
    rows += [f"unknown/{k},{2 + k / 10},true,,1" for k in range(30)]
    path = tmp_path / "scores.csv"
    path.write_text("image,score,is_unknown,label,predicted\n" + "\n".join(rows) + "\n")
    return path


def assert_one_sentence(outcome, code: int, part: str) -> None:
    assert (outcome.code, outcome.out) == (code, "")
    assert part in outcome.err
    assert outcome.err.startswith("incognita: ")
    assert outcome.err.count("\n") == 1


def document(outcome) -> dict:
    return json.loads(outcome.out, parse_constant=refuse_constant)


def test_claims_that_pass_end_with_code_0(call: Call, criteria: Path):  # noqa: F811
    criteria.write_text(PASSES)
    outcome = call("certify", *FILES, "--criteria", criteria)
    assert outcome.code == 0
    assert "claims passed: 1 of 1" in plain(outcome.out)


def test_a_claim_that_fails_ends_with_code_1_after_everything_is_printed_and_saved(
    call: Call,  # noqa: F811
    criteria: Path,
    tmp_path: Path,
):
    criteria.write_text(FAILS)
    out = tmp_path / "certificate.json"
    outcome = call("certify", *FILES, "--criteria", criteria, "--out", out)
    assert outcome.code == 1
    assert outcome.err == ""
    printed = plain(outcome.out)
    assert "claims passed: 1 of 2" in printed
    assert "REQ-7: laece (paper) on all <= 0.1" in printed
    assert "the value misses the limit" in printed
    assert "A-OSE" in printed
    assert [c["verdict"] for c in json.loads(out.read_text())["claims"]] == ["pass", "fail"]


def test_json_traces_each_claim_to_its_result_and_file(call: Call, criteria: Path):  # noqa: F811
    criteria.write_text(FAILS)
    outcome = call("certify", *FILES, "--criteria", criteria, "--json")
    assert outcome.code == 1
    found = document(outcome)
    for claim in found["claims"]:
        assert set(claim) == {"claim", "text", "verdict", "reason", "low", "high", "result"}
        assert claim["result"] in found["results"]
    assert found["claims"][0]["low"] == found["claims"][0]["result"]["low"]
    assert found["claims"][0]["low"] >= 0.15
    sha256 = hashlib.sha256(criteria.read_bytes()).hexdigest()
    assert found["inputs"]["criteria"] == {"path": str(criteria), "sha256": sha256}


def test_a_claim_that_cannot_be_decided_ends_with_code_1(call: Call, criteria: Path):  # noqa: F811
    criteria.write_text(PASSES.replace("unknown-only", "at night"))
    outcome = call("certify", *FILES, "--criteria", criteria, "--json")
    assert outcome.code == 1
    (claim,) = document(outcome)["claims"]
    assert (claim["verdict"], claim["result"]) == ("undefined", None)
    assert "splits: all, known-only, unknown-only" in claim["reason"]


def test_confidence_without_intervals_does_not_pass(call: Call, criteria: Path):  # noqa: F811
    criteria.write_text(PASSES)
    outcome = call("certify", *FILES[:-1], 0, "--criteria", criteria, "--json")
    assert outcome.code == 1
    (claim,) = document(outcome)["claims"]
    assert claim["verdict"] == "undefined"
    assert claim["reason"].startswith("it has no interval")


def test_criteria_that_are_wrong_are_one_sentence_before_any_work(
    call: Call,  # noqa: F811
    criteria: Path,
    tmp_path: Path,
):
    criteria.write_text(PASSES.replace("at_least", "at_most"))
    sentence = "claim 1: Expected at_least and not at_most in the claim on unknown_recall"
    outcome = call("certify", *FILES, "--criteria", criteria)
    assert_one_sentence(outcome, 2, sentence)
    missing = tmp_path / "missing.toml"
    outcome = call("certify", *FILES, "--criteria", missing)
    assert_one_sentence(outcome, 3, "There is no file of criteria at")
    outcome = call("certify", *FILES, "--criteria", criteria, "--out", criteria)
    assert_one_sentence(outcome, 2, "is one of the inputs")


def test_scores_are_certified_with_a_threshold_and_criteria(
    call: Call,  # noqa: F811
    scores: Path,
    criteria: Path,
):
    criteria.write_text(
        'version = 1\n[[claim]]\nmetric = "auroc"\nat_least = 0.9\n'
        '[[claim]]\nmetric = "false_alarm_rate"\nat_most = 0.25\n'
    )
    arguments = ("certify", "--scores", scores, "--threshold", 2.2, "--criteria", criteria)
    outcome = call(*arguments, "--json")
    assert outcome.code == 0, outcome.err
    values = {(r["metric"], r["split"]): r["value"] for r in document(outcome)["results"]}
    assert values["false_alarm_rate", "all"] == 7 / 30  # 2.3 to 2.9
    assert values["missed_unknown_rate", "all"] == 3 / 30  # 2.0, 2.1 and 2.2
    assert values["accuracy", "known-only"] == 29 / 30
    assert values["selective_risk", "all"] == 4 / 26
    assert values["auroc", "all"] == (900 - 55 + 10 / 2) / 900
    printed = call(*arguments)
    assert printed.code == 0
    assert "claims passed: 2 of 2" in plain(printed.out)
    assert "false alarms ↓" in printed.out
    assert "Best threshold of each class" not in printed.out


def test_a_claim_at_another_operating_point_does_not_pass(
    call: Call,  # noqa: F811
    scores: Path,
    criteria: Path,
):
    criteria.write_text(
        'version = 1\n[[claim]]\nmetric = "false_alarm_rate"\nat_most = 0.9\n'
        "parameters = {threshold = 2.2}\n"
    )
    for threshold, code in ((2.2, 0), (1.5, 1)):
        arguments = ("--scores", scores, "--threshold", threshold, "--criteria", criteria)
        assert call("certify", *arguments, "--json").code == code
    outcome = call("certify", "--scores", scores, "--criteria", criteria, "--json")
    assert outcome.code == 1
    assert "give a threshold" in document(outcome)["claims"][0]["reason"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--known", "car"), "Expected no --known beside --scores, got car"),
        (("--truth", TRUTH), "Expected no --truth beside --scores"),
        (("--tau", 0.1), "Expected no --tau beside --scores"),
        (("--threshold", "nan"), "Expected a finite threshold, got nan"),
    ],
)
def test_options_that_scores_have_no_use_for_are_refused(
    call: Call,  # noqa: F811
    scores: Path,
    arguments: tuple,
    sentence: str,
):
    assert_one_sentence(call("certify", "--scores", scores, *arguments), 2, sentence)


def test_boxes_and_no_input_are_refused_in_one_sentence(call: Call, tmp_path: Path):  # noqa: F811
    outcome = call("certify", *FILES, "--threshold", 1)
    assert_one_sentence(outcome, 2, "Expected no --threshold beside detections")
    outcome = call("certify")
    assert_one_sentence(outcome, 2, "Expected --truth and --detections, or --scores, got no")
    outcome = call("certify", "--scores", tmp_path / "scores.csv")
    assert_one_sentence(outcome, 3, "There is no table of scores at")
