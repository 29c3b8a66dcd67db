"""The page of a classifier: its numbers are those of the evaluation, and of slow definitions."""

import math
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import polars
import pytest
from scipy import stats
from sklearn.metrics import roc_auc_score
from tests.report.toy_runs import CLASSES, toy_evaluation
from typer.testing import CliRunner

import incognita
from incognita.cli.app import app
from incognita.report import html_of, page_of
from incognita.report.classifier import best_in_words, run_names, tied_in, tied_with_best
from incognita.report.drawings import label_sides
from incognita.report.mistakes import (
    correlation_in_words,
    unknown_classes,
    worst_cases,
)
from incognita.report.score_figures import (
    histogram,
    known_threshold,
    roc_and_pr,
    some_methods,
)
from incognita.results.score_tables import ScoredSet

EVIL = "<script>alert(1)</script>"


@pytest.fixture(scope="module")
def run():
    return toy_evaluation(200)


@pytest.fixture(scope="module")
def page(run):
    return page_of(run)


def section(page, word):
    return next(s for s in page.sections if word in s.question)


def known_scores(run, title):
    return run.scores[title]["test"]


def test_the_answer_names_the_best_method_and_its_ties(run):
    assert best_in_words(run).startswith("knn tells unknown images apart best (AUROC ")
    assert best_in_words(run).endswith("mean of near and far); every other method is worse.")
    value = 100 * run.mean_auroc("knn")[0]
    assert f"AUROC {value:.1f} ± " in best_in_words(run)
    same = toy_evaluation(40, methods={"a": 0.5, "b": 0.5, "c": 0.5})
    tied = tied_with_best(same)
    assert tied
    assert best_in_words(same).endswith(f"it cannot be told apart from {' and '.join(tied)}.")


def test_an_answer_without_intervals_says_so():
    few = toy_evaluation(40, n_resamples=0)
    assert "too few images or replicates" in best_in_words(few)
    assert "±" not in best_in_words(few)
    alone = toy_evaluation(40, methods={"knn": 1.0})
    assert best_in_words(alone).startswith("knn tells unknown images apart with AUROC")


def test_the_table_shows_the_numbers_of_the_records(run, page):
    assert [row["method"].text for row in page.table.rows] == [
        r.title for r in run.distinct_results
    ]
    for row, record in zip(page.table.rows, run.distinct_results, strict=True):
        for group in ("near", "far"):
            found = record.get("auroc", group)
            cell = row[f"auroc {group}"]
            assert cell.value == found.value
            assert cell.text == f"{100 * found.value:.1f}"
            assert cell.margin == f"± {50 * (found.high - found.low):.1f}"
            assert f"{100 * found.low:.1f} to {100 * found.high:.1f}" in cell.note
    keys = {column.key for column in page.table.columns}
    assert all(set(row) - {"run"} <= keys for row in page.table.rows)


def test_the_best_of_a_column_are_those_a_loop_over_replicates_finds(run):
    for metric, sign in (("auroc", 1), ("fpr_at_95_unknown_recall", -1)):
        for group in run.groups:
            values = {t: sign * run.measured[t][metric, group] for t in run.methods}
            best = max(values, key=lambda title: values[title][0])
            expected = set()
            for title, mine in values.items():
                difference = mine[1:] - values[best][1:]
                high = np.quantile(difference, 0.975)
                if title == best or high >= 0 or (mine[0] - values[best][0]) >= 0:
                    expected.add(title)
            assert tied_in(run, metric, group) == expected


def test_the_area_under_the_drawn_curve_is_the_auroc_of_the_table(run):
    data = roc_and_pr(run, "knn")
    for group in ("near", "far"):
        curve = data.filter(polars.col("group") == group)
        area = np.trapezoid(curve["recall"], curve["false_alarms"]) / 1e4
        # 100 points of the curve are drawn
        assert area == pytest.approx(run.methods["knn"].get("auroc", group).value, abs=0.003)
    aurocs = [
        roc_auc_score(
            np.repeat([0, 1], 200), np.concatenate([known_scores(run, "knn"), run.scores["knn"][n]])
        )
        for n in ("foxes", "birds")
    ]
    assert run.methods["knn"].get("auroc", "near").value == pytest.approx(np.mean(aurocs))


