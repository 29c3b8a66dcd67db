"""How an evaluation of a detector runs: passes, stores, what is missing, what is refused."""

import json
import math
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import ClassVar

import numpy as np
import polars
import pytest
import torch
from PIL import Image
from tests.evaluation.box_worlds import (
    CellDetector,
    GridScenes,
    PassCounter,
    Thing,
    TwoHeadsDetector,
    box_benchmark,
    capabilities,
    n_images,
    raw_boxes,
    scenes,
    scored_sets,
    truth_of,
    truths_of,
)
from tests.evaluation.worlds import TinyNet, tiny_benchmark
from tests.extraction.tiny_detector import NAMES, GridNetwork
from tests.oracles import thresholds
from tests.oracles.matching import match
from tests.oracles.scenes import Detection, Scene

import incognita
from incognita.benchmarks.benchmark import Benchmark
from incognita.containers.classes import Classes
from incognita.containers.needs import Needs
from incognita.errors import InvalidDataError
from incognita.evaluation.evaluate import BoxOptions
from incognita.evaluation.gallery import CALLED_UNKNOWN, NAMED
from incognita.evaluation.select_methods import select_methods
from incognita.extraction.extract import extract
from incognita.methods.softmax import MSP
from incognita.models.classifier import wrap_classifier
from incognita.results.method_result import MethodResult

FAST = "msp, energy"


@cache
def small_sets() -> dict[str, object]:
    return {
        "train": scenes("train", 14, seed=1),
        "validation": scenes("validation", 12, seed=2),
        "test": scenes("test", 12, seed=3),
        "unknown": {"near": {"a": scenes("a", 10, seed=4, known=(), unknown=("orange",))}},
        "mixed": {},
        "unknown_validation": scenes("held", 9, seed=8, known=(), unknown=("lime",)),
    }


def small_benchmark(**changes) -> Benchmark:
    return box_benchmark(**(small_sets() | changes))


def mixed_sets() -> dict[str, GridScenes]:
    return {"both": scenes("both", 9, seed=7, unknown=("orange",))}


def numbers(result: MethodResult) -> dict[tuple[str, str, str], tuple[float, float, float]]:
    """Give every number of a record, NaN as None, so that records can be compared."""
    return {
        (r.metric, r.convention, r.split): tuple(
            None if math.isnan(v) else v for v in (r.value, r.low, r.high)
        )
        for r in result.results
    }


# --- passes and stores ----------------------------------------------------------------------------


def test_every_image_goes_through_the_detector_once_for_all_methods():
    detector, benchmark = CellDetector(), small_benchmark(mixed=mixed_sets())
    counter = PassCounter(detector)
    methods = "msp, energy, knn(k=5), vim, mds, react, lard"
    found = incognita.evaluate(detector, benchmark, methods, n_resamples=0)
    assert found.failed == {}
    n = n_images(scored_sets(benchmark)) + len(benchmark.train) + len(benchmark.validation)
    assert counter.images == n
    assert found.metadata["passes"] == {"images": n, "forward": n, "backward": 0}


def test_only_safe_adds_a_forward_and_a_backward_pass_and_only_to_training_images():
    detector, benchmark = CellDetector(), small_benchmark()
    counter = PassCounter(detector)
    found = incognita.evaluate(detector, benchmark, "energy, lard, safe", n_resamples=0)
    n = n_images(scored_sets(benchmark)) + len(benchmark.train) + len(benchmark.validation)
    with_boxes = sum(1 for k in range(len(benchmark.train)) if has_boxes(detector, benchmark, k))
    assert found.metadata["passes"]["images"] == n
    assert found.metadata["passes"]["forward"] == n + len(benchmark.train)
    # an image in which nothing is found gives no gradient
    assert 0 < found.metadata["passes"]["backward"] == with_boxes <= len(benchmark.train)
    counter.handle.remove()
    assert counter.images == n + len(benchmark.train) + len(benchmark.train)  # of has_boxes


def has_boxes(detector, benchmark, index):
    prepared = detector.preprocess(benchmark.train.load(index))
    out = detector.forward(prepared.pixels[None], [(prepared.height, prepared.width)])
    return len(out.images[0].xyxy) > 0


def test_training_images_are_left_alone_where_no_method_learns_from_them():
    detector, benchmark = CellDetector(), small_benchmark()
    found = incognita.evaluate(detector, benchmark, FAST, n_resamples=0)
    n = n_images(scored_sets(benchmark)) + len(benchmark.validation)
    assert found.metadata["passes"]["images"] == n


