"""`incognita results`: what is stored is listed, shown, compared, verified and exported."""

import hashlib
import json
import shutil
from hashlib import sha256
from pathlib import Path

import polars
import pytest
from tests.evaluation.box_worlds import CellDetector, box_benchmark
from tests.evaluation.test_open_set_detectors import OpenDetector
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


@pytest.mark.parametrize(("kind", "exit_code"), [("images", 0), ("boxes", 4)])
def test_scores_of_a_gpu_are_not_called_wrong(runs, kind, exit_code):
    path = result_of(runs, kind)
    document = json.loads(path.read_text())
    assert document["provenance"]["device"] == "cpu"
    document["provenance"]["device"] = "cuda:0"
    path.write_text(json.dumps(document))
    done = run("verify", runs / kind)
    assert done.exit_code == exit_code
    is_said = "computed on cuda:0, whose last bits differ" in " ".join(done.stdout.split())
    assert is_said == (kind == "boxes")


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


# ------------------------------------------------------------------ detectors, number by number


@pytest.fixture(scope="module")
def searched(tmp_path_factory):
    """A detector with a mixed set, an open-set detector, and methods with chosen parameters."""
    root = tmp_path_factory.mktemp("searched")
    for name, detector in (("closed", CellDetector()), ("open", OpenDetector())):
        incognita.evaluate(
            detector, box_benchmark(), "msp, knn(k=3)", search=True, n_resamples=12,
            out=root / name / "results", store=root / name / "outputs",
        )  # fmt: skip
    return root


@pytest.mark.parametrize("kind", ["closed", "open"])
def test_tuned_methods_and_own_labels_of_a_detector_are_verified(searched, kind):
    report = verify_results(searched / kind)
    assert report.is_complete, report.summary()
    methods = {v.method for v in report.verifications}
    assert {"msp", "knn(k=3)", "knn(k=3) (tuned)"} <= methods
    assert ("own-label" in methods) == (kind == "open")


def every_kind_of_number(document) -> list[int]:
    """Return one number of each metric, convention, and kind of split that has a value."""
    seen = {}
    for k, number in enumerate(document["results"]):
        setting = "all boxes" if number["split"].startswith("all boxes") else ""
        is_set = "/" in number["split"]
        if number["value"] is not None:
            seen.setdefault((number["metric"], number["convention"], setting, is_set), k)
    return list(seen.values())


def test_a_changed_number_of_any_metric_convention_and_split_is_found(searched, tmp_path):
    """All are changed at once, each by a little; every single one must be named."""
    for kind, method in (("closed", "msp"), ("open", "own-label")):
        copy = shutil.copytree(searched / kind, tmp_path / kind)
        path = next(copy.rglob(f"{method}-*.json"))
        document = json.loads(path.read_text())
        changed = every_kind_of_number(document)
        conventions = {document["results"][k]["convention"] for k in changed}
        assert conventions >= {"paper", "fmiyc"}
        for k in changed:
            document["results"][k]["value"] += 1e-6
        path.write_text(json.dumps(document))
        (wrong,) = [v for v in verify_results(copy).verifications if v.status is Status.WRONG]
        n_named = len(wrong.reasons) - 1 + int(wrong.reasons[-1].split()[1])
        assert n_named == len(changed) > 30


@pytest.mark.parametrize("kind", ["images", "boxes"])
def test_a_changed_support_is_found(runs, kind):
    path = result_of(runs, kind)
    document = json.loads(path.read_text())
    number = next(r for r in document["results"] if r["metric"] == "auroc")
    name = next(iter(number["support"]))
    number["support"][name] += 1
    path.write_text(json.dumps(document))
    done = run("verify", runs / kind)
    assert done.exit_code == 1
    assert f"support of auroc (paper) of {number['split']}" in " ".join(done.stdout.split())


def test_a_changed_threshold_of_a_detector_is_found(runs):
    path = result_of(runs, "boxes")
    document = json.loads(path.read_text())
    document["thresholds"]["tau"]["value"] += 0.1
    path.write_text(json.dumps(document))
    done = run("verify", runs / "boxes")
    assert done.exit_code == 1
    assert "the threshold tau is stored as" in " ".join(done.stdout.split())


@pytest.mark.parametrize("kind", ["images", "boxes"])
def test_scores_that_were_changed_with_their_hash_are_found(runs, kind):
    path = result_of(runs, kind)
    scores = path.with_suffix(".parquet")
    frame = polars.read_parquet(scores)
    frame.with_columns(polars.col("unknown_score").reverse()).write_parquet(scores)
    document = json.loads(path.read_text())
    document["scores_sha256"] = sha256(scores.read_bytes()).hexdigest()
    path.write_text(json.dumps(document))
    done = run("verify", runs / kind)
    assert done.exit_code == 1
    words = " ".join(done.stdout.split())
    expected = "is stored as" if kind == "images" else f"unknown_score of {scores.name}"
    assert expected in words


