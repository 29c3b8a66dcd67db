"""Guards: what they expect, what they decide, and how they travel."""

import json
import math
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.stats import binomtest
from tests.evaluation.worlds import TinyNet as StripesNet
from tests.evaluation.worlds import tiny_benchmark
from tests.extraction.tiny import TinyClassifier, images
from tests.extraction.tiny_detector import GridDetector
from tests.oracles import guards as oracle

import incognita
from incognita import ClassifierOutputs, Head
from incognita.containers import Needs
from incognita.decisions import Guard
from incognita.decisions.guard import share_of
from incognita.errors import InvalidDataError, MissingDataError
from incognita.extraction.extract import extract, run_on_images
from incognita.methods import Method, load_method
from incognita.models.detector import BoxFilter

D, N_CLASSES = 12, 4
NAMES = ("cat", "dog", "owl", "bee")
ON_LOGITS = ("msp", "max-logit", "energy", "entropy", "gen", "temperature", "kl-matching", "mcm")
ON_FEATURES = ("mds", "rmds", "ssd", "she", "residual", "ddu")
ON_BOTH = ("react", "dice", "ash-p", "ash-s", "ash-b", "scale", "vra", "vim", "gradnorm", "fdbd")


QUICK = ("energy", "react", "ash-s", "mds")  # an export takes a second or two
EXPORTED = [
    pytest.param(name, marks=[] if name in QUICK else [pytest.mark.slow])
    for name in (*ON_LOGITS, *ON_FEATURES, *ON_BOTH)
]


def toy(n: int, *, seed: int, shift: float = 0.0) -> ClassifierOutputs:
    rng = torch.Generator().manual_seed(seed)
    world = torch.Generator().manual_seed(99)
    centers = 2 * torch.randn(N_CLASSES, D, generator=world)
    labels = torch.randint(0, N_CLASSES, (n,), generator=rng)
    features = (centers[labels] + (1 + shift) * torch.randn(n, D, generator=rng) - shift).relu()
    head = Head(centers / D**0.5, torch.linspace(-0.5, 0.5, N_CLASSES))
    return ClassifierOutputs(
        tuple(f"{seed}-{k}" for k in range(n)), head(features), features, labels, head
    )


KNOWN, HELD_OUT, UNKNOWN = toy(300, seed=1), toy(201, seed=2), toy(80, seed=3, shift=0.8)


def guard(name: str = "energy", **options: object) -> Guard:
    return Guard.fit(load_method(name).fit(KNOWN), HELD_OUT, UNKNOWN, **options)


# ------------------------------------------------------------------------ what it expects


@pytest.mark.parametrize(("count", "n"), [(0, 7), (1, 9), (95, 100), (60, 60), (4000, 5000)])
@pytest.mark.parametrize("level", [0.9, 0.95, 0.99])
def test_the_interval_of_a_share_is_that_of_scipy(count, n, level):
    found = share_of(count, n, level=level)
    expected = binomtest(count, n).proportion_ci(level, method="wilson")
    assert found.value == count / n
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high), abs=1e-12)


def test_boxes_of_one_image_do_not_narrow_an_interval():
    of_images = binomtest(8, 10).proportion_ci(0.95, method="wilson")
    found = share_of(80, 100, n_units=10)
    assert (found.low, found.high) == pytest.approx((of_images.low, of_images.high), abs=1e-12)


def test_a_share_of_nothing_may_be_anything():
    found = share_of(0, 0)
    assert math.isnan(found.value)
    assert (found.low, found.high) == (0, 1)


@pytest.mark.parametrize("policy", ["quantile(share=0.9)", "gaussian", "harmonic-mean", -3.0])
def test_the_expected_shares_are_those_of_the_definition(policy):
    found = guard(policy=policy)
    known = [oracle.energy(row) for row in HELD_OUT.logits.double().tolist()]
    unknown = [oracle.energy(row) for row in UNKNOWN.logits.double().tolist()]
    tau = found.threshold.value
    at_tau = [s for s in known + unknown if abs(s - tau) < 1e-9]
    # the oracle's own rounding must not decide about the row at the threshold
    tau = max([tau, *at_tau])
    predicted = [row.index(max(row)) for row in HELD_OUT.logits.tolist()]
    counts = oracle.operating_point(known, tau, predicted, HELD_OUT.labels.tolist(), unknown)
    for name, (count, n) in counts.items():
        share = getattr(found.expected, name)
        assert (share.n_counted, share.n) == (count, n), name
        bounds = binomtest(count, n).proportion_ci(0.95, method="wilson")
        assert (share.low, share.high) == pytest.approx((bounds.low, bounds.high), abs=1e-12)
    assert counts["risk"][0] > 0  # otherwise the labels were not looked at


