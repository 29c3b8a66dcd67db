"""Options of commands: from a file, wrong ones as sentences, a log, and every column."""

import subprocess
import sys
from importlib.resources import files
from os import environ
from pathlib import Path

import pytest

from incognita.benchmarks.definition_files import find_definition
from incognita.benchmarks.load import load_benchmark

STREET = Path(str(files("incognita.benchmarks").joinpath("examples", "street")))
INPUTS = f"""
truth = "{STREET / "truth.json"}"
detections = "{STREET / "detections.json"}"
classes = "{STREET / "classes.toml"}"
resamples = 10
"""


def incognita(*arguments, cwd):
    return subprocess.run(
        [sys.executable, "-m", "incognita.cli", *map(str, arguments)],
        cwd=cwd, capture_output=True, text=True, check=False,
    )  # fmt: skip


def certify(cwd, *arguments, content=INPUTS):
    (cwd / "run.toml").write_text(content)
    return incognita("certify", "--options", "run.toml", *arguments, cwd=cwd)


def test_options_come_from_a_file_and_the_command_line_wins(tmp_path):
    done = certify(tmp_path)
    assert done.returncode == 0, done.stderr
    assert "[" in done.stdout  # intervals of ten replicates
    assert "[" not in certify(tmp_path, "--resamples", 0).stdout


def test_flags_and_lists_come_from_a_file(tmp_path):
    content = INPUTS.replace(f'classes = "{STREET / "classes.toml"}"', 'known = ["car", "bus"]')
    done = certify(tmp_path, content=content + "json = true\n")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("{")


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (
            "resample = 3",
            "No option of certify in run.toml is called 'resample'. Did you mean resamples?",
        ),
        ("json = 1", "Expected true or false for json in run.toml, got 1."),
        ("[resamples]\nn = 3", "Expected a value for resamples in run.toml, got a table."),
        (INPUTS.replace("= 10", "= 2.5"), "Invalid value for '--resamples'"),
        ("resamples = [", "run.toml is not TOML"),
    ],
)
def test_a_wrong_file_of_options_is_a_sentence(tmp_path, content, sentence):
    done = certify(tmp_path, content=content)
    assert done.returncode == 2
    assert done.stderr.startswith(f"incognita: {sentence}")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("run", "terra/standard", "--limt", "3"), "--limt"),
        (("run",), "Missing argument"),
        (("run", "terra/standard", "--limit", "0"), "Invalid value for '--limit'"),
        (("certify", "--truth", "x.json"), "got no --detections"),
        (("bogus",), "No such command 'bogus'"),
        (("list", "modles"), "'modles' is not one of"),
    ],
)
def test_a_wrong_option_is_one_sentence_without_a_box(tmp_path, arguments, words):
    done = incognita(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("incognita: ")
    assert words in done.stderr
    assert done.stderr.endswith(" --help.\n")
    assert done.stderr.count("\n") == 1


def test_without_a_command_the_help_is_printed(tmp_path):
    done = incognita(cwd=tmp_path)
    assert "certify" in done.stdout + done.stderr
    assert "incognita: " not in done.stderr


def test_a_log_has_steps_notes_and_the_end(tmp_path):
    assert certify(tmp_path, "--log", "log.txt").returncode == 0
    lines = (tmp_path / "log.txt").read_text().splitlines()
    words = [line.split(" s  ", 1)[1] for line in lines]
    assert words[0].endswith("certify --options run.toml --log log.txt")
    assert "step: all: open set" in words
    assert any(line.startswith("result: Certificate(") for line in words)
    assert any(line.startswith("note: ") for line in words)  # ten replicates are few
    assert words[-1] == "finished"
    assert all(line[:2] == "20" and line[10] == "T" for line in lines)


def test_a_log_has_the_error_that_ended_the_work(tmp_path):
    done = certify(tmp_path, "--truth", "absent.json", "--log", "log.txt")
    assert done.returncode == 3
    last = (tmp_path / "log.txt").read_text().splitlines()[-1]
    assert "stopped by MissingDataError: " in last
    assert "absent.json" in last


def test_a_log_has_the_warnings(tmp_path):
    code = """
import warnings
from pathlib import Path
from incognita.cli._terminal import progress_on_stderr
with progress_on_stderr(log=Path("log.txt")):
    warnings.warn("odd", stacklevel=1)
"""
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, check=True)
    assert "warning: UserWarning: odd" in (tmp_path / "log.txt").read_text()


def test_a_narrow_screen_says_what_is_left_out_and_wide_prints_all(tmp_path):
    code = """
import sys
from incognita.results import export
export.WIDTH = 80
from incognita.cli import main
main()
"""
    (tmp_path / "run.toml").write_text(INPUTS)
    command = [sys.executable, "-c", code, "certify", "--options", "run.toml"]
    narrow = subprocess.check_output(command, cwd=tmp_path, text=True, stderr=subprocess.DEVNULL)
    assert "left out to fit 80 columns: meanings, intervals (--wide prints all)" in narrow
    wide = subprocess.check_output(
        [*command, "--wide"], cwd=tmp_path, text=True, stderr=subprocess.DEVNULL
    )
    assert "left out" not in wide
    assert "what it is" in wide
    assert "[" in wide


def test_links_of_a_plan_are_not_broken(tmp_path):
    done = incognita("data", "plan", "openood/imagenet200", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stdout.splitlines() if "http" in line]
    assert len(lines) > 3
    for source in find_definition("openood/imagenet200").definition.sources.values():
        assert any(line.endswith(f": {source.published}") for line in lines)


def test_the_help_says_what_limit_does_with_training_sets(tmp_path):
    shown = " ".join(incognita("run", "--help", cwd=tmp_path).stdout.replace("│", " ").split())
    assert "ten times as many for the training set of a classifier" in shown
    limited = load_benchmark("digits/standard", limit=5)
    assert (len(limited.train), len(limited.test)) == (50, 5)


COMPILING = """
import sys, numba
from own import twice
from incognita.cli._terminal import progress_on_stderr
with progress_on_stderr():
    assert twice(2) == 4 and twice(2.5) == 5.0
"""


def test_the_first_compilation_is_announced_once_and_stored_code_is_not(tmp_path):
    own = "import numba\n\n@numba.njit(cache=True)\ndef twice(x):\n    return 2 * x\n"
    (tmp_path / "own.py").write_text(own)
    (tmp_path / "work.py").write_text(COMPILING)

    def work():
        return subprocess.run(
            [sys.executable, "work.py"], cwd=tmp_path, capture_output=True, text=True, check=True,
            env=environ | {"NUMBA_CACHE_DIR": str(tmp_path / "cache")},
        ).stderr  # fmt: skip

    assert work() == "Compiling kernels, about 20 seconds; only the first run has to.\n"
    assert work() == ""
