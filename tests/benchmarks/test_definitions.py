"""The files that ship are right, and a wrong file is answered with one sentence."""

import lzma
import tarfile
import tomllib
from pathlib import Path

import pytest
from tests.benchmarks.image_trees import STREET

from incognita.benchmarks.data_plan import plan
from incognita.benchmarks.definition_files import (
    SHIPPED,
    find_definition,
    list_benchmarks,
    parse_definition,
)
from incognita.benchmarks.load import load_benchmark
from incognita.benchmarks.sources import KINDS
from incognita.benchmarks.sources.imglist import load_imglist
from incognita.errors import IncognitaError, InvalidDataError, MissingDataError, UnknownNameError

IMAGENET_UNKNOWN = {
    "ssb_hard": 49_000, "ninco": 5_879, "inaturalist": 10_000, "textures": 5_160,
    "openimage_o": 15_869, "openimage_o-validation": 1_763,
}  # fmt: skip
# the sizes of the published lists, counted in four public copies of them; None was not counted
COUNTS = {
    "openood/cifar10": {
        "train": 50_000, "validation": 1_000, "test": 9_000, "cifar100": 9_000, "tin": 7_793,
        "mnist": 70_000, "svhn": 26_032, "texture": 5_640, "places365": 35_195,
        "tin-validation": 1_000, "tin-597": 29_850,
    },
    "openood/cifar100": {
        "train": 50_000, "validation": 1_000, "test": 9_000, "cifar10": 10_000, "tin": 6_526,
        "mnist": 70_000, "svhn": 26_032, "texture": 5_640, "places365": 33_773,
        "tin-validation": 972, "tin-597": 29_850,
    },
    "openood/imagenet200": {
        "train": None, "validation": 1_000, "test": 9_000, **IMAGENET_UNKNOWN,
        "imagenet-800": None,
    },
    "openood/imagenet": {
        "train": 1_281_167, "validation": 5_000, "test": 45_000, **IMAGENET_UNKNOWN,
    },
}  # fmt: skip
SHIFTED = {
    "openood/imagenet200": {"imagenet_v2": 2_000, "imagenet_c": 2_000, "imagenet_r": 30_000},
    "openood/imagenet": {"imagenet_v2": 10_000, "imagenet_c": 10_000, "imagenet_r": 30_000},
}
N_CLASSES = {"cifar10": 10, "cifar100": 100, "imagenet200": 200, "imagenet": 1000}


def counts_of(name: str) -> dict[str, int | None]:
    return {entry.name: entry.count for entry in find_definition(name).definition.set}


def test_the_benchmarks_of_each_family_ship():
    assert list_benchmarks("digits/*") == ["digits/standard"]
    assert list_benchmarks("openood/*") == [
        "openood/cifar10", "openood/cifar100", "openood/imagenet",
        "openood/imagenet-full-spectrum", "openood/imagenet200",
        "openood/imagenet200-full-spectrum",
    ]  # fmt: skip
    assert list_benchmarks("terra/*") == [
        "terra/detection", "terra/facets", "terra/far", "terra/farther", "terra/full-spectrum",
        "terra/near", "terra/self-aware", "terra/standard",
    ]  # fmt: skip


@pytest.mark.parametrize("name", list_benchmarks())
def test_every_file_that_ships_is_valid_and_named_after_its_path(name):
    found = find_definition(name)
    assert found.definition.name == name
    assert found.path == SHIPPED / f"{name}.toml"
    assert found.is_shipped


@pytest.mark.parametrize("name", sorted(COUNTS))
def test_the_counts_are_those_of_the_published_lists(name):
    assert counts_of(name) == COUNTS[name]


@pytest.mark.parametrize("name", sorted(SHIFTED))
def test_a_full_spectrum_benchmark_is_the_standard_one_with_shifted_sets(name):
    full = find_definition(f"{name}-full-spectrum").definition
    assert counts_of(f"{name}-full-spectrum") == COUNTS[name] | SHIFTED[name]
    assert {entry.name for entry in full.set if entry.role == "shifted"} == set(SHIFTED[name])
    assert full.full_spectrum
    assert full.classes == find_definition(name).definition.classes
    assert full.paper == find_definition(name).definition.paper


def test_the_unknown_test_images_add_up_to_the_totals_of_the_notes():
    totals = {}
    for name in COUNTS:
        sets = find_definition(name).definition.set
        totals[name] = sum(each.count for each in sets if each.role in ("near", "far"))
    assert totals["openood/cifar10"] == 153_660
    assert totals["openood/cifar100"] == 151_971
    assert totals["openood/imagenet"] == totals["openood/imagenet200"] == 85_908


