"""Networks of torchvision, timm and transformers, drawn at random: nothing is downloaded."""

import functools
import json

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from tests.evaluation.worlds import tiny_benchmark
from tests.models.networks import seeded
from torch import nn
from torch.nn import functional
from torchvision import models

import incognita
from incognita.containers.outputs import Head
from incognita.errors import InvalidDataError, MissingDataError, UnknownNameError
from incognita.models import from_timm
from incognita.models.classifier import wrap_classifier
from incognita.models.from_torchvision import classifiers as from_torchvision
from incognita.models.from_transformers import classifiers as from_transformers
from incognita.models.from_transformers.classifiers import (
    clip_zero_shot,
    dinov2_probe,
    embed_classes,
)
from incognita.models.load import load_model
from incognita.models.preprocessing import FromPIL, Preprocessing

timm, transformers = from_timm.timm, from_transformers.transformers

TINY = {
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "hidden_size": 16,
    "intermediate_size": 32,
    "image_size": 32,
    "patch_size": 8,
}
STAGES = tuple(f"stages.{k}" for k in range(4))


def timm_model(name, **options):
    return seeded(timm.create_model, name, pretrained=False, num_classes=7, **options)


def vit():
    config = transformers.ViTConfig(**TINY, num_labels=7)
    return seeded(transformers.ViTForImageClassification, config)


def convnext():
    config = transformers.ConvNextConfig(hidden_sizes=[4, 6, 8, 10], depths=[1] * 4, num_labels=7)
    return seeded(transformers.ConvNextForImageClassification, config)


def swin():
    config = transformers.SwinConfig(
        embed_dim=8,
        depths=[1, 1],
        num_heads=[1, 2],
        window_size=4,
        image_size=32,
        patch_size=4,
        num_labels=7,
    )
    return seeded(transformers.SwinForImageClassification, config)


def dinov2():
    config = transformers.Dinov2Config(**TINY, num_labels=7)
    return seeded(transformers.Dinov2ForImageClassification, config)


