"""A run from saved outputs gives the numbers of the run with the model, one by one."""

import json
import math
import shutil

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.numpy import load_file, save_file
from tests.benchmarks.box_trees import write_road
from typer.testing import CliRunner

import incognita
from incognita.cli.app import app
from incognita.errors import InvalidDataError, MissingDataError
from incognita.formats.recorded_outputs import logits_from_confidence

METHODS = "msp, temperature, kl-matching, energy, knn, mds, vim, react, dice, openmax"
LIMIT = {"limit": 40, "n_resamples": 30}


def numbers(report):
    """Return every number with its interval as text, in which NaN equals NaN."""
    return [json.dumps(record, sort_keys=True) for record in report.records()]


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    """A run with the model, and the folder its outputs were saved to."""
    folder = tmp_path_factory.mktemp("digits") / "saved"
    report = incognita.evaluate(
        benchmark="digits/standard", methods=METHODS, save_outputs=folder, search=True, **LIMIT
    )
    return report, folder


@pytest.fixture(scope="module")
def terra(tmp_path_factory):
    folder = tmp_path_factory.mktemp("terra") / "saved"
    report = incognita.evaluate(
        benchmark="terra/detection",
        methods="energy, knn, mds, vim",
        save_outputs=folder,
        limit=6,
        n_resamples=20,
        boxes=incognita.BoxOptions(unknown_threshold="gaussian"),
    )
    return report, folder


def test_a_classifier_from_saved_outputs_has_the_numbers_of_the_network(digits):
    report, folder = digits
    again = incognita.evaluate(
        benchmark="digits/standard", methods=METHODS, outputs=folder, search=True, n_resamples=30
    )
    assert numbers(again) == numbers(report)
    assert again.gap_to_best("msp") == report.gap_to_best("msp")


def test_a_detector_from_saved_outputs_has_the_numbers_of_the_network(terra):
    report, folder = terra
    again = incognita.evaluate(
        benchmark="terra/detection",
        outputs=folder,
        methods="energy, knn, mds, vim",
        n_resamples=20,
        boxes=incognita.BoxOptions(unknown_threshold="gaussian"),
    )
    assert numbers(again) == numbers(report)
    assert [m.thresholds for m in again.results] == [m.thresholds for m in report.results]


def test_a_second_run_finds_its_results(digits, tmp_path):
    _, folder = digits
    options = {"benchmark": "digits/standard", "outputs": folder, "methods": "msp", "out": tmp_path}
    first = incognita.evaluate(**options)
    (path,) = tmp_path.rglob("msp-*.json")
    written = path.stat().st_mtime_ns
    assert numbers(incognita.evaluate(**options)) == numbers(first)
    assert path.stat().st_mtime_ns == written


def test_other_outputs_are_another_result(digits, tmp_path):
    _, folder = digits
    for path in folder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    options = {"benchmark": "digits/standard", "methods": "msp", "n_resamples": 0}
    results = tmp_path / "results"
    first = incognita.evaluate(outputs=tmp_path, out=results, **options)
    arrays = dict(np.load(tmp_path / "nine.npz"))
    np.savez(tmp_path / "nine.npz", **(arrays | {"logits": arrays["logits"] + np.eye(7)[0]}))
    (tmp_path / "head.npz").unlink()
    second = incognita.evaluate(outputs=tmp_path, out=results, **options)
    assert numbers(first) != numbers(second)


def test_limit_takes_the_images_that_a_run_with_the_model_takes(digits, tmp_path):
    options = {"benchmark": "digits/standard", "methods": "msp", "n_resamples": 0}
    incognita.evaluate(save_outputs=tmp_path, **options)
    limited = incognita.evaluate(limit=20, **options)
    assert numbers(incognita.evaluate(outputs=tmp_path, limit=20, **options)) == numbers(limited)


