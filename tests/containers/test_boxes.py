"""Boxes of many images: what the door refuses, and what selecting, joining and reordering keep."""

from dataclasses import FrozenInstanceError, fields
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from incognita.containers.boxes import BoxTruth, Detections
from incognita.containers.classes import Classes, Role
from incognita.errors import InvalidDataError

CLASSES = Classes(
    ("car", "deer", "cone"), (Role.KNOWN, Role.UNKNOWN, Role.IGNORED), ("vehicle", "animal", None)
)
# three images, the one in the middle without a box
SHARED: dict[str, Any] = {
    "image_ids": [7, 0, 9],
    "offsets": [0, 2, 2, 3],
    "xyxy": [[0, 0, 4, 4], [1, 2, 4, 8], [5, 5, 5, 9]],
    "class_ids": [0, 1, 2],
    "classes": CLASSES,
}


def detections(**changes: Any) -> Detections:
    return Detections(**(SHARED | {"confidence": [0.5, 0.25, 1.0]} | changes))


def truth(**changes: Any) -> BoxTruth:
    return BoxTruth(**(SHARED | changes))


def same(a: Detections | BoxTruth, b: Detections | BoxTruth) -> bool:
    """Whether two containers hold the same columns, also of the same type."""
    pairs = [(getattr(a, each.name), getattr(b, each.name)) for each in fields(a)]
    return type(a) is type(b) and all(
        x.dtype.kind == y.dtype.kind and np.array_equal(x, y)
        if isinstance(x, np.ndarray)
        else x == y
        for x, y in pairs
    )


def of_images(boxes: Any, first: int, last: int) -> Any:
    """The part of a container that belongs to some images in a row."""
    start, stop = boxes.offsets[first], boxes.offsets[last]
    cut: dict[str, Any] = {"image_ids": boxes.image_ids[first:last], "classes": boxes.classes}
    cut["offsets"] = boxes.offsets[first : last + 1] - start
    for each in fields(boxes):
        if each.name not in cut:
            column = getattr(boxes, each.name)
            cut[each.name] = None if column is None else column[start:stop]
    return type(boxes)(**cut)


@st.composite
def columns(draw: st.DrawFn) -> dict[str, Any]:
    """The columns of some detections; not the container, whose checks draw random numbers."""
    counts = draw(st.lists(st.integers(0, 3), max_size=5))
    n = sum(counts)
    corner, size = st.floats(-9, 9, width=32), st.floats(0, 9, width=32)
    box = st.tuples(corner, corner, size, size)
    xywh = np.array(draw(st.lists(box, min_size=n, max_size=n)), np.float64).reshape(-1, 4)
    return {
        "image_ids": np.array(draw(st.permutations(range(len(counts)))), np.int64),
        "offsets": np.cumsum([0, *counts]),
        "xyxy": np.hstack([xywh[:, :2], xywh[:, :2] + xywh[:, 2:]]),
        "confidence": draw(st.lists(st.floats(0, 1), min_size=n, max_size=n)),
        "class_ids": draw(st.lists(st.integers(0, 2), min_size=n, max_size=n)),
        "classes": CLASSES,
        "sizes": xywh[:, 2:],
        "features": np.arange(2.0 * n).reshape(n, 2) if draw(st.booleans()) else None,
    }


# --- what comes out --------------------------------------------------------------------------


@pytest.mark.parametrize("make", [detections, truth])
def test_a_container_counts_boxes_and_images_and_finds_the_image_of_a_box(make):
    boxes = make()
    assert len(boxes) == 3
    assert boxes.n_images == 3
    assert boxes.image_index.tolist() == [0, 0, 2]
    assert boxes.image_ids[boxes.image_index].tolist() == [7, 7, 9]


@pytest.mark.parametrize("make", [detections, truth])
def test_sizes_are_subtracted_unless_they_are_given(make):
    assert make().sizes.tolist() == [[4, 4], [3, 6], [0, 4]]
    box = [0.7, 0.2, 0.7 + 0.1, 0.2 + 0.3]
    assert box[2] - box[0] != 0.1
    exact = [[0.1, 0.3], [3, 6], [0, 4]]
    boxes = make(xyxy=[box, *SHARED["xyxy"][1:]], sizes=exact)
    assert boxes.sizes.tolist() == exact


