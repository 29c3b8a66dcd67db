"""Which classes Terra has: super-classes and, seen from a model, known, near, far and farther."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from incognita.containers.classes import Classes, Role
from incognita.errors import unknown_name
from incognita.kernels.terra.shapes import MESH, MOSAIC, PLASMA, SCRIBBLE, STATIC, TEXT


class Group(Enum):
    """How far a class is from what the embedded models were trained on.

    NEAR classes share a super-class with known ones, FAR classes do not, FARTHER ones are another
    kind of picture. VALIDATION classes are near too and kept for choosing parameters; OUTLIER
    classes are for training methods that use unknown images. No class is in two groups.
    """

    KNOWN = "known"
    NEAR = "near"
    VALIDATION = "near-validation"
    FAR = "far"
    FARTHER = "farther"
    OUTLIER = "outlier"


@dataclass(frozen=True)
class TerraClass:
    """A class of the tree; `picture` is what fills it where it is another kind of picture."""

    name: str
    superclass: str
    group: Group
    picture: int = 0

    @property
    def outline(self) -> str:
        """The outline of its objects."""
        return "patch" if self.group is Group.FARTHER else self.name


_TREE = {
    (Group.KNOWN, "polygons"): ("triangle", "square", "pentagon"),
    (Group.KNOWN, "rounds"): ("disc", "ring", "crescent"),
    (Group.KNOWN, "bars"): ("plus", "tee", "corner"),
    (Group.KNOWN, "stars"): ("four-star", "six-star", "gear"),
    (Group.NEAR, "polygons"): ("trapezoid", "hexagon"),
    (Group.NEAR, "rounds"): ("half-disc", "drop"),
    (Group.NEAR, "bars"): ("zed", "fork"),
    (Group.NEAR, "stars"): ("five-star", "flower"),
    (Group.VALIDATION, "polygons"): ("house",),
    (Group.VALIDATION, "rounds"): ("heart",),
    (Group.VALIDATION, "bars"): ("aitch",),
    (Group.VALIDATION, "stars"): ("three-star",),
    (Group.FAR, "creatures"): ("face", "fish", "cat"),
    (Group.FAR, "tools"): ("key", "hammer", "cup"),
    (Group.FAR, "plants"): ("fir", "twig", "tulip"),
    (Group.OUTLIER, "fragments"): ("bolt", "zigzag", "pebbles", "splinter"),
}
_PICTURES = {
    "textures": {"mesh": MESH, "mosaic": MOSAIC},
    "marks": {"scribble": SCRIBBLE, "text": TEXT},
    "fields": {"plasma": PLASMA, "static": STATIC},
}

TERRA_CLASSES: tuple[TerraClass, ...] = (
    *(
        TerraClass(name, superclass, group)
        for (group, superclass), names in _TREE.items()
        for name in names
    ),
    *(
        TerraClass(name, superclass, Group.FARTHER, picture)
        for superclass, pictures in _PICTURES.items()
        for name, picture in pictures.items()
    ),
)
KNOWN_NAMES = tuple(each.name for each in TERRA_CLASSES if each.group is Group.KNOWN)


def select_classes(wanted: str | Sequence[str]) -> tuple[int, ...]:
    """Give the places in the tree of a group, a super-class, a class, or several of them.

    A super-class stands for all its classes, known or not.

    >>> [TERRA_CLASSES[k].name for k in select_classes(["marks", "disc"])]
    ['disc', 'scribble', 'text']
    """
    names = (wanted,) if isinstance(wanted, str) else tuple(wanted)
    places: set[int] = set()
    for name in names:
        found = {k for k, each in enumerate(TERRA_CLASSES) if name in _names_of(each)}
        if not found:
            raise unknown_name(
                "group or class of Terra", name, {n for c in TERRA_CLASSES for n in _names_of(c)}
            )
        places |= found
    return tuple(sorted(places))


def terra_classes() -> Classes:
    """Give all classes with role and super-class, as the truth of scenes uses them."""
    return Classes(
        tuple(each.name for each in TERRA_CLASSES),
        tuple(Role.KNOWN if each.group is Group.KNOWN else Role.UNKNOWN for each in TERRA_CLASSES),
        tuple(each.superclass for each in TERRA_CLASSES),
    )


def _names_of(each: TerraClass) -> tuple[str, str, str]:
    return each.name, each.superclass, each.group.value