def test_an_ensemble_cannot_be_saved(tmp_path):
    with pytest.raises(InvalidDataError, match="got an ensemble"):
        incognita.evaluate(
            ["digits:classifier"] * 2, "digits/standard", "msp", save_outputs=tmp_path, limit=5
        )


def test_a_filter_for_boxes_from_files_is_refused(terra):
    with pytest.raises(InvalidDataError, match="Expected no max_per_image with boxes from files"):
        incognita.evaluate(
            benchmark="terra/detection",
            outputs=terra[1],
            boxes=incognita.BoxOptions(max_per_image=3),
        )


def test_the_command_runs_from_outputs(digits, tmp_path):
    _, folder = digits
    line = ["run", "digits/standard", "--outputs", str(folder), "--methods", "msp, knn", "--json"]
    done = CliRunner().invoke(app, [*line, "--out", str(tmp_path)])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["facts"]["passes"]["images"] == 0


def test_a_set_without_a_file_is_named_and_the_exit_code_is_4(digits, terra, tmp_path):
    for (_, folder), benchmark, name in (
        (digits, "digits/standard", "nine.npz"),
        (terra, "terra/detection", "near.json"),
    ):
        copied = shutil.copytree(folder, tmp_path / folder.parent.name)
        (copied / name).unlink()
        line = ["run", benchmark, "--outputs", str(copied), "--methods", "energy"]
        done = CliRunner().invoke(app, [*line, "--out", str(tmp_path / "out"), "--resamples", "0"])
        assert done.exit_code == 4, done.output
        assert str(copied / name) in done.stdout.replace("\n", "").replace(" ", "")


def write_boxes(folder, root, *, categories=(4, 1), features=True):
    """Write what a perfect detector of people and cars would: every object, animals as cars."""
    folder.mkdir()
    rng = np.random.default_rng(0)
    for name in ("train", "test", "animals", "both"):
        document = json.loads((root / f"{name}.json").read_text())
        records = document["annotations"] * 20  # enough rows to fit on
        is_person = [record["category_id"] == 4 for record in records]
        found = [
            {
                "image_id": record["image_id"],
                "category_id": categories[0] if person else categories[1],
                "bbox": record["bbox"],
                "score": 0.9 - 0.001 * place,
            }
            for place, (record, person) in enumerate(zip(records, is_person, strict=True))
        ]
        (folder / f"{name}.json").write_text(json.dumps(found))
        logits = np.where(is_person, 3.0, -3.0)[:, None] * np.array([[1, -1]])
        arrays = {"logits": logits + rng.normal(size=(len(found), 2))}
        if features:
            arrays["features"] = rng.normal(size=(len(found), 3)) + (name == "animals")
        save_file(
            {k: a.astype(np.float32) for k, a in arrays.items()}, folder / f"{name}.safetensors"
        )
    return folder


def test_boxes_from_files_need_annotations_and_no_images(tmp_path):
    definition = write_road(tmp_path)
    for name in ("train", "test", "animals", "both"):
        shutil.rmtree(tmp_path / name)
    options = {"benchmark": definition, "methods": "energy, mds", "n_resamples": 0}
    report = incognita.evaluate(outputs=write_boxes(tmp_path / "a", tmp_path), **options)
    assert report.results[0].get("ap50", "known").value == pytest.approx(1)
    assert {"energy", "mds"} == set(report.methods)

    other = write_boxes(tmp_path / "b", tmp_path, categories=(9, 5))
    for path in other.glob("*.safetensors"):  # the detector knows dogs too, first of all
        arrays = load_file(path)
        dogs = np.full((len(arrays["logits"]), 1), -50, np.float32)
        save_file(arrays | {"logits": np.hstack([dogs, arrays["logits"]])}, path)
    names = [{"id": 2, "name": "dog"}, {"id": 9, "name": "person"}, {"id": 5, "name": "car"}]
    (other / "classes.json").write_text(json.dumps(names))
    assert numbers(incognita.evaluate(outputs=other, **options)) == numbers(report)

    (other / "classes.json").write_text(json.dumps(names[:2]))
    with pytest.raises(InvalidDataError, match="known class 'car' once"):
        incognita.evaluate(outputs=other, **options)