def test_a_second_run_makes_no_pass_and_gives_the_same_numbers(tmp_path):
    detector, benchmark = CellDetector(), small_benchmark()
    places = {"store": tmp_path / "outputs", "out": tmp_path / "results", "n_resamples": 5}
    first = incognita.evaluate(detector, benchmark, "msp, knn(k=5)", **places)
    counter = PassCounter(detector)
    second = incognita.evaluate(detector, benchmark, "msp, knn(k=5)", **places)
    assert counter.images == 0 == second.metadata["passes"]["images"]
    assert second.get("msp").as_json() == first.get("msp").as_json()
    assert second.ranking() == first.ranking()
    # a method more comes from the stored outputs
    third = incognita.evaluate(detector, benchmark, "msp, energy", **places)
    assert counter.images == 0
    assert third.get("msp").as_json() == first.get("msp").as_json()
    assert "energy" in third.methods


def test_another_threshold_policy_makes_no_pass_but_other_decisions(tmp_path):
    detector, benchmark = CellDetector(), small_benchmark()
    places = {"store": tmp_path / "outputs", "out": tmp_path / "results", "n_resamples": 0}
    first = incognita.evaluate(detector, benchmark, "energy", **places)
    counter = PassCounter(detector)
    tau = BoxOptions(unknown_threshold="quantile(share=0.5)")
    second = incognita.evaluate(detector, benchmark, "energy", boxes=tau, **places)
    t_star = BoxOptions(confidence_threshold=0.35)
    third = incognita.evaluate(detector, benchmark, "energy", boxes=t_star, **places)
    assert counter.images == 0
    results = [each.get("energy") for each in (first, second, third)]
    called = [each.get("unknown_precision", "near").support["detections"] for each in results]
    assert called[1] > called[0]
    boxes = [each.get("auroc", "near").support["unknown boxes"] for each in results]
    assert boxes[1] == boxes[0] < boxes[2]
    assert results[1].get("auroc", "near").value == results[0].get("auroc", "near").value
    assert len(list((tmp_path / "results").rglob("*.json"))) == 3


def test_other_weights_rules_or_one_other_image_make_passes_again(tmp_path):
    benchmark, places = small_benchmark(), {"store": tmp_path / "o", "out": tmp_path / "r"}
    n = n_images(scored_sets(benchmark)) + len(benchmark.validation)

    def images_run(detector, sets=benchmark, **more):
        found = incognita.evaluate(detector, sets, "msp", n_resamples=0, **places, **more)
        return found.metadata["passes"]["images"]

    assert images_run(CellDetector()) == n
    assert images_run(CellDetector()) == 0
    assert images_run(CellDetector(GridNetwork(seed=1))) == n
    assert images_run(CellDetector(), boxes=BoxOptions(score_threshold=0.4)) == n
    assert images_run(CellDetector(), boxes=BoxOptions(max_per_image=2)) == n
    images = [image.copy() for image in benchmark.test.images]
    images[3][0, 0, 0] ^= 255
    changed = replace(benchmark.test, images=images)
    assert images_run(CellDetector(), replace(benchmark, test=changed)) == len(changed)
    # other boxes in the truth need no pass, but are another result
    moved = replace(benchmark.test.truth(), xyxy=benchmark.test.truth().xyxy + 1)
    relabelled = replace(benchmark.test, boxes=moved)
    images_run(CellDetector(), replace(benchmark, test=relabelled))
    assert len(list((tmp_path / "r").rglob("*.json"))) == 6


def test_the_rules_of_the_detector_are_part_of_the_record(tmp_path):
    rules = BoxOptions(score_threshold=0.4, max_per_image=2)
    found = incognita.evaluate(
        CellDetector(), small_benchmark(), "msp", boxes=rules, n_resamples=0, out=tmp_path
    )
    wanted = {"score_threshold": 0.4, "max_per_image": 2, "nms_iou": None}
    assert found.metadata["rules"] == wanted
    assert found.get("msp").identity["rules"] == wanted
    frame = polars.read_parquet(next(tmp_path.rglob("*.parquet")))
    assert frame["confidence"].min() >= 0.4
    assert frame.group_by("set", "image_id").len()["len"].max() == 2


