"""`incognita build`: splits and sets of images for benchmarks, from annotation files."""

import json
import sys
from collections.abc import Callable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from incognita.cli._terminal import IN_PART, progress_on_stderr

if TYPE_CHECKING:
    from rich.table import Table

    from incognita.benchmarks.splits.facets import FacetsBuild
    from incognita.benchmarks.splits.open_sets import OpenSetBuild
    from incognita.benchmarks.splits.saod import SaodBuild, SaodSources, UseCase
    from incognita.benchmarks.splits.write import BenchmarkHeader, SplitBuild


build_app = typer.Typer(
    help="Build the images of benchmarks from annotation files. Nothing is downloaded.",
    no_args_is_help=True,
)


class FmiycKnown(StrEnum):
    """Whose classes are known."""

    voc = "voc"
    bdd = "bdd"


class EmptyImages(StrEnum):
    """What images of Objects365 without an annotation are."""

    keep = "keep"
    drop = "drop"


class CocoTest(StrEnum):
    """Which images of COCO are tested."""

    unknown_only = "unknown-only"
    all = "all"


class Repeats(StrEnum):
    """What happens to images that a list repeats."""

    refuse = "refuse"
    drop = "drop"
    owod = "owod"


class Scenario(StrEnum):
    """Whether training images show unknown objects."""

    unseen = "unseen"
    unlabeled = "unlabeled"


class Rounding(StrEnum):
    """Of half the number of classes."""

    up = "up"
    down = "down"
    nearest = "nearest"


