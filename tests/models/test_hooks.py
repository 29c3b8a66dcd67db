"""Layers of transformers' detectors as maps: stages of backbones, and tokens on their grids."""

import pytest
import torch
from tests.models.transformers_networks import (
    NETWORKS,
    SIZES,
    TEXT,
    batch,
    found,
    network,
    outputs,
    wrapped,
)

from incognita.errors import InvalidDataError, UnknownNameError

FAMILIES = pytest.mark.parametrize("family", NETWORKS)


def test_latent_layers_are_the_encoders_own_maps():
    def one(family):
        return next(iter(found(family, layers=True).maps.items()))

    layer, (latent,) = one("detr")
    assert layer == "latent/model.encoder"
    assert latent.shape == (2, 32, 2, 3)
    own = outputs("detr").encoder_last_hidden_state
    torch.testing.assert_close(latent[:, :, 1, 2], own[:, 1 * 3 + 2], rtol=0, atol=0)

    layer, levels = one("deformable")
    assert layer == "latent/model.encoder"
    assert [tuple(each.shape[2:]) for each in levels] == [(8, 12), (4, 6), (2, 3), (1, 2)]
    own = outputs("deformable").encoder_last_hidden_state
    torch.testing.assert_close(levels[1][:, :, 3, 4], own[:, 96 + 3 * 6 + 4], rtol=0, atol=0)

    layer, (latent,) = one("owlv2")
    assert layer == "latent/layer_norm"
    own = outputs("owlv2").image_embeds
    torch.testing.assert_close(latent[:, :, 1, 3], own[:, 1, 3], rtol=0, atol=0)


@pytest.mark.parametrize("family", ["rt-detr", "rt-detr v2"])
def test_the_latent_layer_of_rt_detr_is_the_first_attention_of_its_encoder(family):
    module = network(family)
    with torch.no_grad():
        backbone = module.model.backbone(batch(family), torch.ones(2, 64, 96))
        projected = module.model.encoder_input_proj[2](backbone[2][0])
        own = module.model.encoder.aifi[0](projected)
    (latent,) = found(family, layers=True).maps["latent/model.encoder.aifi.0"]
    assert latent.shape == (2, 32, 2, 3)
    torch.testing.assert_close(latent, own)


@FAMILIES
def test_shortcut_layers_are_the_stages_of_the_backbone(family):
    maps = found(family, layers=True).maps
    assert tuple(maps) == wrapped(family).layers
    shortcuts = [maps[layer] for layer in maps if layer.startswith("shortcut/")]
    if family in TEXT:
        assert shortcuts == []
        return
    with torch.no_grad():
        own = network(family).model.backbone(batch(family), torch.ones(2, 64, 96))
    for (shortcut,), (stage, _) in zip(shortcuts, own, strict=True):
        torch.testing.assert_close(shortcut, stage)
    assert found(family).maps == {}


def test_other_submodules_may_be_named_for_the_layers():
    layers = {"latent": "model.encoder.layers.0", "shortcuts": ["model.backbone"]}
    detector = wrapped("deformable", **layers)
    assert detector.layers == ("latent/model.encoder.layers.0", "shortcut/model.backbone")
    maps = detector.forward(batch("deformable"), SIZES, layers=True).maps
    assert [len(each) for each in maps.values()] == [4, 3]
    # tokens of one level, and tokens behind a class token
    attention = wrapped("rt-detr", latent="model.encoder.aifi.0.layers.0", shortcuts=())
    (latent,) = attention.forward(batch("rt-detr"), SIZES, layers=True).maps.values()
    own = found("rt-detr", layers=True).maps["latent/model.encoder.aifi.0"]
    assert attention.layers == ("latent/model.encoder.aifi.0.layers.0",)
    assert latent[0].shape == own[0].shape
    encoder = "owlv2.vision_model.encoder"
    patches = wrapped("owlv2", latent=encoder).forward(batch("owlv2"), SIZES, layers=True)
    own = outputs("owlv2").vision_model_output.last_hidden_state
    (latent,) = patches.maps[f"latent/{encoder}"]
    torch.testing.assert_close(latent[:, :, 2, 1], own[:, 1 + 2 * 4 + 1])


def test_submodules_that_give_no_map_are_refused_by_a_sentence():
    with pytest.raises(UnknownNameError, match=r"Did you mean model\.encoder\?"):
        wrapped("detr", latent="model.encodr")
    decoder = wrapped("detr", latent="model.decoder")
    with pytest.raises(InvalidDataError, match=r"model\.decoder returns \[2, 30, 32\].* on 2 x 3"):
        decoder.forward(batch("detr"), SIZES, layers=True)
    texts = wrapped("owlv2", latent="owlv2.text_model")
    with pytest.raises(InvalidDataError, match=r"text_model returns \[3, 4, 16\] for 2 images"):
        texts.forward(batch("owlv2"), SIZES, layers=True)
    unused = wrapped("owlv2", latent="owlv2.vision_model.encoder.layers", shortcuts=())
    with pytest.raises(InvalidDataError, match="was not called"):
        unused.forward(batch("owlv2"), SIZES, layers=True)
