"""Pixels are those of Pillow, whatever part of the result is computed."""

import numpy as np
import pytest
import torch
from PIL import Image

from incognita.errors import InvalidDataError
from incognita.kernels.resampling import FILTERS, resize_window
from incognita.models.preprocessing import Preprocessing, normalize


def pictures(n, seed, most=260):
    random = np.random.default_rng(seed)
    for k in range(n):
        height, width = random.integers(1, most, 2)
        picture = random.integers(0, 256, (height, width, 3), dtype=np.uint8)
        yield picture if k % 3 else (picture > 127).astype(np.uint8) * 255, random


@pytest.mark.parametrize("kind", FILTERS)
def test_a_resized_image_is_pillows(kind):
    for picture, random in pictures(60, seed=1):
        side = int(random.integers(1, 200))
        ours = Preprocessing(size=side, interpolation=kind)
        height, width = ours._target(*picture.shape[:2])
        if max(height, width) > 2000:
            continue
        method = Image.Resampling[kind.upper()]
        theirs = np.asarray(Image.fromarray(picture).resize((width, height), method))
        np.testing.assert_array_equal(ours.pixels(picture), theirs)


@pytest.mark.parametrize("kind", FILTERS)
def test_a_window_is_what_a_crop_of_the_whole_would_be(kind):
    method = Image.Resampling[kind.upper()]
    for picture, random in pictures(60, seed=2):
        height, width = random.integers(1, 260, 2)
        top, left = random.integers(0, height), random.integers(0, width)
        window = (
            int(random.integers(1, height - top + 1)),
            int(random.integers(1, width - left + 1)),
        )
        target, corner = (int(height), int(width)), (int(top), int(left))
        # two calls, so that rows come first in any version of Pillow
        narrow = Image.fromarray(picture).resize((target[1], picture.shape[0]), method)
        whole = np.asarray(narrow.resize(target[::-1], method))
        ours = resize_window(picture, target, corner, window, FILTERS.index(kind), True)
        expected = whole[top : top + window[0], left : left + window[1]]
        np.testing.assert_array_equal(ours, expected)


@pytest.mark.parametrize("crop", [None, 7, 40, (9, 60)])
@pytest.mark.parametrize("corner", ["nearest", "smaller"])
def test_a_batch_of_levels_gives_the_floats_of_single_images(crop, corner):
    steps = Preprocessing(size=31, crop=crop, mean="imagenet", std="clip", crop_corner=corner)
    for picture, _ in pictures(5, seed=3, most=90):
        levels = torch.from_numpy(np.array(steps.pixels(picture)))[None]
        batch = normalize(levels, steps.statistics.on("cpu"))
        assert torch.equal(batch[0], steps(picture))


@pytest.mark.parametrize("kind", ["bilinear", "bicubic"])
def test_the_fast_resampling_is_one_level_off_in_few_pixels(kind):
    steps = {"size": 64, "crop": 56, "interpolation": kind}
    exact, fast = Preprocessing(**steps), Preprocessing(**steps, resampling="torch")
    gaps = []
    for picture, _ in pictures(40, seed=5, most=300):
        smooth = np.asarray(Image.fromarray(picture[:9, :9]).resize((210, 150)))
        gap = np.abs(exact.pixels(smooth).astype(int) - fast.pixels(smooth))
        assert gap.max() <= 1
        gaps.append((gap > 0).mean())
    assert 0 < np.mean(gaps) < 0.01


def test_the_fast_resampling_is_told_apart_and_the_old_one_keeps_its_name():
    assert repr(Preprocessing(size=8)) == (
        "Preprocessing(size=8, crop=None, mean=(0.0, 0.0, 0.0), std=(1.0, 1.0, 1.0), "
        "interpolation='bilinear', crop_corner='nearest')"
    )
    fast = Preprocessing.parse("size=8 resampling=torch")
    assert repr(fast).endswith("resampling='torch')")
    assert Preprocessing.parse(str(fast)) == fast
    with pytest.raises(InvalidDataError, match="Expected interpolation bilinear or bicubic"):
        Preprocessing(interpolation="lanczos", resampling="torch")
