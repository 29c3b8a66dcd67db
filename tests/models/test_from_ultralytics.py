"""YOLOs drawn at random, behind the adapter and as ultralytics itself uses them.

Nothing is downloaded: ultralytics carries the definitions of its networks.
"""

import ast
import contextlib
import copy
import functools
import os
import pickle
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import incognita
from incognita.errors import InvalidDataError, MissingDataError, UnknownNameError
from incognita.formats.images import load_image
from incognita.models.detector import BoxFilter, Detector, HeadKind
from incognita.models.from_ultralytics import (
    load_ultralytics_detector,
    part,
    wrap_ultralytics_detector,
)
from incognita.models.load import ModelOptions

pytestmark = pytest.mark.skipif(
    find_spec("ultralytics") is None,
    reason="needs ultralytics: pip install --no-deps ultralytics, as `make test` does",
)

SIDE, N_CLASSES = 160, 80
SIZES = ((120, 200), (200, 90), (31, 47), (SIDE, SIDE), (333, 500))
# the name of a definition, and whether its head without NMS is used
WITH_NMS = (("yolov8n", False), ("yolo11n", False), ("yolo26n", False))
WITHOUT_NMS = (("yolov10n", True), ("yolo26n", True))
ALL = WITH_NMS + WITHOUT_NMS


def _name(kind):
    return kind[0] + (" without NMS" if kind[1] else "")


every_model = pytest.mark.parametrize("kind", ALL, ids=_name)
both_ways = pytest.mark.parametrize("kind", [ALL[0], ALL[-1]], ids=_name)


@pytest.fixture(scope="module", autouse=True)
def _settings_elsewhere(tmp_path_factory):
    """Importing ultralytics writes a file of settings into the home folder."""
    os.environ["YOLO_CONFIG_DIR"] = str(tmp_path_factory.mktemp("ultralytics"))
    yield
    del os.environ["YOLO_CONFIG_DIR"]


@functools.cache
def _drawn(definition):
    """Draw a network that keeps about a fifth of the anchors of each level, and says so mildly."""
    torch.manual_seed(0)
    yolo = part("models").YOLO(f"{definition}.yaml")
    for norm in yolo.model.modules():
        if isinstance(norm, nn.BatchNorm2d):
            norm.momentum = 1.0  # the statistics of the views: without them maps fade to nothing
    with torch.no_grad():
        yolo.model.train()(views())
    for layer, maps in inputs_of_last_layers(yolo.model.eval()).items():
        cells = maps.permute(0, 2, 3, 1).flatten(0, 2)
        nn.init.normal_(layer.weight, std=float(1 / cells.norm(dim=1).mean()))
        if layer.out_channels == N_CLASSES:
            best = (cells @ layer.weight.detach().flatten(1).T).amax(dim=1)
            nn.init.constant_(layer.bias, float(-1.1 - best.quantile(0.8)))  # 0.25 after a sigmoid
    return yolo


def views():
    letterbox = part("data.augment").LetterBox(SIDE)
    images = [picture(*size) for size in SIZES] + [picture(*SIZES[0], seed) for seed in (1, 2)]
    squares = np.stack([letterbox(image=image) for image in images])
    return torch.from_numpy(squares).permute(0, 3, 1, 2) / 255


def inputs_of_last_layers(network):
    """Return what the last convolution of each branch and level sees."""
    names = ("cv2", "cv3", "one2one_cv2", "one2one_cv3")
    branches = [getattr(network.model[-1], name, None) or () for name in names]
    seen = {}
    with torch.no_grad(), contextlib.ExitStack() as hooks:
        for layer in (level[-1] for branch in branches for level in branch):
            note = layer.register_forward_pre_hook(lambda own, args: seen.update({own: args[0]}))
            hooks.callback(note.remove)
        network(views())
    return seen


def yolo_of(kind, *, fused=False):
    yolo = copy.deepcopy(_drawn(kind[0]))
    if kind[1]:
        yolo.model.end2end = True
    if fused:  # `predict` does both to a copy, which changes the last bits
        yolo.model.fuse(verbose=False).to(memory_format=torch.channels_last)
    return yolo


