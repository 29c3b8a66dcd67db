"""Open-set benchmarks as files: known, unknown and mixed test images, a manifest, a benchmark.

Ammar et al., Open-set object detection: towards unified problem formulation and benchmarking,
section 3.1: test images that show known objects only (`test`), unknown ones only (`unknown`), and
all of them (`all`). VOC-COCO is made of Pascal VOC and COCO; lists of images of OpenDet and OWOD
are imported.
"""

import os
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, PositiveInt, model_validator

from incognita.benchmarks.splits.saod_sets import (
    BuiltSet,
    ClassNames,
    OnStep,
    Outcomes,
    class_of_name,
    save_sets,
)
from incognita.benchmarks.splits.write import (
    BENCHMARK,
    MANIFEST,
    BenchmarkHeader,
    InputFile,
    hash_files,
    refuse_loss,
    relative,
    save_benchmark,
    save_manifest,
)
from incognita.errors import InvalidDataError, MissingDataError, count, unknown_name
from incognita.formats.coco_records import (
    Annotations,
    ImageId,
    Record,
    load_annotations,
)
from incognita.formats.toml_files import check_table, load_toml
from incognita.formats.voc import load_voc, load_voc_list

TABLES = Path(__file__).parents[1] / "definitions" / "splits" / "tables"
VOC_COCO = TABLES / "voc-coco.toml"
# the role of each set in the benchmark; files are called after the sets
ROLES: Mapping[str, str] = {
    "train": "train",
    "validation": "validation",
    "unknown-validation": "unknown-validation",
    "test": "test",
    "unknown": "unknown",
    "all": "mixed",
}
Admitted = Literal["unknown-only", "all"]
EmptyImages = Literal["keep", "drop"]
Repeats = Literal["refuse", "drop", "owod"]


class Tally(NamedTuple):
    """A number of images, objects or classes, and the published one where there is one."""

    what: str
    found: int
    published: int | None = None


@dataclass(frozen=True, eq=False)
class OpenSetBuild:
    """What was built.

    Args:
        name: Of the benchmark.
        version: Of the tables or rules.
        title: One line for people.
        paper: Where the rules are described.
        classes: The known classes.
        sets: By names of `ROLES`.
        tallies: Numbers to be compared with published ones.
        parameters: What was chosen, and what was decided about classes; for the manifest.
        ignored: Categories that count neither way.
        problems: Descriptions of what is missing.
        notes: Descriptions of what is odd.
        remarks: What a reader of the numbers should know.
        is_runnable: Whether a benchmark is written.
    """

    name: str
    version: int
    title: str
    paper: str
    classes: Sequence[str]
    sets: Sequence[BuiltSet]
    tallies: Sequence[Tally]
    parameters: Mapping[str, Any]
    ignored: Sequence[str] = ()
    problems: Sequence[str] = ()
    notes: Sequence[str] = ()
    remarks: Sequence[str] = ()
    is_runnable: bool = True


def refuse_overwriting_open_set(out: Path, inputs: Sequence[Path | None]) -> None:
    """Refuse a folder in which an input or a file of others would be overwritten or deleted."""
    names = [*(f"{name}.json" for name in ROLES), BENCHMARK, MANIFEST]
    refuse_loss(out, inputs, written=names, names=names)


def save_open_set(build: OpenSetBuild, out: Path, *, version: str) -> None:
    """Save the sets, the manifest and the benchmark; the same input gives the same bytes.

    Files of an earlier build that this one does not have are deleted.

    Args:
        build: What was built.
        out: The folder, made where it is not there.
        version: Of this package, for the manifest.
    """
    save_sets([built for built in build.sets if built.n_images], out, names=ROLES)
    save_manifest([facts_of_open_set(build)], out, version=version)
    save_benchmark([], out, _header(build, out))


def facts_of_open_set(build: OpenSetBuild) -> dict[str, Any]:
    """Return what the manifest says about a build."""
    inputs = {file: None for built in build.sets for file in built.inputs}
    return {
        "source": build.name,
        "version": build.version,
        "paper": build.paper,
        **build.parameters,
        "known": list(build.classes),
        "ignored": list(build.ignored),
        "counts": [tally._asdict() for tally in build.tallies],
        "inputs": [file._asdict() for file in inputs],
        "sets": {
            built.name: {
                "file": f"{built.name}.json" if built.n_images else None,
                "images": built.n_images,
                "objects": built.n_objects,
                "images_of_files": {file: dict(found) for file, found in built.outcomes.items()},
                "dropped_objects": dict(built.dropped),
            }
            for built in build.sets
        },
        "problems": list(build.problems),
        "notes": list(build.notes),
        "remarks": list(build.remarks),
    }


