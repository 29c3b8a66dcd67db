"""One pass that keeps everything and many cached scores, against plain forward passes.

ResNet-18 at 32 x 32. The images are in memory and preprocessing is a division, so that what is
compared is the network with and without what we do around it.
"""

import time

import numpy as np
import torch
import torchvision

import incognita
from bench.harness import Measurement, Row, Run, at_least, at_most, compare, measure, timed
from bench.toy_outputs import outputs
from incognita.containers.dataset import ArrayDataset
from incognita.containers.needs import Needs
from incognita.containers.outputs import ClassifierOutputs
from incognita.extraction.extract import extract
from incognita.extraction.settings import Settings
from incognita.methods import list_methods, load_method
from incognita.methods.method import Method
from incognita.models.classifier import Classifier, wrap_classifier

N, BATCH, N_BANK = 256, 128, 10_000
NOT_CACHED = Needs.LAYERS | Needs.LATENT | Needs.SHORTCUTS | Needs.MEMBERS
TWENTY = (
    "msp", "max-logit", "energy", "temperature", "entropy", "gen", "kl-matching", "gradnorm", "mds",
    "rmds", "react", "ash-s", "dice", "scale", "vim", "residual", "knn", "she", "fdbd", "nci",
)  # fmt: skip


def rows() -> list[Row]:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    network = small_resnet()
    classifier = wrap_classifier(network, example=torch.zeros(2, 3, 32, 32))
    pictures = np.random.default_rng(0).integers(0, 256, (N, 32, 32, 3), dtype=np.uint8)
    dataset = ArrayDataset("pictures", tuple(map(str, range(N))), pictures)
    methods = fitted(classifier)
    return [
        *against_passes(network, classifier, dataset, methods),
        *precision(classifier, dataset),
        *changes_of_auroc(),
        *per_method(),
    ]


def small_resnet() -> torch.nn.Module:
    network = torchvision.models.resnet18(num_classes=100)
    network.conv1 = torch.nn.Conv2d(3, 64, 3, 1, 1, bias=False)
    network.maxpool = torch.nn.Identity()
    return network.eval()


def fitted(classifier: Classifier) -> list[Method]:
    """Twenty methods fitted on outputs with the shape of this network's."""
    known = outputs(N_BANK, 100, 512, seed=1)
    known = ClassifierOutputs(
        known.image_ids, known.logits, known.features, known.labels, classifier.head
    )
    return [load_method(name).fit(known) for name in TWENTY]


def against_passes(
    network: torch.nn.Module, classifier: Classifier, dataset: ArrayDataset, methods: list[Method]
) -> list[Row]:
    batch = torch.stack([classifier.preprocess(image) for image in dataset.images])

    def plain() -> None:
        with torch.inference_mode():
            for first in range(0, N, BATCH):
                network(batch[first : first + BATCH])

    def keeping() -> ClassifierOutputs:
        return extract(
            classifier, dataset, layers=True, settings=Settings(batch_size=BATCH)
        ).outputs

    def with_scores() -> None:
        found = keeping()
        for method in methods:
            method.score(found)

    def pass_per_method() -> None:
        for _ in TWENTY:
            plain()

    cases: dict[str, Run | None] = {
        "plain forward pass": plain,
        "one pass that keeps logits, features, layers": keeping,
        "the same, and twenty cached scores": with_scores,
    }
    bars = {"the same, and twenty cached scores": at_most(1.05)}
    measured = measure(cases, rounds=3)
    start = time.process_time()
    pass_per_method()  # a minute: once is enough
    cases["a pass per method"] = pass_per_method
    measured["a pass per method"] = Measurement(time.process_time() - start, None)
    part = f"ResNet-18, {N} images of 32 x 32"
    rows = compare(part, cases, measured, ours="plain forward pass", bars=bars)
    ours = "the same, and twenty cached scores"
    few = {name: cases[name] for name in (ours, "a pass per method")}
    bars = {"a pass per method": at_least(18)}
    return rows + compare("for twenty methods", few, measured, ours=ours, bars=bars)


def precision(classifier: Classifier, dataset: ArrayDataset) -> list[Row]:
    cases: dict[str, Run | None] = {
        "bfloat16": lambda: extract(classifier, dataset, settings=Settings(precision="bfloat16")),
        "float32": lambda: extract(classifier, dataset),
    }
    bars = {"float32": at_least(2)}
    part = "extraction on the processor"
    return compare(part, cases, measure(cases, rounds=3), ours="bfloat16", bars=bars)


def changes_of_auroc() -> list[Row]:
    """What bfloat16 does to the numbers: points of AUROC, the larger change of near and far."""
    reports = {
        dtype: incognita.evaluate(
            benchmark="terra/standard",
            methods=", ".join(TWENTY),
            settings=Settings(precision=dtype),
            limit=400,
            n_resamples=0,
        )
        for dtype in ("float32", "bfloat16")
    }
    rows = []
    for name in TWENTY:
        values = {
            dtype: [report.get(name).get("auroc", group).value for group in report.groups]
            for dtype, report in reports.items()
        }
        pairs = zip(values["float32"], values["bfloat16"], strict=True)
        change = max((100 * (b - a) for a, b in pairs), key=abs)
        rows.append(Row("bfloat16 on Terra", name, value=change, unit="points of AUROC"))
    return rows


def per_method() -> list[Row]:
    """Microseconds per row of every method that works on cached outputs, d 2048, 1000 classes."""
    known, test = outputs(5000, 1000, 2048, seed=1), outputs(256, 1000, 2048, seed=2)
    found = []
    for name in list_methods():
        method = load_method(name)
        if method.extra_outputs() or method.all_needs & NOT_CACHED:
            continue
        if name in ("opengan", "oodl"):  # they train for seconds; their scores are one small matmul
            continue
        method.fit(known)
        method.score(test)
        start = time.process_time()
        method.score(test)
        found.append((name, (time.process_time() - start) / len(test)))
    return [timed("one row, d 2048, 1000 classes", name, seconds, None) for name, seconds in found]
