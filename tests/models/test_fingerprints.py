import functools
import importlib
import subprocess
import sys

import numpy as np
import pytest
import torch
from tests.extraction.tiny_detector import GridNetwork
from tests.models.networks import ResNet20, seeded
from torch import nn
from torchvision import transforms

from incognita.models import fingerprints
from incognita.models.fingerprints import describe_callable, hash_weights
from incognita.models.preprocessing import FromPIL, Preprocessing

SHIFT = 0.5
LATEST = []


def by_a_global(image):
    return torch.as_tensor(image) - SHIFT


def through_a_function(image):
    return by_a_global(image)


def closed_over(value):
    return lambda image: torch.as_tensor(image) - value


class Shifted:
    def __init__(self, shift):
        self.shift = shift

    def __call__(self, image):
        return torch.as_tensor(image) - self.shift

    def method(self, image):
        return self(image)


def network():
    return seeded(ResNet20, n_blocks=1)


def test_equal_networks_have_equal_hashes():
    assert hash_weights(network()) == hash_weights(network())


@pytest.mark.parametrize(
    "change",
    [
        lambda net: net.layer2[0].conv1.weight.data[0, 0, 0, 0].add_(1e-6),
        lambda net: net.bn1.running_var.data[3].mul_(1.001),
        lambda net: net.bn1.num_batches_tracked.add_(1),
        lambda net: net.half(),
        lambda net: net.register_buffer("extra", torch.zeros(1), persistent=False),
        lambda net: setattr(net.bn1, "eps", 1e-3),
        lambda net: setattr(net.conv1, "stride", (2, 2)),
    ],
)
def test_any_change_of_a_network_changes_its_hash(change):
    changed = network()
    change(changed)
    assert hash_weights(changed) != hash_weights(network())


def test_the_code_of_a_network_of_ones_own_counts():
    class Plain(nn.Module):
        def forward(self, x):
            return x.relu()

    before = hash_weights(Plain())
    Plain.forward = lambda self, x: x.tanh()
    assert hash_weights(Plain()) != before


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (closed_over(1), closed_over(2)),
        (closed_over(np.zeros(3)), closed_over(np.ones(3))),
        (closed_over(torch.zeros(3)), closed_over(torch.ones(3))),
        (closed_over({"a": [1]}), closed_over({"a": [2]})),
        (closed_over(closed_over(1)), closed_over(closed_over(2))),
        (functools.partial(by_a_global, 1), functools.partial(by_a_global, 2)),
        (Shifted(1), Shifted(2)),
        (Shifted(1).method, Shifted(2).method),
        (FromPIL(transforms.Resize(8)), FromPIL(transforms.Resize(9))),
        (FromPIL(transforms.Lambda(closed_over(1))), FromPIL(transforms.Lambda(closed_over(2)))),
        (transforms.Normalize([0.0], [1.0]), transforms.Normalize([0.0], [2.0])),
        (lambda image: image / 255, lambda image: image / 256),
        (Preprocessing(size=8), Preprocessing(size=9)),
    ],
)
def test_preprocessing_that_differs_is_described_differently(one, other):
    assert describe_callable(one) != describe_callable(other)


def test_equal_preprocessing_is_described_equally():
    assert describe_callable(closed_over(1)) == describe_callable(closed_over(1))
    assert describe_callable(Shifted(1)) == describe_callable(Shifted(1))
    steps = [transforms.Compose([transforms.Resize(8), transforms.ToTensor()]) for _ in range(2)]
    assert describe_callable(FromPIL(steps[0])) == describe_callable(FromPIL(steps[1]))


def test_a_global_that_a_function_reads_counts_even_one_call_further(monkeypatch):
    before = describe_callable(by_a_global), describe_callable(through_a_function)
    monkeypatch.setitem(by_a_global.__globals__, "SHIFT", 0.25)
    after = describe_callable(by_a_global), describe_callable(through_a_function)
    assert before[0] != after[0]
    assert before[1] != after[1]


