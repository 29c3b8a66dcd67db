"""Methods that reshape features and wrap another method, by default energy."""

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from incognita.containers import ClassifierOutputs, ExtraOutput, Head, Needs
from incognita.errors import InvalidDataError
from incognita.methods.method import Method, Refit, Rows
from incognita.methods.numerics.activations import (
    check_percentiles,
    float64_logits,
    largest_of_row,
    n_kept,
    percentile_of_all,
    scaling,
    scaling_by,
)
from incognita.methods.numerics.rows import ROWS, new_rows
from incognita.methods.numerics.statistics import overall_mean
from incognita.methods.softmax import Energy
from incognita.shapes import Float


@dataclass(eq=False)
class Shaping(Method):
    """A method that reshapes features, recomputes the logits, and wraps `scorer`.

    `scorer` gets the reshaped features, their logits, and all other columns unchanged. If it
    learns, a copy of it is fitted on reshaped known outputs. Features are reshaped in float64 and
    keep their type; logits are float64. A search tries the parameters of the outer method only.
    """

    scorer: Method = field(default_factory=Energy, kw_only=True)
    needs: ClassVar[Needs] = Needs.FEATURES | Needs.HEAD

    @abstractmethod
    def reshape(self, rows: Rows) -> ClassifierOutputs:
        """Return the outputs that `scorer` gets, for a few rows."""

    def finalize_shape(self, known: Rows, validation: Rows) -> None:
        """Set the state that `reshape` needs beside the parameters; many methods have none."""
        return

    def finalize(self, known: Rows, validation: Rows) -> None:
        self.finalize_shape(known, validation)
        if self.scorer.all_needs & (Needs.KNOWN | Needs.VALIDATION):
            self.scorer = copy(self.scorer)  # the instance passed in is not fitted
            held_out = None if validation is known else self._reshape_all(validation)
            self.scorer.fit(self._reshape_all(known), held_out)

    def score_rows(self, rows: Rows) -> Float[Tensor, "n"]:
        parts = [self._score_shaped(self.reshape(part)) for part in _row_parts(rows)]
        if len(parts) == 1:
            return parts[0]
        return torch.cat(parts) if parts else torch.zeros(0, dtype=torch.float64)

    def _score_shaped(self, outputs: ClassifierOutputs) -> Float[Tensor, "n"]:
        """Score reshaped outputs; they have all columns of those that were checked."""
        scores = self.scorer.score_rows(Rows(outputs, self.scorer))
        self.scorer._check_scores(scores, len(outputs))
        return scores

    def _reshape_all(self, rows: Rows) -> ClassifierOutputs:
        """Reshape any number of rows; large tables are written to unnamed files."""
        device = rows.features.device
        features = new_rows(*rows.features.shape, device=device)
        logits = new_rows(len(rows), rows.n_classes, device=device)
        first, head = 0, rows.head
        for part in _row_parts(rows):
            shaped = Rows(self.reshape(part), self)
            features[first : first + len(part)] = shaped.features
            logits[first : first + len(part)] = shaped.outputs.logits
            first, head = first + len(part), shaped.head
        return replace(rows.outputs, features=features, logits=logits, head=head)

    def extra_outputs(self) -> tuple[ExtraOutput, ...]:
        return self.scorer.extra_outputs()

    def _check_fitted(self) -> None:
        if not self.state() and self.needs & (Needs.KNOWN | Needs.VALIDATION):
            raise InvalidDataError(f"{self.title} is not fitted yet; call fit(known) first.")
        self.scorer._check_fitted()


