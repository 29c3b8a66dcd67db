"""One record per number: what it must say, and that JSON gives it back."""

import json
import math
from dataclasses import FrozenInstanceError

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from incognita.errors import InvalidDataError, UnknownNameError
from incognita.metrics.catalog import METRICS
from incognita.metrics.measure import MetricValue, undefined
from incognita.results.result import ClassThreshold, Result

RECORD = {
    "metric": "unknown_recall",
    "convention": "paper",
    "split": "all",
    "value": 0.5,
    "low": 0.25,
    "high": 0.75,
    "support": {"objects": 8},
    "parameters": {"iou": 0.5},
    "reason": None,
    "units": 8,
}


def test_a_record_as_json_holds_every_field_and_the_direction():
    assert Result(**RECORD).as_json() == RECORD | {"direction": "higher is better"}


def test_only_metric_convention_split_and_value_must_be_given():
    record = Result("lrp", "paper", "all", 0.25).as_json()
    assert record["low"] is record["high"] is record["reason"] is None
    assert record["support"] == record["parameters"] == {}
    assert record["direction"] == "lower is better"


NUMBER = st.floats(allow_nan=True, allow_infinity=False)


@given(
    st.sampled_from(list(METRICS)),
    NUMBER,
    NUMBER,
    NUMBER,
    st.dictionaries(st.text(max_size=5), st.integers(0, 9), max_size=2),
)
def test_what_is_written_is_read_back_and_nan_is_null_between(metric, value, low, high, support):
    reason = "there is no object" if math.isnan(value) else None
    result = Result(metric, "paper", "all", value, low, high, support, {"tau": 0.1}, reason)
    record = result.as_json()
    text = json.dumps(record, allow_nan=False)
    for name, number in (("value", value), ("low", low), ("high", high)):
        assert record[name] is None if math.isnan(number) else record[name] == number
    again = Result.from_json(json.loads(text))
    assert again.as_json() == record
    assert math.isnan(again.value) == math.isnan(value)


def test_a_name_that_is_not_in_the_catalog_is_refused_with_a_suggestion():
    with pytest.raises(UnknownNameError) as caught:
        Result("unknown_recal", "paper", "all", 0.5)
    assert str(caught.value) == (
        "No metric is called 'unknown_recal'. Did you mean unknown_recall?"
    )


def test_a_value_that_is_missing_needs_a_reason():
    with pytest.raises(InvalidDataError) as caught:
        Result("lrp", "paper", "all", math.nan)
    assert str(caught.value) == "lrp has neither a value nor a reason. Give one of them."
    assert Result("lrp", "paper", "all", math.nan, reason="no object").reason == "no object"


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"author": "me"}, "unexpected keyword argument 'author'"),
        ({"value": "much"}, "could not convert string to float: 'much'"),
        ({"value": [1]}, "float() argument must be"),
        ({"value": None}, "unknown_recall has neither a value nor a reason. Give one of them."),
        ({"metric": "unknown_recal"}, "Did you mean unknown_recall?"),
    ],
)
def test_a_record_with_a_wrong_field_is_refused(changes, why):
    with pytest.raises(InvalidDataError) as caught:
        Result.from_json(RECORD | changes)
    sentence = str(caught.value)
    assert sentence.startswith('Expected the record of a result, got {"metric": "unknown_recal')
    assert why in sentence


@pytest.mark.parametrize("name", RECORD)
def test_a_record_without_a_field_is_refused(name):
    record = {key: value for key, value in RECORD.items() if key != name}
    with pytest.raises(InvalidDataError) as caught:
        Result.from_json(record)
    assert str(caught.value).endswith(f"({name} is missing).")


def test_the_record_of_a_measure_has_the_interval_of_its_replicates():
    measure = MetricValue(
        np.array([0.5, *np.linspace(0, 1, 101)]), {"objects": 4}, None, {"tau": 0.1}
    )
    result = Result.from_value("lrp", "paper", split="all", value=measure, level=0.9)
    assert (result.value, result.low, result.high) == (
        0.5,
        pytest.approx(0.05),
        pytest.approx(0.95),
    )
    assert result.support == {"objects": 4}
    assert result.parameters == {"tau": 0.1}


def test_few_images_behind_a_number_are_shown():
    shown = {units: Result(**RECORD | {"units": units}).few for units in (None, 0, 1, 9, 10)}
    assert shown == {None: "", 0: "", 1: " n=1", 9: " n=9", 10: ""}
    values = np.array([0.88, *np.linspace(0.8, 0.95, 101)])
    one = Result.from_value(
        "auroc", "paper", split="near", value=MetricValue(values, {}, units=1)
    )  # 88.0 ±4.6 from one box
    assert (one.value, one.few) == (0.88, " n=1")
    assert math.isnan(one.low)
    assert math.isnan(one.high)


def test_the_record_of_a_measure_without_replicates_or_value_has_no_interval():
    alone = MetricValue(np.array([0.5]), {})
    assert math.isnan(Result.from_value("lrp", "paper", split="all", value=alone).low)
    nothing = undefined("there is no object", {"objects": 0}, 5)
    result = Result.from_value("lrp", "paper", split="all", value=nothing)
    assert result.as_json()["value"] is result.as_json()["high"] is None
    assert result.reason == "there is no object"


def test_a_record_cannot_be_changed():
    with pytest.raises(FrozenInstanceError):
        Result(**RECORD).value = 1.0


def test_a_threshold_as_json_writes_null_for_nan():
    assert ClassThreshold("car", 0.5, 0.25, 3, tau=0.6).as_json() == {
        "class": "car",
        "threshold": 0.5,
        "optimal_lrp": 0.25,
        "support": {"objects": 3},
        "convention": "paper",
        "tau": 0.6,
    }
    nothing = ClassThreshold("car", math.nan, math.nan, 0).as_json()
    assert nothing["threshold"] is nothing["optimal_lrp"] is None
    assert nothing["support"] == {"objects": 0}
