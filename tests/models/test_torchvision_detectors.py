"""Adapters of torchvision's detectors against the library itself."""

import pickle
from contextlib import contextmanager
from copy import deepcopy
from functools import partial
from zipfile import ZipFile

import numpy as np
import pytest
import torch
from PIL import Image
from tests.models.torchvision_networks import (
    FAMILIES,
    N_LABELS,
    class_layers,
    drawn,
    images,
)
from torch import nn
from torchvision import models

from incognita.errors import InvalidDataError, UnknownNameError
from incognita.models.detector import BoxFilter, Detector, HeadKind
from incognita.models.from_torchvision.detectors import wrap_torchvision_detector
from incognita.models.preprocessing import Preprocessing

RULES = [
    {},
    {"score_threshold": 0.3},
    {"score_threshold": 0.0, "max_per_image": 1000},
    {"max_per_image": 3},
    {"nms_iou": 0.2, "max_per_image": 200},
    {"nms_iou": 1.0, "score_threshold": 0.2, "max_per_image": 500},
]
MANY = {"score_threshold": 0.05, "max_per_image": 1000, "nms_iou": 0.9}


@pytest.fixture(scope="module", params=FAMILIES)
def network(request):
    return drawn(request.param)


@pytest.fixture
def detector(network):
    return wrap_torchvision_detector(network)


def has_background(network):
    return hasattr(network, "roi_heads") or hasattr(network.head.classification_head, "num_columns")


def first_label(network):
    return 1 if has_background(network) else 0


def sizes_of(batch):
    return [tuple(batch.shape[2:])] * len(batch)


def call(detector, batch, **options):
    with torch.no_grad():
        return detector.forward(batch, sizes_of(batch), **options)


@contextmanager
def settings(network, rules):
    """Return the network's own attributes the values of rules for a moment."""
    holder = getattr(network, "roi_heads", network)
    before = {name: getattr(holder, name) for name in NAMES.values()}
    for name, value in rules.items():
        setattr(holder, NAMES[name], value)
    yield
    for name, value in before.items():
        setattr(holder, name, value)


NAMES = {
    "score_threshold": "score_thresh",
    "max_per_image": "detections_per_img",
    "nms_iou": "nms_thresh",
}


def of_library(network, batch, rules=None):
    with torch.no_grad(), settings(network, rules or {}):
        return network(list(batch))


def assert_same(found, expected, first):
    assert torch.equal(found.xyxy, expected["boxes"])
    assert torch.equal(found.confidence, expected["scores"])
    assert torch.equal(found.class_ids + first, expected["labels"])


def assert_close(mine, theirs):
    for name, a, b in zip(mine._fields, mine, theirs, strict=True):
        if a is None or not a.is_floating_point():
            assert (a is None and b is None) or torch.equal(a, b), name
        else:
            torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-6)


@contextmanager
def watched(module):
    """Collect what a submodule gives; a list of (arguments, output)."""
    calls = []
    handle = module.register_forward_hook(lambda _, args, output: calls.append((args, output)))
    yield calls
    handle.remove()


# What is kept


@pytest.mark.parametrize("rules", RULES, ids=str)
def test_kept_boxes_labels_and_scores_are_the_librarys(network, detector, rules):
    batch = images()
    found = call(detector.with_filter(**rules), batch)
    expected = of_library(network, batch, rules)
    assert sum(len(each["boxes"]) for each in expected) > 2
    for mine, theirs in zip(found.images, expected, strict=True):
        assert_same(mine, theirs, first_label(network))


@pytest.mark.parametrize(("height", "width"), [(64, 64), (40, 120), (131, 77)])
def test_images_of_any_size_give_what_the_library_gives(network, detector, height, width):
    batch = images(1, height, width)
    (found,) = call(detector, batch).images
    assert_same(found, of_library(network, batch)[0], first_label(network))


def test_rules_are_read_off_the_module(network, detector):
    assert detector.rules == BoxFilter(score_threshold=0.05, max_per_image=30, nms_iou=0.5)
    with settings(network, {"score_threshold": 0.25, "nms_iou": 0.75}):
        assert wrap_torchvision_detector(network).rules == BoxFilter(0.25, 30, 0.75)


