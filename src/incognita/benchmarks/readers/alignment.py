"""Finds each record's image in the list of images, and lays the records out image by image."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Int, Shaped


class Located(NamedTuple):
    """Where ids stand in a sorted list; a position means nothing where the id is not listed."""

    positions: Int[np.ndarray, "rows"]
    is_listed: Bool[np.ndarray, "rows"]


class Layout(NamedTuple):
    """Rows ordered by image: where each goes, None if they were in order, and the offsets."""

    order: Int[np.ndarray, "rows"] | None
    offsets: Int[np.ndarray, "images_plus_1"]


def locate(ids: Shaped[np.ndarray, "rows"], listed: Shaped[np.ndarray, "n"]) -> Located:
    """Find ids in a sorted list of ids of the same kind.

    >>> locate(np.array([7, 7, 8]), np.array([5, 7, 9])).is_listed.tolist()
    [True, True, False]
    """
    if not len(listed):
        return Located(np.zeros(len(ids), np.int64), np.zeros(len(ids), np.bool_))
    # files keep the records of an image together: one search per run, not per record
    is_first = np.concatenate([[True], ids[1:] != ids[:-1]])[: len(ids)]
    run_ids = ids[is_first]
    found = np.searchsorted(listed, run_ids).clip(max=len(listed) - 1)
    run_of_row = np.cumsum(is_first) - 1
    return Located(found[run_of_row], (listed[found] == run_ids)[run_of_row])


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
