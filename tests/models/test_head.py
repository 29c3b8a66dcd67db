import re

import pytest
import torch
from tests.models.networks import (
    Chain,
    ConvHead,
    Cosine,
    CosineLinear,
    OnTokens,
    Quotient,
    ResNet20,
    Twice,
    seeded,
)
from torch import nn

from incognita.errors import InvalidDataError
from incognita.models.classifier import wrap_classifier


class Named(dict):
    """What transformers gives: a mapping whose entries are attributes too."""

    __getattr__ = dict.__getitem__


def wrap(network, **options):
    return wrap_classifier(network, **options)


def check_head(classifier, n=5):
    batch = torch.randn(n, 3, 32, 32, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        got = classifier.forward(batch)
    assert classifier.head is not None
    assert classifier.head_reason is None
    assert got.features.shape == (n, classifier.head.weight.shape[1])
    torch.testing.assert_close(classifier.head(got.features), got.logits)
    return got


@pytest.mark.parametrize(
    ("end", "name"),
    [
        (nn.Linear(8, 5), "end"),
        (nn.Linear(8, 5, bias=False), "end"),
        (nn.Sequential(nn.Dropout(0.5), nn.Linear(8, 5)), "end.1"),
        (nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 5)), "end.1"),
        (nn.Sequential(nn.Linear(8, 5), nn.Identity()), "end.0"),
        (nn.Sequential(nn.Linear(8, 5), nn.Dropout()), "end.0"),
        (nn.Sequential(nn.Unflatten(1, (8, 1, 1)), nn.Conv2d(8, 5, 1), nn.Flatten()), "end.1"),
        (nn.Sequential(nn.Unflatten(1, (8, 1, 1)), nn.Conv2d(8, 5, 1)), "end.1"),
        (nn.utils.parametrizations.weight_norm(nn.Linear(8, 5)), "end"),
    ],
)
def test_a_linear_head_is_found_whatever_it_is_called(end, name):
    classifier = wrap(Chain(end))
    assert classifier.head_name == name
    check_head(classifier)


def test_a_head_that_begins_at_zero_is_found():
    end = nn.Sequential(nn.Linear(8, 5), nn.Linear(5, 5))
    for parameter in end.parameters():
        nn.init.zeros_(parameter)
    assert wrap(Chain(end)).head_name == "end.1"


@pytest.mark.parametrize(
    ("end", "reason"),
    [
        (Cosine(), "The network has no linear layer"),
        (CosineLinear(8, 5), "not as weight · features"),
        (Twice(), "called more than once"),
        (OnTokens(), "not the output of a linear layer"),
        (Quotient(), "not the output of a linear layer"),
        (nn.Sequential(nn.Linear(8, 5), nn.Softmax(1)), "not the output of a linear layer"),
        (nn.Sequential(nn.Linear(8, 5), nn.ReLU(inplace=True)), "'end.0'"),
        (nn.Sequential(nn.Linear(8, 5), nn.Sigmoid()), "'end.0', the last one called"),
    ],
)
def test_what_is_no_linear_head_is_said_in_a_sentence(end, reason):
    classifier = wrap(Chain(end))
    assert classifier.head is None
    assert torch.no_grad()(classifier.forward)(torch.rand(2, 3, 32, 32)).features is None
    assert re.search(reason, classifier.head_reason)


def test_a_relu_that_changes_nothing_on_the_example_is_noticed():
    end = nn.Sequential(nn.Linear(8, 5), nn.ReLU(inplace=True))
    nn.init.constant_(end[0].bias, 1000.0)
    classifier = wrap(Chain(end))
    assert classifier.head is None
    assert "changed after it" in classifier.head_reason


@pytest.mark.parametrize(
    ("between", "is_head"),
    [(nn.Identity(), True), (nn.ReLU(), False), (nn.ReLU(inplace=True), False)],
)
def test_a_convolution_before_the_mean_is_a_head_unless_something_bends_it(between, is_head):
    classifier = wrap(ConvHead(between))
    assert (classifier.head is not None) == is_head
    if is_head:
        check_head(classifier)


def test_a_convolution_before_a_maximum_is_no_head():
    class Largest(nn.Module):
        def forward(self, x):
            return x.amax(dim=(2, 3), keepdim=True)

    assert wrap(ConvHead(Largest())).head is None


@pytest.mark.parametrize(
    "form",
    [
        lambda logits, features: (logits, features),
        lambda logits, features: [features, logits],
        lambda logits, features: {"logits": logits, "aux": features},
        lambda logits, features: Named(loss=None, logits=logits),
        lambda logits, features: {"out": logits},
        lambda logits, features: (None, logits[:, :, None, None]),
    ],
)
def test_logits_are_found_in_what_a_network_gives(form):
    network = seeded(Chain, nn.Linear(8, 5), wrap=form)
    classifier = wrap(network)
    got = check_head(classifier)
    assert got.logits.shape == (5, 5)


def test_class_names_decide_between_two_tables():
    network = Chain(nn.Linear(8, 5), wrap=lambda logits, features: (features, logits))
    assert wrap(network, class_names=list("abcde")).place == 1
    assert wrap(network, class_names=list("abcdefgh")).place == 0


@pytest.mark.parametrize("form", [lambda a, b: "text", lambda a, b: a.mean(), lambda a, b: (None,)])
def test_a_network_without_logits_is_refused(form):
    with pytest.raises(InvalidDataError, match=r"Expected logits \[n, classes\]"):
        wrap(Chain(nn.Linear(8, 5), wrap=form), example=torch.zeros(2, 3, 32, 32))


def test_the_head_follows_the_weights():
    network = ResNet20(n_blocks=1)
    classifier = wrap(network)
    with torch.no_grad():
        network.linear.weight.mul_(2)
    check_head(classifier)


def test_a_half_precision_network_has_a_head():
    network = seeded(ResNet20, n_blocks=1).to(torch.bfloat16)
    assert wrap(network).head_name == "linear"
