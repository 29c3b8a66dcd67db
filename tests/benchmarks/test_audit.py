"""Audits of lists, annotation files, folders, rules and benchmarks; proposals of splits."""

import gzip
import json
import tarfile
import tomllib
import zipfile
from collections import Counter

import numpy as np
import pytest
from PIL import Image
from tests.oracles.overlaps import dealt_by_similarity

from incognita.benchmarks.audit import AuditSettings, Likeness, audit_inputs
from incognita.benchmarks.audited_sets import InputOptions, read_input, read_inputs
from incognita.benchmarks.class_overlaps import ClassRelation, class_meanings
from incognita.benchmarks.splits.build import build_from_annotations
from incognita.benchmarks.splits.propose import propose, with_limits
from incognita.benchmarks.splits.rules import SimilarityLimits, load_rules, parse_rules
from incognita.errors import InvalidDataError, MissingDataError, UnknownNameError
from incognita.semantics import wup_similarity
from incognita.semantics.class_names import Override

# the classes that each image shows, object by object
SCENES = {
    1: ["spoon", "dining table"],
    2: ["spoon", "dining table", "spoon"],
    3: ["spoon", "dining table", "woman"],
    4: ["spoon"],
    5: ["zebra"],
    6: ["woman", "zebra"],
    7: [],
    8: ["pizza"],
}
NAMES = ("spoon", "dining table", "woman", "zebra", "pizza", "horse")


def write_coco(path, scenes=SCENES, names=NAMES):
    annotations = [
        {"image_id": image, "category_id": names.index(name) + 1, "bbox": [1, 1, 5, 5]}
        for image, shown in scenes.items()
        for name in shown
    ]
    document = {
        "images": [{"id": k, "file_name": f"{k}.png"} for k in scenes],
        "annotations": [{"id": k + 1, **row} for k, row in enumerate(annotations)],
        "categories": [{"id": k + 1, "name": name} for k, name in enumerate(names)],
    }
    path.write_text(json.dumps(document))
    return path


def write_list(path, *names):
    path.write_text("\n".join(names) + "\n")
    return str(path)


def picture(seed):
    pixels = np.random.default_rng(seed).integers(0, 256, (6, 8, 3), dtype=np.uint8)
    return Image.fromarray(pixels).resize((64, 48), Image.Resampling.BICUBIC)


def write_images(folder, classes):
    for name, seeds in classes.items():
        (folder / name).mkdir(parents=True, exist_ok=True)
        for seed in seeds:
            picture(seed).save(folder / name / f"{seed}.png")
    return str(folder)


@pytest.fixture
def found(tmp_path):
    known = write_list(tmp_path / "known.txt", "person", "dining table", "horse")
    annotations = write_coco(tmp_path / "scenes.json")
    return audit_inputs(read_input(known), read_input(str(annotations)))


def test_annotations_count_images_and_objects(found):
    (scenes,) = found.sets
    assert scenes.n_images == 8
    assert scenes.n_classes == 5  # no horse is shown
    shown = {name: sum(name in held for held in SCENES.values()) for name in NAMES}
    objects = Counter(name for held in SCENES.values() for name in held)
    assert {row.name: (row.n_images, row.n_objects) for row in scenes.counts} == {
        name: (shown[name], objects[name]) for name in NAMES if shown[name]
    }
    assert scenes.counts[0].name == "spoon"


def test_images_that_show_known_classes_are_named(found):
    (scenes,) = found.sets
    pairs = {(pair.unknown, pair.relation.value, pair.known) for _, pair in found.overlaps}
    assert pairs == {("dining table", "exact", "dining table"), ("woman", "hyponym", "person")}
    assert scenes.images_with_known == (1, 2, 3, 6)
    assert not found.is_clean


def test_classes_that_appear_with_known_ones_are_found(found):
    (scenes,) = found.sets
    (row,) = scenes.together  # a woman is seen with one spoon and one zebra: too few
    assert (row.unknown, row.known) == ("spoon", "dining table")
    assert (row.n_images, row.n_together) == (4, 3)
    assert row.share == 3 / 4
    assert row.share_in_all == 3 / 8
    assert row.excess == 3 / 8


