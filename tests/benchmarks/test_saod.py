"""The sets of SAOD against slow definitions, the tables against other libraries, bad files."""

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torchvision
from tests.benchmarks.saod_cases import (
    CONTENT,
    KNOWN,
    bdd_frame,
    objects365,
    write_bdd,
    write_coco_val,
    write_inaturalist,
    write_json,
    write_nuimages,
    write_objects365,
    write_picture,
    write_svhn,
)
from tests.oracles import saod_sets as slow

from incognita.benchmarks.splits import saod_sets
from incognita.benchmarks.splits.saod import SaodSources, build_saod, facts_of_saod, save_saod
from incognita.benchmarks.splits.saod_driving import (
    Label,
    build_bdd,
    build_nuimages,
    merge_riders,
)
from incognita.benchmarks.splits.saod_sets import (
    TABLES,
    BuiltSet,
    build_inaturalist,
    build_objects365,
    build_svhn,
    load_class_tables,
)
from incognita.errors import InvalidDataError, MissingDataError, UnknownNameError

SHIPPED = load_class_tables()
SEEDS = range(5)


def objects_in(built: BuiltSet) -> dict[object, list[tuple[str, list[float]]]]:
    """Class and box of the objects of each image."""
    names = built.annotations.category_names
    return {
        image_id: [
            (names[record["category_id"]], record["bbox"])
            for record in built.annotations.objects.get(image_id, ())
        ]
        for image_id in built.annotations.images
    }


def by_file(built: BuiltSet) -> dict[str, list[tuple[str, list[float]]]]:
    """Class and corners of the objects of each image, by the name of its file."""
    found = objects_in(built)
    return {
        image["file_name"]: [
            (name, [x, y, x + width, y + height]) for name, (x, y, width, height) in found[image_id]
        ]
        for image_id, image in built.annotations.images.items()
    }


def assert_same_boxes(found, expected):
    assert found.keys() == expected.keys()
    for name, objects in found.items():
        assert [own for own, _ in objects] == [own for own, _ in expected[name]]
        boxes, others = [box for _, box in objects], [box for _, box in expected[name]]
        np.testing.assert_allclose(boxes, others, rtol=1e-12, atol=1e-9)


def assert_every_image_is_counted(built: BuiltSet, n_images: dict[str, int]):
    assert {file: sum(found.values()) for file, found in built.outcomes.items()} == n_images


# --- the tables -----------------------------------------------------------------------------------


def test_the_365_classes_are_known_ambiguous_or_unknown_as_often_as_published():
    classes = SHIPPED.objects365
    assert len(classes.known) == 80
    names = [name for group in classes.known.values() for name in group]
    assert (len(names), len(classes.ambiguous), len(classes.unknown)) == (104, 24, 237)
    assert len({*names, *classes.ambiguous, *classes.unknown}) == 365


def test_the_known_classes_and_their_ids_are_those_of_coco():
    meta = torchvision.models.detection.FasterRCNN_ResNet50_FPN_Weights.COCO_V1.meta
    coco = {
        k: name
        for k, name in enumerate(meta["categories"])
        if name not in ("N/A", "__background__")
    }
    pairs = zip(SHIPPED.coco.category_ids, SHIPPED.objects365.known, strict=True)
    assert dict(pairs) == coco


def test_the_names_are_those_of_objects365_but_for_misspellings_that_others_correct():
    ultralytics = pytest.importorskip("ultralytics")
    yaml = pytest.importorskip("yaml")
    path = Path(ultralytics.__file__).parent / "cfg" / "datasets" / "Objects365.yaml"
    others = set(yaml.safe_load(path.read_text())["names"].values())
    classes = SHIPPED.objects365
    names = {name.strip() for name in (*KNOWN, *classes.ambiguous, *classes.unknown)}
    assert names - others == {
        "Bakset", "Ballon", "Billards", "Buttefly", "Campel", "Dinning Table", "Extention Cord",
        "Hamimelon", "Hotair ballon", "Meat ball", "Moniter/TV", "Mushroon", "Table Teniis paddle",
        "Tape Measur/ Ruler",
    }  # fmt: skip
    assert len(others - names) == 14


