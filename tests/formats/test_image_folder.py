"""Folders of images, and image files as a data set."""

import os
import pickle
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tests.benchmarks.image_trees import pixels_of, write_image

from incognita.benchmarks.sources.folder import list_files
from incognita.containers.dataset import Dataset
from incognita.errors import InvalidDataError, MissingDataError
from incognita.formats import images as content_hashes
from incognita.formats.images import FileDataset, are_present, identities, load_image


def test_images_are_listed_by_name_whatever_their_depth(tmp_path):
    for name in ("b/2.PNG", "b/deep/er/1.jpeg", "a.gif", "b/10.webp", "c/x.bmp"):
        write_image(tmp_path / name)
    (tmp_path / "b" / "notes.txt").write_text("no image")
    images = list_files(tmp_path).images
    assert images == ("a.gif", "b/10.webp", "b/2.PNG", "b/deep/er/1.jpeg", "c/x.bmp")


def test_files_that_are_no_images_are_listed_too(tmp_path):
    for name in ("1.TIF", "2.tiff", "3.ppm", "4.pgm", "5.pbm"):
        write_image(tmp_path / "1.png").rename(tmp_path / name)
    for name in ("z.xyz", "README", ".hidden"):
        (tmp_path / name).write_text("no image")
    images, left_out = list_files(tmp_path)
    assert images == ("1.TIF", "2.tiff", "3.ppm", "4.pgm", "5.pbm")
    assert left_out == ("README", "z.xyz")


def test_hidden_files_are_left_out_and_links_followed_once(tmp_path):
    write_image(tmp_path / "real" / "1.png")
    write_image(tmp_path / "set" / ".trash" / "1.png")
    write_image(tmp_path / "set" / "._1.png")
    (tmp_path / "set" / "cat").symlink_to(tmp_path / "real")
    (tmp_path / "real" / "circle").symlink_to(tmp_path / "set")
    assert list_files(tmp_path / "set").images == ("cat/1.png",)


def test_a_folder_that_is_not_there_has_no_files(tmp_path):
    assert list_files(tmp_path / "absent") == ((), ())


def three_images(folder: Path, **more) -> FileDataset:
    for k in range(3):
        path = write_image(folder / f"{k}.png", k)
        os.utime(path, (1_000_000_000 + k, 1_000_000_000 + k))
    return FileDataset("three", folder, ("0.png", "1.png", "2.png"), np.array([0, 1, 0]), **more)


def test_files_are_a_data_set_that_loads_when_asked(tmp_path):
    dataset = three_images(tmp_path)
    assert isinstance(dataset, Dataset)
    assert len(dataset) == 3
    np.testing.assert_array_equal(dataset.load(2), pixels_of(tmp_path / "2.png"))
    assert dataset.load(2).dtype == np.uint8
    assert dataset.load(2).shape == (4, 5, 3)


def test_a_subset_keeps_order_labels_and_names(tmp_path):
    dataset = three_images(tmp_path, source_classes=("x", "y", "z")).subset([2, 1])
    assert dataset.image_ids == ("2.png", "1.png")
    assert dataset.labels.tolist() == [0, 1]
    assert dataset.source_classes == ("z", "y")
    assert three_images(tmp_path).subset([]).image_ids == ()


def test_a_data_set_travels_to_another_process(tmp_path):
    dataset = three_images(tmp_path)
    again = pickle.loads(pickle.dumps(dataset))
    assert again.fingerprint() == dataset.fingerprint()
    np.testing.assert_array_equal(again.load(1), dataset.load(1))


def test_the_fingerprint_changes_with_content_ids_labels_and_presence(tmp_path):
    dataset = three_images(tmp_path)
    first = dataset.fingerprint()
    assert three_images(tmp_path).fingerprint() == first
    seen = {first, dataset.subset([0, 2, 1]).fingerprint(), dataset.subset([0, 1]).fingerprint()}
    relabeled = FileDataset("three", tmp_path, dataset.image_ids, np.array([0, 1, 1]))
    seen.add(relabeled.fingerprint())
    seen.add(FileDataset("three", tmp_path, dataset.image_ids, None).fingerprint())
    write_image(tmp_path / "1.png", 77)
    seen.add(dataset.fingerprint())
    (tmp_path / "1.png").unlink()
    seen.add(dataset.fingerprint())
    assert len(seen) == 7


def test_the_same_content_elsewhere_has_the_same_fingerprint(tmp_path):
    assert three_images(tmp_path / "a").fingerprint() == three_images(tmp_path / "b").fingerprint()


def count_reads(monkeypatch) -> list[str]:
    reads = []

    def counting(stream, name):
        reads.append(stream.name)
        return original(stream, name)

    original = content_hashes.file_digest
    monkeypatch.setattr(content_hashes, "file_digest", counting)
    return reads


