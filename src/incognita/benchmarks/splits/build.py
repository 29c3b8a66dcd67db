"""From annotation files to splits and their benchmark: by any rules, or those of FindMeIfYouCan.

The base files of FindMeIfYouCan's published splits are those of VOS and lie on a cloud drive.
Without them, the images of COCO val2017 whose objects are all unknown stand in for them, which is
how VOS began before it removed more by hand; of OpenImages only the candidates are available. The
lists of image ids are published without a license and are not part of this package; write them
into a TOML file under these names:

version = 1
[fmiyc-voc-coco]                 # and fmiyc-voc-openimages
remove_ids = []                  # REMOVE_IDS of manual_selection.yaml
keep_to_near_ids = []            # KEEP_TO_NEAR_IDS
review_remove_ids = []           # UNFILTERED_IMAGES_TO_REMOVE, all its lists
to_near_ids = []                 # UNFILTERED_IMAGES_TO_NEAR, all its lists
to_far_ids = []                  # UNFILTERED_IMAGES_TO_FAR, all its lists
[fmiyc-voc-coco.candidates]
near = []                        # FROM_CANDIDATES, coco_near or openimages_near
far = []                         # FROM_CANDIDATES, coco or openimages
[fmiyc-bdd-coco]                 # and fmiyc-bdd-openimages
review_remove_ids = []           # UNFILTERED_IMAGES_TO_REMOVE, the list of people
"""

from collections.abc import Callable, Collection, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from incognita.benchmarks.definition_files import find_definition
from incognita.benchmarks.sources.entry import UNKNOWN_GROUPS
from incognita.benchmarks.splits.assign import build_splits
from incognita.benchmarks.splits.propose import with_limits
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
    hash_files,
    relative,
    save_known,
)
from incognita.files import opened
from incognita.formats.bdd import load_bdd
from incognita.formats.coco_dataset import is_in_fold
from incognita.formats.coco_records import Annotations, load_annotations
from incognita.formats.openimages import (
    CLASS_NAMES,
    SIZES,
    Size,
    find_file,
    load_openimages,
    sizes_from_csv,
    sizes_from_images,
)
from incognita.formats.voc import load_voc
from incognita.formats.yolo import load_yolo

OnStep = Callable[[str], None]
KnownClasses = Literal["voc", "bdd"]
BOXES = ("train-annotations-bbox.csv", "oidv6-train-annotations-bbox.csv")
BASE_LISTS = tuple(
    f"{place}val_coco_format.json"
    for place in ("", "COCO-Format/", "ood_classes_rm_overlap/COCO-Format/")
)


class RulesWithIds(NamedTuple):
    """Rules with added lists of ids, and the files both come from."""

    rules: SplitRules
    inputs: tuple[InputFile, ...]


def rules_with_ids(name_or_path: str | PathLike[str], ids: Path | None = None) -> RulesWithIds:
    """Load rules and add lists of image ids.

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
        rules: How to assign the images.
        annotations: A file in COCO's format or of BDD100K, a folder of VOC (Annotations) or YOLO
            (images, labels), or boxes of OpenImages (`.csv`) with class-descriptions-boxable.csv
            beside it; sizes of its images are those of the files in `images` or stand in sizes.csv
            beside it.
        inputs: Files that the rules come from.
        candidates: A second file in COCO's format, for the candidates of the rules.
        images: The folder with the images; by default that of the annotations.
        source: Begins the names of sets and files.
        on_step: Called with the name of each step.
    """
    beside = annotations if annotations.is_dir() else annotations.parent
    images = beside if images is None else images
    on_step(f"reading {annotations.name}")
    base, unsized, files = _read(annotations, images)
    rules = with_limits(rules, [*base.category_names.values()])
    second = None
    if candidates is not None and rules.candidates.ids():
        on_step(f"reading {candidates.name}")
        second = load_annotations(candidates, only=rules.candidates.ids())
        files.append(InputFile.at("candidates", candidates))
    on_step("deciding")
    splits = build_splits(base, rules, candidates=second)
    return SplitBuild(splits, (*inputs, *files), images, source, unsized)


