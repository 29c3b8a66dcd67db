"""FACETS: classes are known by their meaning, images are drawn by hashes, tables II to V."""

import json
from collections import Counter
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from incognita.benchmarks import load_benchmark
from incognita.benchmarks.splits.facets import (
    PUBLISHED_CLASSES,
    FacetsFolders,
    FacetsSettings,
    build_facets,
    choose_classes,
    load_levels,
    save_facets,
    spread,
)
from incognita.cli.app import app
from incognita.errors import IncognitaError, InvalidDataError, MissingDataError
from incognita.semantics import load_synset_map, path_similarity

N_PLACES, N_TRAIN, N_VAL = 6, 8, 4  # images of each class in the small tree


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """All classes of Places365 and ImageNet-1K with a few empty files each, in the true layout."""
    root = tmp_path_factory.mktemp("data")
    places = load_synset_map("places365").names
    lines = [f"Places365_val_{k:08d}.jpg {k % len(places)}" for k in range(N_PLACES * len(places))]
    (root / "places365" / "val_256").mkdir(parents=True)
    for line in lines:
        (root / "places365" / "val_256" / line.split()[0]).touch()
    (root / "places365" / "places365_val.txt").write_text("\n".join(lines) + "\n")
    for row in load_synset_map("imagenet1k").classes:
        for part, n in (("train", N_TRAIN), ("val", N_VAL)):
            folder = root / "imagenet" / part / row.wnid
            folder.mkdir(parents=True)
            for k in range(n):
                (folder / f"{row.wnid}_{k}.JPEG").touch()
    for name in ("a/abbey", "a/apartment_building/outdoor", "z/zoo"):
        (root / "sun397" / name).mkdir(parents=True)
        for k in range(5):
            (root / "sun397" / name / f"sun_{k}.jpg").touch()
    for part, n in (("train", 9), ("test", 6)):
        (root / "svhn" / part).mkdir(parents=True)
        for k in range(n):
            (root / "svhn" / part / f"{k}.png").touch()
    return root


def levels_file(folder: Path, **changes: str) -> Path:
    lines = ["[sun397]", "abbey = 0", '"apartment_building/outdoor" = 2', "zoo = 3", "[imagenet]"]
    wnids = [row.wnid for row in load_synset_map("imagenet1k").classes]
    lines += [f"{wnid} = {int(k >= 356)}" for k, wnid in enumerate(wnids)]
    text = "\n".join(lines)
    for old, new in changes.items():
        text = text.replace(old, new)
    (folder / "levels.toml").write_text(text)
    return folder / "levels.toml"


@pytest.mark.parametrize(("distance", "expected"), [(0.40, 53), (0.45, 95), (0.50, 215)])
def test_known_classes_of_imagenet_by_first_senses(distance, expected):
    settings = FacetsSettings(distance=distance)
    imagenet, places = load_synset_map("imagenet1k"), load_synset_map("places365", senses="first")
    choices = choose_classes(imagenet, places, settings)
    assert sum(choice.is_accepted for choice in choices) == expected
    assert all((c.distance <= distance) == c.is_accepted for c in choices)


def test_shared_classes_are_those_within_one_link():
    """The paper removes 32 classes; 968 are left."""
    imagenet, places = load_synset_map("imagenet1k"), load_synset_map("places365", senses="first")
    choices = choose_classes(imagenet, places, FacetsSettings("inter"))
    left = [choice for choice in choices if not choice.is_accepted]
    assert len(left) == PUBLISHED_CLASSES["inter"]["imagenet-unknown"] == 968
    shared = next(choice for choice in choices if choice.is_accepted)
    assert max(path_similarity(shared.synset, synset) for synset in places.synsets) >= 0.5


