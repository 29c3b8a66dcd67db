"""The layers of torchvision's backbones that are worth recording, by name."""

from collections.abc import Iterator

from torch import nn
from torchvision.models.detection.ssdlite import (  # type: ignore[import-untyped]
    SSDLiteFeatureExtractorMobileNet,
)

_MOST = 6


def shortcuts_of(backbone: nn.Module) -> tuple[str, ...]:
    """Name the layers SAFE reads: convolutions in shortcuts, or the stages where there is none.

    Wilson et al., SAFE (2023), takes the shortcut of the first block of each stage of a ResNet.
    """
    names = [name for name, _ in backbone.named_modules()]
    return tuple(name for name in names if name.endswith("downsample")) or stages_of(backbone)


def stages_of(backbone: nn.Module) -> tuple[str, ...]:
    """Name at most six stages, evenly spaced, the last among them.

    Below a pyramid: the layers whose maps go into it. Otherwise children with weights, each with
    the normalization and activation behind it.

    >>> stages_of(nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.ReLU()))
    ('1', '3')
    """
    body = getattr(backbone, "body", None)
    if isinstance(body, nn.Module):
        returned = getattr(body, "return_layers", None)
        names = _ends(body) if returned is None else [n for n, _ in body.named_children()]
        stages = [f"body.{name}" for name in names if returned is None or name in returned]
    else:
        stages = _ends(backbone)
    n = min(len(stages), _MOST)
    return tuple(stages[(k + 1) * len(stages) // n - 1] for k in range(n))


def _ends(module: nn.Module) -> list[str]:
    """Cut the children before each one with a kernel of weights; name the last of each part."""
    ends: list[str] = []
    for name, child in _opened(module):
        if any(weight.ndim > 1 for weight in child.parameters()):
            ends.append(name)
        elif ends:
            ends[-1] = name
    return ends


def _opened(module: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """List the children that are called; a list of modules is not, its members are."""
    for name, child in module.named_children():
        # this one goes through its `features` as through a list
        is_list = isinstance(module, SSDLiteFeatureExtractorMobileNet)
        if is_list or isinstance(child, nn.ModuleList):
            yield from ((f"{name}.{key}", each) for key, each in child.named_children())
        else:
            yield name, child
