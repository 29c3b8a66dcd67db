"""Speed on a machine with a GPU: `python -m bench.gpu [SECTION …]`; images are made here.

Not a part of `make bench`, which needs no GPU. Its table is in studies/scale/README.md.
"""

import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from incognita.containers import ClassifierOutputs, Head, Needs
from incognita.containers.dataset import ArrayDataset
from incognita.extraction.extract import Settings, extract
from incognita.extraction.loading import ReaderProcesses
from incognita.formats.images import FileDataset

ROOT = Path(tempfile.gettempdir()) / "incognita-bench-jpeg"
N_IMAGES = 16_384
Row = tuple[str, float, str]


def make_image(k: int) -> None:
    """Write a JPEG file of 500 x 375 pixels with the spectrum of a photograph, roughly."""
    random = np.random.default_rng(k)
    coarse = random.integers(0, 256, (24, 32, 3), dtype=np.uint8)
    smooth = np.asarray(Image.fromarray(coarse).resize((500, 375), Image.Resampling.BICUBIC))
    noisy = smooth.astype(np.int16) + random.integers(-12, 13, smooth.shape)
    Image.fromarray(noisy.clip(0, 255).astype(np.uint8)).save(ROOT / f"{k:05d}.jpg", quality=90)


def jpeg_files(n: int = N_IMAGES) -> FileDataset:
    """Return a data set of files, which are made if they are not there."""
    ROOT.mkdir(exist_ok=True)
    missing = [k for k in range(n) if not (ROOT / f"{k:05d}.jpg").exists()]
    if missing:
        with ProcessPoolExecutor() as pool:
            list(pool.map(make_image, missing, chunksize=64))
    return FileDataset("jpeg", ROOT, tuple(f"{k:05d}.jpg" for k in range(n)))


def classifier(name: str = "resnet50", resampling: str = "pillow"):
    import torchvision

    from incognita import Preprocessing, wrap_classifier

    network = getattr(torchvision.models, name)(weights=None)
    steps = Preprocessing(256, 224, "imagenet", "imagenet", resampling=resampling)
    return wrap_classifier(network, preprocess=steps)


def seconds(call: Callable[[], object], repeats: int = 2) -> float:
    """Return the shortest time of a call, with the GPU's work done."""
    times = []
    for _ in range(repeats):
        torch.cuda.synchronize()
        start = time.perf_counter()
        call()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return min(times)


def network_alone(model: object, precision: str, n_batches: int = 64) -> float:
    """Return images per second of the forward pass alone, from levels on the device."""
    task = extraction(model).start(Settings(device="cuda", precision=precision))
    batch = torch.randint(0, 256, (128, 224, 224, 3), dtype=torch.uint8, device="cuda")
    from incognita.extraction.settings import OutputRequest

    def run() -> None:
        with task.exact():
            for _ in range(n_batches):
                task.record(batch, OutputRequest())

    run()
    rate = 128 * n_batches / seconds(run)
    task.close()
    return rate


def extraction(model: object):
    from incognita.extraction.extract import task_of

    return task_of(model)


