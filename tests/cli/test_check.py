"""`incognita check`: the contract on a user's file, with exit codes and sentences."""

import json

import pytest
from typer.testing import CliRunner

from incognita.cli.app import app
from incognita.errors import InvalidDataError
from incognita.methods.contract import CONTRACT

SOUND = """
from dataclasses import dataclass
from incognita.methods import Method, Needs

@dataclass(eq=False)
class FarFromMean(Method):
    power: float = 1.0
    needs = Needs.FEATURES | Needs.LOGITS | Needs.KNOWN

    def fit_statistics(self, known, validation):
        self.mean_ = known.features.double().mean(dim=0)

    def score_rows(self, rows):
        print("scoring")
        far = (rows.features.double() - self.mean_).norm(dim=1) ** self.power
        return far - 3 * rows.logits.double().logsumexp(dim=1)
"""
REVERSED = """

class Reversed(FarFromMean):
    def score_rows(self, rows):
        return -super().score_rows(rows)
"""


@pytest.fixture
def check(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def run(content, *arguments):
        (tmp_path / "mine.py").write_text(content)
        return CliRunner().invoke(app, ["check", *arguments])

    return run


def test_a_sound_method_passes(check):
    done = check(SOUND, "mine.py:FarFromMean")
    assert done.exit_code == 0, done.output
    n = len(CONTRACT) + 1
    assert done.stdout.startswith(f"mine.py:FarFromMean: {n} of {n} checks passed\n")
    assert done.stdout.count("  pass ") == n


def test_all_methods_of_a_file_are_checked_and_a_fault_is_exit_code_one(check):
    done = check(SOUND + REVERSED, "mine.py", "--json")
    assert done.exit_code == 1
    found = json.loads(done.stdout)  # what the method prints is not in it
    assert list(found) == ["mine.py:FarFromMean", "mine.py:Reversed"]
    faults = [row for row in found["mine.py:Reversed"] if row["status"] == "fail"]
    assert [row["check"] for row in faults] == ["orientation"]
    assert "Return the negative" in faults[0]["sentence"]


def test_a_fault_in_the_code_names_its_line(check):
    done = check(SOUND.replace(".norm(dim=1)", ".nrom(dim=1)"), "mine.py")
    assert done.exit_code == 1
    line = next(line for line in done.stdout.splitlines() if "fit and score" in line)
    assert "AttributeError: 'Tensor' object has no attribute 'nrom'" in line
    assert "In mine.py, line 15 (score_rows)." in line
    assert "Traceback" not in done.output


def test_a_registered_method_with_parameters_is_checked(check):
    assert check(SOUND, "react+knn(k=10)").exit_code == 0


@pytest.mark.parametrize(
    ("content", "argument", "words"),
    [
        ("x = 1", "mine.py", "Expected a method in mine.py, found none"),
        ("raise ValueError('oh')", "mine.py", "mine.py could not be imported: ValueError: oh"),
        (SOUND, "mine.py:FarFromMeen", "Did you mean FarFromMean"),
        (SOUND, "nothere.py", "nothere.py"),
        (SOUND, "mine.py:FarFromMean(power='a')", "Expected power of"),
    ],
)
def test_what_cannot_be_checked_is_one_sentence(check, content, argument, words):
    done = check(content, argument)
    assert words in str(done.exception)
    assert "Traceback" not in done.output


def test_quiet_and_verbose_cannot_be_combined(check):
    done = check(SOUND, "energy", "-q", "-v")
    assert "got both" in str(done.exception)


def test_quiet_writes_nothing_but_the_result(check):
    quiet, loud = check(SOUND, "energy", "--quiet"), check(SOUND, "energy", "--verbose")
    assert quiet.stderr == ""
    assert loud.stderr.strip().endswith("s  checking energy")
    assert quiet.stdout == loud.stdout


@pytest.mark.parametrize("code", [0, 3])
def test_a_method_that_exits_has_failed(check, code):
    asked = SOUND.replace('print("scoring")', f"raise SystemExit({code})")
    done = check(asked, "mine.py")
    assert done.exit_code == 1, done.output
    assert f"SystemExit: {code}. In mine.py" in done.stdout


def test_a_file_that_exits_gets_one_sentence(check):
    done = check("raise SystemExit(0)", "mine.py")
    assert isinstance(done.exception, InvalidDataError)
    assert "could not be imported: SystemExit: 0" in str(done.exception)
