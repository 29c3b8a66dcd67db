"""Images with boxes: the truth is that of the file, seen from the classes of the benchmark."""

import gzip
import json
import pickle
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageOps
from pycocotools.coco import COCO
from tests.benchmarks.box_trees import document_of, write_coco
from tests.benchmarks.image_trees import pixels_of, write_image

from incognita.benchmarks.sources.coco import CocoSet
from incognita.benchmarks.sources.entry import DataContext, LoadedSet
from incognita.benchmarks.terra.classes import KNOWN_NAMES
from incognita.benchmarks.terra.datasets import terra_scenes
from incognita.containers.boxes import BoxTruth
from incognita.containers.classes import Role, find_spelling
from incognita.containers.dataset import BoxDataset
from incognita.errors import InvalidDataError
from incognita.formats.coco_dataset import CocoDataset, find_files

KNOWN = ("person", "aeroplane", "car")
RENAME = {"airplane": "aeroplane"}
NAMES = {3: "airplane", 8: "zebra", 11: "Car", 12: "kite", 20: "tv"}


def opened(folder: Path, known=KNOWN, role="mixed", **keys) -> LoadedSet:
    given = {"annotations": "some.json", "images": "some", "rename": RENAME} | keys
    entry = CocoSet(kind="coco", name="some", role=role, **given)
    return entry.load(DataContext("mine/some", folder, known))


def many_images(n_images: int = 30, seed: int = 0) -> dict:
    rng = np.random.default_rng(seed)
    names = list(NAMES.values())
    return {
        f"{k:03d}.png": [
            (names[rng.integers(len(names))], rng.uniform(0, 10, 4).round(2).tolist())
            for _ in range(rng.integers(5))
        ]
        for k in range(n_images)
    }


@pytest.fixture
def folder(tmp_path) -> Path:
    write_coco(tmp_path, "some", many_images(), NAMES)
    return tmp_path


def test_the_truth_is_what_pycocotools_reads_under_the_names_of_the_benchmark(folder, capsys):
    dataset = opened(folder, ignored=["kite"]).dataset
    truth = dataset.truth()
    peer = COCO(folder / "some.json")
    file_names = {each["file_name"]: each["id"] for each in peer.dataset["images"]}
    ours = {"airplane": "aeroplane", "Car": "car"}
    roles = {"aeroplane": Role.KNOWN, "car": Role.KNOWN, "kite": Role.IGNORED}
    n_boxes = 0
    for place, image_id in enumerate(dataset.image_ids):
        rows = slice(truth.offsets[place], truth.offsets[place + 1])
        theirs = peer.loadAnns(peer.getAnnIds(imgIds=file_names[image_id]))
        n_boxes += len(theirs)
        assert dataset.record_ids[place] == file_names[image_id]
        xywh = np.hstack([truth.xyxy[rows, :2], truth.sizes[rows]])
        np.testing.assert_array_equal(xywh, [a["bbox"] for a in theirs] or np.zeros((0, 4)))
        names = [NAMES[a["category_id"]] for a in theirs]
        names = [ours.get(name, name) for name in names]
        assert [truth.classes.names[k] for k in truth.class_ids[rows]] == names
        for k, name in zip(truth.class_ids[rows], names, strict=True):
            assert truth.classes.roles[k] is roles.get(name, Role.UNKNOWN)
    assert n_boxes == len(truth) == len(peer.dataset["annotations"]) > 30
    assert set(dataset.image_ids) == set(file_names)


def test_the_known_classes_stand_first_in_every_set_whatever_its_file_holds(folder):
    truth = opened(folder).dataset.truth()
    assert truth.classes.names == (*KNOWN, "zebra", "kite", "tv")
    assert truth.classes.known_names == KNOWN
    write_coco(folder, "some", {"1.png": [("dog", [0, 0, 1, 1])]}, {5: "dog"})
    truth = opened(folder, role="near").dataset.truth()
    assert truth.classes.names == (*KNOWN, "dog")
    assert truth.class_ids.tolist() == [3]


def test_there_is_always_an_unknown_class_to_give_a_detection(folder):
    for categories, extra in (({1: "car"}, "unknown"), ({1: "car", 2: "unknown"}, "unknown class")):
        write_coco(folder, "some", {"1.png": [("car", [0, 0, 1, 1])]}, categories)
        ignored = ["unknown"] if len(categories) == 2 else []
        classes = opened(folder, role="test", ignored=ignored).dataset.truth().classes
        assert classes.names[-1] == extra
        assert [role is Role.UNKNOWN for role in classes.roles].count(True) == 1
    classes = opened(folder, role="test").dataset.truth().classes
    assert classes.names == (*KNOWN, "unknown")


