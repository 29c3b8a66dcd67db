"""Pairing detections with objects, image by image: COCO's greedy rule and VOC's best-truth rule.

Both walk detections ordered by (image, label, falling confidence) beside objects ordered by
(image, label). All IoU thresholds are answered at once: bit t of a flag belongs to threshold t.
Row i of `flags` holds, per area range, the true-positive bits, then as many words of ignored bits;
a detection that is neither is a false positive.
"""

import numba
import numpy as np


@numba.njit(inline="always")
def overlap(x1, y1, x2, y2, own, others, sizes, j, pixel, is_region):
    """IoU of a box of area `own` with other box j; of a crowd region, the share that lies inside.

    The box comes as scalars, which the caller reads once: twice as fast as reading it per pair.
    """
    width = min(x2, others[j, 2]) - max(x1, others[j, 0]) + pixel
    if width <= 0:
        return 0.0
    height = min(y2, others[j, 3]) - max(y1, others[j, 1]) + pixel
    if height <= 0:
        return 0.0
    shared = width * height
    return shared / (own if is_region else own + sizes[j, 0] * sizes[j, 1] - shared)


@numba.njit(inline="always")
def _end_of_label(order, begin, end, labels, label):
    """Where the run of a label that begins here ends; `begin` itself if there is none."""
    while begin < end and labels[order[begin]] == label:
        begin += 1
    return begin


@numba.njit(inline="always")
def _skip_to_label(order, begin, end, labels, label):
    while begin < end and labels[order[begin]] < label:
        begin += 1
    return begin


@numba.njit(inline="always")
def _thresholds_reached(iou, least):
    """One bit for every threshold an IoU reaches; thresholds rise."""
    t = 0
    while t < least.size and iou >= least[t]:
        t += 1
    return (1 << t) - 1


@numba.njit(inline="always")
def _find_close(
    d_boxes, d_sizes, i, t_order, g, g_end, t_boxes, t_sizes, is_region, codes, compatible, least,
    close, close_ious, close_bits,
):  # fmt: skip
    """List the objects a detection could match, best first; of equal ones the later, as COCO does."""
    x1, y1, x2, y2 = d_boxes[i, 0], d_boxes[i, 1], d_boxes[i, 2], d_boxes[i, 3]
    own = d_sizes[i, 0] * d_sizes[i, 1]
    near = least[0] * (1 - 1e-9)  # a bound that spares most pairs the division, and loses none
    n = 0
    for b in range(g, g_end):
        j = t_order[b]
        width = max(0.0, min(x2, t_boxes[j, 2]) - max(x1, t_boxes[j, 0]))
        height = max(0.0, min(y2, t_boxes[j, 3]) - max(y1, t_boxes[j, 1]))
        shared = width * height
        whole = own if is_region[j] else own + t_sizes[j, 0] * t_sizes[j, 1] - shared
        if shared < near * whole:
            continue
        iou = shared / whole if shared > 0 else 0.0
        if iou < least[0]:
            continue
        if codes is not None and not compatible[codes[0][i], codes[1][j]]:
            continue
        q = n
        while q > 0 and close_ious[q - 1] <= iou:
            close[q] = close[q - 1]
            close_ious[q] = close_ious[q - 1]
            close_bits[q] = close_bits[q - 1]
            q -= 1
        close[q] = b - g
        close_ious[q] = iou
        close_bits[q] = _thresholds_reached(iou, least)
        n += 1
    return n


@numba.njit(inline="always")
def _take_objects(n_close, close, close_bits, area, is_out, is_free_of, in_region, unanswered):
    """Give every threshold the best object that is free at it, all thresholds at once.

    Objects that count come first; only what they leave unanswered may go to ignored ones, and a
    crowd region is never used up. Returns the bits found, the bits spent on ignored objects, and the
    object of threshold 0.
    """
    found = 0
    ignored = 0
    first = -1
    for q in range(n_close):
        b = close[q]
        bits = close_bits[q] & is_free_of[b, area] & unanswered
        if is_out[b, area] or not bits:
            continue
        if bits & 1:
            first = q
        found |= bits
        unanswered &= ~bits
        is_free_of[b, area] &= ~bits
    for q in range(n_close if unanswered else 0):
        b = close[q]
        bits = close_bits[q] & unanswered
        if not in_region[b]:
            bits &= is_free_of[b, area]
        if not is_out[b, area] or not bits:
            continue
        ignored |= bits
        unanswered &= ~bits
        is_free_of[b, area] &= ~bits
    return found, ignored, first


