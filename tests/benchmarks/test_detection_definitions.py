"""Detection benchmarks: what a file may say, what is refused, what is partial, and real data."""

import gzip
import json
import shlex
import subprocess
import sys
import tomllib
import zipfile
from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from pycocotools.coco import COCO
from tests.benchmarks.box_trees import ROAD, write_coco, write_road
from tests.benchmarks.image_trees import STREET

from incognita.benchmarks.data_plan import Verdict, check, plan, verdict
from incognita.benchmarks.definition_files import find_definition, list_benchmarks, parse_definition
from incognita.benchmarks.load import load_benchmark
from incognita.benchmarks.terra.classes import KNOWN_NAMES, TERRA_CLASSES
from incognita.containers.classes import Role
from incognita.containers.dataset import BoxDataset
from incognita.errors import InvalidDataError, MissingDataError

SCENES = [f"terra/{name}" for name in ("detection", "far", "farther", "near")]


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch, tmp_path_factory):
    monkeypatch.delenv("INCOGNITA_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))


def road(**changes) -> dict:
    return tomllib.loads(ROAD) | changes


def sets(place: int, **changes) -> list[dict]:
    entries = tomllib.loads(ROAD)["set"]
    entries[place] |= changes
    return entries


SCENE = {"name": "s", "role": "far", "kind": "terra-scenes", "part": "test", "count": 3}


def test_a_detection_benchmark_is_one_file_in_any_folder(tmp_path):
    benchmark = load_benchmark(write_road(tmp_path))
    assert benchmark.task == "detection"
    assert benchmark.classes == ("person", "car")
    assert benchmark.validation is None
    assert {role: list(each) for role, each in benchmark.unknown.items()} == {"near": ["animals"]}
    assert list(benchmark.mixed) == ["both"]
    assert benchmark.notes == ()
    assert not benchmark.is_partial
    # ids count down in the files, and images come sorted by id
    assert benchmark.test.image_ids == ("c.png", "b.png", "a.png")
    truth = benchmark.test.truth()
    assert truth.offsets.tolist() == [0, 1, 1, 3]
    assert truth.class_ids.tolist() == [0, 1, 0]
    assert truth.xyxy.tolist() == [[1, 2, 4.5, 6], [0, 0, 4, 5], [3, 3, 5, 5]]
    every = [benchmark.train, benchmark.test, benchmark.unknown["near"]["animals"]]
    for dataset in (*every, benchmark.mixed["both"]):
        assert isinstance(dataset, BoxDataset)
        assert dataset.truth().classes.names == ("person", "car", "deer", "fox")
    assert every[2].truth().is_unknown.all()
    assert benchmark.mixed["both"].truth().is_unknown.tolist() == [True, False, True]


def test_a_classification_benchmark_says_so_and_has_nothing_mixed():
    benchmark = load_benchmark("terra/standard")
    assert benchmark.task == "classification"
    assert benchmark.mixed == {}


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (
            road(task="classification"),
            "set 'train' is of kind coco, which is for detection, but the task is classification;"
            ' write task = "detection", or take another kind.',
        ),
        (
            tomllib.loads(STREET) | {"task": "detection"},
            "set 'train' is of kind folder, which is for classification, but the task is detection",
        ),
        (road(task="segmentation"), "my.toml: task holds 'segmentation', which is wrong"),
        (road(classes=2), "annotations name the classes of boxes, but classes is a number"),
        (road(set=sets(1)[:2]), "it has no unknown images to test"),
        (road(set=sets(1)[2:]), "it has no known images to test"),
        (
            road(set=sets(0, fold=[2, 2])),
            "set 'train': fold [2, 2] does not exist; parts are counted",
        ),
        (road(set=sets(0, fold=[0])), "fold holds [0], which is wrong: expected which part and of"),
        (road(set=sets(0, rename=["a"])), "set 'train': rename holds ['a'], which is wrong"),
        (road(set=sets(0, imags="x")), "no use for the key 'imags'; did you mean images?"),
        (
            road(set=[*sets(0), {**SCENE, "part": "tset"}]),
            "my.toml: set 's': part holds 'tset', which is wrong",
        ),
        (road(set=[*sets(0), {**SCENE, "role": "test"}]), "role 'test' is there twice"),
    ],
)
def test_what_is_wrong_with_a_detection_file_is_one_sentence(content, sentence):
    with pytest.raises(InvalidDataError) as caught:
        parse_definition(content, source="my.toml")
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_image_that_is_classified_cannot_be_mixed():
    content = tomllib.loads(STREET)
    content["set"][2]["role"] = "mixed"
    with pytest.raises(InvalidDataError, match="'animals' has the role mixed, but an image that"):
        parse_definition(content, source="my.toml")


