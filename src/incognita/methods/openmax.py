"""OpenMax: distances of the logits to class means, calibrated by Weibull distributions."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from incognita.containers import ClassifierOutputs, Needs
from incognita.kernels.weibull import fit_tails
from incognita.methods.method import Method, Refit, Rows
from incognita.methods.numerics.rows import by_chunk, chunks
from incognita.methods.softmax import check_positive, rows_at_once
from incognita.shapes import Float, Int


@dataclass(eq=False)
class OpenMax(Method):
    r"""OpenMax: log odds of an added class "unknown" (Bendale and Boult, 2016).

    $$ s(x) = \log \frac{P(\text{unknown})}{1 - P(\text{unknown})}
       = u - \log \sum_c e^{\hat f_c}, \qquad \hat f_c = f_c (1 - \omega_c w_c),
       \quad u = \sum_c f_c \omega_c w_c $$
    $$ w_c = 1 - e^{-(x_c / \lambda_c)^{k_c}}, \quad x_c = \|f - \mu_c\| - t_c + \delta,
       \qquad \omega_{\text{rank } i} = \frac{\alpha + 1 - i}{\alpha}, \ i = 1 \dots \alpha $$

    with f the logits, $\mu_c$ the mean logits of the known training rows of class c that were
    classified correctly, $t_c$ the least of the `tail` largest distances of those rows to $\mu_c$,
    $\delta$ `shift`, and $k_c, \lambda_c$ the Weibull distribution that is most likely for these
    distances minus $t_c$ plus $\delta$. Only the `alpha` largest logits are changed;
    $\omega_c$ and $w_c$ of the others are 0.
    Bendale and Boult, Towards Open Set Deep Networks, CVPR 2016, algorithms 1 and 2.
    tail = 20 and alpha = 3 are fixed in OpenOOD, the grid is pytorch-ood's. shift = 1 is that of
    libmr 0.1.9, on which OpenOOD runs; pytorch-ood and the library of 2016 use 10,000, which gives
    the distances just below the tail a weight, too.

    Departures: the paper mixes Euclidean and cosine distances, OpenOOD and this take the Euclidean
    one. Log odds instead of the probability: they rank alike, and OpenOOD's exponentials overflow
    from a logit of 89 on. A tail without two different distances (no, or one, correct row) does
    not determine the spread of its class, whose $w_c$ is then 0; OpenOOD crashes. A class with
    fewer correct rows than `tail` uses them all, and alpha is at most the number of classes. Where
    the tail is most of a class, its ordinary rows count as far: keep it at a tenth or less.

    >>> from incognita import ClassifierOutputs
    >>> logits = torch.tensor([[4.0, 0.0], [6.0, 0.0], [9.0, 0.0], [0.0, 5.0]])
    >>> known = ClassifierOutputs((1, 2, 3, 4), logits, labels=torch.tensor([0, 0, 0, 1]))
    >>> method = OpenMax(alpha=1).fit(known)
    >>> method.means_[0].round(decimals=4).tolist()
    [6.3333, 0.0]
    >>> rows = ClassifierOutputs(("a", "b"), torch.tensor([[60.0, 0.0], [0.0, 5.0]]))
    >>> method.score(rows).round(decimals=4).tolist()  # 60 - log 2; 0 - log(1 + e^5)
    [59.3069, -5.0067]
    """

    tail: int = 20
    alpha: int = 3
    shift: int | float = 1.0
    needs: ClassVar[Needs] = Needs.LOGITS | Needs.KNOWN | Needs.LABELS
    search_space: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        "tail": (10, 20, 30, 40, 50),
        "alpha": (1, 3, 5, 10, 15, 20),
    }
    invalidates: ClassVar[Mapping[str, Refit]] = {"tail": Refit.FINALIZE, "shift": Refit.FINALIZE}

    def __post_init__(self) -> None:
        check_positive(self.title, tail=self.tail, alpha=self.alpha, shift=self.shift)

    def fit_statistics(self, known: Rows, validation: Rows) -> None:
        self.means_, counts = _correct_means(known)
        self.distances_ = _correct_distances(known, self.means_, int(counts.sum()))
        self.offsets_ = torch.cat([counts.new_zeros(1), counts.cumsum(0)])

    def finalize(self, known: Rows, validation: Rows) -> None:
        distances, offsets = self.distances_.cpu().numpy(), self.offsets_.cpu().numpy()
        fitted = fit_tails(distances, offsets, self.tail, float(self.shift))
        shapes, scales, starts = (torch.from_numpy(column).to(self.means_) for column in fitted)
        self.shapes_, self.log_scales_, self.starts_ = shapes, scales.log(), starts - self.shift

    def notes_on(self, known: ClassifierOutputs) -> list[str]:
        fewest = int(self.offsets_.diff().min())
        if self.tail <= fewest:
            return []
        return [
            f"OpenMax: its tail of {self.tail} exceeds the correct known rows of the smallest "
            f"class, {fewest}: the tail is then the whole class"
        ]

    def score_rows(self, rows: Rows) -> Float[Tensor, "n"]:
        return by_chunk(self._log_odds, rows.logits, rows=rows_at_once(rows))

    def _log_odds(self, logits: Tensor) -> Tensor:
        activations = logits.double()
        alpha = min(self.alpha, logits.shape[1])
        largest, classes = activations.topk(alpha, dim=1)
        ranks = torch.arange(alpha, 0, -1, dtype=torch.float64, device=logits.device) / alpha
        taken = largest * self._surprise(activations, classes) * ranks
        kept = activations.scatter(1, classes, largest - taken)
        return taken.sum(dim=1) - kept.logsumexp(dim=1)

    def _surprise(
        self, activations: Float[Tensor, "n classes"], classes: Int[Tensor, "n alpha"]
    ) -> Float[Tensor, "n alpha"]:
        """Compute the probability that a row of each class would be nearer to its mean."""
        means = self.means_.to(activations)
        columns = [_distances(activations, means[column]) for column in classes.T]
        shapes, log_scales, starts = (
            column.to(activations)[classes]
            for column in (self.shapes_, self.log_scales_, self.starts_)
        )
        excess = (torch.stack(columns, dim=1) - starts).clamp_min(0).log()
        return -torch.expm1(-(shapes * (excess - log_scales)).exp())


def _correct_rows(known: Rows) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the logits (in float64) and classes of correctly classified rows, part by part."""
    for logits, labels in chunks(known.logits, known.labels, rows=rows_at_once(known)):
        is_correct = logits.argmax(dim=1) == labels
        yield logits[is_correct].double(), labels[is_correct].long()


