"""What a store holds, what a run will add, and what pruning deletes."""

import os
import shutil
import time
from types import SimpleNamespace

import pytest
from tests.evaluation.worlds import tiny_benchmark
from tests.extraction.tiny import TinyClassifier, images
from typer.testing import CliRunner

from incognita.cli.app import app
from incognita.errors import InvalidDataError, MissingDataError, NoSpaceError
from incognita.extraction import stored_outputs as sizes
from incognita.extraction.extract import extract
from incognita.extraction.store import OutputStore
from incognita.extraction.stored_outputs import stored_outputs


@pytest.fixture
def store(tmp_path):
    """A store with two sets, of which the second was used ten days ago."""
    for n in (3, 5):
        extract(TinyClassifier(), images(n), store=OutputStore(tmp_path))
    older = next(entry for entry in stored_outputs(tmp_path) if entry.n_images == 5)
    then = time.time() - 10 * 86400
    os.utime(older.folder / "manifest.json", (then, then))
    return tmp_path


def command(*words):
    return CliRunner().invoke(app, ["store", *map(str, words)])


def n_bytes(folder):
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def test_ls_lists_models_data_sets_sizes_and_last_use(store):
    found = stored_outputs(store)
    assert [entry.n_images for entry in found] == [3, 5]
    assert sum(entry.n_bytes for entry in found) == n_bytes(store)
    shown = command("ls", store).output
    assert "3 images" in shown
    assert time.strftime("%Y-%m-%d", time.localtime(time.time() - 10 * 86400)) in shown
    assert "2 in all" in shown


def test_opening_outputs_is_a_use(store):
    extract(TinyClassifier(), images(5), store=OutputStore(store))
    assert stored_outputs(store)[0].n_images == 5


@pytest.mark.parametrize(
    ("options", "left"),
    [(("--older-than", 5), [3]), (("--keep", 1), [3]), (("--all",), []), (("--keep", 0), [])],
)
def test_prune_deletes_what_was_chosen(store, options, left):
    before = n_bytes(store)
    assert "would be deleted" in command("prune", store, *options, "--dry-run").output
    assert n_bytes(store) == before
    assert command("prune", store, *options).exit_code == 0
    assert [entry.n_images for entry in stored_outputs(store)] == left
    assert len(list(store.iterdir())) == len(left)


def test_prune_leaves_what_is_not_ours(store, tmp_path):
    entry = stored_outputs(store)[0]
    mine = [store / "notes.txt", entry.folder / "mine.txt", store / ("a" * 64) / "mine.safetensors"]
    group = next(path for path in entry.folder.iterdir() if path.is_dir())
    mine.append(group / "mine.npz")
    for path in mine:
        path.parent.mkdir(exist_ok=True)
        path.write_text("mine")
    elsewhere = tmp_path / "elsewhere"
    shutil.copytree(stored_outputs(store)[1].folder, elsewhere / "kept")
    (store / ("b" * 64)).symlink_to(elsewhere / "kept")
    command("prune", store, "--all")
    assert all(path.read_text() == "mine" for path in mine)
    assert list((elsewhere / "kept").rglob("*.safetensors"))


def test_wrong_requests_are_sentences(store, tmp_path):
    for options in ((), ("--all", "--keep", "1")):
        done = command("prune", store, *options)
        assert isinstance(done.exception, InvalidDataError)
    assert isinstance(command("ls", tmp_path / "nowhere").exception, MissingDataError)
    (stored_outputs(store)[0].folder / "manifest.json").write_text("{")
    with pytest.raises(InvalidDataError, match="by hand"):
        stored_outputs(store)


def test_the_size_is_estimated_before_a_run(tmp_path, monkeypatch):
    benchmark, network = tiny_benchmark(), TinyClassifier()
    sets = [benchmark.train, benchmark.validation, benchmark.unknown_validation, benchmark.test]
    sets += [dataset for group in benchmark.unknown.values() for dataset in group.values()]
    sets += list(benchmark.shifted.values())
    n_images = sum(len(dataset.image_ids) for dataset in sets if dataset is not None)
    d = network.head.weight.shape
    assert sizes.estimate_bytes([network], benchmark) == 4 * n_images * sum(d)
    notes = []
    sizes.check_space([network], benchmark, tmp_path / "new", notes.append)
    assert notes == []
    monkeypatch.setattr(sizes, "WORTH_A_NOTE", 1)
    sizes.check_space([network], benchmark, tmp_path / "new", notes.append)
    assert "outputs will take about" in notes[0]
    free = SimpleNamespace(free=4 * n_images)
    monkeypatch.setattr(sizes.shutil, "disk_usage", lambda path: free)
    with pytest.raises(NoSpaceError, match="but its disk has"):
        sizes.check_space([network], benchmark, tmp_path / "new", None)
