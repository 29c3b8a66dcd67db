"""Hyper-parameter search on held-out data: known validation outputs against unknown ones.

It works on extracted outputs only. A grid point refits only what its parameters invalidate, and
the test sets are never used.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np

from incognita.containers import ClassifierOutputs, ExtraOutput
from incognita.errors import InvalidDataError
from incognita.methods.method import Method
from incognita.metrics.ranking import auroc
from incognita.results.method_result import GridPoint


@dataclass(frozen=True, eq=False)
class SearchData:
    """Outputs to fit on, and held-out known and unknown outputs to compare them by.

    `accepted` are outputs of images that count as known beside those of validation; nothing is
    fitted on them.
    """

    known: ClassifierOutputs
    validation: ClassifierOutputs
    unknown: ClassifierOutputs
    accepted: tuple[ClassifierOutputs, ...] = ()


@dataclass(frozen=True, eq=False)
class SearchOutcome:
    """The best method of a search, fitted, and every point that was tried, the default first."""

    method: Method
    curve: tuple[GridPoint, ...]


def grid(method: Method) -> list[dict[str, Any]]:
    """List the grid points, the method's own parameters first, each once.

    >>> from incognita.methods import load_method
    >>> grid(load_method("knn", k=100))[:3]
    [{'k': 100}, {'k': 50}, {'k': 200}]
    """
    names = list(method.search_space)
    own = {name: getattr(method, name) for name in names}
    points = [dict(zip(names, v, strict=True)) for v in product(*method.search_space.values())]
    return [own, *(point for point in points if point != own)] if names else []


def grid_extra_outputs(method: Method) -> tuple[ExtraOutput, ...]:
    """Return the extra outputs that any point of the grid needs."""
    points = [replace(method, **point) for point in grid(method)]
    return tuple({e.key: e for point in points for e in point.extra_outputs()}.values())


def search(
    fitted: Method, data: SearchData, *, on_point: Callable[[], None] | None = None
) -> SearchOutcome:
    """Score every point of the method's grid; the highest AUROC wins, the first in a tie.

    Args:
        fitted: The method with its own parameters, fitted; a grid point starts from its state.
        data: Outputs to fit on and to compare by.
        on_point: Called after each point, for a progress bar.
    """
    curve: list[GridPoint] = []
    best, best_auroc = fitted, -np.inf
    for point in grid(fitted):
        method, scored = _try(fitted, point, data)
        curve.append(GridPoint(point, *scored))
        if scored[0] is not None and scored[0] > best_auroc:
            best, best_auroc = method, scored[0]
        if on_point is not None:
            on_point()
    return SearchOutcome(best, tuple(curve))


def _try(
    fitted: Method, point: Mapping[str, Any], data: SearchData
) -> tuple[Method, tuple[float | None, str | None]]:
    """Score one point; a point that cannot be fitted, such as k above the rows, has a reason."""
    try:
        method = fitted.with_parameters(data.known, data.validation, **point)
        return method, (_auroc(method, data), None)
    except InvalidDataError as error:
        return fitted, (None, str(error))
    except MemoryError:
        raise
    except Exception as error:  # a user's method may fail in any way
        return fitted, (None, f"{type(error).__name__}: {error}")


def _auroc(method: Method, data: SearchData) -> float:
    held_out = (data.validation, *data.accepted, data.unknown)
    parts = [method.score(part).cpu().numpy() for part in held_out]
    n_unknown = len(parts[-1])
    is_unknown = np.arange(sum(map(len, parts))) >= sum(map(len, parts)) - n_unknown
    return auroc(np.concatenate(parts), is_unknown)