def test_what_the_list_of_unknown_categories_leaves_out_is_ignored(folder):
    classes = opened(folder, unknown=["zebra", "airplane"], rename={}).dataset.truth().classes
    roles = dict(zip(classes.names, classes.roles, strict=True))
    assert {name for name, role in roles.items() if role is Role.UNKNOWN} == {"zebra", "airplane"}
    assert {name for name, role in roles.items() if role is Role.IGNORED} == {"kite", "tv"}


def test_several_categories_may_be_one_class(folder):
    truth = opened(folder, rename=dict.fromkeys(("zebra", "airplane"), "aeroplane")).dataset.truth()
    assert truth.classes.names == (*KNOWN, "kite", "tv")
    boxes = json.loads((folder / "some.json").read_text())["annotations"]
    expected = sum(each["category_id"] in (3, 8) for each in boxes)
    assert (truth.class_ids == 1).sum() == expected > 5


def test_super_classes_crowds_and_difficult_objects_are_kept(folder):
    document = document_of({"000.png": [("zebra", [0, 0, 2, 2])] * 4}, NAMES)
    document["categories"][1]["supercategory"] = "animal"
    for place, key in enumerate(("iscrowd", "difficult", "ignore")):
        document["annotations"][place][key] = 1
    document["annotations"][3] |= {"area": 1.5}
    (folder / "some.json").write_text(json.dumps(document))
    truth = opened(folder).dataset.truth()
    assert truth.is_crowd.tolist() == [True, False, False, False]
    assert truth.is_difficult.tolist() == [False, True, True, False]
    assert truth.areas.tolist() == [4, 4, 4, 1.5]
    assert set(truth.superclasses) == {"animal"}
    assert truth.classes.superclasses[truth.classes.id_of("zebra")] == "animal"


def same(one: BoxTruth, other: BoxTruth) -> bool:
    names = ("image_ids", "offsets", "xyxy", "class_ids", "sizes", "areas")
    columns = (np.array_equal(getattr(one, name), getattr(other, name)) for name in names)
    return all(columns) and one.classes == other.classes


@pytest.mark.parametrize("kind", ["coco", "terra"])
def test_a_set_with_boxes_keeps_the_contract(folder, kind):
    dataset = opened(folder).dataset if kind == "coco" else terra_scenes("test", n=30)
    assert isinstance(dataset, BoxDataset)
    assert dataset.labels is None
    assert dataset.source_classes is None
    truth = dataset.truth()
    assert truth is dataset.truth()
    assert truth.image_ids.tolist() == list(dataset.image_ids)
    assert all(type(each) is str for each in dataset.image_ids)
    order = [7, 2, 29]
    part = dataset.subset(order)
    assert isinstance(part, BoxDataset)
    assert list(part.image_ids) == [dataset.image_ids[k] for k in order]
    assert np.array_equal(part.load(0), dataset.load(7))
    for place, k in enumerate(order):
        ours = slice(*part.truth().offsets[place : place + 2])
        theirs = slice(*truth.offsets[k : k + 2])
        assert np.array_equal(part.truth().xyxy[ours], truth.xyxy[theirs])
        assert np.array_equal(part.truth().class_ids[ours], truth.class_ids[theirs])
    assert len({dataset.fingerprint(), part.fingerprint(), part.subset([1]).fingerprint()}) == 3


@pytest.mark.parametrize("kind", ["coco", "terra"])
def test_boxes_do_not_travel_but_are_found_again(folder, kind):
    dataset = opened(folder).dataset if kind == "coco" else terra_scenes("test", n=30)
    sent = pickle.dumps(dataset)
    truth = dataset.truth()
    assert pickle.dumps(dataset) == sent
    arrived = pickle.loads(sent)
    assert same(arrived.truth(), truth)
    assert arrived.fingerprint() == dataset.fingerprint()
    assert np.array_equal(arrived.load(3), dataset.load(3))


def test_the_known_classes_of_terra_are_known_class_ids_in_scenes():
    classes = terra_scenes("test", n=1, classes="far").truth().classes
    assert classes.names[:12] == classes.known_names == KNOWN_NAMES
    assert Role.IGNORED not in classes.roles


