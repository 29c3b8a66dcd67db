"""Each image goes where the steps of the notes put it, and every decision has its reason."""

import gzip
import json
import shutil
import tempfile
from collections.abc import Collection
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pycocotools.coco import COCO
from tests.formats.annotation_cases import NAMES, document, write
from tests.oracles.splits import deal_out

from incognita.benchmarks.splits.assign import AssignmentRule, CategoryRule, Decision, build_splits
from incognita.benchmarks.splits.build import build_from_annotations
from incognita.benchmarks.splits.rules import SPLITS, SplitRules, parse_rules
from incognita.benchmarks.splits.write import SplitBuild, notes_of, problems_of, save_builds
from incognita.errors import InvalidDataError, MissingDataError, UnknownNameError
from incognita.formats import load_truth
from incognita.formats.coco_records import load_annotations

IDS = range(1, 7)  # few, so that lists contradict each other


def rules_of(**more) -> SplitRules:
    content = {"name": "mine", "version": 3, "known": ["cat", "dog"], "rest": "far"} | more
    return parse_rules(content, source="mine.toml")


def base_of(tmp_path: Path, held, **more):
    return load_annotations(write(tmp_path / "base.json", document(held, **more)))


def split_of(splits) -> dict:
    return {each.image_id: each.split or "removed" for each in splits.decided}


# --- decisions ------------------------------------------------------------------------------------


@st.composite
def cases(draw):
    held = st.sets(st.sampled_from(NAMES), max_size=3)
    ids = st.lists(st.sampled_from(IDS), max_size=5)
    images = st.dictionaries(st.sampled_from(IDS), held, min_size=2)
    places = draw(st.lists(st.sampled_from(("near", "far", "farther", "")), min_size=8, max_size=8))
    listed = {s: [n for n, p in zip(NAMES, places, strict=True) if p == s] for s in SPLITS}
    lists = ("remove_ids", "keep_to_near_ids", "review_remove_ids", "to_near_ids", "to_far_ids")
    rules = {
        "name": "drawn",
        "version": 1,
        "known": draw(st.lists(st.sampled_from(NAMES[:3]), min_size=1, unique=True)),
        "remove": draw(st.lists(st.sampled_from(NAMES[2:5]), unique=True)),
        "rest": draw(st.sampled_from(("near", "far", "farther", "drop"))),
        "candidates": {split: draw(ids) for split in SPLITS},
        **listed,
        **{name: draw(ids) for name in lists},
    }
    return draw(images), draw(images), rules


@settings(max_examples=120)
@given(cases())
def test_every_image_goes_where_the_steps_of_the_notes_put_it(case):
    base, candidates, rules = case
    with tempfile.TemporaryDirectory() as folder:
        files = [
            load_annotations(write(Path(folder) / f"{k}.json", document(held)))
            for k, held in enumerate((base, candidates))
        ]
        splits = build_splits(files[0], parse_rules(rules, source="drawn"), candidates=files[1])
    of_base, added = deal_out(base, candidates, rules)
    found = {"base": {}, "candidates": {}}
    for each in splits.decided:
        assert each.image_id not in found[each.origin]
        assert each.reason
        found[each.origin][each.image_id] = each.split or "removed"
    assert found == {"base": of_base, "candidates": added}


def test_reasons_name_the_category_or_the_list(tmp_path):
    held = {
        1: ["cat", "fox"], 2: ["fork", "fox"], 3: ["kite"], 4: ["zebra", "fox"], 5: [],
        6: ["cat"], 7: ["kite"], 8: ["kite"], 9: ["fox"], 10: ["fox"], 11: ["fox"],
    }  # fmt: skip
    rules = rules_of(
        remove=["fork"], near=["fox"], keep_to_near_ids=[6, 7], to_near_ids=[8], to_far_ids=[9],
        remove_ids=[10], review_remove_ids=[11],
    )  # fmt: skip
    splits = build_splits(base_of(tmp_path, held), rules)
    assert [(each.image_id, each.split, each.reason) for each in splits.decided] == [
        (1, None, "holds the known category 'cat'"),
        (2, None, "holds 'fork', a category that is removed"),
        (3, "far", "does not hold a listed category, and the rest is far"),
        (4, "near", "holds the near category 'fox'"),
        (5, "far", "does not hold an annotated object, and the rest is far"),
        (6, "near", "is on the list keep_to_near_ids, though it holds the known category 'cat'"),
        (7, "near", "is on the list keep_to_near_ids"),
        (8, "near", "is on the list to_near_ids"),
        (9, "far", "is on the list to_far_ids"),
        (10, None, "is on the list remove_ids"),
        (11, None, "is on the list review_remove_ids"),
    ]
    assert splits.counts == {"near": 4, "far": 3}
    assert splits.n_removed == 4


