"""Terra: the tree, images that depend on nothing but their seed, and scenes with exact boxes."""

import hashlib
import pickle
import subprocess
import sys

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from incognita.benchmarks.terra.classes import (
    KNOWN_NAMES,
    TERRA_CLASSES,
    ClassGroup,
    select_classes,
    terra_classes,
)
from incognita.benchmarks.terra.datasets import render_scene, terra_dataset, terra_scenes
from incognita.benchmarks.terra.rendering import (
    OUTLINES,
    RENDERER_VERSION,
    STYLES,
    key_of,
    render_images,
)
from incognita.containers.classes import Role
from incognita.containers.dataset import Dataset
from incognita.errors import InvalidDataError, UnknownNameError

# The bytes that version 1 of the renderer gives on every machine. Where they change on purpose,
# RENDERER_VERSION goes up and the embedded models are trained again.
GOLDEN = {
    "known": "b94fb56670927ca1",
    "near": "a488507fb9a9dfc2",
    "far": "edf9a8849a9bcd98",
    "farther": "3fda15d1e553e113",
    "drawn": "47e4341f17570c23",
    "scenes": "55b164545c7cd17a",
}
GROUPS = [group.value for group in ClassGroup]


def digest_of(pixels):
    return hashlib.sha256(np.ascontiguousarray(pixels).tobytes()).hexdigest()[:16]


def supers_of(group):
    return {each.superclass for each in TERRA_CLASSES if each.group is group}


def test_near_classes_share_a_superclass_with_known_ones_and_others_do_not():
    known = supers_of(ClassGroup.KNOWN)
    assert supers_of(ClassGroup.NEAR) == supers_of(ClassGroup.VALIDATION) == known
    for group in (ClassGroup.FAR, ClassGroup.FARTHER, ClassGroup.OUTLIER):
        assert not supers_of(group) & known


def test_no_class_is_in_two_groups_and_every_class_has_an_outline():
    names = [each.name for each in TERRA_CLASSES]
    assert len(set(names)) == len(names) == 43
    assert {each.outline for each in TERRA_CLASSES} == set(OUTLINES)
    assert not set(select_classes("near")) & set(select_classes("near-validation"))


def test_the_known_classes_stand_first_so_that_a_label_is_a_class_id():
    assert select_classes("known") == tuple(range(12))
    assert terra_classes().known_names == KNOWN_NAMES
    assert terra_classes().n_known == 12


def test_a_group_a_superclass_and_a_class_can_be_asked_for():
    assert len(select_classes("stars")) == 6
    assert select_classes(["known", "disc"]) == select_classes("known")
    with pytest.raises(UnknownNameError, match="Did you mean crescent"):
        select_classes("cresent")


@pytest.mark.parametrize("name", sorted(GOLDEN))
def test_pictures_are_the_same_bytes_on_every_machine(name):
    assert RENDERER_VERSION == 1
    if name == "scenes":
        groups = ("known", "near", "far", "farther")
        pixels = [render_scene(7, k, classes=groups).image for k in range(6)]
        pixels = np.stack(pixels)
    elif name == "drawn":
        pixels = terra_dataset("test", seed=7, n=24, style="drawn").render()
    else:
        pixels = terra_dataset("test", seed=7, n=24, classes=name).render()
    assert digest_of(pixels) == GOLDEN[name]


def test_an_image_depends_neither_on_order_nor_on_what_else_is_rendered():
    images = terra_dataset("test", n=600, classes="near")
    whole = images.render()
    order = np.random.default_rng(0).permutation(600)[:80]
    assert all((images.load(int(k)) == whole[k]).all() for k in order)
    part = images.subset(order.tolist())
    assert (part.render() == whole[order]).all()
    assert part.image_ids == tuple(images.image_ids[k] for k in order)
    assert part.source_classes == tuple(images.source_classes[k] for k in order)
    longer = terra_dataset("test", n=1000, classes="near")
    assert (longer.render(np.arange(600)) == whole).all()


