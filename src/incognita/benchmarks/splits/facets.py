"""FACETS: images of ImageNet and SUN397 are known or unknown by the meaning of their class.

Recalcati et al., Toward a Realistic Benchmark for Out-of-Distribution Detection, DSAA 2023. A model
knows the scenes of Places365. Images of another data set are accepted if their class is near to one
of them: by WordNet (variant `wordnet`) or as a person says (`levels`). The variants `baseline`
(SVHN) and `inter` (ImageNet without the classes it shares with Places) are what others do.

Every set has a part to choose parameters on and one to test on. Which images are drawn depends on
the seed and on their paths alone.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from incognita.benchmarks.splits.write import (
    BENCHMARK,
    MANIFEST,
    BenchmarkHeader,
    refuse_loss,
    relative,
    save_benchmark,
    save_manifest,
)
from incognita.containers.classes import plain
from incognita.errors import InvalidDataError, MissingDataError, count, unknown_name
from incognita.files import check_regular, replacing_text
from incognita.formats.toml_files import load_toml
from incognita.semantics import SynsetMap, class_distance, load_synset_map, similarities
from incognita.semantics.class_names import Rule, Senses

Variant = Literal["wordnet", "inter", "baseline", "levels"]
VARIANTS: tuple[Variant, ...] = get_args(Variant)
OnStep = Callable[[str], None]
LISTS = "lists"
SUFFIXES = (".jpg", ".jpeg", ".png")
PER_CLASS = 50  # images of Places and of an accepted class, to choose on and again to test on
_FROM_VALIDATION = 25  # images of ImageNet's validation set of each class, in the levels
_LEVELS = {"sun397": (0, 1, 2, 3), "imagenet": (0, 1)}
HIGHEST_ACCEPTED = {"T1": 1, "T2": 2}  # levels of SUN397 that are accepted
N_SVHN_TEST = 1549  # of its test images in each part of the baseline
# known and unknown images in each of the two parts, tables II to V
PUBLISHED = {
    "baseline": {"places": 18_250, "svhn": 18_250},
    "inter": {"places": 18_250, "imagenet-unknown": 18_108},
    "wordnet 0.40": {"places": 18_250, "imagenet-accepted": 2_800, "imagenet-unknown": 21_332},
    "wordnet 0.45": {"places": 18_250, "imagenet-accepted": 4_500, "imagenet-unknown": 22_750},
    "wordnet 0.50": {"places": 18_250, "imagenet-accepted": 7_000, "imagenet-unknown": 25_560},
    "levels T1": {"places": 18_250, "sun-accepted": 46_851, "imagenet-accepted": 8_900,
                  "sun-unknown": 7_530, "imagenet-unknown": 66_332},
    "levels T2": {"places": 18_250, "sun-accepted": 49_827, "imagenet-accepted": 8_900,
                  "sun-unknown": 4_554, "imagenet-unknown": 72_706},
}  # fmt: skip
PUBLISHED_CLASSES = {
    "inter": {"imagenet-unknown": 968},
    "wordnet 0.40": {"imagenet-accepted": 56, "imagenet-unknown": 944},
    "wordnet 0.45": {"imagenet-accepted": 90, "imagenet-unknown": 910},
    "wordnet 0.50": {"imagenet-accepted": 140, "imagenet-unknown": 860},
    "levels T1": {"sun-accepted": 319, "sun-unknown": 78, "imagenet-accepted": 356,
                  "imagenet-unknown": 644},
    "levels T2": {"sun-accepted": 351, "sun-unknown": 46, "imagenet-accepted": 356,
                  "imagenet-unknown": 644},
}  # fmt: skip


class ListedImage(NamedTuple):
    """One image: its path below the data folder, its known class or -1, its class by name."""

    path: str
    label: int
    source_class: str


Parts = tuple[list[ListedImage], list[ListedImage]]  # to choose parameters on, and to test on


class ClassChoice(NamedTuple):
    """Why a class is accepted or unknown."""

    name: str
    synset: str
    nearest: str
    distance: float
    is_accepted: bool


@dataclass(frozen=True)
class FacetsFolders:
    """Where the images lie, below the data folder.

    Args:
        data: The data folder.
        places: The validation images of Places365; `places_list` names each and its class.
        places_list: `places365_val.txt`.
        imagenet: Training images of ImageNet-1K, one folder for each wnid.
        imagenet_val: Its validation images, in the same way.
        sun: SUN397, as it is published.
        svhn: SVHN in full images, folders train and test.
    """

    data: Path
    places: str = "places365/val_256"
    places_list: str = "places365/places365_val.txt"
    imagenet: str = "imagenet/train"
    imagenet_val: str = "imagenet/val"
    sun: str = "sun397"
    svhn: str = "svhn"

    def at(self, folder: str) -> Path:
        """Return the path of a folder that must be there."""
        path = self.data / folder
        if not path.exists():
            raise MissingDataError(f"There is no {path}. Put the images there, or name the folder.")
        return path


@dataclass(frozen=True)
class FacetsSettings:
    """Which variant is built.

    Args:
        variant: `wordnet`, `inter`, `baseline` or `levels`.
        distance: The largest distance of an accepted class, for `wordnet`.
        senses: `first`, as published codes take them, or `recorded` by reading definitions.
        levels: A file that gives classes of SUN397 and ImageNet a level, for `levels`.
        limit: `T1` accepts levels 0 and 1 of SUN397, `T2` also level 2.
        seed: Of the images that are drawn.
    """

    variant: Variant = "wordnet"
    distance: float = 0.4
    senses: Senses = "first"
    levels: Path | None = None
    limit: str = "T1"
    seed: int = 0

    def __post_init__(self) -> None:
        if self.variant not in VARIANTS:
            raise unknown_name("variant of FACETS", self.variant, VARIANTS)
        if not 0 <= self.distance <= 1:
            raise InvalidDataError(f"Expected a distance from 0 to 1, got {self.distance}.")
        if self.limit not in HIGHEST_ACCEPTED:
            raise unknown_name("limit of FACETS", self.limit, HIGHEST_ACCEPTED)
        if (self.levels is None) == (self.variant == "levels"):
            raise InvalidDataError(
                "Expected a file of levels with the variant levels, and with no other. Write "
                "--variant levels --levels FILE, or neither."
            )

    @property
    def title(self) -> str:
        """The name of the published table it corresponds to."""
        if self.variant == "wordnet":
            return f"wordnet {max(f'{self.distance:.2f}', f'{self.distance:g}', key=len)}"
        return f"levels {self.limit}" if self.variant == "levels" else self.variant


@dataclass(frozen=True, eq=False)
class FacetsBuild:
    """What was built: the images of each set and part, and why each class is where it is.

    Args:
        settings: The variant.
        places: Names of the known classes, in the order of their numbers.
        parts: By set, the images to choose parameters on and those to test on.
        groups: The group of each unknown set.
        choices: Why classes are accepted or unknown.
        problems: Descriptions of images that are missing.
    """

    settings: FacetsSettings
    places: Sequence[str]
    parts: Mapping[str, Parts]
    groups: Mapping[str, str]
    choices: Sequence[ClassChoice] = ()
    problems: Sequence[str] = ()

    def comparison(self) -> list[dict[str, Any]]:
        """Compare images per part and classes of each set with the published ones."""
        images = PUBLISHED.get(self.settings.title, {})
        classes = PUBLISHED_CLASSES.get(self.settings.title, {})
        return [
            {
                "set": name,
                "images": len(tested),
                "images to choose on": len(chosen_on),
                "published images": images.get(name),
                "classes": len({image.source_class for image in tested}),
                "published classes": classes.get(name),
            }
            for name, (chosen_on, tested) in self.parts.items()
        ]


@dataclass(frozen=True)
class _Draw:
    """Draws images of classes, and notes classes that have too few.

    Images are ordered by a hash of the seed and their path.
    """

    seed: int
    problems: list[str] = field(default_factory=list)

    def two_parts(
        self, what: str, by_class: Mapping[str, Sequence[str]], drawn: Mapping[str, int]
    ) -> Parts:
        """Draw two disjoint parts with as many images of each class, as far as there are enough."""
        parts: Parts = ([], [])
        short = {}
        for name, wanted in drawn.items():
            paths = sorted(by_class[name], key=lambda path: _hash(self.seed, path))
            n = min(wanted, len(paths) // 2)
            if n < wanted or len(paths) < 2:
                short[name] = f"{count(len(paths), 'image')} of {2 * max(1, wanted):,}"
            for part, some in zip(parts, (paths[:n], paths[n : 2 * n]), strict=True):
                part += [ListedImage(path, -1, name) for path in sorted(some)]
        if short:
            first = next(iter(short))
            classes = count(len(short), "class has", "classes have")
            self.problems.append(f"{what}: {classes} too few, such as {first}: {short[first]}")
        return parts


def build_facets(
    folders: FacetsFolders, settings: FacetsSettings, *, on_step: OnStep | None = None
) -> FacetsBuild:
    """Choose classes and draw images; nothing is written."""
    say = on_step or (lambda what: None)
    # a wrong file is better refused before images are listed
    levels = None if settings.levels is None else load_levels(settings.levels)
    say("listing Places365")
    draw = _Draw(settings.seed)
    places = load_synset_map("places365", senses=settings.senses)
    parts: dict[str, Parts] = {"places": _places_images(folders, places.names, draw)}
    if settings.variant == "baseline":
        parts["svhn"] = _svhn_images(folders, draw)
        groups = {"svhn": "unknown"}
        return FacetsBuild(settings, places.names, parts, groups, problems=draw.problems)
    say("listing ImageNet")
    imagenet = load_synset_map("imagenet1k")
    trees = _class_folders(folders, folders.imagenet, depth=1)
    names = {row.wnid: row.name for row in imagenet.classes}
    _check_classes(trees, names, folders.imagenet)
    if levels is not None:
        say("listing SUN397")
        groups = _draw_levels(folders, settings, levels, parts, trees, names, draw)
        return FacetsBuild(settings, places.names, parts, groups, problems=draw.problems)
    choices = choose_classes(imagenet, places, settings)
    accepted = [c.name for c in choices if c.is_accepted and settings.variant == "wordnet"]
    unknown = [c.name for c in choices if not c.is_accepted]
    by_name = {names[wnid]: images for wnid, images in trees.items()}
    if accepted:
        drawn = dict.fromkeys(accepted, PER_CLASS)
        parts["imagenet-accepted"] = draw.two_parts("imagenet-accepted", by_name, drawn)
    n_known = sum(len(tested) for _, tested in parts.values())
    drawn = spread(n_known, unknown, settings.seed)
    parts["imagenet-unknown"] = draw.two_parts("imagenet-unknown", by_name, drawn)
    groups = {"imagenet-unknown": "unknown"}
    return FacetsBuild(settings, places.names, parts, groups, choices, draw.problems)


def choose_classes(
    imagenet: SynsetMap, places: SynsetMap, settings: FacetsSettings
) -> list[ClassChoice]:
    """Decide by WordNet which classes of ImageNet are near to one of Places.

    In the variant `inter` these are the classes that both have: of one synset, or a link apart.
    With first senses, the three classes of Places whose name no rule finds do not take part.
    """
    rows = [
        row
        for row in places.classes
        if settings.senses == "recorded" or row.rule is not Rule.OVERRIDE
    ]
    synsets = [row.synset for row in rows]
    distances = class_distance(imagenet.synsets, synsets)
    if settings.variant == "inter":
        links = similarities(imagenet.synsets, synsets).path
        is_near = np.asarray((links >= 1 / 2).any(axis=1))
    else:
        is_near = np.asarray((distances <= settings.distance).any(axis=1))
    nearest = distances.argmin(axis=1)
    return [
        ClassChoice(
            row.name,
            row.synset,
            rows[place].name,
            round(float(distances[k, place]), 6),
            bool(is_near[k]),
        )
        for k, (row, place) in enumerate(zip(imagenet.classes, nearest.tolist(), strict=True))
    ]


def _draw_levels(
    folders: FacetsFolders,
    settings: FacetsSettings,
    levels: Mapping[str, Mapping[str, int]],
    parts: dict[str, Parts],
    train: Mapping[str, list[str]],
    names: Mapping[str, str],
    draw: _Draw,
) -> dict[str, str]:
    """Draw images of SUN397 and ImageNet by the level a person has given to each class.

    Parts are added to `parts`; the groups of the unknown ones are returned.
    """
    assert settings.levels is not None
    sun = _class_folders(folders, folders.sun, depth=None)
    _check_levels(levels["sun397"], sun, settings.levels, "sun397")
    _check_levels(levels["imagenet"], train, settings.levels, "imagenet")
    highest = HIGHEST_ACCEPTED[settings.limit]
    halves = {name: len(images) // 2 for name, images in sun.items()}
    accepted = {n: k for n, k in halves.items() if levels["sun397"][n] <= highest}
    parts["sun-accepted"] = draw.two_parts("sun-accepted", sun, accepted)
    held_out = _class_folders(folders, folders.imagenet_val, depth=1)
    _check_classes(held_out, names, folders.imagenet_val)
    near = {w: _FROM_VALIDATION for w in held_out if levels["imagenet"][w] == 0}
    kin = draw.two_parts("imagenet-accepted", held_out, near)
    parts["imagenet-accepted"] = _renamed(kin, names)
    groups = {}
    for level in sorted(set(levels["sun397"].values()) - set(range(highest + 1))):
        chosen = {n: k for n, k in halves.items() if levels["sun397"][n] == level}
        parts[f"sun-level-{level}"] = draw.two_parts(f"sun-level-{level}", sun, chosen)
        groups[f"sun-level-{level}"] = f"level {level}"
    far = [w for w in held_out if levels["imagenet"][w] == 1]
    parts["imagenet-unknown"] = _renamed(_balanced(parts, held_out, train, far, draw), names)
    return groups | {"imagenet-unknown": "imagenet"}


def _balanced(
    parts: Mapping[str, Parts],
    held_out: Mapping[str, list[str]],
    train: Mapping[str, list[str]],
    classes: Sequence[str],
    draw: _Draw,
) -> Parts:
    """Draw unknown classes from both parts of ImageNet, until as many are unknown as are known."""
    what = "imagenet-unknown"
    first = draw.two_parts(what, held_out, dict.fromkeys(classes, _FROM_VALIDATION))
    sizes = {name: len(tested) for name, (_, tested) in parts.items()}
    n_known = sum(n for name, n in sizes.items() if name == "places" or "accepted" in name)
    missing = 2 * n_known - sum(sizes.values()) - len(first[1])
    wanted = spread(max(0, missing), classes, draw.seed)
    more = draw.two_parts(what, train, {name: n for name, n in wanted.items() if n})
    return first[0] + more[0], first[1] + more[1]


def load_levels(path: Path) -> dict[str, dict[str, int]]:
    """Load the level of each class: tables sun397 (0 to 3) and imagenet (0 or 1)."""
    content = load_toml(path, "file of levels")
    for source, allowed in _LEVELS.items():
        table = content.get(source)
        if not isinstance(table, dict) or not table:
            raise InvalidDataError(
                f"Expected a table [{source}] with the level of each class in {path}, got none. "
                f'Write lines such as "abbey" = 0.'
            )
        for name, level in table.items():
            if isinstance(level, bool) or level not in allowed:
                raise InvalidDataError(
                    f"Expected a level from {allowed[0]} to {allowed[-1]} for {name!r} of {source} "
                    f"in {path}, got {level!r}."
                )
    return {source: dict(content[source]) for source in _LEVELS}


def _check_levels(
    levels: Mapping[str, int], classes: Iterable[str], path: Path, source: str
) -> None:
    missing = sorted(set(classes) - set(levels))
    if missing:
        raise InvalidDataError(
            f"Expected a level of every class of {source} in {path}, got none for "
            f"{count(len(missing), 'class', 'classes')}, such as {missing[0]!r}. Add them."
        )
    if strange := sorted(set(levels) - set(classes)):
        raise InvalidDataError(
            f"{path} gives a level to {strange[0]!r}, but {source} has no images of it. Remove "
            f"{count(len(strange), 'line')}, or add the images."
        )


def _places_images(folders: FacetsFolders, names: Sequence[str], draw: _Draw) -> Parts:
    """Divide the validation images of Places into two halves of each class."""
    by_class = _listed_places(folders, names)
    there = set(_images_below(folders, folders.places))
    missing = [image for images in by_class.values() for image in images if image not in there]
    if missing:
        what = "image of the list is not there" if len(missing) == 1 else "images are not there"
        draw.problems.append(f"places: {len(missing):,} {what}, such as {missing[0]}")
    present = {name: [i for i in images if i in there] for name, images in by_class.items()}
    numbers = {name: number for number, name in enumerate(names)}
    first, second = (
        [image._replace(label=numbers[image.source_class]) for image in part]
        for part in draw.two_parts("places", present, dict.fromkeys(names, PER_CLASS))
    )
    return first, second


def _listed_places(folders: FacetsFolders, names: Sequence[str]) -> dict[str, list[str]]:
    """Read the images of each class of Places from its list."""
    path = folders.at(folders.places_list)
    check_regular(path, "list of images", advice="put it there")
    by_class: dict[str, list[str]] = {name: [] for name in names}
    seen: set[str] = set()
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        image, _, label = line.rpartition(" ")
        if not image or not label.isdigit() or int(label) >= len(names):
            raise InvalidDataError(
                f"Expected a file and a class from 0 to {len(names) - 1} in line {number} of "
                f"{path}, got {line!r:.80}. Give Places365's list of validation images."
            )
        if image in seen:
            raise InvalidDataError(
                f"Expected every image once in {path}, got {image} again in line {number}. It "
                f"would be tested on and chosen on: remove the line."
            )
        seen.add(image)
        by_class[names[int(label)]].append(f"{folders.places}/{image}")
    return by_class


def _svhn_images(folders: FacetsFolders, draw: _Draw) -> Parts:
    """Divide SVHN: the halves of its training images, and as many test images to each."""
    trees = {part: _images_below(folders, f"{folders.svhn}/{part}") for part in ("train", "test")}
    chosen = {"train": len(trees["train"]) // 2, "test": N_SVHN_TEST}
    parts = draw.two_parts("svhn", trees, chosen)
    published = PUBLISHED["baseline"]["svhn"]
    if len(parts[1]) != published:
        draw.problems.append(f"svhn: {len(parts[1]):,} images, but {published:,} are expected")
    return _renamed(parts, {"train": "digit", "test": "digit"})


def _renamed(parts: Parts, names: Mapping[str, str]) -> Parts:
    first, second = (
        [image._replace(source_class=names[image.source_class]) for image in part] for part in parts
    )
    return first, second


def spread(total: int, classes: Sequence[str], seed: int) -> dict[str, int]:
    """Spread a number of images evenly over classes; the remainder by a hash of their names.

    >>> spread(5, ["a", "b", "c"], 0)
    {'a': 2, 'b': 2, 'c': 1}
    """
    if not classes:
        raise InvalidDataError("Expected unknown classes to draw images of, got none.")
    least, remainder = divmod(total, len(classes))
    extra = set(sorted(classes, key=lambda name: _hash(seed, name))[:remainder])
    return {name: least + (name in extra) for name in classes}


def _hash(seed: int, text: str) -> bytes:
    return blake2b(f"{seed} {text}".encode(errors="surrogateescape"), digest_size=8).digest()


def _class_folders(
    folders: FacetsFolders, folder: str, *, depth: int | None
) -> dict[str, list[str]]:
    """List the images of each class: a folder, or in SUN397 the folders below a letter."""
    by_class: dict[str, list[str]] = {}
    start = 0 if depth == 1 else 1
    for path in _images_below(folders, folder):
        inner = path.removeprefix(f"{folder}/").split("/")[start:-1]
        if len(inner) < 1 or (depth is not None and len(inner) != depth):
            raise InvalidDataError(
                f"Expected every image of {folders.data / folder} in the folder of its class, got "
                f"{path}. Sort the images by class."
            )
        by_class.setdefault("/".join(inner), []).append(path)
    return by_class


def _images_below(folders: FacetsFolders, folder: str) -> list[str]:
    root = folders.at(folder)
    found = sorted(
        relative(path, folders.data)
        for path in root.rglob("*")
        if path.suffix.lower() in SUFFIXES and path.is_file()
    )
    if not found:
        raise MissingDataError(f"There is no image in {root}. Put them there.")
    return found


def _check_classes(found: Mapping[str, Any], names: Mapping[str, str], folder: str) -> None:
    if missing := sorted(set(names) - set(found)):
        raise MissingDataError(
            f"{folder} has no images of {count(len(missing), 'class', 'classes')} of ImageNet-1K, "
            f"such as {missing[0]} ({names[missing[0]]}). Add them."
        )
    if strange := sorted(set(found) - set(names)):
        raise InvalidDataError(
            f"{folder}/{strange[0]} is not a class of ImageNet-1K. Remove the folder."
        )


def save_facets(build: FacetsBuild, folders: FacetsFolders, out: Path, *, version: str) -> None:
    """Save the lists, a manifest with every choice, and a benchmark; the same input gives the same.

    Args:
        build: What was built.
        folders: Where the images are.
        out: A folder below the data folder.
        version: Of this package, for the manifest.
    """
    if not out.resolve().is_relative_to(folders.data.resolve()):
        raise InvalidDataError(
            f"Expected a folder below {folders.data}, where the paths in a benchmark begin, got "
            f"{out}. Name one below it."
        )
    names = [f"{LISTS}/{name}" for name in _list_names(build)]
    refuse_loss(out, [build.settings.levels], written=[], names=[MANIFEST, BENCHMARK, *names])
    (out / LISTS).mkdir(parents=True, exist_ok=True)
    entries = list(_entries(build, relative(out.resolve(), folders.data.resolve())))
    for (_, images), name in zip(_sets(build), _list_names(build), strict=True):
        with replacing_text(out / LISTS / f"{name}.txt") as file:
            file.writelines(f"{image.path} {image.label}\n" for image in images)
        with replacing_text(out / LISTS / f"{name}.classes.txt") as file:
            file.writelines(f"{image.source_class}\n" for image in images)
    save_manifest([_facts(build)], out, version=version)
    metadata = {
        "name": f"facets/{build.settings.title.replace(' ', '-')}",
        "version": 1,
        "title": f"FACETS, {build.settings.title}: Places365 against classes by their meaning",
        "classes": list(build.places),
        "paper": "Recalcati et al., Toward a Realistic Benchmark for OOD Detection, DSAA 2023",
    }
    save_benchmark([], out, BenchmarkHeader(metadata, entries))


def _sets(build: FacetsBuild) -> list[tuple[str, list[ListedImage]]]:
    """Return role and images of each set of the benchmark, the parts to choose on first.

    Unknown images to choose on are one set, as a benchmark has one.
    """
    sets: list[tuple[str, list[ListedImage]]] = []
    unknown: list[ListedImage] = []
    for name, (chosen_on, tested) in build.parts.items():
        if name == "places":
            sets += [("validation", chosen_on), ("test", tested)]
        elif name in build.groups:
            unknown += chosen_on
            sets.append(("unknown", tested))
        else:
            sets += [("accepted-validation", chosen_on), ("accepted", tested)]
    return [*sets, ("unknown-validation", unknown)]


def _list_names(build: FacetsBuild) -> list[str]:
    names = []
    for name in build.parts:
        is_unknown = name in build.groups
        names += [name] if is_unknown else [f"{name}-validation", name]
    return [*names, "unknown-validation"]


def _entries(build: FacetsBuild, below: str) -> Iterable[dict[str, Any]]:
    known = {plain(name) for name in build.places}
    partial = [f"partial: {problem}" for problem in build.problems]
    for (role, images), name in zip(_sets(build), _list_names(build), strict=True):
        own = sorted({image.source_class for image in images})
        shared = [n for n in own if plain(n) in known] if role.startswith("unknown") else []
        notes = [f"{', '.join(shared)}: known by name, far by meaning"] if shared else []
        yield {
            "name": name,
            "role": role,
            "group": build.groups[name] if role == "unknown" else None,
            "kind": "imglist",
            "list": f"{below}/{LISTS}/{name}.txt",
            "source_classes": f"{below}/{LISTS}/{name}.classes.txt",
            "count": len(images),
            "allowed_classes": shared or None,
            "note": "; ".join([*notes, *partial]) or None,
        }


def _facts(build: FacetsBuild) -> dict[str, Any]:
    settings = build.settings
    facts: dict[str, Any] = {
        "variant": settings.title,
        "seed": settings.seed,
        "senses": settings.senses,
        "sets": build.comparison(),
        "problems": list(build.problems),
    }
    if settings.levels is not None:
        facts["levels"] = settings.levels.name
    return facts | {"classes": [choice._asdict() for choice in build.choices]}