def tiny_clip(n_positions=12):
    vision = dict(TINY)
    text = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    text |= {"intermediate_size": 32, "vocab_size": 100, "max_position_embeddings": n_positions}
    text |= {"bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 1}
    config = transformers.CLIPConfig(text_config=text, vision_config=vision, projection_dim=12)
    return seeded(transformers.CLIPModel, config).eval()


NETWORKS = {
    "torchvision resnet18": (
        lambda: seeded(models.resnet18, num_classes=7),
        "fc",
        ("layer1.input", "layer1", "layer2", "layer3", "layer4"),
    ),
    "torchvision swin": (
        lambda: seeded(models.SwinTransformer, [4, 4], 8, [1, 1], [1, 2], [4, 4], num_classes=7),
        "head",
        ("features.0", "features.1", "features.2", "features.3"),
    ),
    "timm vit": (
        lambda: timm_model("test_vit", img_size=32),
        "head",
        tuple(f"blocks.{k}" for k in range(6)),
    ),
    "timm resnet": (
        lambda: timm_model("test_resnet"),
        "fc",
        ("layer1.input", "layer1", "layer2", "layer3", "layer4"),
    ),
    "timm convnext": (lambda: timm_model("test_convnext"), "head.fc", ("stem", *STAGES)),
    "timm efficientnet": (
        lambda: timm_model("test_efficientnet"),
        "classifier",
        ("blocks.0.input", "blocks.0", "blocks.1", "blocks.2", "blocks.3", "bn2"),
    ),
    "timm swin": (
        lambda: timm_model(
            "swin_tiny_patch4_window7_224",
            img_size=32,
            window_size=4,
            embed_dim=12,
            depths=(1, 1),
            num_heads=(1, 2),
        ),
        "head.fc",
        ("patch_embed", "layers.0", "layers.1"),
    ),
    "timm convolution as head": (
        lambda: timm_model("resnetv2_50", layers=(1, 1), channels=(16, 32), stem_chs=8),
        "head.fc",
        ("stem", "stages.0", "stages.1"),
    ),
    "transformers vit": (vit, "classifier", tuple(f"vit.layers.{k}" for k in range(3))),
    "transformers convnext": (
        convnext,
        "classifier",
        ("convnext.embeddings", *(f"convnext.encoder.{stage}" for stage in STAGES)),
    ),
    "transformers swin": (
        swin,
        "classifier",
        ("swin.encoder.layers.0", "swin.encoder.layers.1"),
    ),
    "transformers dinov2": (
        dinov2,
        "classifier",
        tuple(f"dinov2.encoder.layer.{k}" for k in range(3)),
    ),
    "transformers clip": (
        lambda: clip_zero_shot(tiny_clip(), text_features=torch.eye(12)[:7]).module,
        "head",
        tuple(f"vision_model.encoder.layers.{k}" for k in range(3)),
    ),
}


@functools.cache
def wrapped(name):
    return wrap_classifier(NETWORKS[name][0](), example=batch(2))


def batch(n, seed=0):
    return torch.randn(n, 3, 32, 32, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("name", NETWORKS)
def test_the_head_of_every_family_gives_the_logits_row_by_row(name):
    classifier = wrapped(name)
    assert classifier.head_name == NETWORKS[name][1]
    with torch.no_grad():
        got = classifier.forward(batch(4))
    assert got.logits.std() > 0
    for features, logits in zip(got.features, got.logits, strict=True):
        torch.testing.assert_close(classifier.head(features[None])[0], logits)


@pytest.mark.parametrize("name", NETWORKS)
def test_outputs_of_every_family_are_those_of_the_network(name):
    classifier = wrapped(name)
    with torch.no_grad():
        plain = classifier.module.eval()(batch(3))
        plain = plain if isinstance(plain, torch.Tensor) else plain.logits
        assert torch.equal(classifier.forward(batch(3)).logits, plain)


@pytest.mark.parametrize("name", NETWORKS)
def test_every_family_has_layers(name):
    classifier = wrapped(name)
    assert classifier.layers == NETWORKS[name][2]
    with torch.no_grad():
        maps = classifier.forward(batch(2)).maps
    assert list(maps) == list(classifier.layers)
    for each in maps.values():
        assert each.ndim in (3, 4)
        if each.ndim == 4:
            assert each.shape[2] == each.shape[3]


@pytest.mark.parametrize("name", NETWORKS)
def test_order_and_batch_size_do_not_matter_to_any_family(name):
    classifier = wrapped(name)
    x = batch(5)
    with torch.no_grad():
        whole = classifier.forward(x)
        parts = [classifier.forward(part) for part in (x[3:], x[:3])]
    for k in (0, 1):
        joined = torch.cat([parts[1][k], parts[0][k]])
        torch.testing.assert_close(joined, whole[k], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", NETWORKS)
def test_replacing_the_last_map_changes_the_logits_of_every_family(name):
    def slanted(each):
        return each + torch.linspace(0, 1, each[0].numel()).view_as(each[0]).sin()

    classifier = wrapped(name)
    with torch.no_grad():
        plain = classifier.forward(batch(2)).logits
        other = classifier.forward(batch(2), replace_map=(classifier.layers[-1], slanted)).logits
    assert not torch.allclose(plain, other)


def test_squeezenet_has_no_linear_head_because_a_relu_follows():
    network = seeded(models.squeezenet1_0, num_classes=3)
    assert wrap_classifier(network).head is None


def test_two_averaged_heads_are_no_linear_head():
    network = timm_model("deit_tiny_distilled_patch16_224", img_size=32, embed_dim=12, depth=1)
    assert wrap_classifier(network, example=batch(2)).head is None


# preprocessing --------------------------------------------------------------------------------


def pictures():
    rng = np.random.default_rng(0)
    for height, width in ((224, 224), (180, 301), (301, 180), (64, 48)):
        yield rng.integers(0, 256, (height, width, 3), dtype=np.uint8)


@pytest.mark.parametrize(
    "weights",
    [
        models.ResNet18_Weights.DEFAULT,
        models.Swin_T_Weights.DEFAULT,
        models.ViT_B_16_Weights.DEFAULT,
    ],
)
def test_torchvision_preprocessing_is_that_of_its_weights(weights):
    ours, theirs = from_torchvision.preprocessing_of(weights), weights.transforms()
    assert isinstance(ours, Preprocessing)
    for picture in pictures():
        assert torch.equal(ours(picture), theirs(Image.fromarray(picture)))


@pytest.mark.parametrize(
    ("overlay", "is_own"),
    [
        ({}, True),
        ({"crop_pct": 0.9, "interpolation": "bilinear"}, True),
        ({"crop_mode": "squash", "crop_pct": 1.0}, True),
        ({"crop_mode": "border"}, False),
    ],
)
def test_timm_preprocessing_is_timms(overlay, is_own):
    network = timm_model("test_resnet", pretrained_cfg_overlay=overlay)
    config = timm.data.resolve_model_data_config(network)
    theirs = timm.data.create_transform(**config, is_training=False)
    ours = from_timm.preprocessing_of(network)
    assert isinstance(ours, Preprocessing if is_own else FromPIL)
    for picture in pictures():
        assert torch.equal(ours(picture), theirs(Image.fromarray(picture)))


PROCESSORS = [
    transformers.ViTImageProcessorPil(),
    transformers.CLIPImageProcessorPil(),
    transformers.CLIPImageProcessorPil(do_normalize=False, size={"shortest_edge": 240}),
    transformers.BitImageProcessorPil(size={"shortest_edge": 256}),
    transformers.ConvNextImageProcessorPil(size={"shortest_edge": 224}),
    transformers.ConvNextImageProcessorPil(size={"shortest_edge": 384}),
    transformers.DeiTImageProcessorPil(),
]


@pytest.mark.parametrize("processor", PROCESSORS, ids=lambda p: type(p).__name__)
def test_transformers_preprocessing_is_that_of_its_processor(processor):
    ours = from_transformers.preprocessing_of(processor)
    assert isinstance(ours, Preprocessing)
    for picture in pictures():
        theirs = processor(images=Image.fromarray(picture), return_tensors="pt")["pixel_values"][0]
        torch.testing.assert_close(ours(picture), theirs.float(), rtol=0, atol=2e-6)


def test_an_unusual_processor_is_used_itself():
    processor = transformers.MobileViTImageProcessorPil()  # swaps red and blue
    ours = from_transformers.preprocessing_of(processor)
    picture = next(pictures())
    theirs = processor(images=Image.fromarray(picture), return_tensors="pt")["pixel_values"][0]
    assert torch.equal(ours(picture), theirs)


# loading --------------------------------------------------------------------------------------


def test_weights_that_are_not_at_hand_are_asked_for(monkeypatch, tmp_path):
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path))
    with pytest.raises(MissingDataError, match="nothing is downloaded; pass a file with --weights"):
        load_model("timm:resnet18.a1_in1k")
    with pytest.raises(MissingDataError, match="nothing is downloaded; pass a file with --weights"):
        load_model("torchvision:resnet18")


def test_unknown_names_of_libraries_get_a_suggestion():
    with pytest.raises(UnknownNameError, match=r"Did you mean resnet18.a1_in1k\?"):
        load_model("timm:resnet18.a1_in1kk")
    with pytest.raises(UnknownNameError, match=r"Did you mean resnet18\?"):
        load_model("torchvision:resnet118")
    with pytest.raises(UnknownNameError, match=r"Did you mean IMAGENET1K_V1\?"):
        load_model("torchvision:resnet18.IMAGENET1K_V11")


def test_a_timm_file_decides_the_number_of_classes(tmp_path):
    network = timm_model("test_resnet")
    save_file(network.state_dict(), tmp_path / "w.safetensors")
    classifier = load_model("timm:test_resnet.r160_in1k", weights=tmp_path / "w.safetensors")
    assert len(classifier.class_names) == 7
    assert classifier.preprocessing == repr(from_timm.preprocessing_of(network))
    assert torch.equal(classifier.head.weight, network.fc.weight)


def test_cached_timm_weights_are_used(monkeypatch, tmp_path):
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path))
    network = seeded(timm.create_model, "test_resnet", pretrained=False)
    save_file(network.state_dict(), tmp_path / "w.safetensors")
    monkeypatch.setattr(from_timm, "_cached_file", lambda config: tmp_path / "w.safetensors")
    classifier = load_model("timm:test_resnet.r160_in1k")
    assert torch.equal(classifier.head.weight, network.fc.weight)
    assert classifier.class_names[0].startswith("tench")


