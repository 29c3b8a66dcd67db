"""The detector families of torchvision: two-stage (R-CNN) and dense (RetinaNet, FCOS, SSD).

A family knows where its logits come from, and keeps boxes as the library does.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor, nn
from torchvision.models.detection.faster_rcnn import (  # type: ignore[import-untyped]
    FastRCNNPredictor,
)
from torchvision.models.detection.image_list import ImageList  # type: ignore[import-untyped]
from torchvision.models.detection.ssdlite import (  # type: ignore[import-untyped]
    SSDLiteFeatureExtractorMobileNet,
)
from torchvision.ops import (  # type: ignore[import-untyped]
    batched_nms,
    clip_boxes_to_image,
    remove_small_boxes,
)

from incognita.containers.outputs import Head
from incognita.errors import InvalidDataError
from incognita.models.detector import BoxFilter, HeadKind
from incognita.models.introspection import attach_input, eval_mode, head_of
from incognita.shapes import Float, Int

_FILTER_SETTINGS = {"score_thresh", "detections_per_img", "nms_thresh"}
_BOOKKEEPING = set(vars(nn.Module()))
_SET_BY_FORWARD = {"scales", "map_levels"}  # of the RoI pooling, computed from other settings
_HOMES = ("torchvision.models.detection", "torchvision.ops")
_MAX_STAGES = 6
_CLASS_LAYER = "roi_heads.box_predictor.cls_score"
_SMALLEST_SIDE = 1e-2  # pixels; the library drops smaller boxes before non-maximum suppression


class SelectedBoxes(NamedTuple):
    """The kept boxes of one image, in pixels of the network's input.

    Labels and columns of logits are those of the library, including background or an unused first
    column.
    """

    xyxy: Float[Tensor, "boxes 4"]
    confidence: Float[Tensor, "boxes"]
    labels: Int[Tensor, "boxes"]
    logits: Float[Tensor, "boxes columns"]
    features: Float[Tensor, "boxes d"] | None
    source_index: Int[Tensor, "boxes"]
    head_index: Int[Tensor, "boxes"]


@runtime_checkable
class TorchvisionFamily(Protocol):
    """How one kind of detector keeps boxes, and where its logits come from."""

    @property
    def head_kind(self) -> HeadKind: ...

    @property
    def shares_features(self) -> bool: ...

    def rules(self, module: nn.Module) -> BoxFilter:
        """Read the box filter from the module."""

    def n_columns(self, module: nn.Module) -> int:
        """Return the number of labels of the library, including background."""

    def heads(self, module: nn.Module) -> tuple[Head, ...]:
        """Return the linear layers that compute the logits, with all columns."""

    def head_reason(self, module: nn.Module) -> str | None:
        """Return why there are no heads, or None."""

    def has_features(self, module: nn.Module) -> bool:
        """Return whether boxes come with the input of the class layer."""

    def latent(self, module: nn.Module) -> str:
        """Return the name of the submodule that LaRD reads."""

    def find(
        self,
        module: nn.Module,
        images: ImageList,
        maps: Mapping[str, Tensor],
        rules: BoxFilter,
    ) -> list[SelectedBoxes]:
        """Run the network after the backbone and keep boxes as the library does."""


def rules_of(settings: Any) -> BoxFilter:
    """Read the box filter from the submodule that holds its settings."""
    return BoxFilter(
        score_threshold=float(settings.score_thresh),
        max_per_image=int(settings.detections_per_img),
        nms_iou=float(settings.nms_thresh),
    )


def suppress(
    xyxy: Float[Tensor, "boxes 4"],
    confidence: Float[Tensor, "boxes"],
    labels: Int[Tensor, "boxes"],
    rules: BoxFilter,
) -> Int[Tensor, "kept"]:
    """Return the indices of the boxes left by non-maximum suppression, most confident first."""
    kept: Tensor = batched_nms(xyxy.detach(), confidence.detach(), labels, rules.nms_iou)
    return kept[: rules.max_per_image]


# two-stage ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TwoStage:
    """Faster R-CNN, and Mask and Keypoint R-CNN by their boxes.

    Label 0 is background. Every proposal has a box and a confidence per class, so that one proposal
    may be kept under several labels, which share a row of logits.
    """

    head_kind: HeadKind = HeadKind.SOFTMAX
    shares_features: bool = True

    def rules(self, module: nn.Module) -> BoxFilter:
        return rules_of(module.roi_heads)

    def n_columns(self, module: nn.Module) -> int:
        return len(_class_layer(module).weight)

    def heads(self, module: nn.Module) -> tuple[Head, ...]:
        is_headless = self.head_reason(module) is not None
        return () if is_headless else (head_of(_class_layer(module)),)

    def head_reason(self, module: nn.Module) -> str | None:
        layer = _class_layer(module)
        if type(layer).forward is not nn.Linear.forward:
            return f"{_CLASS_LAYER} is a {type(layer).__name__}, which is not linear."
        if _gives_logits(module, layer):
            return None
        return f"The logits of the box predictor are not the output of {_CLASS_LAYER}."

    def has_features(self, module: nn.Module) -> bool:
        return True

    def latent(self, module: nn.Module) -> str:
        return "rpn.head.conv"

    def find(
        self, module: Any, images: ImageList, maps: Mapping[str, Tensor], rules: BoxFilter
    ) -> list[SelectedBoxes]:
        proposals, _ = module.rpn(images, maps)
        pooled = module.roi_heads.box_roi_pool(maps, proposals, images.image_sizes)
        seen: dict[str, Tensor] = {}
        with ExitStack() as hooks:
            attach_input(module, _CLASS_LAYER, hooks, seen, "features")
            logits, codes = module.roi_heads.box_predictor(module.roi_heads.box_head(pooled))
        xyxy = module.roi_heads.box_coder.decode(codes, proposals).reshape(*logits.shape, 4)
        counts = [len(boxes) for boxes in proposals]
        parts = (rows.split(counts) for rows in (xyxy, logits, seen["features"]))
        return [
            _kept(boxes, rows, features, size, rules)
            for boxes, rows, features, size in zip(*parts, images.image_sizes, strict=True)
        ]


def _class_layer(module: nn.Module) -> Any:
    try:
        layer = module.get_submodule(_CLASS_LAYER)
    except AttributeError:
        layer = None
    if not isinstance(getattr(layer, "weight", None), Tensor):
        raise InvalidDataError(
            f"Expected the class layer at {_CLASS_LAYER}, as in torchvision, but this "
            f"{type(module).__name__} has no layer with weights there; rename the one of its box "
            f"predictor."
        )
    return layer


def _gives_logits(module: Any, layer: nn.Linear) -> bool:
    """Return whether the class layer computes the logits, by a trial call if necessary."""
    predictor = module.roi_heads.box_predictor
    if type(predictor).forward is FastRCNNPredictor.forward and "forward" not in vars(predictor):
        return True
    given: list[Tensor] = []
    hook = layer.register_forward_hook(lambda _, args, output: given.append(output))
    tried = torch.linspace(-1, 1, 2 * layer.in_features).reshape(2, -1).to(layer.weight)
    try:
        with torch.no_grad(), eval_mode(predictor):
            logits = predictor(tried)[0]
    except Exception:  # a custom predictor with another kind of input
        return False
    finally:
        hook.remove()
    return len(given) == 1 and logits.shape == given[0].shape and torch.equal(logits, given[0])


def _kept(
    xyxy: Float[Tensor, "proposals columns 4"],
    logits: Float[Tensor, "proposals columns"],
    features: Float[Tensor, "proposals d"],
    size: tuple[int, int],
    rules: BoxFilter,
) -> SelectedBoxes:
    confidence = logits.softmax(dim=-1)
    source, label = _above(confidence, rules.score_threshold)
    xyxy = clip_boxes_to_image(xyxy[source, label], size)
    large = remove_small_boxes(xyxy.detach(), _SMALLEST_SIDE)
    source, label, xyxy = source[large], label[large], xyxy[large]
    kept = suppress(xyxy, confidence[source, label], label, rules)
    source, label, xyxy = source[kept], label[kept], xyxy[kept]
    return SelectedBoxes(
        xyxy=xyxy,
        confidence=confidence[source, label],
        labels=label,
        logits=logits[source],
        features=features[source],
        source_index=source,
        head_index=torch.zeros_like(source),
    )


def _above(
    confidence: Float[Tensor, "proposals columns"], threshold: float
) -> tuple[Int[Tensor, "found"], Int[Tensor, "found"]]:
    """Return proposal and label of every confidence above the threshold, except background."""
    source, column = torch.nonzero(confidence[:, 1:] > threshold, as_tuple=True)
    return source, column + 1


# dense ----------------------------------------------------------------------------------------


def conv_reason(conv: nn.Conv2d) -> str | None:
    """Return why a convolution is not linear in the patch at each position, or None if it is."""
    is_plain = conv.groups == 1 and conv.stride == (1, 1) and conv.padding_mode == "zeros"
    if is_plain and not isinstance(conv.padding, str):
        return None
    return (
        f"The class layer {conv} is not linear in a patch per position: it has groups, a stride or "
        f"a padding mode."
    )


def conv_heads(conv: nn.Conv2d, n_columns: int) -> tuple[Head, ...]:
    """Split a convolution into one linear head per anchor, sharing its memory.

    >>> heads = conv_heads(nn.Conv2d(8, 6, 3), n_columns=2)
    >>> len(heads), heads[0].weight.shape
    (3, torch.Size([2, 72]))
    """
    whole = head_of(conv)
    starts = range(0, conv.out_channels, n_columns)
    places = [slice(start, start + n_columns) for start in starts]
    return tuple(Head(whole.weight[rows], whole.bias[rows]) for rows in places)


def patches_at(
    conv: nn.Conv2d, seen: Float[Tensor, "channels height width"], places: Int[Tensor, "n"]
) -> Float[Tensor, "n d"]:
    """Return the input patches of a convolution at places of a map, counted row by row.

    Positions outside the map are zero.

    >>> conv = nn.Conv2d(1, 1, 3, padding=1)
    >>> patches_at(conv, torch.arange(1.0, 7).reshape(1, 2, 3), torch.tensor([0, 4]))
    tensor([[0., 0., 0., 0., 1., 2., 0., 4., 5.],
            [1., 2., 3., 4., 5., 6., 0., 0., 0.]])
    """
    height, width = seen.shape[1:]
    rows, is_row = _reach(conv, 0, places // width, height)
    columns, is_column = _reach(conv, 1, places % width, width)
    patches = seen[:, rows[:, :, None], columns[:, None, :]]
    is_inside = is_row[:, :, None] & is_column[:, None, :]
    return (patches * is_inside).transpose(0, 1).flatten(1)


def _reach(
    conv: nn.Conv2d, axis: int, places: Int[Tensor, "n"], side: int
) -> tuple[Int[Tensor, "n kernel"], Tensor]:
    """Return the rows or columns that the kernel covers at each place, and which exist."""
    kernel = torch.arange(conv.kernel_size[axis], device=places.device) * conv.dilation[axis]
    covered = places[:, None] + kernel - int(conv.padding[axis])
    return covered.clamp(0, side - 1), (covered >= 0) & (covered < side)


class Level(NamedTuple):
    """The anchors of one level: `n_anchors` at each position of the input of its class layer."""

    first: int
    n_anchors: int
    first_head: int
    conv: nn.Conv2d
    seen: Float[Tensor, "n channels height width"]

    @property
    def stop(self) -> int:
        """The index after its last anchor."""
        return self.first + self.seen.shape[-2:].numel() * self.n_anchors


class ImageAnchors(NamedTuple):
    """Outputs of the anchors of one image, and its height and width."""

    logits: Float[Tensor, "anchors columns"]
    confidence: Float[Tensor, "anchors columns"]
    codes: Float[Tensor, "anchors 4"]
    xyxy: Float[Tensor, "anchors 4"]
    size: tuple[int, int]


class AnchorLabels(NamedTuple):
    """Pairs of an anchor and a label that enter non-maximum suppression."""

    source: Int[Tensor, "pairs"]
    labels: Int[Tensor, "pairs"]


@dataclass(frozen=True)
class Dense:
    """RetinaNet, FCOS and SSD: a convolution predicts classes at every anchor of every level.

    The features of an anchor are the patch that the convolution reads.

    Args:
        head_kind: How logits become confidence.
        shares_features: Whether one class layer serves all levels.
        confidence: From the outputs of the head to [n, anchors, columns].
        choose: Picks pairs, given confidence, levels, score threshold and maximum number.
        decode: From a box coder, codes and anchors to boxes.
        latent_stage: Which stage of the backbone LaRD reads.
    """

    head_kind: HeadKind
    shares_features: bool
    confidence: Callable[[Mapping[str, Tensor]], Tensor]
    choose: Callable[[Tensor, Sequence[Level], float, int], AnchorLabels]
    decode: Callable[[Any, Tensor, Tensor], Tensor]
    latent_stage: int

    def rules(self, module: nn.Module) -> BoxFilter:
        return rules_of(module)

    def n_columns(self, module: Any) -> int:
        head = module.head.classification_head
        return int(head.num_columns if hasattr(head, "num_columns") else head.num_classes)

    def heads(self, module: nn.Module) -> tuple[Head, ...]:
        if self.head_reason(module) is not None:
            return ()
        n_columns = self.n_columns(module)
        return tuple(head for conv in _class_convs(module) for head in conv_heads(conv, n_columns))

    def head_reason(self, module: nn.Module) -> str | None:
        return next(filter(None, map(conv_reason, _class_convs(module))), None)

    def has_features(self, module: nn.Module) -> bool:
        return self.head_reason(module) is None

    def latent(self, module: Any) -> str:
        stages = stages_of(module.backbone)
        last = len(stages) - 1
        return f"backbone.{stages[min(self.latent_stage, last)]}" if stages else "backbone"

    def find(
        self, module: Any, images: ImageList, maps: Mapping[str, Tensor], rules: BoxFilter
    ) -> list[SelectedBoxes]:
        seen: list[Tensor] = []
        convs = _class_convs(module)
        with ExitStack() as hooks:
            for conv in convs:
                handle = conv.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
                hooks.callback(handle.remove)
            outputs = module.head(list(maps.values()))
        levels = list(_levels(convs, seen, self.n_columns(module)))
        rows = zip(
            outputs["cls_logits"],
            self.confidence(outputs),
            outputs["bbox_regression"],
            module.anchor_generator(images, list(maps.values())),
            images.image_sizes,
            strict=True,
        )
        return [
            self._kept(module, index, ImageAnchors(*row), levels, rules)
            for index, row in enumerate(rows)
        ]

    def _kept(
        self,
        module: Any,
        index: int,
        image: ImageAnchors,
        levels: Sequence[Level],
        rules: BoxFilter,
    ) -> SelectedBoxes:
        source, labels = self.choose(
            image.confidence.detach(), levels, rules.score_threshold, module.topk_candidates
        )
        decoded = self.decode(module.box_coder, image.codes[source], image.xyxy[source])
        xyxy = clip_boxes_to_image(decoded, image.size)
        kept = suppress(xyxy, image.confidence[source, labels], labels, rules)
        source, labels = source[kept], labels[kept]
        is_linear = self.has_features(module)
        return SelectedBoxes(
            xyxy=xyxy[kept],
            confidence=image.confidence[source, labels],
            labels=labels,
            logits=image.logits[source],
            features=_features(levels, index, source) if is_linear else None,
            source_index=source,
            head_index=_head_index(levels, source) if is_linear else torch.zeros_like(source),
        )


def _class_convs(module: Any) -> list[nn.Conv2d]:
    """Return the class layers, one for all levels or one per level (in SSDLite, of a block)."""
    head = getattr(getattr(module, "head", None), "classification_head", None)
    blocks: Any = getattr(head, "module_list", None) or [getattr(head, "cls_logits", None)]
    layers = [block[-1] if isinstance(block, nn.Sequential) else block for block in blocks]
    convs = [layer for layer in layers if isinstance(layer, nn.Conv2d)]
    if len(convs) < len(layers):
        raise InvalidDataError(
            f"Expected the class layer of {type(module).__name__} at "
            f"head.classification_head.cls_logits or, one per level, in module_list, as in "
            f"torchvision; rename the convolution of its head."
        )
    return convs


def _levels(convs: Sequence[nn.Conv2d], seen: Sequence[Tensor], n_columns: int) -> Iterator[Level]:
    is_shared = len(convs) == 1
    first = first_head = 0
    for k, maps in enumerate(seen):
        conv = convs[0 if is_shared else k]
        level = Level(first, conv.out_channels // n_columns, first_head, conv, maps)
        yield level
        first = level.stop
        first_head += 0 if is_shared else level.n_anchors


def _features(
    levels: Sequence[Level], index: int, source: Int[Tensor, "boxes"]
) -> Float[Tensor, "boxes d"]:
    widths = [level.conv.weight[0].numel() for level in levels]
    features = levels[0].seen.new_zeros(len(source), max(widths))
    for level, width in zip(levels, widths, strict=True):
        is_here = (source >= level.first) & (source < level.stop)
        places = (source[is_here] - level.first) // level.n_anchors
        features[is_here, :width] = patches_at(level.conv, level.seen[index], places)
    return features


def _head_index(levels: Sequence[Level], source: Int[Tensor, "boxes"]) -> Int[Tensor, "boxes"]:
    index = torch.zeros_like(source)
    for level in levels:
        head = level.first_head + (source - level.first) % level.n_anchors
        index = torch.where((source >= level.first) & (source < level.stop), head, index)
    return index


def _top(confidence: Float[Tensor, "n"], threshold: float, k: int) -> Int[Tensor, "found"]:
    """Return the indices of at most k values above a threshold, highest first."""
    places = torch.nonzero(confidence > threshold).flatten()
    return places[confidence[places].topk(min(k, len(places))).indices]


def _top_per_level(
    confidence: Float[Tensor, "anchors columns"], levels: Sequence[Level], threshold: float, k: int
) -> AnchorLabels:
    n_columns = confidence.shape[1]
    flat = confidence.flatten()
    starts = [(level.first * n_columns, level.stop * n_columns) for level in levels]
    pairs = torch.cat([_top(flat[a:b], threshold, k) + a for a, b in starts])
    return AnchorLabels(pairs // n_columns, pairs % n_columns)


def _top_per_class(
    confidence: Float[Tensor, "anchors columns"], levels: Sequence[Level], threshold: float, k: int
) -> AnchorLabels:
    found = [_top(column, threshold, k) for column in confidence.unbind(dim=1)[1:]]
    labels = [torch.full_like(anchors, label) for label, anchors in enumerate(found, start=1)]
    return AnchorLabels(torch.cat(found), torch.cat(labels))


def _sigmoid(outputs: Mapping[str, Tensor]) -> Tensor:
    return outputs["cls_logits"].sigmoid()


def _sigmoid_and_centerness(outputs: Mapping[str, Tensor]) -> Tensor:
    """Compute the geometric mean of the two (Tian et al., FCOS, 2020, section 3.2)."""
    return (outputs["cls_logits"].sigmoid() * outputs["bbox_ctrness"].sigmoid()).sqrt()


def _softmax(outputs: Mapping[str, Tensor]) -> Tensor:
    return outputs["cls_logits"].softmax(dim=-1)


def _decode_around(coder: Any, codes: Tensor, anchors: Tensor) -> Tensor:
    boxes: Tensor = coder.decode_single(codes, anchors)
    return boxes


def _decode_from_point(coder: Any, codes: Tensor, anchors: Tensor) -> Tensor:
    boxes: Tensor = coder.decode(codes, anchors)
    return boxes


RETINANET = Dense(HeadKind.SIGMOID, True, _sigmoid, _top_per_level, _decode_around, -1)
FCOS = Dense(
    HeadKind.SIGMOID, True, _sigmoid_and_centerness, _top_per_level, _decode_from_point, -1
)
# the second map, where the base network ends: later maps shrink to a single position
SSD = Dense(HeadKind.SOFTMAX, False, _softmax, _top_per_class, _decode_around, 1)


# settings and stages --------------------------------------------------------------------------


def settings_text(module: nn.Module) -> str:
    """Describe the settings of a detector beside its weights: anchors, resizing, box counts.

    The three settings of the box filter are left out: the adapter has its own.
    """
    parts = ((name, part) for name, part in module.named_modules() if _is_of_library(part))
    return repr({name: _settings(part) for name, part in parts})


def _settings(part: object) -> dict[str, Any]:
    attributes = vars(part)
    ignored = _BOOKKEEPING | _SET_BY_FORWARD
    ignored |= _FILTER_SETTINGS if set(attributes) >= _FILTER_SETTINGS else set()
    return {name: _literal(value) for name, value in attributes.items() if name not in ignored}


def _literal(value: Any) -> Any:
    """Convert a value to one whose repr is the same in every process."""
    if isinstance(value, list | tuple):
        return [_literal(item) for item in value]
    if isinstance(value, Tensor):
        return value.tolist()
    if isinstance(value, bool | int | float | str | dict):
        return value
    return _settings(value) if _is_of_library(value) else None


def _is_of_library(thing: object) -> bool:
    kinds = type(thing).__mro__
    return any(kind.__module__.startswith(_HOMES) for kind in kinds)


def shortcuts_of(backbone: nn.Module) -> tuple[str, ...]:
    """Return the layers that SAFE reads: convolutions in shortcuts, else the stages.

    Wilson et al., SAFE (2023), takes the shortcut of the first block of each stage of a ResNet.
    """
    names = [name for name, _ in backbone.named_modules()]
    return tuple(name for name in names if name.endswith("downsample")) or stages_of(backbone)


def stages_of(backbone: nn.Module) -> tuple[str, ...]:
    """Return at most six stages, evenly spaced, including the last.

    Below a feature pyramid these are the layers that feed it; otherwise children with weights,
    each grouped with the normalization and activation after it.

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
    n = min(len(stages), _MAX_STAGES)
    return tuple(stages[(k + 1) * len(stages) // n - 1] for k in range(n))


def _ends(module: nn.Module) -> list[str]:
    """Group the children, a new group at every one with a kernel; return the last of each."""
    ends: list[str] = []
    for name, child in _opened(module):
        if any(weight.ndim > 1 for weight in child.parameters()):
            ends.append(name)
        elif ends:
            ends[-1] = name
    return ends


def _opened(module: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Yield the children that are called: the members of a list of modules, not the list."""
    for name, child in module.named_children():
        # its forward iterates over `features`
        is_list = isinstance(module, SSDLiteFeatureExtractorMobileNet)
        if is_list or isinstance(child, nn.ModuleList):
            yield from ((f"{name}.{key}", member) for key, member in child.named_children())
        else:
            yield name, child
