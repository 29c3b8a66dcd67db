"""Images with painted-over objects: on the fly, in the output store, and on disk."""

import json
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from tests.extraction.tiny_detector import GridDetector

from incognita.benchmarks import PaintedOver
from incognita.benchmarks.pseudo_unknown import MANIFEST, paint_over, write_painted
from incognita.containers.boxes import BoxTruth
from incognita.containers.classes import Classes
from incognita.containers.dataset import ArrayDataset, BoxDataset
from incognita.errors import InvalidDataError, MissingDataError
from incognita.extraction.extract import extract
from incognita.extraction.store import OutputStore
from incognita.formats.coco_annotations import load_truth
from incognita.formats.coco_dataset import CocoDataset, CocoFile

HEIGHT, WIDTH = 24, 32
BOXES = {  # image: x, y, w, h and whether it is a crowd
    1: [(2.7, 3.2, 10.0, 6.9, False), (0, 0, 32, 24, True)],
    2: [(20, 10, 100, 100, False), (-9, -9, 12, 12, False), (90, 90, 5, 5, False)],
    3: [],
}


@dataclass(frozen=True, eq=False)
class Annotated(ArrayDataset):
    """Images in memory with boxes."""

    boxes: BoxTruth | None = None

    def truth(self) -> BoxTruth:
        return self.boxes

    def subset(self, indices) -> "Annotated":
        part = super().subset(indices)
        boxes = self.boxes.for_images(np.array(part.image_ids))
        return Annotated(part.name, part.image_ids, part.images, boxes=boxes)


