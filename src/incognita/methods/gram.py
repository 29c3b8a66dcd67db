"""Deviations of the Gram matrices of feature maps from their range on known images."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor

from incognita.containers.needs import ExtraOutput, Needs
from incognita.errors import InvalidDataError
from incognita.extraction.extra_outputs import GramRows
from incognita.methods.method import Method, Refit, Rows
from incognita.methods.numerics.rows import by_chunk, chunks
from incognita.shapes import Float

_ROWS = 256  # rows of 5 x 2048 Gram statistics in float64 are 80 KiB each
_SMALLEST = 1e-6  # added to a bound before dividing by it, as in the authors' code
_HOLD_OUT = 10  # every tenth row of a class, where no validation outputs are given


@dataclass(eq=False)
class Gram(Method):
    r"""Gram: deviations of Gram matrices from their known range (Sastry and Oore, 2020).

    $$ s(x) = \frac{1}{\max_c p_c(x)} \sum_\ell \frac{\delta_\ell(x)}{E[\delta_\ell]}, \qquad
       \delta_\ell(x) = \sum_{p, i} \frac{(a_{pi} - v_{pi})_+}{|a_{pi}| + 10^{-6}}
       + \frac{(v_{pi} - b_{pi})_+}{|b_{pi}| + 10^{-6}} $$

    with v the row sums of the Gram matrices of order p (`GramRows`), a and b their smallest
    and largest value over known training rows that were predicted as the class x is predicted as,
    E the mean over known validation rows and p(x) the softmax.
    Sastry and Oore, Detecting Out-of-Distribution Examples with Gram Matrices, ICML 2020. The paper
    takes orders 1 to 10, OpenOOD 1 to 5.

    Departures: the paper's total deviation has no confidence in it, the authors' code (and
    OpenOOD's) divides by it, and so do we. The paper holds out a tenth of the test rows for E, and
    OpenOOD an unseeded tenth of the training rows; here E comes from the validation outputs or,
    where there are none, from every tenth training row of a class, which then does not count
    towards a and b. A layer that never deviates there is not divided. A class that was never
    predicted has the range of all classes. Rows inside all ranges tie at 0, which is the method's.

    >>> from incognita import ClassifierOutputs
    >>> extra = GramRows((1,))
    >>> def outputs(*sums):
    ...     column = {f"{extra.key}/stem": torch.tensor(sums).reshape(-1, 1, 1)}
    ...     return ClassifierOutputs(sums, torch.zeros(len(sums), 1), extra_outputs=column)
    >>> gram = Gram(powers=(1,)).fit(outputs(2.0, 4.0), outputs(5.0))  # E = (5 - 4) / 4
    >>> gram.score(outputs(3.0, 6.0, 1.0)).round(decimals=4).tolist()  # (2 / 4) / E, (1 / 2) / E
    [0.0, 2.0, 2.0]
    """

    powers: tuple[int, ...] = (1, 2, 3, 4, 5)
    needs: ClassVar[Needs] = Needs.LOGITS | Needs.KNOWN | Needs.VALIDATION
    invalidates: ClassVar[Mapping[str, Refit]] = {"powers": Refit.STATISTICS}
    fits_on_extra_outputs_of: ClassVar[tuple[str, ...]] = ("known", "validation")

    def __post_init__(self) -> None:
        if not self.powers or min(self.powers) < 1:
            raise InvalidDataError(
                f"Gram needs at least one power of 1 or more, but got {self.powers}."
            )

    def extra_outputs(self) -> tuple[ExtraOutput, ...]:
        return (GramRows(tuple(self.powers)),)

    def fit_statistics(self, known: Rows, validation: Rows) -> None:
        predicted, columns = _predictions(known), known.columns(self.extra_outputs()[0])
        is_own = validation is known  # inside the ranges by construction, unless held out
        is_held_out = _every_tenth(predicted) & is_own
        ranges = {
            name: _ranges(column, predicted, is_held_out, known.n_classes)
            for name, column in columns.items()
        }
        self.low_ = {name: low for name, (low, _) in ranges.items()}
        self.high_ = {name: high for name, (_, high) in ranges.items()}
        deviations = self._deviations(validation)
        means = {n: (d[is_held_out] if is_own else d).mean() for n, d in deviations.items()}
        self.expected_ = {name: m if m > 0 else torch.ones_like(m) for name, m in means.items()}

    def score_rows(self, rows: Rows) -> Float[Tensor, "n"]:
        expected = {name: self.expected_[name].to(rows.logits.device) for name in self.low_}
        total = sum(
            (values / expected[name] for name, values in self._deviations(rows).items()),
            start=torch.zeros(len(rows), dtype=torch.float64, device=rows.logits.device),
        )
        confidence = by_chunk(lambda part: part.double().softmax(dim=1).amax(dim=1), rows.logits)
        return total / confidence

    def _deviations(self, rows: Rows) -> dict[str, Tensor]:
        predicted, (extra,) = _predictions(rows), self.extra_outputs()
        return {
            name: by_chunk(
                partial(_overflow, self.low_[name], self.high_[name]),
                rows.column(extra, name),
                predicted,
                rows=_ROWS,
            )
            for name in self.low_
        }


def _overflow(low: Tensor, high: Tensor, sums: Tensor, predicted: Tensor) -> Tensor:
    """Add up by how much, relative to the bound, each row leaves the range of its class."""
    low, high = (bound.to(sums.device)[predicted].double() for bound in (low, high))
    wide = sums.double()
    below = (low - wide).relu() / (low.abs() + _SMALLEST)
    above = (wide - high).relu() / (high.abs() + _SMALLEST)
    return (below + above).flatten(1).sum(dim=1)


def _predictions(rows: Rows) -> Tensor:
    return rows.logits.argmax(dim=1)


def _every_tenth(predicted: Tensor) -> Tensor:
    """Mark every tenth row of each class, in their order."""
    order = predicted.argsort(stable=True)
    counts = torch.bincount(predicted)
    firsts = (counts.cumsum(0) - counts)[predicted[order]]
    ranks = torch.empty_like(order)
    ranks[order] = torch.arange(len(order), device=order.device) - firsts
    return ranks % _HOLD_OUT == _HOLD_OUT - 1


def _ranges(
    column: Tensor, predicted: Tensor, is_held_out: Tensor, n_classes: int
) -> tuple[Tensor, Tensor]:
    """Find the smallest and largest value of each statistic by class, [classes, powers, channels].

    Rows held out do not count. A class without rows gets those of all rows.
    """
    low = column.new_full((n_classes, *column.shape[1:]), float("inf"))
    high = -low
    for rows, classes, held_out in chunks(column, predicted, is_held_out, rows=_ROWS):
        counted = rows[~held_out]
        index = classes[~held_out, None, None].expand_as(counted)
        low.scatter_reduce_(0, index, counted, "amin")
        high.scatter_reduce_(0, index, counted, "amax")
    is_empty = low.flatten(1).isinf().all(dim=1)
    low[is_empty], high[is_empty] = low.amin(dim=0), high.amax(dim=0)
    return low, high
