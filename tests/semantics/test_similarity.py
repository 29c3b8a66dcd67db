"""Similarities against values of nltk, against their definition, and against nltk itself."""

import numpy as np
import pytest
from tests.oracles.similarity import lch, path, wup
from tests.semantics.nltk_nouns import open_nltk

from incognita.errors import InvalidDataError, UnknownNameError
from incognita.semantics import (
    class_distance,
    lch_similarity,
    load_wordnet,
    nearest_classes,
    path_similarity,
    similarities,
    wup_similarity,
)

# nltk 3.10.4 on WordNet 3.0: path, lch, wup, and wup in the other order
NLTK_VALUES = """
dog.n.01 cat.n.01 0.2 2.0281482472922856 0.8571428571428571 0.8571428571428571
dog.n.01 dog.n.01 1.0 3.6375861597263857 0.9285714285714286 0.9285714285714286
chef.n.01 fireman.n.01 0.0625 0.8649974374866046 0.11764705882352941 0.11764705882352941
berlin.n.01 paris.n.01 0.3333333333333333 2.538973871058276 0.9090909090909091 0.9090909090909091
person.n.01 dog.n.01 0.2 2.0281482472922856 0.75 0.75
einstein.n.01 physicist.n.01 0.5 2.9444389791664407 0.631578947368421 0.9473684210526315
church.n.02 mosque.n.01 0.3333333333333333 2.538973871058276 0.8888888888888888 0.8888888888888888
entity.n.01 dog.n.01 0.1111111111111111 1.4403615823901665 0.2 0.2
entity.n.01 entity.n.01 1.0 3.6375861597263857 1.0 1.0
alps.n.01 volcano.n.02 0.16666666666666666 1.845826690498331 0.6153846153846154 0.6153846153846154
bedroom.n.01 bed.n.01 0.1 1.3350010667323402 0.5263157894736842 0.5263157894736842
nurse.n.01 doctor.n.01 0.25 2.2512917986064953 0.8695652173913043 0.8695652173913043
whale.n.02 dog.n.01 0.14285714285714285 1.6916760106710724 0.7857142857142857 0.7857142857142857
"""


@pytest.mark.parametrize("line", NLTK_VALUES.split("\n")[1:-1])
def test_a_pair_has_the_values_of_nltk(line):
    first, second, *expected = line.split()
    ours = [
        path_similarity(first, second),
        lch_similarity(first, second),
        wup_similarity(first, second),
        wup_similarity(second, first),
    ]
    assert ours == list(map(float, expected))


def several_parents() -> np.ndarray:
    return np.flatnonzero(np.diff(load_wordnet().upward.starts) > 1)


def instances() -> np.ndarray:
    return np.flatnonzero(load_wordnet()._arrays["instance_hypernyms_counts"])


def every_noun() -> np.ndarray:
    return np.arange(len(load_wordnet()))


def draw(rows: np.ndarray, n: int, seed: int) -> list[str]:
    chosen = np.random.default_rng(seed).choice(rows, n, replace=False)
    return [load_wordnet().name(row) for row in chosen.tolist()]


@pytest.mark.parametrize("kind", [every_noun, several_parents, instances])
def test_all_pairs_equal_the_definition(kind):
    rows, columns = draw(kind(), 12, seed=0), draw(every_noun(), 10, seed=1)
    ours = similarities(rows, columns)
    for i, first in enumerate(rows):
        for j, second in enumerate(columns):
            assert ours.path[i, j] == pytest.approx(path(first, second))
            assert ours.lch[i, j] == pytest.approx(lch(first, second))
            assert ours.wup[i, j] == pytest.approx(wup(first, second))


def test_the_longest_path_has_19_links_and_one_root():
    wordnet = load_wordnet()
    assert wordnet.longest_depths.max() == 19  # hence the log 38 of FACETS
    assert np.flatnonzero(wordnet.longest_depths == 0).tolist() == [wordnet.row("entity.n.01")]


def test_distance_is_one_minus_the_mean_of_the_three():
    expected = 1 - (0.2 + np.log(38 / 5) / np.log(38) + 6 / 7) / 3
    assert class_distance(["dog.n.01"], ["cat.n.01"])[0, 0] == pytest.approx(expected)


def test_wnids_and_names_are_one_synset():
    by_name, by_wnid = (similarities([dog], ["cat.n.01"]) for dog in ("dog.n.01", "n02084071"))
    np.testing.assert_array_equal(by_name, by_wnid)


@pytest.mark.parametrize("measure", ["mean", "path", "lch", "wup"])
def test_the_nearest_class_is_the_most_similar_by_any_measure(measure):
    classes, others = draw(every_noun(), 9, seed=4), draw(every_noun(), 30, seed=5)
    nearest = nearest_classes(classes, others, measure=measure)
    values = getattr(similarities(classes, others), measure)
    assert nearest.places.tolist() == [row.tolist().index(row.max()) for row in values]
    assert nearest.similarities.tolist() == values.max(axis=1).tolist()


def test_of_equally_near_classes_the_first_is_named():
    nearest = nearest_classes(["dog.n.01"], ["car.n.01", "wolf.n.01", "n02114100"])
    assert nearest.places.tolist() == [1]


def test_no_class_to_compare_with_is_an_error():
    with pytest.raises(InvalidDataError, match="Expected classes to compare with, got an empty"):
        nearest_classes(["dog.n.01"], [])


def test_empty_lists_have_empty_tables():
    assert similarities([], ["dog.n.01"]).path.shape == (0, 1)
    assert similarities(["dog.n.01"], []).wup.shape == (1, 0)


def test_an_unknown_synset_is_an_error():
    with pytest.raises(UnknownNameError, match=r"Expected a sense of 'dog' .* got 'dog.n.09'"):
        similarities(["dog.n.09"], ["cat.n.01"])


def test_a_measure_that_is_not_there_is_refused(outside_tests):
    with pytest.raises(UnknownNameError, match=r"No measure is called 'lin'. Choose one of: lch"):
        nearest_classes(["dog.n.01"], ["cat.n.01"], measure="lin")


def test_a_text_is_not_a_list_of_synsets():
    with pytest.raises(InvalidDataError, match=r"Expected a list of synsets, got 'dog.n.01'"):
        similarities("dog.n.01", ["cat.n.01"])


@pytest.fixture(scope="module")
def nltk_nouns(data_dir, tmp_path_factory):
    return open_nltk(data_dir, tmp_path_factory.mktemp("wordnet"))


@pytest.mark.data
@pytest.mark.slow
@pytest.mark.parametrize("kind", [every_noun, several_parents, instances])
def test_thousands_of_pairs_equal_nltk_to_the_last_bit(nltk_nouns, kind):
    rows, columns = draw(kind(), 40, seed=2), draw(every_noun(), 50, seed=3)
    ours = similarities(rows, columns)
    second = [nltk_nouns.synset(name) for name in columns]
    for i, name in enumerate(rows):
        first = nltk_nouns.synset(name)
        assert ours.path[i].tolist() == [first.path_similarity(other) for other in second]
        assert ours.lch[i].tolist() == [first.lch_similarity(other) for other in second]
        assert ours.wup[i].tolist() == [first.wup_similarity(other) for other in second]
