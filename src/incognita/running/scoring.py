"""Fits methods and lets them score, keeping the price of both."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from torch import Tensor

from incognita.containers.needs import Needs
from incognita.containers.outputs import ClassifierOutputs
from incognita.errors import InvalidDataError
from incognita.methods.method import Method
from incognita.results.method_result import Cost
from incognita.shapes import Float64


@dataclass(eq=False)
class Contestant:
    """A fitted method with its scores so far and what they cost."""

    name: str
    method: Method
    fit_seconds: float
    score_seconds: float = 0.0
    scores: dict[str, Float64[np.ndarray, "n"]] = field(default_factory=dict)

    def score(self, name: str, outputs: ClassifierOutputs) -> None:
        """Score the rows (images, or boxes) of one data set and keep the numbers under its name."""
        start = time.process_time()
        values = self.method.score(outputs).cpu().numpy()
        self.score_seconds += time.process_time() - start
        if values.shape != (len(outputs),) or not np.isfinite(values).all():
            n_bad = int((~np.isfinite(values)).sum())
            raise InvalidDataError(
                f"{self.name} gave {values.shape} scores for {len(outputs)} rows of {name}, "
                f"{n_bad} of them not finite; this is an error of the method."
            )
        self.scores[name] = values.astype(np.float64)

    def cost(self, n_networks: int = 1) -> Cost:
        """Give the price of the method; the mean logits of an ensemble cost a pass per network."""
        n_rows = sum(len(values) for values in self.scores.values())
        probes = self.method.probes()
        is_of_first = probes or self.method.all_needs & (Needs.FEATURES | Needs.HEAD | Needs.LAYERS)
        return Cost(
            forwards=(1 if is_of_first else n_networks) + sum(p.forwards for p in probes),
            backwards=sum(probe.backwards for probe in probes),
            fit_seconds=round(self.fit_seconds, 6),
            microseconds_per_sample=round(1e6 * self.score_seconds / max(n_rows, 1), 3),
            state_bytes=state_bytes(self.method),
        )


def fitted(
    name: str, method: Method, known: ClassifierOutputs, validation: ClassifierOutputs | None
) -> Contestant:
    """Fit a method and note how long it took."""
    start = time.process_time()
    method.fit(known, validation)
    return Contestant(name, method, time.process_time() - start)


def state_bytes(method: Method) -> int:
    """Give the memory of what a method learned, its own and that of the one it hands over to."""
    then = getattr(method, "then", None)
    own = sum(_bytes(value) for value in method.state().values())
    return own + (state_bytes(then) if isinstance(then, Method) else 0)


def _bytes(value: Any) -> int:
    if isinstance(value, Tensor):
        return value.nbytes
    if isinstance(value, Mapping):
        return sum(_bytes(each) for each in value.values())
    return 8