def test_mixed_images_alone_are_enough(tmp_path):
    definition = ROAD.replace('role = "near"', 'role = "mixed"')
    benchmark = load_benchmark(write_road(tmp_path, definition))
    assert benchmark.unknown == {}
    assert list(benchmark.mixed) == ["animals", "both"]


def test_shifted_images_may_have_boxes(tmp_path):
    more = '[[set]]\nname = "fog"\nrole = "shifted"\nkind = "coco"\nannotations = "fog.json"\n'
    path = write_road(tmp_path, ROAD + more + 'images = "fog"\n')
    write_coco(tmp_path, "fog", {"1.png": [("car", [0, 0, 2, 2])]})
    benchmark = load_benchmark(path)
    assert isinstance(benchmark.shifted["fog"], BoxDataset)


def test_known_classes_in_an_unknown_set_are_counted_and_refused(tmp_path):
    path = write_road(tmp_path)
    boxes = {"1.png": [("car", [0, 0, 2, 2])] * 2, "2.png": [("deer", [0, 0, 2, 2])], "3.png": [
        ("car", [1, 1, 2, 2]), ("person", [0, 0, 2, 2])]}  # fmt: skip
    write_coco(tmp_path, "animals", boxes)
    sentence = (
        "Set 'animals' of mine/road has the role near, but 2 of its 3 images show known classes "
        "(car in 2, person in 1); build a set without them (`incognita build`), give it the role "
        '"mixed", or name them in allowed_classes.'
    )
    for refused in (lambda: load_benchmark(path), lambda: check(find_definition(path))):
        with pytest.raises(InvalidDataError) as caught:
            refused()
        assert str(caught.value) == sentence
    one = 'images = "animals"\nallowed_classes = ["car"]'
    path.write_text(ROAD.replace('images = "animals"', one))
    with pytest.raises(InvalidDataError, match=r"1 of its 3 images show known .*\(person in 1\)"):
        load_benchmark(path)
    path.write_text(ROAD.replace('images = "animals"', one.replace("]", ', "person"]')))
    truth = load_benchmark(path).unknown["near"]["animals"].truth()
    assert truth.has_role(Role.KNOWN).sum() == 4
    path.write_text(ROAD.replace('role = "near"', 'role = "mixed"'))
    assert load_benchmark(path).mixed["animals"].truth().has_role(Role.KNOWN).sum() == 4


def test_unknown_objects_in_known_images_are_unknown_truth_and_said(tmp_path):
    path = write_road(tmp_path)
    boxes = {"a.png": [("car", [0, 0, 4, 5]), ("fox", [3, 3, 2, 2])], "b.png": [
        ("fox", [0, 0, 1, 1]), ("deer", [0, 0, 1, 1])], "c.png": []}  # fmt: skip
    write_coco(tmp_path, "test", boxes)
    benchmark = load_benchmark(path)
    assert benchmark.notes == (
        "test: 2 of 3 images also show other classes; 3 objects there count as unknown",
    )
    assert benchmark.test.truth().is_unknown.sum() == 3
    without = 'images = "test"\nignored = ["fox", "deer"]'
    path.write_text(ROAD.replace('images = "test"', without))
    assert load_benchmark(path).notes == ()


