"""The k largest inner products of queries with a bank of vectors: exact, in blocks.

Float32 products choose the candidates of each query, more than k; those that rounding could have
put in the wrong order are multiplied again in float64. Where rounding could even have left one out,
the query is compared with the whole bank in float64. Memory is that of a few blocks: a bank may be
a mapped file that is larger than the memory.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from incognita.methods.numerics.rows import by_chunk, chunks, full_float32, new_rows, wider
from incognita.shapes import Bool, Float, Int

QUERIES = 1024
ROWS = 65_536  # of the bank, multiplied with the queries of a block: 256 MiB of products
_ROOM = 2**18  # float64 numbers multiplied again at once: they stay in the cache
_FLOAT32 = 2.0**-24  # largest relative error of a rounding to float32


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


def largest_products(queries: Float[Tensor, "m d"], bank: Bank, k: int) -> Float[Tensor, "m k"]:
    """Return the k largest inner products of each query, at unit length, with the bank.

    Largest first, float64, on the device of the queries. A query of zeros has products of zero.

    >>> bank = Bank(torch.tensor([[1.0, 0.0], [0.0, 1.0], [3.0, 4.0]]), torch.tensor([1, 1, 0.2]))
    >>> largest_products(torch.tensor([[2.0, 0.0]]), bank, 2)
    tensor([[1.0000, 0.6000]], dtype=torch.float64)
    """
    return _by_block(queries, bank, k, only_last=False)


def kth_products(queries: Float[Tensor, "m d"], bank: Bank, k: int) -> Float[Tensor, "m"]:
    """Return only the k-th largest of these products, with fewer float64 products.

    >>> bank = Bank(torch.tensor([[1.0, 0.0], [0.0, 1.0], [3.0, 4.0]]), torch.tensor([1, 1, 0.2]))
    >>> kth_products(torch.tensor([[2.0, 0.0]]), bank, 2)
    tensor([0.6000], dtype=torch.float64)
    """
    return _by_block(queries, bank, k, only_last=True)[:, 0]


def inverse_lengths(features: Float[Tensor, "n d"]) -> Float[Tensor, "n"]:
    """Compute 1 / length of each row in float64; a row of zeros, which has no direction, gets 0."""
    lengths = by_chunk(lambda part: torch.linalg.vector_norm(part.double(), dim=1), features)
    return torch.where(lengths > 0, 1 / lengths, 0.0)


def float32_error(d: int) -> float:
    """Bound the error of a float32 product of unit vectors of d numbers."""
    return (d + 16) * _FLOAT32


def kept_rows(features: Float[Tensor, "n d"], keep: Bool[Tensor, "n"]) -> Float[Tensor, "kept d"]:
    """Return the marked rows as a table that a bank can be; no copy is made where all are kept."""
    is_fit = features.dtype in (torch.float32, torch.float64) and features.is_contiguous()
    if is_fit and bool(keep.all()):
        return features.detach()
    dtype = torch.float64 if features.dtype == torch.float64 else torch.float32
    n_kept = int(keep.sum())
    kept = new_rows(n_kept, features.shape[1], dtype=dtype, device=features.device)
    first = 0
    for part, part_keep in chunks(features, keep):
        rows = part[part_keep]
        kept[first : first + len(rows)] = rows.detach()
        first += len(rows)
    return kept


def _by_block(queries: Tensor, bank: Bank, k: int, *, only_last: bool) -> Float[Tensor, "m kept"]:
    device = queries.device if bank.rows.is_cpu else bank.rows.device
    best = queries.new_zeros(len(queries), 1 if only_last else k, dtype=torch.float64)
    if k == 0:
        return best
    # allocated once for all blocks
    room = torch.empty(min(QUERIES, len(queries)), min(ROWS, len(bank)), device=device)
    for part, best_of_part in chunks(queries, best, rows=QUERIES):
        rows = part.detach().to(device).double()
        unit = rows * inverse_lengths(rows)[:, None]
        is_open = unit.any(dim=1)
        for dtype in (torch.float32, torch.float64):
            if is_open.any():
                found, is_certain = _search(
                    unit[is_open], bank, k, room.to(dtype), only_last=only_last
                )
                best_of_part[is_open.to(best.device)] = found.to(best.device)
                is_open[is_open.clone()] = ~is_certain
    return best


def _search(
    unit: Float[Tensor, "m d"], bank: Bank, k: int, room: Float[Tensor, "_ _"], *, only_last: bool
) -> tuple[Float[Tensor, "m kept"], Bool[Tensor, "m"]]:
    """Return the products by candidates, and whether these surely hold the k best.

    Candidates are chosen in the type of `room`, a table for the products of a block.
    """
    values, places = _candidates(unit.to(room.dtype), bank, min(2 * k + 64, len(bank)), room)
    kth, slack = values[:, k - 1 : k], 2 * float32_error(unit.shape[1]) * bank.longest
    # what is surely above the k-th need not be multiplied again to find the k-th
    first = (values > kth + slack).sum(dim=1, keepdim=True) * only_last
    n_open = (values >= kth - slack).sum(dim=1, keepdim=True) - first
    columns = torch.arange(int(n_open.max()), device=unit.device).expand(len(unit), -1)
    chosen = places.gather(1, (first + columns).clamp_max(places.shape[1] - 1))
    exact = _exact(unit, bank, chosen).masked_fill(columns >= n_open, -torch.inf)
    exact = exact.sort(dim=1, descending=True).values
    is_certain = values[:, -1] < kth[:, 0] - slack
    is_all = room.dtype == torch.float64 or places.shape[1] == len(bank)
    return exact.gather(1, k - 1 - first) if only_last else exact[:, :k], is_certain | is_all


def _candidates(
    queries: Float[Tensor, "m d"], bank: Bank, n: int, room: Float[Tensor, "_ _"]
) -> tuple[Float[Tensor, "m n"], Int[Tensor, "m n"]]:
    """Find the n largest products, largest first, in the type of the queries, and their rows."""
    values, places = queries.new_zeros(len(queries), 0), queries.new_zeros(len(queries), 0).long()
    for first in range(0, len(bank), ROWS):
        rows, scale = (t[first : first + ROWS].to(queries) for t in (bank.rows, bank.scale))
        with full_float32():
            products = torch.mm(queries, rows.T, out=room[: len(queries), : len(rows)])
            products.mul_(scale)
        found, here = products.topk(min(n, len(rows)), dim=1)
        values, places = torch.cat([values, found], 1), torch.cat([places, here + first], 1)
        values, order = values.topk(min(n, values.shape[1]), dim=1)
        places = places.gather(1, order)
    return values, places


def _exact(
    unit: Float[Tensor, "m d"], bank: Bank, places: Int[Tensor, "m n"]
) -> Float[Tensor, "m n"]:
    """Multiply queries with chosen rows in float64, always in the same order."""
    parts = []
    room = wider(_ROOM, unit, 256)
    n_at_once = max(1, room // max(1, places.shape[1] * unit.shape[1]))
    for queries, chosen in chunks(unit, places, rows=n_at_once):
        home = chosen.flatten().to(bank.rows.device)
        rows, scale = (t.index_select(0, home).to(unit) for t in (bank.rows, bank.scale))
        products = rows.view(*chosen.shape, unit.shape[1]).mul_(queries[:, None]).sum(dim=2)
        parts.append(products.mul_(scale.view(chosen.shape)))
    return torch.cat(parts)
