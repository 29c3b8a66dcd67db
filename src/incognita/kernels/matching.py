"""Matching detections with objects, image by image: COCO's greedy rule and VOC's best-truth rule.

Both walk detections ordered by (image, label, falling confidence) beside objects ordered by
(image, label). All IoU thresholds are matched at once: bit t of a number belongs to threshold t.
"""

from typing import NamedTuple

import numba
import numpy as np

Array = np.ndarray


class Boxes(NamedTuple):
    """Detections: their order, where each image begins in it, and columns in file order."""

    order: Array
    offsets: Array
    labels: Array
    xyxy: Array
    sizes: Array


class Objects(NamedTuple):
    """The same for objects. A region absorbs detections; ignored objects need not be found."""

    order: Array
    offsets: Array
    labels: Array
    xyxy: Array
    sizes: Array
    areas: Array
    is_region: Array
    is_ignored: Array


class Pairs(NamedTuple):
    """Which pairs may match: `is_compatible[detection code, object code]`; empty if all may."""

    detection_codes: Array
    object_codes: Array
    is_compatible: Array


class MatchFlags(NamedTuple):
    """The result of a matching, per detection.

    `flags` holds, per area range, the true-positive bits, then as many words of ignored bits; what
    is neither is a false positive. `iou` and `truth_index` describe the first threshold and area
    range, and are empty where they are not needed.
    """

    flags: Array
    ranks: Array
    iou: Array
    truth_index: Array


class Group(NamedTuple):
    """Work space for the objects of one image and label, by their place in the group.

    `is_out` and `is_free_at` have one column per area range; the bits of `is_free_at` are the
    thresholds at which the object is still free.
    """

    is_out: Array
    is_free_at: Array
    in_region: Array


class Local(NamedTuple):
    """The boxes of one image, copied in file order, so that they are read from the cache."""

    corners: Array
    area: Array


class Close(NamedTuple):
    """Work space for the objects one detection could match, best first."""

    place: Array
    iou: Array
    bits: Array


@numba.njit(cache=True, nogil=True)
def order_by_group(groups: Array, n_groups: int, first: Array) -> tuple[Array, Array]:
    """Order by group, keeping the order `first` within groups; also return where groups begin."""
    starts = np.zeros(n_groups + 1, np.int64)
    for i in range(groups.size):
        starts[groups[i] + 1] += 1
    for g in range(n_groups):
        starts[g + 1] += starts[g]
    place = starts[:-1].copy()
    order = np.empty(groups.size, np.uint32)  # unsigned: indices that cannot count from the end
    for i in first:
        g = groups[i]
        order[place[g]] = i
        place[g] += 1
    return order, starts


@numba.njit(inline="always")
def overlap(
    x1: float, y1: float, x2: float, y2: float, own: float, xyxy: Array, sizes: Array, j: int,
    pixel: float,
) -> float:  # fmt: skip
    """IoU of a box of area `own` with box j of many.

    The first box is passed as scalars, which the caller reads once, not again for every pair.
    """
    width = min(x2, xyxy[j, 2]) - max(x1, xyxy[j, 0]) + pixel
    if width <= 0:
        return 0.0
    height = min(y2, xyxy[j, 3]) - max(y1, xyxy[j, 1]) + pixel
    if height <= 0:
        return 0.0
    shared: float = width * height
    return shared / float(own + sizes[j, 0] * sizes[j, 1] - shared)


@numba.njit(inline="always")
def _end_of_label(order: Array, begin: int, end: int, labels: Array, label: int) -> int:
    """Find the end of the run of a label that begins here; `begin` itself if there is none."""
    while begin < end and labels[order[begin]] == label:
        begin += 1
    return begin


@numba.njit(inline="always")
def _skip_to_label(order: Array, begin: int, end: int, labels: Array, label: int) -> int:
    while begin < end and labels[order[begin]] < label:
        begin += 1
    return begin


@numba.njit(inline="always")
def _thresholds_reached(iou: float, least: Array) -> int:
    """Set one bit for every threshold an IoU reaches; thresholds rise."""
    t = 0
    while t < least.size and iou >= least[t]:
        t += 1
    return (1 << t) - 1


@numba.njit(inline="always")
def _insert(close: Close, n: int, place: int, iou: float, bits: int) -> None:
    """Keep the list sorted by falling IoU; of equal ones the later object first, as COCO does."""
    q = n
    while q > 0 and close.iou[q - 1] <= iou:
        close.place[q] = close.place[q - 1]
        close.iou[q] = close.iou[q - 1]
        close.bits[q] = close.bits[q - 1]
        q -= 1
    close.place[q] = place
    close.iou[q] = iou
    close.bits[q] = bits


