"""Open sets of OpenImages: in each super-class of its hierarchy the frequent classes are known.

Ammar et al., Open-set object detection: towards unified problem formulation and benchmarking,
section 3.3. In this order:

1. Images that hold a class of `contains` and none of `excludes` are chosen.
2. Objects of removed classes and object parts are dropped.
3. Of two boxes at one place whose labels share a super-class, the one with the label deeper in the
   hierarchy is kept, then that of the more frequent label, then the first.
4. In each super-class the more frequent share of the classes is known, where a class has enough
   objects; the others are unknown.
5. Images go to training, validation and test by a hash of their ids; images that show unknown
   objects are not trained on (`unseen`), or their labels are left out there (`unlabeled`).
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple
from zlib import crc32

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, PositiveInt, model_validator

from incognita.errors import InvalidDataError, count, unknown_name
from incognita.formats.openimages import BoxColumns, Hierarchy
from incognita.formats.toml_files import check_table, load_toml
from incognita.shapes import Bool, Float, Int

RULES = Path(__file__).parents[1] / "definitions" / "splits" / "tables" / "openimages-street.toml"
PARTS = ("train", "validation", "test")
_LEFT_BITS = 24  # of a left edge where boxes are sorted
Names = list[str]
Share = Annotated[float, Field(ge=0, le=1)]


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Shares(_Table):
    """What share of the images each part gets."""

    train: Share = 0.7
    validation: Share = 0.1
    test: Share = 0.2

    @model_validator(mode="after")
    def _add_up(self) -> "Shares":
        if not math.isclose(self.train + self.validation + self.test, 1) or not self.test:
            raise ValueError("shares of train, validation and test must add up to 1, with a test")
        return self


class SuperclassRules(_Table):
    """What a rules file says; a name stands for a class and all below it, unless said otherwise.

    Args:
        name: Of the benchmark.
        version: Goes up whenever a set could change.
        title: One line for people.
        paper: Where the rules are described.
        remarks: What a reader of the numbers should know.
        contains: An image is chosen if it holds one of these; by default every image is.
        excludes: An image with one of these is not chosen.
        parts_of: Classes whose parts, by the hierarchy, are removed; by default all that have
            parts.
        removed: Classes whose objects are dropped.
        ignored: Classes that count neither way, such as names of many things; not those below.
        outside: What happens to classes of no super-class: `refuse`, or `remove` them.
        superclasses: Super-classes by their classes, before those of the hierarchy.
        share_known: The share of the classes of a super-class that may be known.
        rounding: Of the number of these classes: `up`, `down` or `nearest` (a half is up).
        smallest_known: How many objects a known class has at least.
        doubles: Whether boxes at the place of a related one are dropped: `drop` or `keep`.
        same_place_iou: Two boxes of this IoU are at one place.
        scenario: Whether unknown objects are absent from training images, or not labelled there.
        shares: Of training, validation and test images.
        published: Numbers to compare with.
    """

    name: Annotated[str, Field(min_length=1)]
    version: PositiveInt
    title: str
    paper: str = ""
    remarks: Names = []
    contains: Names = []
    excludes: Names = []
    parts_of: Names | None = None
    removed: Names = []
    ignored: Names = []
    outside: Literal["refuse", "remove"] = "refuse"
    superclasses: Mapping[str, Annotated[Names, Field(min_length=1)]] = {}
    share_known: Share = 0.5
    rounding: Literal["up", "down", "nearest"] = "up"
    smallest_known: PositiveInt = 60
    doubles: Literal["drop", "keep"] = "drop"
    same_place_iou: Annotated[float, Field(gt=0, le=1)] = 0.9
    scenario: Literal["unseen", "unlabeled"] = "unseen"
    shares: Shares = Shares()
    published: Mapping[str, PositiveInt] = {}


def load_superclass_rules(path: Path = RULES) -> SuperclassRules:
    """Load rules from a TOML file; by default those of street scenes."""
    return check_table(SuperclassRules, load_toml(path, "rules file"), path.name)


@dataclass(frozen=True, eq=False)
class ClassTree:
    """The classes of OpenImages as rules see them; a class is its place in `labels`.

    Args:
        labels: All labels of the file of class names, in its order.
        names: Their names.
        hierarchy: Which class is below which.
        rules: What the classes are for.
    """

    labels: Sequence[str]
    names: Sequence[str]
    hierarchy: Hierarchy = field(repr=False)
    rules: SuperclassRules = field(repr=False)

    @classmethod
    def of(
        cls, names: Mapping[str, str], hierarchy: Hierarchy, rules: SuperclassRules
    ) -> "ClassTree":
        """Build the tree from the name of each label."""
        return cls(list(names), list(names.values()), hierarchy, rules)

    def mask(self, names: Iterable[str]) -> Bool[np.ndarray, "labels"]:
        """Return which classes are named, or below one that is named."""
        found = frozenset[str]().union(*(self._below(name) for name in names))
        return np.array([label in found for label in self.labels], np.bool_)

    def _below(self, name: str) -> frozenset[str]:
        members = self.rules.superclasses.get(name, [name])
        return frozenset[str]().union(*(self.hierarchy.below(self.label_of(k)) for k in members))

    def label_of(self, name: str) -> str:
        """Return the label of a class, by its name or as it is."""
        if name in self._index:
            return name
        if name not in self._label_of:
            others = [own for own in self.rules.superclasses if own != name]
            raise unknown_name("class of OpenImages", name, [*self.names, *others])
        return self._label_of[name]

    @cached_property
    def _index(self) -> dict[str, int]:
        return {label: k for k, label in enumerate(self.labels)}

    @cached_property
    def _label_of(self) -> dict[str, str]:
        return dict(zip(self.names, self.labels, strict=True))

    def pairs_below(self, above: Sequence[str], below: Sequence[str]) -> dict[str, list[str]]:
        """Return which of some classes are below which of others, by the name above."""
        labels = {name: self.label_of(name) for name in below}
        found = {name: self.hierarchy.below(self.label_of(name)) for name in above}
        pairs = {
            name: [other for other, label in labels.items() if label in inside]
            for name, inside in found.items()
        }
        return {name: others for name, others in pairs.items() if others}

    @cached_property
    def is_ignored(self) -> Bool[np.ndarray, "labels"]:
        """Which classes count neither way."""
        found = {self.label_of(name) for name in self.rules.ignored}
        return np.array([label in found for label in self.labels], np.bool_)

    @cached_property
    def is_removed(self) -> Bool[np.ndarray, "labels"]:
        """Which classes are dropped: removed ones, and parts of objects."""
        hierarchy, owners = self.hierarchy, self.rules.parts_of
        chosen = hierarchy.parts if owners is None else [self.label_of(name) for name in owners]
        parts = {part for owner in chosen for part in hierarchy.parts.get(owner, ())}
        below = frozenset[str]().union(*map(hierarchy.below, parts))
        named = zip(self.labels, self.mask(self.rules.removed).tolist(), strict=True)
        return np.array([is_named or label in below for label, is_named in named], np.bool_)

    @cached_property
    def superclass_names(self) -> list[str]:
        """The super-classes: those of the rules, then children of the root that have children."""
        root = self.hierarchy.root
        tops = (k for k in self.hierarchy.children.get(root, ()) if k in self.hierarchy.children)
        own = [self.names[self._index[label]] for label in tops if label in self._index]
        return list(dict.fromkeys([*self.rules.superclasses, *own]))

    @cached_property
    def superclass_of(self) -> Int[np.ndarray, "labels"]:
        """The super-class of each class, the first that it is below; -1 for none."""
        found = np.full(len(self.labels), -1, np.int32)
        for number, name in reversed(list(enumerate(self.superclass_names))):
            found[self.mask([name])] = number
        return found

    @cached_property
    def depths(self) -> Int[np.ndarray, "labels"]:
        """How deep each class stands in the hierarchy."""
        depths = self.hierarchy.depths
        return np.array([depths.get(label, 0) for label in self.labels], np.int32)


class ClassRow(NamedTuple):
    """A class with its super-class, its number of objects and its role."""

    superclass: str
    name: str
    objects: int
    role: Literal["known", "unknown", "ignored"]


@dataclass(frozen=True, eq=False)
class SuperclassSplit:
    """What the rules decide about a file of boxes.

    Args:
        columns: The boxes.
        rows: Which of them are objects of chosen images, in the order of the file.
        classes: The classes that are there, by super-class and from the frequent to the rare.
        part_of_image: The place in `PARTS` of each image; -1 where it is not chosen.
        has_unknown: Which images show an unknown object.
        has_known: Which images show a known object.
        outcomes: How many images have which outcome.
        dropped: How many objects of chosen images were dropped, by reason.
    """

    columns: BoxColumns
    rows: Int[np.ndarray, "objects"] = field(repr=False)
    classes: Sequence[ClassRow] = field(repr=False)
    part_of_image: Int[np.ndarray, "images"] = field(repr=False)
    has_unknown: Bool[np.ndarray, "images"] = field(repr=False)
    has_known: Bool[np.ndarray, "images"] = field(repr=False)
    outcomes: Mapping[str, int]
    dropped: Mapping[str, int]

    def names(self, role: str) -> list[str]:
        """Return the names of the classes of a role."""
        return [row.name for row in self.classes if row.role == role]


def split_by_superclass(columns: BoxColumns, tree: ClassTree) -> SuperclassSplit:
    """Decide which boxes, classes and images of a file are known, unknown or left out."""
    is_chosen, outcomes = _choose_images(columns, tree)
    rows = np.flatnonzero(is_chosen[columns.image_index])
    n_rows = len(rows)
    rows = rows[~tree.is_removed[columns.label_index[rows]]]
    dropped = {"part or removed class": n_rows - len(rows)}
    is_outside = tree.superclass_of[columns.label_index[rows]] < 0
    if is_outside.any():
        _refuse_outside(columns, tree, rows[is_outside])
        rows = rows[~is_outside]
        dropped["outside of all super-classes"] = int(is_outside.sum())
    if tree.rules.doubles == "drop":
        is_double = find_doubles(columns, tree, rows, tree.rules.same_place_iou)
        rows = rows[~is_double]
        dropped["at the place of a related one"] = int(is_double.sum())
    counts = np.bincount(columns.label_index[rows], minlength=len(tree.labels))
    classes = choose_known(counts, tree)
    return _assign_images(columns, tree, rows, classes, is_chosen, outcomes, dropped)


def _choose_images(
    columns: BoxColumns, tree: ClassTree
) -> tuple[Bool[np.ndarray, "images"], dict[str, int]]:
    """Return which images are scenes that the rules ask for."""
    n_images = len(columns.image_ids)

    def holding(names: Names) -> Bool[np.ndarray, "images"]:
        held = np.zeros(n_images, np.bool_)
        held[columns.image_index[tree.mask(names)[columns.label_index]]] = True
        return held

    has_scene = holding(tree.rules.contains) if tree.rules.contains else np.ones(n_images, np.bool_)
    is_excluded = holding(tree.rules.excludes)
    outcomes = {
        "without a class of contains": int((~has_scene).sum()),
        "with a class of excludes": int((has_scene & is_excluded).sum()),
    }
    return has_scene & ~is_excluded, outcomes


def _refuse_outside(columns: BoxColumns, tree: ClassTree, rows: Int[np.ndarray, "boxes"]) -> None:
    if tree.rules.outside == "remove":
        return
    counts = np.bincount(columns.label_index[rows], minlength=len(tree.labels))
    first = int(counts.argmax())
    raise InvalidDataError(
        f"{count(int((counts > 0).sum()), 'class', 'classes')} of {columns.path.name} "
        f"belong to no super-class, such as {tree.names[first]!r} with "
        f"{count(int(counts[first]), 'box', 'boxes')}. Group them under [superclasses] of the "
        f'rules, list them in removed, or write outside = "remove".'
    )


def find_doubles(
    columns: BoxColumns, tree: ClassTree, rows: Int[np.ndarray, "boxes"], iou: float
) -> Bool[np.ndarray, "boxes"]:
    """Return which boxes lie at the place of a better one whose label has the same super-class.

    Boxes of an image and super-class are compared along their left edges. An IoU of t needs
    left edges within (1 - t) of the width of the box that begins first, so that few are compared.

    Args:
        columns: All boxes.
        tree: Super-classes and depths of their labels.
        rows: The boxes to compare.
        iou: From this IoU on, boxes are at one place.
    """
    label = columns.label_index[rows]
    group = columns.image_index[rows].astype(np.int64) * len(tree.superclass_names)
    group += tree.superclass_of[label]
    left = columns.edges[0][rows]
    # one sort of whole numbers in place of a slower one by two keys
    order = np.argsort((group << _LEFT_BITS) + (left * (1 << _LEFT_BITS)).astype(np.int64))
    group, left, ordered = group[order], left[order], rows[order]
    reach = left + (1 - iou) * (columns.edges[1][ordered] - left)
    reach += 2.0 ** (1 - _LEFT_BITS)  # left edges are sorted up to this
    is_double, rank = np.zeros(len(rows), np.bool_), _ranks(label, tree)
    first = np.flatnonzero((group[1:] == group[:-1]) & (left[1:] <= reach[:-1]))
    step = 1
    while len(first):
        second = first + step
        is_same = _ious(columns.edges, ordered[first], ordered[second]) >= iou
        one, other = order[first[is_same]], order[second[is_same]]
        is_better = rank[one] < rank[other]
        is_better |= (rank[one] == rank[other]) & (one < other)  # the first line of the file
        is_double[np.where(is_better, other, one)] = True
        step += 1
        first = first[first + step < len(rows)]
        second = first + step
        first = first[(group[second] == group[first]) & (left[second] <= reach[first])]
    return is_double


def _ious(
    edges: Sequence[Float[np.ndarray, "boxes"]],
    one: Int[np.ndarray, "pairs"],
    other: Int[np.ndarray, "pairs"],
) -> Float[np.ndarray, "pairs"]:
    """Return the IoU of pairs of boxes; 0 for those without an area."""
    left, right, top, bottom = edges
    width = np.minimum(right[one], right[other]) - np.maximum(left[one], left[other])
    height = np.minimum(bottom[one], bottom[other]) - np.maximum(top[one], top[other])
    overlap = width.clip(min=0) * height.clip(min=0)
    union = (right[one] - left[one]) * (bottom[one] - top[one]) - overlap
    union += (right[other] - left[other]) * (bottom[other] - top[other])
    ious: Float[np.ndarray, pairs] = np.divide(
        overlap, union, out=np.zeros_like(overlap), where=union > 0
    )
    return ious


def _ranks(label: Int[np.ndarray, "boxes"], tree: ClassTree) -> Int[np.ndarray, "boxes"]:
    """Return the rank of each box's label: deeper ones first, then frequent ones, then by name."""
    counts = np.bincount(label, minlength=len(tree.labels))
    by_name = np.argsort(np.argsort(np.array(tree.names)))
    ranks = np.empty(len(tree.labels), np.int32)
    ranks[np.lexsort((by_name, -counts, -tree.depths))] = np.arange(len(tree.labels))
    of_boxes: Int[np.ndarray, boxes] = ranks[label]
    return of_boxes


