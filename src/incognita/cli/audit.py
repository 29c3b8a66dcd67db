"""`incognita audit`: whether unknown data overlaps with what is known."""

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from enum import StrEnum
from os.path import realpath
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from incognita.cli._terminal import CRITERION_FAILED, IN_PART, names_in, progress_on_stderr

if TYPE_CHECKING:
    from rich.table import Table

    from incognita.benchmarks.audit import Audit, Likeness, SetFindings, SharedImages
    from incognita.benchmarks.audited_sets import AuditedSet
    from incognita.benchmarks.class_overlaps import ClassOverlap, ClassRelation
    from incognita.benchmarks.splits.rules import SimilarityLimits
    from incognita.containers.dataset import Dataset
    from incognita.semantics.class_names import Override

N_ROWS = 30  # of a table, for each set
N_NAMES = 3  # known classes in a row


class SenseChoice(StrEnum):
    """Which sense of a word is taken."""

    recorded = "recorded"
    first = "first"


class MeasureChoice(StrEnum):
    """Similarities of WordNet."""

    wup = "wup"
    path = "path"
    lch = "lch"
    mean = "mean"


INPUT = "A benchmark, rules, a class list (name, .toml, .txt), a COCO file or a folder of images."
First = Annotated[str, typer.Argument(metavar="KNOWN", help=f"What is known. {INPUT}")]
Second = Annotated[
    str | None,
    typer.Argument(metavar="[UNKNOWN]", help="What is unknown; a benchmark may stand alone."),
]
Data = Annotated[Path | None, typer.Option(help="The data folder of a benchmark.")]
Images = Annotated[
    Path | None,
    typer.Option(help="Images of annotation files; by default in the folder of each file."),
]
SetClasses = Annotated[
    list[str] | None,
    typer.Option("--classes", metavar="SET=LIST", help="The classes of a set that names none."),
]
Overrides = Annotated[
    Path | None, typer.Option(help='TOML file with lines such as mouse = "mouse.n.04".')
]
SenseOption = Annotated[
    SenseChoice, typer.Option("--senses", help="Recorded senses of words, or always the first.")
]
Relations = Annotated[
    str | None,
    typer.Option(
        help="What counts as an overlap: exact, synonym, hyponym, hypernym, part, whole; all by "
        "default."
    ),
]
Distance = Annotated[
    int, typer.Option(min=0, max=64, help="Bits of 128 that may differ between copies of an image.")
]
NoImages = Annotated[bool, typer.Option("--no-images", help="Do not compare images.")]
Model = Annotated[
    str | None, typer.Option(help="A classifier whose features tell how alike the sets look.")
]
Weights = Annotated[Path | None, typer.Option(help="The weights of that model.")]
Propose = Annotated[
    Path | None, typer.Option(help="Write proposed rules for `incognita build splits` here.")
]
Force = Annotated[bool, typer.Option("--force", help="Replace the file of --propose.")]
Near = Annotated[float, typer.Option(help="Least similarity of a near class in the proposal.")]
Far = Annotated[float, typer.Option(help="Least similarity of a far class; the rest is farther.")]
MeasureOption = Annotated[
    MeasureChoice, typer.Option("--measure", help="Similarity for the proposal.")
]
AllowOutside = Annotated[
    bool, typer.Option("--allow-outside", help="Follow paths in files that leave the data folder.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print everything as JSON.")]


def audit_command(
    known: First,
    unknown: Second = None,
    data: Data = None,
    images: Images = None,
    classes: SetClasses = None,
    overrides: Overrides = None,
    senses: SenseOption = SenseChoice.recorded,
    relations: Relations = None,
    distance: Distance = 6,
    no_images: NoImages = False,
    model: Model = None,
    weights: Weights = None,
    propose: Propose = None,
    force: Force = False,
    near: Near = 0.8,
    far: Far = 0.6,
    measure: MeasureOption = MeasureChoice.wup,
    allow_outside: AllowOutside = False,
    as_json: AsJson = False,
) -> None:
    """Find known classes and images in unknown data, and how similar the classes are.

    Exit codes: 0 clean; 1 an overlap was found; 2 wrong usage; 3 data is missing; 4 no overlap was
    found, but classes of some sets or of all could not be compared.

    Example: incognita audit voc instances_val2017.json
    """
    from incognita.benchmarks.audit import AuditSettings, audit_inputs
    from incognita.benchmarks.audited_sets import InputOptions, audited_sets, read_inputs

    limits = _limits(near, far, measure.value)
    if propose is not None:
        _check_proposal(propose, [known, unknown, overrides], force=force)
    options = InputOptions(data, images, _set_classes(classes or []), allow_outside)
    settings = AuditSettings(
        relations=_relations(relations),
        senses=senses.value,
        overrides=_overrides(overrides),
        distance=distance,
        with_images=not no_images,
    )
    with progress_on_stderr(first="reading", log_steps=True) as (on_step, on_image):
        first, second = read_inputs(known, unknown, options)
        found = audit_inputs(first, second, settings, on_step=on_step, on_image=on_image)
        if model is not None:
            sets = audited_sets(first, second)
            likenesses = _likenesses(model, weights, sets, on_step, on_image)
            found = replace(found, likenesses=tuple(likenesses))
    if propose is not None:
        _save_proposal(found, propose, limits)
    if as_json:
        sys.stdout.write(json.dumps(found.as_json(), indent=1, ensure_ascii=False) + "\n")
    else:
        _show(found, propose)
    if found.has_overlap:
        raise typer.Exit(CRITERION_FAILED)
    raise typer.Exit(0 if found.is_clean else IN_PART)


