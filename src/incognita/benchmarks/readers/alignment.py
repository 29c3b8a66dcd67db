"""Finds the image and the class of each record, and lays the records out image by image."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from incognita.formats._records import Refuse
from incognita.shapes import Bool, Int, Shaped


class Located(NamedTuple):
    """Where ids stand in a list; a position means nothing where the id is not listed."""

    positions: Int[np.ndarray, "rows"]
    is_listed: Bool[np.ndarray, "rows"]


class Layout(NamedTuple):
    """Rows ordered by image: which row comes when, None if they were in order, and the offsets."""

    order: Int[np.ndarray, "rows"] | None
    offsets: Int[np.ndarray, "images_plus_1"]


def locate(ids: Shaped[np.ndarray, "rows"], listed: Shaped[np.ndarray, "n"]) -> Located:
    """Find ids in a list of ids of the same kind.

    >>> locate(np.array([7, 7, 8]), np.array([9, 7, 5])).is_listed.tolist()
    [True, True, False]
    """
    if not len(listed) or not len(ids):
        return Located(np.zeros(len(ids), np.int64), np.zeros(len(ids), np.bool_))
    # files keep the records of an image together: one search per run, not per record
    is_first = np.concatenate([[True], ids[1:] != ids[:-1]])
    run_ids, run_of_row = ids[is_first], np.cumsum(is_first) - 1
    ascending = np.argsort(listed, kind="stable")
    place = np.searchsorted(listed, run_ids, sorter=ascending).clip(max=len(listed) - 1)
    found = ascending[place]
    return Located(found[run_of_row], (listed[found] == run_ids)[run_of_row])


def find_images(
    ids: Shaped[np.ndarray, "rows"],
    listed: Shaped[np.ndarray, "images"],
    *,
    source: str,
    refuse: Refuse,
) -> Int[np.ndarray, "rows"]:
    """Give the position of each record's image among the images that `source` lists."""
    if len(ids) and (ids.dtype.kind == "U") != (listed.dtype.kind == "U"):
        kind = "text" if listed.dtype.kind == "U" else "numbers"
        problem = f"has {ids[0].item()!r} as image_id, but the image ids of {source} are {kind}"
        raise refuse(0, f"{problem}; write both alike.")
    located = locate(ids, listed)
    if not located.is_listed.all():
        row = int(located.is_listed.argmin())
        problem = f"is on image {ids[row].item()!r}, which {source} does not list"
        raise refuse(row, f"{problem}; add the image there or remove the record.")
    return located.positions


def find_classes(
    category_ids: Int[np.ndarray, "rows"],
    categories: Mapping[int, int],
    *,
    source: str,
    refuse: Refuse,
) -> Int[np.ndarray, "rows"]:
    """Give the class id of each record's category id, as `source` lists them."""
    located = locate(category_ids, np.array(list(categories), np.int64))
    if not located.is_listed.all():
        row = int(located.is_listed.argmin())
        problem = f"has {category_ids[row]} as category_id, which {source} does not list"
        raise refuse(row, f"{problem} among its categories; add it there or in a class map.")
    of_category = np.array(list(categories.values()), np.int32)
    return np.take(of_category, located.positions)


def lay_out(image_index: Int[np.ndarray, "rows"], n_images: int) -> Layout:
    """Order rows by image, keeping the order of the file inside each image.

    >>> lay_out(np.array([1, 0, 1]), 3)
    Layout(order=array([1, 0, 2]), offsets=array([0, 1, 3, 3]))
    """
    counts = np.bincount(image_index, minlength=n_images)
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    if (image_index[1:] >= image_index[:-1]).all():
        return Layout(None, offsets)
    return Layout(np.argsort(image_index, kind="stable"), offsets)