def test_without_labels_there_is_no_risk_and_without_unknown_rows_no_share_of_them():
    found = Guard.fit(load_method("energy"), replace(HELD_OUT, labels=None))
    assert found.expected.risk is None
    assert found.expected.unknown_rejected is None
    assert found.expected.coverage.value >= 0.95


def test_other_rows_can_be_measured():
    found, other = guard(), toy(150, seed=7)
    measured = found.measure(other, UNKNOWN)
    assert measured.coverage.n == 150
    assert measured.coverage.n_counted == int(found.check(other).accepted.sum())
    assert measured.unknown_rejected == found.expected.unknown_rejected


# ------------------------------------------------------------------------ what it decides


def test_a_row_with_the_score_of_the_threshold_is_accepted():
    found = guard("max-logit", policy="quantile(share=0.5)")
    answer = found.check(HELD_OUT)
    is_equal = answer.unknown_score == found.threshold.value
    assert is_equal.any()
    assert answer.accepted[is_equal].all()
    assert (answer.accepted == (answer.unknown_score <= found.threshold.value)).all()


def test_react_scores_as_the_definition_does():
    method = load_method("react").fit(KNOWN)
    answer = Guard.fit(method, HELD_OUT).check(HELD_OUT)
    head = KNOWN.head
    expected = [
        oracle.react(row, method.threshold_, head.weight.tolist(), head.bias.tolist())
        for row in HELD_OUT.features.tolist()
    ]
    assert answer.unknown_score == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("name", [*ON_LOGITS, *ON_FEATURES, *ON_BOTH, "knn", "react+knn"])
def test_one_image_a_batch_and_the_method_itself_agree(name):
    found = guard(name)
    batch = found.check(UNKNOWN)
    assert batch.unknown_score == pytest.approx(found.method.score(UNKNOWN).numpy(), rel=1e-12)
    for row in (0, 41):
        one = found.check(UNKNOWN[torch.arange(len(UNKNOWN)) == row])
        assert one.unknown_score[0] == pytest.approx(batch.unknown_score[row], rel=1e-12)
        assert one.accepted.shape == (1,)
        assert one.predicted[0] == UNKNOWN.logits[row].argmax()


def test_names_of_classes_are_those_of_the_largest_logits():
    answer = guard(class_names=NAMES).check(UNKNOWN)
    assert answer.names == tuple(NAMES[row.index(max(row))] for row in UNKNOWN.logits.tolist())
    assert guard().check(UNKNOWN).names is None


def test_the_head_is_that_of_the_fit_even_if_the_model_is_trained_further():
    known = replace(HELD_OUT, head=Head(KNOWN.head.weight.clone(), KNOWN.head.bias.clone()))
    found = Guard.fit(load_method("react").fit(KNOWN), known)
    before = found.check(replace(UNKNOWN, head=None)).unknown_score
    known.head.weight.mul_(3)
    assert (found.check(UNKNOWN).unknown_score == before).all()


def test_nothing_is_decided_about_no_image():
    answer = guard().check(ClassifierOutputs.empty(N_CLASSES))
    assert answer.accepted.shape == answer.unknown_score.shape == (0,)


def test_latency_is_that_of_one_row():
    found = guard().latency(UNKNOWN, n_calls=5)
    assert 0 < found.median_ms <= found.largest_ms
    assert found.n_calls == 5
    with pytest.raises(InvalidDataError, match="at least one image to time, got none"):
        guard().latency(ClassifierOutputs.empty(N_CLASSES))


# ------------------------------------------------------------------------- live images


def test_a_wrapped_classifier_decides_about_live_images():
    model, seen = TinyClassifier(), images(30)
    outputs = extract(model, seen).outputs
    method = load_method("react").fit(outputs)
    found = Guard.fit(method, outputs, class_names=model.class_names)
    answer = found.wrap(model)(list(seen.images[:4]))
    expected = found.check(outputs[torch.arange(30) < 4])
    assert answer.unknown_score == pytest.approx(expected.unknown_score, rel=1e-4)
    assert answer.names == expected.names
    assert found.wrap(model)(seen.images[0]).accepted.shape == (1,)


