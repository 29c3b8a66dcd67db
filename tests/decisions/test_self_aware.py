"""Self-aware detection against the paper's algorithms, box by box."""

import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from tests.oracles import self_aware as oracle
from tests.oracles.scenes import random_scene, to_containers

from incognita.containers.boxes import BoxTruth, Detections
from incognita.containers.classes import Classes
from incognita.decisions import (
    SelfAware,
    SelfAwareSettings,
    load_self_aware,
    save_self_aware,
)
from incognita.decisions.self_aware import top_boxes
from incognita.errors import InvalidDataError, MissingDataError
from incognita.metrics.self_awareness import Aggregation

OPTIONS = {"n_images": 30, "n_known": 3, "with_ties": False, "with_crowd": False}


def scenes(seed: int, **more):
    """A validation scene, and one of less certain boxes as its painted-over copy."""
    scene = random_scene(np.random.default_rng(seed), **(OPTIONS | more))
    known = [d for d in scene.detections if d.label in scene.known_labels]
    scene = replace(scene, detections=known)
    rng = np.random.default_rng(seed + 1000)
    dimmed = [replace(d, score=d.score * rng.uniform(0.1, 0.9)) for d in known]
    return scene, replace(scene, detections=dimmed, truths=[])


def fit(seed: int = 0, **more) -> tuple[SelfAware, Detections, BoxTruth]:
    scene, copies = scenes(seed, **more)
    found, truth = to_containers(scene)
    return SelfAware.fit(found, truth, to_containers(copies)[0]), found, truth


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("kind", [{}, {"with_ties": True}, {"with_crowd": True}])
def test_fit_and_use_follow_the_papers_algorithms(seed, kind) -> None:
    scene, copies = scenes(seed, **kind)
    rules = oracle.fit(scene, copies)
    fitted, _, _ = fit(seed, **kind)
    assert fitted.image_threshold.value == pytest.approx(rules.u, rel=1e-12)
    assert fitted.confidence_threshold.per_class.tolist() == rules.v
    fresh = random_scene(np.random.default_rng(seed + 99), **(OPTIONS | kind))
    fresh = replace(fresh, detections=[d for d in fresh.detections if d.label != "unknown"])
    for test_scene in (scene, fresh):
        accepted, boxes = oracle.use(test_scene, rules)
        output = fitted.apply(to_containers(test_scene)[0])
        assert output.accepted.tolist() == accepted
        expected = sorted((d.image, d.xyxy, p) for d, p in boxes)
        measured = sorted(
            (int(image), tuple(xyxy), float(p))
            for image, xyxy, p in zip(
                output.detections.image_index,
                output.detections.xyxy.tolist(),
                output.detections.confidence,
                strict=True,
            )
        )
        assert [row[:2] for row in measured] == [row[:2] for row in expected]
        np.testing.assert_allclose([m[2] for m in measured], [e[2] for e in expected], atol=1e-12)


def test_a_rejected_image_keeps_its_place_without_boxes() -> None:
    fitted, found, _ = fit()
    output = fitted.apply(found)
    assert output.detections.n_images == found.n_images
    counts = np.diff(output.detections.offsets)
    assert (counts[~output.accepted] == 0).all()
    assert not output.accepted.all()
    assert output.accepted.any()


def test_one_image_is_decided_as_in_a_batch() -> None:
    fitted, found, _ = fit()
    together = fitted.apply(found)
    for k in range(found.n_images):
        rows = slice(int(found.offsets[k]), int(found.offsets[k + 1]))
        n = rows.stop - rows.start
        one = Detections(
            found.image_ids[k : k + 1], [0, n], found.xyxy[rows], found.confidence[rows],
            found.class_ids[rows], found.classes,
        )  # fmt: skip
        assert fitted.apply(one).accepted.tolist() == [together.accepted[k]]


def test_boxes_below_v_still_count_for_the_image() -> None:
    fitted, found, _ = fit()
    is_low = ~fitted.confidence_threshold.keep(found)
    assert is_low.any()
    cut = fitted.image_uncertainty(found[~is_low])
    assert not np.array_equal(cut, fitted.image_uncertainty(found))


def test_only_the_most_confident_boxes_count() -> None:
    fitted, found, _ = fit()
    few = replace(fitted, max_per_image=1)
    assert len(few.apply(found).detections) <= found.n_images
    first = top_boxes(found, 1)
    assert few.image_uncertainty(found).tolist() == few.image_uncertainty(first).tolist()


def test_other_settings_are_used() -> None:
    scene, copies = scenes(0)
    (found, truth), (pseudo, _) = to_containers(scene), to_containers(copies)
    table7 = SelfAwareSettings(
        image_threshold="quantile(share=0.8)", confidence_threshold=0.5, calibrator="none"
    )
    plain = SelfAware.fit(found, truth, None, table7)
    output = plain.apply(found)
    assert (output.detections.confidence >= 0.5).all()
    assert set(output.detections.confidence) <= set(found.confidence)
    sums = SelfAware.fit(found, truth, pseudo, SelfAwareSettings(aggregation=Aggregation.MIN))
    assert sums.image_uncertainty(found)[0] == pytest.approx(
        1 - found.confidence[: found.offsets[1]].max()
    )