def test_parts_are_disjoint_balanced_and_drawn_by_hash(tree):
    build = build_facets(FacetsFolders(tree), FacetsSettings())
    seen: set[str] = set()
    for first, second in build.parts.values():
        for part in (first, second):
            paths = [image.path for image in part]
            assert len(set(paths)) == len(paths)
            assert not seen & set(paths)
            seen |= set(paths)
        assert Counter(i.source_class for i in first) == Counter(i.source_class for i in second)
    tested = {name: second for name, (_, second) in build.parts.items()}
    assert set(Counter(i.label for i in tested["places"]).values()) == {N_PLACES // 2}
    assert set(Counter(i.source_class for i in tested["imagenet-accepted"]).values()) == {4}
    n_known = len(tested["places"]) + len(tested["imagenet-accepted"])
    per_class = Counter(i.source_class for i in tested["imagenet-unknown"])
    assert sum(per_class.values()) == n_known
    assert max(per_class.values()) - min(per_class.values()) <= 1


def test_the_drawn_images_are_those_of_the_smallest_hashes(tree):
    """A slow definition: order by BLAKE2b of the seed and the path, cut in two."""
    from hashlib import blake2b

    build = build_facets(FacetsFolders(tree), FacetsSettings(seed=7))
    wnid = load_synset_map("imagenet1k").classes[497].wnid  # church, accepted
    paths = [f"imagenet/train/{wnid}/{wnid}_{k}.JPEG" for k in range(N_TRAIN)]
    order = sorted(paths, key=lambda p: blake2b(f"7 {p}".encode(), digest_size=8).digest())
    first, second = build.parts["imagenet-accepted"]
    assert {i.path for i in first if wnid in i.path} == set(order[:4])
    assert {i.path for i in second if wnid in i.path} == set(order[4:])


def test_another_seed_draws_others_and_another_order_of_files_the_same(tree):
    one, two = (build_facets(FacetsFolders(tree), FacetsSettings(seed=s)) for s in (0, 1))
    assert one.parts["places"] != two.parts["places"]
    assert one.choices == two.choices


def test_a_second_run_writes_the_same_bytes(tree):
    folders, out = FacetsFolders(tree), tree / "facets" / "t40"
    hashes = []
    for _ in range(2):
        save_facets(build_facets(folders, FacetsSettings()), folders, out, version="test")
        files = sorted(path for path in out.rglob("*") if path.is_file())
        hashes.append([(p.name, sha256(p.read_bytes()).hexdigest()) for p in files])
    assert hashes[0] == hashes[1]
    assert len(hashes[0]) > 10
    manifest = json.loads((out / "manifest.json").read_text())["builds"][0]
    church = next(row for row in manifest["classes"] if row["name"] == "church")
    assert church == {
        "name": "church", "synset": "church.n.02", "nearest": "mosque/outdoor",
        "distance": pytest.approx(0.36, abs=0.001), "is_accepted": True,
    }  # fmt: skip
    sets = {row["set"]: row for row in manifest["sets"]}
    assert sets["imagenet-unknown"]["published classes"] == 944
    assert sets["imagenet-unknown"]["classes"] == 947


def test_the_benchmark_loads_with_roles_and_classes(tree):
    folders, out = FacetsFolders(tree), tree / "facets" / "loaded"
    build = build_facets(folders, FacetsSettings())
    save_facets(build, folders, out, version="test")
    for images in build.parts.values():
        for part in images:
            for image in part:
                (tree / image.path).parent.mkdir(exist_ok=True, parents=True)
                (tree / image.path).touch()
    benchmark = load_benchmark(out / "benchmark.toml", data=tree)
    assert benchmark.name == "facets/wordnet-0.40"
    assert list(benchmark.unknown) == ["unknown"]
    tested = {name: second for name, (_, second) in build.parts.items()}
    assert benchmark.test.labels.tolist() == [i.label for i in tested["places"]]
    accepted = benchmark.accepted["imagenet-accepted"]
    assert accepted.labels is None
    assert list(accepted.source_classes) == [i.source_class for i in tested["imagenet-accepted"]]
    assert list(benchmark.accepted_validation) == ["imagenet-accepted-validation"]
    assert len(benchmark.unknown_validation) == len(tested["imagenet-unknown"])
    assert not benchmark.is_partial  # by its own counts
    assert any("partial: places: 365 classes have too few" in note for note in benchmark.notes)
    assert any("castle, pier: known by name, far by meaning" in note for note in benchmark.notes)


def test_the_baseline_divides_svhn(tree):
    build = build_facets(FacetsFolders(tree), FacetsSettings("baseline"))
    first, second = build.parts["svhn"]
    assert Counter(Path(i.path).parent.name for i in second) == {"train": 4, "test": 3}
    assert {i.source_class for i in first} == {"digit"}
    assert "svhn: 7 images, but 18,250 are expected" in build.problems


@pytest.mark.parametrize(("limit", "groups"), [("T1", ["level 2", "level 3"]), ("T2", ["level 3"])])
def test_levels_of_a_person_decide(tree, tmp_path, limit, groups):
    settings = FacetsSettings("levels", levels=levels_file(tmp_path), limit=limit)
    build = build_facets(FacetsFolders(tree), settings)
    assert [g for g in build.groups.values() if g.startswith("level")] == groups
    tested = {name: second for name, (_, second) in build.parts.items()}
    accepted = {image.source_class for image in tested["sun-accepted"]}
    expected = {"abbey"} if limit == "T1" else {"abbey", "apartment_building/outdoor"}
    assert accepted == expected
    assert len({i.source_class for i in tested["imagenet-accepted"]}) == 356
    assert len({i.source_class for i in tested["imagenet-unknown"]}) == 644
    known = sum(len(v) for n, v in tested.items() if n == "places" or "accepted" in n)
    unknown = sum(len(v) for n, v in tested.items() if n in build.groups)
    assert unknown >= known or unknown >= 644 * (N_TRAIN // 2 + N_VAL // 2)


def test_numbers_of_the_paper_follow_from_its_image_counts():
    """With 50 images of each class the tables come out as far as their sums are even."""
    assert spread(22_750, [str(k) for k in range(910)], 0) == {str(k): 25 for k in range(910)}
    counts = spread(21_050, [str(k) for k in range(944)], 0)
    assert sum(counts.values()) == 21_050
    assert set(counts.values()) == {22, 23}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"zoo = 3": "zoo = 4"}, "from 0 to 3 for 'zoo'"),
        ({"zoo = 3": ""}, "none for 1 class, such as 'zoo'"),
        ({"zoo = 3": "zoo = 3\nyard = 1"}, "'yard', but sun397 has no images"),
        ({"[sun397]": "[sun]"}, r"a table \[sun397\]"),
        ({"abbey = 0": "abbey = true"}, "level from 0 to 3"),
    ],
)
def test_wrong_levels_get_one_sentence(tree, tmp_path, change, message):
    path = levels_file(tmp_path, **change)
    with pytest.raises(InvalidDataError, match=message):
        build_facets(FacetsFolders(tree), FacetsSettings("levels", levels=path))