@numba.njit(cache=True, nogil=True, error_model="numpy")
def match_greedy(
    d_order, d_offsets, d_labels, d_boxes, d_sizes,
    t_order, t_offsets, t_labels, t_boxes, t_sizes, t_areas,
    is_region, is_ignored, codes, compatible,
    least, areas, max_detections, flags, ranks, ious_out, truth_out,
):  # fmt: skip
    """Match as COCO does: by falling confidence, each with the best object that is still free.

    `compatible[codes[0][i], codes[1][j]]` says which pairs may match at all; both are None where
    the label alone decides. `ious_out` and `truth_out` describe threshold 0 and the first area.
    """
    n_areas = areas.shape[0]
    full = (1 << least.size) - 1
    most = max(1, np.diff(t_offsets).max())
    is_out = np.empty((most, n_areas), np.bool_)
    is_free_of = np.empty((most, n_areas), np.int64)  # thresholds at which an object is free
    in_region = np.empty(most, np.bool_)
    close, close_ious, close_bits = (
        np.empty(most, np.int64),
        np.empty(most),
        np.empty(most, np.int64),
    )
    for image in range(d_offsets.size - 1):
        begin = d_offsets[image]
        g_end = t_offsets[image]
        while begin < d_offsets[image + 1]:
            label = d_labels[d_order[begin]]
            end = _end_of_label(d_order, begin, d_offsets[image + 1], d_labels, label)
            g = _skip_to_label(t_order, g_end, t_offsets[image + 1], t_labels, label)
            g_end = _end_of_label(t_order, g, t_offsets[image + 1], t_labels, label)
            for b in range(g_end - g):
                j = t_order[g + b]
                in_region[b] = is_region[j]
                for area in range(n_areas):
                    is_far = t_areas[j] < areas[area, 0] or t_areas[j] > areas[area, 1]
                    is_out[b, area] = is_far or is_ignored[j]
                    is_free_of[b, area] = full
            for a in range(end - begin):
                i = d_order[begin + a]
                ranks[i] = min(a, 65535)
                n_close = 0
                if g < g_end and a < max_detections:
                    n_close = _find_close(
                        d_boxes, d_sizes, i, t_order, g, g_end, t_boxes, t_sizes, is_region,
                        codes, compatible, least, close, close_ious, close_bits,
                    )  # fmt: skip
                own = d_sizes[i, 0] * d_sizes[i, 1]
                for area in range(n_areas):
                    # what is left unmatched is wrong only if it belongs here at all
                    is_foreign = own < areas[area, 0] or own > areas[area, 1] or a >= max_detections
                    if n_close == 0:
                        if is_foreign:
                            flags[i, n_areas + area] = full
                        continue
                    found, ignored, q = _take_objects(
                        n_close, close, close_bits, area, is_out, is_free_of, in_region, full
                    )
                    flags[i, area] = found
                    flags[i, n_areas + area] = full & ~found if is_foreign else ignored
                    if area == 0 and q >= 0:
                        ious_out[i] = close_ious[q]
                        truth_out[i] = t_order[g + close[q]]
            begin = end


@numba.njit
def _best_object(boxes, sizes, i, objects, t_boxes, t_sizes, pixel):
    """The object with the largest IoU; of equal ones the first, as VOC does."""
    x1, y1, x2, y2 = boxes[i, 0], boxes[i, 1], boxes[i, 2], boxes[i, 3]
    own = sizes[i, 0] * sizes[i, 1]
    largest = -1.0
    best = -1
    for j in objects:
        iou = overlap(x1, y1, x2, y2, own, t_boxes, t_sizes, j, pixel, False)
        if iou > largest:
            largest = iou
            best = j
    return largest, best


@numba.njit(cache=True, nogil=True, error_model="numpy")
def match_best(
    d_order, d_offsets, d_labels, d_boxes, d_sizes,
    t_order, t_offsets, t_labels, t_boxes, t_sizes,
    is_ignored, least, pixel, flags, ious_out, truth_out,
):  # fmt: skip
    """Match as VOC does: each detection only with its best object; if that is taken, it is wrong."""
    taken = np.zeros(t_labels.size, np.int64)
    for image in range(d_offsets.size - 1):
        begin = d_offsets[image]
        g_end = t_offsets[image]
        while begin < d_offsets[image + 1]:
            label = d_labels[d_order[begin]]
            end = _end_of_label(d_order, begin, d_offsets[image + 1], d_labels, label)
            g = _skip_to_label(t_order, g_end, t_offsets[image + 1], t_labels, label)
            g_end = _end_of_label(t_order, g, t_offsets[image + 1], t_labels, label)
            for i in d_order[begin:end]:
                largest, best = _best_object(
                    d_boxes, d_sizes, i, t_order[g:g_end], t_boxes, t_sizes, pixel
                )
                for t in range(least.size):
                    bit = 1 << t
                    if largest < least[t]:
                        break
                    if is_ignored[best]:
                        flags[i, 1] |= bit
                    elif not taken[best] & bit:
                        taken[best] |= bit
                        flags[i, 0] |= bit
                        if t == 0:
                            ious_out[i] = largest
                            truth_out[i] = best
            begin = end


@numba.njit(cache=True, nogil=True, error_model="numpy")
def unknown_overlaps(
    d_offsets, d_boxes, d_sizes, is_known, t_offsets, t_boxes, t_sizes, is_unknown, pixel
):
    """Largest overlaps between detections and unknown objects, in both directions.

    Gives of each detection its best IoU with an unknown object, and of each unknown object its best
    IoU with a detection of a known class, and with any detection.
    """
    of_detection = np.zeros(d_boxes.shape[0])
    with_known = np.zeros(t_boxes.shape[0])
    with_any = np.zeros(t_boxes.shape[0])
    for image in range(d_offsets.size - 1):
        for j in range(t_offsets[image], t_offsets[image + 1]):
            if not is_unknown[j]:
                continue
            x1, y1, x2, y2 = t_boxes[j, 0], t_boxes[j, 1], t_boxes[j, 2], t_boxes[j, 3]
            own = t_sizes[j, 0] * t_sizes[j, 1]
            for i in range(d_offsets[image], d_offsets[image + 1]):
                iou = overlap(x1, y1, x2, y2, own, d_boxes, d_sizes, i, pixel, False)
                of_detection[i] = max(of_detection[i], iou)
                with_any[j] = max(with_any[j], iou)
                if is_known[i]:
                    with_known[j] = max(with_known[j], iou)
    return of_detection, with_known, with_any
