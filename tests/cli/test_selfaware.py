"""`incognita selfaware` from files, against the same steps in memory."""

import json
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image
from tests.oracles.scenes import random_scene, to_coco, to_containers
from typer.testing import CliRunner

from incognita.cli._terminal import IN_PART
from incognita.cli.app import app
from incognita.decisions import SelfAware, SelfAwareSettings, load_self_aware
from incognita.errors import InvalidDataError, MissingDataError
from incognita.evaluation.self_aware import AnnotatedSet, SelfAwareTest, evaluate_self_aware
from incognita.evaluation.self_aware_study import study_self_aware

KNOWN = "known0,known1,known2"


def scene_of(seed: int, *, dim: float = 1.0):
    scene = random_scene(np.random.default_rng(seed), n_images=24, with_ties=False)
    kept = [d for d in scene.detections if d.label in scene.known_labels]
    return replace(scene, detections=[replace(d, score=d.score * dim) for d in kept])


SCENES = {
    "val": scene_of(0),
    "painted": scene_of(0, dim=0.4),
    "test": scene_of(1),
    "c1": scene_of(1, dim=0.9),
    "c5": scene_of(1, dim=0.6),
    "other": scene_of(9, dim=0.5),
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    for name, scene in SCENES.items():
        truth, results = to_coco(scene)
        if name == "other":  # an unknown set has no known objects
            truth = truth | {"annotations": []}
        (tmp_path / f"{name}.json").write_text(json.dumps(truth))
        (tmp_path / f"{name}-dets.json").write_text(json.dumps(results))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["selfaware", *arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def fit() -> str:
    return run(
        "fit", "--truth", "val.json", "--detections", "val-dets.json", "--known", KNOWN,
        "--pseudo-unknown", "painted-dets.json", "--out", "rules.json",
    )  # fmt: skip


def in_memory() -> SelfAware:
    found, truth = to_containers(SCENES["val"])
    return SelfAware.fit(found, truth, to_containers(SCENES["painted"])[0])


def test_fit_from_files_is_fit_in_memory(folder) -> None:
    printed = fit()
    assert "Images are accepted up to an uncertainty of" in printed
    loaded, expected = load_self_aware(folder / "rules.json"), in_memory()
    assert loaded.image_threshold.value == expected.image_threshold.value
    assert (
        loaded.confidence_threshold.per_class.tolist()
        == expected.confidence_threshold.per_class.tolist()
    )


def test_the_convention_of_the_public_code_is_an_option(folder) -> None:
    run(
        "fit", "--truth", "val.json", "--detections", "val-dets.json", "--known", KNOWN,
        "--pseudo-unknown", "painted-dets.json", "--out", "rules.json", "--convention", "saod",
    )  # fmt: skip
    loaded = load_self_aware(folder / "rules.json")
    assert loaded.convention == "saod"
    found, truth = to_containers(SCENES["val"])
    settings = SelfAwareSettings(convention="saod")
    expected = SelfAware.fit(found, truth, to_containers(SCENES["painted"])[0], settings)
    assert loaded.image_threshold.value == expected.image_threshold.value
    assert loaded.apply(found).accepted.tolist() == expected.apply(found).accepted.tolist()


def test_evaluate_from_files_is_evaluate_in_memory(folder) -> None:
    fit()
    printed = run(
        "evaluate", "rules.json", "--truth", "test.json", "--detections", "test-dets.json",
        "--shifted", "1=c1-dets.json", "--shifted", "5=c5-dets.json", "--free", "5",
        "--unknown", "other=other.json,other-dets.json", "--resamples", "0", "--json",
        "--validation", "val.json,val-dets.json", "--out", "report.csv",
    )  # fmt: skip
    names = ("test", "c1", "c5", "val")
    sets = {name: AnnotatedSet(*to_containers(SCENES[name])) for name in names}
    shifted = {"1": sets["c1"], "5": sets["c5"]}
    unknown = {"other": to_containers(SCENES["other"])[0]}
    test = SelfAwareTest(sets["test"], shifted, frozenset({"5"}), unknown, sets["val"])
    expected = evaluate_self_aware(in_memory(), test, n_resamples=0)
    measured = {(r["split"], r["metric"]): r["value"] for r in json.loads(printed)["results"]}
    assert len(measured) == len(expected.results)
    for result in expected.results:
        assert measured[result.split, result.metric] == pytest.approx(result.value, abs=1e-12)
    assert (folder / "report.csv").read_text().count("\n") == len(expected.results) + 1


def test_apply_writes_boxes_and_decisions(folder) -> None:
    fit()
    printed = run(
        "apply", "rules.json", "--truth", "test.json", "--detections", "test-dets.json",
        "--out", "calibrated.json", "--decisions", "decisions.json",
    )  # fmt: skip
    output = in_memory().apply(to_containers(SCENES["test"])[0])
    decisions = json.loads((folder / "decisions.json").read_text())
    assert [entry["accepted"] for entry in decisions] == output.accepted.tolist()
    boxes = json.loads((folder / "calibrated.json").read_text())
    scores = sorted(box["score"] for box in boxes)
    assert scores == pytest.approx(sorted(output.detections.confidence.tolist()))
    assert f"{int(output.accepted.sum())} of 24 images accepted" in printed


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--shifted", "c1-dets.json"),
        ("--unknown", "other=other.json"),
        ("--unknown", "=other.json,other-dets.json"),
    ],
)
def test_a_set_without_its_parts_is_refused(folder, option, value) -> None:
    fit()
    with pytest.raises(InvalidDataError, match=f"Expected {option} NAME="):
        run("evaluate", "rules.json", "--truth", "test.json", "--detections", "test-dets.json",
            option, value)  # fmt: skip


