"""The table of model libraries: a new library is one module and one entry."""

import inspect
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest
import torch
from tests.models.torchvision_networks import drawn
from torch import nn

import incognita.models
from incognita.errors import InvalidDataError
from incognita.models import fingerprints, libraries
from incognita.models.classifier import wrap_classifier
from incognita.models.detector import is_detector_network, wrap_detector
from incognita.models.libraries import LIBRARIES, ModelLibrary, library_examples
from incognita.models.load import load_model


@pytest.fixture
def toy(monkeypatch):
    """Add a library called toy, with a classifier and a detector, as a user would."""
    module = ModuleType("toy_adapters")
    module.load = lambda name, options: wrap_classifier(nn.Flatten(), name=f"toy:{name}")
    module.wrap = lambda network, **options: wrap_detector(drawn("faster"), name="toy detector")
    monkeypatch.setitem(sys.modules, "toy_adapters", module)
    library = ModelLibrary(
        prefix="toy",
        load="toy_adapters:load",
        usage="toy:NAME",
        help="A model of toy.",
        wrap="toy_adapters:wrap",
        detector_classes=("ToyDetector",),
        detectors="ToyDetector",
    )
    monkeypatch.setattr(libraries, "LIBRARIES", [*LIBRARIES, library])
    monkeypatch.setattr("incognita.models.load.LIBRARIES", [*LIBRARIES, library])
    return library


def test_a_new_library_is_one_entry(toy):
    assert load_model("toy:flat").name == "toy:flat"
    network = type("ToyDetector", (nn.Module,), {"__module__": "toy.nn"})()
    assert is_detector_network(network)
    assert wrap_detector(network).name == "toy detector"
    with pytest.raises(InvalidDataError, match="Detectors of toy do not take prompts="):
        wrap_detector(network, prompts=["a cat"])
    assert library_examples()["toy:NAME"] == "A model of toy."


def test_every_entry_names_functions_that_exist():
    for library in LIBRARIES:
        pytest.importorskip(library.prefix)
        assert callable(library.loader())
        assert library.wrap is None or callable(library.wrapper())


def test_every_library_has_its_own_prefix_and_its_code_is_not_followed():
    prefixes = [library.prefix for library in LIBRARIES]
    assert len(set(prefixes)) == len(prefixes)
    assert set(prefixes) <= fingerprints._PACKAGES
    for library in LIBRARIES:
        assert library.usage.startswith(f"{library.prefix}:")


def test_every_extra_is_one_of_the_project():
    project = tomllib.loads(Path("pyproject.toml").read_text())["project"]
    for library in LIBRARIES:
        assert library.extra is None or library.extra in project["optional-dependencies"]


def test_the_names_of_the_package_are_lazy():
    code = (
        "import sys, incognita.models as m; m.LIBRARIES; m.library_examples()\n"
        "print({'torch', 'torchvision', 'timm', 'transformers'} & set(sys.modules))\n"
        "from incognita.models import Classifier, Detector, Preprocessing, load_model\n"
        "from incognita.models import wrap_classifier, wrap_detector\n"
        "print(callable(wrap_classifier), callable(wrap_detector))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.splitlines() == ["set()", "True True"]


def test_every_public_name_exists():
    for name in incognita.models.__all__:
        assert getattr(incognita.models, name) is not None
    assert sorted(incognita.models.__all__) == dir(incognita.models)
    with pytest.raises(AttributeError, match="has no attribute 'wrap_segmenter'"):
        incognita.models.wrap_segmenter  # noqa: B018 - the access is the test


def test_an_adapter_is_shown_in_one_line():
    classifier = wrap_classifier(nn.Sequential(nn.Flatten(), nn.Linear(3072, 10)), name="mine")
    assert repr(classifier) == "WrappedClassifier(mine, 10 classes)"
    assert repr(wrap_detector(drawn("faster"))) == "TorchvisionDetector(FasterRCNN, 4 classes)"
    assert classifier.to(dtype=torch.float64).head.weight.dtype == torch.float64


def test_a_loader_that_fails_is_one_sentence(monkeypatch):
    # its "loader" is a function that cannot take these arguments
    broken = ModelLibrary(prefix="broken", load="os:getpid", usage="broken:NAME", help="Fails.")
    monkeypatch.setattr("incognita.models.load.LIBRARIES", [*LIBRARIES, broken])
    with pytest.raises(InvalidDataError, match=r"broken:x could not be loaded \(TypeError: "):
        load_model("broken:x")


@pytest.mark.usefixtures("outside_tests")
def test_a_name_is_not_a_network():
    with pytest.raises(InvalidDataError, match="Expected a torch module, got 'resnet18'"):
        inspect.unwrap(wrap_classifier)("resnet18")
