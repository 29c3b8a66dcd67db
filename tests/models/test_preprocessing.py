import numpy as np
import pytest
import torch
from PIL import Image
from torchvision import transforms
from torchvision.transforms import InterpolationMode, v2

from incognita.errors import InvalidDataError, UnknownNameError
from incognita.models.preprocessing import STATISTICS, FromPIL, Preprocessing

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def image(height, width, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


def torchvision_v1(size, crop, interpolation):
    steps = [] if size is None else [transforms.Resize(size, InterpolationMode(interpolation))]
    steps += [] if crop is None else [transforms.CenterCrop(crop)]
    return transforms.Compose([*steps, transforms.ToTensor(), transforms.Normalize(MEAN, STD)])


def torchvision_v2(size, crop, interpolation):
    steps = [] if size is None else [v2.Resize(size, InterpolationMode(interpolation))]
    steps += [] if crop is None else [v2.CenterCrop(crop)]
    last = [v2.ToImage(), v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD)]
    return v2.Compose([*steps, *last])


@pytest.mark.parametrize("make", [torchvision_v1, torchvision_v2])
@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic", "nearest", "lanczos"])
@pytest.mark.parametrize(("size", "crop"), [(32, 32), (37, 32), ((20, 30), (16, 30)), (None, 40)])
@pytest.mark.parametrize("shape", [(32, 32), (50, 81), (97, 44), (31, 29), (300, 7)])
def test_floats_equal_those_of_torchvision(make, interpolation, size, crop, shape):
    picture = image(*shape)
    expected = make(size, crop, interpolation)(Image.fromarray(picture))
    ours = Preprocessing(size, crop, MEAN, STD, interpolation)(picture)
    assert ours.dtype == torch.float32
    # v2 multiplies by 1/255 where v1 divides by 255: the last bit of a pixel differs (6e-8), which
    # is 7.2e-7 after normalization between the two of torchvision themselves
    tolerance = 0 if make is torchvision_v1 else 1e-6
    torch.testing.assert_close(ours, expected.as_subclass(torch.Tensor), rtol=0, atol=tolerance)


def test_the_crop_of_transformers_begins_at_the_smaller_pixel():
    picture = image(35, 32)
    ours = Preprocessing(crop=32, crop_corner="smaller")(picture)
    assert torch.equal(ours, Preprocessing()(picture[1:33]))
    assert torch.equal(Preprocessing(crop=32)(picture), Preprocessing()(picture[2:34]))


def test_nothing_but_a_division_by_default():
    picture = image(5, 4)
    expected = torch.from_numpy(picture.transpose(2, 0, 1).astype(np.float32) / np.float32(255))
    assert torch.equal(Preprocessing()(picture), expected)


def test_a_picture_of_the_right_size_never_meets_pil(monkeypatch):
    monkeypatch.setattr(Image, "fromarray", None)
    assert Preprocessing(size=32, crop=32)(image(32, 32)).shape == (3, 32, 32)


def test_the_repr_names_every_value():
    text = repr(Preprocessing(256, 224, MEAN, STD, "bicubic"))
    assert text == (
        "Preprocessing(size=256, crop=224, mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225), "
        "interpolation='bicubic', crop_corner='nearest')"
    )


def test_a_view_that_is_not_contiguous_is_read_rightly():
    picture = image(16, 16)
    turned = picture[::-1, :, ::-1]
    assert torch.equal(Preprocessing()(turned), Preprocessing()(turned.copy()))
    sized = Preprocessing(size=8)
    assert torch.equal(sized(turned), sized(turned.copy()))


@pytest.mark.usefixtures("outside_tests")
@pytest.mark.parametrize(
    "wrong", [np.zeros((4, 4), np.uint8), np.zeros((4, 4, 3)), np.zeros((0, 4, 3), np.uint8)]
)
@pytest.mark.parametrize("preprocess", [Preprocessing(), FromPIL(transforms.ToTensor())])
def test_anything_but_an_rgb_picture_is_refused(wrong, preprocess):
    with pytest.raises(InvalidDataError, match="Expected a uint8 RGB image"):
        preprocess(wrong)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("none", Preprocessing()),
        ("size=256 crop=224 mean=imagenet std=imagenet", Preprocessing(256, 224, MEAN, STD)),
        ("size=256, crop=224, mean=imagenet, std=imagenet", Preprocessing(256, 224, MEAN, STD)),
        ("  size=(8, 9)  interpolation=bicubic ", Preprocessing((8, 9), interpolation="bicubic")),
        ("mean=(0.5,0.4,0.3) std=clip", Preprocessing(mean=(0.5, 0.4, 0.3), std="clip")),
    ],
)
def test_the_text_of_a_command_is_read_and_written(text, expected):
    assert Preprocessing.parse(text) == expected
    assert Preprocessing.parse(str(expected)) == expected


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "Expected none, or steps such as"),
        ("224", "Expected none, or steps such as"),
        ("size=big", "size of Preprocessing to be a whole number"),
        ("size=0", "sides of at least 1 pixel"),
        ("std=(1.0, 1.0, 0.0)", "a positive std"),
        ("mean=(1, 2)", "mean of Preprocessing to be a tuple of 3"),
        ("size=2 size=3", "size is given twice"),
        ("size==3", "Expected parameters of preprocess"),
    ],
)
def test_text_that_is_no_preprocessing_is_one_sentence(text, words):
    with pytest.raises(InvalidDataError, match=words):
        Preprocessing.parse(text)


@pytest.mark.parametrize("text", ["mean=imagnet", "sice=3"])
def test_a_misspelt_name_gets_a_suggestion(text):
    with pytest.raises(UnknownNameError, match=r"Did you mean (imagenet|size)"):
        Preprocessing.parse(text)


def test_statistics_by_name_are_the_published_ones():
    # torchvision's references, OpenOOD's configs/preprocessors, CLIP's clip.py
    found = {name: tuple(STATISTICS[name]) for name in STATISTICS}
    assert found == {
        "imagenet": (MEAN, STD),
        "cifar10": ((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)),
        "cifar100": ((0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761)),
        "clip": (
            (0.48145466, 0.4578275, 0.40821073),
            (0.26862954, 0.26130258, 0.27577711),
        ),
    }
