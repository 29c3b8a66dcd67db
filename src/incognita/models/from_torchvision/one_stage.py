"""RetinaNet, FCOS and SSD of torchvision: a prediction at every anchor of every level."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torchvision.models.detection.image_list import ImageList  # type: ignore[import-untyped]
from torchvision.ops import clip_boxes_to_image  # type: ignore[import-untyped]

from incognita.containers.outputs import Head
from incognita.errors import InvalidDataError
from incognita.models.detector import BoxFilter, HeadKind
from incognita.models.from_torchvision.families import SelectedBoxes, rules_of, stages_of, surest
from incognita.models.introspection.head import head_of
from incognita.shapes import Float, Int


def conv_reason(conv: nn.Conv2d) -> str | None:
    """Say why a convolution is no linear layer of the patch at each place, where it is none."""
    is_plain = conv.groups == 1 and conv.stride == (1, 1) and conv.padding_mode == "zeros"
    if is_plain and not isinstance(conv.padding, str):
        return None
    return (
        f"The class layer {conv} has groups, a stride or a padding that leaves no patch per place."
    )


def conv_heads(conv: nn.Conv2d, n_columns: int) -> tuple[Head, ...]:
    """Cut a convolution into one linear head per anchor; they share its memory.

    >>> heads = conv_heads(nn.Conv2d(8, 6, 3), n_columns=2)
    >>> len(heads), heads[0].weight.shape
    (3, torch.Size([2, 72]))
    """
    whole = head_of(conv)
    starts = range(0, conv.out_channels, n_columns)
    places = [slice(start, start + n_columns) for start in starts]
    return tuple(Head(whole.weight[each], whole.bias[each]) for each in places)


def patches_at(
    conv: nn.Conv2d, seen: Float[Tensor, "channels height width"], places: Int[Tensor, "n"]
) -> Float[Tensor, "n d"]:
    """Give what a convolution saw at some places of a map, counted row by row; zeros outside.

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
    """Give the rows or columns that the kernel covers at each place, and which of them exist."""
    kernel = torch.arange(conv.kernel_size[axis], device=places.device) * conv.dilation[axis]
    covered = places[:, None] + kernel - int(conv.padding[axis])
    return covered.clamp(0, side - 1), (covered >= 0) & (covered < side)


class Level(NamedTuple):
    """The anchors of one level: `n_anchors` at each place of the map that its class layer saw."""

    first: int
    n_anchors: int
    first_head: int
    conv: nn.Conv2d
    seen: Float[Tensor, "n channels height width"]

    @property
    def stop(self) -> int:
        """The index behind its last anchor."""
        return self.first + self.seen.shape[-2:].numel() * self.n_anchors


class ImageAnchors(NamedTuple):
    """What the anchors of one image gave, and the height and width of the image."""

    logits: Float[Tensor, "anchors columns"]
    confidence: Float[Tensor, "anchors columns"]
    codes: Float[Tensor, "anchors 4"]
    xyxy: Float[Tensor, "anchors 4"]
    size: tuple[int, int]


class Chosen(NamedTuple):
    """Pairs of an anchor and a label whose boxes are compared with each other."""

    source: Int[Tensor, "pairs"]
    labels: Int[Tensor, "pairs"]


