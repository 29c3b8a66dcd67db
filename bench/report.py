"""The page of a large run: how long it takes, and how many bytes it has."""

import tempfile
import time
from pathlib import Path

from tests.report.toy_runs import toy_evaluation

from bench.harness import Row, at_most
from incognita.report import save_html

N_IMAGES, N_METHODS, N_CLASSES = 150_000, 30, 1000
N_RESAMPLES = 20  # behind intervals, which are there before the page is written
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
    return [
        row(part, "time of the page", seconds, seconds, "s", MOST_SECONDS),
        row(part, "size of the page", seconds, n_bytes / 1e6, "MB", MOST_BYTES / 1e6),
    ]


def row(part: str, case: str, seconds: float, value: float, unit: str, limit: float) -> Row:
    bar = at_most(limit)
    return Row(part, case, seconds, value, unit, None, str(bar), bar.is_met(value))


def large_run() -> object:
    """A run with as many images as the validation set and the unknown sets of ImageNet."""
    methods = {f"method-{k:02d}": 1.2 - 0.04 * k for k in range(N_METHODS)}
    classes = tuple(f"class {k:04d}" for k in range(N_CLASSES))
    names = {
        "near": {"ssb-hard": _names("hard", 400), "ninco": _names("ninco", 64)},
        "far": {"inaturalist": _names("plant", 110), "textures": _names("texture", 47)},
    }
    n = N_IMAGES // 6  # four unknown sets, known and shifted images
    options = {"classes": classes, "names": names, "n_resamples": N_RESAMPLES}
    return toy_evaluation(n, methods=methods, **options)


def _names(of: str, n: int) -> tuple[str, ...]:
    return tuple(f"{of} {k}" for k in range(n))
