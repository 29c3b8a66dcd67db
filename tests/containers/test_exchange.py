"""Boxes of supervision and FiftyOne: round trips, and the same metrics as those libraries."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image
from pycocotools.coco import COCO
from tests.containers.random_boxes import CLASSES, SIZE, random_boxes

from incognita.containers.boxes import BoxTruth, Detections
from incognita.containers.classes import Classes, Role
from incognita.errors import InvalidDataError, UnknownNameError
from incognita.formats import load_truth, save_fiftyone
from incognita.metrics import coco_numbers


def same_boxes(first, second):
    assert first.offsets.tolist() == second.offsets.tolist()
    assert first.class_ids.tolist() == second.class_ids.tolist()
    np.testing.assert_allclose(first.xyxy, second.xyxy, rtol=0, atol=1e-9)
    return True


def one_image(xyxy, confidence=None, class_id=None, names=None):
    """What supervision's object looks like, for tests of what it may hold."""
    data = {} if names is None else {"class_name": np.array(names)}
    class_id = None if class_id is None else np.array(class_id)
    confidence = None if confidence is None else np.array(confidence)
    xyxy = np.array(xyxy, np.float32).reshape(-1, 4)
    return SimpleNamespace(xyxy=xyxy, confidence=confidence, class_id=class_id, data=data)


# ------------------------------------------------------------------------------ supervision


@pytest.fixture
def supervision():
    return pytest.importorskip("supervision", exc_type=ImportError)


def test_a_round_trip_through_supervision_keeps_every_number(supervision):
    found, _ = random_boxes()
    images = found.to_supervision()
    assert len(images) == found.n_images
    assert isinstance(images[0], supervision.Detections)
    assert images[0] == supervision.Detections(
        xyxy=np.zeros((0, 4)), confidence=np.zeros(0), class_id=np.zeros(0, np.int64),
        data={"class_name": np.zeros(0, "U4")},
    )  # fmt: skip
    back = Detections.from_supervision(images, classes=found.classes, image_ids=found.image_ids)
    assert same_boxes(found, back)
    assert back.confidence.tolist() == found.confidence.tolist()
    assert back.xyxy.tolist() == found.xyxy.tolist()
    assert back.image_ids.tolist() == found.image_ids.tolist()


def test_supervision_finds_the_names_and_merges_what_it_gets(supervision):
    found, _ = random_boxes()
    merged = supervision.Detections.merge(found.to_supervision())
    assert merged["class_name"].tolist() == [CLASSES.names[k] for k in found.class_ids]
    assert len(merged.with_nms(threshold=0.5)) <= len(found)


def test_an_empty_one_of_supervision_is_an_image_without_boxes(supervision):
    found = Detections.from_supervision([supervision.Detections.empty()] * 3, classes=["car"])
    assert (found.n_images, len(found)) == (3, 0)
    assert Detections.from_supervision([]).n_images == 0


@pytest.mark.parametrize("seed", range(5))
def test_average_precision_equals_that_of_supervision(supervision, seed):
    metrics = pytest.importorskip("supervision.metrics")
    found, truth = random_boxes(30, seed)
    both = Classes(CLASSES.names)  # all known: supervision knows no roles
    found, truth = (
        type(boxes)(boxes.image_ids, boxes.offsets, boxes.xyxy, *columns, boxes.class_ids, both)
        for boxes, columns in ((found, [found.confidence]), (truth, []))
    )
    objects = [
        supervision.Detections(truth.xyxy[a:b], class_id=truth.class_ids[a:b])
        for a, b in zip(truth.offsets[:-1], truth.offsets[1:], strict=True)
    ]
    theirs = metrics.MeanAveragePrecision().update(found.to_supervision(), objects).compute()
    ours = coco_numbers(found, truth)
    assert ours.ap == pytest.approx(theirs.map50_95, abs=1e-6)
    assert ours.ap50 == pytest.approx(theirs.map50, abs=1e-6)
    assert ours.ap75 == pytest.approx(theirs.map75, abs=1e-6)


def test_names_decide_where_boxes_have_them():
    image = one_image([[0, 0, 1, 1], [2, 2, 3, 3]], [0.5, 0.6], [7, 2], ["deer", "car"])
    found = Detections.from_supervision(image)
    assert found.classes.names == ("car", "deer")  # in the order of class_id
    assert found.class_ids.tolist() == [1, 0]
    given = Detections.from_supervision([image], classes=CLASSES)
    assert given.class_ids.tolist() == [2, 0]
    assert given.classes.roles[2] is Role.UNKNOWN


