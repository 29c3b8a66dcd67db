"""`incognita certify`: what it prints, what each option does, and one sentence for every fault."""

import hashlib
import json
import math
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from typer.testing import CliRunner

import incognita
from incognita import cli
from incognita.cli import _terminal as terminal
from incognita.cli.app import app
from incognita.results.export import WIDTH

STREET = Path(incognita.__file__).parent / "benchmarks" / "examples" / "street"
TRUTH, DETECTIONS, CLASSES = (
    STREET / name for name in ("truth.json", "detections.json", "classes.toml")
)
COMMAND = [sys.executable, "-m", "incognita.cli"]
RESULT_KEYS = {
    "metric", "convention", "split", "value", "low", "high", "support", "parameters", "reason",
    "direction", "units",
}  # fmt: skip

THRESHOLD_KEYS = {"class", "threshold", "optimal_lrp", "support", "convention", "tau"}


class Outcome(NamedTuple):
    """What a command did."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> dict[str, Any]:
        """Standard output as strict JSON; NaN and Infinity are no JSON."""
        assert self.code == 0, self.err
        return json.loads(self.out, parse_constant=refuse_constant)

    def result(self, metric: str, convention: str = "paper", split: str = "all") -> dict[str, Any]:
        wanted = (metric, convention, split)
        found = [
            r
            for r in self.document["results"]
            if (r["metric"], r["convention"], r["split"]) == wanted
        ]
        assert len(found) == 1
        return found[0]


def refuse_constant(name: str) -> None:
    raise AssertionError(f"{name} is not JSON")


Call = Callable[..., Outcome]


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Call]:
    """Run a command as `incognita` does, in this process and without touching its settings."""

    def call(*arguments: object) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["incognita", *map(str, arguments)])
        with pytest.raises(SystemExit) as caught:
            cli.main()
        code = caught.value.code
        return Outcome(code if isinstance(code, int) else 0, *capsys.readouterr())

    on_interrupt = signal.getsignal(signal.SIGINT)
    yield call
    signal.signal(signal.SIGINT, on_interrupt)


@pytest.fixture
def certify(call: Call) -> Call:
    """Certify the street detector, or other files, quickly and as JSON."""

    def certify(
        *arguments: object, truth: Path = TRUTH, detections: Path = DETECTIONS, resamples: int = 0
    ) -> Outcome:
        files = ("--truth", truth, "--detections", detections)
        return call("certify", *files, "--resamples", resamples, "--json", *arguments)

    return certify


def write(path: Path, content: object) -> Path:
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def plain(text: str) -> str:
    """Text without colors, in one line and without frames."""
    return " ".join(re.sub(r"\x1b\[[0-9;]*m|[│╭╮╰╯─]", "", text).split())


# --- what it prints --------------------------------------------------------------------------


def test_json_is_all_that_a_real_process_prints(tmp_path):
    out = tmp_path / "new" / "certificate.json"
    arguments = ["certify", "--truth", TRUTH, "--detections", DETECTIONS, "--classes", CLASSES]
    done = subprocess.run(
        [*COMMAND, *arguments, "--json", "--resamples", "10", "--out", out],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    outcome = Outcome(done.returncode, done.stdout, done.stderr)
    assert outcome.err == ""
    assert set(outcome.document) == {
        "claims", "results", "thresholds", "reliability", "notes", "inputs",
    }  # fmt: skip
    assert outcome.result("open_set_error")["value"] > 0
    assert out.read_text() == outcome.out
    assert [path.name for path in out.parent.iterdir()] == ["certificate.json"]


def test_json_has_the_documented_keys(certify):
    outcome = certify("--classes", CLASSES, resamples=5)  # too few for intervals
    for result in outcome.document["results"]:
        assert set(result) == RESULT_KEYS
        assert result["direction"] in ("higher is better", "lower is better")
        assert (result["value"] is None) == (result["reason"] is not None)
        assert all(type(count) is int for count in result["support"].values())
    for each in outcome.document["thresholds"]:
        assert set(each) == THRESHOLD_KEYS
    names = [each["class"] for each in outcome.document["thresholds"]]
    assert names == ["person", "bicycle", "car", "bus", "dog"]
    notes = outcome.document["notes"]
    assert [note.split(":")[0] for note in notes] == [
        "There are no intervals",
        "n= behind a number",
    ]


def test_inputs_trace_a_number_to_its_files(certify):
    inputs = certify("--classes", CLASSES).document["inputs"]
    for name, path in (("truth", TRUTH), ("detections", DETECTIONS), ("classes", CLASSES)):
        sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
        assert inputs[name] == {"path": str(path), "sha256": sha256}
    options = {key: inputs[key] for key in inputs.keys() - {"truth", "detections", "classes"}}
    assert options == {
        "incognita": incognita.__version__,
        "known": None,
        "tau": None,
        "score_threshold": None,
        "wi_recall": 0.8,
        "resamples": 0,
        "seed": 0,
    }
    assert "classes" not in certify().document["inputs"]
    assert certify("--known", "car, dog").document["inputs"]["known"] == ["car", "dog"]


def test_without_json_there_is_a_table_for_people(call):
    files = ("--truth", TRUTH, "--detections", DETECTIONS, "--classes", CLASSES)
    outcome = call("certify", *files, "--resamples", 10)
    assert outcome.code == 0
    assert outcome.err == ""
    assert "\x1b" not in outcome.out
    for words in ("metric", "known-only", "A-OSE ↓", "R_U ↑", "oLRP ↓", "calibration"):
        assert words in outcome.out
    assert re.search(r"A-OSE ↓ .* \d+ \[\d+, \d+\] ", outcome.out)
    assert re.search(r"R_U ↑ .* \d+\.\d \[\d+\.\d, \d+\.\d\] ", outcome.out)
    assert "what it is" in outcome.out
    cut = outcome.out.index("Best threshold of each class")
    assert all(name in outcome.out[cut:] for name in ("person", "bicycle", "car", "bus", "dog"))
    assert max(map(len, outcome.out.splitlines())) <= WIDTH


def test_a_split_without_images_shows_dashes_and_one_of_a_single_image_no_interval(call, tmp_path):
    truth = {
        "images": [{"id": 0}],
        "categories": [{"id": 0, "name": "car"}],
        "annotations": [{"id": 0, "image_id": 0, "category_id": 0, "bbox": [0, 0, 9, 9]}],
    }
    seen = [{"image_id": 0, "category_id": 0, "bbox": [0, 0, 9, 9], "score": 0.9}]
    files = ("--truth", write(tmp_path / "gt.json", truth), "--detections")
    outcome = call("certify", *files, write(tmp_path / "dets.json", seen), "--resamples", 10)
    assert outcome.code == 0
    row = next(line for line in outcome.out.splitlines() if line.strip().startswith("AP ↑"))
    assert row.split()[2:8] == ["coco", "100.0", "n=1", "100.0", "n=1", "-"]
    assert "[" not in row


def test_a_table_shows_notes_and_names_as_they_are(call, tmp_path):
    truth = {
        "images": [{"id": 0}],
        "categories": [{"id": 0, "name": "car"}, {"id": 1, "name": "bus [/old]"}],
        "annotations": [{"id": 0, "image_id": 0, "category_id": 0, "bbox": [0, 0, 9, 9]}],
    }
    files = ("--truth", write(tmp_path / "gt.json", truth), "--detections")
    outcome = call("certify", *files, write(tmp_path / "dets.json", []), "--resamples", 0)
    assert outcome.code == 0
    notes = [line for line in outcome.out.splitlines() if line.startswith("note: ")]
    assert len(notes) == 4
    assert notes[0].startswith("note: There are no detections:")
    assert notes[-2] == "note: Known classes without objects: bus [/old] (1 in total)."
    assert outcome.out.count("bus [/old]") == 2


def test_a_file_is_written_beside_the_table_too(call, certify, tmp_path):
    files = ("--truth", TRUTH, "--detections", DETECTIONS, "--resamples", 0)
    out = write(tmp_path / "certificate.json", "what was there before")
    assert "metric" in call("certify", *files, "--out", out).out
    assert out.read_text() == certify().out


def test_a_terminal_sees_progress_and_the_output_stays_clean(certify, monkeypatch):
    class Terminal(TextIOWrapper):
        def isatty(self) -> bool:
            return True

    written = BytesIO()
    terminal = Terminal(written, encoding="utf-8", write_through=True)
    monkeypatch.setattr(sys, "stderr", terminal)
    assert certify().document["results"]
    assert "calibration" in written.getvalue().decode()


@pytest.mark.parametrize("arguments", [(), ("--json",)])
def test_a_stream_that_knows_only_ascii_gets_a_certificate_too(arguments):
    done = subprocess.run(
        [*COMMAND, "certify", "--truth", TRUTH, "--detections", DETECTIONS, "--resamples", "2",
         *arguments],
        capture_output=True, check=False, env=os.environ | {"PYTHONIOENCODING": "ascii"},
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, b"")
    assert "A-OSE" in done.stdout.decode("ascii") or arguments
    assert not arguments or json.loads(done.stdout)


def test_the_package_runs_as_a_module_too():
    done = subprocess.run(
        [sys.executable, "-m", "incognita", "--version"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    shown = (done.returncode, done.stdout, done.stderr)
    assert shown == (0, f"incognita {incognita.__version__}\n", "")


# --- options ---------------------------------------------------------------------------------


def test_known_makes_every_other_category_unknown(certify):
    listed = certify("--known", " person,bicycle , car,bus,dog,").document
    mapped = certify("--classes", CLASSES).document
    assert listed["results"] == mapped["results"]
    few = certify("--known", "car").document
    assert [each["class"] for each in few["thresholds"]] == ["car"]


def test_without_known_every_category_is_known_but_the_one_called_unknown(certify):
    outcome = certify()
    assert len(outcome.document["thresholds"]) == 8
    assert outcome.result("unknown_recall")["value"] is None
    assert any("No object is unknown" in note for note in outcome.document["notes"])


def wildlife(**changes: object) -> dict[str, Any]:
    """A deer that a detector of dogs takes for a dog, alone in its image, and a dog in another."""
    deer = {"id": 1, "image_id": 1, "category_id": 5, "bbox": [0, 0, 10, 10]} | changes
    return {
        "images": [{"id": 0}, {"id": 1}],
        "categories": [
            {"id": 4, "name": "dog", "supercategory": "animal"},
            {"id": 5, "name": "deer"},
            {"id": 6, "name": "tree"},
        ],
        "annotations": [{"id": 0, "image_id": 0, "category_id": 4, "bbox": [0, 0, 9, 9]}, deer],
    }


SEEN = [
    {"image_id": 0, "category_id": 4, "bbox": [0, 0, 9, 9], "score": 0.9},
    {"image_id": 1, "category_id": 4, "bbox": [0, 0, 10, 10], "score": 0.8},
    {"image_id": 1, "category_id": 6, "bbox": [50, 0, 10, 10], "score": 0.7},
]


@pytest.fixture
def certify_wildlife(certify: Call, tmp_path: Path) -> Call:
    def certify_wildlife(*arguments: object, **changes: object) -> Outcome:
        truth = write(tmp_path / "gt.json", wildlife(**changes))
        detections = write(tmp_path / "dets.json", SEEN)
        return certify(*arguments, truth=truth, detections=detections)

    return certify_wildlife


def superclass_ap(outcome: Outcome) -> float:
    return outcome.result("ap_superclass", split="unknown-only")["value"]


def test_an_object_with_a_supercategory_of_its_own_has_relatives(certify_wildlife):
    assert superclass_ap(certify_wildlife("--known", "dog")) == 0.0
    assert superclass_ap(certify_wildlife("--known", "dog", supercategory="animal")) == 1.0
    assert superclass_ap(certify_wildlife("--known", "dog", supercategory="plant")) == 0.0


def test_a_class_map_gives_superclasses_and_sets_classes_aside(certify_wildlife, tmp_path):
    text = 'version = 1\nknown = ["dog"]\n'
    unwrap = certify_wildlife("--classes", write(tmp_path / "bare.toml", text))
    assert superclass_ap(unwrap) == 0.0
    assert unwrap.result("unknown_precision")["support"]["detections"] == 1
    text += 'ignored = ["tree"]\n[superclasses]\nanimal = ["dog", "deer"]\n'
    full = certify_wildlife("--classes", write(tmp_path / "full.toml", text))
    assert superclass_ap(full) == 1.0
    assert full.result("unknown_precision")["value"] is None
    assert "1 detection of ignored classes was left out." in full.document["notes"]


def test_tau_is_the_iou_of_lrp_and_calibration(certify):
    own, given = certify("--classes", CLASSES), certify("--classes", CLASSES, "--tau", "0.6")
    for metric in ("lrp", "optimal_lrp", "laece"):
        assert own.result(metric)["parameters"]["tau"] == 0.1
        assert given.result(metric)["parameters"]["tau"] == 0.6
    assert own.result("lrp")["value"] < given.result("lrp")["value"]
    assert own.result("ap", "coco") == given.result("ap", "coco")
    assert given.document["inputs"]["tau"] == 0.6


def test_a_score_floor_is_as_if_the_file_held_no_less(certify, tmp_path):
    records = json.loads(DETECTIONS.read_text())
    kept = [record for record in records if record["score"] >= 0.5]
    floored = certify("--score-floor", "0.5").document
    by_hand = certify(detections=write(tmp_path / "kept.json", kept)).document
    assert 0 < len(kept) < len(records)
    assert floored["results"] == by_hand["results"]
    assert floored["inputs"]["score_threshold"] == 0.5


def test_without_resamples_there_is_no_interval(certify):
    bounds = [(r["low"], r["high"]) for r in certify().document["results"]]
    assert set(bounds) == {(None, None)}


def test_the_seed_decides_the_intervals_and_nothing_else(certify):
    first = certify("--seed", 3, resamples=20)
    again = certify("--seed", 3, resamples=20)
    other = certify("--seed", 4, resamples=20)
    assert first.out == again.out
    assert first.document["inputs"] == other.document["inputs"] | {"seed": 3}
    pairs = list(zip(first.document["results"], other.document["results"], strict=True))
    assert all(a["value"] == b["value"] for a, b in pairs)
    assert any(a["low"] != b["low"] for a, b in pairs)
    assert all(a["low"] <= a["high"] for a, _ in pairs if a["low"] is not None)


def test_an_empty_list_of_detections_is_a_result_too(certify, tmp_path):
    outcome = certify("--classes", CLASSES, detections=write(tmp_path / "none.json", "[]"))
    assert outcome.result("unknown_recall")["value"] == 0.0
    assert outcome.result("images_without_detection")["value"] == 1.0
    assert outcome.document["notes"][0].startswith("There are no detections")


# --- faults ----------------------------------------------------------------------------------


def assert_one_sentence(outcome: Outcome, code: int, sentence: str) -> None:
    assert outcome.out == ""
    assert outcome.err == f"incognita: {sentence}\n"
    assert outcome.code == code


def test_a_real_process_answers_a_missing_file_with_one_sentence_and_code_3(tmp_path):
    missing = tmp_path / "none.json"
    done = subprocess.run(
        [*COMMAND, "certify", "--truth", TRUTH, "--detections", missing],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    outcome = Outcome(done.returncode, done.stdout, done.stderr)
    assert_one_sentence(outcome, 3, f"There is no file at {missing}; check the path.")


def test_a_missing_truth_or_class_map_ends_with_code_3(certify, tmp_path):
    missing = tmp_path / "none"
    assert_one_sentence(
        certify(truth=missing), 3, f"There is no file at {missing}; check the path."
    )
    assert_one_sentence(
        certify("--classes", missing),
        3,
        f"There is no class map at {missing}; give the path of a TOML file.",
    )


FIRST = {"image_id": 1, "category_id": 3, "bbox": [1, 2, 3, 4], "score": 0.5}


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (
            '[{"image_id": 1',
            " is broken or incomplete JSON at line 1, column 16 (character 15): "
            "Expecting ',' delimiter; write the file again.",
        ),
        ("", " is empty; write the file again."),
        (
            "{}",
            " is an object, but detections are a list, or an object with one list called "
            "results or annotations.",
        ),
        (
            [FIRST, FIRST | {"image_id": 999}],
            f": detection 1 is on image 999, which {TRUTH} does not list; "
            "add the image there or remove the record.",
        ),
        (
            [FIRST | {"category_id": 99}],
            f": detection 0 has 99 as category_id, which {TRUTH} does not list among its "
            "categories; add it there or in a class map.",
        ),
        (
            [FIRST | {"score": math.nan}],
            ": detection 0 has nan as score, but a finite number is expected.",
        ),
        (
            [FIRST | {"bbox": [1, 2, -3, 4]}],
            ": detection 0 has a negative width, -3.0; a bbox is x, y, width, height, "
            "not two corners.",
        ),
    ],
)
def test_wrong_detections_end_with_code_2_and_a_sentence(certify, tmp_path, content, sentence):
    path = write(tmp_path / "dets.json", content)
    assert_one_sentence(certify(detections=path), 2, f"{path}{sentence}")


def test_files_that_are_swapped_are_told_apart(certify):
    outcome = certify(truth=DETECTIONS, detections=TRUTH)
    assert outcome.err.startswith(f"incognita: {DETECTIONS} is a list, as detections are")
    assert outcome.code == 2


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--known", "cra"), f"No category of {TRUTH} is called 'cra'. Did you mean car?"),
        (
            ("--known", ","),
            "The list of known classes is empty; leave it out to make every class known, "
            "or name at least one.",
        ),
        (
            ("--known", "car", "--classes", CLASSES),
            "The known classes are given twice, as a list and in the class map; "
            "keep one of the two.",
        ),
        (("--tau", "1.5"), "Expected tau from 0 to below 1, got 1.5."),
        (("--tau", "nan"), "Expected tau from 0 to below 1, got nan."),
        (("--score-floor", "nan"), "Expected a finite score_threshold, got nan."),
        (("--score-floor", "inf"), "Expected a finite score_threshold, got inf."),
        (
            ("--out", STREET),
            f"{STREET} is a folder, but a file is expected; name one inside it.",
        ),
        (
            ("--out", TRUTH / "certificate.json"),
            f"{TRUTH / 'certificate.json'} cannot be written: File exists. Choose another file.",
        ),
        (
            ("--classes", TRUTH),
            f"{TRUTH} is not TOML: Invalid statement (at line 1, column 1); correct the file.",
        ),
    ],
)
def test_wrong_options_end_with_code_2_and_a_sentence(certify, arguments, sentence):
    assert_one_sentence(certify(*arguments), 2, sentence)


@pytest.mark.parametrize("option", ["truth", "detections", "classes"])
@pytest.mark.parametrize("way", ["itself", "a link", "another spelling"])
def test_an_output_that_is_an_input_is_refused_and_the_input_untouched(call, tmp_path, option, way):
    files = {"truth": TRUTH, "detections": DETECTIONS, "classes": CLASSES}
    for name, path in files.items():
        files[name] = tmp_path / path.name
        files[name].write_bytes(path.read_bytes())
    before = {path: path.read_bytes() for path in files.values()}
    out = {
        "itself": files[option],
        "a link": tmp_path / "link.json",
        "another spelling": tmp_path / ".." / tmp_path.name / files[option].name,
    }[way]
    if way == "a link":
        out.symlink_to(files[option])
    given = [each for name, path in files.items() for each in (f"--{name}", path)]
    outcome = call("certify", *given, "--resamples", 0, "--out", out)
    assert_one_sentence(outcome, 2, f"--out {out} is one of the inputs. Choose another file.")
    assert {path: path.read_bytes() for path in before} == before


def test_links_that_go_in_a_circle_are_no_file(certify, tmp_path):
    circle = tmp_path / "circle.json"
    circle.symlink_to(circle)
    sentence = f"There is no file at {circle}; check the path."
    assert_one_sentence(certify("--out", tmp_path / "new.json", truth=circle), 3, sentence)
    assert certify("--out", circle).code == 0


@pytest.mark.parametrize(
    ("error", "code", "sentence"),
    [
        (
            OSError(28, "No space left on device", "/x"),
            4,
            "The disk is too full to write /x. Make room first.",
        ),
        (OSError(5, "Input/output error"), 2, "The output: Input/output error."),
        (
            MemoryError("Unable to allocate 9 EiB"),
            2,
            "Out of memory: Unable to allocate 9 EiB. Process less at once.",
        ),
    ],
)
def test_a_machine_that_gives_up_ends_with_a_code_and_a_sentence(
    certify, monkeypatch, error, code, sentence
):
    def give_up(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("incognita.evaluation.certify.certify", give_up)
    assert_one_sentence(certify(), code, sentence)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("certify", "--truth", TRUTH), "got no --detections"),
        (("certify", "--resamples", "-1"), "Invalid value for '--resamples'"),
        (("certify", "--resamples", "100001"), "Invalid value for '--resamples'"),
        (("certify", "--seed", "-1"), "Invalid value for '--seed'"),
        (("certify", "--tau", "much"), "Invalid value for '--tau'"),
        (("certify", "--treshold", "1"), "No such option"),
        (("certifi",), "No such command 'certifi'"),
    ],
)
def test_a_command_line_that_is_wrong_ends_with_code_2(call, arguments, problem):
    outcome = call(*arguments)
    assert outcome.code == 2
    assert outcome.out == ""
    assert problem in plain(outcome.err)
    assert "Traceback" not in outcome.err


def test_an_interrupted_command_ends_with_code_130(certify, monkeypatch):
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("incognita.evaluation.certify.certify", interrupt)
    outcome = certify()
    assert outcome.code == 130
    assert "Traceback" not in outcome.err


def test_an_interrupt_ends_a_real_process_at_once_and_without_a_traceback():
    command = [*COMMAND, "certify", "--truth", TRUTH, "--detections", DETECTIONS, "--json"]
    with subprocess.Popen(
        [*command, "--resamples", "100000"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        try:
            time.sleep(1.5)
            assert process.poll() is None, "it ended by itself; give it more to do"
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == 130
    assert out == ""
    assert "Traceback" not in err


def test_an_interrupt_that_compiled_code_swallowed_stops_before_the_next_step(certify, monkeypatch):
    went_on: list[str] = []

    def swallow(*_: object, on_step: Callable[[str], None], **__: object) -> None:
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:
            on_step("the next one")
            went_on.append("past the step")

    monkeypatch.setattr(terminal, "interrupts", [])
    monkeypatch.setattr("incognita.evaluation.certify.certify", swallow)
    outcome = certify()
    assert went_on == []
    assert (outcome.code, outcome.out) == (130, "")
    assert "Traceback" not in outcome.err


def test_an_interrupt_that_compiled_code_turned_into_another_error_ends_with_code_130(
    certify, monkeypatch
):
    def turn(*_: object, **__: object) -> None:
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt as error:
            raise SystemError("returned a result with an exception set") from error

    monkeypatch.setattr(terminal, "interrupts", [])
    monkeypatch.setattr("incognita.evaluation.certify.certify", turn)
    outcome = certify()
    assert (outcome.code, outcome.out) == (130, "")
    assert "Traceback" not in outcome.err


# --- help ------------------------------------------------------------------------------------

HELP_IMPORTS = """
import sys
from incognita.cli import main
for arguments in (["--help"], ["certify", "--help"], ["demo", "--help"], ["--version"]):
    sys.argv = ["incognita", *arguments]
    try:
        main()
    except SystemExit as leave:
        assert not leave.code, leave
heavy = {"numpy", "torch", "numba", "scipy", "polars"} & set(sys.modules)
assert not heavy, heavy
"""


def test_help_and_version_import_nothing_heavy():
    done = subprocess.run(
        [sys.executable, "-c", HELP_IMPORTS], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith(f"incognita {incognita.__version__}\n")


def test_help_names_every_option():
    shown = plain(CliRunner().invoke(app, ["certify", "--help"], env={"COLUMNS": "200"}).output)
    for option in (
        "--truth", "--detections", "--known", "--classes", "--tau", "--score-floor",
        "--resamples", "--seed", "--json", "--out",
    ):  # fmt: skip
        assert option in shown


def test_no_command_shows_the_help_and_version_the_version(call):
    shown = call()
    assert "certify" in shown.out
    assert "demo" in shown.out
    assert shown.code == 2
    assert call("--version") == (0, f"incognita {incognita.__version__}\n", "")