def choose_known(counts: Int[np.ndarray, "labels"], tree: ClassTree) -> list[ClassRow]:
    """Return the classes that have objects, with their roles.

    Args:
        counts: How many objects each class has.
        tree: The classes and the rules.
    """
    rules, classes = tree.rules, []
    for number, superclass in enumerate(tree.superclass_names):
        inside = np.flatnonzero((tree.superclass_of == number) & (counts > 0))
        ranked = sorted(inside.tolist(), key=lambda k: (-counts[k], tree.names[k]))
        counted = [k for k in ranked if not tree.is_ignored[k]]
        n_known = _rounded(rules.share_known * len(counted), rules.rounding)
        frequent = {k for k in counted[:n_known] if counts[k] >= rules.smallest_known}
        for k in ranked:
            role: Any = "known" if k in frequent else "unknown"
            role = "ignored" if tree.is_ignored[k] else role
            classes.append(ClassRow(superclass, tree.names[k], int(counts[k]), role))
    if not any(row.role == "known" for row in classes):
        raise InvalidDataError(
            f"No class has the {rules.smallest_known:,} objects that a known class needs, of "
            f"{count(len(classes), 'class', 'classes')} that are there. Lower smallest_known, or "
            f"give more boxes."
        )
    return classes


def _rounded(number: float, rounding: str) -> int:
    """Round a number of classes.

    >>> [_rounded(1.5, rounding) for rounding in ("up", "down", "nearest")]
    [2, 1, 2]
    """
    number = round(number, 9)  # 0.1 * 30 is a little more than 3
    if rounding == "up":
        return math.ceil(number)
    return math.floor(number if rounding == "down" else number + 0.5)