@pytest.mark.parametrize("make", [detections, truth])
def test_sizes_may_differ_from_the_boxes_by_rounding_only(make):
    assert make(sizes=[[4 + 4e-6, 4], [3, 6], [0, 4]]).sizes[0, 0] == 4 + 4e-6
    far = [[1e6, 0, 1e6 + 4, 4], [1, 2, 4, 8], [5, 5, 5, 9]]
    assert len(make(xyxy=far, sizes=[[4.5, 4], [3, 6], [0, 4]])) == 3  # the edge lies far out
    for wrong in ([4 + 6e-6, 4], [4, 3.9], [-4, 4], [4, 0]):
        with pytest.raises(InvalidDataError) as caught:
            make(sizes=[wrong, [3, 6], [0, 4]])
        assert str(caught.value) == (
            f"Expected sizes of {type(make()).__name__} to be the widths and heights of the boxes, "
            f"got {[float(x) for x in wrong]} for the box [0.0, 0.0, 4.0, 4.0] in row 0."
        )


def test_wrong_sizes_are_named_by_their_row_among_millions():
    n = (1 << 20) + 3
    sizes = np.zeros((n, 2))
    sizes[-1] = 1
    with pytest.raises(InvalidDataError, match=f" in row {n - 1}."):
        BoxTruth([1], [0, n], np.zeros((n, 4)), np.zeros(n, np.int32), CLASSES, sizes=sizes)


def test_areas_and_flags_and_superclasses_have_defaults():
    boxes = truth()
    assert boxes.areas.tolist() == [16, 18, 0]
    sizes = [[4 + 1e-6, 4], [3, 6], [0, 4]]
    assert truth(sizes=sizes).areas[0] == (4 + 1e-6) * 4
    assert boxes.is_crowd.tolist() == boxes.is_difficult.tolist() == [False, False, False]
    assert boxes.superclasses.tolist() == ["vehicle", "animal", None]


def test_an_object_may_have_its_own_area_flags_and_superclass():
    boxes = truth(
        areas=[1, 2, 3], is_crowd=[0, 1, 0], is_difficult=[1, 0, 0], superclasses=[None, "elk", "x"]
    )
    assert boxes.areas.tolist() == [1, 2, 3]
    assert boxes.is_crowd.tolist() == [False, True, False]
    assert boxes.is_difficult.tolist() == [True, False, False]
    assert boxes.superclasses.tolist() == [None, "elk", "x"]


def test_roles_of_objects_are_those_of_their_classes():
    boxes = truth()
    assert boxes.is_unknown.tolist() == [False, True, False]
    assert boxes.has_role(Role.KNOWN).tolist() == [True, False, False]
    assert boxes.has_role(Role.IGNORED).tolist() == [False, False, True]


def test_confidence_keeps_float32_and_makes_all_else_float64():
    assert detections(confidence=np.ones(3, np.float32)).confidence.dtype == np.float32
    for dtype in (np.float16, np.float64, np.int64):
        assert detections(confidence=np.ones(3, dtype)).confidence.dtype == np.float64


def test_confidence_may_be_any_finite_number():
    assert detections(confidence=[-3, 0, 17]).confidence.tolist() == [-3, 0, 17]


def test_a_box_without_width_or_outside_the_image_is_a_box():
    assert len(detections(xyxy=[[0, 0, 0, 0], [-5, -5, -1, -1], [1, 1, 2, 2]])) == 3


@pytest.mark.parametrize("make", [detections, truth])
@pytest.mark.parametrize("ids", [[7, 0, 9], ["b", "", "a"], np.array([2**40, 0, -1])])
def test_image_ids_may_be_integers_or_text_and_0_is_an_id_like_any_other(make, ids):
    assert make(image_ids=ids).image_ids.tolist() == list(ids)


@pytest.mark.parametrize("kind", [Detections, BoxTruth])
def test_images_without_any_box_are_kept(kind):
    boxes = kind.empty(["a", "b"], CLASSES)
    assert len(boxes) == 0
    assert boxes.n_images == 2
    assert boxes.xyxy.shape == (0, 4)
    assert boxes.sizes.shape == (0, 2)
    assert boxes.image_index.tolist() == []
    assert kind.empty([], CLASSES).n_images == 0
    assert kind.empty(np.arange(3), CLASSES).image_ids.tolist() == [0, 1, 2]


# --- what the door refuses -------------------------------------------------------------------