@pytest.mark.data
def test_every_name_is_spelt_as_the_files_of_objects365_and_bdd_spell_it(data_dir):
    lists = json.loads((data_dir / "lists" / "detection_classes.json").read_text())
    classes = SHIPPED.objects365
    assert {*KNOWN, *classes.ambiguous, *classes.unknown} == set(lists["objects365v2"])
    assert list(classes.known) == [name.replace("_", " ") for name in lists["coco"]]
    bdd = SHIPPED.bdd
    names = {*bdd.ignored, bdd.rider, *(name for group in bdd.known.values() for name in group)}
    assert set(lists["bdd100k"]) <= names


def test_published_counts_add_up():
    expected = SHIPPED.expected
    assert expected["svhn"] + expected["inaturalist"] + expected["objects365"] == 110_428
    assert (expected["obj45k"], expected["bdd45k"], expected["nuimages-val"]) == (
        45_391, 44_831, 16_445,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("before", "after", "sentence"),
    [
        ('"Briefcase", ', '"Briefcase", "Car", ', "class 'Car' is on two lists; keep one"),
        ('bus = ["Bus"]', 'bus = ["Bus", "Car"]', "'Car' becomes both 'car' and 'bus'; keep one"),
        (
            "    1, 2, 3,",
            "    1, 2,",
            "coco.category_ids has 79 different ids, but objects365.known",
        ),
        ("smallest_iou", "smalest_iou", "did you mean smallest_iou?"),
    ],
)
def test_wrong_tables_are_one_sentence(tmp_path, before, after, sentence):
    text = TABLES.read_text()
    assert before in text
    (tmp_path / "mine.toml").write_text(text.replace(before, after, 1))
    with pytest.raises(InvalidDataError, match=r"mine\.toml") as error:
        load_class_tables(tmp_path / "mine.toml")
    assert sentence in str(error.value)


# --- Objects365 -----------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("empty_images", ["keep", "drop"])
def test_objects365_becomes_the_sets_of_the_slow_definition(tmp_path, seed, empty_images):
    folder = write_objects365(tmp_path, seed)
    test, unknown = build_objects365(folder, SHIPPED, empty_images=empty_images)
    paths = [tmp_path / f"zhiyuan_objv2_{split}.json" for split in ("val", "train")]
    assert objects_in(test) == slow.known_images(paths[0], CONTENT["objects365"])
    expected = {}
    for path in paths:
        expected |= slow.unknown_images(
            path, CONTENT["objects365"], with_empty=empty_images == "keep"
        )
    found = {k: [name for name, _ in objects] for k, objects in objects_in(unknown).items()}
    assert found == {k: [name.strip() for name in names] for k, names in expected.items()}
    assert_every_image_is_counted(unknown, {path.name: 60 for path in paths})
    assert test.outcomes[paths[0].name]["obj45k"] == test.n_images > 5


def test_objects_of_test_images_keep_ids_flags_and_areas_and_lose_unknown_objects(tmp_path):
    content = objects365({5: ["Person", "Lamp", "SUV", "Car"] * 2}, first=70)
    write_json(tmp_path / "zhiyuan_objv2_val.json", content)
    write_json(tmp_path / "zhiyuan_objv2_train.json", objects365({6: ["Lamp"]}))
    test, _ = build_objects365(tmp_path, SHIPPED)
    records = test.annotations.objects[5]
    assert [record["id"] for record in records] == [70, 72, 73, 74, 76, 77]
    assert [record["category_id"] for record in records] == [1, 3, 3, 1, 3, 3]
    originals = {record["id"]: record for record in content["annotations"]}
    for record in records:
        assert record["iscrowd"] == originals[record["id"]]["iscrowd"]
        assert record["area"] == originals[record["id"]]["area"]
    assert dict(test.dropped) == {"of another class": 2}


