"""`incognita selfaware`: make a detector self-aware, use it and judge it, from COCO JSON files."""

import json
import sys
from itertools import chain
from os.path import realpath
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from incognita.cli._terminal import (
    IN_PART,
    names_in,
    progress_on_stderr,
    refuse_overwriting,
    write_report,
)
from incognita.cli.certify import AsJson, FoundPath, Known, Resamples, Seed, Truth
from incognita.cli.certify import Out as ReportOut
from incognita.errors import InvalidDataError, count

if TYPE_CHECKING:
    from incognita.containers.boxes import Detections
    from incognita.decisions import SelfAware, SelfAwareOutput
    from incognita.evaluation.self_aware import AnnotatedSet, SelfAwareTest
    from incognita.formats.coco_annotations import CocoTruth

SHOWN = 10  # images that are missing or unreadable

selfaware_app = typer.Typer(
    help="Reject scenes a detector does not understand, and calibrate its boxes.",
    no_args_is_help=True,
)

Rules = Annotated[Path, typer.Argument(help="Rules that `selfaware fit` wrote (.json).")]
Pseudo = Annotated[
    Path | None,
    typer.Option(help="COCO results file of the same images with painted-over objects."),
]
Sidecar = Annotated[
    Path | None,
    typer.Option(help="Logits, background and covariance of the boxes (.safetensors)."),
]
PseudoSidecar = Annotated[
    Path | None, typer.Option(help="The same of the images with painted-over objects.")
]
Uncertainty = Annotated[
    str, typer.Option(help="Of a box: confidence, entropy, dempster-shafer, determinant, …")
]
ImageThreshold = Annotated[
    str, typer.Option(help="How u is chosen: harmonic-mean, quantile(share=0.95), or a number.")
]
ConfidenceThreshold = Annotated[
    str, typer.Option(help="How the confidence of a kept box is chosen: lrp, f1, or a number.")
]
Calibrator = Annotated[
    str, typer.Option(help="linear, histogram, isotonic, temperature, platt or none.")
]
FitConvention = Annotated[
    str, typer.Option("--convention", help="paper, or saod: as the public code fits and decides.")
]
Out = Annotated[Path, typer.Option(help="The file to write.")]
Decisions = Annotated[
    Path | None, typer.Option(help="Also write the decision on every image to this JSON file.")
]
Shifted = Annotated[
    list[str] | None,
    typer.Option(help="NAME=dets.json, detections on changed copies of the images; repeat."),
]
Free = Annotated[
    list[str] | None,
    typer.Option(help="A shifted set whose images may be rejected without penalty; repeat."),
]
Unknown = Annotated[
    list[str] | None,
    typer.Option(help="NAME=images.json,dets.json, images without known objects; repeat."),
]
ValidationFiles = Annotated[
    str | None,
    typer.Option(help="images.json,dets.json of the images the rules were fitted on, for AP."),
]
Images = Annotated[Path, typer.Option(help="The folder of the annotated images.")]
OutFolder = Annotated[Path, typer.Option(help="A new folder for the painted images.")]
Convention = Annotated[
    str, typer.Option(help="paper, or saod: BA and LaECE as the public code computes them.")
]

ValidationTruth = Annotated[
    Path, typer.Option(help="COCO annotation file of the images the rules are fitted on.")
]
ValidationDetections = Annotated[Path, typer.Option(help="COCO results file of these images.")]
PseudoUnknown = Annotated[
    Path, typer.Option(help="COCO results file of these images with painted-over objects.")
]
Sidecars = Annotated[
    bool,
    typer.Option(
        "--sidecars",
        help="Read logits, background and covariance from the .safetensors file beside each "
        "results file, under the same name.",
    ),
]
Folder = Annotated[Path, typer.Option(help="The folder to write the tables and charts to.")]
StudyConvention = Annotated[
    str,
    typer.Option(
        "--convention", help="paper, or saod: as the public code fits, decides and measures."
    ),
]
StudySeed = Annotated[int, typer.Option(min=0, help="Random seed of the dummy detections.")]


