"""A few images in, boxes with logits and features out."""

import numpy as np
import pytest
from PIL import Image
from tests.extraction.test_extract_boxes import scenes
from tests.extraction.tiny_detector import GridDetector

import incognita
from incognita.errors import IncognitaError, InvalidDataError


def test_arrays_pictures_and_paths_give_the_same_boxes(tmp_path) -> None:
    image = scenes(1).load(0)
    Image.fromarray(image).save(tmp_path / "street.png")
    detector = GridDetector()
    every = [image, Image.fromarray(image), tmp_path / "street.png", str(tmp_path / "street.png")]
    found = incognita.detect(detector, every)
    assert found.image_ids.tolist()[:2] == ["0", "1"]
    counts = np.diff(found.offsets)
    assert (counts == counts[0]).all()
    assert counts[0] > 0
    parts = np.split(found.logits, 4)
    assert all(np.array_equal(part, parts[0]) for part in parts)
    assert found.features.shape == (len(found), 8)
    assert found.source_index.max() < 16
    one = incognita.detect(detector, image)
    np.testing.assert_array_equal(one.logits, parts[0])
    assert one.classes.names == ("red", "green", "blue")


def test_what_is_no_image_is_refused_in_a_sentence(tmp_path) -> None:
    with pytest.raises(IncognitaError, match="There is no image at"):
        incognita.detect(GridDetector(), tmp_path / "nowhere.png")
    with pytest.raises(InvalidDataError, match="uint8"):
        incognita.detect(GridDetector(), np.zeros((4, 4)))


def test_repeated_class_names_are_numbered() -> None:
    """COCO's detectors have several classes called N/A."""
    detector = GridDetector(class_names=("N/A", "green", "N/A"))
    found = incognita.detect(detector, scenes(1).load(0))
    assert found.classes.names == ("N/A", "green", "N/A (2)")