def test_an_ambiguous_object_removes_its_image_from_every_set(tmp_path):
    write_json(
        tmp_path / "zhiyuan_objv2_val.json",
        objects365({1: ["Person", "Van"], 2: ["Lamp", "Van"], 3: ["Lamp"], 4: []}),
    )
    write_json(tmp_path / "zhiyuan_objv2_train.json", objects365({9: ["Person", "Lamp"]}))
    test, unknown = build_objects365(tmp_path, SHIPPED)
    assert list(test.annotations.images) == []
    assert list(unknown.annotations.images) == [3, 4]
    assert unknown.outcomes == {
        "zhiyuan_objv2_val.json": {
            "objects365": 1, "objects365, without any annotation": 1, "holds an ambiguous class": 2,
        },
        "zhiyuan_objv2_train.json": {"holds a known class, in a training image": 1},
    }  # fmt: skip


def test_image_ids_that_both_files_use_are_made_new_and_said(tmp_path):
    write_json(tmp_path / "zhiyuan_objv2_val.json", objects365({3: ["Lamp"], 4: ["Lamp"]}))
    write_json(tmp_path / "zhiyuan_objv2_train.json", objects365({4: ["Hat"], 5: []}))
    _, unknown = build_objects365(tmp_path, SHIPPED)
    assert list(unknown.annotations.images) == [3, 4, 5, 6]
    assert objects_in(unknown)[5][0][0] == "Hat"
    assert unknown.annotations.objects[5][0]["image_id"] == 5
    assert list(unknown.notes) == [
        "both files use some image ids, so that those of training images are new"
    ]


@pytest.mark.parametrize(
    "place", ["val/patch1/{}", "val/images/v1/patch1/{}", "images/v1/patch1/{}"]
)
def test_images_are_found_in_the_places_people_keep_them(tmp_path, place):
    write_json(tmp_path / "annotations/zhiyuan_objv2_val.json", objects365({1: ["Person"]}))
    write_json(tmp_path / "train/zhiyuan_objv2_train.json", objects365({9: []}))
    expected = place.format("objects365_v1_00000001.jpg")
    write_picture(tmp_path / expected)
    test, unknown = build_objects365(tmp_path, SHIPPED)
    assert test.annotations.images[1]["file_name"] == expected
    # no image of the training set is there
    assert unknown.annotations.images[9]["file_name"] == "train/patch0/objects365_v1_00000009.jpg"


def test_both_ways_of_reading_annotations_agree(tmp_path, monkeypatch):
    write_objects365(tmp_path, seed=3)
    quick = build_objects365(tmp_path, SHIPPED)
    monkeypatch.setattr(saod_sets, "_quick_columns", lambda text: None)
    for one, other in zip(quick, build_objects365(tmp_path, SHIPPED), strict=True):
        assert one.annotations.objects == other.annotations.objects
        assert one.annotations.images == other.annotations.images


@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": "), (" ,\n ", " : ")])
def test_any_space_between_records_will_do(tmp_path, separators):
    write_objects365(tmp_path, seed=1)
    expected = build_objects365(tmp_path, SHIPPED)[0].annotations.objects
    path = tmp_path / "zhiyuan_objv2_val.json"
    path.write_text(json.dumps(json.loads(path.read_text()), separators=separators))
    assert build_objects365(tmp_path, SHIPPED)[0].annotations.objects == expected


def test_boxes_without_a_size_are_dropped_and_counted(tmp_path):
    content = objects365({1: ["Person", "Person", "Person"]})
    content["annotations"][1]["bbox"] = [5.0, 5.0, -1.0, 4.0]
    write_json(tmp_path / "zhiyuan_objv2_val.json", content)
    write_json(tmp_path / "zhiyuan_objv2_train.json", objects365({9: []}))
    test, _ = build_objects365(tmp_path, SHIPPED)
    assert len(test.annotations.objects[1]) == 2
    assert dict(test.dropped) == {"box of negative or infinite size": 1}