def test_the_cache_of_the_hub_is_looked_up(monkeypatch, tmp_path):
    import huggingface_hub

    asked = []

    def look(repository, file, *, revision):
        asked.append((repository, file, revision))
        return "/cache/model.bin" if file.endswith(".bin") else None

    monkeypatch.setattr(huggingface_hub, "try_to_load_from_cache", look)
    found = from_timm._cached_file(timm.get_pretrained_cfg("resnet18.a1_in1k"))
    assert str(found) == "/cache/model.bin"
    assert asked[0] == ("timm/resnet18.a1_in1k", "model.safetensors", None)


def test_a_backbone_of_timm_is_refused():
    network = seeded(timm.create_model, "test_resnet", pretrained=False, num_classes=0)
    with pytest.raises(InvalidDataError, match="has no classes, only features"):
        from_timm.wrap_timm(network)


def test_a_torchvision_file_decides_the_number_of_classes(tmp_path, monkeypatch):
    network = seeded(models.shufflenet_v2_x0_5, num_classes=7)
    torch.save(network.state_dict(), tmp_path / "w.pth")
    classifier = load_model("torchvision:shufflenet_v2_x0_5", weights=tmp_path / "w.pth")
    assert len(classifier.class_names) == 7
    assert torch.equal(classifier.head.weight, network.fc.weight)
    assert "size=256, crop=224" in classifier.preprocessing