def fold_of(folder: Path, part: int, n_parts: int) -> CocoDataset:
    return opened(folder, fold=[part, n_parts]).dataset


def test_folds_share_no_image_and_leave_none_out(folder):
    parts = [set(fold_of(folder, k, 3).image_ids) for k in range(3)]
    assert sum(map(len, parts)) == len(set().union(*parts)) == 30
    assert min(map(len, parts)) >= 5
    assert same(fold_of(folder, 0, 1).truth(), opened(folder).dataset.truth())


def test_the_fold_of_an_image_depends_on_its_id_alone(folder):
    whole = {image: k for k in range(2) for image in fold_of(folder, k, 2).image_ids}
    ids = {each["file_name"]: each["id"] for each in document_of(many_images(), NAMES)["images"]}
    for image, part in whole.items():
        digest = sha256(str(ids[image]).encode()).hexdigest()
        assert int(digest[:16], 16) % 2 == part
    write_coco(folder, "some", dict(list(many_images().items())[:9]), NAMES)
    assert {image: k for k in range(2) for image in fold_of(folder, k, 2).image_ids} == {
        f"{k:03d}.png": whole[f"{k:03d}.png"] for k in range(9)
    }


def test_the_count_is_that_of_the_fold(folder):
    n_first = len(fold_of(folder, 0, 2).image_ids)
    assert opened(folder, fold=[0, 2], count=n_first).is_complete
    with pytest.raises(
        InvalidDataError, match=rf"lists {n_first} images in fold \[0, 2\], but set"
    ):
        opened(folder, fold=[0, 2], count=30)
    with pytest.raises(InvalidDataError, match=r"some\.json lists 30 images, but set 'some' of"):
        opened(folder, count=31)


def test_missing_images_are_named_and_their_boxes_left_out(folder):
    whole = opened(folder).dataset.truth()
    for k in (4, 9):
        (folder / "some" / f"{k:03d}.png").unlink()
    found = opened(folder, count=30)
    assert (found.expected, found.found, found.is_complete) == (30, 28, False)
    assert sorted(found.missing) == [str(folder / "some" / f"{k:03d}.png") for k in (4, 9)]
    truth = found.dataset.truth()
    assert truth.image_ids.tolist() == list(found.dataset.image_ids)
    gone = np.isin(whole.image_ids, ["004.png", "009.png"])
    assert len(truth) == len(whole) - np.diff(whole.offsets)[gone].sum()
    assert np.array_equal(truth.xyxy, whole.xyxy[~gone[whole.image_index]])


@pytest.mark.parametrize("gone", ["some.json", "some"])
def test_without_its_file_or_its_images_a_set_is_missing(folder, gone):
    (folder / gone).rename(folder / "away")
    found = opened(folder, count=30)
    assert found.dataset is None
    assert (found.expected, found.found) == (30, 0)
    assert found.missing[0].startswith(str(folder / gone))


def test_images_are_found_by_their_path_or_by_its_last_part(tmp_path):
    for name in ("a/1.png", "2.png", "3.png", "4.png"):
        write_image(tmp_path / name)
    names = ["a/1.png", "b/2.png", "/home/me/3.png", "C:\\pictures\\4.png", "./2.png", "5.png"]
    paths, is_there = find_files(tmp_path, names)
    absolute = ("/home/me/3.png", "C:/pictures/4.png")  # of one file and no other of that name
    assert paths == ("a/1.png", "2.png", *absolute, "2.png", "5.png")
    assert is_there.tolist() == [True, True, False, False, True, False]


def test_two_records_of_one_file_are_refused(folder):
    document = document_of({"a/000.png": [], "b/000.png": []}, NAMES)
    (folder / "some.json").write_text(json.dumps(document))
    with pytest.raises(InvalidDataError, match=r"000\.png"):
        opened(folder)


def test_an_image_is_read_from_its_file_and_a_packed_annotation_file_too(folder):
    with gzip.open(folder / "packed.json.gz", "wb") as file:
        file.write((folder / "some.json").read_bytes())
    dataset = opened(folder, annotations=str(folder / "packed.json.gz")).dataset
    assert same(dataset.truth(), opened(folder).dataset.truth())
    assert np.array_equal(dataset.load(0), pixels_of(folder / "some" / dataset.image_ids[0]))


def changed(folder: Path, change) -> str:
    document = document_of(many_images(), NAMES)
    change(document)
    (folder / "some.json").write_text(json.dumps(document))
    return opened(folder).dataset.fingerprint()