@selfaware_app.command("paint")
def paint_command(truth: Truth, images: Images, out: OutFolder) -> None:
    """Paint the objects of validation images black: pseudo-unknown images for `fit`.

    The same tree comes out, as PNG, with painted.json, a COCO file of its images. Crowd regions
    stay as they are.

    Exit codes: 0 every image is done; 2 wrong usage; 3 no such file, or no image of it; 4 some
    images are missing or could not be read and are left out.

    Example: incognita selfaware paint --truth val.json --images val2017 --out val2017-painted
    """
    from incognita.benchmarks.pseudo_unknown import MANIFEST, write_painted

    refuse_overwriting(out / MANIFEST, truth)
    with progress_on_stderr(first="reading") as (_, on_progress):
        written = write_painted(
            truth,
            images,
            out,
            on_progress=lambda done, total: on_progress("painting", done, total),
        )
    sys.stdout.write(f"{count(written.n_images, 'image')} in {out}, listed in {out / MANIFEST}.\n")
    if written.missing:
        shown = ", ".join(written.missing[:SHOWN])
        more = ", …" if len(written.missing) > SHOWN else ""
        sys.stdout.write(
            f"Missing in {images}: {count(len(written.missing), 'image')}: {shown}{more}\n"
        )
    for problem in list(written.unreadable.values())[:SHOWN]:
        sys.stdout.write(f"Skipped: {problem}\n")
    if len(written.unreadable) > SHOWN:
        n = len(written.unreadable) - SHOWN
        sys.stdout.write(f"Skipped {n:,} more that could not be read.\n")
    if written.missing or written.unreadable:
        raise typer.Exit(IN_PART)


@selfaware_app.command("fit")
def fit_command(
    truth: Truth,
    detections: FoundPath,
    out: Out,
    pseudo_unknown: Pseudo = None,
    known: Known = None,
    sidecar: Sidecar = None,
    pseudo_sidecar: PseudoSidecar = None,
    uncertainty: Uncertainty = "confidence",
    image_threshold: ImageThreshold = "harmonic-mean",
    confidence_threshold: ConfidenceThreshold = "lrp",
    calibrator: Calibrator = "linear",
    convention: FitConvention = "paper",
) -> None:
    """Choose the thresholds and calibrators on validation images.

    Example: incognita selfaware fit --truth val.json --detections val-dets.json
    --pseudo-unknown painted-dets.json --out rules.json
    """
    from incognita.decisions import SelfAware, SelfAwareSettings, save_self_aware
    from incognita.formats.coco_annotations import load_truth

    arrays = out.with_suffix(".safetensors")
    for written in (out, arrays):
        refuse_overwriting(written, truth, detections, pseudo_unknown, sidecar, pseudo_sidecar)
    settings = SelfAwareSettings(
        uncertainty=uncertainty, image_threshold=image_threshold,
        confidence_threshold=confidence_threshold, calibrator=calibrator, convention=convention,
    )  # fmt: skip
    with progress_on_stderr(first="reading") as (on_step, _):
        annotated = load_truth(truth, known=names_in(known))
        found, painted = _load_boxes(detections, annotated, sidecar), None
        if pseudo_unknown is not None:
            painted = _load_boxes(pseudo_unknown, annotated, pseudo_sidecar)
        on_step("fitting")
        fitted = SelfAware.fit(found, annotated.boxes, painted, settings)
        save_self_aware(fitted, out)
    _show_rules(fitted, out)
    _note_empty_images("validation", found, detections)
    if painted is not None:
        _note_empty_images("painted", painted, pseudo_unknown)


