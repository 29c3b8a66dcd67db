"""Detectors with an unknown class of their own: what `run` measures is what `certify` does."""

import json
import math
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
import torch
from tests.cli.test_run_detector import write_coco
from tests.evaluation.box_worlds import CellDetector, box_benchmark
from tests.extraction.tiny_detector import NAMES, GridNetwork
from torch import nn

import incognita
from incognita.errors import InvalidDataError, UnknownNameError
from incognita.evaluation.detector import OWN_LABEL, load_detector
from incognita.evaluation.rescore import rescore
from incognita.models.detector import KnownClasses, wrap_detector


class OpenNetwork(GridNetwork):
    """The same cells with a logit for objects that are bright but of no known color."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__(seed)
        self.head = nn.Linear(8, 4)
        with torch.no_grad():
            self.head.weight.zero_()
            self.head.weight[:3, :3] = 8 * torch.eye(3) - 4
            self.head.weight[3, :3] = 2.5
            self.head.bias.fill_(-2.0)


@dataclass(eq=False)
class OpenDetector(CellDetector):
    """A detector whose last class stands for the unknown."""

    module: nn.Module = field(default_factory=OpenNetwork)
    name: str = "open-grid"
    class_names: tuple = (*NAMES, "unknown")


def plain(dataset):
    """Return scenes without difficult objects, which COCO's format does not know."""
    return replace(dataset, boxes=replace(dataset.boxes, is_difficult=None))


@pytest.fixture(scope="module")
def benchmark():
    given = box_benchmark()
    near = {name: plain(dataset) for name, dataset in given.unknown["near"].items()}
    return box_benchmark(
        mixed={"both": plain(given.mixed["both"])},
        unknown={"near": near, "far": given.unknown["far"]},
    )


@pytest.fixture(scope="module")
def run(benchmark):
    return incognita.evaluate(OpenDetector(), benchmark, "msp, knn(k=3)", n_resamples=0)


def boxes_of(detector, image):
    """Ask the detector itself, going past everything that selects, records and stores."""
    prepared = detector.preprocess(image)
    with torch.no_grad():
        sizes = [(prepared.height, prepared.width)]
        found = detector.forward(prepared.pixels[None], sizes).images[0]
    for k in range(len(found.xyxy)):
        label = detector.class_names[int(found.class_ids[k])]
        yield *found.xyxy[k].tolist(), float(found.confidence[k]), label


def as_file(folder, dataset):
    """Write images, annotations and what the detector itself says about every image."""
    write_coco(folder, "set", dataset)
    names = list(dataset.truth().classes.names)
    unknown = next(k for k, n in enumerate(names) if n not in NAMES)
    ids = {**{n: names.index(n) for n in NAMES}, "unknown": unknown}
    records = []
    for image in range(len(dataset)):
        for x1, y1, x2, y2, score, label in boxes_of(OpenDetector(), dataset.load(image)):
            box = [x1, y1, x2 - x1, y2 - y1]
            records.append(
                {"image_id": image, "category_id": ids[label], "bbox": box, "score": score}
            )
    assert any(record["category_id"] == unknown for record in records)
    (folder / "found.json").write_text(json.dumps(records))


def test_run_equals_certify_number_by_number(benchmark, run, tmp_path):
    """On the mixed set, with all boxes, in every metric, convention and split."""
    as_file(tmp_path, benchmark.mixed["both"])
    certificate = incognita.certify(
        tmp_path / "set.json", tmp_path / "found.json", known=list(NAMES), n_resamples=0
    )
    expected = {(r.metric, r.convention, str(r.split)): r for r in certificate.results}
    record = run.get(OWN_LABEL)
    compared = 0
    for result in record.results:
        if str(result.split).startswith("all boxes both/"):
            split = str(result.split).removeprefix("all boxes both/")
            other = expected[result.metric, result.convention, split]
            what = (result.metric, result.convention, split)
            assert result.value == pytest.approx(other.value, rel=1e-6, nan_ok=True), what
            compared += not math.isnan(result.value)
    assert compared > 60
    assert record.get("unknown_ap", "all boxes both/all").value > 0
    assert record.get("unknown_recall", "all boxes both/all").value > 0


def test_every_other_set_equals_certify_too(benchmark, run, tmp_path):
    as_file(tmp_path, benchmark.unknown["near"]["a"])
    certificate = incognita.certify(
        tmp_path / "set.json", tmp_path / "found.json", known=list(NAMES), n_resamples=0
    )
    record = run.get(OWN_LABEL)
    for metric in ("unknown_ap", "unknown_recall", "unknown_precision", "open_set_error"):
        expected = certificate.get(metric, split="all", convention="paper").value
        found = record.get(metric, "all boxes near/a", "paper").value
        assert found == pytest.approx(expected, rel=1e-6)


def test_its_own_labels_have_no_auroc(run):
    record = run.get(OWN_LABEL)
    assert not [r for r in record.results if r.metric == "auroc"]
    assert run.ranking()[-1] == OWN_LABEL
    printed = str(run)
    row = next(line for line in printed.splitlines() if f" {OWN_LABEL} " in line)
    assert " - " in row


def test_its_own_labels_are_in_no_family_and_no_further_set(run):
    families = dict(run.families)
    assert families[OWN_LABEL] == "the detector"
    n_sets = 3
    assert run.correlations().n_pairs.max() <= n_sets * len(run.methods)