def test_other_rules_share_the_network_and_change_nothing_of_it(network, detector):
    other = detector.with_filter(score_threshold=0.4)
    assert other.module is detector.module is network
    assert (other.rules.score_threshold, detector.rules.score_threshold) == (0.4, 0.05)
    assert (other.rules.nms_iou, other.rules.max_per_image) == (0.5, 30)
    call(other, images())
    assert call(other, images()).images[0].confidence.min() > 0.4
    assert detector.rules == wrap_torchvision_detector(network).rules


def test_several_labels_are_kept_and_some_are_not_the_largest_logit(network, detector):
    found = call(detector.with_filter(**MANY), images())
    labels = torch.cat([each.class_ids for each in found.images])
    largest = torch.cat([each.logits.argmax(dim=1) for each in found.images])
    assert len(labels.unique()) > 2
    assert (labels != largest).any()
    assert (labels == largest).any()


def test_confidence_follows_from_the_row_and_the_label(network, detector):
    for found in call(detector, images()).images:
        if detector.head_kind is HeadKind.SOFTMAX:
            rows = torch.cat([found.background[:, None], found.logits], dim=1).softmax(dim=1)[:, 1:]
        else:
            rows = found.logits.sigmoid()
            assert found.background is None
        own = rows.gather(1, found.class_ids[:, None])[:, 0]
        if hasattr(network, "center_sampling_radius"):  # FCOS multiplies by centerness
            assert (own >= found.confidence**2).all()
        else:
            torch.testing.assert_close(own, found.confidence)


# Where it comes from


def rows_of_library(network, batch):
    """Return the logits of all anchors or proposals of each image, seen from outside."""
    if not hasattr(network, "roi_heads"):
        with watched(network.head) as calls:
            of_library(network, batch)
        return list(calls[0][1]["cls_logits"])
    with watched(network.rpn) as proposed, watched(network.roi_heads.box_predictor) as calls:
        of_library(network, batch)
    return calls[0][1][0].split([len(each) for each in proposed[0][1][0]])


def test_source_index_names_the_row_the_logits_come_from(network, detector):
    batch = images()
    found = call(detector.with_filter(**MANY), batch)
    for mine, rows in zip(found.images, rows_of_library(network, batch), strict=True):
        assert len(mine.source_index.unique()) > 5
        expected = rows[mine.source_index]
        assert torch.equal(mine.logits, expected[:, first_label(network) :])
        if has_background(network):
            assert torch.equal(mine.background, expected[:, 0])


def test_source_index_names_the_anchor_or_proposal_of_the_box(network, detector):
    batch = images()
    decoder, parts = of_sources(network, batch)
    found = call(detector, batch)
    for mine, (codes, starts) in zip(found.images, parts, strict=True):
        for k, label in enumerate((mine.class_ids + first_label(network)).tolist()):
            own = codes[mine.source_index[k]]
            box = decoder(own[4 * label : 4 * label + 4] if len(own) > 4 else own)
            corners = box(starts[mine.source_index[k]])
            height, width = found.input_size
            torch.testing.assert_close(
                mine.rois[k] * torch.tensor([width, height, width, height]),
                clipped(corners, network, batch),
                rtol=1e-4,
                atol=1e-3,
            )


def clipped(corners, network, batch):
    height, width = network.transform(list(batch))[0].image_sizes[0]
    limits = torch.tensor([width, height, width, height])
    return torch.minimum(corners.clamp(min=0), limits)


