"""`incognita doctor`: what is installed, broken or missing, and what that means."""

import json
import os
import re
import subprocess
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest

from incognita.cli.doctor import CORE, EXTRAS

PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
DEVELOPMENT = {"test", "bench", "docs"}


def doctor(*arguments, cwd, broken=None, **environment):
    """Run the command; `broken` are sources of libraries that hide the installed ones."""
    folder = cwd / "broken"
    for name, source in (broken or {}).items():
        (folder / name).mkdir(parents=True)
        (folder / name / "__init__.py").write_text(source)
    path = os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])
    return subprocess.run(
        [sys.executable, "-m", "incognita.cli", "doctor", *map(str, arguments)],
        cwd=cwd, capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": path, **environment},
    )  # fmt: skip


def names_of(requirements: list[str]) -> set[str]:
    return {re.split(r"[><=\[]", requirement)[0] for requirement in requirements}


def test_the_tables_are_those_of_the_project():
    assert set(CORE.values()) == names_of(PROJECT["dependencies"])
    extras = {k: v for k, v in PROJECT["optional-dependencies"].items() if k not in DEVELOPMENT}
    assert set(EXTRAS) == set(extras)
    for name, requirements in extras.items():
        own = names_of(requirements) - {"incognita"}
        assert set(EXTRAS[name].libraries.values()) == own, name


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sound")
    done = doctor("--json", cwd=folder, INCOGNITA_DATA=str(folder))
    return done, json.loads(done.stdout)


def test_what_is_installed_has_its_version(sound):
    done, found = sound
    # a library may be installed here without what it needs
    rows = [row for section in found.values() if isinstance(section, list) for row in section]
    assert found["works"] is all(row["status"] != "broken" for row in rows)
    assert done.returncode == (0 if found["works"] else 1)
    assert {row["status"] for row in found["core"]} == {"ok"}
    core = {row["name"]: row for row in found["core"]}
    for distribution in CORE.values():
        assert core[distribution]["sentence"] == version(distribution)
    assert core["kernels"]["status"] == "ok"
    torch = next(row for row in found["extras"] if row["name"] == "torch")
    assert f"torch {version('torch')}" in torch["sentence"]


def test_the_machine_and_the_folders_are_shown(sound):
    _, found = sound
    machine = {row["name"]: row["sentence"] for row in found["machine"]}
    assert f"of {os.cpu_count()} usable" in machine["cores"]
    assert "GB" in machine["memory"]
    assert {row["name"] for row in found["folders"]} == {
        "data", "store", "temporary", "kernel cache", "cache",
    }  # fmt: skip


def test_what_is_broken_is_shown_without_a_traceback(tmp_path):
    broken = {
        "polars": "raise ImportError('its library is of\\nanother machine')",
        "timm": "raise SystemExit(3)",
    }
    (tmp_path / "file").write_text("")
    options = ("--store", "file/outputs")
    done = doctor(*options, cwd=tmp_path, broken=broken, INCOGNITA_DATA="/nowhere")
    assert done.returncode == 1
    assert "Traceback" not in done.stdout + done.stderr
    lines = done.stdout.splitlines()
    polars = next(line for line in lines if " polars " in line)
    assert polars.split(maxsplit=2) == [
        "broken", "polars", "ImportError: its library is of another machine",
    ]  # fmt: skip
    assert any(line.split()[:2] == ["broken", "timm"] for line in lines)
    assert "INCOGNITA_DATA=/nowhere is not a folder that can be read" in done.stdout
    assert lines[-1].startswith("Broken: polars, ")
    assert {"timm", "data", "store"} <= set(re.split(r"[ ,.]+", lines[-1]))


def test_a_missing_extra_says_what_cannot_be_done_and_how_to_get_it(tmp_path):
    """A module that cannot be found is missing; the core works without it."""
    code = """
import sys
from importlib.machinery import PathFinder
class Light(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        absent = name.partition(".")[0] in {"torch", "torchvision", "sklearn", "scipy", "timm"}
        return None if absent else PathFinder.find_spec(name, path, target)
sys.meta_path[sys.meta_path.index(PathFinder)] = Light
sys.argv = ["incognita", "doctor"]
from incognita.cli import main
main()
"""
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    lines = {line.split()[1]: line for line in done.stdout.splitlines() if line.startswith("  ")}
    assert lines["torch"].split()[0] == "missing"
    assert "run, check, evaluate and Guard are missing" in lines["torch"]
    assert lines["torch"].endswith("pip install 'incognita[torch]'")
    assert "pip install 'incognita[timm]'" in lines["timm"]
    assert lines["GPU"].split()[0] == "note"