def test_the_similarity_is_that_of_the_nearest_known_class(found):
    (scenes,) = found.sets
    known = found.known_classes.synsets.values()
    values = [
        max(wup_similarity(synset, other) for other in known)
        for synset in scenes.meanings.synsets.values()
    ]
    assert scenes.similarity == pytest.approx((np.mean(values), np.std(values)), abs=1e-12)


def test_only_the_chosen_relations_count(tmp_path):
    inputs = [
        read_input(write_list(tmp_path / f"{k}.txt", *names))
        for k, names in enumerate((["person"], ["woman", "nose"]))
    ]
    for relations, expected in (
        ((ClassRelation.EXACT,), []),
        ((ClassRelation.PART,), ["nose"]),
        ((ClassRelation.HYPONYM, ClassRelation.PART), ["woman", "nose"]),
    ):
        found = audit_inputs(*inputs, AuditSettings(relations=relations))
        assert [pair.unknown for _, pair in found.overlaps] == expected
        assert found.is_clean == (not expected)


def test_everything_is_in_the_json(found):
    document = json.loads(json.dumps(found.as_json()))
    assert document["is_clean"] is False
    scenes = document["sets"][0]
    woman = next(row for row in scenes["overlaps"] if row["unknown"] == "woman")
    assert woman["rule"] == "woman.n.01 is a kind of person.n.01"
    assert woman["count"] == {"images": 2, "objects": 2}
    assert scenes["images_with_known"] == [1, 2, 3, 6]
    assert scenes["together"][0]["share"] == 0.75


# -------------------------------------------------------------------------------- images


def test_repeated_images_of_two_folders_are_found(tmp_path):
    known = write_images(tmp_path / "known", {"dog": [1, 2], "cat": [3]})
    unknown = write_images(tmp_path / "unknown", {"fork": [4, 5], "zebra": [6]})
    found = audit_inputs(read_input(known), read_input(unknown))
    assert found.is_clean
    assert found.n_hashed == 6
    assert found.sets[0].counts[0] == ("fork", 2, 2)
    write_images(tmp_path / "unknown", {"zebra": [3]})
    found = audit_inputs(read_input(known), read_input(unknown))
    (row,) = found.repeats
    assert row.examples == (("cat/3.png", "zebra/3.png"),)
    assert found.apart == (True,)
    assert not found.is_clean
    ignored = audit_inputs(read_input(known), read_input(unknown), AuditSettings(with_images=False))
    assert ignored.is_clean
    assert ignored.n_hashed is None


def test_folders_of_one_name_are_told_apart(tmp_path):
    known = write_images(tmp_path / "a" / "images", {"dog": [1]})
    unknown = write_images(tmp_path / "b" / "images", {"fork": [1]})
    (row,) = audit_inputs(read_input(known), read_input(unknown)).repeats
    assert (row.first, row.second) == ("images", "images (unknown)")


def test_a_flat_folder_has_images_and_no_classes(tmp_path):
    write_images(tmp_path, {"flat": [1, 2]})
    audited = read_input(str(tmp_path / "flat"))
    assert audited.known is None
    assert audited.sets[0].classes is None
    assert audited.sets[0].n_images == 2


def test_images_of_annotations_lie_in_their_own_folder(tmp_path):
    path = write_coco(tmp_path / "scenes.json")
    assert read_input(str(path)).sets[0].dataset is None
    (tmp_path / "images").mkdir()
    picture(1).save(tmp_path / "images" / "1.png")
    audited = read_input(str(path), InputOptions(images=tmp_path / "images"))
    assert audited.sets[0].dataset.image_ids == ("1.png",)
    assert audited.sets[0].n_images == 8  # annotated


def test_likeness_equals_its_definition():
    rng = np.random.default_rng(0)
    known, unknown = rng.normal(size=(30, 5)), rng.normal(size=(20, 5)) + 1

    def cosine(a, b):
        return float(a @ b / np.sqrt(a @ a) / np.sqrt(b @ b))

    nearest = np.mean([max(cosine(row, other) for other in known) for row in unknown])
    means = [
        np.mean([row / np.sqrt(row @ row) for row in rows], axis=0) for rows in (known, unknown)
    ]
    found = Likeness.of_features("x", known, unknown)
    assert found.nearest == pytest.approx(nearest, abs=1e-12)
    assert found.means == pytest.approx(cosine(*means), abs=1e-12)


# -------------------------------------------------------------------------------- benchmarks


