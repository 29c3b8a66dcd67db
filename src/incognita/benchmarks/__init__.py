"""On what we evaluate: benchmarks, their definitions and data sets, and builders of splits."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from incognita.benchmarks.benchmark import Benchmark as Benchmark
    from incognita.benchmarks.definition_files import list_benchmarks as list_benchmarks
    from incognita.benchmarks.load import load_benchmark as load_benchmark

_HOMES = {
    "Benchmark": "incognita.benchmarks.benchmark",
    "list_benchmarks": "incognita.benchmarks.definition_files",
    "load_benchmark": "incognita.benchmarks.load",
}

__all__ = ["Benchmark", "list_benchmarks", "load_benchmark"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'incognita.benchmarks' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
