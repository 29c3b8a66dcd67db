"""Products that leave out zeros give what whole products give."""

import pytest
import torch

from incognita.methods.numerics.mahalanobis_distance import (
    centered,
    narrow_product,
    trapezoid,
    trapezoid_product,
)


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).double()


@pytest.mark.parametrize(("d", "rank"), [(1, 1), (40, 40), (300, 210), (130, 97), (50, 3), (9, 0)])
def test_a_trapezoid_gives_the_lengths_of_the_matrix_it_was_turned_from(d, rank):
    root, rows = random(d, rank), random(7, d, seed=1)
    turned = trapezoid(root)
    assert torch.equal(turned, turned.tril())
    torch.testing.assert_close(turned @ turned.T, root @ root.T)
    torch.testing.assert_close(trapezoid_product(rows, turned), rows @ turned)
    lengths = trapezoid_product(rows, turned).norm(dim=1)
    torch.testing.assert_close(lengths, (rows @ root).norm(dim=1))


def test_what_stands_above_the_diagonal_is_not_looked_at_beyond_the_first_columns():
    root = random(300, 300)
    assert not torch.allclose(
        trapezoid_product(random(2, 300, seed=1), root), random(2, 300) @ root
    )


@pytest.mark.parametrize("n", [0, 1, 16, 21])
def test_centered_rows_are_followed_by_zeros_up_to_a_multiple_of_16(n):
    rows, shift = random(n, 5).float(), random(5, seed=1)
    found = centered(rows, shift)
    assert found.dtype == torch.float64
    assert len(found) % 16 == 0
    assert torch.equal(found[:n], rows.double() - shift)
    assert not found[n:].any()


def test_a_narrow_product_is_a_product():
    rows, columns = random(30, 12), random(3, 12, seed=1)
    torch.testing.assert_close(narrow_product(rows, columns), rows @ columns.T)
