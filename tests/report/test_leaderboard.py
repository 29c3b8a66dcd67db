"""A leaderboard ranks what can be told apart, verifies what it shows, refuses what is wrong."""

import csv
import io
import json
import math
import os
import re
import shutil
import statistics
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from html.parser import HTMLParser
from http.client import HTTPConnection
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import polars
import pytest
from sklearn.metrics import roc_auc_score
from tests.report.simulated_runs import simulate, simulate_boxes
from typer.testing import CliRunner

from incognita.cli.app import app
from incognita.cli.leaderboard import make_server
from incognita.errors import InvalidDataError
from incognita.methods import list_methods
from incognita.metrics.measure import Interval
from incognita.report.leaderboard import apart_by_interval, apart_by_pairs, boards_of, collect
from incognita.report.leaderboard_site import (
    Site,
    as_csv,
    as_json,
    file_slug,
    method_docs,
    number_columns,
    row_id,
    save_site,
)
from incognita.report.prose import as_mathml, paragraphs

METHODS = {"knn": 2.0, "msp": 1.0, "energy": 1.0, "mds": 0.2}
EVIL = "<script>alert(1)</script>"
PAGE = f"benchmarks/{file_slug('simulated-v1')}.html"


def boards(*roots, **options):
    return boards_of(collect(roots, **options).entries)


def only_board(*roots, **options):
    ((board,),) = [b.boards for b in boards(*roots, **options)]
    return board


def ranks(board):
    return {row.title: rank for row, rank in zip(board.rows, board.ranks, strict=True)}


def command(*arguments):
    return CliRunner().invoke(app, ["leaderboard", *map(str, arguments)])


def site(*roots, **options):
    return Site(collect(roots), has_reports=False, **options).files()


class Links(HTMLParser):
    """Where a page leads to, and what it holds."""

    def __init__(self, html):
        super().__init__()
        self.hrefs, self.ids, self.tags = [], [], []
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        self.tags.append(tag)
        self.hrefs += [found["href"]] if "href" in found else []
        self.ids += [found["id"]] if "id" in found else []


# --- ranks


def slow_apart(values):
    """The rule in plain loops: larger on the data, and in 97.5 % of the replicates; ties half."""
    n = len(values)
    better = [[False] * n for _ in range(n)]
    for i in range(n):
        for j in range(n):
            wins = sum(
                1 if a > b else 0.5 if a == b else 0
                for a, b in zip(values[i][1:], values[j][1:], strict=True)
            )
            is_often = wins >= 0.975 * (len(values[i]) - 1)
            better[i][j] = bool(values[i][0] > values[j][0] and is_often)
    return better


@pytest.mark.parametrize("seed", range(5))
def test_pairs_are_told_apart_as_the_rule_says(seed):
    rng = np.random.default_rng(seed)
    shared = rng.normal(size=41)
    values = np.round(shared + rng.normal(0, 0.5, (9, 41)) + rng.normal(size=(9, 1)), 1)
    assert apart_by_pairs(values).tolist() == slow_apart(values.tolist())
    assert any(map(any, slow_apart(values.tolist())))


def test_intervals_that_touch_are_not_apart():
    bounds = [
        Interval(0.5, 0.6),
        Interval(0.4, 0.5),
        Interval(0.3, 0.49),
        Interval(math.nan, math.nan),
    ]
    assert np.argwhere(apart_by_interval(bounds)).tolist() == [[0, 2]]


def test_methods_that_cannot_be_told_apart_share_a_rank(tmp_path):
    simulate(tmp_path, METHODS)
    found = ranks(only_board(tmp_path))
    assert found["knn"] == 1
    assert found["msp"] == found["energy"] == 2
    assert found["mds"] == 4


