"""Every number of a detector's evaluation, computed again from the boxes on disk and the truth."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import polars
import pytest
from sklearn.metrics import average_precision_score, roc_auc_score
from tests.evaluation.box_worlds import (
    BackgroundDetector,
    CellDetector,
    GridScenes,
    Thing,
    TwoHeadsDetector,
    box_benchmark,
    paint,
    raw_boxes,
    scored_sets,
    truth_of,
    truths_of,
)
from tests.extraction.tiny_detector import NAMES
from tests.oracles import box_protocol, boxes, ranking, thresholds
from tests.oracles.box_protocol import SPLITS, Part, ScoredBox
from tests.oracles.scenes import Detection, Scene

import incognita
from incognita.benchmarks.benchmark import Benchmark
from incognita.decisions.thresholds import UnknownThreshold
from incognita.evaluation.detector_metrics import (
    DetectedSet,
    ThresholdedScores,
    align_classes,
    draw_sets,
    measure_method,
)
from incognita.evaluation.evaluate import BoxOptions
from incognita.extraction.extract import extract
from incognita.results.evaluation import Evaluation
from incognita.results.method_result import MethodResult
from incognita.results.store import ResultStore

METHODS = "msp, energy, knn(k=5), vim, react, lard, safe"
WORLDS = {
    "one head": (CellDetector, BoxOptions()),
    "background": (BackgroundDetector, BoxOptions(confidence_threshold=0.2)),
    "two heads": (TwoHeadsDetector, BoxOptions(confidence_threshold="lrp(tau=0.5)")),
}
UNKNOWN_SETS = {"a": "near/a", "b": "near/b", "c": "far/c"}
TAUS = ("tau", "tau of fmiyc")
SETS = {"test": "known", **UNKNOWN_SETS}


@dataclass(frozen=True)
class World:
    """One evaluation, what it was made of, and what it left on disk."""

    detector: CellDetector
    benchmark: Benchmark
    found: Evaluation
    folder: Path

    @cached_property
    def raw(self) -> dict[str, list[ScoredBox]]:
        """Every box of every set, straight from the network."""
        sets = scored_sets(self.benchmark) | {"train": self.benchmark.train}
        if self.benchmark.validation is not None:
            sets["validation"] = self.benchmark.validation
        return {
            name: [
                ScoredBox(b.image, b.xyxy, b.confidence, b.label, math.nan, b.logits, b.background)
                for b in raw_boxes(self.detector, each)
            ]
            for name, each in sets.items()
        }

    @cached_property
    def t_star(self) -> dict[str, float]:
        """The confidence thresholds as they are recorded; infinity where nothing is kept."""
        values = self.found.results[0].thresholds["t*"]["per class"]
        return {n: math.inf if v is None else v for n, v in zip(NAMES, values, strict=True)}

    def frame(self, title: str) -> polars.DataFrame:
        path = ResultStore(self.folder).path(self.found.get(title).identity)
        return polars.read_parquet(path.with_suffix(".parquet"))

    def part(self, title: str, name: str) -> Part:
        """Give a set with the scores of a method from its Parquet file."""
        dataset = scored_sets(self.benchmark)[name]
        place = {image_id: k for k, image_id in enumerate(dataset.image_ids)}
        rows = self.frame(title).filter(polars.col("set") == name).to_dicts()
        kept = box_protocol.reaching(self.raw[name], self.t_star)
        assert len(rows) == len(kept)
        found = []
        for row, box in zip(rows, kept, strict=True):
            corners = (row["x1"], row["y1"], row["x2"], row["y2"])
            assert (place[row["image_id"]], corners) == (box.image, box.xyxy)
            mine = replace(box, confidence=row["confidence"], label=row["predicted"])
            found.append(replace(mine, unknown_score=row["unknown_score"]))
        return Part(len(dataset), found, truths_of(dataset), NAMES)

    def box_set(self, name: str) -> DetectedSet:
        """Give a set as the evaluation saw it."""
        dataset = scored_sets(self.benchmark)[name]
        found = extract(self.detector, dataset).outputs.detections
        t_star = np.array(list(self.t_star.values()))
        is_kept = found.confidence >= t_star[found.class_ids]
        group = {"test": "known", "both": "mixed"}.get(name) or UNKNOWN_SETS[name].split("/")[0]
        truth = dataset.truth()
        return DetectedSet(name, group, align_classes(truth, found), truth, is_kept)


def scene_of(dataset: GridScenes, found: list[ScoredBox]) -> Scene:
    detections = [Detection(box.image, box.xyxy, box.confidence, box.label) for box in found]
    return Scene(len(dataset), detections, truths_of(dataset), list(NAMES))


@pytest.fixture(scope="module", params=WORLDS)
def world(request, tmp_path_factory) -> World:
    kind, options = WORLDS[request.param]
    folder, detector, benchmark = tmp_path_factory.mktemp("results"), kind(), box_benchmark()
    found = incognita.evaluate(
        detector, benchmark, METHODS, boxes=options, n_resamples=0, out=folder
    )
    assert found.failed == {}
    return World(detector, benchmark, found, folder)


def assert_same(result: MethodResult, split: str, convention: str, expected: Mapping[str, float]):
    """Compare numbers, all of a convention on a split at once."""
    given = {
        each.metric: each.value
        for each in result.results
        if (each.split, each.convention) == (split, convention)
    }
    ours = {metric: given[metric] for metric in expected}
    assert ours == pytest.approx(dict(expected), abs=1e-12, nan_ok=True)


def test_the_world_has_every_case(world):
    both = world.part("energy", "both")
    assert any(truth.crowd for truth in both.truths)
    assert any(truth.difficult for truth in both.truths)
    scene = box_protocol.scene_of_paper(both, math.inf)
    assert all(box_protocol.split_of(scene, split).n_images >= 5 for split in SPLITS)
    for name in UNKNOWN_SETS:
        part = world.part("energy", name)
        assert len(part.boxes) > 3
        assert len({box.image for box in part.boxes}) < part.n_images  # some are silent
        assert len({truth.image for truth in part.truths}) < part.n_images  # some hold nothing
    if isinstance(world.detector, BackgroundDetector):
        logits = [(box, (*box.logits, box.background)) for box in world.part("energy", "c").boxes]
        assert any(max(row) == box.background for box, row in logits)
        assert any(max(box.logits) != box.logits[NAMES.index(box.label)] for box, _ in logits)


def test_boxes_are_kept_from_t_star_on_which_is_chosen_on_validation_images(world):
    policy = world.found.results[0].thresholds["t*"]
    scene = scene_of(world.benchmark.validation, world.raw["validation"])
    if policy["policy"] == "f1":
        best = [each[0] for each in thresholds.f1_thresholds(scene).values() if each]
        expected = [sum(best) / len(best)] * len(NAMES)
    elif policy["policy"].startswith("lrp"):
        expected = thresholds.lrp_thresholds(scene, 0.5)
    else:
        expected = [0.2] * len(NAMES)
    assert list(world.t_star.values()) == pytest.approx(expected, abs=1e-9)
    assert policy["chosen on"] == "validation"
    for name in scored_sets(world.benchmark):
        kept = box_protocol.reaching(world.raw[name], world.t_star)
        assert 0 < len(kept) < len(world.raw[name])
        # `part` compares them box by box
        assert len(world.part("msp", name).boxes) == len(kept)


def test_detection_level_metrics_compare_all_pairs_of_boxes(world):
    for title, result in world.found.methods.items():
        known = [box.unknown_score for box in world.part(title, "test").boxes]
        for name, split in UNKNOWN_SETS.items():
            unknown = [box.unknown_score for box in world.part(title, name).boxes]
            expected = box_protocol.ranking_numbers(known, unknown)
            is_unknown = np.repeat([0, 1], [len(known), len(unknown)])
            score = np.array(known + unknown)
            expected["aupr_unknown"] = average_precision_score(is_unknown, score)
            expected["aupr_known"] = average_precision_score(1 - is_unknown, -score)
            assert expected["auroc"] == pytest.approx(roc_auc_score(is_unknown, score), abs=1e-12)
            assert_same(result, split, "paper", expected)


def test_all_ranking_metrics_equal_their_definitions(world):
    parts = [[box.unknown_score for box in world.part("knn(k=5)", n).boxes] for n in ("test", "c")]
    is_unknown = [False] * len(parts[0]) + [True] * len(parts[1])
    expected = ranking.ranking_metrics(ranking.rows_of(parts[0] + parts[1], is_unknown))
    assert_same(world.found.get("knn(k=5)"), "far/c", "paper", expected)


def test_open_set_metrics_equal_the_definitions_of_the_paper(world):
    for title, result in world.found.methods.items():
        tau = result.thresholds["tau"]["value"]
        for name, split in SETS.items():
            part = world.part(title, name)
            called = world.frame(title).filter(polars.col("set") == name)["is_called_unknown"]
            assert called.to_list() == [box.unknown_score > tau for box in part.boxes]
            scene = box_protocol.scene_of_paper(part, tau)
            assert_same(result, split, "paper", box_protocol.numbers_of_paper(scene))


def test_numbers_under_the_name_of_the_public_code_follow_its_own_conventions(world):
    for title, result in world.found.methods.items():
        tau = result.thresholds["tau of fmiyc"]["value"]
        for name, split in SETS.items():
            scene = box_protocol.scene_of_code(world.part(title, name), tau)
            assert_same(result, split, "fmiyc", box_protocol.numbers_of_code(scene))


def test_mixed_sets_are_measured_on_all_images_and_on_those_of_one_kind(world):
    for title, result in world.found.methods.items():
        part = world.part(title, "both")
        paper = box_protocol.scene_of_paper(part, result.thresholds["tau"]["value"])
        code = box_protocol.scene_of_code(part, result.thresholds["tau of fmiyc"]["value"])
        for split in SPLITS:
            scene = box_protocol.split_of(paper, split)
            expected = box_protocol.numbers_of_paper(scene)
            expected |= box_protocol.further_numbers_of_paper(scene, split)
            assert_same(result, f"both/{split}", "paper", expected)
            theirs = box_protocol.numbers_of_code(box_protocol.split_of(code, split))
            assert_same(result, f"both/{split}", "fmiyc", theirs)


def test_a_group_is_the_plain_mean_of_its_sets_and_counts_known_images_once(world):
    for result in world.found.methods.values():
        of_sets = [r for r in result.results if r.split in ("near/a", "near/b")]
        for metric, convention in {(r.metric, r.convention) for r in of_sets}:
            parts = [result.get(metric, split, convention) for split in ("near/a", "near/b")]
            mean = result.get(metric, "near", convention)
            expected = (parts[0].value + parts[1].value) / 2
            assert mean.value == pytest.approx(expected, abs=1e-12, nan_ok=True)
            assert (mean.reason is None) == (not math.isnan(mean.value))
        auroc = result.get("auroc", "near")
        assert auroc.support["sets"] == 2
        assert auroc.support["known images"] == len(world.benchmark.test)
        assert auroc.support["unknown images"] == 24 + 18
        assert auroc.support["known boxes"] == len(world.part("msp", "test").boxes)
        assert auroc.support["unknown boxes"] == sum(
            len(world.part("msp", name).boxes) for name in ("a", "b")
        )
        # a group of one set is that set
        assert result.get("auroc", "far").value == result.get("auroc", "far/c").value


def test_what_no_score_can_see_stands_beside_every_auroc(world):
    for result in world.found.methods.values():
        splits = [each.split for each in result.results if each.metric == "auroc"]
        assert sorted(splits) == ["far", "far/c", "near", "near/a", "near/b"]
        for split in splits:
            for metric in ("images_without_detection", "unknown_objects_without_detection"):
                assert 0 < result.get(metric, split).value < 1


def test_the_quality_of_the_detector_is_that_of_all_boxes_on_known_images(world):
    scene = scene_of(world.benchmark.test, world.raw["test"])
    expected = boxes.coco_numbers(scene, list(NAMES))
    for result in world.found.methods.values():
        for metric, name in {"ap": "AP", "ap50": "AP50", "ap75": "AP75", "ar100": "AR_100"}.items():
            assert result.get(metric, "known").value == pytest.approx(expected[name], abs=1e-12)
    assert world.found.known_quality()["AP50"] == pytest.approx(expected["AP50"], abs=1e-12)


def test_scores_and_tau_follow_from_what_the_network_says(world):
    """Energy by its formula; that of the known boxes of validation gives both thresholds."""
    kept = {n: box_protocol.reaching(found, world.t_star) for n, found in world.raw.items()}
    energies = {
        name: [-math.log(math.fsum(map(math.exp, box.logits))) for box in found]
        for name, found in kept.items()
    }
    record = world.found.get("energy").thresholds
    held_out = energies["validation"]
    assert record["tau"]["value"] == pytest.approx(box_protocol.tau_of_paper(held_out), rel=1e-5)
    code = box_protocol.tau_of_code(held_out)
    assert record["tau of fmiyc"]["value"] == pytest.approx(code, rel=1e-5)
    assert record["tau"]["n_known"] == len(held_out)
    for name in scored_sets(world.benchmark):
        ours = [box.unknown_score for box in world.part("energy", name).boxes]
        assert ours == pytest.approx(energies[name], rel=1e-5)


def test_without_validation_both_thresholds_are_chosen_on_the_known_test_images(tmp_path):
    benchmark = box_benchmark(validation=None, unknown_validation=None)
    methods = "energy, knn(k=5), vim, lard"
    found = incognita.evaluate(CellDetector(), benchmark, methods, n_resamples=0, out=tmp_path)
    assert found.failed == {}
    world = World(CellDetector(), benchmark, found, tmp_path)
    scene = scene_of(benchmark.test, world.raw["test"])
    best = [each[0] for each in thresholds.f1_thresholds(scene).values() if each]
    assert list(world.t_star.values()) == pytest.approx([sum(best) / len(best)] * len(NAMES))
    for title, result in found.methods.items():
        known = [box.unknown_score for box in world.part(title, "test").boxes]
        tau = result.thresholds["tau"]
        assert tau["value"] == pytest.approx(box_protocol.tau_of_paper(known), abs=1e-12)
        assert tau["chosen on"] == result.thresholds["t*"]["chosen on"] == "test"
        code = result.thresholds["tau of fmiyc"]["value"]
        assert code == pytest.approx(box_protocol.tau_of_code(known), rel=1e-9)
        assert tau["value"] in known  # the box with just this score stays known
        for name, split in SETS.items():
            scene = box_protocol.scene_of_paper(world.part(title, name), tau["value"])
            assert_same(result, split, "paper", box_protocol.numbers_of_paper(scene))
        assert any("no known validation set" in note for note in result.notes)


def test_a_replicate_is_the_number_of_the_images_that_were_drawn(world):
    """The columns behind the intervals, on images that stand there as often as they were drawn."""
    title = "vim"
    result = world.found.get(title)
    tau, gaussian = (UnknownThreshold(result.thresholds[name]["value"], "given") for name in TAUS)
    sets = [world.box_set(name) for name in scored_sets(world.benchmark)]
    parts = {each.name: world.part(title, each.name) for each in sets}
    scores = {
        name: np.array([box.unknown_score for box in part.boxes]) for name, part in parts.items()
    }
    weights = draw_sets(sets, n_resamples=3, seed=5)
    everything = {seen.name: np.zeros(len(seen.found)) for seen in sets}  # tested elsewhere
    measures = measure_method(sets, ThresholdedScores(scores, tau, gaussian, everything), weights)
    for column in range(4):
        drawn = {
            name: box_protocol.resampled(part, weights[name][:, column])
            for name, part in parts.items()
        }
        known = [box.unknown_score for box in drawn["test"].boxes]
        unknown = [box.unknown_score for box in drawn["c"].boxes]
        expected = box_protocol.ranking_numbers(known, unknown)
        expected |= box_protocol.numbers_of_paper(
            box_protocol.scene_of_paper(drawn["c"], tau.value)
        )
        ours = {metric: measures[metric, "paper", "far/c"].values[column] for metric in expected}
        assert ours == pytest.approx(expected, abs=1e-12, nan_ok=True)
        code = box_protocol.scene_of_code(drawn["a"], gaussian.value)
        expected = box_protocol.numbers_of_code(code)
        ours = {metric: measures[metric, "fmiyc", "near/a"].values[column] for metric in expected}
        assert ours == pytest.approx(expected, abs=1e-12, nan_ok=True)


def test_the_numbers_of_four_images_that_can_be_counted_on_fingers():
    """A sure orange cell is called red, a doubtful one unknown, one is dark, one is imagined."""
    sure, doubtful = (235, 60, 5), (200, 60, 5)
    tones = {"sure": [sure], "doubtful": [doubtful], "dark": [], "imagined": [doubtful]}
    images = [painted(each) for each in tones.values()]
    orange = Thing("orange", 0, 0)
    things = [(12.0, [] if name == "imagined" else [orange]) for name in tones]
    truth = truth_of(tuple(tones), things, ("orange",))
    odd = GridScenes("odd", tuple(tones), images, boxes=truth)
    detector = CellDetector()
    raw = raw_boxes(detector, odd)
    energies = [-math.log(sum(map(math.exp, box.logits))) for box in raw]
    assert energies[0] < energies[1] == energies[2]
    t_star = raw[1].confidence  # reached, not exceeded, by the doubtful boxes
    found = incognita.evaluate(
        detector,
        box_benchmark(unknown={"near": {"odd": odd}}, mixed={}),
        "energy",
        boxes=BoxOptions(confidence_threshold=t_star, unknown_threshold=sum(energies[:2]) / 2),
        n_resamples=0,
    )
    expected = {
        "unknown_recall": 1 / 3,  # one of three objects is found as unknown
        "unknown_precision": 1 / 2,  # of two boxes called unknown one is on an object
        "unknown_ap": 1 / 3,  # the first of the two is right: precision 1 up to recall 1 / 3
        "open_set_error": 1.0,  # the sure one is called red
        "normalized_open_set_error": 1 / 3,
        "images_without_detection": 1 / 4,
        "unknown_objects_without_detection": 1 / 3,
    }
    assert_same(found.get("energy"), "near/odd", "paper", expected)


def painted(tones: list[tuple[int, int, int]]) -> np.ndarray:
    image = np.zeros((48, 48, 3), np.uint8)
    for column, tone in enumerate(tones):
        paint(image, 0, column, tone)
    return image
