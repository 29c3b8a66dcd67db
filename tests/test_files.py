"""Opening and replacing files: what is followed, what is never replaced, and what is refused."""

import gzip
import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from incognita import files
from incognita.containers.boxes import BoxTruth, Detections
from incognita.containers.classes import Classes
from incognita.errors import InvalidDataError
from incognita.evaluation.certify import certify
from incognita.files import json_batches, opened, replacing, replacing_text
from incognita.formats import load_truth, save_truth


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    return path


def read_pipe(pipe: Path) -> tuple[threading.Thread, list[str]]:
    """Read what comes through a pipe in a thread: opening it to write waits for a reader."""
    received: list[str] = []
    reader = threading.Thread(target=lambda: received.append(pipe.read_text()), daemon=True)
    reader.start()
    return reader, received


@pytest.mark.parametrize("before", ["before", None])
def test_writing_to_a_link_replaces_what_it_points_to(tmp_path: Path, before: str | None) -> None:
    target, link = tmp_path / "far" / "target.json", tmp_path / "link.json"
    target.parent.mkdir()
    if before is not None:
        target.write_text(before)
    link.symlink_to(target)
    with replacing_text(link) as file:
        file.write("after")
    assert link.is_symlink()
    assert target.read_text() == "after"
    assert names(tmp_path) == ["far", "link.json"]
    assert names(target.parent) == ["target.json"]


def test_a_failed_write_to_a_link_leaves_its_target(tmp_path: Path) -> None:
    target, link = tmp_path / "target.json", tmp_path / "link.json"
    target.write_text("before")
    link.symlink_to(target)
    with pytest.raises(ZeroDivisionError), replacing_text(link) as file:
        file.write(str(1 / 0))
    assert target.read_text() == "before"
    assert names(tmp_path) == ["link.json", "target.json"]


def test_a_pipe_is_written_to_and_never_replaced(tmp_path: Path, pipe: Path) -> None:
    reader, received = read_pipe(pipe)
    with replacing_text(pipe) as file:
        file.write("through the pipe")
    reader.join(timeout=10)
    assert received == ["through the pipe"]
    assert pipe.is_fifo()
    assert names(tmp_path) == ["pipe"]


def test_a_certificate_goes_through_a_pipe_that_a_link_points_to(
    tmp_path: Path, pipe: Path
) -> None:
    link = tmp_path / "link"
    link.symlink_to(pipe)
    classes = Classes(("car",))
    truth = BoxTruth([1], [0, 1], [[0, 0, 9, 9]], [0], classes)
    certificate = certify(truth, Detections.empty([1], classes), n_resamples=0)
    reader, received = read_pipe(pipe)
    certificate.save(link)
    reader.join(timeout=10)
    certificate.save(tmp_path / "file.json")
    assert received == [(tmp_path / "file.json").read_text()]
    assert pipe.is_fifo()
    assert link.is_symlink()


def test_a_pipe_that_fails_stays(pipe: Path) -> None:
    with pytest.raises(ZeroDivisionError), replacing(pipe):
        1 / 0  # noqa: B018
    assert pipe.is_fifo()


def test_a_pipe_is_not_read(pipe: Path) -> None:
    sentence = f"{pipe} is a pipe or device; write its content to a file first."
    with pytest.raises(InvalidDataError) as caught, opened(pipe):
        pass
    assert str(caught.value) == sentence
    with pytest.raises(InvalidDataError) as caught:
        load_truth(pipe)
    assert str(caught.value) == sentence


def test_a_folder_is_not_written_to(tmp_path: Path) -> None:
    truth = BoxTruth.empty([1], Classes(("car",)))
    with pytest.raises(InvalidDataError) as caught:
        save_truth(truth, tmp_path)
    assert str(caught.value) == (
        f"{tmp_path} is a folder, but a file is expected; name one inside it."
    )
    assert names(tmp_path) == []


def test_a_file_that_may_not_be_written_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "precious.json"
    path.write_text("before")
    path.chmod(0o444)
    if os.access(path, os.W_OK):
        pytest.skip("root may write to everything")
    with pytest.raises(InvalidDataError) as caught, replacing_text(path):
        pass
    assert str(caught.value) == f"{path} may not be written; name another file."
    assert path.read_text() == "before"


