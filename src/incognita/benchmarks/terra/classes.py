"""The classes of Terra: their super-classes, and which are known, near, far and farther."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from incognita.containers.classes import Classes, Role
from incognita.errors import unknown_name
from incognita.kernels.terra.shapes import MESH, MOSAIC, PLASMA, SCRIBBLE, STATIC, TEXT


class ClassGroup(Enum):
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

    def __repr__(self) -> str:
        # part of the fingerprint of rendered images, which must not change with the class name
        return f"<Group.{self.name}: {self.value!r}>"


@dataclass(frozen=True)
class TerraClass:
    """A class of the tree; `picture` is what fills it where it is another kind of picture."""

    name: str
    superclass: str
    group: ClassGroup
    picture: int = 0

    @property
    def outline(self) -> str:
        """The outline of its objects."""
        return "patch" if self.group is ClassGroup.FARTHER else self.name


_TREE = {
    (ClassGroup.KNOWN, "polygons"): ("triangle", "square", "pentagon"),
    (ClassGroup.KNOWN, "rounds"): ("disc", "ring", "crescent"),
    (ClassGroup.KNOWN, "bars"): ("plus", "tee", "corner"),
    (ClassGroup.KNOWN, "stars"): ("four-star", "six-star", "gear"),
    (ClassGroup.NEAR, "polygons"): ("trapezoid", "hexagon"),
    (ClassGroup.NEAR, "rounds"): ("half-disc", "drop"),
    (ClassGroup.NEAR, "bars"): ("zed", "fork"),
    (ClassGroup.NEAR, "stars"): ("five-star", "flower"),
    (ClassGroup.VALIDATION, "polygons"): ("house",),
    (ClassGroup.VALIDATION, "rounds"): ("heart",),
    (ClassGroup.VALIDATION, "bars"): ("aitch",),
    (ClassGroup.VALIDATION, "stars"): ("three-star",),
    (ClassGroup.FAR, "creatures"): ("face", "fish", "cat"),
    (ClassGroup.FAR, "tools"): ("key", "hammer", "cup"),
    (ClassGroup.FAR, "plants"): ("fir", "twig", "tulip"),
    (ClassGroup.OUTLIER, "fragments"): ("bolt", "zigzag", "pebbles", "splinter"),
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
        TerraClass(name, superclass, ClassGroup.FARTHER, picture)
        for superclass, pictures in _PICTURES.items()
        for name, picture in pictures.items()
    ),
)
KNOWN_NAMES = tuple(c.name for c in TERRA_CLASSES if c.group is ClassGroup.KNOWN)


def select_classes(wanted: str | Sequence[str]) -> tuple[int, ...]:
    """Return the places in the tree of a group, a super-class, a class, or several of them.

    A super-class stands for all its classes, known or not.

    >>> [TERRA_CLASSES[k].name for k in select_classes(["marks", "disc"])]
    ['disc', 'scribble', 'text']
    """
    names = (wanted,) if isinstance(wanted, str) else tuple(wanted)
    places: set[int] = set()
    for name in names:
        found = {k for k, c in enumerate(TERRA_CLASSES) if name in _names_of(c)}
        if not found:
            raise unknown_name(
                "group or class of Terra", name, {n for c in TERRA_CLASSES for n in _names_of(c)}
            )
        places |= found
    return tuple(sorted(places))


def terra_classes() -> Classes:
    """Return all classes with role and super-class, as the truth of scenes uses them."""
    return Classes(
        tuple(c.name for c in TERRA_CLASSES),
        tuple(Role.KNOWN if c.group is ClassGroup.KNOWN else Role.UNKNOWN for c in TERRA_CLASSES),
        tuple(c.superclass for c in TERRA_CLASSES),
    )


def _names_of(terra_class: TerraClass) -> tuple[str, str, str]:
    return terra_class.name, terra_class.superclass, terra_class.group.value