@pytest.mark.parametrize("out", ["val.json", "val-dets.json", "painted-dets.json"])
def test_no_input_of_fit_is_overwritten(folder, out) -> None:
    before = (folder / out).read_bytes()
    with pytest.raises(InvalidDataError, match="is one of the inputs"):
        run("fit", "--truth", "val.json", "--detections", "val-dets.json", "--known", KNOWN,
            "--pseudo-unknown", "painted-dets.json", "--out", out)  # fmt: skip
    assert (folder / out).read_bytes() == before


@pytest.mark.parametrize("out", ["rules.json", "rules.safetensors", "test.json", "test-dets.json"])
@pytest.mark.parametrize("option", ["--out", "--decisions"])
def test_no_input_of_apply_is_overwritten(folder, option, out) -> None:
    fit()
    before = (folder / out).read_bytes()
    options = {"--out": "calibrated.json"} | {option: out}
    with pytest.raises(InvalidDataError, match="is one of the inputs"):
        run("apply", "rules.json", "--truth", "test.json", "--detections", "test-dets.json",
            *(word for pair in options.items() for word in pair))  # fmt: skip
    assert (folder / out).read_bytes() == before


def test_boxes_and_decisions_need_two_files(folder) -> None:
    fit()
    with pytest.raises(InvalidDataError, match="Expected two files for --out and --decisions"):
        run("apply", "rules.json", "--truth", "test.json", "--detections", "test-dets.json",
            "--out", "x.json", "--decisions", "./x.json")  # fmt: skip
    assert not (folder / "x.json").exists()


@pytest.mark.parametrize("out", ["rules.safetensors", "test.json", "c1-dets.json", "other.json"])
def test_no_input_of_evaluate_is_overwritten(folder, out) -> None:
    fit()
    before = (folder / out).read_bytes()
    with pytest.raises(InvalidDataError, match="is one of the inputs"):
        run("evaluate", "rules.json", "--truth", "test.json", "--detections", "test-dets.json",
            "--shifted", "1=c1-dets.json", "--unknown", "other=other.json,other-dets.json",
            "--out", out)  # fmt: skip
    assert (folder / out).read_bytes() == before


def test_missing_files_are_named(folder) -> None:
    with pytest.raises(MissingDataError, match=r"nowhere\.json"):
        run("evaluate", "nowhere.json", "--truth", "test.json", "--detections", "x.json")


# --- paint ---------------------------------------------------------------------------------------


def image_folder(folder) -> dict:
    """Two images that a COCO file annotates, and a third that is not there."""
    (folder / "images").mkdir()
    image = np.full((8, 8, 3), 200, np.uint8)
    for name in ("a.png", "b.png"):
        Image.fromarray(image).save(folder / "images" / name)
    names = ("a.png", "b.png", "c.png")
    document = {
        "images": [{"id": k, "file_name": name} for k, name in enumerate(names)],
        "annotations": [
            {"id": 1, "image_id": 0, "category_id": 1, "bbox": [2, 2, 4, 4], "iscrowd": 0}
        ],
        "categories": [{"id": 1, "name": "car"}],
    }
    (folder / "annotated.json").write_text(json.dumps(document))
    return document


def paint(truth: str = "annotated.json", out: str = "painted"):
    words = ["selfaware", "paint", "--truth", truth, "--images", "images", "--out", out]
    return CliRunner().invoke(app, words)


def test_paint_writes_images_and_reports_missing_ones(folder) -> None:
    document = image_folder(folder)
    done = paint()
    assert done.exit_code == IN_PART
    assert "2 images in painted" in done.stdout
    assert "Missing in images: 1 image: c.png" in done.stdout
    assert "painting: 2 images" in done.stderr
    painted = np.asarray(Image.open(folder / "painted" / "a.png"))
    assert not painted[2:6, 2:6].any()
    assert (painted.sum(axis=2) > 0).sum() == 64 - 16
    document["images"].pop()
    (folder / "annotated.json").write_text(json.dumps(document))
    assert paint().exit_code == 0


