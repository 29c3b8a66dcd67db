"""Draws some rows where all would be too many to learn from."""

import torch
from torch import Tensor

from incognita.shapes import Float


def drawn_rows(features: Float[Tensor, "n d"], most: int, *, seed: int) -> Float[Tensor, "drawn d"]:
    """Give all rows, or `most` of them drawn evenly without replacement, in their order.

    >>> drawn_rows(torch.arange(4.0)[:, None], 9, seed=0).flatten().tolist()
    [0.0, 1.0, 2.0, 3.0]
    >>> len(drawn_rows(torch.zeros(100, 2), 10, seed=0))
    10
    """
    n = len(features)
    if n <= most:
        return features
    rng = torch.Generator().manual_seed(seed)
    chosen = torch.randperm(n, generator=rng)[:most].sort().values
    return features[chosen.to(features.device)]
