"""Chooses parameters on held-out data: known validation outputs against unknown ones.

Everything happens on outputs that are there already. A grid point fits again only what its
parameters invalidate, and the test sets are never looked at.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np

from incognita.containers.needs import ExtraOutput
from incognita.containers.outputs import ClassifierOutputs
from incognita.errors import InvalidDataError
from incognita.methods.method import Method
from incognita.metrics.ranking import auroc
from incognita.results.method_result import GridPoint


@dataclass(frozen=True, eq=False)
class SearchData:
    """What a search may see: outputs to learn from and outputs to judge by."""

    known: ClassifierOutputs
    validation: ClassifierOutputs
    unknown: ClassifierOutputs


@dataclass(frozen=True, eq=False)
class SearchOutcome:
    """The best method of a search, fitted, and every point that was tried, the default first."""

    method: Method
    curve: tuple[GridPoint, ...]


def grid(method: Method) -> list[dict[str, Any]]:
    """List the choices of parameters, those of the method itself first, none of them twice.

    >>> from incognita.methods import load_method
    >>> grid(load_method("knn", k=100))[:3]
    [{'k': 100}, {'k': 50}, {'k': 200}]
    """
    names = list(method.search_space)
    own = {name: getattr(method, name) for name in names}
    points = [dict(zip(names, v, strict=True)) for v in product(*method.search_space.values())]
    return [own, *(point for point in points if point != own)] if names else []


def probes_of_grid(method: Method) -> tuple[ExtraOutput, ...]:
    """Give what the pass must record so that every point of the grid can be scored."""
    wanted = {p.key: p for point in grid(method) for p in replace(method, **point).extra_outputs()}
    return tuple(wanted.values())


def search(
    fitted: Method, held_out: SearchData, *, on_point: Callable[[], None] | None = None
) -> SearchOutcome:
    """Try every point of the method's grid; the highest AUROC wins, the first of equal ones.

    Args:
        fitted: The method with its own parameters, fitted; a grid point starts from its state.
        held_out: Outputs to learn from and to judge by.
        on_point: Called after each point, for a progress bar.
    """
    curve: list[GridPoint] = []
    best, best_auroc = fitted, -np.inf
    for point in grid(fitted):
        method, scored = _try(fitted, point, held_out)
        curve.append(GridPoint(point, *scored))
        if scored[0] is not None and scored[0] > best_auroc:
            best, best_auroc = method, scored[0]
        if on_point is not None:
            on_point()
    return SearchOutcome(best, tuple(curve))


def _try(
    fitted: Method, point: Mapping[str, Any], held_out: SearchData
) -> tuple[Method, tuple[float | None, str | None]]:
    """Score one point; one that cannot be, such as k above the number of rows, says why."""
    try:
        method = fitted.with_parameters(held_out.known, held_out.validation, **point)
        return method, (_auroc(method, held_out), None)
    except InvalidDataError as error:
        return fitted, (None, str(error))
    except MemoryError:
        raise
    except Exception as error:  # a method of somebody's own may fail in any way
        return fitted, (None, f"{type(error).__name__}: {error}")


def _auroc(method: Method, held_out: SearchData) -> float:
    parts = [method.score(part).cpu().numpy() for part in (held_out.validation, held_out.unknown)]
    is_unknown = np.repeat([False, True], [len(part) for part in parts])
    return auroc(np.concatenate(parts), is_unknown)