def test_paint_never_replaces_what_it_did_not_write(folder) -> None:
    image_folder(folder)
    (folder / "painted").mkdir()
    (folder / "painted" / "a.png").write_bytes(b"mine")
    done = paint()
    assert isinstance(done.exception, InvalidDataError)
    assert "would be replaced" in str(done.exception)
    assert (folder / "painted" / "a.png").read_bytes() == b"mine"
    (folder / "painted.json").write_bytes((folder / "annotated.json").read_bytes())
    done = paint("painted.json", ".")
    assert "one of the inputs" in str(done.exception)


# --- study ---------------------------------------------------------------------------------------

STUDY = (
    "study", "--validation-truth", "val.json", "--validation-detections", "val-dets.json",
    "--pseudo-unknown", "painted-dets.json", "--truth", "test.json", "--detections",
    "test-dets.json", "--shifted", "1=c1-dets.json", "--shifted", "5=c5-dets.json", "--free", "5",
    "--unknown", "other=other.json,other-dets.json", "--known", KNOWN,
)  # fmt: skip


def test_a_study_from_files_is_a_study_in_memory(folder) -> None:
    printed = run(*STUDY, "--out", "study", "--json")
    sets = {name: AnnotatedSet(*to_containers(SCENES[name])) for name in ("test", "c1", "c5")}
    test = SelfAwareTest(
        sets["test"], {"1": sets["c1"], "5": sets["c5"]}, frozenset({"5"}),
        {"other": to_containers(SCENES["other"])[0]},
    )  # fmt: skip
    validation = AnnotatedSet(*to_containers(SCENES["val"]))
    expected = study_self_aware(validation, to_containers(SCENES["painted"])[0], test)
    assert "c5-dets.json" in json.loads(printed)["inputs"]["files"]
    found = json.loads(printed)["tables"]
    assert list(found) == [table.name for table in expected.tables]
    for table in expected.tables:
        for row, right in zip(found[table.name]["rows"], table.rows, strict=True):
            assert row == pytest.approx(dict(right), abs=1e-12, nan_ok=True)
    written = {path.name for path in (folder / "study").iterdir()}
    assert written == {
        *expected.file_names(), "reliability.png", "uncertainty_histogram.png",
    }  # fmt: skip


def test_a_study_prints_its_tables_and_where_they_are(folder) -> None:
    printed = run(*STUDY, "--out", "study")
    assert "table 7" in printed
    assert "Tables: study" in printed
    assert "note: Not measured: image AUROC of entropy" in printed.replace("\n", " ")


def test_sidecars_bring_further_measures(folder) -> None:
    from safetensors.numpy import save_file

    rng = np.random.default_rng(0)
    for name in ("val", "painted", "test", "c1", "c5", "other"):
        n = len(json.loads((folder / f"{name}-dets.json").read_text()))
        arrays = {"covariance": rng.random((n, 4), np.float32) + 0.1}
        save_file(arrays, folder / f"{name}-dets.safetensors")
    printed = run(*STUDY, "--out", "study", "--json", "--sidecars")
    rows = json.loads(printed)["tables"]["auroc"]["rows"]
    measured = {row["uncertainty"] for row in rows if row["reason"] is None}
    assert measured == {"confidence", "determinant", "trace", "gaussian-entropy"}
    (folder / "other-dets.safetensors").unlink()
    with pytest.raises(MissingDataError, match=r"other-dets\.safetensors"):
        run(*STUDY, "--out", "study", "--sidecars")


def test_a_study_of_the_public_code_is_what_evaluate_measures_of_its_rules(folder) -> None:
    printed = run(*STUDY, "--out", "study", "--json", "--convention", "saod")
    run(
        "fit", "--truth", "val.json", "--detections", "val-dets.json", "--known", KNOWN,
        "--pseudo-unknown", "painted-dets.json", "--out", "rules.json", "--convention", "saod",
    )  # fmt: skip
    report = run(
        "evaluate", "rules.json", "--truth", "test.json", "--detections", "test-dets.json",
        "--shifted", "1=c1-dets.json", "--shifted", "5=c5-dets.json", "--free", "5",
        "--unknown", "other=other.json,other-dets.json", "--resamples", "0", "--json",
        "--convention", "saod",
    )  # fmt: skip
    measured = {(r["split"], r["metric"]): r["value"] for r in json.loads(report)["results"]}
    last = json.loads(printed)["tables"]["ablation"]["rows"][-1]
    assert last["daq"] == pytest.approx(measured["all", "detection_awareness_quality"])
    assert last["laece"] == pytest.approx(measured["known", "laece"])


def test_no_input_of_a_study_is_overwritten(folder) -> None:
    (folder / "study.json").write_text((folder / "val.json").read_text())
    options = [word.replace("val.json", "study.json") for word in STUDY]
    with pytest.raises(InvalidDataError, match="is one of the inputs"):
        run(*options, "--out", ".")
    assert (folder / "study.json").read_text() == (folder / "val.json").read_text()
