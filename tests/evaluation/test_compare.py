"""Results are compared pair by pair, against definitions that share no code with them."""

import json
import shutil
from zlib import crc32

import numpy as np
import polars
import pytest
from sklearn.metrics import roc_auc_score
from tests.evaluation.box_worlds import CellDetector, box_benchmark
from tests.evaluation.worlds import TinyNet, pictures, tiny_benchmark
from typer.testing import CliRunner

import incognita
from incognita.cli.app import app
from incognita.errors import InvalidDataError
from incognita.evaluation import compare_results
from incognita.evaluation.finished_runs import find_runs, load_run

N = 50


def evaluate(out, seed=0, benchmark=None, methods="msp, energy", **more):
    return incognita.evaluate(
        TinyNet(seed).eval(), benchmark or tiny_benchmark(), methods, n_resamples=N,
        preprocess="none", out=out / "results", **more,
    )  # fmt: skip


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    root = tmp_path_factory.mktemp("runs")
    for seed in (0, 1):
        evaluate(root / f"net{seed}", seed, training_seed=seed)
    for seed in (0, 1):
        incognita.evaluate(
            CellDetector(),
            box_benchmark(), "msp, knn(k=1)", n_resamples=N, name=f"cells {seed}",
            boxes=incognita.BoxOptions(score_threshold=0.05 + 0.2 * seed),
            out=root / f"boxes{seed}" / "results", store=root / f"boxes{seed}" / "outputs",
        )  # fmt: skip
    return root


def result_of(folder, method):
    return next(folder.rglob(f"{method}-*.json"))


def scores(folder, method):
    return polars.read_parquet(result_of(folder, method).with_suffix(".parquet"))


def slow_auroc(frame, unknown: str) -> float:
    part = frame.filter(polars.col("set").cast(polars.String).is_in(["test", unknown]))
    return roc_auc_score((part["set"].cast(polars.String) == unknown), part["unknown_score"])


def test_a_difference_is_that_of_the_second_and_the_first(made):
    report = compare_results([made / "net0", made / "net1"])
    assert {(c.first, c.second) for c in report.comparisons} == {
        ("TinyNet (seed 0): msp", "TinyNet (seed 1): msp"),
        ("TinyNet (seed 0): energy", "TinyNet (seed 1): energy"),
    }
    assert report.is_complete
    comparison = next(c for c in report.comparisons if c.first.endswith("msp"))
    for unknown, split in (("a", "near/a"), ("c", "far/c")):
        ours, theirs = (slow_auroc(scores(made / f"net{k}", "msp"), unknown) for k in (0, 1))
        number = comparison.get("auroc", split)
        assert number.first == pytest.approx(ours)
        assert number.second == pytest.approx(theirs)
        assert number.difference.value == pytest.approx(theirs - ours)


def slow_replicates(frame, draws):
    """AUROC of near/a on drawn images, by pairs."""
    known = dict(frame.filter(polars.col("set").cast(polars.String) == "test")
                 .select("image_id", "unknown_score").iter_rows())  # fmt: skip
    unknown = dict(frame.filter(polars.col("set").cast(polars.String) == "a")
                   .select("image_id", "unknown_score").iter_rows())  # fmt: skip
    for known_ids, unknown_ids in draws:
        above = [
            (known[k] < unknown[u]) + (known[k] == unknown[u]) / 2
            for k in known_ids
            for u in unknown_ids
        ]
        yield float(np.mean(above))