def test_cached_torchvision_weights_are_used(monkeypatch, tmp_path):
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path))
    network = seeded(models.shufflenet_v2_x0_5)
    (tmp_path / "checkpoints").mkdir()
    url = models.ShuffleNet_V2_X0_5_Weights.DEFAULT.url
    torch.save(network.state_dict(), tmp_path / "checkpoints" / url.rpartition("/")[2])
    classifier = load_model("torchvision:shufflenet_v2_x0_5")
    assert classifier.class_names[0] == "tench"
    assert torch.equal(classifier.head.weight, network.fc.weight)


def save_folder(network, processor, path):
    network.save_pretrained(path)
    processor.save_pretrained(path)
    return f"transformers:{path}"


def test_an_image_classifier_is_loaded_from_a_folder(tmp_path):
    network = vit()
    network.config.id2label = {k: f"kind {k}" for k in range(7)}
    size = {"height": 32, "width": 32}
    spec = save_folder(network, transformers.ViTImageProcessor(size=size), tmp_path)
    classifier = load_model(spec)
    assert classifier.class_names[6] == "kind 6"
    assert "size=(32, 32)" in classifier.preprocessing
    with torch.no_grad():
        expected = network.eval()(batch(2)).logits
        torch.testing.assert_close(classifier.forward(batch(2)).logits, expected)


def test_weights_can_replace_those_of_a_folder(tmp_path):
    network = vit()
    size = {"height": 32, "width": 32}
    spec = save_folder(vit(), transformers.ViTImageProcessor(size=size), tmp_path)
    tensors = {name: t + 1 for name, t in network.state_dict().items()}
    save_file(tensors, tmp_path / "other.safetensors")
    classifier = load_model(spec, weights=tmp_path / "other.safetensors")
    assert torch.equal(classifier.head.weight, network.classifier.weight + 1)
    assert classifier.class_names[0] == "class 0"


