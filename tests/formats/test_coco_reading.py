"""Reading and writing COCO files: values, order, round trips, and a sentence for every fault."""

import gzip
import json
import random
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save_file

from incognita.containers.boxes import BoxTruth, Detections
from incognita.errors import InvalidDataError, MissingDataError, UnknownNameError
from incognita.formats import (
    CocoTruth,
    load_coco,
    load_detections,
    load_truth,
    save_detections,
    save_truth,
)
from incognita.formats.class_roles import ClassMap
from incognita.formats.coco_annotations import load_tables
from incognita.formats.coco_results import load_columns

Document = dict[str, list[dict[str, Any]]]
BOX_COLUMNS = ("image_ids", "offsets", "xyxy", "sizes", "class_ids")


def truth_document() -> Document:
    return {
        "images": [{"id": 30}, {"id": 10}, {"id": 20}],
        "categories": [
            {"id": 9, "name": "deer", "supercategory": "animal"},
            {"id": 2, "name": "car", "supercategory": "vehicle"},
            {"id": 4, "name": "cone", "supercategory": "none"},
        ],
        "annotations": [
            {"id": 1, "image_id": 30, "category_id": 2, "bbox": [1, 2, 3, 4], "iscrowd": 1},
            {"id": 2, "image_id": 10, "category_id": 9, "bbox": [0.1, 0.2, 0.7, 0.3], "area": 0.05},
            {"id": 3, "image_id": 30, "category_id": 4, "bbox": [5, 5, 0, 2], "difficult": 1},
            {"id": 4, "image_id": 10, "category_id": 9, "bbox": [8, 8, 1, 1], "ignore": 1,
             "supercategory": "ruminant"},
        ],
    }  # fmt: skip


def results() -> list[dict[str, Any]]:
    return [
        {"image_id": 30, "category_id": 9, "bbox": [0.1, 0.2, 0.7, 0.3], "score": 0.5},
        {"image_id": 10, "category_id": 2, "bbox": [1, 2, 3, 4], "score": 0.25},
        {"image_id": 30, "category_id": 4, "bbox": [5, 6, 7, 8], "score": 0.5},
    ]


def write(path: Path, document: object) -> Path:
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    return path


@pytest.fixture
def truth(tmp_path: Path) -> CocoTruth:
    return load_truth(write(tmp_path / "gt.json", truth_document()))


# --- truth -----------------------------------------------------------------------------------


def test_truth_comes_sorted_by_image_id_in_file_order_within(truth: CocoTruth) -> None:
    boxes = truth.boxes
    assert boxes.image_ids.tolist() == [10, 20, 30]
    assert boxes.offsets.tolist() == [0, 2, 2, 4]
    assert boxes.sizes.tolist() == [[0.7, 0.3], [1, 1], [3, 4], [0, 2]]
    assert boxes.xyxy.tolist() == [
        [0.1, 0.2, 0.1 + 0.7, 0.2 + 0.3], [8, 8, 9, 9], [1, 2, 4, 6], [5, 5, 5, 7],
    ]  # fmt: skip
    assert boxes.areas.tolist() == [0.05, 1, 12, 0]
    assert boxes.is_crowd.tolist() == [False, False, True, False]
    assert boxes.is_difficult.tolist() == [False, True, False, True]


def test_classes_come_sorted_by_category_id(truth: CocoTruth) -> None:
    assert truth.boxes.classes.names == ("car", "cone", "deer")
    assert truth.boxes.classes.superclasses == ("vehicle", None, "animal")
    assert truth.categories == {2: 0, 4: 1, 9: 2}


def test_an_object_may_have_a_superclass_of_its_own(truth: CocoTruth) -> None:
    assert truth.boxes.superclasses.tolist() == ["animal", "ruminant", "vehicle", None]


def test_roles_come_from_a_list_or_a_class_map(tmp_path: Path) -> None:
    path = write(tmp_path / "gt.json", truth_document())
    listed = load_truth(path, known=["car"])
    mapped = load_truth(path, class_map=ClassMap(known=("car",), ignored=("cone",)))
    assert listed.boxes.is_unknown.tolist() == [True, True, False, True]
    assert mapped.boxes.is_unknown.tolist() == [True, True, False, False]
    with pytest.raises(UnknownNameError) as caught:
        load_truth(path, known=["cat"])
    assert str(caught.value) == f"No category of {path} is called 'cat'. Did you mean car?"


