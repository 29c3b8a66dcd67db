"""What evaluations of classifiers and of detectors share: titles, identities, what is stored."""

import math
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from incognita._version import __version__
from incognita.benchmarks.benchmark import Benchmark
from incognita.evaluation.fit_and_score import ExtractionLog
from incognita.evaluation.parts import fitting_sets, test_sets
from incognita.evaluation.select_methods import SelectedMethods
from incognita.methods.method import Method
from incognita.models.fingerprints import describe_callable
from incognita.results.method_result import TUNED, MethodResult
from incognita.results.store import ResultStore

if TYPE_CHECKING:
    import polars


def code_of(method: Method) -> str:
    """Give what changes when a method's own code does: our version, or a hash of its class."""
    kind, scorer = type(method), getattr(method, "scorer", None)
    is_ours = kind.__module__.startswith("incognita.")
    own = f"incognita {__version__}" if is_ours else describe_callable(kind)
    return f"{own}, {code_of(scorer)}" if isinstance(scorer, Method) else own


def describe(method: Method) -> dict[str, Any]:
    """Give the parameters of a method and of the one it hands over to, as JSON can hold them."""
    own = {name: _plain(value) for name, value in method.parameters().items()}
    scorer = getattr(method, "scorer", None)
    return own | {"scorer": {scorer.title: describe(scorer)}} if isinstance(scorer, Method) else own


def _plain(value: Any) -> Any:
    """Write a value of any kind so that JSON can hold it and another value is written otherwise."""
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, np.generic):
        return _plain(value.item())
    if isinstance(value, np.ndarray | Tensor):
        data = np.ascontiguousarray(
            value.detach().cpu().numpy() if isinstance(value, Tensor) else value
        )
        return f"array {data.dtype} {list(data.shape)} {sha256(data.tobytes()).hexdigest()[:16]}"
    is_number = isinstance(value, int | float) and math.isfinite(value)
    return value if value is None or is_number or isinstance(value, str) else repr(value)


def provenance_of_now() -> dict[str, Any]:
    """Give versions, the command and the time."""
    return {
        "incognita": __version__,
        "torch": version("torch"),
        "numpy": version("numpy"),
        "command": " ".join(sys.argv),
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
    }


Stored = dict[str, tuple[MethodResult, "polars.DataFrame"]]


@dataclass(frozen=True)
class Options:
    """What changes the numbers of an evaluation beside model, benchmark and methods."""

    search: bool = False
    limit: int | None = None
    seed: int = 0
    n_resamples: int = 200


@dataclass(frozen=True, eq=False)
class EvaluationPlan:
    """The methods that are asked for, on a benchmark, with the results that are there already."""

    benchmark: Benchmark
    asked: SelectedMethods
    options: Options
    account: ExtractionLog
    results: ResultStore | None = None

    def is_searched(self, method: Method) -> bool:
        """Whether a second version of a method, with searched parameters, takes part."""
        return self.options.search and bool(method.search_space)

    def titles(self, name: str) -> list[str]:
        """Give the titles of the results that a method is to have."""
        is_searched = self.is_searched(self.asked.methods[name])
        return [name, name + TUNED] if is_searched else [name]

    def pending(self, stored: Iterable[str]) -> dict[str, Method]:
        """Give the methods of which a result is missing."""
        there = set(stored)
        return {n: m for n, m in self.asked.methods.items() if not there.issuperset(self.titles(n))}

    def shared_identity(self, of_model: Mapping[str, Any]) -> dict[str, Any]:
        """Give what the results of all methods share: the model, the data, the options."""
        datasets = {part: each for part, each in fitting_sets(self.benchmark).items() if each}
        datasets |= {f"{group}/{name}": each for group, name, each in test_sets(self.benchmark)}
        return {
            "benchmark": self.benchmark.name,
            "version": self.benchmark.version,
            "data": {name: each.fingerprint()[:16] for name, each in datasets.items()},
            "classes": list(self.benchmark.classes),
            **of_model,
            "limit": self.options.limit,
            "seed": self.options.seed,
            "resamples": self.options.n_resamples,
        }

    def identity(self, shared: Mapping[str, Any], title: str) -> dict[str, Any]:
        """Give what one result is of."""
        name = title.removesuffix(TUNED)
        return dict(shared) | {
            "method": name,
            "choice": "tuned" if title.endswith(TUNED) else "given",
            "parameters": describe(self.asked.methods[name]),
            "code": code_of(self.asked.methods[name]),
        }

    def stored(self, shared: Mapping[str, Any]) -> Stored:
        """Give the results that are there already, by title."""
        found: Stored = {}
        for title in [title for name in self.asked.methods for title in self.titles(name)]:
            there = self.results and self.results.find(self.identity(shared, title))
            if there:
                found[title] = there
        return found

    def failed_images(self, stored: Iterable[MethodResult]) -> tuple[tuple[str, str, str], ...]:
        """Images that could not be used, now or when a stored result was made; each once."""
        now = [(part, str(each.image_id), each.reason) for part, each in self.account.failed_images]
        scorer = [each for record in stored for each in record.failed_images]
        return tuple({each[:2]: each for each in [*scorer, *now]}.values())

    def metadata(self, shared: Mapping[str, Any]) -> dict[str, Any]:
        """Give what the evaluation was of, and what it cost."""
        return dict(shared) | {
            "title": self.benchmark.title,
            "passes": self.account.count._asdict(),
            "output_bytes": self.account.n_bytes,
        }
