"""A real Faster R-CNN on real VOC and COCO images, end to end, against slow definitions."""

import json
import math
import runpy
from pathlib import Path
from typing import NamedTuple

import polars
import pytest
from sklearn.metrics import roc_auc_score
from tests.oracles import box_protocol
from tests.oracles.box_protocol import SPLITS, Part, ScoredBox
from tests.oracles.scenes import Truth
from typer.testing import CliRunner

import incognita
from incognita.cli._terminal import IN_PART
from incognita.cli.app import app
from incognita.results.evaluation import Evaluation
from incognita.results.store import ResultStore

STUDY = Path(__file__).parents[1] / "studies" / "voc_coco"
METHODS = "msp, energy, knn(k=10), react, mds, lard"
RENAMED = {
    "airplane": "aeroplane",
    "motorcycle": "motorbike",
    "couch": "sofa",
    "tv": "tvmonitor",
    "dining table": "diningtable",
    "potted plant": "pottedplant",
}
UNKNOWN_SETS = {"coco-near": "near/coco-near", "coco-far": "far/coco-far"}
FILES = {
    "test": "voc/test.json",
    "coco-near": "splits/near.json",
    "coco-far": "splits/far.json",
    "voc-coco": "coco/all.json",
}

pytestmark = pytest.mark.data


class Run(NamedTuple):
    """An evaluation and what it left on disk."""

    found: Evaluation
    images: Path
    results: Path

    def part(self, title: str, name: str) -> Part:
        """Give a set with the scores of a method, and the truth as the annotation file has it."""
        path = ResultStore(self.results).path(self.found.get(title).identity)
        frame = polars.read_parquet(path.with_suffix(".parquet"))
        rows = frame.filter(polars.col("set") == name).to_dicts()
        looked_at = self.looked_at(name)
        place = {image: k for k, image in enumerate(looked_at)}
        boxes = [
            ScoredBox(
                place[row["image_id"]],
                (row["x1"], row["y1"], row["x2"], row["y2"]),
                row["confidence"],
                row["predicted"],
                row["unknown_score"],
            )
            for row in rows
        ]
        known = self.found.metadata["classes"]
        return Part(len(looked_at), boxes, self._truths(name, place, known), known)

    def looked_at(self, name: str) -> list[str]:
        """Give the file names of the images of a set, in order."""
        benchmark = incognita.load_benchmark(STUDY / "benchmark.toml", data=self.images, limit=15)
        sets = {"test": benchmark.test} | dict(benchmark.mixed)
        for each in benchmark.unknown.values():
            sets |= each
        return list(sets[name].image_ids)

    def _truths(self, name: str, place: dict[str, int], known: list[str]) -> list[Truth]:
        content = json.loads((self.images / FILES[name]).read_text())
        names = {c["id"]: RENAMED.get(c["name"], c["name"]) for c in content["categories"]}
        file_of = {image["id"]: Path(image["file_name"]).name for image in content["images"]}
        truths = []
        for each in content["annotations"]:
            if file_of[each["image_id"]] not in place:
                continue
            x, y, w, h = map(float, each["bbox"])
            label = names[each["category_id"]]
            truths.append(
                Truth(
                    place[file_of[each["image_id"]]],
                    (x, y, x + w, y + h),
                    label,
                    crowd=bool(each.get("iscrowd")),
                    difficult=bool(each.get("difficult")),
                    unknown=label not in known,
                    size=(w, h),
                )
            )
        return truths


@pytest.fixture(scope="module")
def run(data_dir, tmp_path_factory) -> Run:
    folder = tmp_path_factory.mktemp("voc-coco")
    images = folder / "images"
    runpy.run_path(str(STUDY / "prepare.py"))["prepare"](data_dir / "detection", images)
    done = CliRunner().invoke(
        app,
        [
            "build", "splits", "--annotations", str(images / "coco" / "all.json"),
            "--rules", "fmiyc-voc-coco", "--images", str(images / "coco" / "images"),
            "--out", str(images / "splits"),
        ],
    )  # fmt: skip
    assert done.exit_code == IN_PART, done.output  # 43 images are not the paper's 2,112
    found = incognita.evaluate(
        f"{data_dir / 'weights' / 'faster_rcnn_voc.py'}:build",
        STUDY / "benchmark.toml",
        METHODS,
        data=images,
        limit=15,
        n_resamples=20,
        out=folder / "results",
    )
    return Run(found, images, folder / "results")


def test_every_method_runs_in_one_pass_of_a_detector_that_works(run) -> None:
    assert not run.found.failed
    assert run.found.is_complete
    assert run.found.metadata["passes"]["forward"] == 90  # six sets of fifteen images
    assert run.found.known_quality()["AP50"] > 0.6


def test_a_decision_is_made_of_every_image_of_the_subset(run) -> None:
    manifest = json.loads((run.images / "splits" / "manifest.json").read_text())
    decided = json.dumps(manifest)
    content = json.loads((run.images / "coco" / "all.json").read_text())
    assert len(content["images"]) == 232
    assert all(str(image["id"]) in decided for image in content["images"])


@pytest.mark.parametrize("title", METHODS.split(", "))
def test_numbers_on_unknown_images_equal_the_definitions(run, title) -> None:
    record = run.found.get(title)
    known = [box.unknown_score for box in run.part(title, "test").boxes]
    for name, split in UNKNOWN_SETS.items():
        part = run.part(title, name)
        unknown = [box.unknown_score for box in part.boxes]
        for metric, value in box_protocol.ranking_numbers(known, unknown).items():
            assert record.get(metric, split).value == pytest.approx(value, abs=1e-12)
        labels = [0] * len(known) + [1] * len(unknown)
        by_sklearn = roc_auc_score(labels, known + unknown)
        assert record.get("auroc", split).value == pytest.approx(by_sklearn, abs=1e-12)
        scene = box_protocol.scene_of_paper(part, record.thresholds["tau"]["value"])
        assert_same(record, split, box_protocol.numbers_of_paper(scene))


@pytest.mark.parametrize("title", ["energy", "lard"])
@pytest.mark.parametrize("split", SPLITS)
def test_known_beside_unknown_objects_are_measured_split_by_split(run, title, split) -> None:
    record = run.found.get(title)
    scene = box_protocol.scene_of_paper(
        run.part(title, "voc-coco"), record.thresholds["tau"]["value"]
    )
    part = box_protocol.split_of(scene, split)
    numbers = box_protocol.numbers_of_paper(part)
    assert_same(record, f"voc-coco/{split}", numbers)


def assert_same(record, split: str, numbers: dict[str, float]) -> None:
    for metric, value in numbers.items():
        found = record.get(metric, split, "paper").value
        if math.isnan(value):
            assert math.isnan(found), (metric, split)
        else:
            assert found == pytest.approx(value, abs=1e-12), (metric, split)
