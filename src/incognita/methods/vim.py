"""Methods on the part of the features outside the principal space: ViM and Residual."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.linalg import vector_norm

from incognita.containers import Head, Needs
from incognita.errors import InvalidDataError
from incognita.methods.method import Method, Refit, Rows
from incognita.methods.numerics.mahalanobis_distance import centered
from incognita.methods.numerics.rows import by_chunk
from incognita.methods.numerics.statistics import overall_covariance
from incognita.shapes import Float

_SMALL = 2**16  # multiplications per row below which float32 saves nothing
_LEADING = 16  # principal directions without which most rows are short
_MOST_CANCELLED = 16  # a row this much longer than its residual: float32 leaves six digits


@dataclass(eq=False)
class Residual(Method):
    r"""Residual: length of the features outside the principal space (Wang et al., 2022).

    $$ s(x) = |R^T (f - o)|, \quad o = -W^+ b $$ with W and b the head, o the features for which
    all logits are as near to zero as can be, and R the eigenvectors of the average of
    $(f - o)(f - o)^T$ over known rows that are left when those with the largest eigenvalues, the
    principal ones, are taken away. Wang et al., ViM: Out-Of-Distribution with Virtual-Logit
    Matching, CVPR 2022.

    Args:
        dimension: How many eigenvectors are principal. None is the rule of the paper's code: 1000
            if D >= 2048, 512 if D >= 768, else half of D.

    Departures: a dimension of D or more would leave nothing (a score of zero everywhere, as
    OpenOOD's 512 does at D = 512) and is taken as D - 1. OpenOOD fits on known validation data,
    the paper and this on the known training set.

    Known features below lie along the first axis, so the second is what is left.

    >>> from incognita import ClassifierOutputs
    >>> head = Head(torch.eye(2), torch.zeros(2))
    >>> known = ClassifierOutputs(("a",), torch.zeros(1, 2), torch.tensor([[4.0, 0]]), head=head)
    >>> test = ClassifierOutputs(("b",), torch.zeros(1, 2), torch.tensor([[9.0, 2]]), head=head)
    >>> Residual(dimension=1).fit(known).score(test)
    tensor([2.], dtype=torch.float64)
    """

    dimension: int | None = None
    needs: ClassVar[Needs] = Needs.FEATURES | Needs.HEAD | Needs.KNOWN

    def fit_statistics(self, known: Rows, validation: Rows) -> None:
        self.origin_, self.directions_ = _origin_and_directions(known)

    def score_rows(self, rows: Rows) -> Float[Tensor, "n"]:
        return _residuals(rows.features, self.origin_, self.directions_, self.dimension)


@dataclass(eq=False)
class ViM(Method):
    r"""ViM: the residual as a virtual logit, minus energy (Wang et al., 2022).

    $$ s(x) = \alpha |R^T (f - o)| - \log \sum_c \exp(l_c), \quad
    \alpha = \frac{\text{mean of } \max_c l_c}{\text{mean of } |R^T (f - o)|} $$ with l the logits,
    R and o as in `Residual`, and both means over known rows. The probability the paper gives to the
    virtual logit is $1 / (1 + e^{-s})$: the same order, without its saturation. Wang
    et al., ViM: Out-Of-Distribution with Virtual-Logit Matching, CVPR 2022.

    Args:
        dimension: How many eigenvectors are principal. None is the rule of the paper's code: 1000
            if D >= 2048, 512 if D >= 768, else half of D.

    Departures: a dimension of D or more is taken as D - 1 (OpenOOD divides by zero).

    Below alpha is 6 / 2, so the row scores 3 * 5 - log(1 + 1).

    >>> from incognita import ClassifierOutputs
    >>> head = Head(torch.eye(2), torch.zeros(2))
    >>> known = ClassifierOutputs(("a", "b"), torch.tensor([[6.0, 0], [6, 0]]),
    ...     torch.tensor([[4.0, 2], [4, -2]]), head=head)
    >>> test = ClassifierOutputs(("c",), torch.zeros(1, 2), torch.tensor([[7.0, 5]]), head=head)
    >>> ViM(dimension=1).fit(known).score(test)
    tensor([14.3069], dtype=torch.float64)
    """

    dimension: int | None = None
    needs: ClassVar[Needs] = Needs.LOGITS | Needs.FEATURES | Needs.HEAD | Needs.KNOWN
    search_space: ClassVar[Mapping[str, tuple[Any, ...]]] = {"dimension": (256, 1000)}
    invalidates: ClassVar[Mapping[str, Refit]] = {"dimension": Refit.FINALIZE}

    def fit_statistics(self, known: Rows, validation: Rows) -> None:
        self.origin_, self.directions_ = _origin_and_directions(known)

    def finalize(self, known: Rows, validation: Rows) -> None:
        residual = float(self._residuals(known.features).mean())
        length = float(by_chunk(lambda f: vector_norm(f.double(), dim=1), known.features).mean())
        if residual <= torch.finfo(torch.float32).eps * length:
            d = known.features.shape[1]
            raise InvalidDataError(
                f"The {len(known)} known rows do not leave a principal space of "
                f"{_n_principal(self.dimension, d)} of {d} dimensions, so alpha of ViM has no "
                f"value; choose a smaller dimension, or pass more known rows."
            )
        largest = by_chunk(lambda logits: logits.amax(dim=1), known.logits)
        self.alpha_ = float(largest.mean()) / residual

    def score_rows(self, rows: Rows) -> Float[Tensor, "n"]:
        free = by_chunk(lambda logits: logits.double().logsumexp(dim=1), rows.logits)
        return self.alpha_ * self._residuals(rows.features) - free

    def _residuals(self, features: Tensor) -> Tensor:
        return _residuals(features, self.origin_, self.directions_, self.dimension)


def _origin_and_directions(known: Rows) -> tuple[Tensor, Tensor]:
    """Compute o = -W^+ b and the eigenvectors of the second moment about it, ascending."""
    origin = _origin(known.head).to(known.features.device)
    directions: Tensor = torch.linalg.eigh(overall_covariance(known.features, origin))[1]
    return origin, directions.contiguous()  # a file keeps rows, and sums would round otherwise


def _origin(head: Head) -> Float[Tensor, "d"]:
    origin: Tensor = -torch.linalg.pinv(head.weight.detach().double()) @ head.bias.detach().double()
    return origin


def _residuals(
    features: Tensor, origin: Tensor, directions: Tensor, dimension: int | None
) -> Float[Tensor, "n"]:
    """Compute the length of each row along all but the last `dimension` directions.

    Wide rows are multiplied in float32, accurate to about 2e-7; rows that would lose more digits
    are multiplied in float64.
    """
    n_principal = _n_principal(dimension, len(origin))
    start, turn = origin.to(features.device), directions.to(features.device)
    basis, principal = turn.tensor_split([len(origin) - n_principal], dim=1)
    if basis.numel() < _SMALL:
        return by_chunk(lambda rows: vector_norm((rows.double() - start) @ basis, dim=1), features)
    leading, rough_basis = principal[:, -_LEADING:].T.contiguous(), basis.float()

    def length(rows: Tensor) -> Tensor:
        gaps = centered(rows, start)
        # without its leading directions a row is short, and so is what float32 takes from it
        rest = torch.addmm(gaps, gaps @ leading.T, leading, alpha=-1)
        lengths: Tensor = vector_norm(rest.float() @ rough_basis, dim=1, dtype=torch.float64)
        is_open = lengths * _MOST_CANCELLED < vector_norm(rest, dim=1)
        if is_open.any():
            lengths[is_open] = vector_norm(gaps[is_open] @ basis, dim=1)
        return lengths[: len(rows)]

    return by_chunk(length, features, rows=1024)


def _n_principal(dimension: int | None, d: int) -> int:
    if dimension is None:
        return 1000 if d >= 2048 else 512 if d >= 768 else d // 2
    if dimension < 1:
        raise InvalidDataError(
            f"The dimension of the principal space is {dimension}, but it must be at least 1; "
            f"choose a number below the {d} features."
        )
    return min(dimension, d - 1)
