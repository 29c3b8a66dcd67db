"""What an output store holds and what a run will add to it; no tensor is read."""

import json
import re
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from incognita.benchmarks.benchmark import Benchmark
from incognita.benchmarks.load import fitting_sets, test_sets
from incognita.errors import InvalidDataError, MissingDataError, NoSpaceError

MANIFEST = "manifest.json"
IMAGES = "images.npz"  # ids, labels and objects of the data set
_KEY, _GROUP = re.compile(r"[0-9a-f]{64}"), re.compile(r"[0-9a-f]{16}")
WORTH_A_NOTE = 10**8  # bytes
_BOX = 12  # numbers of a box beside its logits and features
_SURE = 0.5  # of the estimate of a classifier: methods may not need all sets
_OURS = re.compile(r"group\.json|\d{5,}\.safetensors|\d{5,}\.\d+\.draft|group\.\d+\.draft")


@dataclass(frozen=True)
class StoredOutputs:
    """The outputs of one model on one data set.

    Args:
        folder: Where they are.
        model: The name of the model.
        dataset: The name of the data set.
        n_images: Images of the data set.
        n_bytes: Size of the files.
        last_use: When they were last opened, in seconds since 1970.
    """

    folder: Path
    model: str
    dataset: str
    n_images: int
    n_bytes: int
    last_use: float

    def __str__(self) -> str:
        day = time.strftime("%Y-%m-%d", time.localtime(self.last_use))
        size = size_in_words(self.n_bytes)
        what = f"{self.model}, {self.dataset}, {self.n_images:,} images"
        return f"{day}  {size:>8}  {self.folder.name[:12]}  {what}"

    def delete(self) -> None:
        """Delete the files that a store writes; anything else stays, and so does its folder."""
        for path in [*_files(self.folder), self.folder / MANIFEST, self.folder / IMAGES]:
            path.unlink(missing_ok=True)
        for folder in [*(p for p in self.folder.iterdir() if p.is_dir()), self.folder]:
            if not folder.is_symlink() and not any(folder.iterdir()):
                folder.rmdir()


def stored_outputs(root: Path) -> list[StoredOutputs]:
    """Return what a store holds, last used first."""
    if not root.is_dir():
        raise MissingDataError(f"There is no folder of outputs {root}. Name OUT/outputs of a run.")
    folders = [p for p in root.iterdir() if _KEY.fullmatch(p.name) and not p.is_symlink()]
    found = [_entry(folder) for folder in folders if (folder / MANIFEST).is_file()]
    return sorted(found, key=lambda entry: entry.last_use, reverse=True)


def _entry(folder: Path) -> StoredOutputs:
    manifest = folder / MANIFEST
    try:
        said = json.loads(manifest.read_text(encoding="utf-8"))
        names = str(said["model"])[:60], str(said["dataset"])[:60], int(said["images"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InvalidDataError(f"{manifest} cannot be read. Delete its folder by hand.") from error
    own = [path for path in (manifest, folder / IMAGES) if path.is_file()]
    n_bytes = sum(path.stat().st_size for path in [*own, *_files(folder)])
    return StoredOutputs(folder, *names, n_bytes, manifest.stat().st_mtime)


def _files(folder: Path) -> Iterator[Path]:
    """Yield the files of all column groups."""
    for group in folder.iterdir():
        if group.is_dir() and not group.is_symlink() and _GROUP.fullmatch(group.name):
            yield from (path for path in group.iterdir() if _OURS.fullmatch(path.name))


def size_in_words(n_bytes: int) -> str:
    """Return a size as people read it.

    >>> size_in_words(1_234_000_000), size_in_words(50_000), size_in_words(12)
    ('1.2 GB', '50 kB', '12 bytes')
    """
    for unit, power in (("TB", 12), ("GB", 9), ("MB", 6), ("kB", 3)):
        if n_bytes >= 10**power:
            size = n_bytes / 10**power
            return f"{size:.1f} {unit}" if size < 10 else f"{size:.0f} {unit}"
    return f"{n_bytes} bytes"


def check_space(
    models: Sequence[Any],
    benchmark: Benchmark,
    root: Path,
    on_note: Callable[[str], object] | None,
) -> None:
    """Note the size of the outputs that are not stored yet; raise if the disk clearly lacks it."""
    names = {model.name for model in models}
    stored = [s for s in stored_outputs(root) if s.model in names] if root.is_dir() else []
    n_bytes = estimate_bytes(models, benchmark) - sum(entry.n_bytes for entry in stored)
    are_boxes = any(_finds_boxes(model) for model in models)
    shown, how = size_in_words(max(n_bytes, 0)), "at most" if are_boxes else "about"
    free = shutil.disk_usage(next(p for p in (root, *root.absolute().parents) if p.is_dir())).free
    if not are_boxes and _SURE * n_bytes > free:
        raise NoSpaceError(
            f"The outputs will take {how} {shown} in {root}, but its disk has "
            f"{size_in_words(free)} left. Make room (incognita store prune), or name another "
            f"folder with --store."
        )
    if n_bytes >= WORTH_A_NOTE and on_note is not None:
        on_note(f"outputs will take {how} {shown} in {root}")


def estimate_bytes(models: Sequence[Any], benchmark: Benchmark) -> int:
    """Estimate the size of logits and features of all sets, without layers and extra outputs."""
    sets = [*fitting_sets(benchmark).values(), *(dataset for _, _, dataset in test_sets(benchmark))]
    n_images = sum(len(dataset.image_ids) for dataset in sets if dataset is not None)
    return 4 * n_images * sum(_numbers_per_image(model) for model in models)


def _numbers_per_image(model: Any) -> int:
    """Count logits and features of an image; those of all boxes that the filter lets through."""
    n_classes = len(model.class_names)
    if _finds_boxes(model):
        width = max((int(head.weight.shape[1]) for head in model.heads), default=0)
        return int(model.rules.max_per_image) * (n_classes + width + _BOX)
    head = getattr(model, "head", None)
    return n_classes + (0 if head is None else int(head.weight.shape[1]))


def _finds_boxes(model: object) -> bool:
    """Whether a model is a detector; `is_detector` would import torch, which listing need not."""
    return callable(getattr(type(model), "with_filter", None))