def wrapped(kind, **options):
    return wrap_ultralytics_detector(yolo_of(kind), **{"image_size": SIDE} | options)


@functools.cache
def load_detector(kind):
    """Return a detector that several tests share, with boxes of all levels."""
    return wrapped(kind).with_filter(score_threshold=0.05)


def picture(height, width, seed=0):
    """Soft colors with noise, so that places differ from each other."""
    rng = np.random.default_rng(seed)
    coarse = torch.from_numpy(rng.random((1, 3, 6, 6)))
    smooth = nn.functional.interpolate(coarse, (height, width), mode="bicubic")[0].clamp(0, 1)
    noisy = 200 * smooth.permute(1, 2, 0).numpy() + 55 * rng.random((height, width, 3))
    return noisy.astype(np.uint8)


def prepared(detector, *images):
    each = [detector.preprocess(image) for image in images]
    return torch.stack([p.pixels for p in each]), [(p.height, p.width) for p in each]


def found(detector, *images, **options):
    batch, sizes = prepared(detector, *images)
    dtype = next(detector.module.parameters()).dtype
    with torch.no_grad():
        return detector.forward(batch.to(dtype), sizes, **options)


def assert_same(ours, theirs, **tolerance):
    for name, one, other in zip(ours._fields, ours, theirs, strict=True):
        if one is None:
            assert other is None
        else:
            torch.testing.assert_close(one, other, **tolerance, msg=lambda m, n=name: f"{n}: {m}")


EXACT = {"rtol": 0, "atol": 0}
NEARLY = {"rtol": 1e-3, "atol": 1e-3}


# the library's own boxes ----------------------------------------------------------------------


@every_model
@pytest.mark.parametrize(("floor", "iou", "most"), [(0.05, 0.7, 300), (0.1, 0.3, 20)])
def test_kept_boxes_equal_the_librarys_own_for_the_same_thresholds(kind, floor, iou, most):
    rules = BoxFilter(floor, most, None if kind[1] else iou)
    detector = wrapped(kind, rules=rules)
    batch, sizes = prepared(detector, *(picture(120, 200, seed) for seed in range(3)))
    with torch.no_grad():
        ours = detector.forward(batch, sizes)
        raw = detector.module(batch)
    theirs, anchors = part("utils.nms").non_max_suppression(
        raw, floor, iou, max_det=most, end2end=kind[1], return_idxs=True
    )
    assert max(map(len, theirs)) > 10
    for place, (image, rows) in enumerate(zip(ours.images, theirs, strict=True)):
        assert len(rows) <= most
        in_image = part("utils.ops").scale_boxes(batch.shape[2:], rows[:, :4].clone(), (120, 200))
        assert torch.equal(image.xyxy, in_image)
        assert torch.equal(image.confidence, rows[:, 4])
        assert torch.equal(image.class_ids, rows[:, 5].long())
        if not kind[1]:  # without NMS these are places among the best, not anchors
            assert torch.equal(image.source_index, anchors[place])


@every_model
def test_kept_boxes_equal_those_of_predict(kind):
    yolo = yolo_of(kind, fused=True)
    detector = wrap_ultralytics_detector(yolo, image_size=SIDE)
    options = {"nms": False} if kind[1] else {}
    for size in SIZES:
        image = picture(*size)
        ours = found(detector, image).images[0]
        theirs = yolo.predict(image[..., ::-1], imgsz=SIDE, verbose=False, **options)[0].boxes
        assert len(ours.xyxy) > 5
        torch.testing.assert_close(ours.xyxy, theirs.xyxy, **EXACT)
        torch.testing.assert_close(ours.confidence, theirs.conf, **EXACT)
        assert torch.equal(ours.class_ids, theirs.cls.long())


def test_other_thresholds_are_those_of_predict_too():
    yolo, image = yolo_of(ALL[0], fused=True), picture(120, 200)
    detector = wrap_ultralytics_detector(yolo, image_size=SIDE)
    detector = detector.with_filter(score_threshold=0.1, nms_iou=0.2, max_per_image=9)
    theirs = yolo.predict(
        image[..., ::-1], imgsz=SIDE, verbose=False, conf=0.1, iou=0.2, max_det=9
    )[0].boxes
    assert len(theirs) == 9
    torch.testing.assert_close(found(detector, image).images[0].xyxy, theirs.xyxy, **EXACT)