def test_numbers_are_positions_where_there_are_no_names():
    image = one_image([[0, 0, 1, 1]], [0.5], [1])
    assert Detections.from_supervision(image, classes=["car", "bus"]).class_ids.tolist() == [1]


@pytest.mark.parametrize(
    ("image", "classes", "error", "words"),
    [
        (one_image([[0, 0, 1, 1]], [0.5], [1]), None, InvalidDataError, "Pass classes"),
        (one_image([[0, 0, 1, 1]], [0.5]), ["car"], InvalidDataError, "Expected class_id"),
        (one_image([[0, 0, 1, 1]], [0.5], None, ["car"]), None, InvalidDataError, "class_id"),
        (one_image([[0, 0, 1, 1]], None, [0]), ["car"], InvalidDataError, "confidence"),
        (one_image([[0, 0, 1, 1]], [0.5], [0], ["cat"]), ["car"], UnknownNameError, "'cat'"),
        (one_image([[0, 0, 1, 1]], [0.5], [3]), ["car"], InvalidDataError, "class_ids"),
        (
            one_image([[0, 0, 1, 1]] * 2, [0.5, 0.4], [0, 0], ["car", "bus"]),
            None,
            InvalidDataError,
            "one name for class_id 0",
        ),
        (None, ["car"], InvalidDataError, "got NoneType for image 0"),
        ([one_image([]), None], ["car"], InvalidDataError, "got NoneType for image 1"),
    ],
)
def test_what_supervision_may_leave_out_is_refused(image, classes, error, words):
    with pytest.raises(error, match=words):
        Detections.from_supervision(image, classes=classes)


# ------------------------------------------------------------------------------ FiftyOne


class FakeDataset:
    """The four calls that FiftyOne's datasets and views answer."""

    def __init__(self, columns, fields=("predictions", "ground_truth")):
        self.columns, self.fields = columns, fields

    def get_field_schema(self):
        return dict.fromkeys(self.fields)

    def get_field(self, path):
        return path if path in self.columns else None

    def values(self, path):
        return self.columns[path]


def fake(field="predictions", **changes):
    columns = {
        "id": ["a", "b"],
        "metadata.width": [100, 200],
        "metadata.height": [50, 80],
        f"{field}.detections.bounding_box": [[[0.1, 0.2, 0.3, 0.4]], None],
        f"{field}.detections.label": [["car"], None],
        f"{field}.detections.confidence": [[0.9], None],
    }
    return FakeDataset(columns | changes)


def test_relative_boxes_become_pixels():
    found = Detections.from_fiftyone(fake())
    assert found.image_ids.tolist() == ["a", "b"]
    np.testing.assert_allclose(found.xyxy, [[10, 10, 40, 30]])
    np.testing.assert_allclose(found.sizes, [[30, 20]])
    assert found.offsets.tolist() == [0, 1, 1]
    truth = BoxTruth.from_fiftyone(
        fake("ground_truth", **{"ground_truth.detections.iscrowd": [[1], None]}), classes=CLASSES
    )
    assert truth.is_crowd.tolist() == [True]


@pytest.mark.parametrize(
    ("dataset", "words"),
    [
        (fake(**{"metadata.width": [100, None]}), "compute_metadata"),
        (fake(**{"predictions.detections.confidence": [[None], None]}), "got None for 1 of 1"),
        (FakeDataset({"id": ["a"]}), "of the type Detections"),
    ],
)
def test_what_fiftyone_may_leave_out_is_refused(dataset, words):
    with pytest.raises(InvalidDataError, match=words):
        Detections.from_fiftyone(dataset)


def test_a_field_that_is_not_there_is_answered_with_a_suggestion():
    with pytest.raises(UnknownNameError, match="Did you mean predictions"):
        Detections.from_fiftyone(fake(), "prediction")


@pytest.fixture
def pictures(tmp_path):
    """Image files of 640 x 480, two of them with one name."""
    paths = []
    for k in range(12):
        folder = tmp_path / ("first" if k % 2 else "second")
        folder.mkdir(exist_ok=True)
        paths.append(folder / ("same.png" if k < 2 else f"{k}.png"))
        Image.new("RGB", SIZE, (k, k, k)).save(paths[-1])
    return paths


