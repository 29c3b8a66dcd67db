"""Unknown scores with their truth: what the door refuses, and what selecting and joining keep."""

from dataclasses import FrozenInstanceError

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from incognita.containers.scores import UnknownScores
from incognita.errors import InvalidDataError


def scores(**changes) -> UnknownScores:
    columns = {
        "image_ids": ["a", "b", "a"],
        "unknown_score": [0.25, -3.0, 7.0],
        "is_unknown": [False, True, True],
        "method": "energy",
    }
    return UnknownScores(**(columns | changes))


def test_an_image_may_have_several_rows():
    assert len(scores()) == 3
    assert scores().image_ids.tolist() == ["a", "b", "a"]


def test_image_ids_may_be_integers_and_0_is_one():
    assert scores(image_ids=[0, 0, 4]).image_ids.tolist() == [0, 0, 4]


def test_scores_keep_float32_and_make_all_else_float64():
    assert scores(unknown_score=np.ones(3, np.float32)).unknown_score.dtype == np.float32
    assert scores(unknown_score=[1, 2, 3]).unknown_score.dtype == np.float64


def test_the_truth_may_come_as_0_and_1():
    assert scores(is_unknown=[0, 1, 1]).is_unknown.tolist() == [False, True, True]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            {"unknown_score": [0.1, 0.2]},
            "UnknownScores need columns of one length, "
            "but image_ids has 3 rows and unknown_score has 2.",
        ),
        (
            {"is_unknown": [True]},
            "UnknownScores need columns of one length, "
            "but image_ids has 3 rows and is_unknown has 1.",
        ),
        (
            {"unknown_score": [0.1, np.nan, 0.2]},
            "unknown_score of UnknownScores must be finite, but row 1 holds nan.",
        ),
        (
            {"unknown_score": [0.1, 0.2, 1j]},
            "unknown_score of UnknownScores must be real numbers, but complex ones came.",
        ),
        (
            {"unknown_score": [0.1, 0.2, np.inf]},
            "unknown_score of UnknownScores must be finite, but row 2 holds inf.",
        ),
    ],
)
def test_columns_that_do_not_fit_are_refused(changes, sentence):
    with pytest.raises(InvalidDataError) as caught:
        scores(**changes)
    assert str(caught.value) == sentence


def test_a_mask_keeps_rows_and_the_method():
    kept = scores()[np.array([True, False, True])]
    assert kept.image_ids.tolist() == ["a", "a"]
    assert kept.unknown_score.tolist() == [0.25, 7.0]
    assert kept.is_unknown.tolist() == [False, True]
    assert kept.method == "energy"


def test_a_mask_may_keep_everything_or_nothing():
    assert scores()[np.ones(3, np.bool_)].unknown_score.tolist() == [0.25, -3.0, 7.0]
    assert len(scores()[np.zeros(3, np.bool_)]) == 0


@pytest.mark.parametrize("n_marks", [0, 2, 4])
def test_a_mask_of_another_length_is_refused(n_marks):
    with pytest.raises(InvalidDataError) as caught:
        scores()[np.zeros(n_marks, np.bool_)]
    assert str(caught.value) == (
        f"A mask over UnknownScores needs one mark per row, 3, but {n_marks} came."
    )


@pytest.mark.parametrize(
    "wrong",
    [np.array([0, 1, 2]), [True, False, True], slice(0, 2), np.ones((3, 1), np.bool_)],
    ids=["index array", "list", "slice", "column"],
)
@pytest.mark.usefixtures("outside_tests")
def test_scores_are_chosen_by_a_mask_of_booleans_and_nothing_else(wrong):
    with pytest.raises(InvalidDataError) as caught:
        scores()[wrong]
    assert str(caught.value) == (
        f"UnknownScores are chosen by a mask of booleans, one per row, but {wrong!r} came."
    )


def test_there_may_be_no_scores():
    empty = UnknownScores.empty("energy")
    assert len(empty) == 0
    assert empty.method == "energy"
    assert len(UnknownScores.empty()) == 0
    joined = UnknownScores.concatenate([empty, scores(image_ids=[5, 6, 5])])
    assert joined.image_ids.tolist() == [5, 6, 5]


@given(st.lists(st.booleans(), max_size=6))
def test_rows_that_are_split_by_a_mask_and_joined_come_back(marks):
    keep, n = np.array(marks, np.bool_), len(marks)
    whole = UnknownScores(np.arange(n), np.arange(n) / 4, keep)
    joined = UnknownScores.concatenate([whole[keep], whole[~keep]])
    order = np.argsort(joined.image_ids)
    assert joined.image_ids[order].tolist() == whole.image_ids.tolist()
    assert joined.unknown_score[order].tolist() == whole.unknown_score.tolist()
    assert joined.is_unknown[order].tolist() == whole.is_unknown.tolist()


def test_scores_of_different_methods_cannot_be_joined():
    with pytest.raises(InvalidDataError) as caught:
        UnknownScores.concatenate([scores(method="msp"), scores()])
    assert str(caught.value) == ("Scores of different methods cannot be joined: ['energy', 'msp'].")


def test_nothing_cannot_be_joined():
    with pytest.raises(InvalidDataError, match=r"^There is nothing to join; give at least one"):
        UnknownScores.concatenate([])


def test_nobody_writes_to_scores_but_the_caller_to_his_own_array():
    given_scores = np.array([0.1, 0.2, 0.3])
    held = scores(unknown_score=given_scores)
    for column in (held.image_ids, held.unknown_score, held.is_unknown):
        with pytest.raises(ValueError, match="read-only"):
            column[0] = column[1]
    assert given_scores.flags.writeable
    with pytest.raises(FrozenInstanceError):
        held.method = "msp"
