"""Hostile files: every reader returns, or raises an error of ours, soon and without a traceback.

Each reader gets 2,000 files: one half are valid files with damaged bytes, one half valid documents
with damaged values.
"""

import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from PIL import Image
from tests.benchmarks.image_trees import STREET, write_street
from tests.fuzz.mutations import NOISE, as_toml, damaged_bytes, damaged_document

from incognita.errors import UNPRINTABLE, IncognitaError

pytestmark = pytest.mark.slow
FILES_PER_READER = 2000
LONGEST = 5  # seconds for one file
Check = Callable[[Path], object]


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """A folder in memory: 30,000 small files would wear a disk."""
    memory = Path("/dev/shm")
    path = Path(tempfile.mkdtemp(dir=memory if os.access(memory, os.W_OK) else None))
    yield path
    shutil.rmtree(path)


@contextmanager
def in_time() -> Iterator[None]:
    def hang(*_: object) -> None:
        raise TimeoutError(f"reading takes more than {LONGEST} seconds")

    before = signal.signal(signal.SIGALRM, hang)
    signal.alarm(LONGEST)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def fuzz(path: Path, damage: Callable[[bytes], bytes | None], read: Check) -> None:
    """Damage a file in 1,000 ways; only errors of ours may be raised, each as one short text."""

    @settings(
        max_examples=FILES_PER_READER // 2,
        derandomize=True,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(NOISE)
    def damaged(noise: bytes) -> None:
        content = damage(noise)
        path.write_bytes(content)
        sentence = ""
        with in_time():
            try:
                read(path)
            except IncognitaError as error:
                sentence = str(error)
        assert not UNPRINTABLE.search(sentence), sentence
        assert len(sentence) < 6000

    damaged()


def fuzz_bytes(path: Path, content: bytes, read: Check) -> None:
    fuzz(path, partial(damaged_bytes, content), read)


def fuzz_document(path: Path, document: Any, write: Callable[[Any], str], read: Check) -> None:
    def damage(noise: bytes) -> bytes:
        damaged = damaged_document(document, noise)
        text = write(damaged if isinstance(damaged, dict) or write is json.dumps else document)
        return text.encode("utf-8", "replace")

    fuzz(path, damage, read)


# annotation files -----------------------------------------------------------------------------

TRUTH = {
    "info": {"year": 2026},
    "images": [
        {"id": 1, "file_name": "1.jpg", "width": 20, "height": 10},
        {"id": 7, "file_name": "a/2.jpg", "width": 20, "height": 10},
    ],
    "categories": [
        {"id": 1, "name": "car", "supercategory": "vehicle"},
        {"id": 3, "name": "deer", "supercategory": None},
    ],
    "annotations": [
        {
            "id": 1,
            "image_id": 1,
            "category_id": 1,
            "bbox": [1, 2, 3.5, 4],
            "area": 14,
            "iscrowd": 0,
        },
        {"id": 2, "image_id": 7, "category_id": 3, "bbox": [0, 0, 9, 9], "difficult": 1},
    ],
}
RESULTS = [
    {
        "image_id": 1,
        "category_id": 1,
        "bbox": [1.25, 2, 3.5, 4e0],
        "score": 0.875,
        "more": [{}, "a"],
    },
    {"image_id": 7, "category_id": 3, "bbox": [0, 0, 9, 9], "score": 1e-3},
    {"score": 0.123456789012345678901, "bbox": [0, 0, 1, 1], "category_id": 1, "image_id": 7},
]


def test_coco_annotations(folder):
    from incognita.formats.coco_annotations import load_truth
    from incognita.formats.coco_records import load_annotations

    def read(path: Path) -> None:
        for load in (load_truth, load_annotations):
            try:
                load(path)
            except IncognitaError:
                continue
        load_truth(path, known=["car"])

    fuzz_bytes(folder / "gt.json", json.dumps(TRUTH).encode(), read)
    fuzz_document(folder / "gt.json", TRUTH, json.dumps, read)


def test_coco_results(folder):
    from incognita.formats.coco_annotations import load_truth
    from incognita.formats.coco_results import load_detections

    (folder / "truth.json").write_text(json.dumps(TRUTH))
    truth = load_truth(folder / "truth.json")
    fuzz_bytes(
        folder / "dets.json", json.dumps(RESULTS).encode(), lambda p: load_detections(p, truth)
    )
    fuzz_document(folder / "dets.json", RESULTS, json.dumps, lambda p: load_detections(p, truth))


def test_every_truncation_of_results_is_refused(folder):
    from incognita.formats.coco_results import load_columns

    whole = json.dumps(RESULTS).encode()
    for end in range(len(whole)):
        (folder / "dets.json").write_bytes(whole[:end])
        with pytest.raises(IncognitaError):
            load_columns(folder / "dets.json")


BOUNDS = '''
import sys, warnings
import numpy as np
from incognita.kernels.coco_json import BEFORE_LIST, N_IDS, N_VALUES, scan_results

class Guarded(np.ndarray):
    """An array that may not be read before its start or behind its end."""
    def __getitem__(self, place):
        assert isinstance(place, slice) or 0 <= place < len(self), place
        value = np.ndarray.__getitem__(self, place)
        return value if isinstance(place, slice) else int(value)

warnings.simplefilter("ignore")
whole = sys.stdin.buffer.read()
rng = np.random.default_rng(0)
for k in range(600):
    content = bytearray(whole)
    for _ in range(k % 4):
        content[rng.integers(len(content))] = rng.integers(256)
    content = content[: rng.integers(len(content) + 1)] if k % 2 else content
    buffer = np.frombuffer(bytes(content) + b"\\0", np.uint8).view(Guarded)
    columns = np.empty((9, N_IDS), np.int64), np.empty((9, N_VALUES)), np.empty((5, 4), np.int64)
    position, state = 0, BEFORE_LIST
    while True:
        before = position
        given = (before, len(content), state, *columns)
        state, position, n_rows, n_hard = scan_results(buffer, *given)
        assert 0 <= position <= len(content) and n_rows <= 9 and n_hard <= 5
        if position in (before, len(content)) or n_rows == 0:
            break
print("inside")
'''


def test_the_scanner_never_leaves_its_buffer():
    # interpreted, where an index out of bounds is an error and not a read of other memory
    done = subprocess.run(
        [sys.executable, "-c", BOUNDS],
        input=json.dumps(RESULTS * 3).encode(),
        capture_output=True,
        env={**os.environ, "NUMBA_DISABLE_JIT": "1"},
        check=False,
    )
    assert done.stdout == b"inside\n", done.stderr.decode()


# TOML -----------------------------------------------------------------------------------------

CLASS_MAP = {
    "version": 1,
    "known": ["car"],
    "unknown": ["deer"],
    "ignored": [],
    "superclasses": {"vehicle": ["car"]},
    "categories": {"81": "unknown"},
}


def test_class_maps(folder):
    from incognita.formats.class_roles import load_class_map
    from incognita.formats.coco_annotations import load_truth

    (folder / "truth.json").write_text(json.dumps(TRUTH))

    def read(path: Path) -> None:
        load_truth(folder / "truth.json", class_map=load_class_map(path))

    fuzz_bytes(folder / "classes.toml", as_toml(CLASS_MAP).encode(), read)
    fuzz_document(folder / "classes.toml", CLASS_MAP, as_toml, read)


def test_benchmarks(folder):
    import tomllib

    from incognita.benchmarks.load import load_benchmark

    write_street(folder / "street")
    read = partial(load_benchmark, cache_dir=folder / "cache")
    fuzz_bytes(folder / "street" / "a.toml", STREET.encode(), read)
    fuzz_document(folder / "street" / "a.toml", tomllib.loads(STREET), as_toml, read)


RULES = {
    "name": "mine/pets",
    "version": 2,
    "known": ["cat"],
    "remove": ["fork"],
    "near": ["cow"],
    "rest": "far",
    "remove_ids": [724, "a"],
    "candidates": {"near": [285388]},
    "expected": {"near": 1174},
    "image_folders": {"base": "images"},
}


def test_rules_of_splits(folder):
    from incognita.benchmarks.splits.rules import load_ids, load_rules

    def read(path: Path) -> None:
        try:
            load_rules(path)
        finally:
            load_ids(path, ["mine/pets"])

    fuzz_bytes(folder / "rules.toml", as_toml(RULES).encode(), read)
    fuzz_document(folder / "rules.toml", RULES, as_toml, read)


# annotations of others ------------------------------------------------------------------------


def test_voc(folder):
    from tests.formats.test_voc import thing, xml

    from incognita.formats.voc import load_voc

    (folder / "voc" / "Annotations").mkdir(parents=True)
    content = xml(thing(), thing("dog", difficult=1)).encode()
    fuzz_bytes(
        folder / "voc" / "Annotations" / "a.xml", content, lambda _: load_voc(folder / "voc")
    )


def test_yolo(folder):
    from tests.formats.test_yolo import write_yolo

    from incognita.formats.yolo import load_yolo

    write_yolo(folder / "yolo", {"a": ""})
    content = b"1 0.5 0.5 0.25 1\n0 0.1 0.1 0.2 0.2\n"
    fuzz_bytes(folder / "yolo" / "labels" / "a.txt", content, lambda _: load_yolo(folder / "yolo"))
    names = folder / "yolo" / "classes.txt"
    fuzz_bytes(names, b"cat\ndog\n", lambda _: load_yolo(folder / "yolo"))


def test_bdd(folder):
    from tests.formats.test_bdd import BOX

    from incognita.formats.bdd import load_bdd

    labels = [{"category": "car", "box2d": BOX}, {"category": "lane", "poly2d": []}]
    frames = [{"name": "a.jpg", "attributes": {"weather": "clear"}, "labels": labels}]
    fuzz_bytes(folder / "det_val.json", json.dumps(frames).encode(), load_bdd)
    fuzz_document(folder / "det_val.json", frames, json.dumps, load_bdd)


def test_hierarchies(folder):
    from tests.benchmarks.open_set_cases import hierarchy

    from incognita.formats.openimages import load_hierarchy

    def read(path: Path) -> None:
        found = load_hierarchy(path)
        assert found.below(found.root) <= {*found.depths}

    fuzz_bytes(folder / "tree.json", json.dumps(hierarchy()).encode(), read)
    fuzz_document(folder / "tree.json", hierarchy(), json.dumps, read)


def test_columns_of_boxes(folder):
    from tests.benchmarks.open_set_cases import HEADER

    from incognita.formats.openimages import load_box_columns

    content = f"{HEADER}\na,xclick,/m/1,1,0.1,0.5,0.2,0.4,0,0,1,0,0\nb,x,/m/2,1,0,1,0,1,0,0,0,0,0\n"
    read = partial(load_box_columns, labels=["/m/1", "/m/2"])
    fuzz_bytes(folder / "boxes.csv", content.encode(), read)


def test_rules_and_tables_of_open_sets(folder):
    import tomllib

    from incognita.benchmarks.splits.open_sets import VOC_COCO, load_open_set_tables
    from incognita.benchmarks.splits.superclasses import RULES as STREETS
    from incognita.benchmarks.splits.superclasses import load_superclass_rules

    for shipped, read in ((VOC_COCO, load_open_set_tables), (STREETS, load_superclass_rules)):
        fuzz_bytes(folder / "open.toml", shipped.read_bytes(), read)
        fuzz_document(folder / "open.toml", tomllib.loads(shipped.read_text()), as_toml, read)


# lists and tables -----------------------------------------------------------------------------


def test_image_lists(folder):
    from incognita.benchmarks.sources.imglist import load_imglist

    lines = "a/1.png 0\nb c/2.png 1\n./d//3.jpg 1\n"
    fuzz_bytes(folder / "list.txt", lines.encode(), load_imglist)
    rows = {f"{k}": [f"a/{k}.png", k % 2] for k in range(4)}

    def write(rows: dict) -> str:
        return "".join(
            f"{' '.join(map(str, r)) if isinstance(r, list) else r}\n" for r in rows.values()
        )

    fuzz_document(folder / "list.txt", rows, write, load_imglist)


BOXES = """ImageID,Source,LabelName,Confidence,XMin,XMax,YMin,YMax,IsOccluded,IsTruncated,IsGroupOf
a,xclick,/m/0cat,1,0.1,0.5,0.2,0.75,0,0,0
b,xclick,/m/0dog,1,0,1,0,1,0,0,1
"""


def test_openimages(folder):
    from incognita.formats.openimages import load_openimages, sizes_from_csv

    parts = {
        "boxes.csv": BOXES.encode(),
        "names.csv": b"/m/0cat,Cat\n/m/0dog,Dog\n",
        "sizes.csv": b"id,width,height\na,20,10\nb,30,40\n",
    }
    for name, content in parts.items():
        (folder / name).write_bytes(content)

    def read(_: Path) -> None:
        sizes = sizes_from_csv(folder / "sizes.csv")
        load_openimages(folder / "boxes.csv", folder / "names.csv", sizes=sizes)

    for name, content in parts.items():
        fuzz_bytes(folder / name, content, read)
        (folder / name).write_bytes(content)


# images and tensors ---------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore")  # what Pillow says about EXIF data does not end a run
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "GIF", "BMP", "WEBP", "TIFF", "PPM"])
def test_images(folder, kind):
    from incognita.formats.images import load_image

    pixels = np.random.default_rng(0).integers(0, 256, (9, 7, 3), dtype=np.uint8)
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, format=kind)
    fuzz_bytes(folder / "image.png", stream.getvalue(), load_image)


