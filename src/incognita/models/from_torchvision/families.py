"""What the families of torchvision's detectors have in common, and what each must say of itself."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, Protocol, runtime_checkable

from torch import Tensor, nn
from torchvision.models.detection.image_list import ImageList  # type: ignore[import-untyped]
from torchvision.models.detection.ssdlite import (  # type: ignore[import-untyped]
    SSDLiteFeatureExtractorMobileNet,
)
from torchvision.ops import batched_nms  # type: ignore[import-untyped]

from incognita.containers.outputs import Head
from incognita.models.detector import BoxFilter, HeadKind
from incognita.shapes import Float, Int

_RULES = {"score_thresh", "detections_per_img", "nms_thresh"}
_BOOKKEEPING = set(vars(nn.Module()))
_SET_BY_FORWARD = {"scales", "map_levels"}  # of the pooling over proposals, from the other settings
_HOMES = ("torchvision.models.detection", "torchvision.ops")


class SelectedBoxes(NamedTuple):
    """The kept boxes of one image, in pixels of what the network saw.

    Labels and the columns of logits are the library's, background or an unused first one included.
    """

    xyxy: Float[Tensor, "boxes 4"]
    confidence: Float[Tensor, "boxes"]
    labels: Int[Tensor, "boxes"]
    logits: Float[Tensor, "boxes columns"]
    features: Float[Tensor, "boxes d"] | None
    source_index: Int[Tensor, "boxes"]
    head_index: Int[Tensor, "boxes"]


@runtime_checkable
class Family(Protocol):
    """How the detectors of one kind keep boxes, and where their logits come from."""

    @property
    def head_kind(self) -> HeadKind: ...

    @property
    def shares_features(self) -> bool: ...

    def rules(self, module: nn.Module) -> BoxFilter:
        """Read the rules off the module."""

    def n_columns(self, module: nn.Module) -> int:
        """Count the library's labels, background included."""

    def heads(self, module: nn.Module) -> tuple[Head, ...]:
        """Give the linear layers behind the logits, with all columns."""

    def head_reason(self, module: nn.Module) -> str | None:
        """Say why there are none, where there are none."""

    def has_features(self, module: nn.Module) -> bool:
        """Say whether boxes come with what the class layer saw."""

    def latent(self, module: nn.Module) -> str:
        """Name the submodule that LaRD reads."""

    def find(
        self,
        module: nn.Module,
        images: ImageList,
        maps: Mapping[str, Tensor],
        rules: BoxFilter,
    ) -> list[SelectedBoxes]:
        """Run what stands behind the backbone and keep boxes as the library does."""


def rules_of(settings: Any) -> BoxFilter:
    """Read the rules off the part of a module that holds them."""
    return BoxFilter(
        score_threshold=float(settings.score_thresh),
        max_per_image=int(settings.detections_per_img),
        nms_iou=float(settings.nms_thresh),
    )


def surest(
    xyxy: Float[Tensor, "boxes 4"],
    confidence: Float[Tensor, "boxes"],
    labels: Int[Tensor, "boxes"],
    rules: BoxFilter,
) -> Int[Tensor, "kept"]:
    """Give the places of the boxes that no surer box of their label covers, the surest first."""
    kept: Tensor = batched_nms(xyxy.detach(), confidence.detach(), labels, rules.nms_iou)
    return kept[: rules.max_per_image]


def settings_text(module: nn.Module) -> str:
    """Write down what steers a detector beside its weights: anchors, resizing, numbers of boxes.

    The three settings that the rules stand for are left out: the adapter does not read them.
    """
    parts = ((name, part) for name, part in module.named_modules() if _is_of_library(part))
    return repr({name: _settings(part) for name, part in parts})


def _settings(part: object) -> dict[str, Any]:
    attributes = vars(part)
    ignored = _BOOKKEEPING | _SET_BY_FORWARD
    ignored |= _RULES if set(attributes) >= _RULES else set()
    return {name: _plain(each) for name, each in attributes.items() if name not in ignored}


def _plain(value: Any) -> Any:
    """Give a value as something whose repr is the same in every process."""
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, Tensor):
        return value.tolist()
    if isinstance(value, bool | int | float | str | dict):
        return value
    return _settings(value) if _is_of_library(value) else None


def _is_of_library(thing: object) -> bool:
    kinds = type(thing).__mro__
    return any(kind.__module__.startswith(_HOMES) for kind in kinds)


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