def test_points_of_the_curves_are_what_counting_finds(run):
    """Each drawn point is a threshold: count what it flags, every set of a group weighing alike."""
    data = roc_and_pr(run, "msp").filter(polars.col("group") == "near")
    known = known_scores(run, "msp")
    sets = [run.scores["msp"][name] for name in ("foxes", "birds")]
    possible = {}
    for threshold in [*np.unique(np.concatenate([known, *sets])), np.inf]:
        recall = np.mean([np.mean(s >= threshold) for s in sets])
        alarms = np.mean(known >= threshold)
        flagged = 400 * recall + 200 * alarms
        precision = 400 * recall / flagged if flagged else None
        possible[round(100 * recall, 6), round(100 * alarms, 6)] = precision
    for recall, alarms, precision in data.select("recall", "false_alarms", "precision").rows():
        expected = possible[round(recall, 6), round(alarms, 6)]
        assert (precision is None) == (expected is None)
        if precision is not None:
            assert precision == pytest.approx(100 * expected)
    assert data["chance"][0] == pytest.approx(100 * 400 / 600)


def test_histograms_count_every_image_once(run):
    data = histogram(run, "knn", n_bins=10)
    for group, part in data.group_by("group"):
        assert part["share"].sum() == pytest.approx(100), group
    near = np.concatenate([run.scores["knn"][name] for name in ("foxes", "birds")])
    rows = data.filter(polars.col("group") == "near").rows(named=True)
    for k, row in enumerate(rows):
        low = -np.inf if k == 0 else row["low"]
        is_in = (near >= low) & ((near < row["high"]) if k < 9 else True)
        assert row["share"] == pytest.approx(100 * is_in.mean())


def test_equal_scores_still_have_a_histogram():
    same = toy_evaluation(40, methods={"constant": 0.0})
    for values in same.scores["constant"].values():
        values[:] = 2.0
    assert histogram(same, "constant")["share"].sum() == pytest.approx(400)


def test_shift_compares_both_settings(run, page):
    record = run.methods["knn"]
    plain = np.mean([record.get("auroc", g).value for g in ("near", "far")])
    full = np.mean([record.get("auroc", f"full-spectrum {g}").value for g in ("near", "far")])
    sentence = section(page, "shift").sentence
    assert f"from {100 * plain:.1f} ±" in sentence
    assert f"to {100 * full:.1f} ±" in sentence
    threshold = known_threshold(known_scores(run, "knn"))
    flagged = np.mean(run.scores["knn"]["fog"] > threshold)
    assert f"{100 * flagged:.1f} ±" in sentence
    chart = section(page, "shift").parts[0]
    assert chart.data.row(0, named=True)["standard"] == pytest.approx(100 * plain)


def test_without_shifted_images_the_page_says_so():
    page = page_of(toy_evaluation(40, with_shifted=False))
    assert not [s for s in page.sections if "shift" in s.question]
    assert "the benchmark has no shifted images" in section(page, "not on this page").sentence
    assert "no search was run" in section(page, "not on this page").sentence


def test_a_full_spectrum_page_says_what_counts_as_known():
    page = page_of(toy_evaluation(40, full_spectrum=True))
    assert "shifted images counting as known" in page.answer
    assert {c.convention for c in page.table.columns if c.key.startswith("auroc")} == {
        "shifted images count as known"
    }


def test_refusing_lowers_the_risk_as_counted(run, page):
    test = run.sets[0]
    is_wrong = test.predicted != test.labels
    sentence = section(page, "refusing").sentence
    assert f"answered, {100 * is_wrong.mean():.1f} ±" in sentence
    data = section(page, "refusing").parts[0].data.filter(polars.col("method") == "best possible")
    best = data.filter(polars.col("coverage") < 100 * (1 - is_wrong.mean()) - 1)
    assert best["risk"].max() == 0


