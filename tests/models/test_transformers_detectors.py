"""Detectors of transformers, drawn at random, beside what the library's own processing gives."""

import pickle

import numpy as np
import pytest
import torch
from tests.models import transformers_networks as networks
from tests.models.transformers_networks import (
    EVERYTHING,
    FIXED,
    N_CLASSES,
    NETWORKS,
    SIZES,
    TEXT,
    TOKENS,
    assert_same,
    batch,
    found,
    images,
    network,
    outputs,
    wrapped,
)
from torch import nn

from incognita.errors import InvalidDataError, MissingDataError
from incognita.models.detector import BoxFilter, Detector, HeadKind
from incognita.models.from_transformers.classifiers import load_transformers, transformers
from incognita.models.from_transformers.detectors import wrap_transformers_detector
from incognita.models.load import ModelOptions

FAMILIES = pytest.mark.parametrize("family", NETWORKS)


def expected(family, threshold, most, **options):
    """Return the library's boxes, the surest first, those of equal confidence in its order."""
    processor = networks.processor_of(family)
    answers = processor.post_process_object_detection(
        outputs(family), threshold=threshold, target_sizes=SIZES, **options
    )
    for answer in answers:
        order = np.argsort(-answer["scores"].numpy(), kind="stable")[:most]
        yield tuple(answer[name][order.copy()] for name in ("boxes", "scores", "labels"))


def hooks_of(module):
    kinds = ("_forward_hooks", "_forward_pre_hooks")
    return sum(len(getattr(each, kind)) for each in module.modules() for kind in kinds)