def test_a_second_fingerprint_reads_only_what_changed(tmp_path, monkeypatch):
    dataset = three_images(tmp_path / "images", cache_dir=tmp_path / "cache")
    first = dataset.fingerprint()
    reads = count_reads(monkeypatch)
    assert dataset.fingerprint() == first
    assert reads == []
    path = write_image(tmp_path / "images" / "1.png", 77)
    os.utime(path, (1_000_000_009, 1_000_000_009))
    assert dataset.fingerprint() != first
    assert [Path(name).name for name in reads] == ["1.png"]
    assert dataset.fingerprint() == three_images_with(path, tmp_path, 77)
    assert len(list((tmp_path / "cache").iterdir())) == 1


def three_images_with(path: Path, tmp_path: Path, color: int) -> str:
    """The fingerprint of the same images, read afresh without a cache."""
    write_image(path, color)
    return FileDataset(
        "three", tmp_path / "images", ("0.png", "1.png", "2.png"), np.array([0, 1, 0])
    ).fingerprint()


def test_a_file_written_a_moment_ago_is_not_remembered(tmp_path, monkeypatch):
    dataset = three_images(tmp_path / "images", cache_dir=tmp_path / "cache")
    now = time.time()
    os.utime(tmp_path / "images" / "0.png", (now, now))
    dataset.fingerprint()
    reads = count_reads(monkeypatch)
    dataset.fingerprint()
    assert [Path(name).name for name in reads] == ["0.png"]


def test_a_cache_that_cannot_be_written_or_read_costs_only_time(tmp_path):
    (tmp_path / "file").write_text("in the way")
    blocked = three_images(tmp_path / "images", cache_dir=tmp_path / "file")
    plain = three_images(tmp_path / "images")
    assert blocked.fingerprint() == plain.fingerprint()
    cached = three_images(tmp_path / "images", cache_dir=tmp_path / "cache")
    cached.fingerprint()
    next((tmp_path / "cache").iterdir()).write_text("nonsense\n")
    assert cached.fingerprint() == plain.fingerprint()


def test_the_cache_is_in_the_folder_for_caches(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert content_hashes.user_cache_dir() == tmp_path / "incognita"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert content_hashes.user_cache_dir().parts[-2:] == (".cache", "incognita")


def test_a_truncated_file_is_an_error_and_never_half_an_image(tmp_path):
    rng = np.random.default_rng(0)
    Image.fromarray(rng.integers(0, 256, (64, 64, 3), np.uint8)).save(tmp_path / "a.jpg")
    whole = (tmp_path / "a.jpg").read_bytes()
    (tmp_path / "a.jpg").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InvalidDataError, match=r"a\.jpg cannot be read as an image .*truncated"):
        load_image(tmp_path / "a.jpg")


def test_a_file_that_is_no_image_or_absent_is_an_error(tmp_path):
    (tmp_path / "a.png").write_text("no image")
    with pytest.raises(InvalidDataError, match="cannot be read as an image"):
        load_image(tmp_path / "a.png")
    with pytest.raises(MissingDataError, match="There is no image at"):
        load_image(tmp_path / "b.png")


def test_every_mode_becomes_rgb(tmp_path):
    color = Image.new("RGB", (2, 2), (200, 100, 50))
    color.convert("P").save(tmp_path / "palette.png", transparency=b"\x00\x80")
    color.convert("L").save(tmp_path / "gray.png")
    color.convert("RGBA").save(tmp_path / "alpha.png")
    color.convert("CMYK").save(tmp_path / "cmyk.jpg")
    for name in ("palette.png", "gray.png", "alpha.png", "cmyk.jpg"):
        assert load_image(tmp_path / name).shape == (2, 2, 3)
    assert load_image(tmp_path / "gray.png")[0, 0].tolist() == [124, 124, 124]
    assert load_image(tmp_path / "alpha.png")[0, 0].tolist() == [200, 100, 50]


@pytest.mark.parametrize(
    ("mode", "order", "name"),
    [("I;16", "<u2", "a.png"), ("I;16", "<u2", "a.tif"), ("I;16B", ">u2", "b.tif")],
)
def test_gray_of_16_bits_is_scaled_to_8(tmp_path, mode, order, name):
    levels = np.array([[0, 100 * 257, 65535], [128, 129, 40_000]])
    content = levels.astype(order).tobytes()
    Image.frombytes(mode, (3, 2), content).save(tmp_path / name)
    image = load_image(tmp_path / name)
    assert image.dtype == np.uint8
    assert image[:, :, 0].tolist() == [[0, 100, 255], [0, 1, 156]]
    assert (image == image[:, :, :1]).all()
    assert image.shape == (2, 3, 3)