def test_pairs_are_told_apart_where_intervals_are_not(tmp_path):
    simulate(tmp_path, {"knn": 1.3, "msp": 1.0})
    board = only_board(tmp_path)
    first, second = (row.mean_auroc for row in board.rows)
    assert first.low < second.high  # the intervals overlap
    assert ranks(board) == {"knn": 1, "msp": 2}
    assert board.n_paired == 1
    unpaired = only_board(tmp_path, recomputes=False)
    assert unpaired.n_paired == 0
    assert ranks(unpaired) == {"knn": 1, "msp": 1}


def test_models_scored_on_the_same_images_are_paired_and_others_are_not(tmp_path):
    simulate(tmp_path / "one", {"knn": 1.3}, model="first")
    simulate(tmp_path / "two", {"knn": 1.0}, model="second")
    simulate(tmp_path / "three", {"knn": 1.0}, model="third", n_resamples=40)
    assert only_board(tmp_path).n_paired == 1


def test_the_mean_is_that_of_another_library(tmp_path):
    run = simulate(tmp_path, {"knn": 1.0})
    frame = polars.read_parquet(next(run.parent.glob("knn-*.parquet"))).cast({"set": polars.String})
    known = frame.filter(polars.col("set") == "test")["unknown_score"].to_numpy()
    auroc = {}
    for name in "abc":
        unknown = frame.filter(polars.col("set") == name)["unknown_score"].to_numpy()
        labels = np.r_[np.zeros(len(known)), np.ones(len(unknown))]
        auroc[name] = roc_auc_score(labels, np.r_[known, unknown])
    expected = ((auroc["a"] + auroc["b"]) / 2 + auroc["c"]) / 2
    ((row,),) = [only_board(tmp_path).rows]
    assert row.mean_auroc.value == pytest.approx(expected, abs=1e-12)
    assert row.mean_auroc.low < expected < row.mean_auroc.high


def test_without_intervals_nothing_is_ranked(tmp_path):
    simulate(tmp_path, METHODS, n_resamples=0)
    board = only_board(tmp_path)
    assert set(board.ranks) == {None}
    assert board.rows[0].title == "knn"


def test_rows_tested_on_other_images_have_a_table_of_their_own(tmp_path):
    simulate(tmp_path / "all", METHODS)
    simulate(tmp_path / "few", {"msp": 1.0}, limit=100, data={"known/test": "x", "near/a": "y"})
    (benchmark,) = boards(tmp_path)
    assert [len(board.rows) for board in benchmark.boards] == [4, 1]
    page = site(tmp_path)[PAGE]
    assert "at most 100 images per set" in page


def test_detectors_without_auroc_are_ranked_by_the_open_set_metrics(tmp_path):
    def numbers(ap, recall, error):
        triples = {"unknown_ap": ap, "unknown_recall": recall, "normalized_open_set_error": error}
        found = {
            (m, g): (v, v - 0.02, v + 0.02) for m, v in triples.items() for g in ("near", "far")
        }
        return found | {("auroc", g): (math.nan, math.nan, math.nan) for g in ("near", "far")}

    simulate_boxes(
        tmp_path,
        {
            "low": numbers(0.1, 0.9, 0.1),
            "good-recall": numbers(0.30, 0.5, 0.3),
            "bad-recall": numbers(0.31, 0.2, 0.3),
            "tied": numbers(0.30, 0.5, 0.31),
            "fewer-errors": numbers(0.30, 0.5, 0.1),
        },
    )
    board = only_board(tmp_path)
    assert board.by == ("unknown_ap", "unknown_recall", "normalized_open_set_error")
    assert ranks(board) == {
        "bad-recall": 4, "good-recall": 2, "tied": 2, "fewer-errors": 1, "low": 5,
    }  # fmt: skip
    page = site(tmp_path)[PAGE]
    assert "no AUROC" in page
    assert not any(row.is_verified for row in board.rows)


# --- trainings