@dataclass(eq=False)
class FeatureShaping(Shaping):
    """Shaping that depends on the features alone."""

    @abstractmethod
    def shape(self, features: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
        """Reshape features, keeping their type."""

    def shape_head(self, head: Head) -> Head:
        """Return the head to use instead of the network's; most methods keep it."""
        return head

    def reshape(self, rows: Rows) -> ClassifierOutputs:
        features = self.shape(rows.features.double())
        head = self.shape_head(rows.head)
        logits = float64_logits(head, features)
        return rows.outputs.reshaped(features.to(rows.features.dtype), logits, head)


def _row_parts(rows: Rows) -> Iterator[Rows]:
    """Cut rows into parts of a few, as views."""
    if 0 < len(rows) <= ROWS:
        yield rows
        return
    whole = rows.outputs
    for first in range(0, len(rows), ROWS):
        part = slice(first, first + ROWS)
        outputs = replace(
            whole,
            image_ids=whole.image_ids[part],
            logits=whole.logits[part],
            features=None if whole.features is None else whole.features[part],
            labels=None if whole.labels is None else whole.labels[part],
            layers=_cut(whole.layers, part),
            extra_outputs=_cut(whole.extra_outputs, part),
        )
        yield Rows(outputs, rows.method)


def _cut(columns: Mapping[str, Tensor] | None, rows: slice) -> dict[str, Tensor] | None:
    return None if columns is None else {name: t[rows] for name, t in columns.items()}


@dataclass(eq=False)
class ReAct(FeatureShaping):
    r"""ReAct: clip activations, then energy (Sun et al., 2021).

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

    def finalize_shape(self, known: Rows, validation: Rows) -> None:
        self.threshold_ = percentile_of_all(known.features, self.percentile)

    def shape(self, features: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
        return features.clamp(max=self.threshold_)


@dataclass(eq=False)
class VRA(FeatureShaping):
    r"""VRA: drop low activations and clip high ones, then energy (Xu et al., 2023).

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

    def finalize_shape(self, known: Rows, validation: Rows) -> None:
        self.low_ = percentile_of_all(known.features, self.low_percentile)
        self.high_ = percentile_of_all(known.features, self.high_percentile)

    def shape(self, features: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
        return torch.where(features < self.low_, 0.0, features.clamp(max=self.high_))


@dataclass(eq=False)
class DICE(FeatureShaping):
    r"""DICE: keep the head weights that contribute most, then energy (Sun and Li, 2022).

    $$ \bar W = W \circ [\, W \circ m > v \,] $$

    with W the weight of the head, m the mean of the known features and v the
    `percentile` of all contributions $W \circ m$. Sun and Li, DICE: Leveraging Sparsification for
    Out-of-Distribution Detection, ECCV 2022. percentile = 90 as in the paper for CIFAR
    and in OpenOOD (70 for ImageNet).

    Departures: OpenOOD never rebuilds the mask, so its search has no effect; the mask is rebuilt
    here, and the grid is ours. Features stay as they are, of any sign.

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

    def fit_statistics(self, known: Rows, validation: Rows) -> None:
        self.mean_ = overall_mean(known.features)

    def finalize_shape(self, known: Rows, validation: Rows) -> None:
        contributions = known.head.weight.to(self.mean_) * self.mean_
        self.is_kept_ = contributions > percentile_of_all(contributions, self.percentile)

    def shape(self, features: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
        return features

    def shape_head(self, head: Head) -> Head:
        return Head(head.weight * self.is_kept_.to(head.weight), head.bias)


def dice_react(percentile: int | float = 90, clip_percentile: int | float = 90) -> DICE:
    """DICE + ReAct: DICE on features that ReAct clips, then energy (Sun and Li, 2022).

    `percentile` is that of the weights, `clip_percentile` that of the activations; a search tries
    the first. Sun and Li, DICE: Leveraging Sparsification for Out-of-Distribution Detection, ECCV
    2022.

    >>> dice_react(percentile=70).scorer.percentile
    90
    """
    return DICE(percentile=percentile, scorer=ReAct(percentile=clip_percentile))


@dataclass(eq=False)
class _RowShaping(FeatureShaping):
    """Shared by shapings by the largest activations of each row, which learn nothing."""

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
    r"""ASH-P: keep the largest activations of a row, then energy (Djurisic et al., 2023).

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
    r"""ASH-S: keep and scale the largest activations, then energy (Djurisic et al., 2023).

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
    r"""ASH-B: keep and binarize the largest activations, then energy (Djurisic et al., 2023).

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
    r"""SCALE: scale activations by their share in the largest, then energy (Xu et al., 2024).

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