def test_methods_see_the_known_classes_alone(benchmark, run):
    """The numbers of a method are those of the detector without its unknown class."""
    closed = wrap_detector(OpenDetector())
    alone = incognita.evaluate(
        incognita.models.detector.select_classes(closed, NAMES, range(3)),
        benchmark,
        "msp, knn(k=3)",
        n_resamples=0,
    )
    for method in ("msp", "knn(k=3)"):
        ours, theirs = run.get(method), alone.get(method)
        for result in theirs.results:
            found = ours.get(result.metric, result.split, result.convention)
            assert found.value == pytest.approx(result.value, rel=1e-12, nan_ok=True)


def test_all_boxes_of_a_method_equal_certify(benchmark, run, tmp_path):
    """A closed detector with MSP: boxes above tau are written to a file as unknown."""
    detector = CellDetector()
    found = incognita.evaluate(detector, benchmark, "msp", n_resamples=0)
    tau = found.get("msp").thresholds["tau"]["value"]
    dataset = benchmark.mixed["both"]
    records = []
    names = list(dataset.truth().classes.names)
    unknown = next(k for k, n in enumerate(names) if n not in NAMES)
    for image in range(len(dataset)):
        prepared = detector.preprocess(dataset.load(image))
        with torch.no_grad():
            sizes = [(prepared.height, prepared.width)]
            boxes = detector.forward(prepared.pixels[None], sizes).images[0]
        score = 1 - boxes.logits.double().softmax(dim=1).max(dim=1).values
        for k, (x1, y1, x2, y2) in enumerate(boxes.xyxy.tolist()):
            label = unknown if score[k] > tau else int(boxes.class_ids[k])
            record = {"image_id": image, "category_id": label, "bbox": [x1, y1, x2 - x1, y2 - y1]}
            records.append(record | {"score": float(boxes.confidence[k])})
    write_coco(tmp_path, "set", dataset)
    (tmp_path / "found.json").write_text(json.dumps(records))
    certificate = incognita.certify(
        tmp_path / "set.json", tmp_path / "found.json", known=list(NAMES), n_resamples=0
    )
    for metric in ("map_known", "unknown_ap", "unknown_recall", "open_set_error", "ap_all"):
        expected = certificate.get(metric, split="all", convention="paper").value
        ours = found.get("msp").get(metric, "all boxes both/all", "paper").value
        assert ours == pytest.approx(expected, rel=1e-6), metric


def test_all_boxes_of_a_method_are_those_below_t_too(benchmark, run):
    """AP of all objects as one class does not depend on what a method calls unknown."""
    values = {run.get(m).get("ap_all", "all boxes both/all").value for m in ("msp", "knn(k=3)")}
    assert len(values) == 1
    above = run.get("msp").get("ap_all", "both/all").value
    assert values.pop() >= above


def test_the_unknown_class_may_have_any_name(benchmark):
    class Odd(OpenDetector):
        pass

    detector = Odd(class_names=(*NAMES, "something else"))
    assert not isinstance(load_detector(detector, benchmark), KnownClasses)
    stated = wrap_detector(detector, unknown_class="something else")
    loaded = load_detector(stated, benchmark)
    assert isinstance(loaded, KnownClasses)
    assert list(loaded.class_names) == list(NAMES)
    with pytest.raises(UnknownNameError, match="No class of open-grid is called 'thing'"):
        wrap_detector(detector, unknown_class="thing")
    for known in (NAMES, (*NAMES[::-1], "other")):
        wrong = wrap_detector(Odd(class_names=known), unknown_class=NAMES[0])
        with pytest.raises(
            InvalidDataError, match=f"beside the known classes of .*, got '{NAMES[0]}'"
        ):
            load_detector(wrong, benchmark)


def test_a_filter_keeps_the_unknown_class(benchmark):
    loaded = load_detector(OpenDetector(), benchmark).with_filter(score_threshold=0.4)
    assert isinstance(loaded, KnownClasses)
    assert loaded.inner.rules.score_threshold == 0.4


def test_a_known_class_called_unknown_is_no_unknown_class():
    from incognita.models.detector import find_unknown_class

    assert find_unknown_class(OpenDetector(), (*NAMES, "Unknown")) is None
    assert find_unknown_class(OpenDetector(), NAMES) == "unknown"


def test_results_are_stored_and_found_again(benchmark, tmp_path):
    kwargs = {"n_resamples": 0, "out": tmp_path / "out", "store": tmp_path / "store"}
    first = incognita.evaluate(OpenDetector(), benchmark, "msp", **kwargs)
    again = incognita.evaluate(OpenDetector(), benchmark, "msp", **kwargs)
    assert again.metadata["passes"]["images"] == 0
    metrics = [r.as_json() for r in first.get(OWN_LABEL).results]
    assert [r.as_json() for r in again.get(OWN_LABEL).results] == metrics
    rescored = rescore(tmp_path / "out", "energy", store=tmp_path / "store")
    assert set(rescored.methods) == {OWN_LABEL, "msp", "energy"}
    run = incognita.evaluate(OpenDetector(), benchmark, "energy", n_resamples=0)
    expected = [r.as_json() for r in run.get("energy").results]
    assert [r.as_json() for r in rescored.get("energy").results] == expected


def test_boxes_called_unknown_count_above_the_smallest_threshold(run):
    record = run.get(OWN_LABEL)
    above = record.get("unknown_recall", "both/all").value
    everything = record.get("unknown_recall", "all boxes both/all").value
    assert 0 < above <= everything
    assert np.isfinite(record.get("map_known", "both/all").value)
