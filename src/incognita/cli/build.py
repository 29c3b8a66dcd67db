"""`incognita build`: near, far and farther splits of unknown images from annotation files."""

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

    from incognita.benchmarks.splits.write import BenchmarkHeader, SplitBuild


build_app = typer.Typer(
    help="Build splits of unknown images from annotation files. Nothing is downloaded.",
    no_args_is_help=True,
)


class FmiycKnown(StrEnum):
    """Whose classes are known."""

    voc = "voc"
    bdd = "bdd"


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
    Path, typer.Option(help="COCO annotation file, or boxes of OpenImages (.csv).")
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
    _finish(builds, out, as_json=as_json)


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
    _finish([build], out, as_json=as_json)


def _save(
    builds: "Sequence[SplitBuild]", out: Path, make_head: "Callable[[], BenchmarkHeader | None]"
) -> None:
    """Write all files; a benchmark needs known and unknown images."""
    from incognita._version import __version__
    from incognita.benchmarks.splits.write import save_builds

    out.mkdir(parents=True, exist_ok=True)
    has_images = any(sum(build.splits.counts.values()) for build in builds)
    save_builds(builds, out, head=make_head() if has_images else None, version=__version__)


def _finish(builds: "Sequence[SplitBuild]", out: Path, *, as_json: bool) -> None:
    """Print what was built and exit with the code that belongs to it."""
    if as_json:
        sys.stdout.write(json.dumps([_summary(build) for build in builds], indent=1) + "\n")
    else:
        _show(builds, out)
    if any(build.problems for build in builds):
        raise typer.Exit(IN_PART)


def _summary(build: "SplitBuild") -> dict[str, Any]:
    from incognita.benchmarks.splits.write import facts_of

    metadata = facts_of(build)
    return {
        key: metadata[key] for key in ("source", "rules", "splits", "removed", "problems", "notes")
    }


def _show(builds: "Sequence[SplitBuild]", out: Path) -> None:
    from rich.text import Text

    from incognita.benchmarks.splits.write import BENCHMARK, MANIFEST
    from incognita.results.export import stdout_console

    console = stdout_console()
    console.print(_table(builds))
    for build in builds:
        for kind, texts in (("partial", build.problems), ("note", build.notes)):
            for text in texts:
                console.print(
                    Text.assemble((f"{kind}: ", "yellow"), f"{build.source} {text}".strip())
                )
    console.print(Text(f"Why each image is where it is: {out / MANIFEST}"))
    if (out / BENCHMARK).is_file():
        path = out / BENCHMARK
        option = _allow_outside(path)
        console.print(Text(f"Next: incognita data check {path}{option}"))
        console.print(Text(f"Then: incognita run {path}{option} --model YOURS"))
    else:
        console.print(Text("No benchmark is written: it needs known and unknown images."))


def _allow_outside(benchmark: Path) -> str:
    """Return the option that a benchmark needs whose images stay outside of its folder."""
    from incognita.benchmarks.definition_files import find_definition

    entries = (entry.model_dump() for entry in find_definition(benchmark).definition.set)
    places = [entry[key] for entry in entries for key in ("annotations", "images") if key in entry]
    return " --allow-outside" if any(place.startswith("..") for place in places) else ""


def _table(builds: "Sequence[SplitBuild]") -> "Table":
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, header_style="bold")
    for column in ("set", "rules"):
        table.add_column(column)
    for column in ("found", "expected", "objects"):
        table.add_column(column, justify="right", no_wrap=True)
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
