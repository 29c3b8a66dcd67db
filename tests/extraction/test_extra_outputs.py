"""Extra outputs against their definitions, one image at a time, and one written by a user."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
import torch
from tests.extraction.test_extract import mahalanobis
from tests.extraction.test_extract_boxes import scenes
from tests.extraction.tiny import STD, TinyClassifier, batch_of, images
from tests.extraction.tiny_detector import GridDetector

from incognita.containers.needs import ExtraOutput
from incognita.errors import InvalidDataError
from incognita.extraction.extra_outputs import (
    AdaScaleStep,
    GramRows,
    InputStep,
    LogitsWithoutTopDirection,
    Numerators,
    PerturbedLayers,
)
from incognita.extraction.extract import OutputStore, PassCount, Settings, extract
from incognita.extraction.feature_maps import gram_rows, pooled, without_largest_direction

PIXEL = torch.tensor(STD).view(3, 1, 1)


def recorded(classifier, dataset, *extra_outputs):
    settings = Settings(batch_size=16)
    return extract(
        classifier, dataset, extra_outputs=extra_outputs, settings=settings
    ).outputs.extra_outputs


def gradient_of(classifier, image, objective):
    image = image.clone().requires_grad_()
    objective(classifier.forward(image[None])).backward()
    return image.grad


def after(classifier, image):
    with torch.no_grad():
        return classifier.forward(image[None])


@pytest.mark.parametrize("temperature", [1.0, 10.0, 1000.0])
@pytest.mark.parametrize("epsilon", [0.0, 0.0014, 0.01])
def test_an_input_step_is_that_of_odin(temperature, epsilon):
    classifier, dataset = TinyClassifier(), images(20)
    extra = InputStep(epsilon, temperature)
    other = InputStep(epsilon / 2 + 0.001, 5.0)  # in the same pass, and in nobody's way
    got = recorded(classifier, dataset, other, extra)
    for k, image in enumerate(batch_of(classifier, dataset)):
        slope = gradient_of(
            classifier,
            image,
            lambda out: torch.log(torch.softmax(out.logits / temperature, dim=1).max()),
        )
        expected = after(classifier, image + epsilon * slope.sign() / PIXEL)
        torch.testing.assert_close(got[f"{extra.key}/logits"][k], expected.logits[0])
        torch.testing.assert_close(got[f"{extra.key}/features"][k], expected.features[0])


def test_a_step_raises_the_confidence():
    classifier, dataset = TinyClassifier(), images(100)
    extracted = extract(classifier, dataset, extra_outputs=[InputStep(0.001)]).outputs
    stepped = extracted.extra_outputs[f"{InputStep(0.001).key}/logits"]
    before, later = (t.softmax(dim=1).max(dim=1).values for t in (extracted.logits, stepped))
    assert (later > before).float().mean() > 0.95


def test_a_step_of_numerators_climbs_the_largest_numerator():
    classifier, dataset = TinyClassifier(divided=True), images(12)
    extra = InputStep(0.0025, objective="numerator")
    got = recorded(classifier, dataset, extra, Numerators())
    for k, image in enumerate(batch_of(classifier, dataset)):
        slope = gradient_of(classifier, image, lambda out: out.numerators.max())
        expected = after(classifier, image + 0.0025 * slope.sign() / PIXEL)
        torch.testing.assert_close(got[f"{extra.key}/logits"][k], expected.numerators[0])
        plain = after(classifier, image)
        torch.testing.assert_close(got[f"{Numerators().key}/h"][k], plain.numerators[0])


@pytest.mark.parametrize("extra", [AdaScaleStep(), AdaScaleStep(share=0.4, epsilon=0.1)])
def test_an_adascale_step_moves_the_values_of_smallest_gradient(extra):
    classifier, dataset = TinyClassifier(), images(20)
    got = recorded(classifier, dataset, extra)
    for k, image in enumerate(batch_of(classifier, dataset)):
        slope = gradient_of(classifier, image, lambda out: out.logits.max())
        order = np.argsort(slope.abs().flatten().numpy())
        moved = image.flatten().clone()
        for place in order[: int(extra.share * len(order))]:
            moved[place] += extra.epsilon * slope.flatten()[place].sign()
        expected = after(classifier, moved.view_as(image))
        torch.testing.assert_close(got[f"{extra.key}/features"][k], expected.features[0])


def test_a_mahalanobis_step_goes_towards_the_nearest_mean():
    classifier, dataset, extra = TinyClassifier(), images(20), mahalanobis(0.005)

    def distances(out):
        features = out.maps["stage1"].mean(dim=(2, 3))[0].double()
        return torch.stack(
            [(features - m) @ extra.precision.double() @ (features - m) for m in extra.means]
        )

    got = recorded(classifier, dataset, extra)[f"{extra.key}/features"]
    n_nearer = 0
    for k, image in enumerate(batch_of(classifier, dataset)):
        slope = gradient_of(classifier, image, lambda out: distances(out).min())
        expected = after(classifier, image - 0.005 * slope.sign() / PIXEL)
        torch.testing.assert_close(got[k], expected.maps["stage1"].mean(dim=(2, 3))[0])
        n_nearer += distances(expected).min() < distances(after(classifier, image)).min()
    assert n_nearer == 20


def slow_gram_rows(matrix, powers):
    rows = []
    for p in powers:
        for a in range(len(matrix)):
            total = 0.0
            for b in range(len(matrix)):
                total += sum(x**p * y**p for x, y in zip(matrix[a], matrix[b], strict=True))
            rows.append(np.sign(total) * abs(total) ** (1 / p))
    return np.array(rows).reshape(len(powers), len(matrix))


def test_gram_rows_equal_the_loops():
    classifier, dataset, powers = TinyClassifier(), images(3), (1, 2, 3, 4, 5, 10)
    extra = GramRows(powers)
    got = recorded(classifier, dataset, extra)
    with torch.no_grad():
        maps = classifier.forward(batch_of(classifier, dataset)).maps
    for name, layer_map in maps.items():
        for k in range(3):
            expected = slow_gram_rows(layer_map[k].flatten(1).double().numpy(), powers)
            np.testing.assert_allclose(got[f"{extra.key}/{name}"][k], expected, rtol=2e-4)


def test_gram_rows_of_large_and_negative_values():
    rng = np.random.default_rng(0)
    matrix = 1e6 * rng.normal(size=(4, 7))  # to the power of ten beyond float32
    tokens = torch.tensor(matrix.T[None], dtype=torch.float32)  # [n, tokens, channels]
    got = gram_rows(tokens, (1, 3, 5))[0].numpy()
    np.testing.assert_allclose(got, slow_gram_rows(matrix, (1, 3, 5)), rtol=1e-4)
    assert not gram_rows(torch.zeros(2, 4, 3, 3), (1, 2, 5)).any()


def without_first(matrix):
    u, s, v = np.linalg.svd(matrix, full_matrices=False)
    s[0] = 0
    return (u * s) @ v


@pytest.mark.parametrize("shape", [(5, 8, 3, 3), (5, 4, 6, 6), (5, 9, 4), (5, 4, 9)])
def test_the_largest_direction_is_that_of_the_svd(shape):
    layer_map = torch.rand(shape, generator=torch.Generator().manual_seed(0))
    got = without_largest_direction(layer_map)
    assert got.shape == layer_map.shape
    for k in range(len(layer_map)):
        matrix = layer_map[k].reshape(shape[1], -1).numpy().astype(np.float64)
        expected = without_first(matrix).reshape(shape[1:])
        np.testing.assert_allclose(got[k], expected, atol=1e-6)


def test_rank_one_removed_gives_the_logits_of_the_changed_maps():
    classifier, dataset = TinyClassifier(), images(10)
    got, net = recorded(classifier, dataset, LogitsWithoutTopDirection()), classifier.module
    for k, image in enumerate(batch_of(classifier, dataset)):
        with torch.no_grad():
            maps = net(image[None]).maps
            changed = {
                name: torch.tensor(
                    without_first(maps[name][0].flatten(1).double().numpy()), dtype=torch.float32
                ).view_as(maps[name])
                for name in ("stage1", "stage2")
            }
            last = net.fc(changed["stage2"].mean(dim=(2, 3)))[0]
            previous = net.fc(net.stage2(changed["stage1"]).mean(dim=(2, 3)))[0]
        torch.testing.assert_close(
            got["LogitsWithoutTopDirection()/last"][k], last, rtol=1e-4, atol=1e-4
        )
        key = "LogitsWithoutTopDirection()/previous"
        torch.testing.assert_close(got[key][k], previous, rtol=1e-4, atol=1e-4)


def test_maps_and_tokens_are_pooled_over_positions():
    values = torch.rand(2, 5, 3, 4)
    expected = values.numpy().reshape(2, 5, 12).mean(axis=2)
    np.testing.assert_allclose(pooled(values), expected, rtol=1e-6)
    channels_last = values.contiguous(memory_format=torch.channels_last)
    np.testing.assert_allclose(pooled(channels_last), expected, rtol=1e-6)
    np.testing.assert_allclose(pooled(values.flatten(2).transpose(1, 2)), expected, rtol=1e-6)
    np.testing.assert_allclose(pooled(torch.from_numpy(expected)), expected)


@dataclass(frozen=True)
class LargestActivation(ExtraOutput):
    """What a user may write in any file."""

    min_layers: ClassVar[int] = 1
    scale: float = 1.0

    def record(self, batch):
        return {name: self.scale * m.amax(dim=(2, 3)) for name, m in batch.base.maps.items()}


@dataclass(frozen=True)
class GradientNorm(ExtraOutput):
    backwards: ClassVar[int] = 1
    gradient_key = "sum of logits"

    def objective_values(self, base):
        return base.logits.sum(dim=1)

    def record(self, batch):
        return {"norm": batch.gradient(self).flatten(1).norm(dim=1)}


@dataclass(frozen=True)
class BoxArea(ExtraOutput):
    of_boxes: ClassVar[bool] = True

    def record(self, batch):
        xyxy = torch.cat([image.xyxy for image in batch.base.images])
        return {"area": (xyxy[:, 2:] - xyxy[:, :2]).prod(dim=1)}


def test_a_class_of_a_user_is_recorded_like_ours(tmp_path):
    classifier, dataset, store = TinyClassifier(), images(20), OutputStore(tmp_path)
    extras = (LargestActivation(2), GradientNorm())
    extracted = extract(classifier, dataset, extra_outputs=extras, store=store)
    assert extracted.passes == PassCount(20, 20, 20)
    got = extracted.outputs.extra_outputs
    for k, image in enumerate(batch_of(classifier, dataset)):
        largest = 2 * after(classifier, image).maps["stem"].amax(dim=(2, 3))[0]
        torch.testing.assert_close(got["LargestActivation(scale=2)/stem"][k], largest)
        norm = gradient_of(classifier, image, lambda out: out.logits.sum()).norm()
        torch.testing.assert_close(got["GradientNorm()/norm"][k], norm)
    again = extract(classifier, dataset, extra_outputs=extras, store=store)
    assert again.passes == PassCount(0, 0, 0)


def test_a_class_of_a_user_is_recorded_of_boxes():
    outputs = extract(GridDetector(), scenes(9), extra_outputs=[BoxArea()]).outputs
    xyxy = outputs.detections.xyxy
    expected = (xyxy[:, 2] - xyxy[:, 0]) * (xyxy[:, 3] - xyxy[:, 1])
    np.testing.assert_allclose(outputs.extra_outputs["BoxArea()/area"], expected, rtol=1e-6)


def test_a_class_without_columns_and_one_of_other_rows_are_refused():
    with pytest.raises(TypeError, match="abstract"):
        ExtraOutput()
    with pytest.raises(InvalidDataError, match="BoxArea is recorded for boxes, but the rows of"):
        extract(TinyClassifier(), images(2), extra_outputs=[BoxArea()])


@pytest.mark.parametrize(
    ("extra", "capabilities", "missing"),
    [
        (GramRows(), (1, False, False), None),
        (GramRows(), (0, False, False), "maps of an inner layer"),
        (LogitsWithoutTopDirection(), (1, False, False), "maps of 2 inner layers"),
        (LogitsWithoutTopDirection(), (9, False, True), "layer maps of whole images, which"),
        (InputStep(0.1), (0, False, False), None),
        (InputStep(0.1), (9, True, True), "input gradients of whole images, which"),
        (InputStep(0.1, objective="numerator"), (0, False, False), "logits are a quotient"),
        (Numerators(), (0, False, False), "logits are a quotient"),
        (Numerators(), (0, True, False), None),
        (PerturbedLayers(), (1, False, True), None),
        (PerturbedLayers(), (1, False, False), "boxes of a detector"),
    ],
)
def test_an_extra_output_knows_what_a_model_lacks(extra, capabilities, missing):
    n_layers, has_numerator, rows_are_boxes = capabilities
    got = extra.missing_for(
        n_layers=n_layers, has_numerator=has_numerator, rows_are_boxes=rows_are_boxes
    )
    assert got is None if missing is None else missing in got
