"""Rows of a bank that rounded products cannot exclude from the k best of a query."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from incognita.kernels.neighbors import (
    OVERFLOWN,
    best_of_candidates,
    dot_products,
    gather_candidates,
)
from incognita.shapes import Bool, Float

QUERIES = 1024  # large blocks multiply faster; these products still fit a last-level cache
ROWS = 2048
_FLOAT32 = 2.0**-24  # largest relative error of a rounding to float32
_BFLOAT16 = 2.0**-8  # and to bfloat16


@dataclass(frozen=True, eq=False)
class Bank:
    """Vectors `scale[i] * rows[i]`, none longer than `longest`.

    The rows may be a file mapped to memory: they are read in blocks, never copied as a whole.
    """

    rows: Float[Tensor, "n d"]
    scale: Float[Tensor, "n"]
    longest: int | float = 1.0

    def __len__(self) -> int:
        return len(self.rows)


class Block(NamedTuple):
    """Rows of a bank to multiply queries with, the scale products still lack, and their error."""

    rows: Float[Tensor, "rows d"]
    scale: Float[Tensor, "rows"]
    error: Float[Tensor, "m"]  # per query, of any product so far


class Float32:
    """Products in float32: any order of d additions errs by less than d roundings."""

    def __init__(self, unit: Float[Tensor, "m d"], bank: Bank) -> None:
        self.queries = unit.float()
        self._bank = bank
        error = float32_error(unit.shape[1]) * bank.longest
        self._error = torch.full((len(unit),), error, dtype=torch.float64)

    def block(self, first: int, last: int) -> Block:
        """Prepare rows; the bank itself where it is float32."""
        scale = self._bank.scale[first:last].float()
        return Block(self._bank.rows[first:last].float(), scale, self._error)


class BFloat16:
    """Products of numbers rounded to bfloat16; how far they were moved is measured."""

    def __init__(self, unit: Float[Tensor, "m d"], bank: Bank) -> None:
        self.queries = unit.bfloat16()
        self._moved = torch.linalg.vector_norm(self.queries.double() - unit, dim=1)
        self._bank = bank
        self._row_moved = 0.0

    def block(self, first: int, last: int) -> Block:
        """Round rows, scaled; the largest move of a row so far counts for all."""
        scaled = self._bank.rows[first:last].float() * self._bank.scale[first:last, None].float()
        rows = scaled.bfloat16()
        moved = torch.linalg.vector_norm(scaled.sub_(rows.float()), dim=1)
        self._row_moved = max(self._row_moved, float(moved.max()))
        return Block(rows, torch.ones(len(rows)), self._error())

    def _error(self) -> Float[Tensor, "m"]:
        longest = self._bank.longest
        inputs = self._moved * longest + (1 + self._moved) * self._row_moved
        largest = (1 + self._moved) * (longest + self._row_moved)
        sums = (2 * self.queries.shape[1] + 16) * _FLOAT32 * largest
        error: Tensor = inputs + sums + _rounding_of_result(largest + sums)
        return error


def _rounding_of_result(largest: Float[Tensor, "m"]) -> Float[Tensor, "m"]:
    """Bound the rounding to bfloat16 of numbers up to `largest`.

    Below a power of two it is half as large as above it, and just above it a number can move no
    further than to the power itself: unit vectors, whose products barely exceed 1, profit.
    """
    power = torch.exp2(torch.floor(torch.log2(largest)))
    above = torch.minimum(largest - power, power * _BFLOAT16)
    return torch.maximum(above, power * _BFLOAT16 / 2)


class Candidates:
    """The rows that may be among the k best of each query, found by one way of rounding."""

    def __init__(self, rounding: Float32 | BFloat16, n_rows: int, k: int) -> None:
        n_queries, capacity = len(rounding.queries), capacity_of(k)
        self._k = k
        self._kth = np.full(n_queries, -np.inf, np.float32)
        self._slack = np.zeros(n_queries, np.float32)
        self._counts = np.zeros(n_queries, np.int64)
        self._limits = np.full(n_queries, 2 * k + 128, np.int64)
        self._values = np.empty((n_queries, capacity), np.float32)
        self._rows = np.empty((n_queries, capacity), np.int32)
        n_products = min(n_queries, QUERIES) * min(n_rows, ROWS)
        self._products = torch.empty(n_products)
        self._rounded = torch.empty(n_products, dtype=rounding.queries.dtype)
        for first in range(0, n_rows, ROWS):
            self._gather(rounding, first, min(first + ROWS, n_rows))

    def _gather(self, rounding: Float32 | BFloat16, first_row: int, last_row: int) -> None:
        block = rounding.block(first_row, last_row)
        self._slack[:] = 2 * block.error.numpy()
        scale = block.scale.numpy()
        for first in range(0, len(rounding.queries), QUERIES):
            queries = rounding.queries[first : first + QUERIES]
            part = slice(first, first + len(queries))
            gather_candidates(
                self._multiply(queries, block.rows),
                scale,
                first_row,
                self._k,
                self._slack[part],
                self._kth[part],
                self._counts[part],
                self._limits[part],
                self._values[part],
                self._rows[part],
            )

    def _multiply(self, queries: Tensor, rows: Tensor) -> Float[np.ndarray, "m rows"]:
        n, shape = len(queries) * len(rows), (len(queries), len(rows))
        products = self._products[:n].view(shape)
        if queries.dtype == torch.float32:
            # numpy's BLAS knows no setting that would lower the precision, and is the faster one
            np.matmul(queries.numpy(), rows.numpy().T, out=products.numpy())
            return products.numpy()
        rounded = torch.mm(queries, rows.T, out=self._rounded[:n].view(shape))
        return products.copy_(rounded).numpy()

    @property
    def is_overflown(self) -> Bool[Tensor, "m"]:
        """Mark the queries that have more candidates than there is room for."""
        return torch.from_numpy(self._counts == OVERFLOWN)

    def best(
        self, unit: Float[Tensor, "m d"], bank: Bank, n_last: int
    ) -> Float[Tensor, "m n_last"]:
        """Multiply candidates in float64 and give the last few of the k largest, largest first.

        Queries that overflowed get zeros.
        """
        best = np.zeros((len(unit), n_last))
        best_of_candidates(
            unit.numpy(),
            bank.rows.numpy(),
            bank.scale.double().numpy(),
            self._k,
            self._slack,
            self._counts,
            self._values,
            self._rows,
            best,
        )
        return torch.from_numpy(best)


def float32_error(d: int) -> float:
    """Bound the error of a float32 product of unit vectors of d numbers."""
    return (d + 16) * _FLOAT32


def best_of_all(unit: Float[Tensor, "d"], bank: Bank, k: int) -> Float[Tensor, "k"]:
    """Multiply one query with the whole bank in float64; for thousands of rows that tie."""
    products = dot_products(unit.numpy(), bank.rows.numpy(), bank.scale.double().numpy())
    return torch.from_numpy(products).topk(k).values


def capacity_of(k: int) -> int:
    """How many candidates a query may have; a few times k, as rounding leaves some in doubt."""
    return 4 * k + 1024
