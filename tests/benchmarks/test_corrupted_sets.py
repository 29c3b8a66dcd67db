"""Corrupted copies of data sets, and the keys of a benchmark file that make them."""

import pickle
import tomllib
from collections import Counter

import numpy as np
import pytest
from tests.benchmarks.box_trees import ROAD, write_road
from tests.evaluation.box_worlds import scenes

from incognita.benchmarks import corrupt, corrupted, load_benchmark
from incognita.benchmarks.corruptions.datasets import draw_images
from incognita.benchmarks.definition_files import find_definition, list_benchmarks, parse_definition
from incognita.containers.dataset import ArrayDataset, BoxDataset, Dataset
from incognita.errors import InvalidDataError
from incognita.formats.images import identities

rng = np.random.default_rng(0)
IMAGES = rng.integers(0, 256, (12, 20, 24, 3), np.uint8)
CLEAN = ArrayDataset(
    "clean",
    tuple(f"{k}.png" for k in range(12)),
    IMAGES,
    np.arange(12) % 3,
    tuple("abc"[k % 3] for k in range(12)),
)
TERRA = """
name = "mine/shifted"
version = 1
title = "Terra, corrupted"
classes = {classes}
full_spectrum = true
[[set]]
name = "test"
role = "test"
kind = "terra"
part = "test"
count = 60
[[set]]
name = "terra-c"
role = "shifted"
kind = "terra"
part = "test"
count = 60
corrupt = {{ kinds = "imagenet-c", severity = [1, 2, 3, 4, 5], sample = 30 }}
[[set]]
name = "odd"
role = "far"
kind = "terra"
part = "test"
classes = "far"
count = 20
"""


def test_one_severity_keeps_ids_and_draws_one_kind_per_image():
    changed = corrupted(CLEAN, "saod", 3, seed=4)
    assert isinstance(changed, Dataset)
    assert not isinstance(changed, BoxDataset)
    assert changed.image_ids == CLEAN.image_ids
    assert changed.labels.tolist() == CLEAN.labels.tolist()
    assert changed.source_classes == CLEAN.source_classes
    kinds = {kind for _, kind, _ in changed.images}
    assert len(kinds) > 3
    for k, (place, kind, severity) in enumerate(changed.images):
        assert (place, severity) == (k, 3)
        expected = corrupt(IMAGES[k], kind, 3, image_id=f"{k}.png", seed=4)
        assert np.array_equal(changed.load(k), expected)


def test_severities_draw_other_kinds_but_any_order_the_same():
    third, fifth = corrupted(CLEAN, "saod", 3), corrupted(CLEAN, "saod", 5)
    assert [i.kind for i in third.images] != [i.kind for i in fifth.images]
    backwards = corrupted(CLEAN.subset(range(11, -1, -1)), "saod", 3)
    assert [i.kind for i in backwards.images] == [i.kind for i in reversed(third.images)]
    assert np.array_equal(backwards.load(0), third.load(11))


def test_a_sample_is_spread_evenly_over_pairs():
    changed = corrupted(CLEAN, ["fog", "snow"], [1, 3, 5], sample=18)
    pairs = Counter((kind, severity) for _, kind, severity in changed.images)
    assert set(pairs.values()) == {3}
    assert len(pairs) == 6
    assert len(set(changed.image_ids)) == len(changed) == 18
    assert max(Counter(image.image_index for image in changed.images).values()) == 2
    place, kind, severity = changed.images[5]
    assert changed.image_ids[5] == f"{place}.png#{kind}-{severity}"
    assert changed.labels[5] == CLEAN.labels[place]


@pytest.mark.parametrize(
    "other",
    [
        lambda: corrupted(CLEAN, "saod", 2),
        lambda: corrupted(CLEAN, "saod", 3, seed=1),
        lambda: corrupted(CLEAN, "imagenet-c", 3),
        lambda: corrupted(CLEAN.subset(range(11)), "saod", 3),
        lambda: corrupted(CLEAN, "saod", [3]),
        lambda: CLEAN,
    ],
)
def test_every_choice_is_part_of_the_fingerprint(other):
    ours = corrupted(CLEAN, "saod", 3)
    assert ours.fingerprint() == corrupted(CLEAN, "saod", 3).fingerprint()
    assert ours.fingerprint() != other().fingerprint()


def test_a_subset_and_a_pickled_copy_are_the_same_images():
    changed = corrupted(CLEAN, "saod", 4)
    part = changed.subset([7, 2])
    assert part.image_ids == ("7.png", "2.png")
    assert np.array_equal(part.load(0), changed.load(7))
    again = pickle.loads(pickle.dumps(changed))
    assert again.fingerprint() == changed.fingerprint()
    assert np.array_equal(again.load(3), changed.load(3))


def test_objects_of_repeated_scenes_are_repeated():
    clean = scenes("s", 5, seed=0)
    changed = corrupted(clean, ["fog", "contrast"], [1, 2], sample=11)
    assert isinstance(changed, BoxDataset)
    truth, before = changed.truth(), clean.truth()
    assert changed.truth() is truth
    assert truth.image_ids.tolist() == list(changed.image_ids)
    for k, image in enumerate(changed.images):
        rows = slice(*truth.offsets[k : k + 2])
        source = slice(*before.offsets[image.image_index : image.image_index + 2])
        assert np.array_equal(truth.xyxy[rows], before.xyxy[source])
        assert np.array_equal(truth.class_ids[rows], before.class_ids[source])