def test_the_rest_can_be_dropped(tmp_path):
    splits = build_splits(base_of(tmp_path, {1: ["kite"]}), rules_of(rest="drop"))
    reason = "does not hold a listed category, and the rest is dropped"
    assert splits.decided[0][2:] == (None, reason)


def test_removing_wins_over_near_as_for_the_spoon_of_the_paper(tmp_path):
    rules = rules_of(remove=["fork"], near=["fork", "fox"])
    splits = build_splits(base_of(tmp_path, {1: ["fork"], 2: ["fox"]}), rules)
    assert split_of(splits) == {1: "removed", 2: "near"}
    assert "fork: listed for a split, but known or removed, which wins" in notes_of(splits)


def test_another_rule_may_take_the_place_of_the_lists(tmp_path):
    class ByLetters:
        def decide(self, image_id: int | str, categories: Collection[str]) -> Decision:
            longest = max(map(len, categories), default=0)
            return Decision("near" if longest > 3 else "farther", f"has {longest} letters")

    assert isinstance(ByLetters(), AssignmentRule)
    assert isinstance(CategoryRule(rules_of()), AssignmentRule)
    base = base_of(tmp_path, {1: ["cat"], 2: ["zebra"]})
    splits = build_splits(base, rules_of(), rule=ByLetters())
    assert split_of(splits) == {1: "farther", 2: "near"}
    assert splits.decided[1].reason == "has 5 letters"


def test_a_candidate_that_shows_something_known_stays_out(tmp_path):
    rules = rules_of(candidates={"near": [7, 8], "far": [8]})
    second = load_annotations(
        write(tmp_path / "second.json", document({7: ["cat"], 8: ["fork"], 9: ["fox"]}))
    )
    splits = build_splits(base_of(tmp_path, {1: ["kite"]}), rules, candidates=second)
    assert [each[:3] for each in splits.decided] == [
        (1, "base", "far"),
        (7, "candidates", None),
        (8, "candidates", "near"),
    ]
    assert "id 8 on both candidates.near and candidates.far; candidates.near wins" in notes_of(
        splits
    )


def test_a_candidate_of_the_base_is_decided_there(tmp_path):
    base = base_of(tmp_path, {1: ["kite"]})
    splits = build_splits(base, rules_of(candidates={"near": [1]}), candidates=base)
    assert split_of(splits) == {1: "far"}
    assert notes_of(splits) == ["id 1 on both base and candidates.near; base wins"]


def test_ids_may_be_text(tmp_path):
    rules = rules_of(near=["fox"], to_far_ids=["a1"])
    splits = build_splits(base_of(tmp_path, {"b2": ["fox"], "a1": ["fox"]}), rules)
    assert split_of(splits) == {"a1": "far", "b2": "near"}
    assert [each.image_id for each in splits.decided] == ["a1", "b2"]


def test_a_file_without_images_gives_empty_splits(tmp_path):
    splits = build_splits(base_of(tmp_path, {}), rules_of(expected={"near": 2}))
    assert splits.counts == {"near": 0}
    assert problems_of(splits) == ["near: 0 images, but 2 are expected"]


# --- what is missing ------------------------------------------------------------------------------


def test_counts_that_are_met_make_splits_complete_whatever_the_lists_say(tmp_path):
    rules = rules_of(expected={"far": 1}, published_lists={"remove_ids": 9}, to_far_ids=[77])
    splits = build_splits(base_of(tmp_path, {1: ["kite"]}), rules)
    assert problems_of(splits) == []


