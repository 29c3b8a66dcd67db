"""Thumbnails: where boxes are drawn, which part is shown, how many there are."""

import io
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from incognita.containers.dataset import ArrayDataset
from incognita.errors import MissingDataError
from incognita.evaluation.gallery import CALLED_UNKNOWN, NAMED, DrawnBox
from incognita.report.page import Picture
from incognita.report.pictures import SIDE, Images, PictureBudget, thumbnail, window_around
from incognita.results.evaluation import Evaluation


def pixels_of(image: bytes) -> np.ndarray:
    with Image.open(io.BytesIO(image)) as picture:
        return np.asarray(picture.convert("RGB")).astype(int)


def near(pixels: np.ndarray, color) -> np.ndarray:
    return np.abs(pixels - np.array(color)).sum(axis=2) < 120


def test_boxes_are_where_the_window_shows_them():
    scene = np.full((400, 800, 3), 255, np.uint8)
    box = DrawnBox((500.0, 100.0, 700.0, 300.0), NAMED)
    window = (400.0, 0.0, 800.0, 400.0)
    found = pixels_of(thumbnail(scene, [box], window=window))
    assert found.shape == (SIDE, SIDE, 3)
    rows, columns = np.nonzero(near(found, NAMED))
    scale = SIDE / 400
    edges = columns.min(), columns.max(), rows.min(), rows.max()
    assert edges == pytest.approx((100 * scale, 300 * scale, 100 * scale, 300 * scale), abs=3)


def test_the_truth_is_dashed_and_unknown_is_green():
    scene = np.full((100, 100, 3), 120, np.uint8)
    truth, box = DrawnBox((10, 10, 60, 60), None), DrawnBox((30, 30, 90, 90), CALLED_UNKNOWN, "x")
    found = pixels_of(thumbnail(scene, [truth, box]))
    assert near(found, CALLED_UNKNOWN).any()
    assert not near(found, NAMED).any()
    top = found[round(10 * SIDE / 100), round(10 * SIDE / 100) : round(60 * SIDE / 100)].sum(axis=1)
    is_light = top > 360  # runs of light and dark
    assert np.abs(np.diff(is_light.astype(int))).sum() > 6


@pytest.mark.parametrize("shape", [(1, 5000), (5000, 1), (3, 3)])
def test_odd_shapes_are_drawn(shape):
    assert thumbnail(np.zeros((*shape, 3), np.uint8)).startswith(b"RIFF")


@pytest.mark.parametrize("seed", range(20))
def test_a_window_holds_the_box_and_lies_in_the_image(seed):
    rng = np.random.default_rng(seed)
    width, height = rng.integers(20, 500, 2).tolist()
    xs, ys = np.sort(rng.uniform(0, width, 2)), np.sort(rng.uniform(0, height, 2))
    left, top, right, bottom = window_around((xs[0], ys[0], xs[1], ys[1]), width, height)
    assert 0 <= left <= xs[0] + 1e-9
    assert xs[1] - 1e-9 <= right <= width + 1e-9
    assert 0 <= top <= ys[0] + 1e-9
    assert ys[1] - 1e-9 <= bottom <= height + 1e-9


def picture(n_bytes: int) -> Picture:
    return Picture(image=b"RIFF" + bytes(n_bytes - 4), caption="")


def test_pictures_stop_at_their_number_and_at_the_bytes_of_a_page():
    assert len(PictureBudget().take(range(9), lambda _: picture(100), 4)) == 4
    budget = PictureBudget(1000)
    assert len(budget.take(range(9), lambda _: picture(300), 9)) == 2
    assert budget.take(range(9), lambda _: picture(300), 9) == ()
    assert len(PictureBudget().take(range(9), lambda k: picture(9) if k % 2 else None, 9)) == 4


def test_images_that_cannot_be_read_are_not_tried_forever():
    tried = []
    assert PictureBudget().take(range(10_000), tried.append, 3) == ()
    assert len(tried) == 30


def evaluation(**metadata):
    return Evaluation(row="box", methods={}, groups=(), metadata=metadata)


def test_images_come_from_the_run_or_its_benchmark():
    dataset = ArrayDataset("two", ("a", "b"), np.zeros((2, 4, 4, 3), np.uint8))
    images = Images({"two": dataset})
    assert images.load("two", "b").shape == (4, 4, 3)
    assert images.load("two", "c") is None
    assert images.load("three", "a") is None
    assert images.unreadable == {("two", "c"), ("three", "a")}
    loaded = Images.of(evaluation(benchmark="terra/detection", limit=2, seed=0))
    name, dataset = next((n, d) for n, d in loaded.sets.items() if n != "test")
    assert np.array_equal(loaded.load(name, dataset.image_ids[0]), dataset.load(0))


def test_images_that_cannot_be_found_have_a_reason():
    with pytest.raises(MissingDataError, match="images of mine are not here: only benchmarks"):
        Images.of(evaluation(benchmark="mine"))
    with pytest.raises(MissingDataError, match="its definition has changed"):
        Images.of(evaluation(benchmark="terra/detection", limit=2, definition_hash="0"))


def test_a_name_that_is_a_path_loads_no_file(tmp_path):
    (tmp_path / "mine.toml").write_text("name = 'mine'")
    dataset = ArrayDataset("one", ("../../secret",), np.zeros((1, 4, 4, 3), np.uint8))
    images = Images({"one": replace(dataset)})
    assert images.load("one", "../../secret").shape == (4, 4, 3)
    with pytest.raises(MissingDataError, match="only benchmarks that ship"):
        Images.of(evaluation(benchmark=str(tmp_path / "mine.toml")))