def test_missing_images_are_partial_data_and_said(tmp_path):
    path = write_road(tmp_path)
    (tmp_path / "test" / "a.png").unlink()
    (tmp_path / "both").rename(tmp_path / "away")
    benchmark = load_benchmark(path)
    assert benchmark.is_partial
    assert benchmark.notes == (
        "test: 2 of 3 images found; numbers are partial; missing: a.png",
        "both: none of 2 images found; the set is left out",
    )
    assert benchmark.metadata["missing"] == {
        "test": {"expected": 3, "found": 2},
        "both": {"expected": 2, "found": 0},
    }
    assert benchmark.test.truth().image_ids.tolist() == ["c.png", "b.png"]
    rows = check(find_definition(path))
    assert [(row.set, row.found, row.expected) for row in rows] == [
        ("train", 4, 4), ("test", 2, 3), ("animals", 3, 3), ("both", 0, 2),
    ]  # fmt: skip
    assert rows[1].missing == (str(tmp_path / "test" / "a.png"),)
    assert verdict(rows) is Verdict.PARTIAL


def test_without_known_or_without_unknown_images_nothing_can_run(tmp_path):
    path = write_road(tmp_path)
    (tmp_path / "animals").rename(tmp_path / "away")
    assert load_benchmark(path).unknown == {}, "mixed images are left"
    (tmp_path / "both").rename(tmp_path / "too")
    with pytest.raises(MissingDataError, match="has no unknown images to test of mine/road"):
        load_benchmark(path)
    assert verdict(check(find_definition(path))) is Verdict.MISSING


def test_a_hint_names_the_file_that_was_typed(tmp_path, monkeypatch):
    folder = tmp_path / "my road"
    folder.mkdir()
    monkeypatch.chdir(tmp_path)
    write_road(folder, ROAD.replace("count = 3", "count = 5"))
    with pytest.raises(InvalidDataError) as raised:
        load_benchmark("my road/road.toml")
    assert "`incognita data plan 'my road/road.toml'` names" in str(raised.value)
    for name in ("test", "animals", "both"):
        (folder / name).rename(folder / f"{name} away")
    (folder / "road.toml").write_text(ROAD)
    with pytest.raises(MissingDataError) as missing:
        load_benchmark("my road/road.toml")
    words = str(missing.value).split("`")
    for command in (words[1], words[3]):
        assert shlex.split(command)[-1] == "my road/road.toml"
    assert find_definition(shlex.split(words[1])[-1]).definition.name == "mine/road"
    assert find_definition("fmiyc/voc").typed == "fmiyc/voc"


def test_images_in_two_groups_of_unknown_sets_are_said(tmp_path):
    again = (
        ROAD.split("[[set]]")[3]
        .replace('"near"', '"far"')
        .replace('name = "animals"', 'name = "again"')
    )
    path = write_road(tmp_path, f"{ROAD}\n[[set]]{again}")
    document = json.loads((tmp_path / "animals.json").read_text())
    document["images"] = document["images"][:2]
    kept = {each["id"] for each in document["images"]}
    document["annotations"] = [a for a in document["annotations"] if a["image_id"] in kept]
    (tmp_path / "few.json").write_text(json.dumps(document))
    path.write_text(path.read_text().replace(again, again.replace("animals.json", "few.json")))
    assert load_benchmark(path).notes == ("2 images are in both animals (near) and again (far)",)
    path.write_text(path.read_text().replace('role = "far"', 'role = "near"'))
    assert load_benchmark(path).notes == ()


def test_a_wrong_file_is_told_beside_the_others(tmp_path):
    path = write_road(tmp_path, ROAD.replace("count = 3", "count = 5"))
    (tmp_path / "both.json").write_text("[]")
    rows = {row.set: row for row in check(find_definition(path))}
    assert "lists 3 images, but set 'test' of mine/road has 5" in rows["test"].problem
    assert "is a list, as detections are" in rows["both"].problem
    assert rows["animals"].is_complete


def test_a_plan_names_folder_and_annotations():
    rows = plan(parse_definition(road(), source="my.toml"))
    assert rows[0].place == "train, annotated in train.json"
    assert not any(row.source for row in rows)


HALVES = ROAD.replace(
    'images = "test"\ncount = 3', 'images = "train"\nfold = [0, 2]'
).replace('"test.json"', '"train.json"')  # fmt: skip


def test_an_image_that_is_learned_from_and_tested_is_refused(tmp_path):
    path = write_road(tmp_path, HALVES)
    with pytest.raises(InvalidDataError, match=r"images of mine/road are in both set 'train' \(tr"):
        load_benchmark(path)


