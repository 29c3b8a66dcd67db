"""Paths that files of others name: inside the data folder, or refused with a sentence."""

import json
from pathlib import Path

import pytest
from tests.benchmarks.image_trees import STREET, write_image, write_list, write_street

from incognita.benchmarks.load import load_benchmark
from incognita.errors import InvalidDataError
from incognita.formats.data_folder import DataFolder

BOXES = """
name = "mine/boxes"
version = 1
title = "Boxes"
task = "detection"
classes = ["car"]

[[set]]
name = "test"
role = "test"
kind = "coco"
annotations = "gt.json"
images = "pictures"

[[set]]
name = "mixed"
role = "mixed"
kind = "coco"
annotations = "gt.json"
images = "pictures"
"""


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch, tmp_path_factory):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))


@pytest.fixture
def data(tmp_path: Path) -> Path:
    (tmp_path / "outside").mkdir()
    write_street(tmp_path / "data")
    return tmp_path / "data"


def refusal(path: Path) -> str:
    with pytest.raises(InvalidDataError) as caught:
        load_benchmark(path)
    sentence = str(caught.value)
    assert "outside of the data folder" in sentence
    assert "--allow-outside" in sentence
    return sentence


def changed(data: Path, old: str, new: str) -> Path:
    assert old in STREET
    (data / "other.toml").write_text(STREET.replace(old, new))
    return data / "other.toml"


@pytest.mark.parametrize("name", ["../outside", "/", "signs/../../outside"])
@pytest.mark.parametrize(
    "old", ['path = "animals"', 'root = "noise"', 'list = "lists/noise.txt"', 'path = "signs/test"']
)
def test_a_definition_cannot_name_what_is_outside(data, old, name):
    key = old.split(" ")[0]
    assert repr(name) in refusal(changed(data, old, f'{key} = "{name}"'))


def test_the_file_of_class_names_is_inside_and_never_printed(data, tmp_path):
    secret = tmp_path / "outside" / "passwd"
    secret.write_text("root:x:0:0\nsecret:x:1:1\n")
    old = 'classes = ["stop", "give way"]'
    assert "passwd" in refusal(changed(data, old, 'classes = "../outside/passwd"'))
    (data / "names.txt").write_text(secret.read_text())
    path = changed(data, old, 'classes = "names.txt"')
    with pytest.raises(InvalidDataError) as caught:
        load_benchmark(path)
    assert "names.txt" in str(caught.value)
    assert "root:x" not in str(caught.value)
    with pytest.raises(InvalidDataError) as caught:
        load_benchmark(changed(data, 'list = "lists/noise.txt"', 'list = "names.txt"'))
    assert "line 1" in str(caught.value)
    assert "root:x" not in str(caught.value)


def test_a_link_directly_below_the_folder_is_followed_with_a_note(data, tmp_path):
    (data / "animals").rename(tmp_path / "outside" / "animals")
    (data / "animals").symlink_to(tmp_path / "outside" / "animals")
    benchmark = load_benchmark(data / "street.toml")
    assert len(benchmark.unknown["near"]["animals"].image_ids) == 5
    note = "animals: animals is a link that leads out of the data folder; it is followed"
    assert benchmark.notes == (note,)


def test_a_deeper_link_must_not_leave_the_folder(data, tmp_path):
    (data / "animals" / "deer").rename(tmp_path / "outside" / "deer")
    (data / "animals" / "deer").symlink_to(tmp_path / "outside" / "deer")
    assert "animals/deer" in refusal(data / "street.toml")
    allowed = load_benchmark(data / "street.toml", allow_outside=True)
    assert len(allowed.unknown["near"]["animals"].image_ids) == 5


def test_a_link_to_one_image_outside_is_refused_and_one_inside_is_not(data, tmp_path):
    inside = write_image(data / "more" / "9.png", 9)
    link = data / "animals" / "fox" / "9.png"
    link.symlink_to(inside)
    assert len(load_benchmark(data / "street.toml").unknown["near"]["animals"].image_ids) == 6
    link.unlink()
    link.symlink_to(write_image(tmp_path / "outside" / "9.png", 9))
    assert "fox/9.png" in refusal(data / "street.toml")


def test_a_link_to_what_a_link_below_the_folder_leads_to_is_inside(data, tmp_path):
    write_image(tmp_path / "outside" / "big" / "1.png")
    (data / "big").symlink_to(tmp_path / "outside" / "big")
    (data / "animals" / "more").symlink_to(data / "big")
    assert len(load_benchmark(data / "street.toml").unknown["near"]["animals"].image_ids) == 6


