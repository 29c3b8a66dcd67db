"""No method makes a table as large as the outputs it is fitted on; those may be mapped files."""

from dataclasses import replace

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from incognita.containers.needs import Needs
from incognita.methods import lard as latent
from incognita.methods import list_methods, load_method
from incognita.methods import mahalanobis as gaussians
from incognita.methods.contract import Toy, with_extra_outputs
from incognita.methods.ensembles import join_members
from incognita.methods.method import Refit
from incognita.methods.numerics import activations
from incognita.methods.numerics import rows as chunks

N, D = 40_000, 32
TABLE = 4 * N * D
FEW = {
    "opengan": {"rows": 1000, "epochs": 1},
    "oodl": {"rows": 500},
    "safe": {"rows": 1000, "epochs": 1},
}
COMPOSED = ["react+knn", "ash-s+openmax", "vra+mds", "dice+ssd"]


class LargestTensor(TorchDispatchMode):
    """Keeps the operation that made the largest tensor that is no view and lies in no file."""

    def __init__(self):
        super().__init__()
        self.n_bytes, self.made_by = 0, None

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        results = operation(*args, **(kwargs or {}))
        there = {_address(each) for each in _tensors((args, kwargs))}
        for each in _tensors(results):
            n_bytes = each.untyped_storage().nbytes()
            is_new = _address(each) not in there and "from_file" not in str(operation)
            if is_new and n_bytes > self.n_bytes:
                self.n_bytes, self.made_by = n_bytes, operation
        return results


def _tensors(values):
    return [each for each in tree_leaves(values) if isinstance(each, torch.Tensor)]


def _address(tensor):
    return tensor.untyped_storage().data_ptr()


@pytest.fixture(scope="module")
def known():
    outputs = Toy(n_classes=32, d=D).outputs(N)
    return replace(outputs, layers={"last": outputs.features})


@pytest.fixture(autouse=True)
def small_limits(monkeypatch):
    """Bring what may be held at once into proportion with a small table."""
    monkeypatch.setattr(chunks, "_FILE_BACKED_FROM", TABLE // 8)
    monkeypatch.setattr(activations, "_MOST", 2**16)
    monkeypatch.setattr(gaussians, "_KMEANS_ROWS", 4096)
    monkeypatch.setattr(latent, "_MOST_FITTED", 1000)
    monkeypatch.setattr(latent, "_MOST_JUDGED", 100)


def equipped(outputs, method):
    if Needs.MEMBERS in method.all_needs:
        return join_members([outputs, outputs])
    if method.all_needs & (Needs.LATENT | Needs.SHORTCUTS):
        layers = dict.fromkeys(("latent/rpn", "shortcut/1"), outputs.features)
        outputs = replace(outputs, layers=layers)
    extra_outputs = [
        p for part in ("known", "validation") for p in method.extra_outputs_to_fit(part)
    ]
    return with_extra_outputs(outputs, extra_outputs)


@pytest.mark.parametrize("name", [*list_methods(), *COMPOSED])
def test_a_fit_makes_no_table_as_large_as_the_outputs(name, known):
    method = load_method(name, **FEW.get(name, {}))
    outputs = equipped(known, method)
    with LargestTensor() as largest:
        method.fit(outputs)
        for parameter, values in method.search_space.items():
            if method.invalidates.get(parameter) is Refit.FINALIZE and name not in FEW:
                method.with_parameters(outputs, **{parameter: values[0]})
    assert largest.n_bytes < TABLE / 3, largest.made_by


def test_a_whole_copy_is_noticed(known):
    with LargestTensor() as largest:
        known.features[:10].double()
    assert largest.n_bytes == 10 * D * 8
    with LargestTensor() as largest:
        known.features[known.labels >= 0]
    assert largest.n_bytes == TABLE


def test_joining_members_makes_no_table_as_large_as_the_outputs(known):
    with LargestTensor() as largest:
        join_members([known, known])
    assert largest.n_bytes < TABLE / 3, largest.made_by


@pytest.mark.parametrize("parameters", [{"share": 1.0}, {"share": 0.5}])
def test_a_large_bank_of_nnguide_is_no_copy_in_memory(parameters, known):
    with LargestTensor() as largest:
        load_method("nnguide", **parameters).fit(known)
    assert largest.n_bytes < TABLE / 3, largest.made_by


def test_clusters_of_ssd_are_found_part_by_part(known):
    with LargestTensor() as largest:
        load_method("ssd", n_clusters=2).fit(known)
    assert largest.n_bytes < TABLE / 3, largest.made_by
