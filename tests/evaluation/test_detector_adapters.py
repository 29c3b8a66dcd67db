"""A detector of one's own in an evaluation: its rules, its features, its key, its file."""

import subprocess
import sys
from dataclasses import dataclass, replace

import pytest
import torch
from tests.evaluation.box_worlds import CellDetector, box_benchmark, capabilities, scenes
from tests.evaluation.worlds import TinyNet, tiny_benchmark

import incognita
from incognita.containers.needs import Needs
from incognita.errors import InvalidDataError
from incognita.evaluation.evaluate import BoxOptions
from incognita.extraction.classifier_pass import identity_of_classifier
from incognita.extraction.detector_pass import identity_of_detector
from incognita.models.classifier import wrap_classifier
from incognita.models.detector import select_classes


def small_benchmark():
    return box_benchmark(
        train=scenes("train", 10, seed=1),
        validation=scenes("validation", 8, seed=2),
        test=scenes("test", 8, seed=3),
        unknown={"near": {"a": scenes("a", 6, seed=4, known=(), unknown=("orange",))}},
        mixed={},
    )


def run(detector, methods="msp", **options):
    return incognita.evaluate(detector, small_benchmark(), methods, n_resamples=0, **options)


@dataclass(eq=False)
class StubbornDetector(CellDetector):
    def with_filter(self, **rules):
        return self


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"score_threshold": 0.9}, "grid.with_filter ignored score_threshold=0.9"),
        ({"max_per_image": 1}, "grid.with_filter ignored max_per_image=1"),
    ],
)
def test_a_detector_that_ignores_the_rules_asked_for_is_refused(asked, words):
    with pytest.raises(InvalidDataError, match=words):
        run(StubbornDetector(), boxes=BoxOptions(**asked))
    own = BoxOptions(score_threshold=StubbornDetector().rules.score_threshold)
    assert run(StubbornDetector(), boxes=own).failed == {}


@dataclass(eq=False)
class BareDetector(CellDetector):
    """Boxes with logits and nothing behind them."""

    head_reason: str | None = "It keeps no features."
    has_features: bool = False
    heads = ()

    def _found(self, features, logits, size):
        return super()._found(features, logits, size)._replace(features=None)


def test_methods_on_features_are_left_out_for_a_detector_that_says_it_has_none():
    found = run(BareDetector(), "all")
    assert found.failed == {}
    assert found.skipped["knn"] == "needs a linear head (It keeps no features.)"
    assert {"msp", "energy", "lard"} <= set(found.methods)
    with pytest.raises(InvalidDataError, match="knn"):
        run(BareDetector(), "knn")


def test_a_choice_of_classes_has_features_where_its_detector_has_them():
    benchmark = small_benchmark()
    for detector, has in ((BareDetector(), False), (CellDetector(), True)):
        chosen = select_classes(detector, ("blue", "red"), (2, 0))
        assert bool(capabilities(chosen, benchmark).available & Needs.FEATURES) is has


def test_all_that_changes_outputs_of_a_detector_is_in_the_key_of_its_results(tmp_path):
    detector = CellDetector()
    first = run(detector, "safe", out=tmp_path)
    identity = first.get("safe").identity
    assert identity | identity_of_detector(detector) == identity
    other = replace(detector, pixel_std=torch.full((3,), 0.01))
    second = run(other, "safe", out=tmp_path)
    assert second.metadata["passes"]["images"] > 0  # not the result of the other step
    assert run(detector, "safe", out=tmp_path).metadata["passes"]["images"] == 0


def test_all_that_changes_outputs_of_a_classifier_is_in_the_key_of_its_results(tmp_path):
    benchmark, module = tiny_benchmark(), TinyNet()
    one = wrap_classifier(module, preprocess="none", class_names=tuple(benchmark.classes))
    other = replace(one, pixel_std=one.pixel_std / 100)
    found = [
        incognita.evaluate(each, benchmark, "odin", n_resamples=0, out=tmp_path)
        for each in (one, other)
    ]
    assert found[0].get("odin").identity["networks"] == [identity_of_classifier(one)]
    assert found[1].metadata["passes"]["images"] > 0


MODEL = """
from beside import BESIDE
from tests.evaluation.box_worlds import capabilities, CellDetector

class Mine(CellDetector):
    pass

def build():
    return Mine(name=BESIDE)
"""
SCRIPT = """
import sys
from incognita.extraction.extract import extract
from incognita.extraction.settings import Settings
from incognita.models.detector import select_classes
from incognita.models.load import load_model
from tests.evaluation.box_worlds import capabilities, scenes

if __name__ == "__main__":
    detector = load_model(sys.argv[1] + ":build").with_filter(score_threshold=0.4)
    for each in (detector, select_classes(detector, ("blue", "red"), (2, 0))):
        boxes = [
            extract(each, scenes("s", 70, seed=1), settings=Settings(workers=n)).outputs
            for n in (1, 2)
        ]
        assert (boxes[0].detections.logits == boxes[1].detections.logits).all()
        print(len(boxes[0]) > 0)
"""


def test_workers_find_a_detector_whose_class_stands_in_the_model_file(tmp_path):
    (tmp_path / "mine.py").write_text(MODEL)
    (tmp_path / "beside.py").write_text("BESIDE = 'mine'\n")
    (tmp_path / "script").mkdir()
    script = tmp_path / "script" / "go.py"
    script.write_text(SCRIPT)
    command = [sys.executable, str(script), str(tmp_path / "mine.py")]
    env = {"PYTHONPATH": ":".join(sys.path), "PATH": "", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=env, check=False)
    assert done.stdout.split() == ["True", "True"], done.stderr
