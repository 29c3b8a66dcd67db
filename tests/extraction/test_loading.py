"""Images are the same however many processes read them, and no process is left behind."""

import io
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from incognita import Preprocessing, wrap_classifier
from incognita.errors import InvalidDataError, WorkerError
from incognita.extraction import loading
from incognita.extraction.extract import OutputStore, Settings, extract
from incognita.extraction.loading import ReaderProcesses
from incognita.formats import images as image_files
from incognita.formats.images import FileDataset, load_image

ROOT = Path(__file__).resolve().parents[2]
N_IMAGES = 700


class Net(nn.Module):
    """Two layers and a head."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.conv = nn.Conv2d(3, 4, 3, stride=2)
        self.fc = nn.Linear(4, 5)

    def forward(self, batch):
        return self.fc(self.conv(batch).relu().mean(dim=(2, 3)))


def classifier():
    return wrap_classifier(Net(), preprocess=Preprocessing(size=20, crop=16, mean="imagenet"))


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder, random = tmp_path_factory.mktemp("files"), np.random.default_rng(0)
    for k in range(N_IMAGES):
        pixels = random.integers(0, 256, (*random.integers(18, 40, 2), 3), dtype=np.uint8)
        suffix = "png" if k % 2 else "jpg"
        Image.fromarray(pixels).save(folder / f"{k:03d}.{suffix}")
    (folder / "100.jpg").write_bytes((folder / "100.jpg").read_bytes()[:200])
    return FileDataset("files", folder, tuple(sorted(path.name for path in folder.iterdir())))


def shard_files(root):
    return {str(p.relative_to(root)): p.read_bytes() for p in sorted(root.rglob("*.safetensors"))}


@pytest.mark.parametrize("device", ["cpu", "cpu,cpu"])
@pytest.mark.parametrize("workers", [2, 4])
def test_readers_give_the_bytes_of_threads(tmp_path, files, workers, device):
    for name, settings in {
        "threads": Settings(workers=0),
        "readers": Settings(workers=workers, device=device),
    }.items():
        found = extract(classifier(), files, settings=settings, store=OutputStore(tmp_path / name))
        assert [image.image_id for image in found.failed_images] == ["100.jpg"]
        assert found.n_images == N_IMAGES - 1
    assert shard_files(tmp_path / "threads") == shard_files(tmp_path / "readers")


def children(pid):
    return {int(p) for p in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()}


def test_readers_are_started_once_for_several_sets_and_end_with_their_context(files):
    before = children(os.getpid())
    with ReaderProcesses(2) as readers:
        settings, seen = Settings(workers=2), []
        for rows in (range(300), range(300, 700)):
            part = files.subset(rows)
            together = extract(classifier(), part, settings=settings, readers=readers).outputs
            assert torch.equal(together.logits, extract(classifier(), part).outputs.logits)
            seen.append(children(os.getpid()) - before)
        assert len(seen[0]) == 2
        assert seen[0] == seen[1]
    assert children(os.getpid()) <= before


def test_readers_are_sent_a_large_set_in_parts(files, monkeypatch):
    monkeypatch.setattr(loading, "_BLOCK", 512)
    found = extract(classifier(), files, settings=Settings(workers=2))
    assert torch.equal(found.outputs.logits, extract(classifier(), files).outputs.logits)
    assert [image.image_id for image in found.failed_images] == ["100.jpg"]


def test_a_killed_reader_is_reported_and_the_next_run_goes_on(tmp_path, files):
    store, settings, killed = OutputStore(tmp_path / "killed"), Settings(workers=2), []
    before = children(os.getpid())

    def kill(_):
        if not killed:
            killed.append(max(children(os.getpid()) - before))
            os.kill(killed[0], signal.SIGKILL)
            time.sleep(0.5)

    model, many = classifier(), files.subset([k % N_IMAGES for k in range(N_IMAGES)])
    small = Settings(workers=2, batch_size=4)
    with pytest.raises(WorkerError, match=r"A reader process failed .*[kK]illed.*start again"):
        extract(model, many, settings=small, store=store, on_progress=kill)
    assert children(os.getpid()) <= before
    resumed = extract(model, files, settings=settings, store=store)
    whole = extract(model, files)
    assert torch.equal(resumed.outputs.logits, whole.outputs.logits)


class HangingImages(FileDataset):
    """One image that is never there, as on a file system that went away."""

    def load(self, index):
        if self.image_ids[index] == "300.jpg":
            time.sleep(60)
        return super().load(index)


def test_a_reader_that_hangs_is_named_by_its_image(files):
    hanging = HangingImages("files", files.root, files.image_ids)
    with (
        ReaderProcesses(2, patience=2.0) as readers,
        pytest.raises(
            WorkerError, match=r"Nothing was read for 2 seconds; readers are at .*300\.jpg"
        ),
    ):
        extract(classifier(), hanging, settings=Settings(workers=2), readers=readers)


def test_preprocessing_that_cannot_be_sent_is_said(files):
    model = wrap_classifier(Net(), preprocess=lambda image: torch.zeros(3, 16, 16))
    with pytest.raises(InvalidDataError, match="preprocessing cannot be sent to other processes"):
        extract(model, files, settings=Settings(workers=2))


def test_shapes_that_cannot_be_one_batch_are_said_by_readers_too(files):
    model = wrap_classifier(Net(), preprocess="none")
    with pytest.raises(InvalidDataError, match=r"returns different shapes, .* for 000\.jpg"):
        extract(model, files, settings=Settings(workers=2))


ENDLESS = """
import sys, time
from pathlib import Path
from incognita.extraction.extract import Settings, extract
from incognita.formats.images import FileDataset
sys.path.insert(0, ".")
from tests.extraction.test_loading import classifier
folder = Path(sys.argv[1])
files = FileDataset("files", folder, tuple(sorted(path.name for path in folder.iterdir())))
def on_progress(_):
    print("read", flush=True)
    time.sleep(0.2)