def test_two_folds_of_one_file_can_be_learned_from_and_tested(tmp_path):
    halves = HALVES.replace('images = "train"\n\n', 'images = "train"\nfold = [1, 2]\n\n')
    assert halves.count("fold") == 2
    benchmark = load_benchmark(write_road(tmp_path, halves))
    both = [*benchmark.train.image_ids, *benchmark.test.image_ids]
    assert sorted(both) == [f"{k}.png" for k in range(4)]


def test_a_mixed_set_may_repeat_images_that_are_tested_apart_but_none_to_learn_from(tmp_path):
    for other, is_refused in (("test", False), ("animals", False), ("train", True)):
        definition = ROAD.replace("both.json", f"{other}.json").replace(
            'images = "both"', f'images = "{other}"'
        )
        path = write_road(tmp_path, definition)
        if is_refused:
            with pytest.raises(InvalidDataError, match=r"\(train\) and set 'both' \(mixed\)"):
                load_benchmark(path)
        else:
            assert load_benchmark(path).mixed["both"].image_ids


def test_a_limit_keeps_as_many_images_of_every_set(tmp_path):
    path = write_road(tmp_path)
    benchmark = load_benchmark(path, limit=2, seed=1)
    found = [benchmark.train, benchmark.test, *benchmark.unknown["near"].values()]
    assert [len(each.image_ids) for each in (*found, benchmark.mixed["both"])] == [2, 2, 2, 2]
    assert benchmark.notes == ("at most 2 images of each set, drawn with seed 1",)
    for dataset in found:
        assert dataset.truth().image_ids.tolist() == list(dataset.image_ids)
    again = load_benchmark(path, limit=2, seed=1)
    assert again.train.image_ids == benchmark.train.image_ids


def test_the_detection_benchmarks_of_terra_ship():
    task = {name: find_definition(name).definition.task for name in list_benchmarks("terra/*")}
    assert [name for name, each in task.items() if each == "detection"] == [
        *SCENES, "terra/self-aware"
    ]  # fmt: skip


@pytest.mark.parametrize("name", SCENES)
def test_scenes_load_whole_and_are_split_as_their_names_say(name):
    benchmark = load_benchmark(name)
    assert benchmark.task == "detection"
    assert benchmark.default_model == "terra:detector"
    assert benchmark.classes == KNOWN_NAMES
    assert benchmark.notes == ()
    assert not benchmark.is_partial
    group = name.partition("/")[2]
    groups = ["near", "far", "farther"] if group == "detection" else [group]
    assert list(benchmark.unknown) == groups
    assert list(benchmark.mixed) == (["mixed"] if group == "detection" else [])
    known = (benchmark.train, benchmark.validation, benchmark.test)
    unknown = [each for sets in benchmark.unknown.values() for each in sets.values()]
    every = (*known, *unknown, *benchmark.mixed.values())
    assert all(isinstance(each, BoxDataset) for each in every)
    n_scenes = sum(len(each.image_ids) for each in every)
    assert n_scenes <= 1400, "twenty milliseconds for each must leave the demo short"
    truths = [each.subset(range(40)).truth() for each in every]
    assert {truth.classes.known_names for truth in truths} == {KNOWN_NAMES}
    held = [{TERRA_CLASSES[k].group.value for k in truth.class_ids} for truth in truths]
    mixed = [{"known", "near", "far"}] if group == "detection" else []
    assert held == [{"known"}, {"known"}, {"known"}, *({role} for role in groups), *mixed]
    assert set(truths[2].class_ids) == set(range(12))
    assert benchmark.test.load(0).shape == (160, 160, 3)


def test_known_and_unknown_objects_stand_together_in_mixed_scenes():
    truth = load_benchmark("terra/detection").mixed["mixed"].truth()
    is_unknown = [truth.is_unknown[a:b] for a, b in pairwise(truth.offsets)]
    both = sum(each.any() and not each.all() for each in is_unknown)
    assert both > len(is_unknown) / 3


def test_known_classes_among_unknown_scenes_are_refused(tmp_path):
    path = tmp_path / "mine.toml"
    lines = ['name = "mine"', "version = 1", 'title = "Mine"', 'extends = "terra/near"', "[[set]]"]
    own = ['name = "near"', 'role = "near"', 'kind = "terra-scenes"', 'part = "test"', "count = 9"]
    path.write_text("\n".join([*lines, *own, 'classes = "rounds"']))
    with pytest.raises(InvalidDataError, match=r"of its 9 images show known classes \(crescent in"):
        load_benchmark(path)
    path.write_text(path.read_text().replace('"near"\nkind', '"mixed"\nkind'))
    assert load_benchmark(path).mixed["near"].truth().has_role(Role.KNOWN).any()


