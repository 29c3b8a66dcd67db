"""Results on disk: nothing is lost, nothing half written is believed."""

import polars
import pytest

from incognita.errors import InvalidDataError
from incognita.results.method_result import (
    Cost,
    GridPoint,
    MethodResult,
    SearchRecord,
    identity_hash,
)
from incognita.results.result import Result
from incognita.results.store import ResultStore

IDENTITY = {"benchmark": "openood/cifar10", "model": "my net", "weights": "ab" * 8, "method": "knn"}


@pytest.fixture
def result():
    return MethodResult(
        "knn",
        {"k": 50},
        (Result("auroc", "paper", "near", 0.9, 0.8, 0.95, {"known images": 5}),),
        Cost(1, 0, 0.5, 3.25, 4096),
        IDENTITY,
        SearchRecord(
            "tuned", (GridPoint({"k": 50}, 0.8), GridPoint({"k": 999}, None, "too large"))
        ),
        {"incognita": "0"},
        ("partial",),
    )


@pytest.fixture
def scores():
    return polars.DataFrame({"set": ["a"], "unknown_score": [1.0]})


def test_a_result_comes_back_as_it_was(tmp_path, result, scores):
    store = ResultStore(tmp_path)
    path = store.save(result, scores)
    assert path.relative_to(tmp_path).parts[:2] == ("openood-cifar10", "my-net-abababab")
    found, frame = store.find(IDENTITY)
    assert found == result
    assert frame.equals(scores)


def test_another_identity_is_another_file(tmp_path, result, scores):
    store = ResultStore(tmp_path)
    store.save(result, scores)
    assert store.find(IDENTITY | {"seed": 1}) is None
    assert identity_hash(IDENTITY) != identity_hash(IDENTITY | {"seed": 1})


@pytest.mark.parametrize("suffix", [".json", ".parquet"])
def test_a_file_cut_off_by_a_crash_counts_as_missing(tmp_path, result, scores, suffix):
    store = ResultStore(tmp_path)
    path = store.save(result, scores).with_suffix(suffix)
    path.write_bytes(path.read_bytes()[:40])
    assert store.find(IDENTITY) is None


def test_a_result_from_before_writes_were_found_counts_as_missing(tmp_path, result, scores):
    store = ResultStore(tmp_path)
    path = store.save(result, scores)
    now = path.read_text()
    path.write_text(now.replace("incognita.method-result.2", "incognita.method-result.1"))
    assert now != path.read_text()
    assert store.find(IDENTITY) is None
    store.save(result, scores)
    assert store.find(IDENTITY) is not None


def test_a_name_cannot_leave_the_folder(tmp_path):
    path = ResultStore(tmp_path).path(IDENTITY | {"model": "../../etc", "method": "a/b"})
    assert tmp_path in path.resolve().parents


def test_one_number_is_found_by_metric_and_split(result):
    assert result.get("auroc", "near").value == 0.9
    with pytest.raises(KeyError, match=r"no value on 'far'\. Choose one of: near"):
        result.get("auroc", "far")
    with pytest.raises(KeyError, match="Did you mean auroc"):
        result.get("aurocc", "near")


def test_something_else_is_refused():
    with pytest.raises(InvalidDataError, match="Expected the record of a method"):
        MethodResult.from_json({"format": "other"})