SHARED_FAULTS = {
    "xyxy NaN": (
        {"xyxy": [[0, 0, 4, 4], [np.nan, 2, 4, 8], [5, 5, 5, 9]]},
        "xyxy of {what} must be finite, but row 1 holds [nan  2.  4.  8.].",
    ),
    "xyxy infinite": (
        {"xyxy": [[0, 0, 4, np.inf], [1, 2, 4, 8], [5, 5, 5, 9]]},
        "xyxy of {what} must be finite, but row 0 holds [ 0.  0.  4. inf].",
    ),
    "negative width": (
        {"xyxy": [[0, 0, 4, 4], [1, 2, 4, 8], [5, 5, 4, 9]]},
        "Expected x1 <= x2 and y1 <= y2 in xyxy of {what}, got [5.0, 5.0, 4.0, 9.0] in row 2.",
    ),
    "negative height": (
        {"xyxy": [[0, 0, 4, -1], [1, 2, 4, 8], [5, 5, 5, 9]]},
        "Expected x1 <= x2 and y1 <= y2 in xyxy of {what}, got [0.0, 0.0, 4.0, -1.0] in row 0.",
    ),
    "three numbers per box": (
        {"xyxy": np.zeros((4, 3))},
        "Expected 4 numbers per row in xyxy of {what}, got an array of shape [4, 3].",
    ),
    "two numbers per box": (
        {"xyxy": np.zeros((6, 2))},
        "Expected 4 numbers per row in xyxy of {what}, got an array of shape [6, 2].",
    ),
    "one box, not in a list": (
        {"xyxy": [0, 0, 4, 4]},
        "Expected 4 numbers per row in xyxy of {what}, got an array of shape [4].",
    ),
    "sizes for four": (
        {"sizes": np.zeros((3, 4))},
        "Expected 2 numbers per row in sizes of {what}, got an array of shape [3, 4].",
    ),
    "sizes NaN": (
        {"sizes": [[1, 1], [1, np.nan], [1, 1]]},
        "sizes of {what} must be finite, but row 1 holds [ 1. nan].",
    ),
    "sizes overflow": (
        {"xyxy": [[-1e308, 0, 1e308, 1], [0, 0, 1, 1], [0, 0, 1, 1]]},
        "sizes of {what} must be finite, but row 0 holds [inf  1.].",
    ),
    "an area that overflows": (
        {"xyxy": [[0, 0, 4, 4], [0, 0, 1e200, 1e200], [5, 5, 5, 9]]},
        "Expected boxes of {what} with a finite area, got a size of [1e+200, 1e+200] in row 1.",
    ),
    "sizes too few": (
        {"sizes": [[1, 1]]},
        "Expected columns of one length in {what}, got 3 rows of xyxy and 1 of sizes.",
    ),
    "class ids too few": (
        {"class_ids": [0]},
        "Expected columns of one length in {what}, got 3 rows of xyxy and 1 of class_ids.",
    ),
    "class id too high": (
        {"class_ids": [0, 1, 3]},
        "Expected class_ids of {what} from 0 to 2, got 3 in row 2.",
    ),
    "class id beyond 32 bits": (
        {"class_ids": [0, 2**32, 2]},
        "Expected int32 in class_ids of {what}, got 4294967296 in row 1.",
    ),
    "offset beyond 64 bits": (
        {"offsets": np.array([0, 2, 2, 2**64 - 1], np.uint64)},
        "Expected int64 in offsets of {what}, got 18446744073709551615 in row 3.",
    ),
    "class id negative": (
        {"class_ids": [0, -1, 2]},
        "Expected class_ids of {what} from 0 to 2, got -1 in row 1.",
    ),
    "too few offsets": (
        {"offsets": [0, 2, 3]},
        "Expected 4 offsets for 3 images in {what}, got 3.",
    ),
    "offsets that begin late": (
        {"offsets": [1, 2, 2, 3]},
        "Expected offsets of {what} from 0 to the number of rows, 3, got 1 to 3.",
    ),
    "offsets that end early": (
        {"offsets": [0, 1, 2, 2]},
        "Expected offsets of {what} from 0 to the number of rows, 3, got 0 to 2.",
    ),
    "offsets that fall": (
        {"offsets": [0, 3, 2, 3]},
        "Expected offsets of {what} that never decrease, got 2 after 3 at position 2.",
    ),
    "repeated id": (
        {"image_ids": [7, 7, 9]},
        "Image id 7 appears 2 times in {what}; ids must be unique.",
    ),
    "repeated id 0": (
        {"image_ids": [0, 7, 0]},
        "Image id 0 appears 2 times in {what}; ids must be unique.",
    ),
    "repeated text": (
        {"image_ids": ["a", "b", "a"]},
        "Image id a appears 2 times in {what}; ids must be unique.",
    ),
    "two repeated ids": (
        {"image_ids": [1, 1, 2, 2, 2], "offsets": [0, 1, 2, 3, 3, 3]},
        "Image id 1 appears 2 times in {what}; ids must be unique.",
    ),
}  # fmt: skip


