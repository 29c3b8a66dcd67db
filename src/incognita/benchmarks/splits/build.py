"""From annotation files on disk to splits, and to the benchmark they make by themselves."""

from collections.abc import Callable, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from incognita.benchmarks.splits.assign import build_splits
from incognita.benchmarks.splits.rules import (
    IdLists,
    SplitRules,
    list_rules,
    load_ids,
    load_rules,
    with_ids,
)
from incognita.benchmarks.splits.write import (
    KNOWN,
    BenchmarkHeader,
    InputFile,
    SplitBuild,
    relative,
    save_known,
)
from incognita.errors import MissingDataError
from incognita.formats.coco_dataset import is_in_fold
from incognita.formats.coco_records import Annotations, load_annotations
from incognita.formats.openimages import (
    load_openimages,
    sizes_from_csv,
    sizes_from_images,
)

OnStep = Callable[[str], None]
CLASS_NAMES = ("class-descriptions-boxable.csv", "oidv7-class-descriptions-boxable.csv")
SIZES = "sizes.csv"


class RulesWithIds(NamedTuple):
    """Rules with the ids that were given, and the files both come from."""

    rules: SplitRules
    inputs: tuple[InputFile, ...]


def rules_with_ids(name_or_path: str | PathLike[str], ids: Path | None = None) -> RulesWithIds:
    """Read rules and add the ids that were given for them.

    Args:
        name_or_path: The name of shipped rules, or a TOML file.
        ids: A file with lists of image ids, also for other rules.
    """
    found = load_rules(name_or_path)
    rules, inputs = found.rules, (InputFile("rules", found.file, found.content_hash),)
    if ids is None:
        return RulesWithIds(rules, inputs)
    lists = load_ids(ids, [rules.name, *list_rules()])
    joined = with_ids(rules, lists.lists.get(rules.name, IdLists()))
    return RulesWithIds(joined, (*inputs, InputFile("ids", lists.file, lists.content_hash)))


def build_from_annotations(
    rules: SplitRules,
    annotations: Path,
    *,
    inputs: Sequence[InputFile] = (),
    candidates: Path | None = None,
    images: Path | None = None,
    source: str = "",
    on_step: OnStep = lambda _: None,
) -> SplitBuild:
    """Build splits from an annotation file.

    Args:
        rules: How to deal out the images.
        annotations: A file in COCO's format, or boxes of OpenImages (`.csv`) with
            class-descriptions-boxable.csv beside it; sizes of its images are those of the files
            in `images` or stand in sizes.csv beside it.
        inputs: Files that the rules come from.
        candidates: A second file in COCO's format, for the candidates of the rules.
        images: The folder with the images; by default that of the annotations.
        source: Begins the names of sets and files.
        on_step: Told what is being done.
    """
    images = annotations.parent if images is None else images
    on_step(f"reading {annotations.name}")
    base, unsized, files = _read(annotations, images)
    second = None
    if candidates is not None and rules.candidates.ids():
        on_step(f"reading {candidates.name}")
        second = load_annotations(candidates, only=rules.candidates.ids())
        files.append(InputFile.at("candidates", candidates))
    on_step("deciding")
    splits = build_splits(base, rules, candidates=second)
    return SplitBuild(splits, (*inputs, *files), images, source, unsized)


def _read(path: Path, images: Path) -> tuple[Annotations, tuple[str, ...], list[InputFile]]:
    """Read a file of either format; give images of unknown size, and the files that were read."""
    if path.suffix != ".csv":
        return load_annotations(path), (), [InputFile.at("annotations", path)]
    class_names = find_beside(path.parent, CLASS_NAMES)
    sizes = sizes_from_images(images, [each.stem for each in images.glob("*.jpg")])
    parts = {"annotations": path, "class names": class_names}
    if (listed := path.parent / SIZES).is_file():
        sizes |= sizes_from_csv(listed)
        parts["sizes"] = listed
    found = load_openimages(path, class_names, sizes=sizes)
    files = [InputFile.at(part, each) for part, each in parts.items()]
    return found.annotations, found.unsized, files


def find_beside(folder: Path, names: Sequence[str]) -> Path:
    """Find the first of several names that a file of OpenImages has had."""
    for name in names:
        if (path := folder / name).is_file():
            return path
    raise MissingDataError(
        f"There is no {names[0]} in {folder}; get it from "
        f"https://storage.googleapis.com/openimages/web/download.html and put it there."
    )


def own_head(build: SplitBuild, out: Path) -> BenchmarkHeader | None:
    """Write the known images of the same file and make them the known half of a benchmark.

    One half of them is for fitting and one for testing, by a hash of their ids. None where no
    image shows known things alone.
    """
    rules = build.splits.rules
    ids = [each.image_id for each in build.splits.known_images()]
    save_known(build, out / KNOWN)
    if not ids:
        return None
    there = set(build.splits.base.category_names.values())
    metadata = {
        "name": f"built/{rules.name}",
        "version": rules.version,
        "title": rules.title or f"Splits by the rules {rules.name}",
        "task": "detection",
        "classes": [name for name in rules.known if name in there],
    }
    return BenchmarkHeader(metadata, _known_sets(ids, relative(build.images, out)))


def _known_sets(ids: Sequence[int | str], images: str) -> list[dict[str, Any]]:
    entry = {"kind": "coco", "annotations": KNOWN, "images": images}
    is_first = is_in_fold(np.array(ids), (0, 2))
    if is_first.all() or not is_first.any():  # too few to be halved
        return [{"name": "test", "role": "test", **entry, "count": len(ids)}]
    halves = (("train", [0, 2], is_first), ("test", [1, 2], ~is_first))
    return [
        {"name": role, "role": role, **entry, "fold": fold, "count": int(is_in.sum())}
        for role, fold, is_in in halves
    ]
