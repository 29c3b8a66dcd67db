"""Which category gets which role, and every sentence a wrong class map is answered with."""

import subprocess
import sys
from pathlib import Path

import pytest

from incognita.containers.classes import Role
from incognita.errors import InvalidDataError, MissingDataError, UnknownNameError
from incognita.formats.class_roles import ClassMap, load_class_map, with_known

NAMES = ("car", "deer", "caravan", "unknown")
SUPERCLASSES = ("vehicle", "animal", None, None)
KNOWN, UNKNOWN, IGNORED = Role.KNOWN, Role.UNKNOWN, Role.IGNORED


def write(folder: Path, text: str) -> Path:
    path = folder / "classes.toml"
    path.write_text(text)
    return path


def roles(class_map: ClassMap) -> tuple[Role, ...]:
    return class_map.translate(NAMES, SUPERCLASSES, source="gt.json").classes.roles


def test_a_whole_file(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        """
        version = 1
        known = ["car"]
        unknown = ["deer"]
        ignored = ["caravan"]
        [superclasses]
        thing = ["car", "caravan"]
        [categories]
        81 = "unknown"
        """,
    )
    class_map = load_class_map(path)
    assert class_map.categories == {81: "unknown"}
    classes = class_map.translate(NAMES, SUPERCLASSES, source="gt.json").classes
    assert classes.names == NAMES
    assert classes.roles == (KNOWN, UNKNOWN, IGNORED, UNKNOWN)
    assert classes.superclasses == ("thing", "animal", "thing", None)


def test_without_roles_all_are_known_but_the_one_called_unknown() -> None:
    assert roles(ClassMap()) == (KNOWN, KNOWN, KNOWN, UNKNOWN)


def test_with_known_only_every_other_is_unknown() -> None:
    assert roles(ClassMap(known=("car",))) == (KNOWN, UNKNOWN, UNKNOWN, UNKNOWN)
    assert roles(ClassMap(known=("car",), ignored=("deer",))) == (KNOWN, IGNORED, UNKNOWN, UNKNOWN)


def test_with_unknown_only_every_other_is_known() -> None:
    assert roles(ClassMap(unknown=("deer",))) == (KNOWN, UNKNOWN, KNOWN, UNKNOWN)
    assert roles(ClassMap(ignored=("deer",))) == (KNOWN, IGNORED, KNOWN, UNKNOWN)


def test_a_class_called_unknown_may_be_given_another_role() -> None:
    assert roles(ClassMap(ignored=("unknown",)))[3] is IGNORED


def test_a_list_of_known_classes_joins_a_map_without_one() -> None:
    joined = with_known(ClassMap(ignored=("deer",)), ["car"])
    assert roles(joined) == (KNOWN, IGNORED, UNKNOWN, UNKNOWN)
    assert with_known(None, None) == ClassMap()


def test_known_classes_given_twice_are_refused() -> None:
    sentence = (
        "The known classes are given twice, as a list and in the class map; keep one of the two."
    )
    with pytest.raises(InvalidDataError, match=sentence):
        with_known(ClassMap(known=("car",)), ["car"])


def test_a_category_without_a_role_is_refused() -> None:
    with pytest.raises(InvalidDataError) as caught:
        roles(ClassMap(known=("car",), unknown=("deer",)))
    assert str(caught.value) == (
        "gt.json has a category 'caravan', to which the class map gives no role; "
        "add it to known, unknown or ignored, or leave one of known and unknown out."
    )


@pytest.mark.parametrize(
    "class_map",
    [
        ClassMap(known=("dear",)),
        ClassMap(unknown=("dear",)),
        ClassMap(ignored=("dear",)),
        ClassMap(superclasses={"animal": ("dear",)}),
    ],
)
def test_a_name_the_file_does_not_have_gets_a_suggestion(class_map: ClassMap) -> None:
    with pytest.raises(UnknownNameError) as caught:
        roles(class_map)
    assert str(caught.value) == "No category of gt.json is called 'dear'. Did you mean deer?"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ('known = ["car"]', " has no version; begin the file with the line: version = 1"),
        ("version = 2", ": version holds 2, which is wrong: input should be 1."),
        (
            'version = 1\nknwon = ["car"]',
            " has no use for the key 'knwon'; did you mean known?",
        ),
        (
            "version = 1\nzzz = 1",
            " has no use for the key 'zzz'; choose one of: categories, ignored, known, "
            "superclasses, unknown, version.",
        ),
        (
            'version = 1\nknown = "car"',
            ": known holds 'car', which is wrong: input should be a list.",
        ),
        (
            "version = 1\nknown = [7]",
            ": known holds 7, which is wrong: input should be a valid string.",
        ),
        (
            'version = 1\n[categories]\nx = "unknown"',
            ": categories.x holds 'x', which is wrong: input should be a valid integer, "
            "unable to parse string as an integer.",
        ),
        (
            f'version = 1\n[categories]\n{2**63} = "unknown"',
            f": category id {2**63} is too large; use 64 bits.",
        ),
        (
            f'version = 1\n[categories]\n{-(2**63) - 1} = "unknown"',
            f": category id {-(2**63) - 1} is too large; use 64 bits.",
        ),
        (
            "version = 1\ncategories = [7]",
            ": categories holds [7], which is wrong: input should be a table.",
        ),
        (
            "version = 1\ncategories = 7",
            ": categories holds 7, which is wrong: input should be a table.",
        ),
        (
            "version = 1\nknown = []",
            ": The list of known classes is empty; leave it out to make every class known, "
            "or name at least one.",
        ),
        (
            'version = 1\nknown = ["car"]\nignored = ["car"]',
            ": Class 'car' is listed under both 'known' and 'ignored', but a class has one role; "
            "keep one.",
        ),
        (
            'version = 1\nknown = ["car", "car"]',
            ": Class 'car' is listed twice under 'known'; keep one.",
        ),
        (
            'version = 1\n[superclasses]\na = ["car"]\nb = ["car"]',
            ": Class 'car' is listed under both 'a' and 'b', but a class has one super-class; "
            "keep one.",
        ),
        (
            "version = 1\nknown =",
            " is not TOML: Invalid value (at end of document); correct the file.",
        ),
    ],
)
def test_a_wrong_file_is_answered_with_a_sentence(tmp_path: Path, text: str, sentence: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(InvalidDataError) as caught:
        load_class_map(path)
    assert str(caught.value) == f"{path}{sentence}"


def test_a_category_id_may_need_all_64_bits(tmp_path: Path) -> None:
    text = f'version = 1\n[categories]\n{2**63 - 1} = "a"\n{-(2**63)} = "b"\n'
    class_map = load_class_map(write(tmp_path, text))
    assert class_map.categories == {2**63 - 1: "a", -(2**63): "b"}


def test_a_missing_file_is_answered_with_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(MissingDataError, match=r"There is no class map at .*none\.toml; give the"):
        load_class_map(tmp_path / "none.toml")
    with pytest.raises(InvalidDataError, match="is a folder, but a file is expected"):
        load_class_map(tmp_path)


def test_neither_torch_nor_pydantic_is_imported_without_a_class_map() -> None:
    code = "import sys, incognita.formats; assert not {'torch', 'pydantic'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