def of_sources(network, batch):
    """Return box codes and starting boxes of each image, and what makes a box of a code."""
    if hasattr(network, "roi_heads"):
        with watched(network.rpn) as proposed, watched(network.roi_heads.box_predictor) as calls:
            of_library(network, batch)
        starts = proposed[0][1][0]
        codes = calls[0][1][1].split([len(each) for each in starts])
        weights = (10.0, 10.0, 5.0, 5.0)
    else:
        with watched(network.anchor_generator) as anchors, watched(network.head) as calls:
            of_library(network, batch)
        starts, codes = anchors[0][1], calls[0][1]["bbox_regression"]
        weights = (10.0, 10.0, 5.0, 5.0) if has_background(network) else (1.0,) * 4

    def around(code):
        dx, dy, dw, dh = (float(c) / w for c, w in zip(code, weights, strict=True))

        def box(start):
            x1, y1, x2, y2 = start.tolist()
            w, h = x2 - x1, y2 - y1
            x, y = (x1 + x2) / 2 + dx * w, (y1 + y2) / 2 + dy * h
            half_w, half_h = (
                np.exp(min(d, np.log(1000 / 16))) * s / 2 for d, s in ((dw, w), (dh, h))
            )
            return torch.tensor([x - half_w, y - half_h, x + half_w, y + half_h]).float()

        return box

    def from_point(code):
        left, top, right, bottom = code.tolist()

        def box(start):
            x1, y1, x2, y2 = start.tolist()
            x, y, w, h = (x1 + x2) / 2, (y1 + y2) / 2, x2 - x1, y2 - y1
            return torch.tensor([x - left * w, y - top * h, x + right * w, y + bottom * h])

        return box

    is_point = hasattr(network, "center_sampling_radius")
    return (from_point if is_point else around), list(zip(codes, starts, strict=True))


def test_a_head_on_the_features_gives_the_logits(network, detector):
    found = call(detector.with_filter(**MANY), images())
    heads = detector.heads
    used = torch.cat([each.head_index for each in found.images]).unique().tolist()
    assert len(used) == {False: 1, True: len(used)}[len(heads) > 1]
    assert max(used) < len(heads)
    for mine in found.images:
        for k, (feature, row) in enumerate(zip(mine.features, mine.logits, strict=True)):
            head = heads[mine.head_index[k]]
            n = head.weight.shape[1]
            torch.testing.assert_close(head(feature[None, :n])[0], row, rtol=1e-4, atol=1e-4)
            assert not feature[n:].any()


def test_heads_are_as_many_as_there_are_anchors_or_levels(network, detector):
    n_expected = {"RetinaNet": 4, "SSD": 10}.get(type(network).__name__, 1)
    assert len(detector.heads) == n_expected
    assert detector.shares_features == (type(network).__name__ != "SSD")
    assert all(len(head.weight) == len(detector.class_names) for head in detector.heads)


def test_features_are_what_the_class_layer_saw(network, detector):
    """The patches of an unfolded map, or the rows that went into the linear layer."""
    batch = images()
    inputs, handles = [], []
    for layer in class_layers(network):
        handles.append(layer.register_forward_pre_hook(lambda _, args: inputs.append(args[0])))
    rows_of_library(network, batch)
    for handle in handles:
        handle.remove()
    layers = class_layers(network)
    for index, mine in enumerate(call(detector, batch).images):
        if isinstance(layers[0], nn.Linear):
            rows = inputs[0].split([len(r) for r in rows_of_library(network, batch)])[index]
        else:
            rows = unfolded(layers, inputs, index)
        for k, source in enumerate(mine.source_index.tolist()):
            seen = rows[source]
            assert torch.equal(mine.features[k, : len(seen)], seen)


def unfolded(layers, inputs, index):
    rows = []
    for k, each in enumerate(inputs):
        layer = layers[k] if len(layers) > 1 else layers[0]
        n_anchors = layer.out_channels // N_LABELS
        patches = nn.functional.unfold(each[index : index + 1], layer.kernel_size, 1, layer.padding)
        rows += [row for row in patches[0].T for _ in range(n_anchors)]
    return rows


# Batches


def test_a_batch_gives_what_its_images_give_alone_in_any_order(network):
    """In double precision: convolutions of other batch sizes differ in their last bits."""
    detector = wrap_torchvision_detector(deepcopy(network).double())
    batch = images(3).double()
    together = call(detector, batch).images
    backwards = call(detector, batch.flip(0)).images[::-1]
    for k in range(3):
        (alone,) = call(detector, batch[k : k + 1]).images
        assert len(alone.xyxy) > 2
        assert_close(together[k], alone)
        assert_close(backwards[k], alone)


def test_an_image_where_nothing_is_kept_has_empty_columns_of_the_right_width(detector):
    usual = call(detector, images()).images[0]
    empty = call(detector.with_filter(score_threshold=0.9999999), images()).images[0]
    for name, before, after in zip(usual._fields, usual, empty, strict=True):
        if before is None:
            assert after is None
            continue
        assert after.shape == (0, *before.shape[1:]), name
        assert after.dtype == before.dtype