@pytest.mark.parametrize("name", sorted(N_CLASSES))
def test_the_classes_are_all_there(name):
    classes = find_definition(f"openood/{name}").definition.classes
    assert len(classes) == N_CLASSES[name]
    assert classes == sorted(classes)  # the order of the labels in all four


def test_every_image_of_openood_says_where_it_is_published():
    for name in list_benchmarks("openood/*"):
        definition = find_definition(name).definition
        for entry in definition.set:
            source = definition.sources[entry.source]
            assert source.published.startswith("http")
            assert source.license
            assert source.megabytes > 0
        assert {entry.source for entry in definition.set} == set(definition.sources)


def test_the_embedded_benchmarks_name_their_models():
    for family in ("terra", "digits"):
        for name in list_benchmarks(f"{family}/*"):
            definition = find_definition(name).definition
            kind = "classifier" if definition.task == "classification" else "detector"
            assert definition.default_model == f"{family}:{kind}"
            assert not any(entry.reads_files for entry in definition.set)


@pytest.fixture(scope="module")
def published_lists(data_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lists")
    with (
        lzma.open(data_dir / "lists" / "openood_benchmark_imglist.tar.xz") as stream,
        tarfile.open(fileobj=stream) as tar,
    ):
        tar.extractall(folder, filter="data")
    return folder


@pytest.mark.data
def test_the_published_lists_hold_what_the_definitions_say(published_lists):
    checked, wrong = 0, []
    for name in list_benchmarks("openood/*"):
        for entry in find_definition(name).definition.set:
            path = published_lists / entry.list
            if path.is_file():
                checked += 1
                n_lines = path.read_bytes().count(b"\n")
                if n_lines != entry.count:
                    wrong.append((path.name, n_lines, entry.count))
    assert checked == 33  # 26 lists, the seven of imagenet200 that are shared twice
    # the public copy of this one is byte for byte the list of the test images
    assert set(wrong) == {("val_imagenet200.txt", 9_000, 1_000)}
    folder = published_lists / "benchmark_imglist" / "imagenet200"
    copies = [folder / f"{part}_imagenet200.txt" for part in ("val", "test")]
    assert copies[0].read_bytes() == copies[1].read_bytes()


@pytest.mark.data
def test_scenes_called_after_known_classes_are_the_ones_the_note_counts(published_lists):
    definition = find_definition("openood/cifar100").definition
    places = next(entry for entry in definition.set if entry.name == "places365")
    listed = load_imglist(published_lists / places.list)
    folders = [path.split("/")[1] for path in listed.paths]
    assert set(folders) & set(definition.classes) == set(places.allowed_classes)
    assert sum(folder in places.allowed_classes for folder in folders) == 408
    assert "408 of its scenes" in places.note


def street(**changes) -> dict:
    return tomllib.loads(STREET) | changes


def one_set(**changes) -> list[dict]:
    sets = tomllib.loads(STREET)["set"]
    sets[2] |= changes
    return sets


def without(key: str) -> dict:
    return {name: value for name, value in street().items() if name != key}


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (street(titel="x"), "my.toml has no use for the key 'titel'; did you mean title?"),
        (street(zzz=1), "my.toml has no use for the key 'zzz'; choose one of: classes, "),
        (without("version"), "my.toml has no key 'version'; add it."),
        (
            street(version="1"),
            "my.toml: version holds '1', which is wrong: input should be a valid",
        ),
        (street(version=0), "my.toml: version holds 0, which is wrong"),
        (street(set=[]), "my.toml: set holds [], which is wrong"),
        (
            street(set=one_set(cuont=3)),
            "my.toml: set 'animals' has no use for the key 'cuont'; did you mean count?",
        ),
        (
            street(set=one_set(list="a.txt")),
            "my.toml: set 'animals' has no use for the key 'list'; choose one of",
        ),
        (
            street(set=one_set(role="nera")),
            "my.toml: set 'animals': role holds 'nera', which is wr",
        ),
        (street(set=one_set(count=-1)), "my.toml: set 'animals': count holds -1, which is wrong"),
        (
            street(set=one_set(kind="zip")),
            "my.toml: set 'animals' needs to be a table with a kind: imglist, folder, terra, d",
        ),
        (street(set=one_set(name="test")), "my.toml: set 'test' is there twice"),
        (street(set=one_set(role="train")), "my.toml: role 'train' is there twice"),
        (street(set=one_set(source="zoo")), "set 'animals' names the source 'zoo'; add a table"),
        (
            street(set=one_set(role="validation", one_class_per_folder=False)),
            "set 'animals': its images are known, and their classes are the names of folders",
        ),
        (
            street(set=[*one_set(), {"name": "d", "role": "far", "kind": "digits"}]),
            "my.toml: set 'd': expected one of part, digits and photograph.",
        ),
        (street(set=one_set()[2:]), "it has no known images to test"),
        (street(set=one_set()[:2]), "it has no unknown images to test"),
        (
            street(preprocessing={"resize": 32, "crop": 32, "mean": [0.5], "std": [1, 1, 1]}),
            "my.toml: preprocessing.mean holds [0.5], which is wrong: list should have at least 3",
        ),
        (street(set=[5]), "my.toml: set number 1 needs to be a table with a kind: imglist, folder"),
        (
            street(sources={"signs": 3}),
            "my.toml: sources.signs holds 3, which is wrong: input should be a table.",
        ),
        *(
            (street(classes=classes), "my.toml: classes holds")
            for classes in (0, 1.5, True, [], [1], {})
        ),
        (street(classes=["a", "b", "a"]), "my.toml: class 'a' is there twice"),
        (
            street(sources={"signs": {"title": "a", "published": "b", "licence": "c"}}),
            "my.toml: sources.signs has no use for the key 'licence'; did you mean license?",
        ),
    ],
)
def test_what_is_wrong_is_one_sentence_with_file_and_key(content, sentence):
    with pytest.raises(InvalidDataError) as caught:
        parse_definition(content, source="my.toml")
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_typo_in_a_name_gets_a_suggestion():
    with pytest.raises(UnknownNameError, match=r"Did you mean openood/imagenet200\?"):
        find_definition("openood/imagnet200")


