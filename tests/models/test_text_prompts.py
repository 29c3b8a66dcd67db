"""Detectors that are told by texts what to look for: OWL-ViT and OWLv2."""

import pytest
import torch
from tests.models import transformers_networks as networks
from tests.models.transformers_networks import (
    EVERYTHING,
    SIZES,
    TEXT,
    TOKENS,
    assert_same,
    batch,
    found,
    network,
    outputs,
    wrapped,
)

from incognita.errors import InvalidDataError, MissingDataError
from incognita.models.from_transformers.classifiers import load_transformers, transformers
from incognita.models.from_transformers.detectors import wrap_transformers_detector
from incognita.models.from_transformers.processors import make_prompts
from incognita.models.load import ModelOptions


def test_boxes_of_owlv2_equal_those_its_processor_gives_for_texts(tmp_path):
    processor = transformers.Owlv2Processor(
        networks.processor_of("owlv2"), networks.tokenizer(tmp_path)
    )
    own = processor.post_process_grounded_object_detection(
        outputs("owlv2"), threshold=0.5, target_sizes=SIZES
    )
    for image, answer in zip(found("owlv2", score_threshold=0.5).images, own, strict=True):
        order = answer["scores"].argsort(descending=True, stable=True)
        assert_same(image, tuple(answer[each][order] for each in ("boxes", "scores", "labels")))


@pytest.mark.parametrize("family", TEXT)
def test_the_features_of_a_text_detector_are_the_class_embeddings_of_patches(family):
    detector = wrapped(family)
    assert detector.heads == ()
    assert "not a linear layer" in detector.head_reason
    for k, image in enumerate(found(family).images):
        own = outputs(family).class_embeds[k, image.source_index]
        torch.testing.assert_close(image.features, own, rtol=0, atol=0)


def test_the_hash_follows_weights_and_texts():
    module = networks.owl()
    first = wrapped("owlv2", module).weights_hash
    assert wrapped("owlv2", networks.owl()).weights_hash == first
    assert wrapped("owlv2", module, prompts=TOKENS.flip(0)).weights_hash != first
    masked = {"input_ids": TOKENS, "attention_mask": (TOKENS > 0).long()}
    assert wrapped("owlv2", module, prompts=masked).weights_hash != first
    module.box_head.dense0.bias.data.add_(1)
    assert wrapped("owlv2", module).weights_hash != first


@pytest.mark.parametrize("family", TEXT)
def test_texts_are_tokenized_as_the_processor_does_and_embedded_once(family, tmp_path):
    kind = {"owlv2": transformers.Owlv2Processor, "owl-vit": transformers.OwlViTProcessor}[family]
    processor = kind(networks.processor_of(family), networks.tokenizer(tmp_path))
    texts = ["a cat", "dogs"]
    own = processor(text=[texts, texts], return_tensors="pt")
    module = network(family)
    with torch.no_grad():
        answer = module(pixel_values=batch(family), **own)
    detector = wrap_transformers_detector(
        module, processor=processor, prompts=texts, rules=EVERYTHING
    )
    assert detector.class_names == tuple(texts)
    assert torch.equal(detector.prompts.input_ids, own["input_ids"][:2])
    rows = []
    watch = module.base_model.text_model.register_forward_hook(
        lambda _, args, output: rows.append(len(output.pooler_output))
    )
    with torch.no_grad():
        image = detector.forward(batch(family), SIZES).images[1]
    watch.remove()
    assert rows == [2]
    torch.testing.assert_close(image.logits, answer.logits[1, image.source_index])
    # class names alone are put into the sentence of the library's examples
    named = wrap_transformers_detector(module, processor=processor, class_names=["b", "c"])
    asked = processor.tokenizer(["a photo of a b", "a photo of a c"], padding="max_length")
    assert named.prompts.input_ids.tolist() == asked["input_ids"]


def test_prompts_that_cannot_be_used_are_refused_by_a_sentence(tmp_path, outside_tests):
    tokenizer = networks.tokenizer(tmp_path)
    cases = {
        "one text per class": ("a cat", tokenizer),
        "has no tokenizer": (["a cat"], None),
        "'aaaaaaaaaaaaaaa' has 17 tokens": (["a", "a" * 15], tokenizer),
        "begins with token 0": (torch.tensor([[98, 1], [0, 0]]), None),
        "prompts of shape [2]": (torch.tensor([98, 1]), None),
        "got pixel_values": ({"pixel_values": TOKENS}, None),
        "mask of the prompts has shape [3, 3]": (
            {"input_ids": TOKENS, "attention_mask": TOKENS[:, :3]},
            None,
        ),
    }
    for message, (given, by) in cases.items():
        with pytest.raises(InvalidDataError) as caught:
            make_prompts(given, by, n_tokens=16)
        assert message in str(caught.value)
    with pytest.raises(InvalidDataError, match="pass class_names or prompts"):
        wrapped("owlv2", prompts=None)
    with pytest.raises(InvalidDataError, match="are fixed; leave out prompts="):
        wrapped("detr", prompts=TOKENS)


@pytest.mark.parametrize("family", TEXT)
def test_a_saved_text_detector_looks_for_the_class_names(family, tmp_path):
    module = network(family)
    module.save_pretrained(tmp_path)
    with pytest.raises(MissingDataError, match="save the processor of the model there"):
        load_transformers(str(tmp_path), ModelOptions(class_names=("b", "c")))
    kind = {"owlv2": transformers.Owlv2Processor, "owl-vit": transformers.OwlViTProcessor}[family]
    (tmp_path / "own").mkdir()
    processor = kind(networks.processor_of(family), networks.tokenizer(tmp_path / "own"))
    processor.save_pretrained(tmp_path)
    detector = load_transformers(str(tmp_path), ModelOptions(class_names=("b", "c")))
    assert detector.class_names == ("b", "c")
    direct = wrap_transformers_detector(module, processor=processor, class_names=("b", "c"))
    assert detector.weights_hash == direct.weights_hash
    with pytest.raises(InvalidDataError, match="pass class_names or prompts"):
        load_transformers(str(tmp_path), ModelOptions())
