"""The real digits: which images are known, which are unknown, and that no part shares any."""

import numpy as np
import pytest
from sklearn.datasets import load_digits, load_sample_image

from incognita.benchmarks.sources.digits import (
    KNOWN_DIGITS,
    PHOTOGRAPHS,
    digits_part,
    photograph_patches,
    unknown_digits,
)
from incognita.containers.dataset import Dataset
from incognita.errors import UnknownNameError

PARTS = ("train", "validation", "test")


def every_set():
    known = [digits_part(part) for part in PARTS]
    unknown = [unknown_digits([digit]) for digit in (7, 8, 9)]
    return known + unknown + [photograph_patches(name) for name in PHOTOGRAPHS]


def test_the_parts_hold_every_digit_of_the_file_once():
    ids = [image for each in every_set()[:6] for image in each.image_ids]
    assert len(ids) == len(set(ids)) == len(load_digits().target) == 1797


def test_no_id_is_in_two_sets():
    ids = [image for each in every_set() for image in each.image_ids]
    assert len(ids) == len(set(ids))


def test_a_class_has_the_same_share_in_every_part():
    counts = np.array([np.bincount(digits_part(part).labels) for part in PARTS])
    assert counts.shape == (3, len(KNOWN_DIGITS))
    assert (np.abs(counts / counts.sum(axis=0) - [[0.6], [0.2], [0.2]]) < 0.01).all()


@pytest.mark.parametrize("part", PARTS)
def test_labels_and_pixels_are_those_of_scikit_learn(part):
    truth, digits = load_digits(), digits_part(part)
    for k in range(0, len(digits), 7):
        row = int(digits.image_ids[k].split("/")[1])
        assert digits.labels[k] == truth.target[row]
        assert digits.source_classes[k] == KNOWN_DIGITS[truth.target[row]]
        assert np.abs(digits.load(k)[:, :, 0] / 255 - truth.images[row] / 16).max() <= 0.5 / 255


def test_unknown_digits_carry_their_own_name_and_no_label():
    digits = unknown_digits([8, 9])
    assert digits.labels is None
    assert set(digits.source_classes) == {"eight", "nine"}
    assert digits.name == "eight+nine"


def test_a_patch_is_the_mean_gray_of_its_place_in_the_photograph():
    pixels = load_sample_image("china.jpg").astype(float) @ [0.299, 0.587, 0.114]
    small = [
        [pixels[y : y + 4, x : x + 4].mean() for x in range(64, 96, 4)] for y in range(32, 64, 4)
    ]
    stretched = (np.array(small) - np.min(small)) / np.ptp(small) * 255
    found = photograph_patches("china").load(20 + 2)  # second row of twenty, third patch
    assert np.abs(found[:, :, 1] - stretched).max() <= 1
    assert (found == found[:, :, :1]).all()


def test_sets_are_uint8_pictures_of_one_size():
    for each in every_set():
        assert isinstance(each, Dataset)
        assert each.load(0).dtype == np.uint8
        assert each.load(0).shape == (8, 8, 3)


def test_sets_do_not_change_from_call_to_call():
    assert digits_part("test").fingerprint() == digits_part("test").fingerprint()
    assert digits_part("test").fingerprint() != digits_part("train").fingerprint()


def test_names_that_do_not_exist_are_answered_with_a_suggestion():
    with pytest.raises(UnknownNameError, match="Did you mean train"):
        digits_part("trian")
    with pytest.raises(UnknownNameError, match="No unknown digit is called '3'"):
        unknown_digits([3])
    with pytest.raises(UnknownNameError, match="Did you mean flower"):
        photograph_patches("flowers")
