"""LaRD against scipy and scikit-learn, and its choice against a slow loop over left-out classes."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.decomposition import PCA
from tests.oracles import latent_methods as oracle

from incognita.containers.outputs import ClassifierOutputs
from incognita.errors import InvalidDataError
from incognita.methods import lard as latent
from incognita.methods.contract import Toy, as_boxes
from incognita.methods.lard import VARIANTS, LabelledRows, LaRD
from incognita.methods.saving import load_saved_method, save_method

LAYER = "latent/rpn"


def boxes(n, seed, n_classes=6, unknown=False):
    return as_boxes(Toy(n_classes=n_classes, d=18).outputs(n, seed=seed, unknown=unknown))


def plain(outputs):
    return outputs.layers[LAYER].double().numpy()


def of_layer(table, labels, n_classes=None):
    table = torch.as_tensor(table, dtype=torch.float32)
    n_classes = n_classes or int(max(labels)) + 1
    return ClassifierOutputs(
        tuple(range(len(table))),
        torch.zeros(len(table), n_classes),
        labels=torch.as_tensor(labels),
        layers={LAYER: table},
    )


@pytest.fixture(scope="module")
def known():
    return boxes(240, seed=1)


@pytest.fixture(scope="module")
def validation():
    return boxes(90, seed=2)


@pytest.fixture(scope="module")
def test_rows():
    parts = boxes(30, seed=3), boxes(30, seed=4, unknown=True)
    return ClassifierOutputs.concatenate([replace(part, labels=None) for part in parts])


@pytest.fixture(scope="module")
def chosen(known, validation):
    return LaRD().fit(known, validation)


@pytest.mark.parametrize("n_components", [3, 12])
@pytest.mark.parametrize("variant", VARIANTS)
def test_each_variant_equals_scipy_and_sklearn(variant, n_components, known, test_rows):
    reduce = PCA(n_components, whiten=True, svd_solver="full").fit(plain(known))
    # sklearn divides variances by n - 1; the jitter of the mixture is relative, so it must agree
    scale = np.sqrt(len(known) / (len(known) - 1))
    train, rows = (reduce.transform(plain(part)) * scale for part in (known, test_rows))
    expected = oracle.score(variant, train, known.labels.numpy(), rows, k=10)
    method = LaRD(variant=variant, n_components=n_components).fit(known)
    np.testing.assert_allclose(method.score(test_rows), expected, rtol=1e-6, atol=1e-9)


def test_without_reduction_mahalanobis_is_the_papers(known, test_rows):
    expected = oracle.nearest_class(plain(known), known.labels.numpy(), plain(test_rows))
    method = LaRD(variant="mahalanobis", n_components=12).fit(known)
    np.testing.assert_allclose(method.score(test_rows), expected, rtol=1e-6)


def test_candidates_are_judged_by_classes_left_out(chosen, known, validation):
    assert list(chosen.aurocs_) == [
        f"{variant}, {size} of 12 components" for variant in VARIANTS for size in (12, 8, 4)
    ]
    for name, auroc in chosen.aurocs_.items():
        variant, n_components = name.split(", ")[0], int(name.split(" ")[1])
        parts = plain(known), known.labels.numpy(), plain(validation), validation.labels.numpy()
        expected = oracle.held_out_auroc(variant, n_components, *parts, k=10)
        assert auroc == pytest.approx(expected, abs=1e-9), name


def test_the_best_candidate_is_the_method(chosen, known, test_rows):
    best = max(chosen.aurocs_, key=chosen.aurocs_.get)
    assert chosen.choice_ == best
    assert chosen.notes_ == (
        f"LaRD is {best}: of 9 candidates it best found known classes that it had not seen "
        f"(AUROC {chosen.aurocs_[best]:.3f})."
    )
    variant, n_components = best.split(", ")[0], int(best.split(" ")[1])
    alone = LaRD(variant=variant, n_components=n_components).fit(known)
    assert alone.choice_ == best
    assert (alone.aurocs_, alone.notes_) == ({}, "")
    assert torch.equal(alone.score(test_rows), chosen.score(test_rows))


def test_the_choice_is_the_same_again_and_is_saved(chosen, known, validation, test_rows, tmp_path):
    again = LaRD().fit(known, validation)
    assert (again.choice_, again.aurocs_) == (chosen.choice_, chosen.aurocs_)
    save_method(chosen, tmp_path / "lard")
    loaded = load_saved_method(tmp_path / "lard")
    assert (loaded.choice_, loaded.aurocs_) == (chosen.choice_, chosen.aurocs_)
    assert torch.equal(loaded.score(test_rows), chosen.score(test_rows))


def rows_that_tell_in(axes, n, seed):
    """Rows of ten classes that differ along some axes; the first eight vary most."""
    rng = np.random.default_rng(seed)
    labels = np.arange(n) % 10
    spread = np.r_[np.full(8, 8.0), np.full(24, 1.0)]
    centers = np.random.default_rng(0).normal(size=(10, 32))
    rows = rng.normal(size=(n, 32)) * spread
    rows[:, axes] += 1.5 * (spread * centers)[labels][:, axes]
    return of_layer(rows, labels)


@pytest.mark.parametrize(
    ("axes", "size"), [(slice(0, 8), 8), (slice(8, 32), 32)], ids=["leading", "last"]
)
def test_the_components_that_tell_classes_apart_are_chosen(axes, size):
    parts = (rows_that_tell_in(axes, n, seed) for n, seed in ((1000, 1), (300, 2)))
    method = LaRD(variant="mahalanobis").fit(*parts)
    assert method.projection_.shape == (32, size)


def split_of(monkeypatch, known, validation=None, **limits):
    """Return the parts that candidates are fitted on and evaluated on."""
    seen = []

    def look(candidates, *parts):
        seen.extend(parts)
        return [0.5] * len(candidates)

    monkeypatch.setattr(latent, "held_out_aurocs", look)
    for name, value in limits.items():
        monkeypatch.setattr(latent, name, value)
    LaRD().fit(known, validation)
    return seen


def ids_of(part: LabelledRows):
    return part.rows[:, 0].int().tolist()


@pytest.fixture
def numbered():
    table = np.random.default_rng(0).normal(size=(100, 5))
    table[:, 0] = np.arange(100)
    return of_layer(table, np.arange(100) % 3)


def test_without_validation_rows_a_fifth_of_the_known_ones_judges(monkeypatch, numbered):
    fitted, judged = map(ids_of, split_of(monkeypatch, numbered))
    assert len(judged) == 20
    assert sorted(fitted + judged) == list(range(100))
    assert fitted == sorted(fitted)


def test_validation_rows_judge_and_known_ones_are_all_fitted_on(monkeypatch, numbered):
    other = replace(numbered, layers={LAYER: numbered.layers[LAYER] + 1000})
    fitted, judged = map(ids_of, split_of(monkeypatch, numbered, other))
    assert fitted == list(range(100))
    assert judged == list(range(1000, 1100))


def test_so_many_rows_at_most_take_part_in_the_choice(monkeypatch, numbered):
    limits = {"_MOST_FITTED": 30, "_MOST_JUDGED": 7}
    parts = split_of(monkeypatch, numbered, replace(numbered), **limits)
    assert [len(part) for part in parts] == [30, 7]
    again = split_of(monkeypatch, numbered, replace(numbered), **limits)
    assert [ids_of(part) for part in parts] == [ids_of(part) for part in again]


def test_one_class_leaves_the_papers_text(known, test_rows):
    one = known[known.labels == 2]
    method = LaRD().fit(one)
    assert method.choice_ == "mahalanobis, 12 of 12 components"
    assert method.aurocs_ == {}
    expected = oracle.nearest_class(plain(one), one.labels.numpy(), plain(test_rows))
    np.testing.assert_allclose(method.score(test_rows), expected, rtol=1e-4)


def test_a_candidate_that_cannot_be_fitted_is_not_chosen():
    table = np.random.default_rng(0).normal(size=(15, 3))
    known = of_layer(table, np.arange(15) % 2)  # seven or eight rows in each fold, below k
    method = LaRD().fit(known, of_layer(table + 0.1, np.arange(15) % 2))
    values = {name: np.isnan(value) for name, value in method.aurocs_.items()}
    assert values == {f"{v}, 3 of 3 components": v == "knn" for v in VARIANTS}
    assert not method.choice_.startswith("knn")


def test_a_class_without_known_rows_plays_no_unknown(known, validation):
    without = known[known.labels != 3]
    method = LaRD(n_components=4).fit(without, validation)
    kept = validation[validation.labels != 3]
    assert LaRD(n_components=4).fit(without, kept).aurocs_ == method.aurocs_


def test_only_what_is_open_is_chosen(known, validation):
    assert len(LaRD(variant="knn").fit(known, validation).aurocs_) == 3
    assert len(LaRD(n_components=5).fit(known, validation).aurocs_) == 3
    assert LaRD(variant="gmm", n_components=5).fit(known, validation).aurocs_ == {}


def test_channels_that_do_not_vary_are_left_out(known, test_rows):
    def widened(outputs):
        table = outputs.layers[LAYER]
        dead = torch.full((len(table), 2), 3.0)
        return replace(outputs, layers={LAYER: torch.cat([dead, table], dim=1)})

    wide = LaRD(variant="mahalanobis", n_components=14).fit(widened(known))
    narrow = LaRD(variant="mahalanobis", n_components=12).fit(known)
    assert wide.choice_ == "mahalanobis, 12 of 12 components"
    torch.testing.assert_close(wide.score(widened(test_rows)), narrow.score(test_rows))


def test_a_layer_can_be_named(known, test_rows):
    def renamed(outputs):
        table = outputs.layers[LAYER]
        return replace(outputs, layers={"latent/first": table.square(), "latent/other": table})

    named = LaRD(layer="latent/other", variant="knn", n_components=4).fit(renamed(known))
    first = LaRD(variant="knn", n_components=4).fit(renamed(known))
    expected = LaRD(variant="knn", n_components=4).fit(known).score(test_rows)
    assert torch.equal(named.score(renamed(test_rows)), expected)
    assert not torch.equal(first.score(renamed(test_rows)), expected)
    with pytest.raises(InvalidDataError, match="'latent/rpn', but the outputs hold"):
        LaRD(layer=LAYER).fit(renamed(known))


def test_rows_do_not_depend_on_each_other(chosen, test_rows):
    keep = torch.arange(60) % 7 == 0
    torch.testing.assert_close(
        chosen.score(test_rows[keep]), chosen.score(test_rows)[keep], rtol=0, atol=1e-9
    )
    assert chosen.score(test_rows[keep & ~keep]).shape == (0,)


@pytest.mark.parametrize("n_components", [0, 13])
def test_components_there_cannot_be_are_refused(n_components, known):
    with pytest.raises(InvalidDataError, match=f"between 1 and 12 .* but got {n_components}"):
        LaRD(n_components=n_components).fit(known)


def test_what_is_missing_or_nonsense_is_said(known, validation):
    with pytest.raises(InvalidDataError, match="k above 0"):
        LaRD(k=0)
    with pytest.raises(InvalidDataError, match="k = 300, but there are only 240 known rows"):
        LaRD(k=300).fit(known)
    with pytest.raises(InvalidDataError, match="needs a latent layer pooled over boxes"):
        LaRD().fit(replace(known, layers=None))
    with pytest.raises(InvalidDataError, match="LaRD needs labels"):
        LaRD().fit(known, replace(validation, labels=None))
    with pytest.raises(InvalidDataError, match="must be classes 0 to 5, but one is 6"):
        LaRD().fit(replace(known, labels=known.labels + 1))


@pytest.mark.usefixtures("outside_tests")
def test_a_variant_that_does_not_exist_is_refused():
    with pytest.raises(InvalidDataError, match="variants chosen, mahalanobis, gmm, knn, but"):
        LaRD(variant="kde")


def test_validation_classes_are_not_asked_for_where_nothing_is_chosen(known, validation):
    LaRD(variant="mahalanobis", n_components=2).fit(known, replace(validation, labels=None))


def test_a_k_above_the_rows_of_a_class_is_noted():
    known = boxes(60, seed=1)
    (note,) = LaRD(variant="knn", k=11).fit(known).notes_on(known)
    assert note.startswith("KNN: k = 11 exceeds the known rows of the smallest class, 10")
    assert LaRD(variant="knn", k=10).fit(known).notes_on(known) == []