def test_a_class_map_adds_categories_of_the_detector(tmp_path: Path) -> None:
    path = write(tmp_path / "gt.json", truth_document())
    class_map = ClassMap(categories={81: "unknown", 82: "car"})
    truth = load_truth(path, class_map=class_map)
    assert truth.boxes.classes.names == ("car", "cone", "deer", "unknown")
    assert truth.categories == {2: 0, 4: 1, 9: 2, 81: 3, 82: 0}
    records = [results()[0] | {"category_id": each} for each in (81, 82)]
    found = load_detections(write(tmp_path / "dets.json", records), truth)
    assert found.class_ids.tolist() == [3, 0]
    with pytest.raises(InvalidDataError) as caught:
        load_truth(path, class_map=ClassMap(categories={9: "unknown"}))
    assert str(caught.value) == (
        f"The class map calls category 9 'unknown', but {path} calls it 'deer'; "
        "correct the class map."
    )


def test_image_ids_may_be_text(tmp_path: Path) -> None:
    document = truth_document()
    for image in document["images"]:
        image["id"] = f"é{image['id']}"
    for annotation in document["annotations"]:
        annotation["image_id"] = f"é{annotation['image_id']}"
    truth = load_truth(write(tmp_path / "gt.json", document))
    assert truth.boxes.image_ids.tolist() == ["é10", "é20", "é30"]
    records = [record | {"image_id": f"é{record['image_id']}"} for record in results()]
    found = load_detections(write(tmp_path / "dets.json", records), truth)
    assert found.offsets.tolist() == [0, 1, 1, 3]
    save_detections(found, tmp_path / "again.json", categories=truth.categories)
    assert load_detections(tmp_path / "again.json", truth).offsets.tolist() == [0, 1, 1, 3]


def test_truth_may_be_empty(tmp_path: Path) -> None:
    empty = {"images": [], "annotations": [], "categories": []}
    truth = load_truth(write(tmp_path / "gt.json", empty))
    found = load_detections(write(tmp_path / "dets.json", []), truth)
    assert (len(truth.boxes), truth.boxes.n_images, len(found), found.n_images) == (0, 0, 0, 0)


def edit(part: str, index: int, **changes: Any) -> Callable[[Document], None]:
    return lambda document: document[part][index].update(changes)


