"""Empty, poor and wrong files: a defined result or one clear sentence, for every command."""

import json
import math
import statistics

import numpy as np
import pytest
from safetensors.numpy import save_file
from tests.cli.test_selfaware import KNOWN, SCENES, fit, folder, run  # noqa: F401 - a fixture
from tests.oracles.scenes import to_coco

from incognita.decisions import load_self_aware
from incognita.errors import InvalidDataError

NO_IMAGES = {"images": [], "annotations": []}


def write(path, content) -> None:
    path.write_text(json.dumps(content))


def fit_with(**options: str) -> str:
    named = {
        "truth": "val.json", "detections": "val-dets.json", "known": KNOWN,
        "pseudo_unknown": "painted-dets.json", "out": "rules.json",
    } | options  # fmt: skip
    words = [w for k, v in named.items() for w in (f"--{k.replace('_', '-')}", v)]
    return run("fit", *words)


def evaluate_with(**options: str) -> dict[tuple[str, str], float | None]:
    named = {
        "truth": "test.json", "detections": "test-dets.json", "shifted": "1=c1-dets.json",
        "unknown": "other=other.json,other-dets.json", "resamples": "0",
    } | options  # fmt: skip
    words = [w for k, v in named.items() for w in (f"--{k}", v)]
    report = json.loads(run("evaluate", "rules.json", *words, "--json"))
    return {(r["split"], r["metric"]): r["value"] for r in report["results"]}


def test_validation_without_objects(folder) -> None:  # noqa: F811
    truth, _ = to_coco(SCENES["val"])
    write(folder / "bare.json", truth | {"annotations": []})
    with pytest.raises(InvalidDataError, match="Expected known objects in the 24 validation"):
        fit_with(truth="bare.json")


def test_validation_without_images(folder) -> None:  # noqa: F811
    truth, _ = to_coco(SCENES["val"])
    write(folder / "bare.json", truth | NO_IMAGES)
    write(folder / "empty.json", [])
    with pytest.raises(InvalidDataError, match="Expected known objects in the 0 validation"):
        fit_with(truth="bare.json", detections="empty.json", pseudo_unknown="empty.json")


def test_empty_validation_detections(folder) -> None:  # noqa: F811
    write(folder / "empty.json", [])
    with pytest.raises(InvalidDataError, match="Pass all boxes of the detector"):
        fit_with(detections="empty.json")


def test_painted_images_without_any_box_are_all_rejected(folder) -> None:  # noqa: F811
    write(folder / "empty.json", [])
    printed = fit_with(pseudo_unknown="empty.json")
    assert "24 of 24 painted images have no box in empty.json" in printed
    u = load_self_aware(folder / "rules.json").image_threshold
    assert u.value < 1
    assert u.metadata["unknown_rejected"] == 1


def test_a_class_never_detected_is_named(folder) -> None:  # noqa: F811
    _, results = to_coco(SCENES["val"])
    truth = json.loads((folder / "val.json").read_text())
    number = {c["name"]: c["id"] for c in truth["categories"]}["known1"]
    write(folder / "less.json", [r for r in results if r["category_id"] != number])
    assert "no box is kept of 1 class: known1" in fit_with(detections="less.json")
    assert not math.isnan(evaluate_with()["all", "detection_awareness_quality"])


@pytest.mark.parametrize("text", ["", "{", "null"])
def test_a_file_that_is_no_json_list(folder, text) -> None:  # noqa: F811
    (folder / "wrong.json").write_text(text)
    with pytest.raises(InvalidDataError, match=r"wrong\.json"):
        fit_with(detections="wrong.json")


def test_empty_test_detections_have_no_quality(folder) -> None:  # noqa: F811
    fit()
    write(folder / "empty.json", [])
    numbers = evaluate_with(detections="empty.json")
    assert numbers["unknown", "known_accepted"] == 0
    assert numbers["known", "lrp"] == 1
    assert numbers["known", "laece"] is None  # undefined without a box
    assert numbers["known", "in_distribution_quality"] == 0
    assert numbers["all", "detection_awareness_quality"] == 0


def test_empty_unknown_detections_are_all_rejected(folder) -> None:  # noqa: F811
    fit()
    write(folder / "empty.json", [])
    assert evaluate_with(unknown="other=other.json,empty.json")["unknown", "unknown_rejected"] == 1


def test_no_unknown_images_leave_balanced_accuracy_undefined(folder) -> None:  # noqa: F811
    fit()
    write(folder / "empty.json", [])
    write(folder / "none.json", to_coco(SCENES["other"])[0] | NO_IMAGES)
    numbers = evaluate_with(unknown="other=none.json,empty.json")
    assert numbers["unknown", "balanced_accuracy"] is None
    assert numbers["all", "detection_awareness_quality"] is None
    assert numbers["known", "lrp"] < 1


def test_no_test_images_are_refused(folder) -> None:  # noqa: F811
    fit()
    write(folder / "empty.json", [])
    write(folder / "none.json", to_coco(SCENES["test"])[0] | NO_IMAGES)
    with pytest.raises(InvalidDataError, match="Expected known test images, got none"):
        evaluate_with(truth="none.json", detections="empty.json", shifted="1=empty.json")