def test_objects_that_hold_each_other_end():
    one, other = Shifted(1), Shifted(2)
    one.friend, other.friend = other, one
    assert describe_callable(one).startswith("Shifted#")


SNIPPET = """
import torch
from incognita.models.fingerprints import describe_callable, hash_weights

def f(image, kinds={'a', 'b', 'c'}, relu=torch.relu):
    return relu(image) if image in {'x', 'y', 'z'} else object

class Net(torch.nn.Linear):
    names = ('u', 'v')
    def forward(self, x): return x if x in {'p', 'q', 'r'} else f(x)

def described():
    net = Net(1, 1)
    for parameter in net.parameters():
        parameter.data.zero_()
    return f"{describe_callable(f)} {hash_weights(net)}"
"""


def test_a_network_whose_code_names_itself_ends():
    class Recursive(nn.Linear):
        def forward(self, x):
            return super().forward(x) if self is not LATEST[0] else LATEST

    LATEST[:] = [Recursive(1, 1)]
    assert len(hash_weights(LATEST[0])) == 64
    LATEST.clear()


def test_descriptions_are_the_same_in_every_process(tmp_path, monkeypatch):
    (tmp_path / "described_elsewhere.py").write_text(SNIPPET)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("PYTHONHASHSEED", "1")  # sets are in another order there
    here = importlib.import_module("described_elsewhere").described()
    code = "from described_elsewhere import described; print(described())"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == here


def test_inference_tensors_have_a_hash():
    with torch.inference_mode():
        layer = nn.Linear(2, 2)
    assert len(fingerprints.hash_weights(layer)) == 64


class Tempered(nn.Module):
    """A network with settings that `repr` does not show, and with state that a call changes."""

    def __init__(self, temperature=1.0, scales=(1, 2), shift=0.0):
        super().__init__()
        torch.manual_seed(0)
        self.inner = nn.Linear(3, 2)
        self.temperature = temperature
        self.scales = list(scales)
        self.shift = torch.tensor(shift, dtype=torch.bfloat16)
        self.hidden = [nn.Linear(2, 2, bias=False)]  # registered nowhere
        self.hidden[0].weight.data.fill_(shift)
        self.owner = {"of": self, "inner": [self.inner]}
        self.n_calls = 0
        self.last = None
        self._cache = {}

    def forward(self, batch):
        self.n_calls += 1
        self._remember(batch)
        return self.inner(batch) / self.temperature

    def _remember(self, batch):
        self.last = batch.mean()
        self._cache[len(self._cache)] = batch


@pytest.mark.parametrize(
    "settings", [{"temperature": 5.0}, {"scales": (1, 3)}, {"shift": 0.5}], ids=str
)
def test_plain_attributes_of_a_module_of_ones_own_count(settings):
    assert hash_weights(Tempered()) == hash_weights(Tempered())
    assert hash_weights(Tempered(**settings)) != hash_weights(Tempered())
    inside = nn.Sequential(nn.ReLU(), Tempered(**settings))
    assert hash_weights(inside) != hash_weights(nn.Sequential(nn.ReLU(), Tempered()))


def test_what_a_call_changes_by_itself_does_not_count():
    module = Tempered()
    before = hash_weights(module)
    for k in range(2):
        module(torch.full((1, 3), float(k)))
    handle = module.register_forward_hook(lambda *_: None)
    assert hash_weights(module) == before
    handle.remove()
    assert hash_weights(module.train()) == before


def test_a_forward_that_was_put_in_place_of_the_librarys_counts():
    layer, changed = seeded(nn.Linear, 2, 2), seeded(nn.Linear, 2, 2)
    changed.forward = lambda batch: batch
    assert hash_weights(layer) != hash_weights(changed)


@pytest.mark.parametrize("build", [network, lambda: seeded(GridNetwork)])
def test_a_forward_pass_leaves_the_hash_as_it_was(build):
    module = build().eval()
    before = hash_weights(module)
    with torch.no_grad():
        module(torch.rand(1, 3, 32, 32))
    assert hash_weights(module) == before
