"""Methods on inner layers of the network: MDS over layers, and RankFeat."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from incognita.containers.needs import ExtraOutput, Needs
from incognita.errors import InvalidDataError
from incognita.extraction.extra_outputs import LogitsWithoutTopDirection, MahalanobisStep
from incognita.methods.method import Method, Refit, Rows
from incognita.methods.numerics.mahalanobis_distance import (
    WhitenedClasses,
    smallest_class_distance,
    whitened_classes,
)
from incognita.methods.numerics.rows import by_chunk
from incognita.methods.numerics.statistics import class_means, pooled_covariance, whitening
from incognita.methods.softmax import check_positive
from incognita.shapes import Float


@dataclass(eq=False)
class MDSEnsemble(Method):
    r"""MDS ensemble: Mahalanobis distances summed over layers (Lee et al., 2018).

    $$ s(x) = \frac1L \sum_\ell \frac{d_\ell(x)}{\bar d_\ell}, \qquad
       d_\ell(x) = \min_c (g_\ell - \mu_{\ell c})^T \Sigma_\ell^+ (g_\ell - \mu_{\ell c}) $$

    with g the pooled features of a layer, $\mu$ their class means and $\Sigma$ the covariance
    around them, all from known training rows, and $\bar d$ the mean distance of known validation
    rows. Lee et al., A Simple Unified Framework for Detecting Out-of-Distribution Samples and
    Adversarial Attacks, NeurIPS 2018, algorithm 1.

    Departures: the paper weights layers by a logistic regression on known and unknown (or attacked)
    validation rows. A method here never fits on unknown rows, so each layer counts in units of its
    usual distance; `weighting="sum"` adds plain distances, in which wide layers weigh most.
    OpenOOD's default is one layer, the stem, with weight 1. With `epsilon` > 0 the distances are
    those after a step of the input towards the nearest mean, which can be recorded only once the
    method is fitted (`extra_outputs`); $\bar d$ is without the step. For that reason epsilon is not
    searched, and its default is 0 where OpenOOD has 0.0014. A class without rows is left out;
    directions without variance are ignored.

    Args:
        epsilon: Size of the step, in pixels between 0 and 1.
        layers: Their names; all that were recorded if None.
        weighting: "mean" of distances in units of the usual one, or plain "sum".

    >>> from incognita import ClassifierOutputs
    >>> layers = {"stem": torch.tensor([[-1.0], [1.0], [9.0], [11.0]])}
    >>> labels = torch.tensor([0, 0, 1, 1])
    >>> known = ClassifierOutputs((0, 1, 2, 3), torch.zeros(4, 2), labels=labels, layers=layers)
    >>> MDSEnsemble().fit(known).score(known).tolist()  # the means are 0 and 10, the variance 1
    [1.0, 1.0, 1.0, 1.0]
    """

    epsilon: int | float = 0.0
    layers: tuple[str, ...] | None = None
    weighting: Literal["mean", "sum"] = "mean"
    needs: ClassVar[Needs] = Needs.LAYERS | Needs.KNOWN | Needs.LABELS | Needs.VALIDATION
    invalidates: ClassVar[Mapping[str, Refit]] = {"layers": Refit.STATISTICS}

    def __post_init__(self) -> None:
        if not 0 <= self.epsilon < float("inf"):
            raise InvalidDataError(
                f"MDSEnsemble needs an epsilon of 0 or more, but got {self.epsilon}."
            )
        if self.weighting not in ("mean", "sum"):
            raise InvalidDataError(
                f"MDSEnsemble weights layers by mean or sum, but got {self.weighting!r}."
            )

    def fit_statistics(self, known: Rows, validation: Rows) -> None:
        names = self.layers or tuple(known.layers)
        self.means_: dict[str, Tensor] = {}
        self.classes_: dict[str, dict[str, Tensor]] = {}
        # kept, not computed on demand: the key of a step must be the same after loading
        self.precision_: dict[str, Tensor] = {}
        for name in names:
            table = known.layer(name)
            self.means_[name], root = _means_and_root(table, known)
            self.precision_[name] = root @ root.T
            self.classes_[name] = whitened_classes(table, self.means_[name], root)._asdict()

    def finalize(self, known: Rows, validation: Rows) -> None:
        usual = {name: self._distances(name, validation.layer(name)).mean() for name in self.means_}
        # a layer in which every known row lies on its mean has no usual distance
        self.usual_ = {name: m if m > 0 else torch.ones_like(m) for name, m in usual.items()}

    def extra_outputs(self) -> tuple[ExtraOutput, ...]:
        if self.epsilon == 0 or not hasattr(self, "means_"):
            return ()
        return tuple(self._step(name) for name in self.means_)

    def score_rows(self, rows: Rows) -> Float[Tensor, "n"]:
        distances = {name: self._distances(name, self._table(name, rows)) for name in self.means_}
        if self.weighting == "sum":
            return torch.stack(list(distances.values())).sum(dim=0)
        relative = [values / self.usual_[name].to(values) for name, values in distances.items()]
        return torch.stack(relative).mean(dim=0)

    def _table(self, name: str, rows: Rows) -> Tensor:
        return rows.column(self._step(name), "features") if self.epsilon > 0 else rows.layer(name)

    def _distances(self, name: str, table: Tensor) -> Tensor:
        return smallest_class_distance(table, WhitenedClasses(**self.classes_[name]))

    def _step(self, name: str) -> MahalanobisStep:
        return MahalanobisStep(name, self.means_[name], self.precision_[name], float(self.epsilon))


@dataclass(eq=False)
class RankFeat(Method):
    r"""RankFeat: energy after removing the top direction of the feature maps (Song et al., 2022).

    $$ s(x) = -T \log \sum_c \exp\big(\tfrac12 (f'_c + f''_c) / T\big) $$

    with f' and f'' the logits after the largest singular direction of the map of the last and of
    the second-to-last layer is removed (`LogitsWithoutTopDirection`) and T `temperature`. Song et
    al., RankFeat: Rank-1 Feature Removal for Out-of-distribution Detection, NeurIPS 2022, section
    3. T = 1 as in the authors' code and in OpenOOD.

    >>> from incognita import ClassifierOutputs
    >>> extra = LogitsWithoutTopDirection()
    >>> recorded = {"last": torch.tensor([[4.0, 0.0]]), "previous": torch.tensor([[2.0, 2.0]])}
    >>> columns = {f"{extra.key}/{name}": column for name, column in recorded.items()}
    >>> outputs = ClassifierOutputs(("a",), torch.zeros(1, 2), extra_outputs=columns)
    >>> RankFeat().score(outputs).round(decimals=4).tolist()  # -log(e^3 + e^1)
    [-3.1269]
    """

    temperature: int | float = 1.0

    def __post_init__(self) -> None:
        check_positive(self.title, temperature=self.temperature)

    def extra_outputs(self) -> tuple[ExtraOutput, ...]:
        return (LogitsWithoutTopDirection(),)

    def score_rows(self, rows: Rows) -> Float[Tensor, "n"]:
        (extra,) = self.extra_outputs()
        last, previous = (rows.column(extra, name) for name in ("last", "previous"))
        return by_chunk(self._energy, last, previous)

    def _energy(self, last: Tensor, previous: Tensor) -> Tensor:
        logits = (last.double() + previous.double()) / 2
        return -self.temperature * (logits / self.temperature).logsumexp(dim=1)


def _means_and_root(table: Tensor, known: Rows) -> tuple[Tensor, Tensor]:
    """Compute the means of the present classes and what whitens the covariance they share."""
    means, counts = class_means(table, known.labels, known.n_classes)
    return means[counts > 0], whitening(pooled_covariance(table, known.labels, means))