def test_fusing_changes_only_the_last_bits():
    image = picture(120, 200)
    fused = wrap_ultralytics_detector(yolo_of(ALL[0], fused=True), image_size=SIDE)
    assert_same(found(fused, image)[0][0], found(wrapped(ALL[0]), image)[0][0], **NEARLY)


def test_preprocessing_is_that_of_predict():
    yolo = yolo_of(ALL[0])
    detector = wrap_ultralytics_detector(yolo, image_size=SIDE)
    yolo.predict(picture(8, 8), imgsz=SIDE, verbose=False)
    for size in SIZES:
        ours = detector.preprocess(picture(*size))
        theirs = yolo.predictor.preprocess([picture(*size)[..., ::-1]])
        assert torch.equal(ours.pixels[None], theirs)
        assert (ours.height, ours.width) == size
        assert max(ours.pixels.shape) == SIDE


def test_an_image_of_other_numbers_is_refused():
    with pytest.raises(InvalidDataError, match=r"Expected a uint8 RGB image .* type float64"):
        wrapped(ALL[0]).preprocess(np.zeros((8, 8, 3)))


# what stands behind a box ---------------------------------------------------------------------


@every_model
def test_the_head_of_its_level_gives_the_logits_of_each_box(kind):
    detector = load_detector(kind)
    image = found(detector, picture(333, 500))[0][0]
    assert len(detector.heads) == 3
    assert set(image.head_index.tolist()) == {0, 1, 2}
    for level, features, logits in zip(image.head_index, image.features, image.logits, strict=True):
        torch.testing.assert_close(detector.heads[level](features[None])[0], logits, **NEARLY)
    of_label = image.logits.gather(1, image.class_ids[:, None])[:, 0]
    torch.testing.assert_close(of_label.sigmoid(), image.confidence)


@every_model
def test_logits_are_the_raw_scores_of_the_anchor(kind):
    detector = load_detector(kind)
    batch, sizes = prepared(detector, picture(120, 200, 0), picture(120, 200, 1))
    with torch.no_grad():
        ours = detector.forward(batch, sizes)
        raw = detector.module(batch)[1]
    raw = raw.get("one2one" if kind[1] else "one2many", raw)["scores"]
    for image, scores in zip(ours.images, raw, strict=True):
        for anchor, logits in zip(image.source_index, image.logits, strict=True):
            assert torch.equal(logits, scores[:, anchor])


@both_ways
def test_features_are_what_the_linear_layer_saw_at_the_place_of_the_anchor(kind):
    detector = wrapped(kind).with_filter(score_threshold=0.05)
    head = detector.module.model[-1]
    seen = []
    for branch in head.one2one_cv3 if kind[1] else head.cv3:
        branch[-1].register_forward_pre_hook(lambda _, args: seen.append(args[0][0]))
    image = found(detector, picture(120, 200))[0][0]
    cells = [
        (level, row, column)
        for level, features in enumerate(seen)
        for row in range(features.shape[1])
        for column in range(features.shape[2])
    ]
    for k, anchor in enumerate(image.source_index):
        level, row, column = cells[anchor]
        assert image.head_index[k] == level
        assert torch.equal(image.features[k], seen[level][:, row, column])


def test_features_of_narrow_levels_end_in_zeros():
    yolo = yolo_of(ALL[0])
    branch = yolo.model.model[-1].cv3[2]
    narrow = nn.Conv2d(branch[0].conv.out_channels, 48, 1)
    branch[1], branch[2] = narrow, nn.Conv2d(48, 80, 1)
    detector = wrap_ultralytics_detector(yolo, image_size=SIDE)
    image = found(detector.with_filter(score_threshold=0.02), picture(333, 500))[0][0]
    is_narrow = image.head_index == 2
    assert is_narrow.any()
    assert not is_narrow.all()
    assert image.features.shape[1] == 80
    assert not image.features[is_narrow, 48:].any()
    torch.testing.assert_close(
        detector.heads[2](image.features[is_narrow, :48]), image.logits[is_narrow]
    )


