"""Records of numbers, of methods and of evaluations; their store, tables and output formats."""

from typing import TYPE_CHECKING

from incognita.registry import attach

if TYPE_CHECKING:
    from incognita.results.certificate import Certificate as Certificate
    from incognita.results.claims import Claim as Claim
    from incognita.results.claims import ClaimVerdict as ClaimVerdict
    from incognita.results.evaluation import Evaluation as Evaluation
    from incognita.results.method_result import MethodKey as MethodKey
    from incognita.results.method_result import MethodResult as MethodResult
    from incognita.results.query import load_results as load_results
    from incognita.results.result import Result as Result
    from incognita.results.result import Split as Split
    from incognita.results.store import ResultStore as ResultStore

__getattr__, __dir__, __all__ = attach(
    __name__,
    {
        ".certificate": ["Certificate"],
        ".claims": ["Claim", "ClaimVerdict"],
        ".evaluation": ["Evaluation"],
        ".method_result": ["MethodKey", "MethodResult"],
        ".query": ["load_results"],
        ".result": ["Result", "Split"],
        ".store": ["ResultStore"],
    },
)