def test_trainings_that_differ_in_their_seed_are_one_row(tmp_path):
    for seed in range(3):
        simulate(
            tmp_path / str(seed), {"knn": 1.0}, draw=seed, training="plain", training_seed=seed
        )
    simulate(tmp_path / "other", {"knn": 1.0}, training="mixup", training_seed=0)
    board = only_board(tmp_path)
    assert sorted((row.training, len(row.entries)) for row in board.rows) == [
        ("mixup", 1),
        ("plain", 3),
    ]
    row = next(row for row in board.rows if row.training == "plain")
    near = [entry.result.get("auroc", "near").value for entry in row.entries]
    far = [entry.result.get("auroc", "far").value for entry in row.entries]
    number = row.number("auroc", "near")
    assert number.value == pytest.approx(statistics.fmean(near), abs=1e-12)
    assert number.deviation == pytest.approx(statistics.stdev(near), abs=1e-12)
    assert number.n_runs == 3
    means = [(a + b) / 2 for a, b in zip(near, far, strict=True)]
    assert row.mean_auroc.value == pytest.approx(statistics.fmean(means), abs=1e-12)
    assert row.mean_auroc.deviation == pytest.approx(statistics.stdev(means), abs=1e-12)
    assert "std" in site(tmp_path)[PAGE]


def test_one_seed_with_two_weights_is_refused(tmp_path):
    for weights in ("aa", "bb"):
        simulate(tmp_path / weights, {"knn": 1.0}, weights=weights * 8, training_seed=3)
    found = collect([tmp_path])
    assert len(found.entries) == 1
    assert "states the training seed 3, too" in found.refused[0].reasons[0]


def test_weights_tell_models_apart_where_no_seed_is_stated(tmp_path):
    simulate(tmp_path / "one", {"knn": 1.0}, weights="aa" * 8)
    simulate(tmp_path / "two", {"knn": 1.0}, weights="bb" * 8)
    assert len(only_board(tmp_path).rows) == 2


# --- submissions


@pytest.fixture
def good(tmp_path):
    simulate(tmp_path / "good", METHODS, model="good")
    return tmp_path / "good"


@pytest.fixture
def other(tmp_path):
    """A run that tests spoil."""
    return simulate(tmp_path / "other", {"knn": 1.0, "msp": 0.5}, model="other")


def reasons_of(run, good):
    found = collect([good, run.parents[3]])
    assert len(found.entries) == len(METHODS)  # the others are shown
    (refusal,) = found.refused
    assert refusal.path == str(run)
    return " ".join(refusal.reasons)


def change(path, edit):
    document = json.loads(path.read_text())
    edit(document)
    path.write_text(json.dumps(document))


def test_a_changed_number_is_refused(good, other):
    def edit(document):
        document["results"][1]["value"] += 0.01

    change(next(other.parent.glob("msp-*.json")), edit)
    assert "msp:" in reasons_of(other, good)


def test_changed_scores_are_refused_also_without_recomputing(good, other):
    path = next(other.parent.glob("knn-*.parquet"))
    polars.read_parquet(path).with_columns(polars.col("unknown_score") * 2).write_parquet(path)
    assert "is not the file that was written" in reasons_of(other, good)
    assert len(collect([other.parents[3]], recomputes=False).refused) == 1


@pytest.mark.parametrize("suffix", [".json", ".parquet"])
def test_a_missing_file_is_refused(good, other, suffix):
    path = next(other.parent.glob(f"knn-*{suffix}"))
    path.unlink()
    assert f"{path.name} is missing" in reasons_of(other, good)


@pytest.mark.parametrize("name", ["../../../../etc/passwd", "/etc/passwd", "a\\b.json", "..", ""])
def test_files_outside_of_the_run_are_not_read(good, other, name):
    change(other, lambda record: record["files"].update(knn=name))
    assert "a file beside the run" in reasons_of(other, good)


def test_a_result_of_another_benchmark_is_refused(good, other):
    change(other, lambda record: record["metadata"].update(benchmark="easy"))
    assert "its benchmark is not that of the run" in reasons_of(other, good)