def write_benchmark(folder, **sets):
    """Write a benchmark of folders: role → class → seeds of pictures."""
    lines = ['name = "mine/pets"', "version = 1", 'title = "Pets"', 'classes = ["dog", "cat"]']
    for role, classes in sets.items():
        write_images(folder / role, classes)
        role_name = role.replace("_", "-")
        lines += ["[[set]]", f'name = "{role}"', f'role = "{role_name}"', 'kind = "folder"']
        lines += [f'path = "{role}"']
    path = folder / "pets.toml"
    path.write_text("\n".join(lines) + "\n")
    return str(path)


def test_a_benchmark_stands_alone(tmp_path):
    known = {"dog": [1], "cat": [2]}
    path = write_benchmark(tmp_path, test=known, near={"puppy": [3], "wolf": [4]}, far={"cup": [5]})
    found = audit_inputs(read_input(path))
    assert [(audited.name, audited.role) for audited in found.sets] == [
        ("near", "near"),
        ("far", "far"),
    ]
    assert [(audited.name, pair.unknown) for audited, pair in found.overlaps] == [("near", "puppy")]
    assert found.unknown is None


def test_unknown_classes_for_training_must_not_be_tested(tmp_path):
    path = write_benchmark(
        tmp_path,
        test={"dog": [1], "cat": [2]},
        near={"sofa": [3], "wolf": [4]},
        unknown_validation={"couch": [5], "fork": [6]},
    )
    found = audit_inputs(read_input(path))
    (row,) = found.reused
    assert (row.reused_in, row.tested_in) == ("unknown_validation", "near")
    assert (row.overlap.unknown, row.overlap.known) == ("couch", "sofa")
    assert not found.overlaps
    assert not found.is_clean


def test_images_that_are_fitted_on_and_tested_count(tmp_path):
    known = {"dog": [1], "cat": [2]}
    path = write_benchmark(tmp_path, train={"dog": [1, 7]}, test=known, near={"wolf": [4]})
    found = audit_inputs(read_input(path))
    (row,) = found.repeats
    assert (row.first, row.second, row.kind) == ("train", "test", "content")
    assert not found.is_clean
    write_images(tmp_path / "far", {"cup": [4]})
    with (tmp_path / "pets.toml").open("a") as file:
        file.write('[[set]]\nname = "far"\nrole = "far"\nkind = "folder"\npath = "far"\n')
    (tmp_path / "train" / "dog" / "1.png").unlink()
    found = audit_inputs(read_input(path))
    assert [(row.first, row.second) for row in found.repeats] == [("near", "far")]
    assert found.apart == (False,)  # both are unknown and tested
    assert found.is_clean


def test_the_classes_of_a_list_are_known_without_its_images(tmp_path):
    (tmp_path / "near.txt").write_text("x/puppy/1.png -1\nx/cup/2.png -1\n")
    (tmp_path / "far.txt").write_text("1.png -1\n")
    path = write_benchmark(tmp_path, test={"dog": [1], "cat": [2]})
    with open(path, "a") as file:  # noqa: PTH123
        for name, more in (("near", "one_class_per_folder = true\n"), ("far", "")):
            file.write(
                f'[[set]]\nname = "{name}"\nrole = "{name}"\nkind = "imglist"\n'
                f'list = "{name}.txt"\n{more}'
            )
    found = audit_inputs(read_input(path))
    near, far = found.sets
    assert near.n_images == 2
    assert [pair.unknown for _, pair in found.overlaps] == ["puppy"]
    assert far.meanings is None
    given = audit_inputs(read_input(path, InputOptions(classes={"far": ["siamese cat", "cup"]})))
    assert [pair.unknown for _, pair in given.overlaps] == ["puppy", "siamese cat"]
    with pytest.raises(UnknownNameError, match="Choose one of: far, test"):
        read_input(path, InputOptions(classes={"neer": ["cup"]}))
    with pytest.raises(InvalidDataError, match="near names its classes itself"):
        read_input(path, InputOptions(classes={"near": ["cup"]}))


