"""Numbers that cannot be right are doubted in a note that stays with the result."""

import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.evaluation.box_worlds import NAMES, CellDetector, box_benchmark, scenes
from tests.evaluation.worlds import pictures, tiny_benchmark
from torch import nn

import incognita
from incognita.evaluation.plausibility import (
    Accuracy,
    check_accuracy,
    check_class_images,
    check_names,
    check_repeat,
    check_rows,
)
from incognita.extraction.settings import Settings


def evaluated(network, benchmark=None, methods="msp", **options):
    return incognita.evaluate(
        network, benchmark or tiny_benchmark(), methods, preprocess="none", n_resamples=0, **options
    )


class Colors(nn.Module):
    """A network that knows the three colors: the brightest channel is the class."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(3, 3)
        with torch.no_grad():
            self.head.weight.copy_(10 * torch.eye(3))
            self.head.bias.zero_()

    def forward(self, x):
        return self.head(x.mean(dim=(2, 3)))


def test_a_good_network_on_whole_data_raises_no_doubt():
    found = evaluated(Colors(), methods="msp, kl-matching")
    assert found.get("msp").get("accuracy", "known").value == 1
    assert found.notes == ()


# accuracy -------------------------------------------------------------------------------------


def test_an_accuracy_at_chance_is_doubted_in_the_record_and_in_json():
    network = Colors()
    with torch.no_grad():
        network.head.bias[1] = 100  # it answers green to everything
    found = evaluated(network)
    (note,) = found.notes
    assert "which a constant answer reaches too" in note
    assert note in found.get("msp").notes
    assert note in found.as_json()["methods"]["msp"]["notes"]


@pytest.mark.parametrize(
    ("n_correct", "is_doubted"), [(0, True), (50, True), (51, False), (100, False)]
)
def test_chance_is_the_share_of_the_most_frequent_class(n_correct, is_doubted):
    labels = np.repeat([0, 1, 2], [50, 30, 20])
    predicted = labels.copy()
    predicted[n_correct:] = (labels[n_correct:] + 1) % 3
    assert bool(check_accuracy(predicted, labels, 3)) == is_doubted


@pytest.mark.parametrize(
    ("validation", "is_doubted"),
    [
        (Accuracy(0.95, 100), True),
        (Accuracy(0.75, 100), False),  # 5 points less
        (Accuracy(1.0, 3), False),  # three images say little
    ],
)
def test_an_accuracy_far_below_validation_is_doubted(validation, is_doubted):
    labels = np.arange(100) % 10
    predicted = np.where(np.arange(100) < 70, labels, (labels + 1) % 10)
    notes = check_accuracy(predicted, labels, 10, validation)
    assert bool(notes) == is_doubted
    assert all("70.0 %, but 95.0 % on validation" in note for note in notes)


def test_validation_images_of_the_run_are_compared():
    benchmark = tiny_benchmark()
    shuffled = np.roll(benchmark.test.images, 1, axis=3)  # colors another camera would give
    benchmark = replace(benchmark, test=replace(benchmark.test, images=shuffled))
    found = evaluated(Colors(), benchmark, "kl-matching")
    assert any("% on validation: check that both sets" in note for note in found.notes)


# classes --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (("red", "green", "blue"), None),
        (("Red", "GREEN", "blue"), None),
        (("class 0", "class 1", "class 2"), None),
        (("cat", "dog", "cow"), "shares no class name with tiny: number 0 is 'cat'"),
        (("cat", "red", "blue"), "has 1 classes at another place than tiny: number 0 is 'cat'"),
    ],
)
def test_class_names_are_compared_place_by_place(names, words):
    notes = check_names("net", names, tiny_benchmark())
    assert [words in note for note in notes] == ([] if words is None else [True])


def test_other_class_names_are_noted_in_an_evaluation():
    other = incognita.wrap_classifier(
        Colors(), preprocess="none", class_names=("cat", "dog", "cow")
    )
    found = incognita.evaluate(other, tiny_benchmark(), "msp", n_resamples=0)
    assert any("shares no class name with tiny" in note for note in found.notes)


def test_a_class_without_an_image_is_named_with_its_set():
    benchmark = tiny_benchmark()
    train = benchmark.train.subset(np.flatnonzero(benchmark.train.labels != 1).tolist())
    assert check_class_images(benchmark) == []
    (note,) = check_class_images(replace(benchmark, train=train))
    assert note == "train has no image of 1 of 3 classes, such as 'green'"


# rows -----------------------------------------------------------------------------------------


def test_a_group_of_few_images_is_noted():
    few = {"near": {"a": pictures("a", 6, seed=4), "b": pictures("b", 3, seed=5)}}
    found = evaluated(Colors(), tiny_benchmark(unknown=few))
    assert "near has only 9 images: its numbers say little" in found.get("msp").notes
    assert check_rows({"near": 10}, "image") == []
    assert check_rows({"far": 1, "near": 0}, "box") == [
        "far has only 1 box: its numbers say little",
        "near has only 0 boxes: its numbers say little",
    ]


# random networks ------------------------------------------------------------------------------


class Dropping(nn.Module):
    """A network that keeps dropping features in evaluation mode."""

    def __init__(self, strength=0.3):
        super().__init__()
        self.inner, self.strength = Colors(), strength

    def forward(self, x):
        return self.inner(nn.functional.dropout(x, self.strength))


def test_a_random_network_is_noted():
    found = evaluated(Dropping())
    assert any("two passes of Dropping over the same images differ" in n for n in found.notes)


@pytest.mark.filterwarnings("ignore:Colors takes")  # longer in bfloat16, on some CPUs
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_deterministic_network_is_not_noted(precision):
    settings = Settings(batch_size=16, precision=precision)
    found = evaluated(Colors(), methods="msp", settings=settings)
    assert not any("two passes" in note for note in found.notes)


def test_the_second_pass_costs_one_batch():
    network, seen = Colors(), []
    network.register_forward_hook(lambda module, inputs, output: seen.append(len(inputs[0])))
    evaluated(network, settings=Settings(batch_size=7))
    benchmark = tiny_benchmark()
    n_images = sum(len(s) for group in benchmark.unknown.values() for s in group.values())
    n_images += len(benchmark.test) + len(benchmark.shifted["dim"])
    n_example = 2 * 2  # wrapping calls the network twice on two rows
    assert sum(seen) == n_images + 7 + n_example


def test_rounding_is_no_difference():
    logits = torch.randn(8, 5, generator=torch.Generator().manual_seed(0)) * 20
    assert check_repeat("net", logits, logits * (1 + 1e-5), "float32") == []
    assert check_repeat("net", logits, logits * 1.01, "float32") != []
    assert check_repeat("net", logits, logits * 1.01, "bfloat16") == []


# detectors ------------------------------------------------------------------------------------


def test_few_boxes_and_classes_without_an_object_of_a_detector_are_noted():
    benchmark = box_benchmark(
        test=scenes("test", 12, seed=3, known=NAMES[:-1]),
        unknown={"near": {"few": scenes("few", 2, seed=5, known=(), unknown=("orange",))}},
    )
    found = incognita.evaluate(CellDetector(), benchmark, "msp", n_resamples=0)
    absent = f"test has no object of 1 of {len(NAMES)} classes, such as {NAMES[-1]!r}"
    assert absent in found.get("msp").notes
    assert any(re.match(r"near has only \d box", note) for note in found.get("msp").notes)
