"""BDD100K's frames become records; wrong files get a sentence."""

import json

import pytest

from incognita.errors import InvalidDataError
from incognita.formats.bdd import load_bdd

BOX = {"x1": 10.5, "y1": 20, "x2": 30.5, "y2": 60}


def write_frames(path, frames):
    path.write_text(json.dumps(frames))
    return path


def test_frames_become_images_and_labels_objects(tmp_path):
    lane = {"category": "lane", "poly2d": [{"vertices": [[0, 0]]}]}  # labels of 2018 have them
    frames = [
        {"name": "b.jpg", "attributes": {"weather": "rainy"},
         "labels": [{"category": "rider", "box2d": BOX}, lane, {"category": "car", "box2d": BOX}]},
        {"name": "a.jpg", "labels": None},
    ]  # fmt: skip
    found = load_bdd(write_frames(tmp_path / "det_val.json", frames))
    assert list(found.images) == ["a.jpg", "b.jpg"]
    assert found.images["b.jpg"] == {
        "id": "b.jpg", "file_name": "b.jpg", "width": 1280, "height": 720, "weather": "rainy",
        "timeofday": "undefined", "scene": "undefined",
    }  # fmt: skip
    assert found.category_names == {1: "car", 2: "rider"}
    rider, car = found.objects["b.jpg"]
    assert rider["bbox"] == [10.5, 20.0, 20.0, 40.0]
    assert (rider["category_id"], car["category_id"], rider["area"]) == (2, 1, 800)
    assert list(found.objects) == ["b.jpg"]


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ({"frames": [{}]}, "is an object with the key 'frames', but a list of frames is expected"),
        ([{"labels": []}], "frame 0 has no name"),
        ([{"name": "a", "labels": [{"category": "car"}]}], "frame 0 has a label without a box2d"),
        ([{"name": "a", "labels": [{"category": "", "box2d": BOX}]}],
         "frame 0 has a label of the category ''; get the labels det_20"),
        ([{"name": "a", "labels": True}], "frame 0 has attributes or labels that are not"),
        ([{"name": "a"}, {"name": "a"}], "has two frames called 'a'; keep one."),
        ([{"name": "a", "labels": [{"category": "car", "box2d": {**BOX, "x2": 1}}]}],
         "frame 'a' has a box whose second corner is before its first"),
    ],
)  # fmt: skip
def test_a_wrong_file_is_answered_with_a_sentence(tmp_path, content, sentence):
    with pytest.raises(InvalidDataError) as raised:
        load_bdd(write_frames(tmp_path / "det_val.json", content))
    assert sentence in str(raised.value)