def test_an_interval_is_that_of_differences_on_the_same_drawn_images(made):
    """The draw is repeated here image by image, and each replicate is scored by all pairs."""
    frames = [scores(made / f"net{k}", "energy") for k in (0, 1)]
    draws = []
    ids = {
        name: np.array(frames[0].filter(polars.col("set").cast(polars.String) == name)["image_id"]
                       .to_list())
        for name in ("test", "a")
    }  # fmt: skip
    rngs = {name: np.random.default_rng(crc32(name.encode())) for name in ids}
    for _ in range(N):
        drawn = {n: ids[n][rngs[n].integers(len(ids[n]), size=len(ids[n]))] for n in ids}
        draws.append((drawn["test"], drawn["a"]))
    first, second = (np.array(list(slow_replicates(frame, draws))) for frame in frames)
    low, high = np.quantile(second - first, [0.025, 0.975])
    paths = [result_of(made / f"net{k}", "energy") for k in (0, 1)]
    (comparison,) = compare_results(paths).comparisons
    number = comparison.get("auroc", "near/a")
    assert number.difference.low == pytest.approx(low)
    assert number.difference.high == pytest.approx(high)
    share = np.mean((np.sign(second - first) + 1) / 2)
    assert number.difference.share_above == pytest.approx(share)


def test_images_that_only_one_result_calls_unknown_are_counted_and_ranked(made):
    paths = [result_of(made / "net0", "msp"), result_of(made / "net1", "energy")]
    (comparison,) = compare_results(paths, n_images=1000).comparisons
    frames = [scores(made / "net0", "msp"), scores(made / "net1", "energy")]
    known = [f.filter(polars.col("set").cast(polars.String) == "test")["unknown_score"].to_list()
             for f in frames]  # fmt: skip
    taus = [sorted(values)[int(np.ceil(0.95 * len(values))) - 1] for values in known]
    expected, counts = {}, {}
    for row, other in zip(*(f.iter_rows(named=True) for f in frames), strict=True):
        assert row["image_id"] == other["image_id"]
        both = (row["unknown_score"], other["unknown_score"])
        calls = [score > tau for score, tau in zip(both, taus, strict=True)]
        if calls[0] != calls[1]:
            place = [np.mean(np.array(k) <= s) for k, s in zip(known, both, strict=True)]
            expected[row["set"], row["image_id"]] = (*place, "first" if calls[0] else "second")
            counts[row["set"]] = counts.get(row["set"], 0) + 1
    assert expected
    found = {(i.set, i.image_id): (i.first, i.second, i.called_unknown_by)
             for i in comparison.images}  # fmt: skip
    assert found.keys() == expected.keys()
    for key, (one, other, by) in expected.items():
        assert found[key][:2] == pytest.approx((one, other))
        assert found[key][2] == by
    assert {s.set: s.only_first + s.only_second for s in comparison.sets if
            s.only_first + s.only_second} == counts  # fmt: skip
    gaps = [abs(i.first - i.second) for i in comparison.images]
    assert gaps == sorted(gaps, reverse=True)


def test_a_difference_has_bounds_where_its_numbers_have(tmp_path):
    """Nine unknown images are too few for an interval, however equal two results are."""
    few = tiny_benchmark(unknown={"near": {"a": pictures("a", 9, seed=4)}})
    evaluate(tmp_path, 0, few)
    (comparison,) = compare_results([tmp_path]).comparisons
    number = comparison.get("auroc", "near/a")
    assert not np.isnan(number.difference.value)
    assert np.isnan(number.difference.low)
    assert number.verdict == ""
    assert not np.isnan(comparison.get("accuracy", "known").difference.low)


def test_methods_of_one_run_are_compared_with_the_best(made):
    run = made / "net0"
    report = compare_results([run])
    evaluation = load_run(find_runs(run)[0])
    best, other = evaluation.ranking()
    (comparison,) = report.comparisons
    assert comparison.first.endswith(best)
    gap = evaluation.gap_to_best(other)
    near, far = (comparison.get("auroc", split).difference for split in ("near", "far"))
    groups = [split.group for split in evaluation.groups]
    assert groups == ["near", "far"]
    assert (near.value + far.value) / 2 == pytest.approx(gap.value)


def test_a_result_against_itself_differs_nowhere(made, tmp_path):
    copy = shutil.copytree(made / "net0", tmp_path / "copy")
    (comparison,) = compare_results(
        [result_of(made / "net0", "msp"), result_of(copy, "msp")]
    ).comparisons
    for number in comparison.numbers:
        assert number.difference.value == 0 or np.isnan(number.first)
        assert number.verdict in ("=", "")
    assert not comparison.images


