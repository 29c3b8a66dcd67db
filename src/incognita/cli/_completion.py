"""What the shell offers after TAB: names of benchmarks and methods, and files."""

from glob import escape
from pathlib import Path


def complete_benchmark(incomplete: str) -> list[str]:
    """Return the benchmarks and TOML files that begin with what was typed."""
    from incognita.benchmarks.definition_files import list_benchmarks

    named = [name for name in list_benchmarks() if name.startswith(incomplete)]
    return named + _files(incomplete, ".toml")


def complete_methods(incomplete: str) -> list[str]:
    """Return what completes the last name of a list, which commas and plus signs separate.

    >>> complete_methods("msp,max-")
    ['msp,max-logit']
    >>> "react+knn" in complete_methods("react+k")
    True
    """
    from incognita.methods import list_methods

    end = max(incomplete.rfind(","), incomplete.rfind("+")) + 1
    before, last = incomplete[:end], incomplete[end:].lstrip()
    return [f"{before}{name}" for name in list_methods() if name.startswith(last)]


def complete_method(incomplete: str) -> list[str]:
    """Return the methods and Python files that begin with what was typed."""
    return complete_methods(incomplete) + _files(incomplete, ".py")


def _files(incomplete: str, ending: str) -> list[str]:
    """Return the files of a kind that begin with what was typed."""
    folder, slash, start = incomplete.rpartition("/")
    paths = Path(folder + slash or ".").glob(f"{escape(start)}*{ending}")
    return sorted(f"{folder}{slash}{path.name}" for path in paths)