def _header(build: OpenSetBuild, out: Path) -> BenchmarkHeader | None:
    """Return the benchmark; None without known or unknown images."""
    found = [built for built in build.sets if built.n_images]
    there = {built.name for built in found}
    if not build.is_runnable or "test" not in there or not there & {"unknown", "all"}:
        return None
    metadata = {
        "name": f"built/{build.name}",
        "version": build.version,
        "title": build.title,
        "task": "detection",
        "classes": list(build.classes),
        "paper": build.paper,
    }
    note = f"partial: {'; '.join(build.problems)}" if build.problems else None
    return BenchmarkHeader(metadata, [_entry(built, build, note, out) for built in found])


def _entry(built: BuiltSet, build: OpenSetBuild, note: str | None, out: Path) -> dict[str, Any]:
    there = set(built.annotations.category_names.values())
    return {
        "name": built.name,
        "role": ROLES[built.name],
        "kind": "coco",
        "annotations": f"{built.name}.json",
        "images": relative(built.images, out),
        "count": built.n_images,
        "ignored": [name for name in build.ignored if name in there] or None,
        "note": note,
    }


def pure_sets(
    everything: BuiltSet, known: Collection[str], ignored: Collection[str] = ()
) -> list[BuiltSet]:
    """Return the images that show known objects only, then those that show unknown ones only.

    Images without objects are in neither. The files that `everything` was made of are its own.
    """
    given = everything.annotations
    shown = {k: given.names_in(k) - {*ignored} for k in given.objects}
    chosen = {
        "test": [k for k in given.images if (held := shown.get(k)) and held <= {*known}],
        "unknown": [k for k in given.images if (held := shown.get(k)) and not held & {*known}],
    }
    return [
        BuiltSet(name, part_of(given, ids), everything.images, everything.inputs, {})
        for name, ids in chosen.items()
    ]


def part_of(annotations: Annotations, ids: Iterable[ImageId]) -> Annotations:
    """Return some images of a file, in the order given."""
    chosen = list(ids)
    return Annotations(
        annotations.source,
        {k: annotations.images[k] for k in chosen},
        {k: annotations.objects[k] for k in chosen if k in annotations.objects},
        annotations.categories,
        annotations.passed_on,
    )


# --- Pascal VOC and COCO ----------------------------------------------------------------------


