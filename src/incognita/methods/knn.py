"""Methods that compare features with a bank of known ones: KNN, NNGuide, Relation."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from incognita.containers import ClassifierOutputs, Needs
from incognita.errors import InvalidDataError
from incognita.methods.method import Method, Refit, Rows
from incognita.methods.numerics.neighbor_search import (
    Bank,
    float32_error,
    inverse_lengths,
    kept_rows,
    kth_products,
    largest_products,
)
from incognita.methods.numerics.rows import by_chunk, chunks, full_float32, wider
from incognita.methods.softmax import check_positive
from incognita.shapes import Float

_ROWS = 8192  # of queries whose k best products are held at once
_RELATION_ROWS = 1024  # a block of float64 relations is then eight megabytes
_LARGE = 2**16  # numbers of a bank above which float32 products save time


@dataclass(eq=False)
class KNN(Method):
    r"""KNN: distance to the k-th nearest known feature, at unit length (Sun et al., 2022).

    $$ s(x) = \lVert z(x) - z_{(k)} \rVert_2, \qquad z = f / \lVert f \rVert_2 $$

    with f the features and $z_{(k)}$ the k-th nearest of the known ones.
    Sun et al., Out-of-distribution Detection with Deep Nearest Neighbors, ICML 2022. k = 50 as in
    the paper for CIFAR-10 (200 for CIFAR-100, 1000 for ImageNet); the grid is OpenOOD's, too.

    The search is exact (see `neighbor_search`). The bank is all known rows, without a copy of the
    features; k acts when scoring.

    Departures: the distance as in the paper; OpenOOD takes its square, which ranks alike. Where
    OpenOOD gives every row -3.4e38 for a k above the number of known rows, this is an error.
    A row of zeros has no direction and stays where it is: its distance to any other is 1.

    >>> from incognita import ClassifierOutputs
    >>> known = ClassifierOutputs(
    ...     (0, 1), torch.zeros(2, 2), torch.tensor([[5.0, 0.0], [0.0, 7.0]])
    ... )
    >>> seen = ClassifierOutputs(("a",), torch.zeros(1, 2), torch.tensor([[4.0, 3.0]]))
    >>> KNN(k=1).fit(known).score(seen)  # sqrt(0.2 ** 2 + 0.6 ** 2)
    tensor([0.6325], dtype=torch.float64)
    """

    k: int = 50
    needs: ClassVar[Needs] = Needs.FEATURES | Needs.KNOWN
    search_space: ClassVar[Mapping[str, tuple[Any, ...]]] = {"k": (50, 100, 200, 500, 1000)}

    def __post_init__(self) -> None:
        _check_count(self.title, self.k)

    def fit_statistics(self, known: Rows, validation: Rows) -> None:
        features = known.features
        _check_enough(self.title, self.k, len(features))
        scale = inverse_lengths(features)
        self.bank_ = kept_rows(features, scale > 0)
        self.scale_ = scale[scale > 0]
        self.n_zero_rows_ = len(scale) - len(self.scale_)

    def notes_on(self, known: ClassifierOutputs) -> list[str]:
        return _notes_on_classes(self.title, self.k, known)

    def score_rows(self, rows: Rows) -> Float[Tensor, "n"]:
        _check_enough(self.title, self.k, len(self.bank_) + self.n_zero_rows_)
        return by_chunk(self._distance, rows.features, rows=_ROWS)

    def _distance(self, features: Tensor) -> Tensor:
        distances = (2 - 2 * self._kth_cosines(features)).clamp_min(0).sqrt()
        from_zeros = 0.0 if self.k <= self.n_zero_rows_ else 1.0
        return torch.where(features.any(dim=1), distances, from_zeros)

    def _kth_cosines(self, features: Tensor) -> Tensor:
        bank = Bank(self.bank_, self.scale_)
        if not self.n_zero_rows_:
            return kth_products(features, bank, self.k)
        # a row of zeros is as far from a unit vector as one at 60 degrees
        n = min(self.k, self.n_zero_rows_)
        cosines = largest_products(features, bank, min(self.k, len(bank)))
        cosines = torch.cat([cosines, cosines.new_full((len(features), n), 0.5)], dim=1)
        return cosines.kthvalue(cosines.shape[1] - self.k + 1, dim=1).values


@dataclass(eq=False)
class NNGuide(Method):
    r"""NNGuide: energy times similarity to confident known features (Park et al., 2023).

    $$ s(x) = -E(x) \cdot \frac 1 k \sum_{i \in \text{top } k} \langle z(x), E(x_i) z(x_i) \rangle,
       \qquad z = f / \lVert f \rVert_2, \quad E = \log \sum_c e^{l_c} $$

    with f the features and l the logits; the sum is over the k largest products with the bank, a
    random `share` of the known rows, at least k. Park et al., Nearest Neighbor Guidance for
    Out-of-Distribution Detection, ICCV 2023. k = 100 and a share of 0.01 as in OpenOOD.

    Departures: the bank is drawn, with `seed`. OpenOOD takes the first images of a list that is
    sorted by class: on CIFAR-10 its bank is 600 cats.

    >>> from incognita import ClassifierOutputs
    >>> known = ClassifierOutputs(
    ...     (0, 1), torch.tensor([[2.0], [4.0]]), torch.tensor([[5.0, 0.0], [0.0, 7.0]])
    ... )
    >>> seen = ClassifierOutputs(("a",), torch.tensor([[3.0]]), torch.tensor([[4.0, 3.0]]))
    >>> NNGuide(k=2).fit(known).score(seen)  # -3 * (0.8 * 2 + 0.6 * 4) / 2
    tensor([-6.], dtype=torch.float64)
    """

    k: int = 100
    share: int | float = 0.01
    seed: int = 0
    needs: ClassVar[Needs] = Needs.LOGITS | Needs.FEATURES | Needs.KNOWN
    invalidates: ClassVar[Mapping[str, Refit]] = {
        "k": Refit.STATISTICS,
        "share": Refit.STATISTICS,
        "seed": Refit.STATISTICS,
    }

    def __post_init__(self) -> None:
        _check_count(self.title, self.k)
        if not 0 < self.share <= 1:
            raise InvalidDataError(
                f"NNGuide needs a share of known rows above 0 and up to 1, but got {self.share}."
            )

    def fit_statistics(self, known: Rows, validation: Rows) -> None:
        features = known.features
        _check_enough(self.title, self.k, len(features))
        n_drawn = max(self.k, round(self.share * len(features)))
        rng = torch.Generator().manual_seed(self.seed)
        is_drawn = torch.zeros(len(features), dtype=torch.bool)
        is_drawn[torch.randperm(len(features), generator=rng)[:n_drawn]] = True
        is_drawn = is_drawn.to(features.device)
        self.bank_ = kept_rows(features, is_drawn)
        parts = [
            logits[is_kept].double().logsumexp(dim=1)
            for logits, is_kept in chunks(known.logits, is_drawn)
        ]
        energy = torch.cat(parts)
        self.scale_ = energy * inverse_lengths(self.bank_)
        self.longest_ = float(energy.abs().max())

    def notes_on(self, known: ClassifierOutputs) -> list[str]:
        n_shared = round(self.share * len(known))
        notes = _notes_on_classes(self.title, self.k, known)
        if self.k > n_shared:
            notes.append(
                f"NNGuide: k = {self.k} exceeds its share of known rows, {n_shared} of "
                f"{len(known)}: the bank has k rows, and all of them are neighbors"
            )
        return notes

    def score_rows(self, rows: Rows) -> Float[Tensor, "n"]:
        return by_chunk(self._guided, rows.features, rows.logits, rows=_ROWS)

    def _guided(self, features: Tensor, logits: Tensor) -> Tensor:
        if len(self.bank_) == self.k:  # the k largest are all: their mean is a product with theirs
            parts = chunks(self.scale_, self.bank_)
            total = torch.stack([scale @ rows.double() for scale, rows in parts]).sum(dim=0)
            unit = features.double() * inverse_lengths(features)[:, None]
            guidance = (unit * total.to(unit)).sum(dim=1) / self.k
        else:
            bank = Bank(self.bank_, self.scale_, self.longest_)
            guidance = largest_products(features, bank, self.k).mean(dim=1)
        return -guidance * logits.double().logsumexp(dim=1)


@dataclass(eq=False)
class Relation(Method):
    r"""Relation: negated sum of relations to known rows (Kim et al., 2023).

    $$ s(x) = -\sum_i [r_i > \tau] \, r_i^{\,t},
       \qquad r_i = \max(0, \cos(f, f_i)) \cdot \langle p, p_i \rangle $$

    with f the features, p the softmax of the logits, i all known rows, $\tau$ `threshold` and
    t `power`. Kim et al., Neural Relation Graph: A Unified Framework for Identifying Label Noise
    and Outlier Data, NeurIPS 2023. t = 1, $\tau$ = 0.03 and the grid are those of its code and of
    OpenOOD. A row of zeros has no relation to any.

    A relation that rounding lifts over the threshold would move the score by 0.03: relations within
    the rounding error of it are computed in float64, and with a small bank or a power other than 1
    all are. Features and logits of the bank are not copied; memory is that of a block.

    >>> from incognita import ClassifierOutputs
    >>> known = ClassifierOutputs(
    ...     (0, 1), torch.tensor([[0.0, 0.0], [0.0, 0.0]]), torch.tensor([[5.0, 0.0], [0.0, 7.0]])
    ... )
    >>> seen = ClassifierOutputs(("a",), torch.tensor([[1.0, 1.0]]), torch.tensor([[4.0, 3.0]]))
    >>> Relation().fit(known).score(seen).round(decimals=6)  # -(0.8 * 0.5 + 0.6 * 0.5)
    tensor([-0.7000], dtype=torch.float64)
    """

    power: int | float = 1
    threshold: int | float = 0.03
    needs: ClassVar[Needs] = Needs.LOGITS | Needs.FEATURES | Needs.KNOWN
    search_space: ClassVar[Mapping[str, tuple[Any, ...]]] = {"power": (1, 2, 4, 6, 8)}

    def __post_init__(self) -> None:
        check_positive(self.title, power=self.power)
        if not self.threshold >= 0:
            raise InvalidDataError(
                f"Relation needs a threshold of at least 0, but got {self.threshold}."
            )

    def fit_statistics(self, known: Rows, validation: Rows) -> None:
        self.bank_ = known.features.detach()
        self.scale_ = inverse_lengths(self.bank_)
        self.logits_ = known.logits.detach()

    def score_rows(self, rows: Rows) -> Float[Tensor, "n"]:
        n_at_once = wider(_RELATION_ROWS, rows.features, 8)
        return -by_chunk(self._sum, rows.features, rows.logits, rows=n_at_once)

    def _sum(self, features: Tensor, logits: Tensor) -> Tensor:
        unit = features.double() * inverse_lengths(features)[:, None]
        shares = logits.double().softmax(dim=1)
        # a power would multiply what float32 takes from a relation
        is_float32 = self.bank_.numel() >= _LARGE and self.power == 1
        dtype = torch.float32 if is_float32 else torch.float64
        total = unit.new_zeros(len(unit))
        n_at_once = wider(_RELATION_ROWS, features, 8)
        for block in chunks(self.bank_, self.scale_, self.logits_, rows=n_at_once):
            bank, scale, logits_of_bank = (part.to(unit) for part in block)
            relations = self._relations(unit, shares, bank, scale, logits_of_bank, dtype)
            powers = relations if self.power == 1 else relations**self.power
            total += powers.sum(dim=1, dtype=torch.float64)
        return total

    def _relations(
        self,
        unit: Float[Tensor, "n d"],
        shares: Float[Tensor, "n classes"],
        bank: Float[Tensor, "rows d"],
        scale: Float[Tensor, "rows"],
        logits: Float[Tensor, "rows classes"],
        dtype: torch.dtype,
    ) -> Float[Tensor, "n rows"]:
        """Compute the relations above the threshold; that they are is decided in float64."""
        bank_shares = logits.softmax(dim=1)
        with full_float32():
            cosines = (unit.to(dtype) @ bank.to(dtype).T).mul_(scale.to(dtype)).clamp_(min=0)
            relations = cosines.mul_(shares.to(dtype) @ bank_shares.to(dtype).T)
        if dtype == torch.float64 or self.threshold == 0:
            return relations.mul_(relations > self.threshold)
        slack = float32_error(unit.shape[1]) + float32_error(shares.shape[1])
        i, j = ((relations - self.threshold).abs_() < slack).nonzero(as_tuple=True)
        if len(i) > relations.numel() // 64:
            return self._relations(unit, shares, bank, scale, logits, torch.float64)
        exact = (unit[i] * bank[j]).sum(dim=1).mul_(scale[j]).clamp_(min=0)
        exact *= (shares[i] * bank_shares[j]).sum(dim=1)
        relations.mul_(relations > self.threshold)
        relations[i, j] = torch.where(exact > self.threshold, exact, 0.0).to(dtype)
        return relations


def _notes_on_classes(title: str, k: int, known: ClassifierOutputs) -> list[str]:
    """Return a note if a class has fewer known rows than there are neighbors."""
    if known.labels is None or not len(known):
        return []
    counts = known.labels.bincount()
    fewest = int(counts[counts > 0].min())
    if k <= fewest:
        return []
    return [
        f"{title}: k = {k} exceeds the known rows of the smallest class, {fewest}: not all k "
        f"neighbors can be of that class"
    ]


def _check_count(title: str, k: int) -> None:
    if k < 1:
        raise InvalidDataError(f"{title} needs a k of at least 1, but got {k}.")


def _check_enough(title: str, k: int, n: int) -> None:
    if k > n:
        raise InvalidDataError(
            f"{title} uses neighbor k = {k}, but there are only {n} known rows; "
            f"choose a k of at most {n}."
        )
