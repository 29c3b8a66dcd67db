"""Methods that reshape features and hand over to another method, by default to energy."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from incognita.containers.needs import Needs
from incognita.containers.outputs import ClassifierOutputs, Head
from incognita.errors import InvalidDataError
from incognita.methods._shaping import FeatureShaping
from incognita.methods.method import Refit
from incognita.methods.numerics.activations import (
    check_percentiles,
    largest_of_row,
    n_kept,
    percentile_of_all,
    scaling,
    scaling_by,
)
from incognita.methods.numerics.statistics import overall_mean
from incognita.shapes import Float


@dataclass(eq=False)
class ReAct(FeatureShaping):
    r"""Cuts off activations above what is usual on known data, then asks `scorer` (energy).

    $$ \bar f = \min(f, c) $$

    with f the features and c the `percentile` of all activations of the known rows. Sun et al.,
    ReAct: Out-of-distribution Detection With Rectified Activations, NeurIPS 2021.
    percentile = 90 as in the paper; the grid is OpenOOD's.

    Departures: c is taken of the known training rows as in the paper; OpenOOD takes the validation
    rows. It is exact up to 67 million activations (see `activations.percentile_of_all`).
    Negative activations stay as they are.

    >>> head = Head(torch.eye(2), torch.zeros(2))
    >>> known = ClassifierOutputs(
    ...     (0, 1), torch.zeros(2, 2), torch.tensor([[0.0, 1.0], [2.0, 3.0]]), head=head
    ... )
    >>> seen = ClassifierOutputs(
    ...     ("a",), torch.zeros(1, 2), torch.tensor([[9.0, 1.5]]), head=head
    ... )
    >>> react = ReAct(percentile=50).fit(known)
    >>> react.threshold_, react.score(seen).round(decimals=4).item()  # -1.5 - log 2
    (1.5, -2.1931)
    """

    percentile: int | float = 90
    needs: ClassVar[Needs] = Needs.FEATURES | Needs.HEAD | Needs.KNOWN
    search_space: ClassVar[Mapping[str, tuple[Any, ...]]] = {"percentile": (85, 90, 95, 99)}
    invalidates: ClassVar[Mapping[str, Refit]] = {"percentile": Refit.FINALIZE}

    def __post_init__(self) -> None:
        check_percentiles(self.title, percentile=self.percentile)

    def settle_shape(self, known: ClassifierOutputs, validation: ClassifierOutputs) -> None:
        assert known.features is not None
        self.threshold_ = percentile_of_all(known.features, self.percentile)

    def shape(self, features: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
        return features.clamp(max=self.threshold_)


@dataclass(eq=False)
class VRA(FeatureShaping):
    r"""Drops low activations and clips high ones, then applies `scorer` (energy).

    $$ \bar f_j = 0 \text{ if } f_j < a, \quad b \text{ if } f_j > b, \quad f_j \text{ else} $$

    with f the features, a the `low_percentile` and b the `high_percentile` of all activations of
    the known rows. Xu et al., VRA: Variational Rectified Activation for Out-of-distribution
    Detection, NeurIPS 2023. 10 and 90 and the grid are OpenOOD's.

    Departures: OpenOOD raises low activations to a instead of dropping them, and takes a and b of
    the validation rows; the paper is followed. Where more than `low_percentile` of the known
    activations are 0, as after a ReLU, a is 0 and this is ReAct. A negative activation below a
    becomes 0, as any other.

    >>> head = Head(torch.eye(2), torch.zeros(2))
    >>> known = ClassifierOutputs(
    ...     (0, 1), torch.zeros(2, 2), torch.tensor([[1.0, 2.0], [3.0, 4.0]]), head=head
    ... )
    >>> vra = VRA(low_percentile=50, high_percentile=100).fit(known)
    >>> vra.shape(torch.tensor([[2.0, 3.0], [9.0, 2.5]])).tolist()
    [[0.0, 3.0], [4.0, 2.5]]
    """

    low_percentile: int | float = 10
    high_percentile: int | float = 90
    needs: ClassVar[Needs] = Needs.FEATURES | Needs.HEAD | Needs.KNOWN
    search_space: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        "low_percentile": (1, 5, 10, 15),
        "high_percentile": (85, 90, 95, 99),
    }
    invalidates: ClassVar[Mapping[str, Refit]] = {
        "low_percentile": Refit.FINALIZE,
        "high_percentile": Refit.FINALIZE,
    }

    def __post_init__(self) -> None:
        low, high = self.low_percentile, self.high_percentile
        check_percentiles(self.title, low_percentile=low, high_percentile=high)
        if low > high:
            raise InvalidDataError(
                f"VRA needs a low_percentile of at most the high one, but got {low} and {high}."
            )

    def settle_shape(self, known: ClassifierOutputs, validation: ClassifierOutputs) -> None:
        assert known.features is not None
        self.low_ = percentile_of_all(known.features, self.low_percentile)
        self.high_ = percentile_of_all(known.features, self.high_percentile)

    def shape(self, features: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
        return torch.where(features < self.low_, 0.0, features.clamp(max=self.high_))


@dataclass(eq=False)
class DICE(FeatureShaping):
    r"""Keeps only the weights of the head that contribute most, then asks `scorer` (energy).

    $$ \bar W = W \circ [\, W \circ m > v \,] $$

    with W the weight of the head, m the mean of the known features and v the
    `percentile` of all contributions $W \circ m$. Sun and Li, DICE: Leveraging Sparsification for
    Out-of-Distribution Detection, ECCV 2022. percentile = 90 as in the paper for CIFAR
    and in OpenOOD (70 for ImageNet).

    Departures: OpenOOD never rebuilds the mask, so any search of its is dead; ours does rebuild
    it, and the grid is our own. Features stay as they are, of any sign.

    >>> head = Head(torch.tensor([[1.0, 1.0], [1.0, 1.0]]), torch.zeros(2))
    >>> known = ClassifierOutputs((0,), torch.zeros(1, 2), torch.tensor([[1.0, 5.0]]), head=head)
    >>> DICE(percentile=50).fit(known).shape_head(head).weight.tolist()
    [[0.0, 1.0], [0.0, 1.0]]
    """

    percentile: int | float = 90
    needs: ClassVar[Needs] = Needs.FEATURES | Needs.HEAD | Needs.KNOWN
    search_space: ClassVar[Mapping[str, tuple[Any, ...]]] = {"percentile": (50, 70, 90, 95)}
    invalidates: ClassVar[Mapping[str, Refit]] = {"percentile": Refit.FINALIZE}

    def __post_init__(self) -> None:
        check_percentiles(self.title, percentile=self.percentile)

    def fit_statistics(self, known: ClassifierOutputs, validation: ClassifierOutputs) -> None:
        assert known.features is not None
        self.mean_ = overall_mean(known.features)

    def settle_shape(self, known: ClassifierOutputs, validation: ClassifierOutputs) -> None:
        assert known.head is not None
        contributions = known.head.weight.to(self.mean_) * self.mean_
        self.is_kept_ = contributions > percentile_of_all(contributions, self.percentile)

    def shape(self, features: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
        return features

    def shape_head(self, head: Head) -> Head:
        return Head(head.weight * self.is_kept_.to(head.weight), head.bias)


def dice_react(percentile: int | float = 90, clip_percentile: int | float = 90) -> DICE:
    """Make DICE on features that ReAct cuts off, as the DICE paper combines them.

    `percentile` is that of the weights, `clip_percentile` that of the activations; a search tries
    the first. Sun and Li, DICE: Leveraging Sparsification for Out-of-Distribution Detection, ECCV
    2022.

    >>> dice_react(percentile=70).scorer.percentile
    90
    """
    return DICE(percentile=percentile, scorer=ReAct(percentile=clip_percentile))


@dataclass(eq=False)
class _RowShaping(FeatureShaping):
    """What those share that look at the largest activations of each row and learn nothing."""

    percentile: int | float = 90
    search_space: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        "percentile": (65, 70, 75, 80, 85, 90, 95)
    }
    invalidates: ClassVar[Mapping[str, Refit]] = {
        "percentile": Refit.FINALIZE
    }  # `scorer` may learn

    def __post_init__(self) -> None:
        check_percentiles(self.title, percentile=self.percentile)

    def _is_kept(self, features: Tensor) -> Tensor:
        return largest_of_row(features, n_kept(features.shape[1], self.percentile))


@dataclass(eq=False)
class ASHP(_RowShaping):
    r"""Keeps the largest activations of a row, then asks `scorer` (energy).

    $$ \bar f_j = f_j \text{ if } j \in K(f), \quad 0 \text{ else} $$

    with f the features and K the k largest of the row, $k = d - \operatorname{round}(d p / 100)$,
    p the `percentile`. Djurisic et al., Extremely Simple Activation Shaping for
    Out-of-Distribution Detection, ICLR 2023, ASH-P. p = 90 and the grid are OpenOOD's for ASH; the
    paper's best p for ASH-P is 60 on ImageNet. Of equal activations the first are kept. Negative
    activations are kept where a row has no k others.

    >>> ASHP(percentile=50).shape(torch.tensor([[1.0, 4.0, 3.0, 2.0]])).tolist()
    [[0.0, 4.0, 3.0, 0.0]]
    """

    def shape(self, features: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
        return torch.where(self._is_kept(features), features, 0.0)


@dataclass(eq=False)
class ASHS(_RowShaping):
    r"""Keeps the largest activations of a row, scaled up, then asks `scorer` (energy).

    $$ \bar f_j = f_j \exp(s_1 / s_2) \text{ if } j \in K(f), \quad 0 \text{ else},
       \qquad s_1 = \sum_j f_j, \quad s_2 = \sum_{j \in K(f)} f_j $$

    with f the features and K as for `ASHP`. Djurisic et al., Extremely Simple Activation Shaping
    for Out-of-Distribution Detection, ICLR 2023, ASH-S. p = 90 as in the paper on ImageNet; the
    grid is OpenOOD's.

    Departures: only positive activations enter the sums. Nothing changes after a ReLU; elsewhere
    $s_2$ could vanish or be negative, and the score would follow its sign. A row without a positive
    activation is not scaled; the exponent ends at 64, where float32 would.

    >>> ASHS(percentile=50).shape(torch.tensor([[1.0, 4.0, 3.0, 2.0]]))  # 4 and 3 times exp(10 / 7)
    tensor([[ 0.0000, 16.6909, 12.5182,  0.0000]])
    """

    def shape(self, features: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
        kept = torch.where(self._is_kept(features), features, 0.0)
        return kept * scaling_by(features, kept.relu().sum(dim=1)).exp()


@dataclass(eq=False)
class ASHB(_RowShaping):
    r"""Keeps the largest activations of a row, all made equal, then asks `scorer` (energy).

    $$ \bar f_j = s_1 / k \text{ if } j \in K(f), \quad 0 \text{ else},
       \qquad s_1 = \sum_j f_j $$

    with f the features and K and k as for `ASHP`. Djurisic et al., Extremely Simple Activation
    Shaping for Out-of-Distribution Detection, ICLR 2023, ASH-B. p = 90 and the grid are OpenOOD's;
    the paper's best p for ASH-B is 65 on ImageNet.

    Departures: of equal activations the first are kept. In OpenOOD zeros that tie make the score
    depend on the order `topk` happens to give (by up to 3e-3). Only positive activations enter the
    sum, see `ASHS`.

    >>> ASHB(percentile=50).shape(torch.tensor([[1.0, 4.0, 3.0, 2.0]])).tolist()
    [[0.0, 5.0, 5.0, 0.0]]
    """

    def shape(self, features: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
        total = features.relu().sum(dim=1, keepdim=True)
        level = total / n_kept(features.shape[1], self.percentile)
        return torch.where(self._is_kept(features), level, 0.0)


@dataclass(eq=False)
class SCALE(_RowShaping):
    r"""Scales a row up by how evenly its activations are spread, then asks `scorer` (energy).

    $$ \bar f = f \exp(s_1 / s_2),
       \qquad s_1 = \sum_j f_j, \quad s_2 = \sum_{j \in K(f)} f_j $$

    with f the features and K as for `ASHP`; nothing is dropped. Xu et al., Scaling for Training
    Time and Post-hoc Out-of-distribution Detection Enhancement, ICLR 2024. p = 85 as in the paper
    and OpenOOD; the grid is OpenOOD's. Departures: sums of positive activations only, see `ASHS`.

    >>> SCALE(percentile=50).shape(torch.tensor([[1.0, 4.0, 3.0, 2.0]]))  # times exp(10 / 7)
    tensor([[ 4.1727, 16.6909, 12.5182,  8.3455]])
    """

    percentile: int | float = 85

    def shape(self, features: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
        return features * scaling(features, n_kept(features.shape[1], self.percentile)).exp()