@pytest.mark.parametrize("make", [detections, truth])
@pytest.mark.parametrize("fault", SHARED_FAULTS)
def test_columns_that_do_not_fit_are_refused(make, fault):
    changes, sentence = SHARED_FAULTS[fault]
    with pytest.raises(InvalidDataError) as caught:
        make(**changes)
    assert str(caught.value) == sentence.format(what=type(make()).__name__)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            {"confidence": [0.5, np.nan, 0.1]},
            "confidence of Detections must be finite, but row 1 holds nan.",
        ),
        (
            {"confidence": np.array([0.5, 0.1, -np.inf], np.float32)},
            "confidence of Detections must be finite, but row 2 holds -inf.",
        ),
        (
            {"confidence": [0.5, 0.25 + 0.5j, 0.1]},
            "Expected real numbers in confidence of Detections, got complex128.",
        ),
        (
            {"confidence": [0.5]},
            "Expected columns of one length in Detections, got 3 rows of xyxy and 1 of confidence.",
        ),
        (
            {"logits": np.zeros((2, 3))},
            "Expected columns of one length in Detections, got 3 rows of xyxy and 2 of logits.",
        ),
        (
            {"features": np.zeros((4, 3))},
            "Expected columns of one length in Detections, got 3 rows of xyxy and 4 of features.",
        ),
    ],
)
def test_detections_refuse_what_only_they_have(changes, sentence):
    with pytest.raises(InvalidDataError) as caught:
        detections(**changes)
    assert str(caught.value) == sentence


@pytest.mark.parametrize("column", ["areas", "is_crowd", "is_difficult", "superclasses"])
def test_truth_refuses_columns_of_another_length(column):
    with pytest.raises(InvalidDataError) as caught:
        truth(**{column: [0, 0]})
    assert str(caught.value) == (
        f"Expected columns of one length in BoxTruth, got 3 rows of xyxy and 2 of {column}."
    )


@pytest.mark.parametrize("column", ["is_crowd", "is_difficult"])
@pytest.mark.parametrize(
    ("flags", "kind"), [(["no", "yes", "no"], "<U3"), ([0.0, 1.0, 0.0], "float64")]
)
def test_truth_refuses_flags_that_are_neither_booleans_nor_0_and_1(column, flags, kind):
    with pytest.raises(InvalidDataError) as caught:
        truth(**{column: flags})
    assert str(caught.value) == f"Expected booleans in {column} of BoxTruth, got {kind}."


@pytest.mark.parametrize("column", ["is_crowd", "is_difficult"])
def test_flags_of_no_object_may_be_an_empty_list(column):
    empty = BoxTruth([1], [0, 0], np.zeros((0, 4)), [], CLASSES, **{column: []})
    assert getattr(empty, column).dtype == np.bool_


def test_truth_refuses_an_area_that_is_no_number():
    sentence = "areas of BoxTruth must be finite, but row 1 holds inf."
    with pytest.raises(InvalidDataError) as caught:
        truth(areas=[1, np.inf, 1])
    assert str(caught.value) == sentence


# --- selecting -------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [detections, truth])
def test_a_mask_keeps_boxes_and_every_image(make):
    boxes = make()
    kept = boxes[np.array([False, True, True])]
    assert kept.offsets.tolist() == [0, 1, 1, 2]
    assert kept.image_ids.tolist() == [7, 0, 9]
    assert kept.class_ids.tolist() == [1, 2]
    assert kept.xyxy.tolist() == [[1, 2, 4, 8], [5, 5, 5, 9]]
    assert len(boxes) == 3


