"""The k largest inner products of queries with a bank of vectors: exact, in blocks.

A matrix multiplication in bfloat16 (where the processor has it) or float32 says which rows of the
bank may be among the k best of a query: all that its rounding error cannot exclude. Those are
multiplied again in float64. Both ways, and batches of any size, give the same numbers. Memory is
that of a few blocks: a bank may be a mapped file that is larger than the memory.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from incognita.kernels.neighbors import (
    OVERFLOWN,
    best_of_candidates,
    dot_products,
    gather_candidates,
)
from incognita.methods.numerics.rows import by_chunk, chunks, new_rows
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


_ROOM = 2**23  # numbers of a table that is kept during a pass over the bank
_TRIAL = 256  # queries that show whether bfloat16 pays, and the fewest for which it can
_ENOUGH_ROWS = 4096
_ROWS_ON_DEVICE = 65_536
_MOST_OVERFLOWN = 0.1  # share of a first block from which on bfloat16 does not pay


def largest_products(queries: Float[Tensor, "m d"], bank: Bank, k: int) -> Float[Tensor, "m k"]:
    """Give the k largest inner products of each query, at unit length, with the bank.

    Largest first, float64, on the device of the queries. A query of zeros has products of zero.
    On other devices than the processor the k rows are chosen by float32 products.

    >>> bank = Bank(torch.tensor([[1.0, 0.0], [0.0, 1.0], [3.0, 4.0]]), torch.tensor([1, 1, 0.2]))
    >>> largest_products(torch.tensor([[2.0, 0.0]]), bank, 2)
    tensor([[1.0000, 0.6000]], dtype=torch.float64)
    """
    return _last_products(queries, bank, k, k)


def kth_products(queries: Float[Tensor, "m d"], bank: Bank, k: int) -> Float[Tensor, "m"]:
    """Give the k-th largest of these products alone, the same number for a fraction of the work.

    >>> bank = Bank(torch.tensor([[1.0, 0.0], [0.0, 1.0], [3.0, 4.0]]), torch.tensor([1, 1, 0.2]))
    >>> kth_products(torch.tensor([[2.0, 0.0]]), bank, 2)
    tensor([0.6000], dtype=torch.float64)
    """
    return _last_products(queries, bank, k, 1)[:, 0]


def _last_products(
    queries: Float[Tensor, "m d"], bank: Bank, k: int, n_last: int
) -> Float[Tensor, "m n_last"]:
    """Give the last few of the k largest products."""
    device = queries.device if bank.rows.is_cpu else bank.rows.device
    n_at_once = max(_TRIAL, _ROOM // max(queries.shape[1], capacity_of(k)))
    best = queries.new_zeros(len(queries), n_last, dtype=torch.float64)
    for part, best_of_part in chunks(queries, best, rows=n_at_once):
        unit = _at_unit_length(part.to(device))
        if device.type == "cpu":
            best_of_part.copy_(_search_on_processor(unit, bank, k, n_last))
        else:
            best_of_part.copy_(_search_on_device(unit, bank, k)[:, k - n_last :])
    return best


def inverse_lengths(features: Float[Tensor, "n d"]) -> Float[Tensor, "n"]:
    """Give 1 / length of each row in float64; a row of zeros, which has no direction, gets 0."""
    lengths = by_chunk(lambda part: torch.linalg.vector_norm(part.double(), dim=1), features)
    return torch.where(lengths > 0, 1 / lengths, 0.0)


def kept_rows(features: Float[Tensor, "n d"], keep: Bool[Tensor, "n"]) -> Float[Tensor, "kept d"]:
    """Give the marked rows as a table that a bank can be; no copy is made where all are kept."""
    is_fit = features.dtype in (torch.float32, torch.float64) and features.is_contiguous()
    if is_fit and bool(keep.all()):
        return features.detach()
    dtype = torch.float64 if features.dtype == torch.float64 else torch.float32
    kept = new_rows(int(keep.sum()), features.shape[1], dtype=dtype)
    first = 0
    for part, part_keep in chunks(features, keep):
        rows = part[part_keep]
        kept[first : first + len(rows)] = rows.detach()
        first += len(rows)
    return kept.to(features.device)


def has_fast_bfloat16() -> bool:
    """Say whether the processor multiplies bfloat16 numbers in hardware, and torch makes use of it.

    Where torch is too old to tell, the answer is no: float32 gives the same numbers.
    """
    ask: Callable[[], Mapping[str, Any]] = getattr(torch.cpu, "get_capabilities", dict)
    has_instructions = ask().get("avx512_bf16") or ask().get("amx_bf16")
    has_library = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    return bool(has_instructions and has_library)


def _at_unit_length(queries: Tensor) -> Tensor:
    rows = queries.detach().to(torch.float64, copy=True)
    lengths = torch.linalg.vector_norm(rows, dim=1, keepdim=True)
    return rows.mul_(torch.where(lengths > 0, 1 / lengths, 0.0))


def _search_on_processor(unit: Tensor, bank: Bank, k: int, n_last: int) -> Tensor:
    """Decide queries by bfloat16 products where that pays, then by float32, then one by one."""
    best = torch.zeros(len(unit), n_last, dtype=torch.float64)
    is_open = torch.linalg.vector_norm(unit, dim=1) > 0
    if len(unit) >= _TRIAL and len(bank) >= _ENOUGH_ROWS and has_fast_bfloat16():
        first, rest = unit[:_TRIAL], unit[_TRIAL:]
        _decide(BFloat16, first, bank, k, best[:_TRIAL], is_open[:_TRIAL])
        if is_open[:_TRIAL].sum() <= _MOST_OVERFLOWN * _TRIAL:
            _decide(BFloat16, rest, bank, k, best[_TRIAL:], is_open[_TRIAL:])
    _decide(Float32, unit, bank, k, best, is_open)
    for place in is_open.nonzero()[:, 0]:
        best[place] = best_of_all(unit[place], bank, k)[k - n_last :]
    return best


def _decide(
    rounding: type[Float32] | type[BFloat16],
    unit: Tensor,
    bank: Bank,
    k: int,
    best: Tensor,
    is_open: Tensor,
) -> None:
    """Fill the best products of open queries, and close those that did not overflow."""
    if not is_open.any():
        return
    queries = unit if is_open.all() else unit[is_open]
    candidates = Candidates(rounding(queries, bank), len(bank), k)
    best[is_open] = candidates.best(queries, bank, best.shape[1])
    is_open[is_open.clone()] = candidates.is_overflown


def _search_on_device(unit: Tensor, bank: Bank, k: int) -> Tensor:
    """Choose the k rows by float32 products in blocks, then multiply them in float64."""
    n_at_once = max(1, 2**25 // (k * unit.shape[1]))
    parts = [_exact(part, bank, _chosen(part, bank, k)) for (part,) in chunks(unit, rows=n_at_once)]
    return torch.cat(parts)


def _chosen(unit: Tensor, bank: Bank, k: int) -> Tensor:
    queries = unit.float()
    values = queries.new_zeros(len(unit), 0)
    places = torch.zeros(len(unit), 0, dtype=torch.long, device=unit.device)
    for first in range(0, len(bank), _ROWS_ON_DEVICE):
        part = slice(first, first + _ROWS_ON_DEVICE)
        products = (queries @ bank.rows[part].to(queries).T) * bank.scale[part].to(queries)
        here = torch.arange(products.shape[1], device=unit.device).expand(products.shape) + first
        values, places = torch.cat([values, products], 1), torch.cat([places, here], 1)
        values, order = values.topk(min(k, values.shape[1]), dim=1)
        places = places.gather(1, order)
    return places


def _exact(unit: Tensor, bank: Bank, places: Tensor) -> Tensor:
    home = places.to(bank.rows.device)
    rows = bank.rows[home].to(unit)
    products = torch.einsum("md,mkd->mk", unit, rows) * bank.scale[home].to(unit)
    return products.sort(dim=1, descending=True).values
