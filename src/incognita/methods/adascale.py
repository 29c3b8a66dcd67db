"""AdaSCALE: scaling of features that depends on how an input step moves them."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from incognita.containers import ClassifierOutputs, ExtraOutput, Needs
from incognita.errors import InvalidDataError
from incognita.extraction.extra_outputs import AdaScaleStep
from incognita.methods.activation_shaping import Shaping
from incognita.methods.method import Refit, Rows
from incognita.methods.numerics.activations import (
    check_percentiles,
    float64_logits,
    largest_of_row,
    scaling,
)
from incognita.methods.numerics.rows import by_chunk


@dataclass(eq=False)
class AdaScale(Shaping):
    r"""AdaSCALE: SCALE with a percentile per row, set by an input step (Regmi, 2025).

    $$ p = p_0 + (1 - F(Q)) (p_1 - p_0), \qquad
       Q = \sum_{j \in K_1(f)} \max(0, \tilde f_j)
         + \lambda \sum_{j \in K_2(f)} |f_j - \tilde f_j| $$

    with f the features, $\tilde f$ those after the step of `AdaScaleStep`, $K_1$ and $K_2$ the
    `top_percent` and `shift_percent` of features with the largest f, $\lambda$ `shift_weight`,
    $p_0, p_1$ the `percentiles` and F the empirical distribution of Q on known validation rows.
    Then $r = s_1 / s_2$ as for `SCALE` at percentile p; variant A gives `scorer` (energy) the
    features $f e^r$, variant L the logits times $r^2$.
    Regmi, AdaSCALE: Adaptive Scaling for OOD Detection, 2025 (arXiv 2503.08023).

    Defaults and grid are those of the author's code in OpenOOD
    (`openood/postprocessors/adascale_postprocessor.py`, `configs/postprocessors/adascale_a.yml`).
    There k1 = 5 and k2 = 1 are percent: `k1_ = int(feature_dim * k1 / 100)`; at least one feature
    is taken here, where the code takes none of fewer than 100. Both sums go over the largest f, not
    over the largest of what is summed.

    Departures: F counts all validation rows (the code draws 5000 without a seed). The step is an
    extra output, of validation rows as well as of those to score; a search costs no gradients.
    Only positive activations enter $s_1$ and $s_2$, as in the code.

    >>> extra = AdaScale().extra_outputs()[0]
    >>> from incognita.containers.outputs import Head
    >>> features = torch.tensor([[1.0, 4.0, 3.0, 2.0]])
    >>> known = ClassifierOutputs(
    ...     (0,), torch.zeros(1, 1), features, head=Head(torch.ones(1, 4), torch.zeros(1)),
    ...     extra_outputs={f"{extra.key}/features": features},
    ... )
    >>> AdaScale((50, 75)).fit(known).score(known).round(decimals=3)  # p = 50, r = 10 / 7
    tensor([-41.7270], dtype=torch.float64)
    """

    percentiles: tuple[int | float, int | float] = (75, 85)
    top_percent: int | float = 5
    shift_percent: int | float = 1
    shift_weight: int | float = 10
    variant: Literal["A", "L"] = "A"
    share: int | float = 0.05
    epsilon: int | float = 0.5
    needs: ClassVar[Needs] = Needs.FEATURES | Needs.HEAD | Needs.VALIDATION
    fits_on_extra_outputs_of: ClassVar[tuple[str, ...]] = ("validation",)
    search_space: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        "percentiles": tuple(combinations((60, 65, 70, 75, 80, 85, 90, 95, 99), 2))
    }
    invalidates: ClassVar[Mapping[str, Refit]] = {
        "top_percent": Refit.STATISTICS,
        "shift_percent": Refit.STATISTICS,
        "shift_weight": Refit.STATISTICS,
        "share": Refit.STATISTICS,
        "epsilon": Refit.STATISTICS,
        "percentiles": Refit.FINALIZE,  # `scorer` may learn
        "variant": Refit.FINALIZE,
    }

    def __post_init__(self) -> None:
        low, high = self.percentiles
        check_percentiles(
            self.title,
            low_percentile=low,
            high_percentile=high,
            top_percent=self.top_percent,
            shift_percent=self.shift_percent,
        )
        if low > high:
            raise InvalidDataError(f"AdaScale needs percentiles that rise, but got {low}, {high}.")

    def extra_outputs(self) -> tuple[ExtraOutput, ...]:
        return (self._step, *self.scorer.extra_outputs())

    def fit_statistics(self, known: Rows, validation: Rows) -> None:
        stepped = validation.column(self._step, "features")
        self.reference_ = by_chunk(self._movement, validation.features, stepped).sort().values

    def reshape(self, rows: Rows) -> ClassifierOutputs:
        features = rows.features.double()
        stepped = rows.column(self._step, "features")
        ratio = scaling(features, self._n_kept(features, self._movement(features, stepped)))
        if self.variant == "L":
            logits = float64_logits(rows.head, features) * ratio**2
            return rows.outputs.reshaped(rows.features, logits, rows.head)
        shaped = features * ratio.exp()
        logits = float64_logits(rows.head, shaped)
        return rows.outputs.reshaped(shaped.to(rows.features.dtype), logits, rows.head)

    def _n_kept(self, features: Tensor, movement: Tensor) -> Tensor:
        low, high = self.percentiles
        d, reference = features.shape[1], self.reference_.to(movement.device)
        at_most = torch.searchsorted(reference, movement, right=True).double() / len(reference)
        percentile = low + (1 - at_most) * (high - low)
        return (d - (d * percentile / 100).round()).long().clamp_min(1)

    def _movement(self, features: Tensor, stepped: Tensor) -> Tensor:
        before, after = features.double(), stepped.double()
        d = before.shape[1]
        is_top = largest_of_row(before, max(1, int(d * self.top_percent / 100)))
        is_first = largest_of_row(before, max(1, int(d * self.shift_percent / 100)))
        level = torch.where(is_top, after.relu(), 0.0).sum(dim=1)
        shift = torch.where(is_first, (before - after).abs(), 0.0).sum(dim=1)
        return level + self.shift_weight * shift

    @property
    def _step(self) -> AdaScaleStep:
        return AdaScaleStep(share=self.share, epsilon=self.epsilon)
