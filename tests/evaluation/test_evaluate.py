"""One evaluation from images to records, counted and checked from outside."""

import inspect
import json
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score
from tests.evaluation.worlds import TinyNet, n_images, pictures, tiny_benchmark
from torch import nn

import incognita
from incognita.errors import InvalidDataError
from incognita.methods import list_methods, load_method
from incognita.methods.method import Method, Refit
from incognita.methods.softmax import MSP
from incognita.models.classifier import wrap_classifier

FAST = "msp, energy, knn(k=5), mds, react, gram"


class Counter:
    """Counts the images that go through a module."""

    def __init__(self, module):
        self.images = 0
        self.handle = module.register_forward_hook(self._add)

    def _add(self, module, inputs, output):
        self.images += len(inputs[0])


@pytest.fixture
def network():
    return wrap_classifier(
        TinyNet(), preprocess="none", example=torch.zeros(2, 3, 8, 8), name="tiny-net"
    )


def passive_methods():
    """Every method whose probes cost no pass of their own."""
    others = ("ensemble", "godin", "mds-ensemble", "lard", "safe")
    names = [name for name in list_methods() if name not in others]
    methods = {name: load_method(name) for name in names}
    return {
        name: method
        for name, method in methods.items()
        if not any(extra.forwards or extra.backwards for extra in method.extra_outputs())
    }


def test_every_image_goes_through_the_network_once_for_all_methods_and_grid_points(network):
    benchmark, counter = tiny_benchmark(), Counter(network.module)
    methods = passive_methods()
    methods["knn"] = load_method("knn", k=5)
    methods["nnguide"] = load_method("nnguide", k=5, share=0.5)
    found = incognita.evaluate(network, benchmark, methods, search=True, n_resamples=0)
    assert found.failed == {}
    assert counter.images == n_images(benchmark) + len(benchmark.test)  # its only batch, once more
    assert found.metadata["passes"] == {
        "images": n_images(benchmark),
        "forward": n_images(benchmark),
        "backward": 0,
    }
    assert len(found.methods) > len(methods)  # the tuned ones stand beside them


def test_odin_adds_exactly_one_forward_and_one_backward_per_scored_image(network):
    benchmark, counter = tiny_benchmark(), Counter(network.module)
    found = incognita.evaluate(network, benchmark, "msp, odin, odin-max-logit", n_resamples=0)
    n_scored = sum(len(each) for each in found.sets)
    assert found.metadata["passes"] == {
        "images": n_scored,
        "forward": 2 * n_scored,
        "backward": n_scored,
    }
    assert counter.images == 2 * n_scored + len(benchmark.test)  # its only batch, once more
    assert (found.get("odin").cost.forwards, found.get("odin").cost.backwards) == (2, 1)


def test_a_search_over_odin_steps_only_on_validation_images_and_with_what_it_chose(network):
    benchmark = tiny_benchmark()
    found = incognita.evaluate(network, benchmark, "odin", search=True, n_resamples=0)
    n_held_out = len(benchmark.validation) + len(benchmark.unknown_validation)
    n_scored = sum(len(each) for each in found.sets)
    tuned, default = found.get("odin (tuned)"), found.get("odin")
    n_choices = 1 if tuned.parameters == default.parameters else 2
    n_points = len(tuned.search.curve)
    assert found.metadata["passes"]["forward"] == (
        n_held_out * (1 + n_points) + n_scored * (1 + n_choices)
    )


def test_numbers_equal_sklearn_on_the_scores_that_are_kept(network):
    found = incognita.evaluate(network, tiny_benchmark(), FAST, n_resamples=0)
    for title, result in found.methods.items():
        known = found.scores[title]["test"]
        each = []
        for name in ("a", "b"):
            unknown = found.scores[title][name]
            truth = np.repeat([0, 1], [len(known), len(unknown)])
            each.append(roc_auc_score(truth, np.concatenate([known, unknown])))
        assert result.get("auroc", "near").value == pytest.approx(np.mean(each), abs=1e-12)