def test_every_box_on_disk_has_its_place_label_and_score(tmp_path):
    benchmark = small_benchmark(mixed=mixed_sets())
    found = incognita.evaluate(CellDetector(), benchmark, "msp", n_resamples=0, out=tmp_path)
    frame = polars.read_parquet(next(tmp_path.rglob("*.parquet")))
    assert frame.columns == [
        "set", "group", "image_id", "x1", "y1", "x2", "y2", "width", "height", "predicted",
        "object_class", "confidence", "source_index", "unknown_score", "is_called_unknown",
    ]  # fmt: skip
    assert dict(frame.select("set", "group").unique().rows()) == {
        "test": "known", "a": "near", "both": "mixed"
    }  # fmt: skip
    _check_object_classes(frame, scored_sets(benchmark))
    boxes = found.get("msp").get("auroc", "near/a").support
    assert boxes["known boxes"] == len(frame.filter(polars.col("set") == "test"))
    assert boxes["unknown boxes"] == len(frame.filter(polars.col("set") == "a"))


def _check_object_classes(frame, datasets):
    """Compare with a greedy match by torchvision's IoU, the most confident box first."""
    from torchvision.ops import box_iou

    taken = set()
    for row in frame.sort("confidence", descending=True, maintain_order=True).iter_rows(named=True):
        truth = datasets[row["set"]].truth()
        k = truth.image_ids.tolist().index(row["image_id"])
        box = torch.tensor([[row[name] for name in ("x1", "y1", "x2", "y2")]], dtype=torch.float64)
        overlaps = {
            j: float(box_iou(box, torch.tensor([truth.xyxy[j].tolist()]).double()))
            for j in range(*truth.offsets[k : k + 2])
            if (row["set"], j) not in taken and not truth.is_crowd[j]
        }
        best = max(overlaps, key=overlaps.get, default=None)
        if best is None or overlaps[best] < 0.5:
            assert row["object_class"] is None
            continue
        taken.add((row["set"], best))
        assert row["object_class"] == truth.classes.names[truth.class_ids[best]]
    assert len(taken) > 20


# --- what is missing or broken --------------------------------------------------------------------


def test_without_validation_images_a_note_says_what_thresholds_are_chosen_on():
    benchmark = small_benchmark(validation=None, unknown_validation=None)
    detector = CellDetector()
    counter = PassCounter(detector)
    found = incognita.evaluate(detector, benchmark, "msp, lard", n_resamples=0)
    assert counter.images == n_images(scored_sets(benchmark)) + len(benchmark.train)
    assert found.failed == {}
    assert [note for note in found.notes if "no known validation set" in note]
    assert found.get("msp").thresholds["tau"]["chosen on"] == "test"
    assert found.get("msp").thresholds["t*"]["chosen on"] == "test"


class Torn:
    """Scenes of which one cannot be read."""

    source_classes = None

    def __init__(self, whole):
        self.__dict__.update(vars(whole))
        self.whole = whole

    def load(self, index):
        if index == 2:
            raise OSError("the file ends too early")
        return self.whole.load(index)

    def __getattr__(self, name):
        return getattr(self.whole, name)

    def __len__(self):
        return len(self.whole)


@pytest.mark.parametrize("part", ["test", "validation", "train"])
def test_a_broken_image_is_recorded_and_the_rest_goes_on(part, tmp_path):
    benchmark = small_benchmark(**{part: Torn(small_sets()[part])})
    places = {"n_resamples": 0, "out": tmp_path}
    found = incognita.evaluate(CellDetector(), benchmark, "msp, knn(k=3)", **places)
    assert not found.is_complete
    assert [each[:2] for each in found.failed_images] == [(part, f"{part}002")]
    assert "ends too early" in found.failed_images[0][2]
    if part == "test":
        assert found.get("msp").get("images_without_detection", "known").support["images"] == 11
        # the numbers are those of the set without the image
        rest = small_sets()["test"].subset([k for k in range(12) if k != 2])
        without = incognita.evaluate(
            CellDetector(), small_benchmark(test=rest), "msp", n_resamples=0
        )
        assert numbers(found.get("msp")) == numbers(without.get("msp"))
    again = incognita.evaluate(CellDetector(), benchmark, "msp, knn(k=3)", **places)
    assert again.metadata["passes"]["images"] == 0
    assert again.failed_images == found.failed_images  # a stored result remembers


def painted(n, tone, name="dark"):
    """Images of one color with an object in the middle of each."""
    rng = np.random.default_rng(len(name))
    images = [
        np.clip(np.array(tone) + rng.integers(0, 6, (48, 48, 3)), 0, 255).astype(np.uint8)
        for _ in range(n)
    ]
    ids = tuple(f"{name}{k}" for k in range(n))
    things = [(12.0, [Thing("orange", 1, 1)])] * n
    return GridScenes(name, ids, images, boxes=truth_of(ids, things, ("orange",)))