def test_a_file_that_the_system_says_may_not_be_written_is_not_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "precious.json"
    path.write_text("before")
    monkeypatch.setattr(os, "access", lambda *_: False)  # so that root sees it too
    with pytest.raises(InvalidDataError) as caught, replacing_text(path):
        pass
    assert str(caught.value) == f"{path} may not be written; name another file."
    assert path.read_text() == "before"


# --- large JSON files in batches ------------------------------------------------------------------

texts = st.text(st.characters(exclude_categories=["Cs"]))  # halves of characters are not UTF-8
scalars = st.none() | st.booleans() | st.integers() | texts | st.floats(-1e9, 1e9)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
)
flat_records = st.dictionaries(
    st.sampled_from(["id", "bbox", "area"]),
    st.integers() | st.lists(st.floats(-1e9, 1e9), max_size=4),
)
documents = st.dictionaries(texts, st.lists(values, max_size=6) | scalars, max_size=5)


def lists_of(path: Path, flat: tuple[str, ...] = ()) -> dict[str, list[Any]]:
    """Join the batches of each list."""
    found: dict[str, list[Any]] = {}
    for batch in json_batches(path, flat=flat):
        records = json.loads(f"[{batch.text}]") if batch.text else batch.records
        assert batch.first == len(found.get(batch.name, ()))
        found.setdefault(batch.name, []).extend(records)
    return found


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(documents, st.integers(1, 40), st.integers(1, 3), st.sampled_from([None, 1]))
def test_batches_hold_what_json_reads(tmp_path, monkeypatch, content, chunk, batch, indent):
    monkeypatch.setattr(files, "_CHUNK", chunk)
    monkeypatch.setattr(files, "_BATCH", batch)
    path = tmp_path / "large.json"
    path.write_text(
        json.dumps(content, indent=indent, ensure_ascii=ascii), "utf-8", "surrogatepass"
    )
    if not ascii and "\\ud" in json.dumps(content):
        return  # halves of characters are not UTF-8
    expected = {key: value for key, value in content.items() if isinstance(value, list) and value}
    assert lists_of(path) == expected


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(flat_records, max_size=9), st.integers(1, 99), st.sampled_from([",", ", ", " ,\n"]))
def test_flat_records_come_as_text_of_whole_records(tmp_path, monkeypatch, records, chunk, comma):
    monkeypatch.setattr(files, "_CHUNK", chunk)
    path = tmp_path / "large.json"
    text = json.dumps({"images": [{"id": 1}], "annotations": records}, separators=(comma, ":"))
    path.write_text(text)
    found = lists_of(path, flat=("annotations",))
    assert found.get("annotations", []) == records
    assert found["images"] == [{"id": 1}]


def test_a_list_and_a_compressed_file_are_read_too(tmp_path):
    path = tmp_path / "list.json.gz"
    path.write_bytes(gzip.compress(b' [1, {"a": [2]}, null]\n'))
    assert lists_of(path) == {"": [1, {"a": [2]}, None]}
    plain = tmp_path / "bom.json"
    plain.write_bytes(b"\xef\xbb\xbf[[]]")
    assert lists_of(plain) == {"": [[]]}


@pytest.mark.parametrize(
    "text",
    ["", " ", "3", '"a"', "[", "[1", "[1,", "[1 2]", "[1,]", "[]]", "[1] x", "[1x]", "{", '{"a"',
     '{"a":', '{"a": [1]', '{"a": [1],', '{"a" [1]}', '{"a": [1] "b": 2}', "{1: []}",
     '{"a": [1}', '{"a": [{"b": 1]}'],
)  # fmt: skip
def test_broken_json_is_one_sentence_with_its_place(tmp_path, text):
    path = tmp_path / "broken.json"
    path.write_text(text)
    with pytest.raises(
        InvalidDataError, match=r"broken\.json is broken or incomplete JSON near char"
    ):
        list(json_batches(path))


def test_bytes_that_are_not_text_and_endless_values_are_refused(tmp_path, monkeypatch):
    path = tmp_path / "bytes.json"
    path.write_bytes(b'["\xff"]')
    with pytest.raises(InvalidDataError, match="it is not UTF-8"):
        list(json_batches(path))
    monkeypatch.setattr(files, "_LONGEST_VALUE", 100)
    monkeypatch.setattr(files, "_CHUNK", 10)
    path.write_text('["' + "x" * 10_000)
    with pytest.raises(InvalidDataError, match="near character 1: a value is expected"):
        list(json_batches(path))
