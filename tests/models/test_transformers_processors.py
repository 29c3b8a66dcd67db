"""What a detector's image processor does to images, and how it is described."""

import numpy as np
import pytest
import torch
from tests.models import transformers_networks as networks
from tests.models.transformers_networks import (
    NETWORKS,
    SIZES,
    TEXT,
    images,
    wrapped,
)

from incognita.errors import InvalidDataError
from incognita.models.from_transformers.classifiers import transformers

FAMILIES = pytest.mark.parametrize("family", NETWORKS)


class Flipped(transformers.RTDetrImageProcessor):
    """A processor of somebody's own, which does what its values do not tell."""

    def resize(self, image, *args, **kwargs):
        return super().resize(image, *args, **kwargs).flip(-1)


@FAMILIES
def test_preprocessing_is_the_processors_own(family):
    detector = wrapped(family)
    for picture, size in zip(images(), SIZES, strict=True):
        prepared = detector.preprocess(picture)
        own = networks.processor_of(family)(images=[picture], return_tensors="pt")
        torch.testing.assert_close(prepared.pixels, own["pixel_values"][0], rtol=0, atol=0)
        assert (prepared.height, prepared.width) == size


@pytest.mark.parametrize(
    "options", [{}, {"do_normalize": False}, {"do_rescale": False, "do_normalize": True}]
)
@FAMILIES
def test_pixel_std_is_what_one_gray_level_moves_the_input_by(family, options):
    detector = wrapped(family, processor=networks.processor_of(family, **options))
    dark, light = (detector.preprocess(np.full((64, 96, 3), level, np.uint8)) for level in (9, 10))
    moved = (light.pixels - dark.pixels)[:, 0, 0]
    torch.testing.assert_close(1 / 255 / moved, detector.pixel_std, rtol=1e-3, atol=0)


def test_without_a_processor_the_familys_own_values_are_taken():
    picture = images()[0]
    shapes = {"detr": (800, 1120), "rt-detr": (640, 640), "owlv2": (64, 64), "owl-vit": (64, 64)}
    for family, shape in shapes.items():
        detector = wrapped(family, processor=None)
        size = {"size": {"height": 64, "width": 64}} if family in TEXT else {}
        processor = getattr(transformers, networks.PROCESSORS[family])(**size)
        own = processor(images=[picture], return_tensors="pt")["pixel_values"][0]
        assert detector.preprocess(picture).pixels.shape == (3, *shape)
        assert torch.equal(detector.preprocess(picture).pixels, own)
    assert wrapped("rt-detr", processor=None).pixel_std.tolist() == [1, 1, 1]


def test_the_text_of_the_preprocessing_changes_with_it():
    options = ({}, {"do_normalize": True}, {"resample": 3}, {"size": {"height": 32, "width": 32}})
    processors = [networks.processor_of("rt-detr", **each) for each in options]
    processors.append(transformers.RTDetrImageProcessorPil(size=networks.SIZE))
    processors.append(Flipped(size=networks.SIZE))
    texts = [wrapped("rt-detr", processor=each).preprocessing for each in processors]
    assert len(set(texts)) == len(texts)
    wrapped("rt-detr", processor=processors[0]).preprocess(images()[0])  # using it changes nothing
    assert wrapped("rt-detr", processor=processors[0]).preprocessing == texts[0]
    assert wrapped("rt-detr").preprocessing == texts[0]


def test_padding_that_the_network_would_have_to_know_of_is_refused():
    padding = networks.processor_of("detr", pad_size={"height": 200, "width": 200})
    with pytest.raises(InvalidDataError, match="pads an image of 50 x 70 pixels to 200 x 200"):
        wrapped("detr", processor=padding).preprocess(images()[0])