def test_a_set_in_which_nothing_is_found_has_no_auroc_and_recalls_nothing():
    benchmark = small_benchmark(
        unknown={"near": {"a": small_sets()["unknown"]["near"]["a"], "dark": painted(5, (0, 0, 0))}}
    )
    found = incognita.evaluate(CellDetector(), benchmark, "msp, energy, vim", n_resamples=4)
    assert found.failed == {}
    for result in found.methods.values():
        for metric in ("auroc", "fpr_at_95_known_recall"):
            alone = result.get(metric, "near/dark")
            assert math.isnan(alone.value)
            assert alone.reason == "no box reaches the confidence threshold on the unknown images"
            group = result.get(metric, "near")
            assert math.isnan(group.value)
            assert group.reason == alone.reason
        assert result.get("unknown_recall", "near/dark").value == 0
        assert result.get("unknown_ap", "near/dark").value == 0
        assert result.get("normalized_open_set_error", "near/dark").value == 0
        assert math.isnan(result.get("unknown_precision", "near/dark").value)
        assert result.get("images_without_detection", "near/dark").value == 1
        assert result.get("unknown_objects_without_detection", "near/dark").value == 1
        assert not math.isnan(result.get("auroc", "near/a").value)
    precision = {title: r.get("unknown_ap", "near").value for title, r in found.methods.items()}
    assert len(set(precision.values())) > 1
    ranked = [precision[title] for title in found.ranking()]  # no mean AUROC: by AP_U
    assert ranked == sorted(precision.values(), reverse=True)
    json.dumps(found.as_json(), allow_nan=False)


def test_a_set_of_a_single_image_has_no_interval():
    near = small_sets()["unknown"]["near"]["a"]
    one = int(np.diff(near.truth().offsets).argmax())
    benchmark = small_benchmark(unknown={"near": {"one": near.subset([one])}, "far": {"a": near}})
    options = BoxOptions(confidence_threshold=0.31)
    found = incognita.evaluate(CellDetector(), benchmark, "msp", boxes=options, n_resamples=20)
    for split in ("near", "near/one"):
        for metric in ("auroc", "unknown_recall"):
            result = found.get("msp").get(metric, split)
            assert not math.isnan(result.value)
            assert math.isnan(result.low)
    assert found.get("msp").get("auroc", "near").few == " n=1"
    units = found.get("msp").get("auroc", "far/a").units
    assert math.isnan(found.get("msp").get("auroc", "far/a").low) == (units < 10)
    assert any("so few images contribute" in note for note in found.notes)
    assert any("bootstrap replicates is 20" in note for note in found.notes)


def test_a_benchmark_may_have_mixed_sets_alone():
    benchmark = small_benchmark(unknown={}, mixed=mixed_sets())
    found = incognita.evaluate(CellDetector(), benchmark, FAST, n_resamples=0)
    assert found.groups == ()
    assert found.ranking() == ["energy", "msp"]
    assert 0 <= found.get("msp").get("unknown_recall", "both/all").value <= 1
    assert found.further_tables() is None
    found.table()
    json.dumps(found.as_json(), allow_nan=False)


def test_shifted_images_are_measured_apart():
    dim = scenes("dim", 8, seed=31)
    benchmark = small_benchmark(shifted={"dim": dim})
    found = incognita.evaluate(CellDetector(), benchmark, FAST, n_resamples=0)
    plain = incognita.evaluate(CellDetector(), small_benchmark(), FAST, n_resamples=0)
    result = found.get("msp")
    assert 0 < result.get("map_known", "shifted/dim").value <= 1
    assert found.groups == ("near",)
    for metric in ("auroc", "unknown_recall"):
        assert result.get(metric, "near").value == plain.get("msp").get(metric, "near").value


def test_the_detector_may_find_nothing_in_the_training_images():
    dark = painted(12, (0, 0, 0), "train")
    found = incognita.evaluate(
        CellDetector(), small_benchmark(train=dark), "msp, knn(k=5), vim", n_resamples=0
    )
    assert list(found.methods) == ["msp"]
    assert set(found.failed) == {"knn(k=5)", "vim"}
    assert not found.is_complete
    assert all(0 < len(reason) < 300 for reason in found.failed.values())


# --- methods --------------------------------------------------------------------------------------


@dataclass(eq=False)
class Failing(MSP):
    """A method that fails where it is told to."""

    where: str = "fit"

    def fit_statistics(self, known, validation):
        if self.where == "fit":
            raise ValueError("nothing to learn")

    def score_rows(self, rows):
        if self.where == rows.image_ids[0].split("0")[0]:
            raise RuntimeError("nothing to say")
        return super().score_rows(rows)


