"""VOC-COCO and lists of images: which image is in which set, what is written, what is refused."""

import gzip
import json
import tarfile
import tomllib
import zipfile

import pytest
from tests.benchmarks.open_set_cases import write_coco, write_voc

from incognita.benchmarks.load import load_benchmark
from incognita.benchmarks.splits.open_sets import (
    VOC_COCO,
    build_from_list,
    build_voc_coco,
    load_open_set_tables,
    load_source,
    save_open_set,
)
from incognita.errors import InvalidDataError, MissingDataError
from incognita.formats import load_truth

TABLES = load_open_set_tables()
VOC = {"000001": ["tvmonitor", "person"], "000002": ["aeroplane"], "000003": ["sofa"],
       "000005": ["car"], "000007": ["dog", "cat"]}  # fmt: skip
COCO = {
    11: ["airplane", "tv"],  # known only
    12: ["couch", "zebra"],
    13: ["zebra", "pizza", "zebra"],
    14: ["toothbrush"],
    15: [],
}


@pytest.fixture
def folders(tmp_path):
    voc = write_voc(tmp_path / "VOC2007", VOC, test=["000001", "000002", "000003"],
                    trainval=["000005", "000007"])  # fmt: skip
    return voc, write_coco(tmp_path / "coco" / "instances_val2017.json", COCO)


def names_by_image(built):
    given = built.annotations
    return {k: sorted(given.category_names[r["category_id"]] for r in given.objects.get(k, ()))
            for k in given.images}  # fmt: skip


def sets_of(build):
    return {built.name: names_by_image(built) for built in build.sets}


def test_the_tables_have_the_order_of_owod_and_80_classes():
    assert TABLES.classes[:3] == ["aeroplane", "bicycle", "bird"]
    assert TABLES.classes[18:22] == ["train", "tvmonitor", "truck", "traffic light"]
    assert TABLES.classes[39:41] == ["refrigerator", "frisbee"]
    assert TABLES.classes[59:61] == ["cake", "bed"]
    assert TABLES.classes[79] == "bowl"
    assert (len(TABLES.known), len(TABLES.unknown), len(set(TABLES.classes))) == (20, 60, 80)


@pytest.mark.data
def test_the_tables_name_every_class_of_voc_and_coco(data_dir):
    names = {name for own in TABLES.known.values() for name in own} | {*TABLES.unknown}
    for place in ("voc2007/voc2007_test_all.json.gz", "coco/instances_val2017_subset.json.gz"):
        content = gzip.decompress((data_dir / "detection" / place).read_bytes())
        found = {category["name"] for category in json.loads(content)["categories"]}
        assert len(found) in (20, 80)
        assert found <= names
        names -= found - {k for k, own in TABLES.known.items() if own == [k]}
    assert names == {k for k, own in TABLES.known.items() if own == [k]}  # in both files


def test_images_go_to_the_sets_of_the_paper(folders):
    build = build_voc_coco([folders[0]], folders[1], TABLES)
    sets = sets_of(build)
    voc = {"000001": ["person", "tvmonitor"], "000002": ["aeroplane"], "000003": ["sofa"]}
    unknown = {"000000000013": ["pizza", "zebra", "zebra"], "000000000014": ["toothbrush"],
               "000000000015": []}  # fmt: skip
    assert sets == {
        "train": {"000005": ["car"], "000007": ["cat", "dog"]},
        "test": voc,
        "unknown": unknown,
        "all": voc | unknown,
    }
    assert build.sets[-1].outcomes == {"instances_val2017.json": {
        "known objects only": 1, "known and unknown objects": 1, "unknown objects only": 2,
        "no object": 1}}  # fmt: skip
    admitted = sets_of(build_voc_coco([folders[0]], folders[1], TABLES, admit="all"))
    assert admitted["all"] == voc | unknown | {
        "000000000011": ["aeroplane", "tvmonitor"], "000000000012": ["sofa", "zebra"],
    }  # fmt: skip
    assert {k: v for k, v in admitted.items() if k != "all"} == {
        k: v for k, v in sets.items() if k != "all"
    }
    without = sets_of(build_voc_coco([folders[0]], folders[1], TABLES, empty_images="drop"))
    assert "000000000015" not in without["unknown"] | without["all"]