def test_a_method_on_layers_gets_them_from_a_wrapped_model():
    model, seen = TinyClassifier(), images(30)
    outputs = extract(model, seen, layers=True).outputs
    found = Guard.fit(load_method("mds-ensemble").fit(outputs), outputs)
    assert found.wrap(model)(list(seen.images[:3])).unknown_score.shape == (3,)


def test_boxes_of_a_detector_are_decided_one_by_one():
    detector, seen = GridDetector(rules=BoxFilter(0.0, 100, None)), images(12, size=32)
    outputs = extract(detector, seen).outputs
    found = Guard.fit(load_method("energy"), outputs, class_names=detector.class_names)
    n_with_boxes = len({int(k) for k in outputs.detections.image_index})
    boxes = len(outputs)
    count = found.expected.coverage.n_counted
    expected = share_of(count, boxes, n_units=n_with_boxes)
    assert boxes > n_with_boxes
    assert found.expected.coverage == expected
    assert found.expected.risk is None  # the labels of its rows are what it predicts itself
    answer = found.wrap(detector)(list(seen.images[:2]))
    assert len(answer.detections) == len(answer.accepted) == len(answer.names)
    kept = answer.detections[answer.accepted]
    assert len(kept) == answer.accepted.sum()


def test_a_model_of_other_classes_is_refused():
    model = TinyClassifier()
    outputs = run_on_images(model, list(images(9).images))
    found = Guard.fit(load_method("energy"), outputs, class_names=tuple("abcde"))
    with pytest.raises(InvalidDataError, match=r"5 classes of the guard \(a, b, c, d, e\), got 5"):
        found.wrap(model)
    with pytest.raises(InvalidDataError, match=r"4 classes of the guard \(not named\), got 5"):
        guard().wrap(model)


def test_what_cannot_be_run_is_refused():
    with pytest.raises(InvalidDataError, match=r"to guard, got Linear. Wrap the network by"):
        guard().wrap(torch.nn.Linear(2, 2))
    bare = incognita.wrap_classifier(StripesNet(), example=torch.zeros(1, 3, 8, 8))
    found = Guard.fit(load_method("energy"), ClassifierOutputs((0, 1), torch.eye(2, 3)))
    with pytest.raises(InvalidDataError, match=r"which states none. Pass preprocess="):
        found.wrap(bare)


# ------------------------------------------------------------------------------ bad input


def test_a_method_that_is_not_fitted_is_refused(outside_tests):
    with pytest.raises(InvalidDataError, match="KNN is not fitted yet; call fit"):
        Guard.fit(load_method("knn"), HELD_OUT)
    with pytest.raises(InvalidDataError, match="Expected a fitted method, got 'knn'"):
        Guard.fit("knn", HELD_OUT)


def test_outputs_without_what_the_method_needs_are_refused(outside_tests):
    found = guard("mds")
    found.check(UNKNOWN)  # columns that were checked once are not checked again
    with pytest.raises(InvalidDataError, match="MDS needs features, but the outputs have none"):
        found.check(replace(UNKNOWN, features=None, head=None))
    with pytest.raises(InvalidDataError, match="fitted on features with 12 columns, got features"):
        found.check(replace(UNKNOWN, features=torch.zeros(80, 5), head=None))
    with pytest.raises(InvalidDataError, match="4 classes of the guard, got 3"):
        found.check(ClassifierOutputs(("a",), torch.zeros(1, 3)))
    with pytest.raises(InvalidDataError, match=r"to check, got Tensor. Wrap the logits"):
        found.check(torch.zeros(1, 4))


def test_names_and_levels_must_fit(outside_tests):
    with pytest.raises(InvalidDataError, match="names of 4 classes, as many as there are logits"):
        guard(class_names=("cat",))
    with pytest.raises(InvalidDataError, match=r"level between 0 and 1, such as 0.95, got 95"):
        guard(level=95)
    with pytest.raises(InvalidDataError, match="harmonic-mean needs scores of known and of unkno"):
        Guard.fit(load_method("energy"), HELD_OUT, policy="harmonic-mean")


@dataclass(eq=False)
class Broken(Method):
    """Returns a score that nothing should be decided by."""

    value: float = math.nan
    needs = Needs.LOGITS

    def score_rows(self, rows):
        return torch.where(rows.logits[:, 0] > 100, self.value, 0.0).double()


