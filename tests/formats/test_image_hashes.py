"""Repeated images: dHash and the search for pairs against slow definitions, real copies, edges."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from tests.oracles.overlaps import dhash
from tests.oracles.overlaps import near_pairs as near_pairs_slowly

from incognita.containers import ArrayDataset
from incognita.formats.image_hashes import (
    DISTANCE,
    difference_hashes,
    find_repeats,
    hash_images,
    near_pairs,
)
from incognita.formats.images import FileDataset


def picture(seed, size=(64, 48)):
    """A smooth random picture, as photographs are smooth."""
    pixels = np.random.default_rng(seed).integers(0, 256, (6, 8, 3), dtype=np.uint8)
    return Image.fromarray(pixels).resize(size, Image.Resampling.BICUBIC)


def saved(folder, name, image, **options):
    folder.mkdir(exist_ok=True)
    image.save(folder / name, **options)


def files(folder):
    names = tuple(sorted(path.name for path in folder.iterdir()))
    return hash_images(FileDataset(folder.name, folder, names))


def bits_of(halves):
    return "".join(f"{int(half):064b}" for half in halves)


def test_dhash_equals_its_definition():
    images = [picture(seed) for seed in range(20)]
    hashes = hash_images(
        ArrayDataset("a", tuple(map(str, range(20))), [np.asarray(image) for image in images])
    )
    assert [bits_of(row) for row in hashes.bits] == [dhash(image) for image in images]


def test_dhash_of_a_png_equals_that_in_memory(tmp_path):
    saved(tmp_path / "a", "1.png", picture(3))
    assert bits_of(files(tmp_path / "a").bits[0]) == dhash(picture(3))


@given(
    st.lists(st.integers(0, 2**128 - 1), min_size=1, max_size=12),
    st.lists(st.tuples(st.integers(0, 11), st.integers(0, 127)), max_size=30),
    st.integers(0, 9),
)
def test_near_pairs_equal_those_of_all_comparisons(values, flips, distance):
    values = values + [values[k % len(values)] ^ (1 << bit) for k, bit in flips]
    owners = np.arange(len(values)) % 3
    bits = np.array([[value >> 64, value & (2**64 - 1)] for value in values], np.uint64)
    expected = near_pairs_slowly([f"{value:0128b}" for value in values], owners, distance)
    found = near_pairs(bits, owners, distance=distance)
    assert set(map(tuple, found.tolist())) == expected


def test_a_file_that_is_in_both_sets_is_found_by_content(tmp_path):
    for folder, seeds in (("a", (1, 2, 3)), ("b", (3, 4))):
        for seed in seeds:
            saved(tmp_path / folder, f"{seed}.png", picture(seed))
    (found,) = find_repeats([files(tmp_path / "a"), files(tmp_path / "b")])
    assert found == ("a", "b", "content", 1, 1, (("3.png", "3.png"),), ("3.png",))


@pytest.mark.parametrize(
    ("name", "options"),
    [("copy.jpg", {"quality": 60}), ("copy.webp", {"quality": 70}), ("copy.bmp", {})],
)
def test_a_copy_saved_again_is_found_by_its_look(name, options, tmp_path):
    saved(tmp_path / "a", "1.png", picture(1, (300, 200)))
    saved(tmp_path / "b", name, picture(1, (300, 200)), **options)
    saved(tmp_path / "b", "other.png", picture(2, (300, 200)))
    (found,) = find_repeats([files(tmp_path / "a"), files(tmp_path / "b")])
    assert found.kind == "perceptual"
    assert found.examples == (("1.png", name),)


def test_a_resized_copy_is_found_by_its_look(tmp_path):
    saved(tmp_path / "a", "1.png", picture(1, (300, 200)))
    saved(tmp_path / "b", "1.png", picture(1, (300, 200)).resize((150, 100)))
    (found,) = find_repeats([files(tmp_path / "a"), files(tmp_path / "b")])
    assert (found.kind, found.n_second) == ("perceptual", 1)


def test_images_without_contrast_or_of_few_pixels_are_compared_by_content_alone(tmp_path):
    for folder, gray in (("a", 10), ("b", 12)):
        saved(tmp_path / folder, "flat.png", Image.new("L", (40, 40), gray))
        small = picture(1, (17, 40))
        small.putpixel((0, 0), (gray, gray, gray))  # other content, same look
        saved(tmp_path / folder, "small.png", small)
    assert find_repeats([files(tmp_path / "a"), files(tmp_path / "b")]) == []
    saved(tmp_path / "b", "flat.png", Image.new("L", (40, 40), 10))
    (found,) = find_repeats([files(tmp_path / "a"), files(tmp_path / "b")])
    assert (found.kind, found.n_first) == ("content", 1)


def test_repeats_within_one_set_do_not_count(tmp_path):
    for name in ("1.png", "2.png"):
        saved(tmp_path / "a", name, picture(1))
    saved(tmp_path / "b", "1.png", picture(2))
    assert find_repeats([files(tmp_path / "a"), files(tmp_path / "b")]) == []
    assert find_repeats([]) == []


def test_a_broken_image_is_named_and_the_others_are_compared(tmp_path):
    saved(tmp_path / "a", "1.png", picture(1))
    (tmp_path / "a" / "2.png").write_bytes(b"nothing")
    found = files(tmp_path / "a")
    assert found.image_ids == ["1.png"]
    assert len(found.unreadable) == 1
    assert "2.png" in found.unreadable[0]


def test_sixteen_bits_are_scaled_not_cut(tmp_path):
    levels = (np.asarray(picture(5).convert("L")).astype(np.uint16)) * 257
    saved(tmp_path / "a", "deep.png", Image.fromarray(levels))
    assert bits_of(files(tmp_path / "a").bits[0]) == dhash(picture(5).convert("L"))


def test_the_distance_is_counted_in_bits(tmp_path):
    saved(tmp_path / "a", "1.png", picture(1))
    one = files(tmp_path / "a").bits
    other = one.copy()
    other[0, 0] ^= np.uint64(0b1111111)  # seven bits
    bits, owners = np.concatenate([one, other]), np.array([0, 1])
    assert len(near_pairs(bits, owners, distance=7)) == 1
    assert len(near_pairs(bits, owners, distance=DISTANCE)) == 0


def test_difference_hashes_of_none():
    assert difference_hashes(np.zeros((0, 9, 9), np.uint8)).shape == (0, 2)


@pytest.mark.data
def test_a_training_image_of_cifar10_is_in_the_test_set_of_cifar100(data_dir):
    """Real images: one file is in both, and CIFAR-10 has near-copies of its own (ciFAIR)."""
    folder = data_dir / "classification"
    sets = []
    for name, file in (
        ("test", "cifar10/test.webp"), ("train", "cifar10/train10k.webp"),
        ("cifar100", "cifar100/test.webp"),
    ):  # fmt: skip
        sprites = np.asarray(Image.open(folder / file).convert("RGB"))
        tiles = sprites.reshape(-1, 32, 100, 32, 3).swapaxes(1, 2).reshape(-1, 32, 32, 3)
        ids = tuple(f"{name}/{k}" for k in range(len(tiles)))
        sets.append(hash_images(ArrayDataset(name, ids, tiles)))
    found = {(row.first, row.second, row.kind): row for row in find_repeats(sets)}
    same = found.pop(("train", "cifar100", "content"))
    assert same.examples == (("train/3021", "cifar100/967"),)
    copies = found.pop(("test", "train", "perceptual"))
    assert copies.n_first == copies.n_second == 16  # each pair was looked at
    assert not found
