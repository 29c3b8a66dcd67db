"""Writes splits: an annotation file for each, a manifest of all decisions, and a benchmark."""

import json
import os
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from incognita.benchmarks.splits.assign import ListCheck, Splits
from incognita.benchmarks.splits.rules import SPLITS, Split
from incognita.containers.classes import plain
from incognita.errors import InvalidDataError, MissingDataError, count
from incognita.files import file_hash, load_json, replacing_text
from incognita.formats.coco_records import save_annotations
from incognita.formats.toml_files import toml_key, toml_value

MANIFEST, BENCHMARK, KNOWN = "manifest.json", "benchmark.toml", "known.json"
SOURCES = ("coco-", "openimages-")
FORMAT = 1


class InputFile(NamedTuple):
    """A file that decisions rest on."""

    part: str
    file: str
    sha256: str

    @classmethod
    def at(cls, part: str, path: Path) -> "InputFile":
        """Hash a file."""
        return cls(part, path.name, file_hash(path))


def hash_files(folder: Path, names: Iterable[str]) -> str:
    """Hash several files of a folder, with their names."""
    digest = sha256()
    for name in names:
        digest.update(f"{name} {file_hash(folder / name)}\n".encode())
    return digest.hexdigest()


@dataclass(frozen=True, eq=False)
class SplitBuild:
    """Splits of one source, with what their files are called and where their images lie.

    Args:
        splits: What was built.
        inputs: The files it was built from.
        images: The folder that file names of images begin at.
        source: Begins the names of sets and files, such as `coco`.
        unsized: Images that were left out because their size is unknown.
    """

    splits: Splits
    inputs: Sequence[InputFile]
    images: Path
    source: str = ""
    unsized: Sequence[str] = field(default=(), repr=False)

    @cached_property
    def problems(self) -> list[str]:
        """Descriptions of what is missing."""
        return problems_of(self.splits, unsized=self.unsized)

    @cached_property
    def notes(self) -> list[str]:
        """Descriptions of what is odd."""
        return notes_of(self.splits)

    def set_name(self, split: Split) -> str:
        """Name a split in tables, files and benchmarks."""
        return f"{self.source}-{split}" if self.source else split


@dataclass(frozen=True)
class BenchmarkHeader:
    """What a benchmark says besides its unknown sets.

    Args:
        metadata: Keys in front of the sets, such as its name and classes.
        known_sets: Its known sets.
        unknown_keys: What unknown sets say besides, by their names: `rename`, `source`.
        sources: Where images are published.
    """

    metadata: Mapping[str, Any]
    known_sets: Sequence[Mapping[str, Any]]
    unknown_keys: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    sources: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


def save_builds(
    builds: Sequence[SplitBuild], out: Path, *, head: BenchmarkHeader | None, version: str
) -> None:
    """Save everything into a folder; the same input gives the same bytes.

    Files of an earlier build that this one does not have are deleted.

    Args:
        builds: One for each source.
        out: The folder, made where it is not there.
        head: The known half of the benchmark; without one no benchmark is written.
        version: Of this package, for the manifest.
    """
    out.mkdir(parents=True, exist_ok=True)
    for build in builds:
        for split in SPLITS:
            path = out / f"{build.set_name(split)}.json"
            if build.splits.counts.get(split):
                _save_split(build, split, path)
            else:
                path.unlink(missing_ok=True)
    save_manifest([facts_of(build) for build in builds], out, version=version)
    save_benchmark(builds, out, head)


def save_manifest(facts: Sequence[Mapping[str, Any]], out: Path, *, version: str) -> None:
    """Save what is to be said about each build."""
    manifest = {"format": FORMAT, "incognita": version, "builds": facts}
    with replacing_text(out / MANIFEST) as file:
        file.write(json.dumps(manifest, indent=1, ensure_ascii=False) + "\n")


def save_benchmark(builds: Sequence[SplitBuild], out: Path, head: BenchmarkHeader | None) -> None:
    """Save a benchmark of known sets and the splits of builds; without a header delete it."""
    if head is None:
        (out / BENCHMARK).unlink(missing_ok=True)
        return
    with replacing_text(out / BENCHMARK) as file:
        file.write("\n".join(_benchmark(builds, head, out)) + "\n")


def refuse_overwriting(out: Path, *inputs: Path | None, sources: Sequence[str] = ("",)) -> None:
    """Refuse a folder in which an input or a file of others would be written over or deleted.

    Args:
        out: The folder; one with a manifest of an earlier build is ours.
        inputs: Files that are read.
        sources: What the names of the files begin with that would be written.
    """
    written = {MANIFEST, BENCHMARK, KNOWN}
    written |= {f"{start}{split}.json" for split in SPLITS for start in ("", *SOURCES)}
    names = [f"{start}{split}.json" for start in sources for split in SPLITS]
    names += [BENCHMARK, *([KNOWN] if "" in sources else []), MANIFEST]
    refuse_loss(out, inputs, written=written, names=names)