def test_another_version_of_a_benchmark_is_refused(tmp_path, good):
    run = simulate(tmp_path / "terra", {"knn": 1.0}, benchmark="terra/standard", version=7)
    assert "Expected version 1 of terra/standard, got version 7" in reasons_of(run, good)


def test_another_definition_of_a_benchmark_is_refused(tmp_path, good):
    run = simulate(
        tmp_path / "terra", {"knn": 1.0}, benchmark="terra/standard",
        metadata={"definition_hash": "ab" * 32},
    )  # fmt: skip
    assert "definition" in reasons_of(run, good)
    assert "got abababab" in reasons_of(run, good)


def test_the_first_definition_of_a_benchmark_of_ones_own_counts(tmp_path):
    for name in ("aa", "bb"):
        simulate(tmp_path / name, {"knn": 1.0}, model=name, metadata={"definition_hash": name * 32})
    found = collect([tmp_path])
    assert {entry.model for entry in found.entries} == {"aa"}
    assert "got bbbbbbbb" in found.refused[0].reasons[0]


@pytest.mark.parametrize(
    "text",
    [
        "", "{}", "[]", "\0", '{"format": "incognita.run.1"}',
        '{"format": "incognita.run.1", "files": [], "metadata": 3}',
    ],
)  # fmt: skip
def test_a_broken_record_is_refused(good, other, text):
    other.write_text(text)
    assert reasons_of(other, good)


def test_broken_scores_with_a_fitting_hash_are_refused(good, other):
    from incognita.files import file_hash

    path = next(other.parent.glob("knn-*.parquet"))
    polars.DataFrame({"nothing": [1]}).write_parquet(path)
    change(path.with_suffix(".json"), lambda d: d.update(scores_sha256=file_hash(path)))
    assert "knn: Expected String as set, got no such column" in reasons_of(other, good)


def test_a_copy_counts_once_and_is_noted(tmp_path, good):
    shutil.copytree(good, tmp_path / "copy")
    found = collect([good, tmp_path / "copy"])
    assert len(found.entries) == len(METHODS)
    assert not found.refused
    assert "counted once" in found.notes[0]


def test_other_numbers_for_the_same_result_are_refused(tmp_path, good):
    run = simulate(tmp_path / "again", METHODS, model="good", draw=5)
    assert "has other numbers for the same result" in reasons_of(run, good)


def test_a_result_that_no_run_names_is_noted(good):
    run = next(good.rglob("*.run"))
    change(run, lambda record: record["files"].pop("knn"))
    found = collect([good])
    assert len(found.entries) == len(METHODS) - 1
    assert "1 result belongs to no run" in found.notes[0]


# --- the command


def test_the_command_writes_the_site_and_lists_what_it_refused(tmp_path, good, other):
    next(other.parent.glob("knn-*.json")).unlink()
    done = command(good, other.parents[3], "--out", tmp_path / "site", "--no-reports")
    assert done.exit_code == 4
    assert f"refused: {other}: knn: " in done.stdout
    assert "4 results, 4 verified" in done.stdout
    assert (tmp_path / "site" / "index.html").is_file()


def test_strict_writes_nothing(tmp_path, good, other):
    next(other.parent.glob("knn-*.json")).unlink()
    out = tmp_path / "site"
    done = command(good, other.parents[3], "--out", out, "--no-reports", "--strict")
    assert done.exit_code == 1
    assert not out.exists()


def test_nothing_to_show_is_said(tmp_path):
    (tmp_path / "empty").mkdir()
    done = command(tmp_path / "empty", "--out", tmp_path / "site")
    assert isinstance(done.exception, Exception)
    assert "No run was accepted" in str(done.exception)
    assert not (tmp_path / "site").exists()