while True:
    settings = Settings(workers=2, batch_size=32)
    extract(classifier(), files, settings=settings, on_progress=on_progress)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc and /dev/shm")
def test_nothing_is_left_of_a_run_that_is_killed(files):
    shared = set(Path("/dev/shm").iterdir())
    process = subprocess.Popen(
        [sys.executable, "-c", ENDLESS, str(files.root)], cwd=ROOT, stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"},
    )  # fmt: skip
    assert process.stdout.readline() == b"read\n"
    readers = children(process.pid)
    assert len(readers) == 2
    process.kill()
    process.wait()
    deadline = time.monotonic() + 30
    while any(map(is_alive, readers)) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert not any(map(is_alive, readers))
    assert set(Path("/dev/shm").iterdir()) <= shared
    process.stdout.close()


def is_alive(pid):
    try:
        return "Z (zombie)" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


def with_pillow(path):
    with Image.open(path) as image:
        return np.asarray(image.convert("RGB"))


@pytest.mark.parametrize("subsampling", [0, 1, 2])
@pytest.mark.parametrize(
    "options", [{}, {"progressive": True}, {"quality": 30}, {"optimize": True}]
)
def test_jpeg_files_are_decoded_as_pillow_does(tmp_path, subsampling, options):
    random = np.random.default_rng(7)
    for k in range(8):
        coarse = random.integers(0, 256, (*random.integers(1, 9, 2), 3), dtype=np.uint8)
        size = tuple(int(n) for n in random.integers(1, 200, 2))
        path = tmp_path / f"{k}.jpg"
        Image.fromarray(coarse).resize(size).save(path, subsampling=subsampling, **options)
        np.testing.assert_array_equal(load_image(path), with_pillow(path))


@pytest.mark.parametrize("mode", ["L", "CMYK", "YCbCr"])
def test_other_modes_of_jpeg_are_decoded_as_pillow_does(tmp_path, mode):
    pixels = np.random.default_rng(0).integers(0, 256, (30, 41, 3), dtype=np.uint8)
    Image.fromarray(pixels).convert(mode).save(tmp_path / "a.jpg")
    np.testing.assert_array_equal(load_image(tmp_path / "a.jpg"), with_pillow(tmp_path / "a.jpg"))


def test_a_decoder_that_differs_from_pillow_is_not_used():
    def as_pillow(content):
        return with_pillow(io.BytesIO(content))

    assert not image_files._decodes_like_pillow(lambda content: as_pillow(content) ^ 1)
    assert image_files._decodes_like_pillow(as_pillow)


def test_only_plain_jpeg_files_of_a_bearable_size_skip_pillow(tmp_path, monkeypatch):
    pixels = np.zeros((30, 41, 3), np.uint8)
    content = {}
    for mode in ("RGB", "L", "CMYK"):
        file = io.BytesIO()
        Image.fromarray(pixels).convert(mode).save(file, "JPEG", exif=Image.Exif())
        content[mode] = file.getvalue()
    assert [image_files._is_plain_jpeg(content[mode]) for mode in content] == [True, True, False]
    assert not any(image_files._is_plain_jpeg(content["RGB"][:n]) for n in range(0, 160, 7))
    assert not image_files._is_plain_jpeg(b"\x89PNG" + content["RGB"][4:])
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 30 * 41 // 2 - 1)
    assert not image_files._is_plain_jpeg(content["RGB"])