@pytest.mark.parametrize("family", ["faster", "faster on one map"])
def test_an_image_without_proposals_is_empty(family):
    network = drawn(family)
    network.rpn.score_thresh = 1.1
    batch = images()
    found = call(wrap_torchvision_detector(network), batch)
    for mine, theirs in zip(found.images, of_library(network, batch), strict=True):
        assert_same(mine, theirs, 1)
        assert mine.logits.shape == (0, 4)
        assert mine.features.shape == (0, 1024)


def test_no_image_gives_nothing_and_runs_nothing(network, detector):
    with watched(network.backbone) as calls, watched(network.transform) as prepared:
        found = call(detector, torch.zeros(0, 3, 70, 90), layers=True)
    assert (found.images, found.input_size) == ((), (70, 90))
    assert set(found.maps) == set(detector.layers)
    assert not calls
    assert not prepared


def test_the_network_is_called_once(network, detector):
    parts = [network.transform, network.backbone]
    parts += [network.rpn] if hasattr(network, "rpn") else [network.head, network.anchor_generator]
    for part in parts:
        with watched(part) as calls:
            call(detector, images(), layers=True)
        assert len(calls) == 1


# Boxes and places


def test_boxes_come_in_pixels_of_the_image_as_it_was_read(network):
    halved = wrap_torchvision_detector(network, preprocess=Preprocessing(size=(35, 45)))
    image = np.random.default_rng(0).integers(0, 256, (70, 90, 3), np.uint8)
    prepared = halved.preprocess(image)
    assert (prepared.pixels.shape, prepared.height, prepared.width) == ((3, 35, 45), 70, 90)
    with torch.no_grad():
        read = halved.forward(prepared.pixels[None], [(70, 90)]).images[0]
    small = of_library(network, prepared.pixels[None])[0]["boxes"]
    torch.testing.assert_close(read.xyxy, small * 2)


def test_rois_are_fractions_of_the_padded_input(network, detector):
    batch = images(1, 70, 90)
    with watched(network.backbone) as calls:
        found = call(detector, batch)
    height, width = calls[0][0][0].shape[-2:]
    assert found.input_size == (height, width)
    seen_height, seen_width = network.transform(list(batch))[0].image_sizes[0]
    scale = torch.tensor([90 / seen_width, 70 / seen_height] * 2)
    pixels = found.images[0].rois * torch.tensor([width, height] * 2) * scale
    torch.testing.assert_close(pixels, found.images[0].xyxy)
    assert (found.images[0].rois >= 0).all()
    assert (found.images[0].rois[:, ::2] <= seen_width / width + 1e-6).all()


def test_pixels_are_divided_by_255_and_nothing_else(detector):
    image = np.arange(2 * 5 * 3, dtype=np.uint8).reshape(2, 5, 3)
    prepared = detector.preprocess(image)
    assert torch.equal(prepared.pixels, torch.from_numpy(image).permute(2, 0, 1) / 255)
    assert (prepared.height, prepared.width) == (2, 5)
    assert detector.pixel_std.tolist() == [1.0, 1.0, 1.0]
    assert "size=None" in detector.preprocessing


def test_the_deviation_of_a_preprocessing_is_what_a_step_is_divided_by(network):
    preprocess = Preprocessing(mean=(0.5, 0.5, 0.5), std=(0.5, 0.25, 0.125))
    detector = wrap_torchvision_detector(network, preprocess=preprocess)
    assert detector.pixel_std.tolist() == [0.5, 0.25, 0.125]


# Layers


def test_layers_of_lard_come_first_and_those_of_safe_behind(network, detector):
    kind = type(network).__name__
    latent = "rpn.head.conv" if hasattr(network, "rpn") else "backbone.body.layer2"
    latent = "backbone.fine" if kind == "SSD" else latent
    if kind == "SSD":
        shortcuts = ["backbone.stem", "backbone.fine", "backbone.coarse"]
    elif isinstance(network.backbone, nn.Sequential):
        shortcuts = ["backbone.1", "backbone.3"]
    else:
        names = "layer1.downsample", "layer2.0.downsample"
        shortcuts = [f"backbone.body.{each}" for each in names]
    assert detector.layers == (f"latent/{latent}", *(f"shortcut/{each}" for each in shortcuts))