def test_wrong_choices_are_refused():
    with pytest.raises(InvalidDataError, match="severity from 1 to 5"):
        corrupted(CLEAN, "saod", 6)
    with pytest.raises(InvalidDataError, match="at most 24"):
        corrupted(CLEAN, "fog", [1, 2], sample=25)


def test_a_line_in_the_file_corrupts_a_set_of_a_classifier(tmp_path):
    from incognita.benchmarks.terra.classes import KNOWN_NAMES

    path = tmp_path / "shifted.toml"
    path.write_text(TERRA.format(classes=list(KNOWN_NAMES)))
    benchmark = load_benchmark(path)
    changed = benchmark.shifted["terra-c"]
    assert len(changed) == 30
    assert len({(kind, severity) for _, kind, severity in changed.images}) == 30
    assert not benchmark.is_partial
    assert benchmark.full_spectrum


def test_a_sample_of_an_incomplete_set_is_smaller_and_says_so(tmp_path):
    write_road(tmp_path)
    lines = '\n[[set]]\nname = "test-c"\nrole = "shifted"\nkind = "coco"\n'
    lines += 'annotations = "test.json"\nimages = "test"\n'
    lines += 'corrupt = { kinds = "fog", severity = [1, 2], sample = 6 }\n'
    (tmp_path / "road.toml").write_text(ROAD + lines)
    changed = load_benchmark(tmp_path / "road.toml").shifted["test-c"]
    assert len(changed) == 6
    next((tmp_path / "test").iterdir()).unlink()
    benchmark = load_benchmark(tmp_path / "road.toml")
    assert len(benchmark.shifted["test-c"]) == 4
    assert benchmark.metadata["missing"]["test-c"] == {"expected": 6, "found": 4}
    assert any("test-c: 4 of 6 images found" in note for note in benchmark.notes)


def test_a_corrupted_copy_of_a_training_image_is_still_that_image(tmp_path):
    write_road(tmp_path)
    lines = '\n[[set]]\nname = "train-c"\nrole = "shifted"\nkind = "coco"\n'
    lines += 'annotations = "train.json"\nimages = "train"\n'
    lines += 'corrupt = { kinds = "fog", severity = 3 }\n'
    (tmp_path / "road.toml").write_text(ROAD + lines)
    assert identities(corrupted(CLEAN, "fog", [1, 2])) == set(CLEAN.image_ids)
    with pytest.raises(InvalidDataError, match=r"in both set 'train' .* and set 'train-c'"):
        load_benchmark(tmp_path / "road.toml")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"corrupt": {"kinds": "foggy", "severity": 3}}, "foggy"),
        ({"corrupt": {"kinds": "fog", "severity": 6}}, "severity"),
        ({"corrupt": {"kinds": [], "severity": 3}}, "kinds"),
        ({"corrupt": {"kinds": "fog"}}, "severity"),
        ({"corrupt": {"kinds": "fog", "severity": 3, "sed": 1}}, "sed"),
        ({"rejection": "free"}, "only shifted images"),
        ({"rejection": "costly"}, "rejection"),
    ],
)
def test_wrong_keys_get_one_sentence(change, message):
    content = tomllib.loads(ROAD)
    content["set"][1] |= change
    with pytest.raises(InvalidDataError, match=message) as caught:
        parse_definition(content, source="road.toml")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"protocol": "self-aware"}, 'role = "validation"'),
        ({"protocol": "selfaware"}, "protocol"),
    ],
)
def test_the_protocol_is_checked(change, message):
    with pytest.raises(InvalidDataError, match=message):
        parse_definition(tomllib.loads(ROAD) | change, source="road.toml")


def test_a_classification_benchmark_has_no_such_protocol():
    content = tomllib.loads(TERRA.format(classes=["a"])) | {"protocol": "self-aware"}
    with pytest.raises(InvalidDataError, match='task = "detection"'):
        parse_definition(content, source="mine.toml")


def test_definitions_without_the_new_keys_keep_their_hash():
    for name in list_benchmarks("openood/*"):
        text = find_definition(name).definition.model_dump_json()
        assert not any(f'"{key}"' in text for key in ("corrupt", "rejection", "protocol"))
    text = find_definition("terra/self-aware").definition.model_dump_json()
    assert all(f'"{key}"' in text for key in ("corrupt", "rejection", "protocol"))


def test_copies_of_one_image_are_drawn_together():
    ids = corrupted(CLEAN, ["fog", "snow"], [1, 3]).image_ids
    weights = draw_images(ids, n_resamples=30, seed=0)
    assert weights.shape == (48, 31)
    assert (weights[:, 0] == 1).all()
    by_image = weights.reshape(12, 4, 31)
    assert (by_image == by_image[:, :1]).all()
    alone = draw_images(CLEAN.image_ids, n_resamples=30, seed=0)
    assert np.array_equal(np.sort(by_image[:, 0], axis=0), np.sort(alone, axis=0))


def test_a_severity_given_twice_counts_once():
    assert len(corrupted(CLEAN, "fog", [1, 1, 5])) == 24
