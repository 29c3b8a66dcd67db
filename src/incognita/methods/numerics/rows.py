"""Work on many rows a few at a time, so that memory does not grow with the number of rows."""

import math
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from incognita.shapes import Float

ROWS = 4096
_FILE_BACKED_FROM = 2**27  # bytes; a method may hold several tables


def chunks(*columns: Tensor, rows: int = ROWS) -> Iterator[tuple[Tensor, ...]]:
    """Cut columns of one length into parts of at most `rows` rows, as views.

    >>> [part.tolist() for (part,) in chunks(torch.arange(5), rows=2)]
    [[0, 1], [2, 3], [4]]
    """
    for first in range(0, len(columns[0]), rows):
        yield tuple(column[first : first + rows] for column in columns)


def wider(n: int, column: Tensor, factor: int = 64) -> int:
    """Return how many rows to work on at once where a CPU, with its cache, would take n.

    A GPU takes `factor` times as many: it would wait for the next part otherwise.
    """
    return n * factor if column.is_cuda else n


def by_chunk(
    function: Callable[..., Tensor], *columns: Tensor, rows: int = ROWS
) -> Float[Tensor, "n"]:
    """Apply a function that returns one number per row, part by part; the result is float64.

    >>> by_chunk(lambda part: part * 2, torch.arange(3.0), rows=2)
    tensor([0., 2., 4.], dtype=torch.float64)
    """
    n = len(columns[0])
    if 0 < n <= rows:  # a few rows, perhaps of a model in use, where every allocation counts
        return function(*columns).to(torch.float64, copy=True)
    # allocated once: small results kept between large tables would fragment the memory
    results = torch.empty(n, dtype=torch.float64, device=columns[0].device)
    for first, part in zip(range(0, n, rows), chunks(*columns, rows=rows), strict=True):
        results[first : first + rows] = function(*part)
    return results


@contextmanager
def full_float32() -> Iterator[None]:
    """Multiply float32 matrices in float32, whatever lower precision torch is set to."""
    precision = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(precision)


def new_rows(
    n: int,
    *shape_of_row: int,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
) -> Tensor:
    """Return an uninitialized table; on the host, a large one is mapped to an unnamed file.

    The file is in the folder for temporary files: choose one on a disk by TMPDIR.

    >>> new_rows(3, 2, 5).shape
    torch.Size([3, 2, 5])
    """
    size = n * math.prod(shape_of_row)
    if size * dtype.itemsize < _FILE_BACKED_FROM or torch.device(device).type != "cpu":
        return torch.empty(n, *shape_of_row, dtype=dtype, device=device)
    with tempfile.NamedTemporaryFile() as file:  # the mapping outlives the name
        table = torch.from_file(file.name, shared=True, size=size, dtype=dtype)
    return table.view(n, *shape_of_row)


def drawn_rows(features: Float[Tensor, "n d"], most: int, *, seed: int) -> Float[Tensor, "drawn d"]:
    """Return all rows, or `most` of them drawn uniformly without replacement, in their order.

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