def damaged(kind: str) -> str:
    content = objects365({1: ["Person"], 2: ["Lamp"]})
    annotation = content["annotations"][1]
    if kind == "class":
        content["categories"][3]["name"] = "Basket"
    elif kind == "image":
        annotation["image_id"] = 77
    elif kind == "category":
        annotation["category_id"] = 999
    elif kind == "box":
        annotation["bbox"] = [1, 2, 3]
    elif kind == "missing":
        del annotation["image_id"]
    elif kind == "text":
        annotation["image_id"] = "two"
    elif kind == "twice":
        content["images"][1]["id"] = 1
    elif kind == "empty":
        content["images"] = []
    text = json.dumps(content)
    if kind == "garbage":
        return text.replace('"iscrowd": 0', '"iscrowd": zero')
    return text[:-300] if kind == "cut" else "[1, 2]" if kind == "list" else text


@pytest.mark.parametrize(
    ("kind", "sentence"),
    [
        ("class", "No class of objects365 in the tables is called 'Basket'. Did you mean Bakset?"),
        ("image", "annotation 1 is on image 77, which"),
        ("category", "annotation 1 has 999 as category_id, which"),
        (
            "box",
            "annotation 1 (id 2) has [1, 2, 3] as bbox, but a list of four numbers is expected",
        ),
        ("missing", "annotation 1 (id 2) has no image_id; add it."),
        ("text", "annotation 1 (id 2) has 'two' as image_id, but a whole number"),
        ("twice", "has two images with the id 1; keep one."),
        ("empty", "has no images or no categories"),
        ("garbage", "is broken JSON after annotation 0: Expecting value"),
        ("cut", "is broken or incomplete JSON near character"),
        ("list", "has no images or no categories"),
    ],
)
def test_a_wrong_file_of_objects365_is_one_sentence(tmp_path, kind, sentence):
    (tmp_path / "zhiyuan_objv2_val.json").write_text(damaged(kind))
    write_json(tmp_path / "zhiyuan_objv2_train.json", objects365({9: []}))
    with pytest.raises(InvalidDataError) as error:
        build_objects365(tmp_path, SHIPPED)
    assert sentence in str(error.value)
    assert "zhiyuan_objv2_val.json" in str(error.value)


def test_a_missing_file_is_named_with_its_source(tmp_path):
    write_json(tmp_path / "zhiyuan_objv2_val.json", objects365({1: []}))
    with pytest.raises(
        MissingDataError, match=r"no zhiyuan_objv2_train\.json in .*objects365\.org"
    ):
        build_objects365(tmp_path, SHIPPED)


# --- iNaturalist and SVHN -------------------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
def test_inaturalist_keeps_images_with_unknown_super_categories_only(tmp_path, seed):
    built = build_inaturalist(write_inaturalist(tmp_path, seed), SHIPPED)
    expected = slow.wild_images(tmp_path / "val_2017_bboxes.json")
    assert {
        k: [name for name, _ in objects] for k, objects in objects_in(built).items()
    } == expected
    assert 3 < built.n_images < 40
    assert_every_image_is_counted(built, {"val_2017_bboxes.json": 40})
    species = {r["species"] for group in built.annotations.objects.values() for r in group}
    assert species <= set(range(30))


def test_svhn_is_every_full_number_in_the_order_of_its_numbers(tmp_path):
    built = build_svhn(write_svhn(tmp_path, n_train=12, n_test=3))
    images = list(built.annotations.images.values())
    names = [f"train/{k}.png" for k in range(1, 13)] + [f"test/{k}.png" for k in range(1, 4)]
    assert [image["file_name"] for image in images] == names
    assert [(image["width"], image["height"]) for image in images[:2]] == [(21, 10), (22, 10)]
    assert built.outcomes == {"train": {"svhn": 12}, "test": {"svhn": 3}}
    with pytest.raises(MissingDataError, match=r"no image such as 1\.png in .*format 1"):
        build_svhn(tmp_path / "elsewhere")