def test_the_layout_is_valid_coco(pictures, tmp_path):
    _, truth = random_boxes()
    save_fiftyone(truth, pictures, tmp_path / "out")
    file = tmp_path / "out" / "labels.json"
    loaded = load_truth(file, known=["car", "bus"])
    assert same_boxes(truth, loaded.boxes)
    assert loaded.boxes.image_ids.tolist() == truth.image_ids.tolist()
    assert loaded.boxes.is_unknown.tolist() == truth.is_unknown.tolist()
    theirs = COCO(file)
    assert len(theirs.getAnnIds()) == len(truth)
    assert [c["name"] for c in theirs.loadCats(theirs.getCatIds())] == list(CLASSES.names)
    for record in theirs.loadImgs(theirs.getImgIds()):
        image = Image.open(tmp_path / "out" / "data" / record["file_name"])
        assert image.size == (record["width"], record["height"]) == SIZE
        assert image.getpixel((0, 0))[0] == record["id"] - 1


def test_detections_keep_their_confidence_and_text_ids(pictures, tmp_path):
    found, _ = random_boxes()
    named = Detections(
        [f"image {k}" for k in range(12)], found.offsets, found.xyxy, found.confidence,
        found.class_ids, CLASSES,
    )  # fmt: skip
    images = dict(zip(named.image_ids.tolist(), pictures, strict=True))
    save_fiftyone(named, images, tmp_path / "out", links=True)
    document = json.loads((tmp_path / "out" / "labels.json").read_text())
    assert [a["score"] for a in document["annotations"]] == found.confidence.tolist()
    assert document["images"][3]["original_id"] == "image 3"
    assert (tmp_path / "out" / "data" / "3.png").is_symlink()
    assert COCO(tmp_path / "out" / "labels.json").getImgIds() == list(range(1, 13))
    with pytest.raises(InvalidDataError, match="Expected a new folder"):
        save_fiftyone(named, images, tmp_path / "out")


def test_images_without_a_file_are_refused(pictures, tmp_path):
    _, truth = random_boxes()
    with pytest.raises(InvalidDataError, match="Expected 12 files, one per image, got 3"):
        save_fiftyone(truth, pictures[:3], tmp_path / "out")
    with pytest.raises(InvalidDataError, match="got none for 2 and 10 others"):
        save_fiftyone(truth, {1: pictures[0]}, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_name_with_dots_stays_below_the_folder(tmp_path):
    outside = tmp_path / "outside.png"
    Image.new("RGB", (9, 9)).save(outside)
    folder = tmp_path / "a" / "b"
    folder.mkdir(parents=True)
    truth = BoxTruth(["../../x"], [0, 0], np.zeros((0, 4)), [], CLASSES)
    save_fiftyone(truth, [folder / ".." / ".." / "outside.png"], tmp_path / "out")
    assert [p.name for p in (tmp_path / "out" / "data").iterdir()] == ["outside.png"]


@pytest.mark.slow
def test_fiftyone_imports_the_layout_and_gives_it_back(pictures, tmp_path):
    fiftyone = pytest.importorskip("fiftyone", exc_type=ImportError)
    found, truth = random_boxes()
    kinds = {"predictions": found, "ground_truth": truth}
    for field, boxes in kinds.items():
        save_fiftyone(boxes, pictures, tmp_path / field)
        dataset = fiftyone.Dataset.from_dir(
            dataset_dir=str(tmp_path / field),
            dataset_type=fiftyone.types.COCODetectionDataset,
            label_types="detections",
            label_field=field,
        )
        dataset.compute_metadata()
        reader = type(boxes).from_fiftyone
        back = reader(dataset, field, classes=CLASSES)
        names = [path.rpartition("/")[2] for path in dataset.values("filepath")]
        document = json.loads((tmp_path / field / "labels.json").read_text())
        order = [r["file_name"] for r in document["images"]]
        places = np.array([names.index(name) for name in order])
        assert same_boxes(boxes, back.at_images(places, np.arange(12)))
        roles = [
            role for image in dataset.values(f"{field}.detections.role") for role in image or ()
        ]
        assert sorted(roles) == sorted(CLASSES.roles[k].value for k in boxes.class_ids)
    assert sorted(back.classes.names) == sorted(CLASSES.names)
