"""Annotations of Pascal VOC, one XML file per image, as records in COCO's format.

VOC counts pixels from 1 and its corners are part of the box: `x = xmin - 1` and
`width = xmax - xmin + 1`. The id of an image is the name of its XML file without the suffix, as in
the lists of ImageSets. An object that VOC calls difficult stays so.
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any
from xml.etree.ElementTree import Element, TreeBuilder
from xml.parsers import expat

from incognita.errors import InvalidDataError, MissingDataError, unknown_name
from incognita.files import opened
from incognita.formats.coco_records import Annotations, ImageId, Record

_EDGES = ("xmin", "ymin", "xmax", "ymax")
_SOURCE = "http://host.robots.ox.ac.uk/pascal/VOC"
_LONGEST_SIDE = 1_000_000  # pixels


def load_voc(
    folder: Path, *, only: Sequence[str] | None = None, classes: Sequence[str] | None = None
) -> Annotations:
    """Load annotations of Pascal VOC.

    Args:
        folder: Such as VOCdevkit/VOC2007; it holds Annotations, and images lie in JPEGImages.
        only: Ids of the images that are wanted, each of which must be there; by default all.
        classes: Names of the classes in the order of their category ids, from 1; others are
            refused. By default the names that are found, in alphabetical order.
    """
    paths = _find_files(folder, only)
    trees = {image_id: _parse(path) for image_id, path in paths.items()}
    named = {image_id: _objects(paths[image_id], tree) for image_id, tree in trees.items()}
    found = sorted({record["name"] for group in named.values() for record in group})
    numbers = {name: k for k, name in enumerate(found if classes is None else classes, start=1)}
    for image_id, group in named.items():
        for record in group:
            if record["name"] not in numbers:
                raise InvalidDataError(
                    f"{paths[image_id]}: {unknown_name('class', record['name'], numbers)}"
                )
    objects = _numbered(named, numbers)
    images: dict[ImageId, Record] = {
        image_id: _image(image_id, trees[image_id], paths[image_id]) for image_id in sorted(trees)
    }
    categories = [{"id": number, "name": name} for name, number in numbers.items()]
    return Annotations(folder.name, images, objects, categories)


def load_voc_list(path: Path) -> list[str]:
    """Load a list of image ids, one in each line, as those of ImageSets/Main, OpenDet and OWOD.

    Repeated ids are kept: refusing them is up to the reader of the list.
    """
    with opened(path) as file:
        text = file.read().decode("utf-8-sig", "replace")
    lines = [(number, line.split()) for number, line in enumerate(text.splitlines(), start=1)]
    for number, words in lines:
        if len(words) > 1 or any("\0" in word or "/" in word for word in words):
            raise InvalidDataError(
                f"{path}: line {number} holds {' '.join(words)!r:.60}, but the id of one image is "
                f"expected, such as 000001; give a list such as ImageSets/Main/test.txt."
            )
    ids = [words[0] for _, words in lines if words]
    if not ids:
        raise InvalidDataError(f"{path} lists no image; write the id of one into each line.")
    return ids


def _find_files(folder: Path, only: Sequence[str] | None) -> dict[str, Path]:
    place = folder / "Annotations"
    if not place.is_dir():
        raise MissingDataError(
            f"There is no folder Annotations in {folder}; name a folder such as VOCdevkit/VOC2007, "
            f"published at {_SOURCE}."
        )
    if only is None:
        return {path.stem: path for path in sorted(place.glob("*.xml"))}
    paths = {image_id: place / f"{image_id}.xml" for image_id in only}
    there = {path.name for path in place.iterdir()}
    missing = [path for path in paths.values() if path.name not in there]
    if missing:
        more = "" if len(missing) == 1 else f" and {len(missing) - 1:,} more of its list"
        raise MissingDataError(
            f"There is no {missing[0]}{more}; get the annotations from {_SOURCE}."
        )
    return paths


def _parse(path: Path) -> Element:
    """Parse an XML file; one that declares entities could grow without bounds and is refused."""
    builder = TreeBuilder()
    parser = expat.ParserCreate()
    parser.buffer_text = True
    parser.StartElementHandler = builder.start
    parser.EndElementHandler = builder.end
    parser.CharacterDataHandler = builder.data

    def refuse(*_: Any) -> None:
        raise InvalidDataError(
            f"{path} has a DOCTYPE, which could declare entities; annotations of VOC have none: "
            f"take the line out."
        )

    parser.StartDoctypeDeclHandler = refuse
    try:
        with opened(path) as file:
            parser.Parse(file.read(), True)
        tree: Element = builder.close()
    except (expat.ExpatError, ValueError, LookupError) as error:
        if isinstance(error, InvalidDataError):
            raise
        raise InvalidDataError(f"{path} is not XML: {error}; get the file again.") from None
    if tree.tag != "annotation":
        raise InvalidDataError(
            f"{path} begins with <{tree.tag:.40}>, but <annotation> is expected, as in VOC; give "
            f"the folder of such files."
        )
    return tree


def _objects(path: Path, tree: Element) -> list[dict[str, Any]]:
    return [
        _object(f"{path}: object {number}", node)
        for number, node in enumerate(tree.findall("object"), start=1)
    ]


def _object(where: str, node: Element) -> dict[str, Any]:
    if not (name := (node.findtext("name") or "").strip()):
        raise InvalidDataError(f"{where} has no name; write its class there.")
    left, top, right, bottom = (_number(where, node, edge) for edge in _EDGES)
    if not (left <= right and top <= bottom):
        raise InvalidDataError(
            f"{where} has the corners {left:g}, {top:g} and {right:g}, {bottom:g}, but the smaller "
            f"ones are expected first; correct it."
        )
    stated = (node.findtext("difficult") or "0").strip()
    if stated not in ("0", "1"):
        raise InvalidDataError(f"{where} has {stated!r:.40} as difficult, but 0 or 1 is expected.")
    box = [left - 1, top - 1, right - left + 1, bottom - top + 1]
    return {"name": name, "bbox": box, "difficult": int(stated)}


def _number(where: str, node: Element, edge: str) -> int | float:
    text = (node.findtext(f"bndbox/{edge}") or "").strip()
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise InvalidDataError(
            f"{where} has {text!r:.40} as {edge}, but a number is expected; correct it."
        )
    return int(value) if value.is_integer() else value


def _numbered(
    named: Mapping[str, Sequence[Mapping[str, Any]]], numbers: Mapping[str, int]
) -> dict[ImageId, list[Record]]:
    """Number all objects from 1, image by image, and replace names by category ids."""
    objects: dict[ImageId, list[Record]] = {}
    n_objects = 0
    for image_id in sorted(named):
        for record in named[image_id]:
            n_objects += 1
            box = record["bbox"]
            objects.setdefault(image_id, []).append(
                {"id": n_objects, "image_id": image_id, "category_id": numbers[record["name"]],
                 "bbox": box, "area": box[2] * box[3], "iscrowd": 0,
                 "difficult": record["difficult"]}
            )  # fmt: skip
    return objects


def _image(image_id: str, tree: Element, path: Path) -> Record:
    """Return the record of an image; its size is left out where the file has none."""
    suffix = PurePosixPath(tree.findtext("filename") or "").suffix or ".jpg"
    record = {"id": image_id, "file_name": f"JPEGImages/{image_id}{suffix}"}
    texts = [(tree.findtext(f"size/{side}") or "0").strip() for side in ("width", "height")]
    if not all(text.isdecimal() and int(text[:9]) <= _LONGEST_SIDE for text in texts):
        raise InvalidDataError(
            f"{path} has the size {' x '.join(texts)!r:.60}, but whole numbers are expected."
        )
    width, height = map(int, texts)
    return {**record, "width": width, "height": height} if width and height else record