@pytest.mark.parametrize("dtype", [np.int32, np.float32])
def test_pixels_without_a_known_white_are_refused(tmp_path, dtype):
    Image.fromarray(np.full((2, 2), 0.5, dtype)).save(tmp_path / "a.tif")
    with pytest.raises(InvalidDataError, match=r"image \(mode [IF] does not define white"):
        load_image(tmp_path / "a.tif")


def test_links_to_files_and_folders_are_the_images_they_lead_to(tmp_path):
    write_image(tmp_path / "real" / "deep" / "1.png")
    write_image(tmp_path / "real" / "2.png")
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "all").symlink_to(tmp_path / "real")
    (tmp_path / "set" / "one.png").symlink_to(tmp_path / "real" / "2.png")
    linked = FileDataset("set", tmp_path / "set", ("all/deep/1.png", "one.png"))
    plain = FileDataset("real", tmp_path / "real", ("deep/1.png", "2.png"))
    assert identities(linked) == identities(plain)
    write_image(tmp_path / "set" / "2.png")
    own = FileDataset("set", tmp_path / "set", ("2.png", "absent/3.png"))
    assert not identities(own) & identities(plain)
    assert len(identities(own)) == 2


def test_the_exif_orientation_is_ignored_as_openood_does(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6  # turned by 90 degrees
    Image.new("RGB", (6, 3)).save(tmp_path / "a.jpg", exif=exif)
    assert load_image(tmp_path / "a.jpg").shape == (3, 6, 3)


def test_presence_is_told_for_each_path(tmp_path):
    write_image(tmp_path / "a" / "1.png")
    write_image(tmp_path / "2.png")
    present = are_present(tmp_path, ["a/1.png", "a/2.png", "2.png", "b/1.png"])
    assert present.tolist() == [True, False, True, False]


def test_repeated_ids_are_refused(tmp_path):
    with pytest.raises(InvalidDataError, match="appears 2 times in three"):
        FileDataset("three", tmp_path, ("a.png", "a.png"))


def test_only_named_formats_are_opened_whatever_the_suffix(tmp_path, monkeypatch):
    import subprocess

    def run(*_: object, **__: object) -> None:
        raise AssertionError("an image must not start another program")

    monkeypatch.setattr(subprocess, "check_call", run)
    monkeypatch.setattr(subprocess, "Popen", run)
    path = tmp_path / "a.png"
    path.write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\nshowpage\n")
    with pytest.raises(InvalidDataError, match=r"not in one of the formats JPEG, PNG, GIF"):
        load_image(path)


@pytest.mark.parametrize("suffix", ["jpg", "png", "gif", "bmp", "webp", "tif", "ppm", "pgm"])
def test_every_named_format_is_read_as_pillow_reads_it(tmp_path, suffix):
    pixels = np.random.default_rng(0).integers(0, 256, (9, 7, 3), dtype=np.uint8)
    image = Image.fromarray(pixels).convert("L" if suffix == "pgm" else "RGB")
    path = tmp_path / f"a.{suffix}"
    image.save(path)
    with Image.open(path) as theirs:
        assert np.array_equal(load_image(path), np.asarray(theirs.convert("RGB")))


@pytest.mark.parametrize(("side", "is_read"), [(13_000, True), (13_400, False)])
def test_an_image_of_too_many_pixels_is_an_error_and_no_warning(tmp_path, side, is_read):
    import struct
    import zlib

    def chunk(kind: bytes, content: bytes) -> bytes:
        check = zlib.crc32(kind + content)
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", check)

    header = struct.pack(">IIBBBBB", side, side, 1, 0, 0, 0, 0)
    path = tmp_path / "bomb.png"
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", b"x"))
    reason = "broken|truncated|unrecognized" if is_read else "it has 13,400 x 13,400 pixels, but at"
    with pytest.raises(InvalidDataError, match=reason):  # a warning would be an error here
        load_image(path)


def test_a_pipe_is_neither_read_nor_waited_for(tmp_path):
    os.mkfifo(tmp_path / "0.png")
    dataset = FileDataset("one", tmp_path, ("0.png",))
    with pytest.raises(InvalidDataError, match="is a pipe or device"):
        dataset.load(0)
    assert len(dataset.fingerprint()) == 64


def test_a_name_that_is_not_utf8_is_read_and_hashed(tmp_path):
    name = os.fsdecode(b"caf\xe9.png")
    write_image(tmp_path / "1.png", 7).rename(tmp_path / name)
    assert list_files(tmp_path).images == (name,)
    dataset = FileDataset("one", tmp_path, (name,), cache_dir=tmp_path / "cache")
    assert dataset.load(0)[0, 0].tolist() == [7, 10, 20]
    assert dataset.fingerprint() == dataset.fingerprint()
