"""The page of a large run: how long it takes, and how many bytes it has.

Bootstrap replicates are drawn before the page is written, when a run is measured or loaded. Images
are noise, which is the largest as a thumbnail.
"""

import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from tests.report.toy_runs import toy_evaluation

from bench.harness import Row, at_most
from incognita.evaluation.classifier_metrics import measure_methods
from incognita.report import save_html
from incognita.results.evaluation import Evaluation
from incognita.semantics import load_synset_map

N_IMAGES, N_METHODS, N_CLASSES = 150_000, 30, 1000
N_RESAMPLES = 20
MOST_SECONDS, MOST_BYTES = 30, 3_000_000


def rows() -> list[Row]:
    run = large_run()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "report.html"
        start = time.perf_counter()
        save_html(run, path)
        seconds = time.perf_counter() - start
        n_bytes = path.stat().st_size
    n_images = sum(map(len, run.sets))
    part = f"{n_images:,} images, {N_METHODS} methods, {N_CLASSES:,} classes"
    again = seconds_of_replicates(run)
    return [
        Row(part, "200 replicates of one method, drawn again", again, again, "s"),
        row(part, "time of the page", seconds, seconds, "s", MOST_SECONDS),
        row(part, "size of the page", seconds, n_bytes / 1e6, "MB", MOST_BYTES / 1e6),
    ]


def row(part: str, case: str, seconds: float, value: float, unit: str, limit: float) -> Row:
    bar = at_most(limit)
    return Row(part, case, seconds, value, unit, None, str(bar), bar.is_met(value))


def seconds_of_replicates(run: Evaluation) -> float:
    """How long loading a stored run takes for each method, besides its page."""
    one = dict(list(run.scores.items())[:1])
    start = time.perf_counter()
    measure_methods(run.sets, one, n_resamples=200, seed=0)
    return time.perf_counter() - start


def large_run() -> Evaluation:
    """A run with as many images as the validation set and the unknown sets of ImageNet."""
    methods = {f"method-{k:02d}": 1.2 - 0.04 * k for k in range(N_METHODS)}
    classes = tuple(row.name for row in load_synset_map("imagenet1k").classes)[:N_CLASSES]
    names = {
        "near": {"ssb-hard": _names("places365", 365), "ninco": _names("coco", 80)},
        "far": {"inaturalist": _names("cifar100", 100), "textures": _names("voc", 20)},
    }
    n = N_IMAGES // 6  # four unknown sets, known and shifted images
    options = {"classes": classes, "names": names, "n_resamples": N_RESAMPLES}
    run = toy_evaluation(n, methods=methods, **options)
    return replace(run, images={s.name: Noise(s.name, s.image_ids) for s in run.sets})


def _names(of: str, n: int) -> tuple[str, ...]:
    return tuple(row.name for row in load_synset_map(of).classes)[:n]


@dataclass(frozen=True)
class Noise:
    """A data set of noise that is drawn when it is loaded."""

    name: str
    image_ids: tuple[str, ...]
    labels: None = None
    source_classes: None = None

    def load(self, index: int) -> np.ndarray:
        return np.random.default_rng(index).integers(0, 256, (224, 224, 3)).astype(np.uint8)

    def fingerprint(self) -> str:
        return self.name

    def subset(self, indices: object) -> "Noise":
        return self
