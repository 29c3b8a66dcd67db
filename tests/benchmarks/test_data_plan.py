"""What a benchmark needs, and what of it is there."""

import pytest
from tests.benchmarks.image_trees import STREET, write_image, write_list, write_street

from incognita.benchmarks.data_plan import Verdict, check, plan, total_megabytes, verdict
from incognita.benchmarks.definition_files import find_definition
from incognita.errors import InvalidDataError


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch):
    monkeypatch.delenv("INCOGNITA_DATA", raising=False)


def test_a_plan_names_every_set_with_its_source():
    rows = {row.set: row for row in plan(find_definition("openood/cifar10").definition)}
    assert len(rows) == 11
    tin = rows["tin"]
    assert (tin.role, tin.images, tin.source) == ("near", 7_793, "Tiny ImageNet")
    assert tin.place == "images_classic, listed in benchmark_imglist/cifar10/test_tin.txt"
    assert tin.published.startswith("http")
    assert "ImageNet" in tin.license


def test_a_folder_belongs_where_its_path_says(tmp_path):
    rows = plan(find_definition(write_street(tmp_path)).definition)
    assert [row.place for row in rows[:3]] == ["signs/train", "signs/test", "animals"]


def test_a_source_that_several_sets_share_is_counted_once():
    definition = find_definition("openood/cifar10").definition
    rows = plan(definition)
    assert total_megabytes(rows) == sum(each.megabytes for each in definition.sources.values())
    assert total_megabytes(plan(find_definition("terra/standard").definition)) == 0


def test_a_whole_benchmark_is_complete(tmp_path):
    rows = check(find_definition(write_street(tmp_path)))
    assert [(row.set, row.found, row.expected) for row in rows] == [
        ("train", 4, None), ("test", 6, 6), ("animals", 5, None), ("noise", 3, 3),
    ]  # fmt: skip
    assert verdict(rows) is Verdict.COMPLETE


def test_what_is_missing_is_named(tmp_path):
    path = write_street(tmp_path)
    (tmp_path / "noise" / "1.bmp").unlink()
    rows = check(find_definition(path))
    assert rows[3].found == 2
    assert rows[3].missing == (str(tmp_path / "noise" / "1.bmp"),)
    assert verdict(rows) is Verdict.PARTIAL


def test_at_most_five_missing_paths_are_named(tmp_path):
    path = write_street(tmp_path, STREET.replace("count = 3", "count = 9"))
    write_list(tmp_path / "lists" / "noise.txt", {f"{k}.bmp": -1 for k in range(9)})
    row = check(find_definition(path))[3]
    assert (row.found, row.expected, len(row.missing)) == (3, 9, 5)


@pytest.mark.parametrize("gone", [("signs/test",), ("animals", "noise")])
def test_without_a_test_set_or_any_unknown_set_nothing_can_run(tmp_path, gone):
    path = write_street(tmp_path)
    for name in gone:
        (tmp_path / name).rename(tmp_path / f"{name}-away")
    assert verdict(check(find_definition(path))) is Verdict.MISSING


def test_a_wrong_list_is_told_beside_the_others(tmp_path):
    path = write_street(tmp_path)
    write_list(tmp_path / "lists" / "noise.txt", {"1.bmp": -1})
    rows = check(find_definition(path))
    assert "lists 1 images" in rows[3].problem
    assert rows[2].is_complete
    assert not rows[3].is_complete
    assert verdict(rows) is Verdict.PARTIAL


def test_an_overlap_is_refused_as_loading_does(tmp_path):
    path = write_street(tmp_path, STREET.replace('"animals"\n', '"signs/test/stop"\n'))
    path.write_text(path.read_text().replace('name = "signs/test/stop"', 'name = "animals"'))
    with pytest.raises(InvalidDataError, match="are in both set"):
        check(find_definition(path))


def test_damaged_images_are_found_by_their_headers_and_ends(tmp_path):
    path = write_street(tmp_path)
    animals = sorted((tmp_path / "animals").rglob("*.*"))
    whole = write_image(tmp_path / "whole.png", size=(64, 64)).read_bytes()
    animals[0].write_bytes(b"")
    animals[1].unlink()
    animals[1].symlink_to(tmp_path / "nowhere.png")
    animals[2].write_bytes(whole[: len(whole) // 2])
    animals[3].write_bytes(b"no image at all")
    row = check(find_definition(path))[2]
    assert row.n_damaged == 4
    for place, words in enumerate(("is empty", "a link to a file that is missing", "truncated")):
        assert str(animals[place]) in row.damaged[place]
        assert words in row.damaged[place]
    assert "cannot be read as an image" in row.damaged[3]
    assert not row.is_complete
    assert verdict(check(find_definition(path))) is Verdict.PARTIAL


def test_only_decoding_finds_damage_inside_a_file(tmp_path):
    path = write_street(tmp_path)
    image = tmp_path / "animals" / "inside.png"
    content = bytearray(write_image(image, size=(64, 64)).read_bytes())
    start = content.index(b"IDAT") + 8
    content[start : start + 12] = bytes(12)
    image.write_bytes(content)
    assert check(find_definition(path))[2].n_damaged == 0
    row = check(find_definition(path), deep=True)[2]
    assert [str(image) in problem for problem in row.damaged] == [True]


def test_a_check_reports_its_progress(tmp_path):
    calls = []
    check(find_definition(write_street(tmp_path)), on_progress=lambda *call: calls.append(call))
    assert calls[-1] == ("noise", 3, 3)
    assert ("animals", 2, 5) in calls


def test_sets_of_damaged_images_only_cannot_be_tested(tmp_path):
    path = write_street(tmp_path)
    for image in (tmp_path / "signs" / "test").rglob("*.*"):
        image.write_bytes(b"")
    assert verdict(check(find_definition(path))) is Verdict.MISSING