def test_the_fingerprint_changes_with_all_that_matters_and_with_nothing_else(folder):
    before = opened(folder).dataset.fingerprint()
    first = {"bbox": [0, 0, 1, 1]}
    assert changed(folder, lambda document: None) == before
    outline = {"segmentation": [[1, 2, 3, 4, 5, 6]], "score": 1}
    assert changed(folder, lambda d: d["annotations"][0].update(outline)) == before
    prints = [
        before,
        changed(folder, lambda d: d["annotations"][0].update(first)),
        changed(folder, lambda d: d["annotations"][0].update(category_id=20)),
        changed(folder, lambda d: d["annotations"][0].update(iscrowd=1)),
        changed(folder, lambda d: d["annotations"][0].update(difficult=1)),
        changed(folder, lambda d: d["annotations"][0].update(area=3)),
        changed(folder, lambda d: d["annotations"].pop()),
        changed(folder, lambda d: d["categories"][4].update(name="person")),
    ]
    assert len(set(prints)) == len(prints)
    assert changed(folder, lambda document: None) == before
    assert opened(folder, ignored=["tv"]).dataset.fingerprint() not in prints
    write_image(folder / "some" / "000.png", 255, (20, 20))
    assert opened(folder).dataset.fingerprint() not in prints


@pytest.mark.parametrize(
    ("keys", "sentence"),
    [
        ({"unknown": ["zebar"]}, "is called 'zebar'. Did you mean zebra?"),
        ({"ignored": ["tvs"]}, "is called 'tvs'. Did you mean tv?"),
        ({"rename": {"airplan": "aeroplane"}}, "is called 'airplan'. Did you mean airplane?"),
        (
            {"ignored": ["Car"]},
            "category 'Car' is ignored, but its class 'car' is known;",
        ),
        (
            {"rename": {"kite": "tv"}, "ignored": ["kite"]},
            "category 'tv' is unknown, but its class 'tv' is ignored; correct",
        ),
        (
            {"rename": {}},
            "has a category 'airplane' and none for the known class 'aeroplane' of mine/some; if "
            "they are one, write rename = { 'airplane' = 'aeroplane' } in set 'some', else name "
            "'airplane' in its allowed_classes.",
        ),
    ],
)
def test_names_that_cannot_be_meant_are_refused(folder, keys, sentence):
    with pytest.raises(InvalidDataError) as caught:
        opened(folder, **({"rename": {}} | keys))
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "keys",
    [
        {"allowed_classes": ["airplane"]},
        {"unknown": ["airplane"]},
        {"ignored": ["airplane"]},
        {"rename": {"airplane": "aeroplane", "motorcycle": "motorbike"}},
    ],
)
def test_names_that_were_thought_of_are_accepted(folder, keys):
    assert opened(folder, **({"rename": {}} | keys)).found == 30


def test_one_table_of_names_serves_files_that_already_have_ours(folder):
    write_coco(folder, "some", {"1.png": [("aeroplane", [0, 0, 1, 1])]}, {3: "aeroplane", 4: "fox"})
    truth = opened(folder, role="test").dataset.truth()
    assert truth.class_ids.tolist() == [KNOWN.index("aeroplane")]


def test_a_spelling_matters_only_where_an_object_has_it(folder):
    write_coco(folder, "some", {"1.png": [("tv", [0, 0, 1, 1])]}, NAMES)
    assert opened(folder, role="near", rename={}).found == 1


def test_known_images_need_a_known_category(folder):
    with pytest.raises(InvalidDataError, match="no category for any known class of mine/some"):
        opened(folder, known=("house", "tree"), role="test")
    assert opened(folder, known=("house", "tree"), role="near").notes == ()


def test_a_known_class_that_the_file_lacks_is_said(folder):
    found = opened(folder)
    assert found.notes == ("some: no category is called person; rename those that are there",)
    assert opened(folder, known=("car", "tv")).notes == ()


def test_a_spelling_is_found_and_another_word_is_not():
    assert find_spelling("tvmonitor", ["tv", "monitor lizard"]) is None
    assert find_spelling("hair drier", ["Hair_Dryer", "hairpin"]) == "Hair_Dryer"
    assert find_spelling("mouse", ["house", "moose"]) is None
    assert find_spelling("bus", []) is None


