"""Opening and replacing files: what is followed, what is never replaced, and what is refused."""

import os
import threading
from pathlib import Path

import pytest

from incognita.containers.boxes import BoxTruth, Detections
from incognita.containers.classes import Classes
from incognita.errors import InvalidDataError
from incognita.evaluation.certify import certify
from incognita.files import opened, replacing, replacing_text
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
