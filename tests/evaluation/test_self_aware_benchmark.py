"""A detector made self-aware on a benchmark: from images, from the store, from recorded boxes."""

import json
from dataclasses import replace

import numpy as np
import pytest
from tests.cli.test_run_detector import write_coco
from tests.evaluation.box_worlds import CellDetector, box_benchmark, scenes
from tests.extraction.tiny_detector import NAMES

from incognita.benchmarks import PaintedOver, corrupted, load_benchmark
from incognita.decisions import SelfAware, SelfAwareSettings, load_self_aware
from incognita.errors import InvalidDataError, MissingDataError
from incognita.evaluation import (
    AnnotatedSet,
    SelfAwareTest,
    evaluate_self_aware,
    make_self_aware,
)
from incognita.extraction.extract import extract

FILE = """
name = "mine/cells"
version = 1
title = "red, green and blue cells"
task = "detection"
protocol = "self-aware"
classes = {classes}
"""
SET = """
[[set]]
name = "{name}"
role = "{role}"
kind = "coco"
annotations = "{file}.json"
images = "{file}"
"""
SEVERE = 'corrupt = { kinds = "saod", severity = 5, seed = 1 }\nrejection = "free"\n'


def detector() -> CellDetector:
    """Return a detector that gives every cell a box, as the paper's image threshold needs."""
    return CellDetector().with_filter(score_threshold=0.05)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("cells")
    write_coco(root, "validation", scenes("validation", 24, seed=2))
    write_coco(root, "test", scenes("test", 20, seed=3))
    write_coco(root, "odd", scenes("odd", 16, seed=4, known=(), unknown=("orange", "lime")))
    text = FILE.format(classes=list(NAMES))
    text += SET.format(name="validation", role="validation", file="validation")
    text += SET.format(name="test", role="test", file="test")
    text += SET.format(name="severe", role="shifted", file="test") + SEVERE
    text += SET.format(name="odd", role="far", file="odd")
    (root / "cells.toml").write_text(text)
    return root


@pytest.fixture(scope="module")
def run(folder):
    return make_self_aware(
        detector(), folder / "cells.toml", n_resamples=20, out=folder / "out",
        save_outputs=folder / "saved",
    )  # fmt: skip


def test_numbers_are_those_of_the_same_detections(folder, run):
    """The protocol adds nothing to `SelfAware.fit` and `evaluate_self_aware`."""
    benchmark = load_benchmark(folder / "cells.toml")

    def found(dataset):
        boxes = extract(detector(), dataset).outputs.detections
        return replace(boxes, classes=dataset.truth().classes, features=None)

    def annotated(dataset):
        return AnnotatedSet(found(dataset), dataset.truth())

    severe = corrupted(benchmark.test, "saod", 5, seed=1)
    assert benchmark.shifted["severe"].fingerprint() == severe.fingerprint()
    fitted = SelfAware.fit(
        *annotated(benchmark.validation), found(PaintedOver(benchmark.validation))
    )
    test = SelfAwareTest(
        annotated(benchmark.test),
        {"severe": annotated(severe)},
        frozenset({"severe"}),
        {"odd": found(benchmark.unknown["far"]["odd"])},
        annotated(benchmark.validation),
    )
    expected = evaluate_self_aware(fitted, test, n_resamples=20)
    assert [r.as_json() for r in run.report.results] == [r.as_json() for r in expected.results]
    assert run.fitted.image_threshold.value == fitted.image_threshold.value


def test_before_is_the_first_row_of_table_7(folder, run):
    settings = SelfAwareSettings(
        image_threshold="quantile(share=0.95)", confidence_threshold=0.5, calibrator="none"
    )
    again = make_self_aware(detector(), folder / "cells.toml", rules=settings, n_resamples=20)
    assert [r.as_json() for r in again.report.results] == [r.as_json() for r in run.report.before]
    assert "before" in run.report.headline()
    assert run.report.headline().startswith("grid on mine/cells: DAQ")


def test_rules_and_report_are_on_disk(folder, run):
    assert run.folder.parent == folder / "out"
    loaded = load_self_aware(run.folder / "rules.json")
    assert loaded.image_threshold == run.fitted.image_threshold
    assert loaded.metadata["detector"] == "grid"
    report = json.loads((run.folder / "report.json").read_text())
    assert report["inputs"]["benchmark"] == "mine/cells"
    assert len(report["before"]) == len(report["results"])