def _assign_images(
    columns: BoxColumns,
    tree: ClassTree,
    rows: Int[np.ndarray, "objects"],
    classes: Sequence[ClassRow],
    is_chosen: Bool[np.ndarray, "images"],
    outcomes: dict[str, int],
    dropped: Mapping[str, int],
) -> SuperclassSplit:
    """Send each chosen image to a part."""
    has = {}
    for role in ("known", "unknown"):
        named = {row.name for row in classes if row.role == role}
        is_of_role = np.array([name in named for name in tree.names], np.bool_)
        has[role] = np.zeros(len(columns.image_ids), np.bool_)
        has[role][columns.image_index[rows[is_of_role[columns.label_index[rows]]]]] = True
    is_there = is_chosen & (has["known"] | has["unknown"])
    part_of_image = np.full(len(is_chosen), -1, np.int8)
    images = np.flatnonzero(is_there)
    part_of_image[images] = _parts(
        columns.image_ids[images].to_list(),
        has["known"][images],
        has["unknown"][images],
        tree.rules,
    )
    outcomes["without a known or unknown object"] = int((is_chosen & ~is_there).sum())
    for number, name in enumerate(PARTS):
        outcomes[name] = int((part_of_image == number).sum())
    kept = rows[is_there[columns.image_index[rows]]]
    return SuperclassSplit(
        columns, kept, classes, part_of_image, has["unknown"], has["known"], outcomes, dropped
    )


def _parts(
    image_ids: Sequence[str],
    has_known: Bool[np.ndarray, "images"],
    has_unknown: Bool[np.ndarray, "images"],
    rules: SuperclassRules,
) -> Int[np.ndarray, "images"]:
    """Return the part of each image, by a hash of its id.

    An image with known and unknown objects that is not trained on is tested, since a validation
    set shows either known or unknown objects.
    """
    hashes = np.array([crc32(image_id.encode()) for image_id in image_ids], np.float64) / 2**32
    shares = rules.shares
    parts = np.digitize(hashes, [shares.train, shares.train + shares.validation])
    if rules.scenario == "unseen":
        held_out = shares.validation + shares.test
        parts = np.where(
            has_unknown, np.digitize(hashes, [0.0, shares.validation / held_out]), parts
        )
    is_mixed = has_known & has_unknown
    parts = np.where(is_mixed & (parts == 1), 2, parts)
    return parts.astype(np.int8)