def test_scores_equal_those_of_the_method_on_plain_outputs(network):
    benchmark = tiny_benchmark()
    found = incognita.evaluate(network, benchmark, "energy", n_resamples=0)
    batch = torch.stack([network.preprocess(image) for image in benchmark.test.images])
    with torch.inference_mode():
        expected = -torch.logsumexp(network.module(batch).double(), dim=1)
    np.testing.assert_allclose(found.scores["energy"]["test"], expected.numpy(), rtol=1e-5)


def test_a_second_run_adds_only_what_is_missing(network, tmp_path):
    places = {"store": tmp_path / "outputs", "out": tmp_path / "results", "n_resamples": 10}
    first = incognita.evaluate(network, tiny_benchmark(), "msp", **places)
    counter = Counter(network.module)
    second = incognita.evaluate(network, tiny_benchmark(), "msp, energy", **places)
    assert counter.images == 0
    assert second.get("msp").as_json() == first.get("msp").as_json()
    third = incognita.evaluate(network, tiny_benchmark(), "msp, energy", **places)
    assert third.ranking() == second.ranking()
    assert third.get("energy").as_json() == second.get("energy").as_json()
    gaps = [np.array(evaluation.gap_to_best("msp")) for evaluation in (third, second)]
    assert np.array_equal(*gaps, equal_nan=True)  # tiny sets have no interval


def test_another_seed_or_weight_is_another_result(network, tmp_path):
    places = {"store": tmp_path / "outputs", "out": tmp_path / "results", "n_resamples": 5}
    incognita.evaluate(network, tiny_benchmark(), "msp", **places)
    incognita.evaluate(network, tiny_benchmark(), "msp", seed=1, **places)
    other = wrap_classifier(
        TinyNet(seed=1), preprocess="none", example=torch.zeros(2, 3, 8, 8), name="tiny-net"
    )
    incognita.evaluate(other, tiny_benchmark(), "msp", **places)
    assert len(list((tmp_path / "results").rglob("*.json"))) == 3


def test_numbers_can_be_computed_again_from_the_stored_scores(network, tmp_path):
    import polars

    found = incognita.evaluate(network, tiny_benchmark(), "energy", out=tmp_path, n_resamples=0)
    frame = polars.read_parquet(next(tmp_path.rglob("*.parquet")))
    assert frame.columns == [
        "set", "group", "image_id", "label", "source_class", "predicted", "unknown_score",
    ]  # fmt: skip
    rows = frame.filter(polars.col("set").cast(str).is_in(["test", "c"]))
    truth = (rows["group"].cast(str) == "far").to_numpy()
    expected = roc_auc_score(truth, rows["unknown_score"].to_numpy())
    assert found.get("energy").get("auroc", "far").value == pytest.approx(expected, abs=1e-12)


class Torn:
    """A data set with one image that cannot be read."""

    def __init__(self, whole):
        self.__dict__.update(vars(whole))
        self.whole = whole

    def load(self, index):
        if index == 2:
            raise OSError("the file ends too early")
        return self.whole.load(index)

    def fingerprint(self):
        return self.whole.fingerprint() + "torn"

    def subset(self, indices):
        return self.whole.subset(indices)


def test_a_broken_image_is_recorded_and_the_rest_goes_on(network):
    benchmark = tiny_benchmark()
    torn = replace(benchmark, test=Torn(benchmark.test))
    found = incognita.evaluate(network, torn, "msp", n_resamples=0)
    assert not found.is_complete
    assert [(part, image) for part, image, _ in found.failed_images] == [("test", "test/2")]
    assert "ends too early" in found.failed_images[0][2]
    assert len(found.scores["msp"]["test"]) == len(benchmark.test) - 1


def test_several_networks_are_an_ensemble(network):
    other = wrap_classifier(TinyNet(seed=5), preprocess="none", example=torch.zeros(2, 3, 8, 8))
    found = incognita.evaluate([network, other], tiny_benchmark(), "ensemble, msp", n_resamples=0)
    batch = torch.stack([network.preprocess(image) for image in tiny_benchmark().test.images])
    with torch.inference_mode():
        mean = (
            network.module(batch).double().softmax(1) + other.module(batch).double().softmax(1)
        ) / 2
    expected = 1 - mean.max(dim=1).values
    np.testing.assert_allclose(found.scores["ensemble"]["test"], expected.numpy(), atol=1e-6)