@selfaware_app.command("apply")
def apply_command(
    rules: Rules,
    truth: Truth,
    detections: FoundPath,
    out: Out,
    known: Known = None,
    sidecar: Sidecar = None,
    decisions: Decisions = None,
) -> None:
    """Keep and calibrate the boxes of accepted images.

    Example: incognita selfaware apply rules.json --truth images.json --detections dets.json
    --out calibrated.json
    """
    from incognita.decisions import load_self_aware
    from incognita.files import replacing_text
    from incognita.formats.coco_annotations import load_truth
    from incognita.formats.coco_results import save_detections

    arrays = rules.with_suffix(".safetensors")
    for written in (out, decisions):
        refuse_overwriting(written, rules, arrays, truth, detections, sidecar)
    _refuse_one_file(out, decisions)
    fitted = load_self_aware(rules)
    with progress_on_stderr(first="reading") as (on_step, _):
        annotated = load_truth(truth, known=names_in(known) or fitted.known_names)
        found = _load_boxes(detections, annotated, sidecar)
        on_step("deciding")
        output = fitted.apply(found)
    save_detections(output.detections.without_outputs(), out, categories=annotated.categories)
    if decisions is not None:
        with replacing_text(decisions) as file:
            json.dump(_decisions(found, output), file, indent=1)
    n_images = count(len(output.accepted), "image")
    n_boxes = count(len(output.detections), "box", "boxes")
    sys.stdout.write(f"{output.accepted.sum():,} of {n_images} accepted, {n_boxes} kept: {out}\n")


@selfaware_app.command("evaluate")
def evaluate_command(
    rules: Rules,
    truth: Truth,
    detections: FoundPath,
    shifted: Shifted = None,
    free: Free = None,
    unknown: Unknown = None,
    validation: ValidationFiles = None,
    known: Known = None,
    sidecars: Sidecars = False,
    convention: Convention = "paper",
    resamples: Resamples = 200,
    seed: Seed = 0,
    as_json: AsJson = False,
    out: ReportOut = None,
) -> None:
    """Measure DAQ and all it is made of.

    Example: incognita selfaware evaluate rules.json --truth test.json --detections dets.json
    --shifted 1=c1.json --shifted 3=c3.json --shifted 5=c5.json --free 5
    --unknown svhn=svhn.json,svhn-dets.json
    """
    from dataclasses import replace

    from incognita.decisions import load_self_aware
    from incognita.evaluation.self_aware import evaluate_self_aware
    from incognita.formats.coco_annotations import load_truth

    sets = _TestSets.parse(shifted, unknown, free)
    validated = _named_paths("--validation", [f"validation={validation}"] if validation else [], 2)
    named = [*sets.paths(), *chain.from_iterable(validated.values())]
    arrays = rules.with_suffix(".safetensors")
    refuse_overwriting(out, rules, arrays, truth, detections, *named)
    fitted = load_self_aware(rules)
    with progress_on_stderr(first="reading", log_steps=True) as (on_step, _):
        names = names_in(known) or fitted.known_names
        annotated = load_truth(truth, known=names)
        checked = [
            _annotated(load_truth(images, known=names), found, sidecars=sidecars)
            for images, found in validated.values()
        ]
        test = _load_test(annotated, detections, sets, sidecars=sidecars)
        test = replace(test, validation=checked[0] if checked else None)
        on_step("measuring")
        report = evaluate_self_aware(
            fitted, test, convention=convention, n_resamples=resamples, seed=seed
        )
    if out is not None:
        report.save(out)
    write_report(report, as_json=as_json)


