"""The embedded classifier of scikit-learn's digits: two convolutions and a linear head."""

from torch import Tensor, nn

from incognita.models.classifier import WrappedClassifier, wrap_classifier
from incognita.models.load import WEIGHTS_FOLDER, load_shipped_weights, read_shipped_weights
from incognita.models.preprocessing import Preprocessing
from incognita.shapes import Float

WIDTH = 32
N_FEATURES = 64
LAYERS = ("stage1", "stage2")
PIXEL_MEAN = (0.3, 0.3, 0.3)
PIXEL_STD = (0.4, 0.4, 0.4)
WEIGHTS = WEIGHTS_FOLDER / "digits_classifier.safetensors"


class DigitsClassifier(nn.Module):
    """A network for gray 8 x 8 images with three equal channels."""

    def __init__(self, n_classes: int) -> None:
        super().__init__()
        self.stage1 = nn.Sequential(
            nn.Conv2d(3, WIDTH, 3, padding=1, bias=False), nn.BatchNorm2d(WIDTH), nn.ReLU()
        )
        self.stage2 = nn.Sequential(
            nn.Conv2d(WIDTH, N_FEATURES, 3, stride=2, padding=1, bias=False),
            nn.BatchNorm2d(N_FEATURES),
            nn.ReLU(),
        )
        self.head = nn.Linear(N_FEATURES, n_classes)

    def forward(self, pixels: Float[Tensor, "n 3 _ _"]) -> Float[Tensor, "n classes"]:
        maps = self.stage2(self.stage1(pixels))
        logits: Tensor = self.head(maps.mean(dim=(2, 3)))
        return logits


def build_digits_classifier(n_classes: int = 7) -> DigitsClassifier:
    """Build the network with untrained weights.

    >>> import torch
    >>> build_digits_classifier()(torch.zeros(2, 3, 8, 8)).shape
    torch.Size([2, 7])
    """
    return DigitsClassifier(n_classes)


def load_digits_classifier() -> WrappedClassifier:
    """Load the embedded classifier of digits: two convolutions and a linear head.

    >>> load_digits_classifier().class_names
    ('zero', 'one', 'two', 'three', 'four', 'five', 'six')
    """
    weights = read_shipped_weights(WEIGHTS)
    network = build_digits_classifier(len(weights.class_names))
    load_shipped_weights(network, weights)
    network.eval()
    return wrap_classifier(
        network,
        preprocess=Preprocessing(size=(8, 8), mean=PIXEL_MEAN, std=PIXEL_STD),
        class_names=weights.class_names,
        layers=LAYERS,
        name="digits-classifier",
    )