class Cosine(nn.Module):
    """A network without a linear head."""

    def __init__(self):
        super().__init__()
        self.inner = TinyNet()

    def forward(self, x):
        return torch.tanh(self.inner(x)) * 3


def test_a_model_without_a_linear_head_runs_what_still_works():
    network = wrap_classifier(Cosine(), preprocess="none", example=torch.zeros(2, 3, 8, 8))
    found = incognita.evaluate(network, tiny_benchmark(), "all", n_resamples=0)
    assert {"msp", "energy", "odin"} <= set(found.methods)
    assert "knn" in found.skipped
    with pytest.raises(InvalidDataError, match="These methods can run here: msp"):
        incognita.evaluate(network, tiny_benchmark(), "knn", n_resamples=0)


def test_a_method_that_cannot_fit_does_not_stop_the_others(network):
    found = incognita.evaluate(network, tiny_benchmark(), "msp, knn(k=5000)", n_resamples=0)
    assert set(found.methods) == {"msp"}
    assert "5000" in found.failed["knn(k=5000)"]
    assert not found.is_complete


def test_a_model_with_other_classes_is_refused(network):
    with pytest.raises(InvalidDataError, match="2 known classes of tiny, got 3"):
        incognita.evaluate(network, tiny_benchmark(classes=("a", "b")), "msp")


def test_validation_that_overlaps_the_test_is_refused(network):
    benchmark = tiny_benchmark()
    with pytest.raises(InvalidDataError, match="images of validation are also in the test set"):
        incognita.evaluate(network, replace(benchmark, validation=benchmark.test), "msp")


def test_a_search_without_unknown_validation_is_refused(network):
    with pytest.raises(InvalidDataError, match="needs unknown validation images"):
        incognita.evaluate(network, tiny_benchmark(unknown_validation=None), "knn", search=True)


def test_everything_fits_into_json_also_without_intervals(network):
    found = incognita.evaluate(network, tiny_benchmark(), "msp, energy", n_resamples=0)
    record = json.loads(json.dumps(found.as_json(), allow_nan=False))
    assert record["behind_best"][record["ranking"][1]]["low"] is None


def test_the_table_ranks_by_the_mean_of_the_groups(network):
    found = incognita.evaluate(network, tiny_benchmark(), FAST, n_resamples=20)
    means = [
        np.mean([found.get(t).get("auroc", g).value for g in ("near", "far")])
        for t in found.ranking()
    ]
    assert means == sorted(means, reverse=True)
    assert found.gap_to_best(found.ranking()[0]).value == 0
    assert found.groups == ("near", "far")


def test_the_full_spectrum_setting_counts_shifted_images_as_known(network):
    benchmark = tiny_benchmark(full_spectrum=True)
    found = incognita.evaluate(network, benchmark, "energy", n_resamples=0)
    assert found.groups == ("full-spectrum near", "full-spectrum far")
    result = found.get("energy").get("auroc", "full-spectrum far")
    known = np.concatenate([found.scores["energy"][name] for name in ("test", "dim")])
    unknown = found.scores["energy"]["c"]
    truth = np.repeat([0, 1], [len(known), len(unknown)])
    expected = roc_auc_score(truth, np.concatenate([known, unknown]))
    assert result.value == pytest.approx(expected, abs=1e-12)


def test_a_plain_module_is_wrapped(monkeypatch):
    found = incognita.evaluate(TinyNet(), tiny_benchmark(), "msp", preprocess="none", n_resamples=0)
    assert found.get("msp").get("accuracy", "known").support == {"images": 60}


@dataclass(eq=False)
class Own(Method):
    """A method of somebody's own."""

    def score_rows(self, rows):
        return -rows.logits.double().amax(dim=1)