def test_benchmarks_of_terra_take_the_senses_recorded_for_terra():
    """All classes are mapped, though none of the sets has half of them."""
    found = audit_inputs(read_input("terra/standard"), settings=AuditSettings(with_images=False))
    assert len(found.sets) == 12
    assert {audited.meanings.synset_map for audited in found.sets} == {"terra"}
    assert found.known_classes.synset_map == "terra"
    assert not any(audited.meanings.unmapped for audited in found.sets)
    assert {(pair.unknown, pair.known, pair.rule) for _, pair in found.overlaps} == {
        ("five-star", "four-star", "pentacle.n.01 is a kind of star.n.05"),
        ("three-star", "four-star", "both are star.n.05"),
        ("three-star", "six-star", "hexagram.n.01 is a kind of star.n.05"),
    }  # WordNet has no stars of three and four points


# -------------------------------------------------------------------------------- not compared


def test_limits_of_rules_divide_images_and_classes(tmp_path):
    rules = tmp_path / "rules.toml"
    rules.write_text(
        'name = "mine"\nversion = 1\nknown = ["horse", "person"]\nrest = "drop"\n'
        'absent = ["person"]\n'
        "[limits]\nnear = 0.8\nfar = 0.5\n"
    )
    annotations = write_coco(tmp_path / "scenes.json")
    (tmp_path / "names.txt").write_text("\n".join(NAMES))
    divided = build_from_annotations(load_rules(rules).rules, annotations).splits.counts
    by_images = audit_inputs(read_input(str(rules)), read_input(str(annotations)))
    assert {audited.name: audited.n_images for audited in by_images.sets} == divided
    by_names = audit_inputs(read_input(str(rules)), read_input(str(tmp_path / "names.txt")))
    known = [*by_names.known_classes.synsets.values()]
    similarities = {
        name: max(wup_similarity(class_meanings([name]).synsets[name], k) for k in known)
        for name in NAMES
        if name not in ("horse", "woman")  # known, and removed as a kind of person
    }
    expected = dealt_by_similarity(similarities, 0.8, 0.5)
    assert {audited.name: [*audited.meanings.rows] for audited in by_names.sets} == expected
    assert by_names.is_clean


@pytest.mark.parametrize("kind", ["annotations", "list", "rules"])
def test_nothing_compared_is_not_clean(kind, tmp_path):
    known = write_list(tmp_path / "known.txt", "horse")
    if kind == "annotations":
        unknown = write_coco(tmp_path / "empty.json", {1: [], 2: []})
    elif kind == "list":
        unknown = tmp_path / "empty.toml"
        unknown.write_text('name = "empty"\nclasses = ["horse"]\nwithout = ["known.txt"]\n')
    else:
        known = tmp_path / "rules.toml"
        known.write_text('name = "m"\nversion = 1\nknown = ["horse"]\nrest = "drop"\n')
        unknown = write_list(tmp_path / "names.txt", "cup")
    found = audit_inputs(*read_inputs(str(known), str(unknown)))
    assert not found.has_compared
    assert not found.is_clean
    assert not found.has_overlap


def test_sets_without_class_names_are_compared_in_part_until_they_are_named(tmp_path):
    known = write_images(tmp_path / "known", {"dog": [1]})
    write_images(tmp_path, {"flat": [2]})
    flat = str(tmp_path / "flat")
    found = audit_inputs(*read_inputs(known, flat))
    assert found.n_hashed == 2
    assert found.has_compared
    assert (found.not_compared, found.is_clean) == (["flat"], False)
    named = audit_inputs(*read_inputs(known, flat, InputOptions(classes={"flat": ["cup"]})))
    assert named.is_clean
    overlapping = read_inputs(flat, known, InputOptions(classes={flat: ["puppy", "dog"]}))
    assert [pair.unknown for _, pair in audit_inputs(*overlapping).overlaps] == ["dog", "dog"]


def test_an_image_beside_the_folders_of_classes_does_not_hide_them(tmp_path):
    known = write_images(tmp_path / "known", {"dog": [1]})
    unknown = write_images(tmp_path / "unknown", {"dog": [2], "cup": [3], " ": [4]})
    picture(5).save(tmp_path / "unknown" / "stray.png")
    found = audit_inputs(*read_inputs(known, unknown))
    assert [pair.unknown for _, pair in found.overlaps] == ["dog"]
    assert found.sets[0].n_images == 4
    assert found.notes == (
        "unknown: 2 images have no folder of a class, and only the others are compared by class",
    )


