"""A tiny detector of each family of torchvision, drawn so that many boxes survive."""

from collections import OrderedDict
from functools import partial

import torch
from torch import Tensor, nn
from torchvision.models.detection import FCOS, FasterRCNN, KeypointRCNN, MaskRCNN, RetinaNet
from torchvision.models.detection.anchor_utils import AnchorGenerator, DefaultBoxGenerator
from torchvision.models.detection.backbone_utils import BackboneWithFPN
from torchvision.models.detection.faster_rcnn import TwoMLPHead
from torchvision.models.detection.keypoint_rcnn import KeypointRCNNHeads
from torchvision.models.detection.mask_rcnn import MaskRCNNHeads
from torchvision.models.detection.ssd import SSD
from torchvision.models.detection.ssdlite import SSDLiteHead
from torchvision.ops import MultiScaleRoIAlign

N_LABELS = 5
RULES = {"score_thresh": 0.05, "nms_thresh": 0.5, "detections_per_img": 30}
SIZE = {"min_size": 64, "max_size": 96}


class ShortcutBlock(nn.Module):
    """A convolution beside a way around it that is a convolution too."""

    def __init__(self, n_in: int, n_out: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(n_in, n_out, 3, 2, 1)
        self.downsample = nn.Conv2d(n_in, n_out, 1, 2)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.conv(x) + self.downsample(x))


class TwoMaps(nn.Module):
    """A backbone for SSD: two maps of different width and size."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 5, 4, 2)
        self.fine = nn.Sequential(nn.Conv2d(8, 12, 3, 2, 1), nn.ReLU())
        self.coarse = nn.Sequential(nn.Conv2d(12, 20, 3, 2, 1), nn.ReLU())
        self.out_channels = [12, 20]

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        fine = self.fine(torch.relu(self.stem(x)))
        return OrderedDict(a=fine, b=self.coarse(fine))


def pyramid(n_channels: int = 16) -> nn.Module:
    stages = OrderedDict(
        stem=nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.ReLU()),
        layer1=ShortcutBlock(8, 12),
        layer2=nn.Sequential(ShortcutBlock(12, 16), nn.Conv2d(16, 16, 1)),
    )
    levels = {"layer1": "0", "layer2": "1"}
    return BackboneWithFPN(nn.Sequential(stages), levels, [12, 16], n_channels)


def chain() -> nn.Module:
    layers = nn.Conv2d(3, 8, 3, 4, 1), nn.ReLU(inplace=True), nn.Conv2d(8, 16, 3, 2, 1), nn.ReLU()
    backbone = nn.Sequential(*layers)
    backbone.out_channels = 16
    return backbone


def rcnn(build=FasterRCNN, backbone=pyramid, **options) -> nn.Module:
    names = ["0", "1"] if backbone is pyramid else ["0"]
    sizes = ((16,), (32,), (48,)) if backbone is pyramid else ((16, 32),)
    rules = {f"box_{name}": value for name, value in RULES.items()}
    return build(
        backbone(),
        num_classes=N_LABELS,
        rpn_anchor_generator=AnchorGenerator(sizes, ((0.5, 1.0),) * len(sizes)),
        box_roi_pool=MultiScaleRoIAlign(names, 3, 2),
        box_head=TwoMLPHead(16 * 9, 1024),
        rpn_pre_nms_top_n_test=60,
        rpn_post_nms_top_n_test=40,
        **SIZE,
        **rules,
        **options,
    )


def mask_rcnn() -> nn.Module:
    pool = MultiScaleRoIAlign(["0"], 4, 2)
    return rcnn(MaskRCNN, mask_roi_pool=pool, mask_head=MaskRCNNHeads(16, [256], 1))


def keypoint_rcnn() -> nn.Module:
    return rcnn(
        KeypointRCNN,
        keypoint_roi_pool=MultiScaleRoIAlign(["0"], 4, 2),
        keypoint_head=KeypointRCNNHeads(16, [512]),
        num_keypoints=2,
    )


def retinanet() -> nn.Module:
    sizes = ((12, 16), (24, 32), (40, 48))
    anchors = AnchorGenerator(sizes, ((0.5, 1.0),) * 3)
    return RetinaNet(
        pyramid(), N_LABELS, anchor_generator=anchors, topk_candidates=50, **SIZE, **RULES
    )


def fcos() -> nn.Module:
    anchors = AnchorGenerator(((8,), (16,), (32,)), ((1.0,),) * 3)
    return FCOS(
        pyramid(32), N_LABELS, anchor_generator=anchors, topk_candidates=50, **SIZE, **RULES
    )


def ssd(head: nn.Module | None = None) -> nn.Module:
    anchors = DefaultBoxGenerator([[2], [2, 3]])
    return SSD(TwoMaps(), anchors, (96, 80), N_LABELS, head=head, topk_candidates=300, **RULES)


def ssdlite() -> nn.Module:
    norm = partial(nn.BatchNorm2d, eps=0.001)
    return ssd(SSDLiteHead([12, 20], [4, 6], N_LABELS, norm))


FAMILIES = {
    "faster": rcnn,
    "faster on one map": partial(rcnn, backbone=chain),
    "mask": mask_rcnn,
    "keypoint": keypoint_rcnn,
    "retinanet": retinanet,
    "fcos": fcos,
    "ssd": ssd,
    "ssdlite": ssdlite,
}


def images(n: int = 2, height: int = 70, width: int = 90, seed: int = 1) -> Tensor:
    """Draw pictures with large patches, so that places differ."""
    generator = torch.Generator().manual_seed(seed)
    coarse = torch.rand(n, 3, 6, 7, generator=generator)
    return nn.functional.interpolate(coarse, (height, width), mode="bicubic").clamp(0, 1)


def class_layers(network: nn.Module) -> list[nn.Module]:
    if hasattr(network, "roi_heads"):
        return [network.roi_heads.box_predictor.cls_score]
    head = network.head.classification_head
    if not hasattr(head, "module_list"):
        return [head.cls_logits]
    return [each if isinstance(each, nn.Conv2d) else each[-1] for each in head.module_list]


@torch.no_grad()
def drawn(family: str) -> nn.Module:
    """Build a detector from a fixed seed whose logits have mean 0 and deviation 2 per label."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network = FAMILIES[family]().eval()
        for weight in network.parameters():
            std = weight[0].numel() ** -0.5 if weight.ndim > 1 else 0.1
            nn.init.normal_(weight, std=1.5 * std)
    for layer in class_layers(network):
        rows: list[Tensor] = []
        watch = layer.register_forward_hook(
            lambda _, args, out, rows=rows: rows.append(out.transpose(0, 1).flatten(1))
        )
        network(list(images()))
        watch.remove()
        seen = torch.cat(rows, dim=1)
        layer.weight *= 2 / seen.std(dim=1).view(-1, *[1] * (layer.weight.ndim - 1))
        layer.bias.copy_((layer.bias - seen.mean(dim=1)) * 2 / seen.std(dim=1))
    return network