@both_ways
def test_rois_are_the_boxes_in_fractions_of_the_padded_input(kind):
    detector, size = load_detector(kind), (333, 500)
    out = found(detector, picture(*size))
    image, (height, width) = out.images[0], out.input_size
    assert (height, width) == (128, SIDE)
    in_input = image.rois * torch.tensor([width, height, width, height])
    assert in_input[:, 1].min() >= 10  # 333 rows become 107: ten of padding above, eleven below
    assert in_input[:, 3].max() <= 117
    back = part("utils.ops").scale_boxes((height, width), in_input, size)
    torch.testing.assert_close(back, image.xyxy, rtol=0, atol=1e-3)


# layers ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("definition", "layer", "kind"),
    [("yolov8n", "model.9", "SPPF"), ("yolo11n", "model.10", "C2PSA"),
     ("yolo26n", "model.10", "C2PSA"), ("yolov10n", "model.10", "PSA")],
)  # fmt: skip
def test_the_last_layer_of_the_backbone_is_recorded(definition, layer, kind):
    detector = wrapped((definition, False))
    assert detector.layers == (f"latent/{layer}",)
    module = detector.module.get_submodule(layer)
    assert type(module).__name__ == kind
    behind = dict(detector.module.model.named_children())[str(int(layer[6:]) + 1)]
    assert isinstance(behind, nn.Upsample)
    seen = []
    module.register_forward_hook(lambda _, args, output: seen.append(output))
    maps = found(detector, picture(120, 200), layers=True).maps
    assert list(maps) == [f"latent/{layer}"]
    assert torch.equal(maps[f"latent/{layer}"][0], seen[0])


def test_maps_are_recorded_only_where_they_are_asked_for():
    detector = wrapped(ALL[0])
    assert not found(detector, picture(120, 200)).maps


def test_named_layers_are_recorded_before_an_activation_writes_into_them():
    detector = wrapped(ALL[0], latent="model.8", shortcuts=["model.1.bn", "shortcut/model.3.bn"])
    assert detector.layers == ("latent/model.8", "shortcut/model.1.bn", "shortcut/model.3.bn")
    block, image = detector.module.model[1], picture(120, 200)
    with torch.no_grad():
        first = detector.module.model[0](prepared(detector, image)[0])
        expected = block.bn(block.conv(first))
    for each in detector.module.modules():
        if isinstance(each, nn.SiLU):
            each.inplace = True  # as where YOLO opens a .pt file
    maps = found(detector, image, layers=True).maps
    torch.testing.assert_close(maps["shortcut/model.1.bn"][0], expected)


def test_layers_that_are_none_are_refused():
    with pytest.raises(UnknownNameError, match=r"Did you mean model\.9\?"):
        wrapped(ALL[0], latent="model.9_")
    with pytest.raises(InvalidDataError, match=r"'latent/model\.22' does not return a map"):
        found(wrapped(ALL[0], latent="model.22"), picture(120, 200), layers=True)
    with pytest.raises(InvalidDataError, match="'latent/model' is never called itself"):
        found(wrapped(ALL[0], latent="model"), picture(120, 200), layers=True)


# one call and the next ------------------------------------------------------------------------


@both_ways
def test_gradients_flow_from_logits_to_the_image_also_after_inference_mode(kind):
    detector = wrapped(kind)
    batch, sizes = prepared(detector, picture(120, 200))
    with torch.inference_mode():
        detector.module(batch)  # leaves a grid in the head that cannot be differentiated
    detector.module.requires_grad_(False)
    batch.requires_grad_()
    image = detector.forward(batch, sizes).images[0]
    (gradient,) = torch.autograd.grad(image.logits.sum() + image.xyxy.sum(), batch)
    assert gradient.isfinite().all()
    assert gradient.abs().sum() > 0
    with torch.no_grad():
        assert not detector.forward(batch, sizes).images[0].logits.requires_grad