def test_a_list_may_name_files_outside_only_if_it_is_allowed(data, tmp_path):
    image = write_image(tmp_path / "outside" / "1.png", 77)
    write_list(data / "lists" / "noise.txt", [f"{image} -1", "../../outside/1.png -1"])
    (data / "other.toml").write_text(STREET.replace("count = 3\n", "count = 2\n"))
    with pytest.raises(InvalidDataError, match="leads out of the image folder"):
        load_benchmark(data / "other.toml")
    allowed = load_benchmark(data / "other.toml", allow_outside=True).unknown["far"]["noise"]
    assert allowed.load(0)[0, 0].tolist() == [77, 10, 20]
    assert allowed.load(1)[0, 0].tolist() == [77, 10, 20]
    assert len(allowed.fingerprint()) == 64


def boxes(folder: Path, file_name: str) -> Path:
    document = {
        "images": [{"id": 1, "file_name": file_name}],
        "categories": [{"id": 1, "name": "car"}],
        "annotations": [{"id": 1, "image_id": 1, "category_id": 1, "bbox": [0, 0, 2, 2]}],
    }
    folder.mkdir(exist_ok=True)
    (folder / "gt.json").write_text(json.dumps(document))
    write_image(folder / "pictures" / "1.png")
    (folder / "boxes.toml").write_text(BOXES)
    return folder / "boxes.toml"


@pytest.mark.parametrize("name", ["/home/me/1.png", "../../1.png"])
def test_an_image_record_cannot_name_a_file_outside_nor_is_its_last_part_taken(tmp_path, name):
    write_image(tmp_path / "1.png")
    assert repr(name) in refusal(boxes(tmp_path / "data", name))


def test_an_absolute_file_name_inside_is_that_very_file(tmp_path):
    path = boxes(tmp_path / "data", str(tmp_path / "data" / "pictures" / "1.png"))
    assert len(load_benchmark(path).test.image_ids) == 1


def test_a_definition_extends_only_files_below_its_folder(data, tmp_path):
    own = 'name = "a"\nversion = 1\ntitle = "a"\nextends = "../base.toml"\n'
    (tmp_path / "base.toml").write_text(STREET)
    (data / "own.toml").write_text(own)
    assert "'../base.toml'" in refusal(data / "own.toml")
    assert load_benchmark(data / "own.toml", allow_outside=True).name == "a"
    (data / "base.toml").write_text(STREET)
    (data / "own.toml").write_text(own.replace("../", ""))
    assert load_benchmark(data / "own.toml").name == "a"


def test_a_name_with_a_control_character_is_refused_without_a_traceback(tmp_path):
    with pytest.raises(InvalidDataError, match=r"'a\\x00b'"):
        DataFolder(tmp_path).find("a\0b", "mine.toml")


def test_a_definition_runs_no_python_file(data):
    path = data / "other.toml"
    path.write_text('default_model = "net.py:build"\n' + STREET)
    with pytest.raises(InvalidDataError) as caught:
        load_benchmark(path)
    assert str(caught.value) == (
        f"{path}: default_model names the Python file 'net.py:build', but code is run only if it "
        f"is given as --model; leave it out."
    )


@pytest.mark.usefixtures("outside_tests")
@pytest.mark.parametrize("limit", [2.5, "3", True, 0])
def test_a_limit_of_another_type_is_answered_with_a_sentence(data, limit):
    with pytest.raises(InvalidDataError, match="Expected limit to be"):
        load_benchmark(data / "street.toml", limit=limit)


@pytest.mark.usefixtures("outside_tests")
@pytest.mark.parametrize("name", [5, None, ["a"]])
def test_a_benchmark_of_another_type_is_answered_with_a_sentence(name):
    with pytest.raises(InvalidDataError, match="Expected the name of a benchmark or a TOML file"):
        load_benchmark(name)


@pytest.mark.parametrize("classes", ["1_000_000_000_000", '["' + "x" * 300 + '"]'])
def test_classes_have_a_limit(data, classes):
    old = 'classes = ["stop", "give way"]'
    with pytest.raises(InvalidDataError, match="expected at most 100,000 names of 200 characters"):
        load_benchmark(changed(data, old, f"classes = {classes}"))
