"""Methods that are one formula on the logits, without anything to fit.

All of them work in float64: a float32 softmax is exactly 1 from a gap of 17 between the two largest
logits on, and rows that tie there cannot be ranked any more.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from incognita.containers.needs import Needs
from incognita.errors import InvalidDataError
from incognita.methods.method import Method, Rows
from incognita.methods.numerics.rows import by_chunk, wider
from incognita.shapes import Float


def one_minus_largest(probabilities: Float[Tensor, "n classes"]) -> Float[Tensor, "n"]:
    """Add up all probabilities but the largest.

    1 - max p would round to 0 for every row whose largest is within 1e-16 of 1; the sum of the
    others keeps all digits of them.

    >>> import torch
    >>> one_minus_largest(torch.tensor([[1.0, 1e-30, 1e-31], [0.5, 0.5, 0.0]]))
    tensor([1.1000e-30, 5.0000e-01])
    """
    largest = probabilities.argmax(dim=1, keepdim=True)
    return probabilities.scatter(1, largest, 0.0).sum(dim=1)


_AT_ONCE = 2**17  # logits in float64: a megabyte, which stays in the cache


@dataclass(eq=False)
class MSP(Method):
    r"""MSP: one minus the maximum softmax probability (Hendrycks and Gimpel, 2017).

    $$ s(x) = 1 - \max_c p_c(x) = \frac{\sum_{c \ne \hat y} e^{f_c(x)}}{\sum_c e^{f_c(x)}},
       \qquad p = \operatorname{softmax}(f) $$

    with f the logits and $\hat y$ the class of the largest. Hendrycks and Gimpel, A Baseline for
    Detecting Misclassified and Out-of-Distribution Examples in Neural Networks, ICLR 2017.

    Departures: the fraction on the right is computed, never the difference, so that rows tie at 0
    only from a gap of 745 between the two largest logits on.

    >>> from incognita import ClassifierOutputs
    >>> outputs = ClassifierOutputs(("a", "b"), torch.tensor([[3.0, 1.0], [1.0, 1.0]]).log())
    >>> MSP().score(outputs).round(decimals=6).tolist()  # 1 / 4, 1 / 2
    [0.25, 0.5]
    """

    def score_rows(self, rows: Rows) -> Float[Tensor, "n"]:
        return by_chunk(_uncertainty, rows.logits, rows=rows_at_once(rows))


@dataclass(eq=False)
class MaxLogit(Method):
    r"""MaxLogit: the negated largest logit (Hendrycks et al., 2022).

    $$ s(x) = -\max_c f_c(x) $$ with f the logits. Hendrycks et al., Scaling Out-of-Distribution
    Detection for Real-World Settings, ICML 2022.

    >>> from incognita import ClassifierOutputs
    >>> outputs = ClassifierOutputs(("a", "b"), torch.tensor([[9.0, 0.0], [1.0, 2.0]]))
    >>> MaxLogit().score(outputs).tolist()
    [-9.0, -2.0]
    """

    def score_rows(self, rows: Rows) -> Float[Tensor, "n"]:
        return -by_chunk(lambda logits: logits.amax(dim=1), rows.logits)


@dataclass(eq=False)
class Energy(Method):
    r"""Energy: free energy of the logits (Liu et al., 2020).

    $$ s(x) = -T \log \sum_c \exp(f_c(x) / T) $$ with f the logits and T `temperature`.
    Liu et al., Energy-based Out-of-distribution Detection, NeurIPS 2020, equation 3. T = 1 as in
    the paper; OpenOOD's grid has this one point, so there is none here. On a detector trained by
    VOS (Du et al., ICLR 2022) it is that method's score: VOS changes the training alone.

    >>> from incognita import ClassifierOutputs
    >>> outputs = ClassifierOutputs(("a", "b"), torch.tensor([[9.0, 0.0], [1.0, 1.0]]))
    >>> Energy().score(outputs).round(decimals=4).tolist()  # -9 - log(1 + e^-9), -1 - log 2
    [-9.0001, -1.6931]
    """

    temperature: int | float = 1.0

    def __post_init__(self) -> None:
        check_positive(self.title, temperature=self.temperature)

    def score_rows(self, rows: Rows) -> Float[Tensor, "n"]:
        return by_chunk(self._energy, rows.logits, rows=rows_at_once(rows))

    def _energy(self, logits: Tensor) -> Tensor:
        return -self.temperature * (logits.double() / self.temperature).logsumexp(dim=1)


@dataclass(eq=False)
class Entropy(Method):
    r"""Entropy: entropy of the softmax (Chan et al., 2021).

    $$ s(x) = -\sum_c p_c \log p_c = \log \sum_c e^{g_c} - \sum_c p_c g_c,
       \qquad p = \operatorname{softmax}(f), \quad g_c = f_c - \max_k f_k $$

    with f the logits; in nats. Chan et al., Entropy Maximization and Meta Classification for
    Out-of-Distribution Detection in Semantic Segmentation, ICCV 2021, equation 1.

    Departures: no term on the right is negative, so nothing cancels where a probability is near 1;
    pytorch-ood clips probabilities at 1e-7 first and ties confident rows.

    >>> from incognita import ClassifierOutputs
    >>> outputs = ClassifierOutputs(("a", "b"), torch.tensor([[0.0, 0.0], [1000.0, 0.0]]))
    >>> Entropy().score(outputs).round(decimals=4).tolist()  # log 2, 0
    [0.6931, 0.0]
    """

    def score_rows(self, rows: Rows) -> Float[Tensor, "n"]:
        return by_chunk(entropy, rows.logits, rows=rows_at_once(rows))


@dataclass(eq=False)
class GEN(Method):
    r"""GEN: generalized entropy of the largest probabilities (Liu et al., 2023).

    $$ s(x) = \sum_{c \in \text{top}} p_c^\gamma (1 - p_c)^\gamma,
       \qquad p = \operatorname{softmax}(f) $$

    with f the logits, $\gamma$ `gamma` and the sum over the `top` most likely classes, all of them
    where there are fewer. Liu et al., GEN: Pushing the Limits of Softmax-Based Out-of-Distribution
    Detection, CVPR 2023, equation 6. Defaults and grid are those of OpenOOD; the paper uses
    $\gamma = 0.1$ and top = 100 on ImageNet, too.

    Departures: powers are taken of logarithms. At $\gamma = 0.01$ a rest of 1e-9 still counts
    0.81, where a float32 softmax rounds it to 0: OpenOOD's scores are off by up to 0.84.

    >>> from incognita import ClassifierOutputs
    >>> outputs = ClassifierOutputs(("a", "b"), torch.tensor([[4.0, 1.0], [1.0, 1.0]]).log())
    >>> GEN(gamma=0.5).score(outputs).round(decimals=6).tolist()  # 2 sqrt(0.8 * 0.2), 2 sqrt(1 / 4)
    [0.8, 1.0]
    """

    gamma: int | float = 0.1
    top: int = 100
    search_space: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        "gamma": (0.01, 0.1, 0.5, 1.0, 2.0, 5.0, 10.0),
        "top": (10, 50, 100, 200, 500, 1000),
    }

    def __post_init__(self) -> None:
        check_positive(self.title, gamma=self.gamma, top=self.top)

    def score_rows(self, rows: Rows) -> Float[Tensor, "n"]:
        return by_chunk(self._generalized_entropy, rows.logits, rows=rows_at_once(rows))

    def _generalized_entropy(self, logits: Tensor) -> Tensor:
        largest, others = _split(logits.double().log_softmax(dim=1))
        of_largest = largest + others.logsumexp(dim=1)  # log p + log(1 - p), both exact
        if self.top < logits.shape[1]:
            others = others.topk(self.top - 1, dim=1, sorted=False).values
        of_others = others + torch.log1p(-others.exp())  # p <= 1 / 2, so nothing cancels
        return (self.gamma * of_largest).exp() + (self.gamma * of_others).exp().sum(dim=1)


@dataclass(eq=False)
class MCM(Method):
    r"""MCM: maximum concept matching of a zero-shot head, as a logarithm (Ming et al., 2022).

    $$ s(x) = \log\left(1 - \max_c \operatorname{softmax}(f(x) / T)_c\right) $$

    with T `temperature` and f the logits; those of a zero-shot head are (scaled) cosines between an
    image and the text of each class. Ming et al., Delving into Out-of-Distribution Detection with
    Vision-Language Representations, NeurIPS 2022, equation 2. T = 1 as in the paper, grid of
    OpenOOD. The paper divides plain cosines; where a head multiplies them by 100, as CLIP's does,
    T = 100 is the paper's T = 1.

    Departures: the logarithm, which changes no ranking: at T = 0.01 the softmax of common logits
    is 1 even in float64, and the paper's score would tie.

    >>> from incognita import ClassifierOutputs
    >>> outputs = ClassifierOutputs(("a", "b"), torch.tensor([[30.0, 0.0], [0.0, 0.0]]))
    >>> MCM(0.01).score(outputs).round(decimals=4).tolist()  # log e^-3000, log 1 / 2
    [-3000.0, -0.6931]
    """

    temperature: int | float = 1.0
    search_space: ClassVar[Mapping[str, tuple[Any, ...]]] = {"temperature": (0.01, 1.0, 10.0)}

    def __post_init__(self) -> None:
        check_positive(self.title, temperature=self.temperature)

    def score_rows(self, rows: Rows) -> Float[Tensor, "n"]:
        return by_chunk(self._uncertainty, rows.logits, rows=rows_at_once(rows))

    def _uncertainty(self, logits: Tensor) -> Tensor:
        return log_one_minus_max_softmax(logits.double() / self.temperature)


@dataclass(eq=False)
class GradNorm(Method):
    r"""GradNorm: gradient norm of the divergence from uniform, negated (Huang et al., 2021).

    $$ s(x) = -\left\| \frac{\partial}{\partial W} \sum_c -\log p_c \right\|_1
       = -\frac{1}{T} \sum_c |C p_c - 1| \cdot \sum_d |h_d|,
       \qquad p = \operatorname{softmax}(f / T) $$

    with f the logits, h the features, W the weight of the head, C the number of classes and T
    `temperature`. Huang et al., On the Importance of Gradients for Detecting Distributional Shifts
    in the Wild, NeurIPS 2021, equations 3 and 7. T = 1 as in the paper. The gradient of one row is
    an outer product, so its norm is a product of two norms and no gradient needs to be taken.

    Departures: the sum over classes, as in OpenOOD; the paper's (and pytorch-ood's) mean is C times
    smaller for every row.

    >>> from incognita import ClassifierOutputs
    >>> logits, features = torch.tensor([[3.0, 1.0]]).log(), torch.tensor([[2.0, -1.0]])
    >>> outputs = ClassifierOutputs(("a",), logits, features)
    >>> GradNorm().score(outputs).round(decimals=5).tolist()  # (|1.5 - 1| + |0.5 - 1|) * 3
    [-3.0]
    """

    temperature: int | float = 1.0
    needs: ClassVar[Needs] = Needs.LOGITS | Needs.FEATURES

    def __post_init__(self) -> None:
        check_positive(self.title, temperature=self.temperature)

    def score_rows(self, rows: Rows) -> Float[Tensor, "n"]:
        n_at_once = rows_at_once(rows)
        return by_chunk(self._negated_norm, rows.logits, rows.features, rows=n_at_once)

    def _negated_norm(self, logits: Tensor, features: Tensor) -> Tensor:
        p = (logits.double() / self.temperature).softmax(dim=1)
        of_logits = (p * p.shape[1] - 1).abs().sum(dim=1) / self.temperature
        return -of_logits * features.abs().sum(dim=1, dtype=torch.float64)


def entropy(logits: Float[Tensor, "n classes"]) -> Float[Tensor, "n"]:
    """Compute the entropy of each row's softmax with all its digits, however small."""
    gaps = logits.double()
    gaps = gaps - gaps.amax(dim=1, keepdim=True)
    shares = gaps.exp()
    others = one_minus_largest(shares)
    return others.log1p() - (shares * gaps).sum(dim=1) / (1 + others)