@numba.njit(inline="always")
def _find_close(
    i: int, k: int, local: Local, objects: Objects, g: int, g_end: int, pairs: Pairs, least: Array,
    close: Close,
) -> int:  # fmt: skip
    """List the objects that detection i, row k of the image, could match at the first threshold."""
    x1, y1 = local.corners[k, 0], local.corners[k, 1]
    x2, y2 = local.corners[k, 2], local.corners[k, 3]
    own = local.area[k]
    near = least[0] * (1 - 1e-9)  # a bound that saves most divisions and loses no pair
    n = 0
    for b in range(g, g_end):
        j = objects.order[b]
        width = max(0.0, min(x2, objects.xyxy[j, 2]) - max(x1, objects.xyxy[j, 0]))
        height = max(0.0, min(y2, objects.xyxy[j, 3]) - max(y1, objects.xyxy[j, 1]))
        shared = width * height
        # of a crowd region: the share of the detection that lies inside. The order of the additions
        # is COCO's; another one flips matches at an IoU of exactly one half
        other = objects.sizes[j, 0] * objects.sizes[j, 1]
        whole = own if objects.is_region[j] else own + other - shared
        if shared < near * whole:
            continue
        iou = shared / whole if shared > 0 else 0.0
        if iou < least[0]:
            continue
        if (
            pairs.is_compatible.size
            and not pairs.is_compatible[pairs.detection_codes[i], pairs.object_codes[j]]
        ):
            continue
        _insert(close, n, b - g, iou, _thresholds_reached(iou, least))
        n += 1
    return n


@numba.njit(inline="always")
def _take_objects(n: int, close: Close, group: Group, area: int, full: int) -> tuple[int, int, int]:
    """Match the best free object at every threshold, all thresholds at once.

    Objects that count are first; only thresholds without one may match ignored objects, and a
    crowd region is never used up. Returns the bits matched, the bits matched with ignored objects,
    and the entry of `close` that is matched at threshold 0, or -1.
    """
    unmatched = full
    found = 0
    ignored = 0
    first = -1
    for q in range(n):
        b = close.place[q]
        bits = close.bits[q] & group.is_free_at[b, area] & unmatched
        if group.is_out[b, area] or not bits:
            continue
        if bits & 1:
            first = q
        found |= bits
        unmatched &= ~bits
        group.is_free_at[b, area] &= ~bits
    for q in range(n if unmatched else 0):
        b = close.place[q]
        bits = close.bits[q] & unmatched
        if not group.in_region[b]:
            bits &= group.is_free_at[b, area]
        if not group.is_out[b, area] or not bits:
            continue
        ignored |= bits
        unmatched &= ~bits
        group.is_free_at[b, area] &= ~bits
    return found, ignored, first


@numba.njit(inline="always")
def _open_group(
    group: Group, objects: Objects, g: int, g_end: int, areas: Array, full: int
) -> None:
    """Mark in which area ranges each object of a group counts; all are free."""
    for b in range(g_end - g):
        j = objects.order[g + b]
        size = objects.areas[j]
        group.in_region[b] = objects.is_region[j]
        for area in range(areas.shape[0]):
            is_far = size < areas[area, 0] or size > areas[area, 1]
            group.is_out[b, area] = is_far or objects.is_ignored[j]
            group.is_free_at[b, area] = full


@numba.njit(inline="always")
def _copy_image(local: Local, boxes: Boxes, begin: int, stop: int) -> None:
    for i in range(begin, stop):
        for side in range(4):
            local.corners[i - begin, side] = boxes.xyxy[i, side]
        local.area[i - begin] = boxes.sizes[i, 0] * boxes.sizes[i, 1]


@numba.njit(inline="always")
def _judge(
    i: int, n: int, own: float, is_beyond: bool, close: Close, group: Group, areas: Array,
    full: int, found: MatchFlags, objects: Objects, g: int,
) -> None:  # fmt: skip
    """Write the flags of detection i, which could match n objects."""
    n_areas = areas.shape[0]
    for area in range(n_areas):
        # an unmatched detection is a false positive only inside the range
        is_outside = is_beyond or own < areas[area, 0] or own > areas[area, 1]
        if n == 0:
            if is_outside:
                found.flags[i, n_areas + area] = full
            continue
        bits, ignored, q = _take_objects(n, close, group, area, full)
        found.flags[i, area] = bits
        found.flags[i, n_areas + area] = full & ~bits if is_outside else ignored
        if area == 0 and q >= 0 and found.iou.size:
            found.iou[i] = close.iou[q]
            found.truth_index[i] = objects.order[g + close.place[q]]