def test_a_file_that_is_absent_or_broken_is_refused(tmp_path):
    with pytest.raises(MissingDataError, match="There is no benchmark file"):
        find_definition(tmp_path / "absent.toml")
    (tmp_path / "broken.toml").write_text("name = ")
    with pytest.raises(InvalidDataError, match=r"broken\.toml is not TOML"):
        find_definition(tmp_path / "broken.toml")


EXTENDING = 'name = "b"\nversion = 2\ntitle = "B"\nextends = "street.toml"\n'


def test_extending_adds_sets_and_replaces_those_of_the_same_name(tmp_path):
    (tmp_path / "street.toml").write_text(STREET)
    more = '[[set]]\nname = "{}"\nrole = "far"\nkind = "folder"\npath = "other"\n'
    (tmp_path / "b.toml").write_text(EXTENDING + more.format("noise") + more.format("fog"))
    found = find_definition(tmp_path / "b.toml")
    assert [each.name for each in found.definition.set] == [
        "train", "test", "animals", "noise", "fog",
    ]  # fmt: skip
    assert found.definition.set[3].kind == "folder"
    assert found.definition.version == 2
    assert found.content_hash != find_definition(tmp_path / "street.toml").content_hash


@pytest.mark.parametrize("key", ["name", "version", "title"])
def test_a_name_a_version_and_a_title_are_never_inherited(tmp_path, key):
    (tmp_path / "street.toml").write_text(STREET)
    lines = [line for line in EXTENDING.splitlines() if not line.startswith(key)]
    (tmp_path / "b.toml").write_text("\n".join(lines))
    with pytest.raises(InvalidDataError, match=f"has no key '{key}'"):
        find_definition(tmp_path / "b.toml")


def test_extending_in_a_circle_or_nothing_is_refused(tmp_path):
    for first, second in (("a", "b"), ("b", "a")):
        (tmp_path / f"{first}.toml").write_text(EXTENDING.replace("street", second))
    with pytest.raises(InvalidDataError, match="extends itself by way of"):
        find_definition(tmp_path / "a.toml")
    (tmp_path / "a.toml").write_text(EXTENDING.replace("street.toml", "terra/standart"))
    with pytest.raises(IncognitaError, match="Did you mean terra/standard"):
        find_definition(tmp_path / "a.toml")


def test_a_new_kind_is_one_class_and_one_line(monkeypatch, tmp_path):
    monkeypatch.setitem(KINDS, "stripes", "tests.benchmarks.stripes:StripesSet")
    text = """
        name = "mine/stripes"
        version = 1
        title = "Digits against stripes"
        classes = ["zero", "one", "two", "three", "four", "five", "six"]
        [[set]]
        name = "test"
        role = "test"
        kind = "digits"
        part = "test"
        [[set]]
        name = "stripes"
        role = "far"
        kind = "stripes"
    """
    path = tmp_path / "mine.toml"
    path.write_text(text)
    benchmark = load_benchmark(path)
    assert benchmark.unknown["far"]["stripes"].image_ids == ("a", "b", "c")
    assert repr(benchmark) == (
        "Benchmark(mine/stripes, version 1, classification, 7 known classes, 250 test images; "
        "unknown: far stripes)"
    )
    assert plan(find_definition(path).definition)[1].place == "drawn"