# --- BDD100K --------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("limit", [20, 35_000])
def test_bdd_becomes_the_set_of_the_slow_definition(tmp_path, seed, limit):
    bdd = SHIPPED.bdd.model_copy(update={"first_train_images": limit})
    built = build_bdd(write_bdd(tmp_path, seed), SHIPPED.model_copy(update={"bdd": bdd}))
    expected = {}
    for split, most in (("train", limit), ("val", None)):
        found = slow.street_images(tmp_path / f"labels/det_20/det_{split}.json", most)
        expected |= {f"images/100k/{split}/{name}": objects for name, objects in found.items()}
    assert_same_boxes(by_file(built), expected)
    assert_every_image_is_counted(built, {"det_train.json": 60, "det_val.json": 30})
    reasons = {reason for found in built.outcomes.values() for reason in found}
    assert ("after the first 20 that pass" in reasons) == (limit == 20)
    assert limit == 20 or {"rider without anything to ride", "no known object"} < reasons
    for record in built.annotations.objects[1]:
        assert record["area"] == pytest.approx(record["bbox"][2] * record["bbox"][3])


def test_bdd_counts_weather_time_and_scene_of_the_images_it_keeps(tmp_path):
    built = build_bdd(write_bdd(tmp_path, 1), SHIPPED)
    names = {Path(image["file_name"]).name for image in built.annotations.images.values()}
    frames = [
        frame
        for split in ("train", "val")
        for frame in json.loads((tmp_path / f"labels/det_20/det_{split}.json").read_text())
        if frame["name"] in names
    ]
    for attribute in ("weather", "timeofday", "scene"):
        counted = Counter(frame["attributes"][attribute] for frame in frames)
        assert dict(built.attributes[attribute]) == counted
        assert sum(counted.values()) == built.n_images


@pytest.mark.parametrize("seed", range(200))
def test_riders_are_merged_as_by_trying_every_assignment(seed):
    rng = np.random.default_rng(seed)
    names = rng.choice(["rider", "bicycle", "motorcycle", "car"], int(rng.integers(1, 8)))
    starts = rng.uniform(0, 60, (len(names), 2))
    boxes = np.hstack([starts, starts + rng.uniform(20, 80, (len(names), 2))]).tolist()
    labels = [(str(name), box) for name, box in zip(names, boxes, strict=True)]
    found = merge_riders([Label(name, tuple(box)) for name, box in labels], SHIPPED.bdd)
    expected = slow.merged(labels)
    if expected is None:
        assert found.problem is not None
    else:
        assert found.problem is None
        assert [(label.name, list(label.xyxy)) for label in found.labels] == expected


def test_a_rider_at_exactly_the_smallest_iou_stays():
    bicycle, rider = (0.0, 0.0, 10.0, 10.0), (0.0, 0.0, 10.0, 1.0)  # IoU 10 / 100
    labels = [Label("bicycle", bicycle), Label("rider", rider)]
    assert merge_riders(labels, SHIPPED.bdd).problem is None
    smaller = [labels[0], Label("rider", (0.0, 0.0, 10.0, 0.99))]
    problem = merge_riders(smaller, SHIPPED.bdd).problem
    assert problem == "rider and rideable with an IoU below 0.1"


def test_a_rider_too_many_vanishes_and_is_counted(tmp_path):
    box = (10.0, 10.0, 50.0, 50.0)
    frame = bdd_frame("a.jpg", [("rider", box), ("bicycle", box), ("rider", (200, 200, 210, 210))])
    write_json(tmp_path / "det_train.json", [frame])
    write_json(tmp_path / "det_val.json", [])
    built = build_bdd(tmp_path, SHIPPED)
    assert by_file(built) == {"images/100k/train/a.jpg": [("bicycle", list(box))]}
    assert dict(built.dropped) == {"rider without a rideable of its own": 1}


