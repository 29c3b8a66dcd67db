"""Methods that compare features with the predicted class: SHE, fDBD, NCI."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor
from torch.linalg import vector_norm
from torch.nn.functional import cosine_similarity

from incognita.containers.needs import Needs
from incognita.methods.method import Method, Rows
from incognita.methods.numerics.rows import by_chunk
from incognita.methods.numerics.statistics import class_means, overall_mean
from incognita.shapes import Float

_SHORTEST = 1e-8  # a row exactly at the center would be divided by zero; as pytorch-ood


@dataclass(eq=False)
class SHE(Method):
    r"""SHE: negated similarity to the stored pattern of the predicted class (Zhang et al., 2023).

    $$ s(x) = -f^T p_{\hat y} $$ with $\hat y$ the class of the largest logit and $p_c$ the mean
    features of the known rows labelled c that are classified correctly. Zhang et al.,
    Out-of-Distribution Detection based on In-Distribution Data Patterns Memorization with Modern
    Hopfield Energy, ICLR 2023.

    Args:
        metric: `inner-product`, the paper's; its code also has `euclidean`, the distance between f
            and p, and `cosine`, minus the cosine of the angle between them.

    Departures: a class without a correct row has no pattern in the paper (OpenOOD scores NaN);
    here it is the mean of all rows with that label or, if there is none, of all rows.

    >>> from incognita import ClassifierOutputs
    >>> features, labels = torch.tensor([[1.0, 0], [3, 0], [0, 5]]), torch.tensor([0, 0, 1])
    >>> known = ClassifierOutputs(("a", "b", "c"), features, features, labels)
    >>> test = ClassifierOutputs(("d",), torch.tensor([[1.0, 0]]), torch.tensor([[4.0, 7]]))
    >>> SHE().fit(known).score(test)
    tensor([-8.], dtype=torch.float64)
    """

    metric: Literal["inner-product", "euclidean", "cosine"] = "inner-product"
    needs: ClassVar[Needs] = Needs.LOGITS | Needs.FEATURES | Needs.KNOWN | Needs.LABELS

    def fit_statistics(self, known: Rows, validation: Rows) -> None:
        features, labels, n_classes = known.features, known.labels, known.n_classes
        everyone = class_means(features, labels, n_classes)
        is_correct = known.logits.argmax(dim=1) == labels
        # misclassified rows form one more group, so that the others need not be copied
        groups = torch.where(is_correct, labels, n_classes)
        right = class_means(features, groups, n_classes + 1)
        patterns, counts = right.means[:n_classes], right.counts[:n_classes]
        overall = (everyone.means * everyone.counts[:, None]).sum(dim=0) / len(features)
        spare = torch.where(everyone.counts[:, None] > 0, everyone.means, overall)
        self.patterns_ = torch.where(counts[:, None] > 0, patterns, spare)

    def score_rows(self, rows: Rows) -> Float[Tensor, "n"]:
        patterns = self.patterns_.to(rows.features.device)

        def misfit(features: Tensor, logits: Tensor) -> Tensor:
            return self._misfit(features.double(), patterns[logits.argmax(dim=1)])

        return by_chunk(misfit, rows.features, rows.logits)

    def _misfit(self, rows: Tensor, patterns: Tensor) -> Tensor:
        if self.metric == "euclidean":
            return _lengths(rows - patterns)
        if self.metric == "cosine":
            return -cosine_similarity(rows, patterns, dim=1)
        return -(rows * patterns).sum(dim=1)


@dataclass(eq=False)
class FDBD(Method):
    r"""fDBD: relative distance to the decision boundaries, negated (Liu and Qin, 2024).

    $$ s(x) = -\frac{1}{C - 1} \sum_{c \neq \hat y}
    \frac{l_{\hat y} - l_c}{|w_{\hat y} - w_c| \, |f - \mu|} $$ with l the logits, $\hat y$ the
    class of the largest, w the rows of the head's weight and $\mu$ the mean of known features. Liu
    and Qin, Fast Decision Boundary based Out-of-Distribution Detector, ICML 2024.

    Args:
        center: What $\mu$ is: `mean` as in the paper, or `origin`, zero, the other choice in
            OpenOOD's grid.

    Departures: OpenOOD sums instead of averaging over classes, which is the same order. Two classes
    with equal weights have no boundary between them and add nothing. A row at the center is divided
    by 1e-8. With one class every row scores 0.

    Below the boundary is sqrt(2) from the row and the mean sqrt(8).

    >>> from incognita import ClassifierOutputs
    >>> from incognita.containers.outputs import Head
    >>> head = Head(torch.eye(2), torch.zeros(2))
    >>> known = ClassifierOutputs(("a",), torch.ones(1, 2), torch.ones(1, 2), head=head)
    >>> row = torch.tensor([[3.0, 1.0]])
    >>> FDBD().fit(known).score(ClassifierOutputs(("b",), row, row, head=head))
    tensor([-0.7071], dtype=torch.float64)
    """

    center: Literal["mean", "origin"] = "mean"
    needs: ClassVar[Needs] = Needs.LOGITS | Needs.FEATURES | Needs.HEAD | Needs.KNOWN
    search_space: ClassVar[Mapping[str, tuple[Any, ...]]] = {"center": ("mean", "origin")}

    def fit_statistics(self, known: Rows, validation: Rows) -> None:
        weight = known.head.weight.detach().double()
        exact = "donot_use_mm_for_euclid_dist"  # products would round equal rows apart
        separations = torch.cdist(weight, weight, compute_mode=exact)
        self.closeness_ = torch.where(separations > 0, 1 / separations, 0.0)
        self.mean_ = overall_mean(known.features)

    def score_rows(self, rows: Rows) -> Float[Tensor, "n"]:
        device = rows.features.device
        closeness = self.closeness_.to(device) / max(1, len(self.closeness_) - 1)
        center = self.mean_.to(device) if self.center == "mean" else 0.0

        def negated_distance(features: Tensor, logits: Tensor) -> Tensor:
            largest, predicted = logits.double().max(dim=1)
            distances = ((largest[:, None] - logits) * closeness[predicted]).sum(dim=1)
            return -distances / _lengths(features.double() - center).clamp_min(_SHORTEST)

        return by_chunk(negated_distance, rows.features, rows.logits)


@dataclass(eq=False)
class NCI(Method):
    r"""NCI: negated proximity to the weights of the predicted class (Liu and Qin, 2025).

    $$ s(x) = -w_{\hat y}^T \frac{f - \mu}{|f - \mu|} - \alpha |f|_1 $$ with $\hat y$ the class of
    the largest logit, w the rows of the head's weight and $\mu$ the mean of known features. Liu and
    Qin, Detecting Out-of-Distribution through the Lens of Neural Collapse, CVPR 2025.

    Args:
        alpha: Weight of the length. 1e-4 and the grid are those of OpenOOD; the paper chooses
            alpha on validation data.

    Departures: a row at the mean has no direction, and its first term is 0.

    Below the first term is -3 / 5, the second -7 / 10.

    >>> from incognita import ClassifierOutputs
    >>> from incognita.containers.outputs import Head
    >>> head = Head(torch.eye(2), torch.zeros(2))
    >>> known = ClassifierOutputs(("a",), torch.ones(1, 2), torch.ones(1, 2), head=head)
    >>> row = torch.tensor([[4.0, -3.0]])
    >>> NCI(alpha=0.1).fit(known).score(ClassifierOutputs(("b",), row, row, head=head))
    tensor([-1.3000], dtype=torch.float64)
    """

    alpha: int | float = 1e-4
    needs: ClassVar[Needs] = Needs.LOGITS | Needs.FEATURES | Needs.HEAD | Needs.KNOWN
    search_space: ClassVar[Mapping[str, tuple[Any, ...]]] = {"alpha": (1e-4, 1e-3, 1e-2, 1e-1)}

    def fit_statistics(self, known: Rows, validation: Rows) -> None:
        self.mean_ = overall_mean(known.features)

    def score_rows(self, rows: Rows) -> Float[Tensor, "n"]:
        mean = self.mean_.to(rows.features.device)
        weight = rows.head.weight.detach().to(mean)

        def misfit(features: Tensor, logits: Tensor) -> Tensor:
            deviations = features.double() - mean
            alignment = (deviations * weight[logits.argmax(dim=1)]).sum(dim=1)
            cosine = alignment / _lengths(deviations).clamp_min(_SHORTEST)
            return -cosine - self.alpha * features.double().abs().sum(dim=1)

        return by_chunk(misfit, rows.features, rows.logits)


def _lengths(rows: Tensor) -> Float[Tensor, "n"]:
    lengths: Tensor = vector_norm(rows, dim=1)
    return lengths
