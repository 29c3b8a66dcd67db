"""Empty, poor and wrong files: a defined result or one clear sentence, for every command."""

import json
import math

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
    fit_with(pseudo_unknown="empty.json")
    u = load_self_aware(folder / "rules.json").image_threshold
    assert u.value < 1
    assert u.metadata["unknown_rejected"] == 1


def test_a_class_never_detected_is_named(folder) -> None:  # noqa: F811
    _, results = to_coco(SCENES["val"])
    truth = json.loads((folder / "val.json").read_text())
    number = {c["name"]: c["id"] for c in truth["categories"]}["known1"]
    write(folder / "less.json", [r for r in results if r["category_id"] != number])
    assert "no box is kept of 1 classes: known1" in fit_with(detections="less.json")
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
