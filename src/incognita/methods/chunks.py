"""Works on many rows a few at a time, so that memory does not grow with the number of rows."""

import tempfile
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from incognita.shapes import Float

ROWS = 4096
_FILE_BACKED_FROM = 2**30  # bytes


def chunks(*columns: Tensor, rows: int = ROWS) -> Iterator[tuple[Tensor, ...]]:
    """Cut columns of one length into parts of at most `rows` rows, as views.

    >>> [part.tolist() for (part,) in chunks(torch.arange(5), rows=2)]
    [[0, 1], [2, 3], [4]]
    """
    for first in range(0, len(columns[0]), rows):
        yield tuple(column[first : first + rows] for column in columns)


def by_chunk(
    function: Callable[..., Tensor], *columns: Tensor, rows: int = ROWS
) -> Float[Tensor, "n"]:
    """Apply a function that gives one number per row, part by part; the result is float64.

    >>> by_chunk(lambda part: part * 2, torch.arange(3.0), rows=2)
    tensor([0., 2., 4.], dtype=torch.float64)
    """
    parts = [function(*part).double() for part in chunks(*columns, rows=rows)]
    return torch.cat(parts) if parts else torch.zeros(0, dtype=torch.float64)


def new_rows(n: int, d: int) -> Float[Tensor, "n d"]:
    """Give an unset float32 table; a large one lies in an unnamed file that memory can forget."""
    if 4 * n * d < _FILE_BACKED_FROM:
        return torch.empty(n, d)
    with tempfile.NamedTemporaryFile() as file:  # the mapping outlives the name
        return torch.from_file(file.name, shared=True, size=n * d).view(n, d)
