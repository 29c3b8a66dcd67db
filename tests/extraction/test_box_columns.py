"""Background logits and variances pass through the output store and through files unchanged."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from tests.extraction.test_extract_boxes import scenes
from tests.extraction.tiny_detector import GridDetector

import incognita
from incognita.containers.boxes import Detections
from incognita.decisions import BOX_UNCERTAINTIES, uncertainty_of
from incognita.extraction.extract import extract
from incognita.extraction.settings import Settings
from incognita.extraction.store import OutputStore
from incognita.formats.coco_results import load_sidecar
from incognita.models.detector import HeadKind, ImageDetections

N_IMAGES = 70  # two shards, the third image without a box


@dataclass(eq=False)
class ProbabilisticDetector(GridDetector):
    """The grid with a background logit and variances, which follow from the features."""

    name: str = "probabilistic"
    head_kind: HeadKind = HeadKind.SOFTMAX

    def _found(self, features, logits, size) -> ImageDetections:
        found = super()._found(features, logits, size)
        return found._replace(
            background=found.features.sum(dim=1) - 1,
            covariance=0.5 + found.features[:, :4].abs() * torch.tensor([1.0, 2.0, 3.0, 4.0]),
        )


@dataclass(eq=False)
class SigmoidDetector(ProbabilisticDetector):
    """The same without background."""

    head_kind: HeadKind = HeadKind.SIGMOID

    def _found(self, features, logits, size) -> ImageDetections:
        return super()._found(features, logits, size)._replace(background=None)


def by_hand(detector: GridDetector, dataset) -> list[ImageDetections]:
    """Call the network image by image."""
    found = []
    for k in range(len(dataset)):
        image = detector.preprocess(dataset.load(k))
        with torch.no_grad():
            out = detector.forward(image.pixels[None], [(image.height, image.width)])
        found += out.images
    return found


def stored(detector: GridDetector, folder, **options) -> Detections:
    """Extract into a store, and read it back with a detector that cannot run."""
    store, dataset = OutputStore(folder), scenes(N_IMAGES)
    extract(detector, dataset, store=store, **options)
    again = extract(detector, dataset, store=store, **options)
    assert again.passes.forward == 0
    return again.outputs.detections


@pytest.mark.parametrize("device", ["cpu", "cpu,cpu"])
def test_the_store_keeps_background_and_variances(tmp_path, device) -> None:
    detector = ProbabilisticDetector()
    found = stored(detector, tmp_path, settings=Settings(device=device))
    images = by_hand(detector, scenes(N_IMAGES))
    assert np.diff(found.offsets).tolist() == [len(image.xyxy) for image in images]
    for name in ("background", "covariance"):
        expected = torch.cat([getattr(image, name) for image in images]).numpy()
        np.testing.assert_array_equal(getattr(found, name), expected)


@pytest.mark.parametrize("detector", [ProbabilisticDetector(), SigmoidDetector()])
@pytest.mark.parametrize("name", BOX_UNCERTAINTIES.names())
def test_uncertainties_from_the_store_are_those_of_live_boxes(tmp_path, detector, name) -> None:
    if detector.head_kind is HeadKind.SOFTMAX and name in ("mean-entropy", "max-class-entropy"):
        return  # for sigmoid heads only
    found = stored(detector, tmp_path)
    dataset = scenes(N_IMAGES)
    live = incognita.detect(detector, [dataset.load(k) for k in range(N_IMAGES)])
    measure = uncertainty_of(name).fit(found)
    values = measure.of(found)
    np.testing.assert_array_equal(values, measure.of(live))
    assert len(np.unique(values)) > 10


def test_a_saved_file_keeps_them_too(tmp_path) -> None:
    extracted = extract(ProbabilisticDetector(), scenes(9))
    extracted.save(tmp_path / "test.json")
    found = extracted.outputs.detections
    arrays = load_sidecar(tmp_path / "test.safetensors", len(found))
    for name in ("background", "covariance"):
        np.testing.assert_array_equal(arrays[name], getattr(found, name))


def test_an_image_with_infinite_variances_fails_alone() -> None:
    class Broken(ProbabilisticDetector):
        def _found(self, features, logits, size) -> ImageDetections:
            found = super()._found(features, logits, size)
            if size[0] == 48:
                return found._replace(covariance=torch.full_like(found.covariance, torch.inf))
            return found

    extracted = extract(Broken(), scenes(8))
    assert 0 < len(extracted.failed_images) < 8
    assert np.isfinite(extracted.outputs.detections.covariance).all()