def test_json_lists_refusals(tmp_path, good, other):
    next(other.parent.glob("knn-*.json")).unlink()
    out = tmp_path / "site"
    done = command(good, other.parents[3], "--out", out, "--no-reports", "--json")
    record = json.loads(done.stdout)
    assert (record["results"], record["verified"]) == (4, 4)
    assert record["refused"][0]["run"] == str(other)


def test_reports_of_runs_are_part_of_the_site(tmp_path, good):
    done = command(good, "--out", tmp_path / "site")
    assert done.exit_code == 0, done.output
    (report,) = (tmp_path / "site" / "runs").iterdir()
    page = (tmp_path / "site" / PAGE).read_text()
    assert f"../runs/{report.name}" in Links(page).hrefs


def test_rows_are_not_verified_where_nothing_was_computed_again(tmp_path, good):
    done = command(good, "--out", tmp_path / "site", "--no-reports", "--no-verify")
    assert "4 results, 0 verified" in done.stdout


# --- the folder


def test_the_same_input_gives_the_same_bytes(tmp_path, good, other):
    assert site(good, other.parents[3]) == site(other.parents[3], good)


def test_a_site_replaces_an_earlier_one(tmp_path, good, other):
    out = tmp_path / "site"
    save_site(out, site(good, other.parents[3]))
    assert len(list((out / "models").iterdir())) == 2
    save_site(out, site(good))
    assert len(list((out / "models").iterdir())) == 1
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".")] == []


@pytest.mark.parametrize("is_site", [False, True])
def test_files_of_others_are_never_replaced(tmp_path, good, is_site):
    out = tmp_path / "site"
    if is_site:
        save_site(out, site(good))
    out.mkdir(exist_ok=True)
    (out / "thesis.tex").write_text("years of work")
    done = command(good, "--out", out, "--no-reports")
    assert isinstance(done.exception, InvalidDataError)
    assert "thesis.tex" in str(done.exception)
    assert (out / "thesis.tex").read_text() == "years of work"


def test_a_link_in_the_folder_is_not_followed(tmp_path, good):
    out, secret = tmp_path / "site", tmp_path / "secret"
    secret.mkdir()
    (secret / "thesis.tex").write_text("years of work")
    save_site(out, site(good))
    (out / "extra").symlink_to(secret)
    with pytest.raises(InvalidDataError, match="extra"):
        save_site(out, site(good))
    assert (secret / "thesis.tex").is_file()


def test_a_failure_leaves_the_earlier_site(tmp_path, good):
    out = tmp_path / "site"
    save_site(out, site(good))
    before = (out / "index.html").read_bytes()
    with pytest.raises(OSError, match="too long"):
        save_site(out, {"index.html": "new", "a" * 300: "fails"})
    assert (out / "index.html").read_bytes() == before


# --- pages


def test_every_link_of_the_site_leads_somewhere(good, other):
    files = site(good, other.parents[3])
    pages = {name: Links(text) for name, text in files.items() if name.endswith(".html")}
    for name, page in pages.items():
        for href in page.hrefs:
            if href.startswith("data:"):
                continue
            path, _, place = href.partition("#")
            target = os.path.normpath(Path(name).parent / path) if path else name
            assert target in files, (name, href)
            if place:
                assert place in pages[target].ids, (name, href)


def test_row_ids_stay_when_other_results_are_added(good, other):
    alone = {row_id(row) for row in only_board(good).rows}
    together = {row_id(row) for row in only_board(good, other.parents[3]).rows}
    assert alone < together


def test_names_of_strangers_do_no_harm(tmp_path):
    disclosure = {"external supervision": EVIL}
    simulate(
        tmp_path, {EVIL: 1.0, "../../up": 1.0, "knn": 1.0}, model=f"../{EVIL}",
        benchmark=f"../../{EVIL}", disclosure=disclosure, training=EVIL, training_seed=1,
    )  # fmt: skip
    files = site(tmp_path)
    for name, text in files.items():
        assert ".." not in name
        assert re.fullmatch(r"[a-z0-9/.-]+", name)
        if name.endswith(".html"):
            assert Links(text).tags.count("script") == 1  # ours
            assert EVIL not in text