def test_unknown_classes_are_counted_one_by_one(run):
    threshold = known_threshold(known_scores(run, "knn"))
    rows = unknown_classes(run, "knn", threshold, CLASSES)
    assert [row.flagged.value for row in rows] == sorted(row.flagged.value for row in rows)
    assert {row.name for row in rows} == {"fox", "wolf", "owl", "hammer", "saw"}
    for row in rows:
        scored = next(s for s in run.sets if s.name == row.set)
        n = n_flagged = 0
        called = dict.fromkeys(CLASSES, 0)
        for k, name in enumerate(scored.source_classes):
            if name == row.name:
                n += 1
                n_flagged += run.scores["knn"][row.set][k] > threshold
                called[CLASSES[scored.predicted[k]]] += 1
        assert (row.flagged.n, row.flagged.n_counted) == (n, n_flagged)
        assert dict(row.predicted) == {k: v for k, v in called.items() if v}
        assert called[row.taken_for] == max(called.values())


def test_five_percent_of_known_images_are_flagged():
    scores = np.arange(1000.0)
    assert np.mean(scores > known_threshold(scores)) == 0.05


def test_correlations_of_meaning_are_scipys():
    rng = np.random.default_rng(0)
    similarity = rng.random(40)
    score = -similarity + 0.3 * rng.random(40)
    expected = stats.spearmanr(similarity, score)
    text = correlation_in_words(similarity, score)
    assert f"rank correlation {expected.statistic:.2f}" in text
    assert "harder to flag" in text
    low, high = (
        math.tanh(math.atanh(expected.statistic) + s * 1.96 * math.sqrt(1.06 / 37)) for s in (-1, 1)
    )
    assert f"{low:.2f} to {high:.2f}" in text
    assert "cannot be said" in correlation_in_words(similarity, rng.random(40))
    assert "too few unknown classes, 3," in correlation_in_words(similarity[:3], score[:3])


def test_classes_without_a_meaning_are_said_to_have_none():
    names = {"near": {"odd": ("qwrtz", "xyzzy")}}
    page = page_of(toy_evaluation(40, names=names))
    assert "This cannot be said here" in section(page, "meaning").sentence


def test_runs_that_hold_little_still_have_a_page():
    """No class names, no true classes, one image per set, equal or huge scores."""
    nameless = toy_evaluation(30)
    del nameless.metadata["classes"]
    assert "does not name all of its known" in section(page_of(nameless), "meaning").sentence
    bare = toy_evaluation(30)
    sets = [ScoredSet(s.name, s.group, s.image_ids, s.predicted, None) for s in bare.sets]
    bare = replace(bare, sets=tuple(sets))
    assert "not stored with this run" in section(page_of(bare), "confused").sentence
    without_scores = replace(bare, sets=(), scores={}, measured={})
    same = toy_evaluation(30)
    for scores in (s for mine in same.scores.values() for s in mine.values()):
        scores[:] = 1.0
    huge = toy_evaluation(30)
    for scores in (s for mine in huge.scores.values() for s in mine.values()):
        scores[:2] = 1e300, -1e300
    for run in (bare, without_scores, same, huge, toy_evaluation(1)):
        assert page_of(run).answer.startswith(("knn", "energy", "msp")), page_of(run).answer
        assert len(html_of(run)) > 10_000


