"""The published splits: which files they need, what stands in for them, what they become."""

import json

import pytest
from tests.benchmarks.fmiyc_cases import (
    write_coco,
    write_complete_coco,
    write_openimages,
    write_vos_images,
)
from tests.benchmarks.image_trees import write_image
from tests.formats.annotation_cases import document, write

from incognita.benchmarks.definition_files import find_definition
from incognita.benchmarks.load import load_benchmark
from incognita.benchmarks.splits.build import build_from_coco, build_from_openimages, fmiyc_header
from incognita.benchmarks.splits.write import save_builds
from incognita.errors import InvalidDataError, MissingDataError

VOC = {"train": 16551, "test": 4952}
BDD = {"train": 69853, "test": 10000}


def test_the_benchmarks_have_the_counts_of_the_paper():
    counts = {
        name: {each.name: each.count for each in find_definition(name).definition.set}
        for name in ("fmiyc/voc", "fmiyc/bdd")
    }
    assert counts["fmiyc/voc"] == VOC | {
        "coco-near": 1174, "coco-far": 938, "openimages-near": 908, "openimages-far": 1179,
    }  # fmt: skip
    assert counts["fmiyc/bdd"] == BDD | {"coco-farther": 1873, "openimages-farther": 1695}


def test_the_plans_name_the_files_that_only_a_cloud_drive_has():
    for name, base in (
        ("fmiyc/voc", "instances_val2017_ood_rm_overlap.json"),
        ("fmiyc/bdd", "instances_val2017_ood_wrt_bdd_rm_overlap.json"),
    ):
        definition = find_definition(name).definition
        assert definition.task == "detection"
        assert base in definition.sources["coco"].published
        for source in definition.sources.values():
            assert "https://drive.google.com" in source.published
            assert source.license
            assert source.megabytes > 0
        assert {each.source for each in definition.set} == set(definition.sources)


def test_known_categories_of_coco_become_the_classes_of_the_benchmark():
    for known in ("voc", "bdd"):
        definition = find_definition(f"fmiyc/{known}").definition
        for entry in definition.set:
            assert set(entry.rename.values()) <= set(definition.classes)
    classes = find_definition("fmiyc/voc").definition.classes
    assert classes == sorted(classes)
    assert len(classes) == 20


# --- COCO -----------------------------------------------------------------------------------------


def test_all_files_together_give_the_published_counts(tmp_path):
    base, train, ids = write_complete_coco(tmp_path)
    steps = []
    build = build_from_coco("voc", base, train=train, ids=ids, on_step=steps.append)
    assert build.problems == []
    assert build.splits.counts == {"near": 1174, "far": 938}
    assert steps == ["reading val.json", "reading train.json", "deciding"]
    assert [each.part for each in build.inputs] == ["rules", "ids", "annotations", "candidates"]
    save_builds([build], tmp_path / "out", head=None, version="0")
    far = json.loads((tmp_path / "out" / "coco-far.json").read_text())
    assert {each["file_name"].split("/")[0] for each in far["images"]} == {"val2017", "train2017"}
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert [each["is_complete"] for each in manifest["builds"][0]["splits"].values()] == [True] * 2


def test_the_training_file_is_not_read_where_no_candidate_is_listed(tmp_path):
    base = write_coco(tmp_path, {1: ["kite"]})
    build = build_from_coco("voc", base, train=tmp_path / "not there.json")
    assert build.splits.candidates is None


def test_raw_coco_stands_in_for_the_base_of_vos(tmp_path):
    held = {1: ["kite"], 2: ["person", "kite"], 3: ["zebra"], 4: []}
    build = build_from_coco("voc", write_coco(tmp_path, held))
    assert build.splits.counts == {"near": 1, "far": 2}
    assert build.problems[0].startswith(
        "val.json with 4 images stands in for instances_val2017_ood_rm_overlap.json with 930 "
        "images: what VOS removed by hand is still in it; it is published at the cloud drive"
    )
    assert "remove_ids, keep_to_near_ids" in build.problems[1]


def test_bdd_has_one_split_and_no_candidates(tmp_path):
    held = {1: ["kite"], 2: ["stop sign"], 3: ["truck"], 4: ["person"]}
    ids = write(tmp_path / "ids.toml", "version = 1\n[fmiyc-bdd-coco]\nreview_remove_ids = [1]\n")
    path = write_coco(tmp_path, held, "fmiyc-bdd-coco")
    assert build_from_coco("bdd", path).splits.counts == {"farther": 1}
    assert build_from_coco("bdd", path, ids=ids).splits.counts == {"farther": 0}


def test_images_are_looked_for_beside_the_annotations(tmp_path):
    path = write_coco(tmp_path, {1: ["kite"]})
    assert build_from_coco("voc", path).images == tmp_path / "coco"
    assert build_from_coco("voc", path, images=tmp_path).images == tmp_path
    other = write(tmp_path / "val.json", path.read_text())
    assert build_from_coco("voc", other).images == tmp_path


# --- OpenImages -----------------------------------------------------------------------------------

LINES = "a Jaguar\na Kite\nb Kite\nc Person\nd Kite\ne Fox\nf Kite"


