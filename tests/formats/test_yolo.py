"""YOLO's text files become records as the definition says; wrong ones get a sentence."""

import pytest
from tests.benchmarks.saod_cases import write_picture

from incognita.errors import InvalidDataError, MissingDataError
from incognita.formats.yolo import load_yolo


def write_yolo(folder, lines, *, names="cat\ndog\n", split=""):
    for name in lines:
        write_picture(folder / "images" / split / f"{name}.png", (200, 100))
    (folder / "labels" / split).mkdir(parents=True)
    for name, text in lines.items():
        if text is not None:
            (folder / "labels" / split / f"{name}.txt").write_text(text)
    (folder / "classes.txt").write_text(names)
    return folder


def test_centers_and_shares_become_boxes_in_pixels(tmp_path):
    lines = {"b": "1 0.5 0.5 0.25 1\n0 0.1 0.1 0.2 0.2\n", "a": "", "c": None}
    found = load_yolo(write_yolo(tmp_path, lines, split="val"), split="val")
    assert found.images["b"] == {
        "id": "b", "file_name": "images/val/b.png", "width": 200, "height": 100,
    }  # fmt: skip
    assert list(found.images) == ["a", "b", "c"]
    assert list(found.objects) == ["b"]
    dog, cat = found.objects["b"]
    assert dog["bbox"] == [75, 0, 50, 100]  # center 100, 50; 50 x 100
    assert cat["bbox"] == [0, 0, 40, 20]
    assert (dog["category_id"], dog["area"], dog["image_id"]) == (2, 5000, "b")
    assert found.category_names == {1: "cat", 2: "dog"}


@pytest.mark.parametrize("names", ["names: [cat, dog]\n", "names:\n  0: cat\n  1: dog\n"])
def test_names_may_stand_in_a_yaml_file(tmp_path, names):
    folder = write_yolo(tmp_path, {"a": "1 0.5 0.5 1 1"})
    (folder / "classes.txt").unlink()
    (folder / "data.yaml").write_text(names)
    assert load_yolo(folder).category_names == {1: "cat", 2: "dog"}
    assert load_yolo(folder, classes=["x", "y"]).category_names == {1: "x", 2: "y"}


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("0 0.5 0.5 0.1", "a.txt: line 1 has 4 fields, but five are expected: class x y width"),
        ("0 0.5 0.5 0.1 0.1 0.9", "a.txt: line 1 has 6 fields"),
        ("2 0.5 0.5 0.1 0.1", "a.txt: line 1 has the class '2', but a number from 0 to 1 is"),
        ("cat 0.5 0.5 0.1 0.1", "a.txt: line 1 has the class 'cat', but a number from 0 to 1"),
        ("\n0 0.5 0.5 0.1 1.1", "a.txt: line 2 holds '1.1', but a share of the image from 0 to 1"),
        ("0 0.5 nan 0.1 0.1", "a.txt: line 1 holds 'nan', but a share"),
        ("0 x 0.5 0.1 0.1", "a.txt: line 1 holds 'x', but a share"),
    ],
)
def test_a_wrong_line_is_answered_with_a_sentence(tmp_path, line, sentence):
    with pytest.raises(InvalidDataError) as raised:
        load_yolo(write_yolo(tmp_path, {"a": line}))
    assert sentence in str(raised.value)


def test_a_wrong_folder_is_answered_with_a_sentence(tmp_path):
    with pytest.raises(MissingDataError, match=r"There is no classes\.txt and no data\.yaml in"):
        load_yolo(tmp_path)
    folder = write_yolo(tmp_path, {"a": ""}, names="cat\ncat\n")
    with pytest.raises(InvalidDataError, match=r"classes\.txt must name every class once"):
        load_yolo(folder)
    with pytest.raises(MissingDataError, match=r"There is no folder .*images/test"):
        load_yolo(folder, split="test", classes=["cat"])
    write_picture(folder / "images" / "a.jpg")
    with pytest.raises(InvalidDataError, match="holds two images called a, which share a text"):
        load_yolo(folder, classes=["cat"])