def test_saved_rules_decide_the_same_in_a_new_process(tmp_path) -> None:
    fitted, found, _ = fit()
    path = tmp_path / "rules.json"
    save_self_aware(fitted, path)
    loaded = load_self_aware(path)
    for one, other in zip(fitted.apply(found), loaded.apply(found), strict=True):
        if isinstance(one, Detections):
            assert one.confidence.tolist() == other.confidence.tolist()
            assert one.xyxy.tolist() == other.xyxy.tolist()
        else:
            assert one.tolist() == other.tolist()
    code = (
        "import sys; from incognita.decisions import load_self_aware; "
        f"print(load_self_aware({str(path)!r}).image_threshold.value)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert float(done.stdout) == fitted.image_threshold.value


def test_a_normalized_uncertainty_is_saved_with_its_range(tmp_path) -> None:
    scene, copies = scenes(0)
    rng = np.random.default_rng(0)

    def with_columns(detections: Detections) -> Detections:
        n, k = len(detections), len(detections.classes)
        return replace(
            detections, logits=rng.normal(size=(n, k)), covariance=rng.uniform(1, 9, (n, 4))
        )

    found, truth = to_containers(scene)
    found, pseudo = with_columns(found), with_columns(to_containers(copies)[0])
    settings = SelfAwareSettings("normalized", image_threshold=1.5)
    fitted = SelfAware.fit(found, truth, pseudo, settings)
    save_self_aware(fitted, tmp_path / "rules.json")
    assert load_self_aware(tmp_path / "rules.json").uncertainty == fitted.uncertainty


@pytest.mark.parametrize("broken", ["{}", '{"format": "incognita.self-aware.0"}', "[]"])
def test_a_file_of_another_kind_is_refused(tmp_path, broken) -> None:
    (tmp_path / "rules.json").write_text(broken)
    with pytest.raises(InvalidDataError, match="Expected rules of the format"):
        load_self_aware(tmp_path / "rules.json")


def test_a_damaged_file_is_one_sentence(tmp_path) -> None:
    fitted, _, _ = fit()
    path = tmp_path / "rules.json"
    save_self_aware(fitted, path)
    document = json.loads(path.read_text())
    del document["classes"]
    path.write_text(json.dumps(document))
    with pytest.raises(InvalidDataError, match="incomplete"):
        load_self_aware(path)
    path.with_suffix(".safetensors").unlink()
    with pytest.raises(MissingDataError, match="holds the arrays"):
        load_self_aware(path)
    with pytest.raises(InvalidDataError, match=r"ends in \.json"):
        save_self_aware(fitted, tmp_path / "rules.txt")


def saved(path, seed: int = 3) -> SelfAware:
    """Save rules with two fitted classes and a constant one."""
    fitted, _, _ = fit(seed)
    save_self_aware(fitted, path)
    return fitted


def test_arrays_of_other_rules_are_refused(tmp_path) -> None:
    one, two = tmp_path / "one.json", tmp_path / "two.json"
    saved(one)
    saved(two, seed=1)
    one.with_suffix(".safetensors").write_bytes(two.with_suffix(".safetensors").read_bytes())
    with pytest.raises(InvalidDataError, match="got those of other rules"):
        load_self_aware(one)


def test_rules_from_before_arrays_were_hashed_are_read(tmp_path) -> None:
    path = tmp_path / "rules.json"
    fitted = saved(path)
    document = json.loads(path.read_text())
    del document["arrays_sha256"]
    path.write_text(json.dumps(document | {"format": "incognita.self-aware.1"}))
    assert load_self_aware(path).image_threshold == fitted.image_threshold


@pytest.mark.parametrize(
    "change",
    [
        {"metadata": []},
        {"metadata": "text"},
        {"classes": None},
        {"classes": ["known0", "known1", "known2"]},
        {"classes": []},
        {"image_threshold": {"value": 0.5, "policy": "x", "metadata": 3}},
        {"image_threshold": 0.5},
        {"confidence_threshold": []},
        {"uncertainty": []},
        {"calibrator": "isotonic"},
        {"top": "many"},
        {"top": float("inf")},
        {"arrays_sha256": None},
    ],
)
def test_a_damaged_value_is_one_sentence(tmp_path, change) -> None:
    path = tmp_path / "rules.json"
    saved(path)
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(InvalidDataError):
        load_self_aware(path)


@pytest.mark.parametrize(
    "entry",
    [{"class": 7}, {"class": "known1"}, {"state": "constant"}, {"state": "identity"}],
)
def test_a_damaged_class_is_one_sentence(tmp_path, entry) -> None:
    path = tmp_path / "rules.json"
    saved(path)
    document = json.loads(path.read_text())
    document["classes"][0] |= entry
    path.write_text(json.dumps(document))
    with pytest.raises(InvalidDataError, match="incomplete or damaged"):
        load_self_aware(path)


# --- bad input -----------------------------------------------------------------------------------


def toy(confidence: list[float], *, n_objects: int = 2) -> tuple[Detections, BoxTruth]:
    classes = Classes(("car", "bus"))
    n = len(confidence)
    xyxy = np.tile([0.0, 0.0, 9.0, 9.0], (max(n, n_objects), 1))
    found = Detections(np.arange(n), np.arange(n + 1), xyxy[:n], confidence, [0] * n, classes)
    objects = np.minimum(np.arange(n + 1), n_objects)
    return found, BoxTruth(np.arange(n), objects, xyxy[:n_objects], [0] * n_objects, classes)


def test_validation_without_objects_is_refused() -> None:
    found, truth = toy([0.9, 0.8], n_objects=0)
    with pytest.raises(InvalidDataError, match="Expected known objects in the 2 validation"):
        SelfAware.fit(found, truth, found)


def test_validation_without_any_box_is_refused() -> None:
    found, truth = toy([0.9, 0.8])
    nothing = Detections.empty(found.image_ids, found.classes)
    with pytest.raises(InvalidDataError, match="None of the 2 validation images with objects"):
        SelfAware.fit(nothing, truth, found)


def test_a_class_never_detected_keeps_nothing_and_stays_as_it_is() -> None:
    found, truth = toy([0.9, 0.8])
    fitted = SelfAware.fit(found, truth, replace(found, confidence=[0.1, 0.2]))
    assert fitted.confidence_threshold.per_class.tolist()[1] == np.inf
    assert fitted.calibrators.per_class[1].state == "identity"
    bus = replace(found, class_ids=[1, 1])
    assert len(fitted.apply(bus).detections) == 0


def test_all_rejected_and_all_accepted_are_defined() -> None:
    found, truth = toy([0.9, 0.8])
    fitted = SelfAware.fit(found, truth, replace(found, confidence=[0.1, 0.2]))
    none = fitted.apply(replace(found, confidence=[0.01, 0.01]))
    assert not none.accepted.any()
    assert len(none.detections) == 0
    assert fitted.apply(found).accepted.all()
    empty = fitted.apply(Detections.empty([5, 6], found.classes))
    assert empty.accepted.tolist() == [False, False]
    nothing = fitted.apply(Detections.empty([], found.classes))
    assert len(nothing.accepted) == 0


def test_a_threshold_that_accepts_empty_images_is_refused() -> None:
    found, truth = toy([0.9, 0.8])
    empty = found[np.array([True, False])]
    settings = SelfAwareSettings(image_threshold="quantile(share=0.95)")
    with pytest.raises(InvalidDataError, match="1 of 2 validation images with objects have no box"):
        SelfAware.fit(empty, truth, None, settings)


def test_the_papers_threshold_needs_pseudo_unknown_images() -> None:
    found, truth = toy([0.9, 0.8])
    with pytest.raises(InvalidDataError, match="known and of unknown rows"):
        SelfAware.fit(found, truth)


def test_detections_of_other_classes_are_refused() -> None:
    found, truth = toy([0.9, 0.8])
    fitted = SelfAware.fit(found, truth, replace(found, confidence=[0.1, 0.2]))
    with pytest.raises(InvalidDataError, match="Fit them again"):
        fitted.apply(replace(found, classes=Classes(("dog", "cat"))))


def test_confidences_beyond_one_are_refused() -> None:
    found, truth = toy([3.0, 2.0])
    with pytest.raises(InvalidDataError, match="between 0 and 1"):
        SelfAware.fit(found, truth, replace(found, confidence=[0.1, 0.2]))


@pytest.mark.parametrize("wrong", [-0.5, 1.5])
def test_scores_beyond_zero_and_one_are_refused_everywhere(wrong) -> None:
    found, truth = toy([0.9, 0.8])
    painted = replace(found, confidence=[0.1, 0.2])
    bad = replace(found, confidence=[0.9, wrong])
    for arguments in ((bad, truth, painted), (found, truth, bad)):
        with pytest.raises(InvalidDataError, match="between 0 and 1"):
            SelfAware.fit(*arguments)
    with pytest.raises(InvalidDataError, match="between 0 and 1"):
        SelfAware.fit(found, truth, painted).apply(bad)


def test_one_set_of_boxes_is_not_known_and_unknown() -> None:
    found, truth = toy([0.9, 0.8])
    with pytest.raises(InvalidDataError, match="boxes of the validation images themselves"):
        SelfAware.fit(found, truth, replace(found))


def test_swapped_images_are_one_sentence_about_images() -> None:
    found, truth = toy([0.1, 0.2])
    with pytest.raises(InvalidDataError, match="accepts a validation image and rejects a painted"):
        SelfAware.fit(found, truth, replace(found, confidence=[0.9, 0.8]))