def test_boxes_difficult_objects_and_superclasses_are_kept(folders):
    build = build_voc_coco([folders[0]], folders[1], TABLES)
    everything = build.sets[-1].annotations
    tv, person = everything.objects["000001"]
    assert (tv["bbox"], tv["difficult"]) == ([0, 1, 9, 19], 0)
    assert (person["bbox"], person["difficult"]) == ([1, 1, 9, 19], 1)
    assert [r["bbox"] for r in everything.objects["000000000014"]] == [[8, 2, 10, 8]]
    above = {r["name"]: r.get("supercategory") for r in everything.categories}
    assert (above["aeroplane"], above["zebra"], above["bowl"]) == ("as", "zs", None)


def test_counts_are_compared_and_a_second_build_writes_the_same_bytes(folders, tmp_path):
    contents = []
    for _ in range(2):
        build = build_voc_coco([folders[0]], folders[1], TABLES)
        save_open_set(build, tmp_path / "out", version="1")
        contents.append({p.name: p.read_bytes() for p in sorted((tmp_path / "out").iterdir())})
    assert contents[0] == contents[1]
    assert list(contents[0]) == [
        "all.json", "benchmark.toml", "manifest.json", "test.json", "train.json", "unknown.json",
    ]  # fmt: skip
    assert build.problems == [
        "images of train: 2, but 16,551 are expected",
        "images of test: 3, but 4,952 are expected",
        "images of coco: 5, but 5,000 are expected",
    ]
    (facts,) = json.loads(contents[0]["manifest.json"])["builds"]
    assert {"what": "known classes", "found": 20, "published": 20} in facts["counts"]
    assert [file["part"] for file in facts["inputs"]] == ["voc trainval", "voc test", "coco"]


def test_the_benchmark_runs_on_the_files(folders, tmp_path):
    out = tmp_path / "out"
    save_open_set(build_voc_coco([folders[0]], folders[1], TABLES, admit="all"), out, version="1")
    benchmark = load_benchmark(out / "benchmark.toml", cache_dir=tmp_path, allow_outside=True)
    assert len(benchmark.classes) == 20
    truth = benchmark.mixed["all"].truth()
    assert truth.n_images == 8
    assert int(truth.is_unknown.sum()) == 5
    assert int(truth.is_difficult.sum()) == 1
    assert benchmark.mixed["all"].load(0).shape == (30, 40, 3)
    assert list(benchmark.unknown) == ["unknown"]
    roles = {
        e["name"]: e["role"] for e in tomllib.loads((out / "benchmark.toml").read_text())["set"]
    }
    assert roles == {"train": "train", "test": "test", "unknown": "unknown", "all": "mixed"}


def test_a_folder_without_lists_and_a_file_in_coco_format_are_test_sets(folders, tmp_path):
    bare = write_voc(tmp_path / "bare", {"000009": ["cow"]})
    build = build_voc_coco([bare], folders[1], TABLES)
    assert sets_of(build)["test"] == {"000009": ["cow"]}
    assert build.notes == ["bare: no ImageSets/Main/test.txt, so that all images are tested"]
    file = write_coco(tmp_path / "voc" / "instances_test2007.json", {3: ["cow"]})
    assert sets_of(build_voc_coco([file], folders[1], TABLES))["test"] == {"000000000003": ["cow"]}


# --- lists ------------------------------------------------------------------------------------


@pytest.fixture
def listed(folders, tmp_path):
    """A list with a line twice and one three times, and what holds its images."""
    ids = ["000001", "000000000013", "000002", "000000000012", "000000000013", "000000000011",
           "000000000013", "000000000012"]  # fmt: skip
    path = tmp_path / "all_task_test.txt"
    path.write_text("\n".join(ids))
    return path, [folders[0], folders[1]]


