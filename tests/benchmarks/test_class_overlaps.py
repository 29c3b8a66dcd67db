"""Relations between class lists: hand-made cases, slow definitions, lists that ship."""

import json
import random

import pytest
from tests.oracles.overlaps import all_kinds, all_parts

from incognita.benchmarks.class_overlaps import (
    OVERLAPS,
    ClassRelation,
    class_meanings,
    find_overlaps,
    kinds_above,
    list_class_lists,
    load_class_list,
    nearest_known,
    parts_of,
)
from incognita.errors import InvalidDataError, MissingDataError, UnknownNameError
from incognita.semantics import load_synset_map, load_wordnet, wup_similarity
from incognita.semantics.class_names import Override

WORDNET = load_wordnet()


def relations(known, unknown):
    pairs = find_overlaps(class_meanings(known), class_meanings(unknown))
    return [(pair.unknown, pair.relation.value, pair.known) for pair in pairs]


def upward(synset):
    return WORDNET.hypernyms(synset) + WORDNET.instance_hypernyms(synset)


@pytest.mark.parametrize(
    ("known", "unknown", "relation"),
    [
        ("dining table", "Dining_Table", "exact"),
        ("sofa", "couch", "synonym"),
        ("person", "woman", "hyponym"),
        ("car", "vehicle", "hypernym"),
        ("car", "car wheel", "part"),
        ("person", "nose", "part"),
        ("wheel", "bicycle", "whole"),
        ("person", "human", "synonym"),  # recorded, WordNet has them apart
        ("pot plant", "houseplant", "synonym"),  # recorded
        ("person", "hair", "part"),  # by way of a recorded part
    ],
)
def test_each_relation_is_found(known, unknown, relation):
    assert relations([known], [unknown]) == [(unknown, relation, known)]


def test_unrelated_classes_have_no_relation():
    assert relations(["dog", "car"], ["pizza", "wolf", "banana"]) == []


def test_a_name_outside_wordnet_is_compared_by_name():
    assert relations(["gnarfle", "dog"], ["Gnarfle", "bloop"]) == [("Gnarfle", "exact", "gnarfle")]
    assert class_meanings(["gnarfle"]).unmapped == ["gnarfle"]


def test_a_same_name_counts_and_names_both_meanings():
    known = class_meanings(["mouse"], overrides={"mouse": Override("mouse.n.01")})
    unknown = class_meanings(["mouse"], overrides={"mouse": Override("mouse.n.04")})
    (pair,) = find_overlaps(known, unknown)
    assert pair.relation is ClassRelation.EXACT
    assert pair.rule == "same name, as mouse.n.04 and mouse.n.01"


def test_the_strongest_relation_comes_first_and_once():
    found = relations(["person", "woman"], ["woman"])
    assert found == [("woman", "exact", "woman"), ("woman", "hyponym", "person")]


def test_relations_are_mirrored():
    one, other = (
        class_meanings(load_synset_map("voc").names),
        class_meanings(load_synset_map("openimages").names),
    )
    mirror = {
        "exact": "exact", "synonym": "synonym", "hyponym": "hypernym", "hypernym": "hyponym",
        "part": "whole", "whole": "part",
    }  # fmt: skip
    forth = {(p.unknown, p.relation.value, p.known) for p in find_overlaps(one, other)}
    back = {(p.known, mirror[p.relation], p.unknown) for p in find_overlaps(other, one)}
    assert forth == back


RECORDED = {"homo.n.02", "person.n.01", "houseplant.n.01", "pot_plant.n.01", "body.n.01"}


def test_kinds_and_parts_follow_their_definitions():
    synsets = sorted({row.synset for row in load_synset_map("openimages").classes})
    n_compared = n_with_parts = 0
    for synset in random.Random(0).sample(synsets, 60):
        kinds, parts = all_kinds(synset, upward), all_parts(synset, upward, WORDNET.meronyms)
        if RECORDED & {synset, *kinds, *parts}:  # the oracle knows WordNet only
            continue
        assert set(kinds_above(synset)) == kinds, synset
        assert set(parts_of(synset)) - {synset} == parts - {synset}, synset
        n_compared, n_with_parts = n_compared + 1, n_with_parts + bool(parts)
    assert n_compared > 40
    assert n_with_parts > 10


