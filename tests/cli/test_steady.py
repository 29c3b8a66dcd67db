"""What must not disturb a run: signals, full disks, prints, strange names."""

import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from incognita.containers.boxes import BoxTruth, Detections
from incognita.containers.classes import Classes
from incognita.errors import InvalidDataError, StorageError
from incognita.evaluation.certify import certify
from incognita.evaluation.evaluate import evaluate
from incognita.extraction.settings import Settings
from incognita.extraction.store import ShardGroup, StoredShards
from incognita.metrics.ranking import auroc
from incognita.models.load import load_model

COMMAND = [sys.executable, "-m", "incognita.cli"]
NETWORK = """
import torch
from torch import nn
from incognita import wrap_classifier

class Chatty(nn.Sequential):
    def forward(self, images):
        print("a network that prints")
        return super().forward(images)

def pixels(image):
    return torch.from_numpy(image.copy()).permute(2, 0, 1) / 255

def build():
    torch.manual_seed(0)
    layers = nn.Conv2d(3, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 2)
    return wrap_classifier(
        Chatty(*layers), preprocess=pixels, class_names=("red", "green"), name="chatty",
        example=torch.rand(2, 3, 12, 12),
    )
"""
DEFINITION = """
name = "mine/two"
version = 1
title = "red against green"
classes = ["red", "green"]
"""
SET = '[[set]]\nname = "{0}"\nrole = "{1}"\nkind = "folder"\npath = "{0}"\n'
NOT_UTF8 = os.fsdecode(b"caf\xe9.png")


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A benchmark and a model of one's own; some names are not UTF-8."""
    rng = np.random.default_rng(0)
    for part in ("train", "test", "noise"):
        for name in ("sky", "sea") if part == "noise" else ("red", "green"):
            for k in (*(f"{k}.png" for k in range(10)), NOT_UTF8):
                image = rng.integers(0, 256, (12, 12, 3), dtype=np.uint8)
                path = tmp_path / part / name / k
                path.parent.mkdir(parents=True, exist_ok=True)
                Image.fromarray(image).save(path)
    sets = [SET.format("train", "train"), SET.format("test", "test"), SET.format("noise", "near")]
    (tmp_path / "mine.toml").write_text("\n".join([DEFINITION, *sets]))
    (tmp_path / "net.py").write_text(NETWORK)
    return tmp_path


def test_what_a_network_prints_stays_out_of_the_json(own):
    options = ["--model", "net.py:build", "--methods", "msp", "--resamples", "10", "--workers", "2"]
    done = subprocess.run(
        [*COMMAND, "run", "mine.toml", *options, "--json"],
        cwd=own, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["ranking"] == ["msp"]
    assert "a network that prints" in done.stderr


def test_names_that_are_not_utf8_are_stored_and_found_again(own, capsys):
    (own / "noise" / "sky" / os.fsdecode(b"\xff.png")).write_bytes(b"\x89PNG broken")
    model = load_model(f"{own / 'net.py'}:build")
    options = {"methods": "msp", "n_resamples": 10, "out": own / "out"}
    first = evaluate(model, own / "mine.toml", **options)
    assert [image for _, image, _ in first.failed_images] == ["sky/\\xff.png"]
    second = evaluate(model, own / "mine.toml", **options)
    assert second.metadata["passes"]["images"] == 0
    assert [len(scored) for scored in second.sets] == [len(scored) for scored in first.sets]
    assert "red/caf\\xe9.png" in second.sets[0].image_ids
    capsys.readouterr()
    print(second)  # noqa: T201
    assert "sky/\\xff.png" in capsys.readouterr().out


def shards(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.safetensors"))


def is_running(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "to_all"), [(signal.SIGINT, False), (signal.SIGTERM, False), (signal.SIGTERM, True)]
)
def test_a_signal_ends_a_run_with_workers_quietly_and_the_same_command_goes_on(
    tmp_path, number, to_all
):
    options = ["--methods", "msp", "--workers", "2", "--resamples", "10", "--out", "out"]
    command = [*COMMAND, "run", "terra/standard", *options]
    with subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True,
    ) as process:  # fmt: skip
        while not shards(tmp_path / "out") and process.poll() is None:
            time.sleep(0.02)
        (os.killpg if to_all else os.kill)(process.pid, number)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 128 + number, err
    assert "Traceback" not in err
    assert err.splitlines()[-1] == (
        "incognita: Interrupted; the same command goes on where this one has stopped."
    )
    assert out == ""
    for _ in range(100):
        if not is_running(process.pid):
            break
        time.sleep(0.1)
    assert not is_running(process.pid), "a worker is left"
    assert shards(tmp_path / "out")