@dataclass(eq=False)
class Spy(MSP):
    """A method that shows what it was fitted on."""

    needs: ClassVar[Needs] = Needs.LOGITS | Needs.KNOWN | Needs.VALIDATION | Needs.LABELS

    def fit_statistics(self, known, validation):
        self.seen_ = {"train": known, "validation": validation}


def test_methods_learn_from_the_labels_given_to_training_boxes_and_found_by_validation_boxes():
    spy, benchmark = Spy(), small_benchmark()
    found = incognita.evaluate(CellDetector(), benchmark, {"spy": spy}, n_resamples=0)
    assert found.failed == {}
    t_star = found.get("spy").thresholds["t*"]["per class"][0]
    kept = {
        name: [b for b in raw_boxes(CellDetector(), dataset) if b.confidence >= t_star]
        for name, dataset in (("train", benchmark.train), ("validation", benchmark.validation))
    }
    assert [NAMES[k] for k in spy.seen_["train"].labels] == [box.label for box in kept["train"]]
    truths = truths_of(benchmark.validation)
    detections = [Detection(b.image, b.xyxy, b.confidence, b.label) for b in kept["validation"]]
    scene = Scene(len(benchmark.validation), detections, truths, list(NAMES))
    pairs = {m.place: m.truth for m in match(scene, "coco").ranked if m.status == "tp"}
    assert 0 < len(pairs) < len(detections)
    expected = [(truths[pairs[k]].label, kept["validation"][k].logits) for k in sorted(pairs)]
    seen = spy.seen_["validation"]
    assert [NAMES[k] for k in seen.labels] == [label for label, _ in expected]
    np.testing.assert_allclose(seen.logits, [logits for _, logits in expected], rtol=1e-6)


@pytest.mark.parametrize(
    ("where", "reason"),
    [
        ("fit", "ValueError: nothing to learn"),
        ("a", "RuntimeError: nothing to say"),
        ("validation", "RuntimeError: nothing to say"),
    ],
)
def test_a_method_that_fails_leaves_the_others(where, reason):
    methods = {"bad": Failing(where=where), "good": MSP()}
    found = incognita.evaluate(CellDetector(), small_benchmark(), methods, n_resamples=0)
    alone = incognita.evaluate(CellDetector(), small_benchmark(), {"good": MSP()}, n_resamples=0)
    assert found.failed == {"bad": reason}
    assert not found.is_complete
    assert numbers(found.get("good")) == numbers(alone.get("good"))
    with pytest.raises(InvalidDataError, match=f"No method could be run. bad: {reason}"):
        incognita.evaluate(
            CellDetector(), small_benchmark(), {"bad": Failing(where=where)}, n_resamples=0
        )


def test_heads_that_no_known_box_comes_from_are_named_in_the_record(tmp_path):
    upper = scenes("train", 25, seed=1, rows=(0, 1))
    detector, benchmark = TwoHeadsDetector(), small_benchmark(train=upper)
    places = {"n_resamples": 0, "out": tmp_path}
    found = incognita.evaluate(detector, benchmark, "msp, knn(k=3)", **places)
    assert found.failed == {}
    (note,) = [note for note in found.get("knn(k=3)").notes if "Head" in note]
    assert note.startswith("KNN: Head 1 could not be fitted to 0 known rows: ")
    assert found.families == {"msp": "output-based", "knn(k=3)": "feature-space"}
    assert note in found.notes
    assert not any("Head" in note for note in found.get("msp").notes)
    again = incognita.evaluate(detector, benchmark, "msp, knn(k=3)", **places)
    assert again.notes == found.notes


def test_a_search_tries_parameters_on_held_out_boxes(tmp_path):
    detector, benchmark = CellDetector(), small_benchmark()
    counter = PassCounter(detector)
    places = {"n_resamples": 0, "out": tmp_path, "search": True}
    found = incognita.evaluate(detector, benchmark, "msp, react, knn(k=3)", **places)
    n_held_out = len(benchmark.validation) + len(benchmark.unknown_validation)
    assert counter.images == n_images(scored_sets(benchmark)) + n_held_out + len(benchmark.train)
    assert "react (tuned)" in found.methods
    assert "msp (tuned)" not in found.methods
    curve = found.get("react (tuned)").search.curve
    assert curve[0].parameters["percentile"] == 90  # the default comes first
    best = max(point.auroc for point in curve if point.auroc is not None)
    chosen = found.get("react (tuned)").parameters["percentile"]
    assert best == next(p.auroc for p in curve if p.parameters["percentile"] == chosen)
    assert found.families["react (tuned)"] == found.families["react"] == "mixed"
    again = incognita.evaluate(detector, benchmark, "msp, react, knn(k=3)", **places)
    assert again.metadata["passes"]["images"] == 0
    assert sorted(again.methods) == sorted(found.methods)