def test_other_images_are_compared_unpaired_and_it_is_said(made, tmp_path):
    others = tiny_benchmark(test=pictures("test", 60, seed=99, classes=3))
    evaluate(tmp_path, 1, others)
    done = CliRunner().invoke(
        app, ["compare", str(made / "net0"), str(tmp_path), "--methods", "msp", "--json"]
    )
    assert done.exit_code == 4
    (comparison,) = json.loads(done.stdout)["comparisons"]
    assert not comparison["paired"]
    assert comparison["images"] == comparison["disagreement"] == []
    assert "unpaired" in " ".join(comparison["notes"])
    number = next(n for n in comparison["numbers"] if n["split"] == "near/a")
    assert number["low"] < number["difference"] < number["high"]


def test_detectors_are_compared_on_the_same_replicates(made):
    report = compare_results([made / "boxes0", made / "boxes1"], methods=["knn(k=1)"])
    (comparison,) = report.comparisons
    assert comparison.is_paired
    stored = [incognita.results.load_results([made / f"boxes{k}"])[0] for k in (0, 1)]
    results = [next(r for _, r in found if r.method == "knn(k=1)") for found in stored]
    assert len(comparison.numbers) > 50
    for number in comparison.numbers:
        for result, value in zip(results, (number.first, number.second), strict=True):
            same = result.get(number.metric, number.split, number.convention).value
            assert value == pytest.approx(same, nan_ok=True)
    assert not np.isnan(comparison.get("auroc", "near").difference.low)


def test_images_in_which_one_detector_calls_a_box_unknown_are_named(made):
    paths = [result_of(made / "boxes0", m) for m in ("msp", "knn-k-1")]
    (comparison,) = compare_results(paths, n_images=1000).comparisons
    counted = []
    for path in paths:
        boxes = {}
        for row in polars.read_parquet(path.with_suffix(".parquet")).iter_rows(named=True):
            key = row["set"], row["image_id"]
            boxes[key] = boxes.get(key, 0) + row["is_called_unknown"]
        counted.append(boxes)
    expected = {
        key: (counted[0].get(key, 0), counted[1].get(key, 0))
        for key in counted[0] | counted[1]
        if (counted[0].get(key, 0) > 0) != (counted[1].get(key, 0) > 0)
    }
    assert {(i.set, i.image_id): (i.first, i.second) for i in comparison.images} == expected
    assert expected


def test_detectors_without_their_outputs_have_no_intervals(made, tmp_path):
    for k in (0, 1):
        shutil.copytree(made / f"boxes{k}" / "results", tmp_path / f"{k}" / "results")
    done = CliRunner().invoke(app, ["compare", str(tmp_path / "0"), str(tmp_path / "1")])
    assert done.exit_code == 4
    assert "no intervals" in " ".join(done.stdout.split())


@pytest.mark.parametrize("suffix", [".json", ".csv", ".txt"])
def test_a_comparison_is_printed_and_saved(made, tmp_path, suffix):
    out = tmp_path / f"compared{suffix}"
    line = ["compare", str(made / "net0"), str(made / "net1"), "--out", str(out)]
    done = CliRunner().invoke(app, line)
    assert done.exit_code == 0, done.output
    assert "second - first" in done.stdout
    assert "auroc" in out.read_text().lower()


def test_what_cannot_be_compared_is_one_sentence(made):
    with pytest.raises(InvalidDataError, match="Name a second run"):
        compare_results([result_of(made / "net0", "msp")])
    with pytest.raises(InvalidDataError, match="image rows"):
        compare_results([result_of(made / "net0", "msp"), result_of(made / "boxes0", "msp")])
    with pytest.raises(InvalidDataError, match="No run at"):
        compare_results([made / "net0"], methods=["nothing"])
