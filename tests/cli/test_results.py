"""`incognita results`: what is stored is listed, shown, compared, verified and exported."""

import hashlib
import json
import shutil
from pathlib import Path

import polars
import pytest
from tests.evaluation.box_worlds import CellDetector, box_benchmark
from tests.evaluation.worlds import TinyNet, tiny_benchmark
from typer.testing import CliRunner

import incognita
from incognita.cli.app import app
from incognita.errors import IncognitaError
from incognita.evaluation.verify import Status, verify_results


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A run of a classifier and one of a detector."""
    root = tmp_path_factory.mktemp("runs")
    for name, model, benchmark, methods in (
        ("images", TinyNet().eval(), tiny_benchmark(), "msp, energy, knn(k=3)"),
        ("boxes", CellDetector(), box_benchmark(), "msp, energy"),
    ):
        options = {"preprocess": "none"} if name == "images" else {}
        incognita.evaluate(
            model, benchmark, methods, n_resamples=20, out=root / name / "results",
            store=root / name / "outputs", **options,
        )  # fmt: skip
    return root


@pytest.fixture
def runs(made, tmp_path):
    shutil.copytree(made, tmp_path / "runs")
    return tmp_path / "runs"


def run(*arguments: object):
    return CliRunner().invoke(app, ["results", *map(str, arguments)], catch_exceptions=True)


def result_of(runs: Path, kind: str, method: str = "msp") -> Path:
    return next(p for p in (runs / kind).rglob(f"{method}-*.json"))


def statuses(runs: Path, kind: str) -> dict[str, Status]:
    return {v.method: v.status for v in verify_results(runs / kind).verifications}


@pytest.mark.parametrize(("kind", "n"), [("images", 3), ("boxes", 3)])
def test_untouched_results_are_verified(runs, kind, n):
    done = run("verify", runs / kind)
    assert done.exit_code == 0, done.output
    assert f"{n} verified" in done.stdout


@pytest.mark.parametrize("kind", ["images", "boxes"])
@pytest.mark.parametrize("part", ["value", "low", "high"])
def test_a_changed_number_is_found_and_named(runs, kind, part):
    path = result_of(runs, kind)
    document = json.loads(path.read_text())
    number = next(r for r in document["results"] if r["metric"] == "auroc" and r["low"] is not None)
    number[part] += 0.01
    path.write_text(json.dumps(document))
    done = run("verify", runs / kind)
    assert done.exit_code == 1
    words = " ".join(done.stdout.split())
    assert "1 wrong" in words
    assert f"auroc (paper) of {number['split']}" in words
    assert list(statuses(runs, kind).values()).count(Status.WRONG) == 1


@pytest.mark.parametrize("kind", ["images", "boxes"])
def test_a_changed_score_file_is_found(runs, kind):
    path = result_of(runs, kind).with_suffix(".parquet")
    frame = polars.read_parquet(path)
    frame.with_columns(polars.col("unknown_score") * 2).write_parquet(path)
    done = run("verify", runs / kind)
    assert done.exit_code == 1
    assert f"{path.name} is not the file that was written" in " ".join(done.stdout.split())


@pytest.mark.parametrize("suffix", [".json", ".parquet"])
def test_a_missing_file_is_named(runs, suffix):
    path = result_of(runs, "images").with_suffix(suffix)
    path.unlink()
    done = run("verify", runs / "images")
    assert done.exit_code == 1
    assert f"{path.name} is missing" in " ".join(done.stdout.split())


def test_boxes_without_their_outputs_are_not_recomputed(runs):
    shutil.rmtree(runs / "boxes" / "outputs")
    done = run("verify", runs / "boxes")
    assert done.exit_code == 4
    assert "3 not recomputed" in done.stdout
    assert "no output store" in " ".join(done.stdout.split())


def test_changed_and_missing_objects_are_found(runs):
    path = next((runs / "boxes").rglob("*.objects"))
    frame = polars.read_parquet(path)
    frame.with_columns(polars.col("confidence") / 2).write_parquet(path)
    done = run("verify", runs / "boxes")
    assert done.exit_code == 1
    assert f"{path.name} is not the file that was written" in " ".join(done.stdout.split())
    record = path.with_suffix(".run")
    document = json.loads(record.read_text())
    document["objects_sha256"] = hashlib.sha256(path.read_bytes()).hexdigest()
    record.write_text(json.dumps(document))
    words = " ".join(run("verify", runs / "boxes").stdout.split())
    assert "the stored objects are not those that the outputs give" in words
    path.unlink()
    assert f"There is no file {path}" in "".join(run("verify", runs / "boxes").stdout.split("\n"))


def test_a_number_that_was_added_or_left_out_is_found(runs):
    path = result_of(runs, "images")
    document = json.loads(path.read_text())
    left_out = document["results"].pop(1)
    path.write_text(json.dumps(document))
    words = " ".join(run("verify", runs / "images").stdout.split())
    assert (
        f"{left_out['metric']} ({left_out['convention']}) of {left_out['split']} is missing"
        in words
    )


def test_verified_images_come_with_paired_replicates(runs):
    first, second = verify_results(runs / "images").verifications[:2]
    assert first.drawn.draw == second.drawn.draw
    assert {str(split): len(values) for split, values in first.drawn.auroc.items()} == {
        "near": 21, "far": 21, "misclassified": 21,
    }  # fmt: skip
    assert first.drawn.auroc["near"][0] == first.result.get("auroc", "near").value


def test_every_result_is_listed(runs):
    done = run("ls", runs, "--json")
    rows = json.loads(done.stdout)
    assert {(r["benchmark"], r["method"]) for r in rows["results"]} == {
        ("tiny", "msp"), ("tiny", "energy"), ("tiny", "knn(k=3)"), ("grid", "msp"),
        ("grid", "energy"),
    }  # fmt: skip
    assert rows["notes"] == []
    assert run("ls", runs).exit_code == 0
    result_of(runs, "images").write_text("{")
    assert "is left out" in json.loads(run("ls", runs, "--json").stdout)["notes"][0]


def test_a_result_is_shown_with_intervals(runs):
    done = run("show", result_of(runs, "images"))
    assert done.exit_code == 0
    assert "auroc" in done.stdout
    shown = json.loads(run("show", result_of(runs, "images"), "--json").stdout)
    assert shown == {
        k: v for k, v in json.loads(result_of(runs, "images").read_text()).items()
        if k != "scores_sha256"
    }  # fmt: skip


def test_results_of_two_methods_differ_in_what_they_are(runs):
    first, second = result_of(runs, "images"), result_of(runs, "images", "energy")
    found = json.loads(run("diff", first, second, "--json").stdout)
    assert set(found["identity"]) >= {"method"}
    assert found["numbers"]
    assert run("diff", first, second).exit_code == 1
    same = run("diff", first, first)
    assert same.exit_code == 0
    assert "equal" in same.stdout


@pytest.mark.parametrize("suffix", [".md", ".tex", ".csv", ".parquet"])
def test_tables_of_several_runs_are_exported(runs, tmp_path, suffix):
    out = tmp_path / f"table{suffix}"
    done = run("export", runs, "--out", out, "--rows", "benchmark,method")
    assert done.exit_code == 0, done.output
    auroc = incognita.results.MethodResult.from_json(
        json.loads(result_of(runs, "images").read_text())
    ).get("auroc", "near")
    cell = f"{100 * auroc.value:.1f} "
    if suffix == ".parquet":
        row = polars.read_parquet(out).row(
            by_predicate=(polars.col("benchmark") == "tiny") & (polars.col("method") == "msp"),
            named=True,
        )
        assert row["near auroc"].startswith(cell)
        return
    text = out.read_text()
    assert cell in text
    assert text.count("knn(k=3)") == 1


def test_special_characters_do_no_harm_in_tables():
    from incognita.results.query import as_latex, as_markdown

    table = polars.DataFrame({"method": [r"a|b_c & 50% \x $<script>"], "near": ["1.0 ±0.1"]})
    assert as_markdown(table).splitlines()[2].startswith(r"| a\|b_c")
    assert r"a|b\_c \& 50\% \textbackslash{}x \$<script> & 1.0 $\pm$0.1 \\" in as_latex(table)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--metrics", "aurok"], "aurok"),
        (["--rows", "benchmrk"], "benchmrk"),
        (["--splits", "nowhere"], "No result has"),
        (["--rows", "benchmark"], "several numbers"),
        (["--out", "table.xlsx"], r"\.xlsx"),
    ],
)
def test_wrong_choices_get_one_sentence(runs, options, message):
    done = run("export", runs / "images", *options)
    assert isinstance(done.exception, IncognitaError)
    import re

    assert re.search(message, str(done.exception))


def test_a_folder_without_results_is_said(tmp_path):
    for command in ("ls", "export"):
        assert "There is no result" in str(run(command, tmp_path).exception)
    assert "no finished run" in str(run("verify", tmp_path).exception)
