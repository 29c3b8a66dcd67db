"""The embedded detector of Terra scenes: a Faster R-CNN of 1.5 million weights."""

from collections import OrderedDict

import torch
from torch import Tensor, nn
from torchvision.models.detection import FasterRCNN  # type: ignore[import-untyped]
from torchvision.models.detection.backbone_utils import BackboneWithFPN  # type: ignore[import-untyped]
from torchvision.models.detection.faster_rcnn import FastRCNNPredictor, TwoMLPHead  # type: ignore[import-untyped]
from torchvision.models.detection.rpn import AnchorGenerator  # type: ignore[import-untyped]
from torchvision.ops import MultiScaleRoIAlign  # type: ignore[import-untyped]

from incognita.models.from_torchvision.detectors import (
    TorchvisionDetector,
    wrap_torchvision_detector,
)
from incognita.models.load import WEIGHTS_FOLDER, load_shipped_weights, read_shipped_weights
from incognita.shapes import Float

CLASS_NAMES = (
    *("triangle", "square", "pentagon"),
    *("disc", "ring", "crescent"),
    *("plus", "tee", "corner"),
    *("four-star", "six-star", "gear"),
)
SCENE_SIZE = 160
WIDTHS = (32, 64, 96)
N_MAP_CHANNELS = 64
N_FEATURES = 256
POOLED_SIZE = 7
# One size per level of the pyramid; the sides of nearly all objects lie between 24 and 54 pixels.
ANCHOR_SIZES = ((26,), (36,), (50,), (70,))
ASPECT_RATIOS = (0.75, 1.0, 1.33)
PIXEL_MEAN = (0.5, 0.5, 0.5)
PIXEL_STD = (0.25, 0.25, 0.25)
WEIGHTS = WEIGHTS_FOLDER / "terra_detector.safetensors"


class ShortcutBlock(nn.Module):
    """Two convolutions with a shortcut (He et al., Deep Residual Learning, 2016).

    A block that changes the size has a convolution in its shortcut, called `downsample` as in
    torchvision: methods that read shortcut layers find it by that name.
    """

    def __init__(self, n_in: int, n_out: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(n_in, n_out, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(n_out)
        self.conv2 = nn.Conv2d(n_out, n_out, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(n_out)
        self.downsample: nn.Module | None = None
        if stride > 1 or n_in != n_out:
            self.downsample = nn.Sequential(
                nn.Conv2d(n_in, n_out, 1, stride, bias=False), nn.BatchNorm2d(n_out)
            )

    def forward(self, maps: Float[Tensor, "n _ _ _"]) -> Float[Tensor, "n _ _ _"]:
        shortcut = maps if self.downsample is None else self.downsample(maps)
        inner = torch.relu(self.bn1(self.conv1(maps)))
        return torch.relu(self.bn2(self.conv2(inner)) + shortcut)


def build_terra_detector() -> FasterRCNN:
    """Build the network with untrained weights: twelve classes, and background as label 0.

    Its inputs are scenes `[3, 160, 160]` with values from 0 to 1.

    >>> detector = build_terra_detector().eval()
    >>> sorted(detector([torch.zeros(3, 160, 160)])[0])
    ['boxes', 'labels', 'scores']
    """
    return FasterRCNN(
        _backbone(),
        rpn_anchor_generator=AnchorGenerator(ANCHOR_SIZES, (ASPECT_RATIOS,) * len(ANCHOR_SIZES)),
        box_roi_pool=MultiScaleRoIAlign(["0", "1", "2"], POOLED_SIZE, sampling_ratio=2),
        box_head=TwoMLPHead(N_MAP_CHANNELS * POOLED_SIZE**2, N_FEATURES),
        box_predictor=FastRCNNPredictor(N_FEATURES, len(CLASS_NAMES) + 1),
        min_size=SCENE_SIZE,
        max_size=SCENE_SIZE,
        image_mean=list(PIXEL_MEAN),
        image_std=list(PIXEL_STD),
        # a scene has six objects at most
        rpn_pre_nms_top_n_train=300,
        rpn_post_nms_top_n_train=200,
        rpn_pre_nms_top_n_test=100,
        rpn_post_nms_top_n_test=100,
        rpn_batch_size_per_image=64,
        box_batch_size_per_image=64,
        box_score_thresh=0.05,
        box_detections_per_img=100,
    )


def load_terra_detector() -> FasterRCNN:
    """Load the trained network that ships with incognita, in evaluation mode.

    Label k is the class `CLASS_NAMES[k - 1]`.

    >>> found = load_terra_detector()([torch.zeros(3, 160, 160)])[0]
    >>> len(found["boxes"])  # a black image has no objects
    0
    """
    detector = build_terra_detector()
    load_shipped_weights(detector, read_shipped_weights(WEIGHTS))
    return detector.eval()


def _backbone() -> BackboneWithFPN:
    narrow, middle, wide = WIDTHS
    stem = nn.Conv2d(3, narrow, 5, 2, padding=2, bias=False)
    body = nn.Sequential(
        OrderedDict(
            stem=nn.Sequential(stem, nn.BatchNorm2d(narrow), nn.ReLU()),
            layer1=_stage(narrow, narrow),
            layer2=_stage(narrow, middle),
            layer3=_stage(middle, wide),
        )
    )
    levels = {"layer1": "0", "layer2": "1", "layer3": "2"}
    return BackboneWithFPN(body, levels, list(WIDTHS), N_MAP_CHANNELS)


def _stage(n_in: int, n_out: int) -> nn.Sequential:
    return nn.Sequential(ShortcutBlock(n_in, n_out, 2), ShortcutBlock(n_out, n_out, 1))


def load_wrapped_terra_detector() -> TorchvisionDetector:
    """Load the embedded detector of Terra scenes: a Faster R-CNN of 1.5 million weights."""
    return wrap_torchvision_detector(
        load_terra_detector(), class_names=CLASS_NAMES, name="terra-detector"
    )