def test_a_search_over_several_heads_tries_nothing_says_so_and_is_stored(tmp_path):
    detector, benchmark = TwoHeadsDetector(), small_benchmark(train=scenes("train", 40, seed=1))
    places = {"n_resamples": 0, "out": tmp_path, "search": True}
    found = incognita.evaluate(detector, benchmark, "msp, react", **places)
    assert sorted(found.methods) == ["msp", "react"]
    (note,) = [note for note in found.get("react").notes if "searched" in note]
    assert note.endswith("its parameters are not searched")
    again = incognita.evaluate(detector, benchmark, "msp, react", **places)
    assert again.metadata["passes"]["images"] == 0


# --- thresholds -----------------------------------------------------------------------------------


def test_thresholds_may_be_numbers():
    options = BoxOptions(confidence_threshold=0.5, unknown_threshold=-1)
    found = incognita.evaluate(
        CellDetector(), small_benchmark(), "energy", boxes=options, n_resamples=0
    )
    record = found.get("energy").thresholds
    assert record["t*"]["policy"] == "fixed(value=0.5)"
    assert record["t*"]["per class"] == [0.5, 0.5, 0.5]
    assert (record["tau"]["policy"], record["tau"]["value"]) == ("fixed(value=-1.0)", -1.0)
    assert record["tau of fmiyc"]["policy"] == "gaussian(n_std=1.645)"


def test_a_class_of_which_nothing_is_right_is_named_beside_its_thresholds():
    """Blue objects are annotated as green ones, so that no threshold of blue is best."""
    validation = small_sets()["validation"]
    truth = validation.truth()
    names = replace(truth, class_ids=np.where(truth.class_ids == 2, 1, truth.class_ids))
    benchmark = small_benchmark(validation=replace(validation, boxes=names))
    options = BoxOptions(confidence_threshold="lrp")
    found = incognita.evaluate(CellDetector(), benchmark, FAST, boxes=options, n_resamples=0)
    record = found.get("msp").thresholds["t*"]
    assert record["per class"][2] is None
    assert record["without threshold"] == ["blue"]
    json.dumps(found.as_json(), allow_nan=False)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"confidence_threshold": "quantile"}, "Expected a policy for t\\*"),
        ({"unknown_threshold": "f1"}, "Expected a policy for tau"),
        ({"unknown_threshold": "quantil"}, "Did you mean quantile"),
        ({"unknown_threshold": "harmonic-mean"}, "needs unknown validation images"),
        ({"score_threshold": 1.5}, "score_threshold must be"),
        ({"nms_iou": 0.5}, "drops no overlapping boxes"),
    ],
)
def test_options_that_mean_nothing_are_refused_before_any_pass(options, words):
    detector = CellDetector()
    counter = PassCounter(detector)
    benchmark = small_benchmark(unknown_validation=None)
    with pytest.raises(incognita.errors.IncognitaError, match=words):
        incognita.evaluate(detector, benchmark, "msp", boxes=BoxOptions(**options))
    assert counter.images == 0


def test_the_harmonic_mean_weighs_known_against_unknown_validation_boxes():
    options = BoxOptions(unknown_threshold="harmonic-mean")
    benchmark, detector = small_benchmark(), CellDetector()
    found = incognita.evaluate(detector, benchmark, FAST, boxes=options, n_resamples=0)
    record = found.get("energy")
    t_star = np.array(record.thresholds["t*"]["per class"])
    scores = []
    for dataset in (benchmark.validation, benchmark.unknown_validation):
        boxes = extract(detector, dataset).outputs.detections
        kept = boxes.logits[boxes.confidence >= t_star[boxes.class_ids]].astype(np.float64)
        scores.append((-np.log(np.exp(kept).sum(axis=1))).tolist())
    best, _ = thresholds.best_harmonic_mean(*scores)
    assert record.thresholds["tau"]["value"] == pytest.approx(best, rel=1e-6)