def test_the_worst_cases_are_the_extremes_of_every_set(run):
    cases = {title: found for title, _, found in worst_cases(run, "knn")}
    near = cases["Unknown taken for known: near"]
    assert [case.scored.name for case in near[:2]] == ["foxes", "birds"]
    for name in ("foxes", "birds"):
        lowest = np.sort(run.scores["knn"][name])[: len(near) // 2]
        assert [case.score for case in near if case.scored.name == name] == lowest.tolist()
    known = cases["Known taken for unknown: known"]
    assert [case.score for case in known] == np.sort(known_scores(run, "knn"))[::-1][:12].tolist()
    for case in cases["Wrong answers with a low score"]:
        assert case.scored.predicted[case.place] != case.scored.labels[case.place]


def test_images_that_cannot_be_loaded_are_said_to_be_missing(page):
    sentence = section(page, "fail on").sentence
    assert sentence.startswith("The images cannot be shown: The images of toy/animals are not here")


def test_several_runs_are_compared(run):
    other = toy_evaluation(60, methods={"knn": 0.2, "vim": 0.9}, seed=1)
    other.metadata["model"] = "OtherNet"
    page = page_of([run, other])
    assert run_names([run, other]) == ["ToyNet", "OtherNet"]
    assert "knn for ToyNet" in page.answer
    assert "vim for OtherNet" in page.answer
    assert len(page.table.rows) == 5
    grid = section(page, "every run").parts[0].data
    assert set(grid["run"]) == {"ToyNet", "OtherNet"}
    cell = grid.filter((polars.col("run") == "OtherNet") & (polars.col("method") == "knn"))
    assert cell["auroc"].item() == pytest.approx(100 * other.mean_auroc("knn")[0])
    assert run_names([run, run]) == ["ToyNet (1)", "ToyNet (2)"]


def test_a_search_has_its_curve():
    page = page_of(toy_evaluation(40, searched=("knn",)))
    found = section(page, "parameters matter")
    assert "from 60.0 to 80.0" in found.sentence
    assert found.parts[0].data["auroc"].to_list() == [60.0, 80.0]


def test_a_stored_run_becomes_the_page_of_its_evaluation(tmp_path):
    """Digits are embedded, so that their pictures can be loaded again."""
    options = {"benchmark": "digits/standard", "limit": 40, "n_resamples": 30, "search": True}
    report = incognita.evaluate(methods="msp, mds", out=tmp_path / "results", **options)
    done = CliRunner().invoke(app, ["report", str(tmp_path), "--out", str(tmp_path / "page.html")])
    assert done.exit_code == 0, done.output
    html = (tmp_path / "page.html").read_text()
    assert html == html_of(report)
    page = page_of(report)
    assert page.answer == best_in_words(report)
    galleries = section(page, "fail on").parts
    assert sum(len(gallery.pictures) for gallery in galleries) > 20
    assert html.count("data:image/webp") == sum(len(g.pictures) for g in galleries)
    assert ("model", "digits-classifier") in page.facts
    hashes = next(text for label, text in page.footer if label.startswith("hashes"))
    assert str(report.metadata["weights"]) in hashes
    assert [label for label, _ in page.footer][-1] == "page"


def test_no_method_is_a_sentence(run):
    empty = replace(run, methods={}, scores={}, measured={}, failed={"knn": "it broke"})
    assert page_of(empty).answer == "No method gave a number."
    assert ("failed", "knn: it broke") in page_of(empty).notes


def test_baseline_is_shown_beside_the_best(run):
    assert some_methods(run, 1) == ["knn"]
    many = toy_evaluation(40, methods={f"m{k}": 1.0 for k in range(6)} | {"msp": 0.0})
    assert some_methods(many, 4)[-1] == "msp"
    assert len(some_methods(many, 4)) == 4


class Tags(HTMLParser):
    def __init__(self, html):
        super().__init__()
        self.tags = []
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))


def test_names_of_strangers_do_no_harm_on_the_page():
    names = {"near": {EVIL: (EVIL, "../../etc/passwd")}}
    run = toy_evaluation(
        40, classes=(EVIL, '"><img src=x onerror=alert(1)>', "\x00\ud800"), names=names
    )
    run.metadata["model"] = EVIL
    html = html_of(run)
    tags = Tags(html).tags
    assert sum(tag == "script" for tag, _ in tags) == 1
    assert not [a for _, attrs in tags for a in attrs if a.startswith("on")]
    assert all(attrs.get("src", "data:").startswith("data:") for _, attrs in tags)
    html.encode()


def test_labels_cover_neither_points_nor_each_other():
    rng = np.random.default_rng(0)
    places = rng.random((40, 2)) * [380, 260]
    widths = rng.integers(20, 90, 40).astype(float)
    sides = label_sides(places, list(widths))
    assert set(sides) <= {-1, 0, 1}
    assert sum(map(abs, sides)) >= 5
    boxes = []
    for (x, y), width, side in zip(places, widths, sides, strict=True):
        if side:
            left = x + 4 if side == 1 else x - 4 - width
            boxes.append((left, left + width, y))
            for px, py in places:
                assert not (left < px < left + width and abs(py - y) < 6), "a label covers a point"
    for i, a in enumerate(boxes):
        for b in boxes[:i]:
            assert a[1] <= b[0] or b[1] <= a[0] or abs(a[2] - b[2]) >= 13
