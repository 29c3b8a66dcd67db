"""`incognita run` with a detector, images and annotations of one's own, in a folder."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tests.evaluation.box_worlds import GridScenes, scenes
from tests.extraction import tiny_detector
from tests.extraction.tiny_detector import NAMES
from typer.testing import CliRunner

from incognita.cli.app import app
from incognita.decisions import SCORE_POLICIES
from incognita.errors import InvalidDataError

SETS = {
    "train": ("train", scenes("train", 12, seed=1)),
    "validation": ("validation", scenes("validation", 10, seed=2)),
    "test": ("test", scenes("test", 10, seed=3)),
    "odd": ("near", scenes("odd", 8, seed=4, known=(), unknown=("orange", "lime"))),
    "both": ("mixed", scenes("both", 6, seed=5, unknown=("orange",))),
}
HEAD = f"""
name = "mine/cells"
version = 1
title = "red, green and blue cells"
task = "detection"
classes = {list(NAMES)}
"""
SET = """
[[set]]
name = "{name}"
role = "{role}"
kind = "coco"
annotations = "{name}.json"
images = "{name}"
"""
CLASSIFIER = """
from torch import nn

def build_classifier():
    return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, 3))
"""
RUN = ["run", "cells.toml", "--model", "grid.py:build", "--methods", "msp, knn(k=3), lard"]
QUICK = ["--resamples", "0"]


def write_coco(folder: Path, name: str, dataset: GridScenes) -> None:
    """Write pictures and annotations as anybody would."""
    truth = dataset.truth()
    (folder / name).mkdir()
    for k, image_id in enumerate(dataset.image_ids):
        Image.fromarray(dataset.load(k)).save(folder / name / f"{image_id}.png")
    files = [{"id": k, "file_name": f"{i}.png"} for k, i in enumerate(dataset.image_ids)]
    categories = [{"id": k, "name": each} for k, each in enumerate(truth.classes.names)]
    annotations = [
        {
            "id": k + 1,
            "image_id": int(truth.image_index[k]),
            "category_id": int(truth.class_ids[k]),
            "bbox": [*truth.xyxy[k, :2].tolist(), *truth.sizes[k].tolist()],
            "area": float(truth.areas[k]),
            "iscrowd": int(truth.is_crowd[k]),
        }
        for k in range(len(truth))
    ]
    document = {"images": files, "categories": categories, "annotations": annotations}
    (folder / f"{name}.json").write_text(json.dumps(document))


@pytest.fixture
def own(tmp_path, monkeypatch) -> Path:
    """A benchmark in one TOML file, a detector in one Python file; the working folder is theirs."""
    text = HEAD
    for name, (role, dataset) in SETS.items():
        write_coco(tmp_path, name, dataset)
        text += SET.format(name=name, role=role)
    (tmp_path / "cells.toml").write_text(text)
    source = Path(tiny_detector.__file__).read_text()
    (tmp_path / "grid.py").write_text(f"{source}\n\ndef build():\n    return GridDetector()\n")
    (tmp_path / "net.py").write_text(CLASSIFIER)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    # it is for a process that runs one command and ends
    return tmp_path


def invoke(*arguments: object):
    return CliRunner().invoke(app, [str(each) for each in arguments])


def test_a_broken_image_ends_in_exit_code_4_and_the_tables_are_there(own):
    (own / "odd" / "odd003.png").write_bytes(b"\x89PNG broken")
    command = [sys.executable, "-m", "incognita.cli", *RUN, "--resamples", "5"]
    done = subprocess.run(command, cwd=own, capture_output=True, text=True, check=False)
    assert done.returncode == 4, done.stderr
    assert "Traceback" not in done.stderr
    assert "failed image: odd003.png of odd" in done.stdout
    assert "mine/cells v1: grid, AP " in done.stdout
    assert "boxes with confidence ≥ t* = " in done.stdout
    assert "45 images through the network, 45 forward and 0 backward passes" in " ".join(
        done.stdout.split()
    )
    for words in ("undetected ↓", "AUROC↑", "unknown-only", "latent-space", "Pearson"):
        assert words in done.stdout
    assert "…" not in done.stdout
    assert "odd: 8 images" in done.stderr


def test_a_second_run_has_nothing_to_do(own):
    first = invoke(*RUN, *QUICK)
    assert first.exit_code == 0, first.output
    assert "nothing left to run through the network" not in first.output
    again = invoke(*RUN, *QUICK)
    assert again.exit_code == 0
    assert "nothing left to run through the network" in again.stdout
    tables = [each.stdout.partition("\n \n")[2] for each in (first, again)]
    assert tables[0] == tables[1]
    kept = sorted(path.suffix for path in (own / "runs" / "results").rglob("*.*"))
    per_method = [".json"] * 3 + [".npz", ".objects"] + [".parquet"] * 3
    assert kept == [*per_method, ".png", ".png", ".run"]


def test_json_holds_the_rules_the_thresholds_and_every_number(own):
    options = ["--score-floor", "0.35", "--max-per-image", "3"]
    options += ["--confidence-threshold", "0.4", "--unknown-threshold", "gaussian"]
    done = invoke(*RUN, *QUICK, *options, "--json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    record = found["methods"]["msp"]
    assert record["identity"]["rules"] == {
        "score_threshold": 0.35, "max_per_image": 3, "nms_iou": None
    }  # fmt: skip
    assert record["thresholds"]["t*"]["policy"] == "fixed(value=0.4)"
    assert record["thresholds"]["tau"]["policy"] == "gaussian(n_std=1.645)"
    assert record["thresholds"]["tau"]["value"] == record["thresholds"]["tau of fmiyc"]["value"]
    splits = {each["split"] for each in record["results"]}
    assert {"known", "near", "near/odd", "both/all", "both/known-only"} <= splits
    values = [each["value"] for each in record["results"] if each["metric"] == "auroc"]
    assert len(values) == 2
    assert all(0 <= value <= 1 for value in values)
    assert found["families"]
    assert np.shape(found["correlations"]["values"]) == (6, 6)


def change(own: Path, name: str, edit) -> None:
    """Change the annotation file of a set."""
    document = json.loads((own / f"{name}.json").read_text())
    edit(document)
    (own / f"{name}.json").write_text(json.dumps(document))


def test_pictures_of_another_size_than_annotated_are_broken_images(own):
    change(own, "odd", lambda d: [each.update(width=480, height=480) for each in d["images"][:2]])
    done = invoke(*RUN, *QUICK, "--json")
    assert done.exit_code == 4, done.output
    sizes = [SETS["odd"][1].load(k).shape[1::-1] for k in range(2)]
    found = [(each["image"], each["reason"]) for each in json.loads(done.stdout)["broken"]]
    assert [image for image, _ in found] == ["odd000.png", "odd001.png"]
    for (_, reason), (width, height) in zip(found, sizes, strict=True):
        assert f"the annotation file says 480 x 480, the image has {width} x {height}" in reason
    # a corrected file is another one, for the store as well
    correct = zip(range(2), sizes, strict=True)
    change(own, "odd", lambda d: [
        d["images"][k].update(width=width, height=height) for k, (width, height) in correct
    ])  # fmt: skip
    assert invoke(*RUN, *QUICK).exit_code == 0


def test_a_missing_image_is_a_note_and_exit_code_0(own):
    (own / "test" / "test001.png").unlink()
    (own / "test" / "test007.png").unlink()
    done = invoke(*RUN, *QUICK)
    assert done.exit_code == 0, done.output
    said = "test: 8 of 10 images found; numbers are partial; missing: test001.png, test007.png"
    assert said in " ".join(done.stdout.split())


@pytest.mark.parametrize("option", ["--confidence-threshold", "--unknown-threshold"])
def test_an_empty_policy_is_refused(own, option):
    done = invoke(*RUN, *QUICK, option, "")
    assert isinstance(done.exception, InvalidDataError)
    assert "got ''" in str(done.exception)


def test_the_help_names_every_policy_for_tau():
    text = CliRunner().invoke(app, ["run", "--help"], env={"COLUMNS": "200"}).output
    for name in SCORE_POLICIES.names():
        assert name in text or name == "fixed"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ["cells.toml", "--model", "net.py:build_classifier"],
            "Expected a detector for mine/cells, got the classifier",
        ),
        (["cells.toml"], "mine/cells has no default model"),
        (
            ["cells.toml", "--model", "grid.py:build", "--model", "grid.py:build"],
            "Expected one detector for mine/cells, got 2",
        ),
        (["digits/standard", "--score-floor", "0.5"], "needs a detection benchmark"),
        (["digits/standard", "--unknown-threshold", "0.5"], "needs a detection benchmark"),
        (["cells.toml", "--model", "grid.py:build", "--search"], "A search needs unknown"),
        (
            ["cells.toml", "--model", "grid.py:build", "--confidence-threshold", "quantile"],
            "Expected a policy for t*",
        ),
        (["cells.toml", "--model", "grid.py:build", "--precision", "bfloat16"], "float32"),
        (
            ["cells.toml", "--model", "grid.py:build", "--confidence-threshold", "0.999"],
            "No box of grid reaches the confidence threshold t*",
        ),
    ],
)
def test_wrong_usage_is_one_sentence(own, arguments, words):
    done = invoke("run", *arguments, "--methods", "msp", *QUICK)
    assert isinstance(done.exception, InvalidDataError)
    assert words in str(done.exception)


def self_aware_file(own: Path) -> Path:
    """Write a benchmark of self-awareness on the images of the others."""
    text = HEAD + 'protocol = "self-aware"\n'
    for name, role in (("validation", "validation"), ("test", "test"), ("odd", "far")):
        text += SET.format(name=name, role=role)
    shifted = SET.format(name="test", role="shifted").replace('"test"', '"shifted"', 1)
    text += shifted + 'corrupt = { kinds = "saod", severity = 1 }\nrejection = "free"\n'
    (own / "aware.toml").write_text(text)
    return own / "aware.toml"


def test_a_detector_is_made_self_aware(own):
    self_aware_file(own)
    options = ["--model", "grid.py:build", "--resamples", "10", "--score-threshold", "0.05"]
    done = invoke("run", "aware.toml", *options)
    assert done.exit_code == 0, done.output
    for words in ("DAQ ↑", "before", "validation  ", "shifted/shifted", "unknown/odd"):
        assert words in done.stdout
    (folder,) = (own / "runs" / "self-aware").iterdir()
    assert folder.name.startswith("mine-cells-grid-")
    assert f"Rules, report, study and pictures: {folder}" in done.stdout
    assert sorted(path.name for path in folder.iterdir()) == [
        "pictures", "report.json", "rules.json", "rules.safetensors", "study"
    ]  # fmt: skip
    assert (folder / "study" / "ablation.csv").exists()
    assert (folder / "pictures" / "calibrated.png").exists()
    again = invoke("run", "aware.toml", *options, "--json")
    assert json.loads(again.stdout)["results"] == json.loads(
        (folder / "report.json").read_text()
    )["results"]  # fmt: skip


def test_a_broken_image_of_a_self_aware_run_is_said(own):
    self_aware_file(own)
    (own / "odd" / "odd003.png").write_bytes(b"\x89PNG broken")
    options = ["--model", "grid.py:build", "--resamples", "0", "--score-threshold", "0.05"]
    done = invoke("run", "aware.toml", *options)
    assert done.exit_code == 4, done.output
    assert "1 image could not be used and is left out, such as odd003.png of odd" in " ".join(
        done.stdout.split()
    )


def test_methods_have_no_part_in_self_awareness(own):
    self_aware_file(own)
    done = invoke("run", "aware.toml", "--model", "grid.py:build", "--methods", "msp")
    assert isinstance(done.exception, InvalidDataError)
    assert "ranks no methods" in str(done.exception)
