"""`incognita corrupt`: a folder in, the same tree out, and what was left out."""

import csv

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from incognita.benchmarks.corruptions import corrupt, kinds_of
from incognita.cli import corrupt as corrupt_module
from incognita.cli.app import app

NAMES = ("a.jpg", "b.PNG", "deep/er/c.png", "deep/d.jpeg")


@pytest.fixture
def run():
    return lambda *arguments: CliRunner().invoke(app, ["corrupt", *map(str, arguments)])


@pytest.fixture
def images(tmp_path):
    """Four pictures in three folders, and a text between them."""
    rng = np.random.default_rng(0)
    for name in NAMES:
        path = tmp_path / "in" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (40, 50, 3), np.uint8)).save(path)
    (tmp_path / "in" / "notes.txt").write_text("not an image")
    return tmp_path / "in"


def pixels(path) -> np.ndarray:
    return np.asarray(Image.open(path))


def test_the_same_tree_comes_out_without_loss(run, images, tmp_path):
    out = tmp_path / "out"
    done = run(images, out, "--kind", "snow", "--severity", 2)
    assert done.exit_code == 0, done.output
    assert "4 images in" in done.stdout
    assert "Skipped 1 file that is not an image." in done.stdout
    assert "snow, severity 2: 4 images" in done.stderr
    for name in NAMES:
        expected = corrupt(pixels(images / name), "snow", 2, image_id=name)
        assert np.array_equal(pixels((out / name).with_suffix(".png")), expected), name


def test_a_list_draws_a_kind_for_each_image_and_writes_it_down(run, images, tmp_path):
    first, second = tmp_path / "one", tmp_path / "two"
    assert run(images, first, "--kind", "saod", "--seed", 5).exit_code == 0
    assert run(images, second, "--kind", "saod", "--seed", 5, "--workers", 2).exit_code == 0
    rows = list(csv.DictReader((first / "corruptions.csv").read_text().splitlines()))
    assert [row["image"] for row in rows] == sorted(NAMES)
    assert {row["kind"] for row in rows} <= set(kinds_of("saod"))
    for row in rows:
        image = pixels(images / row["image"])
        expected = corrupt(image, row["kind"], 3, image_id=row["image"], seed=5)
        assert np.array_equal(pixels(first / row["file"]), expected)
        assert np.array_equal(pixels(second / row["file"]), expected)


def test_jpeg_of_a_quality_on_request(run, images, tmp_path):
    assert run(images, tmp_path / "out", "--kind", "fog", "--jpeg", 90).exit_code == 0
    with Image.open(tmp_path / "out" / "b.jpg") as image:
        assert image.format == "JPEG"


def test_a_file_that_cannot_be_read_is_named_and_the_rest_is_done(run, images, tmp_path):
    (images / "broken.png").write_bytes(b"nothing")
    done = run(images, tmp_path / "out", "--kind", "fog")
    assert done.exit_code == 4
    assert "broken.png cannot be read as an image" in done.stdout
    assert (tmp_path / "out" / "a.png").is_file()
    assert "broken" not in (tmp_path / "out" / "corruptions.csv").read_text()


@pytest.mark.parametrize("inside", [".", "out", "deep/out", ".."])
def test_folders_inside_each_other_are_refused(run, images, inside):
    done = run(images, images / inside, "--kind", "fog")
    assert "one inside the other" in str(done.exception)
    assert not list(images.rglob("corruptions.csv"))


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--kind", "fgo"), "Did you mean fog?"),
        (("--kind", "fog", "--severity", 6), "Expected a severity from 1 to 5, got 6."),
        (("--kind", "fog", "--severity", 0), "Expected a severity from 1 to 5, got 0."),
    ],
)
def test_wrong_options_get_a_sentence(run, images, tmp_path, arguments, sentence):
    done = run(images, tmp_path / "out", *arguments)
    assert sentence in str(done.exception)
    assert not (tmp_path / "out").exists()


def test_two_images_of_one_name_are_refused(run, images, tmp_path):
    Image.new("RGB", (8, 8)).save(images / "a.png")
    done = run(images, tmp_path / "out", "--kind", "fog")
    assert "a.jpg and a.png would both become" in str(done.exception)


def test_a_folder_without_images_is_missing_data(run, tmp_path):
    (tmp_path / "empty").mkdir()
    assert "There is no image in" in str(
        run(tmp_path / "empty", tmp_path / "o", "--kind", "fog").exception
    )
    assert "There is no folder" in str(
        run(tmp_path / "none", tmp_path / "o", "--kind", "fog").exception
    )


def test_files_of_others_are_never_replaced(run, images, tmp_path):
    out = tmp_path / "mine"
    out.mkdir()
    (out / "a.png").write_text("somebody's")
    done = run(images, out, "--kind", "fog")
    assert done.exit_code != 0
    assert "Name another folder as OUT" in str(done.exception)
    assert (out / "a.png").read_text() == "somebody's"
    assert [path.name for path in out.iterdir()] == ["a.png"]


def test_a_killed_run_can_be_started_again(run, images, tmp_path, monkeypatch):
    def stopped(*_):
        raise KeyboardInterrupt

    out = tmp_path / "out"
    with monkeypatch.context() as patch:
        patch.setattr("incognita.cli.corrupt._results", stopped)
        run(images, out, "--kind", "fog")
    (out / "a.png").write_text("half of it")
    done = run(images, out, "--kind", "fog")
    assert done.exit_code == 0, done.output
    assert pixels(out / "a.png").shape == (40, 50, 3)


def test_an_interrupted_run_lists_only_images_in_that_form(run, images, tmp_path, monkeypatch):
    out = tmp_path / "out"
    assert run(images, out, "--kind", "fog").exit_code == 0
    calls = []

    def stopped(job):
        calls.append(job)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return corrupt_file(job)

    corrupt_file = corrupt_module._corrupt_file
    monkeypatch.setattr(corrupt_module, "_corrupt_file", stopped)
    run(images, out, "--kind", "snow", "--severity", 2)
    rows = list(csv.DictReader((out / "corruptions.csv").read_text().splitlines()))
    assert [row["image"] for row in rows] == sorted(NAMES)[:2]
    for row in rows:
        image = pixels(images / row["image"])
        expected = corrupt(image, row["kind"], int(row["severity"]), image_id=row["image"])
        assert np.array_equal(pixels(out / row["file"]), expected)


def test_every_format_of_the_reader_is_corrupted(run, tmp_path):
    names = ("a.gif", "b.ppm", "c.bmp", "d.webp", "e.tiff", "f.jpg", "g.png")
    (tmp_path / "in").mkdir()
    for name in names:
        Image.new("RGB", (40, 40), "gray").save(tmp_path / "in" / name)
    done = run(tmp_path / "in", tmp_path / "out", "--kind", "fog")
    assert done.exit_code == 0, done.output
    assert len(list((tmp_path / "out").glob("*.png"))) == len(names)


def test_a_negative_seed_is_refused(run, images, tmp_path):
    done = run(images, tmp_path / "out", "--kind", "fog", "--seed", -1)
    assert done.exit_code == 2
    assert not (tmp_path / "out").exists()