@selfaware_app.command("study")
def study_command(
    validation_truth: ValidationTruth,
    validation_detections: ValidationDetections,
    pseudo_unknown: PseudoUnknown,
    truth: Truth,
    detections: FoundPath,
    out: Folder,
    shifted: Shifted = None,
    free: Free = None,
    unknown: Unknown = None,
    known: Known = None,
    sidecars: Sidecars = False,
    uncertainty: Uncertainty = "confidence",
    image_threshold: ImageThreshold = "harmonic-mean",
    confidence_threshold: ConfidenceThreshold = "lrp",
    calibrator: Calibrator = "linear",
    convention: StudyConvention = "paper",
    seed: StudySeed = 0,
    as_json: AsJson = False,
) -> None:
    """Measure what each choice contributes: the tables the paper stands on, and two charts.

    Example: incognita selfaware study --validation-truth val.json --validation-detections
    val-dets.json --pseudo-unknown painted-dets.json --truth test.json --detections dets.json
    --shifted 5=c5.json --free 5 --unknown svhn=svhn.json,svhn-dets.json --out study
    """
    from dataclasses import replace

    from incognita.decisions import SelfAwareSettings
    from incognita.evaluation.gallery import draw_charts
    from incognita.evaluation.self_aware_study import study_self_aware
    from incognita.formats.coco_annotations import load_truth

    sets = _TestSets.parse(shifted, unknown, free)
    files = [validation_truth, validation_detections, pseudo_unknown, truth, detections]
    files += sets.paths()
    refuse_overwriting(out / "study.json", *files)
    settings = SelfAwareSettings(
        uncertainty=uncertainty, image_threshold=image_threshold,
        confidence_threshold=confidence_threshold, calibrator=calibrator, convention=convention,
    )  # fmt: skip
    with progress_on_stderr(first="reading", log_steps=True) as (on_step, _):
        validated = load_truth(validation_truth, known=names_in(known))
        names = validated.boxes.classes.known_names
        test = _load_test(load_truth(truth, known=names), detections, sets, sidecars=sidecars)
        study = study_self_aware(
            _annotated(validated, validation_detections, sidecars=sidecars),
            _annotated(validated, pseudo_unknown, sidecars=sidecars).detections,
            test,
            settings,
            convention=convention,
            seed=seed,
            on_step=on_step,
        )
    inputs = {"files": [str(path) for path in files], **study.inputs}
    study = replace(study, inputs=inputs)
    study.save_folder(out)
    draw_charts(study, out)
    write_report(study, as_json=as_json)
    if not as_json:
        sys.stdout.write(f"Tables: {out}\n")


class _TestSets(NamedTuple):
    """The files of the sets beside the known test images, and which may be rejected freely."""

    shifted: dict[str, list[Path]]
    unknown: dict[str, list[Path]]
    free: frozenset[str]

    @classmethod
    def parse(
        cls, shifted: list[str] | None, unknown: list[str] | None, free: list[str] | None
    ) -> "_TestSets":
        return cls(
            _named_paths("--shifted", shifted or [], 1),
            _named_paths("--unknown", unknown or [], 2),
            frozenset(free or ()),
        )

    def paths(self) -> list[Path]:
        return list(chain(*self.shifted.values(), *self.unknown.values()))


def _load_test(
    annotated: "CocoTruth", detections: Path, sets: _TestSets, *, sidecars: bool
) -> "SelfAwareTest":
    from incognita.evaluation.self_aware import SelfAwareTest

    return SelfAwareTest(
        _annotated(annotated, detections, sidecars=sidecars),
        {
            name: _annotated(annotated, path, sidecars=sidecars)
            for name, (path,) in sets.shifted.items()
        },
        sets.free,
        {
            name: _annotated(
                _unknown_images(images, annotated), found, sidecars=sidecars
            ).detections
            for name, (images, found) in sets.unknown.items()
        },
    )


def _annotated(truth: "CocoTruth", path: Path, *, sidecars: bool) -> "AnnotatedSet":
    from incognita.evaluation.self_aware import AnnotatedSet

    sidecar = path.with_suffix(".safetensors") if sidecars else None
    return AnnotatedSet(_load_boxes(path, truth, sidecar), truth.boxes)


def _load_boxes(path: Path, truth: "CocoTruth", sidecar: Path | None) -> "Detections":
    """Load detections whose scores can be calibrated."""
    from incognita.formats.coco_results import load_detections

    found = load_detections(path, truth, sidecar=sidecar)
    wrong = found.confidence[(found.confidence < 0) | (found.confidence > 1)]
    if len(wrong):
        raise InvalidDataError(
            f"Expected scores between 0 and 1 in {path}, got {wrong[0]:g}. Write probabilities, "
            f"not logits or percentages."
        )
    return found