def test_an_image_in_three_sets_is_counted_once_per_copy(tmp_path):
    known = {"dog": [1], "cat": [2]}
    path = write_benchmark(tmp_path, train={"dog": [3]}, test=known, near={"cup": [1, 3]})
    found = audit_inputs(read_input(path))
    assert len(found.repeats) == 2
    assert found.n_repeated == 2
    write_images(tmp_path / "train", {"dog": [1]})
    found = audit_inputs(read_input(path))
    assert sum(row.n_second for row in found.repeats) == 4
    assert found.n_repeated == 3  # 1 in test and near, 3 in near


def test_folders_outside_are_entered_only_if_that_is_allowed(tmp_path):
    write_images(tmp_path / "mine", {"dog": [1]})
    write_images(tmp_path / "other", {"cup": [2]})
    (tmp_path / "mine" / "dog" / "link").symlink_to(tmp_path / "other" / "cup")
    with pytest.raises(InvalidDataError, match="outside of the data folder"):
        read_input(str(tmp_path / "mine"))
    allowed = read_input(str(tmp_path / "mine"), InputOptions(allow_outside=True))
    assert allowed.sets[0].n_images == 2


def test_paths_that_leave_the_folder_are_named_as_the_reason(tmp_path):
    path = write_benchmark(tmp_path / "a" / "b", test={"dog": [1], "cat": [2]})
    write_images(tmp_path / "a" / "near", {"cup": [3]})
    with open(path, "a") as file:  # noqa: PTH123
        file.write('[[set]]\nname = "near"\nrole = "near"\nkind = "folder"\npath = "../near"\n')
    with pytest.raises(InvalidDataError, match="--allow-outside"):
        read_input(path)
    assert read_input(path, InputOptions(allow_outside=True)).sets[1].classes == ("cup",)


def test_overrides_of_classes_that_are_nowhere_are_refused(tmp_path):
    inputs = read_inputs("voc", write_list(tmp_path / "unknown.txt", "crane"))
    settings = AuditSettings(overrides={"crene": Override("crane.n.05")})
    with pytest.raises(UnknownNameError, match="Did you mean crane"):
        audit_inputs(*inputs, settings)
    chain = {"crane": Override("bird"), "bird": Override("bird.n.01")}
    assert audit_inputs(*inputs, AuditSettings(overrides=chain)).overlaps


# -------------------------------------------------------------------------------- rules


def test_rules_divide_the_images_of_a_file(tmp_path):
    annotations = write_coco(tmp_path / "scenes.json")
    rules = tmp_path / "rules.toml"
    rules.write_text(
        'name = "mine"\nversion = 1\nknown = ["dining table", "woman"]\nnear = ["zebra"]\n'
        'rest = "far"\n'
    )
    found = audit_inputs(read_input(str(rules)), read_input(str(annotations)))
    near, far = found.sets
    assert near.counts == (("zebra", 1, 1),)
    assert far.n_images == 3  # images 4, 7 and 8
    assert {row.name for row in far.counts} == {"spoon", "pizza"}


def test_table_9_of_findmeifyoucan():
    """The nearest Wu-Palmer similarity of the category lists, by first senses as its code."""
    published = {"near": (0.706, 0.225), "far": (0.683, 0.177), "farther": (0.619, 0.158)}
    measured = {"near": (0.721, 0.186), "far": (0.613, 0.181), "farther": (0.607, 0.125)}
    found = {
        audited.name: audited.similarity
        for name in ("fmiyc-voc-coco", "fmiyc-bdd-coco")
        for audited in audit_inputs(
            read_input(name), read_input("coco"), AuditSettings(senses="first")
        ).sets
    }
    for split, (mean, std) in measured.items():
        assert found[split] == pytest.approx((mean, std), abs=0.0006)
        assert abs(mean - published[split][0]) < 0.08
    assert found["near"] > found["far"] > found["farther"]  # as in the paper


