"""What is on disk is found again, made anew where it is wrong, and never mixed up."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from multiprocessing.context import SpawnProcess
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.extraction.slow_run import EXTRA_OUTPUTS, N_IMAGES, run
from tests.extraction.test_extract import counted
from tests.extraction.tiny import FailingImages, TinyClassifier, images

from incognita.containers.dataset import ArrayDataset
from incognita.errors import InvalidDataError, WorkerError
from incognita.extraction.classifier_pass import ClassifierExtraction
from incognita.extraction.extra_outputs import GramRows, InputStep, LogitsWithoutTopDirection
from incognita.extraction.extract import (
    ExtractionJob,
    OutputStore,
    PassCount,
    Settings,
    extract,
    run_on_devices,
)
from incognita.extraction.settings import OutputRequest, ShardJob
from incognita.extraction.store import StoredShards

ROOT = Path(__file__).resolve().parents[2]


def shard_files(root):
    return {str(p.relative_to(root)): p.read_bytes() for p in sorted(root.rglob("*.safetensors"))}


def same(a, b):
    assert a.image_ids == b.image_ids
    columns = [
        {"logits": o.logits, "features": o.features, **o.layers, **o.extra_outputs} for o in (a, b)
    ]
    assert columns[0].keys() == columns[1].keys()
    for name, column in columns[0].items():
        assert torch.equal(column, columns[1][name]), name


def test_a_second_call_runs_nothing_and_gives_the_same(tmp_path):
    classifier, dataset, counts = TinyClassifier(), images(1100, size=8), []
    seen = counted(classifier)
    request = {"layers": True, "extra_outputs": EXTRA_OUTPUTS}
    fresh = extract(classifier, dataset, **request)
    first = extract(classifier, dataset, **request, store=OutputStore(tmp_path))
    seen.clear()
    second = extract(
        classifier, dataset, **request, store=OutputStore(tmp_path), on_progress=counts.append
    )
    assert seen == []
    assert second.passes == PassCount(0, 0, 0)
    assert counts == [512, 512, 76]
    same(fresh.outputs, first.outputs)
    same(first.outputs, second.outputs)


def test_only_the_missing_group_is_run(tmp_path):
    classifier, dataset, store = TinyClassifier(), images(700, size=8), OutputStore(tmp_path)
    extract(classifier, dataset, store=store)
    costs = {LogitsWithoutTopDirection(): (2, 0), GramRows(): (1, 0), InputStep(0.1): (2, 1)}
    for extra, (forward, backward) in costs.items():
        got = extract(classifier, dataset, store=store, extra_outputs=[extra])
        assert got.passes == PassCount(700, 700 * forward, 700 * backward)
    got = extract(classifier, dataset, store=store, extra_outputs=list(costs))
    assert got.passes == PassCount(0, 0, 0)
    assert len(got.outputs.extra_outputs) == 2 + 3 + 2


@pytest.mark.parametrize("damage", ["cut", "emptied", "changed", "garbage"])
def test_a_damaged_shard_is_made_anew(tmp_path, damage):
    classifier, dataset, store = TinyClassifier(), images(1100, size=8), OutputStore(tmp_path)
    first = extract(classifier, dataset, layers=True, extra_outputs=EXTRA_OUTPUTS, store=store)
    intact = shard_files(tmp_path)
    name = sorted(intact)[1]
    content = bytearray(intact[name])
    if damage == "changed":  # a page that never reached the disk
        content[-400:] = bytes(400)
    damaged = {"cut": content[:-1], "emptied": b"", "changed": content, "garbage": b"x" * 999}
    (tmp_path / name).write_bytes(damaged[damage])
    second = extract(classifier, dataset, layers=True, extra_outputs=EXTRA_OUTPUTS, store=store)
    assert second.passes.images == 512
    assert shard_files(tmp_path) == intact
    same(first.outputs, second.outputs)


def keys(root):
    return {path.name for path in root.iterdir()}


def test_whatever_changes_an_output_changes_the_key(tmp_path):
    dataset, store = images(20), OutputStore(tmp_path)

    def n_keys(classifier=None, data=dataset, **settings):
        extract(classifier or TinyClassifier(), data, settings=Settings(**settings), store=store)
        return len(keys(tmp_path))

    assert n_keys() == 1
    renamed = TinyClassifier()
    renamed.name = "another name"
    assert n_keys(renamed) == 1
    assert n_keys(TinyClassifier(seed=1)) == 2
    other = TinyClassifier()
    other.preprocessing = "something else"
    assert n_keys(other) == 3
    other_layers = TinyClassifier()
    other_layers.layers = ("stem",)
    assert n_keys(other_layers) == 4
    pixels = dataset.images.copy()
    pixels[7, 3, 3, 0] ^= 1
    assert n_keys(data=replace(dataset, images=pixels)) == 5
    labels = dataset.labels.copy()
    labels[2] = 4
    assert n_keys(data=replace(dataset, labels=labels)) == 6
    assert n_keys(data=dataset.subset(range(19))) == 7
    assert n_keys(batch_size=64) == 8
    assert n_keys(precision="bfloat16") == 9
    assert n_keys() == 9


def test_the_manifest_can_be_read_by_people(tmp_path):
    classifier, dataset = TinyClassifier(), images(20)
    extract(classifier, dataset, extra_outputs=[InputStep(0.1)], store=OutputStore(tmp_path))
    (folder,) = tmp_path.iterdir()
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["model"] == "tiny"
    assert manifest["dataset"] == "noise"
    assert manifest["weights_hash"] == classifier.weights_hash
    assert manifest["fingerprint"] == dataset.fingerprint()
    assert (manifest["images"], manifest["shard_size"], manifest["batch_size"]) == (20, 512, 128)
    assert manifest["versions"]["torch"] == torch.__version__
    groups = {json.loads(path.read_text())["group"] for path in folder.glob("*/group.json")}
    assert groups == {"outputs", InputStep(0.1).key}


def test_failed_images_are_remembered(tmp_path):
    dataset = FailingImages(images(600), {3: OSError("cut"), 550: ValueError("odd")})
    first, second = (
        extract(TinyClassifier(), dataset, store=OutputStore(tmp_path)) for _ in range(2)
    )
    assert second.passes == PassCount(0, 0, 0)
    assert [(b.image_id, b.reason) for b in second.failed_images] == [
        ("image-3", "OSError: cut"),
        ("image-550", "ValueError: odd"),
    ]
    assert second.failed_images == first.failed_images
    assert len(second.outputs) == 598


def test_an_image_that_failed_in_one_group_has_no_row_in_any(tmp_path):
    sound = images(600)
    now_failing = FailingImages(sound, {3: OSError("cut")})
    now_failing.fingerprint = sound.fingerprint  # the file could be read before, and cannot now
    store = OutputStore(tmp_path)
    extract(TinyClassifier(), sound, store=store)
    both = extract(TinyClassifier(), now_failing, extra_outputs=[GramRows()], store=store)
    assert [image.image_id for image in both.failed_images] == ["image-3"]
    assert len(both.outputs) == 599
    alone = extract(TinyClassifier(), sound, extra_outputs=[GramRows()]).outputs
    keep = [k for k in range(600) if k != 3]
    assert torch.equal(both.outputs.logits, alone.logits[keep])
    name = f"{GramRows().key}/stem"
    torch.testing.assert_close(both.outputs.extra_outputs[name], alone.extra_outputs[name][keep])


def test_large_columns_are_joined_in_a_file(tmp_path, monkeypatch):
    request = {"layers": True, "extra_outputs": EXTRA_OUTPUTS}
    classifier, dataset, store = TinyClassifier(), images(1100, size=8), OutputStore(tmp_path)
    in_memory = extract(classifier, dataset, **request, store=store).outputs
    monkeypatch.setattr("incognita.extraction.store.JOINED_IN_MEMORY", 1000)
    files = []
    from_file = torch.from_file
    monkeypatch.setattr(
        torch, "from_file", lambda name, **k: files.append(name) or from_file(name, **k)
    )
    in_a_file = extract(classifier, dataset, **request, store=store).outputs
    assert len(files) == 2 + 3 + 3 + 2
    assert all(str(tmp_path) in name for name in files)
    assert not any(Path(name).exists() for name in files)  # nothing is left behind
    same(in_memory, in_a_file)


def test_an_interrupted_run_keeps_its_shards(tmp_path):
    classifier, dataset, store = TinyClassifier(), images(1400, size=8), OutputStore(tmp_path)
    counts = []

    def stop_in_the_second_shard(n_images):
        counts.append(n_images)
        if sum(counts) > 600:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        extract(classifier, dataset, store=store, on_progress=stop_in_the_second_shard)
    assert extract(classifier, dataset, store=store).passes.images == 1400 - 512


def start_slow_run(root):
    command = [sys.executable, "-m", "tests.extraction.slow_run", str(root), "0.02"]
    command.append(str(torch.get_num_threads()))
    return subprocess.Popen(command, cwd=ROOT, env=os.environ | {"PYTHONPATH": "src:."})


def test_a_killed_run_goes_on_where_it_stopped(tmp_path):
    killed, whole = tmp_path / "killed", tmp_path / "whole"
    process = start_slow_run(killed)
    deadline = time.monotonic() + 60
    while len(list(killed.rglob("*.safetensors"))) < 4 and time.monotonic() < deadline:
        time.sleep(0.01)
    process.kill()
    process.wait()
    n_files = len(list(killed.rglob("*.safetensors")))
    assert 4 <= n_files < 20  # one to four of five shards, four groups each
    resumed, uninterrupted = run(killed), run(whole)
    n_committed = n_files // 4
    assert resumed.passes.images <= N_IMAGES - 512 * n_committed
    assert 0 < resumed.passes.images < uninterrupted.passes.images == N_IMAGES
    assert shard_files(killed) == shard_files(whole)
    same(resumed.outputs, uninterrupted.outputs)


def test_two_workers_write_the_same_bytes_as_one(tmp_path):
    one = run(tmp_path / "one")
    two = run(tmp_path / "two", device="cpu,cpu")
    assert two.passes == one.passes
    assert shard_files(tmp_path / "one") == shard_files(tmp_path / "two")
    same(one.outputs, two.outputs)


class DeadlyImages(ArrayDataset):
    """Images of which one ends the process, as soon as a shard is committed."""

    def load(self, index):
        if index == 1300:
            while not list(Path(self.name).rglob("*.safetensors")):
                time.sleep(0.01)
            os._exit(9)
        return super().load(index)


class FailingClassifier(TinyClassifier):
    def forward(self, batch, *, replace_map=None):
        raise MemoryError("the network is on fire")


def test_a_dying_worker_is_reported_and_finished_shards_stay(tmp_path):
    sound, store = images(1400, size=8), OutputStore(tmp_path)
    dataset = DeadlyImages(str(tmp_path), sound.image_ids, sound.images, sound.labels)
    with pytest.raises(WorkerError, match="A worker process died with exit code 9"):
        extract(TinyClassifier(), dataset, settings=Settings(device="cpu,cpu"), store=store)
    assert 0 < extract(TinyClassifier(), sound, store=store).passes.images <= 1400 - 512


def test_a_failing_worker_says_why():
    words = r"^A worker process failed with MemoryError: the network is on fire. Finished [^\n]*$"
    with pytest.raises(WorkerError, match=words):
        extract(FailingClassifier(), images(5), settings=Settings(device="cpu,cpu"))


def test_what_cannot_be_sent_to_workers_is_said():
    classifier = TinyClassifier()
    classifier.preprocess = lambda image: torch.from_numpy(image.astype(np.float32))
    with pytest.raises(InvalidDataError, match="The model or the data set cannot be sent"):
        extract(classifier, images(5), settings=Settings(device="cpu,cpu"))


def after_an_interrupt(folder):
    os.kill(os.getpid(), signal.SIGINT)
    return StoredShards(folder)


class InterruptingShards(StoredShards):
    """Sends Ctrl-C to a worker that unpickles it, which is before any code of ours runs there."""

    def __reduce__(self):
        return after_an_interrupt, (self.folder,)


def two_workers_job():
    task, dataset = ClassifierExtraction(TinyClassifier()), images(600, size=8)
    return ExtractionJob(task, dataset, OutputRequest(), Settings(device="cpu,cpu"))


def test_a_worker_that_is_still_starting_leaves_an_interrupt_to_its_parent(tmp_path, capfd):
    job = two_workers_job()
    jobs = [ShardJob(k, frozenset({"outputs"})) for k in range(2)]
    shards = InterruptingShards(tmp_path)
    passes = run_on_devices(job, shards, jobs, lambda _: None)
    assert passes.images == 600
    assert "Traceback" not in capfd.readouterr().err
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, [])


def test_an_interrupt_that_comes_while_workers_are_started_is_not_lost(tmp_path, monkeypatch):
    job = two_workers_job()
    started = []
    start = SpawnProcess.start

    def interrupted_start(process):
        started.append(process)
        start(process)
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(SpawnProcess, "start", interrupted_start)
    jobs = [ShardJob(k, frozenset({"outputs"})) for k in range(2)]
    with pytest.raises(KeyboardInterrupt):
        run_on_devices(job, StoredShards(tmp_path), jobs, lambda _: None)
    assert not any(process.is_alive() for process in started)


@pytest.mark.parametrize("metadata", [None, {}, {"incognita": "[]"}, {"incognita": "3"}])
def test_a_file_that_is_no_shard_is_made_anew(tmp_path, metadata):
    store, dataset = OutputStore(tmp_path), images(5)
    whole = extract(TinyClassifier(), dataset, store=store)
    (path,) = tmp_path.rglob("*.safetensors")
    save_file(load_file(path), path, metadata=metadata)
    again = extract(TinyClassifier(), dataset, store=store)
    assert again.passes.images == 5
    assert torch.equal(whole.outputs.logits, again.outputs.logits)