@pytest.mark.parametrize(
    ("frames", "sentence"),
    [
        ({"frames": []}, "has no list"),
        ({"frames": [{"name": "a"}]}, "is an object with the key 'frames', but a list of frames"),
        (
            [bdd_frame("a.jpg", [("bike", (0, 0, 1, 1))])],
            "frame 0 has a label of the category 'bike'",
        ),
        (
            [{"name": "a.jpg", "labels": [{"category": "car"}]}],
            "frame 0 has a label without a box2d",
        ),
        ([{"labels": []}], "frame 0 has no name; add it."),
        ([3], "frame 0 is 3, but an object in braces is expected."),
    ],
)
def test_a_wrong_file_of_bdd_is_one_sentence(tmp_path, frames, sentence):
    write_json(tmp_path / "det_train.json", frames)
    write_json(tmp_path / "det_val.json", [])
    if sentence == "has no list":  # an empty list in an object holds no frame
        assert build_bdd(tmp_path, SHIPPED).n_images == 0
        return
    with pytest.raises(InvalidDataError) as error:
        build_bdd(tmp_path, SHIPPED)
    assert sentence in str(error.value)


# --- nuImages -------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
def test_nuimages_are_key_frames_with_objects_that_have_a_mask(tmp_path, seed):
    built = build_nuimages(write_nuimages(tmp_path, "val", seed), SHIPPED, "val")
    assert_same_boxes(by_file(built), slow.masked_objects(tmp_path / "v1.0-val"))
    assert_every_image_is_counted(built, {"v1.0-val/sample_data.json": 40})
    rows = json.loads((tmp_path / "v1.0-val" / "object_ann.json").read_text())
    assert built.n_objects + sum(built.dropped.values()) == len(rows)
    assert set(built.dropped) == {"not on a key frame", "without a mask", "of another class"}
    assert len(built.annotations.objects) < built.n_images == 20  # some have none, and stay


def test_a_category_that_nuimages_lacks_is_refused(tmp_path):
    write_nuimages(tmp_path)
    write_json(tmp_path / "v1.0-val" / "category.json", [{"token": "c0", "name": "vehicle.cra"}])
    with pytest.raises(UnknownNameError, match=r"No category of .*category\.json is called"):
        build_nuimages(tmp_path, SHIPPED, "val")


# --- both together --------------------------------------------------------------------------------


def test_objects_per_class_are_those_of_test_and_validation_images(tmp_path):
    sources = SaodSources(
        objects365=write_objects365(tmp_path / "objects365"), coco=write_coco_val(tmp_path / "coco")
    )
    build = build_saod("gen", sources, SHIPPED)
    slow_test = slow.known_images(
        tmp_path / "objects365" / "zhiyuan_objv2_val.json", CONTENT["objects365"]
    )
    counted = Counter(name for objects in slow_test.values() for name, _ in objects)
    found = build.objects_per_class()
    assert {name: counts["test"] for name, counts in found.items() if counts["test"]} == counted
    assert sum(counts["validation"] or 0 for counts in found.values()) == 18
    assert list(found) == list(CONTENT["objects365"]["known"])


def test_the_manifest_names_both_numbers_where_counts_differ(tmp_path):
    sources = SaodSources(svhn=write_svhn(tmp_path / "svhn"))
    build = build_saod("av", sources, SHIPPED)
    assert facts_of_saod(build)["problems"] == [
        "nuimages-val: not built; give its source with --nuimages",
        "bdd45k: not built; give its source with --bdd",
        "inaturalist: not built; give its source with --inaturalist",
        "objects365: not built; give its source with --objects365",
        "svhn: 15 images, but 46,470 are published",
    ]


def test_the_same_sources_give_the_same_bytes(tmp_path):
    sources = SaodSources(
        bdd=write_bdd(tmp_path / "bdd"), nuimages=write_nuimages(tmp_path / "nuimages"),
        svhn=write_svhn(tmp_path / "svhn"),
    )  # fmt: skip
    for name in ("one", "two"):
        save_saod(build_saod("av", sources, SHIPPED), tmp_path / name, version="1")
    names = sorted(path.name for path in (tmp_path / "one").iterdir())
    assert names == [
        "bdd45k.json", "benchmark.toml", "manifest.json", "nuimages-val.json", "svhn.json",
    ]  # fmt: skip
    for name in names:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
