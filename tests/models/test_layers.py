import pytest
import torch
from tests.models.networks import Chain, ResNet20, seeded
from torch import nn

from incognita.errors import InvalidDataError, UnknownNameError
from incognita.models.classifier import wrap_classifier


class Wrapper(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.model = inner

    def forward(self, x):
        return self.model(x)


class TokenBlock(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.mlp = nn.LayerNorm(8), nn.Sequential(nn.Linear(8, 8), nn.GELU())

    def forward(self, x):
        return x + self.mlp(self.norm(x))


class Blocks(nn.Module):
    """A tiny transformer without attention: enough to have blocks."""

    def __init__(self, n_blocks):
        super().__init__()
        self.embedding = nn.Sequential(nn.Conv2d(3, 8, 8, 8), nn.Flatten(2))
        self.blocks = nn.ModuleList(TokenBlock() for _ in range(n_blocks))
        self.norm = nn.LayerNorm(8)
        self.head = nn.Linear(8, 3)

    def forward(self, x):
        x = self.embedding(x).transpose(1, 2)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x).mean(dim=1))


class ChannelsLast(nn.Module):
    def __init__(self):
        super().__init__()
        self.patches = nn.Conv2d(3, 6, 4, 4)
        self.stage1 = nn.Sequential(nn.LayerNorm(6), nn.Linear(6, 7))
        self.stage2 = nn.Sequential(nn.LayerNorm(7), nn.Linear(7, 9))
        self.head = nn.Linear(9, 3)

    def forward(self, x):
        x = self.patches(x).permute(0, 2, 3, 1)
        return self.head(self.stage2(self.stage1(x)).mean(dim=(1, 2)))


RESNET = ("layer1.input", "layer1", "layer2", "layer3")


def test_a_residual_network_gives_its_stem_and_stages():
    assert wrap_classifier(ResNet20()).layers == RESNET


@pytest.mark.parametrize("depth", [1, 2])
def test_wrappers_are_opened(depth):
    network, prefix = ResNet20(), ""
    for _ in range(depth):
        network, prefix = Wrapper(network), f"model.{prefix}"
    assert wrap_classifier(network).layers == tuple(f"{prefix}{name}" for name in RESNET)


def test_replicas_are_taken_off():
    assert wrap_classifier(nn.DataParallel(ResNet20())).layers == RESNET


@pytest.mark.parametrize(
    ("n_blocks", "kept"),
    [(3, (0, 1, 2)), (6, (0, 1, 2, 3, 4, 5)), (12, (1, 3, 5, 7, 9, 11)), (7, (0, 1, 2, 3, 4, 6))],
)
def test_a_transformer_gives_at_most_six_blocks_and_the_last(n_blocks, kept):
    assert wrap_classifier(Blocks(n_blocks)).layers == tuple(f"blocks.{k}" for k in kept)


def test_a_plain_chain_gives_what_each_group_ends_in():
    assert wrap_classifier(Chain(nn.Linear(8, 5))).layers == ("body.1", "body.3")


def test_the_stem_is_what_goes_into_the_first_stage():
    network = seeded(ResNet20, n_blocks=1).eval()
    batch = torch.rand(2, 3, 32, 32)
    with torch.no_grad():
        maps = wrap_classifier(network).forward(batch).maps
        stem = network.bn1(network.conv1(batch)).relu()
        assert torch.equal(maps["layer1.input"], stem)
        assert torch.equal(maps["layer1"], network.layer1(stem))
    assert list(maps) == list(RESNET)


def test_maps_with_channels_last_are_turned():
    classifier = wrap_classifier(seeded(ChannelsLast))
    assert classifier.layers == ("stage1.input", "stage1", "stage2")
    batch = torch.rand(2, 3, 32, 32)
    with torch.no_grad():
        maps = classifier.forward(batch).maps
        doubled = classifier.forward(batch, replace_map=("stage2", lambda m: 2 * m))
        logits = classifier.forward(batch).logits
    assert maps["stage2"].shape == (2, 9, 8, 8)
    bias = classifier.head.bias
    torch.testing.assert_close(doubled.logits - bias, 2 * (logits - bias))


def test_layers_can_be_named():
    classifier = wrap_classifier(ResNet20(n_blocks=2), layers=("bn1", "layer2.0", "layer3.1.input"))
    maps = classifier.forward(torch.rand(2, 3, 32, 32)).maps
    assert [tuple(maps[name].shape[1:]) for name in classifier.layers] == [
        (16, 32, 32),
        (32, 16, 16),
        (64, 8, 8),
    ]


def test_no_layers_can_be_asked_for():
    assert (
        wrap_classifier(ResNet20(n_blocks=1), layers=()).forward(torch.rand(1, 3, 32, 32)).maps
        == {}
    )


def test_a_misspelled_layer_gets_a_suggestion():
    with pytest.raises(UnknownNameError, match=r"'layr2'\. Did you mean layer2\?"):
        wrap_classifier(ResNet20(n_blocks=1), layers=["layr2"])


def test_a_layer_that_gives_no_map_is_refused():
    with pytest.raises(InvalidDataError, match=r"Layer 'linear' returns \[2, 10\], but a map is"):
        wrap_classifier(ResNet20(n_blocks=1), layers=["linear"])


def test_a_layer_that_is_called_twice_is_refused():
    class Shared(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(3, 3, 3)
            self.head = nn.Linear(3, 2)

        def forward(self, x):
            return self.head(self.conv(self.conv(x)).mean(dim=(2, 3)))

    with pytest.raises(InvalidDataError, match="'conv' was called 2 times on the example"):
        wrap_classifier(Shared(), layers=["conv"])
    assert wrap_classifier(Shared()).layers == ()


def test_a_network_without_maps_has_no_layers():
    network = nn.Sequential(nn.Flatten(), nn.Linear(3072, 5))
    assert wrap_classifier(network).layers == ()