@pytest.mark.parametrize("kind", ["images", "boxes"])
def test_a_result_that_poses_as_another_is_found(runs, kind):
    path = result_of(runs, kind)
    document = json.loads(path.read_text())
    document["identity"]["model"] = "a better model"
    path.write_text(json.dumps(document))
    done = run("verify", runs / kind)
    assert done.exit_code == 1
    assert "its identity" in " ".join(done.stdout.split())


@pytest.mark.parametrize("suffix", [".json", ".parquet"])
def test_a_missing_file_of_a_detector_is_named(runs, suffix):
    path = result_of(runs, "boxes").with_suffix(suffix)
    path.unlink()
    done = run("verify", runs / "boxes")
    assert done.exit_code == 1
    assert f"{path.name} is missing" in " ".join(done.stdout.split())


def test_changed_outputs_of_a_detector_are_found(runs):
    """A stored output that was replaced gives other numbers, or cannot be read."""
    path = max((runs / "boxes" / "outputs").rglob("*.safetensors"), key=lambda p: p.stat().st_size)
    content = bytearray(path.read_bytes())
    content[-64:] = bytes(64)
    path.write_bytes(bytes(content))
    done = run("verify", runs / "boxes")
    assert done.exit_code in (1, 4)


# ------------------------------------------------------------------ self-aware runs


@pytest.fixture(scope="module")
def aware(tmp_path_factory):
    out = tmp_path_factory.mktemp("aware")
    line = [
        "run", "terra/self-aware", "--limit", "12", "--resamples", "10", "--out", str(out),
        "--training", "plain", "--training-seed", "3", "--disclose", "outlier-data=none",
    ]  # fmt: skip
    done = CliRunner().invoke(app, line)
    assert done.exit_code == 0, done.output
    return out, done.stdout


def test_a_self_aware_run_is_shown_as_it_was(aware):
    out, printed = aware
    (report,) = out.rglob("report.json")
    for path in (out, report.parent, report):
        shown = CliRunner().invoke(app, ["show", str(path)])
        assert shown.exit_code == 0, shown.output
        assert shown.stdout == printed
    shown = CliRunner().invoke(app, ["show", str(out), "--json"])
    assert json.loads(shown.stdout) == json.loads(report.read_text())
    refused = CliRunner().invoke(app, ["show", str(out), "--methods", "msp"])
    assert isinstance(refused.exception, IncognitaError)


def test_the_folder_of_a_self_aware_run_has_a_page(aware, tmp_path):
    out, _ = aware
    page = tmp_path / "report.html"
    done = CliRunner().invoke(app, ["report", str(out), "--out", str(page)])
    assert done.exit_code == 0, done.output
    assert "The self-aware detector has a DAQ of" in page.read_text()


def test_a_self_aware_run_discloses_what_its_rules_were_chosen_on(aware):
    (path,) = aware[0].rglob("report.json")
    inputs = json.loads(path.read_text())["inputs"]
    assert (inputs["training"], inputs["training_seed"]) == ("plain", 3)
    assert inputs["disclosure"]["outlier data"] == "none"
    assert inputs["disclosure"]["external supervision"] == "not stated"
    assert "known validation images (calibrator" in inputs["disclosure"]["calibration data"]


def test_of_a_self_aware_run_what_follows_from_other_numbers_is_verified(aware, tmp_path):
    out = shutil.copytree(aware[0], tmp_path / "aware")
    done = run("verify", out)
    assert done.exit_code == 4  # nothing is wrong, but not everything could be computed again
    assert "only DAQ, BA and IDQ" in " ".join(done.stdout.split())
    (path,) = out.rglob("report.json")
    document = json.loads(path.read_text())
    for metric in ("detection_awareness_quality", "in_distribution_quality", "balanced_accuracy"):
        changed = json.loads(json.dumps(document))
        number = next(r for r in changed["results"] if r["metric"] == metric)
        number["value"] += 0.01
        path.write_text(json.dumps(changed))
        done = run("verify", out)
        assert done.exit_code == 1
        assert f"{metric} of {number['split']} is stored as" in " ".join(done.stdout.split())
    path.write_text("{}")
    assert run("verify", out).exit_code == 1
    path.write_text(json.dumps(document))
    path.with_name("rules.json").unlink()
    assert "rules.json is missing" in " ".join(run("verify", out).stdout.split())


def test_a_folder_without_results_is_said(tmp_path):
    for command in ("ls", "export"):
        assert "There is no result" in str(run(command, tmp_path).exception)
    assert "no finished run" in str(run("verify", tmp_path).exception)


def command(*arguments: object):
    """Run any command; errors are those the program turns into one sentence."""
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def restate_scores(path: Path, frame: polars.DataFrame) -> None:
    """Write other scores beside a result, and state their hash in it."""
    scores = path.with_suffix(".parquet")
    frame.write_parquet(scores)
    document = json.loads(path.read_text())
    document["scores_sha256"] = sha256(scores.read_bytes()).hexdigest()
    path.write_text(json.dumps(document))