def damaged_safetensors(content: bytes, noise: bytes) -> bytes:
    """Damage the header of a file, and keep its length right."""
    n = int.from_bytes(content[:8], "little")
    header = damaged_document(json.loads(content[8 : 8 + n]), noise)
    text = json.dumps(header).encode("utf-8", "replace")
    return len(text).to_bytes(8, "little") + text + content[8 + n :]


def test_sidecars(folder):
    from safetensors.numpy import save

    from incognita.formats.coco_results import load_sidecar

    arrays = {"logits": np.ones((3, 2), np.float32), "features": np.ones((3, 4), np.float16)}
    path, content = folder / "a.safetensors", save(arrays)
    fuzz_bytes(path, content, lambda p: load_sidecar(p, 3))
    fuzz(path, partial(damaged_safetensors, content), lambda p: load_sidecar(p, 3))


def test_weights(folder):
    import torch
    from safetensors.torch import save

    from incognita.models.load import read_weights

    tensors = {"module.weight": torch.ones(2, 3), "module.bias": torch.ones(2)}
    fuzz_bytes(folder / "a.safetensors", save(tensors), read_weights)
    fuzz(folder / "a.safetensors", partial(damaged_safetensors, save(tensors)), read_weights)
    stream = io.BytesIO()
    torch.save({"state_dict": tensors}, stream)
    fuzz_bytes(folder / "a.pt", stream.getvalue(), read_weights)