def _set_classes(given: Sequence[str]) -> dict[str, Sequence[str]]:
    from incognita.benchmarks.class_overlaps import load_class_list
    from incognita.errors import InvalidDataError

    found: dict[str, Sequence[str]] = {}
    for item in given:
        name, is_there, path = item.partition("=")
        if not (name and is_there and path):
            raise InvalidDataError(f"Expected --classes SET=LIST, got {item!r}.")
        found[name] = load_class_list(path).classes
    return found


def _relations(given: str | None) -> "tuple[ClassRelation, ...]":
    from incognita.benchmarks.class_overlaps import OVERLAPS, ClassRelation
    from incognita.errors import unknown_name

    if given is None:
        return OVERLAPS
    names = names_in(given) or [given]  # an empty text names no relation
    for name in names:
        if name not in OVERLAPS:
            raise unknown_name("relation", name, OVERLAPS)
    return tuple(ClassRelation(name) for name in names)


def _overrides(path: Path | None) -> "dict[str, Override]":
    from incognita.semantics.class_names import load_overrides

    return {} if path is None else load_overrides(path)


def _likenesses(
    spec: str,
    weights: Path | None,
    sets: "Sequence[AuditedSet]",
    on_step: Callable[[str], None],
    on_image: Callable[[str, int, int], None],
) -> "list[Likeness]":
    """Run the model over all sets and compare the features of the unknown with the known ones."""
    import numpy as np

    from incognita.benchmarks.audit import Likeness
    from incognita.errors import InvalidDataError
    from incognita.extraction.extract import extract
    from incognita.models.classifier import Classifier
    from incognita.models.load import load_model

    present = [(audited, audited.dataset) for audited in sets if audited.dataset is not None]
    if {audited.is_known for audited, _ in present} != {True, False}:
        raise InvalidDataError(
            "Expected known and unknown images for --model, got those of one side only. Give "
            "folders, annotation files beside their images, or a benchmark with --data."
        )
    on_step(f"loading {spec}")
    model = load_model(spec, weights=weights)
    if not isinstance(model, Classifier):
        raise InvalidDataError(f"Expected a classifier for --model, got the detector {spec}.")

    def features(name: str, dataset: "Dataset") -> np.ndarray:
        n_images = len(dataset.image_ids)
        rows = extract(model, dataset, on_progress=lambda n: on_image(name, n, n_images)).outputs
        if rows.features is None:
            raise InvalidDataError(f"Expected a model with features for --model, got {spec}.")
        found: np.ndarray = rows.features.numpy()
        return found

    rows = [(audited, features(audited.name, dataset)) for audited, dataset in present]
    known = np.concatenate([found for audited, found in rows if audited.is_known])
    return [
        Likeness.of_features(audited.name, known, found)
        for audited, found in rows
        if not audited.is_known
    ]


def _limits(near: float, far: float, measure: str) -> "SimilarityLimits":
    from incognita.benchmarks.splits.rules import SimilarityLimits
    from incognita.formats.toml_files import check_table

    given = {"near": near, "far": far, "measure": measure}
    return check_table(SimilarityLimits, given, "--near, --far")


def _check_proposal(out: Path, inputs: Sequence[str | Path | None], *, force: bool) -> None:
    """Refuse a file that would be lost, before anything takes long."""
    from incognita.errors import InvalidDataError

    if out.suffix != ".toml" or out.is_dir():
        raise InvalidDataError(f"Expected a .toml file for --propose, got {out}. Name one.")
    if any(given is not None and realpath(given) == realpath(out) for given in inputs):
        raise InvalidDataError(f"--propose {out} is one of the inputs. Choose another file.")
    if out.exists() and not force:
        raise InvalidDataError(
            f"Expected a new file for --propose, got {out}, which is there and may be edited. "
            f"Choose another name, or replace it with --force."
        )


