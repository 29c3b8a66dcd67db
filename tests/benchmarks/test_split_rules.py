"""Rules and lists of ids are read from TOML, and a wrong file is answered with one sentence."""

import json
import tomllib

import pytest

from incognita.benchmarks.definition_files import list_benchmarks
from incognita.benchmarks.splits.rules import (
    SHIPPED,
    list_rules,
    load_ids,
    load_rules,
    parse_rules,
    with_ids,
)
from incognita.errors import InvalidDataError, MissingDataError, UnknownNameError

RIGHT = {"name": "mine", "version": 1, "known": ["cat"], "rest": "far"}
BASE = {"file": "a.json", "images": 3, "published": "there", "stand_in": "less"}


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ({"ner": []}, "has no use for the key 'ner'; did you mean near?"),
        ({"xyz": 1}, "has no use for the key 'xyz'; choose one of: absent, base, candidates"),
        ({"candidates": {"naer": []}}, "has no use for the key 'naer'; did you mean near?"),
        ({"base": BASE | {"fiel": 1}}, "has no use for the key 'fiel'; did you mean file?"),
        ({"rest": "afar"}, "rest holds 'afar', which is wrong: input should be 'near', 'far'"),
        ({"known": []}, "known holds [], which is wrong: list should have at least 1 item"),
        ({"known": "cat"}, "known holds 'cat', which is wrong: input should be a valid list"),
        ({"near": [3]}, "near holds 3, which is wrong: input should be a valid string"),
        ({"version": 0}, "version holds 0, which is wrong: input should be greater than 0"),
        ({"expected": {"near": "many"}}, "expected.near holds 'many', which is wrong"),
        ({"remove_ids": [1.5]},
         "remove_ids holds 1.5, which is wrong: expected image ids, whole numbers or text"),
        ({"candidates": {"far": 7}},
         "candidates.far holds 7, which is wrong: expected image ids, whole numbers or text"),
        ({"known": ["cat", "cat"]}, "category 'cat' is twice in known; keep one."),
        ({"near": ["fox"], "far": ["fox"]},
         "category 'fox' is both near and far; keep one of the two."),
        ({"published_lists": {"to_far": 2}},
         "published_lists names 'to_far', which is not a list of ids; choose one of: remove_ids, "),
        ({"base": {"file": "a.json"}}, "base has no key 'images'; add it."),
    ],
)  # fmt: skip
def test_wrong_rules_are_answered_with_a_sentence(more, sentence):
    with pytest.raises(InvalidDataError) as raised:
        parse_rules(RIGHT | more, source="mine.toml")
    assert str(raised.value).startswith("mine.toml")
    assert sentence in str(raised.value)


def test_a_key_that_is_missing_is_named():
    with pytest.raises(InvalidDataError, match=r"mine.toml has no key 'known'; add it."):
        parse_rules({"name": "mine", "version": 1, "rest": "far"}, source="mine.toml")


def test_rules_are_found_by_name_or_path(tmp_path):
    (tmp_path / "own.toml").write_text('name = "own"\nversion = 2\nknown = ["a"]\nrest = "drop"\n')
    found = load_rules(tmp_path / "own.toml")
    assert (found.rules.name, found.rules.version, found.file) == ("own", 2, "own.toml")
    with pytest.raises(UnknownNameError, match=r"is called 'fmiyc-voc-coca'. Did you"):
        load_rules("fmiyc-voc-coca")
    with pytest.raises(MissingDataError, match=r"There is no rules file at .*none.toml; give the"):
        load_rules(tmp_path / "none.toml")
    (tmp_path / "own.toml").write_text("name = ")
    with pytest.raises(InvalidDataError, match=r"own.toml is not TOML: .*; correct the file."):
        load_rules(tmp_path / "own.toml")