@pytest.mark.parametrize("value", [math.nan, -math.inf])
def test_a_score_that_is_not_finite_is_not_decided_by(value):
    found = Guard.fit(Broken(value), HELD_OUT)
    logits = torch.tensor([[0.0, 1, 2, 3], [200.0, 1, 2, 3]])
    with pytest.raises(InvalidDataError, match=r"finite score of Broken, got .* for row 1 \(b\)"):
        found.check(ClassifierOutputs(("a", "b"), logits))


# -------------------------------------------------------------------------------- on disk


@pytest.mark.parametrize("name", ["energy", "knn", "react", "react+knn", "mds", "vim"])
def test_a_loaded_guard_decides_as_the_saved_one(tmp_path, name):
    found = guard(name, class_names=NAMES)
    found.save(tmp_path / "guard.json")
    same = Guard.load(tmp_path / "guard.json")
    assert same.expected == found.expected
    assert same.threshold == found.threshold
    mine, other = (
        g.check(replace(UNKNOWN, head=None) if g.head else UNKNOWN) for g in (found, same)
    )
    assert (mine.unknown_score == other.unknown_score).all()
    assert (mine.accepted == other.accepted).all()
    assert mine.names == other.names
    assert json.loads((tmp_path / "guard.json").read_text())["format"] == "incognita.guard.1"


def test_undefined_shares_survive_the_disk(tmp_path):
    found = Guard.fit(load_method("energy"), HELD_OUT, policy=-1e9)
    assert found.expected.coverage.value == 0
    found.save(tmp_path / "guard.json")
    risk = Guard.load(tmp_path / "guard.json").expected.risk
    assert math.isnan(risk.value)
    assert risk[1:] == (0.0, 1.0, 0, 0)


def test_a_user_defined_method_is_loaded_by_its_class_only(tmp_path):
    Guard.fit(Broken(0.5), HELD_OUT).save(tmp_path / "guard.json")
    with pytest.raises(InvalidDataError, match="which is not registered; pass that class"):
        Guard.load(tmp_path / "guard.json")
    assert Guard.load(tmp_path / "guard.json", kinds=[Broken]).method.value == 0.5