def remove(part: str, index: int, key: str) -> Callable[[Document], None]:
    return lambda document: document[part][index].pop(key)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (edit("images", 1, id=30), "image 1 (id 30) has 30 as id, as image 0 has; keep one."),
        (
            edit("images", 1, id="a"),
            "image 1 (id 'a') has 'a' as id, but a whole number is expected, "
            "as image 0 has; write all alike.",
        ),
        (
            edit("images", 0, id="a"),
            "image 0 (id 'a') has 'a' as id, but a whole number is expected, "
            "as image 1 has; write all alike.",
        ),
        (remove("images", 2, "id"), "image 2 has no id; add it."),
        (
            edit("categories", 1, id=9),
            "category 1 (id 9) has 9 as id, as category 0 has; keep one.",
        ),
        (
            edit("categories", 1, name="deer"),
            "category 1 (id 2) has 'deer' as name, as category 0 has; keep one.",
        ),
        (
            edit("categories", 1, name=""),
            "category 1 (id 2) has '' as name, but text is expected.",
        ),
        (
            edit("categories", 1, supercategory=5),
            "category 1 (id 2) has 5 as supercategory, but text is expected.",
        ),
        (
            edit("annotations", 3, id=2),
            "annotation 3 (id 2) has 2 as id, as annotation 1 has; keep one.",
        ),
        (
            edit("annotations", 2, image_id=31),
            "annotation 2 (id 3) is on image 31, which {path} does not list; "
            "add the image there or remove the record.",
        ),
        (
            edit("annotations", 0, category_id=3),
            "annotation 0 (id 1) has 3 as category_id, which {path} does not list among its "
            "categories; add it there or in a class map.",
        ),
        (remove("annotations", 0, "bbox"), "annotation 0 (id 1) has no bbox; add it."),
        (
            edit("annotations", 1, bbox=[1, 2, 3]),
            "annotation 1 (id 2) has [1, 2, 3] as bbox, but a list of four numbers "
            "(x, y, width, height) is expected.",
        ),
        (
            edit("annotations", 1, bbox=[1, 2, -3, 4]),
            "annotation 1 (id 2) has a negative width, -3.0; a bbox is x, y, width, height, "
            "not two corners.",
        ),
        (
            edit("annotations", 1, bbox=[1, 2, 3, float("nan")]),
            "annotation 1 (id 2) has nan as height, but a finite number is expected.",
        ),
        (
            edit("annotations", 1, area=float("inf")),
            "annotation 1 (id 2) has inf as area, but a finite number is expected.",
        ),
        (
            edit("annotations", 0, bbox=[0, 0, 1e200, 1e200]),
            "annotation 0 (id 1) has inf as area, but a finite number is expected.",
        ),
        (
            edit("annotations", 1, area="4"),
            "annotation 1 (id 2) has '4' as area, but a number is expected.",
        ),
        (
            edit("annotations", 1, area=-4),
            "annotation 1 (id 2) has a negative area, -4.0; correct it.",
        ),
        (
            edit("annotations", 1, iscrowd=2),
            "annotation 1 (id 2) has 2 as iscrowd, but 0 or 1 is expected.",
        ),
        (
            edit("annotations", 1, difficult="yes"),
            "annotation 1 (id 2) has 'yes' as difficult, but 0 or 1 is expected.",
        ),
        (
            lambda document: document["annotations"].append(7),
            "annotation 4 is 7, but an object in braces is expected.",
        ),
    ],
)
def test_a_wrong_record_of_the_truth_is_named(
    tmp_path: Path, change: Callable[[Document], None], sentence: str
) -> None:
    document = truth_document()
    change(document)
    path = write(tmp_path / "gt.json", document)
    with pytest.raises(InvalidDataError) as caught:
        load_truth(path)
    assert str(caught.value) == f"{path}: {sentence.format(path=path)}"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", " is empty; write the file again."),
        (" \n", " is empty; write the file again."),
        (
            "7",
            " does not hold an object; the truth is one with images, annotations and categories.",
        ),
        (
            json.dumps(results()),
            " is a list, as detections are, but the truth is an object with images, annotations "
            "and categories; are the two files swapped?",
        ),
        (
            '{"images": [], "annotations": []}',
            " has no list called 'categories'; the truth needs images, annotations and "
            "categories, if need be empty.",
        ),
        ('{"images": [], "images": []}', " holds the key 'images' twice; keep one."),
        (
            '{"images": [{"id": 1, "id": 2}], "annotations": [], "categories": []}',
            ": image 0 (id 2) holds the key 'id' twice; keep one.",
        ),
        (
            '{"images": [],\n "annotations": [',
            " is broken or incomplete JSON at line 2, column 18 (character 32): Expecting value; "
            "write the file again.",
        ),
    ],
)
def test_a_file_that_is_no_truth_is_refused(tmp_path: Path, text: str, sentence: str) -> None:
    path = write(tmp_path / "gt.json", text)
    with pytest.raises(InvalidDataError) as caught:
        load_truth(path)
    assert str(caught.value) == f"{path}{sentence}"


def test_keys_that_no_number_needs_are_not_kept(tmp_path: Path) -> None:
    document = truth_document() | {"info": {"year": 2025}}
    document["images"] = [{**image, "coco_url": "x" * 60} for image in document["images"]]
    path = tmp_path / "gt.json"
    path.write_text(json.dumps(document))
    keys = frozenset({"images", "annotations", "categories", "id"})
    tables = load_tables(path, keys=keys)
    assert tables.images.rows == [{"id": 30}, {"id": 10}, {"id": 20}]
    assert set(tables.annotations.rows[0]) == {"id"}
    assert not tables.others
    tracemalloc.start()
    try:
        document["images"] = [{"id": n, "coco_url": f"{n:0300}"} for n in range(5_000)]
        document["annotations"] = []
        path.write_text(json.dumps(document))
        del document
        tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]
        load_truth(path)
        peak = tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
    assert peak < 850 * 5_000  # bytes per image, of which the file itself has 330; 1,250 before


def test_a_missing_file_and_a_folder_are_refused(tmp_path: Path, truth: CocoTruth) -> None:
    for load in (load_truth, lambda path: load_detections(path, truth)):
        with pytest.raises(MissingDataError, match=r"There is no file at .*none; check the path\."):
            load(tmp_path / "none")
        with pytest.raises(InvalidDataError, match="is a folder, but a file is expected; name one"):
            load(tmp_path)


# --- detections ------------------------------------------------------------------------------