def test_repeated_lines_are_refused_dropped_or_kept(listed, tmp_path):
    with pytest.raises(InvalidDataError) as raised:
        build_from_list(*listed, TABLES)
    assert str(raised.value) == (
        f"{listed[0]} lists 2 images more than once, such as 000000000013, in 3 repeated lines. "
        f"Their objects would count twice: drop the lines with --repeats drop, or keep them with "
        f"--repeats owod."
    )
    dropped = build_from_list(*listed, TABLES, repeats="drop")
    sets = sets_of(dropped)
    assert list(sets) == ["test", "unknown", "all"]
    assert list(sets["all"]) == ["000000000011", "000000000012", "000000000013", "000001", "000002"]
    assert list(sets["test"]) == ["000000000011", "000001", "000002"]
    assert sets["unknown"] == {"000000000013": ["pizza", "zebra", "zebra"]}
    assert dropped.notes == ["all_task_test.txt: 3 repeated lines dropped"]
    kept = build_from_list(*listed, TABLES, repeats="owod")
    copies = {"000000000013#2", "000000000013#3", "000000000012#2"}
    assert {*sets_of(kept)["all"]} == {*sets["all"], *copies}
    assert sets_of(kept)["all"]["000000000012#2"] == ["sofa", "zebra"]
    assert kept.sets[-1].n_images == 8  # as many as there are lines
    save_open_set(dropped, tmp_path / "out", version="1")
    assert (tmp_path / "out" / "benchmark.toml").is_file()
    save_open_set(kept, tmp_path / "out", version="1")  # no picture is tested twice
    assert not (tmp_path / "out" / "benchmark.toml").exists()
    written = json.loads((tmp_path / "out" / "all.json").read_text())
    ids = [record["id"] for record in written["annotations"]]
    assert len(ids) == len(set(ids))
    assert load_truth(tmp_path / "out" / "all.json").boxes.n_images == 8


def test_tasks_know_more_classes_and_train_on_what_they_know(listed, folders, tmp_path):
    train = tmp_path / "t2_train.txt"
    train.write_text("000005\n000000000014\n000007\n")
    build = build_from_list(*listed, TABLES, repeats="drop", n_known=40, train=train)
    assert len(build.classes) == 40
    assert build.classes[28] == "zebra"
    sets = sets_of(build)
    assert list(sets["unknown"]) == []  # 13 shows pizza, which is unknown, and zebra
    assert list(sets["test"]) == ["000000000011", "000000000012", "000001", "000002"]
    assert sets["train"] == {"000005": ["car"], "000007": ["cat", "dog"], "000000000014": []}
    assert build.sets[0].dropped == {"of an unknown class": 1}
    with pytest.raises(InvalidDataError, match="Expected 1 to 80 known classes, got 81"):
        build_from_list(*listed, TABLES, repeats="drop", n_known=81)


def test_images_that_are_trained_on_are_not_tested(listed, folders, tmp_path):
    train = tmp_path / "train.txt"
    train.write_text("000005\n000002\n")
    with pytest.raises(InvalidDataError) as raised:
        build_from_list(*listed, TABLES, repeats="drop", train=train)
    assert str(raised.value) == (
        "Expected training and test images apart, got 1 image in both train.txt and "
        "all_task_test.txt, such as 000002. Remove them from one of the lists."
    )
    lists = folders[0] / "ImageSets" / "Main"
    (lists / "trainval.txt").write_text("000005\n000003\n")
    with pytest.raises(
        InvalidDataError, match=r"in both trainval\.txt and test\.txt, such as 0000"
    ):
        build_voc_coco([folders[0]], folders[1], TABLES)
    (lists / "trainval.txt").write_text("000005\n000005\n")
    with pytest.raises(InvalidDataError, match="count twice: remove the lines"):
        build_voc_coco([folders[0]], folders[1], TABLES)  # it has no option --repeats


def test_images_in_no_source_are_counted(listed, tmp_path):
    build = build_from_list(listed[0], listed[1][:1], TABLES, repeats="drop")
    assert build.problems == [
        "all_task_test.txt: 3 of 5 images are in no source, such as 000000000013"
    ]
    other = tmp_path / "other.txt"
    other.write_text("000999\n")
    with pytest.raises(MissingDataError, match=r"There is no image of .*other\.txt in any source"):
        build_from_list(other, listed[1], TABLES)


def test_images_of_coco_are_found_by_the_name_of_the_file(folders, tmp_path):
    (tmp_path / "annotations").mkdir()
    moved = folders[1].rename(tmp_path / "annotations" / folders[1].name)
    assert load_source(moved, TABLES).images == tmp_path  # there is no val2017 beside annotations
    assert load_source(moved, TABLES, images=tmp_path / "coco").images.name == "val2017"
    images = tmp_path / "coco" / "val2017"
    assert load_source(moved, TABLES, images=images).images == images