def test_a_mask_selects_from_every_column_that_is_there():
    boxes = detections(features=[[1, 1], [2, 2], [3, 3]], sizes=[[4, 4], [3, 6], [0, 4]])
    kept = boxes[boxes.confidence > 0.3]
    assert kept.confidence.tolist() == [0.5, 1.0]
    assert kept.features.tolist() == [[1, 1], [3, 3]]
    assert kept.sizes.tolist() == [[4, 4], [0, 4]]
    assert kept.logits is None
    objects = truth(is_crowd=[1, 0, 0], areas=[1, 2, 3])[np.array([True, False, True])]
    assert objects.is_crowd.tolist() == [True, False]
    assert objects.areas.tolist() == [1, 3]
    assert objects.superclasses.tolist() == ["vehicle", None]


@pytest.mark.parametrize("make", [detections, truth])
def test_a_mask_may_keep_everything_or_nothing(make):
    boxes = make()
    assert same(boxes[np.ones(3, np.bool_)], boxes)
    nothing = boxes[np.zeros(3, np.bool_)]
    assert len(nothing) == 0
    assert nothing.offsets.tolist() == [0, 0, 0, 0]
    assert nothing.n_images == 3
    empty = type(boxes).empty([1], CLASSES)
    assert same(empty[np.zeros(0, np.bool_)], empty)


@pytest.mark.parametrize("make", [detections, truth])
@pytest.mark.parametrize("n_marks", [0, 2, 4])
def test_a_mask_of_another_length_is_refused(make, n_marks):
    boxes = make()
    with pytest.raises(InvalidDataError) as caught:
        boxes[np.zeros(n_marks, np.bool_)]
    assert str(caught.value) == (
        f"Expected a mask of 3 marks, one per row of {type(boxes).__name__}, got {n_marks}."
    )


@pytest.mark.parametrize("make", [detections, truth])
@pytest.mark.parametrize(
    "wrong",
    [
        np.array([0, 1, 2]),
        np.array([0.0, 1.0, 1.0]),
        [True, False, True],
        slice(0, 2),
        1,
        np.ones((3, 1), np.bool_),
        np.bool_(True),
    ],
    ids=["index array", "floats", "list", "slice", "integer", "column", "one mark"],
)
@pytest.mark.usefixtures("outside_tests")
def test_boxes_are_chosen_by_a_mask_of_booleans_and_nothing_else(make, wrong):
    boxes = make()
    with pytest.raises(InvalidDataError) as caught:
        boxes[wrong]
    assert str(caught.value) == (
        f"Expected a boolean mask to select {type(boxes).__name__}, one mark per row, "
        f"got {wrong!r}."
    )


# --- joining ---------------------------------------------------------------------------------


@given(columns(), st.data())
def test_detections_cut_between_images_and_joined_again_are_the_same(drawn, data):
    boxes = Detections(**drawn)
    cuts = data.draw(st.lists(st.integers(0, boxes.n_images), max_size=3).map(sorted))
    bounds = [0, *cuts, boxes.n_images]
    parts = [of_images(boxes, a, b) for a, b in pairwise(bounds)]
    assert same(Detections.concatenate(parts), boxes)


@given(columns(), st.data())
def test_selecting_before_or_after_joining_is_the_same(drawn, data):
    boxes = Detections(**drawn)
    marks = st.lists(st.booleans(), min_size=len(boxes), max_size=len(boxes))
    keep = np.array(data.draw(marks), np.bool_)
    cut = data.draw(st.integers(0, boxes.n_images))
    at = boxes.offsets[cut]
    first, second = of_images(boxes, 0, cut), of_images(boxes, cut, boxes.n_images)
    joined = Detections.concatenate([first[keep[:at]], second[keep[at:]]])
    assert same(joined, boxes[keep])
    assert np.array_equal(boxes[keep].image_index, boxes.image_index[keep])


def test_truth_cut_between_images_and_joined_again_is_the_same():
    boxes = truth(is_crowd=[1, 0, 0], areas=[5, 6, 7], superclasses=["a", None, "b"])
    for cut in range(4):
        parts = [of_images(boxes, 0, cut), of_images(boxes, cut, 3)]
        assert same(BoxTruth.concatenate(parts), boxes)
    assert same(BoxTruth.concatenate([boxes]), boxes)


@pytest.mark.parametrize("column", ["logits", "features"])
def test_parts_with_and_without_a_column_cannot_be_joined(column):
    first, second = detections(), detections(image_ids=[1, 2, 3], **{column: np.zeros((3, 2))})
    for parts in ([first, second], [second, first]):
        with pytest.raises(InvalidDataError) as caught:
            Detections.concatenate(parts)
        assert str(caught.value) == (
            f"Some parts have {column} and others do not; pass all or none."
        )


