"""Percentiles of all activations, and the largest ones of each row."""

import math

import torch
from torch import Tensor

from incognita.errors import InvalidDataError
from incognita.shapes import Bool, Float, Int

_LARGEST_EXPONENT = 64.0
_MOST = 2**26  # activations in float32: a quarter of a gigabyte


def percentile_of_all(values: Float[Tensor, "n d"], percentile: int | float) -> float:
    """Give the percentile of all numbers of a table, linear between the two next to it.

    Up to 67 million numbers it is exact. Of more, every s-th row is taken, with the smallest s
    that stays at or below that many, give or take a row.

    >>> percentile_of_all(torch.tensor([[0.0, 10.0], [20.0, 30.0]]), 50)
    15.0
    """
    step = math.ceil(values.numel() / _MOST)
    # numpy has no bfloat16; float32 holds every number of the narrower types
    dtype = torch.promote_types(values.dtype, torch.float32)
    # a copy of our own, which can be put into order where it is
    ordered = values.detach()[::step].to("cpu", dtype, copy=True).flatten().numpy()
    place = (len(ordered) - 1) * percentile / 100
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    ordered.partition([below, above])
    low, high = float(ordered[below]), float(ordered[above])
    return low + (high - low) * (place - below)


def n_kept(d: int, percentile: int | float) -> int:
    """How many of d activations lie above a percentile: at least one.

    >>> n_kept(512, 90), n_kept(4, 99)
    (51, 1)
    """
    return max(1, d - round(d * percentile / 100))


def largest_of_row(features: Float[Tensor, "n d"], k: int) -> Bool[Tensor, "n d"]:
    """Mark the k largest of each row; of equal ones the first, whatever the library does.

    >>> largest_of_row(torch.tensor([[1.0, 3.0, 1.0]]), 2).tolist()
    [[True, True, False]]
    """
    kth = features.topk(k, dim=1).values[:, -1:]
    is_above, is_tied = features > kth, features == kth
    n_open = k - is_above.sum(dim=1, keepdim=True)
    return is_above | (is_tied & (is_tied.cumsum(dim=1) <= n_open))


def scaling(features: Float[Tensor, "n d"], n_kept: Int[Tensor, "n"]) -> Float[Tensor, "n 1"]:
    """Give the sum of a row's positive activations over that of its `n_kept` largest.

    It is 1 where none is positive, and ends at 64: e^64 times a feature is still a float32.

    >>> scaling(torch.tensor([[3.0, 1.0, -9.0]]), torch.tensor([1]))
    tensor([[1.3333]])
    """
    positive = features.relu()
    total = positive.sum(dim=1, keepdim=True)
    most = int(n_kept.max()) if len(n_kept) else 1
    sums = positive.topk(most, dim=1).values.cumsum(dim=1)
    kept = sums.gather(1, n_kept[:, None] - 1)
    return torch.where(kept > 0, total / kept, 1.0).clamp_max(_LARGEST_EXPONENT)


def check_percentiles(title: str, **parameters: int | float) -> None:
    """Refuse a percentile that is not between 0 and 100."""
    for name, value in parameters.items():
        if not 0 <= value <= 100:
            raise InvalidDataError(f"{title} needs a {name} between 0 and 100, but got {value}.")
