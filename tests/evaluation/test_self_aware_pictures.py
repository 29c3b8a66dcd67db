"""Pictures of a detector before and after it is made self-aware, and the charts of a study."""

import json
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image
from tests.evaluation.test_self_aware_study import problem_of, study_of

from incognita.containers.boxes import Detections
from incognita.containers.classes import Classes
from incognita.containers.dataset import ArrayDataset
from incognita.decisions import SelfAwareOutput
from incognita.evaluation import gallery
from incognita.evaluation.gallery import (
    BAR,
    BEFORE,
    GAP,
    KEPT,
    MARGIN,
    PANEL,
    REJECTED,
    SIDE,
    STRIP,
    BeforeAfter,
    draw_charts,
    draw_self_aware,
)
from incognita.evaluation.self_aware import SelfAwareTest
from incognita.results.self_aware import SelfAwareStudy

CLASSES = Classes(("car",))


class Loads(ArrayDataset):
    """Images that remember which of them were loaded."""

    def load(self, index: int) -> np.ndarray:
        self.__dict__.setdefault("loaded", []).append(self.image_ids[index])
        return super().load(index)


def seen(uncertainty: list[float], u: float = 0.5, *, prefix: str = "i") -> BeforeAfter:
    """Make one image per uncertainty, each with a box that is kept where it is accepted."""
    n = len(uncertainty)
    ids = [f"{prefix}{k}" for k in range(n)]
    boxes = np.tile([40.0, 40.0, 160.0, 160.0], (n, 1))
    before = Detections(ids, np.arange(n + 1), boxes, np.full(n, 0.8), np.zeros(n, int), CLASSES)
    accepted = np.array(uncertainty) <= u
    kept = replace(before[accepted], confidence=np.full(accepted.sum(), 0.4))
    output = SelfAwareOutput(accepted, kept, np.array(uncertainty))
    return BeforeAfter(Loads("set", ids, np.zeros((n, 200, 200, 3), np.uint8)), before, output)


def tiles(path) -> list[np.ndarray]:
    with Image.open(path) as sheet:
        pixels = np.asarray(sheet)
    size = SIDE + MARGIN
    n_rows = (len(pixels) - STRIP) // size
    corners = [(STRIP + row * size, MARGIN + k * size) for row in range(n_rows) for k in range(4)]
    return [pixels[y : y + SIDE, x : x + SIDE] for y, x in corners]


def has_color(tile: np.ndarray, color: tuple[int, int, int]) -> bool:
    return bool((tile == color).all(axis=2).any())


def test_each_sheet_shows_its_images_before_and_after(tmp_path) -> None:
    known, unknown = seen([0.1, 0.9, 0.3, 0.7]), seen([0.8, 0.2, 0.6])
    shifted = {"severity 1": seen([0.2, 0.9, 0.4, 0.9]), "severity 5": seen([0.9, 0.9, 0.9, 0.9])}
    assert draw_self_aware(known, shifted, {"svhn": unknown}, "title", tmp_path) == []
    pairs = {}
    for name in ("rejected", "calibrated", "corrupted", "failures"):
        found = [tile for tile in tiles(tmp_path / f"{name}.png") if has_color(tile, BEFORE)]
        rest = [t for t in tiles(tmp_path / f"{name}.png") if not has_color(t, BEFORE)]
        pairs[name] = [KEPT if has_color(t, KEPT) else REJECTED for t in rest if t.min() < 200]
        assert len(found) == len(pairs[name])
    assert pairs["rejected"] == [REJECTED, REJECTED]
    assert pairs["calibrated"] == [KEPT, KEPT]
    assert pairs["corrupted"] == [KEPT, REJECTED, KEPT, REJECTED]
    assert pairs["failures"] == [KEPT, REJECTED, REJECTED]


def test_the_most_telling_images_come_first(tmp_path) -> None:
    known, unknown = seen([0.1, 0.9, 0.3, 0.7]), seen([0.8, 0.2, 0.6, 0.1], prefix="u")
    draw_self_aware(known, {}, {"svhn": unknown}, "title", tmp_path)
    # rejected: i2 is nearest to u; failures: the most certain unknown, the least certain known
    assert unknown.dataset.loaded == ["u2", "u0", "u3", "u1"]
    assert known.dataset.loaded == ["i0", "i2", "i1", "i3"]


