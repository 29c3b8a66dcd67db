"""The models that ship with the package load, and know what their files say they know."""

import numpy as np
import pytest
import torch

from incognita.benchmarks.sources.digits import KNOWN_DIGITS, digits_part
from incognita.benchmarks.terra.classes import KNOWN_NAMES
from incognita.benchmarks.terra.datasets import terra_dataset
from incognita.benchmarks.terra.rendering import RENDERER_VERSION
from incognita.errors import MissingDataError
from incognita.models.classifier import Classifier
from incognita.models.embedded import digits
from incognita.models.embedded import terra_classifier as terra
from incognita.models.load import (
    load_shipped_weights,
    read_shipped_weights,
    save_shipped_weights,
)


def outputs_of(classifier, images):
    pixels = [classifier.preprocess(images.load(k)) for k in range(len(images.image_ids))]
    with torch.inference_mode():
        return classifier.forward(torch.stack(pixels))


def share_right(classifier, images):
    return float((outputs_of(classifier, images).logits.argmax(1).numpy() == images.labels).mean())


def test_the_terra_classifier_is_as_good_as_its_file_says():
    stated = read_shipped_weights(terra.WEIGHTS).accuracy
    found = share_right(terra.load_terra_classifier(), terra_dataset("test", n=500))
    assert abs(found - stated) < 4 * np.sqrt(stated * (1 - stated) / 500)  # four deviations
    assert stated > 0.8


def test_the_terra_classifier_was_trained_on_what_is_rendered_now():
    weights = read_shipped_weights(terra.WEIGHTS)
    assert int(weights.metadata["renderer_version"]) == RENDERER_VERSION
    assert weights.class_names == KNOWN_NAMES


def test_the_digits_classifier_is_as_good_as_its_file_says():
    stated = read_shipped_weights(digits.WEIGHTS).accuracy
    assert share_right(digits.load_digits_classifier(), digits_part("test")) == pytest.approx(
        stated, abs=0.005
    )
    assert stated > 0.97
    assert digits.load_digits_classifier().class_names == KNOWN_DIGITS


@pytest.mark.parametrize(
    ("load", "size", "n_features", "n_layers"),
    [(terra.load_terra_classifier, 32, 128, 3), (digits.load_digits_classifier, 8, 64, 2)],
)
def test_an_embedded_model_has_head_features_and_layers(load, size, n_features, n_layers):
    classifier = load()
    assert isinstance(classifier, Classifier)
    assert not classifier.module.training
    image = np.random.default_rng(0).integers(0, 256, (size, size, 3)).astype(np.uint8)
    with torch.inference_mode():
        found = classifier.forward(classifier.preprocess(image)[None])
    assert found.features.shape == (1, n_features)
    assert (found.features >= 0).all()
    assert torch.allclose(classifier.head(found.features), found.logits, atol=1e-5)
    assert list(found.maps) == list(classifier.layers)
    assert len(found.maps) == n_layers
    # the mean over places of the last map is what the head sees
    assert torch.allclose(found.maps[classifier.layers[-1]].mean(dim=(2, 3)), found.features)


def test_the_weights_are_small_enough_to_ship():
    assert terra.WEIGHTS.stat().st_size < 1.6e6
    assert digits.WEIGHTS.stat().st_size < 1e5


def test_weights_come_back_as_they_were_written_but_for_half_precision(tmp_path):
    network = digits.build_digits_classifier(4)
    path = tmp_path / "some" / "file.safetensors"
    save_shipped_weights(
        path, network, class_names=["a", "b", "c", "d"], metadata={"accuracy": "0.25"}
    )
    weights = read_shipped_weights(path)
    assert (weights.class_names, weights.accuracy) == (("a", "b", "c", "d"), 0.25)
    again = digits.build_digits_classifier(4)
    load_shipped_weights(again, weights)
    for name, value in network.state_dict().items():
        assert torch.equal(again.state_dict()[name].half(), value.half()), name


def test_weights_that_are_not_there_are_named(tmp_path):
    with pytest.raises(MissingDataError, match=r"There are no weights at .*gone.safetensors"):
        read_shipped_weights(tmp_path / "gone.safetensors")