def rows_at_once(rows: Rows) -> int:
    """Return how many rows of logits to work on at once, so that they stay in the cache."""
    return wider(max(32, _AT_ONCE // max(1, rows.n_classes)), rows.outputs.logits)


def check_positive(title: str, **parameters: int | float) -> None:
    """Raise for a parameter that is not a finite number above 0."""
    for name, value in parameters.items():
        if not 0 < value < float("inf"):
            raise InvalidDataError(f"{title} needs a {name} above 0, but got {value}.")


def _uncertainty(logits: Tensor) -> Tensor:
    return one_minus_largest(logits.double().softmax(dim=1))


def log_one_minus_max_softmax(logits: Float[Tensor, "n classes"]) -> Float[Tensor, "n"]:
    """Compute log(1 - max softmax) of float64 logits, which never ties by rounding.

    >>> log_one_minus_max_softmax(torch.tensor([[3000.0, 0.0]], dtype=torch.float64)).tolist()
    [-3000.0]
    """
    _, others = _split(logits.log_softmax(dim=1))
    # one class alone leaves no others: -inf becomes the lowest number there is
    return others.logsumexp(dim=1).clamp_min(torch.finfo(torch.float64).min)


def _split(values: Tensor) -> tuple[Tensor, Tensor]:
    """Return the largest of each row, and the row with -inf in its place."""
    largest, place = values.max(dim=1, keepdim=True)
    return largest.squeeze(1), values.scatter(1, place, -torch.inf)