def test_folders_that_lack_something_are_refused(tmp_path):
    with pytest.raises(MissingDataError, match=r"has no config\.json"):
        load_model(f"transformers:{tmp_path}")
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(InvalidDataError, match="names no architecture"):
        load_model(f"transformers:{tmp_path}")
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(InvalidDataError, match="is not JSON"):
        load_model(f"transformers:{tmp_path}")
    (tmp_path / "config.json").write_text('{"architectures": ["ViTForImageClasification"]}')
    with pytest.raises(UnknownNameError, match=r"Did you mean ViTForImageClassification\?"):
        load_model(f"transformers:{tmp_path}")
    vit().save_pretrained(tmp_path)
    with pytest.raises(MissingDataError, match=r"has no preprocessor_config.json"):
        load_model(f"transformers:{tmp_path}")
    transformers.ViTImageProcessor().save_pretrained(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(MissingDataError, match="has no weights that transformers can read"):
        load_model(f"transformers:{tmp_path}")


def test_random_numbers_for_missing_weights_are_refused(tmp_path, capfd):
    network = vit()
    size = {"height": 32, "width": 32}
    spec = save_folder(network, transformers.ViTImageProcessor(size=size), tmp_path)
    tensors = network.state_dict()
    del tensors["classifier.weight"]
    save_file(tensors, tmp_path / "model.safetensors", {"format": "pt"})
    with pytest.raises(InvalidDataError, match=r"lack 1 tensors .*\(first classifier.weight\)"):
        load_model(spec)


# zero-shot CLIP and probes --------------------------------------------------------------------


class Tokens(dict):
    """Stands for a tokenizer: words become numbers by their length."""

    def __call__(self, texts, **options):
        rows = [[0, *(2 + len(word) for word in text.split()), 1] for text in texts]
        length = max(map(len, rows))
        padded = torch.tensor([row + [1] * (length - len(row)) for row in rows])
        mask = torch.tensor([[1] * len(row) + [0] * (length - len(row)) for row in rows])
        return {"input_ids": padded, "attention_mask": mask}


CLASSES = ["cat", "elephant", "hippopotamus"]


def test_zero_shot_clip_gives_the_logits_of_clip():
    clip = tiny_clip()
    classifier = clip_zero_shot(clip, CLASSES, tokenizer=Tokens())
    tokens = Tokens()([f"a photo of a {name}." for name in CLASSES])
    with torch.no_grad():
        theirs = clip(pixel_values=batch(4), **tokens).logits_per_image
        ours = classifier.forward(batch(4))
    torch.testing.assert_close(ours.logits, theirs)
    torch.testing.assert_close(ours.features.norm(dim=1), torch.ones(4))
    assert not classifier.head.bias.any()
    assert classifier.class_names == tuple(CLASSES)


def test_templates_are_averaged_on_the_sphere():
    clip, templates = tiny_clip(), ("a {}", "one very large {}")
    ours = embed_classes(clip, Tokens(), CLASSES, templates)
    for name, row in zip(CLASSES, ours, strict=True):
        with torch.no_grad():
            each = [
                clip.get_text_features(**Tokens()([text.format(name)])).pooler_output[0]
                for text in templates
            ]
        mean = sum(vector / vector.norm() for vector in each) / 2
        torch.testing.assert_close(row, mean / mean.norm())


def test_clip_without_texts_is_refused():
    with pytest.raises(InvalidDataError, match="needs class names and a tokenizer, or text"):
        clip_zero_shot(tiny_clip(), CLASSES)


def test_text_features_need_not_be_normalized():
    text = torch.randn(3, 12, generator=torch.Generator().manual_seed(0))
    one = clip_zero_shot(tiny_clip(), text_features=text)
    other = clip_zero_shot(tiny_clip(), text_features=5 * text)
    torch.testing.assert_close(one.head.weight, other.head.weight)


@pytest.fixture
def clip_folder(tmp_path):
    """A tiny CLIP with a tokenizer of single letters."""
    size = {"shortest_edge": 32}
    crop = {"height": 32, "width": 32}
    processor = transformers.CLIPImageProcessor(size=size, crop_size=crop)
    spec = save_folder(tiny_clip(n_positions=40), processor, tmp_path)
    letters = [chr(code) for code in range(ord("a"), ord("z") + 1)] + ["."]
    words = ["<|startoftext|>", "<|endoftext|>", *letters, *(f"{c}</w>" for c in letters)]
    vocabulary = {word: k for k, word in enumerate(words)}
    (tmp_path / "vocab.json").write_text(json.dumps(vocabulary))
    (tmp_path / "merges.txt").write_text("#version: 0.2\n")
    (tmp_path / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "CLIPTokenizer", "model_max_length": 40})
    )
    return spec


SEVEN = (  # written down again: Prompt_Engineering_for_ImageNet.ipynb of openai/CLIP
    "itap of a {}.", "a bad photo of the {}.", "a origami {}.", "a photo of the large {}.",
    "a {} in a video game.", "art of the {}.", "a photo of the small {}.",
)  # fmt: skip


