"""Classes: roles, labels and super-classes, and the sentences for lists that do not fit."""

from dataclasses import FrozenInstanceError

import pytest
from hypothesis import given
from hypothesis import strategies as st

from incognita.containers.classes import Classes, Role
from incognita.errors import InvalidDataError, UnknownNameError

KNOWN, UNKNOWN, IGNORED = Role.KNOWN, Role.UNKNOWN, Role.IGNORED


def test_every_class_is_known_by_default_but_the_one_called_unknown():
    classes = Classes(("car", "unknown", "bus"))
    assert classes.roles == (KNOWN, UNKNOWN, KNOWN)
    assert classes.superclasses == (None, None, None)
    assert classes.known_names == ("car", "bus")
    assert classes.n_known == 2
    assert len(classes) == 3


def test_labels_count_the_known_classes_then_unknown_then_ignored():
    classes = Classes(
        ("tree", "deer", "car", "elk", "bus"), (IGNORED, UNKNOWN, KNOWN, UNKNOWN, KNOWN)
    )
    assert classes.labels.tolist() == [3, 2, 0, 2, 1]
    assert classes.known_names == ("car", "bus")
    assert classes.has_role(UNKNOWN).tolist() == [False, True, False, True, False]


@given(st.lists(st.sampled_from(Role), max_size=8))
def test_labels_agree_with_roles_whatever_their_order(roles):
    classes = Classes(tuple(f"class {k}" for k in range(len(roles))), tuple(roles))
    n_known = roles.count(KNOWN)
    assert classes.n_known == n_known
    assert [k for k in classes.labels.tolist() if k < n_known] == list(range(n_known))
    for role, label in zip(roles, classes.labels.tolist(), strict=True):
        assert role is {n_known: UNKNOWN, n_known + 1: IGNORED}.get(label, KNOWN)


def test_a_class_called_unknown_may_be_given_another_role():
    assert Classes(("unknown",), (IGNORED,)).n_known == 0


def test_a_list_without_classes_is_allowed():
    classes = Classes(())
    assert len(classes) == classes.n_known == 0
    assert classes.labels.tolist() == []


def test_the_first_class_has_id_0():
    classes = Classes(("car", "bus"))
    assert classes.id_of("car") == 0
    assert classes.id_of("bus") == 1


def test_a_name_that_is_not_listed_gets_a_suggestion():
    with pytest.raises(UnknownNameError) as caught:
        Classes(("car", "bus")).id_of("cra")
    assert str(caught.value) == "No class is called 'cra'. Did you mean car?"


@pytest.mark.parametrize(
    ("roles", "superclasses", "counts"),
    [
        ((KNOWN,), (), "1 roles and 2 super-classes"),
        ((), ("vehicle",), "2 roles and 1 super-classes"),
        ((KNOWN,) * 3, (None,) * 2, "3 roles and 2 super-classes"),
    ],
)
def test_a_class_without_role_or_superclass_is_refused(roles, superclasses, counts):
    with pytest.raises(InvalidDataError) as caught:
        Classes(("car", "bus"), roles, superclasses)
    assert str(caught.value) == (
        f"Expected a role and a super-class for each of 2 class names, got {counts}."
    )


def test_a_list_without_classes_offers_none():
    with pytest.raises(UnknownNameError) as caught:
        Classes(()).id_of("car")
    assert str(caught.value) == "No class is called 'car'. There is none to choose from."


def test_a_long_name_and_a_long_list_are_shortened_in_the_sentence():
    with pytest.raises(UnknownNameError) as caught:
        Classes(tuple(f"c{k:02}" for k in range(30))).id_of("z" * 100_000)
    offered = ", ".join(f"c{k:02}" for k in range(20))
    assert str(caught.value) == f"No class is called '{'z' * 60}…'. Choose one of: {offered}, …."


@pytest.mark.usefixtures("outside_tests")
def test_a_text_is_no_list_of_names():
    with pytest.raises(InvalidDataError) as caught:
        Classes("abc")
    assert str(caught.value) == "Expected a list of class names, got the text 'abc'."


@pytest.mark.usefixtures("outside_tests")
def test_names_may_come_as_a_list():
    assert Classes(["car", "bus"]) == Classes(("car", "bus"))


@pytest.mark.parametrize("role", ["known", 1, None])
@pytest.mark.usefixtures("outside_tests")
def test_a_role_that_is_none_is_refused(role):
    with pytest.raises(InvalidDataError) as caught:
        Classes(("car", "bus"), (KNOWN, role))
    assert str(caught.value) == (
        "Expected the role of a class to be Role.KNOWN, Role.UNKNOWN or Role.IGNORED, "
        f"got {role!r}."
    )


@pytest.mark.parametrize("above", [7, 0, b"vehicle", ["vehicle"]])
@pytest.mark.usefixtures("outside_tests")
def test_a_superclass_that_is_no_name_is_refused(above):
    with pytest.raises(InvalidDataError) as caught:
        Classes(("car", "bus"), superclasses=(None, above))
    assert str(caught.value) == f"Expected a super-class to be a name or None, got {above!r}."


def test_a_class_that_is_listed_twice_is_refused():
    with pytest.raises(InvalidDataError, match=r"^Class 'bus' is listed twice; list every class"):
        Classes(("car", "bus", "bus"))


def test_classes_are_equal_by_content_and_cannot_be_changed():
    classes = Classes(("car",), (KNOWN,), ("vehicle",))
    assert classes == Classes(("car",), superclasses=("vehicle",))
    assert classes != Classes(("car",))
    with pytest.raises(FrozenInstanceError):
        classes.names = ("bus",)
    with pytest.raises(ValueError, match="read-only"):
        classes.labels[0] = 1