def test_apply_to_an_empty_file_writes_an_empty_file(folder) -> None:  # noqa: F811
    fit()
    write(folder / "empty.json", [])
    printed = run(
        "apply", "rules.json", "--truth", "test.json", "--detections", "empty.json",
        "--out", "out.json",
    )  # fmt: skip
    assert printed.startswith("0 of 24 images accepted, 0 boxes kept")
    assert json.loads((folder / "out.json").read_text()) == []


@pytest.mark.parametrize("wrong", [0.0, -2.0])
def test_a_covariance_that_is_not_positive(folder, wrong) -> None:  # noqa: F811
    n = len(to_coco(SCENES["val"])[1])
    variances = np.ones((n, 4))
    variances[1, 2] = wrong
    save_file({"covariance": variances}, folder / "val-dets.safetensors")
    with pytest.raises(InvalidDataError, match="Expected variances above 0 as covariance"):
        fit_with(sidecar="val-dets.safetensors", uncertainty="determinant")


def test_an_uncertainty_without_its_columns(folder) -> None:  # noqa: F811
    with pytest.raises(InvalidDataError, match="determinant needs the covariance"):
        fit_with(uncertainty="determinant")
    with pytest.raises(InvalidDataError, match="entropy needs the logits"):
        fit_with(uncertainty="entropy")


def test_fit_prints_what_the_threshold_does(folder) -> None:  # noqa: F811
    printed = fit()
    u = load_self_aware(folder / "rules.json").image_threshold
    shares = u.metadata["known_accepted"], u.metadata["unknown_rejected"]
    assert f"({100 * shares[0]:.1f} % of validation images with objects)" in printed
    assert f"{100 * shares[1]:.1f} % of painted images are rejected" in printed
    assert f"harmonic mean {100 * statistics.harmonic_mean(shares):.1f} %" in printed


def test_images_without_a_box_are_counted(folder) -> None:  # noqa: F811
    for name in ("val", "painted"):
        _, results = to_coco(SCENES[name])
        first = results[0]["image_id"]
        write(folder / f"less-{name}.json", [r for r in results if r["image_id"] != first])
    printed = fit_with(detections="less-val.json", pseudo_unknown="less-painted.json")
    for kind, name in (("validation", "val"), ("painted", "painted")):
        used = {r["image_id"] for r in json.loads((folder / f"less-{name}.json").read_text())}
        assert f"note: {24 - len(used)} of 24 {kind} images " in printed


def test_the_validation_boxes_are_not_those_of_painted_images(folder) -> None:  # noqa: F811
    with pytest.raises(InvalidDataError, match="boxes of the validation images themselves"):
        fit_with(pseudo_unknown="val-dets.json")
    assert not (folder / "rules.json").exists()


def test_unknown_images_with_known_objects_are_refused(folder) -> None:  # noqa: F811
    fit()
    truth, _ = to_coco(SCENES["other"])
    write(folder / "other.json", truth)
    names = {c["id"]: c["name"] for c in truth["categories"]}
    shown = [a for a in truth["annotations"] if names[a["category_id"]] in KNOWN.split(",")]
    n = len({a["image_id"] for a in shown})
    with pytest.raises(InvalidDataError, match=rf"in other\.json, got {n} images with known0"):
        evaluate_with()
    others = [a for a in truth["annotations"] if a not in shown]
    assert others
    write(folder / "other.json", truth | {"annotations": others})
    evaluate_with()


@pytest.mark.parametrize("wrong", [-0.5, 1.5])
def test_scores_that_are_no_probabilities_are_refused(folder, wrong) -> None:  # noqa: F811
    fit()
    for name in ("val", "painted", "test", "c1"):
        _, results = to_coco(SCENES[name])
        results[0]["score"] = wrong
        write(folder / f"wrong-{name}.json", results)
    for command, options in (
        (fit_with, {"detections": "wrong-val.json"}),
        (fit_with, {"pseudo_unknown": "wrong-painted.json"}),
        (evaluate_with, {"detections": "wrong-test.json"}),
        (evaluate_with, {"shifted": "1=wrong-c1.json"}),
    ):
        with pytest.raises(InvalidDataError, match=rf"0 and 1 in wrong-\w+\.json, got {wrong}"):
            command(**options)
    with pytest.raises(InvalidDataError, match=r"0 and 1 in wrong-test\.json"):
        run("apply", "rules.json", "--truth", "test.json", "--detections", "wrong-test.json",
            "--out", "x.json")  # fmt: skip


def test_an_image_without_boxes_has_no_uncertainty(folder) -> None:  # noqa: F811
    fit()
    write(folder / "empty.json", [])
    run("apply", "rules.json", "--truth", "test.json", "--detections", "empty.json",
        "--out", "x.json", "--decisions", "decisions.json")  # fmt: skip
    decisions = json.loads((folder / "decisions.json").read_text())
    assert {entry["uncertainty"] for entry in decisions} == {None}
    assert not any(entry["accepted"] for entry in decisions)


def test_no_calibration_is_printed_as_such(folder) -> None:  # noqa: F811
    assert "Classes: 3, not calibrated." in fit_with(calibrator="none")