def test_a_ship_has_no_bed():
    assert "bed.n.01" not in parts_of("ship.n.01")
    assert "wheel.n.01" in parts_of("bicycle.n.01")


def test_recorded_senses_are_taken_from_a_map_that_fits():
    coco = load_synset_map("coco")
    assert class_meanings(coco.names).synset_map == "coco"
    assert class_meanings(coco.names).synsets["mouse"] == "mouse.n.04"
    short = class_meanings(["mouse", "keyboard"])  # too few names to be sure
    assert short.synset_map is None
    assert short.ambiguous == ["mouse", "keyboard"]
    assert class_meanings(["mouse"], declared=coco.names).synsets == {"mouse": "mouse.n.04"}


def test_an_override_wins_and_may_name_another_class():
    coco = load_synset_map("coco").names
    overrides = {"mouse": Override("rat"), "rat": Override("rat.n.01")}
    assert class_meanings(coco, overrides=overrides).synsets["mouse"] == "rat.n.01"
    with pytest.raises(UnknownNameError, match="mouse"):
        class_meanings(["mouse"], overrides={"mouse": Override("mouse.n.99")})
    with pytest.raises(InvalidDataError, match="circle"):
        class_meanings(["a"], overrides={"a": Override("b"), "b": Override("a")})


def test_an_empty_list_is_refused():
    with pytest.raises(InvalidDataError, match="empty list"):
        class_meanings([])


def test_the_nearest_known_class_has_the_highest_similarity():
    known, unknown = class_meanings(["dog", "car", "cup"]), class_meanings(["wolf", "bus", "mug"])
    found = nearest_known(known, unknown)
    for row in found:
        values = {
            name: wup_similarity(unknown.synsets[row.unknown], synset)
            for name, synset in known.synsets.items()
        }
        assert row.similarity == max(values.values())
        assert values[row.known] == row.similarity
    assert [row.known for row in found][::2] == ["dog", "cup"]
    assert nearest_known(class_meanings(["gnarfle"]), unknown) == []


# ------------------------------------------------------------------------------ FindMeIfYouCan


def test_the_overlaps_of_table_7_are_found_by_name():
    voc = class_meanings(load_synset_map("voc").names)
    openimages = class_meanings(load_synset_map("openimages").names)
    found = {}
    for pair in find_overlaps(voc, openimages):
        found.setdefault(pair.unknown, set()).add(pair.known)
    people = (
        "Person", "Woman", "Human face", "Human arm", "Human head", "Human hand", "Human hair",
        "Human nose", "Human ear", "Human mouth", "Human eye", "Human beard",
    )  # fmt: skip
    for name in people:
        assert "person" in found[name], name
    assert "boat" in found["Boat"]
    assert "cat" in found["Cat"]
    assert "pottedplant" in found["Houseplant"]
    assert "Fork" not in found  # on a dining table, but nothing in its name says so


# ------------------------------------------------------------------------------ class lists


def test_text_lists_are_read_without_comments(tmp_path):
    path = tmp_path / "mine.txt"
    path.write_text("# animals\ndog\ncat\tfelis\n\n", encoding="utf-8")
    assert load_class_list(path).classes == ("dog", "cat")


def test_rules_take_classes_out(tmp_path):
    (tmp_path / "pets.txt").write_text("cat\n")
    path = tmp_path / "wild.toml"
    path.write_text(
        'name = "wild"\nclasses = ["cat", "puppy", "wolf", "paw"]\nwithout = ["pets.txt"]\n'
        'without_overlap = ["dogs.txt"]\nimages_per_class = 10\nexpected_images = 20\n'
    )
    (tmp_path / "dogs.txt").write_text("dog\n")
    found = load_class_list(path)
    assert found.classes == ("wolf", "paw")
    assert {pair.unknown: pair.relation.value for pair in found.left_out} == {
        "cat": "exact",
        "puppy": "hyponym",
    }
    assert found.notes == ("wild: 20 of 30 images are left, published: 20",)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "names no class"),
        ("dog\nDog\n", "names 'dog' twice"),
    ],
)
def test_bad_lists_get_one_sentence(content, message, tmp_path):
    path = tmp_path / "bad.txt"
    path.write_text(content)
    with pytest.raises(InvalidDataError, match=message):
        load_class_list(path)