@FAMILIES
def test_the_network_is_called_as_its_documentation_says(family):
    own = networks.own_outputs(network(family), batch(family))
    torch.testing.assert_close(outputs(family).logits, own.logits, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(outputs(family).pred_boxes, own.pred_boxes)


@FAMILIES
@pytest.mark.parametrize("share", [None, 0.0, 0.3, 0.8, 1.0])
def test_kept_boxes_equal_the_librarys_own(family, share):
    confidence = torch.cat([each.confidence for each in found(family).images])
    threshold = 0.0 if share is None else confidence.quantile(share).item()
    options = {"top_k": 1000} if "Deformable" in networks.PROCESSORS[family] else {}
    own = list(expected(family, threshold, most=1000, **options))
    for image, answer in zip(found(family, score_threshold=threshold).images, own, strict=True):
        assert_same(image, answer)
    n_kept = sum(len(scores) for _, scores, _ in own)
    # a box must lie above the threshold: at the highest confidence itself none does
    assert n_kept == 0 if share == 1 else n_kept > 0


@FAMILIES
@pytest.mark.parametrize("most", [1, 7, 100])
def test_the_surest_of_the_librarys_default_boxes_are_kept(family, most):
    for image, answer in zip(
        found(family, max_per_image=most).images, expected(family, 0.0, most), strict=True
    ):
        assert len(image.xyxy) == min(most, len(answer[1]))
        assert_same(image, answer)


@FAMILIES
def test_each_row_is_that_of_its_query(family):
    own = outputs(family)
    for k, image in enumerate(found(family).images):
        rows = own.logits[k, image.source_index]
        whole = image.logits
        if family == "detr":
            whole = torch.cat([image.logits, image.background[:, None]], dim=1)
        torch.testing.assert_close(whole, rows, rtol=0, atol=0)
        turn = torch.softmax if family == "detr" else lambda rows, dim: rows.sigmoid()
        confidence = turn(rows, dim=1)[range(len(rows)), image.class_ids]
        torch.testing.assert_close(confidence, image.confidence)
        assert not image.head_index.any()
        assert len(image.source_index.unique()) > 1


@pytest.mark.parametrize("family", FIXED)
def test_the_head_gives_the_logits_from_the_features(family):
    detector = wrapped(family)
    (head,) = detector.heads
    assert head.weight.shape == (N_CLASSES, 32)
    assert detector.head_reason is None
    for image in found(family).images:
        torch.testing.assert_close(head(image.features), image.logits)
        assert image.features.std(dim=0).max() > 1e-3


def test_the_column_of_no_object_is_never_a_class():
    detector = wrapped("detr")
    assert detector.head_kind is HeadKind.SOFTMAX
    assert len(detector.class_names) == N_CLASSES
    bias = network("detr").class_labels_classifier.bias
    torch.testing.assert_close(detector.heads[0].bias, bias[:N_CLASSES])
    for image in found("detr").images:
        assert image.logits.shape[1] == N_CLASSES
        assert image.class_ids.max() < N_CLASSES
        # the confidence leaves the share of "no object" out
        assert (image.confidence < image.logits.softmax(1).amax(1)).all()
    for family in (*FIXED[1:], *TEXT):
        assert all(image.background is None for image in found(family).images)


def test_one_query_may_be_kept_under_two_labels():
    twins = networks.rt()
    layer = twins.model.decoder.class_embed[1]
    layer.weight.data[1], layer.bias.data[1] = layer.weight.data[0], layer.bias.data[0] + 0.01
    for family, module in {"deformable": None, "two-stage": None, "rt-detr": twins}.items():
        detector = wrapped(family, module, rules=EVERYTHING)
        image = detector.forward(batch(family), SIZES).images[0]
        pairs = set(zip(image.source_index.tolist(), image.class_ids.tolist(), strict=True))
        assert len(pairs) == len(image.xyxy) > len(image.source_index.unique())


@FAMILIES
def test_images_do_not_depend_on_their_neighbors(family):
    detector = wrapped(family, rules=EVERYTHING)
    with torch.no_grad():
        together = detector.forward(batch(family), SIZES).images
        swapped = detector.forward(batch(family).flip(0), SIZES[::-1]).images[::-1]
        alone = [detector.forward(batch(family)[[k]], SIZES[k : k + 1]).images[0] for k in range(2)]
    assert not torch.equal(together[0].confidence, together[1].confidence)
    for one, other, single in zip(together, swapped, alone, strict=True):
        for image in (other, single):
            for name in ("xyxy", "confidence", "logits", "features", "rois"):
                expected = getattr(one, name)
                torch.testing.assert_close(getattr(image, name), expected, rtol=1e-4, atol=1e-4)
            assert torch.equal(image.source_index, one.source_index)
            assert torch.equal(image.class_ids, one.class_ids)


@FAMILIES
def test_an_empty_batch_calls_nothing(family):
    detector = wrapped(family, NETWORKS[family]())
    detector.module.register_forward_pre_hook(lambda *_: pytest.fail("called"))
    none = detector.forward(batch(family)[:0], [], layers=True)
    assert none.images == ()
    assert none.input_size == tuple(batch(family).shape[2:])
    assert none.maps == dict.fromkeys(detector.layers, ())
    assert detector.forward(batch(family)[:0], []).maps == {}


@FAMILIES
def test_nothing_kept_gives_empty_columns_of_full_width(family):
    n_columns = len(TOKENS) if family in TEXT else N_CLASSES
    for image in found(family, score_threshold=1 - 1e-7).images:
        assert image.xyxy.shape == image.rois.shape == (0, 4)
        assert image.logits.shape == (0, n_columns)
        assert image.features.shape == (0, 16 if family in TEXT else 32)
        assert image.confidence.shape == image.class_ids.shape == image.source_index.shape == (0,)


@FAMILIES
def test_boxes_are_in_pixels_of_the_image_and_rois_in_fractions_of_the_input(family):
    own = outputs(family).pred_boxes
    for k, (image, (height, width)) in enumerate(zip(found(family).images, SIZES, strict=True)):
        if family == "owlv2":  # padded below or on the right to a square
            height = width = max(height, width)
        for place, (xyxy, roi) in enumerate(zip(image.xyxy, image.rois, strict=True)):
            x, y, w, h = own[k, image.source_index[place]].tolist()
            corners = np.array([x - w / 2, y - h / 2, x + w / 2, y + h / 2])
            assert xyxy.tolist() == pytest.approx(corners * [width, height, width, height], 1e-4)
            assert roi.tolist() == pytest.approx(np.clip(corners, 0, 1), abs=1e-6)


@FAMILIES
def test_gradients_flow_from_logits_to_pixels_where_they_are_allowed(family):
    detector = wrapped(family)
    pixels = batch(family).clone().requires_grad_()
    detector.forward(pixels, SIZES).images[0].logits.sum().backward()
    assert pixels.grad[0].abs().max() > 0
    assert not pixels.grad[1].any()
    with torch.no_grad():
        assert not detector.forward(pixels, SIZES).images[0].logits.requires_grad
    detector.module.zero_grad()


@FAMILIES
def test_a_call_leaves_mode_and_hooks_as_they_were(family):
    module = NETWORKS[family]()
    detector = wrapped(family, module, rules=EVERYTHING)
    before = hooks_of(module)
    module.train()
    next(module.base_model.children()).eval()
    modes = [each.training for each in module.modules()]
    with torch.no_grad():
        after_training = detector.forward(batch(family), SIZES, layers=True).images[0]
    assert [each.training for each in module.modules()] == modes
    assert hooks_of(module) == before
    torch.testing.assert_close(after_training.logits, found(family).images[0].logits)
    with pytest.raises((RuntimeError, ValueError, IndexError)):
        detector.forward(batch(family)[:, :2], SIZES, layers=True)
    assert [each.training for each in module.modules()] == modes
    assert hooks_of(module) == before


@FAMILIES
def test_a_detector_survives_pickling(family):
    detector = wrapped(family, rules=EVERYTHING)
    again = pickle.loads(pickle.dumps(detector))
    assert isinstance(again, Detector)
    assert again.weights_hash == detector.weights_hash
    assert (again.preprocessing, again.rules) == (detector.preprocessing, EVERYTHING)
    picture = images()[0]
    assert torch.equal(again.preprocess(picture).pixels, detector.preprocess(picture).pixels)
    with torch.no_grad():
        image = again.forward(batch(family), SIZES).images[1]
    assert torch.equal(image.xyxy, found(family).images[1].xyxy)


@FAMILIES
def test_one_call_of_the_network_serves_boxes_and_layers(family):
    module = NETWORKS[family]()
    calls = []
    watched = "vision_model.encoder" if family in TEXT else "backbone"
    for part in (module, module.base_model.get_submodule(watched)):
        part.register_forward_hook(lambda *_: calls.append(1))
    wrapped(family, module).forward(batch(family), SIZES, layers=True)
    assert len(calls) == 2


def test_names_come_from_the_configuration_and_must_fit():
    module = networks.detr(num_labels=2, id2label={0: "cat", 1: "dog"})
    assert wrapped("detr", module).class_names == ("cat", "dog")
    assert wrapped("detr", module, class_names=["a", "b"]).class_names == ("a", "b")
    with pytest.raises(InvalidDataError, match="got 3 names and 2 logits"):
        wrapped("detr", module, class_names=["a", "b", "no object"])
    with pytest.raises(InvalidDataError, match="got 2 names and 3 prompts"):
        wrapped("owlv2", class_names=["a", "b"])
    assert wrapped("owlv2").class_names == ("class 0", "class 1", "class 2")


def test_rules_are_those_given_and_no_overlap_is_compared():
    detector = wrapped("rt-detr")
    assert detector.rules == BoxFilter(0.05, 100, None)
    other = detector.with_filter(score_threshold=0.2, max_per_image=3)
    assert other.rules == BoxFilter(0.2, 3, None)
    assert detector.rules.max_per_image == 100
    assert other.module is detector.module
    with pytest.raises(InvalidDataError, match="drops no overlapping boxes"):
        detector.with_filter(nms_iou=0.5)
    with pytest.raises(InvalidDataError, match="nms_iou=None"):
        wrapped("rt-detr", rules=BoxFilter())


def test_networks_that_cannot_be_wrapped_are_refused_by_a_sentence():
    with pytest.raises(InvalidDataError, match=r"DetrForObjectDetection.* got Linear"):
        wrap_transformers_detector(nn.Linear(1, 1))
    with pytest.raises(InvalidDataError, match="use_focal_loss = True"):
        wrapped("rt-detr", networks.rt(use_focal_loss=False))
    with pytest.raises(InvalidDataError, match="and 1 sizes"):
        wrapped("detr").forward(batch("detr"), SIZES[:1])


def test_a_network_of_ones_own_class_or_with_a_timm_backbone_is_wrapped():
    class Mine(transformers.DetrForObjectDetection):
        pass

    backbone = transformers.TimmBackboneConfig(
        backbone="test_resnet", out_indices=[2, 3, 4], use_pretrained_backbone=False
    )
    module = Mine(transformers.DetrConfig(backbone_config=backbone, **networks.TRANSFORMER)).eval()
    detector = wrapped("detr", nn.DataParallel(module))
    assert detector.name == "Mine"
    with torch.no_grad():
        maps = detector.forward(batch("detr"), SIZES, layers=True).maps
        own = module.model.backbone(batch("detr"), torch.ones(2, 64, 96))
    shortcuts = [maps[layer][0] for layer in maps if layer.startswith("shortcut/")]
    for shortcut, (stage, _) in zip(shortcuts, own, strict=True):
        torch.testing.assert_close(shortcut, stage)


@pytest.mark.parametrize("family", FIXED)
def test_a_saved_folder_gives_the_same_detector(family, tmp_path):
    network(family).save_pretrained(tmp_path)
    with pytest.raises(MissingDataError, match=r"preprocessor_config\.json"):
        load_transformers(str(tmp_path), ModelOptions())
    networks.processor_of(family).save_pretrained(tmp_path)
    detector = load_transformers(str(tmp_path), ModelOptions())
    assert isinstance(detector, Detector)
    assert detector.name == f"transformers:{tmp_path.name}"
    assert detector.weights_hash == wrapped(family).weights_hash
    assert detector.preprocessing == wrapped(family).preprocessing
    assert torch.equal(
        detector.preprocess(images()[0]).pixels, wrapped(family).preprocess(images()[0]).pixels
    )
    kept = detector.with_filter(score_threshold=0.0, max_per_image=1000)
    with torch.no_grad():
        image = kept.forward(batch(family), SIZES).images[0]
    torch.testing.assert_close(image.xyxy, found(family).images[0].xyxy)
    stage = "model.backbone.model.encoder.stages.1"
    other = load_transformers(str(tmp_path), ModelOptions(layers=("model.backbone", stage)))
    assert other.layers == ("latent/model.backbone", f"shortcut/{stage}")
    with pytest.raises(InvalidDataError, match="image processor instead of preprocess="):
        load_transformers(str(tmp_path), ModelOptions(preprocess=np.asarray))