def test_detections_are_laid_out_like_the_truth(tmp_path: Path, truth: CocoTruth) -> None:
    found = load_detections(write(tmp_path / "dets.json", results()), truth)
    assert found.image_ids is truth.boxes.image_ids or found.image_ids.tolist() == [10, 20, 30]
    assert found.offsets.tolist() == [0, 1, 1, 3]
    assert found.classes is truth.boxes.classes
    assert found.class_ids.tolist() == [0, 2, 1]
    assert found.confidence.tolist() == [0.25, 0.5, 0.5]
    assert found.sizes.tolist() == [[3, 4], [0.7, 0.3], [7, 8]]
    assert found.xyxy.tolist() == [[1, 2, 4, 6], [0.1, 0.2, 0.1 + 0.7, 0.2 + 0.3], [5, 6, 12, 14]]


@pytest.mark.parametrize("name", ["results", "annotations"])
def test_the_list_may_lie_in_an_object(tmp_path: Path, truth: CocoTruth, name: str) -> None:
    found = load_detections(write(tmp_path / "dets.json", {name: results()}), truth)
    assert found.confidence.tolist() == [0.25, 0.5, 0.5]


def test_no_detections_at_all_are_valid(tmp_path: Path, truth: CocoTruth) -> None:
    found = load_detections(write(tmp_path / "dets.json", []), truth)
    assert (len(found), found.n_images) == (0, 3)


def test_what_the_scanner_leaves_aside_is_read_by_json(tmp_path: Path, truth: CocoTruth) -> None:
    records = results()
    records[0] |= {"image_id": 30.0, "category_id": 9.0, "note": "é"}
    path = tmp_path / "dets.json"
    path.write_text("\ufeff" + json.dumps(records, ensure_ascii=False), encoding="utf-8")
    assert load_detections(path, truth).class_ids.tolist() == [0, 2, 1]
    path.write_text(json.dumps(records), encoding="utf-16")
    assert load_detections(path, truth).class_ids.tolist() == [0, 2, 1]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"bbox": [1, 2, -3, 4]}, "has a negative width, -3.0; a bbox is x, y, width, height, "
         "not two corners."),
        ({"bbox": [1, 2, 3, -4e-9]}, "has a negative height, -4e-09; a bbox is x, y, width, "
         "height, not two corners."),
        ({"bbox": [float("nan"), 2, 3, 4]}, "has nan as x, but a finite number is expected."),
        ({"bbox": [1, float("-inf"), 3, 4]}, "has -inf as y, but a finite number is expected."),
        ({"bbox": [1, 10**400, 3, 4]}, "has inf as y, but a finite number is expected."),
        ({"bbox": [1e308, 2, 1e308, 4]},
         "has inf as x + width, but a finite number is expected."),
        ({"bbox": [1, 2, 3]}, "has [1, 2, 3] as bbox, but a list of four numbers "
         "(x, y, width, height) is expected."),
        ({"bbox": [1, 2, 3, "4"]}, "has [1, 2, 3, '4'] as bbox, but a list of four numbers "
         "(x, y, width, height) is expected."),
        ({"bbox": None}, "has None as bbox, but a list of four numbers (x, y, width, height) "
         "is expected."),
        ({"score": float("nan")}, "has nan as score, but a finite number is expected."),
        ({"score": float("inf")}, "has inf as score, but a finite number is expected."),
        ({"score": "0.5"}, "has '0.5' as score, but a number is expected."),
        ({"score": True}, "has True as score, but a number is expected."),
        ({"image_id": "30"},
         "has '30' as image_id, but a whole number is expected, "
         "as detection 0 has; write all alike."),
        ({"image_id": 30.5},
         "has 30.5 as image_id, but a whole number of at most 64 bits is expected."),
        ({"image_id": 2**63}, "has 9223372036854775808 as image_id, but a whole number of at "
         "most 64 bits is expected."),
        ({"image_id": 31}, "is on image 31, which {truth} does not list; add the image there or "
         "remove the record."),
        ({"category_id": 0}, "has 0 as category_id, which {truth} does not list among its "
         "categories; add it there or in a class map."),
        ({"category_id": None},
         "has None as category_id, but a whole number of at most 64 bits is expected."),
    ],
)  # fmt: skip
def test_a_wrong_detection_is_named(
    tmp_path: Path, truth: CocoTruth, changes: dict[str, Any], sentence: str
) -> None:
    records = results()
    records[2] |= changes
    path = write(tmp_path / "dets.json", records)
    with pytest.raises(InvalidDataError) as caught:
        load_detections(path, truth)
    assert str(caught.value) == f"{path}: detection 2 {sentence.format(truth=truth.source)}"