def test_slugs_of_different_names_differ():
    names = [
        "knn",
        "KNN",
        "knn ",
        "../knn",
        "knn(k=3)",
        "knn-k-3",
        "a/b",
        "a-b",
        "",
        "..",
        "é",
        "è",
    ]
    names += [file_slug("KNN"), "x" * 200, "x" * 201, "knn\udce9"]
    slugs = [file_slug(name) for name in names]
    assert len({s.lower() for s in slugs}) == len(names)
    assert all(re.fullmatch(r"[a-z0-9-]+", s) and len(s) < 80 for s in slugs)


def test_the_page_of_a_method_has_its_equation_and_departures():
    found = paragraphs(method_docs("knn")["knn"])
    spans = [span for part in found for span in part]
    assert any(span.kind == "equation" and "rVert" in span.text for span in spans)
    assert any(part[0].text.startswith("Departures:") for part in found)
    assert not any(">>>" in span.text for span in spans)
    assert list(method_docs("react(percentile=95)+knn(k=10)")) == ["react", "knn"]
    assert list(method_docs("dice+react")) == ["dice+react"]
    assert method_docs("nobody-knows(") == {}


@pytest.mark.parametrize("name", list_methods())
def test_every_equation_of_a_method_is_drawn(name):
    for part in paragraphs(method_docs(name)[name]):
        for span in part:
            if span.kind in ("equation", "formula"):
                ElementTree.fromstring(span.mathml)  # well formed


@pytest.mark.parametrize(
    ("tex", "expected"),
    [
        ("\\frac{a}{2}", "<mfrac><mrow><mi>a</mi></mrow><mrow><mn>2</mn></mrow></mfrac>"),
        ("x_1^2", "<msubsup><mi>x</mi><mn>1</mn><mn>2</mn></msubsup>"),
        ("x^2_1", "<msubsup><mi>x</mi><mn>1</mn><mn>2</mn></msubsup>"),
        ("\\max_c", "<munder><mi>max</mi><mi>c</mi></munder>"),
        ("\\text{ if } a < b", "<mtext>\xa0if\xa0</mtext><mi>a</mi><mo>&lt;</mo><mi>b</mi>"),
        ("\\hat y", '<mover accent="true"><mi>y</mi><mo>^</mo></mover>'),
    ],
)
def test_equations_are_drawn_as_tex_means_them(tex, expected):
    assert as_mathml(tex) == f"<math>{expected}</math>"


@pytest.mark.parametrize("tex", ["\\unknown", "{", "}", "x_", "\\frac{a}", "{" * 5000])
def test_an_equation_that_cannot_be_read_stays_text(tex):
    assert as_mathml(tex) is None


def test_names_in_equations_are_escaped():
    ((_, span),) = paragraphs("A $$ \\text{<script>} <script> $$")
    assert "<script>" not in span.mathml