def _read(path: Path, images: Path) -> tuple[Annotations, tuple[str, ...], list[InputFile]]:
    """Load a file of any format; also return images of unknown size and the input files."""
    if path.is_dir():
        found = load_voc(path) if (path / "Annotations").is_dir() else load_yolo(path)
        return found, (), [_folder_file(path)]
    if path.suffix != ".csv":
        load = load_bdd if _is_list(path) else load_annotations
        return load(path), (), [InputFile.at("annotations", path)]
    class_names = find_file(path.parent, CLASS_NAMES)
    sizes = sizes_from_images(images, [path.stem for path in images.glob("*.jpg")])
    parts = {"annotations": path, "class names": class_names}
    if (listed := path.parent / SIZES).is_file():
        sizes |= sizes_from_csv(listed)
        parts["sizes"] = listed
    boxes = load_openimages(path, class_names, sizes=sizes)
    files = [InputFile.at(part, file) for part, file in parts.items()]
    return boxes.annotations, boxes.unsized, files


def _is_list(path: Path) -> bool:
    """Return whether a JSON file is a list, as those of BDD100K are."""
    with opened(path) as file:
        return file.read(64).lstrip(b"\xef\xbb\xbf \t\r\n")[:1] == b"["


def _folder_file(folder: Path) -> InputFile:
    """Hash the annotation files of a folder of VOC or YOLO."""
    places = [*folder.glob("Annotations/*.xml"), *folder.glob("labels/**/*.txt")]
    names = sorted(place.relative_to(folder).as_posix() for place in places)
    return InputFile("annotations", folder.name, hash_files(folder, names))


def known_header(build: SplitBuild, out: Path) -> BenchmarkHeader | None:
    """Save the known images of the same file and make them the known half of a benchmark.

    One half of them is for fitting and one for testing, by a hash of their ids. None where no
    image shows known objects only.
    """
    rules = build.splits.rules
    ids = [decision.image_id for decision in build.splits.known_images()]
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


def build_from_coco(
    known: KnownClasses,
    annotations: Path,
    *,
    train: Path | None = None,
    ids: Path | None = None,
    images: Path | None = None,
    on_step: OnStep = lambda _: None,
) -> SplitBuild:
    """Build the splits that come from COCO.

    Args:
        known: Whose classes are known.
        annotations: The base file of VOS, or instances_val2017.json in its place.
        train: The file instances_train2017.json, for candidates.
        ids: File with lists of image ids.
        images: The folder that holds val2017 and train2017; by default the one that the folder
            of the annotations lies in.
        on_step: Called with the name of each step.
    """
    rules, inputs = rules_with_ids(f"fmiyc-{known}-coco", ids)
    folder = annotations.absolute().parent
    beside = folder.parent if folder.name == "annotations" else folder
    return build_from_annotations(
        rules,
        annotations,
        inputs=inputs,
        candidates=train,
        images=images or beside,
        source="coco",
        on_step=on_step,
    )


