"""Audit of two folders of 10,000 images each, both hashes and the search, against decoding them.

Decoding is what `FileDataset.load` does, in the same number of threads. Small PNGs are hardest:
there is little to decode. Of a JPEG, the audit decodes a fraction of the pixels.
"""

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from PIL import Image

from bench.harness import Row, Run, at_most, measure
from incognita.benchmarks.audit import audit_inputs
from incognita.benchmarks.audited_sets import AuditInput, read_input
from incognita.formats.image_hashes import PER_TASK
from incognita.formats.images import READERS, FileDataset

N_IMAGES, BAR = 10_000, 1.3
CASES = {"PNG of 32 x 32": ("png", 32), "JPEG of 256 x 256": ("jpg", 256)}


def rows() -> list[Row]:
    return [row for name, (suffix, side) in CASES.items() for row in compared(name, suffix, side)]


def compared(name: str, suffix: str, side: int) -> list[Row]:
    with TemporaryDirectory() as folder:
        inputs = [
            write_images(Path(folder) / part, suffix, side, seed)
            for seed, part in enumerate(("known", "unknown"))
        ]
        cases: dict[str, Run | None] = {
            "audit": lambda: audit_inputs(*inputs),
            "decode": lambda: decode(inputs),
        }
        costs = measure(cases, rounds=3)
    case, bar = f"2 x {N_IMAGES:,} {name}", at_most(BAR)
    seconds = costs["audit"].seconds
    ratio = seconds / costs["decode"].seconds
    return [Row("audit", case, seconds, ratio, "x decoding", None, str(bar), bar.is_met(ratio))]


def write_images(folder: Path, suffix: str, side: int, seed: int) -> AuditInput:
    """Write smooth pictures with a little noise, as photographs have it."""
    rng = np.random.default_rng(seed)
    folder.mkdir()
    for k in range(N_IMAGES):
        coarse = Image.fromarray(rng.integers(0, 256, (8, 8, 3), dtype=np.uint8))
        smooth = np.asarray(coarse.resize((side, side), Image.Resampling.BICUBIC), np.int16)
        noisy = smooth + rng.integers(-8, 9, smooth.shape)
        Image.fromarray(noisy.clip(0, 255).astype(np.uint8)).save(folder / f"{k}.{suffix}")
    return read_input(str(folder))


def decode(inputs: list[AuditInput]) -> None:
    tasks = [range(k, min(k + PER_TASK, N_IMAGES)) for k in range(0, N_IMAGES, PER_TASK)]
    for given in inputs:
        with ThreadPoolExecutor(READERS) as pool:
            for _ in pool.map(partial(load_all, given.sets[0].dataset), tasks):
                pass


def load_all(dataset: FileDataset, indices: range) -> None:
    for index in indices:
        dataset.load(index)
