"""SAOD's benchmarks as files: sets of images, a manifest with their statistics, a benchmark.

Oksuz et al., Towards Building Self-Aware Object Detectors via Reliable Uncertainty Quantification
and Calibration, CVPR 2023: SAOD-Gen knows the classes of COCO, SAOD-AV those of a street.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple

from incognita.benchmarks.definition_files import find_definition
from incognita.benchmarks.splits.saod_driving import build_bdd, build_nuimages
from incognita.benchmarks.splits.saod_sets import (
    BuiltSet,
    ClassTables,
    EmptyImages,
    OnProgress,
    OnStep,
    build_inaturalist,
    build_objects365,
    build_svhn,
    save_sets,
)
from incognita.benchmarks.splits.write import (
    BENCHMARK,
    MANIFEST,
    BenchmarkHeader,
    InputFile,
    refuse_loss,
    relative,
    save_benchmark,
    save_manifest,
)
from incognita.formats.coco_annotations import load_tables, read_category_names

UseCase = Literal["gen", "av"]
UNKNOWN_SETS = ("svhn", "inaturalist", "objects365")
# the sets of each use case, and the option that names the folder of its source
SETS: Mapping[UseCase, Mapping[str, str]] = {
    "gen": {"obj45k": "objects365", **{name: name for name in UNKNOWN_SETS}},
    "av": {"nuimages-val": "nuimages", "bdd45k": "bdd", **{name: name for name in UNKNOWN_SETS}},
}
TEST: Mapping[UseCase, str] = {"gen": "obj45k", "av": "bdd45k"}
_FOLDERS = ("objects365", "inaturalist", "svhn", "bdd", "nuimages")
_ALL_SETS = (*SETS["gen"], *SETS["av"], "nuimages-train")


class SaodSources(NamedTuple):
    """Folders of the sources, as far as they are there.

    `coco` is the annotation file of COCO's validation images, `coco_images` their folder.
    """

    objects365: Path | None = None
    inaturalist: Path | None = None
    svhn: Path | None = None
    bdd: Path | None = None
    nuimages: Path | None = None
    coco: Path | None = None
    coco_images: Path | None = None

    def found_below(self, data: Path) -> "SaodSources":
        """Add sources that lie in a data folder, under the names that saod/gen and saod/av use."""
        coco = data / "coco" / "annotations" / "instances_val2017.json"
        folders = {name: data / name for name in _FOLDERS if (data / name).is_dir()}
        there = folders | ({"coco": coco} if coco.is_file() else {})
        return self._replace(**{
            name: path for name, path in there.items() if getattr(self, name) is None
        })  # fmt: skip


class Validation(NamedTuple):
    """The validation images of COCO: their files, number and objects of each class."""

    path: Path
    images: Path
    n_images: int
    per_class: Mapping[str, int]


@dataclass(frozen=True, eq=False)
class SaodBuild:
    """What was built for a use case.

    Args:
        use_case: `gen` or `av`.
        tables: Which classes are known, ambiguous and unknown.
        sets: The sets whose sources are there.
        validation: The validation images of COCO, where they were given.
        empty_images: Whether images of Objects365 without an annotation are unknown.
    """

    use_case: UseCase
    tables: ClassTables
    sets: Sequence[BuiltSet]
    validation: Validation | None
    empty_images: EmptyImages

    @cached_property
    def by_name(self) -> dict[str, BuiltSet]:
        """The sets by their names."""
        return {built.name: built for built in self.sets}

    @property
    def classes(self) -> list[str]:
        """The known classes."""
        gen, av = self.tables.objects365.known, self.tables.bdd.known
        return list(gen if self.use_case == "gen" else av)

    def expected(self, name: str) -> int | None:
        """How many images a set has that is published, where the tables state it."""
        return self.tables.expected.get(name)

    @cached_property
    def problems(self) -> list[str]:
        """Descriptions of what is missing, or differs from what is published."""
        missing = [
            f"{name}: not built; give its source with --{option}"
            for name, option in SETS[self.use_case].items()
            if name not in self.by_name
        ]
        if self.use_case == "gen" and self.validation is None:
            missing.append("validation: not there; give COCO's file with --coco-annotations")
        return missing + [
            f"{built.name}: {built.n_images:,} images, but {expected:,} are published"
            for built in self.sets
            if (expected := self.expected(built.name)) not in (None, built.n_images)
        ]

    @property
    def notes(self) -> list[str]:
        """Descriptions of what is odd."""
        return [f"{built.name}: {note}" for built in self.sets for note in built.notes]

    def objects_per_class(self) -> dict[str, dict[str, int | None]]:
        """Count the objects of each known class in test and validation images."""
        test = self.by_name.get(TEST[self.use_case])
        validation = None if self.validation is None else self.validation.per_class
        if "nuimages-val" in self.by_name:
            validation = self.by_name["nuimages-val"].objects_per_class()
        counts = {"test": None if test is None else test.objects_per_class(),
                  "validation": validation}  # fmt: skip
        return {
            name: {part: None if found is None else found.get(name, 0)
                   for part, found in counts.items()}
            for name in self.classes
        }  # fmt: skip


def build_saod(
    use_case: UseCase,
    sources: SaodSources,
    tables: ClassTables,
    *,
    empty_images: EmptyImages = "keep",
    on_step: OnStep = lambda _: None,
    on_progress: OnProgress = lambda *_: None,
) -> SaodBuild:
    """Build the sets of a use case from the sources that are there.

    Args:
        use_case: `gen` or `av`.
        sources: Where the sources lie.
        tables: Which classes are known, ambiguous and unknown.
        empty_images: Whether images of Objects365 without an annotation are unknown (`keep`) or
            in no set (`drop`).
        on_step: Called with the name of each step.
        on_progress: Called with a name, the images done, and the images in total.
    """
    sets: list[BuiltSet] = []
    if use_case == "av":
        sets += _build_driving(sources, tables, on_step)
    if sources.svhn is not None:
        on_step("reading SVHN")
        sets.append(build_svhn(sources.svhn, on_progress=on_progress))
    if sources.inaturalist is not None:
        sets.append(build_inaturalist(sources.inaturalist, tables, on_step=on_step))
    if sources.objects365 is not None:
        built = build_objects365(
            sources.objects365, tables, empty_images=empty_images, on_step=on_step
        )
        sets += built if use_case == "gen" else built[1:]
    is_needed = use_case == "gen" and sources.coco is not None
    validation = _read_validation(sources, on_step) if is_needed else None
    order = list(_ALL_SETS)
    sets.sort(key=lambda built: order.index(built.name))
    return SaodBuild(use_case, tables, sets, validation, empty_images)


def _build_driving(
    sources: SaodSources, tables: ClassTables, on_step: OnStep
) -> Iterator[BuiltSet]:
    if sources.nuimages is not None:
        yield build_nuimages(sources.nuimages, tables, "val", on_step=on_step)
        if (sources.nuimages / "v1.0-train").is_dir():  # for training, not part of the benchmark
            yield build_nuimages(sources.nuimages, tables, "train", on_step=on_step)
    if sources.bdd is not None:
        yield build_bdd(sources.bdd, tables, on_step=on_step)


def _read_validation(sources: SaodSources, on_step: OnStep) -> Validation:
    path = sources.coco
    assert path is not None
    on_step(f"reading {path.name}")
    tables = load_tables(path)
    names = read_category_names(tables.categories)
    found = Counter(tables.annotations.integers("category_id").tolist())
    per_class = {name: found[number] for number, name in names.items()}
    folder = path.absolute().parent
    beside = folder.parent if folder.name == "annotations" else folder
    images = sources.coco_images or beside / "val2017"
    return Validation(path, images, len(tables.images), per_class)


def refuse_overwriting_saod(out: Path, inputs: Sequence[Path | None]) -> None:
    """Refuse a folder in which an input or a file of others would be overwritten or deleted."""
    names = [f"{name}.json" for name in _ALL_SETS] + [BENCHMARK, MANIFEST]
    refuse_loss(out, inputs, written=names, names=names)


def save_saod(build: SaodBuild, out: Path, *, version: str) -> None:
    """Save the sets, the manifest and the benchmark; the same input gives the same bytes.

    Files of an earlier build that this one does not have are deleted.

    Args:
        build: What was built.
        out: The folder, made where it is not there.
        version: Of this package, for the manifest.
    """
    save_sets(build.sets, out, names=_ALL_SETS)
    save_manifest([facts_of_saod(build)], out, version=version)
    save_benchmark([], out, _header(build, out))


def facts_of_saod(build: SaodBuild) -> dict[str, Any]:
    """Return what the manifest says about a build."""
    tables = build.tables
    inputs = {file: None for built in build.sets for file in built.inputs}
    if build.validation is not None:
        inputs[InputFile.at("coco", build.validation.path)] = None
    return {
        "source": f"saod-{build.use_case}",
        "tables": {"name": tables.name, "version": tables.version, "from": tables.source},
        "empty_images": build.empty_images,
        "inputs": [file._asdict() for file in inputs],
        "sets": {built.name: _facts_of_set(built, build) for built in build.sets},
        "objects_per_class": build.objects_per_class(),
        "problems": build.problems,
        "notes": build.notes,
        "remarks": tables.remarks,
    }


def _facts_of_set(built: BuiltSet, build: SaodBuild) -> dict[str, Any]:
    return {
        "file": f"{built.name}.json",
        "images": built.n_images,
        "published": build.expected(built.name),
        "images_with_objects": len(built.annotations.objects),
        "objects": built.n_objects,
        "images_of_files": {file: dict(found) for file, found in built.outcomes.items()},
        "dropped_objects": dict(built.dropped),
        "attributes": built.attributes,
    }


def _header(build: SaodBuild, out: Path) -> BenchmarkHeader | None:
    """Return the benchmark with the paths of this build; None where it could not be run.

    It needs test images, validation images to fit on, and unknown images.
    """
    definition = find_definition(f"saod/{build.use_case}").definition
    content = definition.model_dump(exclude_unset=True)
    entries = [entry.model_dump(exclude_unset=True) for entry in definition.set]
    metadata = {key: content[key] for key in content.keys() - {"set", "sources", "home"}} | {
        "name": f"built/saod-{build.use_case}",
        "title": f"{definition.title}, built here",
        "classes": build.classes,
    }
    ordered = {key: metadata[key] for key in content if key in metadata}
    found = [entry for given in entries if (entry := _entry(given, build, out)) is not None]
    if not {"validation", "test", "far"} <= {entry["role"] for entry in found}:
        return None
    sources = {name: source.model_dump() for name, source in definition.sources.items()}
    return BenchmarkHeader(ordered, found, sources=sources)


def _entry(entry: Mapping[str, Any], build: SaodBuild, out: Path) -> dict[str, Any] | None:
    """Return a set of the definition with the files of this build; None where it has none."""
    name = Path(entry["annotations"]).stem
    if (built := build.by_name.get(name)) is not None:
        images, n_images = relative(built.images, out), built.n_images
        changed = {"annotations": f"{name}.json", "images": images, "count": n_images}
        expected = build.expected(name)
        if expected not in (None, n_images):
            changed["note"] = f"partial: {n_images:,} images where {expected:,} are published"
        return {**entry, **changed} if n_images else None
    if entry["role"] != "validation" or build.validation is None:
        return None
    given = build.validation
    return {**entry, "annotations": relative(given.path, out), "count": given.n_images,
            "images": relative(given.images, out)}  # fmt: skip