def test_maps_are_what_the_layers_gave(network, detector):
    batch = images()
    expected = {}
    for layer in detector.layers:
        with watched(network.get_submodule(layer.partition("/")[2])) as calls:
            of_library(network, batch)
        expected[layer] = [output for _, output in calls]
    found = call(detector, batch, layers=True)
    assert list(found.maps) == list(detector.layers)
    for layer, maps in found.maps.items():
        assert len(maps) == len(expected[layer]) >= 1
        assert all(torch.equal(a, b) for a, b in zip(maps, expected[layer], strict=True))
        assert all(each.ndim == 4 and len(each) == 2 for each in maps)
    if hasattr(network, "rpn"):
        n_levels = len(network.rpn.anchor_generator.sizes)
        assert len(found.maps["latent/rpn.head.conv"]) == n_levels


def test_maps_are_recorded_only_where_they_are_asked_for(detector):
    without, beside = call(detector, images()), call(detector, images(), layers=True)
    assert without.maps == {}
    for mine, theirs in zip(without.images, beside.images, strict=True):
        assert all(a is b or torch.equal(a, b) for a, b in zip(mine, theirs, strict=True))


def test_other_layers_can_be_chosen(network):
    detector = wrap_torchvision_detector(network, latent="backbone", shortcuts=())
    assert detector.layers == ("latent/backbone",)
    maps = call(detector, images(), layers=True).maps["latent/backbone"]
    with torch.no_grad():
        given = network.backbone(network.transform(list(images()))[0].tensors)
    given = [given] if isinstance(given, torch.Tensor) else list(given.values())
    assert all(torch.equal(a, b) for a, b in zip(maps, given, strict=True))


def test_a_layer_that_is_not_there_is_answered_with_a_suggestion(network):
    with pytest.raises(UnknownNameError, match=r"No layer is called 'backbon'. Did you mean back"):
        wrap_torchvision_detector(network, latent="backbon")
    with pytest.raises(UnknownNameError, match=r"No layer is called 'nothing'"):
        wrap_torchvision_detector(network, shortcuts=["backbone", "nothing"])


@pytest.mark.parametrize("architecture", models.list_models(module=models.detection))
def test_layers_of_every_architecture_of_the_library_give_maps(architecture):
    with torch.device("meta"):
        network = models.get_model(architecture, weights=None, weights_backbone=None).eval()
    detector = wrap_torchvision_detector(network)
    seen = {}

    def note(_, args, output, layer):
        seen[layer] = output.shape

    for layer in detector.layers:
        part = network.get_submodule(layer.partition("/")[2])
        part.register_forward_hook(partial(note, layer=layer))
    with torch.no_grad():
        maps = network.backbone(torch.empty(1, 3, 320, 320, device="meta"))
        if hasattr(network, "rpn"):
            network.rpn.head(list(maps.values()))
    assert set(seen) == set(detector.layers)
    assert all(len(shape) == 4 for shape in seen.values())
    n_places = seen[detector.layers[0]][-1]
    assert hasattr(network, "rpn") or n_places >= 10  # a box must have some place on it
    assert 2 <= len(detector.layers) <= 7


# The module is left alone


def state_of(network):
    modes = [each.training for each in network.modules()]
    hooks = sum(
        len(each._forward_hooks) + len(each._forward_pre_hooks) for each in network.modules()
    )
    holder = getattr(network, "roi_heads", network)
    return modes, hooks, [getattr(holder, name) for name in NAMES.values()]


def test_a_call_leaves_modes_hooks_and_settings_as_they_were(network, detector):
    network.train()
    network.backbone.eval()
    before = state_of(network)
    expected = of_library(deepcopy(network).eval(), images())
    found = call(detector.with_filter(max_per_image=1000), images(), layers=True)
    assert state_of(network) == before
    assert len(found.images[0].xyxy) >= len(expected[0]["boxes"]) > 0
    network.eval()