def test_the_truth_of_images_that_are_not_annotated_is_refused():
    truth = terra_scenes("test", n=3).truth()
    part = truth.for_images(truth.image_ids[[2, 0]])
    assert part.image_ids.tolist() == truth.image_ids[[2, 0]].tolist()
    assert np.array_equal(part.xyxy[: part.offsets[1]], truth.xyxy[truth.offsets[2] :])
    with pytest.raises(InvalidDataError, match="Image id here is not among"):
        truth.for_images(np.array(["here"]))


# --- sizes and paths of images --------------------------------------------------------------------


def write_sized(folder: Path, boxes, **size) -> None:
    """Write one picture of 20 x 20 pixels whose record gives a size."""
    document = document_of({"1.png": boxes}, NAMES)
    document["images"][0] |= size
    write_image(folder / "some" / "1.png", 1, (20, 20))
    (folder / "some.json").write_text(json.dumps(document))


@pytest.mark.parametrize(
    "size",
    [{}, {"width": None, "height": None}, {"width": 20, "height": 20.0}, {"width": 0, "height": 0}],
)
def test_a_picture_of_the_size_that_is_said_or_of_any_where_none_is_said_loads(tmp_path, size):
    write_sized(tmp_path, [], **size)
    assert opened(tmp_path).dataset.load(0).shape == (20, 20, 3)


def test_a_picture_of_another_size_than_annotated_is_refused_in_every_process(tmp_path):
    write_sized(tmp_path, [], width=480, height=360)
    dataset = opened(tmp_path).dataset
    for each in (dataset, dataset.subset([0]), pickle.loads(pickle.dumps(dataset))):
        with pytest.raises(InvalidDataError) as raised:
            each.load(0)
        assert str(raised.value) == (
            "the annotation file says 480 x 360, the image has 20 x 20; get the image that was "
            "annotated, or correct the file."
        )
    before = dataset.fingerprint()
    write_sized(tmp_path, [], width=20, height=20)
    assert opened(tmp_path).dataset.fingerprint() != before


def test_swapped_sizes_are_told_as_what_an_exif_orientation_does(tmp_path):
    write_sized(tmp_path, [], width=30, height=40)
    write_image(tmp_path / "some" / "1.png", 1, (40, 30))
    with Image.open(tmp_path / "some" / "1.png") as image:
        exif = image.getexif()
        exif[0x0112] = 6  # turn it by 90 degrees
        image.save(tmp_path / "some" / "1.png", exif=exif)
        assert ImageOps.exif_transpose(image).size == (30, 40)  # what an annotator has seen
    with pytest.raises(InvalidDataError) as raised:
        opened(tmp_path).dataset.load(0)
    assert str(raised.value) == (
        "the annotation file says 30 x 40, the image has 40 x 30; save it upright, since the "
        "EXIF orientation is ignored."
    )


def test_a_size_that_is_no_number_is_refused(tmp_path):
    write_sized(tmp_path, [], width="wide", height=3)
    with pytest.raises(InvalidDataError, match="has 'wide' as width, but a number is expected"):
        opened(tmp_path)


def test_boxes_wholly_outside_the_image_are_counted_and_said(tmp_path):
    inside = [("zebra", [0, 0, 5, 5]), ("kite", [15, 15, 90, 90]), ("kite", [-3, 0, 4, 4])]
    outside = [("zebra", [20, 3, 4, 4]), ("tv", [3, 100, 1, 1]), ("tv", [-9, 3, 4, 4])]
    write_sized(tmp_path, [*inside, *outside], width=20, height=20)
    assert opened(tmp_path).notes[-1] == (
        "some: 3 of 6 boxes lie wholly outside the image, such as one of 1.png"
    )
    write_sized(tmp_path, [*inside, outside[2]])  # no size is said, but left of all images
    assert "some: 1 of 4 boxes lies wholly outside" in opened(tmp_path).notes[-1]
    write_sized(tmp_path, inside, width=20, height=20)
    assert not [note for note in opened(tmp_path).notes if "outside" in note]


@pytest.mark.parametrize("link", [False, True])
def test_two_records_of_one_file_are_refused_however_they_are_spelt(tmp_path, link):
    write_image(tmp_path / "some" / "1.png", 1, (20, 20))
    (tmp_path / "some" / "2.png").symlink_to("1.png")
    second = "2.png" if link else "../some/1.png"
    document = document_of({"1.png": [], second: []}, NAMES)
    (tmp_path / "some.json").write_text(json.dumps(document))
    with pytest.raises(InvalidDataError) as raised:
        opened(tmp_path)
    assert "which are one file" in str(raised.value)
    assert "1.png" in str(raised.value)
    assert second in str(raised.value)