# stores ---------------------------------------------------------------------------------------


def test_stored_results(folder):
    import polars
    from tests.results.method_records import record as record_of

    from incognita.results.store import ResultStore

    identity = {"method": "msp", "model": "net", "weights": "0" * 16, "benchmark": "mine/a"}
    record = replace(record_of("msp", {("auroc", "near"): 0.5}), identity=identity)
    store = ResultStore(folder / "results")
    path = store.save(record, polars.DataFrame({"set": ["a"], "unknown_score": [0.5]}))
    content, scores = path.read_bytes(), path.with_suffix(".parquet").read_bytes()
    fuzz_bytes(path, content, lambda _: store.find(record.identity))
    fuzz_document(path, json.loads(content), json.dumps, lambda _: store.find(record.identity))
    path.write_bytes(content)
    fuzz_bytes(path.with_suffix(".parquet"), scores, lambda _: store.find(record.identity))


def test_stored_outputs(folder):
    import torch

    from incognita.extraction.store import ShardGroup, StoredShards, join

    (folder / "shards").mkdir()
    shards = StoredShards(folder / "shards")
    columns = {"logits": torch.ones(5, 2), "features": torch.ones(5, 3)}
    shards.write(0, "outputs", ShardGroup((0, 2, 3), columns, {1: "broken"}, (1, 2, 2)))
    path = next((folder / "shards").rglob("*.safetensors"))

    def read(_: Path) -> None:
        if shards.has(0, "outputs"):
            join(shards, 1, ["outputs"])

    content = path.read_bytes()
    fuzz_bytes(path, content, read)
    fuzz(path, partial(damaged_safetensors, content), read)


def test_saved_methods(folder):
    import torch

    from incognita.containers.outputs import ClassifierOutputs
    from incognita.methods import load_method
    from incognita.methods.saving import load_saved_method, save_method

    rng = torch.Generator().manual_seed(0)
    rows = ClassifierOutputs(
        tuple("abcdef"),
        torch.randn(6, 2, generator=rng),
        torch.randn(6, 3, generator=rng),
        labels=torch.tensor([0, 1, 0, 1, 0, 1]),
    )
    save_method(load_method("knn", k=2).fit(rows), folder / "knn.safetensors")
    content = (folder / "knn.safetensors").read_bytes()
    fuzz_bytes(folder / "knn.safetensors", content, load_saved_method)
    fuzz(folder / "knn.safetensors", partial(damaged_safetensors, content), load_saved_method)
