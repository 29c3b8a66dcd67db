"""Pictures of what a method makes of unknown images: whose they are, and what they survive."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageDraw
from tests.evaluation.box_worlds import CellDetector, GridScenes, box_benchmark, scenes, truth_of
from tests.extraction.tiny_detector import NAMES

import incognita
from incognita.evaluation import gallery as box_pictures
from incognita.evaluation.evaluate import BoxOptions
from incognita.evaluation.gallery import CALLED_UNKNOWN, MARGIN, NAMED, PAPER, SIDE, STRIP

TRAIN, VALIDATION, TEST = (scenes(n, 12, seed=k) for k, n in enumerate(("a", "b", "c"), start=1))
ODD = scenes("odd", 6, seed=4, known=(), unknown=("orange",))


def benchmark_of(**near):
    return box_benchmark(
        train=TRAIN, validation=VALIDATION, test=TEST, unknown={"near": near}, mixed={},
        unknown_validation=None,
    )  # fmt: skip


def run(out, methods="msp", benchmark=None, detector=None, **more):
    return incognita.evaluate(
        detector or CellDetector(), benchmark or benchmark_of(odd=ODD), methods,
        n_resamples=0, out=out, **more,
    )  # fmt: skip


def sheets(out) -> set[Path]:
    return set(Path(out).rglob("*.png"))


def test_pictures_are_reported_only_where_they_are_of_the_very_result(tmp_path):
    first = run(tmp_path)
    folder = Path(first.metadata["pictures"])
    kept = {path: path.read_bytes() for path in folder.iterdir()}
    assert folder.name.startswith("msp-")
    assert (folder.parent / f"{folder.name.removesuffix('-pictures')}.json").is_file()
    # other thresholds are other pictures, in a folder of their own
    other = run(tmp_path, boxes=BoxOptions(confidence_threshold=0.31))
    assert other.metadata["pictures"] != first.metadata["pictures"]
    assert {path: path.read_bytes() for path in folder.iterdir()} == kept
    # from the store alone they are found again
    again = run(tmp_path)
    assert again.metadata["passes"]["images"] == 0
    assert again.metadata["pictures"] == first.metadata["pictures"]
    (folder / "odd.png").unlink()
    folder.rmdir()
    assert run(tmp_path).metadata["pictures"] is None


def test_the_best_of_all_methods_is_drawn_and_not_the_best_of_the_new_ones(tmp_path):
    ranking = run(tmp_path / "all", "msp, energy, knn(k=3)").ranking()
    best, worst = ranking[0], ranking[-1]
    first = run(tmp_path / "some", best)
    drawn = sheets(tmp_path / "some")
    both = run(tmp_path / "some", f"{best}, {worst}")  # only the worst is new
    assert both.ranking() == [best, worst]
    assert both.metadata["pictures"] == first.metadata["pictures"]
    assert sheets(tmp_path / "some") == drawn
    alone = run(tmp_path / "some", worst)  # from the store: its boxes are not at hand
    assert alone.metadata["pictures"] is None
    # a better one that comes later is drawn, too
    run(tmp_path / "more", worst)
    better = run(tmp_path / "more", f"{best}, {worst}")
    assert Path(better.metadata["pictures"]).name.startswith(best.partition("(")[0])


def test_no_name_of_a_set_leaves_the_folder_or_hides_another(tmp_path):
    names = ("../../x", "a b", "a/b", "n" * 300)
    sets = {name: replace(ODD, name=name, image_ids=tuple(f"{name}{k}" for k in range(6)))
            for name in names}  # fmt: skip
    sets = {
        name: replace(each, boxes=replace(each.boxes, image_ids=np.array(each.image_ids)))
        for name, each in sets.items()
    }
    found = run(tmp_path / "deep" / "out", benchmark=benchmark_of(**sets))
    assert [note for note in found.notes if "pictures" in note] == []
    folder = Path(found.metadata["pictures"])
    assert len(sheets(tmp_path)) == 4 == len(list(folder.glob("*.png")))


def flat(name, shapes):
    """Unknown images of odd shapes, an object in each."""
    images = [np.full((h, w, 3), (225, 75, 10), np.uint8) for w, h in shapes]
    ids = tuple(f"{name}{k}" for k in range(len(shapes)))
    return GridScenes(name, ids, images, boxes=truth_of(ids, [(1.0, [])] * len(ids), ("orange",)))


def test_images_of_extreme_shapes_are_drawn(tmp_path):
    odd = flat("odd", [(5000, 1), (1, 5000), (1, 1), (3, 700)])
    found = run(tmp_path, benchmark=benchmark_of(odd=odd))
    assert [note for note in found.notes if "pictures" in note] == []
    with Image.open(Path(found.metadata["pictures"]) / "odd.png") as sheet:
        assert sheet.size == (4 * (SIDE + MARGIN) + MARGIN, STRIP + SIDE + MARGIN)


class Going:
    """Scenes of which some cannot be read any more when they are drawn."""

    def __init__(self, whole, n_whole):
        self.__dict__.update(vars(whole))
        self.whole, self.n_whole, self.n_loaded = whole, n_whole, 0

    source_classes = None

    def load(self, index):
        self.n_loaded += 1
        if self.n_loaded > len(self.whole) and index >= self.n_whole:
            raise OSError("the disk is gone")
        return self.whole.load(index)

    def __getattr__(self, name):
        return getattr(self.whole, name)

    def __len__(self):
        return len(self.whole)


def test_an_image_that_cannot_be_read_any_more_is_passed_over(tmp_path):
    whole = run(tmp_path / "whole")
    found = run(tmp_path / "going", benchmark=benchmark_of(odd=Going(ODD, 3)))
    assert found.is_complete
    pixels = {}
    for name, each in (("whole", whole), ("going", found)):
        with Image.open(Path(each.metadata["pictures"]) / "odd.png") as sheet:
            pixels[name] = np.asarray(sheet)
    three = 3 * (SIDE + MARGIN)
    tiles = slice(STRIP, STRIP + SIDE)
    np.testing.assert_array_equal(pixels["going"][tiles, :three], pixels["whole"][tiles, :three])
    assert len(pixels["going"]) < len(pixels["whole"])  # 3 pictures take one row, 6 take two
    none = run(tmp_path / "none", benchmark=benchmark_of(odd=Going(ODD, 0)))
    said = "odd: no pictures could be drawn (none of its images can be read)"
    assert none.notes[-1] == said
    assert none.metadata["pictures"] is None


def test_a_failure_to_draw_is_a_note_and_never_the_end(tmp_path, monkeypatch):
    def fail(*_):
        raise ValueError("no\nfont")

    monkeypatch.setattr(box_pictures, "picture_sheet", fail)
    found = run(tmp_path)
    assert found.is_complete
    assert found.notes[-1] == "odd: no pictures could be drawn (no font)"
    assert found.metadata["pictures"] is None


@pytest.mark.parametrize("name", ["a\nb", "名前", " ", "long " * 60])
def test_any_name_of_a_class_can_be_drawn(tmp_path, name):
    names = (name, *NAMES[1:])

    def renamed(each):
        classes = each.boxes.classes
        return replace(
            each,
            boxes=replace(each.boxes, classes=replace(classes, names=names + classes.names[3:])),
        )

    sets = {"train": TRAIN, "validation": VALIDATION, "test": TEST}
    benchmark = replace(
        benchmark_of(odd=renamed(ODD)), classes=names, **{k: renamed(v) for k, v in sets.items()}
    )
    found = run(tmp_path, benchmark=benchmark, detector=CellDetector(class_names=names))
    assert [note for note in found.notes if "pictures" in note] == []
    assert len(sheets(tmp_path)) == 1


@pytest.mark.parametrize("text", ["unknown", "traffic light", "a very long name " * 9])
@pytest.mark.parametrize("left", [0.0, 150.0, 290.0])
def test_the_name_of_a_box_is_not_cut_at_the_right_edge(text, left):
    tile = Image.new("RGB", (SIDE, SIDE), PAPER)
    draw = ImageDraw.Draw(tile)
    box_pictures._labelled(draw, [left, 50.0, 299.0, 90.0], CALLED_UNKNOWN, text)
    room = Image.new("RGB", (4 * SIDE, SIDE), PAPER)
    box_pictures._labelled(ImageDraw.Draw(room), [0.0, 50.0, 1.0, 90.0], CALLED_UNKNOWN, text)

    def letters(image):
        strip = np.asarray(image)[39:50].astype(int)
        is_ink = (strip != CALLED_UNKNOWN).any(2) & (strip != PAPER).any(2)
        return int(is_ink.sum())

    assert NAMED != CALLED_UNKNOWN
    assert letters(tile) == letters(room) > 20