def rate(model: object, images: object, n_readers: int = 0, **settings: object) -> float:
    """Return images per second through `extract`, after a first pass over a few of them."""
    chosen = Settings(device="cuda", workers=n_readers, **settings)
    with ReaderProcesses(max(n_readers, 1), pin=True) as readers:
        extract(
            model, images.subset(range(2048)[: len(images) // 4]), settings=chosen, readers=readers
        )
        taken = seconds(lambda: extract(model, images, settings=chosen, readers=readers), 1)
    return len(images) / taken


def images_section(names: tuple[str, ...] = ("resnet50", "vit_b_16")) -> Iterator[Row]:
    """ResNet-50 and ViT-B/16 at 224 from JPEG files and from memory."""
    files = jpeg_files()
    pixels = np.random.default_rng(0).integers(0, 256, (24_576, 224, 224, 3), dtype=np.uint8)
    held = ArrayDataset("memory", tuple(map(str, range(len(pixels)))), pixels)
    for name, precision in product(names, ("bfloat16", "tf32", "float32")):
        model = classifier(name)
        what = f"{name}, {precision}"
        yield f"{what}: the network alone", network_alone(model, precision), "images/s"
        found = rate(model, files, 16, precision=precision)
        yield f"{what}: from JPEG files, 16 readers", found, "images/s"
        if precision == "bfloat16":
            found = rate(classifier(name, "torch"), files, 16, precision=precision)
            yield f"{what}: from JPEG files, fast resampling", found, "images/s"
        as_held = model.with_preprocess("mean=imagenet std=imagenet")
        yield f"{what}: from memory", rate(as_held, held, precision=precision), "images/s"


def readers_section() -> Iterator[Row]:
    """How reading grows with the number of readers, without a network."""
    from incognita.extraction.loading import Loader
    from incognita.extraction.settings import CLASSIFIER_LAYOUT, ShardJob
    from incognita.models.detector import steps_of

    files, model = jpeg_files(), classifier()
    for n in (4, 8, 16):
        with ReaderProcesses(n, pin=True) as readers:
            loader = Loader(files, steps_of(model), CLASSIFIER_LAYOUT, 1, True, readers)
            jobs = [ShardJob(k, frozenset()) for k in range(len(files) // 512)]
            list(loader.batches(jobs[:4]))
            start = time.perf_counter()
            n_images = sum(len(batch.images.rows) for batch in loader.batches(jobs))
            yield f"{n} readers alone", n_images / (time.perf_counter() - start), "images/s"


def detector() -> object:
    """Return Faster R-CNN with random weights, and class scores that leave about 100 boxes."""
    import torchvision

    from incognita import wrap_detector

    torch.manual_seed(0)
    network = torchvision.models.detection.fasterrcnn_resnet50_fpn(
        weights=None, weights_backbone=None
    )
    with torch.no_grad():
        network.roi_heads.box_predictor.cls_score.weight.mul_(40)
    return wrap_detector(network.eval(), score_threshold=0.05)


def detector_alone(model: object, batch_size: int) -> tuple[float, float]:
    """Return images per second of the library's own call, and boxes per image."""
    network = model.module.cuda()
    pixels = list(torch.rand(batch_size, 3, 375, 500, device="cuda"))
    task = extraction(model).start(Settings(device="cuda"))

    def run() -> list[object]:
        with torch.inference_mode(), task.exact():
            return [network(pixels) for _ in range(128 // batch_size)]

    n_boxes = np.mean([len(found["boxes"]) for found in run()[0]])
    taken = seconds(run)
    task.close()
    return 128 / taken, float(n_boxes)


def detector_section() -> Iterator[Row]:
    """Faster R-CNN ResNet-50 FPN at 800 pixels, one by one and by eight."""
    files, model = jpeg_files(512), detector()
    for batch_size in (1, 8):
        limit, n_boxes = detector_alone(model, batch_size)
        yield f"Faster R-CNN by {batch_size}, {n_boxes:.0f} boxes: the network", limit, "images/s"
        found = rate(model, files, 8, batch_size=batch_size)
        yield f"Faster R-CNN by {batch_size}: from JPEG files", found, "images/s"


def made_outputs(n: int, head: Head, *, seed: int, shift: float = 0.0) -> ClassifierOutputs:
    """Return rows of 2048 features around the weights of their class, on the host."""
    generator = torch.Generator("cuda").manual_seed(seed)
    weight = head.weight.cuda()
    labels = torch.randint(0, len(weight), (n,), device="cuda", generator=generator)
    features = torch.empty(n, weight.shape[1], device="cuda").normal_(generator=generator)
    features = (features + 8 * (1 - shift) * weight[labels]).relu_()
    logits = features @ weight.T + head.bias.cuda()
    ids = tuple(map(str, range(n)))
    return ClassifierOutputs(ids, logits.cpu(), features.cpu(), labels.cpu(), head)


@dataclass(frozen=True)
class MadeExtractor:
    """Outputs that are there already, by the name of their set."""

    made: Mapping[str, ClassifierOutputs]

    def outputs(self, name: str, dataset: object, **_: object) -> ClassifierOutputs:
        return self.made[name]

    def empty(self) -> ClassifierOutputs:
        first = next(iter(self.made.values()))
        return ClassifierOutputs.empty(first.logits.shape[1], first.head)


def arithmetic_methods() -> dict[str, object]:
    """Return the methods that need nothing but logits, features, head and labels."""
    from incognita.methods import list_methods, load_method

    slow = {"oodl", "opengan", "godin", "ensemble"}
    made = {name: load_method(name) for name in list_methods() if name not in slow}
    pooled = Needs.LAYERS | Needs.LATENT | Needs.SHORTCUTS
    return {
        name: method
        for name, method in made.items()
        if not method.all_needs & pooled
        and not method.extra_outputs()
        and not any(method.extra_outputs_to_fit(part) for part in ("known", "validation"))
    }


def methods_section(n_known: int = 200_000, n_scored: int = 20_000) -> Iterator[Row]:
    """Fit and score: 200,000 x 2048 known rows, 1000 classes, 20,000 rows to score."""
    from incognita.benchmarks.benchmark import Benchmark
    from incognita.evaluation.fit_and_score import MethodRunner

    torch.manual_seed(0)
    head = Head(torch.randn(1000, 2048) / 45, torch.zeros(1000))
    made = {
        "train": made_outputs(n_known, head, seed=1),
        "test": made_outputs(n_scored // 2, head, seed=2),
        "far": made_outputs(n_scored // 2, head, seed=3, shift=0.7),
    }
    none = np.zeros((0, 1, 1, 3), np.uint8)
    sets = {name: ArrayDataset(name, (), none) for name in made}
    benchmark = Benchmark(
        "made", 1, "made", tuple(map(str, range(1000))), sets["test"],
        {"far": {"far": sets["far"]}}, train=sets["train"],
    )  # fmt: skip
    warm = {name: rows[torch.arange(len(rows)) < 4000] for name, rows in made.items()}
    for outputs in (warm, made):
        runner = MethodRunner(
            benchmark, MadeExtractor(outputs), arithmetic_methods(), device="cuda"
        )
        start = time.perf_counter()
        scored = runner.run()
        torch.cuda.synchronize()
        taken = time.perf_counter() - start
        torch.cuda.empty_cache()
    n_rows = sum(map(len, (made["test"], made["far"])))
    for key, fitted in sorted(
        scored.fitted.items(), key=lambda item: -item[1].fit_seconds - item[1].score_seconds
    ):
        total = fitted.fit_seconds + fitted.score_seconds
        if total > 0.05:
            yield f"  {key}, fit {fitted.fit_seconds:.2f} s, score", fitted.score_seconds, "s"
    for name, why in scored.failed.items():
        yield f"  {name} failed: {why[:60]}", float("nan"), ""
    yield f"{len(scored.fitted)} methods, {n_known:,} known and {n_rows:,} rows", taken, "s"


def neighbors_section() -> Iterator[Row]:
    """KNN with 1.28 million known rows of 2048 features, 50,000 queries."""
    from incognita.methods import KNN

    features = torch.empty(1_281_167, 2048).normal_()
    known = ClassifierOutputs(tuple(range(len(features))), torch.zeros(len(features), 1), features)
    queries = torch.empty(50_000, 2048).normal_()
    seen = ClassifierOutputs(tuple(range(50_000)), torch.zeros(50_000, 1), queries).to("cuda")
    for where in ("cuda", "cpu"):
        moved = known.to(where)
        method = KNN(k=1000)
        taken = seconds(lambda: method.fit(moved).score(seen), 1)  # noqa: B023
        yield f"KNN, 1.28 M x 2048, 50,000 queries, bank on {where}", taken, "s"


SECTIONS = {
    "readers": readers_section,
    "images": images_section,
    "resnet50": lambda: images_section(("resnet50",)),
    "detector": detector_section,
    "methods": methods_section,
    "neighbors": neighbors_section,
}


def main(names: list[str]) -> None:
    """Run sections and print one line per figure."""
    print(torch.__version__, torch.cuda.get_device_name(), flush=True)
    with suppress(RuntimeError):
        torch.set_num_threads(8)
    for name in names or SECTIONS:
        for what, value, unit in SECTIONS[name]():
            print(f"{what:60s} {value:12,.1f} {unit}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
