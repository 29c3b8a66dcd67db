"""Evaluation mode for the time being: somebody may go on training the network."""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Put a network into evaluation mode; afterwards each part is in the mode it was in.

    >>> network = nn.Sequential(nn.Dropout())
    >>> with evaluating(network):
    ...     network[0].training
    False
    >>> network[0].training
    True
    """
    # a frozen script has no mode
    trained = [each for each in module.modules() if getattr(each, "training", False)]
    if trained:
        module.eval()
    try:
        yield
    finally:
        for each in trained:
            each.training = True