def test_wrong_boxes_are_sentences(tmp_path):
    definition = write_road(tmp_path)
    folder = write_boxes(tmp_path / "a", tmp_path)
    options = {"benchmark": definition, "methods": "energy", "n_resamples": 0, "outputs": folder}
    boxes = json.loads((folder / "test.json").read_text())
    (folder / "test.json").write_text(json.dumps([boxes[0] | {"image_id": 12345}, *boxes[1:]]))
    with pytest.raises(InvalidDataError, match="12345"):
        incognita.evaluate(**options)
    (folder / "test.json").write_text(json.dumps(boxes[:-1]))
    with pytest.raises(InvalidDataError, match="rows, but there are"):
        incognita.evaluate(**options)
    (folder / "test.json").write_text(json.dumps(boxes))
    save_file({"logits": np.zeros((len(boxes), 5), np.float32)}, folder / "test.safetensors")
    with pytest.raises(InvalidDataError, match="2 columns of logits"):
        incognita.evaluate(**options)
    save_file({"logits": np.zeros((len(boxes), 2), np.float32)}, folder / "test.safetensors")
    with pytest.raises(InvalidDataError, match="same widths for all sets"):
        incognita.evaluate(**options)
    for name in ("train", "animals", "both"):
        (folder / f"{name}.json").unlink()
    with pytest.raises(MissingDataError, match="no outputs of unknown images"):
        incognita.evaluate(**options)


def test_images_that_the_detector_never_saw_are_noted_or_left_out(tmp_path):
    definition = write_road(tmp_path)
    folder = write_boxes(tmp_path / "a", tmp_path)
    options = {"benchmark": definition, "methods": "energy", "n_resamples": 0, "outputs": folder}
    boxes = json.loads((folder / "test.json").read_text())
    kept = [place for place, box in enumerate(boxes) if box["image_id"] == 100]
    (folder / "test.json").write_text(json.dumps([boxes[place] for place in kept]))
    arrays = load_file(folder / "test.safetensors")
    save_file({k: a[kept].copy() for k, a in arrays.items()}, folder / "test.safetensors")
    noted = incognita.evaluate(**options)
    assert any("no box for 2 of 3 images" in note for note in noted.notes)
    (folder / "test.images.json").write_text("[100]")
    limited = incognita.evaluate(**options)
    assert not any("no box for" in note for note in limited.notes)
    assert limited.results[0].get("ap50", "known").value == pytest.approx(1)


class ColorNet(torch.nn.Module):
    """Features of a crop: its mean color and brightness."""

    def __init__(self):
        super().__init__()
        self.head = torch.nn.Linear(6, 2)

    def forward(self, batch):
        means, spread = batch.mean(dim=(2, 3)), batch.amax(dim=(2, 3))
        return self.head(torch.cat([means, spread], dim=1))


def shrink(image):
    pixels = torch.from_numpy(image.copy()).permute(2, 0, 1)[None].float() / 255
    return torch.nn.functional.interpolate(pixels, size=(6, 6), mode="bilinear")[0]


