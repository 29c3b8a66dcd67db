"""`incognita run` as people meet it: a real process, its exit code, what it leaves behind."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

QUICK = ["--limit", "60", "--methods", "msp, energy, mds, react", "--resamples", "20"]
RUN_OWN = ["run", "mine.toml", "--model", "net.py:build", "--preprocess", "none"]
NETWORK = """
import torch
from torch import nn

def build():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(8, 2),
    )
"""
OWN = """
name = "mine/two"
version = 1
title = "red against green"
classes = ["red", "green"]

[[set]]
name = "train"
role = "train"
kind = "folder"
path = "train"

[[set]]
name = "test"
role = "test"
kind = "folder"
path = "test"

[[set]]
name = "noise"
role = "near"
kind = "folder"
path = "noise"
one_class_per_folder = false
"""


def incognita(*arguments, cwd, **options):
    command = [sys.executable, "-m", "incognita.cli", *map(str, arguments)]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False, **options)


@pytest.fixture
def own(tmp_path):
    """A benchmark of one's own in one TOML file, and a model in one Python file."""
    rng = np.random.default_rng(0)
    for part, n in (("train", 20), ("test", 15)):
        for k, name in enumerate(("red", "green")):
            for i in range(n):
                image = rng.integers(0, 80, (12, 12, 3), dtype=np.uint8)
                image[:, :, k] += np.uint8(120)
                place = tmp_path / part / name / f"{i}.png"
                place.parent.mkdir(parents=True, exist_ok=True)
                Image.fromarray(image).save(place)
    (tmp_path / "noise").mkdir()
    for i in range(12):
        image = rng.integers(0, 256, (12, 12, 3), dtype=np.uint8)
        Image.fromarray(image).save(tmp_path / "noise" / f"{i}.png")
    (tmp_path / "mine.toml").write_text(OWN)
    (tmp_path / "net.py").write_text(NETWORK)
    return tmp_path


def test_an_embedded_benchmark_needs_nothing(tmp_path):
    done = incognita("run", "digits/standard", *QUICK, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "digits/standard v1: digits-classifier, accuracy" in done.stdout
    assert "note: " in done.stdout  # that only a part was looked at
    again = incognita("run", "digits/standard", *QUICK, cwd=tmp_path)
    assert "nothing left to run through the network" in again.stdout


def test_json_holds_every_number_and_where_it_comes_from(tmp_path):
    done = incognita("run", "digits/standard", *QUICK, "--search", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert set(found["ranking"]) == {"msp", "energy", "mds", "react", "react (tuned)"}
    react = found["methods"]["react (tuned)"]
    assert len(react["search"]["curve"]) == 4
    assert react["identity"]["weights"]
    assert react["provenance"]["command"]
    near = [r for r in react["results"] if (r["metric"], r["split"]) == ("auroc", "near")]
    assert 0 < near[0]["low"] <= near[0]["value"] <= near[0]["high"] <= 1


def test_an_own_benchmark_is_one_file_and_an_own_model_is_one_function(own):
    done = incognita(*RUN_OWN, "--methods", "msp,knn(k=5)", cwd=own)
    assert done.returncode == 0, done.stderr
    assert "mine/two v1" in done.stdout
    assert "knn(k=5)" in done.stdout


def test_a_network_without_preprocessing_is_asked_for_it(own):
    command = ["run", "mine.toml", "--model", "net.py:build", "--methods", "msp"]
    done = incognita(*command, cwd=own)
    assert done.returncode == 2
    assert "--preprocess none if pixels between 0 and 1 are right" in " ".join(done.stderr.split())
    (own / "mine.toml").write_text(
        OWN + "[preprocessing]\nmean = [0.5, 0.5, 0.5]\nstd = [0.2, 0.2, 0.2]\n"
    )
    done = incognita(*command, cwd=own)
    assert done.returncode == 0
    used = "so that of mine/two is used (mean=(0.5,0.5,0.5) std=(0.2,0.2,0.2))"
    assert used in " ".join(done.stdout.split())


def test_a_broken_image_ends_in_exit_code_4_and_is_named(own):
    (own / "noise" / "3.png").write_bytes(b"\x89PNG broken")
    done = incognita(*RUN_OWN, "--methods", "msp", cwd=own)
    assert done.returncode == 4
    assert "failed image: 3.png of noise" in done.stdout


def test_a_missing_folder_ends_in_exit_code_4_and_its_path(own):
    absent = '[[set]]\nname = "gone"\nrole = "far"\nkind = "folder"\npath = "gone"\n'
    (own / "mine.toml").write_text(OWN + absent)
    done = incognita(*RUN_OWN, "--methods", "msp", cwd=own)
    assert done.returncode == 4, done.stderr
    shown = "".join(done.stdout.split())
    assert f"missingset:gone:{own / 'gone'}" in shown
    assert "near" in done.stdout
    (own / "noise").rename(own / "away")
    done = incognita(*RUN_OWN, "--methods", "msp", cwd=own)
    assert done.returncode == 3
    assert f"(nothing at {own / 'noise'})" in " ".join(done.stderr.split())


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("terra/standart",), 2, "Did you mean terra/standard?"),
        (("openood/cifar10", "--model", "torchvision:resnet18"), 3, "incognita data plan"),
        (("digits/standard", "--methods", "enrgy"), 2, "Did you mean energy?"),
        (("digits/standard", "--methods", "knn(k=0)"), 2, "k"),
        (("digits/standard", "--model", "net.py:nothing"), 3, "net.py"),
        (("digits/standard", "--device", "cuda"), 2, "cuda"),
        (("digits/standard", "--device", "tpu"), 2, "tpu"),
        (("digits/standard", "--methods", "godin"), 2, "These methods can run here: msp"),
    ],
)
def test_wrong_usage_is_one_sentence_and_an_exit_code(tmp_path, arguments, code, words):
    done = incognita("run", *arguments, cwd=tmp_path)
    assert done.returncode == code, done.stderr
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def shards(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.safetensors"))


def strip(record):
    """The record without what differs between two runs: clocks."""
    return {k: v for k, v in record.items() if k not in ("provenance", "cost")}


def test_a_killed_run_goes_on_where_it_was_and_gives_the_same_numbers(tmp_path):
    arguments = ["run", "terra/standard", "--methods", "msp, mds", "--resamples", "10"]
    command = [sys.executable, "-m", "incognita.cli", *arguments, "--out", "killed"]
    process = subprocess.Popen(
        command, cwd=tmp_path, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL
    )
    while len(shards(tmp_path / "killed")) < 3 and process.poll() is None:
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    there = shards(tmp_path / "killed")
    assert there
    assert not list((tmp_path / "killed").rglob("*.json")) or process.returncode == -signal.SIGKILL
    before = {path: path.stat().st_mtime_ns for path in there}
    assert incognita(*arguments, "--out", "killed", cwd=tmp_path).returncode == 0
    redone = [path for path, changed in before.items() if path.stat().st_mtime_ns != changed]
    assert len(redone) <= 1
    assert incognita(*arguments, "--out", "whole", cwd=tmp_path).returncode == 0
    for path in (tmp_path / "whole" / "results").rglob("*.json"):
        twin = tmp_path / "killed" / path.relative_to(tmp_path / "whole")
        assert strip(json.loads(path.read_text())) == strip(json.loads(twin.read_text()))
    for path in shards(tmp_path / "whole"):
        twin = tmp_path / "killed" / path.relative_to(tmp_path / "whole")
        assert path.read_bytes() == twin.read_bytes()
