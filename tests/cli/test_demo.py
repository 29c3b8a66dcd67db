"""`incognita demo`: one command, no file needed, reports and a leaderboard at the end."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import incognita
from incognita.cli.app import app
from incognita.cli.demo import certify_street

STREET = Path(incognita.__file__).parent / "benchmarks" / "examples" / "street"


@pytest.fixture
def runner(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> CliRunner:
    monkeypatch.chdir(tmp_path)
    return CliRunner()


def test_the_demo_runs_in_a_real_process_and_says_where_its_certificate_is(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "incognita.cli", "demo", "--out", "a folder/that is new",
         "--limit", "120"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0
    assert "Traceback" not in done.stderr
    path = tmp_path / "a folder" / "that is new" / "certificate.json"
    assert f"\nThe certificate is in {path.resolve()}\n" in done.stdout
    for words in ("closed set", "open set", "A-OSE ↓", "Best threshold of each class"):
        assert words in done.stdout
    document = json.loads(path.read_text())
    assert document["inputs"]["resamples"] == 200
    assert "terra/standard v1: terra-classifier, accuracy" in done.stdout
    for method in ("knn", "odin", "mds-ensemble", "opengan"):
        assert f"  {method}  " in done.stdout
    results = list((path.parent / "results").rglob("*.json"))
    assert len(results) >= 40
    assert len(results) == len(list((path.parent / "results").rglob("*.parquet")))
    check_pages(path.parent.resolve(), done.stdout)


def check_pages(home: Path, printed: str) -> None:
    """The pages are where the demo says, and every link between them leads to a file."""
    last = printed.splitlines()[-3:]
    assert last[:2] == [
        f"Reports: {home / 'report.html'}",
        f"Leaderboard: {home / 'leaderboard' / 'index.html'}",
    ]
    assert "incognita serve 'a folder/that is new', http://127.0.0.1:8000/report.html" in last[2]
    pages = [home / "report.html", home / "leaderboard" / "index.html"]
    links = [page.parent / href for page in pages for href in links_of(page)]
    assert {path.name for path in links if path.parent.name == "reports"} == {
        "certificate.html", "classifier.html", "detector.html", "self-aware.html",
    }  # fmt: skip
    assert [path for path in links if not path.is_file()] == []
    answers = re.findall(r"<td>(.+?)</td>", (home / "report.html").read_text())
    assert len(answers) == 5
    assert re.search(r"AP50 \d\d\.\d", answers[0])


def links_of(page: Path) -> set[str]:
    return set(re.findall(r'href="([^"#:]+\.html)', page.read_text()))


def test_the_demo_is_certify_on_the_files_that_ship_with_the_package(runner):
    certify_street(Path("demo/certificate.json"))
    files = []
    for name in ("truth.json", "detections.json", "classes.toml"):
        files += [f"--{name.split('.')[0]}", str(STREET / name)]
    same = runner.invoke(app, ["certify", *files, "--json"])
    assert Path("demo/certificate.json").read_text() == same.stdout


def test_the_demo_has_something_to_show_in_every_group(runner):
    certify_street(Path("here/certificate.json"))
    document = json.loads(Path("here/certificate.json").read_text())
    results = document["results"]
    assert [note.split(":")[0] for note in document["notes"]] == ["n= behind a number"]
    everywhere = [r for r in results if r["split"] == "all"]
    assert all(r["value"] is not None for r in everywhere)
    assert all(r["low"] <= r["value"] <= r["high"] for r in everywhere if r["metric"] == "ap")
    related = [r for r in results if r["metric"] == "ap_superclass"]
    assert len(related) == 1
    assert related[0]["value"] > 0