@pytest.mark.parametrize("key", ["image_id", "category_id", "bbox", "score"])
def test_a_detection_without_a_key_is_named(tmp_path: Path, truth: CocoTruth, key: str) -> None:
    records = results()
    del records[1][key]
    path = write(tmp_path / "dets.json", records)
    with pytest.raises(InvalidDataError) as caught:
        load_detections(path, truth)
    assert str(caught.value) == f"{path}: detection 1 has no {key}; add it."


def test_text_ids_against_a_truth_with_numbers(tmp_path: Path, truth: CocoTruth) -> None:
    path = write(tmp_path / "dets.json", [results()[0] | {"image_id": "30"}])
    with pytest.raises(InvalidDataError) as caught:
        load_detections(path, truth)
    assert str(caught.value) == (
        f"{path}: detection 0 has '30' as image_id, but the image ids of {truth.source} are "
        "numbers; write both alike."
    )


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", " is empty; write the file again."),
        (
            json.dumps(results())[:-40],
            " is broken or incomplete JSON at line 1, column 186 (character 185): Expecting value; "
            "write the file again.",
        ),
        (
            json.dumps(truth_document()),
            " has images or categories, as the truth does, but detections are a list; "
            "are the two files swapped?",
        ),
        ("7", " does not hold a list; detections are a list of objects."),
        (
            '{"boxes": []}',
            " is an object, but detections are a list, or an object with one list called results "
            "or annotations.",
        ),
        (
            '[{"image_id": 1, "image_id": 2}]',
            ": detection 0 holds the key 'image_id' twice; keep one.",
        ),
        ("[5]", ": detection 0 is 5, but an object in braces is expected."),
        (
            "[" * 100_000,
            " is not JSON: its brackets are nested too deeply; write the file again.",
        ),
    ],
)
def test_a_file_that_holds_no_detections_is_refused(
    tmp_path: Path, truth: CocoTruth, text: str, sentence: str
) -> None:
    path = write(tmp_path / "dets.json", text)
    with pytest.raises(InvalidDataError) as caught:
        load_detections(path, truth)
    assert str(caught.value) == f"{path}{sentence}"


def test_bytes_that_are_no_text_are_refused(tmp_path: Path, truth: CocoTruth) -> None:
    path = tmp_path / "dets.json"
    path.write_bytes(json.dumps(results())[:-2].encode() + b', "note": "\xff"}]')
    with pytest.raises(InvalidDataError, match="is not JSON: byte 234 is not UTF-8"):
        load_detections(path, truth)


# --- a broken file is read as json reads it, or refused ------------------------------------------


def columns_by_json(data: bytes) -> tuple[list[Any], ...] | None:
    """Read a list the slow way; None if anything about it is wrong."""
    try:
        rows = [
            (row["image_id"], row["category_id"], *map(float, row["bbox"]), float(row["score"]))
            for row in json.loads(data)
        ]
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    columns = tuple(map(list, zip(*rows, strict=False)))
    is_box = all(len(row) == 7 and min(row[4:6]) >= 0 for row in rows)
    is_finite = all(np.isfinite(column).all() for column in columns) if is_box else False
    is_plain = all(type(value) in (int, float) for row in json.loads(data)
                   for value in (*row["bbox"], row["score"])) if is_finite else False  # fmt: skip
    return columns if is_plain else None


def assert_same_or_refused(path: Path, data: bytes) -> None:
    path.write_bytes(data)
    try:
        found = load_columns(path)
    except InvalidDataError as error:
        assert str(error).startswith(str(path))  # noqa: PT017 -- either outcome is right
        assert columns_by_json(data) is None, data
        return
    expected = columns_by_json(data)
    assert expected is not None, data
    actual = (found.image_ids, found.category_ids, *found.xywh.T, found.confidence)
    assert not len(found.confidence) or [column.tolist() for column in actual] == list(expected)


FUZZED = json.dumps(
    [
        {"image_id": 1, "category_id": 2, "bbox": [1.5, -2e3, 0.1234567890123456, 4], "score": 1},
        {"score": 0.98, "x": [1, {"y": "\u00e9\\", "z": None}], "bbox": [0, 0, 7, 1E-3],
         "category_id": 12, "image_id": 345},
    ]
).encode()  # fmt: skip


def test_a_file_cut_at_any_byte(tmp_path: Path) -> None:
    for end in range(len(FUZZED) + 1):
        assert_same_or_refused(tmp_path / "dets.json", FUZZED[:end])