def test_levels_are_read_as_written(tmp_path):
    found = load_levels(levels_file(tmp_path))
    assert found["sun397"] == {"abbey": 0, "apartment_building/outdoor": 2, "zoo": 3}
    assert sum(found["imagenet"].values()) == 644


@pytest.mark.parametrize(
    ("folders", "error", "message"),
    [
        ({"places_list": "nowhere.txt"}, MissingDataError, r"nowhere\.txt"),
        ({"imagenet": "svhn"}, InvalidDataError, "not a class of ImageNet|no images of"),
        ({"imagenet": "nowhere"}, MissingDataError, "There is no"),
    ],
)
def test_missing_or_wrong_folders_are_named(tree, folders, error, message):
    with pytest.raises(IncognitaError, match=message) as caught:
        build_facets(replace(FacetsFolders(tree), **folders), FacetsSettings())
    assert isinstance(caught.value, error | MissingDataError)


@pytest.mark.parametrize(
    "wrong",
    [{"variant": "levels"}, {"distance": 2.0}, {"limit": "T3"}],
)
def test_wrong_settings_get_one_sentence(wrong):
    with pytest.raises(IncognitaError):
        FacetsSettings(**wrong)


def test_the_command_prints_counts_beside_published_ones(tree):
    done = CliRunner().invoke(
        app, ["build", "facets", "--data", str(tree), "--out", str(tree / "cli")]
    )
    assert done.exit_code == 4, done.output
    shown = " ".join(done.stdout.split())
    airfield = "such as airfield: 6 images of 100"
    assert f"partial: places: 365 classes have too few, {airfield}" in shown
    assert "partial: imagenet-accepted: 53 classes have too few" in shown
    assert "imagenet-unknown:" not in shown  # one or two of each of 947 classes are there
    assert "18,250" in done.stdout
    assert "947" in done.stdout
    assert f"incognita run {tree / 'cli' / 'benchmark.toml'} --data {tree}" in done.stdout
    again = CliRunner().invoke(
        app, ["build", "facets", "--data", str(tree), "--out", str(tree / "cli"), "--json"]
    )
    (built,) = json.loads(again.stdout)["builds"]
    assert built["variant"] == "wordnet 0.40"
    assert len(built["problems"]) == 2
    assert again.exit_code == 4