def test_the_gradient_of_a_logit_is_its_slope():
    detector = wrapped(ALL[0])
    detector.module.double()
    batch, sizes = prepared(detector, picture(96, 96))
    batch = batch.double().requires_grad_()
    image = detector.forward(batch, sizes).images[0]
    anchor, label = image.source_index[0], image.class_ids[0]
    (gradient,) = torch.autograd.grad(image.logits[0, label], batch)
    step = 1e-5 * gradient / gradient.norm()
    with torch.no_grad():
        up, down = (detector.module(batch + s)[1] for s in (step, -step))
    slope = (up["scores"] - down["scores"])[0, label, anchor] / 2e-5
    torch.testing.assert_close(slope, gradient.norm(), rtol=1e-4, atol=0)


@both_ways
def test_order_batch_size_and_earlier_images_do_not_matter(kind):
    detector = copy.deepcopy(load_detector(kind))
    detector.module.double()  # so that rounding does not decide between boxes
    wide, tall = [picture(120, 200, k) for k in range(3)], picture(200, 90)
    first = found(detector, *wide).images
    other = found(detector, tall).images[0]
    again = found(detector, *wide[::-1]).images[::-1]
    for k, image in enumerate(wide):
        assert_same(first[k], again[k])
        assert_same(first[k], found(detector, image).images[0])
    assert_same(found(copy.deepcopy(detector), tall).images[0], other)


@both_ways
def test_a_call_leaves_the_network_as_it_was(kind):
    detector = wrapped(kind)
    detector.module.train()
    detector.module.model[3].eval()
    head = detector.module.model[-1]
    modes = [each.training for each in detector.module.modules()]
    before, weights = dict(vars(head)), detector.weights_hash
    found(detector, picture(120, 200), layers=True)
    assert [each.training for each in detector.module.modules()] == modes
    assert before.keys() == vars(head).keys()
    assert all(vars(head)[name] is value for name, value in before.items())
    assert not any(each._forward_hooks for each in detector.module.modules())
    assert detector.weights_hash == weights


@both_ways
def test_images_without_boxes_and_empty_batches_work(kind):
    detector = wrapped(kind).with_filter(score_threshold=0.999999)
    out = found(detector, picture(120, 200))
    assert [list(each.shape) for each in (out.images[0].xyxy, out.images[0].logits)] == [
        [0, 4],
        [0, 80],
    ]
    assert out.images[0].source_index.dtype == torch.long
    none = detector.forward(torch.zeros(0, 3, 96, SIDE), [], layers=True)
    assert none.images == ()
    assert none.input_size == (96, SIDE)
    assert none.maps == {detector.layers[0]: ()}
    with pytest.raises(InvalidDataError, match=r"got shape \[2, 3, 96, 160\] and 1 sizes"):
        detector.forward(torch.zeros(2, 3, 96, SIDE), [(96, SIDE)])


def test_images_without_boxes_stand_beside_others():
    detector = wrapped(ALL[0])
    rich, poor = picture(128, SIDE), np.full((128, SIDE, 3), 114, np.uint8)
    floor = float(found(detector.with_filter(score_threshold=0.0), poor).images[0].confidence.max())
    detector = detector.with_filter(score_threshold=floor + 0.001)
    counts = [len(image.xyxy) for image in found(detector, poor, rich, poor).images]
    assert counts[0] == counts[2] == 0
    assert counts[1] == len(found(detector, rich).images[0].xyxy) > 0


# the contract ---------------------------------------------------------------------------------


@both_ways
def test_it_is_a_detector_that_says_what_it_is(kind):
    detector = wrapped(kind)
    assert isinstance(detector, Detector)
    assert detector.name == kind[0]
    assert detector.head_kind is HeadKind.SIGMOID
    assert not detector.shares_features
    assert detector.head_reason is None
    assert detector.pixel_std.tolist() == [1, 1, 1]
    assert detector.rules == BoxFilter(0.25, 300, None if kind[1] else 0.7)
    assert detector.class_names == tuple(str(k) for k in range(80))
    assert found(detector, picture(120, 200)).images[0].background is None
    assert "(160, 160)" in detector.preprocessing


