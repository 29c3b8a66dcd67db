"""What a classifier emitted: what the door refuses, and what selecting and joining keep."""

import re
from dataclasses import FrozenInstanceError
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from jaxtyping import TypeCheckError

from incognita.containers.outputs import ClassifierOutputs, Head
from incognita.errors import InvalidDataError

HEAD = Head(torch.tensor([[1.0, 0.0], [0.0, 2.0], [1.0, 1.0]]), torch.tensor([0.0, 0.5, -1.0]))
FEATURES = torch.tensor([[1.0, 2.0], [3.0, 4.0], [-1.0, 0.0], [0.0, 0.0]])


def outputs(**changes: Any) -> ClassifierOutputs:
    """Everything a classifier may emit, of four images; the first has id 0."""
    columns = {
        "image_ids": (0, 7, 5, 3),
        "logits": HEAD(FEATURES),
        "features": FEATURES,
        "labels": torch.tensor([0, 1, 2, 0]),
        "head": HEAD,
        "layers": {"stem": torch.arange(12.0).reshape(4, 3)},
    }
    return ClassifierOutputs(**(columns | changes))


def same(a: ClassifierOutputs, b: ClassifierOutputs) -> bool:
    mine, theirs = a._columns(), b._columns()
    return (
        a.image_ids == b.image_ids
        and a.head is b.head
        and mine.keys() == theirs.keys()
        and all(
            theirs[name] is None if column is None else torch.equal(column, theirs[name])
            for name, column in mine.items()
        )
    )


def mask(*marks: int) -> torch.Tensor:
    return torch.tensor(marks, dtype=torch.bool)


def test_the_head_turns_features_into_logits():
    assert HEAD(FEATURES[:1]).tolist() == [[1.0, 4.5, 2.0]]


def test_outputs_may_be_logits_alone():
    alone = ClassifierOutputs(("a", "b"), torch.zeros(2, 3))
    assert alone.image_ids == ("a", "b")
    assert len(alone) == 2
    assert alone.features is alone.labels is alone.head is alone.layers is None


@pytest.mark.parametrize(
    ("weight", "bias", "shapes"),
    [
        ((2, 3), (3,), "[2, 3] and [3]"),
        ((2, 3), (2, 1), "[2, 3] and [2, 1]"),
        ((2,), (2,), "[2] and [2]"),
    ],
)
@pytest.mark.usefixtures("outside_tests")
def test_a_head_whose_bias_does_not_fit_is_refused(weight, bias, shapes):
    with pytest.raises(InvalidDataError) as caught:
        Head(torch.zeros(weight), torch.zeros(bias))
    assert str(caught.value) == (
        f"Expected a head with weight [classes, d] and bias [classes], got shapes {shapes}."
    )


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            {"image_ids": (1, 2)},
            "Expected columns of one length in ClassifierOutputs, "
            "got 2 rows of image_ids and 4 of logits.",
        ),
        (
            {"features": torch.zeros(3, 2)},
            "Expected columns of one length in ClassifierOutputs, "
            "got 4 rows of image_ids and 3 of features.",
        ),
        (
            {"labels": torch.zeros(5, dtype=torch.int64)},
            "Expected columns of one length in ClassifierOutputs, "
            "got 4 rows of image_ids and 5 of labels.",
        ),
        (
            {"layers": {"stem": torch.zeros(1, 2)}},
            "Expected columns of one length in ClassifierOutputs, "
            "got 4 rows of image_ids and 1 of layers['stem'].",
        ),
        (
            {"image_ids": (7, 0, 3, 0)},
            "Image id 0 appears 2 times in ClassifierOutputs; ids must be unique.",
        ),
        (
            {"image_ids": ("b", "a", "c", "b")},
            "Image id b appears 2 times in ClassifierOutputs; ids must be unique.",
        ),
        (
            {"logits": torch.zeros(4, 5)},
            "The head has 3 classes, but logits have 5 columns.",
        ),
        (
            {"features": torch.zeros(4, 7)},
            "The head takes 2 features, but features have 7 columns.",
        ),
    ],
)
@pytest.mark.usefixtures("outside_tests")
def test_columns_that_do_not_fit_are_refused(changes, sentence):
    with pytest.raises(InvalidDataError) as caught:
        outputs(**changes)
    assert str(caught.value) == sentence


