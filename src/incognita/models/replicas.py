"""What people put around a network, taken off again."""

from torch import nn


def bare(module: nn.Module) -> nn.Module:
    """Take off what hides a network's own submodules from hooks: replicas and compilation.

    >>> bare(nn.DataParallel(nn.Linear(2, 3)))
    Linear(in_features=2, out_features=3, bias=True)
    """
    if isinstance(module, nn.DataParallel | nn.parallel.DistributedDataParallel):
        return bare(module.module)
    inner = getattr(module, "_orig_mod", None)
    return bare(inner) if isinstance(inner, nn.Module) else module