def test_a_changed_method_of_ones_own_is_run_again(network, tmp_path, monkeypatch):
    places = {"store": tmp_path / "outputs", "out": tmp_path / "results", "n_resamples": 0}
    first = incognita.evaluate(network, tiny_benchmark(), {"own": Own()}, **places)
    monkeypatch.setattr(Own, "score_rows", lambda self, rows: rows.logits.double().amax(dim=1))
    second = incognita.evaluate(network, tiny_benchmark(), {"own": Own()}, **places)
    values = [each.get("own").get("auroc", "near").value for each in (first, second)]
    assert values[0] == pytest.approx(1 - values[1])


def test_an_own_method_that_breaks_does_not_take_the_others_with_it(network, monkeypatch):
    monkeypatch.setattr(Own, "score_rows", lambda self, rows: rows.logits[0, 99])
    found = incognita.evaluate(
        network, tiny_benchmark(), {"own": Own(), "msp": MSP()}, n_resamples=0
    )
    assert "IndexError" in found.failed["own"]
    assert set(found.methods) == {"msp"}


def test_broken_images_are_told_again_when_results_come_from_the_store(network, tmp_path):
    benchmark = tiny_benchmark()
    torn = replace(benchmark, test=Torn(benchmark.test))
    places = {"store": tmp_path / "outputs", "out": tmp_path / "results", "n_resamples": 0}
    first = incognita.evaluate(network, torn, "msp", **places)
    second = incognita.evaluate(network, torn, "msp", **places)
    assert second.failed_images == first.failed_images
    assert not second.is_complete


def test_a_set_that_moves_to_another_group_is_measured_again(network, tmp_path):
    places = {"store": tmp_path / "outputs", "out": tmp_path / "results", "n_resamples": 0}
    incognita.evaluate(network, tiny_benchmark(), "msp", **places)
    sets = tiny_benchmark().unknown
    moved = tiny_benchmark(unknown={"far": {**sets["near"], **sets["far"]}})
    found = incognita.evaluate(network, moved, "msp, energy", **places)
    assert found.groups == ("far",)
    assert found.get("msp").get("auroc", "far").support["sets"] == 3


class Root(TinyNet):
    """Goes on only while a pixel is above zero: a step down breaks the image."""

    def forward(self, x):
        return super().forward(x) + torch.sqrt(x[:, 0, 0, 0] - 0.001)[:, None]


def test_an_image_that_only_a_probe_breaks_leaves_other_results_usable(tmp_path):
    network = wrap_classifier(Root(), preprocess="none", example=torch.ones(2, 3, 8, 8))
    benchmark = tiny_benchmark()
    benchmark.test.images[:, 0, 0, 0] = np.maximum(benchmark.test.images[:, 0, 0, 0], 1)
    for part in (benchmark.unknown["near"]["a"], benchmark.unknown["near"]["b"],
                 benchmark.unknown["far"]["c"], benchmark.shifted["dim"]):  # fmt: skip
        part.images[:, 0, 0, 0] = 200
    places = {"store": tmp_path / "outputs", "out": tmp_path / "results", "n_resamples": 0}
    plain = incognita.evaluate(network, benchmark, "msp", **places)
    assert len(plain.scores["msp"]["test"]) == 60
    found = incognita.evaluate(network, benchmark, "msp, odin(epsilon=0.01)", **places)
    lengths = {len(found.scores[title]["test"]) for title in found.methods}
    assert len(lengths) == 1


@dataclass(eq=False)
class Moody(Method):
    """Refuses one of its parameters, and learns by gradients."""

    a: float = 1.0
    search_space = {"a": (1.0, 2.0)}  # noqa: RUF012
    invalidates = {"a": Refit.FINALIZE}  # noqa: RUF012

    def finalize(self, known, validation):
        if self.a == 2.0:
            raise ValueError("two is bad")
        weight = torch.zeros(1, requires_grad=True)
        (weight * 3).sum().backward()
        self.slope_ = float(weight.grad)

    def score_rows(self, rows):
        return -self.slope_ * rows.logits.double().amax(dim=1)