@pytest.mark.parametrize("wrong", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize(("name", "width"), [("logits", 3), ("features", 2), ("layers['stem']", 2)])
def test_a_number_that_is_not_finite_is_refused_with_its_image(name, width, wrong):
    column = torch.zeros(4, width)
    column[1, 1] = column[2, 0] = wrong
    changes = {"layers": {"stem": column}} if name == "layers['stem']" else {name: column}
    with pytest.raises(InvalidDataError) as caught:
        outputs(**changes)
    assert str(caught.value) == (
        f"{name} of ClassifierOutputs must be finite, but row 1 (image 7) is not; "
        "check that image and the model."
    )


@pytest.mark.usefixtures("outside_tests")
def test_image_ids_may_be_any_list():
    assert ClassifierOutputs(["a", "b"], torch.zeros(2, 3)).image_ids == ("a", "b")


def test_the_shapes_of_annotations_are_checked_in_tests():
    with pytest.raises(TypeCheckError):
        ClassifierOutputs(("a",), torch.zeros(1, 2), labels=torch.zeros(1, 2, dtype=torch.int64))


@pytest.mark.parametrize("name", ["logits", "features", "layers['stem']"])
@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        (np.zeros((4, 3)), "to be a tensor, got ndarray. Convert it by torch.as_tensor"),
        ([[0.0]] * 4, "to be a tensor, got list. Convert it by torch.as_tensor"),
        (torch.zeros(4), "floats, one row per image, got torch.float32 of shape [4]"),
        (torch.tensor(1.0), "floats, one row per image, got torch.float32 of shape []"),
        (torch.zeros(4, 3).long(), "one row per image, got torch.int64 of shape [4, 3]"),
    ],
    ids=["array", "list", "column", "number", "integers"],
)
@pytest.mark.usefixtures("outside_tests")
def test_a_table_is_a_tensor_of_floats_with_one_row_per_image(name, wrong, sentence):
    changes = {"layers": {"stem": wrong}} if name == "layers['stem']" else {name: wrong}
    with pytest.raises(InvalidDataError, match=re.escape(sentence)) as caught:
        outputs(**changes)
    assert str(caught.value).startswith(f"Expected {name} of ClassifierOutputs ")


def test_a_mask_selects_from_every_column():
    kept = outputs()[mask(1, 0, 0, 1)]
    assert kept.image_ids == (0, 3)
    assert len(kept) == 2
    assert torch.equal(kept.logits, HEAD(FEATURES[[0, 3]]))
    assert kept.features.tolist() == [[1, 2], [0, 0]]
    assert kept.labels.tolist() == [0, 0]
    assert kept.layers["stem"].tolist() == [[0, 1, 2], [9, 10, 11]]
    assert kept.head is HEAD


def test_a_mask_may_keep_everything_or_nothing_and_absent_columns_stay_absent():
    assert same(outputs()[mask(1, 1, 1, 1)], outputs())
    assert len(outputs()[mask(0, 0, 0, 0)]) == 0
    unwrap = outputs(features=None, labels=None, layers=None)[mask(0, 1, 0, 0)]
    assert unwrap.image_ids == (7,)
    assert unwrap.features is unwrap.labels is unwrap.layers is None


@pytest.mark.parametrize("n_marks", [0, 3, 5])
def test_a_mask_of_another_length_is_refused(n_marks):
    with pytest.raises(InvalidDataError) as caught:
        outputs()[mask(*[1] * n_marks)]
    assert str(caught.value) == (
        f"Expected a mask of 4 marks, one per row of ClassifierOutputs, got {n_marks}."
    )


@pytest.mark.parametrize(
    "wrong",
    [torch.tensor([0, 1, 2, 3]), [True, False, True, True], slice(0, 2), torch.ones(4, 1) > 0],
    ids=["index tensor", "list", "slice", "column"],
)
@pytest.mark.usefixtures("outside_tests")
def test_outputs_are_chosen_by_a_mask_of_booleans_and_nothing_else(wrong):
    with pytest.raises(InvalidDataError) as caught:
        outputs()[wrong]
    assert str(caught.value) == (
        "Expected a boolean mask to select ClassifierOutputs, one mark per row, "
        f"got {repr(wrong)[:80]}."
    )


def test_there_may_be_no_images():
    assert ClassifierOutputs.empty(3).logits.shape == (0, 3)
    empty = ClassifierOutputs.empty(3, HEAD)
    assert len(empty) == 0
    assert empty.features.shape == (0, 2)
    some = outputs(labels=None, layers=None)
    assert same(ClassifierOutputs.concatenate([empty, some]), some)


