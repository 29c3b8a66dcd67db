"""Lists in OpenOOD's format: what they say, and what is refused."""

import lzma
import tarfile

import numpy as np
import pytest
from tests.benchmarks.image_trees import write_list

from incognita.benchmarks.sources.imglist import load_imglist
from incognita.errors import InvalidDataError, MissingDataError


def test_a_line_is_a_path_and_a_class(tmp_path):
    listed = load_imglist(write_list(tmp_path / "a.txt", {"cat/1.png": 3, "dog/2.png": 0}))
    assert listed.paths == ("cat/1.png", "dog/2.png")
    np.testing.assert_array_equal(listed.labels, [3, 0])


def test_the_last_blank_separates_and_blanks_at_the_end_do_not_count(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes("\ufeffa b/c d.png 1 \r\n\r\nx.png   2\t\n".encode())
    listed = load_imglist(path)
    assert listed.paths == ("a b/c d.png", "x.png")
    assert listed.labels.tolist() == [1, 2]


def test_minus_one_is_no_class(tmp_path):
    assert load_imglist(write_list(tmp_path / "a.txt", {"1.png": -1, "2.png": -1})).labels is None


def test_a_path_is_given_in_its_shortest_form(tmp_path):
    assert load_imglist(write_list(tmp_path / "a.txt", ["./a//b.png 0"])).paths == ("a/b.png",)


@pytest.mark.parametrize(
    ("lines", "sentence"),
    [
        (['a.png { "group_label": 0 ,"class_label": 0 }'], "line 1 holds labels in braces"),
        (["a.png 0", "b.png"], "line 2 is not a path, a blank and the number of a class"),
        (["a.png zero"], "line 1 is not a path, a blank"),
        (["7"], "line 1 is not a path, a blank"),
        (["a.png 1000000000000000000000000000000"], "line 1 is not a path, a blank"),
        (["/etc/passwd 0"], "'/etc/passwd', which leads out of the image folder"),
        (["a/../../b.png 0"], "leads out of the image folder"),
        (["C:/b.png 0"], "leads out of the image folder"),
        (["a.png 0", "./a.png 1"], "lists 'a.png' twice"),
        (["a.png -1", "b.png 0"], "mixes known images with 1 unknown ones"),
        (["a.png -2"], "holds the label -2"),
        (["", " "], "lists no image"),
    ],
)
def test_what_does_not_name_one_image_and_one_class_is_refused(tmp_path, lines, sentence):
    path = write_list(tmp_path / "a.txt", lines)
    with pytest.raises(InvalidDataError) as caught:
        load_imglist(path)
    assert sentence in str(caught.value)
    assert str(path) in str(caught.value)


def test_a_list_that_is_absent_or_binary_is_refused(tmp_path):
    with pytest.raises(MissingDataError, match="There is no image list at"):
        load_imglist(tmp_path / "absent.txt")
    (tmp_path / "image.txt").write_bytes(b"\x89PNG\xff")
    with pytest.raises(InvalidDataError, match="is not UTF-8 text"):
        load_imglist(tmp_path / "image.txt")


@pytest.mark.data
def test_the_published_lists_have_as_many_lines_as_a_plain_count(data_dir, tmp_path):
    archive = data_dir / "lists" / "openood_benchmark_imglist.tar.xz"
    with lzma.open(archive) as stream, tarfile.open(fileobj=stream) as tar:
        tar.extractall(tmp_path, filter="data")
    paths = sorted(tmp_path.rglob("*.txt"))
    assert len(paths) == 26
    for path in paths:
        content = path.read_bytes()
        if content.count(b"\n") <= 10_000:  # the long ones are slow under the type checker
            listed = load_imglist(path)
            assert len(listed.paths) == content.count(b"\n")
            assert (listed.labels is None) == (b" -1" in content)