def _save_proposal(found: "Audit", out: Path, limits: "SimilarityLimits") -> None:
    from incognita.benchmarks.class_overlaps import ClassMeanings
    from incognita.benchmarks.splits.propose import propose
    from incognita.errors import InvalidDataError

    rows = {
        name: row
        for audited in found.sets
        if audited.meanings is not None
        for name, row in audited.meanings.rows.items()
    }
    if found.known_classes is None or not rows:
        raise InvalidDataError("Expected names of known and unknown classes for a proposal.")
    propose(found.known_classes, ClassMeanings(rows), limits=limits, name=out.stem).save(out)


def _show(found: "Audit", proposed: Path | None) -> None:
    from rich.text import Text

    from incognita.results.export import stdout_console

    console = stdout_console()
    tables = [_sets(found), *map(_overlaps(found), found.sets), _reused(found), _repeats(found)]
    tables += [*map(_together, found.sets), _frequent(found), _likeness_table(found)]
    for table in tables:
        if table.row_count:
            console.print(table)
    for note in _notes(found):
        console.print(Text.assemble(("note: ", "yellow"), note))
    if proposed is not None:
        console.print(Text(f"Proposed rules: {proposed}"))
    style = "green" if found.is_clean else "red" if found.has_overlap else "yellow"
    console.print(Text(_verdict(found), style=style))


def _verdict(found: "Audit") -> str:
    from incognita.errors import count

    if found.is_clean:
        return "clean: no overlap was found"
    if not found.has_compared:
        return "nothing was compared: see the notes"
    if not found.has_overlap:
        names = ", ".join(found.not_compared)
        return f"in part: no overlap was found, but the classes of {names} were not compared"
    n_classes = len({(audited.name, pair.unknown) for audited, pair in found.overlaps})
    parts = [
        count(n_classes, "overlapping class", "overlapping classes") if n_classes else "",
        count(len(found.reused), "reused class", "reused classes") if found.reused else "",
        count(found.n_repeated, "repeated image") if found.n_repeated else "",
    ]
    return f"overlap: {', '.join(part for part in parts if part)}"


def _notes(found: "Audit") -> list[str]:
    from incognita.errors import count

    notes = list(found.notes)
    if not found.sets:
        notes.append(f"{found.known} puts nothing of {found.unknown} into near, far or farther")
    notes += [note for audited in found.sets for note in _notes_on_set(audited)]
    if found.known_classes is None:
        notes.append(f"{found.known}: {_nameless(found.known)}")
    meanings = [(found.known, found.known_classes)]
    meanings += [(audited.name, audited.meanings) for audited in found.sets]
    for name, classes in meanings:
        if classes is None:
            continue
        if n := len(classes.ambiguous):
            some = ", ".join(classes.ambiguous[:N_NAMES])
            what = count(n, "class has", "classes have")
            notes.append(f"{name}: {what} several senses, and the first was taken, such as {some}")
        if n := len(classes.unmapped):
            some = ", ".join(classes.unmapped[:N_NAMES])
            what = count(n, "class is no noun", "classes are no nouns")
            notes.append(f"{name}: {what} of WordNet and compared by name only, such as {some}")
    if found.n_hashed:
        notes.append(f"{count(found.n_hashed, 'image')} compared by content and look")
    notes += [f"not read: {problem}" for problem in found.unreadable[:N_NAMES]]
    if (n := len(found.unreadable) - N_NAMES) > 0:
        notes.append(f"not read: {count(n, 'more image')}")
    return notes


def _nameless(name: str) -> str:
    return f"classes are not named; give them with --classes {name}=LIST"


def _notes_on_set(audited: "SetFindings") -> list[str]:
    """Note why the classes of a set were not compared, and what may be part of what."""
    from incognita.errors import count

    notes = []
    if audited.n_classes == 0:
        notes.append(f"{audited.name}: it has no class, and nothing to compare")
    elif audited.meanings is None and audited.n_images is not None:  # else it was not found
        notes.append(f"{audited.name}: {_nameless(audited.name)}")
    if pairs := audited.distant_parts:
        what = count(len(pairs), "pair")
        first = f"{pairs[0].unknown} and {pairs[0].known} ({pairs[0].rule})"
        notes.append(f"{audited.name}: {what} may be part and whole and do not count: {first}")
    return notes


def _sets(found: "Audit") -> "Table":
    against = "" if found.unknown is None else f" against {found.unknown}"
    table = _table(
        f"{found.known}{against}",
        ("set", "role"),
        ("classes", "overlapping", "images", "with these", "similarity"),
    )
    counted = {(audited.name, pair.unknown) for audited, pair in found.overlaps}
    for audited in found.sets:
        knows_images = bool(audited.counts)
        similarity = audited.similarity
        table.add_row(
            audited.name,
            audited.role,
            _number(audited.n_classes),
            _number(sum(name == audited.name for name, _ in counted)),
            _number(audited.n_images),
            _number(len(audited.images_with_known) if knows_images else None),
            "" if similarity is None else "{:.3f} ± {:.3f}".format(*similarity),
        )
    return table


