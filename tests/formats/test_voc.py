"""VOC's XML becomes records as the definition says; wrong and hostile files get a sentence."""

import gzip
import json
import zipfile

import pytest

from incognita.errors import InvalidDataError, MissingDataError
from incognita.formats.voc import load_voc, load_voc_list

OBJECT = """<object><name>{name}</name><difficult>{difficult}</difficult>
<bndbox><xmin>{box[0]}</xmin><ymin>{box[1]}</ymin><xmax>{box[2]}</xmax><ymax>{box[3]}</ymax></bndbox>
{more}</object>"""


def xml(*objects, size="<size><width>50</width><height>40</height></size>", suffix=".jpg"):
    return f"<annotation><filename>x{suffix}</filename>{size}{''.join(objects)}</annotation>"


def thing(name="cat", box=(1, 2, 10, 20), difficult=0, more=""):
    return OBJECT.format(name=name, box=box, difficult=difficult, more=more)


def write_voc(folder, files):
    (folder / "Annotations").mkdir(parents=True, exist_ok=True)
    for image_id, text in files.items():
        (folder / "Annotations" / f"{image_id}.xml").write_text(text)
    return folder


def test_corners_that_count_from_1_become_boxes_that_count_from_0(tmp_path):
    part = "<part><name>head</name><bndbox><xmin>3</xmin></bndbox></part>"
    files = {
        "000002": xml(thing("dog", (1, 1, 50, 40)), thing(difficult=1, more=part)),
        "000001": xml(size="", suffix=".png"),
        "2008_000003": xml(thing(box=(1.5, 2, 10.5, 20))),
    }
    found = load_voc(write_voc(tmp_path / "VOC2007", files))
    assert list(found.images) == ["000001", "000002", "2008_000003"]
    assert found.images["000001"] == {"id": "000001", "file_name": "JPEGImages/000001.png"}
    assert found.images["000002"]["width"] == 50
    dog, cat = found.objects["000002"]
    assert dog["bbox"] == [0, 0, 50, 40]
    assert dog["area"] == 2000
    assert cat["bbox"] == [0, 1, 10, 19]
    assert (dog["difficult"], cat["difficult"]) == (0, 1)
    assert found.category_names == {1: "cat", 2: "dog"}
    assert found.objects["2008_000003"][0]["bbox"] == [0.5, 1, 10, 19]
    assert "000001" not in found.objects


def test_images_and_classes_may_be_chosen(tmp_path):
    folder = write_voc(tmp_path, {"a": xml(thing()), "b": xml(thing("dog"))})
    assert list(load_voc(folder, only=["a"]).images) == ["a"]
    assert load_voc(folder, classes=["dog", "cat"]).category_names == {1: "dog", 2: "cat"}
    with pytest.raises(InvalidDataError, match=r"b\.xml: No class is called 'dog'\. "):
        load_voc(folder, classes=["cat", "doge"])
    with pytest.raises(MissingDataError, match=r"c\.xml and 1 more of its list; get"):
        load_voc(folder, only=["a", "c", "d"])


@pytest.mark.data
def test_real_files_equal_the_whole_test_set_in_coco_format(data_dir, tmp_path):
    folder = data_dir / "detection" / "voc2007"
    with zipfile.ZipFile(folder / "voc2007_test_subset.zip") as archive:
        archive.extractall(tmp_path)
    found = load_voc(tmp_path / "VOC2007")
    whole = json.loads(gzip.decompress((folder / "voc2007_test_all.json.gz").read_bytes()))
    names = {category["id"]: category["name"] for category in whole["categories"]}
    sizes = {image["file_name"]: (image["width"], image["height"]) for image in whole["images"]}
    ids = {image["id"]: image["file_name"].removesuffix(".jpg") for image in whole["images"]}
    expected: dict[str, list] = {}
    for record in whole["annotations"]:
        own = (names[record["category_id"]], [float(v) for v in record["bbox"]], record["ignore"])
        expected.setdefault(ids[record["image_id"]], []).append(own)
    assert len(found.images) == 249
    for image_id, image in found.images.items():
        assert (image["width"], image["height"]) == sizes[f"{image_id}.jpg"]
        own = [
            (found.category_names[r["category_id"]], [float(v) for v in r["bbox"]], r["difficult"])
            for r in found.objects[image_id]
        ]
        assert own == expected[image_id]
    listed = load_voc_list(tmp_path / "VOC2007" / "ImageSets" / "Main" / "test.txt")
    assert sorted(listed) == list(found.images)


LAUGHS = "".join(f'<!ENTITY l{k} "{f"&l{k - 1};" * 10}">' for k in range(1, 12))
BOMB = (
    f'<?xml version="1.0"?><!DOCTYPE l [<!ENTITY l0 "ha">{LAUGHS}]><annotation>&l11;</annotation>'
)
OUTSIDE = (
    '<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/passwd">]><annotation><object><name>&x;</name>'
    "</object></annotation>"
)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (BOMB, "a.xml has a DOCTYPE, which could declare entities"),
        (OUTSIDE, "a.xml has a DOCTYPE"),
        ("<annotation>", "a.xml is not XML: no element found"),
        ("<annotation>&x;</annotation>", "a.xml is not XML: undefined entity"),
        ("", "a.xml is not XML: no element found"),
        ("<html></html>", "a.xml begins with <html>, but <annotation> is expected"),
        (xml(thing("")), "a.xml: object 1 has no name; write its class there."),
        (xml(thing(), thing(box=(9, 2, 3, 4))),
         "a.xml: object 2 has the corners 9, 2 and 3, 4, but the smaller ones are expected first"),
        (xml(thing(box=("x", 2, 3, 4))), "a.xml: object 1 has 'x' as xmin, but a number"),
        (xml(thing(box=("nan", 2, 3, 4))), "a.xml: object 1 has 'nan' as xmin, but a number"),
        (xml("<object><name>cat</name></object>"), "a.xml: object 1 has '' as xmin"),
        (xml(thing(difficult=2)), "a.xml: object 1 has '2' as difficult, but 0 or 1"),
        (xml(size="<size><width>-3</width><height>4</height></size>"),
         "a.xml has the size '-3 x 4', but whole numbers are expected."),
    ],
)  # fmt: skip
def test_a_wrong_file_is_answered_with_a_sentence(tmp_path, text, sentence):
    with pytest.raises(InvalidDataError) as raised:
        load_voc(write_voc(tmp_path, {"a": text}))
    assert sentence in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_folder_without_annotations_is_answered_with_a_sentence(tmp_path):
    with pytest.raises(MissingDataError, match="There is no folder Annotations in "):
        load_voc(tmp_path)


def test_a_list_holds_an_id_in_each_line(tmp_path):
    path = tmp_path / "list.txt"
    path.write_text("000001\r\n2008_000002\n\n000001")  # repeated ids are up to the reader
    assert load_voc_list(path) == ["000001", "2008_000002", "000001"]
    for text, sentence in (
        ("000001\n000005 -1\n", "list.txt: line 2 holds '000005 -1', but the id of one image"),
        ("../x\n", "list.txt: line 1 holds '../x'"),
        ("\n", "list.txt lists no image"),
    ):
        path.write_text(text)
        with pytest.raises(InvalidDataError) as raised:
            load_voc_list(path)
        assert sentence in str(raised.value)