def pixels() -> np.ndarray:
    """Three images of 4 x 4 colored cells, which the detector of the grid finds; none is black."""
    cells = np.random.default_rng(0).integers(1, 256, (3, 4, 4, 3), np.uint8)
    return cells.repeat(HEIGHT // 4, axis=1).repeat(WIDTH // 4, axis=2)


def annotated() -> Annotated:
    rows = [row for boxes in BOXES.values() for row in boxes]
    xyxy = np.array([(x, y, x + w, y + h) for x, y, w, h, _ in rows], np.float64)
    offsets = np.cumsum([0, *map(len, BOXES.values())])
    ids = tuple(map(str, BOXES))
    truth = BoxTruth(
        ids, offsets, xyxy, [0] * len(rows), Classes(("car", "unknown")),
        is_crowd=[crowd for *_, crowd in rows],
    )  # fmt: skip
    return Annotated("scenes", ids, pixels(), boxes=truth)


def painted_slowly(image: np.ndarray, boxes: list) -> np.ndarray:
    """Set to zero each pixel between the corners of a box, cut to whole pixels."""
    out = image.copy()
    for y in range(image.shape[0]):
        for x in range(image.shape[1]):
            for left, top, w, h, is_crowd in boxes:
                inside = int(left) <= x < int(left + w) and int(top) <= y < int(top + h)
                if inside and not is_crowd:
                    out[y, x] = 0
    return out


def test_objects_are_black_and_crowds_untouched() -> None:
    source = annotated()
    dataset = PaintedOver(source)
    for index, boxes in enumerate(BOXES.values()):
        expected = painted_slowly(pixels()[index], boxes)
        np.testing.assert_array_equal(dataset.load(index), expected)
        np.testing.assert_array_equal(source.load(index), pixels()[index])  # not painted itself
    assert (dataset.load(0) > 0).any()  # the crowd region is the whole image


def test_a_box_outside_the_image_paints_nothing() -> None:
    image = pixels()[0]
    beyond = np.array([[40.0, 2, 50, 9], [-20, -20, -1, -1], [3, 99, 9, 120], [1e300, 0, 1e301, 9]])
    np.testing.assert_array_equal(paint_over(image, beyond), image)
    np.testing.assert_array_equal(paint_over(image, np.zeros((0, 4))), image)
    assert not paint_over(image, np.array([[-1e300, -1e300, 1e300, 1e300]])).any()


@given(st.lists(st.tuples(*[st.floats(-50, 80)] * 2, *[st.floats(0, 60)] * 2), max_size=4))
def test_painting_follows_its_definition(boxes) -> None:
    image = pixels()[0, :9, :11]
    xyxy = np.array([(x, y, x + w, y + h) for x, y, w, h in boxes]).reshape(-1, 4)
    expected = painted_slowly(image, [(*box, False) for box in boxes])
    np.testing.assert_array_equal(paint_over(image, xyxy), expected)


def test_it_is_a_data_set_of_its_own_without_objects() -> None:
    source = annotated()
    dataset = PaintedOver(source)
    assert isinstance(dataset, BoxDataset)
    assert dataset.fingerprint() != source.fingerprint()
    assert dataset.fingerprint() == PaintedOver(annotated()).fingerprint()
    assert PaintedOver(dataset).fingerprint() != dataset.fingerprint()
    assert (len(dataset), len(dataset.truth())) == (3, 0)
    assert dataset.truth() is dataset.truth()
    assert dataset.truth().image_ids.tolist() == list(dataset.image_ids) == ["1", "2", "3"]
    assert "painted" in dataset.name


def test_a_subset_paints_the_boxes_of_its_own_images() -> None:
    dataset = PaintedOver(annotated())
    part = dataset.subset([2, 0])
    assert list(part.image_ids) == ["3", "1"]
    np.testing.assert_array_equal(part.load(0), dataset.load(2))
    np.testing.assert_array_equal(part.load(1), dataset.load(0))
    assert part.truth().n_images == 2


def test_the_store_keeps_painted_and_plain_images_apart(tmp_path) -> None:
    store, detector, source = OutputStore(tmp_path), GridDetector(), annotated()
    plain = extract(detector, source, store=store).outputs.detections
    painted = extract(detector, PaintedOver(source), store=store)
    assert painted.passes.forward == 3
    assert len(list(tmp_path.iterdir())) == 2
    for dataset, found in ((source, plain), (PaintedOver(source), painted.outputs.detections)):
        again = extract(detector, dataset, store=store)
        assert again.passes.forward == 0
        np.testing.assert_array_equal(again.outputs.detections.confidence, found.confidence)
    assert len(plain) != len(painted.outputs.detections)


# --- on disk -------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path):
    """A COCO file with three images, of which two lie in a subfolder."""
    for image_id, image in zip(BOXES, pixels(), strict=True):
        path = tmp_path / "images" / name_of(image_id)
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(path)
    annotations = [
        {"id": 10 * i + k, "image_id": i, "category_id": 7, "bbox": [x, y, w, h],
         "area": w * h, "iscrowd": int(crowd)}
        for i, boxes in BOXES.items()
        for k, (x, y, w, h, crowd) in enumerate(boxes)
    ]  # fmt: skip
    images = [{"id": i, "file_name": name_of(i), "width": WIDTH, "height": HEIGHT} for i in BOXES]
    document = {"images": images, "annotations": annotations,
                "categories": [{"id": 7, "name": "car"}]}  # fmt: skip
    (tmp_path / "val.json").write_text(json.dumps(document))
    return tmp_path


def name_of(image_id: int) -> str:
    return "first.bmp" if image_id == 1 else f"sub/{image_id}.bmp"


def write(folder, out="painted"):
    return write_painted(folder / "val.json", folder / "images", folder / out)


def test_written_images_are_those_made_on_the_fly(folder) -> None:
    steps = []
    written = write_painted(
        folder / "val.json", folder / "images", folder / "painted",
        on_progress=lambda done, total: steps.append((done, total)),
    )  # fmt: skip
    assert written == (3, (), {})
    assert steps == [(1, 3), (2, 3), (3, 3)]
    source = CocoDataset(
        "val", folder / "images", tuple(map(name_of, BOXES)),
        file=CocoFile(folder / "val.json"), record_ids=np.array(list(BOXES)),
        sizes=np.array([[WIDTH, HEIGHT]] * 3, float),
    )  # fmt: skip
    dataset = PaintedOver(source)
    for k, image_id in enumerate(BOXES):
        path = (folder / "painted" / name_of(image_id)).with_suffix(".png")
        saved = np.asarray(Image.open(path))
        np.testing.assert_array_equal(saved, dataset.load(k))
        np.testing.assert_array_equal(saved, painted_slowly(pixels()[k], BOXES[image_id]))


def test_the_list_of_painted_images_is_a_coco_file_with_the_same_ids(folder) -> None:
    write(folder)
    listed = load_truth(folder / "painted" / MANIFEST)
    original = load_truth(folder / "val.json")
    assert listed.boxes.image_ids.tolist() == original.boxes.image_ids.tolist()
    assert listed.categories == original.categories
    assert len(listed.boxes) == 0
    records = json.loads((folder / "painted" / MANIFEST).read_text())["images"]
    assert records[1] == {"id": 2, "file_name": "sub/2.png", "width": WIDTH, "height": HEIGHT}
    assert all((folder / "painted" / record["file_name"]).is_file() for record in records)


def test_missing_and_unreadable_images_are_reported_and_left_out(folder) -> None:
    (folder / "images" / "first.bmp").unlink()
    (folder / "images" / "sub" / "2.bmp").write_bytes(b"not an image")
    written = write(folder)
    assert (written.n_images, written.missing) == (1, ("first.bmp",))
    assert list(written.unreadable) == ["sub/2.bmp"]
    records = json.loads((folder / "painted" / MANIFEST).read_text())["images"]
    assert [record["id"] for record in records] == [3]


def test_without_any_image_nothing_is_written(folder) -> None:
    with pytest.raises(MissingDataError, match="None of the 3 images"):
        write_painted(folder / "val.json", folder / "nowhere", folder / "painted")
    assert not (folder / "painted").exists()


@pytest.mark.parametrize("foreign", ["sub/2.png", MANIFEST])
def test_foreign_files_are_not_replaced(folder, foreign) -> None:
    path = folder / "painted" / foreign
    path.parent.mkdir(parents=True)
    path.write_text('{"images": []}')
    with pytest.raises(InvalidDataError, match="would be replaced"):
        write(folder)
    assert path.read_text() == '{"images": []}'
    assert [p for p in (folder / "painted").rglob("*") if p.is_file()] == [path]


def test_a_second_run_replaces_its_own_files(folder) -> None:
    write(folder)
    path = folder / "painted" / "sub" / "2.png"
    path.write_bytes(b"")
    write(folder)
    assert len(path.read_bytes()) > 0


@pytest.mark.parametrize("out", ["images", "images/painted", "."])
def test_the_images_themselves_are_not_painted_over(folder, out) -> None:
    with pytest.raises(InvalidDataError, match="one inside the other"):
        write(folder, out)


def test_a_file_as_folder_is_refused(folder) -> None:
    with pytest.raises(InvalidDataError, match="Expected a folder"):
        write(folder, "val.json")


def test_two_images_of_one_name_are_refused(folder) -> None:
    Image.fromarray(pixels()[0]).save(folder / "images" / "first.png")
    document = json.loads((folder / "val.json").read_text())
    document["images"].append({"id": 9, "file_name": "first.png"})
    (folder / "val.json").write_text(json.dumps(document))
    with pytest.raises(InvalidDataError, match=r"would both become first\.png"):
        write(folder)


def add_image(folder, file_name: str, **more) -> None:
    document = json.loads((folder / "val.json").read_text())
    document["images"].append({"id": 9, "file_name": file_name} | more)
    (folder / "val.json").write_text(json.dumps(document))


@pytest.mark.parametrize(
    "name", ["../elsewhere.bmp", "sub/../../elsewhere.bmp", "{}/elsewhere.bmp"]
)
def test_names_outside_the_folder_are_refused(folder, name) -> None:
    Image.fromarray(pixels()[0]).save(folder / "elsewhere.bmp")
    add_image(folder, name.format(folder))
    with pytest.raises(InvalidDataError, match="Expected images inside"):
        write(folder)
    assert not (folder / "painted").exists()


def test_an_absolute_name_inside_the_folder_keeps_its_place(folder) -> None:
    Image.fromarray(pixels()[0]).save(folder / "images" / "sub" / "more.bmp")
    add_image(folder, str(folder / "images" / "sub" / "more.bmp"))
    assert write(folder).n_images == 4
    assert (folder / "painted" / "sub" / "more.png").is_file()


def test_an_image_of_another_size_is_named(folder) -> None:
    Image.new("RGB", (5, 5)).save(folder / "images" / "small.bmp")
    add_image(folder, "small.bmp", width=WIDTH, height=HEIGHT)
    assert write(folder).unreadable["small.bmp"].startswith("small.bmp: the annotation file says")
