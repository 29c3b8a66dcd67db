"""Boxes of OpenImages become pixels as the notes say, and wrong files get a sentence."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.benchmarks.image_trees import write_image
from tests.formats.annotation_cases import write
from tests.oracles.splits import openimages_boxes

from incognita.errors import InvalidDataError, MissingDataError
from incognita.formats.openimages import (
    Size,
    load_box_columns,
    load_class_names,
    load_hierarchy,
    load_openimages,
    sizes_from_csv,
    sizes_from_images,
)

HEADER = (
    "ImageID,Source,LabelName,Confidence,XMin,XMax,YMin,YMax,IsOccluded,IsTruncated,IsGroupOf,"
    "IsDepiction,IsInside"
)
CLASSES = '/m/0cat,Cat\n/m/0dog,Dog\n/m/0org,"Organ, musical"\n'


def line(image="a", label="/m/0cat", box=(0.1, 0.5, 0.2, 0.4), group=0) -> str:
    return f"{image},xclick,{label},1,{','.join(map(str, box))},0,0,{group},0,0"


def files_of(folder, lines, classes=CLASSES):
    return (
        write(folder / "boxes.csv", "\n".join([HEADER, *lines]) + "\n"),
        write(folder / "classes.csv", classes),
    )


def test_a_box_is_a_share_of_the_image_rounded_to_two_digits(tmp_path):
    lines = [line(box=(0.333333, 0.666667, 0.0, 1.0)), line("b", "/m/0dog", group=1)]
    found = load_openimages(
        *files_of(tmp_path, lines), sizes={"a": Size(1024, 683), "b": Size(10, 10)}
    )
    assert found.unsized == ()
    assert found.annotations.images["a"] == {
        "id": "a", "file_name": "a.jpg", "width": 1024, "height": 683,
    }  # fmt: skip
    assert found.annotations.objects["a"] == [
        {"id": 1, "image_id": "a", "category_id": 1, "bbox": [341.33, 0.0, 341.33, 683.0],
         "area": 233128.39, "iscrowd": 0},
    ]  # fmt: skip
    assert found.annotations.objects["b"][0]["iscrowd"] == 1
    assert found.annotations.names_in("b") == {"Dog"}
    assert [each["name"] for each in found.annotations.categories][2] == "Organ, musical"


shares = st.tuples(*[st.integers(0, 10**6).map(lambda k: k / 10**6)] * 2).map(sorted)
rows = st.tuples(
    st.sampled_from("abcd"), st.sampled_from(["/m/0cat", "/m/0dog"]), shares, shares,
    st.sampled_from([-1, 0, 1]),
)  # fmt: skip


@given(st.lists(rows, max_size=12), st.sets(st.sampled_from("abcd")), st.integers(1, 5000))
def test_boxes_equal_those_read_line_by_line(tmp_path_factory, drawn, wanted, width):
    lines = [line(image, label, (*x, *y), group) for image, label, x, y, group in drawn]
    paths = files_of(tmp_path_factory.getbasetemp() / "drawn", lines)
    sizes = {"a": Size(width, 768), "b": Size(333, width), "c": Size(1, 1)}
    found = load_openimages(*paths, sizes=sizes, only=wanted)
    expected = openimages_boxes(paths[0], sizes, sorted(wanted))
    labels = {1: "/m/0cat", 2: "/m/0dog"}
    own = [each for group in found.annotations.objects.values() for each in group]
    own = [
        {"label": labels[each["category_id"]]}
        | {key: each[key] for key in ("id", "image_id", "bbox", "iscrowd")}
        for each in sorted(own, key=lambda each: each["id"])
    ]
    assert own == expected
    assert list(found.annotations.images) == sorted({each["image_id"] for each in expected})
    asked = {image for image, *_ in drawn} & wanted
    assert found.unsized == tuple(sorted(asked - set(sizes)))


def test_images_of_a_list_are_there_without_boxes_and_unsized_ones_are_told(tmp_path):
    paths = files_of(tmp_path, [line("a"), line("b"), line("c")])
    found = load_openimages(*paths, sizes={"a": Size(4, 4), "z": Size(4, 4)}, only={"b"},
                            also=["z", "y"])  # fmt: skip
    assert list(found.annotations.images) == ["z"]
    assert found.annotations.objects == {}
    assert found.unsized == ("b", "y")


def test_all_images_are_read_where_none_is_named(tmp_path):
    paths = files_of(tmp_path, [line("a"), line("b")])
    sizes = {"a": Size(4, 4), "b": Size(4, 4)}
    assert list(load_openimages(*paths, sizes=sizes).annotations.images) == ["a", "b"]


def test_a_header_in_the_file_of_class_names_is_no_class(tmp_path):
    paths = files_of(tmp_path, [line()], "LabelName,DisplayName\n" + CLASSES)
    found = load_openimages(*paths, sizes={"a": Size(4, 4)})
    assert found.annotations.category_names == {1: "Cat", 2: "Dog", 3: "Organ, musical"}


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("ImageID,LabelName\n", "boxes.csv has no column 'XMin'; give a file of boxes as Open"),
        (f"{HEADER}\n{line(box=(0.5, 0.1, 0.2, 0.4))}\n",
         "boxes.csv: line 2 has the box 0.5, 0.2, 0.1, 0.4, but shares of the image from 0 to 1"),
        (f"{HEADER}\n{line(box=(0.5, 1.1, 0.2, 0.4))}\n", "boxes.csv: line 2 has the box"),
        (f"{HEADER}\n{line()}\n{line(label='/m/0x')}\n",
         "boxes.csv: line 3 is of class '/m/0x', which the file of class names does not have"),
        (f"{HEADER}\n{line(box=('', 0.5, 0.1, 0.2))}\n",
         "boxes.csv: line 2 is not complete; get the file again."),
        (f"{HEADER}\n{line(box=('left', 0.5, 0.1, 0.2))}\n", "boxes.csv cannot be read: "),
    ],
)  # fmt: skip
def test_a_wrong_file_of_boxes_is_answered_with_a_sentence(tmp_path, text, sentence):
    paths = write(tmp_path / "boxes.csv", text), write(tmp_path / "classes.csv", CLASSES)
    with pytest.raises(InvalidDataError) as raised:
        load_openimages(*paths, sizes={"a": Size(4, 4)})
    assert sentence in str(raised.value)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("/m/0cat\n", "classes.csv: class 1 has 1 fields, but a label and a name are expected"),
        (
            "/m/1,Cat\n/m/2,Cat\n",
            "classes.csv: class 1 has 'Cat' as name, as class 0 has; keep one",
        ),
        ("/m/1,Cat\n/m/1,Dog\n", "has '/m/1' as label, as class 0 has; keep one"),
    ],
)
def test_a_wrong_file_of_class_names_is_answered_with_a_sentence(tmp_path, text, sentence):
    with pytest.raises(InvalidDataError) as raised:
        load_openimages(*files_of(tmp_path, [], text), sizes={})
    assert sentence in str(raised.value)


def test_a_missing_file_is_told(tmp_path):
    _, classes = files_of(tmp_path, [])
    with pytest.raises(MissingDataError, match=r"There is no file at .*none.csv"):
        load_openimages(tmp_path / "none.csv", classes, sizes={})


def test_sizes_come_from_a_file_or_from_images(tmp_path):
    path = write(tmp_path / "sizes.csv", "id,width,height\na,640,480\n\nb,3,4\n")
    assert sizes_from_csv(path) == {"a": Size(640, 480), "b": Size(3, 4)}
    write_image(tmp_path / "c.jpg", size=(7, 5))
    assert sizes_from_images(tmp_path, ["c", "d"]) == {"c": Size(7, 5)}


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("a,1,2\n", "sizes.csv must begin with the line: id,width,height"),
        ("id,width,height\na,1\n",
         "sizes.csv: line 2 does not hold an id and two whole numbers from 1 to 1,000,000"),
        ("id,width,height\na,0,2\n", "sizes.csv: line 2 does not hold an id"),
        ("id,width,height\na,3,2\na,3,2\na,2,3\n", "sizes.csv: line 4 gives 'a' the size 2 x 3, an "
         "earlier line 3 x 2; keep the right one."),
        ("id,width,height\na,1.5,2\n", "sizes.csv: line 2 does not hold an id"),
    ],
)  # fmt: skip
def test_wrong_sizes_are_answered_with_a_sentence(tmp_path, text, sentence):
    with pytest.raises(InvalidDataError) as raised:
        sizes_from_csv(write(tmp_path / "sizes.csv", text))
    assert sentence in str(raised.value)


def test_a_broken_image_is_told(tmp_path):
    write(tmp_path / "a.jpg", "no image")
    with pytest.raises(InvalidDataError, match=r"a.jpg cannot be read as an image .*; replace the"):
        sizes_from_images(tmp_path, ["a"])


def test_columns_hold_what_the_records_hold(tmp_path):
    lines = [
        line("a", box=(0.1, 0.5, 0.2, 0.4)),
        line("b", "/m/0org", group=1),
        line("b", group=-1),
    ]
    boxes, names = files_of(tmp_path, lines)
    found = load_box_columns(boxes, list(load_class_names(names)))
    assert found.image_ids.to_list() == ["a", "b"]
    assert found.image_index.tolist() == [0, 1, 1]
    assert found.label_index.tolist() == [0, 2, 0]
    assert found.is_group.tolist() == [False, True, False]
    assert [edge[0] for edge in found.edges] == [0.1, 0.5, 0.2, 0.4]


@pytest.mark.parametrize(
    ("lines", "sentence"),
    [
        ([line(), line(box=(0.5, 0.1, 0.2, 0.4))], "line 3 has the box 0.5, 0.2, 0.1, 0.4, but"),
        ([line(label="/m/0x")], "line 2 is of a class that the file of class names does not have"),
        ([line(), line(box=("", 0.5, 0.1, 0.2))], "line 3 is not complete; get the file again."),
        ([line(box=("left", 0.5, 0.1, 0.2))], "cannot be read: its lines are not boxes"),
        ([line(box=("nan", 0.5, 0.1, 0.2))], "line 2 has the box nan, 0.1, 0.5, 0.2, but shares"),
    ],
)
def test_wrong_columns_are_answered_with_a_sentence(tmp_path, lines, sentence):
    boxes, names = files_of(tmp_path, lines)
    with pytest.raises(InvalidDataError) as raised:
        load_box_columns(boxes, list(load_class_names(names)))
    assert f"boxes.csv: {sentence}" in str(raised.value) or sentence in str(raised.value)
    (tmp_path / "boxes.csv").write_text("ImageID,LabelName\n")
    with pytest.raises(InvalidDataError, match="has no column 'XMin'"):
        load_box_columns(tmp_path / "boxes.csv", [])


def node(name, *below, parts=()):
    entry = {"LabelName": name}
    if below:
        entry["Subcategory"] = list(below)
    return entry | ({"Part": list(parts)} if parts else {})


def test_a_hierarchy_knows_what_is_below_and_how_deep(tmp_path):
    wheel = node("wheel", node("tire"))
    content = node("all", node("car", node("van"), parts=[wheel]), node("toy", node("van"), wheel))
    found = load_hierarchy(write(tmp_path / "tree.json", json.dumps(content)))
    assert found.root == "all"
    assert found.below("car") == {"car", "van"}  # without parts
    assert found.below("toy") == {"toy", "van", "wheel", "tire"}
    assert found.parts == {"car": ("wheel",)}
    assert found.depths == {"all": 0, "car": 1, "toy": 1, "van": 2, "wheel": 2, "tire": 3}


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ([], "tree.json has an entry without a LabelName; give a hierarchy as OpenImages"),
        (node("all", {"Subcategory": []}), "tree.json has an entry below 'all' without a Label"),
        (node("all", node("a", node("all"))), "tree.json has 'all' below itself; take one of"),
        (node("all", node("a", node("b")), node("b", node("a"))), "below itself; take one of"),
        ({"LabelName": "all", "Part": {}}, "tree.json: Part of 'all' must be a list; correct it."),
    ],
)
def test_a_wrong_hierarchy_is_answered_with_a_sentence(tmp_path, content, sentence):
    with pytest.raises(InvalidDataError) as raised:
        load_hierarchy(write(tmp_path / "tree.json", json.dumps(content)))
    assert sentence in str(raised.value)


@pytest.mark.data
def test_the_real_hierarchy_has_601_classes_below_its_root(data_dir):
    lists = data_dir / "lists"
    found = load_hierarchy(lists / "openimages_bbox_labels_600_hierarchy.json")
    names = json.loads((lists / "openimages_boxable.json").read_text())
    assert set(found.depths) == set(names)
    assert len(found.depths) == 602
    by_name = {name: label for label, name in names.items()}
    below = {names[label] for label in found.below(by_name["Car"])}
    assert below == {"Car", "Limousine", "Van"}
    assert names[found.parts[by_name["Land vehicle"]][0]] == "Auto part"