def test_the_classes_of_scenes_are_those_of_terra(tmp_path):
    path = tmp_path / "mine.toml"
    base = 'name = "mine"\nversion = 1\ntitle = "Mine"\nextends = "terra/near"\n'
    path.write_text(base + 'classes = ["disk", "ring"]\n')
    with pytest.raises(InvalidDataError, match=r"are triangle, .*, but those of mine hold 'disk'"):
        load_benchmark(path)
    path.write_text(base + f"classes = {list(KNOWN_NAMES[::-1])}\n")
    with pytest.raises(InvalidDataError, match="those of mine are not these, in this order"):
        load_benchmark(path)


def test_a_plan_of_scenes_waits_for_no_compiler():
    code = (
        "from incognita.benchmarks.data_plan import plan; import sys;"
        "from incognita.benchmarks.definition_files import find_definition;"
        "plan(find_definition('terra/detection').definition); print(*sys.modules)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"torch", "sklearn", "numba"} & set(run.stdout.split())


VOC_COCO = """
name = "voc-coco"
version = 1
title = "VOC against COCO, as far as it is here"
task = "detection"
classes = [
    "aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair", "cow",
    "diningtable", "dog", "horse", "motorbike", "person", "pottedplant", "sheep", "sofa", "train",
    "tvmonitor",
]

[[set]]
name = "train"
role = "train"
kind = "coco"
annotations = "voc2007_fit290_s352.json.gz"
images = "fit"
count = 290

[[set]]
name = "test"
role = "test"
kind = "coco"
annotations = "voc2007_test_all.json.gz"
images = "VOC2007/JPEGImages"
count = 4952

[[set]]
name = "coco"
role = "ROLE"
kind = "coco"
annotations = "instances_val2017_subset.json.gz"
images = "coco"
count = 232

[set.rename]
airplane = "aeroplane"
"dining table" = "diningtable"
motorcycle = "motorbike"
"potted plant" = "pottedplant"
couch = "sofa"
tv = "tvmonitor"
"""


@pytest.fixture(scope="module")
def voc_coco(data_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Real images, unpacked, with the annotation files beside them."""
    folder = tmp_path_factory.mktemp("voc-coco")
    source = data_dir / "detection"
    for name in (
        "voc2007/voc2007_test_subset",
        "voc2007/voc2007_fit290_s352",
        "coco/val2017_subset",
    ):
        with zipfile.ZipFile(source / f"{name}.zip") as archive:
            to = {"voc2007_fit290_s352": "fit", "val2017_subset": "coco"}.get(Path(name).name, ".")
            archive.extractall(folder / to)
    for path in source.glob("*/*.json.gz"):
        (folder / path.name).write_bytes(path.read_bytes())
    return folder


def unpacked(path: Path) -> dict:
    return json.loads(gzip.decompress(path.read_bytes()))


def loaded(folder: Path, role: str, **changes: str):
    text = VOC_COCO.replace("ROLE", role)
    for old, new in changes.items():
        text = text.replace(old, new)
    (folder / "own.toml").write_text(text)
    return load_benchmark(folder / "own.toml")


@pytest.mark.data
def test_real_voc_and_coco_are_a_benchmark_in_part(voc_coco, capsys):
    benchmark = loaded(voc_coco, "mixed")
    assert len(benchmark.train.image_ids) == len(benchmark.train.truth().image_ids) == 290
    assert len(benchmark.train.truth()) == 829
    assert benchmark.train.truth().is_difficult.sum() == 161
    assert benchmark.is_partial
    assert benchmark.metadata["missing"] == {"test": {"expected": 4_952, "found": 249}}
    assert benchmark.notes == (
        "test: 249 of 4,952 images found; numbers are partial; missing: 000001.jpg, 000002.jpg, "
        "000003.jpg and 4,700 more",
    )
    mixed = benchmark.mixed["coco"].truth()
    assert (mixed.n_images, len(mixed), mixed.is_crowd.sum()) == (232, 1_872, 19)
    assert mixed.classes.known_names == tuple(benchmark.classes)
    assert mixed.classes.has_role(Role.UNKNOWN).sum() == 60
    whole = np.unique(mixed.image_index[mixed.has_role(Role.KNOWN)])
    assert 232 - len(whole) == 53
    for name, dataset in (("fit290", benchmark.train), ("test_all", benchmark.test)):
        path = next(voc_coco.glob(f"*{name}*.json.gz"))
        assert_same_as_pycocotools(dataset, path)
    pixels = benchmark.test.load(0)
    record = unpacked(voc_coco / "voc2007_test_all.json.gz")["images"]
    first = next(each for each in record if each["file_name"] == benchmark.test.image_ids[0])
    assert pixels.shape == (first["height"], first["width"], 3)


def assert_same_as_pycocotools(dataset: BoxDataset, path: Path) -> None:
    path.with_suffix("").write_bytes(gzip.decompress(path.read_bytes()))
    peer = COCO(path.with_suffix(""))
    names = {each["id"]: each["name"] for each in peer.dataset["categories"]}
    ids = {each["file_name"]: each["id"] for each in peer.dataset["images"]}
    truth = dataset.truth()
    for place, image_id in enumerate(dataset.image_ids):
        rows = slice(truth.offsets[place], truth.offsets[place + 1])
        theirs = peer.loadAnns(peer.getAnnIds(imgIds=ids[image_id]))
        xywh = np.hstack([truth.xyxy[rows, :2], truth.sizes[rows]]).tolist()
        assert xywh == [each["bbox"] for each in theirs]
        assert truth.areas[rows].tolist() == [each["area"] for each in theirs]
        assert [truth.classes.names[k] for k in truth.class_ids[rows]] == [
            names[each["category_id"]] for each in theirs
        ]


@pytest.mark.data
def test_real_coco_images_with_known_classes_are_no_unknown_set(voc_coco):
    with pytest.raises(InvalidDataError) as caught:
        loaded(voc_coco, "near")
    assert "has the role near, but 179 of its 232 images show known classes (" in str(caught.value)
    document = unpacked(voc_coco / "instances_val2017_subset.json.gz")
    voc = {each["file_name"] for each in document["images"] if each["contains_voc_class"]}
    person = {a["image_id"] for a in document["annotations"] if a["category_id"] == 1}
    assert len(voc) == 179
    assert f"person in {len(person)}" in str(caught.value)
    document["images"] = [each for each in document["images"] if each["file_name"] not in voc]
    kept = {each["id"] for each in document["images"]}
    boxes = [each for each in document["annotations"] if each["image_id"] in kept]
    (voc_coco / "only.json").write_text(json.dumps(document | {"annotations": boxes}))
    changes = {"instances_val2017_subset.json.gz": "only.json", "count = 232": "count = 53"}
    truth = loaded(voc_coco, "near", **changes).unknown["near"]["coco"].truth()
    assert truth.n_images == 53
    assert truth.is_unknown.all()
    names = {each["id"]: each["name"] for each in document["categories"]}
    assert Counter(truth.classes.names[k] for k in truth.class_ids) == Counter(
        names[each["category_id"]] for each in boxes
    )


@pytest.mark.data
def test_real_names_in_another_spelling_are_noticed(voc_coco):
    (voc_coco / "own.toml").write_text(VOC_COCO.replace("ROLE", "mixed").partition("[set.r")[0])
    with pytest.raises(InvalidDataError, match=r"write rename = \{ 'airplane' = 'aeroplane' \}"):
        load_benchmark(voc_coco / "own.toml")


@pytest.mark.data
def test_halves_of_a_real_file_are_two_sets(voc_coco):
    halves = [
        loaded(voc_coco, "mixed", **{"count = 4952": f"fold = [{k}, 2]"}).test for k in range(2)
    ]
    assert {len(each.image_ids) for each in halves} != {249}
    assert sum(len(each.image_ids) for each in halves) == 249
    assert len(set(halves[0].image_ids) | set(halves[1].image_ids)) == 249
    assert min(len(each.image_ids) for each in halves) > 100
