"""Tables of scores: every way people write them, and one sentence for what is wrong."""

import numpy as np
import pandas
import polars
import pytest

from incognita.errors import InvalidDataError, MissingDataError
from incognita.formats import load_scores

COLUMNS = {
    "image": ["a.png", "b.png", "c.png", "a.png"],
    "score": [0.5, -1.5, 3e5, 0.25],
    "is_unknown": [False, False, True, False],
    "label": ["cat", "dog", None, "cat"],
    "predicted": ["cat", "cat", "cat", "dog"],
}


def assert_columns(table) -> None:
    assert table.score.tolist() == COLUMNS["score"]
    assert table.is_unknown.tolist() == COLUMNS["is_unknown"]
    assert table.is_wrong.tolist() == [False, True, False, True]
    assert table.image_index.tolist() == [0, 1, 2, 0]
    assert (len(table), table.n_images) == (4, 3)


def test_parquet_csv_frames_and_columns_are_the_same_table(tmp_path):
    frame = polars.DataFrame(COLUMNS)
    frame.write_parquet(tmp_path / "scores.parquet")
    frame.write_csv(tmp_path / "scores.CSV")
    for scores in (tmp_path / "scores.parquet", str(tmp_path / "scores.CSV"), frame, COLUMNS):
        assert_columns(load_scores(scores))


def test_files_of_pandas_are_read(tmp_path):
    pytest.importorskip("pyarrow", reason="pandas writes Parquet with it")
    frame = pandas.DataFrame(COLUMNS)
    frame.to_csv(tmp_path / "scores.csv")  # with True and False, and a column of row numbers
    assert_columns(load_scores(tmp_path / "scores.csv"))
    frame.astype({"label": "category"}).to_parquet(tmp_path / "scores.parquet")
    assert_columns(load_scores(tmp_path / "scores.parquet"))


@pytest.mark.parametrize(
    "written",
    [[0, 0, 1, 0], ["0", "0", "1", "0"], [0.0, 0.0, 1.0, 0.0], ["False"] * 2 + ["TRUE ", "false"]],
)
def test_truth_may_be_written_in_several_ways(written):
    assert load_scores(COLUMNS | {"is_unknown": written}).is_unknown.tolist() == [0, 0, 1, 0]


def test_classes_as_numbers_are_compared_as_numbers(tmp_path):
    numbers = {"label": [1.0, 2.0, None, 1.0], "predicted": [1, 1, 1, 2]}
    assert_columns(load_scores(COLUMNS | numbers))
    polars.DataFrame(COLUMNS | numbers).write_csv(tmp_path / "scores.csv")  # "1.0" beside "1"
    assert_columns(load_scores(tmp_path / "scores.csv"))


def test_without_both_classes_nothing_is_known_about_them():
    for name in ("label", "predicted"):
        columns = {key: value for key, value in COLUMNS.items() if key != name}
        assert load_scores(columns).is_wrong is None


def test_numbered_images_and_arrays_are_accepted():
    columns = {"image": np.arange(4), "score": np.arange(4), "is_unknown": np.arange(4) > 1}
    table = load_scores(columns)
    assert table.n_images == 4
    assert table.score.dtype == np.float64
    assert table.count_images(table.is_unknown) == 2


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"score": [0.5, None, 3.0, 1.0]}, "a finite number in column score .* got None in row 2"),
        ({"score": [0.5, 1.0, np.nan, 1.0]}, "a finite number in column score .* row 3"),
        ({"score": [0.5, np.inf, 3.0, 1.0]}, "a finite number in column score .* got inf in row 2"),
        ({"score": ["0.5", "NA", "x", "1"]}, "got 'NA' in row 2 and 1 more. Repair or drop"),
        ({"score": [[1.0]] * 4}, "a finite number in column score"),
        ({"score": [True, False, True, True]}, "a finite number in column score"),
        ({"is_unknown": [False, None, True, False]}, "true or false in column is_unknown .* row 2"),
        ({"is_unknown": [0, -1, 1, 0]}, "true or false in column is_unknown .* got -1 in row 2"),
        ({"is_unknown": ["no", "no", "yes", "no"]}, "true or false .* got 'no' in row 1"),
        ({"image": ["a", None, "b", "c"]}, "a value in column image .* got None in row 2"),
        ({"label": [None, "dog", None, "cat"]}, "a class for every known image in column label"),
        ({"predicted": ["cat", None, None, "cat"]}, "every known image in column predicted"),
        ({"predicted": [0, 1, 2, 3]}, "label and predicted in the same terms"),
        ({"score": [1.0]}, "Expected columns of one length, got {.*'score': 1"),
    ],
)
def test_cells_that_are_wrong_are_named(change, sentence):
    with pytest.raises(InvalidDataError, match=sentence):
        load_scores(COLUMNS | change)


def test_missing_columns_and_rows_are_refused():
    with pytest.raises(InvalidDataError, match="image, score, is_unknown in the table, got image"):
        load_scores({"image": ["a"]})
    with pytest.raises(InvalidDataError, match="Expected rows in the table, got none"):
        load_scores({name: [] for name in COLUMNS})
    with pytest.raises(InvalidDataError, match=r"Expected the path .* got list"):
        load_scores([1, 2])


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("scores.csv", b"", "cannot be read"),
        ("scores.csv", b"image,score\n1,2,3,4\n", "cannot be read"),
        ("scores.csv", b"\xff\xfe\x00", "cannot be read|Expected the columns"),
        ("scores.parquet", b"PAR1 but not really", "cannot be read"),
        ("scores.txt", b"image", "ends in .csv or .parquet, got scores.txt"),
    ],
)
def test_files_that_are_wrong_get_one_sentence(tmp_path, name, content, sentence):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InvalidDataError, match=sentence) as caught:
        load_scores(tmp_path / name)
    assert "\n" not in str(caught.value)


def test_a_file_that_does_not_exist_is_missing(tmp_path):
    with pytest.raises(MissingDataError, match="There is no table of scores at"):
        load_scores(tmp_path / "scores.csv")