def test_openimages_takes_vos_images_and_candidates(tmp_path):
    folder = write_openimages(tmp_path, LINES)
    write_vos_images(folder, "a", "b", "c", "z")
    write_image(folder / "train" / "d.jpg", size=(40, 20))
    text = 'version = 1\n[fmiyc-voc-openimages.candidates]\nnear = ["d", "e"]\nfar = ["g"]\n'
    build = build_from_openimages("voc", folder, ids=write(tmp_path / "ids.toml", text))
    assert [each[:3] for each in build.splits.decided] == [
        ("a", "base", "near"),
        ("b", "base", "far"),
        ("c", "base", None),
        ("z", "base", "far"),
        ("d", "candidates", "near"),
    ]
    assert build.unsized == ("e",)
    assert build.splits.objects(build.splits.decided[0])[0]["bbox"] == [2.0, 2.0, 8.0, 2.0]
    assert any("candidates.far: id g in no annotation file" in each for each in build.problems)
    assert build.splits.image(build.splits.decided[4])["file_name"] == "train/d.jpg"
    first = build.splits.image(build.splits.decided[0])["file_name"]
    assert first == "ood_classes_rm_overlap/images/a.jpg"


def test_the_list_of_vos_gives_ids_and_sizes(tmp_path):
    folder = write_openimages(tmp_path, LINES)
    listed = {"id": "a", "file_name": "a.jpg", "width": 100, "height": 50}
    unsized = {"id": "b", "file_name": "b.jpg"}
    content = {"images": [listed, unsized], "annotations": [], "categories": []}
    place = folder / "ood_classes_rm_overlap" / "COCO-Format" / "val_coco_format.json"
    write(place, content)
    build = build_from_openimages("voc", folder)
    assert [each.image_id for each in build.splits.decided] == ["a"]
    assert build.unsized == ("b",)
    write(folder / "sizes.csv", "id,width,height\nb,10,10\n")
    build = build_from_openimages("voc", folder)
    assert [each.image_id for each in build.splits.decided] == ["a", "b"]
    assert [each.part for each in build.inputs] == [
        "rules", "sizes", "base", "boxes", "class names",
    ]  # fmt: skip


def test_without_vos_images_and_candidates_nothing_of_openimages_is_there(tmp_path):
    build = build_from_openimages("bdd", write_openimages(tmp_path, LINES, "fmiyc-bdd-openimages"))
    assert build.splits.counts == {"farther": 0}
    assert build.problems[0].startswith("val_coco_format.json with 1,761 images is missing")


def test_a_folder_without_the_files_of_openimages_is_told(tmp_path):
    with pytest.raises(
        MissingDataError,
        match=r"There is no train-annotations-bbox.csv in .*; get it from https://storage",
    ):
        build_from_openimages("voc", tmp_path)


# --- the benchmark --------------------------------------------------------------------------------


def test_the_built_benchmark_is_valid_and_says_that_it_is_partial(tmp_path):
    out, held = tmp_path / "out", {1: ["kite"], 2: ["zebra"]}
    build = build_from_coco("voc", write_coco(tmp_path, held))
    save_builds([build], out, head=fmiyc_header("voc", out, tmp_path / "data"), version="0")
    definition = find_definition(out / "benchmark.toml").definition
    assert definition.name == "built/fmiyc-voc"
    sets = {each.name: each for each in definition.set}
    assert list(sets) == ["train", "test", "coco-near", "coco-far"]
    assert sets["test"].annotations == "../data/voc/val_coco_format.json"
    assert sets["coco-near"].images == "../coco"
    assert sets["coco-near"].count == 1
    assert sets["coco-near"].note == (
        "partial: 1 images where 1,174 are published; built from val.json, see manifest.json"
    )
    assert set(definition.sources) == {"voc", "coco"}


def test_the_built_benchmark_opens_with_its_images(tmp_path):
    out = tmp_path / "out"
    held = {1: ["kite"], 2: ["zebra"], 3: ["cat"]}
    ids = "version = 1\n[fmiyc-voc-coco]\nkeep_to_near_ids = [3]\n"
    path = write_coco(tmp_path, held)
    build = build_from_coco("voc", path, ids=write(tmp_path / "ids.toml", ids))
    head = fmiyc_header("voc", out, tmp_path)
    save_builds([build], out, head=head, version="0")
    text = (out / "benchmark.toml").read_text()
    assert 'allowed_classes = ["cat"]' in text
    known = document({"k1": ["cat", "tv"]}, ("cat", "tv"))
    for count, name in ((16551, "voc0712_train_all"), (4952, "val_coco_format")):
        text = text.replace(f"count = {count}", "count = 1")
        # ids differ, since an image must not be both learned from and tested
        write(tmp_path / "voc" / f"{name}.json", json.dumps(known).replace("k1", name))
        write_image(tmp_path / "voc" / "JPEGImages" / f"{name}.jpg", size=(40, 30))
    for image_id in held:
        write_image(tmp_path / "coco" / "val2017" / f"{image_id}.jpg", size=(40, 30))
    path = write(out / "benchmark.toml", text)
    benchmark = load_benchmark(path, cache_dir=tmp_path, allow_outside=True)
    near, far = benchmark.unknown["near"]["coco-near"], benchmark.unknown["far"]["coco-far"]
    assert near.image_ids == ("val2017/2.jpg", "val2017/3.jpg")
    assert far.image_ids == ("val2017/1.jpg",)
    assert near.truth().is_unknown.tolist() == [True, False]
    assert benchmark.test.truth().class_ids.tolist() == [7, 19]


def test_a_wrong_file_of_ids_is_told(tmp_path):
    ids = write(tmp_path / "ids.toml", "version = 1\n[fmiyc-voc-coco]\nkeep = [3]\n")
    base = write_coco(tmp_path, {1: ["kite"]})
    with pytest.raises(InvalidDataError, match="table fmiyc-voc-coco has no use for the key"):
        build_from_coco("voc", base, ids=ids)
