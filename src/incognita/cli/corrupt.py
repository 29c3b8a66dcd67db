"""`incognita corrupt`: a folder of images, corrupted."""

import csv
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from incognita.cli._terminal import IN_PART, progress_on_stderr

if TYPE_CHECKING:
    import numpy as np

MANIFEST = "corruptions.csv"
SHOWN = 10  # unreadable files

In = Annotated[Path, typer.Argument(metavar="IN", help="Folder of images; subfolders too.")]
Out = Annotated[Path, typer.Argument(metavar="OUT", help="Folder for the corrupted images.")]
KindName = Annotated[
    str,
    typer.Option(
        help="A kind, such as fog; or a list, saod or imagenet-c, of which one kind is drawn for "
        "each image."
    ),
]
Severity = Annotated[int, typer.Option(help="From 1 to 5.")]
Seed = Annotated[int, typer.Option(min=0, help="Of the random numbers, and of the kinds drawn.")]
Workers = Annotated[int, typer.Option(min=1, help="Threads.")]
Quality = Annotated[
    int | None,
    typer.Option(
        "--jpeg", min=1, max=100, help="Write JPEG of this quality instead of PNG without loss."
    ),
]


class _Job(NamedTuple):
    """One image: where it is, what happens to it, and where it goes."""

    image_id: str
    source: Path
    target: Path
    kind: str
    severity: int
    seed: int
    quality: int | None


def corrupt_command(
    source: In,
    out: Out,
    kind: KindName,
    severity: Severity = 3,
    seed: Seed = 0,
    workers: Workers = 1,
    jpeg: Quality = None,
) -> None:
    """Corrupt a folder of images: the same tree comes out, as PNG.

    The path of an image below IN is its id: the same path, kind, severity and seed give the same
    image everywhere, in any order and with any number of workers. corruptions.csv in OUT lists the
    kind of every image.

    Exit codes: 0 every image is done; 2 wrong usage; 3 no such folder, or no image in it; 4 some
    files could not be read and are left out.

    Example: incognita corrupt val2017 val2017-c --kind saod --severity 3 --workers 2
    """
    from incognita.benchmarks.corruptions import check_severity, draw_kind, kinds_of

    kinds = kinds_of(kind)
    check_severity(severity)
    _check_folders(source, out)
    image_ids, n_others = _find_images(source)
    jobs = []
    for image_id in image_ids:
        target = (out / image_id).with_suffix(".png" if jpeg is None else ".jpg")
        drawn = draw_kind(kinds, image_id, severity, seed)
        jobs.append(_Job(image_id, source / image_id, target, drawn, severity, seed, jpeg))
    _check_targets(jobs, out)
    _write_manifest(out, [])  # first, so that a killed run is recognized as ours
    done: list[_Job] = []
    try:
        problems = _run(jobs, workers, done, name=f"{kind}, severity {severity}")
    finally:  # also of a run that is interrupted
        _write_manifest(out, done)
    _report(len(done), out, problems, n_others)


def _check_folders(source: Path, out: Path) -> None:
    from incognita.errors import InvalidDataError, MissingDataError

    if not source.is_dir():
        raise MissingDataError(f"There is no folder at {source}; check the path.")
    if out.exists() and not out.is_dir():
        raise InvalidDataError(f"Expected a folder as OUT, got the file {out}. Name a folder.")
    real_in, real_out = source.resolve(), out.resolve()
    if real_out.is_relative_to(real_in) or real_in.is_relative_to(real_out):
        raise InvalidDataError(
            f"Expected IN and OUT side by side, got {source} and {out}, one inside the other. "
            f"Name another folder as OUT."
        )


def _find_images(source: Path) -> tuple[list[str], int]:
    """Return the paths of images below a folder, sorted, and the number of other files."""
    from incognita.errors import MissingDataError

    suffixes = _suffixes()
    files = [path for path in source.rglob("*") if path.is_file()]
    images = [path for path in files if path.suffix.lower() in suffixes]
    if not images:
        raise MissingDataError(
            f"There is no image in {source}; expected files that end in "
            f"{', '.join(sorted(suffixes))}."
        )
    return sorted(path.relative_to(source).as_posix() for path in images), len(files) - len(images)


