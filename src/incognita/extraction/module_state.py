"""What running a module changes, and how it is changed back."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import nn


@contextmanager
def exact_on(device: torch.device) -> Iterator[None]:
    """Make CUDA compute in the precision asked for, and the same in every run."""
    if device.type != "cuda":
        yield
        return
    allow_tf32 = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = False
    try:
        with torch.backends.cudnn.flags(
            enabled=True, benchmark=False, deterministic=True, allow_tf32=False
        ):
            yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = allow_tf32


def restoring(module: nn.Module) -> Callable[[], None]:
    """Note the state of a module; gives a function that brings it back."""
    modes = [(each, each.training) for each in module.modules()]
    weights = [(each, each.device, each.requires_grad) for each in module.parameters()]
    buffers = [(each, each.device) for each in module.buffers()]

    def restore() -> None:
        for each, is_training in modes:
            each.training = is_training
        for weight, device, requires_grad in weights:
            weight.data = weight.data.to(device).contiguous()
            weight.requires_grad_(requires_grad)
        for buffer, device in buffers:
            buffer.data = buffer.data.to(device).contiguous()

    return restore
