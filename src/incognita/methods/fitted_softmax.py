"""Methods on logits that are fitted on held-out outputs of known images."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from incognita.containers.needs import Needs
from incognita.errors import InvalidDataError
from incognita.methods.method import Method, Rows
from incognita.methods.numerics.rows import by_chunk, chunks
from incognita.methods.softmax import entropy, log_one_minus_max_softmax, rows_at_once
from incognita.shapes import Float, Int

# 1 / T times the widest range of a validation row's logits: from a softmax that is almost uniform
# to one whose smallest probability is 1e-152, far from where float64 ends.
_LEAST_RANGE, _MOST_RANGE = 1e-3, 350.0
_MAX_STEPS = 100
_SMALL_STEP = 1e-12


@dataclass(eq=False)
class Temperature(Method):
    r"""Temperature: MSP of a softmax with fitted temperature, as a logarithm (Guo et al., 2017).

    $$ s(x) = \log\left(1 - \max_c \operatorname{softmax}(f(x) / T)_c\right), \qquad
       T = \arg\min_T -\sum_i \log \operatorname{softmax}(f(x_i) / T)_{y_i} $$

    with f the logits and $x_i, y_i$ known validation images and their classes (training images
    where there are none). Guo et al., On Calibration of Modern Neural Networks, ICML 2017. It has
    no parameter; `temperature_` is what was learned.

    Departures: the logarithm, which changes no ranking; a small T would bring the probabilities of
    other classes below what float64 can hold. T is the minimum itself, by Newton's method in 1 / T,
    where the loss is convex; OpenOOD and pytorch-ood stop L-BFGS on its way there: T = 1.433 where
    the best is 1.342. Where there is no minimum, T is the end of its range: every row is right (T
    as small as float64 allows, range of the logits / 350), or the answers are worse than chance
    (range / 0.001).

    >>> from incognita import ClassifierOutputs
    >>> logits, labels = torch.tensor([[2.0, 0.0]] * 4), torch.tensor([0, 0, 0, 1])
    >>> known = ClassifierOutputs((1, 2, 3, 4), logits, labels=labels)
    >>> method = Temperature().fit(known)
    >>> round(method.temperature_, 6)  # p = 3 / 4 is best: 2 / T = log 3
    1.820478
    >>> method.score(known).round(decimals=6).tolist()  # log 1 / 4
    [-1.386294, -1.386294, -1.386294, -1.386294]
    """

    needs: ClassVar[Needs] = Needs.LOGITS | Needs.VALIDATION | Needs.LABELS

    def fit_statistics(self, known: Rows, validation: Rows) -> None:
        labels = _checked_labels(self.title, validation)
        self.temperature_ = _best_temperature(validation, labels)

    def score_rows(self, rows: Rows) -> Float[Tensor, "n"]:
        return by_chunk(self._uncertainty, rows.logits, rows=rows_at_once(rows))

    def _uncertainty(self, logits: Tensor) -> Tensor:
        return log_one_minus_max_softmax(logits.double() / self.temperature_)


@dataclass(eq=False)
class KLMatching(Method):
    r"""KL matching: divergence from the nearest class template (Hendrycks et al., 2022).

    $$ s(x) = \min_c \operatorname{KL}(p(x) \| d_c) = \min_c \sum_k p_k \log p_k
       - \sum_k p_k \log d_{ck}, \qquad p = \operatorname{softmax}(f) $$

    with f the logits and $d_c$ the mean softmax of the known validation rows *predicted* as c
    (training rows where there are none). Hendrycks et al., Scaling Out-of-Distribution Detection
    for Real-World Settings, ICML 2022. It has no parameter. All divergences of all rows are one
    matrix product.

    Departures: OpenOOD gives a class that was never predicted a one-hot $d_c$. No softmax has a
    finite divergence from that, so the class is left out; in float32, where a softmax rounds to
    one-hot, OpenOOD finds 0 instead. A probability below 2e-308 in $d_c$ counts as that.

    >>> from incognita import ClassifierOutputs
    >>> p = torch.tensor([[3.0, 1.0], [1.0, 3.0], [1.0, 1.0]]).log()
    >>> known = ClassifierOutputs(("a", "b"), p[:2])
    >>> rows = ClassifierOutputs(("c", "d", "e"), p)
    >>> KLMatching().fit(known).score(rows).round(decimals=4).abs().tolist()  # 0, 0, log(2/sqrt 3)
    [0.0, 0.0, 0.1438]
    """

    needs: ClassVar[Needs] = Needs.LOGITS | Needs.VALIDATION

    def fit_statistics(self, known: Rows, validation: Rows) -> None:
        _check_some(self.title, validation)
        n_classes = validation.n_classes
        sums = validation.logits.new_zeros(n_classes, n_classes, dtype=torch.float64)
        counts = sums.new_zeros(n_classes)
        for (logits,) in chunks(validation.logits, rows=rows_at_once(validation)):
            predicted = logits.argmax(dim=1)
            sums.index_add_(0, predicted, logits.double().softmax(dim=1))
            counts += predicted.bincount(minlength=n_classes)
        is_predicted = counts > 0
        templates = sums[is_predicted] / counts[is_predicted, None]
        self.log_templates_ = templates.clamp_min(torch.finfo(torch.float64).tiny).log()

    def score_rows(self, rows: Rows) -> Float[Tensor, "n"]:
        return by_chunk(self._divergence, rows.logits, rows=rows_at_once(rows))

    def _divergence(self, logits: Tensor) -> Tensor:
        p = logits.double().softmax(dim=1)
        closeness = (p @ self.log_templates_.to(p).T).amax(dim=1)
        return -entropy(logits) - closeness


def _best_temperature(validation: Rows, labels: Int[Tensor, "n"]) -> float:
    logits, rows = validation.logits, rows_at_once(validation)
    ranges = by_chunk(lambda part: part.double().amax(dim=1) - part.amin(dim=1), logits, rows=rows)
    widest = float(ranges.max())
    if widest == 0:  # every softmax is uniform at any temperature
        return 1.0

    def slope(beta: float) -> tuple[float, float]:
        """Compute the first and second derivative of the loss in beta = 1 / T."""
        first = second = 0.0
        for part, truth in chunks(logits, labels, rows=rows):
            values = part.double()
            values = values - values.gather(1, truth[:, None].long())
            p = (beta * values).softmax(dim=1)
            mean = (p * values).sum(dim=1)
            first += float(mean.sum())
            second += float((p * (values - mean[:, None]).square()).sum())
        return first, second

    return 1 / _root(slope, _LEAST_RANGE / widest, _MOST_RANGE / widest)


def _root(slope: Callable[[float], tuple[float, float]], low: float, high: float) -> float:
    """Find the root of an increasing function by Newton's method in a shrinking interval."""
    if slope(low)[0] >= 0:
        return low
    if slope(high)[0] <= 0:
        return high
    beta = 1.0 if low < 1 < high else (low * high) ** 0.5
    for _ in range(_MAX_STEPS):
        value, rise = slope(beta)
        low, high = (low, beta) if value > 0 else (beta, high)
        following = beta - value / rise if rise > 0 else low
        if abs(following - beta) <= _SMALL_STEP * beta:
            return following
        beta = following if low < following < high else (low * high) ** 0.5
    return beta


def _check_some(title: str, validation: Rows) -> None:
    if not len(validation):
        raise InvalidDataError(
            f"{title} learns from known validation outputs, got none. Pass some, or leave them out "
            f"to learn from the known training outputs."
        )


def _checked_labels(title: str, validation: Rows) -> Int[Tensor, "n"]:
    _check_some(title, validation)
    least, most = int(validation.labels.min()), int(validation.labels.max())
    n_classes = validation.n_classes
    if least < 0 or most >= n_classes:
        raise InvalidDataError(
            f"{title} needs labels from 0 to {n_classes - 1}, but the validation outputs have "
            f"labels from {least} to {most}; keep known images only."
        )
    return validation.labels