def test_the_ablation_of_the_study_leads_from_before_to_after(folder, run):
    document = json.loads((run.folder / "study" / "study.json").read_text())
    first, *_, last = document["tables"]["ablation"]["rows"]
    metric = "detection_awareness_quality"
    (after,) = [r.value for r in run.report.results if r.metric == metric]
    (before,) = [r.value for r in run.report.before if r.metric == metric]
    assert (first["daq"], last["daq"]) == (before, after)


def test_recorded_boxes_give_the_same_numbers(folder, run):
    again = make_self_aware(None, folder / "cells.toml", outputs=folder / "saved", n_resamples=20)
    values = [(r.metric, r.split, r.value) for r in again.report.results]
    expected = [(r.metric, r.split, r.value) for r in run.report.results]
    assert [v[:2] for v in values] == [v[:2] for v in expected]
    np.testing.assert_allclose([v[2] for v in values], [v[2] for v in expected], rtol=1e-6)


def test_recorded_boxes_without_painted_images_get_one_sentence(folder, run, tmp_path):
    for path in (folder / "saved").iterdir():
        if not path.name.startswith("painted-over"):
            (tmp_path / path.name).write_bytes(path.read_bytes())
    with pytest.raises(MissingDataError, match="painted over"):
        make_self_aware(None, folder / "cells.toml", outputs=tmp_path)


def test_unknown_validation_images_take_the_place_of_painted_ones():
    odd = scenes("odd-validation", 10, seed=9, known=(), unknown=("orange",))
    seen = []
    make_self_aware(
        detector(),
        box_benchmark(unknown_validation=odd, validation=scenes("validation", 12, seed=8)),
        n_resamples=0,
        on_progress=lambda name, *_: seen.append(name),
    )
    assert "unknown validation" in seen
    assert "painted over" not in seen


def test_a_benchmark_without_validation_images_is_refused():
    with pytest.raises(InvalidDataError, match='role = "validation"'):
        make_self_aware(detector(), box_benchmark(validation=None))


def test_other_options_have_other_folders(folder, run, tmp_path):
    options = {"n_resamples": 0, "out": tmp_path}
    one = make_self_aware(detector(), folder / "cells.toml", **options)
    settings = SelfAwareSettings(calibrator="none")
    two = make_self_aware(detector(), folder / "cells.toml", rules=settings, name="Mine", **options)
    assert one.folder != two.folder
    assert one.folder.name == run.folder.name
    assert two.report.headline().startswith("Mine on mine/cells")


def test_a_baseline_that_cannot_be_fitted_costs_nothing(folder, monkeypatch):
    from incognita.evaluation import self_aware_benchmark as module

    fit = SelfAware.fit

    def only_ours(*arguments):
        if arguments[-1].calibrator == "none":
            raise InvalidDataError("No such threshold.")
        return fit(*arguments)

    monkeypatch.setattr(module.SelfAware, "fit", only_ours)
    run = make_self_aware(detector(), folder / "cells.toml", n_resamples=0)
    assert run.report.before == ()
    assert "There is no column before: No such threshold." in run.report.notes


def test_names_of_the_protocol_are_refused(folder, tmp_path):
    text = (folder / "cells.toml").read_text()
    for old, new, message in (
        ('name = "odd"', 'name = "pooled"', "name of the protocol"),
        ('role = "far"', 'role = "mixed"', "no use for mixed sets"),
    ):
        (tmp_path / "cells.toml").write_text(text.replace(old, new, 1))
        with pytest.raises(InvalidDataError, match=message):
            load_benchmark(tmp_path / "cells.toml")


def test_sets_that_would_be_one_file_are_refused(tmp_path):
    given = box_benchmark()
    shifted = {"a b": scenes("s", 4, seed=9), "a-b": scenes("t", 4, seed=10)}
    with pytest.raises(InvalidDataError, match="would be saved to one file"):
        make_self_aware(
            detector(), replace(given, shifted=shifted), save_outputs=tmp_path / "outputs"
        )
