"""Images that count as known though the model has no name for them, and groups of any name."""

import tomllib

import numpy as np
import polars
import pytest
import torch
from sklearn.metrics import roc_auc_score
from tests.evaluation.worlds import TinyNet, pictures, tiny_benchmark

import incognita
from incognita.benchmarks import load_benchmark
from incognita.benchmarks.definition_files import parse_definition
from incognita.errors import InvalidDataError
from incognita.evaluation.hyperparameter_search import SearchData, search
from incognita.methods import load_method

FILE = """
name = "mine/levels"
version = 1
title = "Terra by levels"
classes = {classes}
default_model = "terra:classifier"
[[set]]
name = "test"
role = "test"
kind = "terra"
part = "test"
count = 48
[[set]]
name = "kin"
role = "accepted"
kind = "terra"
part = "test"
classes = "near"
count = 30
[[set]]
name = "level three"
role = "unknown"
group = "level 3"
kind = "terra"
part = "test"
classes = "farther"
count = 24
[[set]]
name = "level two"
role = "unknown"
group = "level 2"
kind = "terra"
part = "test"
classes = "far"
count = 24
"""


def definition(**changes) -> dict:
    from incognita.benchmarks.terra.classes import KNOWN_NAMES

    return tomllib.loads(FILE.format(classes=list(KNOWN_NAMES))) | changes


def changed_set(place: int, **changes) -> dict:
    content = definition()
    content["set"][place] |= changes
    return content


@pytest.fixture(scope="module")
def levels(tmp_path_factory):
    from incognita.benchmarks.terra.classes import KNOWN_NAMES

    path = tmp_path_factory.mktemp("levels") / "levels.toml"
    path.write_text(FILE.format(classes=list(KNOWN_NAMES)))
    return path


@pytest.fixture(scope="module")
def run(levels):
    out = levels.parent / "results"
    found = incognita.evaluate(None, levels, "msp, energy", n_resamples=20, out=out)
    record = found.get("msp")
    frame = next(
        polars.read_parquet(path) for path in out.rglob("*.parquet") if path.name.startswith("msp")
    )
    return record, frame.with_columns(polars.col("set", "group", "source_class").cast(str))


def test_groups_keep_the_order_of_the_file(levels):
    benchmark = load_benchmark(levels)
    assert list(benchmark.unknown) == ["level 3", "level 2"]
    assert list(benchmark.accepted) == ["kin"]
    assert benchmark.accepted["kin"].labels is None


def test_accepted_images_are_known_to_every_ranking_metric(run):
    record, frame = run
    for group in ("level 2", "level 3"):
        rows = frame.filter(polars.col("group").is_in(["known", "accepted", group]))
        expected = roc_auc_score(rows["group"] == group, rows["unknown_score"])
        result = record.get("auroc", group)
        assert result.value == pytest.approx(expected, abs=1e-12)
        assert result.support["known images"] == 48 + 30


def test_accepted_images_are_not_in_accuracy_or_misclassification(run):
    record, frame = run
    known = frame.filter(polars.col("group") == "known")
    is_right = known["label"] == known["predicted"]
    assert record.get("accuracy", "known").value == pytest.approx(is_right.mean())
    assert record.get("accuracy", "known").support == {"images": 48}
    wrong = record.get("auroc", "misclassified")
    assert wrong.support == {"images": 48}
    assert wrong.value == pytest.approx(roc_auc_score(~is_right, known["unknown_score"]))
    assert frame.filter(polars.col("group") == "accepted")["label"].null_count() == 30


def test_the_true_class_of_every_image_is_on_disk(levels, run):
    _, frame = run
    benchmark = load_benchmark(levels)
    datasets = {"test": benchmark.test} | dict(benchmark.accepted)
    for sets in benchmark.unknown.values():
        datasets |= sets
    for name, dataset in datasets.items():
        stored = frame.filter(polars.col("set") == name)
        assert stored["source_class"].to_list() == list(dataset.source_classes)


def test_stored_scores_keep_the_true_classes(levels, run):
    """A second run reads the table of the first and measures a new method beside it."""
    out = levels.parent / "results"
    again = incognita.evaluate(None, levels, "msp, gen", n_resamples=20, out=out)
    record, _ = run
    assert again.get("msp").get("auroc", "level 2").value == record.get("auroc", "level 2").value


def test_accepted_validation_images_take_part_in_the_search():
    accepted = pictures("accepted", 24, seed=31)
    benchmark = tiny_benchmark(accepted_validation={"kin": accepted})
    seen = []
    found = incognita.evaluate(
        TinyNet().eval(), benchmark, "knn", search=True, n_resamples=0,
        on_progress=lambda name, *_: seen.append(name), preprocess="none",
    )  # fmt: skip
    assert "kin" in seen
    assert found.failed == {}


def test_the_search_counts_accepted_images_as_known():
    torch.manual_seed(0)
    outputs = [_outputs(n, seed) for n, seed in ((40, 0), (20, 1), (15, 2), (25, 3))]
    known, validation, accepted, unknown = outputs
    method = load_method("knn", k=3)
    method.fit(known)
    found = search(method, SearchData(known, validation, unknown, (accepted,)))
    scores = [method.score(part).numpy() for part in (validation, accepted, unknown)]
    expected = roc_auc_score(np.repeat([0, 0, 1], [20, 15, 25]), np.concatenate(scores))
    assert found.curve[0].auroc == pytest.approx(expected, abs=1e-12)


def _outputs(n: int, seed: int) -> incognita.ClassifierOutputs:
    draws = torch.Generator().manual_seed(seed)
    features = torch.randn(n, 6, generator=draws)
    ids = tuple(f"{seed}-{k}" for k in range(n))
    labels = torch.arange(n) % 3
    return incognita.ClassifierOutputs(ids, features[:, :3], features, labels)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (changed_set(2, group="known"), "cannot be called 'known'"),
        (changed_set(2, group="day/night"), "cannot be called 'day/night'"),
        (changed_set(2, group="all boxes known"), "cannot be called 'all boxes known'"),
        (changed_set(2, group="near"), "cannot be called 'near'"),
        (changed_set(2, role="far"), "has the role far and the group 'level 3'"),
        (changed_set(1, group="x"), "has the role accepted and the group 'x'"),
        (changed_set(1, role="acepted"), "role"),
    ],
)
def test_wrong_groups_get_one_sentence(content, message):
    with pytest.raises(InvalidDataError, match=message) as caught:
        parse_definition(content, source="levels.toml")
    assert "\n" not in str(caught.value)


def test_accepted_images_of_known_classes_are_refused(tmp_path):
    from incognita.benchmarks.terra.classes import KNOWN_NAMES

    text = FILE.format(classes=list(KNOWN_NAMES)).replace('classes = "near"', 'classes = "known"')
    (tmp_path / "levels.toml").write_text(text)
    with pytest.raises(InvalidDataError, match="label accepted images with -1"):
        load_benchmark(tmp_path / "levels.toml")


def test_a_detector_has_no_accepted_images():
    scene = {"kind": "terra-scenes", "part": "test", "count": 3}
    content = definition(task="detection")
    content["set"] = [
        scene | {"name": "test", "role": "test"},
        scene | {"name": "kin", "role": "accepted"},
        scene | {"name": "odd", "role": "far", "classes": "far"},
    ]
    with pytest.raises(InvalidDataError, match="known by their objects"):
        parse_definition(content, source="scenes.toml")