def test_names_and_the_size_come_from_the_model_unless_they_are_given():
    yolo = yolo_of(ALL[0])
    yolo.model.names = {k: f"kind {k}" for k in reversed(range(80))}
    yolo.model.args = {"imgsz": 320}
    detector = wrap_ultralytics_detector(yolo.model)
    assert detector.class_names[79] == "kind 79"
    assert detector.image_size == (320, 320)
    own = wrap_ultralytics_detector(yolo, class_names=["a"] * 80, name="mine", image_size=(100, 64))
    assert (own.name, own.class_names[0], own.image_size) == ("mine", "a", (128, 64))
    with pytest.raises(InvalidDataError, match="got 2 for a model of 80 classes"):
        wrap_ultralytics_detector(yolo, class_names=["a", "b"])


def test_rules_fit_the_head():
    with pytest.raises(InvalidDataError, match="because yolov8n runs non-maximum"):
        wrapped(ALL[0], rules=BoxFilter(nms_iou=None))
    without = wrapped(WITHOUT_NMS[0])
    with pytest.raises(InvalidDataError, match="this detector drops no overlapping boxes"):
        without.with_filter(nms_iou=0.5)
    with pytest.raises(InvalidDataError, match="head of yolov10n runs without non-maximum"):
        wrapped(WITHOUT_NMS[0], rules=BoxFilter())
    without.module.end2end = False
    with pytest.raises(InvalidDataError, match="because yolov10n runs non-maximum"):
        found(without, picture(120, 200))


def test_rules_change_on_a_copy():
    detector = wrapped(ALL[0])
    fewer = detector.with_filter(max_per_image=3)
    assert (detector.rules.max_per_image, fewer.rules.max_per_image) == (300, 3)
    assert fewer.module is detector.module
    every, three = (found(each, picture(120, 200)).images[0] for each in (detector, fewer))
    assert torch.equal(every.xyxy[:3], three.xyxy)


@both_ways
def test_it_can_be_sent_to_another_process(kind):
    detector = load_detector(kind)
    found(detector, picture(120, 200))
    received = pickle.loads(pickle.dumps(detector))
    assert received.weights_hash == detector.weights_hash
    assert_same(
        found(received, picture(120, 200))[0][0], found(detector, picture(120, 200))[0][0], **EXACT
    )


def test_the_hash_changes_with_any_weight():
    detector = wrapped(ALL[0])
    before = detector.weights_hash
    detector.module.model[-1].cv3[1][-1].bias.data[5] += 1
    assert detector.weights_hash != before


@pytest.mark.parametrize(
    ("definition", "head"),
    [("yolov8n-seg", "Segment"), ("yolov8n-obb", "OBB"), ("yolov8n-worldv2", "WorldDetect"),
     ("yolov8n-cls", "ClassificationModel"), ("rtdetr-l", "RTDETRDecoder")],
)  # fmt: skip
def test_what_finds_no_plain_boxes_is_refused(definition, head):
    models = part("models")
    kind = models.RTDETR if "rtdetr" in definition else models.YOLO
    with pytest.raises(InvalidDataError, match=f"task detect .* got {head}"):
        wrap_ultralytics_detector(kind(f"{definition}.yaml"))


# files ----------------------------------------------------------------------------------------


def test_a_file_of_ultralytics_is_opened(tmp_path):
    yolo = yolo_of(ALL[0])
    yolo.ckpt = {"train_args": {"imgsz": 320}}
    yolo.save(tmp_path / "best.pt")
    detector = load_ultralytics_detector(str(tmp_path / "best.pt"), ModelOptions())
    assert detector.name == "ultralytics:best.pt"
    assert detector.image_size == (320, 320)
    yolo.model.half().float()  # as it was saved
    expected = wrap_ultralytics_detector(yolo, image_size=320)
    ours, theirs = (found(each, picture(120, 200)).images[0] for each in (detector, expected))
    assert len(ours.xyxy) > 5
    assert_same(ours, theirs, **EXACT)


class Trap:
    def __reduce__(self):
        return os.mkdir, (os.environ["INCOGNITA_TRAP"],)


def test_a_file_that_would_run_code_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("INCOGNITA_TRAP", str(tmp_path / "sprung"))
    torch.save({"model": Trap()}, tmp_path / "trap.pt")
    with pytest.raises(InvalidDataError, match="cannot be opened by ultralytics without executing"):
        load_ultralytics_detector(str(tmp_path / "trap.pt"), ModelOptions())
    assert not (tmp_path / "sprung").exists()
    (tmp_path / "text.pt").write_text("no model")
    with pytest.raises(InvalidDataError, match="save the model's state_dict"):
        load_ultralytics_detector(str(tmp_path / "text.pt"), ModelOptions())


