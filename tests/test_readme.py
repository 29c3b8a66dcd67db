"""What the README shows is run: its Python, its command, its class map."""

import re
import shutil
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import incognita
from incognita.benchmarks.class_map import load_class_map
from incognita.cli.app import app
from incognita.metrics.catalog import METRICS
from incognita.running.certify import certify

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


def test_the_class_map_of_the_readme_is_valid(tmp_path):
    path = tmp_path / "map.toml"
    path.write_text(blocks("toml")[1])
    assert load_class_map(path).known == ("car", "bus", "person")


def test_every_metric_of_the_conventions_page_is_in_the_catalog():
    page = (ROOT / "CONVENTIONS.md").read_text()
    section = page.split("## Open-set metrics")[1].split("## LRP")[0]
    named = set(re.findall(r"^\| `([a-z_]+)`", section, flags=re.MULTILINE))
    assert named
    assert named <= set(METRICS)


def test_the_public_names_are_those_the_readme_uses():
    used = set(re.findall(r"incognita\.([A-Za-z]+)\(", README))
    assert used <= set(incognita.__all__)
    assert incognita.certify is certify