def test_a_grid_point_that_breaks_costs_neither_the_default_nor_the_search(network):
    found = incognita.evaluate(
        network, tiny_benchmark(), {"moody": Moody()}, search=True, n_resamples=0
    )
    assert found.failed == {}
    curve = found.get("moody (tuned)").search.curve
    assert [point.auroc is None for point in curve] == [False, True]
    assert "two is bad" in curve[1].reason


def test_where_every_method_fails_no_test_image_is_looked_at(network):
    counter = Counter(network.module)
    with pytest.raises(InvalidDataError, match="No method could be run"):
        incognita.evaluate(network, tiny_benchmark(), "nnguide(k=5000)", n_resamples=0)
    assert counter.images == len(tiny_benchmark().train)


def test_classes_in_another_order_are_refused():
    swapped = wrap_classifier(
        TinyNet(),
        preprocess="none",
        example=torch.zeros(2, 3, 8, 8),
        class_names=("green", "red", "blue"),
    )
    with pytest.raises(InvalidDataError, match="another order: number 0 is 'green' in the model"):
        incognita.evaluate(swapped, tiny_benchmark(), "msp")


def test_a_limit_on_a_loaded_benchmark_is_refused(network):
    with pytest.raises(InvalidDataError, match="need a benchmark given by name"):
        incognita.evaluate(network, tiny_benchmark(), "msp", limit=5)


def test_equal_ids_of_different_images_are_no_overlap(network):
    benchmark = tiny_benchmark()
    numbered = replace(benchmark.train, image_ids=benchmark.test.image_ids + tuple("abcdefghij"))
    found = incognita.evaluate(network, replace(benchmark, train=numbered), "mds", n_resamples=0)
    assert set(found.methods) == {"mds"}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"unknown": {}}, "0 unknown images"),
        ({"unknown": {"shifted": {"a": pictures("a", 5, seed=4)}}}, "cannot be called 'shifted'"),
        ({"test": replace(pictures("test", 9, seed=3), labels=np.arange(9))}, "got 0 to 8"),
    ],
)
def test_benchmarks_that_cannot_be_measured_are_refused(network, changes, words):
    with pytest.raises(InvalidDataError, match=words):
        incognita.evaluate(network, tiny_benchmark(**changes), "msp")


@pytest.mark.usefixtures("outside_tests")
@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"model": []}, "Expected at least one model, got an empty list."),
        ({"model": nn.Linear}, "got the class Linear. Build it"),
        ({"model": "digits/standard"}, "Write benchmark='digits/standard'."),
        ({"benchmark": 3}, "Expected benchmark to be a name, a TOML file or a Benchmark, got 3."),
        ({"limit": "10"}, "Expected limit to be a whole number, got '10'."),
        ({"limit": 1.5}, "Expected limit to be a whole number, got 1.5."),
        ({"boxes": {"nms_iou": 0.5}}, "Expected boxes to be BoxOptions, got {'nms_iou': 0.5}."),
        ({"settings": {"batch_size": 3}}, "Expected settings to be Settings, got"),
    ],
)
def test_arguments_of_another_type_are_one_sentence(network, arguments, sentence):
    unchecked = inspect.unwrap(incognita.evaluate)
    with pytest.raises(InvalidDataError) as caught:
        unchecked(
            **({"model": network, "benchmark": tiny_benchmark(), "methods": "msp"} | arguments)
        )
    assert sentence in str(caught.value)


def test_a_file_where_a_folder_belongs_is_one_sentence(network, tmp_path):
    (tmp_path / "file").write_text("")
    for name in ("store", "out"):
        with pytest.raises(InvalidDataError, match=f"Expected {name} to be a folder"):
            incognita.evaluate(network, tiny_benchmark(), "msp", **{name: tmp_path / "file"})


