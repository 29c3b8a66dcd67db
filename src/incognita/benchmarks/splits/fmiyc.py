"""The splits of FindMeIfYouCan: which files they are made from, and the benchmark they become.

The base files of the published splits are those of VOS and lie on a cloud drive. Without them,
the images of COCO val2017 whose objects are all unknown stand in for them, which is how VOS began
before it removed more by hand; of OpenImages only the candidates can be had. The lists of image
ids are published without a license and do not come with this package. Whoever has them writes
them into a TOML file under these names:

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

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, Literal

from incognita.benchmarks.definition import UNKNOWN_GROUPS
from incognita.benchmarks.definition_files import find_definition
from incognita.benchmarks.splits.assign import build_splits
from incognita.benchmarks.splits.build import (
    CLASS_NAMES,
    SIZES,
    OnStep,
    build_from_annotations,
    find_beside,
    rules_with_ids,
)
from incognita.benchmarks.splits.rules import SplitRules
from incognita.benchmarks.splits.write import BenchmarkHeader, InputFile, SplitBuild, relative
from incognita.formats.coco_records import Annotations, load_annotations
from incognita.formats.openimages import (
    Size,
    load_openimages,
    sizes_from_csv,
    sizes_from_images,
)

Known = Literal["voc", "bdd"]
BOXES = ("train-annotations-bbox.csv", "oidv6-train-annotations-bbox.csv")
BASE_LISTS = tuple(
    f"{place}val_coco_format.json"
    for place in ("", "COCO-Format/", "ood_classes_rm_overlap/COCO-Format/")
)


def build_from_coco(
    known: Known,
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
        on_step: Told what is being done.
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
    known: Known,
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
        on_step: Told what is being done.
    """
    rules, inputs = rules_with_ids(f"fmiyc-{known}-openimages", ids)
    boxes, class_names = find_beside(folder, BOXES), find_beside(folder, CLASS_NAMES)
    on_step("looking for images")
    base_ids, sizes, files = _base_of_openimages(folder, rules)
    wanted = {str(each) for each in rules.candidates.ids()}
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
    """Give the ids of VOS's images, the sizes that are known, and the files that say so."""
    sizes, files = {}, []
    if (path := folder / SIZES).is_file():
        sizes = sizes_from_csv(path)
        files.append(InputFile.at("sizes", path))
    listed = next((path for name in BASE_LISTS if (path := folder / name).is_file()), None)
    if listed is not None:
        images = load_annotations(listed).images
        own = {str(each): record for each, record in images.items()}
        given = {
            each: Size(record["width"], record["height"])
            for each, record in own.items()
            if "width" in record and "height" in record
        }
        return sorted(own), sizes | given, [*files, InputFile.at("base", listed)]
    images_folder = folder / rules.image_folders.base
    ids = sorted(path.stem for path in images_folder.glob("*.jpg"))
    return ids, sizes_from_images(images_folder, ids) | sizes, files


def _part(annotations: Annotations, ids: Collection[str], source: str) -> Annotations:
    """Take some images of a file."""
    wanted = set(ids)
    return Annotations(
        source,
        {each: record for each, record in annotations.images.items() if each in wanted},
        {each: group for each, group in annotations.objects.items() if each in wanted},
        annotations.categories,
    )


def benchmark_head(known: Known, out: Path, data: Path | None = None) -> BenchmarkHeader:
    """Give the known half of the benchmark, whose files lie in the data folder.

    Args:
        known: Whose classes are known.
        out: The folder that the benchmark is written to.
        data: The folder that `incognita data plan` speaks of; by default the one written to.
    """
    definition = find_definition(f"fmiyc/{known}").definition
    entries = [entry.model_dump(exclude_unset=True) for entry in definition.set]
    known_sets = [each for each in entries if each["role"] not in UNKNOWN_GROUPS]
    unknown_keys: dict[str, dict[str, Any]] = {
        each["name"]: {key: each[key] for key in ("rename", "source") if key in each}
        for each in entries
        if each["role"] in UNKNOWN_GROUPS
    }
    metadata: dict[str, Any] = {
        "name": f"built/fmiyc-{known}",
        "version": definition.version,
        "title": f"{definition.title}, built here",
        "task": definition.task,
        "classes": definition.classes,
        "paper": definition.paper,
    }
    sources = {name: each.model_dump() for name, each in definition.sources.items()}
    return BenchmarkHeader(
        metadata, [_moved(each, out, data) for each in known_sets], unknown_keys, sources
    )


def _moved(entry: dict[str, Any], out: Path, data: Path | None) -> dict[str, Any]:
    """Say where files of the data folder are, seen from the folder of the benchmark."""
    if data is None:
        return entry
    return entry | {key: relative(data / entry[key], out) for key in ("annotations", "images")}