def test_a_file_with_any_byte_changed(tmp_path: Path) -> None:
    rng = random.Random(0)
    for position in range(len(FUZZED)):
        likely = rng.sample(b'0123456789.eE+-"\\[]{},: \n\0au', 8)
        for byte in (*likely, rng.randrange(256)):
            changed = FUZZED[:position] + bytes([byte]) + FUZZED[position + 1 :]
            assert_same_or_refused(tmp_path / "dets.json", changed)


def test_a_file_with_bytes_left_out_or_doubled(tmp_path: Path) -> None:
    for position in range(len(FUZZED)):
        before, after = FUZZED[:position], FUZZED[position + 1 :]
        assert_same_or_refused(tmp_path / "dets.json", before + after)
        assert_same_or_refused(tmp_path / "dets.json", before + 2 * FUZZED[position:][:1] + after)


def test_a_truth_cut_or_changed_anywhere_is_read_or_refused(tmp_path: Path) -> None:
    data, path, rng = json.dumps(truth_document()).encode(), tmp_path / "gt.json", random.Random(0)
    for position in range(len(data)):
        changed = data[:position] + rng.choice([b"", b"9", b"]", b'"']) + data[position + 1 :]
        for failed_images in (data[:position], changed):
            path.write_bytes(failed_images)
            try:
                load_truth(path)
            except InvalidDataError as error:
                assert str(path) in str(error)  # noqa: PT017 -- either outcome is right


# --- compression, sidecar, round trips -------------------------------------------------------


def test_compressed_files_are_read_whatever_their_name(tmp_path: Path) -> None:
    for name in ("gt.json.gz", "gt.json"):
        path = tmp_path / name
        path.write_bytes(gzip.compress(json.dumps(truth_document()).encode()))
        truth = load_truth(path)
        path.write_bytes(gzip.compress(json.dumps(results()).encode()))
        assert load_detections(path, truth).class_ids.tolist() == [0, 2, 1]


def test_a_broken_compressed_file_is_refused(tmp_path: Path, truth: CocoTruth) -> None:
    packed = gzip.compress(json.dumps(results()).encode())
    path = tmp_path / "dets.json.gz"
    for failed_images in (packed[:-12], packed[:30] + b"\xff\xff" + packed[32:], packed[:9]):
        path.write_bytes(failed_images)
        with pytest.raises(InvalidDataError, match=r"cannot be unpacked: .*; copy or write the"):
            load_detections(path, truth)


def test_a_sidecar_follows_its_boxes(tmp_path: Path, truth: CocoTruth) -> None:
    path = write(tmp_path / "dets.json", results())
    sidecar = tmp_path / "dets.safetensors"
    logits = np.array([[0, 1], [2, 3], [4, 5]], np.float32)
    features = np.array([[0.5], [1.5], [2.5]], np.float64)
    save_file({"logits": logits, "features": features}, sidecar)
    found = load_detections(path, truth, sidecar=sidecar)
    assert found.logits.tolist() == [[2, 3], [0, 1], [4, 5]]
    assert found.features.tolist() == [[1.5], [0.5], [2.5]]
    assert found.logits.dtype == np.float32
    save_file({"logits": logits}, sidecar)
    assert load_detections(path, truth, sidecar=sidecar).features is None


@pytest.mark.parametrize(
    ("arrays", "sentence"),
    [
        (
            {"logits": np.zeros((2, 4), np.float32)},
            ": logits have 2 rows, but there are 3 detections; write one row per record of the "
            "list, in its order.",
        ),
        (
            {"logit": np.zeros((3, 4), np.float32)},
            " holds ['logit'], but logits, features or both are expected; rename them.",
        ),
        ({}, " holds [], but logits, features or both are expected; rename them."),
        (
            {"features": np.zeros(3, np.float32)},
            ": features must be floats in rows and columns, but they are float32 of shape [3].",
        ),
        (
            {"features": np.zeros((3, 2), np.int64)},
            ": features must be floats in rows and columns, but they are int64 of shape [3, 2].",
        ),
        (
            {"features": np.array([[0.0], [np.nan], [1.0]])},
            ": row 1 of features is not finite; look at that detection.",
        ),
    ],
)
def test_a_wrong_sidecar_is_refused(
    tmp_path: Path, truth: CocoTruth, arrays: dict[str, np.ndarray], sentence: str
) -> None:
    path, sidecar = write(tmp_path / "dets.json", results()), tmp_path / "dets.safetensors"
    save_file(arrays, sidecar)
    with pytest.raises(InvalidDataError) as caught:
        load_detections(path, truth, sidecar=sidecar)
    assert str(caught.value) == f"{sidecar}{sentence}"


