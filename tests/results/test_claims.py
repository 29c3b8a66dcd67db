"""Claims: what passes, what fails, what cannot be decided, and what is refused."""

import math

import pytest
from scipy.stats import binomtest

from incognita.errors import InvalidDataError, UnknownNameError
from incognita.results.claims import (
    Claim,
    ClaimVerdict,
    check_claims,
    interval_for_claims,
    load_claims,
)
from incognita.results.result import Result

PASS, FAIL, UNDEFINED = ClaimVerdict.PASS, ClaimVerdict.FAIL, ClaimVerdict.UNDEFINED


def result(metric: str = "unknown_recall", value: float = 0.4, **more) -> Result:
    return Result(metric, "paper", "all", **({"value": value, "low": 0.3, "high": 0.5} | more))


def verdict(claim: Claim, *results: Result) -> ClaimVerdict:
    (checked,) = check_claims([claim], results)
    return checked.verdict


@pytest.mark.parametrize(
    ("limit", "confidence", "expected"),
    [
        (0.4, None, PASS),
        (0.41, None, FAIL),
        (0.3, 0.95, PASS),
        (0.31, 0.95, FAIL),
        (0.45, 0.95, FAIL),
    ],
)
def test_a_recall_must_reach_its_limit_and_with_confidence_its_lower_bound(
    limit, confidence, expected
):
    claim = Claim(metric="unknown_recall", at_least=limit, confidence=confidence)
    assert verdict(claim, result()) is expected


@pytest.mark.parametrize(
    ("limit", "confidence", "expected"),
    [
        (0.4, None, PASS),
        (0.39, None, FAIL),
        (0.5, 0.95, PASS),
        (0.49, 0.95, FAIL),
    ],
)
def test_an_error_must_stay_below_its_limit_and_with_confidence_its_upper_bound(
    limit, confidence, expected
):
    claim = Claim(metric="laece", at_most=limit, confidence=confidence)
    assert verdict(claim, result("laece")) is expected


def test_the_last_bit_decides_nothing():
    assert 1 - 0.7 > 0.3
    assert verdict(Claim(metric="laece", at_most=0.3), result("laece", 1 - 0.7)) is PASS
    assert verdict(Claim(metric="laece", at_most=0.3), result("laece", 0.3 + 1e-9)) is FAIL


def test_counts_are_compared_as_counts():
    found = result("open_set_error", 37.0, low=24.0, high=52.0)
    assert verdict(Claim(metric="open_set_error", at_most=37), found) is PASS
    assert verdict(Claim(metric="open_set_error", at_most=51, confidence=0.95), found) is FAIL


@pytest.mark.parametrize(
    ("results", "claim", "reason"),
    [
        ([], Claim(metric="ap", at_least=0.5), "ap is not among the metrics that were measured"),
        (
            [result()],
            Claim(metric="unknown_recall", at_least=0.1, split="night"),
            "unknown_recall has no value in the convention 'paper' on the split 'night'; "
            "conventions: paper; splits: all",
        ),
        (
            [result(value=math.nan, low=math.nan, high=math.nan, reason="no object is unknown")],
            Claim(metric="unknown_recall", at_least=0.1),
            "no object is unknown",
        ),
        (
            [result(low=math.nan, high=math.nan, units=7)],
            Claim(metric="unknown_recall", at_least=0.1, confidence=0.95),
            "it has no interval: only 7 images contribute to it",
        ),
        (
            [result(low=math.nan, high=math.nan, units=70)],
            Claim(metric="unknown_recall", at_least=0.1, confidence=0.95),
            "it has no interval: fewer than 10 bootstrap replicates define it",
        ),
        (
            [result("open_set_error", 0.0, low=0.0, high=0.0, units=50)],
            Claim(metric="open_set_error", at_most=3, confidence=0.95),
            "its interval has no width: all bootstrap replicates are equal",
        ),
        (
            [result(parameters={"threshold": 0.5})],
            Claim(metric="unknown_recall", at_least=0.1, parameters={"threshold": 0.7}),
            "it was measured with threshold = 0.5, not 0.7",
        ),
        (
            [result()],
            Claim(metric="unknown_recall", at_least=0.1, parameters={"tau": 0.7}),
            "it was measured without a parameter 'tau'",
        ),
    ],
)
def test_what_cannot_be_decided_does_not_pass_and_has_a_reason(results, claim, reason):
    (checked,) = check_claims([claim], results)
    assert checked.verdict is UNDEFINED
    assert not checked.is_met
    assert checked.reason == reason


def test_a_value_that_misses_its_limit_fails_even_without_an_interval():
    found = result(value=0.05, low=math.nan, high=math.nan)
    assert verdict(Claim(metric="unknown_recall", at_least=0.1, confidence=0.95), found) is FAIL


@pytest.mark.parametrize("n", [10, 59, 1000])
@pytest.mark.parametrize("value", [0.0, 1.0])
def test_where_replicates_agree_a_share_has_the_exact_interval_of_scipy(n, value):
    found = result("accuracy", value, low=value, high=value, units=n)
    expected = binomtest(int(value) * n, n).proportion_ci(0.95, method="exact")
    bounds, name = interval_for_claims(found)
    assert bounds == pytest.approx((expected.low, expected.high), abs=1e-12)
    assert name == f"exact interval for {n:,} images"


def test_no_error_on_few_images_does_not_prove_a_low_error_rate():
    claim = Claim(metric="false_alarm_rate", at_most=0.05, confidence=0.95)
    few, many = (result("false_alarm_rate", 0.0, low=0.0, high=0.0, units=n) for n in (20, 200))
    assert verdict(claim, few) is FAIL
    assert verdict(claim, many) is PASS