def test_ids_are_added_to_the_lists_of_the_rules(tmp_path):
    path = tmp_path / "ids.toml"
    path.write_text(
        'version = 1\n[mine]\nremove_ids = [4, "x"]\n[mine.candidates]\nnear = [9]\n[other]\n'
    )
    found = load_ids(path, ["mine", "other"])
    assert sorted(found.lists) == ["mine", "other"]
    rules = parse_rules(RIGHT | {"remove_ids": [3], "candidates": {"near": [8]}}, source="a")
    joined = with_ids(rules, found.lists["mine"])
    assert joined.remove_ids == [3, 4, "x"]
    assert joined.candidates.near == [8, 9]
    assert joined.candidates.ids() == {8, 9}
    assert joined.known == rules.known


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[mine]\n", "ids.toml must begin with the line: version = 1"),
        ("version = 2\n", "ids.toml must begin with the line: version = 1"),
        ("version = 1\n[mien]\n",
         "ids.toml: No rules file is called 'mien'. Did you mean mine?"),
        ("version = 1\nmine = 3\n",
         "ids.toml: mine is 3, but a table with lists of ids is expected: begin it with the line "
         "[mine]."),
        ("version = 1\n[mine]\nremove = [3]\n",
         "ids.toml, table mine has no use for the key 'remove'; did you mean remove_ids?"),
    ],
)  # fmt: skip
def test_a_wrong_file_of_ids_is_answered_with_a_sentence(tmp_path, text, sentence):
    (tmp_path / "ids.toml").write_text(text)
    with pytest.raises(InvalidDataError) as raised:
        load_ids(tmp_path / "ids.toml", ["mine"])
    assert str(raised.value) == sentence


def test_a_missing_file_of_ids_is_told(tmp_path):
    with pytest.raises(MissingDataError, match="There is no file of image ids at"):
        load_ids(tmp_path / "ids.toml", ["mine"])


# --- the published rules --------------------------------------------------------------------------


def test_four_rules_ship_and_none_of_them_is_a_benchmark():
    assert list_rules() == [
        "fmiyc-bdd-coco", "fmiyc-bdd-openimages", "fmiyc-voc-coco", "fmiyc-voc-openimages",
    ]  # fmt: skip
    assert not [name for name in list_benchmarks() if "split" in name]
    for name in list_rules():
        assert load_rules(name).rules.name == name


def test_the_counts_are_those_of_table_2_of_the_paper():
    expected = {name: dict(load_rules(name).rules.expected) for name in list_rules()}
    assert expected == {
        "fmiyc-voc-coco": {"near": 1174, "far": 938},
        "fmiyc-voc-openimages": {"near": 908, "far": 1179},
        "fmiyc-bdd-coco": {"farther": 1873},
        "fmiyc-bdd-openimages": {"farther": 1695},
    }
    assert sum(count for each in expected.values() for count in each.values()) == 7767


def test_the_category_lists_have_the_sizes_of_the_notes():
    sizes = {}
    for name in list_rules():
        rules = load_rules(name).rules
        sizes[name] = (len(rules.known), len(rules.remove), len(rules.near), rules.rest)
    assert sizes == {
        "fmiyc-voc-coco": (20, 8, 14, "far"),
        "fmiyc-voc-openimages": (31, 24, 18, "far"),  # Jaguar under both its names
        "fmiyc-bdd-coco": (9, 0, 0, "farther"),
        "fmiyc-bdd-openimages": (17, 12, 0, "farther"),
    }


def test_no_shipped_rules_hold_an_image_id():
    for name in list_rules():
        assert not any(load_rules(name).rules.by_name().values())
        content = tomllib.loads((SHIPPED / f"{name}.toml").read_text())
        assert content["source"]
        assert content["published_lists"]


@pytest.mark.data
def test_the_listed_names_are_those_of_coco_and_openimages(data_dir):
    classes = json.loads((data_dir / "lists" / "detection_classes.json").read_text())
    # the list writes COCO's names with underscores, and newer files say Jaguar (Animal)
    names = {"coco": {each.replace("_", " ") for each in classes["coco"]},
             "openimages": set(classes["oid_v6"])}  # fmt: skip
    for name in list_rules():
        rules = load_rules(name).rules
        listed = {*rules.known, *rules.remove, *rules.near}
        unlisted = listed - names[name.rpartition("-")[2]]
        assert unlisted <= set(rules.absent)
        if name == "fmiyc-voc-openimages":
            assert set(rules.absent) - unlisted == {"Jaguar (Animal)"}
        else:
            assert not unlisted
