"""ResNet-18 for 32 x 32 images, as OpenOOD v1.5 trains it on CIFAR-10.

incognita run studies/cifar10/benchmark.toml --model studies/cifar10/resnet18.py:build \
        --weights ../shared/data/weights/resnet18_cifar10_fp16.safetensors --data cifar10-images
"""

from torch import Tensor, nn
from torch.nn.functional import relu

from incognita.models.classifier import WrappedClassifier, wrap_classifier
from incognita.models.preprocessing import Preprocessing

CLASSES = "airplane automobile bird cat deer dog frog horse ship truck".split()  # noqa: SIM905


class Block(nn.Module):
    """Two convolutions and a way around them."""

    def __init__(self, n_in: int, n_out: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(n_in, n_out, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(n_out)
        self.conv2 = nn.Conv2d(n_out, n_out, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(n_out)
        self.shortcut = nn.Sequential()
        if stride != 1 or n_in != n_out:
            around = nn.Conv2d(n_in, n_out, 1, stride, bias=False)
            self.shortcut = nn.Sequential(around, nn.BatchNorm2d(n_out))

    def forward(self, x: Tensor) -> Tensor:
        """Add the output of the convolutions to the shortcut."""
        inner = self.bn2(self.conv2(relu(self.bn1(self.conv1(x)))))
        return relu(inner + self.shortcut(x))


class ResNet18(nn.Module):
    """Stem, four stages of two blocks, mean over positions, linear head."""

    def __init__(self, n_classes: int = 10) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.relu = nn.ReLU()
        self.layer1 = nn.Sequential(Block(64, 64, 1), Block(64, 64, 1))
        self.layer2 = nn.Sequential(Block(64, 128, 2), Block(128, 128, 1))
        self.layer3 = nn.Sequential(Block(128, 256, 2), Block(256, 256, 1))
        self.layer4 = nn.Sequential(Block(256, 512, 2), Block(512, 512, 1))
        self.fc = nn.Linear(512, n_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Name the images of a batch."""
        x = self.relu(self.bn1(self.conv1(x)))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(x.mean(dim=(2, 3)))


def build() -> WrappedClassifier:
    """Build the network with its preprocessing; the weights are those of `--weights`."""
    preprocess = Preprocessing(
        size=32, crop=32, mean=(0.4914, 0.4822, 0.4465), std=(0.2470, 0.2435, 0.2616)
    )
    return wrap_classifier(
        ResNet18(), preprocess=preprocess, class_names=CLASSES, name="resnet18-cifar10"
    )