def test_parameters_of_a_claim_may_be_options_of_the_whole_certificate():
    claim = Claim(metric="unknown_recall", at_least=0.1, parameters={"score_threshold": 0.5})
    for used, expected in ((0.5, PASS), (0.4, UNDEFINED), (None, UNDEFINED)):
        (checked,) = check_claims([claim], [result()], {"score_threshold": used})
        assert checked.verdict is expected


def test_a_checked_claim_shows_what_it_rests_on():
    found = result(support={"objects": 42}, parameters={"iou": 0.5})
    claim = Claim(metric="unknown_recall", at_least=0.3, confidence=0.95, name="REQ-1")
    (checked,) = check_claims([claim], [found])
    record = checked.as_json()
    assert record["text"] == "REQ-1: unknown_recall (paper) on all >= 0.3 with 95 % confidence"
    assert (record["verdict"], record["low"], record["high"]) == ("pass", 0.3, 0.5)
    assert record["result"] == found.as_json()
    assert record["claim"]["at_least"] == 0.3


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"metric": "laece", "at_least": 0.1}, "Expected at_most and not at_least"),
        ({"metric": "unknown_recall", "at_most": 0.1}, "Expected at_least and not at_most"),
        ({"metric": "laece", "at_most": 0.1, "at_least": 0.0}, "Expected at_most and not"),
        ({"metric": "laece"}, "Expected at_most and not at_least in the claim on laece"),
        ({"metric": "unknown_recall", "at_least": 30}, "from 0 to 1 for unknown_recall, got 30"),
        ({"metric": "laece", "at_most": -0.1}, "limit from 0 to 1 for laece, got -0.1"),
        ({"metric": "laece", "at_most": math.nan}, "limit from 0 to 1 for laece, got nan"),
        ({"metric": "open_set_error", "at_most": -1}, "limit of 0 or more for open_set_error"),
        ({"metric": "open_set_error", "at_most": math.inf}, "limit of 0 or more"),
        ({"metric": "unknown_recall", "at_least": 0}, "got 0, which every value meets"),
        ({"metric": "laece", "at_most": 1}, "got 1, which every value meets"),
        ({"metric": "laece", "at_most": 0.1, "confidence": 0.9}, "Expected confidence 0.95"),
    ],
)
def test_impossible_claims_are_refused(options, sentence):
    with pytest.raises(InvalidDataError, match=sentence):
        Claim(**options)


def test_strict_but_possible_limits_are_allowed():
    assert Claim(metric="unknown_recall", at_least=1).limit == 1
    assert Claim(metric="open_set_error", at_most=0).limit == 0
    assert Claim(metric="wilderness_impact", at_most=1.5).limit == 1.5


ONE = 'version = 1\n[[claim]]\nmetric = "laece"\nat_most = 0.1\n'


def test_a_file_of_criteria_is_read_in_order(tmp_path):
    path = tmp_path / "criteria.toml"
    path.write_text(
        ONE + '[[claim]]\nmetric = "unknown_recall"\nsplit = "unknown-only"\nconvention = "fmiyc"\n'
        'at_least = 0.3\nconfidence = 0.95\nparameters = {tau = 0.5}\nname = "REQ-2"\n'
    )
    assert load_claims(path) == (
        Claim(metric="laece", at_most=0.1),
        Claim(
            metric="unknown_recall",
            split="unknown-only",
            convention="fmiyc",
            at_least=0.3,
            confidence=0.95,
            parameters={"tau": 0.5},
            name="REQ-2",
        ),
    )


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("", "Expected at least one claim in .*criteria.toml, got none"),
        ("version = 1\nclaim = []", "Expected at least one claim"),
        ("version = 1\nclaim = 3", "claim holds 3, which is wrong"),
        ("version = 1\nclaim = [3]", "claim holds 3, which is wrong: input should be a table"),
        (ONE.replace("version = 1", "version = 2"), "version holds 2, which is wrong"),
        (ONE.replace("version = 1", ""), "has no key 'version'; add it"),
        (ONE.replace("version = 1", "version = 1\nclaims = 1"), "got 'claims'"),
        (ONE + "atmost = 3\n", "claim 1 has no use for the key 'atmost'; did you mean at_most"),
        (ONE + '[[claim]]\nmetric = "laece"\n', "claim 2: Expected at_most and not at_least"),
        (ONE + "[[claim]]\nat_most = 0.3\n", "claim 2 has no key 'metric'; add it"),
        (ONE.replace("0.1", '"0.1"'), "claim 1: Expected a number as at_most, got '0.1'"),
        (ONE.replace("0.1", "true"), "claim 1: Expected a number as at_most, got True"),
        (ONE + "split = 3\n", "claim 1: split holds 3, which is wrong"),
        (ONE + "parameters = 3\n", "claim 1: parameters holds 3, which is wrong"),
        ("version = ", "is not TOML"),
    ],
)
def test_a_file_of_criteria_that_is_wrong_gets_one_sentence(content, sentence, tmp_path):
    path = tmp_path / "criteria.toml"
    path.write_text(content)
    with pytest.raises(InvalidDataError, match=sentence) as caught:
        load_claims(path)
    assert "criteria.toml" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_misspelt_metric_gets_a_suggestion_and_its_place(tmp_path):
    path = tmp_path / "criteria.toml"
    path.write_text(ONE.replace("laece", "laecee"))
    with pytest.raises(UnknownNameError, match=r"criteria.toml: claim 1: .* Did you mean laece\?"):
        load_claims(path)