def change_record(run_file: Path, change) -> None:
    document = json.loads(run_file.read_text())
    change(document)
    run_file.write_text(json.dumps(document))


def test_a_broken_run_is_named_and_the_others_are_verified(runs):
    record = next((runs / "images").rglob("*.run"))
    record.write_text(record.read_text()[:100])
    done = run("verify", runs)
    assert done.exit_code == 1
    assert "1 wrong" in done.stdout
    assert "3 verified" in done.stdout
    assert f"{record.name} is broken or incomplete JSON" in " ".join(done.stdout.split())


@pytest.mark.parametrize("kind", ["images", "boxes"])
def test_changed_scores_are_not_shown(runs, kind, tmp_path):
    scores = result_of(runs, kind).with_suffix(".parquet")
    frame = polars.read_parquet(scores)
    frame.with_columns(polars.col("unknown_score").reverse()).write_parquet(scores)
    page = tmp_path / "report.html"
    for arguments in (("show",), ("report", "--out", page), ("compare",)):
        done = command(*arguments, runs / kind)
        assert isinstance(done.exception, IncognitaError), done.output
        assert f"{scores.name} is not the file that was written" in str(done.exception)
    assert not page.exists()


NO_TABLES = {
    "no column": lambda frame: frame.drop("unknown_score"),
    "a text": lambda frame: frame.with_columns(polars.lit("x").alias("unknown_score")),
    "empty": lambda frame: frame.with_columns(
        polars.lit(None, polars.Float64).alias("unknown_score")
    ),
    "other columns": lambda frame: polars.DataFrame({"a": [1]}),
}
NO_IMAGES = {
    "no rows": lambda frame: frame.head(0),
    "no known set": lambda frame: frame.filter(polars.col("group").cast(str) != "known"),
    "one set": lambda frame: frame.with_columns(polars.lit("same").alias("set")),
    "a huge class": lambda frame: frame.with_columns(
        polars.lit(2_000_000_000, polars.Int32).alias("predicted")
    ),
    "a negative class": lambda frame: frame.with_columns(
        polars.lit(-5, polars.Int32).alias("predicted")
    ),
}
NO_BOXES = {
    "a class of nobody": lambda frame: frame.with_columns(polars.lit("<b>").alias("predicted")),
}


@pytest.mark.parametrize(
    ("kind", "change"),
    [("images", change) for change in (NO_TABLES | NO_IMAGES).values()]
    + [("boxes", change) for change in (NO_TABLES | NO_BOXES).values()],
    ids=[*NO_TABLES, *NO_IMAGES, *(f"{name} of boxes" for name in NO_TABLES | NO_BOXES)],
)
def test_a_table_that_is_none_of_scores_gets_one_sentence(runs, kind, change):
    path = result_of(runs, kind)
    restate_scores(path, change(polars.read_parquet(path.with_suffix(".parquet"))))
    done = run("verify", runs / kind)
    assert done.exit_code == 1, done.output
    assert "Expected" in done.stdout
    for arguments in (("show",), ("compare",)):
        done = command(*arguments, runs / kind)
        assert isinstance(done.exception, IncognitaError), done.output
        assert "Expected" in str(done.exception)


def test_results_without_images_in_common_get_one_sentence(runs):
    path = result_of(runs, "images")
    frame = polars.read_parquet(path.with_suffix(".parquet"))
    restate_scores(
        path, frame.with_columns(polars.concat_str(polars.lit("x"), "image_id").alias("image_id"))
    )
    done = command("show", runs / "images")
    assert "that every method has scored, got none" in str(done.exception)


def test_a_run_of_results_that_all_pose_as_others_is_wrong(runs):
    for path in (runs / "images").rglob("*-*.json"):
        if path.with_suffix(".parquet").is_file():
            change_record(path, lambda document: document["identity"].update(model="better"))
    done = run("verify", runs / "images")
    assert done.exit_code == 1, done.output
    assert "3 wrong" in done.stdout


def test_a_run_that_names_a_result_by_another_method_is_refused(runs):
    record = next((runs / "images").rglob("*.run"))
    change_record(record, lambda run: run["files"].update(best=run["files"].pop("msp")))
    for name in ("show", "compare"):
        done = command(name, runs / "images")
        assert "Expected the result of best" in str(done.exception)
        assert "got that of msp" in str(done.exception)


@pytest.mark.parametrize("stated", [10**9, -1, "many", None])
def test_a_run_cannot_ask_for_any_number_of_replicates(runs, stated):
    record = next((runs / "images").rglob("*.run"))
    change_record(record, lambda run: run["bootstrap"].update(n_resamples=stated))
    done = command("show", runs / "images")
    assert "at most 100,000 replicates" in str(done.exception)
    assert run("verify", runs / "images").exit_code == 1