@numba.njit(cache=True, nogil=True, error_model="numpy")
def match_greedy(
    boxes: Boxes,
    objects: Objects,
    pairs: Pairs,
    least: Array,
    areas: Array,
    cap: int,
    found: MatchFlags,
) -> None:
    """Match as COCO does: by falling confidence, each with the best object that is still free.

    `least` are the smallest IoUs that match; detections of an image and label beyond `cap` are
    ignored.
    """
    if boxes.offsets.size == 1:
        return  # no image
    full = (1 << least.size) - 1
    most = max(1, np.diff(objects.offsets).max())
    shape = (most, areas.shape[0])
    group = Group(np.empty(shape, np.bool_), np.empty(shape, np.int64), np.empty(most, np.bool_))
    longest = max(1, np.diff(boxes.offsets).max())
    local = Local(np.empty((longest, 4)), np.empty(longest))
    close = Close(np.empty(most, np.int64), np.empty(most), np.empty(most, np.int64))
    for image in range(boxes.offsets.size - 1):
        begin, stop = boxes.offsets[image], boxes.offsets[image + 1]
        g_end, g_stop = objects.offsets[image], objects.offsets[image + 1]
        first = begin
        _copy_image(local, boxes, begin, stop)
        while begin < stop:
            label = boxes.labels[boxes.order[begin]]
            end = _end_of_label(boxes.order, begin, stop, boxes.labels, label)
            g = _skip_to_label(objects.order, g_end, g_stop, objects.labels, label)
            g_end = _end_of_label(objects.order, g, g_stop, objects.labels, label)
            _open_group(group, objects, g, g_end, areas, full)
            for a in range(end - begin):
                i = boxes.order[begin + a]
                found.ranks[i] = min(a, 65535)
                n = 0
                if g < g_end and a < cap:
                    n = _find_close(i, i - first, local, objects, g, g_end, pairs, least, close)
                own = local.area[i - first]
                _judge(i, n, own, a >= cap, close, group, areas, full, found, objects, g)
            begin = end


@numba.njit
def _best_object(
    boxes: Boxes, i: int, objects: Objects, g: int, g_end: int, pixel: float
) -> tuple[float, int]:
    """Find the object with the largest IoU; of equal ones the first, as VOC does."""
    x1, y1, x2, y2 = boxes.xyxy[i, 0], boxes.xyxy[i, 1], boxes.xyxy[i, 2], boxes.xyxy[i, 3]
    own = boxes.sizes[i, 0] * boxes.sizes[i, 1]
    largest = -1.0
    best = -1
    for b in range(g, g_end):
        j = objects.order[b]
        iou = overlap(x1, y1, x2, y2, own, objects.xyxy, objects.sizes, j, pixel)
        if iou > largest:
            largest = iou
            best = j
    return largest, best


@numba.njit(cache=True, nogil=True, error_model="numpy")
def match_best(
    boxes: Boxes, objects: Objects, least: Array, pixel: float, found: MatchFlags
) -> None:
    """Match as VOC does: each detection only with its best object, false if that is taken."""
    taken = np.zeros(objects.labels.size, np.int64)
    for image in range(boxes.offsets.size - 1):
        begin, stop = boxes.offsets[image], boxes.offsets[image + 1]
        g_end, g_stop = objects.offsets[image], objects.offsets[image + 1]
        while begin < stop:
            label = boxes.labels[boxes.order[begin]]
            end = _end_of_label(boxes.order, begin, stop, boxes.labels, label)
            g = _skip_to_label(objects.order, g_end, g_stop, objects.labels, label)
            g_end = _end_of_label(objects.order, g, g_stop, objects.labels, label)
            for a in range(begin, end):
                i = boxes.order[a]
                largest, best = _best_object(boxes, i, objects, g, g_end, pixel)
                bits = _thresholds_reached(largest, least)
                if bits and objects.is_ignored[best]:
                    found.flags[i, 1] = bits
                elif bits:
                    found.flags[i, 0] = bits & ~taken[best]
                    if bits & ~taken[best] & 1 and found.iou.size:
                        found.iou[i] = largest
                        found.truth_index[i] = best
                    taken[best] |= bits
            begin = end


@numba.njit(cache=True, nogil=True, error_model="numpy")
def unknown_overlaps(
    boxes: Boxes, objects: Objects, is_known: Array, is_unknown: Array, pixel: float
) -> tuple[Array, Array, Array]:
    """Compute the largest overlaps between detections and unknown objects, in both directions.

    Returns the best IoU of each detection with an unknown object, and of each unknown object with
    a detection of a known class, and with any detection.
    """
    of_detection = np.zeros(boxes.xyxy.shape[0])
    with_known = np.zeros(objects.xyxy.shape[0])
    with_any = np.zeros(objects.xyxy.shape[0])
    for image in range(boxes.offsets.size - 1):
        for b in range(objects.offsets[image], objects.offsets[image + 1]):
            j = objects.order[b]
            if not is_unknown[j]:
                continue
            x1, y1 = objects.xyxy[j, 0], objects.xyxy[j, 1]
            x2, y2 = objects.xyxy[j, 2], objects.xyxy[j, 3]
            own = objects.sizes[j, 0] * objects.sizes[j, 1]
            for a in range(boxes.offsets[image], boxes.offsets[image + 1]):
                i = boxes.order[a]
                iou = overlap(x1, y1, x2, y2, own, boxes.xyxy, boxes.sizes, i, pixel)
                of_detection[i] = max(of_detection[i], iou)
                with_any[j] = max(with_any[j], iou)
                if is_known[i]:
                    with_known[j] = max(with_known[j], iou)
    return of_detection, with_known, with_any
