"""Small networks of many kinds, drawn from a seed."""

import torch
from torch import Tensor, nn
from torch.nn import functional


def seeded(build, *args, **kwargs):
    """Build a network from a fixed seed, and give its normalizations something to do."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network = build(*args, **kwargs)
        for module in network.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.running_mean.normal_(0, 0.1)
                module.running_var.uniform_(0.5, 2)
            if isinstance(module, nn.Linear) and not module.weight.any():
                module.weight.data.normal_(0, 0.1)
    return network


class Block(nn.Module):
    """The basic block of a residual network with parameter-free ways around (He et al. 2016)."""

    def __init__(self, n_in: int, n_out: int, stride: int = 1) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(n_in, n_out, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(n_out)
        self.conv2 = nn.Conv2d(n_out, n_out, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(n_out)
        self.stride, self.extra = stride, (n_out - n_in) // 2

    def forward(self, x: Tensor) -> Tensor:
        around = functional.pad(
            x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, self.extra, self.extra)
        )
        return functional.relu(
            self.bn2(self.conv2(functional.relu(self.bn1(self.conv1(x))))) + around
        )


class ResNet20(nn.Module):
    """The CIFAR network whose real weights and outputs lie in the data folder."""

    def __init__(self, n_classes: int = 10, n_blocks: int = 3) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 16, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(16)
        widths = (16, 16, 32, 64)
        for k in (1, 2, 3):
            blocks = [Block(widths[k - 1], widths[k], 1 if k == 1 else 2)]
            blocks += [Block(widths[k], widths[k]) for _ in range(n_blocks - 1)]
            setattr(self, f"layer{k}", nn.Sequential(*blocks))
        self.linear = nn.Linear(64, n_classes)

    def forward(self, x: Tensor) -> Tensor:
        x = functional.relu(self.bn1(self.conv1(x)))
        x = self.layer3(self.layer2(self.layer1(x)))
        return self.linear(x.mean(dim=(2, 3)))


class Chain(nn.Module):
    """A few convolutions, and any end on 8 features."""

    def __init__(self, end: nn.Module, *, wrap=lambda logits, features: logits) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 6, 3, 2), nn.ReLU(inplace=True), nn.Conv2d(6, 8, 3, 2), nn.ReLU()
        )
        self.end, self.wrap = end, wrap

    def forward(self, x: Tensor):
        features = self.body(x).mean(dim=(2, 3))
        return self.wrap(self.end(features), features)


class Cosine(nn.Module):
    """A custom layer: scaled cosines instead of products."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(5, 8))

    def forward(self, x: Tensor) -> Tensor:
        return 10 * functional.normalize(x) @ functional.normalize(self.weight).T


class CosineLinear(nn.Linear):
    """Calls itself linear and is not."""

    def forward(self, x: Tensor) -> Tensor:
        return functional.linear(functional.normalize(x), functional.normalize(self.weight))


class Twice(nn.Module):
    """One linear layer called on two views, only the second of which counts."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        self.fc(x.flip(1))
        return self.fc(x)


class OnTokens(nn.Module):
    """A linear layer on tokens, of which one is taken."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(torch.stack([x, 2 * x], dim=1))[:, 0]


class ConvHead(nn.Module):
    """A 1 x 1 convolution on the map, something, and the mean over positions."""

    def __init__(self, between: nn.Module) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 8, 3, 2), nn.ReLU())
        self.anything = nn.Conv2d(8, 5, 1)
        self.between = between

    def forward(self, x: Tensor) -> Tensor:
        return self.between(self.anything(self.body(x))).mean(dim=(2, 3))


class Quotient(nn.Module):
    """Logits h / g, as in GODIN."""

    def __init__(self) -> None:
        super().__init__()
        self.h = nn.Linear(8, 5)
        self.g = nn.Sequential(nn.Linear(8, 1), nn.BatchNorm1d(1), nn.Sigmoid())

    def forward(self, x: Tensor) -> Tensor:
        return self.h(x) / self.g(x)