def test_a_call_that_fails_leaves_everything_as_it_was(network, detector):
    network.train()
    before = state_of(network)

    def fail(*_):
        raise RuntimeError("no memory")

    handle = class_layers(network)[-1].register_forward_hook(fail)
    with pytest.raises(RuntimeError, match="no memory"):
        call(detector, images(), layers=True)
    handle.remove()
    assert state_of(network) == before
    network.eval()


def test_gradients_flow_from_logits_and_confidence_to_the_pixels(detector):
    for column in ("logits", "confidence", "features"):
        batch = images().requires_grad_()
        found = detector.forward(batch, sizes_of(batch))
        getattr(found.images[0], column).sum().backward()
        assert batch.grad[0].abs().sum() > 0
        assert not batch.grad[1].any()
    assert not call(detector, images().requires_grad_()).images[0].logits.requires_grad


def test_a_gradient_is_the_slope_of_a_logit():
    network = drawn("retinanet").double()
    detector = wrap_torchvision_detector(network)
    batch = images(1).double().requires_grad_()
    logits = detector.forward(batch, sizes_of(batch)).images[0].logits[0, 0]
    (gradient,) = torch.autograd.grad(logits, batch)
    step = 1e-6 * gradient / gradient.norm()
    moved = [call(detector, batch.detach() + sign * step).images[0] for sign in (1, -1)]
    assert moved[0].source_index[0] == moved[1].source_index[0]
    slope = (moved[0].logits[0, 0] - moved[1].logits[0, 0]) / 2e-6
    assert slope.item() == pytest.approx(gradient.norm().item(), rel=1e-4)


# Names of classes


def test_without_names_classes_are_numbered(network, detector):
    n = N_LABELS - first_label(network)
    assert detector.class_names == tuple(f"class {k}" for k in range(n))
    assert call(detector, images()).images[0].logits.shape[1] == n


def test_background_before_the_names_is_dropped(network):
    names = ["__background__", "cat", "dog", "cow", "hen"]
    detector = wrap_torchvision_detector(network, class_names=names)
    assert detector.class_names == ("cat", "dog", "cow", "hen")
    assert detector.first_label == 1


@pytest.mark.parametrize("family", ["retinanet", "fcos"])
def test_one_name_fewer_than_columns_leaves_the_first_label_out(family):
    network = drawn(family)
    detector = wrap_torchvision_detector(network, class_names=["cat", "dog", "cow", "hen"])
    batch = images()
    for mine, theirs in zip(call(detector, batch).images, of_library(network, batch), strict=True):
        is_class = theirs["labels"] > 0
        assert 0 < is_class.sum() < len(is_class)
        assert_same(mine, {name: each[is_class] for name, each in theirs.items()}, 1)
        rows = detector.heads[0].weight.shape[0], mine.logits.shape[1]
        assert rows == (4, 4)
        assert mine.background is None
    named = wrap_torchvision_detector(network, class_names=["ox", "cat", "dog", "cow", "hen"])
    assert named.first_label == 0
    assert named.weights_hash != detector.weights_hash


def test_names_that_do_not_fit_are_refused():
    faster, retina = drawn("faster"), drawn("retinanet")
    with pytest.raises(InvalidDataError) as caught:
        wrap_torchvision_detector(faster, class_names=["a"] * 5)
    assert str(caught.value) == (
        "Expected 4 class names, got 5: FasterRCNN has 5 labels, of which the first is background."
    )
    with pytest.raises(InvalidDataError) as caught:
        wrap_torchvision_detector(retina, class_names=["a"] * 3, name="mine")
    assert str(caught.value) == (
        "Expected 4 or 5 class names, got 3: mine has 5 labels, of which the first is a class or "
        "unused."
    )


# The rest of the contract


def test_an_adapter_is_a_detector(network, detector):
    assert isinstance(detector, Detector)
    assert detector.name == type(network).__name__
    kind = HeadKind.SOFTMAX if has_background(network) else HeadKind.SIGMOID
    assert detector.head_kind is kind
    assert detector.head_reason is None