def test_a_method_of_ones_own_is_read_and_never_run(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text('raise SystemExit\nclass Mine:\n    """Mine: a score of mine."""\n')
    assert method_docs(f"{file}:Mine") == {f"{file}:Mine": "Mine: a score of mine."}
    assert method_docs(f"{tmp_path}/absent.py:Mine") == {}


def test_disclosure_is_shown_and_absent_fields_are_not_stated(tmp_path):
    simulate(tmp_path, {"knn": 1.0}, disclosure={"outlier data": "80 Million Tiny Images"})
    (row,) = only_board(tmp_path).rows
    assert row.disclosure["outlier data"] == "80 Million Tiny Images"
    assert row.disclosure["external supervision"] == "not stated"
    assert "80 Million Tiny Images" in site(tmp_path)[PAGE]


# --- downloads


def test_csv_and_json_hold_every_number_of_the_page(good):
    (benchmark,) = boards(good)
    (board,) = benchmark.boards
    rows = list(csv.DictReader(io.StringIO(as_csv(benchmark))))
    record = json.loads(as_json(benchmark))
    assert [row["id"] for row in rows] == [row["id"] for row in record["rows"]]
    for row, written, stored in zip(board.rows, rows, record["rows"], strict=True):
        assert int(written["rank"]) == stored["rank"]
        for column in number_columns(board):
            number = column.of(row)
            assert (
                float(written[column.key]) == number.value == stored["numbers"][column.key]["value"]
            )
            assert float(written[f"{column.key} low"]) == number.low


# --- serve


@pytest.fixture
def served(tmp_path):
    root = tmp_path / "served"
    root.mkdir()
    (root / "index.html").write_text("hello")
    (root / "table.csv").write_text("a,b\n")
    (root / ".secret").write_text("secret")
    (root / "folder").mkdir()
    (tmp_path / "outside.txt").write_text("outside")
    (root / "escape.txt").symlink_to(tmp_path / "outside.txt")
    (root / "up").symlink_to(tmp_path)
    server = make_server(root, 0)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server.server_address
    server.shutdown()
    server.server_close()
    thread.join()


def get(address, path, *, method="GET", host=None):
    connection = HTTPConnection(*address, timeout=10)
    headers = {"Host": host or f"{address[0]}:{address[1]}"}
    connection.request(method, path, headers=headers)
    answer = connection.getresponse()
    return (
        answer.status,
        answer.read(),
        {name.title(): value for name, value in answer.getheaders()},
    )


def test_files_are_served_on_loopback_with_safe_headers(served):
    assert served[0] == "127.0.0.1"
    status, body, headers = get(served, "/")
    assert (status, body) == (200, b"hello")
    assert headers["Content-Type"] == "text/html; charset=utf-8"
    assert headers["Cache-Control"] == "no-store"
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert "default-src 'none'" in headers["Content-Security-Policy"]
    assert get(served, "/table.csv")[2]["Content-Type"].startswith("text/csv")


@pytest.mark.parametrize(
    "path",
    [
        "/../outside.txt", "/..%2foutside.txt", "/%2e%2e/outside.txt", "//etc/passwd",
        "/escape.txt", "/up/outside.txt", "/up/", "/.secret", "/folder/", "/folder",
        "/absent", "/%00", "/a%00b",
    ],
)  # fmt: skip
def test_nothing_outside_the_folder_is_served(served, path):
    status, body, headers = get(served, path)
    assert status in (301, 404)
    assert b"outside" not in body.replace(b"/outside.txt", b"")
    assert b"root:" not in body
    assert "nosniff" in headers.values()


def test_other_methods_and_other_hosts_are_refused(served):
    assert get(served, "/", method="POST")[0] == 501
    assert get(served, "/", method="PUT")[0] == 501
    assert get(served, "/", host="evil.example")[0] == 403
    assert get(served, "/", host="localhost:1")[0] == 200


def test_serve_says_what_is_wrong(tmp_path, served):
    done = CliRunner().invoke(app, ["serve", str(tmp_path / "absent")])
    assert "There is no folder" in str(done.exception)
    with pytest.raises(InvalidDataError, match="Port"):
        make_server(tmp_path, served[1])


def test_interrupting_serve_ends_it_cleanly(tmp_path):
    import signal

    (tmp_path / "index.html").write_text("hello")
    program = [sys.executable, "-m", "incognita.cli", "serve", str(tmp_path), "--port", "0"]
    with subprocess.Popen(
        program, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        address = process.stdout.readline().split()[0]
        with urllib.request.urlopen(address, timeout=10) as answer:
            assert answer.read() == b"hello"
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=20)
    assert (process.returncode, errors) == (0, "")
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(address, timeout=2)
