"""From a file to a benchmark: what is there, what is partial, what is refused."""

import json
import lzma
import subprocess
import sys
import tarfile
import zipfile
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tests.benchmarks.image_trees import STREET, pixels_of, write_image, write_list, write_street

from incognita.benchmarks.load import draw, load_benchmark
from incognita.containers.dataset import ArrayDataset
from incognita.errors import InvalidDataError, MissingDataError, UnknownNameError


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch, tmp_path_factory):
    monkeypatch.delenv("INCOGNITA_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))


def test_an_own_benchmark_is_one_file_in_any_folder(tmp_path):
    benchmark = load_benchmark(write_street(tmp_path))
    assert benchmark.name == "mine/street"
    assert benchmark.classes == ("stop", "give way")
    assert benchmark.test.image_ids == tuple(
        f"{name}/{k}.png" for name in ("give_way", "stop") for k in range(3)
    )
    assert benchmark.test.labels.tolist() == [1, 1, 1, 0, 0, 0]
    assert benchmark.train.labels.tolist() == [1, 1, 0, 0]
    assert set(benchmark.unknown) == {"near", "far"}
    animals = benchmark.unknown["near"]["animals"]
    assert animals.labels is None
    assert Counter(animals.source_classes) == {"deer": 3, "fox": 2}
    assert benchmark.unknown["far"]["noise"].load(2)[0, 0].tolist() == [202, 10, 20]
    assert benchmark.notes == ()
    assert not benchmark.is_partial


def test_paths_begin_at_the_folder_given_then_at_that_of_the_file(tmp_path, monkeypatch):
    write_street(tmp_path / "data")
    path = tmp_path / "elsewhere.toml"
    path.write_text(STREET)
    assert len(load_benchmark(str(path), data=tmp_path / "data").test.image_ids) == 6
    beside = tmp_path / "data" / "beside.toml"
    beside.write_text(STREET)
    monkeypatch.setenv("INCOGNITA_DATA", str(tmp_path))  # that is for the benchmarks we ship
    assert len(load_benchmark(beside).test.image_ids) == 6
    with pytest.raises(MissingDataError, match="There is no data folder"):
        load_benchmark(path, data=tmp_path / "absent")


def test_a_benchmark_of_ours_without_a_data_folder_says_what_to_do():
    with pytest.raises(MissingDataError, match="`incognita data plan openood/cifar10` lists what"):
        load_benchmark("openood/cifar10")


def test_a_typo_gets_a_suggestion():
    with pytest.raises(UnknownNameError, match=r"Did you mean terra/standard\?"):
        load_benchmark("terra/standrad")


@pytest.mark.parametrize("name", ["terra/standard", "terra/full-spectrum", "digits/standard"])
def test_the_embedded_benchmarks_load_whole(name):
    benchmark = load_benchmark(name)
    assert benchmark.notes == ()
    assert not benchmark.is_partial
    assert set(np.unique(benchmark.test.labels)) == set(range(len(benchmark.classes)))
    assert benchmark.train is not None
    assert benchmark.validation is not None
    assert benchmark.unknown_validation is not None
    assert bool(benchmark.shifted) == benchmark.full_spectrum
    for sets in benchmark.unknown.values():
        for dataset in sets.values():
            assert dataset.labels is None
            assert dataset.load(0).dtype == np.uint8
    labels = benchmark.test.labels
    own = benchmark.test.source_classes
    if own is not None:
        assert [benchmark.classes[k] for k in labels] == list(own)


def test_an_embedded_set_has_as_many_images_as_its_file_says(tmp_path):
    more = '[[set]]\nname = "eight"\nrole = "far"\nkind = "digits"\ndigits = [8]\ncount = 9\n'
    with pytest.raises(InvalidDataError, match="has 174 images, but the definition says 9"):
        load_benchmark(write_street(tmp_path, STREET + more))


def test_missing_images_are_left_out_and_said(tmp_path):
    path = write_street(tmp_path)
    (tmp_path / "noise" / "1.bmp").unlink()
    (tmp_path / "signs" / "test" / "stop" / "0.png").unlink()
    benchmark = load_benchmark(path)
    assert benchmark.unknown["far"]["noise"].image_ids == ("0.bmp", "2.bmp")
    assert benchmark.is_partial
    assert benchmark.metadata["missing"] == {
        "test": {"expected": 6, "found": 5},
        "noise": {"expected": 3, "found": 2},
    }
    assert benchmark.notes == (
        "test: 5 of 6 images found; numbers are partial",
        "noise: 2 of 3 images found; numbers are partial; missing: 1.bmp",
    )


def test_a_set_without_any_image_is_left_out_and_said(tmp_path):
    path = write_street(tmp_path)
    (tmp_path / "lists" / "noise.txt").unlink()
    benchmark = load_benchmark(path)
    assert set(benchmark.unknown) == {"near"}
    assert benchmark.notes == ("noise: none of 3 images found; the set is left out",)
    assert benchmark.metadata["missing"] == {"noise": {"expected": 3, "found": 0}}


@pytest.mark.parametrize(
    ("gone", "lack"),
    [(("signs/test",), "known images"), (("animals", "noise"), "unknown images")],
)
def test_without_known_or_without_unknown_test_images_there_is_no_benchmark(tmp_path, gone, lack):
    path = write_street(tmp_path)
    for name in gone:
        (tmp_path / name).rename(tmp_path / f"{name}-away")
    with pytest.raises(MissingDataError) as caught:
        load_benchmark(path)
    assert f"has no {lack} to test of mine/street (nothing at {tmp_path / gone[0]}" in str(
        caught.value
    )


def test_a_list_of_another_length_is_refused(tmp_path):
    path = write_street(tmp_path)
    write_list(tmp_path / "lists" / "noise.txt", {f"{k}.bmp": -1 for k in range(4)})
    with pytest.raises(InvalidDataError, match=r"lists 4 images, but set 'noise' .* has 3;"):
        load_benchmark(path)


def test_a_folder_with_more_images_than_expected_is_said(tmp_path):
    path = write_street(tmp_path)
    write_image(tmp_path / "signs" / "test" / "stop" / "9.png")
    benchmark = load_benchmark(path)
    assert benchmark.notes[0].startswith("test: 7 images found where 6 were expected")
    assert not benchmark.is_partial


def changed(tmp_path, old: str, new: str):
    assert old in STREET
    return write_street(tmp_path, STREET.replace(old, new))


VALIDATION = '[[set]]\nname = "{0}"\nrole = "{0}"\nkind = "imglist"\nlist = "v.txt"\n'


@pytest.mark.parametrize(
    ("role", "image", "label"),
    [("validation", "signs/test/stop/1.png", 0), ("unknown-validation", "animals/fox/4.jpg", -1)],
)
def test_validation_images_that_are_also_tested_are_refused(tmp_path, role, image, label):
    path = write_street(tmp_path, STREET + VALIDATION.format(role))
    write_list(tmp_path / "v.txt", {image: label})
    with pytest.raises(InvalidDataError) as caught:
        load_benchmark(path)
    assert "1 image of mine/street is in both set" in str(caught.value)
    assert image in str(caught.value)


def test_an_image_that_is_tested_as_known_and_as_unknown_is_refused(tmp_path):
    path = changed(tmp_path, 'path = "animals"', 'path = "signs/test/stop"')
    with pytest.raises(InvalidDataError, match=r"3 images .*'test' \(test\) and set 'animals' \(n"):
        load_benchmark(path)


def test_known_images_that_a_link_brings_into_an_unknown_set_are_refused(tmp_path):
    path = write_street(tmp_path)
    (tmp_path / "animals" / "more").symlink_to(tmp_path / "signs" / "train")
    with pytest.raises(InvalidDataError, match=r"4 images .*'train' \(train\) and set 'animals'"):
        load_benchmark(path)


def test_files_that_are_taken_for_no_images_are_said(tmp_path):
    path = write_street(tmp_path)
    for name in ("a", "b", "c"):
        (tmp_path / "signs" / "test" / "stop" / f"{name}.xyz").write_text("?")
    for old in (tmp_path / "animals").glob("*/*.jpg"):
        old.rename(old.with_suffix(".raw"))
    (tmp_path / "signs" / "train" / "notes.txt").write_text("mine")
    assert load_benchmark(path).notes == (
        "train: 1 file without the suffix of an image is left out, such as notes.txt",
        "test: 3 files without the suffix of an image are left out, such as stop/a.xyz",
        "animals: no image found; the set is left out",
        "animals: 5 files without the suffix of an image are left out, such as deer/0.raw",
    )


def test_a_known_class_among_the_unknown_ones_is_refused_unless_allowed(tmp_path):
    path = write_street(tmp_path)
    write_image(tmp_path / "animals" / "Give-Way" / "1.png")
    with pytest.raises(InvalidDataError, match="holds images of known classes: give way; take"):
        load_benchmark(path)
    allowed = 'path = "animals"\nallowed_classes = ["give_way"]'
    path.write_text(STREET.replace('path = "animals"', allowed))
    assert len(load_benchmark(path).unknown["near"]["animals"].image_ids) == 6


def test_own_classes_of_a_list_come_from_its_folders(tmp_path):
    path = changed(tmp_path, 'root = "noise"', 'root = "."\none_class_per_folder = true')
    for k in range(3):
        write_image(tmp_path / "x" / "stop" / f"{k}.png")
    write_list(tmp_path / "lists" / "noise.txt", {f"x/stop/{k}.png": -1 for k in range(3)})
    with pytest.raises(InvalidDataError, match=r"Set 'noise' .* known classes: stop"):
        load_benchmark(path)


@pytest.mark.parametrize(
    ("labels", "role", "sentence"),
    [
        ([0, 1, 2], "validation", "Expected class_ids of Set 'noise' of mine/street from 0 to 1"),
        ([-1, -1, -1], "validation", "but its images carry no class (label -1)"),
        ([0, 1, 1], "far", "but its images carry the numbers of known classes"),
    ],
)
def test_labels_must_fit_the_role_and_the_classes(tmp_path, labels, role, sentence):
    path = changed(tmp_path, 'role = "far"', f'role = "{role}"')
    write_list(tmp_path / "lists" / "noise.txt", {f"{k}.bmp": n for k, n in enumerate(labels)})
    with pytest.raises(InvalidDataError) as caught:
        load_benchmark(path)
    assert sentence in str(caught.value)


def test_a_folder_that_is_no_known_class_is_refused_unless_mapped(tmp_path):
    path = write_street(tmp_path)
    write_image(tmp_path / "signs" / "test" / "halt" / "1.png")
    with pytest.raises(InvalidDataError, match="No class of mine/street is called 'halt'"):
        load_benchmark(path)
    mapped = 'path = "signs/test"\nfolders = { halt = "stop" }'
    path.write_text(STREET.replace('path = "signs/test"', mapped))
    assert Counter(load_benchmark(path).test.labels.tolist()) == {0: 4, 1: 3}


def test_known_images_outside_a_class_are_refused(tmp_path):
    path = write_street(tmp_path)
    write_image(tmp_path / "signs" / "test" / "1.png")
    with pytest.raises(InvalidDataError, match="holds images outside any folder"):
        load_benchmark(path)


def test_classes_may_be_a_file_or_a_number(tmp_path):
    path = changed(tmp_path, '["stop", "give way"]', '"names.txt"')
    with pytest.raises(MissingDataError, match="There is no list of class names"):
        load_benchmark(path)
    (tmp_path / "names.txt").write_text("give way\nstop\n\n")
    assert load_benchmark(path).test.labels.tolist() == [0, 0, 0, 1, 1, 1]
    (tmp_path / "names.txt").write_text("stop\nstop\n")
    with pytest.raises(InvalidDataError, match="must name every class once"):
        load_benchmark(path)
    path.write_text(STREET.replace('["stop", "give way"]', "2"))
    with pytest.raises(InvalidDataError, match="but the definition gives no names"):
        load_benchmark(path)


LISTS = """
name = "lists"
version = 3
title = "Numbers for classes"
classes = 4
[[set]]
name = "test"
role = "test"
kind = "imglist"
list = "test.txt"
[[set]]
name = "far"
role = "far"
kind = "folder"
path = "far"
one_class_per_folder = false
"""


def numbered(tmp_path, per_class: tuple[int, ...] = (40, 40, 20, 20)):
    rows = {}
    for label, n in enumerate(per_class):
        for k in range(n):
            write_image(tmp_path / "images" / f"{label}-{k}.png")
            rows[f"images/{label}-{k}.png"] = label
    for k in range(9):
        write_image(tmp_path / "far" / "0" / f"{k}.png")
    write_list(tmp_path / "test.txt", rows)
    (tmp_path / "lists.toml").write_text(LISTS)
    return tmp_path / "lists.toml"


def test_classes_without_names_are_numbers_and_match_no_folder(tmp_path):
    benchmark = load_benchmark(numbered(tmp_path))
    assert benchmark.classes == ("0", "1", "2", "3")
    assert benchmark.unknown["far"]["far"].source_classes is None


def test_a_limit_keeps_the_proportions_of_the_classes(tmp_path):
    path = numbered(tmp_path)
    benchmark = load_benchmark(path, limit=12, seed=3)
    assert Counter(benchmark.test.labels.tolist()) == {0: 4, 1: 4, 2: 2, 3: 2}
    assert len(benchmark.unknown["far"]["far"].image_ids) == 9
    (note,) = benchmark.notes
    assert note.startswith("at most 12 images of each set, ten times as many for training")
    assert benchmark.metadata["limit"] == 12
    assert not benchmark.is_partial
    again = load_benchmark(path, limit=12, seed=3)
    assert again.test.image_ids == benchmark.test.image_ids
    assert load_benchmark(path, limit=12, seed=4).test.image_ids != benchmark.test.image_ids
    with pytest.raises(InvalidDataError, match="Expected limit to be at least 1, got 0"):
        load_benchmark(path, limit=0)


def test_every_image_is_drawn_equally_often():
    ids = tuple(str(k) for k in range(10))
    pictures = ArrayDataset("ten", ids, np.zeros((10, 1, 1, 3), np.uint8), np.repeat([0, 1], 5))
    drawn = Counter(i for seed in range(2000) for i in draw(pictures, 4, seed, "ten").image_ids)
    expected = 2000 * 4 / 10
    spread = np.sqrt(2000 * 0.4 * 0.6)
    assert len(drawn) == 10
    assert all(abs(n - expected) < 4.5 * spread for n in drawn.values())


@pytest.mark.data
def test_real_images_in_part_are_the_published_benchmark_in_part(data_dir, tmp_path):
    """CIFAR-10 against Tiny ImageNet, as far as the folder with real data holds them."""
    with (
        lzma.open(data_dir / "lists" / "openood_benchmark_imglist.tar.xz") as stream,
        tarfile.open(fileobj=stream) as tar,
    ):
        tar.extractall(tmp_path, filter="data")
    classic = tmp_path / "images_classic"
    with zipfile.ZipFile(data_dir / "classification" / "tin" / "val_subset.zip") as archive:
        for name in archive.namelist()[:300]:
            path = classic / "tin" / "val" / "images" / Path(name).name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(archive.read(name))
    tiles = pixels_of(data_dir / "classification" / "cifar10" / "test.webp")
    tiles = tiles.reshape(-1, 32, 100, 32, 3).transpose(0, 2, 1, 3, 4).reshape(-1, 32, 32, 3)
    labels = json.loads((data_dir / "classification" / "cifar10" / "labels.json").read_text())
    truck = [k for k, label in enumerate(labels["test_labels"]) if label == 9]
    for place, k in enumerate(truck[:100], start=1):  # files are numbered from 1 in each class
        path = classic / "cifar10" / "test" / "truck" / f"{place:04d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(tiles[k]).save(path)

    benchmark = load_benchmark("openood/cifar10", data=tmp_path)
    n_validation = len(benchmark.validation.image_ids)
    assert n_validation + len(benchmark.test.image_ids) == 100
    assert 0 < n_validation < 30
    assert set(benchmark.test.labels) == {9}
    first = int(Path(benchmark.test.image_ids[0]).stem) - 1
    np.testing.assert_array_equal(benchmark.test.load(0), tiles[truck[first]])
    assert list(benchmark.unknown) == ["near"]
    assert len(benchmark.unknown["near"]["tin"].image_ids) == 300
    partial = "tin: 300 of 7,793 images found; numbers are partial; missing: "
    (note,) = [each for each in benchmark.notes if each.startswith(partial)]
    assert note.endswith(" and 7,490 more")
    assert note.count(".JPEG") == 3
    assert "mnist: none of 70,000 images found; the set is left out" in benchmark.notes
    assert benchmark.metadata["missing"]["svhn"] == {"expected": 26_032, "found": 0}


def test_loading_never_imports_torch():
    code = "import incognita.benchmarks.data_plan, sys; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"torch", "sklearn", "pandas", "numba"} & set(run.stdout.split())


def test_data_sets_and_readers_never_wait_for_pydantic():
    modules = (
        "benchmarks.benchmark, containers.dataset, formats.images, formats.coco_annotations, "
        "formats.coco_results"
    )
    code = "; ".join(f"import incognita.{name}" for name in modules.split(", "))
    run = subprocess.run(
        [sys.executable, "-c", f"{code}; import sys; print(*sys.modules)"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "pydantic" not in run.stdout.split()