def test_boxes_of_a_file_get_features_from_their_crops(tmp_path):
    definition = write_road(tmp_path)
    rng = np.random.default_rng(0)
    for path in tmp_path.rglob("*.png"):
        Image.fromarray(rng.integers(0, 256, (20, 20, 3), np.uint8)).save(path)
    folder = write_boxes(tmp_path / "a", tmp_path)
    torch.manual_seed(0)
    network = ColorNet()
    for path in folder.glob("*.json"):
        names = {
            k["id"]: k["file_name"]
            for k in json.loads((tmp_path / path.name).read_text())["images"]
        }
        boxes = json.loads(path.read_text())
        boxes = [box | {"bbox": [-3, 2.5, 90, 0]} if k == 3 else box for k, box in enumerate(boxes)]
        path.write_text(json.dumps(boxes))
        rows = []
        for box in boxes:  # the rule by hand: clip, whole pixels, at least one
            image = np.asarray(Image.open(tmp_path / path.stem / names[box["image_id"]]))
            x, y, width, height = box["bbox"]
            left, top = max(0, math.floor(x)), max(0, math.floor(y))
            right, bottom = min(20, math.ceil(x + width)), min(20, math.ceil(y + height))
            part = image[top : max(bottom, top + 1), left : max(right, left + 1)]
            batch = shrink(part)[None]
            rows.append(torch.cat([batch.mean(dim=(2, 3)), batch.amax(dim=(2, 3))], dim=1))
        confidence = np.array([box["score"] for box in boxes])
        class_ids = np.array([0 if box["category_id"] == 4 else 1 for box in boxes])
        logits = logits_from_confidence(class_ids, confidence, 2)
        save_file(
            {"logits": logits, "features": torch.cat(rows).numpy()},
            path.with_suffix(".safetensors"),
        )
    options = {"benchmark": definition, "methods": "mds", "n_resamples": 0}
    by_hand = incognita.evaluate(outputs=folder, **options)
    for path in folder.glob("*.safetensors"):
        path.unlink()
    model = incognita.wrap_classifier(network, preprocess=shrink, example=torch.rand(2, 3, 6, 6))
    embedded = incognita.evaluate(outputs=folder, embed=model, store=tmp_path / "store", **options)
    assert embedded.metadata["passes"]["images"] > 0
    for one, other in zip(by_hand.records(), embedded.records(), strict=True):
        assert one["value"] == pytest.approx(other["value"], abs=1e-6, nan_ok=True)
    again = incognita.evaluate(outputs=folder, embed=model, store=tmp_path / "store", **options)
    assert again.metadata["passes"]["images"] == 0
    every = incognita.evaluate(outputs=folder, embed=model, benchmark=definition, n_resamples=0)
    assert every.skipped["energy"] == "needs class logits (no file has them)"
    assert "the features are those of ColorNet" in every.skipped["residual"]

    (tmp_path / "animals" / "x.png").write_bytes(b"no picture")
    partial = incognita.evaluate(outputs=folder, embed=model, **options)
    assert [(name, image) for name, image, _ in partial.failed_images] == [("animals", "x.png")]


def test_one_results_file_serves_all_sets(tmp_path):
    definition = write_road(tmp_path)
    for place, name in enumerate(("train", "test", "animals", "both")):  # ids of their own
        path = tmp_path / f"{name}.json"
        document = json.loads(path.read_text())
        for record in document["images"]:
            record["id"] += 1000 * place
        for record in document["annotations"]:
            record["image_id"] += 1000 * place
        path.write_text(json.dumps(document))
    folder = write_boxes(tmp_path / "a", tmp_path)
    found = [json.loads(p.read_text()) for p in folder.glob("*.json")]
    everything = tmp_path / "dets.json"
    everything.write_text(json.dumps([box for boxes in found for box in boxes]))
    for path in folder.glob("*.safetensors"):
        path.unlink()
    model = incognita.wrap_classifier(ColorNet(), preprocess=shrink, example=torch.rand(2, 3, 6, 6))
    options = {"benchmark": definition, "methods": "mds", "n_resamples": 0, "embed": model}
    together = incognita.evaluate(outputs=everything, **options)
    assert numbers(together) == numbers(incognita.evaluate(outputs=folder, **options))
    write_road(tmp_path)
    with pytest.raises(InvalidDataError, match="cannot tell them apart"):
        incognita.evaluate(outputs=everything, **options)


def test_embed_needs_boxes(tmp_path):
    with pytest.raises(InvalidDataError, match="`embed` needs boxes"):
        incognita.evaluate(benchmark="terra/detection", embed="digits:classifier")