@dataclass(frozen=True)
class Dense:
    """A network whose class layer is a convolution: the features of an anchor are its patch.

    Args:
        head_kind: How logits become confidence.
        shares_features: Whether one class layer sees all levels.
        confidence: From the outputs of the head to [n, anchors, columns].
        choose: Picks pairs, given confidence, levels, the score floor and how many of a kind.
        decode: From a box coder, codes and anchors to boxes.
        latent_stage: Which stage of the backbone LaRD reads.
    """

    head_kind: HeadKind
    shares_features: bool
    confidence: Callable[[Mapping[str, Tensor]], Tensor]
    choose: Callable[[Tensor, Sequence[Level], float, int], Chosen]
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
                watch = conv.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
                hooks.callback(watch.remove)
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
            self._kept(module, index, ImageAnchors(*each), levels, rules)
            for index, each in enumerate(rows)
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
        kept = surest(xyxy, image.confidence[source, labels], labels, rules)
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
    """Give the class layers: one for all levels or one for each, last in its block of SSDLite."""
    head = getattr(getattr(module, "head", None), "classification_head", None)
    blocks: Any = getattr(head, "module_list", None) or [getattr(head, "cls_logits", None)]
    layers = [each[-1] if isinstance(each, nn.Sequential) else each for each in blocks]
    convs = [each for each in layers if isinstance(each, nn.Conv2d)]
    if len(convs) < len(layers):
        raise InvalidDataError(
            f"{type(module).__name__} has no convolution head.classification_head.cls_logits and "
            f"none per level in module_list, where torchvision keeps the class layer; give the "
            f"one of its head that name."
        )
    return convs


def _levels(convs: Sequence[nn.Conv2d], seen: Sequence[Tensor], n_columns: int) -> Iterator[Level]:
    is_shared = len(convs) == 1
    first = first_head = 0
    for k, each in enumerate(seen):
        conv = convs[0 if is_shared else k]
        level = Level(first, conv.out_channels // n_columns, first_head, conv, each)
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


def _best(confidence: Float[Tensor, "n"], floor: float, most: int) -> Int[Tensor, "found"]:
    """Give the places of confidence above the floor, the highest first and no more than so many."""
    places = torch.nonzero(confidence > floor).flatten()
    return places[confidence[places].topk(min(most, len(places))).indices]


def _best_of_levels(
    confidence: Float[Tensor, "anchors columns"], levels: Sequence[Level], floor: float, most: int
) -> Chosen:
    n_columns = confidence.shape[1]
    flat = confidence.flatten()
    starts = [(level.first * n_columns, level.stop * n_columns) for level in levels]
    pairs = torch.cat([_best(flat[a:b], floor, most) + a for a, b in starts])
    return Chosen(pairs // n_columns, pairs % n_columns)


def _best_of_classes(
    confidence: Float[Tensor, "anchors columns"], levels: Sequence[Level], floor: float, most: int
) -> Chosen:
    found = [_best(column, floor, most) for column in confidence.unbind(dim=1)[1:]]
    labels = [torch.full_like(each, k) for k, each in enumerate(found, start=1)]
    return Chosen(torch.cat(found), torch.cat(labels))


def _sigmoid(outputs: Mapping[str, Tensor]) -> Tensor:
    return outputs["cls_logits"].sigmoid()


def _sigmoid_and_centerness(outputs: Mapping[str, Tensor]) -> Tensor:
    """Tian et al., FCOS (2020), section 3.2: the geometric mean of the two."""
    return (outputs["cls_logits"].sigmoid() * outputs["bbox_ctrness"].sigmoid()).sqrt()


def _softmax(outputs: Mapping[str, Tensor]) -> Tensor:
    return outputs["cls_logits"].softmax(dim=-1)


def _decode_around(coder: Any, codes: Tensor, anchors: Tensor) -> Tensor:
    boxes: Tensor = coder.decode_single(codes, anchors)
    return boxes


def _decode_from_point(coder: Any, codes: Tensor, anchors: Tensor) -> Tensor:
    boxes: Tensor = coder.decode(codes, anchors)
    return boxes


RETINANET = Dense(HeadKind.SIGMOID, True, _sigmoid, _best_of_levels, _decode_around, -1)
FCOS = Dense(
    HeadKind.SIGMOID, True, _sigmoid_and_centerness, _best_of_levels, _decode_from_point, -1
)
# the second map, where the base network ends: those behind it shrink to a single place
SSD = Dense(HeadKind.SOFTMAX, False, _softmax, _best_of_classes, _decode_around, 1)