@pytest.mark.usefixtures("outside_tests")
def test_scores_of_the_wrong_kind_name_the_method(network):
    @dataclass(eq=False)
    class Lists(Method):
        def score_rows(self, rows):
            return [0.0] * len(rows)

    @dataclass(eq=False)
    class Tables(Method):
        def score_rows(self, rows):
            return rows.logits.double()

    methods = {"lists": Lists(), "tables": Tables(), "msp": "msp"}
    found = incognita.evaluate(network, tiny_benchmark(), methods, n_resamples=0)
    assert list(found.methods) == ["msp"]
    assert found.failed["lists"] == (
        "Expected a tensor of 60 scores from score_rows of Lists, got list. Return a torch tensor "
        "with one number per row."
    )
    assert "got shape [60, 3]. Return a torch tensor" in found.failed["tables"]
    assert "failed: tables: Expected a tensor" in " ".join(str(found).split())


def test_a_method_of_a_file_is_computed_again_once_the_file_is_edited(network, tmp_path):
    path = tmp_path / "own.py"
    path.write_text(
        "from dataclasses import dataclass\n"
        "from incognita.methods import Method\n"
        "SCALES = {'a': 1.0}\n"
        "@dataclass(eq=False)\n"
        "class Scaled(Method):\n"
        "    k: int = 1\n"
        "    def score_rows(self, rows):\n"
        "        return -self.k * SCALES['a'] * rows.logits.double().amax(dim=1)\n"
    )
    name = f"{path}:Scaled(k=3)"

    def scores():
        found = incognita.evaluate(
            network,
            tiny_benchmark(),
            f"{name}, msp, react+{path}:Scaled",
            out=tmp_path / "out",
            n_resamples=0,
        )
        assert found.failed == {}
        return found, found.scores[name]["test"]

    first, before = scores()
    again, same = scores()
    assert again.get(name).provenance["finished"] == first.get(name).provenance["finished"]
    path.write_text(path.read_text().replace("1.0}", "2.0}  # edited"))
    _, after = scores()
    np.testing.assert_array_equal(same, before)
    np.testing.assert_array_equal(after, 2 * before)
    assert len(list((tmp_path / "out").rglob("*Scaled*.json"))) == 4
    assert len(list((tmp_path / "out").rglob("msp*.json"))) == 1


def test_a_note_says_that_k_exceeds_the_images_of_a_class(network, tmp_path):
    for _ in range(2):  # computed, then stored
        found = incognita.evaluate(
            network, tiny_benchmark(), "knn(k=60), msp", out=tmp_path, n_resamples=0
        )
        (note,) = [note for note in found.notes if "exceeds" in note]
        assert note.startswith("KNN: k = 60 exceeds the known rows of the smallest class, ")
        assert note in found.get("knn(k=60)").notes
        assert note not in found.get("msp").notes
        assert note in " ".join(str(found).split())


def test_scores_that_are_no_tensor_are_a_reason_in_a_search_too(network):
    @dataclass(eq=False)
    class Listing(Method):
        as_list: bool = False
        search_space: ClassVar = {"as_list": (False, True)}

        def score_rows(self, rows):
            scores = rows.logits.double().amax(dim=1)
            return scores.tolist() if self.as_list else scores

    found = incognita.evaluate(
        network, tiny_benchmark(), {"own": Listing()}, search=True, n_resamples=0
    )
    point = found.get("own (tuned)").search.curve[1]
    assert point.reason.startswith("Expected a tensor of 40 scores from score_rows of Listing")


def test_a_name_changes_no_number_and_stored_results_are_found_under_any(network, tmp_path):
    options = {"n_resamples": 0, "store": tmp_path / "outputs", "out": tmp_path / "results"}
    first = incognita.evaluate(network, tiny_benchmark(), "msp", name="Ours", **options)
    again = incognita.evaluate(network, tiny_benchmark(), "msp", name="Theirs", **options)
    assert ": Ours, accuracy" in first.headline()
    assert ": Theirs, accuracy" in again.headline()
    assert again.metadata["passes"]["images"] == 0
    assert again.records() == first.records()
    assert first.get("msp").provenance["name"] == "Ours"
    assert "name" not in first.get("msp").identity


# preprocessing --------------------------------------------------------------------------------