@pytest.mark.data
def test_the_published_lists_are_read(data_dir, tmp_path):
    detection = data_dir / "detection"
    with tarfile.open(data_dir / "lists" / "osod_imagesets.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    voc = detection / "voc2007" / "voc2007_test_all.json.gz"
    coco = detection / "coco" / "instances_val2017_subset.json.gz"
    with pytest.raises(InvalidDataError, match=r"lists 1,035 images more than once.*1,127 repeat"):
        build_from_list(tmp_path / "owod" / "all_task_test.txt", [voc], TABLES)
    owod = build_from_list(
        tmp_path / "owod" / "all_task_test.txt", [voc, coco], TABLES, repeats="drop"
    )
    found = {tally.what: tally.found for tally in owod.tallies}
    assert found["lines of all_task_test.txt"] == 10_246
    assert found["images of test"] == 4952
    assert "of 9,119 images are in no source" in owod.problems[0]
    opendet = build_from_list(tmp_path / "opendet2" / "voc_coco_20_40_test.txt", [voc], TABLES)
    assert "5,000 of 9,952 images are in no source" in opendet.problems[0]
    known = build_from_list(tmp_path / "owod" / "t1_known_test.txt", [voc], TABLES)
    assert (known.problems, known.sets[0].n_images) == ([], 4952)


@pytest.mark.data
def test_real_images_of_voc_and_coco_make_an_open_set(data_dir, tmp_path):
    detection = data_dir / "detection"
    for name in ("voc2007/voc2007_test_subset.zip", "coco/val2017_subset.zip"):
        with zipfile.ZipFile(detection / name) as archive:
            archive.extractall(tmp_path)
    images = next(path.parent for path in tmp_path.rglob("000000000139.jpg"))
    coco = detection / "coco" / "instances_val2017_subset.json.gz"
    build = build_voc_coco([tmp_path / "VOC2007"], coco, TABLES, coco_images=images)
    assert {built.name: built.n_images for built in build.sets} == {
        "test": 249, "unknown": 53, "all": 302,
    }  # fmt: skip
    save_open_set(build, tmp_path / "out", version="1")
    found = load_benchmark(tmp_path / "out" / "benchmark.toml", cache_dir=tmp_path,
                           allow_outside=True)  # fmt: skip
    assert len(found.mixed["all"].image_ids) == 302


# --- refusals ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (
            ('"tvmonitor", "tv"', ""),
            "the known class 'tvmonitor' is empty; list its names in files",
        ),
        (('"truck", ', '"truck", "truck", '), "class 'truck' is listed twice; keep one"),
        (('"truck", ', '"tv", '), "'tv' becomes both 'tvmonitor' and 'tv'; keep one"),
        (('"truck", ', '"", '), "an unknown class has an empty name; take it out"),
        (("unknown = [", "unknwon = ["), "has no use for the key 'unknwon'; did you mean unknown?"),
    ],
)
def test_wrong_tables_are_answered_with_a_sentence(tmp_path, change, sentence):
    path = tmp_path / "mine.toml"
    path.write_text(VOC_COCO.read_text().replace(*change))
    with pytest.raises(InvalidDataError) as raised:
        load_open_set_tables(path)
    assert sentence in str(raised.value)


def test_wrong_sources_are_answered_with_a_sentence(folders, tmp_path):
    other = write_coco(tmp_path / "other" / "instances_val2017.json", {1: ["person", "unicorn"]})
    with pytest.raises(InvalidDataError) as raised:
        load_source(other, TABLES)
    assert "No class of voc-coco is called 'unicorn'." in str(raised.value)
    assert "add it there and give them with --tables." in str(raised.value)
    content = json.loads(folders[1].read_text())
    content["images"][1]["file_name"] = "train2017/000000000011.jpg"
    other.write_text(json.dumps(content))
    with pytest.raises(InvalidDataError, match="has two images called 000000000011"):
        load_source(other, TABLES)
    with pytest.raises(MissingDataError, match=r"There is no .*VOC2012; name a folder such as"):
        build_voc_coco([tmp_path / "VOC2012"], folders[1], TABLES)
    (folders[0] / "ImageSets" / "Main" / "test.txt").unlink()
    with pytest.raises(MissingDataError, match=r"There is no ImageSets/Main/test\.txt in "):
        build_voc_coco([folders[0]], folders[1], TABLES)
    (folders[0] / "ImageSets" / "Main" / "test.txt").write_text("000001\n000001\n")
    with pytest.raises(InvalidDataError, match=r"test\.txt lists 1 image more than once"):
        build_voc_coco([folders[0]], folders[1], TABLES)
    again = write_voc(tmp_path / "again", {"000001": ["cow"]})
    (folders[0] / "ImageSets" / "Main" / "test.txt").write_text("000001\n")
    with pytest.raises(InvalidDataError, match="Image 000001 is in both"):
        build_voc_coco([folders[0], again], folders[1], TABLES)