def refuse_loss(
    out: Path, inputs: Sequence[Path | None], *, written: Collection[str], names: Sequence[str]
) -> None:
    """Refuse a folder in which a build would overwrite an input or a file of others.

    Args:
        out: The folder; one with a manifest of an earlier build is ours.
        inputs: Files that are read.
        written: Names of files that a build may write.
        names: Those that this build writes or deletes.
    """
    for path in inputs:
        if path is None or path.name not in written:
            continue
        if os.path.realpath(path.parent) == os.path.realpath(out):
            raise InvalidDataError(
                f"{path} would be overwritten, since --out is its folder; name another folder."
            )
    there = [name for name in names if os.path.lexists(out / name)]
    if there and not _is_ours(out / MANIFEST):
        raise InvalidDataError(
            f"{out / there[0]} would be overwritten or deleted, but {out} is not the folder of an "
            f"earlier build (its {MANIFEST} would say so); name another folder."
        )


def _is_ours(manifest: Path) -> bool:
    """Return whether an earlier build has written this file."""
    try:
        content = load_json(manifest)
    except (InvalidDataError, MissingDataError, OSError):
        return False
    return isinstance(content, dict) and {"format", "incognita", "builds"} <= content.keys()


def save_known(build: SplitBuild, path: Path) -> None:
    """Save the images that show known objects only; without any the file is deleted."""
    splits = build.splits
    chosen = splits.known_images()
    if not chosen:
        path.unlink(missing_ok=True)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    save_annotations(
        path,
        [splits.image(decision) for decision in chosen],
        [splits.objects(decision) for decision in chosen],
        splits.base.categories,
        passed_on=splits.base.passed_on,
    )


def _save_split(build: SplitBuild, split: Split, path: Path) -> None:
    splits = build.splits
    save_annotations(
        path,
        splits.images_of(split),
        splits.objects_of(split),
        splits.base.categories,
        passed_on=splits.base.passed_on,
    )


def facts_of(build: SplitBuild) -> dict[str, Any]:
    """Return what the manifest says about a build."""
    splits, rules = build.splits, build.splits.rules
    return {
        "source": build.source,
        "rules": {"name": rules.name, "version": rules.version, "from": rules.source},
        "inputs": [file._asdict() for file in build.inputs],
        "base": {
            "file": splits.base.source,
            "images": len(splits.base.images),
            "published": None if rules.base is None else rules.base.model_dump(),
        },
        "splits": {
            split: {
                "file": f"{build.set_name(split)}.json" if found else None,
                "images": found,
                "expected": splits.expected(split),
                "objects": sum(map(len, splits.objects_of(split))),
                "is_complete": _is_complete(build, split),
            }
            for split, found in splits.counts.items()
        },
        "removed": splits.n_removed,
        "problems": build.problems,
        "notes": build.notes,
        "remarks": rules.remarks,
        "lists": [check._asdict() for check in splits.lists],
        "conflicts": [conflict._asdict() for conflict in splits.conflicts],
        "unsized": list(build.unsized),
        "decisions": [decision._asdict() for decision in splits.decided],
    }


def _is_complete(build: SplitBuild, split: Split) -> bool:
    expected = build.splits.expected(split)
    if expected is None or build.splits.rules.base is not None:
        return not build.problems
    return build.splits.counts[split] == expected


def _benchmark(builds: Sequence[SplitBuild], head: BenchmarkHeader, out: Path) -> Iterator[str]:
    yield f"# Built from annotation files; {MANIFEST} says why each image is where it is."
    yield from _lines(head.metadata)
    unknown_sets = [
        _set(build, split, head, out)
        for build in builds
        for split, found in build.splits.counts.items()
        if found
    ]
    entries = [*head.known_sets, *unknown_sets]
    used = {entry.get("source") for entry in entries}
    for name, source in head.sources.items():
        if name in used:
            yield f"\n[sources.{name}]"
            yield from _lines(source)
    for entry in entries:
        yield "\n[[set]]"
        yield from _lines(entry)


def _set(build: SplitBuild, split: Split, head: BenchmarkHeader, out: Path) -> dict[str, Any]:
    found, expected = build.splits.counts[split], build.splits.expected(split)
    entry: dict[str, Any] = {
        "name": build.set_name(split),
        "role": split,
        "kind": "coco",
        "annotations": f"{build.set_name(split)}.json",
        "images": relative(build.images, out),
        "count": found,
        **head.unknown_keys.get(build.set_name(split), {}),
    }
    if not _is_complete(build, split):
        of = "" if expected is None else f"{found:,} images where {expected:,} are published; "
        entry["note"] = f"partial: {of}built from {build.splits.base.source}, see {MANIFEST}"
    if held := _known_names(build, split, head.metadata["classes"], entry.get("rename", {})):
        entry["allowed_classes"] = held
    return entry


def _known_names(
    build: SplitBuild, split: Split, classes: Sequence[str], rename: Mapping[str, str]
) -> list[str]:
    """List known classes in images of a split, which a list of ids has kept."""
    names = build.splits.base.category_names
    records = chain.from_iterable(build.splits.objects_of(split))
    numbers = {record["category_id"] for record in records}
    held = {plain(rename.get(names[number], names[number])) for number in numbers}
    return [name for name in classes if plain(name) in held]


