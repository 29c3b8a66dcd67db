"""Rows on which float32 loses digits: directions that vary by very different amounts, far away."""

import math

import torch
from torch import Tensor

from incognita.containers.outputs import ClassifierOutputs, Head

D = 320


def falling(high: float, low: float) -> Tensor:
    """Deviations that fall evenly, on a logarithmic scale."""
    return torch.logspace(math.log10(high), math.log10(low), D).double()


def usual(scale: float = 1.0) -> Tensor:
    """A few directions that vary most, many that vary alike, and some that hardly vary."""
    deviations = torch.linspace(1.0, 0.1, D).double()
    deviations[:6], deviations[-20:] = 1000.0, 0.01
    return scale * deviations


class HardRows:
    """Classes around `offset`, with deviations along axes of their own."""

    def __init__(self, deviations: Tensor, *, offset: float = 0.0, n_classes: int = 5) -> None:
        rng = torch.Generator().manual_seed(0)
        self.deviations, self.offset, self.n_classes = deviations, offset, n_classes
        self.axes = torch.linalg.qr(torch.randn(D, D, generator=rng).double()).Q
        spread = torch.randn(n_classes, D, generator=rng).double() * deviations
        self.centers = 0.5 * spread @ self.axes.T
        weight = torch.randn(n_classes, D, generator=rng) / D**0.5
        self.head = Head(weight, torch.randn(n_classes, generator=rng))

    def features(self, n: int, seed: int) -> Tensor:
        rng = torch.Generator().manual_seed(seed)
        noise = torch.randn(n, D, generator=rng).double() * self.deviations
        rows = self.centers[torch.arange(n) % self.n_classes] + noise @ self.axes.T
        return (rows + self.offset).float()

    def unknown(self, seed: int) -> Tensor:
        """Rows far out along every axis alone, rows all over the place, and huge ones."""
        rng = torch.Generator().manual_seed(seed)
        along = (self.axes * self.deviations * 1e3).T
        around = torch.randn(20, D, generator=rng).double() * self.deviations.mean()
        return (torch.cat([along, around, 1e4 * around]) + self.offset).float()

    def outputs(self, features: Tensor, *, is_known: bool = False) -> ClassifierOutputs:
        ids = tuple(range(len(features)))
        labels = torch.arange(len(features)) % self.n_classes if is_known else None
        return ClassifierOutputs(ids, self.head(features), features, labels, self.head)

    def known(self, n: int = 1500) -> ClassifierOutputs:
        return self.outputs(self.features(n, 1), is_known=True)