def test_listed_images_must_be_there_and_listed_once(tree, tmp_path):
    """As links, so that the tree of the other tests stays whole."""
    (tmp_path / "imagenet").symlink_to(tree / "imagenet")
    (tmp_path / "places365" / "val_256").mkdir(parents=True)
    lines = (tree / "places365" / "places365_val.txt").read_text().splitlines()
    for line in lines[2:]:  # the first images are not there
        (tmp_path / "places365" / "val_256" / line.split()[0]).touch()
    listed = tmp_path / "places365" / "places365_val.txt"
    listed.write_text("\n".join(lines))
    build = build_facets(FacetsFolders(tmp_path), FacetsSettings())
    assert build.problems[0] == (
        "places: 2 images are not there, such as places365/val_256/Places365_val_00000000.jpg"
    )
    both = [image.path for part in build.parts["places"] for image in part]
    assert not any(path.endswith(("_00000000.jpg", "_00000001.jpg")) for path in both)
    listed.write_text("\n".join([*lines, lines[5]]))
    with pytest.raises(InvalidDataError, match=rf"_00000005\.jpg again in line {len(lines) + 1}"):
        build_facets(FacetsFolders(tmp_path), FacetsSettings())


def test_levels_are_refused_before_images_are_listed(tmp_path):
    settings = FacetsSettings("levels", levels=levels_file(tmp_path, zoo="zoo = 9 #"))
    with pytest.raises(InvalidDataError, match="for 'zoo"):
        build_facets(FacetsFolders(tmp_path / "nowhere"), settings)


def test_a_class_with_one_image_is_named(tree, tmp_path):
    for name in ("places365", "imagenet"):
        (tmp_path / name).symlink_to(tree / name)
    for name, n in (("abbey", 1), ("apartment_building/outdoor", 4), ("zoo", 4)):
        (tmp_path / "sun397" / "a" / name).mkdir(parents=True)
        for k in range(n):
            (tmp_path / "sun397" / "a" / name / f"{k}.jpg").touch()
    settings = FacetsSettings("levels", levels=levels_file(tmp_path))
    problems = build_facets(FacetsFolders(tmp_path), settings).problems
    assert "sun-accepted: 1 class has too few, such as abbey: 1 image of 2" in problems


def test_out_must_lie_below_the_data_and_belong_to_nobody(tree, tmp_path):
    folders = FacetsFolders(tree)
    build = build_facets(folders, FacetsSettings())
    with pytest.raises(InvalidDataError, match="Expected a folder below"):
        save_facets(build, folders, tmp_path, version="test")
    (tree / "mine").mkdir()
    (tree / "mine" / "benchmark.toml").write_text("mine")
    with pytest.raises(InvalidDataError, match="would be overwritten"):
        save_facets(build, folders, tree / "mine", version="test")


def test_terra_facets_ships_and_loads():
    benchmark = load_benchmark("terra/facets")
    assert list(benchmark.unknown) == ["level 2", "level 3"]
    assert len(benchmark.accepted) == 2
    image = benchmark.accepted["kin"].load(0)
    assert Image.fromarray(image).size == (32, 32)
    assert np.ndim(image) == 3