Known = Annotated[
    FmiycKnown, typer.Option("--known", "--id", help="Whose classes are known: VOC or BDD100K.")
]
CocoAnnotations = Annotated[
    Path | None,
    typer.Option(help="VOS's base file for COCO, or instances_val2017.json in its place."),
]
CocoTrain = Annotated[
    Path | None, typer.Option(help="instances_train2017.json, for listed candidates.")
]
CocoImages = Annotated[
    Path | None,
    typer.Option(help="Folder of val2017 and train2017; by default found by the annotations."),
]
OpenImagesFolder = Annotated[
    Path | None,
    typer.Option(
        help="Folder with train-annotations-bbox.csv, class-descriptions-boxable.csv and, of "
        "VOS, ood_classes_rm_overlap; sizes.csv (id,width,height) for images not there."
    ),
]
Data = Annotated[
    Path | None,
    typer.Option(help="Folder of `data plan` with the known images; by default --out."),
]
AnnotationFile = Annotated[
    Path,
    typer.Option(
        help="File of COCO or BDD100K, boxes of OpenImages (.csv), or folder of VOC or YOLO."
    ),
]
Rules = Annotated[
    str,
    typer.Option(help="TOML file that assigns categories to splits, or the name of shipped rules."),
]
Images = Annotated[
    Path | None, typer.Option(help="Folder with the images; by default that of the file.")
]
Candidates = Annotated[
    Path | None, typer.Option(help="Second annotation file, for candidates of the rules.")
]
Ids = Annotated[
    Path | None,
    typer.Option(help="TOML file with lists of image ids, in a table named after the rules."),
]
Out = Annotated[Path, typer.Option(help="Folder for the splits, the manifest and the benchmark.")]
SourceData = Annotated[
    Path | None,
    typer.Option("--data", help="Folder with objects365, inaturalist, svhn and so on inside."),
]
Objects365 = Annotated[
    Path | None,
    typer.Option(
        "--objects365",
        help="Folder with zhiyuan_objv2_val.json, zhiyuan_objv2_train.json and val/patch0, …",
    ),
]
INaturalist = Annotated[
    Path | None,
    typer.Option(help="Folder with val_2017_bboxes.json and train_val_images."),
]
Svhn = Annotated[
    Path | None, typer.Option(help="Folder with train/1.png, test/1.png, … (format 1)")
]
Bdd = Annotated[
    Path | None,
    typer.Option(help="Folder with det_train.json, det_val.json (det_20) and images/100k."),
]
NuImages = Annotated[
    Path | None,
    typer.Option("--nuimages", help="Folder with v1.0-val, samples and, for training, v1.0-train."),
]
CocoVal = Annotated[Path | None, typer.Option(help="instances_val2017.json, for validation.")]
CocoValImages = Annotated[
    Path | None, typer.Option(help="Folder of val2017; by default found by the annotations.")
]
Empty = Annotated[
    EmptyImages,
    typer.Option(help="Images of Objects365 without an annotation: unknown (keep), or in no set."),
]
Tables = Annotated[
    Path | None,
    typer.Option(
        help="TOML file of known, ambiguous and unknown classes, in place of the paper's."
    ),
]
VocFolders = Annotated[
    list[Path],
    typer.Option(
        "--voc",
        help="Folder such as VOCdevkit/VOC2007, of test.txt and trainval.txt; may be repeated.",
    ),
]
CocoFile = Annotated[Path, typer.Option(help="instances_val2017.json.")]
AdmittedCoco = Annotated[
    CocoTest,
    typer.Option(
        help="Images of COCO in the mixed set: those without the known classes, or all, as the "
        "paper defines its sets."
    ),
]
EmptyCoco = Annotated[
    EmptyImages,
    typer.Option(help="Images of COCO without any object: unknown (keep), or in no set."),
]
OpenTables = Annotated[
    Path | None,
    typer.Option("--tables", help="TOML file of known and unknown classes and their names."),
]
ImageListFile = Annotated[
    Path,
    typer.Option("--list", help="Ids of test images, one in a line, such as all_task_test.txt."),
]
TrainList = Annotated[Path | None, typer.Option(help="Ids of training images, likewise.")]
ListSources = Annotated[
    list[Path],
    typer.Option(
        "--source", help="Folder of VOC, or file of COCO, with these images; may be repeated."
    ),
]
NKnown = Annotated[
    int | None,
    typer.Option(help="How many classes are known: 20, 40, 60 or 80 in the tasks of OWOD."),
]
RepeatedIds = Annotated[
    Repeats,
    typer.Option(
        help="Ids that are there twice: refused, dropped, or kept as further images (owod)."
    ),
]
OpenImagesData = Annotated[
    Path,
    typer.Option(
        "--openimages",
        help="Folder with train-annotations-bbox.csv (also validation, test), "
        "class-descriptions-boxable.csv, bbox_labels_600_hierarchy.json, and images in train and "
        "so on, or their sizes in sizes.csv (id,width,height).",
    ),
]
SuperclassFile = Annotated[
    Path | None,
    typer.Option("--rules", help="TOML file of scenes and super-classes; by default streets."),
]
TrainScenario = Annotated[
    Scenario | None,
    typer.Option(
        help="Training images without unknown objects (unseen), or without their labels "
        "(unlabeled); by default what the rules say."
    ),
]
RoundingOption = Annotated[
    Rounding | None,
    typer.Option(help="Of half the classes of a super-class; by default what the rules say."),
]
SmallestKnown = Annotated[
    int | None,
    typer.Option(min=1, help="Objects of a known class; by default what the rules say."),
]
FacetsVariant = Annotated[
    str, typer.Option("--variant", help="wordnet, inter, baseline, or levels (with --levels).")
]
Distance = Annotated[
    float, typer.Option(help="Largest distance of an accepted class: 0.40, 0.45 or 0.50.")
]
FacetsSenses = Annotated[
    str, typer.Option("--senses", help="first, as published codes take them, or recorded.")
]
Levels = Annotated[
    Path | None, typer.Option(help="TOML file with a level of each class of SUN397 and ImageNet.")
]
Limit = Annotated[str, typer.Option(help="T1 accepts levels 0 and 1 of SUN397, T2 also level 2.")]
DataFolder = Annotated[Path, typer.Option(help="The folder that holds all images.")]
BelowData = Annotated[
    Path, typer.Option(help="Folder below the data folder, for lists and benchmark.")
]
FacetsSeed = Annotated[int, typer.Option("--seed", min=0, help="Of the images that are drawn.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]


@build_app.command("fmiyc")
def fmiyc_command(
    known: Known,
    out: Out,
    coco_annotations: CocoAnnotations = None,
    coco_train: CocoTrain = None,
    coco_images: CocoImages = None,
    openimages: OpenImagesFolder = None,
    ids: Ids = None,
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """Build the splits of FindMeIfYouCan: near and far from VOC, or farther from BDD100K.

    Splits whose files are missing are left out, and the rest is labelled as partial.

    Exit codes: 0 the counts are those of the paper; 3 a named file is missing; 4 finished in part.

    Example: incognita build fmiyc --known voc --coco-annotations instances_val2017.json --out voc
    """
    from incognita.benchmarks.splits.build import (
        build_from_coco,
        build_from_openimages,
        fmiyc_header,
    )
    from incognita.benchmarks.splits.write import refuse_overwriting
    from incognita.errors import InvalidDataError

    if coco_annotations is None and openimages is None:
        raise InvalidDataError("Expected --coco-annotations, --openimages or both, got neither.")
    inputs = {"coco-": coco_annotations, "openimages-": openimages}
    sources = [start for start, given in inputs.items() if given is not None]
    refuse_overwriting(out, coco_annotations, coco_train, ids, sources=sources)
    builds = []
    with progress_on_stderr(first="reading", log_steps=True) as (on_step, _):
        if coco_annotations is not None:
            build = build_from_coco(
                known.value, coco_annotations, train=coco_train, ids=ids, images=coco_images,
                on_step=on_step,
            )  # fmt: skip
            builds.append(build)
        if openimages is not None:
            build = build_from_openimages(known.value, openimages, ids=ids, on_step=on_step)
            builds.append(build)
        on_step(f"writing {out}")
        _save(builds, out, lambda: fmiyc_header(known.value, out, data))
    _finish_splits(builds, out, as_json=as_json)


@build_app.command("splits")
def splits_command(
    annotations: AnnotationFile,
    rules: Rules,
    out: Out,
    images: Images = None,
    candidates: Candidates = None,
    ids: Ids = None,
    as_json: AsJson = False,
) -> None:
    """Build near, far and farther splits for any known classes, by lists of categories.

    Images that show known categories only become the known half of the benchmark.

    Exit codes: 0 complete; 3 a named file is missing; 4 finished in part, by counts or lists of
    ids.

    Example: incognita build splits --annotations val.json --rules mine.toml --out splits
    """
    from incognita.benchmarks.splits.build import (
        build_from_annotations,
        known_header,
        rules_with_ids,
    )
    from incognita.benchmarks.splits.write import refuse_overwriting

    refuse_overwriting(out, annotations, candidates, ids, Path(rules))
    given = rules_with_ids(rules, ids)
    with progress_on_stderr(first="reading", log_steps=True) as (on_step, _):
        build = build_from_annotations(
            given.rules,
            annotations,
            inputs=given.inputs,
            candidates=candidates,
            images=images,
            on_step=on_step,
        )
        on_step(f"writing {out}")
        _save([build], out, lambda: known_header(build, out))
    _finish_splits([build], out, as_json=as_json)


@build_app.command("saod-gen")
def saod_gen_command(
    out: Out,
    data: SourceData = None,
    objects365: Objects365 = None,
    inaturalist: INaturalist = None,
    svhn: Svhn = None,
    coco_annotations: CocoVal = None,
    coco_images: CocoValImages = None,
    empty_images: Empty = EmptyImages.keep,
    tables: Tables = None,
    as_json: AsJson = False,
) -> None:
    """Build SAOD-Gen: Obj45K with COCO's classes, and the unknown images of SiNObj110K-OOD.

    Sets whose source is missing are left out, and the rest is labelled as partial.

    Exit codes: 0 the counts are those of the paper; 3 a named file is missing; 4 finished in part.

    Example: incognita build saod-gen --data /data --out /data/saod/gen
    """
    from incognita.benchmarks.splits.saod import SaodSources

    sources = SaodSources(
        objects365, inaturalist, svhn, coco=coco_annotations, coco_images=coco_images
    )
    _build_saod("gen", sources, data, out, empty_images, tables, as_json=as_json)


@build_app.command("saod-av")
def saod_av_command(
    out: Out,
    data: SourceData = None,
    bdd: Bdd = None,
    nuimages: NuImages = None,
    objects365: Objects365 = None,
    inaturalist: INaturalist = None,
    svhn: Svhn = None,
    empty_images: Empty = EmptyImages.keep,
    tables: Tables = None,
    as_json: AsJson = False,
) -> None:
    """Build SAOD-AV: BDD45K and nuImages with three classes, and SiNObj110K-OOD.

    Sets whose source is missing are left out, and the rest is labelled as partial.

    Exit codes: 0 the counts are those of the paper; 3 a named file is missing; 4 finished in part.

    Example: incognita build saod-av --data /data --out /data/saod/av
    """
    from incognita.benchmarks.splits.saod import SaodSources

    sources = SaodSources(objects365, inaturalist, svhn, bdd, nuimages)
    _build_saod("av", sources, data, out, empty_images, tables, as_json=as_json)


@build_app.command("voc-coco")
def voc_coco_command(
    voc: VocFolders,
    coco_annotations: CocoFile,
    out: Out,
    coco_images: CocoValImages = None,
    coco_test: AdmittedCoco = CocoTest.unknown_only,
    empty_images: EmptyCoco = EmptyImages.keep,
    tables: OpenTables = None,
    as_json: AsJson = False,
) -> None:
    """Build VOC-COCO: 20 known classes of VOC, and images of COCO with 60 unknown ones.

    Exit codes: 0 complete; 3 a named file is missing; 4 finished in part, by numbers of images.

    Example: incognita build voc-coco --voc VOC2007 --coco-annotations instances_val2017.json
    --out voc-coco
    """
    from incognita.benchmarks.splits.open_sets import (
        VOC_COCO,
        build_voc_coco,
        load_open_set_tables,
    )

    inputs = [*voc, coco_annotations, tables]
    classes = load_open_set_tables(tables or VOC_COCO)
    _run_open_set(
        lambda on_step: build_voc_coco(
            voc, coco_annotations, classes, coco_images=coco_images, admit=coco_test.value,
            empty_images=empty_images.value, on_step=on_step,
        ),
        inputs, out, as_json=as_json,
    )  # fmt: skip


@build_app.command("image-list")
def image_list_command(
    listed: ImageListFile,
    source: ListSources,
    out: Out,
    train_list: TrainList = None,
    n_known: NKnown = None,
    repeats: RepeatedIds = Repeats.refuse,
    coco_images: CocoImages = None,
    tables: OpenTables = None,
    as_json: AsJson = False,
) -> None:
    """Build an open set of the images that a list of OpenDet or OWOD names.

    Exit codes: 0 complete; 3 a named file is missing; 4 some images are in no source.

    Example: incognita build image-list --list all_task_test.txt --source VOC2007 --source
    instances_train2017.json --repeats drop --out owod-t1
    """
    from incognita.benchmarks.splits.open_sets import (
        VOC_COCO,
        build_from_list,
        load_open_set_tables,
    )

    classes = load_open_set_tables(tables or VOC_COCO)
    _run_open_set(
        lambda on_step: build_from_list(
            listed, source, classes, train=train_list, n_known=n_known, repeats=repeats.value,
            coco_images=coco_images, on_step=on_step,
        ),
        [listed, train_list, *source, tables], out, as_json=as_json,
    )  # fmt: skip


@build_app.command("openimages")
def openimages_command(
    openimages: OpenImagesData,
    out: Out,
    rules: SuperclassFile = None,
    scenario: TrainScenario = None,
    rounding: RoundingOption = None,
    smallest_known: SmallestKnown = None,
    as_json: AsJson = False,
) -> None:
    """Build an open set of OpenImages: in each super-class the more frequent half is known.

    By default of street scenes, by the rules of OpenImagesRoad, whose own annotations cannot be
    had.

    Exit codes: 0 complete; 3 a named file is missing; 4 images of unknown size are left out.

    Example: incognita build openimages --openimages /data/openimages --out streets
    """
    from incognita.benchmarks.splits.openimages_sets import OpenImagesFiles, build_openimages
    from incognita.benchmarks.splits.superclasses import RULES, load_superclass_rules

    chosen = {"scenario": scenario, "rounding": rounding}
    changed: dict[str, Any] = {k: v.value for k, v in chosen.items() if v is not None}
    changed |= {} if smallest_known is None else {"smallest_known": smallest_known}
    given = load_superclass_rules(rules or RULES).model_copy(update=changed)
    files = OpenImagesFiles.below(openimages)
    _run_open_set(
        lambda on_step: build_openimages(files, given, rules or RULES, on_step=on_step),
        [rules], out, as_json=as_json,
    )  # fmt: skip


@build_app.command("facets")
def facets_command(
    data: DataFolder,
    out: BelowData,
    variant: FacetsVariant = "wordnet",
    distance: Distance = 0.4,
    senses: FacetsSenses = "first",
    levels: Levels = None,
    limit: Limit = "T1",
    seed: FacetsSeed = 0,
    places: Annotated[
        str, typer.Option(help="Validation images of Places365.")
    ] = "places365/val_256",
    places_list: Annotated[
        str, typer.Option(help="places365_val.txt.")
    ] = "places365/places365_val.txt",
    imagenet: Annotated[str, typer.Option(help="Training images by wnid.")] = "imagenet/train",
    imagenet_val: Annotated[str, typer.Option(help="Validation images by wnid.")] = "imagenet/val",
    sun: Annotated[str, typer.Option(help="SUN397.")] = "sun397",
    svhn: Annotated[str, typer.Option(help="SVHN, with folders train and test.")] = "svhn",
    as_json: Annotated[bool, typer.Option("--json", help="Print the manifest.")] = False,
) -> None:
    """Build FACETS: images of ImageNet and SUN397, known or unknown by the meaning of their class.

    Folders are below the data folder. The numbers of images and classes are compared with the
    published ones.

    Exit codes: 0 complete; 3 a folder is missing; 4 finished in part: classes have too few images.

    Example: incognita build facets --data /data --out /data/facets/t40 --distance 0.40
    """
    from incognita._version import __version__
    from incognita.benchmarks.splits.facets import (
        FacetsFolders,
        FacetsSettings,
        build_facets,
        save_facets,
    )
    from incognita.results.export import stdout_console

    settings = FacetsSettings(variant, distance, senses, levels, limit, seed)  # type: ignore[arg-type]
    folders = FacetsFolders(data, places, places_list, imagenet, imagenet_val, sun, svhn)
    with progress_on_stderr(first="listing", log_steps=True) as (on_step, _):
        build = build_facets(folders, settings, on_step=on_step)
        on_step("writing")
        save_facets(build, folders, out, version=__version__)
    if as_json:
        sys.stdout.write((out / "manifest.json").read_text(encoding="utf-8"))
    else:
        stdout_console().print(_facets_table(build))
        _show_remarks("", build.problems, ())
        sys.stdout.write(f"incognita run {out / 'benchmark.toml'} --data {data} --model …\n")
    if build.problems:
        raise typer.Exit(IN_PART)


def _run_open_set(
    build: "Callable[[Callable[[str], None]], OpenSetBuild]",
    inputs: Sequence[Path | None],
    out: Path,
    *,
    as_json: bool,
) -> None:
    from incognita._version import __version__
    from incognita.benchmarks.splits.open_sets import refuse_overwriting_open_set, save_open_set

    refuse_overwriting_open_set(out, inputs)
    with progress_on_stderr(first="reading", log_steps=True) as (on_step, _):
        built = build(on_step)
        on_step(f"writing {out}")
        save_open_set(built, out, version=__version__)
    _finish_open_set(built, out, as_json=as_json)


def _finish_open_set(build: "OpenSetBuild", out: Path, *, as_json: bool) -> None:
    from incognita.benchmarks.splits.open_sets import facts_of_open_set

    is_plain = build.is_runnable
    why = "it needs known and unknown images" if is_plain else "some images are there twice"
    _finish(
        [facts_of_open_set(build)],
        [_tallies(build), _superclass_table(build)],
        [("", build.problems, [*build.notes, *build.remarks])],
        lambda: _show_next(out, "Counts, classes and choices", why),
        as_json=as_json,
    )


def _tallies(build: "OpenSetBuild") -> "Table":
    table = _new_table(("",), ("found", "published"))
    for what, found, published in build.tallies:
        style = "green" if published == found else "yellow" if published is not None else "none"
        shown = "" if published is None else f"{published:,}"
        table.add_row(what, f"[{style}]{found:,}[/]", shown)
    return table


def _superclass_table(build: "OpenSetBuild") -> "Table":
    """Return how many classes of each super-class are known and unknown."""
    from rich.text import Text

    table = _new_table(("super-class",), ("known", "unknown", "ignored", "objects"))
    rows = build.parameters.get("classes", ())
    for name in dict.fromkeys(row["superclass"] for row in rows):
        inside = [row for row in rows if row["superclass"] == name]
        roles = [row["role"] for row in inside]
        numbers = [roles.count(role) for role in ("known", "unknown", "ignored")]
        numbers.append(sum(row["objects"] for row in inside))
        table.add_row(Text(name), *(f"{n:,}" for n in numbers))
    return table


def _build_saod(
    use_case: "UseCase",
    given: "SaodSources",
    data: Path | None,
    out: Path,
    empty_images: EmptyImages,
    tables: Path | None,
    *,
    as_json: bool,
) -> None:
    from incognita._version import __version__
    from incognita.benchmarks.splits.saod import build_saod, refuse_overwriting_saod, save_saod
    from incognita.benchmarks.splits.saod_sets import TABLES, load_class_tables
    from incognita.errors import InvalidDataError

    sources = given if data is None else given.found_below(data)
    if not any(sources):
        raise InvalidDataError(
            f"Expected the folder of a source, got none. Give --data or one of them, such as "
            f"--objects365; `incognita build saod-{use_case} --help` lists them."
        )
    refuse_overwriting_saod(out, [sources.coco, tables])
    classes = load_class_tables(tables or TABLES)
    with progress_on_stderr(first="reading", log_steps=True) as (on_step, on_progress):
        build = build_saod(
            use_case, sources, classes, empty_images=empty_images.value,
            on_step=on_step, on_progress=on_progress,
        )  # fmt: skip
        on_step(f"writing {out}")
        save_saod(build, out, version=__version__)
    _finish_saod(build, out, as_json=as_json)


def _finish_saod(build: "SaodBuild", out: Path, *, as_json: bool) -> None:
    from incognita.benchmarks.splits.saod import facts_of_saod

    _finish(
        [facts_of_saod(build)],
        [_saod_sets(build), _saod_outcomes(build), *_saod_statistics(build)],
        [("", build.problems, build.notes)],
        lambda: _show_next(out, "Counts and statistics"),
        as_json=as_json,
    )


def _saod_sets(build: "SaodBuild") -> "Table":
    table = _new_table(("set",), ("images", "published", "objects"))
    for built in build.sets:
        published = build.expected(built.name)
        style = "yellow" if published not in (None, built.n_images) else "green"
        table.add_row(
            built.name,
            f"[{style}]{built.n_images:,}[/]",
            "?" if published is None else f"{published:,}",
            f"{built.n_objects:,}",
        )
    return table


def _saod_outcomes(build: "SaodBuild") -> "Table":
    """Return what became of the images of each file, and of the objects of each set."""
    from rich.text import Text

    table = _new_table(("from", "became"), ("number",))
    images = {file: found for built in build.sets for file, found in built.outcomes.items()}
    for file, found in images.items():
        for outcome, n in found.items():
            table.add_row(Text(f"images of {file}"), Text(outcome), f"{n:,}")
    for built in build.sets:
        for reason, n in built.dropped.items():
            table.add_row(f"objects of {built.name}", Text(f"dropped: {reason}"), f"{n:,}")
    return table


def _saod_statistics(build: "SaodBuild") -> "list[Table]":
    """Return objects per class, and images per weather, time of day and scene."""
    from rich.text import Text

    classes = _new_table(("class",), ("objects in test", "in validation"))
    for name, counts in build.objects_per_class().items():
        shown = ("" if n is None else f"{n:,}" for n in counts.values())
        classes.add_row(Text(name), *shown)
    attributes = _new_table(("attribute", "value"), ("images",))
    for built in build.sets:
        for name, counts_of in built.attributes.items():
            for value, n in counts_of.items():
                attributes.add_row(name, Text(value), f"{n:,}")
    return [classes, attributes]


def _save(
    builds: "Sequence[SplitBuild]", out: Path, make_head: "Callable[[], BenchmarkHeader | None]"
) -> None:
    """Write all files; a benchmark needs known and unknown images."""
    from incognita._version import __version__
    from incognita.benchmarks.splits.write import save_builds

    out.mkdir(parents=True, exist_ok=True)
    has_images = any(sum(build.splits.counts.values()) for build in builds)
    save_builds(builds, out, head=make_head() if has_images else None, version=__version__)


def _finish_splits(builds: "Sequence[SplitBuild]", out: Path, *, as_json: bool) -> None:
    _finish(
        [_summary(build) for build in builds],
        [_table(builds)],
        [(build.source, build.problems, build.notes) for build in builds],
        lambda: _show_next(out, "Why each image is where it is"),
        as_json=as_json,
    )


def _finish(
    facts: Sequence[dict[str, Any]],
    tables: "Sequence[Table]",
    remarks: Sequence[tuple[str, Sequence[str], Sequence[str]]],
    show_next: Callable[[], None],
    *,
    as_json: bool,
) -> None:
    """Print what was built and exit with the code that belongs to it.

    Args:
        facts: For JSON.
        tables: For people; empty ones are left out.
        remarks: Of each build its source, its problems and its notes.
        show_next: Prints what to do with it.
        as_json: Whether JSON is printed.
    """
    from incognita.results.export import stdout_console

    if as_json:
        sys.stdout.write(json.dumps(facts, indent=1) + "\n")
    else:
        for table in tables:
            if table.row_count:
                stdout_console().print(table)
        for source, problems, notes in remarks:
            _show_remarks(source, problems, notes)
        show_next()
    if any(problems for _, problems, _ in remarks):
        raise typer.Exit(IN_PART)


def _summary(build: "SplitBuild") -> dict[str, Any]:
    from incognita.benchmarks.splits.write import facts_of

    metadata = facts_of(build)
    return {
        key: metadata[key] for key in ("source", "rules", "splits", "removed", "problems", "notes")
    }


def _show_remarks(source: str, problems: Sequence[str], notes: Sequence[str]) -> None:
    from rich.text import Text

    from incognita.results.export import stdout_console

    for kind, texts in (("partial", problems), ("note", notes)):
        for text in texts:
            stdout_console().print(
                Text.assemble((f"{kind}: ", "yellow"), f"{source} {text}".strip())
            )


def _show_next(out: Path, what: str, why_none: str = "it needs known and unknown images") -> None:
    """Print where the manifest is, and what to do with the benchmark."""
    from rich.text import Text

    from incognita.benchmarks.splits.write import BENCHMARK, MANIFEST
    from incognita.results.export import stdout_console

    console = stdout_console()
    console.print(Text(f"{what}: {out / MANIFEST}"))
    if (out / BENCHMARK).is_file():
        path = out / BENCHMARK
        option = _allow_outside(path)
        console.print(Text(f"Next: incognita data check {path}{option}"))
        console.print(Text(f"Then: incognita run {path}{option} --model YOURS"))
    else:
        console.print(Text(f"No benchmark is written: {why_none}."))


def _allow_outside(benchmark: Path) -> str:
    """Return the option that a benchmark needs whose images stay outside of its folder."""
    from incognita.benchmarks.definition_files import find_definition

    entries = (entry.model_dump() for entry in find_definition(benchmark).definition.set)
    places = [entry[key] for entry in entries for key in ("annotations", "images") if key in entry]
    return " --allow-outside" if any(place.startswith("..") for place in places) else ""


def _new_table(texts: Sequence[str], numbers: Sequence[str]) -> "Table":
    """Return an empty table with columns of text, then of numbers."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, header_style="bold")
    for column in texts:
        table.add_column(column)
    for column in numbers:
        table.add_column(column, justify="right", no_wrap=True)
    return table


def _table(builds: "Sequence[SplitBuild]") -> "Table":
    from rich.text import Text

    table = _new_table(("set", "rules"), ("found", "expected", "objects"))
    for build in builds:
        splits, rules = build.splits, build.splits.rules
        for split, found in splits.counts.items():
            expected = splits.expected(split)
            style = "green" if not build.problems else "yellow" if found else "red"
            table.add_row(
                Text(build.set_name(split)),
                Text(f"{rules.name}, version {rules.version}"),
                Text(f"{found:,}", style=style),
                "?" if expected is None else f"{expected:,}",
                f"{sum(map(len, splits.objects_of(split))):,}",
            )
        name = f"{build.source} removed".strip()
        table.add_row(Text(name, style="dim"), "", Text(f"{splits.n_removed:,}", style="dim"))
    return table


def _facets_table(build: "FacetsBuild") -> "Table":
    rows = build.comparison()
    table = _new_table(("set",), [name for name in rows[0] if name != "set"])
    table.title, table.title_justify = f"FACETS, {build.settings.title}", "left"
    for row in rows:
        table.add_row(*(f"{v:,}" if isinstance(v, int) else v or "" for v in row.values()))
    return table