def test_a_definition_takes_its_weights_and_classes_from_a_file(tmp_path):
    torch.manual_seed(1)
    network = part("nn.tasks").DetectionModel("yolo11n.yaml", nc=7, verbose=False)
    save_file(network.state_dict(), tmp_path / "w.safetensors")
    options = ModelOptions(
        weights=tmp_path / "w.safetensors",
        class_names=tuple("abcdefg"),
        layers=("latent/model.8", "model.1.bn"),
    )
    detector = load_ultralytics_detector("yolo11n.yaml", options)
    assert detector.class_names == tuple("abcdefg")
    assert detector.layers == ("latent/model.8", "shortcut/model.1.bn")
    assert detector.weights_hash == wrap_ultralytics_detector(network).weights_hash


def test_what_is_not_at_hand_is_asked_for_and_never_fetched(tmp_path):
    weights = ModelOptions(weights=tmp_path / "w.safetensors")
    save_file({"a": torch.zeros(1)}, tmp_path / "w.safetensors")
    with pytest.raises(
        MissingDataError, match=r"no file at yolov8n\.pt, and nothing is downloaded"
    ):
        load_ultralytics_detector("yolov8n.pt", ModelOptions())
    with pytest.raises(InvalidDataError, match=r"pass them with --weights FILE"):
        load_ultralytics_detector("yolov8n.yaml", ModelOptions())
    for absent in ("yolov77n.yaml", "https://example.com/yolov8n.yaml"):
        with pytest.raises(MissingDataError, match=f"no definition {absent}"):
            load_ultralytics_detector(absent, weights)
    with pytest.raises(InvalidDataError, match="do not fit the network"):
        load_ultralytics_detector("yolov8n.yaml", weights)
    with pytest.raises(InvalidDataError, match="boxes are scaled back through"):
        load_ultralytics_detector("yolov8n.yaml", ModelOptions(preprocess=len))


# the door -------------------------------------------------------------------------------------

QUIET = """
import os, socket, sys, warnings
import cv2, numpy as np, torch
from PIL import Image
from incognita.models import from_ultralytics
assert "ultralytics" not in sys.modules
def asked(*_, **__):
    raise SystemExit("a network was asked for")
socket.getaddrinfo = socket.socket.connect = asked
def state():
    printing = np.get_printoptions(), repr(torch._tensor_str.PRINT_OPTS)
    functions = Image.open, torch.save, torch.load, cv2.imread, cv2.imwrite, cv2.imshow
    filters = list(warnings.filters)
    return printing, functions, filters, cv2.getNumThreads(), dict(os.environ)
before = state()
utils = from_ultralytics.part("utils")
from_ultralytics.part("models").YOLO
assert state() == before
assert not utils.ONLINE and not utils.AUTOINSTALL
"""


def test_opening_the_door_asks_no_network_prints_nothing_and_changes_nothing():
    run = subprocess.run([sys.executable, "-c", QUIET], capture_output=True, text=True)
    assert (run.returncode, run.stdout, run.stderr) == (0, "", "")


def test_a_broken_image_is_reported_as_before(tmp_path):
    """The import replaces PIL.Image.open by a function that looks for another library."""
    part("models")
    (tmp_path / "broken.png").write_bytes(b"not an image")
    with pytest.raises(InvalidDataError, match=r"broken\.png"):
        load_image(tmp_path / "broken.png")


def test_one_file_imports_ultralytics():
    naming = []
    for path in Path(incognita.__file__).parent.rglob("*.py"):
        text = path.read_text()
        imported = [
            alias.name
            for node in ast.walk(ast.parse(text))
            if isinstance(node, ast.Import | ast.ImportFrom)
            for alias in [*node.names, ast.alias(getattr(node, "module", None) or "")]
        ]
        assert not any(name.split(".")[0] == "ultralytics" for name in imported), path
        if 'need(f"ultralytics' in text or 'need("ultralytics' in text:
            naming.append(path.name)
    assert naming == ["from_ultralytics.py"]