def _unknown_images(path: Path, truth: "CocoTruth") -> "CocoTruth":
    """Load the images of an unknown set; raise if an object of a known class is annotated."""
    from incognita.formats.coco_annotations import load_tables, read_category_names

    tables, known = load_tables(path), set(truth.boxes.classes.known_names)
    names = read_category_names(tables.categories)
    annotated = zip(
        tables.annotations.identifiers("image_id").tolist(),
        map(names.get, tables.annotations.integers("category_id").tolist()),
        strict=True,
    )
    shown = [(image_id, name) for image_id, name in annotated if name in known]
    if shown:
        n_images = len({image_id for image_id, _ in shown})
        classes = sorted({str(name) for _, name in shown})
        raise InvalidDataError(
            f"Expected unknown images without known objects in {path}, got "
            f"{count(n_images, 'image')} with {', '.join(classes[:3])}"
            f"{', …' if len(classes) > 3 else ''}. Remove these images."
        )
    return truth.for_images_of(path)


def _refuse_one_file(out: Path, decisions: Path | None) -> None:
    if decisions is not None and realpath(out) == realpath(decisions):
        raise InvalidDataError(
            f"Expected two files for --out and --decisions, got {out} for both. Choose another "
            f"file for one of them."
        )


def _named_paths(option: str, given: list[str], n: int) -> dict[str, list[Path]]:
    """Read NAME=a.json or NAME=a.json,b.json, once per name."""
    found: dict[str, list[Path]] = {}
    for text in given:
        name, _, paths = text.partition("=")
        parts = [Path(path) for path in paths.split(",") if path]
        if not name or len(parts) != n or name in found:
            form = "NAME=" + ",".join(["images.json", "dets.json"][2 - n :])
            raise InvalidDataError(
                f"Expected {option} {form} with a name of its own, got {text!r:.80}."
            )
        found[name] = parts
    return found


def _decisions(found: "Detections", output: "SelfAwareOutput") -> list[dict[str, Any]]:
    """List the decision on each image; an image without a box has no uncertainty: null."""
    import numpy as np

    columns = zip(
        output.detections.image_ids.tolist(),
        output.accepted.tolist(),
        output.image_uncertainty.tolist(),
        np.diff(found.offsets).tolist(),
        strict=True,
    )
    return [
        {
            "image_id": image_id,
            "accepted": accepted,
            "uncertainty": uncertainty if n_boxes else None,
        }
        for image_id, accepted, uncertainty, n_boxes in columns
    ]


def _show_rules(fitted: "SelfAware", out: Path) -> None:
    sys.stdout.write(
        f"Images are accepted up to an uncertainty of {fitted.image_threshold.value:.4g}"
        f"{_shares(fitted.image_threshold.metadata)}.\n"
        f"{_calibrated(fitted)}\n"
        f"Rules: {out}\n"
    )
    if without := fitted.confidence_threshold.metadata.get("without_threshold"):
        names = ", ".join(without[:5]) + (", …" if len(without) > 5 else "")
        sys.stdout.write(
            f"note: no box is kept of {count(len(without), 'class', 'classes')}: {names}.\n"
        )


def _shares(metadata: dict[str, Any]) -> str:
    """Return what u does on the images it was chosen on."""
    accepted, rejected = metadata.get("known_accepted"), metadata.get("unknown_rejected")
    if accepted is None:
        return ""
    known = f"{100 * accepted:.1f} % of validation images with objects"
    if rejected is None:
        return f" ({known})"
    mean = 2 * accepted * rejected / (accepted + rejected) if accepted + rejected else 0.0
    return (
        f" ({known}); {100 * rejected:.1f} % of painted images are rejected, harmonic mean "
        f"{100 * mean:.1f} %"
    )


def _calibrated(fitted: "SelfAware") -> str:
    counts, kind = fitted.calibrators.counts(), str(fitted.calibrators.kind)
    if kind == "none":
        return f"Classes: {sum(counts.values())}, not calibrated."
    return (
        f"Classes: {counts['fitted']} calibrated, {counts['constant']} constant, "
        f"{counts['identity']} without boxes."
    )


def _note_empty_images(kind: str, found: "Detections", path: Path | None) -> None:
    n_empty = found.n_images - len(set(found.image_index.tolist()))
    if n_empty:
        sys.stdout.write(
            f"note: {n_empty:,} of {count(found.n_images, f'{kind} image')} "
            f"{'has' if n_empty == 1 else 'have'} no box in {path}, which counts as rejected.\n"
        )