def test_missing_and_misspelt_lists_get_one_sentence(tmp_path):
    with pytest.raises(MissingDataError, match="no class list at"):
        load_class_list(tmp_path / "none.txt")
    with pytest.raises(UnknownNameError, match="Did you mean voc"):
        load_class_list("vco")
    path = tmp_path / "mine.toml"
    path.write_text('name = "mine"\nclases = ["dog"]\n')
    with pytest.raises(InvalidDataError, match="did you mean classes"):
        load_class_list(path)
    path.write_text('name = "mine"\nclasses = ["dog"]\nrelations = ["friend"]\n')
    with pytest.raises(InvalidDataError, match="friend"):
        load_class_list(path)


def test_every_shipped_list_loads():
    for name in list_class_lists():
        assert load_class_list(name).classes
    assert len(load_class_list("tiny-imagenet").classes) == 200
    assert set(load_class_list("tiny-imagenet").classes) <= {
        row.wnid for row in load_synset_map("imagenet1k").classes
    }


def test_tin_597_by_its_published_rule():
    """No class that is left is a kind of a class of CIFAR, by the slow definition."""
    found = load_class_list("openood-tin597")
    imagenet = load_synset_map("imagenet1k")
    cifar = {*load_synset_map("cifar10").synsets, *load_synset_map("cifar100").synsets}
    tiny = {WORDNET.name(wnid) for wnid in load_class_list("tiny-imagenet").classes}
    left = [
        row.name
        for row in imagenet.classes
        if row.synset not in tiny and not cifar & {row.synset, *all_kinds(row.synset, upward)}
    ]
    plain_names = set(load_synset_map("cifar100").names)
    left = [name for name in left if name.replace(" ", "_") not in plain_names]
    assert sorted(found.classes) == sorted(left)
    assert len(left) == 480  # the paper has 597


@pytest.mark.data
def test_the_counts_of_openood_lists(data_dir):
    """The lists that ship with OpenOOD, beside what the rules leave."""
    import tarfile

    lists = data_dir / "lists" / "openood_benchmark_imglist.tar.xz"
    with tarfile.open(lists) as archive:
        n_lines = {
            member.name.removeprefix("./"): len(archive.extractfile(member).read().splitlines())
            for member in archive
            if member.name.endswith(".txt")
        }
    folder = "benchmark_imglist"
    tin = {
        known: n_lines[f"{folder}/{known}/test_tin.txt"] + n_lines[f"{folder}/{known}/val_tin.txt"]
        for known in ("cifar10", "cifar100")
    }
    assert tin == {"cifar10": 8793, "cifar100": 7498}
    assert n_lines[f"{folder}/cifar10/test_places365.txt"] == 36500 - 1305
    assert "published: 8,793" in load_class_list("openood-tin-cifar10").notes[0]
    assert "published: 7,498" in load_class_list("openood-tin-cifar100").notes[0]
    assert "published: 35,195" in load_class_list("openood-places-cifar10").notes[0]
    shipped = json.loads((data_dir / "lists" / "tiny_imagenet200.json").read_text())
    assert set(load_class_list("tiny-imagenet").classes) == set(shipped)


def test_all_relations_have_a_word():
    assert [relation.value for relation in OVERLAPS] == [
        "exact", "synonym", "hyponym", "hypernym", "part", "whole",
    ]  # fmt: skip


def test_lists_that_name_each_other_are_refused(tmp_path):
    (tmp_path / "a.toml").write_text('name = "a"\nlists = ["b.toml"]\n')
    (tmp_path / "b.toml").write_text('name = "b"\nwithout = ["a.toml"]\nclasses = ["dog"]\n')
    with pytest.raises(InvalidDataError, match=r"a circle: a\.toml → b\.toml → a\.toml"):
        load_class_list(tmp_path / "a.toml")
    (tmp_path / "c.toml").write_text('name = "c"\nlists = ["voc"]\nwithout = ["d.toml"]\n')
    (tmp_path / "d.toml").write_text('name = "d"\nlists = ["voc"]\n')
    assert load_class_list(tmp_path / "c.toml").classes == ()  # twice the same is no circle
