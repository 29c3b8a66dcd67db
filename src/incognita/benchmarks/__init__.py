"""On what we evaluate: benchmarks, their definitions and data sets, and builders of splits."""

from typing import TYPE_CHECKING

from incognita.registry import attach

if TYPE_CHECKING:
    from incognita.benchmarks.audit import Audit as Audit
    from incognita.benchmarks.audit import audit_inputs as audit_inputs
    from incognita.benchmarks.audited_sets import InputOptions as InputOptions
    from incognita.benchmarks.audited_sets import read_input as read_input
    from incognita.benchmarks.audited_sets import read_inputs as read_inputs
    from incognita.benchmarks.benchmark import Benchmark as Benchmark
    from incognita.benchmarks.corruptions import corrupt as corrupt
    from incognita.benchmarks.corruptions.datasets import corrupted as corrupted
    from incognita.benchmarks.definition_files import list_benchmarks as list_benchmarks
    from incognita.benchmarks.load import load_benchmark as load_benchmark
    from incognita.benchmarks.pseudo_unknown import PaintedOver as PaintedOver

__getattr__, __dir__, __all__ = attach(
    __name__,
    {
        ".audit": ["Audit", "audit_inputs"],
        ".audited_sets": ["InputOptions", "read_input", "read_inputs"],
        ".benchmark": ["Benchmark"],
        ".corruptions": ["corrupt"],
        ".corruptions.datasets": ["corrupted"],
        ".definition_files": ["list_benchmarks"],
        ".load": ["load_benchmark"],
        ".pseudo_unknown": ["PaintedOver"],
    },
)
