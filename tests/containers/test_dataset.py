"""Images in memory: what is taken as it is, what is converted, what is refused."""

from hashlib import sha256

import numpy as np
import pytest

from incognita.containers.dataset import ArrayDataset, Dataset
from incognita.errors import InvalidDataError


def pixels(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)


def test_labels_may_be_a_list():
    dataset = ArrayDataset("two", ("a", "b"), pixels(2, 4, 4, 3), [1, 0])
    assert isinstance(dataset, Dataset)
    assert dataset.labels.dtype == np.int64
    assert dataset.subset([1]).labels.tolist() == [0]
    with pytest.raises(InvalidDataError, match="Expected integers in labels of images of two"):
        ArrayDataset("two", ("a", "b"), pixels(2, 4, 4, 3), [1.5, 0.0])


@pytest.mark.parametrize("listed", [False, True])
def test_gray_becomes_three_equal_channels(listed):
    gray = pixels(2, 4, 5)
    dataset = ArrayDataset("two", ("a", "b"), list(gray) if listed else gray)
    assert dataset.load(1).shape == (4, 5, 3)
    assert all(np.array_equal(dataset.load(1)[:, :, k], gray[1]) for k in range(3))


@pytest.mark.parametrize(
    "images",
    [
        pixels(2, 4, 4, 3) / 255,
        pixels(2, 4, 4, 3).astype(np.int64),
        pixels(2, 3, 4, 4),
        pixels(2, 4, 4, 4),
        [pixels(4, 4, 3), pixels(4, 4, 3).astype(np.float32)],
    ],
)
def test_what_is_no_uint8_image_is_refused_at_the_door(images):
    with pytest.raises(InvalidDataError, match="Expected images of two as uint8"):
        ArrayDataset("two", ("a", "b"), images)


def test_images_of_many_sizes_are_a_data_set():
    images = [pixels(4, 5, 3), pixels(6, 2, 3), pixels(3, 3)]
    dataset = ArrayDataset("three", ("a", "b", "c"), images, [0, 1, 2])
    part = dataset.subset([2, 0])
    assert [part.load(k).shape for k in range(2)] == [(3, 3, 3), (4, 5, 3)]
    turned = [images[0], images[1].reshape(2, 6, 3), images[2]]
    pointed = np.empty(3, object)
    pointed[:] = images
    again, other, same = (
        ArrayDataset("three", ("a", "b", "c"), each, [0, 1, 2])
        for each in ([image.copy() for image in images], turned, pointed)
    )
    assert again.fingerprint() == dataset.fingerprint() == same.fingerprint()
    assert len({each.fingerprint() for each in (dataset, other, part)}) == 3


def test_a_list_and_an_array_of_the_same_images_have_one_fingerprint():
    images = pixels(2, 4, 4, 3)
    ids = ("a", "b")
    expected = sha256(repr((ids, images.shape)).encode() + images.tobytes()).hexdigest()
    for each in (images, list(images), np.asfortranarray(images)):
        assert ArrayDataset("two", ids, each).fingerprint() == expected