def test_an_adapter_can_be_pickled(detector):
    again = pickle.loads(pickle.dumps(detector.with_filter(score_threshold=0.2)))
    assert (again.layers, again.rules.score_threshold) == (detector.layers, 0.2)
    assert again.weights_hash == detector.weights_hash
    mine, theirs = (
        call(each.with_filter(score_threshold=0.1), images()) for each in (detector, again)
    )
    for a, b in zip(mine.images, theirs.images, strict=True):
        assert all(x is y or torch.equal(x, y) for x, y in zip(a, b, strict=True))


def test_a_copy_has_weights_of_its_own_and_may_hold_a_lambda(network):
    detector = wrap_torchvision_detector(network, preprocess=lambda image: torch.zeros(3, 8, 8))
    copied = deepcopy(detector)
    assert copied.weights_hash == detector.weights_hash
    with torch.no_grad():
        class_layers(copied.module)[0].bias.add_(1)
    assert copied.weights_hash != detector.weights_hash
    with pytest.raises(InvalidDataError, match="cannot be sent to another process"):
        pickle.dumps(detector)


def test_the_hash_sees_settings_that_are_no_weights(network):
    network = deepcopy(network)
    detector = wrap_torchvision_detector(network)
    before = detector.weights_hash
    call(detector, images())
    assert detector.weights_hash == before
    with settings(network, {"score_threshold": 0.5}):
        assert detector.weights_hash == before  # the rules say that, and they have a key of theirs
    changes = [(network.transform, "image_mean", [0.5, 0.5, 0.5])]
    if hasattr(network, "rpn"):
        changes += [
            (network.rpn, "nms_thresh", 0.4),
            (network.rpn, "_pre_nms_top_n", {"testing": 9}),
        ]
        changes += [(network.roi_heads.box_coder, "weights", (1.0, 1.0, 1.0, 1.0))]
        changes += [(network.roi_heads.box_roi_pool, "canonical_scale", 56)]
    else:
        changes += [(network, "topk_candidates", 7)]
    seen = {before}
    for part, name, value in changes:
        setattr(part, name, value)
        seen.add(detector.weights_hash)
    assert len(seen) == len(changes) + 1


def test_wrong_counts_and_rules_are_refused(detector, network):
    with pytest.raises(InvalidDataError, match=r"got shape \[2, 3, 70, 90\] and 1 sizes"):
        detector.forward(images(), [(70, 90)])
    with pytest.raises(InvalidDataError, match=r"an nms_iou, because .* runs non-maximum"):
        wrap_torchvision_detector(network, rules=BoxFilter(nms_iou=None))


def test_what_is_no_detector_is_refused():
    with pytest.raises(InvalidDataError, match="SSD of torchvision, got Linear"):
        wrap_torchvision_detector(nn.Linear(2, 2))


def test_a_detector_without_the_usual_class_layer_is_refused():
    faster, retina = drawn("faster"), drawn("retinanet")
    faster.roi_heads.box_predictor.naming = faster.roi_heads.box_predictor.cls_score
    del faster.roi_heads.box_predictor.cls_score
    with pytest.raises(InvalidDataError, match=r"class layer at roi_heads.box_predictor.cls_score"):
        wrap_torchvision_detector(faster)
    retina.head.classification_head.cls_logits = nn.Sequential(nn.Identity())
    with pytest.raises(InvalidDataError, match=r"of RetinaNet at head.classification_head.cls_log"):
        wrap_torchvision_detector(retina)


class Cosine(nn.Linear):
    """A class layer that is not linear."""

    def forward(self, x):
        normalized = nn.functional.normalize
        return 10 * normalized(x) @ normalized(self.weight).T


def test_a_class_layer_that_is_not_linear_is_no_head():
    network = drawn("faster")
    network.roi_heads.box_predictor.cls_score = Cosine(1024, N_LABELS)
    detector = wrap_torchvision_detector(network)
    assert detector.heads == ()
    assert detector.head_reason == (
        "roi_heads.box_predictor.cls_score is a Cosine, which is not linear."
    )
    found = call(detector.with_filter(score_threshold=0.0), images()).images[0]
    assert found.features.shape == (len(found.xyxy), 1024)