def test_another_process_renders_the_same_bytes():
    code = (
        "import hashlib, pickle, sys; images = pickle.loads(sys.stdin.buffer.read());"
        "print(hashlib.sha256(images.render().tobytes()).hexdigest()[:16])"
    )
    images = terra_dataset("validation", seed=3, n=30, classes="far", style="noisy")
    images.load(0)
    run = subprocess.run(
        [sys.executable, "-c", code], input=pickle.dumps(images), capture_output=True, check=True
    )
    assert run.stdout.decode().strip() == digest_of(images.render())
    assert len(pickle.dumps(images)) < 2000, "rendered images must not travel"


def test_parts_and_seeds_share_no_image():
    sets = [terra_dataset(part, n=60) for part in ("train", "validation", "test")]
    sets.append(terra_dataset("test", n=60, seed=1))
    images = {image.tobytes() for each in sets for image in each.render()}
    ids = {image for each in sets for image in each.image_ids}
    assert len(images) == len(ids) == 240


def test_labels_say_which_class_is_shown_and_only_known_sets_have_them():
    images = terra_dataset("test", n=30)
    assert isinstance(images, Dataset)
    assert [KNOWN_NAMES[label] for label in images.labels] == list(images.source_classes)
    stars = terra_dataset("test", n=10, classes=["gear", "disc"])
    assert stars.source_classes[:2] == ("disc", "gear")
    assert stars.labels[:2].tolist() == [3, 11]
    assert terra_dataset("test", n=30, classes="near").labels is None
    assert terra_dataset("test", n=30, classes=["disc", "drop"]).labels is None


def test_the_fingerprint_changes_with_everything_a_picture_depends_on():
    sets = [
        terra_dataset("test", n=20),
        terra_dataset("test", n=21),
        terra_dataset("train", n=20),
        terra_dataset("test", n=20, seed=1),
        terra_dataset("test", n=20, size=40),
        terra_dataset("test", n=20, style="dim"),
        terra_dataset("test", n=20, classes="far"),
        terra_dataset("test", n=20).subset([1, 0]),
        terra_scenes("test", n=20),
        terra_scenes("test", n=20, style="dim"),
    ]
    assert len({each.fingerprint() for each in sets}) == len(sets)
    assert sets[0].fingerprint() == terra_dataset("test", n=20).fingerprint()


@pytest.mark.parametrize("style", sorted(STYLES))
def test_every_class_shows_an_object_in_every_style(style):
    class_ids = np.repeat(np.arange(len(TERRA_CLASSES)), 25)
    keys = np.array([key_of(0, TERRA_CLASSES[k].name) for k in class_ids], np.uint64)
    images, is_object = render_images(class_ids, keys, np.arange(len(class_ids)), style=style)
    n_seen = is_object.sum(axis=(1, 2))
    assert n_seen.min() >= 8
    assert np.median(n_seen) > 60
    # what is seen differs from what surrounds it, on average over the pictures of a class
    objects = [image[seen].mean(axis=0) for image, seen in zip(images, is_object, strict=True)]
    grounds = [
        image[~seen].mean(axis=0) if not seen.all() else np.full(3, np.inf)
        for image, seen in zip(images, is_object, strict=True)
    ]
    gaps = np.abs(np.array(objects) - grounds).max(axis=1).reshape(-1, 25).mean(axis=1)
    assert gaps.min() > (10 if style in ("dim", "faded") else 25)


def test_color_does_not_tell_the_class():
    images = terra_dataset("train", n=2400)
    pixels = images.render().reshape(2400, -1, 3) / 255.0
    colors = np.concatenate([pixels.mean(axis=1), np.median(pixels, axis=1)], axis=1)
    learned = LogisticRegression().fit(colors[:1200], images.labels[:1200])
    assert learned.score(colors[1200:], images.labels[1200:]) < 0.14  # chance is 1 in 12


