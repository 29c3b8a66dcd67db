"""The noun graph against nltk, and the table against the files it is made from."""

import zipfile

import numpy as np
import pytest
from studies.wordnet.make_wordnet import make_table, read_files
from tests.semantics.nltk_nouns import open_nltk

from incognita.errors import UnknownNameError
from incognita.semantics import load_wordnet
from incognita.semantics.wordnet import DATA


def test_a_synset_has_a_name_a_wnid_lemmas_and_a_definition():
    wordnet = load_wordnet()
    assert wordnet.name("n02109047") == "great_dane.n.01"
    assert wordnet.wnid("great_dane.n.01") == "n02109047"
    assert wordnet.lemmas("n02109047") == ["Great_Dane"]
    assert wordnet.definition("n02109047") == "very large powerful smooth-coated breed of dog"


def test_senses_are_in_the_order_of_wordnet():
    wordnet = load_wordnet()
    assert wordnet.senses("mouse") == ["mouse.n.01", "shiner.n.01", "mouse.n.03", "mouse.n.04"]
    assert wordnet.senses("ice cream") == wordnet.senses("Ice_Cream") == ["ice_cream.n.01"]
    assert wordnet.senses("xylograf") == []


@pytest.mark.parametrize(
    ("plural", "singulars"),
    [
        ("mice", ["mouse"]), ("men", ["man"]), ("boxes", ["box"]), ("ladies", ["lady"]),
        ("knives", ["knife"]), ("oxen", ["ox"]), ("glasses", ["glass"]), ("dog", []),
    ],
)  # fmt: skip
def test_plurals(plural, singulars):
    assert load_wordnet().singulars(plural) == singulars


def test_meronyms_and_holonyms_are_inverse():
    wordnet = load_wordnet()
    assert "car_window.n.01" in wordnet.meronyms("car.n.01")
    assert "car.n.01" in wordnet.holonyms("car_window.n.01")
    assert "tree.n.01" in wordnet.meronyms("forest.n.01", "member")
    assert "forest.n.01" in wordnet.holonyms("tree.n.01", "member")
    assert "water.n.01" in wordnet.holonyms("hydrogen.n.01", "substance")


def test_ancestors_have_their_fewest_steps():
    steps = load_wordnet().ancestors("dog.n.01")
    assert steps["carnivore.n.01"] == 2
    assert steps["animal.n.01"] == 2  # as a domestic animal; 8 as a canine
    assert steps["entity.n.01"] == max(steps.values())


@pytest.mark.parametrize(
    ("synset", "message"),
    [
        ("dog.n.09", r"Expected a sense of 'dog' in WordNet 3.0, got 'dog.n.09'. Choose one of: d"),
        ("dog.n.00", "Expected a sense of 'dog'"),
        ("dog", "Expected a synset, got the word 'dog'. Choose one of its senses: dog.n.01, "),
        ("dogg.n.01", "No noun of WordNet 3.0 is called 'dogg'. Did you mean dog?"),
        ("n00000001", "Expected the wnid of a noun of WordNet 3.0, got 'n00000001'. Check its ver"),
        ("n99999999", "Expected the wnid"),
        ("", "No noun of WordNet 3.0 is called ''"),
    ],
)  # fmt: skip
def test_an_unknown_synset_is_explained(synset, message):
    with pytest.raises(UnknownNameError, match=message):
        load_wordnet().row(synset)


def test_a_kind_of_meronym_that_is_not_there_is_refused(outside_tests):
    with pytest.raises(
        UnknownNameError, match=r"No kind of meronym is called 'parts'. Did you mean"
    ):
        load_wordnet().meronyms("car.n.01", "parts")


def test_the_licence_is_beside_the_table():
    assert "WordNet 3.0 Copyright 2006 by Princeton" in (DATA / "LICENSE.wordnet.txt").read_text()


@pytest.mark.data
@pytest.mark.slow
def test_the_table_is_made_again_byte_by_byte(data_dir, tmp_path):
    files = read_files(data_dir / "lexical" / "wordnet-3.0-dict.tar.xz")
    np.savez_compressed(tmp_path / "again.npz", **make_table(files))
    # members, not whole files: another version of zlib may pack the same bytes otherwise
    with (
        zipfile.ZipFile(tmp_path / "again.npz") as made,
        zipfile.ZipFile(DATA / "wordnet.npz") as shipped,
    ):
        assert made.namelist() == shipped.namelist()
        for name in made.namelist():
            assert made.read(name) == shipped.read(name), name


@pytest.mark.data
@pytest.mark.slow
def test_synsets_and_relations_are_those_of_nltk(data_dir, tmp_path):
    theirs, ours = open_nltk(data_dir, tmp_path), load_wordnet()
    for row in np.random.default_rng(0).choice(len(ours), 3000, replace=False).tolist():
        name = ours.name(row)
        synset = theirs.synset(name)
        assert synset.name() == name
        assert synset.lemma_names() == ours.lemmas(name)
        assert f"n{synset.offset():08d}" == ours.wnid(name)
        assert synset.definition().startswith(ours.definition(name)[:20])
        relations = {
            "hypernyms": ours.hypernyms(name),
            "instance_hypernyms": ours.instance_hypernyms(name),
            "hyponyms": ours.hyponyms(name),
            "part_meronyms": ours.meronyms(name),
            "member_meronyms": ours.meronyms(name, "member"),
            "substance_meronyms": ours.meronyms(name, "substance"),
            "part_holonyms": ours.holonyms(name),
            "member_holonyms": ours.holonyms(name, "member"),
            "substance_holonyms": ours.holonyms(name, "substance"),
        }
        for relation, found in relations.items():
            assert sorted(found) == sorted(s.name() for s in getattr(synset, relation)()), name


@pytest.mark.data
@pytest.mark.slow
def test_senses_and_singulars_are_those_of_nltk(data_dir, tmp_path):
    theirs, ours = open_nltk(data_dir, tmp_path), load_wordnet()
    lemmas = list(ours._rows_by_lemma)
    assert len(lemmas) == len(set(theirs.all_lemma_names("n")))
    for place in np.random.default_rng(0).choice(len(lemmas), 3000, replace=False):
        lemma = lemmas[place]
        synsets = [
            s for s in theirs.synsets(lemma, "n") if lemma in map(str.lower, s.lemma_names())
        ]
        assert ours.senses(lemma) == list(dict.fromkeys(synset.name() for synset in synsets))
    for word in [*list(ours._irregular_plurals)[::20], *(f"{lemma}s" for lemma in lemmas[::500])]:
        forms = theirs._morphy(word, "n")
        assert set(ours.singulars(word)) - {word} == set(forms) - {word}