class OwnPredictor(nn.Module):
    """The library's predictor with something of the user's own around its class layer."""

    def __init__(self, inner, temperature=1.0, dropout=0.0):
        super().__init__()
        self.cls_score, self.bbox_pred = inner.cls_score, inner.bbox_pred
        self.temperature, self.dropout = temperature, nn.Dropout(dropout)

    def forward(self, x):
        return self.cls_score(self.dropout(x)) / self.temperature, self.bbox_pred(x)


def with_predictor(**options):
    network = drawn("faster")
    heads = network.roi_heads
    heads.box_predictor = OwnPredictor(heads.box_predictor, **options)
    return network


def test_a_class_layer_that_is_not_the_last_step_is_no_head():
    detector = wrap_torchvision_detector(with_predictor(temperature=5.0))
    assert detector.heads == ()
    assert detector.head_reason == (
        "The logits of the box predictor are not the output of roi_heads.box_predictor.cls_score."
    )
    assert detector.has_features
    plain = wrap_torchvision_detector(with_predictor(dropout=0.5).train())
    assert plain.head_reason is None
    assert len(plain.heads) == 1
    assert plain.module.roi_heads.box_predictor.dropout.training


def test_the_hash_sees_a_plain_attribute_of_a_part_of_ones_own():
    hashes = {
        wrap_torchvision_detector(with_predictor(temperature=t)).weights_hash
        for t in (1.0, 1.0, 5.0)
    }
    assert len(hashes) == 2


def test_a_class_convolution_with_groups_is_no_head():
    network = drawn("retinanet")
    network.head.classification_head.cls_logits = nn.Conv2d(16, 20, 3, padding=1, groups=2)
    detector = wrap_torchvision_detector(network)
    found = call(detector, images()).images[0]
    assert_same(found, of_library(network, images())[0], 0)
    assert (detector.heads, found.features) == ((), None)
    assert "is not linear in a patch per position" in detector.head_reason
    assert not detector.has_features
    assert wrap_torchvision_detector(drawn("retinanet")).has_features
    assert not found.head_index.any()


def test_replicas_and_compilation_are_taken_off():
    network = drawn("faster")
    assert wrap_torchvision_detector(nn.DataParallel(network)).module is network
    compiled = torch.compile(network, backend="eager")
    assert wrap_torchvision_detector(compiled).module is network


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_gpu_gives_what_the_library_gives_there(network):
    detector = wrap_torchvision_detector(deepcopy(network)).to("cuda")
    batch = images().cuda()
    found = call(detector, batch, layers=True)
    for mine, theirs in zip(found.images, of_library(detector.module, batch), strict=True):
        assert_same(mine, theirs, first_label(network))
        head = detector.heads[mine.head_index[0]]
        row = head(mine.features[:1, : head.weight.shape[1]])
        torch.testing.assert_close(row, mine.logits[:1], rtol=1e-3, atol=1e-3)


# A real detector


@pytest.mark.data
def test_a_real_detector_on_real_images_gives_what_the_library_gives(data_dir):
    from incognita.models.load import load_model

    detector = load_model(f"{data_dir}/weights/faster_rcnn_voc.py:build")
    n_boxes = 0
    for picture in real_images(data_dir, 3):
        prepared = detector.preprocess(picture)
        with torch.no_grad():
            found = detector.forward(prepared.pixels[None], [picture.shape[:2]], layers=True)
            (theirs,) = detector.module([prepared.pixels])
        (mine,) = found.images
        assert_same(mine, theirs, 1)
        torch.testing.assert_close(
            detector.heads[0](mine.features), mine.logits, rtol=1e-4, atol=1e-4
        )
        n_boxes += int((mine.confidence > 0.5).sum())
    assert n_boxes >= 3
    assert detector.layers[1:] == tuple(
        f"shortcut/backbone.body.layer{k}.0.downsample" for k in (1, 2, 3)
    )
    assert len(found.maps["latent/rpn.head.conv"]) == 4


def real_images(data_dir, n):
    with ZipFile(data_dir / "detection" / "voc2007" / "voc2007_test_subset.zip") as archive:
        names = sorted(name for name in archive.namelist() if name.endswith(".jpg"))[:n]
        for name in names:
            with archive.open(name) as file:
                yield np.asarray(Image.open(file).convert("RGB"))