@given(cut=st.integers(0, 4), has=st.tuples(*[st.booleans()] * 4))
def test_outputs_cut_in_two_and_joined_again_are_the_same(cut, has):
    names = [name for name, is_there in zip(OPTIONAL, has, strict=True) if not is_there]
    whole = outputs(**dict.fromkeys(names))
    keep = torch.arange(4) < cut
    assert same(ClassifierOutputs.concatenate([whole[keep], whole[~keep]]), whole)


OPTIONAL = ("features", "labels", "head", "layers")


@pytest.mark.parametrize("column", ["features", "labels", "layers"])
def test_parts_with_different_columns_cannot_be_joined(column):
    first, second = outputs(), outputs(image_ids=(10, 11, 12, 13), **{column: None})
    everything = ["features", "labels", "layers['stem']", "logits"]
    missing = [name for name in everything if not name.startswith(column)]
    with pytest.raises(InvalidDataError) as caught:
        ClassifierOutputs.concatenate([first, second])
    assert str(caught.value) == (
        f"Parts with different columns cannot be joined: {everything} and {missing}."
    )


def test_parts_that_share_an_image_cannot_be_joined():
    with pytest.raises(InvalidDataError, match="Image id 0 appears 2 times in ClassifierOutputs"):
        ClassifierOutputs.concatenate([outputs(), outputs(image_ids=(0, 11, 12, 13))])


@pytest.mark.parametrize("other", [None, Head(HEAD.weight, HEAD.bias + 1)])
def test_parts_of_different_models_cannot_be_joined(other):
    second = outputs(image_ids=(10, 11, 12, 13), head=other)
    with pytest.raises(InvalidDataError) as caught:
        ClassifierOutputs.concatenate([outputs(), second])
    assert str(caught.value) == (
        "Parts with different heads cannot be joined: they are of different models."
    )


def test_parts_whose_heads_are_equal_copies_can_be_joined():
    copy = Head(HEAD.weight.clone(), HEAD.bias.clone())
    second = outputs(image_ids=(10, 11, 12, 13), head=copy)
    assert len(ClassifierOutputs.concatenate([outputs(), second])) == 8


def test_nothing_cannot_be_joined():
    with pytest.raises(InvalidDataError, match=r"^Expected at least one part to join, got none"):
        ClassifierOutputs.concatenate([])


def test_a_column_cannot_be_replaced():
    with pytest.raises(FrozenInstanceError):
        outputs().logits = torch.zeros(4, 3)
    with pytest.raises(FrozenInstanceError):
        HEAD.bias = torch.zeros(3)


def test_reshaped_outputs_keep_all_else_and_check_what_is_new():
    head = Head(torch.eye(2), torch.zeros(2))
    layers = {"stem": torch.zeros(2, 3)}
    outputs = ClassifierOutputs(
        ("a", "b"), torch.zeros(2, 2), torch.ones(2, 2), torch.tensor([0, 1]), head, layers
    )
    other = outputs.reshaped(torch.full((2, 2), 3.0), torch.ones(2, 2), head)
    assert other.layers is layers
    assert other.labels is outputs.labels
    assert (other.features == 3).all()
    assert (outputs.features == 1).all()
    infinite = torch.tensor([[1.0, 1.0], [1.0, float("inf")]])
    with pytest.raises(InvalidDataError, match=r"features .* must be finite, but row 1 \(image b"):
        outputs.reshaped(infinite, torch.ones(2, 2), head)
    with pytest.raises(InvalidDataError, match="got 2 rows of rows and 3 of features"):
        outputs.reshaped(torch.ones(3, 2), torch.ones(3, 2), head)
    with pytest.raises(InvalidDataError, match="head takes 2 features"):
        outputs.reshaped(torch.ones(2, 5), torch.ones(2, 2), head)


def test_outputs_are_shown_in_one_line():
    assert repr(outputs()) == "ClassifierOutputs(4 rows, 3 classes, 2 features)"
    assert repr(HEAD) == "Head(2 features to 3 classes)"


def test_extra_outputs_are_joined():
    parts = [
        outputs(image_ids=tuple(ids), extra_outputs={"a/b": torch.ones(4)})
        for ids in ("abcd", "efgh")
    ]
    assert ClassifierOutputs.concatenate(parts).extra_outputs["a/b"].shape == (8,)