TABLE = {"resize": 8, "crop": 8, "mean": [0.5, 0.4, 0.3], "std": [0.25, 0.5, 0.125]}
WRAPS = [
    pytest.param(lambda network: network, id="bare"),
    pytest.param(incognita.wrap_classifier, id="wrapped"),
]
PER_CHANNEL = incognita.Preprocessing(8, 8, (0.5, 0.4, 0.3), (0.25, 0.5, 0.125))


def logits_after(preprocess, network):
    with torch.no_grad():
        return network(torch.stack([preprocess(image) for image in tiny_benchmark().test.images]))


def energy(model, benchmark=None, **options):
    return incognita.evaluate(
        model, benchmark or tiny_benchmark(), "energy", n_resamples=0, **options
    )


@pytest.mark.parametrize("wrap", WRAPS)
def test_a_network_of_unknown_preprocessing_is_refused_with_the_ways_to_state_it(wrap):
    with pytest.raises(InvalidDataError) as refusal:
        energy(wrap(TinyNet()))
    for way in ("--preprocess", "incognita.Preprocessing", "pretrained_cfg", "[preprocessing]"):
        assert way in str(refusal.value)


@pytest.mark.parametrize("wrap", WRAPS)
def test_the_preprocessing_of_the_benchmark_is_used_and_said(wrap):
    benchmark = tiny_benchmark(metadata={"preprocessing": TABLE})
    found, network = energy(wrap(TinyNet()), benchmark), TinyNet().eval()
    expected = -logits_after(PER_CHANNEL, network).logsumexp(dim=1)
    np.testing.assert_allclose(found.scores["energy"]["test"], expected, rtol=1e-5)
    assert f"so that of tiny is used ({PER_CHANNEL})" in " ".join(found.notes)
    assert found.get("energy").identity["networks"][0]["preprocessing"] == repr(PER_CHANNEL)


@pytest.mark.parametrize("wrap", WRAPS)
@pytest.mark.parametrize("stated", [PER_CHANNEL, str(PER_CHANNEL)], ids=["object", "text"])
def test_stated_preprocessing_comes_first(wrap, stated):
    other = TABLE | {"mean": [0.0, 0.0, 0.0]}
    benchmark = tiny_benchmark(metadata={"preprocessing": other})
    found = energy(wrap(TinyNet()), benchmark, preprocess=stated)
    expected = -logits_after(PER_CHANNEL, TinyNet().eval()).logsumexp(dim=1)
    np.testing.assert_allclose(found.scores["energy"]["test"], expected, rtol=1e-5)
    assert not any("preprocessing of" in note for note in found.notes)
    assert not any("states no preprocessing" in note for note in found.notes)
    with pytest.raises(InvalidDataError, match="TinyNet has its own preprocessing"):
        energy(wrap_classifier(TinyNet(), preprocess="none"), preprocess=stated)


def test_a_timm_network_brings_its_preprocessing_and_a_note_says_so():
    timm = pytest.importorskip("timm")
    torch.manual_seed(0)
    network = timm.create_model("test_resnet", pretrained=False, num_classes=3).eval()
    found = energy(network, tiny_benchmark(metadata={"preprocessing": TABLE}))
    (note,) = [note for note in found.notes if "preprocessing of" in note]
    assert "is that of its pretrained_cfg (size=" in note
    assert "fine-tuned network keeps the old one" in note
    assert "crop=160" in found.get("energy").identity["networks"][0]["preprocessing"]


def test_images_that_cannot_be_one_batch_stop_the_run_and_blame_the_preprocessing():
    test = pictures("test", 9, seed=3, classes=3)
    images = [*test.images[:8], test.images[8][:6]]
    benchmark = tiny_benchmark(test=replace(test, images=images))
    with pytest.raises(InvalidDataError, match=r"different shapes, \[3, 8, 8\] for test/0 and"):
        energy(TinyNet(), benchmark, preprocess="none")


def test_preprocess_for_a_detection_benchmark_is_refused():
    with pytest.raises(InvalidDataError, match="`preprocess` needs a benchmark for classifiers"):
        incognita.evaluate(None, "terra/detection", "msp", preprocess="none", limit=2)
