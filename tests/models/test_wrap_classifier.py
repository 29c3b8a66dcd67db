import inspect
import pickle
import subprocess
import sys
from copy import deepcopy

import numpy as np
import pytest
import torch
from tests.models.networks import Chain, Quotient, ResNet20, seeded
from torch import nn
from torchvision import transforms

from incognita.errors import InvalidDataError, UnknownNameError
from incognita.models.classifier import Classifier, as_preprocessing, wrap_classifier
from incognita.models.preprocessing import FromPIL, Preprocessing


def batch(n=6, seed=1, side=32):
    return torch.randn(n, 3, side, side, generator=torch.Generator().manual_seed(seed))


@pytest.fixture
def classifier():
    return wrap_classifier(
        seeded(ResNet20, n_blocks=1).eval(), preprocess=Preprocessing(std=(0.2, 0.3, 0.4))
    )


def test_it_is_a_classifier(classifier):
    assert isinstance(classifier, Classifier)


def test_outputs_are_those_of_the_network(classifier):
    x = batch()
    with torch.no_grad():
        assert torch.equal(classifier.forward(x).logits, classifier.module(x))


def test_neither_order_nor_batch_size_matters(classifier):
    x = batch(7)
    with torch.no_grad():
        whole = classifier.forward(x)
        parts = [classifier.forward(part) for part in (x[:1], x[1:4], x[4:])]
        turned = classifier.forward(x.flip(0))
    joined = torch.cat([part.logits for part in parts]), torch.cat([p.features for p in parts])
    torch.testing.assert_close(joined[0], whole.logits)
    torch.testing.assert_close(joined[1], whole.features)
    torch.testing.assert_close(turned.logits.flip(0), whole.logits)
    torch.testing.assert_close(turned.maps["layer2"].flip(0), whole.maps["layer2"])


@pytest.mark.parametrize("trained", ["all of it", "a part", "nothing"])
def test_outputs_are_those_of_evaluation_and_every_mode_stays(trained):
    network = nn.Sequential(nn.Dropout(0.5), Chain(nn.Linear(8, 5))).eval()
    x = batch()
    with torch.no_grad():
        expected = network(x)
    if trained == "all of it":
        network.train()
    elif trained == "a part":
        network[0].train()
    modes = [each.training for each in network.modules()]
    wrapped = wrap_classifier(network)
    assert [each.training for each in network.modules()] == modes
    with torch.no_grad():
        assert torch.equal(wrapped.forward(x).logits, expected)
    assert [each.training for each in network.modules()] == modes
    with pytest.raises(RuntimeError):
        wrapped.forward(torch.zeros(1, 5, 32, 32))
    assert [each.training for each in network.modules()] == modes


def test_wrapping_leaves_no_trace_in_the_network(classifier):
    def hooks(module):
        return [(m._forward_hooks, m._forward_pre_hooks) for m in module.modules()]

    classifier.forward(batch(1))
    assert not any(hook for pair in hooks(classifier.module) for hook in pair)
    with pytest.raises(RuntimeError):
        classifier.forward(torch.zeros(1, 5, 32, 32))
    assert not any(hook for pair in hooks(classifier.module) for hook in pair)


def test_wrapping_draws_no_random_numbers():
    network = ResNet20(n_blocks=1)
    before = torch.random.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    wrap_classifier(network)
    assert torch.equal(before[0], torch.random.get_rng_state())
    assert np.array_equal(before[1], np.random.get_state()[1])  # noqa: NPY002


def test_gradients_reach_the_batch_and_equal_differences():
    wrapped = wrap_classifier(seeded(ResNet20, n_blocks=1).double(), layers=["layer1"])
    x = batch(2).double().requires_grad_()
    (gradient,) = torch.autograd.grad(wrapped.forward(x).logits.amax(dim=1).sum(), x)
    step = 1e-6 * torch.randn(x.shape, generator=torch.Generator().manual_seed(3)).double()
    with torch.no_grad():
        up, down = (wrapped.forward(x + s).logits.amax(dim=1).sum() for s in (step, -step))
    torch.testing.assert_close((gradient * step).sum(), (up - down) / 2, rtol=1e-5, atol=0)