def test_wrong_inputs_get_one_sentence(tmp_path, monkeypatch):
    monkeypatch.delenv("INCOGNITA_DATA", raising=False)
    with pytest.raises(InvalidDataError, match="known classes only"):
        audit_inputs(read_input("voc"))
    (tmp_path / "rules.toml").write_text('name="m"\nversion=1\nknown=["dog"]\nrest="far"\n')
    with pytest.raises(InvalidDataError, match="Expected unknown sets"):
        audit_inputs(read_input("voc"), read_input(str(tmp_path / "rules.toml")))
    with pytest.raises(UnknownNameError, match="Did you mean voc"):
        read_input("vcc")
    with pytest.raises(MissingDataError, match="no folder"):
        read_input("there/is/none")
    with pytest.raises(MissingDataError, match="no file at"):
        read_input(str(tmp_path / "none.json"))
    with pytest.raises(MissingDataError, match="no image in"):
        read_input(str(tmp_path))
    with pytest.raises(MissingDataError, match="--data"):
        read_input("openood/cifar10")
    with pytest.raises(MissingDataError, match="incognita data plan openood/cifar10"):
        read_input("openood/cifar10", InputOptions(data=tmp_path))


# -------------------------------------------------------------------------------- proposals

KNOWN, CATEGORIES = ("horse", "person"), ("horse", "human", "woman", "zebra", "tram", "gnarfle")


def test_a_proposal_follows_the_limits():
    known, categories = class_meanings(KNOWN), class_meanings(CATEGORIES)
    proposal = propose(known, categories, limits=SimilarityLimits(near=0.8, far=0.5))
    rules = proposal.rules
    assert rules.known == ["horse", "human"]
    assert rules.remove == ["woman"]
    similarities = {
        name: max(wup_similarity(categories.synsets[name], k) for k in known.synsets.values())
        for name in ("zebra", "tram")
    }
    expected = dealt_by_similarity(similarities, 0.8, 0.5)
    assert {name: getattr(rules, name) for name in expected} == expected
    assert rules.near == ["zebra"]
    assert proposal.unmapped == ("gnarfle",)
    assert proposal.reasons["zebra"] == f"{similarities['zebra']:.3f} to horse"


def test_a_proposal_is_a_rules_file_with_reasons(tmp_path):
    path = tmp_path / "proposed.toml"
    proposal = propose(class_meanings(KNOWN), class_meanings(CATEGORIES))
    proposal.save(path)
    assert load_rules(path).rules == proposal.rules
    lines = path.read_text().splitlines()
    assert '    "zebra",  # 0.933 to horse' in lines
    assert "# Without a noun in WordNet, and in no list: gnarfle" in lines
    assert "limits" not in tomllib.loads(path.read_text())  # editing a list must be enough


def test_known_classes_without_a_category_may_be_absent():
    rules = propose(class_meanings(["dog"]), class_meanings(["fork", "zebra"])).rules
    assert (rules.known, rules.absent) == (["dog"], ["dog"])
    some = propose(class_meanings(["dog", "sofa", "cup"]), class_meanings(["couch", "dog"])).rules
    assert (some.known, some.absent) == (["couch", "dog", "cup"], ["cup"])


def test_names_in_remarks_cannot_add_lines_to_a_proposal(tmp_path):
    evil = 'x\nknown = ["zebra"]\n\x7f#'
    proposal = propose(class_meanings(["horse", evil]), class_meanings(["zebra", "horse", evil]))
    proposal.save(tmp_path / "rules.toml")
    assert load_rules(tmp_path / "rules.toml").rules == proposal.rules
    assert proposal.rules.near == ["zebra"]


def test_the_split_builder_follows_limits(tmp_path):
    annotations = write_coco(tmp_path / "scenes.json")
    head = {"name": "mine", "version": 1, "known": ["horse", "woman"], "rest": "drop"}
    limits = {"near": 0.8, "far": 0.5}
    given = head | {"limits": limits, "far": ["spoon"]}  # a list wins over the limits
    build = build_from_annotations(parse_rules(given, source="mine"), annotations)
    decided = {row.image_id: row.split for row in build.splits.decided}
    assert decided[5] == "near"
    assert decided[4] == "far"
    assert decided[8] == "farther"
    assert decided[6] is None  # the known woman
    assert any("zebra: near, 0.933 to horse" in text for text in build.splits.rules.remarks)
    without = build_from_annotations(parse_rules(head, source="mine"), annotations)
    assert not any(row.split for row in without.splits.decided)