def _correct_means(
    known: Rows,
) -> tuple[Float[Tensor, "classes classes"], Int[Tensor, "classes"]]:
    """Average the logits of each class, and count its rows."""
    n_classes = known.n_classes
    sums = known.logits.new_zeros(n_classes, n_classes, dtype=torch.float64)
    counts = torch.zeros(n_classes, dtype=torch.int64, device=sums.device)
    for logits, classes in _correct_rows(known):
        sums.index_add_(0, classes, logits)
        counts += classes.bincount(minlength=n_classes)
    return sums / counts.clamp_min(1)[:, None], counts


def _correct_distances(
    known: Rows, means: Float[Tensor, "classes classes"], n: int
) -> Float[Tensor, "correct"]:
    """Measure distances of n rows to the mean of the class; class after class, rising in each."""
    distances, classes = means.new_empty(n), torch.empty(n, dtype=torch.int64, device=means.device)
    first = 0
    for logits, labels in _correct_rows(known):
        part = slice(first, first + len(labels))
        distances[part], classes[part] = _distances(logits, means[labels]), labels
        first += len(labels)
    rising = distances.argsort()
    return distances[rising[classes[rising].argsort(stable=True)]]


def _distances(a: Float[Tensor, "n classes"], b: Float[Tensor, "n classes"]) -> Float[Tensor, "n"]:
    distances: Tensor = torch.linalg.vector_norm(a - b, dim=1)
    return distances
