"""What the README shows is run: its Python, its command, its class map."""

import json
import re
import shutil
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

import incognita
from incognita.benchmarks.load import load_benchmark
from incognita.benchmarks.splits.build import build_from_annotations
from incognita.benchmarks.splits.rules import load_rules
from incognita.cli.app import app
from incognita.evaluation.certify import certify
from incognita.formats.class_roles import load_class_map
from incognita.metrics.catalog import METRICS

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)


@pytest.fixture
def street(tmp_path, monkeypatch) -> Path:
    """A folder with the files the README speaks of."""
    example = Path(str(files("incognita.benchmarks").joinpath("examples", "street")))
    shutil.copy(example / "truth.json", tmp_path / "gt.json")
    shutil.copy(example / "detections.json", tmp_path / "dets.json")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_python_of_the_readme_runs(street):
    rng = np.random.default_rng(0)
    is_unknown = rng.random(50) < 0.5
    names = {"unknown_score": rng.random(50) + is_unknown, "is_unknown": is_unknown}
    for code in blocks("python"):
        exec(compile(code, "README.md", "exec"), names)
    assert names["certificate"].get("unknown_recall").support["objects"] > 0
    assert 0.5 < names["numbers"].auroc <= 1
    assert set(names["report"].ranking()) == {"msp", "energy", "knn", "react+knn"}
    assert set(names["seen"].ranking()) == {"msp", "energy", "mds"}
    assert len(names["found"].classes.names) == 3
    assert names["own"].get("far-from-mean").get("auroc", "far").value > 0.5


def test_the_command_of_the_readme_runs_and_prints_its_rows(street):
    commands = [line for block in blocks("bash") for line in block.splitlines()]
    certify_line = next(line for line in commands if line.startswith("incognita certify"))
    outcome = CliRunner().invoke(app, certify_line.split()[1:])
    assert outcome.exit_code == 0
    shown = " ".join(outcome.output.split())
    # the excerpt of the README is of this very run
    assert "29.1 [22.2, 35.4] - 28.6 [18.6, 38.0]" in shown
    assert "A-OSE ↓ paper 37 [24, 52] 0 [0, 0] 12 [6, 19]" in shown
    assert "75 [54, 102] 0 [0, 0] 22 [12, 32]" in shown


def test_every_option_of_the_readme_exists():
    described = set(re.findall(r"`(--[a-z-]+)", README))
    helps = [
        CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "200"}).output
        for command in ("certify", "run")
    ]
    assert described
    assert {option for option in described if not any(option in text for text in helps)} == set()


def test_the_benchmark_of_the_readme_is_valid(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(blocks("toml")[0])
    plan = CliRunner().invoke(app, ["data", "plan", str(path)])
    assert plan.exit_code == 0
    assert "signs/test" in plan.output


def test_the_detection_benchmark_of_the_readme_runs_as_far_as_its_images(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(blocks("toml")[1])
    names = ["car", "pedestrian", "horse"]
    categories = [{"id": k, "name": name} for k, name in enumerate(names, start=1)]
    for name, category in {"street": 2, "animals": 3, "crossings": 1}.items():
        (tmp_path / name).mkdir()
        images = [{"id": k, "file_name": f"{k}.png"} for k in range(8)]
        boxes = [
            {"id": k + 1, "image_id": k, "category_id": category, "bbox": [1, 1, 5, 5]}
            for k in range(8)
        ]
        for each in images:
            Image.new("RGB", (9, 9)).save(tmp_path / name / each["file_name"])
        document = {"images": images, "annotations": boxes, "categories": categories}
        (tmp_path / f"{name}.json").write_text(json.dumps(document))
    benchmark = load_benchmark(path, cache_dir=tmp_path)
    assert len(benchmark.validation.image_ids) + len(benchmark.test.image_ids) == 8
    assert (benchmark.test.truth().class_ids == 1).all()  # a pedestrian is a person
    assert set(benchmark.unknown["far"]) == {"animals"}
    assert set(benchmark.mixed) == {"crossings"}


def test_the_rules_of_the_readme_deal_out_images(tmp_path):
    path = tmp_path / "my_rules.toml"
    path.write_text(blocks("toml")[2])
    rules = load_rules(path).rules
    named = [*rules.known, *rules.remove, *rules.near, *rules.far, "kite"]
    document = {
        "images": [{"id": k, "file_name": f"{k}.jpg"} for k in range(len(named))],
        "categories": [{"id": k, "name": name} for k, name in enumerate(named)],
        "annotations": [
            {"id": k + 1, "image_id": k, "category_id": k, "bbox": [1, 1, 5, 5]}
            for k in range(len(named))
        ],
    }
    (tmp_path / "my_annotations.json").write_text(json.dumps(document))
    splits = build_from_annotations(rules, tmp_path / "my_annotations.json").splits
    assert splits.counts == {"near": 2, "far": 2, "farther": 1}
    assert [named[each.image_id] for each in splits.known_images()] == ["car", "person"]


def test_the_class_map_of_the_readme_is_valid(tmp_path):
    path = tmp_path / "map.toml"
    path.write_text(blocks("toml")[3])
    assert load_class_map(path).known == ("car", "bus", "person")


def test_every_metric_of_the_conventions_page_is_in_the_catalog():
    page = (ROOT / "CONVENTIONS.md").read_text()
    section = page.split("## Open-set metrics")[1].split("## Boxes of")[0]
    named = set(re.findall(r"^\| `([a-z_]+)`", section, flags=re.MULTILINE))
    assert named
    assert named <= set(METRICS)


def test_the_public_names_are_those_the_readme_uses():
    used = set(re.findall(r"incognita\.([A-Za-z]+)\(", README))
    assert used <= set(incognita.__all__)
    assert incognita.certify is certify