@contextmanager
def no_file_above(n_bytes: int) -> Iterator[None]:
    """Make the system refuse to write more into a file, as it does on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_is_a_sentence_and_leaves_what_was_stored(tmp_path):
    stored = StoredShards(tmp_path)
    small = ShardGroup((0,), {"logits": torch.zeros(1, 2)})
    stored.write(0, "outputs", small)
    large = ShardGroup((1,), {"logits": torch.zeros(1, 100_000)})
    with no_file_above(10_000), pytest.raises(StorageError, match="since the disk is full"):
        stored.write(1, "outputs", large)
    assert stored.has(0, "outputs")
    assert not stored.has(1, "outputs")
    assert not list(tmp_path.rglob("*.draft"))
    stored.write(1, "outputs", large)
    assert stored.has(1, "outputs")


def test_a_run_on_a_full_disk_can_go_on(own):
    model = load_model(f"{own / 'net.py'}:build")
    options = {"methods": "msp", "n_resamples": 10, "store": own / "store", "out": own / "out"}
    with no_file_above(600), pytest.raises(StorageError, match=r"start the same command again"):
        evaluate(model, own / "mine.toml", **options)
    assert not list(own.rglob("*.draft")) + list(own.rglob("*.part"))
    assert evaluate(model, own / "mine.toml", **options).is_complete


def test_a_full_disk_is_noticed_before_a_large_column_is_mapped(tmp_path, monkeypatch):
    from incognita.extraction import store

    monkeypatch.setattr(store, "JOINED_IN_MEMORY", 100)
    stored = StoredShards(tmp_path)
    for k in range(2):
        stored.write(k, "outputs", ShardGroup((k,), {"logits": torch.zeros(1, 5000)}))
    with no_file_above(30_000), pytest.raises(StorageError, match="since the disk is full"):
        store.join(stored, 2, ["outputs"])
    assert len(store.join(stored, 2, ["outputs"]).rows) == 2


def test_a_full_device_ends_certify_with_code_4(tmp_path):
    truth = tmp_path / "gt.json"
    truth.write_text(
        '{"images": [{"id": 1}], "annotations": [], "categories": [{"id": 1, "name": "a"}]}'
    )
    (tmp_path / "dets.json").write_text("[]")
    (tmp_path / "full.json").symlink_to("/dev/full")
    options = ["--detections", "dets.json", "--resamples", "0", "--out", "full.json"]
    done = subprocess.run(
        [*COMMAND, "certify", "--truth", "gt.json", *options],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 4
    assert done.stderr.splitlines()[-1].startswith("incognita: /dev/full cannot be written")


def test_names_from_files_do_not_reach_the_terminal_raw():
    classes = Classes(("car\x1b[31m\x07", "unknown"))
    truth = BoxTruth([1], [0, 1], [[0, 0, 9, 9]], [0], classes)
    found = Detections([1], [0, 1], [[0, 0, 9, 9]], [0.8], [0], classes)
    shown = str(certify(truth, found, n_resamples=0))
    assert not {"\x1b", "\x07"} & set(shown)
    error = InvalidDataError(f"No class is called \x1b[2J{'x' * 1000}.")
    assert str(error).startswith("No class is called \\x1b[2Jxxx")
    assert len(str(error)) < 350


@pytest.mark.usefixtures("outside_tests")
@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"benchmark": 5}, "Expected benchmark to be a name, a TOML file or a Benchmark, got 5."),
        ({"limit": 2.5}, "Expected limit to be a whole number, got 2.5."),
        ({"seed": "0"}, "Expected seed to be a whole number, got '0'."),
        ({"n_resamples": 1.5}, "Expected n_resamples to be a whole number, got 1.5."),
        ({"n_resamples": -1}, "Expected n_resamples to be at least 0, got -1."),
        ({"data": 3}, "Expected data to be the path of a folder, got 3."),
        ({"out": 3}, "Expected out to be the path of a folder, got 3."),
    ],
)
def test_an_option_of_another_type_is_answered_with_a_sentence(options, sentence):
    with pytest.raises(InvalidDataError) as caught:
        evaluate("digits:classifier", **({"benchmark": "digits/standard"} | options))
    assert str(caught.value) == sentence


@pytest.mark.usefixtures("outside_tests")
@pytest.mark.parametrize("options", [{"batch_size": 2.5}, {"workers": "2"}, {"workers": True}])
def test_settings_of_another_type_are_answered_with_a_sentence(options):
    with pytest.raises(InvalidDataError, match="to be a whole number, got"):
        Settings(**options)


@pytest.mark.usefixtures("outside_tests")
def test_text_as_scores_is_answered_with_a_sentence():
    with pytest.raises(InvalidDataError, match="unknown_score must be numbers, but is <U3"):
        auroc(["0.1", "0.2"], [True, False])


def test_a_python_file_without_a_function_is_hinted_at():
    with pytest.raises(InvalidDataError) as caught:
        load_model("models.py")
    assert str(caught.value) == (
        "Expected FILE.py:FUNCTION, got models.py. Name the function that returns the network: "
        "models.py:FUNCTION."
    )
