"""All commands: an example in every help, options in it that exist, completion, the page."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from incognita.cli import _terminal as terminal
from incognita.cli.app import app

PAGE = (Path(__file__).parents[2] / "docs" / "commands.md").read_text()


def leaves(command, path=()):
    """Yield each command with the words that call it."""
    for name, inner in getattr(command, "commands", {}).items():
        yield from leaves(inner, (*path, name))
    if not hasattr(command, "commands"):
        yield path, command


COMMANDS = dict(leaves(typer.main.get_command(app)))


def example_of(command) -> list[str]:
    text = re.search(r"Example: (.*?)(?:\n\n|\Z)", command.help or "", flags=re.DOTALL)
    assert text, "no example"
    return shlex.split(" ".join(text[1].split()))


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_the_example_of_a_command_is_valid(path):
    command = COMMANDS[path]
    program, *words = example_of(command)
    assert (program, *words[: len(path)]) == ("incognita", *path)
    context = command.make_context(path[-1], words[len(path) :])  # parses, does not run
    assert context.params


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_every_command_can_be_quiet_and_verbose(path):
    options = {spelling for parameter in COMMANDS[path].params for spelling in parameter.opts}
    assert {"--quiet", "-q", "--verbose", "-v"} <= options


# these write files, and print a sentence about them
WRITERS = {
    ("demo",), ("corrupt",), ("selfaware", "paint"), ("selfaware", "fit"), ("selfaware", "apply"),
    ("results", "export"), ("report",), ("leaderboard",), ("serve",),
}  # fmt: skip


@pytest.mark.parametrize("path", [p for p in COMMANDS if p not in WRITERS], ids=" ".join)
def test_every_command_that_prints_results_prints_json(path):
    assert "--json" in {spelling for p in COMMANDS[path].params for spelling in p.opts}


def test_the_page_lists_every_command():
    table = PAGE.split("## First steps")[0]
    named = re.findall(r"`([a-z-]+(?: [a-z-]+)?)`", "\n".join(re.findall(r"^\|.*", table, re.M)))
    assert sorted(named) == sorted(" ".join(path) for path in COMMANDS)


def test_the_page_lists_every_exit_code():
    section = PAGE.split("## Exit codes")[1].split("\n## ")[0]
    first = ", ".join(re.findall(r"^\| ([\d, ]+) \|", section, re.M))
    ours = (terminal.CRITERION_FAILED, terminal.WRONG_USAGE, terminal.DATA_MISSING)
    signals = (terminal.BY_SIGNAL + 2, terminal.BY_SIGNAL + 15)
    assert [int(code) for code in first.split(", ")] == [0, *ours, terminal.IN_PART, *signals]


def completions(*words, cwd):
    environment = {
        **os.environ,
        "_INCOGNITA_COMPLETE": "complete_bash",
        "COMP_WORDS": shlex.join(words),
        "COMP_CWORD": str(len(words) - 1),
    }
    code = "import sys; sys.argv[0] = 'incognita'; from incognita.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, cwd=cwd, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    return done.stdout.split("\n")


def test_the_shell_completes_commands_benchmarks_and_methods(tmp_path):
    (tmp_path / "mine.toml").write_text("")
    assert "certify" in completions("incognita", "cert", cwd=tmp_path)
    assert completions("incognita", "run", "terra/st", cwd=tmp_path)[0] == "terra/standard"
    assert "mine.toml" in completions("incognita", "run", "mi", cwd=tmp_path)
    found = completions("incognita", "run", "terra/standard", "--methods", "msp,kn", cwd=tmp_path)
    assert found[0] == "msp,knn"


def test_the_completion_script_can_be_shown():
    shown = CliRunner().invoke(app, ["--help"]).output
    assert "--show-completion" in shown
    assert "--install-completion" in shown
