"""KNN, NNGuide and Relation, and the exact search behind them."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.neighbors import NearestNeighbors
from tests.oracles import neighbor_methods as oracle

from incognita.containers.outputs import ClassifierOutputs
from incognita.errors import InvalidDataError
from incognita.methods import PerHead, ReAct
from incognita.methods.contract import Toy, of_heads
from incognita.methods.knn import KNN, NNGuide, Relation
from incognita.methods.numerics import neighbor_search
from incognita.methods.numerics.neighbor_search import (
    Bank,
    inverse_lengths,
    kth_products,
    largest_products,
)


def features_of(n: int, d: int, *, seed: int, spread: float = 1.0) -> torch.Tensor:
    """Rows around ten centers, some entries negative."""
    rng = torch.Generator().manual_seed(seed)
    centers = torch.randn(10, d, generator=torch.Generator().manual_seed(99))
    rows = centers[torch.randint(10, (n,), generator=rng)]
    return rows + spread * torch.randn(n, d, generator=rng)


def outputs_of(features: torch.Tensor) -> ClassifierOutputs:
    return ClassifierOutputs(tuple(range(len(features))), features[:, :3].clone(), features)


def sklearn_distances(queries: torch.Tensor, bank: torch.Tensor, k: int) -> np.ndarray:
    def unit(rows: torch.Tensor) -> np.ndarray:
        rows = rows.double()
        return (rows / rows.norm(dim=1, keepdim=True).clamp_min(1e-300)).numpy()

    neighbors = NearestNeighbors(n_neighbors=k, algorithm="brute").fit(unit(bank))
    return neighbors.kneighbors(unit(queries))[0]


@pytest.mark.parametrize("k", [1, 7, 300])
@pytest.mark.parametrize("spread", [0.02, 1.0])
def test_knn_equals_sklearn(k, spread):
    bank, queries = features_of(3000, 24, seed=1, spread=spread), features_of(90, 24, seed=2)
    scores = KNN(k=k).fit(outputs_of(bank)).score(outputs_of(queries))
    assert scores.dtype == torch.float64
    np.testing.assert_allclose(scores, sklearn_distances(queries, bank, k)[:, -1], atol=1e-7)


def test_knn_equals_its_definition():
    toy = Toy()
    known, seen = toy.outputs(60), toy.outputs(20, unknown=True, seed=2)
    scores = KNN(k=5).fit(known).score(seen)
    np.testing.assert_allclose(scores, oracle.knn(seen.features, known.features, 5), atol=1e-9)


def test_knn_equals_pytorch_ood():
    detector = pytest.importorskip("pytorch_ood.detector").KNN(None, k=9)
    bank, queries = features_of(400, 16, seed=1), features_of(50, 16, seed=2)
    detector.fit_features(bank, torch.zeros(len(bank)))
    expected = detector.predict_features(queries)
    scores = KNN(k=9).fit(outputs_of(bank)).score(outputs_of(queries))
    np.testing.assert_allclose(scores, expected, atol=2e-6)


def test_products_of_float32_err_by_no_more_than_the_bound():
    features, queries = features_of(500, 64, seed=1), features_of(300, 64, seed=2)
    bank, unit = (rows.double() * inverse_lengths(rows)[:, None] for rows in (features, queries))
    error = ((unit.float() @ bank.float().T).double() - unit @ bank.T).abs().max()
    assert 0 < error <= neighbor_search.float32_error(64)


@pytest.mark.parametrize("n", [1, 2, 31, 64, 100])
def test_scores_do_not_depend_on_the_batch(n):
    bank, queries = features_of(2500, 16, seed=1), features_of(100, 16, seed=2)
    method = KNN(k=10).fit(outputs_of(bank))
    together = method.score(outputs_of(queries))
    assert torch.equal(method.score(outputs_of(queries[:n])), together[:n])


def test_blocks_of_any_size_give_the_same_bits(monkeypatch):
    features = features_of(2500, 16, seed=1)
    bank, queries = Bank(features, inverse_lengths(features)), features_of(100, 16, seed=2)
    expected = largest_products(queries, bank, 10)
    monkeypatch.setattr(neighbor_search, "QUERIES", 33)
    monkeypatch.setattr(neighbor_search, "ROWS", 70)
    monkeypatch.setattr(neighbor_search, "_ROOM", 1000)
    assert torch.equal(largest_products(queries, bank, 10), expected)


def test_thousands_of_rows_that_tie_are_searched_in_float64():
    bank = torch.cat([torch.ones(4000, 8), features_of(50, 8, seed=1)])
    queries = torch.cat([torch.ones(40, 8), features_of(40, 8, seed=2)])
    scores = KNN(k=20).fit(outputs_of(bank)).score(outputs_of(queries))
    np.testing.assert_allclose(scores, sklearn_distances(queries, bank, 20)[:, -1], atol=1e-7)


def test_tight_clusters_stay_exact():
    bank = features_of(20_000, 16, seed=1, spread=0.003)
    queries = features_of(64, 16, seed=2, spread=0.003)
    scores = KNN(k=3).fit(outputs_of(bank)).score(outputs_of(queries))
    np.testing.assert_allclose(scores, sklearn_distances(queries, bank, 3)[:, -1], atol=1e-7)


def test_rows_in_opposite_directions_are_farthest():
    bank = -features_of(3000, 8, seed=1).abs()  # all cosines are negative
    queries = features_of(50, 8, seed=2).abs()
    scores = KNN(k=4).fit(outputs_of(bank)).score(outputs_of(queries))
    np.testing.assert_allclose(scores, sklearn_distances(queries, bank, 4)[:, -1], atol=1e-7)
    assert (scores > 2**0.5).all()


@pytest.mark.parametrize("k", [1, 3, 8])
def test_rows_of_zeros_stay_where_they_are(k):
    bank, queries = features_of(20, 6, seed=1), features_of(40, 6, seed=2)
    bank[4:8], queries[::5] = 0, 0
    scores = KNN(k=k).fit(outputs_of(bank)).score(outputs_of(queries))
    np.testing.assert_allclose(scores, sklearn_distances(queries, bank, k)[:, -1], atol=1e-7)


def test_a_bank_of_zeros_alone_is_at_distance_one():
    queries = torch.tensor([[1.0, 2.0], [0.0, 0.0]])
    scores = (
        KNN(k=2)
        .fit(outputs_of(torch.zeros(3, 2)[:, [0, 1, 1]]))
        .score(outputs_of(queries[:, [0, 1, 1]]))
    )
    assert scores.tolist() == [1.0, 0.0]


def test_identical_rows_have_no_distance():
    features = features_of(50, 512, seed=1)
    scores = KNN(k=1).fit(outputs_of(features)).score(outputs_of(features))
    assert scores.max() < 1e-7


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_features_may_be_of_any_float_type(dtype):
    bank, queries = features_of(200, 8, seed=1).to(dtype), features_of(9, 8, seed=2).to(dtype)
    scores = KNN(k=5).fit(outputs_of(bank)).score(outputs_of(queries))
    np.testing.assert_allclose(scores, sklearn_distances(queries, bank, 5)[:, -1], atol=1e-7)


def test_columns_that_are_not_contiguous_are_read_right():
    bank, queries = features_of(8, 200, seed=1).T, features_of(8, 9, seed=2).T
    scores = KNN(k=5).fit(outputs_of(bank)).score(outputs_of(queries))
    np.testing.assert_allclose(scores, sklearn_distances(queries, bank, 5)[:, -1], atol=1e-7)


def test_the_bank_is_not_copied():
    known = outputs_of(features_of(100, 8, seed=1))
    assert KNN(k=5).fit(known).bank_.data_ptr() == known.features.data_ptr()


def test_a_bank_mapped_to_memory_works(tmp_path):
    bank = features_of(300, 8, seed=1)
    bank.numpy().tofile(tmp_path / "bank")
    mapped = torch.from_file(str(tmp_path / "bank"), size=bank.numel()).view(bank.shape)
    queries = outputs_of(features_of(9, 8, seed=2))
    scores = KNN(k=5).fit(outputs_of(mapped)).score(queries)
    assert torch.equal(scores, KNN(k=5).fit(outputs_of(bank)).score(queries))


@pytest.mark.parametrize("method", [KNN(k=3), Relation()], ids=["KNN", "Relation"])
def test_a_lower_precision_that_torch_is_set_to_changes_nothing(method):
    known, seen = related(1500, 1), related(300, 2)
    expected = method.fit(known).score(seen)
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("medium")
        assert torch.equal(method.score(seen), expected)
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision(before)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_search_on_a_gpu_agrees():
    features, queries = features_of(3000, 16, seed=1), features_of(50, 16, seed=2)
    expected = largest_products(queries, Bank(features, inverse_lengths(features)), 9)
    for place in ("cpu", "cuda"):
        bank = Bank(features.to(place), inverse_lengths(features).to(place))
        found = largest_products(queries.cuda(), bank, 9)
        np.testing.assert_allclose(found.cpu(), expected, atol=1e-6)


@pytest.mark.parametrize("method", [KNN(k=11), NNGuide(k=11)])
def test_more_neighbors_than_rows_are_refused(method):
    with pytest.raises(InvalidDataError, match="k = 11, but there are only 10 known rows"):
        method.fit(Toy().outputs(10))


def test_a_k_that_grew_after_fitting_is_refused():
    known = Toy().outputs(10)
    method = KNN(k=5).fit(known).with_parameters(known, k=11)
    with pytest.raises(InvalidDataError, match="k = 11, but there are only 10"):
        method.score(known)


@pytest.mark.parametrize("kind", [KNN, NNGuide])
def test_neighbor_zero_is_refused(kind):
    with pytest.raises(InvalidDataError, match="needs a k of at least 1, but got 0"):
        kind(k=0)


def test_nnguide_equals_its_definition():
    toy = Toy(negative=True)
    known, seen = toy.outputs(80), toy.outputs(40, unknown=True, seed=2)
    scores = NNGuide(k=7, share=1.0).fit(known).score(seen)
    expected = oracle.nnguide(seen.features, seen.logits, known.features, known.logits, 7)
    np.testing.assert_allclose(scores, expected, rtol=1e-12)


def test_nnguide_equals_pytorch_ood():
    toy = Toy()
    known, seen = toy.outputs(80), toy.outputs(20, unknown=True, seed=2)
    detector = pytest.importorskip("pytorch_ood.detector").NNGuide(None, toy.head, k=7)
    expected = detector.fit_features(known.features, known.labels).predict_features(seen.features)
    scores = NNGuide(k=7, share=1.0).fit(known).score(seen)
    np.testing.assert_allclose(scores, expected, rtol=1e-5)


def test_nnguide_draws_its_bank_from_all_rows():
    known = Toy().outputs(1000)
    method = NNGuide(k=10, share=0.2).fit(known)
    labels = {int(known.labels[(known.features == row).all(dim=1)][0]) for row in method.bank_}
    assert len(method.bank_) == 200
    assert labels == {0, 1, 2, 3}
    assert not torch.equal(method.bank_, known.features[:200])


def test_nnguide_keeps_at_least_k_rows():
    assert len(NNGuide(k=30, share=0.01).fit(Toy().outputs(100)).bank_) == 30


def test_another_seed_draws_another_bank():
    known, seen = Toy().outputs(400), Toy().outputs(20, seed=2)
    method = NNGuide(k=10, share=0.1).fit(known)
    again = NNGuide(k=10, share=0.1).fit(known)
    other = method.with_parameters(known, seed=1)
    assert torch.equal(method.score(seen), again.score(seen))
    assert not torch.allclose(method.score(seen), other.score(seen))


@pytest.mark.parametrize("share", [0.0, 1.5])
def test_nnguide_refuses_a_share_that_is_none(share):
    with pytest.raises(InvalidDataError, match="share of known rows above 0 and up to 1"):
        NNGuide(share=share)


@pytest.mark.parametrize("power", [1, 2, 8])
@pytest.mark.parametrize("threshold", [0.03, 0.4])
def test_relation_equals_its_definition(power, threshold):
    toy = Toy(negative=True)
    known, seen = toy.outputs(600), toy.outputs(15, unknown=True, seed=2)
    scores = Relation(power=power, threshold=threshold).fit(known).score(seen)
    expected = oracle.relation(
        seen.features, seen.logits, known.features, known.logits, power, threshold
    )
    np.testing.assert_allclose(scores, expected, rtol=1e-11)


def test_relation_does_not_depend_on_the_batch():
    known, seen = Toy().outputs(700), Toy().outputs(600, seed=2)
    method = Relation().fit(known)
    alone = [method.score(seen[torch.arange(600) == i]) for i in (0, 599)]
    np.testing.assert_allclose(torch.cat(alone), method.score(seen)[[0, 599]], rtol=1e-12)


def test_relation_refuses_parameters_without_meaning():
    with pytest.raises(InvalidDataError, match="power above 0, but got 0"):
        Relation(power=0)
    with pytest.raises(InvalidDataError, match="threshold of at least 0, but got -1"):
        Relation(threshold=-1.0)


METHODS = [KNN(k=5), NNGuide(k=5, share=0.5), Relation()]


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.title)
class TestEvery:
    def test_unknown_rows_score_higher(self, method):
        toy = Toy()
        method.fit(toy.outputs(200))
        known, unknown = toy.outputs(100, seed=2), toy.outputs(100, unknown=True, seed=3)
        assert method.score(unknown).median() > method.score(known).quantile(0.9)

    def test_no_rows_give_no_scores(self, method):
        known = Toy().outputs(50)
        nothing = known[torch.zeros(50, dtype=torch.bool)]
        assert method.fit(known).score(nothing).shape == (0,)

    def test_zeros_give_finite_scores(self, method):
        known = outputs_of(torch.zeros(20, 8))
        assert method.fit(known).score(known).isfinite().all()

    def test_scoring_before_fitting_is_refused(self, method):
        with pytest.raises(InvalidDataError, match="is not fitted yet"):
            type(method)().score(Toy().outputs(5))


@pytest.mark.parametrize(
    ("method", "change"),
    [
        (KNN(k=5), {"k": 9}),
        (NNGuide(k=5), {"k": 9}),
        (NNGuide(k=5), {"share": 0.5}),
        (Relation(), {"power": 2}),
        (Relation(), {"threshold": 0.5}),
    ],
)
def test_a_changed_parameter_changes_the_score(method, change):
    known, seen = Toy().outputs(200), Toy().outputs(20, unknown=True, seed=2)
    changed = method.fit(known).with_parameters(known, **change)
    assert not torch.allclose(method.score(seen), changed.score(seen))


@pytest.mark.parametrize("k", [1, 2, 7, 300])
@pytest.mark.parametrize("spread", [0.003, 1.0])
def test_the_kth_product_alone_has_the_same_bits(k, spread):
    features = features_of(3000, 24, seed=1, spread=spread)
    features[1000:1040] = features[:40]  # products that tie
    bank = Bank(features, inverse_lengths(features))
    queries = features_of(90, 24, seed=2, spread=spread)
    queries[3] = 0
    assert torch.equal(kth_products(queries, bank, k), largest_products(queries, bank, k)[:, -1])


def test_nnguide_with_all_of_its_bank_equals_its_definition():
    toy = Toy(negative=True)
    known, seen = toy.outputs(80), toy.outputs(40, unknown=True, seed=2)
    scores = NNGuide(k=80).fit(known).score(seen)
    expected = oracle.nnguide(seen.features, seen.logits, known.features, known.logits, 80)
    np.testing.assert_allclose(scores, expected, rtol=1e-12)


def related(n: int, seed: int, sharpness: float = 1.0) -> ClassifierOutputs:
    """Rows wide enough to be multiplied in float32."""
    features = features_of(n, 300, seed=seed)
    logits = sharpness * features[:, :10].clone()
    return ClassifierOutputs(tuple(range(n)), logits, features)


def slow_relations(seen: ClassifierOutputs, known: ClassifierOutputs) -> torch.Tensor:
    unit, bank = (torch.nn.functional.normalize(o.features.double()) for o in (seen, known))
    shares, bank_shares = (o.logits.double().softmax(dim=1) for o in (seen, known))
    return (unit @ bank.T).clamp(min=0) * (shares @ bank_shares.T)


@pytest.mark.parametrize("power", [1, 2, 8])
@pytest.mark.parametrize("threshold", [0.0, 1e-4, 0.03, 0.4])
@pytest.mark.parametrize("sharpness", [0.1, 3.0])
def test_relation_of_wide_rows_equals_its_definition_to_a_millionth(power, threshold, sharpness):
    known, seen = related(2500, 1, sharpness), related(70, 2, sharpness)
    scores = Relation(power=power, threshold=threshold).fit(known).score(seen)
    relations = slow_relations(seen, known)
    expected = -torch.where(relations > threshold, relations**power, 0.0).sum(dim=1)
    torch.testing.assert_close(scores, expected, rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("n_above", [0, 1])
def test_rounding_never_lifts_a_relation_over_the_threshold(n_above):
    """The threshold is a relation itself, or the number just below it."""
    known, seen = related(1000, 1), related(20, 2)
    relations = slow_relations(seen, known)
    for row in range(20):
        one = seen[torch.arange(20) == row]
        threshold = float(relations[row].sort().values[700])
        threshold *= 1 - 1e-13 if n_above else 1 + 1e-13  # float64 itself errs by less
        expected = -torch.where(relations[row] > threshold, relations[row], 0.0).sum()
        found = Relation(threshold=threshold).fit(known).score(one).item()
        assert abs(found - expected) < 1e-6 * abs(expected)
        assert abs(relations[row].sort().values[700]) > 1e-5 * abs(expected)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_relation_takes_wide_features_of_any_float_type(dtype):
    known, seen = related(1000, 1), related(20, 2)
    rows = [
        ClassifierOutputs(o.image_ids, o.logits, o.features.to(dtype).t().contiguous().t())
        for o in (known, seen)
    ]
    expected = slow_relations(rows[1], rows[0])
    scores = Relation().fit(rows[0]).score(rows[1])
    kept = torch.where(expected > 0.03, expected, 0.0).sum(dim=1)
    torch.testing.assert_close(scores, -kept, rtol=1e-6, atol=0)


@pytest.mark.parametrize(("k", "is_noted"), [(5, False), (6, True)])
def test_a_k_above_the_rows_of_a_class_is_noted(k, is_noted):
    known = Toy().outputs(21)  # 4 classes, the last with 5 rows
    note = (
        f"KNN: k = {k} exceeds the known rows of the smallest class, 5: not all k neighbors can be "
        f"of that class"
    )
    expected = [note] if is_noted else []
    assert KNN(k=k).fit(known).notes_on(known) == expected
    assert ReAct(scorer=KNN(k=k)).fit(known).notes_on(known) == expected
    heads = of_heads(known, 1)
    per_head = PerHead(scorer=KNN(k=k)).fit(heads).notes_on(heads)
    assert per_head == [f"head 0: {note}" for note in expected]
    assert KNN(k=k).fit(known).notes_on(replace(known, labels=None)) == []


def test_a_bank_of_only_k_rows_is_noted():
    known = Toy().outputs(40)
    fitted = NNGuide(k=9, share=0.2).fit(known)
    assert fitted.notes_on(known) == [
        "NNGuide: k = 9 exceeds its share of known rows, 8 of 40: the bank has k rows, and all of "
        "them are neighbors"
    ]
    assert len(fitted.bank_) == 9
    assert NNGuide(k=8, share=0.2).fit(known).notes_on(known) == []
