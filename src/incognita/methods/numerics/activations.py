"""Percentiles of all activations, and the largest ones of each row."""

import math

import numpy as np
import torch
from torch import Tensor

from incognita.containers.outputs import Head
from incognita.errors import InvalidDataError
from incognita.kernels.selection import kth_largest, mark_largest, sum_largest
from incognita.shapes import Bool, Float, Int

_LARGEST_EXPONENT = 64.0
_MOST = 2**26  # activations in float32: a quarter of a gigabyte


def percentile_of_all(values: Float[Tensor, "n d"], percentile: int | float) -> float:
    """Compute the percentile of all numbers of a table, interpolated linearly.

    It is exact up to 67 million numbers. Of more, every s-th row is taken, with the smallest s
    that stays at about that many.

    >>> percentile_of_all(torch.tensor([[0.0, 10.0], [20.0, 30.0]]), 50)
    15.0
    """
    step = math.ceil(values.numel() / _MOST)
    # numpy has no bfloat16; float32 holds every number of the narrower types
    dtype = torch.promote_types(values.dtype, torch.float32)
    # a copy, because it is partitioned in place
    numbers = values.detach()[::step].to(dtype, copy=True).flatten()
    place = (len(numbers) - 1) * percentile / 100
    below = math.floor(place)
    low, high = _neighbors(numbers, below, min(below + 1, len(numbers) - 1))
    return low + (high - low) * (place - below)


def _neighbors(numbers: Float[Tensor, "n"], below: int, above: int) -> tuple[float, float]:
    """Return the numbers that would be at two places if all were sorted; changes their order."""
    if not numbers.is_cpu:  # sorting all is faster there than selecting two
        ordered = numbers.sort().values
        return float(ordered[below]), float(ordered[above])
    array = numbers.numpy()
    array.partition([below, above])
    return float(array[below]), float(array[above])


def n_kept(d: int, percentile: int | float) -> int:
    """Return how many of d activations lie above a percentile: at least one.

    >>> n_kept(512, 90), n_kept(4, 99)
    (51, 1)
    """
    return max(1, d - round(d * percentile / 100))


def largest_of_row(features: Float[Tensor, "n d"], k: int) -> Bool[Tensor, "n d"]:
    """Mark the k largest of each row; of equal ones the first.

    >>> largest_of_row(torch.tensor([[1.0, 3.0, 1.0]]), 2).tolist()
    [[True, True, False]]
    """
    kth = kth_of_row(features, k)
    if _uses_kernels(features):
        is_kept = torch.empty(features.shape, dtype=torch.bool)
        mark_largest(_array(features), _array(kth), k, is_kept.numpy())
        return is_kept
    is_above, is_tied = features > kth[:, None], features == kth[:, None]
    n_open = k - is_above.sum(dim=1, keepdim=True)
    return is_above | (is_tied & (is_tied.cumsum(dim=1) <= n_open))


def kth_of_row(features: Float[Tensor, "n d"], k: int | Int[Tensor, "n"]) -> Float[Tensor, "n"]:
    """Return the k-th largest of each row, for one k or one k per row.

    >>> kth_of_row(torch.tensor([[1.0, 3.0, 2.0], [7.0, 7.0, 5.0]]), 2)
    tensor([2., 7.])
    """
    counts = torch.as_tensor(k, device=features.device).expand(len(features))
    if not _uses_kernels(features):
        most = k if isinstance(k, int) else int(counts.max()) if len(counts) else 1
        return features.topk(most, dim=1).values.gather(1, counts[:, None] - 1)[:, 0]
    rows = _array(features)
    integer = np.int64 if rows.dtype == np.float64 else np.int32
    kth = np.empty(len(rows), rows.dtype)
    kth_largest(rows.view(integer), counts.numpy(), kth.view(integer))
    return torch.from_numpy(kth).to(features.dtype)


def scaling(features: Float[Tensor, "n d"], n_kept: int | Int[Tensor, "n"]) -> Float[Tensor, "n 1"]:
    """Divide the sum of a row's positive activations by that of its `n_kept` largest.

    It is 1 where none is positive, and at most 64: e^64 times a feature is still a float32.

    >>> scaling(torch.tensor([[3.0, 1.0, -9.0]]), 1)
    tensor([[1.3333]])
    """
    return scaling_by(features, _sum_of_largest(features, n_kept))


def scaling_by(features: Float[Tensor, "n d"], kept: Float[Tensor, "n"]) -> Float[Tensor, "n 1"]:
    """Compute `scaling` from the sum of the largest."""
    total = features.relu().sum(dim=1)
    return torch.where(kept > 0, total / kept, 1.0).clamp_max(_LARGEST_EXPONENT)[:, None]


def _sum_of_largest(features: Tensor, n_kept: int | Tensor) -> Float[Tensor, "n"]:
    """Add up what is positive among the largest of each row."""
    kth = kth_of_row(features, n_kept)
    counts = torch.as_tensor(n_kept, device=features.device).expand(len(features))
    if _uses_kernels(features):
        sums = np.empty(len(features))
        sum_largest(_array(features), _array(kth), counts.numpy(), sums)
        return torch.from_numpy(sums).to(features.dtype)
    limit = kth.relu()
    is_above = features > limit[:, None]
    above = torch.where(is_above, features, 0.0).sum(dim=1)
    return above + (counts - is_above.sum(dim=1)) * limit


def _uses_kernels(features: Tensor) -> bool:
    """Whether compiled loops can be used; torch exports only its own operations."""
    return features.is_cpu and not torch.compiler.is_exporting()


def _array(values: Tensor) -> Float[np.ndarray, "..."]:
    """Convert to numpy, which has no bfloat16; float32 holds every number of narrower types."""
    dtype = torch.promote_types(values.dtype, torch.float32)
    return values.detach().to(dtype).contiguous().numpy()


def float64_logits(head: Head, features: Float[Tensor, "n d"]) -> Float[Tensor, "n classes"]:
    """Apply a head to float64 features without rounding on the way."""
    weight, bias = head.weights_like(features)
    return torch.addmm(bias[:, None], weight, features.T).T.contiguous()


def check_percentiles(title: str, **parameters: int | float) -> None:
    """Raise for a percentile that is not between 0 and 100."""
    for name, value in parameters.items():
        if not 0 <= value <= 100:
            raise InvalidDataError(f"{title} needs a {name} between 0 and 100, but got {value}.")