def test_wrong_counts_empty_lists_and_lost_ids_are_told(tmp_path):
    rules = rules_of(
        near=["fox"], to_near_ids=[5, 5, 6, 7, 8], remove_ids=[1],
        expected={"near": 4, "far": 1},
        published_lists={"remove_ids": 9, "to_far_ids": 3, "candidates.near": 2},
    )  # fmt: skip
    splits = build_splits(base_of(tmp_path, {1: ["kite"], 5: ["kite"]}), rules)
    assert problems_of(splits) == [
        "to_far_ids, candidates.near: empty, so that the published counts cannot be reached; write "
        "the published ids into a TOML file and give it with --ids",
        "remove_ids: 1 ids, but the published list has 9",
        "to_near_ids: 3 ids (6, 7, 8) in no annotation file",
        "near: 1 images, but 4 are expected",
        "far: 0 images, but 1 are expected",
    ]
    assert notes_of(splits) == ["to_near_ids: id 5 more than once; each counts once"]
    check = splits.lists[3]
    assert (check.name, check.given, check.unique) == ("to_near_ids", 5, 4)


def test_without_expected_counts_a_lost_id_is_a_problem(tmp_path):
    splits = build_splits(base_of(tmp_path, {1: ["kite"]}), rules_of(remove_ids=[2]))
    assert problems_of(splits) == ["remove_ids: id 2 in no annotation file"]


def test_another_base_file_is_told(tmp_path):
    place = {"file": "vos.json", "images": 930, "published": "a drive", "stand_in": "not clean"}
    splits = build_splits(base_of(tmp_path, {1: ["kite"]}), rules_of(base=place))
    assert problems_of(splits) == [
        "base.json with 1 images stands in for vos.json with 930 images: not clean; it is "
        "published at a drive"
    ]
    splits = build_splits(base_of(tmp_path, {}), rules_of(base=place))
    assert problems_of(splits) == ["vos.json with 930 images is missing, published at a drive"]


def test_candidates_without_a_second_file_are_told(tmp_path):
    rules = rules_of(candidates={"near": [7, 8], "far": [8]})
    splits = build_splits(base_of(tmp_path, {1: ["kite"]}), rules)
    assert problems_of(splits) == [
        "2 candidates are listed, but there is no second annotation file to take them from; give it"
    ]


def test_images_of_unknown_size_are_told_once(tmp_path):
    rules = rules_of(candidates={"near": ["a", "b"]})
    base = base_of(tmp_path, {"z": ["kite"]})
    splits = build_splits(base, rules, candidates=base)
    assert problems_of(splits, unsized=("a",)) == [
        "1 images are left out because their size is unknown, such as a; put them into the "
        "folder, or list them in sizes.csv",
        "candidates.near: id b in no annotation file",
    ]


def test_a_name_that_no_category_has_is_refused_unless_the_rules_expect_it(tmp_path):
    base = base_of(tmp_path, {1: ["kite"]})
    with pytest.raises(
        UnknownNameError, match=r"No category of base.json is called 'catt'. Did you"
    ):
        build_splits(base, rules_of(known=["catt"]))
    splits = build_splits(base, rules_of(known=["cat", "catt"], absent=["catt"]))
    assert notes_of(splits) == ["catt: no such category, as the rules expect"]


def test_two_files_must_mean_the_same_by_a_category(tmp_path):
    second = load_annotations(
        write(tmp_path / "second.json", document({7: []}, names=("dog", "cat")))
    )
    with pytest.raises(
        InvalidDataError,
        match=r"second.json calls category 1 'dog', but base.json calls it 'cat'; give two files",
    ):
        build_splits(base_of(tmp_path, {1: []}), rules_of(), candidates=second)