def test_a_sidecar_that_is_missing_or_no_sidecar(tmp_path: Path, truth: CocoTruth) -> None:
    path = write(tmp_path / "dets.json", results())
    with pytest.raises(MissingDataError, match="There is no safetensors file at"):
        load_detections(path, truth, sidecar=tmp_path / "none")
    with pytest.raises(InvalidDataError, match="cannot be read as safetensors"):
        load_detections(path, truth, sidecar=path)


def assert_same(first: BoxTruth | Detections, second: BoxTruth | Detections, *names: str) -> None:
    assert first.classes == second.classes
    for name in (*BOX_COLUMNS, *names):
        one, other = getattr(first, name), getattr(second, name)
        assert one.dtype == other.dtype, name
        assert one.tobytes() == other.tobytes() or one.tolist() == other.tolist(), name


lengths = st.floats(0, 1e6)
boxes = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 2), st.tuples(lengths, lengths, lengths, lengths),
              st.floats(-1e3, 1e3), st.booleans(), st.booleans(),
              st.sampled_from([None, "animal", "é"])),
    max_size=6,
)  # fmt: skip


@given(boxes)
def test_what_was_written_is_read_back_bit_for_bit(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[Any, ...]]
) -> None:
    folder = tmp_path_factory.mktemp("trip")
    document = truth_document() | {"images": [{"id": i} for i in range(4)]}
    document["annotations"] = [
        {"image_id": image, "category_id": (2, 4, 9)[category], "bbox": list(box),
         "area": area + 1e3, "iscrowd": int(crowd), "difficult": difficult, "supercategory": above}
        for image, category, box, area, crowd, difficult, above in rows
    ]  # fmt: skip
    truth = load_truth(write(folder / "gt.json", document))
    save_truth(truth.boxes, folder / "again.json.gz", categories=truth.categories)
    again = load_truth(folder / "again.json.gz")
    assert_same(truth.boxes, again.boxes, "areas", "is_crowd", "is_difficult", "superclasses")
    assert truth.categories == again.categories

    records = [
        {"image_id": image, "category_id": (2, 4, 9)[category], "bbox": list(box), "score": score}
        for image, category, box, score, *_ in rows
    ]
    found = load_detections(write(folder / "dets.json", records), truth)
    save_detections(found, folder / "again.json", categories=truth.categories)
    assert_same(found, load_detections(folder / "again.json", truth), "confidence")


def test_saved_truth_counts_categories_from_one_by_default(
    tmp_path: Path, truth: CocoTruth
) -> None:
    save_truth(truth.boxes, tmp_path / "again.json")
    assert load_truth(tmp_path / "again.json").categories == {1: 0, 2: 1, 3: 2}


def test_a_sidecar_makes_the_round_trip(tmp_path: Path, truth: CocoTruth) -> None:
    path, sidecar = write(tmp_path / "dets.json", results()), tmp_path / "dets.safetensors"
    save_file({"logits": np.arange(6, dtype=np.float32).reshape(3, 2)}, sidecar)
    found = load_detections(path, truth, sidecar=sidecar)
    save_detections(found, path, categories=truth.categories, sidecar=sidecar)
    again = load_detections(path, truth, sidecar=sidecar)
    assert_same(found, again, "confidence", "logits")


def test_saving_refuses_to_lose_or_invent(tmp_path: Path, truth: CocoTruth) -> None:
    path, sidecar = write(tmp_path / "dets.json", results()), tmp_path / "dets.safetensors"
    found = load_detections(path, truth)
    with pytest.raises(InvalidDataError, match="have neither logits nor features; name no sidecar"):
        save_detections(found, path, categories=truth.categories, sidecar=sidecar)
    save_file({"logits": np.zeros((3, 2), np.float32)}, sidecar)
    with_logits = load_detections(path, truth, sidecar=sidecar)
    with pytest.raises(InvalidDataError, match="The detections have logits; name a sidecar file"):
        save_detections(with_logits, path, categories=truth.categories)
    with pytest.raises(InvalidDataError, match="Class 'cone' has no category id to be written"):
        save_detections(found, path, categories={2: 0, 9: 2})


def test_a_failed_save_leaves_the_old_file_and_no_other(tmp_path: Path, truth: CocoTruth) -> None:
    path = write(tmp_path / "dets.json", results())
    before = sorted(tmp_path.iterdir())
    found = load_detections(path, truth)
    object.__setattr__(found, "confidence", None)  # fails in the middle of writing
    with pytest.raises(TypeError):
        save_detections(found, path, categories=truth.categories)
    assert sorted(tmp_path.iterdir()) == before
    assert json.loads(path.read_text()) == results()
    with pytest.raises(MissingDataError, match=r"There is no folder .*none to write into; make it"):
        save_truth(truth.boxes, tmp_path / "none" / "gt.json")