class OpenSetTables(BaseModel):
    """Which classes are known and unknown, in their order; a TOML file anybody can replace.

    Args:
        name: Of the benchmark.
        version: Goes up whenever a set could change.
        title: One line for people.
        paper: Where the classes are described.
        known: The names that annotation files use for each known class.
        unknown: The further classes.
        remarks: What a reader of the numbers should know.
        expected: How many images the sets `train` and `test` and the file of COCO have.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)
    name: str
    version: PositiveInt
    title: str
    paper: str
    known: ClassNames
    unknown: list[str] = Field(min_length=1)
    remarks: list[str] = []
    expected: Mapping[str, PositiveInt] = {}

    @model_validator(mode="after")
    def _consistent(self) -> "OpenSetTables":
        for name, names in self.known.items():
            if not name.strip() or not all(map(str.strip, names)) or not names:
                raise ValueError(f"the known class {name!r} is empty; list its names in files")
        for name in self.unknown:
            if not name.strip():
                raise ValueError("an unknown class has an empty name; take it out")
        class_of_name({**self.known, **{name: [name] for name in self.unknown}})
        both = [name for name in self.unknown if name in self.known]
        if both or len({*self.unknown}) < len(self.unknown):
            twice = next(n for n, k in Counter([*self.known, *self.unknown]).items() if k > 1)
            raise ValueError(f"class {twice!r} is listed twice; keep one")
        return self

    @property
    def classes(self) -> list[str]:
        """All classes, the known ones first."""
        return [*self.known, *self.unknown]


def load_open_set_tables(path: Path = VOC_COCO) -> OpenSetTables:
    """Load tables of classes from a TOML file; by default those of VOC-COCO."""
    return check_table(OpenSetTables, load_toml(path, "file of tables"), path.name)


class ImageSource(NamedTuple):
    """Annotations whose ids are names of files, the folder of their images, and the file."""

    annotations: Annotations
    images: Path
    input: InputFile


def load_source(
    path: Path,
    tables: OpenSetTables,
    *,
    images: Path | None = None,
    only: Collection[str] | None = None,
) -> ImageSource:
    """Load annotations of VOC (a folder) or COCO (a file) with the classes of tables.

    The id of an image is the name of its file without the suffix, as lists of images have it.

    Args:
        path: A folder such as VOCdevkit/VOC2007, or a file such as instances_val2017.json.
        tables: The classes; a name that is not there is refused.
        images: The folder that a file's images, or val2017 with them, lie in; by default that of
            the file.
        only: The ids that are wanted, as far as they are there; by default all.
    """
    if path.is_dir():
        there = {file.stem for file in (path / "Annotations").glob("*.xml")}
        wanted = None if only is None else sorted(there & {*only})
        found = load_voc(path, only=wanted)
        given = InputFile("voc", f"{path.name}/Annotations", _hash_of_files(path, found.images))
        return ImageSource(_with_classes(found, tables, path), path.absolute(), given)
    found = load_annotations(path)
    named = _with_classes(found, tables, path)
    if only is not None:
        named = part_of(named, (k for k in named.images if k in only))
    return ImageSource(named, _images_of(path, images), InputFile.at("coco", path))


def _hash_of_files(folder: Path, ids: Iterable[ImageId]) -> str:
    return hash_files(folder, (f"Annotations/{image_id}.xml" for image_id in ids))


def _images_of(path: Path, given: Path | None) -> Path:
    """Find the images of a file of COCO: in val2017 for instances_val2017.json, or beside it."""
    folder = path.absolute().parent
    beside = folder.parent if folder.name == "annotations" else folder
    beside = beside if given is None else given
    named = beside / path.name.removesuffix(".gz").removesuffix(".json").rpartition("_")[2]
    return named if named.is_dir() else beside


def _with_classes(given: Annotations, tables: OpenSetTables, path: Path) -> Annotations:
    """Replace categories by the classes of tables, and ids by names of files."""
    own = class_of_name({**tables.known, **{name: [name] for name in tables.unknown}})
    number_of = {name: number for number, name in enumerate(tables.classes, start=1)}
    new_id: dict[int, int] = {}
    for number, name in given.category_names.items():
        if name not in own:
            raise InvalidDataError(
                f"{path}: {unknown_name(f'class of {tables.name}', name, own)} The tables list "
                f"all classes; add it there and give them with --tables."
            )
        new_id[number] = number_of[own[name]]
    images: dict[ImageId, Record] = {}
    objects: dict[ImageId, list[Record]] = {}
    for old, record in given.images.items():
        name = PurePosixPath(str(record["file_name"]).replace("\\", "/")).stem
        if name in images:
            raise InvalidDataError(
                f"{path} has two images called {name}; open sets tell images apart by the names of "
                f"their files: rename one."
            )
        images[name] = {**record, "id": name}
        if held := given.objects.get(old):
            objects[name] = [
                {**k, "image_id": name, "category_id": new_id[k["category_id"]]} for k in held
            ]
    categories = _categories(given, tables, number_of, own)
    return Annotations(path.name, images, objects, categories, given.passed_on)


def _categories(
    given: Annotations,
    tables: OpenSetTables,
    number_of: Mapping[str, int],
    own: Mapping[str, str],
) -> list[Record]:
    """Return all classes as categories, with the super-categories that the file has."""
    above = {own[k["name"]]: k["supercategory"] for k in given.categories if "supercategory" in k}
    return [
        {"id": number_of[name], "name": name}
        | ({"supercategory": above[name]} if name in above else {})
        for name in tables.classes
    ]


def join_sources(
    name: str, sources: Sequence[ImageSource], outcomes: Outcomes | None = None
) -> BuiltSet:
    """Join sources to one set; names of files begin at the folder that all images share."""
    root = Path(os.path.commonpath([source.images.absolute() for source in sources]))
    images: dict[ImageId, Record] = {}
    objects: dict[ImageId, Sequence[Record]] = {}
    for source in sources:
        prefix = relative(source.images.absolute(), root)
        for key, record in source.annotations.images.items():
            if key in images:
                raise InvalidDataError(
                    f"Image {key} is in both {images[key]['file_name']} and "
                    f"{source.annotations.source}; give one of the two sources."
                )
            file_name = PurePosixPath(prefix, str(record["file_name"])).as_posix()
            images[key] = {**record, "file_name": file_name}
        objects |= source.annotations.objects
    passed_on = {k: v for source in sources for k, v in source.annotations.passed_on.items()}
    named = ", ".join(dict.fromkeys(source.annotations.source for source in sources))
    categories = _joined_categories([source.annotations.categories for source in sources])
    joined = Annotations(named, images, objects, categories, passed_on)
    inputs = [source.input for source in sources]
    return BuiltSet(name, joined, root, inputs, outcomes or {})


def _joined_categories(given: Sequence[Sequence[Record]]) -> list[Record]:
    merged: dict[int, Record] = {}
    for record in chain.from_iterable(given):
        merged[record["id"]] = {**record, **merged.get(record["id"], {})}
    return [merged[number] for number in sorted(merged)]


def build_voc_coco(
    voc: Sequence[Path],
    coco: Path,
    tables: OpenSetTables,
    *,
    coco_images: Path | None = None,
    admit: Admitted = "unknown-only",
    empty_images: EmptyImages = "keep",
    on_step: OnStep = lambda _: None,
) -> OpenSetBuild:
    """Build VOC-COCO: test images of VOC, whose classes are known, and images of COCO.

    Args:
        voc: Folders such as VOCdevkit/VOC2007; images are those of ImageSets/Main/test.txt, and
            of trainval.txt for training. A folder without these lists is a test set as a whole,
            and so is a file in COCO's format.
        coco: The file instances_val2017.json.
        tables: The classes.
        coco_images: The folder of COCO's images; by default found by its file.
        admit: Which images of COCO are tested: those without any known object (`unknown-only`),
            or all of them, as the sets of the paper are defined.
        empty_images: Whether images of COCO without any object are unknown.
        on_step: Called with the name of each step.
    """
    tests, trains, notes = _load_voc_parts(voc, tables, on_step)
    on_step(f"reading {coco.name}")
    source = load_source(coco, tables, images=coco_images)
    ids, outcomes = _sort_coco(source.annotations, tables.known, empty_images)
    unknown = source._replace(annotations=part_of(source.annotations, ids))
    admitted = source if admit == "all" else unknown
    n_coco, files = len(source.annotations.images), {coco.name: outcomes}
    sets = [join_sources("train", trains)] if trains else []
    sets += [
        join_sources("test", tests),
        join_sources("unknown", [unknown], files),
        join_sources("all", [*tests, admitted], files),
    ]
    counts = {built.name: built.n_images for built in sets} | {"coco": n_coco}
    tallies = [Tally(f"images of {k}", n, tables.expected.get(k)) for k, n in counts.items()]
    problems = [
        f"{tally.what}: {tally.found:,}, but {tally.published:,} are expected"
        for tally in tallies
        if tally.published not in (None, tally.found)
    ]
    tallies += _class_tallies(tables, len(tables.known))
    return OpenSetBuild(
        tables.name, tables.version, tables.title, tables.paper, list(tables.known), sets, tallies,
        {"admit": admit, "empty_images": empty_images, "scenario": "unlabeled"},
        problems=problems, notes=notes, remarks=tables.remarks,
    )  # fmt: skip


def _class_tallies(tables: OpenSetTables, n_known: int) -> list[Tally]:
    counts = {"known classes": n_known, "unknown classes": len(tables.classes) - n_known}
    is_own = n_known == len(tables.known)  # published for these classes, not for later tasks
    return [Tally(k, n, tables.expected.get(k) if is_own else None) for k, n in counts.items()]


def _load_voc_parts(
    paths: Sequence[Path], tables: OpenSetTables, on_step: OnStep
) -> tuple[list[ImageSource], list[ImageSource], list[str]]:
    """Load test and training images of VOC, and note what has no list."""
    tests: list[ImageSource] = []
    trains: list[ImageSource] = []
    notes = []
    for path in paths:
        on_step(f"reading {path.name}")
        if not path.exists():
            raise MissingDataError(f"There is no {path}; name a folder such as VOCdevkit/VOC2007.")
        lists = (path / "ImageSets" / "Main" / f"{part}.txt" for part in ("test", "trainval"))
        found = [listed for listed in lists if listed.exists()]
        if not found:
            tests.append(load_source(path, tables))
            notes.append(f"{path.name}: no ImageSets/Main/test.txt, so that all images are tested")
        for listed in found:
            source = _listed_source(path, listed, tables)
            (tests if listed.stem == "test" else trains).append(source)
    _refuse_shared("trainval.txt", _ids_of(trains), "test.txt", _ids_of(tests))
    if not tests:
        raise MissingDataError(
            f"There is no ImageSets/Main/test.txt in {paths[0]}; unpack VOCtest_06-Nov-2007.tar "
            f"there, which has the test images of VOC 2007."
        )
    return tests, trains, notes


def _listed_source(folder: Path, listed: Path, tables: OpenSetTables) -> ImageSource:
    ids = load_voc_list(listed)
    _refuse_repeats(listed, ids, "remove the lines")
    found = load_voc(folder, only=ids)
    digest = _hash_of_files(folder, found.images)
    name = f"{folder.name}/{listed.name}"
    given = InputFile(f"voc {listed.stem}", f"{folder.name}/Annotations of {listed.name}", digest)
    named = _with_classes(found, tables, folder)
    own = Annotations(name, named.images, named.objects, named.categories)
    return ImageSource(own, folder.absolute(), given)


def _sort_coco(
    given: Annotations, known: Collection[str], empty_images: EmptyImages
) -> tuple[list[ImageId], dict[str, int]]:
    """Return the images without a known object, and how many images have which outcome."""
    outcomes = Counter[str]()
    chosen = []
    for image_id in given.images:
        held = given.names_in(image_id)
        if not held:
            outcome = "no object"
        elif held <= {*known}:
            outcome = "known objects only"
        else:
            outcome = "known and unknown objects" if held & {*known} else "unknown objects only"
        outcomes[outcome] += 1
        if outcome == "unknown objects only" or (not held and empty_images == "keep"):
            chosen.append(image_id)
    return chosen, dict(outcomes)


# --- lists of images --------------------------------------------------------------------------


def build_from_list(
    listed: Path,
    sources: Sequence[Path],
    tables: OpenSetTables,
    *,
    train: Path | None = None,
    n_known: int | None = None,
    repeats: Repeats = "refuse",
    coco_images: Path | None = None,
    on_step: OnStep = lambda _: None,
) -> OpenSetBuild:
    """Build an open set of the images that a list of OpenDet or OWOD names.

    Args:
        listed: A text file with the id of an image in each line, such as all_task_test.txt.
        sources: Folders of VOC and files of COCO that hold the images.
        tables: The classes in their order.
        train: A list of training images; their objects of unknown classes are left out.
        n_known: How many classes are known, the first of the tables: 20, 40, 60 or 80 in the tasks
            of OWOD. By default those that the tables call known.
        repeats: What happens to ids that are there more than once: `refuse`, `drop` all but the
            first, or keep them as further images (`owod`), which nothing but `certify` accepts.
        coco_images: The folder that val2017 and train2017 lie in.
        on_step: Called with the name of each step.
    """
    classes = _known_classes(tables, n_known)
    lists = {"all": ListedImages.at(listed)}
    if train is not None:
        lists["train"] = ListedImages.at(train)
    if repeats == "refuse":
        for given in lists.values():
            advice = "drop the lines with --repeats drop, or keep them with --repeats owod"
            _refuse_repeats(given.path, given.ids, advice)
    if train is not None:
        _refuse_shared(train.name, lists["train"].ids, listed.name, lists["all"].ids)
    wanted = frozenset(chain.from_iterable(given.ids for given in lists.values()))
    loaded = []
    for path in sources:
        on_step(f"reading {path.name}")
        loaded.append(load_source(path, tables, images=coco_images, only=wanted))
    there = join_sources("all", loaded)
    chosen = {name: _chosen_set(name, given, there, repeats) for name, given in lists.items()}
    everything = chosen["all"]
    if not everything.n_images:
        raise MissingDataError(
            f"There is no image of {listed} in any source; give the folders of VOC and the files "
            f"of COCO that it was made of."
        )
    sets = [_labelled(chosen["train"], classes)] if "train" in chosen else []
    sets += [*pure_sets(everything, classes), everything]
    tallies = [Tally(f"lines of {listed.name}", len(lists["all"].ids)),
               *(Tally(f"images of {built.name}", built.n_images) for built in sets),
               *_class_tallies(tables, len(classes))]  # fmt: skip
    return OpenSetBuild(
        f"{tables.name}-{listed.stem}", tables.version, f"{tables.title}: {listed.name}",
        tables.paper, classes, sets, tallies, {"list": listed.name, "repeats": repeats},
        problems=[k for given in lists.values() for k in given.problems(there.annotations)],
        notes=[k for given in lists.values() for k in given.notes(repeats)],
        is_runnable=repeats != "owod",
    )  # fmt: skip


class ListedImages(NamedTuple):
    """A list of image ids and its file."""

    path: Path
    ids: Sequence[str]

    @classmethod
    def at(cls, path: Path) -> "ListedImages":
        """Load a list."""
        return cls(path, load_voc_list(path))

    def problems(self, there: Annotations) -> list[str]:
        """Return what is missing in the sources."""
        missing = self.missing(there)
        if not missing:
            return []
        return [
            f"{self.path.name}: {len(missing):,} of {len(set(self.ids)):,} images are in no "
            f"source, such as {missing[0]}"
        ]

    def missing(self, there: Annotations) -> list[str]:
        """Return the ids that no source has."""
        return [image_id for image_id in dict.fromkeys(self.ids) if image_id not in there.images]

    def notes(self, repeats: Repeats) -> list[str]:
        """Return what happened to repeated lines."""
        if not (n := len(self.ids) - len(set(self.ids))):
            return []
        kept = "kept as further images" if repeats == "owod" else "dropped"
        return [f"{self.path.name}: {count(n, 'repeated line')} {kept}"]


def _known_classes(tables: OpenSetTables, n_known: int | None) -> list[str]:
    n_known = len(tables.known) if n_known is None else n_known
    if not 0 < n_known <= len(tables.classes):
        raise InvalidDataError(
            f"Expected 1 to {len(tables.classes)} known classes, got {n_known}. The tasks of OWOD "
            f"know 20, 40, 60 and 80."
        )
    return tables.classes[:n_known]


def _refuse_repeats(path: Path, ids: Sequence[str], advice: str) -> None:
    repeated = [image_id for image_id, n in Counter(ids).items() if n > 1]
    if repeated:
        raise InvalidDataError(
            f"{path} lists {count(len(repeated), 'image')} more than once, such as {repeated[0]}, "
            f"in {count(len(ids) - len(set(ids)), 'repeated line')}. Their objects would count "
            f"twice: {advice}."
        )


def _ids_of(sources: Iterable[ImageSource]) -> list[str]:
    return [str(image_id) for source in sources for image_id in source.annotations.images]


def _refuse_shared(train: str, trained: Iterable[str], test: str, tested: Iterable[str]) -> None:
    """Refuse images that are trained on and tested."""
    if shared := sorted({*trained} & {*tested}):
        raise InvalidDataError(
            f"Expected training and test images apart, got {count(len(shared), 'image')} in both "
            f"{train} and {test}, such as {shared[0]}. Remove them from one of the lists."
        )


def _chosen_set(name: str, listed: ListedImages, there: BuiltSet, repeats: Repeats) -> BuiltSet:
    """Return the images of a list, as far as they are there; copies are called id#2, id#3."""
    given = there.annotations
    seen = Counter[str]()
    images: dict[ImageId, Record] = {}
    objects: dict[ImageId, Sequence[Record]] = {}
    for image_id in listed.ids:
        seen[image_id] += 1
        if image_id not in given.images or (seen[image_id] > 1 and repeats != "owod"):
            continue
        key = image_id if seen[image_id] == 1 else f"{image_id}#{seen[image_id]}"
        images[key] = {**given.images[image_id], "id": key}
        if held := given.objects.get(image_id):
            objects[key] = [{**record, "image_id": key} for record in held]
    ordered = {key: images[key] for key in sorted(images, key=str)}
    own = Annotations(listed.path.name, ordered, objects, given.categories, given.passed_on)
    n_lines, n_missing = len(listed.ids), len(listed.missing(given))
    counted = {"lines": n_lines, "images": len(images), "in no source": n_missing}
    inputs = [*there.inputs, InputFile.at(f"list of {name}", listed.path)]
    return BuiltSet(name, own, there.images, inputs, {listed.path.name: counted})


def _labelled(built: BuiltSet, known: Collection[str]) -> BuiltSet:
    """Return a training set without labels of unknown objects."""
    given = built.annotations
    names = given.category_names
    kept = {
        key: [record for record in group if names[record["category_id"]] in known]
        for key, group in given.objects.items()
    }
    n_dropped = sum(map(len, given.objects.values())) - sum(map(len, kept.values()))
    objects = {key: group for key, group in kept.items() if group}
    annotations = Annotations(
        given.source, given.images, objects, given.categories, given.passed_on
    )
    dropped = {"of an unknown class": n_dropped} if n_dropped else {}
    return BuiltSet(built.name, annotations, built.images, built.inputs, built.outcomes, dropped)