def test_pictures_show_every_set_with_unknown_objects(tmp_path):
    found = incognita.evaluate(CellDetector(), small_benchmark(), FAST, n_resamples=0, out=tmp_path)
    folder = Path(found.metadata["pictures"])
    assert [each.stem for each in folder.iterdir()] == ["a"]
    with Image.open(folder / "a.png") as sheet:
        pixels = np.asarray(sheet.convert("RGB"))
    assert pixels.shape[1] == 4 * 308 + 8
    drawn = {tuple(color) for color in pixels.reshape(-1, 3).tolist()}
    assert {NAMED, CALLED_UNKNOWN} <= drawn


# --- what is refused ------------------------------------------------------------------------------


def refusal(detector=None, benchmark=None, methods="msp", **more):
    detector = detector or CellDetector()
    with pytest.raises(InvalidDataError) as caught:
        incognita.evaluate(detector, benchmark or small_benchmark(), methods, n_resamples=0, **more)
    return str(caught.value)


def test_a_detector_that_finds_nothing_is_one_sentence():
    """However many methods there are, and wherever its boxes are lost."""
    said = refusal(
        CellDetector().with_filter(score_threshold=0.99), methods="msp, energy, knn(k=5)"
    )
    assert said == (
        "No box of grid reaches its score threshold of 0.99 in the 12 known images of validation, "
        "so there is nothing to score. Lower it, or check the detector and its preprocessing."
    )
    said = refusal(boxes=BoxOptions(confidence_threshold=0.98), methods="msp, energy")
    assert "reaches the confidence threshold t* (fixed(value=0.98)) in the 12 known" in said
    benchmark = small_benchmark(validation=None, unknown_validation=None)
    said = refusal(CellDetector().with_filter(score_threshold=0.99), benchmark)
    assert "in the 12 known images of test" in said


def test_other_models_and_other_classes_are_refused_in_a_sentence():
    classifier = wrap_classifier(TinyNet(), example=torch.zeros(2, 3, 8, 8))
    assert "Expected a torch module, an adapter or the name of a detector" in refusal(classifier)
    assert "Expected one detector for grid, got 2" in refusal([CellDetector(), CellDetector()])
    assert "detectors are those of torchvision" in refusal(TinyNet())
    assert "grid has no default model" in refusal_of_none()
    two = CellDetector(class_names=("red", "green"))
    assert "grid has no class 'blue' of grid. Name all its classes" in refusal(two)
    named = CellDetector(class_names=("red", "green", "navy"))
    counter = PassCounter(named)
    assert "grid has no class 'blue' of grid" in refusal(named)
    assert counter.images == 0
    spelled = CellDetector(class_names=("red", "green", "blues"))
    assert "Name all its classes" in refusal(spelled)
    one = [CellDetector()]
    assert incognita.evaluate(one, small_benchmark(), "msp", n_resamples=0).failed == {}


def test_a_detector_that_names_no_classes_takes_those_of_the_benchmark_and_says_so():
    numbered = CellDetector(class_names=("class 0", "class 1", "class 2"))
    found = incognita.evaluate(numbered, small_benchmark(), "msp", n_resamples=0)
    assert "grid names no classes: they are taken in the order of the benchmark" in found.notes
    plain = incognita.evaluate(CellDetector(), small_benchmark(), "msp", n_resamples=0)
    assert numbers(found.get("msp")) == numbers(plain.get("msp"))


def test_classes_in_another_order_or_spelling_are_put_right():
    turned = GridNetwork()
    with torch.no_grad():
        for parameter in turned.head.parameters():
            parameter.copy_(parameter[[1, 2, 0]].clone())
    detector = CellDetector(turned, class_names=("Green", "BLUE", "red"))
    found = incognita.evaluate(detector, small_benchmark(), "energy, vim", n_resamples=0)
    plain = incognita.evaluate(CellDetector(), small_benchmark(), "energy, vim", n_resamples=0)
    for title, result in plain.methods.items():
        ours = {key: value for key, (value, *_) in numbers(found.get(title)).items()}
        expected = {key: value for key, (value, *_) in numbers(result).items()}
        assert ours == pytest.approx(expected, abs=1e-9, nan_ok=True)


def refusal_of_none():
    with pytest.raises(InvalidDataError) as caught:
        incognita.evaluate(None, small_benchmark(), "msp")
    return str(caught.value)


def test_options_for_boxes_and_detectors_are_refused_by_a_benchmark_for_classifiers():
    classifier = wrap_classifier(TinyNet(), example=torch.zeros(2, 3, 8, 8))
    said = refusal(classifier, tiny_benchmark(), boxes=BoxOptions())
    assert "`boxes` needs a detection benchmark, got tiny for classifiers" in said
    assert "Expected a torch module, an adapter or the name of a model" in refusal(
        CellDetector(), tiny_benchmark()
    )