# --- real files ------------------------------------------------------------------------------

TRUTHS = (
    "coco/instances_val2017_subset.json.gz",
    "metric_fixtures/coco_instances_val2014_100.json.gz",
    "voc2007/voc2007_test_all.json.gz",
)


@pytest.mark.data
@pytest.mark.parametrize("name", TRUTHS)
def test_real_truth_is_what_json_says(data_dir: Path, tmp_path: Path, name: str) -> None:
    path = data_dir / "detection" / name
    document = json.loads(gzip.decompress(path.read_bytes()))
    truth = load_truth(path)
    by_image: dict[int, list[dict[str, Any]]] = {image["id"]: [] for image in document["images"]}
    for annotation in document["annotations"]:
        by_image[annotation["image_id"]].append(annotation)
    expected = [each for image_id in sorted(by_image) for each in by_image[image_id]]
    names = {category["id"]: category["name"] for category in document["categories"]}
    boxes = truth.boxes
    assert boxes.image_ids.tolist() == sorted(by_image)
    assert np.diff(boxes.offsets).tolist() == [len(by_image[i]) for i in sorted(by_image)]
    assert np.hstack([boxes.xyxy[:, :2], boxes.sizes]).tolist() == [a["bbox"] for a in expected]
    assert boxes.areas.tolist() == [a["area"] for a in expected]
    assert boxes.is_crowd.tolist() == [bool(a["iscrowd"]) for a in expected]
    assert boxes.is_difficult.tolist() == [bool(a.get("difficult")) for a in expected]
    assert [boxes.classes.names[i] for i in boxes.class_ids] == [
        names[a["category_id"]] for a in expected
    ]
    save_truth(boxes, tmp_path / "again.json", categories=truth.categories)
    again = load_truth(tmp_path / "again.json")
    assert_same(boxes, again.boxes, "areas", "is_crowd", "is_difficult", "superclasses")


@pytest.mark.data
def test_real_detections_are_what_json_says(data_dir: Path) -> None:
    folder = data_dir / "detection" / "metric_fixtures"
    path = folder / "coco_val2014_fakebbox100_results.json.gz"
    records = json.loads(gzip.decompress(path.read_bytes()))
    truth = load_truth(folder / "coco_instances_val2014_100.json.gz")
    found = load_detections(path, truth)
    expected = sorted(records, key=lambda record: record["image_id"])  # stable, as we are
    assert found.image_ids[found.image_index].tolist() == [r["image_id"] for r in expected]
    assert found.confidence.tolist() == [r["score"] for r in expected]
    assert np.hstack([found.xyxy[:, :2], found.sizes]).tolist() == [r["bbox"] for r in expected]
    assert found.class_ids.tolist() == [truth.categories[r["category_id"]] for r in expected]


# --- both files at once ------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(tmp_path / "gt.json", truth_document())
    write(tmp_path / "dets.json", results())
    return tmp_path


def test_both_files_are_loaded_at_once(folder: Path, truth: CocoTruth) -> None:
    pair = load_coco(folder / "gt.json", folder / "dets.json")
    assert_same(pair.truth, truth.boxes, "areas", "superclasses")
    expected = load_detections(folder / "dets.json", truth)
    assert pair.detections.xyxy.tolist() == expected.xyxy.tolist()
    assert load_coco(str(folder / "gt.json"))[1] is None


def test_known_classes_are_a_list_or_a_class_map(folder: Path) -> None:
    listed, _ = load_coco(folder / "gt.json", known=["car"])
    mapped, _ = load_coco(folder / "gt.json", classes=ClassMap(known=("car",)))
    path = folder / "classes.toml"
    path.write_text('version = 1\nknown = ["car"]')
    from_file, _ = load_coco(folder / "gt.json", classes=path)
    assert listed.classes == mapped.classes == from_file.classes
    with pytest.raises(InvalidDataError, match="known must be a list of names, got the text 'car'"):
        load_coco(folder / "gt.json", known="car")
    with pytest.raises(InvalidDataError, match="given twice"):
        load_coco(folder / "gt.json", known=["car"], classes=path)
    with pytest.raises(InvalidDataError, match="are the two files swapped"):
        load_coco(folder / "dets.json", folder / "gt.json")