def test_damaged_files_are_refused(tmp_path):
    path = tmp_path / "guard.json"
    guard("react").save(path)
    whole = path.read_text()
    head = path.with_suffix(".head.safetensors")
    content = head.read_bytes()
    head.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(InvalidDataError, match=r"head.safetensors is damaged or of another guard"):
        Guard.load(path)
    head.unlink()
    with pytest.raises(MissingDataError, match="There is no file at"):
        Guard.load(path)
    head.write_bytes(content)
    for field in ("threshold", "expected", "n_classes", "sha256"):
        record = json.loads(whole)
        del record[field]
        path.write_text(json.dumps(record))
        with pytest.raises(InvalidDataError, match="is damaged"):
            Guard.load(path)
    path.write_text(json.dumps(json.loads(whole) | {"sha256": {}}))  # nothing to compare with
    with pytest.raises(InvalidDataError, match="is damaged"):
        Guard.load(path)
    path.write_text(whole[: len(whole) // 2])
    with pytest.raises(InvalidDataError, match="broken or incomplete JSON"):
        Guard.load(path)
    path.write_text('{"format": "incognita.guard.9"}')
    with pytest.raises(InvalidDataError, match=r"format 'incognita.guard.1' in .*got 'incognita.g"):
        Guard.load(path)
    with pytest.raises(InvalidDataError, match=r"ends in \.json, got guard\.pt"):
        Guard.load("guard.pt")


# ---------------------------------------------------------------------- stored results


@pytest.fixture(scope="module")
def results(tmp_path_factory) -> dict[str, Path]:
    """The results of three methods on a small benchmark, by name."""
    folder = tmp_path_factory.mktemp("results")
    benchmark = tiny_benchmark()
    model = incognita.wrap_classifier(
        StripesNet(),
        preprocess="size=8 crop=8",
        class_names=benchmark.classes,
        example=torch.zeros(1, 3, 8, 8),
    )
    methods = ["energy", "knn(k=5)", "react+knn(k=5)"]
    incognita.evaluate(model, benchmark, methods=methods, out=folder)
    found = {json.loads(p.read_text())["method"]: p for p in folder.rglob("*.json")}
    assert set(found) == set(methods)
    return found


def test_a_guard_of_a_result_has_the_shares_of_its_table(results):
    import polars

    path = results["energy"]
    found = Guard.from_result(path, policy="quantile(share=0.9)")
    rows = polars.read_parquet(path.with_suffix(".parquet")).to_dicts()
    known = [row for row in rows if row["group"] == "known"]
    unknown = [row["unknown_score"] for row in rows if row["group"] in ("near", "far")]
    counts = oracle.operating_point(
        [row["unknown_score"] for row in known],
        found.threshold.value,
        [row["predicted"] for row in known],
        [row["label"] for row in known],
        unknown,
    )
    for name, (count, n) in counts.items():
        share = getattr(found.expected, name)
        assert (share.n_counted, share.n) == (count, n), name
    assert counts["coverage"] == (54, 60)
    assert counts["unknown_rejected"][1] == 75
    assert found.class_names == ("red", "green", "blue")
    assert found.check(ClassifierOutputs(("a",), torch.eye(3)[:1])).names == ("red",)


def test_a_result_of_a_method_that_learns_needs_the_fitted_method(results):
    with pytest.raises(InvalidDataError, match=r"learns from known outputs, which knn.* does"):
        Guard.from_result(results["knn(k=5)"])
    outputs = toy(60, seed=5)
    for text, name in (("knn(k=5)", "knn"), ("react+knn(k=5)", "react+knn")):
        fitted = load_method(name)
        (fitted if name == "knn" else fitted.scorer).k = 5
        found = Guard.from_result(results[text], fitted.fit(outputs))
        assert found.expected.coverage.n == 60
    with pytest.raises(InvalidDataError, match=r"Expected knn\(k=5\) with .*got KNN with"):
        Guard.from_result(results["knn(k=5)"], load_method("knn", k=6).fit(outputs))
    with pytest.raises(InvalidDataError, match=r"Expected energy with .*got MSP with"):
        Guard.from_result(results["energy"], load_method("msp"))


def test_a_changed_table_and_other_files_are_refused(results, tmp_path):
    source, path = results["energy"], tmp_path / "energy.json"
    path.write_text(source.read_text())
    with pytest.raises(MissingDataError, match="There is no file at"):
        Guard.from_result(path)
    table = source.with_suffix(".parquet").read_bytes()
    path.with_suffix(".parquet").write_bytes(table[:-9])
    with pytest.raises(InvalidDataError, match=r"not the table that was stored with energy.json"):
        Guard.from_result(path)
    path.write_text("[]")
    with pytest.raises(InvalidDataError, match="a result that `incognita run` stored"):
        Guard.from_result(path)


# ----------------------------------------------------------------------------------- ONNX


@pytest.mark.parametrize("name", EXPORTED)
def test_an_exported_guard_decides_as_the_guard(tmp_path, name):
    pytest.importorskip("onnxscript", reason="needs the extra onnx")
    runtime = pytest.importorskip("onnxruntime", reason="needs the extra onnx")
    found, rows = guard(name, policy="quantile(share=0.5)"), toy(40, seed=8, shift=0.4)
    found.to_onnx(tmp_path / "guard.onnx", rows)
    session = runtime.InferenceSession((tmp_path / "guard.onnx").read_bytes())
    other = toy(40, seed=9, shift=0.4)  # rows that it was not exported with
    given = {"logits": other.logits.numpy(), "features": other.features.numpy()}
    columns = {x.name: given[x.name] for x in session.get_inputs()}
    score, accepted, predicted = session.run(["unknown_score", "accepted", "predicted"], columns)
    expected = found.check(other)
    near_zero = 1e-6 if name == "vim" else 1e-12  # a difference, of which one factor is rounded
    assert score == pytest.approx(expected.unknown_score, rel=1e-6, abs=near_zero)
    is_clear = ~np.isclose(expected.unknown_score, found.threshold.value, rtol=1e-5, atol=0)
    assert is_clear.sum() > 30
    assert (accepted == expected.accepted)[is_clear].all()
    assert 0 < accepted.sum() < 40
    assert (predicted == expected.predicted).all()


def test_what_onnx_cannot_hold_is_refused_and_leaves_no_file(tmp_path):
    pytest.importorskip("onnxscript", reason="needs the extra onnx")
    with pytest.raises(InvalidDataError, match="KNN cannot be written as ONNX: torch cannot exp"):
        guard("knn").to_onnx(tmp_path / "guard.onnx", UNKNOWN)
    model = TinyClassifier()
    outputs = extract(model, images(30), layers=True).outputs
    found = Guard.fit(load_method("mds-ensemble").fit(outputs), outputs)
    with pytest.raises(InvalidDataError, match="MDSEnsemble, which uses other outputs"):
        found.to_onnx(tmp_path / "guard.onnx", outputs)
    assert list(tmp_path.iterdir()) == []