def test_a_truth_in_which_nothing_can_be_unknown_is_refused():
    test = small_sets()["test"]
    closed = replace(test.truth(), classes=Classes(NAMES))
    said = refusal(benchmark=small_benchmark(test=replace(test, boxes=closed)))
    assert "The truth has no unknown class" in said


def test_sets_without_boxes_are_refused():
    images = small_sets()["test"].images
    unwrap = incognita.containers.dataset.ArrayDataset("bare", tuple("abc"), images[:3])
    assert "Expected annotated boxes, but bare has none" in refusal(
        benchmark=small_benchmark(unknown={"near": {"bare": unwrap}})
    )


def test_names_that_would_be_mixed_up_are_refused():
    near = small_sets()["unknown"]["near"]["a"]
    said = refusal(benchmark=small_benchmark(unknown={"near": {"validation": near}}))
    assert "A test set of grid is called 'validation'" in said
    said = refusal(benchmark=small_benchmark(mixed={"near": mixed_sets()["both"]}))
    assert "both called 'near'" in said


def test_a_search_without_held_out_boxes_is_refused_before_any_pass():
    said = refusal(benchmark=small_benchmark(unknown_validation=None), search=True)
    assert "A search needs unknown validation images" in said
    assert 'Add a set with role = "unknown-validation" to its file' in said


def test_methods_that_boxes_cannot_feed_are_left_out_of_all_and_refused_by_name():
    assert "odin needs" in refusal(methods="odin")
    asked = select_methods("all", capabilities(CellDetector(), small_benchmark()))
    assert {"msp", "energy", "knn", "vim", "react", "lard", "safe"} <= set(asked.methods)
    assert "not recorded for boxes" in asked.skipped["odin"]
    assert "boxes of several detectors" in asked.skipped["ensemble"]
    unwrap = replace(CellDetector(), layers=())
    assert {"lard", "safe"} <= set(
        select_methods("all", capabilities(unwrap, small_benchmark())).skipped
    )


# --- what comes out -------------------------------------------------------------------------------


def test_the_evaluation_is_valid_json_with_every_number():
    benchmark = small_benchmark(mixed=mixed_sets())
    methods = "msp, energy, knn(k=3), lard"
    found = incognita.evaluate(CellDetector(), benchmark, methods, n_resamples=3)
    text = json.dumps(found.as_json(), allow_nan=False)
    record = json.loads(text)
    assert record["ranking"] == found.ranking()
    assert set(record["methods"]) == set(found.methods)
    for title, result in found.methods.items():
        read = MethodResult.from_json(record["methods"][title])
        assert numbers(read) == numbers(result)
        assert read.thresholds == json.loads(json.dumps(result.thresholds))
        keys = [(r.metric, r.convention, r.split) for r in result.results]
        assert len(set(keys)) == len(keys)
        for each in result.results:
            assert (each.reason is None) == (not math.isnan(each.value))
            assert each.support
    means = {(m["family"], m["group"], m["metric"]): m["value"] for m in record["families"]}
    aurocs = [found.get(n).get("auroc", "near").value for n in ("msp", "energy")]
    assert means["output-based", "near", "auroc"] == pytest.approx(np.mean(aurocs))
    assert record["correlations"]["metrics"][:2] == ["auroc", "fpr_at_95_known_recall"]
    assert np.array(record["correlations"]["pairs"])[0, 0] == 4
    assert record["facts"]["confidence_policy"] == "f1"
    assert record["facts"]["score_policy"] == "quantile(share=0.95)"
    assert record["facts"]["rules"]["score_threshold"] == 0.3


def test_intervals_hold_the_value_and_the_same_seed_gives_the_same():
    options = {"n_resamples": 15, "boxes": BoxOptions(confidence_threshold=0.4)}
    first = incognita.evaluate(CellDetector(), small_benchmark(), "vim", **options)
    again = incognita.evaluate(CellDetector(), small_benchmark(), "vim", **options)
    assert numbers(first.get("vim")) == numbers(again.get("vim"))
    other = incognita.evaluate(CellDetector(), small_benchmark(), "vim", seed=1, **options)
    ap, moved = (each.get("vim").get("ap", "known") for each in (first, other))
    assert ap.low < ap.value < ap.high
    assert moved.value == ap.value
    assert moved.low != ap.low
    auroc = first.get("vim").get("auroc", "near")  # boxes on eight of the ten unknown images
    assert (auroc.units, auroc.few) == (8, " n=8")
    assert math.isnan(auroc.low)