def test_a_saved_proposal_builds_the_same_splits_as_its_limits(tmp_path):
    annotations = write_coco(tmp_path / "scenes.json")
    known = ["horse", "dining table"]
    limits = SimilarityLimits(near=0.8, far=0.5)
    proposal = propose(class_meanings(known), class_meanings(NAMES), limits=limits)
    proposal.save(tmp_path / "rules.toml")
    rules = parse_rules(
        {"name": "m", "version": 1, "known": known, "rest": "drop", "limits": limits.model_dump()},
        source="m",
    )
    by_limits, by_lists = (
        build_from_annotations(chosen, annotations).splits.decided
        for chosen in (rules, load_rules(tmp_path / "rules.toml").rules)
    )
    assert [row.split for row in by_limits] == [row.split for row in by_lists]
    assert len({row.split for row in by_lists}) > 2


def test_bad_limits_and_unknown_classes_get_one_sentence():
    with pytest.raises(InvalidDataError, match=r"far is 0.9, but must be below near, 0.8"):
        parse_rules(
            {"name": "m", "version": 1, "known": ["dog"], "rest": "far",
             "limits": {"near": 0.8, "far": 0.9}},
            source="m.toml",
        )  # fmt: skip
    with pytest.raises(InvalidDataError, match="known classes that WordNet has a noun for"):
        propose(class_meanings(["gnarfle"]), class_meanings(["dog"]))
    rules = parse_rules({"name": "m", "version": 1, "known": ["dog"], "rest": "far"}, source="m")
    assert with_limits(rules, ["cup"]) is rules


# -------------------------------------------------------------------------------- real data


@pytest.mark.data
def test_real_annotations_show_dining_tables_with_spoons_and_pizza(data_dir, tmp_path):
    """232 images of COCO val2017; counted again with plain Python."""
    path = data_dir / "detection" / "coco" / "instances_val2017_subset.json.gz"
    found = audit_inputs(read_input("voc"), read_input(str(path)), AuditSettings(with_images=False))
    (coco,) = found.sets
    document = json.loads(gzip.decompress(path.read_bytes()))
    names = {row["id"]: row["name"] for row in document["categories"]}
    held = {row["id"]: set() for row in document["images"]}
    for row in document["annotations"]:
        held[row["image_id"]].add(names[row["category_id"]])
    together = {(row.unknown, row.known): row for row in coco.together}
    for name in ("spoon", "pizza"):
        row = together[name, "diningtable"]
        with_it = [shown for shown in held.values() if name in shown]
        assert row.n_images == len(with_it)
        assert row.n_together == sum("dining table" in shown for shown in with_it)
        assert row.share >= 0.5
        assert row.share > 3 * row.share_in_all
    assert len(coco.overlaps) == 20  # the classes of VOC, all in COCO
    assert len(coco.images_with_known) == 232 - 53


@pytest.mark.data
def test_the_openood_definitions(data_dir, tmp_path):
    """What the lists allow: none of the four is free of known classes."""
    with tarfile.open(data_dir / "lists" / "openood_benchmark_imglist.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    options = InputOptions(data=tmp_path)
    found = {
        name: audit_inputs(read_input(f"openood/{name}", options))
        for name in ("cifar10", "cifar100", "imagenet200")
    }
    assert not any(audit.is_clean for audit in found.values())
    cifar10 = {(audited.name, pair.unknown) for audited, pair in found["cifar10"].overlaps}
    assert ("cifar100", "pickup_truck") in cifar10
    assert ("places365", "car_interior") in cifar10
    assert not any(name == "texture" for name, _ in cifar10)
    ssb = next(row for row in found["imagenet200"].sets if row.name == "ssb_hard")
    assert ssb.n_classes == 980
    assert any(pair.relation is ClassRelation.HYPONYM for pair in ssb.overlaps)


@pytest.mark.data
def test_real_folders_are_hashed(data_dir, tmp_path):
    archive = data_dir / "classification" / "imagenet_samples" / "in250_s256.zip"
    with zipfile.ZipFile(archive) as file:
        names = [name for name in file.namelist() if name.endswith((".jpg", ".JPEG"))][:40]
        for name in names:
            for part in ("a", "b") if name == names[0] else ("a",) if len(name) % 2 else ("b",):
                target = tmp_path / part / "x" / name.rpartition("/")[2]
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(file.read(name))
    write_images(tmp_path / "b", {"x": [1]})
    write_images(tmp_path / "a", {"y": [2]})
    found = audit_inputs(read_input(str(tmp_path / "a")), read_input(str(tmp_path / "b")))
    (row,) = found.repeats
    assert (row.kind, row.n_first, row.n_second) == ("content", 1, 1)
