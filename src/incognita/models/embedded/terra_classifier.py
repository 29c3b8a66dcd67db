"""The embedded classifier of Terra images: a residual network of 0.7 million weights."""

import torch
from torch import Tensor, nn

from incognita.models.classifier import WrappedClassifier, wrap_classifier
from incognita.models.load import WEIGHTS_FOLDER, load_shipped_weights, read_shipped_weights
from incognita.models.preprocessing import Preprocessing
from incognita.shapes import Float

WIDTHS = (32, 64, 128)
LAYERS = ("stage1", "stage2", "stage3")
PIXEL_MEAN = (0.5, 0.5, 0.5)
PIXEL_STD = (0.25, 0.25, 0.25)
WEIGHTS = WEIGHTS_FOLDER / "terra_classifier.safetensors"


class ResidualBlock(nn.Module):
    """Two convolutions with a shortcut (He et al., Deep Residual Learning, 2016)."""

    def __init__(self, n_in: int, n_out: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(n_in, n_out, 3, stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(n_out)
        self.conv2 = nn.Conv2d(n_out, n_out, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(n_out)
        self.around: nn.Module = nn.Identity()
        if stride > 1 or n_in != n_out:
            self.around = nn.Sequential(
                nn.Conv2d(n_in, n_out, 1, stride, bias=False), nn.BatchNorm2d(n_out)
            )

    def forward(self, maps: Float[Tensor, "n _ _ _"]) -> Float[Tensor, "n _ _ _"]:
        inner = torch.relu(self.norm1(self.conv1(maps)))
        return torch.relu(self.norm2(self.conv2(inner)) + self.around(maps))


class TerraClassifier(nn.Module):
    """A stem, three stages of two residual blocks, global average pooling and a linear head.

    Every stage halves the resolution, including the first, to keep the demo fast.
    """

    def __init__(self, n_classes: int) -> None:
        super().__init__()
        narrow, middle, wide = WIDTHS
        self.stem = nn.Sequential(
            nn.Conv2d(3, narrow, 3, padding=1, bias=False), nn.BatchNorm2d(narrow), nn.ReLU()
        )
        self.stage1 = _stage(narrow, narrow)
        self.stage2 = _stage(narrow, middle)
        self.stage3 = _stage(middle, wide)
        self.head = nn.Linear(wide, n_classes)

    def forward(self, pixels: Float[Tensor, "n 3 _ _"]) -> Float[Tensor, "n classes"]:
        maps = self.stage3(self.stage2(self.stage1(self.stem(pixels))))
        logits: Tensor = self.head(maps.mean(dim=(2, 3)))
        return logits


def _stage(n_in: int, n_out: int) -> nn.Sequential:
    return nn.Sequential(ResidualBlock(n_in, n_out, 2), ResidualBlock(n_out, n_out, 1))


def build_terra_classifier(n_classes: int = 12) -> TerraClassifier:
    """Build the network with untrained weights.

    >>> network = build_terra_classifier()
    >>> network(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 12])
    """
    return TerraClassifier(n_classes)


def load_terra_classifier() -> WrappedClassifier:
    """Load the embedded classifier of Terra: a residual network of 0.7 million weights.

    >>> classifier = load_terra_classifier()
    >>> classifier.class_names[:3], classifier.layers
    (('triangle', 'square', 'pentagon'), ('stage1', 'stage2', 'stage3'))
    """
    weights = read_shipped_weights(WEIGHTS)
    network = build_terra_classifier(len(weights.class_names))
    load_shipped_weights(network, weights)
    network.eval()
    return wrap_classifier(
        network,
        preprocess=Preprocessing(size=(32, 32), mean=PIXEL_MEAN, std=PIXEL_STD),
        class_names=weights.class_names,
        layers=LAYERS,
        name="terra-classifier",
    )
