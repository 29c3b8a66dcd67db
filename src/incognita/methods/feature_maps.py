"""Methods that look inside the network: at pooled features of layers, or at trimmed maps."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from incognita.containers.needs import ExtraOutput, Needs
from incognita.containers.outputs import ClassifierOutputs
from incognita.errors import InvalidDataError
from incognita.extraction.extra_outputs import LogitsWithoutTopDirection, MahalanobisStep
from incognita.methods.method import Method, Refit
from incognita.methods.numerics.mahalanobis_distance import (
    WhitenedClasses,
    smallest_class_distance,
    whitened_classes,
)
from incognita.methods.numerics.rows import by_chunk, probe_column
from incognita.methods.numerics.statistics import class_means, pooled_covariance, whitening
from incognita.methods.softmax import check_positive
from incognita.shapes import Float


@dataclass(eq=False)
class MDSEnsemble(Method):
    r"""Mahalanobis distance to the nearest class, added up over layers of the network.

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

    def fit_statistics(self, known: ClassifierOutputs, validation: ClassifierOutputs) -> None:
        tables = _tables(known, self.layers or tuple(known.layers or ()))
        self.means_: dict[str, Tensor] = {}
        self.classes_: dict[str, dict[str, Tensor]] = {}
        # kept, not computed on demand: the key of a step must be the same after loading
        self.precision_: dict[str, Tensor] = {}
        for name, table in tables.items():
            self.means_[name], root = _means_and_root(table, known)
            self.precision_[name] = root @ root.T
            self.classes_[name] = whitened_classes(table, self.means_[name], root)._asdict()

    def finalize(self, known: ClassifierOutputs, validation: ClassifierOutputs) -> None:
        usual = {
            name: self._distances(name, table).mean()
            for name, table in _tables(validation, tuple(self.means_)).items()
        }
        # a layer in which every known row lies on its mean has no usual distance
        self.usual_ = {name: m if m > 0 else torch.ones_like(m) for name, m in usual.items()}

    def extra_outputs(self) -> tuple[ExtraOutput, ...]:
        if self.epsilon == 0 or not hasattr(self, "means_"):
            return ()
        return tuple(self._step(name) for name in self.means_)

    def score(self, outputs: ClassifierOutputs) -> Float[Tensor, "n"]:
        self.check(outputs)
        if self.epsilon > 0:
            tables = {
                name: probe_column(outputs, self._step(name), "features") for name in self.means_
            }
        else:
            tables = _tables(outputs, tuple(self.means_))
        distances = {name: self._distances(name, table) for name, table in tables.items()}
        if self.weighting == "sum":
            return torch.stack(list(distances.values())).sum(dim=0)
        relative = [each / self.usual_[name].to(each) for name, each in distances.items()]
        return torch.stack(relative).mean(dim=0)

    def _distances(self, name: str, table: Tensor) -> Tensor:
        return smallest_class_distance(table, WhitenedClasses(**self.classes_[name]))

    def _step(self, name: str) -> MahalanobisStep:
        return MahalanobisStep(name, self.means_[name], self.precision_[name], float(self.epsilon))


@dataclass(eq=False)
class RankFeat(Method):
    r"""Energy of the logits when the strongest direction of the feature maps is taken out.

    $$ s(x) = -T \log \sum_c \exp\big(\tfrac12 (f'_c + f''_c) / T\big) $$

    with f' and f'' the logits after the largest singular direction of the last and of the one but
    last layer's map is removed (`LogitsWithoutTopDirection`) and T `temperature`. Song et al., RankFeat:
    Rank-1 Feature Removal for Out-of-distribution Detection, NeurIPS 2022, section 3. T = 1 as in
    the authors' code and in OpenOOD.

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

    def score(self, outputs: ClassifierOutputs) -> Float[Tensor, "n"]:
        self.check(outputs)
        (extra,) = self.extra_outputs()
        parts = [probe_column(outputs, extra, name) for name in ("last", "previous")]
        return by_chunk(self._energy, *parts)

    def _energy(self, last: Tensor, previous: Tensor) -> Tensor:
        logits = (last.double() + previous.double()) / 2
        return -self.temperature * (logits / self.temperature).logsumexp(dim=1)


def _tables(outputs: ClassifierOutputs, names: Sequence[str]) -> dict[str, Tensor]:
    layers = outputs.layers or {}
    for name in names:
        if name not in layers:
            raise InvalidDataError(
                f"MDSEnsemble uses the layer {name!r}, but the outputs hold {sorted(layers)}; "
                f"extract that layer too, or choose among these."
            )
    return {name: layers[name] for name in names}


def _means_and_root(table: Tensor, known: ClassifierOutputs) -> tuple[Tensor, Tensor]:
    """Give the means of the present classes and what whitens the covariance they share."""
    assert known.labels is not None  # check() has seen to it
    means, counts = class_means(table, known.labels, known.logits.shape[1])
    return means[counts > 0], whitening(pooled_covariance(table, known.labels, means))