def test_a_replaced_map_is_what_the_rest_of_the_network_sees(classifier):
    x, network = batch(3), classifier.module
    with torch.no_grad():
        got = classifier.forward(x, replace_map=("layer2", lambda m: m.clamp(max=0.1)))
        maps = classifier.forward(x).maps
        changed = network.layer3(maps["layer2"].clamp(max=0.1)).mean(dim=(2, 3))
        stem = classifier.forward(x, replace_map=("layer1.input", torch.zeros_like))
        nothing = network.layer1(torch.zeros_like(maps["layer1.input"]))
    assert torch.equal(got.logits, network.linear(changed))
    assert torch.equal(got.maps["layer2"], maps["layer2"].clamp(max=0.1))
    assert torch.equal(stem.maps["layer1"], nothing)


def test_a_map_inside_a_tuple_is_replaced_too():
    class Pair(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(3, 4, 3)

        def forward(self, x):
            return self.conv(x), None

    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            self.stage, self.fc = Pair(), nn.Linear(4, 2)

        def forward(self, x):
            return self.fc(self.stage(x)[0].mean(dim=(2, 3)))

    wrapped = wrap_classifier(Network(), layers=["stage"])
    with torch.no_grad():
        got = wrapped.forward(batch(2), replace_map=("stage", torch.zeros_like))
    assert torch.equal(got.logits, wrapped.head.bias.expand(2, 2))


def test_an_unknown_layer_to_replace_gets_a_suggestion(classifier):
    with pytest.raises(UnknownNameError, match=r"Did you mean layer3\?"):
        classifier.forward(batch(1), replace_map=("layer33", lambda m: m))


def test_numerators_are_recorded():
    network = seeded(Chain, Quotient()).eval()
    wrapped = wrap_classifier(network, numerator="end.h")
    with torch.no_grad():
        got = wrapped.forward(batch(3))
        features = network.body(batch(3)).mean(dim=(2, 3))
        torch.testing.assert_close(got.numerators, network.end.h(features))
        torch.testing.assert_close(got.logits, got.numerators / network.end.g(features))


def test_wrong_numerators_are_refused():
    with pytest.raises(UnknownNameError, match=r"No submodule is called 'end\.hh'"):
        wrap_classifier(Chain(Quotient()), numerator="end.hh")
    with pytest.raises(InvalidDataError, match=r"'end.g' returns \[2, 1\], but numerators are"):
        wrap_classifier(Chain(Quotient()), numerator="end.g")


def test_classes_have_names_by_default(classifier):
    assert classifier.class_names[0] == "class 0"
    assert len(classifier.class_names) == 10


def test_a_wrong_number_of_class_names_is_refused():
    with pytest.raises(InvalidDataError, match="got 3 names for 10 logits"):
        wrap_classifier(ResNet20(n_blocks=1), class_names=["a", "b", "c"])


def test_pixels_are_scaled_as_the_preprocessing_says(classifier):
    assert classifier.pixel_std.tolist() == pytest.approx([0.2, 0.3, 0.4])
    unwrap = wrap_classifier(ResNet20(n_blocks=1), preprocess=FromPIL(transforms.ToTensor()))
    assert unwrap.pixel_std.tolist() == [1.0, 1.0, 1.0]
    given = wrap_classifier(ResNet20(n_blocks=1), pixel_std=(0.5, 0.5, 0.25))
    assert given.pixel_std.tolist() == [0.5, 0.5, 0.25]
    with pytest.raises(InvalidDataError, match="got 1 for a network with 3 channels"):
        wrap_classifier(ResNet20(n_blocks=1), pixel_std=(0.5,))


def test_the_weights_hash_follows_the_weights(classifier):
    before = classifier.weights_hash
    assert classifier.weights_hash == before
    with torch.no_grad():
        classifier.module.layer2[0].conv1.weight[0, 0, 0, 0] += 1e-4
    after = classifier.weights_hash
    assert after != before
    classifier.module.linear.weight.data.mul_(0.5)  # torch does not count this write
    assert classifier.weights_hash != after


def test_it_moves_and_says_so(classifier):
    assert classifier.to("cpu", torch.float64) is classifier
    assert classifier.forward(batch(1).double()).logits.dtype == torch.float64
    assert classifier.head.weight.dtype == torch.float64


def test_it_survives_pickling(classifier):
    again = pickle.loads(pickle.dumps(classifier))
    x = batch(2)
    with torch.no_grad():
        mine, theirs = classifier.forward(x), again.forward(x)
    assert torch.equal(mine.logits, theirs.logits)
    assert torch.equal(mine.features, theirs.features)
    assert all(torch.equal(mine.maps[name], theirs.maps[name]) for name in classifier.layers)
    assert again.weights_hash == classifier.weights_hash
    assert again.preprocessing == classifier.preprocessing


def test_what_cannot_be_pickled_is_said_in_a_sentence():
    wrapped = wrap_classifier(ResNet20(n_blocks=1), preprocess=lambda image: torch.rand(3, 32, 32))
    with pytest.raises(InvalidDataError, match="cannot be sent to another process"):
        pickle.dumps(wrapped)


def test_a_copy_has_weights_of_its_own_and_may_hold_a_lambda():
    wrapped = wrap_classifier(ResNet20(n_blocks=1), preprocess=lambda image: torch.rand(3, 32, 32))
    copied = deepcopy(wrapped)
    assert copied.weights_hash == wrapped.weights_hash
    with torch.no_grad():
        copied.module.linear.weight.add_(1)
    assert copied.weights_hash != wrapped.weights_hash


def test_an_example_can_be_given():
    network = nn.Sequential(nn.Flatten(), nn.Linear(3 * 5 * 7, 4))
    assert wrap_classifier(network, example=torch.rand(1, 3, 5, 7)).head.weight.shape == (4, 105)
    with pytest.raises(InvalidDataError, match="pass example=, a preprocessed batch"):
        wrap_classifier(network)


def test_a_network_for_one_gray_channel_is_wrapped():
    def gray(image):
        return torch.as_tensor(image).float().mean(dim=2)[None] / 255

    network = nn.Sequential(nn.Conv2d(1, 4, 3), nn.Flatten(), nn.Linear(4 * 26 * 26, 10))
    wrapped = wrap_classifier(network, preprocess=gray)
    assert wrapped.pixel_std.tolist() == [1.0]
    assert wrapped.preprocess(np.zeros((28, 28, 3), np.uint8)).shape == (1, 28, 28)
    assert wrapped.preprocessing.startswith("test_a_network_for_one_gray_channel_is_wrapped")


def test_preprocessing_may_give_arrays():
    wrapped = wrap_classifier(
        ResNet20(n_blocks=1), preprocess=lambda image: image.transpose(2, 0, 1).astype(np.float32)
    )
    assert wrapped.preprocess(np.ones((4, 4, 3), np.uint8)).sum() == 48


def test_a_compiled_network_is_opened():
    assert (
        wrap_classifier(torch.compile(ResNet20(n_blocks=1), backend="eager")).head_name == "linear"
    )


def test_models_can_be_listed_without_torch():
    code = "from incognita.models import MODELS; import sys; print(*MODELS.names(), *sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "terra:classifier" in run.stdout
    assert "torch" not in run.stdout.split()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_gpu_gives_what_the_cpu_gives(classifier):
    x = batch(4)
    with torch.no_grad():
        here = classifier.forward(x)
        there = classifier.to("cuda").forward(x.cuda())
    torch.testing.assert_close(there.logits.cpu(), here.logits, rtol=1e-3, atol=1e-3)
    assert classifier.head.weight.is_cuda
    again = wrap_classifier(classifier.module)
    assert again.head_name == "linear"
    assert again.weights_hash == wrap_classifier(seeded(ResNet20, n_blocks=1)).weights_hash


def test_a_classifier_without_stated_preprocessing_remembers_it_and_can_get_one():
    network = seeded(ResNet20, n_blocks=1)
    unstated = wrap_classifier(network)
    assert not unstated.states_preprocessing
    assert wrap_classifier(network, preprocess="none").states_preprocessing
    stated = unstated.with_preprocess("size=32 mean=cifar10 std=cifar10")
    whole = wrap_classifier(network, preprocess=Preprocessing(32, None, "cifar10", "cifar10"))
    assert stated.preprocessing == whole.preprocessing
    assert stated.states_preprocessing
    torch.testing.assert_close(stated.pixel_std, whole.pixel_std)
    image = np.full((40, 32, 3), 200, np.uint8)
    torch.testing.assert_close(stated.preprocess(image), whole.preprocess(image))
    with pytest.raises(InvalidDataError, match="Expected preprocess to be text"):
        inspect.unwrap(as_preprocessing)(5)