def _overlaps(found: "Audit") -> "Callable[[SetFindings], Table]":
    from incognita.benchmarks.class_overlaps import OVERLAPS

    def table_of(audited: "SetFindings") -> "Table":
        table = _table(
            f"Classes of {audited.name}", ("class", "is", "of known", "because"), ("images",)
        )
        rows: dict[str, list[ClassOverlap]] = {}
        counted = (pair for pair in audited.overlaps if pair.relation in found.relations)
        for pair in counted:  # of each class, the strongest relation is first
            mine = rows.setdefault(pair.unknown, [pair])
            if pair is not mine[0] and pair.relation == mine[0].relation:
                mine.append(pair)
        strongest = sorted(rows.items(), key=lambda row: OVERLAPS.index(row[1][0].relation))
        for name, pairs in strongest[:N_ROWS]:
            n = audited.count_of(name)
            more = f" and {len(pairs) - N_NAMES} more" if len(pairs) > N_NAMES else ""
            names = ", ".join(pair.known for pair in pairs[:N_NAMES])
            images = "" if n is None else f"{n.n_images:,}"
            table.add_row(name, pairs[0].relation, names + more, pairs[0].rule, images)
        if len(rows) > N_ROWS:
            table.add_row(f"… {len(rows) - N_ROWS:,} more: --json", "", "", "", "")
        return table

    return table_of


def _reused(found: "Audit") -> "Table":
    title = "Unknown classes for training or validation that are tested"
    table = _table(title, ("class", "of", "is", "of tested", "in"), ())
    for row in found.reused[:N_ROWS]:
        pair = row.overlap
        table.add_row(pair.unknown, row.reused_in, pair.relation, pair.known, row.tested_in)
    if len(found.reused) > N_ROWS:
        table.add_row(f"… {len(found.reused) - N_ROWS:,} more: --json", "", "", "", "")
    return table


def _repeats(found: "Audit") -> "Table":
    table = _table("Images in two sets", ("set", "also in", "by", "counts", "such as"), ("images",))
    for row, apart in zip(found.repeats, found.apart, strict=True):
        example = " = ".join(row.examples[0])
        counts = "yes" if apart else "no"
        table.add_row(row.second, row.first, row.kind, counts, example, f"{row.n_second:,}")
    return table


def _together(audited: "SetFindings") -> "Table":
    title = f"Classes of {audited.name} that appear with known ones"
    numbers_of = ("images", "with both", "share", "in all images")
    table = _table(title, ("class", "with known"), numbers_of)
    closest: dict[str, SharedImages] = {}
    for row in audited.together:  # of each class, the known one with the largest excess is first
        closest.setdefault(row.unknown, row)
    for row in [*closest.values()][:N_ROWS]:
        shares = f"{row.share:.0%}", f"{row.share_in_all:.0%}"
        numbers = (f"{row.n_images:,}", f"{row.n_together:,}", *shares)
        table.add_row(row.unknown, row.known, *numbers)
    if len(closest) > N_ROWS:
        table.add_row(f"… {len(closest) - N_ROWS:,} more: --json", *[""] * 5)
    return table


def _frequent(found: "Audit") -> "Table":
    table = _table("Most frequent classes, with images", ("set", "classes"), ())
    for audited in found.sets:
        if audited.counts:
            rows = audited.counts[:20]
            table.add_row(audited.name, ", ".join(f"{row.name} {row.n_images:,}" for row in rows))
    return table


def _likeness_table(found: "Audit") -> "Table":
    title = "How alike the images look: cosine of features with known images"
    table = _table(title, ("set",), ("nearest known image", "mean features"))
    for row in found.likenesses:
        table.add_row(row.name, f"{row.nearest:.3f}", f"{row.means:.3f}")
    return table


def _table(title: str, texts: Sequence[str], numbers: Sequence[str]) -> "Table":
    from rich import box
    from rich.table import Table
    from rich.text import Text

    class PlainTable(Table):
        """A table whose cells are not markup: names come from files."""

        def add_row(self, *cells: str) -> None:  # type: ignore[override]
            super().add_row(*map(Text, cells))

    table = PlainTable(
        box=box.SIMPLE_HEAD,
        header_style="bold",
        title=Text(title, style="bold"),
        title_justify="left",
    )
    for column in texts:
        table.add_column(column, overflow="fold")
    for column in numbers:
        table.add_column(column, justify="right", no_wrap=True)
    return table


def _number(n: int | None) -> str:
    return "-" if n is None else f"{n:,}"