# --- reading --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("[]", "x.json is a list, as detections are, but the truth is an object with images, "),
        ("{}", "x.json has no list called 'images'; the truth needs images, annotations and "),
        ('{"images": [], "annotations": [], "categories": [], "images": []}',
         "x.json holds the key 'images' twice; keep one"),
        ({"images": [{"id": 1}], "annotations": [], "categories": []}, "has no file_name; add it"),
        ({"images": [{"id": 1, "file_name": "a"}, {"id": 1, "file_name": "b"}], "annotations": [],
          "categories": []}, "has 1 as id, as image 0 has; keep one"),
        ({"images": [], "categories": [{"id": 1, "name": "a"}],
          "annotations": [{"image_id": 4, "category_id": 1, "bbox": [1, 1, 1, 1]}]},
         "is on image 4, which "),
        ({"images": [{"id": 4, "file_name": "a"}], "categories": [],
          "annotations": [{"image_id": 4, "category_id": 1, "bbox": [1, 1, 1, 1]}]},
         "has 1 as category_id, which "),
        ({"images": [], "annotations": [], "categories": [{"id": 1, "name": "a"},
          {"id": 2, "name": "a"}]}, "has 'a' as name, as category 0 has; keep one"),
        ({"images": [{"id": 4, "file_name": "a"}], "categories": [{"id": 1, "name": "a"}],
          "annotations": [{"image_id": 4, "category_id": 1, "bbox": [1, 1, -1, 1]}]},
         "has a negative width"),
    ],
)  # fmt: skip
def test_a_wrong_annotation_file_is_answered_with_a_sentence(tmp_path, content, sentence):
    with pytest.raises(InvalidDataError) as raised:
        load_annotations(write(tmp_path / "x.json", content))
    assert sentence in str(raised.value)


def test_a_missing_annotation_file_is_told(tmp_path):
    with pytest.raises(MissingDataError, match="There is no file at"):
        load_annotations(tmp_path / "x.json")


def test_reading_some_images_gives_what_reading_all_gives_of_them(tmp_path):
    path = write(tmp_path / "x.json", document({1: ["cat"], 2: ["fox", "cup"], 3: []}))
    some, every = load_annotations(path, only={2, 3, 9}), load_annotations(path)
    assert list(some.images) == [2, 3]
    assert some.images[2] == every.images[2]
    assert some.objects == {2: every.objects[2]}
    assert some.categories == every.categories


# --- writing --------------------------------------------------------------------------------------


def build_of(tmp_path: Path, content, rules: SplitRules, **more) -> SplitBuild:
    path = write(tmp_path / "base.json", content)
    return build_from_annotations(rules, path, images=tmp_path / "images", **more)


def test_a_split_file_keeps_every_key_of_every_record(tmp_path):
    content = document({1: ["fox", "cup"], 2: ["kite"], 3: ["cat"]})
    build = build_of(tmp_path, content, rules_of(near=["fox"]))
    save_builds([build], tmp_path / "out", head=None, version="0")
    near = json.loads((tmp_path / "out" / "near.json").read_text())
    assert near["images"] == content["images"][:1]
    assert near["annotations"] == content["annotations"][:2]
    for key in ("info", "licenses", "categories"):
        assert near[key] == content[key]
    assert not (tmp_path / "out" / "farther.json").exists()
    assert not (tmp_path / "out" / "benchmark.toml").exists()
    coco = COCO(str(tmp_path / "out" / "far.json"))
    assert (coco.getImgIds(), len(coco.getAnnIds()), len(coco.getCatIds())) == ([2], 1, 8)


