"""Boxes come out of one pass, whatever the batch, the store and the number of processes."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.extraction.tiny_detector import GRID, GridDetector, GridNetwork
from torchvision.ops import roi_align

from incognita.containers.dataset import ArrayDataset
from incognita.errors import InvalidDataError
from incognita.extraction.extra_outputs import InputStep, PerturbedLayers
from incognita.extraction.extract import extract
from incognita.extraction.feature_maps import pool_boxes
from incognita.extraction.settings import Settings
from incognita.extraction.store import OutputStore


def scenes(n: int = 70, seed: int = 0, *, sizes: tuple[int, ...] = (32, 48)) -> ArrayDataset:
    """Pictures of several sizes; the third is black, in which nothing is found."""
    rng = np.random.default_rng(seed)
    images = []
    for k in range(n):
        height, width = sizes[k % len(sizes)], sizes[(k // 2) % len(sizes)]
        cells = rng.integers(0, 256, (GRID, GRID, 3)).astype(np.uint8)
        images.append(
            cells.repeat(height // GRID, axis=0).repeat(width // GRID, axis=1)
            if k != 2
            else np.zeros((height, width, 3), np.uint8)
        )
    return ArrayDataset("scenes", tuple(f"s{k:03d}" for k in range(n)), images)


SEEN: list[int] = []


def counting_hook(module: torch.nn.Module, inputs: tuple[torch.Tensor]) -> None:
    SEEN.append(len(inputs[0]))


def test_boxes_logits_and_features_are_those_of_the_network_image_by_image() -> None:
    detector, dataset = GridDetector(), scenes(9)
    outputs = extract(detector, dataset).outputs
    found = outputs.detections
    assert found.image_ids.tolist() == list(dataset.image_ids)
    assert np.diff(found.offsets)[2] == 0
    assert len(found) > 20
    for k in range(len(dataset)):
        pixels = torch.from_numpy(dataset.load(k).copy()).permute(2, 0, 1).float()[None] / 255
        with torch.no_grad():
            _, features, logits = detector.module(pixels)
        mine = slice(found.offsets[k], found.offsets[k + 1])
        cells = torch.tensor(found.source_index[mine])
        np.testing.assert_allclose(found.logits[mine], logits[0][cells], rtol=1e-6)
        np.testing.assert_allclose(found.features[mine], features[0][cells], rtol=1e-6)
        assert (found.confidence[mine] >= detector.rules.score_threshold).all()
        assert len(cells) == int((logits[0].sigmoid().amax(1) >= 0.3).sum())


def test_rows_carry_the_kept_label_the_head_and_names_of_their_own() -> None:
    outputs = extract(GridDetector(), scenes(9)).outputs
    rows = outputs.rows()
    assert len(set(rows.image_ids)) == len(rows) == len(outputs)
    assert rows.image_ids[0] == "s000#0"
    torch.testing.assert_close(rows.head(rows.features), rows.logits)
    assert rows.labels.tolist() == outputs.detections.class_ids.tolist()


@pytest.mark.parametrize("batch_size", [1, 3, 64])
def test_batch_size_and_order_do_not_matter(batch_size: int) -> None:
    dataset = scenes(20)
    base = extract(GridDetector(), dataset, layers=True).outputs
    other = extract(
        GridDetector(), dataset, layers=True, settings=Settings(batch_size=batch_size)
    ).outputs
    np.testing.assert_allclose(other.detections.xyxy, base.detections.xyxy)
    np.testing.assert_allclose(other.detections.logits, base.detections.logits, rtol=1e-5)
    torch.testing.assert_close(other.layers["latent/embed"], base.layers["latent/embed"])
    turned = extract(GridDetector(), dataset.subset(range(19, -1, -1))).outputs.detections
    again = turned.for_images(base.detections.image_ids)
    np.testing.assert_allclose(again.logits, base.detections.logits, rtol=1e-5)


def test_everything_takes_one_pass_and_a_second_run_takes_none(tmp_path) -> None:
    SEEN.clear()
    detector, dataset, store = GridDetector(), scenes(70), OutputStore(tmp_path)
    detector.module.embed.register_forward_pre_hook(counting_hook)
    first = extract(detector, dataset, layers=True, store=store)
    assert sum(SEEN) == 70 == first.passes.images == first.passes.forward
    second = extract(detector, dataset, layers=True, store=store)
    assert sum(SEEN) == 70
    assert second.passes.images == 0
    np.testing.assert_array_equal(second.outputs.detections.xyxy, first.outputs.detections.xyxy)
    torch.testing.assert_close(
        second.outputs.layers["latent/embed"], first.outputs.layers["latent/embed"]
    )


def test_layers_requested_later_are_of_the_same_boxes(tmp_path) -> None:
    store, dataset = OutputStore(tmp_path), scenes(10)
    extract(GridDetector(), dataset, store=store)
    later = extract(GridDetector(), dataset, layers=True, store=store).outputs
    at_once = extract(GridDetector(), dataset, layers=True).outputs
    torch.testing.assert_close(later.layers["latent/embed"], at_once.layers["latent/embed"])


def test_weights_preprocessing_rules_and_one_image_make_a_new_key(tmp_path) -> None:
    base, dataset = GridDetector(), scenes(6)
    changed = scenes(6)
    changed.images[4][0, 0, 0] ^= 255
    variants = [
        (base, dataset),
        (GridDetector(GridNetwork(seed=1)), dataset),
        (replace(base, preprocessing="another"), dataset),
        (base.with_filter(score_threshold=0.5), dataset),
        (base.with_filter(max_per_image=3), dataset),
        (base, changed),
    ]
    for detector, images in variants:
        assert extract(detector, images, store=OutputStore(tmp_path)).passes.images == 6
    keys = [path.parent.name for path in tmp_path.glob("*/manifest.json")]
    assert len(keys) == len(variants)
    manifest = json.loads((tmp_path / keys[0] / "manifest.json").read_text())
    assert set(manifest["rules"]) == {"score_threshold", "max_per_image", "nms_iou"}


def test_two_processes_give_the_same_bytes_as_one(tmp_path) -> None:
    dataset = scenes(140)
    one = extract(GridDetector(), dataset, layers=True).outputs
    two = extract(GridDetector(), dataset, layers=True, settings=Settings(device="cpu,cpu")).outputs
    assert two.detections.logits.tobytes() == one.detections.logits.tobytes()
    assert torch.equal(two.layers["latent/embed"], one.layers["latent/embed"])


def test_pooled_layers_equal_the_mean_of_roi_align_in_cells_of_the_map() -> None:
    torch.manual_seed(0)
    layer = torch.randn(2, 5, 10, 14)
    corners = torch.rand(2, 40, 4) * 1.6 - 0.3  # also beyond the map, and boxes without area
    boxes = list(torch.cat([corners[..., :2].sort(1)[0], corners[..., 2:].sort(1)[0]], dim=2))
    boxes = [torch.cat([torch.minimum(b[:, :2], b[:, 2:]), torch.maximum(b[:, :2], b[:, 2:])], 1)
             for b in boxes]  # fmt: skip
    boxes[0][0] = torch.tensor([0.0, 0.0, 1.0, 1.0])
    boxes[1][0] = torch.tensor([0.5, 0.5, 0.5, 0.5])
    pooled = pool_boxes({"a": (layer,)}, boxes, (80, 112))["a"]
    scale = torch.tensor([14.0, 10.0, 14.0, 10.0])
    aligned = roi_align(layer, [part * scale for part in boxes], 9, 1.0, 2, aligned=True)
    torch.testing.assert_close(pooled, aligned.mean(dim=(2, 3)), rtol=1e-4, atol=1e-5)


def test_a_constant_map_pools_to_its_constant_and_large_boxes_take_coarse_levels() -> None:
    fine, coarse = torch.full((1, 1, 64, 64), 2.0), torch.full((1, 1, 8, 8), 5.0)
    rois = [torch.tensor([[0.0, 0.0, 1.0, 1.0], [0.4, 0.4, 0.45, 0.45]])]
    pooled = pool_boxes({"a": (fine, coarse)}, rois, (512, 512))["a"]
    assert pooled.flatten().tolist() == pytest.approx([5.0, 2.0], rel=1e-6)


def test_the_perturbed_copy_is_a_step_up_the_loss_pooled_over_the_same_boxes() -> None:
    detector, dataset, extra = GridDetector(), scenes(4, sizes=(32,)), PerturbedLayers(0.1)
    extracted = extract(detector, dataset, layers=True, extra_outputs=[extra])
    column = extracted.outputs.extra_outputs[f"{extra.key}/latent/embed"]
    pixels = torch.stack([detector.preprocess(dataset.load(k)).pixels for k in range(4)])
    pixels.requires_grad_()
    loss = torch.zeros(())
    for k, image in enumerate(detector.forward(pixels, [(32, 32)] * 4).images):
        probabilities = image.logits.softmax(dim=1)
        loss = loss - probabilities[range(len(image.class_ids)), image.class_ids].log().sum()
        assert k != 2 or len(image.class_ids) == 0
    loss.backward()
    stepped = pixels.detach() + 0.1 * pixels.grad.sign()
    maps = detector.forward(stepped, [(32, 32)] * 4, layers=True).maps
    rois = [image.rois for image in detector.forward(pixels.detach(), [(32, 32)] * 4).images]
    expected = pool_boxes({"a": maps["latent/embed"]}, rois, (32, 32))["a"]
    torch.testing.assert_close(column, expected.detach(), rtol=1e-4, atol=1e-5)
    assert not torch.allclose(column, extracted.outputs.layers["latent/embed"])
    assert extracted.passes.forward == 8
    assert extracted.passes.backward == 3


def test_a_failed_image_is_listed_and_does_not_count_as_one_without_boxes() -> None:
    class Failing(ArrayDataset):
        def load(self, index: int) -> np.ndarray:
            if index == 1:
                raise OSError("cut off")
            return super().load(index)

    plain = scenes(4)
    dataset = Failing("scenes", plain.image_ids, plain.images)
    extracted = extract(GridDetector(), dataset)
    assert [(b.image_id, b.reason) for b in extracted.failed_images] == [
        ("s001", "OSError: cut off")
    ]
    assert extracted.outputs.detections.image_ids.tolist() == ["s000", "s002", "s003"]


def test_no_image_and_no_box_are_outputs_too() -> None:
    empty = ArrayDataset("none", (), [])
    outputs = extract(GridDetector(), empty).outputs
    assert len(outputs) == 0
    assert outputs.rows().logits.shape == (0, 3)
    black = ArrayDataset("black", ("a",), np.zeros((1, 32, 32, 3), np.uint8))
    outputs = extract(GridDetector(), black, layers=True).outputs
    assert len(outputs) == 0
    assert outputs.detections.n_images == 1
    assert outputs.rows().features.shape == (0, 8)


def test_what_cannot_be_recorded_of_boxes_is_refused() -> None:
    with pytest.raises(InvalidDataError, match="InputStep is recorded for images, but the"):
        extract(GridDetector(), scenes(2), extra_outputs=[InputStep(0.1)])
    with pytest.raises(InvalidDataError, match="detectors are run in float32"):
        extract(GridDetector(), scenes(2), settings=Settings(precision="bfloat16"))
    with pytest.raises(InvalidDataError, match="records none"):
        extract(replace(GridDetector(), layers=()), scenes(2), layers=True)
