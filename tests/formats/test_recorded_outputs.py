"""Outputs in files: every format, every mistake a sentence."""

import json

import numpy as np
import polars
import pytest
from safetensors.numpy import save_file

import incognita
from incognita.benchmarks.load import load_benchmark
from incognita.errors import InvalidDataError, MissingDataError
from incognita.formats.recorded_outputs import (
    HeadArrays,
    OutputsFolder,
    load_arrays,
    load_table,
    logits_from_confidence,
    save_arrays,
)

UNKNOWN = ("eight", "nine", "china", "flower")


def tables(n=30, n_classes=7, width=5):
    """Return outputs for every set of digits/standard, whose features tell the sets apart."""
    rng = np.random.default_rng(0)
    weight = rng.normal(size=(n_classes, width)).astype(np.float32)
    bias = rng.normal(size=n_classes).astype(np.float32)
    found = {"head": {"weight": weight, "bias": bias}}
    for place, name in enumerate(("train", "validation", "test", *UNKNOWN)):
        features = rng.normal(loc=place // 3, size=(n, width)).astype(np.float32)
        found[name] = {"logits": features @ weight.T + bias, "features": features}
        if name not in UNKNOWN:
            found[name]["labels"] = np.arange(n) % n_classes
    return found


def write(folder, found):
    folder.mkdir(exist_ok=True)
    for name, arrays in found.items():
        np.savez(folder / f"{name}.npz", **arrays)
    return folder


def refused(tmp_path, sentence, change):
    found = tables()
    change(found)
    with pytest.raises(InvalidDataError, match=sentence):
        load_benchmark("digits/standard", outputs=write(tmp_path, found))


@pytest.mark.parametrize("suffix", [".npz", ".safetensors", ".parquet"])
def test_arrays_come_back_from_every_format(tmp_path, suffix):
    arrays = tables()["test"]
    save_arrays(tmp_path / f"test{suffix}", arrays)
    found = load_arrays(tmp_path / f"test{suffix}")
    for name, array in arrays.items():
        np.testing.assert_array_equal(found[name], array)


def test_the_formats_give_the_same_numbers(tmp_path):
    found = tables()
    write(tmp_path / "npz", found)
    other = tmp_path / "others"
    other.mkdir()
    for k, (name, arrays) in enumerate(found.items()):
        if k % 2:
            save_file(arrays, other / f"{name}.safetensors")
        elif name == "head":
            np.savez(other / "head.npz", **arrays)
        else:
            lists = {key: array.tolist() for key, array in arrays.items()}
            polars.DataFrame(lists).write_parquet(other / f"{name}.parquet")
    options = {"benchmark": "digits/standard", "methods": "msp, knn, vim", "n_resamples": 20}
    first = incognita.evaluate(outputs=tmp_path / "npz", **options)
    second = incognita.evaluate(outputs=other, **options)
    assert first.records() == second.records()


def test_ids_are_numbered_unless_given_and_may_be_numbers(tmp_path):
    logits = np.zeros((2, 3), np.float32)
    np.savez(tmp_path / "a.npz", logits=logits)
    np.savez(tmp_path / "b.npz", logits=logits, image_ids=[7, 9])
    assert load_table(tmp_path / "a.npz").image_ids == ("a/000000", "a/000001")
    assert load_table(tmp_path / "b.npz").image_ids == ("7", "9")


def test_labels_of_unknown_images_may_be_minus_one(tmp_path):
    found = tables()
    found["nine"]["labels"] = np.full(30, -1)
    benchmark = load_benchmark("digits/standard", outputs=write(tmp_path, found))
    assert benchmark.unknown["near"]["nine"].labels is None


def test_wrong_arrays_are_sentences(tmp_path):
    def set_to(name, key, value):
        return lambda found: found[name].__setitem__(key, value)

    rows = np.zeros((30, 7), np.float32)
    bad = rows.copy()
    bad[4, 2] = np.nan
    cases = {
        "row 4 is not": set_to("test", "logits", bad),
        "7 columns of logits .* got 6": set_to("test", "logits", rows[:, :6]),
        "30 rows of logits, but 29 of labels": set_to("test", "labels", np.zeros(29, int)),
        "from 0 to 6, got 7": set_to("train", "labels", np.full(30, 7)),
        "from 0 to 6, got -1": set_to("test", "labels", np.full(30, -1)),
        "one whole number per row, got float64": set_to("test", "labels", np.zeros(30)),
        "nine are unknown. Leave": set_to("nine", "labels", np.zeros(30, int)),
        "rows and columns, got float32 of shape": set_to("test", "features", rows[:, 0]),
        "7 features in .* and 5 features in": set_to("train", "features", rows),
        "got logits, features, labels, logit": set_to("test", "logit", rows),
        r"weight \[7, 5\].*got \[7, 4\]": set_to("head", "weight", np.zeros((7, 4), np.float32)),
        r"\[classes\] in .*, got shapes": set_to("head", "bias", np.zeros(6, np.float32)),
        "to hold weight and bias, got": set_to("head", "biass", np.zeros(7)),
        "has no rows": lambda found: found.__setitem__("nine", {"logits": rows[:0]}),
        "Expected labels in": lambda found: found["test"].pop("labels"),
        "id 'x' twice": set_to("test", "image_ids", np.array(["x"] * 30)),
        "cannot be read": set_to("test", "image_ids", np.array([None] * 30, object)),
    }
    for k, (sentence, change) in enumerate(cases.items()):
        refused(tmp_path / str(k), sentence, change)


def test_a_head_of_another_model_is_refused(tmp_path):
    found = tables()
    found["head"]["weight"] = found["head"]["weight"][::-1]
    with pytest.raises(InvalidDataError, match="does not compute the logits of"):
        incognita.evaluate(
            benchmark="digits/standard", outputs=write(tmp_path, found), methods="knn"
        )


def test_methods_without_their_inputs_are_skipped_with_a_reason(tmp_path):
    found = tables()
    found.pop("head")
    options = {"benchmark": "digits/standard", "n_resamples": 0}
    without_head = incognita.evaluate(outputs=write(tmp_path / "a", found), **options)
    assert {"msp", "mds"} <= set(without_head.methods)
    assert "head.npz is not there" in without_head.skipped["vim"]
    assert "not in the files" in without_head.skipped["odin"]
    for arrays in found.values():
        arrays.pop("features")
    without_features = incognita.evaluate(outputs=write(tmp_path / "b", found), **options)
    assert without_features.skipped["knn"] == "needs features (no file has them)"


def test_folders_and_files_that_are_not_there(tmp_path):
    with pytest.raises(MissingDataError, match=r"no folder .*/nowhere with outputs"):
        load_benchmark("digits/standard", outputs=tmp_path / "nowhere")
    found = tables()
    write(tmp_path, {"train": found["train"]})
    with pytest.raises(MissingDataError, match=r"no outputs of known images .*: train, validation"):
        load_benchmark("digits/standard", outputs=tmp_path)
    found.pop("nine")
    write(tmp_path, found)
    benchmark = load_benchmark("digits/standard", outputs=tmp_path)
    assert list(benchmark.metadata["missing"]) == ["nine"]
    assert any("nine" in note for note in benchmark.notes)
    np.savez(tmp_path / "nine.npz", **found["eight"])
    save_file(found["eight"], tmp_path / "nine.safetensors")
    with pytest.raises(InvalidDataError, match=r"both nine.npz and nine.safetensors"):
        load_benchmark("digits/standard", outputs=tmp_path)


def test_files_that_are_something_else_are_sentences(tmp_path):
    for name in ("a.npz", "a.safetensors", "a.parquet"):
        path = tmp_path / name
        path.write_bytes(b"PK something else")
        with pytest.raises(InvalidDataError, match=name):
            load_table(path)
        path.unlink()
        path.mkdir()
        with pytest.raises(InvalidDataError, match="is a folder"):
            load_table(path)


def test_a_benchmark_needs_no_image_of_its_own(tmp_path):
    found = tables(n_classes=10)
    found["svhn"] = found["nine"]
    report = incognita.evaluate(
        benchmark="openood/cifar10",
        outputs=write(tmp_path, found),
        methods="msp",
        n_resamples=0,
    )
    assert report.metadata["benchmark"] == "openood/cifar10"


def test_classes_are_names_or_categories(tmp_path):
    folder = OutputsFolder(tmp_path)
    assert folder.categories() is None
    (tmp_path / "classes.json").write_text(json.dumps(["a", "b"]))
    assert folder.categories() == {0: "a", 1: "b"}
    (tmp_path / "classes.json").write_text(json.dumps([{"id": 3, "name": "a"}]))
    assert folder.categories() == {3: "a"}
    for wrong in ("{}", "[]", "[1]", '[{"id": "x", "name": "a"}]', '[{"id": 1}, "a"]'):
        (tmp_path / "classes.json").write_text(wrong)
        with pytest.raises(InvalidDataError, match="list of names"):
            folder.categories()


def test_classes_in_another_order_are_refused(tmp_path):
    write(tmp_path, tables())
    names = ["one", "zero", "two", "three", "four", "five", "six"]
    (tmp_path / "classes.json").write_text(json.dumps(names))
    with pytest.raises(InvalidDataError, match="in another order"):
        incognita.evaluate(benchmark="digits/standard", outputs=tmp_path, methods="msp")


def test_a_folder_keeps_the_head_and_classes_of_one_model(tmp_path):
    folder, head = OutputsFolder(tmp_path), HeadArrays(np.eye(2, dtype="f4"), np.zeros(2, "f4"))
    for _ in range(2):
        folder.save_head([head])
        folder.save_classes(["a", "b"], are_boxes=False)
    with pytest.raises(InvalidDataError, match="head of another model"):
        folder.save_head([HeadArrays(head.weight + 1, head.bias)])
    with pytest.raises(InvalidDataError, match="names other classes"):
        folder.save_classes(["b", "a"], are_boxes=False)
    (tmp_path / "several").mkdir()
    several = OutputsFolder(tmp_path / "several")
    several.save_head([head, head])
    assert len(several.heads()) == 2


def test_a_model_and_outputs_are_too_much(tmp_path):
    write(tmp_path, tables())
    with pytest.raises(InvalidDataError, match="a model or outputs, got both"):
        incognita.evaluate("digits", "digits/standard", outputs=tmp_path)


def test_the_softmax_of_logits_from_confidence_is_the_confidence():
    logits = logits_from_confidence(np.array([0, 2]), np.array([0.9, 1.0]), 4).astype(np.float64)
    softmax = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(softmax[[0, 1], [0, 2]], [0.9, 1 - 1e-6], rtol=1e-5)