def test_clip_is_loaded_from_a_folder_with_its_prompt_ensemble(clip_folder):
    classifier = load_model(clip_folder, class_names=["sea_lion", "ox"])
    assert classifier.class_names == ("sea_lion", "ox")
    path = clip_folder.partition(":")[2]
    clip = transformers.CLIPModel.from_pretrained(path)
    tokenizer = transformers.AutoTokenizer.from_pretrained(path)
    rows = []
    for name in ("sea lion", "ox"):
        total = 0
        for template in SEVEN:
            tokens = tokenizer([template.format(name)], return_tensors="pt")
            with torch.no_grad():
                vector = clip.get_text_features(**tokens)
            vector = getattr(vector, "pooler_output", vector)[0]
            total = total + vector / vector.norm()
        rows.append(total / total.norm() * clip.logit_scale.exp())
    torch.testing.assert_close(classifier.head.weight, torch.stack(rows).detach())


def test_clip_by_name_takes_the_classes_of_the_benchmark(clip_folder):
    found = incognita.evaluate(clip_folder, tiny_benchmark(), "msp, mds, react", n_resamples=0)
    assert set(found.methods) == {"msp", "mds", "react"}
    assert not found.failed


@pytest.mark.parametrize(
    ("classes", "words"),
    [
        (("n01440764", "n01443537", "n01484850"), "'n01440764' is a WordNet id. List readable"),
        (("0", "1", "2"), "'0' is a number. List readable"),
    ],
)
def test_clip_refuses_classes_without_readable_names(clip_folder, classes, words):
    with pytest.raises(InvalidDataError, match=words):
        incognita.evaluate(clip_folder, tiny_benchmark(classes=classes), "msp", n_resamples=0)
    with pytest.raises(InvalidDataError, match="by the names of classes"):
        load_model(clip_folder)


def backbone():
    return seeded(transformers.Dinov2Model, transformers.Dinov2Config(**TINY)).eval()


@pytest.mark.parametrize(("pooling", "width"), [("cls", 16), ("cls+mean", 32)])
def test_a_probe_sees_the_tokens_it_was_trained_on(pooling, width):
    rng = torch.Generator().manual_seed(0)
    head = Head(torch.randn(4, width, generator=rng), torch.randn(4, generator=rng))
    network = backbone()
    classifier = dinov2_probe(network, head)
    with torch.no_grad():
        tokens = network(batch(3)).last_hidden_state
        got = classifier.forward(batch(3))
    parts = [tokens[:, 0]] + ([tokens[:, 1:].mean(dim=1)] if pooling == "cls+mean" else [])
    features = torch.cat(parts, dim=1)
    torch.testing.assert_close(got.features, features)
    torch.testing.assert_close(got.logits, functional.linear(features, head.weight, head.bias))


def test_a_probe_of_dinov2_equals_its_own_classifier():
    network = dinov2().eval()
    layer = network.classifier
    probe = dinov2_probe(network.dinov2, Head(layer.weight.detach(), layer.bias.detach()))
    with torch.no_grad():
        torch.testing.assert_close(probe.forward(batch(3)).logits, network(batch(3)).logits)


def test_a_probe_is_loaded_from_a_folder_and_a_file(tmp_path):
    processor = transformers.BitImageProcessor(
        size={"shortest_edge": 32}, crop_size={"height": 32, "width": 32}
    )
    spec = save_folder(backbone(), processor, tmp_path)
    with pytest.raises(InvalidDataError, match="Dinov2Model, which has no classes; pass the file"):
        load_model(spec)
    save_file({"weight": torch.ones(4, 16), "bias": torch.ones(4)}, tmp_path / "p.safetensors")
    classifier = load_model(spec, weights=tmp_path / "p.safetensors")
    assert classifier.head.weight.shape == (4, 16)
    save_file({"a": torch.ones(4, 16), "b": torch.ones(4, 16)}, tmp_path / "p.safetensors")
    with pytest.raises(InvalidDataError, match="got 2 matrices and 0 vectors"):
        load_model(spec, weights=tmp_path / "p.safetensors")


def test_maps_and_vectors_can_be_probed_too():
    head = Head(torch.ones(2, 8), torch.zeros(2))
    body = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU())
    vectors = nn.Sequential(body, nn.AdaptiveAvgPool2d(1), nn.Flatten())
    with torch.no_grad():
        logits = [dinov2_probe(each, head).forward(batch(2)).logits for each in (body, vectors)]
    torch.testing.assert_close(*logits)