def test_a_shifted_style_does_what_its_name_says():
    pixels = {
        style: terra_dataset("test", n=120, style=style).render().astype(float) for style in STYLES
    }
    rough = {style: np.abs(np.diff(each, axis=2)).mean() for style, each in pixels.items()}
    assert rough["blurred"] < rough["plain"] < rough["noisy"]
    spread = {style: each.std(axis=(1, 2)).mean() for style, each in pixels.items()}
    assert spread["faded"] < 0.7 * spread["plain"]
    assert pixels["dim"].mean() < 0.5 * pixels["plain"].mean()


@pytest.mark.parametrize("classes", ["known", "near", "far", "farther", ("known", "near")])
def test_boxes_are_the_tightest_around_the_pixels_of_each_object(classes):
    for index in range(25):
        scene = render_scene(0, index, classes=classes)
        numbers = np.unique(scene.owner[scene.owner >= 0])
        assert 1 <= len(numbers) == len(scene.xyxy) <= 6
        for number, box, area in zip(numbers, scene.xyxy.astype(int), scene.areas, strict=True):
            mask = scene.owner == number
            x1, y1, x2, y2 = box
            assert mask[y1:y2, x1:x2].sum() == mask.sum() == area
            assert mask[y1, x1:x2].any()
            assert mask[y2 - 1, x1:x2].any()
            assert mask[y1:y2, x1].any()
            assert mask[y1:y2, x2 - 1].any()


def test_objects_of_a_scene_can_be_seen():
    truth = terra_scenes("test", n=120, classes=["known", "near", "far", "farther"]).truth()
    assert truth.areas.min() >= 40
    assert (truth.sizes.max(axis=1) >= 12).all()
    counts = np.diff(truth.offsets)
    assert set(counts.tolist()) == {1, 2, 3, 4, 5, 6}


@pytest.mark.parametrize("group", GROUPS)
def test_scenes_hold_the_classes_that_were_asked_for(group):
    truth = terra_scenes("test", n=30, classes=group).truth()
    asked = {TERRA_CLASSES[k].name for k in select_classes(group)}
    assert {truth.classes.names[k] for k in truth.class_ids} <= asked
    assert (truth.is_unknown == (group != "known")).all()
    for class_id, above in zip(truth.class_ids, truth.superclasses, strict=True):
        assert TERRA_CLASSES[class_id].superclass == above


def test_known_and_unknown_objects_can_share_a_scene():
    truth = terra_scenes("train", n=40, classes=["known", "near"]).truth()
    assert truth.has_role(Role.KNOWN).any()
    assert truth.has_role(Role.UNKNOWN).any()


def test_the_truth_of_scenes_is_that_of_each_scene_in_any_order():
    scenes = terra_scenes("test", n=12, seed=5)
    assert isinstance(scenes, Dataset)
    part = scenes.subset([7, 2])
    truth = part.truth()
    assert tuple(truth.image_ids) == (scenes.image_ids[7], scenes.image_ids[2])
    first = scenes.scene(7)
    assert (truth.xyxy[: truth.offsets[1]] == first.xyxy).all()
    assert (part.load(0) == first.image).all()
    assert first.image.shape == (160, 160, 3)
    assert (pickle.loads(pickle.dumps(part)).load(1) == scenes.load(2)).all()


def test_what_cannot_be_rendered_is_refused():
    with pytest.raises(UnknownNameError, match="Did you mean test"):
        terra_dataset("tests", n=3)
    with pytest.raises(UnknownNameError, match="Did you mean noisy"):
        terra_dataset("test", n=3, style="nosy")
    with pytest.raises(InvalidDataError, match="got 0 of 32 pixels"):
        terra_dataset("test", n=0)
    with pytest.raises(InvalidDataError, match="got 3 of 32 pixels"):
        terra_scenes("test", n=3, size=32)
    with pytest.raises(UnknownNameError, match="Did you mean train"):
        terra_scenes("trian", n=3)
    with pytest.raises(IndexError, match="has 3"):
        terra_dataset("test", n=3).load(3)