def test_the_order_of_the_records_does_not_matter(tmp_path):
    held = {k: list(names) for k, names in enumerate([["fox"], ["kite", "fox"], [], ["cup"]])}
    content, mixed = document(held), document(held)
    Random(0).shuffle(mixed["images"])
    # the sort is stable: objects of one image stay in their order
    mixed["annotations"].sort(key=lambda each: -each["image_id"])
    assert mixed != content
    for name, each in (("one", content), ("two", mixed)):
        build = build_of(tmp_path, each, rules_of(near=["fox"]))
        save_builds([build], tmp_path / name, head=None, version="0")
    for name in ("near.json", "far.json"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


def test_a_second_build_writes_the_same_bytes(tmp_path):
    for name in ("one", "two"):
        build = build_of(tmp_path, document({1: ["fox"], 2: ["kite"]}), rules_of(near=["fox"]))
        save_builds([build], tmp_path / name, head=None, version="0")
    names = sorted(path.name for path in (tmp_path / "one").iterdir())
    assert names == ["far.json", "manifest.json", "near.json"]
    for name in names:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


def test_annotations_of_two_files_with_equal_ids_are_numbered_anew(tmp_path):
    second = write(tmp_path / "second.json", document({7: ["fox"]}))
    rules = rules_of(candidates={"far": [7]}, image_folders={"base": "val", "candidates": "train"})
    build = build_of(tmp_path, document({1: ["kite"]}), rules, candidates=second)
    save_builds([build], tmp_path / "out", head=None, version="0")
    far = json.loads((tmp_path / "out" / "far.json").read_text())
    assert [each["id"] for each in far["annotations"]] == [1, 2]
    assert [each["file_name"] for each in far["images"]] == ["val/1.jpg", "train/7.jpg"]
    assert load_truth(tmp_path / "out" / "far.json").boxes.n_images == 2


def test_the_manifest_holds_every_decision_and_hash(tmp_path):
    rules = rules_of(expected={"far": 5}, remove_ids=[2, 2])
    build = build_of(tmp_path, document({1: ["kite"], 2: ["cup"]}), rules)
    save_builds([build], tmp_path / "out", head=None, version="1.2")
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert (manifest["format"], manifest["incognita"]) == (1, "1.2")
    (metadata,) = manifest["builds"]
    assert metadata["rules"] == {"name": "mine", "version": 3, "from": None}
    assert metadata["inputs"][0]["file"] == "base.json"
    assert len(metadata["inputs"][0]["sha256"]) == 64
    assert metadata["splits"]["far"] == {
        "file": "far.json", "images": 1, "expected": 5, "objects": 1, "is_complete": False,
    }  # fmt: skip
    assert metadata["lists"][0]["repeated"] == [2]
    assert metadata["decisions"] == [
        {"image_id": 1, "origin": "base", "split": "far",
         "reason": "does not hold a listed category, and the rest is far"},
        {"image_id": 2, "origin": "base", "split": None, "reason": "is on the list remove_ids"},
    ]  # fmt: skip


# --- real annotations -----------------------------------------------------------------------------


@pytest.mark.data
def test_real_coco_images_are_dealt_out_whole_and_without_voc_classes(data_dir, tmp_path):
    from incognita.benchmarks.splits.build import build_from_coco

    path = tmp_path / "annotations" / "instances.json.gz"
    path.parent.mkdir()
    shutil.copy(data_dir / "detection" / "coco" / "instances_val2017_subset.json.gz", path)
    build = build_from_coco("voc", path)
    assert build.images == tmp_path
    save_builds([build], tmp_path / "out", head=None, version="0")
    content = json.loads(gzip.decompress(path.read_bytes()))
    marked = {each["id"]: each["contains_voc_class"] for each in content["images"]}
    decided = {each.image_id: each for each in build.splits.decided}
    assert sorted(decided) == sorted(marked)
    assert len(decided) == len(build.splits.decided) == 232
    for image_id, has_voc_class in marked.items():
        reason = decided[image_id].reason
        assert reason.startswith("holds the known category") == has_voc_class
    removed = {each.image_id for each in build.splits.decided if each.split is None}
    names = {each["id"]: each["name"] for each in content["categories"]}
    seen = set()
    for split, count in (("near", 21), ("far", 22)):
        coco = COCO(str(tmp_path / "out" / f"coco-{split}.json"))
        assert len(coco.imgs) == count
        held = {names[each["category_id"]] for each in coco.anns.values()}
        assert not held & {*build.splits.rules.known, *build.splits.rules.remove}
        for image_id in coco.imgs:
            own = [each for each in content["annotations"] if each["image_id"] == image_id]
            assert coco.imgToAnns[image_id] == own
        seen |= set(coco.imgs)
    assert seen | removed == set(marked)
    assert not seen & removed