def test_a_sheet_without_images_is_a_note(tmp_path) -> None:
    (tmp_path / "failures.png").write_bytes(b"of an earlier run")
    notes = draw_self_aware(seen([0.1]), {}, {"svhn": seen([0.9])}, "title", tmp_path)
    assert notes == [
        f"{name}.png was not drawn: no image is of this kind" for name in ("corrupted", "failures")
    ]
    assert {path.name for path in tmp_path.iterdir()} == {
        "rejected.png", "calibrated.png", "rejected-00.webp", "calibrated-00.webp", "pictures.json",
    }  # fmt: skip


def test_pages_get_a_small_picture_of_each_image(tmp_path) -> None:
    known, unknown = seen([0.1, 0.9, 0.3, 0.7]), seen([0.8, 0.2, np.inf], prefix="u")
    draw_self_aware(known, {}, {"svhn": unknown}, "title", tmp_path)
    rows = json.loads((tmp_path / "pictures.json").read_text())
    assert [(row["kind"], row["set"], row["image"], row["uncertainty"]) for row in rows] == [
        ("rejected", "svhn", "u0", 0.8), ("rejected", "svhn", "u2", None),
        ("calibrated", "known", "i0", 0.1), ("calibrated", "known", "i2", 0.3),
        ("failures", "svhn", "u1", 0.2), ("failures", "known", "i1", 0.9),
        ("failures", "known", "i3", 0.7),
    ]  # fmt: skip
    assert [row["boxes after"] for row in rows] == [0, 0, 1, 1, 1, 0, 0]
    for row in rows:
        with Image.open(tmp_path / row["file"]) as picture:
            assert picture.size == (404, 200)
            left, right = np.asarray(picture)[:, :200], np.asarray(picture)[:, 204:]
        # the box after is drawn where the image is accepted; rejected images are faded
        assert (np.abs(left.astype(int) - BEFORE).sum(axis=2) < 60).any()
        assert (np.abs(right.astype(int) - KEPT).sum(axis=2) < 60).any() == row["accepted"]
        assert (right.min() > 100) == (not row["accepted"])


def test_images_that_cannot_be_read_are_a_note(tmp_path) -> None:
    part = seen([0.1])
    other = replace(part.before, image_ids=["elsewhere"])
    notes = draw_self_aware(part._replace(before=other), {}, {}, "title", tmp_path)
    assert "calibrated.png was not drawn: none of its images can be read" in notes


def test_only_the_most_confident_boxes_are_drawn(monkeypatch) -> None:
    n = 50
    confidence = np.linspace(0, 1, n)
    boxes = np.tile([5.0, 5.0, 9.0, 9.0], (n, 1))
    many = Detections([1], [0, n], boxes, confidence, np.zeros(n, int), CLASSES)
    texts = []
    monkeypatch.setattr(gallery, "_labelled", lambda *row: texts.append(row[3]))
    gallery._boxes_of(np.zeros((20, 20, 3), np.uint8), many, 0, BEFORE, "")
    assert len(texts) == gallery.MAX_BOXES
    assert texts[-1] == "car 1.00"


def test_charts_draw_one_panel_per_row_group(tmp_path) -> None:
    study = study_of()
    paths = draw_charts(study, tmp_path)
    assert [path.name for path in paths] == ["reliability.png", "uncertainty_histogram.png"]
    n_panels = [12, 1 + 3 + 3]
    for path, n in zip(paths, n_panels, strict=True):
        with Image.open(path) as chart:
            assert chart.size == (4 * (PANEL + GAP) + GAP, STRIP + -(-n // 4) * (PANEL + GAP))


def test_the_bars_of_a_chart_are_as_high_as_their_values(tmp_path) -> None:
    study = study_of()
    with Image.open(draw_charts(study, tmp_path)[0]) as chart:
        pixels = np.asarray(chart)
    rows = study.get("reliability").rows[:25]  # the first panel
    width = PANEL / 25
    for k, row in enumerate(rows):
        column = pixels[STRIP : STRIP + PANEL, int(GAP + (k + 0.25) * width)]
        height = int((column == BAR).all(axis=1).sum())
        assert height == pytest.approx((row["quality"] or 0) * PANEL, abs=6)  # lines cross bars


def test_charts_of_a_study_without_unknown_images_are_drawn(tmp_path) -> None:
    problem = problem_of()
    study: SelfAwareStudy = problem.study(SelfAwareTest(problem.test.known))
    assert len(draw_charts(study, tmp_path)) == 2