def _suffixes() -> set[str]:
    """Return how the names of images in the formats of `load_image` end."""
    from PIL import Image

    from incognita.formats.images import IMAGE_FORMATS

    extensions = Image.registered_extensions()
    return {suffix for suffix, name in extensions.items() if name in IMAGE_FORMATS}


def _check_targets(jobs: list[_Job], out: Path) -> None:
    """Refuse to replace files that this command did not write, and two images of one name."""
    from incognita.errors import InvalidDataError

    foreign = [job.target for job in jobs if job.target.exists()]
    if foreign and not (out / MANIFEST).is_file():
        raise InvalidDataError(
            f"Expected a new folder or one with {MANIFEST}, got {out}, where {foreign[0].name} "
            f"would be replaced. Name another folder as OUT."
        )
    counts = Counter(job.target for job in jobs)
    repeated = [job.image_id for job in jobs if counts[job.target] > 1]
    if repeated:
        raise InvalidDataError(
            f"{repeated[0]} and {repeated[1]} would both become {jobs[0].target.suffix[1:]} files "
            f"of one name. Rename one of them."
        )


def _run(jobs: list[_Job], workers: int, done: list[_Job], *, name: str) -> dict[str, str]:
    """Corrupt all images, list the done ones, and return what is wrong with unreadable ones."""
    problems = {}
    with progress_on_stderr(first="corrupting") as (_, on_progress):
        for n_done, (job, problem) in enumerate(_results(jobs, workers), start=1):
            if problem:
                problems[job.image_id] = problem
            else:
                done.append(job)
            on_progress(name, n_done, len(jobs))
    return problems


def _results(jobs: list[_Job], workers: int) -> Iterator[tuple[_Job, str | None]]:
    with ThreadPoolExecutor(workers) as pool:
        try:
            yield from zip(jobs, pool.map(_corrupt_file, jobs), strict=True)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _corrupt_file(job: _Job) -> str | None:
    """Corrupt one image; if it cannot be read, return why."""
    from incognita.benchmarks.corruptions import corrupt
    from incognita.errors import InvalidDataError
    from incognita.formats.images import load_image

    try:
        image = load_image(job.source)
    except InvalidDataError as error:
        return str(error)
    corrupted = corrupt(image, job.kind, job.severity, image_id=job.image_id, seed=job.seed)
    job.target.parent.mkdir(parents=True, exist_ok=True)
    _save_image(corrupted, job.target, job.quality)
    return None


def _save_image(image: "np.ndarray", path: Path, quality: int | None) -> None:
    from PIL import Image

    from incognita.files import replacing

    picture = Image.fromarray(image)
    with replacing(path) as temporary:
        if quality is None:
            picture.save(temporary, "PNG", compress_level=1)
        else:
            picture.save(temporary, "JPEG", quality=quality)


def _write_manifest(out: Path, jobs: list[_Job]) -> None:
    from incognita.files import replacing_text

    out.mkdir(parents=True, exist_ok=True)
    with replacing_text(out / MANIFEST) as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(["image", "file", "kind", "severity", "seed"])
        for job in jobs:
            path = job.target.relative_to(out).as_posix()
            table.writerow([job.image_id, path, job.kind, job.severity, job.seed])


def _report(n_done: int, out: Path, problems: dict[str, str], n_others: int) -> None:
    from incognita.errors import count

    typer.echo(f"{count(n_done, 'image')} in {out}; their kinds are in {out / MANIFEST}.")
    if n_others:
        what = "file that is not an image" if n_others == 1 else "files that are not images"
        typer.echo(f"Skipped {n_others:,} {what}.")
    for problem in list(problems.values())[:SHOWN]:
        typer.echo(f"Skipped: {problem}")
    if len(problems) > SHOWN:
        typer.echo(f"Skipped {len(problems) - SHOWN:,} more that could not be read.")
    if problems:
        raise typer.Exit(IN_PART)