def test_parts_that_share_an_image_cannot_be_joined():
    with pytest.raises(InvalidDataError, match="Image id 9 appears 2 times in Detections"):
        Detections.concatenate([detections(), detections(image_ids=[1, 2, 9])])


@pytest.mark.parametrize(
    "other",
    [
        Classes(("car", "deer", "tree"), CLASSES.roles, CLASSES.superclasses),
        Classes(CLASSES.names, (Role.KNOWN,) * 3, CLASSES.superclasses),
        Classes(CLASSES.names, CLASSES.roles),
    ],
)
def test_parts_of_different_classes_cannot_be_joined(other):
    with pytest.raises(InvalidDataError) as caught:
        BoxTruth.concatenate([truth(), truth(image_ids=[1, 2, 3], classes=other)])
    assert str(caught.value) == "Containers can be joined only if they share one list of classes."


@pytest.mark.parametrize("kind", [Detections, BoxTruth])
def test_nothing_cannot_be_joined(kind):
    with pytest.raises(InvalidDataError) as caught:
        kind.concatenate([])
    assert str(caught.value) == "Expected at least one part to join, got none."


# --- another list of images ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mine", "theirs"), [([7, 0, 9], [9, 3, 7, 0]), (["b", "c", "a"], list("adbc"))]
)
def test_detections_follow_another_list_of_images(mine, theirs):
    boxes = detections(image_ids=mine, features=[[1], [2], [3]])
    moved = boxes.for_images(np.array(theirs))
    assert moved.image_ids.tolist() == theirs
    assert moved.offsets.tolist() == [0, 1, 1, 3, 3]
    assert moved.confidence.tolist() == [1.0, 0.5, 0.25]
    assert moved.features.tolist() == [[3], [1], [2]]
    assert moved.sizes.tolist() == [[0, 4], [4, 4], [3, 6]]


def test_the_same_list_of_images_gives_the_same_detections():
    boxes = detections()
    assert boxes.for_images(np.array([7, 0, 9])) is boxes


def test_an_image_without_a_box_need_not_be_in_the_other_list():
    moved = detections().for_images(np.array([9, 7]))
    assert moved.offsets.tolist() == [0, 1, 3]


@given(columns(), st.data())
def test_there_and_back_again_the_detections_are_the_same(drawn, data):
    boxes = Detections(**drawn)
    silent = [100, 101][: data.draw(st.integers(0, 2))]
    order = data.draw(st.permutations([*boxes.image_ids.tolist(), *silent]))
    moved = boxes.for_images(np.array(order, np.int64))
    assert moved.image_ids.tolist() == order
    assert len(moved) == len(boxes)
    assert same(moved.for_images(boxes.image_ids), boxes)


@pytest.mark.parametrize(
    ("mine", "theirs", "strange", "hint"),
    [
        ([7, 0, 9], [7, 0], "9", ""),
        ([7, 3, 0], [7, 3], "0", ""),
        (["a", "b", "c"], ["a", "b", "cc"], "c", ""),
        (["7", "0", "9"], [7, 0, 9], "7", " (ids are text here and integers there)"),
        ([7, 0, 9], ["7", "0", "9"], "7", " (ids are integers here and text there)"),
        ([7, 0, 9], np.array([7, 0], np.uint32), "9", ""),
    ],
)
def test_a_box_on_an_image_that_is_not_listed_is_refused(mine, theirs, strange, hint):
    with pytest.raises(InvalidDataError) as caught:
        detections(image_ids=mine).for_images(np.array(theirs))
    assert str(caught.value) == (
        f"Image id {strange} has detections but is not among the {len(theirs)} images of the "
        f"truth{hint}; remove them or add the image."
    )


def test_a_repeated_image_in_the_other_list_is_refused():
    with pytest.raises(InvalidDataError, match="Image id 7 appears 2 times in Detections"):
        detections().for_images(np.array([7, 7, 0, 9]))


@pytest.mark.parametrize("theirs", [np.array([3, 4]), np.array(["a", "b"]), np.zeros(0, np.int64)])
def test_detections_of_no_image_follow_any_list(theirs):
    moved = Detections.empty([], CLASSES).for_images(theirs)
    assert moved.image_ids.tolist() == theirs.tolist()
    assert moved.offsets.tolist() == [0] * (len(theirs) + 1)