def relative(path: Path, folder: Path) -> str:
    """Write a path as it is seen from a folder, so that both may be moved together."""
    return Path(os.path.relpath(path, folder)).as_posix()


def _lines(table: Mapping[str, Any]) -> Iterator[str]:
    for key, value in table.items():
        if value is not None:
            yield f"{toml_key(key)} = {toml_value(value)}"


def problems_of(splits: Splits, *, unsized: Sequence[str] = ()) -> list[str]:
    """Return what is missing; without problems the splits are complete.

    Where published counts are met, a list of ids may differ from the published one.

    Args:
        splits: What was built.
        unsized: Images that were left out because their size is unknown.
    """
    counts = _wrong_counts(splits)
    problems = _base_problems(splits) + _candidate_problems(splits)
    if unsized:
        problems.append(
            f"{len(unsized):,} images are left out because their size is unknown, such as "
            f"{unsized[0]}; put them into the folder, or list them in sizes.csv"
        )
    if counts or not splits.rules.expected:
        problems += _list_problems(splits, frozenset(unsized))
    if not (problems or counts or sum(splits.counts.values())):
        problems.append(
            f"the rules leave no unknown image of the {len(splits.base.images):,} there are; list "
            f"fewer categories as known or removed, or send the rest to a split"
        )
    return problems + counts


def notes_of(splits: Splits) -> list[str]:
    """Return oddities of the rules and lists, which do not make the splits incomplete."""
    there = set(splits.base.category_names.values())
    rules = splits.rules
    notes = [
        f"{check.name}: {_shown(check.repeated)} more than once; each counts once"
        for check in splits.lists
        if check.repeated
    ]
    notes += [
        f"{_shown(ids)} on both {wins} and {loses}; {wins} wins"
        for wins, loses, ids in splits.conflicts
    ]
    if rules.overruled:
        notes.append(
            f"{', '.join(rules.overruled)}: listed for a split, but known or removed, which wins"
        )
    if absent := [name for name in rules.absent if name not in there]:
        notes.append(f"{', '.join(absent)}: no such category, as the rules expect")
    empty = Counter(
        decided.split
        for decided in splits.decided
        if decided.split is not None and not splits.objects(decided)
    )
    return notes + [
        f"{split}: {count(n, 'image')} without an annotated object; what they show is not known"
        for split, n in empty.items()
    ]


def _base_problems(splits: Splits) -> list[str]:
    base, found = splits.rules.base, len(splits.base.images)
    if base is None or found == base.images:
        return []
    if not found:
        return [
            f"{base.file} with {base.images:,} images is missing, published at {base.published}"
        ]
    return [
        f"{splits.base.source} with {found:,} images stands in for {base.file} with "
        f"{base.images:,} images: {base.stand_in}; it is published at {base.published}"
    ]


def _candidate_problems(splits: Splits) -> list[str]:
    listed = splits.rules.candidates.ids()
    if not listed or splits.candidates is not None:
        return []
    return [
        f"{len(listed):,} candidates are listed, but there is no second annotation file to take "
        f"them from; give it"
    ]


def _list_problems(splits: Splits, unsized: frozenset[str]) -> list[str]:
    published = [check for check in splits.lists if check.published is not None]
    empty = [check.name for check in published if not check.given]
    problems = []
    if empty:
        problems.append(
            f"{', '.join(empty)}: empty, so that the published counts cannot be reached; write "
            f"the published ids into a TOML file and give it with --ids"
        )
    problems += [
        f"{check.name}: {check.given:,} ids, but the published list has {check.published:,}"
        for check in published
        if check.given and check.given != check.published
    ]
    lost = ((check.name, _lost(check, splits, unsized)) for check in splits.lists)
    return problems + [f"{name}: {_shown(ids)} in no annotation file" for name, ids in lost if ids]


def _lost(check: ListCheck, splits: Splits, unsized: frozenset[str]) -> list[int | str]:
    """Return the ids that no annotation file has, other than images of unknown size."""
    if splits.candidates is None and check.name.startswith("candidates."):
        return []
    return [image_id for image_id in check.not_found if image_id not in unsized]


def _wrong_counts(splits: Splits) -> list[str]:
    pairs = ((split, found, splits.expected(split)) for split, found in splits.counts.items())
    return [
        f"{split}: {found:,} images, but {expected:,} are expected"
        for split, found, expected in pairs
        if expected is not None and found != expected
    ]


def _shown(ids: Sequence[int | str]) -> str:
    """Name a few ids.

    >>> _shown([7]), _shown([7, 8, 9, 10])
    ('id 7', '4 ids (7, 8, 9, …)')
    """
    if len(ids) == 1:
        return f"id {ids[0]}"
    more = ", …" if len(ids) > 3 else ""
    return f"{len(ids):,} ids ({', '.join(map(str, ids[:3]))}{more})"
