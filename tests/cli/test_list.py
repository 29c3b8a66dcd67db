"""`incognita list`: names with one line about each."""

import pytest
from typer.testing import CliRunner

from incognita.benchmarks.definition_files import find_definition, list_benchmarks
from incognita.cli.app import app
from incognita.methods import list_methods


@pytest.fixture
def run(monkeypatch):
    runner = CliRunner()
    return lambda *arguments: runner.invoke(app, ["list", *arguments])


def names_of(output: str) -> list[str]:
    return [line.split()[0] for line in output.splitlines()]


def test_benchmarks_are_listed_with_their_titles(run):
    done = run("benchmarks")
    assert names_of(done.stdout) == list_benchmarks()
    assert "OpenOOD v1.5: CIFAR-10 against near and far unknown sets" in done.stdout


def test_a_pattern_chooses(run):
    assert names_of(run("benchmarks", "terra/[fs]*").stdout) == [
        "terra/facets",
        "terra/far",
        "terra/farther",
        "terra/full-spectrum",
        "terra/self-aware",
        "terra/standard",
    ]


def test_benchmarks_say_whether_they_are_for_classifiers_or_detectors(run):
    lines = run("benchmarks").stdout.splitlines()
    tasks = {name: task for name, task, *_ in map(str.split, lines)}
    assert tasks["terra/standard"] == tasks["openood/cifar10"] == "classification"
    assert tasks["terra/near"] == tasks["terra/detection"] == "detection"


def test_a_pattern_that_matches_nothing_says_so(run):
    done = run("benchmarks", "x*")
    assert done.stdout == ""
    assert done.stderr == "incognita: no benchmarks match 'x*'.\n"
    assert done.exit_code == 2
    assert run("methods", "zzz").exit_code == 2
    assert run("methods", "knn").exit_code == 0


def test_methods_are_listed_with_the_first_line_about_them(run):
    done = run("methods")
    assert names_of(done.stdout) == list_methods()
    assert all(len(line.split(maxsplit=1)) == 2 for line in done.stdout.splitlines())


def test_models_say_what_the_option_takes_and_hold_every_default(run):
    names = names_of(run("models").stdout)
    defaults = {find_definition(name).definition.default_model for name in list_benchmarks()}
    assert defaults - {None} <= set(names)
    assert {"timm:NAME", "FILE.py:FUNCTION"} <= set(names)
    assert names_of(run("models", "terra:*").stdout) == ["terra:classifier", "terra:detector"]


def test_an_unknown_kind_is_wrong_usage(run):
    assert run("modles").exit_code == 2