def test_silent_detections_follow_a_list_of_no_image():
    assert Detections.empty([1, 2], CLASSES).for_images(np.zeros(0, np.int64)).n_images == 0


# --- nobody writes to a container ------------------------------------------------------------


@pytest.mark.parametrize("make", [detections, truth])
def test_no_array_of_a_container_can_be_written_to(make):
    for boxes in (make(), make()[np.array([True, False, True])]):
        for each in fields(boxes):
            column = getattr(boxes, each.name)
            if isinstance(column, np.ndarray):
                with pytest.raises(ValueError, match="read-only"):
                    column[:1] = column[:1]


def test_a_column_cannot_be_replaced():
    with pytest.raises(FrozenInstanceError):
        detections().confidence = np.zeros(3)


def test_the_caller_may_still_write_to_an_array_of_his_own():
    confidence, xyxy = np.array([0.5, 0.2, 0.1]), np.zeros((3, 4))
    logits, areas = np.zeros((3, 2)), np.ones(3)
    detections(confidence=confidence, xyxy=xyxy, logits=logits)
    truth(areas=areas)
    assert all(array.flags.writeable for array in (confidence, xyxy, logits, areas))


@pytest.mark.parametrize(
    ("column", "values", "sentence"),
    [
        (
            "confidence",
            [[0.5], [0.6]],
            "Expected one column as confidence of Detections, got an array",
        ),
        ("confidence", ["high", "low"], "Expected numbers in confidence of Detections"),
        ("class_ids", [0.0, 0.7], "Expected integers in class_ids of Detections, got float64"),
        ("offsets", [0.0, 2.0], "Expected integers in offsets of Detections"),
        ("image_ids", [[7]], "Expected one column as image_ids of Detections"),
        ("image_ids", [7.5], "Expected integers or text as image_ids of Detections, got float64"),
        ("logits", [0.1, 0.2], "Expected a matrix of floats as logits of Detections"),
        ("features", [[1.0], [np.nan]], "features of Detections must be finite, but row 1 holds"),
    ],
)
def test_a_column_of_another_kind_is_refused_and_never_cut_to_fit(column, values, sentence):
    columns = {
        "image_ids": [7],
        "offsets": [0, 2],
        "xyxy": [[0, 0, 4, 4], [1, 1, 5, 5]],
        "confidence": [0.5, 0.6],
        "class_ids": [0, 0],
        "classes": Classes(("car",)),
    }
    with pytest.raises(InvalidDataError, match=sentence):
        Detections(**(columns | {column: values}))


def test_ids_of_both_kinds_are_refused_and_no_ids_are_integers():
    classes = Classes(("car",))
    with pytest.raises(InvalidDataError, match="to be all integers or all text, got both"):
        Detections.empty([1, "one"], classes)
    assert Detections.empty([], classes).image_ids.dtype == np.int64
    joined = Detections.concatenate([Detections.empty([], classes), Detections.empty([1], classes)])
    assert joined.image_ids.tolist() == [1]
    with pytest.raises(InvalidDataError, match="integers as image ids and others text"):
        Detections.concatenate([Detections.empty(["a"], classes), Detections.empty([1], classes)])


def test_negative_areas_are_refused():
    with pytest.raises(
        InvalidDataError, match=r"areas of BoxTruth must not be negative, but row 0"
    ):
        BoxTruth([1], [0, 1], [[0, 0, 4, 4]], [0], Classes(("car",)), areas=[-1.0])


def test_one_bad_box_among_very_many_is_found_and_named():
    n = 5000
    boxes = np.tile([0.0, 0.0, 4.0, 3.0], (n, 1))
    columns = {"confidence": np.full(n, 0.5), "class_ids": np.zeros(n, np.int32)}
    Detections([1], [0, n], boxes, **columns, classes=Classes(("car",)))
    boxes[4321] = [9.0, 0.0, 4.0, 3.0]
    with pytest.raises(InvalidDataError, match=r"x1 <= x2 and y1 <= y2 .* in row 4321\."):
        Detections([1], [0, n], boxes, **columns, classes=Classes(("car",)))


def test_containers_are_shown_in_one_line():
    assert repr(detections()) == "Detections(3 images, 3 boxes, 3 classes)"
    assert repr(truth()) == "BoxTruth(3 images, 3 boxes, 3 classes)"
    assert repr(Classes(("car", "unknown"))) == "Classes(1 known, 1 unknown)"