def build_from_openimages(
    known: KnownClasses,
    folder: Path,
    *,
    ids: Path | None = None,
    on_step: OnStep = lambda _: None,
) -> SplitBuild:
    """Build the splits that come from OpenImages.

    Args:
        known: Whose classes are known.
        folder: Holds train-annotations-bbox.csv and class-descriptions-boxable.csv, and what
            there is of: VOS's images in ood_classes_rm_overlap/images with their list in
            ood_classes_rm_overlap/COCO-Format, candidates in train, and sizes.csv with the lines
            id,width,height of images that are not there.
        ids: File with lists of image ids.
        on_step: Called with the name of each step.
    """
    rules, inputs = rules_with_ids(f"fmiyc-{known}-openimages", ids)
    boxes, class_names = find_file(folder, BOXES), find_file(folder, CLASS_NAMES)
    on_step("looking for images")
    base_ids, sizes, files = _base_of_openimages(folder, rules)
    wanted = {str(image_id) for image_id in rules.candidates.ids()}
    sizes = sizes_from_images(folder / rules.image_folders.candidates, wanted - {*sizes}) | sizes
    on_step(f"reading {boxes.name}")
    found = load_openimages(boxes, class_names, sizes=sizes, only=wanted, also=base_ids)
    on_step("deciding")
    splits = build_splits(
        _part(found.annotations, base_ids, "VOS's list of OpenImages"),
        rules,
        candidates=_part(found.annotations, wanted - {*base_ids}, boxes.name) if wanted else None,
    )
    named = [InputFile.at("boxes", boxes), InputFile.at("class names", class_names)]
    return SplitBuild(splits, (*inputs, *files, *named), folder, "openimages", found.unsized)


def _base_of_openimages(
    folder: Path, rules: SplitRules
) -> tuple[Sequence[str], dict[str, Size], list[InputFile]]:
    """Return the ids of VOS's images, the known sizes, and the files they come from."""
    sizes, files = {}, []
    if (path := folder / SIZES).is_file():
        sizes = sizes_from_csv(path)
        files.append(InputFile.at("sizes", path))
    listed = next((path for name in BASE_LISTS if (path := folder / name).is_file()), None)
    if listed is not None:
        images = load_annotations(listed).images
        own = {str(image_id): record for image_id, record in images.items()}
        given = {
            image_id: Size(record["width"], record["height"])
            for image_id, record in own.items()
            if "width" in record and "height" in record
        }
        return sorted(own), sizes | given, [*files, InputFile.at("base", listed)]
    images_folder = folder / rules.image_folders.base
    ids = sorted(path.stem for path in images_folder.glob("*.jpg"))
    return ids, sizes_from_images(images_folder, ids) | sizes, files


def _part(annotations: Annotations, ids: Collection[str], source: str) -> Annotations:
    """Return some images of a file."""
    wanted = set(ids)
    return Annotations(
        source,
        {key: record for key, record in annotations.images.items() if key in wanted},
        {key: group for key, group in annotations.objects.items() if key in wanted},
        annotations.categories,
    )


def fmiyc_header(known: KnownClasses, out: Path, data: Path | None = None) -> BenchmarkHeader:
    """Return the known half of the benchmark, whose files lie in the data folder.

    Args:
        known: Whose classes are known.
        out: The folder that the benchmark is written to.
        data: The data folder of `incognita data plan`; by default the one written to.
    """
    definition = find_definition(f"fmiyc/{known}").definition
    entries = [entry.model_dump(exclude_unset=True) for entry in definition.set]
    known_sets = [entry for entry in entries if entry["role"] not in UNKNOWN_GROUPS]
    unknown_keys: dict[str, dict[str, Any]] = {
        entry["name"]: {key: entry[key] for key in ("rename", "source") if key in entry}
        for entry in entries
        if entry["role"] in UNKNOWN_GROUPS
    }
    metadata: dict[str, Any] = {
        "name": f"built/fmiyc-{known}",
        "version": definition.version,
        "title": f"{definition.title}, built here",
        "task": definition.task,
        "classes": definition.classes,
        "paper": definition.paper,
    }
    sources = {name: source.model_dump() for name, source in definition.sources.items()}
    return BenchmarkHeader(
        metadata, [_moved(entry, out, data) for entry in known_sets], unknown_keys, sources
    )


def _moved(entry: dict[str, Any], out: Path, data: Path | None) -> dict[str, Any]:
    """Write paths in the data folder relative to the folder of the benchmark."""
    if data is None:
        return entry
    return entry | {key: relative(data / entry[key], out) for key in ("annotations", "images")}
