"""Outputs as a large network gives them: features after a ReLU around class centers, and a head."""

import torch

from incognita.containers.outputs import ClassifierOutputs, Head


def outputs(n: int, n_classes: int, d: int, *, seed: int) -> ClassifierOutputs:
    world = torch.Generator().manual_seed(0)
    centers = torch.randn(n_classes, d, generator=world)
    weight = centers / d**0.5 + 0.02 * torch.randn(n_classes, d, generator=world)
    rng = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, n_classes, (n,), generator=rng)
    features = (centers[labels] + torch.randn(n, d, generator=rng)).relu()
    head = Head(weight, torch.zeros(n_classes))
    return ClassifierOutputs(
        tuple(f"{seed}-{k}" for k in range(n)), head(features), features, labels, head
    )
