"""A real network on real images, end to end: CIFAR-10 against CIFAR-100 and house numbers."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.metrics import roc_auc_score

import incognita
from incognita.benchmarks.benchmark import Benchmark
from incognita.containers.dataset import ArrayDataset

STUDY = Path(__file__).parents[1] / "studies" / "cifar10"
METHODS = "msp, energy, max-logit, gen, knn(k=10), react, gradnorm, ash-s"


def tiles(path, columns, places):
    picture = np.asarray(Image.open(path).convert("RGB"))
    rows = picture.shape[0] // 32
    cut = picture.reshape(rows, 32, columns, 32, 3).transpose(0, 2, 1, 3, 4).reshape(-1, 32, 32, 3)
    return cut[places]


def a_set(name, path, columns, places, labels=None):
    ids = tuple(f"{name}/{k}" for k in places)
    return ArrayDataset(name, ids, tiles(path, columns, places), labels)


@pytest.fixture(scope="module")
def network(data_dir):
    sys.path.insert(0, str(STUDY))
    try:
        from resnet18 import build
    finally:
        sys.path.remove(str(STUDY))
    from incognita.models.load import load_model

    weights = data_dir / "weights" / "resnet18_cifar10_fp16.safetensors"
    assert build().head.weight.shape == (10, 512)
    return load_model(f"{STUDY / 'resnet18.py'}:build", weights=weights)


@pytest.fixture(scope="module")
def benchmark(data_dir):
    folder = data_dir / "classification"
    truth = json.loads((folder / "cifar10" / "labels.json").read_text())
    test = truth["openood_v15_test_index"][:200]
    train = list(range(0, 10_000, 50))
    train_labels = np.array(truth["train_labels"])[train]
    others, digits = list(range(0, 5000, 25)), list(range(0, 1040, 10))
    return Benchmark(
        name="real/cifar10",
        version=1,
        title="a few real images",
        classes=truth["classes"],
        train=a_set("train", folder / "cifar10/train10k.webp", 100, train, train_labels),
        test=a_set(
            "test", folder / "cifar10/test.webp", 100, test, np.array(truth["test_labels"])[test]
        ),
        unknown={
            "near": {"cifar100": a_set("cifar100", folder / "cifar100/test.webp", 100, others)},
            "far": {"svhn": a_set("svhn", folder / "svhn/digits32.webp", 32, digits)},
        },
    )


@pytest.fixture(scope="module")
def found(network, benchmark):
    return incognita.evaluate(network, benchmark, METHODS, n_resamples=50)


@pytest.mark.data
def test_the_network_is_as_good_as_its_training_says(found):
    accuracy = found.get("msp").get("accuracy", "known")
    assert accuracy.value == pytest.approx(0.951, abs=0.04)  # 200 of the 10,000 images


@pytest.mark.data
def test_methods_come_near_the_published_numbers(found):
    """Table 1 of OpenOOD v1.5, which these few images can miss by some points."""
    published = {"msp": (0.880, 0.907), "energy": (0.876, 0.912), "knn(k=10)": (0.906, 0.930)}
    for method, (near, far) in published.items():
        result = found.get(method)
        assert result.get("auroc", "near").value == pytest.approx(near, abs=0.06)
        assert result.get("auroc", "far").value == pytest.approx(far, abs=0.09)


@pytest.mark.data
def test_scores_are_those_of_the_plain_network(network, benchmark, found):
    mean, std = torch.tensor([0.4914, 0.4822, 0.4465]), torch.tensor([0.2470, 0.2435, 0.2616])
    images = torch.as_tensor(benchmark.test.images[:50]).float() / 255
    with torch.inference_mode():
        logits = network.module(((images - mean) / std).permute(0, 3, 1, 2)).double()
    expected = -torch.logsumexp(logits, dim=1)
    np.testing.assert_allclose(found.scores["energy"]["test"][:50], expected, rtol=1e-4)


@pytest.mark.data
def test_numbers_are_those_of_sklearn(found):
    known, unknown = (found.scores["react"][name] for name in ("test", "svhn"))
    truth = np.repeat([0, 1], [len(known), len(unknown)])
    expected = roc_auc_score(truth, np.concatenate([known, unknown]))
    assert found.get("react").get("auroc", "far").value == pytest.approx(expected, abs=1e-12)
